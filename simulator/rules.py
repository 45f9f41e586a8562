"""Which parts of a scenario exclude each other, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.scenario import Scenario

__all__ = ["check"]


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
    strategy, layout = scenario.strategy, scenario.layout
    strategy.check_layout(cluster)
    if cluster.nodes is not None and layout.nodes > cluster.nodes:
        raise ValueError(
            f"cluster.nodes ({cluster.nodes}) must be at least {layout.nodes}, "
            f"which the strategy's {layout.replicas} replicas and {layout.servers} servers{' and the client' if layout.client else ''} need"
        )
    if load.global_batch is not None and load.global_batch % layout.replicas:
        raise ValueError(f"workload.global_batch ({load.global_batch}) must be a multiple of the {layout.replicas} replicas")
    strategy.check(scenario)
    _check_run(scenario)


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
    if not scenario.strategy.pace.asynchronous and run.job_steps is not None:
        raise ValueError(
            "run.job_steps is for asynchronous workers, which share a job's steps; where all make each step together, give run.steps"
        )
    if run.job_steps is not None and run.warmup * scenario.replicas >= run.job_steps:
        raise ValueError(
            f"run.warmup_steps ({run.warmup}) of each of {scenario.replicas} workers must be fewer than the job's {run.job_steps} steps"
        )
