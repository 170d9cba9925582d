"""Has the stream changed?  Confidence that a zone still describes the tuples that arrive.

Both functions look at the same two small sketches: what the open zone held before the last slice (the
reference, n tuples) and the last slice (the recent sketch, m tuples).  They return a confidence in (0, 1].
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyramid.arrays import TWO_WINDOW
from summaries.kernels import kernel, part
from summaries.sketch_kernels import median

Array = np.ndarray[Any, Any]


@part
def two_window(detector: Array, n: int, m: int) -> float:
    """1 / (1 + z**2): Cantelli's bound on the chance of so large a distance if nothing changed.

    detector: [rows, columns, 2], signed counters of reference and recent sketch.  For each row the squared
    distance of the two distributions without its sampling bias, (R.R - n) / (n (n - 1)) +
    (W.W - m) / (m (m - 1)) - 2 R.W / (n m); the median over rows, in standard deviations of the no-change
    case, (1/n + 1/m) * sqrt(2 (sum of p**2 + 1 / columns)), is z.
    Differs from the paper's Confidence (section 3.2), which cannot see *which* items changed.
    """
    if n < 2 or m < 2:
        return 1.0
    rows = detector.shape[0]
    columns = detector.shape[1]
    distance = np.empty(rows, np.float64)
    mass = np.empty(rows, np.float64)
    for r in range(rows):
        rr = 0
        ww = 0
        rw = 0
        for c in range(columns):
            a = detector[r, c, 0]
            b = detector[r, c, 1]
            rr += a * a
            ww += b * b
            rw += a * b
        p = (np.float64(rr) - n) / (np.float64(n) * (n - 1))
        q = (np.float64(ww) - m) / (np.float64(m) * (m - 1))
        distance[r] = p + q - 2.0 * np.float64(rw) / (np.float64(n) * m)
        mass[r] = max(p, 0.0)
    d = median(distance, rows)
    if d <= 0.0:
        return 1.0
    spread = (1.0 / n + 1.0 / m) * math.sqrt(2.0 * (median(mass, rows) + 1.0 / columns))
    z = d / spread
    return 1.0 / (1.0 + z * z)


@part
def variance(detector: Array, n: int, m: int) -> float:
    """The smaller over the larger of the two sketches' unbiased repeat rates: the paper's Confidence.

    "The variance of the items in the countsketch" (section 3.2) per pair of tuples: (sum of squares - n) /
    (n (n - 1)) estimates the chance that two tuples are equal.  Blind to which items changed (measured).
    """
    if n < 2 or m < 2:
        return 1.0
    rows = detector.shape[0]
    columns = detector.shape[1]
    reference = np.empty(rows, np.float64)
    recent = np.empty(rows, np.float64)
    for r in range(rows):
        rr = 0
        ww = 0
        for c in range(columns):
            rr += detector[r, c, 0] * detector[r, c, 0]
            ww += detector[r, c, 1] * detector[r, c, 1]
        reference[r] = (np.float64(rr) - n) / (np.float64(n) * (n - 1))
        recent[r] = (np.float64(ww) - m) / (np.float64(m) * (m - 1))
    p = max(median(reference, rows), 1.0 / (np.float64(n) * n))
    q = max(median(recent, rows), 1.0 / (np.float64(m) * m))
    return min(p, q) / max(p, q)


@kernel
def confidence_of(detector: Array, n: int, m: int, how: int) -> float:
    """`two_window` or `variance`, by number (see `pyramid.arrays`)."""
    if how == TWO_WINDOW:
        return two_window(detector, n, m)
    return variance(detector, n, m)
