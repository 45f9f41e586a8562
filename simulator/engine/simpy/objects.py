"""Devices, servers and what works on shared cores: from a program's tables to objects."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.cores import Task
from simulator.engine.simpy.device import Device, Seat
from simulator.engine.simpy.server import Server
from simulator.kernel import Kernel
from simulator.network.flows import Network
from simulator.network.ports import Connection
from simulator.program.program import Program

__all__ = ["devices_of", "on_cores", "servers_of"]


def devices_of(kernel: Kernel, network: Network, program: Program, connections: Sequence[Connection]) -> list[Device]:
    """The devices, those that several use with their port."""
    its = program.devices
    seats = {
        device: connections[seat]
        for device, seat in zip(program.ranks.device.tolist(), program.ranks.seat.tolist(), strict=True)
        if seat >= 0
    }
    found = []
    for index in range(its.count):
        task = Task(network.cores, its.busy_core_slowdown) if its.on_cores and network.cores is not None else None
        port = seats[index].ports[0] if index in seats else None
        found.append(Device(kernel, network, index, port=port, task=task, slowdown=its.slowdown if port is None else 0.0))
    return found


def servers_of(kernel: Kernel, network: Network, program: Program, connections: Sequence[Connection]) -> list[Server]:
    """The servers, on the cores that all nodes share, or on workers' devices where host and device are one."""

    def seat_of(path: int) -> Seat | None:
        if path < 0:
            return on_cores(network) if program.servers.on_cores else None
        return lambda work_s, done: network.send(connections[path], work_s, done)

    return [Server(kernel, index, seat_of(path)) for index, path in enumerate(program.servers.seat.tolist())]


def on_cores(network: Network) -> Seat | None:
    """How a process works on the cores that all share; none if it has one of its own."""
    return Task(network.cores).work if network.cores is not None else None
