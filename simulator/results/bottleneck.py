"""What limits the throughput of a scenario, as a name and a sentence.

Shares of a step decide, or what what_if.py has simulated, where several parts may limit. Names are ``Limit`` of
``simulator.spec.figures``, by which results are sorted and compared; exchanges of models that are cut are distinguished by the
names of its ``Exchange``, which ``simulator.strategies.hybrid.laid`` gives them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.base.text import counted, format_number, format_rate, format_seconds, format_share, listed, written
from simulator.program.neighbours import PORTS_OF
from simulator.program.port_names import PortKind, PortName
from simulator.results.what_if import CHANGES, Gains, Part
from simulator.scenario import Scenario
from simulator.spec.distributions import Constant
from simulator.spec.figures import Bottleneck, Breakdown, Exchange, Limit, Stage, Utilisation
from simulator.strategies.assembling import crowding
from simulator.strategies.pipelines import batch_s, pipelines

_SLOW = 1.15
"""A stage that computes this many times as long as the mean of all holds the others up."""
_SLOWER = 0.95
"""A node below this part of the median speed is called slow."""
_LARGE = 0.2
"""A bubble of this share of a step is worth a word where it is not the limit."""
_UNEVEN = 1.25
"""A server that holds this many times its part of the bytes is more than evenly filled."""
_SATURATED = 0.85
"""In use for this share of the time, a resource counts as the limit."""
_LITTLE = 0.01
"""A change that brings less is next to nothing, and a part that takes less of a step is not seen."""
_HALF = 0.5
_TOGETHER = 2.0
"""Two parts that bring more than this many times what each does alone hold each other up."""
_BALANCED = 1.25
"""Where the largest part of a step is at most this many times the second, neither alone is the limit."""
_HOST_LINKS = PortKind.HOST_LINK_OUT, PortKind.HOST_LINK_IN
_SHARDS = "shards", "shards of experts"
_OF = {
    "tensor": "devices that split tensors",
    "experts": "devices that experts are spread over",
    "tensor and experts": "devices that split tensors and have experts",
    "shards": "copies that share one state",
    "alike shards": "copies that have the same part of the state",
    "alike experts": "copies that have the same experts",
    "shards of experts": "copies that share one state of their experts",
    "tied stages": "stages that have copies of the same variables",
    "copies": "copies of the model",
}


def limit_of_exchanges(taken: str, exposed_s: float, exchanges: Sequence[Exchange]) -> Bottleneck | None:
    """Name the communication that nothing hides: of those exchanges that can make it up, the longest.

    Parameters
    ----------
    taken
        What share of a step it takes, in words.
    exposed_s
        Seconds of it in the mean step.
    exchanges
        Of a step.
    """
    if not exchanges:
        return None
    amid = [exchange for exchange in exchanges if exchange.amid]
    # passes wait for these whatever else goes on; what is left over comes of those that passes may hide
    candidates = amid if math.fsum(exchange.seconds for exchange in amid) >= exposed_s / 2 else exchanges
    longest = max(candidates, key=lambda exchange: exchange.seconds)
    gathers = longest.among in _SHARDS and longest.does == "all-gather"
    match longest.among:
        case "stages":
            which = f"{longest.does} that stages hand on {longest.links}"
            less = "fewer stages, or stages of one copy next to each other (order), or a faster network would help"
        case "host":
            which = "what a device and its host copy to each other"
            less = "fewer layers on the host, or a faster link to it, would help"
        case among:
            which = f"the {longest.does} among {longest.devices} {_OF[among]}, {longest.links}"
            less = "smaller buckets that passes hide (bucket_size), more micro-batches a step, or a faster network would help"
            if among == "tensor" and longest.links == "between nodes":
                less = "splitting tensors inside nodes only would help most"
            elif among in ("tensor", "tensor and experts"):
                less = "splitting tensors over fewer devices, or faster links between them, would help"
            elif among == "experts":
                less = "experts spread over fewer devices, a capacity, or a faster network would help"
            elif gathers:
                less = 'shard = "gradients", fewer micro-batches, a larger prefetch or a shard_group inside a node would help'
    text = f"Communication that no pass hides takes {taken}, most of it {which}; {less}."
    return Bottleneck(name="exchange" if longest.amid or gathers else "network", text=text)


def bottleneck(
    scenario: Scenario,
    parts: Breakdown,
    use: Utilisation,
    busiest: PortName | None,
    stages: Sequence[Stage] = (),
    exchanges: Sequence[Exchange] = (),
    gains: Gains | None = None,
) -> Bottleneck:
    """Name the part that brings most if it is made faster; where only one can be that, the saturated resource or the largest part.

    Parameters
    ----------
    scenario
        What was simulated.
    parts
        Of the mean step.
    use
        Of its resources.
    busiest
        What the busiest link is; none: there is no link.
    stages
        Of its pipeline.
    exchanges
        Of devices that hold one model, or its state, together.
    gains
        What each part brings if it is twice as fast, where several may be the limit (:mod:`simulator.results.what_if`).
    """
    simulated = _Simulated(scenario, parts, use, busiest, stages, exchanges)
    return simulated.by_shares() if gains is None else simulated.by_gains(gains)


def first_of_all(scenario: Scenario, speedup: float) -> str:
    """Return what must be known before any limit: that several devices do less than one, or that a slower node holds up the others.

    Parameters
    ----------
    scenario
        What was simulated.
    speedup
        Mean throughput over that of one replica alone.

    Returns
    -------
    str
        Sentences that end in a space; empty where there is neither.
    """
    said = ""
    if scenario.ranks > 1 and speedup < 1.0:
        said = f"{scenario.ranks:,} workers together are {format_number(speedup, 2)} of one alone: do not distribute this as it is. "
    nodes = scenario.worker_nodes
    speeds = scenario.cluster.speeds_of(np.arange(nodes))
    slow = np.flatnonzero(speeds < _SLOWER * np.median(speeds))
    if len(slow) and len(slow) < nodes / 2 and scenario.strategy.pace.together:
        names, holds = f"Node {slow[0]} works", "holds"
        if len(slow) > 1:
            names, holds = f"Nodes {listed([str(node) for node in slow])} work", "hold"
        ends = dict.fromkeys(format_number(float(speed), 2) for speed in (speeds[slow].min(), speeds[slow].max()))
        said += f"{names} at {' to '.join(ends)} of the speed and {holds} up {counted(nodes - len(slow), 'other')}. "
    return said


FAMILY: Mapping[Part, frozenset[Limit]] = {
    "compute": frozenset({"compute"}),
    "communication": frozenset({"network", "server-network", "fabric", "host-link", "host-cpu", "client", "latency", "exchange"}),
    "server": frozenset({"server", "apply"}),
    "input": frozenset({"input", "client"}),
    "waiting": frozenset({"stragglers"}),
}
"""Limits that a part which is made faster does away with."""
_TAKING: Mapping[Part, str] = {
    "compute": "compute",
    "input": "waiting for input",
    "communication": "communication that compute does not hide",
    "waiting": "waiting for the slowest worker",
    "server": "applying updates",
}
"""What takes a part of a step, in words."""
_WAITING: dict[Limit, str] = {
    "coordinator": "waiting for the coordinator",
    "pipeline-bubble": "the bubble of the pipeline",
    "slow-stage": "waiting for a slower stage",
}
"""The same of limits that are a kind of waiting."""


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


@dataclass(frozen=True)
class _Simulated:
    """A simulated step: see :func:`bottleneck`."""

    scenario: Scenario
    parts: Breakdown
    use: Utilisation
    busiest: PortName | None
    stages: Sequence[Stage]
    exchanges: Sequence[Exchange]

    def share_of(self, part: Part) -> float:
        """Share of a step that a part takes and nothing hides."""
        seconds: float = getattr(self.parts, {"communication": "exposed_communication", "server": "apply"}.get(part, part))
        return seconds / self.parts.total

    @cached_property
    def taken(self) -> float:
        """Share of the busiest link that others take while one flow of ours uses it."""
        background = self.scenario.cluster.background
        if background is None or self.busiest is None or self.busiest.kind not in PORTS_OF[background.on]:
            return 0.0
        return background.taken()

    def by_gains(self, gains: Gains) -> Bottleneck:
        """The limit that the change which brings most stands for, and beside it one that limits as well.

        Two limit together where the second brings nearly as much as the first, or where the first brings less than half of what its
        share of a step would if nothing else lasted as long: of a share s that is made twice as fast, s / (2 - s). Which of several
        others it is shows with both twice as fast. A limit that none of the changes is about, such as waiting for each other, stays
        what it is.
        """
        limit = self.by_shares()
        own = next((part for part, names in FAMILY.items() if limit.name in names), None)
        if own is None:
            return self._with_input(limit)
        alone, together = gains
        ordered = sorted(alone, key=lambda part: -alone[part])
        first, second = ordered[:2]
        changes = listed([f"{CHANGES[part].words} {written(alone[part], 'change')}" for part in ordered])
        less = ", and without variation between workers" if "waiting" in alone else ""
        tried = f"Each by itself twice as fast{less}, with the same draws: {changes} throughput."
        both = 0.0
        if together:
            (first, second), both = max(together.items(), key=lambda pair: pair[1])
            first, second = sorted((first, second), key=lambda part: -alone[part])
            tried = f"{tried[:-1]}; {CHANGES[first].words} and {CHANGES[second].words} together {written(both, 'change')}."
        first_limit = limit if own == first and limit.balance is None else self.limit_of(first)
        other, share = limit if own == second else self.limit_of(second), self.share_of(first)
        held_up = alone[first] < _HALF * share / (2.0 - share) or both > _TOGETHER * (alone[first] + alone[second])
        text, balance = first_limit.text, None
        longest = max(alone, key=self.share_of)
        if (held_up or alone[second] >= alone[first] / _BALANCED) and first_limit.name != other.name:
            text = _capital(f"{CHANGES[first].words} and {CHANGES[second].words} limit together, and neither alone.")
            balance = other.name
        elif first_limit.name == "compute" and self.share_of(longest) > share:
            why = f"though {_TAKING[longest]} takes {format_share(self.share_of(longest))} of a step"
            text = f"Devices twice as fast bring {written(alone[first], 'change')} throughput, more than any other part, {why}."
        return self._with_input(Bottleneck(name=first_limit.name, balance=balance, text=text, tried=tried))

    def _with_input(self, limit: Bottleneck) -> Bottleneck:
        """The limit with a word on input that could be hidden, where two limit and input is one of them."""
        return limit if limit.balance is None else limit.replaced({"text": limit.text + self._yet_input(limit.name, limit.balance)})

    def limit_of(self, part: Part) -> Bottleneck:
        """The limit that a part stands for, which another may hide."""
        if part == "server":
            return _server(f"The busiest parameter server works {format_share(self.use.busiest_server)} of the time on gradients")
        if part == "communication" and self.share_of(part) < _LITTLE:
            return self._network(f"{self._carries}, while devices compute")
        return self._of_part(part)

    @property
    def _carries(self) -> str:
        return f"the busiest link ({self.use.busiest_link_name}) carries {format_share(self.use.busiest_link)} of what it can"

    def by_shares(self) -> Bottleneck:
        """The saturated resource, or else the largest part of a step."""
        scenario, use, step_s = self.scenario, self.use, self.parts.total
        cores = scenario.cluster.shared_cores
        if cores is not None and use.cores >= _SATURATED and scenario.ranks + scenario.servers > cores:
            text = f"The {cores:g} cores that all nodes share are {format_share(use.cores)} busy; "
            return Bottleneck(name="shared-cores", text=text + "more cores, or less work on messages, servers and compute, would help.")
        if use.busiest_server >= _SATURATED:
            return self.limit_of("server")
        if use.busiest_link >= _SATURATED * (1.0 - self.taken):
            return self._network(self._carries)
        shares = {part: self.share_of(part) for part in _TAKING}
        largest, second = sorted(shares, key=lambda part: -shares[part])[:2]
        if largest == "waiting" and scenario.input is not None and (used := min(batch_s(scenario) / step_s, 1.0)) >= _SATURATED:
            text = (
                f"Input pipelines are busy {format_share(used)} of the time: workers wait for their own batch for "
                f"{format_share(shares['input'])} of a step, and for workers that wait for theirs for {format_share(shares['waiting'])}; "
            )
            rest_s = step_s * (1.0 - shares["input"] - shares["waiting"])
            return Bottleneck(name="input", text=f"{text}{_help_with_input(scenario, rest_s)}.")
        limit = self._of_part(largest)
        if shares[largest] > _BALANCED * shares[second]:
            bubble = self._of_stages() if limit.name == "compute" and shares["waiting"] >= _LARGE else None
            return limit if bubble is None else limit.replaced({"text": f"{limit.text} {bubble.text}"})
        other = self._of_part(second)
        if other.name == limit.name:  # such as a client's link, by which input and gradients are waited for
            return limit
        begins, goes_on = _WAITING.get(limit.name, _TAKING[largest]), _WAITING.get(other.name, _TAKING[second])
        text = f"{_capital(begins)} takes {format_share(shares[largest])} and {goes_on} {format_share(shares[second])} of a step"
        text += f": they are in balance, and neither alone is the limit.{self._yet_input(largest, second)}"
        return Bottleneck(name=limit.name, balance=other.name, text=text)

    def _yet_input(self, *limits: str | None) -> str:
        """A sentence on input that could be hidden, where it is among what limits; else nothing."""
        rest_s = self.parts.total - self.parts.input
        if "input" not in limits or self.scenario.input is None or batch_s(self.scenario) >= rest_s:
            return ""
        return f" Yet {_help_with_input(self.scenario, rest_s)}."

    def _of_part(self, largest: Part) -> Bottleneck:
        """The limit that the largest part of a step stands for."""
        scenario, share = self.scenario, self.share_of(largest)
        taken = f"{format_share(share)} of a step"
        match largest:
            case "compute":
                return Bottleneck(name="compute", text=_computing(scenario, taken))
            case "input" if scenario.layout.client:
                text = f"Waiting for input takes {taken}: one client feeds all workers; let each read its own (between-graph)."
                return Bottleneck(name="client", text=text)
            case "input":
                todo = _help_with_input(scenario, self.parts.total * (1.0 - share))
                return Bottleneck(name="input", text=f"Waiting for input takes {taken}; {todo}.")
            case "waiting" if scenario.strategy.pace.coordinated:
                text = f"Waiting for the coordinator to hand out the next step takes {taken}; let workers drive themselves, "
                return Bottleneck(name="coordinator", text=text + "or give each a longer step.")
            case "waiting":
                text = f"Waiting for the slowest worker takes {taken}; workers of even speed, or an asynchronous mode, would help."
                return self._of_stages() or Bottleneck(name="stragglers", text=text)
            case "server" if scenario.servers:
                return _server(f"Queueing and applying at the parameter servers takes {taken}")
            case "server":
                return Bottleneck(name="apply", text=f"The optimizer's update takes {taken}.")
        return limit_of_exchanges(taken, share * self.parts.total, self.exchanges) or self._of_messages(share, taken)

    def _of_stages(self) -> Bottleneck | None:
        """The limit that waiting of stages for each other stands for; None where copies wait for the slowest instead."""
        share, stages, bubble = self.share_of("waiting"), self.stages, self.scenario.strategy.model_parallel(self.scenario).bubble
        if not stages or bubble is None:
            return None
        busy = [stage.busy for stage in stages]
        mean, slowest = math.fsum(busy) / len(busy), max(range(len(busy)), key=lambda stage: busy[stage])
        times = busy[slowest] / mean if mean else 1.0
        if times >= _SLOW:
            text = f"Stages wait for each other for {format_share(share)} of a step, and stage {slowest} computes {times:.2f} times as "
            return Bottleneck(name="slow-stage", text=f"{text}long as the mean stage: {bubble.evener}.")
        if bubble.share < share / 2 and not isinstance(self.scenario.workload.jitter, Constant):
            return None
        text = f"The stages of the pipeline stand still for {format_share(share)} of a step"
        return Bottleneck(name="pipeline-bubble", text=f"{text}, {bubble.because}; {bubble.fuller} would help.")

    def _of_messages(self, share: float, taken: str) -> Bottleneck:
        """The limit that messages stand for which take a share of a step."""
        scenario, used, free = self.scenario, self.use.busiest_link, 1.0 - self.taken
        cap = scenario.cluster.transport.flow_cap_bytes_per_s
        link_bytes_per_s = scenario.cluster.link_of(0).bandwidth_bytes_per_s / scenario.cluster.transport.wire_bytes_per_byte
        if cap is not None and cap < 0.9 * link_bytes_per_s and scenario.nodes_needed > 1 and used < _SATURATED / 2 * free:
            text = f"Communication takes {taken}, and one connection gets no more than {format_rate(cap)} of a link of "
            return Bottleneck(name="network", text=f"{text}{format_rate(link_bytes_per_s)}: more connections at a time would help.")
        # pulls and pushes, or copies out and back, take the two directions of a link by turns, each busy for half of it at most
        by_turns = scenario.servers or (self.busiest is not None and self.busiest.kind in _HOST_LINKS)
        in_use = min(used * (2 if by_turns else 1) / share / free, 1.0)
        if in_use < 0.5:
            text = f"Communication takes {taken}, but the busiest link carries bytes in only {format_share(in_use)} of that: latency "
            return Bottleneck(name="latency", text=f"{text}dominates; fewer and larger messages, or lower latency, would help.")
        return self._network(f"communication that compute does not hide takes {taken}")

    def _network(self, reason: str) -> Bottleneck:
        """The limit that the busiest link stands for."""
        scenario, busiest = self.scenario, self.busiest
        if self.taken:
            reason += f", of which others leave {format_share(1.0 - self.taken)} to a flow of ours (cluster.background)"
        limit: Limit = "network"
        text = "a faster network or smaller gradients would help"
        if busiest is None:
            pass
        elif busiest.kind in (PortKind.CPU, PortKind.MESSAGES):
            work = "messages" if busiest.kind == PortKind.MESSAGES else "the bytes that it sends and gets"
            reason = f"The host of {busiest.owner} works {format_share(self.use.busiest_link)} of the time on {work}"
            servers = ", more parameter servers" if _holds_server(scenario, busiest) else ""
            limit, text = "host-cpu", f"fewer and larger messages{servers} or faster cores would help"
        elif _holds_server(scenario, busiest):
            limit, text = "server-network", f"the links of the parameter servers are the limit: {_lighter(scenario)} would help"
        elif busiest.kind in (PortKind.LEAF_UP, PortKind.LEAF_DOWN):
            limit = "fabric"
            text = f"the busiest link is {str(busiest)!r}: less oversubscription, or workers under fewer leaves, would help"
        elif busiest.kind in _HOST_LINKS:
            limit = "host-link"
            text = f"the busiest link is {str(busiest)!r}, between device and host: direct transfers between devices would help"
        elif busiest.owner.kind in ("client node", "client"):
            limit, text = "client", "it is the link of the client that feeds all workers: let each read its own input (between-graph)"
        return Bottleneck(name=limit, text=f"{_capital(reason)}; {text}.")


def _computing(scenario: Scenario, taken: str) -> str:
    """Sentence on compute, also on devices that several replicas share."""
    each = scenario.cluster.replicas_per_device
    if each == 1:
        return f"The devices compute for {taken}; a faster device or a smaller model would help most."
    if scenario.cluster.device_sharing == "saturated":
        return f"{each} replicas share each device and compute for {taken}; a faster device or a smaller model would help most."
    share, slower = scenario.workload.busy_share(scenario.batch), crowding(scenario)
    text = f"{each} replicas on each device compute for {taken}; one alone keeps it busy for {format_share(share)} of its time, so that "
    text += f"each takes {slower:.3g} times as long as alone: "
    return text + ("more of them would help most." if each * share < 1 else "a faster device would help most.")


def _server(reason: str) -> Bottleneck:
    return Bottleneck(name="server", text=f"{reason}; more servers or a cheaper update would help.")


def _holds_server(scenario: Scenario, link: PortName) -> bool:
    """Return whether a link is that of a node with a parameter server, and not of each of the workers' nodes."""
    if link.owner.kind in ("server node", "server"):
        return True
    if not scenario.layout.servers_beside:
        return False
    return link.owner.kind == "node" and link.owner.number < scenario.servers < scenario.worker_nodes


def _lighter(scenario: Scenario) -> str:
    """How the fullest server could be relieved."""
    held = [0.0] * scenario.servers
    for variable in scenario.strategy.tensors(scenario).variables:
        held[variable.server] += variable.size_bytes
    share = max(held) / math.fsum(held)
    if scenario.servers == 1 or share < _UNEVEN / scenario.servers:
        return "more servers or faster links"
    fullest = f"one of {scenario.servers} servers holds {format_share(share)} of the bytes"
    return f'{fullest}, so a partitioner, variable_placement = "traffic" or faster links'


def _help_with_input(scenario: Scenario, rest_s: float) -> str:
    """Remedy of waiting for input, as the end of a sentence; ``rest_s``: mean seconds of a step without it."""
    pipeline, prepared = scenario.input, pipelines(scenario)
    if pipeline is None or prepared is None:
        return "prepare batches faster or in parallel"
    batch_s = float(prepared.fair_s.max())
    if batch_s < rest_s:
        ahead = "none is prepared ahead" if not pipeline.prefetch else f"times vary, and at most {pipeline.prefetch:,} are ready ahead"
        return (
            f"a pipeline needs {format_seconds(batch_s)} for a batch on average, less than the rest of a step, but {ahead}: "
            f"more prefetch (input.prefetch = {max(2 * pipeline.prefetch, 1):,}) would hide it"
        )
    cache = "" if pipeline.cached is not None else ", or a cache of what was prepared (input.cached)"
    cluster, storage = scenario.cluster, scenario.cluster.storage
    match prepared.limit:
        case "serial part":
            why = "its serial part takes that long, which neither more calls nor more prefetch shortens: a cheaper iterator"
        case "parallel part":
            why = f"its parallel part takes that long with {prepared.calls:,} calls at a time: more calls (input.parallel_calls)"
        case "host cores":
            why = f"the {cluster.host_cores:,} cores of a node are too few: more cores (cluster.host_cores)"
        case "network":
            why = "it is read over the links of nodes, which are too slow: faster links, smaller records"
        case limit:
            assert storage is not None
            rate = storage.bandwidth_bytes_per_s if limit == "storage" else storage.node_bandwidth_bytes_per_s
            assert rate is not None
            whom = "all pipelines together" if limit == "storage" else "a node"
            why = f"storage gives {whom} no more than {format_rate(rate)}: faster storage, smaller records"
    return f"a pipeline needs {format_seconds(batch_s)} for a batch, since {why}{cache} would help"
