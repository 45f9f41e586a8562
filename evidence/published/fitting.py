"""Fits achieved shares of nominal rates: ``python -m evidence.published.fitting`` rewrites ``models/practice.toml``.

For each constant every row that feels it is predicted by the simulator on a grid of values, the others at their priors. The effect of
several constants on a row's logarithmic error is taken as the sum of their effects. On these curves all constants are chosen at once: the
values that minimise the sizes of the errors, each counted up to a cap so that rows that are off for another reason do not decide, and
weighed so that a source counts by the root of its number of series; plus the squared distance from the prior in its standard deviations.
The same without each source in turn gives the constants by which that source's rows are predicted (``models/published/left_out.toml``).

Only ``crowding`` is fitted. Fitting ``nvlink_share``, ``pcie_share``, ``host_memory_share``, ``rdma_share``, ``ethernet_share``,
``straggler_cv``, a cap on TCP or crowding of mixed precision as well predicted tables left out of the fit no better: 5.7 to 6.5% in the
median for all-reduce (5.9% with ``crowding`` alone, 8.5% without) and 4.7 to 7.3% for synchronous servers (4.9%, 4.8%). Latency and
bandwidth alone: 10.3% and 8.3%. These are from before hosts' costs were simulated; ``--worth`` prints them for the constants of the file.
``grpc_tensor_s`` is about the geometric mean of seven machines: three of the testbed, one of ``paceline calibrate-server``, three tables.
Fitted to the tables alone it would be 0.08 ms and predict them better; it was chosen with their errors in view.

The interval says how much a constant differs from one source to the next, which a new
machine meets too: see :func:`interval_of`.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tomlkit
from joblib import Parallel, delayed
from numpy.typing import NDArray

from evidence.published.prediction import FILE, base_of, compute_that_gives
from evidence.published.scenarios import PublishedCase, cases_of, scenario_of, with_servers
from evidence.published.tables import Row, load_tables
from simulator import simulate
from simulator.base.catalog import own_file
from simulator.base.text import digits
from simulator.resolve.measured_defaults import felt_by, with_measured_defaults
from simulator.resolve.resolve import resolve
from simulator.spec.constants import Constant, Known, constants

Values = NDArray[np.float64]

_GRID = 7
_FINE = 49
_BEYOND = 1.5
"""How many times beyond the prior's interval the grid reaches."""
_CAP = 0.25
_SCALE = 0.06
"""Size of errors that counts as much as a constant that lies sqrt(2) of its prior's deviations off."""
_SWEEPS = 3
_FELT = 0.02
"""Mean size of a source's errors must change by so much over the grid for it to say anything."""
_SCATTER = math.log(1.5)
_SCATTER_COUNTS = 2.0
"""What sources are taken to differ by, as a standard deviation of logarithms, and as how many sources' evidence that counts."""
_TO_DEVIATION = 1.4826
_NORMAL_95 = 1.6448536269514722
_REPLICATIONS = 2
_MOST_PAIRS = 1024
"""Of workers and servers: rows with more take no part in the fit, since they are slow to simulate."""


class Curves(NamedTuple):
    """Logarithmic errors of one series' rows.

    Attributes
    ----------
    table
        Its source.
    base
        With every constant at its prior, shape (rows,).
    by
        Of each constant that the series feels, along its grid, shape (rows, values).
    """

    table: str
    base: Values
    by: dict[str, Values]


class Fit(NamedTuple):
    """Values that were chosen together, and with them the errors of each series' rows by its id."""

    values: dict[str, float]
    errors: dict[str, Values]


def grid_of(constant: Constant, count: int = _GRID) -> Values:
    """Values that are tried; of a share none above 1."""
    top = 1.0 if constant.name.endswith("_share") else math.inf
    return np.geomspace(constant.prior.low / _BEYOND, min(constant.prior.high * _BEYOND, top), count)


def measure(case: PublishedCase, rows: Sequence[Row], name: str | None) -> Values:
    """Errors of a series' rows along the grid of a constant, shape (rows, values); with no name at the priors, shape (rows, 1)."""
    priors = {each.name: each.prior.value for each in constants().values()}
    tried = [priors] if name is None else [{**priors, name: float(value)} for value in grid_of(constants()[name])]
    return np.array([_errors(case, rows, values) for values in tried]).T.reshape(-1, len(tried))


def _errors(case: PublishedCase, rows: Sequence[Row], values: Mapping[str, float]) -> list[float]:
    def rate(row: Row, compute_s: float) -> float:
        scenario = scenario_of(case, row, compute_s, whole_step=whole_step)
        run = scenario.run.model_copy(update={"replications": _REPLICATIONS})
        return simulate(with_measured_defaults(resolve(scenario.model_copy(update={"run": run})), values)).throughput_samples_per_s.mean

    base = base_of(rows)
    whole_step = with_servers(case, base)
    step_s = base.step_s if whole_step else compute_that_gives(base, lambda its_s: rate(base, its_s)).compute_s
    compute_s = step_s / base.batch_per_replica
    scored = [row for row in rows if row is not base and _pairs(case, row) <= _MOST_PAIRS]
    return [math.log(rate(row, compute_s * row.batch_per_replica) / row.mean) for row in scored]


def _pairs(case: PublishedCase, row: Row) -> int:
    """Workers times servers of a row."""
    scenario = scenario_of(case, row, row.step_s)
    return scenario.processes * scenario.servers


# -- choosing -------------------------------------------------------------------------


class _Fine:
    """Curves on a finer grid, as changes from the errors at the priors."""

    def __init__(self, curves: Mapping[str, Curves], known: Mapping[str, Constant]) -> None:
        self.curves = curves
        self.known = known
        self.grid = {name: grid_of(constant, _FINE) for name, constant in known.items()}
        self.changes = {
            series: {name: self._change(name, its.by[name]) for name in its.by if name in known} for series, its in curves.items()
        }

    def _change(self, name: str, errors: Values) -> Values:
        coarse, fine = np.log(grid_of(self.known[name])), np.log(self.grid[name])
        at_prior = math.log(self.known[name].prior.value)
        return np.array([np.interp(fine, coarse, row) - np.interp(at_prior, coarse, row) for row in errors]).reshape(-1, _FINE)

    def at(self, series: str, name: str, value: float) -> Values:
        """Change of the rows' errors with one constant at another value than its prior's."""
        place = np.log(self.grid[name])
        return np.array([np.interp(math.log(value), place, row) for row in self.changes[series][name]])

    def loss(self, series: str, name: str, others: Values) -> Values:
        """Mean capped size of the rows' errors along the fine grid of one constant, the errors by all others given."""
        return np.asarray(np.minimum(np.abs(others[:, None] + self.changes[series][name]), _CAP).mean(axis=0))


def choose(curves: Mapping[str, Curves], known: Mapping[str, Constant], without: str | None = None) -> Fit:
    """The values that fit best together; constants that are not fitted stay at their priors.

    Parameters
    ----------
    curves
        By the series' id.
    known
        Constants with their priors.
    without
        A source that has no say; the errors of its rows are given with the values of the others.
    """
    fine = _Fine(curves, known)
    values = {name: constant.prior.value for name, constant in known.items()}
    errors = {series: its.base.copy() for series, its in curves.items()}
    heard = [series for series, its in curves.items() if its.table != without and len(its.base)]
    count: dict[str, int] = {}
    for series in heard:
        count[curves[series].table] = count.get(curves[series].table, 0) + 1
    for _ in range(_SWEEPS):
        for name, constant in known.items():
            if not constant.fitted:
                continue
            cost = _distance(constant, fine.grid[name]) ** 2 / 2
            for series in heard:
                if name in fine.changes[series]:
                    others = errors[series] - fine.at(series, name, values[name])
                    cost = cost + fine.loss(series, name, others) / _SCALE / math.sqrt(count[curves[series].table])
            best = float(fine.grid[name][int(np.argmin(cost))])
            for series in errors:
                if name in fine.changes[series]:
                    errors[series] = errors[series] + fine.at(series, name, best) - fine.at(series, name, values[name])
            values[name] = best
    return Fit(values, errors)


def _distance(constant: Constant, values: Values) -> Values:
    """From the prior's value, in standard deviations of its logarithm."""
    prior = constant.prior
    spread = math.log(prior.high / prior.low) / (2 * _NORMAL_95)
    return np.asarray(np.log(values / prior.value) / spread)


def chosen_by_source(
    curves: Mapping[str, Curves], known: Mapping[str, Constant], fit: Fit, name: str, without: str | None = None
) -> dict[str, float]:
    """The value of one constant chosen by each single source whose rows depend on it."""
    if not known[name].fitted:
        return {}
    fine = _Fine(curves, known)
    losses: dict[str, list[Values]] = {}
    for series, its in curves.items():
        if name in fine.changes[series] and its.table != without and len(its.base):
            others = fit.errors[series] - fine.at(series, name, fit.values[name])
            losses.setdefault(its.table, []).append(fine.loss(series, name, others))
    chosen = {}
    for table, its_losses in losses.items():
        loss = np.mean(its_losses, axis=0)
        if np.ptp(loss) > _FELT:
            chosen[table] = float(fine.grid[name][int(np.argmin(loss))])
    return chosen


def interval_of(constant: Constant, value: float, sources: Sequence[float]) -> Known:
    """Value and 90% interval of what another source would choose.

    Sources are taken to scatter lognormally. The standard deviation is that of the values
    that each chooses by itself about the common one (1.4826 times the median distance, so
    that outliers do not decide), and of an assumed 1.5-fold scatter that counts as two
    sources: a constant that rests on one source has mainly that. With none the prior is
    all that is known.
    """
    if not sources:
        return Known(value=constant.prior.value, low=constant.prior.low, high=constant.prior.high)
    count = len(sources)
    scatter = _TO_DEVIATION * float(np.median([abs(math.log(its / value)) for its in sources]))
    variance = (count * scatter**2 + _SCATTER_COUNTS * _SCATTER**2) / (count + _SCATTER_COUNTS)
    reach = math.exp(_NORMAL_95 * math.sqrt(variance * (1.0 + 1.0 / count)))
    top = 1.0 if constant.name.endswith("_share") else math.inf
    return Known(value=value, low=value / reach, high=min(value * reach, top))


# -- all of it ------------------------------------------------------------------------


def _curves(cases: Sequence[tuple[PublishedCase, list[Row]]], known: Mapping[str, Constant], keep: Path | None) -> dict[str, Curves]:
    """Curves of all series, one constant after another; those in the folder are not measured again."""
    feels = {its.series.id: felt_by(resolve(scenario_of(its, row, row.step_s)) for row in rows) for its, rows in cases}
    base = _kept(keep, "base", cases, None)
    found = {its.series.id: Curves(its.series.table, base[its.series.id][:, 0], {}) for its, _ in cases}
    for name in known:
        own = [(its, rows) for its, rows in cases if name in feels[its.series.id]]
        for series, errors in _kept(keep, name, own, name).items():
            found[series].by[name] = errors
    return found


def _kept(keep: Path | None, label: str, cases: Sequence[tuple[PublishedCase, list[Row]]], name: str | None) -> dict[str, Values]:
    file = keep / f"{label}.npz" if keep is not None else None
    if file is not None and file.is_file():
        with np.load(file) as stored:  # which runs nothing, whoever has written it
            return dict(stored)
    errors = Parallel(n_jobs=-1, batch_size=4)(delayed(measure)(its, rows, name) for its, rows in cases)
    found = {its.series.id: each for (its, _), each in zip(cases, errors, strict=True)}
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, **found)
    return found


def main() -> None:
    """Fit, and write the values into their files."""
    parser = argparse.ArgumentParser(description="Fit what software gets of nominal rates to the published tables.")
    parser.add_argument("--keep", type=Path, help="a folder: what was measured is kept there, and not measured again")
    parser.add_argument("--only", help="measure one constant, or base, into that folder, and end")
    parser.add_argument("--worth", action="store_true", help="write no file; print what fitting each constant is worth to tables left out")
    given = parser.parse_args()
    tables = load_tables()
    known = constants()
    # asynchronous workers on CPUs exchange so little, and share so much with their servers, that their rows say nothing of rates or hosts
    cases = [(its, rows) for its, rows in cases_of(tables) if its.stack.kind != "asynchronous" or its.stack.alone_with_servers]
    if given.only:
        _curves(cases, {name: known[name] for name in known if name == given.only}, given.keep)
        return
    felt = known if given.worth else {name: constant for name, constant in known.items() if constant.fitted}
    curves = _curves(cases, felt, given.keep)
    if given.worth:
        _print_worth(curves, known, {its.series.id: its.series.regime for its, _ in cases})
        return
    _write_practice(curves, known)
    _write_left_out(curves, known, tables.home / FILE)


def _print_worth(curves: Mapping[str, Curves], known: Mapping[str, Constant], regimes: Mapping[str, str]) -> None:
    """Median size of the errors of each regime, every table left out of the fit that predicts it; with and without each constant."""

    def print_medians(label: str, tried: Mapping[str, Constant]) -> None:
        errors: dict[str, list[float]] = {}
        for table in sorted({its.table for its in curves.values()}):
            fit = choose(curves, tried, without=table)
            for series, its in curves.items():
                if its.table == table:
                    errors.setdefault(regimes[series], []).extend(np.abs(np.expm1(fit.errors[series])).tolist())
        medians = "  ".join(f"{regime}: {np.median(sizes):.3f}" for regime, sizes in sorted(errors.items()))
        sys.stdout.write(f"{label:40}  {medians}\n")

    print_medians("as it is", known)
    for name, constant in known.items():
        other = constant.model_copy(update={"fitted": not constant.fitted})
        print_medians(f"{name} {'at its prior' if constant.fitted else 'fitted'}", {**known, name: other})


def _write_practice(curves: Mapping[str, Curves], known: Mapping[str, Constant]) -> None:
    file = own_file("practice.toml")
    document = tomlkit.parse(file.read_text(encoding="utf-8"))
    fit = choose(curves, known)
    for entry in document["constant"]:
        constant = known[entry["name"]]
        sources = chosen_by_source(curves, known, fit, constant.name)
        entry["determined"] = bool(sources)
        entry["tables"] = sorted(sources)
        entry.update(_rounded(interval_of(constant, fit.values[constant.name], list(sources.values()))))
    file.write_text(tomlkit.dumps(document), encoding="utf-8")


def _write_left_out(curves: Mapping[str, Curves], known: Mapping[str, Constant], file: Path) -> None:
    document = tomlkit.document()
    document.add(tomlkit.comment("Constants of models/practice.toml fitted without one table, by which that table's rows are predicted;"))
    document.add(tomlkit.comment("written by `python -m evidence.published.fitting`."))
    entries = tomlkit.aot()
    for table in sorted({its.table for its in curves.values()}):
        fit = choose(curves, known, without=table)
        for name, constant in known.items():
            if not constant.fitted:
                continue
            sources = chosen_by_source(curves, known, fit, name, without=table)
            entry = tomlkit.table()
            entry.update({"table": table, "name": name})
            entry.update(_rounded(interval_of(constant, fit.values[name], list(sources.values()))))
            entries.append(entry)
    document.add("left_out", entries)
    file.write_text(tomlkit.dumps(document), encoding="utf-8")


def _rounded(known: Known) -> dict[str, float]:
    """Three digits, an end never on the wrong side of the value."""
    value = digits(known.value, 3)
    low, high = digits(known.low, 3), digits(known.high, 3)
    return {"value": value, "low": min(low, value), "high": max(high, value)}


if __name__ == "__main__":
    main()
