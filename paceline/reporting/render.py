"""The page: jinja2 puts text and figures together; everything it needs is inside."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from paceline.reporting import figures
from paceline.reporting.axes import marker_symbol
from paceline.reporting.context import Report, build_report
from paceline.reporting.naming import clean
from paceline.reporting.points import PARTS
from paceline.reporting.wording import amount, counts, duration, interval, join, percent, sentence
from simulator.files import write_whole
from simulator.results import Result

__all__ = ["GENERATOR", "render", "write_report"]

GENERATOR = '<meta name="generator" content="Paceline">'
"""What tells a report of ours from any other file."""

_ROW_PX = 27
_BARS_MARGIN_PX = 58


def write_report(results: Sequence[Result], out: Path, *, notes: Sequence[str] = ()) -> Path:
    """Write the scaling report of some results as one HTML file that opens offline.

    Parameters
    ----------
    results
        At least one, such as :func:`paceline.reporting.read_results` gives.
    out
        Where to write; a file that is there is replaced.
    notes
        Sentences to repeat in the report, such as that the results file was cut off.

    Returns
    -------
    Path
        ``out``.

    Raises
    ------
    ResultsError
        There is no result.
    InputError
        ``out`` cannot be written.
    """
    write_whole(out, render(build_report(results, notes)))
    return out


def render(report: Report) -> str:
    """The page as text: the same for the same report, byte for byte."""
    drawn = _drawn(report)
    page = _environment().get_template("report.html")
    return page.render(
        report=report,
        figures=drawn,
        parts=[
            (part.replace("_", "-"), label)
            for part, label in PARTS.items()
            if any(point.share(part) for each in report.series for point in each.points)
        ],
        bars_px={each.index: _BARS_MARGIN_PX + _ROW_PX * min(16, len(each.points)) for each in report.series},
        fitted=[(index, load) for index, load in enumerate(report.workloads) if load.fit is not None and load.fit.points],
        unfitted=[load for load in report.workloads if load.fit is None or not load.fit.points],
        # plotly's script is no user's text, and holds no closing script tag
        plotly=Markup(get_plotlyjs()),  # noqa: S704
        generator=Markup(GENERATOR),  # noqa: S704
    )


def _drawn(report: Report) -> dict[str, dict[str, Any]]:
    """Every figure under the fixed id of the element that it is drawn in."""
    drawn = {
        "throughput": figures.throughput(report.series, report.ideals),
        "efficiency": figures.efficiency(report.series),
    }
    for each in report.series:
        drawn[f"breakdown-{each.index}"] = figures.breakdown(each)
    for facet in report.facets:
        drawn[f"staleness-{facet.workers}"] = figures.staleness(facet, report.series)
    if report.facets:
        drawn["staleness-means"] = figures.staleness_means(report.series)
    for index, workload in enumerate(report.workloads):
        if workload.fit is not None and workload.fit.points:
            drawn[f"calibration-{index}"] = figures.calibration(workload)
    return {name: figures.plain(figure) for name, figure in drawn.items()}


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
        amount=amount,
        clean=clean,
        counts=counts,
        joined=join,
        percent=percent,
        plain=lambda value: f"{value:,.6g}",
        seconds=duration,
        sentence=sentence,
        symbol=marker_symbol,
    )
    environment.globals["interval"] = interval
    return environment
