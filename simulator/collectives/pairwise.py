"""Collectives of pairs: all-reduce by recursive halving and doubling, and the all-to-all.

In halving and doubling ranks exchange halves of what they hold with partners at distance 1, 2, 4, ...: first half of the buffer, then a
quarter, until each holds the sum of one part; then they gather the parts in the opposite order. The two of a pair wait for one another,
as large messages of MPI do, so that nobody has two exchanges under way. Ranks beyond a power of two fold: of the first pairs, the even
rank gives its whole buffer to the odd one, and gets the whole result at the end. See Thakur, Rabenseifner and Gropp, "Optimization of
collective communication operations in MPICH", IJHPCA 2005.

In the all-to-all every rank sends each other one its part directly, all at the same time. NCCL's way of writing it is one group of
``ncclSend`` and ``ncclRecv`` to and from all others, which make progress independently (its user guide, Point-to-point communication);
MPICH's for messages of medium size is the same (Thakur, Rabenseifner and Gropp 2005).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from itertools import pairwise

import numpy as np

from simulator.collectives.collective import Collective
from simulator.collectives.wire import ConnectionTimes, Wire, equal_share_s, seconds_per_byte
from simulator.program.program import Floats
from simulator.program.schedule import Await, Lane, Schedule, columns, whole_buffer

_ALIKE = 1 + 1e-12


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
        """Return what a rank plays; none if it has handed its data over."""
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
        return (Lane(rank, rank + 1, 0, 1, whole, whole_buffer, 1, (), ()),)
    lanes = [
        Lane(
            rank, fold.rank(player ^ 1 << k), 0, 2, whole >> (k + 1), partial(_exchanged, fold, player, k), 1,
            _before(fold, player, k), _before(fold, player ^ 1 << k, k),
        )
        for k in range(fold.rounds)
    ]  # fmt: skip
    if player < fold.folded:
        lanes.append(
            Lane(rank, rank - 1, 0, 1, whole, whole_buffer, 0, (*_folded(player), *_partners(fold, player, range(fold.rounds), 2)))
        )
    return tuple(lanes)


def _exchanged(fold: _Fold, player: int, k: int, gathering: int) -> int:
    """The first part of what a player sends to its partner of round k, when halving (0) or when gathering (1)."""
    return fold.held(player if gathering else player ^ 1 << k, k + 1)[0]


def _before(fold: _Fold, player: int, k: int) -> tuple[Await, ...]:
    """Return what a player has when it exchanges with its partner of round k: the halves so far; when gathering, all that came since."""
    halves = _partners(fold, player, range(k), 1)
    answer = _partners(fold, player, range(k, min(k + 1, fold.rounds)), 1, start=1)
    gathered = _partners(fold, player, range(k + 1, fold.rounds), 2, start=1)
    return (*(_folded(player) if player < fold.folded else ()), *halves, *answer, *gathered)


def _folded(player: int) -> tuple[Await, ...]:
    """The buffer of the rank that has handed its data over to a player."""
    return (Await(2 * player, 0, 1),)


def _partners(fold: _Fold, player: int, rounds: range, messages: int, start: int = 0) -> tuple[Await, ...]:
    return tuple(Await(fold.rank(player ^ 1 << k), 0, messages, start=start) for k in rounds)


class HalvingDoubling(Collective):
    """By the recurrence of the rounds, if that is exact; else from ranks that enter together.

    It is exact if no two ranks share a link. If those of a node or of parallel groups do, this holds for a power of two of ranks that enter
    together, provided that all pairs of a round have equal links; ranks that enter apart are then taken to have equal shares still, which
    is never early. Otherwise the times come from a trial run in which all ranks enter together.
    """

    def __init__(self, name: str, protocol: str, schedule: Callable[[float], Schedule], wire: Wire) -> None:
        super().__init__(name, protocol, schedule, wire)
        ranks = self._ranks
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

    def _received_s(self, ready_s: Floats, size_bytes: float, free_s: Floats) -> Floats:
        if self._aligned:
            return super()._received_s(ready_s, size_bytes, free_s)
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

    def _stage_s(self, stage: int, size_bytes: float) -> Floats:
        """Seconds of each message of a stage."""
        stage_s: Floats = size_bytes * self._s_per_byte[stage] + self._latency_s[stage]
        return stage_s


@lru_cache(maxsize=8)
def direct_schedule(ranks: int) -> Schedule:
    """From each rank to the next, to the one after that, and so on."""

    def lanes(rank: int) -> tuple[Lane, ...]:
        targets = ((rank + distance) % ranks for distance in range(1, ranks))
        return tuple(Lane(rank, target, 0, 1, 1, (rank * ranks + target).__add__, 0) for target in targets)

    return Schedule(ranks, ranks, lanes)


class Direct(Collective):
    """For ranks that enter together: by equal shares of every port where those are fair, else from a trial run.

    Shares are max-min fair if every message has a port that is full, on which none is
    faster (Bertsekas and Gallager, Data Networks, 6.5.2). As all messages are equal, those
    of such a port end together, and no share changes before.
    """

    def _received_s(self, ready_s: Floats, size_bytes: float, free_s: Floats) -> Floats:
        paces = self._fair_paces
        if paces is None:
            return super()._received_s(ready_s, size_bytes, free_s)
        ranks = self._ranks
        shape = ranks, ranks - 1  # from each rank to those at distance 1, 2, ...
        left_s = (size_bytes / ranks * paces.s_per_byte[0]).reshape(shape)
        arrives_s = left_s + paces.latency_s[0].reshape(shape)
        free_s[:] = np.maximum(free_s, ready_s + left_s.max(axis=1))
        sources = (np.arange(ranks)[:, None] - np.arange(1, ranks)) % ranks
        finish_s: Floats = ready_s + arrives_s[sources, np.arange(ranks - 1)].max(axis=1)
        return finish_s

    @cached_property
    def _fair_paces(self) -> ConnectionTimes | None:
        """Return what each message takes, lane by lane; none if equal shares are not fair."""
        source, target, *_ = columns(self._schedule(0.0))
        laid = self._wire.laid(source, target)
        s_per_byte, port = seconds_per_byte(laid), laid.paths.port
        users = np.bincount(port, minlength=len(laid.ports.capacity))
        slowest = np.zeros(len(users))
        np.maximum.at(slowest, port, s_per_byte[laid.path])
        full = slowest <= equal_share_s(laid.ports, np.arange(len(users)), users) * _ALIKE
        fair = np.bincount(laid.path, weights=full[port], minlength=len(laid.paths)).all()
        return self._wire.paces(laid) if fair else None
