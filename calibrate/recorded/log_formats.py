"""Formats of logs: by which lines programs tell steps (:data:`PATTERNS`), and what launchers put before them.

Another format is one more entry; :mod:`calibrate.recorded.log` reads them all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from calibrate.recorded.run import Each
from simulator.base.errors import InputError
from simulator.base.text import listed
from simulator.base.validation_errors import quoted

GROUPS = {
    "step": "number of the step",
    "time_s": "seconds of a step",
    "time_ms": "milliseconds of a step",
    "rate": "steps/s",
    "throughput": "samples/s of all workers together; needs the batch and the workers",
}
"""Named groups of a pattern, of which one that tells a step's time must be there."""

Told = Mapping[str, str]
"""Facts of lines other than times, by the names of their groups."""

TIMES = ("time_s", "time_ms", "time_us", "total_s", "rate", "throughput")
"""Groups that tell a step's time."""


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
_MLPERF_HINT = "MLPerf's blocks and epochs give times of steps only if samples_count or train_samples, and global_batch_size, are logged"


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
        hint=f"verbose=2 of this Keras prints the seconds of an epoch without the number of steps; {_RECORD}",
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
        hint="Hugging Face's Trainer prints no times before its last line (train_runtime): wait for it, or give its trainer_state.json",
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
"""Prefixes of launchers: a time, or a named group for the rank or the host."""
_DOUBTFUL = ("srun", "pdsh")
"""May be part of what a program prints: taken off for patterns that are known alone."""


def readings(line: str, *, doubtful: bool) -> Iterator[tuple[str, str]]:
    """Yield rank and rest of a line without a launcher's prefix, then the line as it is."""
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
    """Return whether a line is one of those that are known."""
    return any(pattern.expression.search(rest) for _, rest in readings(line, doubtful=True) for pattern in PATTERNS)


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
    times = [name for name in TIMES if name in expression.groupindex]
    if len(times) != 1:
        fault = f"has the groups {listed(times)}; keep one" if times else "has no named group for a step's time"
        raise InputError(f"`pattern`: {quoted(text)} {fault}; {known}, such as 'step (?P<step>\\d+) took (?P<time_s>[\\d.]+) s'")
    return Pattern("the pattern", expression, "step")
