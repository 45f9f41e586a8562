"""``paceline validate`` through the real command line: comparison, refit, thresholds, files, bad input."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from support.command_line import SCENARIO, Answer, refused
from syrupy.assertion import SnapshotAssertion

from calibrate.validation.validation import Thresholds, thresholds_of
from paceline.cli.showing_validation import _narrow
from simulator import load_scenario
from simulator.base.errors import InputError
from simulator.base.table import Column, Table
from simulator.base.units import share_of

Runner = Callable[..., Answer]
POINTS = "workers,servers,throughput,staleness\n1,1,1000,0\n1,1,1020,0\n2,1,1900,0.9\n2,1,1960,1.0\n"
MEASURED = ("validate", "s.toml", "--measured", "p.csv")


@pytest.fixture
def points(folder: Path) -> Path:
    file = folder / "p.csv"
    file.write_text(POINTS)
    return file


def test_points_are_compared(paceline: Runner, points: Path, snapshot: SnapshotAssertion) -> None:
    answer = paceline(*MEASURED)
    assert answer.code == 0
    assert "1,010" in answer.stdout
    assert max(map(len, answer.stdout.splitlines())) <= 80
    assert answer.stdout == snapshot


def test_a_bias_beyond_the_noise_leads_to_a_refit(paceline: Runner, points: Path) -> None:
    points.write_text("workers,servers,throughput\n1,1,500\n1,1,510\n")
    answer = paceline(*MEASURED)
    assert re.search(r"noise +1\.4% ", answer.stdout), "by which runs scatter"
    assert re.search(r"Next +paceline validate s\.toml --measured p\.csv .*--refit fits ", " ".join(answer.stdout.split()))
    assert answer.stderr == ""
    assert "median_interval_score" in paceline(*MEASURED, "--json").stdout


def test_json_holds_rows_and_scores(paceline: Runner, points: Path) -> None:
    told = json.loads(paceline(*MEASURED, "--json").stdout)
    assert [(row["name"], row["measured"]) for row in told["rows"]] == [
        ("1 worker, 1 server", [1000.0, 1020.0]),
        ("2 workers, 1 server", [1900.0, 1960.0]),
    ]
    first = told["rows"][0]
    assert first["error"] == pytest.approx(first["predicted"]["mean"] / 1010 - 1)
    (score,) = told["scores"]
    assert score["settings"] == 2
    assert score["median_absolute_error"] == pytest.approx(sum(abs(row["error"]) for row in told["rows"]) / 2)
    assert told["thresholds"] == {"wanted": "", "missed": []}
    assert told["command"] == "paceline validate s.toml --measured p.csv --json"


def test_page_and_markdown_are_written(paceline: Runner, folder: Path, points: Path) -> None:
    answer = paceline(*MEASURED, "--out", "deep/v.html", "--markdown", "f.md")
    assert answer.code == 0
    assert "wrote deep/v.html" in answer.stderr
    assert (folder / "deep/v.html").read_text().startswith("<!DOCTYPE html>")
    assert "## plain, async PS" in (folder / "f.md").read_text()
    again = paceline(*MEASURED, "--out", "deep/v.html", "--markdown", "f.md")
    assert again.code == 0
    assert (folder / "f.md").read_text().count("## plain, async PS") == 1
    assert sorted(path.name for path in folder.iterdir()) == ["deep", "f.md", "p.csv", "s.toml"]


def test_rows_are_written_beside_the_markdown_that_links_to_them(paceline: Runner, folder: Path, points: Path) -> None:
    answer = paceline(*MEASURED, "--markdown", "notes/f.md", "--tables", "rows")
    assert answer.code == 0
    assert "wrote rows" in answer.stderr
    link = "[points.csv](../rows/points.csv), 2 rows"
    assert link in (folder / "notes" / "f.md").read_text()
    head, *lines = (folder / "rows" / "points.csv").read_text().splitlines()
    assert head.startswith("name,group,fitted,unit,repeats,measured,")
    assert len(lines) == 2
    (folder / "taken").write_text("mine")
    refused(paceline(*MEASURED, "--tables", "taken"), "--tables 'taken'")


def test_a_missed_threshold_is_exit_code_3_with_a_line_each(paceline: Runner, points: Path) -> None:
    answer = paceline(*MEASURED, "--max-median", "0.001%", "--max-worst", "0", "--min-coverage", "100%", "--max-staleness", "0")
    assert answer.code == 3
    missed = [line for line in answer.stderr.splitlines() if line.startswith("paceline: threshold missed: ")]
    assert 3 <= len(missed) <= 4
    assert "above 0.001%" in missed[0]
    assert paceline(*MEASURED, "--max-median", "60%", "--max-worst", "0.6", "--min-coverage", "0").code == 0


def test_missed_thresholds_stand_in_the_json_and_on_the_page(paceline: Runner, folder: Path, points: Path) -> None:
    answer = paceline(*MEASURED, "--max-worst", "0.0001%", "--json", "--out", "v.html")
    assert answer.code == 3
    told = json.loads(answer.stdout)["thresholds"]
    assert told["wanted"] == "worst error up to 0.0001%"
    assert len(told["missed"]) == 1
    assert "Threshold missed: " in (folder / "v.html").read_text()


@pytest.mark.parametrize(("text", "value"), [("2%", 0.02), ("0.02", 0.02), (" 80 % ", 0.8), ("0", 0.0), ("1e-3", 0.001)])
def test_shares_in_either_way(text: str, value: float) -> None:
    assert share_of(text, "`x`") == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "two", "-1%", "nan", "inf", "1e999%", "2%%"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(InputError, match="`x`: "):
        share_of(text, "`x`")


def test_thresholds_by_name() -> None:
    assert thresholds_of({"max_median": "2%", "min_coverage": 0.8}) == Thresholds(max_median=0.02, min_coverage=0.8)
    with pytest.raises(InputError, match=r"`min_coverage`: '80'.*80% or 0\.8"):
        thresholds_of({"min_coverage": "80"})


def test_a_refit_moves_compute_and_writes_a_scenario_that_loads(paceline: Runner, folder: Path, points: Path) -> None:
    # four steps tell little of links where workers meet by chance: in order and together
    scenario = folder / "s.toml"
    given = scenario.read_text().replace('mode = "async"', 'mode = "async"\npull_order = "forward"')
    scenario.write_text(given.replace("steps = 4", 'steps = 4\nstart = "together"'))
    slow = "workers,servers,throughput\n1,1,500\n1,1,510\n2,1,980\n2,1,1000\n"
    points.write_text(slow)
    answer = paceline(*MEASURED, "--refit", "--out-scenario", "new.toml", "--json", "--max-median", "25%")
    assert answer.code == 0, answer.stderr
    told = json.loads(answer.stdout)
    moved = {each["name"]: each for each in told["refit"]["moved"]}
    # 6 ms of compute and what it takes besides give the prediction; 10 samples in 1 / 50.5 s were measured
    given = next(row for row in told["rows"] if row["group"] == "as given")["predicted"]["mean"]
    assert moved["compute"]["factor"] == pytest.approx((10 / 505 - (10 / given - 6e-3)) / 6e-3, rel=0.05)
    assert moved["compute"]["most_determined_by"] in ("1 worker, 1 server", "2 workers, 1 server")
    low, high = moved["compute"]["interval_90"]
    assert low < moved["compute"]["factor"] < high
    assert "server time per gradient" in told["refit"]["not_determined"]
    assert [(score["group"]) for score in told["scores"]] == ["as given", "each point from the others"]
    before, left_out = (abs(score["median_error"]) for score in told["scores"])
    assert left_out < before
    fitted = [row for row in told["rows"] if row["fitted"]]
    assert {row["group"] for row in fitted} == {"refitted to all points"}
    keys = moved["compute"]["keys"]["workload.forward.base_s"]
    assert load_scenario(folder / "new.toml").workload.forward.base_s == pytest.approx(keys["to"], rel=1e-6)
    assert "refit" in tomllib.loads((folder / "new.toml").read_text())["workload"]["provenance"]
    # and what it writes predicts them
    after = json.loads(paceline("validate", "new.toml", "--measured", "p.csv", "--json").stdout)
    assert after["scores"][0]["median_absolute_error"] < 0.1


@pytest.mark.long
def test_a_refit_is_told_to_people(paceline: Runner, points: Path) -> None:
    assert "Quantities changed by the refit" in paceline(*MEASURED, "--refit").stdout
    answer = paceline(*MEASURED, "--refit", "--details")
    assert answer.code == 0
    assert "as given" in answer.stdout
    assert "each point from the others" in " ".join(answer.stdout.split())
    assert "--refit" not in answer.stderr


def test_what_a_refit_moved_breaks_no_word_in_80_columns() -> None:
    rate = "rate"
    columns = (
        Column("quantity", "text"), Column("from", rate), Column("to", rate), Column("low", rate, "5%"), Column("high", rate, "95%"),
        Column("factor", "number"), Column("most_determined_by", "text"), Column("factor_without", "number"),
    )  # fmt: skip
    row = ("bandwidth between nodes", 25e9 / 8, 2.15e9 / 8, 1.65e9 / 8, 2.83e9 / 8, 0.0858, "8 workers, 2 servers", None)
    shown = _narrow(Table("What the refit moved", columns, (row,), "moved", "All keys."))
    console = Console(width=80, file=StringIO(), record=True)
    console.print(shown.to_rich())
    words = console.export_text().split()
    assert {"quantity", "bandwidth", "between", "nodes", "Gbit/s", "factor"} <= set(words)
    assert "8 workers, 2 servers" in shown.note


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("validate --unit updates/s", ("--unit", "SCENARIO.toml", "--measured")),
        ("validate s.toml --measured p.csv --matrix quick", ("--matrix", "SCENARIO.toml", "--measured")),
        ("validate s.toml --measured p.csv --timeout 5", ("--timeout", "SCENARIO.toml", "--measured")),
        ("validate --list --rows r.csv", ("--rows", "--list")),
        ("validate --list --max-worst 5%", ("--max-worst", "--list")),
        ("validate --refit", ("--refit", "SCENARIO.toml", "--measured")),
        ("validate s.toml", ("SCENARIO.toml", "--measured", "POINTS.csv")),
        ("validate --measured p.csv", ("SCENARIO.toml", "--measured", "POINTS.csv")),
        ("validate s.toml --measured none.csv", ("none.csv",)),
        ("validate s.toml --measured bad.csv", ("bad.csv:3: throughput: 'x'",)),
        ("validate none.toml --measured p.csv", ("none.toml",)),
        ("validate bad.toml --measured p.csv", ("bad.toml", "strategy.wrokers")),
        ("validate s.toml --measured s.toml", ("s.toml:1",)),
        ("validate s.toml --measured p.csv --unit steps/s", ("'steps/s'", "'samples/s'", "'updates/s'")),
        ("validate s.toml --measured p.csv --max-median much", ("--max-median 'much'",)),
        ("validate s.toml --measured p.csv --max-distance 3", ("--max-distance '3'",)),
        ("validate s.toml --measured p.csv --out-scenario x.toml", ("--out-scenario", "--refit")),
        ("validate s.toml --measured p.csv --refit --out-scenario s.toml", ("'s.toml'",)),
        ("validate s.toml --measured p.csv --refit --out-scenario s.toml --force", ("'s.toml'",)),
        ("validate s.toml --measured p.csv --refit --out-scenario mine.md", ("--out-scenario 'mine.md'",)),
        ("validate s.toml --measured p.csv --out p.csv", ("'p.csv'",)),
        ("validate s.toml --measured p.csv --out mine.md", ("--out 'mine.md'",)),
        ("validate s.toml --measured p.csv --markdown mine.md/x", ("--markdown 'mine.md/x'",)),
        ("validate s.toml --measured p.csv --out x --markdown x", ("--out", "--markdown", "'x'")),
        ("validate s.toml --measured p.csv --set strategy.bound=3", ("s.toml: strategy: bound (3)",)),
        ("validate s.toml --measured p.csv --markdown torn.md", ("torn.md'",)),
        ("validate s.toml --measured p.csv --markdown latin.md", ("--markdown 'latin.md'", "UTF-8")),
    ],
)
def test_bad_use_is_one_line_and_exit_code_2(
    refusal: Callable[..., None], folder: Path, points: Path, arguments: str, names: tuple[str, ...]
) -> None:
    (folder / "bad.csv").write_text("workers,throughput\n1,900\n2,x\n")
    (folder / "bad.toml").write_text(SCENARIO.replace("workers = 2", "wrokers = 2"))
    (folder / "mine.md").write_text("mine")
    (folder / "torn.md").write_text("<!-- begin paceline validate: points -->\n")
    (folder / "latin.md").write_bytes(b"\xe9t\xe9")
    refusal(arguments, *names)


def test_force_replaces_what_is_no_page(paceline: Runner, folder: Path, points: Path) -> None:
    (folder / "mine.html").write_text("mine")
    assert paceline(*MEASURED, "--out", "mine.html", "--force").code == 0
    assert "Paceline" in (folder / "mine.html").read_text()


def test_hostile_names_are_harmless_in_terminal_and_page(paceline: Runner, folder: Path, points: Path) -> None:
    (folder / "s.toml").write_text(SCENARIO.replace('name = "plain"', r'name = "<script>alert(1)</script>[red]\u001b[31m"'))
    answer = paceline(*MEASURED, "--out", "v.html", "--markdown", "f.md")
    assert answer.code == 0
    assert "\x1b" not in answer.stdout
    assert "<script>alert" not in (folder / "v.html").read_text()
    assert "<script>" not in (folder / "f.md").read_text()
