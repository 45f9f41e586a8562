"""``[workload.noise_scale]``: the gradient noise scale of a training, measured by ``paceline calibrate --noise-scale`` or given.

McCandlish et al. 2018, "An Empirical Model of Large-Batch Training" (arXiv:1812.06162). It has no influence on what is simulated;
``paceline.learning.batch`` has the law that is made of it. ``calibrate.fit.noise_scale`` fits it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from simulator.base.spec import Moderate, Spec

Samples = Annotated[Moderate, Field(ge=0)]


class NoiseScale(Spec):
    """Samples of the batch whose gradient has as much noise as signal, over a whole training, with its 90% interval.

    A file may give ``samples`` alone, which is then taken as exact. Where the gradient cannot be told from its noise with certainty,
    the interval has no upper end: there is ``low``, and no ``high``.
    """

    samples: Samples = Field(description="batch whose gradient has as much noise as signal, over the whole training")
    low: Samples = Field(description="low end of its 90% interval; left out: samples is exact")
    high: Samples | None = Field(default=None, description="high end of it; left out where low is given: there is none")
    source: Literal["measured", "given"] = Field(default="given", description="measured by paceline calibrate, or given")

    @model_validator(mode="before")
    @classmethod
    def _exact(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and "samples" in data and data.get("low") is None and data.get("high") is None:
            return {**data, "low": data["samples"], "high": data["samples"]}
        return data

    @model_validator(mode="after")
    def _ordered(self) -> NoiseScale:
        if self.low > self.samples or (self.high is not None and self.high < self.samples):
            high = "no upper end" if self.high is None else f"high ({self.high:g})"
            raise ValueError(f"samples ({self.samples:g}) must lie between low ({self.low:g}) and {high}")
        return self

    @property
    def bounded(self) -> bool:
        """Whether its interval has an upper end."""
        return self.high is not None
