"""Prices as a person gives them (``--price``), for one cluster or for all that have none: rented by the hour, or bought.

``ethernet-1g=0.40/h`` is the price of one of its nodes per hour, ``lab=BUY:4000USD,years:4,power:0.5kW`` a purchase from which the price
per hour is computed (paying.py). Without a name, ``0.40/h`` applies only to clusters without a price. They become ``cluster.price``
(``Price`` in paying.py). ``simulator.results.cost`` computes the cost of a training.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

from simulator.base.errors import InputError, PriceWarning, UnitError
from simulator.base.text import did_you_mean, format_hourly, listed
from simulator.base.units import check_thousands, parse_quantity, without_separators
from simulator.base.validation_errors import quoted, validated
from simulator.spec.cluster import Cluster
from simulator.spec.paying import Price

ALL = "*"
"""Key for every cluster without a price, if prices are given as a mapping."""

_NUMBER = r"(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)"
_HOURLY = re.compile(rf"(?:USD|\$)?\s*{_NUMBER}\s*(?:USD)?\s*(?:/|per\s)\s*([A-Za-z]+)", re.ASCII)
_SUM = re.compile(rf"(?:USD|\$)?\s*{_NUMBER}\s*(USD|\$)?", re.ASCII)
_ENERGY = re.compile(rf"(?:USD|\$)?\s*{_NUMBER}\s*(?:USD)?\s*/\s*kWh", re.ASCII)
_MONTHLY = re.compile(rf"(?:USD|\$)?\s*{_NUMBER}\s*(?:USD)?\s*(?:/|per\s)\s*month", re.ASCII)
_EXAMPLES = "0.40/h, or BUY:4000USD,years:4,power:0.5kW for machines that you own"
_GIVEN = "given by the user"
_UNNAMED = str(Cluster.model_fields["name"].default)
"""Name of a cluster without a name."""
_LONGEST = 60


class Prices:
    """Prices of clusters by name, and one for clusters without a price; records where each was used.

    Parameters
    ----------
    named
        By the name of a cluster, or the path of its file.
    general
        For every cluster that has no price of its own, named ones besides.
    """

    def __init__(self, named: Mapping[str, Price] | None = None, general: Price | None = None) -> None:
        self.named = dict(named or {})
        self.general = general
        self._names: dict[str, None] = {}  # every name that a cluster has gone by
        self._replaced: dict[str, tuple[Price, float | None]] = {}
        self._filled: dict[str, None] = {}
        self._kept: dict[str, None] = {}

    def applied(self, cluster: Mapping[str, Any], called: str = "") -> dict[str, Any]:
        """A cluster's table with the price that applies to it.

        Parameters
        ----------
        cluster
            All keys of its file, those of the scenario laid over them.
        called
            What the scenario calls it, where that is another name than its own: the path of its file.
        """
        name = str(cluster.get("name", "")) or called or _UNNAMED
        self._names.update(dict.fromkeys(filter(None, (name, called))))
        own = cluster.get("price")
        key = called if called in self.named else name
        if (price := self.named.get(key)) is not None:
            before = own.get("usd_per_node_hour") if isinstance(own, Mapping) else None
            self._replaced[name] = price, before if isinstance(before, (int, float)) else None
        elif self.general is None:
            return dict(cluster)
        elif own is not None:
            self._kept[name] = None
            return dict(cluster)
        else:
            price = self.general
            self._filled[name] = None
        return {**cluster, "price": price.model_dump(mode="json")}

    def with_general(self, table: Mapping[str, Any]) -> Prices:
        """The same with a price, as a table of ``cluster.price``, for every cluster without one.

        Raises
        ------
        ScenarioError
            The table is no price.
        InputError
            Such a price is given already.
        """
        general = _for_all(validated(Price, {"source": _GIVEN, **table}, "cluster.price in `settings`"))
        if self.general is not None:
            raise InputError(
                "`prices` without a cluster's name and cluster.price in `settings` both set the price of every cluster without one: give "
                "one of them"
            )
        return Prices(self.named, general)

    def mention(self, name: str) -> None:
        """The name of a cluster whose file could not be read."""
        self._names[name] = None

    def check(self) -> None:
        """Check, after all clusters, that every name matched a cluster and that the general price was used.

        Prices that are not obvious give a warning (:class:`~simulator.base.errors.PriceWarning`): :meth:`notes`.

        Raises
        ------
        InputError
            A name is none of theirs; the message has the nearest ones. Or all have a price of their own.
        """
        for name in self.named:
            if name not in self._names:
                hint = did_you_mean(name, self._names, f"there {'is' if len(self._names) == 1 else 'are'} {self._known()}")
                raise InputError(f"`prices` {quoted(name)}: no cluster here has this name; {hint}")
        if self.general is not None and self._kept and not self._filled:
            first, rate = next(iter(self._kept)), format_hourly(self.general.usd_per_node_hour)
            which = "the cluster here has one" if len(self._kept) == 1 else "all clusters here have one"
            raise InputError(
                f"{rate} per hour without a cluster's name applies to clusters without a price, but {which} ({listed(list(self._kept))}); "
                f"to replace it, name the cluster: {_shown(first, rate.removeprefix('$') + '/h')}"
            )
        for text in self.notes():
            warnings.warn(text, PriceWarning, stacklevel=2)

    def _known(self) -> str:
        names = list(self._names)
        return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")

    def notes(self) -> list[str]:
        """Say where prices come from: which were computed or replaced, and which clusters use the general price."""
        texts = []
        for name, (price, before) in self._replaced.items():
            if before is None and not price.terms:
                continue  # it is what was given
            instead = f" instead of {format_hourly(before)} from its file" if before is not None else ""
            how = f": {price.terms}" if price.terms else ""
            texts.append(f"a node of {name} costs {format_hourly(price.usd_per_node_hour)} per hour{instead}{how}")
        if self.general is None or not self._filled or (not self._kept and len(self._filled) == 1 and not self.general.terms):
            return texts
        shown = f"{format_hourly(self.general.usd_per_node_hour)} per hour"
        text = f"the price of {shown} applies to {listed(list(self._filled))}"
        if self._kept:
            text += f"; {listed(list(self._kept))} {'keeps its' if len(self._kept) == 1 else 'keep their'} own"
        return [*texts, text + (f": {self.general.terms}" if self.general.terms else "")]


def _shown(name: str, value: object) -> str:
    """A price as an argument of the library, which the command line shows as an option.

    >>> _shown("lab", "0.40/h"), _shown(ALL, "0.40/h")
    ("`prices={'lab': '0.40/h'}`", "`prices='0.40/h'`")
    """
    short = f"{value[:_LONGEST]}{'...' if len(value) > _LONGEST else ''}" if isinstance(value, str) else value
    return f"`prices={short!r}`" if name == ALL else f"`prices={ {name: short}!r}`"


def parse_prices(given: str | float | Mapping[str, str | float | Price] | None) -> Prices:
    """Prices as a caller gives them.

    Parameters
    ----------
    given
        Such as ``{"ethernet-1g": "0.40/h", "lab": 0.25}``, numbers in US dollars for an hour of a
        node; alone, or under ``"*"``, for every cluster that has none.

    Raises
    ------
    InputError
        One cannot be read.
    """
    if given is None:
        return Prices()
    prices = given if isinstance(given, Mapping) else {ALL: given}
    named = {name: _price_of(value, _shown(name, value)) for name, value in prices.items()}
    general = named.pop(ALL, None)
    return Prices(named, None if general is None else _for_all(general))


def _price_of(value: str | float | Price, where: str) -> Price:
    if isinstance(value, Price):
        return value
    if isinstance(value, str):
        return price_of_text(value, where)
    if isinstance(value, bool) or not (math.isfinite(value) and value >= 0):
        raise InputError(f"{where} must be US dollars per node and hour, such as {_EXAMPLES}")
    return Price(usd_per_node_hour=float(value), source=_GIVEN)


def _for_all(price: Price) -> Price:
    """A price whose source says that it was given without a cluster's name."""
    return price.model_copy(update={"source": f"{price.source} for every cluster without a price"})


def price_of_text(text: str, where: str = "`prices`") -> Price:
    """A node's price per hour: as given, or computed from the costs of an owned machine.

    >>> price_of_text("0.40/h").usd_per_node_hour
    0.4
    >>> round(price_of_text("BUY:4000USD,years:4,power:0.5kW").usd_per_node_hour, 4)  # 4000 / 35,064 + 0.5 x 0.15
    0.1891

    Parameters
    ----------
    text
        ``0.40/h``, ``0.40 USD/h``; or ``BUY:4000USD,years:4,power:0.5kW,electricity:0.30USD/kWh,use:0.6``, of which all but BUY and
        years may be left out: ``use`` is the share of all hours in which the machine works. ``pue:1.4``, ``hosting:80USD/month``,
        ``overhead:0.1`` and ``residual:500USD`` may be added (:class:`~simulator.spec.paying.Owned`).
    where
        Begins a message.

    Raises
    ------
    InputError
        It cannot be read; the message says what could.
    """
    if text.strip().lower().startswith("buy"):
        return _bought(text.strip(), where)
    hourly = _HOURLY.fullmatch(text.strip())
    rule = f"{where} must be US dollars per node and a unit of time, such as {_EXAMPLES}"
    if not hourly:
        raise InputError(rule, without_separators(text))
    try:
        over_s = parse_quantity(f"1 {hourly[2]}", "time")
    except UnitError:
        raise InputError(rule) from None
    return validated(Price, {"usd_per_node_hour": float(hourly[1]) / over_s * 3600.0, "source": _GIVEN}, where)


class _Part(NamedTuple):
    """One part of the cost of a bought machine: the key of a price or of its ``owned``, its notation, and its bounds."""

    key: str
    rule: str = ""
    pattern: re.Pattern[str] = re.compile(_NUMBER, re.ASCII)
    least: float = math.ulp(0.0)
    most: float = math.inf

    def read(self, text: str, name: str, where: str) -> float:
        """Read its value in US dollars, in watts or as a number; raise InputError if it is invalid."""
        shown, match = f"{where}: {name} {quoted(text)}", self.pattern.fullmatch(text)
        value = float(match[1]) if match else math.nan
        if self.key == "power_w":
            try:
                value = parse_quantity(text, "power")
            except UnitError as error:
                raise InputError(f"{where}: power: {error}") from None
        if not (self.least <= value <= self.most and math.isfinite(value)):
            raise InputError(f"{shown} must be {self.rule}")
        if match and self.pattern is _SUM:
            check_thousands(match[1], shown)
        return value


_BOUGHT = {
    "buy": _Part("purchase_usd", "US dollars for one node, such as BUY:4000USD", _SUM, 0.0),
    "years": _Part("years", "a number of years above 0, such as years:4"),
    "power": _Part("power_w", "at least 0", least=0.0),
    "electricity": _Part("usd_per_kwh", "US dollars per kWh, such as electricity:0.30USD/kWh", _ENERGY, 0.0),
    "use": _Part("share_in_use", "a share of all hours above 0 and at most 1, such as use:0.6", most=1.0),
    "pue": _Part("pue", "a number of at least 1, such as pue:1.4", least=1.0),
    "hosting": _Part("hosting_usd_per_month", "US dollars per month, such as hosting:80USD/month", _MONTHLY, 0.0),
    "overhead": _Part("overhead_per_year", "a share of the purchase per year, above 0 and at most 1, such as overhead:0.1", most=1.0),
    "residual": _Part("residual_usd", "US dollars, such as residual:500USD", _SUM, 0.0),
}


def _bought(text: str, where: str) -> Price:
    """Price per hour of a bought machine."""
    parts: dict[str, str] = {}
    for part in text.split(","):
        key, colon, value = (word.strip() for word in part.partition(":"))
        key = key.lower()
        if not colon or not value or key not in _BOUGHT:
            others = [*_BOUGHT][1:]
            parts_are = f"parts are BUY, {', '.join(others)}, such as BUY:4000USD,years:4,power:0.5kW, without commas in numbers"
            hint = did_you_mean(key, others, parts_are, written="{}:...")
            raise InputError(f"{where}: {quoted(part.strip())} is not part of a purchase; {hint}")
        if key in parts:
            raise InputError(f"{where}: {key} is given twice; keep one of them")
        parts[key] = value
    if "years" not in parts:
        raise InputError(f"{where}: years are missing: add the years of use, such as years:4")
    if "power" not in parts and (idle := [key for key in ("electricity", "pue") if key in parts]):
        fact = "electricity has a price" if idle[0] == "electricity" else "pue is of power"
        raise InputError(f"{where}: {fact}, but power is missing: add it, such as power:0.5kW")
    known = {figure.key: figure.read(parts[name], name, where) for name, figure in _BOUGHT.items() if name in parts}
    table = {key: value for key, value in known.items() if key in Price.model_fields}
    price = validated(Price, {**table, "owned": {key: value for key, value in known.items() if key not in table}}, where)
    return price.model_copy(update={"terms": price.worked_out_in_words, "source": f"{_GIVEN}: {price.formula}"})
