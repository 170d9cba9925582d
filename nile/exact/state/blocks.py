"""A large step of groups over a window in blocks of some instants, which threads work on together.

What comes and leaves is laid out by any of them, block by block; each then takes in what is of its own groups, in
order, so that sums are those of one thread; and any tells what groups have become in a block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count, pairwise
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from nile.exact.state import arrow
from nile.exact.state.arrow import Array
from nile.exact.state.line import Line
from nile.exact.state.rows import Together
from nile.exact.state.scratch import Scratch
from nile.exact.state.totals.states import Linear, Touches, everyone

__all__ = ["Block", "Groups", "Passing", "in_turn", "take_in"]

lines: Any = arrow.Late("nile.exact.state.line_kernels")

_BLOCK = 1 << 13
"""Tuples that come in a block, at most: what is written of them stays in a near cache while one thread goes on."""
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

    def blocks(self, end: Cut) -> list[Block]:
        """Whole instants before a cut, of at most `_BLOCK` tuples that come each, or of one instant."""
        cuts = {(0, 0), end}
        for at in range(_BLOCK, end[0], _BLOCK):
            comes, leaves = self.cut(int(self.ts[at]))
            cuts.add((comes, min(leaves, end[1])))
        return [Block(*each) for each in pairwise(sorted(cuts))]


class Groups(NamedTuple):
    """What groups have: counts, births, mark: int64 [groups], as of `line_kernels.count_own`; their other states; born:
    tuples before the step; nulls: whether any tuple may have one."""

    counts: Array
    births: Array
    mark: Array
    parts: Sequence[Part]
    born: int
    nulls: bool


class Block:
    """What comes and leaves between two cuts.  n: tuples; rows: at most told of them; told: how many have been, how
    many of them go, and what there is beyond plain numbers."""

    DERIVED: ClassVar = ("begin", "end", "n", "rows", "told", "scratch", "_several", "_spans")

    def __init__(self, begin: Cut, end: Cut) -> None:
        self.begin, self.end = begin, end
        self.n = end[0] + end[1] - begin[0] - begin[1]
        self.rows, self.told = 2 * self.n, (0, 0, 0)
        self.scratch: Scratch
        self._several = False
        self._spans: list[Any] = []

    def lay_out(self, passing: Passing, parts: Sequence[Part], scratch: Scratch | None = None) -> None:
        """Write its tuples into scratch, new unless there is some."""
        line, n = passing.line, self.n
        if scratch is None:
            scratch = Scratch(n, line.encoder.width, sum(state.width for state, *_ in parts))
        self.scratch = scratch
        self._several = lines.lay_out(
            self.begin[0], self.end[0], self.begin[1], self.end[1], passing.window, passing.ts, passing.codes,
            passing.words, line.until, line.codes, line.words, line.nulls, line.first, line.held, scratch.tuples,
            scratch.signs, scratch.taken, scratch.pairs,
        )  # fmt: skip
        self._spans = [state.span(scratch.taken[word, :n]) if word >= 0 else None for state, _, word, _ in parts]

    def take_in(self, encoder: Any, groups: Groups, part: int = 0, mask: int = 0) -> int:
        """Take in tuples of some groups (part, mask: as of `Touches`): how many rows at most are told of them."""
        scratch, n = self.scratch, self.n
        sign, tuples, pairs = scratch.signs[:n], scratch.tuples[:, :n], scratch.pairs[:, :n]
        found: int = lines.count_own(
            n, self._several, groups.born + sum(self.begin), scratch.tuples, scratch.signs, scratch.pairs, *groups[:3],
            part, mask, np.empty(lines.AT_ONCE, np.int64),
        )  # fmt: skip
        of_pairs = tuples[2], pairs[4], pairs[5]
        touches = Touches(sign, sign, tuples[0], _NONE, *of_pairs, groups.counts.shape[0], None, part, mask)
        for state, at, word, column in groups.parts:
            places = state.places(*scratch.numbers[:, at : at + state.width, :n])
            valid = encoder.valid(scratch.taken[:, :n], column) if groups.nulls and column >= 0 else everyone(n)
            state.note(touches, scratch.taken[word, :n], valid, places)
        return found

    def emptied(self) -> Array:
        """Groups that have had no rows left, if only for an instant; once all is taken in."""
        pairs = self.scratch.pairs[:, : self.n]
        return pairs[1][pairs[3] == 0]


def make_room(blocks: Sequence[Block], groups: Groups) -> None:
    """Have room for all that is laid out."""
    for at, (state, *_) in enumerate(groups.parts):
        state.make_room(groups.counts.shape[0], [span for block in blocks if (span := block._spans[at]) is not None])


def take_in(
    blocks: Sequence[Block], passing: Passing, groups: Groups, threads: int, together: Together
) -> None:  # fmt: skip
    """Lay blocks out, and take in what is in them, by threads, as many as a power of two; then a block's rows are
    exact unless groups are told as they were."""
    encoder = passing.line.encoder
    in_turn([partial(block.lay_out, passing, groups.parts) for block in blocks], threads, together)
    make_room(blocks, groups)
    found: list[list[int]] = [[] for _ in range(threads)]

    def work(k: int) -> None:
        found[k] = [block.take_in(encoder, groups, k, threads - 1) for block in blocks]

    together([partial(work, k) for k in range(threads)])
    for block, *rows in zip(blocks, *found, strict=True):
        block.rows = sum(rows)


def in_turn(calls: Sequence[Callable[[], object]], threads: int, together: Together) -> None:
    """Make calls, by threads of which each makes the next one that none has begun."""
    numbers = count()

    def work() -> None:
        while (at := next(numbers)) < len(calls):
            calls[at]()

    together([work] * threads)
