"""Renders a report's page: jinja2 puts text, figures and data into ``templates/``; everything that the page needs is inside.

Names of values that are handed to the templates, and of figures in them, stand on both sides. What the page says is in content.py, what its
script draws from in columns.py. The filters of :func:`environment` serve the page of validations too.
"""

from __future__ import annotations

import math
import re
import statistics
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup, escape

from paceline.comparing import LITTLE
from paceline.planning.sentences import months_in_words
from paceline.planning.tables import brief, plan_tables
from paceline.reporting.axes import JOB_COLOURS, Figure, marker_symbol, part_colour
from paceline.reporting.columns import PARTS, columns_of, map_of
from paceline.reporting.content import Answer, Change, Content, content_of, helpful, line_of, most_helpful_in_words
from paceline.reporting.figures import (
    KIND_LABELS,
    MEMORY_COLOURS,
    STAGE_PARTS,
    calibration_figure,
    curves_figure,
    job_timeline_figure,
    memory_figure,
    pareto_figure,
    paying_figure,
    sensitivity_figure,
    stages_figure,
    strips_of,
    target_figure,
    timeline_figure,
)
from paceline.sentences import (
    coverage_in_words,
    goal_in_words,
    job_in_words,
    length_in_words,
    limit_in_words,
    measure_next_in_words,
    memory_in_words,
    servers_note,
    time_note,
    variance_in_words,
    work_note,
    workers_note,
)
from paceline.tables import (
    CONFIGURATION,
    PART_LABELS,
    calibration_table,
    curve_errors_table,
    epochs_table,
    exchanges_table,
    measured_table,
    measurements_table,
    parts_table,
    sensitivity_table,
    stages_table,
    timeline_table,
    width_table,
)
from simulator.base.files import Output, marked_kind
from simulator.base.table import Table
from simulator.base.text import (
    clause,
    clean,
    counted,
    format_bytes,
    format_change,
    format_hourly,
    format_interval,
    format_number,
    format_seconds,
    format_share,
    format_throughput,
    format_usd,
    kind_of,
    listed,
    listed_numbers,
    sentence,
    written,
)
from simulator.memory import PARTS as PARTS_OF_MEMORY
from simulator.memory import Memory, memory
from simulator.results.cost import cost_of_samples, placement_of, usd_per_hour, usd_per_million_samples
from simulator.results.misread import left_out
from simulator.results.results import Result
from simulator.results.rows import COLUMNS
from simulator.scenario import Scenario
from simulator.spec.workload import Workload

if TYPE_CHECKING:
    from paceline.learning.learned import Learned
    from paceline.planning.answer import Plan
    from paceline.reporting.coordinates import Coordinates
    from paceline.reporting.measured import Overlay
    from paceline.reporting.timeline import Timeline

GENERATOR = '<meta name="generator" content="Paceline">'
"""What tells a report of ours from any other file."""
REPORT = marked_kind("report", GENERATOR)
"""Pages that a new one may replace."""

SCRIPTS = (
    "format.js",
    "plots.js",
    "data.js",
    "state.js",
    "axes.js",
    "traces.js",
    "tables.js",
    "pairs.js",
    "scaling.js",
    "against.js",
    "staleness.js",
    "steps.js",
    "job.js",
    "map.js",
    "sensitivity.js",
    "utilisation.js",
    "controls.js",
    "main.js",
)
"""The page's own script, in the order in which its parts are put together."""

_MOST_PLAIN_ROWS = 200
_OPEN_TABLES = ("plan-clusters", "plan-ways", "plan-candidates", "plan-improvements")
"""Tables of a plan that are not folded."""
_LONGEST = 600


def write_report(results: Sequence[Result], out: Path, *, force: bool = False, **said: Any) -> Path:
    """Write the scaling report of some results as one HTML file that opens offline.

    Parameters
    ----------
    results, said
        As :func:`paceline.reporting.content.content_of` takes them.
    out
        Where to write; a report that is there is replaced.
    force
        Replace a file at ``out`` that is no report.

    Raises
    ------
    ResultsError
        There is no result, or not one label per result.
    InputError
        ``out`` cannot be written, or is no report.
    """
    return Output(out, REPORT, force=force).write(render(content_of(results, **said)))


def plotly_script() -> str:
    """plotly.js with its plane figures alone, a third of the whole: the package plotly.js-cartesian-dist-min, as it is."""
    return (Path(__file__).parent / "vendored" / "plotly-cartesian.min.js").read_text(encoding="utf-8")


def figure_names() -> list[str]:
    """Every figure that a page may have, as its element is named; a name that ends in ``-`` goes on with a number."""
    pages = environment()
    sources = (pages.loader.get_source(pages, name)[0] for name in pages.list_templates(["html"]) if pages.loader is not None)
    return sorted({name for source in sources for name in _FIGURE.findall(source)})


_FIGURE = re.compile(r'\b(?:live|still)\("([a-z-]+)"')


def render(report: Content, *, whole: bool = True) -> str:
    """The page as text: the same for the same report, byte for byte.

    Parameters
    ----------
    report
        What it says.
    whole
        Else without styles and scripts: what a page takes that has them already, and shows one report after another.
    """
    extra = sections_of(report)
    results, answer = report.results, report.answer.result
    mapped = map_of(results, report.at, report.failures)
    cut_differently = mapped is not None and mapped["rows"]["key"] < 0
    nodes, million = placement_of(answer.scenario).nodes, usd_per_million_samples(answer)
    points = {
        **columns_of(results, report.at, report.answer.index, extra.measured),
        "map": mapped,
        "trained_samples": report.plan.goal.samples if report.plan is not None else None,
        "of_layouts": extra.values["of_layouts"],
        "one_batch": not report.answer.of_each_batch,
    }
    return (
        environment()
        .get_template("report.html")
        .render(
            report=report,
            **extra.values,
            stills=extra.stills,
            figures={name: still.figure for name, still in extra.stills.items()} | extra.of_layouts,
            lead=_lead(report, extra, by_layout=cut_differently),
            points=points,
            step_legend=[
                (part_colour(part), label) for part, label in PARTS.items() if any(getattr(each.breakdown_s, part) for each in results)
            ],
            layouts=cut_differently,
            mapped=mapped is not None,
            global_batch=answer.scenario.batch * answer.replicas,
            swept=[(index, key) for index, key in enumerate(report.at.keys) if len(key.values) > 1],
            # of whole jobs the cost of the job says more
            cost_drawn=any(usd_per_hour(result.scenario) is not None and result.job is None for result in results),
            clusters={each.scenario.cluster.name: each.scenario.cluster for each in results}.values(),
            asynchronous={
                curve for curve, result in zip(report.at.curve_of, results, strict=True) if result.scenario.strategy.pace.asynchronous
            },
            nodes=f"{nodes:,} node{'' if nodes == 1 else 's'}",
            million=million.mean if million is not None else None,
            cares=cares_of(report),
            left_out=left_out(answer.scenario),
            limit=limit_in_words(answer),
            variance=variance_in_words(answer),
            changes_said=most_helpful_in_words(report.sensitivity),
            held=coverage_in_words(answer),
            width=width_table(answer),
            measurements=measurements_table(answer).only("command", "low", "high", "left", "best_case").without_empty_columns(),
            measure_next=measure_next_in_words(answer),
            measure_briefly=measure_next_in_words(answer, brief=True),
            error_share=max(result.monte_carlo_error / result.throughput_samples_per_s.mean for result in results),
            brief=_brief_table(results, report.at),
            scripts=SCRIPTS,
            whole=whole,
            generator=Markup(GENERATOR),  # noqa: S704
        )
    )


_BRIEF = (
    "scaling", "replicas", "nodes", "throughput_samples_per_s", "throughput_low", "throughput_high", "scaling_efficiency",
    "scaling_efficiency_low", "scaling_efficiency_high", "bottleneck",
)  # fmt: skip


def _brief_table(results: Sequence[Result], at: Coordinates) -> Table:
    """The most important figures of the first results, for who has no script."""
    rows = [
        {**result.row(), "configuration": at.name_of(index), "bottleneck": result.bottleneck.label}
        for index, result in enumerate(results[:_MOST_PLAIN_ROWS])
    ]
    columns = (CONFIGURATION, *(replace(COLUMNS[name], of="") for name in _BRIEF))
    more = f"The first {_MOST_PLAIN_ROWS:,} of {len(results):,} results." if len(results) > _MOST_PLAIN_ROWS else ""
    return replace(Table.reading("All results", columns, rows, "results"), more=more)


def cares_of(report: Content) -> list[str]:
    """What a reader must know before anything is built on the numbers, each a sentence without its end."""
    return report.trust.cares(
        answer_beyond=report.answer.result.extrapolated,
        beyond_said=report.plan is not None and bool(report.plan.sentences),
        workloads=len(report.workloads),
    )


def _lead(report: Content, extra: Sections, *, by_layout: bool) -> str:
    """The figure that answers: it stands beside the answer, and not in its section."""
    swept = any(len(key.values) > 1 for key in report.at.keys)
    if "pareto" in extra.stills:
        return "pareto"
    if report.answer.result.job is not None:
        return "job" if swept else "job-timeline" if "job-timeline" in extra.stills else "steps-here"
    return "map" if by_layout else "throughput" if swept else "steps-here"


# -- sections that only some reports have -------------------------------------------------


@dataclass(frozen=True)
class Still:
    """A figure that does not follow the reader's choices.

    Attributes
    ----------
    name
        What it is called, and the table behind it.
    title, about
        What is seen in it, and how it is drawn.
    legend
        Colours with what they stand for.
    wide
        Whether it is scrolled on a narrow screen.
    """

    figure: Figure
    name: str
    title: str
    about: str
    table: Table | None = None
    legend: Sequence[tuple[str, str]] = ()
    wide: bool = False
    otherwise_px: int = 380

    @property
    def height_px(self) -> int:
        """As the layout says, or otherwise."""
        return int(self.figure["layout"].get("height", self.otherwise_px))

    @property
    def label(self) -> str:
        """What is told to those who do not see it."""
        table = f" The table “{self.name}” below holds the same numbers." if self.table is not None else ""
        return f"{clean(self.title, _LONGEST)}. {self.about}.{table}"


@dataclass
class Sections:
    """What the page's template needs for the sections that only some reports have.

    Attributes
    ----------
    values
        For the template, under the names that it uses.
    stills
        Figures under the id of the element that each is drawn in.
    of_layouts
        Those that take the place of the answer's when another layout is chosen.
    measured
        Measured throughputs in samples/s, each with the index of its prediction.
    """

    values: dict[str, Any] = field(default_factory=dict)
    stills: dict[str, Still] = field(default_factory=dict)
    of_layouts: dict[str, Figure] = field(default_factory=dict)
    measured: list[tuple[int, float]] = field(default_factory=list)


def sections_of(report: Content) -> Sections:
    """Arrange what a report has of calibration, a plan, simulated changes, a timeline, measured points; what it has not is left out."""
    page, answer = Sections({"payments": None, "overlay_error": ""}), report.answer.result
    _add_calibration(page, report.workloads)
    _add_memory(page, answer.scenario)
    if report.plan is not None:
        _add_plan(page, report.plan)
    if report.sensitivity:
        _add_sensitivity(page, report.sensitivity, answer.scenario.scaling)
    if report.timeline is not None:
        _add_timeline(page, report.timeline, report.of_layouts.values())
    _add_layouts(page, report)
    _add_stages(page, answer)
    _add_job(page, report.results, report.answer)
    if report.learned is not None:
        _add_learned(page, report.learned, report)
    if report.measured is not None:
        _add_measured(page, report.measured, report)
    return page


def _add_calibration(page: Sections, workloads: Sequence[Workload]) -> None:
    columns = ("batch", "steps", "median_s", "p5_s", "p95_s", "mean_s", "fitted_step_s", "forward_s", "backward_s", "apply_s")
    fitted = []
    for index, load in enumerate(workloads):
        if load.fit is None or not load.fit.points:
            continue
        name, whose = (f"{clean(load.name)}: step time", f"{clean(load.name)}: the") if len(workloads) > 1 else ("Step time", "The")
        table = replace(calibration_table([load]).only(*columns), name=f"calibration-{index}")
        title = f"{whose} fitted lines miss the measured means by at most {format_share(load.fit.relative_residual)}"
        about = "Step time against batch; points: measured, lines: fitted"
        page.stills[f"calibration-{index}"] = Still(calibration_figure(load), name, title, about, table, otherwise_px=340)
        fitted.append((index, load))
    page.values.update(fitted=fitted, unfitted=[load for load in workloads if load.fit is None or not load.fit.points])


def _add_plan(page: Sections, plan: Plan) -> None:
    tables = {table.name: brief(table) for table in plan_tables(plan)}
    every = tables.pop("plan-all")
    _add_paying(page, plan, tables.pop("plan-payments", None), tables.pop("plan-break-even", None))
    page.values.update(
        goal=goal_in_words(plan.goal),
        plan_tables=tuple(tables.values()),
        plan_open=_OPEN_TABLES,
        plan_time=time_note(plan.candidates, plan.goal),
        plan_work=work_note(plan),
        plan_servers=servers_note(plan),
        plan_workers=workers_note(plan),
    )
    if (drawn := pareto_figure(plan)) is not None:
        name = "Cost against time" if plan.goal.samples else "Cost against throughput"
        about = (
            "Circles reach the goal, triangles miss it; hollow: beyond what was measured; ringed: the answer; dotted: no other is both "
            "cheaper and faster; dashed: the goal"
        )
        page.stills["pareto"] = Still(drawn, name, _title_of_front(plan), about, every)


def _add_paying(page: Sections, plan: Plan, payments: Table | None, break_even: Table | None) -> None:
    """Ways to pay for the answer, where there are several, and when paying in advance pays."""
    page.values["payments"] = payments
    if (drawn := paying_figure(plan)) is None:
        return
    first = min((pair for pair in plan.break_even if pair.months is not None), key=lambda pair: pair.months or 0.0, default=None)
    title = "Nothing that is paid in advance pays while it lasts"
    if first is not None:
        title = f"Against {first.rented}, {first.own} {months_in_words(first.months or 0.0, first.months_low, first.months_high)}"
    about = (
        "What has been paid by then for the same work; dashed: by the hour; shaded and whiskers: 90% prediction interval; diamonds: from "
        "here on paying in advance has cost less"
    )
    page.stills["paying"] = Still(drawn, "When paying in advance pays", title, about, break_even)


def _title_of_front(plan: Plan) -> str:
    """What is seen of cost against time, or against throughput."""
    meeting, of = sum(candidate.meets for candidate in plan.candidates), f"of {len(plan.candidates)} configurations simulated"
    best = plan.chosen
    if not meeting:
        return f"None {of} reaches the goal"
    reach = f"{meeting} {of} reach{'es' if meeting == 1 else ''} the goal; the answer"
    if best.time_s is not None and best.cost_usd is not None:
        return f"{reach} takes {format_seconds(best.time_s.mean)} and costs {format_usd(best.cost_usd.mean)}"
    rate = format_throughput(best.result.throughput_samples_per_s.mean)
    costs = f" for {format_hourly(best.usd_per_hour)} an hour" if best.usd_per_hour is not None else ""
    return f"{reach} trains {rate} samples/s{costs}"


def _add_sensitivity(page: Sections, changes: Sequence[Change], scaling: str) -> None:
    known = [change for change in changes if change.gain is not None]
    table = sensitivity_table(changes, scaling).only("change", "scaling", "gain", "gain_low", "gain_high", "text", "reason")
    about = "Change of throughput, run by run; whiskers: 90% prediction interval"
    page.stills["sensitivity"] = Still(sensitivity_figure(changes), "What one change would do", _title_of_changes(changes), about, table)
    page.values.update(
        sensitivity_idle=listed([clean(change.name) for change in known if not change.moves]),
        sensitivity_pale=any(change.moves and not change.seen for change in known),
        sensitivity_run=next((change.run for change in known if change.run), ""),
    )


def _title_of_changes(changes: Sequence[Change]) -> str:
    """What is seen of them: the one that gains most."""
    gaining = helpful(changes)
    best = next((change for change in gaining if change.seen), None) or next(iter(gaining), None)
    if best is None or best.gain is None:
        return f"No single change that was tried brings more than {format_share(LITTLE)}"
    would = "would help most" if best.seen else "may help most, but not for certain"
    return f"{best.name[:1].upper()}{best.name[1:]} {would}: {format_change(best.gain)} throughput"


def _add_memory(page: Sections, scenario: Scenario) -> None:
    """Of a scenario whose memory is known; of others it is said with what is left out."""
    its_memory = memory(scenario)
    if its_memory.not_checked is not None:
        return
    used = {part.name for device in its_memory.devices for part in device.parts if part.size_bytes}
    legend = [(MEMORY_COLOURS[name], label.capitalize()) for name, label in PARTS_OF_MEMORY.items() if name in used]
    title, about = _title_of_memory(its_memory), "At its peak; dotted: what the device has"
    page.stills["memory"] = Still(memory_figure(its_memory), "Memory of a device", title, about, its_memory.table(), legend)
    page.values["memory_said"] = memory_in_words(its_memory)


def _title_of_memory(its_memory: Memory) -> str:
    """What the fullest device holds, of what it has."""
    fullest = its_memory.tightest
    has = f" of {format_bytes(fullest.capacity_bytes)}" if fullest.capacity_bytes is not None else ""
    holds = f"{fullest.name.capitalize()} holds most:" if len(its_memory.devices) > 1 else f"Each {fullest.name} holds"
    return f"{holds} {fullest.need_in_words}{has}"


def _add_layouts(page: Sections, report: Content) -> None:
    """Of each layout what takes the place of the answer's steps in time and of its memory, when it is chosen."""
    page.values["of_layouts"] = {}
    for index, result in enumerate(report.results):
        timeline = report.of_layouts.get(result.scenario_hash)
        if timeline is None:
            continue
        titles = {"timeline": clean(f"{timeline.name}: {timeline.sentence}", _LONGEST)}
        page.of_layouts[f"timeline-{index}"] = timeline_figure(timeline)
        its_memory = memory(result.scenario)
        if its_memory.not_checked is None:
            page.of_layouts[f"memory-{index}"] = memory_figure(its_memory)
            titles["memory"] = clean(f"{timeline.name}: {_title_of_memory(its_memory)}", _LONGEST)
        page.values["of_layouts"][index] = titles


def _add_timeline(page: Sections, timeline: Timeline, others: Iterable[Timeline]) -> None:
    used = {bar.kind for each in (timeline, *others) for bar in each.bars}
    legend = [(part_colour(kind), label) for kind, label in KIND_LABELS.items() if kind in used]
    table = timeline_table(timeline).only("lane", "start_s", "end_s", "kind", "text", "critical")
    about = "First row: the critical path of one step; dotted: where that step begins and ends"
    name = f"Timeline of {clean(timeline.name)}"
    page.stills["timeline"] = Still(timeline_figure(timeline), name, timeline.sentence, about, table, legend, wide=True)


def _add_stages(page: Sections, answer: Result) -> None:
    staged, exchanged = stages_table(answer), exchanges_table(answer)
    page.values["exchanges"] = exchanged if exchanged.rows else None
    if not staged.rows:
        return
    least, most = (format_share(end(stage.busy for stage in answer.stages)) for end in (min, max))
    title = f"Stages are busy for {least if least == most else f'{least} to {most}'} of the time"
    about = "Share of the time of each stage’s devices; bubble: they wait for other stages or copies"
    legend = [
        (part_colour(part), label)
        for name, (part, label) in STAGE_PARTS.items()
        if name != "input" or any(stage.input for stage in answer.stages)
    ]
    page.stills["stages"] = Still(stages_figure(answer.stages), "Stages", title, about, staged, legend)


def _add_job(page: Sections, results: Sequence[Result], answer: Answer) -> None:
    """The whole job, where any result is of one."""
    result = answer.result
    jobs = [each.job for each in results if each.job is not None]
    page.values.update(
        job_legend=[(JOB_COLOURS[name], PART_LABELS[name]) for name in PART_LABELS if any(getattr(job.parts_s, name) for job in jobs)],
        job_priced=any(job.cost_usd is not None for job in jobs),
        job_said=job_in_words(result),
        job_length=length_in_words(result.job) if result.job is not None else "",
        job_epochs=epochs_table(result),
    )
    if result.job is not None and (strips := strips_of(result)):
        things = "ranks" if result.ranks != result.replicas else "replicas"
        about = f"{answer.name} with {result.ranks} {things}, drawn from means; each axis has its own scale"
        title = f"The job takes {format_seconds(result.job.time_s.mean)} from start to end"
        page.stills["job-timeline"] = Still(job_timeline_figure(strips), "From start to end", title, about, parts_table(result))


def _add_learned(page: Sections, learned: Learned, report: Content) -> None:
    """What was learned, by any of several ways of training."""
    series, metric = _series_of(learned, report), learned.target.metric
    for name, measured in {"metric": metric, "loss": "loss"}.items():
        if name == "metric" and metric == "loss":
            continue
        called, about = f"{measured.capitalize()} against time", f"{measured.capitalize()} of the validation data, median of the runs"
        title, about = (called, about) if name == "loss" else (learned.headline, f"{about}; dotted: the target")
        page.stills[f"learning-{name}"] = Still(curves_figure(learned, measured, series), called, title, about, otherwise_px=360)
    title, about = "What reaching the target takes", "Median of the runs; hollow: some runs did not reach it"
    table = learned.table().without_empty_columns()
    page.stills["learning-target"] = Still(target_figure(learned, series), "To the target", title, about, table, wide=True)
    page.values.update(
        learned=learned,
        learned_batches=listed([f"{batch:,}" for batch in sorted({way.batch for way in learned.ways})], "or"),
        learned_runs=counted(len(learned.ways[0].runs), "run"),
        learned_series=series,
    )


def _series_of(learned: Learned, report: Content) -> list[int]:
    """What number each way has among the curves of the page: that of its own results' curve, and none that another way has."""
    curves = {result.scenario.hash: curve for result, curve in zip(report.results, report.at.curve_of, strict=True)}
    series: list[int] = []
    for way in learned.ways:
        own = curves.get(way.scenario.hash)
        series.append(own if own is not None and own not in series else max([*series, *curves.values()], default=-1) + 1)
    return series


def _add_measured(page: Sections, overlay: Overlay, report: Content) -> None:
    # one scenario may be there once in each file, told apart by its name
    named = {(result.scenario_hash, report.at.title_of(index)): index for index, result in enumerate(report.results)}
    of_hash = {result.scenario_hash: index for index, result in enumerate(report.results)}
    places = [
        (named.get((row.scenario_hash, row.name), of_hash[row.scenario_hash]), row) for row in overlay.rows if row.scenario_hash in of_hash
    ]
    whole, count = measured_table(overlay, report.results), len(overlay.rows)
    beside = replace(whole, rows=whole.rows[:count])
    alone = replace(whole, rows=whole.rows[count:], title="Measured, but not predicted", name="measured-only")
    page.measured = [(index, row.measured) for index, row in places]
    page.values.update(
        overlay_error=_error_in_words(overlay),
        fit_table=curve_errors_table(places, report.results, report.at),
        measured_table=beside.only(
            "setting", "prediction", "scaling", "predicted_samples_per_s", "predicted_low", "predicted_high", "measured_samples_per_s",
            "error", "inside", "staleness_predicted", "staleness_measured",
        ),
        unmatched_table=alone.only("setting", "measured_samples_per_s", "line", "why_not"),
    )  # fmt: skip


def _error_in_words(overlay: Overlay) -> str:
    """How far measured settings lie from their predictions; no error where one setting stands beside several of them."""
    settings = len({row.line for row in overlay.rows})
    if not settings:
        return ""
    measured = f"{settings} measured setting{'s' if settings > 1 else ''}"
    if settings < len(overlay.rows):
        fit = "fits" if settings == 1 else "fit"
        return f"{measured} {fit} {len(overlay.rows)} predictions, so the error stands with each curve, under “Measured against predicted”"
    middle = format_share(statistics.median(abs(row.error) for row in overlay.rows))
    inside = sum(row.inside for row in overlay.rows)
    return f"beside {measured} the median error is {middle}, and {inside} of them lie{'s' if inside == 1 else ''} in the interval"


# -- the templates ------------------------------------------------------------------------


def _coded(text: str) -> Markup:
    """Text whose command lines, between grave accents, are set as code."""
    return Markup(_COMMAND.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704


_COMMAND = re.compile("`([^`]+)`")


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """What reads the templates of every page: values are escaped, and a name that is missing is an error."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        amount=format_number,
        clause=clause,
        clean=clean,
        coded=_coded,
        count=partial(written, kind="count"),
        counts=listed_numbers,
        dollars=format_usd,
        headed=lambda text: clean(text[:1].upper() + text[1:]),
        hourly=format_hourly,
        joined=listed,
        lower_first=lambda text: text[:1].lower() + text[1:],
        percent=format_share,
        plain=partial(written, kind="setting"),
        seconds=format_seconds,
        sentence=sentence,
        symbol=marker_symbol,
        throughput=format_throughput,
        written=written,
    )
    # plotly's script is no user's text, and holds no closing script tag
    made.globals.update(interval=format_interval, kind_of=kind_of, plotly=Markup(plotly_script()))  # noqa: S704
    made.policies["json.dumps_kwargs"] = {"sort_keys": True, "separators": (",", ":")}
    return made


_MARK = '<desc id="paceline-card">'
CARD = marked_kind("card", _MARK, ".svg")
"""Pictures that a new one may replace."""

_LETTERS, _MOST_LINES = 52, 3
"""That fit into a line beside the curve, and lines of one text."""
_LEFT, _TOP, _WIDTH, _HEIGHT = 552.0, 64.0, 214.0, 150.0
"""Where the curve is drawn, in pixels."""


@dataclass(frozen=True)
class Drawn:
    """The answer's curve over replicas or ranks, in pixels.

    Attributes
    ----------
    line, band
        Points, as SVG writes them; the band goes there and back.
    at
        Where the answer lies.
    ends
        What stands below the ends of the axis.
    """

    line: str
    band: str
    at: tuple[float, float]
    ends: tuple[str, str]


def render_card(report: Content) -> str:
    """The picture as text: the same for the same report, byte for byte."""
    answer = report.answer
    result, goal = answer.result, report.plan.goal if report.plan is not None else None
    nodes = placement_of(result.scenario).nodes
    things = "replica" if result.ranks == result.replicas else "rank"
    rate, job = result.throughput_samples_per_s, result.job
    trained = cost_of_samples(result, goal.samples) if goal is not None and goal.samples is not None and job is None else None
    cost, million = (job.cost_usd if job is not None else trained), usd_per_million_samples(result)
    facts = [("90% interval", f"{format_interval(rate.low, rate.high, 'throughput')} samples/s")]
    if job is not None:
        facts = [("90% interval", format_interval(job.time_s.low, job.time_s.high, "seconds"))]
    if report.stop:
        facts.append(("Where to stop", sentence(report.stop)))
    if cost is not None:
        facts.append(("Cost", f"{format_usd(cost.mean)} ({format_interval(cost.low, cost.high, 'usd')})"))
    elif million is not None:
        facts.append(("Cost", f"{format_usd(million.mean)} for a million samples"))
    cares = [text for text in (answer.batches_in_words, *cares_of(report)) if text]
    if cares:
        facts.append(("Take care", sentence(cares[0])))
    lines = [(heading, _lines(text)) for heading, text in facts]
    values: dict[str, Any] = {
        "title": clean(f"{report.title} on {result.scenario.cluster.name}", 90),
        "name": clean(answer.name, 56),
        "where": f"{counted(result.ranks, things)} on {counted(nodes, 'node')}",
        "headline": f"{format_throughput(rate.mean)} samples/s" if job is None else f"{format_seconds(job.time_s.mean)} for the job",
        "facts": lines,
        "height": 150 + sum(20 * len(texts) + 8 for _, texts in lines),
        "drawn": _drawn(report),
        "counted": f"{things}s",
    }
    return environment().get_template("card.svg").render(mark=_MARK, **values)


def _lines(text: str) -> list[str]:
    return textwrap.wrap(clean(text, 400), _LETTERS, max_lines=_MOST_LINES, placeholder=" …")


def _drawn(report: Content) -> Drawn | None:
    """The answer's curve on logarithmic axes; None where it has one point."""
    held = line_of(report.results, report.at, report.answer.index)
    if len({each.ranks for each in held}) == 1:
        return None
    rates = [each.throughput_samples_per_s for each in held]
    x_of = _scale([float(each.ranks) for each in held], _LEFT, _WIDTH)
    lows = [max(each.low, each.mean / _FAR) for each in rates]
    y_of = _scale([*lows, *(each.high for each in rates)], _TOP + _HEIGHT, -_HEIGHT)
    xs = [x_of(float(each.ranks)) for each in held]
    there = [(x, y_of(each.high)) for x, each in zip(xs, rates, strict=True)]
    back = [(x, y_of(low)) for x, low in zip(xs, lows, strict=True)]
    answer = report.answer.result
    return Drawn(
        line=_points([(x, y_of(each.mean)) for x, each in zip(xs, rates, strict=True)]),
        band=_points([*there, *back[::-1]]),
        at=(round(x_of(float(answer.ranks)), 1), round(y_of(answer.throughput_samples_per_s.mean), 1)),
        ends=(f"{held[0].ranks:,}", f"{held[-1].ranks:,}"),
    )


_FAR = 1000.0
"""No end of an interval is drawn further below its mean: a logarithmic axis has no place for nothing."""


def _scale(values: list[float], start: float, length: float) -> Any:
    low, high = math.log(min(values)), math.log(max(values))
    return lambda value: start + length * ((math.log(value) - low) / (high - low) if high > low else 0.5)


def _points(places: list[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
