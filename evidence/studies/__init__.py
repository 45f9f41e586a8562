"""One question each about real TensorFlow, measured and predicted; the answers are in docs/."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simulator.base.files import Output, OutputKind, has_header


def begin_rows(path: Path, columns: Sequence[str]) -> None:
    """Begin a table (CSV) that rows are appended to, where there is none yet with this very heading.

    Raises
    ------
    InputError
        Something else is there, or the file cannot be written.
    """
    output = Output(path, OutputKind("is no table of these rows", lambda path: has_header(path, columns)))
    if not path.exists() or not path.stat().st_size:
        output.write(",".join(columns) + "\n")
