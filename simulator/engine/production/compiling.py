"""How the engine's functions read tables, and what is made of them: Python functions, where ``by_numba`` does not make machine code.

A table is a numpy array of records that Python owns. Its reader gets the address, as an integer, from one record of state, and
finds record number ``i`` by adding to it: nothing is counted, copied or checked on the way, so that nothing is allocated either. The
engine returns to its caller where a table is full. Python and machine code make the same sums in the same order, so results are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from simulator.engine.production.layout import Record, Table

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """A function that other such functions call."""
    return function


def table(dtype: np.dtype[Any]) -> Table:
    """How such functions read the records of such tables."""
    size, record = dtype.itemsize, np.ctypeslib.as_ctypes_type(dtype).from_address

    def at(address: int, index: int) -> Record:
        return record(address + index * size)

    return at
