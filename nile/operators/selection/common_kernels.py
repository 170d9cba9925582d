"""Pieces that the selection operators share: the clock's arrivals, payment, outputs, and the index."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.common.predicate_index import EDGE, FULL
from nile.operators.selection import state as ss
from nile.operators.selection.state import Progress, Selected, Standing
from nile.summaries.kernels import inlined

Array = np.ndarray[Any, Any]


@inlined
def pay(p: Progress, cost: float) -> None:
    """Charge work before it is done."""
    p.real[ss.CREDIT] -= cost
    p.real[ss.SPENT] += cost


@inlined
def emit(p: Progress, out: Selected, query: int, ordinal: int) -> None:
    """Charge and give one output: a tuple."""
    w = p.whole
    pay(p, p.prices[ss.P_EMIT])
    out.query[w[ss.WRITTEN]] = query
    out.ordinal[w[ss.WRITTEN]] = ordinal
    if out.last.shape[0] > 0:
        out.last[w[ss.WRITTEN]] = -1
    out.at[w[ss.WRITTEN]] = w[ss.ARRIVED]
    w[ss.WRITTEN] += 1
    w[ss.OUTPUTS] += 1


@inlined
def emit_run(s: Standing, first: int, ordinal: int, n: int, p: Progress, out: Selected) -> int:
    """Charge and give a tuple to n queries, from `first` on in the list of the index, while credit lasts; to how many.

    As `emit` n times: prices are whole numbers, so that their sums are the same.  Where there is room for `last`, pairs
    (setting PLAIN) are one record for two queries and more: the place of the first in the list, and -1 - n.
    """
    w = p.whole
    price = p.prices[ss.P_EMIT]
    if price * n > p.real[ss.CREDIT]:
        n = int(max(0.0, p.real[ss.CREDIT]) / price)
    if n == 0:
        return 0
    pay(p, price * n)
    at = w[ss.WRITTEN]
    arrived = w[ss.ARRIVED]
    w[ss.OUTPUTS] += n
    if n > 1 and p.setting[ss.PLAIN] and out.last.shape[0] > 0:
        out.query[at] = first
        out.ordinal[at] = ordinal
        out.at[at] = arrived
        out.last[at] = -1 - n
        w[ss.WRITTEN] = at + 1
        return n
    for i in range(n):
        out.query[at + i] = s.full[first + i]
        out.ordinal[at + i] = ordinal
        out.at[at + i] = arrived
    if out.last.shape[0] > 0:
        for i in range(n):
            out.last[at + i] = -1
    w[ss.WRITTEN] = at + n
    return n


@inlined
def arrive(p: Progress, grant: Array, idle: bool) -> None:
    """The next tuple has arrived: its grant is added; under a replay credit that found no work expires."""
    if p.setting[ss.REPLAYED] and idle and p.real[ss.CREDIT] > 0.0:
        p.real[ss.CREDIT] = 0.0
    amount = grant[p.whole[ss.ARRIVED]]
    p.real[ss.CREDIT] += amount
    p.real[ss.GRANTED] += amount
    p.whole[ss.ARRIVED] += 1


@inlined
def must_go(p: Progress) -> bool:
    """Whether more arrivals wait than may, so that the oldest is shed."""
    return p.whole[ss.ARRIVED] - p.whole[ss.APPLIED] > p.setting[ss.WAITING]  # type: ignore[no-any-return]


@inlined
def shed(p: Progress) -> None:
    """The oldest waiting arrival is not taken in."""
    p.whole[ss.SHED] += 1
    p.whole[ss.APPLIED] += 1


@inlined
def oldest_valid(s: Standing, p: Progress) -> int:
    """The oldest time that is still inside the window, without running off the ends of int64."""
    now = s.ts[p.whole[ss.ARRIVED] - 1]
    window = p.setting[ss.WINDOW]
    return now - window if now >= window - ss.FOREVER else -ss.FOREVER


@inlined
def satisfies(s: Standing, query: int, ordinal: int) -> bool:
    """The predicate on a tuple."""
    said = s.says[query, s.code[ordinal]]
    if said == EDGE:
        return s.verdict[s.verdict_row[query], ordinal] != 0  # type: ignore[no-any-return]
    return said == FULL  # type: ignore[no-any-return]


@inlined
def finding(s: Standing, code: int, p: Progress) -> float:
    """What finding a tuple's cell costs: a look-up, and for a new key the predicates that values have to be put to.

    Never more than putting to the tuple all predicates that its cell does not leave open, which tells the same.
    """
    price = p.prices[ss.P_LOOKUP]
    if s.seen[code] == 0:
        price += p.setting[ss.LEARNED] * p.prices[ss.P_SCAN]
    cell = s.cell[code]
    others = s.says.shape[0] - (s.edge_from[cell + 1] - s.edge_from[cell])
    return min(price, others * p.prices[ss.P_SCAN])  # type: ignore[no-any-return]


@inlined
def meet(s: Standing, code: int, p: Progress) -> None:
    """The index knows the key from now on."""
    if s.seen[code] == 0:
        s.seen[code] = 1
        p.whole[ss.EVALUATED] += p.setting[ss.LEARNED]


@inlined
def try_edge(s: Standing, query: int, ordinal: int, p: Progress, out: Selected) -> bool:
    """Put a predicate that is open to a tuple, and give the tuple if it satisfies it; whether it does."""
    pay(p, p.prices[ss.P_SCAN])
    p.whole[ss.SCANNED] += 1
    if satisfies(s, query, ordinal):
        emit(p, out, query, ordinal)
        return True
    return False
