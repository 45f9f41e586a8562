"""``[training]``: micro-batches, what is computed again, and another precision."""

from __future__ import annotations

import pytest
from oracles.audit import audit

from paceline.planning.bounds import Ceilings
from simulator import scenario_from_table, simulate
from simulator.base.errors import InputError
from simulator.base.rng import Streams
from simulator.engine.replication import drawn_scenario
from simulator.resolve.device_transfer import precision_gain
from simulator.resolve.resolve import Asked, recomputed_share, resolve
from simulator.spec.layers import Layer
from simulator.spec.training import GROWTH_STEPS, Training
from simulator.strategies.data_parallel import Single
from tests.support.closed_forms import ring_all_reduce_s
from tests.support.scenarios import scenario_table

RING = {"kind": "multi-worker-mirrored", "workers": 4}
SERVERS = {"kind": "parameter-server", "mode": "sync", "workers": 2, "servers": 1}
V100 = {"name": "lab", "device": "Tesla V100-SXM2"}


def scenario(training=None, strategy=RING, **parts):
    return scenario_from_table({**scenario_table(strategy=strategy, **parts), **({"training": training} if training else {})}, "test")


def step_s(given):
    return simulate(given).mean_step_s.mean


# forward(b) = 1 ms + 0.1 ms b, backward(b) = 2 ms + 0.2 ms b, apply 0.5 ms, a batch of 10, one buffer of 1 MB over 1 GB/s


@pytest.mark.parametrize(("count", "again"), [(1, "none"), (2, "none"), (5, "none"), (1, "full"), (5, "full")])
def test_a_step_of_micro_batches_has_its_closed_form(count, again):
    """m f(b/m) + m (w(b/m) + r f(b/m)) + all-reduce + apply, in each engine the same."""
    forward_s, backward_s = 1e-3 + 1e-4 * 10 / count, 2e-3 + 2e-4 * 10 / count
    backward_s += forward_s * (again == "full")
    wanted_s = count * (forward_s + backward_s) + ring_all_reduce_s(4, 1e6, 1e9, 0.0) + 0.5e-3
    given = scenario({"micro_batches": count, "recompute": again})
    assert step_s(given) == pytest.approx(wanted_s, rel=1e-9)
    assert resolve(given).lone_step_s == pytest.approx(wanted_s, rel=1e-9)
    assert step_s(scenario({"micro_batches": count, "recompute": again}, run={"detail": "messages"})) == pytest.approx(wanted_s, rel=1e-6)


def test_only_the_last_backward_pass_hides_communication():
    """Half of the gradients are ready half through the backward pass: of 4 buffers, as much is hidden as 1 of m passes is long."""
    halves = [{"name": str(n), "size": "8 MB", "creation_index": n, "ready": (n + 1) / 2} for n in range(2)]
    strategy = {**RING, "bucket_size": "8 MB"}
    for count in (1, 2):
        given = scenario({"micro_batches": count}, strategy, workload={"variables": halves})
        forward_s, backward_s = 1e-3 + 1e-3 / count, 2e-3 + 2e-3 / count
        reduce_s = ring_all_reduce_s(4, 8e6, 1e9, 0.0)  # longer than what is left of the pass: both follow one another
        wanted_s = count * forward_s + (count - 1) * backward_s + backward_s / 2 + 2 * reduce_s + 0.5e-3
        assert step_s(given) == pytest.approx(wanted_s, rel=1e-9)


def test_variables_are_needed_in_the_first_micro_batch():
    """Of two variables the second must have come before the second half of the first forward pass, not of all of them."""
    both = [{"name": str(n), "size": "1 MB", "creation_index": n, "ready": (n + 1) / 2} for n in range(2)]
    given = scenario({"micro_batches": 2}, {**SERVERS, "workers": 1}, workload={"variables": both})
    # two pulls of 1 ms; half of a forward pass of 1.5 ms goes on beside the second; 1.5 + 2 x 3 ms more; the last push goes on behind
    pulls_s = 1e-3 + 1e-3
    assert step_s(given) == pytest.approx(pulls_s + 0.75e-3 + 1.5e-3 + 6e-3 + 1e-3, rel=1e-6)


@pytest.mark.parametrize("strategy", [RING, {**RING, "bucket_size": "100 KB"}, SERVERS, {"kind": "gossip", "workers": 3}])
def test_nothing_asked_for_changes_nothing(strategy):
    plain = scenario(None, strategy)
    asked = scenario({"micro_batches": 1, "recompute": "none"}, strategy)
    assert asked.hash == plain.hash
    assert resolve(plain).workload is plain.workload
    assert simulate(asked).model_dump_json() == simulate(plain).model_dump_json()


@pytest.mark.parametrize("strategy", [RING, SERVERS, {**SERVERS, "mode": "async"}, {"kind": "gossip", "workers": 3}])
def test_every_law_holds(strategy):
    assert audit(scenario({"micro_batches": 5, "recompute": "full"}, strategy))


def test_speed_up_counts_against_a_replica_that_trains_alike():
    result = simulate(scenario({"micro_batches": 2}, cluster={"inter_node": {"bandwidth": "1000 GB/s", "latency": "0 s"}}))
    assert result.speedup.mean == pytest.approx(4, rel=1e-3)


@pytest.mark.parametrize("strategy", [RING, SERVERS])
def test_bounds_hold(strategy):
    plain, asked = (resolve(scenario(training, strategy)) for training in (None, {"micro_batches": 5, "recompute": "full"}))
    for its in (plain, asked):
        rates = simulate(its).throughput_of_each_replication
        assert all(rate <= most for rate, most in zip(rates, Ceilings().of(Asked.of(its)), strict=True))
    assert Ceilings().of(Asked.of(asked))[0] < Ceilings().of(Asked.of(plain))[0]


def test_resolving_twice_is_resolving_once():
    once = resolve(scenario({"micro_batches": 2, "precision": "mixed_float16"}, cluster=V100))
    assert resolve(once) is once


def test_a_strategy_that_cuts_batches_gets_passes_as_they_are(monkeypatch):
    given = scenario({"micro_batches": 2})
    done = resolve(given)
    monkeypatch.setattr(type(given.strategy), "cuts_batches", True)
    assert resolve(given).workload.passes is None
    assert resolve(done).workload.passes is None
    alone = done.model_copy(update={"strategy": Single()})
    assert resolve(alone).workload.passes is not None


def test_selective_recomputation_weighs_layers_with_their_work():
    layers = (
        Layer(name="attention", forward=3.0, output_bytes_per_sample=1.0, selective_work=0.5),
        Layer(name="head", forward=1.0, output_bytes_per_sample=1.0),
    )
    assert recomputed_share(Training(recompute="selective"), layers) == pytest.approx(1.5 / 4)
    assert recomputed_share(Training(recompute="full"), layers) == 1.0
    assert recomputed_share(Training(), layers) == 0.0


@pytest.mark.parametrize(
    ("training", "says"),
    [
        ({"micro_batches": 3}, r"training.micro_batches \(3\) must divide the batch of a replica \(10 samples\)"),
        ({"recompute": "selective"}, r"paceline calibrate --layers"),
        ({"precision": "mixed_float16"}, r"training.precision: .*neither cluster nor workload names a device.*precision_factor"),
        ({"precision": "mixed_float16", "precision_factor": [0.5, 0.4], "precision_source": "x"}, "low and high"),
        ({"precision": "mixed_float16", "precision_factor": [0.4, 0.5]}, "precision_source is missing"),
        ({"precision_factor": [0.4, 0.5], "precision_source": "x"}, "needs precision"),
        ({"precision": "float8"}, "precision"),
        ({"skipped_share": 1.0}, "skipped_share"),
    ],
)
def test_bad_input_is_told_in_one_line(training, says):
    with pytest.raises(InputError, match=says) as told:
        resolve(scenario(training))
    assert "\n" not in str(told.value).strip()


# -- precision -------------------------------------------------------------------------------


def test_a_given_factor_scales_the_times_and_their_uncertainty():
    training = {"precision": "mixed_float16", "precision_factor": [0.25, 0.5, 1.0], "precision_source": "measured elsewhere"}
    given = scenario(training, {"kind": "single"}, run={"replications": 60})
    load = resolve(given).workload
    assert (load.precision, load.forward(10), load.apply_s) == ("mixed_float16", pytest.approx(1e-3), pytest.approx(0.25e-3))
    steps = [drawn_scenario(resolve(given), Streams(3, number)).workload.compute_s(10) for number in range(60)]
    assert min(steps) < 0.6 * 3e-3 < 1.5 * 3e-3 < max(steps)
    result = simulate(given)
    assert result.throughput_samples_per_s.low < 0.7 * result.throughput_samples_per_s.mean
    assert "other-precision" in {each.code for each in result.warnings}
    assert load.variables == given.workload.variables, "gradients stay float32"


def test_a_published_factor_is_told():
    given = scenario({"precision": "mixed_float16"}, cluster=V100)
    low, mid, high, _ = precision_gain("Tesla V100-SXM2")
    assert resolve(given).workload.recast.factor == pytest.approx((1 / high, 1 / mid, 1 / low))
    assumed = {each.path: each for each in Asked.of(given).assumed}
    assert "speeds.csv" in assumed["training.precision_factor"].reason
    assert "training.skipped_share" in assumed


def test_in_pure_bfloat16_variables_have_half_the_bytes():
    times = {"precision": "bfloat16", "precision_factor": [0.5, 0.5], "precision_source": "x"}
    given = scenario(times)
    was, load = given.workload, resolve(given).workload
    assert [each.size_bytes for each in load.variables] == [each.size_bytes / 2 for each in was.variables]
    assert load.apply_s == pytest.approx(was.apply_s / 2), "a factor that is given holds for the whole step"
    compressed = {"kind": "multi-worker-mirrored", "workers": 2, "compression": {"kind": "fp16"}}
    with pytest.raises(InputError, match=r"strategy\.compression applies to float32 gradients"):
        resolve(scenario(times, compressed))


def test_what_the_host_needs_stays_as_it_is():
    training = {"precision": "mixed_float16", "precision_factor": [0.01, 0.01], "precision_source": "x"}
    load = {"forward": {"base": "1 ms", "per_sample": "100 us", "least": "1.5 ms"}}
    assert resolve(scenario(training, workload=load)).workload.forward(10) == pytest.approx(1.5e-3)


def test_skipped_steps_are_no_progress():
    training = {"precision": "mixed_float16", "precision_factor": [1.0, 1.0], "precision_source": "x"}
    plain, mixed = simulate(scenario()), simulate(scenario(training))
    lost = 1 / (GROWTH_STEPS + 1)
    ratio = mixed.throughput_samples_per_s.mean / plain.throughput_samples_per_s.mean
    assert ratio == pytest.approx(1 - lost, rel=1e-9)
    assert mixed.dropped_share == pytest.approx(lost)
    assert mixed.updates_per_s.mean / plain.updates_per_s.mean == pytest.approx(1 - lost)
    assert mixed.speedup.mean == pytest.approx(plain.speedup.mean)
    assert mixed.mean_step_s.mean == pytest.approx(plain.mean_step_s.mean)
    half = simulate(scenario({"skipped_share": 0.5}))
    assert half.throughput_samples_per_s.mean == pytest.approx(plain.throughput_samples_per_s.mean / 2)
