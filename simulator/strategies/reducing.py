"""The collective by which all replicas of a scenario reduce their gradients; where a model is cut, hybrid/groups.py has several.

Its times are kept for other scenarios on an equal network: every key of the cluster that changes them must be in ``_network``.
"""

from __future__ import annotations

from functools import partial

from simulator.base.rng import Streams
from simulator.collectives.collective import Collective
from simulator.collectives.factory import collective_for
from simulator.collectives.wire import Group
from simulator.program.wiring import Wiring
from simulator.strategies.setup import Setup
from simulator.strategies.strategy import Reduction


def collective_of(setup: Setup, reduction: Reduction | None, streams: Streams) -> Collective | None:
    """The collective of all replicas; none where there is nothing to reduce.

    Parameters
    ----------
    setup
        As drawn for a replication.
    reduction
        How they reduce; none: not at all.
    streams
        Choose the routes of connections.
    """
    cluster, replicas = setup.cluster, setup.layout.replicas
    if reduction is None or replicas == 1:
        return None
    return collective_for(
        reduction.algorithm,
        reduction.protocol,
        cluster,
        Group.in_order(replicas, cluster.replicas_joined),
        partial(Wiring, cluster, streams),
        reduction.pipeline_chunk_bytes,
        partial(_network, setup, streams),
        operation=reduction.does,
    )


def _network(setup: Setup, streams: Streams) -> str:
    """What the times of collectives depend on, as text: equal for equal networks."""
    parts = {"devices_per_node", "intra_node", "intra_node_topology", "inter_node", "nics_per_node", "rails", "pxn",
             "islands", "nvls", "fabric", "transport", "protocols",
             "shared_cores", "time_slice_s", "intra_device", "replicas_per_device", "background"}  # fmt: skip
    cluster = setup.cluster
    network = cluster.model_dump_json(include=parts)
    links = [kind.model_dump_json(include={"nodes", "inter_node"}) for kind in cluster.node_classes]
    # routes over several spines, and loads of single links, are drawn for each replication
    fabric = cluster.fabric
    drawn = (fabric is not None and fabric.spines > 1) or (cluster.background is not None and cluster.background.each_link)
    routes = int(streams.generator("routes").integers(2**63)) if drawn else 0
    return "|".join([network, *links, str(cluster.replicas_per_node), str(routes)])
