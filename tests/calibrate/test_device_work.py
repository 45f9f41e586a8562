"""What one device tells of sharing: processor seconds of a step, and the memory that logical devices exchange through."""

from __future__ import annotations

import re

import pytest
from support.measurements import FINGERPRINT, Truth, header, link_records, step_records

from calibrate.fit.link import fit_link
from calibrate.fit.step import fit_workload
from calibrate.measurements import MeasurementsError
from calibrate.profiling import profile_link
from simulator.base.errors import InputError
from simulator.spec.workload import Counted

CORES = 2
LOAD = {"kind": "load", "stage": "before", "wall_s": 1.0, "cores": CORES, "own_s": 0.0, "others_s": 0.0, "stolen_s": 0.0, "switches": 0,
        "throttled": 0, "clock_hz": None}  # fmt: skip


def steps_with(synthetic, per_step, kind="CPU", arguments=None):
    records = step_records(Truth(), lambda _, n: [1.0] * n)
    records[0] = {**header(), "arguments": {"precision": "float32", **(arguments or {})}}
    records[1] = {**FINGERPRINT, "device_kind": kind}
    for record in records:
        if record["kind"] == "step" and per_step is not None:
            record["cpu_s"] = per_step(record["batch"])
    return synthetic.lines([*records[:2], LOAD, *records[2:]], "step.ndjson")


def test_device_work_is_the_line_through_processor_seconds_over_cores(synthetic):
    load = fit_workload(steps_with(synthetic, lambda batch: 2e-3 + 120e-6 * batch), "work")
    assert load.device_work.base_s == pytest.approx(1e-3, rel=1e-6)
    assert load.device_work.per_sample_s == pytest.approx(60e-6, rel=1e-6)
    assert load.busy_share(32) == pytest.approx((1e-3 + 60e-6 * 32) / Truth().mean(32), rel=1e-3)


@pytest.mark.parametrize(("per_step", "kind"), [(None, "CPU"), (lambda _: 1e-3, "GPU")], ids=["not measured", "host's, not the GPU's"])
def test_device_work_is_left_out_where_nothing_tells_it(synthetic, per_step, kind):
    load = fit_workload(steps_with(synthetic, per_step, kind), "none")
    assert load.device_work is None


@pytest.mark.parametrize("missing", [None, "flops", "bytes", "kernels"])
def test_a_step_whose_count_lacks_something_counts_nothing(synthetic, missing):
    records = step_records(Truth(), lambda _, n: [1.0] * n)
    counts = [{"kind": "counted", "batch": n, "flops": 4e6 * n, "bytes": 1e6 + 2e5 * n, "kernels": 30} for n in Truth().batches]
    if missing:
        del counts[-1][missing]
    load = fit_workload(synthetic.lines([*records[:-1], *counts, records[-1]], "step.ndjson"), "work")
    assert load.counted == (None if missing else Counted(flops_per_sample=4e6, base_bytes=1e6, per_sample_bytes=2e5, kernels=30))


def test_steps_of_replicas_are_no_workload(synthetic):
    with pytest.raises(MeasurementsError, match=re.escape("has steps of 4 replicas on logical devices")):
        fit_workload(steps_with(synthetic, lambda _: 1e-3, arguments={"replicas": 4}), "shared")


@pytest.mark.parametrize("logical", [2, 4])
def test_all_reduces_between_logical_devices_tell_the_memory_that_they_share(synthetic, logical):
    """A ring of n moves 2 (n - 1) times the buffer through it, in as many turns: 8 GB/s and 100 us."""
    records = link_records(100e-6, 1e9, cv=0.0)
    records[0] = {**header("links"), "arguments": {"logical_devices": logical}}
    turns = 2 * (logical - 1)
    for turn in range(7):
        for power in range(12, 25, 2):
            for hops in (1, 5):
                seconds = 1e-3 + hops * turns * (100e-6 + 2**power / 8e9)
                path = f"all-reduce-{logical}"
                sent = {"size_bytes": 2**power, "round": turn, "hops": hops, "seconds": seconds}
                records.insert(-1, {"kind": "transfer", "path": path, **sent})
    link = fit_link(synthetic.lines(records, "links.ndjson"), "machine").intra_device
    assert link.bandwidth_bytes_per_s == pytest.approx(8e9, rel=1e-3)
    assert link.latency_s == pytest.approx(100e-6, rel=1e-3)


def test_one_logical_device_exchanges_nothing(tmp_path):
    with pytest.raises(InputError, match="must be at least 2"):
        profile_link("any", logical_devices=1, folder=tmp_path)
