"""Nodes that were to be had, from files: CSV, and JSON of the SkyPilot spot traces."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import SCENARIO, Answer

from simulator import load_scenario

JOB = '\n[job]\nsamples = 1_000_000\n[job.faults.preemption]\nreplacement = "1 min"\nof = "worker-nodes"\navailable = "NAME"\n'
TICKS = {"metadata": {"gap_seconds": 600, "start_time": 0}, "data": [2, 2, 0, 0, 0, 1, 2, 2]}
POINTS = [(0, 2), (1200, 0), (3000, 1), (3600, 2), (4800, 0)]
SETTING = "job={samples=1e6,faults={preemption={replacement='1 min',of='worker-nodes',available='TRACE'}}}"


def points(folder: Path, name: str) -> list[tuple[float, int]]:
    (folder / "spot.toml").write_text(SCENARIO + JOB.replace("NAME", name))
    job = load_scenario(folder / "spot.toml").job
    assert job is not None
    assert job.faults is not None
    assert job.faults.preemption is not None
    return [(point.at_s, point.nodes) for point in job.faults.preemption.available]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.json", json.dumps(TICKS)),
        ("t.json", json.dumps({**TICKS, "data": [float(nodes) for nodes in TICKS["data"]]})),
        ("t.csv", "at_s,nodes\n0,2\n1200,0\n3000,1\n3600,2\n4800,0\n"),
        ("t.csv", "\ufeffnodes, at_s\r\n2,0\r\n0,1.2e3\r\n1,3000\r\n2,3600\r\n0,4800\r\n"),
    ],
    ids=["ticks", "ticks with a point", "table", "as spreadsheets write it"],
)
def test_a_trace_may_be_written_so(name: str, text: str, folder: Path) -> None:
    (folder / name).write_text(text, newline="")
    assert points(folder, name) == POINTS


def test_a_file_is_looked_up_beside_the_scenario(folder: Path, paceline: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "t.json").write_text(json.dumps({**TICKS, "data": [2, 2, 0, 2]}))
    assert points(folder, "t.json")
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    answer = paceline("simulate", "../spot.toml", "--json")
    assert (answer.code, answer.stderr) == (0, "")
    job = json.loads(answer.stdout)["job"]
    assert set(job) >= {"time_s", "faults"}


@pytest.mark.parametrize(
    ("name", "content", "names"),
    [
        ("none.csv", None, ("at_s",)),
        ("t.csv", "at_s,node\n0,2\n", ("at_s",)),
        ("t.csv", "at_s,nodes\n", ("t.csv",)),
        ("t.csv", "at_s,nodes\n0,2\n1,two\n", ("'two'",)),
        ("t.csv", "at_s,nodes\n0,2.5\n9,0\n", ("job.faults.preemption.available.0.nodes: 2.5",)),
        ("t.csv", "at_s,nodes\n5,2\n9,0\n", ("0 s",)),
        ("t.json", "{", ("t.json",)),
        ("t.json", "[" * 100_000, ("t.json",)),
        ("t.json", "[1, 2]", ("t.json",)),
        ("t.json", '{"data": [1, 2]}', ("metadata.gap_seconds",)),
        ("t.json", '{"metadata": {"gap_seconds": NaN}, "data": [1]}', ("metadata.gap_seconds",)),
        ("t.json", '{"metadata": {"gap_seconds": 600}, "data": [1, "two"]}', ("data.1 is two",)),
        ("t.json", '{"metadata": {"gap_seconds": 600}, "data": [1, -1]}', ("data.1 is -1",)),
        ("t.json", '{"metadata": {"gap_seconds": 600}, "data": [1, Infinity]}', ("data.1 is inf",)),
        ("t.json", json.dumps({"metadata": {"gap_seconds": 6}, "data": [1, 0] * 60_000}), ("100,000",)),
        ("t.json", '{"metadata": {"gap_seconds": 600}, "data": [0, 0]}', ("available",)),
    ],
    ids=lambda value: "" if isinstance(value, str) and len(value) > 40 else None,
)
def test_what_is_no_trace_is_one_line(
    name: str, content: str | None, names: tuple[str, ...], folder: Path, refusal: Callable[..., None]
) -> None:
    if content is not None:
        (folder / name).write_text(content)
    refusal(("simulate", "s.toml", "--set", SETTING.replace("TRACE", name)), "paceline: s.toml: job.faults.preemption", *names)
