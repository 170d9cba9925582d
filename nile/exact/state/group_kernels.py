"""Groups: which of them each instant touches, and the order in which their rows go and come."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.state.kernels import allocating_kernel, fetch, inlined, kernel

Array = np.ndarray[Any, Any]

AT_ONCE = 512
"""Runs that are looked through for those of one part before any is worked on."""
AHEAD = 12
"""Runs ahead of the one that is worked on whose groups are asked for."""


@kernel
def number_pairs(
    ts: Array, weight: Array, codes: Array, mark: Array, begin: int,
    begins: Array, touch: Array, touch_ts: Array, touch_code: Array, come: Array, first: Array, last: Array,
) -> tuple[int, int]:  # fmt: skip
    """Number the pairs (instant, group) that tuples touch, in the order they do, from 0 on: how many runs of tuples of
    one pair there are, and how many pairs.

    ts, codes, weight (how many rows come, negative: go): int64 [n], or weight int8; mark: int64 [groups], -1 between
    calls; begin: the number of the first tuple; begins, touch: int64 [n], by run its first tuple and its pair;
    touch_ts, touch_code, come (rows of the group more than before), first, last (tuples): int64 [n], by pair.
    """
    pairs = 0
    runs = 0
    i = 0
    while i < ts.shape[0]:
        now = ts[i]
        since = pairs
        while i < ts.shape[0] and ts[i] == now:
            code = codes[i]
            at = mark[code]
            if at < 0:
                at = pairs
                mark[code] = at
                touch_ts[at] = now
                touch_code[at] = code
                come[at] = 0
                first[at] = begin + i
                pairs += 1
            begins[runs] = begin + i
            touch[runs] = at
            runs += 1
            came = 0
            while i < ts.shape[0] and codes[i] == code and ts[i] == now:  # pairs of one tuple of a join are such
                came += weight[i]
                i += 1
            last[at] = begin + i - 1
            come[at] += came
        for k in range(since, pairs):
            mark[touch_code[k]] = -1
    return runs, pairs


@kernel
def count_pairs(
    touch_code: Array, before: Array, after: Array, first: Array, counts: Array, births: Array, born: int
) -> None:
    """How many rows the group of each pair has before and after, int64 [pairs]; `after` is how many more until then.

    first: of each pair, its first tuple, which may stand in `before`; counts, births: int64 [groups], rows of each and
    the number of the tuple that made it appear; born: of the first tuple.
    """
    for k in range(touch_code.shape[0]):
        code = touch_code[k]
        number = first[k]
        before[k] = counts[code]
        if counts[code] == 0:
            births[code] = born + number
        counts[code] += after[k]
        after[k] = counts[code]


@kernel
def note_changed(old: Array, new: Array, changed: Array) -> None:
    """Set `changed` (bool [n]) where a row of old and one of new (int64 [n, w]) differ."""
    for k in range(changed.shape[0]):
        for c in range(old.shape[1]):
            if old[k, c] != new[k, c]:
                changed[k] = True


@kernel
def old_and_new(touch_ts: Array, goes: Array, comes: Array, out: Array, out_sign: Array) -> int:
    """out[k]: the pair (instant, group) of output k; of one instant the rows that go stand before those that come."""
    written = 0
    i = 0
    while i < touch_ts.shape[0]:
        end = i
        while end < touch_ts.shape[0] and touch_ts[end] == touch_ts[i]:
            end += 1
        for k in range(i, end):
            if goes[k]:
                out[written] = k
                out_sign[written] = -1
                written += 1
        for k in range(i, end):
            if comes[k]:
                out[written] = k
                out_sign[written] = 1
                written += 1
        i = end
    return written


@inlined
def own_runs(begin: int, codes: Array, begins: Array, runs: int, part: int, mask: int, own: Array) -> int:
    """Write which of the runs from begin on, at most AT_ONCE, are of groups with (group >> 3) & mask == part into own
    (int64 [AT_ONCE]): how many.

    Without a branch: one that is guessed wrong begins with the work on a group of another thread, whose lines of the
    cache it takes away, which costs that thread a quarter.
    """
    end = min(begin + AT_ONCE, runs)
    many = 0
    for run in range(begin, end):
        code = codes[begins[run]] if begins.shape[0] > 0 else codes[run]
        own[many] = run
        many += (code >> 3) & mask == part
    return many


@inlined
def group_ahead(k: int, own: Array, begins: Array, codes: Array) -> Any:
    """The group of the run AHEAD of the k-th of some, as `own_runs` writes them."""
    run = own[k + AHEAD]
    return codes[begins[run] if begins.shape[0] > 0 else run]


@kernel
def apply_counts(
    weight: Array,
    codes: Array,
    valid: Array,
    begins: Array,
    touch: Array,
    first: Array,
    last: Array,
    now: Array,
    old: Array,
    new: Array,
    part: int,
    mask: int,
    scratch: Array,
) -> None:
    """Count the valid rows: now int64 [groups]; old, new: int64 [pairs], before and after each pair's tuples.

    begins, touch: int64 [runs + 1], [runs], as of `number_pairs`; begins [0]: every tuple is a run.
    part, mask: only of groups with (group >> 3) & mask == part, so that threads write to other lines of the cache;
    scratch: int64 [AT_ONCE].
    """
    ragged = begins.shape[0] > 0
    own = scratch[:AT_ONCE]
    for some in range(0, touch.shape[0], AT_ONCE):
        many = own_runs(some, codes, begins, touch.shape[0], part, mask, own)
        for k in range(many):
            if k + AHEAD < many:
                fetch(now, group_ahead(k, own, begins, codes))
            run = own[k]
            begin = begins[run] if ragged else run
            code = codes[begin]
            end = begins[run + 1] if ragged else run + 1
            t = touch[run]
            if begin == first[t]:
                old[t] = now[code]
            for i in range(begin, end):
                if valid[i]:
                    now[code] += weight[i]
            if end - 1 == last[t]:
                new[t] = now[code]


@allocating_kernel
def picked(old: Array, new: Array, at: Array, sign: Array) -> Array:
    """Row at[k] of new where it comes (sign above 0), of old where it goes: [n, w]."""
    out = np.empty((at.shape[0], old.shape[1]), old.dtype)
    for k in range(at.shape[0]):
        for c in range(old.shape[1]):
            out[k, c] = new[at[k], c] if sign[k] > 0 else old[at[k], c]
    return out
