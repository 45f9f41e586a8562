"""What ``paceline report`` checks before it writes: where the page goes, and what else is asked for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.errors import InputError

if TYPE_CHECKING:
    from paceline.reporting.exporting import Format

__all__ = ["formats_of", "open_page", "target_of"]

_MOST_NAMED = 3


def target_of(results: Sequence[Path], out: Path | None, *, force: bool, reads: Sequence[Path] = ()) -> Path:
    """Where the page goes.

    Parameters
    ----------
    results
        The results files, after which it is named where ``out`` is left out.
    out
        As given.
    force
        Whether a file that is no report of ours may be replaced.
    reads
        Other files that are read, which it must not replace.

    Raises
    ------
    InputError
        It is a file that is read, or one that is no report of ours.
    """
    from paceline.reporting.render import GENERATOR

    target = out if out is not None else _beside(results)
    if os.path.exists(target):
        if any(os.path.exists(path) and os.path.samefile(target, path) for path in results):
            raise InputError(f"{target}: is the results file itself; choose another path with --out")
        if any(os.path.samefile(target, path) for path in reads):
            raise InputError(f"{target}: is a file that the report is made from; choose another path with --out")
    if os.path.isfile(target) and not force and not _is_ours(target, GENERATOR):
        raise InputError(
            f"{target}: is there already and is no report of Paceline; overwrite it with --force, or choose another path with --out"
        )
    return target


def _beside(results: Sequence[Path]) -> Path:
    """Beside the first of them, named after all, or after the first where they are many."""
    first = results[0]
    if len(results) == 1:
        return first.with_suffix(".html")
    stems = [path.stem for path in results]
    name = "-".join(stems) if len(stems) <= _MOST_NAMED else f"{first.stem}-and-{len(stems) - 1}-more"
    return first.with_name(f"{name[:120]}.html")


def _is_ours(path: Path, mark: str) -> bool:
    """Whether a file is empty or a report, which a new one may replace."""
    try:
        with path.open("rb") as file:
            start = file.read(4096)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or type(error).__name__}; choose another path with --out") from None
    return not start or mark.encode() in start


def formats_of(text: str) -> tuple[Format, ...]:
    """Read ``png,svg``.

    Raises
    ------
    InputError
        There is none, or one that figures cannot be written as.
    """
    from paceline.reporting.exporting import FORMATS

    given = [part.strip().lower() for part in text.split(",")]
    for part in given:
        if part not in FORMATS:
            raise InputError(f"--format {text[:40]!r}: {part[:40]!r} must be one of {', '.join(FORMATS)}; write such as --format png,svg")
    return tuple(kind for kind in FORMATS if kind in given)


def open_page(path: Path) -> bool:
    """Open a page in the user's browser; whether there is one."""
    import webbrowser

    return webbrowser.open(path.resolve().as_uri())
