"""Admission by promise: which cells of the value a tuple must have to be let in while there is not time for all.

Design.  One slice in REFIT (fewer and fewer while no admission rule is found worth it) is for exploring: every tuple
that can be paid is let in and counted in its cell.  Then nothing is let in until the decision is paid for: cells are
put in the order of the preference, and of all beginnings of that order, and of none at all, the one is taken that
promises the most.  Asking at admission costs a binary search over the value runs of its cells, one scan each step, or
the look-up, which then need not be made again. Promise of a set.  With probability p_c of a cell, v_c outputs of a
tuple there and k_c their price with taking it in, asking at price d: sum of p_c v_c, times the share of that work, d
+ sum of p_c k_c, that the grant of an arrival pays for. Source: promising tuples, section 4 (promise), applied before
insertion; DESIGN section 3, item 3.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.operators.selection import state as ss
from nile.operators.selection.common_kernels import pay
from nile.operators.selection.state import Admission, Progress, Standing
from nile.pyramid.grid.spec import SLICE
from nile.summaries.kernels import allocating_part, inlined, part

Array = np.ndarray[Any, Any]
_GAIN = 1.05  # an admission threshold has to promise so much more than none, or noise opens and shuts it
_FADE = 0.5  # what older slices' counts are worth against the next exploring slice's


@inlined
def exploring(p: Progress) -> bool:
    """Whether this slice is for learning how many tuples each cell gets."""
    return p.whole[ss.APPLIED] // SLICE == p.whole[ss.EXPLORE_AT]  # type: ignore[no-any-return]


@inlined
def hit_rate(p: Progress) -> float:
    """The share of tuples of edge cells that satisfied; a half before any was tried."""
    return (p.real[ss.HITS] + 1.0) / (p.real[ss.TRIES] + 2.0)  # type: ignore[no-any-return]


@part
def _outputs_and_price(s: Standing, cell: int, p: Progress) -> tuple[float, float]:
    """What a tuple of a cell is expected to give, and to cost when it is let in."""
    full = s.full_from[cell + 1] - s.full_from[cell]
    edges = s.edge_from[cell + 1] - s.edge_from[cell]
    found = full + hit_rate(p) * edges
    price = p.prices[ss.P_INSERT] + p.prices[ss.P_LOOKUP] + edges * p.prices[ss.P_SCAN]
    if p.setting[ss.RANGES]:
        price += (full > 0) * p.prices[ss.P_UPDATE] + hit_rate(p) * edges * p.prices[ss.P_EMIT]
    else:
        price += found * p.prices[ss.P_EMIT]
    return found, price


@part
def _asking(runs: int, p: Progress) -> float:
    """The price of asking whether a value is in one of so many runs."""
    if p.setting[ss.LEARNED]:
        return p.prices[ss.P_LOOKUP]  # type: ignore[no-any-return]
    return min(p.prices[ss.P_SCAN] * (1 + math.ceil(math.log2(runs))), p.prices[ss.P_LOOKUP])  # type: ignore[no-any-return]


@allocating_part
def _decide(s: Standing, d: Admission, p: Progress, grant: float, sorting: bool) -> None:
    """Which cells are admitted, when each arrival grants so much."""
    cells = d.counts.shape[0]
    p.whole[ss.DOORED] = 0
    total = 0.0
    for c in range(cells):
        total += d.counts[c]
    if total == 0.0:
        return
    # A cell that got none may yet get some: one tuple more, of the mean weight, shared by all cells.
    prior = 1.0 / cells
    weight = 0.0
    for c in range(cells):
        weight += d.weight[c]
    weight = prior * weight / total
    for c in range(cells):
        d.counts[c] += prior
        d.weight[c] += weight
    total += 1.0
    order = d.order
    if sorting:
        promise = np.empty(cells, np.float64)
        for c in range(cells):
            found, _ = _outputs_and_price(s, c, p)
            if p.setting[ss.PREFERENCE] == ss.ASC:
                promise[c] = (d.weight[c] if p.setting[ss.BY_VALUE] else d.counts[c]) * found
            else:
                promise[c] = -found * d.weight[c] / d.counts[c]
        order = np.argsort(promise, kind="mergesort")
    outputs = 0.0
    work = 0.0
    for c in range(cells):
        found, cost = _outputs_and_price(s, c, p)
        value = d.weight[c] if p.setting[ss.BY_VALUE] else d.counts[c]
        outputs += value / total * found
        work += d.counts[c] / total * cost
    best = _GAIN * outputs * min(1.0, grant / work)
    chosen = -1
    plenty = grant >= work
    d.inside[:] = 0
    runs = 0
    outputs = 0.0
    work = 0.0
    for i in range(cells):
        c = order[i]
        found, cost = _outputs_and_price(s, c, p)
        if found == 0.0:
            continue
        for j in range(d.intervals_from[c], d.intervals_from[c + 1]):
            at = d.intervals[j] + 1
            runs += 1 - d.inside[at - 1] - d.inside[at + 1]
            d.inside[at] = 1
        value = d.weight[c] if p.setting[ss.BY_VALUE] else d.counts[c]
        outputs += value / total * found
        work += d.counts[c] / total * cost
        affordable = min(1.0, grant / (_asking(runs, p) + work))
        gained = outputs * affordable
        if plenty:
            better = False
        elif p.setting[ss.PREFERENCE] == ss.ASC:
            # The rarest first: as many cells as can be paid, however little they give.
            better = affordable == 1.0 or chosen < 0
        elif p.setting[ss.PREFERENCE] == ss.WEIGHTED:
            better = False  # of every region the same share: only what gives nothing stays out
        else:
            better = gained > best
        if better:
            best = gained
            chosen = i
            p.real[ss.ADMISSION] = _asking(runs, p)
    if p.setting[ss.PREFERENCE] == ss.WEIGHTED and runs > 0 and not plenty:
        asking = _asking(runs, p)
        if outputs * min(1.0, grant / (asking + work)) > best:
            chosen = cells - 1
            p.real[ss.ADMISSION] = asking
    if chosen >= 0:
        p.whole[ss.DOORED] = 1
        d.wanted[:] = 0
        for i in range(chosen + 1):
            d.wanted[order[i]] = s.full_from[order[i] + 1] > s.full_from[order[i]] or (
                s.edge_from[order[i] + 1] > s.edge_from[order[i]]
            )
    for c in range(cells):
        d.counts[c] = _FADE * (d.counts[c] - prior)
        d.weight[c] = _FADE * (d.weight[c] - weight)


@part
def refit(s: Standing, d: Admission, p: Progress) -> bool:
    """Decide on admission anew, after an exploring slice.  O(cells log cells + intervals), charged.

    False while that cannot be paid.  It is left out when it would take a 16th of what is granted until the next.
    """
    cells = d.counts.shape[0]
    price = 4.0 * cells * p.prices[ss.P_ADD]
    sorting = p.setting[ss.PREFERENCE] == ss.ASC or p.setting[ss.BY_VALUE]
    if sorting:
        price += cells * p.prices[ss.P_HEAP_POP] * math.ceil(math.log2(max(2, cells)))
    arrived = p.whole[ss.ARRIVED] - p.real[ss.ARRIVED_BEFORE]
    grant = (p.real[ss.GRANTED] - p.real[ss.GRANTED_BEFORE]) / arrived
    dear = 16.0 * price > grant * SLICE * p.setting[ss.REFIT]
    if not dear and p.real[ss.CREDIT] < price:
        return False
    p.real[ss.GRANTED_BEFORE] = p.real[ss.GRANTED]
    p.real[ss.ARRIVED_BEFORE] = p.whole[ss.ARRIVED]
    if not dear:
        pay(p, price)
        p.real[ss.SPENT_SUMMARY] += price
        _decide(s, d, p, grant, sorting)
    w = p.whole
    w[ss.FITTING] = 0
    w[ss.EXPLORE_GAP] = p.setting[ss.REFIT] if w[ss.DOORED] else min(2 * w[ss.EXPLORE_GAP], 8 * p.setting[ss.REFIT])
    w[ss.EXPLORE_AT] += w[ss.EXPLORE_GAP]
    return True
