"""What all figures share: colours, fonts, margins, and axes with round ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from simulator.text import written

__all__ = [
    "INK",
    "MUTED",
    "PAPER",
    "band_colour",
    "layout",
    "linear_axis",
    "log_axis",
    "marker_symbol",
    "series_colour",
    "style",
    "workers_axis",
]

# Colours are names of the page's CSS variables: the page's script puts in their values,
# so that figures follow the reader's light or dark theme.
INK = "var(--ink)"
MUTED = "var(--muted)"
PAPER = "var(--paper)"
_RULE = "var(--grid)"
_COLOURS = 7
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagon")
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
_MOST_TICKS = 9
_FEWEST_TICKS = 4
_ROUND = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9))


def series_colour(index: int) -> str:
    """The line colour of a curve; beyond seven they repeat, with another symbol."""
    return f"var(--series-{index % _COLOURS + 1})"


def band_colour(index: int) -> str:
    """The colour of a curve's interval."""
    return f"var(--band-{index % _COLOURS + 1})"


def marker_symbol(index: int) -> str:
    """The marker of a curve, so that colour is not all that tells curves apart."""
    return _SYMBOLS[(index + index // _COLOURS) % len(_SYMBOLS)]


def style() -> dict[str, Any]:
    """What the page's script draws with: the layout and the axis that all figures begin with, and steps of round ticks in a decade."""
    return {"layout": layout(), "axis": _axis(""), "round": [list(steps) for steps in _ROUND], "fewest": _FEWEST_TICKS}


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


def _axis(title: str, **changes: Any) -> dict[str, Any]:
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
    """A logarithmic axis of worker counts, with ticks at powers of two or at the counts themselves."""
    low, high = min(workers), max(workers)
    distinct = sorted(set(workers))
    spread = all(later / earlier >= 1.45 for earlier, later in pairwise(distinct))
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    stride = max(1, math.ceil((last - first + 1) / _MOST_TICKS))
    ticks = [2**power for power in range(first, last + 1, stride)]
    if (len(distinct) <= _MOST_TICKS and spread) or len(ticks) < 2:
        ticks = distinct[:: max(1, math.ceil(len(distinct) / _MOST_TICKS))]
    room = 0.04 * (math.log10(high) - math.log10(low)) + (0.15 if low == high else 0.02)
    return _axis(
        "Workers",
        type="log",
        tickmode="array",
        tickvals=ticks,
        ticktext=[written(tick, "tick") if tick >= 10_000 else str(tick) for tick in ticks],
        tickangle=0,
        range=[math.log10(low) - room, math.log10(high) + room],
        showgrid=False,
    )


def log_axis(values: Sequence[float], title: str = "") -> dict[str, Any]:
    """A logarithmic axis with ticks at round numbers of each decade: the fewer, the more decades there are."""
    positive = [value for value in values if value > 0] or [1.0]
    low, high = math.log10(min(positive)), math.log10(max(positive))
    decades = high - low
    room = max(0.05, 0.05 * decades, (0.25 - decades) / 2)
    stride = max(1, round(decades / 5))
    powers = range(max(-300, math.floor(low) - 1), min(300, math.ceil(high) + 2), stride)
    choices = [[step * 10.0**power for power in powers for step in steps] for steps in _ROUND]
    seen = [[tick for tick in ticks if low - room <= math.log10(tick) <= high + room] for ticks in choices]
    ticks = next((found for found in seen if len(found) >= _FEWEST_TICKS), seen[-1])
    return _axis(
        title,
        type="log",
        tickmode="array",
        tickvals=ticks,
        ticktext=[written(tick, "tick") for tick in ticks],
        automargin=low < -1,
        range=[low - room, high + room],
    )


def linear_axis(high: float, title: str = "", **changes: Any) -> dict[str, Any]:
    """An axis from nought to a little above ``high``."""
    return _axis(title, range=[0, high * 1.08 if high > 0 else 1], nticks=7, **changes)
