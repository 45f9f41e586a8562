"""What a step costs: one line through the means of plain steps, divided into forward, backward and apply."""

from __future__ import annotations

import numpy as np
from scipy.optimize import lsq_linear

from calibrate.estimators import AffineMean
from calibrate.step_table import StepTable
from simulator.workload import Affine

__all__ = ["StepCost"]


class StepCost:
    """Forward and backward as affine functions of the batch, and apply, which does not depend on it.

    The level comes from plain steps alone: :class:`~calibrate.estimators.AffineMean` through
    their means. Steps with clocks inside run slower, or at another time; from them comes
    only how the phases share that line. Apply is the mean of its share over the batch sizes
    (what the optimizer does depends on the variables, not on the batch), and at most the
    line's fixed part; of the rest, forward gets that part of the fixed and of the
    per-sample cost, each between nothing and all, that meets its shares best (least
    squares); backward has what is left. So the three sum to the line exactly.

    One batch size cannot tell what a step costs whatever the batch: all of forward and
    backward is then counted as the samples'.

    Attributes
    ----------
    forward_, backward_
        Seconds as a function of the batch.
    apply_s_
        Seconds.
    relative_residual_
        Largest relative distance of a measured mean from the line.
    """

    def __init__(self) -> None:
        self.forward_ = self.backward_ = Affine(base_s=0.0, per_sample_s=0.0)
        self.apply_s_ = 0.0
        self.relative_residual_ = 0.0

    def fit(self, table: StepTable) -> StepCost:
        """Learn from the steps of one batch size or more."""
        batches = table.batches
        if len(batches) == 1:
            (batch,) = batches
            forward, backward, self.apply_s_ = (table.share(batch, phase) * table.mean(batch) for phase in ("forward", "backward", "apply"))
            self.forward_ = Affine(base_s=0.0, per_sample_s=forward / batch)
            self.backward_ = Affine(base_s=0.0, per_sample_s=backward / batch)
            self.relative_residual_ = 0.0
            return self
        means = np.array([table.mean(batch) for batch in batches])
        line = AffineMean().fit(batches, means)
        apply_s = min(float(np.mean([table.share(batch, "apply") * line(batch) for batch in batches])), line.base_)
        base, slope = line.base_ - apply_s, line.slope_
        sizes = np.array(batches, float)
        rest = base + slope * sizes
        shares = np.array([_forward_of_rest(table, batch) for batch in batches])
        of_base, of_slope = lsq_linear(np.column_stack([base / rest, slope * sizes / rest]), shares, bounds=(0.0, 1.0), method="bvls").x
        # least squares may end a rounding error outside
        of_base, of_slope = min(max(float(of_base), 0.0), 1.0), min(max(float(of_slope), 0.0), 1.0)
        self.forward_ = Affine(base_s=of_base * base, per_sample_s=of_slope * slope)
        self.backward_ = Affine(base_s=(1.0 - of_base) * base, per_sample_s=(1.0 - of_slope) * slope)
        self.apply_s_ = apply_s
        self.relative_residual_ = max(abs(line(batch) / mean - 1.0) for batch, mean in zip(batches, means, strict=True))
        return self


def _forward_of_rest(table: StepTable, batch: int) -> float:
    """Forward's share of forward and backward together; half of nothing."""
    forward, backward = table.share(batch, "forward"), table.share(batch, "backward")
    return forward / (forward + backward) if forward + backward > 0 else 0.5
