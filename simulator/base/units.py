"""Quantities at the border: text with a unit in, SI floats inside; :mod:`simulator.base.text` writes them again.

Only what Paceline speaks of is known: time, information, their rate, and power. Information is
bytes (B) or bits (b) with the prefixes k, K, M, G, T, P or Ki to Pi: nobody means the
millibits of "10 mbit/s". A time in seconds may have one from m down to f, a power k or M. A bare number,
a wrong dimension, another prefix or an unknown unit is a :class:`UnitError`, which names
what was likely meant.

A point is that of decimals, and nothing separates thousands. Who may have meant it so, as in "1.000 USD",
is asked to write it otherwise where the number must be whole or a sum of money, and else warned.
"""

from __future__ import annotations

import math
import re
import warnings
from functools import cache
from typing import Literal, NamedTuple

from simulator.base.errors import InputError, ReadingWarning, UnitError

Dimension = Literal["time", "information", "rate", "power"]

_EXAMPLE: dict[Dimension, str] = {"time": '"20 us"', "information": '"64 MiB"', "rate": '"25 Gbit/s"', "power": '"0.5 kW"'}


class _Unit(NamedTuple):
    """A unit: its worth in SI, its symbols, its name in words (which takes an s in the plural), and the prefixes that it takes."""

    worth: float
    symbols: tuple[str, ...]
    word: str = ""
    prefixes: tuple[str, ...] = ()

    def spellings(self) -> dict[str, float]:
        """The worth of all that may be written for the unit: a prefix by its letter, or in words before the unit in words."""
        words = (self.word, f"{self.word}s") if self.word else ()
        worths = dict.fromkeys((*self.symbols, *words), self.worth)
        for prefix in self.prefixes:
            factor, letters = _PREFIXES[prefix]
            written = [letter + name for letter in letters for name in (*self.symbols, *words)]
            worths |= dict.fromkeys((*written, *(prefix + name for name in words)), factor * self.worth)
        return worths


_PREFIXES = {
    "femto": (1e-15, ("f",)),
    "pico": (1e-12, ("p",)),
    "nano": (1e-9, ("n",)),
    "micro": (1e-6, ("u",)),
    "milli": (1e-3, ("m",)),
    "kilo": (1e3, ("k", "K")),
    "mega": (1e6, ("M",)),
    "giga": (1e9, ("G",)),
    "tera": (1e12, ("T",)),
    "peta": (1e15, ("P",)),
    "kibi": (2.0**10, ("Ki",)),
    "mebi": (2.0**20, ("Mi",)),
    "gibi": (2.0**30, ("Gi",)),
    "tebi": (2.0**40, ("Ti",)),
    "pebi": (2.0**50, ("Pi",)),
}
"""Value and letters of each prefix."""
_PARTS, _MULTIPLES = tuple(_PREFIXES)[:5], tuple(_PREFIXES)[5:]
_UNITS = {
    "time": (
        _Unit(1.0, ("s", "sec", "secs"), "second", _PARTS),
        _Unit(60.0, ("min", "mins"), "minute"),
        _Unit(3600.0, ("h", "hr", "hrs"), "hour"),
        _Unit(86400.0, ("d",), "day"),
    ),
    "information": (_Unit(1.0, ("B",), "byte", _MULTIPLES), _Unit(0.125, ("b",), "bit", _MULTIPLES)),
    "rate": (_Unit(0.125, ("bps",), prefixes=_MULTIPLES),),
    "power": (_Unit(1.0, ("W",), "watt", ("kilo", "mega")),),
}
"""Units of each dimension; a rate is also information per time."""

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_QUANTITY = re.compile(rf"({_NUMBER})\s*([A-Za-z]+)(?:(?:\s*/\s*|\s+per\s+)([A-Za-z]+))?", re.ASCII)
_LOOSE_NUMBER = rf"(?P<number>{_NUMBER})(?P<space>\s*)"
_LOOSE_AMOUNT = rf"{_LOOSE_NUMBER}(?P<prefix>[kmgtp]i?|{'|'.join(_MULTIPLES)})?(?P<unit>bytes?|bits?|b)"
_LOOSE: dict[Dimension, re.Pattern[str]] = {
    "time": re.compile(rf"{_LOOSE_NUMBER}(?P<unit>[a-z]+)", re.ASCII | re.IGNORECASE),
    "information": re.compile(_LOOSE_AMOUNT, re.ASCII | re.IGNORECASE),
    "rate": re.compile(rf"{_LOOSE_AMOUNT}(?:\s*(?P<per>/|per|p)\s*(?P<time>[a-z]+))?", re.ASCII | re.IGNORECASE),
    "power": re.compile(rf"{_LOOSE_NUMBER}(?P<prefix>[km])?(?P<unit>watts?|w)", re.ASCII | re.IGNORECASE),
}
"""Similarity to a quantity that is enough to guess: letters of the wrong case, except for times."""
_BITS = re.compile(rf"(?P<rest>{_NUMBER}\s*(?:[kKMGTP]i?|{'|'.join(_MULTIPLES)})?)(?P<unit>b|bits?)", re.ASCII)
"""A size in bits: sizes of memory, buffers and messages are never meant so, rates are."""
_THOUSANDS = re.compile(r"[1-9]\d{0,2}\.\d{3}(?!\d|[eE][+-]?\d)", re.ASCII)
"""Three digits behind a point: decimals, or in half of the world thousands."""
_ROUND = re.compile(r"[1-9]\d{0,2}\.\d{2}0(?!\d|[eE][+-]?\d)", re.ASCII)
"""The same with a zero at the end, which nobody writes after decimals that are meant."""
_SEPARATED = re.compile(r"\d[,'_\s\u2019]\d|\d\.\d+\.\d")
"""Digits that something else than one point is between."""
_SPACES = str.maketrans(dict.fromkeys("\u00a0\u2007\u2009\u202f", " "))
"""Spaces that are no line's end, as web pages and word processors put them before a unit."""
_OTHER_PREFIX = re.compile(rf"{_NUMBER}\s*[A-Za-z]+?(?:B|b|bytes?|bits?)(?:(?:/|\s+per\s+|p)[A-Za-z]+)?", re.ASCII)
_KNOWN_PREFIXES = "its prefixes are k, K, M, G, T, P and Ki, Mi, Gi, Ti, Pi"


@cache
def _worths(dimension: str) -> dict[str, float]:
    """The worth of every spelling of the dimension's units."""
    return {name: worth for unit in _UNITS[dimension] for name, worth in unit.spellings().items()}


def parse_quantity(text: str, dimension: Dimension) -> float:
    """Read a quantity with its unit.

    Parameters
    ----------
    text
        Such as ``"25 Gbit/s"``, ``"64 MiB"`` or ``"20 us"``.
    dimension
        What it must measure.

    Returns
    -------
    float
        In SI: seconds, bytes, bytes per second, or watts.

    Raises
    ------
    UnitError
        A missing or unknown unit, another dimension, a prefix that the unit does not take,
        or no finite number; with what was likely meant, where that can be guessed.

    Examples
    --------
    >>> parse_quantity("25 Gbit/s", "rate")
    3125000000.0
    >>> parse_quantity("64 mb", "information")
    Traceback (most recent call last):
        ...
    simulator.base.errors.UnitError: '64 mb' must be a size with its unit, such as "64 MiB"; did you mean "64 MB"?
    """
    expected = f"must be a {_NOUN[dimension]} with its unit, such as {_EXAMPLE[dimension]}"
    if len(text) > 60:
        raise UnitError(f"{text[:40] + '...'!r} {expected}")
    value = _read(text, dimension)
    if dimension == "information" and value is not None and (bits := _BITS.fullmatch(text.strip())):
        unit = "bytes" if len(bits["unit"]) > 1 else "B"
        raise UnitError(
            f"{text!r} is in bits; a size must be in bytes, such as {_EXAMPLE[dimension]}", f'did you mean "{bits["rest"]}{unit}"?'
        )
    if value is None:
        raise UnitError(f"{text!r} {expected}", _hint(text.strip(), dimension))
    if not math.isfinite(value):
        raise UnitError(f"{text!r} {expected}; it must be finite")
    if value == 0 and vanishes(text.strip()):
        raise UnitError(f"{text!r} {expected}; it is too small to differ from 0")
    warn_of_thousands(text.strip())
    return value


def number_of(text: str, where: str) -> float:
    """A plain number that a person has typed and that counts something, such as samples; ``where`` begins the message.

    Raises
    ------
    UnitError
        It is none, or may be read in two ways.
    """
    plain = text.strip()
    if not re.fullmatch(_NUMBER, plain, re.ASCII):
        raise UnitError(f"{where} must be a number", without_separators(plain))
    check_thousands(plain, where)
    return float(plain)


def vanishes(text: str) -> bool:
    """Return whether the number at the beginning of a text that is read as 0 has been written as something else, such as ``1e-400``."""
    return any(digit in "123456789" for digit in re.split("[eE]", text, maxsplit=1)[0])


def as_thousands(text: str) -> str:
    """The number at the beginning of a text if its point separates thousands; empty where it cannot.

    >>> as_thousands("1.000 USD"), as_thousands("0.500"), as_thousands("1.25"), as_thousands("1.281e6")
    ('1000', '', '', '')
    """
    match = _THOUSANDS.match(text)
    return match[0].replace(".", "") if match is not None else ""


def check_thousands(text: str, where: str) -> None:
    """Accept a whole number or an amount of money only if it can be read in one way.

    Parameters
    ----------
    text
        The number as it was written.
    where
        Begins the message.

    Raises
    ------
    UnitError
        Its point may separate thousands.
    """
    if thousands := as_thousands(text):
        raise UnitError(f"{where} may be {float(text):g} or {int(thousands):,}: write {float(text):g} or {thousands}")


def warn_of_thousands(text: str, where: str = "") -> None:
    """Warn where the number at the beginning of a text may mean thousands, such as ``10.000 Mbit/s``; ``where`` begins the message.

    Warns
    -----
    ReadingWarning
        How it is read, and what to write in place of it.
    """
    if (match := _ROUND.match(text)) is not None:
        unit = text[match.end() :]
        warnings.warn(
            f"{where}{text!r} means {float(match[0]):g}{unit}, because the point is a decimal point; for thousands write "
            f"{match[0].replace('.', '')}{unit}",
            ReadingWarning,
            stacklevel=2,
        )


def without_separators(text: str) -> str:
    """Return how to write a number that is refused because something separates its thousands, or a comma its decimals; else nothing."""
    return "write it with a decimal point and no separator of thousands" if _SEPARATED.search(text) else ""


def _read(text: str, dimension: Dimension) -> float | None:
    """The quantity in SI; None where the text is none of this dimension."""
    plain = text.strip().translate(_SPACES).replace("\u00b5", "u").replace("\u03bc", "u")
    read = _QUANTITY.fullmatch(plain)
    if read is None or (read[3] is not None and dimension != "rate"):
        return None
    if read[3] is None:
        worth = _worths(dimension).get(read[2])
    else:
        amount, time = _worths("information").get(read[2]), _worths("time").get(read[3])
        worth = None if amount is None or time is None else amount * time**-1  # not divided: the last bit differs
    return None if worth is None else float(read[1]) * worth


def _hint(text: str, dimension: Dimension) -> str:
    """Guess what a refused text meant; nothing where that cannot be guessed."""
    match = _LOOSE[dimension].fullmatch(text)
    if match is not None:
        units = _times(match["unit"]) if dimension == "time" else _powers(match) if dimension == "power" else _amounts(match, dimension)
        guesses = [f"{match['number']}{match['space']}{unit}" for unit in units]
        if near := [f'"{guess}"' for guess in guesses if _read(guess, dimension) is not None]:
            return f"did you mean {' or '.join(near)}?"
    if hint := without_separators(text):
        return hint
    return _KNOWN_PREFIXES if dimension in ("information", "rate") and _OTHER_PREFIX.fullmatch(text) else ""


def _times(unit: str) -> list[str]:
    """Units of time that differ from a text only in case, or that a lone m may mean."""
    return ["min", "ms"] if unit in ("m", "M") else [unit.lower()]


def _powers(match: re.Match[str]) -> list[str]:
    """Units of power that differ from a text in large and small letters."""
    prefix = {"k": "k", "m": "M", "": ""}[(match["prefix"] or "").lower()]
    return [prefix + ("W" if len(match["unit"]) == 1 else match["unit"].lower())]


def _amounts(match: re.Match[str], dimension: Dimension) -> list[str]:
    """Units of information, or of a rate, that a text is near to."""
    typed, unit = match["prefix"] or "", match["unit"]
    prefix = "k" if typed == "k" else typed[:1].upper() + typed[1:].lower()
    if len(typed) > 2:  # in words
        prefix = typed.lower() if len(unit) > 1 else _PREFIXES[typed.lower()][1][0]
    # whose prefix is in the wrong letters may not know b from B either
    unsure = unit == "b" and prefix != typed
    named = unit if len(unit) == 1 else unit.lower()
    if dimension == "information":
        return [prefix + ("B" if unsure else named)]
    per = (match["per"] or "/").lower()
    if per == "p" and len(unit) == 1 and unit + match["per"] != "Bp":
        return [f"{prefix}bps"] if unit == "b" else [f"{prefix}bps", f"{prefix}B/s"]
    between = " per " if per == "per" else "/"
    return [f"{prefix}{name}{between}{time}" for name in (["bit", "B"] if unsure else [named]) for time in _times(match["time"] or "s")]


_NOUN: dict[Dimension, str] = {"time": "time", "information": "size", "rate": "bandwidth", "power": "power"}


def share_of(text: str, where: str, example: str = "2%") -> float:
    """A share as a person writes it: ``2%`` or ``0.02``; where the example has no percent sign, any number from 0 on.

    Raises
    ------
    InputError
        It is no number, or above 1 without a percent sign.
    """
    plain = text.strip()
    try:
        value = float(plain.removesuffix("%")) / (100.0 if plain.endswith("%") else 1.0)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise InputError(f"{where}: {text[:40]!r}: must be a number of at least 0, such as {example}")
    if example.endswith("%") and value > 1 and not plain.endswith("%"):
        raise InputError(f"{where}: {text[:40]!r}: is {100 * value:,g}% as a share; write {plain}% or {value / 100:g}")
    return value
