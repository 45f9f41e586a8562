"""What a transport adds to messages between nodes, against times computed by hand.

Nodes have 10 bytes/s in each direction and no latency, unless a test says otherwise.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.networks import Messages
from support.scenarios import scenario_table

from simulator import scenario_from_table
from simulator.engine.draws import _weights


class Nodes(Messages):
    """One replica a node; messages between the same two nodes take the same connection."""

    def __init__(self, nodes: int = 4, latency_s: float = 0.0, seed: int = 1, **transport) -> None:
        cluster = {"inter_node": {"bandwidth_bytes_per_s": 10.0, "latency_s": latency_s}, "transport": transport}
        table = scenario_table(cluster=cluster, strategy={"kind": "multi-worker-mirrored", "workers": nodes})
        super().__init__(scenario_from_table(table, "test"), seed=seed)


def test_fair():
    """Two share node 2's link until the shorter ends at 2 s; the other has 10 of its 20 bytes left and the link to itself."""
    nodes = Nodes()
    nodes.send("short", 0, 2, 10.0)
    nodes.send("long", 1, 2, 20.0)
    assert nodes.run() == {"short": 2.0, "long": 3.0}


def test_in_order_of_arrival():
    nodes = Nodes(discipline="in-order")
    nodes.send("long", 1, 2, 20.0)
    nodes.send("short", 0, 2, 10.0)
    assert nodes.run() == {"long": 2.0, "short": 3.0}


def test_in_order_whoever_waits_for_another_node_holds_up_nobody():
    """0 to 2 waits for node 2 until 2 s; 0 to 3 came later and passes. The second message of 1 to 2 came before 0's and goes first."""
    nodes = Nodes(discipline="in-order")
    nodes.send("1 to 2, first", 1, 2, 20.0)
    nodes.send("1 to 2, second", 1, 2, 10.0)
    nodes.send("0 to 2", 0, 2, 10.0, at_s=0.5)
    nodes.send("0 to 3", 0, 3, 10.0, at_s=1.0)
    assert nodes.run() == {"0 to 3": 2.0, "1 to 2, first": 2.0, "1 to 2, second": 3.0, "0 to 2": 4.0}


def test_in_order_each_direction_has_its_own_turn():
    nodes = Nodes(discipline="in-order")
    nodes.send("there", 0, 1, 10.0)
    nodes.send("back", 1, 0, 10.0)
    assert nodes.run() == {"there": 1.0, "back": 1.0}


def test_a_turn_ends_with_the_last_byte_not_with_its_arrival():
    nodes = Nodes(discipline="in-order", latency_s=5.0)
    nodes.send("first", 0, 2, 10.0)
    nodes.send("second", 1, 2, 10.0)
    assert nodes.run() == {"first": 6.0, "second": 7.0}


def test_two_at_a_time():
    """The first two share the link until 2 s, when the third begins; then it and the second, which has 10 bytes left, do, until 4 s."""
    nodes = Nodes(discipline="streams", streams=2)
    nodes.send("first", 0, 3, 10.0)
    nodes.send("second", 1, 3, 20.0)
    nodes.send("third", 2, 3, 20.0)
    assert nodes.run() == {"first": 2.0, "second": 4.0, "third": 5.0}


def test_one_at_a_time_is_in_order():
    def ends(**transport):
        nodes = Nodes(8, **transport)
        for number in range(40):
            nodes.send(str(number), number % 5, 5 + number % 3, 1.0 + number * 7 % 11, at_s=0.1 * number)
        return nodes.run()

    assert ends(discipline="streams", streams=1) == ends(discipline="in-order")
    assert ends(discipline="streams", streams=100) == pytest.approx(ends())


def test_weights():
    """Node 2's link is shared as the two weights say; the longer has it to itself when the shorter has ended."""
    sigma = 0.5
    heavy, light = np.exp(sigma * np.random.default_rng(7).standard_normal(256)[:2])
    nodes = Nodes(discipline="weighted", weight_sigma=sigma, seed=7)
    nodes.send("heavy", 0, 2, 10.0)
    nodes.send("light", 1, 2, 10.0)
    first, last = ("heavy", "light") if heavy > light else ("light", "heavy")
    ends = nodes.run()
    assert ends[first] == pytest.approx((1.0 + min(heavy, light) / max(heavy, light)), rel=1e-6)
    assert ends[last] == pytest.approx(2.0, rel=1e-12)


def test_each_message_has_a_weight_of_its_own():
    """Two connections of 1-byte messages share a link; their weights' logarithms differ by sigma x sqrt(2) in the root mean square."""
    nodes = Nodes(discipline="weighted", weight_sigma=0.5)
    for number in range(400):
        nodes.send(f"a{number}", 0, 2, 1.0)
        nodes.send(f"b{number}", 1, 2, 1.0)
    ends = nodes.run()
    assert max(ends.values()) == pytest.approx(80.0, rel=1e-9)  # the link is never idle
    gaps = [ends[f"a{number}"] - ends[f"b{number}"] for number in range(400)]
    assert len({round(gap, 9) for gap in gaps}) > 390
    # until one is done, 800 messages take 0.1 s each; neither is far ahead in the mean
    assert abs(np.mean(gaps)) < 3.0


def test_all_that_a_node_sends_at_the_same_time_has_one_weight():
    """Node 0's message to node 3 draws none, being of the same transfer as that to node 2; what comes after all of it draws anew."""
    sigma = 0.5
    weights = np.exp(sigma * np.random.default_rng(7).standard_normal(256)[:4])
    nodes = Nodes(discipline="weighted", weight_sigma=sigma, weights_of="transfer", seed=7)
    for at_s in (0.0, 100.0):
        nodes.send(f"mine, {at_s}", 0, 2, 10.0, at_s)
        nodes.send(f"aside, {at_s}", 0, 3, 1e-9, at_s)
        nodes.send(f"other, {at_s}", 1, 2, 10.0, at_s)
    ends = nodes.run()
    for at_s, (mine, other) in ((0.0, weights[:2]), (100.0, weights[2:])):
        first, last = ("mine", "other") if mine > other else ("other", "mine")
        assert ends[f"{first}, {at_s}"] - at_s == pytest.approx(1.0 + min(mine, other) / max(mine, other), rel=1e-6)
        assert ends[f"{last}, {at_s}"] - at_s == pytest.approx(2.0, rel=1e-6)


def test_bytes_on_the_wire():
    nodes = Nodes(wire_bytes_per_byte=1.25)
    nodes.send("message", 0, 1, 10.0)
    assert nodes.run() == {"message": 1.25}


def test_a_hosts_work_on_bytes_sent_and_received():
    """A CPU takes 1/8 s a byte and the two directions share it: node 0 sends 10 and receives 10 bytes, 20/8 s."""
    nodes = Nodes(cpu_per_byte_s=0.125)
    nodes.send("there", 0, 1, 10.0)
    nodes.send("back", 2, 0, 10.0)
    assert nodes.run() == {"there": 2.5, "back": 2.5}
    alone = Nodes(cpu_per_byte_s=0.125)
    alone.send("there", 0, 1, 10.0)
    assert alone.run() == {"there": 1.25}  # not 1 s + 1.25 s: a byte is worked on while others cross


def test_a_hosts_work_on_messages():
    """Node 0 takes 2 s for each message in turn; crossing takes 1 s, latency 0.5 s; then the receiver takes 2 s."""
    nodes = Nodes(cpu_per_message_s=2.0, latency_s=0.5)
    nodes.send("first", 0, 1, 10.0)
    nodes.send("second", 0, 2, 10.0)
    assert nodes.run() == {"first": 2.0 + 1.0 + 0.5 + 2.0, "second": 4.0 + 1.0 + 0.5 + 2.0}
    assert nodes.hosts_in_use_s() == {"node 0 messages": 4.0, "node 1 messages": 2.0, "node 2 messages": 2.0}


def test_a_host_works_on_one_message_at_a_time_sent_or_received():
    """Node 1 sends until 1 s; what arrives there at 2 s from two nodes it takes in by turns."""
    nodes = Nodes(cpu_per_message_s=1.0)
    nodes.send("a", 0, 1, 5.0)
    nodes.send("b", 2, 1, 5.0)
    nodes.send("c", 1, 3, 10.0)
    assert nodes.run() == {"a": 3.0, "c": 3.0, "b": 4.0}


@pytest.mark.parametrize("wire", [1.0, 2.0])
def test_copying_a_message_is_not_hidden_behind_the_wire(wire):
    """Cost of a message, and of each of its bytes, before the link and after it; bytes of the tensor, whatever they are on the wire."""
    nodes = Nodes(cpu_per_message_s=0.5, copy_per_byte_s=0.125, latency_s=0.25, wire_bytes_per_byte=wire)
    nodes.send("alone", 0, 1, 10.0)
    assert nodes.run()["alone"] == pytest.approx(2 * (0.5 + 0.125 * 10.0) + wire * 10.0 / 10.0 + 0.25, rel=1e-12)
    assert list(nodes.hosts_in_use_s().values()) == [1.75, 1.75]


def test_a_host_copies_one_message_after_the_other():
    """Node 0 copies 1 s, then 2 s; the second crosses while node 1 still copies the first, and is copied in from 5 to 7."""
    nodes = Nodes(copy_per_byte_s=0.1)
    nodes.send("first", 0, 1, 10.0)
    nodes.send("second", 0, 1, 20.0)
    assert nodes.run() == pytest.approx({"first": 3.0, "second": 7.0}, rel=1e-12)


def test_copying_takes_no_part_of_the_link():
    """A message that is copied in does not keep the next one from crossing, with turns as without."""
    for transport in ({}, {"discipline": "in-order"}):
        nodes = Nodes(copy_per_byte_s=0.1, **transport)
        nodes.send("a", 0, 2, 10.0)
        nodes.send("b", 1, 2, 20.0)
        # a crosses 1-2 and is copied in until 3; b is copied out until 2, crosses 2-4 and is copied in until 6
        assert nodes.run() == pytest.approx({"a": 3.0, "b": 6.0}, rel=1e-12)


def test_no_connection_gets_more_than_its_cap():
    """A cap of 4: two get 4 each and leave 2 unused; three share 10."""
    nodes = Nodes(flow_cap_bytes_per_s=4.0)
    nodes.send("a", 0, 3, 8.0)
    nodes.send("b", 1, 3, 8.0)
    assert nodes.run() == {"a": 2.0, "b": 2.0}
    nodes = Nodes(flow_cap_bytes_per_s=4.0)
    for source in range(3):
        nodes.send(str(source), source, 3, 10.0)
    assert nodes.run() == {"0": 3.0, "1": 3.0, "2": 3.0}


def test_the_cap_holds_whatever_the_weight():
    nodes = Nodes(flow_cap_bytes_per_s=4.0, discipline="weighted", weight_sigma=3.0)
    nodes.send("a", 0, 3, 8.0)
    nodes.send("b", 1, 3, 8.0)
    assert nodes.run() == pytest.approx({"a": 2.0, "b": 2.0}, rel=1e-12)


@pytest.mark.parametrize("flows", [1, 2, 3, 5])
def test_incast(flows):
    """Beyond two flows, each costs a quarter: k flows of 10 bytes take k x (1 + (k - 2) / 4) s."""
    nodes = Nodes(6, incast_loss=0.25, incast_flows=2)
    for source in range(flows):
        nodes.send(str(source), source, 5, 10.0)
    want = flows * (1 + 0.25 * max(flows - 2, 0))
    assert nodes.run() == pytest.approx({str(source): want for source in range(flows)}, rel=1e-12)


def test_incast_gets_better_when_a_flow_ends():
    """Two flows have 10 / 2 between them until 2 s, when 5 bytes of each have come; the one left then has all 10."""
    nodes = Nodes(incast_loss=1.0)
    nodes.send("short", 0, 3, 5.0)
    nodes.send("long", 1, 3, 15.0)
    assert nodes.run() == {"short": 2.0, "long": 3.0}


def test_incast_is_of_the_receiver_alone():
    nodes = Nodes(incast_loss=1.0)
    nodes.send("a", 0, 1, 5.0)
    nodes.send("b", 0, 2, 5.0)
    assert nodes.run() == {"a": 1.0, "b": 1.0}


def test_inside_a_node_nothing_of_it_applies():
    """The transport is between nodes: two replicas of one node see their link alone."""
    everything = {
        "discipline": "in-order",
        "wire_bytes_per_byte": 2.0,
        "cpu_per_message_s": 1.0,
        "cpu_per_byte_s": 1.0,
        "copy_per_byte_s": 1.0,
        "flow_cap_bytes_per_s": 1.0,
        "incast_loss": 1.0,
    }
    cluster = {"devices_per_node": 2, "intra_node": {"bandwidth_bytes_per_s": 10.0, "latency_s": 0.0}, "transport": everything}
    table = scenario_table(cluster=cluster, strategy={"kind": "mirrored", "replicas": 2})
    messages = Messages(scenario_from_table(table, "test"), apart=True)
    for name in ("one", "other"):
        messages.send(name, 0, 1, 10.0)
    assert messages.run() == {"one": 2.0, "other": 2.0}


def test_lognormal_weights_are_cut_at_five_standard_deviations_and_have_median_one():
    draws = _weights(0.5, np.random.default_rng(3))
    logs = np.log(np.concatenate([next(draws) for _ in range(80)]))[:20_000]
    assert logs.mean() == pytest.approx(0.0, abs=4 * 0.5 / math.sqrt(20_000))
    assert logs.std() == pytest.approx(0.5, rel=4 / math.sqrt(2 * 20_000))
    assert abs(logs).max() <= 2.5 + 1e-6
