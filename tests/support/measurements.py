"""Synthetic measurement files, whose truth is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FINGERPRINT: dict[str, Any] = {
    "kind": "fingerprint",
    "tensorflow": "2.21.0",
    "keras": "3.15.1",
    "python": "3.11.7",
    "device": "/CPU:0",
    "device_kind": "CPU",
    "device_name": "Test CPU",
    "gpu_unseen": False,
    "cores": 2,
}


Draw = Callable[[np.random.Generator, int], np.ndarray]
"""So many factors of step times."""


@dataclass(frozen=True)
class Truth:
    """What a synthetic step costs."""

    forward: tuple[float, float] = (1e-3, 50e-6)
    backward: tuple[float, float] = (2e-3, 100e-6)
    apply_s: float = 0.4e-3
    round_cv: float = 0.0
    batches: tuple[int, ...] = (16, 32, 64)
    rounds: int = 10
    steps_a_round: int = 5

    def mean(self, batch: int) -> float:
        return self.forward[0] + self.backward[0] + self.apply_s + batch * (self.forward[1] + self.backward[1])


def header(probe: str = "step") -> dict[str, Any]:
    return {
        "kind": "header",
        "schema_version": 1,
        "probe": probe,
        "started": "2026-01-01T00:00:00+0000",
        "arguments": {"precision": "float32"},
    }


def write_lines(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def step_records(truth: Truth, draw: Draw, seed: int = 0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    records: list[dict[str, Any]] = [header(), FINGERPRINT]
    for turn in range(truth.rounds):
        speed = 1.0 + truth.round_cv * rng.standard_normal()
        for batch in truth.batches:
            mean = truth.mean(batch) * speed
            factors = draw(rng, truth.steps_a_round)
            records += [{"kind": "step", "batch": batch, "round": turn, "seconds": mean * float(factor)} for factor in factors]
    for batch in truth.batches:
        for index in range(10):
            forward = truth.forward[0] + truth.forward[1] * batch
            backward = truth.backward[0] + truth.backward[1] * batch
            wobble = 1.0 + 0.01 * rng.standard_normal()
            split = {"forward_s": forward * wobble, "backward_s": backward, "apply_s": truth.apply_s}
            records.append({"kind": "split", "batch": batch, "index": index, **split})
            ready = {"0": backward, "1": backward * 0.4, "2": backward * 0.1}
            records.append({"kind": "ready", "batch": batch, "index": index, "observed": True, "ready_s": ready})
            records.append({"kind": "rows", "batch": batch, "index": index, "variable": 2, "rows": 3.0 * batch})
    for index, (name, shape, sparse) in enumerate((("first", [10, 10], None), ("second", [20], None), ("table", [1000, 8], 36))):
        size = 4 * int(np.prod(shape))
        variable = {"index": index, "name": name, "shape": shape, "dtype": "float32", "size_bytes": size, "gradient_dtype": "float32"}
        records.append({"kind": "variable", **variable, "sparse_row_bytes": sparse, "created": index})
    for turn in range(5):
        for size in (4096, 2**20, 2**23):
            for applies in (1, 9):
                seconds = 50e-6 + applies * (5e-6 + 2e-10 * size)
                records.append({"kind": "server", "size_bytes": size, "round": turn, "applies": applies, "seconds": seconds})
    records.append({"kind": "end"})
    return records


def link_records(latency_s: float, bandwidth: float, cv: float = 0.05, seed: int = 0, rounds: int = 7) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    records: list[dict[str, Any]] = [header("links"), FINGERPRINT]
    for turn in range(rounds):
        for power in range(10, 27, 2):
            for hops in (2, 10):
                factors = 1.0 + cv * rng.standard_normal(hops)
                seconds = 1e-3 + float(np.sum(factors)) * (latency_s + 2**power / bandwidth)
                records.append(
                    {"kind": "transfer", "path": "grpc", "size_bytes": 2**power, "round": turn, "hops": hops, "seconds": seconds}
                )
    records.append({"kind": "end"})
    return records


def exchange_records(
    per_tensor_s: float, per_byte_s: float, wire: Callable[[float], float] = lambda _: 0.0, cv: float = 0.05, seed: int = 0, peer: str = ""
) -> list[dict[str, Any]]:
    """Pulls and pushes of tensors on which hosts work one after the other, pushes a quarter longer; ``wire``: seconds of so many bytes."""
    rng = np.random.default_rng(seed)
    records: list[dict[str, Any]] = [{**header("servers"), "arguments": {"peer": peer or None}}, FINGERPRINT]
    for turn in range(7):
        for tensors in (1, 4, 16, 64):
            for size in (256, 2**14, 2**18, 2**20):
                for direction, longer in (("pull", 0.875), ("push", 1.125)):
                    work = longer * (per_tensor_s + per_byte_s * size)
                    mean = 1e-3 + 2 * work + (tensors - 1) * max(work, wire(size)) + wire(size)
                    setting = {"direction": direction, "tensors": tensors, "size_bytes": size, "round": turn}
                    seconds = (mean * np.exp(cv * rng.standard_normal(3))).tolist()
                    records += [{"kind": "exchange", **setting, "seconds": one} for one in seconds]
    return [*records, {"kind": "end"}]


def gamma_of(cv: float) -> Draw:
    return lambda rng, n: rng.gamma(cv**-2, cv**2, n)


def persistent(draw: Draw, persistence: float) -> Draw:
    """Draws of which each is the one before with this chance."""

    def drawn(rng: np.random.Generator, n: int) -> np.ndarray:
        found = draw(rng, n)
        for place in range(1, n):
            if rng.random() < persistence:
                found[place] = found[place - 1]
        return found

    return drawn


@dataclass(frozen=True)
class Synthetic:
    """Makes measurement files in a folder of the test's own."""

    folder: Path

    def steps(self, truth: Truth | None = None, draw: Any = None, seed: int = 0, name: str = "step.ndjson") -> Path:
        return write_lines(self.folder / name, step_records(truth or Truth(), draw or gamma_of(0.1), seed))

    def links(self, latency_s: float, bandwidth: float, **kwargs: Any) -> Path:
        return write_lines(self.folder / "links.ndjson", link_records(latency_s, bandwidth, **kwargs))

    def exchanges(self, per_tensor_s: float, per_byte_s: float, **kwargs: Any) -> Path:
        return write_lines(self.folder / "exchanges.ndjson", exchange_records(per_tensor_s, per_byte_s, **kwargs))

    def lines(self, records: list[dict[str, Any]], name: str = "lines.ndjson") -> Path:
        return write_lines(self.folder / name, records)

    Truth = Truth
    gamma_of = staticmethod(gamma_of)
    step_records = staticmethod(step_records)
    link_records = staticmethod(link_records)
