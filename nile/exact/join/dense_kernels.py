"""Distinct numbers by open addressing, each with a code in the order in which they came.

Imports nothing of the lower floors on purpose: a fault there cannot reach here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.state.kernels import kernel

__all__ = ["code_numbers", "place_numbers"]

Array = np.ndarray[Any, Any]


@kernel
def code_numbers(
    numbers: Array, begin: int, table: Array, shift: int, factor: int, known: Array, most: int, fresh: bool,
    codes: Array,
) -> tuple[int, int]:  # fmt: skip
    """Codes of numbers from `begin` on, until all are coded or `most` are known: (where that was, how many are known).

    numbers: int64 [n], below 0 null, whose code is -1; table: int32 [2^k], a code and 1, 0 where none; shift: 64 - k;
    factor: odd, uint64; known: int64, the numbers by code, as many as known[most]; fresh: whether what is
    not known gets a code, else -1; codes: int64 [n].
    """
    count = known[most]
    mask = table.shape[0] - 1
    for i in range(begin, numbers.shape[0]):
        number = numbers[i]
        if number < 0:
            codes[i] = -1
            continue
        mixed = np.uint64(number)
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(factor)
        at = np.int64(mixed >> np.uint64(shift))
        while table[at] != 0 and known[table[at] - 1] != number:
            at = (at + 1) & mask
        if table[at] == 0 and fresh:
            if count == most:
                known[most] = count
                return i, count
            known[count] = number
            count += 1
            table[at] = count
        codes[i] = table[at] - 1
    known[most] = count
    return numbers.shape[0], count


@kernel
def place_numbers(known: Array, count: int, table: Array, shift: int, factor: int) -> None:
    """Put the numbers that are known into an empty table.  Arrays as of `code_numbers`."""
    mask = table.shape[0] - 1
    for code in range(count):
        mixed = np.uint64(known[code])
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(factor)
        at = np.int64(mixed >> np.uint64(shift))
        while table[at] != 0:
            at = (at + 1) & mask
        table[at] = code + 1
