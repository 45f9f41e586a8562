"""What limits a result, for a reader who does not know the parts of a cluster by their names."""

from __future__ import annotations

from simulator.results import Limit, Result
from simulator.text import format_share

__all__ = ["limit_in_words"]

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
