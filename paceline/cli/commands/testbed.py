"""``paceline testbed``: a real TensorFlow cluster on this machine, measured, and what larger ones would show.

Its sub-commands call ``testbed``, ``testbed_read``, ``testbed_fit`` and ``testbed_predict`` of ``paceline.api``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from paceline.arguments import Typed
from paceline.cli.options import Given, calling

if TYPE_CHECKING:
    from calibrate.testbed.summary import TestbedRun

ABOUT = "Run a real TensorFlow cluster on this machine, measure it, and predict larger ones."

Json: TypeAlias = Annotated[bool, Typed(text="Print as JSON.")]
"""Whether the answer is printed as JSON."""


@calling("testbed")
def run(given: Given, *, json: Json = False) -> None:
    """Run a real TensorFlow cluster on this machine and measure it.

    Without options it runs 4 asynchronous workers and a parameter server on links of 400 Mbit/s, for
    about a minute. It prints updates/s and samples/s of each repeat and the 90% interval for the next,
    staleness, where the time of a step goes, and bytes and CPU time of each job.

    Workers and servers are processes in network namespaces that nobody else can reach.
    Nothing is left behind, however it ends.

    Keys of the setting, for --set and for a file ([bold]paceline schema testbed-setting[/bold] has all of them):

    [bold]mode[/bold] is one of these. [bold]async[/bold]: ParameterServerStrategy with a ClusterCoordinator: one process hands out
    steps, updates are applied as they come. [bold]between-graph[/bold]: the same without a coordinator, in sessions of
    tf.compat.v1: every worker drives itself. [bold]sync[/bold]: SyncReplicasOptimizer: servers average the
    gradients of all workers, or of all but backup_workers, before they update. [bold]ring[/bold]:
    MultiWorkerMirroredStrategy: all-reduce over a ring, no servers. [bold]mirrored[/bold]: MirroredStrategy:
    replicas on logical devices of one process, no network. [bold]apart[/bold]: processes that compute at the same time
    and exchange nothing: what busy cores cost.

    [bold]workers[/bold], [bold]servers[/bold], [bold]backup_workers[/bold], [bold]threads[/bold] (of TensorFlow in each process).

    [bold]link[/bold]=loopback, which needs no root; or [bold]link.bandwidth[/bold]='1 Gbit/s' of each host, each way,
    [bold]link.sharing[/bold]=fair (one queue per peer) or tcp (as TCP decides), [bold]link.buffer[/bold]='20 ms',
    [bold]link.congestion[/bold]=cubic.

    [bold]model[/bold]: ladder-1mb, -4mb, -16mb or -64mb (with /16 in 16 variables), FILE.py:FUNCTION as for paceline
    calibrate, or a workload of paceline models list.

    [bold]compute.mean[/bold]='50 ms' with [bold]compute.law.kind[/bold]=constant, exponential, gamma ([bold]compute.law.shape[/bold])
    or lognormal ([bold]compute.law.sigma[/bold]): a sleep drawn from that law. [bold]compute.kind[/bold]=real: the model's own
    passes. [bold]batch[/bold]: samples of a worker's step. [bold]overlap[/bold]=true: layers pull, compute and push one by one.

    [bold]steps[/bold] and [bold]warm_up[/bold] of each worker; [bold]start_spread[/bold]='1 s' within which asynchronous workers start.

    [bold]checkpoint_every[/bold]=20 steps, and in a file [bold]faults[/bold]: workers or servers that are killed and come back
    (docs/faults.md).

    Example: [bold]paceline testbed run --set workers=8 --set servers=2 --set model=ladder-4mb --set compute.mean='50 ms'[/bold]

    Example: [bold]paceline testbed run mine.toml --set link=loopback --repeats 5 --json[/bold]
    """
    from paceline.api import testbed
    from paceline.cli.terminal import show_json

    with _measuring() as advance:
        ran = testbed(**given, progress=advance)
    if json:
        show_json(ran.to_dict())
    else:
        _print_runs([ran])


@calling()
def show(*, files: Annotated[list[Path], Typed(place=True, metavar="FILE...")], json: bool = False) -> None:
    """Show again what `paceline testbed run` has measured.

    Of a run that failed or was stopped, its whole repeats are shown.

    Example: [bold]paceline testbed show measurements/*-testbed-*.ndjson[/bold]

    Parameters
    ----------
    files
        Measurement files that `paceline testbed run` has written.
    json
        Print as JSON: a list with one entry per file.
    """
    from paceline.api import testbed_read
    from paceline.cli.terminal import show_json

    runs = [testbed_read(file) for file in files]
    if json:
        show_json([run.to_dict() for run in runs])
    else:
        _print_runs(runs)


@calling("testbed_fit", left_out={"out": "testbed.json"})
def fit(given: Given, *, json: bool = False) -> None:
    """Fit what this machine and TensorFlow cost beyond bytes and compute, from small runs.

    Each parameter gets a 90% interval and a sentence on what determines it. A parameter that no
    run determines keeps a documented prior, and is marked.

    You need at least [bold]paceline testbed run --set workers=1 --set compute.law.kind=constant --set model=ladder-4mb[/bold],
    and the same with [bold]--set model=ladder-1mb/16[/bold]; for rings one with mode=ring and 2 workers.

    Example: [bold]paceline testbed fit measurements/*-testbed-*.ndjson -o machine.json[/bold]

    Parameters
    ----------
    json
        Print the parameters as JSON.
    """
    from paceline.api import testbed_fit
    from paceline.cli.terminal import note, printer, progress_bar

    out = given.get("out") or Path("testbed.json")
    with progress_bar("fitting") as advance:
        platform = testbed_fit(**{**given, "out": out}, progress=advance)
    if json:
        typer.echo(platform.model_dump_json(indent=2, exclude={"draws"}))
    else:
        console = printer()
        console.print(platform.table().to_rich())
        console.print("Times in seconds, rates in bytes per second. What determines each stands in the file.", markup=False)
    note(f"wrote {out}; predict with `paceline testbed predict {out} --set workers=8 --set servers=2`")


@calling("testbed_predict")
def predict(given: Given, *, json: Json = False) -> None:
    """Predict what `paceline testbed run` would measure in a setting, without running it.

    Keys of the setting are those of [bold]paceline testbed run[/bold]; compute must be emulated.

    Example: [bold]paceline testbed predict machine.json --set workers=16 --set servers=2 --set compute.mean='400 ms'[/bold]
    """
    from paceline.api import testbed_predict
    from paceline.cli.terminal import printer, say, show_json

    prediction = testbed_predict(**given)
    if json:
        show_json(prediction.to_dict())
        return
    printer().print(prediction.table().to_rich())
    if prediction.undetermined:
        say(f"rests on priors, which no run of the fit has determined: {', '.join(prediction.undetermined)}")


@contextmanager
def _measuring() -> Iterator[Callable[[float, int], None]]:
    """A progress bar around the repeats; where they are stopped or fail, says how many are kept."""
    from paceline.cli.ending import StoppedError
    from paceline.cli.terminal import note, progress_bar
    from simulator.base.errors import CalibrationError

    try:
        with progress_bar("repeats") as advance:
            yield advance
    except KeyboardInterrupt as error:
        raise StoppedError("; ".join(getattr(error, "__notes__", ()))) from None
    except CalibrationError as error:
        for text in getattr(error, "__notes__", ()):
            note(f"paceline: {text}")
        raise


def _print_runs(runs: Sequence[TestbedRun]) -> None:
    """Each in full, and where there are several, all of them side by side."""
    from rich.padding import Padding
    from rich.text import Text

    from calibrate.testbed.summary import side_by_side
    from paceline.cli.terminal import printer

    console = printer()
    for run in runs:
        console.print(Text(run.label, style="bold"))
        for line in run.lines():
            console.print(Text(line))
        for table in run.tables():
            console.print()
            console.print(table.to_rich())
        for line in run.remarks():
            console.print(Padding(Text(line), (0, 0, 0, 2)), style="dim")
        console.print(Text(f"raw measurements: {run.file}"), soft_wrap=True)
        console.print()
    if len(runs) > 1:
        console.print(side_by_side(runs).to_rich())
