"""The answer to "why does it not scale?": causes and their costs, the unexplained rest, remedies, and what to measure.

causes.py lists causes, fitting.py fits them. A specified cause costs what a step gains without it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from statistics import NormalDist
from typing import ClassVar, Literal

from pydantic import Field

from calibrate.observations import Figure, Observed, Predicted, State, alone_step_of, check_units, samples_of_step
from calibrate.recorded.run import thousand_times
from paceline.answers import Answer, figure
from paceline.answers import Figure as Shown
from paceline.comparing import compare
from paceline.diagnosing.causes import CAUSES, OUTSIDE, STANDING
from paceline.diagnosing.fitting import Explanation, Runs, explanations, spread_of, step_of, told_as
from paceline.diagnosing.seen import Seen, check_seen
from paceline.planning.answer import Improvement
from paceline.planning.improvements import improved
from paceline.planning.search import with_buckets
from paceline.sweeping import Simulate
from simulator.base.errors import InputError, ScenarioError, SimulationError
from simulator.base.spec import Spec
from simulator.base.table import Column, Table, Tabular
from simulator.base.text import counted, format_bytes, format_change, format_seconds, format_share, listed, sentence
from simulator.memory import memory
from simulator.results.results import Result
from simulator.results.what_if import changed, with_batch, with_strategy
from simulator.scenario import Scenario
from simulator.spec.figures import Estimate
from simulator.spec.uncertainty import Z_90

LIKELY, EVEN, SURE = 0.1, 0.5, 0.95
"""Least probabilities at which a cause is reported, an explanation is used, and a cause is considered present."""
_NAMED = 0.6
"""Least probability at which a cause is reported separately; others with the same effect share the probability."""
WORTH = 0.02
"""Smaller shares of a step of specified causes are not reported."""
_MOST_SAID = 3
"""Most causes that get a sentence; the table has all."""
LEFT = 0.05
"""Least unexplained share of a step that is reported."""
_PERFECT = 1.05
"""Share of linear scaling above which the measurement of one device is questioned."""
_STATES: Mapping[State, str] = {
    "slower": "slower than predicted", "faster": "faster than predicted", "inside": "as predicted",
    "beyond": "outside the 90% interval, like one run in ten",
    "unclear": "too uncertain to judge",
}  # fmt: skip


class Cause(Spec):
    """A cause of a slow step, and its cost."""

    key: str = Field(description="key of the cause")
    title: str = Field(description="name of the cause")
    text: str = Field(description="its extent, in words")
    known: Literal["found", "told", "measured"] = Field(
        description="found: inferred from runs; told: specified by the scenario; measured: observed directly, between or before steps"
    )
    cost_s: Estimate = Field(description="cost in seconds of each step")
    probability: float = Field(ge=0, le=1, description="probability that it is present")
    gain: Estimate = Field(description="ratio of throughput without it to throughput with it")
    remedy: str = Field(description="the remedy")

    @property
    def known_as(self) -> str:
        """How it is known, for readers; a found cause with rivals is only possible."""
        return "possible" if self.known == "found" and self.probability < _NAMED else {"told": "specified"}.get(self.known, self.known)


class Compared(Spec):
    """A real run compared with its prediction."""

    name: str = Field(description="the run")
    step_s: float = Field(description="measured step, in seconds")
    told_s: Estimate = Field(description="predicted step, with 90% interval")
    efficiency: float = Field(description="share of linear scaling from a single device")
    state: State = Field(description="slower, faster; inside: as predicted; beyond: outside the 90% interval, as one run in ten is")
    explained_s: float = Field(description="predicted step with the found causes")


class Diagnosis(Tabular, Spec):
    """Explanation of the step time of the largest run."""

    see: ClassVar[str] = ".sentences explains it, .causes has every figure, to_frame() the table"

    run: Seen = Field(description="the explained run")
    one_device_s: float = Field(description="step of a single device, measured or else predicted")
    told_s: Estimate = Field(description="predicted step, with 90% interval")
    explained_s: float = Field(description="predicted step with the found causes")
    unexplained_s: float = Field(description="unexplained rest of the measured step; below 0: it is faster")
    as_told: bool = Field(description="whether the scenario alone explains all runs")
    runs: tuple[Compared, ...] = Field(description="every run of more than one device, by ascending workers")
    own_error: float = Field(ge=0, le=1, description="probability that model error is the reason, and no cause")
    unknown: float = Field(ge=0, le=1, description="probability that an unknown cause is the reason")
    causes: tuple[Cause, ...] = Field(description="causes, the most expensive first")
    changes: tuple[Improvement, ...] = Field(description="changes of the configuration, the largest gain first")
    measure: str | None = Field(
        description="the measurement that distinguishes the two most probable explanations; null: there is only one"
    )
    remarks: tuple[str, ...] = Field(default=(), description="remarks")
    sentences: tuple[str, ...] = Field(default=(), description="the answer: its headline and labelled lines")

    def _in_short(self) -> Iterator[str]:
        yield from self.sentences

    def table(self) -> Table:
        """Return a row for each cause."""
        columns = (
            Column("title", "text", "Cause"),
            Column("cost_s", "seconds", "Costs per step", of="cost_s.mean"),
            Column("cost_low_s", "seconds", "90% from", of="cost_s.low"),
            Column("cost_high_s", "seconds", "to", of="cost_s.high"),
            Column("probability", "share", "Chance"),
            Column("gain", "change", "Gain without", by=lambda cause: cause.gain.mean - 1.0),
            Column("known", "text", "Known", by=lambda cause: cause.known_as),
            Column("text", "text", "How"),
            Column("remedy", "text", "Remedy"),
        )
        return Table.reading(f"Where the time of {self.run.name} goes", columns, self.causes, "causes")

    @property
    def runs_table(self) -> Table:
        """Return a row for each run of more than one device."""
        columns = (
            Column("name", "text", "Run"),
            Column("step_s", "seconds", "Step"),
            Column("efficiency", "share", "Efficiency"),
            Column("told_s", "seconds", "Predicted", of="told_s.mean"),
            Column("told_low_s", "seconds", "90% from", of="told_s.low"),
            Column("told_high_s", "seconds", "to", of="told_s.high"),
            Column("state", "text", "Compared", by=lambda run: _STATES[run.state]),
        )
        return Table.reading("Measured and predicted", columns, self.runs, "runs")


def answer_of_diagnosis(diagnosis: Diagnosis) -> Answer:
    """Return the answer: whether the run is as predicted, the largest cost, and what to measure or change next."""
    seen, last = diagnosis.run, diagnosis.runs[-1]
    state = "As predicted" if diagnosis.as_told else _STATES[last.state][:1].upper() + _STATES[last.state][1:]
    scale = f"{format_share(last.efficiency)} of linear scaling"
    figures = [
        Shown("step, measured", format_seconds(seen.step_s)),
        figure("step, predicted", last.told_s, "seconds"),
        Shown("one device", format_seconds(diagnosis.one_device_s)),
    ]
    sure = [cause for cause in diagnosis.causes if cause.probability >= _NAMED]
    doubtful = sorted((cause for cause in diagnosis.causes if cause.probability < _NAMED), key=lambda cause: -cause.probability)
    costly = next((cause for cause in sure if cause.cost_s.mean > WORTH * seen.step_s), None)
    fitted = costly is not None and costly.known != "told"
    undecided = bool(doubtful) and not fitted
    if undecided:
        possible = [(cause.title, cause.probability) for cause in doubtful[:_MOST_SAID]]
        possible += [(name, chance) for name, chance in (("model error", diagnosis.own_error), ("an unknown cause", diagnosis.unknown))]
        limit = f"undecided: {listed([f'{name} ({format_share(chance)})' for name, chance in possible if chance >= LIKELY], 'or')}"
    elif costly is not None:
        limit = f"{costly.title}: {format_seconds(costly.cost_s.mean)} of each step; {costly.remedy}"
    else:
        limit = "no known cause costs 2% of a step"
    most = max(diagnosis.runs, key=lambda run: run.efficiency)
    linear = f"more than linear scaling ({most.name}): was one device measured with the same batch?"
    best = next((change for change in diagnosis.changes if change.gain is not None and change.gain > WORTH), None)
    change = "" if best is None else f"{best.name} would bring {format_change(best.gain or 0.0)}"
    return Answer(
        headline=f"{state}: a step takes {format_seconds(seen.step_s)} on {seen.name}, {scale}.",
        figures=tuple(figures),
        limit=limit,
        confidence="" if undecided else _how_sure(diagnosis, sure if fitted else ()),
        watch_out="; ".join([*([linear] if most.efficiency > _PERFECT else []), *(remark.rstrip(".") for remark in diagnosis.remarks)][:2]),
        next=diagnosis.measure or change,
        heading="value",
    )


def _how_sure(diagnosis: Diagnosis, sure: Sequence[Cause]) -> str:
    """Return the probability of the named cause, or of model error or an unknown cause, and what the causes leave unexplained."""
    if diagnosis.own_error >= EVEN:
        return f"model error explains all runs with probability {format_share(diagnosis.own_error)}"
    text = "these runs cannot distinguish the causes"
    if diagnosis.unknown >= EVEN:
        text = f"an unknown cause is more probable than any known one ({format_share(diagnosis.unknown)})"
    elif sure:
        text = f"{format_share(sure[0].probability)} that this cause is present"
    left_s = diagnosis.unexplained_s
    if abs(left_s) <= LEFT * diagnosis.run.step_s:
        return text
    return f"{text}; {format_seconds(abs(left_s))} of a step {'more' if left_s > 0 else 'less'} than the causes explain"


_TRIED = {"steps": 20, "replications": 2}
"""Runs for fitting strengths, with the same draws for all, so that only causes differ."""
_COMPARED = {"replications": 4}
"""Runs of scenarios that are compared, with the same draws."""
_MOST_STEPS = 60
"""Settings of compared runs; the prediction itself uses the scenario's, as in ``paceline simulate``."""
_COVERAGE = 0.99
"""Share of runs within the prediction that must not be called slower or faster."""
_RIVAL = 0.2
"""Share of the best explanation's probability from which another one is a rival."""
_TIGHT = 0.05
"""Share of a device's memory below which free memory is scarce."""
_TELLS = 3.0
"""Standard errors by which a measurement must distinguish two explanations."""
_OF_REST = 0.02
"""Standard error of a prediction without communication, as a share of a step, if one device was measured."""
_OF_A_RUN = 0.04
"""Standard error of a repeated measurement of a step time, as a share."""
_FASTEST = 2.0
"""Times by which a step may be shorter than the compute of one device, shared by all."""
_HIDDEN = 0.005
"""Share of a step below which a larger cause hides another."""


def diagnose(scenario: Scenario, seen: Sequence[Seen], run: Simulate, remarks: Sequence[str] = ()) -> Diagnosis:
    """Explain the run with most workers, from all runs.

    Parameters
    ----------
    scenario
        The training: model, cluster and strategy; its number of workers has no effect.
    seen
        Runs of one worker, which shows the speed of the device, and of several.
    run
        Simulates scenarios.
    remarks
        Known oddities of the runs.

    Raises
    ------
    InputError
        No run has several workers.
    ScenarioError
        The scenario cannot have this number of workers.
    SimulationError
        The scenario cannot be simulated.
    """
    check_seen(seen, scenario)
    runs, remarks_on_runs = _told(scenario, seen, run)
    return _Answer(runs, explanations(runs, run), run, [*remarks, *remarks_on_runs]).diagnosis()


def _told(scenario: Scenario, seen: Sequence[Seen], run: Simulate) -> tuple[Runs, list[str]]:
    """Return the runs with their predictions, and oddities of the run of a single device."""
    ordered = sorted(seen, key=lambda own: (own.workers, not own.alone))
    alone = ordered[0] if ordered[0].alone or (ordered[0].workers == 1 and len(ordered) > 1) else None
    several = ordered if alone is None else ordered[1:]
    first = _simulated(run, told_as(scenario, several, 1.0))
    if alone is None or alone.alone:
        step_s, computes_s = _alone_s(first[0], alone), first[0].breakdown_s.compute
        if scenario.workload.global_batch is not None:  # which one device alone computes as a whole
            computes_s = step_s
    else:  # one worker with its servers, or with all its devices
        (own,) = _simulated(run, told_as(scenario, [alone], 1.0))
        step_s, computes_s = step_of(own), own.breakdown_s.compute
    factor, remarks = 1.0, list(_asked(scenario, alone, several, step_s, first))
    if alone is not None:
        rest_s = step_s - computes_s if not alone.compute_s else 0.0
        seen_s = math.fsum(alone.compute_s) / len(alone.compute_s) if alone.compute_s else alone.step_s - max((0.0, *alone.input_s))
        factor = max(seen_s - rest_s, 0.02 * seen_s) / computes_s
        remarks += _alone_remarks(first[0], alone, step_s)
    factor = 1.0 if abs(factor - 1.0) < 1e-6 else factor
    results = first if factor == 1.0 else _simulated(run, told_as(scenario, several, factor))
    # workers that do not wait for each other take long to get out of step, so that how long a run is matters
    most = _MOST_STEPS if scenario.strategy.pace.asynchronous else _TRIED["steps"]
    tried = told_as(scenario, several, factor, **{**_TRIED, "steps": min(scenario.run.steps, most)})
    if alone is not None and alone.alone:
        alone_s, samples = alone.step_s, samples_of_step(alone, scenario)
    else:
        alone_s, samples = _alone_s(results[0], None), samples_of_step(Observed(workers=1, devices=1), scenario)
    spread = [spread_of(result, given_alone=alone is not None) for result in results]
    return Runs(several, tried, results, alone, alone_s, samples, spread), remarks


class _Answer:
    """Builds the answer."""

    def __init__(self, runs: Runs, weighed: list[Explanation], run: Simulate, remarks: list[str]) -> None:
        self._runs, self._run, self._remarks = runs, run, remarks
        self._seen, self._told, self._spread, self._tried = runs.seen[-1], runs.results[-1], runs.spread[-1], runs.told[-1]
        weights = [math.exp(own.weight - weighed[0].weight) for own in weighed]
        self._sets = list(zip(weighed, (weight / math.fsum(weights) for weight in weights), strict=True))
        self._best, self._chance = next(pair for pair in self._sets if not pair[0].unknown)
        self._no_cause, self._own_error = next(pair for pair in self._sets if not pair[0].strengths and not pair[0].unknown)
        self._unknown = next(chance for own, chance in self._sets if own.unknown)
        self._compared = {**_COMPARED, "steps": min(self._told.scenario.run.steps, _MOST_STEPS)}
        (self._base,) = self._simulated([self._tried])
        # by the same draws, so that few are enough: what causes add to the step that is told
        self._scale = step_of(self._told) / step_of(self._base)

    def diagnosis(self) -> Diagnosis:
        """Return the answer."""
        best, seen = self._best, self._seen
        runs = tuple(map(self._compared_with, range(len(self._runs.seen))))
        # nothing but what is told is needed where every run is as told, and no cause explains them better
        as_told = {run.state for run in runs} <= {"inside", "unclear", "beyond"} and self._own_error >= EVEN
        (fitted,) = self._simulated([best.scenario])
        fitted_s = step_of(fitted) * self._scale * best.longer
        ranked = [*((cause, 0.0) for cause in (*self._measured(), *self._fitted(EVEN if as_told else LIKELY))), *self._standing()]
        ranked.sort(key=lambda pair: -(pair[0].cost_s.mean - pair[1]) * pair[0].probability)
        # of a run that nothing here reproduces nobody knows what changes bring
        likeliest = fitted if self._chance >= EVEN else self._base if runs[-1].state not in ("slower", "faster") else None
        changes = () if likeliest is None else tuple(self._changes(likeliest))
        measure = None if as_told or self._unknown >= EVEN else self._measure()
        self._remarks += self._of_memory(fitted.scenario)
        answer = Diagnosis(
            run=seen,
            one_device_s=self._runs.alone_s,
            told_s=runs[-1].told_s,
            explained_s=fitted_s,
            unexplained_s=seen.step_s - fitted_s,
            as_told=as_told,
            runs=runs,
            own_error=self._own_error,
            unknown=self._unknown,
            causes=tuple(cause for cause, _ in ranked),
            changes=changes,
            measure=measure,
            remarks=tuple(self._remarks),
        )
        return answer.replaced({"sentences": answer_of_diagnosis(answer).sentences})

    def _changes(self, base: Result) -> Iterator[Improvement]:
        """Return gains of changes to a scenario that reproduces the run."""
        for key, change in improved(base.scenario, base, self._run):
            if change.gain is not None and not (key == "buckets" and self._fused_already):
                yield change

    def _compared_with(self, place: int) -> Compared:
        """Compare a run with its prediction."""
        seen, result, spread = self._runs.seen[place], self._runs.results[place], self._runs.spread[place]
        mean_s, scenario = step_of(result), result.scenario
        low_s, high_s = _interval(mean_s, spread)
        ends_s = _interval(mean_s, spread, NormalDist().inv_cdf(0.5 + _COVERAGE / 2))
        predicted = Predicted(mean_s, low_s, high_s, *ends_s, mean_s, mean_s, _COVERAGE, 1)
        rate = scenario.batch * scenario.replicas / seen.step_s
        return Compared(
            name=seen.name,
            step_s=seen.step_s,
            told_s=Estimate(mean=mean_s, low=low_s, high=high_s),
            efficiency=rate / (scenario.ranks * self._runs.alone_samples / self._runs.alone_s),
            # of an average of which nothing is known but itself no error is known either
            state=predicted.state(seen.step_s, 0.0 if seen.is_average else Z_90 * seen.error * seen.step_s),
            explained_s=mean_s * self._best.steps_s[place] / self._no_cause.steps_s[place],
        )

    def _simulated(self, scenarios: Sequence[Scenario | None]) -> list[Result]:
        wanted = [changed(scenario, run=scenario.run.replaced(self._compared)) for scenario in scenarios if scenario is not None]
        return _simulated(self._run, wanted)

    # -- causes ---------------------------------------------------------------------------

    def _measured(self) -> Iterator[Cause]:
        """Yield causes observed directly, between and before steps."""
        seen = self._seen
        each = f"{format_seconds(seen.between_s)} of each, on average"
        if seen.between_every is not None:
            each = f"{format_seconds(seen.between_s * seen.between_every)} every {seen.between_every:,} steps"
        for key, title, cost_s, error_s, whole_s, text, remedy in (
            ("between-steps", "checkpoints or evaluations between steps", seen.between_s, seen.between_error_s, seen.whole_s,
             f"time between steps is {each}", "write checkpoints less often or asynchronously; evaluate less often"),
            ("start-up", "start-up and tracing", seen.start_s, 0.0, seen.whole_s + seen.start_s,
             f"first steps take {format_seconds(seen.start_s)} longer, spread over all steps of the run",
             "compare steady steps only, or train longer"),
        ):  # fmt: skip
            if cost_s > WORTH * seen.step_s:
                spread_s = Z_90 * math.hypot(seen.error * seen.step_s, error_s)
                cost = Estimate(mean=cost_s, low=max(cost_s - spread_s, 0.0), high=cost_s + spread_s)
                gain = _gain(whole_s, cost)
                yield Cause(key=key, title=title, text=text, known="measured", cost_s=cost, probability=1.0, gain=gain, remedy=remedy)

    def _fitted(self, least: float) -> Iterator[Cause]:
        """Yield found causes with at least this probability, summed over explanations that contain them."""
        chances: dict[str, float] = {}
        best: dict[str, Explanation] = {}
        for own, chance in self._sets:
            for key in own.strengths:
                chances[key] = min(chances.get(key, 0.0) + chance, 1.0)
                best.setdefault(key, own)
        likely, seen, spread = [key for key, chance in chances.items() if chance >= least], self._seen, self._spread
        with_it = self._simulated([best[key].scenario for key in likely])
        without = self._simulated([self._without(best[key], key) for key in likely])
        for key, slow, fast in zip(likely, with_it, without, strict=True):
            own, cause, chance = best[key], CAUSES[key], chances[key]
            slow_s = step_of(slow) * self._scale * own.longer
            fast_s = step_of(fast) * self._scale * (1.0 if key == OUTSIDE.key else own.longer)
            text = cause.said(self._tried, own.strengths[key], seen.slowest)
            if slow_s - fast_s <= _HIDDEN * slow_s:
                self._hidden(key, own, text, chance, slow_s)
                continue
            # no more than a step takes beyond what its device computes by itself
            cost_s = min(slow_s - fast_s, max(seen.step_s - self._told.breakdown_s.compute, 0.0))
            error_s = math.hypot(own.error_s[key], spread * cost_s, math.sqrt(2.0) * seen.error * fast_s)
            # without it a step takes no less than is told, at its best
            most = max(seen.step_s - _interval(fast_s, spread)[0], cost_s)
            low = max(cost_s - Z_90 * error_s, 0.0) if chance >= SURE else 0.0
            cost = Estimate(mean=cost_s, low=low, high=min(cost_s + Z_90 * error_s, most))
            yield Cause(
                key=key, title=cause.title, text=text, known="found", cost_s=cost, probability=chance,
                gain=_gain(seen.whole_s, cost, math.sqrt(2.0) * Z_90 * seen.between_error_s), remedy=cause.remedy,
            )  # fmt: skip

    def _hidden(self, key: str, own: Explanation, text: str, chance: float, slow_s: float) -> None:
        """Return a remark on a cause that does not slow the largest run: its gain without others, or its effect on smaller runs."""
        cause = f"{CAUSES[key].title} (probability {format_share(chance)}; {text})"
        other = next((name for name in own.strengths if name != key), None)
        if other is None:
            self._remarks.append(sentence(f"only runs with fewer workers show it: {cause}"))
        elif chance >= EVEN:
            gain = format_change(slow_s / (step_of(self._base) * self._scale) - 1.0)
            hidden = f"hidden as long as {CAUSES[other].title}: {cause}"
            self._remarks.append(sentence(f"{hidden}. Without both, throughput changes by {gain}"))

    def _without(self, own: Explanation, key: str) -> Scenario:
        """Return the scenario of an explanation without one of its causes."""
        scenario = self._tried
        for name, strength in own.strengths.items():
            if name != key:
                scenario = CAUSES[name].made(scenario, strength, self._seen.slowest)
        return scenario

    def _standing(self) -> Iterator[tuple[Cause, float]]:
        """Yield specified causes by the gain without them, and the part of a more specific cause, in seconds."""
        told, before_s, named_s = self._base, step_of(self._told), 0.0
        # where nothing but the prediction's own error explains the run, that is one of what sends, and sending costs as much more
        likeliest = self._sets[0][0]
        step_s = self._seen.step_s if not likeliest.strengths and not likeliest.unknown else min(before_s, self._seen.step_s)
        idle_s = before_s * (1.0 - told.breakdown_s.exposed_communication / told.step_time_s.mean)
        share = max(1.0 - (_OF_REST / self._spread) ** 2, 0.0)
        more = max(1.0 + share * (step_s - before_s) / max(before_s - idle_s, 1e-3 * before_s), 0.0)
        # what is waited for costs no more than a step takes beyond what its device computes, of the run as it was seen
        beyond_s = max(self._seen.step_s - told.breakdown_s.compute, 0.0)
        wanted = []
        for standing in STANDING:
            with contextlib.suppress(ScenarioError):
                wanted.append((standing, standing.gone(told.scenario)))
        outcomes = iter(self._run([scenario for _, scenarios in wanted for scenario in scenarios]))
        limit = f"; the limit is {told.bottleneck.in_words}"  # told once
        for standing, scenarios in wanted:
            results = [outcome for outcome in islice(outcomes, len(scenarios)) if isinstance(outcome, Result)]
            if not results:
                continue
            ratio = max((compare(result, told).ratio for result in results), key=lambda each: each.mean)
            scale, most_s = (more if standing.sends else 1.0), (before_s if standing.computes else beyond_s)
            each_s = [before_s * (1.0 - 1.0 / max(end, 1.0)) * scale for end in (ratio.mean, ratio.low, ratio.high)]
            # a run that is faster than that has less of it
            each_s = [min(end * min(1.0, most_s / max(each_s[0], most_s, 1e-12)), most_s) for end in each_s]
            cost = Estimate(mean=each_s[0], low=each_s[1], high=each_s[2])
            general = standing.general and named_s > 0.0
            if cost.mean < max(WORTH * step_s, 1.25 * named_s if general else 0.0) or (standing.key == "buckets" and self._fused_already):
                continue
            text, particular_s = f"predicted{limit}", 0.0
            if standing.key == "servers":
                named_s = cost.mean
                text += f"; {counted(scenarios[0].servers, 'server')} would save this"
            elif general:
                particular_s = min(named_s, cost.mean)
                text += f"; more servers could save {format_seconds(particular_s)} of it too"
            cause = Cause(
                key=standing.key, title=standing.title, text=text, known="told", cost_s=cost,
                probability=1.0, gain=_gain(step_s, cost), remedy=standing.remedy,
            )  # fmt: skip
            limit = ""
            yield cause, particular_s

    @cached_property
    def _fused_already(self) -> bool:
        """Return a remark if a run contradicts other buckets as a remedy, because it is already about as fast as with them."""
        for seen, scenario in zip(self._runs.seen, self._runs.told, strict=True):
            without_s, *with_s = [step_of(each) for each in self._run([scenario, *with_buckets(scenario)]) if isinstance(each, Result)]
            best_s = min(with_s, default=without_s)
            if best_s < (1.0 - LEFT) * without_s and seen.step_s < math.sqrt(without_s * best_s):
                faster = f"{seen.name} are about as fast as the scenario predicts with other buckets ({format_seconds(best_s)})"
                self._remarks.append(sentence(f"{faster}, so the run already overlaps that much and buckets are no remedy"))
                return True
        return False

    # -- what would tell ----------------------------------------------------------------------

    def _measure(self) -> str | None:
        """Return the measurement that distinguishes the two most probable explanations; None if the first has no rival."""
        likeliest = self._best.strengths.keys()
        # one more cause beside those of the likeliest set is no rival of these
        rivals = [pair for pair in self._sets if not pair[0].unknown and (not likeliest or not pair[0].strengths.keys() > likeliest)]
        known = [(self._best, self._chance), *(pair for pair in rivals if pair[0] is not self._best)]
        if len(known) < 2 or known[1][1] < _RIVAL * known[0][1]:
            return None
        rival = known[1][0]
        differ = sorted(likeliest ^ rival.strengths.keys(), key=lambda key: key not in likeliest)
        if (again := self._again(self._best, rival)) is not None:
            return again
        first = CAUSES[differ[0]]
        return f"measure {first.measure}; it shows whether {first.title}"

    def _again(self, likeliest: Explanation, rival: Explanation) -> str | None:
        """Return a run of the same program that both explanations predict differently, with both predictions."""
        pair = [own for own in (likeliest, rival) if own.scenario is not None]
        best: tuple[float, str] | None = None
        half = max(self._seen.workers // 2, 1)
        changes: Mapping[str, Callable[[Scenario], Scenario]] = {
            f"on {counted(half, 'worker')}": lambda scenario: with_strategy(scenario, scenario.strategy.with_count(half)),
            "with twice the batch per worker": lambda scenario: with_batch(scenario, 2),
        }
        for words, change in changes.items():
            try:
                scenarios = [change(own.scenario) for own in pair if own.scenario is not None]
            except ScenarioError:
                continue
            outcomes = [outcome for outcome in self._run(scenarios) if isinstance(outcome, Result)]
            if len(outcomes) != 2:
                continue
            steps = [step_of(result) * own.longer for result, own in zip(outcomes, pair, strict=True)]
            apart = abs(math.log(steps[0] / steps[1])) / _OF_A_RUN
            if apart >= _TELLS and (best is None or apart > best[0]):
                names = [" and ".join(CAUSES[key].title for key in own.strengths) or "the prediction holds" for own in pair]
                text = f"time a step {words}: {format_seconds(steps[0])} if {names[0]}"
                best = apart, f"{text}, {format_seconds(steps[1])} if {names[1]}"
        return best[1] if best is not None else None

    @staticmethod
    def _of_memory(scenario: Scenario) -> Iterator[str]:
        """Return a remark if memory is scarce, which makes devices use slower algorithms, or swap."""
        held = memory(scenario)
        capacity = held.tightest.capacity_bytes
        if held.refused is not None:
            yield sentence(f"the scenario does not fit into memory: {held.refused}")
        elif capacity and held.free_bytes is not None and held.free_bytes < _TIGHT * capacity:
            yield (
                f"Memory is near its limit: {format_bytes(held.free_bytes)} of {format_bytes(capacity)} are free, with which libraries may "
                "have to choose slower algorithms. What that costs is not predicted; try a smaller batch."
            )


def _simulated(run: Simulate, scenarios: Sequence[Scenario]) -> list[Result]:
    """Return results of scenarios, all of which must succeed.

    Raises
    ------
    SimulationError
        A scenario has no result.
    """
    results = []
    for outcome in run(scenarios):
        if not isinstance(outcome, Result):
            raise SimulationError(f"{outcome.scenario.strategy.in_words}: {outcome.failed.text}")
        results.append(outcome)
    return results


def _alone_s(result: Result, alone: Seen | None) -> float:
    """Return the predicted step of a single device, with its own batch if it had another."""
    step_s, load = alone_step_of(result), result.scenario.workload
    if alone is None or alone.batch is None:
        return step_s
    own, usual = (load.forward(batch) + load.backward(batch) for batch in (alone.batch, load.global_batch or result.scenario.batch))
    return step_s * own / usual


def _asked(scenario: Scenario, alone: Seen | None, several: Sequence[Seen], predicted_s: float, first: Sequence[Result]) -> Iterator[str]:
    """Return questions on figures that may be in another unit.

    Raises
    ------
    InputError
        According to predictions, the figures are in another unit; or a step is faster than its device can compute it.
    """
    pairs = [*([] if alone is None else [(alone, predicted_s)]), *zip(several, map(step_of, first), strict=True)]
    figures = [
        Figure(seen.source, seen.quantity or "step_time_s", seen.step_s, step_s, samples_of_step(seen, scenario), seen.workers)
        for seen, step_s in pairs
        if seen.quantity is not None or not seen.alone  # a record of one device shows its speed
    ]
    questions = list(check_units(figures))
    if any(figure.quantity != "epoch_s" and thousand_times(figure.measured_s / figure.predicted_s) for figure in figures):
        raise InputError(questions[0])
    slower = alone.step_s / predicted_s if alone is not None else 0.0
    for seen, result in zip(several, first, strict=True):
        computes_s = result.breakdown_s.compute * slower
        # a batch that was meant for all workers together makes a step shorter by their number
        if seen.step_s * result.ranks * _FASTEST < computes_s:
            raise InputError(
                f"{seen.source}: a step of {format_seconds(seen.step_s)} is faster than possible, since one device computes "
                f"{format_seconds(computes_s)}: correct its unit, or the batch"
            )
    yield from map(sentence, questions)


def _alone_remarks(told: Result, alone: Seen, predicted_s: float) -> list[str]:
    """Return a remark if a single device is not as fast as predicted."""
    spread = spread_of(told, given_alone=False)
    apart = math.log(alone.step_s / predicted_s)
    if abs(apart) <= Z_90 * max(spread, _OF_A_RUN):
        return []
    how = "longer than" if apart > 0 else "less than"
    many = f"one device takes {format_seconds(alone.step_s)} for a step, {how} the predicted {format_seconds(predicted_s)}"
    return [sentence(f"{many}; devices are assumed to be as fast as the measured one")]


def _interval(mean: float, spread: float, deviations: float = Z_90) -> tuple[float, float]:
    return mean * math.exp(-deviations * spread), mean * math.exp(deviations * spread)


def _gain(step_s: float, cost: Estimate, beside_s: float = 0.0) -> Estimate:
    """Return the ratio of throughput without a cost to that with it; ``beside_s`` is the uncertainty of other parts of a step."""

    def of(cost_s: float) -> float:
        return step_s / max(step_s - cost_s, 1e-3 * step_s)

    return Estimate(mean=of(cost.mean), low=of(max(cost.low - beside_s, 0.0)), high=of(cost.high + beside_s))
