"""Why a training does not scale: what was seen of real runs beside what a scenario predicts, and the causes that tell them apart."""

from __future__ import annotations

from paceline.diagnosing.diagnosis import Cause, Diagnosis, diagnose
from paceline.diagnosing.seen import Seen, seen_in_epochs, seen_in_figures, seen_in_points, seen_in_runs

__all__ = ["Cause", "Diagnosis", "Seen", "diagnose", "seen_in_epochs", "seen_in_figures", "seen_in_points", "seen_in_runs"]
