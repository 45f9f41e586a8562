"""``paceline report`` and what cannot be used: one line, exit 2, and nothing written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import Answer, refused
from support.results import STRATEGIES, plausible, scenario_of

from simulator.base.files import without_checksum

RESULT = plausible(scenario_of(STRATEGIES[0], 2)).to_json()


@pytest.fixture
def held(folder: Path) -> Path:
    """A folder with results, measured points and a file that is none of both."""
    (folder / "r.ndjson").write_text(RESULT + "\n")
    (folder / "points.csv").write_text("workers,throughput\n2,1000\n")
    (folder / "mine.txt").write_text("mine")
    (folder / "sub").mkdir()
    return folder


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("none.ndjson", ("none.ndjson",)),
        ("sub", ("sub: ",)),
        ("r.ndjson r.ndjson", ("r.ndjson",)),
        ("r.ndjson ./sub/../r.ndjson", ("r.ndjson: ",)),
        ("none.ndjson none.ndjson", ("none.ndjson",)),
        ("mine.txt", ("mine.txt",)),
        ("binary.ndjson", ("binary.ndjson:1",)),
        ("newer.ndjson", ("newer.ndjson:1", "schema_version 2")),
        ("r.ndjson --measured none.csv", ("none.csv",)),
        ("r.ndjson --measured sub", ("sub: ",)),
        ("r.ndjson --measured empty.csv", ("empty.csv",)),
        ("r.ndjson --measured binary.ndjson", ("binary.ndjson", "UTF-8")),
        ("r.ndjson --measured mine.txt", ("mine.txt:1: 'mine'",)),
        ("r.ndjson --plan none.json", ("none.json",)),
        ("r.ndjson --plan mine.txt", ("mine.txt", "`paceline plan --out")),
        ("r.ndjson --plan sentence.json", ("sentence.json", "`paceline plan --out")),
        ("r.ndjson --plan other.json", ("other.json", "`paceline plan --out")),
        ("r.ndjson --plan r.ndjson", ("r.ndjson",)),
        ("r.ndjson --plan newer.ndjson", ("newer.ndjson", "schema_version 2")),
        ("r.ndjson -o r.ndjson --force", ("r.ndjson",)),
        ("r.ndjson -o mine.txt", ("--out 'mine.txt'", "--force")),
        ("r.ndjson -o sub", ("'sub'",)),
        ("r.ndjson --measured points.csv -o points.csv --force", ("points.csv",)),
        ("r.ndjson -o mine.txt/page.html", ("mine.txt",)),
        ("r.ndjson --tables mine.txt", ("--tables 'mine.txt'",)),
        ("r.ndjson --tables /proc/new", ("'/proc/new'",)),
        ("r.ndjson --figures /proc/new", ("'/proc/new'",)),
        ("r.ndjson -o /proc/new/page.html", ("'/proc/new/page.html'",)),
        ("r.ndjson --figures mine.txt", ("'mine.txt'",)),
        ("r.ndjson --figures new --format gif", ("--format 'gif'",)),
        ("r.ndjson --figures new --format png,", ("--format 'png,'", "''")),
        ("r.ndjson --format png", ("--format 'png'", "--figures")),
        ("r.ndjson --jobs -1", ("-1",)),
    ],
)
def test_it_is_one_line_and_nothing_is_written(held: Path, refusal: Callable[..., None], arguments: str, names: tuple[str, ...]) -> None:
    (held / "binary.ndjson").write_bytes(b"\x00\xff\xfe\x80" * 64 + b"\n")
    (held / "newer.ndjson").write_text(json.dumps({**json.loads(without_checksum(RESULT.encode())), "schema_version": 2}) + "\n")
    (held / "empty.csv").write_text("\n")
    (held / "sentence.json").write_text('"The ring is the fastest."')
    (held / "other.json").write_text("{}")
    refusal(f"report {arguments}", *names)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to(held: Path, paceline: Callable[..., Answer]) -> None:
    (held / "sub").chmod(0o500)
    refused(paceline("report", "r.ndjson", "--tables", "sub"), "--tables 'sub'", "Permission denied")


def test_figures_without_a_browser_are_refused_before_the_work(
    held: Path, refusal: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(held))
    refusal("report r.ndjson --figures new", "--figures", "chromium")
    monkeypatch.setenv("CHROME_PATH", "nowhere/chrome")
    refusal("report r.ndjson --figures new", "--figures", "CHROME_PATH", "nowhere/chrome")


def test_a_browser_that_does_not_start_is_one_line(held: Path, paceline: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    (held / "chrome").write_text("#!/bin/sh\nexit 3\n")
    (held / "chrome").chmod(0o755)
    monkeypatch.setenv("CHROME_PATH", str(held / "chrome"))
    answer = paceline("report", "r.ndjson", "--no-simulate", "--figures", "new")
    assert answer.code == 1
    assert "chrome failed: " in answer.stderr.splitlines()[-1]
    assert "Traceback" not in answer.stderr
    assert (held / "r.html").exists()  # the page is there


def test_a_file_cut_in_half_is_read_up_to_the_cut(held: Path, paceline: Callable[..., Answer]) -> None:
    (held / "r.ndjson").write_text(f"{RESULT}\n{RESULT}"[: len(RESULT) * 3 // 2])
    answer = paceline("report", "r.ndjson", "--no-simulate", "--json")
    assert answer.code == 0
    assert "line 2" in answer.stderr
    assert json.loads(answer.stdout)["results"] == 1
