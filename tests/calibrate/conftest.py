"""Fixtures of the calibrator's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.measurements import Synthetic


@pytest.fixture
def synthetic(tmp_path: Path) -> Synthetic:
    """Measurement files in the test's own folder."""
    return Synthetic(tmp_path)
