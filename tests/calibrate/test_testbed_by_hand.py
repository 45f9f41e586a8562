"""Scenarios of the testbed against step times worked out by hand, one term after the other."""

from __future__ import annotations

import pytest
from support.testbed import TRUE, setting

from calibrate.testbed.clocks import work_of_step
from calibrate.testbed.scenarios import RealCompute, scenario_of
from calibrate.testbed.setting import TestbedSetting
from simulator import simulate
from simulator.spec.distributions import Constant

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
    values = TRUE | {"ring_cpu_per_byte_s": TRUE["turn_per_byte_s"]}  # the kernel needs no core of its own
    turn_s = TRUE["turn_s"] + chunk * TRUE["turn_per_byte_s"]
    # the last packet of a message is not waited for
    wire_s = (chunk - chunk % (45 * 1448)) * TRUE["wire_bytes_per_byte"] / RATE
    expected = 0.020 + TRUE["sleep_s"] + TRUE["ring_step_s"] + messages * (turn_s + wire_s)
    assert step_s(given, values) == pytest.approx(expected, rel=1e-9)


def test_the_kernels_work_on_a_rings_bytes_leaves_less_of_the_cores_for_messages() -> None:
    given = setting("ring", 5, LINK, **ONE)
    values = TRUE | {"ring_cpu_per_byte_s": TRUE["turn_per_byte_s"] + 3e-9}
    chunk = SIZE / 5
    wire_s, work_s = chunk * TRUE["wire_bytes_per_byte"] / RATE, TRUE["turn_s"] + chunk * TRUE["turn_per_byte_s"]
    turn_s = work_s
    for _ in range(200):  # work on a message has what the bytes of five hosts leave of two cores
        turn_s = work_s / (1 - 5 * 3e-9 * chunk / 2 / (wire_s + turn_s))
    saved_s = chunk % (45 * 1448) * TRUE["wire_bytes_per_byte"] / RATE
    expected = 0.020 + TRUE["sleep_s"] + TRUE["ring_step_s"] + 8 * (wire_s - saved_s + turn_s)
    assert step_s(given, values) == pytest.approx(expected, rel=1e-9)


def test_messages_of_one_packet_and_busy_cores_still_take_their_time() -> None:
    small = {"variables": [{"name": "v", "shape": [64, 64], "ready": 1.0}], "model": "one"}
    assert step_s(setting("ring", 8, LINK, **small), TRUE) > 0.020 + 14 * TRUE["turn_s"]
    given = setting("ring", 16, {"bandwidth": "10 Gbit/s"})
    bytes_s = 16 * (TRUE["ring_cpu_per_byte_s"] * 2) * 2 * 15 / 16 * given.parameter_bytes / 2
    values = TRUE | {"turn_per_byte_s": TRUE["ring_cpu_per_byte_s"], "ring_cpu_per_byte_s": TRUE["ring_cpu_per_byte_s"] * 3}
    assert step_s(given, values) > bytes_s


def test_a_large_message_goes_the_same_way_round_as_a_small_one() -> None:
    assert scenario_of(setting("ring", 2, LINK, "ladder-16mb"), TRUE, 2.0).strategy.algorithm == "ring"


def test_where_tcp_decides_all_wait_in_one_queue() -> None:
    tcp = setting("between-graph", 2, {**LINK, "sharing": "tcp"}, **ONE)
    transport = scenario_of(tcp, TRUE | {"queue_s": 0.5}, 2.0).cluster.transport
    assert transport.discipline == "weighted"
    assert transport.queue_s == transport.buffer_s == 0.020  # no more than there is room for


def test_weights_spread_as_a_packet_is_to_the_room_of_a_connection() -> None:
    """LINK has room for 20 ms; more workers, or more servers, share it, but a spread of 1 is the most."""
    tcp = setting("between-graph", 2, {**LINK, "sharing": "tcp"}, **ONE)
    sigma = scenario_of(tcp, TRUE | {"weight_sigma": 0.1}, 2.0).cluster.transport.weight_sigma
    assert tcp.link is not None
    assert sigma == pytest.approx(0.1 * 2 * 45 * 1448 / (tcp.link.bandwidth_bytes_per_s * 0.020))
    more = setting("between-graph", 8, {**LINK, "sharing": "tcp"}, **ONE)
    assert scenario_of(more, TRUE | {"weight_sigma": 0.1}, 2.0).cluster.transport.weight_sigma == pytest.approx(4 * sigma)
    most = scenario_of(more, TRUE | {"weight_sigma": 100.0}, 2.0).cluster.transport
    assert (most.weight_sigma, most.weights_of, most.requests_per_pull) == (1.0, "transfer", 1)
    several = setting("between-graph", 2, {**LINK, "sharing": "tcp"}, "ladder-4mb", servers=2)
    assert scenario_of(several, TRUE, 2.0).cluster.transport.requests_per_pull == 0


def test_over_loopback_the_cores_move_every_byte() -> None:
    given = setting("between-graph", 1, **ONE)
    waited_s = SIZE * TRUE["loopback_per_byte_s"] * TRUE["loopback_waited_share"]
    each_way_s = 2 * TRUE["tensor_s"] + waited_s + SIZE / TRUE["loopback_bytes_per_s"]
    server_s = TRUE["server_s"] + SIZE * TRUE["server_per_byte_s"]
    # the rest of the cores' work goes on beside the step, on the other core
    expected = TRUE["session_s"] + 0.020 + TRUE["sleep_s"] + 2 * each_way_s + server_s
    assert step_s(given, TRUE | {"loopback_step_s": 0.0}) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("mode", ["between-graph", "sync"])
def test_a_step_by_layer_sleeps_twice_for_each_variable(mode: str) -> None:
    """Five variables in equal parts: ten sleeps, nine of which come late beyond the first."""
    given = setting(mode, 1, {"bandwidth": "10 Gbit/s"}, "ladder-1mb/5", overlap=True)
    late, none = (step_s(given, TRUE | {"layer_sleep_s": each_s, "layer_cpu_s": 0.0}) for each_s in (1e-3, 0.0))
    assert given.sleeps == 10
    assert late - none == pytest.approx(9e-3, rel=0.05)  # of the first pull that is waited for, less shows


@pytest.mark.parametrize(("mode", "model"), [("between-graph", "ladder-1mb"), ("between-graph", "ladder-1mb/16"), ("async", "ladder-1mb")])
def test_many_processes_make_as_many_steps_as_two_cores_have_time_for(mode: str, model: str) -> None:
    """Work per step, over two cores: 24 workers whose links and sleeps would allow twice as many steps."""
    given = setting(mode, 24, {"bandwidth": "10 Gbit/s"}, model, servers=2, compute={"mean": "30 ms"}, steps=40)
    values = TRUE | {"dispatch_s": 0.0}
    work_s = sum(values[name] * amount for name, amount in work_of_step(given).items())
    assert 1.0 / step_s(given, values) == pytest.approx(2.0 / work_s, rel=0.05)


def test_behind_links_real_compute_has_its_slowdown_next_to_busy_cores_and_no_further_work() -> None:
    given = setting("async", 3, LINK, compute={"kind": "real"})
    compute = RealCompute(mean_s=0.01, law=Constant(), busy_core_slowdown=0.4)
    emulated, real = scenario_of(setting("async", 3, LINK), TRUE, 2.0), scenario_of(given, TRUE, 2.0, compute=compute)
    assert emulated.cluster.shared_cores == real.cluster.shared_cores == 2.0
    assert emulated.cluster.time_slice_s == real.cluster.time_slice_s == 1.5e-3
    assert emulated.workload.input.base_s > 0.0 == real.workload.input.base_s


def test_sparse_rows_travel_alone_to_servers_and_whole_in_a_ring() -> None:
    sparse = {"variables": [{"name": "v", "shape": [1024, 256], "ready": 1.0, "rows": 64}], "model": "one"}
    assert step_s(setting("between-graph", 1, LINK, **sparse), TRUE) < 0.5 * step_s(setting("between-graph", 1, LINK, **ONE), TRUE)
    assert step_s(setting("ring", 2, LINK, **sparse), TRUE) == pytest.approx(step_s(setting("ring", 2, LINK, **ONE), TRUE), rel=1e-12)
