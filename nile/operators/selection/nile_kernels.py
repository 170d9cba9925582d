"""Standing selections as the measurements ask for: one predicate index, full cells as runs, edges scanned.

Design.  Every tuple costs the same to take in, however many of its outputs are then found; so what is taken in is
answered in full, and what there is no time for is shed at the door, before it costs anything.  The tuple in
progress stays in a register and goes on with the next grant; nothing else is let in meanwhile.  Where cells differ
enough in what they promise, the door asks for the value (`selection_door_kernels`).
Pairs: the outputs of a tuple are given as it is taken in.  Ranges: what its cell leaves open still is; for the rest
it is put into the open zone, and when that ends its tuples are laid out in the order of cells, so that a query's
full cells are one run of places: one record.  Runs that promise most come first when there is no time for all; what
is left undone waits for credit that later zones leave, while all its tuples are valid.  A zone ends after ZONE
tuples, and before a quarter of the window has passed.  It is given tuple by tuple where that is cheaper.
Cost.  Every operation is paid for before it is done: spending never passes what was granted.
Source: promising tuples, section 4.2, with the changes of DESIGN section 3, items 3 and 6.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.selection.admission_kernels import exploring, refit
from nile.operators.selection.common_kernels import arrive, emit, finding, meet, must_go, oldest_valid, pay, shed
from nile.operators.selection.ranges_kernels import edge, flush, reserved
from nile.operators.selection.state import (
    ACTIVE,
    APPLIED,
    ARRIVED,
    CREDIT,
    DOOR,
    DOORED,
    ENTRY,
    ENTRY_AT,
    EXACT,
    EXPLORE_AT,
    FITTING,
    FLUSHING,
    FOREVER,
    HELD,
    HELD_FROM,
    LEARNED,
    LEFT,
    OWED,
    P_EMIT,
    P_INSERT,
    P_LOOKUP,
    P_SCAN,
    P_UPDATE,
    PLAIN,
    SHED,
    SPENT_SUMMARY,
    TURNED,
    UNDONE,
    WINDOW,
    WRITTEN,
    ZONE,
    ZONE_GRANT,
    Door,
    Places,
    Progress,
    Selected,
    Standing,
)
from pyramid.grid.spec import SLICE
from summaries.kernels import U8, inlined, kernel, part

Array = np.ndarray[Any, Any]
_WAITS, _GONE, _TAKEN = 0, 1, 2
_BOUGHT = 2  # of EXACT: a budget of 1 or more, not the lack of one


@part
def _take(s: Standing, d: Door, z: Places, p: Progress) -> int:
    """The oldest waiting arrival: let in, turned away, or it waits for credit."""
    w = p.whole
    ordinal = w[APPLIED]
    if s.ts[ordinal] < oldest_valid(s, p):
        shed(p)
        return _GONE
    code = s.code[ordinal]
    cell = s.cell[code]
    prices = p.prices
    full = s.full_from[cell + 1] - s.full_from[cell]
    edges = s.edge_from[cell + 1] - s.edge_from[cell]
    find = finding(s, code, p)
    price = prices[P_INSERT] + find
    learning = not p.setting[EXACT] and exploring(p)
    asking = 0.0
    if w[DOORED] and not learning and (p.setting[LEARNED] == 0 or s.seen[code]):
        asking = p.real[DOOR]
        if asking >= prices[P_LOOKUP]:
            price -= min(find, prices[P_LOOKUP])
    # Counting a tuple into the open zone is known to be due only when its cell is.
    most = price if p.setting[PLAIN] and not learning else price + prices[P_UPDATE]
    if p.real[CREDIT] - reserved(z, p) < asking + most:
        if not must_go(p):
            return _WAITS
        shed(p)
        return _GONE
    if asking > 0.0:
        pay(p, asking)
        p.real[SPENT_SUMMARY] += asking
        if not d.wanted[cell]:
            w[TURNED] += 1
            w[SHED] += full + edges > 0
            w[APPLIED] += 1
            return _GONE
    holding = not p.setting[PLAIN] and full > 0
    if p.setting[EXACT] == _BOUGHT:
        # No dearer than naive: else the grant of a tuple might not pay for it.
        holding = holding and find + prices[P_UPDATE] <= (s.says.shape[0] - edges) * prices[P_SCAN]
    if holding or learning:
        price += prices[P_UPDATE]
    pay(p, price)
    p.real[SPENT_SUMMARY] += price
    meet(s, code, p)
    if learning:
        d.counts[cell] += 1.0
        d.weight[cell] += d.magnitude[code]
    if holding:
        if w[HELD] == 0:
            w[HELD_FROM] = ordinal
            p.real[ZONE_GRANT] = p.real[CREDIT] + price + asking
        z.held[w[HELD]] = ordinal
        w[HELD] += 1
        z.counts[cell] += 1
        p.real[OWED] += full * prices[P_EMIT]
    w[ACTIVE] = 1
    w[ENTRY] = ordinal
    w[ENTRY_AT] = full if holding else 0
    w[APPLIED] += 1
    return _TAKEN


@part
def _go_on(s: Standing, p: Progress, out: Selected) -> bool:
    """The entry in progress, as far as credit goes; False when it is not done."""
    w = p.whole
    ordinal = w[ENTRY]
    if s.ts[ordinal] < oldest_valid(s, p):
        w[ACTIVE] = 0
        w[UNDONE] += 1
        return True
    cell = s.cell[s.code[ordinal]]
    full = s.full_from[cell + 1] - s.full_from[cell]
    n = full + s.edge_from[cell + 1] - s.edge_from[cell]
    while w[ENTRY_AT] < n:
        at = w[ENTRY_AT]
        if at < full:
            if p.real[CREDIT] < p.prices[P_EMIT]:
                return False
            emit(p, out, s.full[s.full_from[cell] + at], ordinal)
        else:
            if p.real[CREDIT] < p.prices[P_SCAN] + p.prices[P_EMIT]:
                return False
            edge(s, s.edge[s.edge_from[cell] + at - full], ordinal, p, out)
        w[ENTRY_AT] += 1
    w[ACTIVE] = 0
    return True


@part
def _room(s: Standing, z: Places, p: Progress) -> int:
    """The most outputs that the next step can have."""
    w = p.whole
    if w[FLUSHING] == 0:
        return s.says.shape[0]  # type: ignore[no-any-return]
    most = z.runs.shape[0] + w[LEFT]
    for c in range(z.counts.shape[0]):
        most += z.counts[c] * (s.full_from[c + 1] - s.full_from[c])
    return min(most, 1 + np.int64(min(p.real[CREDIT] / p.prices[P_EMIT], np.float64(most))))  # type: ignore[no-any-return]


@inlined
def _is_late(s: Standing, z: Places, p: Progress) -> bool:
    """Whether the open zone would be older than a quarter of the window at the next arrival."""
    if p.setting[WINDOW] == FOREVER:
        return False
    # A difference of unsigned numbers, so that no time overflows.
    age = U8(s.ts[p.whole[ARRIVED]]) - U8(s.ts[z.held[0]])
    return bool(age > U8(p.setting[WINDOW] // 4))


@kernel
def select_nile(s: Standing, d: Door, z: Places, grant: Array, end: int, p: Progress, out: Selected) -> int:
    """Run up to arrival `end`.  Returns 0 when there, or the room that the outputs of the next step need.

    grant: float64 [n], what each arrival grants.
    """
    w = p.whole
    while True:
        needed = _room(s, z, p)
        if w[WRITTEN] + needed > out.query.shape[0]:
            return needed
        if w[FLUSHING]:
            flush(s, z, d, p, out)
            w[FLUSHING] = 0
        if w[HELD] > 0 and w[APPLIED] - w[HELD_FROM] >= p.setting[ZONE]:
            w[FLUSHING] = 1
            continue
        free = w[ACTIVE] == 0 or _go_on(s, p, out)
        free = free and (w[FITTING] == 0 or refit(s, d, p))
        if w[APPLIED] < w[ARRIVED]:
            what = _WAITS
            if free:
                what = _take(s, d, z, p)
            elif must_go(p):
                shed(p)
                what = _GONE
            if what != _WAITS:
                if w[APPLIED] % SLICE == 0 and w[APPLIED] // SLICE == w[EXPLORE_AT] + 1 and not p.setting[EXACT]:
                    w[FITTING] = 1
                continue
        if w[HELD] > 0 and (w[ARRIVED] == grant.shape[0] or (w[ARRIVED] < end and _is_late(s, z, p))):
            w[FLUSHING] = 1
            continue
        if w[ARRIVED] == end:
            return 0
        held = w[HELD] > 0
        arrive(p, grant, free and w[APPLIED] == w[ARRIVED] and not held and w[LEFT] == 0)
        if held:
            p.real[ZONE_GRANT] += grant[w[ARRIVED] - 1]
