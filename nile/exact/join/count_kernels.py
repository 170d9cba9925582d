"""How many pairs of two streams join, without the pairs: as they arrive, or over whole arrays.

Streaming, a table holds for every key of the window how many tuples of either stream it has; an arrival adds one and
reads the other, and a tuple that leaves takes one back from the slot it remembers.  The table is int64 [slots, 1] where
codes are small and dense, and a code is its own slot; or [slots, 2], (key or -1, counts), hashed.  Slots of keys that
left stay until a hashed table is laid out anew, so no probe is ever cut short.
Over whole arrays a pair need not wait for its later tuple: one pass over the left stream slides both ends of
[ts - w, ts + w] over the right one.
Cost.  O(1) a tuple, whatever the number of pairs.  Imports nothing of the lower floors on purpose.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.state.kernels import inlined, kernel

Array = np.ndarray[Any, Any]

# Columns of place, one row per stream
SEEN, FIRST, DONE = range(3)
# Entries of totals
PAIRS, USED = range(2)
# Why a kernel stops
FINISHED, CROWDED, GROW = range(3)

_LEAST = np.iinfo(np.int64).min
_MOST = np.iinfo(np.int64).max
_RIGHT = 1 << 32  # counts of both streams share a word: left below, right above
_LEFT_OF = _RIGHT - 1


@inlined
def _slot(table: Array, code: int, shift: Any, totals: Array) -> Any:
    """The slot of a key, taken if it had none."""
    if table.shape[1] == 1:
        return np.int64(code)
    mask = np.int64(table.shape[0] - 1)
    at = np.int64((np.uint64(code) * np.uint64(0x9E3779B97F4A7C15)) >> shift)
    while table[at, 0] != code:
        if table[at, 0] < 0:
            table[at, 0] = code
            totals[USED] += 1
            break
        at = (at + 1) & mask
    return at


@inlined
def _let_go(table: Array, times: Array, slots: Array, first: int, seen: int, since: int, one: int) -> Any:
    """Take back from their slots the tuples of one stream older than `since`; returns the first kept."""
    mask = np.int64(times.shape[0] - 1)
    while first < seen and times[first & mask] < since:
        slot = slots[first & mask]
        if slot >= 0:
            table[slot, table.shape[1] - 1] -= one
        first += 1
    return first


@kernel
def count_pairs(
    left_ts: Array,
    left_code: Array,
    right_ts: Array,
    right_code: Array,
    window: int,
    table: Array,
    shift: Any,
    left_times: Array,
    right_times: Array,
    left_slots: Array,
    right_slots: Array,
    place: Array,
    totals: Array,
) -> int:
    """Add to totals[PAIRS] what a batch of both streams completes, in total order; returns why it stopped.

    *_ts: int64 ns; *_code: int64, below 0 never joins; table: int64 [slots, 1 or 2]; shift: uint64, 64 less the
    bits of a slot; *_times: int64 [capacity]; *_slots: int64 [capacity], -1 of a null key; place: int64
    [2, 3].
    """
    n, m = left_ts.shape[0], right_ts.shape[0]
    i, j = place[0, DONE], place[1, DONE]
    left_base, right_base = place[0, SEEN] - i, place[1, SEEN] - j
    left_first, right_first = place[0, FIRST], place[1, FIRST]
    mask = np.int64(left_times.shape[0] - 1)
    most = np.int64(3 * table.shape[0] // 4)
    last = table.shape[1] - 1
    pairs = totals[PAIRS]
    why = FINISHED
    while i < n or j < m:
        if totals[USED] >= most:
            why = CROWDED
            break
        if j == m or (i < n and left_ts[i] <= right_ts[j]):
            ts, own = left_ts[i], left_base + i
            since = ts - window if ts >= _LEAST + window else _LEAST
            if own - left_first > mask:
                left_first = _let_go(table, left_times, left_slots, left_first, own, since, 1)
                if own - left_first > mask:
                    why = GROW
                    break
            seen = right_base + j
            right_first = _let_go(table, right_times, right_slots, right_first, seen, since, _RIGHT)
            slot = np.int64(-1)
            if left_code[i] >= 0:
                slot = _slot(table, left_code[i], shift, totals)
                both = table[slot, last]
                pairs += both >> 32
                table[slot, last] = both + 1
            left_times[own & mask] = ts
            left_slots[own & mask] = slot
            i += 1
        else:
            ts, own = right_ts[j], right_base + j
            since = ts - window if ts >= _LEAST + window else _LEAST
            if own - right_first > mask:
                right_first = _let_go(table, right_times, right_slots, right_first, own, since, _RIGHT)
                if own - right_first > mask:
                    why = GROW
                    break
            seen = left_base + i
            left_first = _let_go(table, left_times, left_slots, left_first, seen, since, 1)
            slot = np.int64(-1)
            if right_code[j] >= 0:
                slot = _slot(table, right_code[j], shift, totals)
                both = table[slot, last]
                pairs += both & _LEFT_OF
                table[slot, last] = both + _RIGHT
            right_times[own & mask] = ts
            right_slots[own & mask] = slot
            j += 1
    place[0, SEEN], place[1, SEEN] = left_base + i, right_base + j
    place[0, FIRST], place[1, FIRST] = left_first, right_first
    place[0, DONE], place[1, DONE] = i, j
    totals[PAIRS] = pairs
    return why


@kernel
def expire(table: Array, times: Array, slots: Array, place: Array, side: int, since: int) -> None:
    """Let go of the tuples of one stream older than `since`."""
    one = _RIGHT if side == 1 else 1
    place[side, FIRST] = _let_go(table, times, slots, place[side, FIRST], place[side, SEEN], since, one)


@kernel
def lay_out(
    table: Array, times: Array, slots: Array, new_table: Array, shift: Any, new_times: Array, new_slots: Array,
    place: Array, side: int, totals: Array,
) -> None:  # fmt: skip
    """Put what is kept of one stream into a ring of another capacity and a table that has only keys of the window."""
    mask = np.int64(times.shape[0] - 1)
    new_mask = np.int64(new_times.shape[0] - 1)
    for p in range(place[side, FIRST], place[side, SEEN]):
        slot = slots[p & mask]
        if slot >= 0:
            key = slot if table.shape[1] == 1 else table[slot, 0]
            slot = _slot(new_table, key, shift, totals)
            new_table[slot, new_table.shape[1] - 1] += _RIGHT if side == 1 else 1
        new_times[p & new_mask] = times[p & mask]
        new_slots[p & new_mask] = slot


@kernel
def count_whole(
    left_ts: Array, left_code: Array, right_ts: Array, right_code: Array, window: int, counts: Array
) -> Any:
    """Pairs of two whole streams, whose codes are below counts.shape[0] (int32, all 0)."""
    m = right_ts.shape[0]
    low, high = 0, 0
    pairs = np.int64(0)
    for i in range(left_ts.shape[0]):
        ts = left_ts[i]
        until = ts + window if ts <= _MOST - window else _MOST
        since = ts - window if ts >= _LEAST + window else _LEAST
        while high < m and right_ts[high] <= until:
            if right_code[high] >= 0:
                counts[right_code[high]] += 1
            high += 1
        while low < high and right_ts[low] < since:
            if right_code[low] >= 0:
                counts[right_code[low]] -= 1
            low += 1
        if left_code[i] >= 0:
            pairs += counts[left_code[i]]
    return pairs


@kernel
def fill(
    table: Array, times: Array, slots: Array, shift: Any, side: int, ts: Array, code: Array, ordinal: int,
    totals: Array,
) -> None:  # fmt: skip
    """Put tuples of one stream into a ring and a table that have room for them, from `ordinal` on."""
    mask = np.int64(times.shape[0] - 1)
    for k in range(ts.shape[0]):
        slot = np.int64(-1)
        if code[k] >= 0:
            slot = _slot(table, code[k], shift, totals)
            table[slot, table.shape[1] - 1] += _RIGHT if side == 1 else 1
        times[(ordinal + k) & mask] = ts[k]
        slots[(ordinal + k) & mask] = slot


@kernel
def count_cliques(
    times: Array, stream: Array, code: Array, window: int, held: Array, completed: Array, standing: Array
) -> tuple[float, float]:
    """Combinations that each arrival of n streams completes in one window: (the most of one, of all), as doubles.

    times: int64 [N] ns, stream: int8 [N], code: int64 [N], below 0 for null: in total order; window: ns, below 0 for
    the whole streams; held: int32 [codes, n], zeros: tuples of a key within the window, by stream; completed, standing:
    int64 [N], combinations (where they are below 2**63), and tuples of the key in the window, the arrival's included.
    """
    most = whole = 0.0
    gone = 0
    for i in range(times.shape[0]):
        if window >= 0:
            since = times[i] - window if times[i] >= _LEAST + window else _LEAST
            while times[gone] < since:
                if code[gone] >= 0:
                    held[code[gone], stream[gone]] -= 1
                gone += 1
        completed[i] = standing[i] = 0
        if code[i] < 0:
            continue
        row = held[code[i]]
        row[stream[i]] += 1
        found, about, stand = np.int64(1), 1.0, np.int64(0)
        for k in range(row.shape[0]):
            stand += row[k]
            if k != stream[i]:
                found *= row[k]
                about *= row[k]
        completed[i], standing[i] = found, stand
        most = max(most, about)
        whole += about
    return most, whole
