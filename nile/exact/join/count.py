"""The number of pairs two streams complete in a window, without the pairs: streaming, and over whole arrays."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from nile.exact.join.dense import dense_codes
from nile.exact.join.parts import gaps_filled, in_parts, parts_of
from nile.exact.join.shared import in_all
from nile.exact.join.threads import pieces_of, together, useful

__all__ = ["CountStream", "count_whole"]

Array = np.ndarray[Any, Any]
_LEAST_CAPACITY = 512
_MOST_DIRECT = 1 << 18  # 2 MiB of counts
_LEAST_TIME, _MOST_TIME = (int(end) for end in (np.iinfo(np.int64).min, np.iinfo(np.int64).max))
_OVERLAP = 1.5
"""Of the second stream, how often pieces of the first may go through it."""
_DENSE = 4  # codes up to this many times the tuples need no encoding first


def _kernels() -> Any:
    return importlib.import_module("nile.exact.join.count_kernels")


def count_whole(ts: tuple[Array, ...], codes: tuple[Array, ...], window: int, *, threads: int | None = None) -> int:
    """Pairs of equal keys with |ts1 - ts2| <= window ns of two whole streams.

    ts: int64 [m] ns, not decreasing; codes: int64 [m], below 0 null, or all int32; threads: how many may be used, None
    for all cores.  O(tuples), and 4 bytes a distinct code and thread; codes that are far from dense are encoded first.
    """
    largest = max((int(each.max()) for each in codes if each.shape[0]), default=-1)
    if largest >= _DENSE * sum(each.shape[0] for each in codes) + _LEAST_CAPACITY:
        places = in_all(codes, largest + 1, threads=threads)
        if places is not None:
            codes = tuple(each[at] for each, at in zip(codes, places, strict=True))
        wide = [each.astype(np.int64, copy=False) for each in codes]
        codes, largest = dense_codes(wide, shared=True, threads=threads, over=places is not None)
        if places is not None:
            ts = tuple(each[at] for each, at in zip(ts, places, strict=True))
    found: list[int] = []
    pieces = _pieces(ts, window, useful(threads, sum(each.shape[0] for each in ts)))

    def count(left: slice, right: slice) -> None:
        counts = np.zeros(largest + 1, np.int32)
        found.append(
            int(_kernels().count_whole(ts[0][left], codes[0][left], ts[1][right], codes[1][right], window, counts))
        )

    together([partial(count, *piece) for piece in pieces])
    return sum(found)


def _pieces(ts: tuple[Array, ...], window: int, threads: int) -> list[tuple[slice, slice]]:
    """The first stream in as many pieces as there are threads, each with what of the second its tuples may join.

    One piece where windows are so long that each would go through most of the second.
    """
    pieces = []
    for at in pieces_of(ts[0].shape[0], threads):
        if at.start < at.stop:
            first, last = int(ts[0][at.start]), int(ts[0][at.stop - 1])
            since, until = max(first - window, _LEAST_TIME), min(last + window, _MOST_TIME)
            begin, end = np.searchsorted(ts[1], since), np.searchsorted(ts[1], until, "right")
            pieces.append((at, slice(int(begin), int(end))))
    looked_at = sum(right.stop - right.start for _, right in pieces)
    return pieces if 0 < looked_at < _OVERLAP * ts[1].shape[0] else [(slice(None), slice(None))]


class CountStream:
    """Counts pairs of equal keys with |ts1 - ts2| <= window ns as tuples arrive; keeps none.

    Memory: 16 bytes per tuple of the window at its fullest, and 8 a code while codes are below 262,144; beyond that,
    two tables of 16 bytes a slot with four slots a tuple. moved: tuples copied when rings grew or shrank;
    most_memory: bytes at the fullest, those of other cores included.  threads: how many may be used, None for all
    cores.
    """

    HELD: ClassVar = ("_place", "_totals", "_times", "_slots")
    DERIVED: ClassVar = (
        "threads",
        "_window",
        "_newest",
        "moved",
        "most_memory",
        "_direct",
        "_table",
        "_spare",
        "_shift",
    )

    def __init__(self, window: int, threads: int | None = None) -> None:
        self._window = window
        self.threads = threads
        self._place = np.zeros((2, 3), np.int64)
        self._totals = np.zeros(2, np.int64)
        self._newest: int | None = None
        self.moved = 0
        self.most_memory = 0
        self._direct = _LEAST_CAPACITY  # codes that are their own slots; 0: keys are hashed
        self._allocate(_LEAST_CAPACITY)

    def _allocate(self, capacity: int) -> None:
        self._times = tuple(np.zeros(capacity, np.int64) for _ in range(2))
        self._slots = tuple(np.zeros(capacity, np.int64) for _ in range(2))
        if self._direct:
            self._table, self._spare = np.zeros((self._direct, 1), np.int64), np.zeros((0, 1), np.int64)
        else:
            self._table, self._spare = (np.zeros((4 * capacity, 2), np.int64) for _ in range(2))
            self._table[:, 0] = -1
        self._shift = np.uint64(64 - (2 * capacity).bit_length())
        self.most_memory = max(self.most_memory, self.memory)

    def merged(self, ts: tuple[Array, ...], codes: tuple[Array, ...]) -> Iterator[Array]:
        """Count a batch of both streams, merged in total order; yields nothing.

        A long batch is counted in parts, one a core: see `chain_stream_parts`.
        """
        self._make_room(max((int(each.max()) for each in codes if each.shape[0]), default=-1))
        parts = parts_of(ts, self._window, self._newest)
        return in_parts(self, parts, ts, codes, tuple(self.seen.tolist()), lambda block: block, self.threads, kept=True)

    def joined(
        self,
        ts: tuple[Array, ...],
        codes: tuple[Array, ...],
        *,
        kept: bool,  # noqa: ARG002
    ) -> Iterator[Array]:
        """Count a batch as `merged` does, on one core."""
        kernels = _kernels()
        self._place[:, kernels.DONE] = 0
        why = kernels.CROWDED
        while why != kernels.FINISHED:
            why = kernels.count_pairs(
                ts[0], codes[0], ts[1], codes[1], self._window, self._table, self._shift, *self._times, *self._slots,
                self._place, self._totals,
            )  # fmt: skip
            if why == kernels.CROWDED:
                self._tidy()
            elif why == kernels.GROW:
                self._resize(2 * self._times[0].shape[0])
        if ts[0].shape[0] + ts[1].shape[0]:
            self._newest = max(int(each[-1]) for each in ts if each.shape[0])
            self.advance(self._newest)
        return iter(())

    def warmed(self, ts: tuple[Array, ...], codes: tuple[Array, ...], ordinals: tuple[int, ...]) -> CountStream:
        """A count that holds these tuples, the first of which have these ordinals, and has counted nothing."""
        other = CountStream(self._window, 1)
        other._direct = self._direct
        other._allocate(max(self._times[0].shape[0], 1 << max(each.shape[0] for each in ts).bit_length()))
        for side in range(2):
            other._place[side, :2] = ordinals[side] + ts[side].shape[0], ordinals[side]
            _kernels().fill(
                other._table, other._times[side], other._slots[side], other._shift, side, ts[side], codes[side],
                ordinals[side], other._totals,
            )  # fmt: skip
        return other

    def adopt(self, other: CountStream) -> None:
        """Go on where `other`, which went on where this ended, has ended."""
        self.most_memory = max(self.most_memory, self.memory + other.memory)
        self._times, self._slots, self._shift = other._times, other._slots, other._shift
        self._table, self._spare, self._place = other._table, other._spare, other._place
        self._totals[:] = self._totals[0] + other._totals[0], other._totals[1]
        self._newest = other._newest
        self.moved += other.moved

    def push(self, stream: Array | int, ts: Array, codes: Array) -> Iterator[Array]:
        """Count a batch in total order; stream: of all its tuples, or int8 [m]; yields nothing."""
        if isinstance(stream, int):
            return self.merged((ts, ts[:0]) if stream == 0 else (ts[:0], ts), (codes, codes))
        sides = [stream == side for side in range(2)]
        return self.merged((ts[sides[0]], ts[sides[1]]), (codes[sides[0]], codes[sides[1]]))

    def advance(self, now: int) -> None:
        """Let go of what no tuple at `now` or later can join."""
        since = max(now - self._window, int(np.iinfo(np.int64).min))
        for side in range(2):
            _kernels().expire(self._table, self._times[side], self._slots[side], self._place, side, since)
        capacity = self._times[0].shape[0]
        fullest = int((self._place[:, 0] - self._place[:, 1]).max())
        if capacity > _LEAST_CAPACITY and 8 * fullest < capacity:
            self._resize(max(_LEAST_CAPACITY, capacity // 4))

    def holding(self, stream: int, since: int) -> tuple[Array, Array, Array]:
        """The tuples of a stream from `since` on that are not null: (ordinals, ts, codes)."""
        at = np.arange(self._place[stream, 1], self._place[stream, 0])
        ring = at & (self._times[stream].shape[0] - 1)
        ts, slots = self._times[stream][ring], self._slots[stream][ring]
        stay = (ts >= since) & (slots >= 0)
        slots = slots[stay]
        return at[stay], ts[stay], slots if self._direct else self._table[slots, 0]

    def hold(
        self, now: int, seen: Sequence[int], tuples: Sequence[tuple[Array, Array, Array]], completed: int = 0
    ) -> None:
        """Hold these tuples, none of them null, and nothing else: see `WindowJoin.hold`."""
        firsts = [int(at[0]) if at.shape[0] else n for (at, _, _), n in zip(tuples, seen, strict=True)]
        most = max(n - first for n, first in zip(seen, firsts, strict=True))
        self._make_room(max((int(codes.max()) for _, _, codes in tuples if codes.shape[0]), default=-1))
        self._allocate(max(_LEAST_CAPACITY, 1 << most.bit_length()))
        for side, ((at, ts, codes), n, first) in enumerate(zip(tuples, seen, firsts, strict=True)):
            self._place[side] = n, first, 0
            spread = gaps_filled(at - first, ts, codes, n - first)
            _kernels().fill(
                self._table, self._times[side], self._slots[side], self._shift, side, *spread, first, self._totals
            )
        self._totals[0] = completed
        self._newest = now

    @property
    def completed(self) -> int:
        """Pairs so far."""
        return int(self._totals[0])

    @property
    def seen(self) -> Array:
        """Tuples seen of each stream: int64 [2]."""
        seen: Array = self._place[:, 0]
        return seen

    @property
    def held(self) -> int:
        """Tuples kept."""
        return int((self._place[:, 0] - self._place[:, 1]).sum())

    @property
    def memory(self) -> int:
        """Bytes of rings and table."""
        return sum(a.nbytes for a in (*self._times, *self._slots, self._table, self._spare))

    @property
    def counts(self) -> dict[str, int]:
        """Operations so far."""
        seen = int(self._place[:, 0].sum())
        return {
            "comparisons": 0,
            "probes": seen,
            "updates": 2 * seen - self.held,
            "dropped": seen - self.held,
            "moved": self.moved,
        }

    def _make_room(self, code: int) -> None:
        """Let codes up to `code` be slots, as long as they are few; from then on keys are hashed."""
        if self._direct and code >= self._direct:
            self._direct = 1 << code.bit_length() if code < _MOST_DIRECT else 0
            self._resize(self._times[0].shape[0])

    def _tidy(self) -> None:
        """Lay the table out anew with the keys of the window alone; grow when they are too many for it."""
        old, self._table, self._spare = self._table, self._spare, self._table
        self._table[:, 0] = -1
        self._table[:, 1] = 0
        self._lay_out(old, self._times, self._slots)
        if 2 * int(self._totals[1]) > self._table.shape[0]:
            self._resize(2 * self._times[0].shape[0])

    def _resize(self, capacity: int) -> None:
        table, times, slots = self._table, self._times, self._slots
        self._allocate(capacity)
        self._lay_out(table, times, slots)

    def _lay_out(self, table: Array, times: tuple[Array, ...], slots: tuple[Array, ...]) -> None:
        """Move what `table`, `times` and `slots` hold into the present ones, which may be the same rings."""
        self._totals[1] = 0
        for side in range(2):
            _kernels().lay_out(
                table, times[side], slots[side], self._table, self._shift, self._times[side], self._slots[side],
                self._place, side, self._totals,
            )  # fmt: skip
        self.moved += self.held
