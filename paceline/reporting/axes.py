"""What all figures share: colours, fonts, margins and axes.

Of a logarithmic axis a figure says where its values end, or what they are; round ticks, their
texts and the room beyond them are made by the page's script (``templates/axes.js``), which
alone knows how wide the figure is. Colours are names of variables in the style sheets of ``templates/``; docs/timelines/draw.py
uses them too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from simulator.base.text import NONE, formats_data

# Colours are names of the page's CSS variables: the page's script puts in their values,
# so that figures follow the reader's light or dark theme.
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


def text_colour(part: str) -> str:
    """The colour of text in a bar of a part's colour."""
    return "var(--on-deep)" if part in _DEEP else "var(--on-part)"


def marker_symbol(index: int) -> str:
    """The marker of a curve, so that colour is not all that tells curves apart."""
    return _SYMBOLS[(index + index // _COLOURS) % len(_SYMBOLS)]


def what_scripts_need() -> dict[str, Any]:
    """What the script of a page writes and draws with: ``formats`` of numbers, the text for ``none``, and the ``style`` of all figures."""
    style = {"layout": layout(), "axis": _axis(""), "headroom": _HEADROOM, "linear_ticks": _LINEAR_TICKS}
    return {"formats": formats_data(), "none": NONE, "style": style}


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
    """A logarithmic axis of worker counts, with ticks at the counts, or at powers of two where they are many."""
    return _axis("Workers", type="log", tickvals=sorted(set(workers)))


def log_axis(values: Sequence[float], title: str = "") -> dict[str, Any]:
    """A logarithmic axis with round ticks; its range is that of the values above zero."""
    positive = [value for value in values if value > 0] or [1.0]
    return _axis(title, type="log", range=[math.log10(min(positive)), math.log10(max(positive))])


def linear_axis(high: float, title: str = "", **changes: Any) -> dict[str, Any]:
    """An axis from nought to a little above ``high``."""
    return _axis(title, range=[0, high * _HEADROOM if high > 0 else 1], nticks=_LINEAR_TICKS, **changes)
