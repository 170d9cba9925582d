"""A join whose tuples come in as planned: whole parts of the key space, best first, as far as the credit lasts.

Cost.  A tuple costs what the promising join pays for one, insertion and the bounds of a list, and a pair what it costs
there; a tuple begins only where a pair of it can be paid, too.  Refusing a tuple is free, as under every admission.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nile.operators.join.guide_kernels import HEAVY, WORTH_NOTING, weigh
from nile.operators.join.learning_kernels import slot_of
from nile.preferences import state as js
from nile.preferences.arrival_kernels import (
    emit_entry,
    held_at,
    make_entry,
    passed,
    pay_hit,
    pay_insert,
    since_of,
    take_arrival,
    window_ranks,
)
from nile.preferences.state import Output, State
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.list_kernels import append, end_rank, is_full, make_room
from nile.summaries.kernels import inlined, kernel, part

Array = np.ndarray[Any, Any]
HELD, PLANNED, SPENT, WARY = 0, 1, 2, 3
"""`real` of an Admission: the credit that the part which comes in in part leaves to the whole ones; what parts that
were not counted were expected to spend so far, and what they have; how much of either tells nothing yet."""


class Admission(NamedTuple):
    """Which tuples come in; `rung` and costs as in `nile.preferences.best_first.Ranked`, in hundredths of a unit."""

    frequent: Array  # int8 [arrivals] under asc: how far the matches that each grants for are too many, 0: not
    is_few: Array  # bool [arrivals] under asc: whether grants tell that the key is rare, as far as they tell
    rung: Array  # int64 [parts]
    reach: Array  # int64 [parts]: ns, how far back a tuple of each rung looks
    to_come: Array  # float64 [parts + 1, segments + 1]
    sure: Array  # float64 [parts + 1, segments + 1]
    is_sure: Array  # bool [parts]
    ends: Array  # int64 [segments]: arrivals
    at: Array  # int64 [3]: the rung that comes in in part, those before it come in whole; how frequent tuples may be;
    #            after how many arrivals both are chosen anew
    all: Array  # float64 [levels, segments + 1]: what all tuples that are no more frequent cost from a segment on
    begun: Array  # int64 [2, keys], asc: of each stream's list, a rank that its window begins at or after
    real: Array  # float64 [4]


@part
def _from(table: Array, ends: Array, rung: int, arrival: int) -> float:
    """What the rungs before one cost from an arrival on, tuples of a segment coming evenly."""
    begin = np.int64(0)
    for segment in range(ends.shape[0]):
        end = ends[segment]
        if arrival < end:
            gone = np.float64(arrival - begin) / np.float64(end - begin)
            return (1.0 - gone) * table[rung, segment] + gone * table[rung, segment + 1]  # type: ignore[no-any-return]
        begin = end
    return 0.0


@part
def _held(a: Admission, rung: int, arrival: int) -> float:
    """The same as far as spending so far tells, which corrects what was not counted."""
    off = (a.real[SPENT] + a.real[WARY]) / (a.real[PLANNED] + a.real[WARY])
    return off * _from(a.to_come, a.ends, rung, arrival) + _from(a.sure, a.ends, rung, arrival)  # type: ignore[no-any-return]


@part
def _choose(a: Admission, st: State) -> None:
    """As many whole rungs as the credit lasts for to the end.  O(log rungs * segments)."""
    now = st.whole[js.ARRIVED]
    if now > 0:
        a.real[PLANNED] += _from(a.to_come, a.ends, a.at[0], now - a.at[2])
        a.real[PLANNED] -= _from(a.to_come, a.ends, a.at[0], now)
    low: Any = np.int64(0)
    high: Any = np.int64(a.rung.shape[0])
    while low < high:
        middle = (low + high + 1) >> 1
        if _held(a, middle, now) <= st.real[js.CREDIT]:
            low = middle
        else:
            high = middle - 1
    a.at[0] = low
    a.real[HELD] = _held(a, low, now)
    a.at[1] = 0
    if low == a.rung.shape[0]:
        while a.at[1] + 1 < a.all.shape[0] and _from(a.all, a.ends, a.at[1] + 1, now) <= st.real[js.CREDIT]:
            a.at[1] += 1


@part
def _is_frequent(own: Side, side: int, code: int, ts: int, matches: int, a: Admission, st: State) -> bool:
    """asc: whether the key has more tuples in its window than an outlier's, as far as is known; the tuple is in.

    The list's end, which taking the tuple in has told, and where its window began when a tuple of the other stream was
    matched with it, say that of most rare keys; else its bounds are looked up.
    """
    if st.shed_at[code] >= since_of(ts, st.window[0]):  # the lists undercount it
        return True
    if end_rank(own, code) - a.begun[side, code] + matches <= st.setting[js.CAP]:
        return False
    if st.real[js.CREDIT] < st.real[js.BOUNDS] + st.prices[js.P_EMIT]:
        return True
    pay_hit(st, st.real[js.BOUNDS])
    low, high = window_ranks(own, code, ts, st.window[0], 0)
    a.begun[side, code] = low
    return matches + high - low > st.setting[js.CAP]  # type: ignore[no-any-return]


@part
def _take_in(own: Side, other: Side, side: int, ordinal: int, rung: int, a: Admission, st: State) -> bool:
    """A tuple whose part is open: into the list of its key, its matches into the register; False: the arena must grow.

    Under asc a tuple of a key that is surely too frequent is turned away while some are, and so is one of a key of
    which a tuple of its window was, since its pairs could not be told for outliers, unless the key is rare again: it
    would stay away for as long as its tuples follow each other within a window.  Only outliers are matches.
    """
    at = held_at(own, ordinal)
    code, ts = own.code[at], own.ts[at]
    rare = st.setting[js.PREFERENCE] == js.ASC
    if is_full(own, code) and not make_room(own, code):
        st.whole[js.STOPPED_SIDE] = side
        st.whole[js.STOPPED_CODE] = code
        return False
    before = st.real[js.SPENT]
    refused = False
    if rare and a.at[1] == 0:
        refused = st.shed_at[code] >= since_of(ts, st.window[0]) and not a.is_few[st.whole[js.APPLIED]]
        if refused:
            pay_insert(st, st.prices[js.P_ESTIMATE])
        else:
            refused = weigh(own, other, ordinal, code, ts, st) == HEAVY
    if refused:
        st.shed_at[code] = ts
        st.whole[js.SHED] += 1
        st.whole[js.SHED_BY_SIDE + side] += 1
    else:
        append(own, code, ordinal)
        pay_insert(st, st.prices[js.P_INSERT])
        st.whole[js.ADMITTED] += 1
        pay_hit(st, st.real[js.BOUNDS])
        low, high = window_ranks(other, code, ts, a.reach[rung], 0)
        if rare:
            a.begun[1 - side, code] = low
        if high > low and not (rare and _is_frequent(own, side, code, ts, high - low, a, st)):
            make_entry(st, side, ordinal, ts, low, high, 1.0)
        else:
            st.whole[js.PRUNED] += 1
    if rung < a.at[0] and not a.is_sure[rung]:
        a.real[SPENT] += st.real[js.SPENT] - before
        if st.whole[js.ACTIVE]:
            a.real[SPENT] += st.prices[js.P_EMIT] * np.float64(st.whole[js.ENTRY_HIGH] - st.whole[js.ENTRY_LOW])
    return True


@inlined
def _least(st: State) -> float:
    """What there is to be before a tuple begins: so much as it costs with a pair, or to be turned away."""
    noting = st.heavy.shape[0] > 0 and st.real[js.HEAVY_MEAN] >= WORTH_NOTING
    if noting and st.setting[js.PREFERENCE] == js.ASC:
        return st.real[js.ENTRANCE] + st.prices[js.P_EMIT]  # type: ignore[no-any-return]
    taking = st.prices[js.P_INSERT] + st.real[js.BOUNDS]
    return max(taking, st.prices[js.P_LOOKUP]) + st.prices[js.P_EMIT]  # type: ignore[no-any-return]


@kernel
def keep_to_plan(
    left: Side, right: Side, order: Array, grant: Array, end: int, a: Admission, st: State, out: Output
) -> int:
    """Run the planned join up to arrival `end`; returns why it stopped (`nile.preferences.state`).

    order: int8 [arrivals], the stream of each; grant: float64 [arrivals], what they grant beside what was there at
    first, in hundredths.
    """
    w = st.whole
    rare = st.setting[js.PREFERENCE] == js.ASC
    while True:
        if w[js.ACTIVE]:
            probing = w[js.ENTRY_SIDE]
            room = emit_entry(left, right, st, out, 0.0) if probing == 0 else emit_entry(right, left, st, out, 0.0)
            if not room:
                return js.OUTPUT_FULL
            w[js.ACTIVE] = 0  # what is left of it cannot be paid
        if w[js.APPLIED] < w[js.ARRIVED]:
            side: Any = np.int64(order[w[js.APPLIED]])
            ordinal = w[js.SEQUENCE + side]
            at = held_at(left, ordinal) if side == 0 else held_at(right, ordinal)
            code = left.code[at] if side == 0 else right.code[at]
            ts = left.ts[at] if side == 0 else right.ts[at]
            h = left.hash[at] if side == 0 else right.hash[at]
            if code < 0:
                w[js.NULLS] += 1
            elif rare and a.frequent[w[js.APPLIED]] > a.at[1]:
                w[js.SHED] += 1
                w[js.SHED_BY_SIDE + side] += 1
                st.shed_at[code] = ts
            else:
                rung = a.rung[slot_of(h, st.setting[js.SALT])]
                wanted = rung <= a.at[0]
                if wanted and st.real[js.CREDIT] >= _least(st) + (a.real[HELD] if rung == a.at[0] else 0.0):
                    taken = (
                        _take_in(left, right, 0, ordinal, rung, a, st)
                        if side == 0
                        else _take_in(right, left, 1, ordinal, rung, a, st)
                    )
                    if not taken:
                        return js.ARENA_FULL
                else:
                    w[js.SHED] += 1
                    w[js.SHED_BY_SIDE + side] += 1
                    w[js.FORCED] += np.int64(wanted)
                    if rare:
                        st.shed_at[code] = ts
            w[js.NOW_TS] = ts
            passed(st, side)
            continue
        if w[js.ARRIVED] == end:
            return js.DONE
        if w[js.ARRIVED] % a.at[2] == 0:
            _choose(a, st)
        take_arrival(st, grant, False)
