"""Of whole jobs, whatever the scenario: steps are as without one, and nothing but samples takes as long as these."""

from __future__ import annotations

import math

import pytest
from support.random_scenarios import seeded_scenarios

from simulator import simulate
from simulator.results.cost import time_of_samples_s
from simulator.spec.job import Job

SAMPLES = 12_345.0


@pytest.mark.slow
def test_a_job_of_nothing_but_samples_takes_them_over_throughput() -> None:
    for scenario in seeded_scenarios(6):
        alone = scenario.model_copy(update={"input": None, "job": None})
        steps, whole = simulate(alone), simulate(alone.model_copy(update={"job": Job(samples=SAMPLES)}))
        assert whole.throughput_of_each_replication == steps.throughput_of_each_replication
        assert whole.job is not None
        parts = whole.job.parts_s
        assert math.fsum(parts.model_dump().values()) == pytest.approx(whole.job.time_s.mean)
        beside = parts.filling  # which batches that cost something take once
        assert whole.job.time_s.mean - beside == pytest.approx(time_of_samples_s(steps, SAMPLES).mean)
