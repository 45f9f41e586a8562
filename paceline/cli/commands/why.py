"""``paceline why``: what a person has seen of a training on one device and on several in; the causes of what it lacks out.

It calls ``paceline.api.why``, of a scenario, or of one that ``paceline.api.new_scenario`` makes of a few options or answers.
"""

from __future__ import annotations

import re
import sys
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.commands import Panel
from paceline.cli.options import Given, calling

if TYPE_CHECKING:
    from paceline.diagnosing import Diagnosis
    from simulator.scenario import Scenario

PANEL, ORDER = Panel.PREDICT, 37

_OWN = (
    "workload", "step_time", "parameters", "batch", "tensors", "measured_with", "cluster", "nodes", "devices", "bandwidth", "latency",
    "sort", "strategy", "servers",
)  # fmt: skip
"""Options in place of a scenario."""
_SEEN = ("step", "throughput", "steps_per_s", "epoch", "dataset_size", "run", "pattern", "python")
"""Options that say what was seen."""
_SHOWN = {
    "title": "cause",
    "cost_s": "per step",
    "cost_low_s": "from",
    "cost_high_s": "to",
    "probability": "chance",
    "gain": "gain",
    "known": "",
}
"""Columns for which a terminal of 80 characters has room, and what it calls them."""


@calling(
    "why",
    "new_scenario",
    optional=("scenario",),
    without=("out", "force", "epochs", "price", "workers"),
    panels={
        "What was seen": _SEEN,
        "In place of a scenario": _OWN,
    },
    left_out={"strategy": "ring"},
)
def why(given: Given, *, json: Annotated[bool, typer.Option("--json", help="Print the diagnosis as JSON.")] = False) -> None:
    """Say why a training on several workers is no faster: causes, what each costs, what would help, what to measure next.

    Give what you have seen: the time of a step on one device and on several, or files in which
    steps were recorded. And what was trained: a scenario, or a few options, or nothing at all,
    and you are asked.

    Example: [bold]paceline why my.toml --step 1=60ms --step 8=170ms[/bold]

    Example: [bold]paceline why my.toml --run 1=one.ndjson --run 8=worker0.ndjson --run 8=worker1.ndjson[/bold]

    Example: [bold]paceline why --parameters 25.6e6 --strategy mirrored --devices 8 --step 1=60ms,8=170ms[/bold]

    A cause that is found has a chance below 100% where others explain as well what was seen.
    """
    from paceline import api
    from paceline.cli.terminal import progress_bar

    seen = {name: given[name] for name in (*_SEEN, "jobs", "settings") if name in given}
    scenario: Any = given.get("scenario")
    if scenario is not None:
        given.useless("a scenario", _OWN)
    else:
        scenario = _own(given, seen)
    with progress_bar("scenarios") as advance:
        found = api.why(scenario, progress=advance, **seen)
    if json:
        typer.echo(found.to_json())
    else:
        _show(found)


def _own(given: Given, seen: dict[str, Any]) -> Scenario:
    """A scenario from options, or from answers at the terminal, with as many workers as were seen, one for each device."""
    from paceline import api
    from paceline.cli.questions import figures_asked
    from simulator.base.errors import InputError

    counts = [count for name in ("step", "throughput", "steps_per_s", "epoch") for count in seen.get(name, ())]
    numbers = [int(match[0]) for count in (*counts, *(each[0] for each in seen.get("run", ()) if isinstance(each, tuple)))
               if (match := re.match(r"\d+", str(count))) is not None]  # fmt: skip
    usual = signature(api.new_scenario).parameters
    figures = {name: given.get(name, usual[name].default) for name in _OWN}
    if not any(given.is_typed(name) for name in _OWN):
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise InputError(
                "why: nobody can be asked here what was trained; give SCENARIO.toml, or --parameters and --strategy (paceline why --help)"
            )
        figures = figures_asked({**figures, "price": None, "epochs": None})
    if figures.get("workload") is None and figures.get("step_time") is None:
        figures["step_time"] = _step_alone(seen, figures["batch"])
    most = max(numbers, default=2)
    if figures["strategy"] == "mirrored" and figures["devices"] == usual["devices"].default:
        figures["devices"] = most
    for name in ("price", "epochs", "dataset_size"):
        figures.pop(name, None)
    if figures["strategy"] == "mirrored":
        return api.new_scenario(**figures, workers=most)
    scenario = api.new_scenario(**{**figures, "nodes": None}, workers=2)
    each = scenario.replicas // scenario.workers
    if each == 1:
        return api.new_scenario(**figures, workers=most)
    # people count devices: a worker for each, as many on a machine as it has
    scenario = api.new_scenario(**{**figures, "nodes": None}, workers=max(2, -(-most // each)))
    available = {} if figures.get("nodes") is None else {"cluster.available": figures["nodes"]}
    return api.load(scenario, {"strategy.replicas_per_worker": 1, "strategy.workers": most, **available})


def _step_alone(seen: dict[str, Any], batch: int) -> Any:
    """The step of one device alone, where something that was typed tells it."""
    from paceline.api.diagnosing import positive
    from simulator.base.errors import InputError

    def typed(name: str) -> Any:
        return next((value for count, value in seen.get(name, {}).items() if str(count) in ("1", "1 device")), None)

    if (step := typed("step")) is not None:
        return step
    if (rate := typed("throughput")) is not None:
        return batch / positive("throughput", 1, rate)
    if (rate := typed("steps_per_s")) is not None:
        return 1.0 / positive("steps_per_s", 1, rate)
    if (epoch := typed("epoch")) is None:
        return None
    if "dataset_size" not in seen:
        raise InputError("--epoch: a step follows from an epoch by the samples of the data set; give --dataset-size, or --step-time")
    return positive("epoch", 1, epoch) * batch / seen["dataset_size"]


def _show(found: Diagnosis) -> None:
    """Sentences, the table of causes, and what should be known besides."""
    from dataclasses import replace

    from rich.text import Text

    from paceline.cli.terminal import printer

    console = printer()
    for text in found.sentences:
        console.print(Text(text))
    if found.causes:
        console.print()
        table = found.table.only(*_SHOWN)
        columns = tuple(replace(its, heading=_SHOWN[its.name] or " ") for its in table.columns)
        console.print(replace(table, columns=columns).to_rich())
        known = "found: fitted to what was seen; told: as the scenario has it; measured: between or before the steps"
        console.print(f"{known}. Costs overlap.", style="dim")
    for remark in found.remarks:
        console.print(Text(f"note: {remark}"), style="dim")
