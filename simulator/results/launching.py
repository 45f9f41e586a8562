"""Kernels so small that the host, which launches them one by one, takes longer than the device: what that does to a prediction.

Times that are computed from dimensions are the device's. A framework's host needs microseconds for each kernel
(``launch_s`` of ``models/practice.toml``), and where it needs longer than the kernels themselves the device waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from simulator.base.text import format_number, format_seconds
from simulator.scenario import Resolved
from simulator.spec.constants import Known, constants
from simulator.spec.figures import Bottleneck, Breakdown, Warned


class Launching(NamedTuple):
    """Where launching may decide.

    Attributes
    ----------
    kernels
        Of both passes of a micro-batch, on all stages together.
    kernel_s
        Seconds for which one keeps the device busy in the mean.
    simulated_s
        Seconds that one is simulated to take, its start included.
    launch_s
        Seconds that a framework's host takes for each.
    """

    kernels: int
    kernel_s: float
    simulated_s: float
    launch_s: Known

    @property
    def slower(self) -> tuple[float, float]:
        """By how many times compute may take longer than is simulated: usually, and at the end of a 90% interval."""
        return max(self.launch_s.value / self.simulated_s, 1.0), max(self.launch_s.high / self.simulated_s, 1.0)


def launching(scenario: Resolved) -> Launching | None:
    """How kernels are launched where those of a computed workload are shorter than ``kernel_start_s`` at most; else none."""
    load = scenario.workload
    if not load.is_computed or load.counted is None or not load.counted.kernels:
        return None
    micro_batch = scenario.batch / scenario.training.micro_batches
    tensor = scenario.strategy.held(scenario)[0][0].tensor
    sharing = scenario.cluster.replicas_per_device  # each of which has a host process of its own
    device_s = math.fsum(each.per_sample_s for each in (load.forward, load.backward)) * micro_batch / tensor * sharing
    start, launch = (scenario.practice.get(name, constants()[name].plain) for name in ("kernel_start_s", "launch_s"))
    kernel_s = device_s / load.counted.kernels
    return Launching(load.counted.kernels, kernel_s, max(kernel_s, start.value), launch) if 0.0 < kernel_s < start.high else None


def limit_of_host(scenario: Resolved, parts: Breakdown, limit: Bottleneck) -> Bottleneck:
    """The host in place of another limit, where launching takes longer than each other part of a step."""
    its = launching(scenario)
    if its is None or its.slower[0] * parts.compute < max(parts.input, parts.exposed_communication, parts.apply):
        return limit
    text = (
        f"The host launches kernels more slowly than the device computes them: each of {its.kernels:,} keeps the device busy for "
        f"{format_seconds(its.kernel_s)}, and a framework takes about {format_seconds(its.launch_s.value)} to launch it; CUDA graphs, "
        "larger micro-batches or fewer devices that split tensors would help."
    )
    return Bottleneck(name="host", text=text)


def warned_of_host(scenario: Resolved) -> Iterator[Warned]:
    """Where launching may decide."""
    its = launching(scenario)
    if its is None:
        return
    usual, most = its.slower
    yield Warned(
        code="host-bound", path="workload", value=its.kernel_s, range=(its.launch_s.low, its.launch_s.high),
        text=f"kernels are so small ({format_seconds(its.kernel_s)} each) that launching them decides, which is not simulated: a step "
        f"may take {format_number(usual)} times as long, and up to {format_number(most)} times, unless it is launched as a CUDA graph; "
        "measure it with paceline calibrate",
    )  # fmt: skip
