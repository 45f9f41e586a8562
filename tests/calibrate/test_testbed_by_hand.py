"""Scenarios of the testbed against step times worked out by hand, one term after the other."""

from __future__ import annotations

import pytest
from sample_testbed import TRUE, setting

from calibrate.testbed.scenarios import scenario_of
from calibrate.testbed.setting import TestbedSetting
from simulator import simulate

RATE = 50e6  # bytes/s of 400 Mbit/s
LINK = {"bandwidth": "400 Mbit/s"}
ONE = {"variables": [{"name": "v", "shape": [1024, 256], "ready": 1.0}], "model": "one"}
SIZE = 2.0**20


def step_s(given: TestbedSetting, values: dict[str, float]) -> float:
    return 1.0 / simulate(scenario_of(given, values, 2.0, replications=2)).updates_per_s.mean


def test_a_worker_alone_with_a_server() -> None:
    given = setting("between-graph", 1, LINK, **ONE)
    each_way_s = 2 * (TRUE["tensor_s"] + SIZE * TRUE["tensor_per_byte_s"]) + SIZE * TRUE["wire_bytes_per_byte"] / RATE
    server_s = TRUE["server_s"] + SIZE * TRUE["server_per_byte_s"]
    expected = TRUE["session_s"] + 0.020 + TRUE["sleep_s"] + 2 * each_way_s + server_s
    assert step_s(given, TRUE) == pytest.approx(expected, rel=1e-9)


def test_the_coordinator_stands_between_two_steps() -> None:
    one, other = (step_s(setting(mode, 1, LINK, **ONE), TRUE) for mode in ("async", "between-graph"))
    assert one - other == pytest.approx(TRUE["dispatch_s"] + TRUE["coordinator_s"] - TRUE["session_s"], rel=1e-6)


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_a_ring_in_step(workers: int) -> None:
    given = setting("ring", workers, LINK, **ONE)
    messages, chunk = 2 * (workers - 1), SIZE / workers
    turns_s = (messages - 1) * (TRUE["turn_s"] + chunk * TRUE["turn_per_byte_s"])
    wire_s = messages * chunk * TRUE["wire_bytes_per_byte"] / RATE
    expected = 0.020 + TRUE["sleep_s"] + TRUE["ring_step_s"] + turns_s + wire_s
    assert step_s(given, TRUE) == pytest.approx(expected, rel=1e-9)


def test_over_loopback_the_cores_move_every_byte() -> None:
    given = setting("between-graph", 1, **ONE)
    waited_s = SIZE * TRUE["loopback_per_byte_s"] * TRUE["loopback_waited_share"]
    each_way_s = 2 * TRUE["tensor_s"] + waited_s + SIZE / TRUE["loopback_bytes_per_s"]
    server_s = TRUE["server_s"] + SIZE * TRUE["server_per_byte_s"]
    # the rest of the cores' work goes on beside the step, on the other core
    expected = TRUE["session_s"] + 0.020 + TRUE["sleep_s"] + 2 * each_way_s + server_s
    assert step_s(given, TRUE | {"loopback_step_s": 0.0}) == pytest.approx(expected, rel=1e-9)


def test_sparse_rows_travel_alone_to_servers_and_whole_in_a_ring() -> None:
    sparse = {"variables": [{"name": "v", "shape": [1024, 256], "ready": 1.0, "rows": 64}], "model": "one"}
    assert step_s(setting("between-graph", 1, LINK, **sparse), TRUE) < 0.5 * step_s(setting("between-graph", 1, LINK, **ONE), TRUE)
    assert step_s(setting("ring", 2, LINK, **sparse), TRUE) == pytest.approx(step_s(setting("ring", 2, LINK, **ONE), TRUE), rel=1e-12)
