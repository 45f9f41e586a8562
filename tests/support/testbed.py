"""Testbed measurements as a machine with known parameters would write them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from calibrate.testbed.clocks import work_of_step
from calibrate.testbed.fitting import fit_platform
from calibrate.testbed.platform import PRIORS, Platform
from calibrate.testbed.readings import Readings, read_run
from calibrate.testbed.scenarios import scenario_of
from calibrate.testbed.setting import TestbedSetting
from simulator import simulate

TRUE = {name: prior[0] for name, prior in PRIORS.items()} | {
    "wire_bytes_per_byte": 1.053,
    "tensor_s": 9e-5,
    "turn_s": 6e-4,
    "turn_per_byte_s": 2e-9,
    "loopback_per_byte_s": 1.1e-9,
    "loopback_ring_per_byte_s": 2.3e-9,
    "accumulate_s": 4e-3,
    "dispatch_s": 2.5e-3,
    "coordinator_s": 3e-3,
    "session_s": 1e-3,
}
FAST = {"bandwidth": "400 Mbit/s"}
GIGABIT = {"bandwidth": "1 Gbit/s"}


def setting(mode: str, workers: int, link: dict[str, Any] | None = None, model: str = "ladder-4mb", **more: Any) -> TestbedSetting:
    servers = 0 if mode in ("ring", "mirrored", "apart") else 1
    table = {"mode": mode, "workers": workers, "servers": servers, "link": link, "model": model, "compute": {"mean": "20 ms"}, "steps": 4}
    return TestbedSetting.model_validate(table | more)


def as_measured(folder: Path, given: TestbedSetting, values: dict[str, float] = TRUE, repeats: int = 2, seed: int = 0) -> Readings:
    """A measurement file such as a machine with these parameters would write: steps of equal length, clocks inside."""
    each = given.workers if given.mode in ("async", "between-graph") else 1  # updates while every worker makes a step
    whole_s = each / simulate(scenario_of(given, values, 2.0, replications=2)).updates_per_s.mean
    gap_s = {
        "async": values["dispatch_s"] + values["coordinator_s"], "ring": values["ring_step_s"], "mirrored": values["mirrored_step_s"]
    }.get(given.mode, values["session_s"])  # fmt: skip
    compute_s = given.compute.mean_s + values["sleep_s"]
    moving_s = whole_s - gap_s - compute_s
    lines: list[dict[str, Any]] = [
        {"kind": "header", "schema_version": 1, "probe": "testbed", "started": "", "arguments": given.for_probe(repeats, seed, 60.0)},
        {"kind": "fingerprint", "tensorflow": "2", "python": "3", "device": "", "device_kind": "CPU", "device_name": "", "cores": 2},
    ]
    for repeat in range(repeats):
        if given.link is not None:
            asked = given.link.bandwidth_bytes_per_s
            rate = asked / values["wire_bytes_per_byte"]
            lines.append({"kind": "link", "repeat": repeat, "asked_bytes_per_s": asked, "bytes_per_s": rate})
        for worker in range(given.workers):
            for step in range(given.steps):
                # the first step's gap is before the common start's first read
                start_s = step * whole_s + gap_s
                lines.append({
                    "kind": "update", "repeat": repeat, "worker": worker, "start_s": start_s, "pulled_s": start_s + moving_s / 2,
                    "computed_s": start_s + moving_s / 2 + compute_s, "applied_s": start_s + moving_s + compute_s,
                    "read_version": step, "version": step + 1,
                })  # fmt: skip
        used = {"sent_bytes": 1.0, "received_bytes": 1.0, "system_s": 0.0}
        lines.append({"kind": "used", "repeat": repeat, "task": "chief 0", "user_s": values["dispatch_s"] * given.steps, **used})
        if given.servers:
            each_s = sum(values[name] * amount for name, amount in work_of_step(given).items())
        else:
            each_s = values["ring_step_s"] + values["loopback_ring_per_byte_s"] * given.parameter_bytes
            if given.link is not None:
                each_s = (
                    values["ring_step_s"]
                    + values["ring_cpu_per_byte_s"] * 2.0 * (given.workers - 1) / given.workers * given.parameter_bytes
                )
        cpu_s = each_s * given.steps * given.workers
        lines.append({"kind": "used", "repeat": repeat, "task": "worker 0", "user_s": cpu_s, **used})
        lines.append({"kind": "repeat", "repeat": repeat, "clock_drift_s": 0.0})
    path = folder / f"{given.mode}-{given.hash}-testbed-1.ndjson"
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, {"kind": "end"}]), encoding="utf-8")
    return read_run(path)


_FITTED: dict[str, Platform] = {}


def fit_once(readings: Iterable[Readings], name: str, cores: float, **options: Any) -> Platform:
    """What :func:`fit_platform` gives, which takes seconds: for the same runs, cores and seed it is made once."""
    readings = list(readings)
    key = repr(([(one.setting, one.runs, one.link_bytes_per_s) for one in readings], cores, options.get("seed")))
    if key not in _FITTED:
        _FITTED[key] = fit_platform(readings, name, cores, **options)
    return _FITTED[key].model_copy(update={"name": name})
