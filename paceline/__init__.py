"""Paceline: what happens to TensorFlow training on more workers, and how sure is that.

>>> import paceline
>>> scenario = paceline.load("models/scenarios/async-ps.toml")     # doctest: +SKIP
>>> result = paceline.simulate(scenario)                      # doctest: +SKIP
>>> result.throughput_samples_per_s                           # doctest: +SKIP

Everything is imported when first used, so that ``import paceline`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calibrate import fit_workload, profile_runs
    from paceline.reporting import read_results, write_report
    from paceline.sweeping import grid, sweep
    from simulator import load_scenario as load
    from simulator import simulate

__version__ = "0.1.0"
__all__ = ["fit_workload", "grid", "load", "profile_runs", "read_results", "simulate", "sweep", "write_report"]

_HOME = {
    "fit_workload": ("calibrate", "fit_workload"),
    "grid": ("paceline.sweeping", "grid"),
    "load": ("simulator", "load_scenario"),
    "profile_runs": ("calibrate", "profile_runs"),
    "read_results": ("paceline.reporting", "read_results"),
    "simulate": ("simulator", "simulate"),
    "sweep": ("paceline.sweeping", "sweep"),
    "write_report": ("paceline.reporting", "write_report"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'paceline' has no attribute {name!r}")
    module, attribute = _HOME[name]
    return getattr(import_module(module), attribute)
