"""The torture finds what it is there to find, and some trials of each attack find nothing."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.waiting import PATIENCE_S
from torture.__main__ import _ATTACKS as ATTACKS
from torture.attacks import Ground, Trial
from torture.endings import Ended, Finding, Running, contents, faults
from torture.killing import kept_lines

from paceline.sweeping.results_file import with_place
from simulator.base.files import with_checksum

pytestmark = pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")

HOME = Path(__file__).parents[2]


def _raises() -> None:
    raise ValueError("no such thing")


def _exits(code: int, said: str = "") -> Callable[[], None]:
    def answer() -> None:
        sys.stderr.write(said)
        sys.exit(code)

    return answer


def _starts_another() -> None:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def _leaves_a_file() -> None:
    Path(os.environ["TMPDIR"], "left.txt").touch()


@pytest.mark.parametrize(
    ("does", "found"),
    [
        (_raises, "traceback"),
        (_exits(7, "paceline: seven\n"), "crash"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "crash"),
        (_exits(2), "unsaid"),
        (_exits(2, "what is that?\n"), "unclear"),
        (_exits(2, "paceline: " + "long " * 200 + "\n"), "unclear"),
        (_exits(0, "x.py:7: RuntimeWarning: overflow\n"), "unclear"),
        (_exits(1, "paceline: \x1b[31mred\n"), "escape"),
        (lambda: __import__("time").sleep(60), "hang"),
        (_starts_another, "process"),
        (_leaves_a_file, "left.txt"),
        (_exits(2, "paceline: s.toml: is no scenario\n"), ""),
        (_exits(0), ""),
    ],
)
def test_what_is_wrong_with_an_ending_is_found(
    does: Callable[[], None], found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.cli.app.main", does)
    (tmp_path / "work").mkdir()
    running = Running(["simulate"], tmp_path / "work")
    ended = running.wait(0.3 if found == "hang" else PATIENCE_S)
    left = running.left(0.2)
    assert [one.what for one in faults(ended, "test")] + [name.split()[0] for name in left] == ([found] if found else [])


def test_files_that_were_changed_lost_or_left_are_found(tmp_path: Path) -> None:
    trial = Trial("mutants:0", Ground(tmp_path, 1))
    trial.folder.mkdir(parents=True)
    for name in ("kept", "changed", "lost"):
        (trial.folder / name).write_text(name)
    before = contents(trial.folder)
    (trial.folder / "changed").write_text("otherwise")
    (trial.folder / "lost").unlink()
    for name in ("left", "out.json"):
        (trial.folder / name).touch()
    trial.compare(before, Ended(("simulate",), 0, "", "", 0.1), written=("out.",))
    assert [(one.what, one.said.split(";")[0]) for one in trial.found] == [
        ("loss", "changed changed"), ("leftover", "left left"), ("loss", "lost lost"),
    ]  # fmt: skip
    trial.found.clear()
    trial.compare(before, Ended(("simulate",), 2, "", "", 0.1), written=("out.",))
    assert Finding("leftover", "mutants:0: : simulate", "left out.json; exit code 2; ") in trial.found


def test_a_journal_keeps_lines_of_the_end_in_any_order_and_nothing_else(tmp_path: Path) -> None:
    lines = [with_checksum(f'{{"scenario_hash":"{number}"}}').encode() + b"\n" for number in range(3)]
    held, whole = tmp_path / "out.ndjson", {"out.ndjson": b"".join(lines)}
    assert kept_lines(tmp_path, whole) == ""
    held.write_bytes(with_place(lines[2], 2) + with_place(lines[0], 0) + lines[1][:9])
    assert kept_lines(tmp_path, whole) == ""
    held.write_bytes(with_place(lines[2], 2).replace(b'"2"', b'"7"') + lines[0])
    assert "line 1 of 2" in kept_lines(tmp_path, whole)
    held.write_bytes(lines[0] + lines[1][:9] + b"\n")
    assert "line 2 of 2" in kept_lines(tmp_path, whole)


@pytest.mark.parametrize(
    ("key", "text", "meant", "held", "misread"),
    [
        ("cluster.inter_node.latency", "20 us", 20e-6, 20e-6, False),
        ("cluster.inter_node.latency", "007 us", 7e-6, 0.0, True),
        ("cluster.inter_node.latency", "1 d", 86400.0, 86400.0, True),
        ("strategy.workers", "1.000", None, 1, True),
    ],
)
def test_what_is_misread_is_found(key: str, text: str, meant: float | None, held: float, misread: bool) -> None:
    import json

    from torture import misreading

    [its] = [one for one in misreading._KEYS if one.path == key]
    scenario: dict[str, object] = {}
    *path, last = its.read.split(".")
    table = scenario
    for part in path:
        table = table.setdefault(part, {})  # type: ignore[assignment]
    table[last] = held
    for said, found in (("", misread), (f"paceline: {key} is read as {held}\n", False)):
        ended = Ended(("simulate",), 0, json.dumps({"scenario": scenario}), said, 0.1)
        assert bool(list(misreading._misread(its, text, meant, ended))) == found


@pytest.mark.slow
@pytest.mark.parametrize("trials", [len(ATTACKS), pytest.param(60, marks=pytest.mark.long)])
def test_some_trials_of_each_attack_find_nothing(tmp_path: Path, trials: int) -> None:
    """The first trials are one of each attack."""
    done = subprocess.run(
        [sys.executable, "-m", "torture", "--trials", str(trials), "--seed", "7", "--jobs", "1", "--csv", "table.csv"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{HOME}{os.pathsep}{HOME / 'tests'}", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert {row["attack"] for row in rows[:-1]} == set(ATTACKS)
    assert rows[-1]["trials"] == str(trials)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table.csv"]
