"""What cannot go on ends with like words on both engines; and a run in slices of any size is the same run."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest
from support.engines import difference, run
from support.random_scenarios import seeded_scenarios

from simulator import Scenario, load_scenario, simulate
from simulator.base.errors import DeadlockError, SimulationError
from simulator.engine.production import compiled as machine
from simulator.program.program import Program
from simulator.resolve.drawing import compile_program

pytestmark = pytest.mark.slow

Spoil = Callable[[Program], Program]


def waits_for_itself(program: Program) -> Program:
    """The last operation of a step never begins."""
    routine, *others = program.routines
    last = len(routine.operations) - 1
    stuck = dataclasses.replace(routine.operations[last], after=(*routine.operations[last].after, last))
    spoilt = dataclasses.replace(routine, operations=(*routine.operations[:last], stuck))
    return dataclasses.replace(program, routines=(spoilt, *others))


def latency(seconds: float) -> Spoil:
    """A message takes what is no time."""

    def spoil(program: Program) -> Program:
        latency_s = program.paths.latency_s.copy()
        latency_s[-1] = seconds
        return dataclasses.replace(program, paths=dataclasses.replace(program.paths, latency_s=latency_s))

    return spoil


def spoilt(monkeypatch: pytest.MonkeyPatch, spoil: Spoil) -> None:
    monkeypatch.setattr("simulator.engine.replication.compile_program", lambda *its: spoil(compile_program(*its)))


WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "async": ("async-ps", {"strategy.workers": 3}),
    "sync": ("sync-ps", {"strategy.workers": 3}),
    "messages": ("ring", {"strategy.workers": 3, "run.detail": "messages"}),
}


def scenario_of(way: str) -> Scenario:
    name, settings = WAYS[way]
    return load_scenario(name, [*settings.items(), ("run.steps", 5)])


@pytest.mark.parametrize("observer", [True, False])
@pytest.mark.parametrize("way", ["async", "sync", "messages"])
def test_a_dead_lock_is_told_alike(monkeypatch: pytest.MonkeyPatch, way: str, observer: bool) -> None:
    spoilt(monkeypatch, waits_for_itself)
    # which takes it that what is waited for comes sooner in the list
    monkeypatch.setattr("simulator.engine.production.tables.may_overlap", lambda *_: False)
    textbook, compiled = (run(scenario_of(way), engine, observer=observer) for engine in ("simpy", "compiled"))
    for failed in (textbook.failed, compiled.failed):
        assert re.match(rf"{DeadlockError.__name__}: deadlock at .* s: every process waits for an event that never happens", failed)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("way", ["async", "sync", "messages"])
def test_what_is_no_time_is_told_alike(monkeypatch: pytest.MonkeyPatch, way: str, seconds: float) -> None:
    spoilt(monkeypatch, latency(seconds))
    for engine in ("simpy", "compiled"):
        assert run(scenario_of(way), engine).failed.startswith("SimulationError: a delay of ")


# -- slices ------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [8, pytest.param(40, marks=pytest.mark.long)])
@pytest.mark.parametrize("things", [1, 7])
def test_a_run_in_slices_is_the_same_run(monkeypatch: pytest.MonkeyPatch, things: int, count: int) -> None:
    """Of any of its things, those of one instant too, a slice may be the end."""
    scenarios = list(seeded_scenarios(count))
    whole = [run(scenario, "compiled") for scenario in scenarios]
    monkeypatch.setattr(machine, "_SLICE", things)
    for scenario, outcome in zip(scenarios, whole, strict=True):
        assert difference(run(scenario, "compiled"), outcome) is None


@pytest.mark.parametrize("way", ["async", "sync", "messages"])
def test_no_slice_does_more_than_so_many_things(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """However many ranks act at one instant, Python can look whether the user wants to stop."""
    slices = []
    act = machine.act

    def counted(address: int, verb: int, *more: float) -> int:
        if verb == 0:
            slices.append(more[0])
        return act(address, verb, *more)

    monkeypatch.setattr(machine, "act", counted)
    name, settings = WAYS[way]
    together = [("workload.jitter", {"kind": "constant"}), ("run.start", "together"), ("run.grouping", "per-server")]
    ranks = 200
    changed = [*settings.items(), *together, ("strategy.workers", ranks), ("run.steps", 3), ("run.warmup_steps", 0)]
    monkeypatch.setattr(machine, "_SLICE", 50)
    outcome = run(load_scenario(name, changed), "compiled", observer=False)
    assert outcome.measured is not None
    assert set(slices) == {50}
    # each rank does several things in each step, all of them together
    assert len(slices) >= 4 * 3 * ranks / 50


def test_a_first_epoch_whose_pipelines_share_is_refused_where_ranks_reduce_all_at_once():
    """Later epochs are cached, so that the scenario itself is simulated for all ranks at once; its first epoch cannot be."""
    a_moment = {"serial": {"base": "1 us", "per_sample": "0 s"}}
    read = {**a_moment, "read_bytes_per_sample": 10}
    settings = [
        ("strategy.workers", 4), ("strategy.bucket_size", "1 MB"), ("cluster.devices_per_node", 2), ("run.steps", 20),
        ("run.replications", 2), ("cluster.storage", {"node_bandwidth": "1 GB/s"}), ("input", {"work": read, "cached": a_moment}),
        ("job", {"samples": 10_000, "epochs": 3}),
    ]  # fmt: skip
    assert simulate(load_scenario("ring", settings)).job is not None
    with pytest.raises(SimulationError, match="cores or storage"):
        simulate(load_scenario("ring", [*settings, ("strategy.fusion_cycle", "5 ms")]))
