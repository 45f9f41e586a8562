"""Makes a copy of a scenario with one part changed, and tells what the next change would bring.

Mind which way a factor goes. It multiplies speed (2 is faster) for links and ``with_communication``, but time (2 is slower) for
``with_compute``, ``with_service``, ``with_latency`` and ``with_input_times``; for batches it multiplies how many there are.
Keys stand here as text (``forward.base_s``, ``transport.cpu_per_message_s``); draws that a fit left are scaled by the same names. A
new key that is a time or a rate must be added here, or changes miss it; ``COMPUTE`` of ``simulator.resolve.device_transfer`` lists
device times too.

A part that takes most of a step is its limit only as far as nothing else takes nearly as long at the same time. Where compute
hides communication that lasts as long, twice the device waits for the links at once, and devices that compute for 91% of a step
bring a tenth. Which part limits is what changes the throughput when it is made twice as fast. That is simulated with the same
draws, once for each part, where two parts last long enough that halving one leaves the other (:func:`contested`); and where three
may limit and none brings much alone, with two of them twice as fast.
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
    """The scenario with other sections, validated anew; a workload that was measured with servers keeps what it was measured in.

    Raises
    ------
    ScenarioError
        They break a rule together.
    """
    if scenario.workload.measured_with == "servers" and scenario.measured_in is None:
        parts["measured_in"] = scenario.model_dump(mode="json", context={"filled": True})  # whose pull and push the step held
    return validated(Scenario, {**scenario.sections, **parts}, where)


def with_network(scenario: Scenario, factor: float) -> Scenario:
    """Every link between nodes with ``factor`` times the bandwidth; latency, and what one connection gets at most, stay."""
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
    """Every link, between nodes and inside them, with ``factor`` times the bandwidth; one connection gets as many times as much."""
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
    """All that is between devices ``factor`` times as fast: every link, every latency, and what hosts do for a message."""
    return with_hosts(with_latencies(with_links(scenario, factor), 1.0 / factor), factor)


def with_hosts(scenario: Scenario, factor: float) -> Scenario:
    """Hosts that work ``factor`` times as fast on what is sent; servers, and what they do for a gradient, stay."""
    costs = ("transport.cpu_per_message_s", "transport.cpu_per_byte_s", "transport.copy_per_byte_s")
    cluster = with_times(scenario.cluster, dict.fromkeys(costs, 1.0 / factor))
    return changed(scenario, cluster=cluster, practice=faster_hosts(scenario, factor))


def with_service(scenario: Scenario, factor: float) -> Scenario:
    """Parameter servers that take ``factor`` times as long for a gradient."""
    return changed(scenario, workload=with_times(scenario.workload, {"server.base_s": factor, "server.per_byte_s": factor}))


def with_input_times(scenario: Scenario, factor: float) -> Scenario:
    """Input that takes ``factor`` times as long to prepare, and has ``factor`` times the bytes to read."""
    parts: dict[str, Any] = {"workload": with_times(scenario.workload, {"input.base_s": factor, "input.per_sample_s": factor})}
    if scenario.input is not None:
        works = {name: work.times(factor) for name in ("work", "cached") if (work := getattr(scenario.input, name)) is not None}
        parts["input"] = scenario.input.replaced(works)
    return changed(scenario, **parts)


def with_host_link(scenario: Scenario, factor: float) -> Scenario:
    """Links between a device and its host with ``factor`` times the bandwidth."""
    return changed(scenario, cluster=with_times(scenario.cluster, {"host_link.bandwidth_bytes_per_s": factor}))


def with_compute(scenario: Scenario, factor: float) -> Scenario:
    """Devices that take ``factor`` times as long for forward pass, backward pass and update; hosts and servers stay as they are."""
    scenario = resolve(scenario)  # whose times they are that change: those on the device
    return changed(scenario, workload=with_times(scenario.workload, dict.fromkeys(COMPUTE, factor)))


def with_even_workers(scenario: Scenario) -> Scenario:
    """Workers that all take as long for each step: without jitter, slow nodes and slowdowns; kinds of nodes stay."""
    load = {"jitter": Constant(), "jitter_draws": (), "jitter_least": None, "run_to_run_cv": 0.0, "run_to_run_shared": None}
    kinds = tuple(kind.replaced({"slowdown": None}) for kind in scenario.cluster.node_classes)
    cluster = {"slow_nodes": None, "slowdown": None, "node_speed": (), "node_classes": kinds}
    return changed(scenario, workload=scenario.workload.replaced(load), cluster=scenario.cluster.replaced(cluster))


def with_batch(scenario: Scenario, factor: int) -> Scenario:
    """The batch times a factor: that of each replica or that of all together, whichever the scenario gives."""
    load = scenario.workload
    if load.global_batch is None:
        return changed(scenario, workload=load.replaced({"batch_per_replica": scenario.batch * factor}))
    return changed(scenario, workload=load.timed_at(load.global_batch).replaced({"global_batch": load.global_batch * factor}))


def with_micro_batches(scenario: Scenario, factor: int) -> Scenario:
    """So many times the micro-batches a step."""
    training = scenario.training
    return changed(scenario, training=training.replaced({"micro_batches": training.micro_batches * factor}))


def with_one_more_server(scenario: Scenario) -> Scenario:
    """One parameter server more, beside as many workers."""
    assert scenario.servers, "the strategy must have servers"
    return with_strategy(scenario, scenario.strategy.with_count(scenario.workers).with_servers(scenario.servers + 1))


def with_strategy(scenario: Scenario, strategy: Strategy) -> Scenario:
    """Another strategy; a cluster of a fixed number of nodes gets those that the strategy needs besides."""
    cluster = scenario.cluster
    return changed(scenario, strategy=strategy, cluster=cluster.with_room_for(strategy.layout(cluster).nodes))


def _with_links(cluster: Cluster, joins: str, bandwidth: float = 1.0, latency: float = 1.0) -> Cluster:
    """All links that join the same, with their bandwidth and latency times a factor each, and so their draws."""

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
"""What communication consists of."""


class Gains(NamedTuple):
    """Throughput over what it is, less 1, the mean over replications; below 0 where a change does harm, as earlier messages that collide.

    Attributes
    ----------
    alone
        With one part twice as fast, or without what makes workers wait for each other.
    together
        With two of them, where several parts could be what keeps the best from bringing more; else empty.
    within
        With one component of communication, where communication may be the limit; else empty.
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
"""The change that each part is tried with."""
WITHIN: Mapping[Component, _Change] = {
    "links": _Change("links twice as fast", lambda scenario: with_links(scenario, 2.0)),
    "latency": _Change("half the latency", lambda scenario: with_latencies(scenario, 0.5)),
    "hosts": _Change("half the host CPU per message", lambda scenario: with_hosts(scenario, 2.0)),
}
"""The same of components of communication, which together are what communication is tried with."""

_AS_LONG = 0.3
"""A part that lasts half as long as the longest is what is waited for once that one is twice as fast; waiting in a queue may
go altogether if what serves it is twice as fast, so that less than half counts too."""
_MUCH = 0.5
"""What brings as much is a limit by itself: half of what it would if nothing else lasted."""
CLOSE = 1.25
"""A part that brings this many times less than the best one may limit as well."""
_NOISE = 0.05
"""What brings less may be first by chance."""
_FEWEST_STEPS, _FEWEST_APART = 10, 20
"""Of a replication in which a change is tried; the second where workers do not wait for each other and drift apart."""
_TRIES_ARE_ONE_OF = 20
"""A change is tried for this part of all steps of all replications, so that trying four parts, and what communication consists of, costs a
third more."""
_MOST_RANKS = 10_000
"""Beyond it another replication takes long, and shares are all there is."""


def contested(scenario: Resolved, parts: Breakdown, hidden_s: float, use: Utilisation) -> list[Part]:
    """All parts of a step, where several of them may be its limit; empty where there is one alone.

    How long a part lasts counts what others hide of it: of communication what is exposed and
    what is hidden, and the busiest link of workers that do not wait for each other.

    Parameters
    ----------
    scenario
        What was simulated, resolved.
    parts, hidden_s, use
        Of its mean step.
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
    """In how many replications changes are tried, and the scenario with the steps of each.

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
    """Numbers of the replications in which changes are tried, by the throughput of each: evenly from slow to fast."""
    count, _ = tried(scenario)
    ordered = sorted(range(len(rates)), key=lambda number: rates[number])
    return [ordered[(2 * place + 1) * len(ordered) // (2 * count)] for place in range(count)]


def gains_of(
    scenario: Resolved, parts: list[Part], waited: float, replications: Sequence[int], simulated: Callable[[Resolved, int], float]
) -> Gains | None:
    """Gain of each part if it is twice as fast, in a run of fewer steps: they are all alike, and the draws the same.

    Parameters
    ----------
    scenario
        What was simulated, resolved.
    parts
        Those to try.
    waited
        Share of a step that workers wait for the slowest: even ones save no more, the rest is that what was drawn slow no longer is.
    replications
        Numbers of those to try them in, such as :func:`typical` ones.
    simulated
        The throughput of a replication of a scenario, resolved; with the same draws whatever the scenario.

    Returns
    -------
    Gains or None
        None where one of the changes breaks a rule, or cannot be simulated.
    """
    _, scenario = tried(scenario)
    rates = [simulated(scenario, number) for number in replications]

    def gain(*changes: _Change) -> float:
        changing: Scenario = scenario
        for change in changes:
            changing = change.made(changing)
        resolved = Resolved(changing)  # changes leave nothing open
        return statistics.fmean(simulated(resolved, number) / rate for number, rate in zip(replications, rates, strict=True)) - 1.0

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
    """Return whether a scenario has what a change of communication makes better."""
    other = change.made(scenario)
    return other.cluster != scenario.cluster or other.practice != scenario.practice


def _in_question(alone: Mapping[Part, float]) -> Iterable[tuple[Part, Part]]:
    """Pairs of parts that may limit together."""
    first, *others = sorted(alone, key=lambda part: -alone[part])
    if len(others) < 2 or alone[first] >= _MUCH:
        return ()
    return [(first, other) for other in others] if alone[first] >= _NOISE else combinations(alone, 2)
