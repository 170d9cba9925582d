"""Granularities: zones end, grow old, and collapse into the next coarser granularity.

Design.  A zone that ends becomes G1's newest leaf: root minus its two children, which hold all that has ended.
Then zones wholly older than what their granularity covers move on: each is added to the next granularity's
current zone and subtracted from every index node above it, so a node is always the sum of its children and no
upper bound of a node is below one of a child.
Rings: G1 has `max_zones` leaves and merges its two oldest when it needs another; G2..Gm have `rate` zones and
pass their oldest on, or merge or forget it at the last.
Cost: one pass over a sketch for each index level, a few tens of microseconds per zone; plain numpy, which is as
fast at that as a kernel and needs no compiling.
Source: promising tuples, sections 3.4 and 3.5, COLLAPSE of Figure 5b.
"""

from __future__ import annotations

import numpy as np

from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side

__all__ = ["turn"]


def turn(s: Side) -> None:
    """End the open zone, which was found to end, after what has grown older than its granularity has moved on."""
    _retire(s, int(s.zone[ga.NOW]))
    if s.zone[ga.ENDING]:
        s.zone[ga.ENDING] = 0
        _close_zone(s)


def _close_zone(s: Side) -> None:
    """End the open zone: it becomes G1's newest leaf, and the detector starts anew."""
    zone = s.zone
    s.detector[:] = 0
    s.recent[:] = 0
    zone[ga.REFERENCE] = zone[ga.SLICE_COUNT] = 0
    if zone[ga.ZONE_COUNT] == 0:
        return
    if s.gran[0, ga.SIZE] == s.gran[0, ga.RING]:
        _merge_oldest(s, 0)
    leaf = _leaf(s, 0, int(s.gran[0, ga.SIZE]))
    slot = _slot(s, 0, leaf)
    root = _slot(s, 0, 1)
    np.subtract(s.counters[root], s.counters[root + 1], out=s.counters[slot])
    zone[ga.ADDS] += s.counters[slot].size
    _combine(s, slot, root + 2, -1)
    row = s.node[slot]
    row[ga.COUNT] = zone[ga.ZONE_COUNT]
    row[ga.START], row[ga.END] = zone[ga.ZONE_START], s.node[root, ga.END]
    row[ga.FIRST], row[ga.LAST] = zone[ga.ZONE_FIRST], s.node[root, ga.LAST]
    zone[ga.ZONE_COUNT] = 0
    zone[ga.CLOSED] += 1
    s.gran[0, ga.SIZE] += 1
    position = leaf >> 1
    while position > 1:  # the root holds them already
        _combine(s, _slot(s, 0, position), slot, 1)
        position >>= 1
    _refresh(s, 0, leaf)


def _retire(s: Side, now: int) -> None:
    """Zones older than what their granularity covers move on: into the next, or forgotten at the last."""
    m = s.gran.shape[0]
    for g in range(m):
        while s.gran[g, ga.SIZE] and now - int(s.node[_slot(s, g, _leaf(s, g, 0)), ga.LAST]) >= s.gran[g, ga.REACH]:
            if g + 1 < m:
                _make_room(s, g + 1)
                _collapse(s, g)
            elif s.spec[ga.FORGETTING]:
                _forget_oldest(s, g)
            else:
                break


def _make_room(s: Side, g: int) -> None:
    """Advance current zones so that granularity g, and each behind it, can take what the one before passes on.

    The paper advances every T_i / n; here a current zone also waits for data, so none is ever empty.
    """
    m = s.gran.shape[0]
    need = g - 1
    for h in range(g, m):
        size = int(s.gran[h, ga.SIZE])
        if size:
            # A zone that has not yet had its time takes what comes as it is.
            comes = int(s.node[_slot(s, h - 1, _leaf(s, h - 1, 0)), ga.FIRST])
            begun = int(s.node[_slot(s, h, _leaf(s, h, size - 1)), ga.FIRST])
            if comes - begun < s.gran[h, ga.SPAN] // s.gran[h, ga.RING]:
                break
        need = h
        if size < s.gran[h, ga.RING]:
            break
    for h in range(need, g - 1, -1):
        if s.gran[h, ga.SIZE] == s.gran[h, ga.RING]:
            if h + 1 < m:
                _collapse(s, h)
            elif s.spec[ga.FORGETTING]:
                _forget_oldest(s, h)
            else:
                _merge_oldest(s, h)
        s.gran[h, ga.SIZE] += 1


def _collapse(s: Side, g: int) -> None:
    """COLLAPSE (Figure 5b): the oldest zone of granularity g into the current zone of g + 1."""
    source = _slot(s, g, _leaf(s, g, 0))
    current = _leaf(s, g + 1, int(s.gran[g + 1, ga.SIZE]) - 1)
    position = current
    while position >= 1:
        _combine(s, _slot(s, g + 1, position), source, 1)
        position >>= 1
    _absorb(s, _slot(s, g + 1, current), source)
    _refresh(s, g + 1, current)
    _drop_oldest(s, g)


def _forget_oldest(s: Side, g: int) -> None:
    slot = _slot(s, g, _leaf(s, g, 0))
    s.zone[ga.KEPT_FROM] = max(int(s.zone[ga.KEPT_FROM]), int(s.node[slot, ga.END]))
    s.zone[ga.FORGOTTEN] += s.node[slot, ga.COUNT]
    _drop_oldest(s, g)


def _drop_oldest(s: Side, g: int) -> None:
    """Take the oldest zone of granularity g out of every index node above it, and empty it."""
    leaf = _leaf(s, g, 0)
    slot = _slot(s, g, leaf)
    position = leaf >> 1
    while position >= 1:
        _combine(s, _slot(s, g, position), slot, -1)
        position >>= 1
    _advance(s, g)


def _merge_oldest(s: Side, g: int) -> None:
    """Make room in a full granularity by merging its two oldest zones, so that nothing is forgotten."""
    first, second = _leaf(s, g, 0), _leaf(s, g, 1)
    source, target = _slot(s, g, first), _slot(s, g, second)
    _combine(s, target, source, 1)
    _absorb(s, target, source)
    left, right = first >> 1, second >> 1
    while left != right:  # above their common ancestor nothing changes
        _combine(s, _slot(s, g, left), source, -1)
        _combine(s, _slot(s, g, right), source, 1)
        left >>= 1
        right >>= 1
    _advance(s, g)
    _refresh(s, g, second)


def _advance(s: Side, g: int) -> None:
    """Empty the oldest zone of granularity g, whose tuples are elsewhere now, and begin the ring after it."""
    leaf = _leaf(s, g, 0)
    slot = _slot(s, g, leaf)
    s.counters[slot] = 0
    s.node[slot] = ga.NO_TUPLE
    s.gran[g, ga.HEAD] = (s.gran[g, ga.HEAD] + 1) % s.gran[g, ga.RING]
    s.gran[g, ga.SIZE] -= 1
    _refresh(s, g, leaf)


def _leaf(s: Side, g: int, age: int) -> int:
    """The pyramid position of zone number `age` of granularity g, oldest first."""
    return int(s.gran[g, ga.LEAVES] + (s.gran[g, ga.HEAD] + age) % s.gran[g, ga.RING])


def _slot(s: Side, g: int, position: int) -> int:
    """The grid slot of a pyramid position; position 1 is the root, p has the children 2p and 2p + 1."""
    return int(s.gran[g, ga.OFFSET]) + position - 1


def _combine(s: Side, target: int, source: int, sign: int) -> None:
    """Add a slot's counters to another's, or subtract them."""
    if not s.node[source, ga.COUNT]:
        return
    into = s.counters[target]
    if sign > 0:
        np.add(into, s.counters[source], out=into)
    else:
        np.subtract(into, s.counters[source], out=into)
    s.zone[ga.ADDS] += into.size


def _absorb(s: Side, slot: int, source: int) -> None:
    """Count, ordinals and times of `source` into `slot`."""
    s.node[slot] = _together(s.node[slot].tolist(), s.node[source].tolist())


def _refresh(s: Side, g: int, leaf: int) -> None:
    """Recompute count, ordinals and times of the index nodes above a leaf from their children."""
    position = leaf >> 1
    while position >= 1:
        left = _slot(s, g, 2 * position)
        row = _together(s.node[left].tolist(), s.node[left + 1].tolist())
        if g == 0 and position == 1 and s.zone[ga.ZONE_COUNT]:  # the open zone is in the root and in no leaf
            zone = s.zone
            opened = s.node[_slot(s, 0, 1)]
            row = _together(row, [int(zone[ga.ZONE_COUNT]), int(zone[ga.ZONE_START]), int(opened[ga.END]),
                                  int(zone[ga.ZONE_FIRST]), int(opened[ga.LAST])])  # fmt: skip
        s.node[_slot(s, g, position)] = row
        position >>= 1


def _together(a: list[int], b: list[int]) -> list[int]:
    return [
        a[ga.COUNT] + b[ga.COUNT],
        min(a[ga.START], b[ga.START]),
        max(a[ga.END], b[ga.END]),
        min(a[ga.FIRST], b[ga.FIRST]),
        max(a[ga.LAST], b[ga.LAST]),
    ]
