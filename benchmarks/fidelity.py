"""Predictions beside real distributed TensorFlow runs: ``python benchmarks/fidelity.py``.

The runs: TensorFlow 2.21, CPU, real worker and server processes on one machine, each in
a network namespace of its own; interfaces shaped to 400 Mbit/s in both directions, flows
sharing fairly (one htb class a peer), TCP CUBIC; 4 variables of 1 MiB; all workers start
together. ParameterServerStrategy for async, SyncReplicasOptimizer for sync,
MultiWorkerMirroredStrategy for ring.

Taken from the notes on the runs, not fitted here: 1.03 bytes on the wire for each byte of
a tensor; 4 ms between a step's end and the next read (the coordinator's dispatch) in
ParameterServerStrategy, 9 ms a step in SyncReplicasOptimizer, both put into the compute
time, since the simulator has no coordinator yet; a jitter of 10%. The ring gets only the
first. Whoever wrote the notes had seen all rows, so that no row is strictly held out. The
notes give neither the number of steps of the sync and ring runs (100 is taken, which does
not move their mean) nor the ring's compute time (none is taken).
"""

from __future__ import annotations

import json
import sys
from typing import Any

from simulator import Result, scenario_from_table, simulate

WIRE = 1.03
FAST = {"kind": "gamma", "shape": 100.0}  # 10% jitter

#  mode, workers, servers, compute s, gap s, law, steps in all, measured updates/s, measured mean staleness
ROWS: list[tuple[str, int, int, float, float, dict[str, Any], int, list[float], list[float]]] = [
    ("async", 1, 1, 0.005, 0.004, FAST, 100, [5.46, 5.54], [0.0]),
    ("async", 2, 1, 0.005, 0.004, FAST, 100, [5.54, 5.56, 5.64], [0.51, 0.55, 0.64]),
    ("async", 2, 1, 0.005, 0.004, FAST, 800, [5.76], []),
    ("async", 3, 1, 0.005, 0.004, FAST, 100, [6.66, 6.79], [1.62, 1.67]),
    ("async", 4, 1, 0.005, 0.004, FAST, 100, [6.70, 6.42, 6.43], [2.41, 2.17, 2.19]),
    ("async", 2, 2, 0.005, 0.004, FAST, 100, [10.57, 10.60], [0.62, 0.55]),
    ("async", 4, 2, 0.005, 0.004, FAST, 160, [12.72, 12.03, 12.70], [2.19, 1.95, 2.14]),
    ("async", 1, 1, 0.050, 0.004, {"kind": "constant"}, 40, [4.14], [0.0]),
    ("async", 2, 1, 0.100, 0.004, {"kind": "exponential"}, 120, [5.76, 5.87], [0.97, 0.98]),
    ("async", 4, 1, 0.200, 0.004, {"kind": "exponential"}, 160, [7.45, 7.45], [2.91, 2.90]),
    ("sync", 1, 1, 0.0, 0.009, FAST, 100, [5.5], []),
    ("sync", 2, 1, 0.0, 0.009, FAST, 100, [2.80], []),
    ("sync", 4, 1, 0.0, 0.009, FAST, 100, [1.41], []),
    ("sync", 4, 2, 0.0, 0.009, FAST, 100, [2.75], []),
    ("ring", 2, 0, 0.0, 0.0, FAST, 100, [1 / 0.106], []),
    ("ring", 3, 0, 0.0, 0.0, FAST, 100, [1 / 0.144], []),
    ("ring", 4, 0, 0.0, 0.0, FAST, 100, [1 / 0.172], []),
]


def predict(mode: str, workers: int, servers: int, compute_s: float, law: dict[str, Any], steps: int) -> Result:
    ring = {"kind": "multi-worker-mirrored", "workers": workers}
    variables = [{"name": f"v{i}", "size": "1 MiB", "creation_index": i, "ready": 1.0} for i in range(4)]
    table = {
        "workload": {
            "name": "four-variables",
            "batch_per_replica": 1,
            "forward": {"base_s": 0.0, "per_sample_s": 0.0},
            "backward": {"base_s": max(compute_s, 1e-9), "per_sample_s": 0.0},
            "jitter": law,
            "variables": variables,
        },
        "cluster": {"name": "namespaces", "inter_node": {"bandwidth_bytes_per_s": 400e6 / 8 / WIRE, "latency_s": 0.0}},
        "strategy": ring if mode == "ring" else {"kind": "parameter-server", "mode": mode, "workers": workers, "servers": servers},
        "run": {"steps": steps // workers, "warmup_steps": 1, "seed": 1, "replications": 99},
    }
    return simulate(scenario_from_table(table, "fidelity"))


def main() -> None:
    rows = []
    for mode, workers, servers, compute_s, gap_s, law, steps, measured, stale in ROWS:
        result = predict(mode, workers, servers, compute_s + gap_s, law, steps if mode == "async" else steps * workers)
        rate = result.updates_per_s
        mean = sum(measured) / len(measured)
        rows.append(
            {
                "mode": mode, "workers": workers, "servers": servers, "compute_s": compute_s, "law": law["kind"], "steps": steps,
                "measured_updates_per_s": measured, "predicted": rate.mean, "low": rate.low, "high": rate.high,
                "error": rate.mean / mean - 1, "inside": sum(rate.low <= value <= rate.high for value in measured),
                "measured_staleness": stale, "predicted_staleness": result.staleness.mean,
            }
        )  # fmt: skip
    if "--json" in sys.argv:
        print(json.dumps(rows))
        return
    print("| mode | workers, ps | compute | steps | measured updates/s | predicted (90% interval) | error | staleness | predicted |")
    print("|" + " --- |" * 9)
    for row in rows:
        print(
            f"| {row['mode']} | {row['workers']}, {row['servers']} "
            f"| {row['compute_s'] * 1e3:.0f} ms {row['law']} | {row['steps']} "
            f"| {' '.join(f'{value:.2f}' for value in row['measured_updates_per_s'])} "
            f"| {row['predicted']:.2f} ({row['low']:.2f} to {row['high']:.2f}) | {row['error']:+.1%} "
            f"| {' '.join(map(str, row['measured_staleness'])) or '-'} | {row['predicted_staleness']:.2f} |"
        )
    print()
    for row in rows:
        if row["mode"] == "ring":
            messages = 2 * (row["workers"] - 1)
            more_s = (1 / row["measured_updates_per_s"][0] - 1 / row["predicted"]) / messages
            print(f"ring, {row['workers']} workers: each of its {messages} messages takes {more_s * 1e3:.1f} ms more than its bytes")


if __name__ == "__main__":
    main()
