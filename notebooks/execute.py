"""Runs every notebook from its first cell to its last and stores it with what it shows; ``make notebooks``.

Kept is what a reader needs and what another machine would show too: text and tables. Left out are interactive figures, which
take a megabyte each and are drawn when somebody runs the notebook, and progress. Folders of this machine get a short name.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
_SECONDS = 600
_KEPT = ("text/plain", "text/html")
_LARGEST = 20_000
"""Characters of a table; a larger one is shown as its text."""
_TIMES = ("language_info",)


def execute(path: Path) -> None:
    """Run one notebook in a folder of its own, and write it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory(prefix="paceline-") as folder:
        metadata = dict(notebook.metadata)
        NotebookClient(notebook, timeout=_SECONDS, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
        for number, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), start=1):
            cell.execution_count = number
            cell.metadata.pop("execution", None)
            cell.outputs = [told for output in cell.outputs if (told := _told(output, folder, number)) is not None]
    notebook.metadata = nbformat.from_dict({key: value for key, value in metadata.items() if key not in _TIMES})
    nbformat.write(notebook, path)


def _told(output: Any, folder: str, number: int) -> Any | None:
    """An output as it is stored; None of one that is not."""
    if output.output_type == "stream":
        if output.name == "stderr":
            return None
        output.text = _without_places(output.text, folder)
        return output
    if output.output_type == "error":
        raise RuntimeError(f"cell {number}: {output.ename}: {output.evalue}")
    if any("plotly" in kind for kind in output.data):
        output.data = nbformat.from_dict({"text/plain": "An interactive figure: run this cell to see it."})
    else:
        kept = {kind: _without_places("".join(output.data[kind]), folder) for kind in _KEPT if kind in output.data}
        output.data = nbformat.from_dict({kind: text for kind, text in kept.items() if kind == "text/plain" or len(text) <= _LARGEST})
    output.metadata = nbformat.from_dict({})
    if output.output_type == "execute_result":
        output.execution_count = number
    return output


def _without_places(text: str, folder: str) -> str:
    """Without the folders of this machine, and the addresses of objects."""
    for place in (folder, os.path.realpath(folder), str(ROOT), str(Path.home()), tempfile.gettempdir()):
        text = text.replace(place, ".")
    return re.sub(r" at 0x[0-9a-f]+", "", text)


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    for file in [Path(name) for name in sys.argv[1:]] or sorted(Path(__file__).parent.glob("*.ipynb")):
        sys.stderr.write(f"{file.name}\n")
        execute(file)
