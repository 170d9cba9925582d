"""Kernels of a window join of one partition: where each tuple's matches are, and how many tuples its window holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.kernels import kernel, part

Array = np.ndarray[Any, Any]

__all__ = ["in_window", "matches", "rare_matches"]


@part
def _from(ts: Array, low: int, high: int, bound: int) -> int:
    """The first place in [low, high) whose time is at least `bound`."""
    while low < high:
        middle = (low + high) >> 1
        if ts[middle] < bound:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def matches(
    codes: Array, ts: Array, floor: int, window: int, starts: Array, other: Array, begin: Array, end: Array
) -> None:
    """begin[i], end[i]: the places of the other side's tuples with the key of tuple i, within the window.

    codes: int32 [n], -1: no key; ts: int64 [n]; starts: int64 [keys + 1], where each key's places begin; other: int64,
    times by place, ascending within a key.  floor: of each pair the later tuple is at or after it.
    """
    for i in range(codes.shape[0]):
        c = codes[i]
        if c < 0:
            begin[i] = 0
            end[i] = 0
            continue
        least = ts[i] - window
        if ts[i] < floor:
            least = max(least, floor)
        begin[i] = _from(other, starts[c], starts[c + 1], least)
        end[i] = max(begin[i], _from(other, begin[i], starts[c + 1], ts[i] + window + 1))


@kernel
def in_window(
    codes: Array,
    ts: Array,
    window: int,
    own: Array,
    own_ts: Array,
    starts: Array,
    other: Array,
    late: int,
    count: Array,
) -> None:
    """count[p]: tuples of both sides with the key of the tuple at place p, in its window and not after it.

    codes: int32 [n], ts: int64 [n], by place, of tuples with a key; own: int64 [keys + 1], own_ts: of this side;
    starts, other: of the other side.  late: 1 where the other side's tuples of the same time come before, else 0.
    """
    for p in range(codes.shape[0]):
        c = codes[p]
        least = ts[p] - window
        mine = p + 1 - _from(own_ts, own[c], own[c + 1], least)
        low = _from(other, starts[c], starts[c + 1], least)
        count[p] = mine + _from(other, low, starts[c + 1], ts[p] + late) - low


@kernel
def rare_matches(
    codes: Array, ts: Array, count: Array, cap: int, floor: int, window: int, starts: Array, other: Array,
    begin: Array, end: Array,
) -> None:  # fmt: skip
    """As `matches`, of those pairs alone that can have at most `cap` tuples of their key in the window.

    count: int64 [n], `in_window` of each tuple.  A tuple that is not rare completes no pair; and it takes part in those
    that the next `cap - 1` tuples of the other side complete at most, whose own counts the caller looks at.
    """
    for i in range(codes.shape[0]):
        c = codes[i]
        if c < 0:
            begin[i] = 0
            end[i] = 0
            continue
        next_one = _from(other, starts[c], starts[c + 1], ts[i])
        low = next_one
        if ts[i] < floor:
            low = _from(other, next_one, starts[c + 1], floor)
        elif count[i] <= cap:
            low = _from(other, starts[c], next_one, ts[i] - window)
        begin[i] = low
        high = _from(other, next_one, starts[c + 1], ts[i] + window + 1)
        end[i] = max(low, min(high, next_one + cap - 1))
