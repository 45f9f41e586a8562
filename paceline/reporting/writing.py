"""Writing a file whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from simulator.errors import InputError

__all__ = ["write_whole"]


def write_whole(path: Path, text: str) -> None:
    """Write beside the target, then rename over it, so that no half file is ever seen.

    Raises
    ------
    InputError
        It is a folder, or cannot be written.
    """
    target = Path(os.path.realpath(path))
    # os.path answers False where a path cannot even be looked at; writing then says why
    if os.path.isdir(target):
        raise InputError(f"{path}: is a folder; give the name of a file in it, such as {path / 'report.html'}")
    # a rename would replace a device such as /dev/null by a file
    in_place = os.path.exists(target) and not os.path.isfile(target)
    partial = target if in_place else target.parent / f".{os.getpid()}.partial"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8", newline="\n")
        if partial != target:
            partial.replace(target)
    except (OSError, ValueError) as error:
        _discard(partial, target)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"{str(path)[:120]}: cannot be written: {reason}; choose another path with --out") from None
    except BaseException:
        _discard(partial, target)
        raise


def _discard(partial: Path, target: Path) -> None:
    if partial != target:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
