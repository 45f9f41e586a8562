"""The machine code of the compiled engine: where it is kept, whether it is whole, and calling it.

One function is called, :func:`act`, with the address of a simulation's state (``state``). numba makes it (``compiling``), once for
these sources. It is kept as an object file, which LLVM loads: numba is not imported for that, and nothing is unpickled. The folder is
in the user's cache directory. Its name is a digest of this package and of ``program/program.py``, which has a constant that is compiled
in, of the versions of numba, llvmlite, numpy and Python, and of the processor: changed sources compile again. A constant from elsewhere
must have its file named in ``_cache_folder``. A digest next to the object file detects a damaged file, which is compiled again. It
does not show who wrote the files, and whoever can write there can run anything. So the folder must belong only to the user, or nothing is
stored in it or read from it: as OpenSSH asks of the way to a user's keys, no directory on the way, from the root down, may let others
change what lies in it (a sticky one, such as ``/tmp``, lets nobody replace what is another's).
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import platform
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

_ROOT = 0


class NotPrivateError(Exception):
    """Others can write to a folder; the text says to which one and what to do, as the middle of a sentence."""


def private_folder(base: Path, *names: str) -> Path:
    """A folder below a base, made where there is none; without links, as nobody can change it any more.

    Parameters
    ----------
    base
        The user's folder for such things; made, too, where there is none.
    names
        Of the folders below it, the next within the one before.

    Raises
    ------
    NotPrivateError
        Others can write to it, or replace it or what it lies in.
    OSError
        It cannot be made.
    """
    folder = Path(os.path.realpath(base))
    for each in (*reversed(folder.parents), folder):
        _make(each)
        _check(each, own=False)
    for name in names:
        folder /= name
        _make(folder)
        _check(folder, own=True)
        folder.chmod(0o700)  # one that a umask of 002 has made must not be open to who joins the group
    return folder


def is_private(path: Path) -> bool:
    """Return whether a file or folder, in one that is private, is neither a link nor another's, and nobody else may write to it."""
    status = path.lstat()
    kind = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return not _has_users() or (kind and status.st_uid == os.geteuid() and not _open_to_others(status))


def _make(folder: Path) -> None:
    if not os.path.lexists(folder):
        folder.mkdir(mode=0o700, exist_ok=True)  # another process may have been quicker


def _check(folder: Path, *, own: bool) -> None:
    """Raise NotPrivateError where a directory lets others change what is in it.

    Parameters
    ----------
    folder
        What is looked at.
    own
        Whether it belongs only to the user; else root may have made it, and it may be a sticky one.
    """
    if not _has_users():
        return
    status = folder.lstat()
    elsewhere = "set XDG_CACHE_HOME to a private folder"
    if stat.S_ISLNK(status.st_mode):
        raise NotPrivateError(f"{folder} is a link; remove it, or {elsewhere}")
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    if status.st_uid != os.geteuid() and (own or status.st_uid not in (_ROOT, Path("/").stat().st_uid)):
        raise NotPrivateError(f"{folder} belongs to another user (uid {status.st_uid}, and this is {os.geteuid()}); {elsewhere}")
    if _open_to_others(status) and (own or not status.st_mode & stat.S_ISVTX):
        raise NotPrivateError(f"other users may write to {folder}; {'remove it' if own else '`chmod go-w` it'}, or {elsewhere}")


def _open_to_others(status: os.stat_result) -> bool:
    """Return whether its mode lets others write. A umask of 002 lets the user's own group, which has no other members, do so."""
    if status.st_mode & stat.S_IWOTH:
        return True
    if not status.st_mode & stat.S_IWGRP:
        return False
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(status.st_uid).pw_name, grp.getgrgid(status.st_gid)
    except KeyError:
        return True
    return user != group.gr_name or not {user}.issuperset(group.gr_mem)


def _has_users() -> bool:
    """Return whether files have an owner and a mode: on Windows the user's profile is closed to others by other means."""
    return hasattr(os, "geteuid")


try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

_CODE = "act.o"
_WHOLE = "whole"
"""The file with the digest of the other and the name of its function, written last."""
_MAKING = "making"
"""The file that is locked by whoever makes them."""
_Act = Callable[[int, int, int, float, int, int, int], int]


def act(address: int, verb: int, number: int, amount: float, what: int, about: int, left: int) -> int:
    """One thing that Python asks for: see :func:`simulator.engine.production.interpreter.act`.

    Raises
    ------
    Exception
        There is no machine code, or it cannot be loaded, and nobody has called :func:`interpret`.
    """
    return (_interpreted or _loaded())(address, verb, number, amount, what, about, left)


_interpreted: _Act | None = None


def interpret(*, in_python: bool) -> None:
    """From now on run the engine's functions in Python, or machine code again: the results are the same."""
    global _interpreted
    _interpreted = None
    if in_python:
        from simulator.engine.production.interpreter import act as _interpreted


@cache
def _loaded() -> _Act:
    folder, _ = _cache_folder()
    assert folder is not None, "the caller checks for obstacles"
    name = (folder / _WHOLE).read_text(encoding="ascii").split()[1]
    engine, address = _linked((folder / _CODE).read_bytes(), name)
    whole, real, pointer = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
    # numba's own calling convention: where the result goes, where an exception would, then the arguments
    code = ctypes.CFUNCTYPE(ctypes.c_int32, pointer, pointer, whole, whole, whole, real, whole, whole, whole)(address)

    def called(*arguments: int | float) -> int:
        result, raised = whole(), pointer()
        code(ctypes.addressof(result), ctypes.addressof(raised), *arguments)  # which raises nothing
        return result.value

    _engines.append(engine)
    return called


_engines: list[Any] = []
"""LLVM's, which machine code goes with."""


def _linked(code: bytes, name: str) -> tuple[Any, int]:
    """LLVM's engine with an object file in it, and the address of a function."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple().create_target_machine(jit=True)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), target)
    engine.add_object_file(binding.object_file.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine, engine.get_function_address(name)


@cache
def _cache_folder() -> tuple[Path | None, str | None]:
    """Where machine code is kept; or none, and why."""
    try:
        named = Path(os.environ.get("XDG_CACHE_HOME", ""))
        base = named if named.is_absolute() else Path.home() / ".cache"  # as the XDG Base Directory Specification has it
    except RuntimeError:
        return None, "its machine code cannot be cached: there is no home directory; set XDG_CACHE_HOME"
    versions = [_version("numba"), _version("llvmlite"), np.__version__, sys.version, platform.machine(), *_processor()]
    digest = hashlib.sha256("\n".join(versions).encode())
    own = Path(__file__).parent
    # a constant of the last is compiled in
    for source in sorted((*own.glob("*.py"), own.parents[1] / "program" / "program.py")):
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    names = "paceline", "compiled", digest.hexdigest()[:16]
    try:
        folder = private_folder(base, *names)
        tempfile.TemporaryFile(dir=folder).close()
    except NotPrivateError as error:
        return None, f"its machine code cannot be cached: {error}"
    except OSError as error:
        return None, f"its machine code cannot be cached: {base.joinpath(*names)} cannot be written ({error.strerror})"
    return folder, None


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _processor() -> tuple[str, str]:
    """Return the target of compiled code: the CPU's name and features, or numba's settings for them."""
    asked = tuple(os.environ.get(name, "") for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"))
    if all(asked):
        return asked[0], asked[1]
    try:
        from llvmlite import binding
    except (ImportError, OSError):  # there is none, or its library cannot be loaded
        return "", ""
    return asked[0] or binding.get_host_cpu_name(), asked[1] or binding.get_host_cpu_features().flatten()


def obstacle() -> str | None:
    """Reason why no machine code is compiled here, or would be compiled again each time; None where nothing is in the way."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return "NUMBA_DISABLE_JIT is set, so numba does not compile"
    return _cache_folder()[1]


def _digest(code: bytes, name: str) -> str:
    return hashlib.sha256(name.encode() + b"\0" + code).hexdigest()


def is_kept() -> bool:
    """Return whether machine code of these sources is kept, whole and undamaged, and all of it is the user's own."""
    folder, _ = _cache_folder()
    if folder is None:
        return False
    try:
        code, whole = folder / _CODE, folder / _WHOLE
        if not (is_private(code) and is_private(whole)):
            return False
        digest, name = whole.read_text(encoding="ascii").split()
        return digest == _digest(code.read_bytes(), name)
    except (OSError, ValueError):
        return False


@contextmanager
def making() -> Iterator[None]:
    """Inside, no other process makes the same machine code: the one that does is waited for.

    Raises
    ------
    OSError
        Nothing can be written there.
    """
    folder, _ = _cache_folder()
    assert folder is not None, "the caller checks for obstacles"
    if fcntl is None:
        yield
        return
    handle = os.open(folder / _MAKING, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with open(handle, "wb") as lock:  # let go of when the process ends, however it does
        with suppress(OSError):  # a file system without locks: two processes may make the same, and put the same in its place
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def keep(code: bytes, name: str) -> None:
    """Keep an object file, and the name of the function in it that is called.

    Raises
    ------
    OSError
        It cannot be written.
    """
    folder, _ = _cache_folder()
    assert folder is not None, "the caller checks for obstacles"
    (folder / _WHOLE).unlink(missing_ok=True)
    before = os.umask(0o077)
    try:
        for file, content in ((_CODE, code), (_WHOLE, f"{_digest(code, name)} {name}\n".encode("ascii"))):
            written = folder / f"{file}-{os.getpid()}"
            try:
                written.write_bytes(content)
                written.replace(folder / file)
            finally:
                written.unlink(missing_ok=True)
    finally:
        os.umask(before)


def address_of(array: np.ndarray[Any, Any]) -> int:
    """Where a table is, which the caller keeps alive as long as machine code may look there."""
    return int(array.ctypes.data)  # array.__array_interface__ of a table with fields swallows exceptions, and so Ctrl-C
