"""Kernels over random samples: which ordinals are drawn, and what their amounts come to in each cell."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.kernels import U8, kernel

__all__ = ["add_up", "mark_drawn", "spread_out"]

Array = np.ndarray[Any, Any]
_GOLDEN, _FIRST, _SECOND = U8(0x9E3779B97F4A7C15), U8(0xBF58476D1CE4E5B9), U8(0x94D049BB133111EB)


@kernel
def mark_drawn(draws: int, seed: int, found: Array) -> None:
    """Draw so many ordinals, with replacement, by splitmix64 of the number of the draw (from 1 on) and the seed.

    seed: uint64, what is added to each number; found: bool [size], True where one was drawn.
    """
    size = found.shape[0]
    for i in range(draws):
        z = (U8(i + 1) + U8(seed)) * _GOLDEN
        z = (z ^ (z >> U8(30))) * _FIRST
        z = (z ^ (z >> U8(27))) * _SECOND
        z ^= z >> U8(31)
        at = np.int64(np.float64(z >> U8(11)) * 2.0**-53 * size)
        found[U8(min(at, size - 1))] = True


@kernel
def add_up(amount: Array, at: Array, seen: Array, total: Array) -> None:
    """amount: float64 [n]; at: int64 [n], the cell of each; seen: int64 [cells]; total: float64 [cells]."""
    for i in range(at.shape[0]):
        cell = U8(at[U8(i)])
        seen[cell] += 1
        total[cell] += amount[U8(i)]


@kernel
def spread_out(amount: Array, at: Array, mean: Array, squares: Array, fourths: Array) -> None:
    """The second and fourth powers of distances from the mean of the cell; float64 [cells], all three."""
    for i in range(at.shape[0]):
        cell = U8(at[U8(i)])
        off = amount[U8(i)] - mean[cell]
        off *= off
        squares[cell] += off
        fourths[cell] += off * off
