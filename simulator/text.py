"""How every number, quantity, interval and list is written for a reader: here, and nowhere else.

Values come in SI units (seconds, bytes, bytes per second), shares as 0 to 1, money in US dollars.
Sentences about results and plans stand in :mod:`paceline.sentences`, names of strategies with
the strategies.
"""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Literal

__all__ = [
    "LONGEST",
    "Kind",
    "clause",
    "clean",
    "format_bytes",
    "format_change",
    "format_compact",
    "format_duration",
    "format_interval",
    "format_number",
    "format_rate",
    "format_seconds",
    "format_share",
    "format_throughput",
    "format_usd",
    "format_usd_per_hour",
    "format_usd_sum",
    "listed",
    "listed_numbers",
    "plot_text",
    "sentence",
    "written",
]

LONGEST = 72
"""Characters of a name that a legend or a heading shows."""

Kind = Literal["text", "count", "number", "precise", "seconds", "share", "change", "usd", "hourly", "sum", "any"]
"""How the values of a column are written: :func:`written`. What a reader may multiply is "precise" and "hourly", with five
significant digits, and "sum", with four; "any" goes by the type of the value."""

_LONGEST_CELL = 400
_LONGEST_SENTENCE = 600
_END_OF_SENTENCE = re.compile(r"[.!?] +(?=[A-Z])")
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def clean(text: str, longest: int = LONGEST) -> str:
    """Text as it may stand in a heading: no control or direction marks, not too long."""
    plain = "".join(char if unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn") else " " for char in text[: longest * 4])
    plain = " ".join(plain.split()) or "(no name)"
    return plain if len(plain) <= longest and len(text) <= longest * 4 else plain[: longest - 1].rstrip() + "…"


def _scaled(value: float, units: list[tuple[float, str]], digits: int = 3) -> str:
    scale, unit = next(((scale, unit) for scale, unit in units if abs(value) >= scale * 0.9995), units[-1])
    number = value / scale
    # 1,000 to 1,023 of a unit of bytes are not 1e+03
    return f"{number:.0f} {unit}" if 10**digits - 0.5 <= abs(number) < 1e6 else f"{number:.{digits}g} {unit}"


def format_seconds(value_s: float, digits: int = 3) -> str:
    """Seconds for reading, such as ``"12.5 ms"``, to ``digits`` significant digits."""
    return _scaled(value_s, [(3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")], digits)


def format_bytes(value_bytes: float) -> str:
    """Bytes for reading, in powers of 1024, such as ``"97.5 MiB"``."""
    return _scaled(value_bytes, [(2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")])


def format_rate(value_bytes_per_s: float) -> str:
    """Bytes per second for reading, in bits as networks are sold: ``"25 Gbit/s"``."""
    return _scaled(value_bytes_per_s * 8, [(1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1, "bit/s")])


def format_throughput(per_s: float) -> str:
    """A throughput in as few characters as tell it: ``"1,235"``, ``"12.3"``, ``"0.0617"``."""
    return f"{per_s:,.0f}" if per_s >= 100 else f"{per_s:.3g}"


def format_usd_per_hour(usd: float) -> str:
    """A price of an hour with five significant digits, cents at least: ``0.20``, ``0.526``, ``21.958``."""
    if not usd:
        return "0.00"
    places = max(2, 4 - math.floor(math.log10(abs(usd))))
    text = f"{usd:,.{min(places, 12)}f}"
    whole, _, cents = text.partition(".")
    return f"{whole}.{cents[:2]}{cents[2:].rstrip('0')}"


def format_usd_sum(usd: float) -> str:
    """A sum that was worked out, to four significant digits: ``40.83``, ``1,235``; cents at most, where it has any."""
    if not usd or usd < 1:
        return f"{usd:.3g}" if 0 < usd < 0.1 else f"{usd:.3f}".removesuffix("0")
    places = 3 - math.floor(math.log10(usd))
    return f"{round(usd, places):,.{min(max(places, 0), 2)}f}"


def format_number(value: float, digits: int = 3) -> str:
    """A number to ``digits`` significant digits, thousands apart: ``"81,200"``, ``"0.0123"``."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    places = digits - 1 - math.floor(math.log10(abs(value)))
    if abs(value) >= 1e15 or places > 6:
        return f"{value:.{digits - 1}e}"
    text = f"{round(value, places):,.{max(0, places)}f}"
    return text.rstrip("0").rstrip(".") if "." in text and abs(value) < 1 else text


def format_compact(value: float) -> str:
    """A number for the tick of an axis: ``"20k"``."""
    for scale, prefix in _PREFIXES:
        if value >= scale:
            return f"{value / scale:g}{prefix}"
    return f"{value:g}"


def format_duration(value_s: float) -> str:
    """A time to three significant digits, always as many: ``"13.0 ms"``."""
    number, unit = format_seconds(value_s).split(" ")
    return f"{format_number(float(number))} {unit}"


def format_usd(value: float) -> str:
    """An amount of money: ``"$1,230"``, ``"$64.80"``, ``"$0.0611"``."""
    return f"${value:,.0f}" if value >= 1000 else f"${value:.2f}" if value >= 0.1 else f"${format_number(value)}"


def format_interval(name: str, ends: Sequence[float]) -> str:
    """The interval of a parameter, as times where its name ends in ``_s``."""
    low, high = (format_duration(end) if name.endswith("_s") else format_number(end) for end in ends)
    return f"{low} to {high}"


def format_share(share: float) -> str:
    """A share: ``"79%"``, ``"4.2%"`` where it is small, ``"<0.1%"`` where it is next to nothing."""
    if 0 < share < 0.001:
        return "<0.1%"
    return f"{share:.1%}" if 0 < abs(share) < 0.0995 else f"{share:.0%}"


def format_change(share: float, digits: int = 1) -> str:
    """A change with its sign: ``"+83.0%"``, ``"−50.0%"``, ``"±0.0%"``."""
    text = f"{abs(share):.{digits}%}"
    return f"{'±' if float(text[:-1]) == 0 else '+' if share > 0 else '−'}{text}"


def listed_numbers(values: Sequence[int]) -> str:
    """Some whole numbers: all where they are few, else the first and the last."""
    if len(values) <= 3:
        return listed([f"{value:,}" for value in values])
    return f"{values[0]:,} to {values[-1]:,}"


def listed(parts: Sequence[str], word: str = "and") -> str:
    """Parts as a list in a sentence, with a word before the last.

    >>> listed(["2", "3", "4"], "or")
    '2, 3 or 4'
    """
    return f" {word} ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


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


def written(value: str | float | None, kind: Kind) -> str:
    """A value as a reader sees it."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return clean(value, _LONGEST_CELL) if value else ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    match kind:
        case "any":
            return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.5g}"
        case "count":
            return f"{value:,.0f}"
        case "seconds":
            return format_duration(value)
        case "share":
            return format_share(value)
        case "change":
            return format_change(value)
        case "usd":
            return format_usd(value)
        case "precise":
            return format_number(value, 5)
        case "hourly":
            return f"${format_usd_per_hour(value)}"
        case "sum":
            return f"${format_usd_sum(value)}"
        case _:
            return format_number(value)
