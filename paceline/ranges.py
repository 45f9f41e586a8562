"""Lists of whole numbers as they are typed: ``1..8``, ``1,2,4``, ``1..4,8,16``.

Options of the command line, ``over`` of a sweep and the counts of a plan share this syntax.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from simulator.base.errors import InputError

MOST = 1_000_000
"""Most numbers of a list."""
_LONG = 2
"""More consecutive numbers are written as a range."""
_PART = re.compile(r"\s*(\d{1,15})\s*(?:\.\.\s*(\d{1,15})\s*)?")


def is_range(text: str) -> bool:
    """Return whether a text is one range, such as ``1..64``."""
    match = _PART.fullmatch(text)
    return match is not None and match[2] is not None


def numbers_in(text: str, where: str = "") -> list[int] | None:
    """Return the numbers that a text lists, in order, ranges with both ends; None if it is not such a list.

    >>> numbers_in("1..4,8,16")
    [1, 2, 3, 4, 8, 16]
    >>> numbers_in("1,two") is None
    True

    Parameters
    ----------
    text
        Text as typed.
    where
        Prefix of messages: the option or key.

    Raises
    ------
    InputError
        A range ends before it begins, or there are too many numbers.
    """
    numbers: list[int] = []
    for part in map(_PART.fullmatch, text.split(",")):
        if part is None:
            return None
        low, high = int(part[1]), int(part[2] or part[1])
        if low > high:
            raise InputError(f"{where}{part[0].strip()!r}: is empty, since {low} is above {high}; write {high}..{low}")
        if high - low + len(numbers) >= MOST:
            raise InputError(f"{where}{text[:60]!r}: names more than {MOST:,} numbers")
        numbers.extend(range(low, high + 1))
    return numbers


def doubled(least: int, most: int) -> list[int]:
    """Return a number, its doubles up to another number, and that number.

    >>> doubled(1, 6)
    [1, 2, 4, 6]
    """
    return sorted({most, *(least << power for power in range((most // least).bit_length()))})


def range_of(numbers: Sequence[int]) -> str:
    """Return numbers as they are typed, the inverse of :func:`numbers_in`.

    >>> range_of([1, 2, 3, 4, 8, 16])
    '1..4,8,16'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}..{run[-1]}" if len(run) > _LONG else ",".join(map(str, run)) for run in runs)
