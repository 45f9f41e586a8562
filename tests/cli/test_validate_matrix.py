"""``paceline validate`` on a matrix that has been measured before: tables, page, thresholds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sample_testbed import as_measured

from calibrate.validation.matrix import read_matrix
from tests.cli.conftest import Answer

Runner = Callable[..., Answer]
TEXT = """
repeats = 2
seed = 3

[[fit]]
mode = "between-graph"
workers = 1
servers = 1
link = { bandwidth = "400 Mbit/s" }
model = ["ladder-1mb/16", "ladder-4mb"]
compute = { mean = "20 ms" }
steps = 10

[[held_out]]
group = "servers"
mode = "between-graph"
workers = 2
servers = 1
link = { bandwidth = "1 Gbit/s" }
model = "ladder-1mb"
compute = { mean = "50 ms" }
steps = 10
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text(TEXT, encoding="utf-8")
    for setting in read_matrix(tmp_path / "mine.toml").settings:
        as_measured(tmp_path, setting, seed=3)
    return tmp_path


def asked(folder: Path) -> list[str]:
    return ["validate", "--matrix", str(folder / "mine.toml"), "--measurements", str(folder)]


def test_tables_page_and_parameters(paceline: Runner, folder: Path) -> None:
    page, platform = folder / "v.html", folder / "p.json"
    answer = paceline(*asked(folder), "--out", str(page), "--platform", str(platform), "--max-median", "2%")
    assert answer.code == 0, answer.stderr
    assert "between-graph 2 x 1 PS" in answer.stdout
    assert "what is there already is used" in answer.stderr
    assert "between-graph 2 x 1 PS" in page.read_text(encoding="utf-8")
    assert json.loads(platform.read_text(encoding="utf-8"))["parameters"]["wire_bytes_per_byte"]["determined"]


def test_a_missed_threshold_is_exit_3(paceline: Runner, folder: Path) -> None:
    answer = paceline(*asked(folder), "--max-median", "0.0001%", "--json")
    assert answer.code == 3
    assert "above" in answer.stderr
    assert {row["fitted"] for row in json.loads(answer.stdout)["rows"]} == {True, False}


@pytest.mark.parametrize(("name", "said"), [("quikc", "did you mean quick"), ("nowhere.toml", "no file")])
def test_an_unknown_matrix_is_named(paceline: Runner, name: str, said: str) -> None:
    answer = paceline("validate", "--matrix", name)
    assert answer.code == 2
    assert said in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_a_gate_does_not_pass_because_there_is_nothing_to_see(paceline: Runner, folder: Path) -> None:
    path = folder / "mine.toml"
    path.write_text(TEXT[: TEXT.index("[[held_out]]")], encoding="utf-8")
    answer = paceline(*asked(folder), "--max-median", "5%")
    assert answer.code == 3
    assert "nothing to judge" in answer.stderr


def test_a_share_above_one_wants_its_percent_sign(paceline: Runner, folder: Path) -> None:
    answer = paceline(*asked(folder), "--max-median", "2")
    assert answer.code == 2
    assert "write 2% or 0.02" in answer.stderr


@pytest.mark.parametrize("command", ["validate", "fit"])
def test_a_file_of_mine_is_not_replaced(paceline: Runner, folder: Path, command: str) -> None:
    mine = folder / "notes.json"
    mine.write_text('{"keep": 1}', encoding="utf-8")
    runs = sorted(str(path) for path in folder.glob("*-testbed-*.ndjson"))
    answer = (
        paceline(*asked(folder), "--platform", str(mine)) if command == "validate" else paceline("testbed", "fit", *runs, "-o", str(mine))
    )
    assert answer.code == 2
    assert "is no such file of Paceline" in answer.stderr
    assert mine.read_text(encoding="utf-8") == '{"keep": 1}'


def test_a_fit_leaves_out_what_cannot_be_read_and_predicts(paceline: Runner, folder: Path) -> None:
    runs = sorted(folder.glob("*-testbed-*.ndjson"))
    cut = folder / "cut.ndjson"
    cut.write_bytes(runs[0].read_bytes()[:2000])
    platform = folder / "machine.json"
    answer = paceline("testbed", "fit", str(cut), *map(str, runs), "-o", str(platform))
    assert answer.code == 0, answer.stderr
    assert "left out" in answer.stderr
    predicted = paceline("testbed", "predict", str(platform), "--workers", "3", "--model", "ladder-1mb", "--steps", "10", "--json")
    assert predicted.code == 0, predicted.stderr
    assert json.loads(predicted.stdout)["updates_per_s"]["mean"] > 0
    assert "dispatch_s" in json.loads(predicted.stdout)["undetermined"]


def test_a_matrix_goes_alone(paceline: Runner, folder: Path) -> None:
    answer = paceline(*asked(folder), "--published")
    assert answer.code == 2
    assert "--matrix" in answer.stderr
