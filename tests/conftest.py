"""Fixtures of all tests."""

from __future__ import annotations

from typing import Any

import pytest
from sample_scenarios import scenario_table

from simulator import Scenario, scenario_from_table


@pytest.fixture
def scenario():
    """Builds a scenario from overlays of :func:`scenario_table`."""

    def build(**parts: Any) -> Scenario:
        return scenario_from_table(scenario_table(**parts), "test")

    return build
