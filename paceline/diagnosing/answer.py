"""The answer of a diagnosis: what was seen beside what was predicted, causes with what each costs, and all of it in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from calibrate.observations import State
from paceline.diagnosing.seen import Seen
from paceline.planning.answer import Improvement
from simulator.base.spec import Spec
from simulator.base.table import Cell, Column, Table
from simulator.base.text import Short, format_change, format_interval, format_seconds, format_share, listed, sentence
from simulator.spec.figures import Estimate

if TYPE_CHECKING:
    import pandas as pd

LIKELY, EVEN, SURE = 0.1, 0.5, 0.95
"""Chances from which on a cause is told, an explanation is the one to go by, and a cause is taken to be there."""
_NAMED = 0.6
"""Chance from which on a cause is told by itself: others may have the very same effect, and share the chance."""
WORTH = 0.02
"""Share of a step below which what the scenario has anyway is not told."""
_MOST_SAID = 3
"""Causes that are told in sentences; the rest stand in the table."""
LEFT = 0.05
"""Share of a step from which on what is not explained is told."""
_PERFECT = 1.05
"""Share of perfect scaling beyond which it is asked whether one device was measured as the others were."""
_STATES: Mapping[State, str] = {
    "slower": "slower than predicted", "faster": "faster than predicted", "inside": "as predicted",
    "beyond": "outside that interval, as one run in ten is that goes as predicted",
    "unclear": "known too badly to tell",
}  # fmt: skip


class Cause(Spec):
    """One thing that a step waits for, and what it costs."""

    key: str = Field(description="which cause, to sort by")
    title: str = Field(description="what it is, in a few words")
    text: str = Field(description="how much of it there is")
    known: Literal["found", "told", "measured"] = Field(
        description="found: fitted to what was seen; told: the scenario has it anyway; measured: seen itself, between or before the steps"
    )
    cost_s: Estimate = Field(description="time of each step that it costs, in seconds")
    probability: float = Field(ge=0, le=1, description="chance that it is there")
    gain: Estimate = Field(description="throughput without it, over that with it")
    remedy: str = Field(description="what can be done about it")


class Compared(Spec):
    """One run that was seen, beside its prediction."""

    name: str = Field(description="the run")
    step_s: float = Field(description="step as it was seen, in seconds")
    told_s: Estimate = Field(description="step as the scenario tells, with 90% interval")
    efficiency: float = Field(description="share of perfect scaling: throughput over that of as many devices, each as fast as one alone")
    state: State = Field(description="slower, faster; inside: as predicted; beyond: outside the 90% interval, as one run in ten is")
    explained_s: float = Field(description="step with the causes that were found")


class Diagnosis(Short, Spec):
    """Why the largest of the runs that were seen takes as long as it does."""

    see: ClassVar[str] = ".sentences say it in words, .causes has every figure, to_frame() the table"

    run: Seen = Field(description="the run that is explained")
    one_device_s: float = Field(description="step of one device alone, as it was seen, or else as predicted")
    told_s: Estimate = Field(description="step as the scenario tells, with 90% interval")
    explained_s: float = Field(description="step with the causes that were found")
    unexplained_s: float = Field(description="what was seen beyond that; below 0: it is faster")
    as_told: bool = Field(description="whether nothing but what the scenario has is needed to explain all runs")
    runs: tuple[Compared, ...] = Field(description="every run of more than one device, the fewest workers first")
    own_error: float = Field(ge=0, le=1, description="chance that the prediction's own error is the reason, and no cause")
    unknown: float = Field(ge=0, le=1, description="chance that something is the reason that is no known cause")
    causes: tuple[Cause, ...] = Field(description="what costs most first")
    changes: tuple[Improvement, ...] = Field(description="changes of the configuration, the greatest gain first")
    measure: str | None = Field(description="the one measurement that tells the two likeliest explanations apart; null: there is one")
    remarks: tuple[str, ...] = Field(default=(), description="what to know beside")
    sentences: tuple[str, ...] = Field(description="the answer in words")

    def _in_short(self) -> Iterator[str]:
        yield from self.sentences

    @property
    def table(self) -> Table:
        """A row for each cause."""
        columns = (
            Column("title", "text", "Cause"),
            Column("cost_s", "seconds", "Costs per step"),
            Column("cost_low_s", "seconds", "90% from"),
            Column("cost_high_s", "seconds", "to"),
            Column("probability", "share", "Chance"),
            Column("gain", "change", "Gain without"),
            Column("known", "text", "Known"),
            Column("text", "text", "How"),
        )
        rows: list[tuple[Cell, ...]] = [
            (its.title, its.cost_s.mean, its.cost_s.low, its.cost_s.high, its.probability, its.gain.mean - 1.0, its.known, its.text)
            for its in self.causes
        ]
        return Table(f"Where the time of {self.run.name} goes", columns, tuple(rows), "causes")

    def to_frame(self) -> pd.DataFrame:
        """The table for pandas."""
        return self.table.to_frame()

    def to_json(self) -> str:
        """All of it as JSON."""
        return self.model_dump_json()


def sentences_of(answer: Diagnosis) -> Iterator[str]:
    """Give the answer in words, the verdict first."""
    seen, last = answer.run, answer.runs[-1]
    told = f"{format_seconds(last.told_s.mean)} (90%: {format_interval(last.told_s.low, last.told_s.high, 'seconds')})"
    yield sentence(
        f"a step takes {format_seconds(seen.step_s)} on {seen.name} and {format_seconds(answer.one_device_s)} on one device alone: "
        f"{format_share(last.efficiency)} of perfect scaling. The scenario predicts {told}: {_STATES[last.state]}"
    )
    for run in answer.runs[:-1]:
        yield sentence(
            f"{run.name}: {format_seconds(run.step_s)}, {format_share(run.efficiency)} of perfect; {format_seconds(run.told_s.mean)} "
            f"predicted ({format_interval(run.told_s.low, run.told_s.high, 'seconds')}): {_STATES[run.state]}"
        )
    if (most := max(answer.runs, key=lambda run: run.efficiency)).efficiency > _PERFECT:
        yield (
            f"More than perfect scaling ({most.name}): was one device measured with the same batch, and are these times of steps? Times of "
            "epochs go to --epoch, samples/s of all workers to --throughput."
        )
    if answer.as_told:
        yield "It runs as predicted: nothing but what the scenario has is needed to explain it."
    elif answer.own_error >= EVEN:
        yield sentence(f"the prediction's own error explains that (chance {format_share(answer.own_error)}) better than any cause")
    elif answer.unknown >= EVEN:
        yield sentence(f"no cause that is known here explains it (chance {format_share(answer.unknown)} of another)")
    sure = [cause for cause in answer.causes if cause.probability >= _NAMED and cause.cost_s.mean > WORTH * seen.step_s]
    for cause in sure[:_MOST_SAID]:
        chance = "" if cause.probability >= SURE else f", with a chance of {format_share(cause.probability)}"
        costs = f"{format_seconds(cause.cost_s.mean)} ({format_interval(cause.cost_s.low, cause.cost_s.high, 'seconds')})"
        yield sentence(f"{cause.title}{chance}: this costs {costs} of each step; {cause.text}. What helps: {cause.remedy}")
    doubtful = sorted((cause for cause in answer.causes if cause.probability < _NAMED), key=lambda cause: -cause.probability)
    if doubtful:
        each = [f"{cause.title} ({format_share(cause.probability)})" for cause in doubtful]
        each += [
            f"{words} ({format_share(chance)})"
            for words, chance in (("the prediction's own error", answer.own_error), ("something else", answer.unknown))
            if chance >= LIKELY
        ]
        yield sentence(f"what was seen does not tell which of these it is: {listed(each, 'or')}" if len(each) > 1 else f"perhaps {each[0]}")
    decided = any(cause.known == "found" for cause in sure)
    if (decided or answer.unknown >= EVEN) and abs(answer.unexplained_s) > LEFT * seen.step_s:
        how = "more" if answer.unexplained_s > 0 else "less"
        yield sentence(f"not explained: {format_seconds(abs(answer.unexplained_s))} of a step, {how} than predicted")
    if answer.changes and (best := answer.changes[0]).gain is not None and best.gain > WORTH:
        low, high = best.gain_low or 0.0, best.gain_high or 0.0
        yield sentence(
            f"of changes to the configuration {best.name} would bring most: {format_change(best.gain)} "
            f"({format_change(low)} to {format_change(high)}); {best.text}"
        )
    if answer.measure is not None:
        yield sentence(f"what to measure next: {answer.measure}")
