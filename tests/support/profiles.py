"""Profiles made by hand, in TensorFlow's own protobuf classes: what they should be read as is known."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def classes() -> Any:
    """The module of the protobuf classes, as the probe finds it."""
    return importlib.import_module("calibrate.probes.xplane")._classes()


@dataclass
class Sample:
    """A profile under construction; times in microseconds.

    Attributes
    ----------
    lines
        (plane, line) -> events: (name, display name, start, end, statistics).
    """

    lines: dict[tuple[str, str], list[tuple[str, str, float, float, dict[str, Any]]]] = field(default_factory=dict)

    def add(self, line: tuple[str, str], name: str, start: float, end: float, **statistics: Any) -> None:
        """One event; its display name is what stands behind the colon."""
        self.lines.setdefault(line, []).append((name, name.rpartition(":")[2], start, end, statistics))

    def write(self, path: Path, start_ns: int = 1_700_000_000_000_000_000) -> Path:
        """Write ``path``, whose folder is made; lines begin at ``start_ns``, as those of old releases do."""
        space = classes().XSpace()
        space.hostnames.append("lab")
        for plane_name in dict.fromkeys(plane for plane, _ in self.lines):
            plane = space.planes.add(name=plane_name)
            names: dict[str, int] = {}
            statistics_of: dict[str, int] = {}
            for (owner, line_name), events in self.lines.items():
                if owner != plane_name:
                    continue
                line = plane.lines.add(name=line_name, timestamp_ns=start_ns)
                for name, short, start, end, statistics in events:
                    number = names.setdefault(name, len(names) + 1)
                    plane.event_metadata[number].id = number
                    plane.event_metadata[number].name = name
                    plane.event_metadata[number].display_name = short
                    event = line.events.add(metadata_id=number, offset_ps=round(start * 1e6), duration_ps=round((end - start) * 1e6))
                    for key, value in statistics.items():
                        metadata = statistics_of.setdefault(key, len(statistics_of) + 1)
                        plane.stat_metadata[metadata].id = metadata
                        plane.stat_metadata[metadata].name = key
                        stat = event.stats.add(metadata_id=metadata)
                        if isinstance(value, str):  # a reference, as the profiler stores strings
                            reference = statistics_of.setdefault(value, len(statistics_of) + 1)
                            plane.stat_metadata[reference].id = reference
                            plane.stat_metadata[reference].name = value
                            stat.ref_value = reference
                        else:
                            stat.int64_value = value
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(space.SerializeToString())
        return path


HOST = ("/host:CPU", "python")
POOL = ("/host:CPU", "tf_Compute/1")
STREAM = ("/device:GPU:0", "Stream #14(Compute)")
COPIES = ("/device:GPU:0", "Stream #18(MemcpyH2D)")


def gpu_sample(steps: int = 12, period: float = 1000.0, lag: float = 5000.0) -> Sample:
    """Steps of a GPU that computes long after the host has launched them.

    Each takes, in microseconds: a copy 0 to 20, forward 50 to 300, gradients of ``head`` 300 to
    400 and of ``first`` 400 to 600, a collective 550 to 700, optimizer 700 to 800, then the GPU
    idles until the next period begins.
    """
    sample = Sample()
    kernels = (
        (COPIES, "MemcpyH2D", 0.0, 20.0, {"memcpy_details": "kind_src:pinned kind_dst:device size:4096 dest:0 async:1"}),
        (STREAM, "gemm_forward", 50.0, 300.0, {"tf_op": "net_1/first_1/MatMul:MatMul"}),
        (STREAM, "gemm_head", 300.0, 400.0, {"tf_op": "gradient_tape/net_1/head_1/MatMul/MatMul_1:MatMul"}),
        (STREAM, "gemm_first", 400.0, 600.0, {"tf_op": "gradient_tape/net_1/first_1/MatMul/MatMul:MatMul"}),
        (STREAM, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 550.0, 700.0, {"tf_op": "CollectiveReduceV2:CollectiveReduceV2"}),
        (STREAM, "apply", 700.0, 800.0, {"tf_op": "sgd/ResourceApplyGradientDescent:ResourceApplyGradientDescent"}),
    )
    correlation = 0
    for number in range(steps):
        launched = number * 50.0
        sample.add(HOST, "train", launched, launched + 40.0, step_num=number, _r=1)
        for turn, (line, name, start, end, statistics) in enumerate(kernels):
            correlation += 1
            sample.add(POOL, "cuLaunchKernel", launched + 2 + turn, launched + 3 + turn, correlation_id=correlation)
            begun = lag + number * period
            sample.add(line, name, begun + start, begun + end, correlation_id=correlation, **statistics)
    return sample


def host_sample(steps: int = 12, marks: bool = True, prefetch: bool = True, gradients: bool = True) -> Sample:
    """Steps of a CPU, a millisecond each: input 0 to 100, forward 100 to 400, gradients 400 to 800, optimizer 800 to 950."""
    sample = Sample()
    stage = "Iterator::Root::Prefetch::Map" if prefetch else "Iterator::Root::Map"
    for number in range(steps):
        at = number * 1000.0
        if marks:
            sample.add(HOST, "train", at, at + 980.0, step_num=number, _r=1)
        sample.add(HOST, "EagerExecute", at + 90, at + 970.0, eager_op="__inference_train_step_7", is_func=1)
        sample.add(HOST, "IteratorGetNextOp::DoCompute", at, at + 100.0, element_size=3200)
        if prefetch:
            sample.add(HOST, "Iterator::Root::Prefetch", at + 1, at + 90.0)
        sample.add(("/host:CPU", "tf_data_iterator"), stage, at + 200.0, at + 350.0)
        sample.add(POOL, "net/first/MatMul:MatMul", at + 110.0, at + 390.0)
        sample.add(POOL, f"{'gradient_tape/' if gradients else ''}net/head/MatMul/MatMul_1:MatMul", at + 400.0, at + 500.0)
        sample.add(POOL, f"{'gradient_tape/' if gradients else ''}net/first/MatMul/MatMul:MatMul", at + 500.0, at + 800.0)
        sample.add(POOL, "sgd/AssignSubVariableOp:AssignSubVariableOp", at + 800.0, at + 950.0)
    return sample
