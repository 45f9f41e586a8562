"""Connects :mod:`simulator.engine.recorder` to the event calendar: reads how long resources were in use, opens and closes the window.

In ``simulator.engine.compiled`` the counterparts are ``record`` and the window in ``engine``: change them together
(tests/property/test_engines_agree.py holds them equal).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simulator.base.records import NOTHING, Observer, Update
from simulator.engine.progress import Progress
from simulator.engine.recorder import Follower, InUse, Kind, Measured, Name, Parts, Recorder
from simulator.network.kernel import Kernel
from simulator.scenario import Scenario

__all__ = ["KernelRecorder", "Resource", "in_use_of"]


class Resource(Protocol):
    """A device, link or server whose use is measured."""

    @property
    def name(self) -> Name:
        """Its name, unique among its kind."""

    def in_use_s(self, now: float) -> float:
        """Seconds of use up to now: of work, or for a link of its whole bandwidth."""


def in_use_of(resources: Iterable[Resource], now: float) -> InUse:
    """The use of some resources up to now."""
    every = tuple(resources)
    return InUse([its.name for its in every], np.array([its.in_use_s(now) for its in every]))


class KernelRecorder:
    """Tells a :class:`Recorder` what happens, opens and closes its window.

    Attributes
    ----------
    done
        Happens when the window closes.
    measured, observer
        Of the recorder.
    """

    def __init__(
        self,
        kernel: Kernel,
        scenario: Scenario,
        observer: Observer | None,
        on_progress: Callable[[float], None] | None = None,
        routine: NDArray[np.integer] | None = None,
        follower: Follower | None = None,
    ) -> None:
        replicas, apart = scenario.ranks, scenario.strategy.pace.asynchronous
        self.done = kernel.event()
        self.observer = observer
        self._kernel = kernel
        opens_at, closes_at = scenario.warmup * replicas, scenario.run.total_steps(replicas)
        self._recorder = Recorder(replicas, opens_at, closes_at, apart=apart, observer=observer, routine=routine, follower=follower)
        self._watched: dict[Kind, Callable[[float], InUse]] = {}
        self.measured: Measured = self._recorder.measured
        self._progress = Progress(on_progress, self._recorder.closes_at)
        self._turns = self._recorder.opens_at  # steps that have ended when the window opens, or closes
        self._due = self._turns  # or progress is reported, if that is sooner

    def watch(self, kind: Kind, in_use: Callable[[float], InUse]) -> None:
        """Measure how much of the window the resources of a kind are in use.

        ``in_use`` is given the present instant; asked again later, there may be more of them behind those of before.
        """
        self._watched[kind] = in_use

    def begin(self) -> None:
        """All resources are being watched and the run begins."""
        if not self._turns:
            self._turn()
        self._due = min(self._turns, self._progress.due)

    def step(self, replica: int, start_s: float, parts: Parts, cause: int = NOTHING) -> None:
        """A replica ends a step now, with the work ``cause``."""
        recorder = self._recorder
        recorder.step(replica, start_s, self._kernel.now, parts, cause)
        if recorder.ended == self._due:
            self._note()

    def update(self, update: Update) -> None:
        """An update of the model has been applied now."""
        self._recorder.update(update)

    def read(self, spread: int) -> None:
        """A worker begins to read; the versions on the servers differ by as many updates."""
        if self._recorder.is_open:
            self.measured.mixed_reads.add(spread)

    def _note(self) -> None:
        """As many steps have ended that something is to be done."""
        if self._recorder.ended == self._turns:
            self._turn()
        self._progress.at(self._recorder.ended)
        self._due = min(self._turns, self._progress.due)

    def _turn(self) -> None:
        """Open the window, or close it."""
        if self._recorder.is_open or self.done.triggered:
            self.close()
        else:
            self._recorder.open(self._kernel.now, {kind: its.seconds for kind, its in self._in_use().items()})
            self._turns = self._recorder.closes_at

    def _in_use(self) -> Mapping[Kind, InUse]:
        return {kind: its(self._kernel.now) for kind, its in self._watched.items()}

    def close(self) -> None:
        """Nothing more is measured; the run ends.

        Raises
        ------
        SimulationError
            The warm-up has not ended yet: a worker of those that make their own steps has outrun the others.
        """
        if self.done.triggered:
            return
        self._recorder.close(self._kernel.now, self._in_use(), self._kernel.events)
        self.done.succeed()
