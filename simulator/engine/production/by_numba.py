"""What stands in for ``compiling`` where machine code is made: compiles with numba. Imported only where none exists yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir
from llvmlite.binding import Linkage
from numba import types
from numba.core import compiler, typed_passes, untyped_passes
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.registry import CPUDispatcher
from numba.extending import intrinsic

from simulator.engine.production.layout import Table

_Function = TypeVar("_Function", bound=Callable[..., Any])
_OPTIONS = {"nopython": True, "nogil": True, "boundscheck": False, "error_model": "numpy", "fastmath": False, "_nrt": False}


def compiled(function: _Function) -> _Function:
    """A function that other compiled ones call, and Python never."""
    helper: Any = _Helper(function, targetoptions=_OPTIONS, pipeline_class=_compiler(_HelperLowering))
    return helper  # type: ignore[no-any-return]


def made(function: Callable[..., Any], arguments: str) -> tuple[bytes, str]:
    """An object file with a function and all that it calls, and the function's name in it.

    Parameters
    ----------
    function
        In Python.
    arguments
        The types of its arguments, as numba writes a signature.
    """
    entry: Any = CPUDispatcher(function, targetoptions=_OPTIONS, pipeline_class=_compiler(_EntryLowering))
    entry.compile(arguments)
    (result,) = entry.overloads.values()
    return bytes(result.library._get_compiled_object()), str(result.fndesc.llvm_func_name)


# -- helpers that are the entry's own ----------------------------------------------------

# numba optimises each function by itself, with all that it calls, makes machine code of it,
# and does so for every combination of sizes of integers that it is called with. A function
# that only others call is needed in theirs alone: this halves the time of a cold start. And
# what calls them is declared their only caller, so that it inlines those that are called
# once, and drops what no caller looks at, such as whether they have raised something: this
# takes a tenth to a quarter off the time of a simulation. It links each of them once.


class _Helper(CPUDispatcher):  # type: ignore[misc]
    """Compiled once, for 64-bit integers."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        return super().get_call_template(tuple(types.int64 if isinstance(arg, types.Integer) else arg for arg in args), kws)

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
        state.flags = state.flags.copy()
        state.flags.no_cpython_wrapper = state.flags.no_cfunc_wrapper = True
        return bool(super().run_pass(state))


def _library(state: Any) -> Any:
    """Where the function that is being compiled goes."""
    state.library = state.targetctx.codegen().create_library(state.func_id.func_qualname)
    state.library.enable_object_caching()
    return state.library


def _linked(library: Any) -> list[Any]:
    """Return what a function calls, directly or not, each once."""
    libraries: dict[Any, None] = {}
    ahead = list(library._linking_libraries)
    while ahead:
        linked = ahead.pop()
        if linked not in libraries:
            libraries[linked] = None
            ahead += linked._linking_libraries
    return list(libraries)


def _compiler(lowering: type[typed_passes.NativeLowering]) -> Any:
    """numba's own without its passes for what is not written here, such as closures, and with another last step."""

    class Compiler(compiler.CompilerBase):  # type: ignore[misc]
        def define_pipelines(self) -> Any:
            manager = PassManager("lean")
            for pass_ in (
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
                manager.add_pass(pass_, pass_.__name__)
            manager.finalize()
            return [manager]

    return Compiler


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
