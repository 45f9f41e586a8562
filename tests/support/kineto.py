"""Traces of PyTorch's profiler made by hand, in the form that ``libkineto/src/output_json.cpp`` writes: what they mean is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LATENCY_S, BYTES_PER_S, RANKS = 2e-6, 50e9, 16
"""Of the link between nodes, and ranks of the all-reduces."""
SIZES = (65536 * 4, 2**21 * 2)
"""Bytes of the two buckets: of 65,536 floats, and of 2,097,152 bfloat16."""


def all_reduce_us(size: float, ranks: int = RANKS) -> float:
    """Time of a ring over the link."""
    return 2 * (ranks - 1) * (LATENCY_S + size / ranks / BYTES_PER_S) * 1e6


class Sample:
    """A trace under construction; times in microseconds.

    Attributes
    ----------
    data
        The document.
    """

    def __init__(self, **header: Any) -> None:
        self.data: dict[str, Any] = {"schemaVersion": 1, "host_name": "lab", **header, "traceEvents": []}

    def add(self, cat: str, name: str, start: float, end: float, tid: Any = 1, pid: Any = 100, **args: Any) -> None:
        """One event; ``_`` in the names of ``args`` are spaces."""
        named = {key.replace("_", " "): value for key, value in args.items()}
        begun = 7_000_000.0 + start
        event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": begun, "dur": end - start, "args": named}
        self.data["traceEvents"].append(event)

    def write(self, path: Path) -> Path:
        """Write ``path``."""
        path.write_text(json.dumps(self.data))
        return path


def nccl_sample(steps: int = 10, period: float = 2000.0, lag: float = 5000.0, waiting: float = 1.0) -> Sample:
    """Steps of rank 1 of 16 on two nodes of eight, long after the host launched them.

    Each takes, in microseconds: a copy 0 to 20, forward 100 to 500, gradients of the last layer 500 to 700 and of the first 700 to
    1100, the all-reduce of the last layer's from 700 on (hidden), that of the first layer's from 1100 on (exposed), then 100 of the
    optimizer; the device idles until the next period begins. In every other step all-reduces take ``waiting`` times as long.
    """
    world = list(range(RANKS))
    sample = Sample(
        deviceProperties=[{"id": number, "name": "NVIDIA H100 80GB HBM3"} for number in range(8)],
        distributedInfo={
            "backend": "nccl", "rank": 1, "world_size": RANKS, "pg_count": 1,
            "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": RANKS, "ranks": world}],
        },
    )  # fmt: skip
    number = 0

    def launched(
        name: str, at: float, start: float, end: float, stream: int, operator: str, tid: int, cat: str = "kernel", **args: Any
    ) -> None:
        nonlocal number
        number += 1
        sample.add("cpu_op", operator, at - 1, at + 2, tid, External_id=number)
        sample.add("cuda_runtime", "cudaLaunchKernel", at, at + 1, tid, correlation=number, External_id=number)
        sample.add(cat, name, start, end, stream, 1, External_id=number, device=1, stream=stream, correlation=number, **args)

    for step in range(steps):
        host, begun = step * 100.0, lag + step * period
        times = [all_reduce_us(size) * (waiting if step % 2 else 1.0) for size in SIZES]
        sample.add("user_annotation", f"ProfilerStep#{step}", host, host + 95)
        sample.add("gpu_user_annotation", f"ProfilerStep#{step}", begun, begun + period, 7, 1)
        launched("Memcpy HtoD (Pinned -> Device)", host + 2, begun, begun + 20, 8, "aten::copy_", 1, "gpu_memcpy", bytes=4096)
        launched("ampere_sgemm_128x64_tn", host + 7, begun + 100, begun + 500, 7, "aten::addmm", 1)
        ends, starts = (500.0, 700.0, 1100.0), (700.0, 1100.0)
        for layer, (shape, dtype, elements) in enumerate((((64, 1024), "Float", 65536), ((1024, 2048), "BFloat16", 2**21))):
            at = host + 20 + 20 * layer
            sample.add("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", at, at + 8, 2)
            launched("ampere_sgemm_64x64_nt", at + 3, begun + ends[layer], begun + ends[layer + 1], 7, "aten::mm", 2)
            sample.add("cpu_op", "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", at + 10, at + 18, 2)
            types = ["float" if dtype == "Float" else "c10::BFloat16"]
            sample.add("cpu_op", "torch::autograd::AccumulateGrad", at + 11, at + 12, 2, Input_Dims=[list(shape)], Input_type=types)
            launched(
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                at + 15, begun + starts[layer], begun + starts[layer] + times[layer], 20, "record_param_comms", 2,
                Collective_name="allreduce", dtype=dtype, In_msg_nelems=elements, Out_msg_nelems=elements, Group_size=RANKS,
                Process_Group_Name="0", Process_Group_Description="default_pg", Process_Group_Ranks=json.dumps(world),
            )  # fmt: skip
        sample.add("user_annotation", "Optimizer.step#SGD.step", host + 70, host + 80)
        end = begun + 1100 + times[1]
        launched("multi_tensor_apply_kernel", host + 75, end, end + 100, 7, "aten::_foreach_add_", 1)
    return sample
