"""The plain C program beside the engines, where there is a compiler: the same physics, so the same answers within the draws."""

from __future__ import annotations

import importlib.util
import statistics
import sys
from pathlib import Path

import pytest

from simulator.engine.replication import replicate
from simulator.resolve.resolve import resolve
from tests.support.closed_forms import ring_all_reduce_s

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SEEDS = range(20)
FAR = 4.5
"""Standard deviations of one run by which another may lie from the mean."""


def _module(name: str):
    path = BENCHMARKS / f"{name}.py"
    if not path.exists():
        pytest.skip("the benchmarks are not here")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def scenarios():
    return _module("scenarios")


@pytest.fixture(scope="module")
def plain():
    return _module("plain_c")


@pytest.fixture(scope="module")
def program(plain, tmp_path_factory):
    built = plain.build(tmp_path_factory.mktemp("plain"))
    if built is None:
        pytest.skip("no C compiler")
    return built


def _as_drawn(ours: list[float], theirs: list[float]) -> None:
    mean, deviation = statistics.mean(theirs), statistics.stdev(theirs)
    assert deviation > 0
    for value in ours:
        assert value == pytest.approx(mean, abs=FAR * deviation)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "steps", "host_s"),
    [(3, 200, 0.0), (12, 100, 0.0), (60, 30, 0.0), (3, 200, 5e-3), (60, 30, 5e-3), (60, 30, 1e-3)],
    ids=["idle link", "half busy", "full", "idle host", "full host", "full link before a host"],
)
def test_asynchronous_workers_agree(scenarios, plain, program, workers, steps, host_s):
    size, rate, compute_s = scenarios.SIZE_BYTES, scenarios.BANDWIDTH, scenarios.COMPUTE_S
    theirs = [plain.workers_of_a_server(program, workers, steps, size, rate, compute_s, seed, host_s) for seed in SEEDS]
    built = scenarios.asynchronous(workers, steps, warmup_steps=0, start="together", host_s=host_s)
    ours = [replicate(resolve(built), replication) for replication in range(3)]
    assert all(its.updates == theirs[0]["worker_steps"] == workers * steps for its in ours)
    _as_drawn([its.updates / its.run_s for its in ours], [its["updates_per_s"] for its in theirs])
    _as_drawn([its.staleness.mean() for its in ours], [its["staleness"] for its in theirs])


@pytest.mark.parametrize("ranks", [2, 3, 16])
def test_a_ring_ends_as_the_closed_form_says(scenarios, plain, program, ranks):
    steps, size, rate, latency_s, compute_s = 3, scenarios.RING_BYTES, scenarios.BANDWIDTH, scenarios.LATENCY_S, scenarios.COMPUTE_S
    theirs = plain.ring(program, ranks, steps, size, rate, latency_s, compute_s, 0.0, 0)
    want_s = steps * (compute_s + ring_all_reduce_s(ranks, size, rate, latency_s))
    assert theirs["messages"] == steps * 2 * ranks * (ranks - 1)
    assert theirs["end_s"] == pytest.approx(want_s, rel=1e-12)
    ours = replicate(resolve(scenarios.ring(ranks, steps, sigma=0.0, detail="messages")), 0)
    assert ours.run_s == pytest.approx(theirs["end_s"], rel=1e-9)


def test_a_ring_of_ranks_that_differ_agrees(scenarios, plain, program):
    ranks, steps, sigma = 8, 20, 0.3
    rest = scenarios.RING_BYTES, scenarios.BANDWIDTH, scenarios.LATENCY_S
    # ours scales draws to a mean of 1, theirs has a median of 1
    median_s = scenarios.COMPUTE_S / 2.718281828459045 ** (sigma**2 / 2)
    theirs = [plain.ring(program, ranks, steps, *rest, median_s, sigma, seed)["end_s"] for seed in SEEDS]
    built = scenarios.ring(ranks, steps, sigma=sigma, detail="messages")
    _as_drawn([replicate(resolve(built), replication).run_s for replication in range(3)], theirs)
