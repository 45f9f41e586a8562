"""From synthetic measurements back to the truth that made them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.measurements import gamma_of, persistent

from calibrate.fit.estimators import persistence_of
from calibrate.fit.link import fit_link, fit_link_table
from calibrate.fit.step import fit_workload
from calibrate.fit.step_times import StepTable
from calibrate.fit.writing import write_fitted
from calibrate.measurements import read_measurements
from simulator.base.errors import CalibrationError, InputError
from simulator.catalogue.loading import load_cluster, load_workload
from simulator.spec.distributions import Gamma, LogNormal, Normal, ShiftedExponential


def test_known_parameters_are_recovered(synthetic: Any) -> None:
    workload = fit_workload(synthetic.steps(synthetic.Truth(rounds=40, steps_a_round=10)), "known")
    # mean of 400 steps of cv 0.1: a standard error of 0.5% at each batch, some times more in base and slope
    assert workload.forward(32) == pytest.approx(1e-3 + 50e-6 * 32, rel=0.025)
    assert workload.backward(32) == pytest.approx(2e-3 + 100e-6 * 32, rel=0.025)
    assert workload.forward.per_sample_s == pytest.approx(50e-6, rel=0.08)
    assert workload.backward.per_sample_s == pytest.approx(100e-6, rel=0.08)
    assert workload.apply_s == pytest.approx(0.4e-3, rel=0.025)
    assert workload.server.base_s == pytest.approx(5e-6, rel=1e-3)
    assert workload.server.per_byte_s == pytest.approx(2e-10, rel=1e-3)


def test_a_measured_point_is_split_without_remainder(synthetic: Any) -> None:
    for point in fit_workload(synthetic.steps(), "split").fit.points:
        assert point.forward_s + point.backward_s + point.apply_s == pytest.approx(point.mean_s, rel=1e-5)


def test_variables_stand_in_the_order_of_readiness(synthetic: Any) -> None:
    variables = fit_workload(synthetic.steps(), "order").variables
    assert [variable.name for variable in variables] == ["table", "second", "first"]
    assert [variable.ready for variable in variables] == pytest.approx([0.1, 0.4, 1.0])
    assert [variable.creation_index for variable in variables] == [2, 1, 0]
    assert variables[0].sparse_bytes_per_sample == pytest.approx(3 * 36)
    assert variables[1].sparse_bytes_per_sample is None


def test_no_noise_is_a_constant_law_with_narrow_intervals(synthetic: Any) -> None:
    workload = fit_workload(synthetic.steps(draw=lambda _, n: np.ones(n)), "still")
    assert workload.jitter.kind == "constant"
    assert workload.run_to_run_cv == 0
    assert workload.fit.relative_residual < 0.01


def test_the_spread_between_rounds_is_told_from_that_within(synthetic: Any) -> None:
    found = []
    for seed in range(20):
        path = synthetic.steps(synthetic.Truth(round_cv=0.08, rounds=20), synthetic.gamma_of(0.05), seed)
        found.append(StepTable.of(read_measurements(path)).run_to_run_cv())
    # standard deviation of one estimate from 20 rounds: about 0.08 / sqrt(38)
    assert np.mean(found) == pytest.approx(0.08, abs=4 * 0.08 / np.sqrt(38 * 20) + 0.004)
    quiet = [StepTable.of(read_measurements(synthetic.steps(seed=seed))).run_to_run_cv() for seed in range(20)]
    assert np.mean(quiet) < 0.02


@pytest.mark.parametrize("seeds", [3, pytest.param(8, marks=pytest.mark.long)])
def test_steps_that_persist_are_neither_a_narrower_law_nor_runs_that_differ(synthetic: Any, seeds: int) -> None:
    """Rounds of ten steps, of which one in three is new: their means differ by much, though no round is slower than another."""
    truth, draw = synthetic.Truth(rounds=20, steps_a_round=10), persistent(gamma_of(0.2), 0.66)
    laws, spreads, plain = [], [], []
    for seed in range(seeds):
        path = synthetic.steps(truth, draw, seed)
        workload = fit_workload(path, "sticky", accept_disturbed=True)
        laws.append((workload.jitter.persistence, np.std(workload.jitter.sample(np.random.default_rng(0), 20_000))))
        spreads.append(workload.run_to_run_cv)
        plain.append(StepTable.of(read_measurements(path)).run_to_run_cv())
        assert {type(law) for law in workload.jitter_draws} <= {Normal, LogNormal, Gamma, ShiftedExponential}
        assert all(0 <= law.persistence <= 1 for law in workload.jitter_draws)
    persistence, spread = np.mean(laws, axis=0)
    assert persistence == pytest.approx(0.66, abs=4 * 0.065 / np.sqrt(8))  # 0.065: of one fit
    assert spread == pytest.approx(0.2, abs=0.03)
    assert np.mean(spreads) < 0.5 * np.mean(plain)


def test_steps_that_do_not_persist_are_said_not_to(synthetic: Any) -> None:
    tables = [StepTable.of(read_measurements(synthetic.steps(seed=seed))) for seed in range(30)]
    assert np.count_nonzero([persistence_of(table.stretches()) for table in tables]) <= 4  # 1 or 2 are expected


def test_the_spread_between_runs_is_seen_in_several_of_them(synthetic: Any) -> None:
    """Runs whose speed differs by 5% (cv), rounds within them by 1%: one run shows the 1%, five runs both."""
    alone, together = [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        runs = []
        for number in range(5):
            speed = 1.0 + 0.05 * rng.standard_normal()
            truth = synthetic.Truth(round_cv=0.01)
            slowed = synthetic.Truth(
                forward=(truth.forward[0] * speed, truth.forward[1] * speed),
                backward=(truth.backward[0] * speed, truth.backward[1] * speed),
                apply_s=truth.apply_s * speed,
                round_cv=0.01,
            )
            runs.append(read_measurements(synthetic.steps(slowed, seed=100 * seed + number)))
        alone.append(StepTable.of(runs[0]).run_to_run_cv())
        together.append(StepTable.of(*runs).run_to_run_cv() ** 2)
    assert np.mean(alone) < 0.02
    # the variance estimate of 5 runs has a relative standard deviation of sqrt(2 / 4)
    want = 0.05**2 + 0.01**2
    assert np.mean(together) == pytest.approx(want, rel=4 * np.sqrt(0.5 / 30))


@pytest.mark.parametrize(("tries", "fewest", "draws"), [(8, 6, 30), pytest.param(25, 18, 60, marks=pytest.mark.long)])
def test_intervals_cover_the_truth_about_as_often_as_they_say(
    synthetic: Any, monkeypatch: pytest.MonkeyPatch, tries: int, fewest: int, draws: int
) -> None:
    monkeypatch.setattr("calibrate.fit.step_times.DRAWS", draws)
    truth, hits = synthetic.Truth(round_cv=0.05, rounds=12), 0
    for seed in range(tries):
        intervals = fit_workload(synthetic.steps(truth, seed=seed), "cover").fit.intervals_90
        low, high = intervals["backward.per_sample_s"]
        hits += low <= truth.backward[1] <= high
    # a bootstrap of 12 rounds covers a little less than 90%: fewer than 18 of 25 has a chance below 1% at 88%
    assert hits >= fewest


@pytest.mark.usefixtures("all_draws")
def test_the_draws_keep_the_step_time_tied_together(synthetic: Any) -> None:
    workload = fit_workload(synthetic.steps(synthetic.Truth(round_cv=0.05)), "joint")
    assert workload.uncertainty.parameters == (
        "forward.base_s",
        "forward.per_sample_s",
        "backward.base_s",
        "backward.per_sample_s",
        "apply_s",
    )
    draws = np.array(workload.uncertainty.draws)
    assert draws.shape == (60, 5)
    totals = draws[:, 0] + draws[:, 2] + 32 * (draws[:, 1] + draws[:, 3]) + draws[:, 4]
    assert np.std(totals) / np.mean(totals) < 0.05
    assert np.mean(totals) == pytest.approx(synthetic.Truth().mean(32), rel=0.1)


def test_the_file_reads_back_as_it_was(synthetic: Any, tmp_path: Path) -> None:
    workload = fit_workload(synthetic.steps(), "there-and-back", "paceline calibrate ...")
    path = write_fitted(workload, tmp_path / "deep" / "w.toml")
    assert load_workload(path) == workload
    text = path.read_text()
    assert "# forward pass" in text
    assert workload.provenance["measurements_sha256"] in text
    assert not list(path.parent.glob(".paceline-*"))


def test_one_batch_is_too_few(synthetic: Any) -> None:
    with pytest.raises(CalibrationError, match=r"1 batch size.*at least 2"):
        fit_workload(synthetic.steps(synthetic.Truth(batches=(16,))), "one")


def test_too_few_steps_are_named(synthetic: Any) -> None:
    with pytest.raises(CalibrationError, match=r"batch 16 has 4 timed step.*more `steps`"):
        fit_workload(synthetic.steps(synthetic.Truth(rounds=2, steps_a_round=2)), "few")


def test_a_run_that_stopped_before_the_split_is_named(synthetic: Any) -> None:
    records = [record for record in synthetic.step_records(synthetic.Truth(), synthetic.gamma_of(0.1)) if record["kind"] != "split"]
    with pytest.raises(CalibrationError, match="no step split"):
        fit_workload(synthetic.lines(records), "unsplit")


def test_a_run_that_stopped_after_the_variables_is_used_and_said(synthetic: Any) -> None:
    records = [
        record for record in synthetic.step_records(synthetic.Truth(), synthetic.gamma_of(0.1)) if record["kind"] not in ("end", "server")
    ]
    workload = fit_workload(synthetic.lines(records), "stopped")
    assert "did not finish" in workload.provenance["incomplete"]
    assert workload.server.per_byte_s == 0


def test_an_unseen_gpu_is_kept_in_the_provenance(synthetic: Any) -> None:
    records = synthetic.step_records(synthetic.Truth(), synthetic.gamma_of(0.1))
    records[1] = {**records[1], "gpu_unseen": True, "gpus_present": ["Tesla T4, 550.1"]}
    assert "Tesla T4" in fit_workload(synthetic.lines(records), "gpu").provenance["warning"]


def test_a_link_is_recovered(synthetic: Any, tmp_path: Path) -> None:
    path = synthetic.links(50e-6, 1.25e9)
    cluster = fit_link(path, "lab")
    # medians of 7 rounds of cv 5%, nine sizes
    assert cluster.inter_node.latency_s == pytest.approx(50e-6, rel=0.08)
    assert cluster.inter_node.bandwidth_bytes_per_s == pytest.approx(1.25e9, rel=0.08)
    assert cluster.basis == "measured"
    low, high = cluster.fit.intervals_90["inter_node.bandwidth_bytes_per_s"]
    assert low < cluster.inter_node.bandwidth_bytes_per_s < high
    assert cluster.calibrated.message_bytes == (1024, 2**26)
    written = write_fitted(cluster, tmp_path / "c.toml")
    assert load_cluster(written) == cluster


@pytest.mark.parametrize(("tries", "fewest", "draws"), [(8, 6, 30), pytest.param(30, 20, 60, marks=pytest.mark.long)])
def test_link_intervals_cover(synthetic: Any, monkeypatch: pytest.MonkeyPatch, tries: int, fewest: int, draws: int) -> None:
    monkeypatch.setattr("calibrate.fit.estimators.DRAWS", draws)
    hits = 0
    for seed in range(tries):
        low, high = fit_link(synthetic.links(50e-6, 1.25e9, seed=seed), "x").fit.intervals_90["inter_node.bandwidth_bytes_per_s"]
        hits += low <= 1.25e9 <= high
    assert hits >= fewest


def test_a_link_whose_time_does_not_grow_is_refused(synthetic: Any) -> None:
    with pytest.raises(CalibrationError, match="does not grow"):
        fit_link(synthetic.links(1e-3, 1e30, cv=0.0), "flat")


def test_copies_between_host_and_device_become_the_link_inside(synthetic: Any) -> None:
    records = synthetic.link_records(50e-6, 1.25e9)
    inside = [
        {**record, "path": path} for path in ("host-to-device", "device-to-host") for record in synthetic.link_records(5e-6, 16e9)[2:-1]
    ]
    cluster = fit_link(synthetic.lines([*records[:-1], *inside, records[-1]]), "gpu")
    assert cluster.intra_node.bandwidth_bytes_per_s == pytest.approx(16e9, rel=0.1)
    assert "Gbit/s" in cluster.provenance["host-to-device"]


NCCL = """# nThread 1 nGpus 1 minBytes 1048576 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1
{ranks}#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
{rows}# Out of bounds values : 0 OK
# Avg bus bandwidth    : 12.434
"""
OSU = "# OSU MPI {test} Test v7.3\n# Size       {column}\n"
GLOO = """Device:      tcp, pci=0000:00:05.0, iface=ens5, speed=-1, addr=[172.31.49.113]
Algorithm:   {name}
Options:     processes=4, inputs=1, threads=1

   elements   min (us)   p50 (us)   p99 (us)   max (us)   avg (GB/s)    samples
"""
IPERF = """Connecting to host 10.0.37.71, port 5201
[  5] local 10.0.15.0 port 46464 connected to 10.0.37.71 port 5201
[ ID] Interval           Transfer     Bitrate         Retr  Cwnd
[  5]   0.00-1.00   sec  1.11 GBytes  9.50 Gbits/sec  107   1.66 MBytes
[  5]   1.00-2.00   sec  1.11 GBytes  9.60 Gbits/sec  230   1.19 MBytes
[  5]   2.00-3.00   sec  1.11 GBytes  9.40 Gbits/sec   70   1.17 MBytes
[  5]   3.00-3.04   sec   1.1 MBytes  0.20 Gbits/sec   70   1.17 MBytes
- - - - - - - - - - - - - - - - - - - - - - - - -
[  5]   0.00-3.04  sec  3.33 GBytes  9.49 Gbits/sec    0             sender
[  5]   0.00-3.04  sec  3.33 GBytes  9.44 Gbits/sec                  receiver
"""
LATENCY_S, RATE = 20e-6, 10e9
BYTES = [2.0**power for power in range(12, 28, 3)]


def of_messages(turns: float, parts: float) -> list[tuple[int, float]]:
    """Sizes of buffers, and microseconds in which so many turns pass on so many parts of each."""
    return [(int(size), 1e6 * turns * (LATENCY_S + size / parts / RATE)) for size in BYTES]


def nccl(ranks: int, *, said: bool = True, name: str = "all_reduce") -> str:
    turns, operation = (max(2 * (ranks - 1), 1), "sum") if name == "all_reduce" else (ranks - 1, "none")
    timed = [(f"{us:.2f} {size / us / 1e3:.2f} {size * turns / ranks / us / 1e3:.2f}", size) for size, us in of_messages(turns, ranks)]
    rows = "".join(f"  {size}  {size // 4}  float  {operation}  -1  {each}  0  {each}  N/A\n" for each, size in timed)
    listed = "".join(f"#  Rank {rank} Group  0 Pid  {rank} on host-{rank // 4} device  0 [0x0f] A100\n" for rank in range(ranks))
    return f"# Collective test starting: {name}_perf\n" + NCCL.format(ranks=listed if said else "", rows=rows)


def osu(test: str, column: str, rows: list[tuple[int, float]]) -> str:
    return OSU.format(test=test, column=column) + "".join(f"{size}    {value:.2f}\n" for size, value in rows)


def gloo(name: str, turns: float, parts: float) -> str:
    rows = [(size // 4, us, size / 2**30 / us * 1e6) for size, us in of_messages(turns, parts)]
    return GLOO.format(name=name) + "".join(f"{size} {us:.0f} {us:.0f} {us:.0f} {us:.0f} {rate:.3f} 100\n" for size, us, rate in rows)


def iperf_json(**sender: float) -> str:
    intervals = [{"sum": {"seconds": 1.0, "bits_per_second": rate, "omitted": False}} for rate in (79e9, 80e9, 81e9)]
    streams = [{"sender": {"bits_per_second": 80e9, **sender}, "receiver": {"bits_per_second": 80e9}}]
    return json.dumps({"start": {}, "intervals": intervals, "end": {"streams": streams, "sum_received": {"bits_per_second": 80e9}}})


@pytest.mark.parametrize(
    ("text", "ranks", "tool", "latency_s"),
    [
        (nccl(8), None, "nccl-tests (all_reduce_perf, 8 ranks on 2 hosts)", LATENCY_S),
        (nccl(16, said=False), None, "nccl-tests (all_reduce_perf, 16 ranks)", LATENCY_S),
        (nccl(2), None, "nccl-tests (all_reduce_perf, 2 ranks on 1 host)", LATENCY_S),
        (nccl(8, name="all_gather"), None, "nccl-tests (all_gather_perf, 8 ranks on 2 hosts)", LATENCY_S),
        (osu("Latency", "Latency (us)", [(0, 1.0), *of_messages(1, 1)]), None, "osu_latency", LATENCY_S),
        (osu("Bandwidth", "Bandwidth (MB/s)", [(1, 2.0), (1048576, 9990.0), (4194304, 10010.0)]), None, "osu_bw", 0.0),
        (osu("Allreduce Latency", "Avg Latency(us)", of_messages(6, 4)), 4, "osu_allreduce (4 ranks)", LATENCY_S),
        (gloo("allreduce_ring_chunked", 6, 4), None, "gloo's benchmark (allreduce_ring_chunked, 4 ranks)", LATENCY_S),
        (gloo("allreduce_ring", 3, 1), None, "gloo's benchmark (allreduce_ring, 4 ranks)", LATENCY_S),
        (gloo("allreduce_halving_doubling", 4, 8 / 3), None, "gloo's benchmark (allreduce_halving_doubling, 4 ranks)", LATENCY_S),
        (iperf_json(min_rtt=40), None, "iperf3", LATENCY_S),
        (iperf_json(), None, "iperf3", 0.0),
        (IPERF.replace("9.", "80."), None, "iperf3", 0.0),
    ],
)  # fmt: skip
def test_what_other_tools_print_of_a_link_is_fitted(text: str, ranks: int | None, tool: str, latency_s: float, tmp_path: Path) -> None:
    (tmp_path / "link.txt").write_text(f"mpirun ...\n{text}", encoding="utf-8")
    cluster = fit_link_table(tmp_path / "link.txt", "lab", ranks=ranks)
    assert cluster.provenance["tool"] == tool
    assert cluster.inter_node.bandwidth_bytes_per_s == pytest.approx(RATE, rel=0.01)
    assert cluster.inter_node.latency_s == pytest.approx(latency_s, rel=0.02)
    assert ("no_latency" in cluster.provenance) == (latency_s == 0)
    low, high = cluster.fit.intervals_90["inter_node.bandwidth_bytes_per_s"]
    assert low <= cluster.inter_node.bandwidth_bytes_per_s <= high
    assert load_cluster(write_fitted(cluster, tmp_path / "c.toml")) == cluster


def test_the_further_rows_lie_from_a_line_the_wider_is_the_interval(tmp_path: Path) -> None:
    widths = []
    for scatter in (0.02, 0.2):
        rows = [(size, us * (1 + scatter * (-1) ** place)) for place, (size, us) in enumerate(of_messages(1, 1))]
        (tmp_path / "osu.txt").write_text(osu("Latency", "Latency (us)", rows), encoding="utf-8")
        low, high = fit_link_table(tmp_path / "osu.txt", "lab").fit.intervals_90["inter_node.bandwidth_bytes_per_s"]
        widths.append(high / low)
    assert 1.01 < widths[0] < widths[1] / 1.1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hello", "has no table of nccl-tests"),
        ("{}", "has no table of nccl-tests"),
        (osu("Allreduce Latency", "Avg Latency(us)", of_messages(6, 4)), "give `ranks`"),
        (osu("Bi-Directional Bandwidth", "Bandwidth (MB/s)", [(1, 2.0)]), "has OSU's Bi-Directional Bandwidth"),
        (osu("Latency", "Latency (us)", [(1024, 2.0)]), "a fit needs at least 2"),
        (NCCL.format(ranks="", rows=""), "has no rows"),
        (nccl(1), "a single process"),
        (gloo("pairwise_exchange", 1, 1), "gloo's benchmark pairwise_exchange, but only all-reduces"),
        ('{"intervals": [], "end": {}, "error": "unable to connect"}', "unable to connect"),
        ('{"intervals": 3, "end": {}}', "looks like iperf3's JSON"),
        (IPERF.splitlines()[3] + "\n", "reports one bitrate"),
    ],
)
def test_tables_that_tell_too_little_are_refused_in_one_line(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "link.txt").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(says)) as told:
        fit_link_table(tmp_path / "link.txt", "lab")
    assert str(told.value).startswith(str(tmp_path / "link.txt"))
    assert "\n" not in str(told.value)


def test_the_two_kinds_of_files_are_not_mixed_up(synthetic: Any) -> None:
    with pytest.raises(CalibrationError, match="of links, not of a training step"):
        fit_workload(synthetic.links(1e-4, 1e9), "wrong")
    with pytest.raises(CalibrationError, match="of a training step, not of links"):
        fit_link(synthetic.steps(), "wrong")
