"""What tells points apart: every result has a place of its own, whatever was swept."""

from __future__ import annotations

from typing import Any

import pytest
from support.results import RATES, STRATEGIES, grid, hostile_sweep, plausible, scenario_of, sweep

import paceline
from paceline.reporting.coordinates import ABSENT, Coordinates, coordinates_of
from simulator.results.results import Result

RING, SYNC, ASYNC = STRATEGIES


def link(rate: float, **changes: Any) -> dict[str, Any]:
    return {"inter_node": {"bandwidth_bytes_per_s": rate, "latency_s": 5e-5}, **changes}


def labels(at: Coordinates, group: str) -> tuple[str, ...]:
    return next(each.labels for each in at.groups if each.id == group)


def places(at: Coordinates) -> set[tuple[int, ...]]:
    return {(curve, *place) for curve, place in zip(at.curve_of, at.places, strict=True)}


def test_a_sweep_over_replicas_has_one_key_and_a_curve_a_strategy() -> None:
    at = coordinates_of(sweep(workers=(1, 4)))
    assert [(key.path, key.values) for key in at.keys] == [("replicas", (1, 4))]
    assert [curve.name for curve in at.curves] == [
        "Ring all-reduce (multi-worker mirrored)",
        "Sync PS, 4 servers",
        "Async PS, 4 servers",
    ]


def test_every_swept_number_is_a_key_and_a_strategy_without_it_is_absent_from_it() -> None:
    results = grid()
    at = coordinates_of(results)
    assert {key.name: key.values for key in at.keys} == {
        "Workers": (1, 4, 16),
        "Servers": (2, 8),
        "Batch of a replica": (16, 64),
        "Network bandwidth": RATES,
    }
    servers = [key.path for key in at.keys].index("strategy.servers")
    for place, result in zip(at.places, results, strict=True):
        assert (place[servers] == ABSENT) == (result.scenario.servers == 0)
    assert [curve.name for curve in at.curves][1:] == ["Sync PS", "Async PS"]
    assert len(places(at)) == len(results)


def test_values_stand_where_the_scenario_has_them() -> None:
    results = grid()
    at = coordinates_of(results)
    rate = [key.path for key in at.keys].index("cluster.inter_node.bandwidth_bytes_per_s")
    for place, result in zip(at.places, results, strict=True):
        assert at.keys[rate].values[place[rate]] == result.scenario.cluster.inter_node.bandwidth_bytes_per_s
        assert at.keys[0].values[place[0]] == result.replicas


def test_what_a_cluster_s_name_tells_is_no_key() -> None:
    results = [*sweep((RING,), (1, 2)), *sweep((RING,), (1, 2), cluster=link(12.5e9, name="fast"))]
    at = coordinates_of(results)
    assert [key.path for key in at.keys] == ["replicas"]
    assert labels(at, "cluster") == ("ethernet-10g", "fast")
    assert [curve.name for curve in at.curves] == [
        "Ring all-reduce (multi-worker mirrored) · ethernet-10g",
        "Ring all-reduce (multi-worker mirrored) · fast",
    ]


def test_a_key_swept_on_one_cluster_alone_is_absent_on_the_other() -> None:
    results = [
        *sweep((RING,), (1, 2), cluster=link(1.25e9)),
        *sweep((RING,), (1, 2), cluster=link(3.125e9)),
        *sweep((RING,), (1, 2), cluster=link(12.5e9, name="fast")),
    ]
    at = coordinates_of(results)
    assert [key.values for key in at.keys] == [(1, 2), (1.25e9, 3.125e9)]
    assert [place[1] for place in at.places] == [0, 0, 1, 1, ABSENT, ABSENT]


def test_a_setting_that_goes_with_the_strategy_is_part_of_its_name() -> None:
    results = [*sweep((RING,), (1, 2), run={"steps": 50}), *sweep((ASYNC,), (1, 2), run={"steps": 80})]
    at = coordinates_of(results)
    assert [key.path for key in at.keys] == ["replicas"]
    assert labels(at, "strategy") == (
        "Ring all-reduce (multi-worker mirrored) · steps 50",
        "Async PS, 4 servers · steps 80",
    )


def test_words_that_vary_are_part_of_the_name() -> None:
    results = [*sweep((ASYNC,), (1, 2), run={"start": "together"}), *sweep((ASYNC,), (1, 2))]
    assert labels(coordinates_of(results), "strategy") == (
        "Async PS, 4 servers · start together",
        "Async PS, 4 servers",
    )


def test_a_number_that_some_of_a_curve_lack_is_part_of_its_name() -> None:
    """No place on a slider is that of a result without it: two results of a curve would lie there."""
    sizes = (4 * 2**20, 8 * 2**20, None)
    results = [its for size in sizes for its in sweep((RING | {"bucket_size_bytes": size},), (1, 2))]
    at = coordinates_of(results)
    assert [key.path for key in at.keys] == ["replicas"]
    plain = "Ring all-reduce (multi-worker mirrored)"
    assert labels(at, "strategy") == (f"{plain} · bucket size 4 MiB", f"{plain} · bucket size 8 MiB", plain)


def test_weak_and_strong_scaling_are_told_apart() -> None:
    strong = {"batch_per_replica": None, "global_batch": 1024}
    at = coordinates_of([*sweep((RING,), (1, 2)), *sweep((RING,), (1, 2), workload=strong)])
    assert labels(at, "scaling") == ("weak", "strong")
    assert [key.path for key in at.keys] == ["replicas"]
    assert [curve.name for curve in at.curves][1] == "Ring all-reduce (multi-worker mirrored) · strong scaling"


def test_files_that_are_compared_are_told_apart() -> None:
    results = sweep((RING,), (1, 2)) * 2
    at = coordinates_of(results, ["before", "before", "after", "after"])
    assert labels(at, "source") == ("before", "after")
    assert len(places(at)) == 4


def test_seeds_tell_results_of_one_point_apart() -> None:
    at = coordinates_of([*sweep((RING,), (2,), run={"seed": 1}), *sweep((RING,), (2,), run={"seed": 2})])
    assert [key.path for key in at.keys] == ["replicas", "run.seed"]
    assert len(places(at)) == 2


def test_results_that_nothing_tells_apart_get_numbers() -> None:
    first = plausible(scenario_of(RING, 2))
    load = first.scenario.workload.model_copy(update={"variables": first.scenario.workload.variables[:1]})
    other = plausible(first.scenario.model_copy(update={"workload": load}))
    assert labels(coordinates_of([first, other]), "strategy") == (
        "Ring all-reduce (multi-worker mirrored)",
        "Ring all-reduce (multi-worker mirrored) · variant 2",
    )


def test_names_that_look_the_same_get_numbers() -> None:
    results = [*sweep((RING,), (1,), name="x" * 100 + "1"), *sweep((RING,), (1,), name="x" * 100 + "2")]
    first, second = labels(coordinates_of(results), "workload")
    assert second == first + " (2)"


@pytest.mark.parametrize("results", [hostile_sweep(), sweep(), grid()], ids=["hostile", "plain", "grid"])
def test_no_two_results_share_a_place_and_no_name_holds_control_characters(results: list[Result]) -> None:
    at = coordinates_of(results)
    assert len(places(at)) == len(results)
    for name in [*(curve.name for curve in at.curves), *(label for group in at.groups for label in group.labels)]:
        assert name.isprintable()
        assert "\u202e" not in name
        assert len(name) < 250


def named(*settings: dict[str, Any], labels: list[str] | None = None, scenario: str = "ring") -> list[str]:
    """What the curves of some scenarios are called."""
    loaded = [paceline.load(scenario, its) for its in settings]
    results = [Result.model_construct(scenario=its, replicas=its.replicas) for its in loaded]
    return [curve.name for curve in coordinates_of(results, labels).curves]


MULTI_WORKER = "Ring all-reduce (multi-worker mirrored)"


def test_a_file_is_not_named_where_strategies_tell_its_curves_apart() -> None:
    at = coordinates_of(sweep(workers=(1, 4)), ["ring"] * 2 + ["ps"] * 4)
    assert not any("ps" in curve.name.split(" · ") or "ring" in curve.name.split(" · ") for curve in at.curves)
    assert labels(at, "source") == ("ring", "ps")


def test_files_are_named_by_the_settings_in_which_they_differ() -> None:
    rates = ({"cluster.inter_node.bandwidth": "1 Gbit/s"}, {"cluster.inter_node.bandwidth": "10 Gbit/s"})
    assert named(*rates, labels=["old", "new"]) == [f"{MULTI_WORKER} · bandwidth 1 Gbit/s", f"{MULTI_WORKER} · bandwidth 10 Gbit/s"]


def test_files_that_differ_in_nothing_keep_their_names() -> None:
    assert named({}, {}, labels=["before", "after"]) == [f"{MULTI_WORKER} · before", f"{MULTI_WORKER} · after"]


@pytest.mark.parametrize(
    ("scenario", "settings", "names"),
    [
        ("ssp", [{"strategy.mode": "sync"}, {}], ["Sync PS, 2 servers", "SSP PS, 2 servers"]),
        ("fsdp", [{"strategy.shard": "optimizer"}, {}], ["Sharded optimizer", "Sharded parameters"]),
        ("pipeline", [{"strategy.pipeline": 2}, {"strategy.pipeline": 4}], ["2-stage pipeline (1f1b)", "4-stage pipeline (1f1b)"]),
        ("ring", [{}, {"strategy.compression.kind": "fp16"}], [MULTI_WORKER, f"{MULTI_WORKER} · compression fp16"]),
        ("ring", [{"workload.jitter.kind": "constant"}, {}], [f"{MULTI_WORKER} · jitter constant", f"{MULTI_WORKER} · jitter empirical"]),
        ("ring", [{}, {"strategy.bucket_size": None}], [f"{MULTI_WORKER} · bucket size 4 MiB", MULTI_WORKER]),
        ("async-ps", [{}, {"strategy.coordinator.dispatch": "1 ms"}], ["Async PS, 2 servers"] * 2),
    ],
)
def test_curves_are_named_by_what_differs_once(scenario: str, settings: list[dict[str, Any]], names: list[str]) -> None:
    found = named(*settings, scenario=scenario)
    assert len(set(found)) == len(names)
    assert all(its.startswith(name) for its, name in zip(found, names, strict=True)), found


def test_ways_to_pay_are_called_by_their_names() -> None:
    """Not by each of the keys that a price consists of."""
    rented = {"usd_per_node_hour": 31.2, "source": "a list", "billing_minimum": "1 min"}
    spot = {"name": "spot", "usd_per_node_hour": 10.0, "preemption": {"mtbf": "20 h", "replacement": "4 min"}}
    results = [*sweep((RING,), (4,), cluster={"price": rented}), *sweep((RING,), (4,), cluster={"price": spot})]
    at = coordinates_of(results)
    assert [key.path for key in at.keys] == ["replicas"]
    assert [curve.name.rpartition(" · ")[2] for curve in at.curves] == ["price rented, $31.20 an hour", "price spot, $10.00 an hour"]
