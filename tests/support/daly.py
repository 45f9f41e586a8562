"""Expected time of a job with checkpoints, where faults come without memory."""

from __future__ import annotations

import math


def expected_time_s(work_s: float, interval_s: float, cost_s: float, restart_s: float, mtbf_s: float, restore_s: float = 0.0) -> float:
    """Expected seconds for some seconds of work with a checkpoint after each interval, where faults come without memory.

    M exp(R / M) (exp((t + C) / M) - 1) for each of W / t intervals: Daly 2006, equation 13; faults may come during restarts and
    checkpoints too. A restart takes R = ``restart_s``, and where there is a checkpoint to read, in all intervals but the first,
    ``restore_s`` more.
    """
    first, later = (math.exp(seconds / mtbf_s) for seconds in (restart_s, restart_s + restore_s))
    restarts = first + (work_s / interval_s - 1.0) * later
    return mtbf_s * math.expm1((interval_s + cost_s) / mtbf_s) * restarts
