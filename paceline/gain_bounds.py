"""Bounds of what a change of speeds alone can gain, whatever the model is off by.

Two scenarios that differ in nothing but how fast some of their parts are (links, devices, hosts), or in the batch, do the same work in
the same order. So the throughput of one over that of the other lies between the least and the greatest of the parts' ratios, with 1 among
them: the laws of Amdahl (AFIPS 1967) for a step, without a word on which part limits. A few systems break the rule that faster parts
never hurt, by little (Graham, "Bounds on multiprocessing timing anomalies", 1969), and runs of some steps scatter. What simulated
runs show beyond the bounds is taken for that, and not told as an effect.

Keys of a scenario that are speeds are named in ``_RATES`` and ``_TIMES``; any other key that differs means no bounds.
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
    """The throughput of one scenario over that of another, at least and at most."""

    least: float
    most: float


NO_BOUNDS = GainBounds(0.0, math.inf)
"""Of scenarios that differ in more than speeds; and of equal ones, which chance alone tells apart."""

_SKIPPED = frozenset(
    {"name", "description", "basis", "price", "server_price", "calibrated", "fit", "fit_hosts", "provenance", "overridden", "uncertainty"}
)
"""Keys that change nothing of what is simulated; and draws."""

_RATES = re.compile(
    r"cluster\.("
    r"(inter_node|intra_node|intra_device|host_link|islands\.between|node_classes\.\d+\.inter_node)\.bandwidth_bytes_per_s"
    r"|storage\.\w+_per_s|transport\.flow_cap_bytes_per_s|nvls\.efficiency|node_speed\.\d+|node_classes\.\d+\.speed)"
    r"|workload\.(batch_per_replica|global_batch)"
)
"""Keys of which twice as much is twice as fast at most: a step is no shorter with a larger batch, whose samples a second it divides."""
_TIMES = re.compile(
    r"cluster\.(([\w.]+\.)?latency_s|fabric\.oversubscription|transport\.(cpu_per_message_s|cpu_per_byte_s|copy_per_byte_s))"
    r"|workload\.((forward|backward|input)\.(base_s|per_sample_s|least_s)|apply_s|server\.(base_s|per_byte_s))"
)
"""Keys of which half as much is twice as fast."""
INSTANT = 700.0
"""Logarithm of a speed that stands for no time at all; larger ones are no floating-point numbers."""
_DIGITS = 9
"""Significant digits in which fitted draws have to be proportional, so that rounding does not tell them apart."""


class Speeds(NamedTuple):
    """A scenario, taken apart.

    Attributes
    ----------
    of
        Logarithm of each part's speed, by its key; :data:`INSTANT` for what takes no time.
    rest
        Digest of all else that decides what is simulated.
    """

    of: Mapping[str, float]
    rest: str


def speeds_of(scenario: Scenario) -> Speeds | None:
    """How fast the parts of a scenario are, and everything else; None where it cannot be resolved on this machine."""
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
    """All that decides what a scenario gives, but for how it is simulated."""
    written = resolve(scenario).model_dump(mode="json", context={"filled": True})
    return json.dumps({name: written[name] for name in written.keys() - {"measured_in", "run", "discrepancy"}}, sort_keys=True)


def gain_bounds(ours: Scenario, theirs: Scenario) -> GainBounds:
    """Within what the throughput of ours over that of theirs lies.

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
    """The same of two scenarios that have been taken apart."""
    if own is None or other is None or own.rest != other.rest or own.of.keys() != other.of.keys():
        return NO_BOUNDS
    gains = [speed - other.of[path] for path, speed in own.of.items() if speed != other.of[path]]
    if not gains:
        return NO_BOUNDS
    return GainBounds(_rounded(math.exp(min(0.0, *gains))), _rounded(math.exp(max(0.0, *gains))))


def bounded(ratio: Estimate, bounds: GainBounds) -> Estimate:
    """The same ratio, mean and interval, as far as it can be."""
    return Estimate(**{end: min(max(getattr(ratio, end), bounds.least), bounds.most) for end in ("mean", "low", "high")})


def _rounded(value: float) -> float:
    """Without what logarithms add in the last digits."""
    return float(f"{value:.12g}")


def _log_speed(path: str, value: Any) -> float | None:
    """Logarithm of a part's speed; None for a key that is no speed."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    sign = 1.0 if _RATES.fullmatch(path) else -1.0 if _TIMES.fullmatch(path) else 0.0
    if not sign:
        return None
    return sign * math.log(value) if value > 0 else INSTANT


def _columns(section: str, drawn: Uncertainty | None) -> Iterator[tuple[str, list[float]]]:
    """Each fitted parameter of a section with its draws."""
    if drawn is not None:
        for name, values in zip(drawn.parameters, zip(*drawn.draws, strict=True), strict=True):
            yield f"{section}.{name}", list(values)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value by its dotted path, but for what is descriptive, and for draws, which :func:`_columns` has."""
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
