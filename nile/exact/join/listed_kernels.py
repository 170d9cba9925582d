"""The join of two whole streams by lists: where the tuples of each key stand, in order, and which of them are in reach.

A key has a row of four positions in the lists: where its next left and right tuple will stand, and where the first one
in the window does.  What an arrival joins lies between two of them, one after the other in memory: no chain is walked.
What costs most where few join is what the processor cannot foresee: which stream is next, how many leave, whether
there is a partner.  So a batch is merged first, tuples leave by adding 0 or 1, and a find is noted before it is known
to be one.
Imports nothing of the lower floors on purpose: a fault there cannot reach here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nile.exact.state.kernels import fetch, inlined, kernel, part

__all__ = [
    "BATCH", "DONE", "FIRST", "LEFT_DONE", "LEFT_GONE", "NEXT", "RIGHT_DONE", "RIGHT_GONE", "ROOM", "begin_lists",
    "count_keys", "hold_keys", "pass_keys", "place_keys", "rewind", "write_pairs",
]  # fmt: skip

Array = np.ndarray[Any, Any]

_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
U8 = np.uint64
NEXT, FIRST = 0, 2
"""Columns of a key's row: of left, and one further of right."""
LEFT_DONE, RIGHT_DONE, LEFT_GONE, RIGHT_GONE, DONE = range(5)
"""Places of progress: tuples of either stream dealt with and expired, and pairs written of the one that is next."""
_LEAVE = 3
"""Tuples that leave the window at once."""
BATCH = 256
"""Arrivals merged at once."""
ROOM = BATCH + 2 * _LEAVE
"""Room for them, and for those that leave meanwhile."""
_FIRST = 16
"""Of a call's first batch: each has twice as many as the one before, so that few are merged in vain."""


class Streams(NamedTuple):
    """Both streams as they come."""

    left_ts: Array
    left_code: Array
    right_ts: Array
    right_code: Array


@kernel
def count_keys(code: Array, side: int, rows: Array) -> None:
    """Add the tuples of each key.  code: int64 [n], below 0 for null; side: 0 left, 1 right; rows: int32 [keys, 4]."""
    for i in range(code.shape[0]):
        if code[i] >= 0:
            rows[code[i], side] += 1


@kernel
def begin_lists(rows: Array) -> float:
    """From the tuples of each key in each piece of the streams, where the next one of it will stand in the lists.

    rows: int32 [pieces, keys, 4]; also the first place of each key, in all pieces.  Returns how many pairs there are
    without a window.  O(pieces keys).
    """
    left = right = np.int32(0)
    pairs = 0.0
    for key in range(rows.shape[1]):
        first, second = left, right
        for piece in range(rows.shape[0]):
            row = rows[piece, key]
            row[2], row[3] = first, second
            row[0], left = left, left + row[0]
            row[1], right = right, right + row[1]
        pairs += np.float64(left - first) * np.float64(right - second)
    return pairs


@kernel
def place_keys(code: Array, begin: int, side: int, rows: Array, listed: Array, at: Array) -> None:
    """Put the tuples of a piece, the first of which is the `begin`-th, into the list: each key's in order.

    listed: int32 or int64; at: int64, what each tuple of the stream is told as; [0]: its ordinal.
    """
    named = at.shape[0] > 0
    for i in range(code.shape[0]):
        key = code[i]
        if key >= 0:
            listed[rows[key, side]] = at[begin + i] if named else begin + i
            rows[key, side] += 1


@kernel
def rewind(rows: Array) -> None:
    """Go back to before the first tuple.  rows: int32 [keys, 4]."""
    for key in range(rows.shape[0]):
        rows[key, 0] = rows[key, 2]
        rows[key, 1] = rows[key, 3]


@kernel
def pass_keys(code: Array, column: int, rows: Array) -> None:
    """Go past tuples: `column` is `NEXT` or `FIRST` and the side."""
    for i in range(code.shape[0]):
        if code[i] >= 0:
            rows[code[i], column] += 1


@kernel
def hold_keys(code: Array, side: int, rows: Array) -> None:
    """Let the window of a side hold these tuples, the last ones before the next, and nothing else."""
    for key in range(rows.shape[0]):
        rows[key, FIRST + side] = rows[key, side]
    for i in range(code.shape[0]):
        if code[i] >= 0:
            rows[code[i], FIRST + side] -= 1


@inlined
def _next(s: Streams, i: Any, j: Any, at: Any, times: Array, slots: Array) -> Any:
    """The tuple that comes first of the i-th of left and the j-th of right (left at a tie): its time and its place in
    the rows, at a place of a batch.  Returns which stream's it is, and 1 unless it is null, and so has no place.

    Both streams are read and one is taken, so that which one is no jump.
    """
    left_ts, right_ts = s.left_ts[U8(i)], s.right_ts[U8(j)]
    left_code, right_code = s.left_code[U8(i)], s.right_code[U8(j)]
    side = np.int64(left_ts > right_ts)
    code = right_code if side else left_code
    times[U8(at)] = right_ts if side else left_ts
    slots[U8(at)] = 4 * code + side
    return side, np.int64(code >= 0)


@part
def _merge(
    s: Streams, i: int, j: int, n: int, m: int, at: Any, end: int, times: Array, slots: Array, tuples: Array
) -> tuple[int, int, int]:
    """Merge the tuples of both streams, but null ones, from their i-th and j-th to n and m, into places at..end-1 of a
    batch: their times, places in the rows, and if `tuples` has room for it, ordinals.

    Returns the first tuples that it has not come to, and the end of what it wrote.
    """
    told = tuples.shape[0] > 0
    while at < end and i < n and j < m:
        side, is_one = _next(s, i, j, at, times, slots)
        if told:
            tuples[U8(at)] = j if side else i
        i += 1 - side
        j += side
        at += is_one
    while at < end and i < n:
        times[U8(at)], slots[U8(at)] = s.left_ts[U8(i)], 4 * s.left_code[U8(i)]
        if told:
            tuples[U8(at)] = i
        at += np.int64(s.left_code[U8(i)] >= 0)
        i += 1
    while at < end and j < m:
        times[U8(at)], slots[U8(at)] = s.right_ts[U8(j)], 4 * s.right_code[U8(j)] + 1
        if told:
            tuples[U8(at)] = j
        at += np.int64(s.right_code[U8(j)] >= 0)
        j += 1
    return i, j, at


@kernel
def write_pairs(
    left_ts: Array,
    right_ts: Array,
    left_code: Array,
    right_code: Array,
    left_end: int,
    right_end: int,
    window: int,
    rows: Array,
    listed: Array,
    left_at: Array,
    right_at: Array,
    progress: Array,
    batch: Array,
    out: Array,
) -> int:
    """Write pairs of ordinals until all are written or the output is full, in the order in which they complete, those
    of an arrival from its newest partner back; returns how many.

    ts: int64 ns, not falling; code: int64, below 0 for null; *_end: the first tuples that have no turn; rows, listed:
    as of `begin_lists` and `place_keys`, flat, the list of right behind that of left; *_at: as that takes them;
    window: ns, below 0 for the whole streams; progress: int64 [5], zeros; batch: int64 [8, `ROOM`]; out: int64
    [2, room].  O(tuples + pairs).
    """
    n, m = left_end, right_end
    i, j = progress[LEFT_DONE], progress[RIGHT_DONE]
    left_gone, right_gone = progress[LEFT_GONE], progress[RIGHT_GONE]
    skip = progress[DONE]
    named = left_at.shape[0] + right_at.shape[0] > 0
    streams = Streams(left_ts, left_code, right_ts, right_code)
    times, slots, tuples, until, leaving = batch[0], batch[1], batch[2], batch[3], batch[4]
    found, newest, standing = batch[5], batch[6], batch[7]
    rights = left_ts.shape[0]  # where the list of right begins
    if rights == 0 or right_ts.shape[0] == 0:  # nobody to join
        progress[LEFT_DONE], progress[RIGHT_DONE] = n, m
        return 0
    room = out.shape[1]
    written = np.int64(0)
    most = _FIRST
    gone = gone_end = 0
    late_left, late_right = left_gone, right_gone
    before = _LEAST
    full = False
    while not full and (i < n or j < m):
        begin_left, begin_right = i, j
        i, j, end = _merge(streams, i, j, n, m, 0, most, times, slots, tuples)
        for at in range(end):
            fetch(rows, slots[U8(at)])
        most = min(2 * most, BATCH)
        total, records, now = written - skip, np.int64(0), 0
        while now < end and total <= room:
            if gone + _LEAVE > gone_end:
                rest = gone_end - gone
                for at in range(rest):
                    until[at], leaving[at] = until[gone + at], leaving[gone + at]
                gone, gone_end = 0, rest
                if window >= 0:
                    late_left, late_right, gone_end = _merge(
                        streams, late_left, late_right, n, m, rest, most + _LEAVE, until, leaving, tuples[:0]
                    )
                    for at in range(rest, gone_end):
                        until[U8(at)] = min(until[U8(at)], _MOST - window) + window
                if gone_end < _LEAVE:  # nobody, who never leaves
                    for at in range(gone_end, gone_end + _LEAVE):
                        until[at], leaving[at] = _MOST, 0
                    gone_end += _LEAVE
            while now < end and total <= room:
                ts = times[U8(now)]
                left = _LEAVE
                while left == _LEAVE and gone + _LEAVE <= gone_end:
                    a = np.int64(until[U8(gone)] < ts)
                    b = np.int64(until[U8(gone + 1)] < ts)
                    c = np.int64(until[U8(gone + 2)] < ts)
                    rows[U8(leaving[U8(gone)] + FIRST)] += np.int32(a)
                    rows[U8(leaving[U8(gone + 1)] + FIRST)] += np.int32(b)
                    rows[U8(leaving[U8(gone + 2)] + FIRST)] += np.int32(c)
                    left = int(a + b + c)
                    gone += left
                if left == _LEAVE:  # who else leaves is not in the batch
                    break
                slot = slots[U8(now)]
                rows[U8(slot)] += np.int32(1)
                last = np.int64(rows[U8(slot ^ 1)])
                some = last - np.int64(rows[U8((slot ^ 1) + FIRST)])
                found[U8(records)] = now
                newest[U8(records)] = last - 1
                standing[U8(records)] = some
                records += np.int64(some > 0)
                total += some
                now += 1
        if now:
            before = times[now - 1]
        if skip:
            newest[0] -= skip
            standing[0] -= skip
            skip = np.int64(0)
        if total > room:  # the last arrival has more than there is room for: it is the next one again
            full = True
            rows[slots[now - 1]] -= 1
            standing[records - 1] -= total - room
            skip = np.int64(rows[slots[now - 1] ^ 1]) - newest[records - 1] - 1 + standing[records - 1]
            records -= np.int64(standing[records - 1] == 0)
            i, j = begin_left, begin_right
            for at in range(now):
                if slots[at] & 1:
                    j = tuples[at] + np.int64(at < now - 1)
                else:
                    i = tuples[at] + np.int64(at < now - 1)
        for record in range(records):
            at, last, some = found[U8(record)], newest[U8(record)], standing[U8(record)]
            side, name = slots[U8(at)] & 1, tuples[U8(at)]
            if named:
                name = right_at[U8(name)] if side else left_at[U8(name)]
            last += rights & (side - 1)
            out[U8(side), U8(written)] = name
            out[U8(side ^ 1), U8(written)] = listed[U8(last)]
            for back in range(1, some):
                out[U8(side), written + back] = name
                out[U8(side ^ 1), written + back] = listed[last - back]
            written += some
    while window >= 0 and left_gone < i and min(left_ts[left_gone], _MOST - window) + window < before:
        left_gone += 1
    while window >= 0 and right_gone < j and min(right_ts[right_gone], _MOST - window) + window < before:
        right_gone += 1
    progress[LEFT_DONE], progress[RIGHT_DONE] = i, j
    progress[LEFT_GONE], progress[RIGHT_GONE] = left_gone, right_gone
    progress[DONE] = skip
    return int(written)
