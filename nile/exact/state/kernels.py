"""How the judges compile: decorators of their own, since they may import none of the lower floors'.

A `kernel` borrows its arrays: whoever calls from Python holds them, and counting references to them costs more than
the work of most pieces.  What makes arrays, to return or for itself, is an `allocating_kernel`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from nile.base.compiler import numba

__all__ = ["allocating_kernel", "copied", "inlined", "kernel", "part"]

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
