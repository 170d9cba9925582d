"""The join of two streams under constraints: rows are linked by what clusters, and dropped once they are certain to
find no partner."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.state.kernels import allocating_kernel, copied, inlined, kernel

Array = np.ndarray[Any, Any]

# a side's rows: int64 [rows, 8]
NEXT = 0  # its neighbours in the list of its link, newest first; -1 none
BEFORE = 1
LINK = 2
KEY = 3
UNTIL = 4  # the instant at which it leaves its window
DEADLINE = 5  # the ordinal of the parents' stream from which on it finds no parent
VALUE = 6  # what an ordered column of the other stream is compared with
BORN = 7  # its ordinal

# place: int64 [2, 3], of each side's clusters
BASE = 0  # the position of the first in `recent`
OUT = 1  # the first position whose value may still go on
COUNT = 2  # one past the last

# links: int64 [links, 5]
HEAD = 0  # and 1: the newest row of each side, -1 none
LAST = 2  # and 3: the position of the last tuple of each side while its cluster may go on, else -1
USES = 4


@inlined
def _unlink(row: int, side: int, rows: Array, links: Array) -> None:
    before = rows[row, BEFORE]
    after = rows[row, NEXT]
    if before >= 0:
        rows[before, NEXT] = after
    else:
        links[rows[row, LINK], HEAD + side] = after
    if after >= 0:
        rows[after, BEFORE] = before
    links[rows[row, LINK], USES] -= 1


@inlined
def _link(row: int, side: int, rows: Array, links: Array) -> None:
    link = rows[row, LINK]
    head = links[link, HEAD + side]
    rows[row, BEFORE] = -1
    rows[row, NEXT] = head
    if head >= 0:
        rows[head, BEFORE] = row
    links[link, HEAD + side] = row
    links[link, USES] += 1


@allocating_kernel
def join_constrained(
    events: Array,
    left_rows: Array,
    right_rows: Array,
    links: Array,
    left_recent: Array,
    right_recent: Array,
    place: Array,
    within: Array,
    child: int,
) -> tuple[Array, Array, Array, Array, Array]:
    """Tuples in order into the tables: (event, left row, right row) of the pairs, and the rows to release of each side.

    events: int64 [n, 6]: side, row, instant, ordinal in the stream, how far that is in order, whether it may
    stay; what its row says stands in the rows already.  recent: int64, of each side the links of positions from BASE
    on, these events' among them; within: int64 [2], k of each side's clusters, negative none; child: the side whose
    tuples have one partner at most, -1 none.
    """
    n = events.shape[0]
    room = 2 * n + 16
    out_at = np.empty(room, np.int64)
    out_left = np.empty(room, np.int64)
    out_right = np.empty(room, np.int64)
    written = 0
    gone_left = np.empty(left_rows.shape[0] + n, np.int64)
    gone_right = np.empty(right_rows.shape[0] + n, np.int64)
    lefts = 0
    rights = 0
    for i in range(n):
        side = events[i, 0]
        own = events[i, 1]
        now = events[i, 2]
        ordinal = events[i, 3]
        mark = events[i, 4]
        left = side == 0
        link = left_rows[own, LINK] if left else right_rows[own, LINK]
        key = left_rows[own, KEY] if left else right_rows[own, KEY]
        other = links[link, HEAD + 1 - side]
        matched = False
        begun = False
        while other >= 0:
            if left:
                after = right_rows[other, NEXT]
                fits = right_rows[other, UNTIL] > now and right_rows[other, DEADLINE] > ordinal
                fits = fits and right_rows[other, VALUE] >= mark
                same = right_rows[other, KEY] == key
            else:
                after = left_rows[other, NEXT]
                fits = left_rows[other, UNTIL] > now and left_rows[other, DEADLINE] > ordinal
                fits = fits and left_rows[other, VALUE] >= mark
                same = left_rows[other, KEY] == key
            begun = begun or fits
            if fits and same:
                matched = True
                if written == room:
                    room *= 2
                    a = np.empty(room, np.int64)
                    b = np.empty(room, np.int64)
                    c = np.empty(room, np.int64)
                    copied(written, out_at, a)
                    copied(written, out_left, b)
                    copied(written, out_right, c)
                    out_at = a
                    out_left = b
                    out_right = c
                out_at[written] = i
                out_left[written] = own if left else other
                out_right[written] = other if left else own
                written += 1
                if child == 1 - side:
                    if left:
                        _unlink(other, 1, right_rows, links)
                        gone_right[rights] = other
                        rights += 1
                    else:
                        _unlink(other, 0, left_rows, links)
                        gone_left[lefts] = other
                        lefts += 1
            other = after
        stays = events[i, 5] != 0 and not (child == side and matched)
        if within[1 - side] >= 0 and begun and links[link, LAST + 1 - side] < 0:
            stays = False  # all that it could find has come and gone
        if left:
            if stays:
                _link(own, 0, left_rows, links)
            else:
                gone_left[lefts] = own
                lefts += 1
        elif stays:
            _link(own, 1, right_rows, links)
        else:
            gone_right[rights] = own
            rights += 1
        if within[side] >= 0:
            at = place[side, COUNT]
            place[side, COUNT] = at + 1
            links[link, LAST + side] = at
            links[link, USES] += 1
            while place[side, OUT] <= at - within[side] - 1:
                out = place[side, OUT]
                place[side, OUT] = out + 1
                over = left_recent[out - place[side, BASE]] if left else right_recent[out - place[side, BASE]]
                links[over, USES] -= 1
                if links[over, LAST + side] == out:
                    links[over, LAST + side] = -1
                    row = links[over, HEAD + 1 - side]
                    while row >= 0:
                        if left:
                            after = right_rows[row, NEXT]
                            _unlink(row, 1, right_rows, links)
                            gone_right[rights] = row
                            rights += 1
                        else:
                            after = left_rows[row, NEXT]
                            _unlink(row, 0, left_rows, links)
                            gone_left[lefts] = row
                            lefts += 1
                        row = after
    return out_at[:written], out_left[:written], out_right[:written], gone_left[:lefts], gone_right[:rights]


@kernel
def drop_rows(gone: Array, side: int, rows: Array, links: Array) -> None:
    """Take rows (int64 [n]) of a side out of their lists."""
    for i in range(gone.shape[0]):
        _unlink(gone[i], side, rows, links)


@kernel
def link_rows(codes: Array, side: int, rows: Array, links: Array) -> None:
    """Put rows (int64 [n], the oldest first) at the heads of their lists."""
    for i in range(codes.shape[0]):
        _link(codes[i], side, rows, links)


@kernel
def count_recent(recent: Array, side: int, links: Array) -> None:
    """Positions from 0 on, of these links, are the last ones of a side's clusters."""
    for at in range(recent.shape[0]):
        links[recent[at], LAST + side] = at
        links[recent[at], USES] += 1
