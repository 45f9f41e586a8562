"""The model's variables, in the order in which their gradients were seen to become ready."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from calibrate.measurements import CUT_SHORT, Measurements
from calibrate.records import Ready, Rows, VariableRecord
from simulator.errors import CalibrationError
from simulator.workload import Variable

__all__ = ["fitted_variables"]


def fitted_variables(measured: Measurements) -> tuple[Variable, ...]:
    """Variables with size, creation order, readiness and the bytes of sparse gradients.

    ``ready`` is the median over all steps with clocks inside of the time from the loss to
    the gradient, divided by the time from the loss to the last gradient. Where gradients
    were computed outside any ``tf.function`` their times cannot be seen, and each counts
    as ready at the end of the backward pass.

    Raises
    ------
    CalibrationError
        No variable was recorded.
    """
    records = measured.of(VariableRecord)
    if not records:
        raise CalibrationError(f"holds no variables: {CUT_SHORT}")
    shares = _ready_shares(measured)
    by_creation = sorted(records, key=lambda record: (record.created, record.index))
    creation = {record.index: order for order, record in enumerate(by_creation)}
    ordered = sorted(records, key=lambda record: (shares.get(record.index, 1.0), -creation[record.index]))
    sparse = _sparse_bytes_per_sample(measured)
    last = max(shares.get(record.index, 1.0) for record in ordered)
    return tuple(
        Variable(
            name=record.name,
            size_bytes=record.size_bytes,
            creation_index=creation[record.index],
            # medians of shares end just below 1; the last gradient is ready when the pass ends
            ready=min(round(shares.get(record.index, 1.0) / last, 6), 1.0) if last > 0 else 1.0,
            # a scalar has no rows to be cut between
            rows=record.shape[0] if record.shape and record.shape[0] > 0 else None,
            sparse_bytes_per_sample=sparse.get(record.index),
        )
        for record in ordered
    )


def _ready_shares(measured: Measurements) -> dict[int, float]:
    seen: dict[int, list[float]] = defaultdict(list)
    for record in measured.of(Ready):
        last = max(record.ready_s.values(), default=0.0)
        if not record.observed or last <= 0:
            continue
        for index, seconds in record.ready_s.items():
            seen[index].append(seconds / last)
    return {index: float(np.median(values)) for index, values in seen.items()}


def _sparse_bytes_per_sample(measured: Measurements) -> dict[int, float]:
    """Mean bytes of the rows and indices that a sample touches, by variable."""
    row_bytes = {record.index: record.sparse_row_bytes for record in measured.of(VariableRecord)}
    per_sample: dict[int, list[float]] = defaultdict(list)
    for record in measured.of(Rows):
        size = row_bytes.get(record.variable)
        if size is not None and record.rows > 0:
            per_sample[record.variable].append(record.rows * size / record.batch)
    return {index: float(np.mean(values)) for index, values in per_sample.items()}
