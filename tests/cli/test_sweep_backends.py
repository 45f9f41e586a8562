"""Sweeps on real clusters of this machine: the same bytes wherever they run, and one line where a cluster cannot do it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from support.command_line import SCENARIO, Answer, refused
from support.journals import finished_lines
from support.waiting import PATIENCE_S, until

import paceline
import simulator

JITTERS = 'workload.jitter={kind="lognormal", sigma=0.2},{kind="gamma", shape=1e-4}'
SWEEP = ("sweep", "s.toml", "--over", JITTERS, "--over", "strategy.workers=1,2,3", "--over", "strategy.mode=sync,async")
"""Twelve scenarios, of which the last six fail."""

DASK = """
import sys
from distributed import LocalCluster
with LocalCluster(n_workers=int(sys.argv[1]), threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1") as cluster:
    print(cluster.scheduler_address, flush=True)
    sys.stdin.readline()
"""
RAY = """
import sys, ray
ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20)
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.readline()
print(ray.get(ray.remote(lambda: "still there").remote()), flush=True)
"""


def run(folder: Path, *arguments: str) -> Answer:
    done = subprocess.run(
        [sys.executable, "-m", "paceline", *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    said = [line for line in done.stderr.splitlines(keepends=True) if not line.startswith("scenarios: ")]  # how far it is, where slow
    return Answer(done.returncode, done.stdout, "".join(said))


def before_all_else(folder: Path) -> str:
    """Where Python looks for modules, a folder first."""
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))


@contextmanager
def cluster(program: str, *arguments: str, path: Path | None = None) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A cluster in processes of its own, and its address; what lies in ``path`` goes before all else that they import."""
    with (
        tempfile.TemporaryDirectory() as own,
        subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            env={**os.environ, "TMPDIR": own, **({} if path is None else {"PYTHONPATH": before_all_else(path)})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        ) as child,
    ):
        assert child.stdout is not None
        address = child.stdout.readline().strip()
        assert address, "the cluster did not start"
        try:
            yield address, child
        finally:
            if child.poll() is None:
                child.communicate("\n", timeout=PATIENCE_S)


def seeming_version(folder: Path, package: str, version: str) -> Path:
    """A folder that, imported from, makes a package look like another version of it."""
    (folder / f"{package}-{version}.dist-info").mkdir()
    (folder / f"{package}-{version}.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("clusters")
    (made / "s.toml").write_text(SCENARIO)
    return made


@pytest.fixture(scope="module")
def local(folder: Path) -> bytes:
    """What one process of this machine writes."""
    assert run(folder, *SWEEP, "--jobs", "1", "--out", "local-1.ndjson").code == 1
    return (folder / "local-1.ndjson").read_bytes()


@pytest.fixture(scope="module")
def dask() -> Iterator[str]:
    with cluster(DASK, "2") as (address, _):
        yield address


def test_dask(folder: Path, local: bytes, dask: str) -> None:
    answer = run(folder, *SWEEP, "--backend", "dask", "--scheduler", dask, "--out", "dask.ndjson")
    assert (answer.code, answer.stderr.count("\n")) == (1, 2), answer.stderr
    assert "6 of 12 scenarios failed" in answer.stderr
    assert (folder / "dask.ndjson").read_bytes() == local


@pytest.mark.long
def test_a_sweep_begun_here_goes_on_there(folder: Path, local: bytes, dask: str) -> None:
    lines = local.splitlines(keepends=True)
    (folder / "moved.ndjson").write_bytes(b"".join(lines[:5]) + lines[5][:100])
    assert run(folder, *SWEEP, "--jobs", "1", "--backend", "dask", "--scheduler", dask, "--out", "moved.ndjson").code == 1
    assert (folder / "moved.ndjson").read_bytes() == local


def test_ray_of_its_own(folder: Path, local: bytes) -> None:
    answer = run(folder, *SWEEP, "--jobs", "2", "--backend", "ray", "--out", "ray.ndjson")
    assert (answer.code, answer.stderr.count("\n")) == (1, 2), answer.stderr
    assert (folder / "ray.ndjson").read_bytes() == local


@pytest.mark.long
def test_ray_that_was_there_stays(folder: Path, local: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "5" * 64)
    with cluster(RAY) as (address, child):
        answer = run(folder, *SWEEP, "--backend", "ray", "--scheduler", address, "--out", "ray-there.ndjson")
        assert (answer.code, answer.stderr.count("\n")) == (1, 2), answer.stderr
        assert (folder / "ray-there.ndjson").read_bytes() == local
        said, _ = child.communicate("\n", timeout=PATIENCE_S)
    assert said.strip() == "still there"


@pytest.mark.long
def test_a_dask_cluster_that_is_lost_is_one_line_and_keeps_results(folder: Path, dask: str) -> None:
    longer = (
        "sweep",
        "s.toml",
        "--set",
        "run.steps=100",
        "--over",
        f"run.seed={','.join(map(str, range(10)))}",
        "--over",
        "strategy.workers=1,4",
    )
    with cluster(DASK, "2") as (address, child):
        sweeping = subprocess.Popen(
            [sys.executable, "-m", "paceline", *longer, "--backend", "dask", "--scheduler", address, "--out", "lost.ndjson"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        lost = folder / "lost.ndjson"
        until(lambda: lost.exists() and b"\n" in lost.read_bytes(), lambda: sweeping.poll() is None)
        child.kill()  # its workers end with it, and what tidies up after them lives on to do so
        stdout, stderr = sweeping.communicate(timeout=PATIENCE_S)
        child.wait()
    refused(Answer(sweeping.returncode, stdout, stderr), "Dask", "lost.ndjson", code=1)
    kept = (folder / "lost.ndjson").read_bytes()
    assert run(folder, *longer, "--backend", "dask", "--scheduler", dask, "--out", "lost.ndjson").code == 0
    assert finished_lines(kept) < set((folder / "lost.ndjson").read_bytes().splitlines(keepends=True))
    assert run(folder, *longer, "--jobs", "1", "--out", "not-lost.ndjson").code == 0
    assert (folder / "lost.ndjson").read_bytes() == (folder / "not-lost.ndjson").read_bytes()


def older_paceline(folder: Path) -> Path:
    (folder / "paceline").mkdir()
    (folder / "paceline" / "__init__.py").write_text('__version__ = "0.0.1"\n')
    return folder


def changed_sources(folder: Path) -> Path:
    """The same version, with one word more in what results are computed with."""
    for package in (paceline, simulator):
        source = Path(package.__file__).parent
        shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "simulator" / "rng.py").open("a") as file:
        file.write("# changed\n")
    return folder


@pytest.mark.parametrize(
    ("changed", "versions"),
    [
        pytest.param(older_paceline, rf"Paceline 0\.0\.1\b.* {re.escape(paceline.__version__)},", marks=pytest.mark.long, id="older"),
        pytest.param(changed_sources, r"sources [0-9a-f]{12}\b.* [0-9a-f]{12},", id="changed"),
        pytest.param(
            partial(seeming_version, package="numpy", version="9.9"), r"numpy 9\.9\b.* [\d.]+,", marks=pytest.mark.long, id="numpy"
        ),
    ],
)
def test_another_version_on_a_worker_is_noticed(folder: Path, tmp_path: Path, changed: Callable[[Path], Path], versions: str) -> None:
    with cluster(DASK, "0") as (address, _):
        worker = subprocess.Popen(
            [sys.executable, "-m", "dask", "worker", address, "--nthreads", "2", "--no-dashboard", "--no-nanny"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": before_all_else(changed(tmp_path)), "TMPDIR": str(tmp_path)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            answer = run(folder, *SWEEP, "--backend", "dask", "--scheduler", address, "--out", "older.ndjson")
        finally:
            worker.terminate()
            worker.wait(timeout=PATIENCE_S)
    refused(answer, f"--scheduler '{address}'")
    assert re.search(versions, answer.stderr), answer.stderr
    assert not (folder / "older.ndjson").exists()


@pytest.mark.long
def test_another_version_on_a_ray_worker_is_noticed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "5" * 64)
    with cluster(RAY, path=seeming_version(tmp_path, "scipy", "9.9")) as (address, _):
        answer = run(folder, *SWEEP, "--backend", "ray", "--scheduler", address, "--out", "older-ray.ndjson")
    refused(answer, f"--scheduler '{address}'", "scipy 9.9")
    assert not (folder / "older-ray.ndjson").exists()


@pytest.mark.long
def test_a_ray_cluster_of_another_version_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "5" * 64)
    older = RAY.replace("ray.init(", "ray.__version__ = '1.2.3'\nray.init(")
    with cluster(older) as (address, _):
        answer = run(folder, *SWEEP, "--backend", "ray", "--scheduler", address, "--out", "unlike.ndjson")
    refused(answer, f"--scheduler '{address}'", f"Ray 1.2.3 on Python {platform.python_version()}")
