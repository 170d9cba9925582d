"""Kernels over tuples listed by key: how many pairs each key has, and these pairs, some of them, or the outliers."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.kernels import U8, inlined, kernel

__all__ = [
    "AT", "draw_keys", "outliers_by_key", "pairs_by_key", "repeat_texts", "scatter_by_key", "times_of", "write_keys",
    "write_outliers",
]  # fmt: skip

Array = np.ndarray[Any, Any]
_ENDS = np.iinfo(np.int64)
_LEAST, _MOST = _ENDS.min, _ENDS.max
AT, _PAST, _DONE = range(3)
"""Places of progress: keys done, left tuples done of the next one, and pairs written of the next of these."""


@inlined
def _since(ts: int, window: int) -> int:
    return ts - window if ts >= _LEAST + window else _LEAST


@inlined
def _until(ts: int, window: int) -> int:
    return ts + window if ts <= _MOST - window else _MOST


# Unsigned places: of others each access asks whether it counts from the end, and no loop over columns becomes a copy.
@kernel
def times_of(ts: Array, listed: Array, times: Array) -> None:
    """times[i] = ts[listed[i]]: int64; listed: int32."""
    for i in range(listed.shape[0]):
        times[i] = ts[U8(listed[i])]


@kernel
def pairs_by_key(
    rows: Array, left: Array, right: Array, window: int, begin: Array, many: Array, pairs: Array
) -> int:  # fmt: skip
    """Which right tuples each left one joins, how many pairs each key has, and all: one pass along the lists.

    rows: int32 [keys, 4], of each key the ends of its left and of its right tuples in the lists, and where these begin;
    left, right: int64, the times of the tuples by list, ns, a key's not falling; window: ns, below 0 for none; begin,
    many: int32, of each left tuple by list the first right one that it joins, and how many; pairs: int64 [keys].
    """
    total = np.int64(0)
    for key in range(rows.shape[0]):
        low, end = U8(rows[key, 3]), U8(rows[key, 1])
        high = low
        found = np.int64(0)
        for i in range(U8(rows[key, 2]), U8(rows[key, 0])):
            if window < 0:
                high = end
            else:
                since, until = _since(left[i], window), _until(left[i], window)
                while low < end and right[low] < since:
                    low += U8(1)
                high = max(high, low)
                while high < end and right[high] <= until:
                    high += U8(1)
            begin[i] = low
            many[i] = high - low
            found += np.int64(high - low)
        pairs[key] = found
        total += found
    return int(total)


@kernel
def write_keys(
    order: Array, rows: Array, begin: Array, many: Array, left: Array, right: Array, left_listed: Array,
    right_listed: Array, values: Array, alike: bool, progress: Array, left_out: Array, right_out: Array, left_ts: Array,
    right_ts: Array, key_out: Array,
) -> int:  # fmt: skip
    """The pairs of whole keys, by the left tuple and then by the right one, until the output is full; returns how many.

    order: int64 [m], keys; rows, begin, many, left, right: as `pairs_by_key`; listed: int32, what the tuples by list
    are told as; values: int64, the key of a left tuple by what that is told as ([0]: not wanted); alike: whether
    all tuples of a key have the same; progress: uint64 [3],
    zeros; *_out, *_ts: int64 [room], key_out too, or [0].
    """
    room, n = U8(left_out.shape[0]), U8(0)
    named = values.shape[0] > 0
    at, past, done = progress[AT], progress[_PAST], progress[_DONE]
    while at < U8(order.shape[0]):
        key = order[at]
        last = U8(rows[key, 0])
        value = values[U8(left_listed[U8(rows[key, 2])])] if named else np.int64(0)
        i = U8(rows[key, 2]) + past
        while i < last:
            first = U8(begin[i]) + done
            m = min(U8(many[i]) - done, room - n)
            if m > U8(0):
                told, ts = np.int64(left_listed[i]), left[i]
                for k in range(m):
                    left_out[n + k] = told
                for k in range(m):
                    left_ts[n + k] = ts
                for k in range(m):
                    right_out[n + k] = right_listed[first + k]
                for k in range(m):
                    right_ts[n + k] = right[first + k]
                if named:
                    if not alike:
                        value = values[U8(told)]
                    for k in range(m):
                        key_out[n + k] = value
                n += m
            if done + m < U8(many[i]):
                progress[AT], progress[_PAST], progress[_DONE] = at, i - U8(rows[key, 2]), done + m
                return int(n)
            done = U8(0)
            i += U8(1)
        at += U8(1)
        past = U8(0)
    progress[AT], progress[_PAST], progress[_DONE] = at, U8(0), U8(0)
    return int(n)


@kernel
def draw_keys(
    rows: Array, pairs: Array, which: Array, rate: Array, stands: Array, begin: Array, many: Array, left: Array,
    right: Array, left_listed: Array, right_listed: Array, values: Array, alike: bool, progress: Array, place: Array,
    left_out: Array, right_out: Array, left_ts: Array, right_ts: Array, key_out: Array, weight_out: Array,
) -> int:  # fmt: skip
    """A systematic sample of the pairs, key after key, until the output is full; returns how many.

    Pairs lie one after another on a line, each as long as the rate of its key; one is drawn where a whole number falls
    into it, and stands for stands[s].  pairs: int64 [keys]; which: uint8 [keys], the stratum s of each, or [0]: all are
    of 0; rate, stands: float64 [strata]; progress: int64 [2], keys done, and left tuples of the next one; place:
    float64 [2], the end of the last left tuple dealt with, and the next whole number (both from an offset in [0, 1));
    weight_out: float64 [room]; the rest as of `write_keys`.
    """
    room, n = left_out.shape[0], 0
    named, apart = values.shape[0] > 0, which.shape[0] > 0
    past = progress[1]
    end, due = place[0], place[1]
    for key in range(progress[0], rows.shape[0]):
        if pairs[key] == 0:
            continue
        stratum = which[key] if apart else 0
        share = rate[stratum]
        each = 1.0 / share
        length = share * pairs[key]
        if past == 0 and end + length <= due:
            end += length
            continue
        value = values[U8(left_listed[U8(rows[key, 2])])] if named else np.int64(0)
        for i in range(rows[key, 2] + past, rows[key, 0]):
            since = end
            end += share * many[i]
            while due < end:
                if n == room:
                    progress[0], progress[1] = key, i - rows[key, 2]
                    place[0], place[1] = since, due
                    return n
                at = U8(begin[i] + min(many[i] - 1, int((due - since) * each)))
                told = left_listed[i]
                left_out[U8(n)], left_ts[U8(n)] = told, left[i]
                right_out[U8(n)], right_ts[U8(n)] = right_listed[at], right[at]
                if named:
                    key_out[U8(n)] = value if alike else values[U8(told)]
                weight_out[U8(n)] = stands[stratum]
                n += 1
                due += 1.0
        past = 0
    progress[0], progress[1] = rows.shape[0], 0
    place[0], place[1] = end, due
    return n


@kernel
def scatter_by_key(
    rows: Array, left: Array, right: Array, window: int, many: Array, which: Array, level: Array, coins: Array
) -> float:  # fmt: skip
    """How much a total over a sample scatters by its tuples' own coins: the sum over all that came in.

    which: uint8 [keys], the stratum of each key, or [0]: all are of 0; level, float64 [strata], coins, float64 [2,
    strata]: the rates of keys and of either stream's tuples; the rest as of `pairs_by_key`.
    """
    total = 0.0
    apart = which.shape[0] > 0
    for key in range(rows.shape[0]):
        s = which[key] if apart else 0
        heads, tails = level[s] * (1.0 - coins[0, s]), level[s] * (1.0 - coins[1, s])
        if heads == 0.0 and tails == 0.0:
            continue
        each = 1.0 / (level[s] * coins[0, s] * coins[1, s])
        for i in range(rows[key, 2], rows[key, 0]):
            total += heads * (each * many[i]) ** 2
        low = high = rows[key, 2]
        for j in range(rows[key, 3], rows[key, 1]):
            if window < 0:
                high = rows[key, 0]
            else:
                since, until = _since(right[j], window), _until(right[j], window)
                while low < rows[key, 0] and left[low] < since:
                    low += 1
                high = max(high, low)
                while high < rows[key, 0] and left[high] <= until:
                    high += 1
            total += tails * (each * (high - low)) ** 2
    return total


@inlined
def _is_crowded(ts: Array, begin: int, end: int, window: int, cap: int) -> bool:
    """Whether from the `cap`-th on each of a key's tuples has as many before it in the window."""
    crowded = True
    if window >= 0:
        for i in range(begin + cap, end):  # without a way out: several at once
            crowded &= ts[U8(i - cap)] >= _since(ts[U8(i)], window)
    return crowded


@kernel
def outliers_by_key(
    rows: Array, left: Array, right: Array, window: int, cap: int, times: Array, place: Array, at: Array, high: Array,
    many: Array, standing: Array,
) -> int:  # fmt: skip
    """The arrivals that complete pairs while at most `cap` tuples of their key stand in both windows; returns how many.

    Of a key the earlier tuple arrives first, of two at once the left one.  rows, left, right, window: as of
    `pairs_by_key`; times, int64, place, int32 [all tuples]: room for one key's; of each such arrival, int32 [all tuples
    + 1]: at, its place in its list, ~place of a right one; high, many: partners are at [high - many, high) of the other
    list; standing: tuples in both windows, itself included.
    """
    found = 0
    for key in range(rows.shape[0]):
        i, j, left_end, right_end = rows[key, 2], rows[key, 3], rows[key, 0], rows[key, 1]
        if i == left_end or j == right_end:
            continue
        before, both = i + j, left_end - i + right_end - j
        if both == 2 <= cap:  # most keys, where nearly every tuple has its own: nothing branches on what they are
            earlier, later = min(left[i], right[j]), max(left[i], right[j])
            is_right = right[j] >= left[i]
            at[found] = ~j if is_right else i
            high[found] = i + 1 if is_right else j + 1
            many[found], standing[found] = 1, 2
            found += 1 if window < 0 or earlier >= _since(later, window) else 0
            continue
        # Of a key that is always frequent only the first tuples can be outliers.
        crowded = _is_crowded(left, i, left_end, window, cap) and _is_crowded(right, j, right_end, window, cap)
        past_left, past_right = i + cap, j + cap
        for p in range(both):
            if crowded and i >= past_left and j >= past_right:
                break
            mine, other = left[min(i, left_end - 1)], right[min(j, right_end - 1)]
            is_right = (i == left_end) | ((j < right_end) & (other < mine))
            ts = other if is_right else mine
            own = ~j if is_right else i
            j += 1 if is_right else 0
            i += 0 if is_right else 1
            times[p], place[p] = ts, own
            since = _since(ts, window) if window >= 0 else _LEAST
            if p >= cap and times[p - cap] >= since:
                continue
            partners, around = 0, 1
            while around <= p and times[p - around] >= since:
                partners += 1 if (place[p - around] < 0) != is_right else 0
                around += 1
            at[found] = own
            high[found] = before + p - (~own if is_right else own)
            many[found], standing[found] = partners, around
            found += 1 if partners > 0 else 0
    return found


@kernel
def write_outliers(
    order: Array, at: Array, high: Array, many: Array, left: Array, right: Array, left_listed: Array,
    right_listed: Array, values: Array, _alike: bool, progress: Array, left_out: Array, right_out: Array,
    left_ts: Array, right_ts: Array, key_out: Array,
) -> int:  # fmt: skip
    """The pairs of arrivals, in the order of `order`, newest partner first, until the output is full; returns how many.

    order: int64 [m]; at, high, many: as of `outliers_by_key`; progress: int64 [2], zeros, arrivals done and pairs of
    the next one done; the rest as of `write_keys`.
    """
    room, n = left_out.shape[0], 0
    named = values.shape[0] > 0
    done = progress[1]
    for k in range(progress[0], order.shape[0]):
        own, last, partners = at[order[k]], high[order[k]] - 1, many[order[k]]
        for back in range(done, partners):
            if n == room:
                progress[0], progress[1] = k, back
                return n
            i = U8(last - back if own < 0 else own)
            j = U8(~own if own < 0 else last - back)
            told = left_listed[i]
            left_out[U8(n)], left_ts[U8(n)] = told, left[i]
            right_out[U8(n)], right_ts[U8(n)] = right_listed[j], right[j]
            if named:
                key_out[U8(n)] = values[U8(told)]
            n += 1
        done = 0
    progress[0], progress[1] = order.shape[0], 0
    return n


@kernel
def repeat_texts(
    data: Array, ends: Array, places: Array, often: Array, out_data: Array, out_ends: Array
) -> None:  # fmt: skip
    """Texts, each so often, one after the other: places: int64 [m], which; often: int64 [m].

    data: uint8, ends: int32, of all texts, as Arrow has them; out_data: uint8, with room for what comes; out_ends:
    int32 [n + 1], the first of them 0.  What is written of a text is copied, twice as much each time.
    """
    at, n = U8(0), U8(0)
    for r in range(places.shape[0]):
        first, times = U8(ends[places[r]]), U8(often[r])
        size = U8(ends[places[r] + 1]) - first
        for k in range(size):
            out_data[at + k] = data[first + k]
        done, whole = size, size * times
        while done < whole:
            more = min(done, whole - done)
            begin = at + done
            for k in range(more):
                out_data[begin + k] = out_data[at + k]
            done += more
        for k in range(times):
            n += U8(1)
            out_ends[n] = at + size * (k + U8(1))
        at += whole
