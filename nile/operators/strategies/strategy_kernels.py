"""Kernels over raw keys, before anything is encoded: how many fall in each slot of the key space, and which come in."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.hash_kernels import mix
from nile.summaries.kernels import U8, kernel

__all__ = [
    "admit", "draw_pairs", "join_strata", "slot_counts", "slots_of", "some_keys", "sum_slots", "sum_stands",
    "weigh_slots", "window_ranges", "write_best",
]  # fmt: skip

Array = np.ndarray[Any, Any]
_LOW = U8(0x7FFFFFFF)


@kernel
def slot_counts(words: Array, valid: Array, seed: int, shift: int, first: int, every: int, counts: Array) -> int:
    """Count every `every`-th tuple from `first` on by the slot of its key; returns how many have a key.

    words: int64 [n]; valid: bool [n], or [0] when no key is null; a slot is the hash's highest 64 - shift bits; counts:
    int32 [slots].
    """
    seen = 0
    check = valid.shape[0] > 0
    for i in range(first, words.shape[0], every):
        if check and not valid[i]:
            continue
        counts[np.int64(mix(words[i], U8(seed)) >> U8(shift))] += 1
        seen += 1
    return seen


@kernel
def admit(
    words: Array, valid: Array, ts: Array, seed: int, shift: int, stratum: Array, level: Array, coin: Array,
    coin_seed: int, out: Array, out_ts: Array, out_words: Array, came: Array,
) -> int:  # fmt: skip
    """The tuples that come in, in order: their places, times, words and strata; returns how many.

    words, valid, seed, shift: as `slot_counts`; ts: int64 [n] ns; stratum: uint8 [slots]; level, coin: uint64 [strata],
    a key is in when the lowest 31 bits of its hash are below its stratum's level, a tuple of it when those of a hash of
    its place are below the coin; out, out_ts, out_words: int64 [n + 1]; came: uint8 [n + 1].  A tuple refused costs a
    hash and a compare: nothing branches on the outcome.
    """
    at = 0
    check = valid.shape[0] > 0
    thinned = False
    for s in range(coin.shape[0]):
        thinned = thinned or coin[s] <= _LOW
    for i in range(words.shape[0]):
        word = words[i]
        h = mix(word, U8(seed))
        which = stratum[np.int64(h >> U8(shift))]
        out[at] = i
        out_ts[at] = ts[i]
        out_words[at] = word
        came[at] = which
        taken = (h & _LOW) < level[which]
        if check:
            taken = taken & valid[i]
        if thinned:
            taken = taken & ((mix(i, U8(coin_seed)) & _LOW) < coin[which])
        at += 1 if taken else 0
    return at


@kernel
def slots_of(words: Array, places: Array, seed: int, shift: int, out: Array) -> None:
    """out[i]: the slot of tuple places[i].  places, out: int64 [m]."""
    for i in range(places.shape[0]):
        out[i] = np.int64(mix(words[places[i]], U8(seed)) >> U8(shift))


@kernel
def some_keys(words: Array, valid: Array, seed: int, mask: int, out: Array) -> int:
    """The keys of those tuples the lowest bits of whose hash, `mask`, are 0: all of some keys; returns how many.

    words, valid, seed: as `slot_counts`; out: int64 [n + 1].
    """
    at = 0
    check = valid.shape[0] > 0
    for i in range(words.shape[0]):
        out[at] = words[i]
        taken = (mix(words[i], U8(seed)) & U8(mask)) == U8(0)
        if check:
            taken = taken & valid[i]
        at += 1 if taken else 0
    return at


@kernel
def sum_slots(seen: Array, every: Array, beside: float, sums: Array) -> None:
    """Sums over slots, with left and right the tuples a slot is taken to have: sums, float64 [6], of the squares of
    left and of right, left * right, what it is above `beside`, its variance for tuples not looked at, and slots where
    neither was seen.  seen: int32 [2, slots]; every: int64 [2].
    """
    for s in range(seen.shape[1]):
        left, right = float(seen[0, s] * every[0]), float(seen[1, s] * every[1])
        both = left * right
        sums[0] += left * left
        sums[1] += right * right
        sums[2] += both
        sums[3] += max(0.0, both - beside)
        sums[4] += both * (right * (every[0] - 1) + left * (every[1] - 1))
        sums[5] += 1.0 if seen[0, s] == 0 and seen[1, s] == 0 else 0.0


@kernel
def weigh_slots(
    seen: Array,
    every: Array,
    beside: float,
    scale: float,
    cap: int,
    share: float,
    keys: float,
    tuples: Array,
    wanted: Array,
    worths: Array,
) -> None:
    """Of each slot the tuples, the pairs or outliers expected, and what it is worth: these per tuple.

    beside: left * right of keys that share a slot by chance; scale: pairs per left * right; cap: of outliers, 0: all
    pairs are wanted; share: of a key's tuples, those in both windows; keys: in a slot.  For outliers tuples are taken
    to come as in a Poisson process, and a slot that was not seen to have half as many as one seen once.
    tuples, wanted: float64 [slots]; worths: float32 [slots], from 0 on.
    """
    for s in range(seen.shape[1]):
        left, right = float(seen[0, s] * every[0]), float(seen[1, s] * every[1])
        if cap == 0:
            wanted[s] = scale * max(0.0, left * right - beside)
            tuples[s] = left + right
            worth = left * right / max(1.0, left + right)
        else:
            left, right = max(left, 0.5 * every[0]), max(right, 0.5 * every[1])
            tuples[s] = left + right
            standing = (left + right) * share / keys
            term = np.exp(-standing)
            few = term
            for j in range(1, cap - 1):
                term *= standing / j
                few += term
            wanted[s] = left * right / keys * scale * few
            worth = wanted[s] / max(1.0, left + right)
        worths[s] = np.float32(worth)


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
def join_strata(side: Array, left: Array, right: Array, matches: Array, which: Array, pairs: Array) -> None:
    """The stratum of each arrival, and the pairs of each stratum.

    side: int8 [n]; left, right: uint8, of either stream's tuples; matches: int32 [n]; which: uint8 [n]; pairs: float64
    [strata], zeros.
    """
    i = j = 0
    for k in range(side.shape[0]):
        if side[k] == 0:
            which[k] = left[i]
            i += 1
        else:
            which[k] = right[j]
            j += 1
        pairs[which[k]] += matches[k]


@kernel
def sum_stands(
    side: Array, left_code: Array, right_code: Array, matches: Array, strata: Array, level: Array, coins: Array,
    by_key: Array, level_of: Array, came: Array, sums: Array,
) -> None:  # fmt: skip
    """What the pairs of tuples that came in stand for: of all (sums[0]), of each key, and how that scatters by coins.

    side, matches, strata: as `draw_pairs`; code: int64, of either stream's tuples, below 0 null; level, float64
    [strata], and coins, float64 [2, strata]: the rates of keys and of either stream's tuples; by_key, level_of: float64
    [keys], zeros and anything; came: int64 [2, strata], tuples; sums: float64 [3], zeros, the last two the variance of
    tuples with coins of their own and the sum of its squares.
    """
    i = j = 0
    apart = strata.shape[0] > 0
    for k in range(side.shape[0]):
        s = strata[k] if apart else 0
        mine = side[k]
        if mine == 0:
            code = left_code[i]
            i += 1
        else:
            code = right_code[j]
            j += 1
        came[mine, s] += 1
        if code < 0:
            continue
        coin = coins[mine, s]
        stands = matches[k] / (level[s] * coins[0, s] * coins[1, s])
        by_key[code] += stands
        level_of[code] = level[s]
        scatter = level[s] * (1.0 - coin) * 4.0 * stands * stands
        sums[0] += stands
        sums[1] += scatter
        sums[2] += scatter * scatter


@kernel
def write_best(
    arrivals: Array, side: Array, own: Array, matches: Array, high: Array, left_listed: Array, right_listed: Array,
    left_place: Array, right_place: Array, progress: Array, left_out: Array, right_out: Array,
) -> int:  # fmt: skip
    """The pairs of whole arrivals, in the order of `arrivals`, newest partner first; returns how many were written.

    arrivals: int64 [m]; side, own, matches, high: as `window_ranges`; listed: int32, the lists; place: int64, what the
    tuples of either stream are told as ([0]: their ordinals); progress: int64 [2], arrivals done and pairs of the next
    one done.
    """
    written = 0
    room = left_out.shape[0]
    placed = left_place.shape[0] > 0 or right_place.shape[0] > 0
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
            left_out[written] = left_place[left] if placed else left
            right_out[written] = right_place[right] if placed else right
            written += 1
            progress[1] += 1
        progress[1] = 0
        progress[0] += 1
    return written


@kernel
def draw_pairs(
    side: Array, own: Array, strata: Array, rate: Array, matches: Array, high: Array, left_listed: Array,
    right_listed: Array, left_place: Array, right_place: Array, progress: Array, place: Array, stands: Array,
    left_out: Array, right_out: Array, weight_out: Array,
) -> int:  # fmt: skip
    """A systematic sample of the pairs, each of stratum s with probability rate[s]; returns how many were written.

    Arrivals lie one after another on a line, each as long as rate * matches; a pair is drawn where a whole number falls
    into its part, and stands for stands[s].  strata: uint8 [n], or [0]: all are 0; progress: int64 [2], as
    `write_best`; place: float64 [2], the end of the last arrival dealt with, and the next whole number (both from an
    offset in [0, 1)).
    """
    written = 0
    room = left_out.shape[0]
    placed = left_place.shape[0] > 0 or right_place.shape[0] > 0
    apart = strata.shape[0] > 0
    end = place[0]
    due = place[1]
    for k in range(progress[0], side.shape[0]):
        count = matches[k]
        if count == 0:
            continue
        which = strata[k] if apart else 0
        share = rate[which]
        begin = end
        end = begin + share * count
        while due < end:
            if written == room:
                progress[0] = k
                place[0], place[1] = begin, due
                return written
            at = high[k] - 1 - min(count - 1, int((due - begin) / share))
            if side[k] == 0:
                left, right = np.int64(own[k]), np.int64(right_listed[at])
            else:
                left, right = np.int64(left_listed[at]), np.int64(own[k])
            left_out[written] = left_place[left] if placed else left
            right_out[written] = right_place[right] if placed else right
            weight_out[written] = stands[which]
            written += 1
            due += 1.0
    progress[0] = side.shape[0]
    place[0], place[1] = end, due
    return written
