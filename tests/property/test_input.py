"""Laws of pipelines: more of anything never slows a training, with the same draws; and work is neither lost nor made up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.runs import recorded
from support.scenarios import scenario_table

from simulator import Scenario, scenario_from_table
from simulator.strategies.pipelines import cpu_s, pipelines

STRATEGIES: tuple[dict[str, Any], ...] = (
    {"kind": "single"},
    {"kind": "multi-worker-mirrored", "workers": 3, "replicas_per_worker": 2},
    {"kind": "multi-worker-mirrored", "workers": 4, "sync_every": 3},
    {"kind": "mirrored", "replicas": 2},
)
DISTRIBUTIONS: tuple[dict[str, Any], ...] = (
    {"kind": "constant"},
    {"kind": "exponential"},
    {"kind": "empirical", "values": [1.0, 1.0, 2.0]},
)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Scenario, Scenario]:
    """A scenario, and the same with more of something."""
    its: dict[str, Any] = {
        "work": {"serial": {"base_s": draw(st.sampled_from((0.0, 2e-3))), "per_sample_s": 0.1e-3},
                 "parallel": {"base_s": 0.0, "per_sample_s": draw(st.sampled_from((0.0, 1e-3, 3e-3)))}, "read_bytes_per_sample": 1e5},
        "prefetch": draw(st.integers(0, 4)), "parallel_calls": draw(st.integers(1, 4)),
        "jitter": draw(st.sampled_from(DISTRIBUTIONS)), "per": draw(st.sampled_from(("process", "replica"))),
    }  # fmt: skip
    # cores for all calls of a node: where they share cores, a batch that others are worked on beside comes later
    cluster: dict[str, Any] = {"devices_per_node": 2, "host_cores": 16, "storage": {"node_bandwidth_bytes_per_s": 2e9}}
    run = {"seed": draw(st.integers(0, 9)), "steps": 18}
    load = {"jitter": draw(st.sampled_from(DISTRIBUTIONS))}
    strategy = draw(st.sampled_from(STRATEGIES))
    less = scenario_table(input=its, cluster=cluster, strategy=strategy, run=run, workload=load)
    what = draw(st.sampled_from(("prefetch", "parallel_calls")))
    more = {**less, "input": {**its, what: its[what] + draw(st.integers(1, 3))}}
    return scenario_from_table(less, "less"), scenario_from_table(more, "more")


@examples(60)
@given(pairs())
def never_slower(pair: tuple[Scenario, Scenario]) -> None:
    ends_s: list[dict[int, list[float]]] = []
    for each in pair:
        ends_s.append({})
        for step in recorded(each).steps:
            ends_s[-1].setdefault(step.replica, []).append(step.end_s)
    for replica, before in ends_s[0].items():
        whole = min(len(before), len(ends_s[1][replica]))
        assert all(after <= its * (1 + 1e-12) for its, after in zip(before[:whole], ends_s[1][replica], strict=False))


def test_more_prefetch_or_more_calls_never_slow_a_training() -> None:
    never_slower()


TIMES = st.sampled_from((0.0, 0.5, 1.0, 3.0, 8.0))


@examples(300)
@given(TIMES, TIMES, st.integers(1, 9), st.floats(0.3, 20), st.floats(0, 5))
def cores_never_slow(serial_s: float, parallel_s: float, calls: int, cores: float, more: float) -> None:
    took_s = cpu_s(serial_s, parallel_s, calls, cores)
    assert cpu_s(serial_s, parallel_s, calls, cores + more) <= took_s * (1 + 1e-9)
    assert took_s >= max(serial_s, parallel_s / calls, (serial_s + parallel_s) / cores) * (1 - 1e-9)


def test_more_cores_never_slow_a_pipeline() -> None:
    cores_never_slow()


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_no_batch_is_used_before_storage_can_have_given_it(prefetch: int) -> None:
    """The k-th step of the last replica ends no sooner than all samples up to it can have been read."""
    table = scenario_table(
        input={"work": {"read_bytes_per_sample": 1e6}, "prefetch": prefetch, "jitter": {"kind": "constant"}},
        cluster={"storage": {"bandwidth_bytes_per_s": 8e8}},
        strategy={"kind": "gossip", "workers": 4},
        workload={"jitter": {"kind": "exponential"}},
    )
    built = scenario_from_table(table, "reading")
    found = pipelines(built)
    assert found is not None
    begun = sorted(step.start_s + step.input_s for step in recorded(built).steps)
    for place, has_s in enumerate(begun):
        assert has_s >= (place + 1) * found.read_bytes[0] / 8e8 * (1 - 1e-9)
