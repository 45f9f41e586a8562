"""The built wheel, installed in a clean environment without any extra, simulates, sweeps, plans and reports."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from email import message_from_bytes
from importlib.metadata import distribution, packages_distributions, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from simulator import load_scenario, simulate
from simulator.base.errors import _EXTRAS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)], check=True, capture_output=True
    )
    return next(folder.glob("*.whl"))


def test_wheel_holds_code_and_models_but_no_package_named_models(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {"simulator", "calibrate", "paceline"} <= tops
    assert "models" not in tops
    assert "tests" not in tops
    assert "simulator/models/clusters/ethernet-25g.toml" in names
    assert "simulator/models/devices/t4.toml" in names
    assert "simulator/models/keras/cnn.py" in names
    assert "paceline/reporting/templates/report.html" in names
    assert "paceline/cli/keys.json" in names
    assert "paceline/reporting/vendored/plotly-cartesian.min.js" in names


def test_the_licence_comes_along(wheel: Path, tmp_path: Path) -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert text.lstrip().startswith("Apache License\n                           Version 2.0, January 2004")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/licenses/LICENSE"))
        assert archive.read(name).decode() == text
        (theirs,) = (one for one in archive.namelist() if one.endswith("plotly-LICENSE") and ".dist-info/licenses/" in one)
        assert archive.read(theirs).startswith(b"MIT License")
        (about,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        assert message_from_bytes(archive.read(about))["License-Expression"] == "Apache-2.0"
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as sources:
        assert [one for one in sources.getnames() if one.count("/") == 1 and one.endswith("/LICENSE")]


def test_everything_that_is_imported_is_declared(wheel: Path) -> None:
    """The user's Python, in which the probes run, has a TensorFlow of its own; Dask, Ray and the rest are asked for by name."""
    with zipfile.ZipFile(wheel) as archive:
        (about,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        declared = {
            canonicalize_name(Requirement(one).name) for one in message_from_bytes(archive.read(about)).get_all("Requires-Dist") or []
        }
        files = [
            one for one in archive.namelist() if one.endswith(".py") and not one.startswith(("calibrate/probes/", "simulator/models/"))
        ]
        trees = [ast.parse(archive.read(one)) for one in files]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    named = [its.name for node in nodes if isinstance(node, ast.Import) for its in node.names]
    named += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    tops = {name.split(".")[0] for name in named} - set(sys.stdlib_module_names) - {"simulator", "calibrate", "paceline"}
    owners = packages_distributions()
    strange = {top for top in tops if not {canonicalize_name(one) for one in owners.get(top, [top])} & declared}
    assert not strange


def required(wheel: Path) -> set[str]:
    """Names of all that the wheel says it needs, and what that needs, each here in a version that will do."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        waiting = [Requirement(one) for one in message_from_bytes(archive.read(name)).get_all("Requires-Dist") or []]
    found: set[str] = set()
    while waiting:
        one = waiting.pop()
        if one.marker is None or one.marker.evaluate({"extra": ""}):
            assert one.specifier.contains(version(one.name), prereleases=True), f"{one}, but {version(one.name)} is here"
            if one.name.lower() not in found:
                found.add(one.name.lower())
                waiting += map(Requirement, requires(one.name) or [])
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean environment with the wheel and what it says it needs, linked to what is installed here: no network is asked."""
    folder = tmp_path_factory.mktemp("clean") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in required(wheel):
        for file in distribution(name).files or []:
            top = file.parts[0]
            if top != ".." and not (site / top).exists():
                (site / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    install = [sys.executable, "-m", "pip", "--python", str(folder), "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([*install, "--disable-pip-version-check"], check=True, capture_output=True)
    return folder


@pytest.fixture
def paceline(environment: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a program of the clean environment, by default ``paceline``."""
    clean = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(*arguments: str, program: str = "paceline") -> subprocess.CompletedProcess[str]:
        command = [str(environment / "bin" / program), *arguments]
        return subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True, check=False)

    return run


BASE_MB = 150


def test_a_base_install_is_small(wheel: Path) -> None:
    """By the files that packages list, those that were compiled at installation included; on disk, in blocks, it is 126 MB."""
    theirs = [Path(str(distribution(name).locate_file(file))) for name in required(wheel) for file in distribution(name).files or []]
    with zipfile.ZipFile(wheel) as archive:
        own = sum(member.file_size for member in archive.infolist())
    assert own + sum(file.stat().st_size for file in theirs if file.exists()) < BASE_MB * 1e6


@pytest.mark.parametrize("name", ["tensorflow", "numba", "llvmlite", "pandas", "scipy", "plotly"])
def test_a_base_install_has_none_of_the_large_packages(paceline: Callable[..., subprocess.CompletedProcess[str]], name: str) -> None:
    assert f"No module named '{name}'" in paceline("-c", f"import {name}", program="python").stderr


SCENARIO = """
[workload]
use = "cnn-cpu"
batch_per_replica = 32
[cluster]
use = "ethernet-25g"
[strategy]
kind = "parameter-server"
mode = "async"
workers = 4
[run]
steps = 10
replications = 2
"""


def test_a_base_install_predicts(paceline: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    names = {row["name"] for row in json.loads(paceline("models", "list", "--json").stdout)}
    assert {"ethernet-25g", "cnn-cpu"} <= names
    (tmp_path / "s.toml").write_text(SCENARIO)
    predicted = paceline("simulate", "s.toml", "--json")
    assert predicted.stderr == ""
    assert predicted.stdout == simulate(load_scenario(tmp_path / "s.toml")).to_json() + "\n", "the bytes of the compiled engine"
    swept = paceline("sweep", "s.toml", "--over", "strategy.workers=1,2", "--out", "r.ndjson")
    assert swept.returncode == 0, swept.stderr
    reported = paceline("report", "r.ndjson")
    assert reported.returncode == 0, reported.stderr
    assert (tmp_path / "r.html").stat().st_size > 1_000_000
    planned = paceline("plan", "ring", "--target-throughput", "5000 samples/s", "--workers", "1..2", "--set", "run.steps=20")
    assert planned.returncode == 0, planned.stderr


def test_a_base_install_has_a_demo(paceline: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    shown = paceline("demo")
    assert "samples/s" in shown.stdout
    assert shown.stderr.startswith("Wrote paceline-demo.html")
    assert (tmp_path / "paceline-demo.html").stat().st_size > 1_000_000
    assert paceline("demo", "--json").stderr.startswith("Replaced paceline-demo.html")


MISSING = [
    ("calibrate m.py:build --name m", "scipy", "calibrate"),
    ("calibrate-link --name m", "scipy", "calibrate"),
    ("quickstart --out q.html", "scipy", "calibrate"),
    ("why ring --step 1=10ms --step 8=15ms", "scipy", "calibrate"),
    ("watch ring steps.csv", "scipy", "calibrate"),
    ("serve ring", "h11", "serve"),
    ("sweep ring --over run.seed=1 --backend dask --scheduler tcp://127.0.0.1:1", "distributed", "dask"),
    ("sweep ring --over run.seed=1 --backend ray", "ray", "ray"),
]


@pytest.mark.parametrize(("command", "package", "extra"), MISSING)
def test_a_missing_extra_is_named(
    paceline: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, command: str, package: str, extra: str
) -> None:
    (tmp_path / "m.py").write_text("def build(): ...")
    answer = paceline(*command.split())
    assert answer.returncode == 2
    assert answer.stderr.splitlines()[-1] == f"paceline: this needs {package}: pip install 'paceline[{extra}]'"
    assert "Traceback" not in answer.stderr


def test_missing_extras_of_the_library_and_the_engine(paceline: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    framed = paceline("-c", "import paceline; paceline.simulate('ring').to_frame()", program="python").stderr
    assert framed.endswith("InputError: this needs pandas: pip install 'paceline[frames]'\n")
    assert "numba is not installed (pip install 'paceline[fast]')" in paceline("simulate", "ring", "--set", "run.engine=compiled").stderr


def test_the_extras_that_are_named_have_the_packages() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert all(package in {Requirement(one).name for one in extras[extra]} for package, extra in _EXTRAS.items())
