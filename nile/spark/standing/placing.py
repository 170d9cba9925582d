"""Which task of Spark takes a part of a standing query: no two parts share one as long as others are idle.

Spark gives a key to the task that its hash names.  Parts 0 and 1 of two would both go to the second of two tasks, and
four parts to three of four; so a second column stands beside a part's number, whose value puts it where it belongs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["places_of"]

Array = np.ndarray[Any, Any]
_SEED = 42
_FEW = 64
_U32 = np.uint32


def places_of(parts: int) -> tuple[int, ...]:
    """What stands beside the number of each part, so that part i goes to task i of as many tasks as there are parts.

    Of any number of tasks that divides the number of parts, or is a multiple of it, none gets more parts than it must.
    It depends on `parts` alone: Spark keeps states by these columns.  Cost: O(parts ** 2).
    """
    return tuple(_place(part, parts) for part in range(parts))


def _place(part: int, parts: int) -> int:
    begin = 0
    while True:
        tried = np.arange(begin, begin + _FEW * parts, dtype=np.int64)
        hashed = hash_longs(hash_longs(_U32(_SEED), np.array([part])), tried).view(np.int32)
        found = np.flatnonzero(hashed.astype(np.int64) % parts == part)
        if found.size:
            return int(tried[found[0]])
        begin += _FEW * parts


def hash_longs(seed: Array | np.uint32, values: Array) -> Array:
    """Spark's hash of a column of longs (Murmur3, 32 bits) after those before it: uint32 [n]; values int64 [n]."""
    bits = values.astype(np.uint64)
    found: Any = seed
    for half in (bits, bits >> np.uint64(32)):
        mixed = _turned((half & np.uint64(0xFFFFFFFF)).astype(_U32) * _U32(0xCC9E2D51), 15) * _U32(0x1B873593)
        found = _turned(found ^ mixed, 13) * _U32(5) + _U32(0xE6546B64)
    found = found ^ _U32(8)
    found = (found ^ (found >> _U32(16))) * _U32(0x85EBCA6B)
    found = (found ^ (found >> _U32(13))) * _U32(0xC2B2AE35)
    out: Array = found ^ (found >> _U32(16))
    return out


def _turned(bits: Any, by: int) -> Any:
    return (bits << _U32(by)) | (bits >> _U32(32 - by))
