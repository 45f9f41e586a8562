"""The answer to "why does it not scale?": causes with the time that each costs, what they do not explain, what helps, what to measure.

Causes are in causes.py, and fitted in fitting.py. What the scenario has anyway counts by what a step gains without it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from calibrate.recorded.steadiness import thousand_times
from paceline.comparing import compare
from paceline.diagnosing.causes import FOUND, OUTSIDE, STANDING, Found
from paceline.diagnosing.fitting import Explanation, Runs, explanations, spread_of, step_of, told_as
from paceline.diagnosing.seen import Seen, as_settings
from paceline.planning.answer import Improvement
from paceline.planning.improvements import improved
from paceline.sweeping import Simulate
from simulator.base.errors import ScenarioError, SimulationError
from simulator.base.short import Short
from simulator.base.spec import Spec
from simulator.base.table import Cell, Column, Table
from simulator.base.text import counted, format_bytes, format_change, format_interval, format_seconds, format_share, listed, sentence
from simulator.memory import memory
from simulator.results.results import Result
from simulator.results.what_if import changed, with_batch, with_strategy
from simulator.scenario import Scenario
from simulator.spec.discrepancy import Z_90
from simulator.spec.figures import Estimate

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Cause", "Diagnosis", "diagnose"]

_TRIED = {"steps": 20, "replications": 2}
"""Runs in which strengths are fitted: with the same draws for all, so that what differs are the causes."""
_SAID = {"replications": 19}
"""Runs of what is told: the fewest for an interval without assumptions on its shape."""
_MOST_STEPS = 60
_99 = 2.5758293035489004
_LIKELY, _EVEN, _SURE = 0.1, 0.5, 0.95
"""Chances from which on a cause is told, an explanation is the one to go by, and a cause is taken to be there."""
_RIVAL = 0.2
"""Part of the best explanation's chance from which on another one is a rival."""
_WORTH = 0.02
"""Share of a step below which what the scenario has anyway is not told."""
_MOST_SAID = 3
"""Causes that are told in sentences; the rest stand in the table."""
_TIGHT = 0.05
"""Share of a device's memory below which what is free is little."""
_LEFT = 0.05
"""Share of a step from which on what is not explained is told."""
_TELLS = 3.0
"""Standard errors by which a measurement has to tell two explanations apart."""
_OF_REST = 0.02
"""Standard error of what a prediction has besides what is sent, as a share of a step, where one device was seen."""
_OF_A_RUN = 0.04
"""Standard error of a step time that is measured again, as a share."""


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


class Diagnosis(Short, Spec):
    """Why the largest of the runs that were seen takes as long as it does."""

    see: ClassVar[str] = ".sentences say it in words, .causes has every figure, to_frame() the table"

    run: Seen = Field(description="the run that is explained")
    one_device_s: float = Field(description="step of one device alone, as it was seen, or else as predicted")
    told_s: Estimate = Field(description="step as the scenario tells, with 90% interval")
    explained_s: float = Field(description="step with the causes that were found")
    unexplained_s: float = Field(description="what was seen beyond that; below 0: it is faster")
    as_told: bool = Field(description="whether nothing but what the scenario has is needed to explain the run")
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
        return Table(f"What {self.run.name} wait for", columns, tuple(rows), "causes")

    def to_frame(self) -> pd.DataFrame:
        """The table for pandas."""
        return self.table.to_frame()

    def to_json(self) -> str:
        """All of it as JSON."""
        return self.model_dump_json()


def diagnose(scenario: Scenario, seen: Sequence[Seen], run: Simulate, remarks: Sequence[str] = ()) -> Diagnosis:
    """Explain the run with most workers by all that was seen.

    Parameters
    ----------
    scenario
        What is told of the training: model, cluster, strategy; how many workers does not matter.
    seen
        Runs of one worker, which tells how fast the device is, and of several.
    run
        Simulates scenarios.
    remarks
        What is already known to be odd about what was seen.

    Raises
    ------
    InputError
        No run of several workers was seen.
    ScenarioError
        The scenario cannot have as many workers.
    SimulationError
        It cannot be simulated.
    """
    as_settings(seen, scenario)
    told = _Told.of(scenario, seen, run)
    found = explanations(told.runs, run)
    return _Answer(told, found, run, [*remarks, *told.remarks]).diagnosis()


class _Told:
    """The runs that are explained, beside what is told of them."""

    def __init__(self, runs: Runs, results: list[Result], one_device_s: float, remarks: list[str]) -> None:
        self.runs = runs
        self.results = results
        self.one_device_s = one_device_s
        self.remarks = remarks

    @classmethod
    def of(cls, scenario: Scenario, seen: Sequence[Seen], run: Simulate) -> _Told:
        alone = next((its for its in seen if its.workers == 1), None)
        several = sorted((its for its in seen if its.workers > 1), key=lambda its: its.workers)
        said = {**_SAID, "steps": min(scenario.run.steps, _MOST_STEPS)}
        first = _simulated(run, told_as(scenario, several, 1.0, **said))
        one_s, computes_s = _alone_s(first[0]), first[0].breakdown_s.compute
        if alone is not None and alone.servers:  # one worker with servers
            (own,) = _simulated(run, told_as(scenario, [alone], 1.0, **said))
            one_s, computes_s = step_of(own), own.breakdown_s.compute
        factor, remarks = 1.0, []
        if alone is not None:
            rest_s = one_s - computes_s if not alone.compute_s else 0.0
            seen_s = math.fsum(alone.compute_s) / len(alone.compute_s) if alone.compute_s else alone.step_s - max((0.0, *alone.input_s))
            factor = max(seen_s - rest_s, 0.02 * seen_s) / computes_s
            remarks = _alone_remarks(first[0], alone, one_s)
        results = first if factor == 1.0 else _simulated(run, told_as(scenario, several, factor, **said))
        spread = tuple(spread_of(its, given_alone=alone is not None) for its in results)
        # workers that do not wait for each other take long to get out of step, so that how long a run is matters
        steps = said["steps"] if scenario.strategy.pace.asynchronous else min(scenario.run.steps, _TRIED["steps"])
        tried = told_as(scenario, several, factor, **{**_TRIED, "steps": steps})
        for its, result in zip(several, results, strict=True):
            if asked := _unit(its.step_s / step_of(result)):
                remarks.append(
                    sentence(f"{its.name}: a step takes {format_seconds(its.step_s)}, and {format_seconds(step_of(result))} as told{asked}")
                )
        runs = Runs(tuple(several), tuple(tried), alone, spread)
        return cls(runs, results, alone.step_s if alone is not None else one_s, remarks)


class _Answer:
    """Puts the answer together."""

    def __init__(self, told: _Told, found: list[Explanation], run: Simulate, remarks: list[str]) -> None:
        self._told = told
        self._run = run
        self._remarks = remarks
        self._seen = told.runs.seen[-1]
        least = found[0].loss
        weights = [math.exp(least - its.loss) for its in found]
        self._found = found
        self._chances = [weight / math.fsum(weights) for weight in weights]
        self._said = {"replications": _SAID["replications"], "steps": told.results[-1].scenario.run.steps}

    def diagnosis(self) -> Diagnosis:
        """The answer."""
        best, seen = self._found[0], self._seen
        outside = best.strengths.get(OUTSIDE.key, 0.0)
        fitted, *_ = self._simulated([best.scenario])
        told = self._told.results[-1]
        told_s, low, high = step_of(told), *_interval(step_of(told), self._told.runs.spread[-1])
        fitted_s = step_of(fitted) * math.exp(outside)
        ranked = [*((its, 0.0) for its in (*self._measured(), *self._fitted())), *self._standing()]
        ranked.sort(key=lambda pair: -(pair[0].cost_s.mean - pair[1]) * pair[0].probability)
        # where the likeliest explanation is one of several, changes are those of what is told
        base = fitted if self._chances[0] >= _EVEN else told
        changes = tuple(its for _, its in improved(base.scenario, base, self._run) if its.gain is not None)
        measure = self._measure()
        self._remarks += self._of_memory(fitted.scenario)
        answer = Diagnosis(
            run=seen,
            one_device_s=self._told.one_device_s,
            told_s=Estimate(mean=told_s, low=low, high=high),
            explained_s=fitted_s,
            unexplained_s=seen.step_s - fitted_s,
            as_told=self._as_told,
            causes=tuple(its for its, _ in ranked),
            changes=changes,
            measure=measure,
            remarks=tuple(self._remarks),
            sentences=(),
        )
        return answer.model_copy(update={"sentences": tuple(_sentences(answer))})

    @property
    def _as_told(self) -> bool:
        """Whether the run lies within 99% of runs as they are told, and no cause explains it better."""
        apart = math.log(self._seen.step_s / step_of(self._told.results[-1]))
        return not self._found[0].strengths and abs(apart) <= _99 * math.hypot(self._told.runs.spread[-1], self._seen.error)

    def _simulated(self, scenarios: Sequence[Scenario | None]) -> list[Result]:
        return _simulated(self._run, [changed(its, run=its.run.model_copy(update=self._said)) for its in scenarios if its is not None])

    # -- causes ---------------------------------------------------------------------------

    def _measured(self) -> Iterator[Cause]:
        """What was seen itself: between the steps, and before them."""
        seen = self._seen
        each = f"{format_seconds(seen.between_s)} of each, on average"
        if seen.between_every is not None:
            each = f"{format_seconds(seen.between_s * seen.between_every)} every {seen.between_every:,} steps"
        comes = f"what comes between steps takes {each}"
        begins = f"first steps take {format_seconds(seen.start_s)} longer, spread over all steps of the run"
        for key, title, cost_s, error_s, text, remedy in (
            ("between-steps", "checkpoints or evaluations between steps", seen.between_s, seen.between_error_s, comes,
             "write checkpoints less often or asynchronously, evaluate less often"),
            ("start-up", "start-up and tracing", seen.start_s, 0.0, begins, "compare steady steps, or train longer"),
        ):  # fmt: skip
            if cost_s > _WORTH * seen.step_s:
                whole_s = seen.whole_s + (cost_s if key == "start-up" else 0.0)
                spread_s = Z_90 * math.hypot(seen.error * seen.step_s, error_s)
                cost = Estimate(mean=cost_s, low=max(cost_s - spread_s, 0.0), high=cost_s + spread_s)
                yield Cause(
                    key=key, title=title, text=text, known="measured", cost_s=cost, probability=1.0,
                    gain=_gain(whole_s, cost), remedy=remedy,
                )  # fmt: skip

    def _fitted(self) -> Iterator[Cause]:
        """What was found, with its chance: that of all explanations that have it."""
        chances: dict[str, float] = {}
        best: dict[str, Explanation] = {}
        for its, chance in zip(self._found, self._chances, strict=True):
            for key in its.strengths:
                chances[key] = chances.get(key, 0.0) + chance
                best.setdefault(key, its)
        likely = [key for key, chance in chances.items() if chance >= _LIKELY]
        scenario = self._told.runs.told[-1]
        with_it = self._simulated([best[key].scenario for key in likely])
        without = self._simulated([self._without(best[key], key) for key in likely])
        for key, slow, fast in zip(likely, with_it, without, strict=True):
            its, cause = best[key], _cause(key)
            strength = its.strengths[key]
            slow_s = step_of(slow) * math.exp(its.strengths.get(OUTSIDE.key, 0.0))
            fast_s = step_of(fast) * math.exp(0.0 if key == OUTSIDE.key else its.strengths.get(OUTSIDE.key, 0.0))
            cost_s = slow_s - fast_s
            if cost_s <= 0.0:
                said = f"chance {format_share(min(chances[key], 1.0))}; {cause.said(scenario, strength, self._seen.slowest)}"
                self._remarks.append(sentence(f"what makes steps shorter than told: {cause.title} ({said})"))
                continue
            error_s = math.hypot(
                slow_s * its.slopes[key] * its.errors[key], self._told.runs.spread[-1] * cost_s, math.sqrt(2.0) * self._seen.error * fast_s
            )
            low = max(cost_s - Z_90 * error_s, 0.0) if chances[key] >= _SURE else 0.0
            # without it a step takes no less than is told, at its best
            most = max(self._seen.step_s - _interval(fast_s, self._told.runs.spread[-1])[0], cost_s)
            cost = Estimate(mean=cost_s, low=low, high=min(cost_s + Z_90 * error_s, most))
            gain = _gain(self._seen.whole_s, cost, math.sqrt(2.0) * Z_90 * self._seen.between_error_s)
            yield Cause(
                key=key, title=cause.title, text=cause.said(scenario, strength, self._seen.slowest), known="found", cost_s=cost,
                probability=min(chances[key], 1.0), gain=gain, remedy=cause.remedy,
            )  # fmt: skip

    def _without(self, its: Explanation, key: str) -> Scenario:
        """The scenario of an explanation without one of its causes."""
        scenario = self._told.runs.told[-1]
        for name, strength in its.strengths.items():
            if name not in (key, OUTSIDE.key):
                scenario = FOUND[name].made(scenario, strength, self._seen.slowest)
        return scenario

    def _standing(self) -> Iterator[tuple[Cause, float]]:
        """What the scenario has anyway, by what a step gains without it, and what of that is a more particular cause's, in seconds."""
        told = self._told.results[-1]
        before_s, named_s = step_of(told), 0.0
        # where nothing but the prediction's own error explains the run, that is one of what sends, and sending costs as much more
        step_s = self._seen.step_s if self._as_told else before_s
        idle_s = before_s * (1.0 - told.breakdown_s.exposed_communication / told.step_time_s.mean)
        share = max(1.0 - (_OF_REST / self._told.runs.spread[-1]) ** 2, 0.0)
        more = max(1.0 + share * (step_s - before_s) / max(before_s - idle_s, 1e-3 * before_s), 0.0)
        wanted = []
        for its in STANDING:
            try:
                wanted.append((its, its.gone(told.scenario)))
            except ScenarioError:
                continue
        outcomes = iter(self._run([scenario for _, scenarios in wanted for scenario in scenarios]))
        for its, scenarios in wanted:
            results = [one for one in (next(outcomes) for _ in scenarios) if isinstance(one, Result)]
            if not results:
                continue
            ratio = max((compare(one, told).ratio for one in results), key=lambda one: one.mean)
            each_s = [before_s * (1.0 - 1.0 / max(one, 1.0)) * (more if its.sends else 1.0) for one in (ratio.mean, ratio.low, ratio.high)]
            cost = Estimate(mean=each_s[0], low=each_s[1], high=each_s[2])
            general = its.key in ("network", "latency") and named_s > 0.0
            if cost.mean < _WORTH * step_s or (general and cost.mean < 1.25 * named_s):
                continue
            text, particular_s = f"as predicted; the limit is {told.bottleneck.label}", 0.0
            if its.key == "servers":
                named_s = cost.mean
                text += f"; this is what {counted(scenarios[0].servers, 'server')} would save"
            elif general:
                particular_s = min(named_s, cost.mean)
                text += f"; {format_seconds(particular_s)} of it could be saved by more servers too"
            found = Cause(
                key=its.key, title=its.title, text=text, known="told", cost_s=cost,
                probability=1.0, gain=_gain(step_s, cost), remedy=its.remedy,
            )  # fmt: skip
            yield found, particular_s

    # -- what would tell ----------------------------------------------------------------------

    def _measure(self) -> str | None:
        """The measurement that tells the two likeliest explanations apart; None where the first has no rival."""
        if len(self._found) < 2 or self._chances[1] < _RIVAL * self._chances[0]:
            return None
        one, other = self._found[:2]
        differ = sorted(set(one.strengths) ^ set(other.strengths), key=lambda key: key not in one.strengths)
        if not differ:
            return None
        if (again := self._again(one, other)) is not None:
            return again
        first = _cause(differ[0])
        return f"{first.measure}; it tells whether {first.title}"

    def _again(self, one: Explanation, other: Explanation) -> str | None:
        """A run of the same program that both explanations predict differently, with what each predicts."""
        tried: list[tuple[str, list[Scenario]]] = []
        for words, change in (("half as many workers", _with_half), ("twice the batch of each worker", lambda its: with_batch(its, 2))):
            try:
                tried.append((words, [change(its.scenario) for its in (one, other) if its.scenario is not None]))
            except ScenarioError:
                continue
        best: tuple[float, str] | None = None
        for words, scenarios in tried:
            outcomes = [its for its in self._run(scenarios) if isinstance(its, Result)]
            if len(outcomes) != 2:
                continue
            steps = [step_of(its) * math.exp(own.strengths.get(OUTSIDE.key, 0.0)) for its, own in zip(outcomes, (one, other), strict=True)]
            apart = abs(math.log(steps[0] / steps[1])) / _OF_A_RUN
            if apart >= _TELLS and (best is None or apart > best[0]):
                names = [" and ".join(_cause(key).title for key in own.strengths) or "all is as told" for own in (one, other)]
                text = f"the same training with {words}: a step would take {format_seconds(steps[0])} if {names[0]}, "
                best = apart, f"{text}and {format_seconds(steps[1])} if {names[1]}"
        return best[1] if best is not None else None

    @staticmethod
    def _of_memory(scenario: Scenario) -> Iterator[str]:
        """Whether memory is near its limit, where devices fall back to slower algorithms, or swap."""
        its = memory(scenario)
        capacity = its.tightest.capacity_bytes
        if its.refused is not None:
            yield sentence(f"the scenario does not fit into memory: {its.refused}")
        elif capacity and its.free_bytes is not None and its.free_bytes < _TIGHT * capacity:
            yield (
                f"Memory is near its limit: {format_bytes(its.free_bytes)} of {format_bytes(capacity)} are free, with which libraries may "
                "have to choose slower algorithms. What that costs is not predicted; try a smaller batch."
            )


def _with_half(scenario: Scenario) -> Scenario:
    return with_strategy(scenario, scenario.strategy.with_count(max(scenario.workers // 2, 1)))


def _cause(key: str) -> Found:
    return OUTSIDE if key == OUTSIDE.key else FOUND[key]


def _simulated(run: Simulate, scenarios: Sequence[Scenario]) -> list[Result]:
    """Results of scenarios that have to have one.

    Raises
    ------
    SimulationError
        One has none.
    """
    found = []
    for outcome in run(scenarios):
        if not isinstance(outcome, Result):
            raise SimulationError(f"{outcome.scenario.strategy.in_words}: {outcome.failed.text}")
        found.append(outcome)
    return found


def _alone_s(result: Result) -> float:
    """Step of one device alone, as predicted."""
    its = result.scenario
    return its.batch * result.speedup.mean / result.throughput_samples_per_s.mean


def _alone_remarks(told: Result, alone: Seen, predicted_s: float) -> list[str]:
    """Whether one device alone is as fast as the scenario tells."""
    spread = spread_of(told, given_alone=False)
    apart = math.log(alone.step_s / predicted_s)
    if abs(apart) <= Z_90 * max(spread, _OF_A_RUN):
        return []
    how = "longer than" if apart > 0 else "less than"
    many = f"one device takes {format_seconds(alone.step_s)} for a step, {how} the {format_seconds(predicted_s)} that the scenario tells"
    return [sentence(f"{many}; devices are taken to be as fast as the one that was seen{_unit(alone.step_s / predicted_s)}")]


def _unit(ratio: float) -> str:
    """What is asked where a step is so many times as long as told."""
    asked = thousand_times(ratio)
    return "" if asked is None else f"; {asked}? Write times with their unit, such as 60ms"


def _interval(mean: float, spread: float) -> tuple[float, float]:
    return mean * math.exp(-Z_90 * spread), mean * math.exp(Z_90 * spread)


def _gain(step_s: float, cost: Estimate, beside_s: float = 0.0) -> Estimate:
    """Throughput without a cost, over that with it; ``beside_s``: how far other parts of a step may differ the next time."""

    def of(cost_s: float) -> float:
        return step_s / max(step_s - cost_s, 1e-3 * step_s)

    return Estimate(mean=of(cost.mean), low=of(max(cost.low - beside_s, 0.0)), high=of(cost.high + beside_s))


def _sentences(its: Diagnosis) -> Iterator[str]:
    seen = its.run
    efficiency = its.one_device_s / seen.step_s
    yield sentence(
        f"a step takes {format_seconds(seen.step_s)} on {seen.name} and {format_seconds(its.one_device_s)} on one device alone: "
        f"{format_share(efficiency)} of perfect scaling. The scenario predicts {format_seconds(its.told_s.mean)} "
        f"(90%: {format_interval(its.told_s.low, its.told_s.high, 'seconds')})"
    )
    chosen = any(cause.known == "found" and cause.probability >= _EVEN for cause in its.causes)
    if its.as_told:
        yield "It runs as predicted: nothing but what the scenario has is needed to explain it."
    else:
        how = "slower" if seen.step_s > its.told_s.mean else "faster"
        yield sentence(f"It is {how} than predicted{'' if chosen else ', and no one cause explains that much better than others'}")
    sure = [cause for cause in its.causes if cause.probability >= _EVEN and cause.cost_s.mean > _WORTH * seen.step_s]
    for cause in sure[:_MOST_SAID]:
        chance = "" if cause.probability >= _SURE else f", with a chance of {format_share(cause.probability)}"
        costs = f"{format_seconds(cause.cost_s.mean)} ({format_interval(cause.cost_s.low, cause.cost_s.high, 'seconds')})"
        yield sentence(f"{cause.title}{chance}: this costs {costs} of each step; {cause.text}. What helps: {cause.remedy}")
    if doubtful := sorted((cause for cause in its.causes if cause.probability < _EVEN), key=lambda cause: -cause.probability):
        each = [f"{cause.title} ({format_share(cause.probability)})" for cause in doubtful]
        yield sentence(f"what was seen does not tell which of these it is: {listed(each, 'or')}")
    if abs(its.unexplained_s) > _LEFT * seen.step_s:
        how = "more" if its.unexplained_s > 0 else "less"
        yield sentence(f"not explained: {format_seconds(abs(its.unexplained_s))} of a step, {how} than predicted")
    if its.changes and (best := its.changes[0]).gain is not None and best.gain > _WORTH:
        low, high = best.gain_low or 0.0, best.gain_high or 0.0
        yield sentence(
            f"of changes to the configuration {best.name} would bring most: {format_change(best.gain)} "
            f"({format_change(low)} to {format_change(high)}); {best.text}"
        )
    if its.measure is not None:
        yield sentence(f"what to measure next: {its.measure}")
