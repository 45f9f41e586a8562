"""One's own points scale the discrepancy of the regime, the less the fewer they are."""

from __future__ import annotations

import math
from typing import Any

import pytest

from calibrate.validation.against_points import own_discrepancy
from calibrate.validation.comparison import Compared, drawn_interval, reached_of
from simulator import simulate
from simulator.results.results import Result

TERM = {"compute": {"per_doubling": 0.05}, "communication": {"at": 0.1}}


def told(result: Result, times: float, count: int) -> Any:
    """Points that are so many deviations off, half of them either way."""
    off, mean = result.discrepancy.relative_error.sd, result.throughput_samples_per_s.mean
    made = [
        Compared(
            name=f"{number}", group="points", measured=(mean * math.exp((-1) ** number * times * off),),
            predicted=result.throughput_samples_per_s, reached=reached_of(result.discrepancy, drawn_interval(result)),
        )
        for number in range(count)
    ]  # fmt: skip
    return own_discrepancy(made, [result] * count)


@pytest.fixture
def result(scenario) -> Result:
    return simulate(scenario(strategy={"kind": "multi-worker-mirrored", "workers": 4}, discrepancy=TERM))


@pytest.mark.parametrize(("times", "count"), [(1.0, 5), (0.0, 1), (0.0, 9), (3.0, 9)])
def test_the_regime_counts_as_three_points(result: Result, times: float, count: int) -> None:
    own, factor = told(result, times, count)
    wanted = math.sqrt((3 + count * times**2) / (3 + count))
    assert factor == pytest.approx(wanted, rel=1e-6)
    assert own.communication.at == pytest.approx(0.1 * wanted, rel=0.05)
    assert own.checked.rows == count
    assert f"{count} points" in own.about


def test_points_far_off_are_outside_until_others_are_too(result: Result) -> None:
    assert told(result, 3.0, 1)[0].checked.inside == 0.0
    assert told(result, 3.0, 20)[0].checked.inside == 1.0


def test_one_replica_alone_has_none(scenario) -> None:
    alone = simulate(scenario(discrepancy=TERM))
    row = Compared(name="1", group="points", measured=(1.0,), predicted=alone.throughput_samples_per_s)
    assert own_discrepancy([row], [alone]) is None
