"""Has the stream changed?  Confidence that a zone still describes the tuples that arrive.

Both functions look at the same two small count sketches: what the open zone held before the last slice (the
reference R, n tuples) and the last slice (the recent sketch W, m tuples).  They return a confidence in
(0, 1].  All they need of the sketches is R.R, W.W and R.W, one each a row; the sketches have three rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.pyramid.grid.arrays import TWO_WINDOW
from nile.summaries.kernels import U8, inlined, part

Array = np.ndarray[Any, Any]


@part
def look(detector: Array, recent: Array, moments: Array) -> None:
    """Take the moments of reference and recent sketch, then add the recent one to the reference and empty it.

    detector: int32 [rows, columns], signed; recent: int32 [rows, 2 * columns], plus then minus; moments:
    int64 [rows, 3], R.R, W.W and R.W.  Exact while a zone has at most 2**30 tuples.
    """
    columns = detector.shape[1]
    for r in range(detector.shape[0]):
        reference = detector[r]
        plus = recent[r, :columns]
        minus = recent[r, columns:]
        rr = np.int64(0)
        ww = np.int64(0)
        rw = np.int64(0)
        for c in range(columns):
            a = np.int64(reference[c])
            b = np.int64(plus[c] - minus[c])
            rr += a * a
            ww += b * b
            rw += a * b
        moments[r, 0] = rr
        moments[r, 1] = ww
        moments[r, 2] = rw
        for c in range(columns):
            reference[c] += plus[c] - minus[c]
    every = recent.reshape(-1)
    for i in range(every.shape[0]):
        every[U8(i)] = 0


@inlined
def repeat_rate(squares: int, n: int) -> float:
    """(squares - n) / (n (n - 1)): unbiased for the chance that two of n tuples have one key."""
    return (np.float64(squares) - np.float64(n)) / (np.float64(n) * np.float64(n - 1))


@inlined
def _distance(moments: Array, r: int, n: int, m: int) -> float:
    """The squared distance of the two distributions of keys, without the bias of sampling."""
    both = 2.0 * np.float64(moments[r, 2]) / (np.float64(n) * np.float64(m))
    return repeat_rate(moments[r, 0], n) + repeat_rate(moments[r, 1], m) - both


@inlined
def middle(a: float, b: float, c: float) -> float:
    """The median of three."""
    return max(min(a, b), min(max(a, b), c))


@part
def two_window(moments: Array, columns: int, n: int, m: int) -> float:
    """1 / (1 + z**2): Cantelli's bound on the chance of so large a distance if nothing changed.

    For each row the squared distance of the two distributions without its sampling bias, (R.R - n) /
    (n (n - 1)) + (W.W - m) / (m (m - 1)) - 2 R.W / (n m); the median over rows, in standard deviations of
    the no-change case, (1/n + 1/m) * sqrt(2 (sum of p**2 + 1 / columns)), is z.
    Differs from the paper's Confidence (section 3.2), which cannot see *which* items changed.
    """
    if n < 2 or m < 2:
        return 1.0
    distance = middle(_distance(moments, 0, n, m), _distance(moments, 1, n, m), _distance(moments, 2, n, m))
    if distance <= 0.0:
        return 1.0
    mass = middle(repeat_rate(moments[0, 0], n), repeat_rate(moments[1, 0], n), repeat_rate(moments[2, 0], n))
    spread = (1.0 / np.float64(n) + 1.0 / np.float64(m)) * math.sqrt(2.0 * (max(mass, 0.0) + 1.0 / np.float64(columns)))
    z = distance / spread
    return 1.0 / (1.0 + z * z)


@part
def variance(moments: Array, n: int, m: int) -> float:
    """The smaller over the larger of the two sketches' unbiased repeat rates: the paper's Confidence.

    "The variance of the items in the countsketch" (section 3.2) per pair of tuples: (sum of squares - n) /
    (n (n - 1)) estimates the chance that two tuples are equal, at least 1 / n**2 where it comes out below.
    Blind to which items changed (measured).
    """
    if n < 2 or m < 2:
        return 1.0
    least_p = 1.0 / (np.float64(n) * np.float64(n))
    least_q = 1.0 / (np.float64(m) * np.float64(m))
    p = middle(repeat_rate(moments[0, 0], n), repeat_rate(moments[1, 0], n), repeat_rate(moments[2, 0], n))
    q = middle(repeat_rate(moments[0, 1], m), repeat_rate(moments[1, 1], m), repeat_rate(moments[2, 1], m))
    p = max(p, least_p)
    q = max(q, least_q)
    return min(p, q) / max(p, q)


@inlined
def confidence_of(moments: Array, columns: int, n: int, m: int, how: int) -> float:
    """`two_window` or `variance`, by number (see `nile.pyramid.grid.arrays`)."""
    if how == TWO_WINDOW:
        return two_window(moments, columns, n, m)
    return variance(moments, n, m)
