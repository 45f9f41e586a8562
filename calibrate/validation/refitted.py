"""A scenario with the values of a refit in place: the same tables as its file has, and what the points leave open as draws."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrate.validation.candidates import value_at
from calibrate.validation.refit import Fitted
from simulator import catalog
from simulator.scenario import Scenario
from simulator.spec import short_name
from simulator.uncertainty import Uncertainty

__all__ = ["refitted_table"]

_DRAWS = 64
_DIGITS = 7
_SEED = 20_261


def refitted_table(
    table: Mapping[str, Any], base: Scenario, fitted: Fitted, *, about: str = "", beside: Path | None = None
) -> dict[str, Any]:
    """The scenario's tables with the moved values, which a loader takes in place of the old ones.

    Draws of a moved quantity come from the fit; those of others stay as they are. Workload
    and cluster draw independently of each other, so that a correlation between quantities
    of the two is not kept: intervals are rather too wide than too narrow.

    Parameters
    ----------
    table
        The scenario as its file has it.
    base
        The same, validated.
    about
        Goes into the provenance of the sections that change.
    beside
        Folder of the scenario; relative paths under ``use`` become absolute.
    """
    result = dict(table)
    logs = _drawn_logs(fitted, _draws_wanted(base))
    for section in ("workload", "cluster"):
        own = dict(result[section])
        if str(own.get("use", "")).endswith(".toml"):
            own["use"] = str(catalog.find(f"{section}s", own["use"], f"{section}.use", beside).resolve())  # type: ignore[arg-type]
        columns: dict[str, list[float]] = {}
        for index, candidate in enumerate(fitted.moved):
            if candidate.section == section:
                for target, path in zip(candidate.targets, candidate.paths, strict=True):
                    old = value_at(base, path)
                    own = _with(own, target.split("."), _rounded(old * fitted.factors[index]))
                    columns[target] = [_rounded(old * factor) for factor in np.exp(logs[:, index]).tolist()]
        if columns:
            own["uncertainty"] = _uncertainty(getattr(base, section).uncertainty, columns)
            if about:
                own = _with(own, ["provenance", "refit"], about)
        result[section] = own
    return result


def _draws_wanted(base: Scenario) -> int:
    return max(_DRAWS, *(len(each.draws) for each in (base.workload.uncertainty, base.cluster.uncertainty) if each is not None), 0)


def _drawn_logs(fitted: Fitted, count: int) -> NDArray[np.float64]:
    """Logarithms of the factors, shape (count, n); their mean is the optimum itself."""
    if not fitted.moved:
        return np.zeros((count, 0))
    normal = np.random.default_rng(_SEED).standard_normal((count, len(fitted.logs)))
    normal -= normal.mean(axis=0)
    return np.asarray(fitted.logs) + normal @ np.linalg.cholesky(np.asarray(fitted.covariance)).T


def _uncertainty(old: Uncertainty | None, columns: dict[str, list[float]]) -> dict[str, Any]:
    """The old draws of what did not move, in turn, beside the new ones."""
    count = len(next(iter(columns.values())))
    kept = [] if old is None else [(place, name) for place, name in enumerate(old.parameters) if name not in columns]
    draws = [
        [old.draws[row % len(old.draws)][place] for place, _ in kept if old is not None] + [column[row] for column in columns.values()]
        for row in range(count)
    ]
    return {"parameters": [*(name for _, name in kept), *columns], "draws": draws}


def _with(table: Mapping[str, Any], path: list[str], value: float | str) -> dict[str, Any]:
    """A copy with a key set, under its full name alone."""
    head, *rest = path
    inner = table.get(head)
    new: Any = _with(inner if isinstance(inner, Mapping) else {}, rest, value) if rest else value
    kept = {key: old for key, old in table.items() if rest or key != short_name(head)}
    return {**kept, head: new}


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
