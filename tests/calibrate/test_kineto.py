"""``--from-profile`` of PyTorch's traces: one of NCCL made by hand, whose answers are known, and real ones of DDP over gloo."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.kineto import BYTES_PER_S, LATENCY_S, SIZES, Sample, all_reduce_us, nccl_sample

from calibrate.fit.profile import fit_profiles
from calibrate.fit.traced_links import fit_traced_links
from calibrate.recorded.reading import read_recorded
from calibrate.traces.kineto import read_trace
from calibrate.traces.profiles import Profiled, read_steps
from calibrate.traces.steps import StepsOfProfile, buckets_of, steps_of
from calibrate.traces.variables import ModelVariable, ModelVariables
from simulator.base.errors import InputError
from simulator.catalogue.loading import load_cluster, load_workload

DATA = Path(__file__).parent / "data" / "kineto"
PARTS = ("input_s", "forward_s", "backward_s", "apply_s", "collective_s")
EXPOSED_S = all_reduce_us(SIZES[1]) * 1e-6
HIDDEN_S = all_reduce_us(SIZES[0]) * 1e-6


def made(sample: Sample, folder: Path) -> StepsOfProfile:
    return steps_of(read_trace(sample.write(folder / "trace.json")))


def edited(sample: Sample, change: Callable[[dict[str, Any]], Any]) -> Sample:
    """The sample without the events for which the change says True; others as the change leaves them."""
    sample.data["traceEvents"] = [event for event in sample.data["traceEvents"] if change(event) is not True]
    return sample


@pytest.mark.parametrize("lag", [0.0, 5000.0])
def test_parts_of_a_step_are_known(tmp_path: Path, lag: float) -> None:
    found = made(nccl_sample(lag=lag), tmp_path)
    assert (found.trace.device, found.trace.device_name) == ("/device:GPU:1", "NVIDIA H100 80GB HBM3 of lab")
    assert (found.trace.rank, found.trace.world_size, found.trace.node_devices, found.trace.lacks) == (1, 16, 8, {})
    assert len(found.steps) == 10
    for step in found.steps:
        idle_s = 2000e-6 - 1200e-6 - EXPOSED_S  # behind the optimizer: the host's, which counts as forward
        parts = [step.whole_s, *(getattr(step, part) for part in PARTS), step.hidden_s, step.idle_s]
        wanted = [2000e-6, 0.0, 500e-6 + idle_s, 600e-6, 100e-6, EXPOSED_S, HIDDEN_S, idle_s + 80e-6]
        assert parts == pytest.approx(wanted, abs=1e-9)
        assert sum(getattr(step, part) for part in PARTS) == pytest.approx(step.whole_s)


def test_buckets_are_known_with_when_each_is_ready(tmp_path: Path) -> None:
    first, second = buckets_of(made(nccl_sample(), tmp_path).steps)
    assert (first.collective, first.size_bytes, first.ranks) == ("all_reduce", SIZES[0], 16)
    assert (first.ready, first.ready_s, first.start_s, first.seconds) == pytest.approx((1 / 3, 200e-6, 200e-6, HIDDEN_S))
    assert (second.size_bytes, second.ready, second.ready_s) == pytest.approx((SIZES[1], 1.0, 600e-6))


def test_a_bucket_that_waits_for_the_one_before_is_ready_before_it_begins(tmp_path: Path) -> None:
    def later(event: dict[str, Any]) -> None:
        if event["args"].get("In msg nelems") == 65536:
            event["ts"] += 150.0

    first, _ = buckets_of(made(edited(nccl_sample(), later), tmp_path).steps)
    assert (first.ready_s, first.start_s) == pytest.approx((200e-6, 350e-6))


def test_collectives_are_known_with_group_and_bandwidth(tmp_path: Path) -> None:
    (report,) = Profiled({8: (made(nccl_sample(), tmp_path),)}).reports
    longest, shortest = report.collectives
    assert longest[:6] == ("all_reduce", "BFloat16", SIZES[1], "0", 16, 1.0)
    assert longest.bus_bytes_per_s == pytest.approx(SIZES[1] * 30 / 16 / EXPOSED_S)
    assert (shortest.dtype, shortest.median_s) == ("Float", pytest.approx(HIDDEN_S))
    assert {total.name for total in report.longest} == {"aten::addmm", "aten::mm", "aten::_foreach_add_"}
    assert json.loads(json.dumps(report.to_dict()))["buckets"][0]["ready"] == pytest.approx(1 / 3)


def test_fields_of_a_collective_may_be_those_of_the_operator_alone(tmp_path: Path) -> None:
    sample, fields = nccl_sample(), ("Collective name", "dtype", "In msg nelems", "Out msg nelems", "Group size", "Process Group Name")
    events = sample.data["traceEvents"]
    operators = {event["args"]["External id"]: event for event in events if event["name"] == "record_param_comms"}
    for event in events:
        if "Collective name" in event["args"]:
            operators[event["args"]["External id"]]["args"] |= {field: event["args"].pop(field) for field in fields}
    assert [own.size_bytes for own in buckets_of(made(sample, tmp_path).steps)] == list(SIZES)


def test_the_workload_has_variables_in_the_order_in_which_they_are_ready(tmp_path: Path) -> None:
    profiled = Profiled({8: (made(nccl_sample(), tmp_path),)})
    workload = fit_profiles(profiled, None, "net")
    assert [(own.size_bytes, own.creation_index, own.rows) for own in workload.variables] == [(SIZES[0], 1, 64), (SIZES[1], 0, 1024)]
    assert [own.ready for own in workload.variables] == pytest.approx([1 / 3, 1.0], abs=1e-5)
    assert workload.backend == "torch"
    assert workload.compute_s(8) + workload.apply_s == pytest.approx(2000e-6 - EXPOSED_S, rel=1e-5)
    # names of the user's, where sizes agree in the order of creation
    names = (ModelVariable(name="fc1", shape=(1024, 2048), dtype="bfloat16"), ModelVariable(name="fc2", shape=(64, 1024)))
    named = fit_profiles(profiled, ModelVariables(names, "test", "creation"), "net")
    assert [own.name for own in named.variables] == ["fc2", "fc1"]
    assert named.variables[0].ready == pytest.approx(1 / 3, abs=1e-5)


def test_without_shapes_buckets_are_variables(tmp_path: Path) -> None:
    workload = fit_profiles(
        Profiled({8: (made(edited(nccl_sample(), lambda event: event["args"].pop("Input Dims", None)), tmp_path),)}), None, "x"
    )
    assert [(own.name, own.size_bytes) for own in workload.variables] == [("bucket_001", SIZES[0]), ("bucket_002", SIZES[1])]
    assert [own.ready for own in workload.variables] == pytest.approx([1 / 3, 1.0], abs=1e-5)
    assert "no shapes of gradients" in workload.provenance["shapes"]


@pytest.mark.parametrize(("waiting", "reach"), [(1.0, 1.0), (1.3, 1.15)])
def test_the_link_between_nodes_is_what_the_collectives_say(tmp_path: Path, waiting: float, reach: float) -> None:
    cluster = fit_traced_links(Profiled({8: (made(nccl_sample(waiting=waiting), tmp_path),)}), "lab")
    assert cluster is not None
    assert (cluster.devices_per_node, cluster.calibrated.nodes if cluster.calibrated else None) == (8, (1, 2))
    assert cluster.intra_node == cluster.inter_node
    # slow ones wait for others, and are left out
    assert cluster.inter_node.bandwidth_bytes_per_s == pytest.approx(BYTES_PER_S, rel=1e-3)
    assert cluster.inter_node.latency_s == pytest.approx(LATENCY_S, rel=1e-3)
    assert cluster.fit is not None
    low, high = cluster.fit.intervals_90["inter_node.bandwidth_bytes_per_s"]
    # from the median of all to the fastest
    assert high / low == pytest.approx(reach, rel=0.1)
    # times are known better than either figure
    assert cluster.uncertainty is not None
    assert {round(latency_s * rate) for latency_s, rate in cluster.uncertainty.draws} == {round(LATENCY_S * BYTES_PER_S)}


def of_group(sample: Sample, ranks: list[int], listed: Any, time_us: float | None = None) -> Sample:
    """The sample with its collectives in another group."""

    def change(event: dict[str, Any]) -> None:
        if "Collective name" in event["args"]:
            event["args"] |= {"Process Group Name": "7", "Group size": len(ranks), "Process Group Ranks": listed}
            event["dur"] = event["dur"] if time_us is None else time_us

    return edited(sample, change)


def test_groups_say_which_link_they_use(tmp_path: Path) -> None:
    inside = of_group(nccl_sample(), [0, 1, 2, 3], "[0, 1, 2, 3]")
    cluster = fit_traced_links(Profiled({8: (made(inside, tmp_path),)}), "lab")
    assert cluster is not None
    assert cluster.intra_node.bandwidth_bytes_per_s == pytest.approx(SIZES[1] * 1.5 / EXPOSED_S, rel=0.5)
    assert "assumption (10 Gbit/s)" in cluster.provenance["inter_node"]
    assert set(cluster.fit.intervals_90 if cluster.fit else ()) == {"intra_node.latency_s", "intra_node.bandwidth_bytes_per_s"}
    # one rank of each node: seven other pairs share the node's link
    across = of_group(nccl_sample(), [1, 9], "[1, 9]", time_us=200.0)
    edited(across, lambda event: event["args"].get("In msg nelems") == 65536)
    cluster = fit_traced_links(Profiled({8: (made(across, tmp_path),)}), "lab")
    assert cluster is not None
    assert cluster.inter_node.bandwidth_bytes_per_s == pytest.approx(8 * SIZES[1] / 200e-6, rel=1e-3)
    assert cluster.inter_node.latency_s == 0
    assert "an assumption" in cluster.provenance["intra_node"]
    assert "latency" in cluster.provenance["no_latency"]


def test_a_group_that_reduces_in_the_forward_pass_has_no_gradients(tmp_path: Path) -> None:
    sample = nccl_sample()
    for step in range(10):
        host, begun = step * 100.0, 5000 + step * 2000.0
        for turn, (at, start) in enumerate(((10.0, 300.0), (25.5, 600.0))):
            number = 10_000 + 2 * step + turn
            sample.add("cuda_runtime", "cudaLaunchKernel", host + at, host + at + 1, 1 + turn, correlation=number)
            args = {"Collective_name": "allreduce", "dtype": "Half", "In_msg_nelems": 64, "Out_msg_nelems": 64, "Group_size": 2}
            sample.add("kernel", "ncclKernel", begun + start, begun + start + 50, 21, 1, correlation=number, Process_Group_Name="5", **args)
    found = made(sample, tmp_path)
    assert [own.size_bytes for own in buckets_of(found.steps)] == list(SIZES)
    assert "of 2, 16 ranks" in found.trace.lacks["groups"]
    # hidden behind gemms
    assert found.steps[0].hidden_s == pytest.approx(HIDDEN_S + 100e-6, abs=1e-9)
    assert found.steps[0].forward_s == pytest.approx(made(nccl_sample(), tmp_path).steps[0].forward_s, abs=1e-9)


def test_what_the_optimizer_reduces_is_no_bucket(tmp_path: Path) -> None:
    def in_optimizer(event: dict[str, Any]) -> None:
        if event["name"].startswith("Optimizer.step#"):  # from before the second bucket's call on
            event["tid"], event["ts"], event["dur"] = 2, event["ts"] - 16, 30.0

    found = made(edited(nccl_sample(), in_optimizer), tmp_path)
    assert [own.size_bytes for own in buckets_of(found.steps)] == [SIZES[0]]
    assert [op.phase for op in found.steps[0].ops if op.collective] == ["gradient", "optimizer"]


def test_micro_batches_have_a_forward_and_a_backward_pass_each(tmp_path: Path) -> None:
    def again(event: dict[str, Any]) -> None:
        # the second gradient's kernel belongs to a second micro-batch, whose forward pass was 700 to 900
        if event["name"] == "ampere_sgemm_64x64_nt" and event["dur"] == 400.0:
            event["ts"], event["dur"] = event["ts"] + 200.0, 200.0

    sample = edited(nccl_sample(), again)
    for step in range(10):
        sample.add("cuda_runtime", "cudaLaunchKernel", step * 100.0 + 39, step * 100.0 + 39.5, 1, correlation=10_000 + step)
        begun = 5000 + step * 2000.0
        sample.add("kernel", "forward_again", begun + 780, begun + 900, 7, 1, correlation=10_000 + step)
    plain, found = made(nccl_sample(), tmp_path).steps[0], made(sample, tmp_path).steps[0]
    # 700 to 900 without the all-reduce's part that nothing hides, which ends before the second forward pass begins
    assert found.forward_s == pytest.approx(plain.forward_s + 200e-6 - HIDDEN_S, abs=1e-9)
    assert found.backward_s == pytest.approx(400e-6, abs=1e-9)
    # of each variable the gradient is accumulated once in each pass, and complete in the last
    assert [own.shape for own in made(sample, tmp_path).trace.gradients] == [(1024, 2048)]


def without_sizes(event: dict[str, Any]) -> None:
    if event["args"].pop("Collective name", None):
        event["args"].pop("In msg nelems"), event["args"].pop("Out msg nelems")


@pytest.mark.parametrize(
    ("sample", "subject", "says"),
    [
        (lambda: edited(nccl_sample(), without_sizes), "sizes", "20 of 20 collectives cannot be used for links"),
        (lambda: nccl_sample(steps=1), "one_step", "one step"),
        (lambda: edited(nccl_sample(), lambda event: event["cat"] in ("kernel", "gpu_memcpy")), "kernels", "ProfilerActivity.CUDA"),
    ],
)
def test_what_a_trace_lacks_is_said_in_one_sentence(tmp_path: Path, sample: Callable[[], Sample], subject: str, says: str) -> None:
    lacks = made(sample(), tmp_path).trace.lacks
    assert list(lacks) == [subject]
    assert says in lacks[subject]


def test_without_distributed_info_the_rank_is_missing_and_sizes_are_not(tmp_path: Path) -> None:
    sample = nccl_sample()
    del sample.data["distributedInfo"], sample.data["deviceProperties"]
    found = made(sample, tmp_path)
    assert "lacks the rank" in found.trace.lacks["rank"]
    cluster = fit_traced_links(Profiled({8: (found,)}), "lab")
    assert cluster is not None
    assert cluster.inter_node.bandwidth_bytes_per_s == pytest.approx(BYTES_PER_S, rel=1e-3)
    assert "each rank counts as a node" in cluster.provenance["node"]
    edited(sample, lambda event: without_sizes(event))
    assert fit_traced_links(Profiled({8: (made(sample, tmp_path),)}), "lab") is None


def test_a_step_without_a_known_pass_is_split_as_documented(tmp_path: Path) -> None:
    def by_graph(event: dict[str, Any]) -> None:
        # a CUDA graph launches all kernels of a step at once
        if event["cat"] == "kernel":
            event["args"]["correlation"] = (event["args"]["correlation"] - 1) // 7 * 7 + 2

    graphs = made(edited(nccl_sample(), by_graph), tmp_path)
    assert {step.backward_s for step in graphs.steps} == {None}


def test_threads_tell_the_passes_where_operators_do_not(tmp_path: Path) -> None:
    found = made(edited(nccl_sample(), lambda event: event["cat"] == "cpu_op"), tmp_path)
    assert found.steps[0].backward_s == pytest.approx(600e-6, abs=1e-9)


@pytest.mark.parametrize("name", ["ddp-gloo-shapes", "ddp-gloo"])
def test_real_traces_of_ddp_over_gloo(name: str) -> None:
    (found,) = read_steps([(DATA / f"{name}.json.gz", 64)]).profiles
    assert (found.trace.rank, found.trace.world_size, len(found.steps)) == (0, 2, 3)
    for step in found.steps:
        assert sum(getattr(step, part) for part in PARTS) == pytest.approx(step.whole_s, rel=1e-9)
        assert min(step.forward_s, step.backward_s or 0, step.apply_s or 0, step.collective_s, step.hidden_s) > 0
    sizes = [4 * (512 * 10 + 10 + 512 * 1024 + 512), 4 * (1024 * 512 + 1024)] if "shapes" in name else [0, 0]
    buckets = buckets_of(found.steps)
    assert [own.size_bytes for own in buckets] == sizes
    assert 0 < buckets[0].ready < buckets[1].ready <= 1
    # gloo's threads do what autograd's called
    assert {op.phase for step in found.steps for op in step.ops if op.collective} == {"gradient"}
    shapes = [(1024, 512), (1024,), (512, 1024), (512,), (10, 512), (10,)]
    assert [own.shape for own in sorted(found.trace.gradients, key=lambda own: own.created)] == (shapes if sizes[0] else [])
    assert [own.ready for own in found.trace.gradients] == sorted(own.ready for own in found.trace.gradients)
    assert ("shapes" in found.trace.lacks, "sizes" in found.trace.lacks) == ((False, False) if sizes[0] else (True, True))


def test_a_recorded_run_has_the_steps_of_a_trace_and_their_compute(tmp_path: Path) -> None:
    (run,) = read_recorded([nccl_sample().write(tmp_path / "trace.json")])
    assert run.duration_s == pytest.approx(2e-3)
    assert run.compute_s == pytest.approx(2e-3 - EXPOSED_S)
    assert (run.worker, run.facts.devices_in_all, run.kind) == ("1", 16, "profile")


def test_the_command_writes_a_workload_and_a_cluster(paceline: Any, tmp_path: Path) -> None:
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(json.dumps(nccl_sample().data).encode()))
    code, out, err = paceline("calibrate", "--name", "net", "--from-profile", "trace.json.gz@8")
    assert code == 0, err
    assert "Buckets of gradients" in out
    assert load_workload(tmp_path / "models/workloads/net.toml").parameter_bytes == sum(SIZES)
    assert load_cluster(tmp_path / "models/clusters/net.toml").devices_per_node == 8
    using = ("--set", "workload.use=net", "--set", "cluster.use=net", "--set", "strategy.workers=32", "--set", "run.steps=20")
    code, out, err = paceline("simulate", "ring", *using)
    assert code == 0, err
    own = ("--workload", "net", "--cluster", "net", "--strategy", "ring", "--batch", "8", "--json")
    for steps in (("--step", "trace.json.gz"), ("--step", "16=trace.json.gz", "--step", "1=1.78ms")):
        code, out, err = paceline("why", *steps, *own)
        assert code == 0, err
        diagnosis = json.loads(out)
        assert (diagnosis["run"]["workers"], diagnosis["as_told"]) == (16, True)
        # measured again: what the workload and the cluster say of the trace that they are from
        assert diagnosis["told_s"]["mean"] == pytest.approx(diagnosis["run"]["step_s"], rel=0.03)
    code, out, err = paceline("calibrate", "--name", "net", "--from-profile", "trace.json.gz@8", "--json", "--force")
    assert code == 0, err
    assert json.loads(out)["name"] == "net"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"no trace", "is not JSON"),
        (b'{"traceEvents": [', "begins like JSON but is not valid JSON"),
        (gzip.compress(b'{"traceEvents": []}' * 99)[:-20], "is compressed but cut off"),
        (b'{"a": 1}', "is JSON but not a trace"),
        (b"[1, 2]", "is JSON but not a trace"),
        (b'{"traceEvents": [{"ph": "X", "name": "aten::mm", "ts": 1, "dur": 1}]}', "has no ProfilerStep#N among its 1 events"),
        (b'{"traceEvents": [{"ph": "M", "name": "process_name", "args": {"name": "/device:GPU:0"}}]}', "give the .xplane.pb file"),
        (
            b'{"traceEvents": [{"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#1", "ts": 1, "dur": 1}]}',
            "has no ProfilerStep#N among its 1 events",
        ),
        (b'{"traceEvents": [{"ph": "X", "name": "ProfilerStep#1", "ts": 1}]}', "is damaged"),
        (b'{"traceEvents": [{"ph": "X", "name": "ProfilerStep#1", "ts": NaN, "dur": 1}]}', "is damaged"),
        (b'{"traceEvents": [{"ph": "X", "name": "ProfilerStep#1", "ts": 1, "dur": 1}]}', "profiles do not contain the sizes"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(paceline: Any, tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "trace.json").write_bytes(content)
    code, _, err = paceline("calibrate", "--name", "x", "--from-profile", "trace.json@8")
    assert code == 2
    assert says in err.strip().splitlines()[-1]
    assert "Traceback" not in err
    if "sizes" not in says:
        with pytest.raises(InputError, match=re.escape(says.partition(" among")[0])):
            read_trace(tmp_path / "trace.json")
