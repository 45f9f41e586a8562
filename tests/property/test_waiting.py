"""What the engines report as waiting, and as the bottleneck, against the causes that they record.

The recorder keeps differences of instants, since causes exist only where a run is observed.
Here the same figures are made from the records of observed runs, by their causes alone.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import given
from support.examples import examples
from support.modes import LOAD, MODES
from support.random_scenarios import random_scenarios
from support.sampling import SHARE
from support.scenarios import scenario_table

from simulator import Scenario, scenario_from_table, simulate
from simulator.base.records import EVERYBODY, Span, Step, Transfer, Wait, end_of
from simulator.engine.replication import replicate
from simulator.observing.recording import CriticalPath, Recording, critical_path, waits_for_others
from simulator.resolve.resolve import resolve


def recorded(scenario: Scenario) -> Recording:
    recording = Recording(resolve(scenario))
    replicate(resolve(scenario), 0, recording)
    return recording


def mode(name: str, **cluster) -> Scenario:
    strategy, machines, run = MODES[name]
    table = scenario_table(strategy=strategy, cluster={**machines, **cluster}, workload=LOAD, run={"steps": 12, "replications": 2, **run})
    return scenario_from_table(table, name)


# -- waiting ---------------------------------------------------------------------------------


def until_the_slowest(recording: Recording, scenario: Scenario) -> Iterator[float]:
    """Of each step of ranks that reduce: how long it stood still until all that its next work had to be made of was made, by senders."""
    work, steps = recording.by_number(), Numbered(recording, scenario.strategy.pace.every)
    parts, which, count = defaultdict(list), {}, Counter()
    come = defaultdict(list)  # what a rank gets from a peer: one message each step
    for its in sorted(recording.transfers, key=lambda its: its.number):
        if its.target == EVERYBODY:
            which[its.number] = its.name, count[its.source, its.name]
            count[its.source, its.name] += 1
            parts[which[its.number]].append(end_of(work[its.sender]))
        else:
            come[its.target.replica, its.source.replica, its.name].append(its)
    for step in recording.steps:
        number = steps.number(step)
        waited_s = 0.0
        for free_s, begin_s, cause in steps.gaps(step):
            its = work.get(cause)
            if isinstance(its, Transfer) and its.target == EVERYBODY:
                made_s = max(parts[which[cause]])
            elif scenario.strategy.kind == "gossip" and isinstance(its, Transfer):
                heard = [messages[number] for (target, *_), messages in come.items() if target == step.replica]
                made_s = max(end_of(work[message.sender]) if message.sender >= 0 else 0.0 for message in heard)
            elif isinstance(its, Transfer) or (isinstance(its, Wait) and its.name == "send"):
                made_s = max(steps.computed_s[replica, number] for replica in range(scenario.replicas))
            else:
                continue
            waited_s += max(min(made_s, begin_s) - free_s, 0.0)
        yield waited_s


def until_the_last_heard_of(recording: Recording) -> Iterator[float]:
    """Of a hybrid's steps, at most: how long a rank stood still until the last of what came meanwhile had begun to be sent, or joined."""
    steps = Numbered(recording)
    # of each collective, when the last came to it, which is why it began; stages with tied weights name their common one differently
    joined_s: dict[tuple[int, float], float] = defaultdict(float)
    for its in recording.transfers:
        if its.target == EVERYBODY:
            joined_s[its.cause, its.arrived_s] = max(joined_s[its.cause, its.arrived_s], its.sent_s)
    come: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for its in recording.transfers:
        if its.target == EVERYBODY:
            come[its.source.replica].append((its.arrived_s, joined_s[its.cause, its.arrived_s]))
        else:
            come[its.target.replica].append((its.arrived_s, its.sent_s))
    for step in recording.steps:
        waited_s = 0.0
        for free_s, begin_s, _ in steps.gaps(step):
            heard_s = [begun_s for arrived_s, begun_s in come[step.replica] if arrived_s <= begin_s]
            waited_s += max(min(max(heard_s, default=0.0), begin_s) - free_s, 0.0)
        yield waited_s


def until_the_last_that_counts(recording: Recording) -> Iterator[float]:
    """Of each step with servers: how long it was held up, and how long it waited for gradients that its update averages."""
    work = recording.by_number()
    applied = sorted((its for its in recording.services if its.worker < 0), key=lambda its: its.number)
    tensors = len({its.variable for its in applied})
    update = {its.number: place // tensors for place, its in enumerate(applied)}  # an update applies each tensor once
    come_s = defaultdict(float)
    for its in applied:
        accumulated = work[its.sender]
        come_s[update[its.number]] = max(come_s[update[its.number]], work[accumulated.sender].arrived_s)
    steps = Numbered(recording)
    pushes = defaultdict(list)
    for its in recording.transfers:
        if its.target.kind == "server":
            pushes[its.source.replica].append(its.arrived_s)
    for step, held in zip(recording.steps, waits_for_others(recording, work), strict=True):
        waited_s = math.fsum(its.end_s - its.start_s for its in held if its.start_s == step.start_s)
        gaps = steps.gaps(step)
        if step.cause in update and gaps and gaps[-1][1] == step.end_s:
            free_s = max([gaps[-1][0], *(its for its in pushes[step.replica] if step.start_s < its <= step.end_s)])
            waited_s += max(min(come_s[update[step.cause]], step.end_s) - free_s, 0.0)
        yield waited_s


class Numbered:
    """A run's steps by rank and number, each with the rank's own computes."""

    def __init__(self, recording: Recording, every: int = 1) -> None:
        spans, count = defaultdict(list), Counter()
        for span in recording.spans:
            spans[span.replica].append(span)
        self._fed_s = {(wait.replica, wait.start_s): wait.end_s for wait in recording.waits if wait.name == "input"}
        self._number: dict[tuple[int, float, float], int] = {}
        self._spans: dict[tuple[int, float, float], list[Span]] = {}
        self.computed_s: dict[tuple[int, int], float] = defaultdict(float)
        """By rank and step, the end of its last compute before it meets the others."""
        for step in recording.steps:
            key = step[:3]
            self._number[key] = count[step.replica]
            self._spans[key] = [span for span in spans[step.replica] if step.start_s < span.end_s <= step.end_s]
            own = [span.end_s for span in self._spans[key] if every > 1 or span.name != "apply"]
            self.computed_s[step.replica, count[step.replica]] = max(own, default=step.start_s)
            count[step.replica] += 1

    def number(self, step: Step) -> int:
        """How many steps the rank has made before."""
        return self._number[step[:3]]

    def gaps(self, step: Step) -> list[tuple[float, float, int]]:
        """When the rank computes nothing, from when to when and what ended it; none at the beginning."""
        spans = self._spans[step[:3]]
        ends = [self._fed_s.get((step.replica, step.start_s), step.start_s), *(span.end_s for span in spans)]
        begins = [*((span.start_s, span.cause) for span in spans), (step.end_s, step.cause)]
        return [(free_s, begin_s, cause) for free_s, (begin_s, cause) in zip(ends, begins, strict=True) if begin_s > free_s]


def check_waiting(scenario: Scenario) -> bool:
    """Whether anybody waited; fails where the causes say something else than was reported."""
    recording = recorded(scenario)
    if resolve(scenario).strategy.kind == "hybrid":
        return check_waiting_of_hybrid(recording)
    reported = [step.waiting_s for step in recording.steps]
    by_cause = [math.fsum(its.end_s - its.start_s for its in held) for held in waits_for_others(recording)]
    needed = until_the_last_that_counts(recording) if scenario.servers else until_the_slowest(recording, scenario)
    for step, waited_s, cause_s, needed_s in zip(recording.steps, reported, by_cause, needed, strict=True):
        slack_s = 1e-9 * step.end_s
        assert waited_s == pytest.approx(needed_s, rel=1e-9, abs=slack_s), step
        # who also waits for an earlier bucket, or for another rank's message, does not wait for the slowest all the while
        assert cause_s <= waited_s + slack_s, step
    return any(reported)


def check_waiting_of_hybrid(recording: Recording) -> bool:
    """A rank waits at least for what let it go on, and at most for the last that it had heard of by then."""
    held = waits_for_others(recording)
    for step, its, most_s in zip(recording.steps, held, until_the_last_heard_of(recording), strict=True):
        slack_s = 1e-9 * step.end_s
        assert math.fsum(each.end_s - each.start_s for each in its) <= step.waiting_s + slack_s, step
        assert step.waiting_s <= most_s + slack_s, step
    return any(step.waiting_s for step in recording.steps)


@pytest.mark.parametrize("name", MODES)
def test_what_is_reported_as_waiting_is_what_the_causes_say(name):
    check_waiting(mode(name))


@examples(60)
@given(random_scenarios())
def test_of_random_scenarios_too(scenario):
    check_waiting(scenario)


# -- bottlenecks -----------------------------------------------------------------------------

CLEAR = 0.6
"""Share of all critical paths that one kind of resource holds in a clear-cut case."""
LIMITS = {
    "compute": {"compute", "stragglers"},
    "input": {"input", "client"},
    "service": {"server", "apply"},
    "wait": {"coordinator"},
    "transfer": {"network", "server-network", "fabric", "host-link", "host-cpu", "client", "latency"},
}
"""What each kind of work on critical paths is called as a limit; all share the cores where cores are shared."""


def held_by(paths: list[CriticalPath]) -> tuple[Counter[str], float]:
    """Shares of critical paths by kind of work, and the share that others than the replica and its messages do."""
    spent, others_s = Counter(), 0.0
    for path in paths:
        for segment in path.segments:
            kind = "transfer" if segment.kind == "all-reduce" else "service" if segment.what == "apply" else segment.kind
            spent[kind] += segment.end_s - segment.start_s
            if {place.replica for place in segment.places} - {None, path.step.replica}:
                others_s += segment.end_s - segment.start_s
    total_s = math.fsum(spent.values())
    return Counter({kind: its_s / total_s for kind, its_s in spent.items()}), others_s / total_s


@pytest.mark.slow
def test_the_bottleneck_is_what_holds_most_of_the_critical_paths():
    clear, otherwise = Counter(), 0
    for name, bandwidth in list(itertools.product(MODES, ("10 GB/s", "1 GB/s", "50 MB/s")))[::SHARE]:
        scenario = mode(name, inter_node={"bandwidth": bandwidth, "latency": "20 us"})
        recording = recorded(scenario)
        work = recording.by_number()
        shares, others = held_by([critical_path(recording, step, work) for step in recording.steps[scenario.warmup * scenario.replicas :]])
        ((kind, share),) = shares.most_common(1)
        if share <= CLEAR:
            continue
        clear[kind] += 1
        limit = simulate(scenario).bottleneck
        wanted = LIMITS[kind] | ({"shared-cores"} if scenario.cluster.shared_cores else set())
        if others > CLEAR / 2:
            wanted = wanted | {"stragglers"}  # who waits for the slowest waits for whatever that one does
        if not {limit.name, limit.balance} & wanted and limit.tried:
            otherwise += 1  # what holds a path now may be held up by another when it is faster: tests/property/test_limits.py
            continue
        assert {limit.name, limit.balance} & wanted, f"{name} at {bandwidth}: {share:.0%} {kind}, but {limit.label}"
    assert otherwise <= 0.05 * clear.total()
    assert clear["compute"] >= 20 // SHARE
    assert clear["transfer"] >= 40 // SHARE
