"""A large step of groups over a window in blocks of some instants, which threads work on together.

What comes and leaves is laid out by any of them, block by block; each then takes in what is of its own groups, in
order, so that sums are those of one thread; and any tells what groups have become in a block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from itertools import count, pairwise
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from nile.exact.state import arrow
from nile.exact.state.arrow import Array
from nile.exact.state.lent import filled, roomy
from nile.exact.state.line import Line
from nile.exact.state.rows import Together
from nile.exact.state.scratch import Scratch
from nile.exact.state.totals.states import Linear, Touches, everyone

__all__ = ["Block", "Groups", "Passing", "in_turn", "take_in"]

lines: Any = arrow.Late("nile.exact.state.line_kernels")

_BLOCK = 1 << 13
"""Tuples that come in a block, at most: what is written of them stays in a near cache while one thread goes on."""
_HEAVY = 0.62
"""Share of one part of the groups in tuples from which on threads have blocks: half costs as much as catching up."""
_GROUPS = 4
"""Groups a tuple that comes up to which each thread may have all of them for itself."""
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

    def catch_up(self, encoder: Any, groups: Groups) -> None:
        """Add its tuples, of which nothing is told; mark: 0 for groups that then have to catch up."""
        scratch, n = self.scratch, self.n
        sign, codes = scratch.signs[:n], scratch.tuples[0, :n]
        lines.count_up(codes, sign, groups.counts, groups.mark)
        touches = Touches(sign, sign, codes, _NONE, _NONE, _NONE, _NONE, groups.counts.shape[0])
        for state, _, word, column in groups.parts:
            valid = encoder.valid(scratch.taken[:, :n], column) if groups.nulls and column >= 0 else everyone(n)
            state.add(touches, scratch.taken[word, :n], valid)

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
) -> Groups:  # fmt: skip
    """Lay blocks out, and take in what is in them, by threads, as many as a power of two; then a block's rows are
    exact unless groups are told as they were.  Returns what groups have.

    Threads have a part of the groups each, or, where most tuples are of one part, some of the blocks and all groups.
    """
    in_turn([partial(block.lay_out, passing, groups.parts) for block in blocks], threads, together)
    make_room(blocks, groups)
    heaviest = int(np.bincount((passing.codes >> 3) & (threads - 1)).max(initial=0))
    come = passing.codes.shape[0]
    if heaviest > _HEAVY * come and groups.counts.shape[0] <= _GROUPS * come and len(blocks) >= threads:
        return in_stretches(blocks, passing.line.encoder, groups, threads, together)
    rows: list[list[int]] = [[] for _ in range(threads)]

    def work(k: int) -> None:
        rows[k] = [block.take_in(passing.line.encoder, groups, k, threads - 1) for block in blocks]

    together([partial(work, k) for k in range(threads)])
    for block, *each in zip(blocks, *rows, strict=True):
        block.rows = sum(each)
    return groups


def in_stretches(blocks: Sequence[Block], encoder: Any, groups: Groups, threads: int, together: Together) -> Groups:
    """Take in blocks that are laid out and for which there is room, by threads of which each has some blocks, and
    all groups for itself: what groups have then.

    All begin at once: sums are exact, so what a group has where one begins follows from what it has now and all tuples
    before, added in any order and read once, for a seventh of the work on those.  O(groups) for each thread beside it.
    """
    weights = (1.0 - _CATCHES_UP) ** np.arange(threads)  # later ones have less, for they catch up with more
    ends = np.cumsum([block.n for block in blocks])
    cuts = np.searchsorted(ends, ends[-1] * np.cumsum([0.0, *weights[:-1]]) / weights.sum()).tolist()
    each = _shared(groups, threads, together)

    def work(k: int) -> None:
        for block in blocks[: cuts[k]]:
            block.catch_up(encoder, each[k])
        if k:
            caught_up = np.flatnonzero(each[k].mark >= 0)
            each[k].mark[caught_up] = -1
            for state, *_ in each[k].parts:
                state.caught_up(caught_up)
        for block in blocks[cuts[k] : (*cuts, len(blocks))[k + 1]]:
            block.rows = block.take_in(encoder, each[k])

    together([partial(work, k) for k in range(threads)])
    last = each[-1]
    for before in reversed(each[:-1]):
        np.copyto(last.births, before.births, where=last.births < 0)
    for (state, *_), (mine, *_) in zip(groups.parts, last.parts, strict=True):
        vars(state).update(vars(mine))
    return last._replace(mark=groups.mark, parts=groups.parts)


def _shared(groups: Groups, threads: int, together: Together) -> list[Groups]:
    """What groups have, once for each of the threads, of which all make the copies."""
    copies: list[tuple[Array, Array]] = []

    def copied(array: Array) -> Array:
        made = roomy(array.size, array.dtype).reshape(array.shape)
        copies.append((array, made))
        return made

    made = [groups]
    for _ in range(1, threads):
        parts = [(_twin(part[0], copied), *part[1:]) for part in groups.parts]
        births, mark = (filled(groups.births.shape[0], -1) for _ in range(2))
        made.append(groups._replace(counts=copied(groups.counts), births=births, mark=mark, parts=parts))

    def copy_part(k: int) -> None:
        for array, into in copies:
            own = slice(k * len(array) // threads, (k + 1) * len(array) // threads)
            np.copyto(into[own], array[own])

    together([partial(copy_part, k) for k in range(threads)])
    return made


def _twin(state: Linear, copied: Callable[[Array], Array]) -> Linear:
    """A state of the same, with arrays of its own."""
    made = copy(state)
    for name, value in vars(state).items():
        if isinstance(value, np.ndarray):
            setattr(made, name, copied(value))
    return made


def in_turn(calls: Sequence[Callable[[], object]], threads: int, together: Together) -> None:
    """Make calls, by threads of which each makes the next one that none has begun."""
    numbers = count()

    def work() -> None:
        while (at := next(numbers)) < len(calls):
            calls[at]()

    together([work] * threads)
