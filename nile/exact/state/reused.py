"""Large arrays in memory that the next ones use again once nobody holds them: scratch of a step, and what it told.

Memory that is given back is the system's after some ms, which clears every page before anyone has it again, some of it
by 2 MB: under a virtual machine up to 3 ms each, and up to two thirds of a push of 100,000 rows to a group-by on two
threads.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from nile.base.pages import page_pool
from nile.exact.state.arrow import pa

__all__ = ["Reused", "address", "reused"]

Array = np.ndarray[Any, Any]
_KEPT = 1 << 26
"""Bytes that wait for their next use, at most: what pushes of 100,000 rows to a group-by need while a reader holds what
the one before told are 35 MB."""
_FADES = 256
"""Times that memory is asked for after which what nobody has used meanwhile is let go, or at most twice as many."""


def address(array: Array) -> int:
    """Where its memory begins."""
    place: int = array.__array_interface__["data"][0]  # `ctypes` says it, too, in ten times as long
    return place


class Reused:
    """Blocks of memory that nobody holds.

    Taken and given back by any thread, handler or collector of garbage: each step is one of Python's.
    """

    def __init__(self) -> None:
        self._asked = self._waits = 0
        self._new: dict[int, deque[Array]] = {}
        self._old: dict[int, deque[Array]] = {}
        """By their bytes, as given back since `_asked` was last a multiple of _FADES, and before.  `_waits`: all bytes
        of them; two threads at once may miscount, until then."""

    def taken(self, size: int) -> Array:
        """A block of so many bytes, or up to an eighth more: uint8, with anything in it."""
        self._asked += 1
        if self._asked % _FADES == 0:
            self._old, self._new = self._new, {}
            self._waits = self.nbytes
        step = 1 << (size.bit_length() - 4)
        size += -size % step  # alike for what is about as large, as of the next push
        for blocks in (self._new, self._old):
            try:
                found = blocks[size].pop()
            except LookupError:
                continue
            self._waits -= size
            return found
        return np.frombuffer(pa.allocate_buffer(size, memory_pool=page_pool(size)), np.uint8)

    def give(self, block: Array) -> None:
        """Nobody holds a block any more: it is kept, where there is room."""
        if self._waits + block.nbytes <= _KEPT:
            self._waits += block.nbytes
            self._new.setdefault(block.nbytes, deque()).append(block)

    @property
    def nbytes(self) -> int:
        """Bytes that wait for their next use."""
        return sum(size * len(blocks) for each in (self._new, self._old) for size, blocks in tuple(each.items()))


_reused = Reused()


class _Lent:
    """What numpy makes an array of, which gives its block back with the last that holds a part of it."""

    __slots__ = ("__array_interface__", "_block", "_to")

    def __init__(self, block: Array, n: int, dtype: np.dtype[Any], to: Reused) -> None:
        self._block, self._to = block, to
        self.__array_interface__ = {
            "shape": (n,), "typestr": dtype.str, "data": (address(block), False), "version": 3,
        }  # fmt: skip

    def __del__(self) -> None:
        self._to.give(self._block)


def reused(n: int, dtype: Any, of: Reused = _reused) -> Array:
    """An array [n] of some KB or more, with anything in it, which begins where a line of the cache does."""
    kind = np.dtype(dtype)
    return np.asarray(_Lent(of.taken(n * kind.itemsize), n, kind, of))
