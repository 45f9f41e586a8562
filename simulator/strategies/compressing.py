"""What compressing gradients costs where a scenario does not say: the device that compresses, and the assumption that a result lists.

All-reduce and parameter servers share it. Bytes and seconds are computed in :mod:`simulator.spec.gradients`.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulator.base.text import format_rate, format_seconds
from simulator.spec.accelerator import memory_bandwidth_of
from simulator.spec.gradients import Compression
from simulator.strategies.setup import Setup
from simulator.strategies.strategy import LeftOpen


def device_of_training(setup: Setup) -> str:
    """The device that trains: the cluster's, or that which the workload's times are of; empty where neither names one."""
    return setup.cluster.device or setup.workload.device


def cost_left_open(compression: Compression, setup: Setup, cost_s: tuple[float, float]) -> Iterator[LeftOpen]:
    """That the cost of compression is not given, and what it is taken as; ``cost_s`` before and after what is sent."""
    given = compression.compress_per_byte_s, compression.decompress_per_byte_s
    if None not in given:
        return
    device = device_of_training(setup)
    rate = memory_bandwidth_of(device)
    if rate is None:
        reason = f"models/devices does not know {device!r}" if device else "neither cluster nor workload names a device"
        reason = f"{reason}, so compression costs nothing here; measure it and give both"
    else:
        reason = (
            f"the least that it can be: what {device!r} moves at {format_rate(rate)} to and from its memory; implementations take "
            "longer, above all to find the largest values: measure it and give both"
        )
    before, after = map(format_seconds, cost_s)
    path = "strategy.compression.compress_per_byte_s, decompress_per_byte_s"
    yield LeftOpen(path, f"{before} before, {after} after a step's messages", reason)
