"""Scenarios of published settings, the rules beside them, and costs of asynchronous calls."""

from __future__ import annotations

import numpy as np
import pytest

from calibrate.published.asynchronous import StepCost, calls_of, fitted_cost
from calibrate.published.baselines import alpha_beta, linear
from calibrate.published.constants import load_constants
from calibrate.published.networks import Tensor, fused, on_servers, variables
from calibrate.published.prediction import fit
from calibrate.published.situations import slowest_of
from calibrate.published.tables import load_tables
from calibrate.published.validation import situations_of, validate_published
from simulator.closed_form import harmonic
from simulator.errors import InputError
from simulator.placement import place

TABLES = load_tables()
CONSTANTS = load_constants(TABLES.home)
SITUATIONS = {situation.series.id: (situation, rows) for situation, rows in situations_of(TABLES)}


def test_the_slowest_of_two_normals():
    """Mean 1 / sqrt(pi), variance 1 - 1 / pi (Clark 1961)."""
    mean, spread = slowest_of(2)
    assert mean == pytest.approx(1 / np.sqrt(np.pi), rel=1e-3)
    assert spread == pytest.approx(np.sqrt(1 - 1 / np.pi), rel=1e-3)
    assert slowest_of(1)[0] == pytest.approx(0.0, abs=1e-3)


def test_linear_scaling_is_a_ratio_of_devices():
    _, rows = SITUATIONS["mxnet-p2-16xlarge-inception3"]
    assert linear(rows[0], rows[-1]) == pytest.approx(30.4 * 256)


def test_alpha_beta_of_a_ring():
    """ResNet-50 on 8 devices in 2 hosts of 10 Gbit/s: step + 14 alpha + 14 / 8 S / B."""
    situation, rows = SITUATIONS["hkbu-resnet-50-bsp-a2a-10gbe"]
    row = next(row for row in rows if row.replicas == 8)
    size = 4 * sum(tensor.elements for tensor in situation.tensors)
    step_s = 64 / 253.1 + 14 * 50e-6 + 14 / 8 * size / 1.25e9
    assert alpha_beta(situation, rows[0], row) == pytest.approx(8 * 64 / step_s)


def test_alpha_beta_of_servers():
    """Step + 2 alpha + 2 n S / (s B)."""
    situation, rows = SITUATIONS["cscs-p2-xlarge-inception3-synthetic"]
    row = next(row for row in rows if row.replicas == 16)
    size = 4 * sum(tensor.elements for tensor in situation.tensors)
    step_s = 64 / 30.55 + 2 * 100e-6 + 2 * 16 * size / (12 * 0.3125e9)
    assert alpha_beta(situation, rows[0], row) == pytest.approx(16 * 64 / step_s)


def test_tensors_in_turn_and_the_busiest_server():
    tensors = [Tensor(10.0, 0.2), Tensor(1.0, 0.5), Tensor(2.0, 0.8), Tensor(4.0, 1.0)]  # created the other way round
    most, rest = on_servers(tensors, 2, even=False)
    placed = place([4.0, 2.0, 1.0, 10.0], 2, "round-robin")
    held = [sum(size for size, server in zip([4.0, 2.0, 1.0, 10.0], placed, strict=True) if server == k) for k in (0, 1)]
    assert sum(tensor.elements for tensor in most) == max(held)
    assert sum(tensor.elements for tensor in rest) == min(held)
    share, others = on_servers(tensors, 4, even=True)
    assert sum(tensor.elements for tensor in share) == pytest.approx(17.0 / 4)
    assert sum(tensor.elements for tensor in others) == pytest.approx(17.0 * 3 / 4)


def test_fused_tensors_keep_their_bytes_and_are_ready_with_the_last_part():
    tensors = [Tensor(1.0, (index + 1) / 10) for index in range(10)]
    pieces = fused(tensors, 3)
    assert len(pieces) <= 3
    assert sum(piece.elements for piece in pieces) == pytest.approx(10.0)
    assert pieces[-1].ready == 1.0
    assert [piece.ready for piece in pieces] == sorted(piece.ready for piece in pieces)


def test_parts_land_on_their_servers():
    parts = [[Tensor(1.0, 0.5), Tensor(2.0, 1.0)], [Tensor(3.0, 0.4), Tensor(4.0, 0.9)]]
    created = sorted(variables(parts, 4.0), key=lambda variable: variable.creation_index)
    servers = place([variable.size_bytes for variable in created], 2, "round-robin")
    for variable, server in zip(created, servers, strict=True):
        assert variable.name.startswith(f"{server}.")


BUILT_AT_ONCE = [name for name, (situation, rows) in SITUATIONS.items() if rows[0].replicas == 1 or situation.stack.kind == "asynchronous"]


@pytest.mark.parametrize("series", sorted(BUILT_AT_ONCE)[::7])
def test_every_scenario_has_the_devices_of_its_row(series):
    """A worker may stand for the devices of a node: then its batch is theirs."""
    situation, rows = SITUATIONS[series]
    build, _ = fit(situation, rows, CONSTANTS)
    for row in rows[1:]:
        scenario = build(row)
        assert scenario.replicas * scenario.batch == row.replicas * row.batch_per_replica
        assert build(row, CONSTANTS.draws(1, 5), 1).cluster.basis == "published"


def test_two_rows_give_back_their_step_times():
    _, rows = SITUATIONS["paddleperf-word2vec-async-dataset-dataset"]
    cost = fitted_cost(rows[0], rows[1], 5.0)
    assert cost(rows[0].nodes) == pytest.approx(rows[0].step_s)
    assert cost(rows[1].nodes) == pytest.approx(rows[1].step_s)
    assert fitted_cost(rows[0], None, 5.0)(1000) == pytest.approx(rows[0].step_s)


def test_faster_with_more_workers_is_not_extrapolated():
    _, rows = SITUATIONS["paddleperf-word2vec-async-dataset-dataset"]
    assert fitted_cost(rows[1], rows[0], 5.0).call_s >= 0.0
    quick = rows[1].model_copy(update={"throughput": (10 * rows[1].mean,)})
    assert fitted_cost(rows[0], quick, 5.0).call_s == 0.0


def test_calls_cost_their_number_and_the_wait_for_the_slowest():
    assert calls_of(4, 0.0) == 4
    assert calls_of(4, 2.0) == pytest.approx(4 + 2 * harmonic(4))
    assert StepCost(1.0, 0.5, 0.0)(6) == 4.0


def test_an_unknown_regime_is_refused():
    with pytest.raises(InputError, match="there is no published regime 'ring'"):
        validate_published(["ring"])
