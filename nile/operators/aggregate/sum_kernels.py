"""Kernels that add numbers by group: doubles with what each addition rounds off kept beside the total.

Source: Ogita, Rump and Oishi, SIAM Journal on Scientific Computing 26 (2005), algorithms 3.1 (Knuth's) and 4.4.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.kernels import U8, inlined, kernel

__all__ = ["LANES", "LARGEST", "add_all", "add_by_group", "add_whole"]

Array = np.ndarray[Any, Any]
LARGEST = 2.0**900
"""Where numbers are less, nothing overflows on the way."""
_LEAST = np.iinfo(np.int64).min
LANES = 4
"""Totals that take turns: of one, each addition waits for the last."""


@inlined
def _two(x: float, y: float) -> tuple[float, float]:
    """(the sum, what it rounds off)."""
    total = x + y
    own = total - x
    return total, (x - (total - own)) + (y - own)


@inlined
def _added(x: float, total: float, low: float, off: float) -> tuple[float, float, float]:
    """(the total with x, what additions rounded off in all, the sizes of what adding that rounds off).

    The last is no number from any x on that is LARGEST or more, or is none.
    """
    if not abs(x) < LARGEST:
        return total, low, np.nan
    more, lost = _two(total, x)
    low, beyond = _two(low, lost)
    return more, low, off + abs(beyond)


@kernel
def add_all(values: Array, sums: Array) -> None:
    """values: float64 [n]; sums: float64 [LANES, 3], total, low and off, which go on from what they are."""
    a, a_low, a_off = sums[0, 0], sums[0, 1], sums[0, 2]
    b, b_low, b_off = sums[1, 0], sums[1, 1], sums[1, 2]
    c, c_low, c_off = sums[2, 0], sums[2, 1], sums[2, 2]
    d, d_low, d_off = sums[3, 0], sums[3, 1], sums[3, 2]
    whole = values.shape[0] // 4 * 4
    for i in range(0, whole, 4):
        a, a_low, a_off = _added(values[U8(i)], a, a_low, a_off)
        b, b_low, b_off = _added(values[U8(i + 1)], b, b_low, b_off)
        c, c_low, c_off = _added(values[U8(i + 2)], c, c_low, c_off)
        d, d_low, d_off = _added(values[U8(i + 3)], d, d_low, d_off)
    for i in range(whole, values.shape[0]):
        a, a_low, a_off = _added(values[U8(i)], a, a_low, a_off)
    sums[0, 0], sums[0, 1], sums[0, 2] = a, a_low, a_off
    sums[1, 0], sums[1, 1], sums[1, 2] = b, b_low, b_off
    sums[2, 0], sums[2, 1], sums[2, 2] = c, c_low, c_off
    sums[3, 0], sums[3, 1], sums[3, 2] = d, d_low, d_off


@kernel
def add_by_group(values: Array, group: Array, sums: Array) -> None:
    """values: float64 [n]; group: int64 [n]; sums: float64 [groups, 3], total, low and off of each."""
    for i in range(values.shape[0]):
        g = U8(group[U8(i)])
        sums[g, 0], sums[g, 1], sums[g, 2] = _added(values[U8(i)], sums[g, 0], sums[g, 1], sums[g, 2])


@kernel
def add_whole(values: Array, group: Array, totals: Array) -> int:
    """The largest size of a value, below 0 where that is 2**63.  values, group: int64 [n]; totals: int64 [groups]."""
    most = 0
    least = 0
    for i in range(values.shape[0]):
        value = values[U8(i)]
        most, least = max(most, value), min(least, value)
        totals[U8(group[U8(i)])] += value
    return max(most, -least) if least > _LEAST else -1
