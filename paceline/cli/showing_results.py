"""Prints results on stdout: several as tables, one in full; and what a device's memory holds.

Figures and their headings come from :data:`simulator.results.rows.COLUMNS`, sentences that other places say too from
:mod:`paceline.sentences`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import typer

from paceline.answers import answer_of, answer_of_memory, thing_counted
from paceline.cli.ending import MISSED
from paceline.cli.terminal import Part, Styled, display, display_answer, labelled, note
from paceline.requirements import Requirement, judged
from paceline.sentences import (
    cost_in_words,
    job_in_words,
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
    counted,
    format_bytes,
    format_interval,
    format_number,
    format_seconds,
    format_share,
    format_throughput,
    listed,
    written,
)
from simulator.results.cost import placement_of
from simulator.results.misread import left_out, left_out_in_words
from simulator.results.next_measurement import width_of
from simulator.results.results import Outcome, Result, unit_of
from simulator.results.rows import COLUMNS, IN_SAMPLES, IN_TOKENS
from simulator.spec.figures import Estimate, Phase, Staleness

if TYPE_CHECKING:
    from simulator.memory import Memory

_MOST = 999_999.5
"""Up to this throughput all digits of a whole number fit into a table of 80 characters."""


def exit_if_unmet(requirements: Sequence[Requirement], outcomes: Iterable[tuple[str, Outcome]]) -> None:
    """Report on stderr the requirements that an outcome misses, or meets by its mean only.

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
    """Show whether a model fits, the memory of the fullest device, and a line for each pipeline stage."""
    parts = memory.parts_table()
    known = [place for place, part in enumerate(memory.tightest.parts) if part.size_bytes is not None]
    tables: list[Part] = [replace(parts, title="", rows=tuple(parts.rows[place] for place in known))]
    if len(memory.devices) > 1:
        stages = memory.table()
        there = {column.name for column in stages.columns}  # what is free is not, where nobody knows what the device has
        tables.append(stages.only(*(name for name in ("name", "layers", "need_bytes", "free_bytes") if name in there)))
    display_answer(answer_of_memory(memory), *tables)


def show_table(results: Sequence[Result]) -> None:
    """Show which result to choose, and a table of all."""
    from paceline.reporting.content import content_of

    content = content_of(results)
    shown = content.results
    at = content.at
    titles = [at.title_of(index) for index in range(len(shown))]
    parts = [title.split(" · ") for title in titles]
    shared = set(parts[0]).intersection(*parts[1:])  # which tells nothing apart
    titles = [" · ".join(part for part in own if part not in shared) for own in parts]
    tables: list[Table] = [_table(shown, titles) if len(shown) <= _MOST_ROWS else _matrix(shown, titles)]
    if any(result.job is not None for result in shown):
        tables.append(jobs_table(shown, f"{thing_counted(shown)}s"))
    if any(result.extrapolated for result in shown) and len(shown) <= _MOST_ROWS:  # a matrix has no stars
        tables[0] = replace(tables[0], more="; ".join(filter(None, ["* beyond what was measured", tables[0].more])))
    display_answer(replace(content.decision, figures=()), *tables)


_MOST_ROWS = 12
"""Most results that get a row each; with more, the table shows only throughput."""
_MOST_COUNTS = 6


def _matrix(results: Sequence[Result], names: Sequence[str]) -> Table:
    """Return a table of throughputs: a row for each setting, a column for each number of workers (at most a few)."""
    counts, unit = sorted({result.ranks for result in results}), unit_of(results)
    step = (len(counts) - 1) / (_MOST_COUNTS - 1)
    shown = counts if len(counts) <= _MOST_COUNTS else [counts[round(place * step)] for place in range(_MOST_COUNTS)]
    rates: dict[str, dict[int, float]] = {}
    for name, result in zip(names, results, strict=True):
        rates.setdefault(name, {})[result.ranks] = result.rate_in(unit).mean
    thing = thing_counted(results)
    columns = (Column("setting", "text"), *(Column(f"{count:,}", "compact") for count in shown))
    left = listed([f"{count:,}" for count in counts if count not in shown])
    more = f"not shown: {left} {thing}s (--json)" if left else ""
    cells = tuple((name, *map(row.get, shown)) for name, row in rates.items())
    return Table(f"{unit.capitalize()}/s by number of {thing}s", columns, cells, more=more)


def _table(results: Sequence[Result], names: Sequence[str]) -> Table:
    named, unit = dict(zip(map(id, results), names, strict=True)), unit_of(results)
    columns = (
        Column("name", "text", "setting", by=lambda result: named[id(result)] if len(set(names)) > 1 else None),
        replace(
            COLUMNS["ranks"],
            short=f"{thing_counted(results)}s",
            by=lambda result: f"{result.ranks}{'*' if result.extrapolated else ' '}",
        ),
        replace(COLUMNS[(IN_TOKENS if unit == "tokens" else IN_SAMPLES)[0]], by=lambda result: _rate(result.rate_in(unit).mean)),
        Column("interval", short="90% interval", by=lambda result: _interval(result.rate_in(unit)), left=False),
        COLUMNS["mfu"],
        COLUMNS["scaling_efficiency"],
        COLUMNS["step_mean_s"],
        replace(COLUMNS["staleness_mean"], kind="throughput", by=lambda result: result.staleness.mean or None),
        replace(COLUMNS["limit"], of="bottleneck.label"),
    )
    table = Table.reading("", columns, results).narrow(*(column.name for column in columns))
    if len(set(names)) == 1:
        return table
    left_out = {"step_mean_s"} | ({"ranks"} if len({result.ranks for result in results}) == 1 else set())  # for the words need the room
    return table.only(*(column.name for column in table.columns if column.name not in left_out))


def _rate(rate: float) -> str:
    return written(rate, "number" if rate < _MOST else "compact")


def _interval(rate: Estimate) -> str:
    return format_interval(rate.low, rate.high, "compact")


def show_result(result: Result, scenario: str, *, assumptions: bool = False, details: bool = False) -> None:
    """Show one result: the answer, and with ``details`` everything known about it.

    Parameters
    ----------
    result
        To show.
    scenario
        What the user calls its scenario.
    assumptions
        Whether assumed values are listed instead of counted.
    details
        Whether to show warnings in full, the parts of a step, the sources of the interval's width, and measurements that narrow it.
    """
    display_answer(answer_of(result, scenario), footer="" if details or assumptions else "Details: --details")
    if assumptions and not details:
        display("", labelled(_assumed(result, in_full=True)))
    if not details:
        return
    display("", labelled([*_more(result), *_details(result, assumptions=assumptions)]))
    if result.job is not None:
        display("", Styled("The job", "bold"), labelled(job_in_words(result)))
    tables = [stages_table(result), exchanges_table(result)]
    if result.job is not None:
        epochs = epochs_table(result)
        names = [column.name for column in epochs.columns]
        if "iterators_s" in names:  # there is no room for all; the lines above have the number of steps
            epochs = epochs.only(*(name for name in names if name != "steps"))
        tables += [parts_table(result).only("part", "seconds", "share"), epochs]
    for table in (*tables, width_table(result)):
        if table.rows:
            display("", table)
    display(*measurements(result))


def measurements(result: Result) -> Iterator[Part]:
    """Yield each command that would narrow the interval, with the interval expected afterwards and its basis."""
    table = measurements_table(result)
    if table.rows:
        yield from ("", Styled(table.title, "bold"))
    for measurement in width_of(result).measure_next:
        unit = result.scenario.unit
        then = measurement.throughput_samples_per_s.times(unit.per_sample)
        interval = f"{format_interval(then.low, then.high, 'throughput')} {unit.per_s}"
        best = "at best " if measurement.at_best else ""
        yield measurement.command
        yield Styled(f"{best}{interval}, {format_share(measurement.left)} of the width: {', '.join(measurement.narrows)}", indent=2)
        yield Styled(measurement.rests_on, "dim", 2)


def _more(result: Result) -> Iterator[tuple[str, str]]:
    """Yield the limit, the cost and every warning, in full."""
    yield "limit", f"{result.bottleneck.text} {result.bottleneck.remedy}"
    if (cost := cost_in_words(result)) is not None:
        yield "cost", cost
    for warning in result.warnings:
        yield "warning", f"{warning.text} ({warning.code})"


_LITTLE = 0.005
"""Smaller shares of a step are left out."""


def _details(result: Result, *, assumptions: bool) -> Iterator[tuple[str, str]]:
    """Yield the parts of a step, the basis of the interval, and what was assumed and left out."""
    step, parts = result.step_time_s, result.breakdown_s
    yield "placement", (result.placement or placement_of(result.scenario)).text
    speedup, efficiency = result.speedup, result.scaling_efficiency
    interval = format_interval(efficiency.low, efficiency.high, "share")
    share = written(efficiency.mean, "share")
    fed = (parts.compute + (0.0 if result.scenario.servers else parts.apply)) / step.mean
    waits = f", which also waits for input; {format_share(fed)} of one that does not" if parts.input > _LITTLE * step.mean else ""
    yield "efficiency", f"{share} (90% of runs: {interval}), {format_number(speedup.mean)} times the single-replica baseline{waits}"
    quantiles = ("mean", step.mean), ("p50", step.p50), ("p95", step.p95), ("p99", step.p99)
    yield "step time", ", ".join(f"{name} {format_seconds(value)}" for name, value in quantiles)
    shares = [f"{name.replace('_', ' ')} {format_share(value / step.mean)}" for name, value in parts if value > _LITTLE * step.mean]
    if result.hidden_communication_s > _LITTLE * step.mean:
        shares.append(f"hidden communication {format_seconds(result.hidden_communication_s)}")
    yield "of a step", ", ".join(shares)
    yield from _particulars(result)
    for coverage in result.coverage:
        if coverage.grade != "uncovered":  # which is warned about
            yield coverage.grade, coverage.text
    yield "left out", f"{left_out_in_words(left_out(result.scenario))} (docs/metrics.md)"
    yield from _assumed(result, in_full=assumptions)


def _assumed(result: Result, *, in_full: bool) -> Iterator[tuple[str, str]]:
    """Yield the values assumed for keys that the scenario leaves out, or only their number."""
    if in_full:
        yield from (("assumed", f"{taken.path} = {taken.value}: {taken.reason}") for taken in result.assumed)
    elif result.assumed:
        yield "assumed", f"{counted(len(result.assumed), 'value')} missing from the scenario: --assumptions"


def _particulars(result: Result) -> Iterator[tuple[str, str]]:
    """Yield lines that apply to some strategies and runs only."""
    unit, pace, reduction, stale = result.scenario.unit, result.scenario.strategy.pace, result.scenario.strategy.reduction, result.staleness
    if any(stage.staleness for stage in result.stages):
        yield "staleness", f"mean {written(stale.mean, 'updates')} over the stages, p95 {stale.p95}, p99 {stale.p99}, max {stale.max}"
    if result.scenario.servers:
        bound = "" if stale.bound is None else f", at most {stale.bound} under bound {pace.bound}"
        yield "staleness", f"mean {written(stale.mean, 'updates')}, p95 {stale.p95}, p99 {stale.p99}, max {stale.max}{bound}"
        if len(stale.per_server_mean) > 1:
            yield "servers", _by_server(stale)
        if pace.backups:
            wasted = format_throughput(result.wasted_samples_per_s * unit.per_sample)
            yield "dropped", f"{format_share(result.dropped_share)} of gradients; {wasted} {unit.per_s} wasted"
    elif reduction is not None and reduction.chosen:
        yield "chosen", _chosen(result)
    if result.phase is not None:
        yield "phases", _phases(result.phase)
    rates = [rate * unit.per_sample for rate in result.throughput_of_each_replication]
    if rates and len(rates) != _RANGE_IS_INTERVAL and result.scenario.run.total_steps(result.ranks) < _SHORT * result.ranks:
        yield "runs", f"{format_throughput(min(rates))} to {format_throughput(max(rates))} {unit.per_s} over {len(rates)} runs"


_RANGE_IS_INTERVAL = 19
"""With at most this many replications, the 90% interval spans all of them."""
_SHORT = 1000
"""With fewer steps of a worker, runs differ much."""
_LISTED = 4


def _by_server(stale: Staleness) -> str:
    means = stale.per_server_mean
    some = [written(mean, "updates") for mean in means]
    shown = ", ".join(some) if len(some) <= _LISTED else format_interval(min(means), max(means), "updates")
    if not stale.mixed_reads:
        return f"staleness {shown}; no read mixes versions"
    return f"staleness {shown}; {format_share(stale.mixed_reads)} of reads mix versions, by up to {stale.mixed_spread_max}"


def _chosen(result: Result) -> str:
    """Return algorithm and protocol by message size; equal neighbours are merged."""
    reduced = sorted(result.all_reduces, key=lambda each: each.size_bytes)
    texts = []
    for name, same in groupby(reduced, lambda each: each.algorithm if each.protocol == "none" else f"{each.algorithm} ({each.protocol})"):
        sizes = [each.size_bytes for each in same]
        texts.append(f"{name} for {' to '.join(dict.fromkeys(format_bytes(size) for size in (sizes[0], sizes[-1])))}")
    more = f", and {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""
    return ", ".join(texts[:_LISTED]) + more if texts else "nothing to reduce"


def _phases(phase: Phase) -> str:
    if phase.mixed_after_s is None:
        return f"not mixed by the end (order {phase.order_at_end:.2f}; random phases: mostly below {phase.order_of_random_phases:.2f})"
    some = "" if phase.mixed_share == 1 else f", in {format_share(phase.mixed_share)} of the runs"
    return f"mixed after {format_seconds(phase.mixed_after_s)}{some}"
