"""Bounds of the gain of a change in speeds, independent of model error.

Two scenarios that differ only in the speed of some parts (links, devices, hosts) or in the batch do the same work in the same order. So
the ratio of their throughputs lies between the smallest and the largest ratio of the parts' speeds, with 1 among them. This is Amdahl's
law (AFIPS 1967) without knowledge of the limiting part. Some systems slightly break the rule that faster parts never hurt (Graham, "Bounds
on multiprocessing timing anomalies", 1969), and short runs scatter. Simulated gains beyond the bounds are attributed to that, and cut.

``_RATES`` and ``_TIMES`` name the keys of speeds. If any other key differs, there are no bounds.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from simulator.base.errors import ScenarioError
from simulator.resolve.measured_defaults import host_costs
from simulator.resolve.resolve import resolve
from simulator.scenario import Scenario
from simulator.spec.figures import Estimate
from simulator.spec.uncertainty import Uncertainty


class GainBounds(NamedTuple):
    """Least and greatest ratio of the throughputs of two scenarios."""

    least: float
    most: float


NO_BOUNDS = GainBounds(0.0, math.inf)
"""Bounds for scenarios that differ in more than speeds, and for equal ones, which differ only by chance."""

_SKIPPED = frozenset(
    {"name", "description", "basis", "price", "server_price", "calibrated", "fit", "fit_hosts", "provenance", "overridden", "uncertainty"}
)
"""Keys that do not affect a simulation, and draws."""

_RATES = re.compile(
    r"cluster\.("
    r"(inter_node|intra_node|intra_device|host_link|islands\.between|node_classes\.\d+\.inter_node)\.bandwidth_bytes_per_s"
    r"|storage\.\w+_per_s|transport\.flow_cap_bytes_per_s|nvls\.efficiency|node_speed\.\d+|node_classes\.\d+\.speed)"
    r"|workload\.(batch_per_replica|global_batch)"
)
"""Keys whose doubling gains at most a factor of 2 (a larger batch does not shorten the step)."""
_TIMES = re.compile(
    r"cluster\.(([\w.]+\.)?latency_s|fabric\.oversubscription|transport\.(cpu_per_message_s|cpu_per_byte_s|copy_per_byte_s))"
    r"|workload\.((forward|backward|input)\.(base_s|per_sample_s|least_s)|apply_s|server\.(base_s|per_byte_s))"
)
"""Keys whose halving gains at most a factor of 2."""
INSTANT = 700.0
"""Logarithm of an infinite speed; larger ones overflow."""
_DIGITS = 9
"""Significant digits in which fitted draws must be proportional, which allows for rounding."""


class Speeds(NamedTuple):
    """The speeds of a scenario, and a digest of everything else.

    Attributes
    ----------
    of
        Logarithm of each part's speed, by key; :data:`INSTANT` for parts that take no time.
    rest
        Digest of everything else that affects the simulation.
    """

    of: Mapping[str, float]
    rest: str


def speeds_of(scenario: Scenario) -> Speeds | None:
    """Return the speeds of a scenario and the digest of the rest; None if it cannot be resolved on this machine."""
    given = scenario
    try:
        scenario = resolve(scenario)
    except ScenarioError:
        return None
    of: dict[str, float] = {}
    rest: dict[str, Any] = {}
    # not as they are written to files: a workload whose times are computed leaves them out there
    for section in (scenario.workload, scenario.cluster):
        for path, values in _columns("workload" if section is scenario.workload else "cluster", section.uncertainty):
            largest = max(values)
            speed = _log_speed(path, largest)
            if speed is None or not largest:
                rest[f"{path} drawn"] = values
            else:
                of[f"{path} drawn"] = speed
                rest[f"{path} drawn"] = [f"{value / largest:.{_DIGITS}g}" for value in values]
    hosts = host_costs(scenario)
    for name, known in hosts.items():
        of[f"practice.{name}"] = -math.log(known.value)
        rest[f"practice.{name} drawn"] = [f"{end / known.value:.{_DIGITS}g}" for end in (known.low, known.high)]
    if scenario.workload.measured_with == "servers":
        rest["measured in"] = _sections_of(given if given.measured_in is None else Scenario.model_validate(given.measured_in))
    known_already = ("measured_in", *(f"practice.{name}." for name in hosts))
    for path, value in _leaves(scenario):
        if path.startswith(known_already):
            continue
        speed = _log_speed(path, value)
        if speed is None:
            rest[path] = value
        else:
            of[path] = speed
    return Speeds(of, hashlib.sha256(json.dumps(rest, sort_keys=True, default=str).encode()).hexdigest())


def _sections_of(scenario: Scenario) -> str:
    """Return everything that affects a scenario's results, except how it is simulated."""
    written = resolve(scenario).model_dump(mode="json", context={"filled": True})
    return json.dumps({name: written[name] for name in written.keys() - {"measured_in", "run", "discrepancy"}}, sort_keys=True)


def gain_bounds(ours: Scenario, theirs: Scenario) -> GainBounds:
    """Return the bounds of the ratio of our throughput to theirs.

    Examples
    --------
    >>> from simulator import load_scenario
    >>> slow, fast = (load_scenario("ring", [("cluster.inter_node.bandwidth", rate)]) for rate in ("10 Gbit/s", "25 Gbit/s"))
    >>> gain_bounds(fast, slow), gain_bounds(slow, fast)
    (GainBounds(least=1.0, most=2.5), GainBounds(least=0.4, most=1.0))
    >>> gain_bounds(fast, load_scenario("ring", [("strategy.workers", 3)]))
    GainBounds(least=0.0, most=inf)
    """
    return bounds_between(speeds_of(ours), speeds_of(theirs))


def bounds_between(own: Speeds | None, other: Speeds | None) -> GainBounds:
    """Return the same bounds from two scenarios' speeds."""
    if own is None or other is None or own.rest != other.rest or own.of.keys() != other.of.keys():
        return NO_BOUNDS
    gains = [speed - other.of[path] for path, speed in own.of.items() if speed != other.of[path]]
    if not gains:
        return NO_BOUNDS
    return GainBounds(_rounded(math.exp(min(0.0, *gains))), _rounded(math.exp(max(0.0, *gains))))


def bounded(ratio: Estimate, bounds: GainBounds) -> Estimate:
    """Return a ratio with mean and interval cut at the bounds."""
    return Estimate(**{end: min(max(getattr(ratio, end), bounds.least), bounds.most) for end in ("mean", "low", "high")})


def _rounded(value: float) -> float:
    """Return a number without rounding errors of logarithms."""
    return float(f"{value:.12g}")


def _log_speed(path: str, value: Any) -> float | None:
    """Return the logarithm of a part's speed; None for a key that is not a speed."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    sign = 1.0 if _RATES.fullmatch(path) else -1.0 if _TIMES.fullmatch(path) else 0.0
    if not sign:
        return None
    return sign * math.log(value) if value > 0 else INSTANT


def _columns(section: str, drawn: Uncertainty | None) -> Iterator[tuple[str, list[float]]]:
    """Yield each fitted parameter of a section with its draws."""
    if drawn is not None:
        for name, values in zip(drawn.parameters, zip(*drawn.draws, strict=True), strict=True):
            yield f"{section}.{name}", list(values)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value by dotted path, except descriptions, and draws (:func:`_columns`)."""
    if isinstance(value, BaseModel):
        items: Iterable[tuple[Any, Any]] = ((key, getattr(value, key)) for key in type(value).model_fields if key not in _SKIPPED)
    elif isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, tuple | list):
        items = enumerate(value)
    else:
        yield path, value
        return
    for key, inner in items:
        yield from _leaves(inner, f"{path}.{key}" if path else str(key))
