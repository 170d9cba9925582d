"""The streaming chain join of two streams: rings that hold the window's content, and chains of equal keys in them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from nile.exact.join.form import Form, chosen, size_of
from nile.exact.join.listed import Lists, Words, suits, with_rows
from nile.exact.join.parts import BLOCK, Room, gaps_filled, in_parts, parts_of
from nile.exact.join.threads import of_each, useful

__all__ = ["ChainStream"]

Array = np.ndarray[Any, Any]
T = TypeVar("T")
_LEAST_CAPACITY = 256
_ROOM = BLOCK


def _kernels() -> Any:
    return importlib.import_module("nile.exact.join.stream_kernels")


class ChainStream:
    """Pairs of equal keys with |ts1 - ts2| <= window ns, completed as tuples arrive.

    Memory: about 90 bytes per tuple of the window's content at its fullest, rings doubling and shrinking with it; for a
    whole input that comes first and at once, 4 bytes a tuple and 16 a key (`nile.exact.join.listed`).
    moved: tuples copied when rings grew or shrank; most_memory: bytes at the fullest, those of other cores included;
    form: in which the last whole streams were joined, None before any;
    threads: how many may be used, None for all cores.
    """

    HELD: ClassVar = ("_place", "_rings", "_times")
    DERIVED: ClassVar = (
        "threads",
        "_window",
        "_resume",
        "_costs",
        "_newest",
        "_heads",
        "_shift",
        "moved",
        "most_memory",
        "_whole",
        "form",
        "_parts",
    )

    def __init__(self, window: int, threads: int | None = None) -> None:
        self._window = window
        self.threads = threads
        self._place = np.zeros((2, 3), np.int64)
        self._resume = np.array([-2, 0], np.int64)
        self._costs = np.zeros(3, np.int64)
        self._newest: int | None = None
        self._whole: tuple[tuple[Array, ...], tuple[Array, ...]] | None = None
        self.form: Form | None = None
        self._parts = 0
        self.moved = 0
        self.most_memory = 0
        self._allocate(_LEAST_CAPACITY)

    def _allocate(self, capacity: int) -> None:
        self._rings = tuple(np.full((capacity, 2), -1, np.int64) for _ in range(2))
        self._times = tuple(np.zeros(capacity, np.int64) for _ in range(2))
        self._heads = np.full((4 * capacity, 2), -1, np.int64)  # few keys of a window share a bucket
        self._shift = np.uint64(64 - (2 * capacity).bit_length())
        self.most_memory = max(self.most_memory, self.memory)

    def merged(self, ts: tuple[Array, ...], codes: tuple[Array, ...]) -> Iterator[Array]:
        """Join a batch of both streams, merged in total order; yields int64 [m, 2] ordinals, columns contiguous.

        The first one is joined by lists where that costs less; else a long one in parts, one a core.
        """
        return self.made(ts, codes, _as_it_is, kept=True)

    def made(
        self, ts: tuple[Array, ...], codes: tuple[Array, ...], make: Callable[[Array], T], *, kept: bool,
        words: Words[T] | None = None,
    ) -> Iterator[T]:  # fmt: skip
        """What `make` makes of each block of `merged`, on the thread that found it.

        kept: whether that holds the block itself, or a part of it; else its room serves for the next one.
        words: what may be made of pairs instead, where it costs less.
        """
        if self._newest is None and self._whole is None and any(map(len, ts)) and suits(ts, self._window):
            return self._by_lists(ts, codes, make, kept, words)
        tuples, within = size_of(ts, self._window)
        found = self._by_chains(ts, codes, make, kept)
        why = chosen(tuples, within)[1] if self._newest is None else "the window holds tuples already"
        threads = max(1, min(self._parts, useful(self.threads, tuples)))
        self.form = Form("chains", why, tuples, within=within, threads=threads)
        return found

    def _by_chains(
        self, ts: tuple[Array, ...], codes: tuple[Array, ...], make: Callable[[Array], T], kept: bool
    ) -> Iterator[T]:
        self._settle()
        parts = parts_of(ts, self._window, self._newest)
        self._parts = len(parts)
        return in_parts(self, parts, ts, codes, tuple(self.seen.tolist()), make, self.threads, kept=kept)

    def _by_lists(
        self, ts: tuple[Array, ...], codes: tuple[Array, ...], make: Callable[[Array], T], kept: bool,
        words: Words[T] | None,
    ) -> Iterator[T]:  # fmt: skip
        counted = None if words is None else words.counted()
        lists = Lists(ts, codes, self._window, threads=self.threads, words=counted)
        self.form = lists.form
        self.most_memory = max(self.most_memory, self.memory + lists.memory)
        pairs = 0
        for rows, made in lists.made(with_rows(make), kept=kept):
            pairs += rows
            yield made
        tuples = sum(map(len, codes))
        keyed = sum(of_each(lambda each: int(np.count_nonzero(each >= 0)), codes, tuples, self.threads))
        self._costs += pairs, keyed, keyed
        self._whole = ts, codes

    def _settle(self) -> None:
        """Hold what is left of a first batch that was joined by lists: only when something follows."""
        if self._whole is None:
            return
        ts, codes = self._whole
        begins, self._whole = self._begins(), None
        tuples = []
        for times, keys, begin in zip(ts, codes, begins, strict=True):
            at = begin + np.flatnonzero(keys[begin:] >= 0)
            tuples.append((at, times[at], keys[at]))
        self.hold(max(int(each[-1]) for each in ts if each.shape[0]), [each.shape[0] for each in ts], tuples)

    def _begins(self) -> list[int]:
        """Of each stream of a first batch that was joined by lists, the first tuple that something to come can join."""
        if self._whole is None:
            return []
        ts, codes = self._whole
        newest = max(int(each[-1]) for each in ts if each.shape[0])
        begins = [int(np.searchsorted(each, max(newest - self._window, np.iinfo(np.int64).min))) for each in ts]
        # Nulls are not held; of any that is, argmax finds the first.
        keyed = [keys[begin:] >= 0 for keys, begin in zip(codes, begins, strict=True)]
        return [
            begin + (int(each.argmax()) if each.any() else each.shape[0])
            for begin, each in zip(begins, keyed, strict=True)
        ]

    def joined(self, ts: tuple[Array, ...], codes: tuple[Array, ...], *, kept: bool) -> Iterator[Array]:
        """Join a batch as `merged` does, on one core.  kept: as of `made`."""
        self._settle()
        kernels = _kernels()
        self._place[:, kernels.DONE] = 0
        waiting = ts[0].shape[0] + ts[1].shape[0]
        room = Room(2, _ROOM if waiting > _ROOM >> 4 else _ROOM >> 4, kept=kept)
        why = kernels.FULL
        while why != kernels.FINISHED:
            if why == kernels.GROW:
                self._resize(2 * self._times[0].shape[0])
            out = room.next()
            why = kernels.join_pairs(
                ts[0], codes[0], ts[1], codes[1], self._window, *self._rings, *self._times, self._heads,
                self._shift, self._place, self._resume, out[0], out[1], self._costs,
            )  # fmt: skip
            written = int(self._resume[1])
            if written:
                yield room.block(written)
        if waiting:
            self._newest = max(int(each[-1]) for each in ts if each.shape[0])
            self.advance(self._newest)

    def warmed(self, ts: tuple[Array, ...], codes: tuple[Array, ...], ordinals: tuple[int, ...]) -> ChainStream:
        """A join that holds these tuples, the first of which have these ordinals, and has completed nothing."""
        other = ChainStream(self._window, 1)
        other._allocate(max(self._times[0].shape[0], 1 << max(each.shape[0] for each in ts).bit_length()))
        for side in range(2):
            other._place[side, :2] = ordinals[side] + ts[side].shape[0], ordinals[side]
            _kernels().fill(
                other._rings[side], other._times[side], other._heads, other._shift, side, ts[side], codes[side],
                ordinals[side],
            )  # fmt: skip
        return other

    def adopt(self, other: ChainStream) -> None:
        """Go on where `other`, which went on where this ended, has ended."""
        self.most_memory = max(self.most_memory, self.memory + other.memory)
        self._rings, self._times, self._heads, self._shift = other._rings, other._times, other._heads, other._shift
        self._place, self._newest = other._place, other._newest
        self._costs += other._costs
        self.moved += other.moved

    def push(self, stream: Array | int, ts: Array, codes: Array) -> Iterator[Array]:
        """Join a batch in total order; stream: of all its tuples, or int8 [m]."""
        if isinstance(stream, int):
            mine = (ts, ts[:0]) if stream == 0 else (ts[:0], ts)
            keys = (codes, codes[:0]) if stream == 0 else (codes[:0], codes)
            return self._by_chains(mine, keys, _as_it_is, True)
        sides = [stream == side for side in range(2)]
        mine, keys = (tuple(each[side] for side in sides) for each in (ts, codes))
        return self._by_chains(mine, keys, _as_it_is, True)

    def advance(self, now: int) -> None:
        """Let go of what no tuple at `now` or later can join."""
        self._settle()
        since = max(now - self._window, np.iinfo(np.int64).min)
        for side in range(2):
            _kernels().expire(self._times[side], self._place, side, since)
        self._shrink()

    def holding(self, stream: int, since: int) -> tuple[Array, Array, Array]:
        """The tuples of a stream from `since` on that are not null: (ordinals, ts, codes)."""
        self._settle()
        at = np.arange(self._place[stream, 1], self._place[stream, 0])
        ring = at & (self._times[stream].shape[0] - 1)
        ts, codes = self._times[stream][ring], self._rings[stream][ring, 0]
        stay = (ts >= since) & (codes >= 0)
        return at[stay], ts[stay], codes[stay]

    def hold(
        self, now: int, seen: Sequence[int], tuples: Sequence[tuple[Array, Array, Array]], completed: int = 0
    ) -> None:
        """Hold these tuples, none of them null, and nothing else: see `WindowJoin.hold`."""
        del completed  # whoever reads the pairs counts them
        firsts = [int(at[0]) if at.shape[0] else n for (at, _, _), n in zip(tuples, seen, strict=True)]
        most = max(n - first for n, first in zip(seen, firsts, strict=True))
        self._allocate(max(_LEAST_CAPACITY, 1 << most.bit_length()))
        for side, ((at, ts, codes), n, first) in enumerate(zip(tuples, seen, firsts, strict=True)):
            self._place[side] = n, first, 0
            spread = gaps_filled(at - first, ts, codes, n - first)
            _kernels().fill(self._rings[side], self._times[side], self._heads, self._shift, side, *spread, first)
        self._newest = now

    @property
    def seen(self) -> Array:
        """Tuples seen of each stream: int64 [2]."""
        if self._whole is not None:
            return np.array([each.shape[0] for each in self._whole[0]])
        seen: Array = self._place[:, 0]
        return seen

    @property
    def held(self) -> int:
        """Tuples kept."""
        if self._whole is not None:
            return int(self.seen.sum()) - sum(self._begins())
        return int((self._place[:, 0] - self._place[:, 1]).sum())

    @property
    def memory(self) -> int:
        """Bytes of rings and table."""
        return sum(a.nbytes for a in (*self._rings, *self._times, self._heads))

    @property
    def counts(self) -> dict[str, int]:
        """Operations so far."""
        seen = int(self.seen.sum())
        compared, probed = int(self._costs[0]), int(self._costs[1])
        return {
            "comparisons": compared,
            "probes": probed,
            "updates": probed,
            "dropped": seen - self.held,
            "moved": self.moved,
        }

    def _shrink(self) -> None:
        capacity = self._times[0].shape[0]
        fullest = int((self._place[:, 0] - self._place[:, 1]).max())
        if capacity > _LEAST_CAPACITY and 8 * fullest < capacity:
            self._resize(max(_LEAST_CAPACITY, capacity // 4))

    def _resize(self, capacity: int) -> None:
        rings, times = self._rings, self._times
        self._allocate(capacity)
        for side in range(2):
            _kernels().refill(
                rings[side], times[side], self._rings[side], self._times[side], self._heads, self._shift,
                self._place, side,
            )  # fmt: skip
        self.moved += self.held


def _as_it_is(block: Array) -> Array:
    return block
