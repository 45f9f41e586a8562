"""A what-if of a report as data: what a single change to the configuration that it answers with would gain or lose.

It is simulated in simulated.py, drawn in figures.py and listed in tables.py. What swept values change is drawn by
``templates/sensitivity.js`` without any of this.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.comparing import has_effect
from simulator.spec.figures import Estimate

__all__ = ["Change"]


@dataclass(frozen=True)
class Change:
    """One change to the configuration that the report answers with.

    Attributes
    ----------
    name
        Such as ``2x network``.
    text
        What was changed, in a sentence.
    gain
        Throughput over that without the change, run by run, less 1: the mean; none where it is not known.
    low, high
        Ends of its 90% prediction interval.
    reason
        What limits it then; or why it is not known.
    row
        What is changed, such as ``network``: a change up and one down share a row of the tornado.
    run
        How long was simulated, with and without the change, where that is less than the result itself rests on.
    """

    name: str
    text: str
    gain: float | None
    low: float | None
    high: float | None
    reason: str
    row: str
    run: str = ""

    @property
    def seen(self) -> bool:
        """Whether the runs show an effect: the interval of the gain leaves out nought."""
        if self.gain is None or self.low is None or self.high is None:
            return False
        return has_effect(Estimate(mean=1 + self.gain, low=1 + self.low, high=1 + self.high))
