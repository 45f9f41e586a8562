"""Likely mistakes in a scenario, and what its figures leave out.

Nothing is refused: keys without effect, multiples that look like percentages and figures outside the usual range become warnings of the
result. Keys are listed here as text (``_of_the_cluster``, ``_of_the_strategy``, ``_of_the_rest``); add a key there if other keys can make
it useless. Ranges of figures are in their types (``Usual``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from simulator.base.spec import Spec
from simulator.base.text import counted, written
from simulator.base.validation_errors import implausible
from simulator.memory import not_checked
from simulator.resolve.resolve import resolve
from simulator.scenario import Scenario
from simulator.spec.figures import Warned


class LeftOut(Spec):
    """One thing that the figures do not include."""

    name: str
    text: str


def left_out(scenario: Scenario) -> tuple[LeftOut, ...]:
    """List what throughput, time and cost of a scenario do not include, each with the reason.

    >>> from simulator.catalogue.loading import load_scenario
    >>> [each.name for each in left_out(load_scenario("ring"))]
    ['preparing input', 'whether a batch fits into memory', 'start-up, evaluation and checkpoints', 'failures of nodes']
    """
    load, price = scenario.workload, scenario.cluster.price
    left = []
    if not load.input(scenario.batch) and scenario.input is None:
        text = "no time is given (input, workload.input), so every batch is ready when needed"
        left.append(LeftOut(name="preparing input", text=text))
    if (why := not_checked(resolve(scenario))) is not None:
        left.append(LeftOut(name="whether a batch fits into memory", text=f"not checked: {why}"))
    if scenario.job is None:
        left.append(LeftOut(name="start-up, evaluation and checkpoints", text="without a [job], only training steps count"))
    at_spot = price is not None and (price.preemption is not None or "spot" in price.terms.lower())
    spot = "; at a spot price they can be preempted during a run" if at_spot else ""
    spot += ", which only a [job] simulates" if spot and scenario.job is None else ""
    if scenario.faults is None:
        text = f"nodes are assumed never to fail or be preempted, and no step is repeated{spot}"
        left.append(LeftOut(name="failures of nodes", text=text))
    if price is not None:
        left.append(LeftOut(name="storage and transfer of data", text="only nodes are priced"))
    return tuple(left)


def left_out_in_words(things: Iterable[LeftOut]) -> str:
    """Their names, as the end of a sentence."""
    return "; ".join(each.name for each in things)


_TIMES = 5.0
"""Above this a factor is more likely a percentage: working nodes are seldom five times slower than others."""
_SPEED = 10.0
"""Above this a relative speed is more likely a percentage."""
_WIRE = 3.0
"""Above this there are more than two bytes of headers and encoding per byte of data; LL, the most wasteful protocol, has one."""
_OF_TIME, _OF_SPEED, _OF_BYTES = "the time of a step", "the speed of the measured device", "the bytes that are sent"
"""Quantities that such factors multiply."""
_IN_PIECES = ("double-binary-tree", "sharp", "nvls", "auto")


def misread(scenario: Scenario) -> Iterator[Warned]:
    """Warn about keys whose meaning may differ from the intention."""
    for path, value, why in (*_of_the_cluster(scenario), *_of_the_strategy(scenario), *_of_the_rest(scenario)):
        yield Warned.of("no-effect", _plain(value), f"{path} = {_shown(value)} has no effect: {why}", path)
    for path, times, of_what, meant in _multiples(scenario):
        factor = written(times, "setting")
        text = f"{path} = {factor} means {factor} times {of_what}; for {factor}% give {written(meant, 'setting')}"
        yield Warned.of("as-multiple", times, text, path)
    for doubt in implausible(scenario):
        yield Warned.of("implausible", doubt.value, doubt.text, doubt.path, doubt.range)
    yield from _idle_or_joined(scenario)


Unfelt = tuple[str, Any, str]
"""Dotted path of a key, its value, and why it has no effect."""


def _of_the_cluster(scenario: Scenario) -> Iterator[Unfelt]:
    cluster, strategy, nodes = scenario.cluster, scenario.strategy, scenario.nodes_needed
    fabric, default = cluster.fabric, type(cluster).model_fields
    alone = "no device has several replicas (cluster.replicas_per_device)"
    if cluster.replicas_per_device == 1:
        if cluster.device_sharing != "saturated":
            yield "cluster.device_sharing", cluster.device_sharing, alone
        if cluster.intra_device is not None:
            yield "cluster.intra_device", cluster.intra_device.bandwidth_bytes_per_s, alone
    if cluster.shared_cores is None and cluster.time_slice_s != default["time_slice_s"].default:
        yield "cluster.time_slice_s", cluster.time_slice_s, "nodes share no cores (cluster.shared_cores)"
    if cluster.host_link is None and cluster.devices_per_host_link > 1:
        yield "cluster.devices_per_host_link", cluster.devices_per_host_link, "the cluster has no host link (cluster.host_link)"
    if not cluster.pxn and (fabric is None or not fabric.rail_optimised):
        yield "cluster.pxn", cluster.pxn, "it applies only to a rail-optimised fabric (cluster.fabric.rail_optimised)"
    if cluster.rails == 1:
        yield "cluster.rails", 1, "one rail for all devices is the default"
    by_switches = strategy.reduction is not None and strategy.reduction.algorithm in ("sharp", "auto")
    if fabric is not None and 1 < nodes <= fabric.nodes_per_leaf and not fabric.rail_optimised and not by_switches:
        why = f"all {counted(nodes, 'node')} of this run are on one leaf, so nothing crosses the spines"
        yield "cluster.fabric.nodes_per_leaf", fabric.nodes_per_leaf, why


def _of_the_strategy(scenario: Scenario) -> Iterator[Unfelt]:
    own, defaults = scenario.strategy.given_and_default()

    def is_set(name: str) -> bool:
        return name in own and own[name] != defaults[name]

    experts = any(layer.experts is not None for layer in scenario.workload.layers)
    alone = experts and own.get("expert") == 1
    no_experts = "every device has all experts (strategy.expert = 1)" if alone else "no layer of the workload has experts"
    whole = own.get("algorithm") not in _IN_PIECES
    for name, idle, why in (
        ("capacity", not experts or (alone and not own.get("pad_to_capacity")), no_experts),
        ("expert_imbalance", not experts or alone, no_experts),
        ("expert_tensor", not experts, "no layer of the workload has experts"),
        ("host_factor", not own.get("on_host"), "no layer is on the host (strategy.on_host)"),
        ("sequence_parallel", own.get("tensor") == 1, "no tensor is split (strategy.tensor)"),
        ("prefetch", own.get("shard") != "parameters", 'copies share no parameters (strategy.shard = "parameters")'),
        ("weights_share", own.get("schedule") != "zero-bubble", 'it applies only to strategy.schedule = "zero-bubble"'),
        ("pipeline_chunk_bytes", whole, "its algorithm does not send in pieces (double-binary-tree, sharp and nvls do)"),
    ):
        if is_set(name) and idle:
            yield f"strategy.{name}", own[name], why


def _of_the_rest(scenario: Scenario) -> Iterator[Unfelt]:
    run, job, pace = scenario.run, scenario.job, scenario.strategy.pace
    together = "it applies only to asynchronous workers"
    if not pace.asynchronous:
        if run.sharing != "shared":
            yield "run.sharing", run.sharing, together
        if run.drain:
            yield "run.drain", run.drain, together
    if job is None:
        return
    epochs = job.total_samples / job.epoch_samples
    every = {
        "job.evaluation.every_epochs": job.evaluation.every_epochs if job.evaluation is not None else None,
        "job.checkpoint.every_epochs": job.checkpoint.every_epochs if job.checkpoint is not None else None,
    }
    for path, interval in every.items():
        if interval is not None and interval > epochs:
            yield path, interval, f"the job ends earlier, after {written(epochs, 'setting')} epochs"
    if job.checkpoint is not None and job.checkpoint.mode == "blocking" and job.checkpoint.snapshot is not None:
        yield "job.checkpoint.snapshot", "given", 'it applies only to job.checkpoint.mode = "asynchronous"'
    if job.checkpoint is not None and job.checkpoint.interval == "best" and scenario.faults is None:
        yield "job.checkpoint.interval", "best", "nothing fails at this price, so no checkpoint is written"
    if job.iterators == "kept" and not scenario.waits_for_iterators:
        yield "job.iterators", job.iterators, "with parameter servers or asynchronous workers, nothing waits for all iterators to end"
    faults = job.faults
    if faults is not None and faults.min_workers > 1 and not faults.elastic and not pace.asynchronous:
        yield "job.faults.min_workers", faults.min_workers, "all wait for a worker that crashed (job.faults.elastic)"


def _multiples(scenario: Scenario) -> Iterator[tuple[str, float, str, float]]:
    """Dotted path of a factor, the factor, what it multiplies, and its value if a percentage was meant."""
    cluster, times = scenario.cluster, list[tuple[str, float]]()
    slow = cluster.slow_nodes
    if slow is not None and slow.share:
        times.append(("cluster.slow_nodes.factor" + (".1" if isinstance(slow.factor, tuple) else ""), slow.between[1]))
    slowdowns = [("cluster.slowdown.factor", cluster.slowdown)]
    slowdowns += [(f"cluster.node_classes.{place}.slowdown.factor", kind.slowdown) for place, kind in enumerate(cluster.node_classes)]
    times += [(path, slowdown.factor) for path, slowdown in slowdowns if slowdown is not None]
    yield from ((path, factor, _OF_TIME, 1.0 + factor / 100) for path, factor in times if factor >= _TIMES)
    speeds = [(f"cluster.node_classes.{place}.speed", kind.speed) for place, kind in enumerate(cluster.node_classes)]
    speeds += [(f"cluster.node_speed.{place}", speed) for place, speed in _largest(cluster.node_speed)]
    speeds += [(f"cluster.upgrades.{place}.device_speed", upgrade.device_speed) for place, upgrade in enumerate(cluster.upgrades)]
    yield from ((path, speed, _OF_SPEED, speed / 100) for path, speed in speeds if speed >= _SPEED)
    wires = [("cluster.transport.wire_bytes_per_byte", cluster.transport.wire_bytes_per_byte)]
    wires += [
        (f"cluster.protocols.{name}.wire_bytes_per_byte", getattr(cluster.protocols, name).wire_bytes_per_byte)
        for name in ("ll", "ll128", "simple")
    ]
    yield from ((path, wire, _OF_BYTES, 1.0 + wire / 100) for path, wire in wires if wire > _WIRE)


def _largest(values: Sequence[float]) -> list[tuple[int, float]]:
    """The largest of a list with its index; nothing if empty."""
    return [max(enumerate(values), key=lambda pair: pair[1])] if values else []


def _idle_or_joined(scenario: Scenario) -> Iterator[Warned]:
    """Replicas that share devices while machines are idle; rails without separate leaves."""
    cluster, needed, sharing = scenario.cluster, scenario.nodes_needed, min(scenario.ranks, scenario.cluster.replicas_per_device)
    if sharing > 1 and cluster.nodes is not None and cluster.nodes > needed:
        yield Warned.of(
            "shared-beside-idle", cluster.replicas_per_device, f"up to {counted(sharing, 'replica')} share a device while "
                                                               f"{cluster.nodes - needed:,} of {counted(cluster.nodes, 'node')} are "
                                                               "idle, because workers fill node after node: lower "
                                                               "cluster.replicas_per_device to spread them",
        )  # fmt: skip
    if cluster.rails not in (None, 1) and cluster.fabric is None and needed > 1:
        yield Warned.of(
            "one-switch", cluster.rails, f"cluster.rails = {cluster.rails} sets which NIC a device uses, but all rails join one switch "
                                         "that is never the bottleneck; for separate leaves give cluster.fabric with rail_optimised = "
                                         "true",
        )  # fmt: skip


def _plain(value: Any) -> float | str:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else _shown(value).strip('"')


def _shown(value: Any) -> str:
    """The value as in a file; for a table its kind."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return written(value, "setting")
    return f'"{value}"' if isinstance(value, str) else f'"{getattr(value, "kind", value)}"'
