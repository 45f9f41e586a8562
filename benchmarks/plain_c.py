"""The plain C program beside the engines: compiled with whatever compiler is here, run, and read.

One program, two cases (``plain.c``): asynchronous workers of one server, and a ring
all-reduce message by message.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("plain.c")
COMPILER = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)


def build(folder: Path) -> Path | None:
    """Compile it into a folder; None where there is no compiler."""
    if COMPILER is None:
        return None
    program = folder / "plain"
    subprocess.run([COMPILER, "-std=c11", "-O2", "-o", program, SOURCE, "-lm"], check=True)
    return program


def workers_of_a_server(
    program: Path, workers: int, steps: int, size_bytes: float, bandwidth: float, compute_s: float, seed: int, host_s: float = 0.0
) -> dict[str, float]:
    """``worker_steps``, ``cpu_s``, ``events``, ``updates_per_s`` and mean ``staleness`` of asynchronous training.

    ``host_s``: what each message costs each of its two hosts.
    """
    return _answer(program, "async", workers, steps, size_bytes, bandwidth, compute_s, host_s, seed)


def ring(
    program: Path, ranks: int, steps: int, size_bytes: float, bandwidth: float, latency_s: float, compute_s: float, sigma: float, seed: int
) -> dict[str, float]:
    """``messages``, ``cpu_s``, ``events`` and ``end_s`` of steps that compute and all-reduce around a ring."""
    return _answer(program, "ring", ranks, steps, size_bytes, bandwidth, latency_s, compute_s, sigma, seed)


def _answer(program: Path, *arguments: object) -> dict[str, float]:
    done = subprocess.run([program, *map(str, arguments)], text=True, capture_output=True, check=True)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer
