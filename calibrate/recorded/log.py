"""Reads step times from lines of a log, by a format of :mod:`calibrate.recorded.log_formats` or an expression of the user's.

Prefixes of a launcher (a rank, a time) are removed; each rank is a run of its own. Successive runs in one file are distinguished by their
headers and facts.

Some programs print the mean since they began (:attr:`Pattern.cumulative`). What the steps between two lines took is then the
difference of both sums, which rounding makes coarse: lines are taken together until it is known to 2%.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from calibrate.recorded.growing_file import Lines
from calibrate.recorded.log_formats import PATTERNS, TIMES, Pattern, Told, readings
from calibrate.recorded.run import SECONDS_OF, Facts, Growing, RecordedRun
from simulator.base.errors import InputError
from simulator.base.text import counted, format_share, listed
from simulator.base.validation_errors import quoted

_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_KNOWN = 0.02
_MOST_MATCHES = 1000
_EVALUATED = " val_"
"""Metrics of an evaluation, whose time Keras counts in."""
_LOOKED_AT = 20_000
"""Lines that are held until one pattern fits."""
_MOST_DIGITS = 24
_MOST_RANKS = 10_000
_MOST_LISTED = 20


@dataclass(frozen=True)
class _Sum:
    """Time of the first ``steps`` steps, and its possible rounding error."""

    steps: int = 0
    total_s: float = 0.0
    rounding_s: float = 0.0


@dataclass
class _Part:
    """One run of one rank.

    Attributes
    ----------
    told
        Facts from lines other than times.
    first, step, epoch
        The step of its first line; step and epoch of its last.
    lines, backward, repeated
        Lines until now; how often the step became less, and the steps that came again at once.
    opened, closed
        Of means since an epoch began: sums up to where the last row begins and ends; None before there is one.
    """

    run: Growing
    told: dict[str, str] = field(default_factory=dict)
    first: int = 0
    step: int = -1
    epoch: str = ""
    lines: int = 0
    backward: int = 0
    repeated: list[int] = field(default_factory=list)
    opened: _Sum | None = None
    closed: _Sum | None = None

    def mark(self, what: str) -> None:
        """Something lies before the next row, once."""
        if len(self.run) and not (self.run.marks and self.run.marks[-1].row == len(self.run)):
            self.run.mark(what)

    def rounded(self, relative: float) -> None:
        """Say once that times are known no better than to this share, on either side."""
        said = "the log rounds times to "
        if relative > _KNOWN and not any(remark.startswith(said) for remark in self.run.remarks):
            self.run.remark(f"{said}{format_share(2 * relative)}")

    def follow(self, where: str, pattern: Pattern, step: int, epoch: str, *, last: bool) -> None:
        """Go on to the step of the next line: an epoch or a restart is marked, and lines of several processes are refused."""
        self.lines += 1
        again = step < self.step or (step == self.step and epoch != self.epoch)
        if self.step < 0:
            self.first = step
        elif step == self.step and not last and not again:
            self.repeated.append(step)
        elif again and epoch == self.epoch and "target" not in pattern.expression.groupindex:
            self.backward += 1
        several = sorted(set(self.repeated))
        turns = len(self.repeated) + self.backward
        if (len(several) > 1 or turns > 3) and 4 * turns >= self.lines:
            steps = f"repeats steps such as {several[0]:,} several times in turn" if several else "goes back to earlier steps repeatedly"
            raise InputError(
                f"{where}: {steps}, as if several processes write to one file without marking their lines: give the log of one process, "
                "or let the launcher write ranks (mpirun -tag-output, srun -l)"
            )
        if pattern.cumulative and again:
            self.mark("epoch")
            self.opened = self.closed = None
        elif not pattern.cumulative and step <= self.run.last_step:
            self.mark("restart" if epoch == self.epoch else "epoch")
        self.step, self.epoch = step, epoch

    def add_mean(self, now: _Sum, since: int, relative: float) -> None:
        """A row for the steps since the last, once their sum is known well enough; until then the last row has them in."""
        closed = self.closed or _Sum()
        if now.steps <= closed.steps:
            return
        between_s, doubt_s = now.total_s - closed.total_s, now.rounding_s + closed.rounding_s
        known = doubt_s <= _KNOWN * between_s or between_s <= -doubt_s
        if not known and self.opened is not None:
            self._fill(self.run.amend, self.opened, now, since)
            return
        if self.opened is not None:  # without the later steps that it had in
            self._fill(self.run.amend, self.opened, closed, since)
        self._fill(self.run.add, closed, now, since)
        self.opened, self.closed = closed, now
        self.rounded(relative)

    @staticmethod
    def _fill(write: Callable[..., None], before: _Sum, now: _Sum, since: int) -> None:
        count = now.steps - before.steps
        write(now.steps + since, (now.total_s - before.total_s) / count, count=count)


@dataclass
class _Rank:
    """Lines of one rank.

    Attributes
    ----------
    parts
        Its runs.
    heard, header
        What lines said since the last row, by the pattern that they are of; whether one was a header.
    numbered
        The last step that a line told.
    unnumbered
        Whether the last row's step is counted, not told.
    began
        The line with which a span began.
    """

    name: str
    parts: list[_Part] = field(default_factory=list)
    heard: dict[str, dict[str, str]] = field(default_factory=dict)
    header: bool = False
    numbered: int | None = None
    unnumbered: bool = False
    began: dict[str, str] | None = None

    def begins(self, pattern: Pattern, step: int | None) -> bool:
        """Return whether a line is the first of another run: steps begin again, below a header or facts that are others."""
        if not self.parts:
            return True
        part, heard = self.parts[-1], self.heard.get(pattern.name, {})
        others = any(part.told.get(key, value) != value for key, value in heard.items())
        if step is None:
            return self.header or others
        if pattern.cumulative and "target" not in pattern.expression.groupindex and step < part.step:
            return True
        return step <= part.step and (others or (self.header and step <= part.first))

    def part(self, source: str, pattern: Pattern, *, new: bool) -> _Part:
        """The run that a line belongs to, which holds what was said of it."""
        if new:
            self.parts.append(_Part(Growing(source, "log", self.name[:80], each=pattern.each)))
        part = self.parts[-1]
        part.told = self.heard.pop(pattern.name, {}) | part.told
        if self.header:
            part.mark("restart")
        self.header = False
        return part

    def number(self, step: int) -> None:
        """The last line was that of this step."""
        if self.unnumbered:
            going_on = self.numbered is not None and step > self.numbered
            self.parts[-1].run.amend(step, count=step - (self.numbered or 0) if going_on else 1)
        self.numbered, self.unnumbered = step, False


class Log:
    """A log, read as it grows.

    Parameters
    ----------
    path
        The file.
    pattern
        How its lines tell steps; None: the first of :data:`PATTERNS` that fits a line.
    samples
        Samples of a step of all workers together, where the log does not say it; None: not known.
    chosen
        Which of the runs that follow each other in it, from 1 on; None: the only one.
    """

    def __init__(self, path: Path, pattern: Pattern | None = None, samples: int | None = None, chosen: int | None = None) -> None:
        self._lines = Lines(path, returns=True)
        self._path, self._pattern, self._samples, self._chosen = path, pattern, samples, chosen
        self._of_the_user = pattern is not None
        self._ranks: dict[str, _Rank] = {}
        self._matched = False
        self._hint = ""

    def more(self) -> None:
        """Read what is new.

        Raises
        ------
        InputError
            A number in a line is none, a throughput comes without the samples of a step, or several processes wrote the lines, and
            nothing tells which wrote which.
        """
        for number, text in self._lines.new():
            line = _ESCAPES.sub("", text)
            where = f"{self._path}:{number}"
            try:
                any(self._tells(where, rank, rest) for rank, rest in readings(line, doubtful=not self._of_the_user))
            except (ArithmeticError, ValueError):
                raise InputError(f"{where}: has a number that cannot be a step ({quoted(line.strip())}): delete the line") from None
            if self._pattern is None and number > _LOOKED_AT:
                self.check()

    def runs(self) -> tuple[RecordedRun, ...]:
        """Return what was read until now, a run for each rank.

        Raises
        ------
        InputError
            Several runs follow each other, and none is chosen, or one that is not there.
        """
        ranks = [rank for rank in self._ranks.values() if rank.parts]
        several = max((len(rank.parts) for rank in ranks), default=0)
        if several > 1 and self._chosen is None:
            raise InputError(f"{self._path}: has {several} runs: choose one, such as {self._path}#{several}: {self._listed(ranks)}")
        if not ranks:
            return (Growing(str(self._path), "log").run(),)
        index = (self._chosen or 1) - 1
        if not 0 <= index < several:
            raise InputError(f"{self._path}#{self._chosen}: no such run; the file has {counted(several, 'run')}")
        source = str(self._path) if self._chosen is None else f"{self._path}#{self._chosen}"
        return tuple(
            replace(rank.parts[index].run.run(), source=source, facts=self._facts(rank, index)) for rank in ranks if index < len(rank.parts)
        )

    def check(self) -> None:
        """Require that some line gave steps, when no more will come.

        Raises
        ------
        InputError
            None has.
        """
        if self._matched or not self._lines.count:
            return
        if self._hint:
            raise InputError(f"{self._path}: {self._hint}")
        tried = "the pattern" if self._of_the_user else listed(list(dict.fromkeys(pattern.name for pattern in PATTERNS)))
        hint = "" if self._of_the_user else "; give a pattern, such as 'step (?P<step>\\d+) took (?P<time_s>[\\d.]+) s'"
        raise InputError(f"{self._path}: none of its {self._lines.count:,} lines matches {tried}{hint}")

    def _listed(self, ranks: list[_Rank]) -> str:
        longest = max(ranks, key=lambda rank: len(rank.parts))
        said = []
        for index, part in enumerate(longest.parts[:_MOST_LISTED]):
            facts, steps = self._facts(longest, index), int(part.run.run().counts.sum())
            batch = f", global batch {facts.global_batch:,}" if facts.global_batch is not None else ""
            said.append(f"run {index + 1}: {counted(steps, 'step')}{batch}{f', {facts.model}' if facts.model else ''}")
        return "; ".join(said) + ("; ..." if len(longest.parts) > _MOST_LISTED else "")

    def _told(self, rank: _Rank, index: int, pattern: Pattern, *, others: bool) -> dict[str, str]:
        """Return what lines said of a run of a rank; with ``others``, also what other ranks say and it does not."""
        told: dict[str, str] = {}
        for each in (*(self._ranks.values() if others else ()), rank):
            if index >= len(each.parts) - (not each.header):
                told |= each.heard.get(pattern.name, {})
            if index < len(each.parts):
                told |= each.parts[index].told
        return told | pattern.derive(told)

    def _facts(self, rank: _Rank, index: int) -> Facts:
        assert self._pattern is not None
        told = self._told(rank, index, self._pattern, others=True)
        batch, in_all, devices, parameters = (
            _whole(told[name]) if name in told else None for name in ("batch", "global_batch", "devices_in_all", "parameters")
        )
        precision = told.get("precision", "")
        return Facts(
            batch=batch, global_batch=in_all, devices_in_all=devices, model=told.get("model", ""), parameters=parameters,
            precision=_PRECISIONS.get(precision, precision),
        )  # fmt: skip

    def _tells(self, where: str, name: str, line: str) -> bool:
        """Return whether a line of a rank belongs to the log: matches its pattern, or has other facts."""
        heard, step = False, ""
        for pattern in PATTERNS if self._pattern is None else (self._pattern,):
            matches = list(itertools.islice(pattern.expression.finditer(line), _MOST_MATCHES))
            beside = _groups(fact.search(line) for fact in pattern.facts)
            begins = pattern.header is not None and pattern.header.search(line) is not None
            numbers = _groups([pattern.numbers.search(line)]) if pattern.numbers is not None else {}
            if not (matches or beside or begins or numbers):
                continue
            heard = True
            rank = self._rank(where, name)
            rank.header |= begins
            rank.heard.setdefault(pattern.name, {}).update(beside)
            if matches and self._take(where, rank, pattern, _groups(matches[-1:]), line):
                self._pattern, self._matched = pattern, True
                return True
            step = numbers.get("step", step)
        if step:
            rank.number(int(_number(where, "step", step)))
        return heard

    def _rank(self, where: str, name: str) -> _Rank:
        if name not in self._ranks:
            if len(self._ranks) >= _MOST_RANKS:
                raise InputError(f"{where}: is the line of more than {_MOST_RANKS:,} ranks; give the log of one")
            self._ranks[name] = _Rank(name)
        return self._ranks[name]

    def _take(self, where: str, rank: _Rank, pattern: Pattern, groups: dict[str, str], line: str) -> bool:
        """Take what a line says of steps; whether it told a time."""
        if groups.get("edge") == "start":
            rank.began = groups
            return False
        step = int(_number(where, "step", groups["step"])) if "step" in groups else None
        epoch = groups.get("epoch") or rank.heard[pattern.name].pop("epoch", "")
        new = rank.begins(pattern, step)
        index = len(rank.parts) - (not new)
        told = self._told(rank, index, pattern, others=False) or self._told(rank, index, pattern, others=True)
        groups |= _span(rank.began, groups, told) if "edge" in groups else {}
        name = next((name for name in TIMES if name in groups), "")
        count = _count(pattern, groups, told, step, rank.numbered if new else rank.parts[-1].run.last_step) if name else None
        if count is None:
            self._hint = pattern.hint or self._hint
            return False
        if name == "total_s" and "throughput" in groups:
            count, groups["global_batch"] = _with_batch(groups, told, count)
        elif name == "rate" and {"throughput", "samples"} <= groups.keys():  # has more digits
            name = "throughput"
        value = _number(where, name, groups[name])
        samples = _samples(told | groups, self._samples) if name == "throughput" else 1.0
        if samples is None:
            raise InputError(
                f"{where}: a throughput gives the time of a step only with the samples per step, which are unknown: give the batch"
            )
        duration_s = SECONDS_OF[name](value, samples) / (count if name == "total_s" else 1)
        relative = _half_a_digit(groups[name]) / value if value else math.inf
        part = rank.part(str(self._path), pattern, new=new)
        if "global_batch" in groups:
            part.told["global_batch"] = groups["global_batch"]
        if step is not None:
            part.follow(where, pattern, step, epoch or part.epoch, last=groups.get("target") == groups["step"])
        if _EVALUATED in line and pattern.cumulative and step is not None and part.opened is not None:
            part.run.amend(step)  # its last steps have no time without the evaluation
            return True
        if _EVALUATED in line:
            part.run.remark("times include the evaluation at the end of each epoch, because the log has no line before it")
        if pattern.cumulative and step is not None:
            steps = max(step - pattern.since, 0)
            part.add_mean(_Sum(steps, duration_s * steps, duration_s * steps * relative), pattern.since, relative)
            return True
        part.rounded(relative)
        part.run.add(part.run.last_step + count if step is None else step, duration_s, count=count)
        rank.unnumbered = step is None
        rank.numbered = rank.numbered if step is None else step
        return True


_PRECISIONS = {"fp16": "float16", "half": "float16", "bf16": "bfloat16", "float": "float32"}


def _groups(matches: Iterable[re.Match[str] | None]) -> dict[str, str]:
    """Return what expressions found, by the names of their groups; ValueError where one is a whole number that no count reaches."""
    groups = {name: value for match in matches if match is not None for name, value in match.groupdict().items() if value is not None}
    if any(len(value) > _MOST_DIGITS and value.replace(",", "").isdigit() for value in groups.values()):
        raise ValueError
    return groups


def _count(pattern: Pattern, groups: Told, told: Told, step: int | None, last: int | None) -> int | None:
    """The steps that a line's time is of; None where that is not known, or where it counts samples."""
    counted_to = groups.get("count") or groups.get("target")
    if counted_to is not None and counted_to == told.get("samples_in_all"):
        return None
    if "count" in groups:
        return int(groups["count"]) or None
    since = step - (last or 0) if step is not None else 0
    if "total_s" not in groups:
        return max(since, 1) if pattern.each == "epoch" or (pattern.each == "interval" and last) else 1
    if "before" in groups:
        return max(since if step is None else step - int(groups["before"]), 0) or None
    if step is not None:
        return since if since > 0 and (last is not None or "throughput" in groups) else None
    if "steps" in told:
        return _whole(told["steps"]) or None
    return round(float(groups["total_s"]) * float(groups["rate"])) or None if "rate" in groups else None


def _with_batch(groups: Told, told: Told, count: int) -> tuple[int, str]:
    """Steps that a time is of, and the samples of each, which are a whole number: else the time is that of one step."""
    time_s, throughput = float(groups["total_s"]), float(groups["throughput"])
    batch = time_s * throughput / count
    if "step" in groups and "before" not in groups:
        rounding = _half_a_digit(groups["total_s"]) * throughput + _half_a_digit(groups["throughput"]) * time_s
        if abs(batch - round(batch)) > rounding / count:
            count, batch = 1, batch * count
    elif "global_batch" in told:
        return count, told["global_batch"]
    return count, str(max(round(batch), 1))


def _samples(told: Told, otherwise: int | None) -> float | None:
    """Samples of a step, as the log says: in the unit of its throughput, else of all workers together."""
    said = told.get("samples") or told.get("global_batch")
    return float(said) if said is not None else otherwise


def _span(began: Told | None, ended: Told, told: Told) -> dict[str, str]:
    """The seconds between two lines and the steps in them, as far as these are known."""
    if began is None or began["span"] != ended["span"] or "global_batch" not in told:
        return {"total_s": "0"}
    samples = [float(line["samples_count"]) for line in (began, ended) if "samples_count" in line]
    if len(samples) == 2:
        taken = samples[1] - samples[0]
    else:
        taken = float(told.get("train_samples", 0)) * int(began.get("epochs") or ended.get("epochs") or 1)
    total_s = (int(ended["clock_ms"]) - int(began["clock_ms"])) / 1e3
    return {"total_s": f"{total_s:.3f}", "count": str(max(round(taken / float(told["global_batch"])), 0))}


def _whole(text: str) -> int:
    return round(float(text.replace(",", "")))


def _half_a_digit(text: str) -> float:
    """Half of the last digit's value of a number."""
    return 0.5 * 10.0 ** -len(text.partition(".")[2])


def _number(where: str, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{where}: {name}: {quoted(text)} must be a number; change the pattern") from None
    if not math.isfinite(value):
        raise InputError(f"{where}: {name}: {quoted(text)} must be finite; change the pattern")
    return value
