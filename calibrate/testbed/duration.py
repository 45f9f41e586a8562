"""How long a setting of the testbed takes to run: a guess beforehand, from rates and means alone.

Nothing here predicts: it chooses how many steps a drawn setting runs, and tells a person
how long to wait. It uses +, -, *, / and max alone, so that it is the same number on any
machine; what a random matrix draws depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable

from calibrate.testbed.setting import TestbedSetting
from simulator.distributions import Distribution

__all__ = ["busiest_share", "guessed_compute_s", "guessed_run_s", "guessed_step_s"]

_LOOPBACK_BYTES_PER_S = 1.0e9
_GAP_S = 0.005
"""From a step's end to the next one's begin."""
_MESSAGE_S = 0.002
"""A host's work on a message of a ring."""
_FLOPS = 1.0e11
"""A core's dense matrix products a second, an order of magnitude."""
_FUNCTION_S = 0.02
"""A step of a model whose operations are not known."""
_CORES = 2
_START_S, _START_TASK_S = 3.0, 0.3
"""A repeat's cluster: once, and for each task."""
_IMPORT_S = 5.0
"""TensorFlow, once a setting."""


def guessed_run_s(setting: TestbedSetting, repeats: int) -> float:
    """Seconds of all repeats of a setting, their start and warm-up included."""
    tasks = setting.workers + setting.servers
    return _IMPORT_S + repeats * (_START_S + _START_TASK_S * tasks + (setting.steps + setting.warm_up) * guessed_step_s(setting))


def guessed_step_s(setting: TestbedSetting) -> float:
    """Seconds of a worker's step while all workers run; of processes that take turns, of all turns together."""
    workers = setting.workers
    rate = setting.link.bandwidth_bytes_per_s if setting.link is not None else _LOOPBACK_BYTES_PER_S
    moved_s = setting.moved_bytes / rate
    compute_s = guessed_compute_s(setting)
    if setting.mode == "apart":  # in turns, all together and each alone
        return 2 * workers * compute_s
    if setting.compute.kind == "real":
        compute_s *= max(workers / _CORES, 1.0)
    together_s = compute_s * _of_slowest(setting.compute.law, workers)
    if not setting.servers:
        rounds = 2 * (workers - 1)
        return _GAP_S + together_s + rounds * (moved_s / workers + _MESSAGE_S)
    server_s = workers * moved_s * busiest_share((one.size_bytes for one in setting.variables), setting.servers)
    if setting.mode == "sync":
        return _GAP_S + together_s + 2 * max(moved_s, server_s)
    return max(_GAP_S + compute_s + 2 * moved_s, server_s)


def guessed_compute_s(setting: TestbedSetting) -> float:
    """Seconds of a worker's compute, alone on a core: as it is emulated, or two products forward and four backward a weight and sample."""
    if setting.compute.kind == "emulated":
        return float(setting.compute.mean_s)
    weights = setting.parameter_bytes / 4
    return 6 * weights * setting.batch / _FLOPS if ":" not in setting.model else _FUNCTION_S


def busiest_share(sizes: Iterable[float], servers: int) -> float:
    """Of the bytes, the share of the server that has most, where variables are dealt out one by one."""
    held = [0.0] * servers
    for index, size in enumerate(sizes):
        held[index % servers] += size
    return max(held) / sum(held)


def _of_slowest(law: Distribution, workers: int) -> float:
    """About how much longer the slowest of some workers takes than the mean: exact for an exponential law."""
    variation: float = {"constant": 0.0, "exponential": 1.0, "gamma": 0.4, "lognormal": 0.3}.get(law.kind, 0.3)
    return 1.0 + variation * sum(1.0 / number for number in range(2, workers + 1))
