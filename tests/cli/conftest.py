"""The real command line, in this process or in one of its own."""

from __future__ import annotations

import math
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.command_line import SCENARIO, Answer, contents, refused
from syrupy.assertion import SnapshotAssertion

from paceline.cli.app import main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with a scenario in ``s.toml``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("COLUMNS", raising=False)
    (tmp_path / "s.toml").write_text(SCENARIO)
    return tmp_path


@pytest.fixture
def paceline(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Runs ``paceline`` in this process, without the progress that only a slow machine shows."""
    monkeypatch.setattr("paceline.cli.terminal._SOON_S", math.inf)

    def run(*arguments: str) -> Answer:
        monkeypatch.setattr(sys, "argv", ["paceline", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Answer(ended.value.code, said.out, said.err)

    return run


@pytest.fixture
def refusal(folder: Path, paceline: Callable[..., Answer], snapshot: SnapshotAssertion) -> Callable[..., None]:
    """Runs a command that is refused in one line, which names some values and is as it was reviewed; no file is changed."""

    def run(words: str | Sequence[str], *names: str, code: int = 2) -> None:
        before = contents(folder)
        answer = paceline(*(shlex.split(words) if isinstance(words, str) else words))
        refused(answer, *names, code=code)
        assert answer.stderr.rstrip("\n").replace(f"{ROOT}/", "") == snapshot
        assert contents(folder) == before

    return run


@pytest.fixture
def process(folder: Path) -> Callable[..., Answer]:
    """Runs ``python -m paceline`` in a process of its own."""

    def run(*arguments: str, **options: object) -> Answer:
        done = subprocess.run([sys.executable, "-m", "paceline", *arguments], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
        return Answer(done.returncode, done.stdout, done.stderr)

    return run
