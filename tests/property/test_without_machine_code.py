"""The compiled engine and the same functions run in Python measure the same, to the last bit."""

from __future__ import annotations

import pytest
from support.engines import difference, run
from support.modes import LOAD, MODES
from support.scenarios import scenario_table

from simulator import scenario_from_table
from simulator.engine import choosing
from simulator.estimate import expected_events
from simulator.resolve.resolve import resolve


@pytest.mark.parametrize(
    ("mode", "detail"),
    [*((mode, "auto") for mode in MODES), *((mode, "messages") for mode in ("ring", "trees", "halving", "hierarchical", "both ways"))],
)
def test_every_way_of_training(mode: str, detail: str, monkeypatch: pytest.MonkeyPatch) -> None:
    strategy, cluster, settings = MODES[mode]
    table = scenario_table(workload=LOAD, strategy=strategy, cluster=cluster, run={"steps": 12, **settings, "detail": detail})
    scenario = scenario_from_table(table, "test")
    if not expected_events(resolve(scenario)):
        pytest.skip("all ranks at once, which has no machine code")
    compiled = run(scenario, "auto")
    monkeypatch.setattr(choosing, "_not_loaded", lambda: "numba is not installed")
    assert not compiled.failed
    assert difference(compiled, run(scenario, "auto")) is None
