"""Machine code is told where tables are without code that swallows exceptions: an interruption is one, wherever it comes."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")


@pytest.mark.parametrize("table", [np.zeros(3, [("time_s", "f8"), ("counts", "i4", (2,))]), np.zeros((2, 3)), np.zeros(0, "i8")])
def test_an_interruption_at_any_call_comes_through(table: np.ndarray[Any, Any]) -> None:
    from simulator.engine.production.machine import address_of

    address = address_of(table)
    assert address == table.__array_interface__["data"][0]
    calls = _calls_of(lambda: address_of(table), stop_at=None)
    assert calls
    for number in range(calls):
        with pytest.raises(KeyboardInterrupt):
            _calls_of(lambda: address_of(table), stop_at=number)


def _calls_of(do: Any, stop_at: int | None) -> int:
    """How many functions of Python it calls; at the beginning of one of them, Ctrl-C."""
    count = 0

    def see(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        if event == "call":
            count += 1
            if count - 1 == stop_at:
                raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        do()
    finally:
        sys.setprofile(before)
    return count
