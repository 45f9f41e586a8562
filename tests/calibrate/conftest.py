"""Fixtures of the calibrator's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.measurements import Synthetic
from support.probes import run_script


@pytest.fixture
def synthetic(tmp_path: Path) -> Synthetic:
    """Measurement files in the test's own folder."""
    return Synthetic(tmp_path)


@pytest.fixture
def isolated() -> None:
    """Skips where a process cannot have a network of its own."""
    if run_script("from _paceline_probes import isolation; isolation.isolate()", timeout=60).returncode:
        pytest.skip("no network namespace can be made here: TensorFlow's server would listen on all interfaces")
