"""``paceline calibrate``: real training steps in, a fitted workload out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["calibrate"]


def calibrate(
    name: Annotated[str, typer.Option("--name", help="Name of the workload: the catalogue's key and the file's name.", show_default=False)],
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL.py:FUNCTION",
            help="FUNCTION() returns a Keras model, or (model, loss, input_spec). input_spec, without batch dimension: a tf.TensorSpec "
            "(or a structure of them) for x, a pair (x_spec, y_spec), or a function batch -> (x, y).",
            show_default=False,
        ),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(
            "--step",
            metavar="FILE.py:FUNCTION",
            help="Instead of a model, your own training step: FUNCTION(batch_size) returns a callable without arguments that does one full "
            "step (tf.GradientTape and optimizer) and returns its loss.",
        ),
    ] = None,
    batch: Annotated[str, typer.Option("--batch", help="Batch sizes, at least two, better three.")] = "16,32,64",
    steps: Annotated[int, typer.Option("--steps", help="Timed steps at each batch size, in each run.")] = 50,
    runs: Annotated[int, typer.Option("--runs", help="Processes to measure in, one after the other; they differ more than steps do.")] = 3,
    python: Annotated[
        str | None, typer.Option("--python", help="Python that has TensorFlow and your model's packages; default: this one.")
    ] = None,
    device: Annotated[str | None, typer.Option("--device", help="CPU, GPU or GPU:INDEX; default: the first GPU, else the CPU.")] = None,
    precision: Annotated[str, typer.Option("--precision", help="float32 or mixed_float16.")] = "float32",
    jit: Annotated[bool, typer.Option("--jit", help="Compile the step with XLA.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Workload file; default: models/workloads/NAME.toml.", show_default=False)
    ] = None,
    measurements: Annotated[Path, typer.Option("--measurements", help="Folder for raw measurements; each run adds a file.")] = Path(
        "measurements"
    ),
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds after which measuring is given up.")] = 1800.0,
    json: Annotated[bool, typer.Option("--json", help="Print the fitted summary as JSON.")] = False,
) -> None:
    """Measure a training step on the device at hand, and fit a workload to it.

    Runs your model in your own Python as a child process: finds the warm-up, times steps in
    rounds over the batch sizes, splits forward, backward and apply, and sees when each
    gradient becomes ready. The batch lies on the device already: input is not measured.

    Example: [bold]paceline calibrate models/keras/cnn.py:build --name cnn --batch 16,32,64[/bold]
    """
    from calibrate import fit_workload, profile_runs, write_workload
    from calibrate.measurements import new_file
    from paceline.cli.calibrating import batches_of, check_name, command_line, measuring, show_workload, warn_unseen_gpu
    from simulator.errors import InputError
    from simulator.files import check_writable

    if (model is None) == (step is None):
        raise InputError("calibrate: give either MODEL.py:FUNCTION or --step FILE.py:FUNCTION")
    if precision not in ("float32", "mixed_float16"):
        raise InputError(f"--precision {precision!r}: must be float32 or mixed_float16")
    target = str(model or step)
    check_name(name)
    sizes = batches_of(batch)
    result = out or Path("models/workloads") / f"{name}.toml"
    check_writable(result)
    raw = new_file(measurements, name, "step")
    with measuring(raw, "steps") as progress:
        files = profile_runs(
            target,
            name,
            custom=step is not None,
            batches=sizes,
            steps=steps,
            runs=runs,
            device=device,
            precision=precision,
            jit=jit,
            python=python,
            timeout_s=timeout,
            out=raw,
            progress=progress,
        )
    workload = fit_workload(files, name, command_line())
    warn_unseen_gpu(workload.provenance)
    write_workload(workload, result)
    show_workload(workload, result, raw, as_json=json)
