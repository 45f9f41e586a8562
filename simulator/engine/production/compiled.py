"""Runs a program in machine code, and does meanwhile what needs Python: draws, statistics, collectives at once.

Machine code returns with a reason, a constant of ``codes``; each is answered here. ``_reduce`` has
the times of collectives computed for all ranks at once.
``simulator.engine.replication`` imports this module by its name as text.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence

import numpy as np

from simulator.base.compact import Names, device_name, joined
from simulator.base.errors import dead_lock, no_delay
from simulator.base.process import give_back
from simulator.base.records import Log
from simulator.collectives.collective import Collective
from simulator.engine.draws import Draws
from simulator.engine.production.codes import (
    CLOSES,
    DONE,
    DRAINED,
    DRAWS,
    ENDS,
    FULL,
    REDUCES,
    REFUSED,
    ROWS,
    SLICE,
    TURNS,
    WEIGHTS,
)  # fmt: skip
from simulator.engine.production.machine import act
from simulator.engine.production.observer import ObserverFeed
from simulator.engine.production.tables import Simulation, begin
from simulator.engine.recorder import InUse, Kind, Name, Progress, Recorder
from simulator.program.port_names import PortName
from simulator.program.program import Floats, Program

_SLICE = 50_000
"""Things that happen between two looks at whether the user wants to stop."""


def run(
    program: Program,
    draws: Draws,
    recorder: Recorder,
    collective: Collective | None,
    steps: int,
    log: Log | None = None,
    on_progress: Callable[[float], None] | None = None,
    kept: MutableMapping[bool, Simulation] | None = None,
) -> None:
    """Run a program until the recorder's window closes.

    Parameters
    ----------
    program, draws
        What happens, and what is drawn for it.
    recorder
        Is told what is measured.
    collective
        What reduces buckets at once; none where nothing is, or message by message.
    steps
        That each rank makes, roughly.
    log
        Is told what was done; none if nobody wants to know.
    on_progress
        Called now and then with the share of the steps that have ended.
    kept
        Simulations of the same program that have ended, as of :func:`simulator.engine.production.tables.begin`.

    Raises
    ------
    DeadlockError
        Nothing is left that could happen.
    SimulationError
        A delay that is no finite number was asked for.
    """
    _Run(program, draws, recorder, collective, steps, log, on_progress, kept).go()


class _Run:
    def __init__(
        self,
        program: Program,
        draws: Draws,
        recorder: Recorder,
        collective: Collective | None,
        steps: int,
        log: Log | None,
        on_progress: Callable[[float], None] | None,
        kept: MutableMapping[bool, Simulation] | None,
    ) -> None:
        self._program, self._recorder, self._collective = program, recorder, collective
        give_back(len(program.ranks))  # what was freed in making the program, before the large tables are made
        self._simulation = begin(program, draws, steps, kept, observed=log is not None)
        give_back(len(program.ranks))
        self._progress = Progress(on_progress, recorder.closes_at)
        self._weights = draws.weights() if self._simulation.s.weighted else iter(())
        self._sizes = [operation.size_bytes for operation in program.routines[0].operations if operation.kind == "collective"]
        self._free_s = np.zeros(len(program.ranks) if collective is not None else 0)
        self._feed = ObserverFeed(log, program, recorder, self._simulation) if log is not None else None
        if collective is not None:
            for size_bytes in self._sizes:
                collective.watch(size_bytes)

    def go(self) -> None:
        """Until the window closes."""
        simulation, recorder = self._simulation, self._recorder
        s, address = simulation.s, simulation.address
        ranks = len(self._program.ranks)
        s.stops_at = recorder.opens_at
        s.closes_at = recorder.closes_at
        act(address, 6, 0, 0.0, 0, 0, 0)
        if not recorder.opens_at:
            self._open()
        while True:
            why = act(address, 0, _SLICE, 0.0, 0, 0, 0)
            self._progress.at(recorder.ended + int(s.steps_n))
            if why == SLICE:
                continue
            if why == ROWS:
                self._tell()
            elif why == FULL:
                simulation.grow()
            elif why == DRAWS:
                simulation.draw()
            elif why == WEIGHTS:
                while simulation.weights_needed:
                    simulation.add_weights(next(self._weights))
            elif why == TURNS:
                s.turning = 0
                if not recorder.is_open:
                    self._open()
                    continue
                self._tell()
                self._close(int(s.turn_serial))
                if self._feed is None:
                    return
            elif why == CLOSES:
                self._tell()
                self._close(int(s.serial))
                if self._feed is None:
                    return
                s.closes_at = s.ended
                act(address, 3, 0, 0.0, DONE << 32, 0, 0)
            elif why == ENDS:
                self._tell()
                return
            elif why == REDUCES:
                self._tell()
                self._reduce()
                simulation.grow(ranks)
                act(address, 7, 0, 0.0, 0, 0, 0)
            elif why == DRAINED:
                raise dead_lock(float(s.now))
            else:
                assert why == REFUSED, why
                raise no_delay(float(s.refused), float(s.now))

    # -- what is measured ----------------------------------------------------------------

    def _tell(self) -> None:
        recorder = self._recorder
        logged = self._simulation.take_logged()
        steps, updates, reads = self._simulation.take_rows()
        if self._feed is not None:
            self._feed.tell(logged, steps, updates)
            if len(reads):
                recorder.reads(reads)
            return
        if len(updates):
            recorder.updates(updates)
        if len(reads):
            recorder.reads(reads)
        if len(steps):
            recorder.steps(steps)

    def _open(self) -> None:
        """The window opens; what has ended in the same breath, but after that, is in it."""
        simulation, recorder = self._simulation, self._recorder
        s = simulation.s
        now, before, logged_before = float(s.now), int(s.turn_row), int(s.turn_logged)
        logged = simulation.take_logged()
        steps, updates, _ = simulation.take_rows()
        if self._feed is not None:
            self._feed.tell(logged[:logged_before], steps[:before], updates)
        elif before:
            recorder.steps(steps[:before])
        recorder.open(now, self._in_use_s(now))
        if self._feed is not None:
            self._feed.tell(logged[logged_before:], steps[before:], updates[:0])
        elif len(steps) > before:
            recorder.steps(steps[before:])
        s.is_open = 1
        s.stops_at = recorder.closes_at

    def _close(self, events: int) -> None:
        now = float(self._simulation.s.now)
        if self._feed is None:
            self._simulation.end()
        names = self._names()
        in_use = {kind: InUse(names[kind], seconds) for kind, seconds in self._in_use_s(now).items()}
        self._recorder.close(now, in_use, events)

    def _in_use_s(self, now: float) -> dict[Kind, Floats]:
        """How long the resources of each kind have been in use."""
        simulation, program = self._simulation, self._program
        links, others = simulation.in_use_s(now)[: program.links], [simulation.hosts_in_use_s(now)]
        if self._collective is not None:
            others.append(self._collective.use.seconds)
        if any(map(len, others)):
            links = np.concatenate([links, *others])
        in_use_s: dict[Kind, Floats] = {"devices": simulation.devices_in_use_s(now), "links": links}
        if program.cores is not None:
            in_use_s["cores"] = np.array([simulation.cores_in_use_s(now)])
        if program.servers.count:
            in_use_s["servers"] = simulation.servers_in_use_s(now)
        return in_use_s

    def _names(self) -> dict[Kind, Sequence[Name]]:
        program = self._program
        links: Sequence[PortName] = program.ports.names[: program.links]
        if program.hosts.count or self._collective is not None:
            links = joined(links, program.hosts.names, self._collective.use.names if self._collective is not None else ())
        return {
            "cores": ["cores"],
            "devices": Names(program.devices.count, device_name),
            "links": links,
            "servers": Names(program.servers.count, _server),
        }

    # -- collectives at once ---------------------------------------------------------------

    def _reduce(self) -> None:
        """Find out when each rank ends each bucket, once all ranks have all buckets of a step."""
        collective, simulation = self._collective, self._simulation
        assert collective is not None
        ready_s, finished_s = simulation.ready_s, simulation.finished_s
        finish_s = np.zeros(ready_s.shape[1])
        if self._feed is not None:
            self._feed.join(ready_s, simulation.made_by)
        for bucket, size_bytes in enumerate(self._sizes):
            finish_s = collective.finish_s(np.maximum(ready_s[bucket], finish_s), size_bytes, self._free_s)
            finished_s[bucket] = finish_s
            collective.account(size_bytes)


def _server(number: int) -> str:
    return f"server {number}"
