"""What limits a training that cuts its model: the pipeline's bubble, a slow stage, exchanges that passes wait for.

bottleneck.py asks it. Exchanges are distinguished by the names of ``simulator.spec.figures.Exchange``, which
``simulator.strategies.hybrid.described`` gives them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from simulator.base.text import format_share
from simulator.scenario import Scenario
from simulator.spec.distributions import Constant
from simulator.spec.figures import Bottleneck, Exchange, Limit, Stage

_SLOW = 1.15
"""A stage that computes this many times as long as the mean of all holds the others up."""
_LARGE = 0.2
"""A bubble of this share of a step is worth a word where it is not the limit."""


def slowest_stage(stages: Sequence[Stage]) -> tuple[int, float]:
    """The stage that computes longest, and how many times as long as the mean of all."""
    busy = [its.busy for its in stages]
    mean = math.fsum(busy) / len(busy)
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
    bubble = scenario.strategy.model_parallel(scenario).bubble
    if not stages or bubble is None:
        return None
    stage, times = slowest_stage(stages)
    if times >= _SLOW:
        text = f"Stages wait for each other for {format_share(share)} of a step, and stage {stage} computes {times:.2f} times as long as "
        text += "the mean stage: "
        return Bottleneck(name="slow-stage", text=f"{text}{bubble.evener}.")
    if bubble.share < share / 2 and not isinstance(scenario.workload.jitter, Constant):
        return None
    text = f"The stages of the pipeline stand still for {format_share(share)} of a step"
    return Bottleneck(name="pipeline-bubble", text=f"{text}, {bubble.because}; {bubble.fuller} would help.")


def note_on_bubble(scenario: Scenario, share: float, stages: Sequence[Stage]) -> str:
    """A sentence on the bubble where it is large though it is not the limit; else nothing."""
    limit = limit_of_waiting(scenario, share, stages) if share >= _LARGE else None
    return "" if limit is None else f" {limit.text}"


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
    longest = max(amid if math.fsum(its.seconds for its in amid) >= exposed_s / 2 else exchanges, key=lambda its: its.seconds)
    name: Limit = "exchange" if longest.amid or (longest.among in _SHARDS and longest.does == "all-gather") else "network"
    return Bottleneck(name=name, text=f"Communication that no pass hides takes {taken}, most of it {_what(longest)}; {_less(longest)}.")


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


_SHARDS = "shards", "shards of experts"


def _what(its: Exchange) -> str:
    if its.among == "stages":
        return f"{its.does} that stages hand on {its.links}"
    if its.among == "host":
        return "what a device and its host copy to each other"
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
        case "shards" | "shards of experts" if its.does == "all-gather":
            return 'shard = "gradients", fewer micro-batches, a larger prefetch or a shard_group inside a node would help'
        case "host":
            return "fewer layers on the host, or a faster link to it, would help"
        case "stages":
            return "fewer stages, or stages of one copy next to each other (order), or a faster network would help"
        case _:
            return "smaller buckets that passes hide (bucket_size), more micro-batches a step, or a faster network would help"
