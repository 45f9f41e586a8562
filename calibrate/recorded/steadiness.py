"""Finds the steady part of a recorded run, without first steps, clock jumps, periodic long steps and changes of level.

What is left out of a figure is listed (:class:`Apart`), and doubts are reported (``doubts``): nothing is corrected silently.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtr, stdtrit

from calibrate.fit.estimators import persistence_of, variance_of_mean
from calibrate.recorded.run import RecordedRun, thousand_times
from simulator.base.text import counted, format_seconds, listed

Rows = NDArray[np.int64]

LEAST_CHANGE = 0.05
"""Levels are apart from so much of the smaller one on."""
_OF_SPLIT = 0.01
"""Of a split, where there is none to find."""
_FEWEST = 8
"""Values of a level."""
_FREEDOM = 8.0
"""Degrees of freedom of a standard deviation that can be used."""
_AROUND, _CLIP = 31, 3.0
_OF_NORMAL = 1.1503
"""Quantile of 75% of distances from the median, of a normal distribution over its standard deviation: a quarter may be wild."""
_MOST_VALUES = 5_000
_MOST_LEVELS = 64
_GROWTH = 1.15


@dataclass(frozen=True)
class Level:
    """A stretch of one level.

    Attributes
    ----------
    first, end
        Index of its first row, and of the row behind its last; rows between that do not count lie inside.
    rows
        How many of them count.
    median_s
        Seconds of a step.
    """

    first: int
    end: int
    rows: int
    median_s: float


def levels_of(times: Array, rows: Rows, persistence: float, total: int) -> tuple[Level, ...]:
    """The levels of a series of ``times`` above zero, whose indices among all rows are ``rows``; the last ends at ``total``.

    ``persistence`` is the autocorrelation of successive rows.
    """
    if not len(times):
        return ()
    block = -(-len(times) // _MOST_VALUES)
    logs = np.log(times[: len(times) // block * block]).reshape(-1, block).mean(axis=1)
    bounds = [0, *(place * block for place in _changes(logs, persistence**block)), len(times)]
    return tuple(
        Level(
            int(rows[first]) if first else 0,
            int(rows[end]) if end < len(rows) else total,
            end - first,
            float(np.median(times[first:end])),
        )
        for first, end in itertools.pairwise(bounds)
    )


def _changes(logs: Array, persistence: float) -> list[int]:
    """Before which values the level changes, ascending."""
    around, most = _around(logs, persistence)
    off = np.clip(logs - around, -most, most)
    values, weight = around + off, _weight_of_tails(off, persistence)
    first = 0
    places: list[int] = []
    while len(places) < _MOST_LEVELS:
        part = values[first:] - values[first]
        if (passed := _passed(part, persistence, weight)) is None:
            break
        # as many values again tell more exactly where it was
        part = part[: passed[1] + passed[1] - passed[0]]
        before = np.arange(1, len(part))
        moved = np.abs(np.cumsum(part)[:-1] - before * part.mean()) / np.sqrt(before * before[::-1])
        first += max(int(np.argmax(moved)) + 1, 1)
        places.append(first)
    return places


def _passed(values: Array, persistence: float, weight: float) -> tuple[int, int] | None:
    """Behind which value a level ends, and after how many values that is sure; None where it is not."""
    sums, squares = (np.concatenate([[0.0], np.cumsum(each)]) for each in (values, values**2))
    numbers = np.arange(1, len(values) + 1)
    bounds = np.concatenate(
        [[math.inf], np.sqrt(2 * weight * (1 + 1 / (numbers + 1)) * np.log(2 * numbers * np.sqrt(numbers + 1) / _OF_SPLIT))]
    )
    best: tuple[int, int] | None = None
    last = _FEWEST
    while last <= len(values) - _FEWEST:
        until = np.arange(last + _FEWEST, len(values) + 1 if best is None else best[1])
        before = until - last
        means = sums[before] / before, (sums[until] - sums[before]) / last
        apart = np.abs(means[1] - means[0])
        parts = variance_of_mean(before, persistence), variance_of_mean(last, persistence)
        free = before * (1 - parts[0]) + last * (1 - parts[1])
        within = squares[until] - before * means[0] ** 2 - last * means[1] ** 2
        error = np.sqrt(np.maximum(within, 0.0) / np.maximum(free, 1e-9) * (parts[0] + parts[1]))
        free *= (1 - persistence**2) / (1 + persistence**2)
        may = np.flatnonzero((apart > bounds[until] * error) & (free >= _FREEDOM) & (apart >= math.log1p(LEAST_CHANGE)))
        sure = may[apart[may] > -stdtrit(free[may], ndtr(-bounds[until[may]])) * error[may]]
        if len(sure):
            best = int(before[sure[0]]), int(until[sure[0]])
        last = max(last + 1, int(last * _GROWTH))
    return best


def _around(logs: Array, persistence: float) -> tuple[Array, float]:
    """The median around each value, shape (n,), and how far values may lie from it."""
    width = min(_AROUND, len(logs))
    medians = np.median(np.lib.stride_tricks.sliding_window_view(logs, width), axis=1)
    around = medians[np.clip(np.arange(len(logs)) - width // 2, 0, len(logs) - width)]
    seen = float(np.quantile(np.abs(logs - around), 0.75)) / _OF_NORMAL
    # values near each other are nearer to their median than all are
    return around, _CLIP * seen / math.sqrt(max(1 - float(variance_of_mean(width, persistence)), 1e-9))


def _weight_of_tails(off: Array, persistence: float) -> float:
    """Kurtosis of the innovations over that of the values, of their distances from the median around them, shape (n,).

    1 of what changes gradually, and at least. A change of level is in neither.
    """
    if not persistence or np.ptp(off) == 0:
        return 1.0
    innovations, values = (float(stats.kurtosis(each, fisher=False)) for each in (off[1:] - persistence * off[:-1], off))
    return max(1.0, innovations / values)


Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

FEWEST_STEADY = 10
"""Rows of a steady part."""

Why = Literal["first", "epoch", "clock", "pause", "periodic", "rare"]
"""Why a row is no part of the steady steps: the run's first, or an epoch's; its time is none; a standstill; what comes every so often; a
kind of its own that is far longer and comes at no regular distance."""

_LEFT_OUT: Mapping[Why, str] = {
    "first": "at the beginning, when the graph is traced and the input pipeline fills",
    "epoch": "at the start of an epoch",
    "clock": "without a time, because the clock jumped",
    "pause": "that paused, or in which the clock jumped",
}
_STEADY_SHARE = 0.25
"""Of all rows that count, what a steady part has at least."""
_LONG, _DEVIATIONS = 1.5, 6.0
"""Minimum length of a long row, in medians and in robust standard deviations above the median."""
_SD = 1.4826
_PAUSE, _PAUSE_S = 100.0, 10.0
"""Minimum length of a pause, in medians and in seconds."""
_TREND, _TRENDING = 1.5, 0.9
"""Factor from the first quarter of a level to the last, and rank correlation of steps with their number, of what is no level."""
_MOST_FIRST = 10
_ROUND = 51
"""Rows around a row whose medians it is compared with."""
_GAP, _GAP_DEVIATIONS, _RARE = 1.5, 3.0, 0.4
"""Factor between the steps of a level and those of a rare kind, with none between, also as robust standard deviations of logarithms; and
the share of steps that such a kind may have."""
_ALIKE, _EARLY, _INPUT = 0.1, 0.1, 0.5
"""Spread of similar steps; share of a run that is its beginning; share of extra time that is waiting for input."""
_MOST_NAMED = 5
_HIT, _OF_LONG, _CHANCE = 0.8, 0.5, 0.01
_STRETCH = 30
_NOTHING = 1e-9
_MOST_STRETCHES = 200


@dataclass(frozen=True)
class Apart:
    """Rows that do not count.

    Attributes
    ----------
    why
        What they are.
    rows
        Their indices, shape (n,).
    extra_s
        What they took more than the median step, of all of them together; 0 where their times are none.
    """

    why: Why
    rows: NDArray[np.int64]
    extra_s: float


@dataclass(frozen=True)
class Periodic:
    """A periodic event.

    Attributes
    ----------
    what
        As the source calls it (``checkpoint``, ``evaluation``), or ``long step``.
    every
        Steps from one to the next.
    extra_s
        What each takes beyond a step: the mean.
    error_s
        Standard error of that mean; of few, as much larger as Student's quantile of 95% is beyond that of the normal distribution.
    count
        How many there were.
    first_step
        The number of the first one's step.
    """

    what: str
    every: int
    extra_s: float
    error_s: float
    count: int
    first_step: int

    @classmethod
    def of(cls, what: str, every: int, extras_s: Array, first_step: int) -> Periodic:
        """From what each took beyond a step, in seconds, shape (n,), n at least 2."""
        count = len(extras_s)
        few = float(stats.t.ppf(0.95, count - 1)) / NormalDist().inv_cdf(0.95)
        error_s = few * float(np.std(extras_s, ddof=1)) / math.sqrt(count)
        return cls(what, every, float(np.mean(extras_s)), error_s, count, first_step)

    @property
    def per_step_s(self) -> float:
        """Return what it adds to a step in the mean."""
        return self.extra_s / self.every


@dataclass(frozen=True)
class Rare:
    """Steps that are of another kind than those around them: far longer, with none between, at no regular distance.

    Attributes
    ----------
    rows
        Their indices, ascending, shape (n,).
    extras_s
        What each takes beyond the median of the steps around it, shape (n,).
    text
        Which they are, and what they look like, a sentence.
    """

    rows: NDArray[np.int64]
    extras_s: Array
    text: str


@dataclass(frozen=True)
class Steadiness:
    """Statistics of a steady step from a recorded run.

    Attributes
    ----------
    run
        The run.
    apart
        What does not count, by its reason.
    levels
        Stretches of one level, in the order of time, of the rows that count; their bounds are indices of the run's rows.
    steady
        The longest of them, if it is long enough.
    why_not
        Why there is none, as a clause; "" where there is one.
    periodic
        Periodic events.
    rare
        Long steps of a kind of their own, of the whole run; None where there are none.
    persistence
        Autocorrelation of successive steps within levels, where it is more than chance; 0 for means of several steps.
    doubts
        What is probably wrong with the figures, a sentence each: they must not be used without a look.
    """

    run: RecordedRun
    apart: tuple[Apart, ...]
    levels: tuple[Level, ...]
    steady: Level | None
    why_not: str
    periodic: tuple[Periodic, ...]
    rare: Rare | None
    persistence: float
    doubts: tuple[str, ...]

    @property
    def counts(self) -> Bools:
        """Return whether each row counts, shape (rows,)."""
        kept = np.ones(len(self.run), dtype=bool)
        for apart in self.apart:
            kept[apart.rows] = False
        return kept

    def rows_of(self, level: Level) -> NDArray[np.int64]:
        """Indices of the rows of a level that count."""
        return level.first + np.flatnonzero(self.counts[level.first : level.end])

    def rare_per_step_s(self, level: Level) -> float:
        """Return what the rare kind adds to a step of a level in the mean."""
        if self.rare is None:
            return 0.0
        inside = (self.rare.rows >= level.first) & (self.rare.rows < level.end)
        return float(self.rare.extras_s[inside].sum()) / max(level.rows + int(inside.sum()), 1)

    def mean_s(self, level: Level) -> float:
        """Mean seconds per step of a level."""
        rows = self.rows_of(level)
        return float(np.average(self.run.duration_s[rows], weights=self.run.counts[rows]))

    def error_s(self, level: Level) -> float:
        """Standard error of that mean, for steps with this persistence."""
        return self.error_of(self.rows_of(level))

    def error_of(self, rows: NDArray[np.int64]) -> float:
        """The same of rows of one level, shape (n,)."""
        if len(rows) < 2:
            return math.inf
        return float(np.std(self.run.duration_s[rows], ddof=1)) * math.sqrt(variance_of_mean(len(rows), self.persistence))

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return what was found and left out, a sentence each."""
        said = []
        for apart in self.apart:
            if apart.why in _LEFT_OUT:  # what is periodic is told below
                extra = f" ({format_seconds(apart.extra_s)} in total above the median step)" if apart.extra_s > 0 else ""
                said.append(f"{counted(len(apart.rows), self.run.each)} {_LEFT_OUT[apart.why]}{extra}: left out")
        for periodic in self.periodic:
            each = format_seconds(periodic.extra_s)
            said.append(f"{periodic.what} every {periodic.every:,} steps, each {each} above a normal step: listed separately")
        return (*said, *([f"{self.rare.text}: listed separately"] if self.rare is not None else []))


def steadiness_of(run: RecordedRun, expected_s: float | None = None) -> Steadiness:
    """Find what of a run of at least one row is steady; times of another unit are told by the step that is ``expected_s``, if it is."""
    times = run.duration_s
    usable = np.isfinite(times) & (times > 0)
    clock = ~usable | _turned_back(run)
    if not (~clock).any():
        return Steadiness(run, (Apart("clock", np.flatnonzero(clock), 0.0),), (), None, "no step has a time above zero", (), None, 0.0, ())
    first = _first(run, ~clock)
    begin_epochs = _behind(run, "epoch") if run.each == "step" else []
    epochs = np.isin(np.arange(len(run)), begin_epochs) & ~first & ~clock
    kept = ~(clock | first | epochs)
    if not kept.any():
        kept = ~clock
    median = float(np.median(times[kept]))
    long = _long(times, kept)
    period = _period(run, kept, long) if run.each == "step" else None
    hits = np.zeros(len(run), dtype=bool) if period is None else period[1]
    pause = kept & ~hits & (times > _PAUSE * median) & (times > _PAUSE_S)
    apart: list[Apart] = []
    reasons: dict[Why, Bools] = {"first": first, "epoch": epochs, "clock": clock, "pause": pause, "periodic": hits}
    for why, rows in reasons.items():
        if rows.any():
            beyond = 0.0 if why == "clock" else float(np.sum((times[rows] - median) * run.counts[rows]))
            apart.append(Apart(why, np.flatnonzero(rows), max(beyond, 0.0)))
    counting = np.flatnonzero(~(clock | first | epochs | pause | hits))
    persistence = _persistence(run, counting, long) if run.each == "step" else 0.0
    levels = levels_of(times[counting], counting, persistence, len(run))
    rare = None
    if run.each == "step":
        levels, rare = _rare(run, levels, counting)
    if rare is not None:
        counting = np.setdiff1d(counting, rare.rows)
        apart.append(Apart("rare", rare.rows, float(rare.extras_s.sum())))
    steady, why_not = _steady(levels, times, counting)
    return Steadiness(
        run,
        tuple(apart),
        levels,
        steady,
        why_not,
        (*(() if period is None else (period[0],)), *_periodic_marks(run)),
        rare,
        persistence,
        tuple(_doubts(run, times, ~clock, expected_s)),
    )


def _rare(run: RecordedRun, levels: tuple[Level, ...], counting: NDArray[np.int64]) -> tuple[tuple[Level, ...], Rare | None]:
    """The levels without steps of a rare kind, and these."""
    common: list[Level] = []
    rows: list[NDArray[np.int64]] = []
    extras_s: list[Array] = []
    for level in levels:
        own = counting[(counting >= level.first) & (counting < level.end)]
        logs = np.log(run.duration_s[own])
        middle = float(np.median(logs))
        spread = _SD * float(np.median(np.abs(logs - middle)))
        order = np.sort(logs)
        gaps = np.where(order[:-1] >= middle, np.diff(order), 0.0)
        widest = int(np.argmax(gaps)) if len(gaps) else 0
        if len(gaps) and gaps[widest] >= max(math.log(_GAP), _GAP_DEVIATIONS * spread) and len(gaps) - widest <= _RARE * len(own):
            longer = logs > order[widest]
            median_s = float(np.median(run.duration_s[own[~longer]]))
            rows.append(own[longer])
            extras_s.append(run.duration_s[own[longer]] - median_s)
            level = replace(level, rows=int((~longer).sum()), median_s=median_s)
        common.append(level)
    if not rows:
        return levels, None
    apart, each_s = np.concatenate(rows), np.concatenate(extras_s)
    return tuple(common), Rare(apart, each_s, _looks(run, apart, each_s, len(counting)))


def _looks(run: RecordedRun, rows: NDArray[np.int64], extras_s: Array, among: int) -> str:
    """Which steps of a rare kind there are, and what they look like by size, place and what else was recorded of them."""
    named = [f"{step:,}" for step in run.steps[rows[:_MOST_NAMED]].tolist()]
    more = [f"{len(rows) - _MOST_NAMED:,} more"] if len(rows) > _MOST_NAMED else []
    which = listed(named + more)
    waited = run.input_s[rows] - float(np.nanmedian(run.input_s)) if np.isfinite(run.input_s).any() else np.zeros(len(rows))
    if float(np.nansum(waited)) > _INPUT * float(extras_s.sum()):
        looks = "they wait for input"
    elif rows[-1] < max(_EARLY * len(run), _MOST_FIRST):
        looks = "all at the beginning, as when new shapes are traced"
    elif len(rows) > 1 and float(np.std(extras_s)) < _ALIKE * float(extras_s.mean()):
        looks = "all about equally long, like checkpoints or evaluations at fixed times"
    else:
        looks = "of different lengths, as when new shapes are traced or input is late"
    if len(rows) == 1:
        return f"1 step of {among:,} ({which}) takes {format_seconds(float(extras_s[0]))} longer than its neighbours"
    each = format_seconds(float(extras_s.mean()))
    return f"{len(rows):,} steps of {among:,} ({which}) take {each} longer than their neighbours, {looks}"


def _behind(run: RecordedRun, what: str) -> list[int]:
    """Rows right behind what lies between steps."""
    return [mark.row for mark in run.marks if mark.what == what and mark.row < len(run)]


def _turned_back(run: RecordedRun) -> Bools:
    """Rows that end before the row before does, of one process."""
    back = np.append(False, np.diff(run.end_s) < 0)
    back[_behind(run, "restart")] = False
    return back


def _first(run: RecordedRun, usable: Bools) -> Bools:
    """The first step of each process, and long ones right behind it; for means of several steps, only long ones."""
    first = np.zeros(len(run), dtype=bool)
    median = float(np.median(run.duration_s[usable]))
    for begin in {0, *_behind(run, "restart")} if run.kind != "profile" else ():
        for row in range(begin, min(begin + _MOST_FIRST, len(run))):
            # behind a first step that is no longer than others nothing is of the beginning
            if run.duration_s[row] <= _LONG * median:
                first[row] = usable[row] and row == begin and run.each == "step"
                break
            first[row] = usable[row]
    # a run that is all beginning tells more with it than without
    return first if (usable & ~first).any() else np.zeros(len(run), dtype=bool)


def _long(times: Array, kept: Bools) -> Bools:
    """Rows that are longer than their neighbours, shape (rows,)."""
    long = np.zeros(len(times), dtype=bool)
    rows = np.flatnonzero(kept)
    parts = np.array_split(times[rows], -(-len(rows) // _ROUND))
    medians = np.pad([float(np.median(part)) for part in parts], 1, mode="edge")
    # where the level changes, rows are long only beside both levels
    around = np.max([medians[:-2], medians[1:-1], medians[2:]], axis=0)
    ratio = times[rows] / np.repeat(around, [len(part) for part in parts])
    spread = _SD * float(np.median(np.abs(ratio - np.median(ratio))))
    long[rows[ratio > max(_LONG, 1 + _DEVIATIONS * spread)]] = True
    return long


def _period(run: RecordedRun, kept: Bools, long: Bools) -> tuple[Periodic, Bools] | None:
    """Periodic long steps, and their rows; None where chance explains them."""
    places = run.steps[long]
    if len(places) < 3:
        return None
    gaps = [int(gap) for gap in np.unique(np.diff(places)) if gap >= 2]
    share = len(places) / int(kept.sum())
    best: tuple[int, Periodic, Bools] | None = None
    for every in gaps:
        phases, times = np.unique(places % every, return_counts=True)
        phase, hits = phases[int(np.argmax(times))], int(times.max())
        slots = kept & (run.steps % every == phase) & (run.steps >= places[0]) & (run.steps <= places[-1])
        if hits < 3 or hits < _HIT * int(slots.sum()) or hits < _OF_LONG * len(places) or len(gaps) * every * share ** (hits - 1) > _CHANCE:
            continue
        rows = long & (run.steps % every == phase)
        if best is None or hits > best[0]:
            extras_s = run.duration_s[rows] - float(np.median(run.duration_s[kept & ~long]))
            best = hits, Periodic.of("long step", every, extras_s, int(run.steps[rows][0])), rows
    return None if best is None else best[1:]


def _periodic_marks(run: RecordedRun) -> Iterator[Periodic]:
    """Yield what the source itself calls something between steps."""
    for what in dict.fromkeys(mark.what for mark in run.marks):
        marks = [mark for mark in run.marks if mark.what == what and 0 < mark.row <= len(run)]
        known = [mark.duration_s for mark in marks if mark.duration_s > 0]
        if what in ("epoch", "restart") or len(known) < 2:
            continue
        steps = np.array([run.steps[mark.row - 1] for mark in marks])
        every = int(np.median(np.diff(steps)))
        if every > 0:
            yield Periodic.of(what, every, np.array(known), int(steps[0]))


def _persistence(run: RecordedRun, rows: NDArray[np.int64], long: Bools) -> float:
    """Of rows that followed each other, in stretches that are short enough to have one level, without long ones."""
    breaks = np.flatnonzero(np.diff(rows) > 1) + 1
    whole = [part[~long[part]] for part in np.split(rows, breaks)]
    short = [part for own in whole for part in np.array_split(own, -(-len(own) // _STRETCH) or 1) if len(part) >= FEWEST_STEADY]
    if not short:
        return 0.0
    scale = float(np.median(run.duration_s[rows]))
    # a wild value would hide all else, and so would a stretch in which the level changes: each counts as much as another
    clipped = [np.clip(run.duration_s[part] / scale, 0.0, 3.0) for part in short[-_MOST_STRETCHES:]]
    stretches = [values / np.std(values) for values in clipped if np.std(values) > _NOTHING]
    if not stretches:
        return 0.0
    seen = persistence_of(stretches, tested=False)
    # of independent steps 95% lie within this (Bartlett 1946); shuffling, as a fit does, takes too long for what is asked every second
    return seen if seen > 2 / math.sqrt(sum(map(len, stretches))) else 0.0


def _steady(levels: tuple[Level, ...], times: Array, counting: NDArray[np.int64]) -> tuple[Level | None, str]:
    if not levels:
        return None, "no step is left"
    longest = max(levels, key=lambda level: (level.rows, level.first))
    if longest.rows < FEWEST_STEADY:
        have = counted(longest.rows, "step")
        return None, f"it has no steady part: the longest stretch at one level has {have}, but {FEWEST_STEADY} are needed"
    if longest.rows < _STEADY_SHARE * len(counting):
        return None, f"it has no steady part: the level of its steps changes {counted(len(levels) - 1, 'time')}"
    own = times[counting[(counting >= longest.first) & (counting < longest.end)]]
    quarter = len(own) // 4 or 1
    first_s, last_s = float(np.median(own[:quarter])), float(np.median(own[-quarter:]))
    if max(first_s, last_s) > _TREND * min(first_s, last_s) and abs(stats.spearmanr(np.arange(len(own)), own).statistic) > _TRENDING:
        how = "longer" if last_s > first_s else "shorter"
        return None, (
            f"it has no steady part: its steps become {how} throughout, from {format_seconds(first_s)} to {format_seconds(last_s)}"
        )
    return longest, ""


def _doubts(run: RecordedRun, times: Array, usable: Bools, expected_s: float | None) -> Iterator[str]:
    median = float(np.median(times[usable]))
    own = _of_own_clock(run, usable)
    if own is not None and (said := thousand_times(median / own)) is not None:
        yield (
            f"{run.name}: steps of {format_seconds(median)} look like {said} (its own clock shows {format_seconds(own)} between step ends)"
        )
        return
    if expected_s is not None and (said := thousand_times(median / expected_s)) is not None:
        yield f"{run.name}: steps of {format_seconds(median)} look like {said} ({format_seconds(expected_s)} predicted)"


def _of_own_clock(run: RecordedRun, usable: Bools) -> float | None:
    """The median of seconds per step by the ends of steps; None if the source has no clock in addition to its times."""
    between = np.diff(run.end_s) / run.counts[1:]
    known = between[usable[1:] & np.isfinite(between) & (between > 0)]
    return float(np.median(known)) if len(known) >= 3 else None
