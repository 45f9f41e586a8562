"""Follow the files of a training as they grow, compare them with the prediction, and report events."""

from __future__ import annotations

import functools
import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from calibrate.observations import Predicted, State
from calibrate.recorded.log import Log
from calibrate.recorded.reading import Reader, reader_of
from calibrate.recorded.run import RecordedRun
from calibrate.recorded.steadiness import FEWEST_STEADY, LEAST_CHANGE
from paceline.answers import Answer, Figure
from paceline.diagnosing import Seen, diagnose
from paceline.diagnosing.seen import LEAST_ERROR, measured_in
from paceline.sweeping import Runner, Simulations
from paceline.watching.verdict import TELLING, Reason, Verdict, reasons_of, verdict_of
from simulator.base.errors import InputError, PacelineError
from simulator.base.files import check_writable
from simulator.base.table import Column, Table
from simulator.base.text import Short, format_interval, format_seconds, format_share, listed
from simulator.base.validation_errors import quoted
from simulator.results.results import Result
from simulator.scenario import Scenario

_MOST, _LIKELY = 3, 0.1
"""Most causes found by simulation that are reported, and their least probability."""


def explained(scenario: Scenario, verdicts: Sequence[Verdict], jobs: int = 0) -> tuple[Reason, ...]:
    """Return causes missing from the scenario that would explain its step time; none for a single worker.

    Each is fitted by simulations, which takes some seconds. A failed simulation is reported as a reason.
    """
    if (scenario.ranks < 2 and not scenario.servers) or not scenario.strategy.count_key:
        return ()
    try:
        with Runner(jobs=jobs) as runner:
            diagnosis = diagnose(scenario, [seen_now(scenario, verdicts)], Simulations(runner))
    except PacelineError as error:
        return (Reason("not-diagnosed", f"possible causes could not be simulated: {error}", None, "see `paceline why`"),)
    likely = [cause for cause in diagnosis.causes if cause.known == "found" and cause.probability >= _LIKELY][:_MOST]
    return tuple(
        Reason(
            cause.key,
            f"{cause.title} (probability {format_share(cause.probability)}): {cause.text}",
            cause.cost_s.mean,
            diagnosis.measure if place == 0 and diagnosis.measure else cause.remedy,
        )
        for place, cause in enumerate(likely)
    )


def seen_now(scenario: Scenario, verdicts: Sequence[Verdict]) -> Seen:
    """Return the current steps of the workers, for a diagnosis."""
    known = [(verdict.steadiness, now) for verdict in verdicts if (now := verdict.now) is not None]
    waits = not scenario.strategy.pace.asynchronous
    measured = measured_in([(record, now.rows) for record, now in known], [now.mean_s for _, now in known], waits=waits)
    error_s = statistics.fmean([record.error_of(now.rows) for record, now in known])
    return Seen(
        workers=scenario.workers,
        error=max(error_s / measured["step_s"], LEAST_ERROR),
        is_average=any(record.run.each != "step" for record, _ in known),
        **measured,
    )


_UNITS = {"step_time_ms": "milliseconds read as seconds", "step_time_s": "seconds read as milliseconds"}
"""Columns by what times look like that belong there."""
_ORDER: tuple[State, ...] = ("slower", "faster", "beyond", "unclear", "inside")
"""States by precedence: of several workers the first of these counts."""


@dataclass(frozen=True, repr=False)
class Watched(Short):
    """The state of a training, during or at the end of a watch.

    Attributes
    ----------
    predicted
        The predicted step.
    verdicts
        Verdict on each worker.
    reasons
        Reasons of each worker that is outside, by its run's name.
    events
        New events, a sentence each.
    left
        Whether any worker is or was outside.
    ended
        Whether every source shows the end of its training.
    """

    see: ClassVar[str] = ".left tells whether it left its interval, .reasons why, .table() has the figures"

    predicted: Predicted
    verdicts: tuple[Verdict, ...]
    reasons: dict[str, tuple[Reason, ...]]
    events: tuple[str, ...]
    left: bool
    ended: bool

    def _in_short(self) -> Iterator[str]:
        yield self.sentence
        yield from dict.fromkeys(reason.text for reasons in self.reasons.values() for reason in reasons)

    @property
    def step(self) -> int:
        """The last step of the worker that is furthest back; 0 before the first."""
        return min((int(verdict.run.steps[-1]) for verdict in self.verdicts), default=0)

    @property
    def state(self) -> State:
        """State of the worst of all workers."""
        states = {verdict.state for verdict in self.verdicts}
        return next((state for state in _ORDER if state in states), "unclear")

    @property
    def mean_s(self) -> float:
        """Current mean step of all workers; nan before there are enough steps."""
        return _mean_s(self.verdicts)

    @property
    def sentence(self) -> str:
        """The state in a sentence, of all workers or of the worst."""
        least = self.doubt or next((verdict.steadiness.why_not for verdict in self.verdicts if verdict.steadiness.why_not), "")
        if self.doubt or (least and self.state == "unclear"):
            return f"not compared: {least.removeprefix('it has no steady part: ')}"
        if math.isnan(self.mean_s):
            return "too few steps to judge"
        worst = [verdict for verdict in self.verdicts if verdict.state == self.state and verdict.now is not None]
        who = f"{_who(worst, self.verdicts)}: " if len(worst) < len(self.verdicts) else ""
        text = f"{who}{format_seconds(_mean_s(worst))} per step at step {self.step:,}, {format_seconds(self.predicted.mean_s)} predicted"
        return f"{text}; {_how(worst[0], self.predicted)}"

    @property
    def doubt(self) -> str:
        """Why the figures may mean something else, so that nothing is concluded from them; empty if they do not."""
        return next((doubt for verdict in self.verdicts for doubt in verdict.doubts), "")

    @property
    def answer(self) -> Answer:
        """The answer: how the training compares with its prediction, and why."""
        reasons = list(dict.fromkeys(reason for reasons in self.reasons.values() for reason in reasons))
        remarks = dict.fromkeys(text for verdict in self.verdicts for text in (*verdict.run.remarks, *verdict.steadiness.remarks))
        predicted = self.predicted
        figures = [
            Figure("step, predicted", format_seconds(predicted.mean_s), format_interval(predicted.low_s, predicted.high_s, "seconds"))
        ]
        if not math.isnan(self.mean_s):
            figures.insert(0, Figure("step, measured", format_seconds(self.mean_s)))
        todo = "`paceline why --run` with a file for each worker lists possible causes" if self.state == "slower" else ""
        if self.doubt:
            unit = next((name for name, read in _UNITS.items() if read in self.doubt), "")
            todo = f"{f'name the column {unit}, or ' if unit else ''}give the scenario of this run"
        return Answer(
            headline=f"{self.sentence[:1].upper()}{self.sentence[1:]}.",
            figures=tuple(figures),
            limit="; ".join(reason.text for reason in reasons),
            watch_out="; ".join(remarks),
            next="; ".join(dict.fromkeys(reason.remedy for reason in reasons)) or todo,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the data for a line of JSON."""
        mean_s = None if math.isnan(self.mean_s) else self.mean_s
        return {
            "step": self.step,
            "state": self.state,
            "measured": {"mean_s": mean_s, "throughput_samples_per_s": None if mean_s is None else self.predicted.samples / mean_s},
            "predicted": dict(vars(self.predicted)),
            "left": self.left,
            "ended": self.ended,
            "events": list(self.events),
            "workers": [
                {**verdict.to_dict(), "causes": [dict(vars(reason)) for reason in self.reasons.get(verdict.run.name, ())]}
                for verdict in self.verdicts
            ],
        }

    def table(self) -> Table:
        """Return measured and predicted figures, a row for each figure and worker."""
        predicted = self.predicted
        rows: list[tuple[str, str, int | None, float | None, float | None, str, str]] = []
        ends = format_interval(predicted.low_s, predicted.high_s, "seconds")
        for verdict in self.verdicts:
            now, run = verdict.now, verdict.run
            name = f"worker {run.worker}" if run.worker else Path(run.source).name
            since, first, mean_s = (None, None, None) if now is None else (now.first_step, verdict.stretches[0].first_step, now.mean_s)
            of_mean, of_all = ("", verdict.state) if now is not None and now.by == "rare" else (verdict.state, "")
            rows += [
                (name, "step, mean", since, mean_s, predicted.mean_s, ends, of_mean),
                (name, "step, median", since, verdict.quantile_s(0.5), predicted.p50_s, "", ""),
                (name, "step, 95% below", since, verdict.quantile_s(0.95), predicted.p95_s, "", ""),
                (name, "with all between steps", first, verdict.whole_s, None, "", of_all),
            ]
        columns = (
            Column("worker", "text"),
            Column("figure", "text"),
            Column("since_step", "count", "since"),
            Column("measured_s", "seconds", "measured"),
            Column("predicted_s", "seconds", "predicted"),
            Column("interval", "text", "90%", left=False),
            Column("state", "text"),
        )
        kept = tuple(row for row in rows if row[3] is not None or row[1] == "step, mean")
        return Table(f"Step {self.step:,}", columns, kept, "watch")


def _mean_s(verdicts: Sequence[Verdict]) -> float:
    """Return the current mean step of runs; nan if none has enough steps."""
    known = [verdict.now.mean_s for verdict in verdicts if verdict.now is not None]
    return math.fsum(known) / len(known) if known else math.nan


_FORMAT = "paceline-watch"


class WatchJournal:
    """A file of reported events (NDJSON), which grows by a line for each.

    Parameters
    ----------
    path
        The file; None keeps nothing.
    watched
        The watched training; a journal of another one is refused.
    reads
        Input files, which it must not be.

    Attributes
    ----------
    events
        Events in order, of earlier watches and this one.

    Raises
    ------
    InputError
        The file cannot be written, or has other contents.
    """

    def __init__(self, path: Path | None, watched: dict[str, Any], reads: Sequence[Path] = ()) -> None:
        self._path, self._cut = path, False
        self.events: list[dict[str, Any]] = []
        if path is None:
            return
        check_writable(path, *reads)
        lines = self._lines(path)
        if not lines:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._append({"format": _FORMAT, **watched})
            return
        head, *said = lines
        self.events = [event for event in said if "event" in event]
        differ = [key for key, value in watched.items() if head.get(key) != value]
        if differ:
            shown = quoted(head.get(differ[0]))
            raise InputError(f"`journal`: {str(path)!r}: belongs to another watch ({differ[0]} {shown}); choose another name")

    def say(self, event: dict[str, Any]) -> None:
        """Keep an event."""
        self.events.append(event)
        if self._path is not None:
            self._append(event)

    def said_of(self, run: str) -> list[dict[str, Any]]:
        """Return events of a run, by its name."""
        return [event for event in self.events if event.get("run") == run]

    def _append(self, line: dict[str, Any]) -> None:
        assert self._path is not None
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(("\n" if self._cut else "") + json.dumps(line) + "\n")
            self._cut = False
        except OSError as error:
            raise InputError(f"`journal`: {str(self._path)!r}: cannot be written: {error.strerror}; choose another path") from None

    def _lines(self, path: Path) -> list[dict[str, Any]]:
        """Return the lines; the last may be incomplete if a watch was killed while writing."""
        try:
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            lines = [_data(line) for line in text.splitlines()]
        except (OSError, UnicodeDecodeError):
            lines = [{}]
        if lines and lines[0].get("format") != _FORMAT:
            raise InputError(f"`journal`: {str(path)!r}: is not the journal of a watch; choose another name")
        self._cut = bool(text) and not text.endswith("\n")
        return [line for line in lines if line]


def _data(line: str) -> dict[str, Any]:
    """Return the data of a line; empty if it is incomplete."""
    try:
        data = json.loads(line)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


class Watch:
    """Reads sources repeatedly.

    Parameters
    ----------
    result
        The prediction.
    sources
        Files and folders with recorded steps.
    coverage
        Share of runs within their prediction that must not be called outside.
    journal
        Keeps reported events; a restarted watch continues it.
    pattern, python
        As for :func:`calibrate.recorded.reading.read_recorded`.
    waits
        Whether to wait for sources that have no steps yet.
    jobs
        Processes that simulate causes; 0: all cores.

    Raises
    ------
    InputError
        A source is missing or cannot be read.
    """

    def __init__(
        self,
        result: Result,
        sources: Sequence[str | Path],
        *,
        coverage: float,
        journal: Path | None = None,
        pattern: str | None = None,
        python: str | None = None,
        waits: bool = True,
        jobs: int = 0,
    ) -> None:
        self._result = result
        self._predicted = Predicted.of(result, coverage)
        self._sources = [Path(source) for source in sources]
        self._options: dict[str, Any] = {"pattern": pattern, "samples": self._predicted.samples, "python": python}
        self._readers: dict[Path, Reader] = {}
        self._waits, self._jobs = waits, jobs
        watched = {"scenario_hash": result.scenario_hash, "sources": [str(source) for source in self._sources]}
        self._journal = WatchJournal(journal, watched, self._sources)
        self._reasons: dict[str, tuple[Reason, ...]] = {}
        self._verdicts: dict[str, tuple[tuple[int, ...], Verdict]] = {}

    def look(self) -> Watched:
        """Read new steps, and return the state.

        Raises
        ------
        InputError
            A source is damaged, or has no steps and is not waited for.
        """
        runs = [run for source in self._sources for run in self._runs(source)]
        verdicts = tuple(self._verdict(run) for run in runs if len(run))
        events = [*self._doubts(verdicts), *self._news(verdicts)]
        left = any(verdict.was_outside for verdict in verdicts) or any(event["event"] == "left" for event in self._journal.events)
        ended = bool(runs) and len(self._readers) == len(self._sources) and all(run.ended for run in runs)
        outside = {verdict.run.name for verdict in verdicts if verdict.since is not None}
        reasons = {name: reasons for name, reasons in self._reasons.items() if name in outside}
        return Watched(self._predicted, verdicts, reasons, tuple(events), left, ended)

    def updates(self, each_s: float, until_steps: int | None = None) -> Iterator[Watched]:
        """Yield the state every few seconds, until every training has ended or has made enough steps."""
        while True:
            update = self.look()
            yield update
            if update.ended or (until_steps is not None and update.verdicts and update.step >= until_steps):
                return
            time.sleep(each_s)

    def _runs(self, source: Path) -> tuple[RecordedRun, ...]:
        reader = self._readers.get(source)
        if reader is None:
            if self._waits and source.is_file() and not source.stat().st_size:
                return ()
            reader = self._readers[source] = reader_of(source, **self._options)
        reader.more()
        runs = reader.runs()
        if not self._waits:
            if isinstance(reader, Log):
                reader.check()
            if not any(len(run) for run in runs):
                raise InputError(f"{source}: has no steps yet; try again when the training has made some")
        return runs

    def _verdict(self, run: RecordedRun) -> Verdict:
        """Return the verdict on a run, updated if it has grown."""
        size = len(run), len(run.marks), int(run.steps[-1])  # the last row may take later steps in
        known = self._verdicts.get(run.name)
        if known is None or known[0] != size:
            known = self._verdicts[run.name] = size, verdict_of(run, self._result, self._predicted)
        return known[1]

    def _doubts(self, verdicts: Sequence[Verdict]) -> Iterator[str]:
        """Yield doubts that were not reported yet."""
        for verdict in verdicts:
            name = verdict.run.name
            said = {event.get("text") for event in self._journal.said_of(name)}
            for doubt in verdict.doubts:
                if doubt not in said:
                    self._journal.say({"run": name, "event": "doubt", "text": doubt})
                    yield doubt

    def _news(self, verdicts: Sequence[Verdict]) -> Iterator[str]:
        """Yield new events of runs, once for workers in the same state."""
        explain = functools.cache(lambda: explained(self._result.scenario, verdicts, self._jobs))
        new = {verdict.run.name: event for verdict in verdicts if (event := self._event(verdict))}
        for group in _alike(verdict for verdict in verdicts if verdict.since is not None):
            told = [verdict for verdict in group if verdict.run.name in new]
            if told or any(verdict.run.name not in self._reasons for verdict in group):
                reasons = self._why(group[0], verdicts, explain)
                self._reasons.update((verdict.run.name, reasons) for verdict in group)
            if told:
                yield self._say("left", told, verdicts)
        back = [verdict for verdict in verdicts if new.get(verdict.run.name) == "back"]
        for verdict in back:
            self._reasons.pop(verdict.run.name, None)
            yield self._say("back", [verdict], verdicts)

    def _event(self, verdict: Verdict) -> str | None:
        """Return the event of a run: that it left, changed its level, or is back; None without one."""
        said = self._journal.said_of(verdict.run.name)
        was = next((event for event in reversed(said) if event["event"] in ("left", "back")), None)
        outside = was is not None and was["event"] == "left"
        now = verdict.now
        if now is None:
            return None
        if now.outside:
            worse = was is not None and now.first_step > was.get("at", math.inf) and now.mean_s > (1 + LEAST_CHANGE) * was["mean_s"]
            is_new = was is None or not outside or was["state"] != now.state or worse
            return "left" if is_new else None
        return "back" if was is not None and outside and now.first_step > was["step"] and now.state in ("inside", "beyond") else None

    def _why(self, verdict: Verdict, verdicts: Sequence[Verdict], explain: Callable[[], tuple[Reason, ...]]) -> tuple[Reason, ...]:
        """Return reasons from the record and, if they do not suffice, from simulations."""
        shown = reasons_of(self._result.scenario, self._predicted, verdict, verdicts)
        by_rare = verdict.now is not None and verdict.now.by == "rare"
        if verdict.state != "slower" or by_rare or any(reason.key in TELLING for reason in shown):
            return shown
        # what costs a known time before what only says where the record ends
        return tuple(sorted((*shown, *explain()), key=lambda reason: reason.cost_s is None))

    def _say(self, event: str, told: Sequence[Verdict], verdicts: Sequence[Verdict]) -> str:
        """Keep and return the event of runs in the same state."""
        now, since, turn, predicted = told[0].now, told[0].since, told[0].turn, self._predicted
        assert now is not None
        if since is not None:
            ends = format_interval(predicted.least_s, predicted.most_s, "seconds")
            were = f", {format_seconds(turn[1].mean_s)} before" if turn is not None else " from its first steps on"
            how = (
                f"{_how(told[0], predicted)}: {format_seconds(now.mean_s)} per step{were}, {format_seconds(predicted.mean_s)} predicted "
                f"({format_share(predicted.coverage)} of runs: {ends})"
            )
        else:
            how = f"as predicted again since step {now.first_step:,}: {format_seconds(now.mean_s)} per step"
        text = f"{_who(told, verdicts)}: {how}"
        for verdict in told:
            name, own = verdict.run.name, verdict.now
            assert own is not None
            line = {"state": own.state, "step": (verdict.since or own).first_step, "at": own.last_step, "mean_s": own.mean_s, "text": text}
            causes = [reason.text for reason in self._reasons.get(name, ())] if since is not None else []
            self._journal.say({"run": name, "event": event, **line, "causes": causes})
        return text


def _who(some: Sequence[Verdict], verdicts: Sequence[Verdict]) -> str:
    """Return the names of runs among all."""
    if len(some) == len(verdicts) > 1:
        return f"all {len(some):,} workers"
    return listed([verdict.run.name for verdict in some])


def _how(verdict: Verdict, predicted: Predicted) -> str:
    """Return the state of a run with a current stretch, as a clause."""
    now = verdict.now
    assert now is not None
    if now.by == "rare":
        with_them = f"{format_seconds(now.mean_s + now.rare_s)} with the long steps among them"
        return f"{with_them}, {predicted.stands(now.state)}"
    if verdict.turn is None:
        return predicted.stands(now.state)
    step, before = verdict.turn
    return f"since step {step:,}, {format_share(abs(now.mean_s / before.mean_s - 1))} {now.state} than before"


def _alike(verdicts: Iterable[Verdict]) -> list[list[Verdict]]:
    """Return runs that are outside, grouped by slowdown, step and basis."""
    groups: list[tuple[object, int, float, list[Verdict]]] = []
    for verdict in verdicts:
        now, turn = verdict.now, verdict.turn
        assert now is not None
        told = verdict.state, now.by, turn is None
        step, times = (0, now.mean_s) if turn is None else (turn[0], now.mean_s / turn[1].mean_s)
        for told_of_first, first_step, first_times, group in groups:
            near = abs(first_step - step) <= FEWEST_STEADY and abs(math.log(first_times / times)) <= math.log1p(LEAST_CHANGE)
            if told == told_of_first and near:
                group.append(verdict)
                break
        else:
            groups.append((told, step, times, [verdict]))
    return [group for *_, group in groups]
