"""Why a training does not scale: real runs compared with the prediction of a scenario, and the causes of the difference."""

from __future__ import annotations

from paceline.diagnosing.diagnosis import Cause, Diagnosis, diagnose
from paceline.diagnosing.seen import Seen, seen_in_epochs, seen_in_figures, seen_in_points, seen_in_runs

__all__ = ["Cause", "Diagnosis", "Seen", "diagnose", "seen_in_epochs", "seen_in_figures", "seen_in_points", "seen_in_runs"]
