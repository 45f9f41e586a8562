"""Planning discards what cuts a model by closed forms: no simulation may exceed them, and without chance they are near."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.examples import examples
from support.hybrids import hybrid
from support.layered import layered
from support.scenarios import scenario_table

from paceline.planning.bounds import Ceilings
from simulator import scenario_from_table, simulate
from simulator.base.errors import ScenarioError
from simulator.resolve.resolve import Asked
from simulator.scenario import Scenario

JITTERS: list[dict[str, Any]] = [
    {"kind": "constant"},
    {"kind": "constant"},
    {"kind": "normal", "cv": 0.2},
    {"kind": "lognormal", "sigma": 0.4},
    {"kind": "exponential"},
    {"kind": "empirical", "values": [0.7, 0.9, 1.0, 1.4]},
]
UNCERTAIN = {"parameters": ["forward.per_sample_s", "apply_s"], "draws": [[0.004, 0.0], [0.02, 0.01]]}


@some.composite
def scenarios(draw: some.DrawFn) -> Scenario:
    """Small models cut in every way, with everything that a bound has to know of."""

    def choose(*options: Any) -> Any:
        return draw(some.sampled_from(options))

    pipeline, tensor, copies, context = choose(1, 2, 2, 3, 4), choose(1, 1, 2, 4), choose(1, 2, 4), choose(1, 1, 2)
    experts = choose(0, 0, 4)
    shard = choose("none", "none", "optimizer", "gradients", "parameters")
    schedule = choose("1f1b", "1f1b", "gpipe", "interleaved", "zero-bubble")
    micro_batches = choose(1, 2, 4, 8, 12)
    strategy: dict[str, Any] = {
        "kind": "hybrid",
        "workers": pipeline * tensor * copies * context,
        "pipeline": pipeline,
        "tensor": tensor,
        "context": context,
        "expert": choose(1, copies, copies * context) if experts else 1,
        "schedule": schedule,
        "chunks": 2 if schedule == "interleaved" else 1,
        "shard": shard,
        "order": choose("data", "pipeline"),
        "bucket_size": choose(None, "6 MB"),
        "sequence_parallel": choose(True, False),
        "expert_tensor": choose(None, 1) if experts and tensor > 1 else None,
        "prefetch": choose(0, 1, 3),
        "weights_share": choose(0.3, 0.5, 0.8),
    }
    if shard != "none":
        strategy["shard_group"] = choose(None, copies, max(copies // 2, 1))
        strategy["reduce_precision"] = choose("float32", "compute")
    if shard in ("gradients", "parameters"):
        strategy["keep_gathered"] = choose(None, True, False)
    if experts:
        strategy["expert_imbalance"] = choose(
            {"kind": "constant"}, {"kind": "empirical", "values": [1.0, 1.5, 2.0]}, {"kind": "lognormal", "sigma": 0.5}
        )
        strategy |= choose({}, {}, {"capacity": 1.25}, {"capacity": 1.25, "pad_to_capacity": True})
    workload = layered(
        work=choose([1.0] * 8, [3.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 2.0]),
        size_bytes=choose(1e5, 4e6),
        output_bytes=choose(1e3, 1e6),
        experts=experts,
        batch=24,
        jitter=choose(*JITTERS),
        run_to_run_cv=choose(0.0, 0.1),
        input={"base": choose("0 s", "1 ms", "2 s"), "per_sample": "0 s"},
        uncertainty=choose(None, UNCERTAIN),
    )
    if choose(True, False):
        workload["layers"][-1]["tied"] = [0]
    for layer in workload["layers"][1:] if context > 1 else ():
        layer["attention"] = {"bytes_per_sample": choose(1e6, 1e8), "work": choose(0.0, 0.9)}
    if choose(True, False):
        workload["forward"] = {"base": "2 ms", "per_sample": "10 ms", "least": "150 ms"}
    cluster = {
        "devices_per_node": choose(1, 2, 4, 8),
        "inter_node": {"bandwidth": choose("100 MB/s", "1 GB/s", "20 GB/s"), "latency": choose("0 s", "1 ms")},
        "intra_node": {"bandwidth": choose("1 GB/s", "100 GB/s"), "latency": choose("0 s", "10 us")},
        "node_speed": choose([], [], [0.5], [2.0]),
        "slow_nodes": choose(None, None, {"share": 0.5, "factor": [1.5, 3.0]}, {"spread_cv": 0.3}),
        "uncertainty": choose(
            None,
            {
                "parameters": ["inter_node.bandwidth_bytes_per_s", "inter_node.latency_s"],
                "draws": [[5e7, 1e-3], [4e10, 1e-5]],
            },
        ),
    }
    faster = {"precision": "mixed_float16", "precision_factor": [0.4, 0.6], "precision_source": "made up"}
    training = {"micro_batches": micro_batches, "recompute": choose("none", "none", "selective", "full"), **choose({}, faster)}
    run = {"steps": choose(8, 40), "warmup_steps": 2, "replications": 2, "start": choose("together", "random-phase")}
    try:
        table = scenario_table(cluster=cluster, strategy=strategy, run=run)
        return scenario_from_table({**table, "workload": workload, "training": training}, "drawn")
    except ScenarioError:
        return draw(scenarios())


@pytest.mark.slow
@examples(150, few=20)
@given(scenario=scenarios())
def test_no_replication_exceeds_its_ceiling(scenario: Scenario) -> None:
    rates = np.array(simulate(scenario).throughput_of_each_replication)
    ceilings = Ceilings().of(Asked.of(scenario))
    assert (rates <= ceilings * (1 + 1e-9)).all(), (rates, ceilings)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "interleaved", "zero-bubble"])
@pytest.mark.parametrize("shard", ["none", "optimizer"])
@pytest.mark.parametrize("tensor", [1, 2])
def test_without_chance_a_pipeline_comes_near_its_ceiling(schedule: str, shard: str, tensor: int) -> None:
    strategy = {
        "kind": "hybrid", "workers": 8 * tensor, "pipeline": 4, "tensor": tensor, "schedule": schedule,
        "chunks": 2 if schedule == "interleaved" else 1, "shard": shard,
    }  # fmt: skip
    table = scenario_table(cluster={"devices_per_node": 8}, strategy=strategy, run={"steps": 41, "warmup_steps": 1})
    scenario = scenario_from_table({**table, "workload": layered(), "training": {"micro_batches": 8}}, "drawn")
    rates = np.array(simulate(scenario).throughput_of_each_replication)
    ceilings = Ceilings().of(Asked.of(scenario)) * 39 / 40  # of the steps in the window, but one, those that also begin in it
    assert rates == pytest.approx(ceilings, rel=0.06)
    assert (rates <= ceilings * (1 + 1e-9)).all()


def test_what_is_equal_to_an_all_reduce_has_its_ceiling() -> None:
    table = scenario_table(strategy={"kind": "multi-worker-mirrored", "workers": 4})
    ring = scenario_from_table({**table, "workload": layered()}, "drawn")
    same = scenario_from_table({**table, "workload": layered(), "strategy": {"kind": "hybrid", "workers": 4}}, "drawn")
    assert (Ceilings().of(Asked.of(ring)) == Ceilings().of(Asked.of(same))).all()


def test_an_asynchronous_pipeline_has_no_ceiling() -> None:
    table = scenario_table(strategy={"kind": "hybrid", "workers": 2, "pipeline": 2, "schedule": "pipedream"})
    scenario = scenario_from_table({**table, "workload": layered()}, "drawn")
    assert np.isinf(Ceilings().of(Asked.of(scenario))).all()


@pytest.mark.slow
def test_a_ceiling_holds_where_slower_compute_hides_more_of_a_ring() -> None:
    slow = {"parameters": ["forward.per_sample_s", "backward.per_sample_s"], "draws": [[0.004, 0.008], [0.02, 0.04]]}
    layer = {"attention": {"bytes_per_sample": 3e6, "work": 0.9}}
    cluster = {"devices_per_node": 4, "intra_node": {"bandwidth": "300 MB/s", "latency": "0 s"}}
    scenario = hybrid({"workers": 4, "context": 4}, cluster=cluster, layer=layer, workload={"uncertainty": slow}, replications=4, steps=400)
    rates = np.array(simulate(scenario).throughput_of_each_replication)
    assert (rates <= Ceilings().of(Asked.of(scenario)) * (1 + 1e-9)).all()
