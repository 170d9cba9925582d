"""Which rows of two inputs are equal in their keys, and how many outputs of a join each row is in."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nile.exact.join.chain import composite_codes
from nile.exact.join.dense import dense_codes
from nile.operators.common.rows import join_codes
from nile.summaries.errors import MemoryRefused
from nile.summaries.heavy import pa

__all__ = ["pairs_in_order", "partners", "runs_of", "surely_fewer"]

Array = np.ndarray[Any, Any]
_MOST = 1 << 62
_SAMPLED = 4_096
_SURELY = 4.0
"""How many times as many outputs as a sample says there are hardly more."""


def partners(
    base: int, codes: Sequence[Array], ts: Sequence[Array | None], before: int | None = None, after: int | None = None
) -> Array:
    """int64 [n]: how many combinations each row of input `base` is in.

    codes: of each input the key of its rows, int64 [m], -1 null, equal where keys are; ts: of each int64 [m] ns, not
    falling, or None without time.  before, after: of two inputs with times, how much older and how much younger than a
    row its partner may be, ns; None: any.  O(rows log rows) under a window, O(rows + keys) without.
    Raises MemoryRefused for 2**62 combinations and more.
    """
    own = codes[base]
    others = [each for k, each in enumerate(codes) if k != base]
    most = 1 + max(0, *(int(each.max(initial=-1)) for each in codes))  # one at least, for rows without a key
    times = ts[base]
    if len(others) == 1 and times is not None and not (before is None and after is None):
        their = ts[1 - base]
        assert their is not None
        found = _within(own, times, others[0], their, before, after)
    else:
        counts = [np.bincount(each[each >= 0], minlength=most) for each in others]
        about = math.prod(float(each.max(initial=0)) for each in counts) * own.shape[0]
        if about >= _MOST and _all(own, counts, most) >= _MOST:
            raise MemoryRefused(
                "join: needed fewer than 2**62 combinations; got more; name a window, or a condition on one input that "
                "leaves fewer rows"
            )
        known = np.maximum(own, 0)
        found = np.where(own >= 0, 1, 0).astype(np.int64)
        for each in counts:
            found *= each[known]
    return found


def pairs_in_order(codes: tuple[Array, Array], ts: Sequence[Array | None], most: int) -> Iterator[tuple[Array, Array]]:
    """The pairs of rows of two inputs with equal codes, `most` at a time: int64 [m] of each input.

    codes: int64 [n], [m], below n + m, -1 equals none; ts: as of `partners`.  Of two inputs with times in the order of
    the tuples that complete them, (time, input, row), each with its partners as they came; else by the rows of the
    input with times, or the left ones.  O(rows log rows), and about 100 bytes a row.
    """
    rows = [each.shape[0] for each in codes]
    if ts[0] is not None and ts[1] is not None:
        bounds = [np.searchsorted(ts[1], ts[0], side="left"), np.searchsorted(ts[0], ts[1], side="right")]
        order = np.argsort(np.concatenate([ts[0], ts[1]]), kind="stable")
    else:
        first = int(ts[1] is not None)
        bounds = [np.full(n, rows[1 - k] if k == first else 0, np.int64) for k, n in enumerate(rows)]
        order = np.arange(sum(rows)) if first == 0 else np.roll(np.arange(sum(rows)), -rows[0])
    begins, counts, listed = [], [], []
    for k, own in enumerate(codes):
        keyed = np.flatnonzero(codes[1 - k] >= 0)
        width = rows[1 - k] + 1
        place = codes[1 - k][keyed] * width + keyed
        place.sort()
        begin = np.searchsorted(place, own * width)
        begins.append(begin)
        counts.append(np.where(own >= 0, np.searchsorted(place, own * width + bounds[k]) - begin, 0))
        listed.append(place % width)
    begin, count = (np.concatenate(each)[order] for each in (begins, counts))
    ends = np.cumsum(count)
    skip = begin - (ends - count)
    total = int(ends[-1]) if ends.shape[0] else 0
    for at in range(0, total, most):
        pair = np.arange(at, min(at + most, total))
        done = np.searchsorted(ends, pair, side="right")
        row = order[done]
        by_right = row >= rows[0]
        there = skip[done] + pair
        other = np.empty_like(row)
        other[by_right] = listed[1][there[by_right]]
        other[~by_right] = listed[0][there[~by_right]]
        row = row - by_right * rows[0]
        yield np.where(by_right, other, row), np.where(by_right, row, other)


def runs_of(codes: Array, own: Array, bounds: Sequence[tuple[Array, Array]]) -> tuple[Array, Array, Array]:
    """(where each code's partners begin among the rows of `own` by code, how many, these rows): int64 [n], [n], [k].

    codes: int64 [n], own: int64 [m], below n + m, -1 equals none; bounds: of the rows of `own` only those in [low,
    high), each int64 [n], of all of them.  Without O(n + m) but for a sort of m codes, with them O((n + m) log m).
    """
    keyed = np.flatnonzero(own >= 0)
    if not bounds:
        most = 1 + max(int(codes.max(initial=-1)), int(own.max(initial=-1)))
        sizes = np.bincount(own[keyed], minlength=most + 1)  # at -1, which is the last, nothing
        begins = np.cumsum(sizes) - sizes
        return begins[codes], sizes[codes], keyed[np.argsort(own[keyed], kind="stable")]
    low, high = np.maximum.reduce([each for each, _ in bounds]), np.minimum.reduce([each for _, each in bounds])
    width = own.shape[0] + 1
    place = own[keyed] * width + keyed
    place.sort()
    begin = np.searchsorted(place, codes * width + low)
    end = np.searchsorted(place, codes * width + np.maximum(low, high))
    return begin, np.where(codes >= 0, end - begin, 0), place % width


def surely_fewer(keys: Sequence[Sequence[Any]], rows: Sequence[int], than: float) -> bool:
    """Whether a join has fewer outputs than so many, whatever its windows, as 4,096 rows of each input tell.

    keys: of each input its key columns, of Arrow, equal to those of the others one by one; rows: of each input.
    False is no answer.  Raises KeyTypeError.
    """
    if math.prod(rows) < than:
        return True
    sampled = [
        np.sort(np.random.Generator(np.random.PCG64(n)).integers(0, n, _SAMPLED)) if n > _SAMPLED else np.arange(n)
        for n in rows
    ]
    some = [[column.take(pa.array(at)) for column in columns] for columns, at in zip(keys, sampled, strict=True)]
    if len(some) == 2:
        codes: Sequence[Array] = join_codes(list(zip(*some, strict=True)), *(at.shape[0] for at in sampled))
    else:
        codes = dense_codes(composite_codes(list(zip(*some, strict=True))))[0]
    most = 1 + max(0, *(int(each.max(initial=-1)) for each in codes))
    counts = [np.bincount(each[each >= 0], minlength=most).astype(float) for each in codes]
    scale = math.prod(n / max(1, at.shape[0]) for n, at in zip(rows, sampled, strict=True))
    return bool(_SURELY * np.prod(counts, axis=0).sum() * scale < than)


def _all(own: Array, counts: Sequence[Array], most: int) -> int:
    mine = np.bincount(own[own >= 0], minlength=most)
    return sum(math.prod(map(int, row)) for row in zip(mine.tolist(), *(each.tolist() for each in counts), strict=True))


def _within(own: Array, times: Array, codes: Array, ts: Array, before: int | None, after: int | None) -> Array:
    """Rows of the other input with the same key from `before` ns older to `after` ns younger."""
    ends = np.iinfo(np.int64)
    low, high = np.zeros(times.shape[0], np.int64), np.full(times.shape[0], ts.shape[0], np.int64)
    if before is not None:
        since = np.where(times < ends.min + before, ends.min, times - before)
        low = np.searchsorted(ts, since, side="left")
    if after is not None:
        until = np.where(times > ends.max - after, ends.max, times + after)
        high = np.searchsorted(ts, until, side="right")
    keyed = np.flatnonzero(codes >= 0)
    width = ts.shape[0] + 1
    place = codes[keyed] * width + keyed
    place.sort()
    found = np.searchsorted(place, own * width + np.maximum(low, high)) - np.searchsorted(place, own * width + low)
    return np.where(own >= 0, found, 0)
