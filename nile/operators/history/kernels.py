"""Kernels over histories: pairs of runs, a keyed permutation, exact sums of doubles by group."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.kernels import U8, kernel, part

Array = np.ndarray[Any, Any]

__all__ = ["DIGITS", "cross", "expand", "listed_cells", "permuted", "records", "sum_by_group"]

DIGITS = 68
"""Digits of 32 bits that hold any sum of doubles: 2,098 bits of a double's range and room for carries."""

_WIDE = 16
"""Of a list so many are compared at once, and what is below is their number: that has no branch to be guessed wrong.
As many and half as many cost alike where 12 or 3 of a list lie between two keys."""

_ROUNDS = 6
_M1 = U8(0xBF58476D1CE4E5B9)
_M2 = U8(0x94D049BB133111EB)


@kernel
def cross(row_begins: Array, row_ends: Array, rows: Array, begins: Array, ends: Array, others: Array,
          left: Array, right: Array) -> int:  # fmt: skip
    """Every combination of rows[row_begins[r]:row_ends[r]] and others[begins[r]:ends[r]], run r after run r.

    All int64; left, right: as long as there are combinations.  Returns how many.
    """
    at = 0
    for r in range(row_begins.shape[0]):
        for i in range(row_begins[r], row_ends[r]):
            for j in range(begins[r], ends[r]):
                left[at] = rows[i]
                right[at] = others[j]
                at += 1
    return at


@kernel
def expand(begins: Array, ends: Array, which: Array, places: Array) -> int:
    """The whole numbers of [begins[r], ends[r]) for every r, and which r each is of: int64, one after another."""
    at = 0
    for r in range(begins.shape[0]):
        for i in range(begins[r], ends[r]):
            which[at] = r
            places[at] = i
            at += 1
    return at


@kernel
def records(
    row_begins: Array, row_ends: Array, rows: Array, zones: Array, keys: Array, begins: Array, ends: Array,
    row: Array, key: Array, zone: Array, first: Array, last: Array,
) -> None:  # fmt: skip
    """A record for each of rows[row_begins[r]:row_ends[r]] and run r, one run after another.

    zones, keys, begins, ends: of each run.  row, key, zone, first, last: of each record; last: the end less one.  All
    int64; the records have room.
    """
    at = 0
    for r in range(row_begins.shape[0]):
        for i in range(row_begins[r], row_ends[r]):
            row[at] = rows[i]
            key[at] = keys[r]
            zone[at] = zones[r]
            first[at] = begins[r]
            last[at] = ends[r] - 1
            at += 1


@kernel
def listed_cells(
    listed: Array, counts: Array, room: int, hashes: Array, rows: Array, shift: int, at: Array, place: Array,
    low: Array, most: Array, others: Array, told: Array,
) -> None:  # fmt: skip
    """Which keys are in a list of heavy ones, by the cells (hash >> shift; 64: one) that they lie in.

    listed: uint64 [h], strictly ascending; counts: uint32 [h], the tuples of each, of which `room` at most count;
    hashes: uint64 [k], ascending; rows: int64 [k], tuples that ask for each.
    at, place: int64 [k], those that are listed, and where in the list; low, most: int64 [k], of each of their cells
    where in `at` it begins, and its matches; others: int64 [k], those that are not.
    told: int64 [4], how many are listed, of how many cells; the tuples that ask for others, and the cells of these.
    """
    j = np.int64(0)
    for k in range(hashes.shape[0]):
        below = np.int64(_WIDE)
        while below == _WIDE and j + _WIDE <= listed.shape[0]:
            below = np.int64(0)
            for n in range(_WIDE):
                below += np.int64(listed[U8(j + n)] < hashes[k])
            j += below
        while j < listed.shape[0] and listed[j] < hashes[k]:
            j += 1
        place[k] = j
    found = 0
    missed = 0
    cells = 0
    other_cells = 0
    asking = 0
    cell = np.int64(-1)
    other_cell = np.int64(-1)
    for k in range(hashes.shape[0]):
        j = place[k]
        bucket = np.int64(0) if shift == 64 else np.int64(hashes[k] >> U8(shift))
        if j < listed.shape[0] and listed[j] == hashes[k]:
            if bucket != cell:
                low[cells] = found
                most[cells] = 0
                cells += 1
                cell = bucket
            most[cells - 1] += rows[k] * min(np.int64(counts[j]), room)
            at[found] = k
            place[found] = j
            found += 1
        else:
            if bucket != other_cell:
                other_cells += 1
                other_cell = bucket
            asking += rows[k]
            others[missed] = k
            missed += 1
    told[0] = found
    told[1] = cells
    told[2] = asking
    told[3] = other_cells


@part
def _mixed(value: Any, key: Any) -> Any:
    z = U8(value) + U8(key)
    z = (z ^ (z >> U8(30))) * _M1
    z = (z ^ (z >> U8(27))) * _M2
    return z ^ (z >> U8(31))


@kernel
def permuted(begin: int, total: int, half: int, seed: Any, out: Array) -> None:
    """out[i] = the place of begin + i in a random order of [0, total): int64 [n], begin + n <= total.

    A balanced Feistel network over 2 * half bits (2 ** (2 * half) >= total, at most 4 times as large), walked
    until it falls below total: a permutation for every seed, without a table.  Source: Black, Rogaway, CT-RSA
    2002 (cycle walking); 6 rounds.
    """
    low = (U8(1) << U8(half)) - U8(1)
    bits = U8(half)
    for i in range(out.shape[0]):
        x = U8(begin + i)
        while True:
            left = x >> bits
            right = x & low
            for r in range(_ROUNDS):
                left, right = right, left ^ (_mixed(right, U8(seed) + U8(r) * _M2) & low)
            x = (left << bits) | right
            if x < U8(total):
                break
        out[i] = np.int64(x)


@kernel
def sum_by_group(bits: Array, group: Array, digits: Array, odd: Array) -> None:
    """Add doubles to exact sums, one per group.

    bits: int64 [n], the doubles' bit patterns; group: int64 [n]; digits: int64 [groups, DIGITS], digit d of weight
    2 ** (32 d - 1074), each below 2 ** 33 in size and so left when done; odd: int64 [groups, 3], how many NaN, +inf
    and -inf there were.  n: at most 2 ** 29.
    """
    word = np.int64(0xFFFFFFFF)
    for i in range(bits.shape[0]):
        g = group[i]
        b = bits[i]
        exponent = (b >> 52) & np.int64(0x7FF)
        mantissa = b & np.int64(0xFFFFFFFFFFFFF)
        if exponent == 0x7FF:
            if mantissa != 0:
                odd[g, 0] += 1
            elif b > 0:
                odd[g, 1] += 1
            else:
                odd[g, 2] += 1
            continue
        if exponent > 0:
            mantissa |= np.int64(1) << 52
            exponent -= 1
        d = exponent >> 5
        s = exponent & 31
        low = (mantissa & word) << s
        high = (mantissa >> 32) << s
        first = low & word
        second = (low >> 32 & word) + (high & word)
        third = high >> 32
        if b < 0:
            digits[g, d] -= first
            digits[g, d + 1] -= second
            digits[g, d + 2] -= third
        else:
            digits[g, d] += first
            digits[g, d + 1] += second
            digits[g, d + 2] += third
    for g in range(digits.shape[0]):
        for d in range(digits.shape[1] - 1):
            carry = digits[g, d] >> 32
            digits[g, d] -= carry << 32
            digits[g, d + 1] += carry
