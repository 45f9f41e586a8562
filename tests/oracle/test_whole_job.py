"""The job's renewal, which jumps from event to event, against the job made step by step; and against Young, Daly, renewal theory."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize
from support.daly import expected_time_s
from support.hybrids import FAST, hybrid
from support.sampling import a_few

from simulator import load_scenario, simulate
from simulator.base.errors import ScenarioError, SimulationError
from simulator.job.costs import NEVER_WRITTEN, Course, Writing, best_interval_s, daly_interval_s, writing_of, young_interval_s
from simulator.job.faults import Arrival, Effect
from simulator.job.renewal import Crew, Renewal, checkpoints_of
from simulator.results.cost import time_of_samples_s
from simulator.spec.job import Faults, Job
from simulator.spec.layers import Experts

STOPS = Effect(stops=True, waits=False, workers=(0,))


def course(epochs=(10.0,), step_s=1.0, **changes):
    plain = {
        "epochs": epochs, "step_s": step_s, "first_step_s": step_s, "startup_s": 0.0, "tracing_s": 0.0, "evaluation_tracing_s": 0.0,
        "filling_s": 0.0, "first_filling_s": 0.0, "evaluation_s": 0.0, "evaluation_every": 0, "writing": NEVER_WRITTEN, "write_steps": 0.0,
        "write_epochs": 0,
    }  # fmt: skip
    return Course(**(plain | changes))


def crew(workers=4, needed=4, effect=STOPS, step_s_with=None, **faults):
    return Crew(Faults(**({"trace": [{"at": "1 s", "of": "worker"}]} | faults)), workers, needed, lambda _: effect, step_s_with)


def step_by_step(its: Course, back_s: float, faults: list[float]) -> dict[str, float]:
    """Seconds in all, lost and down: every step, checkpoint and evaluation is a task, done one after the other by the clock."""
    tasks: list[tuple[str, float, float]] = []  # name, seconds, and of the fill that its epoch begins with
    count = 0
    for number, steps in enumerate(its.epochs):
        fill_s = its.filling_s if number else its.first_filling_s
        tasks.append(("fill", fill_s, fill_s))
        for _ in range(int(steps)):
            count += 1
            tasks.append(("step", its.step_s, fill_s))
            if its.write_steps and count % its.write_steps == 0:
                tasks.append(("write", its.writing.stop_s, fill_s))
        if its.evaluates(number):
            tasks.append(("evaluation", its.evaluation_s, fill_s))
        if its.writes_after(number):
            tasks.append(("write", its.writing.stop_s, fill_s))
    faults = sorted(faults)
    now = its.startup_s
    lost_s = down_s = 0.0
    hit = [at_s for at_s in faults if at_s < now]
    if hit:
        now, down_s = _stand_still(hit[0], back_s, faults)
    at = 0
    while at < len(tasks):
        begun = last_s = now
        safe, to_be_written = at, []
        todo = list(enumerate(tasks))[at:]
        if todo[0][1][0] == "step":
            todo.insert(0, (at - 1, ("fill", its.first_filling_s, 0.0)))
        if at == 0:
            todo.insert(1, (0, ("tracing", its.tracing_s if not hit else 0.0, 0.0)))
        fault_s = min((at_s for at_s in faults if at_s > begun), default=math.inf)
        for place, (name, seconds, _) in todo:
            if name == "write" and to_be_written:  # one before it must have been written
                seconds += max(to_be_written[-1][0] - now, 0.0)
            if now + seconds > fault_s:
                break
            now += seconds
            at = place + 1
            if name == "write":
                to_be_written.append((now + its.writing.lasts_s, at, now))
        else:
            return {"time_s": now, "lost_work": lost_s, "down": down_s}
        for ready_s, place, ended_s in to_be_written:
            if ready_s <= fault_s:
                safe, last_s = place, ended_s
        lost_s += fault_s - last_s
        at = safe
        # without a checkpoint there is none to read
        now, more_s = _stand_still(fault_s, back_s + (its.writing.restore_s if safe else 0.0), faults)
        down_s += more_s
        hit = [fault_s]
    return {"time_s": now, "lost_work": lost_s, "down": down_s}


def _stand_still(fault_s: float, back_s: float, faults: list[float]) -> tuple[float, float]:
    """When it goes on, and how long it has stood still; each fault meanwhile makes it begin again."""
    end_s = fault_s + back_s
    for at_s in faults:
        if fault_s < at_s < end_s:
            end_s = at_s + back_s
    return end_s, end_s - fault_s


def test_every_step_made_one_by_one():
    """Random small jobs and random faults: the same to rounding."""
    rng = np.random.default_rng(17)
    faulted = 0
    for _ in range(400):
        lasts_s = float(rng.choice([0.0, 0.0, 1.3, 6.0]))
        every = int(rng.choice([0, 1, 2, 3, 7]))
        step_s = float(rng.uniform(0.5, 2.0))
        stop_s = float(rng.uniform(0.0, 1.0))
        first_fill_s = float(rng.choice([0.0, 0.7]))
        its = course(
            epochs=tuple(float(steps) for steps in rng.integers(1, 12, rng.integers(1, 4))),
            step_s=step_s,
            first_step_s=step_s,
            startup_s=float(rng.choice([0.0, 3.3])),
            tracing_s=float(rng.choice([0.0, 2.1])),
            filling_s=first_fill_s,
            first_filling_s=first_fill_s,
            evaluation_s=float(rng.choice([0.0, 1.9])),
            evaluation_every=int(rng.integers(0, 3)),
            writing=Writing(stop_s, lasts_s, 0.4, 1.0),
            write_steps=float(every),
            write_epochs=0 if every else int(rng.integers(0, 2)),
        )
        times = sorted(rng.uniform(0.0, 60.0, rng.integers(0, 5)).tolist())
        its_crew = crew(detection_s=0.6, restart_s=1.1)
        ended = Renewal(its, its_crew, [Arrival(at_s, "worker", 0) for at_s in times]).run()
        expected = step_by_step(its, 0.6 + 1.1 + its.startup_s + its.tracing_s, times)
        assert ended.time_s == pytest.approx(expected["time_s"], abs=1e-6)
        assert ended.parts.lost_work == pytest.approx(expected["lost_work"], abs=1e-6)
        assert ended.parts.down == pytest.approx(expected["down"], abs=1e-6)
        assert ended.time_s == pytest.approx(sum(dict(ended.parts).values()))
        assert ended.parts.steps == pytest.approx(sum(its.epochs) * step_s)
        faulted += ended.faults > 0
    assert faulted > 150


@pytest.mark.slow
def test_expected_time_is_daly_s():
    """Faults without memory, also while a checkpoint is written and while all begin again."""
    work_s, cost_s, mtbf_s, interval_s, repair_s = 4000.0, 5.0, 150.0, 40.0, 8.0
    restore_s = 20.0
    its = course((work_s,), writing=Writing(cost_s, 0.0, restore_s, 1.0), write_steps=interval_s)
    times = []
    for seed in range(400):
        gaps = np.random.default_rng(seed).exponential(mtbf_s, 2000)
        ended = Renewal(its, crew(restart_s=repair_s), [Arrival(at_s, "worker", 0) for at_s in np.cumsum(gaps)]).run()
        times.append(ended.time_s)
    expected_s = expected_time_s(work_s, interval_s, cost_s, repair_s, mtbf_s, restore_s)
    error_s = np.std(times, ddof=1) / np.sqrt(len(times))
    assert abs(np.mean(times) - expected_s) < 3.5 * error_s
    assert error_s < 0.01 * expected_s


def test_a_fault_before_the_first_checkpoint_reads_none():
    """By hand: 5 steps are lost, 3 s until all are back, and no second of reading; after the first checkpoint there are 7."""
    its = course((20.0,), writing=Writing(1.0, 0.0, 7.0, 1.0), write_steps=10.0)
    first = Renewal(its, crew(restart_s=3.0), [Arrival(5.0, "worker", 0)]).run()
    later = Renewal(its, crew(restart_s=3.0), [Arrival(16.0, "worker", 0)]).run()
    assert (first.parts.lost_work, first.parts.down, first.time_s) == (5.0, 3.0, 20.0 + 2 * 1.0 + 5.0 + 3.0)
    assert (later.parts.lost_work, later.parts.down, later.time_s) == (5.0, 3.0 + 7.0, 20.0 + 2 * 1.0 + 5.0 + 10.0)


def test_an_expected_time_begins_without_a_checkpoint():
    """Of one interval nothing is ever read; of ten, nine are begun again with a checkpoint."""
    times = [expected_time_s(work_s, 40.0, 5.0, 8.0, 150.0, 20.0) for work_s in (40.0, 400.0)]
    plain_s, read_s = (expected_time_s(40.0, 40.0, 5.0, restart_s, 150.0) for restart_s in (8.0, 28.0))
    assert times == pytest.approx([plain_s, plain_s + 9 * read_s])


def test_the_first_asynchronous_checkpoint_waits_for_none():
    """By hand: snapshots of 1 s each 4 s of steps, written in 10 s: after 4, 15 and 26 s of which two wait 6 s each."""
    its = course((12.0,), writing=Writing(1.0, 10.0, 0.0, 1.0), write_steps=4.0)
    ended = Renewal(its).run()
    assert ended.parts.checkpoints == pytest.approx(1.0 + 2 * (6.0 + 1.0))
    assert ended.time_s == pytest.approx(12.0 + 15.0)
    # after a fault nothing is being written: at 4 s a snapshot, a fault at 8.5 s, begun anew; snapshots at 12.5, 23.5 and 34.5 s
    again = Renewal(its, crew(), [Arrival(8.5, "worker", 0)]).run()
    assert (again.parts.lost_work, again.time_s) == (pytest.approx(8.5), pytest.approx(8.5 + 27.0))
    assert checkpoints_of(replace(its, epochs=(4.0, 4.0, 4.0))) == [1.0, 7.0, 7.0]


@pytest.mark.parametrize("ratio", [1e-4, 1e-2, 0.3, 1.5])
def test_best_interval_minimises_the_expected_time(ratio):
    mtbf_s = 86_400.0
    cost_s = ratio * mtbf_s
    found = optimize.minimize_scalar(
        lambda log_s: math.log(expected_time_s(1.0, math.exp(log_s), cost_s, 0.0, mtbf_s)),
        bounds=(math.log(cost_s / 10), math.log(3 * mtbf_s)),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert best_interval_s(cost_s, mtbf_s) == pytest.approx(math.exp(found.x), rel=1e-5)
    assert daly_interval_s(cost_s, mtbf_s) == pytest.approx(best_interval_s(cost_s, mtbf_s), rel=0.1 * ratio + 1e-4)
    if ratio < 1e-3:
        assert young_interval_s(cost_s, mtbf_s) == pytest.approx(best_interval_s(cost_s, mtbf_s), rel=0.02)


def test_more_frequent_checkpoints_never_lose_more_work():
    """With the same faults, checkpoints that cost nothing, and each interval a part of the one before."""
    rng = np.random.default_rng(3)
    for _ in range(100):
        arrivals = [Arrival(at_s, "worker", 0) for at_s in np.cumsum(rng.exponential(60.0, 500))]
        lost = []
        for every in (64.0, 32.0, 16.0, 4.0, 1.0):
            its = course((200.0,), writing=Writing(0.0, 0.0, 0.0, 1.0), write_steps=every)
            lost.append(Renewal(its, crew(), arrivals).run().parts.lost_work)
        assert lost == sorted(lost, reverse=True)


def test_asynchronous_workers_go_on_without_the_missing_one():
    """Four workers, one away for 20 s: the others make three quarters of the steps meanwhile; nothing is lost."""
    goes_on = Effect(stops=False, waits=False, workers=(2,))
    its = course((100.0,), startup_s=2.0, tracing_s=0.0)
    ended = Renewal(
        its,
        crew(needed=1, effect=goes_on, step_s_with=lambda count: 4.0 / count, detection_s=3.0, restart_s=15.0),
        [Arrival(30.0, "worker", 2)],
    ).run()
    assert ended.time_s == pytest.approx(2.0 + 100.0 + 20.0 / 4)
    assert ended.parts.fewer_workers == pytest.approx(5.0)
    assert ended.parts.lost_work == ended.parts.down == 0.0


def test_a_checkpoint_goes_on_while_a_worker_leaves():
    """It stops training for 4 s after each 10 steps; the worker leaves amid the first one, a server fails at 16 s."""
    effects = {"worker": Effect(stops=False, waits=False, workers=(2,)), "server": Effect(stops=True, waits=False, workers=())}
    its = course((30.0,), writing=Writing(4.0, 0.0, 0.0, 1.0), write_steps=10.0)
    same_pace = Crew(Faults(trace=[{"at": "1 s", "of": "worker"}]), 4, 1, lambda fault: effects[fault.what], lambda _: 1.0)
    ended = Renewal(its, same_pace, [Arrival(12.0, "worker", 2), Arrival(16.0, "server", 0)]).run()
    assert ended.parts.lost_work == pytest.approx(2.0)
    assert ended.parts.checkpoints == pytest.approx(12.0)
    assert ended.time_s == pytest.approx(30.0 + 12.0 + 2.0)


def test_synchronous_ones_without_backups_wait_and_lose_nothing():
    waits = Effect(stops=False, waits=True, workers=(2,))
    ended = Renewal(course((100.0,)), crew(effect=waits, detection_s=3.0, restart_s=15.0), [Arrival(30.5, "worker", 2)]).run()
    assert ended.time_s == pytest.approx(100.0 + 18.0)
    assert ended.parts.down == pytest.approx(18.0)


def test_elastic_ones_go_back_to_a_checkpoint_and_go_on_with_fewer():
    """A checkpoint each 10 steps; a fault at 34 s takes 4 s; until 34 + 50 s three of four work; then all again."""
    elastic = Effect(stops=False, waits=False, workers=(2,), rolls_back=True)
    its = course((100.0,), writing=Writing(0.0, 0.0, 1.0, 1.0), write_steps=10.0)
    ended = Renewal(
        its, crew(needed=1, effect=elastic, step_s_with=lambda count: 4.0 / count, detection_s=2.0, restart_s=48.0, elastic=True),
        [Arrival(34.0, "worker", 2)],
    ).run()  # fmt: skip
    # down from 34 to 37 (noticed, read again); fewer from 37 to 84; then a second to join
    assert ended.parts.lost_work == pytest.approx(4.0)
    assert ended.parts.down == pytest.approx(4.0)
    assert ended.parts.fewer_workers == pytest.approx(47.0 / 4)
    assert ended.time_s == pytest.approx(100.0 + 4.0 + 4.0 + 47.0 / 4)


def test_a_notice_that_is_long_enough_loses_no_more_than_what_comes_after_it():
    its = course((100.0,), writing=Writing(2.0, 0.0, 0.0, 1.0), write_steps=50.0)
    for notice_s, lost_s in ((5.0, 3.0), (1.0, 31.0)):
        spot = {"mtbf": "1 d", "notice_s": notice_s, "replacement": "7 s"}
        ended = Renewal(its, crew(preemption=spot, trace=[]), [Arrival(30.0, "preemption", 0)]).run()
        assert ended.parts.lost_work == pytest.approx(lost_s)
        assert ended.parts.down == pytest.approx(7.0)


def test_a_notice_at_the_begin_of_an_epoch_keeps_the_epochs_before():
    its = course((20.0, 20.0), filling_s=10.0, writing=Writing(2.0, 0.0, 0.0, 1.0), write_steps=50.0)
    spot = {"mtbf": "1 d", "notice_s": 5.0, "replacement": "7 s"}
    ended = Renewal(its, crew(preemption=spot, trace=[]), [Arrival(25.0, "preemption", 0)]).run()
    # told of it at 25, written until 27, taken at 30
    assert ended.parts.lost_work == pytest.approx(3.0)
    assert ended.parts.steps == pytest.approx(40.0)


@pytest.mark.slow
def test_retries_end_a_job_and_no_checkpoint_makes_it_endless():
    arrivals = [Arrival(float(at_s), "worker", 0) for at_s in range(5, 1_000_000, 5)]
    assert Renewal(course((100.0,)), crew(retries=3), arrivals).run().given_up
    with pytest.raises(SimulationError, match="the job does not end"):
        Renewal(course((100.0,)), crew(), arrivals).run()


# -- jobs of scenarios -----------------------------------------------------------------

JITTER = ("workload.jitter", {"kind": "gamma", "shape": 16.0})


@pytest.mark.statistics
@pytest.mark.parametrize(
    ("name", "keys", "steps"),
    [
        ("ring", {"strategy.workers": 4}, 600),
        ("async-ps", {"strategy.workers": 3}, 600),
        ("async-ps", {"strategy.workers": 3, "strategy.mode": "sync"}, 600),
    ],
)
def test_a_small_job_simulated_step_by_step(name, keys, steps):
    """Every step of the job by the engine, from the first to the last, against a window of a hundred of them."""
    settings = [*keys.items(), JITTER, ("run.start", "together"), ("discrepancy", "none")]
    whole = simulate(load_scenario(name, [*settings, ("run.steps", steps), ("run.warmup_steps", 0), ("run.replications", 8)]))
    scenario = load_scenario(name, [*settings, ("run.steps", 100), ("run.replications", 8)])
    made = steps * scenario.replicas * scenario.batch
    job = simulate(load_scenario(scenario, [("job.samples", made), ("job.startup", "30 s")])).job
    whole_s = np.mean([made / rate for rate in whole.throughput_of_each_replication])
    assert job.time_s.mean - 30.0 == pytest.approx(whole_s, rel=0.02)
    assert job.parts_s.steps == pytest.approx(job.time_s.mean - 30.0)


def test_a_job_of_nothing_but_samples_takes_as_long_as_its_steps():
    result = simulate(load_scenario("ring", [("job.samples", 1e6)]))
    assert result.job.time_s.mean == pytest.approx(time_of_samples_s(result, 1e6).mean)
    assert result.job.goodput.mean == pytest.approx(1.0)


@pytest.mark.slow
def test_faults_that_never_come_change_nothing():
    """Byte for byte, and the steps of a job are those of the scenario without it."""
    plain = [("strategy.workers", 4), ("job.epochs", 2), ("job.dataset_size", 10_000), ("job.startup", "3 s"), ("job.iterators", "kept")]
    without = simulate(load_scenario("ring", plain))
    later = simulate(load_scenario("ring", [*plain, ("job.faults.trace", [{"at": "30 d", "of": "node", "number": 1}])]))
    steps = simulate(load_scenario("ring", plain[:1]))
    differs = {"scenario", "scenario_hash"}
    assert later.model_dump_json(exclude=differs) == without.model_dump_json(exclude=differs)
    assert steps.model_dump_json(exclude={*differs, "job", "assumed"}) == without.model_dump_json(exclude={*differs, "job", "assumed"})


BATCHES, OF = 30, 32
"""Of an epoch, and samples of a batch."""


def epoch_of(input_to_step: float, held: int, prefetch: int = 1) -> float:
    """A predicted epoch in steps that have their batch, of a pipeline whose batch takes so many of these."""
    settings = {
        "strategy": {"kind": "single"}, "workload.jitter": {"kind": "constant"}, "run.replications": 2, "run.steps": 40,
        "discrepancy": "none", "job": {"epochs": 1, "dataset_size": OF * BATCHES},
    }  # fmt: skip
    result = simulate(load_scenario("ring", settings))
    step_s = float(np.mean(result.scenario.batch / np.array(result.throughput_of_each_replication)))  # each makes as many steps of a job
    work = {"serial": {"base_s": input_to_step * step_s, "per_sample_s": 0.0}}
    its = {"input": {"work": work, "shuffle_buffer": held, "prefetch": prefetch}}
    return simulate(load_scenario("ring", settings | its)).job.each_epoch[0].time_s / step_s


def sample_by_sample(input_to_step: float, held: int, prefetch: int) -> float:
    """The same by a shuffle buffer that takes in and gives out single samples, a thread that prefetches batches, and a loop."""
    read, now, done, taken = 0, 0.0, 0.0, []
    for number in range(BATCHES):
        if not prefetch:
            now = done
        elif number >= prefetch:
            now = max(now, taken[number - prefetch])
        for sample in range(number * OF, (number + 1) * OF):
            while read < min(sample + max(held, 1), BATCHES * OF):  # a buffer gives nothing before it is full or all is read
                read, now = read + 1, now + input_to_step / OF
        taken.append(max(now, done))
        done = taken[-1] + 1.0
    return done


@pytest.mark.parametrize(
    ("prefetch", "held", "input_to_step"), a_few(itertools.product([0, 1, 4], [0, 32, 320, 640, 6400], [0.25, 2.0, 8.0]), 9, seed=5)
)
def test_a_shuffle_buffer_is_filled_once_an_epoch_and_emptied_at_its_end(input_to_step, held, prefetch):
    """Up to one sample, with which a buffer of H gives the first when it has taken in H, and not H + 1."""
    assert epoch_of(input_to_step, held, prefetch) == pytest.approx(sample_by_sample(input_to_step, held, prefetch), abs=0.3)


def test_a_shuffle_before_the_work_is_filled_in_its_share_of_the_time():
    settings = {"strategy": {"kind": "single"}, "job": {"epochs": 2, "dataset_size": 10_000}, "run.steps": 20}
    work = {"serial": {"base_s": 0.01, "per_sample_s": 0.0}}
    whole, share = (
        simulate(load_scenario("ring", settings | {"input": {"work": work, **held}})).job.parts_s
        for held in ({"shuffle_buffer": 1024}, {"shuffle_buffer": 4096, "shuffle_fill": 0.25})
    )
    assert share == whole
    assert share.filling > 0


REAL = {0: (3.5191, 3.5737, 3.5422), 10: (3.9155, 3.8998, 3.9442), 20: (4.2572, 4.2832, 4.3060), 50: (4.7190, 4.6413, 4.7470)}
"""Seconds of real epochs by batches that the buffer takes: TensorFlow 2.21 on 2 cores, 240 samples through
``map(numpy_function that sleeps 12.5 ms).shuffle(held).batch(8).prefetch(1)`` into a loop whose step sleeps 40 ms, 41 ms in fact;
autotuning off."""
REAL_STEP_S = 0.041


@pytest.mark.parametrize("held", [10, 20, 50])
def test_real_epochs_that_input_limits_end_with_what_the_buffer_holds(held):
    """The time of a batch is told by epochs without a buffer: n s + c."""
    input_s = (np.mean(REAL[0]) - REAL_STEP_S) / BATCHES
    predicted_s = epoch_of(input_s / REAL_STEP_S, held * OF) * REAL_STEP_S
    assert predicted_s == pytest.approx(np.mean(REAL[held]), rel=0.03)


@pytest.mark.slow
def test_the_same_whatever_the_engine():
    settings = [
        ("strategy.workers", 4), JITTER, ("job.samples", 2e5), ("job.checkpoint", {"every": "5 s", "write": "100 MB/s"}),
        ("job.faults", {"worker_mtbf": "60 s", "restart": "3 s"}), ("run.replications", 4), ("run.steps", 40),
    ]  # fmt: skip
    one, other = (simulate(load_scenario("async-ps", [*settings, ("run.engine", engine)])) for engine in ("simpy", "compiled"))
    assert one.job.model_dump_json() == other.job.model_dump_json()
    assert one.job.faults > 0


@pytest.mark.slow
def test_sync_against_async_under_the_same_faults():
    """What a worker's crash costs: those that hold the state go back to a checkpoint, asynchronous ones go on, others wait."""
    faults = {"trace": [{"at": "20 s", "of": "worker", "number": 1}], "detection": "2 s", "restart": "8 s"}
    run = [("run.replications", 4), ("run.steps", 40), ("discrepancy", "none")]
    common = [("strategy.workers", 4), ("job.samples", 1e6), ("job.startup", "5 s"), ("job.faults", faults), *run]
    ring = simulate(load_scenario("ring", [*common, ("job.checkpoint", {"every": "8 s", "write": "1 GB/s"})])).job.parts_s
    parts = {mode: simulate(load_scenario("async-ps", [*common, ("strategy.mode", mode)])).job.parts_s for mode in ("async", "sync")}
    assert ring.down == pytest.approx(2.0 + 8.0 + 5.0, abs=0.2)
    assert 0.0 < ring.lost_work < 9.0
    assert parts["sync"].lost_work == parts["async"].lost_work == parts["async"].down == 0.0
    assert parts["sync"].down == pytest.approx(15.0)
    assert parts["sync"].fewer_workers == 0.0
    assert 0.0 < parts["async"].fewer_workers < 15.0


def test_an_evaluation_takes_no_more_samples_than_it_has():
    """A batch that is larger than the evaluation's data takes as long as that data."""
    settings = [("job.epochs", 1), ("job.dataset_size", 10_000), ("job.evaluation.samples", 500), ("job.evaluation.every_epochs", 1)]
    of = {
        batch: simulate(load_scenario("ring", [*settings, ("job.evaluation.batch", batch)])).job.parts_s.evaluation for batch in (63, 10**6)
    }
    assert of[63] == of[10**6] > 0  # 500 samples on 8 replicas: 63 each


def test_an_asynchronous_checkpoint_is_waited_for_by_that_of_the_next_epoch():
    settings = [
        ("job.epochs", 5), ("job.dataset_size", 10_000), ("job.checkpoint.mode", "asynchronous"), ("job.checkpoint.every_epochs", 1),
        ("job.checkpoint.snapshot", "1 ms"), ("job.checkpoint.size", "1 GB"), ("job.checkpoint.write", "100 MB/s"),
    ]  # fmt: skip
    job = simulate(load_scenario("ring", settings)).job
    epoch_s = job.parts_s.steps / 5
    assert epoch_s < 1.0
    assert job.parts_s.checkpoints == pytest.approx(5 * 0.001 + 4 * (10.0 - epoch_s))  # the first waits for none
    assert [epoch.like_it for epoch in job.each_epoch] == [1, 4]
    assert sum(epoch.like_it * epoch.time_s for epoch in job.each_epoch) == pytest.approx(job.time_s.mean)


EIGHT = {"inter_node": FAST, "intra_node": FAST, "devices_per_node": 8}
DISK = {"storage": {"node_write": "1 GB/s", "node_bandwidth": "2 GB/s"}}


@pytest.mark.parametrize(
    ("strategy", "cluster", "written_s", "read_s"),
    [
        # 4 nodes, of each of which 1 GB/s is written and 2 GB/s are read; 40 GB: a third parameters, two thirds slots of adam
        ({"kind": "multi-worker-mirrored", "replicas_per_worker": 8, "workers": 4}, {}, 40.0, 20.0),
        ({"workers": 32, "shard": "parameters"}, {}, 10.0, 5.0),
        ({"workers": 32, "shard": "parameters"}, {"write": "2 GB/s", "bandwidth": "5 GB/s"}, 20.0, 8.0),
        ({"workers": 32, "shard": "parameters", "shard_group": 8}, {}, 40.0, 20.0),  # the first node has a whole state
        ({"workers": 32, "shard": "parameters", "shard_group": 16}, {}, 20.0, 10.0),
        ({"workers": 32, "shard": "optimizer"}, {}, 40 / 3 + 80 / 3 / 4, (40 / 3 + 80 / 3 / 4) / 2),
        ({"workers": 32, "shard": "gradients", "shard_group": 16}, {}, 40 / 3 + 80 / 3 / 2, (40 / 3 + 80 / 3 / 2) / 2),
        ({"workers": 32, "pipeline": 4}, {}, 10.0, 5.0),  # copies of a stage fill a node, and read it once
        ({"workers": 32, "pipeline": 4, "order": "pipeline"}, {}, 40.0, 20.0),  # the first copy is half of the first node
        ({"workers": 32, "pipeline": 4, "shard": "parameters"}, {}, 10.0, 5.0),
        ({"workers": 4, "pipeline": 4}, {}, 40.0, 20.0),  # of one node
    ],
)  # fmt: skip
def test_nodes_write_and_read_the_parts_that_their_devices_hold(strategy, cluster, written_s, read_s):
    """By hand: who has which part of 40 GB, and what the busiest node or the storage as a whole takes for it."""
    writing = writing_of(_with_checkpoint(strategy, {"storage": {**DISK["storage"], **cluster}}))
    assert (writing.stop_s, writing.restore_s) == (pytest.approx(written_s), pytest.approx(read_s))


@pytest.mark.parametrize(
    ("strategy", "per_link", "copied_s"),
    [
        ({"kind": "multi-worker-mirrored", "replicas_per_worker": 8, "workers": 1}, 1, 2.0),
        ({"workers": 8, "shard": "parameters"}, 1, 0.25),
        ({"workers": 8, "shard": "parameters"}, 4, 1.0),  # four devices take turns on a link
        ({"workers": 8, "shard": "optimizer"}, 1, 2 / 3 + 4 / 3 / 8),  # the first has all parameters too
        ({"workers": 8, "pipeline": 4}, 1, 0.5),
        ({"workers": 8, "pipeline": 4, "shard": "optimizer"}, 1, (2 / 3 + 4 / 3 / 2) / 4),
    ],
)  # fmt: skip
def test_devices_copy_the_parts_that_they_hold_to_their_hosts(strategy, per_link, copied_s):
    """By hand: 40 GB over links of 20 GB/s."""
    cluster = {"host_link": {"bandwidth": "20 GB/s", "latency": "0 s"}, "devices_per_host_link": per_link, **DISK}
    writing = writing_of(_with_checkpoint(strategy, cluster, mode="asynchronous"))
    assert writing.stop_s == pytest.approx(copied_s)


@pytest.mark.parametrize(
    ("strategy", "written_s"),
    [
        # 4 nodes of one device; half of the variables are experts', which are spread
        ({"workers": 4, "expert": 4}, 20 + 20 / 4),
        ({"workers": 4, "expert": 2}, 20 + 20 / 2),
        ({"workers": 4, "expert": 2, "shard": "parameters"}, 10.0),
        ({"workers": 4, "expert": 4, "shard": "parameters", "shard_group": 2}, 20 / 2 + 20 / 4),
    ],
)  # fmt: skip
def test_experts_are_written_by_those_that_hold_them(strategy, written_s):
    load = hybrid({"workers": 4}).workload
    layers = [
        layer.model_copy(update={"experts": Experts(count=8, bytes_per_sample=1.0, variables=layer.variables if at % 2 else ())})
        for at, layer in enumerate(load.layers)
    ]
    scenario = hybrid(strategy, cluster=DISK, layer={"experts": {"count": 8, "bytes_per_sample": 1.0}})
    scenario = scenario.model_copy(update={"workload": scenario.workload.model_copy(update={"layers": tuple(layers)})})
    assert writing_of(_checkpointed(scenario)).stop_s == pytest.approx(written_s)


@pytest.mark.parametrize("mode", ["blocking", "asynchronous"])
def test_a_checkpoint_takes_the_time_that_is_given(mode):
    """Whatever its size and the storage; reading it takes as long, or its size over the rate that is given."""
    for restore, restore_s in ({}, 180.0), ({"restore": "1 GB/s"}, 40.0):
        writing = writing_of(_with_checkpoint({"workers": 32}, DISK, mode=mode, duration="3 min", snapshot="2 s", **restore))
        assert (writing.stop_s, writing.lasts_s) == ((180.0, 0.0) if mode == "blocking" else (2.0, 180.0))
        assert writing.restore_s == restore_s


def test_duration_and_rate_of_a_checkpoint_exclude_each_other():
    with pytest.raises(ScenarioError, match=r"job\.checkpoint: has duration and write"):
        load_scenario("ring", [("job.samples", 1e6), ("job.checkpoint", {"every": "5 s", "duration": "1 s", "write": "1 GB/s"})])


SPOT = {"name": "spot", "usd_per_node_hour": 1.0, "preemption": {"mtbf": "20 min", "replacement": "1 min"}}
ON_DEMAND = {"usd_per_node_hour": 4.0}
BEST = [("job.samples", 1e8), ("job.checkpoint", {"interval": "best", "duration": "10 s"})]


def test_the_best_interval_where_nothing_fails_is_a_whole_sentence():
    with pytest.raises(
        ScenarioError, match=r"nothing fails here: give job.faults, or an interval such as job.checkpoint.every = .30 min.$"
    ):
        load_scenario("ring", BEST)


def test_on_demand_and_spot_offers_share_the_best_interval():
    """A spot price writes as often as is best, with what job.faults says of a lost node; at an on-demand price nothing is written."""
    spot, rented = (
        simulate(
            load_scenario("ring", [*BEST, ("job.faults", {"detection": "30 s"}), ("cluster.price", price), ("cluster.offers", [other])])
        )
        for price, other in ((SPOT, ON_DEMAND), (ON_DEMAND, SPOT))
    )
    checkpointing = spot.job.checkpointing
    assert checkpointing.interval_s == pytest.approx(checkpointing.best_s, rel=0.03)  # in whole steps of each run
    assert rented.job.checkpointing is None
    assert (rented.job.faults, rented.job.parts_s.checkpoints) == (0.0, 0.0)
    assert [warning.path for warning in rented.warnings if warning.code == "no-effect"] == ["job.checkpoint.interval"]


@pytest.mark.parametrize("every", [("24.5 min", 1470.0), ("2 min", 120.0)])
def test_what_is_told_of_checkpoints_is_what_was_set_and_what_a_clock_shows(every):
    """A mark every X of steps; between two of them pass X and what writing one takes, where nothing fails."""
    text, set_s = every
    given = [("job.samples", 3e9), ("job.checkpoint", {"every": text, "duration": "30 s"}), ("job.faults", {"job_mtbf": "1e6 h"})]
    result = simulate(load_scenario("ring", [*given, ("run.steps", 20)]))
    told = result.job.checkpointing
    assert told.set_s == set_s
    assert told.interval_s == pytest.approx(set_s, abs=result.step_time_s.mean)
    assert told.wall_s == pytest.approx(told.interval_s + 30.0)
    written = result.job.parts_s.checkpoints / 30.0
    made_s = result.job.time_s.mean - result.job.parts_s.checkpoints - result.job.parts_s.startup
    assert made_s / written == pytest.approx(set_s, rel=0.02)  # the clock of the job itself


def test_a_spot_price_takes_detection_and_start_up():
    """Each node that is taken adds both to the time that the job is down."""
    price = {**SPOT, "preemption": {"mtbf": "40 h", "replacement": "1 min"}}
    down_s = []
    for faults in ({}, {"detection": "30 s", "startup": "70 s"}):
        given = [("job.faults", faults)] if faults else []
        result = simulate(load_scenario("ring", [*BEST, ("job.samples", 1e10), ("cluster.price", price), *given]))
        down_s.append(result.job.parts_s.down / result.job.faults)
    assert down_s[1] - down_s[0] == pytest.approx(100.0, rel=0.02)  # few come while the job is down


def test_faults_without_any_are_refused():
    with pytest.raises(ScenarioError, match=r"job\.faults has no fault: .*cluster\.price\.preemption"):
        load_scenario("ring", [("job.samples", 1e6), ("job.faults", {"detection": "30 s"})])


def _with_checkpoint(strategy, cluster, **checkpoint):
    return _checkpointed(hybrid(strategy, cluster={**EIGHT, **cluster}), **checkpoint)


def _checkpointed(scenario, **checkpoint):
    load = scenario.workload.model_copy(update={"optimizer": "adam"})
    job = {"samples": 1e6, "checkpoint": {"every_steps": 10, "size": "40 GB", **checkpoint}}
    return scenario.model_copy(update={"workload": load, "job": Job(**job)})


@pytest.mark.slow
def test_runs_of_which_too_few_end_have_no_interval():
    """One that ends says nothing of the others."""
    settings = [("job.samples", 1e6), ("job.faults.retries", 0), ("run.replications", 3)]
    told = set()
    for seed in range(12):
        for mtbf in ("4 min", "8 min"):
            try:
                job = simulate(load_scenario("ring", [*settings, ("run.seed", seed), ("job.faults.node_mtbf", mtbf)])).job
            except SimulationError as error:
                told.add(str(error).split(" of the job ")[0])
            else:
                assert job.given_up in (0.0, pytest.approx(1 / 3))
    assert told == {"every run", "all but one of 3 runs"}
