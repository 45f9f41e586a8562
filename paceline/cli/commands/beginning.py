"""``paceline init`` and ``paceline why``: write a scenario, and explain poor scaling, from options or answers.

They call ``new_scenario`` and ``why`` of ``paceline.api``. Without options they ask at the terminal, and check each answer at once.
:mod:`paceline.scenario_text` writes the file's text.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import typer

from paceline.cli.options import Given, calling, number_typed
from simulator.base.errors import InputError, PacelineError

if TYPE_CHECKING:
    from paceline.diagnosing import Diagnosis
    from simulator.scenario import Scenario

_MOST_SWEPT = 8
COMMON = {
    "single": "one device",
    "mirrored": "the devices of one machine",
    "ring": "all-reduce between machines: MultiWorkerMirroredStrategy",
    "sync-ps": "parameter servers; workers wait for each other in every step",
    "async-ps": "parameter servers; no worker waits",
    "ssp": "parameter servers; no worker gets more than some steps ahead",
}
"""The most common strategies, in a few words; the help of ``--strategy`` has the others."""
_NAMED = 4
"""Most names of the catalogue that a question shows."""


_OWN = (
    "workload", "step_time", "parameters", "batch", "tensors", "measured_with", "cluster", "nodes", "devices", "bandwidth", "latency",
    "sort", "strategy", "servers",
)  # fmt: skip
"""Options that replace a scenario; each is a parameter of ``new_scenario``."""
_SEEN = ("step", "throughput", "steps_per_s", "epoch", "dataset_size", "run", "pattern", "python")
"""Options that give observed runs."""
_SHOWN = {
    "title": "cause",
    "cost_s": "per step",
    "cost_low_s": "from",
    "cost_high_s": "to",
    "probability": "chance",
    "gain": "gain",
    "known": "",
}
"""Columns that fit into 80 characters, with their headings."""


@calling(
    "new_scenario",
    left_out={"out": "scenario.toml"},
    hints={
        "strategy": "Strategies: "
        + "; ".join(f"{name} ({words.replace('; ', ', ')})" for name, words in COMMON.items())
        + ". Also halving-doubling, tree, hierarchical or auto (other all-reduces), and backup (sync-ps that does not wait for the "
        "slowest worker)."
    },
    common={
        "Model": ("workload", "step_time", "parameters", "batch"),
        "Machines": ("cluster", "nodes", "devices", "bandwidth", "latency", "price"),
        "Training": ("strategy", "workers", "servers", "epochs", "dataset_size"),
        "Output": ("out", "force"),
    },
)
def init(given: Given) -> None:
    """Write your own scenario, with a comment on each key.

    Example: `paceline init --workload mine --nodes 4 --bandwidth '25 Gbit/s'`

    Example: `paceline init --step-time '250 ms' --parameters 25.6e6 --batch 64 --nodes 4 --out my.toml`

    Without options it asks a few questions. With options it asks nothing and uses defaults for the rest.
    """
    from paceline import api
    from simulator.base.files import EDITED, Output

    out, force = given.get("out") or Path("scenario.toml"), given["force"]
    figures: dict[str, Any] = {name: given.get(name) for name in signature(api.new_scenario).parameters if name not in ("out", "force")}
    if "workload" in given:
        given.useless("--workload", ("step_time", "parameters", "tensors", "measured_with"))
    if "cluster" in given:
        given.useless("--cluster", ("devices", "bandwidth", "latency", "sort"))
    if not any(given.is_typed(name) for name in figures):
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise InputError("init: no terminal to ask questions on; give --workload NAME, or --step-time and --parameters")
        Output(out, EDITED, force=force)
        figures = figures_asked(figures)
    _show_next(api.new_scenario(**figures, out=out, force=force), out)


def _show_next(scenario: Scenario, path: Path) -> None:
    """Show what was written, and the next commands."""
    from paceline.cli.terminal import note
    from simulator.base.text import counted

    file = shlex.quote(str(path))
    note(
        f"wrote {path}: {scenario.strategy.in_words}, {counted(scenario.replicas, 'replica')}, "
        f"batch {scenario.batch} each, {scenario.workload.name} on {scenario.cluster.name}"
    )
    counts = _counts(scenario)
    sweep = f"\n  paceline sweep {file} --over strategy.{scenario.strategy.count_key}={','.join(map(str, counts))}" if counts[1:] else ""
    goal = "--samples 1e6 --deadline 12h" if scenario.job is None else "--deadline 12h"
    note(f"Next:\n  paceline simulate {file}{sweep}\n  paceline plan {file} {goal}")


def _counts(scenario: Scenario) -> list[int]:
    """Return numbers of workers to sweep: powers of two, up to the capacity of the machines; none without such a number."""
    if not scenario.strategy.count_key:
        return []
    if scenario.layout.one_process:
        most = scenario.replicas  # devices of one machine are no more than it has
    elif scenario.cluster.room is not None:
        most = scenario.workers + scenario.cluster.room - scenario.nodes_needed
    else:
        most = _MOST_SWEPT
    return sorted({*(2**power for power in range(_MOST_SWEPT.bit_length()) if 2**power <= most), min(most, _MOST_SWEPT)})


@calling(
    "why",
    "new_scenario",
    optional=("scenario",),
    without=("out", "force", "epochs", "price", "workers"),
    common={
        "Measurements": ("step", "throughput", "run", "settings"),
        "Instead of a scenario": ("workload", "step_time", "parameters", "batch", "cluster", "devices", "bandwidth", "strategy"),
        "Output": ("details", "json"),
    },
    left_out={"strategy": "ring"},
)
def why(given: Given, *, details: bool = False, json: bool = False) -> None:
    """Find out why training on several workers is no faster.

    Example: `paceline why my.toml --step 1=60ms --step 8=170ms`

    Example: `paceline why my.toml --run 1=one.ndjson --run 8=worker0.ndjson --run 8=worker1.ndjson`

    Example: `paceline why --parameters 25.6e6 --strategy mirrored --devices 8 --step 1=60ms,8=170ms`

    Give the time of a step on one device and on several, or files in which steps were recorded; and a scenario, or options in its
    place, or nothing: then you are asked. The answer lists causes, what each costs, what would help, and what to measure next. A cause
    has a probability below 100% if others explain the measurements as well.

    Parameters
    ----------
    details
        Also show every run, every cause with its remedy, and changes of the configuration.
    json
        Print the diagnosis as JSON.
    """
    from paceline import api
    from paceline.cli.terminal import progress_bar

    seen = {name: given[name] for name in (*_SEEN, "jobs", "settings") if name in given}
    if "scenario" in given:
        given.useless("a scenario", _OWN)
    scenario = given.get("scenario") or _own(given, seen)
    with progress_bar("scenarios") as advance:
        diagnosis = api.why(scenario, progress=advance, **seen)
    if json:
        typer.echo(diagnosis.to_json())
    else:
        _show_diagnosis(diagnosis, details=details)


def _own(given: Given, seen: dict[str, Any]) -> Scenario:
    """Return a scenario from options, or from answers at the terminal, with one worker for each observed device."""
    from paceline import api

    counts = [count for name in ("step", "throughput", "steps_per_s", "epoch") for count in seen.get(name, ())]
    counts += [run[0] for run in seen.get("run", ()) if isinstance(run, tuple)]
    most = max((int(number[0]) for count in counts if (number := re.match(r"\d+", str(count))) is not None), default=2)
    usual = signature(api.new_scenario).parameters
    figures = {name: given.get(name, usual[name].default) for name in _OWN}
    if not any(given.is_typed(name) for name in _OWN):
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise InputError("why: no terminal to ask questions on; give SCENARIO.toml, or --parameters and --strategy")
        figures = figures_asked({**figures, "price": None, "epochs": None})
    if figures.get("workload") is None and figures.get("step_time") is None:
        figures["step_time"] = _step_alone(seen, figures["batch"])
    if figures["strategy"] == "mirrored" and figures["devices"] == usual["devices"].default:
        figures["devices"] = most
    for name in ("price", "epochs", "dataset_size"):  # what init asks for besides, and no diagnosis needs
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
    """Return the step time of a single device, if an option gives it."""
    from paceline.api.diagnosing import positive

    def alone(name: str) -> Any:
        return next((value for count, value in seen.get(name, {}).items() if str(count) in ("1", "1 device")), None)

    if (step := alone("step")) is not None:
        return step
    for name, samples in (("throughput", batch), ("steps_per_s", 1.0)):
        if (rate := alone(name)) is not None:
            return samples / positive(name, 1, rate)
    if (epoch := alone("epoch")) is None:
        return None
    if "dataset_size" not in seen:
        raise InputError("--epoch needs --dataset-size without a scenario: the step time follows from the samples of an epoch")
    return positive("epoch", 1, epoch) * batch / seen["dataset_size"]


def _show_diagnosis(diagnosis: Diagnosis, *, details: bool) -> None:
    from paceline.cli.terminal import Styled, display, display_answer
    from paceline.diagnosing.diagnosis import answer_of_diagnosis
    from simulator.base.text import format_change

    table = diagnosis.table().only(*_SHOWN)
    columns = tuple(replace(column, heading=_SHOWN[column.name] or " ") for column in table.columns)
    rows = table.rows if details else table.rows[:_MOST_CAUSES]
    display_answer(answer_of_diagnosis(diagnosis), *([replace(table, columns=columns, rows=rows)] if rows else []))
    if details:
        display("", diagnosis.runs_table, "", *(f"{cause.title}: {cause.text}; {cause.remedy}" for cause in diagnosis.causes))
        changes = (f"{change.name}: {format_change(change.gain or 0.0)}; {change.text}" for change in diagnosis.changes)
        display("", *changes, *(f"note: {remark}" for remark in diagnosis.remarks))
        display(
            Styled("found, possible: inferred from runs; specified: in the scenario; measured: observed directly. Costs overlap.", "dim")
        )
    else:
        display("", Styled("Costs overlap. Details: --details", "dim"))


_MOST_CAUSES = 6


# -- questions ---------------------------------------------------------------------------------------


Question: TypeAlias = tuple[str, str, Any, Callable[[str], Any]]
"""A figure, its question, the default that Enter accepts, and a function that reads an answer or raises."""


def figures_asked(usual: dict[str, Any]) -> dict[str, Any]:
    """Return the figures with answers from the terminal; each question is repeated until its answer is valid."""
    from paceline.cli.terminal import note

    figures = dict(usual)
    note("A few questions. Enter accepts the value in brackets. You can change each answer in the file later.\n")
    for name, text, default, read in _questions(figures):

        def answer(typed: Any, read: Callable[[str], Any] = read) -> Any:
            try:
                return read(str(typed).strip())
            except PacelineError as error:
                raise typer.BadParameter(re.sub(r"^`\w+`:? ", "", str(error))) from None  # the question says what is meant

        figures[name] = typer.prompt(text, default=default, value_proc=answer, err=True)
    return figures


def _questions(figures: dict[str, Any]) -> Iterator[Question]:
    """Yield the questions in order; ``figures`` have the answers so far."""
    from paceline.cli.terminal import note
    from paceline.scenario_text import MEASURED_WITH, NODES, OWN, SORTS, Figures, quantity_of
    from simulator.base.catalog import entries, find
    from simulator.spec.prices import price_of_text

    def kept(check: Callable[[str], object]) -> Callable[[str], str]:
        """Return a reader that keeps the text as typed if it passes a check."""

        def read(typed: str) -> str:
            check(typed)
            return typed

        return read

    def one_of(kind: Any, latest: str, described: str) -> Question:
        names = list(dict.fromkeys([*([] if latest == OWN else [latest]), *entries(kind)]))[:_NAMED]
        which = f"a name of `paceline models list {kind}` ({', '.join(names)}, ...), a file, or {OWN} to describe it by {described}"
        name = kind[:-1]
        check = kept(lambda text: find(kind, text, f"`{name}`"))
        return name, f"{name.capitalize()}: {which}", latest, lambda text: None if text == OWN else check(text)

    def word(name: str, text: str) -> Question:
        return name, text, figures[name], kept(lambda typed: Figures("any", **{name: typed}))  # type: ignore[arg-type]

    def quantity(name: str, text: str, dimension: Any) -> Question:
        return name, text, figures[name], kept(lambda typed: quantity_of(typed, dimension, name))

    own = sorted(Path("models/workloads").glob("*.toml"), key=lambda file: file.stat().st_mtime)
    yield one_of("workloads", own[-1].stem if own else OWN, "step time and parameters")
    yield "batch", "Samples per device and step", figures["batch"], _whole
    if figures["workload"] is None:
        yield quantity("step_time", "Time of that step on one device, such as 250 ms", "time")
        yield "parameters", "Trainable parameters, such as 25.6e6", None, _number
    yield one_of("clusters", OWN, "devices and network")
    yield "nodes", "Number of machines", NODES, _whole
    if figures["cluster"] is None:
        yield "devices", "GPUs per machine; 1 if its CPU computes", figures["devices"], _whole
        yield quantity("bandwidth", "Network bandwidth between machines", "rate")
        yield quantity("latency", "Latency of the network", "time")
        yield word("sort", f"Kind of that bandwidth ({'; '.join(f'{name}: {words}' for name, words in SORTS.items())})")
        price = kept(lambda text: price_of_text(text, "`price`"))
        asked = "Price of a machine per hour, such as 0.40/h; none: unknown"
        yield "price", asked, "none", lambda text: None if text == "none" else price(text)
    note("Strategies (more: paceline init --help):")
    for name, words in COMMON.items():
        note(f"  {name:<10}{words}")
    yield word("strategy", "Strategy")
    if figures["strategy"] in ("sync-ps", "backup", "async-ps", "ssp"):
        yield "servers", "Parameter servers, each on its own machine", figures["servers"], _whole
        if figures["workload"] is None:
            yield "tensors", "Number of trainable variables (tensors) of the model", 160, _whole
            meanings = "; ".join(f"{name}: {words}" for name, words in MEASURED_WITH.items())
            yield word("measured_with", f"What the step time includes ({meanings})")
    yield "epochs", "Epochs, to predict time and cost of the whole training; 0: predict steps only", 0, _number_or_none
    if figures["epochs"] is not None:
        yield "dataset_size", "Samples in the data set, such as 1.28e6", None, _number


def _whole(text: str) -> int:
    number = _number(text)
    if number != int(number):
        raise typer.BadParameter(f"{text!r} must be a whole number")
    return int(number)


def _number(text: str) -> float:
    number = _number_or_none(text)
    if number is None:
        raise typer.BadParameter(f"{text!r} must be above 0")
    return number


def _number_or_none(text: str) -> float | None:
    number = number_typed(text)
    if not 0 <= number <= 1e15:
        raise typer.BadParameter(f"{text!r} must be a number from 0 to 1e15")
    return number or None
