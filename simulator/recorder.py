"""Counts steps, cuts the warm-up, and keeps the statistics of what is measured.

The window opens when ``warmup x replicas`` replica-steps have ended and closes when all
steps of the job have, or when :meth:`Recorder.close` is called; the simulation ends there.
Where replicas make each step together, none can end a step before all have ended the one
before, so the window holds whole steps; of local SGD it holds whole averaging periods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simulator.errors import SimulationError
from simulator.kernel import Kernel
from simulator.phases import Phases
from simulator.records import NOTHING, Observer, Step, Update
from simulator.scenario import Scenario
from simulator.statistics import CountHistogram, GroupedCounts, TimeSketch

__all__ = ["Kind", "Measured", "Parts", "Recorder", "Resource"]


_BLOCK = 1024

Kind = Literal["devices", "links", "servers", "cores"]


class Resource(Protocol):
    """A device, link or server whose use is measured."""

    @property
    def name(self) -> str:
        """Its name, unique among its kind."""

    def in_use_s(self, now: float) -> float:
        """Seconds of use up to now: of work, or for a link of its whole bandwidth."""


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


@dataclass
class Measured:
    """What one replication measured in its window."""

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
    mixed_reads: CountHistogram = field(default_factory=CountHistogram)
    """Of each read, by how many updates the versions differ that it found on the servers."""
    parts_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(5))
    """Sums over steps: input, compute, communication, waiting, apply."""
    names: dict[Kind, list[str]] = field(default_factory=dict)
    in_use_s: dict[Kind, NDArray[np.float64]] = field(default_factory=dict)
    """Seconds of use of the resources of each kind, in the order of their names."""
    phases: Phases | None = None
    aligned: bool = False
    """Whether ranks entered a collective together though they were not ready together."""
    algorithms: tuple[tuple[float, str, str], ...] = ()
    """Of each size in bytes that was all-reduced: algorithm and protocol."""
    events: int = 0
    drawn_s: tuple[float, float] = (1.0, 1.0)
    """Of the parameters as they were drawn: seconds of compute, and of a whole step when all workers are under way."""


class Recorder:
    """The recorder of one replication."""

    def __init__(self, kernel: Kernel, scenario: Scenario, observer: Observer | None) -> None:
        replicas = scenario.replicas
        self.done = kernel.event()
        self.measured = Measured()
        self.observer = observer
        self._kernel = kernel
        self._ended = 0
        self._opens_at = scenario.warmup * replicas
        self._closes_at = scenario.run.total_steps(replicas)
        self._opened_s = 0.0
        self._block: list[tuple[float, ...]] = []  # steps that are still to be folded into the statistics
        self._stale: list[tuple[int, int]] = []  # worker and staleness of updates, likewise
        self._watched: dict[Kind, Callable[[], Iterable[Resource]]] = {}
        self._before: dict[Kind, NDArray[np.float64]] = {}
        if scenario.strategy.pace.asynchronous and replicas > 1:
            self.measured.phases = Phases(replicas)
            self.measured.worker_staleness = GroupedCounts(replicas)
        self._phases = self.measured.phases
        self._is_open = False

    def watch(self, kind: Kind, resources: Callable[[], Iterable[Resource]]) -> None:
        """Measure how much of the window the resources of a kind are in use; asked again later, there may be more behind them."""
        self._watched[kind] = resources

    def begin(self) -> None:
        """All resources are being watched and the run begins."""
        if not self._opens_at:
            self._open()

    def step(self, replica: int, start_s: float, parts: Parts, cause: int = NOTHING) -> None:
        """A replica ends a step now; ``cause``, for records: the work that ended it."""
        if self._ended >= self._closes_at:
            return
        end_s = self._kernel.now
        duration_s = end_s - start_s
        input_s, compute_s, waiting_s, apply_s, hidden_s, accepted = parts
        communication_s = duration_s - input_s - compute_s - waiting_s - apply_s
        if self.observer is not None:
            self.observer.record(Step(replica, start_s, end_s, input_s, compute_s, communication_s, waiting_s, apply_s, cause))
        if self._phases is not None:
            self._phases.step(replica, start_s, end_s)
        if self._is_open:
            self._block.append((duration_s, hidden_s, accepted, input_s, compute_s, communication_s, waiting_s, apply_s))
            if len(self._block) == _BLOCK:
                self._fold()
        self._ended += 1
        if self._ended == self._opens_at:
            self._open()
        elif self._ended == self._closes_at:
            self.close()

    def steps(
        self, start_s: NDArray[np.float64], end_s: NDArray[np.float64], parts: NDArray[np.float64], causes: Sequence[int] = ()
    ) -> None:
        """All replicas have ended a step of theirs, the last of them now.

        Parameters
        ----------
        start_s, end_s
            Of each replica's step, shape (replicas,).
        parts
            Rows as in :class:`Parts`, without ``accepted``: shape (5, replicas).
        causes
            For records, of each replica: the work that ended its step.
        """
        durations = end_s - start_s
        input_s, compute_s, waiting_s, apply_s, hidden_s = parts
        communication_s = durations - input_s - compute_s - waiting_s - apply_s
        if self.observer is not None:
            columns = (start_s, end_s, input_s, compute_s, communication_s, waiting_s, apply_s)
            for replica, values in enumerate(zip(*(column.tolist() for column in columns), causes, strict=True)):
                self.observer.record(Step(replica, *values))
        if self._is_open:
            measured = self.measured
            measured.steps += len(durations)
            measured.accepted_steps += len(durations)
            measured.hidden_s += float(hidden_s.sum())
            measured.step_time.add(durations)
            measured.parts_s += [float(part.sum()) for part in (input_s, compute_s, communication_s, waiting_s, apply_s)]
        self._ended += len(durations)
        if self._ended == self._opens_at:
            self._open()
        elif self._ended == self._closes_at:
            self.close()

    def update(self, update: Update) -> None:
        """An update of the model has been applied now."""
        if self._ended >= self._closes_at:
            return
        if self.observer is not None:
            self.observer.record(update)
        if not self._is_open:
            return
        measured = self.measured
        measured.updates += 1
        stale = update.staleness
        measured.staleness.add(stale)
        if measured.worker_staleness is not None:
            self._stale.append((update.worker, stale))
            if len(self._stale) == _BLOCK:
                self._fold_stale()
        if len(measured.server_staleness) != len(update.server_staleness):
            measured.server_staleness = [CountHistogram() for _ in update.server_staleness]
        for histogram, value in zip(measured.server_staleness, update.server_staleness, strict=True):
            histogram.add(value)

    def read(self, spread: int) -> None:
        """A worker begins to read; the versions on the servers differ by as many updates."""
        if self._is_open:
            self.measured.mixed_reads.add(spread)

    def _fold_stale(self) -> None:
        grouped = self.measured.worker_staleness
        if grouped is not None and self._stale:
            workers, values = np.array(self._stale, dtype=np.int64).T
            grouped.add(workers, values)
        self._stale.clear()

    def _fold(self) -> None:
        """Take the block's steps into the statistics, so that memory does not grow with their number."""
        if not self._block:
            return
        parts = np.array(self._block).T
        self._block.clear()
        measured = self.measured
        measured.steps += parts.shape[1]
        measured.step_time.add(parts[0])
        measured.hidden_s += float(parts[1].sum())
        measured.accepted_steps += float(parts[2].sum())
        measured.parts_s += parts[3:].sum(axis=1)

    def _open(self) -> None:
        now = self._kernel.now
        self._is_open = True
        self._opened_s = now
        self._before = self._in_use_s(now)

    def _in_use_s(self, now: float) -> dict[Kind, NDArray[np.float64]]:
        return {kind: np.array([resource.in_use_s(now) for resource in its()]) for kind, its in self._watched.items()}

    def close(self) -> None:
        """Nothing more is measured; the run ends.

        Raises
        ------
        SimulationError
            The warm-up has not ended yet: a worker of those that make their own steps has outrun the others.
        """
        if self.done.triggered:
            return
        if not self._is_open:
            raise SimulationError(
                "the first worker ended its last step before the warm-up of all was over, so nothing was measured; "
                "set run.drain = true, or a smaller run.warmup_steps"
            )
        self._is_open = False
        self._fold()
        self._fold_stale()
        now = self._kernel.now
        measured = self.measured
        measured.window_s = now - self._opened_s
        measured.run_s = now
        in_use_s = self._in_use_s(now)
        for kind, its in self._watched.items():
            measured.names[kind] = [resource.name for resource in its()]
            in_use_s[kind][: len(self._before[kind])] -= self._before[kind]
        measured.in_use_s = in_use_s
        measured.events = self._kernel.events
        self._closes_at = self._ended
        self.done.succeed()
