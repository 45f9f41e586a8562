"""Parameter servers: workers pull variables from them and push gradients to them, synchronously, asynchronously or in between.

Every worker repeats: pull all variables, compute on its batch, push each gradient as it
becomes ready in the backward pass, wait. Asynchronously (Dean et al., "Large Scale
Distributed Deep Networks", 2012) it goes on once its last gradient is applied;
synchronously when an update lets it. Which messages a step has is in server_steps.py; how
gradients become updates is a rule (``Rules`` of ``simulator.program.program``) that both
engines carry out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from simulator.base.rng import Streams
from simulator.base.spec import Delay, Spec
from simulator.base.text import format_bytes, format_count
from simulator.program.program import (
    Program,
)
from simulator.spec.accelerator import memory_bandwidth_of
from simulator.spec.cluster import Cluster
from simulator.spec.figures import Warned
from simulator.spec.gradients import Compression, Partitioner, Placement, shard_count
from simulator.spec.workload import Workload
from simulator.strategies.holding import Held
from simulator.strategies.server_steps import Tensors, program_of, tensors_of, traffic_of
from simulator.strategies.setup import Layout, Setup, Together
from simulator.strategies.strategy import (
    MOST_MESSAGES,
    Count,
    LeftOpen,
    Pace,
    Sending,
    Software,
    StepExchange,
    Strategy,
    check_workers,
    cost_left_open,
    device_of_training,
)

# beyond these a simulation would not end, or not fit into memory
_MOST_TENSORS = 1_000_000
_MOST_PAIRS = 100_000_000

_PILED = 1.5
"""Times the mean traffic of servers at one of them, from which it is warned of."""

_RANDOM_PULLS = (
    "TensorFlow answers the reads of a step in random order (Hashemi et al., TicTac, 2019; with the order of need, throughput of real "
    "runs was predicted 11% too high, docs/fidelity.md)"
)
_APART = "between-graph workers are started one by one, so their steps begin at different times"
_AT_ONCE = "one coordinator hands all workers their first step at the same time, and aligns them again whenever they wait for it"
_ONE_CLIENT = "one client starts all workers"


class Coordinator(Spec):
    """The one process that hands out steps in ParameterServerStrategy (``ClusterCoordinator``)."""

    dispatch_s: Delay | None = Field(
        default=None, description="the coordinator's work per step, one step at a time; left out: measured default (docs/numbers.md)"
    )
    latency_s: Delay | None = Field(default=None, description="further delay between a worker's steps; left out: measured default")


class ParameterServer(Strategy, only=("replicas_per_worker", "compression")):
    """``tf.distribute.ParameterServerStrategy`` (async) or ``SyncReplicasOptimizer`` (sync)."""

    has_servers: ClassVar[bool] = True
    variant_key: ClassVar[str] = "mode"
    goes_with: ClassVar[Mapping[str, tuple[str, tuple[str, ...]]]] = {
        "bound": ("mode", ("ssp",)),
        "backup_workers": ("mode", ("sync",)),
        "late_workers": ("mode", ("sync",)),
        "coordinator": ("mode", ("async",)),
    }
    short_names: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "sync-ps": {"kind": "parameter-server", "mode": "sync"},
        "backup": {"kind": "parameter-server", "mode": "sync", "backup_workers": 1},
        "async-ps": {"kind": "parameter-server", "mode": "async"},
        "ssp": {"kind": "parameter-server", "mode": "ssp", "bound": 3},
    }

    kind: Literal["parameter-server"] = Field(default="parameter-server", description="this strategy")
    mode: Literal["sync", "async", "ssp"] = Field(
        description="sync: gradients are averaged each step; async: each gradient is applied on arrival; ssp: async, but no worker runs "
        "more than bound steps ahead of the slowest"
    )
    workers: Count | None = Field(default=None, description="worker processes; left out: as many as fill the cluster's nodes")
    replicas_per_worker: int = Field(
        default=1,
        ge=1,
        le=1024,
        description="devices (replicas) per worker process on one node; they sum their gradients and push them once",
    )
    servers: Count = Field(default=1, description="parameter servers, which hold the variables")
    bound: int | None = Field(default=None, ge=0, le=10**9, description="with mode = ssp: steps that a worker may be ahead of the slowest")
    backup_workers: int = Field(
        default=0,
        ge=0,
        le=10_000_000,
        description="with mode = sync: each step averages the first (workers - backup_workers) gradients of each variable; the server "
        "drops the others at no cost",
    )
    late_workers: Literal["finish", "cancel"] = Field(
        default="finish",
        description="what a worker with a late gradient does: finish its step in vain (SyncReplicasOptimizer), or cancel it when the "
        "update is available, even while waiting for a pull, and begin the next (Chen et al. 2016)",
    )
    server_placement: Literal["dedicated", "colocated"] = Field(
        default="dedicated", description="separate nodes for servers, or server i on worker node i, sharing its link"
    )
    variable_placement: Placement = Field(
        default="round-robin",
        description="placement of variables on servers: in turn (TensorFlow's default); greedy: onto the server with the fewest bytes so "
        "far (GreedyLoadBalancingStrategy); traffic: onto the server with the least pull and push traffic so far (greedy "
        "with such a load_fn)",
    )
    partitioner: Partitioner | None = Field(default=None, description="how large variables are split into shards; left out: not split")
    pull_order: Literal["forward", "random", "together"] | None = Field(
        default=None,
        description="order in which a server sends its variables: as the forward pass needs them, at random, or all at once; the forward "
        "pass uses each as it arrives, and with all at once begins after the last; left out: at random, as in TensorFlow",
    )
    coordinator: Coordinator | None = Field(
        default=None,
        description="a process that hands out all steps (ClusterCoordinator); left out: none, each worker drives itself (between-graph)",
    )
    replication: Literal["between-graph", "in-graph"] = Field(
        default="between-graph", description="each worker reads its own input, or one client on a separate node feeds all workers"
    )
    compression: Compression | None = Field(
        default=None, description="compression of pushed gradients; pulled variables are not compressed; left out: none"
    )

    @property
    def pulls(self) -> Literal["forward", "random", "together"]:
        """In which order a server sends its variables: as given, or at random, as TensorFlow does."""
        return self.pull_order or "random"

    @model_validator(mode="after")
    def _consistent(self) -> ParameterServer:
        if self.mode == "ssp" and self.bound is None:
            raise ValueError('mode = "ssp" needs bound, the steps that a worker may be ahead of the slowest, such as bound = 3')
        if self.mode != "ssp" and self.bound is not None:
            raise ValueError(f'bound ({self.bound}) applies to mode = "ssp", not to "{self.mode}": leave it out or change mode')
        if self.backup_workers and self.mode != "sync":
            raise ValueError(f'backup_workers ({self.backup_workers}) need mode = "sync": asynchronous gradients are never late')
        if self.late_workers == "cancel" and not self.backup_workers:
            raise ValueError('late_workers = "cancel" needs backup_workers, because otherwise no gradient is late: give both or neither')
        if self.coordinator is not None and self.mode != "async":
            raise ValueError(f'coordinator needs mode = "async", not "{self.mode}": ClusterCoordinator hands out steps one by one')
        if self.compression is not None and self.compression.kind == "powersgd":
            raise ValueError(
                'compression.kind = "powersgd" needs replicas that all-reduce: its second matrix follows from the sum of the first'
            )
        if self.compression is not None and self.compression.exchange is not None:
            raise ValueError("compression.exchange applies to all-reduce between replicas: leave it out with parameter servers")
        return self

    # -- layout and rules ------------------------------------------------------------

    def layout(self, cluster: Cluster) -> Layout:
        """Workers on the first nodes; servers on separate nodes or on workers' nodes; the client of in-graph replication last."""
        apart, in_graph = self.server_placement == "dedicated", self.replication == "in-graph"
        worker_nodes = (cluster.room or 1) - (self.servers if apart else 0) - int(in_graph)
        fill = max(worker_nodes, 1) * cluster.replicas_per_node // self.replicas_per_worker
        return Layout(
            replicas=(self.workers or max(fill, 1)) * self.replicas_per_worker,
            replicas_per_node=cluster.replicas_per_node,
            replicas_per_process=self.replicas_per_worker,
            servers=self.servers,
            servers_beside=not apart,
            client=in_graph,
        )

    def together(self, setup: Setup) -> Together | None:
        """The devices of a worker."""
        if self.replicas_per_worker == 1:
            return None
        workers = self.model_copy(update={"replicas_per_worker": 1, "workers": setup.layout.processes})
        return Together(self.replicas_per_worker, in_step=False, strategy=workers)

    def check_layout(self, cluster: Cluster) -> None:
        """Raise ValueError if it is not known how many workers there are, or nodes cannot hold whole ones."""
        check_workers(cluster, self.workers, self.replicas_per_worker)

    def check(self, setup: Setup) -> None:
        """Raise ValueError, with a sentence that says why, if another part of the scenario excludes it."""
        cluster, layout = setup.cluster, setup.layout
        if self.backup_workers >= layout.processes:
            raise ValueError(
                f"strategy.backup_workers ({self.backup_workers}) must be below the {layout.processes} workers: "
                "a step averages the gradients of the others, at least one"
            )
        self._check_messages(setup)
        if self.replication == "in-graph" and setup.workload.input_bytes_per_sample is None:
            raise ValueError(
                'strategy.replication = "in-graph" needs workload.input_bytes_per_sample: '
                "the client sends each worker its input over the network"
            )
        if self.replication == "in-graph" and self.coordinator is not None:
            raise ValueError('strategy.coordinator and strategy.replication = "in-graph" exclude each other: the client drives all workers')
        if self.late_workers == "cancel" and (cluster.replicas_per_device > 1 or cluster.device_is_host):
            raise ValueError(
                'strategy.late_workers = "cancel" needs one replica per device: a shared device cannot be stopped for one replica'
            )
        if cluster.servers_on_devices and cluster.devices_per_node > 1:
            raise ValueError("cluster.device_is_host needs devices_per_node = 1, because a host has one CPU (or give cluster.shared_cores)")
        if self.mode == "ssp" and setup.run.sharing == "shared" and setup.run.drain:
            raise ValueError('run.drain with mode = "ssp" needs run.sharing = "each-its-own": clocks count the steps of each worker')

    def _check_messages(self, setup: Setup) -> None:
        """Rules that keep tensors, connections and messages countable."""
        cluster, replicas, tensors = setup.cluster, setup.layout.replicas, self._tensors(setup.workload)
        if tensors > _MOST_TENSORS:
            raise ValueError(
                f"strategy.partitioner splits the variables into {format_count(tensors)} shards, but at most {_MOST_TENSORS:,} can be "
                "simulated: use fewer or larger shards"
            )
        if self.servers > tensors:
            cut = " as split by the partitioner" if self.partitioner else ", because a variable is not split without a partitioner"
            raise ValueError(f"strategy.servers ({self.servers}) must be at most {tensors}, the number of the workload's variables{cut}")
        if self.replicas_per_worker > 1 and (cluster.replicas_per_device > 1 or cluster.device_is_host or cluster.shared_cores is not None):
            raise ValueError(
                f"strategy.replicas_per_worker ({self.replicas_per_worker}) needs one replica per device: leave out "
                "cluster.replicas_per_device, device_is_host and shared_cores"
            )
        if replicas * self.servers > _MOST_PAIRS:
            raise ValueError(
                f"strategy connects {replicas:,} workers to {self.servers:,} servers, but at most {_MOST_PAIRS:,} pairs can be simulated: "
                "use fewer servers"
            )
        if (messages := replicas * self.messages_a_step(setup)) > MOST_MESSAGES:
            raise ValueError(
                f"strategy sends {messages:,} messages per step (variables and gradients of {replicas:,} workers), but at most "
                f'{MOST_MESSAGES:,} can be simulated: set run.grouping = "per-server", or use fewer shards'
            )

    # -- what a step does ------------------------------------------------------------

    @property
    def pace(self) -> Pace:
        """Who waits for whom, by the mode."""
        if self.mode == "sync":
            return Pace(backups=self.backup_workers, cancels=self.late_workers == "cancel")
        driver = self.coordinator
        start: Literal["together", "random-phase"] = "together"
        reason = _AT_ONCE if driver is not None else _ONE_CLIENT
        if driver is None and self.replication == "between-graph":
            start, reason = "random-phase", _APART
        return Pace(
            asynchronous=True,
            bound=self.bound,
            coordinated=driver is not None,
            dispatch_s=(driver.dispatch_s or 0.0) if driver is not None else 0.0,
            latency_s=(driver.latency_s or 0.0) if driver is not None else 0.0,
            start=start,
            start_reason=reason,
        )

    def sending(self, setup: Setup) -> Sending:
        """By gRPC between hosts; inside a node between a worker and a server on it, or between the devices of a worker.

        Taken together by servers, all gradients travel after the backward pass, and all variables before the forward pass.
        """
        inside = setup.layout.servers_beside or self.replicas_per_worker > 1
        return Sending(inside, through_host=True, apart=setup.run.grouping == "per-server", carrier="grpc")

    def with_clients(self, values: Mapping[str, float]) -> Self:
        """Fill in measured defaults for a coordinator's times if not given."""
        driver = self.coordinator
        if driver is None:
            return self
        missing = {}
        if driver.dispatch_s is None:
            missing["dispatch_s"] = values["coordinator_dispatch_s"]
        if driver.latency_s is None:
            missing["latency_s"] = values["coordinator_latency_s"]
        return self.model_copy(update={"coordinator": driver.model_copy(update=missing)}) if missing else self

    def in_random_order(self, setup: Setup) -> bool:
        """Tell whether several messages with variables come in random order."""
        return self.pulls == "random" and len(self.tensors(setup).variables) > 1

    def left_open(self, setup: Setup) -> Iterator[LeftOpen]:
        """The order in which variables come, where they come one by one."""
        several = len(setup.workload.variables) > 1 or self.partitioner is not None
        if self.pull_order is None and setup.run.grouping == "none" and several:
            yield LeftOpen("strategy.pull_order", self.pulls, _RANDOM_PULLS)
        if self.compression is not None:
            yield from cost_left_open(self.compression, setup, self.encoding_s(setup))

    def held(self, setup: Setup) -> tuple[tuple[Held, ...], ...]:  # noqa: ARG002
        """A worker's device has the variables that it pulled and gradients; the optimizer's slots are with the servers."""
        return ((Held(slot_shards=0),),)

    def filled_in(self, setup: Setup) -> Self:  # noqa: ARG002
        """With the order in which variables come."""
        return self if self.pull_order is not None else self.model_copy(update={"pull_order": self.pulls})

    def checked_as(self, setup: Setup) -> tuple[str, bool] | None:
        """Its mode, and whether gradients and variables overlap with compute; none if no such training was run."""
        if self.partitioner or self.compression is not None or self.server_placement == "colocated" or self.replication == "in-graph":
            return None
        if self.late_workers == "cancel":
            return None
        layers = len({variable.ready for variable in setup.workload.variables}) > 1
        return self.mode, layers and setup.run.grouping == "none" and self.pulls != "together"

    def tensors(self, setup: Setup) -> Tensors:
        """Variables and gradients, cut, placed and grouped."""
        return tensors_of(setup, self)

    def avoided(self, setup: Setup) -> Iterator[Warned]:
        """Much more traffic at one server than at the others."""
        traffic = traffic_of(self.tensors(setup), self.servers)
        busiest, mean = max(traffic), math.fsum(traffic) / self.servers
        if busiest < _PILED * mean:
            return
        by_traffic = self.model_copy(update={"variable_placement": "traffic"})
        spread = max(traffic_of(by_traffic.tensors(setup), self.servers))
        how = "a strategy.partitioner that splits large variables"
        if spread < busiest / 1.1:
            how = f'strategy.variable_placement = "traffic", with {format_bytes(spread)} at most,'
        yield Warned.of(
            "piled-traffic", busiest / mean,
            f"server {traffic.index(busiest)} carries {format_bytes(busiest)} of a worker's pulls and pushes per step, the mean over "
            f"{self.servers} servers is {format_bytes(mean)}: it may delay the others; {how} balances the traffic",
        )  # fmt: skip

    def pushed_bytes(self, setup: Setup) -> list[float]:
        """Bytes of each variable's gradient as it is pushed: compressed, or as it is."""
        if self.compression is None:
            return super().pushed_bytes(setup)
        return [
            variable.tensors * math.fsum(self.compression.sent_bytes(variable.single, setup.batch)) for variable in setup.workload.variables
        ]

    def encoding_s(self, setup: Setup) -> tuple[float, float]:
        """Seconds in which a worker compresses; servers make gradients of what comes, as part of their service."""
        if self.compression is None:
            return 0.0, 0.0
        return self.compression.compress_s(setup.workload.variables, memory_bandwidth_of(device_of_training(setup))), 0.0

    def encoded(self) -> Self:
        """With compression that costs workers nothing."""
        assert self.compression is not None
        return self.model_copy(update={"compression": self.compression.model_copy(update={"compress_per_byte_s": 0.0})})

    def program(self, setup: Setup, streams: Streams) -> Program:
        """Pull all variables, compute as they come, push each gradient as it becomes ready, wait."""
        return program_of(setup, self, streams)

    # -- estimates -------------------------------------------------------------------

    def _tensors(self, workload: Workload) -> int:
        """Variables, or the shards that they are cut into."""
        return sum(variable.tensors * shard_count(variable.single, self.partitioner) for variable in workload.variables)

    def messages_a_step(self, setup: Setup) -> int:
        """Of variables to a worker, and of its gradients to the servers."""
        tensors = self._tensors(setup.workload)
        grouped = min(tensors, self.servers)
        if setup.run.grouping == "per-server":
            return 2 * grouped
        return tensors + (grouped if self.pulls == "together" else tensors)

    def exchange(self, setup: Setup) -> StepExchange:
        """Variables and gradients, tensor after tensor: while one host works on the next, the other works on the one before."""
        load, transport, pace, tensors = setup.workload, setup.cluster.transport, self.pace, self._tensors(setup.workload)
        link, wire, servers = setup.cluster.inter_node, transport.wire_bytes_per_byte, self.servers
        pushed, pulled = math.fsum(self.pushed_bytes(setup)), math.fsum(variable.pull_bytes(setup.batch) for variable in load.variables)
        served_s = math.fsum(variable.tensors * load.server(variable.single.gradient_bytes(setup.batch)) for variable in load.variables)
        served_s += self.compression.decompress_s(load.variables, None) if self.compression is not None else 0.0
        size, copy_s = pushed * wire + pulled * wire, 2 * transport.copy_per_byte_s / wire  # of both hosts, for each byte on the wire
        messages_s = transport.cpu_per_message_s * (2 * tensors + 2)
        sent_s = float(size / link.bandwidth_bytes_per_s + 2 * link.latency_s + copy_s * size + messages_s)
        link_s = max(pulled, pushed) * (wire / setup.cluster.link_of(0).bandwidth_bytes_per_s) / servers
        host_s = (pulled + pushed) * transport.copy_per_byte_s / servers + 2 * tensors / servers * transport.cpu_per_message_s
        busiest_s = setup.layout.replicas * max(link_s, served_s / servers, pace.dispatch_s, host_s)
        return StepExchange((pace.dispatch_s + pace.latency_s, sent_s), False, pushed + pulled, (served_s, pace.dispatch_s), busiest_s)

    # -- names -----------------------------------------------------------------------

    @property
    def way(self) -> str:
        """The way of training in two words."""
        return f"{'SSP' if self.mode == 'ssp' else self.mode} PS"

    @property
    def _counted_servers(self) -> str:
        return f"{self.servers} server{'s' if self.servers > 1 else ''}"

    @property
    def software(self) -> tuple[Software, ...]:
        """TensorFlow; bounded staleness, compression, and stopping late workers are research code's."""
        return () if self.mode == "ssp" or self.compression is not None or self.late_workers == "cancel" else ("tensorflow",)

    @property
    def in_words(self) -> str:
        """In few words, without its number of workers."""
        bound = "" if self.bound is None else f" (bound {self.bound})"
        backup = f", {self.backup_workers} backup" if self.backup_workers else ""
        where = " on workers' nodes" if self.server_placement == "colocated" else ""
        sent = f", {self.compression.in_words}" if self.compression is not None else ""
        return f"{self.way}{bound}, {self._counted_servers}{where}{backup}{sent}"

    def title(self, *, servers: bool = True) -> str:
        """Return what a curve is called."""
        return f"{self.way[0].upper()}{self.way[1:]}{f', {self._counted_servers}' if servers else ''}"

    # -- sweeps and plans ------------------------------------------------------------

    @classmethod
    def keys_for(cls, name: str, own: Mapping[str, Any]) -> dict[str, Any]:
        """``[strategy]`` under one of its short names, with those of the scenario's own keys that its mode takes."""
        given = cls.short_names[name]
        kept = {key: value for key, value in own.items() if key not in cls.goes_with or given["mode"] in cls.goes_with[key][1]}
        if name == "sync-ps":  # without backup workers, which have a name of their own
            kept = {key: value for key, value in kept.items() if key not in ("backup_workers", "late_workers")}
        fixed = {key: value for key, value in given.items() if key not in ("bound", "backup_workers") or key not in kept}
        return {**kept, **fixed}

    def alone_with_servers(self) -> Self:
        """One worker, which nobody waits for."""
        return self.model_copy(update={"workers": 1, "backup_workers": 0, "late_workers": "finish"})

    def fewer(self, replicas: int, before: int) -> Self:
        """With fewer workers, and as large a share of them for backup."""
        backup = self.backup_workers * replicas // before
        late = {} if backup else {"late_workers": "finish"}
        return self.changed(workers=replicas, backup_workers=backup, **late)
