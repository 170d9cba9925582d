"""What is put into a linear summary and taken out again leaves no trace, whatever the order and the cuts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nile.experiments.faults.fault import Fault, expect, feed, generator
from nile.summaries.catalogue import CATALOGUE, make_summary
from nile.summaries.summary import Summary

__all__ = ["FAULT"]

Array = np.ndarray[Any, Any]
_NAME = "insert-delete"
_LINEAR = sorted(name for name, made in CATALOGUE.items() if made.linear)


def attempt(seed: int) -> None:
    """Insert and take out by batches of their own cuts, or by a summary of the same tuples."""
    _check(seed, _taken_out)


def control(seed: int) -> None:
    """The same, with one tuple left in."""

    def all_but_one(summary: Summary, keys: Array, weights: Array, rng: np.random.Generator) -> None:
        _taken_out(summary, keys[1:], weights[1:], rng)

    _check(seed, all_but_one)


def _check(seed: int, take_out: Callable[[Summary, Array, Array, np.random.Generator], None]) -> None:
    rng = generator(_NAME, seed)
    summary = _empty(rng)
    summary.summarize(*_batch(rng, 0, 300))
    before = summary.to_bytes()
    for _ in range(int(rng.integers(1, 4))):
        keys, weights = _batch(rng, 1, 400)
        feed(summary, keys, weights, rng)
        take_out(summary, keys, weights, rng)
    expect(summary.to_bytes() == before, f"{summary.describe()} is not what it was before tuples came and went")


def _taken_out(summary: Summary, keys: Array, weights: Array, rng: np.random.Generator) -> None:
    order = rng.permutation(keys.shape[0])
    keys, weights = keys[order], weights[order]
    cut = int(rng.integers(0, keys.shape[0] + 1))
    for part in (slice(0, cut), slice(cut, None)):
        if rng.random() < 0.5:
            summary.summarize(keys[part], -weights[part])
        else:
            other = summary.empty()
            other.summarize(keys[part], weights[part])
            summary.subtract(other)


def _empty(rng: np.random.Generator) -> Summary:
    if (name := _LINEAR[int(rng.integers(len(_LINEAR)))]) == "countsketch":
        rows, columns = int(rng.integers(1, 8)), 1 << int(rng.integers(0, 9))
        return make_summary(name, rows=rows, columns=columns, seed=int(rng.integers(1 << 62)))
    return make_summary(name)


def _batch(rng: np.random.Generator, least: int, most: int) -> tuple[Array, Array]:
    n = int(rng.integers(least, most + 1))
    keys = rng.integers(0, 1 << 64, n, np.uint64)
    few = rng.random(n) < 0.5
    keys[few] = keys[few] % np.uint64(9)
    top = 1 << int(rng.integers(0, 50))
    return keys, rng.integers(1, top + 1, n)


FAULT = Fault(
    _NAME, "insert then delete restores a linear summary", "same bytes", attempt, control, full=10_000, small=150
)
