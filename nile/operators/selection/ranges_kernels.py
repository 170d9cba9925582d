"""Zones reported as ranges: a query's full cells are one run of places, hence one record.

When a zone ends its tuples are laid out in the order of cells.  Runs that promise most come first when there is no
time for all; what is left undone waits for credit that later zones leave, while all its tuples are valid.  A
zone that is cheaper to give tuple by tuple is given so.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.operators.selection.common_kernels import emit, oldest_valid, pay, try_edge
from nile.operators.selection.state import (
    APPLIED,
    ARRIVED,
    ASC,
    BY_VALUE,
    CREDIT,
    EXACT,
    HELD,
    HELD_FROM,
    HITS,
    LAST_ZONE,
    LEFT,
    NEXT,
    OUTPUTS,
    OWED,
    P_ADD,
    P_EMIT,
    P_ESTIMATE,
    P_HEAP_POP,
    P_PUSH,
    PREFERENCE,
    READ,
    RECORDS,
    REPLAYED,
    ROUNDS,
    TOP,
    TRIES,
    UNDONE,
    VISITED,
    WEIGHTED,
    WRITTEN,
    ZONE_GRANT,
    Door,
    Places,
    Progress,
    Selected,
    Standing,
)
from summaries.kernels import allocating_part, inlined, part

Array = np.ndarray[Any, Any]


@part
def reserved(z: Places, p: Progress) -> float:
    """What the open zone will cost to report, as far as it has come: at most half of what it has been granted."""
    if p.setting[EXACT] or p.whole[HELD] == 0:
        return 0.0
    prices = p.prices
    runs = z.runs.shape[0] * (prices[P_ESTIMATE] + prices[P_EMIT]) + prices[P_ADD] * z.counts.shape[0]
    come = min(1.0, (p.whole[APPLIED] + 1 - p.whole[HELD_FROM]) / p.whole[LAST_ZONE])
    return min(min(runs * come, p.real[OWED]), 0.5 * p.real[ZONE_GRANT])  # type: ignore[no-any-return]


@part
def edge(s: Standing, q: int, ordinal: int, p: Progress, out: Selected) -> None:
    p.real[TRIES] += 1.0
    if try_edge(s, q, ordinal, p, out):
        p.real[HITS] += 1.0


@inlined
def _report(region: Array, p: Progress, out: Selected) -> bool:
    """Give one region as one record.  False when credit ends before."""
    w = p.whole
    if p.real[CREDIT] < p.prices[P_EMIT]:
        return False
    emit(p, out, region[0], region[1])
    out.last[w[WRITTEN] - 1] = region[2]
    w[OUTPUTS] += region[2] - region[1] - 1
    w[RECORDS] += 1
    return True


@inlined
def _keep(z: Places, region: Array, first_ts: int, p: Progress) -> None:
    """A region that was left undone waits for credit, if it can be pushed; else it is lost."""
    w = p.whole
    if w[LEFT] < z.left.shape[0] and p.real[CREDIT] >= p.prices[P_PUSH]:
        pay(p, p.prices[P_PUSH])
        for c in range(3):
            z.left[w[LEFT], c] = region[c]
        z.left[w[LEFT], 3] = first_ts
        w[LEFT] += 1
    else:
        w[UNDONE] += 1


@part
def _lay_out(s: Standing, z: Places, d: Door, p: Progress) -> None:
    """The open zone's tuples into `order`, cell by cell, in the order they came."""
    w = p.whole
    at = w[TOP]
    for c in range(z.counts.shape[0]):
        z.begin[c] = at
        at += z.counts[c]
    z.begin[z.counts.shape[0]] = at
    z.weight[:] = 0.0
    for i in range(w[HELD]):
        ordinal = z.held[i]
        code = s.code[ordinal]
        c = s.cell[code]
        z.order[z.begin[c + 1] - z.counts[c]] = ordinal
        z.counts[c] -= 1
        z.weight[c + 1] += d.magnitude[code]
    for c in range(z.counts.shape[0]):
        z.weight[c + 1] += z.weight[c]
    w[TOP] = at


@part
def _one_by_one(s: Standing, z: Places, p: Progress, out: Selected) -> None:
    """Give the zone tuple by tuple, while credit lasts."""
    w = p.whole
    for i in range(w[HELD]):
        ordinal = z.held[i]
        cell = s.cell[s.code[ordinal]]
        z.counts[cell] = 0
        for j in range(s.full_from[cell], s.full_from[cell + 1]):
            if p.real[CREDIT] >= p.prices[P_EMIT]:
                emit(p, out, s.full[j], ordinal)


@part
def _regions(z: Places, p: Progress) -> int:
    """The runs of the zone that have tuples, query by query from the one whose turn it is; how many."""
    prices = p.prices
    queries = z.run_from.shape[0] - 1
    turn = p.whole[NEXT]
    n = 0
    for k in range(queries):
        q = (turn + k) % queries
        for r in range(z.run_from[q], z.run_from[q + 1]):
            if p.real[CREDIT] < prices[P_ESTIMATE]:
                return n
            pay(p, prices[P_ESTIMATE])
            p.whole[READ] += 1
            first, last = z.begin[z.runs[r, 0]], z.begin[z.runs[r, 1]]
            if first == last:
                continue
            promise = np.float64(last - first)
            if p.setting[BY_VALUE]:
                promise = z.weight[z.runs[r, 1]] - z.weight[z.runs[r, 0]]
            z.region[n, 0] = q
            z.region[n, 1] = first
            z.region[n, 2] = last
            z.promise[n] = promise if p.setting[PREFERENCE] == ASC else -promise
            n += 1
    return n


@allocating_part
def _report_zone(s: Standing, z: Places, d: Door, p: Progress, out: Selected) -> None:
    """Give the zone run by run, while credit lasts."""
    w = p.whole
    first_ts = s.ts[z.held[0]]
    _lay_out(s, z, d, p)
    n = _regions(z, p)
    order = np.arange(n)
    price = 0.0
    short = n * p.prices[P_EMIT] > p.real[CREDIT] and not p.setting[EXACT]
    if short and p.setting[PREFERENCE] != WEIGHTED and n > 1:
        order = np.argsort(z.promise[:n], kind="mergesort")
        price = p.prices[P_HEAP_POP] * math.ceil(math.log2(n))
    done = 0
    while done < n and p.real[CREDIT] >= price:
        pay(p, price)
        w[VISITED] += 1
        if not _report(z.region[order[done]], p, out):
            break
        done += 1
    w[NEXT] = (w[NEXT] + 1) % max(1, z.run_from.shape[0] - 1)
    for i in range(done, n):
        _keep(z, z.region[order[i]], first_ts, p)


@part
def flush(s: Standing, z: Places, d: Door, p: Progress, out: Selected) -> None:
    """Report the open zone, then what earlier ones left, and begin the next."""
    w = p.whole
    prices = p.prices
    laying = prices[P_ADD] * z.counts.shape[0]
    most = laying + z.runs.shape[0] * (prices[P_ESTIMATE] + prices[P_EMIT])
    left = w[LEFT]
    w[ROUNDS] += 1
    if p.real[OWED] <= most or p.real[CREDIT] < laying:
        _one_by_one(s, z, p, out)
    else:
        pay(p, laying)
        _report_zone(s, z, d, p, out)
    if w[LEFT] == left:
        oldest = oldest_valid(s, p)
        while w[LEFT] > 0:
            if z.left[w[LEFT] - 1, 3] < oldest:
                w[UNDONE] += 1
            elif not _report(z.left[w[LEFT] - 1], p, out):
                break
            w[LEFT] -= 1
    w[LAST_ZONE] = max(1, w[APPLIED] - w[HELD_FROM])
    w[HELD] = 0
    p.real[OWED] = 0.0
    if p.setting[REPLAYED] and w[LEFT] == 0 and w[APPLIED] == w[ARRIVED]:
        p.real[CREDIT] = min(p.real[CREDIT], 0.0)
