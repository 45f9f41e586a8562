"""The production engine's network and cores, driven by callbacks of a test instead of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from simulator.base.errors import no_delay
from simulator.engine.production import codes
from simulator.engine.production.codes import DRAINED, FULL, HANDLE, REFUSED, SLICE, WEIGHTS
from simulator.engine.production.machine import act
from simulator.engine.production.state import State
from simulator.program.program import Changes, Cores, Paths, Ports
from simulator.spec.transport import Transport

Do = Callable[[], object]


class Limits(NamedTuple):
    """Of a port, beyond its capacity: most that a connection gets per unit of weight, and what each flow beyond some costs."""

    ceiling: float = np.inf
    incast_loss: float = 0.0
    incast_flows: int = 1


class Network:
    """Ports, paths over them, hosts at their ends, and cores; messages and work may be asked for at any time from ``run`` on.

    Parameters
    ----------
    transport
        As of a cluster; left out: nothing is added.
    weights
        Of messages in the order in which they begin, in blocks; for transports with random ones.
    cores
        Number of cores that all share, and the length of a slice; left out: each host has its own.
    ample
        Whether ports that can never be full are left out of the sharing.
    patience
        Of the shares' repair; left out: as shipped.
    """

    def __init__(
        self,
        transport: Transport | None = None,
        weights: Iterator[np.ndarray] | None = None,
        cores: tuple[float, float] | None = None,
        *,
        ample: bool = True,
        patience: int | None = None,
    ) -> None:
        self._transport, self._weights, self._cores = transport or Transport(), weights or iter(()), cores
        self._ample, self._patience = ample, patience
        self._ports: list[tuple[float, Limits]] = []
        self._paths: list[tuple[Sequence[int], float, int, int, bool, float]] = []
        self._tables: tuple[Ports, Paths, int] | None = None
        self._slowdowns: list[float] = []
        self._changes: Changes | None = None
        self._begins: list[tuple[float, Do]] = []
        self._calls: list[Do] = []
        self._state: State | None = None
        self.most_things = 1 << 60

    # -- what there is ---------------------------------------------------------------

    def port(self, capacity: float, limits: Limits | None = None) -> int:
        """A port; its number."""
        self._ports.append((capacity, limits or Limits()))
        return len(self._ports) - 1

    def path(
        self,
        ports: Sequence[int],
        latency_s: float = 0.0,
        source: int = -1,
        target: int = -1,
        *,
        asked_for: bool = False,
        weight: float = 1.0,
    ) -> int:
        """A connection over ports, between hosts by number; its number."""
        self._paths.append((ports, latency_s, source, target, asked_for, weight))
        return len(self._paths) - 1

    def lay(self, ports: Ports, paths: Paths, hosts: int) -> None:
        """Take ports, paths and hosts from tables, as of ``Wiring.tables``, in place of single ones."""
        self._tables = ports, paths, hosts

    def task(self, slowdown: float = 0.0) -> int:
        """A process that works on the shared cores; its number."""
        self._slowdowns.append(slowdown)
        return len(self._slowdowns) - 1

    def follow(self, changes: Changes) -> None:
        """Let what others take from ports change."""
        self._changes = changes

    # -- what happens ----------------------------------------------------------------

    def at(self, at_s: float, do: Do) -> None:
        """Call something at a time, or while under way after so many seconds."""
        if self._state is None:
            self._begins.append((at_s, do))
            return
        self._state.grow()
        act(self._state.address, 3, 0, at_s, self._what(do), 0, 0)

    def send(self, path: int, size_bytes: float, arrived: Do, left: Do | None = None) -> None:
        """Send a message; before ``run`` it is sent at 0 s."""
        if self._state is None:
            self._begins.append((0.0, lambda: self.send(path, size_bytes, arrived, left)))
            return
        self._state.grow()
        act(self._state.address, 1, path, size_bytes, self._what(arrived), 0, 0 if left is None else self._what(left))

    def work(self, task: int, work_s: float, done: Do) -> None:
        """Have a task do some seconds of work; before ``run`` from 0 s on."""
        if self._state is None:
            self._begins.append((0.0, lambda: self.work(task, work_s, done)))
            return
        self._state.grow()
        act(self._state.address, 2, task, work_s, self._what(done), 0, 0)

    def _what(self, do: Do) -> int:
        self._calls.append(do)
        return codes.FIRST << 32 | (len(self._calls) - 1)

    def _made(self) -> State:
        ports, paths, hosts = self._tables or self._of_single_ones()
        state = State(
            ports,
            paths,
            hosts,
            self._transport,
            cores=Cores(*self._cores) if self._cores is not None else None,
            slowdown=np.array(self._slowdowns, dtype=float),
            weight=paths.weight,
            leaves_out=self._ample,
            changes=self._changes,
        )
        if self._patience is not None:
            state.s.patience = self._patience
        return state

    def _of_single_ones(self) -> tuple[Ports, Paths, int]:
        whole, limits = np.array([each for each, _ in self._ports], dtype=float), [each for _, each in self._ports]
        left, beside, changes = whole.copy(), np.zeros(len(whole)), self._changes
        if changes is not None:
            left[changes.port] *= changes.left[0]
            beside[changes.port] = changes.beside[0]
        ceiling, loss, flows = (np.array([each[column] for each in limits]) for column in range(3))
        ports = Ports(left, ceiling.astype(float), loss.astype(float), flows.astype(int), (), whole, beside)
        crossed = [list(each[0]) for each in self._paths]
        first = np.concatenate(([0], np.cumsum([len(each) for each in crossed], dtype=int)))
        latency_s, source, target, asked_for, weight = (np.array([each[column] for each in self._paths]) for column in range(1, 6))
        hosts = 1 + max((max(each[2:4]) for each in self._paths), default=-1)
        port = np.array([number for each in crossed for number in each], dtype=int)
        ends = source.astype(int), target.astype(int)
        paths = Paths(first, port, latency_s.astype(float), *ends, asked_for.astype(bool), weight.astype(float), *ends)
        return ports, paths, hosts

    def run(self) -> None:
        """Until nothing is left that could happen."""
        state = self._state = self._made()
        s, address = state.s, state.address
        act(address, 6, 0, 0.0, 0, 0, 0)
        for at_s, do in self._begins:
            self.at(at_s, do)
        while True:
            why = act(address, 8, self.most_things, 0.0, 0, 0, 0)
            if why == DRAINED:
                return
            if why == FULL:
                state.grow()
            elif why == WEIGHTS:
                while state.weights_needed:
                    state.add_weights(next(self._weights))
            elif why == HANDLE:
                self._calls[int(s.what) & 0xFFFFFFFF]()
            elif why == REFUSED:
                raise no_delay(float(s.refused), float(s.now))
            else:
                assert why == SLICE, why

    # -- what has happened -----------------------------------------------------------

    @property
    def state(self) -> State:
        """The tables, once under way."""
        assert self._state is not None
        return self._state

    @property
    def now(self) -> float:
        """Simulated time, in seconds."""
        return float(self.state.s.now)

    @property
    def events(self) -> int:
        """Entries on the calendar so far."""
        return int(self.state.s.serial)

    def carried_bytes(self) -> np.ndarray:
        """Of each port."""
        return self.state.carried_bytes

    def in_use_s(self) -> np.ndarray:
        """Of each port, up to now."""
        return self.state.in_use_s(self.now)

    def busy_s(self) -> np.ndarray:
        """Seconds in which each port had something to carry, up to now; 0 of those left out of the sharing."""
        return self.state.busy_until(self.now)

    def hosts_in_use_s(self) -> np.ndarray:
        """Of each host, up to now."""
        return self.state.hosts_in_use_s(self.now)

    def tasks_in_use_s(self) -> np.ndarray:
        """Of each task, up to now: on a core, or waiting for one."""
        return self.state.tasks_in_use_s(self.now)[: len(self._slowdowns)]

    def cores_in_use_s(self) -> float:
        """Seconds for which a core was busy, in the mean over all of them, up to now."""
        return self.state.cores_in_use_s(self.now)
