"""Sentences about results that more than one place says: the terminal, the report, a plan.

How numbers are written is told by :mod:`simulator.text`.
"""

from __future__ import annotations

from simulator.cost import placement_of, usd_per_hour, usd_per_million_samples
from simulator.figures import Limit
from simulator.results import Result
from simulator.text import format_share, format_usd_per_hour, format_usd_sum

__all__ = ["NOT_CERTAIN", "cost_in_words", "doubled_in_words", "limit_in_words", "variance_in_words"]

NOT_CERTAIN = "effect not certain"
"""Of a change whose interval, run by run, holds 0."""

_EXPOSED = "communication that no computing hides takes {exposed} of each step"
_WORDS = {
    "apply": "updating the model’s variables, which takes {apply} of each step",
    "client": "the one client that feeds all workers with input",
    "compute": "the devices’ own computing, which takes {compute} of each step",
    "coordinator": "the coordinator that hands out the steps: waiting takes {waiting} of each",
    "fabric": f"the links between switches, the busiest in use {{link}} of the time; {_EXPOSED}",
    "host-cpu": "the processors that send and receive the messages, the busiest at work {link} of the time",
    "host-link": f"the links between devices and their hosts, the busiest in use {{link}} of the time; {_EXPOSED}",
    "input": "waiting for input, which takes {input} of each step",
    "latency": f"the delay of each message rather than bandwidth; {_EXPOSED}",
    "network": f"the network, its busiest link in use {{link}} of the time; {_EXPOSED}",
    "server": "the parameter servers’ own work, the busiest at it {server} of the time",
    "server-network": f"the network links of the parameter servers, the busiest in use {{link}} of the time; {_EXPOSED}",
    "shared-cores": "the processor cores that all nodes share, in use {cores} of the time",
    "stragglers": "waiting for the slowest worker, which takes {waiting} of each step",
}


def limit_in_words(result: Result) -> str:
    """The limit as the end of a sentence, with the shares that show it; no part of the cluster is called by its name."""
    parts, use = result.breakdown_s, result.utilisation
    step_s = parts.input + parts.compute + parts.exposed_communication + parts.waiting + parts.apply

    def of_step(part_s: float) -> str:
        return format_share(part_s / step_s if step_s else 0.0)

    def told(name: Limit) -> str:
        return _WORDS[name].format(
            input=of_step(parts.input),
            compute=of_step(parts.compute),
            exposed=of_step(parts.exposed_communication),
            waiting=of_step(parts.waiting),
            apply=of_step(parts.apply),
            link=format_share(use.busiest_link),
            server=format_share(use.busiest_server),
            cores=format_share(use.cores),
        )

    limit = result.bottleneck
    if limit.balance is None:
        return told(limit.name)
    return f"no single part, for two are in balance: {told(limit.name)}, and {told(limit.balance)}"


def variance_in_words(result: Result) -> str:
    """What the interval of the throughput is made of, and how often such intervals hold; empty where that is not known."""
    scatter, doubt = result.scatter, result.discrepancy
    if scatter is None or not any(scatter.shares):
        return ""
    model, fits, chance = map(format_share, scatter.shares)
    held = doubt.coverage_in_words if doubt is not None else "what the model itself is off by is not in it"
    parts = f"{model} is what the model itself is off by, {fits} what the fits leave open, {chance} run-to-run variation"
    return f"of its variance {parts}; {held}"


def doubled_in_words(count: int) -> str:
    """That results are left out of which there are later ones of the same scenarios; empty where there are none."""
    if not count:
        return ""
    return f"{count:,} result{'s' * (count > 1)} of a scenario that is there twice {'are' if count > 1 else 'is'} left out."


def cost_in_words(result: Result) -> str | None:
    """Price of an hour of all machines, where it is from, and what a million samples cost; None where there is no price."""
    hourly, million, price = usd_per_hour(result.scenario), usd_per_million_samples(result), result.scenario.cluster.price
    if hourly is None or million is None or price is None:
        return None
    said = "; ".join(text for text in (price.terms, price.source) if text)
    text = (
        f"{format_usd_per_hour(hourly)} USD an hour for {placement_of(result.scenario).nodes:,} x "
        f"{format_usd_per_hour(price.usd_per_node_hour)} ({said}); {format_usd_sum(million.mean)} USD for a million samples"
    )
    at_mean = hourly / 3600 / result.throughput_samples_per_s.mean * 1e6
    if format_usd_sum(at_mean) != format_usd_sum(million.mean):
        text += (
            f" (90% of runs: {format_usd_sum(million.low)} to {format_usd_sum(million.high)}; mean over runs, which differ: at the mean "
        )
        text += f"throughput {format_usd_sum(at_mean)})"
    return text
