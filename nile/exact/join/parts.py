"""Long inputs in parts, one per core: each starts with the window before it, so outputs and order are the same.

A part needs nothing of the one before but the tuples its first arrivals may join, which stand in the input.  So
another core puts those in, joins its part, and hands its outputs over when its turn comes: what comes out does not
depend on how many cores there are, nor on which is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from nile.exact.join.threads import Ahead, cores
from nile.exact.state.lent import roomy

__all__ = ["BLOCK", "Part", "Partly", "Room", "gaps_filled", "in_parts", "parts_of"]

Array = np.ndarray[Any, Any]
SIZE = 1 << 18  # arrivals a part
BLOCK = (1 << 16) - 8
"""Outputs a block: columns of 512 KiB, which stay in a core's cache until they are handed out, less what Arrow adds to
have them begin at a multiple of 64 bytes: of 512 KiB and a little its allocator gives 640."""
_AHEAD = 32  # blocks of a part that may wait for their turn; one who has more waits
_WARM = 4  # a part is worth a core when the window before it is at most a quarter of it

T = TypeVar("T")
Self = TypeVar("Self", bound="Partly")


@dataclass(frozen=True, slots=True)
class Part:
    """Where a part begins and ends in either stream, and from where on the window before it begins."""

    warm: tuple[int, int]
    begin: tuple[int, int]
    end: tuple[int, int]


class Room:
    """Room for blocks of outputs, one after another: int64 [streams, outputs].

    kept: whether whoever gets a block keeps it; else each is gone when the next one is asked for, in whose place it
    lies: between the columns of an answer blocks that were let go would leave gaps too small for the next.
    """

    def __init__(self, streams: int, outputs: int, *, kept: bool) -> None:
        self._shape, self._kept = (streams, outputs), kept
        self._found: Array | None = None

    def next(self) -> Array:
        """Room for a block, not filled."""
        if self._found is None or self._kept:
            streams, outputs = self._shape
            self._found = roomy(streams * outputs).reshape(self._shape)
        return self._found

    def block(self, written: int) -> Array:
        """The first of the outputs that were written: int64 [written, streams], columns contiguous."""
        assert self._found is not None
        found = self._found[:, :written]
        return found.copy().T if self._kept and 2 * written < self._shape[1] else found.T


class Partly(Protocol):
    """A join of two streams that can start from the middle of its input."""

    def joined(self, ts: tuple[Array, ...], codes: tuple[Array, ...], *, kept: bool) -> Iterator[Array]:
        """Join a batch on one core; kept: whether who gets a block keeps it (`Room`)."""
        ...

    def warmed(self: Self, ts: tuple[Array, ...], codes: tuple[Array, ...], ordinals: tuple[int, ...]) -> Self:
        """A join that holds these tuples, the first of which have these ordinals, and has completed nothing."""
        ...

    def adopt(self: Self, other: Self) -> None:
        """Go on where `other`, which went on where this ended, has ended."""
        ...


def parts_of(ts: tuple[Array, ...], window: int, before: int | None) -> list[Part]:
    """Parts of a batch of two streams of about SIZE arrivals, cut between two times.

    before: the time of the newest tuple before the batch: a part whose window reaches back to it is not cut off, nor is
    one whose window is too large a piece of it.
    """
    ends = (ts[0].shape[0], ts[1].shape[0])
    longer = ts[0] if ends[0] >= ends[1] else ts[1]
    count = sum(ends) // SIZE
    parts: list[Part] = []
    begin, warm = (0, 0), (0, 0)
    for k in range(1, count):
        at = int(longer[k * longer.shape[0] // count])
        since = max(at - window, int(np.iinfo(np.int64).min))
        cut = (int(np.searchsorted(ts[0], at)), int(np.searchsorted(ts[1], at)))
        back = (int(np.searchsorted(ts[0], since)), int(np.searchsorted(ts[1], since)))
        reaches_back = before is not None and since <= before
        if reaches_back or _WARM * (sum(cut) - sum(back)) > SIZE or cut == begin:
            continue
        parts.append(Part(warm, begin, cut))
        begin, warm = cut, back
    parts.append(Part(warm, begin, ends))
    return parts


def gaps_filled(places: Array, ts: Array, codes: Array, size: int) -> tuple[Array, Array]:
    """(ts, codes) of `size` tuples, of which those at `places` (from 0, rising) are given: the others are null."""
    times = np.repeat(ts, np.diff(places, append=size)) if size else ts
    keys = np.full(size, -1, np.int64)
    keys[places] = codes
    return times, keys


def in_parts(
    join: Self,
    parts: list[Part],
    ts: tuple[Array, ...],
    codes: tuple[Array, ...],
    seen: tuple[int, ...],
    make: Callable[[Array], T],
    threads: int | None = None,
    *,
    kept: bool,
) -> Iterator[T]:
    """Join the parts in turn, as many at once as there are cores; yields what `make` makes of each block, on the thread
    that found it: of those that `join` alone would yield, in their order.

    seen: tuples of each stream before the batch; threads: at most so many, None for all cores; kept: whether what is
    made of a block holds it.
    """
    at_once = cores() if threads is None else min(threads, cores())
    for start in range(0, len(parts), at_once):
        group = parts[start : start + at_once]
        first = _cut(ts, group[0].begin, group[0].end), _cut(codes, group[0].begin, group[0].end)
        if len(group) == 1:
            yield from map(make, join.joined(*first, kept=kept))
            continue
        others = [Ahead(_apart(join, part, ts, codes, seen, make, kept), _AHEAD) for part in group[1:]]
        try:
            Ahead.start(others)
            yield from map(make, join.joined(*first, kept=kept))
            for each in others:
                while not isinstance(found := each.next(), _Ended):
                    yield found
                join.adopt(found.join)
        finally:
            Ahead.stop(others)


class _Ended(Generic[Self]):
    """What comes after the last block of a part: the join as it stands then."""

    def __init__(self, join: Self) -> None:
        self.join = join


def _apart(
    join: Self, part: Part, ts: tuple[Array, ...], codes: tuple[Array, ...], seen: tuple[int, ...],
    make: Callable[[Array], T], kept: bool,
) -> Iterator[T | _Ended[Self]]:  # fmt: skip
    """One part on a core of its own: what is made of its blocks, and the join behind them."""
    ordinals = tuple(seen[side] + part.warm[side] for side in range(2))
    other = join.warmed(_cut(ts, part.warm, part.begin), _cut(codes, part.warm, part.begin), ordinals)
    own = _cut(ts, part.begin, part.end), _cut(codes, part.begin, part.end)
    yield from map(make, other.joined(*own, kept=kept))
    yield _Ended(other)


def _cut(arrays: tuple[Array, ...], begin: tuple[int, int], end: tuple[int, int]) -> tuple[Array, ...]:
    return tuple(each[begin[side] : end[side]] for side, each in enumerate(arrays))
