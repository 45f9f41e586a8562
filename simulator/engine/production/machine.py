"""How functions of the compiled engine become machine code, and how they see their tables.

A table is a numpy array of records that Python owns. Compiled code gets its address, as an integer, from one record of state, and
reads record number ``i`` by adding to it: nothing is counted, copied or checked on the way. Compiled code therefore allocates
nothing; it returns to Python where a table is full.

Machine code is kept in the user's cache directory, in a folder named after the contents of this package, of ``engine/recorder.py`` and
of ``program/program.py``, whose constants are compiled in, the versions of numba and of what it stands on, and the processor, so that
changed sources compile anew. A constant from elsewhere must have its file named in ``_cache_folder``. Beside it stands a digest of it:
what was cut off or damaged is made anew. The digest tells nothing of who wrote both: the folder is the user's alone (``private``), or
nothing is kept there or taken from it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import llvmlite
import numba
import numpy as np
from llvmlite import binding, ir
from llvmlite.binding import Linkage
from numba import types
from numba.core import cgutils
from numba.core.types.functions import BaseFunction
from numba.extending import intrinsic

from simulator.engine.production.private import NotPrivateError, is_private, private_folder

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["Record", "Table", "address_of", "compiled", "entry", "fetch", "is_kept", "making", "obstacle", "remaking", "table"]

Record = Any
"""A record of a table: its fields are attributes, which can be set."""

Table = Callable[[int, int], Record]
"""Record number (second) of the table at an address (first)."""

_config: Any = numba.config
_njit: Any = numba.njit

_Function = TypeVar("_Function", bound=Callable[..., Any])
_OPTIONS = {"nogil": True, "boundscheck": False, "error_model": "numpy", "fastmath": False, "_nrt": False}
_WHOLE = "whole"
"""The file with the digest of the others, written last."""
_MAKING = "making"
"""The file that is locked by whoever makes them."""


def compiled(function: _Function) -> _Function:
    """A function that other compiled ones call, and Python never."""
    if not _lean:
        plain: _Function = _njit(**_OPTIONS)(function)
        return plain
    made: Any = _Helper(function, targetoptions={"nopython": True, **_OPTIONS}, pipeline_class=_compiler(_HelperLowering))
    return made  # type: ignore[no-any-return]


def entry(function: _Function) -> _Function:
    """A function that Python calls: its machine code, with all that it calls, is kept on disk.

    Raises
    ------
    OSError
        The folder cannot be written; numba would look for machine code elsewhere.
    """
    (folder, _), before = _cache_folder(), _config.CACHE_DIR
    if folder is None:
        return compiled(function)
    _config.CACHE_DIR = str(folder)  # read when a function is decorated, and only then
    try:
        lean = {"pipeline_class": _compiler(_EntryLowering)} if _lean else {}
        made: Any = _njit(cache=True, **lean, **_OPTIONS)(function)
    finally:
        _config.CACHE_DIR = before
    if Path(made.stats.cache_path).parent != folder:
        raise OSError(f"{folder} cannot be written")
    return made


@cache
def _cache_folder() -> tuple[Path | None, str | None]:
    """Where machine code is kept; or none, and why."""
    try:
        named = Path(os.environ.get("XDG_CACHE_HOME", ""))
        base = named if named.is_absolute() else Path.home() / ".cache"  # as the XDG Base Directory Specification has it
    except RuntimeError:
        return None, "its machine code cannot be kept: there is no home directory; set XDG_CACHE_HOME"
    versions = [numba.__version__, llvmlite.__version__, np.__version__, sys.version, platform.machine()]
    versions += [_config.CPU_NAME or binding.get_host_cpu_name(), _config.CPU_FEATURES or binding.get_host_cpu_features().flatten()]
    digest = hashlib.sha256("\n".join(versions).encode())
    own = Path(__file__).parent
    # constants of the last two are compiled in; numba looks for the code under the sources' path
    for source in sorted((*own.glob("*.py"), own.parent / "recorder.py", own.parents[1] / "program" / "program.py")):
        digest.update(os.fsencode(source))
        digest.update(source.read_bytes())
    names = "paceline", "compiled", digest.hexdigest()[:16]
    try:
        folder = private_folder(base, *names)
        tempfile.TemporaryFile(dir=folder).close()
    except NotPrivateError as error:
        return None, f"its machine code cannot be kept: {error}"
    except OSError as error:
        return None, f"its machine code cannot be kept: {base.joinpath(*names)} cannot be written ({error.strerror})"
    return folder, None


def obstacle() -> str | None:
    """Why no machine code is made here, or would be made anew each time; None where nothing is in the way."""
    if _config.DISABLE_JIT:
        return "NUMBA_DISABLE_JIT is set, so that numba makes no machine code"
    return _cache_folder()[1]


def _files(folder: Path) -> list[Path]:
    """All machine code in a folder."""
    return sorted((*folder.rglob("*.nbi"), *folder.rglob("*.nbc")))


def _digest(folder: Path) -> str:
    """Of all machine code in a folder."""
    digest = hashlib.sha256()
    for file in _files(folder):
        digest.update(os.fsencode(file.relative_to(folder)) + b"\0")
        digest.update(file.read_bytes())
    return digest.hexdigest()


def is_kept() -> bool:
    """Whether machine code of these sources is kept, whole and undamaged, and all of it is the user's own."""
    folder, _ = _cache_folder()
    if folder is None:
        return False
    try:
        whole, files = folder / _WHOLE, _files(folder)
        own = all(map(is_private, {whole, *files, *(file.parent for file in files)}))
        return own and whole.read_text(encoding="ascii") == _digest(folder)
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
    assert folder is not None, "the caller has asked for obstacles"
    if fcntl is None:
        yield
        return
    handle = os.open(folder / _MAKING, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with open(handle, "wb") as lock:  # let go of when the process ends, however it does
        with suppress(OSError):  # a file system without locks: two processes may make the same, and put the same in its place
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def remaking() -> Iterator[None]:
    """Inside, machine code is made anew, whatever is kept; afterwards it counts as kept.

    Raises
    ------
    OSError
        It cannot be written.
    """
    folder, _ = _cache_folder()
    assert folder is not None, "the caller has asked for obstacles"
    for file in (folder / _WHOLE, *_files(folder)):
        file.unlink(missing_ok=True)
    before = os.umask(0o077)
    try:
        with _typing_once():
            yield
        written = folder / f"{_WHOLE}-{os.getpid()}"
        written.write_text(_digest(folder), encoding="ascii")
        written.replace(folder / _WHOLE)
    finally:
        os.umask(before)


@contextmanager
def _typing_once() -> Iterator[None]:
    """Inside, numba finds the type of an operation on the same types once, and writes records by their names.

    It looks through all kinds of an operator at each use, and names each function's arguments at each of its passes.
    """
    known: dict[Any, Any] = {}
    function_type: Any = BaseFunction
    record_type: Any = types.Record
    typed, written = function_type.get_call_type, record_type.__repr__

    def typed_once(function: Any, context: Any, args: Any, kws: Any) -> Any:
        key = function, tuple(args), tuple(kws)
        if kws or key not in known:
            known[key] = typed(function, context, args, kws)
        return known[key]

    function_type.get_call_type, record_type.__repr__ = typed_once, lambda record: record.name
    try:
        yield
    finally:
        function_type.get_call_type, record_type.__repr__ = typed, written


# -- helpers that are the entry's own ----------------------------------------------------

# numba optimises each function by itself, with all that it calls, makes machine code of it,
# and does so for every combination of sizes of integers that it is called with. A function
# that only others call is needed in theirs alone: this halves the time of a cold start. And
# what calls them is declared their only caller, so that it inlines those that are called
# once, and drops what no caller looks at, such as whether they have raised something: this
# takes a tenth to a quarter off the time of a simulation. It links each of them once.
# Where a version of numba does not allow it, all is compiled in the ordinary way.

try:
    from numba.core import compiler, typed_passes, untyped_passes
    from numba.core.compiler_machinery import PassManager, register_pass
    from numba.core.registry import CPUDispatcher

    class _Helper(CPUDispatcher):  # type: ignore[misc]
        """Compiled once, for 64-bit integers."""

        def get_call_template(self, args: Any, kws: Any) -> Any:
            return super().get_call_template(tuple(types.int64 if isinstance(one, types.Integer) else one for one in args), kws)

        def add_overload(self, cres: Any) -> None:
            self.overloads[tuple(cres.signature.args)] = cres

    @register_pass(mutates_CFG=True, analysis_only=False)
    class _HelperLowering(typed_passes.NativeLowering):  # type: ignore[misc]
        """Links nothing and makes no machine code: the entry does, for all that it calls, however indirectly."""

        _name = "helper_lowering"

        def run_pass(self, state: Any) -> bool:
            library = _library(state)
            library._optimize_functions = lambda _: None
            library.finalize = lambda: setattr(library, "_finalized", True)
            state.flags = state.flags.copy()
            state.flags.no_compile = state.flags.no_cpython_wrapper = state.flags.no_cfunc_wrapper = True
            super().run_pass(state)
            result = state["cr"]
            key = f"helper {result.fndesc.mangled_name}"
            state["cr"] = result._replace(cfunc=key)
            state.targetctx.insert_user_function(key, result.fndesc, [library])
            return True

    @register_pass(mutates_CFG=True, analysis_only=False)
    class _EntryLowering(typed_passes.NativeLowering):  # type: ignore[misc]
        """Takes all that it calls as its own before it optimises."""

        _name = "entry_lowering"

        def run_pass(self, state: Any) -> bool:
            library = _library(state)
            finalize, optimize = library.finalize, library._optimize_final_module

            def finalize_as_one() -> None:
                library._linking_libraries = _linked(library)
                finalize()

            def optimize_as_one() -> None:
                for function in library._final_module.functions:
                    if function.linkage == Linkage.linkonce_odr:
                        function.linkage = Linkage.internal
                optimize()

            library.finalize, library._optimize_final_module = finalize_as_one, optimize_as_one
            return bool(super().run_pass(state))

    def _library(state: Any) -> Any:
        """Where the function that is being compiled goes."""
        state.library = state.targetctx.codegen().create_library(state.func_id.func_qualname)
        state.library.enable_object_caching()
        return state.library

    def _linked(library: Any) -> list[Any]:
        """What a function calls, directly or not, each once."""
        found: dict[Any, None] = {}
        ahead = list(library._linking_libraries)
        while ahead:
            one = ahead.pop()
            if one not in found:
                found[one] = None
                ahead += one._linking_libraries
        return list(found)

    def _compiler(lowering: type[typed_passes.NativeLowering]) -> Any:
        """numba's own without its passes for what is not written here, such as closures, and with another last step."""

        class Compiler(compiler.CompilerBase):  # type: ignore[misc]
            def define_pipelines(self) -> Any:
                manager = PassManager("lean")
                for one in (
                    untyped_passes.TranslateByteCode,
                    untyped_passes.FixupArgs,
                    untyped_passes.IRProcessing,
                    untyped_passes.ReconstructSSA,
                    typed_passes.NopythonTypeInference,
                    typed_passes.PreLowerStripPhis,
                    typed_passes.IRLegalization,
                    typed_passes.AnnotateTypes,
                    lowering,
                    typed_passes.NoPythonBackend,
                ):
                    manager.add_pass(one, one.__name__)
                manager.finalize()
                return [manager]

        return Compiler

    _lean = True
except (ImportError, AttributeError):
    _lean = False


def table(dtype: np.dtype[Any]) -> Table:
    """How compiled functions read the records of such tables."""
    record = numba.from_dtype(dtype)
    size = dtype.itemsize

    @intrinsic  # type: ignore[untyped-decorator]
    def at(_context: Any, _address: Any, _index: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            address, index = arguments
            offset = builder.mul(index, ir.Constant(index.type, size))
            return builder.inttoptr(builder.add(address, offset), context.get_value_type(record))

        return record(types.int64, types.int64), generate

    read: Any = at
    return read  # type: ignore[no-any-return]


def _prefetch() -> Callable[[int], None]:
    """How compiled functions have memory brought near that they will need soon; any address will do."""

    @intrinsic  # type: ignore[untyped-decorator]
    def near(_context: Any, _address: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
            builder.call(function, [builder.inttoptr(arguments[0], pointer), flag(0), flag(3), flag(1)])
            return context.get_dummy_value()

        return types.void(types.int64), generate

    made: Any = near
    return made  # type: ignore[no-any-return]


fetch = _prefetch()


def address_of(array: np.ndarray[Any, Any]) -> int:
    """Where a table is, which the caller keeps alive as long as machine code may look there."""
    return int(array.ctypes.data)  # array.__array_interface__ of a table with fields swallows exceptions, and so Ctrl-C
