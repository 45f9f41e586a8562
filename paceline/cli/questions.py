"""Asks at the terminal for the figures of a first scenario: those of ``paceline.api.new_scenario``, each held against its rule at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from paceline.cli.options import number_typed

COMMON = {
    "single": "one device",
    "mirrored": "the devices of one machine",
    "ring": "all-reduce between machines: MultiWorkerMirroredStrategy",
    "sync-ps": "parameter servers; workers wait for each other in every step",
    "async-ps": "parameter servers; no worker waits",
    "ssp": "parameter servers; no worker gets more than some steps ahead",
}
"""The strategies that most people mean, in a few words; the rest stand in the help of ``--strategy``."""
_NAMED = 4
"""Names of the catalogue that a question shows."""


def figures_asked(usual: dict[str, Any]) -> dict[str, Any]:
    """The same figures, as answered at the terminal."""
    from paceline.cli.terminal import note
    from paceline.scenario_text import MEASURED_WITH, NODES, OWN, SORTS, Figures, quantity_of
    from simulator.base.catalog import entries, find
    from simulator.spec.prices import price_of_text

    figures = dict(usual)

    def ask(name: str, text: str, default: Any, check: Callable[[str], Any]) -> None:
        figures[name] = typer.prompt(text, default=default, value_proc=_checked(check), err=True)

    def listed(kind: Any, first: str, described: str) -> str:
        names = list(dict.fromkeys([*([] if first == OWN else [first]), *entries(kind)]))[:_NAMED]
        return f"a name of `paceline models list {kind}` ({', '.join(names)}, ...), a file, or {OWN}, to describe it by {described}"

    def named(kind: Any) -> Callable[[str], str | None]:
        return lambda text: None if text == OWN else _found(lambda: find(kind, text, f"`{kind[:-1]}`"), text)

    def quantity(name: str, dimension: Any) -> Callable[[str], str]:
        return lambda text: _found(lambda: quantity_of(text, dimension, name), text)

    note("A few questions; Enter takes what stands in brackets. Each answer can be changed in the file.\n")
    own = sorted(Path("models/workloads").glob("*.toml"), key=lambda file: file.stat().st_mtime)
    latest = own[-1].stem if own else OWN
    ask("workload", f"Workload: {listed('workloads', latest, 'step time and parameters')}", latest, named("workloads"))
    ask("batch", "Samples that each device takes in a step", usual["batch"], _whole)
    if figures["workload"] is None:
        ask("step_time", "Time of such a step on one device, such as 250 ms", None, quantity("step_time", "time"))
        ask("parameters", "Trainable parameters, such as 25.6e6", None, _number)
    ask("cluster", f"Cluster: {listed('clusters', OWN, 'devices and network')}", OWN, named("clusters"))
    ask("nodes", "How many machines there are", NODES, _whole)
    if figures["cluster"] is None:
        ask("devices", "GPUs of a machine; 1 where its CPU computes", usual["devices"], _whole)
        ask("bandwidth", "Bandwidth of the network between them", usual["bandwidth"], quantity("bandwidth", "rate"))
        ask("latency", "Latency of that network", usual["latency"], quantity("latency", "time"))
        meanings = "; ".join(f"{name}: {words}" for name, words in SORTS.items())
        ask("sort", f"What that bandwidth is ({meanings})", usual["sort"],
            lambda text: _found(lambda: Figures(workload="any", sort=text), text))  # fmt: skip
        ask("price", "Price of a machine for an hour, such as 0.40/h; none: not known", "none",
            lambda text: None if text == "none" else _found(lambda: price_of_text(text, "`price`"), text))  # fmt: skip
    note("Strategies (more: paceline init --help):")
    for name, words in COMMON.items():
        note(f"  {name:<10}{words}")
    ask("strategy", "Strategy", usual["strategy"],
        lambda text: _found(lambda: Figures(workload="any", strategy=text), text))  # fmt: skip
    if figures["strategy"] in ("sync-ps", "backup", "async-ps", "ssp"):
        ask("servers", "Parameter servers, each on a machine of its own", usual["servers"], _whole)
        if figures["workload"] is None:
            ask("tensors", "Trainable variables of the model, on each of which their hosts work", 160, _whole)
            meanings = "; ".join(f"{name}: {words}" for name, words in MEASURED_WITH.items())
            ask("measured_with", f"What the time of a step holds ({meanings})", usual["measured_with"],
                lambda text: _found(lambda: Figures(workload="any", measured_with=text), text))  # fmt: skip
    ask("epochs", "Passes over the data set, for time and cost of the whole training; 0: steps alone", 0, _number_or_none)
    if figures["epochs"] is not None:
        ask("dataset_size", "Samples of the data set, such as 1.28e6", None, _number)
    return figures


def _checked(check: Callable[[str], Any]) -> Callable[[Any], Any]:
    """Says what is wrong with an answer, so that the question is asked again."""

    def answer(text: Any) -> Any:
        from simulator.base.errors import PacelineError

        try:
            return check(str(text).strip())
        except PacelineError as error:
            raise typer.BadParameter(re.sub(r"^`\w+`:? ", "", str(error))) from None  # the question says what is meant

    return answer


def _found(check: Callable[[], object], text: str) -> str:
    """The answer itself, if the check raises nothing."""
    check()
    return text


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
