"""How many outputs of a join each row of one input is in, without the outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nile.exact.join.chain import encode_all
from nile.operators.common.rows import join_codes
from nile.summaries.errors import MemoryRefused
from nile.summaries.heavy import pa

__all__ = ["partners", "surely_fewer"]

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


def surely_fewer(keys: Sequence[Sequence[Any]], rows: Sequence[int], than: float) -> bool:
    """Whether a join has fewer outputs than so many, whatever its windows, as 4,096 rows of each input tell.

    keys: of each input its key columns, of Arrow, equal to those of the others one by one (of more than two inputs one
    each); rows: of each input.  False is no answer.  Raises KeyTypeError.
    """
    if math.prod(rows) < than:
        return True
    sampled = [
        np.sort(np.random.Generator(np.random.PCG64(n)).integers(0, n, _SAMPLED)) if n > _SAMPLED else np.arange(n)
        for n in rows
    ]
    some = [[column.take(pa.array(at)) for column in columns] for columns, at in zip(keys, sampled, strict=True)]
    codes: Sequence[Array] = (
        join_codes(list(zip(*some, strict=True)), *(at.shape[0] for at in sampled))
        if len(some) == 2
        else encode_all([columns[0] for columns in some])[0]
    )
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
