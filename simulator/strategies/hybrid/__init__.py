"""Training that cuts a model: pipelines, split tensors, spread experts, sharded state, and all of them at once."""

from __future__ import annotations

from simulator.strategies.hybrid.hybrid import Hybrid

__all__ = ["Hybrid"]
