"""``[input]``: a ``tf.data`` pipeline, which prepares batches on the host while devices compute.

A pipeline reads samples from storage, works on them in parallel calls, shuffles, batches and prefetches (tf.data: A Machine Learning Data
Processing Framework, Murray et al., VLDB 2021). Its iterator works serially (the serial part of a batch: reading records, shuffling,
batching); ``map`` with ``num_parallel_calls`` works in parallel (the parallel part). ``simulator.strategies.pipelines`` computes the time
of batches, also from ``workload.input``, which is used without ``[input]``. ``calibrate.fit.input_pipeline`` fits such files
(``models/inputs``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from simulator.base.spec import SAMPLE_BYTES, Interval, Moderate, PositiveSeconds, Seconds, Share, Spec, Terse
from simulator.base.text import Short, counted
from simulator.spec.distributions import Constant, Distribution
from simulator.spec.workload import Affine

_NOTHING = Affine(base_s=0.0, per_sample_s=0.0)


class InputWork(Spec):
    """Work of a pipeline for one batch."""

    serial: Affine = Field(default=_NOTHING, description="seconds of serial work in the iterator")
    parallel: Affine = Field(default=_NOTHING, description="CPU seconds of all calls together, shared by parallel_calls")
    read_bytes_per_sample: Annotated[Moderate, Field(ge=0), SAMPLE_BYTES] = Field(
        default=0.0, description="bytes read from storage (cluster.storage) for each sample"
    )

    def times(self, factor: float) -> InputWork:
        """Scale the work by a factor."""
        parts = {
            name: Affine(base_s=time.base_s * factor, per_sample_s=time.per_sample_s * factor)
            for name, time in (("serial", self.serial), ("parallel", self.parallel))
        }
        return InputWork(**parts, read_bytes_per_sample=self.read_bytes_per_sample * factor)


class InputRange(Spec):
    """Measured range of a pipeline; results warn outside it."""

    batch: Interval = Field(description="fewest and most samples per batch")
    parallel_calls: Interval = Field(description="fewest and most parallel calls")


class InputPoint(Spec):
    """Measurement at one batch size with one number of parallel calls, in a first or in later epochs."""

    batch: Annotated[float, Field(gt=0)] = Field(description="samples per batch")
    parallel_calls: Annotated[int, Field(ge=1)] = Field(description="calls in parallel")
    epoch: Literal["first", "later"] = Field(description="first: before anything is cached; later: read from the cache")
    mean_s: PositiveSeconds = Field(description="mean time of a batch at full speed")
    cpu_s: Seconds = Field(description="CPU time of the process for a batch")
    batches: Annotated[int, Field(ge=1)] = Field(description="batches that were timed")


class InputFit(Spec):
    """How well serial and parallel parts describe measured times."""

    points: tuple[InputPoint, ...] = Field(default=(), description="measured times")
    relative_residual: Annotated[float, Field(ge=0)] = Field(description="largest relative error of the fit at a point")
    intervals_90: dict[str, tuple[float, float]] = Field(default_factory=dict, description="90% interval of each parameter")


class InputPipeline(Short, Terse):
    """``[input]`` of a scenario: one pipeline for each worker process or for each replica."""

    see: ClassVar[str] = "to_frame() lists every key; paceline.load('ring', {'input': pipeline}) puts it into a scenario"
    name: str = Field(default="", max_length=200, description="for readers")
    work: InputWork = Field(description="time of a batch in every epoch or, if the pipeline caches, in the first")
    cached: InputWork | None = Field(default=None, description="time of a batch in epochs after the first; left out: nothing is cached")
    parallel_calls: int = Field(default=1, ge=1, le=4096, description="num_parallel_calls of its map: calls in parallel")
    prefetch: int = Field(default=1, ge=0, le=1_000_000, description="batches prepared ahead; 0: each batch is prepared on demand")
    shuffle_buffer: int = Field(
        default=0, ge=0, le=10**12, description="samples in the shuffle buffer, which is filled at the start of each epoch"
    )
    shuffle_fill: Share = Field(
        default=1.0,
        description="time to fill the shuffle buffer divided by the time to prepare as many samples; below 1 if the shuffle comes before "
        "other stages",
    )
    jitter: Distribution = Field(default=Constant(), description="distribution of the time of a batch around its mean")
    per: Literal["replica", "process"] = Field(
        default="process",
        description="one pipeline per replica, or per worker process, whose replicas share its batches "
        "(strategy.experimental_distribute_dataset)",
    )
    calibrated: InputRange | None = Field(default=None, description="range of measured times; beyond it a result warns")
    description: str = Field(default="", description="for readers")
    fit: InputFit | None = Field(default=None, description="how well the fit describes measured times")
    provenance: dict[str, str] = Field(default_factory=dict, description="source of each figure")

    def _in_short(self) -> Iterator[str]:
        yield f"{self.name or 'without a name'}, one per {self.per}"
        yield f"{counted(self.parallel_calls, 'call')} in parallel, {self.prefetch:,} prefetched"

    def _broken_rules(self) -> Iterator[str]:
        if self.work == InputWork() and self.cached is None:
            yield "work has no serial part, no parallel part and no bytes to read: give one of them, or leave [input] out"
