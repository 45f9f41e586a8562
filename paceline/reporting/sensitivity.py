"""A what-if of a report as data: what a single change to the configuration that it answers with would gain or lose.

It is simulated in simulated.py, drawn in figures.py and listed in tables.py. What swept values change is drawn by
``templates/sensitivity.js`` without any of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.comparing import LITTLE, NOTHING, has_effect
from paceline.sentences import helpfulness
from simulator.base.text import clean, format_share, listed, written
from simulator.spec.figures import Estimate


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
    def moves(self) -> bool:
        """Whether the throughput changes on average, as far as anybody reads."""
        return self.gain is not None and abs(self.gain) >= NOTHING

    @property
    def seen(self) -> bool:
        """Whether the runs show an effect: the interval of the gain leaves out nought."""
        if self.gain is None or self.low is None or self.high is None:
            return False
        return has_effect(Estimate(mean=1 + self.gain, low=1 + self.low, high=1 + self.high))


def helpful(changes: Sequence[Change]) -> list[Change]:
    """Those that gain something on average, what helps most first, whether that is certain or not."""
    gaining = [its for its in changes if its.gain is not None and its.gain >= LITTLE]
    return sorted(gaining, key=lambda its: -helpfulness(its.name, its.gain or 0.0))


_MOST_NAMED = 2


def most_helpful_in_words(changes: Sequence[Change]) -> str:
    """What helps most for certain, and what may help more but is not certain; empty where nothing was tried."""
    if not any(its.gain is not None for its in changes):
        return ""
    gaining = helpful(changes)
    certain = next((its for its in gaining if its.seen), None)
    if certain is None:
        maybe = gaining[:_MOST_NAMED]
        if not maybe:
            return f"None of the changes tried one at a time brings more than {format_share(LITTLE)}."
        return f"No change that was tried helps for certain; {listed([_with_ends(its) for its in maybe])} may."
    text = f"Of the changes tried one at a time, {clean(certain.name)} helps most: throughput {_ends(certain)}."
    more = [its for its in gaining[: gaining.index(certain)] if not its.seen][:_MOST_NAMED]
    return text + (f" {listed([_with_ends(its) for its in more])} may help more, but not for certain." if more else "")


def _with_ends(its: Change) -> str:
    return f"{clean(its.name)} {_ends(its)}"


def _ends(its: Change) -> str:
    """The gain with its interval, where its ends can be told apart."""
    assert its.gain is not None
    assert its.low is not None
    assert its.high is not None
    gain, low, high = (written(each, "change") for each in (its.gain, its.low, its.high))
    return gain if low == high else f"{gain} ({low} to {high})"
