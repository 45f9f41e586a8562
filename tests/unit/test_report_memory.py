"""The section of a report on memory: there where it is known, and nothing of it where it is not."""

from __future__ import annotations

import plotly.graph_objects as go
from support.scenarios import scenario_table

from paceline.reporting.content import content_of
from paceline.reporting.figures import memory_figure
from paceline.reporting.render import render, stills_of
from simulator import Scenario, scenario_from_table, simulate
from simulator.memory import memory

PEAKS = {"fit": {"relative_residual": 0.0, "peak_memory_bytes": {"8": 20e9, "16": 30e9}}}


def scenario(**workload) -> Scenario:
    table = scenario_table(workload=workload, cluster={"device": "A100-SXM4-80GB"}, run={"steps": 4, "warmup_steps": 1})
    return scenario_from_table(table, "test")


def test_parts_are_bars_against_what_the_device_has() -> None:
    found = memory(scenario(**PEAKS))
    figure = go.Figure(memory_figure(found))
    assert [bar.name for bar in figure.data] == ["parameters", "gradients", "activations", "framework reserve"]
    assert sum(bar.x[0] for bar in figure.data) * 2**30 == found.tightest.need_bytes
    assert figure.layout.shapes[0].x0 * 2**30 == 80e9


def test_the_page_says_it_where_it_is_known() -> None:
    page = render(content_of([simulate(scenario(**PEAKS))]))
    assert "What devices hold in memory" in page
    assert "Fits: 10 samples at a time need 22.5 GiB of 74.5 GiB." in page


def test_a_page_of_what_is_not_known_is_as_before() -> None:
    content = content_of([simulate(scenario())])
    assert "memory" not in stills_of(content)
    assert "What devices hold in memory" not in render(content)
