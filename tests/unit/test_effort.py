"""How long simulating takes, known before: near enough to ask a person about, and cheap enough to ask always."""

from __future__ import annotations

from typing import Any

import pytest

from simulator import load_scenario
from simulator.effort import effort_s, timed_effort_s
from simulator.engine.choosing import Engine
from simulator.resolve.resolve import resolve
from simulator.scenario import Resolved, Scenario


def fine(each_s: float) -> dict[str, Any]:
    """What others send, which changes so often."""
    loads = (0.1, 0.2, 0.3, 0.4)
    return {"trace": [{"at_s": place * each_s, "load": load} for place, load in enumerate(loads)], "repeat_s": len(loads) * each_s}


WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "ring": ("ring", {"strategy.workers": 64, "run.steps": 300}),
    "messages": ("ring", {"strategy.workers": 8, "run.detail": "messages", "run.steps": 30}),
    "async": ("async-ps", {"strategy.workers": 16, "strategy.servers": 2, "run.steps": 40}),
    "per-server": ("async-ps", {"strategy.workers": 16, "run.grouping": "per-server", "run.steps": 60}),
    "job": ("async-ps", {"strategy.workers": 16, "run.job_steps": 800}),
}


def scenario_of(way: str, **more: Any) -> Scenario:
    name, settings = WAYS[way]
    return load_scenario(name, [*settings.items(), ("run.replications", 3), *((f"run.{key}", value) for key, value in more.items())])


@pytest.mark.parametrize("way", ["ring", "async", "messages"])
@pytest.mark.parametrize("slower", [1.0, 10.0, 0.5])
def test_a_run_of_some_steps_brings_it_to_this_machine(way: str, slower: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is so many times slower than the model says is noticed; nothing near the whole is run for it."""
    import simulator.effort as module

    scenario = scenario_of(way)
    long = resolve(scenario.model_copy(update={"run": scenario.run.model_copy(update={"steps": 1_000_000})}))
    now_s, steps = 0.0, []

    def replicate(its: Resolved, number: int, **more: Any) -> None:
        nonlocal now_s
        steps.append(its.run.steps)
        if its.ranks > 1:  # the model counts the baseline with it
            now_s += slower * effort_s(its, engine) / its.run.replications

    engine: Engine = "at-once" if way == "ring" else "compiled"
    monkeypatch.setattr(module, "engine_for", lambda _: engine)
    monkeypatch.setattr(module, "is_made", lambda: True)
    monkeypatch.setattr(module, "replicate", replicate)
    monkeypatch.setattr(module.time, "process_time", lambda: now_s)
    assert timed_effort_s(long) == pytest.approx(slower * effort_s(long, engine))
    assert len(steps) == 2
    assert max(steps) < 20_000


def test_where_a_few_steps_take_seconds_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    import simulator.effort as module

    monkeypatch.setattr(module, "replicate", None)
    huge = load_scenario("async-ps", [("strategy.workers", 1_000_000), ("run.steps", 100_000)])
    assert timed_effort_s(resolve(huge)) == effort_s(resolve(huge)) > 1e5


def test_more_of_anything_takes_longer() -> None:
    base = effort_s(resolve(scenario_of("async")))
    many_s = effort_s(resolve(scenario_of("async", replications=300)))
    each_s = (many_s - effort_s(resolve(scenario_of("async", replications=200)))) / 100
    assert each_s * 3 < base < each_s * 9  # what tells the limit has at least some steps, however few there are
    assert many_s > 50 * base
    assert effort_s(resolve(scenario_of("async", steps=4000))) > 20 * base  # the runs that tell the limit are of few steps either way
    per_server_s, of_each_s = (effort_s(resolve(scenario_of(way)), "simpy") for way in ("per-server", "async"))
    assert per_server_s < of_each_s
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


@pytest.mark.parametrize("asked", ["auto", "compiled"])
def test_a_question_does_not_wait_for_machine_code(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Making it takes longer than a person waits to be asked: the model's word stands, and nothing is made or run."""
    import simulator.effort as module

    monkeypatch.setattr(module, "is_made", lambda: False)
    monkeypatch.setattr(module, "engine_for", None)
    monkeypatch.setattr(module, "replicate", None)
    long = scenario_of("async", engine=asked, steps=1_000_000)
    assert timed_effort_s(resolve(long)) == effort_s(resolve(long), "compiled")
