"""Fits the layers of a workload: times from steps with clocks between the layers, sizes from the model's graph.

``calibrate/probes/layers.py`` and ``step.py`` write the records. The times are seconds at one batch size; the simulator uses
them as shares of the forward and backward pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from calibrate.fit.intervals import digits
from calibrate.fit.step_times import StepTable, smooth
from calibrate.measurements import CUT_SHORT, Measurements
from calibrate.records import LayerRecord, LayerTimes
from simulator.base.errors import CalibrationError
from simulator.base.text import format_change
from simulator.spec.layers import Layer


def fit_layers(runs: Sequence[Measurements], table: StepTable, creation: Mapping[int, int]) -> tuple[tuple[Layer, ...], str]:
    """Layers with the time of each pass, what they hand on and keep, and their operations; empty where none were measured.

    Times are means over all steps with clocks between the layers, at the middle one of the
    batch sizes; steps that took more than 1.5 times as long as the fastest are left out. Bytes
    and operations for each sample are slopes between the smallest and the largest batch, so
    that what does not grow with the batch is no sample's.

    Parameters
    ----------
    runs
        The measurements, one a run.
    table
        The same runs' whole steps, to which the sum of the layers is compared.
    creation
        Place of each variable in the workload's order of creation, by the order that the records tell.

    Returns
    -------
    (tuple of Layer, str)
        The layers in the order of the forward pass; and how they were measured, and how far
        their sum is from forward and backward pass of the whole step, in words.

    Raises
    ------
    CalibrationError
        The records of layers are incomplete.
    """
    records = runs[0].of(LayerRecord)
    if not records:
        return (), ""
    times: dict[int, list[tuple[float, ...]]] = defaultdict(list)
    for run in runs:
        for one in run.of(LayerTimes):
            times[one.batch].append((*one.forward_s, *one.backward_s))
    by_batch = {batch: {one.index: one for one in records if one.batch == batch} for batch in sorted({one.batch for one in records})}
    small, large = (by_batch[batch] for batch in (min(by_batch), max(by_batch)))
    whole = len(by_batch) == 2 and list(small) == list(large) == list(range(len(small)))
    if not whole or any({len(row) for row in times[batch]} != {2 * len(small)} for batch in table.batches):
        raise CalibrationError(f"holds layers that are not complete: {CUT_SHORT}")
    means = {batch: smooth(np.array(times[batch])).mean(axis=0) for batch in table.batches}
    middle = table.batches[len(table.batches) // 2]
    forward, backward = means[middle][: len(small)], means[middle][len(small) :]
    layers = tuple(
        Layer(
            name=small[index].name,
            forward=digits(float(forward[index])),
            backward=digits(float(backward[index])),
            variables=tuple(sorted(creation[one] for one in small[index].variables if one in creation)),
            output_bytes_per_sample=_slope(small[index], large[index], "output_bytes") or 0.0,
            kept_bytes_per_sample=_slope(small[index], large[index], "kept_bytes") or 0.0,
            flops_per_sample=_slope(small[index], large[index], "flops"),
        )
        for index in range(len(small))
    )
    return layers, _in_words(means, table, middle, sum(len(one) for one in times.values()))


def _slope(small: LayerRecord, large: LayerRecord, field: str) -> float | None:
    low, high = getattr(small, field), getattr(large, field)
    if low is None or high is None:
        return None
    return max(0.0, float(high - low) / (large.batch - small.batch))


def _in_words(means: Mapping[int, NDArray[np.float64]], table: StepTable, middle: int, steps: int) -> str:
    ratios = []
    for batch in table.batches:
        of_step = table.mean(batch) * (table.share(batch, "forward") + table.share(batch, "backward"))
        ratios.append(f"{format_change(means[batch].sum() / of_step - 1.0)} at batch {batch}")
    return (
        f"mean seconds at batch {middle}, from {steps} steps with clocks between the layers; "
        f"their sum, less forward and backward pass of the whole step, is {', '.join(ratios)} of these"
    )
