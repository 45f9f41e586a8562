"""Why a training does not scale: what was seen of real runs beside what a scenario predicts, and the causes that tell them apart."""

from __future__ import annotations

from paceline.diagnosing.diagnosis import Cause, Diagnosis, diagnose
from paceline.diagnosing.seen import Seen, another_model, seen_in_points, seen_in_runs, seen_in_steps, seen_in_throughputs

__all__ = [
    "Cause", "Diagnosis", "Seen", "another_model", "diagnose", "seen_in_points", "seen_in_runs", "seen_in_steps", "seen_in_throughputs",
]  # fmt: skip
