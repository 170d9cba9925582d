"""Standing selections as the measurements ask for: one predicate index, full cells as runs, edges scanned.

Design.  Every tuple costs the same to take in, however many of its outputs are then found; so what is taken in is
answered in full, and what there is no time for is shed at admission, before it costs anything.  The tuple in
progress stays in a register and goes on with the next grant; nothing else is let in meanwhile.  Where cells differ
enough in what they promise, admission asks for the value (`admission_kernels`).  What a shared summary rules out is
passed over, and was paid for when the summary was asked.
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

from nile.operators.selection import state as ss
from nile.operators.selection.admission_kernels import exploring, refit
from nile.operators.selection.common_kernels import arrive, emit_run, finding, meet, must_go, oldest_valid, pay, shed
from nile.operators.selection.ranges_kernels import edge, flush, reserved
from nile.operators.selection.state import Admission, Places, Progress, Selected, Standing
from nile.pyramid.grid.spec import SLICE
from nile.summaries.kernels import U8, inlined, kernel, part

Array = np.ndarray[Any, Any]
_WAITS, _GONE, _TAKEN = 0, 1, 2
_BOUGHT = 2  # of EXACT: a budget of 1 or more, not the lack of one


@inlined
def _take(s: Standing, d: Admission, z: Places, p: Progress) -> int:
    """The oldest waiting arrival: let in, turned away, or it waits for credit."""
    w = p.whole
    ordinal = w[ss.APPLIED]
    if s.ruled_out.shape[0] and s.ruled_out[ordinal]:
        w[ss.APPLIED] += 1
        return _GONE
    if s.ts[ordinal] < oldest_valid(s, p):
        shed(p)
        return _GONE
    code = s.code[ordinal]
    cell = s.cell[code]
    prices = p.prices
    full = s.full_from[cell + 1] - s.full_from[cell]
    edges = s.edge_from[cell + 1] - s.edge_from[cell]
    find = finding(s, code, p)
    price = prices[ss.P_INSERT] + find
    learning = not p.setting[ss.EXACT] and exploring(p)
    asking = 0.0
    if w[ss.DOORED] and not learning and (p.setting[ss.LEARNED] == 0 or s.seen[code]):
        asking = p.real[ss.ADMISSION]
        if asking >= prices[ss.P_LOOKUP]:
            price -= min(find, prices[ss.P_LOOKUP])
    # Counting a tuple into the open zone is known to be due only when its cell is.
    most = price if p.setting[ss.PLAIN] and not learning else price + prices[ss.P_UPDATE]
    if p.real[ss.CREDIT] - reserved(z, p) < asking + most:
        if not must_go(p):
            return _WAITS
        shed(p)
        return _GONE
    if asking > 0.0:
        pay(p, asking)
        p.real[ss.SPENT_SUMMARY] += asking
        if not d.wanted[cell]:
            w[ss.TURNED] += 1
            w[ss.SHED] += full + edges > 0
            w[ss.APPLIED] += 1
            return _GONE
    holding = not p.setting[ss.PLAIN] and full > 0
    if p.setting[ss.EXACT] == _BOUGHT:
        # No dearer than naive: else the grant of a tuple might not pay for it.
        holding = holding and find + prices[ss.P_UPDATE] <= (s.says.shape[0] - edges) * prices[ss.P_SCAN]
    if holding or learning:
        price += prices[ss.P_UPDATE]
    pay(p, price)
    p.real[ss.SPENT_SUMMARY] += price
    meet(s, code, p)
    if learning:
        d.counts[cell] += 1.0
        d.weight[cell] += d.magnitude[code]
    if holding:
        if w[ss.HELD] == 0:
            w[ss.HELD_FROM] = ordinal
            p.real[ss.ZONE_GRANT] = p.real[ss.CREDIT] + price + asking
        z.held[w[ss.HELD]] = ordinal
        w[ss.HELD] += 1
        z.counts[cell] += 1
        p.real[ss.OWED] += full * prices[ss.P_EMIT]
    w[ss.ACTIVE] = 1
    w[ss.ENTRY] = ordinal
    w[ss.ENTRY_AT] = full if holding else 0
    w[ss.APPLIED] += 1
    return _TAKEN


@inlined
def _go_on(s: Standing, p: Progress, out: Selected) -> bool:
    """The entry in progress, as far as credit goes; False when it is not done."""
    w = p.whole
    ordinal = w[ss.ENTRY]
    if s.ts[ordinal] < oldest_valid(s, p):
        w[ss.ACTIVE] = 0
        w[ss.UNDONE] += 1
        return True
    cell = s.cell[s.code[ordinal]]
    full = s.full_from[cell + 1] - s.full_from[cell]
    n = full + s.edge_from[cell + 1] - s.edge_from[cell]
    while w[ss.ENTRY_AT] < n:
        at = w[ss.ENTRY_AT]
        if at < full:
            w[ss.ENTRY_AT] += emit_run(s, s.full_from[cell] + at, ordinal, full - at, p, out)
            if w[ss.ENTRY_AT] < full:
                return False
            continue
        if p.real[ss.CREDIT] < p.prices[ss.P_SCAN] + p.prices[ss.P_EMIT]:
            return False
        edge(s, s.edge[s.edge_from[cell] + at - full], ordinal, p, out)
        w[ss.ENTRY_AT] += 1
    w[ss.ACTIVE] = 0
    return True


@part
def _room(s: Standing, z: Places, p: Progress) -> int:
    """The most outputs that the next step can have."""
    w = p.whole
    if w[ss.FLUSHING] == 0:
        return s.says.shape[0]  # type: ignore[no-any-return]
    most = z.runs.shape[0] + w[ss.LEFT]
    for c in range(z.counts.shape[0]):
        most += z.counts[c] * (s.full_from[c + 1] - s.full_from[c])
    return min(most, 1 + np.int64(min(p.real[ss.CREDIT] / p.prices[ss.P_EMIT], np.float64(most))))  # type: ignore[no-any-return]


@inlined
def _is_late(s: Standing, z: Places, p: Progress) -> bool:
    """Whether the open zone would be older than a quarter of the window at the next arrival."""
    if p.setting[ss.WINDOW] == ss.FOREVER:
        return False
    # A difference of unsigned numbers, so that no time overflows.
    age = U8(s.ts[p.whole[ss.ARRIVED]]) - U8(s.ts[z.held[0]])
    return bool(age > U8(p.setting[ss.WINDOW] // 4))


@kernel
def select_nile(s: Standing, d: Admission, z: Places, grant: Array, end: int, p: Progress, out: Selected) -> int:
    """Run up to arrival `end`.  Returns 0 when there, or the room that the outputs of the next step need.

    grant: float64 [n], what each arrival grants.
    """
    w = p.whole
    while True:
        needed = _room(s, z, p)
        if w[ss.WRITTEN] + needed > out.query.shape[0]:
            return needed
        if w[ss.FLUSHING]:
            flush(s, z, d, p, out)
            w[ss.FLUSHING] = 0
        if w[ss.HELD] > 0 and w[ss.APPLIED] - w[ss.HELD_FROM] >= p.setting[ss.ZONE]:
            w[ss.FLUSHING] = 1
            continue
        free = w[ss.ACTIVE] == 0 or _go_on(s, p, out)
        free = free and (w[ss.FITTING] == 0 or refit(s, d, p))
        if w[ss.APPLIED] < w[ss.ARRIVED]:
            what = _WAITS
            if free:
                what = _take(s, d, z, p)
            elif must_go(p):
                shed(p)
                what = _GONE
            if what != _WAITS:
                if (
                    w[ss.APPLIED] % SLICE == 0
                    and w[ss.APPLIED] // SLICE == w[ss.EXPLORE_AT] + 1
                    and not p.setting[ss.EXACT]
                ):
                    w[ss.FITTING] = 1
                continue
        if w[ss.HELD] > 0 and (w[ss.ARRIVED] == grant.shape[0] or (w[ss.ARRIVED] < end and _is_late(s, z, p))):
            w[ss.FLUSHING] = 1
            continue
        if w[ss.ARRIVED] == end:
            return 0
        held = w[ss.HELD] > 0
        arrive(p, grant, free and w[ss.APPLIED] == w[ss.ARRIVED] and not held and w[ss.LEFT] == 0)
        if held:
            p.real[ss.ZONE_GRANT] += grant[w[ss.ARRIVED] - 1]
