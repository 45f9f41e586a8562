"""Files that commands write: checked before the work, complete or not there at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from simulator.errors import InputError

__all__ = ["check_writable", "write_whole"]


def check_writable(path: Path, option: str = "--out", reads: Path | None = None) -> Path:
    """Make sure that a file can be written, before hours are spent on its content.

    Raises
    ------
    InputError
        It is a directory, or the file that the command reads, or its folder cannot be made or written to.
    """
    try:
        if reads is not None and os.path.exists(path) and path.samefile(reads):
            raise InputError(f"{option} {str(path)!r}: is the file that is read; choose another name")
        if path.is_dir():
            raise InputError(f"{option} {str(path)!r}: is a directory; give the name of a file")
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
        if path.exists() and not os.access(path, os.W_OK):
            raise InputError(f"{option} {str(path)!r}: exists and may not be written; choose another name")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        if isinstance(error, FileExistsError):
            reason = f"{error.filename} is a file, not a folder"
        raise InputError(f"{option} {str(path)[:120]!r}: cannot be written: {reason}; choose another path") from None
    return path


def write_whole(path: Path, text: str, option: str = "--out") -> None:
    """Write a text file by way of a temporary one, so that it is never seen half written."""
    check_writable(path, option)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.", suffix=".partial")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
