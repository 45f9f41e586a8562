"""What limits a training that cuts its model: the pipeline's bubble, a slow stage, exchanges that passes wait for."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.distributions import Constant
from simulator.figures import Bottleneck, Exchange, Limit, Stage
from simulator.scenario import Scenario
from simulator.strategies.hybrid.hybrid import Hybrid
from simulator.text import format_share

__all__ = ["bubble_share", "limit_of_exchanges", "limit_of_waiting", "note_on_bubble", "slowest_stage"]

_SLOW = 1.15
"""A stage that computes this many times as long as the mean of all holds the others up."""
_LARGE = 0.2
"""A bubble of this share of a step is worth a word where it is not the limit."""


def bubble_share(strategy: Hybrid, micro_batches: int) -> float:
    """Share of a step in which a stage of a balanced pipeline stands still, with nothing spent on messages.

    (p - 1) / (v m + p - 1) of p stages, m micro-batches and v chunks a stage (Narayanan et al., SC 2021, section 2.2); with
    gradients of weights computed apart F + B - W of each F + B + W is left (ZB-H1: Qi et al., ICLR 2024, table 2), taken here with a
    backward pass B + W of two forward passes. None of a pipeline that is not flushed.
    """
    if strategy.schedule == "pipedream":
        return 0.0
    left = max(1.0 - 4.0 / 3.0 * strategy.weights_share, 0.0) if strategy.schedule == "zero-bubble" else 1.0
    idle = (strategy.pipeline - 1) * left
    return idle / (strategy.chunks * micro_batches + idle)


def slowest_stage(stages: Sequence[Stage]) -> tuple[int, float]:
    """The stage that computes longest, and how many times as long as the mean of all."""
    busy = [its.busy for its in stages]
    mean = sum(busy) / len(busy)
    slowest = max(range(len(busy)), key=lambda stage: busy[stage])
    return slowest, busy[slowest] / mean if mean else 1.0


def limit_of_waiting(scenario: Scenario, share: float, stages: Sequence[Stage]) -> Bottleneck | None:
    """What the time stands for in which stages wait for each other; none where it is that copies wait for the slowest.

    Parameters
    ----------
    scenario
        What was simulated.
    share
        Of a step that is spent waiting.
    stages
        Of its pipeline.
    """
    strategy = scenario.strategy
    if not stages or not isinstance(strategy, Hybrid):
        return None
    stage, times = slowest_stage(stages)
    if times >= _SLOW:
        text = f"Stages wait for each other for {format_share(share)} of a step, and stage {stage} takes {times:.2f} x the mean of all: "
        evenly = "fewer stages, or a workload whose layers are cut finer, would help: no cut of these is more even."
        unevenly = 'strategy.stages = "balanced" moves layers from it to others.'
        return Bottleneck(name="slow-stage", text=text + (evenly if strategy.stages == "balanced" else unevenly))
    expected = bubble_share(strategy, scenario.training.micro_batches)
    if expected < share / 2 and not isinstance(scenario.workload.jitter, Constant):
        return None
    text = f"The stages of the pipeline stand still for {format_share(share)} of a step"
    return Bottleneck(name="pipeline-bubble", text=f"{text}, {_filled(scenario, strategy)}; {_fuller(strategy)} would help.")


def note_on_bubble(scenario: Scenario, share: float, stages: Sequence[Stage]) -> str:
    """A sentence on the bubble where it is large though it is not the limit; else nothing."""
    limit = limit_of_waiting(scenario, share, stages) if share >= _LARGE else None
    return "" if limit is None else f" {limit.text}"


def _filled(scenario: Scenario, strategy: Hybrid) -> str:
    count, stages = scenario.training.micro_batches, strategy.pipeline
    if strategy.schedule == "pipedream":
        return "though it is never flushed"
    batches = f"{count} micro-batch{'es' if count > 1 else ''} {'go' if count > 1 else 'goes'} through its {stages} stages"
    return f"as {batches} ({strategy.schedule})"


def _fuller(strategy: Hybrid) -> str:
    """What makes a bubble smaller."""
    if strategy.schedule == "pipedream":
        return "stages of even speed"
    more = ", interleaved chunks or a zero-bubble schedule" if strategy.schedule in ("1f1b", "gpipe") else ""
    return f"more micro-batches{more}"


def limit_of_exchanges(taken: str, exposed_s: float, exchanges: Sequence[Exchange]) -> Bottleneck | None:
    """What the communication is that nothing hides: of those exchanges that can make it up, the longest.

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
    amid = [its for its in exchanges if its.amid]
    # passes wait for these whatever else goes on; what is left over comes of those that passes may hide
    longest = max(amid if sum(its.seconds for its in amid) >= exposed_s / 2 else exchanges, key=lambda its: its.seconds)
    name: Limit = "exchange" if longest.amid or (longest.among == "shards" and longest.does == "all-gather") else "network"
    return Bottleneck(name=name, text=f"Communication that no pass hides takes {taken}, most of it {_what(longest)}; {_less(longest)}.")


_OF = {
    "tensor": "devices that split tensors",
    "experts": "devices that experts are spread over",
    "tensor and experts": "devices that split tensors and have experts",
    "shards": "copies that share one state",
    "alike shards": "copies that have the same part of the state",
    "alike experts": "copies that have the same experts",
    "copies": "copies of the model",
}


def _what(its: Exchange) -> str:
    if its.among == "stages":
        return f"{its.does} that stages hand on {its.links}"
    return f"the {its.does} among {its.devices} {_OF[its.among]}, {its.links}"


def _less(its: Exchange) -> str:
    """What would make it shorter."""
    match its.among:
        case "tensor" if its.links == "between nodes":
            return "splitting tensors inside nodes only would help most"
        case "tensor" | "tensor and experts":
            return "splitting tensors over fewer devices, or faster links between them, would help"
        case "experts":
            return "experts spread over fewer devices, a capacity, or a faster network would help"
        case "shards" if its.does == "all-gather":
            return 'shard = "gradients", fewer micro-batches, a larger prefetch or a shard_group inside a node would help'
        case "stages":
            return "fewer stages, or stages of one copy next to each other (order), or a faster network would help"
        case _:
            return "smaller buckets that passes hide (bucket_size), more micro-batches a step, or a faster network would help"
