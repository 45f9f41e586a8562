"""Tables of millions of rows in little memory: columns, counts, and factors that are drawn a few steps ahead."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scenarios import scenario_table

from simulator import scenario_from_table, simulate
from simulator.base.compact import CountHistogram, compact, numbers
from simulator.base.process import give_back
from simulator.engine import draws

VALUES = st.lists(st.one_of(st.integers(0, 50), st.integers(9_000, 9_100), st.integers(-5, 1 << 40)), max_size=20)


def test_a_column_of_one_value_takes_the_memory_of_one():
    column = compact(np.full(1000, 7.0))
    assert column.strides == (0,)
    assert column.tolist() == [7.0] * 1000
    mixed = np.array([1.0, 2.0])
    assert compact(mixed) is mixed


def test_numbers_of_rows_that_do_not_fit_are_refused():
    assert numbers(np.array([0, (1 << 31) - 1])).dtype == np.int32
    with pytest.raises(OverflowError, match="2,147,483,648"):
        numbers(np.array([1 << 31]))


@pytest.mark.slow
@given(st.lists(st.tuples(st.booleans(), VALUES), max_size=6))
def test_counts_are_exact_wherever_values_lie(blocks):
    counted, other, expected = CountHistogram(), CountHistogram(), Counter()
    for number, (at_once, values) in enumerate(blocks):
        histogram = counted if number % 2 else other
        if at_once:
            histogram.add_all(np.array(values, dtype=np.int64))
        else:
            for value in values:
                histogram.add(value)
        expected.update(values)
    counted.merge(other)
    assert counted.counts == expected
    every = sorted(expected.elements())
    if every:
        assert counted.mean() == sum(every) / len(every)
        assert counted.quantile(0.5) == every[-(-len(every) // 2) - 1]


@pytest.mark.slow
@pytest.mark.parametrize("order", ["forward", "random"])
def test_factors_and_orders_drawn_a_few_steps_ahead_are_the_same(order, monkeypatch):
    def result():
        table = scenario_table(
            workload={
                "jitter": {"kind": "exponential"},
                "variables": [{"name": f"v{i}", "size": "1 MB", "creation_index": i, "ready": 1.0} for i in range(3)],
            },
            strategy={"kind": "parameter-server", "mode": "async", "workers": 5, "pull_order": order},
            run={"steps": 40, "engine": "compiled"},
        )
        return simulate(scenario_from_table(table, "test")).model_dump()

    pytest.importorskip("numba")
    plenty = result()
    monkeypatch.setattr(draws, "_DRAWN_BYTES", 1)
    assert draws.ahead_of(40, 8) < 10
    assert result() == plenty


def test_memory_can_be_given_back_anywhere():
    give_back(1 << 20)


def test_large_tables_begin_with_a_line_of_the_cache_and_lie_in_memory_only_where_they_are_written_to():
    pytest.importorskip("numba")
    aligned = pytest.importorskip("simulator.engine.production.state").aligned
    pages = Path("/proc/self/statm")
    for count in (5, 1 << 24):
        before = int(pages.read_text().split()[1]) if pages.exists() else 0
        table = aligned(count, np.dtype(np.float64))
        assert table.ctypes.data % 64 == 0
        taken = int(pages.read_text().split()[1]) - before if pages.exists() else 0
        assert taken < 2000  # of 32,768 of the large one
        table[-1] = 1.0
        assert table[:3].tolist() == [0.0, 0.0, 0.0]
