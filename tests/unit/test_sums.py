"""The last digit depends on neither Python nor processor: floats are summed by :func:`math.fsum`, not by ``sum``, which 3.12 changed."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import calibrate
import paceline
import simulator

PACKAGES = [Path(package.__file__).parent for package in (simulator, paceline, calibrate) if package.__file__ is not None]
SCENARIOS = sorted(path.stem for path in (Path(__file__).parents[2] / "models" / "scenarios").glob("*.toml"))
SHORT = {"run.steps": 12, "run.warmup_steps": 3, "run.replications": 2}


@pytest.fixture(autouse=True)
def _no_sum_of_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = builtins.sum

    def whole(items: Iterable[Any], /, start: Any = 0) -> Any:
        if not any(Path(sys._getframe(1).f_code.co_filename).is_relative_to(package) for package in PACKAGES):
            return plain(items, start)
        every = list(items)
        assert not any(isinstance(item, float) for item in (start, *every)), "math.fsum sums floats alike on every Python"
        return plain(every, start)

    monkeypatch.setattr(builtins, "sum", whole)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["compiled", "simpy"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_no_example_sums_floats_by_the_built_in_sum(name: str, engine: str) -> None:
    result = paceline.simulate(name, {**SHORT, "run.engine": engine})
    assert result.throughput_samples_per_s.mean > 0


@pytest.mark.slow
def test_neither_do_plans_advice_memory_and_jobs() -> None:
    assert paceline.plan(
        "ring", samples=1e6, deadline="12 h", settings=SHORT, prices=0.4, confidence=0.6, workers=[1, 2, 4], jobs=1
    ).candidates
    assert paceline.plan("whole-job", deadline="24 h", settings=SHORT, confidence=0.6, workers=[2, 4], jobs=1).candidates
    assert paceline.advise("sync-ps", settings=SHORT, machines=[1, 2, 4], jobs=1).rows
    assert paceline.memory("fsdp").devices


@pytest.mark.slow
def test_results_do_not_depend_on_the_processor_that_linear_algebra_is_made_for() -> None:
    program = (
        "import paceline\n"
        f"for name in ('ssp', 'noisy-neighbours'): print(paceline.simulate(name, {SHORT | {'run.replications': 5}!r}).scatter)\n"
    )
    said = {
        kernel: subprocess.run(
            [sys.executable, "-c", program], env=os.environ | {"OPENBLAS_CORETYPE": kernel}, capture_output=True, text=True, check=True
        ).stdout
        for kernel in ("Nehalem", "Haswell")
    }
    assert said["Nehalem"] == said["Haswell"] != ""
