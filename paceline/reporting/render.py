"""Renders a report's page: jinja2 puts text, figures and data into ``templates/``; everything that the page needs is inside.

Names of values that are handed to the templates, and of figures in them, stand on both sides. What the page says is in content.py, what its
script draws from in columns.py. The filters of :func:`environment` serve the page of validations too.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import plotly.graph_objects as go
from markupsafe import Markup, escape

from paceline.comparing import LITTLE
from paceline.planning.sentences import months_in_words
from paceline.planning.tables import brief, plan_tables
from paceline.reporting.axes import JOB_COLOURS, marker_symbol
from paceline.reporting.columns import PARTS, columns_of, map_of
from paceline.reporting.content import Content, content_of
from paceline.reporting.figures import (
    KIND_LABELS,
    MEMORY_COLOURS,
    STAGE_PARTS,
    calibration_figure,
    memory_figure,
    pareto_figure,
    paying_figure,
    plain,
    sensitivity_figure,
    stages_figure,
    timeline_figure,
)
from paceline.reporting.job_figures import job_timeline_figure, strips_of
from paceline.reporting.learning_figures import curves_figure, target_figure
from paceline.reporting.sensitivity import Change, helpful, most_helpful_in_words
from paceline.reporting.tables import brief_table, calibration_table, curve_errors_table, measured_table, sensitivity_table, timeline_table
from paceline.result_tables import (
    PART_LABELS,
    epochs_table,
    exchanges_table,
    job_in_words,
    length_in_words,
    measurements_table,
    parts_table,
    stages_table,
    width_table,
)
from paceline.sentences import (
    NOT_CERTAIN,
    coverage_in_words,
    goal_in_words,
    limit_in_words,
    measure_next_in_words,
    memory_in_words,
    servers_note,
    time_note,
    variance_in_words,
    work_note,
    workers_note,
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
from simulator.results.cost import placement_of, usd_per_hour, usd_per_million_samples
from simulator.results.misread import left_out
from simulator.results.results import Failure, Result
from simulator.scenario import Scenario
from simulator.spec.cluster import Cluster
from simulator.spec.workload import Workload

if TYPE_CHECKING:
    from paceline.learning.learned import Learned
    from paceline.planning.answer import Plan
    from paceline.reporting.measured import Overlay
    from paceline.reporting.pieces import Kind
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

_PLOTLY = Path(__file__).parent / "vendored" / "plotly-cartesian.min.js"
"""plotly.js with its plane figures alone, a third of the whole: the package plotly.js-cartesian-dist-min, as it is."""
_MOST_PLAIN_ROWS = 200
_MOST_SAID = 5
_OPEN_TABLES = ("plan-clusters", "plan-ways", "plan-candidates", "plan-improvements")
"""Tables of a plan that are not folded."""
_LONGEST = 600
PART_OF_KIND: dict[Kind, str] = {
    "input": "input",
    "compute": "compute",
    "forward": "forward",
    "backward": "backward",
    "weights": "weights",
    "communication": "exposed-communication",
    "waiting": "waiting",
    "bubble": "bubble",
    "apply": "apply",
}
"""The part of a step, or of its passes, whose colour each kind of bar of the timeline has."""


def write_report(
    results: Sequence[Result],
    out: Path,
    *,
    notes: Sequence[str] = (),
    labels: Sequence[str] | None = None,
    plan: Plan | None = None,
    measured: Overlay | None = None,
    timeline: Timeline | None = None,
    sensitivity: Sequence[Change] = (),
    learned: Learned | None = None,
    failures: Sequence[Failure] = (),
    title: str = "",
    force: bool = False,
) -> Path:
    """Write the scaling report of some results as one HTML file that opens offline.

    Parameters
    ----------
    results
        At least one, such as :func:`paceline.sweeping.read_results` gives.
    out
        Where to write; a report that is there is replaced.
    notes
        Sentences to repeat in the report, such as that the results file was cut off.
    labels
        Of each result, the file that it comes from, where several are compared.
    plan
        What a plan answered, if these are its results.
    measured
        Measured points beside the predictions.
    timeline
        Some steps as a Gantt chart.
    sensitivity
        What single changes to the answer's configuration gain.
    learned
        What was learned with several ways of training.
    failures
        Scenarios that have no result, and why.
    title
        In place of the workloads' names.
    force
        Replace a file at ``out`` that is no report.

    Returns
    -------
    Path
        ``out``.

    Raises
    ------
    ResultsError
        There is no result, or not one label per result.
    InputError
        ``out`` cannot be written, or is no report.
    """
    report = content_of(
        results, notes, labels=labels, plan=plan, measured=measured, timeline=timeline, sensitivity=sensitivity, learned=learned,
        failures=failures, title=title,
    )  # fmt: skip
    return Output(out, REPORT, force=force).write(render(report))


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
    mapped = map_of(report.results, report.at, report.failures)
    cut_differently = mapped is not None and mapped["rows"]["key"] < 0
    results, nodes = report.results, placement_of(report.answer.result.scenario).nodes
    return (
        environment()
        .get_template("report.html")
        .render(
            report=report,
            **extra.values,
            lead=_lead(report, extra, by_layout=cut_differently),
            points={
                **columns_of(results, report.at, report.answer.index, extra.measured),
                "map": mapped,
                "trained_samples": report.plan.goal.samples if report.plan is not None else None,
                "of_layouts": extra.values["of_layouts"],
                "one_batch": not report.answer.of_each_batch,
            },
            figures={name: plain(figure) for name, figure in extra.figures.items()},
            step_legend=[
                (f"var(--part-{part.replace('_', '-')})", label)
                for part, label in PARTS.items()
                if any(getattr(result.breakdown_s, part) for result in results)
            ],
            layouts=cut_differently,
            mapped=mapped is not None,
            global_batch=report.answer.result.scenario.batch * report.answer.result.replicas,
            trained_samples=report.plan.goal.samples if report.plan is not None else None,
            swept=[(index, key) for index, key in enumerate(report.at.keys) if len(key.values) > 1],
            # of whole jobs the cost of the job says more
            cost_drawn=any(usd_per_hour(result.scenario) is not None and result.job is None for result in results),
            prices=[cluster for cluster in _clusters(results) if cluster.price is not None],
            asynchronous={
                curve for curve, result in zip(report.at.curve_of, results, strict=True) if result.scenario.strategy.pace.asynchronous
            },
            answer_scaling=report.answer.result.scenario.scaling,
            nodes=f"{nodes:,} node{'' if nodes == 1 else 's'}",
            million=million.mean if (million := usd_per_million_samples(report.answer.result)) is not None else None,
            asked=report.request.text,
            cares=cares_of(report),
            left_out=left_out(report.answer.result.scenario),
            limit=limit_in_words(report.answer.result),
            variance=variance_in_words(report.answer.result),
            changes_said=most_helpful_in_words(report.sensitivity),
            held=coverage_in_words(report.answer.result),
            width=width_table(report.answer.result),
            measurements=measurements_table(report.answer.result)
            .only("command", "low", "high", "left", "best_case")
            .without_empty_columns(),
            measure_next=measure_next_in_words(report.answer.result),
            measure_briefly=measure_next_in_words(report.answer.result, brief=True),
            error_share=max(result.monte_carlo_error / result.throughput_samples_per_s.mean for result in results),
            brief=brief_table(results, report.at, _MOST_PLAIN_ROWS),
            compared=any(group.id == "source" and len(group.labels) > 1 for group in report.at.groups),
            scripts=SCRIPTS,
            whole=whole,
            generator=Markup(GENERATOR),  # noqa: S704
        )
    )


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
    if extra.values["plan_figure"]:
        return "pareto"
    if report.answer.result.job is not None:
        return "job" if swept else "job-timeline" if "job-timeline" in extra.figures else "steps-here"
    if by_layout:
        return "map"
    return "throughput" if swept else "steps-here"


def _clusters(results: Sequence[Result]) -> list[Cluster]:
    return list({result.scenario.cluster.name: result.scenario.cluster for result in results}.values())


# -- sections that only some reports have -------------------------------------------------


@dataclass
class Sections:
    """What the page's template needs for the sections that only some reports have.

    Attributes
    ----------
    values
        For the template, under the names that it uses.
    figures
        Under the id of the element that each is drawn in.
    measured
        Measured throughputs in samples/s, each with the index of its prediction.
    """

    values: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, go.Figure] = field(default_factory=dict)
    measured: list[tuple[int, float]] = field(default_factory=list)


def sections_of(report: Content) -> Sections:
    """Arrange what a report has of calibration, a plan, simulated changes, a timeline, measured points; what it has not is left out."""
    found = Sections()
    found.values.update(plan_figure=None, payments=None, goal="", overlay_error="", memory_table=None)
    _add_calibration(found, report.workloads)
    _add_memory(found, report.answer.result.scenario)
    if report.plan is not None:
        _add_plan(found, report.plan)
    if report.sensitivity:
        _add_sensitivity(found, report.sensitivity, report.answer.result.scenario.scaling)
    if report.timeline is not None:
        _add_timeline(found, report.timeline, report.of_layouts.values())
    _add_layouts(found, report)
    _add_stages(found, report.answer.result)
    _add_job(found, report.results, report.answer.result)
    if report.learned is not None:
        _add_learned(found, report.learned, report)
    if report.measured is not None:
        _add_measured(found, report.measured, report)
    return found


def _add_calibration(found: Sections, workloads: Sequence[Workload]) -> None:
    fitted = [(index, load) for index, load in enumerate(workloads) if load.fit is not None and load.fit.points]
    columns = ("batch", "steps", "median_s", "p5_s", "p95_s", "mean_s", "fitted_step_s", "forward_s", "backward_s", "apply_s")
    found.figures.update({f"calibration-{index}": calibration_figure(load) for index, load in fitted})
    found.values.update(
        fitted=fitted,
        unfitted=[load for load in workloads if load.fit is None or not load.fit.points],
        calibration_tables={
            index: replace(calibration_table([load]).only(*columns), name=f"calibration-{index}") for index, load in fitted
        },
    )


def _add_plan(found: Sections, plan: Plan) -> None:
    tables = {table.name: brief(table) for table in plan_tables(plan)}
    every = tables.pop("plan-all")
    _add_paying(found, plan, tables.pop("plan-payments", None), tables.pop("plan-break-even", None))
    found.values.update(
        goal=goal_in_words(plan.goal),
        plan_tables=tuple(tables.values()),
        plan_open=_OPEN_TABLES,
        plan_time=time_note(plan.candidates, plan.goal),
        plan_work=work_note(plan),
        plan_servers=servers_note(plan),
        plan_workers=workers_note(plan),
    )
    if (drawn := pareto_figure(plan)) is not None:
        found.figures["pareto"] = drawn[0]
        found.values.update(plan_figure={"title": _title_of_front(plan), "about": drawn[1], "seen": drawn[2]}, plan_all=every)


def _add_paying(found: Sections, plan: Plan, payments: Table | None, break_even: Table | None) -> None:
    """Ways to pay for the answer, where there are several, and when paying in advance pays."""
    found.values.update(payments=payments, break_even=break_even)
    if (drawn := paying_figure(plan)) is None:
        return
    found.figures["paying"] = drawn
    first = min((its for its in plan.break_even if its.months is not None), key=lambda its: its.months or 0.0, default=None)
    pays = None if first is None else months_in_words(first.months, first.months_low, first.months_high)
    found.values.update(
        paying_title=f"Against {first.rented}, {first.own} {pays}" if first else "Nothing that is paid in advance pays while it lasts",
        paying_label=" ".join(sentence(its.text) for its in plan.break_even),
    )


def _title_of_front(plan: Plan) -> str:
    """What is seen of cost against time, or against throughput."""
    meeting, of = sum(each.meets for each in plan.candidates), f"of {len(plan.candidates)} configurations simulated"
    best = plan.chosen
    if not meeting:
        return f"None {of} reaches the goal"
    reach = f"{meeting} {of} reach{'es' if meeting == 1 else ''} the goal; the answer"
    if best.time_s is not None and best.cost_usd is not None:
        return f"{reach} takes {format_seconds(best.time_s.mean)} and costs {format_usd(best.cost_usd.mean)}"
    rate = format_throughput(best.result.throughput_samples_per_s.mean)
    costs = f" for {format_hourly(best.usd_per_hour)} an hour" if best.usd_per_hour is not None else ""
    return f"{reach} trains {rate} samples/s{costs}"


def _add_sensitivity(found: Sections, changes: Sequence[Change], scaling: str) -> None:
    drawn = sensitivity_figure(changes)
    known = [change for change in changes if change.gain is not None]
    idle = [clean(change.name) for change in known if not change.moves]
    shown = [
        f"{clean(change.name)}: {format_change(change.gain) if change.seen else NOT_CERTAIN}"
        for change in known[:_MOST_SAID]
        if change.gain is not None
    ]
    columns = ("change", "scaling", "gain", "gain_low", "gain_high", "text", "reason")
    found.figures["sensitivity"] = drawn
    found.values.update(
        sensitivity_label="Change of throughput by one change at a time. " + ("; ".join(shown) if shown else "None is known") + ".",
        sensitivity_px=_height_px(drawn, 320),
        sensitivity_title=_title_of_changes(changes),
        sensitivity_idle=listed(idle),
        sensitivity_pale=any(change.moves and not change.seen for change in known),
        sensitivity_run=next((change.run for change in known if change.run), ""),
        sensitivity_table=sensitivity_table(changes, scaling).only(*columns),
    )


def _title_of_changes(changes: Sequence[Change]) -> str:
    """What is seen of them: the one that gains most."""
    gaining = helpful(changes)
    best = next((its for its in gaining if its.seen), None) or next(iter(gaining), None)
    if best is None or best.gain is None:
        return f"No single change that was tried brings more than {format_share(LITTLE)}"
    would = "would help most" if best.seen else "may help most, but not for certain"
    return f"{best.name[:1].upper()}{best.name[1:]} {would}: {format_change(best.gain)} throughput"


def _add_memory(found: Sections, scenario: Scenario) -> None:
    """Of a scenario whose memory is known; of others it is said with what is left out."""
    its = memory(scenario)
    if its.not_checked is not None:
        return
    drawn, said = memory_figure(its), memory_in_words(its)
    used = {part.name for device in its.devices for part in device.parts if part.size_bytes}
    found.figures["memory"] = drawn
    found.values.update(
        memory_title=_title_of_memory(its),
        memory_said=said,
        memory_label=f"Memory of {len(its.devices)} kind{'s' if len(its.devices) > 1 else ''} of device by part. {said[0]}",
        memory_px=_height_px(drawn, 320),
        memory_parts=[(MEMORY_COLOURS[name], label.capitalize()) for name, label in PARTS_OF_MEMORY.items() if name in used],
        memory_table=its.table(),
    )


def _add_layouts(found: Sections, report: Content) -> None:
    """Of each layout what takes the place of the answer's steps in time and of its memory, when it is chosen."""
    found.values["of_layouts"] = {}
    for index, result in enumerate(report.results):
        timeline = report.of_layouts.get(result.scenario_hash)
        if timeline is None:
            continue
        titles = {"timeline": clean(f"{timeline.name}: {timeline.sentence}", _LONGEST)}
        found.figures[f"timeline-{index}"] = timeline_figure(timeline)
        held = memory(result.scenario)
        if held.not_checked is None:
            found.figures[f"memory-{index}"] = memory_figure(held)
            titles["memory"] = clean(f"{timeline.name}: {_title_of_memory(held)}", _LONGEST)
        found.values["of_layouts"][index] = titles


def _title_of_memory(its: Memory) -> str:
    """What the fullest device holds, of what it has."""
    fullest = its.tightest
    has = f" of {format_bytes(fullest.capacity_bytes)}" if fullest.capacity_bytes is not None else ""
    holds = f"{fullest.name.capitalize()} holds most:" if len(its.devices) > 1 else f"Each {fullest.name} holds"
    return f"{holds} {fullest.need_in_words}{has}"


def _add_timeline(found: Sections, timeline: Timeline, others: Iterable[Timeline]) -> None:
    drawn = timeline_figure(timeline)
    used = [kind for kind in PART_OF_KIND if any(bar.kind == kind for its in (timeline, *others) for bar in its.bars)]
    lanes = len(timeline.lanes)
    found.figures["timeline"] = drawn
    found.values.update(
        timeline_label=f"Gantt chart of {lanes} lane{'s' if lanes != 1 else ''}. {clean(timeline.sentence, _LONGEST)}",
        timeline_px=_height_px(drawn, 360),
        timeline_table=timeline_table(timeline).only("lane", "start_s", "end_s", "kind", "text", "critical"),
        timeline_parts=[(PART_OF_KIND[kind], KIND_LABELS[kind]) for kind in used],
    )


def _add_stages(found: Sections, answer: Result) -> None:
    staged, exchanged = stages_table(answer), exchanges_table(answer)
    found.values.update(stages=staged if staged.rows else None, exchanges=exchanged if exchanged.rows else None)
    if not staged.rows:
        return
    drawn = stages_figure(answer.stages)
    busy = [its.busy for its in answer.stages]
    found.figures["stages"] = drawn
    ends = (
        f"{format_share(min(busy))} to {format_share(max(busy))}"
        if format_share(min(busy)) != format_share(max(busy))
        else format_share(busy[0])
    )
    found.values.update(
        stages_title=f"Stages are busy for {ends} of the time",
        stages_label=f"Bars of {len(busy)} stages: busy for {format_share(min(busy))} to {format_share(max(busy))} of the time.",
        stages_px=_height_px(drawn, 220),
        stages_parts=[(colour, label) for colour, label in STAGE_PARTS if label != "Input" or any(its.input for its in answer.stages)],
    )


def _add_job(found: Sections, results: Sequence[Result], answer: Result) -> None:
    """The whole job, where any result is of one."""
    jobs = [result.job for result in results if result.job is not None]
    used = [name for name in PART_LABELS if any(getattr(job.parts_s, name) for job in jobs)]
    found.values.update(
        job_legend=[(JOB_COLOURS[name], PART_LABELS[name]) for name in used],
        job_priced=any(job.cost_usd is not None for job in jobs),
        job_said=job_in_words(answer),
        job_length=length_in_words(answer.job) if answer.job is not None else "",
        job_epochs=epochs_table(answer),
        job_timeline_px=0,
    )
    if strips := strips_of(answer):
        drawn = job_timeline_figure(strips)
        found.figures["job-timeline"] = drawn
        told = "; ".join(f"{part.lower()} {takes}" for part, takes, *_ in parts_table(answer).texts())
        found.values.update(
            job_timeline_label=f"The job from start to end. {told}.",
            job_timeline_px=_height_px(drawn, 320),
            job_parts_table=parts_table(answer),
        )


def _add_learned(found: Sections, learned: Learned, report: Content) -> None:
    """What was learned, by any of several ways of training."""
    series, metric = _series_of(learned, report), learned.target.metric
    drawn = target_figure(learned, series)
    found.figures["learning-loss"] = curves_figure(learned, "loss", series)
    found.figures["learning-target"] = drawn
    if metric != "loss":
        found.figures["learning-metric"] = curves_figure(learned, metric, series)
    found.values.update(
        learned=learned,
        learned_metric=metric if metric != "loss" else "",
        learned_batches=listed([f"{batch:,}" for batch in sorted({way.batch for way in learned.ways})], "or"),
        learned_runs=counted(len(learned.ways[0].runs), "run"),
        learned_series=series,
        learned_label=f"Time, cost and throughput of {counted(len(learned.ways), 'way')} of training. {learned.sentences[0]}",
        learned_px=_height_px(drawn, 300),
        learned_table=learned.table().without_empty_columns(),
    )


def _series_of(learned: Learned, report: Content) -> list[int]:
    """What number each way has among the curves of the page: that of its own results' curve, and none that another way has."""
    curves = {result.scenario.hash: curve for result, curve in zip(report.results, report.at.curve_of, strict=True)}
    found: list[int] = []
    for way in learned.ways:
        own = curves.get(way.scenario.hash)
        found.append(own if own is not None and own not in found else max([*found, *curves.values()], default=-1) + 1)
    return found


def _height_px(figure: go.Figure, otherwise: int) -> int:
    return int(figure.layout.height or otherwise)


def _add_measured(found: Sections, overlay: Overlay, report: Content) -> None:
    # one scenario may be there once in each file, told apart by its name
    named = {(result.scenario_hash, report.at.title_of(index)): index for index, result in enumerate(report.results)}
    of_hash = {result.scenario_hash: index for index, result in enumerate(report.results)}
    places = [
        (named.get((row.scenario_hash, row.name), of_hash[row.scenario_hash]), row) for row in overlay.rows if row.scenario_hash in of_hash
    ]
    whole, count = measured_table(overlay, report.results), len(overlay.rows)
    beside = replace(whole, rows=whole.rows[:count])
    alone = replace(whole, rows=whole.rows[count:], title="Measured, but not predicted", name="measured-only")
    found.measured = [(index, row.measured) for index, row in places]
    found.values.update(
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
    counted = f"{settings} measured setting{'s' if settings > 1 else ''}"
    if settings < len(overlay.rows):
        fit = "fits" if settings == 1 else "fit"
        return f"{counted} {fit} {len(overlay.rows)} predictions, so the error stands with each curve, under “Measured against predicted”"
    middle = format_share(statistics.median(abs(row.error) for row in overlay.rows))
    inside = sum(row.inside for row in overlay.rows)
    return f"beside {counted} the median error is {middle}, and {inside} of them lie{'s' if inside == 1 else ''} in the interval"


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
    made.globals.update(interval=format_interval, kind_of=kind_of, plotly=Markup(_PLOTLY.read_text(encoding="utf-8")))  # noqa: S704
    made.policies["json.dumps_kwargs"] = {"sort_keys": True, "separators": (",", ":")}
    return made
