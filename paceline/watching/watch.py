"""Follows the files of a training as they grow, holds them against the prediction, and says what is new."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from calibrate.judging import Predicted, State
from calibrate.recorded.log import Log
from calibrate.recorded.reading import Reader, reader_of
from calibrate.recorded.run import RecordedRun
from paceline.watching.explaining import explained
from paceline.watching.journal import WatchJournal
from paceline.watching.reasons import TELLING, Reason, reasons_of
from paceline.watching.verdict import Verdict, verdict_of
from simulator.base.errors import InputError
from simulator.base.short import Short
from simulator.base.table import Column, Table
from simulator.base.text import format_interval, format_seconds, format_share
from simulator.results.results import Result

__all__ = ["Update", "Watch", "Watched"]

_ORDER: tuple[State, ...] = ("slower", "faster", "beyond", "unclear", "inside")
"""Of several workers the first of these counts."""


@dataclass(frozen=True)
class Update:
    """How a training stands.

    Attributes
    ----------
    predicted
        A step as it is predicted.
    verdicts
        Of each worker.
    reasons
        Why each worker is outside that is, by its run's name.
    events
        What is new, a sentence each.
    left
        Whether any worker has been outside, now or before.
    ended
        Whether every source says that its training came to its end.
    """

    predicted: Predicted
    verdicts: tuple[Verdict, ...]
    reasons: dict[str, tuple[Reason, ...]]
    events: tuple[str, ...]
    left: bool
    ended: bool

    @property
    def step(self) -> int:
        """The last step of the worker that is furthest back; 0 before the first."""
        return min((int(its.run.steps[-1]) for its in self.verdicts), default=0)

    @property
    def state(self) -> State:
        """Of the worst of all workers."""
        states = {its.state for its in self.verdicts}
        return next((state for state in _ORDER if state in states), "unclear")

    @property
    def mean_s(self) -> float:
        """Mean step of all workers at present; nan before there are enough steps."""
        known = [its.now.mean_s for its in self.verdicts if its.now is not None]
        return math.fsum(known) / len(known) if known else math.nan

    @property
    def sentence(self) -> str:
        """How it stands, in words."""
        predicted = self.predicted
        if math.isnan(self.mean_s):
            least = next((its.found.why_not for its in self.verdicts if its.found.why_not), "")
            return f"too few steps to tell{f': {least}' if least else ''}"
        text = f"{format_seconds(self.mean_s)} per step at step {self.step:,}, {format_seconds(predicted.mean_s)} predicted"
        return f"{text}; {predicted.stands(self.state)}"

    def to_dict(self) -> dict[str, Any]:
        """For a line of JSON."""
        return {
            "step": self.step,
            "state": self.state,
            "measured": {
                "mean_s": None if math.isnan(self.mean_s) else self.mean_s,
                "throughput_samples_per_s": None if math.isnan(self.mean_s) else self.predicted.samples / self.mean_s,
            },
            "predicted": dict(vars(self.predicted)),
            "left": self.left,
            "ended": self.ended,
            "events": list(self.events),
            "workers": [
                {**its.to_dict(), "causes": [reason.to_dict() for reason in self.reasons.get(its.run.name, ())]} for its in self.verdicts
            ],
        }

    def table(self) -> Table:
        """Measured beside predicted, a row for each figure and worker."""
        predicted = self.predicted
        rows: list[tuple[str, str, float | None, float | None, str, str]] = []
        for its in self.verdicts:
            now = its.now
            name = f"worker {its.run.worker}" if its.run.worker else Path(its.run.source).name
            ends = format_interval(predicted.low_s, predicted.high_s, "seconds")
            rows += [
                (name, "step, mean", None if now is None else now.mean_s, predicted.mean_s, ends, its.state),
                (name, "step, median", its.p50_s, predicted.p50_s, "", ""),
                (name, "step, 95% below", its.p95_s, predicted.p95_s, "", ""),
                (name, "with all between steps", None if math.isnan(its.whole_s) else its.whole_s, None, "", ""),
            ]
        columns = (
            Column("worker", "text"),
            Column("figure", "text"),
            Column("measured_s", "seconds", "measured"),
            Column("predicted_s", "seconds", "predicted"),
            Column("interval", "text", "90%", left=False),
            Column("state", "text"),
        )
        kept = tuple(row for row in rows if row[2] is not None or row[1] == "step, mean")
        return Table(f"Step {self.step:,}", columns, kept, "watch")


class Watched(Update, Short):
    """How a training stood at the end of a watch."""

    see: ClassVar[str] = ".left says whether it left its interval, .reasons why, .table() has the figures"

    def _in_short(self) -> Iterator[str]:
        yield self.sentence
        for reasons in self.reasons.values():
            yield from (reason.text for reason in reasons)


class Watch:
    """Looks at sources again and again.

    Parameters
    ----------
    result
        What is predicted.
    sources
        Files and folders in which steps are recorded.
    coverage
        Share of runs as predicted that are not to be called outside.
    journal
        Keeps what was said; a watch that is begun again goes on with it.
    pattern, python
        As for :func:`calibrate.recorded.reading.read_recorded`.
    waits
        Whether sources without steps, which are still to come, are waited for.
    jobs
        Processes that simulate causes; 0: all cores.

    Raises
    ------
    InputError
        A source is not there or cannot be read.
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
        self._journal = WatchJournal(journal, watched, tuple(self._sources))
        self._reasons: dict[str, tuple[Reason, ...]] = {}
        self._verdicts: dict[str, tuple[tuple[int, int], Verdict]] = {}

    def look(self) -> Update:
        """Read what is new, and say how it stands.

        Raises
        ------
        InputError
            A source is damaged, or there are no steps in it and it is not waited for.
        """
        runs = [run for source in self._sources for run in self._runs(source)]
        verdicts = tuple(self._verdict(run) for run in runs if len(run))
        events = [event for verdict in verdicts for event in self._news(verdict, verdicts)]
        left = any(its.left for its in verdicts) or any(event["event"] == "left" for event in self._journal.events)
        ended = bool(runs) and len(self._readers) == len(self._sources) and all(run.ended for run in runs)
        reasons = {its.run.name: self._reasons[its.run.name] for its in verdicts if its.since is not None and its.run.name in self._reasons}
        return Update(self._predicted, verdicts, reasons, tuple(events), left, ended)

    def updates(self, each_s: float, until_steps: int | None = None) -> Iterator[Update]:
        """Look every so many seconds, until every training has ended, or has made so many steps."""
        while True:
            update = self.look()
            yield update
            if update.ended or (until_steps is not None and update.verdicts and update.step >= until_steps):
                return
            time.sleep(each_s)

    def last(self, update: Update) -> Watched:
        """The end of a watch."""
        return Watched(update.predicted, update.verdicts, update.reasons, update.events, update.left, update.ended)

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
                raise InputError(f"{source}: holds no steps yet; give it when the training has made some")
        return runs

    def _verdict(self, run: RecordedRun) -> Verdict:
        """What is known of a run, made anew where it has grown."""
        size = len(run), len(run.marks)
        known = self._verdicts.get(run.name)
        if known is None or known[0] != size:
            known = self._verdicts[run.name] = size, verdict_of(run, self._result, self._predicted)
        return known[1]

    def _news(self, verdict: Verdict, verdicts: Sequence[Verdict]) -> Iterator[str]:
        """What has not been said of a run."""
        name = verdict.run.name
        said = self._journal.said_of(name)
        for doubt in verdict.doubts:
            if not any(event.get("text") == doubt for event in said):
                self._journal.say({"run": name, "event": "doubt", "text": doubt})
                yield doubt
        was = next((event for event in reversed(said) if event["event"] in ("left", "back")), None)
        outside = was is not None and was["event"] == "left"
        since = verdict.since
        if since is not None:
            if name not in self._reasons or not outside:
                self._reasons[name] = self._why(verdict, verdicts)
            if not outside or (was is not None and was["state"] != since.state):
                yield self._say(verdict, "left")
        elif outside and was is not None and verdict.now is not None and verdict.now.first_step > was["step"] and not verdict.now.outside:
            self._reasons.pop(name, None)
            yield self._say(verdict, "back")

    def _why(self, verdict: Verdict, verdicts: Sequence[Verdict]) -> tuple[Reason, ...]:
        """What the record shows; where that is not enough, what simulations find besides."""
        shown = reasons_of(self._result.scenario, self._predicted, verdict, verdicts)
        if verdict.doubts or verdict.state != "slower" or any(reason.key in TELLING for reason in shown):
            return shown
        # what costs a known time before what only says where the record ends
        found = (*shown, *explained(self._result.scenario, verdicts, self._jobs))
        return tuple(sorted(found, key=lambda reason: reason.cost_s is None))

    def _say(self, verdict: Verdict, event: str) -> str:
        now, since = verdict.now, verdict.since
        assert now is not None
        name, predicted = verdict.run.name, self._predicted
        if since is not None:
            ends = format_interval(predicted.least_s, predicted.most_s, "seconds")
            begun = "from its first steps on" if verdict.before is None else f"since step {since.first_step:,}"
            text = (
                f"{name}: left its interval {begun}: {format_seconds(now.mean_s)} per step where {format_seconds(predicted.mean_s)} are "
                f"predicted ({format_share(predicted.coverage)} of runs as predicted: {ends})"
            )
        else:
            text = f"{name}: is back in its interval since step {now.first_step:,}: {format_seconds(now.mean_s)} per step"
        causes = [reason.text for reason in self._reasons.get(name, ())] if since is not None else []
        step = (since or now).first_step
        self._journal.say(
            {"run": name, "event": event, "state": now.state, "step": step, "mean_s": now.mean_s, "text": text, "causes": causes}
        )
        return text
