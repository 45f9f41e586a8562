"""``paceline calibrate-input``: a real tf.data pipeline in, a fitted input pipeline out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.commands import Panel
from paceline.cli.options import Given, calling, command_line

if TYPE_CHECKING:
    from simulator.spec.input_pipeline import InputPipeline, InputWork

PANEL, ORDER = Panel.MEASURE, 65


@calling("calibrate_input", left_out={"out": "models/inputs/NAME.toml"})
def calibrate_input(given: Given, *, json: Annotated[bool, typer.Option("--json", help="Print what was fitted as JSON.")] = False) -> None:
    """Time your tf.data pipeline, and write an input file.

    Example: [bold]paceline calibrate-input train.py:images --name images[/bold], then
    [bold]paceline simulate ring --set input.use=images --set input.prefetch=4[/bold]

    Your file runs in a process of its own, which takes batches as fast as they come, with 1, 2, 4...
    parallel calls. A function such as images(num_parallel_calls=4, batch=32) lets batch sizes and
    calls be varied; of a finished tf.data.Dataset only the threads are. A pipeline that caches is
    measured in whole epochs: use take(1000) of a large data set.

    The input file says how the time of a batch depends on calls and batch size, in the first epoch
    and in later ones. A scenario can then change input.parallel_calls, input.prefetch and the batch.
    """
    from paceline import api
    from paceline.cli.measuring import measuring, note_of_measurements

    result = given.get("out") or Path("models/inputs") / f"{given['name']}.toml"
    with measuring() as progress:
        pipeline = api.calibrate_input(**{**given, "out": result}, command=command_line(), progress=progress)
    raw = given.get("from_measurements") or given["measurements"] / pipeline.provenance["measurements"]
    note_of_measurements(pipeline.provenance)
    _show(pipeline, result, raw, as_json=json)


def _show(pipeline: InputPipeline, path: Path, raw: Path, *, as_json: bool) -> None:
    """The fitted summary on stdout: for a reader, or as JSON."""
    from paceline.cli.measuring import note_of_file, print_fitted
    from paceline.cli.terminal import say
    from simulator.base.text import format_seconds

    if as_json:
        print_fitted(pipeline, path, raw)
        return
    say(f"{pipeline.name}: {pipeline.description}")
    say(f"  {pipeline.provenance.get('pipeline', '')}")
    say(f"  parallel calls {pipeline.parallel_calls}, prefetch {pipeline.prefetch}, shuffle buffer {pipeline.shuffle_buffer:,} samples")
    _show_work("each epoch" if pipeline.cached is None else "first epoch", "work", pipeline.work, pipeline)
    if pipeline.cached is not None:
        _show_work("later epochs", "cached", pipeline.cached, pipeline)
    if pipeline.fit is not None:
        say("  epoch  batch  calls    measured      fitted")
        for point in pipeline.fit.points:
            work = pipeline.cached if point.epoch == "later" and pipeline.cached is not None else pipeline.work
            fitted_s = max(work.serial(point.batch), work.parallel(point.batch) / point.parallel_calls)
            times = f"{format_seconds(float(point.mean_s)):>10}  {format_seconds(fitted_s):>10}"
            say(f"  {point.epoch:<5}  {point.batch:>5g}  {point.parallel_calls:>5}  {times}")
    note_of_file(path, "input", beside=f"raw measurements in {raw}", init=False)


def _show_work(label: str, place: str, work: InputWork, pipeline: InputPipeline) -> None:
    """Both parts of a batch's work with their intervals."""
    from paceline.cli.terminal import say
    from simulator.base.text import format_bytes, format_seconds

    intervals = pipeline.fit.intervals_90 if pipeline.fit else {}
    for part, law in (("serial", work.serial), ("parallel", work.parallel)):
        for key, words in (("base_s", "a batch"), ("per_sample_s", "a sample")):
            value = float(getattr(law, key))
            low, high = intervals.get(f"{place}.{part}.{key}", (value, value))
            if value or high:
                say(f"  {label:<13}{part:<9}{format_seconds(value):>10} {words}   90%: {format_seconds(low)} to {format_seconds(high)}")
    if work.read_bytes_per_sample:
        say(f"  {label:<13}reads    {format_bytes(work.read_bytes_per_sample):>10} a sample")
