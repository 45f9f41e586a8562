"""Engines as a user meets them: which runs, and what is said where one cannot, is told to, or is given no numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import Answer, refused
from support.waiting import PATIENCE_S

from simulator import load_scenario, simulate
from simulator.base.errors import SimulationError
from simulator.spec.distributions import LogNormal

ASYNC = "strategy={kind='parameter-server',mode='async',workers=64}"
LONG = ("--set", ASYNC, "--set", "run.steps=100", "--set", "run.replications=2", "--set", "cluster.nodes=1000")
"""So many events that the compiled engine would be worth its loading."""
long = pytest.mark.long


def run(*arguments: str, **environment: str) -> Answer:
    done = subprocess.run(
        [sys.executable, "-m", "paceline", *arguments],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    return Answer(done.returncode, done.stdout, done.stderr)


HINDRANCES = ("missing", "broken", "no cache", "switched off")


def hindered(what: str, tmp_path: Path) -> tuple[dict[str, str], str]:
    """An environment in which the compiled engine cannot run, and why."""
    if what == "no cache":
        return {"XDG_CACHE_HOME": "/proc/nothing"}, "its machine code cannot be cached: /proc/nothing/paceline/compiled"
    if what == "switched off":
        return {"NUMBA_DISABLE_JIT": "1"}, "NUMBA_DISABLE_JIT is set, so numba does not compile"
    fails, says = {
        "missing": ("ImportError('No module named numba')", "numba cannot be imported (No module named numba)"),
        "broken": ("SystemError('wrong build')", "numba does not work (wrong build)"),
    }[what]
    (tmp_path / "numba.py").write_text(f"raise {fails}")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    return {"PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path)}, says


@pytest.mark.parametrize("what", ["missing", *(pytest.param(what, marks=long) for what in HINDRANCES[1:])])
def test_python_runs_in_its_place_and_one_line_says_so(folder: Path, tmp_path: Path, what: str) -> None:
    environment, why = hindered(what, tmp_path)
    answer = run("simulate", "s.toml", *LONG, "--json", **environment)
    assert answer.code == 0
    # a slow machine tells of its progress besides
    (line,) = (line for line in answer.stderr.splitlines() if not line.startswith("replications: "))
    assert line.startswith("paceline: ")
    assert why in line
    assert "100 times slower" in line
    assert json.loads(answer.stdout) == json.loads(run("simulate", "s.toml", *LONG, "--json").stdout)


@pytest.mark.parametrize("jobs", [pytest.param("1", marks=long), "2"])
def test_a_sweep_says_so_once_whatever_processes_find_out(folder: Path, tmp_path: Path, jobs: str) -> None:
    environment, why = hindered("missing", tmp_path)
    answer = run("sweep", "s.toml", *LONG, "--over", "run.seed=1,2", "--jobs", jobs, "--out", "r.ndjson", **environment)
    assert answer.code == 0
    assert answer.stderr.count(why) == 1
    assert "Warning" not in answer.stderr


@pytest.mark.parametrize("what", HINDRANCES)
def test_asked_for_by_name_it_is_refused_in_one_line(folder: Path, tmp_path: Path, what: str) -> None:
    environment, why = hindered(what, tmp_path)
    answer = run("simulate", "s.toml", "--set", "run.engine=compiled", **environment)
    refused(answer, 'run.engine: "compiled"', why, '"auto"')


def test_a_million_workers_are_told_of_and_refused_where_they_do_not_fit(
    folder: Path, paceline: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    many = ("simulate", "s.toml", "--set", ASYNC.replace("64", "1000000"), "--set", "run.steps=5", "--yes")
    monkeypatch.setattr("simulator.effort.available_bytes", lambda: 2.0**28)
    refused(paceline(*many), "1,000,000 replicas", "(engine compiled)", "256 MiB")

    def begun(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("simulator.effort.available_bytes", lambda: 1e12)
    monkeypatch.setattr("simulator.run.engine_for", begun)
    first, *_ = paceline(*many).stderr.splitlines()
    assert first.startswith("s.toml: 1,000,000 replicas ")
    assert "(engine compiled)" in first


NO_TIMES = [
    (value, engine, name)
    for value in (float("nan"), float("inf"), -1.0)
    for engine in ("simpy", "compiled")
    for name in ("async-ps", "ring", "ssp")
]


@pytest.mark.parametrize(
    ("value", "engine", "name"),
    [case if number % 4 == 0 else pytest.param(*case, marks=long) for number, case in enumerate(NO_TIMES)],
)
def test_what_is_no_time_is_one_line_whichever_engine_runs(monkeypatch: pytest.MonkeyPatch, value: float, engine: str, name: str) -> None:
    """A law of somebody's own that gives what is no duration."""
    sample = LogNormal.sample

    def spoilt(self, rng, size):
        drawn = sample(self, rng, size)
        drawn[..., -1] = value
        return drawn

    monkeypatch.setattr(LogNormal, "sample", spoilt)
    changed = [("workload.jitter", {"kind": "lognormal", "sigma": 0.1}), ("run.engine", engine), ("run.steps", 40)]
    scenario = load_scenario(name, [*changed, ("run.replications", 2)])
    with pytest.raises(SimulationError, match='"lognormal"'):
        simulate(scenario)


@pytest.mark.parametrize("engine", [pytest.param("simpy", marks=long), "compiled"])
def test_where_memory_runs_out_after_all_a_line_says_so(folder: Path, engine: str) -> None:
    """The system does not say how much there is, and it is little."""
    begins = (
        "import resource, sys; from paceline.cli.app import main; import numpy, simulator.run, simulator.base.process; "
        "from simulator.engine.choosing import choose; choose('compiled', 1.0); "
        "simulator.effort.available_bytes = lambda: None; "
        "taken = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize(); "
        "resource.setrlimit(resource.RLIMIT_AS, (taken + 250_000_000, -1)); main()"
    )
    settings = ("--set", ASYNC.replace("64", "600000"), "--set", "run.steps=5", "--set", f"run.engine={engine}", "--yes")
    command = [sys.executable, "-c", begins, "simulate", "s.toml", *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    *_, line = done.stderr.splitlines()
    assert "Traceback" not in done.stderr
    refused(Answer(done.returncode, done.stdout, f"{line}\n"), "memory", "600,000 replicas", f"(engine {engine})", code=1)
