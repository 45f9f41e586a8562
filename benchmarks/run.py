"""Speed, as ratios within one run: ``make benchmark``.

Asynchronous parameter server against a plain SimPy model of the same thing; memory per
worker and per step; import time. Prints a table; with ``--json`` prints data.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from plain_simpy import Plain

from simulator import scenario_from_table
from simulator.replication import replicate

COMPUTE_S, BANDWIDTH = 0.1, 1.25e9


def scenario(workers: int, steps: int, size: float, tensors: int, service_s: float, **run):
    variables = [{"name": f"v{i}", "size_bytes": size / tensors, "creation_index": i, "ready": 1.0} for i in range(tensors)]
    return scenario_from_table(
        {
            "workload": {
                "name": "benchmark",
                "batch_per_replica": 1,
                "forward": {"base_s": 0.0, "per_sample_s": 0.0},
                "backward": {"base_s": COMPUTE_S, "per_sample_s": 0.0},
                "server": {"base_s": service_s},
                "jitter": {"kind": "exponential"},
                "variables": variables,
            },
            "cluster": {"name": "star", "inter_node": {"bandwidth_bytes_per_s": BANDWIDTH, "latency_s": 0.0}},
            "strategy": {"kind": "parameter-server", "mode": "async", "workers": workers},
            "run": {"steps": steps, "warmup_steps": 1, "replications": 2, **run},
        },
        "benchmark",
    )


def timed(action) -> tuple[float, object]:
    begun = time.process_time()
    value = action()
    return time.process_time() - begun, value


def against_plain(workers: int, steps: int, size: float, tensors: int, service_s: float, repeats: int = 5) -> dict:
    """Worker-steps/s of both, in turn; the ratio is the median of the pairs."""
    built = scenario(workers, steps, size, tensors, service_s)
    ours, plain, ratios = [], [], []
    for repeat in range(repeats):
        ours_s, measured = timed(partial(replicate, built, repeat))
        plain_s, (rate, stale) = timed(Plain(workers, steps, size, tensors, BANDWIDTH, COMPUTE_S, service_s, repeat).run)
        ours.append(workers * steps / ours_s)
        plain.append(workers * steps / plain_s)
        ratios.append(plain_s / ours_s)
    return {
        "case": f"{workers} workers x {steps} steps, {tensors} tensors of {size / tensors / 1e6:g} MB, service {service_s * 1e6:g} us",
        "ours_worker_steps_per_s": round(statistics.median(ours)),
        "plain_worker_steps_per_s": round(statistics.median(plain)),
        "ratio": round(statistics.median(ratios), 2),
        "updates_per_s": [round(measured.updates / measured.window_s, 1), round(rate, 1)],
        "staleness": [round(measured.staleness.mean(), 2), round(stale, 2)],
    }


def memory() -> dict:
    """Peak of Python's allocations: it grows with workers, not with steps."""

    def peak(workers: int, steps: int) -> int:
        built = scenario(workers, steps, 1e6, 1, 0.0)
        tracemalloc.start()
        replicate(built, 0)
        value = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return value

    few, many, wide = peak(64, 20), peak(64, 400), peak(1024, 20)
    return {"peak_bytes_20_steps": few, "peak_bytes_400_steps": many, "bytes_per_worker": round((wide - few) / (1024 - 64))}


def imports() -> dict:
    """Wall time of fresh interpreters, best of five."""

    def best(code: list[str]) -> float:
        walls = []
        for _ in range(5):
            begun = time.perf_counter()
            subprocess.run([sys.executable, *code], check=True, stdout=subprocess.DEVNULL)
            walls.append(time.perf_counter() - begun)
        return round(min(walls), 3)

    bare = best(["-c", "pass"])
    return {"import_simulator_s": round(best(["-c", "import simulator"]) - bare, 3), "paceline_help_s": best(["-m", "paceline", "--help"])}


def main() -> None:
    cases = [
        against_plain(16, 400, 10e6, 1, 0.0),
        against_plain(256, 40, 10e6, 1, 0.0),
        against_plain(1024, 10, 10e6, 1, 0.0),
        against_plain(16, 400, 10e6, 1, 50e-6),
        against_plain(256, 40, 10e6, 1, 50e-6),
        against_plain(16, 200, 10e6, 8, 50e-6),
        against_plain(256, 20, 10e6, 8, 50e-6),
    ]
    report = {
        "async_against_plain_simpy": cases,
        "memory": memory(),
        "imports": imports(),
        "python": sys.version.split()[0],
        "cores": os.cpu_count(),
    }
    if "--json" in sys.argv:
        print(json.dumps(report))
        return
    print(f"{'async PS, worker-steps/s':72s} {'ours':>9s} {'plain':>9s} {'ratio':>7s}   updates/s (ours, plain)   staleness")
    for case in cases:
        print(
            f"{case['case']:72s} {case['ours_worker_steps_per_s']:9,d} {case['plain_worker_steps_per_s']:9,d} {case['ratio']:7.2f}   "
            f"{case['updates_per_s']!s:22s}  {case['staleness']}"
        )
    print(f"memory: {report['memory']}")
    print(f"imports: {report['imports']}")


if __name__ == "__main__":
    main()
