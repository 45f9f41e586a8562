"""The answer of a plan as frozen, versioned data (:class:`Plan`), stored in ``NAME.plan.json``.

Field names define the file format, and ``reporting/templates/plan.html`` reads them too. Nothing is computed here: planner.py and
around.py fill the fields, sentences.py and tables.py present them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, SerializationInfo, SerializerFunctionWrapHandler, model_serializer

from paceline.planning.goal import Goal
from simulator.base.errors import ResultsError
from simulator.base.files import OutputKind, is_json_of
from simulator.base.spec import Checksummed, Spec, Terse
from simulator.base.table import Row, Table
from simulator.base.text import Short, counted, estimated, format_share, shortly_listed
from simulator.base.validation_errors import read_answer
from simulator.results.misread import LeftOut
from simulator.results.results import Result
from simulator.results.rows import OF_JOB, brief_of
from simulator.spec.figures import Estimate, Unit
from simulator.spec.paying import Price
from simulator.spec.uncertainty import AppliedDiscrepancy

if TYPE_CHECKING:
    import pandas as pd

Scaling = Literal["weak", "strong"]
"""Weak: the batch of each replica is fixed; strong: the global batch is fixed."""


def configuration_name(what: str, cluster: str = "", others: Sequence[str] = (), workers: int | None = None, scaling: str = "") -> str:
    """Return the name of a configuration; empty parts are left out.

    >>> configuration_name("ring all-reduce", "lab", ["bucket_size 4 MiB"], 8, "weak")
    'ring all-reduce on lab, bucket_size 4 MiB, 8 workers, weak scaling'
    """
    many = "" if workers is None else counted(workers, "worker")
    return ", ".join(filter(None, (f"{what} on {cluster}" if cluster else what, *others, many, f"{scaling} scaling" if scaling else "")))


class Paired(Spec):
    """Runs in which the answer is better than another configuration, paired by their random streams."""

    wins: int = Field(description="runs in which the answer is better")
    runs: int
    by: Literal["cheaper", "faster"]


class Decision(Spec):
    """Probability and regret of choosing one of the answer and its runners-up, whether or not each reaches the goal."""

    best: float = Field(description="probability of being the best, limited to what the number of runs resolves")
    runs: int = Field(description="number of runs behind the probability")
    among: int = Field(description="number of compared candidates")
    regret: float = Field(description="expected loss compared with the best, in the unit")
    unit: Literal["usd", "s", "samples/s", "tokens/s"] = Field(description="unit of the regret: cost, time, or throughput")
    regret_share: float = Field(description="regret as a share of the best value")
    regret_where_not_best: float | None = Field(
        default=None, description="mean of that share over cases in which another candidate is the best"
    )


class Candidate(Short, Spec):
    """A simulated configuration, compared with the goal."""

    see: ClassVar[str] = ".result has its figures, .placement its machines"

    name: str = Field(description="strategy, cluster, workers and scaling in words")
    what: str = Field(description="part of the name: the strategy, and how it is trained")
    others: tuple[str, ...] = Field(description="part of the name: other chosen settings")
    scaling: Scaling
    result: Result
    usd_per_hour: float | None
    usd_per_million_samples: Estimate | None
    time_s: Estimate | None = Field(description="time of the whole training; None if the goal has no samples")
    cost_usd: Estimate | None = Field(description="cost of the whole training; None if the goal has no samples or the cluster no price")
    confidence: float = Field(description="predicted share of real runs that reach the goal, from replications and model error")
    reached_by: int = Field(description="replications that reach the goal")
    meets: bool
    nodes: int = Field(description="machines to pay for")
    devices_per_node: int = Field(description="devices of each machine with replicas, used or not")
    placement: str = Field(description="placement of processes on machines, in words")
    paired: Paired | None = Field(
        default=None,
        description="runs in which the answer is better; null if the comparison does not depend on chance, or nothing reaches the goal",
    )
    decision: Decision | None = Field(
        default=None,
        description="probability and regret of the answer and its runners-up; null if they do not depend on chance, and for others",
    )

    def named(self, *, cluster: bool = True, workers: bool = True, scaling: bool = True) -> str:
        """Return the name with only some parts; tables leave out shared parts, and those with their own columns."""
        scenario = self.result.scenario
        count = scenario.workers if workers and scenario.strategy.count_key else None
        return configuration_name(self.what, scenario.cluster.name if cluster else "", self.others, count, self.scaling if scaling else "")

    def _in_short(self) -> Iterator[str]:
        yield self.name
        rate, time_s, cost = self.result.rate, self.time_s, self.cost_usd
        yield estimated(rate.mean, rate.low, rate.high, "throughput", self.result.scenario.unit.per_s)
        yield "" if time_s is None else f"time {estimated(time_s.mean, time_s.low, time_s.high, 'seconds')}"
        yield "" if cost is None else f"cost {estimated(cost.mean, cost.low, cost.high, 'usd')}"
        yield f"{'reaches' if self.meets else 'misses'} the goal (probability {format_share(self.confidence)})"

    @classmethod
    def rows_of(cls, items: Iterable[Candidate]) -> list[Row]:
        """Return a row for each candidate: its comparison with the goal, settings, and :data:`simulator.results.rows.COLUMNS`."""
        every = list(items)
        results = Result.rows_of([candidate.result for candidate in every])
        return [candidate._standing() | row for candidate, row in zip(every, results, strict=True)]

    @classmethod
    def shown_columns(cls, rows: Sequence[Row]) -> list[str]:
        """Return the names of columns that compare candidates with the goal, and of the main figures."""
        brief = brief_of(rows)  # its own time and cost are those of the job
        return [
            name
            for name in dict.fromkeys(name for row in rows for name in row)
            if name in _STANDING or (name in brief and name not in OF_JOB)
        ]

    @property
    def key(self) -> tuple[str, str]:
        """Return a key that identifies a candidate of a plan."""
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
    """Answer on one of the requested clusters, as if it were the only one."""

    cluster: str = Field(description="as requested")
    price: Price | None = Field(description="price of a node, with its source; null if unknown")
    best: Candidate | None = Field(description="the best that meets the goal, else the nearest; null if nothing was simulated")
    near_miss: Candidate | None = Field(default=None, description="a preferable one that reaches the goal with half the confidence")
    text: str = Field(description="comparison with the answer, or why it does not reach the goal")


class StrategyAnswer(Spec):
    """Answer with one of the requested strategies, as if it were the only one."""

    strategy: str = Field(description="short name, as requested")
    best: Candidate | None = Field(description="as for a cluster")
    text: str = Field(description="comparison with the answer, or why it does not reach the goal")


class ServerCount(Spec):
    """Throughput of the chosen configuration with another number of parameter servers."""

    servers: int
    throughput_samples_per_s: Estimate
    throughput_of_each_replication: tuple[float, ...] = Field(description="samples/s; run i of each row is paired with run i of the others")
    discrepancy: AppliedDiscrepancy | None = Field(default=None, description="as in a result")
    usd_per_hour: float | None
    nodes: int = Field(description="machines to pay for")
    placement: str = Field(description="placement of processes on machines, in words")


class JobCount(Spec):
    """The whole job of the chosen configuration with another number of workers."""

    time_s: Estimate
    cost_usd: Estimate | None
    samples_per_s: Estimate = Field(description="samples per second of the whole job, overheads included")
    samples_per_s_of_each_replication: tuple[float, ...]
    goodput: float = Field(description="mean share of time in steps that are kept")


class WorkerCount(Terse, only=("job",)):
    """Throughput of the chosen configuration with another number of workers."""

    workers: int
    replicas: int
    throughput_samples_per_s: Estimate
    throughput_of_each_replication: tuple[float, ...] = Field(description="samples/s, as for a number of servers")
    discrepancy: AppliedDiscrepancy | None = Field(default=None, description="as in a result")
    usd_per_hour: float | None
    nodes: int = Field(description="machines to pay for")
    placement: str = Field(description="placement of processes on machines, in words")
    job: JobCount | None = Field(default=None, description="the whole job, if the goal is about one")


class Refused(Terse, only=("by_memory", "way", "asked")):
    """Configurations of the ranges that are impossible: no such machine, a broken rule, a failed simulation."""

    name: str = Field(description="the configurations, in words")
    cluster: str = Field(default="", description="as requested")
    text: str = Field(description="the reason, in a sentence")
    configurations: int = Field(ge=1, description="number of configurations with this reason")
    by_memory: bool = Field(default=False, description="whether a device lacks the memory, for ways to cut a model")
    way: str = Field(default="", description="way of training, for ways to cut a model")
    asked: str = Field(default="", description="short name of the strategy, if several were requested")


class Improvement(Terse, only=("job_samples_per_s",)):
    """One simulated change to the chosen configuration, or the reason why it was not simulated."""

    name: str = Field(description="such as: 2x network")
    text: str = Field(description="the change in a sentence, with the source of any figure; or why its gain is unknown")
    throughput_samples_per_s: Estimate | None = None
    job_samples_per_s: Estimate | None = Field(default=None, description="the whole job, if the goal is about one")
    gain: float | None = Field(default=None, description="relative change of throughput, paired by run: mean")
    gain_low: float | None = Field(default=None, description="low end of its 90% prediction interval")
    gain_high: float | None = Field(default=None, description="high end")
    usd_per_hour: float | None = None
    usd: float | None = Field(default=None, description="price of an upgrade for all nodes, in US dollars, paid once")
    months: float | None = Field(default=None, description="months after which savings exceed the price; null: never, or unknown")
    months_low: float | None = Field(default=None, description="at the high end of the gain")
    months_high: float | None = Field(default=None, description="at the low end")
    nodes: int | None = Field(default=None, description="machines to pay for; null if nothing was simulated")
    placement: str = Field(default="", description="placement of processes on machines, in words")
    bottleneck: str = Field(default="", description="the limit after the change; both if two limit together")

    @model_serializer(mode="wrap")
    def _terse(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        of_upgrades = ("usd", "months", "months_low", "months_high") if self.usd is None else ()
        return {name: value for name, value in super()._terse(handler, info).items() if name not in of_upgrades}

    @property
    def effect(self) -> Estimate | None:
        """Ratio of throughput to that of the chosen configuration; None if unknown."""
        if self.gain is None or self.gain_low is None or self.gain_high is None:
            return None
        return Estimate(mean=1 + self.gain, low=1 + self.gain_low, high=1 + self.gain_high)


class WayAnswer(Spec):
    """Answer with one of the ways of training, as if it were the only one."""

    way: str = Field(description="data parallel, pipeline, tensor, context, expert, sharded, or hybrid (several combined)")
    best: Candidate | None = Field(description="as for a cluster; null if nothing fits, or nothing was simulated")
    memory_bytes: float | None = Field(default=None, description="memory of the fullest device of the best; null if unknown")
    waiting: float | None = Field(default=None, description="share of the best's step in which a device waits for others (bubbles)")
    text: str = Field(description="comparison with the answer and the limit, or why it is impossible")


class Payment(Spec):
    """The answer's configuration with one of its cluster's prices."""

    name: str = Field(description="such as: spot")
    price: Price = Field(description="price of a node, with source and date")
    best: Candidate | None = Field(description="the configuration simulated at this price; null if not compared")
    capital_usd: float = Field(description="US dollars paid in advance, for all nodes that a month's trainings need")
    running_usd_per_hour: float | None = Field(
        description="US dollars per hour in use for all nodes, without the share of the capital; null if unknown"
    )
    cheapest: bool = Field(default=False, description="whether it is the cheapest that reaches the goal")
    text: str = Field(description="comparison with the answer, or why it is not compared")


class BreakEven(Spec):
    """Months after which nodes paid in advance have cost less than rented nodes, for the same work."""

    own: str = Field(description="the way to pay in advance, such as: bought")
    rented: str = Field(description="the way to pay by the hour")
    months: float | None = Field(description="months at the mean time of a training; null: never within the months that the nodes last")
    months_low: float | None = Field(description="least months over the 90% interval of that time; null: never")
    months_high: float | None = Field(description="most months over the interval; null: it may never pay")
    lasts_months: float = Field(description="months that the capital pays for")
    sets_of_nodes: int = Field(default=1, description="sets of the answer's nodes that a month's work needs, at the mean time")
    capital_usd: float = Field(description="US dollars paid in advance, for all sets of nodes")
    own_usd_per_month: Estimate = Field(description="running costs")
    rented_usd_per_month: Estimate
    trainings_per_month: float | None = Field(description="trainings a month; null: as many as fill the share in use")
    share_in_use: float = Field(description="share of all hours in which each set is used, at the mean time of a training")
    pays_above: float | None = Field(description="share of use above which an hour costs less than a rented one; null: none")
    text: str = Field(description="the same in a sentence")

    @property
    def lasts_in_words(self) -> str:
        """The period within which it has to pay, in words."""
        return f"within the {self.lasts_months:g} months that it lasts"


def refused_once(refused: Iterable[Refused]) -> list[Refused]:
    """Return refusals merged by reason, with the sum of their configurations."""
    by_text: dict[str, list[Refused]] = {}
    for refusal in refused:
        by_text.setdefault(refusal.text, []).append(refusal)
    once = []
    for same in by_text.values():
        name = shortly_listed([refusal.name for refusal in same], 2)
        once.append(same[0].replaced({"name": name, "configurations": sum(refusal.configurations for refusal in same)}))
    return once


class Plan(Short, Checksummed, Terse, only=("doubts", "ways", "for_each_way", "payments", "break_even")):
    """The answer to a goal: the best configuration, its alternatives, and variants of it."""

    see: ClassVar[str] = ".sentences explains it, to_frame() has every candidate; paceline.report(plan) draws it"

    schema_version: Literal[1] = Field(default=1, description="version of this format")
    goal: Goal = Field(description="the goal")
    feasible: bool = Field(description="whether any configuration reaches it")
    chosen: Candidate = Field(description="the best that meets the goal, else the nearest")
    why: str = Field(description="why it was chosen, in a sentence or two")
    doubts: tuple[str, ...] = Field(default=(), description="better candidates of kinds never validated, and what a larger batch may cost")
    fewest: Candidate | None = Field(
        default=None,
        description="on fewer devices than the answer, the fewest simulated that may reach the goal: with half the confidence asked for or "
        "more; null: none",
    )
    most: Candidate | None = Field(
        default=None, description="the answer with as many workers as workers_pay_until names; null: these are its own, or not in the range"
    )
    runners_up: tuple[Candidate, ...] = Field(description="the next best, in order")
    pareto: tuple[Candidate, ...] = Field(description="candidates that no other beats in both cost and time, ascending in time")
    candidates: tuple[Candidate, ...] = Field(description="all simulated configurations")
    clusters: tuple[ClusterAnswer, ...] = Field(default=(), description="each requested cluster, in order")
    strategies: tuple[StrategyAnswer, ...] = Field(default=(), description="each requested strategy, if several, in order")
    ways: tuple[WayAnswer, ...] = Field(default=(), description="each way of training that was tried, if several; best first")
    for_each_cluster: int = Field(default=0, description="candidates simulated only to find the best on each cluster")
    for_each_strategy: int = Field(default=0, description="candidates simulated only to find the best of each strategy")
    for_tuning: int = Field(default=0, description="candidates simulated to choose bucket sizes")
    for_each_way: int = Field(default=0, description="candidates simulated only to find the best of each way of training")
    left_out: tuple[LeftOut, ...] = Field(default=(), description="what the figures leave out")
    servers: tuple[ServerCount, ...] = Field(default=(), description="other numbers of parameter servers, ascending")
    servers_enough: int | None = Field(default=None, description="the fewest servers from which more gain less than 2%")
    workers_pay_until: int | None = Field(
        default=None,
        description="the most workers up to which each doubling paid: it brought half again as much, of the whole job where the goal is "
        "about one (docs/plan.md)",
    )
    improvements: tuple[Improvement, ...] = Field(default=(), description="largest gain first; those without a figure last")
    payments: tuple[Payment, ...] = Field(default=(), description="the answer with each way to pay, if several; cheapest first")
    break_even: tuple[BreakEven, ...] = Field(default=(), description="each advance payment compared with each hourly price")
    workers: tuple[WorkerCount, ...] = Field(default=(), description="other numbers of workers, doubling, ascending")
    considered: int = Field(description="configurations in the ranges: discarded, skipped, refused, and candidates")
    discarded: int = Field(description="configurations ruled out by closed forms")
    passed_over: int = Field(default=0, description="configurations that the search did not need to simulate")
    refused: tuple[Refused, ...] = Field(default=(), description="impossible configurations, each with the reason")
    simulated: int = Field(description="number of simulated scenarios, including those for workers, servers and improvements")
    sentences: tuple[str, ...] = Field(
        default=(), description="what the answer misses, its layout and software, its price, and nodes that it does not need"
    )
    notes: tuple[str, ...] = Field(default=(), description="further remarks, in sentences")

    @property
    def decisive(self) -> BreakEven | None:
        """Whether to buy or rent: against the cheapest way to rent what pays at the least use; None where nothing is compared."""
        pairs = sorted(self.break_even, key=lambda pair: pair.rented_usd_per_month.mean)
        return min(
            (pair for pair in pairs if pair.rented == pairs[0].rented),
            key=lambda pair: math.inf if pair.pays_above is None else pair.pays_above, default=None,
        )  # fmt: skip

    @property
    def unit(self) -> Unit:
        """What its trainings count."""
        return self.chosen.result.scenario.unit

    def _in_short(self) -> Iterator[str]:
        yield self.chosen.name if self.feasible else f"nothing reaches the goal; nearest: {self.chosen.name}"
        yield from list(self.chosen._in_short())[1:]
        yield f"{counted(self.simulated, 'scenario')} simulated"

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each simulated candidate: the chosen one, the runners-up, then the others.

        ``standing`` is "chosen", "runner-up" or empty; ``pareto`` tells whether no other is both cheaper and faster. Then come ``name``,
        ``meets``, ``confidence``, the paired runs in which the answer is better, the probability of being the ``best`` and the expected
        ``regret_share`` (answer and runners-up only), time and cost of the training with intervals, and the columns of results.
        """
        return Table.of(self.rows()).to_frame()

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the answer, and the first candidates."""
        rows = self.rows()
        columns = Candidate.shown_columns(rows)
        shown = [{name: row.get(name) for name in columns} for row in rows[:_MOST_SHOWN]]
        more = f"and {len(rows) - _MOST_SHOWN:,} more" if len(rows) > _MOST_SHOWN else ""
        return Table.of(shown, " ".join((f"{self.chosen.name}.", *self.sentences, self.why)), more=more).to_html()

    def rows(self) -> list[Row]:
        """Return a row for each candidate, as :meth:`to_frame` describes."""
        ranked = {candidate.key: candidate for candidate in (self.chosen, *self.runners_up, *self.candidates)}
        runners_up, front = ({candidate.key for candidate in some} for some in (self.runners_up, self.pareto))
        rows: list[Row] = []
        for key, row in zip(ranked, Candidate.rows_of(ranked.values()), strict=True):
            standing = "chosen" if key == self.chosen.key else "runner-up" if key in runners_up else ""
            rows.append({"standing": standing, "pareto": key in front, **row})
        return rows


_MOST_SHOWN = 10


# -- the file of a plan ----------------------------------------------------------------------

PLAN = OutputKind("is not the answer of a plan", lambda path: is_json_of(path, "plan"), ".json")
"""Kind of files that a later plan may replace."""


def plan_file_of(results: Path) -> Path:
    """Return the file of a plan's answer, given the file of its results."""
    return results.with_suffix(".plan.json")


def read_plan(path: Path) -> Plan:
    """Read the answer of a plan, as `paceline plan` writes it next to its results.

    Raises
    ------
    ResultsError
        The file is missing, unreadable, not a plan, of a newer schema, or was changed.
    """
    plan = read_answer(Plan, path, "plan", "paceline plan --out FILE.ndjson", "plan again with this one")
    every = [plan.chosen, plan.fewest, plan.most, *plan.runners_up, *plan.pareto, *plan.candidates]
    answers: list[ClusterAnswer | StrategyAnswer | WayAnswer | Payment] = [*plan.clusters, *plan.strategies, *plan.ways, *plan.payments]
    every += [*(answer.best for answer in answers), *(answer.near_miss for answer in plan.clusters)]
    results = [candidate.result for candidate in every if candidate is not None]
    if not all(result.scenario.hash == result.scenario_hash for result in results):
        raise ResultsError(f"{path}: a scenario does not match its scenario_hash, so the file was changed; plan again")
    return plan
