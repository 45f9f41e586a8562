"""What docs/stragglers.md says of the step times of a production cluster, from the rows."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]


def test_the_page_says_what_the_jobs_show() -> None:
    with (ROOT / "models/published/step_time_variation.csv").open(encoding="utf-8", newline="") as file:
        jobs = list(csv.DictReader(file))
    correlation, spread = (np.array([float(job[name]) for job in jobs]) for name in ("lag1_autocorrelation", "mean_cv"))
    nine_of_ten = np.sort(correlation)[len(jobs) // 10]
    assert nine_of_ten > 0.25
    says = (
        f"Of {len(jobs)} jobs of a production cluster (Alibaba 2020, [`models/published/step_time_variation.csv`]"
        f"(../models/published/step_time_variation.csv)), the autocorrelation of successive steps is {np.median(correlation):.2f} in the "
        f"median and above 0.25 in nine of ten, and their standard deviation {np.median(spread):.0%} of the mean in the median and "
        f"{np.sort(spread)[-(len(jobs) // 10) - 1]:.0%} in one of ten."
    )
    assert says in (ROOT / "docs/stragglers.md").read_text(encoding="utf-8")
