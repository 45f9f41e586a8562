"""Fits an input pipeline to measured batches of a tf.data pipeline, with intervals and provenance.

A pipeline whose ``map`` has parallel calls works on them while its iterator reads, shuffles and batches, each on a thread of
its own, so a batch takes ``max(serial, parallel / calls)``. What limits it at each number of calls comes from tf.data's own
accounting of stages (the model of its autotuning: Murray et al., VLDB 2021, section 4.4); how long that takes comes from
the clock: the parallel part is fitted to the settings in which calls are the limit, the serial part to the others. Without
such an account, clock and CPU time decide (:mod:`calibrate.fit.input_pipeline`), and say how far they leave the split open.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from calibrate.fit.estimators import DRAWS, FEWEST_FACTORS, AffineMean, Persistence, StepTimeLaw, intervals_90, with_persistence
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
from simulator.spec.workload import Affine

FALLS = 0.05
"""Of the time with the fewest calls: more calls must save as much, and twice its standard error, to count as their limit."""
SCALES = 0.75
"""Of the speed-up that calls promise: where less comes of it, something else has become the limit."""
FULL = 0.8
"""Of the cores' time: more calls than cores, which use so much, wait for cores and tell nothing of the pipeline."""


class Clock(NamedTuple):
    """Mean seconds of a batch with a number of calls, the standard error of that mean, CPU seconds of the whole process."""

    mean_s: float
    error_s: float
    cpu_s: float


class Costs(NamedTuple):
    """Seconds of a batch."""

    serial_s: float
    parallel_s: float


class Split(NamedTuple):
    """The likeliest parts, and the least and the largest that the measured times allow."""

    center: Costs
    least: Costs
    largest: Costs

    def end(self, *, serial: bool) -> Costs:
        """One end of what the times allow: as much as can be is serial, or else parallel."""
        if serial:
            return Costs(self.largest.serial_s, self.least.parallel_s)
        return Costs(self.least.serial_s, self.largest.parallel_s)


def limited_by_clock(clocks: Mapping[int, Clock], cores: int) -> dict[int, bool]:
    """For each number of calls whether calls are the limit; without those that wait for cores."""
    fewest = min(clocks)
    usable = {calls: its for calls, its in clocks.items() if calls == fewest or calls <= cores or its.cpu_s <= FULL * cores * its.mean_s}
    least, first = min(usable.values()), usable[fewest]
    falls = first.mean_s - least.mean_s > max(FALLS * first.mean_s, 2.0 * float(np.hypot(first.error_s, least.error_s)))
    return {
        calls: falls and (calls == fewest or its.mean_s * calls < first.mean_s * fewest / SCALES) for calls, its in sorted(usable.items())
    }


def split_by_clock(clocks: Mapping[int, Clock], limited: Mapping[int, bool], *, parallel: bool, sure: bool) -> Split:
    """Parts of a batch's time.

    Parameters
    ----------
    clocks, limited
        By number of calls; ``limited`` as by :func:`limited_by_clock`.
    parallel
        Whether the pipeline has a stage with parallel calls at all.
    sure
        Several numbers of calls were measured, and nothing else disturbed them. Otherwise every split that agrees with
        clock and CPU time stands between ``least`` and ``largest``.
    """
    fewest = clocks[min(limited)]
    shortest = min(clocks[calls].mean_s for calls in limited)
    most_parallel = min(clocks[calls].mean_s * calls for calls in limited)
    by_calls = [clocks[calls].mean_s * calls for calls, its in limited.items() if its]
    others = [clocks[calls].mean_s for calls, its in limited.items() if not its]
    if not by_calls and not parallel:
        alone = Costs(float(np.mean(others)), 0.0)
        return Split(alone, alone, alone)

    least_serial, least_parallel = max(0.0, fewest.cpu_s - most_parallel), max(0.0, fewest.cpu_s - shortest)
    least_serial, least_parallel = min(least_serial, shortest), min(least_parallel, most_parallel)
    if not sure:
        low, high = Costs(least_serial, least_parallel), Costs(shortest, most_parallel)
    else:
        serial = float(np.mean(others)) if others else None
        its_parallel = float(np.mean(by_calls)) if by_calls else None
        # without calls as the limit nobody waits for the parallel part, which can be no more than the CPU time that was used
        bound = max(least_parallel, min(most_parallel, fewest.cpu_s))
        low = Costs(least_serial if serial is None else serial, least_parallel if its_parallel is None else its_parallel)
        high = Costs(shortest if serial is None else serial, bound if its_parallel is None else its_parallel)
    center = Costs(
        float(np.mean(others)) if others else low.serial_s,
        float(np.mean(by_calls)) if by_calls else (low.parallel_s + high.parallel_s) / 2.0,
    )
    return Split(center, low, high)


def stages_of(nodes: Sequence[StageNode]) -> tuple[float, float]:
    """Serial and parallel seconds of a batch by tf.data's own account.

    Stages between asynchronous ones share a thread, so the serial part is that of the slowest thread; the parallel part is
    that of all stages with parallel calls, which share the pipeline's threads.
    """
    by_id = {node.id: node for node in nodes}
    inner = {one for node in nodes for one in node.inputs}
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
                threads += [(one, shared or node.interleaves) for one in node.inputs]
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


Array = NDArray[np.float64]
Epoch: TypeAlias = Literal["first", "later"]

PARTS = ("serial", "parallel")
_LEAST_BYTES = 1024
"""Read for a batch: less is what a process reads anyway, such as its own wake-ups."""
_WEAK = 0.25
"""Half an interval over its value, or a residual, from which on a part counts as badly determined."""
_WAITS = 0.3
_UNACCOUNTED = "tf.data gives no account of its stages that explains the time"
_EXPLAINS = 0.5
"""Of a measured time: an account of stages that has less is not believed."""


class _Round(NamedTuple):
    """One stretch: mean seconds of a batch and its standard error, and by tf.data's own account serial and parallel seconds."""

    mean_s: float
    error_s: float
    serial_s: float | None
    parallel_s: float | None


@dataclass
class _Setting:
    """What was measured at one batch size with one number of calls, in a first or in later epochs."""

    rounds: list[_Round] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    batches: int = 0

    @property
    def mean_s(self) -> float:
        return float(np.mean([one.mean_s for one in self.rounds]))

    @property
    def clock(self) -> Clock:
        within = float(np.hypot.reduce([one.error_s for one in self.rounds])) / len(self.rounds)
        between = float(np.std([one.mean_s for one in self.rounds], ddof=1) / np.sqrt(len(self.rounds))) if len(self.rounds) > 1 else 0.0
        return Clock(self.mean_s, max(within, between), float(np.mean(self.cpu_s)))

    def drawn(self, rng: np.random.Generator) -> _Setting:
        """A bootstrap copy: rounds drawn with replacement, each mean as it might have come out."""
        copy = _Setting(batches=self.batches, cpu_s=self.cpu_s)
        for index in rng.integers(0, len(self.rounds), len(self.rounds)):
            its = self.rounds[index]
            copy.rounds.append(its._replace(mean_s=max(rng.normal(its.mean_s, its.error_s), 0.1 * its.mean_s)))
        return copy


_Table: TypeAlias = dict[tuple[Epoch, int, int], _Setting]


def fit_input(measurements: Path, name: str, command: str = "", seed: int = 0) -> InputPipeline:
    """Fit an input pipeline to measured batches.

    Parameters
    ----------
    measurements
        File written by :func:`calibrate.profiling.profile_input`.
    name
        Of the pipeline.
    command
        Command line that made it, for the provenance.
    seed
        Of the bootstrap.

    Returns
    -------
    InputPipeline
        Serial and parallel seconds of a batch, in a first epoch and, where it caches, in later ones; calls, prefetch and
        shuffle buffer as they were measured; law of a batch's time; 90% intervals in ``fit``. What is badly determined
        stands in ``provenance["weak"]``.

    Raises
    ------
    MeasurementsError
        The file is damaged, or holds no such measurements.
    """
    measured = read_measurements(measurements)
    if measured.header.probe != "input":
        raise MeasurementsError(f"{measurements}: holds no measurements of an input pipeline; measure with `paceline calibrate-input`")
    found = measured.of(PipelineRecord)
    if not found or not measured.of(Batches):
        raise MeasurementsError(f"{measurements}: holds no batches: {CUT_SHORT}")
    pipeline = found[0]
    left_out, notes = _disturbed(measured)
    table = _table(measured, pipeline, left_out)
    rng = np.random.default_rng(seed)
    epochs: list[Epoch] = [epoch for epoch in ("first", "later") if any(key[0] == epoch for key in table)]
    works: dict[Epoch, InputWork] = {}
    intervals: dict[str, tuple[float, float]] = {}
    residual = 0.0
    weak: list[str] = []
    judge = _Judge(pipeline.cores, bool(pipeline.calls) or "num_parallel_calls" in pipeline.takes, "disturbed" in notes)
    for epoch in epochs:
        settings = {key[1:]: its for key, its in table.items() if key[0] == epoch}
        limited = {batch: judge.limits(settings, batch) for batch in sorted({key[0] for key in settings})}
        costs = {batch: judge.costs(settings, batch, its) for batch, its in limited.items()}
        center = _lines(costs)
        draws = []
        for _ in range(DRAWS):
            again = {key: its.drawn(rng) for key, its in settings.items()}
            serial = bool(rng.integers(2))  # of what the clock leaves open, one end or the other
            draws.append(_lines({batch: judge.costs(again, batch, its, serial) for batch, its in limited.items()}))
        place = "work" if epoch == "first" else "cached"
        names = [f"{place}.{part}.{key}" for part in PARTS for key in ("base_s", "per_sample_s")]
        intervals |= {key: its for key, its in intervals_90(names, np.array(draws), center).items() if its[1] > 0}
        works[epoch] = _work(center, _bytes_per_sample(measured, epoch, left_out))
        apart = max(
            abs(_predicted(center, batch, calls) / its.mean_s - 1.0) for (batch, calls), its in settings.items() if calls in limited[batch]
        )
        residual = max(residual, apart)
        if doubt := judge.doubt(settings, limited):
            weak.append(f"{place}: serial and parallel are badly told apart: {_UNACCOUNTED}, and {doubt}")
        weak += _weakness(place, center, np.array(draws), settings)
        if apart > _WEAK:
            weak.append(f"{place}: serial and parallel parts miss a measured time by {apart:.0%}")
        notes |= _remarks(place, settings, limited, center, pipeline)
    calls = sorted({key[2] for key in table})
    batches = sorted({key[1] for key in table})
    fingerprint = measured.fingerprint
    if weak:
        notes["weak"] = "; ".join(dict.fromkeys(weak))
    return InputPipeline(
        name=name,
        description=f"{_span(batches)} samples per batch on {fingerprint.device_name}, TensorFlow {fingerprint.tensorflow}",
        work=works["first"],
        cached=works.get("later"),
        parallel_calls=_declared_calls(pipeline, calls),
        prefetch=_prefetch(measured, pipeline),
        shuffle_buffer=pipeline.shuffle_samples,
        shuffle_fill=_shuffle_fill(measured, pipeline.shuffle_samples, table),
        jitter=_jitter(measured, left_out),
        calibrated=InputRange(batch=(batches[0], batches[-1]), parallel_calls=(calls[0], calls[-1])),
        fit=InputFit(points=_points(table), relative_residual=digits(residual), intervals_90=intervals),
        provenance={**provenance([measured], command), "input": str(measured.header.arguments.get("input", "")), **notes},
    )


def _span(values: Sequence[int]) -> str:
    return str(values[0]) if values[0] == values[-1] else f"{values[0]} to {values[-1]}"


def _disturbed(measured: Measurements) -> tuple[set[int], dict[str, str]]:
    """Rounds that something else disturbed, if most are undisturbed; else none is left out, and that is said."""
    loads = [load for load in measured.of(Load) if load.round is not None]
    bad = {load.round for load in loads if load.why and load.round is not None}
    if not bad:
        return set(), {}
    why = next(load.why for load in loads if load.why)
    if len(bad) > len(loads) / 2:
        return set(), {"disturbed": f"{len(bad)} of {len(loads)} rounds were disturbed ({why}), and are fitted all the same"}
    return bad, {"left_out": f"{len(bad)} of {len(loads)} rounds, which something else disturbed ({why})"}


def _table(measured: Measurements, pipeline: PipelineRecord, left_out: set[int]) -> _Table:
    """Settings with their rounds, by epoch, batch size and the calls that it could use."""
    table: _Table = defaultdict(_Setting)
    accounts = {
        (one.epoch, one.batch, one.calls, one.round): stages_of(one.nodes)
        for one in measured.of(Stages)
        # a cache that is filled drops the stages before it from the account
        if one.epoch == "later" or not pipeline.calls or any("parallelism" in node.parameters for node in one.nodes)
    }
    most = max(pipeline.calls, default=-1) if "num_parallel_calls" not in pipeline.takes and min(pipeline.calls, default=-1) > 0 else None
    for one in measured.of(Batches):
        if one.round in left_out:
            continue
        its = table[one.epoch, one.batch, one.calls if most is None else min(one.calls, most)]
        times = np.array(one.seconds)
        error = float(np.std(times, ddof=1) / np.sqrt(len(times))) if len(times) > 1 else 0.0
        serial, parallel = accounts.get((one.epoch, one.batch, one.calls, one.round), (None, None))
        its.rounds.append(_Round(max(float(np.mean(times)), 1e-9), error, serial, parallel))
        its.cpu_s.append(one.cpu_s)
        its.batches += len(times)
    return dict(table)


def _accounted(settings: Mapping[tuple[int, int], _Setting], batch: int) -> Costs | None:
    """By tf.data's own account at the fewest calls, where threads wait for cores the least; none where it gives none."""
    fewest = min(calls for its, calls in settings if its == batch)
    known = [
        (one.serial_s, one.parallel_s) for one in settings[batch, fewest].rounds if one.serial_s is not None and one.parallel_s is not None
    ]
    if not known:
        return None
    its = Costs(*(float(value) for value in np.median(np.array(known), axis=0)))
    # stages that wait, as for storage, may stop tf.data's count: such an account tells nothing of where the time goes
    return its if max(its.serial_s, its.parallel_s / fewest) > _EXPLAINS * settings[batch, fewest].mean_s else None


class _Judge(NamedTuple):
    """How parts are distinguished: by tf.data's account where there is one, else by clock and CPU time."""

    cores: int
    parallel: bool
    disturbed: bool

    def limits(self, settings: Mapping[tuple[int, int], _Setting], batch: int) -> dict[int, bool]:
        """For each number of calls, from which a part is fitted, whether calls are the limit."""
        known = _accounted(settings, batch)
        if known is None:
            return limited_by_clock(_clocks(settings, batch), self.cores)
        return {calls: known.parallel_s / calls >= known.serial_s for one, calls in sorted(settings) if one == batch}

    def doubt(self, settings: Mapping[tuple[int, int], _Setting], limited: Mapping[int, Mapping[int, bool]]) -> str:
        """Why clock and CPU time cannot tell the parts apart; nothing where they can, or need not."""
        alone = [batch for batch in limited if _accounted(settings, batch) is None]
        if not alone or not self.parallel:
            return ""
        if min(len(limited[batch]) for batch in alone) < 2:
            return "only one number of calls was measured that had cores enough (two are needed, such as `calls` 1,2)"
        return "other processes disturbed the rounds" if self.disturbed else ""

    def costs(
        self,
        settings: Mapping[tuple[int, int], _Setting],
        batch: int,
        limited: Mapping[int, bool],
        serial_end: bool | None = None,
    ) -> Costs:
        """Serial and parallel seconds of a batch; with ``serial_end``, at that end of what the clock leaves open."""
        known = _accounted(settings, batch)
        if known is None:
            sure = len(limited) > 1 and not self.disturbed
            split: Split = split_by_clock(_clocks(settings, batch), limited, parallel=self.parallel, sure=sure)
            return split.center if serial_end is None else split.end(serial=serial_end)
        by_calls = [settings[batch, calls].mean_s * calls for calls, its in limited.items() if its]
        others = [settings[batch, calls].mean_s for calls, its in limited.items() if not its]
        serial = float(np.mean(others)) if others else known.serial_s
        return Costs(serial, float(np.mean(by_calls)) if by_calls else known.parallel_s)


def _clocks(settings: Mapping[tuple[int, int], _Setting], batch: int) -> dict[int, Clock]:
    return {calls: its.clock for (one, calls), its in settings.items() if one == batch}


def _lines(costs: Mapping[int, Costs]) -> list[float]:
    """Base and slope of both parts as lines through the batch sizes; from one size alone all counts as the samples'."""
    found: list[float] = []
    for part in range(len(PARTS)):
        sizes, seconds = list(costs), [its[part] for its in costs.values()]
        if len(sizes) < 2 or min(seconds) <= 0:
            found += [0.0, float(np.mean([time_s / size for size, time_s in zip(sizes, seconds, strict=True)]))]
        else:
            line = AffineMean().fit(sizes, seconds)
            found += [line.base_, line.slope_]
    return found


def _predicted(center: Sequence[float], batch: int, calls: int) -> float:
    return max(center[0] + center[1] * batch, (center[2] + center[3] * batch) / calls)


def _work(center: Sequence[float], bytes_per_sample: float) -> InputWork:
    serial, parallel = (Affine(base_s=digits(center[at]), per_sample_s=digits(center[at + 1])) for at in (0, 2))
    return InputWork(serial=serial, parallel=parallel, read_bytes_per_sample=digits(bytes_per_sample))


def _bytes_per_sample(measured: Measurements, epoch: Epoch, left_out: set[int]) -> float:
    read = [
        (one.read_bytes, one.batch)
        for one in measured.of(Batches)
        if one.epoch == epoch and one.read_bytes is not None and one.round not in left_out
    ]
    each = [size / batch for size, batch in read if size >= _LEAST_BYTES]
    return float(np.median(each)) if 2 * len(each) > len(read) else 0.0


def _weakness(place: str, center: Sequence[float], draws: Array, settings: Mapping[tuple[int, int], _Setting]) -> list[str]:
    """Parts whose interval at the largest batch is wide, over what a batch takes at all."""
    batch = max(its for its, _ in settings)
    takes = min(its.mean_s for (one, _), its in settings.items() if one == batch)
    found = []
    for part, at in zip(PARTS, (0, 2), strict=True):
        low, high = np.quantile(draws[:, at] + draws[:, at + 1] * batch, [0.05, 0.95])
        value = center[at] + center[at + 1] * batch
        if value > 0.1 * takes and (high - low) / 2 > _WEAK * value:
            found.append(f"{place}.{part}: {low:.3g} to {high:.3g} s at {batch} samples")
    return found


def _remarks(
    place: str,
    settings: Mapping[tuple[int, int], _Setting],
    limited: Mapping[int, Mapping[int, bool]],
    center: Sequence[float],
    pipeline: PipelineRecord,
) -> dict[str, str]:
    """What a reader must know of how the parts were told apart."""
    notes = {"pipeline": " <- ".join(_shown(stage) for stage in pipeline.stages)} if place == "work" else {}
    flags = [its for each in limited.values() for its in each.values()]
    batch = max(limited)
    calls = min(calls for measured_batch, calls in settings if measured_batch == batch)
    if any(_accounted(settings, its) is None for its in limited):
        notes[f"{place}_split"] = f"by the clock and CPU time: {_UNACCOUNTED}"
    elif any(flags) and all(flags):
        notes[f"{place}_serial"] = "calls were the limit at every setting; by tf.data's own account of stages, not by the clock"
    elif not any(flags) and center[2] + center[3] > 0:
        notes[f"{place}_parallel"] = "calls were the limit at no setting; by tf.data's own account of stages, not by the clock"
    if len(limited) == 1:
        notes[f"{place}_batch"] = f"measured at {batch} samples a batch alone: all time counts as the samples'"
    its = settings[batch, calls]
    all_s = math.fsum(center[at] + center[at + 1] * batch for at in (0, 2))
    waits = 1.0 - float(np.mean(its.cpu_s)) / all_s
    if waits > _WAITS:
        notes[f"{place}_waits"] = f"{waits:.0%} of it is no CPU time, such as waiting for storage: it needs no core of cluster.host_cores"
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
    """As the pipeline says; where it does not, or with AUTOTUNE, what stood ready after a pause."""
    if pipeline.prefetch is not None and pipeline.prefetch >= 0:
        return pipeline.prefetch
    ahead = measured.of(Ahead)
    return ahead[-1].batches if ahead else 1


def _shuffle_fill(measured: Measurements, size: int, table: _Table) -> float:
    """Time to fill a shuffle buffer of so many samples over that to prepare them all, where it is clearly less; else 1."""
    shares = [
        (one.seconds - table[one.epoch, one.batch, one.calls].mean_s) / (table[one.epoch, one.batch, one.calls].mean_s * size / one.batch)
        for one in measured.of(FirstBatch)
        if size > 0 and one.epoch == "first" and (one.epoch, one.batch, one.calls) in table
    ]
    if not shares or (share := float(np.median(shares))) > 1.0 - _WEAK:
        return 1.0
    return digits(max(share, 0.0))


def _jitter(measured: Measurements, left_out: set[int]) -> Distribution:
    """Law of a batch's time around its mean, with the fewest calls: with more, batches come in bursts."""
    fewest = min(one.calls for one in measured.of(Batches))
    stretches = [
        np.maximum(np.array(one.seconds) / np.mean(one.seconds), 1e-3)
        for one in measured.of(Batches)
        if one.epoch == "first" and one.calls == fewest and one.round not in left_out and np.mean(one.seconds) > 0
    ]
    every = np.concatenate(stretches)
    if len(every) < FEWEST_FACTORS:
        return Constant()
    return with_persistence(StepTimeLaw().fit(every).law_, Persistence().fit(stretches).value_)


def _points(table: _Table) -> tuple[InputPoint, ...]:
    return tuple(
        InputPoint(
            batch=batch,
            parallel_calls=calls,
            epoch=epoch,
            mean_s=digits(its.mean_s),
            cpu_s=digits(float(np.mean(its.cpu_s))),
            batches=its.batches,
        )
        for (epoch, batch, calls), its in sorted(table.items())
    )
