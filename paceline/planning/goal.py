"""Goals: read with units, converted to a required throughput, and the confidence of reaching it.

Every goal becomes a throughput. A deadline requires samples / deadline; a budget requires samples x price / budget, with the hourly price
of the nodes. A goal with samples is about a whole training. If the scenario or its workload describes a job's time outside steps, every
configuration is simulated as such a job, and time, cost and confidence are the job's; otherwise they cover steps only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist, fmean
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from simulator.base.errors import InputError, UnitError
from simulator.base.spec import PositiveSeconds, Spec
from simulator.base.units import check_thousands, parse_quantity, warn_of_thousands, without_separators
from simulator.base.validation_errors import quoted, validated
from simulator.catalogue.loading import Source, is_number, load_scenario, samples_of, table_of
from simulator.results.cost import LEAST_PER_S, cost_of_samples, is_paid_in_advance, time_of_samples_s, usd_estimate
from simulator.results.intervals import combined
from simulator.results.results import Result
from simulator.scenario import NO_SEQUENCES
from simulator.spec.figures import Estimate, JobOutcome, Unit
from simulator.spec.paying import sets_of_nodes
from simulator.spec.uncertainty import CERTAIN, RelativeError, relative_error_of

_HOUR_S = 3600.0
_NUMBER = r"(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)"
_RATE = re.compile(_NUMBER + r"\s*(?P<thing>samples?|images?|examples?|sequences?|tokens?)\s*(?:/|per)\s*(?P<unit>[A-Za-z]+)", re.ASCII)
_MONEY = re.compile(r"(?:USD|\$)\s*" + _NUMBER + r"|(?P<before>" + _NUMBER.replace("number", "first") + r")\s*(?:USD|\$)", re.ASCII)
_ROUNDING = 1e-12

Prefer = Literal["cheapest", "fastest", "fewest-devices"]
"""Preference among all configurations that reach the goal."""


class Goal(Spec):
    """Goal of a training, and the preference among all configurations that reach it."""

    target_throughput_samples_per_s: float | None = Field(default=None, gt=0)
    samples: float | None = Field(default=None, gt=0, description="samples of the whole training; None if the goal is a rate")
    epochs: float = Field(default=1.0, gt=0, description="epochs of these samples")
    deadline_s: PositiveSeconds | None = None
    budget_usd: float | None = Field(default=None, gt=0)
    confidence: float = Field(default=0.95, gt=0, lt=1, description="share of real runs that must reach the goal")
    prefer: Prefer = "cheapest"
    trainings_per_month: float | None = Field(
        default=None, gt=0, description="trainings a month; null: as many as fill the price's share_in_use"
    )


def goal_of(
    *,
    target_throughput: str | float | None = None,
    samples: float | None = None,
    epochs: float | None = None,
    deadline: str | float | None = None,
    budget: str | float | None = None,
    confidence: float = 0.95,
    prefer: Prefer | None = None,
    trainings_per_month: float | None = None,
    unit: Unit | None = None,
) -> Goal:
    """Return a goal from its arguments.

    >>> goal_of(samples=115.2e6, epochs=90, deadline="12h").deadline_s
    43200.0

    Parameters
    ----------
    target_throughput
        Such as ``"20000 samples/s"`` or ``"1e6 tokens/s"``, or a number of samples a second.
    samples, epochs
        Samples of the whole training, and their epochs (default: one).
    deadline
        Such as ``"12h"``, or seconds.
    budget
        Such as ``"500 USD"``, or US dollars.
    confidence
        Share of real runs that must reach the goal.
    prefer
        Preference among those that do; default: the fastest if only a budget is given, else the cheapest.
    trainings_per_month
        Number of such trainings a month.
    unit
        What the training counts; None: samples.

    Raises
    ------
    InputError
        There is no goal or more than one kind, samples are missing, or a value is impossible.
    """
    if target_throughput is None and deadline is None and budget is None:
        raise InputError(
            "the goal is missing: give `target_throughput='20000 samples/s'`, or "
            "`samples=1e9` with `deadline='12h'`, `budget='500 USD'` or both"
        )
    if target_throughput is not None and (deadline is not None or budget is not None or samples is not None):
        other = next(name for name, given in (("deadline", deadline), ("budget", budget), ("samples", samples)) if given is not None)
        raise InputError(f"`target_throughput` and `{other}` exclude each other; give one of them")
    if samples is None and epochs is not None:
        raise InputError(f"`epochs` {epochs:g}: needs `dataset_size`, the samples of an epoch")
    if samples is None and target_throughput is None:
        name = "deadline" if deadline is not None else "budget"
        what = "time" if deadline is not None else "cost"
        raise InputError(
            f"`{name}` needs `samples`: a configuration has no {what} without it; "
            "add `samples=1e9`, or `dataset_size=1.28e6` and `epochs=90`"
        )
    _check_amounts(samples=samples, epochs=epochs)
    if not 0 < confidence < 1:
        raise InputError(f"`confidence` {confidence:g} must be between 0 and 1, such as 0.95")
    if trainings_per_month is not None:
        _positive(trainings_per_month, "trainings_per_month", trainings_per_month, "must be a number above 0, such as 20")
        if samples is None:
            raise InputError(
                f"`trainings_per_month` {quoted(trainings_per_month)} needs the samples of a training: give `samples` with `deadline` or "
                "`budget`, or leave it out"
            )
    only_budget = budget is not None and deadline is None
    return validated(
        Goal,
        {
            "target_throughput_samples_per_s": None if target_throughput is None else _rate(target_throughput, unit),
            "samples": samples,
            "epochs": 1.0 if epochs is None else epochs,
            "deadline_s": None if deadline is None else _time_s(deadline),
            "budget_usd": None if budget is None else _usd(budget),
            "confidence": confidence,
            "prefer": prefer or ("fastest" if only_budget else "cheapest"),
            "trainings_per_month": trainings_per_month,
        },
        "goal",
    )


def _check_amounts(**amounts: float | None) -> None:
    for name, value in amounts.items():
        if value is not None:
            _positive(value, name, value, f"must be a number above 0, such as `{name}={_EXAMPLES[name]}`")


_EXAMPLES = {"samples": "1e9", "tokens": "300e9", "epochs": "90", "dataset_size": "1.28e6"}


def _positive(value: float, argument: str, shown: object, rule: str) -> float:
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"`{argument}` {quoted(shown)} {rule}")
    return value


def _rate(given: str | float, unit: Unit | None) -> float:
    """Samples a second."""
    rule = "must be a number of samples or tokens over a time, above 0, such as `target_throughput='20000 samples/s'`"
    if not isinstance(given, str):
        return _positive(float(given), "target_throughput", given, rule)
    match = _RATE.fullmatch(given.strip())
    if not match:
        raise UnitError(f"`target_throughput` {quoted(given)} {rule}", without_separators(given))
    try:
        unit_s = parse_quantity(f"1 {match['unit']}", "time")
    except UnitError:
        raise UnitError(f"`target_throughput` {quoted(given)} {rule}") from None
    warn_of_thousands(given.strip())
    per_s = _positive(float(match["number"]) / unit_s, "target_throughput", given, rule)
    if not match["thing"].startswith("token"):
        return per_s
    if unit is None or unit.name != "tokens":
        raise InputError(f"`target_throughput` {quoted(given)}: {NO_SEQUENCES}")
    return per_s / unit.per_sample


def _time_s(given: str | float) -> float:
    rule = "must be a time above 0 with its unit, such as `deadline='12h'`, '30 min' or '2 d'"
    if not isinstance(given, str):
        return _positive(float(given), "deadline", given, rule)
    try:
        value_s = parse_quantity(given, "time")
    except UnitError as error:
        raise UnitError(f"`deadline` {quoted(given)} {rule}", error.hint) from None
    if not value_s > 0:
        raise UnitError(f"`deadline` {quoted(given)} {rule}")
    return value_s


def _usd(given: str | float) -> float:
    rule = "must be a sum of US dollars above 0, such as `budget='500 USD'`"
    if not isinstance(given, str):
        return _positive(float(given), "budget", given, rule)
    match = _MONEY.fullmatch(given.strip())
    if not match:
        raise UnitError(f"`budget` {quoted(given)} {rule}", without_separators(given))
    number = match["number"] or match["before"]
    check_thousands(number, f"`budget` {quoted(given)}")
    return _positive(float(number), "budget", given, rule)


def required_rate(goal: Goal, usd_per_hour: float | None, committed_usd: float | None = None, affordable_s: float | None = None) -> float:
    """Return the samples a second that a configuration needs to reach the goal; infinite if it cannot.

    This is the largest of the target, samples / deadline, and samples x price / (3600 budget). For machines that are bought, or reserved
    for a term, the budget limits their whole price.

    Parameters
    ----------
    usd_per_hour
        Price of its nodes; None if unknown.
    committed_usd
        Price to buy its nodes, or for their term; None if they are rented by the hour.
    affordable_s
        The longest time that the budget pays for, if time is billed in units.
    """
    if goal.target_throughput_samples_per_s is not None:
        return goal.target_throughput_samples_per_s
    total = goal.samples
    assert total is not None
    needed = 0.0 if goal.deadline_s is None else total / goal.deadline_s
    if goal.budget_usd is not None and committed_usd is not None:
        needed = max(needed, LEAST_PER_S) if committed_usd <= goal.budget_usd else math.inf
    elif goal.budget_usd is not None and affordable_s is not None:
        needed = max(needed, total / affordable_s if affordable_s else math.inf)
    elif goal.budget_usd is not None:
        needed = max(needed, math.inf if usd_per_hour is None else total * usd_per_hour / _HOUR_S / goal.budget_usd)
    return needed


def enough_of(replications: int, confidence: float) -> int:
    """Return how many replications must reach a goal: the fewest k with k / (R + 1) at least the confidence."""
    return max(1, math.ceil(confidence * (replications + 1) - _ROUNDING * (replications + 1)))


def reached_with(confidence: float, rates: Sequence[float], relative_error: RelativeError, shares: Sequence[float] = ()) -> float:
    """Return the samples a second that the next real run reaches with a confidence.

    Without model error that is the k-th fastest of R replications, with the fewest k for which k / (R + 1) is at least the confidence
    (Wilks, "Determination of sample sizes for setting tolerance limits", 1941; as in prediction intervals). Model error adds the distance
    of a normal quantile of the same confidence from the mean; the two distances, in logarithms, are combined as in intervals
    (:func:`simulator.results.intervals.combined`). ``shares`` are those of :func:`confidence_of`.
    """
    if shares and relative_error != CERTAIN:
        return _reached_by_jobs(min(confidence, reachable_confidence(len(rates))), rates, relative_error, shares)
    ordered = np.sort(rates)[::-1]
    by_chance = float(ordered[min(enough_of(len(rates), confidence), len(rates)) - 1])
    away = -NormalDist().inv_cdf(confidence)
    away *= relative_error.low if away < 0 else relative_error.high
    mean = float(ordered.mean())
    return mean * math.exp(combined(math.log(by_chance / mean), away)) if away else by_chance


def confidence_of(rates: Sequence[float], needed: float, relative_error: RelativeError = CERTAIN, shares: Sequence[float] = ()) -> float:
    """Return the probability that the next real run reaches a throughput: the highest confidence for which :func:`reached_with` does.

    Without model error that is k / (R + 1), where k of R replications reach it. If the ``shares`` of steps in the time of runs differ
    (model error applies to steps only), each replication has its own probability, as in
    :func:`simulator.results.intervals.interval_of_jobs`.
    """
    if not math.isfinite(needed):
        return 0.0
    if shares and relative_error != CERTAIN:
        return _confidence_of_jobs(rates, needed, relative_error, shares)
    ordered = sorted(rates, reverse=True)
    least = needed * (1 - _ROUNDING)
    mean = math.fsum(ordered) / len(ordered)
    best = 0.0
    for place, rate in enumerate(ordered, start=1):
        end = place / (len(ordered) + 1)
        if relative_error == CERTAIN:
            held = end if rate >= least else 0.0
        else:
            # what the model may take away, or must add, for this one to come out at what is needed
            away = _left(math.log(least / mean), math.log(rate / mean)) if least > 0 else -math.inf
            sd = relative_error.low if away < 0 else relative_error.high
            held = min(end, NormalDist().cdf(-away / sd)) if sd else end * (away <= 0)
        if held > (place - 1) / (len(ordered) + 1):
            best = held
    return best


def _confidence_of_jobs(rates: Sequence[float], needed: float, relative_error: RelativeError, shares: Sequence[float]) -> float:
    """Return that probability for jobs; the next run is equally likely in each gap between sorted replications and at either end."""
    chances = [_chance(rate, share, needed, relative_error) for rate, share in zip(rates, shares, strict=True)]
    return min(math.fsum(chances) + min(chances), len(chances)) / (len(chances) + 1)


def _chance(rate: float, share: float, needed: float, relative_error: RelativeError) -> float:
    """Return the probability that a job of this rate and share of steps reaches the needed rate, given model error of steps."""
    left = rate / (needed * (1 - _ROUNDING)) - (1 - share) if needed > 0 else math.inf
    if left <= 0 or not share:
        return float(left > 0)
    slower = math.log(left / share)  # that its steps may be at most
    sd = relative_error.low if slower > 0 else relative_error.high
    return NormalDist().cdf(slower / sd) if sd else float(slower >= 0)


def _reached_by_jobs(confidence: float, rates: Sequence[float], relative_error: RelativeError, shares: Sequence[float]) -> float:
    """Return the throughput of that confidence, by bisection of its logarithm."""
    low, high = math.log(LEAST_PER_S) - _MOST_SD, math.log(max(rates)) + _MOST_SD * relative_error.high
    while high - low > _ROUNDING:
        middle = (low + high) / 2
        if _confidence_of_jobs(rates, math.exp(middle), relative_error, shares) >= confidence:
            low = middle
        else:
            high = middle
    return math.exp(low)


_MOST_SD = 40.0
"""Largest considered deviation, in standard deviations."""


def rate_reached(result: Result, goal: Goal) -> float:
    """Return the samples a second that the next real run reaches with the goal's confidence."""
    return reached_with(goal.confidence, rates_of(result, goal), model_error(result, goal), shares_of(result, goal))


def _left(whole: float, part: float) -> float:
    """Return the distance that, combined with a part, gives the whole."""
    square = whole * abs(whole) - part * abs(part)
    return math.copysign(math.sqrt(abs(square)), square)


def reached_by(rates: Sequence[float], needed: float) -> int:
    """Count the replications that reach a throughput."""
    return sum(rate >= needed * (1 - _ROUNDING) for rate in rates)


def reachable_confidence(replications: int) -> float:
    """Return the highest confidence that a number of replications supports: R / (R + 1)."""
    return replications / (replications + 1)


def replications_for(confidence: float) -> int:
    """Return the fewest replications that support a confidence: c / (1 - c)."""
    return max(2, math.ceil(confidence / (1 - confidence) - _ROUNDING / (1 - confidence)))


# -- the whole job that a goal asks for ----------------------------------------------------


class Length(NamedTuple):
    """Length of a training, shared by the goal and all configurations.

    Attributes
    ----------
    samples, epochs
        Samples of the whole training, and their epochs; None if the goal has none.
    settings
        Keys to set in all configurations.
    """

    samples: float | None
    epochs: float | None
    settings: list[tuple[str, Any]]


def length_of(
    scenario: Source,
    settings: Iterable[tuple[str, Any]],
    *,
    samples: float | None,
    epochs: float | None,
    dataset_size: float | None,
    rate: bool,
    tokens: float | None = None,
) -> Length:
    """Return the length of a training, from the arguments and the scenario's ``[job]``.

    Parameters
    ----------
    scenario, settings
        As for :func:`paceline.planning.space_of`.
    samples
        Samples of the whole training; default: ``dataset_size`` times ``epochs``.
    epochs, dataset_size
        Epochs, and samples of the data set; default: the job's, else one epoch of all samples.
    rate
        Whether the goal is a throughput, which needs no length.
    tokens
        Tokens of the whole training, in place of its samples.

    Raises
    ------
    InputError
        All three are given, or tokens with samples, or of a workload without sequences.
    ScenarioError
        The scenario breaks a rule.
    """
    settings = list(settings)
    if tokens is not None:
        if samples is not None:
            raise InputError(f"`tokens` {tokens:,.15g} and `samples` {samples:,.15g} both determine the length; leave one out")
        samples = _samples_of(tokens, _unit_of(scenario, settings))
    if samples is not None and dataset_size is not None and epochs is not None:
        raise InputError(
            f"`samples` {quoted(samples)}, `epochs` {quoted(epochs)} and `dataset_size` {quoted(dataset_size)}: two of them determine "
            "the length; leave one out"
        )
    _check_amounts(samples=samples, epochs=epochs, dataset_size=dataset_size)
    job = table_of(scenario, settings)[0].get("job") if not rate else None
    known = job if isinstance(job, Mapping) else {}  # what else stands there is refused where the scenario is loaded
    if is_number(known.get("tokens")) and known.get("samples") is None:
        known = {**known, "samples": _samples_of(known["tokens"], _unit_of(scenario, settings))}
    asked = samples is not None or dataset_size is not None or epochs is not None
    samples, epochs = _completed(samples, dataset_size, epochs, known)
    if rate or not asked or samples is None or (job is None and not _has_overheads(scenario, settings)):
        return Length(samples, epochs, settings)
    passes = 1.0 if epochs is None else epochs
    own = {"job.dataset_size": samples / passes, "job.epochs": passes}
    kept = [(key, value) for key, value in settings if key not in own and key not in ("job.samples", "job.tokens")]
    return Length(samples, epochs, [*kept, *own.items()])


def _completed(
    samples: float | None, size: float | None, epochs: float | None, job: Mapping[str, Any]
) -> tuple[float | None, float | None]:
    """Return samples and epochs of the whole training, completed from the scenario's job.

    If the size of the data set is known, samples determine the epochs; otherwise they are one epoch.
    """
    own_samples, own_size, own_epochs = (_number(job.get(name)) for name in ("samples", "dataset_size", "epochs"))
    if samples is None and size is None and epochs is None and own_samples is not None:
        samples, epochs = own_samples, own_epochs
    size = size if size is not None else own_size
    if samples is not None:
        return samples, epochs if epochs is not None else samples / size if size else None
    epochs = epochs if epochs is not None else own_epochs
    return (None if size is None else size * (1.0 if epochs is None else epochs)), epochs


def _unit_of(scenario: Source, settings: Iterable[tuple[str, Any]]) -> Unit:
    """Return what a training counts, whatever its length."""
    return load_scenario(scenario, [*(pair for pair in settings if not pair[0].startswith("job.")), ("job", None)]).unit


def _samples_of(tokens: float, unit: Unit) -> float:
    """Return the sequences that hold a number of tokens."""
    _check_amounts(tokens=tokens)
    if unit.name != "tokens":
        raise InputError(f"`tokens` {tokens:,.15g}: {NO_SEQUENCES}")
    return samples_of(tokens, unit.per_sample)


def _number(value: object) -> float | None:
    """Return a positive number of a job, if it is one; loading the scenario refuses other values."""
    return float(value) if is_number(value) else None


def _has_overheads(scenario: Source, settings: Iterable[tuple[str, Any]]) -> bool:
    """Return whether a job without ``[job]`` takes longer than its steps: overheads were measured, or a pipeline fills its cache."""
    loaded = load_scenario(scenario, settings)
    return loaded.workload.overheads is not None or loaded.input is not None


def job_of(result: Result, goal: Goal) -> JobOutcome | None:
    """Return the whole job that a goal is about; None if the goal is a rate, or only steps were simulated."""
    return result.job if goal.samples is not None else None


def rates_of(result: Result, goal: Goal) -> tuple[float, ...]:
    """Return the samples a second of each replication to compare with the goal: of the whole job, or of steps."""
    job = job_of(result, goal)
    if job is None:
        return result.throughput_of_each_replication
    return tuple(max(rate, LEAST_PER_S) for rate in job.samples_per_s_of_each_replication)


def model_error(result: Result, goal: Goal) -> RelativeError:
    """Return the relative model error of the samples a second that are compared with the goal; in a job, scaled to its steps.

    If :func:`shares_of` gives the shares of runs, it is the error of steps.
    """
    relative_error, job = relative_error_of(result.discrepancy), job_of(result, goal)
    if job is None or not job.time_s.mean or job.steps_share_of_each_replication:
        return relative_error
    return relative_error.times(job.parts_s.of_steps / job.time_s.mean)


def shares_of(result: Result, goal: Goal) -> tuple[float, ...]:
    """Return the share of steps in the time of each replication, if faults make them differ; else none."""
    job = job_of(result, goal)
    return () if job is None else job.steps_share_of_each_replication


def sample_s_of(result: Result, goal: Goal) -> float:
    """Return seconds per sample, mean over replications."""
    rates = rates_of(result, goal) or (result.throughput_samples_per_s.mean,)
    return fmean(1.0 / max(rate, LEAST_PER_S) for rate in rates)


def time_of(result: Result, goal: Goal) -> Estimate | None:
    """Return the seconds of the training; None if the goal has no samples."""
    if (job := job_of(result, goal)) is not None:
        return job.time_s
    return None if goal.samples is None else time_of_samples_s(result, goal.samples)


def sets_of(result: Result, goal: Goal) -> int:
    """Return the sets of nodes that the goal's trainings of a month need; 1 if it does not count trainings."""
    time_s = time_of(result, goal)
    return 1 if time_s is None or goal.trainings_per_month is None else sets_of_nodes(goal.trainings_per_month * time_s.mean / _HOUR_S)


def cost_of(result: Result, goal: Goal) -> Estimate | None:
    """Return the US dollars of the training; None if the goal has no samples, or the cluster no price."""
    often = goal.trainings_per_month
    if (job := job_of(result, goal)) is not None:
        if often is None or goal.samples is None or not is_paid_in_advance(result.scenario):
            return job.cost_usd
        return usd_estimate(result.scenario, job.time_s, per_month=often)
    return None if goal.samples is None else cost_of_samples(result, goal.samples, often)
