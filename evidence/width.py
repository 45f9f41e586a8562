"""Do promises of what to measure next come true, and do the shares of few runs agree with simulating again?

``python -m evidence.width`` draws scenarios by a seed, and carries out each command that they are advised on paper: the true value is drawn
from what is known now, and what is left open around it is as narrow as promised. Another simulation gives the obtained width, compared with
the promised width. Of the bundled scenarios it holds each quantity at its fitted value, with all other draws as they were, and puts the
share of the variance that goes beside the share that 19 runs tell. Rows are written to ``evidence/tables/width.csv`` and
``width-shares.csv``; docs/intervals.md has the summary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from simulator import simulate
from simulator.base.errors import PacelineError
from simulator.base.files import EDITED, Output
from simulator.base.table import Column, Table
from simulator.catalogue.loading import load_scenario
from simulator.resolve.drawing import drawn_quantities
from simulator.resolve.measured_defaults import COMPUTE, JITTER, LINK, OF_CONSTANTS, felt_by
from simulator.resolve.resolve import Asked, resolve
from simulator.results.next_measurement import commands_of, spreads_of, width_of
from simulator.results.results import Result
from simulator.scenario import Resolved
from simulator.spec.constants import Known, constants
from simulator.spec.uncertainty import Uncertainty

SEED = 20261127
_SCENARIOS = 40
_BUNDLED = (
    "ring", "async-ps", "sync-ps", "ssp", "backup-workers", "local-sgd", "pipeline", "pipedream", "fsdp", "tensor-pipeline",
    "virtual-devices",
)  # fmt: skip
_FOLDER = Path(__file__).parent / "tables"
_REFERENCE_RUNS = 99
_SEEN = 0.02
"""A share that is less by both is not counted."""


def narrowed(scenario: Resolved, left: Mapping[str, float], rng: np.random.Generator | None) -> Resolved:
    """A scenario whose quantities are known to a share of their spread around a true value.

    Parameters
    ----------
    left
        Share of the standard deviation of each quantity that is left; 0: it is known exactly.
    rng
        Draws the true values from what is known now; None: they are the fitted ones.
    """
    load, cluster, practice = scenario.workload, scenario.cluster, dict(scenario.practice)
    changes: dict[str, Any] = {}
    if COMPUTE in left and load.uncertainty is not None:
        changes["workload"] = load.model_copy(update={"uncertainty": _nearer(load.uncertainty, left[COMPUTE], rng)})
    if LINK in left and cluster.uncertainty is not None:
        changes["cluster"] = cluster.model_copy(update={"uncertainty": _nearer(cluster.uncertainty, left[LINK], rng)})
    if JITTER in left and load.draws_its_distribution and left[JITTER]:
        load = changes.get("workload", load)
        changes["workload"] = load.model_copy(update={"jitter_steps": round((load.steps_seen or 1) / left[JITTER] ** 2)})
    for name in felt_by([scenario]):
        if (its := left.get(OF_CONSTANTS[name])) is not None:
            known = practice.get(name) or constants()[name].plain
            middle = known.value if rng is None else known.quantile(float(rng.random()), keeps="median")
            spread = (known.high / known.low) ** (its / 2)
            practice[name] = Known(value=middle, low=middle / spread, high=middle * spread)
    return scenario.model_copy(update={**changes, "practice": practice})


def _nearer(uncertainty: Uncertainty, left: float, rng: np.random.Generator | None) -> Uncertainty:
    """Draws nearer to one of them, or to their middle, in logarithms; numbers that are 0 stay there."""
    draws = np.array(uncertainty.draws)
    logs = np.log(np.maximum(draws, 1e-300))
    middle = np.mean(logs, axis=0) if rng is None else logs[rng.integers(len(logs))]
    found = np.where(draws > 0.0, np.exp(middle + left * (logs - np.mean(logs, axis=0))), 0.0)
    return uncertainty.model_copy(update={"draws": tuple(map(tuple, found.tolist()))})


def held(scenario: Resolved, name: str) -> Resolved:
    """A scenario that knows one quantity, all other draws as they were; the distribution of jitter cannot be held."""
    return narrowed(scenario, {name: 0.0}, None)


def _width(result: Result) -> float:
    its = result.throughput_samples_per_s
    return math.log(its.high / its.low)


def _drawn_scenarios(rng: np.random.Generator) -> Iterator[tuple[str, Resolved]]:
    """Bundled scenarios with a number of workers, a batch and a network drawn for each, where they have any."""
    while True:
        name = str(rng.choice(_BUNDLED))
        settings: list[tuple[str, Any]] = [("run.steps", 60), ("run.seed", int(rng.integers(1000)))]
        base = load_scenario(name)
        if base.strategy.count_key and not base.strategy.cuts:
            settings.append(("strategy.workers", int(2 ** rng.integers(1, 6))))
        if base.cluster.name.startswith("ethernet"):
            settings.append(("cluster.use", str(rng.choice(["ethernet-1g", "ethernet-10g", "ethernet-25g"]))))
        try:
            scenario = resolve(load_scenario(name, settings))
        except PacelineError:
            continue
        what = ", ".join(f"{key.partition('.')[2]} {value}" for key, value in settings[1:])
        yield f"{name}: {what}", scenario


def _promises(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    for (name, scenario), _ in zip(_drawn_scenarios(rng), range(_SCENARIOS), strict=False):
        now = simulate(Asked(scenario, scenario))
        commands = {its.line: its for its in commands_of(scenario, spreads_of(drawn_quantities(scenario)))}
        for promised in width_of(now).measure_next:
            if promised.at_best:
                continue
            command = commands[promised.command]
            left = {key: min(value, 1.0) for key, value in command.left.items()}
            asked = narrowed(command.scenario, left, rng)
            then = simulate(Asked(asked, asked))
            yield {
                "scenario": name,
                "command": promised.command.split(" --")[0],
                "now": _width(now),
                "promised": promised.left * _width(now),
                "obtained": _width(then),
                "error": promised.left * _width(now) / _width(then) - 1.0,
            }


def _shares() -> Iterator[dict[str, Any]]:
    """For the bundled scenarios, the shares from 19 runs compared with the loss of variance over many runs when a quantity is fixed."""
    for name in _BUNDLED:
        few = simulate(load_scenario(name, [("run.steps", 60)]))
        own = [its for its in width_of(few).contributions if its.kind == "drawn"]
        of_runs = math.fsum(few.scatter.shares[1:])
        scenario = resolve(load_scenario(name, [("run.steps", 60), ("run.replications", _REFERENCE_RUNS)]))
        whole = _variance(scenario)
        for its in own:
            if its.name == JITTER and scenario.workload.draws_its_distribution:
                continue
            yield {
                "scenario": name,
                "quantity": its.name,
                "first": its.first.mean / of_runs,
                "low": its.first.low / of_runs,
                "high": its.first.high / of_runs,
                "total": its.total.mean / of_runs,
                "held": 1.0 - _variance(held(scenario, its.name)) / whole,
            }


def _variance(scenario: Resolved) -> float:
    rates = simulate(Asked(scenario, scenario)).throughput_of_each_replication
    return float(np.var(np.log(rates), ddof=1))


def _table(rows: list[dict[str, Any]]) -> Table:
    columns = tuple(Column(name) for name in rows[0])
    cells = tuple(tuple(float(f"{value:.4g}") if isinstance(value, float) else value for value in row.values()) for row in rows)
    return Table("", columns, cells)


def main() -> None:
    """Write the rows of both checks, and print what they come to."""
    promises, shares = list(_promises(np.random.default_rng(SEED))), list(_shares())
    for file, rows in (("width.csv", promises), ("width-shares.csv", shares)):
        Output(_FOLDER / file, EDITED._replace(ending=".csv"), force=True).write(_table(rows).to_csv())
    errors = np.array([row["error"] for row in promises])
    sizes = f"median size {np.median(abs(errors)):.1%}, worst {max(errors, key=abs):+.1%}"
    print(f"{len(errors)} promises: median {np.median(errors):+.1%}, {sizes}")  # noqa: T201
    there = [row for row in shares if max(row["first"], row["held"]) >= _SEEN]
    away = np.array([row["first"] - row["held"] for row in there])
    inside = np.mean([row["low"] <= row["held"] <= row["high"] for row in there])
    print(f"{len(there)} shares: median size {np.median(abs(away)):.2f}, worst {max(away, key=abs):+.2f}, {inside:.0%} inside")  # noqa: T201


if __name__ == "__main__":
    main()
