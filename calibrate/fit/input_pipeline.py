"""Fits an input pipeline to measured batches of a tf.data pipeline, with intervals and provenance.

A pipeline whose ``map`` has parallel calls works on them while its iterator reads, shuffles and batches, each on a thread of its own, so a
batch takes ``max(serial, parallel / calls)``. The limit at each number of calls comes from tf.data's own statistics of stages (the model of
its autotuning: Murray et al., VLDB 2021, section 4.4); how long that takes comes from the clock: the parallel part is fitted to the
settings in which calls are the limit, the serial part to the others. Without such an account, clock and CPU time decide, and say how far
they leave the split open: at any number of calls ``serial`` is at most the time that a batch took, and ``parallel`` at most that time the
calls; one thread does the serial part, so CPU time beyond what one thread had is parallel.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from calibrate.fit.estimators import (
    DRAWS,
    FEWEST_FACTORS,
    Line,
    distribution_of,
    intervals_90,
    line_of_means,
    persistence_of,
    with_persistence,
)
from calibrate.fit.writing import provenance
from calibrate.measurements import (
    CUT_SHORT,
    Ahead,
    Batches,
    FirstBatch,
    Load,
    Measurements,
    MeasurementsError,
    PipelineRecord,
    StageNode,
    Stages,
    read_measurements,
)
from simulator.base.text import digits
from simulator.spec.distributions import Constant, Distribution
from simulator.spec.input_pipeline import InputFit, InputPipeline, InputPoint, InputRange, InputWork

Array = NDArray[np.float64]
Epoch: TypeAlias = Literal["first", "later"]

_FALLS = 0.05
"""Of the time with the fewest calls: more calls must save as much, and twice its standard error, to count as their limit."""
_SCALES = 0.75
"""Of the speed-up that calls promise: where less comes of it, something else has become the limit."""
_FULL = 0.8
"""Of the cores' time: more calls than cores, which use so much, wait for cores and tell nothing of the pipeline."""
_PARTS = {"serial": 0, "parallel": 2}
"""Places of base and slope of each part among the four figures of a fit."""
_LEAST_BYTES = 1024
"""Read for a batch: less is what a process reads anyway, such as its own wake-ups."""
_WEAK = 0.25
"""Half an interval over its value, or a residual, from which on a part counts as badly determined."""
_WAITS = 0.3
_UNACCOUNTED = "tf.data's statistics of its stages do not explain the time"
_EXPLAINS = 0.5
"""Of a measured time: an account of stages that has less is not believed."""


class _Costs(NamedTuple):
    """Seconds of a batch."""

    serial_s: float
    parallel_s: float


class _Round(NamedTuple):
    """One stretch: mean seconds of a batch and its standard error, and what tf.data's own account says of them."""

    mean_s: float
    error_s: float
    account: _Costs | None


@dataclass
class _Setting:
    """Measurements at one batch size with one number of calls, in a first or in later epochs."""

    rounds: list[_Round] = field(default_factory=list)
    of_cpu_s: list[float] = field(default_factory=list)
    batches: int = 0

    @property
    def mean_s(self) -> float:
        return float(np.mean([turn.mean_s for turn in self.rounds]))

    @property
    def error_s(self) -> float:
        """Standard error of the mean: by what differs within rounds, or between them."""
        count = len(self.rounds)
        within = float(np.hypot.reduce([turn.error_s for turn in self.rounds])) / count
        return max(within, float(np.std([turn.mean_s for turn in self.rounds], ddof=1) / np.sqrt(count)) if count > 1 else 0.0)

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the whole process for a batch."""
        return float(np.mean(self.of_cpu_s))

    def drawn(self, rng: np.random.Generator) -> _Setting:
        """A bootstrap copy: rounds drawn with replacement, each mean as it might have come out."""
        turns = [self.rounds[index] for index in rng.integers(0, len(self.rounds), len(self.rounds))]
        rounds = [turn._replace(mean_s=max(rng.normal(turn.mean_s, turn.error_s), 0.1 * turn.mean_s)) for turn in turns]
        return _Setting(rounds, self.of_cpu_s, self.batches)


class _Settings(dict[int, _Setting]):
    """Measurements at one batch size, by number of calls."""

    @property
    def fewest(self) -> int:
        """Calls, with which threads wait for cores the least."""
        return min(self)

    @property
    def account(self) -> _Costs | None:
        """By tf.data's own account at the fewest calls; none where it gives none."""
        known = [turn.account for turn in self[self.fewest].rounds if turn.account is not None]
        if not known:
            return None
        costs = _Costs(*np.median(np.array(known), axis=0).tolist())
        # stages that wait, as for storage, may stop tf.data's count: such an account tells nothing of where the time goes
        explained_s = max(costs.serial_s, costs.parallel_s / self.fewest)
        return costs if explained_s > _EXPLAINS * self[self.fewest].mean_s else None

    def limited(self, cores: int) -> dict[int, bool]:
        """For each number of calls that a part is fitted from, whether calls are the limit."""
        if (known := self.account) is not None:
            return {calls: known.parallel_s / calls >= known.serial_s for calls in sorted(self)}
        # by the clock; without those that wait for cores
        usable = {
            calls: setting
            for calls, setting in sorted(self.items())
            if calls == self.fewest or calls <= cores or setting.cpu_s <= _FULL * cores * setting.mean_s
        }
        least, first = min(usable.values(), key=lambda setting: (setting.mean_s, setting.error_s, setting.cpu_s)), usable[self.fewest]
        falls = first.mean_s - least.mean_s > max(_FALLS * first.mean_s, 2.0 * float(np.hypot(first.error_s, least.error_s)))
        return {
            calls: falls and (calls == self.fewest or setting.mean_s * calls < first.mean_s * self.fewest / _SCALES)
            for calls, setting in usable.items()
        }


@dataclass(frozen=True)
class _Epochs:
    """Measurements in first or later epochs, and how the parts are separated.

    Attributes
    ----------
    table
        By batch size and number of calls, in the order of measuring.
    cores
        Of the machine.
    parallel
        Whether the pipeline has a stage with parallel calls at all.
    disturbed
        Whether disturbed rounds had to be taken.
    """

    table: Mapping[tuple[int, int], _Setting]
    cores: int
    parallel: bool
    disturbed: bool

    @cached_property
    def sizes(self) -> dict[int, _Settings]:
        """By batch size, ascending."""
        return _by_size(self.table)

    @cached_property
    def limited(self) -> dict[int, dict[int, bool]]:
        """By batch size, for each number of calls that a part is fitted from, whether calls are the limit."""
        return {batch: settings.limited(self.cores) for batch, settings in self.sizes.items()}

    @property
    def unaccounted(self) -> list[int]:
        """Batch sizes whose parts are separated only by clock and CPU time."""
        return [batch for batch, settings in self.sizes.items() if settings.account is None]

    def doubt(self) -> str:
        """Why clock and CPU time cannot tell the parts apart; nothing where they can, or need not."""
        if not self.unaccounted or not self.parallel:
            return ""
        if min(len(self.limited[batch]) for batch in self.unaccounted) < 2:
            return "only one measured number of calls had enough cores (two are needed, such as `calls` 1,2)"
        return "other processes disturbed the rounds" if self.disturbed else ""

    def lines(self) -> list[float]:
        """Base and slope of both parts as lines through the batch sizes; with only one size, all time is counted per sample."""
        return self._lines(self.sizes)

    def drawn_lines(self, rng: np.random.Generator) -> list[float]:
        """The same of a bootstrap sample, at one end or the other of what the clock leaves open."""
        again = _by_size({key: setting.drawn(rng) for key, setting in self.table.items()})
        return self._lines(again, bool(rng.integers(2)))

    def _lines(self, sizes: Mapping[int, _Settings], serial_end: bool | None = None) -> list[float]:
        costs = {batch: self._costs(settings, self.limited[batch], serial_end) for batch, settings in sizes.items()}
        figures: list[float] = []
        for seconds in zip(*costs.values(), strict=True):
            if len(costs) < 2 or min(seconds) <= 0:
                figures += [0.0, float(np.mean([time_s / batch for batch, time_s in zip(costs, seconds, strict=True)]))]
            else:
                figures += line_of_means(list(costs), seconds)
        return figures

    def _costs(self, settings: _Settings, limited: Mapping[int, bool], serial_end: bool | None) -> _Costs:
        """Parts of a batch's time, the likeliest, or at one end of what clock and CPU time leave open: as much as can be is serial or not.

        They are sure where several numbers of calls were measured, and nothing else disturbed them. Otherwise every split is possible
        that agrees with clock and CPU time.
        """
        known = settings.account
        measured_s = [settings[calls].mean_s for calls, calls_limit in limited.items() if not calls_limit]
        of_calls_s = [settings[calls].mean_s * calls for calls, calls_limit in limited.items() if calls_limit]
        serial_s = float(np.mean(measured_s)) if measured_s else None if known is None else known.serial_s
        parallel_s = float(np.mean(of_calls_s)) if of_calls_s else None if known is None else known.parallel_s
        if serial_s is not None and parallel_s is not None and known is not None:
            return _Costs(serial_s, parallel_s)
        if parallel_s is None and serial_s is not None and not self.parallel:
            return _Costs(serial_s, 0.0)
        cpu_s = settings[min(limited)].cpu_s
        shortest = min(settings[calls].mean_s for calls in limited)
        most_parallel = min(settings[calls].mean_s * calls for calls in limited)
        low = _Costs(min(max(0.0, cpu_s - most_parallel), shortest), min(max(0.0, cpu_s - shortest), most_parallel))
        high = _Costs(shortest, most_parallel)
        if len(limited) > 1 and not self.disturbed:
            # without calls as the limit nobody waits for the parallel part, which can be no more than the CPU time that was used
            bound = max(low.parallel_s, min(most_parallel, cpu_s))
            high = _Costs(shortest if serial_s is None else serial_s, bound if parallel_s is None else parallel_s)
            low = _Costs(low.serial_s if serial_s is None else serial_s, low.parallel_s if parallel_s is None else parallel_s)
        if serial_end is not None:
            return _Costs(high.serial_s, low.parallel_s) if serial_end else _Costs(low.serial_s, high.parallel_s)
        return _Costs(
            low.serial_s if serial_s is None else serial_s, (low.parallel_s + high.parallel_s) / 2.0 if parallel_s is None else parallel_s
        )


def _by_size(table: Mapping[tuple[int, int], _Setting]) -> dict[int, _Settings]:
    sizes: dict[int, _Settings] = {batch: _Settings() for batch in sorted({batch for batch, _ in table})}
    for (batch, calls), setting in table.items():
        sizes[batch][calls] = setting
    return sizes


def stages_of(nodes: Sequence[StageNode]) -> tuple[float, float]:
    """Serial and parallel seconds of a batch by tf.data's own account.

    Stages between asynchronous ones share a thread, so the serial part is that of the slowest thread; the parallel part is
    that of all stages with parallel calls, which share the pipeline's threads.
    """
    by_id = {node.id: node for node in nodes}
    inner = {number for node in nodes for number in node.inputs}
    slowest, parallel = 0.0, 0.0
    threads = [(node.id, False) for node in nodes if node.id not in inner]
    while threads:
        start, shared = threads.pop()
        total, waiting = 0.0, [start]
        while waiting:
            node = by_id.get(waiting.pop())
            if node is None:
                continue
            if node.asynchronous and "parallelism" in node.parameters:
                parallel += node.seconds
                threads += [(number, shared or node.interleaves) for number in node.inputs]
            elif node.asynchronous and node.id != start:
                threads.append((node.id, shared))
            else:
                total += node.seconds
                waiting += node.inputs
        if shared:
            parallel += total
        else:
            slowest = max(slowest, total)
    return slowest, parallel


def fit_input(measurements: Path, name: str, command: str = "") -> InputPipeline:
    """Fit an input pipeline to batches that :func:`calibrate.profiling.profile_input` measured.

    Returns
    -------
    InputPipeline
        Serial and parallel seconds of a batch, in a first epoch and, where it caches, in later ones; calls, prefetch and shuffle buffer as
        they were measured; distribution of a batch's time; 90% intervals in ``fit``. Poorly determined parameters are listed in
        ``provenance["weak"]``.

    Raises
    ------
    MeasurementsError
        The file is damaged, or holds no such measurements.
    """
    measured = read_measurements(measurements, "input")
    if not measured.of(PipelineRecord) or not measured.of(Batches):
        raise MeasurementsError(f"{measurements}: has no batches: {CUT_SHORT}")
    pipeline = measured.of(PipelineRecord)[0]
    left_out, notes = _disturbed(measured)
    batches = [record for record in measured.of(Batches) if record.round not in left_out]
    table = _table(measured, batches, pipeline)
    rng = np.random.default_rng(0)
    works: dict[str, InputWork] = {}
    intervals: dict[str, tuple[float, float]] = {}
    residual = 0.0
    weak: list[str] = []
    disturbed = "disturbed" in notes
    has_parallel = bool(pipeline.calls) or "num_parallel_calls" in pipeline.takes
    for epoch, place in (("first", "work"), ("later", "cached")):
        settings = {key[1:]: setting for key, setting in table.items() if key[0] == epoch}
        if not settings:
            continue
        epochs = _Epochs(settings, pipeline.cores, has_parallel, disturbed)
        center = epochs.lines()
        draws = np.array([epochs.drawn_lines(rng) for _ in range(DRAWS)])
        names = [f"{place}.{part}.{key}" for part in _PARTS for key in ("base_s", "per_sample_s")]
        intervals |= {name: interval for name, interval in intervals_90(names, draws, center).items() if interval[1] > 0}
        serial, parallel = Line(*center[:2]), Line(*center[2:])
        read = _read_per_sample([record for record in batches if record.epoch == epoch])
        works[place] = InputWork(serial=serial.affine(), parallel=parallel.affine(), read_bytes_per_sample=digits(read))
        apart = max(
            abs(max(serial(batch), parallel(batch) / calls) / setting.mean_s - 1.0)
            for (batch, calls), setting in settings.items()
            if calls in epochs.limited[batch]
        )
        residual = max(residual, apart)
        if doubt := epochs.doubt():
            weak.append(f"{place}: serial and parallel parts are hardly distinguishable: {_UNACCOUNTED}, and {doubt}")
        weak += _weakness(place, center, draws, epochs)
        if apart > _WEAK:
            weak.append(f"{place}: serial and parallel parts miss a measured time by {apart:.0%}")
        notes |= _remarks(place, epochs, center, pipeline)
    calls = sorted({calls for _, _, calls in table})
    sizes = sorted({batch for _, batch, _ in table})
    fingerprint = measured.fingerprint
    if weak:
        notes["weak"] = "; ".join(dict.fromkeys(weak))
    span = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    return InputPipeline(
        name=name,
        description=f"{span} samples per batch on {fingerprint.device_name}, TensorFlow {fingerprint.tensorflow}",
        work=works["work"],
        cached=works.get("cached"),
        parallel_calls=_declared_calls(pipeline, calls),
        prefetch=_prefetch(measured, pipeline),
        shuffle_buffer=pipeline.shuffle_samples,
        shuffle_fill=_shuffle_fill(measured, pipeline.shuffle_samples, table),
        jitter=_jitter(batches, min(record.calls for record in measured.of(Batches))),
        calibrated=InputRange(batch=(sizes[0], sizes[-1]), parallel_calls=(calls[0], calls[-1])),
        fit=InputFit(points=_points(table), relative_residual=digits(residual), intervals_90=intervals),
        provenance={**provenance([measured], command), "input": str(measured.header.arguments.get("input", "")), **notes},
    )


_Table: TypeAlias = dict[tuple[Epoch, int, int], _Setting]


def _disturbed(measured: Measurements) -> tuple[set[int], dict[str, str]]:
    """Rounds that something else disturbed, if most are undisturbed; else none is left out, and that is said."""
    loads = [load for load in measured.of(Load) if load.round is not None]
    bad = {load.round for load in loads if load.why and load.round is not None}
    if not bad:
        return set(), {}
    why = next(load.why for load in loads if load.why)
    if len(bad) > len(loads) / 2:
        return set(), {"disturbed": f"{len(bad)} of {len(loads)} rounds were disturbed ({why}) but are fitted"}
    return bad, {"left_out": f"{len(bad)} of {len(loads)} rounds, disturbed by other load ({why})"}


def _table(measured: Measurements, batches: Sequence[Batches], pipeline: PipelineRecord) -> _Table:
    """Settings with their rounds, by epoch, batch size and the calls that it could use."""
    table: _Table = defaultdict(_Setting)
    accounts = {
        (record.epoch, record.batch, record.calls, record.round): _Costs(*stages_of(record.nodes))
        for record in measured.of(Stages)
        # a cache that is filled drops the stages before it from the account
        if record.epoch == "later" or not pipeline.calls or any("parallelism" in node.parameters for node in record.nodes)
    }
    most = max(pipeline.calls, default=-1) if "num_parallel_calls" not in pipeline.takes and min(pipeline.calls, default=-1) > 0 else None
    for record in batches:
        setting = table[record.epoch, record.batch, record.calls if most is None else min(record.calls, most)]
        times = np.array(record.seconds)
        error = float(np.std(times, ddof=1) / np.sqrt(len(times))) if len(times) > 1 else 0.0
        account = accounts.get((record.epoch, record.batch, record.calls, record.round))
        setting.rounds.append(_Round(max(float(np.mean(times)), 1e-9), error, account))
        setting.of_cpu_s.append(record.cpu_s)
        setting.batches += len(times)
    return dict(table)


def _read_per_sample(batches: Sequence[Batches]) -> float:
    read = [(record.read_bytes, record.batch) for record in batches if record.read_bytes is not None]
    each = [size / batch for size, batch in read if size >= _LEAST_BYTES]
    return float(np.median(each)) if 2 * len(each) > len(read) else 0.0


def _weakness(place: str, center: Sequence[float], draws: Array, epochs: _Epochs) -> list[str]:
    """Parts whose interval at the largest batch is wide, over what a batch takes at all."""
    batch = max(epochs.sizes)
    takes = min(setting.mean_s for setting in epochs.sizes[batch].values())
    weak = []
    for part, at in _PARTS.items():
        low, high = np.quantile(draws[:, at] + draws[:, at + 1] * batch, [0.05, 0.95])
        value = center[at] + center[at + 1] * batch
        if value > 0.1 * takes and (high - low) / 2 > _WEAK * value:
            weak.append(f"{place}.{part}: {low:.3g} to {high:.3g} s at {batch} samples")
    return weak


def _remarks(place: str, epochs: _Epochs, center: Sequence[float], pipeline: PipelineRecord) -> dict[str, str]:
    """Return what a reader must know of how the parts were told apart."""
    notes = {"pipeline": " <- ".join(_shown(stage) for stage in pipeline.stages)} if place == "work" else {}
    flags = [calls_limit for by_calls in epochs.limited.values() for calls_limit in by_calls.values()]
    batch = max(epochs.limited)
    if epochs.unaccounted:
        notes[f"{place}_split"] = f"by the clock and CPU time: {_UNACCOUNTED}"
    elif any(flags) and all(flags):
        notes[f"{place}_serial"] = "calls were the limit at every setting; from tf.data's statistics of stages, not from the clock"
    elif not any(flags) and center[2] + center[3] > 0:
        notes[f"{place}_parallel"] = "calls were the limit at no setting; from tf.data's statistics of stages, not from the clock"
    if len(epochs.limited) == 1:
        notes[f"{place}_batch"] = f"measured only at {batch} samples per batch: all time is counted per sample"
    settings, all_s = epochs.sizes[batch], math.fsum(center[at] + center[at + 1] * batch for at in _PARTS.values())
    waits = 1.0 - settings[settings.fewest].cpu_s / all_s
    if waits > _WAITS:
        notes[f"{place}_waits"] = f"{waits:.0%} of it is not CPU time (such as waiting for storage) and needs no core of cluster.host_cores"
    return notes


def _shown(stage: Mapping[str, object]) -> str:
    sizes = [stage[key] for key in ("buffer_size", "num_parallel_calls", "batch_size") if key in stage]
    words = ["AUTOTUNE" if size == -1 else str(size) for size in sizes]
    return f"{stage['name']}({', '.join(words)})" if words else str(stage["name"])


def _declared_calls(pipeline: PipelineRecord, measured: Sequence[int]) -> int:
    """As the pipeline says; with AUTOTUNE as many as there are cores, and without a parallel map 1."""
    if pipeline.calls and min(pipeline.calls) > 0:
        return max(pipeline.calls)
    return max(1, min(pipeline.cores, measured[-1])) if pipeline.calls else measured[-1]


def _prefetch(measured: Measurements, pipeline: PipelineRecord) -> int:
    """As the pipeline says; otherwise, or with AUTOTUNE, the batches ready after a pause."""
    if pipeline.prefetch is not None and pipeline.prefetch >= 0:
        return pipeline.prefetch
    ahead = measured.of(Ahead)
    return ahead[-1].batches if ahead else 1


def _shuffle_fill(measured: Measurements, size: int, table: _Table) -> float:
    """Time to fill a shuffle buffer divided by the time to prepare its samples, if clearly smaller; else 1."""
    shares = [
        (record.seconds - setting.mean_s) / (setting.mean_s * size / record.batch)
        for record in measured.of(FirstBatch)
        if size > 0 and record.epoch == "first" and (setting := table.get((record.epoch, record.batch, record.calls))) is not None
    ]
    if not shares or (share := float(np.median(shares))) > 1.0 - _WEAK:
        return 1.0
    return digits(max(share, 0.0))


def _jitter(batches: Sequence[Batches], fewest: int) -> Distribution:
    """Distribution of a batch's time around its mean, with the fewest calls: with more, batches come in bursts."""
    stretches = [
        np.maximum(np.array(record.seconds) / np.mean(record.seconds), 1e-3)
        for record in batches
        if record.epoch == "first" and record.calls == fewest and np.mean(record.seconds) > 0
    ]
    every = np.concatenate(stretches)
    if len(every) < FEWEST_FACTORS:
        return Constant()
    return with_persistence(distribution_of(every).distribution, persistence_of(stretches))


def _points(table: _Table) -> tuple[InputPoint, ...]:
    return tuple(
        InputPoint(
            batch=batch, parallel_calls=calls, epoch=epoch, mean_s=digits(setting.mean_s), cpu_s=digits(setting.cpu_s),
            batches=setting.batches,
        )
        for (epoch, batch, calls), setting in sorted(table.items())
    )  # fmt: skip
