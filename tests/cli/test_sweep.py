"""``paceline sweep``: failures, changed scenarios, many scenarios, and clusters that cannot be used."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import SCENARIO, Answer, refused
from support.results import sweep
from support.waiting import PATIENCE_S

from paceline.cli import showing_results
from paceline.cli.terminal import progress_bar
from simulator.results.results import Failure, Result
from simulator.spec.figures import Bottleneck

Paceline = Callable[..., Answer]
SWEEP = ("sweep", "s.toml", "--over", "strategy.workers=1,2", "--jobs", "1", "--out", "r.ndjson")
ONE_FAILS = ("sweep", "s.toml", "--over", 'workload.jitter={kind="constant"},{kind="gamma", shape=1e-4}', "--over", "strategy.workers=1,2")


def test_failures_are_recorded_and_the_others_go_on(folder: Path, paceline: Paceline) -> None:
    for jobs in ("1", "2"):
        answer = paceline(*ONE_FAILS, "--jobs", jobs, "--out", f"{jobs}.ndjson")
        assert answer.code == 1
        assert [row.split()[0] for row in re.findall(r"^ +\d+\*? .*%.*$", answer.stdout, re.MULTILINE)] == ["1*", "2*"]
        wrote, failed = answer.stderr.splitlines()
        assert wrote.startswith(f"wrote {jobs}.ndjson (2 results); ")
        assert failed.startswith("paceline: 2 of 4 scenarios failed: ")
        assert failed.count("check the ") == 1  # both have this reason
        jitter = "workload.jitter={'kind': 'gamma', 'shape': 0.0001}"
        assert f"({jitter}, strategy.workers=1 and {jitter}, strategy.workers=2)" in failed
        assert "--retry-failed" in failed
    assert (folder / "1.ndjson").read_bytes() == (folder / "2.ndjson").read_bytes()
    lines = (folder / "1.ndjson").read_bytes().splitlines()
    assert [Result.model_validate_json(line).replicas for line in lines[:2]] == [1, 2]
    assert [Failure.model_validate_json(line).failed.kind for line in lines[2:]] == ["SimulationError"] * 2
    again = paceline(*ONE_FAILS, "--jobs", "1", "--out", "1.ndjson")
    assert again.code == 1
    assert (folder / "1.ndjson").read_bytes().splitlines() == lines
    tried = paceline(*ONE_FAILS, "--jobs", "1", "--out", "1.ndjson", "--retry-failed", "--json")
    assert tried.code == 1
    assert tried.stdout.encode().splitlines() == lines


def test_a_report_tells_of_failures(folder: Path, paceline: Paceline) -> None:
    paceline(*ONE_FAILS, "--jobs", "1", "--out", "r.ndjson")
    answer = paceline("report", "r.ndjson", "--no-simulate")
    assert answer.code == 0
    assert "2 of 4 scenarios failed: " in answer.stderr


@pytest.mark.parametrize(
    ("edit", "names"),
    [
        (("workers = 2", "workers = 2\nservers = 2"), ("strategy.servers was 1 and is now 2",)),
        (('bandwidth = "1 GB/s"', 'bandwidth = "2 GB/s"'), ("cluster.inter_node.bandwidth_bytes_per_s", "1000000000.0", "2000000000.0")),
        (("steps = 4", "steps = 5\nseed = 9"), ("run.steps was 4 and is now 5",)),
        (("ready = 0.5", "ready = 0.6"), ("workload.variables",)),
    ],
)
def test_a_changed_scenario_is_noticed(
    folder: Path, paceline: Paceline, refusal: Callable[..., None], edit: tuple[str, str], names: tuple[str, ...]
) -> None:
    assert paceline(*SWEEP).code == 0
    before = (folder / "r.ndjson").read_bytes()
    (folder / "s.toml").write_text(SCENARIO.replace(*edit))
    refusal(SWEEP, "r.ndjson:1: ", "--force", *names)
    assert paceline(*SWEEP, "--force").code == 0
    assert (folder / "r.ndjson").read_bytes() != before


def test_another_grid_is_noticed(folder: Path, paceline: Paceline, refusal: Callable[..., None]) -> None:
    assert paceline(*SWEEP).code == 0
    refusal((*SWEEP[:3], "strategy.workers=1", *SWEEP[4:]), "r.ndjson:2: ")
    longer = paceline(*SWEEP[:3], "strategy.workers=1,2,3", *SWEEP[4:])
    assert longer.code == 0
    assert len((folder / "r.ndjson").read_text().splitlines()) == 3


def test_the_half_line_of_another_sweep_is_not_cut_off(folder: Path, paceline: Paceline) -> None:
    assert paceline(*SWEEP).code == 0
    half = (folder / "r.ndjson").read_bytes()[:400]
    (folder / "r.ndjson").write_bytes(half)
    (folder / "s.toml").write_text(SCENARIO.replace("steps = 4", "steps = 5"))
    refused(paceline(*SWEEP), "r.ndjson:1: ")
    assert (folder / "r.ndjson").read_bytes() == half


def test_two_sweeps_into_one_file_are_refused(folder: Path, paceline: Paceline) -> None:
    hold = "from pathlib import Path\nfrom paceline.sweeping import Journal\nwith Journal(Path('r.ndjson')): print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        refused(paceline(*SWEEP), "--out 'r.ndjson'", "another process")
        holder.communicate("\n", timeout=PATIENCE_S)
    assert paceline(*SWEEP).code == 0


def test_it_says_which_is_fastest_and_how_probably(folder: Path, paceline: Paceline) -> None:
    over = ("--over", "strategy.workers=1,3", "--over", "cluster.inter_node.bandwidth=10 Mbit/s,10 Gbit/s")
    chance = ("--set", "discrepancy=none")
    answer = paceline("sweep", "s.toml", *chance, *over, "--replications", "19", "--jobs", "1", "--out", "r.ndjson")
    assert answer.code == 0
    assert max(map(len, answer.stdout.splitlines())) <= 80
    text = " ".join(answer.stdout.split())
    assert re.match(r"On 3 workers, network bandwidth 10 Gbit/s is fastest: [\d,.]+ samples/s; lower values lose more than 5%\.", text)
    assert "fastest of 2 on 3 workers with probability at least 0.95" in text
    alone = paceline("sweep", "s.toml", "--over", "strategy.workers=1,2", "--jobs", "1", "--out", "one.ndjson")
    assert alone.stdout.startswith("Workers pay off up to ")
    assert "fastest" not in alone.stdout, "one strategy has no rival"


def test_large_figures_fit_into_80_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    results = sweep()
    slow = [its.model_copy(update={"bottleneck": Bottleneck(name="server-network", text="")}) for its in results]
    showing_results.show_table(slow)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    assert max(its.throughput_samples_per_s.mean for its in results) > 300_000
    assert "communication" in shown


def test_two_limits_in_balance_are_both_in_the_table_of_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = sweep()[0]
    even = Bottleneck(name="server-network", balance="stragglers", text="Both.")
    showing_results.show_table([result.model_copy(update={"bottleneck": even})])
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    assert {"communication", "stragglers"} <= set(shown.split())


def test_of_many_scenarios_the_first_and_the_last_are_shown(folder: Path, paceline: Paceline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.cli.commands.simulating._ALL_SHOWN", 10)
    monkeypatch.setattr("paceline.cli.commands.simulating._OF_EACH_END", 3)
    seeds = ",".join(map(str, range(12)))
    answer = paceline("sweep", "s.toml", "--set", "run.steps=2", "--over", f"run.seed={seeds}", "--jobs", "1", "--out", "r.ndjson")
    assert answer.code == 0
    assert re.findall("^seed ([0-9]+) ", answer.stdout, re.MULTILINE) == ["0", "1", "2", "9", "10", "11"]
    assert "3 of 12 scenarios" in answer.stderr
    assert "wrote r.ndjson (12 results)" in answer.stderr


def test_a_log_shows_life(folder: Path, paceline: Paceline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.cli.terminal._EVERY_S", 0.0)
    answer = paceline(*SWEEP)
    assert answer.code == 0
    lines = answer.stderr.splitlines()
    assert re.fullmatch(r"scenarios: 1 of 2, about [\d.]+ s left", lines[0])
    assert lines[1] == "scenarios: 2 of 2, about 0 s left"


def test_the_time_left_speaks_of_what_this_run_has_done(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    with progress_bar("scenarios") as advance:
        for now_s, done in ((0, 6000), (29, 6100), (30, 6100), (40, 6200), (4000, 6101), (4100, 9999)):
            clock[0] = now_s
            advance(done, 10_000)
    assert capsys.readouterr().err.splitlines() == [
        "scenarios: 6,100 of 10,000, about 20 min left",
        "scenarios: 6,101 of 10,000, about 43 h left",
        "scenarios: 9,999 of 10,000, about 1 s left",
    ]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ("--backend slurm", ("'slurm'", "'local'", "'dask'")),
        ("--scheduler tcp://127.0.0.1:8786", ("--scheduler 'tcp://127.0.0.1:8786'", "--backend")),
        ("--backend dask", ("--scheduler", "--backend", "127.0.0.1")),
        ("--backend dask --scheduler http://127.0.0.1:8786", ("'http://127.0.0.1:8786'", "--backend")),
        ("--backend dask --scheduler tcp://127.0.0.1", ("'tcp://127.0.0.1'", "--backend")),
        ("--backend dask --scheduler tcp://127.0.0.1:1", ("'tcp://127.0.0.1:1'",)),
        ("--backend dask --scheduler tcp://127.0.0.1:99999", ("'tcp://127.0.0.1:99999'",)),
        ("--backend ray --scheduler tcp://127.0.0.1:6379", ("--backend", "ray://")),
        ("--backend ray --scheduler 127.0.0.1:1", ("'127.0.0.1:1'",)),
    ],
)
def test_clusters_that_cannot_be_used(folder: Path, refusal: Callable[..., None], options: str, names: tuple[str, ...]) -> None:
    refusal((*SWEEP, *options.split()), *names)
    assert [path.name for path in folder.iterdir()] == ["s.toml"]


@pytest.mark.parametrize(("backend", "module"), [("dask", "distributed"), ("ray", "ray")])
def test_a_missing_extra_is_named(folder: Path, paceline: Paceline, monkeypatch: pytest.MonkeyPatch, backend: str, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    scheduler = ("--scheduler", "tcp://127.0.0.1:8786") if backend == "dask" else ()
    refused(paceline(*SWEEP, "--backend", backend, *scheduler), f"pip install 'paceline[{backend}]'")


def test_a_host_without_an_address(folder: Path, paceline: Paceline) -> None:
    """Whose refusal is worded by the system."""
    refused(paceline(*SWEEP, "--backend", "dask", "--scheduler", "tcp://no.such.host.invalid:1"), "'tcp://no.such.host.invalid:1'")


def test_the_lines_printed_are_the_files(folder: Path, paceline: Paceline) -> None:
    answer = paceline(*SWEEP, "--json")
    assert answer.stdout == (folder / "r.ndjson").read_text()
    assert [json.loads(line)["replicas"] for line in answer.stdout.splitlines()] == [1, 2]
