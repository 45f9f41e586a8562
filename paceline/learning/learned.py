"""The answer of ``learn``: curves over simulated time, time and cost to a target, and the fastest way of training.

Two ways differ only if their runs do not overlap (:meth:`Learned.beside`). This module makes sentences and tables for the terminal, reports
and notebooks; :mod:`paceline.learning.learning` fills the types.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from paceline.answers import Answer, Figure
from simulator.base.errors import InputError
from simulator.base.spec import Spec
from simulator.base.table import Column, Row, Table
from simulator.base.text import Kind, Short, clean, counted, format_interval, format_number, format_seconds, listed, written
from simulator.base.validation_errors import read_answer
from simulator.results.intervals import combined
from simulator.scenario import Scenario

_FALLING = re.compile(r"loss|error|mae|mse|mape|msle|perplexity|divergence|entropy|hinge|poisson|huber|logcosh", re.IGNORECASE)
"""Metrics that are better when smaller, by default."""
_SHARE = re.compile(r"(\w*_)?(accuracy|acc|recall|precision|auc)", re.IGNORECASE)
"""Metrics between 0 and 1."""
_FEW_RUNS = 4
"""Least runs of each of two ways: by chance, all runs of one are better than all of the other in 2 of 70 cases (Mann and Whitney 1947)."""
_TARGET = re.compile(r"\s*([A-Za-z_][\w.\-]*)\s*(<=|>=|=)\s*([-+0-9.eE]+)\s*")


class Target(Spec):
    """Target of the training."""

    metric: str = Field(description="metric of the validation data, such as accuracy or loss")
    value: float = Field(description="value to reach")
    at_most: bool = Field(description="whether the metric must be at most the value, like a loss; else at least, like an accuracy")

    @classmethod
    def of(cls, text: str) -> Target:
        """Read ``accuracy=0.95``, ``loss<=0.1`` or ``score>=3``; with ``=`` the metric determines the direction.

        Raises
        ------
        InputError
            The text is not a target.

        Examples
        --------
        >>> Target.of("accuracy=0.95").at_most, Target.of("loss=0.1").at_most, Target.of("score<=3").at_most
        (False, True, True)
        """
        match = _TARGET.fullmatch(text)
        metric, comparison, number = match.groups() if match else ("", "", "nan")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise InputError(f"`target`: {text[:60]!r} must be a metric with a value, such as accuracy=0.95 or loss<=0.1")
        if _SHARE.fullmatch(metric) and not 0.0 <= value <= 1.0:
            maybe = f"; did you mean {metric}{comparison}{value / 100:g}?" if 1.0 < value <= 100.0 else ""
            raise InputError(f"`target`: {text[:60]!r}: {metric} must be between 0 and 1{maybe}")
        return cls(metric=metric, value=value, at_most=comparison == "<=" or (comparison == "=" and bool(_FALLING.search(metric))))

    def reached_by(self, value: float | None) -> bool:
        """Return whether a value is good enough; None is not."""
        if value is None:
            return False
        return value <= self.value if self.at_most else value >= self.value

    @property
    def in_words(self) -> str:
        """The target as ``accuracy of at least 0.95``."""
        return f"{self.metric} of at {'most' if self.at_most else 'least'} {format_number(self.value)}"


class LearnedPoint(Spec):
    """Metrics of the model at one validation."""

    time_s: float = Field(description="simulated time since the start of the training")
    samples: int = Field(description="samples whose gradients were computed by then, dropped or not")
    updates: int = Field(description="updates of the model by then")
    metrics: Mapping[str, float] = Field(description="metrics of the validation data, finite values only")


class LearnedRun(Spec):
    """One run: the schedule of one replication, replayed with one seed."""

    seed: int = Field(description="seed of initial values and data order, and number of the replication")
    diverged: bool = Field(description="whether the loss became infinite or NaN, which ends the run")
    points: tuple[LearnedPoint, ...] = Field(description="validations, from before the first update on")
    reached_s: float | None = Field(description="simulated time of the first validation that reached the target; null: none did")
    reached_samples: int | None = Field(description="samples by then")
    best: float | None = Field(description="best value of the target's metric in the run")
    last: float | None = Field(description="value of the metric at the end")


class Range(Spec):
    """Median of some runs, and their smallest and largest."""

    median: float = Field(description="of the runs")
    low: float = Field(description="the smallest")
    high: float = Field(description="the largest")

    @classmethod
    def of(cls, values: Sequence[float]) -> Range | None:
        """Summarise values; None if there are none."""
        return cls(median=statistics.median(values), low=min(values), high=max(values)) if values else None

    @property
    def width(self) -> float:
        """Difference of the largest and the smallest."""
        return self.high - self.low

    def beyond(self, other: Range, *, few: bool) -> bool:
        """Return whether all values exceed the other's, and for few runs whether the medians differ by more than either range."""
        return self.low > other.high and (not few or self.median - other.median > max(self.width, other.width))


class TriedRate(Spec):
    """Outcome of one learning rate."""

    rate: float = Field(description="factor of the optimizer's learning rate")
    reached: int = Field(description="runs that reached the target")
    diverged: int = Field(description="runs whose loss became infinite or NaN")
    time_s: float | None = Field(description="median time to the target of the runs that reached it; null: none did")
    last: float | None = Field(description="median metric at the end of runs that did not diverge; null: all did")
    samples: float | None = Field(default=None, description="median of the samples to the target; null: no run reached it")

    @classmethod
    def of(cls, way: LearnedWay) -> TriedRate:
        """Return the outcome of a way's rate."""
        time_s, last, samples = (figure.median if figure is not None else None for figure in (way.time_s, way.last, way.samples))
        return cls(rate=way.rate, reached=way.reached, diverged=way.diverged, time_s=time_s, last=last, samples=samples)


class LearnedWay(Spec):
    """One way of training, at its best learning rate."""

    name: str = Field(description="short name for readers")
    scenario: Scenario = Field(description="simulated result; for a way that changes during the training, of its last part")
    rate: float = Field(description="factor of the optimizer's learning rate")
    tried: tuple[TriedRate, ...] = Field(description="rates from which the best was chosen, by time to the target")
    workers: int = Field(description="replicas that train")
    staleness: float = Field(description="mean staleness of its updates, as in `paceline simulate`")
    samples_per_s: float = Field(description="predicted throughput, mean")
    usd_per_hour: float | None = Field(description="US dollars per hour for all nodes; null without a price")
    batch: int = Field(description="samples of each gradient of the replay")
    epochs: float | None = Field(description="passes over the training data, in whole updates; null if a run diverged")
    runs: tuple[LearnedRun, ...] = Field(min_length=1, description="one for each seed")
    time_s: Range | None = Field(description="time to the target of the runs that reached it; null: none did")
    time_low_s: float | None = Field(description="low end of the time, including the uncertainty of the predicted throughput")
    time_high_s: float | None = Field(description="high end of it")
    cost_usd: Range | None = Field(description="cost to the target; null without a price, or if no run reached it")
    samples: Range | None = Field(description="samples to the target")
    last: Range | None = Field(description="metric at the end of runs that did not diverge")

    @property
    def reached(self) -> int:
        """Runs that reached the target."""
        return sum(run.reached_s is not None for run in self.runs)

    @property
    def diverged(self) -> int:
        """Runs that diverged."""
        return sum(run.diverged for run in self.runs)

    @property
    def always(self) -> bool:
        """Return whether all runs reached the target, and none diverged before."""
        return self.reached == len(self.runs) and not self.diverged


MARK = '{"schema_version":1,"problem":'
"""Beginning of the file of an answer."""


class Learned(Short, Spec):
    """The fastest and the cheapest way of training to a target."""

    see: ClassVar[str] = "to_frame() has a row for each way, .sentences the answer, .ways the curves"

    schema_version: Literal[1] = Field(default=1, description="version of this format")
    problem: str = Field(description="the model and its data")
    samples: int = Field(description="samples in its training data")
    optimizer: str = Field(description="optimizer of the training")
    epochs: float = Field(description="requested passes over the training data")
    stand_in: bool = Field(description="whether the problem's model differs from the scenario's workload, whose times are simulated")
    target: Target = Field(description="target to reach")
    ways: tuple[LearnedWay, ...] = Field(min_length=1, description="ways of training, in the requested order")
    warnings: tuple[str, ...] = Field(default=(), description="warnings about the answer")

    def ranked(self, by: Literal["time_s", "cost_usd"]) -> list[LearnedWay]:
        """Return ways all of whose runs reached the target, best first."""
        return sorted((way for way in self.ways if way.always and getattr(way, by) is not None), key=lambda way: getattr(way, by).median)

    @property
    def first(self) -> LearnedWay | None:
        """The way that reaches the target first, by the median of its runs; None if no way always does."""
        return next(iter(self.ranked("time_s")), None)

    @property
    def cheapest(self) -> LearnedWay | None:
        """The way that reaches it cheapest."""
        return next(iter(self.ranked("cost_usd")), None)

    def beside(self, way: LearnedWay, by: Literal["time_s", "cost_usd"] = "time_s") -> list[LearnedWay]:
        """Return other ways that are not clearly worse: not all of their runs are worse than all of the way's.

        With fewer than four runs of either, chance often separates them; then the medians must also differ by more than either range.
        """
        mine = getattr(way, by)
        assert mine is not None
        few = len(way.runs) < _FEW_RUNS
        return [other for other in self.ranked(by) if other is not way and not getattr(other, by).beyond(mine, few=few)]

    @property
    def headline(self) -> str:
        """Headline: the way that reaches the target first, or those that tie, and how many never do."""
        first = self.first
        if first is None or first.time_s is None:
            return f"No way always reaches {self.target.in_words}"
        name = f"{first.name[:1].upper()}{first.name[1:]}"
        time, never = format_seconds(first.time_s.median), sum(not way.reached for way in self.ways)
        rest = f"; {never} of {len(self.ways)} never reach it" if never else ""
        if alike := self.beside(first):
            others = alike[0].name if len(alike) == 1 else f"{len(alike)} others"
            return f"{name} and {others} tie at about {time}{rest}"
        rate = f" at {first.rate:g} times the learning rate" if first.rate != 1.0 else ""
        return f"{name} reaches {self.target.in_words} first, in {time}{rate}{rest}"

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answer in sentences."""
        return self.answer.sentences

    def _rates_to_try(self) -> str:
        """Return the option with rates beyond those tried, and the ways that they may help; empty where none may."""
        rates = {tried.rate for way in self.ways for tried in way.tried}
        help_of: dict[float, list[str]] = {}
        for way in self.ways:
            own = [tried.rate for tried in way.tried]
            stale = not way.reached and way.staleness >= 1.0
            if stale or (len(own) > 1 and way.rate in (min(own), max(own))):
                beyond = 0.1 * min(rates) if stale or way.rate == min(own) else 10.0 * max(rates)
                help_of.setdefault(beyond, []).append(way.name)
        if not help_of:
            return ""
        every = ",".join(f"{rate:g}" for rate in sorted({*rates, *help_of}, reverse=True))
        return f"add `--rate {every}`: " + "; ".join(f"x {rate:g} may help {listed(names)}" for rate, names in help_of.items())

    @property
    def answer(self) -> Answer:
        """The answer, as every command shows it."""
        runs, first, cheapest = len(self.ways[0].runs), self.first, self.cheapest
        rows: list[tuple[str, Range | None, Kind, str]] = []
        alike = self.beside(first) if first is not None else []
        if first is not None:
            note = first.name
            if first.time_low_s is not None and first.time_high_s is not None:
                note += f"; {format_interval(first.time_low_s, first.time_high_s, 'seconds')} with the uncertainty of throughput"
            rows += ("time", first.time_s, "seconds", note), ("samples", first.samples, "count", ""), ("cost", first.cost_usd, "usd", "")
        if cheapest is not None and cheapest is not first:
            rows.append(("lowest cost", cheapest.cost_usd, "usd", cheapest.name))
        rest = [f"{len(self.warnings) - 2} more: --details"] if len(self.warnings) > 2 else []
        confidence = "all its runs are faster than those of the other ways that always reach it"
        if alike:
            confidence = f"runs overlap with those of {listed([way.name for way in alike])}"
        elif first is None:
            most = max(self.ways, key=lambda way: way.reached)
            confidence = f"{most.name} reaches it in {most.reached} of {runs} runs"
        return Answer(
            headline=f"{self.headline}.",
            figures=tuple(
                Figure(what, written(known.median, kind), format_interval(known.low, known.high, kind), note)
                for what, known, kind, note in rows
                if known is not None
            ),
            confidence=confidence if len(self.ways) > 1 or first is None else "",
            watch_out="; ".join([clean(text.partition(". ")[0].rstrip("."), 400) for text in self.warnings[:2]] + rest),
            next=self._rates_to_try() or (f"`--seeds {2 * runs}` may separate them" if alike else ""),
            heading="median",
            range_heading=f"range of {counted(runs, 'run')}",
        )

    def table(self) -> Table:
        """Return a row for each way at its best rate, followed by its other rates."""
        rows = [row for way in self.ways for row in _rows(way)]
        cells = tuple(tuple(row.get(column.name) for column in _COLUMNS) for row in rows)
        return Table(f"Time, cost and samples to {self.target.in_words}", _COLUMNS, cells, "learned")

    def curves(self) -> Table:
        """Return a row for each validation of each run."""
        metrics = sorted({name for way in self.ways for run in way.runs for point in run.points for name in point.metrics})
        rows = [
            {"way": way.name, "rate": way.rate, "seed": run.seed, "time_s": point.time_s, "samples": point.samples,
             "updates": point.updates, **{name: point.metrics.get(name) for name in metrics}}
            for way in self.ways for run in way.runs for point in run.points
        ]  # fmt: skip
        return Table.of(rows, "Curves", name="learning-curves")

    @classmethod
    def rows_of(cls, items: Sequence[Learned]) -> list[Row]:  # type: ignore[override]
        """Return a row for each way of each answer."""
        return [next(_rows(way)) for learned in items for way in learned.ways]

    def _in_short(self) -> Iterator[str]:
        yield f"{self.problem} to {self.target.in_words}, {counted(len(self.ways), 'way')} of training"
        yield self.answer.headline

    def _caption(self) -> str:
        return f"{self.problem} to {self.target.in_words}"


_COLUMNS = (
    Column("way", "text", "Way", of="name"),
    Column("workers", "count", "Workers"),
    Column("staleness", "number", "Staleness"),
    Column("rate", "number", "Rate x"),
    Column("reached", "text", "Reached", by=lambda way: _reached(way, len(way.runs))),
    Column("time_s", "seconds", "Time", of="time_s.median"),
    Column("time_low_s", "seconds", "At least"),
    Column("time_high_s", "seconds", "At most"),
    Column("cost_usd", "usd", "Cost", of="cost_usd.median"),
    Column("samples", "count", "Samples", by=lambda way: int(way.samples.median) if way.samples else None),
    Column("last", "number", "At the end", of="last.median"),
    Column("samples_per_s", "throughput", "Samples/s"),
)


def _rows(way: LearnedWay) -> Iterator[Row]:
    """Yield a way at its best rate, then at each other rate."""
    own = {column.name: column.read(way) for column in _COLUMNS}
    yield own
    for tried in sorted(way.tried, key=lambda tried: -tried.rate):
        if tried.rate != way.rate:
            samples = None if tried.samples is None else int(tried.samples)
            figures: Row = {"rate": tried.rate, "reached": _reached(tried, len(way.runs)), "time_s": tried.time_s, "samples": samples}
            yield {name: own[name] for name in ("way", "workers", "staleness")} | figures | {"last": tried.last}


def _reached(tried: LearnedWay | TriedRate, runs: int) -> str:
    return f"{tried.reached} of {runs}" + (f", {tried.diverged} diverged" if tried.diverged else "")


def widened_time(time_s: Range, low_ratio: float, high_ratio: float) -> tuple[float, float]:
    """Combine the range of a time with the interval of a throughput, given as ratios to its mean; distances add in quadrature."""
    below, above = math.log(time_s.low / time_s.median), math.log(time_s.high / time_s.median)
    low, high = combined(below, -math.log(high_ratio)), combined(above, -math.log(low_ratio))
    return time_s.median * math.exp(low), time_s.median * math.exp(high)


def is_learned(path: Path) -> bool:
    """Return whether a file begins like those of `paceline learn --out`."""
    try:
        with path.open("rb") as file:
            return file.read(len(MARK)) == MARK.encode()
    except OSError:
        return False


def read_learned(path: Path) -> Learned:
    """Read an answer written by `paceline learn --out`.

    Raises
    ------
    ResultsError
        The file is missing, unreadable, or not such an answer.
    """
    return read_answer(Learned, path, "learned", "paceline learn --out FILE.json", "learn again with this one")
