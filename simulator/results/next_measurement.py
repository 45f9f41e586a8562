"""What to measure next: commands that would narrow the interval of the throughput, and its expected width afterwards.

The contributions to the interval come from :mod:`simulator.results.variance` and the discrepancy. A command narrows drawn quantities, and
with measured links also model error, to the uncertainty after earlier measurements of that kind (``models/measuring.toml``, written by
``evidence.measuring``; ``models/discrepancy.toml``). docs/intervals.md has every rule.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from simulator.base.catalog import own_file
from simulator.base.files import read_toml
from simulator.base.spec import Itself, Spec
from simulator.base.text import counted, format_share, listed
from simulator.base.validation_errors import validated
from simulator.memory import largest_batch
from simulator.resolve.drawing import as_workers, drawn_quantities
from simulator.resolve.measured_defaults import COMPUTE, HOSTS, JITTER, LINK, OF_CONSTANTS, is_carried, with_nominal_defaults
from simulator.resolve.resolve import alone_scenario, resolve
from simulator.results.inadequacy import applied_discrepancy, discrepancy_of, launching, regime_of, regimes
from simulator.results.intervals import prediction_interval, widened
from simulator.results.results import Result
from simulator.results.variance import Decomposition, decomposed
from simulator.scenario import Resolved
from simulator.spec.figures import Contribution, Estimate, Measurement, Share
from simulator.spec.uncertainty import PRIOR_POINTS, Z_90, AppliedDiscrepancy, Deviation, Discrepancy, relative_error_of
from simulator.spec.workload import WorkloadRange

BANDWIDTH = "bandwidth of links"
"""Uncertainty after measuring a link."""
_ETHERNET = OF_CONSTANTS["ethernet_share"]
_RDMA = OF_CONSTANTS["rdma_share"]
_INSIDE = tuple(dict.fromkeys(OF_CONSTANTS[name] for name in ("nvlink_share", "pcie_share", "host_memory_share")))
_NOTHING = 0.95
"""A command that leaves more of the width than this is not listed."""
OWN_RUNS = 9
"""Number of own runs with which a refit at best halves model error, in addition to :data:`PRIOR_POINTS` of the regime."""
_TIMES = 4
"""Factor on the number of measurements that halves a standard error."""
_RUNS, _ROUNDS = 3, 7
"""Defaults of ``paceline calibrate`` and ``paceline calibrate-link``."""


class _Left(Spec):
    quantity: str
    sd: float = Field(ge=0, description="standard deviation of the logarithm after a measurement, median over fits")
    low: float = Field(ge=0, description="smallest over fits")
    high: float = Field(ge=0, description="largest over fits")
    fits: int = Field(ge=1)


class _Measuring(Spec):
    schema_version: int = 1
    left: tuple[_Left, ...]


@lru_cache(maxsize=1)
def _measured() -> Mapping[str, _Left]:
    path = own_file("measuring.toml")
    return {each.quantity: each for each in validated(_Measuring, read_toml(path), str(path)).left}


class Width(NamedTuple):
    """Contributions to the interval of a result's throughput, and measurements that would narrow it.

    Attributes
    ----------
    contributions
        Shares of the variance by quantity, largest first; empty if nothing varies.
    measure_next
        Commands that would narrow the interval, the most effective first; best cases come last.
    """

    contributions: tuple[Contribution, ...]
    measure_next: tuple[Measurement, ...]

    def as_data(self) -> dict[str, list[dict[str, Any]]]:
        """Plain data, ready to become JSON."""
        return {name: [each.model_dump(mode="json") for each in parts] for name, parts in self._asdict().items()}


def width_of(result: Result) -> Width:
    """Return the contributions to a result's interval, from its runs and their draws; empty if single runs are unknown. It is not part of
    the result, because it takes longer than a short simulation.
    """
    return _width_of(Itself(result))


@lru_cache(maxsize=16)
def _width_of(this: Itself[Result]) -> Width:
    result, rates = this.spec, this.spec.throughput_of_each_replication
    if len(rates) != result.scenario.run.replications:
        return Width((), ())
    scenario = resolve(result.scenario)
    achieved = as_workers(with_nominal_defaults(scenario))

    def applying(changed: Resolved) -> AppliedDiscrepancy | None:
        """Discrepancy of a changed scenario."""
        parts, hidden_s, use, known = result.breakdown_s, result.hidden_communication_s, result.utilisation, result.discrepancy
        return applied_discrepancy(changed, parts, hidden_s, use, achieved, known.efficiency if known else None)

    logs, quantities = np.array([math.log(rate) for rate in rates]), drawn_quantities(scenario)
    decomposition = decomposed(logs, quantities)
    made_of = _contributions(decomposition, float(logs.std(ddof=1)), applying(scenario))
    measurements = _measurements(scenario, prediction_interval(rates), spreads_of(quantities), decomposition, applying)
    return Width(made_of, tuple(sorted(measurements, key=lambda measurement: (measurement.at_best, measurement.left))))


def _contributions(decomposition: Decomposition, chance_sd: float, applied: AppliedDiscrepancy | None) -> tuple[Contribution, ...]:
    """Shares of the variance of the throughput's logarithm, the largest first; ``chance_sd``: that of the replications."""
    squares = {
        f"model: {part.name.partition(':')[0]}": (part.slower**2 + part.faster**2) / 2 for part in (applied.parts if applied else ())
    }
    variance = math.fsum([chance_sd**2, *squares.values()])
    if not variance:
        return ()
    of_runs = chance_sd**2 / variance
    parts = [(name, "model", _share(square / variance), _share(square / variance)) for name, square in squares.items()]
    for name, shares in decomposition.shares.items():
        first, total = (_share(share, of_runs, error) for share, error in zip(shares, decomposition.errors[name], strict=True))
        parts.append((name, "drawn", first, total))
    rest = _share(decomposition.chance, of_runs)
    parts.append(("chance between runs", "chance", rest, rest))
    contributions = (Contribution(name=name, kind=kind, first=first, total=total) for name, kind, first, total in parts)
    return tuple(sorted(contributions, key=lambda shares: -shares.total.mean))


def _share(share: float, of: float = 1.0, error: float = 0.0) -> Share:
    return Share(mean=share * of, low=max(share - Z_90 * error, 0.0) * of, high=min(share + Z_90 * error, 1.0) * of)


class Command(NamedTuple):
    """A command that measures a part of a scenario.

    Attributes
    ----------
    line
        The command line.
    left
        Remaining share of each quantity's standard deviation.
    scenario
        Scenario after the measurement, except for draws: for example on measured links.
    rests_on, at_best
        As in a :class:`~simulator.spec.figures.Measurement`.
    """

    line: str
    left: Mapping[str, float]
    scenario: Resolved
    rests_on: str
    at_best: bool = False


def _measurements(
    scenario: Resolved,
    by_chance: Estimate,
    spreads: Mapping[str, float],
    decomposition: Decomposition,
    applied: Callable[[Resolved], AppliedDiscrepancy | None],
) -> Iterator[Measurement]:
    """Commands that would narrow the interval of the throughput, with the expected interval.

    Where a command leaves the share r of a quantity's standard deviation, 1 - r^2 of its first-order share of the variance goes. The ends
    of the interval of the replications move closer, in logarithms, by the square root of the remaining variance, and the remaining model
    error widens them.
    """
    now = widened(by_chance, relative_error_of(applied(scenario)))
    if not 0.0 < _width(now) < math.inf:
        return
    for command in commands_of(scenario, spreads):
        known = {name: min(left, 1.0) for name, left in command.left.items() if name in spreads}
        left = 1.0 - math.fsum(decomposition.shares[name].first * (1.0 - share**2) for name, share in known.items())
        then = widened(_narrowed(by_chance, math.sqrt(max(left, 0.0))), relative_error_of(applied(command.scenario)))
        if (share := _width(then) / _width(now)) > _NOTHING:
            continue
        narrows = [name for name, share in known.items() if share < 1.0 and decomposition.shares[name].first > 0.0]
        narrows += ["model error"] if command.scenario is not scenario else []
        yield Measurement(
            command=command.line,
            narrows=tuple(narrows),
            throughput_samples_per_s=then,
            left=share,
            at_best=command.at_best,
            rests_on=command.rests_on,
        )


def spreads_of(quantities: Mapping[str, NDArray[np.float64]]) -> dict[str, float]:
    """Standard deviation of the logarithm of each quantity, by its first number."""
    return {name: float(np.std(numbers[:, 0], ddof=1)) for name, numbers in quantities.items()}


def _narrowed(estimate: Estimate, factor: float) -> Estimate:
    """Scale the distances of an interval's ends from its mean, in logarithms; an end at 0 stays there."""
    mean = estimate.mean
    low, high = (mean * (end / mean) ** factor if end else 0.0 for end in (estimate.low, estimate.high))
    return Estimate(mean=mean, low=low, high=high)


def _width(estimate: Estimate) -> float:
    return math.log(estimate.high / estimate.low) if estimate.low else math.inf


def commands_of(scenario: Resolved, spreads: Mapping[str, float]) -> Iterator[Command]:
    """Every command of Paceline that measures a part of this scenario.

    Parameters
    ----------
    scenario
        What is simulated.
    spreads
        Standard deviation of the logarithm of each quantity that it draws.
    """
    yield from _calibrate(scenario, spreads)
    yield from _calibrate_link(scenario, spreads)
    yield from _calibrate_server(scenario, spreads)
    yield from _refit(scenario)


def _calibrate(scenario: Resolved, spreads: Mapping[str, float]) -> Iterator[Command]:
    """Measuring a step on one device: for the first time, or again with more processes.

    There is none for a model that does not fit on one device; only training runs can be measured then.
    """
    load, line = scenario.workload, calibrate_line(scenario)
    if not line or not (COMPUTE in spreads or (load.uncertainty is not None and JITTER in spreads)):
        return
    if load.is_computed or load.moved is not None or load.uncertainty is None:
        # measured times hold what launching kernels takes
        then = scenario.replaced({"workload.counted": None}) if launching(scenario) else scenario
        yield Command(line, _from_fits((COMPUTE, JITTER), spreads), then, _fits((COMPUTE, JITTER)))
    else:
        runs = int(load.provenance["runs"]) if load.provenance.get("runs", "").isdigit() else _RUNS
        text = f"standard errors fall with the square root of the number of processes ({runs} so far)"
        yield Command(f"{line} --runs {_TIMES * runs}", dict.fromkeys((COMPUTE, JITTER), _TIMES**-0.5), scenario, text)


def calibrate_line(scenario: Resolved) -> str:
    """The command that measures a step; empty where one device holds fewer than the two batch sizes that it needs."""
    load, most = scenario.workload, largest_batch(alone_scenario(scenario))
    usual = min(scenario.batch, most or scenario.batch)
    batches = sorted({max(usual // 2, 1), usual, min(2 * usual, most or 2 * usual)})
    if most == 0 or len(batches) == 1:
        return ""
    options = f" --name {_name(load.name)} --batch {','.join(map(str, batches))}"
    options += " --layers" if load.layers and load.backend == "tensorflow" else ""
    options += f" --precision {load.precision}" if load.precision != "float32" else ""
    options += f" --keras-backend {load.backend}" if load.backend != "tensorflow" else ""
    return f"paceline calibrate MODEL.py:FUNCTION{options}"


def _calibrate_link(scenario: Resolved, spreads: Mapping[str, float]) -> Iterator[Command]:
    """Measuring the link between nodes or, on one node, between its devices; the command measures gRPC or gloo, not RDMA."""
    cluster = scenario.cluster
    between = scenario.nodes_needed > 1
    if (scenario.ranks == 1 and not scenario.servers) or (between and (cluster.inter_node.sort == "rdma" or cluster.replicas_per_node > 1)):
        return
    line = f"paceline calibrate-link{' --peer HOST:PORT' if between else ''} --name {_name(cluster.name)}"
    if cluster.basis == "measured":
        text = f"standard errors fall with the square root of the number of rounds (assumed {_ROUNDS} so far)"
        yield Command(f"{line} --rounds {_TIMES * _ROUNDS}", {LINK: _TIMES**-0.5}, scenario, text)
        return
    names = (_ETHERNET,) if between else _INSIDE
    left = {name: _measured()[BANDWIDTH].sd / spreads[name] for name in names if name in spreads}
    then = scenario.replaced({"cluster.basis": "measured"})
    text = _fits((BANDWIDTH,))
    if scenario.discrepancy is None and (regime := _regime_about(then)) is not None:
        text += f"; the error of communication over measured links is taken from {regime}"
    yield Command(line, left, then, text)


def _regime_about(scenario: Resolved) -> str | None:
    regime = regime_of(scenario)
    own = None if regime is None else regimes().get(regime)
    return None if own is None or not own.about else own.about.partition(";")[0]


def _calibrate_server(scenario: Resolved, spreads: Mapping[str, float]) -> Iterator[Command]:
    """Measuring host costs per tensor and byte, if only measured defaults are known."""
    names = [name for name in HOSTS if name in spreads]
    if names and scenario.servers and is_carried(scenario):
        line = f"paceline calibrate-server --peer HOST:PORT --name {_name(scenario.cluster.name)} --cluster {_file(scenario.cluster.name)}"
        yield Command(line, _from_fits(names, spreads), scenario, _fits(names))


def _refit(scenario: Resolved) -> Iterator[Command]:
    """Own runs at this number of workers: a refit fits compute, links and hosts, and scales model error."""
    own = discrepancy_of(scenario)
    if own is None or own.is_zero:
        return
    factor = math.sqrt(PRIOR_POINTS / (PRIOR_POINTS + OWN_RUNS))
    scaled = Discrepancy(**{name: _times(getattr(own, name), factor) for name in ("compute", "communication", "staleness")})
    load, batch = scenario.workload, float(scenario.batch)
    known = load.calibrated or WorkloadRange(batch=(batch, batch))
    known = known.replaced({"workers": (known.workers[0], max(known.workers[1], float(scenario.ranks)))})
    then = scenario.replaced({"discrepancy": scaled, "workload.calibrated": known})
    yield Command(
        "paceline validate SCENARIO.toml --measured points.csv --refit --out-scenario refitted.toml",
        dict.fromkeys((COMPUTE, LINK, _ETHERNET, _RDMA, *_INSIDE, *HOSTS), 0.0),
        then,
        f"if {counted(OWN_RUNS, 'run')} of your own, at up to this number of workers, agree with predictions: a refit then reduces the "
        f"model error to {factor:g} times, and its fitted values are known",
        at_best=True,
    )


def _times(deviation: Deviation, factor: float) -> Deviation:
    return Deviation(at=deviation.at * factor, per_doubling=deviation.per_doubling * factor)


def _from_fits(names: Sequence[str], spreads: Mapping[str, float]) -> dict[str, float]:
    """Remaining share of each standard deviation after a measurement."""
    return {name: _measured()[name].sd / spreads[name] for name in names if spreads.get(name)}


def _fits(names: Sequence[str]) -> str:
    texts = [f"{name} to {format_share(_measured()[name].sd)}" for name in names]
    fits = dict.fromkeys(_measured()[name].fits for name in names)
    return f"such measurements determined {listed(texts)} (one standard deviation; median of {listed([str(count) for count in fits])} fits)"


def _name(name: str) -> str:
    return f"my-{_file(name)}"


def _file(name: str) -> str:
    """A name for files and commands."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", name).strip("-") or "mine"
