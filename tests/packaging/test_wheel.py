"""The built wheel, installed in a clean environment without TensorFlow, simulates, sweeps and reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

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


def test_installed_wheel_works_without_tensorflow(wheel, tmp_path):
    environment = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = environment / "bin" / "python"
    install = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-c",
        str(ROOT / "constraints.txt"),
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True)
    clean = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}

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
