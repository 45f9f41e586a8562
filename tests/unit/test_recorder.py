"""What is recorded does not depend on whether it comes one by one or in blocks, nor on the blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from simulator.base.compact import Names
from simulator.base.errors import SimulationError
from simulator.base.records import Step, Update
from simulator.engine.phases import Phases, random_order
from simulator.engine.recorder import LISTED_WORKERS, InUse, Measured, Parts, Recorder


class Seen:
    def __init__(self) -> None:
        self.records = []

    def record(self, record) -> None:
        self.records.append(record)


def happened(seed: int, workers: int, count: int, servers: int):
    """Steps in the order of their ends, and an update with each; columns as the recorder takes them."""
    rng = np.random.default_rng(seed)
    replicas = rng.integers(workers, size=count)
    end_s = np.cumsum(rng.exponential(0.01, count))
    steps = np.column_stack([replicas, end_s - rng.exponential(1.0, count), end_s, rng.random((count, 5)), rng.integers(2, size=count)])
    applied = np.arange(count)
    read, stale = rng.integers(90, size=(count, servers)), rng.integers(9, size=(count, servers))
    read_version = np.maximum(applied - rng.integers(40, size=count), 0)
    updates = np.column_stack([replicas, end_s - 1, end_s, read_version, applied, read, read + stale])
    return steps, updates


def parts_of(measured: Measured):
    """All that was measured, as comparable values."""
    phases, workers = measured.phases, measured.worker_staleness
    return (
        measured.window_s, measured.run_s, measured.steps, measured.updates, measured.accepted_steps, measured.hidden_s, measured.events,
        measured.parts_s.tolist(), measured.staleness.counts, [each.counts for each in measured.server_staleness],
        measured.mixed_reads.counts, {kind: list(names) for kind, names in measured.names.items()},
        {kind: seconds.tolist() for kind, seconds in measured.in_use_s.items()}, measured.step_time.total, measured.step_time.count,
        measured.step_time.quantiles(0.01, 0.5, 0.99), phases and (phases.first, phases.last, phases.mixed_s),
        workers and (workers.means(), workers.quantiles(0.9), workers.largest.tolist()),
    )  # fmt: skip


def recorded(steps, updates, opens_at, workers, sizes, *, observer=None, apart=True):
    """What a recorder makes of it, in blocks of such sizes in turn; 0: one step or update, by itself."""
    recorder = Recorder(workers, opens_at, len(steps), apart=apart, observer=observer)
    at, turn = 0, 0
    if not opens_at:
        recorder.open(0.5, {"links": np.array([1.0])})
    while at < len(steps):
        size = sizes[turn % len(sizes)]
        turn += 1
        until = min(at + max(size, 1), len(steps), opens_at if at < opens_at else len(steps))
        if size:
            recorder.updates(updates[at:until])
            recorder.reads(updates[at:until, 5].astype(int))
            recorder.steps(steps[at:until])
        else:
            worker, read_s, applied_s, *versions = updates[at].tolist()
            read, applied, *servers = map(int, versions)
            of_servers = tuple(servers[: len(servers) // 2]), tuple(servers[len(servers) // 2 :])
            recorder.update(Update(int(worker), read_s, applied_s, read, applied, *of_servers))
            recorder.reads(updates[at:until, 5].astype(int))
            replica, start_s, end_s, *parts = steps[at].tolist()
            recorder.step(int(replica), start_s, end_s, Parts(*parts))
        at = until
        if at == opens_at:
            recorder.open(steps[at - 1, 2], {"links": np.array([1.0])})
    recorder.close(steps[-1, 2], {"links": InUse(["a", "b"], np.array([3.0, 4.0]))}, 77)
    return recorder.measured


@examples(10)
@given(
    seed=st.integers(0, 10_000),
    workers=st.integers(1, 40),
    opens_at=st.sampled_from([0, 1, 40, 1024, 1500]),
    count=st.integers(1501, 4000),
    sizes=st.lists(st.sampled_from([0, 1, 3, 500, 1023, 1024, 1025, 4000]), min_size=1, max_size=6),
)
def test_blocks_make_no_difference(seed, workers, opens_at, count, sizes):
    steps, updates = happened(seed, workers, count, 3)
    one_by_one, in_blocks = Seen(), Seen()
    want = recorded(steps, updates, opens_at, workers, [0], observer=one_by_one)
    assert parts_of(recorded(steps, updates, opens_at, workers, sizes)) == parts_of(want)
    assert want.steps == want.updates == count - opens_at
    assert want.in_use_s["links"].tolist() == [2.0, 4.0]
    recorded(steps, updates, opens_at, workers, sizes, observer=in_blocks)
    for kind in (Step, Update):
        chosen = [[record for record in seen.records if isinstance(record, kind)] for seen in (one_by_one, in_blocks)]
        assert chosen[0] == chosen[1]
        assert len(chosen[0]) == count


def test_sums_are_those_of_the_rows():
    steps, updates = happened(3, 4, 3000, 2)
    measured = recorded(steps, updates, 600, 4, [0, 700])
    inside = steps[600:]
    durations = inside[:, 2] - inside[:, 1]
    assert measured.window_s == steps[-1, 2] - steps[599, 2]
    assert measured.step_time.mean() == pytest.approx(durations.mean())
    assert measured.accepted_steps == inside[:, 8].sum()
    assert measured.hidden_s == pytest.approx(inside[:, 7].sum())
    own = inside[:, 3:7].sum(axis=0)
    assert measured.parts_s == pytest.approx([own[0], own[1], durations.sum() - own.sum(), own[2], own[3]])
    assert measured.staleness.mean() == pytest.approx((updates[600:, 4] - updates[600:, 3]).mean())
    assert [each.mean() for each in measured.server_staleness] == pytest.approx(
        (updates[600:, 7:] - updates[600:, 5:7]).mean(axis=0).tolist()
    )


def test_nothing_is_measured_of_workers_together_or_of_too_many():
    assert Recorder(4, 0, 9, apart=False).measured.phases is None
    assert Recorder(1, 0, 9, apart=True).measured.phases is None
    assert Recorder(LISTED_WORKERS, 0, 9, apart=True).measured.worker_staleness is not None
    assert Recorder(LISTED_WORKERS + 1, 0, 9, apart=True).measured.worker_staleness is None


def test_a_block_must_end_where_the_window_does():
    steps, _ = happened(1, 2, 10, 1)
    with pytest.raises(AssertionError, match="opens and closes"):
        Recorder(2, 5, 10, apart=True).steps(steps[:6])
    recorder = Recorder(2, 0, 10, apart=True)
    recorder.open(0.0, {})
    recorder.steps(steps)
    recorder.steps(steps)  # what happens in the instant of the end counts no more
    recorder.close(steps[-1, 2], {}, 0)
    assert recorder.measured.steps == 10


def test_a_run_that_ends_in_its_warm_up_is_refused():
    with pytest.raises(SimulationError, match="before all workers finished the warm-up"):
        Recorder(2, 5, 10, apart=True).close(1.0, {}, 0)


def test_names_are_made_when_asked_for():
    made = []

    def name(place: int) -> str:
        made.append(place)
        return f"port {place}"

    names = Names(1_000_000, name)
    assert len(names) == 1_000_000
    assert names == Names(1_000_000, name)
    assert names != Names(999_999, name)
    assert not made
    assert (names[3], names[-1], names[5:7]) == ("port 3", "port 999999", ["port 5", "port 6"])
    with pytest.raises(IndexError):
        names[1_000_000]
    assert Names(2, name) == ["port 0", "port 1"]
    assert Names(2, name) == Names(2, lambda place: f"port {place}")


# -- phases ---------------------------------------------------------------------------------


def by_steps(workers, ended):
    """Order of each round, by the definition, step by step."""
    begun, total, steps, orders = np.full(workers, np.nan), 0.0, 0, []
    for worker, start_s, end_s in ended:
        begun[worker] = end_s
        total += end_s - start_s
        steps += 1
        if steps == workers:
            if total > 0 and not np.isnan(begun).any():
                angles = 2 * np.pi * (end_s - begun) / (total / steps)
                orders.append((end_s, float(np.hypot(np.cos(angles).mean(), np.sin(angles).mean()))))
            total, steps = 0.0, 0
    return orders


@examples(30)
@given(
    seed=st.integers(0, 1000),
    workers=st.integers(2, 70),
    count=st.integers(1, 3000),
    sizes=st.lists(st.integers(1, 400), min_size=1, max_size=5),
)
def test_phases_are_the_same_in_blocks(seed, workers, count, sizes):
    steps, _ = happened(seed, workers, count, 1)
    phases, at, turn = Phases(workers), 0, 0
    while at < count:
        block = steps[at : at + sizes[turn % len(sizes)]]
        phases.steps(block[:, 0].astype(int), block[:, 1], block[:, 2])
        at, turn = at + len(block), turn + 1
    orders = by_steps(workers, ((int(row[0]), row[1], row[2]) for row in steps.tolist()))
    assert phases.first == (orders[0][1] if orders else None)
    assert phases.last == (float(np.mean([order for _, order in orders[-5:]])) if orders else 0.0)
    windows = [orders[at : at + 5] for at in range(len(orders) - 4)]
    mixed = (window[0][0] for window in windows if np.mean([order for _, order in window]) <= random_order(workers))
    assert phases.mixed_s == next(mixed, None)


@pytest.mark.parametrize("replicas", [1, 7, 130, 1500])
def test_steps_made_together_add_up_one_after_the_other(replicas):
    rng = np.random.default_rng(replicas)
    recorder, hidden_s, total_s, parts_s = Recorder(replicas, 0, 40 * replicas, apart=False), 0.0, 0.0, np.zeros(5)
    recorder.open(0.0, {})
    for count in (1, 30, 2, 7):
        start_s, every_part = rng.random((count, replicas)), rng.random((5, count, replicas))
        end_s = start_s + rng.random((count, replicas))
        recorder.together(start_s, end_s, every_part)
        for durations, parts in zip(end_s - start_s, every_part.transpose(1, 0, 2), strict=True):
            left_s = durations - parts[0] - parts[1] - parts[2] - parts[3]
            total_s += float(durations.sum())
            hidden_s += float(parts[4].sum())
            parts_s += [float(part.sum()) for part in (parts[0], parts[1], left_s, parts[2], parts[3])]
    recorder.close(1.0, {}, 0)
    measured = recorder.measured
    assert (measured.steps, measured.accepted_steps, measured.step_time.count) == (40 * replicas,) * 3
    assert (measured.step_time.total, measured.hidden_s, measured.parts_s.tolist()) == (total_s, hidden_s, parts_s.tolist())
