"""What a refit found, as tables, sentences and JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from calibrate.validation.candidates import Candidate, value_at
from calibrate.validation.points import Setting
from calibrate.validation.refit import BOUND, Refit
from paceline.reporting.validation.content import Table
from simulator.scenario import Scenario
from simulator.text import format_duration, format_number, format_rate

__all__ = ["about_refit", "refit_data", "refit_tables"]

_MUCH_SCATTER = 3.0


def refit_tables(found: Refit, base: Scenario, settings: Sequence[Setting]) -> tuple[Table, ...]:
    """What was moved, and what was not."""
    fitted = found.fitted
    moved = []
    for index, candidate in enumerate(fitted.moved):
        factor = fitted.factors[index]
        low, high = fitted.interval(index)
        what, before, show = _measure(base, candidate)
        moved.append(
            (
                f"{candidate.name} ({what})" if what else candidate.name,
                show(before),
                show(before * factor),
                f"{show(before * low)} to {show(before * high)}",
                _factor(factor),
                _decisive(found, index, settings),
            )
        )
    tables = []
    if moved:
        columns = ("quantity", "from", "to", "90% interval", "factor", "most determined by")
        keys = "; ".join(f"{candidate.name}: {', '.join(candidate.paths)}" for candidate in fitted.moved)
        text = f"All keys of a quantity move by its factor. {keys}. Intervals hold with the quantities that are not moved as they are."
        tables.append(Table("What the refit moved", columns, tuple(moved), text, (0, 5)))
    if fitted.held:
        rows = tuple((name, reason) for name, reason in fitted.held.items())
        text = "These stay as the scenario has them: the points do not tell."
        tables.append(Table("What the points do not determine", ("quantity", "why"), rows, text, (0, 1)))
    return tuple(tables)


def about_refit(found: Refit, settings: Sequence[Setting]) -> list[str]:
    """What a reader must know of a refit."""
    fitted = found.fitted
    notes = []
    if not fitted.moved:
        notes.append("The points determine none of the scenario's quantities, so nothing was moved.")
    if len(settings) == 1:
        notes.append("One setting alone: no point can be predicted from others, so the refit is not tested.")
    if not found.noise_measured:
        notes.append(f"Without repeats the refit takes the noise of a run to be {found.noise:.0%}.")
    notes += [
        f"{candidate.name}: the points ask for more than a factor of {BOUND:g}; the scenario describes another machine or another unit."
        for index, candidate in enumerate(fitted.moved)
        if fitted.at_bound(index)
    ]
    if fitted.scatter > _MUCH_SCATTER:
        notes.append(
            f"After the refit the points still differ from the predictions by {fitted.scatter:.1f} times their noise: "
            "something happens in these runs that the scenario does not have; no other value of these quantities explains it."
        )
    return notes


def refit_data(found: Refit, base: Scenario, settings: Sequence[Setting]) -> dict[str, Any]:
    """The refit for ``--json``."""
    fitted = found.fitted

    def moved(index: int, candidate: Candidate) -> dict[str, Any]:
        place = found.decisive(index)
        return {
            "name": candidate.name,
            "factor": fitted.factors[index],
            "interval_90": list(fitted.interval(index)),
            "keys": {path: {"from": value_at(base, path), "to": value_at(base, path) * fitted.factors[index]} for path in candidate.paths},
            "factors_without_each_setting": [its.factor_of(candidate.name) for its in found.left_out],
            "most_determined_by": None if place is None else settings[place].name,
            "at_bound": fitted.at_bound(index),
        }

    return {
        "moved": [moved(index, candidate) for index, candidate in enumerate(fitted.moved)],
        "not_determined": fitted.held,
        "noise": found.noise,
        "noise_measured": found.noise_measured,
        "scatter_over_noise": fitted.scatter,
    }


def _decisive(found: Refit, index: int, settings: Sequence[Setting]) -> str:
    place = found.decisive(index)
    if place is None:
        return "the one setting"
    without = found.left_out[place].factor_of(found.fitted.moved[index].name)
    return f"{settings[place].name} (without it {'not determined' if without == 1.0 else _factor(without)})"


def _measure(base: Scenario, candidate: Candidate) -> tuple[str, float, Callable[[float], str]]:
    """One number that stands for a quantity: what it is, its value in the scenario, and how to write it."""
    load, batch = base.workload, base.batch
    if candidate.paths[0].startswith("workload.forward") or candidate.paths[0].startswith("workload.backward"):
        return f"forward and backward pass, batch {batch:,}", load.compute_s(batch), format_duration
    if candidate.paths[0].startswith("workload.server"):
        return "all gradients of a step", sum(load.server(variable.gradient_bytes(batch)) for variable in load.variables), format_duration
    path = candidate.paths[0]
    return "", value_at(base, path), format_rate if path.endswith("_bytes_per_s") else format_duration


def _factor(factor: float) -> str:
    return f"× {format_number(factor)}"
