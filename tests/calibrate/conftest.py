"""Fixtures of the calibrator's tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.measurements import Synthetic
from support.once import once
from support.warm_python import ITERATORS

import calibrate
from calibrate.profiling import profile_step
from paceline.cli.app import main

DRAWS = {"estimators": 16, "step_times": 30, "input_pipeline": 30}
MLP = Path(calibrate.__file__).parent.parent / "models" / "keras" / "mlp.py"


@pytest.fixture
def synthetic(tmp_path: Path) -> Synthetic:
    """Measurement files in the test's own folder."""
    return Synthetic(tmp_path)


@pytest.fixture
def all_draws() -> None:
    """Bootstraps of this test draw as often as those of a user."""


@pytest.fixture(autouse=True)
def _few_draws(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bootstraps draw a few times instead of 200, which is most of the time of a fit, except with :func:`all_draws`."""
    if "all_draws" not in request.fixturenames:
        for module, draws in DRAWS.items():
            monkeypatch.setattr(f"calibrate.fit.{module}.DRAWS", draws)


@pytest.fixture(autouse=True)
def _few_iterators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warm probes of steps time the ends of two iterators; :func:`real_steps` has those of a user's."""
    monkeypatch.setenv(ITERATORS, "2")


@pytest.fixture
def paceline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command in a folder of its own: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["paceline", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, printed.out, printed.err

    return run


@pytest.fixture(scope="session")
def real_steps(warm: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a real run of a small Keras model, alone in its folder; only to be read."""

    def measure(folder: Path) -> None:
        options = {"batches": (4, 16), "steps": 10, "rounds": 2, "repeats": 0, "device": "CPU", "timeout_s": 300}
        profile_step(f"{MLP}:build", "mlp", folder=folder, python=warm, **options)

    (path,) = once(tmp_path_factory, "real-steps", measure).iterdir()
    return path
