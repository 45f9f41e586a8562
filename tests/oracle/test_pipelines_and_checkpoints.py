"""Two closed forms that stand beside the engine: a pipeline's bubble and the interval between checkpoints.

The bubble is checked with a flow shop on the kernel and the server of the engine, the
interval with Daly's exact expected run time, minimised numerically.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from simulator.engine.simpy.objects import Job, Server
from simulator.job.intervals import young_interval_s
from simulator.network.kernel import Kernel
from tests.support.closed_forms import pipeline_bubble

CHUNK_S = 1.0


def flow_shop_s(stages: int, micro_batches: int, turns: int) -> tuple[float, float]:
    """Seconds until all micro-batches have gone around ``turns`` times, in groups of ``stages``, and those that a stage works."""
    kernel = Kernel()
    servers = [Server(kernel, index, None) for index in range(stages)]

    def go(batch: int, hop: int) -> None:
        if hop < stages * turns:
            servers[hop % stages].submit(Job(CHUNK_S / turns, lambda _: go(batch, hop + 1)))

    # a group begins once the group before has left its last turn to the stages after the first
    for group in range(0, micro_batches, stages):
        members = range(group, min(group + stages, micro_batches))
        for batch in members:
            kernel.call_later(group * CHUNK_S, lambda _, batch=batch: go(batch, 0))
    kernel.run()
    return kernel.now, servers[0].in_use_s(kernel.now)


@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 4), (2, 1), (4, 4), (4, 16), (8, 12)])
def test_bubble_of_a_flow_shop(stages, micro_batches):
    whole_s, busy_s = flow_shop_s(stages, micro_batches, 1)
    assert whole_s == pytest.approx((micro_batches + stages - 1) * CHUNK_S)
    assert 1 - busy_s / whole_s == pytest.approx(pipeline_bubble(stages, micro_batches), abs=1e-12)


@pytest.mark.parametrize(("stages", "micro_batches", "turns"), [(2, 2, 2), (4, 8, 2), (4, 4, 5), (8, 16, 3)])
def test_bubble_of_interleaved_stages(stages, micro_batches, turns):
    """Each device holds ``turns`` smaller stages; micro-batches go in groups of as many as there are devices."""
    whole_s, busy_s = flow_shop_s(stages, micro_batches, turns)
    assert 1 - busy_s / whole_s == pytest.approx(pipeline_bubble(stages, micro_batches, turns), abs=1e-9)


def run_time_s(interval_s: float, checkpoint_s: float, mean_s: float, restart_s: float) -> float:
    """Daly's exact expected run time a second of work, failures exponential: M e^(R/M) (e^((t + C)/M) - 1) / t."""
    return mean_s * np.exp(restart_s / mean_s) * np.expm1((interval_s + checkpoint_s) / mean_s) / interval_s


@pytest.mark.parametrize("ratio", [1e-2, 1e-3, 1e-4, 1e-5])
@pytest.mark.parametrize("restart", [0.0, 5.0])
def test_checkpoint_interval_is_the_best_to_first_order(ratio, restart):
    mean_s = 86_400.0
    checkpoint_s = ratio * mean_s
    best = optimize.minimize_scalar(
        lambda interval_s: run_time_s(interval_s, checkpoint_s, mean_s, restart * checkpoint_s),
        bounds=(checkpoint_s, mean_s),
        method="bounded",
        options={"xatol": 1e-6},
    )
    got_s = young_interval_s(checkpoint_s, mean_s)
    # Daly's next terms: sqrt(2 C M) (1 + sqrt(C / 2 M) / 3 + ...) - C, so it is above the best by about sqrt(2 C / M) / 3
    assert got_s == pytest.approx(best.x, rel=np.sqrt(2 * ratio) / 2)
    assert best.x < got_s
    # and the time lost by that is of higher order still
    lost = run_time_s(got_s, checkpoint_s, mean_s, restart * checkpoint_s) / best.fun - 1
    assert 0 <= lost < ratio


def test_a_pipeline_of_one_stage_has_no_bubble():
    assert pipeline_bubble(1, 7) == 0
    assert pipeline_bubble(8, 1) == pytest.approx(7 / 8)
    assert pipeline_bubble(4, 8, 3) < pipeline_bubble(4, 8)
