"""Tables of the compiled engine that the replications of a program use one after the other."""

from __future__ import annotations

import pytest
from support.scenarios import scenario_table

from simulator import scenario_from_table, simulate
from simulator.engine.production import tables

STRATEGIES = {
    "async": {"kind": "parameter-server", "mode": "async", "workers": 5},
    "ssp": {"kind": "parameter-server", "mode": "ssp", "bound": 1, "workers": 5},
    "sync": {"kind": "parameter-server", "mode": "sync", "workers": 5, "backup_workers": 1},
    "ring": {"kind": "multi-worker-mirrored", "workers": 5},
}


@pytest.mark.parametrize(("strategy", "software"), [*((name, "given") for name in STRATEGIES), ("async", "grpc")])
def test_replications_that_share_tables_measure_the_same(strategy, software, monkeypatch):
    """With gRPC each draws what messages cost hosts."""
    again: list[tables.Simulation] = []
    begin_again = tables.Simulation.begin_again
    monkeypatch.setattr(tables.Simulation, "begin_again", lambda its, *given: (again.append(its), begin_again(its, *given))[1])
    table = scenario_table(
        workload={"jitter": {"kind": "exponential"}, "run_to_run_cv": 0.1},
        cluster={"transport": {"software": software}},
        strategy=STRATEGIES[strategy],
        run={"engine": "compiled", "detail": "messages", "steps": 20, "replications": 4},
    )
    scenario = scenario_from_table(table, "test")
    shared = simulate(scenario)
    assert len(again) == 3
    assert len(set(map(id, again))) == 1
    monkeypatch.setattr(tables, "_KEPT_BYTES", 0)
    apart = simulate(scenario)
    assert len(again) == 3
    assert shared == apart
