"""The last digit depends on neither Python nor processor: floats are summed by :func:`math.fsum`, not by ``sum``, which 3.12 changed."""

from __future__ import annotations

import ast
import builtins
import os
import re
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
REAL = re.compile(r"(?:^|_)(?:s|seconds|bytes|flops|hz|usd|costs?|shares?|errors?|rates|means?|sizes|per_sample)$")
"""Names of what is no whole number; names carry their units."""
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


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_no_example_sums_floats_by_the_built_in_sum(name: str, engine: str) -> None:
    result = paceline.simulate(name, {**SHORT, "run.engine": engine})
    assert result.throughput_samples_per_s.mean > 0


def test_neither_do_plans_advice_memory_and_jobs() -> None:
    assert paceline.plan(
        "ring", samples=1e6, deadline="12 h", settings=SHORT, prices=0.4, confidence=0.6, workers=[1, 2, 4], jobs=1
    ).candidates
    assert paceline.plan("whole-job", deadline="24 h", settings=SHORT, confidence=0.6, workers=[2, 4], jobs=1).candidates
    assert paceline.advise("sync-ps", settings=SHORT, machines=[1, 2, 4], jobs=1).rows
    assert paceline.memory("fsdp").devices


def _named(node: ast.expr) -> str:
    """The name by which a thing ends: ``its.size_bytes`` has ``size_bytes``."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case ast.Call(func=func):
            return _named(func)
    return ""


def _summed(call: ast.Call) -> Iterable[ast.expr]:
    """What a call sums, as far as it can be seen: terms of a generator, or the thing that is gone through."""
    first = call.args[0]
    pending = [first.elt if isinstance(first, ast.GeneratorExp | ast.ListComp) else first]
    while pending:
        node = pending.pop()
        match node:
            case ast.BinOp(left=left, right=right):
                pending += [left, right]
            case ast.IfExp(body=body, orelse=other):
                pending += [body, other]
            case _:
                yield node


def test_nothing_that_is_named_as_a_real_number_is_summed_by_the_built_in_sum() -> None:
    found = []
    for path in (path for package in PACKAGES for path in package.rglob("*.py") if "probes" not in path.parts):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "sum":
                names = [_named(term) for term in _summed(node)]
                found += [f"{path}:{node.lineno}: {name}" for name in names if REAL.search(name)]
                found += [f"{path}:{node.lineno}: float" for term in _summed(node) if isinstance(getattr(term, "value", None), float)]
    assert not found


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
