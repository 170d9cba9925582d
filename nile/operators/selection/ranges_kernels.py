"""Zones reported as ranges: a query's full cells are one run of places, hence one record.

When a zone ends its tuples are laid out in the order of cells.  Runs that promise most come first when there is no
time for all; what is left undone waits for credit that later zones leave, while all its tuples are valid.  A
zone that is cheaper to give tuple by tuple is given so.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.operators.selection import state as ss
from nile.operators.selection.common_kernels import emit, emit_run, oldest_valid, pay, try_edge
from nile.operators.selection.state import Admission, Places, Progress, Selected, Standing
from nile.summaries.kernels import allocating_part, inlined, part

Array = np.ndarray[Any, Any]


@part
def reserved(z: Places, p: Progress) -> float:
    """What the open zone will cost to report, as far as it has come: at most half of what it has been granted."""
    if p.setting[ss.EXACT] or p.whole[ss.HELD] == 0:
        return 0.0
    prices = p.prices
    runs = z.runs.shape[0] * (prices[ss.P_ESTIMATE] + prices[ss.P_EMIT]) + prices[ss.P_ADD] * z.counts.shape[0]
    come = min(1.0, (p.whole[ss.APPLIED] + 1 - p.whole[ss.HELD_FROM]) / p.whole[ss.LAST_ZONE])
    return min(min(runs * come, p.real[ss.OWED]), 0.5 * p.real[ss.ZONE_GRANT])  # type: ignore[no-any-return]


@part
def edge(s: Standing, q: int, ordinal: int, p: Progress, out: Selected) -> None:
    p.real[ss.TRIES] += 1.0
    if try_edge(s, q, ordinal, p, out):
        p.real[ss.HITS] += 1.0


@inlined
def _report(region: Array, p: Progress, out: Selected) -> bool:
    """Give one region as one record.  False when credit ends before."""
    w = p.whole
    if p.real[ss.CREDIT] < p.prices[ss.P_EMIT]:
        return False
    emit(p, out, region[0], region[1])
    out.last[w[ss.WRITTEN] - 1] = region[2]
    w[ss.OUTPUTS] += region[2] - region[1] - 1
    w[ss.RECORDS] += 1
    return True


@inlined
def _keep(z: Places, region: Array, first_ts: int, p: Progress) -> None:
    """A region that was left undone waits for credit, if it can be pushed; else it is lost."""
    w = p.whole
    if w[ss.LEFT] < z.left.shape[0] and p.real[ss.CREDIT] >= p.prices[ss.P_PUSH]:
        pay(p, p.prices[ss.P_PUSH])
        for c in range(3):
            z.left[w[ss.LEFT], c] = region[c]
        z.left[w[ss.LEFT], 3] = first_ts
        w[ss.LEFT] += 1
    else:
        w[ss.UNDONE] += 1


@part
def _lay_out(s: Standing, z: Places, d: Admission, p: Progress) -> None:
    """The open zone's tuples into `order`, cell by cell, in the order they came."""
    w = p.whole
    at = w[ss.TOP]
    for c in range(z.counts.shape[0]):
        z.begin[c] = at
        at += z.counts[c]
    z.begin[z.counts.shape[0]] = at
    z.weight[:] = 0.0
    for i in range(w[ss.HELD]):
        ordinal = z.held[i]
        code = s.code[ordinal]
        c = s.cell[code]
        z.order[z.begin[c + 1] - z.counts[c]] = ordinal
        z.counts[c] -= 1
        z.weight[c + 1] += d.magnitude[code]
    for c in range(z.counts.shape[0]):
        z.weight[c + 1] += z.weight[c]
    w[ss.TOP] = at


@part
def _one_by_one(s: Standing, z: Places, p: Progress, out: Selected) -> None:
    """Give the zone tuple by tuple, while credit lasts."""
    w = p.whole
    for i in range(w[ss.HELD]):
        ordinal = z.held[i]
        cell = s.cell[s.code[ordinal]]
        z.counts[cell] = 0
        emit_run(s, s.full_from[cell], ordinal, s.full_from[cell + 1] - s.full_from[cell], p, out)


@part
def _regions(z: Places, p: Progress) -> int:
    """The runs of the zone that have tuples, query by query from the one whose turn it is; how many."""
    prices = p.prices
    queries = z.run_from.shape[0] - 1
    turn = p.whole[ss.NEXT]
    n = 0
    for k in range(queries):
        q = (turn + k) % queries
        for r in range(z.run_from[q], z.run_from[q + 1]):
            if p.real[ss.CREDIT] < prices[ss.P_ESTIMATE]:
                return n
            pay(p, prices[ss.P_ESTIMATE])
            p.whole[ss.READ] += 1
            first, last = z.begin[z.runs[r, 0]], z.begin[z.runs[r, 1]]
            if first == last:
                continue
            promise = np.float64(last - first)
            if p.setting[ss.BY_VALUE]:
                promise = z.weight[z.runs[r, 1]] - z.weight[z.runs[r, 0]]
            z.region[n, 0] = q
            z.region[n, 1] = first
            z.region[n, 2] = last
            z.promise[n] = promise if p.setting[ss.PREFERENCE] == ss.ASC else -promise
            n += 1
    return n


@allocating_part
def _report_zone(s: Standing, z: Places, d: Admission, p: Progress, out: Selected) -> None:
    """Give the zone run by run, while credit lasts."""
    w = p.whole
    first_ts = s.ts[z.held[0]]
    _lay_out(s, z, d, p)
    n = _regions(z, p)
    order = np.arange(n)
    price = 0.0
    short = n * p.prices[ss.P_EMIT] > p.real[ss.CREDIT] and not p.setting[ss.EXACT]
    if short and p.setting[ss.PREFERENCE] != ss.WEIGHTED and n > 1:
        order = np.argsort(z.promise[:n], kind="mergesort")
        price = p.prices[ss.P_HEAP_POP] * math.ceil(math.log2(n))
    done = 0
    while done < n and p.real[ss.CREDIT] >= price:
        pay(p, price)
        w[ss.VISITED] += 1
        if not _report(z.region[order[done]], p, out):
            break
        done += 1
    w[ss.NEXT] = (w[ss.NEXT] + 1) % max(1, z.run_from.shape[0] - 1)
    for i in range(done, n):
        _keep(z, z.region[order[i]], first_ts, p)


@part
def flush(s: Standing, z: Places, d: Admission, p: Progress, out: Selected) -> None:
    """Report the open zone, then what earlier ones left, and begin the next."""
    w = p.whole
    prices = p.prices
    laying = prices[ss.P_ADD] * z.counts.shape[0]
    most = laying + z.runs.shape[0] * (prices[ss.P_ESTIMATE] + prices[ss.P_EMIT])
    left = w[ss.LEFT]
    w[ss.ROUNDS] += 1
    if p.real[ss.OWED] <= most or p.real[ss.CREDIT] < laying:
        _one_by_one(s, z, p, out)
    else:
        pay(p, laying)
        _report_zone(s, z, d, p, out)
    if w[ss.LEFT] == left:
        oldest = oldest_valid(s, p)
        while w[ss.LEFT] > 0:
            if z.left[w[ss.LEFT] - 1, 3] < oldest:
                w[ss.UNDONE] += 1
            elif not _report(z.left[w[ss.LEFT] - 1], p, out):
                break
            w[ss.LEFT] -= 1
    w[ss.LAST_ZONE] = max(1, w[ss.APPLIED] - w[ss.HELD_FROM])
    w[ss.HELD] = 0
    p.real[ss.OWED] = 0.0
    if p.setting[ss.REPLAYED] and w[ss.LEFT] == 0 and w[ss.APPLIED] == w[ss.ARRIVED]:
        p.real[ss.CREDIT] = min(p.real[ss.CREDIT], 0.0)
