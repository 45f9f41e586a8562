"""Makes ports, connections and hosts as objects from a program's tables, for the SimPy engine and for trial runs of collectives.

The compiled engine makes its own records from the same tables in ``simulator.engine.compiled.state``: what is new in a table must
be read there as well. The tables themselves come from ``simulator.program.wiring``.
"""

from __future__ import annotations

import numpy as np

from simulator.network.hosts import Host
from simulator.network.ports import Connection, Limits, Port
from simulator.program.program import Hosts, Paths, Ports

__all__ = ["network_of"]


def network_of(ports: Ports, paths: Paths, hosts: Hosts, at_a_time: int | None = None) -> tuple[list[Port], list[Connection], list[Host]]:
    """All ports, connections and hosts, each in the order of its table.

    Parameters
    ----------
    ports, paths, hosts
        The tables.
    at_a_time
        Messages that a host begins at a time in each direction; none: any number.
    """
    keys = list(zip(ports.ceiling.tolist(), ports.incast_loss.tolist(), ports.incast_flows.tolist(), strict=True))
    limits = {key: Limits(*key) if key[0] < np.inf or key[1] else None for key in set(keys)}
    columns = zip(ports.names, ports.capacity.tolist(), keys, ports.whole.tolist(), ports.others.tolist(), strict=True)
    its_ports = [Port(name, capacity, limits[key], nominal=whole, beside=beside) for name, capacity, key, whole, beside in columns]
    its_hosts = [Host(name, at_a_time) for name in hosts.names]
    first, crossed = paths.first.tolist(), paths.port.tolist()
    connections = []
    weights = [1.0] * len(paths) if paths.weight is None else paths.weight.tolist()
    its_paths = zip(paths.latency_s.tolist(), paths.source.tolist(), paths.target.tolist(), paths.asked_for.tolist(), weights, strict=True)
    for number, (latency_s, source, target, asked_for, weight) in enumerate(its_paths):
        crosses = tuple(its_ports[port] for port in crossed[first[number] : first[number + 1]])
        source_host, target_host = (its_hosts[end] if end >= 0 else None for end in (source, target))
        connection = Connection(crosses, latency_s, source=source_host, target=target_host, weight=weight)
        connection.asked_for, connection.number = asked_for, number
        connections.append(connection)
    return its_ports, connections, its_hosts
