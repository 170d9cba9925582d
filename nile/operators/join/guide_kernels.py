"""What the guide says of a tuple: which regions of the other stream are worth a visit, and in which order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.preferences import queue_kernels as queue
from nile.preferences import state as js
from nile.preferences.admission_kernels import cushion
from nile.preferences.arrival_kernels import held_at, make_entry, pay_hit, pay_insert, since_of, window_ranks
from nile.preferences.level_kernels import effective_admission, sampling_rate
from nile.preferences.queue_kernels import Queue
from nile.preferences.region_kernels import queue_up, read_root, read_window
from nile.preferences.slot_kernels import complete_below, older_counts, picks_slots
from nile.preferences.state import State
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.list_kernels import first_since, ordinal_at, rank_since
from nile.pyramid.grid.region_kernels import density, density_class
from nile.summaries.kernels import inlined, part

Array = np.ndarray[Any, Any]
_SMOOTH = 1.0 / 128.0
_PLENTY = 64
_PLENTY_FOREVER = 256  # without a window: what waits does not expire, and may all be served before the input ends
_ENOUGH = 0.25  # of a node's time in the window: without fade it is read as a whole, in place of a descent
WORTH_NOTING = 0.33  # of the tuples weighed, those too frequent: what is noted spares as many look-ups
LIGHT, ALONE, HEAVY = 0, 1, 2  # asc: nothing against the tuple; the other stream surely has not its key; too frequent


@inlined
def _outputs(matches: float, st: State) -> float:
    """How many outputs so many matches in one region make: a range record stands for all of them."""
    return min(np.float64(matches), 1.0) if st.setting[js.RANGES] else np.float64(matches)


@part
def _queue_region(
    st: State,
    q: Queue,
    klass: int,
    side: int,
    ordinal: int,
    ts: int,
    low: int,
    high: int,
    resolved: int,
    weight: float,
    promise: float,
) -> int:
    """Into the register when nothing better waits (no push, no pop), else into the queue; returns its place or -1.

    promise: the outputs expected of it (desc).  All count as found, and those of regions that are taken up as served;
    not so those of regions that lie back, where younger ones would be had in their place (`older_counts`).

    desc does not queue what would wait in vain: while plenty waits, regions no better than the least that has been
    served of late are let go.
    """
    st.real[js.FOUND] += promise
    if st.whole[js.ACTIVE] == 0 and klass > queue.top_class(q):
        make_entry(st, side, ordinal, ts, low, high, weight)
        st.whole[js.ACTIVE] = resolved
        st.real[js.SERVED] += promise
        return -1
    plenty = _PLENTY if st.window[0] < js.FOREVER else _PLENTY_FOREVER
    if q.control[queue.SIZE] >= plenty and klass <= st.whole[js.CUT] and st.setting[js.PREFERENCE] == js.DESC:
        st.whole[js.EVICTED] += 1
        return -1
    at = queue_up(ordinal, ts, klass, resolved, st, q)
    q.entry[at, queue.SIDE] = side
    q.entry[at, queue.LOW] = low
    q.entry[at, queue.HIGH] = high
    q.real[at, queue.WEIGHT] = weight
    q.real[at, queue.PROMISE] = promise
    st.whole[js.PLACED] += 1
    return at


@inlined
def _counted(promise: float, g: int, older: bool, st: State) -> float:
    """What a region of granularity g promises, as far as admission is to know of it."""
    if g == 0:
        st.real[js.YOUNG] += promise
        return promise
    return promise if older else 0.0


@part
def _estimated_regions(
    own: Side, other: Side, side: int, ordinal: int, ts: int, since: int, st: State, q: Queue
) -> None:
    """Queue the regions that the sketches promise matches in.

    Without fade one region is as good as another of the same density, so all that promise anything are one.
    """
    h = own.hash[held_at(own, ordinal)]
    fades = st.fades
    faded = fades[fades.shape[0] - 1] < 1.0
    older = older_counts(st)
    matches = 0.0
    promised = 0.0
    begin = js.FOREVER
    end = 0
    first = js.FOREVER
    for g in range(other.gran.shape[0]):
        value, bound = read_root(other, g, h, since, 1, st)
        if bound == 0.0:
            st.whole[js.PRUNED] += 1
            continue
        if st.setting[js.BLIND]:
            value = 0.0
        promise = _outputs(value, st)
        root = other.gran[g, ga.OFFSET]
        oldest = max(since, other.node[root, ga.FIRST])
        if faded:
            klass = density_class(fades[g] * density(value, other.node[root, ga.LAST] - oldest, other))
            begin = other.node[root, ga.START]
            end = min(other.node[root, ga.END], other.meta[ga.VISIBLE])
            promise = _counted(promise, g, older, st)
            _queue_region(st, q, klass, side, ordinal, ts, begin, end, js.UNRESOLVED, 1.0, promise)
        else:
            promised += promise
            matches += value
            begin = min(begin, other.node[root, ga.START])
            end = max(end, other.node[root, ga.END])
            first = min(first, oldest)
    end = min(end, other.meta[ga.VISIBLE])
    if end > begin and not faded:
        klass = density_class(density(matches, ts - first, other))
        _queue_region(st, q, klass, side, ordinal, ts, begin, end, js.UNRESOLVED, 1.0, promised)


@part
def _promised_regions(
    own: Side, other: Side, side: int, ordinal: int, ts: int, since: int, st: State, q: Queue
) -> None:
    """Queue the regions that a lent grid promises matches in; granularities are cut by age, as the directory's are.

    Without fade the window is one region, whose ends count in proportion to time as in grids of the join's own.
    """
    h = own.hash[held_at(own, ordinal)]
    fades = st.fades
    cuts = min(fades.shape[0], other.gran.shape[0]) if fades[fades.shape[0] - 1] < 1.0 else 1
    end = st.whole[js.SEQUENCE + 1 - side]
    oldest = first_since(other, since, end)
    if oldest == end:
        st.whole[js.PRUNED] += 1
        return
    begun = other.ts[held_at(other, oldest)]
    enough = _ENOUGH if cuts == 1 else 1.0
    older = older_counts(st)
    until = ts
    border = 0
    for g in range(cuts):
        border += other.gran[g, ga.SPAN]
        first = since if g + 1 == cuts else max(since, since_of(ts, border))
        value, bound, _ = read_window(other, h, first, until, 1, enough, st)
        begin = oldest
        if g + 1 < cuts:
            pay_hit(st, st.real[js.BOUNDS])
            begin = first_since(other, first, end)
        if bound == 0.0:
            st.whole[js.PRUNED] += 1
        else:
            if st.setting[js.BLIND]:
                value = 0.0
            klass = density_class(fades[g] * density(value, until - max(first, begun), other))
            promise = _counted(_outputs(value, st), g, older, st)
            _queue_region(st, q, klass, side, ordinal, ts, begin, end, js.UNRESOLVED, 1.0, promise)
        end = begin
        until = first - 1
        if until < begun:
            break


@part
def densest_regions(own: Side, other: Side, side: int, ordinal: int, code: int, ts: int, st: State, q: Queue) -> None:
    """desc: queue the regions of `other` that promise matches of this tuple, one a granularity.

    priority = fade ** (granularity - 1) * expected matches / length of the region.
    """
    since = since_of(ts, st.window[0])
    fades = st.fades
    st.real[js.YOUNG_TUPLES] += 1.0
    # Where nothing else waits, what comes next needs no promise: its list says as much as it would be asked for then.
    # Nor are its matches told apart by age, but where old ones are not worth being found.
    fading = fades[fades.shape[0] - 1] < 1.0
    alone = st.whole[js.ACTIVE] == 0 and q.control[queue.SIZE] == 0
    alike = not fading or (alone and older_counts(st))
    if st.setting[js.GUIDE] == js.COUNTSKETCH and not (alone and alike):
        _estimated_regions(own, other, side, ordinal, ts, since, st, q)
        return
    if st.setting[js.GUIDE] == js.SHARED_GRID:
        _promised_regions(own, other, side, ordinal, ts, since, st, q)
        return
    pay_hit(st, st.real[js.BOUNDS])
    low, high = window_ranks(other, code, ts, st.window[0], other.zone[ga.KEPT_FROM])
    if low == high:
        st.whole[js.PRUNED] += 1
        return
    if alike:
        length = ts - other.ts[held_at(other, ordinal_at(other, code, low))]
        klass = density_class(density(high - low, length, other))
        _queue_region(st, q, klass, side, ordinal, ts, low, high, js.RESOLVED, 1.0, _outputs(high - low, st))
        return
    # The directory has no zones: its granularities are cut by age alone.
    border = 0
    older = older_counts(st)
    for g in range(fades.shape[0]):
        border += other.gran[g, ga.SPAN]
        cut = low
        if g + 1 < fades.shape[0]:
            pay_hit(st, st.real[js.BOUNDS])
            cut = max(low, min(high, rank_since(other, code, since_of(ts, border))))
        if cut < high:
            klass = density_class(fades[g] * density(high - cut, other.gran[g, ga.SPAN], other))
            promise = _counted(_outputs(high - cut, st), g, older, st)
            _queue_region(st, q, klass, side, ordinal, ts, cut, high, js.RESOLVED, 1.0, promise)
            high = cut
        if low == high:
            break


@part
def sampled_region(
    own: Side, other: Side, side: int, ordinal: int, code: int, ts: int, level: float, st: State, q: Queue
) -> None:
    """weighted: systematic sampling.  S += p * n; each integer S passes is one output of weight 1 / p.

    Kept as the gap, in matches, to the next output.  An output also stands for 1 / admission keys: `emit_entry` knows
    admission of each pair.  Over shared stores, whose admissions are others', this query's own goes with the entry. A
    range record has one weight for many pairs, so under ranges keys let in less than a window ago wait, and the
    others share one admission threshold.
    """
    real = st.real
    since = since_of(ts, st.window[0])
    admission = 1.0
    if st.setting[js.RANGES]:
        admission = effective_admission(st, ts)
        if level >= admission:
            return
    elif st.setting[js.SHARED]:
        admission = real[js.ADMISSION]
    rate = sampling_rate(st, st.prices[js.P_EMIT], cushion(st))
    real[js.GAP] *= real[js.RATE] / rate
    real[js.RATE] = rate
    if st.setting[js.GUIDE] != js.DIRECTORY:
        h = own.hash[held_at(own, ordinal)]
        most = 0.0
        if st.setting[js.GUIDE] == js.SHARED_GRID:
            _, most, _ = read_window(other, h, since, ts, 1, 1.0, st)
        else:
            for g in range(other.gran.shape[0]):
                _, bound = read_root(other, g, h, since, 1, st)
                most += bound
        if most == 0.0 or st.setting[js.BLIND]:
            st.whole[js.PRUNED] += 1
            real[js.MATCHES] -= _SMOOTH * real[js.MATCHES]
            return
    pay_hit(st, st.real[js.BOUNDS])
    low, high = window_ranks(other, code, ts, st.window[0], other.zone[ga.KEPT_FROM])
    n = high - low
    if st.setting[js.RANGES]:
        n = min(n, 1)
    real[js.MATCHES] += _SMOOTH * (n - real[js.MATCHES])
    gap = real[js.GAP]
    if gap >= n:
        real[js.GAP] = gap - n
        return
    step = 1.0 / rate
    outputs = math.ceil((n - gap) / step)
    real[js.GAP] = max(0.0, gap + outputs * step - n)
    real[js.BACKLOG] += outputs
    at = _queue_region(st, q, 1, side, ordinal, ts, low, high, js.RESOLVED, step / admission, 0.0)
    if at < 0:
        real[js.ENTRY_GAP] = gap
        real[js.ENTRY_STEP] = step
    else:
        q.real[at, queue.GAP] = gap
        q.real[at, queue.STEP] = step


@part
def rare_region(
    own: Side, other: Side, side: int, ordinal: int, code: int, ts: int, level: float, st: State, q: Queue
) -> None:
    """asc: queue the matches of a key that is rare in both streams, the rarest first; no other key's."""
    window = st.window[0]
    pay_hit(st, st.real[js.BOUNDS])
    low, high = window_ranks(other, code, ts, window, other.zone[ga.KEPT_FROM])
    if low == high:
        return
    pay_hit(st, st.real[js.BOUNDS])
    own_low, own_high = window_ranks(own, code, ts, window, 0)
    # What is forgotten joins no more, and is counted all the same: the key was as frequent.
    count = (high - rank_since(other, code, since_of(ts, window))) + (own_high - own_low)
    # A tuple of this key was turned away in the window: the lists undercount it.
    unsure = st.shed_at[code] >= since_of(ts, window)
    unsure = unsure or level >= (complete_below(st, ts) if picks_slots(st) else effective_admission(st, ts))
    if count > st.setting[js.CAP] or unsure:
        st.whole[js.PRUNED] += 1
        return
    klass = queue.CLASSES - 1 - min(count, queue.CLASSES - 1)
    _queue_region(st, q, klass, side, ordinal, ts, low, high, js.RESOLVED, 1.0, 0.0)


@part
def _weigh_lists(own: Side, other: Side, ordinal: int, code: int, ts: int, st: State) -> int:
    """`weigh` by the lists of both streams, charged where the key is HEAVY.

    Where many are, a small table says until when a key surely stays so, and spares the look-up: lists only grow
    within a window.  It says no more than the lists would.
    """
    most = 2 * st.setting[js.CAP]
    since = since_of(ts, st.window[0])
    notes = st.heavy.shape[0] > 0 and st.real[js.HEAVY_MEAN] >= WORTH_NOTING
    h = np.int64(own.hash[held_at(own, ordinal)])
    place = h & np.int64(js.HEAVY_KEYS - 1)
    if notes:
        pay_insert(st, st.prices[js.P_ESTIMATE])
        if st.heavy[place, 0] == h and st.heavy[place, 1] >= since:
            return HEAVY
    low, high = window_ranks(other, code, ts, st.window[0], 0)
    own_low, own_high = window_ranks(own, code, ts, st.window[0], 0)
    theirs = high - low
    mine = own_high - own_low
    if mine + theirs <= most:
        return LIGHT
    pay_insert(st, st.prices[js.P_LOOKUP])
    if notes:
        # So many of the newest tuples of either stream are one too many, for as long as the older of two lies in the
        # window.
        newest = min(mine, max(most + 1 - theirs, (most + 1) * mine // (mine + theirs)))
        oldest = ts
        if newest > 0:
            oldest = own.ts[held_at(own, ordinal_at(own, code, own_high - newest))]
        if newest <= most:
            oldest = min(oldest, other.ts[held_at(other, ordinal_at(other, code, high - (most + 1 - newest)))])
        st.heavy[place, 0] = h
        st.heavy[place, 1] = oldest
        pay_insert(st, st.prices[js.P_UPDATE] + 2.0 * st.real[js.BOUNDS])
    return HEAVY


@part
def weigh(own: Side, other: Side, ordinal: int, code: int, ts: int, st: State) -> int:
    """asc: HEAVY where a key is surely above the outlier cap, by a margin, and so turned away before insertion.

    ALONE where a lent grid knows that the other stream has none of it, so that nothing need be looked up; else LIGHT.
    """
    cap = st.setting[js.CAP]
    if st.setting[js.GUIDE] == js.DIRECTORY:
        said = _weigh_lists(own, other, ordinal, code, ts, st)
        st.real[js.HEAVY_MEAN] += _SMOOTH * (np.float64(said == HEAVY) - st.real[js.HEAVY_MEAN])
        return said
    since = since_of(ts, st.window[0])
    h = own.hash[held_at(own, ordinal)]
    if st.setting[js.BLIND]:
        return LIGHT
    if st.setting[js.GUIDE] == js.SHARED_GRID:
        mine, _, of_own = read_window(own, h, since, ts, own.counters.shape[1], 1.0, st)
        theirs, bound, of_other = read_window(other, h, since, ts, other.counters.shape[1], 1.0, st)
        noise = math.sqrt(of_own / (own.counters.shape[2] // 2)) + math.sqrt(of_other / (other.counters.shape[2] // 2))
        if mine + theirs > 2.0 * cap + 2.0 * noise:
            return HEAVY
        return ALONE if bound == 0.0 else LIGHT
    count = 0.0
    tuples = 0
    for g in range(own.gran.shape[0]):
        mine, _ = read_root(own, g, h, since, own.counters.shape[1], st)
        theirs, _ = read_root(other, g, h, since, own.counters.shape[1], st)
        count += mine + theirs
        tuples += own.node[own.gran[g, ga.OFFSET], ga.COUNT] + other.node[other.gran[g, ga.OFFSET], ga.COUNT]
    noise = math.sqrt(np.float64(tuples) / (own.counters.shape[2] // 2))
    return HEAVY if count > 2.0 * cap + 2.0 * noise else LIGHT
