"""The exact join whose outputs are range records: a directory of counts, and nothing else.

Design.  A rank never changes, so the range of a probe is two counts of its key in the other stream: how many tuples
left the window, and how many came.  Both streams' counts of a key lie in one record, so inserting a tuple and
probing with it touch one cache line, and no list is read: whoever expands a record fills the lists, in bulk.
Tuples leave in the order they came, both streams together, so one cursor expires them all.
Cost.  O(1) a tuple.  What costs most is what the processor cannot foresee: which stream is next, whether there is a
match, how many tuples leave before a probe.  So a batch is merged first, a record is written before it is known to
count, and tuples leave three at a time, by adding 0 or 1; only more than that is a jump.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nile.preferences import state as js
from nile.preferences.state import Output, State
from nile.summaries.kernels import U8, inlined, kernel, part

Array = np.ndarray[Any, Any]
AHEAD = 3
"""Tuples that leave at once: so many more places than tuples are in `until` and `slots`."""
BATCH = 256
"""Arrivals merged at once."""
_FAR = (1 << 63) - 1


class Streams(NamedTuple):
    """Both streams as they come, one place each at least."""

    left_ts: Array  # int64, ns
    left_code: Array  # int32, -1 null
    right_ts: Array
    right_code: Array


class Counted(NamedTuple):
    """The directory of k keys, and what is kept of n arrivals.  Whole: int32, or int64 where numbers are larger."""

    counts: Array  # whole [4 k + 4], 0 at first; the null key's, then each key's: tuples of left, of right, how many
    # of those left the window
    until: Array  # int64 [n + AHEAD]: of each arrival merged, the last moment it joins with
    slots: Array  # whole [n + AHEAD]: its place in counts
    times: Array  # int64 [BATCH]: when those of the batch in work came
    cursor: Array  # int64 [1], 0 at first: arrivals that have left the window


@inlined
def _put(i: int, begin: int, side: int, left: np.uint64, right: np.uint64, window: int, s: Streams, c: Counted) -> None:
    """Arrival i: when it came, the last moment it joins with, and its place in counts.

    Both streams are read and one is taken, so that the stream is no jump.
    """
    left_ts, right_ts = s.left_ts[left], s.right_ts[right]
    left_code, right_code = s.left_code[left], s.right_code[right]
    ts = right_ts if side else left_ts
    c.times[U8(i - begin)] = ts
    c.until[U8(i)] = min(ts, _FAR - window) + window
    c.slots[U8(i)] = 4 * ((right_code if side else left_code) + 1) + side


@part
def _merge(order: Array, begin: int, end: int, lefts: int, window: int, s: Streams, c: Counted) -> None:
    """Merge arrivals begin..end-1, of which the left stream's come from its place `lefts` on."""
    rights = begin - lefts
    last_left, last_right = s.left_ts.shape[0] - 1, s.right_ts.shape[0] - 1
    inside = min(end, begin + min(last_left - lefts, last_right - rights))  # neither stream can end before
    for i in range(begin, inside):
        side = order[U8(i)]
        _put(i, begin, side, U8(lefts), U8(rights), window, s, c)
        lefts += 1 - side
        rights += side
    for i in range(max(begin, inside), end):
        side = order[U8(i)]
        _put(i, begin, side, U8(min(lefts, last_left)), U8(min(rights, last_right)), window, s, c)
        lefts += 1 - side
        rights += side
    for i in range(end, end + AHEAD):  # nobody, who never leaves
        c.until[U8(i)] = _FAR
        c.slots[U8(i)] = 0


@kernel
def probe_ranges(order: Array, end: int, streams: Streams, counted: Counted, st: State, out: Output) -> int:
    """Join everything, in order, to arrival `end`: a record of each tuple's range, where it has matches.

    order: int8 [n], the stream of each arrival.  Spends, and stops, as `probe_kernels.probe` does; what is granted is
    the caller's to count.
    """
    w = st.whole
    real = st.real
    window = st.window[0]
    first, second, third, weight = out.first, out.second, out.third, out.weight
    room = first.shape[0]
    begin = now = w[js.APPLIED]
    begin_at = at = w[js.WRITTEN]
    lefts = w[js.SEQUENCE]
    counts, until, slots, times = counted.counts, counted.until, counted.slots, counted.times
    gone = counted.cursor[0]
    while now < end and at < room:
        start = now
        stop = now + min(min(end - now, room - at), BATCH)
        _merge(order, start, stop, lefts, window, streams, counted)
        while now < stop:
            ts = times[U8(now - start)]
            own = np.int64(slots[U8(now)])
            while True:
                a = np.int64(until[U8(gone)] < ts)
                b = np.int64(until[U8(gone + 1)] < ts)
                c = np.int64(until[U8(gone + 2)] < ts)
                counts[U8(slots[U8(gone)] + 2)] += a
                counts[U8(slots[U8(gone + 1)] + 2)] += b
                counts[U8(slots[U8(gone + 2)] + 2)] += c
                gone += a + b + c
                if a + b + c < AHEAD:
                    break
            counts[U8(own)] += 1
            side = own & 1
            low = np.int64(counts[U8((own ^ 1) + 2)])
            high = np.int64(counts[U8(own ^ 1)])
            first[U8(at)] = 2 * (now - lefts if side else lefts) + side
            second[U8(at)] = low
            third[U8(at)] = high
            weight[U8(at)] = 1.0
            at += np.int64(low < high) & np.int64(own >= 4)
            lefts += 1 - side
            now += 1
    nulls = np.int64(counts[0]) + np.int64(counts[1])
    admitted = now - begin - (nulls - w[js.NULLS])
    counted.cursor[0] = gone
    w[js.SEQUENCE] = lefts
    w[js.SEQUENCE + 1] = now - lefts
    w[js.ARRIVED] = w[js.APPLIED] = now
    w[js.NULLS] = nulls
    w[js.ADMITTED] += admitted
    w[js.REGIONS] += at - begin_at
    w[js.WRITTEN] = at
    w[js.OUTPUTS] += at - begin_at
    inserting = st.prices[js.P_INSERT] * admitted
    hitting = st.prices[js.P_LOOKUP] * admitted + st.prices[js.P_EMIT] * (at - begin_at)
    real[js.SPENT_INSERT] += inserting
    real[js.SPENT_HIT] += hitting
    real[js.SPENT] += inserting + hitting
    return js.DONE if now == end else js.OUTPUT_FULL
