"""The map of a report: throughput by how a model is cut, or by the two settings that are swept most."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.results import STRATEGIES, grid, sweep

import paceline
from paceline.reporting.columns import differ_in_layout, map_of
from paceline.reporting.coordinates import ABSENT, coordinates_of
from paceline.sweeping import Sweep
from simulator.results.results import Failure, Result

CUT = {
    "run.steps": 6, "run.replications": 2, "run.warmup_steps": 1, "training.recompute": "none", "workload.batch_per_replica": 32,
}  # fmt: skip


@pytest.fixture(scope="module")
def layouts() -> Sweep:
    """Four layouts of a model of which two do not fit into the memory of a device."""
    return paceline.sweep("tensor-pipeline", {"strategy.tensor": [1, 4], "strategy.pipeline": [1, 2]}, settings=CUT, jobs=1)


def test_layouts_are_rows_and_columns_and_what_does_not_fit_says_so(layouts: Sweep) -> None:
    results, failures = ([its for its in layouts if isinstance(its, kind)] for kind in (Result, Failure))
    at = coordinates_of(results)
    found = map_of(results, at, failures)
    assert differ_in_layout(results, at, failures)
    assert found is not None
    assert (found["rows"]["name"], found["columns"]["name"]) == ("Tensor", "Pipeline")
    assert (found["rows"]["texts"], found["columns"]["texts"]) == (["1", "4"], ["1", "2"])
    assert found["of"] == [[1, 0], [1, 1]]
    assert [its["of"] for its in found["failures"]] == [[0, 0], [0, 1]]
    assert all("GiB" in its["text"] for its in found["failures"])


@pytest.mark.slow
def test_each_layout_has_its_steps_in_time_and_its_memory(layouts: Sweep, tmp_path: Path) -> None:
    page = paceline.report(layouts, tmp_path / "layouts.html").path.read_text(encoding="utf-8")
    figures, points = (
        json.loads(re.findall(rf'<script id="{name}" type="application/json">(.*?)</script>', page, re.DOTALL)[0])
        for name in ("figures", "points")
    )
    assert {"timeline-0", "timeline-1", "memory-0", "memory-1"} <= set(figures)
    assert len(figures["timeline-1"]["layout"]["yaxis"]["ticktext"]) > 2  # a lane for each stage
    assert points["of_layouts"]["1"]["memory"].startswith("2-stage pipeline (1f1b), 4-way tensor parallel: Stage 0 holds most: ")
    assert '<div class="plot" id="figure-map"' in page.partition('<div class="explored">')[0]  # it is the figure that answers


def test_other_sweeps_are_mapped_by_the_settings_with_most_values() -> None:
    results = grid()
    at = coordinates_of(results)
    found = map_of(results, at)
    assert not differ_in_layout(results, at)
    assert found is not None
    sides = [at.keys[found[side]["key"]] for side in ("rows", "columns")]
    assert min(len(key.values) for key in sides) >= max(len(key.values) for key in at.keys if key not in sides)
    for index, cell in enumerate(found["of"]):
        places = [at.places[index][found[side]["key"]] for side in ("rows", "columns")]
        assert cell == (None if ABSENT in places else places)


def test_one_setting_makes_no_map() -> None:
    results = sweep((STRATEGIES[0],), (1, 2, 4))
    assert map_of(results, coordinates_of(results)) is None
