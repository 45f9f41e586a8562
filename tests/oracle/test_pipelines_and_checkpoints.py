"""Two closed forms that stand beside the engine: a pipeline's bubble and the interval between checkpoints.

The bubble is checked with a flow shop, the interval with Daly's exact expected run time, minimised numerically.
"""

from __future__ import annotations

import numpy as np
import pytest
import simpy
from scipy import optimize

from simulator.job.costs import young_interval_s
from tests.support.closed_forms import pipeline_bubble

CHUNK_S = 1.0


def flow_shop_s(stages: int, micro_batches: int, turns: int) -> tuple[float, float]:
    """Seconds until all micro-batches have gone around ``turns`` times, in groups of ``stages``, and those that a stage works."""
    env = simpy.Environment()
    devices = [simpy.Resource(env) for _ in range(stages)]
    worked_s = [0.0]

    def go(group: int):
        yield env.timeout(group * CHUNK_S)
        for hop in range(stages * turns):
            with devices[hop % stages].request() as device:
                yield device
                yield env.timeout(CHUNK_S / turns)
            worked_s[0] += CHUNK_S / turns if hop % stages == 0 else 0.0

    # a group begins once the group before has left its last turn to the stages after the first
    for batch in range(micro_batches):
        env.process(go(batch - batch % stages))
    env.run()
    return env.now, worked_s[0]


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
