"""Kernels over raw keys, before anything is encoded: how many fall in each slot of the key space, and which come in."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.hash_kernels import mix
from nile.summaries.kernels import U8, inlined, kernel

__all__ = [
    "admit", "admit_values", "kinds_of", "near_by_key", "slot_counts", "slots_of", "sum_slots", "take_kinds",
    "times_met", "value_counts", "weigh_outliers", "weigh_slots", "window_ranges", "write_best",
]  # fmt: skip

Array = np.ndarray[Any, Any]
_LOW = U8(0x7FFFFFFF)
_PLACE, _LOWEST = U8(16), U8(0xFFFF)
_FIRST, _LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_EQUAL, BINS = 32, 108
"""Counts that are told one from the other, and bins of these and all above: 19 octaves, a quarter each."""
_MOST = 100.0
"""Tuples expected, of which it is certain that more than a few come."""


@kernel
def slot_counts(words: Array, often: Array, seed: int, shift: int, slots: Array, counts: Array) -> None:
    """Count tuples by the slot of their key: the highest 64 - shift bits of its hash.

    words: int64 [n]; often: int32 [n], how many tuples have each, or [0]: one; slots: uint64 [m], room for those of m
    tuples at a time; counts: int32 [slots].
    """
    size, single = slots.shape[0], often.shape[0] == 0
    for begin in range(0, words.shape[0], size):
        many = min(size, words.shape[0] - begin)
        for j in range(many):  # apart from what follows: several at once, where the processor can
            slots[j] = mix(words[U8(begin + j)], U8(seed)) >> U8(shift)
        for j in range(many):
            counts[slots[U8(j)]] += 1 if single else often[U8(begin + j)]


@kernel
def value_counts(at: Array, counts: Array) -> None:
    """How many tuples have each value of a dictionary.  at: int32 [n]; counts: int32 [values], zeros."""
    for i in range(at.shape[0]):
        counts[U8(at[i])] += 1


@inlined
def _bin(count: int) -> Any:
    """Counts that are alike: below 32 those that are equal, above those of a quarter of an octave."""
    if count < _EQUAL:
        return count
    octave = 0
    while count >> octave >= 2 * _EQUAL:
        octave += 1
    return min(BINS - 1, _EQUAL + 4 * octave + ((count >> octave) >> 3 & 3))


@kernel
def kinds_of(seen: Array, kinds: Array, number: Array, tuples: Array) -> None:
    """Slots that are alike by how many tuples of either stream they have.

    seen: int32 [2, slots]; kinds: uint16 [slots], below BINS squared; of each kind, [BINS squared], zeros: number,
    int64, how many slots, and tuples, int64 [2], how many of either stream they have.
    """
    for s in range(seen.shape[1]):
        left, right = seen[0, s], seen[1, s]
        kind = U8(_bin(left) * BINS + _bin(right))
        kinds[U8(s)] = kind
        number[kind] += 1
        tuples[0, kind] += left
        tuples[1, kind] += right


@kernel
def take_kinds(kinds: Array, rank: Array, begin: Array, end: Array, stratum: Array) -> None:
    """Slots from one place in the order of kinds to another: of a kind, those that come first are first.

    rank: int32 [BINS squared], of each kind, below 0: none is taken; begin, end: int64 [2], a rank, and how many slots
    of that kind are before; stratum: uint8 [slots], zeros, 1 of those that are taken.
    """
    first = last = 0
    for s in range(kinds.shape[0]):
        own = rank[U8(kinds[s])]
        if own < begin[0] or own > end[0]:
            continue
        taken = True
        if own == begin[0]:
            taken = first >= begin[1]
            first += 1
        if own == end[0]:
            taken = taken and last < end[1]
            last += 1
        stratum[U8(s)] = 1 if taken else 0


@kernel
def times_met(left: Array, right: Array, numbers: Array, times: Array) -> int:
    """How often each number is in either of two arrays that do not fall, by their bits above the lowest 16; returns how
    many there are.

    left, right: uint64; numbers: uint64 [left and right together], one of those that are equal, the left one's where
    there is one; times: int64 [2, as many].
    """
    i = j = found = 0
    while i < left.shape[0] or j < right.shape[0]:
        first = i < left.shape[0] and (j == right.shape[0] or left[i] >> _PLACE <= right[j] >> _PLACE)
        numbers[found] = left[i] if first else right[j]
        number = numbers[found] >> _PLACE
        times[0, found] = times[1, found] = 0
        while i < left.shape[0] and left[i] >> _PLACE == number:
            times[0, found] += 1
            i += 1
        while j < right.shape[0] and right[j] >> _PLACE == number:
            times[1, found] += 1
            j += 1
        found += 1
    return found


@kernel
def near_by_key(left: Array, right: Array, left_ts: Array, right_ts: Array, window: int) -> tuple[int, int]:
    """(pairs of a left and a right tuple of one key, those of them whose times lie within the window).

    left, right: uint64, rising: a hash of the key of each tuple, and its place in the lowest 16 bits; ts: int64 ns, by
    place, not falling; window: ns, 0 or more.  O(tuples).
    """
    i = j = same = near = 0
    while i < left.shape[0] and j < right.shape[0]:
        key, other = left[i] >> _PLACE, right[j] >> _PLACE
        if key != other:
            i += key < other
            j += other < key
            continue
        begin, first = i, j
        while j < right.shape[0] and right[j] >> _PLACE == key:
            j += 1
        low = high = first
        while i < left.shape[0] and left[i] >> _PLACE == key:
            ts = left_ts[left[i] & _LOWEST]
            since, until = max(ts, _FIRST + window) - window, min(ts, _LAST - window) + window
            while high < j and right_ts[right[high] & _LOWEST] <= until:
                high += 1
            while low < high and right_ts[right[low] & _LOWEST] < since:
                low += 1
            near += high - low
            i += 1
        same += (i - begin) * (j - first)
    return same, near


@kernel
def admit(
    words: Array, valid: Array, ts: Array, seed: int, shift: int, stratum: Array, level: Array, coin: Array,
    coin_seed: int, hashes: Array, out: Array, out_ts: Array, out_words: Array, came: Array,
) -> int:  # fmt: skip
    """The tuples that come in, in order: their places, times, words and strata; returns how many.

    words, seed, shift: as `slot_counts`; valid: bool [n], or [0] when no key is null; ts: int64 [n] ns; stratum: uint8
    [slots]; level, coin: uint64 [strata], a key is in when the lowest 31 bits of its hash are below its stratum's
    level, a tuple of it when those of a hash of its place are below the coin; hashes: uint64 [m], room for
    those of m tuples at a time; out, out_ts, out_words: int64 [n + 1]; came: uint8 [n + 1].  A tuple refused costs a
    hash and a compare: nothing branches on the outcome.
    """
    at = 0
    check = valid.shape[0] > 0
    thinned = False
    for s in range(coin.shape[0]):
        thinned = thinned or coin[s] <= _LOW
    size = hashes.shape[0]
    for begin in range(0, words.shape[0], size):
        many = min(size, words.shape[0] - begin)
        for j in range(many):  # apart from what follows: several at once, where the processor can
            hashes[j] = mix(words[U8(begin + j)], U8(seed))
        first = past = at
        for j in range(many):
            out[U8(past)] = begin + j
            taken = (hashes[j] & _LOW) < level[stratum[hashes[j] >> U8(shift)]]
            if check:
                taken &= valid[begin + j]
            past += 1 if taken else 0
        for k in range(first, past):  # coins are tossed for those alone whose key is in
            place = U8(out[U8(k)])
            which = stratum[hashes[place - U8(begin)] >> U8(shift)]
            out[U8(at)], out_ts[U8(at)] = np.int64(place), ts[place]
            out_words[U8(at)], came[U8(at)] = words[place], which
            at += 1 if not thinned or (mix(np.int64(place), U8(coin_seed)) & _LOW) < coin[which] else 0
    return at


@kernel
def admit_values(
    at: Array, ts: Array, taken: Array, which: Array, coin: Array, coin_seed: int, out: Array, out_ts: Array,
    came: Array,
) -> int:  # fmt: skip
    """As `admit`, of keys that are values of a dictionary: at, int32 [n], of each tuple; taken, bool, and which, uint8
    [values]: whether a value's tuples come in, and its stratum.
    """
    n = 0
    thinned = False
    for s in range(coin.shape[0]):
        thinned = thinned or coin[s] <= _LOW
    for i in range(at.shape[0]):
        value = U8(at[i])
        out[U8(n)], out_ts[U8(n)], came[U8(n)] = i, ts[i], which[value]
        into = taken[value]
        if thinned and into:
            into = (mix(i, U8(coin_seed)) & _LOW) < coin[which[value]]
        n += 1 if into else 0
    return n


@kernel
def slots_of(words: Array, places: Array, seed: int, shift: int, out: Array) -> None:
    """out[i]: the slot of tuple places[i].  places, out: int64 [m]."""
    for i in range(places.shape[0]):
        out[i] = np.int64(mix(words[places[i]], U8(seed)) >> U8(shift))


@kernel
def sum_slots(seen: Array, every: Array, beside: float, sums: Array) -> None:
    """Sums over slots, with left and right the tuples a slot is taken to have: sums, float64 [2], of what left * right
    is above `beside`, and of slots where neither was seen.  seen: int32 [2, slots]; every: int64 [2].
    """
    above = none = 0.0  # not added up in memory
    for s in range(seen.shape[1]):
        left, right = float(seen[0, s] * every[0]), float(seen[1, s] * every[1])
        above += max(0.0, left * right - beside)
        none += 1.0 if left + right == 0.0 else 0.0
    sums[0], sums[1] = above, none


@kernel
def weigh_slots(
    seen: Array, every: Array, beside: float, scale: float, tuples: Array, wanted: Array, worths: Array
) -> None:  # fmt: skip
    """Of each slot the tuples, the pairs expected, and what it is worth: these per tuple.

    beside: left * right of keys that share a slot by chance; scale: pairs per left * right.
    tuples, wanted: float64 [slots]; worths: float32 [slots], from 0 on.
    """
    for s in range(seen.shape[1]):
        left, right = float(seen[0, s] * every[0]), float(seen[1, s] * every[1])
        wanted[s] = scale * max(0.0, left * right - beside)
        tuples[s] = left + right
        worths[s] = np.float32(left * right / max(1.0, left + right))


@inlined
def _rare(standing: float, cap: int) -> Any:
    """How likely less than cap - 1 tuples come where so many are expected, as in a Poisson process."""
    term = few = np.exp(-standing)
    for j in range(1, cap - 1):
        term *= standing / j
        few += term
    return few


@inlined
def _more(seen: int, others: int, kinds: Array, enough: int) -> Any:
    """What another look at slots that were seen so often would see there, of left and of right."""
    n = kinds[seen, others]
    if n >= enough and max(seen, others) + 2 < kinds.shape[0]:
        of_left, of_right = (seen + 1) / n * kinds[seen + 1, others], (others + 1) / n * kinds[seen, others + 1]
        return max(1.0 / n, of_left), max(1.0 / n, of_right)
    return max(0.5, float(seen)), max(0.5, float(others))


@kernel
def weigh_outliers(
    seen: Array, every: Array, scale: float, cap: int, share: float, keys: float, enough: int, kinds: Array,
    table: Array, tuples: Array, wanted: Array, worths: Array,
) -> None:  # fmt: skip
    """As `weigh_slots`, where pairs of outliers are wanted alone.

    cap: of outliers; share: of a key's tuples, those in both windows; keys: in a slot.  A slot has what was seen of it
    and, of the tuples not looked at, as many as such a slot has on average: as others that were seen once more often
    tell, or, of fewer than `enough` alike, as it was seen itself, once in two where it was not.  What those seen least
    have are taken to be keys alike, that every slot has; what another one has besides, one key more.
    kinds: int64 [m, m], zeros, slots by how often either stream was seen there, the last ones for so many and more;
    table: float64 [2, m, m].  Source: Robbins, "An Empirical Bayes Approach to Statistics", 1956.
    """
    top = kinds.shape[0] - 1
    for s in range(seen.shape[1]):
        kinds[min(top, seen[0, s]), min(top, seen[1, s])] += 1
    rest, others = every[0] - 1, every[1] - 1
    of_left = of_right = 0.0
    least = 2 * top
    for i in range(top):
        for j in range(top):
            left, right = _more(i, j, kinds, enough)
            table[0, i, j], table[1, i, j] = i + rest * left, j + others * right
            if i + j < least and kinds[i, j] >= enough:
                least, of_left, of_right = i + j, table[0, i, j], table[1, i, j]
    usual = of_left * of_right / keys * scale * _rare((of_left + of_right) * share / keys, cap)
    for s in range(seen.shape[1]):
        i, j = seen[0, s], seen[1, s]
        if i < top and j < top:
            left, right = table[0, i, j], table[1, i, j]
        else:
            left, right = float(i * every[0]), float(j * every[1])
        tuples[s] = left + right
        left, right = max(0.0, left - of_left), max(0.0, right - of_right)
        wanted[s] = usual
        if left * right > 0.0 and (left + right) * share < _MOST:
            wanted[s] += left * right * scale * _rare((left + right) * share, cap)
        worths[s] = np.float32(wanted[s] / max(1.0, tuples[s]))


@kernel
def window_ranges(
    left_ts: Array, right_ts: Array, left_code: Array, right_code: Array, rows: Array, window: int, side: Array,
    own: Array, matches: Array, high: Array, standing: Array,
) -> None:  # fmt: skip
    """Arrivals in total order, each with the range of its matches in the other stream's list of its key.

    ts: int64 ns; code: int64, below 0 null; rows: int32 [keys, 4], of `nile.exact.join.listed`; window: ns, -1 for the
    whole stream.  Of each arrival, [n]: side, int8; own, matches, high, standing, int32: its ordinal; places
    [high - matches, high) of the list; tuples of the key in both windows, itself included (standing [0]: not wanted).
    """
    i = j = gone_left = gone_right = 0
    tells = standing.shape[0] > 0
    for k in range(side.shape[0]):
        right = i == left_ts.shape[0] or (j < right_ts.shape[0] and right_ts[j] < left_ts[i])
        if right:
            ts, code, own[k] = right_ts[j], right_code[j], j
            j += 1
        else:
            ts, code, own[k] = left_ts[i], left_code[i], i
            i += 1
        if window >= 0:
            while gone_left < i and ts - left_ts[gone_left] > window:
                if left_code[gone_left] >= 0:
                    rows[left_code[gone_left], 2] += 1
                gone_left += 1
            while gone_right < j and ts - right_ts[gone_right] > window:
                if right_code[gone_right] >= 0:
                    rows[right_code[gone_right], 3] += 1
                gone_right += 1
        which = 1 if right else 0
        side[k] = which
        if code < 0:
            matches[k] = high[k] = 0
            if tells:
                standing[k] = 0
            continue
        rows[code, which] += 1
        matches[k] = rows[code, 1 - which] - rows[code, 3 - which]
        high[k] = rows[code, 1 - which]
        if tells:
            standing[k] = matches[k] + rows[code, which] - rows[code, 2 + which]


@kernel
def write_best(
    arrivals: Array, side: Array, own: Array, matches: Array, high: Array, left_listed: Array, right_listed: Array,
    progress: Array, left_out: Array, right_out: Array,
) -> int:  # fmt: skip
    """The pairs of whole arrivals, in the order of `arrivals`, newest partner first; returns how many were written.

    arrivals: int64 [m]; side, own, matches, high: as `window_ranges`; listed: int32, the lists; progress:
    int64 [2], arrivals done and pairs of the next one done.
    """
    written = 0
    room = left_out.shape[0]
    while progress[0] < arrivals.shape[0]:
        k = arrivals[progress[0]]
        while progress[1] < matches[k]:
            if written == room:
                return written
            at = high[k] - 1 - progress[1]
            if side[k] == 0:
                left, right = np.int64(own[k]), np.int64(right_listed[at])
            else:
                left, right = np.int64(left_listed[at]), np.int64(own[k])
            left_out[written], right_out[written] = left, right
            written += 1
            progress[1] += 1
        progress[1] = 0
        progress[0] += 1
    return written
