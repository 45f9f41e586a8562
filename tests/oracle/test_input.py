"""Pipelines of ``[input]``: against closed forms, and a recurrence of a queue with room for a number of batches."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.runs import FAST, recorded
from support.scenarios import scenario_table

from paceline.planning.improvements import improved
from simulator import load_scenario, scenario_from_table, simulate
from simulator.base.rng import Streams
from simulator.engine.draws import Jitter
from simulator.job.costs import fill_of, first_epoch
from simulator.spec.distributions import Exponential
from simulator.strategies.pipelines import cpu_s, pipelines

STEP_S = 6.5e-3
"""Passes (6 ms) and update (0.5 ms) of the sample scenario."""
WORKERS = {"kind": "multi-worker-mirrored", "workers": 4}
ASYNC = {"kind": "parameter-server", "mode": "async", "workers": 4}
TINY = [{"name": "v", "size": "4 B", "creation_index": 0, "ready": 1.0}]
LONG = {"steps": 60, "warmup_steps": 20}


def pipeline(work: dict, **keys) -> dict:
    return {"work": work, **keys}


def serial(seconds: float) -> dict:
    return {"serial": {"base_s": seconds, "per_sample_s": 0.0}}


def step_s(built) -> float:
    return simulate(built).step_time_s.mean


# -- a pipeline by itself ------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [1, 2, 7])
@pytest.mark.parametrize("batch_s", [1e-3, 6.4e-3, 9e-3, 20e-3])
def test_a_step_takes_as_long_as_the_slower_of_compute_and_input(scenario, prefetch: int, batch_s: float) -> None:
    built = scenario(input=pipeline(serial(batch_s), prefetch=prefetch), run=LONG)
    assert step_s(built) == pytest.approx(max(STEP_S, batch_s), rel=1e-9)


def test_without_prefetch_one_follows_the_other(scenario) -> None:
    assert step_s(scenario(input=pipeline(serial(9e-3), prefetch=0), run=LONG)) == pytest.approx(STEP_S + 9e-3, rel=1e-9)


def test_one_batch_ahead_is_what_workload_input_says(scenario) -> None:
    """To the last bit, with all that a result has besides its scenario."""
    for strategy in ({"kind": "single"}, WORKERS, ASYNC, {"kind": "gossip", "workers": 4}):
        law = {"base_s": 2e-3, "per_sample_s": 0.7e-3}
        own = simulate(scenario(strategy=strategy, workload={"jitter": {"kind": "exponential"}, "input": law}))
        its = simulate(scenario(strategy=strategy, workload={"jitter": {"kind": "exponential"}}, input=pipeline({"serial": law})))
        apart = {"scenario", "scenario_hash", "bottleneck"}
        assert its.model_dump(exclude=apart) == own.model_dump(exclude=apart)


@pytest.mark.parametrize("prefetch", [0, 1, 2, 5])
def test_times_that_vary_make_a_queue_with_room_for_so_many(scenario, prefetch: int) -> None:
    """Two servers in a row, the buffer between them of so many places, one more in work: departures by their recurrence.

    The producer begins batch j when it has delivered j - 1 and batch j - prefetch has left the buffer; the consumer takes j when
    it is there and step j - 1 has ended, and then computes for a constant time.
    """
    steps = 60
    built = scenario(
        input=pipeline(serial(STEP_S), prefetch=prefetch, jitter={"kind": "exponential"}), run={"steps": steps, "warmup_steps": 0}
    )
    factors = np.empty((1, steps))
    Jitter(Exponential(), None, Streams(built.run.seed, 0), np.arange(1), name="input").fill(np.arange(1), factors)
    taken, ready, ended, ends = [], 0.0, 0.0, []
    for batch, factor in enumerate(factors[0].tolist()):
        begun = max(ready, taken[batch - prefetch]) if 0 < prefetch <= batch else ready if prefetch else ended
        ready = begun + STEP_S * factor
        taken.append(max(ready, ended))
        ended = taken[-1] + STEP_S
        ends.append(ended)
    assert [step.end_s for step in recorded(built).steps] == pytest.approx(ends, rel=1e-12)


def test_with_room_for_all_only_the_producers_sum_counts(scenario) -> None:
    """More room than steps: step j ends at the largest of the sums up to i and the computes after it (Lindley)."""
    steps = 40
    built = scenario(input=pipeline(serial(STEP_S), prefetch=100, jitter={"kind": "exponential"}), run={"steps": steps, "warmup_steps": 0})
    factors = np.empty((1, steps))
    Jitter(Exponential(), None, Streams(built.run.seed, 0), np.arange(1), name="input").fill(np.arange(1), factors)
    arrivals = np.cumsum(factors[0] * STEP_S)
    ends = [max(arrivals[first] + (last - first + 1) * STEP_S for first in range(last + 1)) for last in range(steps)]
    assert [step.end_s for step in recorded(built).steps] == pytest.approx(ends, rel=1e-12)


# -- parts of a batch ----------------------------------------------------------------------


def test_the_slowest_part_counts(scenario) -> None:
    work = {**serial(7e-3), "parallel": {"base_s": 0.0, "per_sample_s": 6e-3}, "read_bytes_per_sample": 1e6}
    cluster = {"storage": {"bandwidth": "2 GB/s", "latency": "3 ms"}}
    for calls, cores, megabytes_per_s, expected in (
        (4, None, 2000, 15e-3),  # 60 ms by four calls
        (20, None, 2000, 8e-3),  # 3 ms, and 10 MB at 2 GB/s
        (20, None, 4000, 7e-3),  # the iterator
        (20, 3, 2000, 25e-3),  # a seventh of a core for each of 21 threads: the calls end at 21 ms, and 4 ms of the iterator are left
        (2, 8, 2000, 30e-3),
    ):
        own = {**cluster["storage"], "bandwidth": f"{megabytes_per_s} MB/s"}
        built = scenario(
            input=pipeline(work, parallel_calls=calls), cluster={"storage": own, **({"host_cores": cores} if cores else {})}, run=LONG
        )
        assert step_s(built) == pytest.approx(expected, rel=1e-9), (calls, cores)


def test_threads_share_cores_evenly() -> None:
    """One thread with 2 s, four with 1 s each, on two cores: 0.4 of a core each, the four end at 2.5 s, 1 s is left of the one."""
    assert cpu_s(2.0, 4.0, 4, 2.0) == pytest.approx(3.5)
    assert cpu_s(0.5, 4.0, 4, 2.0) == pytest.approx(2.25)  # work is conserved
    assert cpu_s(2.0, 4.0, 4, math.inf) == 2.0


def test_what_pipelines_share_by_turns_is_what_one_has_alone(scenario) -> None:
    """The same threads, simulated as flows over a node's cores because another pipeline might want them, and by the closed form."""
    work = {**serial(2e-3), "parallel": {"base_s": 4e-3, "per_sample_s": 0.0}}
    one = scenario(input=pipeline(work, parallel_calls=4, prefetch=0), cluster={"host_cores": 2, **FAST}, run=LONG)
    two = scenario(
        input=pipeline(work, parallel_calls=4, prefetch=0, per="replica"),
        cluster={"host_cores": 4, "devices_per_node": 2, **FAST},
        strategy={"kind": "mirrored", "replicas": 2},
        run=LONG,
        workload={"variables": TINY},
    )
    assert not pipelines(one).shares_cores
    assert pipelines(two).shares_cores
    assert step_s(one) == pytest.approx(STEP_S + 3.5e-3, rel=1e-9)
    assert step_s(two) == pytest.approx(STEP_S + 3.5e-3, rel=1e-3)  # and an all-reduce of 4 bytes


# -- what several share --------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [WORKERS, ASYNC])
@pytest.mark.parametrize("prefetch", [1, 3])
def test_storage_gives_all_nodes_so_many_samples_a_second(scenario, strategy: dict, prefetch: int) -> None:
    built = scenario(
        input=pipeline({"read_bytes_per_sample": 1e6}, prefetch=prefetch),
        cluster={"storage": {"bandwidth": "500 MB/s"}, **FAST}, strategy=strategy, run=LONG,
    )  # fmt: skip
    assert simulate(built).throughput_samples_per_s.mean == pytest.approx(500.0, rel=1e-3)


@pytest.mark.parametrize(("node", "samples_per_s"), [("50 MB/s", 200.0), ("150 MB/s", 500.0)])
def test_a_node_reads_no_faster_than_it_can_and_all_no_faster_than_the_storage(scenario, node: str, samples_per_s: float) -> None:
    storage = {"bandwidth": "500 MB/s", "node_bandwidth": node}
    built = scenario(input=pipeline({"read_bytes_per_sample": 1e6}), cluster={"storage": storage, **FAST}, strategy=WORKERS, run=LONG)
    assert simulate(built).throughput_samples_per_s.mean == pytest.approx(samples_per_s, rel=1e-6)


def test_cores_of_a_node_give_its_pipelines_so_much_work(scenario) -> None:
    built = scenario(
        input=pipeline({"parallel": {"base_s": 0.0, "per_sample_s": 4e-3}}, parallel_calls=4, per="replica"),
        cluster={"host_cores": 4, "devices_per_node": 4, **FAST}, strategy={"kind": "mirrored", "replicas": 4}, run=LONG,
    )  # fmt: skip
    assert simulate(built).throughput_samples_per_s.mean == pytest.approx(1000.0, rel=1e-3)


def test_reading_over_the_network_takes_turns_with_gradients(scenario) -> None:
    """A node gets 10 MB of a batch and a megabyte of variables a step over its link of 1 GB/s, which is always full: 11 ms."""
    quick = {"forward": {"base": "10 us", "per_sample": "0 s"}, "backward": {"base": "10 us", "per_sample": "0 s"}, "apply": "1 us"}
    its, strategy = pipeline({"read_bytes_per_sample": 1e6}, prefetch=4), {**ASYNC, "workers": 1}
    for storage, expected_s in (({"bandwidth": "100 GB/s", "over_network": True}, 11e-3), ({"bandwidth": "1 GB/s"}, 10e-3)):
        built = scenario(workload=quick, input=its, cluster={"storage": storage}, strategy=strategy, run=LONG)
        assert step_s(built) == pytest.approx(expected_s, rel=1e-6)


def test_an_all_reduce_whose_links_carry_input_goes_message_by_message(scenario) -> None:
    """Each of four nodes gets 10 MB of a batch and 1.5 MB of a ring a step, over 1 GB/s."""
    storage = {"over_network": True}
    quick = {"forward": {"base": "10 us", "per_sample": "0 s"}, "backward": {"base": "10 us", "per_sample": "0 s"}, "apply": "1 us"}
    built = scenario(
        workload=quick, input=pipeline({"read_bytes_per_sample": 1e6}, prefetch=4), cluster={"storage": storage},
        strategy={**WORKERS, "algorithm": "ring"}, run=LONG,
    )  # fmt: skip
    assert built.rank_messages
    assert step_s(built) == pytest.approx(11.5e-3, rel=1e-6)


def test_one_replica_alone_reads_over_its_own_link(scenario) -> None:
    """10 MB a step at 1 GB/s, whoever else there is: a link of its own for each."""
    built = scenario(
        input=pipeline({"read_bytes_per_sample": 1e6}), cluster={"storage": {"over_network": True}},
        strategy={"kind": "gossip", "workers": 4}, run=LONG, workload={"variables": TINY},
    )  # fmt: skip
    result = simulate(built)
    assert result.step_time_s.mean == pytest.approx(10e-3, rel=1e-3)
    assert result.scaling_efficiency.mean == pytest.approx(1.0, rel=1e-3)


def test_replicas_of_a_process_get_one_batch_together(scenario) -> None:
    """Four replicas of one process: its pipeline prepares 40 samples at a time; with one each, 10."""
    law = {"serial": {"base_s": 0.0, "per_sample_s": 1e-3}}
    for per, expected_s in (("process", 40e-3), ("replica", 10e-3)):
        built = scenario(
            input=pipeline(law, per=per), strategy={"kind": "mirrored", "replicas": 4}, run=LONG, cluster={"devices_per_node": 4, **FAST}
        )
        assert step_s(built) == pytest.approx(expected_s, rel=1e-9)


# -- epochs --------------------------------------------------------------------------------


def test_the_steps_are_those_of_later_epochs(scenario) -> None:
    its = {"work": serial(30e-3), "cached": serial(9e-3), "shuffle_buffer": 100}
    cached = scenario(input=its, run=LONG)
    first = first_epoch(cached)
    assert first is not None
    assert (step_s(cached), step_s(first)) == (pytest.approx(9e-3), pytest.approx(30e-3))
    once = scenario(input=its, run=LONG, job={"epochs": 1, "dataset_size": 50})
    assert step_s(once) == pytest.approx(30e-3)
    # ten batches fill the buffer, then comes the first batch itself; the data set of the other has five batches in all
    assert fill_of(cached, first=True) == (11.0, pytest.approx(11 * 30e-3))
    assert fill_of(cached, first=False) == (11.0, pytest.approx(11 * 9e-3))
    assert fill_of(once, first=True) == (5.0, pytest.approx(5 * 30e-3))


def test_a_scenario_of_the_catalogue_waits_for_its_input() -> None:
    result = simulate(load_scenario("input-bound", [("run.replications", 2)]))
    assert result.bottleneck.name == "input"
    assert result.breakdown_s.input + result.breakdown_s.waiting > result.breakdown_s.compute
    assert "input.parallel_calls" in result.bottleneck.remedy


def test_what_waits_is_told_what_helps() -> None:
    for own, cluster, told in (
        (serial(20e-3), {}, "the serial part of the pipeline"),
        ({"parallel": {"base_s": 40e-3, "per_sample_s": 0.0}}, {}, "more calls (input.parallel_calls)"),
        ({"parallel": {"base_s": 40e-3, "per_sample_s": 0.0}}, {"host_cores": 1}, "more cores (cluster.host_cores)"),
        ({"read_bytes_per_sample": 1e6}, {"storage": {"bandwidth": "100 MB/s"}}, "storage, which delivers 800 Mbit/s to all pipelines"),
    ):
        calls = 2 if "host_cores" in cluster else 1
        table = scenario_table(input=pipeline(own, parallel_calls=calls), cluster=cluster)
        limit = simulate(scenario_from_table(table, "table")).bottleneck
        assert told in f"{limit.text} {limit.remedy}"
    late = scenario_table(input=pipeline(serial(6.4e-3), prefetch=0))
    assert "more prefetch (input.prefetch = 1)" in simulate(scenario_from_table(late, "table")).bottleneck.remedy


@pytest.mark.slow
def test_improvements_of_a_pipeline_are_tried() -> None:
    scenario = load_scenario("input-bound", [("run.replications", 2), ("run.steps", 30)])
    found = {its.name: its for _, its in improved(scenario, simulate(scenario), lambda several: [simulate(each) for each in several])}
    assert found["2x parallel calls"].gain == pytest.approx(1.0, abs=0.1)  # the iterator and storage have room
    gain = found["more prefetch"].gain
    assert gain is not None
    assert 0 <= gain < 0.1
