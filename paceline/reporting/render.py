"""Renders a report's page: jinja2 puts text, figures and data into ``templates/``; everything that the page needs is inside.

Names of values that are handed to the templates, and of figures in them, stand on both sides. What the page says is in content.py, what its
script draws from in columns.py. The filters of :func:`environment` serve the page of validations too.
"""

from __future__ import annotations

import math
import re
import statistics
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jinja2
from markupsafe import Markup, escape

from paceline.answers import answer_of_memory, size_in_words
from paceline.comparing import LITTLE, Change
from paceline.planning.sentences import months_in_words
from paceline.planning.tables import alternatives_table, brief, plan_tables
from paceline.reporting.axes import JOB_COLOURS, Figure, marker_symbol, part_colour
from paceline.reporting.columns import PARTS, columns_of, map_of
from paceline.reporting.content import Content, helpful
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
    goal_in_words,
    job_in_words,
    servers_note,
    time_note,
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
from simulator.base.files import marked_kind
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
from simulator.results.cost import placement_of, usd_per_hour
from simulator.results.misread import left_out
from simulator.results.results import Result, unit_of
from simulator.results.rows import COLUMNS, IN_SAMPLES, IN_TOKENS
from simulator.scenario import Scenario
from simulator.spec.workload import Workload

if TYPE_CHECKING:
    from paceline.learning.learned import Learned
    from paceline.planning.answer import Plan
    from paceline.reporting.coordinates import Coordinates
    from paceline.reporting.measured import Beside, Overlay
    from paceline.reporting.timeline import Timeline

GENERATOR = '<meta name="generator" content="Paceline">'
"""What tells a report of ours from any other file."""
REPORT = marked_kind("report", GENERATOR)
"""Pages that a new one may replace."""

_PARTS_OF_SCRIPT = (
    "format", "plots", "data", "state", "axes", "traces", "tables", "pairs", "scaling", "against", "staleness", "steps", "job", "map",
    "sensitivity", "utilisation", "controls", "main",
)  # fmt: skip
SCRIPTS = tuple(f"{name}.js" for name in _PARTS_OF_SCRIPT)
"""The page's own script, in the order in which its parts are put together."""

_MOST_PLAIN_ROWS = 200
_LONGEST = 600


def plotly_script() -> str:
    """plotly.js with its plane figures alone, a third of the whole: the package plotly.js-cartesian-dist-min, as it is."""
    return (Path(__file__).parent / "vendored" / "plotly-cartesian.min.js").read_text(encoding="utf-8")


def figure_names() -> list[str]:
    """Every figure that a page may have, as its element is named; a name that ends in ``-`` goes on with a number."""
    pages = environment()
    sources = (pages.loader.get_source(pages, name)[0] for name in pages.list_templates(["html"]) if pages.loader is not None)
    return sorted({name for source in sources for name in _FIGURE.findall(source)})


_FIGURE = re.compile(r'\b(?:live|still)\("([a-z-]+)"')


_OPEN = 2
"""Sections that are open, the first of the page; where a page shows reports, one of them is its own."""


def render(report: Content, *, whole: bool = True) -> str:
    """The page as text: the same for the same report, byte for byte.

    Parameters
    ----------
    report
        What it says.
    whole
        Else without styles and scripts: what a page takes that has them already, and shows one report after another.
    """
    results, at, best = report.results, report.at, report.answer.result
    mapped = map_of(results, at, report.failures)
    by_layout = mapped is not None and mapped["rows"]["key"] < 0
    stills, titles, of_layouts = stills_of(report), *figures_of_layouts(report)
    jobs = [result.job for result in results if result.job is not None]
    steps = [result.breakdown_s for result in results]
    points = {
        **columns_of(results, at, report.answer.index, measured_points(report)),
        "map": mapped,
        "of_layouts": titles,
        "one_batch": report.answer.one_batch,
    }
    return (
        environment()
        .get_template("report.html")
        .render(
            report=report,
            stills=stills,
            figures={name: still.figure for name, still in stills.items()} | of_layouts,
            lead=_lead(report, stills, by_layout=by_layout) if whole else "throughput",
            points=points,
            step_legend=[(part_colour(part), label) for part, label in PARTS.items() if any(getattr(step, part) for step in steps)],
            job_legend=[
                (JOB_COLOURS[part], label) for part, label in PART_LABELS.items() if any(getattr(job.parts_s, part) for job in jobs)
            ],
            job_priced=any(job.cost_usd is not None for job in jobs),
            layouts=by_layout,
            of_layouts=titles,
            mapped=mapped is not None,
            swept=[(index, key) for index, key in enumerate(at.keys) if len(key.values) > 1],
            # of whole jobs the cost of the job says more
            cost_drawn=any(usd_per_hour(result.scenario) is not None and result.job is None for result in results),
            clusters={result.scenario.cluster.name: result.scenario.cluster for result in results}.values(),
            asynchronous={curve for curve, result in zip(at.curve_of, results, strict=True) if result.scenario.strategy.pace.asynchronous},
            nodes=counted(placement_of(best.scenario).nodes, "node"),
            plan_tables={} if report.plan is None else {table.name: brief(table) for table in plan_tables(report.plan)},
            alternatives=None if report.plan is None else alternatives_table(report.plan),
            sized=report.sized(best),
            named=_named(report),
            error_share=max(result.monte_carlo_error / result.throughput_samples_per_s.mean for result in results),
            brief=_brief_table(results, at),
            scripts=SCRIPTS,
            whole=whole,
            opened=partial(next, chain((True,) * (_OPEN if whole else 1), repeat(False))),
            generator=Markup(GENERATOR),  # noqa: S704
        )
    )


_BRIEF = (
    "scaling", "replicas", "nodes", *IN_SAMPLES, *IN_TOKENS, "mfu", "scaling_efficiency",
    "scaling_efficiency_low", "scaling_efficiency_high", "limit",
)  # fmt: skip


def _brief_table(results: Sequence[Result], at: Coordinates) -> Table:
    """The most important figures of the first results, for who has no script."""
    rows = [
        {**result.row(), "configuration": at.name_of(index), "limit": result.bottleneck.label}
        for index, result in enumerate(results[:_MOST_PLAIN_ROWS])
    ]
    unsaid = IN_SAMPLES if unit_of(results) == "tokens" else (*IN_TOKENS, "mfu")
    columns = (CONFIGURATION, *(replace(COLUMNS[name], of="") for name in _BRIEF if name not in unsaid))
    more = f"The first {_MOST_PLAIN_ROWS:,} of {len(results):,} results." if len(results) > _MOST_PLAIN_ROWS else ""
    return replace(Table.reading("All results", columns, rows, "results"), more=more)


def _named(report: Content) -> list[tuple[int, str]]:
    """Number and name of the lines of figures on ways to learn or to pay, as they are in legends."""
    if report.learned is not None:
        return list(zip(series_of(report), (way.name for way in report.learned.ways), strict=True))
    payments = report.plan.payments if report.plan is not None else ()
    return [(index, payment.name) for index, payment in enumerate(payments) if payment.best is not None]


def _lead(report: Content, stills: Mapping[str, Still], *, by_layout: bool) -> str:
    """The figure that answers: it stands beside the answer, and not in its section."""
    swept = any(len(key.values) > 1 for key in report.at.keys)
    if first := next((name for name in ("paying", "pareto", "learning-metric", "learning-loss") if name in stills), ""):
        return first
    if report.answer.result.job is not None:
        return "job" if swept else "job-timeline" if "job-timeline" in stills else "steps-here"
    return "map" if by_layout else "throughput" if swept else "steps-here"


# -- figures that do not follow the reader's choices, each in the section that it has ------


class Still(NamedTuple):
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
    otherwise_px
        Its height, where the layout says none.
    """

    figure: Figure
    name: str
    title: str
    about: str
    table: Table | None = None
    legend: Sequence[tuple[str, str]] = ()
    wide: bool = False
    otherwise_px: int = 380


def stills_of(report: Content) -> dict[str, Still]:
    """Those that a report has, by the id of the element that each is drawn in."""
    answer, plan = report.answer.result, report.plan
    stills: dict[str, Still | None] = {
        f"calibration-{index}": _calibration(load, index, several=len(report.workloads) > 1) for index, load in enumerate(report.workloads)
    }
    stills["memory"] = _memory(answer.scenario)
    if plan is not None:
        tables = {table.name: brief(table) for table in plan_tables(plan)}
        stills |= {"pareto": _pareto(plan, tables.get("plan-all")), "paying": _paying(plan, tables.get("plan-break-even"))}
    if report.sensitivity:
        stills["sensitivity"] = _sensitivity(report.sensitivity, answer.scenario.scaling)
    if report.timeline is not None:
        stills["timeline"] = _timeline(report.timeline, report.of_layouts.values())
    stills |= {"stages": _stages(answer), "job-timeline": _job(answer, report.answer.name)}
    if report.learned is not None:
        stills |= _learned(report.learned, series_of(report))
    return {name: still for name, still in stills.items() if still is not None}


def _calibration(load: Workload, index: int, *, several: bool) -> Still | None:
    if load.fit is None or not load.fit.points:
        return None
    columns = ("batch", "steps", "median_s", "p5_s", "p95_s", "mean_s", "fitted_step_s", "forward_s", "backward_s", "apply_s")
    name, whose = (f"{clean(load.name)}: step time", f"{clean(load.name)}: the") if several else ("Step time", "The")
    table = replace(calibration_table([load]).only(*columns), name=f"calibration-{index}")
    title = f"{whose} fitted lines miss the measured means by at most {format_share(load.fit.relative_residual)}"
    about = "Step time against batch; points: measured, lines: fitted"
    return Still(calibration_figure(load), name, title, about, table, otherwise_px=340)


def _pareto(plan: Plan, every: Table | None) -> Still | None:
    if (drawn := pareto_figure(plan)) is None:
        return None
    name = "Cost against time" if plan.goal.samples else "Cost against throughput"
    about = (
        "Ringed: the answer; circles reach the goal, triangles miss it; hollow: beyond what was measured; dotted: none is cheaper and "
        "faster; dashed: the goal"
    )
    return Still(drawn, name, _title_of_front(plan), about, every, otherwise_px=330)


def _paying(plan: Plan, table: Table | None) -> Still | None:
    """When paying in advance pays, where something is."""
    if (drawn := paying_figure(plan)) is None:
        return None
    first = min((pair for pair in plan.break_even if pair.months is not None), key=lambda pair: pair.months or 0.0, default=None)
    title = "Nothing that is paid in advance pays while it lasts"
    if first is not None:
        title = f"Against {first.rented}, {first.own} {months_in_words(first.months or 0.0, first.months_low, first.months_high)}"
    about = (
        "Paid by then for the same work; dashed: by the hour; shaded, whiskers: 90% interval; diamond: from here on paying in advance has "
        "cost less"
    )
    return Still(drawn, "When paying in advance pays", title, about, table, otherwise_px=310)


def _title_of_front(plan: Plan) -> str:
    """Return what is seen of cost against time, or against throughput."""
    meeting, of = sum(candidate.meets for candidate in plan.candidates), f"of {len(plan.candidates)} configurations simulated"
    best = plan.chosen
    if not meeting:
        return f"None {of} reaches the goal"
    reach = f"{meeting} {of} reach{'es' if meeting == 1 else ''} the goal; the answer"
    if best.time_s is not None and best.cost_usd is not None:
        return f"{reach} takes {format_seconds(best.time_s.mean)} and costs {format_usd(best.cost_usd.mean)}"
    rate = format_throughput(best.result.rate.mean)
    costs = f" for {format_hourly(best.usd_per_hour)} an hour" if best.usd_per_hour is not None else ""
    return f"{reach} trains {rate} {plan.unit.per_s}{costs}"


def _sensitivity(changes: Sequence[Change], scaling: str) -> Still:
    """Return what is seen of changes: the one that gains most."""
    gaining = helpful(changes)
    best = next((change for change in gaining if change.seen), None) or next(iter(gaining), None)
    title = f"No single change that was tried brings more than {format_share(LITTLE)}"
    if best is not None and best.gain is not None:
        would = "would help most" if best.seen else "may help most, but not for certain"
        title = f"{best.name[:1].upper()}{best.name[1:]} {would}: {format_change(best.gain)} throughput"
    table = sensitivity_table(changes, scaling).only("change", "scaling", "gain", "gain_low", "gain_high", "text", "reason")
    about = "Change of throughput, run by run; whiskers: 90% prediction interval"
    return Still(sensitivity_figure(changes), "What one change would do", title, about, table)


def _memory(scenario: Scenario) -> Still | None:
    """Of a scenario whose memory is known; of others it is said with what is left out."""
    held = memory(scenario)
    if held.not_checked is not None:
        return None
    used = {part.name for device in held.devices for part in device.parts if part.size_bytes}
    legend = [(MEMORY_COLOURS[name], label.capitalize()) for name, label in PARTS_OF_MEMORY.items() if name in used]
    about = "At its peak; dotted: what the device has"
    return Still(memory_figure(held), "Memory of a device", _title_of_memory(held), about, held.table(), legend)


def _title_of_memory(held: Memory) -> str:
    """Return what the fullest device holds, of what it has."""
    fullest = held.tightest
    has = f" of {format_bytes(fullest.capacity_bytes)}" if fullest.capacity_bytes is not None else ""
    holds = f"{fullest.name.capitalize()} holds most:" if len(held.devices) > 1 else f"Each {fullest.name} holds"
    return f"{holds} {fullest.need_in_words}{has}"


def figures_of_layouts(report: Content) -> tuple[dict[int, dict[str, str]], dict[str, Figure]]:
    """What takes the place of the answer's steps in time and of its memory when a layout is chosen: titles by result, and figures."""
    titles: dict[int, dict[str, str]] = {}
    figures: dict[str, Figure] = {}
    for index, result in enumerate(report.results):
        timeline = report.of_layouts.get(result.scenario_hash)
        if timeline is None:
            continue
        titles[index] = {"timeline": clean(f"{timeline.name}: {timeline.sentence}", _LONGEST)}
        figures[f"timeline-{index}"] = timeline_figure(timeline)
        held = memory(result.scenario)
        if held.not_checked is None:
            figures[f"memory-{index}"] = memory_figure(held)
            titles[index]["memory"] = clean(f"{timeline.name}: {_title_of_memory(held)}", _LONGEST)
    return titles, figures


def _timeline(timeline: Timeline, others: Iterable[Timeline]) -> Still:
    used = {bar.kind for each in (timeline, *others) for bar in each.bars}
    legend = [(part_colour(kind), label) for kind, label in KIND_LABELS.items() if kind in used]
    table = timeline_table(timeline).only("lane", "start_s", "end_s", "kind", "text", "critical")
    about = "First row: the critical path of one step; dotted: where that step begins and ends"
    name = f"Timeline of {clean(timeline.name)}"
    return Still(timeline_figure(timeline), name, timeline.sentence, about, table, legend, wide=True)


def _stages(answer: Result) -> Still | None:
    if not answer.stages:
        return None
    least, most = (format_share(end(stage.busy for stage in answer.stages)) for end in (min, max))
    title = f"Stages are busy for {least if least == most else f'{least} to {most}'} of the time"
    about = "Share of the time of each stage’s devices; bubble: they wait for other stages or copies"
    waits = any(stage.input for stage in answer.stages)
    legend = [(part_colour(part), label) for name, (part, label) in STAGE_PARTS.items() if name != "input" or waits]
    return Still(stages_figure(answer.stages), "Stages", title, about, stages_table(answer), legend)


def _job(result: Result, name: str) -> Still | None:
    strips = strips_of(result)
    if result.job is None or not strips:
        return None
    about = f"{name} on {size_in_words(result)}, drawn from means; each axis has its own scale"
    title = f"The job takes {format_seconds(result.job.time_s.mean)} from start to end"
    return Still(job_timeline_figure(strips), "From start to end", title, about, parts_table(result))


def _learned(learned: Learned, series: Sequence[int]) -> dict[str, Still]:
    """Return what was learned, by any of several ways of training."""
    stills = {}
    target = learned.target.metric
    for place, metric in (("metric", target), ("loss", "loss")) if target != "loss" else (("loss", "loss"),):
        name, about = f"{metric.capitalize()} against time", f"{metric.capitalize()} of the validation data, median of the runs"
        title, more = (name, "") if place == "loss" else (learned.headline, "; dotted: the target")
        about = f"1 − {about[:1].lower()}{about[1:]}" if "accuracy" in metric else about
        stills[f"learning-{place}"] = Still(curves_figure(learned, metric, series), name, title, about + more, otherwise_px=360)
    title, about = "What reaching the target takes", "Median of the runs; hollow: some runs did not reach it"
    table = learned.table().without_empty_columns()
    return stills | {"learning-target": Still(target_figure(learned, series), "To the target", title, about, table, wide=True)}


def series_of(report: Content) -> list[int]:
    """Return what number each way of learning has among the curves: that of its own results' curve, and none that another way has."""
    curves = {result.scenario.hash: curve for result, curve in zip(report.results, report.at.curve_of, strict=True)}
    series: list[int] = []
    for way in report.learned.ways if report.learned is not None else ():
        own = curves.get(way.scenario.hash)
        series.append(own if own is not None and own not in series else max([*series, *curves.values()], default=-1) + 1)
    return series


def measured_points(report: Content) -> list[tuple[int, float]]:
    """Measured throughputs in samples/s, each with the index of its prediction."""
    return [(index, row.measured) for index, row in _beside(report)]


def _beside(report: Content) -> list[tuple[int, Beside]]:
    """Measured settings with the index of their predictions; one scenario may be there once in each file, told apart by its name."""
    named = {(result.scenario_hash, report.at.title_of(index)): index for index, result in enumerate(report.results)}
    of_hash = {result.scenario_hash: index for index, result in enumerate(report.results)}
    rows = report.measured.rows if report.measured is not None else ()
    return [(named.get((row.scenario_hash, row.name), of_hash[row.scenario_hash]), row) for row in rows if row.scenario_hash in of_hash]


def measured_tables(report: Content) -> dict[str, Table]:
    """``fit``: how well each curve fits; ``beside``: settings with their predictions; ``alone``: those without."""
    assert report.measured is not None
    whole, count = measured_table(report.measured, report.results), len(report.measured.rows)
    alone = replace(whole, rows=whole.rows[count:], title="Measured, but not predicted", name="measured-only")
    return {
        "fit": curve_errors_table(_beside(report), report.results, report.at),
        "beside": replace(whole, rows=whole.rows[:count]).only(
            "setting", "prediction", "scaling", "predicted_samples_per_s", "predicted_low", "predicted_high", "measured_samples_per_s",
            "error", "inside", "staleness_predicted", "staleness_measured",
        ),
        "alone": alone.only("setting", "measured_samples_per_s", "line", "why_not"),
    }  # fmt: skip


def error_in_words(overlay: Overlay) -> str:
    """How far measured settings lie from their predictions; no error where one setting stands beside several of them."""
    settings = len({row.line for row in overlay.rows})
    if not settings:
        return ""
    measured = counted(settings, "measured setting")
    if settings < len(overlay.rows):
        fit = "fits" if settings == 1 else "fit"
        return f"{measured} {fit} {len(overlay.rows)} predictions, so the error is given for each curve"
    middle = format_share(statistics.median(abs(row.error) for row in overlay.rows))
    inside = sum(row.inside for row in overlay.rows)
    return f"at {measured} the median error is {middle}, and {inside} of them lie{'s' if inside == 1 else ''} in the interval"


# -- the templates ------------------------------------------------------------------------


def _coded(text: str) -> Markup:
    """Text whose command lines, between grave accents, are set as code."""
    return Markup(_COMMAND.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704


_COMMAND = re.compile("`([^`]+)`")


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """Return what reads the templates of every page: values are escaped, and a name that is missing is an error."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    texts = (
        clause, clean, format_hourly, format_number, format_seconds, format_share, format_throughput, listed, listed_numbers,
        marker_symbol, sentence, written,
    )  # fmt: skip
    made.filters.update({function.__name__.removeprefix("format_"): function for function in texts})
    made.filters.update(
        coded=_coded,
        count=partial(written, kind="count"),
        headed=lambda text: clean(text[:1].upper() + text[1:]),
        lower_first=lambda text: text[:1].lower() + text[1:],
        plain=partial(written, kind="setting"),
    )
    said = (
        counted, epochs_table, error_in_words, exchanges_table, goal_in_words, job_in_words, left_out,
        measured_tables, measurements_table, memory, answer_of_memory,
        servers_note, time_note, width_table, work_note, workers_note,
    )  # fmt: skip
    made.globals.update({function.__name__: function for function in said})
    # plotly's script is no user's text, and holds no closing script tag
    made.globals.update(interval=format_interval, kind_of=kind_of, plotly=Markup(plotly_script()))  # noqa: S704
    made.policies["json.dumps_kwargs"] = {"sort_keys": True, "separators": (",", ":")}
    return made


def origin_mark(entry: str) -> str:
    """Return what a report holds that names such an origin of a workload or a cluster."""
    return str(getattr(environment().get_template("macros.html").module, "origin_entry")(entry))  # noqa: B009


_MARK = '<desc id="paceline-card">'
CARD = marked_kind("card", _MARK, ".svg")
"""Pictures that a new one may replace."""

_LETTERS, _MOST_LINES, _HEADLINE_LETTERS, _MOST_FIGURES = 48, 3, 64, 3
"""Letters that fit into a line next to the curve, lines of one text, letters of a line of the headline, and figures."""
_LEFT, _TOP, _WIDTH, _HEIGHT = 552.0, 152.0, 214.0, 150.0
"""Where the curve is drawn, in pixels."""


def render_card(report: Content) -> str:
    """The picture as text: the same for the same report, byte for byte."""
    result, decision = report.answer.result, report.decision
    facts = {figure.what: " · ".join(filter(None, (figure.mean, figure.interval))) for figure in decision.figures[:_MOST_FIGURES]}
    facts |= dict(decision.lines)
    wrapped = partial(textwrap.wrap, width=_LETTERS, max_lines=_MOST_LINES, placeholder=" …")
    lines = [
        (heading.capitalize(), wrapped(clean(text.replace("`", "").replace(": --details", " in the report"), 400)))
        for heading, text in facts.items()
    ]
    headline = textwrap.wrap(clean(decision.headline, 300), width=_HEADLINE_LETTERS, max_lines=2, placeholder=" …")
    top = 66 + 30 * len(headline)
    values: dict[str, Any] = {
        "title": clean(f"{report.title} on {result.scenario.cluster.name}", 90),
        "headline": headline,
        "facts": lines,
        "top": top,
        "height": max(top + 16 + sum(20 * len(texts) + 8 for _, texts in lines), _TOP + _HEIGHT + 40),
        "drawn": _drawn(report),
        "counted": f"{report.counted}s",
        "unit": result.scenario.unit.per_s,
    }
    return environment().get_template("card.svg").render(mark=_MARK, **values)


def _drawn(report: Content) -> dict[str, Any] | None:
    """The answer's curve over replicas or ranks on logarithmic axes, in pixels as SVG writes them; None where it has one point.

    ``line`` and ``band``, which goes there and back; ``at``, where the answer lies; ``ends``, which stand below the axis.
    """
    line, answer = report.line, report.answer.result
    ranks = [each.ranks for each in line]
    if len(set(ranks)) == 1:
        return None
    rates = [each.rate for each in line]
    lows = [max(rate.low, rate.mean / _FAR) for rate in rates]
    ends = min(lows + [rate.high for rate in rates]), max(rate.high for rate in rates)

    def placed(counts: Sequence[int], values: Sequence[float]) -> list[tuple[float, float]]:
        across, up = _share_of(counts, ranks[0], ranks[-1]), _share_of(values, *ends)
        return [(_LEFT + _WIDTH * x, _TOP + _HEIGHT * (1 - y)) for x, y in zip(across, up, strict=True)]

    def written_out(places: list[tuple[float, float]]) -> str:
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)

    (here,) = placed([answer.ranks], [answer.rate.mean])
    return {
        "line": written_out(placed(ranks, [rate.mean for rate in rates])),
        "band": written_out([*placed(ranks, [rate.high for rate in rates]), *placed(ranks, lows)[::-1]]),
        "at": [round(place, 1) for place in here],
        "ends": (f"{ranks[0]:,}", f"{ranks[-1]:,}"),
    }


_FAR = 1000.0
"""No end of an interval is drawn further below its mean: a logarithmic axis has no place for nothing."""


def _share_of(values: Sequence[float], low: float, high: float) -> list[float]:
    """Where values lie between two others, in logarithms."""
    return [math.log(value / low) / math.log(high / low) if high > low else 0.5 for value in values]
