"""Links that messages share max-min fairly, by progressive filling. Bytes are a fluid."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass

from simpy.events import Event

from simulator.engine.textbook.clock import Busy, Clock, Going
from simulator.program.program import INSTANT_S, Changes, Ports


@dataclass(eq=False, slots=True)
class _Flow:
    """Bytes that are crossing some ports."""

    ports: tuple[int, ...]
    weight: float
    left_bytes: float
    crossed: Event
    bytes_per_s: float = 0.0


class _Port(Busy):
    """One direction of a link, or a device that several share.

    Attributes
    ----------
    capacity, beside
        Bytes per second left by background traffic, and the number of background flows that share it.
    """

    def __init__(self, clock: Clock, ports: Ports, number: int) -> None:
        super().__init__(clock, ports.names[number])
        self.capacity, self.beside = float(ports.capacity[number]), float(ports.others[number])
        self.ceiling = float(ports.ceiling[number])
        self.whole = float(ports.whole[number])
        self._loss, self._free_flows = float(ports.incast_loss[number]), int(ports.incast_flows[number])
        self.carried_bytes = 0.0

    def capacity_of(self, flows: int) -> float:
        """Bytes per second for a number of flows: incast costs some of them."""
        return self.capacity / (1.0 + self._loss * max(flows - self._free_flows, 0))

    def in_use_s(self) -> float:
        """Seconds up to now: of its whole bandwidth, as bytes that have crossed; where incast takes some of that, with anything to do."""
        return super().in_use_s() if self._loss else self.carried_bytes / self.whole


class Links:
    """All ports, and what crosses them now."""

    def __init__(self, clock: Clock, ports: Ports, changes: Changes | None) -> None:
        self._clock = clock
        self.ports = [_Port(clock, ports, number) for number in range(len(ports.names))]
        self._flows: dict[_Flow, None] = {}
        self._shared_s = 0.0  # when the flows had their rates
        self._changed = clock.event()
        clock.process(self._share_again_and_again())
        if changes is not None:
            clock.process(self._follow(changes))

    def cross(self, ports: tuple[int, ...], size: float, weight: float = 1.0) -> Going:
        """Some bytes (of a device: seconds of work) cross some ports, all at the same time."""
        if not ports:
            return
        flow = _Flow(ports, weight, size, self._clock.event())
        self._flows[flow] = None
        self._announce()
        with ExitStack() as using:
            for port in ports:
                using.enter_context(self.ports[port])
            yield flow.crossed
        for port in ports:
            self.ports[port].carried_bytes += size

    def _announce(self) -> None:
        if not self._changed.triggered:
            self._changed.succeed()

    def _share_again_and_again(self) -> Going:
        while True:
            first_s = min((flow.left_bytes / flow.bytes_per_s for flow in self._flows if flow.bytes_per_s), default=math.inf)
            yield self._changed | self._clock.timeout(first_s) if first_s < math.inf else self._changed
            self._flow_on()
            yield self._clock.end_of_instant()
            self._flow_on()
            self._changed = self._clock.event()
            _share(self._flows, self.ports)

    def _flow_on(self) -> None:
        """Let everything flow up to now; what has crossed but for rounding is across."""
        now_s = self._clock.now
        rounding_s = INSTANT_S + 4 * math.ulp(now_s)  # more than the clock stands still for, so that each wait is for a later time
        for flow in list(self._flows):
            flow.left_bytes -= flow.bytes_per_s * (now_s - self._shared_s)
            if flow.left_bytes <= flow.bytes_per_s * rounding_s:
                del self._flows[flow]
                flow.crossed.succeed()
        self._shared_s = now_s

    def _follow(self, changes: Changes) -> Going:
        """Have what others take change with time."""
        began_s = 0.0
        while True:
            for at_s, left, beside in list(zip(changes.at_s.tolist(), changes.left.tolist(), changes.beside.tolist(), strict=True)):
                yield self._clock.timeout(max(began_s + at_s - self._clock.now, 0.0))
                for port in changes.port.tolist():
                    self.ports[port].capacity, self.ports[port].beside = self.ports[port].whole * left, beside
                self._announce()
            if changes.repeat_s is None or self._clock.idle:  # then nothing is left that they could change
                return
            began_s += changes.repeat_s


def _share(flows: Iterable[_Flow], ports: list[_Port]) -> None:
    """Give each flow its max-min fair rate, by progressive filling.

    The rate of a flow is its weight times a level. The level of all rises until a port is full: its flows stay at that level, or a
    flow is at its ceiling; the others' rises on (Bertsekas and Gallager, Data Networks, 6.5.2).
    """
    crossing: dict[int, list[_Flow]] = defaultdict(list)
    for flow in flows:
        for port in flow.ports:
            crossing[port].append(flow)
    capacity = {port: ports[port].capacity_of(len(here)) for port, here in crossing.items()}
    ceiling = {flow: min(ports[port].ceiling for port in flow.ports) for flow in flows}
    rising = dict.fromkeys(flows)
    while rising:
        full_at = {}
        for port, here in crossing.items():
            weight = sum(flow.weight for flow in here if flow in rising)
            if weight:
                taken = sum(flow.bytes_per_s for flow in here if flow not in rising)
                full_at[port] = max(capacity[port] - taken, 0.0) / (weight + ports[port].beside)
        level = min(*full_at.values(), min(ceiling[flow] for flow in rising))
        stays = [flow for flow in rising if ceiling[flow] == level or any(full_at[port] == level for port in flow.ports)]
        for flow in stays:
            flow.bytes_per_s = flow.weight * level
            del rising[flow]
