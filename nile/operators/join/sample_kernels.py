"""The weighted join over an input that is there whole: three coins between a pair and the sample, paid as it goes.

Design.  Rates are planned (`nile.preferences.strata`), so a tuple's fate needs one look at a small table.  What comes
in is paid at once and joined at once, in order; when credit is out, tuples wait for what later arrivals grant.  A
factor, 1 when all goes as planned, moves the rates of tuples and pairs towards what is left to spend.
Why the mean is right.  The factor depends on earlier coins of tuples alone, so each tuple is in with exactly the
probability that its weight undoes.  How many of a tuple's pairs are drawn is the number of ticks that fall on them, of
which each unit of what is passed, `rate` a pair, has one, anywhere in it; which pairs, a place of its own tells.  What
draws cost is counted as expected, not as it fell, or later rates would lean on ticks that are known already.  The level
of key hashes, whose coin is shared, follows nothing that the coin has decided.
Why it scatters little.  Coins fall in blocks: of so many tuples of a stratum in a row one comes in (or all but one),
whichever it is, so that what comes in is spread as what came is.  A block's length is set when it begins, by what was
known before.  Each stratum has ticks of its own, and the places that tell which pair step by the golden ratio, so that
heavy keys and all ages get their share.
Where outputs are what a budget goes into, pairs that are drawn are only scanned, and of these the next one of its cell
is handed out (`nile.preferences.phases`).
Cost.  A refused tuple costs nothing, as everywhere.  Ranges: `nile.operators.join.record_kernels`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.join.learning_kernels import is_looked_at, may_hold, slot_of
from nile.operators.join.record_kernels import comes, emit_records, foresee, stepped, take
from nile.operators.join.sampling import (
    AGES,
    AHEAD,
    APART,
    ASKING,
    BEGAN,
    CELLS,
    DRAWN,
    EXPECTED,
    LAST,
    LENGTH,
    MET,
    OWED,
    PER_NS,
    PLACE,
    SHARE,
    TICKS,
    TOTAL,
    WITHIN,
    Sampling,
    to_come,
)
from nile.preferences import state as js
from nile.preferences.arrival_kernels import (
    held_at,
    make_entry,
    passed,
    pay_hit,
    pay_insert,
    put_in_list,
    take_arrival,
    unit,
    window_ranks,
)
from nile.preferences.follow_kernels import draws_of
from nile.preferences.state import Output, State
from nile.preferences.strata import FIRM
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.summaries.kernels import U8, inlined, kernel, part

Array = np.ndarray[Any, Any]
_MOST = 2.0  # of the factor
_LEAST = 1.0 / 64.0
_NEXT_TO_NOTHING = 1e-9
_ONE_BLOCK = 0.25  # of the tuples that what is left pays for, the most that one block may let in
_ONE_ENTRY = 0.5  # of all that is left to spend, the most that the pairs of one tuple may take
_GOLDEN = 0.6180339887498949
_EVEN = 0.5  # of a rate: below it blocks have one tuple that comes in, above it one that stays out
_LONGEST = float(1 << 40)


@part
def _left(st: State, p: Sampling) -> float:
    """What is left to spend, had as many pairs been drawn as were to be expected."""
    unspent = st.real[js.CREDIT] + p.real[TOTAL] - st.real[js.GRANTED]
    return unspent - st.prices[js.P_EMIT] * (p.real[EXPECTED] - p.at[DRAWN]) - p.thin[OWED]  # type: ignore[no-any-return]


@part
def _factor(arrival: int, arrivals: int, st: State, p: Sampling) -> float:
    """By how much rates move: what is left to spend over what was planned to be spent from here on.

    Tuples that are held to come in do not move, unless what is left is but half of what rates that move would take.
    """
    planned = to_come(arrival, arrivals, p.to_come)
    if planned <= 0.0:
        return 1.0
    held = to_come(arrival, arrivals, p.held)
    left = _left(st, p) - st.prices[js.P_INSERT] - st.real[js.BOUNDS]
    moving = max(_NEXT_TO_NOTHING, planned - held)
    factor = (left - held) / moving if left >= held + moving / FIRM else left / (moving + FIRM * held)
    return max(_LEAST, min(_MOST, factor))  # type: ignore[no-any-return]


@inlined
def _drawn(rate: float, n: int, line: int, st: State, p: Sampling) -> float:
    """How many of n pairs are drawn: as many as ticks fall on them; all of them where the rate is 1."""
    if p.cells.shape[0]:
        p.thin[OWED] += rate * n * (st.prices[js.P_SCAN] + p.thin[SHARE] * st.prices[js.P_EMIT])
    else:
        p.real[EXPECTED] += draws_of(rate, n)
    if rate >= 1.0:
        return np.float64(n)
    ticks = 0
    ahead = p.lines[line, AHEAD]
    while ahead < rate * n:
        ticks += 1
        p.at[TICKS] += 1
        within = unit(U8(p.at[TICKS]), st.setting[js.SALT] + 3)
        ahead += 1.0 + within - p.lines[line, WITHIN]
        p.lines[line, WITHIN] = within
    p.lines[line, AHEAD] = ahead - rate * n
    return np.float64(ticks)


@part
def draw(rate: float, n: int, luck: float, line: int, st: State, p: Sampling) -> None:
    """Draw among the n pairs of the entry in progress, at even distances from a place of luck; it may have none.

    Of more ticks than pairs, all pairs stand for more.
    """
    ticks = _drawn(rate, n, line, st, p)
    draws = min(ticks, np.float64(n))
    if draws == 0.0:
        st.whole[js.ACTIVE] = 0
        return
    if p.cells.shape[0] == 0:
        p.at[DRAWN] += np.int64(draws)
    p.at[LAST] = -1
    p.real[APART] = n / draws
    st.real[js.ENTRY_GAP] = luck * p.real[APART] if draws < n else 0.0
    st.real[js.ENTRY_STEP] = rate * draws / ticks


@part
def _came(
    kept: float, tuples: float, side: int, segment: int, stratum: int, ordinal: int, st: State, p: Sampling
) -> float:
    """The probability with which the next tuple of a stream's stratum comes in; 0 when it does not.

    kept: the rate at which the next block begins; tuples: as many as what is left pays for, of which a block that lets
    in all but one may have but a part, or those behind it would wait for nothing.  Asked again of the same tuple, it
    says the same.
    """
    block = p.block[side, stratum]
    if block[BEGAN] != segment or block[MET] >= abs(block[LENGTH]):
        few = kept < _EVEN
        length = min(_LONGEST, 1.0 / max(1e-12, kept if few else 1.0 - kept))
        if not few:
            length = max(1.0 / _EVEN, min(length, _ONE_BLOCK * tuples))
        h = U8(2 * ordinal + side)
        whole = np.int64(length + unit(h, st.setting[js.SALT] + 6))
        if kept >= 1.0:
            few, whole = True, np.int64(1)
        block[LENGTH] = whole if few else -whole
        block[PLACE] = min(whole - 1, np.int64(unit(h, st.setting[js.SALT] + 4) * whole))
        block[MET] = 0
        block[BEGAN] = segment
    chosen = block[MET] == block[PLACE]
    share = 1.0 / np.float64(abs(block[LENGTH]))
    if block[LENGTH] > 0:
        return share if chosen else 0.0
    return 0.0 if chosen else 1.0 - share


@part
def _hand_out(own: Side, other: Side, st: State, p: Sampling, out: Output) -> bool:
    """`emit` in two phases: drawn pairs are scanned, and the next one of its cell is handed out.

    What each pair reads and moves is held in registers: there are several times as many as are handed out.
    """
    w = st.whole
    real = st.real
    scan, price = st.prices[js.P_SCAN], st.prices[js.P_EMIT]
    side, ordinal = w[js.ENTRY_SIDE], w[js.ENTRY_ORDINAL]
    code = own.code[held_at(own, ordinal)]
    ts = own.ts[held_at(own, ordinal)]
    low, n = w[js.ENTRY_LOW], w[js.ENTRY_HIGH] - w[js.ENTRY_LOW]
    begin = other.lists[code, ga.PLACE] - other.lists[code, ga.GONE] + low
    gone, met_gone = w[js.ADMISSIONS_GONE + side], w[js.ADMISSIONS_GONE + 1 - side]
    level = (st.left_admission if side == 0 else st.right_admission)[ordinal - gone]
    stands = (p.left_thinned if side == 0 else p.right_thinned)[ordinal - gone]
    levels = st.right_admission if side == 0 else st.left_admission
    coins = p.right_thinned if side == 0 else p.left_thinned
    arena, times, base, cells = other.arena, other.ts, other.meta[ga.BASE], p.cells
    first = np.int64(p.thin[CELLS])
    most = np.int64(p.thin[AGES]) - 1
    per_ns, share, step = p.thin[PER_NS] * p.thin[AGES], p.thin[SHARE], real[js.ENTRY_STEP]
    gap, apart, last = real[js.ENTRY_GAP], p.real[APART], p.at[LAST]
    credit, owed, at = real[js.CREDIT], p.thin[OWED], w[js.WRITTEN]
    before, written = credit, at
    room = True
    while True:
        which = max(np.int64(gap), last + 1)
        if which >= n:
            w[js.ACTIVE] = 0
            break
        if credit < scan + price:
            break
        if at == out.first.shape[0]:
            room = False
            break
        match = arena[U8(begin + which)]
        last = which
        gap += apart
        age = np.float64(abs(ts - times[U8(match - base)]))
        cell = U8(first + min(most, np.int64(age * per_ns)))
        due = cells[cell] + share
        is_next = np.int64(due >= 1.0)
        cells[cell] = due - np.float64(is_next)
        paid = price * np.float64(is_next)
        credit -= scan + paid
        owed -= scan
        owed -= paid
        out.first[at] = ordinal if side == 0 else match  # written over by the next pair where it is not handed out
        out.second[at] = match if side == 0 else ordinal
        at += is_next
    for i in range(written, at):
        met = U8((out.second[i] if side == 0 else out.first[i]) - met_gone)
        out.weight[i] = 1.0 / (min(level, levels[met]) * stands * coins[met] * step * share)
    pay_hit(st, before - credit)
    p.thin[OWED] = owed
    p.at[LAST] = last
    real[js.ENTRY_GAP] = gap
    w[js.WRITTEN] = at
    w[js.OUTPUTS] += at - written
    return room


@part
def emit(own: Side, other: Side, st: State, p: Sampling, out: Output) -> bool:
    """Emit drawn pairs of the entry in progress while credit lasts; False when the output is full."""
    if p.cells.shape[0]:
        return _hand_out(own, other, st, p, out)
    w = st.whole
    real = st.real
    price = st.prices[js.P_EMIT]
    side = w[js.ENTRY_SIDE]
    ordinal = w[js.ENTRY_ORDINAL]
    code = own.code[held_at(own, ordinal)]
    low, n = w[js.ENTRY_LOW], w[js.ENTRY_HIGH] - w[js.ENTRY_LOW]
    begin = other.lists[code, ga.PLACE] - other.lists[code, ga.GONE] + low
    gone, met_gone = w[js.ADMISSIONS_GONE + side], w[js.ADMISSIONS_GONE + 1 - side]
    level = (st.left_admission if side == 0 else st.right_admission)[ordinal - gone]
    came = (p.left_thinned if side == 0 else p.right_thinned)[ordinal - gone]
    while True:
        which = max(np.int64(real[js.ENTRY_GAP]), p.at[LAST] + 1)
        if which >= n:
            w[js.ACTIVE] = 0
            return True
        if real[js.CREDIT] < price:
            return True
        at = w[js.WRITTEN]
        if at == out.first.shape[0]:
            return False
        match = other.arena[begin + which]
        met_level = (st.right_admission if side == 0 else st.left_admission)[match - met_gone]
        met_came = (p.right_thinned if side == 0 else p.left_thinned)[match - met_gone]
        out.first[at] = ordinal if side == 0 else match
        out.second[at] = match if side == 0 else ordinal
        out.weight[at] = 1.0 / (min(level, met_level) * came * met_came * real[js.ENTRY_STEP])
        w[js.WRITTEN] = at + 1
        w[js.OUTPUTS] += 1
        pay_hit(st, price)
        p.at[LAST] = which
        real[js.ENTRY_GAP] += p.real[APART]


@part
def join(own: Side, other: Side, side: int, ordinal: int, st: State) -> int:
    """Take a tuple in, which is paid for, and find its pairs; returns how many, -1 when the arena must grow first."""
    at = held_at(own, ordinal)
    code = own.code[at]
    if not put_in_list(own, side, code, ordinal, st):
        return -1
    st.whole[js.ADMITTED] += 1
    pay_insert(st, st.prices[js.P_INSERT])
    pay_hit(st, st.real[js.BOUNDS])
    low, high = window_ranks(other, code, own.ts[at], st.window[0], 0)
    if high > low:
        make_entry(st, side, ordinal, own.ts[at], low, high, 1.0)
    return high - low


@kernel
def sample(left: Side, right: Side, order: Array, grant: Array, end: int, st: State, p: Sampling, out: Output) -> int:
    """Run the sampling join up to arrival `end`; returns why it stopped (`nile.preferences.state`).

    order: int8 [arrivals], the stream of each; grant: float64 [arrivals].
    """
    w = st.whole
    real = st.real
    salt = st.setting[js.SALT]
    entrance = st.prices[js.P_INSERT] + real[js.BOUNDS]
    ranges = st.setting[js.RANGES] != 0
    segment = 0
    while w[js.APPLIED] > 0 and w[js.APPLIED] - 1 >= p.ends[segment]:
        segment += 1
    while True:
        if w[js.ACTIVE]:
            if ranges:
                room = (
                    emit_records(left, right, st, p, out)
                    if w[js.ENTRY_SIDE] == 0
                    else emit_records(right, left, st, p, out)
                )
            else:
                room = emit(left, right, st, p, out) if w[js.ENTRY_SIDE] == 0 else emit(right, left, st, p, out)
            if not room:
                return js.OUTPUT_FULL
        if w[js.ACTIVE] == 0 and w[js.APPLIED] < w[js.ARRIVED]:
            arrival = w[js.APPLIED]
            moved = False
            while arrival >= p.ends[segment]:
                segment += 1
                moved = True
            side: Any = np.int64(order[arrival])
            ordinal = w[js.SEQUENCE + side]
            at = held_at(left, ordinal) if side == 0 else held_at(right, ordinal)
            code = left.code[at] if side == 0 else right.code[at]
            h = left.hash[at] if side == 0 else right.hash[at]
            due, came, level, factor, kept = 0.0, 0.0, 0.0, 1.0, 0.0
            alone = False
            met = False
            chosen = False
            stratum = 0
            if ranges:
                factor = stepped(arrival, order.shape[0], moved, st, p)
            if code >= 0:
                if is_looked_at(arrival, p.every[segment], salt):
                    due = p.price[segment]
                stratum = p.slot[segment, slot_of(h, salt)]
                level = p.level[segment, stratum]
                if unit(h, salt) < level:
                    met = True
                    if not ranges:
                        factor = _factor(arrival, order.shape[0], st, p)
                        p.factors[arrival * p.factors.shape[0] // order.shape[0]] = factor
                    kept = min(1.0, factor * (p.left if side == 0 else p.right)[segment, stratum])
                    if ranges:
                        came = kept if comes(kept, side, ordinal, st, p) else 0.0
                    else:
                        came = _came(kept, _left(st, p) / entrance, side, segment, stratum, ordinal, st, p)
                    if came > 0.0:
                        chosen = True
                        due += p.real[ASKING]
                        alone = p.real[ASKING] > 0.0 and not (may_hold(right, h) if side == 0 else may_hold(left, h))
                        came = 0.0 if alone else came
            if real[js.CREDIT] >= due + (entrance if came > 0.0 else 0.0):
                if code < 0:
                    w[js.NULLS] += 1
                elif alone:
                    w[js.PRUNED] += 1
                elif came == 0.0:
                    w[js.SHED] += 1
                    w[js.SHED_BY_SIDE + side] += 1
                else:
                    (st.left_admission if side == 0 else st.right_admission)[ordinal] = level
                    (p.left_thinned if side == 0 else p.right_thinned)[ordinal] = came
                    n = join(left, right, side, ordinal, st) if side == 0 else join(right, left, side, ordinal, st)
                    if n < 0:
                        return js.ARENA_FULL
                    if ranges:
                        take(entrance, st, p)
                        real[js.MATCHES] += np.float64(min(n, 1))
                    elif n > 0:
                        real[js.MATCHES] += np.float64(n)
                        price = st.prices[js.P_EMIT]
                        if p.cells.shape[0]:
                            p.thin[SHARE] = p.share[segment, stratum]
                            p.thin[CELLS] = p.of[stratum, 0]
                            p.thin[AGES] = p.of[stratum, 1]
                            price = st.prices[js.P_SCAN] + p.thin[SHARE] * price
                        most = max(1e-9, _ONE_ENTRY * _left(st, p) / (price * n))
                        rate = min(1.0, min(most, factor * p.rate[segment, stratum]))
                        draw(rate, n, p.luck[0], stratum, st, p)
                        if w[js.ACTIVE]:
                            p.luck[0] = (p.luck[0] + _GOLDEN) % 1.0
                if ranges and met:
                    foresee(kept, chosen, side, st, p)
                elif met:
                    p.block[side, stratum, MET] += 1
                pay_insert(st, due)
                w[js.NOW_TS] = left.ts[at] if side == 0 else right.ts[at]
                passed(st, side)
                continue
        if w[js.ARRIVED] == end:
            return js.DONE
        take_arrival(st, grant, False)
