"""A validation as JSON has it."""

from __future__ import annotations

from typing import Any

from calibrate.validation.comparison import Compared
from calibrate.validation.validation import Validation
from paceline.reporting.validation.facts import summary

__all__ = ["as_data"]


def as_data(validation: Validation) -> dict[str, Any]:
    """Rows, scores, thresholds and all that is said, ready to become JSON: numbers in SI units, shares as 0 to 1."""
    return {
        "title": validation.title,
        "command": validation.command,
        "date": validation.date,
        "machine": validation.machine,
        "summary": summary(validation),
        "scores": [{**score.model_dump(mode="json"), "width_over_noise": score.width_over_noise} for score in validation.scores],
        "rows": [_row(row) for row in validation.rows],
        "notes": list(validation.notes),
        "thresholds": {"wanted": validation.wanted, "missed": list(validation.missed)},
        **validation.extra,
    }


def _row(row: Compared) -> dict[str, Any]:
    return {
        **row.model_dump(mode="json"),
        "measured_mean": row.mean,
        "error": row.error,
        "noise": row.noise,
        "repeats_inside": row.inside,
        "interval_score": row.interval_score,
        "staleness_error": row.staleness_error,
    }
