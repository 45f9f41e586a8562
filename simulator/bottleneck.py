"""What limits a scenario, said in words."""

from __future__ import annotations

from simulator.results import Bottleneck, Breakdown, Utilisation
from simulator.scenario import Scenario

__all__ = ["bottleneck"]

_SATURATED = 0.85
"""In use for this share of the time, a resource counts as the limit."""


def bottleneck(scenario: Scenario, parts: Breakdown, use: Utilisation) -> Bottleneck:
    """Name the saturated resource, or else the largest part of a step."""
    step_s = parts.input + parts.compute + parts.exposed_communication + parts.waiting + parts.apply
    if use.busiest_server >= _SATURATED:
        return _server(f"The busiest parameter server works {use.busiest_server:.0%} of the time on gradients")
    if use.busiest_link >= _SATURATED:
        return _network(scenario, use, f"{use.busiest_link_name!r} carries {use.busiest_link:.0%} of what it can")
    shares = {
        "compute": parts.compute / step_s,
        "input": parts.input / step_s,
        "communication": parts.exposed_communication / step_s,
        "stragglers": parts.waiting / step_s,
        "apply": parts.apply / step_s,
    }
    largest = max(shares, key=lambda name: shares[name])
    share = shares[largest]
    if largest == "compute":
        return Bottleneck(
            name="compute", text=f"The devices compute for {share:.0%} of a step; a faster device or a smaller model would help most."
        )
    if largest == "input":
        return Bottleneck(name="input", text=f"Waiting for input takes {share:.0%} of a step; prepare batches faster or in parallel.")
    if largest == "stragglers":
        return Bottleneck(
            name="stragglers",
            text=f"Waiting for the slowest worker takes {share:.0%} of a step; workers of even speed, or an asynchronous mode, would help.",
        )
    if largest == "apply":
        if scenario.servers:
            return _server(f"Queueing and applying at the parameter servers takes {share:.0%} of a step")
        return Bottleneck(name="apply", text=f"The optimizer's update takes {share:.0%} of a step.")
    # pulls and pushes take the two directions of a link by turns, each busy for half of it at most
    in_use = min(use.busiest_link * (2 if scenario.servers else 1) / share, 1.0)
    if in_use < 0.5:
        return Bottleneck(
            name="latency",
            text=f"Communication takes {share:.0%} of a step, but the busiest link carries bytes in only "
            f"{in_use:.0%} of that: latency dominates; fewer and larger messages, or lower latency, would help.",
        )
    return _network(scenario, use, f"communication that compute does not hide takes {share:.0%} of a step")


def _server(reason: str) -> Bottleneck:
    return Bottleneck(name="server", text=f"{reason}; more servers or a cheaper update would help.")


def _network(scenario: Scenario, use: Utilisation, reason: str) -> Bottleneck:
    reason = reason[0].upper() + reason[1:]
    if scenario.servers and use.busiest_link_name.startswith("server"):
        return Bottleneck(
            name="server-network",
            text=f"{reason}; the links of the parameter servers are the limit: more servers or faster links would help.",
        )
    return Bottleneck(name="network", text=f"{reason}; a faster network or smaller gradients would help.")
