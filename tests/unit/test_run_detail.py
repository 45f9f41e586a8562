"""How a scenario is simulated is no part of what it is: settings of the run that its identity leaves out."""

from __future__ import annotations

import pytest
from support.scenarios import scenario_table

from paceline.sweeping import grid
from simulator import Scenario, scenario_from_table
from simulator.base.errors import ScenarioError
from simulator.catalogue.loading import apply_settings

RING = {"kind": "multi-worker-mirrored", "workers": 3}
ASYNC = {"kind": "parameter-server", "mode": "async", "workers": 3, "pull_order": "forward"}


def built(strategy: dict, **run) -> Scenario:
    table = scenario_table(strategy=strategy)
    return scenario_from_table({**table, "run": {**table["run"], **run}}, "test")


@pytest.mark.parametrize("setting", [{"detail": "messages"}, {"detail": "at-once"}, {"grouping": "per-server"}, {"engine": "simpy"}])
@pytest.mark.parametrize("strategy", [{"kind": "single"}, RING, ASYNC], ids=["single", "ring", "async"])
def test_the_hash_leaves_out_how_it_is_simulated(strategy, setting):
    plain, other = built(strategy), built(strategy, **setting)
    assert plain.hash == other.hash != built(strategy, seed=4).hash
    assert plain != other
    assert Scenario.model_validate_json(other.model_dump_json()) == other  # a file keeps it
    assert not set(setting) & plain.model_dump()["run"].keys()  # and one without it is as it was


@pytest.mark.parametrize(
    ("strategy", "run", "why"),
    [
        ({**ASYNC, "messages": True}, {}, "strategy.messages: is not a key"),
        ({**RING, "tensor_grouping": "per-server"}, {}, "strategy.tensor_grouping: is not a key"),
        (ASYNC, {"grouping": "per-serve"}, "run.grouping: 'per-serve' must be 'none' or 'per-server'"),
        (RING, {"detail": "exact"}, "run.detail: 'exact' must be 'auto', 'at-once' or 'messages'"),
        (RING, {"engine": "c"}, "run.engine: 'c' must be 'auto', 'simpy' or 'compiled'"),
    ],
)
def test_a_word_that_is_none_is_refused_in_a_line(strategy, run, why):
    with pytest.raises(ScenarioError) as caught:
        built(strategy, **run)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_at_once_is_refused_where_hosts_share_cores():
    cluster = {"shared_cores": 2.0, "transport": {"copy_per_byte_s": 1e-10}}
    table = scenario_table(strategy=RING, cluster=cluster)
    assert scenario_from_table(table, "test").rank_messages
    with pytest.raises(ScenarioError, match=r'run\.detail = "at-once" does not simulate single messages'):
        scenario_from_table(apply_settings(table, [("run.detail", "at-once")]), "test")


@pytest.mark.parametrize("key", ["run.detail", "run.grouping", "run.engine"])
def test_a_sweep_refuses_what_does_not_tell_scenarios_apart(key):
    with pytest.raises(ScenarioError, match="its values would be one and the same scenario; sweep once for each"):
        grid(scenario_table(strategy=RING), [(key, ["a", "b"])])
