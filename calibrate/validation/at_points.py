"""A scenario at the settings that were measured, and its answers beside the measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from calibrate.validation.comparison import Compared
from calibrate.validation.points import Setting
from calibrate.validation.reaching import drawn_interval, reached_of
from simulator.errors import InputError
from simulator.loading import apply_settings, scenario_from_table
from simulator.results import Result
from simulator.scenario import Scenario
from simulator.strategies.catalogue import kind_of

__all__ = ["Unit", "base_scenario", "compared", "scenarios_at"]

Unit = Literal["samples/s", "updates/s"]


def scenarios_at(
    table: Mapping[str, Any], settings: Sequence[Setting], *, source: str, points: Path, beside: Path | None
) -> list[Scenario]:
    """The scenario with workers, servers and batch as at each setting.

    Parameters
    ----------
    table
        The scenario as its file has it.
    settings
        As :func:`calibrate.validation.points.read_points` gives them.
    source, points
        Files of the scenario and of the points, for messages.
    beside
        Folder that relative ``use`` paths are also looked up in.

    Raises
    ------
    InputError
        The scenario is not valid as it is, or cannot be at one of the settings; names the line of that one.
    """
    base = base_scenario(table, settings, source=source, beside=beside)
    return [
        scenario_from_table(
            apply_settings(table, _keys(base, setting, f"{points}:{setting.line}"), f"{source}: "), f"{points}:{setting.line}", beside
        )
        for setting in settings
    ]


def base_scenario(table: Mapping[str, Any], settings: Sequence[Setting], *, source: str, beside: Path | None) -> Scenario:
    """The scenario as its file has it; with the first setting's workers where it leaves them out."""
    strategy = table.get("strategy")
    key = kind_of(strategy).count_key
    if isinstance(strategy, Mapping) and key and key not in strategy:
        table = {**table, "strategy": {**strategy, key: settings[0].workers}}
    return scenario_from_table(table, source, beside)


def _keys(base: Scenario, setting: Setting, where: str) -> list[tuple[str, Any]]:
    """What ``--set`` would say to bring the scenario to a setting."""
    strategy = base.strategy
    keys: list[tuple[str, Any]] = []
    if strategy.count_key:
        keys.append((f"strategy.{strategy.count_key}", setting.workers))
    elif setting.workers != 1:
        raise InputError(
            f'{where}: workers: {setting.workers:,} must be 1, since the scenario\'s strategy.kind is "{strategy.kind}"; '
            "give the scenario that was measured"
        )
    if strategy.has_servers:
        if setting.servers is not None:
            keys.append(("strategy.servers", setting.servers))
    elif setting.servers:
        raise InputError(
            f"{where}: servers: {setting.servers:,} must be 0 or empty, since strategy.kind {strategy.kind!r} has no parameter servers; "
            "give the scenario that was measured"
        )
    if setting.batch is not None:
        weak = base.workload.batch_per_replica is not None
        keys.append(("workload.batch_per_replica" if weak else "workload.global_batch", setting.batch))
    return keys


def compared(
    settings: Sequence[Setting],
    results: Sequence[Result],
    unit: Unit = "samples/s",
    *,
    group: str = "",
    fitted: bool = False,
    notes: Sequence[str] = (),
) -> list[Compared]:
    """What was measured at each setting beside what was predicted there.

    Parameters
    ----------
    settings, results
        Of the same length, in the same order.
    unit
        Of the throughputs measured.
    group, fitted
        As :class:`~calibrate.validation.comparison.Compared` has them.
    notes
        One a setting, or none.
    """
    return [
        Compared(
            name=setting.name,
            group=group or result.scenario.strategy.way,
            fitted=fitted,
            unit=unit,
            measured=setting.throughput,
            predicted=result.throughput_samples_per_s if unit == "samples/s" else result.updates_per_s,
            staleness_measured=setting.staleness,
            staleness_predicted=result.staleness.mean if setting.staleness else None,
            settings=_settings(result.scenario),
            note=notes[index] if notes else "",
            reached=reached_of(
                result.discrepancy,
                drawn_interval(result, unit),
                source=result.scenario.cluster.name,
                series=result.scenario.workload.name,
            ),
        )
        for index, (setting, result) in enumerate(zip(settings, results, strict=True))
    ]


def _settings(scenario: Scenario) -> dict[str, float | str]:
    found: dict[str, float | str] = {"workers": float(scenario.workers)}
    if scenario.servers:
        found["servers"] = float(scenario.servers)
    return {**found, "batch": float(scenario.batch)}
