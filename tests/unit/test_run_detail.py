"""How a scenario is simulated is no part of what it is: settings of the run that its identity leaves out, under new names and old."""

from __future__ import annotations

import pytest
from support.scenarios import scenario_table

from paceline.sweeping import grid
from simulator import Scenario, load_scenario, scenario_from_table
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


def test_hashes_are_those_of_before():
    """As they were when ``strategy`` had messages and tensor_grouping."""
    of_before = {"workload.description": "16 to 64 samples a step on Intel(R) Xeon(R) Processor (CPU), TensorFlow 2.21.0"}
    known = {"ring": "bd452f0c893e21aa", "async-ps": "c0e901eee9bf0217"}
    assert {name: load_scenario(name, of_before).hash for name in known} == known
    assert load_scenario("hierarchical-gpus").hash == "b8d0cef17e948617"


@pytest.mark.parametrize(
    ("strategy", "old", "new"),
    [
        (RING, {"messages": True}, {"detail": "messages"}),
        (RING, {"messages": False}, {}),
        ({"kind": "mirrored", "replicas": 1}, {"messages": True}, {"detail": "messages"}),
        (ASYNC, {"tensor_grouping": "per-server"}, {"grouping": "per-server"}),
        (ASYNC, {"tensor_grouping": "none"}, {}),
    ],
)
def test_keys_of_before_are_read_as_those_of_today(strategy, old, new):
    given = built(strategy | old)
    assert given == built(strategy, **new)
    assert not old.keys() & given.model_dump()["strategy"].keys()


def test_what_was_set_last_holds():
    def simulated(table: dict, *settings: tuple[str, object]) -> tuple[str, str]:
        run = scenario_from_table(apply_settings(table, settings), "test").run
        return run.detail, run.grouping

    old, new = scenario_table(strategy={**RING, "messages": True}), scenario_table(strategy=RING, run={"detail": "messages"})
    assert simulated(old, ("run.detail", "at-once")) == ("at-once", "none")
    assert simulated(new, ("strategy.messages", False)) == ("auto", "none")
    assert simulated(scenario_table(strategy=ASYNC), ("strategy.tensor_grouping", "per-server")) == ("auto", "per-server")


@pytest.mark.parametrize(
    ("strategy", "run", "why"),
    [
        ({**RING, "messages": "yes"}, {}, "strategy.messages: 'yes' must be true or false"),
        ({**ASYNC, "messages": True}, {}, "strategy.messages: is no key"),
        ({**RING, "tensor_grouping": "per-server"}, {}, "strategy.tensor_grouping: is no key"),
        ({**ASYNC, "tensor_grouping": "per-serve"}, {}, "strategy.tensor_grouping: 'per-serve' must be 'none' or 'per-server'"),
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
    with pytest.raises(ScenarioError, match=r'run\.detail = "at-once" evaluates an all-reduce without its single messages'):
        scenario_from_table(apply_settings(table, [("run.detail", "at-once")]), "test")


@pytest.mark.parametrize("key", ["run.detail", "run.grouping", "run.engine", "strategy.messages", "strategy.tensor_grouping"])
def test_a_sweep_refuses_what_does_not_tell_scenarios_apart(key):
    with pytest.raises(ScenarioError, match="its values would be one and the same scenario; sweep once for each"):
        grid(scenario_table(strategy=RING), [(key, ["a", "b"])])
