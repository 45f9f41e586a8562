"""How good predictions are: by group and in all, over the settings that took no part in the fit."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from pydantic import Field

from calibrate.validation.comparison import Compared
from simulator.spec import Spec

__all__ = ["ALL", "Score", "Thresholds", "scores_of"]

ALL = "all"
"""Name of the score over all groups, where nothing else is said."""


class Score(Spec):
    """Of one group, or of all; None where nothing was measured that it could be computed from."""

    group: str
    settings: int = Field(description="that took no part in the fit")
    median_error: float = Field(description="median of the signed relative errors of throughput: the bias")
    median_absolute_error: float
    worst_error: float = Field(description="the signed error that is largest in size")
    worst_setting: str
    noise_floor: float | None = Field(description="relative standard deviation of repeats, pooled over settings")
    inside: float = Field(description="share of repeats inside the 90% interval")
    median_relative_width: float
    median_interval_score: float
    worst_staleness_error: float | None = Field(description="signed, predicted less measured mean; the largest in size")
    median_absolute_staleness_error: float | None
    worst_staleness_distance: float | None
    baselines: dict[str, float] = Field(default_factory=dict, description="median absolute error of simpler rules")
    worst_of_baselines: dict[str, float] = Field(default_factory=dict, description="their signed error that is largest in size")

    @property
    def width_over_noise(self) -> float | None:
        """Median width of the intervals over the noise floor of repeats (3.3 for a normal one without any other doubt)."""
        return self.median_relative_width / self.noise_floor if self.noise_floor else None


class Thresholds(Spec):
    """What a validation must reach; what is left out is not checked."""

    median: float | None = Field(default=None, ge=0, description="median absolute error of throughput, as a share")
    worst: float | None = Field(default=None, ge=0, description="largest absolute error of throughput, as a share")
    staleness: float | None = Field(default=None, ge=0, description="largest absolute error of mean staleness, in updates")
    distance: float | None = Field(default=None, ge=0, le=1, description="largest Kolmogorov distance of staleness distributions")
    coverage: float | None = Field(default=None, ge=0, le=1, description="least share of repeats inside the 90% interval")

    def missed(self, score: Score) -> list[str]:
        """One sentence for each threshold that the score misses."""
        checks = (
            ("median error of throughput", score.median_absolute_error, self.median, True),
            ("worst error of throughput", abs(score.worst_error), self.worst, True),
            ("worst error of mean staleness", _size(score.worst_staleness_error), self.staleness, False),
            ("worst distance between staleness distributions", score.worst_staleness_distance, self.distance, False),
        )
        found = [
            f"{what} is {_shown(value, share)}, above {_shown(limit, share)}"
            for what, value, limit, share in checks
            if limit is not None and value is not None and value > limit
        ]
        if self.coverage is not None and score.inside < self.coverage:
            found.append(f"{score.inside:.0%} of repeats are inside the 90% interval, below {self.coverage:.0%}")
        return found


def scores_of(rows: Iterable[Compared], total: str = ALL) -> list[Score]:
    """A score for each group, in the order in which groups first appear, then one for all if there are several.

    Settings that took part in the fit are left out; a group with no others has no score.

    Parameters
    ----------
    rows
        Whose errors are alike: a score of throughputs and of bandwidths together would say nothing of either.
    total
        Name of the score for all.
    """
    groups: dict[str, list[Compared]] = {}
    for row in rows:
        if not row.fitted:
            groups.setdefault(row.group, []).append(row)
    scores = [_score(group, its) for group, its in groups.items()]
    if len(groups) > 1:
        scores.append(_score(total, [row for its in groups.values() for row in its]))
    return scores


def _score(group: str, rows: Sequence[Compared]) -> Score:
    worst = max(rows, key=lambda row: abs(row.error))
    stale = [error for row in rows if (error := row.staleness_error) is not None]
    distances = [row.staleness_distance for row in rows if row.staleness_distance is not None]
    shared = set.intersection(*(set(row.baselines) for row in rows))
    return Score(
        group=group,
        settings=len(rows),
        median_error=statistics.median(row.error for row in rows),
        median_absolute_error=statistics.median(abs(row.error) for row in rows),
        worst_error=worst.error,
        worst_setting=worst.name,
        noise_floor=_noise_floor(rows),
        inside=sum(row.inside for row in rows) / sum(len(row.measured) for row in rows),
        median_relative_width=statistics.median(row.relative_width for row in rows),
        median_interval_score=statistics.median(row.interval_score for row in rows),
        worst_staleness_error=max(stale, key=abs) if stale else None,
        median_absolute_staleness_error=statistics.median(map(abs, stale)) if stale else None,
        worst_staleness_distance=max(distances) if distances else None,
        baselines={name: statistics.median(abs(row.baseline_error(name)) for row in rows) for name in sorted(shared)},
        worst_of_baselines={name: max((row.baseline_error(name) for row in rows), key=abs) for name in sorted(shared)},
    )


def _noise_floor(rows: Sequence[Compared]) -> float | None:
    """Root mean square of the settings' relative standard deviations, each with its degrees of freedom."""
    freedom = sum(len(row.measured) - 1 for row in rows)
    if not freedom:
        return None
    return math.sqrt(sum((row.noise or 0.0) ** 2 * (len(row.measured) - 1) for row in rows) / freedom)


def _size(value: float | None) -> float | None:
    return None if value is None else abs(value)


def _shown(value: float, share: bool) -> str:
    return f"{value:.1%}" if share else f"{value:.3g}"
