"""Scenarios of published settings: what a user would write gives what the validation predicts; the rules beside them."""

from __future__ import annotations

import numpy as np
import pytest
import tomlkit

import paceline
from evidence.published.prediction import alpha_beta, compared, compute_that_gives, left_out, linear, tables_of
from evidence.published.scenarios import cases_of, scenario_of, table_of
from evidence.published.tables import Tensor, fused, held_by, load_tables, variables
from evidence.published.validation import validate_published
from simulator.base.errors import InputError
from simulator.spec.constants import Known
from simulator.spec.gradients import place

TABLES = load_tables()
CASES = {case.series.id: (case, rows) for case, rows in cases_of(TABLES)}
OF_EACH_REGIME = {
    "sync PS": "hkbu-resnet-50-wfbp-ps-10gbe",
    "all-reduce": "horovod2017-25g-resnet-101-tcp-gpu-with-nccl",
    "async PS": "fleetx-ctr-dnn-paddle-1-5-async",
}


@pytest.mark.parametrize("shipped", [True, False], ids=["as shipped", "without its table"])
@pytest.mark.parametrize("regime", OF_EACH_REGIME)
def test_a_user_gets_the_very_bytes_that_the_validation_used(regime, shipped, tmp_path):
    """Nothing is swapped in: the row's scenario, written to a file, loaded and simulated by the package's own face."""
    case, rows = CASES[OF_EACH_REGIME[regime]]
    assert case.series.regime == regime
    held_out = ({}, None) if shipped else (left_out(TABLES.home)[case.series.table], case.series.table)
    rows = rows[:2]  # the one that is fitted, and one that is predicted
    tables, _ = tables_of(case, rows, *held_out)
    file = tmp_path / "row.toml"
    file.write_text(tomlkit.dumps(tables[-1]), encoding="utf-8")
    users = paceline.simulate(paceline.load(file))
    again = paceline.simulate(paceline.load(tables[-1]))
    assert users.to_json() == again.to_json()
    validated = compared(case, rows, *held_out)[-1]
    assert validated.predicted == users.throughput_samples_per_s
    assert validated.fitted is False


@pytest.mark.parametrize("series", sorted(CASES)[::9])
def test_every_scenario_has_the_devices_and_the_samples_of_its_row(series):
    case, rows = CASES[series]
    for row in rows:
        scenario = scenario_of(case, row, row.step_s)
        assert scenario.replicas == row.replicas
        assert scenario.batch == row.batch_per_replica * case.stack.every
        assert scenario.cluster.basis == "published"
        assert scenario.worker_nodes == row.nodes


def test_tensors_put_together_by_server_give_what_all_of_them_give():
    """ResNet-50 of 161 tensors on a server beside eight devices: eight pieces or every tensor by itself."""
    case, rows = CASES["tensorpack-p100-resnet50-tensorpack-parameter-server"]
    row = rows[1]
    table = table_of(case, row, row.step_s)
    every = {**table, "workload": {**table["workload"], "variables": variables([case.tensors], 4.0)}}
    few, all_of_them = (paceline.simulate(paceline.load(its)).throughput_samples_per_s.mean for its in (table, every))
    assert few == pytest.approx(all_of_them, rel=0.02)


def test_where_hosts_work_on_tensors_each_is_a_message():
    case, rows = CASES["cscs-p2-xlarge-inception3-synthetic"]
    assert len(scenario_of(case, rows[1], 1.0).workload.variables) == len(case.tensors) == 190


def test_a_row_of_one_worker_with_its_server_holds_a_pull_and_a_push():
    """It comes out as measured, whatever hosts are taken to cost, and is the workload of the others as it stands."""
    case, rows = CASES["cmdare-p100-resnet-32-1-server"]
    for constants in ({}, {"grpc_tensor_s": Known(value=1e-5, low=1e-5, high=1e-5)}):
        scenario = scenario_of(case, rows[0], rows[0].step_s, constants, whole_step=True)
        assert scenario.servers == 1
        assert scenario.workload.measured_with == "servers"
        assert paceline.simulate(scenario).throughput_samples_per_s.mean == pytest.approx(rows[0].mean, rel=0.01)


def test_the_smallest_row_comes_out_as_measured():
    for series in ("tensorpack-p100-resnet50-tensorpack-parameter-server", "fleetx-bert-large-paddle-1-6-collective"):
        if series in CASES:
            first = compared(*CASES[series], {})[0]
            assert first.fitted
            assert first.error == pytest.approx(0.0, abs=0.002)


def test_compute_is_solved_for_where_it_can_be():
    """Steps of compute and 40 ms besides, of which half is hidden by compute; and 200 ms besides of a row that took 100."""
    _, rows = CASES["mxnet-p2-16xlarge-inception3"]
    row = rows[0].model_copy(update={"throughput": (rows[0].batch_per_replica / 0.1,)})
    hidden = compute_that_gives(row, lambda its_s: row.batch_per_replica / (its_s + 0.04 - min(0.02, its_s / 4)))
    assert hidden.compute_s == pytest.approx(0.08, rel=3e-3)
    assert abs(hidden.error) < 1e-3
    too_long = compute_that_gives(row, lambda its_s: row.batch_per_replica / (its_s + 0.2))
    assert too_long.error < -0.4


def test_linear_scaling_is_a_ratio_of_devices():
    _, rows = CASES["mxnet-p2-16xlarge-inception3"]
    assert linear(rows[0], rows[-1]) == pytest.approx(30.4 * 256)


def test_alpha_beta_of_a_ring():
    """ResNet-50 on 8 devices in 2 hosts of 10 Gbit/s: step + 14 alpha + 14 / 8 S / B."""
    case, rows = CASES["hkbu-resnet-50-bsp-a2a-10gbe"]
    row = next(row for row in rows if row.replicas == 8)
    size = 4 * sum(tensor.elements for tensor in case.tensors)
    step_s = 64 / 253.1 + 14 * 50e-6 + 14 / 8 * size / 1.25e9
    assert alpha_beta(case, rows[0], row) == pytest.approx(8 * 64 / step_s)


def test_alpha_beta_of_servers():
    """Step + 2 alpha + 2 n S / (s B)."""
    case, rows = CASES["cscs-p2-xlarge-inception3-synthetic"]
    row = next(row for row in rows if row.replicas == 16)
    size = 4 * sum(tensor.elements for tensor in case.tensors)
    step_s = 64 / 30.55 + 2 * 100e-6 + 2 * 16 * size / (12 * 0.3125e9)
    assert alpha_beta(case, rows[0], row) == pytest.approx(16 * 64 / step_s)


def test_tensors_in_turn():
    tensors = [Tensor(10.0, 0.2), Tensor(1.0, 0.5), Tensor(2.0, 0.8), Tensor(4.0, 1.0)]  # created the other way round
    placed = place([4.0, 2.0, 1.0, 10.0], 2, "round-robin")
    held = [sum(size for size, server in zip([4.0, 2.0, 1.0, 10.0], placed, strict=True) if server == k) for k in (0, 1)]
    assert [sum(tensor.elements for tensor in part) for part in held_by(tensors, 2, 8)] == held
    assert [len(part) for part in held_by(tensors, 2, 1)] == [1, 1]


def test_fused_tensors_keep_their_bytes_and_are_ready_with_the_last_part():
    tensors = [Tensor(1.0, (index + 1) / 10) for index in range(10)]
    pieces = fused(tensors, 3)
    assert len(pieces) <= 3
    assert sum(piece.elements for piece in pieces) == pytest.approx(10.0)
    assert pieces[-1].ready == 1.0
    assert [piece.ready for piece in pieces] == sorted(piece.ready for piece in pieces)


def test_parts_land_on_their_servers():
    parts = [[Tensor(1.0, 0.5), Tensor(2.0, 1.0)], [Tensor(3.0, 0.4), Tensor(4.0, 0.9)]]
    created = sorted(variables(parts, 4.0), key=lambda variable: variable["creation_index"])
    servers = place([variable["size_bytes"] for variable in created], 2, "round-robin")
    for variable, server in zip(created, servers, strict=True):
        assert variable["name"].startswith(f"{server}.")


def test_machines_and_series_agree_on_what_joins_the_devices():
    for series in TABLES.series:
        sort = TABLES.clusters[series.cluster].intra_node.sort
        assert sort in (series.inside, "given"), series.id


@pytest.mark.parametrize("sizes", [(32, 64), pytest.param((32, 64, 128), marks=pytest.mark.long)])
def test_neighbouring_rows_have_ends_that_move_smoothly(sizes):
    """The draws of the constants are the series', so that the ends of its rows' intervals differ as the rows do."""
    case, rows = CASES["mxnet-p2-16xlarge-inception3"]
    some = [rows[0], *(row for row in rows if row.replicas in sizes)]
    rows = [row for row in compared(case, some, {}) if not row.fitted]
    assert len(rows) == len(sizes)
    ends = np.log([[row.predicted.low / row.predicted.mean, row.predicted.high / row.predicted.mean] for row in rows])
    assert np.abs(np.diff(ends, axis=0)).max() < 0.1


def test_an_unknown_regime_is_refused():
    with pytest.raises(InputError, match="there is no published regime 'ring'"):
        validate_published(["ring"])
