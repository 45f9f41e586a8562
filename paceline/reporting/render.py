"""The page: jinja2 puts text and figures together; everything it needs is inside."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from paceline.reporting import figures
from paceline.reporting.axes import marker_symbol
from paceline.reporting.columns import PARTS, columns_of
from paceline.reporting.context import Report, build_report
from paceline.reporting.coordinates import scaling_of
from paceline.reporting.sections import sections_of
from paceline.sentences import limit_in_words
from simulator.cluster import Cluster
from simulator.cost import placement_of, usd_per_hour
from simulator.files import write_whole
from simulator.left_out import left_out
from simulator.results import Result
from simulator.text import (
    clause,
    clean,
    format_duration,
    format_interval,
    format_number,
    format_share,
    format_usd,
    format_usd_per_hour,
    kind_of,
    listed,
    listed_numbers,
    sentence,
    written,
)

if TYPE_CHECKING:
    from paceline.planning.answer import Plan
    from paceline.reporting.measured import Overlay
    from paceline.reporting.sensitivity import Change
    from paceline.reporting.timeline import Timeline

__all__ = ["GENERATOR", "render", "write_report"]

GENERATOR = '<meta name="generator" content="Paceline">'
"""What tells a report of ours from any other file."""

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
    "sensitivity.js",
    "utilisation.js",
    "controls.js",
    "main.js",
)
"""The page's own script, in the order in which its parts are put together."""

_MOST_PLAIN_ROWS = 200


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
    title: str = "",
) -> Path:
    """Write the scaling report of some results as one HTML file that opens offline.

    Parameters
    ----------
    results
        At least one, such as :func:`paceline.sweeping.read_results` gives.
    out
        Where to write; a file that is there is replaced.
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
    title
        In place of the workloads' names.

    Returns
    -------
    Path
        ``out``.

    Raises
    ------
    ResultsError
        There is no result, or not one label a result.
    InputError
        ``out`` cannot be written.
    """
    report = build_report(
        results, notes, labels=labels, plan=plan, measured=measured, timeline=timeline, sensitivity=sensitivity, title=title
    )
    return write_whole(out, render(report))


def render(report: Report) -> str:
    """The page as text: the same for the same report, byte for byte."""
    fitted = [(index, load) for index, load in enumerate(report.workloads) if load.fit is not None and load.fit.points]
    drawn = {f"calibration-{index}": figures.calibration(load) for index, load in fitted}
    extra = sections_of(report)
    drawn.update(extra.figures)
    results, nodes = report.results, placement_of(report.answer.result.scenario).nodes
    return (
        _environment()
        .get_template("report.html")
        .render(
            report=report,
            **extra.values,
            points=columns_of(results, report.at, report.answer.index, extra.measured),
            figures={name: figures.plain(figure) for name, figure in drawn.items()},
            parts=_parts([part for part in PARTS if any(getattr(result.breakdown_s, part) for result in results)]),
            swept=[(index, key) for index, key in enumerate(report.at.keys) if len(key.values) > 1],
            priced=any(usd_per_hour(result.scenario) is not None for result in results),
            prices=[cluster for cluster in _clusters(results) if cluster.price is not None],
            asynchronous={
                curve for curve, result in zip(report.at.curve_of, results, strict=True) if result.scenario.strategy.pace.asynchronous
            },
            answer_scaling=scaling_of(report.answer.result.scenario),
            nodes=f"{nodes:,} node{'' if nodes == 1 else 's'}",
            left_out=left_out(report.answer.result.scenario),
            limit=limit_in_words(report.answer.result),
            gains=sorted((change for change in report.sensitivity if change.seen), key=lambda change: -(change.gain or 0.0)),
            error_share=max(result.monte_carlo_error / result.throughput_samples_per_s.mean for result in results),
            plain_rows=[
                (report.at.name_of(index), scaling_of(result.scenario), placement_of(result.scenario).nodes, result)
                for index, result in enumerate(results[:_MOST_PLAIN_ROWS])
            ],
            fitted=fitted,
            compared=any(group.id == "source" and len(group.labels) > 1 for group in report.at.groups),
            calibration_tables={index: figures.calibration_grid(load, index) for index, load in fitted},
            unfitted=[load for load in report.workloads if load.fit is None or not load.fit.points],
            scripts=SCRIPTS,
            # plotly's script is no user's text, and holds no closing script tag
            plotly=Markup(get_plotlyjs()),  # noqa: S704
            generator=Markup(GENERATOR),  # noqa: S704
        )
    )


def _parts(names: Sequence[str]) -> list[tuple[str, str]]:
    return [(part.replace("_", "-"), PARTS[part]) for part in names]


def _clusters(results: Sequence[Result]) -> list[Cluster]:
    return list({result.scenario.cluster.name: result.scenario.cluster for result in results}.values())


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        amount=format_number,
        clause=clause,
        clean=clean,
        counts=listed_numbers,
        dollars=format_usd,
        hourly=format_usd_per_hour,
        joined=listed,
        lower_first=lambda text: text[:1].lower() + text[1:],
        percent=format_share,
        plain=lambda value: f"{value:,.6g}",
        seconds=format_duration,
        sentence=sentence,
        symbol=marker_symbol,
        written=written,
    )
    environment.globals.update(interval=format_interval, kind_of=kind_of)
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "separators": (",", ":")}
    return environment
