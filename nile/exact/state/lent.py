"""Memory that Arrow owns, handed to kernels without a copy; and memory of large arrays that is used again.

A large array that is new costs more to be given its pages, by the kernel and under one lock for all threads, than
most work on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any
from weakref import ref

import numpy as np

__all__ = ["lent", "lent_together", "roomy"]

Array = np.ndarray[Any, Any]
_SMALL = 16_384
_LARGE, _LARGEST = 1 << 18, 1 << 24
"""Bytes of arrays whose memory is used again."""
_KEPT, _MOST = 96 << 20, 256 << 20
"""Bytes of such memory in which nothing lies, and of all of it."""


class _Memory:
    """What numpy makes an array of; keeps the owners of the memory."""

    __slots__ = ("__array_interface__", "__weakref__", "owners")

    def __init__(self, first: Array, length: int, owners: Sequence[Array]) -> None:
        self.owners = owners
        self.__array_interface__ = {
            "shape": (length,), "typestr": first.dtype.str, "data": (first.ctypes.data, False), "version": 3,
        }  # fmt: skip


class _Room(ref["_Memory"]):
    """Memory, and whether anything still lies in it."""

    __slots__ = ("memory",)

    memory: Array


_taken: dict[int, _Room] = {}
"""By their identity: what something lies in."""
_left: deque[_Room] = deque()
"""What nothing lies in any more.  It comes here in C: when an array goes no code of ours runs, into which an interrupt
could come and be lost."""
_free: dict[int, list[Array]] = {}
"""Memory that nothing lies in, by its bytes."""


def roomy(n: int, dtype: Any = np.int64) -> Array:
    """An array [n] with anything in it, as of `np.empty`; of memory of arrays that have gone, where it is large."""
    if _left:
        _put_back()
    need = n * np.dtype(dtype).itemsize
    if not _LARGE <= need <= _LARGEST:
        return np.empty(n, dtype)
    step = 1 << ((need - 1).bit_length() - 3)
    size = -(-need // step) * step
    memory = None
    for each in (size, size + step, size + 2 * step):
        try:
            memory = _free[each].pop()
            break
        except (KeyError, IndexError):
            continue
    if memory is None:
        if sum(_held()) + size > _MOST:
            for at, room in list(_taken.items()):  # an interrupt may have left some there
                if room() is None:
                    _taken.pop(at, None)
            _free.clear()
            if sum(_held()) + size > _MOST:
                return np.empty(n, dtype)
        memory = np.empty(size, np.uint8)
    holder = _Memory(memory.view(dtype), n, (memory,))
    room = _Room(holder, _left.append)
    room.memory = memory
    _taken[id(room)] = room
    return np.asarray(holder)


def _put_back() -> None:
    """Let what nothing lies in any more be used again, as much as may wait for that."""
    free = _held()[0]
    while _left:
        try:
            gone = _left.popleft()
        except IndexError:  # another thread was faster
            break
        size = int(gone.memory.shape[0])
        if _taken.pop(id(gone), None) is not None and free + size <= _KEPT:
            _free.setdefault(size, []).append(gone.memory)
            free += size


def _held() -> tuple[int, int]:
    """Bytes in which nothing lies, and others."""
    free = sum(size * len(several) for size, several in list(_free.items()))
    return free, sum(int(each.memory.shape[0]) for each in list(_taken.values()))


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
    begins = [part.ctypes.data for part in given]
    if all(begin + part.nbytes == after for begin, part, after in zip(begins, given, begins[1:], strict=False)):
        return np.asarray(_Memory(given[0], sum(part.shape[0] for part in given), given))
    return np.concatenate(given)
