"""The search: closed forms discard, simulation decides.

In a line of configurations that differ in their number of workers, the search doubles it
from the least that the bounds leave until the goal is met, halves the gap to the last that
missed it, and goes on upwards as long as that can be better. That more workers are faster
is assumed in between only: the neighbours of the answer are simulated, and a line whose
throughput falls twice in a row is taken to be past its peak. Lists of workers are not
searched but simulated, as far as the bounds leave them.

What is simulated next depends on results alone, never on when they come, so that the
answer does not depend on the number of jobs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Generator, Sequence

from paceline.planning.goal import sample_s_of
from paceline.planning.judging import Judge, Point
from paceline.planning.space import Line
from paceline.planning.tuning import may_be_fastest
from paceline.sweeping import Simulate

_BATCH = 8
_WORTH_KNOWING = 1.5
"""What may come within this factor of the best is simulated, so that runners-up are no accident; what cannot is discarded."""
_FINE = 8
"""Around the best of a line the search stops when the gaps are an eighth of its workers."""
_MOST_OF_A_WAY = 4
"""Of all ways in which a model may be cut alike, on a number of workers: those that are best by closed forms are simulated."""
_NEAR = 1.01
"""Of these only what a few short runs have within this factor of the fastest is simulated in full."""
_PAST_THE_PEAK = 2
_MOST_MOVES = 8

Requests = Generator[list[Point], None, None]
Finding = Generator[list[Point], None, int]
"""What is to be simulated next; ends with the index of a point."""


class Search:
    """Finds the best configurations of some lines.

    Parameters
    ----------
    lines
        All points, line by line; some may be simulated already. Lines may be added later.
    judge
        What is good.
    simulate
        Simulates scenarios.
    """

    def __init__(self, lines: list[list[Point]], judge: Judge, simulate: Simulate) -> None:
        self.lines = lines
        self._judge = judge
        self._simulate = simulate
        self._best = math.inf
        self._best_of_way: dict[tuple[str, ...], tuple[float, float]] = {}
        self._unpromising = _unpromising(self.points)
        self._compared: set[tuple[str | int, ...]] = set()
        for point in self.points:
            self._remember(point)

    @property
    def points(self) -> list[Point]:
        """All points of all lines."""
        return [point for line in self.lines for point in line]

    @property
    def meeting(self) -> list[Point]:
        """Simulated points that meet the goal, best first."""
        return sorted((point for point in self.points if self._judge.meets(point)), key=self._judge.rank)

    @property
    def missing(self) -> list[Point]:
        """Simulated points that do not, nearest first."""
        simulated = (point for point in self.points if point.result is not None and not self._judge.meets(point))
        return sorted(simulated, key=self._judge.nearness)

    def run(self) -> None:
        """Simulate what is needed to know the best; where nothing meets the goal, the nearest."""
        judge = self._judge
        searches = [self._least_and_best(points) for points in self.lines]
        promise = [min((judge.expected(point) for point in points), default=math.inf) for points in self.lines]
        order = sorted(range(len(searches)), key=lambda index: (promise[index], index))
        self._in_rounds([searches[index] for index in order])
        if self.meeting:
            self._look_beside()
        else:
            self._approach()

    def run_on(self, lines: Sequence[Line]) -> None:
        """The same on some lines by themselves: what is best there, or nearest, however it compares with others."""
        chosen = {id(line) for line in lines}
        own = [points for points in self.lines if id(points[0].line) in chosen]
        if any(math.isfinite(point.needed) for points in own for point in points):
            alone = Search(own, self._judge, self._simulate)
            alone.run()
            self._best = min(self._best, alone._best)

    def discarded(self, point: Point) -> bool:
        """Whether a point that was not simulated was ruled out by its bounds."""
        return point.outcome is None and (not self._judge.reachable(point) or self._beaten(point))

    # -- rounds -------------------------------------------------------------------------

    def _in_rounds(self, searches: Sequence[Requests]) -> None:
        """Let searches go on together: each round simulates some of what they ask for, the most promising first."""
        waiting = [(search, request) for search in searches if (request := next(search, None)) is not None]
        while waiting:
            batch: list[Point] = []
            taken = 0
            for _, request in waiting:
                wanted = [point for point in request if self._wanted(point)]
                if batch and len(batch) + len(wanted) > _BATCH:
                    break
                batch += wanted
                taken += 1
            self._simulate_points(batch)
            advanced = [(search, request) for search, _ in waiting[:taken] if (request := next(search, None)) is not None]
            waiting = advanced + waiting[taken:]

    def _simulate_points(self, points: Sequence[Point]) -> None:
        compared = self._compare(points)
        self._simulate_in_full([*points, *(point for alike in compared for point in alike)])
        for alike in compared:
            if not any(point.result for point in alike):  # what came before them fails in full
                self._unpromising -= set(map(id, alike))
                self._simulate_in_full(alike)

    def _simulate_in_full(self, points: Sequence[Point]) -> None:
        fresh = {id(point): point for point in points if point.outcome is None and id(point) not in self._unpromising}
        for point, outcome in zip(fresh.values(), self._simulate([point.scenario for point in fresh.values()]), strict=True):
            point.outcome = outcome
            self._remember(point)

    def _compare(self, points: Sequence[Point]) -> list[list[Point]]:
        """Note which points cannot be the fastest of those that cut the model alike on as many workers; all that were compared."""
        compared = []
        for key in dict.fromkeys(_alike(point) for point in points if point.line.family is not None and point.outcome is None):
            if key in self._compared:
                continue
            self._compared.add(key)
            alike = [point for point in self.points if point.line.family is not None and _alike(point) == key and self._may_be(point)]
            alike = [point for point in alike if self._judge.reachable(point)]
            left = {id(scenario) for scenario in may_be_fastest([point.scenario for point in alike], self._simulate, _NEAR)}
            self._unpromising |= {id(point) for point in alike if id(point.scenario) not in left}
            compared.append(alike)
        return compared

    def _remember(self, point: Point) -> None:
        """Note a point that meets the goal, if it is the best so far, or the best of its way of training."""
        judge = self._judge
        if judge.meets(point):
            assert point.result is not None
            value = judge.value(point)
            self._best = min(self._best, value)
            way = _way(point)
            its = value, sample_s_of(point.result, judge.goal)
            self._best_of_way[way] = min(self._best_of_way.get(way, its), its)

    def _wanted(self, point: Point) -> bool:
        return point.outcome is None and self._may_be(point)

    def _may_be(self, point: Point) -> bool:
        return id(point) not in self._unpromising and not self._beaten(point)

    def _beaten(self, point: Point) -> bool:
        """Whether the best found so far is out of its reach, by far; what has no price is not compared by it.

        Of the many ways in which a model may be cut alike only the best is asked for, so that
        any that cannot be better is beaten.
        """
        hope = self._judge.hope(point)
        if not math.isfinite(hope):
            return False
        best_of_way = self._best_of_way.get(_way(point)) if point.line.family is not None else None
        return hope > _WORTH_KNOWING * self._best or (best_of_way is not None and (hope, point.least_sample_s) > best_of_way)

    # -- one line -----------------------------------------------------------------------

    def _least_and_best(self, points: list[Point]) -> Requests:
        """The least of a line that meets the goal, and the best."""
        points = [point for point in points if self._judge.reachable(point)]
        if not points:
            return
        if not points[0].line.searched:
            ordered = sorted(points, key=self._judge.hope)
            yield from (ordered[begin : begin + _BATCH // 2] for begin in range(0, len(ordered), _BATCH // 2))
            return
        least = yield from self._least_by_nodes(points)
        if self._judge.meets(points[least]) and self._judge.goal.prefer != "fewest-devices":
            yield from self._best_from(points, least)

    def _least_by_nodes(self, points: list[Point]) -> Finding:
        """The least that meets the goal; where nodes have several devices first among those that use all, which partly used ones slow."""
        filled = [index for index in range(len(points)) if _node_filled(points, index) == index]
        if len(filled) == len(points):
            return (yield from self._least(points))
        place = yield from self._least([points[index] for index in filled])
        if not self._judge.meets(points[filled[place]]):
            return (yield from self._least(points))
        return (yield from self._between(points, filled[place - 1] if place else -1, filled[place]))

    def _least(self, points: list[Point]) -> Finding:
        """Double the workers until the goal is met, then halve the gap; the least that meets it; where none does, the nearest."""
        judge = self._judge
        low, index, falls, highest = -1, 0, 0, -math.inf
        while True:
            yield [points[index]]
            if judge.meets(points[index]):
                break
            margin = judge.margin(points[index])
            falls = falls + 1 if margin < highest else 0
            highest = max(highest, margin)
            low = index
            index = self._next(points, index)
            if index == low or falls == _PAST_THE_PEAK:
                peak = yield from self._refine(points, judge.margin, lambda point: point.ceiling / point.needed)
                if not judge.meets(points[peak]):
                    return peak
                index = peak
                low = max((at for at in range(peak) if points[at].outcome is not None), default=-1)
                break
        return (yield from self._between(points, low, index))

    def _between(self, points: list[Point], low: int, index: int) -> Finding:
        """Halve the gap between one that misses the goal, or none, and one that meets it."""
        while index - low > 1:
            middle = (low + index) // 2
            yield [points[middle]]
            if self._judge.meets(points[middle]):
                index = middle
            else:
                low = middle
        return index

    def _next(self, points: list[Point], index: int) -> int:
        """Twice the workers, or where that can no longer compete, the most that can."""
        doubled = _doubled(points, index)
        between = (at for at in range(doubled, index, -1) if not self._beaten(points[at]))
        return next(between, doubled)

    def _best_from(self, points: list[Point], least: int) -> Requests:
        """Go on upwards from the least that meets the goal, as long as it can be better."""
        judge = self._judge
        full = _node_filled(points, least)
        yield [points[full]]
        best = min(judge.value(points[least]), judge.value(points[full]) if judge.meets(points[full]) else math.inf)
        index, worse = full, 0
        while worse < _PAST_THE_PEAK and (following := _node_filled(points, _doubled(points, index))) != index:
            index = following
            if judge.hope(points[index]) >= best:
                if all(judge.hope(point) >= best for point in points[index:]):
                    break
                continue
            yield [points[index]]
            value = judge.value(points[index]) if judge.meets(points[index]) else math.inf
            worse = 0 if value < best else worse + 1
            best = min(best, value)
        yield from self._refine(
            points,
            lambda point: -judge.value(point) if judge.meets(point) else -math.inf,
            lambda point: -judge.hope(point),
        )

    def _refine(self, points: list[Point], height: Callable[[Point], float], at_most: Callable[[Point], float]) -> Finding:
        """Halve the gaps on both sides of the highest simulated point until they are small; ends with its index."""
        while True:
            known = [index for index, point in enumerate(points) if point.outcome is not None]
            if not known:
                return 0
            top = max(known, key=lambda index: height(points[index]))
            place = known.index(top)
            middles = []
            for other in (*known[max(place - 1, 0) : place], *known[place + 1 : place + 2]):
                middle = points[(top + other) // 2]
                gap = abs(points[other].workers - points[top].workers)
                small = gap <= points[top].workers // _FINE and math.isfinite(height(points[other]))
                if not small and at_most(middle) > height(points[top]) and self._wanted(middle):
                    middles.append(middle)
            if not middles:
                return top
            yield middles

    # -- all lines ----------------------------------------------------------------------

    def _look_beside(self) -> None:
        """Simulate the neighbours of the answer, and of whichever of them is better."""
        for _ in range(_MOST_MOVES):
            answer = self.meeting[0]
            points = next(points for points in self.lines if answer in points)
            if not answer.line.searched:
                return
            place = points.index(answer)
            beside = [point for point in points[max(place - 1, 0) : place + 2] if point.outcome is None and self._judge.reachable(point)]
            self._simulate_points(beside)
            if self.meeting[0] is answer:
                return

    def _approach(self) -> None:
        """Nothing meets the goal: find what comes nearest, by what the bounds promise."""
        judge = self._judge

        def promised(point: Point) -> float:
            return point.ceiling / point.needed

        coarse = [point for points in self.lines for point in _doublings(points)]
        while True:
            nearest = self._nearest()
            open_ = [
                point for point in coarse if point.outcome is None and promised(point) > nearest and id(point) not in self._unpromising
            ]
            if not open_:
                break
            self._simulate_points(sorted(open_, key=promised, reverse=True)[:_BATCH])
        best_of = [max(judge.margin(point) for point in points) for points in self.lines]
        for best, points in sorted(zip(best_of, self.lines, strict=True), key=lambda pair: -pair[0]):
            nearest = self._nearest()
            if best * _WORTH_KNOWING < nearest:
                break
            beyond = functools.partial(_if_above, promised, nearest)
            for request in self._refine(points, judge.margin, beyond):
                self._simulate_points([point for point in request if self._wanted(point)])

    def _nearest(self) -> float:
        """The largest margin so far."""
        return max((self._judge.margin(point) for point in self.points), default=-1.0)


def _way(point: Point) -> tuple[str, ...]:
    """What points have in common that cut a model alike."""
    line = point.line
    return line.cluster, line.scaling, line.way


def _alike(point: Point) -> tuple[str | int, ...]:
    """What points have in common that cut a model alike on as many workers."""
    return *_way(point), point.workers


def _unpromising(points: Sequence[Point]) -> set[int]:
    """Ids of points that are not simulated, for several that cut the model alike on as many workers are better by closed forms."""
    alike: dict[tuple[str | int, ...], list[Point]] = {}
    for point in points:
        if point.line.family is not None:
            alike.setdefault(_alike(point), []).append(point)
    return {
        id(point) for its in alike.values() for point in sorted(its, key=lambda point: (-point.guess, point.line.name))[_MOST_OF_A_WAY:]
    }


def _if_above(promised: Callable[[Point], float], least: float, point: Point) -> float:
    """What a point promises, or nothing at all where that is not above the least."""
    value = promised(point)
    return value if value > least else -math.inf


def _doubled(points: Sequence[Point], index: int) -> int:
    """The first point with at least twice the workers, or the last."""
    return next((at for at in range(index + 1, len(points)) if points[at].workers >= 2 * points[index].workers), len(points) - 1)


def _doublings(points: Sequence[Point]) -> list[Point]:
    """The first point, each with twice the workers of the one before, and the last; all of a list."""
    if not points[0].line.searched:
        return list(points)
    chain = [0]
    while (following := _doubled(points, chain[-1])) != chain[-1]:
        chain.append(following)
    return [points[index] for index in chain]


def _node_filled(points: Sequence[Point], index: int) -> int:
    """The last point that takes as many nodes: those that are paid for are used."""
    nodes = points[index].scenario.nodes_needed
    while index + 1 < len(points) and points[index + 1].scenario.nodes_needed == nodes:
        index += 1
    return index
