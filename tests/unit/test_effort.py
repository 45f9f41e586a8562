"""How long simulating takes, known before: near enough to ask a person about, and cheap enough to ask always."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from simulator import load_scenario, simulate
from simulator.effort import effort_s, timed_effort_s
from simulator.engine.choosing import likely_engine
from simulator.resolve.resolve import resolve
from simulator.run import _windows
from simulator.scenario import Scenario

pytestmark = pytest.mark.slow


def fine(each_s: float) -> dict[str, Any]:
    """What others send, which changes so often."""
    loads = (0.1, 0.2, 0.3, 0.4)
    return {"trace": [{"at_s": place * each_s, "load": load} for place, load in enumerate(loads)], "repeat_s": len(loads) * each_s}


WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "single": ("ring", {"strategy.workers": 1, "run.steps": 400}),
    "ring": ("ring", {"strategy.workers": 64, "run.steps": 300}),
    "buckets": ("ring", {"strategy.workers": 8, "strategy.bucket_size": "1 MiB", "run.steps": 300}),
    "messages": ("ring", {"strategy.workers": 8, "run.detail": "messages", "run.steps": 30}),
    "local-sgd": ("local-sgd", {"run.steps": 320}),
    "async": ("async-ps", {"strategy.workers": 16, "strategy.servers": 2, "run.steps": 40}),
    "sync": ("sync-ps", {"strategy.workers": 8, "run.steps": 40}),
    "per-server": ("async-ps", {"strategy.workers": 16, "run.grouping": "per-server", "run.steps": 60}),
    "job": ("async-ps", {"strategy.workers": 16, "run.job_steps": 800}),
    "many ranks": ("ring", {"strategy.workers": 4096, "run.steps": 60}),
    "priority": ("ring", {"strategy.workers": 8, "strategy.bucket_size": "1 MiB", "strategy.priority": "forward", "run.steps": 100}),
    "fabric": ("oversubscribed-fabric", {"run.steps": 40}),
    "ssp": ("ssp", {"run.steps": 40}),
    "in-order": ("async-ps", {"strategy.workers": 16, "cluster.transport.discipline": "in-order", "run.steps": 20}),
    "neighbours": ("async-ps", {"cluster.background": fine(1e-5), "run.steps": 12}),
    "neighbours of a ring": ("ring", {"cluster.background": fine(1e-5), "run.steps": 12}),
    "shared-cores": ("async-ps", {"strategy.workers": 8, "cluster.shared_cores": 4, "run.steps": 30}),
}
FACTOR = 3.0


def scenario_of(way: str, **more: Any) -> Scenario:
    name, settings = WAYS[way]
    return load_scenario(name, [*settings.items(), ("run.replications", 3), *((f"run.{key}", value) for key, value in more.items())])


@pytest.mark.parametrize("engine", ["simpy", "compiled"])
@pytest.mark.parametrize("way", WAYS)
def test_the_model_is_near_what_it_takes(way: str, engine: str) -> None:
    scenario = scenario_of(way, engine=engine)
    simulate(scenario)  # the first one compiles, and loads
    took_s, told_s = math.inf, effort_s(resolve(scenario))
    for tries in range(20):
        _windows.cache_clear()  # which the model counts
        begun_s = time.process_time()
        simulate(scenario)
        took_s = min(took_s, time.process_time() - begun_s)
        if tries and took_s < told_s * FACTOR:
            break
        time.sleep(0.05 * tries)  # whoever shares the core and its caches now is gone then
    assert took_s / FACTOR < told_s < took_s * FACTOR


@pytest.mark.parametrize("way", ["ring", "async", "messages"])
def test_a_run_of_some_steps_brings_it_to_this_machine(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is ten times slower than the model says is noticed; nothing near the whole is run for it."""
    import simulator.effort as module

    scenario = scenario_of(way)
    long = scenario.model_copy(update={"run": scenario.run.model_copy(update={"steps": 1_000_000})})
    plain_s = min(timed_effort_s(resolve(long)) for _ in range(5))
    assert effort_s(resolve(long)) / FACTOR < plain_s < effort_s(resolve(long)) * FACTOR
    real, steps = module.replicate, []

    def slowly(its: Scenario, number: int, **more: Any) -> object:
        steps.append(its.run.steps)
        for _ in range(9):
            real(its, number, **more)
        return real(its, number, **more)

    monkeypatch.setattr(module, "replicate", slowly)
    monkeypatch.setattr(module, "_TIMED_S", 0.05)
    assert 3 * plain_s < timed_effort_s(resolve(long)) < 30 * plain_s
    assert len(steps) == 2
    assert max(steps) < 10_000


def test_where_a_few_steps_take_seconds_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    import simulator.effort as module

    monkeypatch.setattr(module, "replicate", None)
    huge = load_scenario("async-ps", [("strategy.workers", 1_000_000), ("run.steps", 100_000)])
    assert timed_effort_s(resolve(huge)) == effort_s(resolve(huge)) > 1e5


def test_more_of_anything_takes_longer() -> None:
    base = effort_s(resolve(scenario_of("async")))
    each_s = effort_s(resolve(scenario_of("async", replications=300))) - effort_s(resolve(scenario_of("async", replications=299)))
    assert each_s * 3 < base < each_s * 9  # what tells the limit is a part of it that more replications do not repeat
    assert effort_s(resolve(scenario_of("async", replications=300))) > 50 * base
    assert effort_s(resolve(scenario_of("async", steps=4000))) > 20 * base  # the runs that tell the limit are of few steps either way
    assert effort_s(resolve(scenario_of("per-server"))) < base
    assert effort_s(resolve(scenario_of("job", job_steps=80_000))) > 20 * effort_s(resolve(scenario_of("job")))


@pytest.mark.parametrize("engine", ["simpy", "compiled"])
def test_what_others_send_takes_as_long_as_it_often_changes(engine: Any) -> None:
    def told_s(background: dict[str, Any] | None) -> float:
        return effort_s(
            resolve(load_scenario("async-ps", [("cluster.background", background), ("run.steps", 12), ("run.replications", 2)])), engine
        )

    nothing_s, even_s = told_s(None), told_s({"load": 0.2})
    assert even_s == nothing_s
    assert told_s({"trace": [{"at_s": 0, "load": 0.2}, {"at_s": 1e-6, "load": 0.3}]}) == pytest.approx(nothing_s, rel=0.01)  # once
    own_s = [told_s(fine(each_s)) - nothing_s for each_s in (1e-6, 1e-5, 1e-4)]
    assert own_s[0] > 5 * nothing_s
    assert own_s[0] == pytest.approx(10 * own_s[1], rel=0.01) == pytest.approx(100 * own_s[2], rel=0.01)


def test_what_others_send_may_be_worth_the_compiled_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    import simulator.engine.choosing as module

    monkeypatch.setattr(module._Past, "loaded", False)
    plain = [("strategy.workers", 8), ("run.steps", 12), ("run.replications", 2)]
    assert likely_engine(resolve(load_scenario("async-ps", plain))) == "simpy"
    assert likely_engine(resolve(load_scenario("async-ps", [*plain, ("cluster.background", fine(1e-6))]))) == "compiled"


@pytest.mark.parametrize("way", WAYS)
def test_it_costs_less_than_a_millisecond(way: str) -> None:
    scenario = scenario_of(way)
    begun_s = time.process_time()
    for _ in range(50):
        effort_s(resolve(scenario))
    assert (time.process_time() - begun_s) / 50 < 1e-3


@pytest.mark.parametrize("asked", ["auto", "compiled"])
def test_a_question_does_not_wait_for_machine_code(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Making it takes longer than a person waits to be asked: the model's word stands, and nothing is made or run."""
    import simulator.effort as module

    monkeypatch.setattr(module, "is_made", lambda: False)
    monkeypatch.setattr(module, "engine_for", None)
    monkeypatch.setattr(module, "replicate", None)
    long = scenario_of("async", engine=asked, steps=1_000_000)
    assert timed_effort_s(resolve(long)) == effort_s(resolve(long), "compiled")
