"""How the validation on published tables is told: what a constant was fitted on stays apart, every exclusion is named."""

from __future__ import annotations

from pathlib import Path

from support.validations import row

from evidence.published.device_transfer import BY_RATIO
from evidence.published.tables import Excluded
from evidence.published.validation import Coverage, PublishedValidation, outlines_of
from paceline.reporting.validation import ValidationFiles, as_data, render_validation, section
from paceline.reporting.validation.page import kinds_of_tables
from simulator.spec.constants import Constant, Prior

PRIOR = Prior(value=0.5, low=0.1, high=0.9, source="made up for this test")
FOUND = PublishedValidation(
    rows=(
        row("resnet, 1 GPU", 100.0, group="sync PS", fitted=True),
        row("resnet, 8 GPUs", 110.0, group="sync PS", note="two switches"),
        row("vgg, V100 to A100", 150.0, group=BY_RATIO, settings={"from": "V100", "to": "A100", "precision": "float32"}),
        row("resnet, 4 GPUs", 96.0, group="all-reduce"),
    ),
    constants=(
        Constant(
            name="host_copy_s",
            value=0.5,
            low=0.4,
            high=0.6,
            fitted=True,
            determined=True,
            tables=("vendor",),
            meaning="seconds of a copy, made up for a test",
            prior=PRIOR,
        ),
        Constant(
            name="other_s",
            value=0.5,
            low=0.1,
            high=0.9,
            fitted=False,
            determined=False,
            meaning="another one that nothing determines",
            prior=PRIOR,
        ),
    ),
    excluded=(Excluded(table="vendor", series="alexnet | old", rows=3, reason="no row says which network it ran on"),),
    coverage=(
        Coverage(of="throughput", series=3, series_in=2, rows=7, rows_in=4),
        Coverage(of="NCCL", series=2, series_in=1, rows=9, rows_in=5),
    ),
)


def test_moved_trainings_do_not_count_in_the_score_of_all():
    validation = FOUND.validation
    assert [score.group for score in validation.scores] == [BY_RATIO, "sync PS", "all-reduce", "throughput"]
    assert validation.score is not None
    assert validation.score.settings == 2
    assert abs(validation.score.worst_error - 0.1) < 1e-9
    assert validation.score.worst_setting == "resnet, 8 GPUs"
    assert BY_RATIO not in validation.checked


def test_coverage_constants_exclusions_and_the_worst_are_told():
    validation = FOUND.validation
    for text in (section(validation), render_validation(validation)):
        assert all(count in text for count in ("2 of 3 series", "4 of 7 rows", "1 of 2 series", "5 of 9 rows"))
        assert "no row says which network it ran on" in text
        assert "seconds of a copy" in text
        assert PRIOR.source in text
        assert "two switches" in text
    told = as_data(validation)
    assert told["coverage"]["throughput"] == {"series": 3, "series_in": 2, "rows": 7, "rows_in": 4}
    assert told["excluded"][0]["series"] == "alexnet | old"
    assert [each["name"] for each in told["constants"]] == ["host_copy_s", "other_s"]


def test_one_regime_alone_has_one_score_and_no_score_of_all():
    alone = FOUND.model_copy(update={"rows": FOUND.rows[:2]})
    assert [score.group for score in alone.validation.scores] == ["sync PS"]


def test_throughputs_all_reduces_and_staleness_are_three_headlines():
    more = (row("16 ranks, 1 GB", 190.0, group="NCCL"), row("30 workers", 29.0, group="staleness", unit="updates"))
    validation = FOUND.model_copy(update={"rows": FOUND.rows + more}).validation
    assert [(what, score.group, score.settings) for what, score in validation.headlines] == [
        ("throughput", "throughput", 2),
        ("rate of all-reduces", "NCCL", 1),
        ("mean staleness", "staleness", 1),
    ]
    assert all(score.settings < 4 for score in validation.scores)
    told = as_data(validation)["summary"]
    assert not any("throughput" in sentence for sentence in told[2:])
    assert sum("16 ranks, 1 GB" in sentence for sentence in told) == 1
    page = render_validation(validation)
    assert all(name in page for name in ("resnet, 8 GPUs", "16 ranks, 1 GB", "30 workers"))


def test_which_tables_there_will_be_is_known_before(tmp_path):
    known = [set(kinds_of_tables(outline)) for outline in outlines_of()]
    assert known == [{file.name for file in (Path(__file__).parents[2] / "evidence" / "tables").glob("published-*.csv")}]
    assert [set(kinds_of_tables(outline)) for outline in outlines_of(["NCCL"])] == [
        {"published-nccl.csv", "published-constants.csv", "published-excluded.csv"}
    ]
    assert [outline.key for outline in outlines_of(["moved"])] == ["moved"]
    assert [outline.key for outline in outlines_of(only=["a"])] == ["published", "moved"]


def test_tables_go_where_they_were_announced_and_replace_their_like(tmp_path):
    moved = FOUND.model_copy(update={"rows": FOUND.rows[2:3]})
    for validation, outlines in ((FOUND.validation, outlines_of()), (moved.validation, outlines_of(["moved"]))):
        for _ in range(2):
            files = ValidationFiles({}, tmp_path)
            files.check(outlines)
            files.write(validation)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "moved-moved-two-rooflines.csv", "moved-moved.csv", "published-all-reduce.csv", "published-constants.csv", "published-excluded.csv",
        "published-moved-two-rooflines.csv", "published-moved.csv", "published-sync-ps.csv",
    ]  # fmt: skip
