"""Every notebook runs from its first cell to its last, in a fresh kernel, and shows what it promises."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
_SECONDS = 300
QUICKEST = "02"
SHOWN = {
    "01_calibrate_and_predict": [
        r"predicted [\d,]+ samples/s",
        r"measured [\d,]+",
        r"100 Gbit/s: efficiency \d+% \(\d+% to \d+%\) on 16 workers",
        r"\w+-\w+: ",
    ],
    "02_sync_async_ssp_backup": [
        r"async: \d\.\d\d times sync \([\d.]+ to [\d.]+\), faster in \d+ of 19 runs",
        r"SSP: largest staleness seen \d+, bound 49",
    ],
    "03_plan_a_cluster": [
        r"\d+ configurations, \d+ discarded by closed forms, \d+ scenarios simulated",
        r"doubling the workers pays up to \d+",
        r"2x network: [+-]\d+% \(90% of runs: [+-][\d.]+% to [+-][\d.]+%\)",
        r"^feasible: ring",
        r"feasible: False",
        r"plan\.html",
    ],
    "04_pipelines_hybrids_memory": [
        r"needs about [\d.]+ GiB \([\d.]+ GiB to [\d.]+ GiB\) on a device",
        r"parameters: +\d+\.\d GiB free, largest batch of a device: \d+ samples",
        r"sharing parameters too: 1\.\d\d times as fast \([01]\.\d\d to 1\.\d\d\)",
        r"1F1B is fastest with 16 micro-batches",
        r"GPipe: [\d.]+ GiB of activations",
        r"tensor 2 x pipeline 2 x 4 copies: \d+ samples/s",
        r"^feasible: True",
    ],
    "05_a_whole_job": [
        r"goodput \d+%: the share",
        r"the first step of all takes 16\.\d s, later ones \d+ ms",
        r"best interval \d+ s; Young's formula \d+ s, Daly's \d+ s",
        r"elastic: \d\.\d\d h, down for [\d.]+ min",
        r"^feasible: True",
    ],
    "06_to_a_target": [
        r"(reaches accuracy of at least 0\.95 first: after|tie at about) [\d.]+ m?s",
        r"plain: target reached in 0 of 2 runs",
        r"staleness-aware: target reached in 2 of 2 runs",
        r"then async PS, 2 servers: [\d.]+ s, 2 of 2 runs",
        r"learned\.html",
    ],
}


@pytest.fixture(autouse=True)
def kernels(tmp_path, monkeypatch):
    """The kernel of this very interpreter, on loopback, with its files in a folder of their own."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))


def executed(path: Path, folder: Path) -> Any:
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=_SECONDS, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    client.execute()
    return notebook


def texts_of(notebook: Any) -> str:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "\n".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in outputs)


def test_each_has_its_test():
    assert [path.stem for path in NOTEBOOKS] == list(SHOWN)


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[] if path.stem.startswith(QUICKEST) else pytest.mark.long) for path in NOTEBOOKS],
    ids=lambda path: path.stem,
)
@pytest.mark.timeout(1500)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning", "ignore::ResourceWarning")
def test_it_runs(path, tmp_path):
    if path.stem.startswith(("01", "06")):
        pytest.importorskip("tensorflow", reason="TensorFlow is not installed", exc_type=ImportError)
    # wherever it is opened: the catalogue is found beside the package
    folder = ROOT / "notebooks" if path.stem.startswith("02") else tmp_path
    before = set(folder.iterdir())
    notebook = executed(path, folder)
    text = texts_of(notebook)
    for pattern in SHOWN[path.stem]:
        assert re.search(pattern, text, re.MULTILINE), f"{path.name} does not show {pattern}:\n{text}"
    assert any("application/vnd.plotly.v1+json" in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", []))
    told = "".join(output["text"] for cell in notebook.cells for output in cell.get("outputs", []) if output.get("name") == "stderr")
    told = "".join(line for line in told.splitlines(keepends=True) if "rounds were disturbed" not in line)  # on a busy machine, rightly
    assert "Warning" not in told, told  # progress may be told there, where it takes long
    if folder != tmp_path:
        assert set(folder.iterdir()) == before, "a notebook leaves nothing behind"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_stored_with_what_it_shows_and_uses_the_public_face_only(path):
    notebook = json.loads(path.read_text())
    nbformat.validate(notebook)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert code
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    text = texts_of(nbformat.read(path, as_version=4))
    for pattern in SHOWN[path.stem]:
        assert re.search(pattern, text, re.MULTILINE), f"{path.name} does not show {pattern}: run `make notebooks`"
    outputs = json.dumps([cell["outputs"] for cell in code])
    assert len(outputs) < 200_000
    assert not re.search(r"/(?:home|root|tmp|work|Users)/|at 0x", outputs), "a folder of some machine, or an address, is stored"
    source = "\n".join("".join(cell["source"]) for cell in code)
    ours = re.findall(r"^\s*(?:import|from) ((?:paceline|simulator|calibrate)\S*)", source, re.MULTILINE)
    assert set(ours) == {"paceline"}
    assert not re.search(r"\._[a-z]", source), "a private name is used"
    assert set(notebook["metadata"]) == {"kernelspec"}
