"""SELECTION of Figure 8 over many standing predicates, over the structures T1 to T4.

Design.  A tuple enters one cell, value bucket x zone: a count and a list in arrival order.  At every slice end
queries are dispatched in turn while credit lasts.  A dispatch is one round of Figure 8: the query looks at
the cells of [t_start, t_end) whose bucket holds keys that satisfy it, puts them in the order of their
promise, scans until nothing is left of the credit, and goes on from t_end next time.  What it has not
scanned by then it never will; so no dispatch begins with less than half of the credit of the slice end, lest a
query lose a region to the dregs of another's time.
T3 has zones of so many tuples; T4's end at a slice end where the stream has changed, or at that length; T2 has one
value bucket, T1 one cell and no estimates: its rounds scan all that has come.
Pacing.  Under a replay arrivals may wait for credit, and what a turn of all queries leaves of it expires.
Cost.  Every operation is paid for before it is done: spending never passes what was granted.  A change detector
that cannot be paid looks a slice later.
Source: promising tuples, sections 3.1 to 3.3, 4.2 and Figure 8.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.operators.common.predicate_index import NONE
from nile.operators.selection import state as ss
from nile.operators.selection.common_kernels import arrive, emit, must_go, oldest_valid, pay, satisfies, shed
from nile.operators.selection.state import Detector, Progress, Selected, Standing, ValueGrid
from nile.pyramid.grid.change_kernels import confidence_of, look
from nile.pyramid.grid.spec import SLICE
from nile.summaries.kernels import U8, allocating_part, inlined, kernel, part

Array = np.ndarray[Any, Any]
_T1, _T2, _T4 = 1, 2, 4
_SAMPLED = 24  # keys of a bucket to which a predicate is put; the others are taken to be like them


@inlined
def _price_of_taking(p: Progress) -> float:
    """Insert, and under a summary its update; the value bucket is looked up, T4's detector updated.

    The first tuples, which the buckets' borders are learned from, pay a lookup more.
    """
    prices = p.prices
    structure = p.setting[ss.STRUCTURE]
    price = prices[ss.P_INSERT]
    if structure != _T1:
        price += prices[ss.P_UPDATE]
        if structure != _T2:
            price += prices[ss.P_LOOKUP]
            if p.whole[ss.APPLIED] < p.setting[ss.SAMPLE]:
                price += prices[ss.P_LOOKUP]
    if structure == _T4:
        price += 3 * prices[ss.P_UPDATE]
    return price  # type: ignore[no-any-return]


@inlined
def _summarize(s: Standing, g: ValueGrid, d: Detector, p: Progress) -> None:
    """The oldest waiting arrival into its cell; it has been paid for."""
    ordinal = p.whole[ss.APPLIED]
    code = s.code[ordinal]
    b = g.bucket[code]
    z = p.whole[ss.ZONE_NOW]
    if g.tuples[z, b] == 0:
        g.head[z, b] = ordinal
    else:
        g.after[g.tail[z, b]] = ordinal
    g.tail[z, b] = ordinal
    g.tuples[z, b] += 1
    p.whole[ss.KNOWN] = max(p.whole[ss.KNOWN], code + 1)
    if p.setting[ss.STRUCTURE] == _T4:
        p.whole[ss.SLICE_COUNT] += 1
        by = U8(64 - round(math.log2(d.recent.shape[1])))
        for r in range(3):
            d.recent[r, (d.multipliers[r] * d.hashes[code]) >> by] += 1


@part
def _end_zone(g: ValueGrid, d: Detector, p: Progress) -> None:
    """Where the last tuple dealt with ends a zone, begin the next."""
    w = p.whole
    ending = w[ss.APPLIED] - w[ss.ZONE_BEGAN] >= p.setting[ss.ZONE]
    if p.setting[ss.STRUCTURE] == _T4:
        if w[ss.APPLIED] % SLICE != 0:
            return
        columns = d.reference.shape[1]
        looking = p.prices[ss.P_ADD] * 6 * columns
        if w[ss.SLICE_COUNT] > 0 and p.real[ss.CREDIT] >= looking:
            pay(p, looking)
            p.real[ss.SPENT_SUMMARY] += looking
            look(d.reference, d.recent, d.moments)
            n, m = w[ss.REFERENCE], w[ss.SLICE_COUNT]
            if n > 0 and confidence_of(d.moments, columns, n, m, p.setting[ss.HOW]) < d.threshold[0]:
                w[ss.CHANGES] += 1
                ending = True
            w[ss.REFERENCE] = n + m
            w[ss.SLICE_COUNT] = 0
        if ending:
            d.reference[:] = 0
            w[ss.REFERENCE] = 0
    g.zone_end[w[ss.ZONE_NOW]] = w[ss.APPLIED]
    if ending:
        w[ss.ZONE_NOW] += 1
        w[ss.ZONE_BEGAN] = w[ss.APPLIED]


@inlined
def _is_sampled(g: ValueGrid, q: int, b: int, p: Progress) -> bool:
    """Whether what a query knows of a bucket is a sample, which gets no larger."""
    return g.known[q, b] >= _SAMPLED and p.setting[ss.EXACT] == 0  # type: ignore[no-any-return]


@part
def _evaluate(s: Standing, g: ValueGrid, q: int, p: Progress) -> bool:
    """Put the predicate to the keys that are new to the query, one scan each; False when credit ends before.

    Under a budget to a sample of each bucket's, the first: at continuous values every tuple has a key of its own.
    """
    price = p.prices[ss.P_SCAN]
    while g.evaluated[q] < p.whole[ss.KNOWN]:
        code = g.evaluated[q]
        b = g.bucket[code]
        if _is_sampled(g, q, b, p):
            g.evaluated[q] += 1
            continue
        if p.real[ss.CREDIT] < price:
            return False
        pay(p, price)
        p.whole[ss.EVALUATED] += 1
        g.known[q, b] += 1
        if s.says[q, code] != NONE:
            g.passing[q, b] += 1
            g.weight[q, b] += g.magnitude[code]
        g.evaluated[q] += 1
    return True


@part
def _regions(s: Standing, g: ValueGrid, q: int, oldest: int, p: Progress) -> int:
    """Step 2b: the predicate on the summaries of [t_start, t_end), newest zone first; how many regions promise.

    Reading takes at most half of what the dispatch has; what is not read then is left out.
    """
    w = p.whole
    by_value = p.setting[ss.BY_VALUE]
    unguided = p.setting[ss.STRUCTURE] == _T1
    price = 0.0 if unguided else p.prices[ss.P_ESTIMATE]
    if not unguided and p.setting[ss.PREFERENCE] != ss.WEIGHTED:
        price += p.prices[ss.P_PUSH]
    floor = 0.5 * p.real[ss.CREDIT]
    regions = 0
    for z in range(w[ss.ZONE_NOW], g.resume_zone[q] - 1, -1):
        if z == w[ss.ZONE_NOW] and w[ss.ZONE_BEGAN] == w[ss.APPLIED]:
            continue  # it has just begun
        if s.ts[(w[ss.APPLIED] if z == w[ss.ZONE_NOW] else g.zone_end[z]) - 1] < oldest:
            break
        for b in range(g.known.shape[1]):
            if not unguided and g.passing[q, b] == 0:
                continue
            if p.real[ss.CREDIT] - price < floor:
                return regions
            pay(p, price)
            w[ss.READ] += not unguided
            size = g.tuples[z, b]
            first = g.head[z, b]
            if z == g.resume_zone[q]:
                size -= g.resume_count[q, b]
                if g.resume_tail[q, b] >= 0:
                    first = g.after[g.resume_tail[q, b]]
            if size == 0:
                continue
            share = 1.0 if unguided else g.passing[q, b] / g.known[q, b]
            g.share[regions] = share
            g.priority[regions] = size * (g.weight[q, b] / g.known[q, b]) if by_value and not unguided else share
            g.size[regions] = size
            g.first[regions] = first
            regions += 1
    return regions


@part
def _scan(s: Standing, g: ValueGrid, q: int, at: int, tuples: int, oldest: int, p: Progress, out: Selected) -> bool:
    """Step 2d: the predicate on tuples of a cell in arrival order; False when credit ends before."""
    price = p.prices[ss.P_SCAN]
    least = price + p.prices[ss.P_EMIT]
    for _ in range(tuples):
        if p.real[ss.CREDIT] < least:
            return False
        pay(p, price)
        p.whole[ss.SCANNED] += 1
        if satisfies(s, q, at) and s.ts[at] >= oldest:
            emit(p, out, q, at)
        at = g.after[at]
    return True


@allocating_part
def _visit_sorted(s: Standing, g: ValueGrid, q: int, n: int, oldest: int, p: Progress, out: Selected) -> None:
    """Steps 2c and 2d, desc or asc: the best region first, regions alike newest zone and lowest bucket first."""
    if p.setting[ss.PREFERENCE] == ss.ASC:
        order = np.argsort(g.priority[:n], kind="mergesort")
    else:
        order = np.argsort(-g.priority[:n], kind="mergesort")
    price = p.prices[ss.P_HEAP_POP] * math.ceil(math.log2(n))
    for i in range(n):
        if p.real[ss.CREDIT] < price + p.prices[ss.P_SCAN] + p.prices[ss.P_EMIT]:
            p.whole[ss.UNDONE] += n - i
            return
        pay(p, price)
        p.whole[ss.VISITED] += 1
        r = order[i]
        if not _scan(s, g, q, g.first[r], g.size[r], oldest, p, out):
            p.whole[ss.UNDONE] += n - i
            return


@part
def _visit_weighted(s: Standing, g: ValueGrid, q: int, n: int, oldest: int, p: Progress, out: Selected) -> None:
    """Steps 2c and 2d, weighted: credit is divided among regions by what all their tuples are expected to take.

    So the same share of each is scanned.  What a region does not use, it leaves to those after it.
    """
    least = p.prices[ss.P_SCAN] + p.prices[ss.P_EMIT]
    needed = 0.0
    for r in range(n):
        needed += g.size[r] * (p.prices[ss.P_SCAN] + g.share[r] * p.prices[ss.P_EMIT])
    credit = p.real[ss.CREDIT]
    rate = min(1.0, credit / needed)
    due = 0.0
    for r in range(n):
        due += rate * g.size[r] * (p.prices[ss.P_SCAN] + g.share[r] * p.prices[ss.P_EMIT])
        floor = credit - due if rate < 1.0 else 0.0
        p.whole[ss.VISITED] += 1
        at = g.first[r]
        left = g.size[r]
        while left > 0 and p.real[ss.CREDIT] - least >= floor and p.real[ss.CREDIT] >= least:
            pay(p, p.prices[ss.P_SCAN])
            p.whole[ss.SCANNED] += 1
            if satisfies(s, q, at) and s.ts[at] >= oldest:
                emit(p, out, q, at)
            at = g.after[at]
            left -= 1
        p.whole[ss.UNDONE] += left > 0


@part
def _round(s: Standing, g: ValueGrid, q: int, p: Progress, out: Selected) -> bool:
    """One dispatch of a query: a round of Figure 8.  False, and t_start stays, when it could not begin."""
    if p.setting[ss.STRUCTURE] != _T1 and not _evaluate(s, g, q, p):
        return False
    buckets = g.tuples.shape[1]
    marking = p.prices[ss.P_ADD] * buckets
    if p.real[ss.CREDIT] < marking:
        return False
    pay(p, marking)
    oldest = oldest_valid(s, p)
    n = _regions(s, g, q, oldest, p)
    if n > 0:
        if p.setting[ss.PREFERENCE] == ss.WEIGHTED:
            _visit_weighted(s, g, q, n, oldest, p, out)
        else:
            _visit_sorted(s, g, q, n, oldest, p, out)
    zone = p.whole[ss.ZONE_NOW]
    g.resume_zone[q] = zone
    for b in range(buckets):
        g.resume_count[q, b] = g.tuples[zone, b]
        g.resume_tail[q, b] = g.tail[zone, b]
    p.whole[ss.ROUNDS] += 1
    return True


@kernel
def select_promising(s: Standing, g: ValueGrid, d: Detector, grant: Array, end: int, p: Progress, out: Selected) -> int:
    """Run up to arrival `end`.  Returns 0 when there, or the room that the outputs of the next dispatch need.

    grant: float64 [n].  Slices end every EVERY tuples dealt with and at the end of the input.
    """
    w = p.whole
    queries = s.says.shape[0]
    least = p.prices[ss.P_SCAN] + p.prices[ss.P_EMIT]
    while True:
        while w[ss.PENDING] > 0:
            q = w[ss.NEXT]
            zone = g.resume_zone[q]
            most = w[ss.APPLIED] - (g.zone_end[zone - 1] if zone > 0 else 0)
            most = 1 + min(most, np.int64(min(p.real[ss.CREDIT] / least, np.float64(most))))
            if w[ss.WRITTEN] + most > out.query.shape[0]:
                return most  # type: ignore[no-any-return]
            if p.real[ss.CREDIT] < p.real[ss.LEAST] or not _round(s, g, q, p, out):
                w[ss.PENDING] = 0
                break
            w[ss.NEXT] = (q + 1) % queries
            w[ss.PENDING] -= 1
            if w[ss.PENDING] == 0 and p.setting[ss.REPLAYED] and w[ss.APPLIED] == w[ss.ARRIVED]:
                p.real[ss.CREDIT] = min(p.real[ss.CREDIT], 0.0)
        if w[ss.APPLIED] < w[ss.ARRIVED]:
            price = _price_of_taking(p)
            if s.ts[w[ss.APPLIED]] >= oldest_valid(s, p) and p.real[ss.CREDIT] >= price:
                pay(p, price)
                p.real[ss.SPENT_SUMMARY] += price
                _summarize(s, g, d, p)
                w[ss.APPLIED] += 1
            elif must_go(p) or s.ts[w[ss.APPLIED]] < oldest_valid(s, p):
                shed(p)
            else:
                price = -1.0
            if price >= 0.0:
                _end_zone(g, d, p)
                if w[ss.APPLIED] % p.setting[ss.EVERY] == 0 or w[ss.APPLIED] == grant.shape[0]:
                    w[ss.PENDING] = queries
                    p.real[ss.LEAST] = 0.5 * p.real[ss.CREDIT] if w[ss.APPLIED] < grant.shape[0] else 0.0
                continue
        if w[ss.ARRIVED] == end:
            return 0
        arrive(p, grant, False)
