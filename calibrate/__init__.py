"""Calibration: real TensorFlow steps, transfers and profiles become specifications that the simulator reads.

``probe -> measurements -> fit -> workload.toml``: a probe (``calibrate/probes``) runs as a child process in the user's own
Python and writes a measurement file, line by line; a fit (``calibrate/fit``) reads it and makes a workload, a cluster or an
input pipeline. ``calibrate/testbed`` runs real clusters on this machine, ``calibrate/validation`` compares predictions with measurements.

The names below are imported when they are first used, from the modules in ``_HOME``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calibrate.fit.input_pipeline import fit_input
    from calibrate.fit.link import fit_link
    from calibrate.fit.profile import fit_profiles
    from calibrate.fit.server import fit_server
    from calibrate.fit.step import fit_workload
    from calibrate.fit.writing import write_cluster, write_input, write_workload
    from calibrate.profiling import profile_at_once, profile_input, profile_link, profile_runs, profile_server, profile_step

__all__ = [
    "fit_input", "fit_link", "fit_profiles", "fit_server", "fit_workload", "profile_at_once", "profile_input", "profile_link",
    "profile_runs", "profile_server", "profile_step", "write_cluster", "write_input", "write_workload",
]  # fmt: skip

_HOME = {
    "fit_input": "calibrate.fit.input_pipeline",
    "fit_link": "calibrate.fit.link",
    "fit_profiles": "calibrate.fit.profile",
    "fit_server": "calibrate.fit.server",
    "fit_workload": "calibrate.fit.step",
    "profile_at_once": "calibrate.profiling",
    "profile_input": "calibrate.profiling",
    "profile_link": "calibrate.profiling",
    "profile_runs": "calibrate.profiling",
    "profile_server": "calibrate.profiling",
    "profile_step": "calibrate.profiling",
    "write_cluster": "calibrate.fit.writing",
    "write_input": "calibrate.fit.writing",
    "write_workload": "calibrate.fit.writing",
}


def __getattr__(name: str) -> Any:
    # scipy takes a second to import: only those who fit pay for it
    if name in _HOME:
        import importlib

        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'calibrate' has no attribute {name!r}")
