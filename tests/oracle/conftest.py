"""Every oracle that simulates holds for both engines.

Those of statistics need many replications: machine code makes them, and SimPy one, which must measure the same
(:mod:`support.runs`). ``strategy.priority = "forward"`` is simulated for all ranks at once alone (marker ``at_once``).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType

import pytest

ENGINES = ("simpy", "compiled")
SIMULATING = {"simulate", "replicate", "audit", "measured", "recorded", "steps_per_s", "seconds_per_update"}


def _names(code: CodeType) -> set[str]:
    """All names that code speaks of, in the functions inside it as well."""
    return set(code.co_names).union(*(_names(const) for const in code.co_consts if isinstance(const, CodeType)))


def _simulates(module: ModuleType, code: CodeType, seen: set[str]) -> bool:
    """Whether code runs an engine, itself or by functions and classes of its module."""
    names = _names(code) - seen
    seen |= names
    owned = [value for name in names if getattr(value := getattr(module, name, None), "__module__", None) == module.__name__]
    within = [
        inspect.unwrap(function)
        for value in owned
        for function in (vars(value).values() if isinstance(value, type) else [value])
        if isinstance(function, FunctionType) or hasattr(function, "__wrapped__")
    ]
    return bool(names & SIMULATING & vars(module).keys()) or any(_simulates(module, function.__code__, seen) for function in within)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that simulates runs once with each engine; one of statistics, or of what is simulated for all ranks at once, with one."""
    if _simulates(metafunc.module, inspect.unwrap(metafunc.function).__code__, set()):
        definition = metafunc.definition
        engines = ENGINES[1:] if definition.get_closest_marker("statistics") or definition.get_closest_marker("at_once") else ENGINES
        metafunc.parametrize("engine", engines, indirect=True, scope="module")


@pytest.fixture(autouse=True, scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """The engine that runs whatever is simulated; where a test does not simulate, none."""
    asked: str | None = getattr(request, "param", None)
    with pytest.MonkeyPatch.context() as patch:
        if asked is not None:
            for module in ("simulator.engine.replication", "simulator.run"):
                patch.setattr(f"{module}.engine_for", lambda *_, **__: asked)
        yield asked
