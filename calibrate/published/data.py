"""Where the published tables lie."""

from __future__ import annotations

from pathlib import Path

from simulator import catalog
from simulator.errors import CalibrationError

__all__ = ["data_file"]


def data_file(name: str) -> Path:
    """A file of ``models/published``.

    Raises
    ------
    CalibrationError
        There is none of this name.
    """
    for folder in catalog.folders("clusters"):
        file = folder.parent / "published" / name
        if file.is_file():
            return file
    raise CalibrationError(f"models/published: there is no file {name!r}; install Paceline again")
