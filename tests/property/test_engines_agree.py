"""Both engines compute the same: the same records in the same order, and the same figures, to the last bit."""

from __future__ import annotations

import dataclasses
from itertools import islice

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from support.engines import Outcome, difference, run
from support.examples import examples
from support.random_scenarios import random_scenarios, seeded_scenarios

from simulator import Scenario
from simulator.base.records import Step, Transfer

ALL = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def both(scenario: Scenario, replication: int, *, observer: bool) -> str | None:
    reference, compiled = (run(scenario, engine, replication, observer=observer) for engine in ("simpy", "compiled"))
    return difference(reference, compiled)


@examples(400, few=60)
@given(random_scenarios(), st.sampled_from((True, True, False)), st.integers(0, 1))
def agree(scenario: Scenario, observer: bool, replication: int) -> None:
    assert both(scenario, replication, observer=observer) is None


@pytest.mark.slow
def test_engines_agree() -> None:
    agree()


# -- that the comparison sees what it should ------------------------------------------------


def some_outcomes(count: int) -> list[Outcome]:
    return [run(scenario, "simpy") for scenario in seeded_scenarios(count)]


@pytest.mark.slow
def test_a_run_repeated_differs_in_nothing() -> None:
    for one, other in zip(some_outcomes(30), some_outcomes(30), strict=True):
        assert difference(one, other) is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Step, Transfer])
def test_the_first_field_that_differs_is_named(kind: type) -> None:
    for outcome in some_outcomes(30):
        numbers = [number for number, record in enumerate(outcome.records) if isinstance(record, kind)]
        for number in numbers[:3]:
            for name in kind._fields:
                value = getattr(outcome.records[number], name)
                changed = list(outcome.records)
                changed[number] = changed[number]._replace(**{name: float(np.nextafter(value, 1e99)) if isinstance(value, float) else "x"})
                found = difference(outcome, outcome._replace(records=changed))
                assert found is not None
                assert found.startswith(f"record {number} of {len(changed)}, {kind.__name__}.{name}"), found


def test_a_record_less_or_out_of_order_is_found() -> None:
    for outcome in islice(some_outcomes(10), 10):
        assert str(difference(outcome, outcome._replace(records=outcome.records[:-1]))).startswith("records: ")
        swapped = outcome.records[1:2] + outcome.records[:1] + outcome.records[2:]
        assert outcome.records[0] == outcome.records[1] or str(difference(outcome, outcome._replace(records=swapped))).startswith(
            "record 0"
        )


@pytest.mark.slow
def test_every_figure_is_compared() -> None:
    """Whatever is measured: a figure that changes is named."""
    for outcome in some_outcomes(40):
        if outcome.measured is None:
            continue
        for field in dataclasses.fields(outcome.measured):
            value = getattr(outcome.measured, field.name)
            other = value + 1 if isinstance(value, (int, float)) else None
            if isinstance(value, np.ndarray):
                other = np.nextafter(value, 1e99)
            elif isinstance(value, dict) and value:
                first = next(iter(value))
                other = {**value, first: value[first][1:]}
            if other is not None and (not isinstance(value, dict) or len(value[first])):
                found = difference(outcome, outcome._replace(measured=dataclasses.replace(outcome.measured, **{field.name: other})))
                assert str(found).startswith(f"measured.{field.name}"), found


def test_a_tolerance_is_relative() -> None:
    (outcome,) = some_outcomes(1)
    later = [record._replace(end_s=record.end_s * (1 + 1e-12)) if isinstance(record, Step) else record for record in outcome.records]
    near = outcome._replace(records=later)
    assert difference(outcome, near)
    assert difference(outcome, near, 1e-9) is None
