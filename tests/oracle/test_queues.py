"""One queue before each link: messages wait behind what others have queued, against times worked out by hand and small steps of time.

Nodes have 10 bytes/s in each direction and no latency.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from support.looping import each
from support.networks import Messages
from support.scenarios import scenario_table

from simulator import scenario_from_table
from simulator.base.errors import ScenarioError

RATE = 10.0


class Nodes(Messages):
    """One replica a node; weights are equal."""

    def __init__(self, nodes: int = 5, own_s: float = 1.0, most_s: float = 2.0, requests: int = 0) -> None:
        queue = {"queue_s": own_s, "buffer_s": most_s, "requests_per_pull": requests}
        transport = {"discipline": "weighted", "weight_sigma": 1e-12, **queue}
        cluster = {"inter_node": {"bandwidth_bytes_per_s": RATE, "latency_s": 0.0}, "transport": transport}
        table = scenario_table(cluster=cluster, strategy={"kind": "multi-worker-mirrored", "workers": nodes})
        super().__init__(scenario_from_table(table, "test"), apart=True)


def test_a_message_waits_behind_what_its_sender_has_queued_for_others() -> None:
    """The first has the link to itself until 0.5 + 1 s, and then 5 of its 20 bytes left; the second has half of the link until 2.5 s."""
    nodes = Nodes()
    nodes.send("first", 0, 1, 20.0)
    nodes.send("second", 0, 2, 10.0, at_s=0.5)
    assert nodes.run() == pytest.approx({"first": 2.5, "second": 3.0})


def test_messages_that_start_together_do_not_wait_for_each_other() -> None:
    nodes = Nodes()
    nodes.send("one", 0, 2, 10.0)
    nodes.send("other", 1, 2, 10.0)
    assert nodes.run() == pytest.approx({"one": 2.0, "other": 2.0})


def test_what_two_senders_send_beyond_the_link_waits_up_to_the_buffer() -> None:
    """After 2 s there would be 2 s of data, of which 1.5 s have room: the third begins at 3.5 s, when 2.5 bytes of each are left."""
    nodes = Nodes(most_s=1.5)
    nodes.send("one", 0, 3, 20.0)
    nodes.send("other", 1, 3, 20.0)
    nodes.send("third", 2, 3, 10.0, at_s=2.0)
    assert nodes.run() == pytest.approx({"one": 4.25, "other": 4.25, "third": 5.0})


def test_what_waits_stays_as_long_as_one_sender_fills_the_link_and_is_gone_after_it() -> None:
    """A ends at 2 s and leaves 2 s of data waiting, B at 3 s."""
    nodes = Nodes(most_s=5.0)
    nodes.send("A", 0, 4, 10.0)
    nodes.send("B", 1, 4, 20.0)
    nodes.send("behind", 2, 4, 10.0, at_s=2.5)
    nodes.send("after", 3, 4, 10.0, at_s=3.2)
    assert nodes.run() == pytest.approx({"A": 2.0, "B": 3.0, "behind": 5.5, "after": 4.2})


def test_it_drains_while_less_comes_in_than_the_link_carries() -> None:
    """From 2 s on only half of node 1's link goes there: of 2 s of data 1 s is left at 4 s."""
    nodes = Nodes(most_s=5.0, own_s=0.0)
    nodes.send("A", 0, 4, 10.0)
    nodes.send("B", 1, 4, 25.0)
    nodes.send("elsewhere", 1, 3, 40.0, at_s=2.0)
    nodes.send("behind", 2, 4, 10.0, at_s=4.0)
    ends = nodes.run()
    # B has 15 bytes left at 2 s, at 5 bytes/s: it ends at 5 s, when "behind" begins
    assert ends["B"] == pytest.approx(5.0)
    assert ends["behind"] == pytest.approx(6.0)


def test_windows_bound_what_waits_and_remember_how_many_shared_the_buffer() -> None:
    """Three fill 3 s; when A ends at 3 s two are left, so that 2 s wait; C ends at 6 s, and then B's window of 1 s is all that waits."""
    nodes = Nodes(most_s=3.0)
    nodes.send("A", 0, 4, 10.0)
    nodes.send("B", 1, 4, 50.0)
    nodes.send("C", 2, 4, 25.0)
    nodes.send("behind", 3, 4, 1.0, at_s=6.5)
    ends = nodes.run()
    assert (ends["A"], ends["C"]) == pytest.approx((3.0, 6.0))
    assert ends["behind"] == pytest.approx(7.5 + 0.2)  # half of the link, once it has begun


def test_a_message_that_follows_another_on_its_connection_does_not_wait() -> None:
    """Its data stand behind the first one's already. The third, to another node, waits for the second's."""
    nodes = Nodes(own_s=1.0)
    nodes.send("first", 0, 1, 10.0)
    nodes.send("second", 0, 1, 10.0)
    nodes.send("third", 0, 2, 5.0, at_s=1.5)
    # the third begins at 2.5 s
    assert nodes.run() == pytest.approx({"first": 1.0, "second": 2.0, "third": 3.0})


@pytest.mark.parametrize("requests", [0, 1, 2])
def test_an_answer_waits_for_its_requests_behind_what_comes_in_at_its_sender(requests: int) -> None:
    nodes = Nodes(most_s=5.0, requests=requests)
    nodes.send("one", 0, 3, 20.0)
    nodes.send("other", 1, 3, 20.0)
    nodes.send("answer", 3, 2, 10.0, at_s=1.0, asked_for=True)
    assert nodes.run()["answer"] == pytest.approx(2.0 + requests)


@pytest.mark.slow
@each("seed", range(6))
def test_many_senders_against_small_steps_of_time(seed: int) -> None:
    rng = np.random.default_rng(seed)
    senders, most_s, step_s = 4, 1.2, 2e-4
    sizes, starts = rng.uniform(3.0, 25.0, senders), np.concatenate([[0.0], rng.uniform(0.0, 4.0, senders - 1)])
    nodes = Nodes(most_s=most_s)
    for number in range(senders):
        nodes.send(str(number), number, 4, sizes[number], at_s=starts[number])
    ends = nodes.run()

    left, begins, waiting_s, now, peak = sizes.copy(), np.full(senders, math.inf), 0.0, 0.0, 1
    found: dict[str, Any] = {}
    while len(found) < senders:
        for number in range(senders):
            if begins[number] == math.inf and starts[number] <= now:
                begins[number] = now + waiting_s
        active = [number for number in range(senders) if begins[number] <= now and left[number] > 0]
        for number in active:
            left[number] -= RATE / len(active) * step_s
            if left[number] <= 0:
                found[str(number)] = now
        peak = max(peak, len(active))
        waiting_s = min(waiting_s + (len(active) - 1) * step_s, most_s * len(active) / peak) if active else 0.0
        now += step_s
    assert ends == pytest.approx(found, abs=0.02)


@pytest.mark.parametrize(
    ("transport", "said"),
    [
        ({"queue_s": 0.1, "buffer_s": 0.2}, "weighted"),
        ({"discipline": "weighted", "weight_sigma": 0.1, "buffer_s": 0.2}, "without queue_s"),
    ],
)
def test_a_queue_needs_all_of_its_numbers(transport: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        scenario_from_table(scenario_table(cluster={"transport": transport}), "test")
