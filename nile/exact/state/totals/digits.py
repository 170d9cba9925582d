"""Sums of doubles as digits of 32 bits, as many as the values span: int64 [groups, digits], least first."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.state import arrow
from nile.exact.state import held as holding
from nile.exact.state.arrow import Array
from nile.exact.state.lent import in_lines

__all__ = ["DIGITS", "carried", "needed", "put_back", "specials", "widened"]

summing: Any = arrow.Late("nile.exact.state.totals.sums_kernels")

DIGITS = 80  # of 32 bits: more than any sum of doubles has


def widened(digits: Array, base: int, least: int, most: int) -> tuple[Array, int]:
    """(digits, base) with room for finite doubles of these exponents (of `exponents`), and one digit for carries."""
    low, high = (base, base) if least > most else (least >> 5, (most >> 5) + 4)
    width = digits.shape[1]
    if width and low >= base and high <= base + width:
        return digits, base
    if not width:
        base = max(0, min(low, high - 8))
        return in_lines((digits.shape[0], max(8, high - base)), 0, np.int64), base
    start, end = min(low, base), max(high, base + width)
    wider = in_lines((digits.shape[0], end - start), 0, np.int64)
    wider[:, base - start : base - start + width] = digits
    return wider, start


def carried(digits: Array) -> Array:
    """Digits of any size as digits of 32 bits in two's complement: uint32 [n, d + 1], or none of none."""
    out = np.zeros((digits.shape[0], digits.shape[1] + 1 if digits.shape[1] else 0), np.uint32)
    summing.carried(digits, out)
    return out


def put_back(digits: Array) -> Array:
    """What `carried` made, as digits to add to: int64 [n, d], one more at least, for carries."""
    n, width = digits.shape
    if not width:
        return np.zeros((max(n, 1), 0), np.int64)
    out = np.zeros((max(n, 1), max(8, width + 1)), np.int64)
    out[:n, :width] = digits
    out[:n, width] = -(digits[:, -1] >> 31).astype(np.int64)  # the sign, for all digits above
    return out


def specials(held: holding.Held, n: int) -> Array:
    """How many NaN, +inf and -inf each of n groups has: int64 [n, 3]; held for all or, where there are none, for none.

    Raises EnvelopeError.
    """
    special = held.array("special", "int64", (None, 3))
    if special.shape[0] not in (0, n):
        held.refuse(f"'special' of {n} groups or none", special)
    out = np.zeros((max(n, 1), 3), np.int64)
    out[: special.shape[0]] = special
    return out


def needed(digits: Array) -> tuple[int, int]:
    """The first digit that any row has, and one past the last: above it there is only sign.  uint32 [n, d]."""
    low, high = 0, digits.shape[1]
    while high and not (digits[:, high - 1] ^ _sign(digits, high - 1)).any():
        high -= 1
    while low < high and not digits[:, low].any():
        low += 1
    return low, high


def _sign(digits: Array, end: int) -> Array:
    """What the digits from `end` on are where those before say all: all bits 0 or all 1."""
    if not end:
        return np.zeros(digits.shape[0], np.uint32)
    return (np.uint32(0) - (digits[:, end - 1] >> np.uint32(31))).astype(np.uint32)
