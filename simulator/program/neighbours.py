"""The background traffic of others (``cluster.background``) on the ports of a cluster: what it leaves of each, and how that changes.

:mod:`simulator.spec.transport` describes it. Engines follow the changes (``simulator.engine.production.loop``). Loads of single
links (``each_link``) are drawn by the names of ports, in words (port_names.py): another name has another load. "Neighbours" are other
jobs here, not other workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from zlib import crc32

import numpy as np

from simulator.base.compact import compact, numbers
from simulator.base.rng import Streams
from simulator.program.port_names import PortKind
from simulator.program.program import Changes, Floats, Integers, Ports
from simulator.spec.cluster import Cluster

PORTS_OF = {
    "inter-node": (PortKind.NODE_OUT, PortKind.NODE_IN),
    "fabric": (PortKind.LEAF_UP, PortKind.LEAF_DOWN),
    "intra-node": (PortKind.INSIDE_OUT, PortKind.INSIDE_IN, PortKind.MESH, PortKind.ISLAND_OUT, PortKind.ISLAND_IN),
}
"""The ports of each sort of links that others may use."""


class Neighbours:
    """The traffic of others on a cluster.

    Parameters
    ----------
    cluster
        Its ``background``.
    streams
        Draw the load of each link, where each has its own.
    """

    def __init__(self, cluster: Cluster, streams: Streams) -> None:
        self._cluster = cluster
        self._its = cluster.background if cluster.background is not None and not cluster.background.nothing else None
        self._streams = streams
        self._used = np.zeros(0, dtype=np.int64)

    def on(self, ports: Ports, kind: Integers, place: Callable[[], Integers]) -> Ports:
        """The ports, used by others as they are at the beginning of a run.

        Parameters
        ----------
        ports
            As they are without neighbours.
        kind
            Of each port, its :class:`~simulator.program.port_names.PortKind`.
        place
            Gives the node, or leaf, that each port is of.
        """
        background = self._its
        if background is None:
            return ports
        used = np.isin(kind, PORTS_OF[background.on])
        if background.nodes:
            used &= np.isin(place(), self._places(background.nodes))
        self._used = np.flatnonzero(used)
        load, flows = background.at_beginning()
        loads = np.zeros(len(kind))
        loads[used] = self._drawn(ports) if background.each_link else load
        return replace(
            ports,
            capacity=compact(ports.capacity * (1.0 - loads)),
            nominal=ports.capacity,
            beside=compact(np.where(used, float(flows), 0.0)),
        )

    def _places(self, nodes: Sequence[int]) -> list[int]:
        """Some nodes, or of the links of a fabric the leaves that these hang on: a leaf for each rail where it is laid so."""
        fabric = self._cluster.fabric
        if self._its is None or self._its.on != "fabric" or fabric is None:
            return list(nodes)
        each = (self._cluster.rails or 1) if fabric.rail_optimised else 1
        return sorted({node // fabric.nodes_per_leaf * each + rail for node in nodes for rail in range(each)})

    def _drawn(self, ports: Ports) -> Floats:
        """A load for each port that is used: the same for a link of this name whatever others there are."""
        assert self._its is not None
        least, most = self._its.between
        names = np.array([crc32(str(ports.names[port]).encode()) for port in self._used.tolist()], dtype=np.int64)
        known, place = np.unique(names, return_inverse=True)
        return least + (most - least) * self._streams.once("background", known, np.random.Generator.random, scattered=True)[place]

    def changes(self) -> Changes | None:
        """Return what others take from the ports that :meth:`on` was given last, where that changes while a run goes on."""
        background = self._its
        if background is None or not background.changes or not len(self._used):
            return None
        return Changes(
            port=numbers(self._used),
            at_s=np.array([point.at_s for point in background.trace]),
            left=np.array([1.0 - point.load for point in background.trace]),
            beside=np.array([float(point.flows) for point in background.trace]),
            repeat_s=background.repeat_s,
        )
