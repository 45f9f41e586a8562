"""Pieces of time that fill a lane of a timeline without overlapping: cut, joined and made coarser.

:data:`Kind` has the kinds of pieces; figures.py has a label for each, render.py its colour. Lanes are laid out in timeline.py.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from simulator.base.records import Work

Kind = Literal["input", "compute", "forward", "backward", "weights", "communication", "waiting", "bubble", "apply"]
"""What a piece of time goes into: of micro-batches each pass is a kind of its own, and so is what stages wait for each other."""


@dataclass
class Piece:
    """A piece of time in one lane; ``what`` is made of the same words for pieces that may become one."""

    start_s: float
    end_s: float
    kind: Kind
    what: str
    critical: bool = False
    works: list[Work] = field(default_factory=list)
    """The records that it is made of, each once."""

    @property
    def length_s(self) -> float:
        """From start to end."""
        return self.end_s - self.start_s


class Spans:
    """Intervals of time, those that overlap joined."""

    def __init__(self, intervals: Iterable[tuple[float, float]]) -> None:
        self._starts: list[float] = []
        self._ends: list[float] = []
        for start_s, end_s in sorted(intervals):
            if end_s <= start_s:
                continue
            if self._ends and start_s <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end_s)
            else:
                self._starts.append(start_s)
                self._ends.append(end_s)

    def covers(self, time_s: float) -> bool:
        """Whether a moment lies inside one of them."""
        index = bisect.bisect_right(self._starts, time_s) - 1
        return index >= 0 and time_s < self._ends[index]

    def cuts(self, start_s: float, end_s: float) -> list[float]:
        """Their ends strictly between two times."""
        return [
            at for ends in (self._starts, self._ends) for at in ends[bisect.bisect_right(ends, start_s) : bisect.bisect_left(ends, end_s)]
        ]


def clipped(pieces: Iterable[Piece], start_s: float, end_s: float) -> list[Piece]:
    """What of the pieces lies between two times, in order of time."""
    kept = []
    for piece in sorted(pieces, key=lambda one: (one.start_s, one.end_s)):
        low, high = max(piece.start_s, start_s), min(piece.end_s, end_s)
        if low < high:
            kept.append(Piece(low, high, piece.kind, piece.what, piece.critical, piece.works))
    return kept


def joined(pieces: Sequence[Piece], gap_s: float) -> list[Piece]:
    """Pieces that overlap, or are closer than ``gap_s``, as one, where they are alike; what is critical is cut out of the rest.

    No two of those returned overlap.
    """
    ends = sorted({at for piece in pieces for at in (piece.start_s, piece.end_s)})
    order = sorted(pieces, key=lambda one: one.start_s)
    found: list[Piece] = []
    under_way: list[Piece] = []
    begun = 0
    for low, high in pairwise(ends):
        while begun < len(order) and order[begun].start_s <= low:
            under_way.append(order[begun])
            begun += 1
        under_way = [piece for piece in under_way if piece.end_s > low]
        if not under_way:
            continue
        critical = [piece for piece in under_way if piece.critical]
        shown = (critical or under_way)[0]
        works = [work for piece in critical or under_way for work in piece.works]
        _append(found, Piece(low, high, shown.kind, shown.what, bool(critical), works), gap_s)
    for piece in found:
        piece.works = list({id(work): work for work in piece.works}.values())
    return found


def _append(found: list[Piece], piece: Piece, gap_s: float) -> None:
    """Add a piece, to the last one if that is alike and near."""
    last = found[-1] if found else None
    alike = last is not None and (last.kind, last.what, last.critical) == (piece.kind, piece.what, piece.critical)
    if last is None or not alike or piece.start_s - last.end_s > gap_s:
        found.append(piece)
        return
    last.end_s = piece.end_s
    last.works.extend(piece.works)


def coarse(pieces: Sequence[Piece], smallest_s: float) -> list[Piece]:
    """The same time in fewer pieces: one that is shorter than ``smallest_s`` and touches the one before becomes part of it."""
    found: list[Piece] = []
    for piece in pieces:
        last = found[-1] if found else None
        touches = last is not None and last.end_s == piece.start_s and last.critical == piece.critical
        if last is not None and touches and (piece.length_s < smallest_s or last.length_s < smallest_s):
            larger = max(last, piece, key=lambda one: one.length_s)
            found[-1] = Piece(last.start_s, piece.end_s, larger.kind, larger.what, last.critical, larger.works)
        else:
            found.append(piece)
    return found
