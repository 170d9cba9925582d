"""An ordered multiset for each group, all in one pool of nodes: treaps that know how many values lie below a node.

A node holds a different value of a group and how often it stands.  Priorities are a hash of the node's number and a
count of insertions, so shapes are random and answers do not depend on them.  Insert, remove and select: O(log n).
Memory: 44 bytes a different value of a group.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.exact.state.kernels import allocating_kernel, copied, part

Array = np.ndarray[Any, Any]

# links: int64 [nodes, 2], left and right, -1 none
# sizes: int64 [nodes, 2], how often the value stands, and all values of the subtree
# meta: int64 [4]
USED = 0
FREE = 1  # the first of the free nodes, chained by their left links; -1 none
TICK = 2
LIVE = 3  # nodes in use

_DEEP = 1024


@part
def _priority(tick: int) -> int:
    h = np.uint64(tick) * np.uint64(0x9E3779B97F4A7C15)
    h ^= h >> np.uint64(32)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    return int(h >> np.uint64(33))


@part
def _total(sizes: Array, node: int) -> int:
    return int(sizes[node, 1]) if node >= 0 else 0


@part
def insert(
    roots: Array, group: int, key: int, keys: Array, prios: Array, links: Array, sizes: Array, meta: Array, stack: Array
) -> None:
    """One more `key` in the group.  There must be a free node."""
    node = roots[group]
    while node >= 0 and keys[node] != key:
        node = links[node, 0] if key < keys[node] else links[node, 1]
    if node >= 0:
        sizes[node, 0] += 1
        at = roots[group]
        while at != node:
            sizes[at, 1] += 1
            at = links[at, 0] if key < keys[at] else links[at, 1]
        sizes[node, 1] += 1
        return
    new = meta[FREE]
    if new >= 0:
        meta[FREE] = links[new, 0]
    else:
        new = meta[USED]
        meta[USED] += 1
    meta[TICK] += 1
    meta[LIVE] += 1
    keys[new] = key
    prios[new] = _priority(meta[TICK])
    sizes[new, 0] = 1
    parent = np.int64(-1)
    side = 0
    node = roots[group]
    while node >= 0 and prios[node] >= prios[new]:
        sizes[node, 1] += 1
        parent = node
        side = 0 if key < keys[node] else 1
        node = links[node, side]
    # split what hangs here into what is below key and what is above, and hang both under the new node
    low = new
    low_side = 0
    high = new
    high_side = 1
    depth = 0
    while node >= 0:
        stack[depth] = node
        depth += 1
        if keys[node] < key:
            links[low, low_side] = node
            low = node
            low_side = 1
            node = links[node, 1]
        else:
            links[high, high_side] = node
            high = node
            high_side = 0
            node = links[node, 0]
    links[low, low_side] = -1
    links[high, high_side] = -1
    while depth > 0:
        depth -= 1
        at = stack[depth]
        sizes[at, 1] = sizes[at, 0] + _total(sizes, links[at, 0]) + _total(sizes, links[at, 1])
    sizes[new, 1] = 1 + _total(sizes, links[new, 0]) + _total(sizes, links[new, 1])
    if parent < 0:
        roots[group] = new
    else:
        links[parent, side] = new


@part
def remove(
    roots: Array, group: int, key: int, keys: Array, prios: Array, links: Array, sizes: Array, meta: Array
) -> None:
    """One `key` less in the group; nothing where it has none."""
    parent = np.int64(-1)
    side = 0
    node = roots[group]
    while node >= 0 and keys[node] != key:
        sizes[node, 1] -= 1
        parent = node
        side = 0 if key < keys[node] else 1
        node = links[node, side]
    if node < 0:  # count those on the way as they were
        node = roots[group]
        while node >= 0:
            sizes[node, 1] += 1
            node = links[node, 0] if key < keys[node] else links[node, 1]
        return
    sizes[node, 0] -= 1
    sizes[node, 1] -= 1
    if sizes[node, 0] > 0:
        return
    a = links[node, 0]
    b = links[node, 1]
    while True:  # merge both subtrees under the parent
        if a < 0 or b < 0:
            rest = b if a < 0 else a
            if parent < 0:
                roots[group] = rest
            else:
                links[parent, side] = rest
            break
        if prios[a] >= prios[b]:
            top = a
            sizes[a, 1] += sizes[b, 1]
        else:
            top = b
            sizes[b, 1] += sizes[a, 1]
        if parent < 0:
            roots[group] = top
        else:
            links[parent, side] = top
        parent = top
        if top == a:
            side = 1
            a = links[a, 1]
        else:
            side = 0
            b = links[b, 0]
    links[node, 0] = meta[FREE]
    links[node, 1] = -1
    meta[FREE] = node
    meta[LIVE] -= 1


@part
def select(root: int, rank: int, keys: Array, links: Array, sizes: Array) -> int:
    """The value of `rank` (from 0, 0 <= rank < size) in order."""
    node = root
    while True:
        below = _total(sizes, links[node, 0])
        if rank < below:
            node = links[node, 0]
        elif rank < below + sizes[node, 0]:
            return int(keys[node])
        else:
            rank -= below + sizes[node, 0]
            node = links[node, 1]


@part
def read(root: int, shares: Array, discrete: Array, keys: Array, links: Array, sizes: Array, now: Array) -> None:
    """now: int64 [3 + 2 * shares], of one group: how many, least, greatest, and the two around each share.

    Places as of `nile.aggregates.catalogue.place_of`; of a discrete quantile both are its value.
    """
    n = _total(sizes, root)
    now[0] = n
    if n == 0:
        for c in range(1, now.shape[0]):
            now[c] = 0
        return
    node = root
    while links[node, 0] >= 0:
        node = links[node, 0]
    now[1] = keys[node]
    node = root
    while links[node, 1] >= 0:
        node = links[node, 1]
    now[2] = keys[node]
    for j in range(shares.shape[0]):
        place = shares[j] * (n - 1)
        if discrete[j]:
            place = max(1.0, n - math.floor(n - shares[j] * n)) - 1.0
        below = np.int64(math.floor(place))
        above = np.int64(math.ceil(place))
        now[3 + 2 * j] = select(root, int(below), keys, links, sizes)
        now[4 + 2 * j] = now[3 + 2 * j] if below == above else select(root, int(above), keys, links, sizes)


@allocating_kernel
def listed(roots: Array, codes: Array, keys: Array, links: Array, sizes: Array, starts: Array) -> tuple[Array, Array]:
    """(values, how often each stands) of groups `codes` in turn, each in order; starts: int64 [codes + 1], filled."""
    room = 1024
    out = np.empty(room, np.int64)
    times = np.empty(room, np.int64)
    stack = np.empty(_DEEP, np.int64)
    n = 0
    for g in range(codes.shape[0]):
        node = roots[codes[g]]
        depth = 0
        while depth > 0 or node >= 0:
            while node >= 0:
                stack[depth] = node
                depth += 1
                node = links[node, 0]
            depth -= 1
            node = stack[depth]
            if n == room:
                room *= 2
                a = np.empty(room, np.int64)
                b = np.empty(room, np.int64)
                copied(n, out, a)
                copied(n, times, b)
                out = a
                times = b
            out[n] = keys[node]
            times[n] = sizes[node, 0]
            n += 1
            node = links[node, 1]
        starts[g + 1] = n
    return out[:n], times[:n]


@allocating_kernel
def build(
    starts: Array, shares: Array, discrete: Array, roots: Array, keys: Array, prios: Array, links: Array,
    sizes: Array, meta: Array, now: Array,
) -> None:  # fmt: skip
    """Treaps of groups 0 to n - 1 over nodes whose keys, and how often each stands, are in place, group by group.

    starts: int64 [n + 1], the nodes of each group, whose keys rise.  O(nodes): the right spine is a stack.
    """
    stack = np.empty(_DEEP, np.int64)
    for group in range(starts.shape[0] - 1):
        depth = 0
        for node in range(starts[group], starts[group + 1]):
            meta[TICK] += 1
            prios[node] = _priority(meta[TICK])
            last = np.int64(-1)
            while depth > 0 and prios[stack[depth - 1]] < prios[node]:
                depth -= 1
                last = stack[depth]
                sizes[last, 1] = sizes[last, 0] + _total(sizes, links[last, 0]) + _total(sizes, links[last, 1])
            links[node, 0] = last
            links[node, 1] = -1
            if depth > 0:
                links[stack[depth - 1], 1] = node
            stack[depth] = node
            depth += 1
        roots[group] = stack[0] if depth > 0 else -1
        while depth > 0:
            depth -= 1
            last = stack[depth]
            sizes[last, 1] = sizes[last, 0] + _total(sizes, links[last, 0]) + _total(sizes, links[last, 1])
        read(roots[group], shares, discrete, keys, links, sizes, now[group])
    meta[USED] = starts[starts.shape[0] - 1]
    meta[LIVE] = meta[USED]


@allocating_kernel
def apply_ordered(
    sign: Array,
    codes: Array,
    values: Array,
    valid: Array,
    touch: Array,
    first: Array,
    last: Array,
    shares: Array,
    discrete: Array,
    roots: Array,
    keys: Array,
    prios: Array,
    links: Array,
    sizes: Array,
    meta: Array,
    now: Array,
    old: Array,
    new: Array,
) -> None:
    """Put in what comes, take out what goes, and read each pair (instant, group) before and after.

    values: int64 [n], ordered as the values are; shares: float64 [m] and discrete: bool [m], of quantiles; now, old,
    new: int64 [., 3 + 2 m], as of `read`.
    """
    stack = np.empty(_DEEP, np.int64)
    for i in range(sign.shape[0]):
        code = codes[i]
        t = touch[i]
        if i == first[t]:
            for c in range(now.shape[1]):
                old[t, c] = now[code, c]
        if valid[i]:
            if sign[i] > 0:
                insert(roots, code, values[i], keys, prios, links, sizes, meta, stack)
            else:
                remove(roots, code, values[i], keys, prios, links, sizes, meta)
        if i == last[t]:
            read(roots[code], shares, discrete, keys, links, sizes, now[code])
            for c in range(now.shape[1]):
                new[t, c] = now[code, c]
