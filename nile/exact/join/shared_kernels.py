"""Which keys two streams share, by a bit a key.

Imports nothing of the lower floors on purpose: a fault there cannot reach here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.state.kernels import inlined, kernel

__all__ = ["mark_keys", "marked_places"]

Array = np.ndarray[Any, Any]


@inlined
def _bit(code: Any, shift: Any, factor: Any) -> Any:
    """Which bit is a key's: its own where shift is 64, else that of its hash."""
    if shift == 64:
        return np.int64(code)
    mixed = np.uint64(code)
    return np.int64(((mixed ^ (mixed >> np.uint64(32))) * np.uint64(factor)) >> np.uint64(shift))


@kernel
def mark_keys(code: Array, marks: Array, shift: int, factor: int) -> None:
    """Set the bit of each key.  code: int64 [n], below 0 for null; marks: uint64; shift: 64, or 64 less the binary
    logarithm of the bits; factor: odd, uint64."""
    for i in range(code.shape[0]):
        if code[i] >= 0:
            bit = _bit(code[i], shift, factor)
            marks[bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)


@kernel
def marked_places(code: Array, marks: Array, shift: int, factor: int, step: int, places: Array) -> int:
    """Of every step-th tuple, which have a key whose bit is set; returns how many.  places: int64, room for all."""
    found = 0
    for i in range(0, code.shape[0], step):
        bit = _bit(max(np.int64(0), code[i]), shift, factor)
        places[found] = i  # written over unless it counts: a branch would be guessed wrong
        found += (code[i] >= 0) & (((marks[bit >> 6] >> np.uint64(bit & 63)) & np.uint64(1)) != 0)
    return found
