"""Makes the scenario that predicts a testbed setting, from the setting and the machine's parameters.

Parameters are named in platform.py. The scenario must describe what ``calibrate/probes/testbed`` really runs:
``_FORWARD_SHARE`` is the share in its emulated_model.py. tests/calibrate/test_testbed_by_hand.py has step times worked out by hand.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from pydantic import Field

from calibrate.testbed.clocks import work_of_step
from calibrate.testbed.setting import ShapedLink, TestbedSetting
from simulator import scenario_from_table
from simulator.base.errors import InputError
from simulator.base.spec import Spec
from simulator.scenario import Scenario
from simulator.spec.distributions import Distribution

NO_JOBS = "faults and checkpoint_every apply to whole jobs, not to the fit and prediction of steps (docs/jobs.md)"
"""Why a setting with them is refused."""

_FORWARD_SHARE = 1.0 / 3.0
"""Share of the emulated device's step, as the probe divides it."""
_MOST_SLOWDOWN = 10.0
_IN_MEMORY_BYTES_PER_S = 1e15
"""Rate of a link on which bytes are handed over by address: all that they cost is the cores' work."""
_PACKET_BYTES = 45 * 1448
"""Payload of the longest packet that the kernel hands on in one piece: 64 KiB with headers, in whole segments of an Ethernet frame."""
_REQUESTS = 1
"""Short messages to a single server that a pull waits for behind what others push: the request itself. In traces of pushes that end
while others go on, the first byte of the pull follows after the time of the data queued before the server's link, or a little later."""
_SLICE_S, _MOST_CORES = 7.5e-4, 8
"""Linux's base slice grows with the logarithm of the cores, up to eight (``kernel/sched/fair.c``)."""
_MOST_SIGMA = 1.0
"""Spread of weights where the room of a connection is less than a packet; more changes next to nothing."""
_MOST_SAVED = 0.9
"""Share of a message; one of a single packet hardly waits for the wire, but a rate has to be finite."""


class RealCompute(Spec):
    """Measured step time of a real model, alone on the machine, and its slowdown next to others."""

    mean_s: float = Field(gt=0)
    law: Distribution
    mean_error_s: float = Field(default=0.0, ge=0, description="standard error of mean_s, from the scatter of repeats")
    with_call: bool = Field(default=False, description="timed from outside, including the call of the step's function")
    busy_core_slowdown: float = Field(default=0.0, ge=0, description="share by which it slows down per other busy core")
    busy_core_error: float = Field(default=0.0, ge=0, description="its standard error")

    def drawn(self, rng: np.random.Generator) -> RealCompute:
        """Draw another one that is as likely, given the errors."""
        mean, slowdown = rng.standard_normal(2).tolist()
        slower = min(max(self.busy_core_slowdown + slowdown * self.busy_core_error, 0.0), _MOST_SLOWDOWN)
        factor = math.exp(mean * self.mean_error_s / self.mean_s)
        return self.model_copy(update={"mean_s": self.mean_s * factor, "busy_core_slowdown": slower})


def scenario_of(
    setting: TestbedSetting,
    values: dict[str, float],
    cores: float,
    *,
    compute: RealCompute | None = None,
    one_gpu: bool = False,
    replications: int = 19,
    seed: int = 0,
) -> Scenario:
    """The scenario that predicts a setting.

    Parameters
    ----------
    setting
        What is run.
    values
        The machine's parameters by name: see :data:`calibrate.testbed.platform.MEANINGS`.
    cores
        Cores of the machine.
    compute
        What a real model's step takes, measured with nothing else on the machine; needed where the setting computes really.
    one_gpu
        The replicas of MirroredStrategy are logical devices of one GPU, and share it.

    Raises
    ------
    InputError
        The setting has checkpoints or faults, of which this scenario has none.
    """
    if setting.is_job:
        raise InputError(f"{NO_JOBS}; leave them out")
    mean_s, law = setting.compute.mean_s + values["sleep_s"], setting.compute.law
    if compute is not None:
        mean_s, law = compute.mean_s, compute.law
    # without overlap nothing happens between the passes, so that one will do
    forward_s = mean_s * _FORWARD_SHARE if setting.overlap else 0.0
    sleeps_s = (setting.sleeps - 1) * values["layer_sleep_s"] / 2  # in each pass
    # what a worker's own process does between two steps holds nobody else up; asynchronously it stands before the read
    own_s = 0.0
    if setting.mode == "sync":
        own_s = values["session_s"] + values["accumulate_s"]
    elif setting.mode == "ring":
        own_s = values["ring_step_s"]
    elif setting.mode == "mirrored" and not (compute is not None and compute.with_call):
        own_s = values["mirrored_step_s"]
    table = {
        "workload": {
            "name": setting.model,
            "batch_per_replica": setting.batch,
            "forward": {"base_s": forward_s + sleeps_s, "per_sample_s": 0.0},
            "backward": {"base_s": mean_s - forward_s + sleeps_s + own_s, "per_sample_s": 0.0},
            "jitter": law.model_dump(mode="json"),
            "input": {"base_s": _beside_s(setting, values), "per_sample_s": 0.0},
            "busy_core_slowdown": compute.busy_core_slowdown if compute is not None else 0.0,
            "server": {"base_s": values["server_s"], "per_byte_s": values["server_per_byte_s"]},
            "variables": _variables(setting),
        },
        "cluster": _cluster(setting, values, cores, real=compute is not None, one_gpu=one_gpu),
        "strategy": {"kind": "mirrored", "replicas": setting.workers} if one_gpu else _strategy(setting, values),
        "run": _run(setting, replications, seed, one_gpu=one_gpu),
    }
    return scenario_from_table(table, "testbed")


def _variables(setting: TestbedSetting) -> list[dict[str, Any]]:
    """In the order in which their gradients become ready; without overlap that is at the end of the backward pass."""
    entries = []
    for index, variable in enumerate(setting.variables):
        entry: dict[str, Any] = {
            "name": variable.name,
            "size_bytes": variable.size_bytes,
            "creation_index": index,
            "ready": variable.ready if setting.overlap else 1.0,
        }
        # all-reduces are dense, and real passes take the whole variable
        if variable.rows is not None and setting.servers and setting.compute.kind == "emulated":
            entry["sparse_bytes_per_sample"] = variable.row_bytes * variable.rows / setting.batch
        entries.append(entry)
    return sorted(entries, key=lambda entry: (entry["ready"], -entry["creation_index"]))


def _cluster(setting: TestbedSetting, values: dict[str, float], cores: float, *, real: bool, one_gpu: bool) -> dict[str, Any]:
    link = setting.link
    rate = link.bandwidth_bytes_per_s if link is not None else values["loopback_bytes_per_s"]
    each_end_s, each_end_per_byte_s = values["tensor_s"], values["tensor_per_byte_s"]
    if setting.mode == "mirrored":
        # one process: its cores copy and add, and nothing else stands between two replicas
        rate, each_end_s, each_end_per_byte_s = _IN_MEMORY_BYTES_PER_S, 0.0, values["mirrored_per_byte_s"] / 2
    elif link is None and setting.servers:
        # over loopback the cores move every byte themselves
        each_end_per_byte_s = values["loopback_per_byte_s"] * min(values["loopback_waited_share"], 1.0) / 2
    elif link is None:
        # most of it is passes over the whole vector: about as much for four ranks as for two, whose messages are fewer
        each_end_per_byte_s = values["loopback_ring_per_byte_s"] / (2.0 * (setting.workers - 1) / setting.workers) / 2
    elif not setting.servers:
        stretch, saved = _round_of_ring(setting, values, cores)
        each_end_s, each_end_per_byte_s = values["turn_s"] * stretch / 2, values["turn_per_byte_s"] * stretch / 2
        rate /= 1.0 - saved
    transport: dict[str, Any] = {
        "software": "given",  # what this machine costs was measured
        "wire_bytes_per_byte": values["wire_bytes_per_byte"] if link is not None else 1.0,
        "cpu_per_message_s": each_end_s,
        "copy_per_byte_s": each_end_per_byte_s,
    }
    if link is not None and link.sharing == "tcp":
        transport |= _shared_by_tcp(setting, link, values)
    cluster: dict[str, Any] = {
        "name": "testbed",
        "basis": "measured",
        "device_is_host": real,
        "inter_node": {"bandwidth_bytes_per_s": rate, "latency_s": 0.0},
        "transport": transport,
    }
    if one_gpu:
        cluster |= {"device_is_host": False, "replicas_per_device": setting.workers}
    elif link is None or setting.servers or real:  # what the cores do for a ring behind shaped links is in its rounds
        cluster |= {"shared_cores": cores, "time_slice_s": _SLICE_S * (1.0 + math.log2(min(cores, _MOST_CORES)))}
    return cluster


def _shared_by_tcp(setting: TestbedSetting, link: ShapedLink, values: dict[str, float]) -> dict[str, Any]:
    """How transfers share a link behind which TCP decides.

    A queue drops packets of up to 64 KiB whole, and of the connections that share it each has
    its part of the buffer as room. A window of many packets loses little with one of them;
    one of a single packet loses itself. So the spread of weights is that of a room of one
    packet, over the packets that a connection has room for.
    """
    sharers = max(setting.workers, setting.servers)
    packets = link.bandwidth_bytes_per_s * link.buffer_s / (_PACKET_BYTES * sharers)
    return {
        "discipline": "weighted",
        "weights_of": "transfer",
        "weight_sigma": min(values["weight_sigma"] / packets, _MOST_SIGMA),
        "queue_s": min(values["queue_s"], link.buffer_s),
        "buffer_s": link.buffer_s,
        # where parts of a pull come from several servers, whose queues are full at different times, one that comes late holds up
        # next to nothing: the others fill the worker's link meanwhile, and then it has that link to itself
        "requests_per_pull": _REQUESTS if setting.servers == 1 else 0,
    }


def _chunk_bytes(setting: TestbedSetting) -> float:
    """Bytes of a message of the ring, on average: a rank's part of all variables, or layer by layer of one."""
    buffers = len(setting.variables) if setting.overlap else 1
    return setting.parameter_bytes / buffers / setting.workers


def _round_of_ring(setting: TestbedSetting, values: dict[str, float], cores: float) -> tuple[float, float]:
    """By how much busy cores stretch the hosts' work on a message, and the share of a message that the wire is not waited for.

    A round is the wire's time T and the hosts' work on the message. All hosts send at the
    same time, and the kernel's work on their bytes takes A of the cores' time in each round;
    work h on the message, which has one thread, gets what is left::

        x = h / (1 - A / (T + x)),  so  x = (d + sqrt(d^2 + 4 h T)) / 2  with  d = A + h - T

    The shaper lets a packet go as soon as it is not in debt, and the debt of the last packet
    of a message is paid while the hosts work. Layer by layer it is not: there the messages of
    another variable follow at once, and pay it.

    Returns
    -------
    stretch
        x / h.
    saved
        Share of the message's bytes that its last packet holds, at most those of x; none layer by layer.
    """
    assert setting.link is not None
    chunk, rate = _chunk_bytes(setting), setting.link.bandwidth_bytes_per_s / values["wire_bytes_per_byte"]
    work_s, wire_s = values["turn_s"] + values["turn_per_byte_s"] * chunk, chunk / rate
    if not work_s:
        return 1.0, 0.0
    beside_s = setting.workers * max(values["ring_cpu_per_byte_s"] - values["turn_per_byte_s"], 0.0) * chunk / cores
    excess_s = beside_s + work_s - wire_s
    turn_s = (excess_s + math.sqrt(excess_s**2 + 4 * work_s * wire_s)) / 2
    alone = not setting.overlap or len(setting.variables) == 1
    return turn_s / work_s, min(chunk % _PACKET_BYTES / chunk, turn_s / wire_s, _MOST_SAVED) if alone else 0.0


def _strategy(setting: TestbedSetting, values: dict[str, float]) -> dict[str, Any]:
    if setting.mode in ("ring", "mirrored"):
        fused = {"bucket_size_bytes": 1.0} if setting.overlap else {}
        # TensorFlow cuts a part above 4 MiB in two, but both go the same way, end at about the same time, and are worked on by one
        # thread (GenerateSubdivsInCollectiveParams and RunAsyncParts in ring_alg.cc and ring_reducer.cc of its runtime): one ring
        return {"kind": "multi-worker-mirrored", "workers": setting.workers, "algorithm": "ring", **fused}
    strategy: dict[str, Any] = {
        "kind": "parameter-server",
        "mode": "sync" if setting.mode == "sync" else "async",
        "workers": setting.workers,
        "servers": setting.servers,
        # the order in which TensorFlow answers the requests of a step is random (Hashemi et al., "TicTac", SysML 2019)
        "pull_order": "random" if setting.overlap else "together",
    }
    if setting.mode == "async":
        strategy["coordinator"] = {"dispatch_s": values["dispatch_s"], "latency_s": values["coordinator_s"]}
    elif setting.mode == "between-graph":
        # each worker drives itself: its client's work, which holds up nobody else
        strategy["coordinator"] = {"latency_s": values["session_s"]}
    else:
        strategy["backup_workers"] = setting.backup_workers
    return strategy


def _beside_s(setting: TestbedSetting, values: dict[str, float]) -> float:
    """Work of the cores for a step that nothing in it waits for; like an input pipeline it holds up nothing but cores.

    None where compute is real behind a shaped link: its measured slowdown next to busy cores would count that work twice.
    """
    if not setting.servers or (setting.link is not None and setting.compute.kind == "real"):
        return 0.0
    tensors, size = len(setting.variables), setting.moved_bytes
    waited_s = 2.0 * size * values["loopback_per_byte_s"] * min(values["loopback_waited_share"], 1.0)
    if setting.link is not None:  # a tensor is worked on at both ends of both ways, and applied
        waited_s = tensors * (4.0 * values["tensor_s"] + values["server_s"])
        waited_s += size * (4.0 * values["tensor_per_byte_s"] + values["server_per_byte_s"])
    whole_s = math.fsum(values[name] * amount for name, amount in work_of_step(setting).items())
    return max(whole_s - waited_s, 0.0)


def _run(setting: TestbedSetting, replications: int, seed: int, *, one_gpu: bool) -> dict[str, Any]:
    # all tasks wait for one sign to begin
    run: dict[str, Any] = {"steps": setting.steps, "replications": replications, "seed": seed, "warmup_steps": 0, "start": "together"}
    if setting.start_spread_s:
        run |= {"start": "staggered", "start_spread_s": setting.start_spread_s}
    if setting.mode == "async":
        run |= {"job_steps": setting.steps * setting.workers, "drain": True}
    elif setting.mode == "between-graph":
        run |= {"sharing": "each-its-own", "drain": True}
    elif setting.mode in ("ring", "mirrored") and not one_gpu:
        run |= {"detail": "messages"}  # ranks that are ready early begin early
    return run
