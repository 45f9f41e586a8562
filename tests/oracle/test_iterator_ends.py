"""Ends of tf.data iterators: against the tuning thread's own loop, draws one by one and jobs worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from support.hybrids import hybrid
from support.scenarios import scenario_table

from simulator import Result, scenario_from_table, simulate
from simulator.job.costs import Iterators, ended_by, longest_wait_s, next_turn_s

ALWAYS = {"ended": 10**9, "waited": 10**9}
NEVER = {"ended": 10**9, "waited": 0}
SERVERS = {"kind": "parameter-server", "mode": "async", "workers": 2, "servers": 1}


def turns_s(until_s: float) -> list[float]:
    """The loop of the thread: a turn, then twice as long a sleep, a minute at the most; after the first, which comes at once."""
    found, at_ms, sleep_ms = [], 0, 10
    while at_ms < until_s * 1000:
        sleep_ms = min(2 * sleep_ms, 60_000)
        at_ms += sleep_ms
        found.append(at_ms / 1000)
    return found


TURNS_S = turns_s(2000.0)


def test_turns_are_those_of_the_loop() -> None:
    turns = turns_s(1000.0)
    for age_s in np.random.default_rng(1).uniform(0.0, 900.0, 500):
        assert next_turn_s(float(age_s)) == pytest.approx(min(turn for turn in turns if turn > age_s))
    at_s = 230.0
    for turn_s in (turn for turn in turns_s(70_000.0) if turn > 230.0):  # from turn to turn
        at_s = next_turn_s(at_s)
        assert at_s == pytest.approx(turn_s)
    for age_s in (0.1, 1.0, 10.0, 60.0):
        assert longest_wait_s(age_s) <= age_s + 0.02
    assert longest_wait_s(1e5) <= 60.0


@pytest.mark.parametrize("age_s", [0.5, 250.0])
@pytest.mark.parametrize(("of_process", "processes", "share"), [(1, 1, 0.25), (3, 1, 0.25), (3, 4, 0.1), (9, 16, 0.02)])
def test_waits_are_those_of_processes_that_end_one_after_another(of_process: int, processes: int, share: float, age_s: float) -> None:
    draws = 2000
    rng = np.random.default_rng(2)
    by_hand = []
    for _ in range(draws):
        ends = []
        for _ in range(processes):
            at_s = age_s
            for _ in range(of_process):
                if rng.random() < share:
                    at_s = next(turn for turn in TURNS_S if turn > at_s)
            ends.append(at_s)
        by_hand.append(max(ends) - age_s)
    its = Iterators(of_process, processes, share, np.random.default_rng(3))
    drawn = [its.wait_s(age_s) for _ in range(draws)]
    error_s = 4 * float(np.std(by_hand)) / math.sqrt(draws)
    assert np.mean(drawn) == pytest.approx(np.mean(by_hand), abs=2 * error_s)
    assert its.mean_wait_s(age_s) == pytest.approx(np.mean(by_hand), abs=error_s)
    assert {round(one, 9) for one in drawn} <= {0.0, *(round(turn - age_s, 9) for turn in TURNS_S)}


def job(ends: dict[str, int] | None, strategy: dict[str, Any] | None = None, **changes: Any) -> Result:
    """Three epochs of 25 steps, with an evaluation after each."""
    table = scenario_table(strategy=strategy or {"kind": "single"})
    table["cluster"]["replicas_per_device"] = 2
    table["workload"] |= {"overheads": {"iterators": ends} if ends else {"startup": "1 s"}}
    samples = table["workload"]["batch_per_replica"] * 25
    table["job"] = {"epochs": 3, "dataset_size": samples, "evaluation": {"samples": samples // 5}, **changes}
    return simulate(scenario_from_table(table, "here"))


def test_a_job_waits_for_each_end() -> None:
    never, always = job(NEVER), job(ALWAYS)
    assert never.job is not None
    assert always.job is not None
    assert never.job.parts_s.iterators == 0.0
    plain = never.job.each_epoch[0]
    epoch_s, evaluation_s = plain.time_s, plain.evaluation_s
    # an evaluation ends what it has used itself; a later epoch what the one before it has used
    waited_s, evaluated_s, began_s, now_s = 0.0, 0.0, 0.0, 0.0
    for number in range(3):
        if number:
            wait_s = longest_wait_s(now_s - began_s)
            waited_s, now_s = waited_s + wait_s, now_s + wait_s
        began_s = now_s
        wait_s = longest_wait_s(evaluation_s)
        evaluated_s, now_s = evaluated_s + evaluation_s + wait_s, now_s + epoch_s + wait_s
    assert always.job.parts_s.iterators == pytest.approx(waited_s, rel=0.02)
    assert always.job.parts_s.evaluation == pytest.approx(evaluated_s, rel=0.02)
    assert always.job.time_s.mean == pytest.approx(now_s, rel=0.02)
    assert math.fsum(always.job.parts_s.model_dump().values()) == pytest.approx(always.job.time_s.mean)
    epochs = [its.model_copy() for its in always.job.each_epoch for _ in range(its.like_it)]
    assert math.fsum(its.iterators_s for its in epochs) == pytest.approx(waited_s, rel=0.02)
    assert math.fsum(its.time_s for its in epochs) == pytest.approx(now_s, rel=0.02)


def test_an_iterator_is_as_old_as_its_first_batch_and_no_older() -> None:
    """Tracing, which comes before that, makes the wait no longer; the epochs and the start-up are the whole job's time."""
    plain, traced = job(ALWAYS, tracing="0 s"), job(ALWAYS, tracing="20 s", evaluation_tracing="0 s")
    assert plain.job is not None
    assert traced.job is not None
    assert traced.job.parts_s.iterators == pytest.approx(plain.job.parts_s.iterators)
    assert traced.job.time_s.mean == pytest.approx(plain.job.time_s.mean + 20.0)
    assert math.fsum(its.time_s * its.like_it for its in traced.job.each_epoch) == pytest.approx(traced.job.time_s.mean)


def test_an_epoch_waits_for_what_the_one_before_it_has_used() -> None:
    """Three epochs, of which the last is short, and evaluations every other epoch."""
    samples = 250
    mixed = job(ALWAYS, epochs=2.2, dataset_size=samples, evaluation={"samples": 50, "every_epochs": 2}).job
    assert mixed is not None
    first, second, last = mixed.each_epoch
    assert last.steps < first.steps
    assert last.iterators_s == pytest.approx(longest_wait_s(second.time_s - longest_wait_s(first.time_s)), rel=0.05)
    assert math.fsum(its.iterators_s for its in mixed.each_epoch) == pytest.approx(mixed.parts_s.iterators, rel=0.02)


def test_of_a_cut_model_each_copy_has_one() -> None:
    assert ended_by(hybrid({"workers": 8, "pipeline": 4}, 4)) == (1, 2)
    assert ended_by(scenario_from_table(scenario_table(strategy={"kind": "multi-worker-mirrored", "workers": 4}), "here")) == (2, 4)


def test_only_what_is_renewed_and_waited_for_together_waits() -> None:
    assert (kept := job(ALWAYS, iterators="kept").job) is not None
    assert (beside := job(ALWAYS, SERVERS).job) is not None
    assert (several := job(ALWAYS, {"kind": "mirrored", "replicas": 2}).job) is not None
    assert (alone := job(ALWAYS).job) is not None
    assert kept.parts_s.iterators == beside.parts_s.iterators == 0.0
    assert kept.parts_s.evaluation == pytest.approx(alone.parts_s.evaluation)  # which end theirs
    assert several.parts_s.iterators > 2 * alone.parts_s.iterators  # the host's and one for each replica, one after the other


def test_what_was_not_measured_is_said() -> None:
    def codes(result: Result) -> list[str]:
        return [one.code for one in result.warnings]

    assert "iterator-ends" in codes(job(None))
    for silent in (job(NEVER), job(None, SERVERS), job(None, iterators="kept", evaluation=None), job(None, epochs=1, evaluation=None)):
        assert "iterator-ends" not in codes(silent)
    assert "iterator-ends" in codes(job(None, epochs=1))  # its evaluation ends one
    several = next(one for one in job(None, {"kind": "mirrored", "replicas": 2}).warnings if one.code == "iterator-ends")
    assert "each process has 3" in several.text
    assert any(one.path == "job.iterators" for one in job(None, SERVERS, iterators="kept").warnings if one.code == "no-effect")
