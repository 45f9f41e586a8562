"""Cost of a machine in any way to pay: rented by the hour, at a spot price, reserved for a term, or bought (``[cluster.price]``).

Every way to pay gives the same :class:`Costs` of a node. An hour in use then costs

    (capital - residual) / (years x 8,766 h x share in use) + standing / share in use + running.

prices.py parses prices of the command line; ``simulator.results.cost`` computes the cost of a training.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import ConfigDict, Field, SerializationInfo, SerializerFunctionWrapHandler, field_validator, model_serializer

from simulator.base.spec import Moderate, Overhead, Power, Spec, Terse, Usual
from simulator.base.text import format_seconds
from simulator.spec.job import Preemption

HOURS_PER_YEAR = 8766.0
"""Hours of a year of 365.25 days."""
HOURS_PER_MONTH = HOURS_PER_YEAR / 12

ELECTRICITY_USD_PER_KWH = 0.15
"""Price of electricity if none is given: an assumption, shown in the price's terms."""

_DATE = r"(?<![\d-])(199\d|20\d\d|2100)(?:-(\d{1,2})(?:-(\d{1,2}))?)?(?![\d-])"
"""A year from 1990 to 2100, a month or a day of it; other four-digit numbers are amounts of money."""
_OTHER_ORDER = r"(?<!\d)(?:\d{1,2}[/.-]\d{1,2}[/.-](?:\d{4}|\d{2})|\d{4}[/.]\d{1,2}[/.]\d{1,2})(?!\d)"
_ROUNDING = 1e-9
Dollars = Annotated[Moderate, Field(ge=0)]
_PURCHASE, _HOURLY = Usual(1.0, 1e8), Usual(1e-4, 2000.0)


class _Dated(Spec):
    """A published or offered price."""

    source: str = Field(default="given in the scenario", min_length=1, max_length=1000, description="where the price was read")
    date: str = Field(
        default="",
        max_length=100,
        json_schema_extra={"pattern": f"^$|{_DATE}"},
        description="date of the price, such as 2024-05-01 (1990 to 2100), with or without words around it",
    )

    @field_validator("date", mode="before")
    @classmethod
    def _as_text(cls, given: object) -> object:
        """A date of TOML, which has no quotes, as text."""
        return given.isoformat() if isinstance(given, datetime.date) else given

    @field_validator("date")
    @classmethod
    def _names_a_day(cls, given: str) -> str:
        """Require that it is empty, or has a date of the calendar."""
        if unclear := re.search(_OTHER_ORDER, given):
            raise ValueError(f"has {unclear[0]}, whose day and month are ambiguous: write year-month-day, such as 2024-05-01")
        dates = re.findall(_DATE, given)
        if given and not dates:
            raise ValueError("must contain a date from 1990 to 2100, such as 2024-05-01, 2024-05 or 2024")
        for year, month, day in dates:
            try:
                datetime.date(int(year), int(month or 1), int(day or 1))
            except ValueError:
                raise ValueError("must be a calendar day as year-month-day, such as 2024-05-01") from None
        return given

    @property
    def origin(self) -> str:
        """Source and date in words."""
        return ", ".join(filter(None, (self.source, self.date)))


class Owned(Terse):
    """``[cluster.price.owned]``: costs of a machine after its purchase, and the years over which the purchase is written off."""

    years: Annotated[Moderate, Field(gt=0, le=50), Usual(0.25, 20.0)] = Field(
        description="years over which the purchase is written off in equal parts"
    )
    residual_usd: Dollars = Field(default=0.0, description="value of a node at the end, in US dollars")
    power_w: Power | None = Field(default=None, description="power of a working node, all devices included; left out: not counted")
    pue: Annotated[Moderate, Field(ge=1, le=5)] = Field(
        default=1.0, description="power of the whole site for each watt of machines, cooling included (PUE)"
    )
    usd_per_kwh: Annotated[Dollars, Usual(1e-3, 10.0)] | None = Field(
        default=None, description=f"US dollars per kWh; left out: {ELECTRICITY_USD_PER_KWH}, an assumption shown in the price's terms"
    )
    hosting_usd_per_month: Annotated[Dollars, Usual(0.1, 1e6)] = Field(
        default=0.0, description="US dollars per month to host a node, used or not"
    )
    overhead_per_year: Annotated[Moderate, Field(ge=0, le=1)] = Field(
        default=0.0, description="staff, spare parts and maintenance per year as a share of the purchase: 0.1 is 10%"
    )

    def _broken_rules(self) -> Iterator[str]:
        if self.power_w is None and (self.usd_per_kwh is not None or self.pue != 1.0):
            yield "has usd_per_kwh or pue but no power: give power, such as 5 kW"

    @property
    def electricity_usd_per_kwh(self) -> float:
        """Price of electricity, as given or assumed."""
        return ELECTRICITY_USD_PER_KWH if self.usd_per_kwh is None else self.usd_per_kwh

    @property
    def electricity_usd_per_hour(self) -> float:
        """Cost of electricity for an hour in use."""
        return 0.0 if self.power_w is None else self.power_w / 1000.0 * self.pue * self.electricity_usd_per_kwh


class Reserved(Terse):
    """``[cluster.price.reserved]``: a node rented for a term and paid for all of its hours."""

    years: Annotated[Moderate, Field(gt=0, le=50), Usual(1 / 12, 10.0)] = Field(description="the term")
    upfront_usd: Annotated[Dollars, _PURCHASE] = Field(default=0.0, description="US dollars per node, paid at the start")
    usd_per_hour: Annotated[Dollars, _HOURLY] = Field(default=0.0, description="US dollars per node and hour of the term, used or not")


class Costs(NamedTuple):
    """Cost of a node, in any way to pay."""

    capital_usd: float
    """US dollars at the start, used or not."""
    residual_usd: float = 0.0
    """US dollars that it is worth at the end."""
    years: float | None = None
    """Years for which the capital is paid; None without capital, or if not given."""
    standing_usd_per_hour: float = 0.0
    """US dollars for every hour, whether the node works or not."""
    running_usd_per_hour: float = 0.0
    """US dollars for an hour in use: electricity, or the rent; 0 if a purchase does not give it."""


def _costs(purchase_usd: float | None, owned: Owned | None, reserved: Reserved | None) -> Costs | None:
    """Costs from which the price of an hour is computed; None if it does not follow from these."""
    if owned is not None and purchase_usd is not None:
        standing = owned.hosting_usd_per_month / HOURS_PER_MONTH + owned.overhead_per_year * purchase_usd / HOURS_PER_YEAR
        return Costs(purchase_usd, owned.residual_usd, owned.years, standing, owned.electricity_usd_per_hour)
    return None if reserved is None else Costs(reserved.upfront_usd, 0.0, reserved.years, reserved.usd_per_hour)


def _worked_out(known: dict[str, Any]) -> float:
    """Price of an hour in use from the keys before it; NaN if it does not follow from them."""
    costs, share = _costs(*(known.get(name) for name in ("purchase_usd", "owned", "reserved"))), known.get("share_in_use") or 1.0
    if costs is None or costs.years is None:
        return math.nan
    capital = (costs.capital_usd - costs.residual_usd) / (costs.years * HOURS_PER_YEAR * share)
    return float(capital + costs.standing_usd_per_hour / share + costs.running_usd_per_hour)


def _dollars(usd: float) -> str:
    return f"{usd:,.10g} USD"


def sets_of_nodes(hours_per_month: float) -> int:
    """Return the number of sets of nodes needed to work this number of hours per month."""
    return max(math.ceil(hours_per_month / HOURS_PER_MONTH * (1 - _ROUNDING)), 1)


class Price(
    _Dated,
    Terse,
    only=("name", "purchase_usd", "owned", "reserved", "share_in_use", "preemption", "billing_minimum_s", "billing_step_s", "startup_s"),
):
    """Price of a node per hour (rented, reserved, or as a share of its purchase), with its source."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        json_schema_extra={"anyOf": [{"required": [key]} for key in ("usd_per_node_hour", "owned", "reserved")]}
    )

    name: str = Field(default="", max_length=60, description="name of this way to pay; left out: rented, spot, reserved or bought")
    purchase_usd: Annotated[Dollars, _PURCHASE] | None = Field(
        default=None, description="US dollars to buy the node; left out: it is rented"
    )
    owned: Owned | None = Field(
        default=None,
        description="with purchase_usd: years of use, power, cooling, hosting and staff, from which usd_per_node_hour is computed; left "
        "out: usd_per_node_hour is taken as given",
    )
    reserved: Reserved | None = Field(
        default=None,
        description="a term for which the node is rented, used or not, from which usd_per_node_hour is computed; left out: none",
    )
    share_in_use: Annotated[Moderate, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="with owned or reserved: expected share of hours in use, over which the cost is spread; left out: 1, an assumption "
        "shown in the price's terms",
    )
    usd_per_node_hour: Annotated[Dollars, _HOURLY] = Field(
        default_factory=_worked_out,
        description="US dollars per node and hour in use, all devices included; left out with owned or reserved: computed from them",
    )
    terms: str = Field(default="", max_length=500, description="what the price applies to, such as: on demand, Linux, us-east-1")
    preemption: Preemption | None = Field(
        default=None,
        description='for a spot price: how often a node is preempted (mtbf: its mean lifetime, such as "20 h"); a [job] is simulated '
        "with it as with job.faults.preemption; left out: never",
    )
    billing_minimum_s: Overhead = Field(default=0.0, description="minimum billed time per node")
    billing_step_s: Overhead = Field(default=0.0, description="time is billed in steps of this length, rounded up; 0: exactly")
    startup_s: Overhead = Field(
        default=0.0,
        description="billed time before a node's first training step; a job's own start-up (job.startup) is part of it and is not billed "
        "twice",
    )

    @model_serializer(mode="wrap")
    def _terse(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Leave out what is not set, and what was computed, so that it is computed again if another key changes."""
        written = super()._terse(handler, info)
        if self.is_worked_out:
            written.pop("usd_per_node_hour", None)
        first: dict[str, Any] = {key: written.pop(key) for key in ("usd_per_node_hour", "terms", "source", "date") if key in written}
        return {**first, **written}

    def _broken_rules(self) -> Iterator[str]:
        if self.owned is not None and self.purchase_usd is None:
            yield "has owned but no purchase_usd: give the purchase price of a node"
        if self.owned is not None and self.purchase_usd is not None and self.owned.residual_usd > self.purchase_usd:
            yield f"owned.residual_usd ({self.owned.residual_usd:g}) must be at most purchase_usd ({self.purchase_usd:g})"
        if self.reserved is not None and self.purchase_usd is not None:
            yield "has both reserved and purchase_usd: a node is either rented for a term or bought, so keep one of them"
        if self.is_worked_out:
            expected = _worked_out({name: getattr(self, name) for name in ("purchase_usd", "owned", "reserved", "share_in_use")})
            if not math.isclose(self.usd_per_node_hour, expected, rel_tol=_ROUNDING):
                what = "owned" if self.owned is not None else "reserved"
                yield f"usd_per_node_hour ({self.usd_per_node_hour:g}) is not the {expected:g} that follows from {what}: leave it out"
        elif math.isnan(self.usd_per_node_hour):
            yield "has no cost per hour: give usd_per_node_hour, or purchase_usd with owned, or reserved"
        elif self.share_in_use is not None:
            yield "share_in_use applies to nodes that cost money while idle: it needs owned or reserved"
        yield from self._rules_of_billing()

    def _rules_of_billing(self) -> Iterator[str]:
        if self.purchase_usd is None and self.reserved is None:
            return
        rented = ("preemption", "billing_minimum_s", "billing_step_s", "startup_s")
        if given := [name for name in rented if getattr(self, name)]:
            what = "bought" if self.reserved is None else "reserved"
            yield f"{given[0].removesuffix('_s')} applies to nodes rented by the hour, and this one is {what}: leave it out"

    # -- what is paid for a node -------------------------------------------------------------

    @property
    def is_worked_out(self) -> bool:
        """Return whether the price of an hour follows from others."""
        return self.owned is not None or self.reserved is not None

    @property
    def called(self) -> str:
        """Name of the way to pay, or its kind."""
        kinds = {"bought": self.purchase_usd is not None, "reserved": self.reserved is not None, "spot": self.preemption is not None}
        return self.name or next((kind for kind, fits in kinds.items() if fits), "rented")

    @property
    def costs(self) -> Costs:
        """Return the cost of a node at the start, per hour, and per hour in use."""
        worked_out = _costs(self.purchase_usd, self.owned, self.reserved)
        return worked_out or (
            Costs(0.0, running_usd_per_hour=self.usd_per_node_hour) if self.purchase_usd is None else Costs(self.purchase_usd)
        )

    @property
    def committed_usd(self) -> float | None:
        """Committed US dollars of a node: its purchase, or its whole term; None if it can be given back at any time."""
        if self.reserved is not None:
            return self.reserved.upfront_usd + self.reserved.usd_per_hour * self.reserved.years * HOURS_PER_YEAR
        return self.purchase_usd

    @property
    def running_usd_per_hour_in_use(self) -> float | None:
        """US dollars for an hour in use without the share of the capital; None if a purchase does not give that part."""
        if self.purchase_usd is not None and self.owned is None:
            return None
        return self.costs.standing_usd_per_hour / (self.share_in_use or 1.0) + self.costs.running_usd_per_hour

    def usd_of_training(self, time_s: float, per_month: float) -> float:
        """Return the cost of a training on one node that is paid for in advance, with this number of trainings per month.

        A month's capital and standing costs of the node are spread over that month's trainings, even if it is idle otherwise. Work beyond
        all hours of a month needs further sets of nodes (:func:`sets_of_nodes`).

        Parameters
        ----------
        time_s
            Of one training.
        per_month
            Trainings a month, above 0.
        """
        costs, hours = self.costs, time_s / 3600.0
        assert costs.years is not None, "only a computed price has a cost per idle hour"
        fixed = (costs.capital_usd - costs.residual_usd) / (costs.years * HOURS_PER_YEAR) + costs.standing_usd_per_hour
        return sets_of_nodes(per_month * hours) * HOURS_PER_MONTH * fixed / per_month + costs.running_usd_per_hour * hours

    # -- what is billed ----------------------------------------------------------------------

    @property
    def bills_exactly(self) -> bool:
        """Return whether the billed time is the time of the training."""
        return not (self.billing_minimum_s or self.billing_step_s or self.startup_s)

    def billed_s(self, time_s: float, startup_s: float = 0.0) -> float:
        """Billed seconds of a node that trains for this time: start-up, whole billing steps, and at least the minimum.

        Parameters
        ----------
        time_s
            From when the job begins until the node is given back.
        startup_s
            Of it, until the first step, which is billed once.
        """
        if self.bills_exactly:
            return time_s
        whole_s = time_s + max(self.startup_s - startup_s, 0.0)
        if self.billing_step_s:
            whole_s = math.ceil(whole_s / self.billing_step_s * (1 - _ROUNDING)) * self.billing_step_s
        return float(max(whole_s, self.billing_minimum_s))

    # -- in words ----------------------------------------------------------------------------

    @property
    def worked_out_in_words(self) -> str:
        """Describe how the price of an hour was computed, assumptions included; empty if it was given."""
        return ", ".join(words for words, _ in self._worked_out_of if words)

    @property
    def formula(self) -> str:
        """Write the computation of the price of an hour as a sum that a reader can check; empty if it was given."""
        return " + ".join(term for _, term in self._worked_out_of if term)

    @property
    def _worked_out_of(self) -> Iterator[tuple[str, str]]:
        """Yield the parts of a computed price of an hour, in words and as a term of a sum; either may be empty."""
        paid, share = self.reserved or self.owned, self.share_in_use or 1.0
        if paid is None:
            return
        all_hours = f"{HOURS_PER_YEAR:,.0f} h x {share:g})"
        over = f"({paid.years:g} years x {all_hours}"
        in_use = f"in use {share:.4g} of all hours" if share < 1 else f"in use at all hours{'' if self.share_in_use else ' (assumed)'}"
        if isinstance(paid, Reserved):
            upfront, hourly = _dollars(paid.upfront_usd), _dollars(paid.usd_per_hour)
            yield f"reserved for {paid.years:g} year{'' if paid.years == 1 else 's'}", ""
            if paid.upfront_usd:
                yield f"{upfront} at the start", f"{upfront} / {over}"
            yield f"{hourly} per hour" if paid.usd_per_hour or not paid.upfront_usd else "", f"{hourly} / {share:g}"
            yield in_use, ""
            return
        bought, residual, hosting = _dollars(self.purchase_usd or 0.0), _dollars(paid.residual_usd), _dollars(paid.hosting_usd_per_month)
        yield f"bought for {bought} over {paid.years:g} years", f"{f'({bought} - {residual})' if paid.residual_usd else bought} / {over}"
        yield f"then worth {residual}" if paid.residual_usd else "", ""
        yield in_use, ""
        if paid.power_w is None:
            yield "electricity not counted", ""
        else:
            power, price = f"{paid.power_w / 1000.0:g} kW", f"{paid.electricity_usd_per_kwh:g} USD/kWh"
            pue, cooled = ("", "") if paid.pue == 1.0 else (f" x PUE {paid.pue:g}", f" x {paid.pue:g}")
            yield f"{power}{pue} at {price}{' (assumed)' if paid.usd_per_kwh is None else ''}", f"{power}{cooled} x {price}"
        if paid.hosting_usd_per_month:
            yield f"hosting {hosting} per month", f"{hosting} x 12 / ({all_hours}"
        if paid.overhead_per_year:
            overhead = f"{paid.overhead_per_year:.4g}"
            yield f"staff and maintenance {overhead} of the purchase per year", f"{overhead} x {bought} / ({all_hours}"

    @property
    def said(self) -> str:
        """Terms, source and date in words."""
        worked_out = "" if self.terms else self.worked_out_in_words
        return "; ".join(text for text in (self.terms, worked_out, self._billing_in_words, self.origin) if text)

    @property
    def _billing_in_words(self) -> str:
        taken = self.preemption.mtbf_s if self.preemption is not None else None
        texts = ["preempted according to its trace"] if self.preemption is not None and taken is None else []
        texts += [f"a node is preempted after {format_seconds(taken)} on average"] if taken is not None else []
        texts += [f"billed for at least {format_seconds(self.billing_minimum_s)}"] if self.billing_minimum_s else []
        texts += [f"billed in steps of {format_seconds(self.billing_step_s)}"] if self.billing_step_s else []
        texts += [f"billed {format_seconds(self.startup_s)} before the first step"] if self.startup_s else []
        return ", ".join(texts)


class Upgrade(_Dated):
    """``[[cluster.upgrades]]``: cost and effect of better parts of each node; a plan says what they gain and when they pay off."""

    name: str = Field(min_length=1, max_length=60, description="name of the upgrade, such as: 100 Gbit/s NIC")
    usd_per_node: Annotated[Moderate, Field(gt=0), Usual(0.1, 1e8)] = Field(
        description="one-time cost per node in US dollars, everything included"
    )
    changes: dict[str, Any] = Field(
        default_factory=dict,
        max_length=20,
        description='dotted keys of the cluster with their new values, such as {"inter_node.bandwidth" = "100 Gbit/s"}; left out: none',
    )
    device_speed: Annotated[Moderate, Field(gt=0, le=1e6)] = Field(
        default=1.0, description="speed of the devices relative to the present ones"
    )

    def _broken_rules(self) -> Iterator[str]:
        if not self.changes and self.device_speed == 1.0:
            yield 'changes nothing: give changes, such as {"inter_node.bandwidth" = "100 Gbit/s"}, or device_speed'
