"""How every number, quantity, interval and list is written for a reader, and which known names are near to one that does not exist.

Values come in SI units (seconds, bytes, bytes per second), shares as 0 to 1, money in US dollars. The format of each kind of value is data,
:data:`FORMATS`, used by :func:`written` and by the script of a report (paceline/reporting/templates/format.js), which gets it as JSON
(:func:`formats_data`): a new attribute of :class:`Format` must be read there too (tests/browser/test_formats.py holds both equal).
Sentences about results and plans are in :mod:`paceline.sentences`, names of strategies with the strategies.
"""

from __future__ import annotations

import difflib
import html
import math
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import ROUND_HALF_UP, Context, Decimal
from pathlib import Path
from typing import Any, ClassVar, Final, Literal


class Short:
    """Base of what is shown in short: first what it is, then what matters most of it.

    Attributes
    ----------
    see
        How to see more, in words.
    """

    see: ClassVar[str] = ""

    def _in_short(self) -> Iterator[str]:
        """Yield what it is, then facts, each in a few words."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {'; '.join(filter(None, self._in_short()))}>"

    def __str__(self) -> str:
        first, *rest = filter(None, self._in_short())
        more = (f"More: {self.see}",) if self.see else ()
        return "\n  ".join((f"{type(self).__name__}: {first}", *rest, *more))


LONGEST = 72
"""Characters of a name that a legend or a heading shows."""

NONE: Final = "–"
"""In place of a value that there is none of."""

Kind = Literal[
    "text", "any", "count", "number", "updates", "difference", "throughput", "compact", "tick",
    "seconds", "hours", "rough_seconds", "bytes", "rate", "share", "limit_share", "error", "change", "whole_change", "usd", "hourly",
    "setting", "setting_s", "setting_bytes", "setting_rate",
]  # fmt: skip
"""Kind of a value, which sets how it is written (:data:`FORMATS`).

``any``
    A plain value of any type, to five significant digits.
``count``, ``number``
    A whole number; any number to three significant digits.
``updates``, ``difference``
    A mean staleness, to hundredths at most; the same with its sign.
``throughput``
    What readers compare line by line: to three digits and a whole number at least.
``compact``, ``tick``
    A number with k, M, G or T in place of thousands: to three digits for narrow tables, to six for axes.
``seconds``, ``hours``, ``bytes``, ``rate``
    Measured or predicted, to three digits in the unit that fits. Rates, in bytes per second, are written
    in bits, as networks are sold.
``rough_seconds``
    An estimate of how long something takes, to two digits.
``limit_share``
    A share and its limit, with three digits so that they do not look equal.
``share``, ``error``
    Per cent, with a digit after the point where it is small; an error has its sign.
``change``, ``whole_change``
    Per cent with its sign, with a digit after the point where it is small; for axes without.
``usd``, ``hourly``
    US dollars to three digits and cents at least; the price of an hour, which a reader may multiply, to five.
``setting``, ``setting_s``, ``setting_bytes``, ``setting_rate``
    What a user gave, to six digits without the zeros that nobody wrote: :func:`kind_of_setting`.
"""

Units = tuple[tuple[float, str], ...]
"""Sizes of units, largest first, each with the text after the number."""

_TIMES: Units = ((3600.0, " h"), (60.0, " min"), (1.0, " s"), (1e-3, " ms"), (1e-6, " µs"), (1e-9, " ns"))
_SIZES: Units = ((2.0**40, " TiB"), (2.0**30, " GiB"), (2.0**20, " MiB"), (2.0**10, " KiB"), (1.0, " B"))
_RATES: Units = ((1.25e11, " Tbit/s"), (1.25e8, " Gbit/s"), (1.25e5, " Mbit/s"), (125.0, " kbit/s"), (0.125, " bit/s"))
_THOUSANDS: Units = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_LONGEST_CELL = 400
_LONGEST_SENTENCE = 600
_END_OF_SENTENCE = re.compile(r"[.!?] +(?=[A-Z])")
_LEAST_EXPONENT, _MOST_EXPONENT = -4, 15


@dataclass(frozen=True)
class Format:
    """How a kind of number is written; halves are rounded away from zero.

    Attributes
    ----------
    units
        The first of which there is at least one is taken, else the last.
    digits
        Significant digits.
    whole
        Whether digits before the point are shown beyond them; otherwise zeros are kept.
    least_places, most_places
        Digits after the point, whatever :attr:`digits` asks for.
    whole_from
        No digit after the point from this number on.
    keeps_zeros
        Whether numbers from one on keep zeros at the end, so that all have as many digits; below one they always go.
    signed
        Whether positive numbers have a sign, and zero ``±``.
    prefix
        Text before the number.
    least
        Below this size, but above zero, only that it is less is written: ``"<0.1%"``.
    unit
        Of the plain value, which a heading of CSV names.
    """

    units: Units = ((1.0, ""),)
    digits: int = 3
    whole: bool = True
    least_places: int = 0
    most_places: int = 20
    whole_from: float = 1e15
    keeps_zeros: bool = True
    signed: bool = False
    prefix: str = ""
    least: float = 0.0
    unit: str = ""

    def write(self, value: float) -> str:
        """A number in SI units as text; ``inf`` and ``nan`` as they are."""
        if not math.isfinite(value):
            return str(value)
        size = abs(value)
        if 0 < size < self.least:
            return f"<{self.write(self.least)}"
        scale, unit = self._unit(size)
        text = self._number(size / scale)
        sign = "−" if value < 0 else "+" if self.signed else ""
        if not any(digit in "123456789" for digit in text):
            sign = "±" if self.signed else ""
        return f"{sign}{self.prefix}{text}{unit}"

    def _unit(self, size: float) -> tuple[float, str]:
        # 0.9996 of a unit reads as one of it
        enough = 1 - 0.5 * 10**-self.digits if size else 1.0
        return next(((scale, unit) for scale, unit in self.units if (size or 1.0) >= scale * enough), self.units[-1])

    def _number(self, number: float) -> str:
        decimal = Decimal(number)
        significant = Context(prec=self.digits, rounding=ROUND_HALF_UP).plus(decimal)
        exponent = significant.adjusted() if number else 0
        if exponent >= _MOST_EXPONENT or (exponent < _LEAST_EXPONENT and self.most_places > -exponent):
            mantissa, power = f"{significant:.{self.digits - 1}e}".split("e")
            return f"{mantissa if self.keeps_zeros else mantissa.rstrip('0').rstrip('.')}e{int(power):+03}"
        places = 0 if number >= self.whole_from else min(max(self.digits - 1 - exponent, self.least_places), self.most_places)
        rounded = (decimal if self.whole or exponent < self.digits else significant).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
        whole, _, after = f"{rounded:,f}".partition(".")
        if not self.keeps_zeros or rounded < 1:
            after = after[: self.least_places] + after[self.least_places :].rstrip("0")
        return f"{whole}.{after}" if after else whole


_NUMBER = Format(whole=False)
_UPDATES = Format(most_places=2, keeps_zeros=False)
_SECONDS = Format(_TIMES, least=1e-11, unit="s")
_BYTES = Format(_SIZES, keeps_zeros=False, unit="bytes")
_RATE = Format(_RATES, keeps_zeros=False, unit="bytes/s")
_SHARE = Format(((0.01, "%"),), digits=2, most_places=1, unit="share")
_CHANGE = replace(_SHARE, signed=True)
_USD = Format(least_places=2, whole_from=1000.0, keeps_zeros=False, prefix="$", unit="USD")
_COMPACT = Format(_THOUSANDS, keeps_zeros=False)

FORMATS: Mapping[Kind, Format] = {
    "any": Format(digits=5, keeps_zeros=False),
    "count": Format(most_places=0),
    "number": _NUMBER,
    "throughput": Format(keeps_zeros=False),
    "updates": _UPDATES,
    "difference": replace(_UPDATES, keeps_zeros=True, signed=True),
    "compact": _COMPACT,
    "tick": replace(_COMPACT, digits=6),
    "seconds": _SECONDS,
    "hours": replace(_SECONDS, units=tuple((size / 3600, unit) for size, unit in _TIMES)),
    "rough_seconds": Format(_TIMES[:3], digits=2, most_places=1, keeps_zeros=False, unit="s"),
    "bytes": _BYTES,
    "rate": _RATE,
    "share": replace(_SHARE, least=0.001),
    "limit_share": replace(_SHARE, digits=3, most_places=20),
    "error": replace(_SHARE, signed=True),
    "change": _CHANGE,
    "whole_change": replace(_CHANGE, most_places=0),
    "usd": _USD,
    "hourly": replace(_USD, digits=5, whole_from=1e15),
    "setting": Format(digits=6, keeps_zeros=False),
    "setting_s": replace(_SECONDS, digits=6, keeps_zeros=False, least=0.0),
    "setting_bytes": replace(_BYTES, digits=6),
    "setting_rate": replace(_RATE, digits=6),
}
"""How each kind of number is written; text and truth are written as they are."""

_ENDINGS: tuple[tuple[str, Kind, Kind], ...] = (
    ("_bytes_per_s", "rate", "setting_rate"),
    ("_bytes", "bytes", "setting_bytes"),
    ("_s", "seconds", "setting_s"),
    ("", "number", "setting"),
)


def formats_data() -> dict[str, dict[str, Any]]:
    """:data:`FORMATS` as plain data, ready to become JSON: for each kind the attributes of its :class:`Format`."""
    return {kind: asdict(form) for kind, form in FORMATS.items()}


def written(value: str | float | None, kind: Kind) -> str:
    """A value as a reader sees it.

    Examples
    --------
    >>> [written(value, "seconds") for value in (0.013, 4000)], written(0.0004, "share"), written(25e9 / 8, "setting_rate")
    (['13.0 ms', '1.11 h'], '<0.1%', '25 Gbit/s')
    """
    if value is None:
        return NONE
    if isinstance(value, str):
        return clean(value, _LONGEST_CELL) if value else ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and kind in ("any", "count"):
        return f"{value:,}"
    return FORMATS.get(kind, _NUMBER).write(value)


def kind_of(name: str) -> Kind:
    """Choose how a number that was measured or predicted is written, by the end of its name: ``per_sample_s``."""
    return next(kind for ending, kind, _ in _ENDINGS if name.endswith(ending))


def kind_of_setting(name: str) -> Kind:
    """Choose how a number that a user gave is written, by the end of its name: ``latency_s``, ``bandwidth_bytes_per_s``."""
    return next(kind for ending, _, kind in _ENDINGS if name.endswith(ending))


def format_count(value: float) -> str:
    """A whole number: ``"1,235"``; from 1e15 on only its magnitude."""
    return FORMATS["count"].write(value)


def format_number(value: float, digits: int = 3) -> str:
    """A number to ``digits`` significant digits, thousands apart: ``"81,200"``, ``"12.0"``, ``"0.0123"``."""
    return replace(_NUMBER, digits=digits).write(value)


def digits(value: float, count: int = 7) -> float:
    """A number to ``count`` significant digits. Seven are more than any clock gives, and can still be read in a file.

    >>> digits(0.012345678)
    0.01234568
    """
    return float(f"{float(value):.{count}g}")


def format_throughput(per_s: float) -> str:
    """A throughput: ``"1,235"``, ``"12.3"``."""
    return FORMATS["throughput"].write(per_s)


def format_seconds(value_s: float, digits: int = 3) -> str:
    """A time to ``digits`` significant digits: ``"13.0 ms"``."""
    return replace(FORMATS["seconds"], digits=digits).write(value_s)


def format_rough_seconds(value_s: float) -> str:
    """An estimate of how long something takes: ``"1.5 h"``."""
    return FORMATS["rough_seconds"].write(value_s)


def format_bytes(value_bytes: float) -> str:
    """Bytes in powers of 1024: ``"97.5 MiB"``."""
    return FORMATS["bytes"].write(value_bytes)


def format_rate(value_bytes_per_s: float) -> str:
    """Bytes per second in bits, as networks are sold: ``"25 Gbit/s"``."""
    return FORMATS["rate"].write(value_bytes_per_s)


def format_share(share: float) -> str:
    """A share: ``"79%"``, ``"4.2%"`` where it is small, ``"<0.1%"`` where it is next to nothing."""
    return FORMATS["share"].write(share)


def format_change(share: float) -> str:
    """A change with its sign: ``"+83%"``, ``"−50%"``, ``"+5.2%"``, ``"±0.0%"``."""
    return FORMATS["change"].write(share)


def format_usd(value: float) -> str:
    """An amount of money: ``"$1,235"``, ``"$64.80"``, ``"$0.0611"``."""
    return FORMATS["usd"].write(value)


def format_hourly(usd: float) -> str:
    """A price of an hour with five significant digits, cents at least: ``"$0.20"``, ``"$0.526"``, ``"$21.958"``."""
    return FORMATS["hourly"].write(usd)


def format_interval(low: float, high: float, kind: Kind = "number") -> str:
    """Write both ends of an interval, a unit that both have once: ``"12.3 to 13.0 ms"``."""
    first, last = written(low, kind), written(high, kind)
    number, _, unit = first.partition(" ")
    return f"{number if unit and last.endswith(f' {unit}') else first} to {last}"


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


def counted(count: int, thing: str) -> str:
    """A number of things, such as ``"1 worker"`` or ``"no warnings"``."""
    return f"{count:,} {thing}" if count == 1 else f"{f'{count:,}' if count else 'no'} {thing}s"


def estimated(mean: float, low: float, high: float, kind: Kind, unit: str = "") -> str:
    """A mean with the interval of single runs: ``"29,964 samples/s (90% of runs: 23,112 to 38,101)"``."""
    return f"{written(mean, kind)}{unit and f' {unit}'} (90% of runs: {format_interval(low, high, kind)})"


def shortly_listed(parts: Sequence[str], most: int = 3) -> str:
    """Parts as a list in a sentence; where they are many, the first of them and how many more there are.

    >>> shortly_listed(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    return listed(parts) if len(parts) <= most + 1 else f"{', '.join(parts[:most])} and {len(parts) - most:,} more"


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


def printable(text: str) -> str:
    """Text for a terminal: what that would obey, or not show, as escapes; the ends of lines, tabs and all spaces as they are.

    >>> printable("a\\x1b[31mb"), printable("Zürich\\n")
    ('a\\\\x1b[31mb', 'Zürich\\n')
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" or unicodedata.category(char) == "Zs" else ascii(char)[1:-1] for char in text
    )


def clean(text: str, longest: int = LONGEST) -> str:
    """Text for a heading: without control or direction marks, and not too long."""
    plain = "".join(char if unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn") else " " for char in text[: longest * 4])
    plain = " ".join(plain.split()) or "(no name)"
    return plain if len(plain) <= longest and len(text) <= longest * 4 else plain[: longest - 1].rstrip() + "…"


_LEAST = 0.6
"""Minimum similarity of two words, from 0 to 1; what :mod:`difflib` takes by default."""
_SHORT, _LEAST_IF_SHORT = 3, 0.5
"""Words up to this length may have one wrong letter."""
_AS_NEAR = 0.02
"""Names whose similarity is within this of the nearest are named too."""
_BEGINNING = 0.9
"""Similarity of a word to one that begins with it."""
_LONGEST = 60
_MOST = 3


def nearest(word: object, known: Iterable[str], *, least: float = _LEAST) -> list[str]:
    """Return the known names that a word is most like, the nearest first; case does not count.

    >>> nearest("ethrnet-25g", ["ethernet-1g", "ethernet-25g"]), nearest("resnet", ["resnet-50", "resnet-small"]), nearest("x", ["ring"])
    (['ethernet-25g'], ['resnet-50', 'resnet-small'], [])

    Parameters
    ----------
    word
        As it was given.
    known
        Names that there are.
    least
        Minimum similarity, from 0 to 1.
    """
    given = str(word)[:_LONGEST].lower()
    alike = {name: _likeness(given, name.lower()) for name in known}
    best = max(alike.values(), default=0.0)
    near = [name for name, likeness in alike.items() if likeness >= max(least if len(given) > _SHORT else _LEAST_IF_SHORT, best - _AS_NEAR)]
    return sorted(near, key=lambda name: -alike[name])[:_MOST]


def did_you_mean(word: object, known: Iterable[str], otherwise: str = "", *, written: str = "{}") -> str:
    """The nearest names as a question, or where none is near something else.

    >>> did_you_mean("rnig", ["ring", "tree"]), did_you_mean("zzz", ["ring", "tree"], "there are ring and tree")
    ('did you mean ring?', 'there are ring and tree')

    Parameters
    ----------
    word, known
        As for :func:`nearest`.
    otherwise
        What is said if no name is near.
    written
        How a name is written, such as ``"'{}'"`` or ``"--{}"``.
    """
    near = [written.replace("{}", name) for name in nearest(word, known)]
    return f"did you mean {listed(near, 'or')}?" if near else otherwise


def no_such_file(path: str | Path, otherwise: str = "check the path") -> str:
    """Say that there is no such file, and which files of its folder may have been meant; where there are none, what else to do."""
    folder, name = os.path.split(path)
    try:
        with os.scandir(folder or ".") as files:
            # a common ending makes no two names alike
            beside = sorted(file.name for file in files if file.is_file() and nearest(Path(name).stem, [Path(file.name).stem]))
    except (OSError, ValueError):
        beside = []
    return f"there is no such file; {did_you_mean(name, beside, otherwise, written=os.path.join(folder, '{}'))}"


def _likeness(given: str, name: str) -> float:
    likeness = difflib.SequenceMatcher(None, name, given).ratio()
    return max(_BEGINNING, likeness) if len(given) > 2 and name.startswith(given) else likeness
