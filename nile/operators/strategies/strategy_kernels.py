"""Kernels over raw keys, before anything is encoded: how many fall in each slot of the key space, and which come in."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.hash_kernels import mix
from nile.summaries.kernels import U8, kernel

__all__ = [
    "admit", "draw_pairs", "join_strata", "list_tuples", "slot_counts", "slots_of", "sum_slots", "thin", "weigh_slots",
    "window_ranges", "write_best",
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
    words: Array, valid: Array, seed: int, shift: int, stratum: Array, level: Array, out: Array, came: Array
) -> int:
    """The tuples whose keys are in, in order: their places into `out`, their strata into `came`; returns how many.

    words, valid, seed, shift: as `slot_counts`; stratum: uint8 [slots]; level: uint64 [strata], a key is in when the
    lowest 31 bits of its hash are below its stratum's; out: int64 [n + 1]; came: uint8 [n + 1].  A tuple refused costs
    a hash and a compare: nothing branches on the outcome.
    """
    at = 0
    check = valid.shape[0] > 0
    for i in range(words.shape[0]):
        h = mix(words[i], U8(seed))
        which = stratum[np.int64(h >> U8(shift))]
        out[at] = i
        came[at] = which
        taken = (h & _LOW) < level[which]
        if check:
            taken = taken and valid[i]
        at += 1 if taken else 0
    return at


@kernel
def thin(places: Array, strata: Array, seed: int, below: Array) -> int:
    """Keep tuples by coins of their own, in place; returns how many stay.

    places: int64 [m]; strata: uint8 [m]; below: uint64 [strata], of 2**31.
    """
    at = 0
    for i in range(places.shape[0]):
        place, which = places[i], strata[i]
        places[at] = place
        strata[at] = which
        at += 1 if (mix(place, U8(seed)) & _LOW) < below[which] else 0
    return at


@kernel
def slots_of(words: Array, places: Array, seed: int, shift: int, out: Array) -> None:
    """out[i]: the slot of tuple places[i].  places, out: int64 [m]."""
    for i in range(places.shape[0]):
        out[i] = np.int64(mix(words[places[i]], U8(seed)) >> U8(shift))


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
    rank: Array,
) -> None:
    """Of each slot the tuples, the pairs or outliers expected, and its rank by them per tuple, lowest first.

    beside: left * right of keys that share a slot by chance; scale: pairs per left * right; cap: of outliers, 0: all
    pairs are wanted; share: of a key's tuples, those in both windows; keys: in a slot.  For outliers tuples are taken
    to come as in a Poisson process, and a slot that was not seen to have half as many as one seen once.
    tuples, wanted: float64 [slots]; rank: uint16 [slots].
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
        # Logarithms rank as the worth itself does, in two bytes, which sort in a few passes.
        rank[s] = np.uint16(65535 - min(65535, max(0, int(700.0 * (np.log2(max(worth, 1e-12)) + 40.0)))))


@kernel
def window_ranges(
    left_ts: Array,
    right_ts: Array,
    left_code: Array,
    right_code: Array,
    known: Array,
    window: int,
    side: Array,
    own: Array,
    key: Array,
    matches: Array,
    high: Array,
    standing: Array,
) -> None:
    """Arrivals in total order, each with the range of its matches in the other stream's list of its key.

    ts: int64 ns; code: int64, -1 null; known: int32 [keys, 4], zeros: of each key the tuples seen and gone, (left,
    right) each; window: ns, -1 the whole stream.  Of each arrival, [n]: side, int8; own, int64, its ordinal; key,
    matches, high, standing, int32: its matches are ranks [high - matches, high); standing: tuples of the key in both
    windows, itself included.  O(n).
    """
    i = j = gone_left = gone_right = 0
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
                    known[left_code[gone_left], 2] += 1
                gone_left += 1
            while gone_right < j and ts - right_ts[gone_right] > window:
                if right_code[gone_right] >= 0:
                    known[right_code[gone_right], 3] += 1
                gone_right += 1
        which = 1 if right else 0
        side[k] = which
        key[k] = code
        if code < 0:
            matches[k] = high[k] = standing[k] = 0
            continue
        known[code, which] += 1
        matches[k] = known[code, 1 - which] - known[code, 3 - which]
        high[k] = known[code, 1 - which]
        standing[k] = matches[k] + known[code, which] - known[code, 2 + which]


@kernel
def list_tuples(code: Array, begins: Array, at: Array, listed: Array) -> None:
    """Tuples by key, in order.  code: int64 [n], -1 null; begins: int64 [keys + 1], zeros; at: int64 [keys]; listed:
    int64 [n]."""
    for i in range(code.shape[0]):
        if code[i] >= 0:
            begins[code[i] + 1] += 1
    for key in range(begins.shape[0] - 1):
        begins[key + 1] += begins[key]
    for key in range(at.shape[0]):
        at[key] = begins[key]
    for i in range(code.shape[0]):
        if code[i] >= 0:
            listed[at[code[i]]] = i
            at[code[i]] += 1


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
def write_best(
    arrivals: Array,
    side: Array,
    own: Array,
    code: Array,
    matches: Array,
    high: Array,
    left_begins: Array,
    left_listed: Array,
    right_begins: Array,
    right_listed: Array,
    progress: Array,
    left_out: Array,
    right_out: Array,
) -> int:
    """The pairs of whole arrivals, in the order of `arrivals`, newest partner first; returns how many were written.

    arrivals: int64 [m]; side, own, code: of each arrival its stream, its place there and its key; progress: int64 [2],
    arrivals done and pairs of the next one done.
    """
    written = 0
    room = left_out.shape[0]
    while progress[0] < arrivals.shape[0]:
        k = arrivals[progress[0]]
        while progress[1] < matches[k]:
            if written == room:
                return written
            rank = high[k] - 1 - progress[1]
            if side[k] == 0:
                left_out[written] = own[k]
                right_out[written] = right_listed[right_begins[code[k]] + rank]
            else:
                left_out[written] = left_listed[left_begins[code[k]] + rank]
                right_out[written] = own[k]
            written += 1
            progress[1] += 1
        progress[1] = 0
        progress[0] += 1
    return written


@kernel
def draw_pairs(
    side: Array,
    own: Array,
    code: Array,
    strata: Array,
    rate: Array,
    matches: Array,
    high: Array,
    left_begins: Array,
    left_listed: Array,
    right_begins: Array,
    right_listed: Array,
    progress: Array,
    place: Array,
    stands: Array,
    left_out: Array,
    right_out: Array,
    weight_out: Array,
) -> int:
    """A systematic sample of the pairs, each of stratum s with probability rate[s]; returns how many were written.

    Arrivals lie one after another on a line, each as long as rate * matches; a pair is drawn where a whole number falls
    into its part, and stands for stands[s].  progress: int64 [2], as `write_best`; place: float64 [2], the end of
    the last arrival dealt with, and the next whole number (both from an offset in [0, 1)).
    """
    written = 0
    room = left_out.shape[0]
    while progress[0] < side.shape[0]:
        k = progress[0]
        share = rate[strata[k]]
        count = matches[k]
        if count == 0 or share == 0.0:
            progress[0] += 1
            continue
        each = 1.0 / share
        end = place[0] + share * count
        while place[1] < end:
            if written == room:
                return written
            rank = high[k] - 1 - min(count - 1, int((place[1] - place[0]) * each))
            if side[k] == 0:
                left_out[written] = own[k]
                right_out[written] = right_listed[right_begins[code[k]] + rank]
            else:
                left_out[written] = left_listed[left_begins[code[k]] + rank]
                right_out[written] = own[k]
            weight_out[written] = stands[strata[k]]
            written += 1
            place[1] += 1.0
        place[0] = end
        progress[0] += 1
    return written
