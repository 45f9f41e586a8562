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
"""

from __future__ import annotations

from simulator.errors import PacelineError
from simulator.loading import load_cluster, load_scenario, load_workload, scenario_from_table
from simulator.results import Result
from simulator.run import simulate
from simulator.scenario import Scenario

__all__ = ["PacelineError", "Result", "Scenario", "load_cluster", "load_scenario", "load_workload", "scenario_from_table", "simulate"]
