"""What all figures share: traces and layouts as plotly.js takes them, colours, fonts, margins and axes.

A figure is plain data, ``{"data": [...], "layout": {...}}``. Of a logarithmic axis it says where its values end, or what they are;
round ticks, their texts and the room beyond them are made by the page's script (``templates/axes.js``), which alone knows how wide the
figure is. Colours are names of variables in the style sheets of ``templates/``: the script puts in their values, so that figures follow
the reader's light or dark theme. docs/timelines/draw.py uses the colours too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from simulator.base.text import LONGEST, NONE, formats_data, plot_text

Figure = dict[str, Any]
"""What becomes JSON, and is drawn."""

INK = "var(--ink)"
MUTED = "var(--muted)"
PAPER = "var(--paper)"
_RULE = "var(--grid)"
_COLOURS = 7
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagon")
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
JOB_COLOURS = {
    "startup": "var(--series-5)",
    "tracing": "var(--part-weights)",
    "first_epoch": "var(--part-input)",
    "filling": "var(--series-6)",
    "iterators": "var(--series-2)",
    "steps": "var(--part-compute)",
    "evaluation": "var(--part-apply)",
    "checkpoints": "var(--part-waiting)",
    "lost_work": "var(--part-exposed-communication)",
    "down": "var(--series-7)",
    "fewer_workers": "var(--series-4)",
}
"""Of each part of a job, in all figures."""
_DEEP = ("var(--part-compute)", "var(--part-backward)", "var(--series-7)")
"""Colours of parts on which dark text cannot be read where the theme is light."""
_HEADROOM = 1.08
_LINEAR_TICKS = 7


def series_colour(index: int) -> str:
    """The line colour of a curve; beyond seven they repeat, with another symbol."""
    return f"var(--series-{index % _COLOURS + 1})"


def band_colour(index: int) -> str:
    """The colour of a curve's interval."""
    return f"var(--band-{index % _COLOURS + 1})"


def part_colour(part: str) -> str:
    """The colour of a part of a step, or of a kind of bar of the timeline."""
    return f"var(--part-{'exposed-communication' if part == 'communication' else part.replace('_', '-')})"


def text_colour(colour: str) -> str:
    """The colour of text in a bar of this colour, as :func:`part_colour` gives it."""
    return "var(--on-deep)" if colour in _DEEP else "var(--on-part)"


def marker_symbol(index: int) -> str:
    """The marker of a curve, so that colour is not all that tells curves apart."""
    return _SYMBOLS[(index + index // _COLOURS) % len(_SYMBOLS)]


def what_scripts_need() -> dict[str, Any]:
    """What the script of a page writes and draws with: ``formats`` of numbers, the text for ``none``, and the ``style`` of all figures."""
    style = {"layout": layout(), "axis": axis(""), "headroom": _HEADROOM, "linear_ticks": _LINEAR_TICKS}
    return {"formats": formats_data(), "none": NONE, "style": style}


# -- traces --------------------------------------------------------------------------------


def scatter(x: Sequence[Any], y: Sequence[Any], **changes: Any) -> dict[str, Any]:
    """Points, or with ``mode="lines"`` a line."""
    return {"type": "scatter", "mode": "markers", "hoverinfo": "text" if "hovertext" in changes else "skip", "x": x, "y": y, **changes}


def bars(x: Sequence[Any], y: Sequence[Any], **changes: Any) -> dict[str, Any]:
    """Bars from left to right, in rows."""
    return {"type": "bar", "orientation": "h", "hoverinfo": "text", "x": x, "y": y, **changes}


def band(x: Sequence[float], low: Sequence[float], high: Sequence[float], index: int, **changes: Any) -> dict[str, Any]:
    """The interval around a curve."""
    shape = {"mode": "lines", "line": {"width": 0}, "fill": "toself", "fillcolor": band_colour(index)}
    return scatter([*x, *x[::-1]], [*high, *low[::-1]], **{**shape, **changes})


def spread_curve(
    x: Sequence[float], low: Sequence[float], middle: Sequence[float], high: Sequence[float], index: int, texts: Sequence[str], **line: Any
) -> list[dict[str, Any]]:
    """A curve in its interval, with its marker at the end."""
    colour = series_colour(index)
    return [
        band(x, low, high, index),
        scatter(x, middle, mode="lines", line={"color": colour, **line}, hovertext=texts),
        scatter(x[-1:], middle[-1:], marker={"size": 9, "symbol": marker_symbol(index), "color": colour}),
    ]


def whiskers(
    middles: Sequence[float], lows: Sequence[float], highs: Sequence[float], colour: str = INK, thickness: float = 1.5, width: float = 4
) -> dict[str, Any]:
    """From values to the ends of their intervals."""
    up = [max(0.0, high - middle) for middle, high in zip(middles, highs, strict=True)]
    down = [max(0.0, middle - low) for middle, low in zip(middles, lows, strict=True)]
    look = {"color": colour, "thickness": thickness, "width": width}
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down, **look}


def words_in_bars(texts: Sequence[str], colour: str, size: int | None = None) -> dict[str, Any]:
    """Return what stands in bars of a colour, where there is room."""
    font = {"color": text_colour(colour)} | ({"size": size} if size is not None else {})
    return {"text": texts, "textposition": "inside", "insidetextanchor": "middle", "textangle": 0, "insidetextfont": font,
            "constraintext": "inside"}  # fmt: skip


def upright(x: float, **line: Any) -> dict[str, Any]:
    """A line down the figure."""
    return {"type": "line", "xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1, "line": {"color": INK, "width": 1, **line}}


def words_at(x: float, y: float, xref: str, yref: str, text: str, **changes: Any) -> dict[str, Any]:
    """Words at a place in a figure."""
    return {"x": x, "y": y, "xref": xref, "yref": yref, "text": text, "showarrow": False, **changes}


# -- layouts and axes ----------------------------------------------------------------------


def figure(traces: Iterable[dict[str, Any]], **changes: Any) -> Figure:
    """A figure of traces with the layout that all have, and changes to it."""
    return {"data": list(traces), "layout": layout(**changes)}


def layout(**changes: Any) -> dict[str, Any]:
    """The layout of a figure; the legend stands beside it, in the page."""
    base: dict[str, Any] = {
        "template": {},
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": _FONT, "size": 12, "color": MUTED},
        "margin": {"l": 46, "r": 14, "t": 12, "b": 44},
        "showlegend": False,
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": PAPER, "bordercolor": _RULE, "align": "left", "font": {"family": _FONT, "color": INK, "size": 13}},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": MUTED, "activecolor": INK},
    }
    return {**base, **changes}


def axis(title: str, **changes: Any) -> dict[str, Any]:
    """An axis as all figures have it."""
    base: dict[str, Any] = {
        "title": {"text": title, "standoff": 8},
        "gridcolor": _RULE,
        "linecolor": _RULE,
        "zeroline": False,
        "showline": False,
        "automargin": False,
        "fixedrange": False,
        "ticks": "",
    }
    return {**base, **changes}


def workers_axis(workers: Sequence[int]) -> dict[str, Any]:
    """A logarithmic axis of worker counts, with ticks at the counts."""
    return axis("Workers", type="log", tickvals=sorted(set(workers)))


def log_axis(values: Iterable[float], title: str = "") -> dict[str, Any]:
    """A logarithmic axis with round ticks; its range is that of the values above zero."""
    positive = [value for value in values if value > 0] or [1.0]
    return axis(title, type="log", range=[math.log10(min(positive)), math.log10(max(positive))])


def linear_axis(high: float, title: str = "", **changes: Any) -> dict[str, Any]:
    """An axis from nought to a little above ``high``."""
    return axis(title, range=[0, high * _HEADROOM if high > 0 else 1], nticks=_LINEAR_TICKS, **changes)


def rows_axis(names: Sequence[str], above: float = 0.55, longest: int = LONGEST) -> dict[str, Any]:
    """Rows from top to bottom with their names, and so much of a row's height above the first and below the last."""
    ticks = {"tickmode": "array", "tickvals": list(range(len(names))), "ticktext": [plot_text(name, longest) for name in names]}
    return {
        "range": [len(names) - 1 + above, -above],
        "fixedrange": True,
        "showgrid": False,
        "zeroline": False,
        "automargin": True,
        **ticks,
    }
