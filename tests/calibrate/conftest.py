"""Fixtures of the calibrator's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.measurements import Synthetic
from support.warm_python import warm_python


@pytest.fixture
def synthetic(tmp_path: Path) -> Synthetic:
    """Measurement files in the test's own folder."""
    return Synthetic(tmp_path)


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Python that begins probes with TensorFlow imported."""
    with warm_python(tmp_path_factory.mktemp("warm")) as command:
        yield command


@pytest.fixture
def warm_probes(warm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes are run by :func:`warm`, where no other Python is named."""
    monkeypatch.setattr("sys.executable", warm)
