"""Counts steps, cuts the warm-up, and keeps the statistics of what is measured.

The window opens when ``opens_at`` replica-steps have ended and closes when ``closes_at`` have, or when an engine closes it; the
simulation ends there. Where replicas make each step together, none can end a step before all have ended the one before, so the
window holds whole steps; of local SGD it holds whole averaging periods. An engine tells what happens in the order in which it
happens, one by one or in blocks of any size, which makes no difference to any statistic. It stops where the window opens and
where it closes, to say how long everything has been in use.

``STEP_COLUMNS`` and ``UPDATE_COLUMNS`` are filled by place in ``record`` of ``simulator.engine.production``
and in ``simulator.engine.production.at_once``. Results are made of :class:`Measured` in ``simulator.results.metrics``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simulator.base.compact import CountHistogram, GroupedCounts, TimeSketch
from simulator.base.errors import SimulationError
from simulator.base.records import NOTHING, Observer, Step, Update
from simulator.engine.phases import Phases
from simulator.program.port_names import PortName

_TELLINGS, _LEAST_STEPS = 200, 1000


class Progress:
    """Tells which share of the steps has ended: about 200 times at most, and not before a thousand more have.

    Parameters
    ----------
    on_progress
        Called with the share; none if nobody wants to know.
    steps
        Of all ranks, until the window closes.

    Attributes
    ----------
    due
        Steps that have ended when something is to be told next; beyond all of them where nothing is.
    """

    def __init__(self, on_progress: Callable[[float], None] | None, steps: int) -> None:
        self._on_progress, self._steps = on_progress, steps
        self._each = max(steps // _TELLINGS, _LEAST_STEPS)
        self.due = self._each if on_progress is not None else steps + 1

    def at(self, ended: int) -> None:
        """So many steps have ended."""
        if ended >= self.due and self._on_progress is not None:
            self.due = ended + self._each
            self._on_progress(min(ended / self._steps, 1.0))


STEP_COLUMNS = ("replica", "start_s", "end_s", "input_s", "compute_s", "waiting_s", "apply_s", "hidden_s", "accepted")
"""Of a block of steps; all but the first three as in :class:`Parts`."""

UPDATE_COLUMNS = ("worker", "read_s", "applied_s", "read_version", "applied_version")
"""Of a block of updates; where servers count their own, the version read on each follows, then the one that it was applied to on each."""

LISTED_WORKERS = 1024
"""Up to this number of workers, each one's staleness is measured."""

_BLOCK = 1024
_BLOCKS = 8 * _BLOCK
"""Rows that are kept until they are counted; what is summed is summed in blocks."""

Kind = Literal["devices", "links", "servers", "cores"]
Name = str | PortName
"""Of a resource; links and hosts give their kind."""
Seconds = NDArray[np.float64]


class Parts(NamedTuple):
    """Where a step's time went, in seconds; what these leave over was communication that nothing hid.

    ``hidden_s`` is communication that went on while the replica computed: it adds nothing
    to the step. ``accepted`` is the share of the step's gradients that entered an update.
    """

    input_s: float
    compute_s: float
    waiting_s: float
    apply_s: float
    hidden_s: float = 0.0
    accepted: float = 1.0


class InUse(NamedTuple):
    """How long the resources of a kind have been in use up to now."""

    names: Sequence[Name]
    """Of each, unique among its kind."""
    seconds: Seconds
    """Of work, or for a link of its whole bandwidth; shape (resources,)."""

    def beside(self, other: InUse) -> InUse:
        """These, then others of the same kind."""
        if not len(other.names):
            return self
        return InUse([*self.names, *other.names], np.concatenate((self.seconds, other.seconds)))


@dataclass
class Measured:
    """Measurements of one replication in its window."""

    window_s: float = 0.0
    run_s: float = 0.0
    """When the window closed."""
    steps: int = 0
    updates: int = 0
    accepted_steps: float = 0.0
    """Steps whose gradients entered an update; a step of which a part did counts as that part."""
    hidden_s: float = 0.0
    step_time: TimeSketch = field(default_factory=TimeSketch)
    staleness: CountHistogram = field(default_factory=CountHistogram)
    server_staleness: list[CountHistogram] = field(default_factory=list)
    worker_staleness: GroupedCounts | None = None
    """None where workers do not update by themselves, or are too many to be listed."""
    mixed_reads: CountHistogram = field(default_factory=CountHistogram)
    """For each read, the number of updates between the versions on different servers."""
    parts_s: Seconds = field(default_factory=lambda: np.zeros(5))
    """Sums over steps: input, compute, communication, waiting, apply."""
    parts_by_routine_s: Seconds | None = None
    """The same of the ranks of each routine, shape (routines, 5); none where all ranks do the same."""
    names: dict[Kind, Sequence[Name]] = field(default_factory=dict)
    in_use_s: dict[Kind, Seconds] = field(default_factory=dict)
    """Seconds of use of the resources of each kind, in the order of their names."""
    phases: Phases | None = None
    aligned: bool = False
    """Whether ranks entered a collective together although they were not ready together."""
    algorithms: tuple[tuple[float, str, str], ...] = ()
    """Algorithm and protocol by all-reduced size in bytes."""
    events: int = 0

    def add_use(self, other: Measured) -> None:
        """Add how long resources were in use in another replication."""
        for kind, seconds in other.in_use_s.items():
            ports = other.names[kind]
            mine, my_s = self.names.get(kind, ports), self.in_use_s.get(kind, 0.0)
            if mine != ports:
                # by name: over which spines messages go differs from replication to replication
                used_s = dict(zip(mine, self.in_use_s[kind].tolist(), strict=True))
                for name, its_s in zip(ports, seconds.tolist(), strict=True):
                    used_s[name] = used_s.get(name, 0.0) + its_s
                self.names[kind], self.in_use_s[kind] = list(used_s), np.array(list(used_s.values()))
            else:
                self.names[kind], self.in_use_s[kind] = mine, my_s + seconds

    def forget_use(self) -> None:
        """Drop the usage of resources, whose size is the number of resources."""
        self.names, self.in_use_s = {}, {}


class Follower(Protocol):
    """Receives every step and update of the window as rows, in blocks of any size: far less than an observer's records cost."""

    def steps(self, rows: Seconds) -> None:
        """Replicas have ended steps; columns as in ``STEP_COLUMNS``, shape (n, 9). Not called of ranks whose steps are computed at once."""

    def updates(self, rows: Seconds) -> None:
        """Updates have been applied; rows as :meth:`Recorder.updates` takes them."""


class Recorder:
    """The recorder of one replication.

    Parameters
    ----------
    replicas
        How many make steps.
    opens_at, closes_at
        How many steps of all replicas have ended when the window opens and when it closes.
    apart
        Whether each worker makes and applies its steps independently, so that phases and each worker's staleness are measured.
    observer
        Receives every step and update, where given.
    routine
        What each replica does in a step, by number, where they do different things; shape (replicas,).
    follower
        Receives the rows of what is measured, where given.

    Attributes
    ----------
    measured
        What has been measured so far; complete when the window is closed.
    ended
        Steps of all replicas that have ended so far.
    is_open
        Whether what happens is measured.
    """

    def __init__(
        self,
        replicas: int,
        opens_at: int,
        closes_at: int,
        *,
        apart: bool,
        observer: Observer | None = None,
        routine: NDArray[np.integer] | None = None,
        follower: Follower | None = None,
    ) -> None:
        self.measured = Measured()
        self.observer = observer
        self._follower = follower
        self.opens_at = opens_at
        self.closes_at = closes_at
        self.ended = 0
        self.is_open = False
        if apart and replicas > 1:
            self.measured.phases = Phases(replicas)
            self.measured.worker_staleness = GroupedCounts(replicas) if replicas <= LISTED_WORKERS else None
        self._routine = routine if routine is not None and routine.any() else None
        if self._routine is not None:
            self.measured.parts_by_routine_s = np.zeros((int(self._routine.max()) + 1, 5))
        self._opened_s = 0.0
        self._before: Mapping[Kind, Seconds] = {}
        # what is still to be folded into the statistics
        self._steps = _Block(self._fold_steps)
        self._updates = _Block(self._fold_updates)

    # -- what happens --------------------------------------------------------------------

    def step(self, replica: int, start_s: float, end_s: float, parts: Parts, cause: int = NOTHING) -> None:
        """A replica has ended a step; :meth:`open` or :meth:`close` must follow where the window does.

        ``cause`` is for the observer: the number of the work that ended the step (:mod:`simulator.base.records`).
        """
        if self.ended >= self.closes_at:
            return
        self.ended += 1
        if self.observer is not None:
            self._show(self.observer, cause, replica, start_s, end_s, *parts)
        if self.is_open or self.measured.phases is not None:
            self._steps.add((replica, start_s, end_s, *parts))

    def steps(self, rows: Seconds, causes: Sequence[int] = ()) -> None:
        """Replicas have ended steps; no more of them than are left until the window opens or closes.

        Parameters
        ----------
        rows
            Columns as in ``STEP_COLUMNS``, shape (n, 9).
        causes
            For the observer, the number of the work that ended each, shape (n,).
        """
        if self.ended >= self.closes_at:
            return
        self.ended += len(rows)
        assert self.ended <= (self.closes_at if self.is_open else self.opens_at), "the engine stops when the window opens and closes"
        if self.observer is not None:
            for (replica, *values), cause in zip(rows.tolist(), causes or [NOTHING] * len(rows), strict=True):
                self._show(self.observer, cause, int(replica), *values)
        if self.is_open or self.measured.phases is not None:
            self._steps.extend(rows)

    def _show(
        self, observer: Observer, cause: int, replica: int, start_s: float, end_s: float, input_s: float, compute_s: float,
        waiting_s: float, apply_s: float, *_: float
    ) -> None:  # fmt: skip
        communication_s = end_s - start_s - input_s - compute_s - waiting_s - apply_s
        observer.record(Step(replica, start_s, end_s, input_s, compute_s, communication_s, waiting_s, apply_s, cause))

    def together(self, start_s: Seconds, end_s: Seconds, parts: Seconds, causes: Sequence[int] = ()) -> None:
        """All replicas have ended steps, at most as many as are left until the window opens or closes.

        Parameters
        ----------
        start_s, end_s
            Of each replica's steps, one after the other: shape (steps, replicas).
        parts
            As in :class:`Parts`, without ``accepted``: shape (5, steps, replicas).
        causes
            For the observer, the number of the work that ended each, one step after the other: shape (steps x replicas,).
        """
        steps, replicas = start_s.shape
        if self.observer is not None:
            columns = (np.broadcast_to(np.arange(replicas), start_s.shape), start_s, end_s, *parts)
            rows = zip(causes or [NOTHING] * start_s.size, *(column.ravel().tolist() for column in columns), strict=True)
            for cause, replica, start, end, *of_step in rows:
                self._show(self.observer, cause, replica, start, end, *of_step)
        if self.is_open:
            self._sum_joint(start_s, end_s, parts)
        self.ended += steps * replicas

    def update(self, update: Update) -> None:
        """An update of the model has been applied."""
        if self.ended >= self.closes_at:
            return
        if self.observer is not None:
            self.observer.record(update)
        if self.is_open:
            *of_all, server_read, server_applied = update
            self._updates.add((*of_all, *server_read, *server_applied))

    def updates(self, rows: Seconds) -> None:
        """Updates have been applied, none before the window's opening with one after it.

        Parameters
        ----------
        rows
            Columns as in ``UPDATE_COLUMNS``, and where servers count their own, what they read and found; shape (n, 5 + 2 servers).
        """
        if self.ended >= self.closes_at:
            return
        if self.observer is not None:
            for worker, read_s, applied_s, *versions in rows.tolist():
                read_version, applied_version, *of_servers = map(int, versions)
                read, applied = of_servers[: len(of_servers) // 2], of_servers[len(of_servers) // 2 :]
                self.observer.record(Update(int(worker), read_s, applied_s, read_version, applied_version, tuple(read), tuple(applied)))
        if self.is_open:
            self._updates.extend(rows)

    def reads(self, spreads: NDArray[np.int64]) -> None:
        """Workers begin to read; by how many updates the versions on the servers differ at each, shape (n,)."""
        if self.is_open:
            self.measured.mixed_reads.add_all(spreads)

    # -- the window ------------------------------------------------------------------------

    def open(self, now: float, in_use_s: Mapping[Kind, Seconds]) -> None:
        """Start measuring.

        Parameters
        ----------
        now
            In seconds.
        in_use_s
            How long the resources of each kind have been in use, shapes (resources,).
        """
        self._steps.fold()
        self.is_open = True
        self._opened_s = now
        self._before = in_use_s

    def close(self, now: float, in_use: Mapping[Kind, InUse], events: int) -> None:
        """Nothing more is measured; the run ends.

        Parameters
        ----------
        now
            In seconds.
        in_use
            Of each kind; there may be more resources behind those that there were when the window opened.
        events
            Of the engine's calendar so far.

        Raises
        ------
        SimulationError
            The warm-up has not ended yet: a worker of those that make their own steps has outrun the others.
        """
        if not self.is_open:
            raise SimulationError(
                "the first worker ended its last step before all workers finished the warm-up, so nothing was measured: set run.drain = "
                "true, or a smaller run.warmup_steps"
            )
        self._steps.fold()
        self._updates.fold()
        self.is_open = False
        measured = self.measured
        measured.window_s = now - self._opened_s
        measured.run_s = now
        for kind, (names, seconds) in in_use.items():
            measured.names[kind] = names
            measured.in_use_s[kind] = seconds.copy()
            measured.in_use_s[kind][: len(self._before[kind])] -= self._before[kind]
        measured.events = events
        if measured.phases is not None:
            measured.phases.end()
        self.closes_at = self.ended

    # -- statistics ------------------------------------------------------------------------

    def _fold_steps(self, rows: Seconds) -> None:
        phases = self.measured.phases
        if phases is not None:
            phases.steps(rows[:, 0].astype(np.int64), rows[:, 1], rows[:, 2])
        if self.is_open:
            self._sum_steps(rows)

    def _sum_steps(self, rows: Seconds) -> None:
        measured = self.measured
        measured.steps += len(rows)
        if self._follower is not None:
            self._follower.steps(rows)
        if self._routine is not None:
            self._sum_by_routine(rows, self._routine)
        whole, columns = len(rows) - len(rows) % _BLOCK, rows.T
        for blocks in (columns[:, :whole].reshape(len(columns), whole // _BLOCK, _BLOCK), columns[:, None, whole:]):
            _, start_s, end_s, input_s, compute_s, waiting_s, apply_s, hidden_s, accepted = blocks
            durations = end_s - start_s
            measured.step_time.add_each(durations)
            communication_s = durations - input_s - compute_s - waiting_s - apply_s
            parts = np.empty((durations.shape[1], 5, len(durations)))  # a step of all blocks after the other, as sums of it are rounded
            for number, part in enumerate((input_s, compute_s, communication_s, waiting_s, apply_s)):
                parts[:, number] = part.T
            for its_hidden_s, its_accepted, parts_s in zip(
                hidden_s.sum(axis=1).tolist(), accepted.sum(axis=1).tolist(), parts.sum(axis=0).T, strict=True
            ):
                measured.hidden_s += its_hidden_s
                measured.accepted_steps += its_accepted
                measured.parts_s += parts_s

    def _sum_by_routine(self, rows: Seconds, routine: NDArray[np.integer]) -> None:
        sums = self.measured.parts_by_routine_s
        assert sums is not None
        _, start_s, end_s, input_s, compute_s, waiting_s, apply_s, *_ = rows.T
        communication_s = end_s - start_s - input_s - compute_s - waiting_s - apply_s
        routines = routine[rows[:, 0].astype(np.int64)]
        for number, part_s in enumerate((input_s, compute_s, communication_s, waiting_s, apply_s)):
            sums[:, number] += np.bincount(routines, part_s, len(sums))

    def _sum_joint(self, start_s: Seconds, end_s: Seconds, parts: Seconds) -> None:
        measured, durations = self.measured, end_s - start_s
        input_s, compute_s, waiting_s, apply_s, hidden_s = parts
        communication_s = durations - input_s - compute_s - waiting_s - apply_s
        measured.steps += durations.size
        measured.accepted_steps += durations.size
        measured.step_time.add_each(durations)
        columns = (hidden_s, input_s, compute_s, communication_s, waiting_s, apply_s)
        sums = np.empty((1 + len(durations), len(columns)))  # those so far, then a step after the other, as sums of it are rounded
        sums[0, 0], sums[0, 1:] = measured.hidden_s, measured.parts_s
        for number, column in enumerate(columns):
            column.sum(axis=1, out=sums[1:, number])
        total_s = np.add.accumulate(sums)[-1]
        measured.hidden_s, measured.parts_s = float(total_s[0]), total_s[1:]

    def _fold_updates(self, rows: Seconds) -> None:
        measured = self.measured
        worker, versions = rows[:, 0].astype(np.int64), rows[:, 3:].astype(np.int64)
        measured.updates += len(rows)
        if self._follower is not None:
            self._follower.updates(rows)
        staleness = versions[:, 1] - versions[:, 0]
        measured.staleness.add_all(staleness)
        if measured.worker_staleness is not None:
            measured.worker_staleness.add(worker, staleness)
        servers = (rows.shape[1] - len(UPDATE_COLUMNS)) // 2
        if len(measured.server_staleness) != servers:
            measured.server_staleness = [CountHistogram() for _ in range(servers)]
        stale = versions[:, 2 + servers :] - versions[:, 2 : 2 + servers]
        for histogram, values in zip(measured.server_staleness, stale.T, strict=True):
            histogram.add_all(values)


class _Block:
    """Rows that come one by one or in blocks, and are folded in blocks of one size, so that memory does not grow with their number."""

    def __init__(self, fold: Callable[[Seconds], None]) -> None:
        self._fold = fold
        self._rows: list[tuple[float, ...]] = []
        self._blocks: list[Seconds] = []  # that came before those rows
        self._room = _BLOCKS  # of rows until the next one is folded, but for those

    def add(self, row: tuple[float, ...]) -> None:
        """Take one."""
        self._rows.append(row)
        if len(self._rows) == self._room:
            self.fold()

    def extend(self, rows: Seconds) -> None:
        """Take several, shape (n, columns); the array may change afterwards."""
        self._gather()
        while len(rows) >= self._room:
            whole, rows = rows[: self._room], rows[self._room :]
            if self._blocks:
                self._blocks.append(whole)
                self.fold()
            else:
                self._fold(whole)
        if len(rows):
            self._blocks.append(rows.copy(order="K"))
            self._room -= len(rows)

    def fold(self) -> None:
        """Fold all there are, though they are fewer than a block."""
        self._gather()
        blocks, self._blocks, self._room = self._blocks, [], _BLOCKS
        if blocks:
            self._fold(np.concatenate(blocks) if len(blocks) > 1 else blocks[0])

    def _gather(self) -> None:
        if self._rows:
            self._blocks.append(np.array(self._rows, dtype=np.float64))
            self._room -= len(self._rows)
            self._rows.clear()
