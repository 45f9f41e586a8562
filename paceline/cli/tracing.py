"""``--trace``: a recorded run as a Chrome trace, and what bounds its median step."""

from __future__ import annotations

from pathlib import Path

from paceline.cli.showing import note
from simulator.files import write_whole
from simulator.observing.chrome_trace import chrome_trace
from simulator.observing.critical_path import critical_path, median_step
from simulator.observing.recording import Recording
from simulator.observing.step_bound import bound_of_step
from simulator.scenario import Scenario

__all__ = ["write_trace"]


def write_trace(file: Path, scenario: Scenario, recording: Recording) -> None:
    """Write the trace with the critical path of the measured step of median length, and tell of both."""
    measured = recording.steps[scenario.warmup * scenario.replicas :] or recording.steps
    path = critical_path(recording, median_step(measured)) if measured else None
    about = {"scenario_hash": scenario.hash, "seed": scenario.run.seed, "replication": 0}
    write_whole(file, chrome_trace(recording, path, replicas_per_device=scenario.cluster.replicas_per_device, about=about))
    note(f"wrote {file}; open it at ui.perfetto.dev or chrome://tracing")
    if path is not None:
        note(bound_of_step(path))
