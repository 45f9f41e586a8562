"""What the ranks of an all-reduce send one another: the common language of the algorithms.

The buffer is cut into equal parts. A :class:`Lane` carries messages from one rank to
another, in order; a message holds a run of parts and leaves when the source has its own
data and what the message awaits. A rank has the whole result when it has received every
message meant for it, and has ended when its own messages have left it as well.

Messages are computed when asked for: a ring of 1,024 ranks has two million.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Await", "Lane", "Message", "Schedule"]


class Await(NamedTuple):
    """The first ``messages`` messages of the lane ``number`` from rank ``source`` must have arrived."""

    source: int
    number: int
    messages: int


class Message(NamedTuple):
    """Parts ``first`` to ``last - 1`` of the buffer.

    Attributes
    ----------
    first, last
        Which parts.
    adds
        Whether the target adds them to its own; else it puts them in their place.
    awaits
        What the source must have received before.
    meets
        What the target must have received before, if the two wait for one another, as
        large messages of MPI do; none if the message may come at any time.
    """

    first: int
    last: int
    adds: bool
    awaits: tuple[Await, ...] = ()
    meets: tuple[Await, ...] | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    """Messages in order from one rank to another.

    Attributes
    ----------
    source, target
        The two ranks.
    number
        Tells apart lanes between the same two ranks in the same direction.
    messages
        How many there are.
    share
        What they carry together, in buffers.
    message
        The k-th of them, from 0 on.
    """

    source: int
    target: int
    number: int
    messages: int
    share: float
    message: Callable[[int], Message]


@dataclass(frozen=True, slots=True)
class Schedule:
    """One all-reduce.

    Attributes
    ----------
    ranks
        How many take part.
    parts
        Equal parts that the buffer is cut into.
    lanes_from
        The lanes out of a rank.
    """

    ranks: int
    parts: int
    lanes_from: Callable[[int], tuple[Lane, ...]]

    def lanes(self) -> Iterator[Lane]:
        """Every lane, by source."""
        for rank in range(self.ranks):
            yield from self.lanes_from(rank)

    def share(self, message: Message) -> float:
        """What a message carries, in buffers."""
        return (message.last - message.first) / self.parts
