"""Numbers as people read them."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence

from paceline.reporting.naming import LONGEST, clean
from simulator.units import format_seconds

__all__ = ["amount", "clause", "compact", "counts", "dollars", "duration", "interval", "join", "percent", "plot_text", "sentence", "signed"]

_LONGEST_SENTENCE = 600
_END_OF_SENTENCE = re.compile(r"[.!?] +(?=[A-Z])")
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def amount(value: float, digits: int = 3) -> str:
    """A number to ``digits`` significant digits, thousands apart: ``"81,200"``, ``"0.0123"``."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    places = digits - 1 - math.floor(math.log10(abs(value)))
    if abs(value) >= 1e15 or places > 6:
        return f"{value:.{digits - 1}e}"
    text = f"{round(value, places):,.{max(0, places)}f}"
    return text.rstrip("0").rstrip(".") if "." in text and abs(value) < 1 else text


def compact(value: float) -> str:
    """A number for the tick of an axis: ``"20k"``."""
    for scale, prefix in _PREFIXES:
        if value >= scale:
            return f"{value / scale:g}{prefix}"
    return f"{value:g}"


def duration(value_s: float) -> str:
    """A time to three significant digits, always as many: ``"13.0 ms"``."""
    number, unit = format_seconds(value_s).split(" ")
    return f"{amount(float(number))} {unit}"


def dollars(value: float) -> str:
    """An amount of money: ``"$1,230"``, ``"$64.80"``, ``"$0.0611"``."""
    return f"${value:,.0f}" if value >= 1000 else f"${value:.2f}" if value >= 0.1 else f"${amount(value)}"


def interval(name: str, ends: Sequence[float]) -> str:
    """The interval of a parameter, as times where its name ends in ``_s``."""
    low, high = (duration(end) if name.endswith("_s") else amount(end) for end in ends)
    return f"{low} to {high}"


def percent(share: float) -> str:
    """A share: ``"79%"``, ``"4.2%"`` where it is small, ``"<0.1%"`` where it is next to nothing."""
    if 0 < share < 0.001:
        return "<0.1%"
    return f"{share:.1%}" if 0 < abs(share) < 0.0995 else f"{share:.0%}"


def signed(share: float, digits: int = 1) -> str:
    """A change with its sign: ``"+83.0%"``, ``"−50.0%"``, ``"±0.0%"``."""
    text = f"{abs(share):.{digits}%}"
    return f"{'±' if float(text[:-1]) == 0 else '+' if share > 0 else '−'}{text}"


def counts(values: Sequence[int]) -> str:
    """Some whole numbers: all where they are few, else the first and the last."""
    if len(values) <= 3:
        return join([f"{value:,}" for value in values])
    return f"{values[0]:,} to {values[-1]:,}"


def join(parts: Sequence[str]) -> str:
    """Parts as a list in a sentence."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


def plot_text(text: str, longest: int = LONGEST) -> str:
    """Text for inside a figure, where plotly would read tags and entities."""
    return html.escape(clean(text, longest), quote=False)


def sentence(text: str, longest: int = _LONGEST_SENTENCE) -> str:
    """Text as a sentence of its own: a capital first, a full stop last."""
    plain = clean(text, longest)
    return plain[0].upper() + plain[1:] + ("" if plain.endswith((".", "!", "?", "…")) else ".")


def clause(text: str) -> str:
    """Text as the rest of a sentence: what is several sentences is joined, one full stop last."""
    plain = _END_OF_SENTENCE.sub("; ", clean(text, _LONGEST_SENTENCE).rstrip(".!? "))
    plain = plain[:1].upper() + plain[1:]
    return plain if plain.endswith("…") else plain + "."
