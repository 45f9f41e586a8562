"""What every specification shares: a copy with other values knows nothing of the old ones."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import pytest

from simulator import load_scenario
from simulator.base.errors import ScenarioError
from simulator.base.spec import Spec, Usual, mark_of, parts_of
from simulator.base.validation_errors import validated
from simulator.scenario import Scenario
from simulator.spec.cluster import Cluster, Link, NodeClass
from simulator.spec.distributions import Empirical
from simulator.spec.uncertainty import Uncertainty, with_times

LINK = Link(bandwidth_bytes_per_s=1e9)
RING, SERVERS = load_scenario("ring", [("strategy.workers", 4)]), load_scenario("async-ps", [("strategy.workers", 4)])
SLOW = RING.cluster.inter_node.model_copy(update={"bandwidth_bytes_per_s": 1e6})
SLOWER = {"cluster": RING.cluster.model_copy(update={"inter_node": SLOW})}
CASES: dict[tuple[type[Spec], str], tuple[Spec, dict[str, object], object]] = {
    (Cluster, "_class_ends"): (
        Cluster(name="four", nodes=4, inter_node=LINK, node_classes=(NodeClass(name="slow", nodes=3, speed=0.5),)),
        {"node_classes": (NodeClass(name="slow", nodes=1, speed=0.5),)},
        (1,),
    ),
    (Empirical, "_sample"): (Empirical(values=(1.0, 3.0)), {"values": (5.0, 5.0)}, None),
    (Scenario, "layout"): (RING, {"strategy": SERVERS.strategy}, SERVERS.strategy.layout(RING.cluster)),
    (Scenario, "lone_step_s"): (RING, SLOWER, None),
    (Scenario, "full_step_s"): (SERVERS, SLOWER, None),
    (Scenario, "hash"): (RING, SLOWER, None),
}
"""Of each value that is worked out once and kept: a specification, what is changed in a copy, and the value then."""


def specs(kind: type[Spec] = Spec) -> Iterator[type[Spec]]:
    for inner in kind.__subclasses__():
        yield inner
        yield from specs(inner)


def kept_values(kind: type[Spec] = Spec) -> Iterator[tuple[type[Spec], str]]:
    for spec in specs(kind):
        yield from ((spec, name) for name, value in vars(spec).items() if isinstance(value, cached_property))


def test_every_kept_value_is_looked_at() -> None:
    ours = {(kind, name) for kind, name in kept_values() if kind.__module__.startswith("simulator")}
    assert ours == CASES.keys()


@pytest.mark.parametrize("which", CASES, ids=lambda which: f"{which[0].__name__}.{which[1]}")
def test_a_copy_works_out_anew_what_it_keeps(which: tuple[type[Spec], str]) -> None:
    spec, changed, wanted = CASES[which]
    before = getattr(spec, which[1])
    copied = spec.model_copy(update=changed)
    after = getattr(copied, which[1])
    assert after is not before
    assert which[1] == "_sample" or after != before
    if wanted is not None:
        assert after == wanted
    assert getattr(spec, which[1]) is before
    assert getattr(spec.model_copy(), which[1]) is before, "where nothing changes, nothing is lost"


def test_a_node_is_of_the_class_that_the_copy_says() -> None:
    cluster, changed, _ = CASES[Cluster, "_class_ends"]
    assert isinstance(cluster, Cluster)
    assert [cluster.speed_of(node) for node in range(4)] == [0.5, 0.5, 0.5, 1.0]
    assert [cluster.model_copy(update=changed).speed_of(node) for node in range(4)] == [0.5, 1.0, 1.0, 1.0]


def test_a_copy_of_measured_values_has_their_mean() -> None:
    law, changed, _ = CASES[Empirical, "_sample"]
    assert isinstance(law, Empirical)
    assert law.mean() == 2.0
    assert law.model_copy(update=changed).mean() == 5.0


def test_values_are_read_and_replaced_by_their_dotted_keys() -> None:
    rate, latency = "cluster.inter_node.bandwidth_bytes_per_s", "cluster.inter_node.latency_s"
    before = RING.value_at(rate)
    changed = RING.replaced({rate: 1e6, latency: 2e-3, "run.seed": 5, "strategy": SERVERS.strategy})
    assert [changed.value_at(path) for path in (rate, latency, "run.seed", "strategy")] == [1e6, 2e-3, 5, SERVERS.strategy]
    assert changed.cluster.intra_node is RING.cluster.intra_node
    assert changed.hash != RING.hash
    assert RING.value_at(rate) == before


def test_a_number_is_multiplied_with_its_draws() -> None:
    drawn = Uncertainty(parameters=("inter_node.latency_s", "intra_node.latency_s"), draws=((1e-3, 1e-4), (3e-3, 2e-4)))
    cluster = RING.cluster.replaced({"uncertainty": drawn, "inter_node.latency_s": 2e-3})
    twice = with_times(cluster, {"inter_node.latency_s": 2.0, "inter_node.bandwidth_bytes_per_s": 0.5})
    assert twice.inter_node.latency_s == 4e-3
    assert twice.inter_node.bandwidth_bytes_per_s == cluster.inter_node.bandwidth_bytes_per_s / 2
    assert twice.value_at("uncertainty.draws") == ((2e-3, 1e-4), (6e-3, 2e-4))


def test_a_field_that_overrides_another_keeps_what_is_usual_there() -> None:
    overriding = [
        (spec, name, usual)
        for spec in specs()
        for name in spec.__annotations__.keys() & spec.model_fields.keys()
        for parent in spec.__mro__[1:]
        if issubclass(parent, Spec) and name in parent.model_fields and (usual := mark_of(parent.model_fields[name], Usual))
    ]
    assert overriding
    lost = [f"{spec.__name__}.{name}" for spec, name, usual in overriding if mark_of(spec.model_fields[name], Usual) != usual]
    assert not lost


@pytest.mark.parametrize("value", [10**400, -(10**400)], ids=["large", "below 0"])
def test_a_huge_number_is_refused_in_one_line(value: int) -> None:
    problems: list[str] = []
    for spec in specs():
        for name, field in spec.model_fields.items():
            if spec.__module__.startswith("simulator") and {int, float} & {*parts_of(field.annotation)}:
                try:
                    validated(spec, {name: value}, "file")
                except ScenarioError as error:
                    problems += error.problems
    assert len(problems) > 300
    assert not [problem for problem in problems if "\n" in problem]
