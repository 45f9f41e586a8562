"""Validations, built without any simulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calibrate.validation.comparison import Compared
from calibrate.validation.validation import Validation, scores_of
from simulator.base.table import Column, Table
from simulator.spec.figures import Estimate

HOSTILE = '<script>window.pwned=1</script>"|`[x](javascript:alert(1))\u202e&amp;<img src=x onerror=window.pwned=1>'

MOVED = (Column("quantity", "text"), Column("from", "rate"), Column("to", "rate"))


def row(name: str = "8 workers", predicted: float = 103.0, measured: Sequence[float] = (99.0, 100.0, 101.0), **changes: Any) -> Compared:
    """Measured 100 with a noise of 1%, predicted 3% too fast."""
    about = {"group": "async PS", "settings": {"workers": 8.0}, **changes}
    return Compared(
        name=name,
        measured=tuple(measured),
        predicted=Estimate(mean=predicted, low=predicted * 0.95, high=predicted * 1.05),
        **about,
    )


def _many() -> tuple[Compared, ...]:
    rows = []
    for group, (mode, factor) in enumerate((("async PS", 1.02), ("sync PS", 0.97), ("ring all-reduce", 1.05))):
        for workers in (1, 2, 4, 8, 16):
            mean = 90.0 * workers * (1 - 0.02 * workers)
            stale: dict[str, Any] = {}
            if not group:
                stale = {
                    "staleness_measured": (workers - 0.9, workers - 1.1),
                    "staleness_predicted": workers - 0.97,
                    "staleness_distance": 0.04,
                }
            rows.append(
                row(
                    f"{mode}, {workers} workers",
                    mean * (factor + 0.01 * (workers == 16 and group == 2)),
                    (mean * 0.99, mean, mean * 1.01),
                    group=mode,
                    fitted=workers == 1,
                    settings={"workers": float(workers), "servers": 2.0},
                    baselines={"ideal linear": 90.0 * workers, "alpha-beta": mean * 1.1},
                    note="the slowest" if workers == 16 else "",
                    **stale,
                )
            )
    return tuple(rows)


def validation_of(rows: Sequence[Compared] | None = None, **changes: Any) -> Validation:
    """Fifteen settings of three groups, unless rows are given."""
    chosen = _many() if rows is None else tuple(rows)
    about: dict[str, Any] = {
        "key": "sample",
        "title": "A testbed of sixteen workers",
        "command": "python -m evidence published",
        "date": "2026-01-02 03:04+00:00",
        "machine": "a machine, 2 cores, Python 3.11",
        "about": ("points.csv holds 45 runs at 15 settings.",),
        "notes": ("the network is an assumption, not a measurement",),
        "tables": (Table("What was moved", MOVED, (("bandwidth", 1.25e8, 2.5e8),), "moved", "By the fit."),),
        "overlay": tuple(each.group for each in chosen),
        "scores": tuple(scores_of(chosen)),
    }
    return Validation(rows=chosen, **{**about, **changes})
