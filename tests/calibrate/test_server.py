"""``paceline calibrate-server``: what messages cost hosts, from synthetic times and from real TensorFlow, put into a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.measurements import Synthetic, exchange_records, write_lines
from support.needs import needs_tensorflow

import paceline
from calibrate.fit.link import fit_link
from calibrate.fit.server import fit_server
from calibrate.fit.writing import write_fitted
from calibrate.measurements import Exchange, read_measurements
from calibrate.profiling import profile_server
from paceline.server_load import ServerLoad
from simulator.base.catalog import find
from simulator.base.errors import CalibrationError, CalibrationWarning
from simulator.catalogue.loading import load_cluster, load_workload
from simulator.spec.cluster import Cluster

TENSOR, BYTE = "transport.cpu_per_message_s", "transport.copy_per_byte_s"
LATENCY, RATE = "inter_node.latency_s", "inter_node.bandwidth_bytes_per_s"


def catalogue(name: str = "ethernet-10g") -> Cluster:
    return load_cluster(find("clusters", name, "test"))


def draws_of(cluster: Cluster) -> dict[str, np.ndarray]:
    assert cluster.uncertainty is not None
    return dict(zip(cluster.uncertainty.parameters, np.array(cluster.uncertainty.draws).T, strict=True))


# -- the fit -------------------------------------------------------------------------------


@pytest.mark.parametrize(("per_tensor_s", "per_byte_s"), [(140e-6, 4e-10), (30e-6, 1e-9), (300e-6, 1e-10)])
def test_what_hosts_need_is_recovered(synthetic: Synthetic, per_tensor_s: float, per_byte_s: float) -> None:
    cluster = fit_server(synthetic.exchanges(per_tensor_s, per_byte_s), "lab", catalogue())
    transport, fit = cluster.transport, cluster.fit_hosts
    assert fit is not None
    assert transport.software == "grpc"
    assert transport.cpu_per_message_s == pytest.approx(per_tensor_s, rel=0.05)
    assert transport.copy_per_byte_s == pytest.approx(per_byte_s, rel=0.05)
    assert fit.pull.per_tensor_s == pytest.approx(0.875 * per_tensor_s, rel=0.05)
    assert fit.push.per_tensor_s == pytest.approx(1.125 * per_tensor_s, rel=0.05)
    assert fit.push.base_s == pytest.approx(1e-3, rel=0.1)
    for key, truth in ((TENSOR, per_tensor_s), (BYTE, per_byte_s)):
        low, high = fit.intervals_90[key]
        assert 0.8 * truth < low < high < 1.2 * truth
        assert np.median(draws_of(cluster)[key]) == pytest.approx(truth, rel=0.05)
    assert fit.relative_residual < 0.2
    assert len(fit.points) == 32


def test_slow_rounds_of_a_few_settings_do_not_decide(synthetic: Synthetic) -> None:
    records = exchange_records(140e-6, 4e-10)
    for record in records:
        if record.get("round") in (0, 3) and record["tensors"] == 16:
            record["seconds"] *= 4
    cluster = fit_server(synthetic.lines(records), "lab", catalogue())
    assert cluster.transport.cpu_per_message_s == pytest.approx(140e-6, rel=0.08)
    assert cluster.transport.copy_per_byte_s == pytest.approx(4e-10, rel=0.08)


def test_between_two_hosts_the_link_takes_part(synthetic: Synthetic) -> None:
    base = catalogue("ethernet-100g")
    rate = 0.94 * 12.5e9
    fast = fit_server(synthetic.exchanges(140e-6, 4e-10, wire=lambda size: size / rate, peer="h:1"), "lab", base)
    assert fast.transport.cpu_per_message_s == pytest.approx(140e-6, rel=0.05)
    assert fast.transport.copy_per_byte_s == pytest.approx(4e-10, rel=0.1)


def test_a_link_slower_than_the_hosts_leaves_bytes_to_practice(synthetic: Synthetic, tmp_path: Path) -> None:
    file = synthetic.exchanges(140e-6, 4e-10, wire=lambda size: size / (0.94 * 125e6), peer="h:1")
    cluster = fit_server(file, "lab", catalogue("ethernet-1g"))
    assert cluster.transport.cpu_per_message_s == pytest.approx(140e-6, rel=0.1)
    assert cluster.transport.copy_per_byte_s == 0.0
    assert draws_of(cluster).keys() == {TENSOR}
    assert cluster.fit_hosts is not None
    assert cluster.fit_hosts.pull.per_byte_s is None
    assert "is unknown: the measured default is used" in cluster.provenance["bytes"]
    write_fitted(cluster, tmp_path / "lab.toml")
    scenario = {"cluster.use": str(tmp_path / "lab.toml"), "run.replications": 2, "run.steps": 10}
    assumed = [its.value for its in paceline.simulate("async-ps", scenario).assumed]
    assert any("grpc_byte_s" in value for value in assumed)
    assert not any("grpc_tensor_s" in value for value in assumed)


def test_another_link_than_that_of_the_cluster_is_warned_about(synthetic: Synthetic) -> None:
    cluster = fit_server(synthetic.exchanges(140e-6, 4e-10, peer="h:1"), "lab", catalogue("ethernet-1g"))
    assert "is the link between these two hosts the one of 'ethernet-1g'?" in cluster.provenance["weak"]


def test_times_that_do_not_grow_are_refused(synthetic: Synthetic) -> None:
    with pytest.raises(CalibrationError, match="the time does not grow with the number of tensors"):
        fit_server(synthetic.exchanges(0.0, 0.0, cv=0.0), "lab", catalogue())
    few = [record for record in exchange_records(1e-4, 1e-9) if record.get("tensors", 4) == 4]
    with pytest.raises(CalibrationError, match="at least two numbers of tensors and two sizes"):
        fit_server(synthetic.lines(few), "lab", catalogue())
    with pytest.raises(CalibrationError, match="of links, not of a parameter server"):
        fit_server(synthetic.links(1e-4, 1e9), "lab", catalogue())
    with pytest.raises(CalibrationError, match="of a parameter server, not of links"):
        fit_link(synthetic.exchanges(1e-4, 1e-9), "lab")


# -- into a cluster ------------------------------------------------------------------------


def test_a_cluster_of_the_catalogue_keeps_its_link(synthetic: Synthetic, tmp_path: Path) -> None:
    base = catalogue()
    cluster = fit_server(synthetic.exchanges(140e-6, 4e-10), "lab", base)
    assert (cluster.name, cluster.basis, cluster.inter_node, cluster.fit) == ("lab", base.basis, base.inter_node, None)
    assert draws_of(cluster).keys() == {TENSOR, BYTE}
    assert cluster.provenance["link_name"] == "ethernet-10g"
    assert cluster.provenance["link_source"] == base.provenance["source"]
    path = write_fitted(cluster, tmp_path / "lab.toml")
    assert path.read_text().startswith("# Fitted by `paceline calibrate-server`")
    again = load_cluster(path)
    assert again.transport == cluster.transport
    assert again.uncertainty == cluster.uncertainty
    assert again.fit_hosts == cluster.fit_hosts


def test_what_a_measured_link_holds_of_the_hosts_is_taken_out(synthetic: Synthetic) -> None:
    link = fit_link(synthetic.links(400e-6, 1e9), "lab", "measure it")
    cluster = fit_server(synthetic.exchanges(140e-6, 3e-10), "lab", link)
    assert cluster.inter_node.latency_s == pytest.approx(link.inter_node.latency_s - 2 * cluster.transport.cpu_per_message_s, rel=1e-5)
    byte_s = 1 / link.inter_node.bandwidth_bytes_per_s - 2 * cluster.transport.copy_per_byte_s
    assert cluster.inter_node.bandwidth_bytes_per_s == pytest.approx(1 / byte_s, rel=1e-5)
    drawn, before = draws_of(cluster), draws_of(link)
    assert drawn[LATENCY] == pytest.approx(np.maximum(before[LATENCY] - 2 * drawn[TENSOR], 1e-6), rel=1e-5)
    assert drawn[RATE] == pytest.approx(1 / (1 / before[RATE] - 2 * drawn[BYTE]), rel=1e-4)
    assert cluster.fit is not None
    assert link.fit is not None
    assert cluster.fit.points == link.fit.points
    low, high = cluster.fit.intervals_90[RATE]
    assert low < cluster.inter_node.bandwidth_bytes_per_s < high
    assert cluster.calibrated is not None
    assert cluster.calibrated.bandwidth_bytes_per_s == (low, high)
    assert "subtracted here" in cluster.provenance["link"]
    assert cluster.provenance["link_command"] == "measure it"


def test_no_latency_falls_below_a_microsecond(synthetic: Synthetic) -> None:
    link = fit_link(synthetic.links(50e-6, 1e9), "lab")
    cluster = fit_server(synthetic.exchanges(140e-6, 9e-10), "lab", link)
    assert cluster.inter_node.latency_s == 1e-6
    assert set(draws_of(cluster)[LATENCY]) == {1e-6}
    assert cluster.inter_node.bandwidth_bytes_per_s == pytest.approx(10 * link.inter_node.bandwidth_bytes_per_s, rel=1e-6)


def test_a_server_measured_again_takes_the_place_of_the_first(synthetic: Synthetic) -> None:
    link = fit_link(synthetic.links(400e-6, 1e9), "lab")
    first = fit_server(synthetic.exchanges(180e-6, 4e-10), "lab", link, "the first")
    second = fit_server(synthetic.exchanges(100e-6, 2e-10), "lab", first, "the second")
    alone = fit_server(synthetic.exchanges(100e-6, 2e-10), "lab", link, "the second")
    assert second.inter_node.latency_s == pytest.approx(alone.inter_node.latency_s, rel=1e-5)
    assert second.inter_node.bandwidth_bytes_per_s == pytest.approx(alone.inter_node.bandwidth_bytes_per_s, rel=1e-5)
    assert second.transport == alone.transport
    assert draws_of(second)[LATENCY] == pytest.approx(draws_of(alone)[LATENCY], rel=1e-3)
    assert {key: value for key, value in second.provenance.items() if key != "date"} == {
        key: value for key, value in alone.provenance.items() if key != "date"
    }


def test_the_base_is_what_the_link_was_written_to(synthetic: Synthetic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = synthetic.exchanges(140e-6, 4e-10)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("calibrate.profiling.profile_server", lambda *_, **__: file)
    link = fit_link(synthetic.links(400e-6, 1e9), "lab", "measure it")
    write_fitted(link, tmp_path / "models" / "clusters" / "lab.toml")
    cluster = paceline.calibrate_server("lab", out="models/clusters/lab.toml")
    assert "subtracted here" in cluster.provenance["link"]
    assert cluster.provenance["command"] == "paceline.calibrate_server('lab')"
    assert load_cluster(tmp_path / "models" / "clusters" / "lab.toml").transport == cluster.transport


def test_a_fit_that_is_far_off_is_warned_about(synthetic: Synthetic, monkeypatch: pytest.MonkeyPatch) -> None:
    file = synthetic.exchanges(140e-6, 4e-10, peer="h:1")
    monkeypatch.setattr("calibrate.profiling.profile_server", lambda *_, **__: file)
    with pytest.warns(CalibrationWarning, match="differ from the fit by more than"):
        paceline.calibrate_server("lab", cluster="ethernet-1g")


# -- what it means -------------------------------------------------------------------------


def test_a_servers_work_on_one_step() -> None:
    load = ServerLoad(104, 7.4e6, 1.4e-4, 4e-10)
    assert load.host_s == pytest.approx(2 * (104 * 1.4e-4 + 7.4e6 * 4e-10))
    assert load.wire_s == pytest.approx(5.92e-3)
    assert load.hosts_limit
    assert load.against_network == "hosts limit before a link of 10 Gbit/s, at about 29 updates/s a server"
    assert not ServerLoad(32, 528e6, 1.4e-4, 4e-10).hosts_limit


def test_the_simulator_agrees_on_the_most_updates() -> None:
    """Many workers of one server: its host never rests."""
    workload = load_workload(find("workloads", "cnn-cpu", "test"))
    load = ServerLoad(len(workload.variables), workload.parameter_bytes, 2e-3, 4e-10)
    found = paceline.simulate(
        "async-ps",
        {
            "workload.use": "cnn-cpu", "cluster.use": "ethernet-100g", "strategy.workers": 8, "strategy.servers": 1,
            "cluster.transport": {"software": "given", "cpu_per_message_s": 2e-3, "copy_per_byte_s": 4e-10},
            "run.replications": 2, "run.steps": 40,
        },
    )  # fmt: skip
    assert found.updates_per_s.mean == pytest.approx(load.updates_per_s, rel=0.05)


# -- real TensorFlow -----------------------------------------------------------------------


@needs_tensorflow
@pytest.mark.usefixtures("warm_probes", "isolated")
def test_real_pulls_and_pushes_that_were_not_fitted_are_predicted(tmp_path: Path) -> None:
    """Within 50%: this machine may be busy, and two processes share its cores."""
    path = profile_server("lab", tensors=(1, 8, 16, 48), sizes=(256, 2**16, 2**18), rounds=4, seconds=4, folder=tmp_path, timeout_s=120)
    measured = read_measurements(path)
    assert measured.complete
    assert {one.direction for one in measured.of(Exchange)} == {"pull", "push"}
    left_out, others = (16, 2**16), []
    for line in path.read_text().splitlines():
        record: dict[str, Any] = json.loads(line)
        record.pop("checksum")
        if (record.get("tensors"), record.get("size_bytes")) != left_out:
            others.append(record)
    cluster = fit_server(write_lines(tmp_path / "others.ndjson", others), "lab", catalogue("ethernet-100g"))
    assert 5e-6 < cluster.transport.cpu_per_message_s < 5e-3
    assert 1e-11 < cluster.transport.copy_per_byte_s < 2e-8
    assert "separate network namespace" in cluster.provenance["remark"]

    write_fitted(cluster, tmp_path / "lab.toml")
    tensors, size = left_out
    nothing = {"base": "0 s", "per_sample": "1 ns"}
    variables = [{"name": f"v{index}", "size_bytes": size, "creation_index": index, "ready": 1.0} for index in range(tensors)]
    found = paceline.simulate(
        {
            "workload": {"batch_per_replica": 1, "forward": nothing, "backward": nothing, "variables": variables},
            "cluster": {"use": str(tmp_path / "lab.toml")},
            "strategy": {"kind": "parameter-server", "mode": "async", "workers": 1, "servers": 1},
            "run": {"steps": 20, "replications": 20},
        }
    )
    seen = [one for one in measured.of(Exchange) if (one.tensors, one.size_bytes) == left_out]
    pull, push = (np.median([one.seconds for one in seen if one.direction == direction]) for direction in ("pull", "push"))
    assert found.step_time_s.mean == pytest.approx(float(pull + push), rel=0.5)
