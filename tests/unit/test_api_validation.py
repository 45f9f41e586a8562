"""Validating and refitting as a library: what is answered, written, judged and refused, arguments named in backticks."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from support.scenarios import scenario_table

import paceline
from evidence.validating import published_scenario, validate_published
from paceline.lengthy import Lengthy
from paceline.reporting.validation import as_data
from simulator import load_scenario
from simulator.base.errors import InputError, ScenarioError

POINTS = "workers,servers,throughput,staleness\n1,1,1000,0\n1,1,1020,0\n2,1,1900,0.9\n2,1,1960,1.0\n"
TABLE = scenario_table(strategy={"kind": "parameter-server", "mode": "async", "workers": 2})


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)


@pytest.fixture
def points(tmp_path: Path) -> Path:
    file = tmp_path / "points.csv"
    file.write_text(POINTS)
    return file


def test_points_are_compared_and_written(points: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    files = {name: tmp_path / name for name in ("out", "markdown", "rows")}
    found = paceline.validate(TABLE, points, **files, progress=lambda *done: seen.append(done))
    assert isinstance(found, paceline.Validation)
    assert [row.measured for row in found.rows] == [(1000.0, 1020.0), (1900.0, 1960.0)]
    frame = found.to_frame()
    assert frame["error"].tolist() == [row.error for row in found.rows]
    assert frame["settings.workers"].tolist() == [1.0, 2.0]
    assert "median_error" in found._repr_html_()
    assert seen[-1] == (2, 2, "settings")
    assert files["out"].read_text().startswith("<!DOCTYPE html>")
    assert "by `paceline.validate`" in files["markdown"].read_text()
    assert files["rows"].read_text().startswith("name,group,unit,predicted")  # without a discrepancy there is no row
    assert as_data(found)["rows"][0]["measured_mean"] == 1010.0


def test_what_takes_long_is_agreed_to_before_anything_is_done(points: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.lengthy._LONG_S", 0.0)

    def refuse(work: Lengthy) -> None:
        assert work.what.startswith("2 scenarios ")
        raise InterruptedError

    with pytest.raises(InterruptedError):
        paceline.validate(TABLE, points, out=tmp_path / "page.html", agree=refuse)
    assert not (tmp_path / "page.html").exists()


def test_thresholds_are_judged(points: Path) -> None:
    strict = paceline.validate(TABLE, points, thresholds={"max_worst": "0.0001%", "max_distance": 0.5})
    assert "0.0001%" in strict.wanted
    assert "0.5" in strict.wanted
    assert len(strict.missed) == 2
    assert "cannot be judged" in strict.missed[1]
    assert paceline.validate(TABLE, points, thresholds={"max_staleness": 10}).missed == ()


@pytest.mark.slow
def test_a_refit_gives_the_scenario_its_factors_and_scores(points: Path, tmp_path: Path) -> None:
    points.write_text("workers,servers,throughput\n1,1,500\n1,1,510\n2,1,980\n2,1,1000\n")
    out = tmp_path / "refitted.toml"
    seen: list[str] = []
    found = paceline.refit(TABLE, points, out_scenario=out, progress=lambda _done, _total, what: seen.append(what))
    assert list(dict.fromkeys(seen)) == ["settings", "fits"]
    low, high = found.intervals_90["compute"]
    assert low < found.factors["compute"] < high
    assert found.to_frame().set_index("name").loc["compute", "factor"] == found.factors["compute"]
    assert [score.group for score in found.validation.scores] == ["as given", "each point from the others"]
    assert [table.name for table in found.validation.tables] == ["moved", "held"]
    before, after = scenario_of(TABLE), found.scenario
    assert after.workload.forward.base_s == pytest.approx(before.workload.forward.base_s * found.factors["compute"], rel=1e-6)
    assert load_scenario(out).hash == after.hash
    assert tomllib.loads(out.read_text())["workload"]["provenance"]["refit"] == "fitted to points.csv by paceline.refit"
    assert "<table" in found._repr_html_()


def scenario_of(table: dict[str, object]) -> paceline.Scenario:
    return paceline.load(table)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"unit": "steps/s"}, "`unit`: 'steps/s' must be 'samples/s' or 'updates/s'"),
        ({"thresholds": {"median": "2%"}}, "`thresholds`: no threshold is named 'median'; did you mean `max_median`?"),
        ({"thresholds": {"max_median": "much"}}, "`max_median`: 'much': must"),
        ({"thresholds": {"min_coverage": 80}}, "`min_coverage`: '80': is 8,000%"),
        ({"thresholds": {"max_distance": 3}}, "`max_distance`: '3': must be at most 1"),
        ({"thresholds": "2%"}, "`thresholds`: '2%' must be"),
        ({"out": "mine"}, "`out`: 'mine': exists already"),
        ({"out": "points.csv"}, "`out`: 'points.csv': is the input file"),
        ({"out": "x", "rows": "x"}, "`out` and `rows` are both 'x'"),
        ({"markdown": "mine/x"}, "`markdown`: 'mine/x': cannot be written"),
    ],
)
def test_what_is_wrong_names_the_argument(
    points: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, object], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").write_text("mine")
    with pytest.raises(InputError) as refused:
        paceline.validate(TABLE, "points.csv", **arguments)
    assert said in str(refused.value)
    assert "--" not in str(refused.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "points.csv"]


@pytest.mark.slow
def test_what_is_wrong_of_the_others_names_the_argument(points: Path, tmp_path: Path) -> None:
    points.with_name("there.toml").write_text("mine")
    with pytest.raises(InputError, match=r"`out_scenario`: .*`force=True`"):
        paceline.refit(TABLE, points, out_scenario=points.with_name("there.toml"))
    with pytest.raises(ScenarioError, match=r"`matrix`: .*'quikc'; did you mean quick"):
        paceline.validate_matrix("quikc")
    with pytest.raises(InputError, match=r"`count`: .*`matrix='random:1'`"):
        paceline.read_matrix("quick", count=3)
    with pytest.raises(InputError, match="`count=0`: must be from 1 to 200"):
        paceline.read_matrix("random:1", count=0)
    with pytest.raises(InputError, match="`out_matrix`: "):
        paceline.read_matrix("quick", out_matrix=tmp_path / "quick.toml")
    with pytest.raises(InputError, match=r"`regimes`: .*'nccl'; did you mean NCCL\?"):
        validate_published(["nccl"])
    with pytest.raises(InputError, match="'horovod_2018'; did you mean horovod_2017"):
        validate_published(only=["horovod_2018"])
    with pytest.raises(InputError, match=r"'zzz'; tables are .*, tensorpack, "):
        validate_published(only=["zzz"])
    with pytest.raises(InputError, match="`regimes`: 'NCCL' must be a list"):
        validate_published("NCCL")


@pytest.mark.slow
def test_a_table_is_validated_alone_and_a_row_of_it_is_a_scenario_that_predicts_the_same(tmp_path: Path) -> None:
    found = validate_published(only=["tensorpack"])
    assert {row.settings["table"] for row in found.rows} == {"tensorpack"}
    assert len(found.rows) == 16  # models/published/tensorpack.csv
    row = found.rows[-1]
    file = tmp_path / "row.toml"
    published_scenario(row.name, out_scenario=file)
    assert paceline.simulate(file).throughput_samples_per_s == row.predicted
    about = file.read_text().splitlines()[:3]
    for part in (repr(row.name), "models/published/tensorpack.csv", f"{row.measured[0]:,.0f} images/s"):
        assert part in about[0]
    assert repr(row.name.partition(":")[0] + ": 1 on 1") in about[1]
    assert about[2] == f"# Source: {row.settings['source']}"
    with pytest.raises(InputError, match=r"`out_scenario`: .*`force=True`"):
        published_scenario(row.name, out_scenario=file)


def test_a_matrix_is_drawn_listed_and_written(tmp_path: Path) -> None:
    out = tmp_path / "drawn.toml"
    drawn = paceline.read_matrix("random:1", count=2, out_matrix=out)
    assert drawn.drawn_by == 1
    assert len(drawn.held_out) == 2
    assert sum(drawn.to_frame()["guessed_s"]) == pytest.approx(drawn.guessed_s)
    assert paceline.read_matrix(out).held_out == drawn.held_out
    assert "random-1-2" in drawn._repr_html_()
