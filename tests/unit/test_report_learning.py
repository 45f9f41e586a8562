"""What a report shows of what was learned."""

from __future__ import annotations

import json
import re

import plotly.graph_objects as go
import pytest

import paceline
from paceline.learning.learned import Learned, LearnedPoint, LearnedRun, LearnedWay, Range, Target, TriedRate, read_learned
from paceline.reporting.axes import series_colour
from paceline.reporting.figures import curves_figure, target_figure
from simulator.base.errors import ResultsError

TRIED = TriedRate(rate=1.0, reached=0, diverged=0, time_s=None, last=None)
SERIES = (0, 1, 2)
QUICK = {"run.steps": 10, "run.replications": 3}


def way(name, scenario, speed, *, priced=True, reaches=True):
    """Two runs, the second a little slower."""
    runs = []
    for seed, factor in enumerate((1.0, 1.25)):
        points = tuple(
            LearnedPoint(time_s=factor * at / speed, samples=32 * at, updates=at, metrics={"loss": 2.0 / (1 + at), "accuracy": at / 10})
            for at in range(10)
        )
        reached = points[8].time_s if reaches else None
        runs.append(LearnedRun(seed=seed, diverged=False, points=points, reached_s=reached, reached_samples=256, best=0.9, last=0.9))
    times = Range.of([run.reached_s for run in runs if run.reached_s is not None])
    return LearnedWay(
        name=name, scenario=scenario, rate=1.0, tried=(TRIED,), batch=8, epochs=20.0, workers=2, staleness=0.0, samples_per_s=100.0 * speed,
        usd_per_hour=3600.0 if priced else None, runs=tuple(runs), time_s=times, time_low_s=None, time_high_s=None,
        cost_usd=times if priced else None, samples=Range.of([256.0]), last=Range.of([0.9]),
    )  # fmt: skip


@pytest.fixture(scope="module")
def learned() -> Learned:
    fast = paceline.load("async-ps", {**QUICK, "strategy.workers": 2})
    slow = paceline.load("sync-ps", {**QUICK, "strategy.workers": 2})
    return Learned(
        problem="digits-mlp<b>", samples=1437, optimizer="SGD", epochs=3, stand_in=True, target=Target.of("accuracy=0.8"),
        ways=(way("async", fast, 4.0), way("sync", slow, 1.0), way("ssp", fast, 2.0, reaches=False)), warnings=("of another model",),
    )  # fmt: skip


def test_curves_have_median_and_range(learned):
    figure = go.Figure(curves_figure(learned, "accuracy", SERIES))
    assert len(figure.data) == 3 * 3 + 1  # range, median and end of each way, and the target
    band, median, end, *_ = figure.data
    assert len(band.x) == 2 * len(median.x)
    half = len(median.x)
    low, high = band.y[half:][::-1], band.y[:half]
    assert all(below <= middle <= above for below, middle, above in zip(low, median.y, high, strict=True))
    assert median.x[0] == pytest.approx(1.25 / 4)  # when both have been validated for the first time
    assert median.x[-1] == end.x[0] == pytest.approx(9 / 4)  # until the first of them ends
    assert list(figure.data[-1].y) == pytest.approx([0.2, 0.2])  # of an accuracy what it lacks to 1
    assert curves_figure(learned, "loss", SERIES)["layout"]["yaxis"]["type"] == "log"
    assert curves_figure(learned, "no such", SERIES)["data"] == []


def test_time_cost_and_throughput_of_each_way(learned):
    figure = go.Figure(target_figure(learned, SERIES))
    names = figure.layout.yaxis.ticktext
    shown = {(trace.xaxis, names[trace.y[0]]): trace for trace in figure.data}
    assert shown["x", "async"].x[0] == pytest.approx((2.0 + 2.5) / 2)
    assert shown["x", "async"].error_x.array[0] == pytest.approx(0.25)
    assert shown["x2", "sync"].x[0] == pytest.approx(9.0)
    assert shown["x3", "ssp"].x[0] == 200.0
    assert ("x", "ssp") not in shown
    without = tuple(way(its.name, its.scenario, 1.0, priced=False) for its in learned.ways)
    bare = go.Figure(target_figure(learned.model_copy(update={"ways": without}), SERIES))
    assert {trace.xaxis for trace in bare.data} == {"x", "x2"}


@pytest.mark.slow
def test_a_report_of_what_was_learned(learned, tmp_path):
    file = tmp_path / "learned.json"
    file.write_text(learned.to_json() + "\n", encoding="utf-8")
    assert read_learned(file) == learned
    written = paceline.report(str(file), what_ifs=False)
    page = written.path.read_text(encoding="utf-8")
    assert written.path == tmp_path / "learned.html"
    assert len(written.outcomes) == 2
    assert "What is learned" in page
    assert "Async reaches accuracy of at least 0.8" in re.sub(r"\s+", " ", page)
    assert "digits-mlp&lt;b&gt;" in page
    figures = json.loads(re.search(r'<script id="figures" type="application/json">(.*?)</script>', page, re.DOTALL)[1])
    assert {"learning-metric", "learning-loss", "learning-target"} <= figures.keys()
    # beside results of a sweep
    swept = paceline.sweep("ring", {"strategy.workers": [1, 2]}, settings=QUICK, jobs=1)
    beside = paceline.report(swept, tmp_path / "sweep.html", learned=learned, what_ifs=False)
    assert "What is learned" in beside.path.read_text(encoding="utf-8")
    plain = paceline.report(swept, tmp_path / "plain.html", what_ifs=False)
    assert "What is learned" not in plain.path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_way_has_the_colour_of_its_results(learned, tmp_path):
    """Where several ways are of one scenario, the first has it, and the others come after all curves of the page."""
    fast, slow, fast_too = learned.ways
    swapped = learned.model_copy(update={"ways": (slow, fast, fast_too)})
    results = [paceline.simulate(its.scenario) for its in learned.ways[:2]]
    page = paceline.report(results, tmp_path / "swapped.html", learned=swapped, what_ifs=False).path.read_text(encoding="utf-8")
    figures = json.loads(re.search(r'<script id="figures" type="application/json">(.*?)</script>', page, re.DOTALL)[1])
    colours = [trace["line"]["color"] for trace in figures["learning-loss"]["data"] if trace.get("line", {}).get("width") == 2.25]
    assert colours == [series_colour(1), series_colour(0), series_colour(2)]


def test_a_loss_as_target_has_one_figure_of_curves(learned, tmp_path):
    its = learned.model_copy(update={"target": Target.of("loss=0.5")})
    page = paceline.report(its, tmp_path / "loss.html", what_ifs=False).path.read_text(encoding="utf-8")
    assert "figure-learning-loss" in page
    assert "figure-learning-metric" not in page


def test_what_is_no_answer(tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text('{"problem": "x", "target": {}, "ways": []}', encoding="utf-8")
    with pytest.raises(ResultsError, match=r"broken\.json: .*this is not an answer of `paceline learn --out FILE\.json`"):
        read_learned(broken)
    with pytest.raises(ResultsError, match=r"nothing\.json: there is no such file"):
        read_learned(tmp_path / "nothing.json")
