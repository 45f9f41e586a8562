"""Whether workers move together: the order itself, and when jitter makes it forget the start."""

from __future__ import annotations

import numpy as np
import pytest
from support.runs import FAST

from simulator import simulate
from simulator.engine.phases import Phases, random_order

ASYNC = {"kind": "parameter-server", "mode": "async"}


def followed(offsets: list[float], rounds: int) -> Phases:
    """The phases of workers whose steps take 1 s each and end at such offsets."""
    phases = Phases(len(offsets))
    for number in range(1, rounds + 1):
        workers = np.argsort(offsets, kind="stable")
        ends = number + np.array(offsets)[workers]
        phases.steps(workers, ends - 1, ends)
    return phases


@pytest.mark.parametrize(
    ("offsets", "order"),
    [([0.0, 0.0, 0.0], 1.0), ([0.0, 1 / 3, 2 / 3], 0.0), ([0.0, 0.5], 0.0), ([0.0, 0.25], np.sqrt(0.5)), ([0.0, 0.0, 0.5, 0.5], 0.0)],
)
def test_order_is_the_length_of_the_mean_of_unit_vectors(offsets, order):
    phases = followed(offsets, 8)
    assert phases.first == pytest.approx(order, abs=1e-9)
    assert phases.last == pytest.approx(order, abs=1e-9)
    # of five rounds in a row the first one ends with the last worker's first step
    assert phases.mixed_s == (pytest.approx(1 + max(offsets)) if order <= random_order(len(offsets)) else None)


@pytest.mark.parametrize("workers", [2, 5, 9, 40])
def test_one_in_four_random_phases_exceed_the_limit(workers):
    angles = np.random.default_rng(7).uniform(0, 2 * np.pi, (40_000, workers))
    above = np.abs(np.exp(1j * angles).mean(axis=1)) > random_order(workers)
    # standard error 0.0022, for few workers another 0.003 of the limit's own 20,000 draws; Rayleigh's law is good to 0.01 from nine on
    assert above.mean() == pytest.approx(0.25, abs=0.02)


def warned(result) -> bool:
    return "phases-not-mixed" in {warning.code for warning in result.warnings}


@pytest.mark.parametrize("workers", [2, 4, 9])
def test_without_jitter_workers_stay_together(scenario, workers):
    result = simulate(scenario(strategy={**ASYNC, "workers": workers}, run={"steps": 60}))
    assert result.phase is not None
    assert result.phase.order_at_start == pytest.approx(1.0, abs=1e-9)
    assert result.phase.order_at_end == pytest.approx(1.0, abs=1e-9)
    assert result.phase.mixed_share == 0
    assert result.phase.mixed_after_s is None
    assert warned(result)


@pytest.mark.statistics
@pytest.mark.parametrize("workers", [2, 4, 9])
@pytest.mark.parametrize("network", [{}, FAST])
def test_exponential_compute_mixes_them(scenario, workers, network):
    load = {"jitter": {"kind": "exponential"}}
    result = simulate(
        scenario(workload=load, cluster=network, strategy={**ASYNC, "workers": workers}, run={"steps": 200, "replications": 6})
    )
    assert result.phase is not None
    assert result.phase.mixed_share == 1
    assert not warned(result)
    # forgotten within some steps of about 6 ms and their transfers
    assert result.phase.mixed_after_s is not None
    assert result.phase.mixed_after_s < 20 * workers * 8e-3


@pytest.mark.statistics
def test_random_phases_are_mixed_from_the_beginning(scenario):
    """Without queues phases stay where they are, so each run keeps its own order; a quarter of them exceed the limit."""
    result = simulate(
        scenario(cluster=FAST, strategy={**ASYNC, "workers": 6}, run={"steps": 30, "start": "random-phase", "replications": 200})
    )
    assert result.phase is not None
    # 200 runs: a share of 3/4 has a standard error of 0.031; the mean order of six random phases is about sqrt(pi / 24), within 0.19 each
    assert result.phase.mixed_share == pytest.approx(0.75, abs=4 * 0.031)
    assert result.phase.order_at_start == pytest.approx(np.sqrt(np.pi / 24), abs=4 * 0.19 / np.sqrt(200) + 0.01)
    assert not warned(result)


def test_synchronous_workers_have_no_phases(scenario):
    assert simulate(scenario(strategy={**ASYNC, "mode": "sync", "workers": 4})).phase is None
    assert simulate(scenario(strategy={"kind": "multi-worker-mirrored", "workers": 4})).phase is None
    assert simulate(scenario(strategy={**ASYNC, "workers": 1})).phase is None
