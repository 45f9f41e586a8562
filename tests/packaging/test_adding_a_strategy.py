"""What docs/adding-a-strategy.md shows works: its changes are applied to a copy of Paceline, and its tests run there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "adding-a-strategy.md"
_FILE = re.compile(r"^(New file|In) `([^`]+)`:$|^```(python|diff)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str, str]]:
    """File, kind (python or diff) and text of every block, in order; a block without a file of its own changes the last one named."""
    found = []
    file = ""
    for match in _FILE.finditer(PAGE.read_text()):
        if match[2]:
            file = match[2]
        else:
            found.append((file, match[3], match[4]))
    return found


def changed(text: str, diff: str, where: str) -> str:
    """The text with the one place changed that the lines of ``diff`` without a plus stand for."""
    before = "".join(line[1:] for line in diff.splitlines(keepends=True) if line[0] in " -")
    after = "".join(line[1:] for line in diff.splitlines(keepends=True) if line[0] in " +")
    assert text.count(before) == 1, f"{where} has the lines {text.count(before)} times:\n{before}"
    return text.replace(before, after)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paceline")
    for part in ("simulator", "calibrate", "paceline", "models"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name, kind, text in blocks():
        target = folder / name
        if kind == "python":
            assert not target.exists(), f"{name} is there already"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        else:
            target.write_text(changed(target.read_text(), text, name))
    return folder


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_the_page_has_a_strategy_its_wiring_and_its_tests():
    kinds = [(name, kind) for name, kind, _ in blocks()]
    assert ("simulator/strategies/gossip.py", "python") in kinds
    assert ("tests/oracle/test_gossip.py", "python") in kinds
    assert len([kind for _, kind in kinds if kind == "diff"]) == 9


def test_its_own_tests_pass_in_the_copy(copy):
    # nothing of the checkout's configuration or fixtures is used
    done = run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(copy), "tests/oracle/test_gossip.py")
    assert re.search(r"^16 passed", done.stdout, re.MULTILINE), done.stdout


def test_it_is_clean_python(copy):
    ruff = [sys.executable, "-m", "ruff"]
    files = [name for name, kind, _ in blocks() if kind == "python"]
    for words in (["check", "--config", str(ROOT / "pyproject.toml")], ["format", "--check", "--config", str(ROOT / "pyproject.toml")]):
        done = subprocess.run([*ruff, *words, *files], cwd=copy, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_no_place_is_forgotten(copy):
    shutil.copy(ROOT / "pyproject.toml", copy)
    if (ROOT / ".mypy_cache").is_dir():  # what has not changed is not read again
        shutil.copytree(ROOT / ".mypy_cache", copy / ".mypy_cache")
    run(copy, "-m", "mypy", "--cache-dir", str(copy / ".mypy_cache"))


def test_the_command_line_and_the_report_know_it(copy):
    setting = ["--set", 'strategy={kind = "gossip", workers = 8}', "--set", "run.steps=20"]
    simulate = ["-m", "paceline", "simulate", "models/scenarios/ring.toml", *setting, "--audit", "--trace", "run.json"]
    answer = json.loads(run(copy, *simulate, "--json").stdout)
    assert answer["result"]["scenario"]["strategy"] == {"kind": "gossip", "workers": 8}
    assert answer["audit"]["laws"]
    assert json.loads((copy / "run.json").read_text())["traceEvents"]
    assert "gossip" in run(copy, *simulate).stdout
    run(copy, "-m", "paceline", "sweep", "ring", *setting, "--over", "strategy.workers=2,4", "--out", "gossip.ndjson", "--jobs", "1")
    run(copy, "-m", "paceline", "report", "gossip.ndjson", "-o", "gossip.html", "--jobs", "1")
    assert "Gossip with two neighbours" in (copy / "gossip.html").read_text()
    goal = ["--target-throughput", "10000 samples/s", "--workers", "1,2,4", "--jobs", "1", "--json"]
    assert json.loads(run(copy, "-m", "paceline", "plan", "ring", *setting, *goal).stdout)["chosen"]["name"].startswith("gossip on")


def test_the_checkout_does_not_have_it():
    assert not (ROOT / "simulator" / "strategies" / "gossip.py").exists()
