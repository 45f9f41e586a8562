"""Reads step times from lines of a log: :data:`PATTERNS` are the formats that are known, and a user may give an expression.

What a launcher puts before each line (a rank, a time) is taken off; each rank is a run of its own. Runs that follow each other in one
file are told apart by their headers and facts.

Some programs print the mean since they began (:attr:`Pattern.cumulative`). What the steps between two lines took is then the
difference of both sums, which rounding makes coarse: lines are taken together until it is known to 2%.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from calibrate.recorded.growing_file import Lines
from calibrate.recorded.run import Each, Facts, Growing, RecordedRun
from simulator.base.errors import InputError
from simulator.base.text import counted, format_share, listed
from simulator.base.validation_errors import quoted

__all__ = ["GROUPS", "PATTERNS", "Log", "Pattern", "compiled", "fits_a_pattern"]

GROUPS = {
    "step": "number of the step",
    "time_s": "seconds of a step",
    "time_ms": "milliseconds of a step",
    "rate": "steps/s",
    "throughput": "samples/s of all workers together; needs the batch and the workers",
}
"""Named groups of a pattern, of which one that tells a step's time must be there."""

Told = Mapping[str, str]
"""What lines say beside times, by the names of their groups."""

_TIMES = ("time_s", "time_ms", "time_us", "total_s", "rate", "throughput")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_KNOWN = 0.02
_MOST_MATCHES = 1000
_EVALUATED = " val_"
"""Metrics of an evaluation, whose time Keras counts in."""
_LOOKED_AT = 20_000
"""Lines that are held until one pattern fits."""
_MOST_RANKS = 10_000
_MOST_LISTED = 20


@dataclass(frozen=True)
class Pattern:
    """How lines tell steps.

    Attributes
    ----------
    name
        For messages; patterns of the same program share it, and the facts that are read.
    expression
        With the named groups of :data:`GROUPS` or these; the last match of a line counts. ``time_us``; ``total_s``, seconds of ``count``
        steps, or of those after the step ``before``, or of those since the line before; ``clock_ms``, where a ``span`` begins and ends;
        ``target``, the last step of an ``epoch``; ``samples`` of a step in the unit of the throughput; fields of :class:`Facts`.
    each
        What a line is the mean of.
    facts
        Expressions of other lines, with groups named as fields of :class:`Facts`, or as ``derive`` and the count of steps need.
    derive
        More that follows from what lines say; ``samples`` is what a throughput is divided by, where that is not the global batch.
    header
        A line with which a run begins.
    numbers
        A line with the number of the ``step`` that the line before is the end of.
    cumulative
        Lines tell means since step ``since``: since the epoch or the measurement began.
    since
        Steps before the first that the mean counts.
    hint
        What to do where such a line has no time of a step.
    """

    name: str
    expression: re.Pattern[str]
    each: Each
    facts: tuple[re.Pattern[str], ...] = ()
    derive: Callable[[Told], dict[str, str]] = lambda _: {}
    header: re.Pattern[str] | None = None
    numbers: re.Pattern[str] | None = None
    cumulative: bool = False
    since: int = 0
    hint: str = ""


def _of_tf_cnn(told: Told) -> dict[str, str]:
    """``images/sec`` is that of one process, which ``Batch size: ... global`` is not; one session drives all where ``SingleSess`` says so.

    Source: ``benchmark_cnn.py`` of tensorflow/benchmarks (``print_info``, and the call of ``benchmark_one_step``).
    """
    if not {"per_device", "own_devices", "global_batch"} <= told.keys():
        return {}
    per_device, in_all = int(told["per_device"]), int(told["global_batch"])
    own = 1 if "horovod/" in told["own_devices"] else max(told["own_devices"].count("'") // 2, 1)
    derived = {"devices_in_all": str(in_all // max(per_device, 1))}
    if told.get("single_session") != "True":
        derived |= {"samples": str(per_device * own)} | ({"batch": str(per_device)} if own == 1 else {})
    return derived


_PER_STEP = r"(?:(?P<time_us>\d+)us|(?P<time_ms>\d+)ms|(?P<time_s>\d+)s)/step"
_KERAS = (
    re.compile(r'^Model: "(?P<model>[^"]+)"'),
    re.compile(r"^\s*Trainable params: (?P<parameters>[\d,]+)"),
    re.compile(r"^Train for (?P<steps>\d+) steps"),
    re.compile(r"^Train on (?P<samples_in_all>\d+) samples"),
    re.compile(r"^Epoch (?P<epoch>\d+)/\d+"),
)
_RECORD = "add paceline.keras_callback.RecordSteps to the callbacks"
_NUMBERED = re.compile(r"\bloss = .*\bstep = (?P<step>\d+)")
_FAIRSEQ = (
    re.compile(r"training on (?P<devices_in_all>\d+) devices"),
    re.compile(r"num\. (?:shared )?model params: (?P<parameters>[\d,]+)"),
    re.compile(r"\| model:? (?P<model>\w+)"),
    re.compile(r"['\"]?\b(?P<precision>fp16|bf16)['\"]?[=:] ?True"),
)
_UPDATES = (
    r"(?:\bwps\W+(?P<throughput>\d+\.?\d*).*?)?\bups\W+(?P<rate>\d+\.?\d*)(?:.*?\bwpb\W+(?P<samples>\d+\.?\d*))?"
    r"(?:.*?\bbsz\W+(?P<global_batch>\d+\.?\d*))?(?:.*?\bnum_updates\W+(?P<step>\d+))?"
)
_FAIRSEQ_HEADER = re.compile(r"fairseq_cli\.train \| (?:Namespace\(|\{)")
_MLPERF = (
    re.compile(r':::MLLOG .*"key": "global_batch_size", "value": (?P<global_batch>\d+)'),
    re.compile(r':::MLLOG .*"key": "train_samples", "value": (?P<train_samples>\d+)'),
    re.compile(r':::MLLOG .*"key": "submission_benchmark", "value": "(?P<model>[^"]+)"'),
)
_MLPERF_HEADER = re.compile(r':::MLLOG .*"key": "init_start"')
_MLPERF_HINT = "MLPerf's blocks and epochs tell times of steps only where samples_count or train_samples, and global_batch_size, are logged"


def _mlperf_spans(span: str) -> re.Pattern[str]:
    return re.compile(
        rf':::MLLOG .*"time_ms": (?P<clock_ms>\d+).*"key": "(?P<span>{span})_(?P<edge>start|stop)"'
        r'(?:.*"epoch_count": (?P<epochs>\d+))?(?:.*"samples_count": (?P<samples_count>\d+))?'
    )


PATTERNS = (
    Pattern(
        "tf_cnn_benchmarks",
        re.compile(r"^\s*(?P<step>\d+)\s+images/sec: (?P<throughput>\d+\.?\d*) \+/- "),
        "interval",
        cumulative=True,
        header=re.compile(r"^TensorFlow:\s+\d"),
        facts=(
            re.compile(r"^Model:\s+(?P<model>\w[\w.-]*)\s*$"),
            re.compile(r"^Batch size:\s+(?P<global_batch>\d+) global"),
            re.compile(r"^\s+(?P<per_device>\d+) per device"),
            re.compile(r"^Devices:\s+(?P<own_devices>\[.*\])"),
            re.compile(r"^SingleSess:\s+(?P<single_session>\w+)"),
            re.compile(r"--use_(?P<precision>fp16)(?:=[Tt]rue|\s|$)"),
        ),
        derive=_of_tf_cnn,
    ),
    Pattern("tf.estimator", re.compile(r"global_step/sec: (?P<rate>\d+\.?\d*)(?:.*step = (?P<step>\d+))?"), "interval", numbers=_NUMBERED),
    Pattern(
        "tf.estimator",
        re.compile(r"\bloss = .*\bstep = (?P<step>\d+) \((?P<total_s>\d+\.?\d*) sec\)"),
        "interval",
        numbers=_NUMBERED,
    ),
    Pattern(
        "Keras",
        re.compile(rf"^\s*(?:(?P<count>\d+)/\d+ )?(?:- )?(?P<total_s>\d+)s (?=.*\bloss: )(?:.*?{_PER_STEP})?"),
        "epoch",
        facts=_KERAS,
        hint=f"verbose=2 of this Keras tells the seconds of an epoch and no number of steps; {_RECORD}",
    ),
    Pattern(
        "Keras",
        re.compile(rf"(?:^|\s)(?P<step>\d+)/(?:(?P<target>\d+)|Unknown)\s.*?{_PER_STEP}"),
        "interval",
        facts=_KERAS,
        cumulative=True,
        since=1,
        hint=f"this Keras counts samples, not steps; {_RECORD}",
    ),
    Pattern(
        "TimeHistory of TensorFlow's official models",
        re.compile(
            r"TimeHistory: (?P<total_s>\d+\.?\d*) seconds, (?P<throughput>\d+\.?\d*) examples/second "
            r"between steps (?P<before>\d+) and (?P<step>\d+)"
        ),
        "interval",
    ),
    Pattern(
        "TimeHistory of TensorFlow's official models",
        re.compile(
            r"\b(?:global step|num_batches|step)\W{1,4}(?P<step>\d+),\s*'?time_taken\W{1,4}(?P<total_s>\d+\.?\d*),"
            r"\s*'?(?:examples|images)_per_second\W{1,4}(?P<throughput>\d+\.?\d*)"
        ),
        "interval",
    ),
    Pattern(
        "Megatron-LM",
        re.compile(
            r"\biteration\s+(?P<step>\d+)/\s*\d+ \|.*elapsed time per iteration \(ms\): *(?P<time_ms>\d+\.?\d*)"
            r"(?:.*global batch size: *(?P<global_batch>\d+))?"
        ),
        "interval",
        header=re.compile(r"^-+ arguments -+$"),
        facts=(
            re.compile(r"using world size: (?P<devices_in_all>\d+)"),
            re.compile(r"(?:using |params_dtype \.+ )torch\.(?P<precision>b?float(?:16|32)?|half)\b"),
        ),
    ),
    Pattern(
        "fairseq",
        re.compile(rf'(?:\btrain_inner\b|^\s*\{{"epoch": ).*?{_UPDATES}'),
        "interval",
        facts=_FAIRSEQ,
        header=_FAIRSEQ_HEADER,
    ),
    Pattern("fairseq", re.compile(rf"\| train \|.*?{_UPDATES}"), "epoch", facts=_FAIRSEQ, header=_FAIRSEQ_HEADER),
    Pattern(
        "DLRM",
        re.compile(r"Finished training it (?P<step>\d+)/(?P<target>\d+) of epoch (?P<epoch>\d+), (?P<time_ms>\d+\.?\d*) ms/it"),
        "interval",
        facts=(re.compile(r"mini[-_]batch[-_]size[=:\s]+(?P<global_batch>\d+)"), re.compile(r"Running on (?P<devices_in_all>\d+) ranks")),
    ),
    # its "step" may count samples or tokens
    Pattern(
        "MLPerf",
        re.compile(r':::MLLOG .*"key": "(?:throughput|tracked_stats)", "value": (?:\{[^}]*?"throughput": )?(?P<throughput>\d+\.?\d*)'),
        "interval",
        facts=_MLPERF,
        header=_MLPERF_HEADER,
    ),
    Pattern("MLPerf", _mlperf_spans("block"), "epoch", facts=_MLPERF, header=_MLPERF_HEADER, hint=_MLPERF_HINT),
    Pattern("MLPerf", _mlperf_spans("epoch"), "epoch", facts=_MLPERF, header=_MLPERF_HEADER, hint=_MLPERF_HINT),
    Pattern(
        "Hugging Face's Trainer",
        re.compile(
            r"'train_runtime': '?(?P<total_s>\d+\.?\d*)'?, 'train_samples_per_second': '?(?P<throughput>\d+\.?\d*)'?, "
            r"'train_steps_per_second': '?(?P<rate>\d+\.?\d*)"
            r"|^\s*\{'(?:loss|grad_norm|eval_loss)': "
        ),
        "interval",
        header=re.compile(r"\*+ Running training \*+"),
        facts=(
            re.compile(r"Total optimization steps\s*=\s*(?P<steps>[\d,]+)"),
            re.compile(r"Total train batch size .*=\s*(?P<global_batch>[\d,]+)"),
            re.compile(r"Number of trainable parameters\s*=\s*(?P<parameters>[\d,]+)"),
        ),
        hint="Hugging Face's Trainer prints no times before its last line (train_runtime); wait for it, or give its trainer_state.json",
    ),
)
"""Patterns that are tried where the user gives none: the first by which a line tells a time is that of the log."""

_LAUNCHERS = re.compile(
    r"(?P<time>\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?(?: std(?:out|err) [FP])?\s+)"
    r"|\[(?:[^\]\s]*,)?(?P<mpirun>\d+)\]<std(?:out|err)>: ?"
    r"|\[(?:rank|default) ?(?P<torchrun>\d+)[^\]]*\]:? ?"
    r"|(?P<compose>[A-Za-z][\w.-]*[-_]\d+)\s+\| "
    r"|\[pod/(?P<pod>[^\]/\s]+)/[^\]\s]+\] "
    r"| *(?P<srun>\d+): "
    r"|(?P<pdsh>(?!epoch|step|iter|batch|train|val|loss|layer)[a-z][\w.-]*\d|\d+(?:\.\d+){3}): ",
    re.IGNORECASE,
)
"""What launchers put before a line: a time, or the name of a group stands for the rank or the host."""
_DOUBTFUL = ("srun", "pdsh")
"""May be part of what a program prints: taken off for patterns that are known alone."""


def _readings(line: str, *, doubtful: bool) -> Iterator[tuple[str, str]]:
    """Rank and rest of a line without what a launcher put before it, then the line as it stands."""
    rank, place = "", 0
    while prefix := _LAUNCHERS.match(line, place):
        group = prefix.lastgroup
        if group in _DOUBTFUL and (rank or not doubtful):
            break
        rank = prefix[group] if group is not None and group != "time" else rank
        place = prefix.end()
    if place:
        yield rank, line[place:]
    yield "", line


def fits_a_pattern(line: str) -> bool:
    """Whether a line is one of those that are known."""
    return any(pattern.expression.search(rest) for _, rest in _readings(line, doubtful=True) for pattern in PATTERNS)


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


@dataclass(frozen=True)
class _Sum:
    """What the first ``steps`` steps took, and by how much rounding may have changed it."""

    steps: int = 0
    total_s: float = 0.0
    rounding_s: float = 0.0


@dataclass
class _Part:
    """One run of one rank.

    Attributes
    ----------
    told
        What lines said of it beside times.
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
            steps = f"tells steps such as {several[0]:,} several times in turn" if several else "goes back to earlier steps again and again"
            raise InputError(
                f"{where}: {steps}, as where several processes write one file, and nothing "
                "tells which of them wrote a line; give the log of one, or let the launcher write their ranks (mpirun -tag-output, srun -l)"
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
    """What one rank wrote.

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
        """Whether a line is the first of another run: steps begin again, below a header or facts that are others."""
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
                any(self._tells(where, rank, rest) for rank, rest in _readings(line, doubtful=not self._of_the_user))
            except (ArithmeticError, ValueError):
                raise InputError(f"{where}: has a number that is none of steps ({quoted(line.strip())}); delete the line") from None
            if self._pattern is None and number > _LOOKED_AT:
                self.check()

    def runs(self) -> tuple[RecordedRun, ...]:
        """What was read until now, a run for each rank.

        Raises
        ------
        InputError
            Several runs follow each other, and none is chosen, or one that is not there.
        """
        ranks = [rank for rank in self._ranks.values() if rank.parts]
        several = max((len(rank.parts) for rank in ranks), default=0)
        if several > 1 and self._chosen is None:
            raise InputError(f"{self._path}: holds {several} runs; choose one, such as {self._path}#{several}: {self._listed(ranks)}")
        if not ranks:
            return (Growing(str(self._path), "log").run(),)
        index = (self._chosen or 1) - 1
        if not 0 <= index < several:
            raise InputError(f"{self._path}#{self._chosen}: there is no such run; it holds {counted(several, 'run')}")
        source = str(self._path) if self._chosen is None else f"{self._path}#{self._chosen}"
        return tuple(
            replace(rank.parts[index].run.run(), source=source, facts=self._facts(rank, index)) for rank in ranks if index < len(rank.parts)
        )

    def check(self) -> None:
        """That some line has told steps, where no more are to come.

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
        raise InputError(f"{self._path}: none of its {self._lines.count:,} lines is one of {tried}{hint}")

    def _listed(self, ranks: list[_Rank]) -> str:
        longest = max(ranks, key=lambda rank: len(rank.parts))
        said = []
        for index, part in enumerate(longest.parts[:_MOST_LISTED]):
            facts, steps = self._facts(longest, index), int(part.run.run().counts.sum())
            batch = f", global batch {facts.global_batch:,}" if facts.global_batch is not None else ""
            said.append(f"run {index + 1}: {counted(steps, 'step')}{batch}{f', {facts.model}' if facts.model else ''}")
        return "; ".join(said) + ("; ..." if len(longest.parts) > _MOST_LISTED else "")

    def _told(self, rank: _Rank, index: int, pattern: Pattern, *, others: bool) -> dict[str, str]:
        """What lines said of a run of a rank; with ``others``, also what other ranks say and it does not."""
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
        """Whether a line of a rank is one of the log's: of its pattern, or with what is said beside."""
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
        name = next((name for name in _TIMES if name in groups), "")
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
            raise InputError(f"{where}: a throughput is a step's time only with the samples of a step, which are not known; give the batch")
        duration_s = _INTO_S[name](value, samples) / (count if name == "total_s" else 1)
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
            part.run.remark("times hold the evaluation at each epoch's end, since the log has no line before it")
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
_INTO_S: Mapping[str, Callable[[float, float], float]] = {
    "time_s": lambda value, _: value,
    "time_ms": lambda value, _: value * 1e-3,
    "time_us": lambda value, _: value * 1e-6,
    "total_s": lambda value, _: value,
    "rate": lambda value, _: 1 / value if value else math.inf,
    "throughput": lambda value, samples: samples / value if value else math.inf,
}


def _groups(matches: Iterable[re.Match[str] | None]) -> dict[str, str]:
    return {name: value for match in matches if match is not None for name, value in match.groupdict().items() if value is not None}


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
