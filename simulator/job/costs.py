"""A job without faults, as numbers: steps of each epoch, and what start-up, evaluations, checkpoints and iterators take in one run.

Nothing is simulated here: seconds of a step come from outcome.py, the rest from ``[job]`` or the workload's ``[overheads]``. Mean
times between faults are worked out here too; what faults do is in faults.py and renewal.py.

Training may wait for the ends of ``tf.data`` iterators. Keras' ``fit`` makes a new iterator for each epoch of a finite data
set, and ends the last one before the first step (``EpochIterator`` in ``keras/src/trainers/epoch_iterator.py``, whose iterator the
loop of ``fit`` keeps until then). One of an evaluation ends with it, as does one of a loop ``for batch in dataset``. Where an
iterator is tuned (``tf.data.Options().autotune``, on by default), a thread of its own wakes up every so often, and the end of the
iterator waits for that thread. TensorFlow wakes it for that (``Model::OptimizeLoop`` in ``tensorflow/core/framework/model.cc`` waits
on a condition that a callback of the cancellation signals), but marks the cancellation as made only when all callbacks have run
(``CancellationManager::StartCancelWithStatus`` in ``xla/tsl/framework/cancellation.cc``). A thread that is quick to wake up sees no
cancellation, and sleeps on: until its next turn, which is as far off as the iterator is old, and 60 s at the most. How often that
happens is a matter of who gets which core (docs/measure.md). It is measured, and never assumed.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from simulator.base.errors import ScenarioError
from simulator.base.probability import gamma_tail
from simulator.base.rng import Streams
from simulator.memory import slot_bytes, state_bytes
from simulator.program.program import Floats
from simulator.scenario import Resolved, Scenario
from simulator.spec.input_pipeline import InputWork
from simulator.spec.job import Checkpoint, Duration, Faults, IteratorEnds, Job, Overheads, Preemption
from simulator.strategies.holding import layers_of, values_of
from simulator.strategies.pipelines import pipelines

AnyScenario = TypeVar("AnyScenario", bound=Scenario)


def first_epoch(scenario: AnyScenario) -> AnyScenario | None:
    """The scenario with the work of the first epoch in its steps; None if later epochs are equal (nothing is cached).

    >>> from simulator.catalogue.loading import load_scenario
    >>> first_epoch(load_scenario("ring")) is None
    True
    """
    pipeline = scenario.input
    if pipeline is None or pipeline.cached is None or pipeline.cached == pipeline.work:
        return None
    return scenario.replaced({"input.cached": None})


class Fill(NamedTuple):
    """Batches that are prepared before an epoch's first batch is there.

    Attributes
    ----------
    batches
        The first, and those that the shuffle buffer holds; no more than the epoch has.
    seconds
        Mean time until the first batch is there.
    """

    batches: float
    seconds: float


def fill_of(scenario: Scenario, first: bool) -> Fill:
    """Time in which an epoch fills its shuffle buffer and prepares the first batch.

    ``shuffle`` gives nothing before its buffer is full, or the epoch is read to its end
    (tensorflow/core/kernels/data/shuffle_dataset_op.cc); here it is filled at the rate at
    which the pipeline prepares samples, all pipelines at the same time. Then comes the
    first batch. With several pipelines it is the slowest.

    Parameters
    ----------
    scenario
        With all its epochs: as it was written, or resolved.
    first
        Whether the epoch is the first, in which nothing is cached yet.
    """
    pipeline = scenario.input
    if pipeline is not None and pipeline.cached is not None:
        work = pipeline.work if first else pipeline.cached
        if work == InputWork():
            return Fill(0.0, 0.0)
        scenario = scenario.replaced({"input.work": work, "input.cached": None})
    prepared = pipelines(scenario)
    if prepared is None:
        return Fill(0.0, 0.0)
    held = pipeline.shuffle_buffer * pipeline.shuffle_fill if pipeline is not None else 0.0
    batches = 1.0 + held / prepared.samples
    if scenario.job is not None:
        batches = np.minimum(batches, np.maximum(scenario.job.epoch_samples / len(prepared.samples) / prepared.samples, 1.0))
    slowest = int((prepared.fair_s * batches).argmax())
    return Fill(float(batches[slowest]), float((prepared.fair_s * batches)[slowest]))


_FIRST_MS, _LONGEST_MS = 20, 60_000
"""Between the first two turns of a tuning thread, each later time being twice as long; and at the most (``model.h``)."""
_TURNS_MS = tuple(_FIRST_MS * ((1 << number) - 1) for number in range(1, 13))
"""Ages of an iterator at its wake-ups until their distance stops growing: 20, 60, 140, ... 81,900 ms."""
_DIGITS = 6
"""Of a millisecond; a sum that falls on a turn is that turn."""


def next_turn_s(age_s: float) -> float:
    """Age at the next turn of an iterator's tuning thread.

    >>> next_turn_s(0.1), next_turn_s(0.14), next_turn_s(30.0), next_turn_s(100.0), next_turn_s(261.9)
    (0.14, 0.3, 40.94, 141.9, 321.9)
    """
    age_ms, last_ms = round(1000.0 * age_s, _DIGITS), _TURNS_MS[-1]
    if age_ms < last_ms:
        return _TURNS_MS[bisect.bisect_right(_TURNS_MS, age_ms)] / 1000.0
    return (last_ms + _LONGEST_MS * (math.floor((age_ms - last_ms) / _LONGEST_MS) + 1)) / 1000.0


def longest_wait_s(age_s: float) -> float:
    """For which the end of one iterator of that age may last: until that turn."""
    return next_turn_s(age_s) - age_s


def ended_by(scenario: Scenario) -> tuple[int, int]:
    """Iterators that a process ends, and processes that wait for one another.

    A single process has one. Under a ``tf.distribute`` strategy it has one on the host and one for each of its replicas
    (``OwnedMultiDeviceIterator``). With a split model each copy has one, on the host that reads its batches.
    """
    layout = scenario.layout
    if layout.ranks_per_replica > 1:
        return 1, layout.replicas
    return (1 if layout.replicas == 1 else 1 + layout.replicas_per_process), layout.processes


@dataclass(frozen=True)
class Iterators:
    """Iterators that end together, in one run: the training goes on when the last process has ended the last of its own.

    A process ends its iterators one after the other, so that each of which the thread sleeps on waits for one turn more: all
    have begun together, and their turns are the same.

    Attributes
    ----------
    of_process, processes
        As :func:`ended_by` has them.
    share
        Of ends for which a thread sleeps on.
    draw
        Decides which.
    """

    of_process: int
    processes: int
    share: float
    draw: np.random.Generator

    @classmethod
    def of_run(cls, measured: IteratorEnds, ended: tuple[int, int], draw: np.random.Generator) -> Iterators:
        """Draw the share of one run, as the measured counts allow: Beta(waited + 1/2, ended - waited + 1/2), by Jeffreys."""
        share = float(draw.beta(measured.waited + 0.5, measured.ended - measured.waited + 0.5))
        return cls(*ended, share, draw)

    @cached_property
    def _most_waits(self) -> tuple[float, ...]:
        """Chance that no process waits for more than 0, 1, 2, ... turns."""
        count, share = self.of_process, self.share
        chances = (math.comb(count, waits) * share**waits * (1 - share) ** (count - waits) for waits in range(count + 1))
        return tuple(at_most**self.processes for at_most in itertools.accumulate(chances))

    def wait_s(self, age_s: float) -> float:
        """Seconds for which iterators of one age stop the training when they end, in this run."""
        turns = bisect.bisect_left(self._most_waits, self.draw.random())
        return self._after_s(age_s, min(turns, self.of_process))

    def mean_wait_s(self, age_s: float) -> float:
        """The same in the mean over draws."""
        chances = (most - fewer for fewer, most in itertools.pairwise((0.0, *self._most_waits)))
        return math.fsum(chance * self._after_s(age_s, turns) for turns, chance in enumerate(chances))

    @staticmethod
    def _after_s(age_s: float, turns: int) -> float:
        ended_s = age_s
        for _ in range(turns):
            ended_s = next_turn_s(ended_s)
        return ended_s - age_s


_ENOUGH = 1e-12


def young_interval_s(cost_s: float, mtbf_s: float) -> float:
    """Seconds of work between checkpoints that lose least time, to first order: sqrt(2 C M).

    Young, "A first order approximation to the optimum checkpoint interval", 1974.
    """
    return math.sqrt(2 * cost_s * mtbf_s)


def daly_interval_s(cost_s: float, mtbf_s: float) -> float:
    """The same to higher order: sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + C / 18M) - C, or M where C is at least 2M.

    Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", 2006, equation 37.
    """
    if cost_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = cost_s / (2 * mtbf_s)
    return young_interval_s(cost_s, mtbf_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost_s


def best_interval_s(cost_s: float, mtbf_s: float) -> float:
    """The interval that makes the expected time of a job least: the root t of (1 - t / M) exp((t + C) / M) = 1.

    Daly 2006, equation 18 and after: whatever a restart takes, it does not depend on it. Newton's method from Young's interval,
    on the logarithm: (t + C) / M + log(1 - t / M) = 0, whose left side falls from C / M at 0 ever faster.
    """
    if cost_s <= 0:
        return 0.0
    share, cost = min(young_interval_s(cost_s, mtbf_s) / mtbf_s, 1 - 1e-9), cost_s / mtbf_s
    for _ in range(100):
        value = share + cost + math.log1p(-share)
        step = value / (1 - 1 / (1 - share))
        share = min(max(share - step, share / 10), (1 + share) / 2)
        if abs(step) <= _ENOUGH * share:
            break
    return share * mtbf_s


_NOTHING = Duration(value_s=0.0, low_s=0.0, high_s=0.0)


@dataclass(frozen=True, slots=True)
class Writing:
    """Cost of a checkpoint.

    Attributes
    ----------
    stop_s
        Seconds that training waits each time, besides waiting for the previous one to be written.
    lasts_s
        After that, until it can be read again; 0 where training waits for all of it. The next one begins no sooner.
    restore_s
        To read it.
    size_bytes
        Of one.
    """

    stop_s: float
    lasts_s: float
    restore_s: float
    size_bytes: float


NEVER_WRITTEN = Writing(stop_s=0.0, lasts_s=math.inf, restore_s=0.0, size_bytes=0.0)


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
        Cost of a checkpoint.
    write_steps, write_epochs
        Steps, or epochs, between them; 0 for the one that does not count.
    iterators
        What the ends of ``tf.data`` iterators cost; none: nothing.
    renews
        Whether each epoch ends those of the one before; an evaluation ends its own in any case.
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
    writing: Writing
    write_steps: float
    write_epochs: int
    iterators: Iterators | None = None
    renews: bool = True

    @property
    def steps(self) -> float:
        """Steps of the whole job."""
        return math.fsum(self.epochs)

    def evaluates(self, epoch: int) -> bool:
        """Return whether an evaluation follows an epoch, counted from 0."""
        return bool(self.evaluation_every) and (epoch + 1) % self.evaluation_every == 0

    def writes_after(self, epoch: int) -> bool:
        """Return whether a checkpoint follows an epoch, counted from 0."""
        return bool(self.write_epochs) and (epoch + 1) % self.write_epochs == 0

    def written_in(self) -> Iterator[int]:
        """Checkpoints in each epoch."""
        done = 0.0
        for number, steps in enumerate(self.epochs):
            written = math.floor((done + steps) / self.write_steps) - math.floor(done / self.write_steps) if self.write_steps else 0
            done += steps
            yield written + self.writes_after(number)


def step_samples(scenario: Scenario) -> int:
    """Samples of a step of the job: of all replicas whose gradients it takes, or of an asynchronous update."""
    pace = scenario.strategy.pace
    return scenario.batch * (1 if pace.asynchronous else pace.awaited(scenario.replicas))


def evaluation_batch(scenario: Scenario) -> int:
    """Samples per replica and step of an evaluation, at most the available ones; 1 without one."""
    evaluation = scenario.job.evaluation if scenario.job is not None else None
    if evaluation is None:
        return 1
    return min(evaluation.batch or scenario.batch, max(math.ceil(evaluation.samples / scenario.replicas), 1))


def course_of(
    scenario: Resolved, step_s: float, first_step_s: float, evaluation_step_s: float, fillings_s: Sequence[float], streams: Streams
) -> Course:
    """The course of one run.

    Parameters
    ----------
    scenario
        Resolved, with a job.
    step_s, first_step_s
        As of :class:`Course`.
    evaluation_step_s
        Of a step of an evaluation on all replicas.
    fillings_s
        Seconds until the first batch of an epoch is there: of most epochs, and of the first.
    streams
        Decide what start-up, tracing and the ends of iterators take in this run.

    Raises
    ------
    ScenarioError
        Nothing says how fast checkpoints are written.
    """
    job = scenario.job
    assert job is not None
    known = scenario.workload.overheads or Overheads()
    chance = streams.generator("job").random(3)
    # measured with one replica: a process traces the step once for each of its own (tensorflow/python/distribute/mirrored_run.py)
    times = scenario.layout.replicas_per_process
    startup, tracing, evaluating = (
        float(own.quantile_s(float(at)) if own is not None else many * (measured or _NOTHING).quantile_s(float(at)))
        for own, measured, many, at in zip(
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
    evaluation = job.evaluation
    each = evaluation_batch(scenario) * scenario.replicas
    ends = known.iterators if scenario.waits_for_iterators else None
    return Course(
        epochs=steps,
        step_s=step_s,
        first_step_s=first_step_s,
        startup_s=startup,
        tracing_s=tracing,
        evaluation_tracing_s=evaluating if evaluation is not None else 0.0,
        filling_s=fillings_s[0],
        first_filling_s=fillings_s[1],
        evaluation_s=0.0 if evaluation is None else math.ceil(evaluation.samples / each) * evaluation_step_s,
        evaluation_every=0 if evaluation is None else evaluation.every_epochs,
        writing=writing or NEVER_WRITTEN,
        write_steps=write_steps,
        write_epochs=write_epochs,
        iterators=None if ends is None else Iterators.of_run(ends, ended_by(scenario), streams.generator("iterators")),
        renews=job.iterators == "renewed",
    )


def _epochs(job: Job, samples: int) -> Iterator[float]:
    """Steps of each epoch: its last batch may be smaller, and is a step all the same."""
    total, each = job.total_samples, job.epoch_samples
    whole = int(total / each * (1 + _ROUNDING))
    sized = [each] * whole + ([total - whole * each] if total - whole * each > _ROUNDING * total else [])
    for size in sized:
        yield size / samples if job.dataset_size is None else float(math.ceil(size / samples * (1 - _ROUNDING)))


_ROUNDING = 1e-12


def _how_often(scenario: Resolved, checkpoint: Checkpoint | None, writing: Writing | None, step_s: float) -> tuple[float, int]:
    """Steps, or epochs, between checkpoints."""
    if checkpoint is None or writing is None:
        return 0.0, 0
    if checkpoint.every_epochs is not None:
        return 0.0, checkpoint.every_epochs
    if checkpoint.every_steps is not None:
        return float(checkpoint.every_steps), 0
    interval_s = checkpoint.every_s
    if interval_s is None:
        between_s = mtbf_s(scenario, stopping=True)
        if between_s is None:  # no fault destroys work
            return 0.0, 0
        interval_s = best_written_s(writing, between_s)
    return float(max(math.ceil(interval_s / step_s * (1 - _ROUNDING)), 1)), 0


def best_written_s(writing: Writing, mtbf_s: float) -> float:
    """Seconds of steps between checkpoints that make the job end soonest; one that is still being written holds the next up."""
    return max(best_interval_s(max(writing.stop_s, _LEAST_S), mtbf_s), writing.lasts_s)


_LEAST_S = 1e-6


def writing_of(scenario: Resolved) -> Writing | None:
    """Cost of a checkpoint, as far as it does not depend on how often it is written; None where there is none.

    With whole copies one process writes (the chief); where the state is spread over servers or devices, each of their nodes writes
    its part at the same time, and each device copies its own. Every node reads again what its devices hold, all at the same time.

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
    spread = _spread(scenario)
    written_s = read_s = checkpoint.duration_s
    if written_s is not None:
        latency_s = 0.0
    elif checkpoint.write_bytes_per_s is not None:
        written_s = read_s = size / checkpoint.write_bytes_per_s
    elif storage is not None:
        of_all, of_node = storage.bandwidth_bytes_per_s, storage.node_bandwidth_bytes_per_s
        written_s = _seconds(size * spread.written, storage.write_bytes_per_s or of_all, storage.node_write_bytes_per_s or of_node)
        read_s = _seconds(size * spread.read, of_all, of_node)
    if written_s is None and known.write_bytes_per_s is not None:
        written_s = size / known.write_bytes_per_s
    if written_s is None:
        raise ScenarioError(
            'job.checkpoint: the writing speed is missing: give duration = "3 min" or write = "1 GB/s" there, or write in '
            'cluster.storage, or measure it with "paceline calibrate"'
        )
    if checkpoint.restore_bytes_per_s is not None:
        read_s = size / checkpoint.restore_bytes_per_s
    elif read_s is None:
        read_s = size / known.restore_bytes_per_s if known.restore_bytes_per_s is not None else written_s
    restore_s = latency_s + read_s
    written_s += latency_s
    if checkpoint.mode == "blocking":
        return Writing(written_s, 0.0, restore_s, size)
    link = scenario.cluster.host_link
    if checkpoint.snapshot is not None:
        stop_s = float(checkpoint.snapshot.value_s)
    elif known.snapshot is not None:  # measured where one device copies all
        stop_s = float(known.snapshot.value_s) * spread.copied
    elif link is not None:
        stop_s = link.latency_s + size * spread.copied / link.bandwidth_bytes_per_s
    else:
        raise ScenarioError(
            'job.checkpoint.mode: "asynchronous" stops training for a copy, whose time is missing: give job.checkpoint.snapshot, such as '
            '"0.2 s", or cluster.host_link'
        )
    return Writing(stop_s, written_s, restore_s, size)


class _Spread(NamedTuple):
    """Shares of a checkpoint: written and read by each node that does, and copied over the link to a host that carries most."""

    written: Floats
    read: Floats
    copied: float


def _spread(scenario: Resolved) -> _Spread:
    """The shares of a checkpoint; each part is written once, by the first that holds it, and read by every node that holds it."""
    layout = scenario.layout
    strategy: Any = scenario.strategy  # whose degrees are known where it cuts a model
    if layout.servers:
        of_each = np.full(layout.servers, 1.0 / layout.servers)
        return _Spread(of_each, of_each, 1.0 / layout.servers)
    if not strategy.cuts_batches:  # one that cuts no model
        return _Spread(np.ones(1), np.ones(layout.worker_nodes), 1.0)
    rank, ways = strategy.grid(layout).rank, strategy.tensor
    device = rank[:, :, None] * ways + np.arange(ways)  # of each stage and copy, those that split tensors
    node, link = device // scenario.cluster.devices_per_node, device // scenario.cluster.devices_per_host_link
    written, read, copied = np.zeros(node.max() + 1), np.zeros(node.max() + 1), np.zeros(link.max() + 1)
    for stage, among, parts, own_bytes, held_bytes in _held(scenario, strategy):
        written += np.bincount(node[stage, :among, :parts].ravel(), minlength=written.size) * own_bytes
        copied += np.bincount(link[stage, :among, :parts].ravel(), minlength=copied.size) * own_bytes
        part = np.arange(rank.shape[1])[:, None] % among * parts + np.arange(ways) % parts
        held = np.unique(node[stage] * (among * parts) + part)  # copies on one node may hold the same part
        read += np.bincount(held // (among * parts), minlength=read.size) * held_bytes
    whole = written.sum()
    return _Spread(written / whole, read / whole, float(copied.max() / whole))


def _held(scenario: Resolved, strategy: Any) -> Iterator[tuple[int, int, int, float, float]]:
    """Parts of a checkpoint that devices hold: 32-bit variables and their slots.

    In mixed precision variables in 32 bits belong to the slots, and are shared as they are.

    Yields
    ------
    tuple
        A stage; neighbouring copies of the model that hold different parts, and devices of each of those that do; bytes of a device's
        part that it writes, and that it reads, which are more where it has a copy of what another stage writes.
    """
    load = scenario.workload
    mixed = bool(values_of(load).masters)
    for stage, chunks in enumerate(strategy.held(scenario)):
        held: dict[tuple[int, int], list[float]] = {}
        for chunk in chunks:
            for owned in itertools.chain.from_iterable(layers_of(load, chunk)):
                if owned.frozen:
                    continue
                ways = round(1.0 / owned.share)
                whole = ways == (chunk.expert if owned.experts else 1)  # of a layer that cannot be split
                whole = whole and (not owned.experts or chunk.experts_split == chunk.tensor)
                for size_bytes, shards in (
                    (float(owned.variable.size_bytes), chunk.slot_shards if mixed else chunk.parameter_shards),
                    (slot_bytes(scenario, owned.variable), chunk.slot_shards),
                ):
                    over = owned.over(chunk, shards)
                    parts = 1 if whole else min(ways * over, chunk.tensor)
                    both = held.setdefault((ways * over // parts, parts), [0.0, 0.0])
                    part_bytes = size_bytes * owned.share / over
                    both[0] += 0.0 if owned.copy else part_bytes
                    both[1] += part_bytes
        for (among, parts), (own_bytes, held_bytes) in held.items():
            yield stage, among, parts, own_bytes, held_bytes


def _seconds(each_bytes: Floats, rate_of_all: float | None, rate_of_node: float | None) -> float | None:
    """Until all nodes have moved their bytes at once; None without a rate."""
    times = [total / rate for total, rate in ((each_bytes.sum(), rate_of_all), (each_bytes.max(), rate_of_node)) if rate is not None]
    return float(max(times)) if times else None


def mtbf_s(scenario: Scenario, *, stopping: bool = False) -> float | None:
    """Mean time between faults of anything; None where none is known by a mean time.

    ``stopping``: between those that destroy work, which where the state is on servers are faults of what holds these.
    """
    faults, workers = scenario.faults, not (stopping and scenario.layout.servers)
    rate = 0.0 if faults is None else math.fsum(count / mean_s for _, count, mean_s in counted(scenario, faults, workers=workers))
    return 1.0 / rate if rate else None


def nodes_of(scenario: Scenario) -> int:
    """Nodes that the job has, with workers or servers."""
    layout = scenario.layout
    return max(layout.worker_nodes, layout.servers if layout.servers_beside else 0) + layout.server_nodes


def counted(scenario: Scenario, faults: Faults, *, workers: bool = True) -> Iterator[tuple[str, int, float]]:
    """Kinds of faults that come with a mean time: name, how many there are, and the mean time between faults of each.

    Nodes with only servers if ``workers`` is false.
    """
    layout = scenario.layout
    nodes = nodes_of(scenario) if workers else layout.servers if layout.servers_beside else layout.server_nodes
    if faults.job_mtbf_s is not None:
        yield "job", 1, faults.job_mtbf_s
    if faults.worker_mtbf_s is not None and workers:
        yield "worker", layout.processes, faults.worker_mtbf_s
    if faults.server_mtbf_s is not None and layout.servers:
        yield "server", layout.servers, faults.server_mtbf_s
    if faults.node_mtbf_s is not None and nodes:
        yield "node", nodes, faults.node_mtbf_s
    if (preemption := faults.preemption) is not None:
        taken = preemptible_of(scenario, preemption)
        may_go = min(nodes, taken) if workers or preemption.of == "nodes" else 0
        mean_s = _mean_life_s(preemption, faults.shape, taken)
        if mean_s is not None and may_go:
            yield "preemption", may_go, mean_s


def preemptible_of(scenario: Scenario, preemption: Preemption) -> int:
    """Nodes that may be taken, from node 0 on."""
    return scenario.layout.worker_nodes if preemption.of == "worker-nodes" else nodes_of(scenario)


def _mean_life_s(preemption: Preemption, shape: float, nodes: int) -> float | None:
    """Mean time from when a node is there until it is taken; None where it is never.

    Of a Weibull distribution that is cut at c: scale Gamma(1 + 1/k) P(1/k, (c / scale)^k), with the regularised incomplete gamma
    function P, which is the integral of the share that lives. Of a trace: the time that nodes are there over the times that one goes.
    """
    if preemption.mtbf_s is None:
        spells = list(itertools.pairwise(preemption.available))
        there_s = math.fsum((after.at_s - point.at_s) * min(point.nodes, nodes) for point, after in spells)
        levels = [min(point.nodes, nodes) for point, _ in spells]
        taken = sum(max(before - after, 0) for before, after in itertools.pairwise([*levels, levels[0]]))
        return there_s / taken if taken else None
    if preemption.most_s is None:
        return float(preemption.mtbf_s)
    shape = preemption.shape if preemption.shape is not None else shape
    scale_s = preemption.mtbf_s / math.gamma(1.0 + 1.0 / shape)
    return float(preemption.mtbf_s) * (1.0 - gamma_tail(1.0 / shape, (preemption.most_s / scale_s) ** shape))
