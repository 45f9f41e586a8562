"""Tests that begin TensorFlow in processes of their own."""

from __future__ import annotations

import importlib.util

import pytest

needs_tensorflow = pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")
"""Only where it is installed; it is not imported for that, which takes seconds."""
