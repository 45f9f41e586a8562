"""Replicas, collective and network wired together.

Every replica computes forward and backward on its own batch; gradients are fused into
buckets in the order in which they become ready (Li et al., "PyTorch Distributed", VLDB
2020, section 3.2.2; TensorFlow's ``bytes_per_pack``), each bucket is all-reduced while
the backward pass goes on, and every replica applies the same mean. One replica alone has
nothing to reduce. With ``sync_every`` above 1 (local SGD: Stich, ICLR 2019) each replica
applies its own gradients, and the variables are averaged now and then.
"""

from __future__ import annotations

from simulator.collectives import ByMessages, Collective, collective_for
from simulator.engine.log import Log
from simulator.engine.simpy.collectives import AtOnce, Collectives, MessageByMessage
from simulator.engine.simpy.engine import Engine
from simulator.fusion import Bucket, buckets
from simulator.kernel import Kernel
from simulator.network.flows import Network
from simulator.network.topology import Topology
from simulator.recorder import Measured, Recorder, Resource
from simulator.replica import Paces
from simulator.rng import Streams
from simulator.scenario import Scenario
from simulator.strategies.all_reduce.copies import HostCopies
from simulator.strategies.all_reduce.fusing import Fuser
from simulator.strategies.all_reduce.lockstep import Lockstep
from simulator.strategies.all_reduce.routine import compile_together
from simulator.strategies.all_reduce.telling import Teller
from simulator.strategy import AllReduceStrategy

__all__ = ["AllReduceTraining", "collective_of"]


class AllReduceTraining:
    """Builds all parts of a scenario and starts its replicas.

    Attributes
    ----------
    collective
        How gradients are reduced; none of one replica alone.
    """

    def __init__(
        self, kernel: Kernel, network: Network, scenario: Scenario, paces: list[Paces], recorder: Recorder, streams: Streams
    ) -> None:
        strategy, cluster, load = scenario.strategy, scenario.cluster, scenario.workload
        ranks = len(paces)
        topology = Topology(scenario, streams)
        self.collective: Collective | None = None
        self._by_messages = False
        self._sizes: tuple[float, ...] = ()  # of the buffers that are reduced event by event
        fused = [Bucket(1.0, 0.0)]
        messages = False
        copies = None
        if isinstance(strategy, AllReduceStrategy):
            # with a fusion cycle each gradient waits by itself, for what else is ready when the cycle comes
            size = strategy.bucket_size_bytes if strategy.fusion_cycle_s is None else 1.0
            fused = buckets(load, scenario.batch, size, ranks)
            messages = scenario.rank_messages
            copies = HostCopies(cluster, ranks) if strategy.through_host else None
        if ranks > 1 and isinstance(strategy, AllReduceStrategy):
            self.collective = collective_of(scenario, strategy, streams, topology)
        fuser: Fuser | None = None
        log = Log(recorder.observer) if recorder.observer is not None else None
        if messages or cluster.replicas_per_device > 1 or cluster.shared_cores is not None:
            collectives = self._by_events(kernel, network, scenario, fused, log, topology) if self.collective else None
            Engine(kernel, network, compile_together(scenario, streams), paces, streams, recorder, collectives, log).start()
        else:
            if self.collective is not None and isinstance(strategy, AllReduceStrategy):
                fuser = Fuser(self.collective, fused, load.parameter_bytes, strategy, copies, one_by_one=recorder.observer is not None)
            teller = Teller(log, paces, [bucket.ready for bucket in fused]) if log is not None else None
            Lockstep(kernel, scenario, paces, fuser, fused, recorder, teller)
            recorder.watch("links", self._links)
        self._fuser = fuser
        self._topology = topology
        self._copies = copies

    def describe(self, measured: Measured) -> None:
        """Say how the gradients were reduced."""
        collective = self.collective
        if collective is None:
            return
        measured.aligned = collective.aligned and not self._by_messages
        sizes = self._fuser.sizes if self._fuser is not None else self._sizes
        choices = {size: collective.choice(size) for size in dict.fromkeys(sizes)}
        measured.algorithms = tuple((size, choice.algorithm, choice.protocol) for size, choice in choices.items())

    def _links(self) -> list[Resource]:
        if self._fuser is not None:
            self._fuser.count()
        copies = self._copies.links if self._copies is not None else []
        return [*self._topology.ports, *self._topology.hosts, *copies]

    def _by_events(
        self, kernel: Kernel, network: Network, scenario: Scenario, fused: list[Bucket], log: Log | None, topology: Topology
    ) -> Collectives:
        """The all-reduces of a step, or of local SGD's average, for ranks that are processes."""
        strategy, load = scenario.strategy, scenario.workload
        assert isinstance(strategy, AllReduceStrategy)
        assert self.collective is not None
        sizes = [bucket.size_bytes for bucket in fused]
        if strategy.sync_every > 1:
            sizes = [load.parameter_bytes]
        self._sizes = tuple(sizes)
        if scenario.rank_messages:
            self._by_messages = True
            run = ByMessages(kernel, network, [self.collective.plan(size) for size in sizes], sizes, log)
            return MessageByMessage(run, len(sizes), lambda: [*topology.ports, *topology.hosts])
        return AtOnce(kernel, self.collective, sizes, scenario.replicas, lambda: [*topology.ports, *topology.hosts], log)


def collective_of(scenario: Scenario, strategy: AllReduceStrategy, streams: Streams, topology: Topology) -> Collective:
    """How the replicas of a scenario, two at least, reduce their gradients over a network."""
    cluster = scenario.cluster
    return collective_for(
        strategy.algorithm,
        strategy.protocol,
        cluster,
        scenario.replicas,
        cluster.replicas_per_node,
        topology.between_replicas,
        lambda: Topology(scenario, streams).between_replicas,
        strategy.pipeline_chunk_bytes,
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
