"""How the judges compile: decorators of their own, since they may import none of the lower floors'.

A `kernel` borrows its arrays: whoever calls from Python holds them, and counting references to them costs more than
the work of most pieces.  What makes arrays, to return or for itself, is an `allocating_kernel`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from nile.base.compiler import numba

__all__ = ["allocating_kernel", "copied", "fetch", "inlined", "kernel", "look", "part"]

Function = TypeVar("Function", bound=Callable[..., Any])


def _compiled(function: Function, *, allocates: bool = False, **options: bool) -> Function:
    made: Function = numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=allocates, **options)(function)
    return made


def kernel(function: Function) -> Function:
    """Called from Python; makes no arrays."""
    return _compiled(function)


def allocating_kernel(function: Function) -> Function:
    """Called from Python; makes arrays."""
    return _compiled(function, allocates=True)


def part(function: Function) -> Function:
    """Called from kernels alone; makes no arrays.  Compiles fast, having no entry for Python."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def inlined(function: Function) -> Function:
    """Called from kernels alone, for every tuple or candidate; makes no arrays."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)


@inlined
def copied(n: int, values: Any, to: Any) -> None:
    """The first n of `values` into `to`: where a slice is assigned numba compiles the text of its error too, in 2 s."""
    for at in np.ndindex((n, *values.shape[1:])):
        to[at] = values[at]


def _asked_for(rows: Any, *, to_write: bool) -> Any:
    """The signature and the code of `fetch` and `look`."""

    def ask(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, given[0])
        word = context.get_value_type(numba.types.intp)
        stride = builder.extract_value(array.strides, 0)
        place = builder.add(builder.ptrtoint(array.data, word), builder.mul(given[1], stride))
        line = builder.inttoptr(place, context.get_value_type(numba.types.voidptr))
        how = [context.get_constant(numba.types.int32, each) for each in (int(to_write), 3, 1)]  # near, data
        kind = numba.core.cgutils.ir.FunctionType(numba.core.cgutils.ir.VoidType(), [line.type, *(n.type for n in how)])
        builder.call(builder.module.declare_intrinsic("llvm.prefetch", [line.type], kind), [line, *how])
        return context.get_dummy_value()

    return numba.types.void(rows, numba.types.int64), ask


@numba.extending.intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def fetch(_typing: Any, rows: Any, _at: Any) -> Any:
    """Ask for a row of an array, whose first axis this is, so that it is in a near cache once it is written to; nothing
    waits for it."""
    return _asked_for(rows, to_write=True)


@numba.extending.intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def look(_typing: Any, rows: Any, _at: Any) -> Any:
    """As `fetch`, to be read only: other threads may read it as well."""
    return _asked_for(rows, to_write=False)
