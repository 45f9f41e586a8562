"""Reads step times from lines of a log by a regular expression: one of those that are built in, or the user's.

Some programs print the mean since they began (:attr:`Pattern.cumulative`). What the steps between two lines took is then the
difference of both sums, which rounding makes coarse: lines are taken together until it is known to 2%.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from calibrate.recorded.growing_file import Lines
from calibrate.recorded.run import Each, Facts, Growing, RecordedRun
from simulator.base.errors import InputError
from simulator.base.text import format_share, listed
from simulator.base.validation_errors import quoted

__all__ = ["GROUPS", "PATTERNS", "Log", "Pattern", "compiled"]

GROUPS = {
    "step": "number of the step",
    "time_s": "seconds of a step",
    "time_ms": "milliseconds of a step",
    "rate": "steps/s",
    "throughput": "samples/s of all workers together; needs the batch and the workers",
}
"""Named groups of a pattern, of which one that tells a step's time must be there."""

_TIMES = ("time_s", "time_ms", "time_us", "rate", "throughput")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|\x08")
_KNOWN = 0.02
_MOST_MATCHES = 1000
_EVALUATED = " val_"
"""Metrics of an evaluation, whose time Keras counts in."""
_LOOKED_AT = 20_000
"""Lines that are held until one pattern fits."""


@dataclass(frozen=True)
class Pattern:
    """How lines tell steps.

    Attributes
    ----------
    name
        For messages.
    expression
        With the named groups of :data:`GROUPS`, ``time_us``, and ``target``, the last step of an epoch; the last match of a line counts.
    each
        What a line is the mean of.
    cumulative
        Lines tell means since step ``since``: since the epoch or the measurement began.
    since
        Steps before the first that the mean counts.
    samples
        An expression of the line that tells the samples of a step, in a group of that name; None where there is none.
    """

    name: str
    expression: re.Pattern[str]
    each: Each
    cumulative: bool = False
    since: int = 0
    samples: re.Pattern[str] | None = None


PATTERNS = (
    Pattern(
        "tf_cnn_benchmarks",
        re.compile(r"^\s*(?P<step>\d+)\s+images/sec: (?P<throughput>[\d.]+) \+/- "),
        "interval",
        cumulative=True,
        samples=re.compile(r"^Batch size:\s+(?P<samples>\d+) global"),
    ),
    Pattern("tf.estimator", re.compile(r"global_step/sec: (?P<rate>[\d.]+)(?:.*step = (?P<step>\d+))?"), "interval"),
    Pattern(
        "Keras' progress bar",
        re.compile(
            r"(?:^|\s)(?P<step>\d+)/(?:(?P<target>\d+)|Unknown)\s.*?(?:(?P<time_us>\d+)us|(?P<time_ms>\d+)ms|(?P<time_s>\d+)s)/step"
        ),
        "interval",
        cumulative=True,
        since=1,
    ),
)
"""Patterns that are tried where the user gives none."""


def compiled(text: str) -> Pattern:
    """A pattern of the user's.

    Raises
    ------
    InputError
        It is no regular expression, or has no group that tells a step's time.
    """
    try:
        expression = re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"`pattern`: {quoted(text)} must be a regular expression: {error}") from None
    known = f"known are {', '.join(f'(?P<{name}>...)' for name in GROUPS)}"
    for name in expression.groupindex:
        if name not in GROUPS:
            raise InputError(f"`pattern`: the group {name} is not known; {known}")
    times = [name for name in _TIMES if name in expression.groupindex]
    if len(times) != 1:
        fault = f"has the groups {listed(times)}; keep one" if times else "has no named group that tells a step's time"
        raise InputError(f"`pattern`: {quoted(text)} {fault}; {known}, such as 'step (?P<step>\\d+) took (?P<time_s>[\\d.]+) s'")
    return Pattern("the pattern", expression, "step")


class Log:
    """A log, read as it grows.

    Parameters
    ----------
    path
        The file.
    pattern
        How its lines tell steps; None: the first of :data:`PATTERNS` that fits a line.
    samples
        Samples of a step of all workers together; None: as the log says, if it does.
    """

    def __init__(self, path: Path, pattern: Pattern | None = None, samples: int | None = None) -> None:
        self._lines = Lines(path, returns=True)
        self._path, self._pattern, self._samples = path, pattern, samples
        self._told: int | None = None
        self._run = Growing(str(path), "log")
        self._held: list[str] = []
        self._matched = False
        self._sum_s, self._at, self._rounding_s = 0.0, 0, 0.0

    def more(self) -> None:
        """Read what is new.

        Raises
        ------
        InputError
            A number in a line is none, or a throughput comes without the samples of a step.
        """
        for number, text in self._lines.new():
            line = _ESCAPES.sub("", text)
            self._look_for_samples(line)
            if self._pattern is None:
                self._choose(number, line)
            if self._pattern is not None:
                self._take(number, line)

    def runs(self) -> tuple[RecordedRun, ...]:
        """What was read until now."""
        return (self._run.run(),)

    def check(self) -> None:
        """That some line has told steps, where no more are to come.

        Raises
        ------
        InputError
            None has.
        """
        if self._lines.count and not self._matched:
            tried = "the pattern" if self._pattern is not None else f"{listed([pattern.name for pattern in PATTERNS])}"
            hint = "" if self._pattern is not None else "; give a pattern, such as 'step (?P<step>\\d+) took (?P<time_s>[\\d.]+) s'"
            raise InputError(f"{self._path}: none of its {self._lines.count:,} lines is one of {tried}{hint}")

    def _look_for_samples(self, line: str) -> None:
        for pattern in PATTERNS:
            if pattern.samples is not None and (found := pattern.samples.search(line)):
                self._told = int(found["samples"])

    def _choose(self, number: int, line: str) -> None:
        self._pattern = next((pattern for pattern in PATTERNS if pattern.expression.search(line)), None)
        if self._pattern is None and number > _LOOKED_AT:
            self.check()

    def _take(self, number: int, line: str) -> None:
        pattern = self._pattern
        assert pattern is not None
        every = list(itertools.islice(pattern.expression.finditer(line), _MOST_MATCHES))
        if not every:
            return
        found = every[-1]
        groups = {name: value for name, value in found.groupdict().items() if value is not None}
        name = next((name for name in _TIMES if name in groups), "")
        if not name:
            return
        where = f"{self._path}:{number}"
        value = _number(where, name, groups[name])
        if name == "throughput" and self._samples is None and self._told is None:
            raise InputError(f"{where}: a throughput is a step's time only with the samples of a step, which are not known; give the batch")
        if self._told is not None:
            self._run.facts = Facts(batch=self._told, workers=1) if self._samples is None else self._run.facts
        duration_s = _INTO_S[name](value, self._samples or self._told or 1)
        self._matched = True
        if not pattern.cumulative:
            step = int(_number(where, "step", groups["step"])) if "step" in groups else self._run.last_step + 1
            self._add_plain(pattern, step, duration_s)
        else:
            if _EVALUATED in line:
                if self._at:
                    return
                self._run.remark("times hold the evaluation at each epoch's end, since the log has no line before it")
            relative = _half_a_digit(groups[name]) / value if value else math.inf
            step = int(_number(where, "step", groups["step"]))
            self._add_cumulative(pattern, step, duration_s, relative, last=groups.get("target") == groups["step"])

    def _add_plain(self, pattern: Pattern, step: int, duration_s: float) -> None:
        self._run.each = pattern.each
        if len(self._run) and step <= self._run.last_step:
            self._run.mark("restart")
        count = step - self._run.last_step if pattern.each == "interval" and 0 < self._run.last_step < step else 1
        self._run.add(step, duration_s, count=count)

    def _add_cumulative(self, pattern: Pattern, step: int, mean_s: float, relative: float, *, last: bool) -> None:
        """A row for the steps since the one before, once their sum is known well enough, or is all that an epoch tells."""
        self._run.each = pattern.each
        counted = step - pattern.since
        if counted < self._at or counted <= 0:
            self._begin_again()
        if counted <= self._at:
            return
        total_s = mean_s * counted
        rounding_s = total_s * relative
        between_s, doubt_s = total_s - self._sum_s, self._rounding_s + rounding_s
        if doubt_s > _KNOWN * between_s and between_s > -doubt_s:
            if not last or self._at:
                return
            self._run.remark(f"the log rounds times to {format_share(2 * relative)}")
        count = counted - self._at
        self._run.add(step, between_s / count, count=count)
        self._sum_s, self._at, self._rounding_s = total_s, counted, rounding_s

    def _begin_again(self) -> None:
        if len(self._run) and not (self._run.marks and self._run.marks[-1].row == len(self._run)):
            self._run.mark("epoch")
        self._sum_s, self._at, self._rounding_s = 0.0, 0, 0.0


_INTO_S: Mapping[str, Callable[[float, int], float]] = {
    "time_s": lambda value, _: value,
    "time_ms": lambda value, _: value * 1e-3,
    "time_us": lambda value, _: value * 1e-6,
    "rate": lambda value, _: 1 / value if value else math.inf,
    "throughput": lambda value, samples: samples / value if value else math.inf,
}


def _half_a_digit(text: str) -> float:
    """Half of what the last digit of a number stands for."""
    return 0.5 * 10.0 ** -len(text.partition(".")[2])


def _number(where: str, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{where}: {name}: {quoted(text)} must be a number; change the pattern") from None
    if not math.isfinite(value):
        raise InputError(f"{where}: {name}: {quoted(text)} must be finite; change the pattern")
    return value
