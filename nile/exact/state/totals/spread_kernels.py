"""Variances that take back what they added: exact sums of numbers and of their squares, rounded once when read.

With n numbers, S their sum and Q the sum of their squares, the squared distances from the mean add up to
(n Q - S * S) / n.  Digits are those of `sums_kernels`; a square counts in digits of units 2**(64 base + 32 k - 2150),
and so no number, however far from its mean, cancels.  Cost: O(d) a tuple to add, O(d * d) a pair to read, d digits of
the sum (8 where numbers are within a factor of 2**200 or so).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.exact.state.group_kernels import AHEAD, AT_ONCE, group_ahead, own_runs
from nile.exact.state.kernels import allocating_kernel, fetch, kernel, part
from nile.exact.state.totals.sums_kernels import add_double, is_special, magnitude, nearest

Array = np.ndarray[Any, Any]

_LOW = np.int64(0xFFFFFFFF)
_HALF = np.uint64(0xFFFFFFFF)
_WORD = np.uint64(32)


@part
def add_square(squares: Array, bits: int, plus: bool, base: int) -> None:
    """Add or take away the square of a finite double, given as its bits.  base: of the sum's first digit.

    The number, moved to a digit's border, is c * 2**64 + b * 2**32 + a, c below 16; its square covers five digits.
    """
    e = (bits >> 52) & 0x7FF
    m = np.uint64(bits & np.int64(0xFFFFFFFFFFFFF))
    if e == 0:
        if m == np.uint64(0):
            return
        e = 1
    else:
        m |= np.uint64(1) << np.uint64(52)
    at = ((2 * e) >> 5) - 2 * base
    places = np.uint64(e & 15)
    c = m >> (np.uint64(64) - places) if places else np.uint64(0)
    m <<= places
    a, b = m & _HALF, m >> _WORD
    two = np.uint64(2)
    ab, ac, bb, bc = a * b, a * c, b * b, b * c
    step = np.int64(1) if plus else np.int64(-1)
    limb = a * a
    squares[at] += step * np.int64(limb & _HALF)
    limb = (limb >> _WORD) + two * (ab & _HALF)
    squares[at + 1] += step * np.int64(limb & _HALF)
    limb = (limb >> _WORD) + two * (ab >> _WORD) + (bb & _HALF) + two * (ac & _HALF)
    squares[at + 2] += step * np.int64(limb & _HALF)
    limb = (limb >> _WORD) + (bb >> _WORD) + two * (ac >> _WORD) + two * (bc & _HALF)
    squares[at + 3] += step * np.int64(limb & _HALF)
    squares[at + 4] += step * np.int64((limb >> _WORD) + two * (bc >> _WORD) + c * c)


@part
def distance(digits: Array, squares: Array, n: int, base: int, special: Array, scratch: Array) -> float:
    """Squared distances of n numbers from their mean, added up; NaN where one is no number or infinite.

    scratch: int64 [5 d + 2].  Runs the carries of digits and squares.
    """
    if special[0] > 0 or special[1] > 0 or special[2] > 0:
        return float(np.nan)
    d = digits.shape[0]
    if n < 2 or d == 0:
        return 0.0
    total, raw, left = scratch[:d], scratch[d : 3 * d], scratch[3 * d :]
    magnitude(digits, total)
    magnitude(squares, raw)
    left[:] = 0
    for half in range(2):
        times = np.uint64(n >> (32 * half)) & _HALF
        if times == np.uint64(0):
            continue
        carry = np.uint64(0)
        for k in range(2 * d):
            value = np.uint64(raw[k]) * times + carry
            left[k + half] += np.int64(value & _HALF)
            carry = value >> _WORD
        left[2 * d + half] += np.int64(carry)
    for k in range(2 * d + 1):
        left[k + 1] += left[k] >> 32
        left[k] &= _LOW
    top = d
    while top > 0 and total[top - 1] == 0:
        top -= 1
    for i in range(top):
        borrow = np.int64(0)
        for j in range(top):
            product = np.uint64(total[i]) * np.uint64(total[j])
            less = left[i + j] - np.int64(product & _HALF) + borrow
            left[i + j] = less & _LOW
            borrow = (less >> 32) - np.int64(product >> _WORD)
        k = i + top
        while borrow != 0 and k < left.shape[0]:
            less = left[k] + borrow
            left[k] = less & _LOW
            borrow = less >> 32
            k += 1
    m, e = nearest(left)
    return math.ldexp(m / n, 64 * base - 2150 + e)


@allocating_kernel
def read_distances(digits: Array, squares: Array, counts: Array, base: int, special: Array, now: Array) -> None:
    """now[g]: `distance` of group g; digits int64 [groups, d], squares int64 [groups, 2 d]."""
    scratch = np.empty(5 * digits.shape[1] + 2, np.int64)
    for group in range(now.shape[0]):
        now[group] = distance(digits[group], squares[group], counts[group], base, special[group], scratch)


@kernel
def apply_squares(
    sign: Array,
    codes: Array,
    bits: Array,
    valid: Array,
    begins: Array,
    touch: Array,
    first: Array,
    last: Array,
    base: int,
    digits: Array,
    squares: Array,
    special: Array,
    now: Array,
    counts: Array,
    old: Array,
    new: Array,
    old_count: Array,
    new_count: Array,
    part: int,
    mask: int,
    scratch: Array,
) -> None:
    """As `sums_kernels.apply_doubles`, of `distance`; squares int64 [groups, 2 d], scratch int64 [AT_ONCE + 5 d + 2].

    begins, touch, part, mask: as of `group_kernels.apply_counts`.
    """
    ragged = begins.shape[0] > 0
    own, scratch = scratch[:AT_ONCE], scratch[AT_ONCE:]
    for some in range(0, touch.shape[0], AT_ONCE):
        many = own_runs(some, codes, begins, touch.shape[0], part, mask, own)
        for k in range(many):
            if k + AHEAD < many:
                following = group_ahead(k, own, begins, codes)
                fetch(digits, following)
                fetch(squares, following)
                fetch(special, following)
                fetch(now, following)
                fetch(counts, following)
            run = own[k]
            begin = begins[run] if ragged else run
            code = codes[begin]
            end = begins[run + 1] if ragged else run + 1
            t = touch[run]
            if begin == first[t]:
                old[t] = now[code]
                old_count[t] = counts[code]
            for i in range(begin, end):
                if not valid[i]:
                    continue
                step = 1 if sign[i] > 0 else -1
                counts[code] += step
                if not is_special(bits[i], step, special[code]):
                    add_double(digits[code], bits[i], step > 0, base)
                    add_square(squares[code], bits[i], step > 0, base)
            if end - 1 == last[t]:
                now[code] = distance(digits[code], squares[code], counts[code], base, special[code], scratch)
                new[t] = now[code]
                new_count[t] = counts[code]
