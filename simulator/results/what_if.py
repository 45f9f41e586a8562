"""Changes one part of a scenario, and finds which change would bring most.

Mind which way a factor goes. It multiplies speed (2 is faster) for links and ``with_communication``, but time (2 is slower) for
``with_compute``, ``with_service``, ``with_latency`` and ``with_input_times``; for batches it multiplies how many there are. Keys are listed
here as text (``forward.base_s``, ``transport.cpu_per_message_s``); draws of a fit are scaled by the same names. A new key that is a time or
a rate must be added here; ``COMPUTE`` of ``simulator.resolve.device_transfer`` lists device times too.

The largest part of a step is its limit only if nothing else takes almost as long at the same time. If compute hides communication of equal
length, a device twice as fast soon waits for the links, and devices that compute for 91% of a step may bring only a tenth. The limit is the
part that changes the throughput when it is twice as fast. This is simulated with the same draws, once per part, if two parts are long
enough that halving one leaves the other (:func:`contested`); and with two parts twice as fast, if three may limit and none brings much
alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, Literal, NamedTuple

from simulator.base.errors import PacelineError
from simulator.base.spec import Spec
from simulator.base.validation_errors import validated
from simulator.resolve.device_transfer import COMPUTE
from simulator.resolve.measured_defaults import faster_hosts
from simulator.resolve.resolve import resolve
from simulator.scenario import Resolved, Scenario
from simulator.spec.cluster import Cluster, ClusterLink, Link
from simulator.spec.distributions import Constant
from simulator.spec.figures import Breakdown, Utilisation
from simulator.spec.uncertainty import with_draws_times, with_times
from simulator.strategies.pipelines import batch_s
from simulator.strategies.strategy import Strategy


def changed(scenario: Scenario, where: str = "what if", **parts: Spec | Mapping[str, Any]) -> Scenario:
    """The scenario with other sections, validated again; a workload measured with servers keeps the scenario of its measurement.

    Raises
    ------
    ScenarioError
        They break a rule together.
    """
    if scenario.workload.measured_with == "servers" and scenario.measured_in is None:
        parts["measured_in"] = scenario.model_dump(mode="json", context={"filled": True})  # whose pull and push the step held
    return validated(Scenario, {**scenario.sections, **parts}, where)


def with_network(scenario: Scenario, factor: float) -> Scenario:
    """Every link between nodes with ``factor`` times the bandwidth; latency and the limit of one connection stay."""
    return changed(scenario, cluster=_with_links(scenario.cluster, "nodes", bandwidth=factor))


def with_latency(scenario: Scenario, factor: float) -> Scenario:
    """Every latency between nodes times a factor."""
    cluster = _with_links(scenario.cluster, "nodes", latency=factor)
    return changed(scenario, cluster=cluster if cluster.fabric is None else with_times(cluster, {"fabric.latency_s": factor}))


def with_input(scenario: Scenario, **keys: int) -> Scenario:
    """Other values for keys of the input pipeline."""
    assert scenario.input is not None, "there is a pipeline"
    return changed(scenario, input=scenario.input.replaced(keys))


def with_inner_links(scenario: Scenario, factor: float) -> Scenario:
    """Links between the devices of a node with ``factor`` times the bandwidth."""
    return changed(scenario, cluster=with_times(scenario.cluster, {"intra_node.bandwidth_bytes_per_s": factor}))


def with_links(scenario: Scenario, factor: float) -> Scenario:
    """Every link, between and inside nodes, with ``factor`` times the bandwidth; the limit of one connection scales too."""
    cluster = scenario.cluster
    for joins in _JOINED:
        cluster = _with_links(cluster, joins, bandwidth=factor)
    return changed(scenario, cluster=with_times(cluster, {"transport.flow_cap_bytes_per_s": factor}))


def with_latencies(scenario: Scenario, factor: float) -> Scenario:
    """Every latency, between nodes and inside them, times a factor."""
    cluster = with_latency(scenario, factor).cluster
    for joins in _JOINED[1:]:
        cluster = _with_links(cluster, joins, latency=factor)
    return changed(scenario, cluster=cluster)


_JOINED = ("nodes", "devices", "host", "replicas")


def with_communication(scenario: Scenario, factor: float) -> Scenario:
    """All communication ``factor`` times as fast: every link, every latency, and host work on messages."""
    return with_hosts(with_latencies(with_links(scenario, factor), 1.0 / factor), factor)


def with_hosts(scenario: Scenario, factor: float) -> Scenario:
    """Host work on messages ``factor`` times as fast; servers and their work on gradients stay."""
    costs = ("transport.cpu_per_message_s", "transport.cpu_per_byte_s", "transport.copy_per_byte_s")
    cluster = with_times(scenario.cluster, dict.fromkeys(costs, 1.0 / factor))
    return changed(scenario, cluster=cluster, practice=faster_hosts(scenario, factor))


def with_service(scenario: Scenario, factor: float) -> Scenario:
    """Parameter servers with ``factor`` times the time per gradient."""
    return changed(scenario, workload=with_times(scenario.workload, {"server.base_s": factor, "server.per_byte_s": factor}))


def with_input_times(scenario: Scenario, factor: float) -> Scenario:
    """Input with ``factor`` times the preparation time and bytes to read."""
    parts: dict[str, Any] = {"workload": with_times(scenario.workload, {"input.base_s": factor, "input.per_sample_s": factor})}
    if scenario.input is not None:
        works = {name: work.times(factor) for name in ("work", "cached") if (work := getattr(scenario.input, name)) is not None}
        parts["input"] = scenario.input.replaced(works)
    return changed(scenario, **parts)


def with_host_link(scenario: Scenario, factor: float) -> Scenario:
    """Links between a device and its host with ``factor`` times the bandwidth."""
    return changed(scenario, cluster=with_times(scenario.cluster, {"host_link.bandwidth_bytes_per_s": factor}))


def with_compute(scenario: Scenario, factor: float) -> Scenario:
    """Devices with ``factor`` times the time of forward pass, backward pass and update; hosts and servers stay."""
    scenario = resolve(scenario)  # whose times they are that change: those on the device
    return changed(scenario, workload=with_times(scenario.workload, dict.fromkeys(COMPUTE, factor)))


def with_even_workers(scenario: Scenario) -> Scenario:
    """Workers of equal speed: without jitter, slow nodes and slowdowns; classes of nodes stay."""
    load = {"jitter": Constant(), "jitter_draws": (), "jitter_least": None, "run_to_run_cv": 0.0, "run_to_run_shared": None}
    kinds = tuple(kind.replaced({"slowdown": None}) for kind in scenario.cluster.node_classes)
    cluster = {"slow_nodes": None, "slowdown": None, "node_speed": (), "node_classes": kinds}
    return changed(scenario, workload=scenario.workload.replaced(load), cluster=scenario.cluster.replaced(cluster))


def with_batch(scenario: Scenario, factor: int) -> Scenario:
    """The batch times a factor: per replica or global, as given in the scenario."""
    load = scenario.workload
    if load.global_batch is None:
        return changed(scenario, workload=load.replaced({"batch_per_replica": scenario.batch * factor}))
    return changed(scenario, workload=load.timed_at(load.global_batch).replaced({"global_batch": load.global_batch * factor}))


def with_micro_batches(scenario: Scenario, factor: int) -> Scenario:
    """The number of micro-batches per step times a factor."""
    training = scenario.training
    return changed(scenario, training=training.replaced({"micro_batches": training.micro_batches * factor}))


def with_one_more_server(scenario: Scenario) -> Scenario:
    """One more parameter server with the same number of workers."""
    assert scenario.servers, "the strategy must have servers"
    return with_strategy(scenario, scenario.strategy.with_count(scenario.workers).with_servers(scenario.servers + 1))


def with_strategy(scenario: Scenario, strategy: Strategy) -> Scenario:
    """Another strategy; a cluster of fixed size grows by the nodes that it needs in addition."""
    cluster = scenario.cluster
    return changed(scenario, strategy=strategy, cluster=cluster.with_room_for(strategy.layout(cluster).nodes))


def _with_links(cluster: Cluster, joins: str, bandwidth: float = 1.0, latency: float = 1.0) -> Cluster:
    """All links that join the same things, with bandwidth and latency times a factor each, including their draws."""

    def faster(link: ClusterLink) -> Link:
        if link.joins != joins:
            return link.link
        figures = {"bandwidth_bytes_per_s": link.link.bandwidth_bytes_per_s * bandwidth, "latency_s": link.link.latency_s * latency}
        return link.link.replaced(figures)

    factors = {
        f"{link.key}.{figure}": factor
        for link in cluster.links
        if link.joins == joins
        for figure, factor in (("bandwidth_bytes_per_s", bandwidth), ("latency_s", latency))
    }
    return with_draws_times(cluster.with_links(faster), factors)


Part = Literal["compute", "communication", "server", "input", "waiting"]
Component = Literal["links", "latency", "hosts"]
"""Components of communication."""


class Gains(NamedTuple):
    """Relative change of throughput, mean over replications; negative if a change does harm, such as earlier messages that collide.

    Attributes
    ----------
    alone
        With one part twice as fast, or without the causes of waiting for each other.
    together
        With two of them, if several parts could limit the best gain; else empty.
    within
        With one component of communication, if communication may be the limit; else empty.
    """

    alone: Mapping[Part, float]
    together: Mapping[tuple[Part, Part], float] = {}
    within: Mapping[Component, float] = {}


class _Change(NamedTuple):
    """One part made better."""

    words: str
    made: Callable[[Scenario], Scenario]


CHANGES: Mapping[Part, _Change] = {
    "compute": _Change("a device twice as fast", lambda scenario: with_compute(scenario, 0.5)),
    "communication": _Change("communication twice as fast", lambda scenario: with_communication(scenario, 2.0)),
    "server": _Change("servers twice as fast", lambda scenario: with_service(scenario, 0.5)),
    "input": _Change("input twice as fast", lambda scenario: with_input_times(scenario, 0.5)),
    "waiting": _Change("workers of even speed", with_even_workers),
}
"""The change tried for each part."""
WITHIN: Mapping[Component, _Change] = {
    "links": _Change("links twice as fast", lambda scenario: with_links(scenario, 2.0)),
    "latency": _Change("half the latency", lambda scenario: with_latencies(scenario, 0.5)),
    "hosts": _Change("half the host CPU per message", lambda scenario: with_hosts(scenario, 2.0)),
}
"""The same for components of communication, which together are the change of communication."""

_AT_MOST = 1.0
"""A part that is twice as fast at most doubles the throughput; a short trial may show more by chance."""
_AS_LONG = 0.3
"""A part that lasts half as long as the longest is what is waited for once that one is twice as fast; waiting in a queue may
go altogether if what serves it is twice as fast, so that less than half counts too."""
_MUCH = 0.5
"""Share of the gain without overlap that makes a part the only limit."""
CLOSE = 1.25
"""A part whose gain is this many times smaller than the best may also be a limit."""
_NOISE = 0.05
"""A smaller gain may be the largest by chance."""
_FEWEST_STEPS, _FEWEST_APART = 10, 20
"""Of a replication in which a change is tried; the second where workers do not wait for each other and drift apart."""
_TRIES_ARE_ONE_OF = 20
"""A change is tried for this part of all steps of all replications, so that trying four parts, and what communication consists of, costs a
third more."""
_MOST_RANKS = 10_000
"""Above this another replication takes too long, and only shares are used."""


def contested(scenario: Resolved, parts: Breakdown, hidden_s: float, use: Utilisation) -> list[Part]:
    """All parts of a step if several may be its limit; empty if only one may be.

    How long a part lasts counts what others hide of it: of communication what is exposed and
    what is hidden, and the busiest link of workers that do not wait for each other.

    Parameters
    ----------
    scenario
        What was simulated, resolved.
    parts, hidden_s, use
        Parts of its mean step.
    """
    if scenario.ranks > _MOST_RANKS:
        return []
    step_s = parts.total
    sent_s = max(parts.exposed_communication + hidden_s, use.busiest_link * step_s)
    served_s = max(use.busiest_server * step_s, parts.apply if scenario.servers else 0.0)
    # waiting for each other may be for who waits for input
    read_s = max(batch_s(scenario), parts.input + parts.waiting if parts.input else 0.0)
    lasts: dict[Part, float] = {
        "compute": parts.compute + (0.0 if scenario.servers else parts.apply),
        "communication": sent_s,
        "server": served_s,
        "input": read_s,
    }
    if not parts.input and not scenario.strategy.pace.coordinated and scenario.strategy.model_parallel(scenario).bubble is None:
        lasts["waiting"] = parts.waiting
    longest = max(lasts.values())
    several = sum(seconds >= _AS_LONG * longest for seconds in lasts.values()) > 1
    return [part for part, seconds in lasts.items() if seconds] if several else []


def tried(scenario: Resolved) -> tuple[int, Resolved]:
    """Number of replications in which changes are tried, and the scenario with the steps of each.

    In as many as there are steps for, since what limits one draw of what is uncertain need not limit others: many short runs come
    nearer to what whole runs show than a few long ones.
    """
    run = scenario.run
    all_of_each = max(run.total_steps(scenario.ranks) // scenario.ranks, 1)
    fewest = min(_FEWEST_STEPS if scenario.strategy.pace.together else _FEWEST_APART, all_of_each)
    if run.start_spread_s is not None:  # starts that are told apart may decide the whole run
        fewest = all_of_each
    steps = max(_FEWEST_STEPS, fewest, all_of_each * run.replications // _TRIES_ARE_ONE_OF)
    count = min(run.replications, steps // fewest)
    steps //= count
    return count, scenario.shortened(steps, steps // 2) if steps < all_of_each else scenario


def typical(scenario: Resolved, rates: Sequence[float]) -> list[int]:
    """Numbers of the replications in which changes are tried: evenly from slow to fast by throughput."""
    count, _ = tried(scenario)
    ordered = sorted(range(len(rates)), key=lambda number: rates[number])
    return [ordered[(2 * place + 1) * len(ordered) // (2 * count)] for place in range(count)]


def gains_of(
    scenario: Resolved, parts: list[Part], waited: float, replications: Sequence[int], simulated: Callable[[Resolved, int], float]
) -> Gains | None:
    """Gain of each part if twice as fast, in a shorter run with the same draws.

    Parameters
    ----------
    scenario
        What was simulated, resolved.
    parts
        Parts to try.
    waited
        Share of a step that workers wait for the slowest: equal workers save at most this, and the rest is the effect of slow draws.
    replications
        Numbers of those to try them in, such as :func:`typical` ones.
    simulated
        The throughput of a replication of a scenario, resolved; with the same draws whatever the scenario.

    Returns
    -------
    Gains or None
        None if one of the changes breaks a rule or cannot be simulated.
    """
    _, scenario = tried(scenario)
    rates = [simulated(scenario, number) for number in replications]

    def gain(*changes: _Change) -> float:
        changing: Scenario = scenario
        for change in changes:
            changing = change.made(changing)
        resolved = Resolved(changing)  # changes leave nothing open
        gained = statistics.fmean(simulated(resolved, number) / rate for number, rate in zip(replications, rates, strict=True)) - 1.0
        return gained if CHANGES["waiting"] in changes else min(gained, _AT_MOST)

    try:
        alone = {part: gain(CHANGES[part]) for part in parts}
        if "waiting" in alone:
            alone["waiting"] = min(alone["waiting"], waited / (1.0 - waited))
        together = {pair: gain(*(CHANGES[part] for part in pair)) for pair in _in_question(alone)}
        communication = alone.get("communication", 0.0)
        asked = communication >= _NOISE and (bool(together) or communication >= max(alone.values()) / CLOSE)
        within = {component: gain(change) for component, change in WITHIN.items() if asked and _differs(scenario, change)}
        return Gains(alone, together, within)
    except PacelineError:
        return None


def _differs(scenario: Scenario, change: _Change) -> bool:
    """Return whether a change of communication affects the scenario."""
    other = change.made(scenario)
    return other.cluster != scenario.cluster or other.practice != scenario.practice


def _in_question(alone: Mapping[Part, float]) -> Iterable[tuple[Part, Part]]:
    """Pairs of parts that may limit together."""
    first, *others = sorted(alone, key=lambda part: -alone[part])
    if len(others) < 2 or alone[first] >= _MUCH:
        return ()
    return [(first, other) for other in others] if alone[first] >= _NOISE else combinations(alone, 2)
