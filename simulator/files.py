"""Files: TOML read, every fault told in one line; text written whole or not at all."""

from __future__ import annotations

import os
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simulator.errors import InputError, ScenarioError
from simulator.file_kinds import mistaken
from simulator.nearest import no_such_file
from simulator.units import vanishes

__all__ = ["check_folder", "check_new", "check_replaceable", "check_writable", "exact", "read_toml", "write_whole"]


def check_writable(path: Path, reads: Path | None = None) -> Path:
    """Make sure that a file can be written, before hours are spent on its content.

    Raises
    ------
    InputError
        It is a folder, or the file that is read, or its folder cannot be made or written to.
    """
    shown = repr(str(path)[:120])
    try:
        if reads is not None and path.exists() and path.samefile(reads):
            raise InputError(f"{shown}: is the file that is read; choose another name")
        if path.is_dir():
            raise InputError(f"{shown}: is a folder; give the name of a file")
        if _is_device(path):
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
        if path.exists() and not os.access(path, os.W_OK):
            raise InputError(f"{shown}: exists and may not be written; choose another name")
    except (OSError, ValueError) as error:
        raise InputError(f"{shown}: cannot be written: {_reason(error)}; choose another path") from None
    return path


def check_new(path: Path, *, instead: str = "choose another name") -> Path:
    """Make sure that a file can be written which does not exist yet; ``instead`` says what to do if it does.

    Raises
    ------
    InputError
        It exists, or cannot be written.
    """
    if path.exists() or path.is_symlink():
        raise InputError(f"{str(path)!r}: exists, and is not overwritten; {instead}")
    return check_writable(path)


def check_replaceable(path: Path, own: Callable[[Path], bool], what: str, *, argument: str = "", hint: str = "choose another name") -> Path:
    """Make sure that a file can be written: there is none, or it is empty, or of its own kind, and is replaced.

    Parameters
    ----------
    path
        The file.
    own
        Whether a file that has content is of this kind.
    what
        What is said of one that is not, such as ``"is no cluster file"``.
    argument
        That names the file, for the message.
    hint
        What to do then.

    Raises
    ------
    InputError
        It cannot be written, or is something else.
    """
    check_writable(path)
    if path.is_file() and path.stat().st_size and not own(path):
        named = f"`{argument}`: " if argument else ""
        raise InputError(f"{named}{str(path)!r}: is there already and {what}; {hint}")
    return path


def check_folder(folder: Path) -> Path:
    """Make a folder and make sure that files can be written into it, before the work.

    Raises
    ------
    InputError
        It, or a part of its path, is a file, or it cannot be made or written to.
    """
    shown = repr(str(folder)[:120])
    try:
        if (obstacle := next((path for path in (folder, *folder.parents) if path.exists() and not path.is_dir()), None)) is not None:
            raise InputError(f"{shown}: {'is' if obstacle == folder else f'{obstacle} is'} a file, not a folder; choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        raise InputError(f"{shown}: cannot be written to: {_reason(error)}; choose another folder") from None
    return folder


def write_whole(path: Path, text: str) -> Path:
    """Write a text file by way of a temporary one beside it, so that it is never seen half written.

    A device such as ``/dev/null`` is written to, not replaced.

    Raises
    ------
    InputError
        It cannot be written.
    """
    check_writable(path)
    target = Path(os.path.realpath(path))
    try:
        if _is_device(target):
            target.write_text(text, encoding="utf-8", newline="\n")
            return path
        handle, partial = tempfile.mkstemp(dir=target.parent, prefix=".paceline-", suffix=".partial")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
            os.chmod(partial, 0o644)
            os.replace(partial, target)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)[:120]!r}: cannot be written: {_reason(error)}; choose another path") from None
    return path


def _is_device(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, FileExistsError):
        return f"{error.filename} is a file, not a folder"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _flat(error: Exception) -> str:
    return " ".join(str(error).split())


def exact(text: str) -> float:
    """A number of TOML that is no whole one, as ``parse_float`` of :func:`tomllib.loads` takes it.

    Raises
    ------
    ScenarioError
        It is so small that it would be read as 0.
    """
    value = float(text)
    if value == 0 and vanishes(text):
        raise ScenarioError(f"{text[:40]} is too small to be told from 0: write 0, or the value that is meant")
    return value


_MAX_FILE_BYTES = 64 * 2**20


def read_toml(path: str | Path) -> dict[str, Any]:
    """Parse a TOML file.

    Raises
    ------
    ScenarioError
        It is missing, not readable, too large, no UTF-8 or no TOML.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            raise ScenarioError(f"{path}: is larger than {_MAX_FILE_BYTES} bytes, which no scenario is; check the path")
        return tomllib.loads(content.decode("utf-8-sig"), parse_float=exact)
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None
    except FileNotFoundError:
        raise ScenarioError(f"{path}: {no_such_file(path)}") from None
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror or type(error).__name__}; give a TOML file") from None
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: is no text in UTF-8 (byte {error.start}); give a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{path}: {mistaken(path) or f'is no valid TOML: {_flat(error)}'}") from None
    except RecursionError:
        raise ScenarioError(f"{path}: is nested too deeply") from None
    except ValueError as error:  # a number with thousands of digits, a path with a zero byte
        raise ScenarioError(f"{path}: cannot be read: {str(error).partition(':')[0]}") from None
