"""The compiled network and cores against the reference: random cases, everything equal to the last bit, but where a trace's times tie."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from support.examples import examples
from support.network_cases import Case, Outcome, by_compiled, by_simpy, tables_of

from simulator.engine.compiled.ample import shared_crossings
from simulator.network import fairness
from simulator.network.ports import Connection, Limits, Port, exact_weight, leave_out_ample
from simulator.program.program import Changes

SIZES = st.one_of(st.sampled_from([0.5, 1.0, 2.0, 5.0]), st.floats(0.01, 10.0))
TIMES = st.one_of(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0]), st.floats(0.0, 12.0))
CAPACITIES = st.sampled_from([1.0, 1.0, 1.0, 2.0, 3.5, 10.0])
CEILINGS = st.sampled_from([math.inf, math.inf, math.inf, 0.4, 1.0])
LATENCIES = st.sampled_from([0.0, 0.0, 0.5, 0.123])

TRANSPORTS = st.sampled_from(
    [
        {"discipline": "in-order"},
        {"discipline": "streams", "streams": 2},
        {"discipline": "weighted", "weight_sigma": 0.5},
        {"discipline": "weighted", "weight_sigma": 0.5, "weights_of": "transfer"},
        {"discipline": "weighted", "weight_sigma": 0.5, "queue_s": 0.25, "buffer_s": 0.6},
        {"discipline": "weighted", "weight_sigma": 0.5, "weights_of": "transfer", "queue_s": 0.25, "buffer_s": 0.6, "requests_per_pull": 2},
        {"discipline": "weighted", "weight_sigma": 0.5, "queue_s": 0.5, "buffer_s": 2.0, "requests_per_pull": 2},
        {"discipline": "fair"},
    ]
)
WORK = st.sampled_from([{}, {"cpu_per_message_s": 0.25}, {"copy_per_byte_s": 0.125}, {"cpu_per_message_s": 0.1, "copy_per_byte_s": 0.05}])


@st.composite
def cases(draw: st.DrawFn, *, most_paths: int = 10, most_messages: int = 25) -> Case:
    """Round numbers make ties common."""
    n_ports = draw(st.integers(1, 6))
    limited = draw(st.booleans())
    ports = [
        (draw(CAPACITIES), draw(CEILINGS) if limited else math.inf, draw(st.sampled_from([0.0, 0.25])) if limited else 0.0, 1)
        for _ in range(n_ports)
    ]
    n_hosts = draw(st.sampled_from([0, 0, 2, 4]))
    transport: dict[str, Any] = {**draw(TRANSPORTS), **draw(WORK)} if n_hosts else {}
    if n_hosts and not (set(transport) - {"discipline"}) and transport["discipline"] != "in-order":
        n_hosts = 0
    widest = draw(st.integers(1, 3))
    paths = []
    for _ in range(draw(st.integers(1, most_paths))):
        crossed = tuple(draw(st.lists(st.integers(0, n_ports - 1), min_size=1, max_size=min(widest, n_ports), unique=True)))
        ends = (
            draw(st.tuples(st.integers(0, n_hosts - 1), st.integers(0, n_hosts - 1))) if n_hosts and draw(st.integers(0, 4)) else (-1, -1)
        )
        paths.append((crossed, draw(LATENCIES), *ends, draw(st.booleans())))
    weights = [exact_weight(draw(st.sampled_from([1.0, 1.0, 0.5, 2.0, 1.7]))) for _ in paths] if draw(st.booleans()) else []
    n_messages = draw(st.integers(1, most_messages))
    messages = [(draw(st.integers(0, len(paths) - 1)), draw(SIZES), draw(st.booleans())) for _ in range(n_messages)]
    cores = (draw(st.sampled_from([1, 2, 1.5])), draw(st.sampled_from([0.5, 0.3]))) if draw(st.integers(0, 2)) == 0 else None
    slowdowns = [draw(st.sampled_from([0.0, 0.0, 0.25])) for _ in range(draw(st.integers(1, 4)))] if cores else []
    works = [(draw(st.integers(0, len(slowdowns) - 1)), draw(SIZES)) for _ in range(draw(st.integers(0, 8)))] if cores else []
    begins, after = [], {}
    for number in range(n_messages + len(works)):
        if number and draw(st.integers(0, 2)) == 0:
            after.setdefault(draw(st.integers(0, number - 1)), []).append((draw(st.sampled_from([None, None, 0.0, 0.5])), number))
        else:
            begins.append((draw(TIMES), number))
    ample, seed = draw(st.booleans()), draw(st.integers(0, 3))
    changes = draw(changes_of(n_ports)) if draw(st.integers(0, 2)) == 0 else None
    return Case(ports, paths, messages, begins, works, after, transport, weights, cores, slowdowns, ample, seed, changes)


@st.composite
def changes_of(draw: st.DrawFn, ports: int) -> Changes:
    """What others take from some of the ports, at times at which other things happen as well."""
    used = sorted(draw(st.sets(st.integers(0, ports - 1), min_size=1)))
    waits = draw(st.lists(st.sampled_from([0.5, 1.0, 0.3, 4.0]), max_size=4))
    at_s = np.concatenate(([0.0], np.cumsum(waits)))
    left = [draw(st.sampled_from([1.0, 0.5, 0.25, 0.7])) for _ in at_s]
    beside = [float(draw(st.sampled_from([0, 0, 1, 2]))) for _ in at_s]
    repeat_s = draw(st.sampled_from([None, float(at_s[-1]) + 1.0, float(at_s[-1]) + 0.25]))
    return Changes(np.array(used), at_s, np.array(left), np.array(beside), repeat_s)


def check_equal(case: Case, most_things: int = 1 << 60) -> None:
    """Equal to the last bit; with a trace what happens, and when, to 1e-9.

    A trace's changes fall, but for rounding, on the times of messages. Then they are one instant, and the first of it sets its time:
    which one that is rounding decides, and how long a trace goes on when nobody is left to be slowed.
    """
    compiled, simpy = by_compiled(case, most_things), by_simpy(case)
    if case.changes is None:
        assert compiled == simpy
        return
    for one, other in zip(in_any_order(compiled), in_any_order(simpy), strict=True):
        assert one[:-1] == other[:-1]
        assert one[-1] == pytest.approx(other[-1], rel=1e-9, abs=1e-9)


def in_any_order(outcome: Outcome) -> list[tuple[str, int, float]]:
    """What is known of an outcome with a trace: what, which, and when or how much."""
    of_ports = {"carried": outcome.carried, "port in use": outcome.in_use_s, "port busy": outcome.busy_s, "host": outcome.hosts_s}
    amounts = {**of_ports, "task": outcome.tasks_s, "cores": [outcome.cores_s]}
    return sorted(outcome.happened) + [(what, number, amount) for what, of in amounts.items() for number, amount in enumerate(of)]


@pytest.mark.slow
@examples(500, few=60)
@given(cases())
def test_both_networks_are_equal_to_the_last_bit(case: Case) -> None:
    check_equal(case)


@examples(30)
@given(cases(most_paths=40, most_messages=150), st.integers(1, 20))
def test_larger_ones_are_too_in_slices(case: Case, most_things: int) -> None:
    check_equal(case, most_things)


@pytest.mark.slow
@examples(120)
@given(cases(most_paths=20, most_messages=40), st.sampled_from([0, 1]))
def test_they_are_equal_where_the_whole_component_is_shared_out_anew(case: Case, patience: int) -> None:
    """Repairing the shares port by port hardly ever takes so long; here it may not take any longer."""
    filled: list[int] = []

    def fill(*given: Any) -> Any:
        filled.append(1)
        return fill_component(*given)

    fill_component = fairness._fill_component
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fairness, "PATIENCE", patience)
        patch.setattr(fairness, "_fill_component", fill)
        check_equal(case)
    event(f"filled: {bool(filled)}")


@examples(120)
@given(cases(most_paths=30, most_messages=1))
def test_the_same_ports_are_left_out(case: Case) -> None:
    ports = [Port(str(number), capacity, Limits(*limits)) for number, (capacity, *limits) in enumerate(case.ports)]
    weights = case.weights or [1.0] * len(case.paths)
    connections = [
        Connection(tuple(ports[one] for one in path[0]), 0.0, weight=weight) for path, weight in zip(case.paths, weights, strict=True)
    ]
    changing = [] if case.changes is None else case.changes.port.tolist()
    for port in changing:
        ports[port].changing = True
    leave_out_ample(connections)
    shared = shared_crossings(*tables_of(case), np.array(weights), np.array(changing, dtype=int))
    assert shared.tolist() == [port in connection.shared for connection in connections for port in connection.ports]
