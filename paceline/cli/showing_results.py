"""Prints results on stdout: several as tables, one in full; and what a device's memory holds.

Figures and their headings come from :data:`simulator.results.rows.COLUMNS`, sentences that other places say too from
:mod:`paceline.sentences`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import typer

from paceline.cli.ending import MISSED
from paceline.cli.terminal import Part, Styled, display, note
from paceline.comparing import rank, rivals_of, verdict
from paceline.requirements import Requirement, judged
from paceline.sentences import (
    cost_in_words,
    fastest_in_words,
    job_in_words,
    measure_next_in_words,
    memory_in_words,
    variance_in_words,
)
from paceline.tables import (
    epochs_table,
    exchanges_table,
    jobs_table,
    measurements_table,
    parts_table,
    stages_table,
    width_table,
)
from simulator.base.table import Column, Table
from simulator.base.text import (
    format_bytes,
    format_interval,
    format_number,
    format_seconds,
    format_share,
    format_throughput,
    written,
)
from simulator.results.cost import placement_of
from simulator.results.misread import left_out, left_out_in_words
from simulator.results.next_measurement import width_of
from simulator.results.results import Outcome, Result
from simulator.results.rows import COLUMNS
from simulator.spec.figures import Phase, Placement, Staleness

if TYPE_CHECKING:
    from rich.console import RenderableType

    from paceline.reporting.coordinates import Coordinates
    from simulator.memory import Memory

_MOST = 999_999.5
"""Up to this throughput all digits of a whole number fit into a table of 80 characters."""


def exit_if_unmet(requirements: Sequence[Requirement], outcomes: Iterable[tuple[str, Outcome]]) -> None:
    """Say on stderr which requirements each outcome, given with what begins its lines, misses, or meets by its estimate alone.

    Raises
    ------
    typer.Exit
        One is missed: exit code 3.
    """
    missed = False
    for name, outcome in outcomes if requirements else ():
        if isinstance(outcome, Result):
            unmet, straddling = judged(requirements, outcome)
            missed |= bool(unmet)
            for text in (*straddling, *unmet):
                note(f"paceline: {name}{text}")
    if missed:
        raise typer.Exit(MISSED)


def show_memory(memory: Memory) -> None:
    """The parts of the device that has least left, a line for each stage of a pipeline, and what that means."""
    display(memory.parts_table())
    if len(memory.devices) > 1:
        table = memory.table()
        there = {column.name for column in table.columns}  # what is free is not, where nobody knows what the device has
        display("", table.only(*(name for name in ("name", "layers", "need_bytes", "free_bytes") if name in there)))
    display("", *memory_in_words(memory))


def show_table(results: Sequence[Result]) -> None:
    """A table for each strategy, and below them who is faster than whom, and what all of them assume."""
    from paceline.reporting.coordinates import coordinates_of

    at = coordinates_of(results)
    names = [at.title_of(index) for index in range(len(results))]
    for name in dict.fromkeys(names):
        own = [result for result, other in zip(results, names, strict=True) if other == name]
        display(_table(name, own), "")
        if any(result.job is not None for result in own):
            display(jobs_table(own, _counted(results)), "")
    display(*_extrapolated(results), *_against(results, at))
    assumed = dict.fromkeys(warning.text for result in results for warning in result.warnings if warning.in_tables)
    display(*(Styled(text, "dim", 2) for text in assumed))


def _extrapolated(results: Iterable[Result]) -> list[Styled]:
    return [Styled("* beyond what was measured: an extrapolation", "dim")] if any(result.extrapolated for result in results) else []


_MOST_COMPARED = 4


def _against(results: Sequence[Result], at: Coordinates) -> Iterator[str]:
    """The best against each of the others under the same conditions, where the most ranks are that more than one of them has."""
    counts = Counter(result.ranks for result in results)
    most = max((count for count, held in counts.items() if held > 1), default=None)
    if most is None:
        return
    there = [index for index, result in enumerate(results) if result.ranks == most]
    counted, conditions = _counted(results), {at.conditions[index] for index in there}
    for met in sorted(conditions):
        best = min((index for index in there if at.conditions[index] == met), key=lambda index: rank(results[index]))
        where = " and ".join(filter(None, (f"at {most:,} {counted if most > 1 else counted.removesuffix('s')}", at.met_by(best))))
        others, name = rivals_of(results, best, at.conditions), at.title_of(best, conditions=False)
        shown = others[: max(_MOST_COMPARED // len(conditions), 1)]
        for other in shown:
            text = verdict(results[best], results[other], name, at.title_of(other, conditions=False), where)
            yield f"{text[:1].upper()}{text[1:]}."
        if more := len(others) - len(shown):
            yield f"{'One other is' if more == 1 else f'{more} others are'} slower on average."
        if others:
            yield fastest_in_words([results[index] for index in (best, *others)], 0, name, where)


def _counted(results: Sequence[Result]) -> str:
    return "replicas" if all(result.ranks == result.replicas for result in results) else "ranks"


def _table(title: str, results: Sequence[Result]) -> Table:
    scaling = " and ".join(sorted({"weak" if result.scenario.workload.global_batch is None else "strong" for result in results}))
    columns = (
        replace(COLUMNS["ranks"], short=_counted(results), by=lambda result: f"{result.ranks}{'*' if result.extrapolated else ' '}"),
        replace(COLUMNS["nodes"], by=lambda result: str(_placement(result).nodes)),
        replace(COLUMNS["throughput_samples_per_s"], by=_rate),
        Column("interval", short="90% interval", by=_interval, left=False),
        COLUMNS["scaling_efficiency"],
        COLUMNS["step_mean_s"],
        replace(COLUMNS["staleness_mean"], kind="throughput"),
        replace(COLUMNS["bottleneck"], of="bottleneck.label"),
    )
    return Table.reading(f"{title}, {scaling} scaling", columns, results).narrow(*(column.name for column in columns))


def _rate(result: Result) -> str:
    rate = result.throughput_samples_per_s.mean
    return written(rate, "throughput" if rate < _MOST else "compact")


def _interval(result: Result) -> str:
    rate = result.throughput_samples_per_s
    return format_interval(rate.low, rate.high, "compact")


def _placement(result: Result) -> Placement:
    """Where its processes sit; results written before it was kept are placed now."""
    return result.placement if result.placement is not None else placement_of(result.scenario)


def show_result(result: Result, *, assumptions: bool = False, details: bool = False) -> None:
    """One result: the answer, what limits it and what to beware of, and below that the details.

    Parameters
    ----------
    result
        To show.
    assumptions
        Whether what was assumed is shown in full, instead of counted.
    details
        Whether it is shown what the width of the interval is made of, and all that would narrow it.
    """
    display(_table(result.scenario.strategy.in_words, [result]), *_extrapolated([result]), "", _beside(_answer(result)), "")
    if result.job is not None:
        display(Styled("The job", "bold"), _beside(job_in_words(result)), "")
    display(Styled("Details of the prediction", "bold"), _beside(_details(result, assumptions=assumptions)))
    tables = [stages_table(result), exchanges_table(result)]
    if result.job is not None:
        epochs = epochs_table(result)
        names = [column.name for column in epochs.columns]
        if "iterators_s" in names:  # there is no room for all; the lines above have the number of steps
            epochs = epochs.only(*(name for name in names if name != "steps"))
        tables += [parts_table(result).only("part", "seconds", "share"), epochs]
    if details:
        tables.append(width_table(result))
    for table in tables:
        if table.rows:
            display("", table)
    if details:
        display(*measurements(result))


def measurements(result: Result) -> Iterator[Part]:
    """Each command that would narrow the interval, with the one that is expected then, and what that rests on."""
    table = measurements_table(result)
    if table.rows:
        yield from ("", Styled(table.title, "bold"))
    for measurement in width_of(result).measure_next:
        then = measurement.throughput_samples_per_s
        interval = f"{format_interval(then.low, then.high, 'throughput')} samples/s"
        best = "at best " if measurement.at_best else ""
        yield measurement.command
        yield Styled(f"{best}{interval}, {format_share(measurement.left)} as wide: {', '.join(measurement.narrows)}", indent=2)
        yield Styled(measurement.rests_on, "dim", 2)


def _beside(lines: Iterable[tuple[str, str]]) -> RenderableType:
    """Headings with texts beside them, in two columns."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    for heading, text in lines:
        grid.add_row(heading, Text(text), style="yellow" if heading == "warning" else None)
    return grid


def _answer(result: Result) -> Iterator[tuple[str, str]]:
    """Limit, cost, and what to beware of."""
    limit = result.bottleneck
    yield "limit", f"{limit.text} {limit.tried}".rstrip()
    if (cost := cost_in_words(result)) is not None:
        yield "cost", cost
    if measure := measure_next_in_words(result):
        yield "measure", measure
    for warning in result.warnings:
        yield "warning", f"{warning.text} ({warning.code})"


_LITTLE = 0.005
"""Shares of a step that are not told."""


def _details(result: Result, *, assumptions: bool) -> Iterator[tuple[str, str]]:
    """Where a step's time goes, what the interval rests on, and what was assumed and left out."""
    step, parts = result.step_time_s, result.breakdown_s
    named = (
        ("input", parts.input),
        ("compute", parts.compute),
        ("exposed communication", parts.exposed_communication),
        ("waiting", parts.waiting),
        ("apply", parts.apply),
    )
    yield "placement", _placement(result).text
    speedup, efficiency = result.speedup, result.scaling_efficiency
    interval = format_interval(efficiency.low, efficiency.high, "share")
    share = written(efficiency.mean, "share")
    fed = (parts.compute + (0.0 if result.scenario.servers else parts.apply)) / step.mean
    waits = f", which waits for its input as well; {format_share(fed)} of one that does not" if parts.input > _LITTLE * step.mean else ""
    yield "efficiency", f"{share} (90% of runs: {interval}), {format_number(speedup.mean)} times one replica alone{waits}"
    quantiles = ("mean", step.mean), ("p50", step.p50), ("p95", step.p95), ("p99", step.p99)
    yield "step time", ", ".join(f"{name} {format_seconds(value)}" for name, value in quantiles)
    shares = [f"{name} {format_share(value / step.mean)}" for name, value in named if value > _LITTLE * step.mean]
    if result.hidden_communication_s > _LITTLE * step.mean:
        shares.append(f"hidden communication {format_seconds(result.hidden_communication_s)}")
    yield "of a step", ", ".join(shares)
    yield from _particulars(result)
    if variance := variance_in_words(result):
        yield "interval", variance
    for coverage in result.coverage:
        if coverage.grade != "uncovered":  # which is warned about
            yield coverage.grade, coverage.text
    yield "left out", f"{left_out_in_words(left_out(result.scenario))} (docs/metrics.md)"
    if assumptions:
        yield from (("assumed", f"{taken.path} = {taken.value}: {taken.reason}") for taken in result.assumed)
    elif result.assumed:
        count = len(result.assumed)
        yield (
            "assumed",
            f"{count} {'value' if count == 1 else 'values'} that the scenario does not give; --assumptions shows each and its reason",
        )


def _particulars(result: Result) -> Iterator[tuple[str, str]]:
    """Lines that only some strategies and runs have."""
    pace, reduction, stale = result.scenario.strategy.pace, result.scenario.strategy.reduction, result.staleness
    if any(stage.staleness for stage in result.stages):
        yield "staleness", f"mean {written(stale.mean, 'updates')} over the stages, p95 {stale.p95}, p99 {stale.p99}, max {stale.max}"
    if result.scenario.servers:
        bound = "" if stale.bound is None else f", at most {stale.bound} under bound {pace.bound}"
        yield "staleness", f"mean {written(stale.mean, 'updates')}, p95 {stale.p95}, p99 {stale.p99}, max {stale.max}{bound}"
        if len(stale.per_server_mean) > 1:
            yield "servers", _by_server(stale)
        if pace.backups:
            yield (
                "dropped",
                f"{format_share(result.dropped_share)} of gradients; {format_throughput(result.wasted_samples_per_s)} samples/s wasted",
            )
    elif reduction is not None and reduction.chosen:
        yield "chosen", _chosen(result)
    if result.phase is not None:
        yield "phases", _phases(result.phase)
    rates = result.throughput_of_each_replication
    if rates and len(rates) != _RANGE_IS_INTERVAL and result.scenario.run.total_steps(result.ranks) < _SHORT * result.ranks:
        yield "runs", f"{format_throughput(min(rates))} to {format_throughput(max(rates))} samples/s over {len(rates)} runs"


_RANGE_IS_INTERVAL = 19
"""With this number of replications the 90% interval goes from the least to the largest."""
_SHORT = 1000
"""Steps of a worker below which runs differ much from one another."""
_LISTED = 4


def _by_server(stale: Staleness) -> str:
    means = stale.per_server_mean
    some = [written(mean, "updates") for mean in means]
    shown = ", ".join(some) if len(some) <= _LISTED else format_interval(min(means), max(means), "updates")
    if not stale.mixed_reads:
        return f"staleness {shown}; no read mixes versions"
    return f"staleness {shown}; {format_share(stale.mixed_reads)} of reads mix versions, by up to {stale.mixed_spread_max}"


def _chosen(result: Result) -> str:
    """Algorithm and protocol of each size, equal neighbours as one."""
    reduced = sorted(result.all_reduces, key=lambda each: each.size_bytes)
    texts = []
    for name, same in groupby(reduced, lambda each: each.algorithm if each.protocol == "none" else f"{each.algorithm} ({each.protocol})"):
        sizes = [each.size_bytes for each in same]
        texts.append(f"{name} for {' to '.join(dict.fromkeys(format_bytes(size) for size in (sizes[0], sizes[-1])))}")
    more = f", and {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""
    return ", ".join(texts[:_LISTED]) + more if texts else "nothing to reduce"


def _phases(phase: Phase) -> str:
    if phase.mixed_after_s is None:
        return f"not mixed by the end (order {phase.order_at_end:.2f}; random: mostly below {phase.order_of_random_phases:.2f})"
    some = "" if phase.mixed_share == 1 else f", in {format_share(phase.mixed_share)} of the runs"
    return f"mixed after {format_seconds(phase.mixed_after_s)}{some}"
