"""Sums that take back what they added: exact, whatever the order, the size of the values and how often they return.

A double is m * 2**(e - 1075), m a whole number of 53 bits.  A sum is a row of 64-bit digits; digit k counts units of
2**(32 k - 1075), and a value adds to three neighbouring digits.  Carries run when the sum is read.  So nothing is
ever rounded but the result, once, to the nearest double (ties to even).  Whole numbers use two digits the same way.
Source: the superaccumulator of Kulisch; the digits as R. M. Neal lays them out (Fast exact summation, 2015).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.exact.state.group_kernels import AHEAD, AT_ONCE, group_ahead, own_runs
from nile.exact.state.kernels import fetch, inlined, kernel, part

Array = np.ndarray[Any, Any]

_LOW = np.int64(0xFFFFFFFF)
_POWERS = 2.0 ** np.arange(-1022, 971)


@inlined
def _digits_of(bits: int, plus: bool) -> tuple[int, Any, Any, Any]:
    """(the first of three digits of 32 bits that a finite double adds to, what it adds to each), given its bits.

    Without a branch on the sign: which tuples come and which go nobody guesses.
    """
    e = (bits >> 52) & 0x7FF
    m = bits & np.int64(0xFFFFFFFFFFFFF)
    if e == 0:
        e = 1
    else:
        m |= np.int64(1) << 52
    shift = e & 31
    step = np.int64(1) if (bits < 0) != plus else np.int64(-1)
    rest = (m >> 1) >> (31 - shift)
    return e >> 5, step * ((m << shift) & _LOW), step * (rest & _LOW), step * (rest >> 32)


@inlined
def add_double(digits: Array, bits: int, plus: bool, base: int) -> None:
    """Add or take away a finite double, given as its bits.  base: the first digit's number."""
    if bits & np.int64(0x7FFFFFFFFFFFFFFF) == 0:
        return
    at, low, middle, high = _digits_of(bits, plus)
    at -= base
    digits[at] += low
    digits[at + 1] += middle
    digits[at + 2] += high


@inlined
def add_carried(digits: Array, bits: int, plus: bool, base: int) -> None:
    """As `add_double`, to digits of 32 bits but the last, which they are afterwards."""
    if bits & np.int64(0x7FFFFFFFFFFFFFFF) == 0:
        return
    at, low, middle, high = _digits_of(bits, plus)
    at -= base
    d = digits[at] + low
    digits[at] = d & _LOW
    d = digits[at + 1] + middle + (d >> 32)
    digits[at + 1] = d & _LOW
    d = digits[at + 2] + high + (d >> 32)
    digits[at + 2] = d & _LOW
    carry = d >> 32
    last = digits.shape[0] - 1
    at += 3
    while carry != 0 and at < last:
        d = digits[at] + carry
        digits[at] = d & _LOW
        carry = d >> 32
        at += 1
    digits[last] += carry


@inlined
def is_special(bits: int, step: int, special: Array) -> bool:
    """Whether these are the bits of NaN or an infinity, which is then counted: int64 [3], of NaN, +inf, -inf."""
    if (bits >> 52) & 0x7FF != 0x7FF:
        return False
    if bits & np.int64(0xFFFFFFFFFFFFF) != 0:
        special[0] += step
    elif bits > 0:
        special[1] += step
    else:
        special[2] += step
    return True


@inlined
def carry_over(digits: Array) -> bool:
    """Have 32 bits in each digit but the last; whether the sum is below 0."""
    n = digits.shape[0]
    carry = np.int64(0)
    for k in range(n - 1):
        d = digits[k] + carry
        digits[k] = d & _LOW
        carry = d >> 32
    digits[n - 1] += carry
    return bool(digits[n - 1] < 0)


@inlined
def negated(digits: Array, scratch: Array) -> None:
    """-sum into scratch, int64, as many digits, of 32 bits but the last."""
    n = digits.shape[0]
    carry = np.int64(0)
    for k in range(n - 1):
        d = carry - digits[k]
        scratch[k] = d & _LOW
        carry = d >> 32
    scratch[n - 1] = carry - digits[n - 1]


@inlined
def magnitude(digits: Array, scratch: Array) -> bool:
    """|sum| into scratch, int64, as many digits, each of 32 bits but the last; whether it is below 0.  Runs carries."""
    negative = carry_over(digits)
    if negative:
        negated(digits, scratch)
    else:
        for k in range(digits.shape[0]):
            scratch[k] = digits[k]
    return negative


@inlined
def nearest(digits: Array) -> tuple[float, int]:
    """(m, e): m * 2**e is what digits >= 0 of 32 bits stand for, m of 53 bits, to the nearest, ties to even."""
    top = digits.shape[0] - 1
    while top >= 0 and digits[top] == 0:
        top -= 1
    if top < 0:
        return 0.0, 0
    high = np.uint64(digits[top]) << np.uint64(32)
    if top >= 1:
        high |= np.uint64(digits[top - 1])
    below = np.uint64(digits[top - 2]) if top >= 2 else np.uint64(0)
    sticky = False
    for k in range(top - 2):
        if digits[k] != 0:
            sticky = True
            break
    shift = 0  # of the zeros before the highest bit, below 32: a digit has 32 bits
    front = high
    for step in (16, 8, 4, 2, 1):
        if front >> np.uint64(64 - step) == np.uint64(0):
            front <<= np.uint64(step)
            shift += step
    high = front | (below >> np.uint64(32 - shift))
    below = (below << np.uint64(shift)) & np.uint64(0xFFFFFFFF)
    sticky = sticky or below != np.uint64(0)
    tail = high & np.uint64(0x7FF)
    q = np.int64(high >> np.uint64(11))
    if tail > np.uint64(0x400) or (tail == np.uint64(0x400) and (sticky or (q & 1) == 1)):
        q += 1
    return float(q), 32 * (top - 1) - shift + 11


@kernel
def rounded(digits: Array, base: int, scratch: Array) -> float:
    """The nearest double.  Runs the carries of digits; scratch: int64, as many."""
    carry_over(digits)
    return nearest_of(digits, base, scratch)


@inlined
def nearest_of(digits: Array, base: int, scratch: Array) -> float:
    """As `rounded`, of digits of 32 bits but the last."""
    negative = digits[digits.shape[0] - 1] < 0
    if negative:
        negated(digits, scratch)
        m, e = nearest(scratch)
    else:
        m, e = nearest(digits)
    e += 32 * base - 1075
    value = m * _POWERS[e + 1022] if -1022 <= e <= 970 else math.ldexp(m, e)
    return -value if negative else value


@part
def read(digits: Array, base: int, special: Array, scratch: Array) -> float:
    """The sum of one group, of digits of 32 bits but the last: special int64 [3], how many NaN, +inf, -inf it has;
    scratch as in `rounded`."""
    if special[0] > 0 or (special[1] > 0 and special[2] > 0):
        return float(np.nan)
    if special[1] > 0:
        return float(np.inf)
    if special[2] > 0:
        return float(-np.inf)
    return float(nearest_of(digits, base, scratch))


@kernel
def carry_all(digits: Array) -> None:
    """`carry_over` of each group: int64 [groups, d], d above 0."""
    for group in range(digits.shape[0]):
        carry_over(digits[group])


@kernel
def read_doubles(codes: Array, digits: Array, base: int, special: Array, now: Array, scratch: Array) -> None:
    """now[g], the sum, of some groups, int64 [n]: digits int64 [groups, d], of any size until then, special int64
    [groups, 3]; scratch as in `rounded`."""
    for i in range(codes.shape[0]):
        if i + AHEAD < codes.shape[0]:
            fetch(digits, codes[i + AHEAD])
            fetch(now, codes[i + AHEAD])
        code = codes[i]
        if digits.shape[1] > 0:
            carry_over(digits[code])
        some = digits.shape[1] > 0 or special[code].any()
        now[code] = read(digits[code], base, special[code], scratch) if some else 0.0


@kernel
def carried(digits: Array, out: Array) -> None:
    """Digits of any size, int64 [groups, d], as digits of 32 bits in two's complement, uint32 [groups, d + 1]."""
    if digits.shape[1] == 0:
        return
    for group in range(digits.shape[0]):
        carry = np.int64(0)
        for k in range(digits.shape[1]):
            value = digits[group, k] + carry
            out[group, k] = value & _LOW
            carry = value >> 32
        out[group, digits.shape[1]] = carry & _LOW


@kernel
def exponents(bits: Array) -> tuple[int, int]:
    """The least and the greatest exponent of finite doubles (bits int64 [n]) other than 0; none: least above greatest.

    As they stand in the bits: 0 to 2046.
    """
    least, most = np.int64(0x7FF), np.int64(-1)
    for i in range(bits.shape[0]):
        exponent = (bits[i] >> 52) & 0x7FF
        if exponent < 0x7FF and (bits[i] << 1) != 0:
            least = min(least, exponent)
            most = max(most, exponent)
    return int(least), int(most)


@inlined
def room_for(bits: Array, base: int, width: int) -> bool:
    """Whether digits from `base` on have room for these doubles (`widened`)."""
    least, most = exponents(bits)
    return width > 0 and (least > most or ((least >> 5) >= base and (most >> 5) + 4 <= base + width))


@kernel
def apply_doubles(
    sign: Array, codes: Array, bits: Array, valid: Array, begins: Array, touch: Array, first: Array, last: Array,
    base: int, digits: Array, special: Array, now: Array, counts: Array, old: Array, new: Array, old_count: Array,
    new_count: Array, part: int, mask: int, scratch: Array,
) -> bool:  # fmt: skip
    """Add what comes and take away what goes, and read the sum of each pair (instant, group) before and after; False,
    and nothing done, where digits from `base` on have no room for these doubles (`widened`).

    bits: int64 [n], of doubles; valid: bool [n], not null; digits: int64 [groups, d], of 32 bits but the last; special:
    int64 [groups, 3], how many NaN, +inf, -inf; now: double [groups], counts: int64 [groups], of rows that are not
    null; old*, new*: by pair; scratch: int64 [AT_ONCE + d].
    begins, touch, part, mask: as of `group_kernels.apply_counts`; of parts it is known that they have room.
    """
    if mask == 0 and not room_for(bits, base, digits.shape[1]):
        return False
    ragged = begins.shape[0] > 0
    own, scratch = scratch[:AT_ONCE], scratch[AT_ONCE:]
    for some in range(0, touch.shape[0], AT_ONCE):
        many = own_runs(some, codes, begins, touch.shape[0], part, mask, own)
        for k in range(many):
            if k + AHEAD < many:
                following = group_ahead(k, own, begins, codes)
                fetch(digits, following)
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
                    add_carried(digits[code], bits[i], step > 0, base)
            if end - 1 == last[t]:
                now[code] = read(digits[code], base, special[code], scratch)
                new[t] = now[code]
                new_count[t] = counts[code]
    return True


@kernel
def add_doubles(
    begin: int, sign: Array, codes: Array, bits: Array, valid: Array, base: int, digits: Array, special: Array,
    counts: Array,
) -> int:  # fmt: skip
    """As `apply_doubles`, from one tuple on, of which nothing is read: past the last, or the first for which there is
    no room.  Digits may be of any size afterwards."""
    last = digits.shape[1] - 1
    for i in range(begin, sign.shape[0]):
        if i + AHEAD < sign.shape[0]:
            fetch(digits, codes[i + AHEAD])
            fetch(counts, codes[i + AHEAD])
        if not valid[i]:
            continue
        code = codes[i]
        step = 1 if sign[i] > 0 else -1
        if (bits[i] << 1) != 0 and not is_special(bits[i], step, special[code]):
            at = ((bits[i] >> 57) & 0x3F) - base
            if at < 0 or at + 3 > last:
                return i
            add_double(digits[code], bits[i], step > 0, base)
        counts[code] += step
    return int(sign.shape[0])


@inlined
def add_integer(value: int, plus: bool, unsigned: bool, digits: Array) -> None:
    """Add or take away a whole number: digits int64 [2] of its group, high and low."""
    high = (value >> 32) & _LOW if unsigned else value >> 32
    if plus:
        digits[0] += high
        digits[1] += value & _LOW
    else:
        digits[0] -= high
        digits[1] -= value & _LOW


@inlined
def carry_integer(digits: Array) -> None:
    digits[0] += digits[1] >> 32
    digits[1] &= _LOW


@kernel
def apply_integers(
    sign: Array, codes: Array, values: Array, valid: Array, unsigned: bool, begins: Array, touch: Array,
    first: Array, last: Array, digits: Array, counts: Array, old_high: Array, old_low: Array, old_count: Array,
    new_high: Array, new_low: Array, new_count: Array, part: int, mask: int, scratch: Array,
) -> None:  # fmt: skip
    """As apply_doubles for whole numbers: digits int64 [groups, 2]; old_*, new_*: int64 [pairs], high and low digit.

    The sum is high * 2**32 + low, 0 <= low < 2**32.
    begins, touch, part, mask, scratch: as of `group_kernels.apply_counts`.
    """
    ragged = begins.shape[0] > 0
    own = scratch[:AT_ONCE]
    for some in range(0, touch.shape[0], AT_ONCE):
        many = own_runs(some, codes, begins, touch.shape[0], part, mask, own)
        for k in range(many):
            if k + AHEAD < many:
                following = group_ahead(k, own, begins, codes)
                fetch(digits, following)
                fetch(counts, following)
            run = own[k]
            begin = begins[run] if ragged else run
            code = codes[begin]
            end = begins[run + 1] if ragged else run + 1
            t = touch[run]
            if begin == first[t]:
                old_high[t] = digits[code, 0]
                old_low[t] = digits[code, 1]
                old_count[t] = counts[code]
            for i in range(begin, end):
                if valid[i]:
                    counts[code] += 1 if sign[i] > 0 else -1
                    add_integer(values[i], sign[i] > 0, unsigned, digits[code])
            if end - 1 == last[t]:
                carry_integer(digits[code])
                new_high[t] = digits[code, 0]
                new_low[t] = digits[code, 1]
                new_count[t] = counts[code]
