"""What a scenario leaves open is decided in one step, which says what it took, and changes nothing that was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.modes import LOAD, MODES
from support.scenarios import scenario_table

from simulator import Scenario, load_scenario, scenario_from_table, simulate
from simulator.base.catalog import entries
from simulator.base.errors import ScenarioError
from simulator.resolve.resolve import Asked, resolve
from simulator.results.inadequacy import coverage
from simulator.results.warnings import warnings_of
from simulator.spec.cluster import Cluster


def of(mode: str, left_out: bool = True) -> Scenario:
    strategy, cluster, run = MODES[mode]
    table = scenario_table(workload=LOAD, strategy=strategy, cluster=cluster, run=run)
    if left_out:
        table["run"] = {key: value for key, value in table["run"].items() if not key.startswith("start")}
        table["strategy"].pop("pull_order", None)
    return scenario_from_table(table, "test")


@given(st.sampled_from(sorted(MODES)), st.booleans())
@examples(40)
def test_resolving_leaves_nothing_out_and_is_done_once(mode, left_out):
    written = of(mode, left_out)
    found = resolve(written)
    assert found.run.start is not None
    assert getattr(found.strategy, "pull_order", "") is not None
    assert resolve(found) is found
    # and so does not change what follows from it
    assert (warnings_of(Asked(written, found)), coverage(found)) == (
        warnings_of(Asked.of(written)),
        coverage(resolve(written)),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(entries("scenarios")))
def test_a_result_is_that_of_the_resolved_scenario_and_holds_the_written_one(name):
    written = load_scenario(name, [("run.steps", 11), ("run.warmup_steps", 3), ("run.replications", 2)])
    found = resolve(written)
    first, again = simulate(written), simulate(found)
    assert first.scenario is written
    assert first.scenario_hash == written.hash
    assert first.assumed == Asked(written, found).assumed
    given = {"scenario", "scenario_hash", "assumed", "seed"}
    assert first.model_dump(exclude=given) == again.model_dump(exclude=given)
    assert simulate(Asked(written, found)).model_dump() == first.model_dump()


def test_a_scenario_that_was_never_in_a_file_is_refused_when_it_is_simulated():
    table = scenario_table(workload={"calibrated": {"batch": [1, 64], "device": "here"}})
    scenario = scenario_from_table(table, "test")
    elsewhere = scenario.model_copy(update={"cluster": Cluster.model_validate({**scenario.cluster.model_dump(), "device": "there"})})
    with pytest.raises(ScenarioError, match=r"^cluster\.device: the workload 'plain' was measured on 'here', the cluster has 'there'"):
        simulate(elsewhere)
