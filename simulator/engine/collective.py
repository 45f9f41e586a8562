"""How the replicas of a scenario reduce their gradients over its network."""

from __future__ import annotations

from simulator.collectives import Collective, Group, collective_for
from simulator.network.topology import Topology
from simulator.rng import Streams
from simulator.scenario import Scenario

__all__ = ["collective_of"]


def collective_of(scenario: Scenario, streams: Streams, topology: Topology) -> Collective | None:
    """The collective of a scenario's replicas; none where there is nothing to reduce."""
    reduction, cluster = scenario.strategy.reduction, scenario.cluster
    if reduction is None or scenario.replicas == 1:
        return None
    return collective_for(
        reduction.algorithm,
        reduction.protocol,
        cluster,
        Group.in_order(scenario.replicas, cluster.replicas_per_node),
        topology.between_replicas,
        lambda: Topology(scenario, streams).between_replicas,
        reduction.pipeline_chunk_bytes,
        _network(scenario, streams),
    )


def _network(scenario: Scenario, streams: Streams) -> str:
    """What the times of collectives depend on, as text: equal for equal networks."""
    parts = {"devices_per_node", "intra_node", "intra_node_topology", "inter_node", "nics_per_node", "fabric", "transport", "protocols",
             "shared_cores", "time_slice_s"}  # fmt: skip
    network = scenario.cluster.model_dump_json(include=parts)
    links = [kind.model_dump_json(include={"nodes", "inter_node"}) for kind in scenario.cluster.node_classes]
    # routes over several spines are drawn for each replication
    fabric = scenario.cluster.fabric
    routes = int(streams.generator("routes").integers(2**63)) if fabric is not None and fabric.spines > 1 else 0
    return "|".join([network, *links, str(scenario.cluster.replicas_per_node), str(routes)])
