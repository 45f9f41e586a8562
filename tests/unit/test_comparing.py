"""Results compared run by run: what they have in common cancels, and where they have nothing in common it is said."""

from __future__ import annotations

from statistics import fmean
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from support.jobs import with_job
from support.scenarios import scenario_table

from paceline.comparing import Comparison, compare, has_effect, is_condition, rank, rivals_of, share_draws
from paceline.planning.configurations import behind
from paceline.reporting.content import scaling_in_words
from simulator import load_scenario, scenario_from_table, simulate
from simulator.base.rng import Streams
from simulator.catalogue.loading import apply_settings
from simulator.results.intervals import normal_half_width, paired_ratio, prediction_interval, wins
from simulator.results.results import Result
from simulator.spec.figures import Estimate
from simulator.spec.uncertainty import with_draw
from simulator.spec.workload import DeviceTransfer

WIDE = {
    "uncertainty": {
        "parameters": ["forward.per_sample_s", "backward.per_sample_s"],
        "draws": [[1e-4 * factor, 2e-4 * factor] for factor in np.geomspace(0.2, 5.0, 40).tolist()],
    },
    "jitter": {"kind": "lognormal", "sigma": 0.1},
}
"""Nobody knows within a factor of 25 what a sample costs."""


def ring(workers: int = 4, **parts: dict[str, Any]) -> Result:
    table = scenario_table(workload=WIDE, strategy={"kind": "multi-worker-mirrored", "workers": workers}, run={"replications": 19})
    return simulate(scenario_from_table({key: {**table[key], **parts.get(key, {})} for key in table}, "test"))


def with_runs(result: Result, runs: list[float], **changes: Any) -> Result:
    changes.setdefault("throughput_samples_per_s", prediction_interval(runs))
    return result.model_copy(update={"throughput_of_each_replication": tuple(runs), **changes})


@pytest.fixture(scope="module")
def base() -> Result:
    return ring()


def test_the_ratio_of_pairs_is_that_of_each_pair() -> None:
    theirs = [float(value) for value in range(1, 20)]
    ours = [value * (1.0 + 0.01 * place) for place, value in enumerate(theirs)]
    found = paired_ratio(ours, theirs)
    # of 19 values the ends are the least and the largest (Wilks)
    assert (found.low, found.mean, found.high) == pytest.approx((1.0, 1.09, 1.18))
    assert wins(ours, theirs) == 18, "the first pair is equal, and that is no win"
    assert wins(theirs, ours) == 0
    few = paired_ratio([2.0, 3.0, 4.0], [1.0, 1.0, 1.0])
    assert few.high - few.mean == pytest.approx(2.920 * np.sqrt(4 / 3)) == pytest.approx(normal_half_width(3))
    for function in (paired_ratio, wins):
        with pytest.raises(ValueError, match=r"shorter|longer"):
            function([1.0, 2.0], [1.0])


def test_what_both_runs_have_in_common_cancels(base: Result) -> None:
    """What a sample costs leaves the throughput open by a factor of 3, what twice the network brings by less than a tenth.

    So does the efficiency, whose logarithm is left open by less than a quarter of what the throughput's is.
    """
    rate = base.throughput_samples_per_s
    assert rate.high / rate.low > 2.5
    fast = ring(cluster={"inter_node": {"bandwidth": "2 GB/s", "latency": "0 s"}})
    found = compare(fast, base)
    assert (found.runs, found.wins, found.losses) == (19, 19, 0)
    assert found.clear
    assert found.ratio.high / found.ratio.low < 1.1
    assert 1 < found.ratio.low < found.ratio.mean < found.ratio.high
    efficiency = base.scaling_efficiency
    assert np.log(efficiency.high / efficiency.low) < np.log(rate.high / rate.low) / 4


@pytest.mark.parametrize(
    ("change", "why"),
    [({"seed": 99}, "another seed"), ({"throughput_of_each_replication": ()}, "a file that keeps no single runs")],
)
def test_runs_that_share_nothing_are_no_pairs(base: Result, change: dict[str, Any], why: str) -> None:
    other = base.model_copy(update=change)
    assert not share_draws(base, other), why
    found = compare(other, base)
    rate = base.throughput_samples_per_s
    assert found == Comparison(Estimate(mean=1.0, low=rate.low / rate.high, high=rate.high / rate.low))
    assert not found.clear


def test_another_number_of_replications_makes_no_pairs(base: Result) -> None:
    assert not share_draws(base, ring(run={**scenario_table()["run"], "replications": 20}))


def test_two_moves_to_other_devices_make_no_pairs(base: Result) -> None:
    """Draws of both factors come in the same order; taken as pairs, two guesses would agree run by run."""

    def moved(factor: float) -> Result:
        known = DeviceTransfer.model_validate(
            {"rule": "given", "factor": (factor, factor, factor), "source": "x", "from_device": "a", "to_device": "b", "text": "x"}
        )
        return base.model_copy(update={"moved": known})

    assert share_draws(moved(0.5), base)
    assert share_draws(moved(0.5), moved(0.5))
    assert not share_draws(moved(0.5), moved(0.25))


def test_an_overridden_parameter_leaves_the_draws_of_the_others_where_they_were() -> None:
    """Run i of both still has the same row of the fit's draws, so both are pairs."""
    table = scenario_table(workload=WIDE, strategy={"kind": "multi-worker-mirrored", "workers": 2})
    whole = scenario_from_table(table, "test")
    part = scenario_from_table(apply_settings(table, [("workload.forward.per_sample_s", 1e-4)]), "test")
    assert part.workload.uncertainty is not None
    assert part.workload.uncertainty.parameters == ("backward.per_sample_s",)
    drawn = []
    for replication in range(19):
        one, other = (
            with_draw(its.workload, its.workload.uncertainty, Streams(its.run.seed, replication).generator("workload"))
            for its in (whole, part)
        )
        assert one.backward.per_sample_s == other.backward.per_sample_s
        assert other.forward.per_sample_s == 1e-4
        drawn.append(one.backward.per_sample_s)
    assert len(set(drawn)) > 10, "one row for all would be no test"


def test_the_catalogues_workload_keeps_its_pairs_when_a_part_of_it_is_set() -> None:
    """An override of `use`d figures goes another way through loading."""
    whole, part = (load_scenario("ring", settings) for settings in ([], [("workload.apply_s", 4e-4)]))
    assert whole.workload.uncertainty is not None
    assert part.workload.uncertainty is not None
    place = whole.workload.uncertainty.parameters.index("apply_s")
    kept = tuple(row[:place] + row[place + 1 :] for row in whole.workload.uncertainty.draws)
    assert part.workload.uncertainty.draws == kept


def test_where_the_fastest_is_preferred_another_is_behind_in_throughput() -> None:
    """233 of 457 samples/s are 49% less; a sample takes 96% longer, which is no throughput."""
    goal = SimpleNamespace(prefer="fastest", samples=None)
    slow, fast = (cast(Any, SimpleNamespace(value=1 / rate, result=None, goal=goal)) for rate in (233.0, 457.0))
    assert behind(slow, fast) == "49% lower throughput"
    assert behind(fast, slow) == "96% higher throughput"
    assert behind(fast, fast) == "just as fast"


@pytest.mark.parametrize(
    ("scaling", "batches", "said"),
    [
        ("weak", (32,), "weak scaling: each worker keeps its batch of 32 samples"),
        ("weak", (2, 4, 32), "weak scaling with several batches: 2 to 32 samples of each worker"),
        ("strong", (64, 128), "strong scaling with several batches: 64 and 128 samples of all workers together"),
    ],
)
def test_several_batches_are_no_batch_of_several_sizes(scaling: str, batches: tuple[int, ...], said: str) -> None:
    assert scaling_in_words((scaling,), batches, "worker") == said


def test_a_change_that_reads_as_nothing_is_none() -> None:
    assert not has_effect(Estimate(mean=1.0001, low=1.00005, high=1.0002))
    assert not has_effect(Estimate(mean=1.05, low=0.99, high=1.1))
    assert has_effect(Estimate(mean=1.05, low=1.01, high=1.1))
    assert has_effect(Estimate(mean=0.95, low=0.9, high=0.99))


def test_rivals_have_as_many_replicas_and_meet_the_same(base: Result) -> None:
    results = [base, with_runs(base, [1.0, 2.0]), ring(8), with_runs(base, [5.0, 6.0])]
    assert rivals_of(results, 0, [0, 0, 0, 0]) == [3, 1]
    assert rivals_of(results, 0, [0, 0, 0, 1]) == [1]
    assert rivals_of(results, 2, [0, 0, 0, 0]) == []


def test_whole_jobs_are_ranked_and_compared_by_their_time(base: Result) -> None:
    few, many = (with_job(base), with_job(base, plain=True))
    assert few.throughput_samples_per_s == many.throughput_samples_per_s
    assert sorted([few, many], key=rank) == [many, few]
    assert rivals_of([few, many, with_job(base, 1e4)], 1, [0, 0, 1]) == [0]
    of_steps, of_jobs = compare(many, few), compare(many, few, whole_jobs=True)
    assert of_steps.ratio.mean == 1.0
    assert of_jobs.wins == of_jobs.runs
    assert few.job is not None
    assert many.job is not None
    pairs = zip(many.job.samples_per_s_of_each_replication, few.job.samples_per_s_of_each_replication, strict=True)
    assert of_jobs.ratio.mean == pytest.approx(fmean(one / other for one, other in pairs))


@pytest.mark.parametrize(
    ("path", "met"),
    [
        ("job.faults.node_mtbf_s", True),
        ("job.faults.preemption.mtbf_s", True),
        ("input.work.read_bytes_per_sample", True),
        ("workload.input.per_sample_s", True),
        ("job.faults.detection_s", False),
        ("job.checkpoint.every_s", False),
        ("input.prefetch", False),
        ("replicas", False),
        ("workload.global_batch", False),
    ],
)
def test_what_nobody_chooses_is_a_condition(path: str, met: bool) -> None:
    assert is_condition(path) is met
