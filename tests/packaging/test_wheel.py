"""The built wheel, installed in a clean environment without TensorFlow, simulates, sweeps and reports."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from importlib.metadata import distribution, packages_distributions, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def test_installed_wheel_works_without_tensorflow(environment, tmp_path):
    python = environment / "bin" / "python"
    clean = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(environment / "bin" / "paceline"), *arguments], cwd=tmp_path, env=clean, capture_output=True, text=True, check=False
        )

    assert subprocess.run([str(python), "-c", "import tensorflow"], capture_output=True, check=False).returncode == 1
    names = {row["name"] for row in json.loads(run("models", "list", "--json").stdout)}
    assert {"ethernet-25g", "cnn-cpu"} <= names
    (tmp_path / "s.toml").write_text(
        '[workload]\nuse = "cnn-cpu"\nbatch_per_replica = 32\n[cluster]\nuse = "ethernet-25g"\n'
        '[strategy]\nkind = "multi-worker-mirrored"\nworkers = 4\n[run]\nsteps = 10\n'
    )
    swept = run("sweep", "s.toml", "--over", "strategy.workers=1,2", "--out", "r.ndjson")
    assert swept.returncode == 0, swept.stderr
    reported = run("report", "r.ndjson")
    assert reported.returncode == 0, reported.stderr
    assert (tmp_path / "r.html").stat().st_size > 1_000_000
    quick = run("quickstart", "--out", "q.html")
    assert quick.returncode in (1, 2)
    assert "tensorflow" in quick.stderr.lower()
    assert "Traceback" not in quick.stderr
