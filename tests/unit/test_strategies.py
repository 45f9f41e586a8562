"""What every strategy answers, whoever asks, and that nobody asks which one it is."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from support.looping import each
from support.modes import LOAD, MODES
from support.scenarios import scenario_table

from simulator import Scenario, scenario_from_table
from simulator.results.inadequacy import Checked
from simulator.spec.cluster import Cluster
from simulator.strategies.catalogue import KEYS_OF_NAMES, KINDS, SHORT_NAMES, kind_of
from simulator.strategies.setup import Layout
from simulator.strategies.strategy import Strategy, filled

ROOT = Path(__file__).parents[2]


def built(mode: str) -> Scenario:
    strategy, cluster, run = MODES[mode]
    return scenario_from_table(scenario_table(workload=LOAD, cluster=cluster, strategy=strategy, run=run), mode)


# -- layout --------------------------------------------------------------------------------


@given(
    replicas=st.integers(1, 60),
    each=st.integers(1, 9),
    servers=st.integers(0, 20),
    beside=st.booleans(),
    client=st.booleans(),
)
def test_every_node_that_a_layout_takes_holds_something_and_nothing_else_is_taken(
    replicas: int, each: int, servers: int, beside: bool, client: bool
) -> None:
    layout = Layout(replicas, each, 1, servers, beside, client)
    held = {layout.node_of(replica) for replica in range(replicas)}
    assert held == set(range(layout.worker_nodes))
    of_servers = {layout.node_of_server(server) for server in range(servers)}
    assert len(of_servers) == servers
    assert len(of_servers - held) == layout.server_nodes or beside
    assert layout.client_node not in held | of_servers
    assert held | of_servers | ({layout.client_node} if client else set()) == set(range(layout.nodes))


def test_a_cluster_is_filled_by_as_many_workers_as_it_has_room_for() -> None:
    link = {"bandwidth": "10 Gbit/s", "latency": "20 us"}
    for nodes, devices, driven in (1, 1, 1), (1, 4, 4), (3, 4, 1), (3, 4, 2):
        cluster = Cluster.model_validate({"nodes": nodes, "devices_per_node": devices, "inter_node": link})
        assert filled(cluster, None, driven).replicas == nodes * devices
        assert filled(cluster, 5, driven).replicas == 5 * driven


@each("mode", MODES)
def test_answers_of_a_strategy_agree_with_each_other(mode: str) -> None:
    scenario = built(mode)
    strategy, layout, pace = scenario.strategy, scenario.layout, scenario.strategy.pace
    assert KINDS[strategy.kind] is type(strategy)
    assert 1 <= pace.awaited(layout.replicas) <= layout.replicas
    assert pace.together == (pace.awaited(layout.replicas) == layout.replicas) or layout.replicas == 1
    assert all(size > 0 for size in strategy.message_bytes(scenario))
    assert bool(strategy.message_bytes(scenario)) == (layout.ranks > 1 or strategy.has_servers)
    assert bool(layout.servers) == strategy.has_servers
    assert bool(strategy.tensors(scenario).gradients) == strategy.has_servers
    assert not (strategy.has_servers and strategy.reduction)
    assert 0 < scenario.lone_step_s <= scenario.full_step_s < math.inf
    for key in strategy.keys_of_names():
        assert key in type(strategy).model_fields
        assert f"strategy.{key}" in KEYS_OF_NAMES


@pytest.mark.slow
@each("mode", MODES)
@each("count", [1, 3, 8])
def test_as_many_workers_as_are_asked_for(mode: str, count: int) -> None:
    count *= built(mode).layout.ranks_per_replica
    strategy = built(mode).strategy.with_count(count)
    assert strategy.layout(built(mode).cluster).workers == (count if strategy.count_key else 1)
    assert strategy.with_servers(count).layout(built(mode).cluster).servers == (count if strategy.has_servers else 0)


# -- names ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHORT_NAMES)
def test_a_short_name_sets_what_makes_a_strategy_and_keeps_what_makes_sense_of_ones_own(name: str) -> None:
    kind = kind_of(SHORT_NAMES[name])
    strategy = kind.model_validate(dict(SHORT_NAMES[name]))
    assert kind.keys_for(name, SHORT_NAMES[name]) == SHORT_NAMES[name]
    own = strategy.with_count(7).model_dump(exclude_none=True)
    kept = kind.model_validate(kind.keys_for(name, own))
    assert kept == strategy.with_count(7)


def test_names_tell_strategies_apart() -> None:
    named = [kind_of(keys).model_validate(dict(keys)) for keys in SHORT_NAMES.values()]
    assert len({its.in_words for its in named}) == len(named)


# -- nobody else knows ---------------------------------------------------------------------


def test_a_strategy_without_layout_or_program_is_none() -> None:
    class Unfinished(Strategy):
        """It has a spec, and nothing that it does."""

        kind: Literal["unfinished"] = "unfinished"

        def layout(self, cluster: Cluster) -> Layout:
            return Layout(1, cluster.replicas_per_node, 1)

    with pytest.raises(TypeError, match="program"):
        Unfinished()


@pytest.mark.parametrize("table", [{"kind": "none-such"}, {}, {"kind": ["single"]}, None, 3])
def test_what_no_strategy_is_named_has_the_answers_of_most_until_it_is_refused(table: object) -> None:
    assert kind_of(table) is Strategy


def test_evidence_is_of_strategies_that_there_are() -> None:
    given_ = {"what": "x", "modes": ["ring"], "sharing": "fair", "by_layer": True, "workers": [1, 2], "group": "g",
              "bandwidth_bytes_per_s": [1.0, 2.0], "median_error": 0.0, "worst_error": 0.0}  # fmt: skip
    assert Checked.model_validate({**given_, "kind": "multi-worker-mirrored"}).kind == "multi-worker-mirrored"
    with pytest.raises(ValidationError, match="must be one of single, mirrored"):
        Checked.model_validate({**given_, "kind": "multi-worker"})


_OWN_FILES = {kind.__module__ for kind in KINDS.values()} | {"simulator.strategies.all_reduce"}
_ASKING = ("isinstance", "getattr", "hasattr", "type")


def _which_one(tree: ast.AST) -> list[str]:
    """Places that name a strategy's file, ask for the type or an attribute of a strategy, or compare its kind with a text."""
    found = []
    for node in ast.walk(tree):
        text = ""
        if isinstance(node, ast.ImportFrom):
            modules = {node.module or "", *(f"{node.module}.{name.name}" for name in node.names)}
            text = ast.unparse(node) if modules & _OWN_FILES else ""
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ASKING and node.args:
            of = ast.unparse(node.args[0])
            mapping = node.func.id == "isinstance" and ast.unparse(node.args[1]) == "Mapping"
            text = ast.unparse(node) if (of == "strategy" or of.endswith(".strategy")) and not mapping else ""
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            texts = any(isinstance(side, ast.Constant) and side.value in KINDS for side in sides)
            text = ast.unparse(node) if texts and any(ast.unparse(side).endswith("kind") for side in sides) else ""
        if text:
            found.append(text)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("storey", ["simulator", "calibrate", "paceline"])
def test_nobody_asks_which_strategy_it_is(storey: str) -> None:
    own = ROOT / "simulator" / "strategies"
    found = {
        str(path.relative_to(ROOT)): places
        for path in sorted((ROOT / storey).rglob("*.py"))
        if own not in path.parents and (places := _which_one(ast.parse(path.read_text())))
    }
    assert not found


@pytest.mark.parametrize(
    "line",
    [
        "from simulator.strategies.data_parallel import Single",
        "from simulator.strategies import parameter_server",
        "isinstance(scenario.strategy, Anything)",
        'getattr(strategy, "mode", "")',
        'scenario.strategy.kind == "mirrored"',
    ],
)
def test_asking_which_strategy_it_is_would_be_found(line: str) -> None:
    assert _which_one(ast.parse(line))
