"""Makes columns of tables with millions of rows small: constant ones take the memory of one value, numbers of rows four bytes each.

What :func:`compact` returns may be a view that cannot be written to.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

_Item = TypeVar("_Item", bound=np.generic)


def compact(column: NDArray[_Item]) -> NDArray[_Item]:
    """The same column; one whose values are all the same takes the memory of one, and cannot be written to."""
    return np.broadcast_to(column[0], column.shape) if len(column) and (column == column[0]).all() else column


def numbers(column: NDArray[Any]) -> NDArray[np.int32]:
    """Numbers of rows, or counts, in four bytes each; the same array where they are so already.

    Raises
    ------
    OverflowError
        One of them needs more.
    """
    if column.dtype == np.int32:
        return column
    if column.size and not -(1 << 31) <= int(column.min()) <= int(column.max()) < 1 << 31:
        raise OverflowError(f"numbers of rows take four bytes, and {int(column.max()):,} does not fit")
    return column.astype(np.int32)
