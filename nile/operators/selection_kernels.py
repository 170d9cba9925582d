"""SELECTION of Figure 8 over many standing predicates, and two opponents that have no summary.

Design.  A tuple enters one cell, value bucket x zone: a count and a list in arrival order.  At every slice end
queries are dispatched in turn while credit lasts.  A dispatch is one round of Figure 8: the query looks at
the cells of [t_start, t_end) whose bucket holds keys that satisfy it, puts them in the order of their
promise, scans until nothing is left of the credit, and goes on from t_end next time.  What it has not
scanned by then it never will; so no dispatch begins with less than half of the credit of the slice end, lest a
query lose a region to the dregs of another's time.
Cost.  Every operation is paid for before it is done: spending never passes what was granted.
Source: promising tuples, section 4.2 and Figure 8.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.operators.selection_state import (
    ARRIVED,
    ASC,
    BY_VALUE,
    CREDIT,
    EVALUATED,
    EVERY,
    FOREVER,
    GRANTED,
    KNOWN,
    LEAST,
    LOST,
    NEXT,
    OUTPUTS,
    P_ADD,
    P_EMIT,
    P_ESTIMATE,
    P_HEAP_POP,
    P_INSERT,
    P_LOOKUP,
    P_PUSH,
    P_SCAN,
    P_UPDATE,
    PENDING,
    PREFERENCE,
    READ,
    ROUNDS,
    SAMPLE,
    SCANNED,
    SHED,
    SPENT,
    SPENT_SUMMARY,
    UNDONE,
    VISITED,
    WEIGHTED,
    WINDOW,
    WRITTEN,
    ZONE,
    Progress,
    Selected,
    Standing,
    ValueGrid,
)
from summaries.kernels import inlined, kernel, part

Array = np.ndarray[Any, Any]


@inlined
def _pay(p: Progress, cost: float) -> None:
    p.real[CREDIT] -= cost
    p.real[SPENT] += cost


@inlined
def _emit(p: Progress, out: Selected, query: int, ordinal: int) -> None:
    w = p.whole
    _pay(p, p.prices[P_EMIT])
    out.query[w[WRITTEN]] = query
    out.ordinal[w[WRITTEN]] = ordinal
    out.at[w[WRITTEN]] = w[ARRIVED]
    w[WRITTEN] += 1
    w[OUTPUTS] += 1


@inlined
def _granted(p: Progress, grant: Array) -> int:
    """The next arrival, with what it grants; its ordinal."""
    ordinal = p.whole[ARRIVED]
    p.whole[ARRIVED] += 1
    p.real[CREDIT] += grant[ordinal]
    p.real[GRANTED] += grant[ordinal]
    return ordinal  # type: ignore[no-any-return]


@inlined
def _summarize(s: Standing, g: ValueGrid, grant: Array, p: Progress) -> None:
    """The next arrival into its cell, or shed when that cannot be paid.

    The first tuples, which the buckets' borders were learned from, pay a lookup more.
    """
    ordinal = _granted(p, grant)
    prices = p.prices
    price = prices[P_INSERT] + prices[P_LOOKUP] + prices[P_UPDATE]
    if ordinal < p.setting[SAMPLE]:
        price += prices[P_LOOKUP]
    if p.real[CREDIT] < price:
        p.whole[SHED] += 1
        return
    _pay(p, price)
    p.real[SPENT_SUMMARY] += price
    code = s.code[ordinal]
    b = g.bucket[code]
    z = ordinal // p.setting[ZONE]
    if g.tuples[z, b] == 0:
        g.head[z, b] = ordinal
    else:
        g.after[g.tail[z, b]] = ordinal
    g.tail[z, b] = ordinal
    g.tuples[z, b] += 1
    p.whole[KNOWN] = max(p.whole[KNOWN], code + 1)


@part
def _evaluate(s: Standing, g: ValueGrid, q: int, p: Progress) -> bool:
    """Put the predicate to the keys that are new to the query, one scan each; False when credit ends before."""
    price = p.prices[P_SCAN]
    while g.evaluated[q] < p.whole[KNOWN]:
        if p.real[CREDIT] < price:
            return False
        _pay(p, price)
        p.whole[EVALUATED] += 1
        code = g.evaluated[q]
        b = g.bucket[code]
        g.known[q, b] += 1
        if s.passes[q, code]:
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
    by_value = p.setting[BY_VALUE]
    zone = p.setting[ZONE]
    price = p.prices[P_ESTIMATE]
    if p.setting[PREFERENCE] != WEIGHTED:
        price += p.prices[P_PUSH]
    floor = 0.5 * p.real[CREDIT]
    regions = 0
    for z in range((w[ARRIVED] - 1) // zone, g.resume_zone[q] - 1, -1):
        if s.ts[min((z + 1) * zone, w[ARRIVED]) - 1] < oldest:
            break
        for b in range(g.known.shape[1]):
            if g.passing[q, b] == 0:
                continue
            if p.real[CREDIT] - price < floor:
                return regions
            _pay(p, price)
            w[READ] += 1
            size = g.tuples[z, b]
            first = g.head[z, b]
            if z == g.resume_zone[q]:
                size -= g.resume_count[q, b]
                if g.resume_tail[q, b] >= 0:
                    first = g.after[g.resume_tail[q, b]]
            if size == 0:
                continue
            share = g.passing[q, b] / g.known[q, b]
            g.share[regions] = share
            g.priority[regions] = size * (g.weight[q, b] / g.known[q, b]) if by_value else share
            g.size[regions] = size
            g.first[regions] = first
            regions += 1
    return regions


@part
def _scan(s: Standing, g: ValueGrid, q: int, at: int, tuples: int, oldest: int, p: Progress, out: Selected) -> bool:
    """Step 2d: the predicate on tuples of a cell in arrival order; False when credit ends before."""
    price = p.prices[P_SCAN]
    least = price + p.prices[P_EMIT]
    for _ in range(tuples):
        if p.real[CREDIT] < least:
            return False
        _pay(p, price)
        p.whole[SCANNED] += 1
        if s.passes[q, s.code[at]] and s.ts[at] >= oldest:
            _emit(p, out, q, at)
        at = g.after[at]
    return True


@part
def _visit_sorted(s: Standing, g: ValueGrid, q: int, n: int, oldest: int, p: Progress, out: Selected) -> None:
    """Steps 2c and 2d, desc or asc: the best region first, regions alike newest zone and lowest bucket first."""
    if p.setting[PREFERENCE] == ASC:
        order = np.argsort(g.priority[:n], kind="mergesort")
    else:
        order = np.argsort(-g.priority[:n], kind="mergesort")
    price = p.prices[P_HEAP_POP] * math.ceil(math.log2(n))
    for i in range(n):
        if p.real[CREDIT] < price + p.prices[P_SCAN] + p.prices[P_EMIT]:
            p.whole[UNDONE] += n - i
            return
        _pay(p, price)
        p.whole[VISITED] += 1
        r = order[i]
        if not _scan(s, g, q, g.first[r], g.size[r], oldest, p, out):
            p.whole[UNDONE] += n - i
            return


@part
def _visit_weighted(s: Standing, g: ValueGrid, q: int, n: int, oldest: int, p: Progress, out: Selected) -> None:
    """Steps 2c and 2d, weighted: credit is divided among regions by what all their tuples are expected to take.

    So the same share of each is scanned.  What a region does not use, it leaves to those after it.
    """
    least = p.prices[P_SCAN] + p.prices[P_EMIT]
    needed = 0.0
    for r in range(n):
        needed += g.size[r] * (p.prices[P_SCAN] + g.share[r] * p.prices[P_EMIT])
    credit = p.real[CREDIT]
    rate = min(1.0, credit / needed)
    due = 0.0
    for r in range(n):
        due += rate * g.size[r] * (p.prices[P_SCAN] + g.share[r] * p.prices[P_EMIT])
        floor = credit - due if rate < 1.0 else 0.0
        p.whole[VISITED] += 1
        at = g.first[r]
        left = g.size[r]
        while left > 0 and p.real[CREDIT] - least >= floor and p.real[CREDIT] >= least:
            _pay(p, p.prices[P_SCAN])
            p.whole[SCANNED] += 1
            if s.passes[q, s.code[at]] and s.ts[at] >= oldest:
                _emit(p, out, q, at)
            at = g.after[at]
            left -= 1
        p.whole[UNDONE] += left > 0


@part
def _round(s: Standing, g: ValueGrid, q: int, p: Progress, out: Selected) -> bool:
    """One dispatch of a query: a round of Figure 8.  False, and t_start stays, when it could not begin."""
    if not _evaluate(s, g, q, p):
        return False
    buckets = g.tuples.shape[1]
    marking = p.prices[P_ADD] * buckets
    if p.real[CREDIT] < marking:
        return False
    _pay(p, marking)
    arrived = p.whole[ARRIVED]
    now = s.ts[arrived - 1]
    window = p.setting[WINDOW]
    oldest = now - window if now >= window - FOREVER else -FOREVER
    n = _regions(s, g, q, oldest, p)
    if n > 0:
        if p.setting[PREFERENCE] == WEIGHTED:
            _visit_weighted(s, g, q, n, oldest, p, out)
        else:
            _visit_sorted(s, g, q, n, oldest, p, out)
    zone = (arrived - 1) // p.setting[ZONE]
    g.resume_zone[q] = zone
    for b in range(buckets):
        g.resume_count[q, b] = g.tuples[zone, b]
        g.resume_tail[q, b] = g.tail[zone, b]
    p.whole[ROUNDS] += 1
    return True


@kernel
def select_promising(s: Standing, g: ValueGrid, grant: Array, end: int, p: Progress, out: Selected) -> int:
    """Run up to arrival `end`.  Returns 0 when there, or the room that the outputs of the next dispatch need.

    grant: float64 [n].  Slices end every EVERY arrivals and at the end of the input.
    """
    w = p.whole
    queries = s.passes.shape[0]
    least = p.prices[P_SCAN] + p.prices[P_EMIT]
    while True:
        while w[PENDING] > 0:
            q = w[NEXT]
            most = w[ARRIVED] - g.resume_zone[q] * p.setting[ZONE]
            most = 1 + min(most, np.int64(min(p.real[CREDIT] / least, np.float64(most))))
            if w[WRITTEN] + most > out.query.shape[0]:
                return most  # type: ignore[no-any-return]
            if p.real[CREDIT] < p.real[LEAST] or not _round(s, g, q, p, out):
                w[PENDING] = 0
                break
            w[NEXT] = (q + 1) % queries
            w[PENDING] -= 1
        if w[ARRIVED] == end:
            return 0
        _summarize(s, g, grant, p)
        if w[ARRIVED] % p.setting[EVERY] == 0 or w[ARRIVED] == grant.shape[0]:
            w[PENDING] = queries
            p.real[LEAST] = 0.5 * p.real[CREDIT] if w[ARRIVED] < grant.shape[0] else 0.0


@kernel
def select_naive(s: Standing, grant: Array, end: int, p: Progress, out: Selected) -> int:
    """Each query is fed the stream for itself, in turns, and drops what there is no time for.  Returns as above."""
    w = p.whole
    queries = s.passes.shape[0]
    price = p.prices[P_SCAN]
    least = price + p.prices[P_EMIT]
    while w[ARRIVED] < end:
        if w[WRITTEN] + queries > out.query.shape[0]:
            return queries  # type: ignore[no-any-return]
        ordinal = _granted(p, grant)
        if p.real[CREDIT] < p.prices[P_INSERT]:
            w[SHED] += 1
            w[LOST] += queries
            continue
        _pay(p, p.prices[P_INSERT])
        p.real[SPENT_SUMMARY] += p.prices[P_INSERT]
        fed = 0
        while fed < queries and p.real[CREDIT] >= least:
            q = w[NEXT]
            w[NEXT] = (q + 1) % queries
            _pay(p, price)
            w[SCANNED] += 1
            if s.passes[q, s.code[ordinal]]:
                _emit(p, out, q, ordinal)
            fed += 1
        w[SHED] += fed == 0
        w[LOST] += queries - fed
    return 0


@kernel
def select_indexed(s: Standing, grant: Array, end: int, p: Progress, out: Selected) -> int:
    """One predicate index for all: a lookup a tuple, then its matches while credit lasts.  Returns as above."""
    w = p.whole
    price = p.prices[P_INSERT] + p.prices[P_LOOKUP]
    while w[ARRIVED] < end:
        ordinal = w[ARRIVED]
        begin = s.matches[s.code[ordinal]]
        n = s.matches[s.code[ordinal] + 1] - begin
        if w[WRITTEN] + n > out.query.shape[0]:
            return n  # type: ignore[no-any-return]
        _granted(p, grant)
        if p.real[CREDIT] < price:
            w[SHED] += 1
            w[LOST] += n
            continue
        _pay(p, price)
        p.real[SPENT_SUMMARY] += price
        done = 0
        while done < n and p.real[CREDIT] >= p.prices[P_EMIT]:
            _emit(p, out, s.queries[begin + (ordinal + done) % n], ordinal)
            done += 1
        w[LOST] += n - done
    return 0
