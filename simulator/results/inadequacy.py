"""Evidence for a prediction, and errors of its kind compared with real runs: its coverage, its regime and its discrepancy.

A workload is measured on one worker, so a larger number of workers is never within the calibrated range. But predictions of that *kind* of
training may have been compared with real runs of as many workers: ``models/evidence.toml`` lists them. Its keys are the fields of
:class:`Checked`; kinds and modes are the words of strategies (``kind``, ``checked_as``).

The effect of a discrepancy on the throughput of one scenario follows from the breakdown of its steps: step times with compute scaled by e^c
and communication by e^m are approximated without another simulation (:func:`factors`). The names of regimes made here are those in
``models/discrepancy.toml``, which ``evidence.discrepancy`` writes, and in ``models/validated/*.csv``; :mod:`simulator.spec.uncertainty` has
the format. This module also detects kernels so small that launching takes longer than running them, because times computed from dimensions
are those of the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from simulator.base.catalog import own_file
from simulator.base.files import read_toml
from simulator.base.spec import Spec
from simulator.base.text import counted, format_rate, format_seconds, format_share
from simulator.base.validation_errors import validated
from simulator.resolve.measured_defaults import is_carried
from simulator.resolve.published_throughputs import same_device
from simulator.scenario import Resolved, Scenario
from simulator.spec.computed import EAGER, known_device
from simulator.spec.constants import Known, constants
from simulator.spec.figures import Bottleneck, Breakdown, Coverage, Utilisation
from simulator.spec.uncertainty import Z_90, AppliedDiscrepancy, Discrepancy, LeftOutRows, Part, Regime, RegimeText
from simulator.strategies.catalogue import Kind


class Launching(NamedTuple):
    """A scenario in which launching kernels may be the limit.

    Attributes
    ----------
    kernels
        Number in both passes of a micro-batch, on all stages together.
    kernel_s
        Mean seconds for which one kernel keeps the device busy.
    simulated_s
        Simulated seconds per kernel, including its start.
    launch_s
        Seconds of host time per kernel.
    """

    kernels: int
    kernel_s: float
    simulated_s: float
    launch_s: Known

    @property
    def slower(self) -> tuple[float, float]:
        """Factors by which compute may take longer than simulated: usually, and at the end of a 90% interval."""
        return max(self.launch_s.value / self.simulated_s, 1.0), max(self.launch_s.high / self.simulated_s, 1.0)

    @property
    def simulated(self) -> bool:
        """Return whether launching is part of what is simulated, draws of it included."""
        return self.simulated_s >= self.launch_s.value


def launching(scenario: Resolved) -> Launching | None:
    """Launching of kernels if those of a computed workload are shorter, or may be shorter than ``kernel_start_s``; else None."""
    load, known = scenario.workload, {**constants(), **scenario.practice}
    if not load.is_computed or load.computed is None or load.counted is None or not load.counted.kernels:
        return None
    if scenario.training.launch == "graph":
        return None
    micro_batch = scenario.batch / scenario.training.micro_batches
    held = scenario.strategy.held(scenario)[0][0]
    sharing = scenario.cluster.replicas_per_device  # each of which has a host process of its own
    device_s = math.fsum(each.per_sample_s for each in (load.forward, load.backward)) * micro_batch / (held.tensor * held.context) * sharing
    share = known_device(load.computed.device).launch_share
    launch = known[EAGER].plain.times(known[share].value if share else 1.0)
    start_s, most_s = (launch.value,) * 2 if load.is_eager else (known["kernel_start_s"].value, known["kernel_start_s"].high)
    kernel_s = device_s / load.counted.kernels
    return Launching(load.counted.kernels, kernel_s, max(kernel_s, start_s), launch) if 0.0 < kernel_s < most_s else None


def limit_of_host(scenario: Resolved, parts: Breakdown, limit: Bottleneck) -> Bottleneck:
    """The host as the limit, if launching takes longer than every other part of a step."""
    launched = launching(scenario)
    if launched is None or launched.slower[0] * parts.compute < max(parts.input, parts.exposed_communication, parts.apply):
        return limit
    share, launch = parts.compute / parts.total, format_seconds(launched.launch_s.value)
    return Bottleneck(
        name="host",
        share=share,
        detail="launching kernels on the host",
        text=f"The host slows compute ({format_share(share)} of a step): launching takes about {launch} for each of {launched.kernels:,} "
        f"kernels, which run for {format_seconds(launched.kernel_s)} each.",
        remedy="CUDA graphs, larger micro-batches or splitting tensors over fewer devices would help.",
    )


ALL_REDUCE, SYNCHRONOUS, ASYNCHRONOUS = "all-reduce", "synchronous servers", "asynchronous servers"
CUT = "cut models"
"""Strategies that split a model: stages, split tensors, experts, sharded state."""
MEASURED, CONTENDED, CATALOGUE, DIMENSIONS = "measured links", "measured, contended", "catalogue", "from dimensions"
ONE_NODE, BETWEEN, GRPC, HOSTS = "inside one node", "between nodes", "over gRPC", "where hosts compute"
"""Links of the catalogue, by the properties with which errors vary; for split models, all are :data:`CATALOGUE`, or :data:`DIMENSIONS`
where no step was measured either."""
KINDS_OF_LINKS: Mapping[str, tuple[str, ...]] = {
    ALL_REDUCE: (MEASURED, CONTENDED, ONE_NODE, BETWEEN),
    SYNCHRONOUS: (MEASURED, CONTENDED, ONE_NODE, BETWEEN, GRPC, HOSTS),
    ASYNCHRONOUS: (MEASURED, CONTENDED, ONE_NODE, BETWEEN, GRPC, HOSTS),
    CUT: (MEASURED, CONTENDED, CATALOGUE, DIMENSIONS),
}
"""Kinds of links for each kind of training; each pair is a regime."""


class _OfRegime(Discrepancy):
    name: RegimeText


class Bias(Spec):
    """Runs that were consistently slower, or faster, than predicted."""

    regime: RegimeText
    strategy: str = Field(default="", description="kind of strategy of the runs, by its own software; left out: any")
    device: str = Field(default="", description="device of the runs; left out: all runs")
    more_than: int = Field(default=0, ge=0, description="replicas that all of the runs exceeded")
    predicted_over_measured: float = Field(gt=0, description="ratio of throughput, geometric mean over series")
    one_in_ten: float = Field(gt=0, description="ratio that one run in ten exceeded; where predictions were too slow, fell below")
    settings: int = Field(ge=1)
    sources: tuple[str, ...]


class _Regimes(Spec):
    schema_version: int = 1
    regimes: tuple[_OfRegime, ...]
    biases: tuple[Bias, ...] = ()


@lru_cache(maxsize=1)
def _known() -> _Regimes:
    path = own_file("discrepancy.toml")
    return validated(_Regimes, read_toml(path), str(path))


@lru_cache(maxsize=1)
def regimes() -> Mapping[Regime, Discrepancy]:
    """Discrepancy of predictions of every regime."""
    return {each.name: each for each in _known().regimes}


def bias_of(scenario: Scenario) -> Bias | None:
    """The bias of predictions of its regime on its device; None if there is none, or if it was compared with own runs."""
    regime = regime_of(scenario)
    if regime is None or scenario.discrepancy is not None:
        return None
    device, strategy = scenario.cluster.device or scenario.workload.device, scenario.strategy
    # kinds of strategy stand for others' software as well, and rings of processors are another matter
    own = strategy.kind if scenario.cluster.device and "tensorflow" in strategy.software else ""
    biases = (each for each in _known().biases if each.regime == regime and scenario.ranks > each.more_than)
    biases = (each for each in biases if each.strategy in ("", own))
    return next((each for each in biases if not each.device or (device and same_device(each.device, device))), None)


def regime_of(scenario: Scenario) -> Regime | None:
    """The kind of training and of its links; None for a single replica.

    Kinds of links: of the catalogue, by their ends and the software that carries tensors; measured ones; and measured ones with contention
    by transport or shared cores. A kind without compared runs takes the errors of the nearest kind with runs (:func:`is_borrowed`).
    """
    strategy = scenario.strategy
    if scenario.ranks == 1 and not scenario.servers:
        return None
    if scenario.servers:
        kind = ASYNCHRONOUS if strategy.pace.asynchronous else SYNCHRONOUS
    elif strategy.cuts_batches and strategy.simpler is None:
        kind = CUT
    else:
        kind = ALL_REDUCE
    cluster = scenario.cluster
    if cluster.basis != "measured":
        return Regime(kind, _known_by_sort(scenario, kind))
    contended = cluster.transport.discipline != "fair" or cluster.shared_cores is not None
    return Regime(kind, CONTENDED if contended else MEASURED)


def _known_by_sort(scenario: Scenario, kind: str) -> str:
    """Kind of unmeasured links; servers next to workers that compute on the hosts' CPUs are a separate kind."""
    if kind == CUT:
        return DIMENSIONS if scenario.workload.is_computed else CATALOGUE
    if scenario.servers and scenario.cluster.device_is_host:
        return HOSTS
    if is_carried(scenario):
        return GRPC
    return ONE_NODE if scenario.nodes_needed == 1 else BETWEEN


def is_borrowed(scenario: Scenario) -> bool:
    """Return whether its kind was never compared with runs, so that its regime is taken from the nearest kind.

    Workers that exchange only with some others use the same links as an all-reduce.
    """
    strategy = scenario.strategy
    return scenario.ranks > 1 and not scenario.servers and not strategy.cuts_batches and strategy.reduction is None


def discrepancy_of(scenario: Scenario) -> Discrepancy | None:
    """Discrepancy of predictions of this scenario: its own, or that of its regime; None if there is none.

    Measuring a link does not improve the error of compute, which is the same as with links of the catalogue.
    """
    if scenario.discrepancy is not None:
        return scenario.discrepancy
    regime = regime_of(scenario)
    known = None if regime is None else regimes().get(regime)
    if known is None or regime is None or regime.links not in (MEASURED, CONTENDED):
        return known
    by_sort = regimes()[Regime(regime.kind, _known_by_sort(scenario, regime.kind))]
    compute = max(known.compute, by_sort.compute, key=lambda each: each(1.0))
    return known.replaced({"compute": compute})


def reach_of(scenario: Scenario) -> float:
    """Doublings of replicas beyond the calibrated number: one replica, or the workers of a refit's runs."""
    known = scenario.workload.calibrated
    most = max(known.workers[1], 1.0) if known is not None else 1.0
    return max(math.log2(scenario.ranks / most), 0.0)


def factors(scenario: Scenario, parts: Breakdown, hidden_s: float, use: Utilisation) -> Callable[[float, float], float]:
    """Return a function that gives the relative time of a step with compute and communication scaled by e^compute and e^communication.

    Communication that compute hides comes out as far as the links are what is waited for: of
    x s exposed and h s hidden, x e^m + x / (x + h) h (e^m - e^c) s. Where little is exposed
    that is the last message, which compute does not touch; where much is, the links were busy
    all along, and what compute hides is what it lasts. Compute hides no more than it lasts: a
    step takes at least what it sends, and before it the forward pass where gradients are sent.
    For a kind that was never compared with runs, hiding was not compared either, so all hidden communication counts.

    Workers that do not wait for each other queue for the busiest link or server: of a step of S s it needs B s for all of them, which
    faster compute does not reduce, and a single worker would need A s. A step is taken to be (A^p + B^p)^(1/p), with the p for which that
    is S, so that compute counts for the less the nearer B is to S.

    Parameters
    ----------
    parts, hidden_s, use
        Of the result as it is.

    Returns
    -------
    callable
        Of the logarithms of the factors of compute and communication.
    """
    step_s = parts.total
    if scenario.strategy.pace.asynchronous and scenario.ranks > 1:
        # what a worker by itself would need, and the busiest link, server or the coordinator for all workers
        alone_s = min(scenario.lone_step_s, step_s)
        dispatch_s = scenario.ranks * scenario.strategy.pace.dispatch_s
        busy_s = min(max(use.busiest_link * step_s, use.busiest_server * step_s, dispatch_s), step_s)
        power = _power(alone_s / step_s, busy_s / step_s)
        computing_s = min(parts.input + parts.compute, alone_s)

        def queueing(compute: float, communication: float) -> float:
            slower, longer = math.exp(compute), math.exp(communication)
            alone, busy = (computing_s * slower + (alone_s - computing_s) * longer) / step_s, busy_s * longer / step_s
            return float(max(alone, busy) * (1.0 + (min(alone, busy) / max(alone, busy)) ** power) ** (1.0 / power))

        return queueing
    shown_s, sent_s = parts.exposed_communication, parts.exposed_communication + hidden_s
    out_s = hidden_s if is_borrowed(scenario) else hidden_s * shown_s / sent_s if sent_s else 0.0
    # the forward pass is over before the first gradient can be sent, where replicas reduce
    forward_s, backward_s = (cost(scenario.batch) for cost in (scenario.workload.forward, scenario.workload.backward))
    forward = forward_s / (forward_s + backward_s) if forward_s and scenario.strategy.reduction is not None else 0.0
    before_s = max(min(forward * parts.compute, step_s - sent_s), 0.0)

    def waiting(compute: float, communication: float) -> float:
        slower, longer = math.exp(compute), math.exp(communication)
        exposed_s = max(shown_s * longer + out_s * (longer - slower), 0.0)
        apply_s = parts.apply * (longer if scenario.servers else slower)
        after_s = parts.input + (parts.compute + parts.waiting) * slower + exposed_s + apply_s
        return max(after_s, before_s * slower + sent_s * longer) / step_s

    return waiting


@lru_cache(maxsize=64)
def _power(share: float, rest: float) -> float:
    """The p for which one^p + other^p is 1; both lie between 0 and 1."""
    low, high = _LEAST_POWER, _MOST_POWER
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if share**middle + rest**middle > 1.0 else (low, middle)
    return high


_LEAST_POWER, _MOST_POWER = 0.1, 500.0


_STEP = 0.05
"""Steps in the logarithms of factors, for derivatives of a step's time."""


SUPERLINEAR = 1.03
"""Multiple of linear scaling at which model error ends: published runs are faster only where they measured the single device badly, or
where a share of the model fits into a memory that the whole does not."""


def applied_discrepancy(
    scenario: Resolved,
    parts: Breakdown,
    hidden_s: float,
    use: Utilisation,
    simulated: Resolved | None = None,
    efficiency: float | None = None,
) -> AppliedDiscrepancy | None:
    """Effect of the discrepancy on the throughput of a scenario with these steps; None if there is none.

    Parameters
    ----------
    parts, hidden_s, use
        Of the result as it is.
    simulated
        What was put in the place of the scenario, with rates as they are achieved; left out: itself.
    efficiency
        Throughput divided by that of linear scaling, beyond which model error does not extend the interval, other than by the error of
        the single replica itself; left out: there is no limit.
    """
    regime, own, launched = regime_of(scenario), discrepancy_of(scenario), launching(scenario)
    if launched is not None and scenario.discrepancy is None:
        runs = _evidence().launching if launched.simulated and regime is not None and regime.kind == CUT else None
        regime, own = regime or Regime(), (own or Discrepancy()).replaced({"checked": runs})
    if regime is None or own is None or (scenario.discrepancy is not None and own.is_zero):
        return None
    reach = reach_of(scenario)
    of_step = factors(simulated or scenario, parts, hidden_s, use)
    of_compute, of_communication = own.compute(reach), own.communication(reach)
    most = math.inf if efficiency is None else math.hypot(max(math.log(SUPERLINEAR / efficiency), 0.0), Z_90 * own.compute.at)

    def longer(compute: float, communication: float) -> float:
        return math.log(of_step(compute, communication))

    def part(name: str, compute: float, communication: float) -> Part:
        far = Z_90 * compute, Z_90 * communication
        return Part(
            name=name,
            slower=longer(compute, communication),
            faster=min(-longer(-compute, -communication), most / Z_90),
            ends=(longer(*far), min(-longer(*(-end for end in far)), most)),
        )

    parts_of = [
        part("compute", of_compute, 0.0),
        part(f"communication: {regime} on {scenario.cluster.name}", 0.0, of_communication),
    ]
    timed, batch = (simulated or scenario).workload.told_batch, scenario.batch / scenario.training.micro_batches
    if timed is not None and batch < timed:  # passes that are told to be in proportion may take longer with it, and not less
        known = scenario.practice.get("fixed_part", constants()["fixed_part"])
        usual, most = (longer(math.log1p(share * (timed / batch - 1.0)), 0.0) for share in (known.value, known.high))
        parts_of.append(Part(name="compute of small batches", slower=usual, faster=0.0, ends=(most, 0.0)))
    bias = bias_of(scenario)
    if bias is not None and bias.strategy:  # which software of other kinds does not have
        end = math.log(bias.one_in_ten)
        parts_of.append(Part(name=f"collectives of {bias.strategy}", slower=end / Z_90, faster=0.0, ends=(end, 0.0)))
    if launched is not None and not launched.simulated:  # the host may take longer to launch kernels, and not less
        most = longer(math.log(launched.slower[1]), 0.0)
        parts_of.append(Part(name="launching of kernels", slower=most / Z_90, faster=0.0, ends=(most, 0.0)))
    compute, communication = (
        math.log(of_step(*up) / of_step(*down)) / (2 * _STEP) for up, down in (((_STEP, 0.0), (-_STEP, 0.0)), ((0.0, _STEP), (0.0, -_STEP)))
    )
    return AppliedDiscrepancy(
        regime=regime,
        borrowed=scenario.discrepancy is None and is_borrowed(scenario),
        reach=reach,
        compute=compute,
        communication=communication,
        parts=tuple(parts_of),
        staleness=own.staleness(reach),
        checked=own.checked,
        efficiency=efficiency,
        most=most if math.isfinite(most) else None,
    )


Counts = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]


class Checked(Spec):
    """One kind of training that was compared with real runs."""

    what: str
    kind: Kind
    modes: tuple[str, ...] = Field(description="modes of parameter servers, algorithms of all-reduce")
    sharing: Literal["fair", "weighted"] = Field(description="how connections shared the links (cluster.transport.discipline)")
    by_layer: bool = Field(description="whether gradients were sent during the backward pass")
    workers: Counts = Field(description="fewest and most in the runs")
    servers: Counts = (0, 0)
    bandwidth_bytes_per_s: tuple[float, float] = Field(description="slowest and fastest link between nodes in the runs")
    median_error: float = Field(ge=0, description="median absolute error of throughput, as a share")
    worst_error: float = Field(ge=0, description="largest")
    group: str = Field(description="group of evidence/tables/scores.csv with these errors")


class _Evidence(Spec):
    checked: tuple[Checked, ...]
    launching: LeftOutRows = Field(description="steps that launching kernels decides: runs, and the share inside the interval")


@lru_cache(maxsize=1)
def _evidence() -> _Evidence:
    path = own_file("evidence.toml")
    return validated(_Evidence, read_toml(path), str(path))


def checked_kinds() -> tuple[Checked, ...]:
    """Every kind of training that was compared with real runs."""
    return _evidence().checked


_Graded = tuple[Literal["checked", "interpolation", "uncovered"], str]
"""A grade and its basis."""


def coverage(scenario: Resolved) -> tuple[Coverage, ...]:
    """Return the evidence for a prediction of this resolved scenario, aspect by aspect."""
    grade, text = _of_the_batch(scenario)
    aspects = [Coverage(about="batch", grade=grade, text=text)]
    aspects += [Coverage(about="device", grade="uncovered", text=text) for text in _of_the_device(scenario)]
    if (graded := _of_the_workers(scenario)) is not None:
        aspects.append(Coverage(about="workers", grade=graded[0], text=graded[1]))
    return tuple(aspects)


def _of_the_batch(scenario: Resolved) -> _Graded:
    load = scenario.workload
    batch = scenario.batch // (load.passes.micro_batches if load.passes is not None else 1)  # that a pass takes at a time
    if load.is_computed:
        return "uncovered", "no step was measured: times are computed from the model's dimensions"
    if load.calibrated is None:
        return "uncovered", "the workload does not record the batches at which its steps were measured"
    low, high = load.calibrated.batch
    if load.fit is not None and batch in {point.batch for point in load.fit.points}:
        return "checked", f"steps of batch {batch:,} were measured"
    if low <= batch <= high:
        return "interpolation", f"batch {batch:,} lies within the measured range, {low:g} to {high:g}"
    return "uncovered", f"batch {batch:,} lies outside the measured range, {low:g} to {high:g}"


def _of_the_device(scenario: Resolved) -> Iterator[str]:
    load = scenario.workload
    if load.moved is not None and load.moved_by_factor:
        yield f"no step was measured on {load.moved.to_device}: times are scaled from {load.moved.from_device} by a factor"
    elif load.is_computed:
        yield f"no step was measured on {load.device}: times are computed from its peak and bandwidth (docs/numbers.md)"
    if load.recast is not None:
        yield f"no step was measured in {load.precision}: times are scaled from {load.recast.from_precision} by a factor"


def _of_the_workers(scenario: Resolved) -> _Graded | None:
    replicas, servers, known = scenario.ranks, scenario.servers, scenario.workload.calibrated
    if replicas == 1 and not servers:
        return None
    if known is not None and _within(replicas, known.workers) and _within(servers, known.servers):
        return "interpolation", f"the workload was measured with {known.workers[0]:g} to {known.workers[1]:g} workers"
    alike = _checked_like(scenario)
    if alike is None:
        return "uncovered", _by_the_regime(scenario)
    most, fewest = alike.workers[1], alike.workers[0]
    errors = f"median error {format_share(alike.median_error)}, worst {format_share(alike.worst_error)}"
    which = f"({alike.what}; {errors}: docs/fidelity.md)"
    if _within(replicas, alike.workers) and _within(servers, alike.servers):
        return _of_the_link(scenario, alike, f"predictions were validated on real runs of {fewest} to {most} workers {which}")
    few = servers <= alike.servers[1]
    here = counted(replicas, "worker") + ("" if few else f" and {counted(servers, 'server')}")
    there = f"{fewest} to {most} workers" + ("" if few else f" and at most {counted(alike.servers[1], 'server')}")
    return "uncovered", f"{here}: predictions were validated on real runs of {there} {which}"


def validated_workers(scenario: Resolved) -> tuple[int, int] | None:
    """Fewest and most workers of real runs of this kind compared with predictions; None if there are none."""
    kind = _checked_like(scenario)
    return None if kind is None else kind.workers


def _by_the_regime(scenario: Resolved) -> str:
    """Sentence on the basis of its intervals, if no listed kind has every feature of a scenario."""
    regime = regime_of(scenario)
    known = None if regime is None or is_borrowed(scenario) else regimes().get(regime)
    if known is None or known.checked is None:
        return "no prediction of this kind was compared with a run; the interval is taken from other kinds"
    of_regime = known.about.partition(";")[0]
    return (
        f"predictions were compared with runs of {regime} ({of_regime}), but none of them had every feature of this scenario "
        "(docs/fidelity.md)"
    )


def _of_the_link(scenario: Resolved, alike: Checked, runs: str) -> _Graded:
    """Evidence on links, given runs with as many workers: runs with similar links, or links that matter little."""
    rate = scenario.cluster.link_of(0).bandwidth_bytes_per_s
    if _within(rate, alike.bandwidth_bytes_per_s):
        return "checked", runs
    low, high = alike.bandwidth_bytes_per_s
    links = f"links have {format_rate(rate)}; {runs}, with links of {format_rate(low)} to {format_rate(high)}"
    alone_s = scenario.workload.compute_s(scenario.batch) + scenario.workload.apply_s
    share = 1.0 - alone_s / scenario.lone_step_s
    if rate > high and share < _LITTLE:
        said = f"{links}; this matters little, because messages take only {format_share(share)} of a step without contention"
        return "interpolation", said
    return "uncovered", links


_LITTLE = 0.1
"""Share of a step without contention that messages may take while links still matter little: no link is then the limit."""


def _within(value: float, limits: tuple[float, float]) -> bool:
    return limits[0] <= value <= limits[1]


def _checked_like(scenario: Resolved) -> Checked | None:
    """The kind of real training that is simulated the same way; None if some feature was never run."""
    strategy, cluster, transport = scenario.strategy, scenario.cluster, scenario.cluster.transport
    never = (
        cluster.fabric is not None
        or cluster.host_link is not None
        or not cluster.even
        or (cluster.background is not None and not cluster.background.nothing)
        or cluster.replicas_per_node > 1
        or cluster.overlap_slowdown > 0
        or cluster.shared_cores is not None
        or transport.flow_cap_bytes_per_s is not None
        or transport.incast_loss > 0
        or transport.cpu_per_byte_s > 0
    )
    way = None if never else strategy.checked_as(scenario)
    if way is None:
        return None
    sought = strategy.kind, way[1], transport.discipline
    alike = (kind for kind in checked_kinds() if (kind.kind, kind.by_layer, kind.sharing) == sought and way[0] in kind.modes)
    return next(alike, None)
