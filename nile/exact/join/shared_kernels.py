"""Which keys two streams share, by a bit a key.

Imports nothing of the lower floors on purpose: a fault there cannot reach here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.state.kernels import inlined, kernel

__all__ = ["add_up", "mark_keys", "marked_places", "ranks"]

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
def marked_places(code: Array, marks: Array, shift: int, factor: int, step: int, begin: int, places: Array) -> int:
    """Of every step-th tuple, which have a key whose bit is set; returns how many.

    begin: the place of the first one; places: int64, room for all and one more.
    """
    found = 0
    for i in range(0, code.shape[0], step):
        bit = _bit(max(np.int64(0), code[i]), shift, factor)
        places[found] = begin + i  # written over unless it counts: a branch would be guessed wrong
        found += (code[i] >= 0) & (((marks[bit >> 6] >> np.uint64(bit & 63)) & np.uint64(1)) != 0)
    return found


@inlined
def _ones(word: Any) -> Any:
    """How many bits of a word are set (Wilkes, Wheeler, Gill 1957: sums of pairs, of fours, of bytes)."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel
def add_up(marks: Array, before: Array) -> int:
    """How many bits are set before each word: int32 [words]; returns how many are in all."""
    found = 0
    for i in range(marks.shape[0]):
        before[i] = found
        found += _ones(marks[i])
    return found


@kernel
def ranks(code: Array, marks: Array, before: Array, out: Array) -> None:
    """How many keys below that of each tuple are marked.  code: int64 [n], from 0 on; out: int64 [n]."""
    for i in range(code.shape[0]):
        word = code[i] >> 6
        below = marks[word] & ((np.uint64(1) << np.uint64(code[i] & 63)) - np.uint64(1))
        out[i] = before[word] + _ones(below)
