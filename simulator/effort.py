"""How long simulating a scenario takes, and how much memory, estimated before it is begun.

The model counts what a step is simulated with: messages of parameter servers, all-reduces
of all ranks at once, or their messages one by one, and what others send. Its constants are of one core of a 2.x GHz
server processor; within a factor of about three it holds for every way of training (benchmarks/effort.py measures that; an engine
that becomes faster or smaller needs other constants). Where
the answer matters, :func:`timed_effort_s` brings it to the machine at hand with a run of
some steps. Scenarios that do not fit into memory are refused here; whether a person is asked first is decided in ``paceline.lengthy``.
"""

from __future__ import annotations

import math
import time

from simulator.base.errors import InputError, SimulationError
from simulator.base.process import available_bytes
from simulator.base.text import format_bytes
from simulator.engine.choosing import Engine, engine_for, is_made, likely_engine
from simulator.engine.draws import ahead_of, block_of
from simulator.engine.replication import replicate
from simulator.estimate import background_events, buckets_a_step, expected_events
from simulator.job.costs import first_epoch
from simulator.resolve.resolve import alone_scenario
from simulator.results.what_if import tried
from simulator.scenario import Resolved

_REPLICATION_S = 2.5e-3
"""Draws of a replication, its and its baseline's beginning and end."""
_TRIES = 4
"""Average number of runs to find the limit: none if only one part can limit, else one per part and one without a change."""
_LONE_STEP_S = 1.5e-6
"""A step of the single-replica baseline."""
_STEP_S, _ALL_REDUCE_S, _RANK_STEP_S, _RANK_S = 14e-6, 24e-6, 0.2e-6, 5e-6
"""Of all ranks at once: a step, an all-reduce, each rank's part in a step, preparing a rank."""
_WORKER_S, _WORKER_STEP_S, _WORKER_EVENT_S = 300e-6, 60e-6, 45e-6
"""The textbook engine: preparing a rank; a step of it; what would be an event of the compiled engine."""
_SHARING = 40
"""Number of messages on servers' links with which its event takes twice as long, because all shares are computed again."""
_TABLES_S, _COMPILED_RANK_S, _EVENT_S, _DRAW_S = 4e-3, 4e-6, 0.25e-6, 0.5e-6
"""The compiled engine: its tables, those of a rank, an event, and what is drawn and counted of a step of one rank."""
_RANK_EVENT_S = 0.1e-6
"""Cost of an event of an all-reduce that is simulated rank by rank, in those of other events."""
_PYTHON_EVENT_S, _PYTHON_RANK_EVENT_S = 25e-6, 15e-6
"""Both without machine code."""
_TIMED_S = 0.3
"""Target time for the run of a few steps, and ten times the allowed time."""
_WORKER_BYTES, _MESSAGE_BYTES, _PAIR_BYTES = 17_000.0, 250.0, 3000.0
"""The textbook engine: a replica; each message of its step; each further server."""
_TOGETHER_BYTES, _BUCKET_BYTES = 600.0, 20.0
"""All ranks at once: a rank, and each bucket of it."""
_RANK_BY_RANK_BYTES, _PARTNER_BYTES = 20_000.0, 8000.0
"""A rank of all-reduces whose messages are simulated; by halving and doubling, for each rank that it exchanges with."""
_FACTOR_BYTES, _ROW_BYTES = 32.0, 16.0
"""A factor drawn ahead of the time: in a list of the rank's; in a table of all ranks, and on its way there."""
_LOADED_BYTES = 130e6
"""Numba, and the machine code of the compiled engine."""
_COMPILED_BYTES, _COMPILED_MESSAGE_BYTES, _COMPILED_PAIR_BYTES = 500.0, 50.0, 1000.0
"""The compiled engine: a rank without the factors drawn for it ahead, each message of its step, each further server of a worker."""
_COUNTS_BYTES, _SUMS_BYTES = 20.0, 8.0
"""Kept of a replica for each replication: how often each staleness came, where there is any; how long its device was in use."""
_NEVER_ASKED_BYTES = 256e6
"""Below this nobody looks how much there is."""


def effort_s(scenario: Resolved, engine: Engine | None = None) -> float:
    """Seconds of one core that all replications take, baselines included, by the model.

    Parameters
    ----------
    scenario
        What is simulated.
    engine
        By what; left out: by that which probably will. Loading or compiling its machine code once is not counted.
    """
    run = scenario.run
    engine = likely_engine(scenario) if engine is None else engine
    lone_steps = run.steps if run.job_steps is None else -(-run.job_steps // scenario.ranks)
    each_s = _REPLICATION_S + _replication_s(scenario, engine) + lone_steps * _LONE_STEP_S
    replications, each = tried(scenario)
    tries_s = _TRIES * replications * (_REPLICATION_S + _replication_s(each, engine)) if scenario.ranks > 1 else 0.0
    return (run.replications * each_s + tries_s) * _windows(scenario)


def _windows(scenario: Resolved) -> int:
    """How often steps like the scenario's are simulated: of a job also those of its first epoch, and by fewer workers."""
    job = scenario.job
    if job is None:
        return 1
    others = int(first_epoch(scenario) is not None)
    if (faults := scenario.faults) is not None and (faults.elastic or scenario.servers):
        others += _FEWER
    return 1 + others


_FEWER = 2
"""Numbers of missing workers that are mostly met."""


def _fixed_s(scenario: Resolved, engine: Engine) -> float:
    """Seconds before the first step of a replication."""
    if engine == "at-once":
        return scenario.ranks * _RANK_S
    return scenario.ranks * _WORKER_S if engine == "simpy" else _TABLES_S + scenario.ranks * _COMPILED_RANK_S


def _replication_s(scenario: Resolved, engine: Engine) -> float:
    """Seconds of one core that one replication takes besides, by the model."""
    strategy, replicas, run = scenario.strategy, scenario.ranks, scenario.run
    each_s, others, events = _fixed_s(scenario, engine), background_events(scenario), expected_events(scenario)
    if engine == "simpy":
        shared = 1.0 if scenario.cluster.transport.works_on_messages or not scenario.servers else 1.0 + replicas / _SHARING
        return each_s + _WORKER_EVENT_S * shared * events + _WORKER_STEP_S * run.total_steps(replicas)
    if engine != "at-once":
        event_s, rank_event_s = (_EVENT_S, _RANK_EVENT_S) if engine == "compiled" else (_PYTHON_EVENT_S, _PYTHON_RANK_EVENT_S)
        own_s = (rank_event_s if scenario.rank_messages else event_s) * (events - others)
        return each_s + own_s + event_s * others + _DRAW_S * run.total_steps(replicas)
    if replicas == 1:
        return each_s + run.steps * _LONE_STEP_S
    step_s = _STEP_S + replicas * _RANK_STEP_S + _ALL_REDUCE_S * buckets_a_step(scenario) / strategy.pace.every
    return each_s + run.steps * step_s


def memory_bytes(scenario: Resolved, engine: Engine) -> float:
    """Bytes of memory that simulating takes at most at a time, beyond those of an idle process.

    A model as that of the time: bytes a replica, from the peak memory of processes that
    simulated 1,000 to 200,000 of them; within a factor of about two.
    """
    run, strategy, replicas = scenario.run, scenario.strategy, scenario.ranks
    each = run.replications * (_COUNTS_BYTES if strategy.pace.asynchronous else _SUMS_BYTES)
    messages, further = strategy.messages_a_step(scenario), max(scenario.servers - 1, 0)
    if engine in ("compiled", "interpreted"):
        each += _COMPILED_BYTES + 8.0 * ahead_of(run.steps, 8 * replicas) + _COMPILED_MESSAGE_BYTES * messages
        each += _COMPILED_PAIR_BYTES * further + 8.0 * (min(scenario.input.prefetch, run.steps) if scenario.input is not None else 0)
        return _LOADED_BYTES + replicas * each
    factors, reduction = block_of(run.steps, replicas), strategy.reduction
    if scenario.rank_messages:
        halves = reduction is not None and reduction.algorithm == "halving-doubling"
        each += _PARTNER_BYTES * math.log2(replicas) if halves else _RANK_BY_RANK_BYTES
    elif engine == "simpy":
        each += _WORKER_BYTES + _FACTOR_BYTES * factors + _MESSAGE_BYTES * messages + _PAIR_BYTES * further
    else:
        each += _TOGETHER_BYTES + _ROW_BYTES * factors + _BUCKET_BYTES * buckets_a_step(scenario)
    return replicas * each


def check_memory(scenario: Resolved, engine: Engine | None = None) -> None:
    """Refuse a scenario that does not fit into memory before anything is built of it; ``engine`` as of :func:`effort_s`.

    Raises
    ------
    InputError
        It takes more than there is.
    """
    engine = likely_engine(scenario) if engine is None else engine
    needed = memory_bytes(scenario, engine)
    if needed <= _NEVER_ASKED_BYTES:
        return
    there = available_bytes()
    if there is not None and needed > there:
        raise InputError(
            f"simulating {scenario.ranks:,} replicas takes about {format_bytes(needed)} of memory (engine {engine}), but "
            f"{format_bytes(there)} is available: use fewer {'workers or servers' if scenario.servers else 'replicas'}, fewer "
            'run.replications, or run.grouping = "per-server" if servers hold many variables'
        )


def timed_effort_s(scenario: Resolved) -> float:
    """:func:`effort_s`, brought to this machine with one replication of some steps.

    Takes about a third of a second; if even a few steps would take seconds, or code would have to be compiled, the model's estimate is
    used.
    """
    run = scenario.run
    if likely_engine(scenario) == "compiled" and not is_made():
        return effort_s(scenario)  # a question is asked before machine code is made, which takes longer than the answer
    engine = engine_for(scenario)
    most = run.steps if run.job_steps is None else max(2, run.job_steps // scenario.ranks)
    fixed_s = _fixed_s(scenario, engine)
    step_s = (_replication_s(scenario, engine) - fixed_s) / most
    steps = max(2, 2 * scenario.strategy.pace.every, round((_TIMED_S - fixed_s) / step_s))
    if steps >= most or fixed_s + steps * step_s > 10 * _TIMED_S:
        return effort_s(scenario)
    short = scenario.replaced({"run.steps": steps, "run.warmup_steps": 1, "run.job_steps": None, "job": None})
    begun_s = time.process_time()
    try:
        replicate(short, 0, engine=engine)
        replicate(alone_scenario(short), 0)
    except SimulationError:
        return effort_s(scenario)
    took_s = time.process_time() - begun_s
    return effort_s(scenario, engine) * took_s / (effort_s(short, engine) / run.replications)
