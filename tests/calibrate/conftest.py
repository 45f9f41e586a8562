"""Fixtures of the calibrator's tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.measurements import Synthetic

import calibrate

PROBES = Path(calibrate.__file__).parent / "probes"


@pytest.fixture
def synthetic(tmp_path: Path) -> Synthetic:
    """Measurement files in the test's own folder."""
    return Synthetic(tmp_path)


@pytest.fixture
def isolated() -> None:
    """Skips where a process cannot have a network of its own."""
    trial = f"import sys; sys.path.insert(0, {str(PROBES)!r}); import isolation; isolation.isolate()"
    if subprocess.run([sys.executable, "-c", trial], capture_output=True, timeout=60).returncode:
        pytest.skip("no network namespace can be made here: TensorFlow's server would listen on all interfaces")
