"""What does not fit into memory is refused in one line before it is begun; checking millions of workers takes no memory of its own."""

from __future__ import annotations

import cProfile
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from support.scenarios import scenario_table

from simulator import effort, scenario_from_table, simulate
from simulator.base import process as available
from simulator.base.errors import InputError
from simulator.base.process import available_bytes
from simulator.effort import effort_s, memory_bytes
from simulator.engine.choosing import likely_engine
from simulator.resolve.resolve import Asked, resolve
from simulator.results.warnings import warnings_of

pytestmark = pytest.mark.slow

MOST = 10_000_000
ASYNC = {"kind": "parameter-server", "mode": "async"}
RING = {"kind": "multi-worker-mirrored"}


def scenario(workers: int, strategy: dict, **parts):
    return scenario_from_table(scenario_table(strategy={**strategy, "workers": workers}, **parts), "test")


@pytest.mark.parametrize(
    "strategy",
    [ASYNC, {**ASYNC, "mode": "sync", "backup_workers": 10}, {**ASYNC, "mode": "ssp", "bound": 2}, RING, RING | {"algorithm": "auto"}],
    ids=["async", "backup", "ssp", "ring", "auto"],
)
def test_ten_million_workers_are_checked_as_fast_as_ten(strategy):
    def checked(workers: int) -> None:
        cluster = {"node_classes": [{"name": "slow", "nodes": workers // 2, "speed": 0.5}]}
        found = scenario(workers, strategy, cluster=cluster)
        assert found.replicas == workers
        effort_s(resolve(found))
        memory_bytes(resolve(found), "simpy")
        assert found.hash
        assert found.full_step_s
        assert found.nodes_needed
        warnings_of(Asked.of(found))

    def peak_bytes(workers: int) -> float:
        tracemalloc.start()
        checked(workers)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    checked(20)  # imports, and what is kept from then on
    assert peak_bytes(MOST) < peak_bytes(20) + 100_000
    assert calls_of(lambda: checked(MOST)) < 1.5 * calls_of(lambda: checked(20))


def calls_of(action: Callable[[], object]) -> int:
    """How many functions an action calls: what stands for its time on any machine."""
    with cProfile.Profile() as profile:
        action()
    return sum(entry.callcount for entry in profile.getstats())


def test_what_does_not_fit_is_refused_at_once_and_says_what_to_try(monkeypatch):
    monkeypatch.setattr(effort, "available_bytes", lambda: 2e9)

    def refused() -> None:
        with pytest.raises(InputError, match=r"10,000,000 replicas takes about .* of memory .* is available"):
            simulate(scenario(MOST, ASYNC))

    assert calls_of(refused) < MOST / 100
    monkeypatch.setattr(effort, "available_bytes", lambda: None)  # nobody knows: it is tried
    effort.check_memory(resolve(scenario(MOST, ASYNC)))


def test_memory_grows_with_workers_servers_messages_and_replications():
    def of(workers=1000, strategy=ASYNC, engine="simpy", **run):
        load = {"variables": [{"name": f"v{i}", "size": "1 MB", "creation_index": i, "ready": 1.0} for i in range(4)]}
        return memory_bytes(resolve(scenario(workers, strategy, workload=load, run=run)), engine)

    assert of(2000) == 2 * of(1000)
    assert of(strategy={**ASYNC, "servers": 4}) > of() > of(strategy=RING)
    assert of(100_000, engine="compiled") < of(100_000)
    assert of(grouping="per-server") < of()
    assert of(replications=20) > of()
    assert of(strategy=RING, detail="messages") > of(strategy=RING)


PEAK = """
import json, sys
from pathlib import Path
from simulator import scenario_from_table, simulate

def peak_bytes():  # of this program alone: getrusage counts that of the one that started it too
    status = Path("/proc/self/status").read_text().split()
    return int(status[status.index("VmHWM:") + 1]) * 1024

for table in json.load(sys.stdin):
    before = peak_bytes()
    simulate(scenario_from_table(table, "test"))
    print(peak_bytes() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is told by /proc")
@pytest.mark.parametrize(
    ("strategy", "engine", "workers", "run"),
    [
        (ASYNC, "simpy", 400, {}),
        pytest.param(RING, "auto", 30_000, {}, marks=pytest.mark.long),
        (RING, "auto", 4000, {"steps": 100}),
        pytest.param(RING | {"algorithm": "halving-doubling"}, "simpy", 32, {"detail": "messages"}, marks=pytest.mark.long),
        pytest.param({"kind": "gossip"}, "simpy", 200, {}, marks=pytest.mark.long),
        (ASYNC, "compiled", 60_000, {}),
    ],
    ids=["async", "ring", "ring of many steps", "messages", "gossip", "async compiled"],
)
def test_the_estimate_holds_within_a_factor_of_two(strategy, engine, workers, run):
    """Against the peak memory of a process of its own, after a few replicas have had everything imported."""
    few, many = (
        scenario_table(
            workload={"jitter": {"kind": "exponential"}},
            strategy={**strategy, "workers": count},
            run={"steps": 3, "warmup_steps": 1, "engine": engine, **run},
        )
        for count in (10, workers)
    )
    told = subprocess.run([sys.executable, "-c", PEAK], input=json.dumps([few, many]), capture_output=True, text=True, check=True)
    took = float(told.stdout.split()[-1])
    scenarios = [resolve(scenario_from_table(table, "test")) for table in (many, few)]
    needed, before = (memory_bytes(each, likely_engine(each)) for each in scenarios)
    assert took / 2 < needed - before < 2 * took, (took, needed - before)


def test_the_least_of_all_limits_counts(tmp_path: Path, monkeypatch):
    (tmp_path / "memory.max").write_text("3000\n")
    (tmp_path / "memory.current").write_text("1500\n")
    (tmp_path / "memory.stat").write_text("anon 1000\ninactive_file 200\n")
    monkeypatch.setattr(available, "_CGROUPS", ((tmp_path, "memory.max", "memory.current"),))
    assert available_bytes() == 3000 - 1500 + 200
    (tmp_path / "memory.max").write_text("max\n")
    assert available_bytes() > 1e6


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the limit of a process is told by /proc")
def test_the_limit_of_the_process_counts():
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, -1)); "
        "from simulator.base.process import available_bytes; print(available_bytes())"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < float(told.stdout) < 4 * 2**30
