"""The weighted join's coins of tuples where outputs are range records, which have one weight for many pairs.

Design.  A record's weight holds for all its pairs if their tuples came in by the same probability.  So rates move in
steps, by halves, and a range is cut where they moved: at the ordinals that `changes` lists.
Why the mean is right.  Rates follow what tuples were expected to cost, not which of them came in, so that nothing leans
on a coin.  Of what is passed, `kept` a tuple, each unit lets in one tuple of its stream, anywhere in it, each with
exactly its probability: so what came in costs what was expected but for a tuple of either stream, which is kept back,
and hardly a run ends before its input does, which would leave out the rest.  At places that are known beforehand coins
begin anew, and rates look at what was spent.  Streams have coins of their own: a pair's probability is the product.
Source: for the tuple that lies across two units Deville, "Une nouvelle (encore une!) methode de tirage a probabilites
inegales", INSEE, Methodologie Statistique 9804 (1998).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.operators.join.sampling import (
    ANEW,
    ASKING,
    CHANGED,
    CHANGES,
    DUE,
    FORESEEN,
    LATELY,
    MADE,
    PAID,
    PARTNERED,
    RECORDS,
    ROOM,
    STEP,
    TOTAL,
    Sampling,
    to_come,
)
from nile.preferences import state as js
from nile.preferences.arrival_kernels import held_at, pay_hit, unit
from nile.preferences.state import Output, State
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.list_kernels import ordinal_at, rank_from
from nile.summaries.kernels import U8, inlined, part

Array = np.ndarray[Any, Any]
_SPREAD = 1.0  # standard deviations, of as many coins as are to come, that plans may be off by
_KEPT_BACK = 2.0  # tuples: one of either stream may come in before it was expected
_ABOVE = 1.4  # of what is wanted over the step: beyond it, or for want of what is left, it moves where coins begin anew
_LOWER, _HIGHER = 0.5, 3.0  # and elsewhere by one
_LEAST, _MOST = 1.0 / 1024.0, 4.0  # steps: records of tuples that find nothing are planned, and cost nothing
_NEWLY = 0.5  # records more of each tuple, where the step has moved: many a tuple has partners on one side of it alone
_LATELY = 8.0  # tuples, whose records tell what the next will make
_FEW = 16.0  # tuples that are to come in: for fewer, coins do not begin anew


@inlined
def _price(st: State, p: Sampling) -> float:
    """What a tuple that comes in costs: it is paid, and makes records."""
    return st.prices[js.P_INSERT] + st.real[js.BOUNDS] + p.books[RECORDS] * st.prices[js.P_EMIT]  # type: ignore[no-any-return]


@part
def _factors(arrival: int, arrivals: int, st: State, p: Sampling) -> tuple[float, float]:
    """What is left to spend, had tuples cost what was expected, over what is planned to be spent from here on.

    The first: so that as much stays over as what comes may differ by from what was planned; the second: just so.
    """
    price = _price(st, p)
    planned = price / (price + (1.0 - p.books[RECORDS]) * st.prices[js.P_EMIT]) * to_come(arrival, arrivals, p.to_come)
    back = _KEPT_BACK * (price + p.real[ASKING])
    unspent = st.real[js.CREDIT] + p.real[TOTAL] - st.real[js.GRANTED]
    left = unspent + p.books[PAID] - p.books[FORESEEN] - back
    planned += back
    return left / (planned + _SPREAD * math.sqrt(planned * price)), left / planned


@part
def begin(arrival: int, arrivals: int, st: State, p: Sampling) -> None:
    """Coins begin anew, and rates know what was spent; again after half of what is left of the input."""
    p.lines[:, ROOM] = 1.0
    p.lines[:, DUE] = 1.0
    p.books[FORESEEN] = 0.0
    p.books[PAID] = 0.0
    p.books[RECORDS] = max(1.0, p.books[LATELY])
    few = to_come(arrival, arrivals, p.to_come) < _FEW * _price(st, p)
    p.books[ANEW] = np.float64(arrivals) if few else np.float64(arrival + (arrivals - arrival + 1) // 2)


@part
def stepped(arrival: int, arrivals: int, moved: bool, st: State, p: Sampling) -> float:
    """The factor of rates, which stays what it is unless it must move.  moved: rates did, anyway."""
    step = p.real[STEP]
    anew = arrival >= p.books[ANEW]
    if anew:
        begin(arrival, arrivals, st, p)
    wanted, most = _factors(arrival, arrivals, st, p)
    if p.at[CHANGED] < CHANGES - p.ends.shape[0]:
        if anew and not (step <= most and wanted <= _ABOVE * step):
            step = max(_LEAST, min(_MOST, wanted))
            p.books[RECORDS] += _NEWLY
        while most < _LOWER * step and step > _LEAST:
            step *= 0.5
        while wanted > _HIGHER * step and step < _MOST:
            step *= 2.0
    if moved or step != p.real[STEP]:
        p.changes[p.at[CHANGED], 0] = st.whole[js.SEQUENCE]
        p.changes[p.at[CHANGED], 1] = st.whole[js.SEQUENCE + 1]
        p.at[CHANGED] += 1
        p.real[STEP] = step
    return step  # type: ignore[no-any-return]


@part
def comes(kept: float, side: int, ordinal: int, st: State, p: Sampling) -> bool:
    """Whether the next tuple of a stream comes in, with probability `kept`; asked again it says the same."""
    room = p.lines[side, ROOM]
    due = p.lines[side, DUE] != 0.0
    u = unit(U8(2 * ordinal + side), st.setting[js.SALT] + 4)
    if kept > room:
        return due or u < (kept - room) / (1.0 - room)  # type: ignore[no-any-return]
    return due and u < kept / room  # type: ignore[no-any-return]


@part
def foresee(kept: float, chosen: bool, side: int, st: State, p: Sampling) -> None:
    """A tuple has been passed: what it was expected to cost, and where its stream's unit stands.

    Of two units that it lies across, it is the tuple of the first if that had none, and else may be that of the next.
    """
    p.books[FORESEEN] += kept * (p.real[ASKING] + p.books[PARTNERED] * _price(st, p))
    p.books[PAID] += p.real[ASKING] if chosen else 0.0
    room = p.lines[side, ROOM]
    if kept <= room:
        p.lines[side, ROOM] = room - kept
        if chosen:
            p.lines[side, DUE] = 0.0
        return
    p.lines[side, ROOM] = 1.0 - (kept - room)
    p.lines[side, DUE] = 1.0 if p.lines[side, DUE] != 0.0 or not chosen else 0.0


@inlined
def take(entrance: float, st: State, p: Sampling) -> None:
    """A tuple comes in; the one before it has made its records."""
    made = np.float64(st.whole[js.OUTPUTS])
    p.books[PAID] += entrance
    p.books[LATELY] += (made - p.books[MADE] - p.books[LATELY]) / _LATELY
    p.books[MADE] = made


@part
def emit_records(own: Side, other: Side, st: State, p: Sampling, out: Output) -> bool:
    """Emit the records of the entry in progress, one for each part of it that came in by the same coins."""
    w = st.whole
    price = st.prices[js.P_EMIT]
    side = w[js.ENTRY_SIDE]
    ordinal = w[js.ENTRY_ORDINAL]
    code = own.code[held_at(own, ordinal)]
    level = st.left_admission[ordinal] if side == 0 else st.right_admission[ordinal]
    came = p.left_thinned[ordinal] if side == 0 else p.right_thinned[ordinal]
    while w[js.ACTIVE]:
        if st.real[js.CREDIT] < price:
            return True
        at = w[js.WRITTEN]
        if at == out.first.shape[0]:
            return False
        low = w[js.ENTRY_LOW]
        match = ordinal_at(other, code, low)
        high = w[js.ENTRY_HIGH]
        for change in range(p.at[CHANGED]):
            if p.changes[change, 1 - side] > match:
                high = min(high, rank_from(other, code, p.changes[change, 1 - side]))
                break
        met_level = st.right_admission[match] if side == 0 else st.left_admission[match]
        met_came = p.right_thinned[match] if side == 0 else p.left_thinned[match]
        out.first[at] = 2 * ordinal + side
        out.second[at] = low
        out.third[at] = high
        out.weight[at] = 1.0 / (min(level, met_level) * came * met_came)
        w[js.WRITTEN] = at + 1
        w[js.OUTPUTS] += 1
        pay_hit(st, price)
        p.books[PAID] += price
        w[js.ENTRY_LOW] = high
        if high == w[js.ENTRY_HIGH]:
            w[js.ACTIVE] = 0
    return True
