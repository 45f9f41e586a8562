"""``paceline simulate``, ``memory``, ``sweep`` and ``advise``: scenarios in, results out.

They call ``observe``, ``memory``, ``sweep`` and ``advise`` of ``paceline.api``, and print with :mod:`paceline.cli.showing_results` and
:mod:`paceline.cli.showing_plan`.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from paceline.cli.ending import MISSED
from paceline.cli.options import Given, Require, Yes, calling

if TYPE_CHECKING:
    from paceline.observing import Observation
    from paceline.sweeping import Sweep
    from simulator.program.printing import Printed
    from simulator.scenario import Scenario

_ALL_SHOWN = 200
"""Most results of a sweep that are shown; with more, only some at each end."""
_OF_EACH_END = 20
_JOB_KEYS = ("epochs", "samples", "tokens", "dataset_size", "replications")


@calling(
    "observe",
    keys=_JOB_KEYS,
    hints={"audit": "Exit 1 if one is broken."},
    common={
        "What to simulate": ("settings", "epochs", "samples", "tokens", "dataset_size", "prices"),
        "Output": ("details", "assumptions", "trace", "tensorboard", "require", "yes", "json"),
    },
)
def simulate(
    given: Given,
    *,
    program: bool = False,
    assumptions: bool = False,
    details: bool = False,
    require: Require = None,
    yes: Yes = False,
    json: bool = False,
) -> None:
    """Predict the throughput of a training, and what limits it.

    Example: `paceline simulate async-ps --set strategy.workers=64`

    Example: `paceline simulate ring --epochs 90 --dataset-size 1.28e6`

    Each figure has its 90% interval. With --epochs or --samples it also predicts time and cost of the whole job.

    Parameters
    ----------
    program
        Print what would be simulated (links, ranks, operations of a step, rules), without simulating it. --json prints every row.
    assumptions
        Also show each value that the scenario leaves out, with what is assumed and why.
    details
        Also show warnings in full, the parts of a step, the sources of the interval's width, and measurements that narrow it.
    json
        Print the result as JSON.
    """
    from paceline import api
    from paceline.cli.showing_results import exit_if_unmet, show_result
    from paceline.cli.terminal import asking, note, progress_bar
    from paceline.requirements import requirements_of
    from simulator.results.next_measurement import width_of

    if program:
        given.useless("--program", ("trace", "tensorboard", "audit", "force", "assumptions", "details", "require"))
        _print_program(api.load(**given.of(api.load)), json=json)
        return
    if json:
        given.useless("--json", ["assumptions"])
    if not {"trace", "tensorboard"} & {*given}:
        given.needs("--trace or --tensorboard", ["force"])
    requirements = requirements_of(require or ())
    with progress_bar("replications") as advance:
        seen = api.observe(**given, progress=advance, agree=asking(given["scenario"], yes=yes))
    if seen.trace is not None:
        note(f"wrote {seen.trace}; open it at ui.perfetto.dev or chrome://tracing")
    if seen.bound:
        note(seen.bound)
    if seen.tensorboard is not None:
        note(f"wrote {seen.tensorboard}; open it with: tensorboard --logdir {shlex.quote(str(seen.tensorboard))}")
    if json:
        # the result's own format stays as it is, whatever stands beside it
        text = seen.result.to_json()
        beside = [f'"audit":{{"laws":{dumps(list(seen.laws))}}}'] if given["audit"] else []
        beside += [f'"width":{dumps(width_of(seen.result).as_data())}'] if details else []
        typer.echo(f'{{"result":{text},{",".join(beside)}}}' if beside else text)
    else:
        named = "SCENARIO" if given.get("settings") else shlex.quote(str(given["scenario"]))
        show_result(seen.result, named, assumptions=assumptions, details=details)
        if given["audit"]:
            _show_laws(seen)
    exit_if_unmet(requirements, [("", seen.result)])


@calling("memory")
def memory(given: Given, *, json: bool = False) -> None:
    """Show what a device holds, and whether the model fits.

    Example: `paceline memory fsdp --set training.recompute=full`

    Example: `paceline memory ring --set cluster.use=p3.16xlarge`

    Nothing is simulated. A pipeline has a row for each stage. The exit code is 3 if the model does not fit.

    Parameters
    ----------
    json
        Print every part as JSON.
    """
    from paceline import api
    from paceline.cli.showing_results import show_memory
    from paceline.cli.terminal import show_json

    held = api.memory(**given)
    if json:
        show_json({**held.model_dump(mode="json"), "rows": held.rows_of([held])})
    else:
        show_memory(held)
    if held.refused is not None:
        raise typer.Exit(MISSED)


@calling(
    "sweep",
    keys=_JOB_KEYS,
    left_out={"out": "the scenario's name, ending in .ndjson"},
    common={
        "What to simulate": ("over", "settings", "epochs", "dataset_size", "replications", "prices"),
        "How": ("jobs", "backend", "scheduler", "yes"),
        "Output": ("out", "force", "require", "json"),
    },
)
def sweep(given: Given, *, require: Require = None, yes: Yes = False, json: bool = False) -> None:
    """Simulate every combination of some values.

    Example: `paceline sweep async-ps --over strategy.workers=1,4,16,64
    --over strategy.mode=sync,async --out results.ndjson`, then
    `paceline report results.ndjson --open`

    Each result is saved at once. You may stop the sweep at any moment, even with kill -9: run the command again to resume. The finished
    file is the same, byte for byte. If the scenario has changed, resuming is refused.

    If a scenario fails, the others continue, the failure is saved in its place, and the exit code is 1. --retry-failed simulates it
    again. With --require the exit code is 3 if a result does not meet the requirement.

    On a cluster: `--backend dask --scheduler tcp://10.0.0.5:8786`, or `--backend ray --scheduler auto`. Its workers need the same
    versions of Paceline, Python, numpy and other packages that results depend on. A Dask or Ray cluster runs any code that it receives,
    and this machine runs what it sends back: use only a cluster that you trust, on ports that others cannot reach.

    Parameters
    ----------
    json
        Print the lines of the results file, not a table.
    """
    from paceline import api
    from paceline.cli.ending import keeping_results
    from paceline.cli.showing_results import exit_if_unmet
    from paceline.cli.terminal import asking, note, progress_bar
    from paceline.requirements import requirements_of
    from simulator.base.text import counted

    scenario, axes = given["scenario"], given["over"]
    requirements = requirements_of(require or ())
    out = given.get("out") or Path(f"{scenario.stem}.ndjson")
    with keeping_results(progress_bar("scenarios"), out) as count:
        swept = api.sweep(**{**given, "out": out}, progress=count, agree=None if yes else asking(scenario, yes=yes))
    if json:
        with out.open(encoding="utf-8") as lines:
            for line in lines:
                typer.echo(line, nl=False)
    else:
        _show_sweep(swept)
    good = len(swept) - len(swept.failed)
    if good:
        note(f"wrote {out} ({counted(good, 'result')}); draw it with: paceline report {out}")
    swept.check(lambda place: _combination(axes, place))
    exit_if_unmet(requirements, ((f"{_combination(axes, place)}: ", outcome) for place, outcome in enumerate(swept)))


def _combination(axes: Mapping[str, Sequence[object]], place: int) -> str:
    """Return the keys and values of the scenario at a place of the grid."""
    values = next(itertools.islice(itertools.product(*axes.values()), place, None))
    return ", ".join(f"{key}={value}" for key, value in zip(axes, values, strict=True))


def _show_sweep(swept: Sweep) -> None:
    """Show a table of all results, or of the first and last if there are many."""
    from paceline.cli.showing_results import show_table
    from paceline.cli.terminal import note
    from simulator.results.results import Result

    shown = swept if len(swept) <= _ALL_SHOWN else [*swept[:_OF_EACH_END], *swept[-_OF_EACH_END:]]
    if results := [outcome for outcome in shown if isinstance(outcome, Result)]:
        show_table(results)
    if len(shown) < len(swept):
        note(f"the table shows the first and last {_OF_EACH_END} of {len(swept):,} scenarios; {swept.path} has all")


@calling(
    "advise",
    common={
        "What to compare": ("machines", "strategies", "runs_on", "settings", "prices"),
        "Output": ("out", "details", "yes", "json"),
    },
)
def advise(given: Given, *, details: bool = False, yes: Yes = False, json: bool = False) -> None:
    """Compare strategies on 1 to N machines, without a goal.

    Example: `paceline advise ring --machines 1..8`

    Each strategy uses its best bucket size. The advice is the fastest strategy that certainly beats one machine, else one machine. For
    a deadline, a budget or a throughput to reach, use `paceline plan`.

    Parameters
    ----------
    details
        Also show every configuration and every warning.
    json
        Print the advice as JSON.
    """
    from paceline import api
    from paceline.cli.ending import keeping_results
    from paceline.cli.showing_plan import show_advice
    from paceline.cli.terminal import asking, note, progress_bar

    out = given.get("out")
    with keeping_results(progress_bar("scenarios"), out) as count:
        advice = api.advise(**given, progress=count, agree=None if yes else asking(given["scenario"], yes=yes))
    if json:
        typer.echo(advice.to_json())
    else:
        show_advice(advice, details=details)
    if out is not None:
        note(f"wrote {out}; draw it with: paceline report {out}")


def _show_laws(seen: Observation) -> None:
    from paceline.cli.terminal import display, labelled

    counts = ", ".join(f"{count:,} {kind}" for kind, count in seen.records.items())
    display(f"audit of the first replication: {counts}", labelled(("ok", f"{name}\n{says}") for name, says in seen.laws.items()))


def _print_program(scenario: Scenario, *, json: bool) -> None:
    """Print the program of a scenario: its tables and rules."""
    from paceline import api
    from paceline.cli.terminal import Styled, display, show_json
    from simulator.base.table import Column, Table
    from simulator.base.validation_errors import warn_of_implausible
    from simulator.program.printing import sentences_of, tables_of

    warn_of_implausible(scenario)
    printed = api.preview(scenario)
    if json:
        tables = [listing._asdict() for listing in tables_of(printed)]
        show_json({"scenario": printed.scenario, "tables": tables, "rules": [*sentences_of(printed.program)]})
        return
    display(*_heading(scenario, printed))
    for listing in tables_of(printed):
        columns = tuple(Column(heading, "text", left=heading not in ("count", "number")) for heading in listing.columns)
        display("", Table(listing.title, columns, tuple(map(tuple, listing.rows))))
    display("", Styled("Rules", "bold"), *(Styled(sentence, indent=2) for sentence in sentences_of(printed.program)))


def _heading(scenario: Scenario, printed: Printed) -> Iterator[str]:
    """Yield lines on the size of the program, its repetitions and its random draws."""
    from simulator.base.text import counted, format_seconds
    from simulator.resolve.resolve import start_of

    run, load, layout = scenario.run, scenario.workload, scenario.layout
    workers = "" if layout.workers == layout.replicas else f", {counted(layout.workers, 'worker')}"
    replicas = f"{counted(layout.replicas, 'replica')}{workers}, {counted(layout.nodes, 'node')}"
    yield f"{load.name} on {scenario.cluster.name}: {replicas}, {scenario.batch:,} samples a step each"
    parts = ("forward", printed.forward_s), ("backward", printed.backward_s), ("apply", printed.apply_s)
    means = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in parts if seconds)
    yield f"mean compute of a rank on a device of speed 1: {means or 'none'}; jitter {load.jitter.kind}"
    length = f"{run.steps:,} steps of each worker" if run.job_steps is None else f"{run.job_steps:,} steps of the job"
    yield f"{length}, {run.warmup:,} of them warm-up; {_BEGIN[start_of(scenario)]}; {run.replications:,} replications"


_BEGIN = {
    "together": "workers start together",
    "staggered": "workers start spread over a time",
    "random-phase": "workers start at random within the time of a step",
}
