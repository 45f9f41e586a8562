"""Three thousand scenarios: simulated, gone on with and read within 200 MiB, so that ten thousand stay within 500."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from paceline.sweeping import outcomes_in
from simulator.results.results import Result

SMALL = """
[workload]
name = "small"
batch_per_replica = 10
forward = {base = "1 ms", per_sample = "100 us"}
backward = {base = "2 ms", per_sample = "200 us"}
variables = [{name = "kernel", size = "1 MB", creation_index = 0, ready = 1.0}]
[cluster]
name = "lab"
inter_node = {bandwidth = "1 GB/s"}
[strategy]
kind = "single"
[run]
steps = 2
warmup_steps = 0
replications = 2
"""
pytestmark = pytest.mark.long  # what is kept of each scenario shows in thousands alone
COUNT, MOST_MIB = 3_000, 200
HUNDRED, THIRTY = (",".join(map(str, range(1, count + 1))) for count in (100, 30))
SWEEP = (
    "-m",
    "paceline",
    "sweep",
    "s.toml",
    "--over",
    f"run.seed={THIRTY}",
    "--over",
    f"workload.batch_per_replica={HUNDRED}",
    "--jobs",
    "2",
)
READ = "from pathlib import Path; from paceline.sweeping import read_results; assert len(read_results(Path('r.ndjson')).results) == 3_000"


# exec hands on the memory of whoever forked as a first peak, so a small process does it, not this one
MEASURE = "import os, subprocess, sys; _, status, usage = os.wait4(subprocess.Popen(sys.argv[1:]).pid, 0); print(status, usage.ru_maxrss)"


def peak_mib(folder: Path, *arguments: str) -> float:
    """The most memory that a Python process had, its children left out."""
    command = [sys.executable, "-c", MEASURE, sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    status, peak_kib = map(int, done.stdout.splitlines()[-1].split())
    assert status == 0
    return peak_kib / 1024


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """The folder with the results, and what the sweep took."""
    folder = tmp_path_factory.mktemp("many")
    (folder / "s.toml").write_text(SMALL)
    return folder, peak_mib(folder, *SWEEP, "--out", "r.ndjson")


def test_sweeping(swept: tuple[Path, float]) -> None:
    folder, peak = swept
    assert peak < MOST_MIB
    count = 0
    for number, outcome in enumerate(outcomes_in(folder / "r.ndjson")):
        assert isinstance(outcome, Result)
        assert (outcome.seed, outcome.scenario.batch) == (1 + number // 100, 1 + number % 100)
        count += 1
    assert count == COUNT


def test_going_on(swept: tuple[Path, float]) -> None:
    folder, _ = swept
    whole = (folder / "r.ndjson").read_bytes()
    (folder / "r.ndjson").write_bytes(whole[:-100_000])
    assert peak_mib(folder, *SWEEP, "--out", "r.ndjson", "--json") < MOST_MIB
    assert (folder / "r.ndjson").read_bytes() == whole


def test_reading(swept: tuple[Path, float]) -> None:
    folder, _ = swept
    assert peak_mib(folder, "-c", READ) < MOST_MIB
