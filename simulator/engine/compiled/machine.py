"""How functions of the compiled engine become machine code, and how they see their tables.

A table is a numpy array of records that Python owns. Compiled code gets its address, as an
integer, from one record of state, and reads record number ``i`` by adding to it: nothing
is counted, copied or checked on the way, and a function takes one pointer instead of an
array's seven words for each table. Compiled code therefore allocates nothing; it returns
to Python where a table is full.

Machine code is kept in the user's cache directory, in a folder named after the contents of
this package and the version of numba, so that changed sources compile anew.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir
from llvmlite.binding import Linkage
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["INTERPRETED", "Record", "Table", "compiled", "entry", "fetch", "forget", "is_kept", "making", "obstacle", "remember", "table"]

Record = Any
"""A record of a table: its fields are attributes, which can be set."""

Table = Callable[[int, int], Record]
"""Record number (second) of the table at an address (first)."""

_config: Any = numba.config
_njit: Any = numba.njit

_MAKING = "paceline: making the machine code of the compiled engine, once for this version; this takes some 15 s\n"

INTERPRETED: bool = bool(_config.DISABLE_JIT)
"""Whether Python itself runs the functions, for debugging (environment variable NUMBA_DISABLE_JIT)."""

_Function = TypeVar("_Function", bound=Callable[..., Any])
_OPTIONS = {"nogil": True, "boundscheck": False, "error_model": "numpy", "fastmath": False, "_nrt": False}
_arrays: dict[int, Any] = {}  # by address, where Python itself runs the functions


def compiled(function: _Function) -> _Function:
    """A function that other compiled ones call, and Python never."""
    if INTERPRETED or not _lean:
        plain: _Function = _njit(**_OPTIONS)(function)
        return plain
    made: Any = _Helper(function, targetoptions={"nopython": True, **_OPTIONS}, pipeline_class=_compiler(_HelperLowering))
    return made  # type: ignore[no-any-return]


def entry(function: _Function) -> _Function:
    """A function that Python calls: its machine code, with all that it calls, is kept on disk."""
    (folder, _), before = _cache_folder(), _config.CACHE_DIR
    if folder is None:
        return compiled(function)
    _config.CACHE_DIR = folder  # read when a function is decorated, and only then
    try:
        lean = {"pipeline_class": _compiler(_EntryLowering)} if _lean else {}
        made: _Function = _njit(cache=True, **lean, **_OPTIONS)(function)
    finally:
        _config.CACHE_DIR = before
    return made


@cache
def _cache_folder() -> tuple[str | None, str | None]:
    """Where machine code is kept; or none, and why."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__} {sys.version}".encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    folder = base / "paceline" / "compiled" / digest.hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".written-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        return None, f"its machine code cannot be kept: {folder} cannot be written ({error.strerror})"
    return str(folder), None


def obstacle() -> str | None:
    """Why machine code cannot be kept here, so that it would be compiled anew each time; None where it can."""
    return _cache_folder()[1]


def is_kept() -> bool:
    """Whether machine code of these sources is kept."""
    folder, _ = _cache_folder()
    return folder is not None and any(Path(folder).rglob("*.nbi"))


@contextmanager
def making(*, wait: bool) -> Iterator[bool]:
    """Machine code is about to be made, or loaded; no other process makes the same meanwhile.

    Gives whether to go on: not where another process makes it and this one does not ``wait``.
    """
    folder, _ = _cache_folder()
    if folder is None or fcntl is None or is_kept():
        yield True
        return
    with (Path(folder) / "making").open("w") as lock:  # let go of when the process ends, however it does
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            yield False
            return
        if not is_kept():
            sys.stderr.write(_MAKING)
        yield True


# -- helpers that are the entry's own ----------------------------------------------------

# numba optimises each function by itself, with all that it calls, makes machine code of it,
# and does so for every combination of sizes of integers that it is called with. A function
# that only others call is needed in theirs alone: this halves the time of a cold start. And
# what calls them is told that nobody else does, so that it inlines those that are called
# once, and drops what no caller looks at, such as whether they have raised something: this
# takes a tenth to a quarter off the time of a simulation.
# Where a version of numba does not allow it, all is compiled in the ordinary way.

try:
    from numba.core import compiler, typed_passes
    from numba.core.compiler_machinery import register_pass
    from numba.core.registry import CPUDispatcher

    class _Helper(CPUDispatcher):  # type: ignore[misc]
        """Compiled once, for 64-bit integers."""

        def get_call_template(self, args: Any, kws: Any) -> Any:
            return super().get_call_template(tuple(types.int64 if isinstance(one, types.Integer) else one for one in args), kws)

        def add_overload(self, cres: Any) -> None:
            self.overloads[tuple(cres.signature.args)] = cres

    @register_pass(mutates_CFG=True, analysis_only=False)
    class _HelperLowering(typed_passes.NativeLowering):  # type: ignore[misc]
        """Makes no machine code: whoever calls it optimises and compiles it with its own."""

        _name = "helper_lowering"

        def run_pass(self, state: Any) -> bool:
            library = _library(state)
            library._optimize_final_module = lambda: None
            library._finalize_final_module = lambda: setattr(library, "_finalized", True)
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
        """Takes what it calls as its own before it optimises."""

        _name = "entry_lowering"

        def run_pass(self, state: Any) -> bool:
            library = _library(state)
            optimize = library._optimize_final_module

            def optimize_as_one() -> None:
                for function in library._final_module.functions:
                    if function.linkage == Linkage.linkonce_odr:
                        function.linkage = Linkage.internal
                optimize()

            library._optimize_final_module = optimize_as_one
            return bool(super().run_pass(state))

    def _library(state: Any) -> Any:
        """Where the function that is being compiled goes."""
        state.library = state.targetctx.codegen().create_library(state.func_id.func_qualname)
        state.library.enable_object_caching()
        return state.library

    def _compiler(lowering: type[typed_passes.NativeLowering]) -> Any:
        """numba's own, but for its last step."""

        class Compiler(compiler.CompilerBase):  # type: ignore[misc]
            def define_pipelines(self) -> Any:
                manager = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
                manager.passes = [(lowering if one is typed_passes.NativeLowering else one, text) for one, text in manager.passes]
                manager.finalize()
                return [manager]

        return Compiler

    _lean = not INTERPRETED
except (ImportError, AttributeError):
    _lean = False


def table(dtype: np.dtype[Any]) -> Table:
    """How compiled functions read the records of such tables."""
    if INTERPRETED:
        return lambda address, index: _arrays[int(address)][index]
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
    if INTERPRETED:
        return lambda _: None

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


def remember(array: np.ndarray[Any, Any]) -> int:
    """The address of a table, which the caller keeps alive until it is forgotten."""
    address = int(array.ctypes.data)
    if INTERPRETED:
        _arrays[address] = array.view(np.recarray)
    return address


def forget(address: int) -> None:
    """A table is no longer used."""
    _arrays.pop(address, None)
