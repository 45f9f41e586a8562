"""Paceline's calibrator: real TensorFlow steps and transfers in, fitted specifications out.

``probe -> measurements -> fit -> workload.toml``: a probe runs in the user's own Python as
a child process and writes a measurement file, line by line; a fit reads it and writes a
file that the simulator understands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calibrate.fit import fit_workload
    from calibrate.link_fit import fit_link
    from calibrate.profiling import profile_at_once, profile_link, profile_runs, profile_step
    from calibrate.writing import write_cluster, write_workload

__all__ = ["fit_link", "fit_workload", "profile_at_once", "profile_link", "profile_runs", "profile_step", "write_cluster", "write_workload"]

_HOME = {
    "fit_link": "calibrate.link_fit",
    "fit_workload": "calibrate.fit",
    "profile_at_once": "calibrate.profiling",
    "profile_link": "calibrate.profiling",
    "profile_runs": "calibrate.profiling",
    "profile_step": "calibrate.profiling",
    "write_cluster": "calibrate.writing",
    "write_workload": "calibrate.writing",
}


def __getattr__(name: str) -> Any:
    # scipy takes a second to import: only those who fit pay for it
    if name in _HOME:
        import importlib

        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'calibrate' has no attribute {name!r}")
