"""Quantities at the border: text with a unit in, SI floats inside, text out again.

Only what Paceline speaks of is known: time, information, their rate, and power. A bare
number, a wrong dimension or an unknown unit is a :class:`UnitError`.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from simulator.errors import UnitError

if TYPE_CHECKING:
    import pint

__all__ = ["Dimension", "format_bytes", "format_rate", "format_seconds", "parse_quantity"]

Dimension = Literal["time", "information", "rate", "power"]

_SI_UNIT: dict[Dimension, str] = {"time": "s", "information": "byte", "rate": "byte / s", "power": "W"}
_EXAMPLE: dict[Dimension, str] = {"time": '"20 us"', "information": '"64 MiB"', "rate": '"25 Gbit/s"', "power": '"0.5 kW"'}

# pint's own registry calls a bit dimensionless, so that "25 GHz" would pass for a
# bandwidth; and it takes half a second to read. Ours knows the units of this field.
_DEFINITIONS = """
femto- = 1e-15 = f-
pico- = 1e-12 = p-
nano- = 1e-9 = n-
micro- = 1e-6 = u- = µ- = μ-
milli- = 1e-3 = m-
kilo- = 1e3 = k- = K-
mega- = 1e6 = M-
giga- = 1e9 = G-
tera- = 1e12 = T-
kibi- = 2**10 = Ki-
mebi- = 2**20 = Mi-
gibi- = 2**30 = Gi-
tebi- = 2**40 = Ti-
second = [time] = s = sec
minute = 60 * second = min
hour = 3600 * second = h = hr
day = 86400 * second = d
byte = [information] = B
bit = byte / 8 = b
bps = bit / second
watt = [power] = W
""".strip().splitlines()


# pint alone reads "us" as 1 us, "1,5 ms" as 15 ms, and works out "9**9**9 s"
_NUMBER_AND_UNIT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*[A-Za-z]+(\s*/\s*[A-Za-z]+|\s+per\s+[A-Za-z]+)?", re.ASCII)


@lru_cache(maxsize=1)
def _registry() -> pint.UnitRegistry[float]:
    import pint

    registry: pint.UnitRegistry[float] = pint.UnitRegistry(None, cache_folder=None)
    registry.load_definitions(_DEFINITIONS)
    return registry


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
        A missing or unknown unit, another dimension, or no finite number.
    """
    expected = f"must be a {_NOUN[dimension]} with its unit, such as {_EXAMPLE[dimension]}"
    if len(text) > 60:
        raise UnitError(f"{text[:40] + '...'!r} {expected}")
    if not _NUMBER_AND_UNIT.fullmatch(text.strip().replace("\u00b5", "u").replace("\u03bc", "u")):
        raise UnitError(f"{text!r} {expected}")
    try:
        quantity: Any = _registry().Quantity(text.strip())
        value = float(quantity.to(_SI_UNIT[dimension]).magnitude)
    except Exception as error:  # pint's parser lets errors of many kinds through
        raise UnitError(f"{text!r} {expected}") from error
    if not math.isfinite(value):
        raise UnitError(f"{text!r} {expected}; it must be finite")
    return value


_NOUN: dict[Dimension, str] = {"time": "time", "information": "size", "rate": "bandwidth", "power": "power"}


def _scaled(value: float, units: list[tuple[float, str]], digits: int = 3) -> str:
    scale, unit = next(((scale, unit) for scale, unit in units if abs(value) >= scale * 0.9995), units[-1])
    number = value / scale
    # 1,000 to 1,023 of a unit of bytes are not 1e+03
    return f"{number:.0f} {unit}" if 10**digits - 0.5 <= abs(number) < 1e6 else f"{number:.{digits}g} {unit}"


def format_seconds(value_s: float, digits: int = 3) -> str:
    """Seconds for reading, such as ``"12.5 ms"``, to so many significant digits."""
    return _scaled(value_s, [(3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")], digits)


def format_bytes(value_bytes: float) -> str:
    """Bytes for reading, in powers of 1024, such as ``"97.5 MiB"``."""
    return _scaled(value_bytes, [(2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")])


def format_rate(value_bytes_per_s: float) -> str:
    """Bytes per second for reading, in bits as networks are sold: ``"25 Gbit/s"``."""
    return _scaled(value_bytes_per_s * 8, [(1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1, "bit/s")])
