"""The one shape of every answer: a headline, a small table, and at most four labelled lines.

The terminal (``paceline/cli/terminal.py``), reports and the live page (``reporting/templates/answer.html``) show an :class:`Answer`;
everything else is behind ``--details``, in closed sections of a report, or in JSON. Here are the parts that all answers share, and the
answer of one result; :mod:`paceline.reporting.deciding` has that of several, :mod:`paceline.planning.sentences` that of a plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paceline.comparing import LITTLE
from simulator.base.text import (
    Kind,
    counted,
    format_bytes,
    format_change,
    format_interval,
    format_number,
    format_share,
    format_usd,
    listed,
    written,
)
from simulator.memory import PARTS, Memory
from simulator.resolve.resolve import resolve
from simulator.results.bottleneck import BOTH, first_of_all
from simulator.results.cost import usd_per_billion_tokens, usd_per_million_samples
from simulator.results.next_measurement import OWN_RUNS, calibrate_line, width_of
from simulator.results.results import Result
from simulator.spec.figures import Estimate

MOST_FIGURES = 6
_MOST_WARNINGS = 2


@dataclass(frozen=True)
class Figure:
    """A row of the small table.

    Attributes
    ----------
    what
        Such as ``throughput``.
    mean
        Mean over runs, or the measured value, as text.
    interval
        90% prediction interval, with the unit.
    note
        A remark of a few words, such as how a cost is made up.
    """

    what: str
    mean: str
    interval: str = ""
    note: str = ""


@dataclass(frozen=True)
class Answer:
    """What a person takes in first.

    Attributes
    ----------
    headline
        One sentence of at most 20 words.
    figures
        At most six.
    limit
        What limits the throughput, and what doubling one component brings.
    confidence
        How sure the answer is.
    watch_out
        What may make it wrong; empty if nothing is known.
    next
        What to do next, if possible a command.
    met
        Whether a goal is reached; None without one.
    heading
        What the values of the figures are: ``mean`` over runs, or ``value`` where some were measured.
    range_heading
        What their ranges are.
    """

    headline: str
    figures: tuple[Figure, ...] = ()
    limit: str = ""
    confidence: str = ""
    watch_out: str = ""
    next: str = ""
    met: bool | None = None
    heading: str = "mean"
    range_heading: str = "90% interval"

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """The labelled lines that say something."""
        lines = ("Limit", self.limit), ("Confidence", self.confidence), ("Watch out", self.watch_out), ("Next", self.next)
        return tuple((label, text) for label, text in lines if text)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The headline and the labelled lines."""
        return (self.headline, *(f"{label}: {text}" for label, text in self.lines))


def figure(what: str, estimate: Estimate, kind: Kind, unit: str = "", note: str = "") -> Figure:
    """Return a row of the small table, to three digits; the interval is left out where its ends cannot be told apart from the mean."""
    mean, low, high = (rounded(value, kind) for value in (estimate.mean, estimate.low, estimate.high))
    if mean == low == high:
        return Figure(what, f"{mean} {unit}".rstrip(), note=note)
    ends = f"{low} to {high}" if kind == "throughput" else format_interval(estimate.low, estimate.high, kind)
    return Figure(what, mean, f"{ends} {unit}".rstrip(), note)


def rounded(value: float, kind: Kind) -> str:
    """Return a mean to three significant digits."""
    return format_number(value) if kind == "throughput" else written(value, kind)


def thing_counted(results: Sequence[Result]) -> str:
    """What a user counts: ``worker``; ``device`` where some worker has several or a model is cut; ``replica`` where they share devices."""
    if all(result.scenario.cluster.replicas_per_device > 1 for result in results):
        return "replica"
    every = (
        result.ranks == 1 or (result.scenario.strategy.count_key == "workers" and result.ranks == result.scenario.workers)
        for result in results
    )
    return "worker" if all(every) else "device"


def size_in_words(result: Result) -> str:
    """How large a training is: ``8 workers``, ``4 replicas of 1 device``."""
    each = result.scenario.cluster.replicas_per_device
    shared = f" of {counted(-(-result.ranks // each), 'device')}" if each > 1 else ""
    return f"{counted(result.ranks, thing_counted([result]))}{shared}"


def headline_of(result: Result) -> str:
    """``Ring all-reduce on 8 workers: 21,400 samples/s, 73% of linear scaling.``; of a whole job its time and cost."""
    name = result.scenario.strategy.in_words
    scale = f", {format_share(result.scaling_efficiency.mean)} of linear scaling" if result.ranks > 1 and result.job is None else ""
    return f"{name[:1].upper()}{name[1:]} on {size_in_words(result)}: {outcome_in_words(result)}{scale}."


def outcome_in_words(result: Result) -> str:
    """What people want to know first: samples or tokens a second, or of a whole job its time and cost."""
    if result.job is None:
        return f"{rounded(result.rate.mean, 'throughput')} {result.scenario.unit.per_s}"
    cost = f" for {format_usd(result.job.cost_usd.mean)}" if result.job.cost_usd is not None else ""
    return f"the job takes {written(result.job.time_s.mean, 'seconds')}{cost}"


def figures_of(result: Result) -> tuple[Figure, ...]:
    """The figures of a result that people decide by."""
    return tuple(_figures(result))[:MOST_FIGURES]


def _figures(result: Result) -> Iterator[Figure]:
    job, step, stale, thing = result.job, result.step_time_s, result.staleness, thing_counted([result])
    if job is not None:
        yield figure("job time", job.time_s, "seconds")
        if job.cost_usd is not None:
            yield figure("job cost", job.cost_usd, "usd")
        yield figure("goodput", job.goodput, "share", note="time in kept steps")
        if job.checkpointing is not None and (best_s := job.checkpointing.best_s) is not None:
            yield Figure("checkpoint", written(best_s, "seconds"), note=f"best; now {written(job.checkpointing.interval_s, 'seconds')}")
    yield from throughput_figures(result)
    if result.ranks > 1:
        yield figure("efficiency", result.scaling_efficiency, "share", note=f"{format_number(result.speedup.mean)} times one {thing}")
    yield figure("step", result.mean_step_s, "seconds", note=f"p95 {written(step.p95, 'seconds')}")
    if stale.max:
        yield Figure("staleness", written(stale.mean, "updates"), note=f"updates, p95 {stale.p95:g}")
    if job is None and (cost := usd_per_billion_tokens(result)) is not None:
        yield figure("cost", cost, "usd", note="for a billion tokens")
    elif job is None and (cost := usd_per_million_samples(result)) is not None:
        yield figure("cost", cost, "usd", note="for a million samples")


def throughput_figures(result: Result) -> Iterator[Figure]:
    """The throughput; where samples are sequences in tokens, and the share of the devices' peak that the model needs for it."""
    yield figure("throughput", result.rate, "throughput", result.scenario.unit.per_s)
    tokens = result.tokens
    if tokens is not None and tokens.mfu is not None and tokens.mfu_with_attention is not None:
        yield figure("MFU (6ND)", tokens.mfu, "share", note=f"with attention {written(tokens.mfu_with_attention.mean, 'share')}")


def limit_of(result: Result, *, tried: bool = True) -> str:
    """What limits a result, and with ``tried`` what helped most in short trials."""
    limit, parts = result.bottleneck, result.breakdown_s
    waits = parts.waiting / parts.total if parts.total else 0.0
    words = limit.in_words
    alone = limit.group == "compute" and limit.balance is None
    if alone and waits >= LITTLE and (limit.share or 0.0) * parts.total >= parts.compute + parts.waiting:
        # a faster device shortens the waiting too, so that both count as compute
        words = words.replace(" of a step", f" of a step, including {format_share(waits)} waiting for the slowest worker", 1)
    trial = next((trial for trial in limit.tried if trial.change != BOTH), None) if tried else None
    helps = f"; {trial.change}: {format_change(trial.gain)}" if trial is not None and trial.gain >= LITTLE else ""
    return f"{words}{helps}"


def confidence_of(result: Result) -> str:
    """Return how often such intervals contained what was measured, or that this is unknown."""
    if result.discrepancy is None:
        return "run-to-run variation and fits only; the model's own error is not in the interval"
    return result.discrepancy.coverage_in_words


def watch_out(result: Result, *, more: str = "--details") -> str:
    """What keeps workers from doing more together, the warnings that question the figures most, and where the others are."""
    first = (text[:1].lower() + text[1:] for text in first_of_all(result.scenario, result.speedup.mean))
    doubts = dict.fromkeys(first, 1) | {warned.brief: warned.doubts for warned in result.warnings}
    ordered = sorted(doubts, key=lambda brief: -doubts[brief])
    shown, rest = ordered[:_MOST_WARNINGS], len(ordered) - _MOST_WARNINGS
    if rest > 0:
        shown.append(f"{rest} more: {more}")
    return "; ".join(shown)


_WORTH_MEASURING, _TELLING = 0.9, 0.1
"""A measurement that leaves more of the interval's width is not worth a line. A smaller share rests on what the interval leaves out."""


def next_of(result: Result, scenario: str = "SCENARIO") -> str:
    """Command that measures the part that narrows the interval most; else own runs for a refit of what the user calls ``scenario``."""
    best = next((measurement for measurement in width_of(result).measure_next if measurement.left <= _WORTH_MEASURING), None)
    if result.scenario.workload.uncertainty is None and (line := calibrate_line(resolve(result.scenario))):
        return f"`{line}` (the workload's times have no uncertainty yet)"
    if best is None:
        return ""
    width = f" (interval {'at best ' * best.at_best}{format_share(best.left)} as wide)" if best.left >= _TELLING else ""
    if not best.at_best:
        return f"`{best.command}`{width}"
    command = best.command.partition(" --out-scenario")[0].replace("SCENARIO.toml", scenario)
    return f"time {OWN_RUNS} runs on up to {counted(result.ranks, thing_counted([result]))}, then: `{command}`{width}"


def answer_of(result: Result, scenario: str = "SCENARIO") -> Answer:
    """The answer of one simulated scenario, which the user calls ``scenario``."""
    return Answer(
        headline=headline_of(result),
        figures=figures_of(result),
        limit=limit_of(result),
        confidence=confidence_of(result),
        watch_out=watch_out(result),
        next=next_of(result, scenario),
    )


def answer_of_memory(memory: Memory) -> Answer:
    """Whether a model fits into the device that has least left."""
    device, batch = memory.tightest, counted(memory.micro_batch, "sample")
    of = f" of {format_bytes(device.capacity_bytes)}" if device.capacity_bytes is not None else ""
    takes = "needs" if memory.micro_batch == 1 else "need"
    needs = f"{batch} at a time {takes} {device.need_in_words}{of}" if memory.not_checked is None else ""
    fits = "Not checked" if memory.not_checked is not None else "Does not fit" if memory.refused is not None else "Fits"
    largest = "" if not memory.largest_batch else f"the largest batch of a replica that fits is {memory.largest_batch:,}"
    unnamed = memory.not_checked is not None and memory.not_checked.endswith("names no device")
    uncounted = [f"{PARTS[part.name]} ({part.text})" for part in device.parts if part.size_bytes is None]
    problem, _, advice = (memory.refused or "").rpartition("; ")
    doubts = [problem if device.fits else "", f"not counted: {listed(uncounted)}" if uncounted else ""]
    if unnamed:
        advice = "`paceline models list devices` names devices for cluster.device"
    elif not memory.refused and (memory.largest_batch or 0) > memory.batch:
        advice = "`paceline simulate` with a larger batch shows whether it is faster"
    return Answer(
        headline=f"{fits}: {memory.not_checked or needs}.",
        limit="no batch fits" if memory.largest_batch == 0 else largest,
        confidence=memory.evidence,
        watch_out="; ".join(filter(None, doubts)),
        next=advice,
        met=None if memory.not_checked is not None else memory.refused is None,
    )
