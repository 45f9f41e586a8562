"""The schedule of a run's learning: complete, the same from both engines, and true to what the run recorded."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest

import paceline
from simulator import simulate
from simulator.base.errors import InputError
from simulator.engine.schedule import ALL, Schedule, schedule_of
from simulator.observing.recording import Recording
from simulator.resolve.resolve import resolve

FEW = {"strategy.workers": 5, "run.seed": 3}


def schedule(name, gradients=200, replication=0, **settings):
    return schedule_of(resolve(paceline.load(name, settings)), gradients, replication)


def same(one: Schedule, other: Schedule) -> bool:
    names = ("worker", "read", "applied")
    return np.allclose(one.time_s, other.time_s, rtol=1e-9) and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in names
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["async-ps", "ssp", "sync-ps", "backup-workers"])
@pytest.mark.parametrize("servers", [1, 3])
def test_both_engines_make_the_same(name, servers):
    # hosts would work on what comes from several servers at once in some order
    settings = {**FEW, "strategy.servers": servers, "cluster.transport.software": "given"}
    slow, fast = (schedule(name, **settings, **{"run.engine": engine}) for engine in ("simpy", "compiled"))
    assert same(slow, fast)
    assert not same(slow, schedule(name, replication=1, **settings, **{"run.engine": "simpy"}))


@pytest.mark.parametrize("servers", [1, 2])
def test_asynchronous_updates_have_every_version_once(servers):
    its = schedule("async-ps", **FEW, **{"strategy.servers": servers})
    assert (its.workers, its.averaged, its.every, its.neighbours) == (5, 1, 1, 0)
    assert len(its) == 200
    assert its.read.shape == its.applied.shape == (200, servers)
    for server in range(servers):
        # the last workers may have applied on one server and not on another
        assert np.isin(np.arange(190), its.applied[:, server]).all()
        assert len(np.unique(its.applied[:, server])) == 200
    assert (its.applied >= its.read).all()
    assert set(its.worker.tolist()) == set(range(5))
    assert (np.diff(its.time_s) >= 0).all()
    assert its.time_s[0] > 0
    assert 3 < its.mean_staleness < 5  # about one less than there are workers


def test_they_are_those_that_an_observer_sees():
    scenario = paceline.load("async-ps", {**FEW, "run.steps": 20, "run.warmup_steps": 0, "run.replications": 2, "run.job_steps": None})
    recording = Recording()
    simulate(scenario, observer=recording)
    its = schedule_of(resolve(scenario), 100)
    assert [update.applied_s for update in recording.updates] == its.time_s.tolist()
    assert [update.server_read for update in recording.updates] == [tuple(row) for row in its.read.tolist()]
    assert [update.server_applied for update in recording.updates] == [tuple(row) for row in its.applied.tolist()]
    assert [update.worker for update in recording.updates] == its.worker.tolist()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("sync-ps", (8, 8, 1, 0, 8)), ("backup-workers", (8, 6, 1, 0, 8)), ("ring", (8, 8, 1, 0, 8)), ("local-sgd", (8, 8, 8, 0, 64))],
)
def test_what_is_averaged(name, expected):
    its = schedule(name, 640, **({"strategy.workers": 8} if name == "ring" else {}))
    assert (its.workers, its.averaged, its.every, its.neighbours) == expected[:4]
    assert its.read.shape == (len(its), 0)
    assert set(its.worker.tolist()) == {ALL}
    assert its.mean_staleness == 0
    # the last updates of a training with backups are not made: their workers have ended
    assert 640 / expected[4] - 3 <= len(its) <= 640 / expected[4]


def test_gossip_and_one_device():
    gossip = schedule("ring", 60, strategy={"kind": "gossip", "workers": 6})
    assert (gossip.workers, gossip.averaged, gossip.neighbours, len(gossip)) == (6, 1, 2, 10)
    pair = schedule("ring", 60, strategy={"kind": "gossip", "workers": 2})
    assert pair.neighbours == 1
    single = schedule("ring", 60, strategy={"kind": "single"})
    assert (single.workers, single.averaged, single.every, len(single)) == (1, 1, 1, 60)


def test_a_job_and_its_steps_play_no_part():
    plain = schedule("async-ps", **FEW)
    other = schedule("async-ps", **FEW, **{"run.steps": 7, "run.warmup_steps": 3, "job.epochs": 3, "job.dataset_size": 1e4})
    assert same(plain, other)


def test_a_pipeline_that_is_never_flushed_is_refused():
    with pytest.raises(InputError, match=r"without flushes.*schedule = '1f1b'"):
        schedule("pipedream")


def test_written_as_a_file_without_objects():
    its = schedule("async-ps", 50, **FEW)
    with np.load(io.BytesIO(its.written()), allow_pickle=False) as arrays:
        assert json.loads(arrays["rule"].tobytes()) == {"workers": 5, "averaged": 1, "every": 1, "neighbours": 0}
        assert arrays["time_s"].tolist() == its.time_s.tolist()
        assert arrays["read"].tolist() == its.read.tolist()
        assert arrays["applied"].tolist() == its.applied.tolist()


def test_real_steps_in_any_order():
    steps = [(1, 0.3, 0, 2), (0, 0.1, 0, 0), (2, 0.2, 0, 1), (0, 0.4, 1, 3)]
    its = Schedule.of_steps(steps, workers=3)
    assert its.worker.tolist() == [0, 2, 1, 0]
    assert its.read.tolist() == [[0], [0], [0], [1]]
    assert its.applied.tolist() == [[0], [1], [2], [3]]
    # two that read the same counter are put in the order of time, and time never goes back
    tied = Schedule.of_steps([(0, 0.2, 0, 1), (1, 0.1, 0, 1), (2, 0.15, 0, 0)], workers=3)
    assert tied.worker.tolist() == [2, 1, 0]
    assert tied.time_s.tolist() == [0.15, 0.15, 0.2]
    # one that read an update whose counter was read late
    late = Schedule.of_steps([(0, 0.1, 0, 1), (1, 0.2, 1, 0)], workers=2)
    assert late.read.tolist() == [[0], [0]]
    with pytest.raises(InputError, match="worker 1 read version 5, but only 1 updates were applied before its own"):
        Schedule.of_steps([(0, 0.1, 0, 0), (1, 0.2, 5, 6)], workers=2)
