"""The join of two whole streams by lists of the tuples of each key: what an arrival joins lies one after the other.

Long ones are cut by time into slices that threads work on at once: the places of each key's tuples at a cut are known
from how many there are before it.  Where the cuts are depends on the input alone, and so does all that comes out.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from nile.exact.join.dense import dense_codes
from nile.exact.join.form import UNBOUND, Form, chosen, size_of
from nile.exact.join.parts import BLOCK, SIZE, Room
from nile.exact.join.shared import in_all, kept_of, taken_by
from nile.exact.join.threads import Ahead, of_each, together, useful
from nile.exact.state.lent import filled, roomy

__all__ = ["Lists", "Slice", "Words", "cuts", "suits", "with_rows"]

Array = np.ndarray[Any, Any]
T = TypeVar("T")
_ROOM = BLOCK
_DENSE = 4
"""Codes a tuple up to which rows by code are small enough."""
_FEWEST = 4
"""Slices of a long input."""
_SLICE = 1 << 20
"""Pairs of a slice where there are many."""
_AT_ONCE = 1 << 22
"""Pairs up to which threads may hold what they find until its turn comes: each goes through one stretch of time."""
_MANY = 1.0
"""Pairs a tuple from which on words cost less in lists than fetched for each pair."""
_AS_THEY_ARE = np.zeros(0, np.int64)
_AHEAD = 32  # blocks of a thread that may wait for their turn


def _kernels() -> Any:
    return importlib.import_module("nile.exact.join.listed_kernels")


def suits(ts: tuple[Array, ...], window: int) -> bool:
    """Whether lists cost less than chains: the window is long or no core is free for parts."""
    return chosen(*size_of(ts, window))[0]


def _above(codes: tuple[Array, ...], threads: int | None) -> int:
    return 1 + max(of_each(lambda each: int(each.max(initial=-1)), codes, sum(map(len, codes)), threads))


class Slice(NamedTuple):
    """Arrivals between two cuts: of either stream the first tuple, the first after it, and the first in the window."""

    begin: tuple[int, int]
    end: tuple[int, int]
    gone: tuple[int, int]


class _Place:
    """Where a thread is: the rows of its own, its progress, and how many arrivals of either stream are behind it."""

    def __init__(self, rows: Array, begin: Slice) -> None:
        self.rows = rows
        self.progress = np.zeros(5, np.int64)
        self.progress[:2], self.progress[2:4] = begin.begin, begin.gone


@dataclass(frozen=True, slots=True)
class Words(Generic[T]):
    """What pairs are told as instead of the ordinals of their tuples.

    of: int64 [n], a word of each tuple of either stream; make: what is made of a block of pairs of words, int64 [m, 2],
    columns contiguous, which may hold it.
    """

    of: tuple[Array, ...]
    make: Callable[[Array], T]

    def counted(self) -> Words[tuple[int, T]]:
        """The same, beside how many pairs a block has."""
        return Words(self.of, with_rows(self.make))


def with_rows(make: Callable[[Array], T]) -> Callable[[Array], tuple[int, T]]:
    """What is made of a block, beside how many pairs it has."""
    return lambda block: (block.shape[0], make(block))


class Lists:
    """Two whole streams, listed by key.  Memory: 4 bytes a tuple, 8 where they are words, and 16 a code and thread.

    rows: int32 [threads, codes, 4], of each key where its next left and right tuple stand in the lists, and the first
    in the window; listed: int32 or of words int64, the tuples of either stream by key.
    ts: int64 ns, not falling; codes: int64, below 0 for null; window: ns, below 0 for the whole streams; keys: a number
    above every code, where they are known to be dense (None: looked for; codes far apart are coded anew); whole: list
    tuples too whose key the other stream has not; threads: how many may be used, None for all cores; told: int64 below
    2**31, what the tuples of either stream are told as, in the lists and in pairs (None: their ordinals); words:
    what they are told as instead, and what `made` makes of that.
    """

    def __init__(
        self,
        ts: tuple[Array, ...],
        codes: tuple[Array, ...],
        window: int,
        keys: int | None = None,
        *,
        whole: bool = False,
        threads: int | None = None,
        told: tuple[Array, ...] | None = None,
        words: Words[Any] | None = None,
    ) -> None:
        above = _above(codes, threads) if keys is None else keys
        self._size = size_of(ts, window)
        at = None if whole else in_all(codes, above, threads=threads)
        if at is not None:
            codes, above = kept_of(codes, at, above, threads)
        self._coded = keys is None and above > _DENSE * (codes[0].shape[0] + codes[1].shape[0]) + SIZE
        if self._coded:
            codes, above = dense_codes(codes, shared=True, threads=threads, over=at is not None)
        if at is not None:  # only now that what coding took is given back
            ts = _of(ts, at, threads)
            told = at if told is None else _of(told, at, threads)
        self._at = (_AS_THEY_ARE, _AS_THEY_ARE) if told is None else told
        self._ts, self._codes, self._window = ts, codes, window
        tuples = sum(each.shape[0] for each in ts)
        self._cuts = cuts(ts, window, _FEWEST if tuples >= 2 * SIZE else 1)
        # Rows by code are gone through once a thread: they must not be more than what is done with them.
        self._threads = min(len(self._cuts), useful(threads, tuples) if above <= tuples else 1)
        self._bounds = [k * len(self._cuts) // self._threads for k in range(self._threads + 1)]
        self.rows = filled(self._threads * above * 4, 0, np.int32).reshape(self._threads, above, 4)
        self._words, self._most = self._list(words, at, threads)
        self._above = above

    def _list(
        self, words: Words[Any] | None, kept: tuple[Array, ...] | None, threads: int | None
    ) -> tuple[Callable[[Array], Any] | None, float]:
        """Put all tuples into the lists; returns what is made of words, if these are listed, and about how many pairs
        there are.  kept: which tuples of the streams are listed, None: all."""
        kernels = _kernels()
        stretches = self._stretches()

        def each(call: Callable[..., Any]) -> None:
            together([partial(self._of_stretch, call, stretches[k], k) for k in range(self._threads)])

        each(lambda codes, _begin, side, rows: kernels.count_keys(codes, side, rows))
        pairs = float(kernels.begin_lists(self.rows))
        if self._window >= 0:
            span = max((int(each[-1]) - int(each[0]) for each in self._ts if each.shape[0]), default=0)
            pairs *= min(1.0, 2.0 * self._window / max(1, span))
        if words is not None and pairs < _MANY * sum(each.shape[0] for each in self._ts):
            words = None
        if words is not None:  # they are read in the order of the lists, where by ordinals they lie anywhere
            self._at = words.of if kept is None else _of(words.of, kept, threads)
        kind = np.int32 if words is None else np.int64
        lefts = self._ts[0].shape[0]
        self._listed = roomy(lefts + self._ts[1].shape[0], kind)
        self.listed = (self._listed[:lefts], self._listed[lefts:])
        each(lambda *given: kernels.place_keys(*given, self.listed[given[2]], self._at[given[2]]))
        return None if words is None else words.make, pairs

    def _of_stretch(self, call: Callable[..., Any], stretch: Slice, k: int) -> None:
        for side in range(2):
            codes = self._codes[side][stretch.begin[side] : stretch.end[side]]
            call(codes, stretch.begin[side], side, self.rows[k])

    def _stretches(self) -> list[Slice]:
        """The slices in as many pieces as there are threads, each from a cut to a later one."""
        cuts = self._cuts
        return [
            Slice(cuts[a].begin, cuts[b - 1].end, cuts[a].gone) if a < b else Slice((0, 0), (0, 0), (0, 0))
            for a, b in zip(self._bounds, self._bounds[1:], strict=False)
        ]

    def first_rows(self) -> Array:
        """The rows as they are before the first tuple: int32 [codes, 4], not for use beside `pairs`."""
        _kernels().rewind(self.rows[0])
        first: Array = self.rows[0]
        return first

    @property
    def form(self) -> Form:
        """How the streams are joined."""
        tuples, within = self._size
        listed = sum(each.shape[0] for each in self._ts)
        return Form(
            "lists", chosen(tuples, within)[1] if self._window >= 0 else UNBOUND, tuples,
            listed if listed < tuples else None, within if self._window >= 0 else None, self._above, self._coded,
            self._words is not None, self._threads,
        )  # fmt: skip

    @property
    def memory(self) -> int:
        """Bytes of lists and rows."""
        return self.rows.nbytes + sum(each.nbytes for each in self.listed)

    def pairs(self) -> Iterator[Array]:
        """Ordinals of the pairs in the order in which they complete, those of an arrival from its newest partner back:
        int64 [m, 2], m up to 65,528, columns contiguous.  Once: positions in the lists move on.
        """
        return self.made(lambda block: block)

    def made(self, make: Callable[[Array], T], *, kept: bool = True) -> Iterator[T]:
        """What `make` makes of each block of `pairs`, on the thread that found it.  Once.

        kept: whether that holds the block itself, or a part of it; else its room serves for the next one.
        """
        if self._words is not None:
            make, kept = self._words, True
        places, slices, turns = self._begin()
        ahead: list[Ahead[T | None]] = []
        for k in range(1, self._threads):
            own = [one for one, turn in zip(slices, turns, strict=True) if turn == k]
            ahead.append(Ahead(self._worked(own, places[k], make, kept), _AHEAD))
        try:
            Ahead.start(ahead)
            for s, one in enumerate(slices):
                if turns[s] == 0:
                    yield from (made for made in self._worked([one], places[0], make, kept) if made is not None)
                else:
                    while (found := ahead[turns[s] - 1].next()) is not None:
                        yield found
        finally:
            Ahead.stop(ahead)

    def _begin(self) -> tuple[list[_Place], list[Slice], list[int]]:
        """Where each thread begins, all slices, and which thread's each is."""
        kernels, rows = _kernels(), list(self.rows)
        if len(self._cuts) == 1:
            kernels.rewind(rows[0])
            return [_Place(rows[0], self._cuts[0])], self._cuts, [0]
        if self._most > _AT_ONCE:
            slices = cuts(self._ts, self._window, max(_FEWEST, int(min(self._most, 1e15) / _SLICE)))
            together([partial(kernels.rewind, each) for each in rows])
            return [_Place(each, slices[0]) for each in rows], slices, [s % self._threads for s in range(len(slices))]
        # What a thread's tuples moved on is where the next one's begin.
        kernels.rewind(rows[-1])
        rows = [rows[-1], *rows[:-1]]
        stretches = self._stretches()
        together([partial(self._hold, each, stretch) for each, stretch in zip(rows, stretches, strict=True)])
        turns = [k for k in range(self._threads) for _ in range(self._bounds[k], self._bounds[k + 1])]
        return [_Place(each, stretch) for each, stretch in zip(rows, stretches, strict=True)], self._cuts, turns

    def _hold(self, rows: Array, stretch: Slice) -> None:
        """Let the windows in rows that stand at a cut hold what they hold there."""
        kernels = _kernels()
        for side in range(2):
            gone, begin, codes = stretch.gone[side], stretch.begin[side], self._codes[side]
            if begin - gone < gone:
                kernels.hold_keys(codes[gone:begin], side, rows)
            elif gone:
                kernels.pass_keys(codes[:gone], kernels.FIRST + side, rows)

    def _worked(self, slices: list[Slice], place: _Place, make: Callable[[Array], T], kept: bool) -> Iterator[T | None]:
        """What is made of the pairs of slices, in order; None behind each of them."""
        kernels = _kernels()
        rows, progress = place.rows.reshape(-1), place.progress
        room = Room(2, _ROOM if sum(each.shape[0] for each in self._ts) > _ROOM >> 4 else _ROOM >> 4, kept=kept)
        batch = np.empty((8, kernels.ROOM), np.int64)
        for one in slices:
            self._pass(one, place)
            while (progress[:2] < one.end).any():
                out = room.next()
                written = kernels.write_pairs(
                    *self._ts,
                    *self._codes,
                    *one.end,
                    self._window,
                    rows,
                    self._listed,
                    *self._at,
                    progress,
                    batch,
                    out,
                )
                if written:
                    yield make(room.block(written))
            yield None

    def _pass(self, one: Slice, place: _Place) -> None:
        """Go past the arrivals before a slice, whose pairs another thread finds."""
        kernels, progress = _kernels(), place.progress
        for side in range(2):
            done, gone = int(progress[side]), int(progress[2 + side])
            if done < one.begin[side]:
                kernels.pass_keys(self._codes[side][done : one.begin[side]], kernels.NEXT + side, place.rows)
                progress[side] = one.begin[side]
            if gone < one.gone[side] and self._window >= 0:
                kernels.pass_keys(self._codes[side][gone : one.gone[side]], kernels.FIRST + side, place.rows)
                progress[2 + side] = one.gone[side]


def _of(columns: tuple[Array, ...], kept: tuple[Array, ...], threads: int | None) -> tuple[Array, ...]:
    """What columns have of the tuples that are kept."""
    return tuple(taken_by(threads, each, at) for each, at in zip(columns, kept, strict=True))


def cuts(ts: tuple[Array, ...], window: int, count: int) -> list[Slice]:
    """Two streams in about so many slices of equal length, cut between two times."""
    longer = max(ts, key=len)
    ends = (ts[0].shape[0], ts[1].shape[0])
    slices: list[Slice] = []
    begin, gone = (0, 0), (0, 0)
    for k in range(1, count):
        at = int(longer[k * longer.shape[0] // count])
        cut = (int(np.searchsorted(ts[0], at)), int(np.searchsorted(ts[1], at)))
        if cut == begin:
            continue
        slices.append(Slice(begin, cut, gone))
        begin = cut
        if window >= 0:
            since = max(at - window, int(np.iinfo(np.int64).min))
            gone = (int(np.searchsorted(ts[0], since)), int(np.searchsorted(ts[1], since)))
    slices.append(Slice(begin, ends, gone))
    return slices
