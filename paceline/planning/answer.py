"""The answer of a plan as frozen, versioned data (:class:`Plan`), and the file ``NAME.plan.json`` that it lies in.

Names of fields are the file format, and ``reporting/templates/plan.html`` reads them too. Nothing is computed here: planner.py
and around.py fill the fields, sentences.py and tables.py say what they hold.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, SerializationInfo, SerializerFunctionWrapHandler, ValidationError, model_serializer

from paceline.planning.goal import Goal
from simulator.base.errors import ResultsError
from simulator.base.files import CHANGED, OutputKind, checksum_holds, is_json_of, mistaken
from simulator.base.spec import Checksummed, Spec, Terse
from simulator.base.table import Row, Table
from simulator.base.text import Short, counted, estimated, format_share, shortly_listed
from simulator.base.validation_errors import rule_of
from simulator.results.misread import LeftOut
from simulator.results.results import Result
from simulator.results.rows import BRIEF, OF_JOB
from simulator.spec.figures import Estimate
from simulator.spec.paying import Price
from simulator.spec.uncertainty import AppliedDiscrepancy

if TYPE_CHECKING:
    import pandas as pd

Scaling = Literal["weak", "strong"]
"""Weak: the batch of each replica is fixed; strong: that of all together."""


def configuration_name(what: str, cluster: str = "", others: Sequence[str] = (), workers: int | None = None, scaling: str = "") -> str:
    """A configuration in words; parts that are left out are not said.

    >>> configuration_name("ring all-reduce", "lab", ["bucket_size 4 MiB"], 8, "weak")
    'ring all-reduce on lab, bucket_size 4 MiB, 8 workers, weak scaling'
    """
    many = "" if workers is None else counted(workers, "worker")
    return ", ".join(filter(None, (f"{what} on {cluster}" if cluster else what, *others, many, f"{scaling} scaling" if scaling else "")))


class Paired(Spec):
    """Runs in which the answer is better than another configuration; both had the same random streams."""

    wins: int = Field(description="runs in which the answer is better")
    runs: int
    by: Literal["cheaper", "faster"]


class Decision(Spec):
    """Stake in one of the answer and its runners-up, by what is preferred, whether or not each then reaches the goal."""

    best: float = Field(description="probability that it is the best of them; no nearer to 0 or 1 than the runs can show")
    runs: int = Field(description="runs that this rests on")
    among: int = Field(description="how many are compared")
    regret: float = Field(description="what choosing it is expected to cost more than the best, or to do less, in the unit")
    unit: Literal["usd", "s", "samples/s"] = Field(description="of the regret: cost or time of the training, or throughput")
    regret_share: float = Field(description="the same as a share of what the best costs, takes or does")
    regret_where_not_best: float | None = Field(default=None, description="that share in the mean over cases in which another is the best")


class Candidate(Short, Spec):
    """One configuration that was simulated, and how it stands to the goal."""

    see: ClassVar[str] = ".result has its figures, .placement its machines"

    name: str = Field(description="strategy, cluster, workers and scaling in words")
    what: str = Field(description="of the name the strategy, and how it is trained")
    others: tuple[str, ...] = Field(description="of the name what was chosen besides")
    scaling: Scaling
    result: Result
    usd_per_hour: float | None
    usd_per_million_samples: Estimate | None
    time_s: Estimate | None = Field(description="of the whole training; None where the goal has no samples")
    cost_usd: Estimate | None = Field(description="of the whole training; None where the goal has no samples or the cluster no price")
    confidence: float = Field(description="predicted share of real runs that reach the goal, from the replications and the discrepancy")
    reached_by: int = Field(description="replications that reach the goal")
    meets: bool
    nodes: int = Field(description="machines that are paid for")
    devices_per_node: int = Field(description="devices of each machine that holds replicas, in use or not")
    placement: str = Field(description="what sits on which machines, in words")
    paired: Paired | None = Field(
        default=None,
        description="how often the answer is better; null where that is no matter of chance, and where nothing reaches the goal",
    )
    decision: Decision | None = Field(
        default=None, description="of the answer and its runners-up; null where that is no matter of chance, and of all others"
    )

    def named(self, *, cluster: bool = True, workers: bool = True, scaling: bool = True) -> str:
        """The name with these of its parts alone: a table leaves out what all its rows share, or what has a column of its own."""
        scenario = self.result.scenario
        count = scenario.workers if workers and scenario.strategy.count_key else None
        return configuration_name(self.what, scenario.cluster.name if cluster else "", self.others, count, self.scaling if scaling else "")

    def _in_short(self) -> Iterator[str]:
        yield self.name
        rate, time_s, cost = self.result.throughput_samples_per_s, self.time_s, self.cost_usd
        yield estimated(rate.mean, rate.low, rate.high, "throughput", "samples/s")
        yield "" if time_s is None else f"time {estimated(time_s.mean, time_s.low, time_s.high, 'seconds')}"
        yield "" if cost is None else f"cost {estimated(cost.mean, cost.low, cost.high, 'usd')}"
        yield f"{'reaches' if self.meets else 'misses'} the goal (probability {format_share(self.confidence)})"

    @classmethod
    def rows_of(cls, items: Iterable[Candidate]) -> list[Row]:
        """A row each: how it stands to the goal, then its result's settings and :data:`simulator.results.rows.COLUMNS`."""
        every = list(items)
        results = Result.rows_of([candidate.result for candidate in every])
        return [candidate._standing() | row for candidate, row in zip(every, results, strict=True)]

    @classmethod
    def shown_columns(cls, rows: Sequence[Row]) -> list[str]:
        """Name the columns of how candidates stand to the goal, and of the most important figures."""
        # its own time and cost are those of the job
        return [
            name
            for name in dict.fromkeys(name for row in rows for name in row)
            if name in _STANDING or (name in BRIEF and name not in OF_JOB)
        ]

    @property
    def key(self) -> tuple[str, str]:
        """Key that tells it from all other candidates of a plan."""
        return self.result.scenario_hash, self.scaling

    def _standing(self) -> Row:
        time_s, cost = self.time_s, self.cost_usd
        return {
            "name": self.name,
            "meets": self.meets,
            "confidence": self.confidence,
            "answer_better_in": self.paired.wins if self.paired else None,
            "best": self.decision.best if self.decision else None,
            "regret_share": self.decision.regret_share if self.decision else None,
            "time_s": time_s.mean if time_s else None,
            "time_low_s": time_s.low if time_s else None,
            "time_high_s": time_s.high if time_s else None,
            "cost_usd": cost.mean if cost else None,
            "cost_low_usd": cost.low if cost else None,
            "cost_high_usd": cost.high if cost else None,
        }


_STANDING = ("standing", "name", "meets", "confidence", "time_s", "cost_usd")


class ClusterAnswer(Spec):
    """Answer on one of the clusters that were asked for, as if it were the only one."""

    cluster: str = Field(description="as it was asked for")
    price: Price | None = Field(description="of a node, with its source; null where none is known")
    best: Candidate | None = Field(
        description="the best that meets the goal; where none does, the nearest; null where nothing was simulated"
    )
    near_miss: Candidate | None = Field(default=None, description="one that is preferable, and reaches the goal with half the confidence")
    text: str = Field(description="how it compares with the answer, or why it does not reach the goal")


class StrategyAnswer(Spec):
    """Answer by one of the strategies that were asked for, as if it were the only one."""

    strategy: str = Field(description="short name, as it was asked for")
    best: Candidate | None = Field(description="as of a cluster")
    text: str = Field(description="how it compares with the answer, or why it does not reach the goal")


class ServerCount(Spec):
    """Throughput of the chosen configuration with another number of parameter servers."""

    servers: int
    throughput_samples_per_s: Estimate
    throughput_of_each_replication: tuple[float, ...] = Field(description="samples/s; run i of each row is a pair with run i of another")
    discrepancy: AppliedDiscrepancy | None = Field(default=None, description="as of a result")
    usd_per_hour: float | None
    nodes: int = Field(description="machines that are paid for")
    placement: str = Field(description="what sits on which machines, in words")


class JobCount(Spec):
    """The whole job of the chosen configuration with another number of workers."""

    time_s: Estimate
    cost_usd: Estimate | None
    samples_per_s: Estimate = Field(description="samples over time, all overheads included")
    samples_per_s_of_each_replication: tuple[float, ...]
    goodput: float = Field(description="mean share of the time in which steps are made that are kept")


class WorkerCount(Terse, only=("job",)):
    """Throughput of the chosen configuration with another number of workers."""

    workers: int
    replicas: int
    throughput_samples_per_s: Estimate
    throughput_of_each_replication: tuple[float, ...] = Field(description="samples/s, as of a number of servers")
    discrepancy: AppliedDiscrepancy | None = Field(default=None, description="as of a result")
    usd_per_hour: float | None
    nodes: int = Field(description="machines that are paid for")
    placement: str = Field(description="what sits on which machines, in words")
    job: JobCount | None = Field(default=None, description="the whole job, where the goal is about one")


class Refused(Terse, only=("by_memory", "way", "asked")):
    """Configurations that the ranges name and that cannot be: no such machine, a rule, a failed simulation."""

    name: str = Field(description="which, in words")
    cluster: str = Field(default="", description="as it was asked for")
    text: str = Field(description="why, in a sentence")
    configurations: int = Field(ge=1, description="how many of those considered it concerns")
    by_memory: bool = Field(default=False, description="because a device has not the memory; of ways of cutting a model")
    way: str = Field(default="", description="way of training, of ways of cutting a model")
    asked: str = Field(default="", description="short name of the strategy, where several were asked for")


class Improvement(Terse, only=("job_samples_per_s",)):
    """One change to the chosen configuration, simulated; or the reason why it was not."""

    name: str = Field(description="such as: 2x network")
    text: str = Field(description="what was changed, in a sentence, with the source of any figure; or why it is not known")
    throughput_samples_per_s: Estimate | None = None
    job_samples_per_s: Estimate | None = Field(default=None, description="of the whole job, where the goal is about one")
    gain: float | None = Field(default=None, description="throughput over that of the chosen configuration, run by run, less 1: mean")
    gain_low: float | None = Field(default=None, description="low end of its 90% prediction interval")
    gain_high: float | None = Field(default=None, description="high end")
    usd_per_hour: float | None = None
    usd: float | None = Field(default=None, description="of an upgrade: US dollars once, for all nodes")
    months: float | None = Field(default=None, description="after which it has saved them; null: never, or not known")
    months_low: float | None = Field(default=None, description="at the high end of the gain")
    months_high: float | None = Field(default=None, description="at the low end")
    nodes: int | None = Field(default=None, description="machines that are paid for; null where nothing was simulated")
    placement: str = Field(default="", description="what sits on which machines, in words")
    bottleneck: str = Field(default="", description="what limits then, in words; both where two limit together")

    @model_serializer(mode="wrap")
    def _terse(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        of_upgrades = ("usd", "months", "months_low", "months_high") if self.usd is None else ()
        return {name: value for name, value in super()._terse(handler, info).items() if name not in of_upgrades}

    @property
    def effect(self) -> Estimate | None:
        """Throughput over that of the chosen configuration; None where it is not known."""
        if self.gain is None or self.gain_low is None or self.gain_high is None:
            return None
        return Estimate(mean=1 + self.gain, low=1 + self.gain_low, high=1 + self.gain_high)


class WayAnswer(Spec):
    """Answer by one of the ways of training, as if it were the only one."""

    way: str = Field(description="data parallel, pipeline, tensor, expert, sharded, or hybrid: several of them together")
    best: Candidate | None = Field(description="as of a cluster; null where nothing fits, or nothing was simulated")
    memory_bytes: float | None = Field(default=None, description="of the device of the best that needs most; null where it is not known")
    waiting: float | None = Field(default=None, description="share of a step of the best in which a device waits for others: bubbles")
    text: str = Field(description="how it compares with the answer, and what limits it; or why it is not possible")


class Payment(Spec):
    """The answer's configuration, paid for in one of the ways that its cluster has."""

    name: str = Field(description="such as: spot")
    price: Price = Field(description="of a node, with its source and date")
    best: Candidate | None = Field(description="the configuration at this price, simulated; null where it is not compared")
    capital_usd: float = Field(description="US dollars at the beginning, for all nodes of all sets that a month's trainings take")
    running_usd_per_hour: float | None = Field(
        description="US dollars of an hour in use beside the share of the capital, for all nodes; null where that part is not known"
    )
    cheapest: bool = Field(default=False, description="whether it is the cheapest of those that reach the goal")
    text: str = Field(description="how it stands to the answer, or why it is not compared")


class BreakEven(Spec):
    """After how many months nodes that are paid for in advance have cost less than nodes that are rented, for the same work."""

    own: str = Field(description="the way to pay in advance, such as: bought")
    rented: str = Field(description="the way to pay by the hour")
    months: float | None = Field(description="at the mean time of a training; null: never within the months that it lasts")
    months_low: float | None = Field(description="least over the 90% interval of that time; null: never")
    months_high: float | None = Field(description="most over it; null: there are times at which it never pays")
    lasts_months: float = Field(description="for which the capital is paid")
    sets_of_nodes: int = Field(default=1, description="how many times the answer's nodes the month's work takes, at the mean time")
    capital_usd: float = Field(description="US dollars at the beginning, for all nodes of all sets")
    own_usd_per_month: Estimate = Field(description="running costs")
    rented_usd_per_month: Estimate
    trainings_per_month: float | None = Field(description="null: as many as fill the share in use")
    share_in_use: float = Field(description="of all hours of each set, at the mean time of a training")
    pays_above: float | None = Field(description="share of all hours above which an hour in use costs less than one rented; null: none")
    text: str = Field(description="the same in a sentence")

    @property
    def lasts_in_words(self) -> str:
        """Within which it has to pay."""
        return f"within the {self.lasts_months:g} months that it lasts"


def refused_once(refused: Iterable[Refused]) -> list[Refused]:
    """Refusals, each reason once: those that share it as one, with all of their configurations."""
    by_text: dict[str, list[Refused]] = {}
    for refusal in refused:
        by_text.setdefault(refusal.text, []).append(refusal)
    once = []
    for same in by_text.values():
        name = shortly_listed([refusal.name for refusal in same], 2)
        once.append(same[0].replaced({"name": name, "configurations": sum(refusal.configurations for refusal in same)}))
    return once


class Plan(Short, Checksummed, Terse, only=("ways", "best_way", "for_each_way", "payments", "break_even")):
    """The answer to a goal: the best configuration, and what else was found."""

    see: ClassVar[str] = ".sentences say it in words, to_frame() has every candidate; paceline.report(plan) draws it"

    schema_version: Literal[1] = Field(default=1, description="version of this format")
    goal: Goal = Field(description="what was asked for")
    feasible: bool = Field(description="whether any configuration reaches it")
    chosen: Candidate = Field(description="the best that meets the goal; where none does, the nearest")
    why: str = Field(description="why this one, in a sentence or two")
    fewest: Candidate | None = Field(
        default=None,
        description="on fewer devices than the answer, the fewest simulated that may reach the goal: with half the confidence asked for or "
        "more; null: none",
    )
    most: Candidate | None = Field(
        default=None, description="the answer with as many workers as workers_pay_until names; null: these are its own, or not in the range"
    )
    runners_up: tuple[Candidate, ...] = Field(description="the next best, in order")
    pareto: tuple[Candidate, ...] = Field(description="no other simulated is both cheaper and faster; ascending in time")
    candidates: tuple[Candidate, ...] = Field(description="all that were simulated")
    clusters: tuple[ClusterAnswer, ...] = Field(default=(), description="each cluster that was asked for, in that order")
    strategies: tuple[StrategyAnswer, ...] = Field(
        default=(), description="each strategy that was asked for, where there are several, in that order"
    )
    ways: tuple[WayAnswer, ...] = Field(default=(), description="each way of training that was tried, where there are several; best first")
    best_way: str = Field(default="", description="which way of training is best, and why, in a sentence; empty where one was tried")
    for_each_cluster: int = Field(default=0, description="of the candidates, those simulated only so that each cluster has its best")
    for_each_strategy: int = Field(default=0, description="of the candidates, those simulated only so that each strategy has its best")
    for_tuning: int = Field(default=0, description="of the candidates, those simulated to choose the size of buckets")
    for_each_way: int = Field(default=0, description="of the candidates, those simulated only so that each way of training has its best")
    left_out: tuple[LeftOut, ...] = Field(default=(), description="what the figures do not hold")
    servers: tuple[ServerCount, ...] = Field(default=(), description="of a parameter-server answer; ascending")
    servers_enough: int | None = Field(default=None, description="the fewest from which more servers gain less than 2%")
    workers_pay_until: int | None = Field(
        default=None,
        description="the most workers up to which each doubling paid: it brought half again as much, of the whole job where the goal is "
        "about one (docs/plan.md)",
    )
    improvements: tuple[Improvement, ...] = Field(default=(), description="greatest gain first; those without a figure last")
    payments: tuple[Payment, ...] = Field(default=(), description="the answer in each way to pay, where there are several; cheapest first")
    break_even: tuple[BreakEven, ...] = Field(
        default=(), description="of each way to pay in advance against each by the hour, where there are both"
    )
    workers: tuple[WorkerCount, ...] = Field(default=(), description="of the chosen configuration, doubling; ascending")
    considered: int = Field(description="configurations that the ranges name: those discarded, passed over, refused, and candidates")
    discarded: int = Field(description="of those, ruled out by closed forms, never simulated")
    passed_over: int = Field(default=0, description="of those, not simulated because the search had no need of them")
    refused: tuple[Refused, ...] = Field(default=(), description="those that cannot be, each with the reason")
    simulated: int = Field(description="scenarios that were really simulated, those for workers, servers and improvements included")
    sentences: tuple[str, ...] = Field(default=(), description="in short: the answer, how sure it is, what limits it")
    notes: tuple[str, ...] = Field(default=(), description="what else is to be known, in sentences")

    @property
    def decisive(self) -> BreakEven | None:
        """Whether to buy or rent: against the cheapest way to rent what pays at the least use; None where nothing is compared."""
        pairs = sorted(self.break_even, key=lambda pair: pair.rented_usd_per_month.mean)
        return min(
            (pair for pair in pairs if pair.rented == pairs[0].rented),
            key=lambda pair: math.inf if pair.pays_above is None else pair.pays_above, default=None,
        )  # fmt: skip

    def _in_short(self) -> Iterator[str]:
        yield self.chosen.name if self.feasible else f"nothing reaches the goal, nearest is {self.chosen.name}"
        yield from list(self.chosen._in_short())[1:]
        yield f"{counted(self.simulated, 'scenario')} simulated"

    def to_frame(self) -> pd.DataFrame:
        """A row a candidate, all that were simulated: the chosen one first, then the runners-up, then the others.

        ``standing`` is "chosen", "runner-up" or empty, ``pareto`` whether no other is both
        cheaper and faster; then come ``name``, ``meets``, ``confidence``, in how many paired
        runs the answer is better, of the answer and its runners-up how probably each is the
        ``best`` and its expected ``regret_share``, time and cost of the training with their intervals, and the
        columns of results.
        """
        return Table.of(self.rows()).to_frame()

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the answer, and the first candidates."""
        rows = self.rows()
        columns = Candidate.shown_columns(rows)
        shown = [{name: row.get(name) for name in columns} for row in rows[:_MOST_SHOWN]]
        more = f"and {len(rows) - _MOST_SHOWN:,} more" if len(rows) > _MOST_SHOWN else ""
        return Table.of(shown, " ".join(self.sentences) or f"{self.chosen.name}. {self.why}", more=more).to_html()

    def rows(self) -> list[Row]:
        """A row a candidate, as :meth:`to_frame` describes them."""
        ranked = {candidate.key: candidate for candidate in (self.chosen, *self.runners_up, *self.candidates)}
        runners_up, front = ({candidate.key for candidate in some} for some in (self.runners_up, self.pareto))
        rows: list[Row] = []
        for key, row in zip(ranked, Candidate.rows_of(ranked.values()), strict=True):
            standing = "chosen" if key == self.chosen.key else "runner-up" if key in runners_up else ""
            rows.append({"standing": standing, "pareto": key in front, **row})
        return rows


_MOST_SHOWN = 10


# -- the file of a plan ----------------------------------------------------------------------

PLAN = OutputKind("is no answer of a plan", lambda path: is_json_of(path, "plan"), ".json")
"""Files that a later plan may replace."""
_VERSION = 1


def plan_file_of(results: Path) -> Path:
    """Where the answer of a plan lies whose results are in a file."""
    return results.with_suffix(".plan.json")


def read_plan(path: Path) -> Plan:
    """Read the answer of a plan, as `paceline plan` writes it beside its results.

    Raises
    ------
    ResultsError
        The file is missing, not readable, no plan, of a newer schema, or not as it was written.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ResultsError(
            f"{path}: there is no such file; check the path; `paceline plan --out FILE.ndjson` writes FILE.plan.json"
        ) from None
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read: {error.strerror or type(error).__name__}") from None
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        raise ResultsError(f"{path}: {mistaken(path, 'plan') or 'must be JSON, as `paceline plan` writes it beside its results'}") from None
    if not isinstance(data, dict):
        raise ResultsError(f"{path}: must hold an object in braces, as `paceline plan` writes it beside its results")
    if checksum_holds(content) is False:
        raise ResultsError(f"{path}: {CHANGED}; plan again, which goes on with the results that are there")
    version = data.get("schema_version")
    if isinstance(version, int) and version > _VERSION:
        raise ResultsError(
            f"{path}: schema_version {version} is newer than {_VERSION}, the newest that this Paceline reads; "
            "update Paceline, or plan again with this one"
        )
    try:
        plan = Plan.model_validate_json(content)
    except ValidationError as error:
        if said := mistaken(path, "plan"):
            raise ResultsError(f"{path}: {said}") from None
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ResultsError(f"{path}: {where} {rule_of(first)}: this is no answer of `paceline plan`") from None
    every = [plan.chosen, plan.fewest, plan.most, *plan.runners_up, *plan.pareto, *plan.candidates]
    answers: list[ClusterAnswer | StrategyAnswer | WayAnswer | Payment] = [*plan.clusters, *plan.strategies, *plan.ways, *plan.payments]
    every += [*(answer.best for answer in answers), *(answer.near_miss for answer in plan.clusters)]
    results = [candidate.result for candidate in every if candidate is not None]
    if not all(result.scenario.hash == result.scenario_hash for result in results):
        raise ResultsError(f"{path}: a scenario is not the one of its scenario_hash: it was changed; plan again")
    return plan
