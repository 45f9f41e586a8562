"""Tests that begin TensorFlow in processes of their own."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys

import pytest

needs_tensorflow = pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")
"""Only where it is installed; it is not imported for that, which takes seconds."""


@functools.cache
def python_with(backend: str) -> str | None:
    """A Python that has Keras 3 and a backend of it: this one, or that of the variable PACELINE_BACKENDS_PYTHON; none where none has."""
    if all(importlib.util.find_spec(name) is not None for name in (backend, "keras")):
        return sys.executable
    other = os.environ.get("PACELINE_BACKENDS_PYTHON")
    if other is None:
        return None
    script = f"import importlib.util, sys; sys.exit(any(importlib.util.find_spec(name) is None for name in ({backend!r}, 'keras')))"
    return other if subprocess.run([other, "-c", script], check=False).returncode == 0 else None


def needs_backend(backend: str) -> str:
    """Path of a Python that has it; skips the test where there is none."""
    found = python_with(backend)
    if found is None:
        pytest.skip(f"neither this Python nor that of PACELINE_BACKENDS_PYTHON has Keras on {backend}")
    return found
