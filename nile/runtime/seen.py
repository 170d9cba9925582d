"""Which whole numbers have been there, as runs: keys that are numbered one after another take next to nothing.

Design: sorted sets of runs of doubling sizes, merged as they come to be alike, so that a value is moved O(log n) times.
Cost: O(log n) a value; memory: 16 bytes a run, so for keys far apart (hashes of text) 16 bytes a value.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nile.exact.state.held import Held

__all__ = ["Seen"]

Array = np.ndarray[Any, Any]


class Seen:
    """A set of int64 that grows."""

    HELD: ClassVar = ("_sets",)

    def __init__(self) -> None:
        self._sets: list[tuple[Array, Array]] = []  # (first, last) of runs, ascending

    def add(self, values: Array) -> None:
        """int64 [n], in any order."""
        if not values.shape[0]:
            return
        self._sets.append(_runs(np.unique(values)))
        while len(self._sets) > 1 and self._sets[-2][0].shape[0] <= 2 * self._sets[-1][0].shape[0]:
            late, early = self._sets.pop(), self._sets.pop()
            self._sets.append(_together(early, late))

    def has(self, values: Array) -> Array:
        """Which have been added: bool [n]."""
        found = np.zeros(values.shape[0], bool)
        for first, last in self._sets:
            at = np.searchsorted(first, values, "right") - 1
            found |= (at >= 0) & (values <= last[np.maximum(at, 0)])
        return found

    def capture(self) -> Array:
        """All runs, ascending: int64 [n, 2]."""
        whole = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        for each in self._sets:
            whole = _together(whole, each)
        return np.column_stack(whole)

    def restore(self, held: Held, name: str) -> None:
        """Put captured runs into an empty set.  Raises EnvelopeError."""
        runs = held.array(name, "int64", (None, 2))
        flat = runs.reshape(-1)
        if (flat[1:] < flat[:-1]).any():
            held.refuse(f"runs of {name!r} not to fall", "others")
        self._sets = [(runs[:, 0].copy(), runs[:, 1].copy())] if runs.shape[0] else []

    @property
    def memory(self) -> int:
        """Bytes."""
        return sum(first.nbytes + last.nbytes for first, last in self._sets)


def _runs(values: Array) -> tuple[Array, Array]:
    """Of int64 [n], ascending and different."""
    ends = np.flatnonzero(values[1:] != values[:-1] + 1)
    return values[np.append(0, ends + 1)], values[np.append(ends, values.shape[0] - 1)]


def _together(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    """The runs of both, which may overlap."""
    first, last = (np.concatenate(each) for each in zip(one, other, strict=True))
    if not first.shape[0]:
        return first, last
    order = np.argsort(first, kind="stable")
    first, last = first[order], np.maximum.accumulate(last[order])
    with np.errstate(over="ignore"):  # the greatest number there is has none after it
        begins = np.append(True, (first[1:] > last[:-1]) & (first[1:] - 1 > last[:-1]))
    at = np.flatnonzero(begins)
    return first[at], last[np.append(at[1:] - 1, first.shape[0] - 1)]
