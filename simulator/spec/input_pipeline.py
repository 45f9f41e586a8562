"""``[input]``: a ``tf.data`` pipeline, which prepares batches on the host while devices compute.

A pipeline reads samples from storage, works on them in parallel calls, shuffles, batches and prefetches (tf.data: A Machine
Learning Data Processing Framework, Murray et al., VLDB 2021). Its iterator does one thing after another (the serial part of a
batch: reading records, shuffling, batching); ``map`` with ``num_parallel_calls`` does many at a time (the parallel part).
What batches take is worked out in ``simulator.strategies.pipelines``, which also knows ``workload.input``, used without ``[input]``.
``calibrate.fit.input_pipeline`` fits such files (``models/inputs``).
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
    """What a pipeline does for one batch."""

    serial: Affine = Field(default=_NOTHING, description="seconds of the iterator, which does one thing after another")
    parallel: Affine = Field(default=_NOTHING, description="CPU seconds of all calls together that parallel_calls may share")
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
    """Within what a pipeline was measured; beyond it a result warns."""

    batch: Interval = Field(description="fewest and most samples per batch")
    parallel_calls: Interval = Field(description="fewest and most parallel calls")


class InputPoint(Spec):
    """What was measured at one batch size with one number of parallel calls, in a first or in later epochs."""

    batch: Annotated[float, Field(gt=0)] = Field(description="samples per batch")
    parallel_calls: Annotated[int, Field(ge=1)] = Field(description="calls that worked at a time")
    epoch: Literal["first", "later"] = Field(description="first: before anything is cached; later: what is cached is read")
    mean_s: PositiveSeconds = Field(description="mean time of a batch, at full speed")
    cpu_s: Seconds = Field(description="CPU time of the process for a batch")
    batches: Annotated[int, Field(ge=1)] = Field(description="batches that were timed")


class InputFit(Spec):
    """How well serial and parallel parts describe what was measured."""

    points: tuple[InputPoint, ...] = Field(default=(), description="what was measured")
    relative_residual: Annotated[float, Field(ge=0)] = Field(description="largest distance of a point from the fit")
    intervals_90: dict[str, tuple[float, float]] = Field(default_factory=dict, description="90% interval of each parameter")


class InputPipeline(Short, Terse):
    """``[input]`` of a scenario: one pipeline for each worker process or for each replica."""

    see: ClassVar[str] = "to_frame() has every key; paceline.load('ring', {'input': pipeline}) puts it into a scenario"
    name: str = Field(default="", max_length=200, description="for readers")
    work: InputWork = Field(description="what a batch takes: in every epoch or, where the pipeline caches, in the first")
    cached: InputWork | None = Field(default=None, description="what a batch takes in epochs after the first; left out: nothing is cached")
    parallel_calls: int = Field(default=1, ge=1, le=4096, description="num_parallel_calls of its map: calls that work at a time")
    prefetch: int = Field(default=1, ge=0, le=1_000_000, description="batches that are prepared ahead; 0: each when it is asked for")
    shuffle_buffer: int = Field(
        default=0, ge=0, le=10**12, description="samples that the shuffle buffer holds, filled when each epoch begins"
    )
    shuffle_fill: Share = Field(
        default=1.0,
        description="time to fill the shuffle buffer over that to prepare as many samples: below 1 where it stands before other stages",
    )
    jitter: Distribution = Field(default=Constant(), description="law of the time of a batch around its mean")
    per: Literal["replica", "process"] = Field(
        default="process",
        description="who has a pipeline: each replica, or each worker process, whose replicas share its batches "
        "(strategy.experimental_distribute_dataset)",
    )
    calibrated: InputRange | None = Field(default=None, description="range of what was measured; beyond it a result warns")
    description: str = Field(default="", description="for readers")
    fit: InputFit | None = Field(default=None, description="how well the fit describes what was measured")
    provenance: dict[str, str] = Field(default_factory=dict, description="where each figure is from")

    def _in_short(self) -> Iterator[str]:
        yield f"{self.name or 'without a name'}, one for each {self.per}"
        yield f"{counted(self.parallel_calls, 'call')} at a time, {self.prefetch:,} prefetched"

    def _broken_rules(self) -> Iterator[str]:
        if self.work == InputWork() and self.cached is None:
            yield "work has neither a serial nor a parallel part, nor bytes to read: leave [input] out, or give one of them"
