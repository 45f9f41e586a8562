"""Fits constants of computed workloads to published rows of one node: ``python -m evidence.published.hybrid_fitting``.

Each of the fitted rows (:meth:`~evidence.published.hybrids.HybridTables.is_fitted`) with
four micro-batches and 24 layers that cuts its model is simulated as
:mod:`evidence.published.hybrid_prediction` predicts it, all other constants at their values; sizes
of logarithmic errors of step times are minimised, those beyond 10% counting less. Other rows
say nothing more: the table's step times are linear in micro-batches and replicas to the last
digit, and in layers within 0.1%. All rows are of one source, which counts as the root of their
number, and each constant keeps to what it is taken to be without them, within its interval:
rows that the host limits do not say what products reach. Intervals are those of constants that rest on one
source (:func:`~evidence.published.fitting.interval_of`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np
import tomlkit
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.optimize import least_squares

from evidence.published.fitting import interval_of
from evidence.published.hybrid_prediction import FITTED_FILE, hybrid_table
from evidence.published.hybrids import HybridRow, HybridTables, load_hybrids
from simulator import simulate
from simulator.base.files import EDITED, Output
from simulator.base.text import digits
from simulator.catalogue.loading import scenario_from_table
from simulator.spec.constants import Known, constants

NAMES = ("decoder_matrix_share", "fused_elementwise_share", "kernel_start_s")
_MICRO_BATCHES, _LAYERS = 4, 24
_SCALE = 0.1
_STEP = 0.05
_MOST_TURNS = 12
_NORMAL_90 = 2 * 1.6448536269514722
"""Standard deviations of a normal distribution in its 90% interval."""


def errors_with(tables: HybridTables, rows: Sequence[HybridRow], values: dict[str, float]) -> NDArray[np.float64]:
    """Logarithmic errors of the rows' step times with constants by name (n,)."""
    known = {name: Known.model_validate(constant.value) for name, constant in constants().items()}
    known |= {name: Known.model_validate(value) for name, value in values.items()}
    logs = Parallel(n_jobs=-1, batch_size=16)(delayed(_error)(tables, row, known) for row in rows)
    return np.array(logs)


def _error(tables: HybridTables, row: HybridRow, known: dict[str, Known]) -> float:
    table = hybrid_table(tables, row, known)
    table["run"] |= {"replications": 2}
    rate = simulate(scenario_from_table(table, row.series)).throughput_samples_per_s.mean
    return math.log(row.throughput / rate)


def fitted(tables: HybridTables, rows: Sequence[HybridRow]) -> tuple[dict[str, Known], NDArray[np.float64]]:
    """The constants that fit best, each with its interval, and the errors that are left."""
    before = [constants()[name] for name in NAMES]
    middle = np.log([each.value for each in before])
    spread = np.array([math.log(each.high / each.low) / _NORMAL_90 for each in before])
    counts = len(rows) ** -0.25  # so that all squares together count as the root of their number

    def errors(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        return errors_with(tables, rows, dict(zip(NAMES, np.exp(logs).tolist(), strict=True)))

    def weighed(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate((counts * errors(logs), _SCALE * (logs - middle) / spread))

    # small layers are bound by the host in most of these rows, so that the search begins where kernels start slowly
    first = np.log([each.high if each.name == "kernel_start_s" else each.value for each in before])
    found = least_squares(
        weighed, first, bounds=(-np.inf, [0.0, np.inf, np.inf]), loss="soft_l1", f_scale=_SCALE, diff_step=_STEP / np.abs(first),
        x_scale=[0.2, 0.2, 1.0], max_nfev=_MOST_TURNS,
    )  # fmt: skip
    known = {}
    for each, value in zip(before, np.exp(found.x).tolist(), strict=True):
        its = interval_of(each, value, [value])
        known[each.name] = Known(value=digits(its.value, 3), low=digits(its.low, 3), high=digits(its.high, 3))
    return known, errors(found.x)


def _tells(tables: HybridTables, row: HybridRow) -> bool:
    """Whether a row has unique information."""
    model = tables.model_of(row)
    return model is not None and model.layers == _LAYERS and row.micro_batches == _MICRO_BATCHES and row.tensor * row.pipeline > 1


def main() -> None:
    """Fit, and write the values into their file."""
    tables = load_hybrids()
    rows = [row for row in tables.fitted_rows if _tells(tables, row)]
    known, left = fitted(tables, rows)
    document = tomlkit.document()
    document.add(
        tomlkit.comment("Constants of models/practice.toml fitted to rows of one node of one published table, by which the others are")
    )
    document.add(tomlkit.comment("predicted besides; written by `python -m evidence.published.hybrid_fitting`."))
    entries = tomlkit.table()
    for name, its in known.items():
        entry = tomlkit.inline_table()
        entry.update(its.model_dump())
        entries.add(name, entry)
    document.add("constants", entries)
    Output(tables.home / FITTED_FILE, EDITED, force=True).write(tomlkit.dumps(document))
    sys.stdout.write(f"{len(rows)} rows: median size of errors {np.median(np.abs(left)):.3f}, bias {np.median(left):+.3f}\n")


if __name__ == "__main__":
    main()
