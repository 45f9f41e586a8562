"""Fits the constants on the tables that each names: ``python -m calibrate.published.fitting`` rewrites their file.

One constant after another, in the order of the file, the others as they stand: every row
that feels it is predicted on a grid of values by the simulator. The value is the one with
the smallest mean size of the rows' logarithmic errors, each counted up to a cap so that
rows that are off for another reason do not decide. The interval is as wide as the values
are spread that single series would choose, by their quartiles as of a lognormal: it says
how much the constant differs from one machine and software to the next, which a new
table meets too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tomlkit
from joblib import Parallel, delayed
from numpy.typing import NDArray

from calibrate.published.constants import Constant, Constants, load_constants
from calibrate.published.prediction import fit
from calibrate.published.situations import Situation
from calibrate.published.tables import Row, Tables, load_tables
from calibrate.published.validation import situations_of
from simulator import simulate

__all__ = ["NOISES", "Choice", "choose", "fit_constants", "fit_noises", "main"]

_GRID = 7
_SPAN = 3.0
_FELT = 0.01
_CAP = 0.25
_FEWEST_SERIES = 5
_LONE_REACH = 1.5
"""With fewer series than these, how much machines differ is not known: a factor assumed."""
_NORMAL_95 = 1.6449
_NORMAL_QUARTILES = 1.349
"""Distance between the quartiles of a normal, in standard deviations."""
_ROWS_OF_A_SERIES = 2
_TO_DEVIATION = 1.4826
NOISES = ("row_noise", "async_row_noise")
"""Constants that only widen intervals: set from what the fitted rows leave, not on a grid."""


class Choice(NamedTuple):
    """The value that rows choose together, and where those of single series lie."""

    value: float
    low: float
    high: float


def fit_constants(tables: Tables, constants: Constants, only: Sequence[str] = ()) -> Constants:
    """One sweep over all constants, or over some.

    Parameters
    ----------
    tables, constants
        What is predicted, and where the fit begins.
    only
        Names; left out: all but :data:`NOISES`.
    """
    situations = situations_of(tables)
    for constant in constants.all:
        if constant.name in NOISES or (only and constant.name not in only):
            continue
        own = [
            (situation, rows)
            for situation, rows in situations
            if situation.series.table in constant.fit_on and situation.stack.id not in constant.not_on
        ]
        current = next(each for each in constants.all if each.name == constant.name)
        top = _top(current.name)
        grid = np.geomspace(current.value / _SPAN, min(current.value * _SPAN, top), _GRID)
        errors = Parallel(n_jobs=-1)(delayed(_errors)(situation, rows, constants, current.name, grid) for situation, rows in own)
        choice = choose(grid, errors)
        if choice is not None:
            constants = _replaced(constants, current, choice)
    return constants


def fit_noises(tables: Tables, constants: Constants) -> Constants:
    """The noise constants: 1.4826 times the median size of what the fitted tables' rows are off, a deviation that outliers do not move."""
    situations = situations_of(tables)
    for name in NOISES:
        current = next(each for each in constants.all if each.name == name)
        own = [
            (situation, rows)
            for situation, rows in situations
            if situation.series.table in current.fit_on and (situation.stack.kind == "asynchronous") == name.startswith("async")
        ]
        grid = np.array([current.value])
        errors = Parallel(n_jobs=-1)(delayed(_errors)(situation, rows, constants, name, grid) for situation, rows in own)
        each_series = [_TO_DEVIATION * float(np.median(np.abs(its))) for its in errors if its.size]
        value = _TO_DEVIATION * float(np.median(np.abs(np.concatenate([its.ravel() for its in errors]))))
        quarter, three = np.quantile(each_series, [0.25, 0.75])
        constants = _replaced(constants, current, Choice(value, min(float(quarter), value), max(float(three), value)))
    return constants


def choose(grid: NDArray[np.float64], errors: Sequence[NDArray[np.float64]]) -> Choice | None:
    """The best value on a finer grid.

    Parameters
    ----------
    grid
        Values that were tried, rising, shape (values,).
    errors
        Of each series, logarithmic errors of its rows, shape (rows, values).

    Returns
    -------
    Choice or None
        None if no row feels the constant.
    """
    fine = np.geomspace(grid[0], grid[-1], 121)
    felt = [each[np.ptp(each, axis=1) > _FELT] for each in errors]
    losses = [
        np.mean([np.minimum(np.abs(np.interp(np.log(fine), np.log(grid), row)), _CAP) for row in each], axis=0) * len(each)
        for each in felt
        if len(each)
    ]
    if not losses:
        return None
    best = float(fine[int(np.argmin(np.sum(losses, axis=0)))])
    if len(losses) < _FEWEST_SERIES:
        return Choice(best, best / _LONE_REACH, best * _LONE_REACH)
    single = [float(fine[int(np.argmin(loss))]) for loss in losses]
    quarter, three = np.quantile(np.log(single), [0.25, 0.75])
    reach = min(max(math.exp(_NORMAL_95 * float(three - quarter) / _NORMAL_QUARTILES), 1.0), _SPAN)
    return Choice(best, best / reach, best * reach)


def _errors(situation: Situation, rows: Sequence[Row], constants: Constants, name: str, grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithmic errors of a series' largest rows for each value, shape (rows, values)."""
    columns = []
    for value in grid:
        build, used = fit(situation, rows, constants.with_values({name: float(value)}))
        fitted = sorted({row.replicas for row in rows})[:used]
        scored = [row for row in rows if row.replicas not in fitted][-_ROWS_OF_A_SERIES:]
        columns.append([math.log(simulate(build(row)).throughput_samples_per_s.mean / row.mean) for row in scored])
    return np.array(columns).T.reshape(-1, len(grid))


def _top(name: str) -> float:
    """The largest value that means anything: of a share 1; of the tail of replies that beside which the work of calls vanishes."""
    return 1.0 if name.endswith(("_share", "_overlap")) else 60.0 if name == "reply_tail" else math.inf


def _replaced(constants: Constants, current: Constant, choice: Choice) -> Constants:
    top = _top(current.name)
    changed = current.model_copy(update={"value": choice.value, "low": choice.low, "high": min(choice.high, top)})
    return Constants(changed if each.name == current.name else each for each in constants.all)


def main() -> None:
    """Fit, and write the values into ``constants.toml``."""
    tables = load_tables()
    file = tables.home / "constants.toml"
    fitted = {constant.name: constant for constant in fit_noises(tables, fit_constants(tables, load_constants(tables.home))).all}
    document = tomlkit.parse(file.read_text(encoding="utf-8"))
    for entry in document["constant"]:
        constant = fitted[entry["name"]]
        for key in ("value", "low", "high"):
            entry[key] = float(f"{getattr(constant, key):.3g}")
    file.write_text(tomlkit.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    main()
