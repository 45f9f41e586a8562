"""Whether a command may write a file that a user names, or one beside it, and writing it whole or not at all: one rule for all.

A file is replaced only if it is empty, or of the very kind that is written there and made to be replaced by it. Anything else needs
``force``. This is found out before the work, and nothing is made before there is something to write, no folder either. What each
kind of file is recognised by is said where it is written, by the functions ``..._kind`` here.
"""

from __future__ import annotations

import csv
import errno
import itertools
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.base.errors import InputError, ScenarioError
from simulator.base.files import read_toml

_MARKED_WITHIN = 4096
"""Bytes at the beginning of a file within which its mark stands."""


@dataclass(frozen=True)
class OutputKind:
    """What a command writes into a file, and may so replace.

    Attributes
    ----------
    what
        With what is said of a file that is not of it, such as ``"is no machine that a fit wrote"``.
    holds
        Whether a file that has content is of it.
    """

    what: str
    holds: Callable[[Path], bool]


EDITED = OutputKind("", lambda _: False)
"""What people go on writing in, as a scenario: no later one is made to replace it."""


def marked_kind(what: str, mark: str | bytes) -> OutputKind:
    """Files, such as a ``"report"``, that have a mark of Paceline's within their first bytes, which those of earlier versions may lack."""
    its = mark.encode() if isinstance(mark, str) else mark
    return OutputKind(f"is no {what} of this version of Paceline", lambda path: its in _start_of(path))


def csv_kind(columns: Sequence[str]) -> OutputKind:
    """Tables (CSV) with this very heading."""
    return OutputKind("is no table with the columns of this one", lambda path: has_header(path, columns))


def has_header(path: Path, columns: Sequence[str]) -> bool:
    """Whether a file begins with the heading of a table (CSV) of these columns."""
    return heading_of(path) == list(columns)


def heading_of(path: Path) -> list[str]:
    """The columns that a table (CSV) has by its first line; none where the file is no text.

    Raises
    ------
    OSError
        It cannot be read.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return next(csv.reader(file), [])
    except (UnicodeDecodeError, csv.Error):
        return []


def fitted_kind(what: str, key: str) -> OutputKind:
    """Files (TOML) that a calibration wrote: they have ``key``, and say where they come from."""
    return OutputKind(f"is no {what} file that a calibration wrote", lambda path: key in fitted_table(path))


def fitted_table(path: Path) -> Mapping[str, Any]:
    """What a file (TOML) holds whose ``provenance`` tells by which ``command`` it was made; nothing of any other file."""
    try:
        table = read_toml(path)
    except ScenarioError:
        return {}
    provenance = table.get("provenance")
    return table if isinstance(provenance, Mapping) and "command" in provenance else {}


class Output:
    """A file that may be written, which is made sure when it is made and once more when it is written.

    Parameters
    ----------
    path
        The file.
    kind
        What is written.
    force
        Replace whatever is there.
    argument
        Of the library, by which a user names the file.
    beside
        Whether it lies beside the file that the argument names.
    reads
        Files that are read, which it must not be.

    Raises
    ------
    InputError
        It cannot be written, is a file that is read, or something else is there, which is not replaced.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Output(Path(folder, "x.csv"), csv_kind(["a"])).write("a\\n1\\n")
    ...     again = Output(Path(folder, "x.csv"), csv_kind(["a"])).write("a\\n2\\n").read_text()
    ...     Output(Path(folder, "x.csv"), csv_kind(["b"]))
    Traceback (most recent call last):
        ...
    simulator.base.errors.InputError: `out`: ... is there already and is no table with the columns of this one; overwrite it with ...
    """

    def __init__(
        self,
        path: Path,
        kind: OutputKind,
        *,
        force: bool = False,
        argument: str = "out",
        beside: bool = False,
        reads: Iterable[Path] = (),
    ) -> None:
        self.path = path
        self._kind, self._force, self._argument, self._reads = kind, force, argument, tuple(reads)
        self._named = "" if beside else f"`{argument}`: "
        self.check()

    def check(self) -> None:
        """Make sure that it may be written; errors as of the class."""
        try:
            check_writable(self.path)
            for read in self._reads:
                check_writable(self.path, reads=read)
        except InputError as error:
            raise InputError(f"{self._named}{error}") from None
        if self._force or _is_device(self.path) or not self.path.is_file() or not self.path.stat().st_size:
            return
        try:
            own = self._kind.holds(self.path)
        except OSError as error:
            raise InputError(f"{self._named}{str(self.path)!r}: cannot be read: {error.strerror}; choose another name") from None
        if not own:
            what = f" and {self._kind.what}" if self._kind.what else ""
            todo = f"overwrite it with `force=True`, or choose another `{self._argument}`"
            raise InputError(f"{self._named}{str(self.path)!r}: is there already{what}; {todo}")

    def write(self, content: str | bytes) -> Path:
        """Write the file, whole or not at all, and make its folder; errors as of the class."""
        self.check()
        return _write_whole(self.path, content)


def check_writable(path: Path, reads: Path | None = None) -> Path:
    """Make sure that a file can be written, before hours are spent on its content; nothing is made yet, no folder either.

    Raises
    ------
    InputError
        It is a folder, or the file that is read, or its folder cannot be made or written to.
    """
    shown = repr(str(path)[:120])
    try:
        if reads is not None and path.exists() and reads.exists() and path.samefile(reads):
            raise InputError(f"{shown}: is the file that is read; choose another name")
        if path.is_dir():
            raise InputError(f"{shown}: is a folder; give the name of a file")
        if _is_device(path):
            return path
        _check_room(path.parent)
        if path.exists() and not os.access(path, os.W_OK):
            raise InputError(f"{shown}: exists and may not be written; choose another name")
    except (OSError, ValueError) as error:
        raise InputError(f"{shown}: cannot be written: {_reason(error)}; choose another path") from None
    return path


def check_folder(folder: Path, argument: str = "") -> Path:
    """Make sure, before the work, that files can be written into a folder, which is not made yet where it is not there.

    Parameters
    ----------
    folder
        The folder.
    argument
        Of the library, by which a user names it; it begins the message.

    Raises
    ------
    InputError
        It, or a part of its path, is a file, or it cannot be made or written to.
    """
    shown = f"`{argument}`: {str(folder)[:120]!r}" if argument else repr(str(folder)[:120])
    try:
        if (obstacle := next((path for path in (folder, *folder.parents) if path.exists() and not path.is_dir()), None)) is not None:
            raise InputError(f"{shown}: {'is' if obstacle == folder else f'{obstacle} is'} a file, not a folder; choose another folder")
        _check_room(folder)
    except (OSError, ValueError) as error:
        raise InputError(f"{shown}: cannot be written to: {_reason(error)}; choose another folder") from None
    return folder


def check_apart(outputs: Iterable[tuple[str, Path | None]]) -> None:
    """Make sure that no two outputs are one file.

    Parameters
    ----------
    outputs
        What each is called in a message, such as ``"`out`"``, and its path; None where it is not written.

    Raises
    ------
    InputError
        Two are.
    """
    given = [(name, path) for name, path in outputs if path is not None]
    for (one, path), (other, second) in itertools.combinations(given, 2):
        if path.resolve() == second.resolve() and not _is_device(path):
            raise InputError(f"{one} and {other}: both are {str(path)!r}; give two names")


def _start_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MARKED_WITHIN)


def _write_whole(path: Path, content: str | bytes) -> Path:
    """Write a file by way of a temporary one beside it, so that it is never seen half written; a device is written to, not replaced."""
    target = Path(os.path.realpath(path))
    try:
        data = content.encode() if isinstance(content, str) else content
        if _is_device(target):
            target.write_bytes(data)
            return path
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=target.parent, prefix=".paceline-", suffix=".partial")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(handle)  # else a power cut may leave the new name without its content
            os.chmod(partial, mode_of(target))
            os.replace(partial, target)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)[:120]!r}: cannot be written: {_reason(error)}; choose another path") from None
    return path


def mode_of(path: Path) -> int:
    """Who may read and write a file: as before where it is there, else what the user lets be of new files."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    hidden = os.umask(0o077)
    os.umask(hidden)
    return 0o666 & ~hidden


def _is_device(path: Path) -> bool:
    """Whether a path is neither file nor folder, such as ``/dev/null``: writing there replaces nothing."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _check_room(folder: Path) -> None:
    """Raise OSError unless a file can be made in a folder, or where it is not there yet, in the nearest one above it."""
    there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if there.is_file():
        raise NotADirectoryError(errno.ENOTDIR, f"{there} is a file, not a folder")
    with tempfile.TemporaryFile(dir=there):  # without a name from its first moment on
        pass


def _reason(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
