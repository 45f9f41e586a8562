"""``paceline calibrate``: real training steps, or profiles of them, in; a fitted workload out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.commands import Panel

__all__ = ["calibrate"]

PANEL, ORDER = Panel.MEASURE, 60


def calibrate(
    name: Annotated[str, typer.Option("--name", help="Name of the workload: the catalogue's key and the file's name.", show_default=False)],
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL.py:FUNCTION",
            help="FUNCTION() returns a Keras model, or (model, loss, input_spec). input_spec, without batch dimension: a tf.TensorSpec "
            "(or a structure of them) for x, a pair (x_spec, y_spec), or a function batch -> (x, y). With --from-profile it is not run: "
            "it tells the sizes of the variables.",
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
    from_profile: Annotated[
        list[str] | None,
        typer.Option(
            "--from-profile",
            metavar="LOGDIR[@BATCH]",
            help="Instead of measuring: a log directory (or .xplane.pb file) that tf.profiler or the TensorBoard callback wrote, and the "
            "samples of a step in it. Once for each batch size; from one alone, all time counts as the samples'.",
            show_default=False,
        ),
    ] = None,
    from_measurements: Annotated[
        list[Path] | None,
        typer.Option(
            "--from-measurements",
            metavar="FILE",
            help="Instead of measuring: a measurement file of an earlier calibration, to be fitted again. Once for each file of it.",
            show_default=False,
        ),
    ] = None,
    profile_run: Annotated[
        str | None,
        typer.Option("--profile-run", metavar="NAME", help="Which run of the log directory; default: the newest.", show_default=False),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint",
            metavar="PATH",
            help="With --from-profile, the sizes of the variables: a checkpoint, a SavedModel or a .keras file.",
            show_default=False,
        ),
    ] = None,
    variables: Annotated[
        Path | None,
        typer.Option(
            "--variables",
            metavar="FILE.json",
            help='The same from a list: [{"name": "dense/kernel", "shape": [784, 10], "dtype": "float32"}, ...], as created.',
            show_default=False,
        ),
    ] = None,
    from_tf_config: Annotated[
        str | None,
        typer.Option(
            "--from-tf-config",
            metavar="FILE|JSON|env",
            help="Write a scenario (--out) for the cluster that a TF_CONFIG or ClusterSpec describes; env: the variable TF_CONFIG. Its "
            "workload is NAME, fitted in the same call or already there.",
            show_default=False,
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="NAME",
            help="Hardware and links of that scenario: a cluster of the catalogue, or a file.",
            show_default="ethernet-25g",
        ),
    ] = None,
    devices_per_worker: Annotated[
        int | None, typer.Option("--devices-per-worker", help="Devices that each worker of that scenario drives.", show_default="1")
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(
            "--batch",
            help="Batch sizes, at least two, better three. With --from-profile: one for each profile.",
            show_default="16,32,64",
        ),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", help="Timed steps at each batch size, in each run.")] = 50,
    runs: Annotated[int, typer.Option("--runs", help="Processes to measure in, one after the other; they differ more than steps do.")] = 3,
    at_once: Annotated[
        int,
        typer.Option(
            "--at-once",
            min=1,
            help="Processes to measure at the same time as well, each on cores of its own: they show how much of the spread between "
            "processes those of one machine have in common (run_to_run_shared), and how much longer a step takes while other cores are "
            "busy (busy_core_slowdown). 1 measures none. CPUs only.",
        ),
    ] = 1,
    launches: Annotated[
        int, typer.Option("--launches", min=2, help="With --at-once: how often; fewer than 5 tell little.", show_default="5")
    ] = 5,
    accept_disturbed: Annotated[
        bool,
        typer.Option(
            "--accept-disturbed",
            help="Fit measurements that other processes have disturbed, and runs at different levels, with a warning instead of refusing.",
        ),
    ] = False,
    python: Annotated[
        str | None, typer.Option("--python", help="Python that has TensorFlow and your model's packages; default: this one.")
    ] = None,
    device: Annotated[str | None, typer.Option("--device", help="CPU, GPU or GPU:INDEX; default: the first GPU, else the CPU.")] = None,
    precision: Annotated[str, typer.Option("--precision", help="float32 or mixed_float16.")] = "float32",
    jit: Annotated[bool, typer.Option("--jit", help="Compile the step with XLA.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Workload file; default: models/workloads/NAME.toml. With --from-tf-config: the scenario; default: NAME-scenario.toml.",
            show_default=False,
        ),
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
    Rounds that other processes disturb are measured again; where too few are left, nothing
    is fitted (--accept-disturbed), and --from-measurements fits what is there.

    Without any run: [bold]--from-profile[/bold] fits what the profiler wrote during a training of
    yours, [bold]--from-tf-config[/bold] makes a scenario of your cluster.

    Example: [bold]paceline calibrate models/keras/cnn.py:build --name cnn --batch 16,32,64[/bold]

    Example: [bold]paceline calibrate --name mine --from-profile logs16@16 --from-profile logs32@32
    --checkpoint ckpt/ --from-tf-config env --out mine.toml[/bold]
    """
    from calibrate import fit_workload, write_workload
    from paceline.cli.calibrate_profile import calibrate_profiles, places_of
    from paceline.cli.calibrate_scenario import batch_of, needs, planned, write_scenario
    from paceline.cli.calibrating import (
        batches_of,
        check_name,
        command_line,
        measure_step,
        show_workload,
        warn_of_measurements,
    )
    from simulator.errors import InputError
    from simulator.files import check_writable

    measured = not from_profile and (model is not None or step is not None)
    if (model is not None and step is not None) or not (measured or from_profile or from_measurements or from_tf_config is not None):
        raise InputError(
            "calibrate: give either MODEL.py:FUNCTION or --step FILE.py:FUNCTION, "
            "or --from-profile, --from-measurements or --from-tf-config"
        )
    if from_measurements and (measured or from_profile):
        raise InputError("--from-measurements: nothing is measured with it; leave out the model, --step and --from-profile")
    if at_once > 1 and not measured:
        raise InputError("--at-once: nothing is measured here; give MODEL.py:FUNCTION or --step FILE.py:FUNCTION")
    needs("--from-profile", from_profile, {"--profile-run": profile_run, "--checkpoint": checkpoint, "--variables": variables})
    needs("--from-tf-config", from_tf_config, {"--cluster": cluster, "--devices-per-worker": devices_per_worker})
    if step is not None and from_profile:
        raise InputError(
            "--step: nothing is run with --from-profile; for the sizes of the variables give MODEL.py:FUNCTION or --checkpoint"
        )
    if from_profile and (device is not None or jit):
        raise InputError(f"{'--jit' if jit else '--device'}: nothing is run with --from-profile; the profile tells where it was made")
    if precision not in ("float32", "mixed_float16"):
        raise InputError(f"--precision {precision!r}: must be float32 or mixed_float16")
    check_name(name)
    result = out if out is not None and from_tf_config is None else Path("models/workloads") / f"{name}.toml"
    scenario = (
        planned(from_tf_config, out or Path(f"{name}-scenario.toml"), cluster, devices_per_worker) if from_tf_config is not None else None
    )
    sizes: list[int] = []
    if from_profile:
        places = places_of(from_profile, batch)
        sizes = [size for _, size in places]
        check_writable(result)
        workload = calibrate_profiles(
            places,
            name,
            run=profile_run,
            model=model,
            checkpoint=checkpoint,
            variables=variables,
            precision=precision,
            python=python,
            timeout_s=timeout,
            as_json=json,
        )
        write_workload(workload, result)
        show_workload(workload, result, places[0][0], as_json=json)
    elif measured or from_measurements:
        check_writable(result)
        if from_measurements:
            files = list(from_measurements)
        else:
            sizes = batches_of(batch or "16,32,64")
            files = measure_step(
                str(model or step),
                name,
                measurements,
                runs=runs,
                at_once=at_once,
                launches=launches,
                accept_disturbed=accept_disturbed,
                custom=step is not None,
                batches=sizes,
                steps=steps,
                device=device,
                precision=precision,
                jit=jit,
                python=python,
                timeout_s=timeout,
            )
        workload = fit_workload(files, name, command_line(), accept_disturbed=accept_disturbed, stored=bool(from_measurements))
        sizes = [point.batch for point in workload.fit.points] if workload.fit else sizes
        warn_of_measurements(workload.provenance)
        write_workload(workload, result)
        show_workload(workload, result, files[0], as_json=json)
    if scenario is not None:
        write_scenario(
            scenario,
            name,
            max(sizes, default=None) or batch_of(batch),
            as_json=json and not (measured or from_profile or from_measurements),
        )
