"""Limit of a scenario's throughput: a group such as communication, the part of it, and two sentences.

Groups are compared by their shares of a step, or by the gain of changing each where what_if.py has tried several; a tried gain has
priority. The name of the limit within a group is a ``Limit`` of ``simulator.spec.figures``, by which results are sorted and compared.
Exchanges of models that are cut are distinguished by the names of its ``Exchange``, which ``simulator.strategies.hybrid.laid`` gives them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from simulator.base.text import counted, format_change, format_number, format_rate, format_seconds, format_share, listed, sentence
from simulator.estimate import buckets_a_step
from simulator.program.neighbours import PORTS_OF
from simulator.program.port_names import PortKind, PortName
from simulator.results.what_if import CHANGES, CLOSE, WITHIN, Component, Gains, Part
from simulator.scenario import Scenario
from simulator.spec.distributions import Constant
from simulator.spec.figures import GROUPS, Bottleneck, Breakdown, Exchange, Limit, LimitGroup, Reduced, Stage, Trial, Utilisation
from simulator.strategies.assembling import crowding
from simulator.strategies.pipelines import batch_s, pipelines

_SLOW = 1.15
"""A stage whose compute time is this many times the mean delays the others."""
_SLOWER = 0.95
"""A node below this share of the median speed is called slow."""
_LARGE = 0.2
"""A bubble of this share of a step is mentioned even if it is not the limit."""
_UNEVEN = 1.25
"""A server with this many times its equal part of the bytes is overloaded."""
_SATURATED = 0.85
"""A resource with this utilisation counts as the limit."""
_LITTLE = 0.01
"""A smaller gain is negligible, and a smaller share of a step is not mentioned."""
_HALF = 0.5
_TOGETHER = 2.0
"""Two parts limit together if changing both brings more than this many times the gain of each."""
_TRIALS = 3
"""Number of trials in the sentence."""
BOTH = "both"
"""Trial of the two parts that limit together; where nothing else takes time, it is twice as fast by definition."""
_HOST_LINKS = PortKind.HOST_LINK_OUT, PortKind.HOST_LINK_IN
_BETWEEN_GRAPH = "let each worker read its own input (between-graph)"
_HOST_WORK = PortKind.CPU, PortKind.MESSAGES
_SHARDS = "shards", "shards of experts"
_DO = {"tensor": "split tensors", "context": "split sequences", "experts": "hold experts"}
_OF = {
    "shards": "copies that shard one state",
    "alike shards": "copies with the same shard of the state",
    "alike experts": "copies with the same experts",
    "shards of experts": "copies that shard the state of their experts",
    "tied stages": "stages with copies of the same variables",
    "copies": "copies of the model",
}


class Why(NamedTuple):
    """The limit within a group.

    Attributes
    ----------
    name
        Code for sorting.
    detail
        In words; empty if the group is enough.
    remedy
        Suggested change, as a clause.
    evidence
        Further evidence besides the share of a step, in a few words.
    share
        Share of a step, if it differs from the share of one part.
    waits
        Whether what makes it faster shortens waiting for the slowest worker as well.
    """

    name: Limit
    detail: str
    remedy: str
    evidence: str = ""
    share: float | None = None
    waits: bool = False

    @property
    def group(self) -> LimitGroup:
        """The group of the name."""
        return GROUPS[self.name]

    @property
    def mostly(self) -> str:
        """The detail with its evidence, as the end of a sentence."""
        shown = f" ({self.evidence})" if self.evidence else ""
        return f", mostly {self.detail}{shown}" if self.detail else shown


def limit_of_exchanges(exposed_s: float, exchanges: Sequence[Exchange]) -> Why | None:
    """Name the exposed communication: the longest exchange that can be part of it.

    Parameters
    ----------
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
            which = f"{longest.does} between stages, {longest.links}"
            less = "fewer stages, stages of one copy next to each other (order) or a faster network would help"
        case "host":
            which = "copies between a device and its host"
            less = "fewer layers on the host or a faster link to it would help"
        case among:
            meet = _OF.get(among) or "devices that " + " and ".join(_DO[each] for each in among.split(" and "))
            which = f"the {longest.does} among {longest.devices} {meet}, {longest.links}"
            less = "smaller buckets that overlap with passes (bucket_size), more micro-batches per step or a faster network would help"
            if among == "tensor" and longest.links == "between nodes":
                less = "splitting tensors only inside nodes would help most"
            elif among == "context":
                less = "splitting sequences over fewer devices or faster links between them would help"
            elif among.startswith("tensor"):
                less = "splitting tensors over fewer devices or faster links between them would help"
            elif among == "experts":
                less = "experts on fewer devices, a capacity limit or a faster network would help"
            elif gathers:
                less = 'shard = "gradients", fewer micro-batches, a larger prefetch or a shard_group inside a node would help'
    return Why("exchange" if longest.amid or gathers else "network", which, less)


def bottleneck(
    scenario: Scenario,
    parts: Breakdown,
    use: Utilisation,
    busiest: PortName | None,
    stages: Sequence[Stage] = (),
    exchanges: Sequence[Exchange] = (),
    gains: Gains | None = None,
    all_reduces: Sequence[Reduced] = (),
) -> Bottleneck:
    """Name the group with the largest gain if made faster; with only one candidate, the saturated resource or the largest part.

    Parameters
    ----------
    scenario
        What was simulated.
    parts
        Of the mean step.
    use
        Of its resources.
    busiest
        The busiest link; None: there is no link.
    stages
        Of its pipeline.
    exchanges
        Of devices that hold one model, or its state, together.
    gains
        Gain of each part if twice as fast, if several may be the limit (:mod:`simulator.results.what_if`).
    all_reduces
        How each size of bucket was all-reduced.
    """
    simulated = _Simulated(scenario, parts, use, busiest, stages, exchanges, all_reduces)
    return simulated.by_shares() if gains is None else simulated.by_gains(gains)


def first_of_all(scenario: Scenario, speedup: float) -> tuple[str, ...]:
    """Return what must be known before any limit: that several devices do less than one, and that a slower node holds up the others.

    Parameters
    ----------
    scenario
        What was simulated.
    speedup
        Mean throughput over that of the single-replica baseline.
    """
    said: list[str] = []
    if scenario.ranks > 1 and speedup < 1.0:
        said.append(f"{format_number(speedup, 2)} times the throughput of one replica: distributing does not pay here")
    nodes = scenario.worker_nodes
    speeds = scenario.cluster.speeds_of(np.arange(nodes))
    slow = np.flatnonzero(speeds < _SLOWER * np.median(speeds))
    if len(slow) and len(slow) < nodes / 2 and scenario.strategy.pace.together:
        names, holds = f"Node {slow[0]} works", "holds"
        if len(slow) > 1:
            names, holds = f"Nodes {listed([str(node) for node in slow])} work", "hold"
        ends = dict.fromkeys(format_number(float(speed), 2) for speed in (speeds[slow].min(), speeds[slow].max()))
        said.append(f"{names} at {' to '.join(ends)} of the speed and {holds} up {counted(nodes - len(slow), 'other')}")
    return tuple(said)


FAMILY: Mapping[Part, frozenset[Limit]] = {
    "compute": frozenset({"compute"}),
    "communication": frozenset({"network", "server-network", "fabric", "host-link", "host-cpu", "client", "latency", "exchange"}),
    "server": frozenset({"server", "apply"}),
    "input": frozenset({"input", "client"}),
    "waiting": frozenset({"stragglers"}),
}
"""Limits that disappear when a part is made faster."""
_OF_COMPONENT: Mapping[Component, frozenset[Limit]] = {
    "links": frozenset({"network", "server-network", "fabric", "host-link", "client", "exchange"}),
    "latency": frozenset({"latency"}),
    "hosts": frozenset({"host-cpu"}),
}
"""The same of components of communication."""
_TAKES: Mapping[LimitGroup, str] = {
    "compute": "compute",
    "communication": "communication",
    "input": "waiting for input",
    "servers": "work of the parameter servers",
    "stragglers": "waiting for the slowest worker",
    "pipeline": "waiting between stages",
    "coordinator": "waiting for the coordinator",
}
"""What a group's share of a step is spent on."""


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
    all_reduces: Sequence[Reduced]

    @cached_property
    def shares(self) -> Mapping[Part, float]:
        """Exposed share of a step of each part; without servers, devices update."""
        parts, servers = self.parts, bool(self.scenario.servers)
        seconds: dict[Part, float] = {
            "compute": parts.compute + (0.0 if servers else parts.apply),
            "input": parts.input,
            "communication": parts.exposed_communication,
            "waiting": parts.waiting,
            "server": parts.apply if servers else 0.0,
        }
        return {part: each / parts.total for part, each in seconds.items()}

    @cached_property
    def taken(self) -> float:
        """Share of the busiest link that background traffic takes while one flow of ours uses it."""
        background = self.scenario.cluster.background
        if background is None or self.busiest is None or self.busiest.kind not in PORTS_OF[background.on]:
            return 0.0
        return background.taken()

    # -- which group ---------------------------------------------------------------------

    def by_gains(self, gains: Gains) -> Bottleneck:
        """The limit with the largest gain, and a second limit of equal weight.

        Two limit together if the second brings almost as much as the first, or if the first brings less than half of what its share of a
        step would bring without overlap: s / (2 - s) for a share s made twice as fast. Trials with two changes at once show which of
        several others it is. A limit that no change addresses, such as waiting for each other, stays as it is.
        """
        limit, *_ = self._largest()
        own = next((part for part, names in FAMILY.items() if limit.name in names), None)
        if own is None and limit.name != "apply":
            return self.by_shares()
        alone, together, within = gains
        ordered = sorted(alone, key=lambda part: -alone[part])
        first, second = ordered[:2]
        pair, both = max(together.items(), key=lambda tried: tried[1], default=((first, second), 0.0))
        first, second = sorted(pair, key=lambda part: -alone[part])
        share = self.shares[first]
        held_up = alone[first] < _HALF * share / (2.0 - share) or both > _TOGETHER * (alone[first] + alone[second])
        why, other = (limit if own == part == "input" else self._why(part, within) for part in (first, second))
        if (held_up or alone[second] >= alone[first] / CLOSE) and why.group != other.group:
            return self._both((first, why), (second, other), gains, both if together else None)
        waits = first == "compute" and "waiting" in alone and alone[first] > CLOSE * share / (2.0 - share)
        return self._one(first, why._replace(waits=waits), gains)

    def by_shares(self) -> Bottleneck:
        """The limit of the saturated resource, or of the largest part of a step."""
        limit, part, saturated = self._largest()
        largest, second = sorted(self.shares, key=lambda part: -self.shares[part])[:2]
        if saturated or self.shares[largest] > CLOSE * self.shares[second]:
            return self._one(part, limit)
        other = self._why(second)
        return self._one(part, limit) if other.group == limit.group else self._both((part, limit), (second, other))

    def _largest(self) -> tuple[Why, Part, bool]:
        """The limit, its part, and whether the part is saturated or only the largest of a step."""
        scenario, use = self.scenario, self.use
        cores = scenario.cluster.shared_cores
        if cores is not None and use.cores >= _SATURATED and scenario.ranks + scenario.servers > cores:
            remedy = "more cores or less work on messages, servers and compute would help"
            detail, busy = f"contention for the {cores:g} cores that all nodes share", f"they are {format_share(use.cores)} busy"
            return Why("shared-cores", detail, remedy, busy), "compute", True
        if use.busiest_server >= _SATURATED:
            return self._why("server"), "server", True
        if use.busiest_link >= _SATURATED * (1.0 - self.taken):
            return self._network(saturated=True), "communication", True
        largest = max(self.shares, key=lambda part: self.shares[part])
        step_s = self.parts.total
        if largest == "waiting" and scenario.input is not None and min(batch_s(scenario) / step_s, 1.0) >= _SATURATED:
            input_share, waiting = self.shares["input"], self.shares["waiting"]
            detail, remedy = _of_input(scenario, step_s * (1.0 - input_share - waiting))
            return Why("input", detail, remedy, share=input_share + waiting), "input", True
        return self._why(largest), largest, False

    # -- how it is said ------------------------------------------------------------------

    def _one(self, part: Part, why: Why, gains: Gains | None = None) -> Bottleneck:
        """Describe one limit: its share of a step, or both shares if another group takes more."""
        share = why.share if why.share is not None else self.shares[part] + (self.shares["waiting"] if why.waits else 0.0)
        largest, rival = max(self.shares, key=lambda each: self.shares[each]), None
        larger: dict[str, object] = {}
        most, takes = self.shares[largest], _TAKES[why.group]
        if why.group == "communication" and share < _LITTLE:
            text = f"Communication is the limit, although compute hides it{why.mostly}"
        elif why.name == "shared-cores":
            text = f"Compute limits, mostly {why.detail}: {why.evidence}"
        elif most > share and why.share is None and (other := self._why(largest)).group != why.group:
            rival, larger = largest, {"larger": other.group, "larger_share": most}
            more = f"limits more than {_TAKES[other.group]} ({format_share(most)})"
            text = f"{_capital(takes)} ({format_share(share)} of a step) {more}{why.mostly}"
        else:
            text = f"{_capital(takes)} takes {format_share(share)} of a step{self._included(why)}{why.mostly}"
        remedy = why.remedy
        if why.group == "compute" and self.shares["waiting"] >= _LARGE and (bubble := self._of_stages()) is not None:
            remedy += f"; {_TAKES['pipeline']} takes {format_share(self.shares['waiting'])}: {bubble.remedy}"
        tried = _trials(gains, why.group, together=False)
        own = [trial for trial in tried if rival is not None and trial.change == CHANGES[rival].words]
        others = [trial for trial in tried if trial not in own and (trial.gain >= _LITTLE or trial is tried[0])]
        told = [*others[: _TRIALS - len(own)], *own]
        return _limit(why, text, remedy, tried, told, share=None if why.name == "shared-cores" else share, **larger)

    def _included(self, why: Why) -> str:
        """What the share of compute includes, as the end of a sentence."""
        updates = why.name == "compute" and not self.scenario.servers and self.parts.apply >= _LITTLE * self.parts.total
        included = [*(["update"] if updates else []), *(["waiting for the slowest worker"] if why.waits else [])]
        return f", {listed(included)} included" if included else ""

    def _both(self, first: tuple[Part, Why], second: tuple[Part, Why], gains: Gains | None = None, both: float | None = None) -> Bottleneck:
        """Describe two limits that limit together."""
        (part, why), (other_part, other) = first, second
        shares = self.shares[part], self.shares[other_part]
        told_shares = " and ".join(map(format_share, shares))
        text = f"{_capital(_TAKES[why.group])} and {_TAKES[other.group]} limit together ({told_shares} of a step)"
        detailed = next((each for each in (why, other) if each.group == "communication" and each.detail), None)
        if detailed is not None:
            text += f"; communication is mostly {detailed.detail}"
        remedy = f"changing only one helps little: {why.remedy}; {other.remedy}".replace(" would help most", " would help")
        tried = _trials(gains, why.group, together=True)
        told = [trial for trial in tried if trial.change in (CHANGES[part].words, CHANGES[other_part].words)]
        if both is not None:
            pair = Trial(change=BOTH, gain=both)
            tried, told = sorted([*tried, pair], key=lambda trial: -trial.gain), [*told, pair]
        return _limit(why, text, remedy, tried, told, share=shares[0], balance=other.name, balance_share=shares[1])

    # -- what of a group -----------------------------------------------------------------

    def _why(self, part: Part, within: Mapping[Component, float] | None = None) -> Why:
        """The limit within a part, from trials of components of communication if there are any."""
        scenario = self.scenario
        match part:
            case "compute":
                return self._computing()
            case "input" if scenario.layout.client:
                return Why("client", "one client that feeds all workers", _BETWEEN_GRAPH)
            case "input":
                return Why("input", *_of_input(scenario, self.parts.total * (1.0 - self.shares["input"])))
            case "waiting" if scenario.strategy.pace.coordinated:
                return Why("coordinator", "handing out the next step", "let workers drive themselves, or make steps longer")
            case "waiting":
                remedy = "workers of equal speed or an asynchronous mode would help"
                return self._of_stages() or Why("stragglers", "", remedy)
            case "server":
                busy = self.use.busiest_server
                evidence = f"the busiest is {format_share(busy)} busy" if busy >= _SATURATED else ""
                return Why("server", "", "more servers or a cheaper update would help", evidence)
        exposed = self.shares["communication"]
        why = limit_of_exchanges(exposed * self.parts.total, self.exchanges) if exposed >= _LITTLE else None
        return why or self._of_messages(within or {})

    def _computing(self) -> Why:
        """Compute, including devices shared by several replicas; the update is part of it."""
        scenario, parts = self.scenario, self.parts
        each, faster = scenario.cluster.replicas_per_device, "a faster device or a smaller model would help most"
        if not scenario.servers and parts.apply > parts.compute:
            return Why("apply", "the optimizer's update", "a cheaper optimizer or fewer updates would help")
        if each == 1:
            return Why("compute", "", faster)
        detail = f"contention between the {each} replicas of each device"
        if scenario.cluster.device_sharing == "saturated":
            return Why("compute", detail, faster)
        share, slower = scenario.workload.busy_share(scenario.batch), crowding(scenario)
        alone = (
            f"a single replica keeps the device busy for {format_share(share)} of its time, so each takes {slower:.3g} times as long as "
            "it would alone"
        )
        idle = each * share < 1
        return Why("compute", "" if idle else detail, f"{alone}: {'more of them' if idle else 'a faster device'} would help most")

    def _of_stages(self) -> Why | None:
        """Cause of stages waiting for each other; None if copies wait for the slowest instead."""
        share, stages, bubble = self.shares["waiting"], self.stages, self.scenario.strategy.model_parallel(self.scenario).bubble
        if not stages or bubble is None:
            return None
        busy = [stage.busy for stage in stages]
        mean, slowest = math.fsum(busy) / len(busy), max(range(len(busy)), key=lambda stage: busy[stage])
        times = busy[slowest] / mean if mean else 1.0
        if times >= _SLOW:
            return Why("slow-stage", f"stage {slowest}, which computes {times:.2f} times as long as the mean stage", bubble.evener)
        if bubble.share < share / 2 and not isinstance(self.scenario.workload.jitter, Constant):
            return None
        return Why("pipeline-bubble", "the bubble of the pipeline", f"stages wait {bubble.because}: {bubble.fuller} would help")

    def _of_messages(self, within: Mapping[Component, float]) -> Why:
        """The limit within communication: the component with the largest gain, unless the use of links points to one with almost the same
        gain."""
        guess = self._by_use()
        if not within:
            return guess
        best = max(within, key=lambda component: within[component])
        own = next(component for component, names in _OF_COMPONENT.items() if guess.name in names)
        if within[best] <= CLOSE * max(within.get(own, 0.0), 0.0):
            return guess
        if best == "latency":
            return self._latency()
        if best == "hosts":
            return self._hosts()
        return self._links()

    def _by_use(self) -> Why:
        """The limit within communication, from the utilisation of the busiest link."""
        scenario, used, free = self.scenario, self.use.busiest_link, 1.0 - self.taken
        share = self.shares["communication"]
        if share < _LITTLE or used >= _SATURATED * free:
            return self._network(saturated=used >= _SATURATED * free)
        cap = scenario.cluster.transport.flow_cap_bytes_per_s
        link_bytes_per_s = scenario.cluster.link_of(0).bandwidth_bytes_per_s / scenario.cluster.transport.wire_bytes_per_byte
        if cap is not None and cap < 0.9 * link_bytes_per_s and scenario.nodes_needed > 1 and used < _SATURATED / 2 * free:
            detail = f"the rate of one connection ({format_rate(cap)} on a link of {format_rate(link_bytes_per_s)})"
            return Why("network", detail, "more simultaneous connections would help")
        # pulls and pushes, or copies out and back, take the two directions of a link by turns, each busy for half of it at most
        by_turns = scenario.servers or (self.busiest is not None and self.busiest.kind in _HOST_LINKS)
        in_use = min(used * (2 if by_turns else 1) / share / free, 1.0)
        return self._latency() if in_use < _HALF else self._network()

    def _latency(self) -> Why:
        """Latency, with the number of messages in sequence if known."""
        messages = self._messages
        of = f"latency of {messages:,} messages" if messages else "latency"
        return Why("latency", of, "fewer and larger messages or lower latency would help")

    @property
    def _messages(self) -> int:
        """Messages in sequence of a worker's step with rings; 0 if unknown."""
        scenario = self.scenario
        if messages := scenario.strategy.messages_a_step(scenario):
            return messages
        if not self.all_reduces or any("ring" not in reduced.algorithm for reduced in self.all_reduces):
            return 0
        return buckets_a_step(scenario) * 2 * (scenario.replicas - 1)

    def _hosts(self) -> Why:
        """Work of hosts on messages."""
        if self.busiest is not None and self.busiest.kind in _HOST_WORK:
            return self._network(saturated=True)
        return Why("host-cpu", "host CPU per message", "fewer and larger messages or faster cores would help")

    def _links(self) -> Why:
        """Bandwidth of links, unless another component of communication is busiest."""
        if self.busiest is not None and self.busiest.kind not in _HOST_WORK:
            return self._network()
        if self.scenario.servers:
            return Why("server-network", "the servers' links", f"{_lighter(self.scenario)} would help")
        return Why("network", "link bandwidth", "a faster network or smaller gradients would help")

    def _network(self, *, saturated: bool = False) -> Why:
        """The limit that the busiest link shows."""
        scenario, busiest = self.scenario, self.busiest
        busy = f"{busiest} is {format_share(self.use.busiest_link)} busy" if saturated and busiest is not None else ""
        if self.taken:
            busy = f"background traffic leaves {format_share(1.0 - self.taken)} of the busiest link"
        if busiest is None:
            return Why("network", "link bandwidth", "a faster network or smaller gradients would help", busy)
        if busiest.kind in _HOST_WORK:
            work = "message" if busiest.kind == PortKind.MESSAGES else "byte"
            servers = ", more parameter servers" if _holds_server(scenario, busiest) else ""
            busy = f"{busiest.owner} is {format_share(self.use.busiest_link)} busy" if saturated else ""
            where = " on a saturated server" if saturated and servers else ""
            return Why("host-cpu", f"host CPU per {work}{where}", f"fewer and larger messages{servers} or faster cores would help", busy)
        if _holds_server(scenario, busiest):
            return Why("server-network", "the servers' links", f"{_lighter(scenario)} would help", busy)
        if busiest.kind in (PortKind.LEAF_UP, PortKind.LEAF_DOWN):
            return Why("fabric", "links between switches", "less oversubscription or workers under fewer leaves would help", busy)
        if busiest.kind in _HOST_LINKS:
            return Why("host-link", "links between device and host", "direct transfers between devices would help", busy)
        if busiest.owner.kind in ("client node", "client"):
            return Why("client", "the link of one client that feeds all workers", _BETWEEN_GRAPH, busy)
        return Why("network", "link bandwidth", "a faster network or smaller gradients would help", busy)


def _limit(why: Why, text: str, remedy: str, tried: Sequence[Trial], told: Sequence[Trial], **more: object) -> Bottleneck:
    """The limit, its trials, and the trials in its text."""
    text = f"{text}."
    if told:
        text += " " + sentence("; ".join(f"{trial.change}: {format_change(trial.gain)}" for trial in told))
    known = {"name": why.name, "detail": why.detail, "text": text, "remedy": sentence(remedy), "tried": tuple(tried)}
    return Bottleneck.model_validate({**known, **more})


def _trials(gains: Gains | None, group: LimitGroup, *, together: bool) -> list[Trial]:
    """All trials, best first; components of communication replace it if it is the only limit."""
    if gains is None:
        return []
    alone, parts = [(CHANGES[part].words, gain) for part, gain in gains.alone.items()], []
    if group == "communication" and gains.within and not together:
        alone = [(CHANGES[part].words, gain) for part, gain in gains.alone.items() if part != "communication"]
        parts = [(WITHIN[component].words, gain) for component, gain in gains.within.items()]
    return [Trial(change=change, gain=gain) for change, gain in sorted([*alone, *parts], key=lambda tried: -tried[1])]


def _holds_server(scenario: Scenario, link: PortName) -> bool:
    """Return whether a link belongs to a node with a parameter server, but not to every worker's node."""
    if link.owner.kind in ("server node", "server"):
        return True
    if not scenario.layout.servers_beside:
        return False
    return link.owner.kind == "node" and link.owner.number < scenario.servers < scenario.worker_nodes


def _lighter(scenario: Scenario) -> str:
    """How to relieve the fullest server."""
    held = [0.0] * scenario.servers
    for variable in scenario.strategy.tensors(scenario).variables:
        held[variable.server] += variable.size_bytes
    share = max(held) / math.fsum(held)
    if scenario.servers == 1 or share < _UNEVEN / scenario.servers:
        return "more servers or faster links"
    fullest = f"1 of {scenario.servers} servers holds {format_share(share)} of the bytes"
    return f'{fullest}, so a partitioner, variable_placement = "traffic" or faster links'


def _of_input(scenario: Scenario, rest_s: float) -> tuple[str, str]:
    """The limiting part of an input pipeline in words, and what would help; ``rest_s``: mean seconds of a step without it."""
    pipeline, prepared = scenario.input, pipelines(scenario)
    if pipeline is None or prepared is None:
        return "", "prepare batches faster or in parallel"
    batch_s = float(prepared.fair_s.max())
    takes = f"a pipeline needs {format_seconds(batch_s)} for a batch"
    if batch_s < rest_s:
        ahead = (
            "no batch is prepared ahead"
            if not pipeline.prefetch
            else (f"times vary, and at most {pipeline.prefetch:,} batches are ready ahead")
        )
        remedy = (
            f"{takes} on average, less than the rest of a step, but {ahead}: more prefetch (input.prefetch = "
            f"{max(2 * pipeline.prefetch, 1):,}) would hide it"
        )
        return "too little prefetch", remedy
    cache = "" if pipeline.cached is not None else " or a cache of prepared data (input.cached)"
    cluster, storage = scenario.cluster, scenario.cluster.storage
    match prepared.limit:
        case "serial part":
            detail, less = "the serial part of the pipeline", "a cheaper iterator (more calls or prefetch do not shorten it)"
        case "parallel part":
            detail, less = f"the parallel part of the pipeline, with {prepared.calls:,} calls", "more calls (input.parallel_calls)"
        case "host cores":
            detail, less = f"the {cluster.host_cores:,} cores of a node", "more cores (cluster.host_cores)"
        case "network":
            detail, less = "reading over the links of nodes", "faster links, smaller records"
        case limit:
            assert storage is not None
            rate = storage.bandwidth_bytes_per_s if limit == "storage" else storage.node_bandwidth_bytes_per_s
            assert rate is not None
            whom = "all pipelines" if limit == "storage" else "a node"
            detail, less = f"storage, which delivers {format_rate(rate)} to {whom}", "faster storage, smaller records"
    return detail, f"{takes}: {less}{cache} would help"
