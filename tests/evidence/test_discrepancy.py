"""The estimate of what predictions are off by finds what rows were made with, and leaves sources out."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from calibrate.validation.comparison import Compared, Reached, rows_to_csv
from evidence.discrepancy import Sample, crps, deviations, held_out, rows_from_csv
from evidence.published.shares import of_decoders
from simulator.base.errors import InputError
from simulator.spec.constants import constants
from simulator.spec.figures import Estimate
from simulator.spec.uncertainty import Z_90, Deviation, Regime

REGIME = Regime("all-reduce", "measured links")


def rows(compute: float, communication: float, sources: int = 6, each: int = 60, seed: int = 1) -> list[Compared]:
    """Predictions of 100 whose truth is off by as much, with little chance beside."""
    rng = np.random.default_rng(seed)
    made = []
    for source in range(sources):
        for number in range(each):
            share, reach = float(rng.uniform(0.1, 0.9)), float(rng.integers(1, 6))
            away = share * compute * reach * rng.standard_normal() + (1 - share) * communication * rng.standard_normal()
            made.append(
                Compared(
                    name=f"{source} {number}",
                    group="made",
                    measured=(100.0 * math.exp(away),),
                    predicted=Estimate(mean=100.0, low=99.9, high=100.1),
                    reached=Reached(
                        regime=REGIME, source=f"source {source}", series=f"{number % 6}", reach=reach, compute=share,
                        communication=1 - share, low=99.9, high=100.1,
                    ),
                )
            )  # fmt: skip
    return made


def test_it_finds_what_the_rows_were_made_with() -> None:
    sample = Sample.of(rows(0.03, 0.2))
    compute, communication = deviations(sample, REGIME)
    assert compute.per_doubling == pytest.approx(0.03, rel=0.3)
    assert communication.at == pytest.approx(0.2, rel=0.3)
    held = held_out(sample, [REGIME])
    assert held.inside == pytest.approx(0.9, abs=0.05)
    assert held.score < 0.5 * held.score_before
    assert (held.settings, held.sources) == (360, 6)


def test_a_source_left_out_says_nothing() -> None:
    odd = [
        row.model_copy(update={"measured": (300.0,), "reached": row.reached.model_copy(update={"source": "odd"})})
        for row in rows(0.02, 0.1, sources=1)
    ]
    good = rows(0.02, 0.1)
    assert deviations(Sample.of([*good, *odd]), REGIME, without="odd") == deviations(Sample.of(good), REGIME)


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    made = rows(0.02, 0.1, sources=1, each=3)
    file.write_text(rows_to_csv([*made, made[0].model_copy(update={"fitted": True})]))
    read = rows_from_csv(file)
    assert [row.name for row in read] == [row.name for row in made]
    assert read[0].measured == pytest.approx(made[0].measured, rel=1e-5)
    file.write_text(file.read_text().replace("all-reduce", "all-reduce").replace("100,", "much,", 1))
    with pytest.raises(InputError, match=r"rows\.csv:2: is no row"):
        rows_from_csv(file)


def test_of_links_that_nobody_measured_the_next_source_is_taken_to_be_further_off() -> None:
    """By as much as sources that were left out show; where links lead decides which rows are alike."""
    made = rows(0.03, 0.2)
    known, sort = (
        deviations(
            Sample.of([row.model_copy(update={"reached": row.reached.model_copy(update={"regime": regime})}) for row in made]), regime
        )
        for regime in (REGIME, Regime("all-reduce", "between nodes"))
    )
    for narrow, wide in zip((known[0].per_doubling, known[1].at), (sort[0].per_doubling, sort[1].at), strict=True):
        assert wide == pytest.approx(1.2 * narrow, rel=0.05), "to two digits"


def _of(row: Compared, regime: Regime, **changes: float | str) -> Compared:
    assert row.reached is not None
    return row.model_copy(update={"reached": row.reached.model_copy(update={"regime": regime, **changes})})


def test_intervals_end_where_devices_would_scale_linearly() -> None:
    """At 95% of linear scaling nothing is more than 1.03 / 0.95 times as fast, by model error; slower it may be."""
    free, limited = (Sample.of([_of(row, REGIME, **known) for row in rows(0.1, 0.3)]) for known in ({}, {"efficiency": 0.95}))
    error = Deviation(per_doubling=0.1), Deviation(at=0.3)
    (low, high), (low_limited, high_limited) = free.ends(*error), limited.ends(*error)
    assert (low == low_limited).all()
    assert high_limited == pytest.approx(np.hypot(limited.high, np.minimum(np.sqrt(high**2 - free.high**2), np.log(1.03 / 0.95))))
    assert high_limited.max() < 0.1 < high.max()


def test_of_cut_models_compute_is_as_wrong_on_few_devices_as_on_many() -> None:
    rng = np.random.default_rng(3)
    regime, between = Regime("cut models", "from dimensions"), Regime("all-reduce", "between nodes")
    cut = [
        _of(row, regime, compute=1.0, communication=0.0).model_copy(update={"measured": (100.0 * math.exp(0.1 * rng.standard_normal()),)})
        for row in rows(0.0, 0.0)
    ]
    sample = Sample.of([*cut, *(_of(row, between) for row in rows(0.03, 0.2))])
    compute, communication = deviations(sample, regime)
    assert (compute.at, compute.per_doubling) == (pytest.approx(1.2 * 0.1, rel=0.15), 0.0)
    assert communication == deviations(sample, between)[1]


def test_the_interval_of_decoders_is_from_the_other_sources() -> None:
    regime = Regime("cut models", "from dimensions")
    made = [_of(row, regime).model_copy(update={"measured": (100.0 * math.exp(0.12 * (-1) ** n),)}) for n, row in enumerate(rows(0.0, 0.0))]
    odd = [_of(row, regime, source="odd").model_copy(update={"measured": (300.0,)}) for row in rows(0.0, 0.0, sources=1)]
    known = of_decoders([*made, *odd], without="odd")
    assert known == of_decoders(made)
    assert known.low == pytest.approx(known.value * math.exp(-Z_90 * math.sqrt(0.12**2 - 0.08**2) / 0.8), rel=0.01)
    assert of_decoders([*made, *odd]).low < known.low
    assert known.value == constants()["decoder_matrix_share"].value == constants()["matrix_share"].value


@pytest.mark.parametrize("measured", [60.0, 95.0, 100.0, 101.0, 130.0])
def test_the_crps_is_the_integral_of_the_squared_difference_of_the_distributions(measured: float) -> None:
    below, above = math.log(100 / 70) / Z_90, math.log(110 / 100) / Z_90
    at = np.linspace(-3.0, 3.0, 600_001)
    distribution = norm.cdf(at / np.where(at < 0, below, above))
    squares = (distribution - (at >= math.log(measured / 100))) ** 2
    ends = (np.array([math.log(end / 100)]) for end in (measured, 70, 110))
    assert crps(*ends)[0] == pytest.approx(float(np.trapezoid(squares, at)), rel=1e-3)
