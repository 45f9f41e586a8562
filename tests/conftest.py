"""Fixtures of all tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import settings
from support.examples import ALL
from support.probes import run_script
from support.scenarios import scenario_table
from support.warm_python import warm_python

from simulator import Scenario, scenario_from_table

settings.register_profile(ALL)


def pytest_sessionstart() -> None:
    """Ctrl-C is what children of the tests are ended by, also where a shell started the tests in the background.

    Without job control a shell lets such a command ignore SIGINT, and its children inherit that.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _machine_code() -> None:
    """Made before the first test, so that no command that a test starts tells that it makes it."""
    from simulator.engine.production import warming

    with suppress(ImportError, warming.NotMadeError):  # tests that need it say so
        warming.make()


@pytest.fixture
def scenario():
    """Builds a scenario from overlays of :func:`scenario_table`."""

    def build(**parts: Any) -> Scenario:
        return scenario_from_table(scenario_table(**parts), "test")

    return build


@pytest.fixture
def fits_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits of a testbed are made once for all tests that ask for the same."""
    from support.testbed import fit_once

    for module in ("calibrate.testbed.fitting", "calibrate.validation.running"):
        monkeypatch.setattr(f"{module}.fit_platform", fit_once)


@pytest.fixture(scope="session")
def warm() -> Iterator[str]:
    """A Python that begins probes with TensorFlow imported."""
    with warm_python() as command:
        yield command


@pytest.fixture
def warm_probes(warm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes are run by :func:`warm`, where no other Python is named."""
    monkeypatch.setattr("sys.executable", warm)


@pytest.fixture
def isolated() -> None:
    """Skips where a process cannot have a network of its own."""
    if run_script("from _paceline_probes.testbed import links; links.isolate()", timeout=60).returncode:
        pytest.skip("no network namespace can be made here: TensorFlow's server would listen on all interfaces")
