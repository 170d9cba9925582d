"""Opponents of the selections that have no summary: each query fed for itself, and one predicate index.

Cost.  Every operation is paid for before it is done: spending never passes what was granted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.selection import state as ss
from nile.operators.selection.common_kernels import (
    arrive,
    emit,
    finding,
    meet,
    must_go,
    oldest_valid,
    pay,
    satisfies,
    shed,
    try_edge,
)
from nile.operators.selection.state import Progress, Selected, Standing
from nile.summaries.kernels import kernel

Array = np.ndarray[Any, Any]


@kernel
def select_naive(s: Standing, grant: Array, end: int, p: Progress, out: Selected) -> int:
    """Each query is fed the stream for itself, in turns, and drops what there is no time for.

    grant: float64 [n].  Runs up to arrival `end`; returns 0 when there, or the room that the next tuple needs.
    """
    w = p.whole
    queries = s.says.shape[0]
    price = p.prices[ss.P_SCAN]
    least = price + p.prices[ss.P_EMIT]
    while True:
        while w[ss.APPLIED] < w[ss.ARRIVED]:
            if w[ss.WRITTEN] + queries > out.query.shape[0]:
                return queries  # type: ignore[no-any-return]
            ordinal = w[ss.APPLIED]
            if s.ts[ordinal] < oldest_valid(s, p):
                shed(p)
                continue
            if p.real[ss.CREDIT] < p.prices[ss.P_INSERT]:
                if not must_go(p):
                    break
                shed(p)
                w[ss.LOST] += queries
                continue
            pay(p, p.prices[ss.P_INSERT])
            p.real[ss.SPENT_SUMMARY] += p.prices[ss.P_INSERT]
            fed = 0
            while fed < queries and p.real[ss.CREDIT] >= least:
                q = w[ss.NEXT]
                w[ss.NEXT] = (q + 1) % queries
                pay(p, price)
                w[ss.SCANNED] += 1
                if satisfies(s, q, ordinal):
                    emit(p, out, q, ordinal)
                fed += 1
            w[ss.SHED] += fed == 0
            w[ss.LOST] += queries - fed
            w[ss.APPLIED] += 1
        if w[ss.ARRIVED] == end:
            return 0
        arrive(p, grant, w[ss.APPLIED] == w[ss.ARRIVED])


@kernel
def select_indexed(s: Standing, keep: Array, grant: Array, end: int, p: Progress, out: Selected) -> int:
    """One predicate index for all: a lookup per tuple, then its matches while credit lasts.  As `select_naive`.

    keep: uint8 [n], 0 for the tuples that `shed-uniform` sheds before they cost anything; length 0 keeps all.
    """
    w = p.whole
    while True:
        while w[ss.APPLIED] < w[ss.ARRIVED]:
            ordinal = w[ss.APPLIED]
            code = s.code[ordinal]
            cell = s.cell[code]
            full = s.full_from[cell + 1] - s.full_from[cell]
            n = full + s.edge_from[cell + 1] - s.edge_from[cell]
            if w[ss.WRITTEN] + n > out.query.shape[0]:
                return n  # type: ignore[no-any-return]
            if s.ts[ordinal] < oldest_valid(s, p) or (keep.shape[0] > 0 and keep[ordinal] == 0):
                shed(p)
                continue
            price = p.prices[ss.P_INSERT] + finding(s, code, p)
            if p.real[ss.CREDIT] < price:
                if not must_go(p):
                    break
                shed(p)
                w[ss.LOST] += n
                continue
            pay(p, price)
            p.real[ss.SPENT_SUMMARY] += price
            meet(s, code, p)
            done = 0
            while done < n:
                which = (ordinal + done) % n
                if which < full:
                    if p.real[ss.CREDIT] < p.prices[ss.P_EMIT]:
                        break
                    emit(p, out, s.full[s.full_from[cell] + which], ordinal)
                else:
                    if p.real[ss.CREDIT] < p.prices[ss.P_SCAN] + p.prices[ss.P_EMIT]:
                        break
                    try_edge(s, s.edge[s.edge_from[cell] + which - full], ordinal, p, out)
                done += 1
            w[ss.LOST] += n - done
            w[ss.APPLIED] += 1
        if w[ss.ARRIVED] == end:
            return 0
        arrive(p, grant, w[ss.APPLIED] == w[ss.ARRIVED])
