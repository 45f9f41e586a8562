"""Every oracle that simulates holds for both engines.

Those of statistics need many replications: machine code makes them, and SimPy one, which must measure the same
(:mod:`support.runs`).
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

ENGINES = ("simpy", "compiled")


def _simulates(module: ModuleType) -> bool:
    return any(hasattr(module, name) for name in ("simulate", "replicate", "measure", "measured"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of a module that simulates runs once with each engine; one of statistics with the faster one."""
    if _simulates(metafunc.module):
        engines = ENGINES[1:] if metafunc.definition.get_closest_marker("statistics") else ENGINES
        metafunc.parametrize("engine", engines, indirect=True, scope="module")


@pytest.fixture(autouse=True, scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """The engine that runs whatever is simulated; where a test does not simulate, none."""
    asked: str | None = getattr(request, "param", None)
    with pytest.MonkeyPatch.context() as patch:
        if asked is not None:
            for module in ("simulator.replication", "simulator.run"):
                patch.setattr(f"{module}.engine_for", lambda *_, **__: asked)
        yield asked
