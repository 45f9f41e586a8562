"""Published trainings moved to another device: predicted without themselves, and how well."""

from __future__ import annotations

import math

import pytest

from calibrate.validation.validation import Compared, scores_of
from evidence.published.device_transfer import BY_PAIR, BY_RATIO, BY_ROOFLINE, MOVED_BY, moved_rows
from evidence.published.validation import MOVED, validate_published
from simulator.resolve.published_throughputs import PublishedThroughput, PublishedThroughputs, load_published_throughputs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rows() -> tuple[Compared, ...]:
    return moved_rows()


def test_each_rule_is_tried_on_many_trainings_from_the_older_device_to_the_newer(rows):
    counts = {group: sum(row.group == group for row in rows) for group in MOVED_BY}
    assert counts[BY_PAIR] >= 40
    assert counts[BY_RATIO] >= 60
    assert counts[BY_ROOFLINE] >= 80
    assert any((row.settings.get("from"), row.settings["to"]) == ("Tesla K80 (one die)", "Tesla P100-SXM2") for row in rows)
    named = [(row.group, row.name) for row in rows if row.group != BY_ROOFLINE]
    assert len(set(named)) == len(named)
    assert not any(row.fitted for row in rows)


def test_the_ranges_hold_about_as_many_as_they_say(rows):
    scores = {score.group: score for score in scores_of(rows)}
    assert scores[BY_PAIR].inside >= 0.8
    assert scores[BY_RATIO].inside >= 0.9
    assert scores[BY_ROOFLINE].inside >= 0.9


def test_every_rule_beats_the_ratio_of_peaks_and_of_bandwidths(rows):
    scores = {score.group: score for score in scores_of(rows)}
    for group in (BY_PAIR, BY_RATIO):
        score = scores[group]
        assert score.median_absolute_error < min(score.baselines.values())
        assert abs(score.median_error) < 0.1


@pytest.mark.parametrize("group", [BY_RATIO, BY_ROOFLINE])
def test_a_training_has_no_part_in_its_own_roofline(rows, group):
    speeds = load_published_throughputs()
    model = "bert-large-384"
    twice = (row.model_copy(update={"throughput": row.throughput * 2}) if row.model == model else row for row in speeds.rows)
    changed = {row.name: row for row in moved_rows(PublishedThroughputs(twice, speeds.models)) if row.group == group}
    same = [row for row in rows if row.group == group and row.settings["model"] == model]
    assert same
    for row in same:
        other = changed[row.name]
        assert other.measured[0] == pytest.approx(2 * row.measured[0])
        scale = 1.0 if group == BY_ROOFLINE else 2.0  # what was measured on the other device doubles too
        assert other.predicted.high / other.predicted.mean == pytest.approx(row.predicted.high / row.predicted.mean)
        assert other.predicted.mean == pytest.approx(scale * row.predicted.mean)


def test_a_source_has_no_part_in_its_own_pairs(rows):
    speeds = load_published_throughputs()
    moved = (
        row.model_copy(update={"throughput": row.throughput * 3}) if row.source == "paddle_perf" and row.device.startswith("A100") else row
        for row in speeds.rows
    )
    changed = {row.name: row for row in moved_rows(PublishedThroughputs(moved, speeds.models)) if row.group == BY_PAIR}
    own = [row for row in rows if row.group == BY_PAIR and row.settings["table"] == "paddle_perf"]
    assert own
    for row in own:
        assert changed[row.name].measured[0] == pytest.approx(3 * row.measured[0])
        assert changed[row.name].predicted == row.predicted


def test_a_pair_is_predicted_from_the_other_source():
    def speed(source: str, model: str, device: str, throughput: float) -> PublishedThroughput:
        return PublishedThroughput(
            source=source, software="s", model=model, precision="float32", device=device, devices=1, batch=8,
            throughput=throughput, unit="images/s", url="https://example.org",
        )  # fmt: skip

    rates = {("a", "m"): (10.0, 30.0), ("b", "m"): (20.0, 40.0), ("a", "n"): (1.0, 4.0), ("b", "n"): (1.0, 5.0)}
    devices = ("Tesla P100-SXM2", "Tesla V100-SXM2")
    speeds = PublishedThroughputs(
        (speed(*key, device, rate) for key, its in rates.items() for device, rate in zip(devices, its, strict=True)), []
    )
    rows = {row.name.split(",")[0] + row.settings["table"]: row for row in moved_rows(speeds)}
    first = rows["m in float32a"]
    assert first.measured == (pytest.approx(30.0),)
    assert first.predicted.mean == pytest.approx(20.0)
    sigma = math.log(5 / 4) / math.sqrt(2)  # of model n
    assert first.predicted.high == pytest.approx(20.0 * math.exp(6.313752 * sigma * math.sqrt(2)), rel=1e-5)
    assert first.baselines["bandwidth"] == pytest.approx(10.0 * 900 / 732, rel=0.01)


def test_it_is_a_part_of_the_validation_and_told_in_words_and_a_table():
    found = validate_published([MOVED])
    assert {row.group for row in found.rows} == set(MOVED_BY)
    told = found.validation
    assert [score.group for score in told.scores] == list(MOVED_BY)
    table = next(each for each in told.details if each.title == "Moved from one device to another")
    assert sum(table.to_frame()["trainings"]) == len(found.rows)
