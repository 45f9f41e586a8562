"""All-reduce by recursive halving and doubling.

Ranks exchange halves of what they hold with partners at distance 1, 2, 4, ...: first half of the buffer, then a quarter, until each
holds the sum of one part; then they gather the parts in the opposite order. The two of a pair wait for one another, as large
messages of MPI do, so that nobody has two exchanges under way. Ranks beyond a power of two fold: of the first pairs, the even rank
gives its whole buffer to the odd one, and gets the whole result at the end. See Thakur, Rabenseifner and Gropp, "Optimization of
collective communication operations in MPICH", IJHPCA 2005.

The messages (``halving_doubling_schedule``) and the times at once (:class:`HalvingDoubling`) describe the same: change both together
(tests/oracle/test_collectives.py compares them).
"""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import pairwise

import numpy as np

from simulator.collectives.around import Times
from simulator.collectives.collective import Scheduled
from simulator.collectives.trial import together_s
from simulator.collectives.wire import Wire
from simulator.program.schedule import Await, Lane, Schedule


class _Fold:
    """How ``ranks`` ranks play ``players`` players, the largest power of two in them."""

    def __init__(self, ranks: int) -> None:
        self.rounds = ranks.bit_length() - 1
        self.players = 1 << self.rounds
        self.folded = ranks - self.players

    def rank(self, player: int) -> int:
        """The rank that plays."""
        return 2 * player + 1 if player < self.folded else player + self.folded

    def player(self, rank: int) -> int | None:
        """What a rank plays; none if it has handed its data over."""
        if rank >= 2 * self.folded:
            return rank - self.folded
        return rank // 2 if rank % 2 else None

    def held(self, player: int, rounds: int) -> tuple[int, int]:
        """The parts that a player still sums after a number of rounds of halving."""
        first = sum(self.players >> (k + 1) for k in range(rounds) if player >> k & 1)
        return first, first + (self.players >> rounds)


@lru_cache(maxsize=16)
def halving_doubling_schedule(ranks: int) -> Schedule:
    """As many parts as the largest power of two in ``ranks``."""
    fold = _Fold(ranks)
    return Schedule(ranks, fold.players, lambda rank: _lanes(fold, rank) if ranks > 1 else ())


def _lanes(fold: _Fold, rank: int) -> tuple[Lane, ...]:
    player, whole = fold.player(rank), fold.players
    if player is None:
        return (Lane(rank, rank + 1, 0, 1, whole, _whole, 1, (), ()),)
    lanes = [
        Lane(
            rank, fold.rank(player ^ 1 << k), 0, 2, whole >> (k + 1), partial(_exchanged, fold, player, k), 1,
            _before(fold, player, k), _before(fold, player ^ 1 << k, k),
        )
        for k in range(fold.rounds)
    ]  # fmt: skip
    if player < fold.folded:
        lanes.append(Lane(rank, rank - 1, 0, 1, whole, _whole, 0, (*_folded(player), *_partners(fold, player, range(fold.rounds), 2))))
    return tuple(lanes)


def _whole(_: int) -> int:
    return 0


def _exchanged(fold: _Fold, player: int, k: int, gathering: int) -> int:
    """The first part of what a player sends to its partner of round k, when halving (0) or when gathering (1)."""
    return fold.held(player if gathering else player ^ 1 << k, k + 1)[0]


def _before(fold: _Fold, player: int, k: int) -> tuple[Await, ...]:
    """What a player has when it exchanges with its partner of round k: the halves so far; when gathering, all that came since."""
    halves = _partners(fold, player, range(k), 1)
    answer = _partners(fold, player, range(k, min(k + 1, fold.rounds)), 1, start=1)
    gathered = _partners(fold, player, range(k + 1, fold.rounds), 2, start=1)
    return (*(_folded(player) if player < fold.folded else ()), *halves, *answer, *gathered)


def _folded(player: int) -> tuple[Await, ...]:
    """The buffer of the rank that has handed its data over to a player."""
    return (Await(2 * player, 0, 1),)


def _partners(fold: _Fold, player: int, rounds: range, messages: int, start: int = 0) -> tuple[Await, ...]:
    return tuple(Await(fold.rank(player ^ 1 << k), 0, messages, start=start) for k in rounds)


class HalvingDoubling(Scheduled):
    """By the recurrence of the rounds, if that is exact; else from ranks that enter together.

    It is exact if no two ranks share a link. If those of a node do, or those of groups
    beside one another, it is so for a power of two of ranks that enter together, provided
    that all pairs of a round are joined alike; ranks that enter apart are then taken to
    have equal shares still, which is never early. Otherwise the times come from a trial run
    in which all ranks enter together.
    """

    def __init__(self, name: str, protocol: str, wire: Wire) -> None:
        ranks = len(wire.group)
        schedule = halving_doubling_schedule(ranks)
        super().__init__(name, protocol, lambda _: schedule, wire)
        self._fold = fold = _Fold(ranks)
        self._players = np.array([fold.rank(player) for player in range(fold.players)])
        self._partners = [np.arange(fold.players) ^ 1 << k for k in range(fold.rounds)]
        # the links into each player from its partner, round by round; then those of the fold
        even = np.arange(0, 2 * fold.folded, 2)
        sources = [*(self._players[partner] for partner in self._partners), even, even + 1]
        targets = [*(self._players for _ in self._partners), even + 1, even]
        lengths = [len(stage) for stage in sources]
        source, target = np.concatenate(sources), np.concatenate(targets)
        laid = wire.laid(source, target, np.repeat(np.arange(len(lengths)), lengths))
        paces = wire.paces(laid)
        cuts = np.cumsum(lengths)[:-1]
        self._s_per_byte = np.split(paces.s_per_byte[0], cuts)
        self._latency_s = np.split(paces.latency_s[0], cuts)
        alike = all(np.ptp(stage[:, begin:end]) == 0 for stage in paces for begin, end in pairwise([0, *cuts[:-1].tolist()]))
        group, place = np.divmod(laid.path, max(len(source), 1))
        shared = laid.several(group * ranks + source[place]) & laid.several(group * ranks + target[place])
        self._aligned = bool(shared.any()) and (bool(fold.folded) or not alike)

    def _received_s(self, ready_s: Times, size_bytes: float, free_s: Times) -> Times:
        if self._aligned:
            return together_s(self.plan(size_bytes), size_bytes)
        fold = self._fold
        into, out = self._stage_s(-2, size_bytes), self._stage_s(-1, size_bytes)
        even, odd = slice(0, 2 * fold.folded, 2), slice(1, 2 * fold.folded, 2)
        has_s = np.maximum(ready_s, free_s)
        has_s[odd] = np.maximum(has_s[odd], has_s[even]) + into
        holds_s = has_s[self._players]
        for k in (*range(fold.rounds), *reversed(range(fold.rounds))):
            holds_s = np.maximum(holds_s, holds_s[self._partners[k]]) + self._stage_s(k, size_bytes / 2 ** (k + 1))
        has_s[self._players] = holds_s
        has_s[even] = has_s[odd] + out
        # each send has left when its answer is there, but for the result that goes to a folded rank
        free_s[:] = has_s
        free_s[odd] = has_s[even] - self._latency_s[-1]
        return has_s

    def _stage_s(self, stage: int, size_bytes: float) -> Times:
        """Seconds of each message of a stage."""
        stage_s: Times = size_bytes * self._s_per_byte[stage] + self._latency_s[stage]
        return stage_s
