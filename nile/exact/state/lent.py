"""Columns of Arrow's, handed to kernels without a copy, and arrays that kernels write into."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nile.exact.state.reused import address, reused

__all__ = ["counted", "filled", "in_lines", "lent", "lent_together", "roomy", "taken"]

Array = np.ndarray[Any, Any]
_FEW = 1 << 12
"""Elements that are not large, whatever they are."""
_SMALL = 16_384
_LINE = 64
"""Bytes of a line of the cache: what one thread writes there no other has at that time."""
_LARGE = 1 << 17
"""Bytes from which on memory that numpy lets go of goes back to the system."""


class _Memory:
    """What numpy makes an array of; keeps the owners of the memory."""

    __slots__ = ("__array_interface__", "owners")

    def __init__(self, first: Array, length: int, owners: Sequence[Array]) -> None:
        self.owners = owners
        self.__array_interface__ = {
            "shape": (length,), "typestr": first.dtype.str, "data": (address(first), False), "version": 3,
        }  # fmt: skip


def roomy(n: int, dtype: Any = np.int64) -> Array:
    """An array [n] with anything in it, as of `np.empty`; a large one in memory that was used before.

    Of numpy's the system clears every page again, under one lock for all threads: a third of the time of writing pairs,
    or of a push.
    """
    if n <= _FEW:
        return np.empty(n, dtype)
    return np.empty(n, dtype) if n * np.dtype(dtype).itemsize < _LARGE else reused(n, dtype)


def filled(n: int, value: Any, dtype: Any = np.int64) -> Array:
    """An array [n] full of one value, as of `roomy`."""
    array = roomy(n, dtype)
    array.fill(value)
    return array


def counted(first: int, n: int) -> Array:
    """int64 [n]: the whole numbers from one on, as of `roomy`."""
    array = filled(n, 1)
    array[:1] = first
    return np.cumsum(array, out=array)


def taken(array: Array, at: Array) -> Array:
    """The elements at some places, all of which there are, as of `roomy`."""
    return np.take(array, at, out=roomy(at.shape[0], array.dtype), mode="clip")  # "raise" would copy it


def in_lines(shape: Sequence[int], fill: Any, dtype: Any) -> Array:
    """An array full of one value that begins where a line of the cache does.

    What threads share out by eight rows of 8 bytes then has no line in common, and eight digits of a sum are one line.
    """
    n, size = math.prod(shape), np.dtype(dtype).itemsize
    room = np.empty(n * size + _LINE, np.uint8)
    begin = -address(room) % _LINE
    array: Array = room[begin : begin + n * size].view(dtype).reshape(shape)
    array[...] = fill
    return array


def lent(array: Array) -> Array:
    """A contiguous array of one dimension as kernels take it: to be read, never written.

    In the same memory, unless a copy costs less than to say so.  Kernels are compiled for arrays that say they may be
    written; those of Arrow's memory do not say so.
    """
    if array.flags.writeable:
        return array
    if array.nbytes <= _SMALL:
        return array.copy()
    return np.asarray(_Memory(array, array.shape[0], (array,)))


def lent_together(parts: Sequence[Array], dtype: Any = np.int64) -> Array:
    """Contiguous arrays of one dtype, one after the other: in their own memory where they lie so, else a copy.

    To be read, never written.
    """
    given = [part for part in parts if part.shape[0]]
    if not given:
        return np.zeros(0, dtype)
    begins = [address(part) for part in given]
    if all(begin + part.nbytes == after for begin, part, after in zip(begins, given, begins[1:], strict=False)):
        return np.asarray(_Memory(given[0], sum(part.shape[0] for part in given), given))
    return np.concatenate(given)
