"""Some instants of a window, which one thread works on: what comes and leaves, and what groups make of it.

Threads begin at once, each with its own instants: sums are exact, so what a group has where they begin follows from
what it has now and all tuples before, added in any order and read once.  That costs a seventh of the work
on those tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from nile.exact.state import arrow
from nile.exact.state.arrow import Array
from nile.exact.state.lent import filled, roomy
from nile.exact.state.line import Line
from nile.exact.state.scratch import Scratch
from nile.exact.state.totals.states import Linear, Touches, everyone

__all__ = ["Passing", "Stretch", "stretches_of"]

lines: Any = arrow.Late("nile.exact.state.line_kernels")

_BLOCK = 1 << 12
"""Tuples that come, at most, whose scratch stays in the cache from what they touch until what is told of it."""
_CATCHES_UP = 0.15
"""What adding a tuple costs, of working on it."""
_NONE = np.zeros(0, np.int64)

Cut: TypeAlias = tuple[int, int]
"""How many tuples have come, and how many have left, before an instant."""
Part: TypeAlias = tuple[Linear, int, int, int]
"""A state, where its numbers begin, the word of its column (-1: none), which of the line's columns it is."""


class Passing(NamedTuple):
    """What comes to a line (ts, codes of groups: int64 [n]; words: int64 [n, w + masks] as of its encoder), and what
    leaves it, window ns after it came, while it stays as it is."""

    line: Line
    window: int
    ts: Array
    codes: Array
    words: Array

    def cut(self, at: int) -> Cut:
        """Before the instant `at`."""
        line = self.line
        return int(self.ts.searchsorted(at)), int(
            lines.leaving(at, line.held, line.first, line.until, self.ts, self.window)
        )

    @property
    def given(self) -> tuple[Any, ...]:
        """As kernels take it."""
        line = self.line
        return (
            self.window, self.ts, self.codes, self.words, line.until, line.codes, line.words, line.nulls, line.first,
            line.held,
        )  # fmt: skip

    def blocks(self, begin: Cut, end: Cut) -> list[tuple[Cut, Cut]]:
        """Whole instants between two cuts, of at most `_BLOCK` tuples that come, or one instant."""
        cuts = {begin, end}
        for at in range(begin[0] + _BLOCK, end[0], _BLOCK):
            comes, leaves = self.cut(int(self.ts[at]))
            cuts.add((comes, min(leaves, end[1])))
        return list(pairwise(sorted(cuts)))


def stretches_of(passing: Passing, pieces: int, end: Cut) -> list[Cut]:
    """Where each of some threads begins, and the end: later ones have less, for they catch up with more."""
    weights = (1.0 - _CATCHES_UP) ** np.arange(pieces)
    cuts = {(0, 0), end}
    for share in (np.cumsum(weights) / weights.sum())[:-1].tolist():
        comes, leaves = passing.cut(int(passing.ts[int(share * end[0])]))
        cuts.add((comes, min(leaves, end[1])))
    return sorted(cuts)


class Stretch:
    """One thread's instants.  counts, births, mark: int64 [groups], as of `line_kernels.pass_by`."""

    DERIVED: ClassVar = ("counts", "births", "parts", "emptied", "_mark", "_nulls")

    def __init__(self, counts: Array, births: Array, mark: Array, parts: Sequence[Part], *, nulls: bool) -> None:
        self.counts, self.births, self._mark, self.parts, self._nulls = counts, births, mark, parts, nulls
        self.emptied: list[Array] = []
        """Groups that have had no rows left, if only for an instant."""

    def shared_by(self, threads: int, together: Callable[[Sequence[Callable[[], object]]], None]) -> list[Stretch]:
        """This and more, one for each of the threads, that go on from the same groups without touching these.

        together: has threads call several at once.  O(groups), by all of them."""
        copies: list[tuple[Array, Array]] = []

        def copied(array: Array) -> Array:
            made = roomy(array.size, array.dtype).reshape(array.shape)
            copies.append((array, made))
            return made

        made = [self]
        for _ in range(1, threads):
            parts = [(_twin(state, copied), *rest) for state, *rest in self.parts]
            births, mark = (filled(self.births.shape[0], -1) for _ in range(2))
            made.append(Stretch(copied(self.counts), births, mark, parts, nulls=self._nulls))  # type: ignore[arg-type]

        def copy_part(k: int) -> None:
            for array, into in copies:
                own = slice(k * len(array) // threads, (k + 1) * len(array) // threads)
                np.copyto(into[own], array[own])

        together([partial(copy_part, k) for k in range(threads)])
        return made

    def ended(self, before: Sequence[Stretch]) -> None:
        """Have what all have made of the groups, `before` in order, the first the one that had them."""
        births = self.births
        if not before:
            return
        for each in reversed(before):
            np.copyto(births, each.births, where=births < 0)
        for (state, *_), (mine, *_) in zip(before[0].parts, self.parts, strict=True):
            vars(state).update(vars(mine))

    def catch_up(self, passing: Passing, until: Cut) -> None:
        """Take in all tuples before a cut, of which nothing is told."""
        encoder = passing.line.encoder
        comes, leaves = until
        scratch = Scratch(min(comes, _BLOCK) + min(leaves, _BLOCK), encoder.width, 0)
        begin = (0, 0)
        while begin != until:
            end = min(begin[0] + _BLOCK, comes), min(begin[1] + _BLOCK, leaves)
            n = end[0] + end[1] - begin[0] - begin[1]
            lines.gather(
                begin[0], end[0], begin[1], end[1], *passing.given[2:], self.counts, self._mark, scratch.tuples,
                scratch.signs, scratch.taken,
            )  # fmt: skip
            sign, codes = scratch.signs[:n], scratch.tuples[0, :n]
            touches = Touches(sign, sign, codes, _NONE, _NONE, _NONE, _NONE, self.counts.shape[0])
            for state, _, word, column in self.parts:
                state.add(touches, scratch.taken[word, :n], self._there(encoder, scratch, n, column))
            begin = end
        touched = np.flatnonzero(self._mark >= 0)
        self._mark[touched] = -1
        for state, *_ in self.parts:
            state.caught_up(touched)

    def work(self, passing: Passing, begin: Cut, end: Cut, born: int, tell: Callable[[Scratch, int, int], int]) -> None:
        """Take in what is between two cuts, block after block.

        born: tuples before all; tell: is given the scratch of a block, how many pairs there are in it, and where its
        rows are to go, and says where those after them are.
        """
        encoder, blocks = passing.line.encoder, passing.blocks(begin, end)
        most = max(last[0] + last[1] - first[0] - first[1] for first, last in blocks)
        scratch = Scratch(most, encoder.width, _width(self.parts))
        told = 2 * (begin[0] + begin[1])
        for first, last in blocks:
            n = last[0] + last[1] - first[0] - first[1]
            held, emptied = lines.pass_by(
                first[0], last[0], first[1], last[1], *passing.given, born, self.counts, self.births, self._mark,
                scratch.tuples, scratch.signs, scratch.taken, scratch.pairs,
            )  # fmt: skip
            pairs, sign = scratch.pairs, scratch.signs[:n]
            if emptied:
                self.emptied.append(pairs[1, :held][pairs[3, :held] == 0])
            tuples = sign, sign, scratch.tuples[0, :n], _NONE, scratch.tuples[2, :n]
            touches = Touches(*tuples, pairs[4, :held], pairs[5, :held], self.counts.shape[0])
            for state, at, word, column in self.parts:
                places = state.places(*scratch.numbers[:, at : at + state.width, :held])
                state.note(touches, scratch.taken[word, :n], self._there(encoder, scratch, n, column), places)
            told = tell(scratch, held, told)

    def _there(self, encoder: Any, scratch: Scratch, n: int, column: int) -> Array:
        """Which of n tuples in scratch have a value in a column."""
        return encoder.valid(scratch.taken[:, :n], column) if self._nulls and column >= 0 else everyone(n)


def _width(parts: Sequence[Part]) -> int:
    """Numbers that states say of a pair."""
    return sum(state.width for state, *_ in parts)


def _twin(state: Linear, copied: Callable[[Array], Array]) -> Linear:
    """A state of the same, with arrays of its own."""
    made = copy(state)
    for name, value in vars(state).items():
        if isinstance(value, np.ndarray):
            setattr(made, name, copied(value))
    return made
