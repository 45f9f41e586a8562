"""How long the model of :mod:`simulator.effort` says that ways of training take to simulate, beside how long they took.

The model's constants are of one machine; this one is as many times slower or faster as the median way is, and each way is held
against that.
"""

from __future__ import annotations

import math
import statistics
import time
from typing import Any, get_args

from measuring import Engine, Finding, Ran, missing, timed

from simulator import Scenario, load_scenario, simulate
from simulator.effort import effort_s
from simulator.resolve.resolve import resolve
from simulator.run import _windows

MOST_OFF = 3.0
"""The model's word: within a factor of about three."""
_LOOKING_S = 1e-3
"""What asking the model may take on the machine of its constants: a person never waits for it."""


def _fine(each_s: float) -> dict[str, Any]:
    """What others send, which changes so often."""
    loads = (0.1, 0.2, 0.3, 0.4)
    return {"trace": [{"at_s": place * each_s, "load": load} for place, load in enumerate(loads)], "repeat_s": len(loads) * each_s}


_WAYS: dict[str, tuple[str, dict[str, Any]]] = {
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
    "neighbours": ("async-ps", {"cluster.background": _fine(1e-5), "run.steps": 12}),
    "neighbours of a ring": ("ring", {"cluster.background": _fine(1e-5), "run.steps": 12}),
    "shared-cores": ("async-ps", {"strategy.workers": 8, "cluster.shared_cores": 4, "run.steps": 30}),
}


def beside_the_model(quick: bool) -> tuple[list[Ran], list[Finding]]:
    """Each way by each engine; the least time of several, since others use the core and its caches too."""
    ways = dict(list(_WAYS.items())[:3]) if quick else _WAYS
    engines = [engine for engine in get_args(Engine) if missing(engine) is None]
    runs, slower, asking_s = [], {}, []
    for way, (name, settings) in ways.items():
        for engine in engines:
            scenario = load_scenario(name, [*settings.items(), ("run.replications", 3), ("run.engine", engine)])
            told_s = effort_s(resolve(scenario))
            took_s = _least_s(scenario, 2 if quick else 9)
            asking_s.append(timed(lambda its=scenario: [effort_s(resolve(its)) for _ in range(20)])[0] / 20)
            runs.append(Ran(f"{way}, {engine}", scenario.run.replications, took_s, None, {"told_s": told_s}))
            slower[way, engine] = took_s / told_s
    machine = statistics.median(slower.values())
    found = [
        Finding("times slower than the machine of the constants", machine, "x"),
        Finding("asking the model, on that machine", max(asking_s) / machine, "s", most=_LOOKING_S),
    ]
    for (way, engine), its in slower.items():
        off = its / machine
        note = "longer than the model says" if off > 1 else ""
        found.append(Finding(f"{way}, {engine}: off by a factor of", max(off, 1 / off), "x", most=MOST_OFF, note=note))
    return runs, found


def _least_s(scenario: Scenario, repeats: int) -> float:
    simulate(scenario)  # the first one compiles, and loads
    least_s = math.inf
    for _ in range(repeats):
        _windows.cache_clear()  # which the model counts
        begun_s = time.process_time()
        simulate(scenario)
        least_s = min(least_s, time.process_time() - begun_s)
    return least_s
