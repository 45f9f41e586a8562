"""How long simulating a scenario takes, estimated before it is begun.

The model counts what a step is simulated with: messages of parameter servers, all-reduces
of all ranks at once, or their messages one by one. Its constants are of one core of a 2.x GHz
server processor; within a factor of about three it holds for every way of training. Where
the answer matters, :func:`timed_effort_s` brings it to the machine at hand with a run of
some steps.
"""

from __future__ import annotations

import time

from simulator.errors import SimulationError
from simulator.metrics import alone_scenario
from simulator.replication import replicate
from simulator.scenario import Scenario

__all__ = ["effort_s", "timed_effort_s"]

_REPLICATION_S = 1e-3
"""Draws of a replication, its and its baseline's beginning and end."""
_STEP_S = 40e-6
"""A step of one replica alone."""
_ALL_REDUCE_S, _RANK_STEP_S, _RANK_S = 75e-6, 0.6e-6, 50e-6
"""An all-reduce of all ranks at once; each rank's part in a step; preparing a rank."""
_WORKER_STEP_S, _MESSAGE_S = 12e-6, 18e-6
"""A step of a worker with parameter servers; a message, of variables or gradients."""
_RANK_MESSAGE_S = 9e-6
"""A message of an all-reduce that is simulated rank by rank."""
_SHARED_CORES = 2.0
"""Work of hosts on cores that all share makes as many events again."""
_TIMED_S = 0.3
"""What the run of some steps should take, and ten times what it may."""


def effort_s(scenario: Scenario) -> float:
    """Seconds of one core that all replications take, baselines included, by the model."""
    run = scenario.run
    lone_steps = run.steps if run.job_steps is None else -(-run.job_steps // scenario.replicas)
    return run.replications * (_REPLICATION_S + _replication_s(scenario) + lone_steps * _STEP_S)


def _replication_s(scenario: Scenario) -> float:
    """Seconds of one core that one replication takes besides, by the model."""
    strategy, replicas, run = scenario.strategy, scenario.replicas, scenario.run
    each_s = replicas * _RANK_S
    if scenario.servers:
        step_s = _WORKER_STEP_S + _MESSAGE_S * strategy.messages_a_step(scenario)
        return each_s + run.total_steps(replicas) * step_s * (_SHARED_CORES if scenario.cluster.shared_cores is not None else 1.0)
    step_s = _STEP_S + replicas * _RANK_STEP_S
    if strategy.reduction is not None and replicas > 1:
        fused = len(strategy.reduction.buckets(scenario.workload, scenario.batch, replicas)) / strategy.pace.every
        step_s += fused * (_RANK_MESSAGE_S * 2 * replicas * (replicas - 1) if scenario.rank_messages else _ALL_REDUCE_S)
    return each_s + run.steps * step_s


def timed_effort_s(scenario: Scenario) -> float:
    """:func:`effort_s`, brought to this machine with one replication of some steps.

    Takes about a third of a second; where a few steps alone would take seconds, the model's word stands.
    """
    run = scenario.run
    most = run.steps if run.job_steps is None else max(2, run.job_steps // scenario.replicas)
    fixed_s = scenario.replicas * _RANK_S
    step_s = (_replication_s(scenario) - fixed_s) / most
    steps = max(2, 2 * scenario.strategy.pace.every, round((_TIMED_S - fixed_s) / step_s))
    if steps >= most or fixed_s + steps * step_s > 10 * _TIMED_S:
        return effort_s(scenario)
    changes = {"steps": steps, "warmup_steps": 1, "job_steps": None}
    short = scenario.model_copy(update={"run": run.model_copy(update=changes)})
    begun_s = time.process_time()
    try:
        replicate(short, 0)
        replicate(alone_scenario(short), 0)
    except SimulationError:
        return effort_s(scenario)
    took_s = time.process_time() - begun_s
    return effort_s(scenario) * took_s / (effort_s(short) / run.replications)
