"""What the guide says of a tuple among n streams: which products of regions are worth a visit, and in which order.

A region is the product of one range a stream, cut so that the granularity of its oldest member is one: of the
combinations whose oldest member lies in granularity g, region (g, j) holds those in which stream j is the first
with a member in g.  So streams before j stay inside the newer granularities, j inside g, those after j inside g
or newer; the regions of all (g, j) are disjoint and cover the whole product.  With two streams (g, j) is the
part of the other stream inside granularity g, as in `nile.operators.join.guide_kernels`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.operators.multiway.common_kernels import code_of, enter, look_up, output_price, time_of
from nile.operators.multiway.control_kernels import cushion
from nile.operators.multiway.state import State
from nile.preferences import queue_kernels as queue
from nile.preferences import state as js
from nile.preferences.arrival_kernels import pay_hit, since_of
from nile.preferences.level_kernels import effective_admission, sampling_rate
from nile.preferences.queue_kernels import Queue
from nile.preferences.region_kernels import queue_up, read_root, read_window
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.list_kernels import first_since, ordinal_at, rank_since
from nile.pyramid.grid.region_kernels import density, density_class
from nile.summaries.hash_kernels import mix
from nile.summaries.kernels import inlined, part

Array = np.ndarray[Any, Any]
Grids = tuple[Side, ...]  # of each stream, where others keep them; else one that nobody asks
_SMOOTH = 1.0 / 128.0
LIGHT, ALONE, HEAVY = 0, 1, 2  # asc: nothing against the tuple; no other stream surely has its key; too frequent


@inlined
def hash_of(hashes: Array, key: int, stream: int) -> Any:
    """The hash under which the grid counts a key's tuples of one stream.  hashes: uint64, of each key."""
    return mix(hashes[key], stream + 1)


@part
def _product(counts: Array, own: int, g: int, j: int) -> float:
    """Combinations in region (g, j) by the counts [m, n] of each stream in each granularity."""
    total = 1.0
    for k in range(counts.shape[1]):
        if k == own:
            continue
        if k == j:
            total *= counts[g, k]
            continue
        newer = 0.0
        for older in range(g):
            newer += counts[older, k]
        total *= newer if k < j else newer + counts[g, k]
    return total


@part
def _queue_region(
    s: Side, a: int, g: int, j: int, klass: int, resolved: int, st: State, q: Queue, bounds: Array
) -> int:
    """Region (g, j), whose ranges `cut` gives, into the queue; returns its place there.

    Or -1: into the register, when nothing better waits (no push, no pop).
    """
    own = code_of(s, a) % st.entry.shape[0]
    ts = time_of(s, a)
    direct = st.whole[js.ACTIVE] == 0 and klass > queue.top_class(q)
    at = -1 if direct else queue_up(a, ts, klass, resolved, st, q)
    total = 1
    for k in range(st.entry.shape[0]):
        low = 0
        high = 0
        if k != own:
            low = st.cut[g, k] if k < j else st.cut[g + 1, k]
            high = st.cut[g, k] if k == j else st.cut[0, k]
            total *= high - low
        if direct:
            st.entry[k, 0] = low
            st.entry[k, 1] = high
        else:
            bounds[at, k, 0] = low
            bounds[at, k, 1] = high
    if direct:
        enter(a, ts, resolved, total, st)
    else:
        q.entry[at, queue.HIGH] = total
    return at


@inlined
def _first_other(own: int) -> int:
    """The first stream that is not `own`: region (0, that) is the whole product when `cut` has two rows."""
    return 1 if own == 0 else 0


@part
def densest_regions(s: Side, lent: Grids, hashes: Array, a: int, st: State, q: Queue, bounds: Array) -> None:
    """desc: queue the regions that promise combinations of this tuple.

    priority = fade ** (granularity - 1) * product of what the guide expects of each stream / length of the
    granularity in seconds.  A stream that surely holds nothing ends the asking.
    """
    if st.setting[js.GUIDE] == js.COUNTSKETCH:
        _densest_by_sketch(s, hashes, a, st, q, bounds)
    elif st.setting[js.GUIDE] == js.SHARED_GRID:
        _densest_by_grids(s, lent, hashes, a, st, q, bounds)
    else:
        _densest_by_directory(s, a, st, q, bounds)


@part
def _densest_by_sketch(s: Side, hashes: Array, a: int, st: State, q: Queue, bounds: Array) -> None:
    m = st.fades.shape[0]
    n = st.entry.shape[0]
    own = code_of(s, a) % n
    since = since_of(time_of(s, a), st.window[0])
    for k in range(n):
        if k != own and not _ask(s, hashes, a, k, since, st):
            st.whole[js.PRUNED] += 1
            return
    for k in range(n):
        st.cut[0, k] = a
        for g in range(m):
            root = s.gran[g, ga.OFFSET]
            begin = st.cut[g, k]
            st.cut[g + 1, k] = min(begin, s.node[root, ga.START]) if s.node[root, ga.COUNT] > 0 else begin
    for g in range(m):
        root = s.gran[g, ga.OFFSET]
        length = s.node[root, ga.LAST] - max(since, s.node[root, ga.FIRST])
        for j in range(n):
            if j == own or _product(st.bound, own, g, j) == 0.0:
                continue
            klass = density_class(st.fades[g] * density(_product(st.expected, own, g, j), length, s))
            _queue_region(s, a, g, j, klass, js.UNRESOLVED, st, q, bounds)


@part
def _densest_by_grids(s: Side, lent: Grids, hashes: Array, a: int, st: State, q: Queue, bounds: Array) -> None:
    """By grids that others keep, whose granularities are cut by age, as the directory's are."""
    fades = st.fades
    m = fades.shape[0] if fades[fades.shape[0] - 1] < 1.0 else 1
    n = st.entry.shape[0]
    own = code_of(s, a) % n
    ts = time_of(s, a)
    since = since_of(ts, st.window[0])
    until = ts
    border = 0
    for g in range(m):
        border += s.gran[g, ga.SPAN]
        first = since if g + 1 == m else max(since, since_of(ts, border))
        begin = first_since(s, first, a)
        for k in range(n):
            st.cut[0, k] = a
            st.cut[g + 1, k] = begin
            st.bound[g, k] = 0.0
            if k != own and first <= until:
                value, st.bound[g, k] = _ask_grid(lent[k], hashes[code_of(s, a) // n], first, until, st)
                st.expected[g, k] = 0.0 if st.setting[js.BLIND] else value
        until = min(until, first - 1)
    for k in range(n):
        most = 0.0
        for g in range(m):
            most += st.bound[g, k]
        if k != own and most == 0.0:
            st.whole[js.PRUNED] += 1
            return
    until = ts
    for g in range(m):
        begin = st.cut[g + 1, own]
        oldest = time_of(s, begin) if begin < a else ts
        for j in range(n):
            if j == own or _product(st.bound, own, g, j) == 0.0:
                continue
            klass = density_class(fades[g] * density(_product(st.expected, own, g, j), until - oldest, s))
            _queue_region(s, a, g, j, klass, js.UNRESOLVED, st, q, bounds)
        until = oldest


@part
def _ask_grid(grid: Side, h: Any, since: int, until: int, st: State) -> tuple[float, float]:
    """A key's estimate and upper bound in [since, until] by one stream's lent grid."""
    value, bound, _ = read_window(grid, h, since, until, grid.counters.shape[1], 1.0, st)
    return value, bound


@part
def surely_alone(s: Side, lent: Grids, hashes: Array, a: int, st: State) -> bool:
    """Whether some other stream surely has nothing of a tuple's key in the window, by whatever sketches guide."""
    n = st.entry.shape[0]
    own = code_of(s, a) % n
    if st.setting[js.GUIDE] == js.SHARED_GRID:
        return alone_by_grids(lent, hashes[code_of(s, a) // n], time_of(s, a), own, st)
    since = since_of(time_of(s, a), st.window[0])
    for k in range(n):  # noqa: SIM110 - a kernel has no generators
        if k != own and not _ask(s, hashes, a, k, since, st):
            return True
    return False


@part
def alone_by_grids(lent: Grids, h: Any, ts: int, own: int, st: State) -> bool:
    """Whether grids that others keep tell that some other stream surely has nothing of a key in the window."""
    for k in range(st.entry.shape[0]):
        if k != own and _ask_grid(lent[k], h, since_of(ts, st.window[0]), ts, st)[1] == 0.0:
            return True
    return False


@part
def _ask(s: Side, hashes: Array, a: int, k: int, since: int, st: State) -> bool:
    """Ask the sketch for stream k's tuples of the key, granularity by granularity; False when it surely has none."""
    n = st.entry.shape[0]
    h = hash_of(hashes, code_of(s, a) // n, k)
    most = 0.0
    for g in range(s.gran.shape[0]):
        value, bound = read_root(s, g, h, since, s.counters.shape[1], st)
        st.expected[g, k] = 0.0 if st.setting[js.BLIND] else value
        st.bound[g, k] = bound
        most += bound
    return most > 0.0


@part
def _densest_by_directory(s: Side, a: int, st: State, q: Queue, bounds: Array) -> None:
    m = st.fades.shape[0]
    n = st.entry.shape[0]
    own = code_of(s, a) % n
    ts = time_of(s, a)
    first = code_of(s, a) - own
    total = look_up(s, a, s.zone[ga.KEPT_FROM], False, st)
    if total == 0:
        st.whole[js.PRUNED] += 1
        return
    if st.fades[m - 1] == 1.0:
        oldest = ts
        for k in range(n):
            if k != own:
                oldest = min(oldest, time_of(s, ordinal_at(s, first + k, st.cut[1, k])))
        klass = density_class(density(np.float64(total), ts - oldest, s))
        _queue_region(s, a, 0, _first_other(own), klass, js.RESOLVED, st, q, bounds)
        return
    # The directory has no zones: its granularities are cut by age alone.
    for k in range(n):
        low = st.cut[1, k]
        border = 0
        for g in range(m):
            border += s.gran[g, ga.SPAN]
            cut = low
            if k != own and g + 1 < m and st.cut[g, k] > low:
                pay_hit(st, st.prices[js.P_LOOKUP])
                cut = max(low, min(st.cut[g, k], rank_since(s, first + k, since_of(ts, border))))
            st.cut[g + 1, k] = cut
            st.expected[g, k] = np.float64(st.cut[g, k] - cut)
    for g in range(m):
        length = s.gran[g, ga.SPAN]
        for j in range(n):
            if j == own:
                continue
            value = _product(st.expected, own, g, j)
            if value > 0.0:
                klass = density_class(st.fades[g] * density(value, length, s))
                _queue_region(s, a, g, j, klass, js.RESOLVED, st, q, bounds)


@part
def sampled_region(
    s: Side, lent: Grids, hashes: Array, a: int, level: float, st: State, q: Queue, bounds: Array
) -> None:
    """weighted: systematic sampling.  S += p * combinations; each integer S passes is one output of weight 1 / p.

    Kept as the gap, in combinations, to the next output.  An output also stands for 1 / admission keys: `emit_entry`
    knows the admission thresholds of its members.  A range record has one weight for many combinations, so under
    ranges keys let in less than a window ago wait, and the others share one admission threshold.
    """
    real = st.real
    n = st.entry.shape[0]
    own = code_of(s, a) % n
    admission = 1.0
    if st.setting[js.RANGES]:
        admission = effective_admission(st, time_of(s, a))
        if level >= admission:
            return
    rate = sampling_rate(st, output_price(st), cushion(st))
    real[js.GAP] *= real[js.RATE] / rate
    real[js.RATE] = rate
    if st.setting[js.GUIDE] != js.DIRECTORY and (surely_alone(s, lent, hashes, a, st) or st.setting[js.BLIND]):
        st.whole[js.PRUNED] += 1
        real[js.MATCHES] -= _SMOOTH * real[js.MATCHES]
        return
    total = look_up(s, a, s.zone[ga.KEPT_FROM], False, st)
    if st.setting[js.RANGES]:
        total = min(total, 1)
    real[js.MATCHES] += _SMOOTH * (np.float64(total) - real[js.MATCHES])
    gap = real[js.GAP]
    if gap >= total:
        real[js.GAP] = gap - total
        return
    step = 1.0 / rate
    outputs = math.ceil((total - gap) / step)
    real[js.GAP] = max(0.0, gap + outputs * step - total)
    real[js.BACKLOG] += outputs
    at = _queue_region(s, a, 0, _first_other(own), 1, js.RESOLVED, st, q, bounds)
    if at < 0:
        real[js.ENTRY_GAP] = gap
        real[js.ENTRY_STEP] = step
        real[js.ENTRY_WEIGHT] = step / admission
    else:
        q.real[at, queue.GAP] = gap
        q.real[at, queue.STEP] = step
        q.real[at, queue.WEIGHT] = step / admission


@part
def rare_region(s: Side, a: int, level: float, total: int, count: int, st: State, q: Queue, bounds: Array) -> None:
    """asc: queue the combinations of a key that is rare in all streams together, the rarest first; no other key's.

    total: combinations as `look_up` found them; count: tuples of the key in the window, all streams together.
    """
    if total == 0:
        return
    ts = time_of(s, a)
    n = st.entry.shape[0]
    # A tuple of this key was turned away in the window: the lists undercount it.
    unsure = st.shed_at[code_of(s, a) // n] >= since_of(ts, st.window[0]) or level >= effective_admission(st, ts)
    if count > st.setting[js.CAP] or unsure:
        st.whole[js.PRUNED] += 1
        return
    klass = queue.CLASSES - 1 - min(count, queue.CLASSES - 1)
    _queue_region(s, a, 0, _first_other(code_of(s, a) % n), klass, js.RESOLVED, st, q, bounds)


@part
def _weigh_by_grids(s: Side, lent: Grids, h: Any, a: int, st: State) -> int:
    """`weigh` by grids that others keep: all rows of each, over the window."""
    ts = time_of(s, a)
    since = since_of(ts, st.window[0])
    n = st.entry.shape[0]
    count = 0.0
    noise = 0.0
    alone = False
    for k in range(n):
        grid = lent[k]
        value, bound, tuples = read_window(grid, h, since, ts, grid.counters.shape[1], 1.0, st)
        count += value
        noise += math.sqrt(tuples / (grid.counters.shape[2] // 2))
        alone |= bound == 0.0 and k != code_of(s, a) % n
    if count > 2.0 * st.setting[js.CAP] + 2.0 * noise and not st.setting[js.BLIND]:
        return HEAVY
    return ALONE if alone else LIGHT


@part
def weigh(s: Side, lent: Grids, hashes: Array, a: int, st: State) -> int:
    """asc: what the sketch says of a key before its tuple is inserted: HEAVY, ALONE or LIGHT.

    HEAVY: surely above the outlier cap, by twice the cap and twice the noise of one row.  Reading every row costs as
    much as the insertion and the look-ups that it could save, so one row of each stream is asked first: it acquits
    most keys, and suffices to confirm a key that was turned away less than a window ago, whose outputs are unsure
    anyway.  Its bounds are certain: where the key's in another stream is 0, the tuple completes nothing.
    """
    since = since_of(time_of(s, a), st.window[0])
    n = st.entry.shape[0]
    key = code_of(s, a) // n
    if st.setting[js.GUIDE] == js.SHARED_GRID:
        return _weigh_by_grids(s, lent, hashes[key], a, st)
    tuples = 0
    for g in range(s.gran.shape[0]):
        tuples += s.node[s.gran[g, ga.OFFSET], ga.COUNT]
    margin = 2.0 * st.setting[js.CAP] + 2.0 * math.sqrt(np.float64(n * tuples) / (s.counters.shape[2] // 2))
    count = 0.0
    alone = False
    for k in range(n):
        h = hash_of(hashes, key, k)
        most = 0.0
        for g in range(s.gran.shape[0]):
            value, bound = read_root(s, g, h, since, 1, st)
            count += value
            most += bound
        alone |= most == 0.0
    if count > margin and not st.setting[js.BLIND]:
        if st.shed_at[key] >= since:
            return HEAVY
        count = 0.0
        for k in range(n):
            h = hash_of(hashes, key, k)
            for g in range(s.gran.shape[0]):
                count += read_root(s, g, h, since, s.counters.shape[1], st)[0]
        if count > margin:
            return HEAVY
    return ALONE if alone else LIGHT
