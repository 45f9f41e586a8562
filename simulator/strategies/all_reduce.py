"""The common part of strategies whose replicas make each step together and all-reduce their gradients: keys, rules, program of a step.

Every replica computes forward and backward on its own batch; gradients are fused into buckets in the order in which they become ready (Li
et al., "PyTorch Distributed", VLDB 2020, section 3.2.2; TensorFlow's ``bytes_per_pack``), each bucket is all-reduced while the backward
pass goes on, and every replica applies the same mean. A single replica has nothing to reduce. With ``sync_every`` above 1 (local SGD:
Stich, ICLR 2019) each replica applies its own gradients, and the variables are averaged now and then. The algorithms themselves are in
``simulator.collectives``; a new one is named in :data:`Algorithm` too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from simulator.base.rng import Streams
from simulator.base.spec import MessageBytes, Time, Usual
from simulator.base.text import format_bytes, format_count, written
from simulator.collectives.factory import IN_SWITCHES
from simulator.collectives.wire import exchanges_of
from simulator.program.program import Exchange, HostCopies, Operation, Program, Routine, Rules
from simulator.program.program import Reduction as Rule
from simulator.program.schedule import ALGORITHMS
from simulator.program.wiring import Wiring
from simulator.spec.accelerator import memory_bandwidth_of
from simulator.spec.cluster import Cluster
from simulator.spec.gradients import Bucket, Compression
from simulator.strategies.assembling import assembled, collective_of, pace_together, seats
from simulator.strategies.pipelines import feeds_in_turn
from simulator.strategies.setup import Setup
from simulator.strategies.strategy import (
    MOST_MESSAGES,
    LeftOpen,
    Pace,
    Reduction,
    Sending,
    Software,
    StepExchange,
    Strategy,
    cost_left_open,
    device_of_training,
)

# beyond these a simulation would not end, or not fit into memory
_MOST_PIECES = 100_000
_MOST_CYCLES = 10**12
_IN_TURN = (
    "which is impossible with input pipelines that share cores or storage (cluster.host_cores, cluster.storage): keep one of them, or "
    "give them more"
)

Algorithm = Literal[
    "ring",
    "bidirectional-ring",
    "halving-doubling",
    "double-binary-tree",
    "hierarchical",
    "reduce-to-one-device",
    "hierarchical-copy",
    "sharp",
    "nvls",
    "auto",
]


def check_switches(algorithm: str, protocol: str, cluster: Cluster) -> None:
    """Raise ValueError where switches are to add and the cluster has none that can, or where that is not how they do it."""
    if algorithm not in IN_SWITCHES:
        return
    if algorithm == "sharp" and (cluster.fabric is None or not cluster.fabric.sharp):
        raise ValueError(
            'strategy.algorithm = "sharp" needs switches that sum gradients: set cluster.fabric.sharp, or use another algorithm'
        )
    if algorithm == "nvls" and cluster.nvls is None:
        raise ValueError(
            'strategy.algorithm = "nvls" needs NVSwitches that sum gradients (Hopper and later): set cluster.nvls, or use another algorithm'
        )
    if protocol not in ("none", "simple", "auto"):
        raise ValueError(
            f'strategy.algorithm = "{algorithm}" uses only NCCL\'s protocol "simple": protocol = "{protocol}" must be "simple" or "none"'
        )
    if cluster.transport.has_hosts and cluster.fabric is not None and cluster.fabric.sharp:
        raise ValueError(
            f'strategy.algorithm = "{algorithm}": traffic that switches sum uses RDMA, without the host work and ordering of '
            "cluster.transport: leave cluster.transport out, or use another algorithm"
        )


_COMPRESSED_BY: Mapping[str, tuple[Software, ...]] = {"fp16": ("horovod", "pytorch"), "powersgd": ("pytorch",)}
"""Software that compresses gradients, by kind of compression."""


class AllReduceStrategy(Strategy, only=("compression",)):
    """Common base of strategies that all-reduce."""

    variant_key: ClassVar[str] = "algorithm"

    algorithm: Algorithm = Field(
        default="ring",
        description="all-reduce algorithm. auto: the fastest for each bucket size; with one of NCCL's protocols, among NCCL's algorithms "
        "(ring, double-binary-tree, and sharp and nvls if the cluster has them); with protocol = none, among all",
    )
    protocol: Literal["none", "simple", "ll", "ll128", "auto"] = Field(
        default="none", description="message costs and extra bytes, from cluster.protocols; none: only those of the links"
    )
    pipeline_chunk_bytes: MessageBytes = Field(
        default=512 * 1024.0, description="size of the pieces that the double binary tree and summing switches forward"
    )
    bucket_size_bytes: MessageBytes | None = Field(
        default=None,
        description="gradients are fused into all-reduces of at least this size as they become ready "
        "(tf.distribute's bytes_per_pack); with fusion_cycle, of at most this size; left out: one all-reduce after the backward pass",
    )
    fusion_cycle_s: Annotated[Time, Field(ge=1e-6), Usual(1e-6, 60.0)] | None = Field(
        default=None,
        description="period of fusion: in each cycle, gradients that are ready on all replicas are fused and reduced (Horovod's "
        "HOROVOD_CYCLE_TIME); cycles start at 0 s",
    )
    priority: Literal["ready", "forward"] = Field(
        default="ready",
        description="order of buckets. ready: as they become ready, all before the next step begins; forward: as the next forward pass "
        "needs them, and it begins when the first have arrived; the update is divided by the bytes of each bucket "
        "(ByteScheduler, P3)",
    )
    through_host: bool = Field(
        default=False,
        description="true: gradients are copied to the host, reduced there and copied back (gRPC rings); needs cluster.host_link",
    )
    sync_every: int = Field(
        default=1,
        ge=1,
        le=10**6,
        description="local SGD: number of steps between averages of the replicas' variables",
    )
    compression: Compression | None = Field(default=None, description="compression of gradients before they are sent; left out: none")

    @property
    def pace(self) -> Pace:
        """All together, every step or every few steps."""
        return Pace(every=self.sync_every)

    @property
    def reduction(self) -> Reduction:
        """The all-reduce of a step."""
        return Reduction(
            algorithm=self.algorithm,
            protocol=self.protocol,
            pipeline_chunk_bytes=self.pipeline_chunk_bytes,
            bucket_size_bytes=self.bucket_size_bytes,
            in_cycles=self.fusion_cycle_s is not None,
            forward_first=self.priority == "forward",
            through_host=self.through_host,
            compression=self.compression,
        )

    def program(self, setup: Setup, streams: Streams) -> Program:
        """Compute, reduce each bucket as it becomes ready, apply; of local SGD apply, and average now and then."""
        return program_together(setup, streams, self)

    def rule_of_reduction(self, setup: Setup) -> Rule:
        """How several replicas reduce their buckets, beyond one after the other."""
        copies, link = None, setup.cluster.host_link
        if self.through_host and link is not None:
            # of a link that several devices share each has its equal part: the replicas of a node copy at about the same time
            sharing = min(setup.cluster.devices_per_host_link, setup.layout.replicas)
            copies = HostCopies(link.latency_s, sharing / link.bandwidth_bytes_per_s)
        return Rule(self.fusion_cycle_s, self.bucket_size_bytes or math.inf, self.priority == "forward", copies)

    def sending(self, setup: Setup) -> Sending:
        """By the hosts where these reduce; replicas that average now and then do so after a step."""
        return super().sending(setup)._replace(through_host=self.through_host, apart=self.sync_every > 1)

    def check(self, setup: Setup) -> None:
        """Raise ValueError, with a sentence that says why, if another part of the scenario excludes it."""
        cluster, replicas = setup.cluster, setup.layout.replicas
        if self.through_host and cluster.host_link is None:
            raise ValueError("strategy.through_host needs cluster.host_link, which copies gradients to the host")
        if self.fusion_cycle_s is not None and self.bucket_size_bytes is None:
            raise ValueError("strategy.fusion_cycle needs strategy.bucket_size, the maximum size fused (Horovod's fusion threshold)")
        self._check_at_once(setup)
        self._check_compression()
        if self.sync_every > 1 and (self.bucket_size_bytes is not None or self.priority == "forward"):
            raise ValueError(
                "strategy.sync_every averages whole variables after a step, so bucket_size and priority have no effect: leave them out"
            )
        measured = setup.run.steps - setup.run.warmup
        if self.sync_every > measured:
            raise ValueError(
                f"strategy.sync_every ({self.sync_every}) must be at most the {measured} measured steps (run.steps - run.warmup_steps), "
                "so that replicas average in them: raise run.steps"
            )
        self._check_messages(setup)
        if self.algorithm in ("reduce-to-one-device", "hierarchical-copy") and replicas > cluster.replicas_per_node:
            raise ValueError(f"strategy.algorithm = {self.algorithm!r} works only within one node: use another algorithm for several nodes")
        if self.algorithm == "hierarchical" and replicas % min(cluster.replicas_per_node, replicas):
            raise ValueError(
                f'strategy.algorithm = "hierarchical" needs full nodes: {replicas} replicas are not a multiple of the '
                f"{cluster.replicas_per_node} per node"
            )

        check_switches(self.algorithm, self.protocol, cluster)
        if self.algorithm == "nvls" and min(cluster.replicas_joined, replicas) == 1:
            raise ValueError(
                'strategy.algorithm = "nvls" needs several devices per node, and here each node has one: use "sharp" or "ring"'
            )

    def _check_at_once(self, setup: Setup) -> None:
        """Rules of what is simulated for all ranks at once."""
        cluster, run, at_once = setup.cluster, setup.run, "is simulated for all ranks at once"
        by_messages = run.detail == "messages" or setup.follows_trace
        cause = 'run.detail = "messages" goes' if run.detail == "messages" else "cluster.background.trace is followed"
        constant = ", or a constant cluster.background.load"
        for asked, single_messages, other in (
            (setup.hosts_share_cores, "whose host work queues for cluster.shared_cores", ""),
            (setup.follows_trace, "which cluster.background.trace slows down one by one", constant),
            (setup.reads_share_links, "which share links with reads of input pipelines (cluster.storage.over_network)", ""),
        ):
            if asked and run.detail == "at-once":
                raise ValueError(
                    f'run.detail = "at-once" does not simulate single messages, {single_messages}: leave it out, or give "messages"{other}'
                )
        for key, asked, where in (
            ("strategy.fusion_cycle", self.fusion_cycle_s is not None, ""),
            ('strategy.priority = "forward"', self.priority == "forward", ""),
            ("strategy.through_host", self.through_host, ""),
            ("cluster.overlap_slowdown", bool(cluster.overlap_slowdown), " in an all-reduce"),
        ):
            if not asked:
                continue
            if where and cluster.shared_cores is not None:
                raise ValueError(f"{key} {at_once}{where}, which is impossible with cluster.shared_cores: keep one of them")
            if setup.reads_share_links:
                raise ValueError(f"{key} {at_once}, which is impossible with cluster.storage.over_network: keep one of them")
            if feeds_in_turn(setup):
                raise ValueError(f"{key} {at_once}{where}, {_IN_TURN}")
            if by_messages:
                raise ValueError(f"{cause} rank by rank, but {key} {at_once}{where}: keep one of them")
            if cluster.replicas_per_device > 1 and not where:
                raise ValueError(f"{key} {at_once}, which is impossible with cluster.replicas_per_device above 1")
            if cluster.shared_cores is not None:
                raise ValueError(f"{key} {at_once}, which is impossible with cluster.shared_cores: keep one of them")
            if cluster.overlap_slowdown and key != "strategy.through_host" and not where:
                raise ValueError(f"{key} and cluster.overlap_slowdown cannot be simulated together: leave one of them out")

    def _check_compression(self) -> None:
        """Options that compressed gradients exclude."""
        if (compression := self.compression) is None:
            return
        if self.sync_every > 1:
            raise ValueError("strategy.compression applies to gradients, but strategy.sync_every averages variables: keep one of them")
        if compression.gathers:
            names = ALGORITHMS["all-gather"]
            what = f'strategy.compression.kind = "{compression.kind}" sends data that cannot be summed on the way, so all ranks gather it'
            if self.algorithm not in (*names, "auto"):
                raise ValueError(f'{what}, which strategy.algorithm = "{self.algorithm}" cannot: give {" or ".join(names)}')
            if self.through_host:
                raise ValueError(f"{what}: strategy.through_host, where hosts sum gradients, supports only fp16 and powersgd")
        if compression.rounds > 1 and (self.fusion_cycle_s is not None or self.priority == "forward"):
            raise ValueError(
                f'strategy.compression.kind = "{compression.kind}" needs two all-reduces in sequence, which fusion_cycle and priority = '
                '"forward" may reorder: leave them out'
            )

    def _check_messages(self, setup: Setup) -> None:
        """Rules that keep the messages of an all-reduce countable."""
        ranks, sizes = setup.layout.replicas, self.pushed_bytes(setup)
        fused, buckets = math.fsum(sizes), 1
        if self.bucket_size_bytes is not None and self.sync_every == 1:
            fused = min(fused, self.bucket_size_bytes + max(sizes))
            buckets = max(1, round(min(math.fsum(sizes) / self.bucket_size_bytes, len(sizes))))
        in_pieces = ("double-binary-tree", "sharp", "nvls", "auto")
        pieces = fused / self.pipeline_chunk_bytes if self.algorithm in in_pieces else 0.0
        if pieces > _MOST_PIECES:
            raise ValueError(
                f"strategy.pipeline_chunk ({written(self.pipeline_chunk_bytes, 'setting_bytes')}) cuts a buffer of {format_bytes(fused)} "
                f"into {format_count(pieces)} pieces, but at most {_MOST_PIECES:,} can be simulated: use larger pieces"
            )
        if setup.rank_messages:
            local = min(setup.cluster.replicas_per_node, ranks)
            each = {
                "halving-doubling": 2 * ranks.bit_length(),
                "double-binary-tree": 2 * max(pieces, 1),
                "hierarchical": 2 * (local + ranks // local),
                "sharp": 2 * local + 2 * max(pieces / local, 1),
                "nvls": 4 + 2 * max(pieces, local),
            }
            asked = setup.run.detail == "messages"
            cause, nearly = ('run.detail = "messages"', ", which gives almost the same times") if asked else ("cluster.shared_cores", "")
            if setup.follows_trace and not asked:
                cause, nearly = "cluster.background.trace", ", or give a constant cluster.background.load, which is evaluated at once"
            if not asked and setup.reads_share_links:
                cause = "cluster.storage.over_network"
            if (messages := ranks * each.get(self.algorithm, 2 * ranks) * buckets) > MOST_MESSAGES:
                raise ValueError(
                    f"{cause} would simulate about {format_count(messages)} single messages per step, but at most {MOST_MESSAGES:,} can "
                    f"be simulated: leave it out{nearly}"
                )
        if self.fusion_cycle_s is not None and (cycles := setup.run.steps * self.lone_step_s(setup) / self.fusion_cycle_s) > _MOST_CYCLES:
            raise ValueError(
                f"strategy.fusion_cycle ({written(self.fusion_cycle_s, 'setting_s')}) occurs about {format_count(cycles)} times in this "
                f"run, but at most {format_count(_MOST_CYCLES)} can be simulated: use a longer one"
            )

    def encoding_s(self, setup: Setup) -> tuple[float, float]:
        """Seconds of compression; a single replica has nothing to send."""
        if self.compression is None or setup.layout.replicas == 1:
            return 0.0, 0.0
        rate = memory_bandwidth_of(device_of_training(setup))
        return self.compression.among_replicas_s(setup.workload.variables, rate, setup.layout.replicas)

    def encoded(self) -> Self:
        """With compression that costs nothing."""
        assert self.compression is not None
        free = self.compression.model_copy(update={"compress_per_byte_s": 0.0, "decompress_per_byte_s": 0.0})
        return self.model_copy(update={"compression": free})

    def left_open(self, setup: Setup) -> Iterator[LeftOpen]:
        """Yield what compression costs, where it is not given."""
        if self.compression is not None and setup.layout.replicas > 1:
            yield from cost_left_open(self.compression, setup, self.encoding_s(setup))

    def exchange(self, setup: Setup) -> StepExchange:
        """After its compute, turns of a ring that goes round all ranks but one: twice to be added and spread, once to be gathered."""
        cluster, layout = setup.cluster, setup.layout
        link, wire, copy_s = cluster.intra_node, 1.0, 0.0  # of both hosts, for each byte on the wire
        if self.link == "inter_node":
            link, wire = cluster.inter_node, cluster.transport.wire_bytes_per_byte
            copy_s = 2 * cluster.transport.copy_per_byte_s / cluster.transport.wire_bytes_per_byte
        sizes = [math.fsum(self.pushed_bytes(setup))]  # of the collectives that all gradients together need
        if self.compression is not None:
            sizes = self.reduction.as_one(setup.workload, setup.batch, layout.replicas)
        turns = (1 if self.reduction.does == "all-gather" else 2) * (layout.replicas - 1)
        chunks = [size * wire / layout.replicas for size in sizes]
        transfers_s = tuple(float(turns * (chunk / link.bandwidth_bytes_per_s + link.latency_s + copy_s * chunk)) for chunk in chunks)
        return StepExchange(transfers_s, copied_bytes=turns / layout.replicas * math.fsum(sizes) if layout.worker_nodes > 1 else 0.0)

    def message_bytes(self, setup: Setup) -> Sequence[float]:
        """Each of n replicas sends the n-th part of a bucket at a time."""
        replicas = setup.layout.replicas
        fused = self.reduction._replace(in_cycles=False).buckets(setup.workload, setup.batch, replicas)
        return [bucket.size_bytes / replicas for bucket in fused]

    @property
    def way(self) -> str:
        """The algorithm, and that it is an all-reduce."""
        return f"{self.algorithm.upper() if self.algorithm in IN_SWITCHES else self.algorithm} all-reduce"

    @property
    def fuses(self) -> bool:
        """Unless whole variables are averaged now and then."""
        return self.sync_every == 1

    @property
    def software(self) -> tuple[Software, ...]:
        """All that reduce gradients; what only one does to them leaves that one.

        Fusion by cycles is Horovod's (``HOROVOD_CYCLE_TIME``), local SGD PyTorch's (``PostLocalSGDOptimizer``), PowerSGD a hook of
        PyTorch's DDP, gradients in 16 bits an option of Horovod and a hook of DDP; the next forward pass before all has come is research
        code's (ByteScheduler, P3), and so are sparsified gradients.
        """
        if self.priority == "forward" or (self.compression is not None and self.compression.kind not in _COMPRESSED_BY):
            return ()
        able: tuple[Software, ...] = ("tensorflow", "horovod", "pytorch", "deepspeed", "megatron-lm")
        if self.algorithm in ("reduce-to-one-device", "hierarchical-copy"):
            able = ("tensorflow",)
        elif self.algorithm == "halving-doubling":  # of MPI and Gloo, not of NCCL
            able = ("horovod", "pytorch")
        only = [_COMPRESSED_BY[self.compression.kind]] if self.compression is not None else []
        only += [("horovod",)] if self.fusion_cycle_s is not None else []
        only += [("pytorch",)] if self.sync_every > 1 else []
        return tuple(name for name in able if all(name in names for names in only))

    @property
    def in_words(self) -> str:
        """In few words, without its number of workers."""
        return f"{self.way}{self._local}"

    @property
    def _local(self) -> str:
        """Return what goes behind the way: when replicas average, and what they send."""
        local = f", every {self.sync_every} steps" if self.sync_every > 1 else ""
        return f"{local}, {self.compression.in_words}" if self.compression is not None else local


# -- the program -------------------------------------------------------------------------


def program_together(setup: Setup, streams: Streams, strategy: AllReduceStrategy | None = None) -> Program:
    """Return the program of synchronous replicas, or of a single replica.

    Compute, reduce each bucket as it becomes ready, apply; of local SGD apply, and average now and then.

    Parameters
    ----------
    setup
        As drawn for a replication.
    streams
        Choose the routes of connections.
    strategy
        Says what they reduce, and how; none: nothing.
    """
    ranks, every = setup.layout.replicas, 1 if strategy is None else strategy.sync_every
    reduction = strategy.reduction if strategy is not None and ranks > 1 else None
    wiring = Wiring(setup.cluster, streams, device_pace=pace_together(setup))
    seat = seats(setup, wiring)
    fused = [Bucket(1.0, 0.0)] if reduction is None or every > 1 else reduction.buckets(setup.workload, setup.batch, ranks)
    operations = [Operation(kind="gate", name="turn"), Operation(kind="gate", name="input", after=(0,))]
    reduced: list[int] = []
    done = 0.0
    for number, (ready, size_bytes) in enumerate(fused):
        name, after, forward = ("backward", (), 0.0) if number else ("forward and backward", (1,), 1.0)
        operations.append(Operation(kind="compute", name=name, after=after, forward=forward, backward=ready - done))
        done = ready
        if reduction is not None and every == 1:
            does, computed = reduction.does, len(operations) - 1
            reduced.append(len(operations))
            operations.append(Operation(kind="collective", name=does, does=does, number=number, after=(computed,), size_bytes=size_bytes,
                                        bucket=number, ready=ready))  # fmt: skip
    updated = len(operations)
    operations.append(Operation(kind="compute", name="apply", after=tuple(reduced), apply=1.0))
    if reduction is not None and every > 1:
        size_bytes = setup.workload.parameter_bytes
        operations.append(Operation(kind="collective", name="average", after=(updated,), size_bytes=size_bytes, bucket=0, every=every))
    exchanges: tuple[Exchange, ...] = ()
    collective = collective_of(setup, reduction, streams) if setup.rank_messages else None
    if collective is not None:
        sizes = [operation.size_bytes for operation in operations if operation.kind == "collective"]
        exchanges = exchanges_of(wiring, [collective.plan(size_bytes) for size_bytes in sizes], sizes)
    rule = strategy.rule_of_reduction(setup) if strategy is not None and reduction is not None else None
    rules = Rules(steps_each=setup.run.steps, sync_every=every, reduction=rule)
    slowdown = None if ranks > 1 else 0.0  # one alone has nothing to communicate
    program = assembled(setup, wiring, "replica", Routine(tuple(operations)), rules, seat, slowdown=slowdown)
    return replace(program, exchanges=exchanges)
