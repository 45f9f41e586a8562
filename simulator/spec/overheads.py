"""``[overheads]`` of a workload: what a job spends beside its steps, as it was measured: start-up, tracing, checkpoints, ends of iterators.

``calibrate.fit.overheads`` fits them; ``simulator.job`` takes them where ``[job]`` does not say. :class:`Duration` is also how ``[job]``
(job.py) gives a time with its interval.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from simulator.base.spec import Bytes, Rate, Seconds, Spec, Terse
from simulator.base.validation_errors import rule_of
from simulator.spec.constants import Known


class _Exact(Spec):
    """A time."""

    value_s: Seconds = Field(ge=0, description="the time")


class Duration(Spec):
    """A time and its 90% interval over runs; a file may give a text such as ``"20 s"`` alone, which is then taken as exact."""

    value_s: Seconds = Field(ge=0, description="mean time")
    low_s: Seconds = Field(ge=0, description="low end of its 90% interval over runs")
    high_s: Seconds = Field(ge=0, description="high end of its 90% interval over runs")

    @model_validator(mode="before")
    @classmethod
    def _exact(cls, data: Any) -> Any:
        if not isinstance(data, str):
            return data
        try:
            seconds = _Exact.model_validate({"value": data}).value_s
        except ValidationError as error:  # said once, not of each of the three
            rule = rule_of(error.errors(include_url=False)[0])
            raise PydanticCustomError("rule", "{rule}", {"rule": rule, "given": data}) from None
        return {"value_s": seconds, "low_s": seconds, "high_s": seconds}

    @model_validator(mode="after")
    def _ordered(self) -> Duration:
        if not self.low_s <= self.value_s <= self.high_s:
            raise ValueError(f"value ({self.value_s:g} s) must lie between low ({self.low_s:g} s) and high ({self.high_s:g} s)")
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /) -> JsonSchemaValue:
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        table = dict(schema)
        schema.clear()
        schema.update({"anyOf": [{"type": "string", "description": 'a time with its unit, such as "20 s", that is exact'}, table]})
        return schema

    def quantile_s(self, probability: float) -> float:
        """Seconds, of a lognormal with mean ``value_s`` whose 5% and 95% points are as far apart as low and high."""
        if self.low_s == self.high_s or not self.low_s:
            return float(self.value_s)
        return Known(value=self.value_s, low=self.low_s, high=self.high_s).quantile(probability)


class IteratorEnds(Spec):
    """How often the end of a ``tf.data`` iterator waited for the thread that tunes it."""

    ended: int = Field(ge=1, description="iterators that were ended while their thread slept")
    waited: int = Field(ge=0, description="of them, those whose end waited until the thread woke up by itself")

    @model_validator(mode="after")
    def _within(self) -> IteratorEnds:
        if self.waited > self.ended:
            raise ValueError(f"waited ({self.waited}) must be at most ended ({self.ended})")
        return self


class Overheads(Terse):
    """``[overheads]`` of a workload: what its jobs spend beside steps, measured on the user's own code."""

    terse: ClassVar[tuple[str, ...] | None] = None
    startup: Duration | None = Field(default=None, description="time from the start of a process until its first step begins")
    tracing: Duration | None = Field(default=None, description="by how much the first step takes longer than later ones")
    evaluation_tracing: Duration | None = Field(default=None, description="by how much the first step of the first evaluation takes longer")
    checkpoint_bytes: Bytes | None = Field(default=None, gt=0, description="size of a checkpoint as it is written")
    write_bytes_per_s: Rate | None = Field(default=None, gt=0, description="rate at which a checkpoint was written")
    restore_bytes_per_s: Rate | None = Field(default=None, gt=0, description="rate at which a checkpoint was read again")
    snapshot: Duration | None = Field(
        default=None, description="time for which an asynchronous checkpoint stops the training, to copy what it then writes"
    )
    iterators: IteratorEnds | None = Field(default=None, description="how often the end of a tf.data iterator stops the training")
