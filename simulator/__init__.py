"""Paceline's simulator: one scenario in, one result out.

>>> import simulator
>>> scenario = simulator.scenario_from_table(
...     {
...         "workload": {
...             "name": "two-layers", "batch_per_replica": 32,
...             "forward": {"base": "1 ms", "per_sample": "50 us"},
...             "backward": {"base": "2 ms", "per_sample": "100 us"},
...             "variables": [{"name": "kernel", "size": "4 MiB", "creation_index": 0, "ready": 1.0}],
...         },
...         "cluster": {"name": "lab", "inter_node": {"bandwidth": "10 Gbit/s", "latency": "50 us"}},
...         "strategy": {"kind": "multi-worker-mirrored", "workers": 4},
...     },
...     source="example",
... )
>>> result = simulator.simulate(scenario)
>>> round(result.scaling_efficiency.mean, 3)
0.594
>>> result.bottleneck.name
'compute'

Everything is imported on first use, so the help of a command, for example, loads only what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator.base.errors import PacelineError
    from simulator.catalogue.loading import load_cluster, load_scenario, load_workload, scenario_from_table
    from simulator.results.results import Result
    from simulator.run import simulate
    from simulator.scenario import Scenario

__all__ = ["PacelineError", "Result", "Scenario", "load_cluster", "load_scenario", "load_workload", "scenario_from_table", "simulate"]

_HOME = {
    "PacelineError": "base.errors",
    "Result": "results.results",
    "Scenario": "scenario",
    "load_cluster": "catalogue.loading",
    "load_scenario": "catalogue.loading",
    "load_workload": "catalogue.loading",
    "scenario_from_table": "catalogue.loading",
    "simulate": "run",
}
"""The module of each public name."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'simulator' has no attribute {name!r}")
    return getattr(import_module(f"simulator.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
