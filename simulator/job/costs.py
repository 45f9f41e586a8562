"""What a job consists of besides its windows: its epochs in steps, and what each thing beside steps takes in one run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simulator.errors import ScenarioError
from simulator.job.intervals import best_interval_s
from simulator.job.spec import Checkpoint, Faults, Job
from simulator.memory import state_bytes
from simulator.overheads import Duration, Overheads
from simulator.scenario import Scenario

__all__ = ["Course", "Writing", "course_of", "evaluation_batch", "step_samples", "stopping_mtbf_s", "whole_mtbf_s", "writing_of"]

_NOTHING = Duration(value_s=0.0, low_s=0.0, high_s=0.0)


@dataclass(frozen=True, slots=True)
class Writing:
    """What a checkpoint costs.

    Attributes
    ----------
    stop_s
        For which training waits each time.
    lasts_s
        After that, until it can be read again; 0 where training waits for all of it.
    restore_s
        To read it.
    size_bytes
        Of one.
    """

    stop_s: float
    lasts_s: float
    restore_s: float
    size_bytes: float


@dataclass(frozen=True, slots=True)
class Course:
    """A job as it goes without faults, in one run.

    Attributes
    ----------
    epochs
        Steps of each; whole where the data set's size is known.
    step_s, first_step_s
        Seconds of a step at full strength: of most epochs, and while the input pipeline's cache fills.
    startup_s, tracing_s, evaluation_tracing_s
        Once for each start of the processes.
    filling_s, first_filling_s
        From an epoch's begin until its first batch is there.
    evaluation_s, evaluation_every
        Seconds of one, and epochs between them; 0: none.
    writing
        Of checkpoints; none: none is written.
    write_steps, write_epochs
        Steps, or epochs, between them; 0 for the one that does not count.
    """

    epochs: tuple[float, ...]
    step_s: float
    first_step_s: float
    startup_s: float
    tracing_s: float
    evaluation_tracing_s: float
    filling_s: float
    first_filling_s: float
    evaluation_s: float
    evaluation_every: int
    writing: Writing | None
    write_steps: float
    write_epochs: int

    @property
    def steps(self) -> float:
        """Of the whole job."""
        return math.fsum(self.epochs)

    def evaluates(self, epoch: int) -> bool:
        """Whether an evaluation follows an epoch, counted from 0."""
        return bool(self.evaluation_every) and (epoch + 1) % self.evaluation_every == 0

    def writes_after(self, epoch: int) -> bool:
        """Whether a checkpoint follows an epoch, counted from 0."""
        return bool(self.write_epochs) and (epoch + 1) % self.write_epochs == 0


def step_samples(scenario: Scenario) -> int:
    """Samples of a step of the job: of all replicas whose gradients it takes, or of an asynchronous update."""
    pace = scenario.strategy.pace
    return scenario.batch * (1 if pace.asynchronous else pace.awaited(scenario.replicas))


def evaluation_batch(scenario: Scenario) -> int:
    """Samples that each replica takes at a time in an evaluation: no more than there are for it; 1 without one."""
    evaluation = scenario.job.evaluation if scenario.job is not None else None
    if evaluation is None:
        return 1
    return min(evaluation.batch or scenario.batch, max(math.ceil(evaluation.samples / scenario.replicas), 1))


def course_of(scenario: Scenario, step_s: float, first_step_s: float, evaluation_step_s: float, draw: np.random.Generator) -> Course:
    """The course of one run, which does not yet wait for first batches.

    Parameters
    ----------
    scenario
        Resolved, with a job.
    step_s, first_step_s
        As of :class:`Course`.
    evaluation_step_s
        Of a step of an evaluation on all replicas.
    draw
        Decides what start-up and tracing take in this run.

    Raises
    ------
    ScenarioError
        Nothing says how fast checkpoints are written.
    """
    job = scenario.job
    assert job is not None
    known = scenario.workload.overheads or Overheads()
    chance = draw.random(3)
    # measured with one replica: a process traces the step once for each of its own (tensorflow/python/distribute/mirrored_run.py)
    times = scenario.layout.replicas_per_process
    startup, tracing, evaluating = (
        float(given.quantile_s(float(at)) if given is not None else many * (measured or _NOTHING).quantile_s(float(at)))
        for given, measured, many, at in zip(
            (job.startup, job.tracing, job.evaluation_tracing),
            (known.startup, known.tracing, known.evaluation_tracing),
            (1, times, times),
            chance,
            strict=True,
        )
    )
    steps = tuple(_epochs(job, step_samples(scenario)))
    writing = writing_of(scenario)
    write_steps, write_epochs = _how_often(scenario, job.checkpoint, writing, step_s)
    if writing is not None and writing.lasts_s:
        # the next one begins when this one has been written
        stall_s = max(writing.lasts_s - (write_steps or write_epochs * steps[0] or math.inf) * step_s, 0.0)
        writing = Writing(writing.stop_s + stall_s, writing.lasts_s, writing.restore_s, writing.size_bytes)
    evaluation = job.evaluation
    each = evaluation_batch(scenario) * scenario.replicas
    return Course(
        epochs=steps,
        step_s=step_s,
        first_step_s=first_step_s,
        startup_s=startup,
        tracing_s=tracing,
        evaluation_tracing_s=evaluating if evaluation is not None else 0.0,
        filling_s=0.0,
        first_filling_s=0.0,
        evaluation_s=0.0 if evaluation is None else math.ceil(evaluation.samples / each) * evaluation_step_s,
        evaluation_every=0 if evaluation is None else evaluation.every_epochs,
        writing=writing,
        write_steps=write_steps,
        write_epochs=write_epochs,
    )


def _epochs(job: Job, samples: int) -> Iterator[float]:
    """Steps of each epoch: its last batch may be smaller, and is a step all the same."""
    total, each = job.total_samples, job.epoch_samples
    whole = int(total / each * (1 + _ROUNDING))
    sized = [each] * whole + ([total - whole * each] if total - whole * each > _ROUNDING * total else [])
    for size in sized:
        yield size / samples if job.dataset_size is None else float(math.ceil(size / samples * (1 - _ROUNDING)))


_ROUNDING = 1e-12


def _how_often(scenario: Scenario, checkpoint: Checkpoint | None, writing: Writing | None, step_s: float) -> tuple[float, int]:
    """Steps, or epochs, between checkpoints."""
    if checkpoint is None or writing is None:
        return 0.0, 0
    if checkpoint.every_epochs is not None:
        return 0.0, checkpoint.every_epochs
    if checkpoint.every_steps is not None:
        return float(checkpoint.every_steps), 0
    interval_s = checkpoint.every_s
    if interval_s is None:
        mtbf_s = stopping_mtbf_s(scenario)
        if mtbf_s is None:  # no fault destroys work
            return 0.0, 0
        # one that is still being written holds the next up
        interval_s = max(best_interval_s(max(writing.stop_s, _LEAST_S), mtbf_s), writing.lasts_s)
    return float(max(math.ceil(interval_s / step_s * (1 - _ROUNDING)), 1)), 0


_LEAST_S = 1e-6


def writing_of(scenario: Scenario) -> Writing | None:
    """What a checkpoint costs, as far as it does not depend on how often it is written; None where there is none.

    Of whole copies one process writes (the chief); where the state is spread over servers or devices, each of their nodes writes
    its part at the same time. Every node reads it again, all at the same time.

    Raises
    ------
    ScenarioError
        Nothing says how fast.
    """
    checkpoint = scenario.job.checkpoint if scenario.job is not None else None
    if checkpoint is None:
        return None
    known, storage = scenario.workload.overheads or Overheads(), scenario.cluster.storage
    size = checkpoint.size_bytes or known.checkpoint_bytes or state_bytes(scenario)
    latency_s = storage.latency_s if storage is not None else 0.0
    writers = _writers(scenario)
    write = checkpoint.write_bytes_per_s
    read = checkpoint.restore_bytes_per_s or write
    if write is None and storage is not None:
        write = _rate(
            storage.write_bytes_per_s or storage.bandwidth_bytes_per_s,
            storage.node_write_bytes_per_s or storage.node_bandwidth_bytes_per_s,
            writers,
        )
        nodes = scenario.layout.worker_nodes + scenario.layout.server_nodes
        whole = _rate(storage.bandwidth_bytes_per_s, storage.node_bandwidth_bytes_per_s, nodes)
        # of whole copies each node reads all
        read = read or (whole / (1 if writers > 1 else nodes) if whole is not None else None)
    write = write or known.write_bytes_per_s
    if write is None:
        raise ScenarioError(
            'job.checkpoint: nothing says how fast it is written: give write = "1 GB/s" there or in cluster.storage, or measure it with '
            '"paceline calibrate"'
        )
    read = read or known.restore_bytes_per_s or write
    restore_s = latency_s + size / read
    written_s = latency_s + size / write
    if checkpoint.mode == "blocking":
        return Writing(written_s, 0.0, restore_s, size)
    snapshot = checkpoint.snapshot or known.snapshot
    link = scenario.cluster.host_link
    if snapshot is not None:
        stop_s = float(snapshot.value_s)
    elif link is not None:
        stop_s = link.latency_s + size / writers / link.bandwidth_bytes_per_s
    else:
        raise ScenarioError(
            'job.checkpoint.mode: "asynchronous" stops training for a copy, and nothing says how long that takes: '
            'give job.checkpoint.snapshot, such as "0.2 s", or cluster.host_link'
        )
    return Writing(stop_s, written_s, restore_s, size)


def _writers(scenario: Scenario) -> int:
    """Nodes that write a part of a checkpoint each."""
    layout = scenario.layout
    if layout.servers:
        return layout.servers
    # copies that share one state, or over which experts are spread, have parts of it as the devices of one copy do
    copies = max(max(chunk.slot_shards, chunk.expert) for chunks in scenario.strategy.held(scenario) for chunk in chunks)
    return max(-(-layout.ranks_per_replica * copies // layout.replicas_per_node), 1)


def _rate(total: float | None, of_node: float | None, nodes: int) -> float | None:
    rates = [rate for rate in (total, of_node * nodes if of_node is not None else None) if rate is not None]
    return min(rates, default=None)


def whole_mtbf_s(scenario: Scenario) -> float | None:
    """Mean time between faults of anything; None where none is known by a mean time."""
    return _mtbf_s(scenario, workers=True)


def stopping_mtbf_s(scenario: Scenario) -> float | None:
    """Mean time between faults that destroy work: of anything, or where the state is on servers, of what holds those."""
    return _mtbf_s(scenario, workers=not scenario.layout.servers)


def _mtbf_s(scenario: Scenario, *, workers: bool) -> float | None:
    faults = scenario.job.faults if scenario.job is not None else None
    if faults is None:
        return None
    rate = sum(count / mean_s for _, count, mean_s in counted(scenario, faults, workers=workers))
    return 1.0 / rate if rate else None


def counted(scenario: Scenario, faults: Faults, *, workers: bool = True) -> Iterator[tuple[str, int, float]]:
    """What fails with a mean time: its name, how many there are, and the mean time between faults of one.

    Without ``workers`` what holds servers alone.
    """
    layout = scenario.layout
    holding = layout.servers if layout.servers_beside else layout.server_nodes  # nodes with servers
    nodes = max(layout.worker_nodes, layout.servers if layout.servers_beside else 0) + layout.server_nodes
    if faults.worker_mtbf_s is not None and workers:
        yield "worker", layout.processes, faults.worker_mtbf_s
    if faults.server_mtbf_s is not None and layout.servers:
        yield "server", layout.servers, faults.server_mtbf_s
    for name, mean_s in (("node", faults.node_mtbf_s), ("preemption", faults.preemption.mtbf_s if faults.preemption is not None else None)):
        count = nodes if workers else holding
        if mean_s is not None and count:
            yield name, count, mean_s
