"""How long 10,000 updates of an MLP by 64 asynchronous workers take: their schedule simulated, then replayed with real gradients.

Wall time, since both cores are used and TensorFlow's start counts; it is an aim in seconds, so it says something of this machine alone.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from measuring import Finding, Ran

from calibrate.learning import Phase, ReplayedRun, replay
from simulator import load_scenario
from simulator.engine.schedule import schedule_of
from simulator.resolve.resolve import resolve

_UPDATES, _AIM_S = 10_000, 60.0


def ten_thousand_updates(quick: bool) -> tuple[list[Ran], list[Finding]]:
    """The schedule, and its replay; ``quick``: a tenth of the updates."""
    updates = _UPDATES // 10 if quick else _UPDATES
    scenario = resolve(load_scenario("async-ps", [("strategy.workers", 64), ("run.engine", "compiled")]))
    schedule_of(scenario, 100)  # the first one makes or loads machine code
    begun_s = time.perf_counter()
    schedule = schedule_of(scenario, updates)
    simulated_s = time.perf_counter() - begun_s
    with tempfile.TemporaryDirectory() as folder:
        begun_s = time.perf_counter()
        (curve,) = replay("digits-mlp", [ReplayedRun(0, (Phase(schedule, updates, 32),))], Path(folder))
        replayed_s = time.perf_counter() - begun_s
    assert curve.points[-1].updates == updates
    runs = [Ran("simulated", updates, simulated_s, None), Ran("replayed, TensorFlow's start included", updates, replayed_s, None)]
    return runs, [Finding("simulated and replayed", simulated_s + replayed_s, "s", most=_AIM_S)]
