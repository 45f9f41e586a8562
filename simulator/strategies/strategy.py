"""Interface of every strategy: questions of the rest of Paceline about how training is distributed.

A strategy is one file: what a user writes of it (a :class:`Strategy`, a frozen spec with a
``kind``), what it cannot be combined with, how its processes are laid over nodes, who waits
for whom, what a step sends, and what it is called. Nothing else knows its name; consumers
ask these questions, and :mod:`simulator.strategies.catalogue` lists who answers them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, final

from pydantic import Field

from simulator.base.rng import Streams
from simulator.base.spec import Terse
from simulator.base.text import format_rate, format_seconds, listed
from simulator.program.program import Program
from simulator.program.schedule import Does
from simulator.spec.accelerator import memory_bandwidth_of
from simulator.spec.cluster import Cluster
from simulator.spec.figures import Warned
from simulator.spec.gradients import Bucket, Compression, buckets
from simulator.spec.transport import Carrier
from simulator.spec.workload import Workload
from simulator.strategies.holding import Held
from simulator.strategies.pipelines import batch_s, input_cores_s
from simulator.strategies.server_steps import Tensors
from simulator.strategies.setup import InCommon, Layout, ModelParallel, Setup, Together

Count = Annotated[int, Field(ge=1, le=10_000_000)]
"""How many processes of a kind there are."""

MOST_MESSAGES = 100_000_000
"""Messages a step that are simulated one by one at most: beyond it a simulation would not end, or not fit into memory."""


class Pace(NamedTuple):
    """Who waits for whom.

    Attributes
    ----------
    asynchronous
        Whether each update is applied when it comes, so that workers go on without each other.
    bound
        Of these, the steps that a worker may be ahead of the slowest; none: any number.
    waits_for
        Replicas that a replica's step waits for, itself included; none: all.
    backups
        Gradients of a step that nobody waits for.
    cancels
        Whether a worker whose gradient comes too late stops computing and begins the next step.
    every
        Steps after which replicas agree; between, they are on their own.
    coordinated
        Whether one coordinator hands out the steps.
    dispatch_s, latency_s
        Its own work for a step, and what else lies between a step's end and the next one's begin.
    start, start_reason
        How workers of this kind begin, and why.
    """

    asynchronous: bool = False
    bound: int | None = None
    waits_for: int | None = None
    backups: int = 0
    cancels: bool = False
    every: int = 1
    coordinated: bool = False
    dispatch_s: float = 0.0
    latency_s: float = 0.0
    start: Literal["together", "random-phase"] = "together"
    start_reason: str = "synchronous workers make each step together, whenever they begin"

    @property
    def together(self) -> bool:
        """Tell whether all replicas make each step together, so that nobody is ahead or late."""
        return not self.asynchronous and self.waits_for is None and not self.backups

    def awaited(self, replicas: int) -> int:
        """How many replicas a step waits for, of all."""
        if self.asynchronous:
            return 1
        return min(replicas - self.backups, self.waits_for or replicas)


class Reduction(NamedTuple):
    """How replicas reduce their gradients among themselves.

    Attributes
    ----------
    algorithm, protocol
        As the strategy names them.
    pipeline_chunk_bytes
        Pieces in which a tree passes a buffer on.
    bucket_size_bytes
        Gradients are fused to at least this size, in cycles to at most this; none: all of them.
    in_cycles
        Whether what is ready is fused again and again, whatever its size.
    forward_first
        Whether what the next forward pass needs first goes first.
    through_host
        Whether it goes through host memory.
    compression
        Of what is sent; none: gradients go as they are.
    first_bucket_bytes
        Size up to which the first gradients are fused; none: as all others.
    buckets_held
        Buckets that a device holds in addition to its gradients: the largest, all of them, or none because gradients lie in them.
    """

    algorithm: str
    protocol: str
    pipeline_chunk_bytes: float
    bucket_size_bytes: float | None = None
    in_cycles: bool = False
    forward_first: bool = False
    through_host: bool = False
    compression: Compression | None = None
    first_bucket_bytes: float | None = None
    buckets_held: Literal["largest", "all", "none"] = "largest"

    @property
    def after_backward(self) -> bool:
        """Tell whether one all-reduce of everything follows the backward pass, which nothing hides."""
        return self.bucket_size_bytes is None and not self.in_cycles and not self.forward_first

    @property
    def chosen(self) -> bool:
        """Tell whether the algorithm or the protocol is chosen for each size."""
        return "auto" in (self.algorithm, self.protocol)

    @property
    def does(self) -> Does:
        """Return what the collectives do: add gradients, or gather compressed ones that cannot be added."""
        return "all-gather" if self.compression is not None and self.compression.gathers else "all-reduce"

    def buckets(self, workload: Workload, batch: int, replicas: int) -> list[Bucket]:
        """Return what is reduced as one in a step; each gradient separately if fusion depends on when all replicas have it."""
        size, first = (1.0, None) if self.in_cycles else (self.bucket_size_bytes, self.first_bucket_bytes)
        return buckets(workload, batch, size, replicas, self.compression, first)

    def as_one(self, workload: Workload, batch: int, replicas: int) -> list[float]:
        """Sizes of the collectives of all gradients together, one after the other: mostly one."""
        return [bucket.size_bytes for bucket in buckets(workload, batch, None, replicas, self.compression)]


Software = Literal["keras", "tensorflow", "horovod", "pytorch", "deepspeed", "megatron-lm", "jax"]
"""Training software, by the names of a plan's filter."""

SOFTWARE: Mapping[Software, str] = {
    "keras": "Keras 3's fit on TensorFlow",
    "tensorflow": "TensorFlow",
    "horovod": "Horovod",
    "pytorch": "PyTorch",
    "deepspeed": "DeepSpeed",
    "megatron-lm": "Megatron-LM",
    "jax": "JAX",
}
"""Each with its name for readers."""

TRAINS: Mapping[str, tuple[Software, ...]] = {
    "tensorflow": ("tensorflow", "horovod"),
    "jax": ("jax",),
    "torch": ("pytorch", "horovod", "deepspeed", "megatron-lm"),
}
"""Software that distributes a model over devices, by backend."""


def trained_by(workload: Workload) -> tuple[Software, ...]:
    """Software that can distribute a workload: a Keras 3 model moves between backends."""
    moves: tuple[Software, ...] = ("keras", "jax", "pytorch")
    return (*TRAINS[workload.backend], *(moves if workload.keras_3 else ()))


def outside_fit(strategy: Strategy, workload: Workload) -> str:
    """Say why ``fit`` of the Keras 3 that a workload was measured with does not train it so, with the ways out; empty where it does."""
    version, able = workload.keras_3, strategy.software
    if not version or not able or "keras" in able:
        return ""
    if "tensorflow" in able:
        return (
            f"fit() of Keras {version} under TensorFlow trains on one machine only: write a loop with strategy.run, use tf-keras 2, or "
            "move to PyTorch (torch-ddp) or JAX (keras-data-parallel): docs/measure.md"
        )
    backends = {"jax": "jax", "pytorch": "torch"}
    backend = next((backends[name] for name in able if name in backends), "")
    measure = f"; measure them there with `paceline calibrate --keras-backend {backend}`" if backend else ""
    return (
        f"the times were measured under TensorFlow, but this strategy runs under {listed([SOFTWARE[name] for name in able], 'or')}{measure}"
    )


def software_in_words(able: Sequence[Software]) -> str:
    """``PyTorch and DeepSpeed do``; that no software in use does, of none."""
    if not able:
        return "no widely used software does"
    return f"{listed([SOFTWARE[name] for name in able])} {'does' if len(able) == 1 else 'do'}"


class LeftOpen(NamedTuple):
    """A setting that is left out and decides results: its dotted path, what it is taken as, and why."""

    path: str
    value: str
    reason: str


class Sending(NamedTuple):
    """Route of messages.

    Attributes
    ----------
    inside_nodes
        Whether anything crosses the links inside a node.
    through_host
        Whether what is sent is copied between a device's memory and its host's.
    apart
        Whether nothing is ever sent while a replica computes, by what is asked for.
    carrier
        What carries tensors between its processes, where that decides what they cost hosts.
    """

    inside_nodes: bool
    through_host: bool = False
    apart: bool = False
    carrier: Carrier = "given"


class StepExchange(NamedTuple):
    """Traffic of a replica's step and its cost, before there is a program.

    Attributes
    ----------
    transfers_s
        Seconds of what it waits for, one after the other, with all links to itself.
    hidden
        Whether they go on while it computes.
    copied_bytes
        What it sends and gets between processes.
    hosts_s
        Its work on the cores of hosts, besides.
    busiest_s
        Seconds that the busiest server, link or driver needs for a step of every replica.
    """

    transfers_s: tuple[float, ...] = ()
    hidden: bool = False
    copied_bytes: float = 0.0
    hosts_s: tuple[float, ...] = ()
    busiest_s: float = 0.0


class Strategy(Terse, only=()):
    """Base of every strategy, and the questions that it answers, in groups that are numbered below.

    Layout and program are each strategy's own. Every other question has an answer here, that of replicas which make each
    step together and have no servers; what is final follows from the rest.
    """

    count_key: ClassVar[str] = "workers"
    """The key that says how many train; empty where there is no such number."""
    has_servers: ClassVar[bool] = False
    """Whether there are parameter servers, whose number is the key ``servers``."""
    link: ClassVar[Literal["intra_node", "inter_node", ""]] = "inter_node"
    """The cluster's link that gradients cross; empty where none do."""
    cuts_batches: ClassVar[bool] = False
    """Whether its program has the micro-batches of a step, so that the workload's times do not combine them."""
    variant_key: ClassVar[str] = ""
    """The key whose value :attr:`variant` is."""
    short_names: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Names that a plan takes, each with the keys that it sets."""

    # -- 1. where its processes sit, and what it cannot be combined with -------------------

    @abstractmethod
    def layout(self, cluster: Cluster) -> Layout:
        """Where its processes sit on a cluster; what is left out fills the cluster."""

    def check_layout(self, cluster: Cluster) -> None:
        """Raise ValueError, with a sentence that says why, if the cluster cannot hold it."""

    def check(self, setup: Setup) -> None:
        """Raise ValueError, with a sentence that says why, if another part of the scenario excludes it."""

    # -- 2. what happens in a step ---------------------------------------------------------

    @abstractmethod
    def program(self, setup: Setup, streams: Streams) -> Program:
        """Return what happens in a step, for every engine; ``streams`` choose the routes of connections."""

    # -- 3. who waits for whom, and what that does to replicas -----------------------------

    @property
    def pace(self) -> Pace:
        """Who waits for whom."""
        return Pace()

    @final
    @property
    def inexact(self) -> str:
        """How its replicas come to differ from each other, so that it may need more samples; empty if they are all equal.

        Effects of staleness are in a result's own figures.
        """
        pace = self.pace
        if pace.waits_for is not None:
            return f"each worker averages with only {pace.waits_for - 1} others"
        return f"its replicas average only every {pace.every} steps" if pace.every > 1 else ""

    def avoided(self, setup: Setup) -> Iterator[Warned]:  # noqa: ARG002
        """Yield what those who train so mostly avoid, and this scenario does not."""
        yield from ()

    # -- 4. what replicas reduce among themselves ------------------------------------------

    @property
    def reduction(self) -> Reduction | None:
        """How replicas reduce their gradients among themselves; none where they do not."""
        return None

    @property
    def fuses(self) -> bool:
        """Tell whether gradients are reduced in buckets, as many as the key ``bucket_size`` makes of them."""
        return False

    @final
    @property
    def bucket_bytes(self) -> float | None:
        """Size of a bucket of gradients, its key ``bucket_size``; none: all are reduced as one, or nothing is."""
        size_bytes: float | None = getattr(self, "bucket_size_bytes", None)
        return size_bytes

    @final
    def with_buckets(self, size_bytes: float | None) -> Self:
        """The same with buckets of another size, of a strategy that fuses gradients."""
        return self.model_copy(update={"bucket_size_bytes": size_bytes})

    # -- 5. what travels to servers, and what compression of it costs ----------------------

    def tensors(self, setup: Setup) -> Tensors:  # noqa: ARG002
        """Return what travels between workers and servers in a step; nothing without servers."""
        return Tensors()

    def pushed_bytes(self, setup: Setup) -> list[float]:
        """Bytes of each variable's gradient as it is pushed to servers."""
        return [variable.gradient_bytes(setup.batch) for variable in setup.workload.variables]

    def encoding_s(self, setup: Setup) -> tuple[float, float]:  # noqa: ARG002
        """Seconds in which a worker compresses its gradients, and makes gradients again of what has come."""
        return 0.0, 0.0

    def encoded(self) -> Self:
        """The same, with that work counted elsewhere."""
        return self

    def in_random_order(self, setup: Setup) -> bool:  # noqa: ARG002
        """Tell whether chance decides the order in which messages go."""
        return False

    # -- 6. what messages go by ------------------------------------------------------------

    def sending(self, setup: Setup) -> Sending:
        """Return what its messages go by."""
        layout = setup.layout
        return Sending(inside_nodes=min(layout.ranks, layout.replicas_per_node) > 1)

    # -- 7. what a device holds, and how a copy of the model lies on devices ---------------

    def held(self, setup: Setup) -> tuple[tuple[Held, ...], ...]:  # noqa: ARG002
        """Return the part of the model on each kind of devices (stages): one entry, or one per chunk."""
        return ((Held(),),)

    def model_parallel(self, setup: Setup) -> ModelParallel:
        """How a copy of the model lies on devices."""
        return ModelParallel(setup)

    @property
    def cuts(self) -> tuple[str, ...]:
        """By what copies of the model are cut, or share their state: of pipeline, tensor, expert and sharded; none: whole copies."""
        return ()

    # -- 8. what is simulated as one, or otherwise -----------------------------------------

    def together(self, setup: Setup) -> Together | None:  # noqa: ARG002
        """Devices that are simulated as one; None: each independently."""
        return None

    def in_common(self, setup: Setup) -> InCommon | None:  # noqa: ARG002
        """Return what steps vary by besides, that groups of ranks have in common; none where nothing is."""
        return None

    @property
    def simpler(self) -> Strategy | None:
        """A simpler one that does the same, where there is one."""
        return None

    # -- 9. what it leaves open, and what has been tried -----------------------------------

    def left_open(self, setup: Setup) -> Iterator[LeftOpen]:  # noqa: ARG002
        """Its settings that are left out and decide the result."""
        yield from ()

    def filled_in(self, setup: Setup) -> Self:  # noqa: ARG002
        """Fill in keys left out that affect the result; itself where it leaves out nothing."""
        return self

    def with_clients(self, values: Mapping[str, float]) -> Self:  # noqa: ARG002
        """Fill in the clients' times between steps if not given, from measured defaults by name."""
        return self

    def checked_as(self, setup: Setup) -> tuple[str, bool] | None:  # noqa: ARG002
        """Mode and whether messages overlap with compute, as ``models/evidence.toml`` lists what was run; none if this never was."""
        return None

    @property
    def software(self) -> tuple[Software, ...]:
        """Return what runs such a training as it comes, without code of one's own for it; empty: none that is widely used."""
        return ()

    # -- 10. what a step takes and sends, asked before there is a program ------------------

    def exchange(self, setup: Setup) -> StepExchange:  # noqa: ARG002
        """Return what a replica's step sends and gets, and what that costs."""
        return StepExchange()

    def lone_step_s(self, setup: Setup) -> float:
        """Seconds of a step whose transfers have all links to themselves and whose compute has no jitter."""
        exchange, compute_s, apply_s = self.exchange(setup), setup.workload.compute_s(setup.batch), setup.workload.apply_s
        if exchange.hidden:
            return float(max(compute_s, *exchange.transfers_s, 0.0) + apply_s)
        step_s = float(compute_s + apply_s) + math.fsum(self.encoding_s(setup))
        for transfer_s in exchange.transfers_s:
            step_s += transfer_s
        return step_s

    @final
    def full_step_s(self, setup: Setup) -> float:
        """Seconds of a step with all workers: of a single worker, or of the pipelines, a server, a link or cores for all."""
        return float(max(self.lone_step_s(setup), self.exchange(setup).busiest_s, batch_s(setup), self.cores_s(setup)))

    @final
    def cores_s(self, setup: Setup) -> float:
        """Seconds that the cores which all nodes share need for a step of every replica; 0 where they share none.

        Hosts' work on single messages is left out. Data is copied once at each end, and servers make updates.
        """
        load, cluster, replicas, exchange = setup.workload, setup.cluster, setup.layout.ranks, self.exchange(setup)
        if cluster.shared_cores is None:
            return 0.0
        busy = min(float(replicas), cluster.shared_cores)
        slowed = 1.0 + load.busy_core_slowdown * (busy - 1.0)
        work_s = input_cores_s(setup) + (load.compute_s(setup.batch) * slowed if cluster.device_is_host else 0.0)
        for host_s in exchange.hosts_s:
            work_s += host_s
        if cluster.device_is_host and not self.has_servers:
            work_s += load.apply_s * slowed
        return float(replicas * (work_s + 2 * cluster.transport.copy_per_byte_s * exchange.copied_bytes) / cluster.shared_cores)

    def messages_a_step(self, setup: Setup) -> int:  # noqa: ARG002
        """Messages of a worker's step in both directions, as they are simulated one by one: asked before any program is built."""
        return 0

    def message_bytes(self, setup: Setup) -> Sequence[float]:
        """Sizes of the messages that are sent between replicas or to servers; empty where none are."""
        tensors = self.tensors(setup)
        return [*(each.size_bytes for each in tensors.variables), *(each.size_bytes for each in tensors.gradients)]

    # -- 11. what it is called -------------------------------------------------------------
    # Users write the kind or a short name; a table of results has the kind and the variant, groups of results that are
    # alike have the way, tables and plans say it in words, and a curve of a report has a title.

    @property
    def way(self) -> str:
        """The strategy in two words, for groups of similar results: ``async PS``."""
        return self.name_of_kind()

    @property
    def in_words(self) -> str:
        """In few words, for tables and plans, with everything but its number of workers: ``async PS, 2 servers``."""
        return self.way

    def title(self, *, servers: bool = True) -> str:  # noqa: ARG002
        """For the curve of a report: as people say it, without its number of workers; ``servers``: with that of its servers."""
        return self.in_words[:1].upper() + self.in_words[1:]

    @final
    @classmethod
    def name_of_kind(cls) -> str:
        """The ``kind`` that a user writes."""
        return str(cls.model_fields["kind"].default)

    @final
    @property
    def variant(self) -> str:
        """Its mode or algorithm, as a table adds it to the kind; empty where there is none."""
        return str(getattr(self, self.variant_key)) if self.variant_key else ""

    @classmethod
    def keys_of_names(cls) -> tuple[str, ...]:
        """Keys that its names, its number of workers and that of its servers say already."""
        keys = ("kind", cls.count_key, cls.variant_key, "servers" if cls.has_servers else "")
        return tuple(key for key in keys if key)

    @classmethod
    def keys_for(cls, name: str, own: Mapping[str, Any]) -> dict[str, Any]:
        """``[strategy]`` under one of its short names, with what makes sense of a scenario's own keys of this kind."""
        return {**own, **cls.short_names[name]}

    # -- 12. the same with other numbers ---------------------------------------------------

    @final
    def with_count(self, count: int) -> Self:
        """With another number of workers (or of replicas, where one process drives all); itself where there is no such number."""
        return self.model_copy(update={self.count_key: count}) if self.count_key else self

    @final
    def with_servers(self, count: int) -> Self:
        """With another number of parameter servers; itself where it has none."""
        return self.model_copy(update={"servers": count}) if self.has_servers else self

    @final
    def with_devices_each(self, count: int) -> Self | None:
        """With this number of devices per worker; None where the strategy does not say how many these have."""
        return self.model_copy(update={"replicas_per_worker": count}) if "replicas_per_worker" in type(self).model_fields else None

    @final
    @property
    def compresses(self) -> bool:
        """Tell whether it sends gradients compressed."""
        return getattr(self, "compression", None) is not None

    def alone_with_servers(self) -> Self:
        """With one worker, and all servers; itself where there are none."""
        return self

    def fewer(self, replicas: int, before: int) -> Self:  # noqa: ARG002
        """With another number of replicas, validated again.

        Raises
        ------
        pydantic.ValidationError
            There is no such strategy.
        """
        return self.changed(**{self.count_key: replicas}) if self.count_key else self

    @final
    def changed(self, **keys: Any) -> Self:
        """With other keys, validated again."""
        return type(self).model_validate(self.model_dump() | keys)

    @final
    def given_and_default(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Every key with its value, and with its default."""
        fields = type(self).model_fields
        return {name: getattr(self, name) for name in fields}, {
            name: field.get_default(call_default_factory=True) for name, field in fields.items()
        }


def filled(cluster: Cluster, workers: int | None, each: int = 1) -> Layout:
    """Worker processes of some replicas each on node after node: as many as are given, else as fill the cluster."""
    fill = (cluster.room or 1) * cluster.replicas_per_node // each
    return Layout((workers or max(fill, 1)) * each, cluster.replicas_per_node, each)


def check_workers(cluster: Cluster, workers: int | None, replicas_per_worker: int = 1) -> None:
    """Raise ValueError if it is not known how many workers fill the cluster, or a node cannot hold whole ones."""
    if workers is None and cluster.room is None:
        raise ValueError("strategy.workers is missing: give it, cluster.nodes or cluster.available")
    if cluster.replicas_per_node % replicas_per_worker:
        raise ValueError(
            f"strategy.replicas_per_worker ({replicas_per_worker}) must divide the {cluster.replicas_per_node} replicas of a node "
            "(cluster.devices_per_node x cluster.replicas_per_device), because a worker is a process on one node"
        )


def device_of_training(setup: Setup) -> str:
    """The device that trains: the cluster's, or that which the workload's times are of; empty where neither names one."""
    return setup.cluster.device or setup.workload.device


def cost_left_open(compression: Compression, setup: Setup, cost_s: tuple[float, float]) -> Iterator[LeftOpen]:
    """Assumption on the cost of compression if not given; ``cost_s`` before and after what is sent."""
    given = compression.compress_per_byte_s, compression.decompress_per_byte_s
    if None not in given:
        return
    device = device_of_training(setup)
    rate = memory_bandwidth_of(device)
    if rate is None:
        reason = f"models/devices does not know {device!r}" if device else "neither cluster nor workload names a device"
        reason = f"{reason}, so compression costs nothing here; measure it and give both"
    else:
        reason = (
            f"lower limit: memory accesses of {device!r} at {format_rate(rate)}; implementations take longer, especially to find the "
            "largest values: measure it and give both"
        )
    before, after = map(format_seconds, cost_s)
    path = "strategy.compression.compress_per_byte_s, decompress_per_byte_s"
    yield LeftOpen(path, f"{before} before, {after} after a step's messages", reason)
