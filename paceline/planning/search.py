"""The search: closed forms discard, simulation decides.

In a line of configurations that differ in their number of workers, the search doubles the number from the least that the bounds allow
until the goal is met, bisects the gap to the last miss, and continues upwards while that can be better. It assumes only in between that
more workers are faster: the neighbours of the answer are simulated, and a line whose throughput falls twice in a row is past its peak.
Lists of workers are all simulated, unless bounds exclude them.

If only the fastest of several scenarios is wanted, a few short runs with the same draws exclude most of them. Bucket sizes are chosen in
this way: one large all-reduce needs the fewest messages but is not hidden; many small ones overlap with the backward pass, and each pays
its latency.

What is simulated next depends only on results, never on their timing, so the answer does not depend on the number of jobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from operator import attrgetter

from paceline.planning.configurations import Configuration, ranked
from paceline.planning.space import BUCKET_KEY, Line
from paceline.sweeping import Simulate, Simulations
from simulator.base.errors import ScenarioError
from simulator.base.text import written
from simulator.base.validation_errors import validated
from simulator.resolve.drawing import as_workers, compile_program
from simulator.resolve.resolve import resolve
from simulator.results.results import Result
from simulator.scenario import Drawn, Scenario

_PARTS = (2, 4, 8, 16, 32)
"""Approximate largest number of buckets."""
_LEAST_BYTES = 64 * 1024.0
"""Smaller buckets take longer to start than to send on any network."""
_HEAT_RUNS, _HEAT_STEPS = 3, 10
"""Replications of each scenario in a heat, and measured steps of each replication."""
_TIMES_A_HEAT = 8
"""Least ratio of the full runs' length to the heat's; otherwise there is no heat."""
_WORTH = 1.005
"""Least advantage of another bucket size: half a percent."""


def can_fuse(scenario: Scenario) -> bool:
    """Return whether a scenario reduces gradients in buckets of variable size."""
    return scenario.strategy.fuses and scenario.replicas > 1


def with_bucket(scenario: Scenario, size_bytes: float | None) -> Scenario:
    """Return a scenario with another bucket size; None fuses all gradients.

    Raises
    ------
    ScenarioError
        The scenario breaks a rule.
    """
    return validated(Scenario, {**scenario.sections, "strategy": scenario.strategy.with_buckets(size_bytes)}, BUCKET_KEY)


def with_buckets(scenario: Scenario) -> list[Scenario]:
    """Return the scenario with each other bucket size worth trying, the largest first.

    Sizes are powers of two, in bytes, below that of all gradients of a replica. Of sizes that make the same buckets, only the first counts.
    """
    if not can_fuse(scenario):
        return []
    whole = math.fsum(scenario.strategy.pushed_bytes(scenario))
    sizes = dict.fromkeys(2.0 ** int(whole / parts - 1).bit_length() for parts in _PARTS if whole / parts >= _LEAST_BYTES)
    scenarios: list[Scenario] = []
    for size in sizes:
        if size != scenario.strategy.bucket_bytes:
            with suppress(ScenarioError):
                scenarios.append(with_bucket(scenario, size))
    return _unlike(scenarios)


def best_bucket(scenario: Scenario, result: Result, simulate: Simulate) -> Result:
    """Return the fastest of a scenario and its variants with other bucket sizes; itself if the advantage is negligible."""
    others = may_be_fastest(_unlike([scenario, *with_buckets(scenario)])[1:], simulate)
    fastest = fastest_of([outcome for outcome in simulate(others) if isinstance(outcome, Result)])
    return fastest if fastest is not None and _rate(fastest) > _WORTH * _rate(result) else result


def _unlike(scenarios: Sequence[Scenario]) -> list[Scenario]:
    """Return scenarios that differ in their buckets, without those that make the same buckets as an earlier one."""
    steps: list[tuple[object, ...]] = []
    unlike = []
    for scenario in scenarios:
        program = compile_program(Drawn(as_workers(resolve(scenario))))
        rule = program.rules.reduction
        step = program.routines, rule if rule is not None and rule.cycle_s is not None else None  # in a cycle the size itself counts
        if step not in steps:
            steps.append(step)
            unlike.append(scenario)
    return unlike


def may_be_fastest(scenarios: Sequence[Scenario], simulate: Simulate, within: float = 1.0) -> list[Scenario]:
    """Return scenarios, in order, that may be fastest according to a few short runs with the same draws.

    These are the fastest, or all within a factor of it. Failed scenarios stay, so that the failure is reported. If full runs are not much
    longer than short ones, all scenarios stay.
    """
    heats = [_short(scenario) for scenario in scenarios]
    if len(scenarios) < 2 or any(heat is None for heat in heats):
        return list(scenarios)
    briefly = simulate.aside if isinstance(simulate, Simulations) else simulate
    outcomes = briefly([heat for heat in heats if heat is not None])
    rates = [_rate(outcome) if isinstance(outcome, Result) else math.inf for outcome in outcomes]
    least = max((rate for rate in rates if math.isfinite(rate)), default=0.0) / within
    return [scenario for scenario, rate in zip(scenarios, rates, strict=True) if rate >= least]


def _short(scenario: Scenario) -> Scenario | None:
    """Return a scenario with a few short replications; None if the full run is not much longer."""
    run, warmup = scenario.run, min(scenario.run.warmup, _HEAT_STEPS)
    if run.replications * run.steps < _TIMES_A_HEAT * _HEAT_RUNS * (warmup + _HEAT_STEPS):
        return None
    changes = {"replications": _HEAT_RUNS, "steps": warmup + _HEAT_STEPS, "warmup_steps": warmup, "job_steps": None}
    try:
        return validated(Scenario, {**scenario.sections, "run": run.replaced(changes), "job": None}, "run")
    except ScenarioError:
        return None


def fastest_of(results: Sequence[Result]) -> Result | None:
    """Return the outcome with the highest mean throughput, the first of equal ones; None if there is none."""
    return max(results, key=_rate, default=None)


def bucket_in_words(scenario: Scenario) -> str:
    """Return ``buckets of 1 MiB``, or ``all gradients in one bucket``."""
    size = scenario.strategy.bucket_bytes
    return "all gradients in one bucket" if size is None else f"buckets of {written(size, 'setting_bytes')}"


def _rate(result: Result) -> float:
    return result.throughput_samples_per_s.mean


_BATCH = 8
"""Approximate number of configurations in a round, independent of the number of jobs, on which no answer may depend."""
_WORTH_KNOWING = 1.5
"""Configurations that may be within this factor of the best are simulated, to find runners-up; others are discarded."""
_FINE = 8
"""The search around the best of a line stops when gaps are an eighth of its workers."""
_MOST_OF_A_WAY = 4
"""Most similar cuts of a model on a number of workers that are simulated: the best by closed forms."""
_NEAR = 1.01
"""Only those within this factor of the fastest in short runs are simulated in full."""
_PAST_THE_PEAK = 2
"""A line is past its peak after this many worse configurations in a row."""
_MOST_MOVES = 8
"""Most rounds in which neighbours of the answer, or of a better one among them, are simulated."""

Rows = Sequence[Configuration]
Requests = Generator[Rows, None, None]
Finding = Generator[Rows, None, int]
"""Yields configurations to simulate next; returns an index."""


class Search:
    """Finds the best configurations of some lines.

    Parameters
    ----------
    lines
        All configurations by line; some may be simulated already. Lines may be added later.
    simulate
        Simulates scenarios.
    """

    def __init__(self, lines: list[list[Configuration]], simulate: Simulate) -> None:
        self.lines = lines
        self._simulate = simulate
        self._best = math.inf
        self._best_of_way: dict[tuple[str, ...], tuple[float, float]] = {}
        self._compared: set[tuple[str | int, ...]] = set()
        # several others that cut the model alike on as many workers are better by closed forms, or in short runs
        self._unpromising = {
            row
            for alike in _grouped(self.rows).values()
            for row in sorted(alike, key=lambda row: (-row.guess, row.line.name))[_MOST_OF_A_WAY:]
        }
        for row in self.rows:
            self._remember(row)

    @property
    def rows(self) -> list[Configuration]:
        """All configurations of all lines."""
        return [row for line in self.lines for row in line]

    @property
    def simulated(self) -> int:
        """Number of configurations with an outcome."""
        return sum(row.outcome is not None for row in self.rows)

    def run(self) -> None:
        """Simulate what is needed to find the best or, if nothing meets the goal, the nearest."""
        promise = [min((row.expected for row in line), default=math.inf) for line in self.lines]
        order = sorted(range(len(self.lines)), key=lambda index: (promise[index], index))
        self._in_rounds([self._least_and_best(self.lines[index]) for index in order])
        if any(row.meets for row in self.rows):
            self._look_beside()
        else:
            self._approach()

    def run_on(self, lines: Sequence[Line]) -> None:
        """Find the best, or nearest, of some lines only."""
        own = [rows for rows in self.lines if rows[0].line in lines]
        if any(math.isfinite(row.needed) for rows in own for row in rows):
            alone = Search(own, self._simulate)
            alone.run()
            self._best = min(self._best, alone._best)

    def discarded(self, row: Configuration) -> bool:
        """Return whether bounds ruled out a configuration that was not simulated."""
        return row.outcome is None and (not row.reachable or self._beaten(row))

    # -- rounds -------------------------------------------------------------------------

    def _in_rounds(self, searches: Sequence[Requests]) -> None:
        """Run searches together: each round simulates some of their requests, the most promising first."""
        waiting = _asking(searches)
        while waiting:
            batch: list[Configuration] = []
            taken = 0
            for _, request in waiting:
                wanted = [row for row in request if self._wanted(row)]
                if batch and len(batch) + len(wanted) > _BATCH:
                    break
                batch += wanted
                taken += 1
            self._simulate_rows(batch)
            waiting = _asking([search for search, _ in waiting[:taken]]) + waiting[taken:]

    def _simulate_rows(self, rows: Rows) -> None:
        compared = self._compare(rows)
        self._simulate_in_full([*rows, *(row for alike in compared for row in alike)])
        for alike in compared:
            if not any(row.simulated for row in alike):  # what came before them fails in full
                self._unpromising.difference_update(alike)
                self._simulate_in_full(alike)

    def _simulate_in_full(self, rows: Rows) -> None:
        fresh = [row for row in dict.fromkeys(rows) if row.outcome is None and row not in self._unpromising]
        for row, outcome in zip(fresh, self._simulate([row.scenario for row in fresh]), strict=True):
            row.outcome = outcome
            self._remember(row)

    def _compare(self, rows: Rows) -> list[list[Configuration]]:
        """Record similar cuts on the same number of workers that cannot be the fastest; return all compared ones."""
        compared = []
        for key in _grouped(row for row in rows if row.outcome is None):
            if key in self._compared:
                continue
            self._compared.add(key)
            alike = [row for row in _grouped(self.rows)[key] if self._may_be(row) and row.reachable]
            left = {id(scenario) for scenario in may_be_fastest([row.scenario for row in alike], self._simulate, _NEAR)}
            self._unpromising.update(row for row in alike if id(row.scenario) not in left)
            compared.append(alike)
        return compared

    def _remember(self, row: Configuration) -> None:
        """Record a configuration that meets the goal, if it is the best so far, or the best of its way of training."""
        if row.meets:
            value, way = row.value, _way(row)
            self._best = min(self._best, value)
            own = value, row.sample_s
            self._best_of_way[way] = min(self._best_of_way.get(way, own), own)

    def _wanted(self, row: Configuration) -> bool:
        return row.outcome is None and self._may_be(row)

    def _may_be(self, row: Configuration) -> bool:
        return row not in self._unpromising and not self._beaten(row)

    def _beaten(self, row: Configuration) -> bool:
        """Return whether it cannot come close to the best so far; configurations without a price are not compared by it.

        Of similar cuts of a model only the best is wanted, so any that cannot be better is beaten.
        """
        hope = row.hope
        if not math.isfinite(hope):
            return False
        best_of_way = self._best_of_way.get(_way(row)) if row.line.cut else None
        return hope > _WORTH_KNOWING * self._best or (best_of_way is not None and (hope, row.least_sample_s) > best_of_way)

    # -- one line -----------------------------------------------------------------------

    def _least_and_best(self, line: Rows) -> Requests:
        """Search a line for the smallest that meets the goal, and for the best."""
        rows = [row for row in line if row.reachable]
        if not rows:
            return
        if not rows[0].line.searched:
            ordered = sorted(rows, key=lambda row: row.hope)
            yield from (ordered[begin : begin + _BATCH // 2] for begin in range(0, len(ordered), _BATCH // 2))
            return
        least = yield from self._least_by_nodes(rows)
        if rows[least].meets and rows[least].goal.prefer != "fewest-devices":
            yield from self._best_from(rows, least)

    def _least_by_nodes(self, rows: Rows) -> Finding:
        """Search the smallest that meets the goal; with several devices per node first among those that use whole nodes."""
        filled = [index for index in range(len(rows)) if _node_filled(rows, index) == index]
        if len(filled) < len(rows):
            place = yield from self._least([rows[index] for index in filled])
            if rows[filled[place]].meets:
                return (yield from self._between(rows, filled[place - 1] if place else -1, filled[place]))
        return (yield from self._least(rows))

    def _least(self, rows: Rows) -> Finding:
        """Double the workers until the goal is met, then bisect; return the smallest that meets it, else the nearest."""
        low, index, falls, highest = -1, 0, 0, -math.inf
        while True:
            yield [rows[index]]
            if rows[index].meets:
                break
            margin = rows[index].margin
            falls = falls + 1 if margin < highest else 0
            highest = max(highest, margin)
            low, index = index, self._next(rows, index)
            if index == low or falls == _PAST_THE_PEAK:
                peak = yield from self._refine(rows, _margin, _promised)
                if not rows[peak].meets:
                    return peak
                index = peak
                low = max((at for at in range(peak) if rows[at].outcome is not None), default=-1)
                break
        return (yield from self._between(rows, low, index))

    def _between(self, rows: Rows, low: int, index: int) -> Finding:
        """Bisect between one that misses the goal, or none, and one that meets it."""
        while index - low > 1:
            middle = (low + index) // 2
            yield [rows[middle]]
            low, index = (low, middle) if rows[middle].meets else (middle, index)
        return index

    def _next(self, rows: Rows, index: int) -> int:
        """Return twice the workers, or the most that can still compete."""
        doubled = _doubled(rows, index)
        between = (at for at in range(doubled, index, -1) if not self._beaten(rows[at]))
        return next(between, doubled)

    def _best_from(self, rows: Rows, least: int) -> Requests:
        """Continue upwards from the smallest that meets the goal, while that can be better."""
        index, worse = _node_filled(rows, least), 0
        yield [rows[index]]
        best = min(rows[least].value, _value_if_met(rows[index]))
        while worse < _PAST_THE_PEAK and (following := _node_filled(rows, _doubled(rows, index))) != index:
            index = following
            if rows[index].hope >= best:
                if all(row.hope >= best for row in rows[index:]):
                    break
                continue
            yield [rows[index]]
            value = _value_if_met(rows[index])
            worse = 0 if value < best else worse + 1
            best = min(best, value)
        yield from self._refine(rows, lambda row: -_value_if_met(row), lambda row: -row.hope)

    def _refine(
        self, rows: Rows, height: Callable[[Configuration], float], at_most: Callable[[Configuration], float], above: float = -math.inf
    ) -> Finding:
        """Bisect the gaps on both sides of the best simulated one until they are small; return its index."""
        while True:
            known = [index for index, row in enumerate(rows) if row.outcome is not None]
            if not known:
                return 0
            top = max(known, key=lambda index: height(rows[index]))
            place = known.index(top)
            middles = []
            for other in (*known[max(place - 1, 0) : place], *known[place + 1 : place + 2]):
                middle = rows[(top + other) // 2]
                gap = abs(rows[other].workers - rows[top].workers)
                small = gap <= rows[top].workers // _FINE and math.isfinite(height(rows[other]))
                if not small and at_most(middle) > max(height(rows[top]), above) and self._wanted(middle):
                    middles.append(middle)
            if not middles:
                return top
            yield middles

    # -- all lines ----------------------------------------------------------------------

    def _look_beside(self) -> None:
        """Simulate the neighbours of the answer, and of any better one among them."""
        answer = None
        for _ in range(_MOST_MOVES):
            before, (answer, *_) = answer, ranked(self.rows)[0]
            if answer is before or not answer.line.searched:
                return
            line = next(line for line in self.lines if answer in line)
            place = line.index(answer)
            self._simulate_rows([row for row in line[max(place - 1, 0) : place + 2] if row.outcome is None and row.reachable])

    def _approach(self) -> None:
        """Find the nearest configuration if nothing meets the goal, ordered by bounds."""
        coarse = [row for line in self.lines for row in _doublings(line)]
        while True:
            nearest = self._nearest()
            left = [row for row in coarse if row.outcome is None and row.promised > nearest and row not in self._unpromising]
            if not left:
                break
            self._simulate_rows(sorted(left, key=_promised, reverse=True)[:_BATCH])
        best_of = [max(map(_margin, line)) for line in self.lines]
        for best, line in sorted(zip(best_of, self.lines, strict=True), key=lambda pair: -pair[0]):
            nearest = self._nearest()
            if best * _WORTH_KNOWING < nearest:
                break
            for request in self._refine(line, _margin, _promised, nearest):
                self._simulate_rows([row for row in request if self._wanted(row)])

    def _nearest(self) -> float:
        """Return the configuration with the largest margin so far."""
        return max(map(_margin, self.rows), default=-1.0)


_margin, _promised = attrgetter("margin"), attrgetter("promised")


def _value_if_met(row: Configuration) -> float:
    return row.value if row.meets else math.inf


def _asking(searches: Iterable[Requests]) -> list[tuple[Requests, Rows]]:
    """Return searches that have not ended, each with its next request."""
    return [(search, request) for search in searches if (request := next(search, None)) is not None]


def _way(row: Configuration) -> tuple[str, ...]:
    """Return the key of similar cuts of a model."""
    return row.line.cluster, row.line.scaling, row.line.way


def _grouped(rows: Iterable[Configuration]) -> dict[tuple[str | int, ...], list[Configuration]]:
    """Return cuts of a model, grouped by similarity and number of workers."""
    alike: dict[tuple[str | int, ...], list[Configuration]] = {}
    for row in rows:
        if row.line.cut:
            alike.setdefault((*_way(row), row.workers), []).append(row)
    return alike


def _doubled(rows: Rows, index: int) -> int:
    """Return the first with at least twice the workers, or the last."""
    return next((at for at in range(index + 1, len(rows)) if rows[at].workers >= 2 * rows[index].workers), len(rows) - 1)


def _doublings(rows: Rows) -> list[Configuration]:
    """Return the first, successive doublings, and the last; all of a list."""
    if not rows[0].line.searched:
        return list(rows)
    chain = [0]
    while (following := _doubled(rows, chain[-1])) != chain[-1]:
        chain.append(following)
    return [rows[index] for index in chain]


def _node_filled(rows: Rows, index: int) -> int:
    """Return the last with the same number of nodes, which uses all of them."""
    nodes = rows[index].scenario.nodes_needed
    while index + 1 < len(rows) and rows[index + 1].scenario.nodes_needed == nodes:
        index += 1
    return index
