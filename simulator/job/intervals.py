"""Intervals between checkpoints: what is lost to faults against what writing costs (Young, Daly, and the best)."""

from __future__ import annotations

import math

_ENOUGH = 1e-12


def young_interval_s(cost_s: float, mtbf_s: float) -> float:
    """Seconds of work between checkpoints that lose least time, to first order: sqrt(2 C M).

    Young, "A first order approximation to the optimum checkpoint interval", 1974.
    """
    return math.sqrt(2 * cost_s * mtbf_s)


def daly_interval_s(cost_s: float, mtbf_s: float) -> float:
    """The same to higher order: sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + C / 18M) - C, or M where C is at least 2M.

    Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", 2006, equation 37.
    """
    if cost_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = cost_s / (2 * mtbf_s)
    return young_interval_s(cost_s, mtbf_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost_s


def best_interval_s(cost_s: float, mtbf_s: float) -> float:
    """The interval that makes :func:`expected_time_s` least: the root t of (1 - t / M) exp((t + C) / M) = 1.

    Daly 2006, equation 18 and after: whatever a restart takes, it does not depend on it. Newton's method from Young's interval,
    on the logarithm: (t + C) / M + log(1 - t / M) = 0, whose left side falls from C / M at 0 ever faster.
    """
    if cost_s <= 0:
        return 0.0
    share, cost = min(young_interval_s(cost_s, mtbf_s) / mtbf_s, 1 - 1e-9), cost_s / mtbf_s
    for _ in range(100):
        value = share + cost + math.log1p(-share)
        step = value / (1 - 1 / (1 - share))
        share = min(max(share - step, share / 10), (1 + share) / 2)
        if abs(step) <= _ENOUGH * share:
            break
    return share * mtbf_s


def expected_time_s(work_s: float, interval_s: float, cost_s: float, restart_s: float, mtbf_s: float, restore_s: float = 0.0) -> float:
    """Expected seconds for some seconds of work with a checkpoint after each interval, where faults come without memory.

    M exp(R / M) (exp((t + C) / M) - 1) for each of W / t intervals: Daly 2006, equation 13; faults may come during restarts and
    checkpoints too. A restart takes R = ``restart_s``, and where there is a checkpoint to read, in all intervals but the first,
    ``restore_s`` more.
    """
    first, later = (math.exp(seconds / mtbf_s) for seconds in (restart_s, restart_s + restore_s))
    restarts = first + (work_s / interval_s - 1.0) * later
    return mtbf_s * math.expm1((interval_s + cost_s) / mtbf_s) * restarts
