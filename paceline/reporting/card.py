"""A report in one picture (SVG), to be put into a message or a wiki: the answer, its interval, where to stop, the cost, one caveat."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from typing import Any

from paceline.reporting.content import Content, line_of
from paceline.reporting.render import cares_of, environment
from simulator.base.files import marked_kind
from simulator.base.text import clean, counted, format_interval, format_seconds, format_throughput, format_usd, sentence
from simulator.results.cost import cost_of_samples, placement_of, usd_per_million_samples

_MARK = '<desc id="paceline-card">'
CARD = marked_kind("card", _MARK)
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
        "height": 150 + sum(20 * len(its) + 8 for _, its in lines),
        "drawn": _drawn(report),
        "counted": f"{things}s",
    }
    return environment().get_template("card.svg").render(mark=_MARK, **values)


def _lines(text: str) -> list[str]:
    return textwrap.wrap(clean(text, 400), _LETTERS, max_lines=_MOST_LINES, placeholder=" …")


def _drawn(report: Content) -> Drawn | None:
    """The answer's curve on logarithmic axes; None where it has one point."""
    held = line_of(report.results, report.at, report.answer.index)
    if len({its.ranks for its in held}) == 1:
        return None
    rates = [its.throughput_samples_per_s for its in held]
    x_of = _scale([float(its.ranks) for its in held], _LEFT, _WIDTH)
    lows = [max(its.low, its.mean / _FAR) for its in rates]
    y_of = _scale([*lows, *(its.high for its in rates)], _TOP + _HEIGHT, -_HEIGHT)
    xs = [x_of(float(its.ranks)) for its in held]
    there = [(x, y_of(its.high)) for x, its in zip(xs, rates, strict=True)]
    back = [(x, y_of(low)) for x, low in zip(xs, lows, strict=True)]
    answer = report.answer.result
    return Drawn(
        line=_points([(x, y_of(its.mean)) for x, its in zip(xs, rates, strict=True)]),
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
