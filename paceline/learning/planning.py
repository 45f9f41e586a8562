"""``paceline plan --target``: the fastest and the cheapest way to a target, choosing batch and strategy together.

Every configuration is simulated. Its samples are first estimated by the gradient noise scale, from a real training of one device, with
staleness and dropped gradients assumed to cost nothing. The best by estimate are replayed with real gradients, until no other estimate is
better than the best replay. Published trainings needed fewer samples at large batches than this estimate from one small batch
(docs/fidelity.md). So configurations follow that would be better if a larger batch cost no samples, up to the limit of replays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from calibrate.learning import noise_scale_of, problem_of
from paceline.answers import Answer
from paceline.learning.learned import Learned, LearnedWay, Target
from paceline.learning.learning import Contender, Course, is_workload, learn
from paceline.planning.space import Space, fitting
from paceline.ranges import doubled
from paceline.sweeping import sweep
from simulator.base.errors import InputError, ScenarioError
from simulator.base.spec import Spec
from simulator.base.table import Column, Row, Table
from simulator.base.text import Short, counted, format_number, format_seconds, format_usd
from simulator.results.cost import usd_per_hour
from simulator.results.intervals import combined
from simulator.results.results import Failure, Result
from simulator.scenario import Scenario
from simulator.spec.figures import Estimate
from simulator.spec.training import NoiseScale
from simulator.strategies.catalogue import ALONE


def samples_ratio(batch: float, reference: float, noise: float) -> float:
    """Return the ratio of samples to a target at two global batches for a noise scale N: (B + N) / (B0 + N).

    A target takes E(B) = E_min (1 + B / N) samples and E(B) / B steps at a global batch B, with the best rate for each
    batch (McCandlish et al. 2018, arXiv:1812.06162, equations 2.11 and 2.12).

    Parameters
    ----------
    batch, reference
        Samples of the batch, and of the reference batch; above 0.
    noise
        Noise scale in samples, from 0 to infinity.

    Examples
    --------
    >>> samples_ratio(3000, 1000, 1000), samples_ratio(3000, 1000, 0), samples_ratio(3000, 1000, math.inf)
    (2.0, 3.0, 1.0)
    """
    return (batch + noise) / (reference + noise) if math.isfinite(noise) else 1.0


def samples_factor(noise: NoiseScale, batch: float, reference: float) -> Estimate:
    """Return the same ratio with the interval that follows from the noise scale's.

    ``mean`` is the factor at ``noise.samples``.

    Examples
    --------
    >>> samples_factor(NoiseScale(samples=1000, low=500), 4000, 1000)
    Estimate(mean=2.5, low=1.0, high=3.0)
    """
    ends = (samples_ratio(batch, reference, noise.low), samples_ratio(batch, reference, math.inf if noise.high is None else noise.high))
    return Estimate(mean=samples_ratio(batch, reference, noise.samples), low=min(ends), high=max(ends))


def samples_to_target(noise: NoiseScale, batch: float, reference: float, samples: Estimate) -> Estimate:
    """Return samples to the target at a batch, from those at a reference batch.

    Parameters
    ----------
    noise
        The noise scale.
    batch, reference
        As for :func:`samples_ratio`.
    samples
        Samples at the reference batch; its interval and the factor's are independent, so their distances in logarithms add in quadrature.
    """
    factor = samples_factor(noise, batch, reference)
    mean = samples.mean * factor.mean
    low = combined(math.log(samples.low / samples.mean), math.log(factor.low / factor.mean)) if samples.low > 0 else -math.inf
    high = combined(math.log(samples.high / samples.mean), math.log(factor.high / factor.mean))
    return Estimate(mean=mean, low=mean * math.exp(low), high=mean * math.exp(high))


_MOST_REPLAYED = 12
"""Most configurations that are replayed; each takes a run for every seed and rate."""
_EACH_ROUND, _MOST_REASONS = 3, 5
_HOUR_S = 3600.0


class Limits(Spec):
    """Limits of the training."""

    deadline_s: float | None = Field(default=None, description="most time to the target; null: any")
    budget_usd: float | None = Field(default=None, description="most US dollars to the target; null: any")

    def kept_by(self, considered: Considered) -> bool:
        """Return whether a configuration reaches the target within the limits."""
        takes_s, costs_usd = considered.takes_s, considered.costs_usd
        late = self.deadline_s is not None and takes_s > self.deadline_s
        dear = self.budget_usd is not None and (costs_usd is None or costs_usd > self.budget_usd)
        return math.isfinite(takes_s) and not late and not dear


class Considered(Spec):
    """A configuration, with its time, cost and samples to the target."""

    name: str = Field(description="strategy, cluster, workers, batch")
    scenario: Scenario = Field(description="simulated result")
    global_batch: int = Field(description="samples of an update")
    samples_per_s: Estimate = Field(description="simulated throughput, of the job if there is one")
    usd_per_hour: float | None = Field(description="US dollars per hour for all nodes; null without a price")
    samples: Estimate = Field(description="samples to the target, estimated by the noise scale")
    time_s: Estimate = Field(description="seconds to the target, by that estimate")
    least_s: float = Field(description="seconds to the target with the samples of one device")
    learned: LearnedWay | None = Field(default=None, description="answer of the replays; null: not replayed")

    @property
    def takes_s(self) -> float:
        """Seconds to the target, by replay if there was one; infinite if not all of its runs reached the target."""
        if self.learned is None:
            return self.time_s.mean
        return self.learned.time_s.median if self.learned.always and self.learned.time_s is not None else math.inf

    @property
    def costs_usd(self) -> float | None:
        """US dollars to the target; None without a price."""
        return None if self.usd_per_hour is None else self.takes_s / _HOUR_S * self.usd_per_hour


class TargetPlan(Short, Spec):
    """The fastest and the cheapest configuration to a target."""

    see: ClassVar[str] = "to_frame() has a row for each configuration, .sentences the answer, .learned the curves of replays"

    schema_version: Literal[1] = Field(default=1, description="version of this format")
    kind: Literal["target-plan"] = Field(default="target-plan", description="what this is")
    target: Target = Field(description="target to reach")
    limits: Limits = Field(description="limits of time and cost")
    reference_batch: int = Field(description="batch of the training on one device")
    reference: Estimate = Field(description="samples to the target on one device with that batch: median of the runs, and their range")
    noise_scale: NoiseScale = Field(description="noise scale for estimates at other batches")
    considered: tuple[Considered, ...] = Field(description="every simulated configuration, the answer first")
    refused: tuple[str, ...] = Field(default=(), description="configurations that could not be simulated, with reasons")
    learned: Learned = Field(description="answers of replays")

    @property
    def replayed(self) -> tuple[Considered, ...]:
        """Configurations that were replayed."""
        return tuple(each for each in self.considered if each.learned is not None)

    @property
    def fastest(self) -> Considered | None:
        """The fastest replayed configuration that reaches the target within the limits, if any."""
        return min(filter(self.limits.kept_by, self.replayed), key=_by_time, default=None)

    @property
    def cheapest(self) -> Considered | None:
        """The cheapest such configuration; None without prices."""
        priced = (each for each in self.replayed if self.limits.kept_by(each) and each.costs_usd is not None)
        return min(priced, key=_by_cost, default=None)

    @property
    def feasible(self) -> bool:
        """Return whether the target is reached within the limits."""
        return self.fastest is not None

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answer in sentences."""
        return self.answer.sentences

    @property
    def answer(self) -> Answer:
        """The answer, as every command shows it."""
        fastest, cheapest, noise = self.fastest, self.cheapest, self.noise_scale
        if fastest is None or fastest.learned is None:
            return replace(self.learned.answer, headline=f"No replayed configuration always reaches {self.target.in_words}.", met=False)
        cost = f" for {format_usd(fastest.costs_usd)}" if fastest.costs_usd is not None else ""
        dearer = f"; cheapest: {cheapest.name}" if cheapest is not None and cheapest is not fastest else ""
        answer, ends = self.learned.answer, [format_number(end) for end in (noise.low, noise.high) if end is not None]
        return replace(
            answer,
            headline=f"Fastest to {self.target.in_words}: {fastest.name}, {format_seconds(fastest.takes_s)}{cost}{dearer}.",
            confidence=(
                f"{len(self.replayed)} of {counted(len(self.considered), 'configuration')} replayed with real gradients; the others are "
                f"estimated by a noise scale of {format_number(noise.samples)} samples ({' to '.join(ends)}{' or more' * (len(ends) < 2)})"
            ),
            watch_out="; ".join(filter(None, (self._of_the_others(fastest), answer.watch_out))),
            met=True,
        )

    def _of_the_others(self, fastest: Considered) -> str:
        """Return which configurations that were not replayed may be faster; empty where none may be."""
        others = [each for each in self.considered if each.learned is None]
        if better := [each for each in others if each.takes_s < fastest.takes_s]:
            return f"{len(better)} not replayed may be faster, such as {better[0].name}: plan fewer at a time"
        might = sorted((each for each in others if each.least_s < fastest.takes_s), key=lambda each: each.least_s)
        return f"if larger batches cost no samples, {len(might)} may be faster, such as {might[0].name}" if might else ""

    def table(self) -> Table:
        """Return a row for each configuration, the best first."""
        return Table.reading("Configurations", _COLUMNS, self.considered, "target-plan")

    @classmethod
    def rows_of(cls, items: Sequence[TargetPlan]) -> list[Row]:  # type: ignore[override]
        """Return a row for each configuration of each plan."""
        return [{column.name: column.read(each) for column in _COLUMNS} for plan in items for each in plan.considered]

    def _in_short(self) -> Iterator[str]:
        yield f"to {self.target.in_words}, {counted(len(self.considered), 'configuration')}"
        yield self.answer.headline

    def _caption(self) -> str:
        return f"Plan to {self.target.in_words}"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _basis(considered: Considered) -> str:
    way = considered.learned
    return "estimated" if way is None else f"replayed, {way.reached} of {len(way.runs)} runs"


def _samples(considered: Considered) -> int | None:
    """Return samples to the target, by replay if there was one."""
    way = considered.learned
    if way is None:
        return int(considered.samples.mean)
    return None if way.samples is None else int(way.samples.median)


_COLUMNS = (
    Column("name", "text", "Configuration"),
    Column("global_batch", "count", "Global batch"),
    Column("samples_per_s", "throughput", "Samples/s", of="samples_per_s.mean"),
    Column("basis", "text", "Samples to target", by=_basis),
    Column("samples", "count", "Samples", by=_samples),
    Column("time_s", "seconds", "Time", by=lambda considered: _finite(considered.takes_s)),
    Column("cost_usd", "usd", "Cost", by=lambda considered: _finite(considered.costs_usd)),
)


def plan_to_target(space: Space, limits: Limits, course: Course, *, out: Path | None = None, force: bool = False) -> TargetPlan:
    """Find the fastest and the cheapest configuration to a target.

    Parameters
    ----------
    space
        The configurations; of a range of workers 1, 2, 4 and so on and its end are tried.
    limits
        Limits of time and cost.
    course
        The problem and its target.
    out, force
        Results file of simulations, as for :func:`paceline.sweep`.

    Raises
    ------
    InputError
        One device does not reach the target, or the problem cannot be used.
    ScenarioError
        No configuration fits into memory, or can be simulated.
    CalibrationError
        The user's function or model failed.
    """
    target = course.target
    about = problem_of(course.problem, course.folder, course.python, course.timeout_s)  # refused before anything takes long
    configurations, too_large = _configurations(space)
    swept = sweep(
        [scenario for _, scenario in configurations], out, jobs=course.jobs, force=force,
        progress=lambda done, total: course.progress(done, total, "simulations"),
    )  # fmt: skip
    outcomes = [(name, outcome) for (name, _), outcome in zip(configurations, swept, strict=True)]
    simulated = [(name, outcome) for name, outcome in outcomes if isinstance(outcome, Result)]
    failed = [(name, outcome.failed.text) for name, outcome in outcomes if isinstance(outcome, Failure)]
    refused = [*((refusal.name, refusal.text) for refusal in space.refused), *too_large, *failed]
    if not simulated:
        raise ScenarioError(*(f"{name}: {text}" for name, text in refused[:_MOST_REASONS]))
    batch = min(result.scenario.batch for _, result in simulated)
    alone = space.base.replaced({"strategy": ALONE, "workload.batch_per_replica": batch, "job": None})
    learned = learn([Contender("one device", ((alone, 1.0),))], course)
    (way,) = learned.ways
    if not way.always or way.samples is None:
        at = f"; it ends at {format_number(way.last.median)}" if way.last is not None else ""
        raise InputError(
            f"`target`: one device reaches {target.in_words} in {way.reached} of {len(way.runs)} runs within {course.epochs:g} "
            f"epochs with a batch of {batch:,}{at}; give more `epochs`, other `rates`, or a target that it reaches"
        )
    reference = Estimate(mean=way.samples.median, low=way.samples.low, high=way.samples.high)
    noise = space.base.workload.noise_scale if is_workload(about.parameters, space.base) else None  # that of another model says nothing
    noise = noise or noise_scale_of(
        course.problem, course.folder, batch=batch, epochs=course.epochs, python=course.python, timeout_s=course.timeout_s,
        progress=course.progress,
    )  # fmt: skip
    considered = [_considered(name, result, noise, batch, reference) for name, result in simulated]
    considered, learned = _replayed(considered, learned, course, limits)
    plan = TargetPlan(
        target=target, limits=limits, reference_batch=batch, reference=reference, noise_scale=noise,
        considered=tuple(considered), refused=tuple(f"{name}: {text}" for name, text in refused), learned=learned,
    )  # fmt: skip
    best = plan.fastest or plan.considered[0]
    order = sorted(plan.considered, key=lambda each: (each is not best, each.learned is None, each.takes_s))
    return plan.replaced({"considered": tuple(order)})


def _configurations(space: Space) -> tuple[list[tuple[str, Scenario]], list[tuple[str, str]]]:
    """Return every configuration with its name, and the reasons of those that do not fit into memory."""
    several = len({line.first.batch for line in space.lines}) > 1
    _, unfit = fitting(space)
    named, too_large = [], []
    for line in space.lines:
        counts = list(line.candidates)
        for workers in doubled(counts[0], counts[-1]) if line.searched else counts:
            if workers in line.candidates:
                scenario, title = line.candidates[workers].given, line.title(workers)
                name = f"{title}, batch {scenario.batch:,}" if several and "batch" not in title else title
                why = unfit.get(line, {}).get(workers)
                (named.append((name, scenario)) if why is None else too_large.append((name, why)))
    return named, too_large


def _considered(name: str, result: Result, noise: NoiseScale, batch: int, reference: Estimate) -> Considered:
    scenario, pace = result.scenario, result.scenario.strategy.pace
    together = 1 if pace.asynchronous else result.replicas
    samples = samples_to_target(noise, float(together * scenario.batch), float(batch), reference)
    rate = result.job.samples_per_s if result.job is not None else result.throughput_samples_per_s
    return Considered(
        name=name, scenario=scenario, global_batch=together * scenario.batch, samples_per_s=rate, usd_per_hour=usd_per_hour(scenario),
        samples=samples,
        time_s=Estimate(mean=samples.mean / rate.mean, low=samples.low / rate.high, high=samples.high / max(rate.low, 1e-300)),
        least_s=min(samples.mean, reference.mean) / rate.mean,
    )  # fmt: skip


def _replayed(considered: list[Considered], learned: Learned, course: Course, limits: Limits) -> tuple[list[Considered], Learned]:
    """Replay the best configurations, until no other estimate is better than the best replay."""
    done: dict[str, LearnedWay] = {}
    while len(done) < _MOST_REPLAYED:
        chosen = _next(considered, limits, first=not done)[: _MOST_REPLAYED - len(done)]
        if not chosen:
            break
        more = learn([Contender(each.name, ((each.scenario, 1.0),)) for each in chosen], course)
        done |= {way.name: way for way in more.ways}
        warnings = tuple(dict.fromkeys((*learned.warnings, *more.warnings)))
        learned = more.replaced({"ways": tuple(done.values()), "warnings": warnings})
        considered = [each.replaced({"learned": done.get(each.name)}) for each in considered]
    return considered, learned


def _next(considered: Sequence[Considered], limits: Limits, *, first: bool) -> list[Considered]:
    """Return the configurations to replay next, at first the fastest and cheapest of each strategy by estimate."""
    late_s = math.inf if limits.deadline_s is None else limits.deadline_s
    left = [each for each in considered if each.learned is None and min(each.time_s.low, each.least_s) <= late_s]
    if first:
        best_of: dict[str, Considered] = {}
        for way in dict.fromkeys(each.scenario.strategy.way for each in left):
            own = [each for each in left if each.scenario.strategy.way == way]
            for best in (min(own, key=_by_time), min(own, key=_by_cost)):
                best_of.setdefault(best.name, best)
        return sorted(best_of.values(), key=_by_time)
    good = [each for each in considered if each.learned is not None and limits.kept_by(each)]
    best_s = min((each.takes_s for each in good), default=math.inf)
    best_usd = min((each.costs_usd for each in good if each.costs_usd is not None), default=math.inf)
    better = [each for each in left if each.takes_s < best_s or (each.costs_usd is not None and each.costs_usd < best_usd)]
    if not better:
        return sorted((each for each in left if each.least_s < best_s), key=lambda each: each.least_s)[:_EACH_ROUND]
    return sorted(better, key=_by_time)[:_EACH_ROUND]


_by_time = attrgetter("takes_s")


def _by_cost(considered: Considered) -> float:
    return considered.costs_usd if considered.costs_usd is not None else considered.takes_s
