"""Which parts of a scenario exclude each other, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.placement import shard_count
from simulator.strategy import AllReduceStrategy, Mirrored, MultiWorkerMirrored, ParameterServer
from simulator.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from simulator.scenario import Scenario

__all__ = ["check"]

# beyond these a simulation would not end, or not fit into memory
_MOST_TENSORS = 1_000_000
_MOST_PAIRS = 5_000_000
_MOST_MESSAGES = 100_000_000
_MOST_PIECES = 100_000
_MOST_CYCLES = 10**12


def check(scenario: Scenario) -> None:
    """Raise ValueError, with a sentence that says why, if parts of a scenario exclude each other."""
    load, cluster = scenario.workload, scenario.cluster
    if (load.batch_per_replica is None) == (load.global_batch is None):
        has = (
            "neither batch_per_replica (weak scaling) nor global_batch (strong scaling)"
            if load.global_batch is None
            else f"both batch_per_replica ({load.batch_per_replica}) and global_batch ({load.global_batch})"
        )
        raise ValueError(f"workload has {has}; it needs exactly one of them")
    if isinstance(scenario.strategy, Mirrored) and scenario.replicas > cluster.replicas_per_node:
        raise ValueError(
            f"strategy.replicas ({scenario.replicas}) must be at most the {cluster.replicas_per_node} that one node takes "
            "(cluster.devices_per_node x cluster.replicas_per_device); over several nodes use multi-worker-mirrored"
        )
    if (
        isinstance(scenario.strategy, (MultiWorkerMirrored, ParameterServer))
        and scenario.strategy.workers is None
        and cluster.nodes is None
    ):
        raise ValueError("strategy.workers is left out and so is cluster.nodes; give one of them")
    in_graph = getattr(scenario.strategy, "replication", "") == "in-graph"
    if cluster.nodes is not None and scenario.nodes_needed > cluster.nodes:
        raise ValueError(
            f"cluster.nodes ({cluster.nodes}) must be at least {scenario.nodes_needed}, "
            f"which the strategy's {scenario.replicas} replicas and {scenario.servers} servers{' and the client' if in_graph else ''} need"
        )
    if (
        isinstance(scenario.strategy, (MultiWorkerMirrored, ParameterServer))
        and cluster.replicas_per_node % scenario.strategy.replicas_per_worker
    ):
        raise ValueError(
            f"strategy.replicas_per_worker ({scenario.strategy.replicas_per_worker}) must divide the {cluster.replicas_per_node} replicas "
            "that a node takes (cluster.devices_per_node x cluster.replicas_per_device), since a worker is a process on one node"
        )
    if load.global_batch is not None and load.global_batch % scenario.replicas:
        raise ValueError(f"workload.global_batch ({load.global_batch}) must be a multiple of the {scenario.replicas} replicas")
    if isinstance(scenario.strategy, ParameterServer):
        _check_servers(scenario, scenario.strategy)
    elif isinstance(scenario.strategy, AllReduceStrategy):
        _check_all_reduce(scenario, scenario.strategy)
    _check_run(scenario)


def _check_servers(scenario: Scenario, strategy: ParameterServer) -> None:
    """Rules between a parameter-server strategy and the rest."""
    if strategy.backup_workers >= scenario.processes:
        raise ValueError(
            f"strategy.backup_workers ({strategy.backup_workers}) must be below the {scenario.processes} workers: "
            "a step averages the gradients of the others, at least one"
        )
    tensors = sum(shard_count(variable, strategy.partitioner) for variable in scenario.workload.variables)
    if tensors > _MOST_TENSORS:
        raise ValueError(
            f"strategy.partitioner cuts the variables into {_counted(tensors)} shards; at most {_MOST_TENSORS:,} are simulated: "
            "take fewer or larger shards"
        )
    if scenario.servers > tensors:
        cut = "even as the partitioner cuts them" if strategy.partitioner else "since a variable is not cut without a partitioner"
        raise ValueError(f"strategy.servers ({scenario.servers}) must be at most the workload's {tensors} variables, {cut}")
    cluster = scenario.cluster
    if strategy.replicas_per_worker > 1 and (cluster.replicas_per_device > 1 or cluster.device_is_host or cluster.shared_cores is not None):
        raise ValueError(
            f"strategy.replicas_per_worker ({strategy.replicas_per_worker}) needs a device for each replica: leave out "
            "cluster.replicas_per_device, device_is_host and shared_cores"
        )
    if scenario.replicas * scenario.servers > _MOST_PAIRS:
        raise ValueError(
            f"strategy has {scenario.replicas:,} workers connected with {scenario.servers:,} servers; "
            f"at most {_MOST_PAIRS:,} pairs of them are simulated: take fewer servers"
        )
    grouped = min(tensors, scenario.servers)
    whole = scenario.run.grouping == "per-server"
    messages = scenario.replicas * ((grouped if whole or strategy.pulls == "together" else tensors) + (grouped if whole else tensors))
    if messages > _MOST_MESSAGES:
        raise ValueError(
            f"strategy sends {messages:,} messages a step (variables and gradients of {scenario.replicas:,} workers); at most "
            f'{_MOST_MESSAGES:,} are simulated: set run.grouping = "per-server", or take fewer shards'
        )
    if strategy.replication == "in-graph" and scenario.workload.input_bytes_per_sample is None:
        raise ValueError(
            'strategy.replication = "in-graph" needs workload.input_bytes_per_sample: '
            "the client sends each worker its input over the network"
        )
    if strategy.replication == "in-graph" and strategy.coordinator is not None:
        raise ValueError('strategy.coordinator and strategy.replication = "in-graph" exclude each other: the one client is its own driver')
    if strategy.late_workers == "cancel" and (scenario.cluster.replicas_per_device > 1 or scenario.cluster.device_is_host):
        raise ValueError('strategy.late_workers = "cancel" needs a device for each replica: what others share cannot be stopped for one')
    if scenario.cluster.servers_on_devices and scenario.cluster.devices_per_node > 1:
        raise ValueError("cluster.device_is_host needs devices_per_node = 1: a host has one CPU to share (or give cluster.shared_cores)")


def _check_all_reduce(scenario: Scenario, strategy: AllReduceStrategy) -> None:
    """Rules between an all-reduce strategy and the rest."""
    if strategy.through_host and scenario.cluster.host_link is None:
        raise ValueError("strategy.through_host needs cluster.host_link, over which gradients are copied to the host")
    if strategy.fusion_cycle_s is not None and strategy.bucket_size_bytes is None:
        raise ValueError("strategy.fusion_cycle needs strategy.bucket_size, the most that is fused (Horovod's fusion threshold)")
    at_once, by_messages = "is simulated for all ranks at once", scenario.run.detail == "messages"
    if scenario.run.detail == "at-once" and scenario.hosts_share_cores:
        raise ValueError(
            'run.detail = "at-once" evaluates an all-reduce without its single messages, for which the work of hosts on '
            'cluster.shared_cores queues: leave it out, or give "messages"'
        )
    for key, given in (("fusion_cycle", strategy.fusion_cycle_s is not None), ('priority = "forward"', strategy.priority == "forward"),
                       ("through_host", strategy.through_host)):  # fmt: skip
        if given and by_messages:
            raise ValueError(f'run.detail = "messages" goes rank by rank, but strategy.{key} {at_once}: keep one of them')
        if given and scenario.cluster.replicas_per_device > 1:
            raise ValueError(f"strategy.{key} {at_once}, which cluster.replicas_per_device above 1 rules out")
        if given and scenario.cluster.shared_cores is not None:
            raise ValueError(f"strategy.{key} {at_once}, which cluster.shared_cores rules out: keep one of them")
        if given and scenario.cluster.overlap_slowdown and key != "through_host":
            raise ValueError(f"strategy.{key} and cluster.overlap_slowdown cannot be simulated together yet: set one of them aside")
    if scenario.cluster.overlap_slowdown and scenario.cluster.shared_cores is not None:
        raise ValueError(f"cluster.overlap_slowdown {at_once} in an all-reduce, which cluster.shared_cores rules out: keep one of them")
    if scenario.cluster.overlap_slowdown and by_messages:
        raise ValueError(
            f'run.detail = "messages" goes rank by rank, but cluster.overlap_slowdown {at_once} in an all-reduce: keep one of them'
        )
    if strategy.sync_every > 1 and (strategy.bucket_size_bytes is not None or strategy.priority == "forward"):
        raise ValueError("strategy.sync_every averages whole variables after a step: bucket_size and priority have nothing to overlap with")
    measured = scenario.run.steps - scenario.run.warmup
    if strategy.sync_every > measured:
        raise ValueError(
            f"strategy.sync_every ({strategy.sync_every}) must be at most the {measured} steps that are measured "
            "(run.steps - run.warmup_steps), else replicas do not average in them: raise run.steps"
        )
    _check_messages(scenario, strategy)
    one_node = scenario.replicas <= scenario.cluster.replicas_per_node
    if strategy.algorithm in ("reduce-to-one-device", "hierarchical-copy") and not one_node:
        raise ValueError(f"strategy.algorithm = {strategy.algorithm!r} works among the devices of one node; over several take another")
    if strategy.algorithm == "hierarchical" and scenario.replicas % min(scenario.cluster.replicas_per_node, scenario.replicas):
        raise ValueError(
            f'strategy.algorithm = "hierarchical" needs full nodes: {scenario.replicas} replicas are no multiple of the '
            f"{scenario.cluster.replicas_per_node} that a node takes"
        )


def _check_messages(scenario: Scenario, strategy: AllReduceStrategy) -> None:
    """Rules that keep the messages of an all-reduce countable."""
    ranks, sizes = scenario.replicas, [variable.gradient_bytes(scenario.batch) for variable in scenario.workload.variables]
    fused, buckets = sum(sizes), 1
    if strategy.bucket_size_bytes is not None and strategy.sync_every == 1:
        fused = min(fused, strategy.bucket_size_bytes + max(sizes))
        buckets = max(1, round(min(sum(sizes) / strategy.bucket_size_bytes, len(sizes))))
    pieces = fused / strategy.pipeline_chunk_bytes if strategy.algorithm in ("double-binary-tree", "auto") else 0.0
    if pieces > _MOST_PIECES:
        raise ValueError(
            f"strategy.pipeline_chunk ({format_bytes(strategy.pipeline_chunk_bytes)}) cuts a buffer of {format_bytes(fused)} into "
            f"{_counted(pieces)} pieces; at most {_MOST_PIECES:,} are simulated: take larger ones"
        )
    if scenario.rank_messages:
        local = min(scenario.cluster.replicas_per_node, ranks)
        each = {
            "halving-doubling": 2 * ranks.bit_length(),
            "double-binary-tree": 2 * max(pieces, 1),
            "hierarchical": 2 * (local + ranks // local),
        }
        asked = scenario.run.detail == "messages"
        cause, nearly = ('run.detail = "messages"', ", which gives nearly the same times") if asked else ("cluster.shared_cores", "")
        if (messages := ranks * each.get(strategy.algorithm, 2 * ranks) * buckets) > _MOST_MESSAGES:
            raise ValueError(
                f"{cause} would simulate about {_counted(messages)} messages a step one by one; at most {_MOST_MESSAGES:,} are: "
                f"leave it out{nearly}"
            )
    if (
        strategy.fusion_cycle_s is not None
        and (cycles := scenario.run.steps * scenario.lone_step_s / strategy.fusion_cycle_s) > _MOST_CYCLES
    ):
        raise ValueError(
            f"strategy.fusion_cycle ({format_seconds(strategy.fusion_cycle_s)}) comes about {_counted(cycles)} times in this run; "
            f"at most {_counted(_MOST_CYCLES)} can be told apart: take a longer one"
        )


def _check_run(scenario: Scenario) -> None:
    """Rules between the run and the rest."""
    run, cluster = scenario.run, scenario.cluster
    if cluster.overlap_slowdown and (cluster.replicas_per_device > 1 or cluster.device_is_host):
        raise ValueError("cluster.overlap_slowdown is of a device that one replica has to itself: set replicas_per_device to 1")
    if cluster.shared_cores is not None and cluster.transport.cpu_per_byte_s:
        raise ValueError(
            "cluster.shared_cores and cluster.transport.cpu_per_byte exclude each other: work on bytes while they cross is not simulated "
            "on shared cores; give copy_per_byte, which is"
        )
    if cluster.shared_cores is not None and cluster.device_is_host and cluster.replicas_per_device > 1:
        raise ValueError(
            f"cluster.replicas_per_device ({cluster.replicas_per_device}) must be 1 where compute is on cluster.shared_cores: a task has "
            "a core to itself for its time slice; give devices_per_node"
        )
    asynchronous = isinstance(scenario.strategy, ParameterServer) and scenario.strategy.mode != "sync"
    if not asynchronous and run.job_steps is not None:
        raise ValueError(
            "run.job_steps is for asynchronous workers, which share a job's steps; where all make each step together, give run.steps"
        )
    if run.job_steps is not None and run.warmup * scenario.replicas >= run.job_steps:
        raise ValueError(
            f"run.warmup_steps ({run.warmup}) of each of {scenario.replicas} workers must be fewer than the job's {run.job_steps} steps"
        )
    if isinstance(scenario.strategy, ParameterServer) and scenario.strategy.mode == "ssp" and run.sharing == "shared" and run.drain:
        raise ValueError('run.drain with mode = "ssp" needs run.sharing = "each-its-own": clocks count the steps of each worker')


def _counted(number: float) -> str:
    """A count for reading: in full, or where that is too long, its size."""
    return f"{number:,.0f}" if number < 1e12 else f"{number:.1e}"
