"""``paceline report`` and what cannot be used: one line, exit 2, and nothing written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import Answer
from support.results import STRATEGIES, plausible, scenario_of

from simulator.base.checksums import without_checksum

RESULT = plausible(scenario_of(STRATEGIES[0], 2)).to_json()


@pytest.fixture
def held(folder: Path) -> Path:
    """A folder with results, measured points and a file that is none of both."""
    (folder / "r.ndjson").write_text(RESULT + "\n")
    (folder / "points.csv").write_text("workers,throughput\n2,1000\n")
    (folder / "mine.txt").write_text("mine")
    (folder / "sub").mkdir()
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("none.ndjson", "none.ndjson: there is no such file"),
        ("sub", "sub: cannot be read: Is a directory"),
        ("r.ndjson r.ndjson", "r.ndjson: is given twice"),
        ("r.ndjson ./sub/../r.ndjson", "is given twice"),
        ("r.ndjson none.ndjson", "none.ndjson: there is no such file"),
        ("none.ndjson none.ndjson", "none.ndjson: is given twice"),
        ("mine.txt", "mine.txt: holds no complete result"),
        ("binary.ndjson", "binary.ndjson:1: must be JSON"),
        ("newer.ndjson", "newer.ndjson:1: schema_version 2 is newer than 1"),
        ("r.ndjson --measured none.csv", "none.csv: there is no such file"),
        ("r.ndjson --measured sub", "sub: cannot be read: Is a directory"),
        ("r.ndjson --measured empty.csv", "empty.csv: is empty; its first line names the columns"),
        ("r.ndjson --measured binary.ndjson", "binary.ndjson: is no text in UTF-8"),
        ("r.ndjson --measured mine.txt", "mine.txt:1: 'mine' is no column of measured points"),
        ("r.ndjson --plan none.json", "none.json: there is no such file"),
        ("r.ndjson --plan mine.txt", "mine.txt: must be JSON, as `paceline plan` writes it beside its results"),
        ("r.ndjson --plan sentence.json", "sentence.json: must hold an object in braces, as `paceline plan` writes it"),
        ("r.ndjson --plan other.json", "other.json: goal is missing: this is no answer of `paceline plan`"),
        ("r.ndjson --plan r.ndjson", "r.ndjson: is a results file; draw it with"),
        ("r.ndjson --plan newer.ndjson", "newer.ndjson: schema_version 2 is newer than 1"),
        ("r.ndjson -o r.ndjson --force", "r.ndjson: is one of the results files"),
        (
            "r.ndjson -o mine.txt",
            "--out 'mine.txt': is there already and is no report of this version of Paceline; overwrite it with --force, or choose another",
        ),
        ("r.ndjson -o sub", "sub': is a folder; give the name of a file"),
        ("r.ndjson --measured points.csv -o points.csv --force", "points.csv: is a file that the report is made from"),
        ("r.ndjson -o mine.txt/page.html", "mine.txt is a file, not a folder"),
        ("r.ndjson --tables mine.txt", "--tables 'mine.txt': is a file, not a folder; choose another folder"),
        ("r.ndjson --tables mine.txt/deep", "--tables 'mine.txt/deep': mine.txt is a file, not a folder"),
        ("r.ndjson --tables /proc/new", "'/proc/new': cannot be written to: "),
        ("r.ndjson --figures /proc/new", "'/proc/new': cannot be written to: "),
        ("r.ndjson -o /proc/new/page.html", "'/proc/new/page.html': cannot be written: "),
        ("r.ndjson --figures mine.txt", "'mine.txt': is a file, not a folder; choose another folder"),
        ("r.ndjson --figures new --format gif", "--format 'gif': 'gif' must be one of png, svg"),
        ("r.ndjson --figures new --format png,", "--format 'png,': '' must be one of png, svg"),
        ("r.ndjson --format png", "--format 'png': goes with --figures; add --figures DIR"),
        ("r.ndjson --jobs -1", "-1"),
    ],
)
def test_it_is_one_line_and_nothing_is_written(held: Path, paceline: Callable[..., Answer], arguments: str, says: str) -> None:
    (held / "binary.ndjson").write_bytes(b"\x00\xff\xfe\x80" * 64 + b"\n")
    (held / "newer.ndjson").write_text(json.dumps({**json.loads(without_checksum(RESULT.encode())), "schema_version": 2}) + "\n")
    (held / "empty.csv").write_text("\n")
    (held / "sentence.json").write_text('"The ring is the fastest."')
    (held / "other.json").write_text("{}")
    before = files(held)
    answer = paceline("report", *arguments.split())
    assert (answer.code, answer.stdout) == (2, "")
    assert says in answer.stderr
    assert "Traceback" not in answer.stderr
    assert len(answer.stderr.splitlines()) == 1 or "--jobs" in arguments  # typer frames its own
    assert files(held) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to(held: Path, paceline: Callable[..., Answer]) -> None:
    (held / "sub").chmod(0o500)
    answer = paceline("report", "r.ndjson", "--tables", "sub")
    assert answer.code == 2
    assert "--tables 'sub': cannot be written to: Permission denied" in answer.stderr


def test_figures_without_a_browser_are_refused_before_the_work(
    held: Path, paceline: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(held))
    before = files(held)
    answer = paceline("report", "r.ndjson", "--figures", "new")
    assert answer.code == 2
    assert answer.stderr == (
        "paceline: --figures: needs Chromium, which is not on the PATH; install both with: apt-get install chromium chromium-driver\n"
    )
    assert files(held) == before


def test_figures_without_the_driver_name_it(held: Path, paceline: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    (held / "chromium").write_text("#!/bin/sh\n")
    (held / "chromium").chmod(0o755)
    monkeypatch.setenv("PATH", str(held))
    answer = paceline("report", "r.ndjson", "--figures", "new")
    assert (answer.code, "needs Chromium's driver" in answer.stderr) == (2, True)


def test_figures_without_selenium_say_what_to_install(held: Path, paceline: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.reporting.exporting.find_spec", lambda _: None)
    answer = paceline("report", "r.ndjson", "--figures", "new")
    assert answer.code == 2
    assert (
        answer.stderr == "paceline: --figures: needs selenium, which is not installed; install it with: pip install 'paceline[figures]'\n"
    )


def test_a_browser_that_does_not_start_is_one_line(held: Path, paceline: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("chromium", "chromedriver"):
        (held / name).write_text("#!/bin/sh\nexit 3\n")
        (held / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(held))
    answer = paceline("report", "r.ndjson", "--no-simulate", "--figures", "new")
    assert answer.code == 1
    assert "chromium failed: " in answer.stderr.splitlines()[-1]
    assert "Traceback" not in answer.stderr
    assert (held / "r.html").exists()  # the page is there


def test_a_file_cut_in_half_is_read_up_to_the_cut(held: Path, paceline: Callable[..., Answer]) -> None:
    (held / "r.ndjson").write_text(f"{RESULT}\n{RESULT}"[: len(RESULT) * 3 // 2])
    answer = paceline("report", "r.ndjson", "--no-simulate", "--json")
    assert answer.code == 0
    assert "ends in the middle of line 2" in answer.stderr
    assert json.loads(answer.stdout)["results"] == 1
