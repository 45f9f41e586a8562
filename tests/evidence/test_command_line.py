"""``python -m evidence``: what it predicts, writes and refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import Answer

from evidence.__main__ import app
from paceline.cli.app import main

Runner = Callable[..., Answer]
MINE = "my notes\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def evidence(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Runner:
    def run(*arguments: str) -> Answer:
        monkeypatch.setattr(sys, "argv", ["evidence", *arguments])
        with pytest.raises(SystemExit) as ended:
            main(app, "python -m evidence")
        said = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Answer(ended.value.code, said.out, said.err)

    return run


def test_hybrids_are_predicted_and_kept(evidence: Runner, folder: Path) -> None:
    asked = "hybrids", "--only", "torchgpipe", "--keep", "kept", "--json"
    answer = evidence(*asked, "--rows", "rows.csv")
    assert answer.code == 0, answer.stderr
    told = json.loads(answer.stdout)
    assert [score["group"] for score in told["scores"]] == ["torchgpipe, from its smallest row"]
    assert sum(not row["fitted"] for row in told["rows"]) == 8
    assert len((folder / "rows.csv").read_text().splitlines()) == 1, "no layer's time is published, so that model errors are not told by it"
    kept = folder / "kept" / "hybrids.ndjson"
    whole = kept.read_bytes()
    assert len(whole.splitlines()) == 9
    kept.write_bytes(whole[:-100])  # as a run leaves it that was killed
    assert json.loads(evidence(*asked).stdout)["rows"] == told["rows"]
    assert kept.read_bytes() == whole[:-100] + b"\n" + whole.splitlines(keepends=True)[-1]


def test_moved_trainings_are_groups_of_their_own(evidence: Runner) -> None:
    answer = evidence("published", "--regime", "moved", "--json")
    assert answer.code == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert [score["group"] for score in found["scores"]] == ["moved, published pair", "moved, two rooflines", "moved, one roofline"]
    assert len(found["rows"]) > 200


def test_a_threshold_that_is_missed_is_an_exit_code(evidence: Runner) -> None:
    answer = evidence("hybrids", "--only", "torchgpipe", "--max-median", "0.01%")
    assert answer.code == 3
    assert "0.01%" in answer.stderr


def test_a_row_is_a_scenario(evidence: Runner, folder: Path) -> None:
    answer = evidence("row", "tensorpack-p100-resnet50-tensorpack-parameter-server: 8 on 1", "--out-scenario", "row.toml")
    assert answer.code == 0, answer.stderr
    assert (folder / "row.toml").read_text().startswith("# The row 'tensorpack-p100-resnet50-tensorpack-parameter-server: 8 on 1' of ")


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("hybrids --only gpipe", ("'gpipe'", "torchgpipe")),
        ("published --regime nccl", ("'nccl'", "NCCL")),
        ("published --out mine.md", ("--out", "'mine.md'")),
        ("hybrids --only torchgpipe --keep b", ("--keep", "'b/hybrids.ndjson'")),
        ("published --regime moved --tables b", ("--tables", "b/moved-moved.csv")),
        ("row zzz --out-scenario p.toml", ("'zzz'",)),
        ("published --max-median much", ("--max-median", "'much'")),
    ],
)
def test_bad_use_is_one_line_and_exit_code_2(evidence: Runner, folder: Path, arguments: str, names: tuple[str, ...]) -> None:
    (folder / "b").mkdir()
    for name, text in (("mine.md", MINE), ("b/hybrids.ndjson", MINE), ("b/moved-moved.csv", "workers,throughput\n2,7000\n")):
        (folder / name).write_text(text)
    answer = evidence(*arguments.split())
    assert answer.code == 2, answer
    assert all(name in answer.stderr for name in names), answer.stderr
    assert answer.stderr.count("\n") == 1
    assert (folder / "mine.md").read_text() == (folder / "b" / "hybrids.ndjson").read_text() == MINE
