"""The README's library examples, and that the public names exist."""

from __future__ import annotations

from pathlib import Path

import pytest

import paceline
from simulator.invariants import audit

ROOT = Path(__file__).parents[2]


def test_every_public_name_is_there():
    for name in paceline.__all__:
        assert callable(getattr(paceline, name))
    with pytest.raises(AttributeError):
        _ = paceline.nonsense


def test_load_simulate_and_audit_as_in_the_readme(monkeypatch):
    monkeypatch.chdir(ROOT)
    scenario = paceline.load("models/scenarios/ring.toml", [("run.steps", 10), ("run.replications", 3)])
    result = paceline.simulate(scenario)
    rate = result.throughput_samples_per_s
    assert rate.low < rate.mean < rate.high
    assert result.bottleneck.text
    assert audit(scenario).steps
