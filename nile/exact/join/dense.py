"""Dense codes of numbers that are far apart: sparse identifiers, times, the bits of floats."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from nile.exact.join.threads import pieces_of, together, useful
from nile.exact.state.lent import filled, roomy

__all__ = ["FACTOR", "coding_room", "dense_codes"]

Array = np.ndarray[Any, Any]
_LEAST, _GROWTH = 14, 2
"""Binary logarithms of a table's first slots, and of how many times as many there are next."""
# Drawn anew by each process: whoever chooses the keys cannot choose where they fall.  Codes do not depend on it.
FACTOR = np.uint64(int.from_bytes(os.urandom(8), "little") | 1)


def dense_codes(
    columns: Sequence[Array], *, shared: bool = False, threads: int | None = None, over: bool = False
) -> tuple[tuple[Array, ...], int]:
    """Codes of numbers, equal exactly when the numbers are, in the order in which they come: (codes of each, distinct).

    columns: int64 [n] each, below 0 for null, whose code is -1; shared: the shortest column comes first, and what is
    not in it has code -1 too, as it joins with nothing, looked up on so many threads (None: all cores); over: codes are
    written over the numbers.  Cost: 6 to 20 ns a number by how many are distinct; memory: 8 bytes a number unless
    written over, and 16 to 64 per distinct one.
    """
    kernels = importlib.import_module("nile.exact.join.dense_kernels")
    bits = _LEAST
    table, known = coding_room(bits)
    count, fresh = 0, True
    out = tuple(columns) if over else tuple(roomy(each.shape[0]) for each in columns)
    # Half of a table's slots are enough for what is given codes: more is not to be touched.
    largest = max(_LEAST, 1 + (min if shared else sum)(each.shape[0] for each in columns).bit_length())
    for numbers, codes in sorted(zip(columns, out, strict=True), key=lambda pair: pair[1].shape[0] if shared else 0):
        if not fresh:
            call = partial(kernels.code_numbers, table=table, shift=64 - bits, factor=FACTOR, known=known)
            parts = pieces_of(numbers.shape[0], useful(threads, numbers.shape[0]))
            most = known.shape[0] - 1
            together([partial(call, numbers[at], 0, most=most, fresh=False, codes=codes[at]) for at in parts])
            continue
        begin = 0
        while begin < numbers.shape[0]:
            begin, count = kernels.code_numbers(
                numbers, begin, table, 64 - bits, FACTOR, known, known.shape[0] - 1, True, codes
            )
            if begin < numbers.shape[0]:
                bits = min(bits + _GROWTH, largest)
                kept = known
                table, known = coding_room(bits)
                known[:count], known[-1] = kept[:count], count
                kernels.place_numbers(known, count, table, 64 - bits, FACTOR)
        fresh = not shared
    return out, max(1, count)


def coding_room(bits: int) -> tuple[Array, Array]:
    """A table, and numbers by code for half as many as it has slots; their count stands behind them."""
    known = roomy((1 << (bits - 1)) + 1)
    known[-1] = 0
    return filled(1 << bits, 0, np.int32), known
