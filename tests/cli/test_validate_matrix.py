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
