"""What docs/staleness.md says of the step times of a production cluster, from the rows."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]


def test_the_page_says_what_the_jobs_show() -> None:
    with (ROOT / "models/published/step_time_variation.csv").open(encoding="utf-8", newline="") as file:
        jobs = list(csv.DictReader(file))
    correlation, spread = (np.array([float(job[name]) for job in jobs]) for name in ("lag1_autocorrelation", "mean_cv"))
    nine_of_ten = np.sort(correlation)[len(jobs) // 10]
    assert nine_of_ten > 0.25
    page = (ROOT / "docs/staleness.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(rf"Of {len(jobs)} jobs .*?step_time_variation\.csv\)\), (.*?)\.\n", page)
    high = np.sort(spread)[-(len(jobs) // 10) - 1]
    said = [f"{np.median(correlation):.2f}", "0.25", f"{np.median(spread):.0%}", f"{high:.0%}"]
    assert re.findall(r"\d+(?:\.\d+)?%?", sentence) == said
