"""Rows of partitions in order, each partition a treap of all rows' one pool, and what an instant moves in them.

A node is the code of a row; it stands as often as it holds.  Order: the words of its keys, then its birth.  Priorities
are a hash of the birth, so shapes are random and answers do not depend on them.  Insert, remove, place: O(log n).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.state.kernels import allocating_kernel, copied, kernel, part

Array = np.ndarray[Any, Any]

# nodes: int64 [codes, 7], what a look-up reads of a row in one cache line
COUNT = 0  # how often it holds
BIRTH = 1  # the number of the row that made it appear
LEFT = 2  # -1 none
RIGHT = 3
SIZE = 4  # rows of the subtree
SEEN = 5  # the last group of changes that touched it, and how often it holds after that
AFTER = 6

# how far an instant's change is felt: int64 [7], MOST for all
BACK = 0  # rows before those that change whose values may change, and rows after them
AHEAD = 1
BEFORE = 2  # rows before those, and after, that their values are worked out from
BEYOND = 3
PEERS = 4  # 1: rows equal in order to the one before the change may change too
CUT = 5  # nobody reads rows beyond a place (1), a rank (2) or a dense rank (3) of LEAST; 0: everyone may
LEAST = 6

_DEEP = 1024


@part
def _compared(a: int, b: int, words: Array) -> int:
    """Below 0 where row a comes before row b by its keys, 0 where they are peers."""
    for w in range(words.shape[1]):
        if words[a, w] != words[b, w]:
            return -1 if words[a, w] < words[b, w] else 1
    return 0


@part
def _is_before(a: int, b: int, nodes: Array, words: Array) -> bool:
    by_keys = _compared(a, b, words)
    return bool(by_keys < 0 or (by_keys == 0 and nodes[a, BIRTH] < nodes[b, BIRTH]))


@part
def _priority(node: int, nodes: Array) -> int:
    h = np.uint64(nodes[node, BIRTH] + 1) * np.uint64(0x9E3779B97F4A7C15)
    h ^= h >> np.uint64(32)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    return int(h >> np.uint64(33))


@part
def _size(node: int, nodes: Array) -> int:
    return int(nodes[node, SIZE]) if node >= 0 else 0


@part
def insert(part: int, new: int, roots: Array, nodes: Array, words: Array, stack: Array) -> None:
    """Put a row that is not there into its partition."""
    often = nodes[new, COUNT]
    own = _priority(new, nodes)
    parent = np.int64(-1)
    side = LEFT
    node = roots[part]
    while node >= 0 and _priority(node, nodes) >= own:
        nodes[node, SIZE] += often
        parent = node
        side = LEFT if _is_before(new, node, nodes, words) else RIGHT
        node = nodes[node, side]
    # split what hangs here into what comes before and after the row, and hang both under it
    low = np.int64(new)
    low_side = LEFT
    high = np.int64(new)
    high_side = RIGHT
    depth = 0
    while node >= 0:
        stack[depth] = node
        depth += 1
        if _is_before(node, new, nodes, words):
            nodes[low, low_side] = node
            low = node
            low_side = RIGHT
            node = nodes[node, RIGHT]
        else:
            nodes[high, high_side] = node
            high = node
            high_side = LEFT
            node = nodes[node, LEFT]
    nodes[low, low_side] = -1
    nodes[high, high_side] = -1
    while depth > 0:
        depth -= 1
        at = stack[depth]
        nodes[at, SIZE] = nodes[at, COUNT] + _size(nodes[at, LEFT], nodes) + _size(nodes[at, RIGHT], nodes)
    nodes[new, SIZE] = often + _size(nodes[new, LEFT], nodes) + _size(nodes[new, RIGHT], nodes)
    if parent < 0:
        roots[part] = new
    else:
        nodes[parent, side] = new


@kernel
def insert_all(parts: Array, rows: Array, roots: Array, nodes: Array, words: Array, stack: Array) -> None:
    """`insert` of rows one after the other.  parts: of each row of the table."""
    for row in rows:
        insert(parts[row], row, roots, nodes, words, stack)


@part
def _remove(part: int, old: int, roots: Array, nodes: Array, words: Array) -> None:
    """Take a row out of its partition, which has it."""
    often = nodes[old, COUNT]
    parent = np.int64(-1)
    side = LEFT
    node = roots[part]
    while node != old:
        nodes[node, SIZE] -= often
        parent = node
        side = LEFT if _is_before(old, node, nodes, words) else RIGHT
        node = nodes[node, side]
    a = nodes[old, LEFT]
    b = nodes[old, RIGHT]
    while True:  # merge both subtrees under the parent
        if a < 0 or b < 0:
            top = b if a < 0 else a
        elif _priority(a, nodes) >= _priority(b, nodes):
            top = a
            nodes[a, SIZE] += nodes[b, SIZE]
        else:
            top = b
            nodes[b, SIZE] += nodes[a, SIZE]
        if parent < 0:
            roots[part] = top
        else:
            nodes[parent, side] = top
        if a < 0 or b < 0:
            return
        parent = top
        if top == a:
            side = RIGHT
            a = nodes[a, RIGHT]
        else:
            side = LEFT
            b = nodes[b, LEFT]


@part
def _place(root: int, row: int, peers: int, nodes: Array, words: Array) -> int:
    """How many rows come before a row, which need not be there.

    peers: 0 those before it by birth count too, -1 no peer does, 1 all of them.
    """
    place = 0
    node = root
    while node >= 0:
        by_keys = _compared(node, row, words)
        if by_keys == 0:
            by_keys = -peers if peers != 0 else (-1 if nodes[node, BIRTH] < nodes[row, BIRTH] else 1)
        if by_keys < 0:
            place += _size(nodes[node, LEFT], nodes) + nodes[node, COUNT]
            node = nodes[node, RIGHT]
        else:
            node = nodes[node, LEFT]
    return place


@part
def _at(root: int, place: int, nodes: Array) -> int:
    """The row at a place, 0 <= place < size."""
    node = root
    while True:
        below = _size(nodes[node, LEFT], nodes)
        if place < below:
            node = nodes[node, LEFT]
        elif place < below + nodes[node, COUNT]:
            return int(node)
        else:
            place -= below + nodes[node, COUNT]
            node = nodes[node, RIGHT]


@part
def _read_until(root: int, reach: Array, nodes: Array, words: Array) -> int:
    """The place before which all rows are that anyone reads."""
    n = _size(root, nodes)
    if reach[CUT] == 0 or n == 0:
        return int(n)
    if reach[LEAST] <= 0:
        return 0
    if reach[CUT] == 3:
        end = 0
        for _ in range(reach[LEAST]):
            if end == n:
                break
            end = _place(root, _at(root, end, nodes), 1, nodes, words)
        return int(end)
    if n <= reach[LEAST]:
        return int(n)
    if reach[CUT] == 1:
        return int(reach[LEAST])
    return int(_place(root, _at(root, reach[LEAST] - 1, nodes), 1, nodes, words))


@part
def _listed(root: int, low: int, high: int, nodes: Array, words: Array, stack: Array, rows: Array, at: int) -> None:
    """rows[at:]: int64 [., 4], the rows at places low to high - 1: code, row number, rank, dense rank.

    Dense ranks count from `low`.
    """
    depth = 0
    node = root
    skip = low
    while node >= 0:  # down to the place, what comes after each turn left waits
        below = _size(nodes[node, LEFT], nodes)
        if skip < below:
            stack[depth] = node
            depth += 1
            node = nodes[node, LEFT]
        elif skip < below + nodes[node, COUNT]:
            stack[depth] = node
            depth += 1
            skip -= below
            break
        else:
            skip -= below + nodes[node, COUNT]
            node = nodes[node, RIGHT]
    place = low
    dense = 0
    rank = 0
    last = np.int64(-1)
    while place < high:
        depth -= 1
        node = stack[depth]
        if last < 0:
            rank = _place(root, node, -1, nodes, words) + 1
            dense = 1
        elif _compared(int(last), node, words) != 0:
            rank = place + 1
            dense += 1
        last = node
        for _ in range(min(nodes[node, COUNT] - skip, high - place)):
            rows[at, 0] = node
            rows[at, 1] = place + 1
            rows[at, 2] = rank
            rows[at, 3] = dense
            at += 1
            place += 1
        skip = 0
        node = nodes[node, RIGHT]
        while node >= 0:
            stack[depth] = node
            depth += 1
            node = nodes[node, LEFT]


@allocating_kernel
def move(
    begins: Array, first: int, most: int, parts: Array, codes: Array, sign: Array, wanted: bool, reach: Array,
    roots: Array, nodes: Array, words: Array, born: Array,
) -> tuple[int, Array, Array]:  # fmt: skip
    """Apply groups of changes, from `first` on, and list what may tell something else before and after each.

    begins: int64 [groups + 1], where the changes of one partition at one instant begin; parts, codes: int64 [n] and
    sign: int8 [n] of the changes; born: int64 [1], births so far.
    Returns (the next group, at the latest after `most` rows; rows: int64 [., 4], as of `_listed`; versions: int64
    [2 (groups done), 4]: before and after each group its begin and end in rows, and of those whose values count).
    """
    stack = np.empty(_DEEP, np.int64)
    groups = begins.shape[0] - 1
    versions = np.zeros((2 * (groups - first), 4), np.int64)
    rows = np.empty((1024, 4), np.int64)
    used = 0
    longest = 0
    for g in range(first, groups):
        longest = max(longest, begins[g + 1] - begins[g])
    touched = np.empty(longest, np.int64)
    for g in range(first, groups):
        if used > most:
            return g, rows[:used], versions[: 2 * (g - first)]
        part = parts[begins[g]]
        n = 0
        for i in range(begins[g], begins[g + 1]):
            code = codes[i]
            if nodes[code, SEEN] != g:
                nodes[code, SEEN] = g
                nodes[code, AFTER] = nodes[code, COUNT]
                touched[n] = code
                n += 1
            nodes[code, AFTER] += 1 if sign[i] > 0 else -1
        root = roots[part]
        begin = _size(root, nodes)
        end = 0
        moved = 0
        for t in range(n):
            code = touched[t]
            nodes[code, SEEN] = -1
            old = nodes[code, COUNT]
            if max(old, 0) == max(nodes[code, AFTER], 0):
                nodes[code, COUNT] = nodes[code, AFTER]
                continue
            if old <= 0:
                nodes[code, BIRTH] = born[0]
                born[0] += 1
            touched[moved] = code
            moved += 1
            place = _place(root, code, 0, nodes, words)
            begin = min(begin, place)
            end = max(end, place + max(old, 0))
        for version in range(2):
            if version == 1:
                begin_size = _size(root, nodes)
                for t in range(moved):
                    code = touched[t]
                    if nodes[code, COUNT] > 0:
                        _remove(part, code, roots, nodes, words)
                    nodes[code, COUNT] = nodes[code, AFTER]
                    if nodes[code, COUNT] > 0:
                        insert(part, code, roots, nodes, words, stack)
                root = roots[part]
                end += _size(root, nodes) - begin_size
            if not wanted or moved == 0:
                continue
            size = _size(root, nodes)
            until = _read_until(root, reach, nodes, words)
            low = max(begin - reach[BACK], 0)
            if reach[PEERS] and begin > 0:
                low = min(low, _place(root, _at(root, begin - 1, nodes), -1, nodes, words))
            high = min(end + reach[AHEAD], until)
            if low >= high:
                continue
            from_, to = max(low - reach[BEFORE], 0), min(high + reach[BEYOND], size)
            if used + to - from_ > rows.shape[0]:
                wider = np.empty((max(2 * rows.shape[0], used + to - from_), 4), np.int64)
                copied(used, rows, wider)
                rows = wider
            _listed(root, from_, to, nodes, words, stack, rows, used)
            v = 2 * (g - first) + version
            versions[v, 0] = used
            versions[v, 1] = used + to - from_
            versions[v, 2] = used + low - from_
            versions[v, 3] = used + high - from_
            used += to - from_
    return groups, rows[:used], versions


@kernel
def differing(rows: Array, values: Array, versions: Array, nodes: Array, which: Array, told: Array) -> int:
    """How many rows really go or come: which: int64 [.], told: int8 [.] (-1 goes, 1 comes), filled.

    values: int64 [rows, .], equal words are equal values.  Both versions of a group have the rows that did not change
    in one order, so one walk over both finds what is in one alone.
    """
    n = 0
    for g in range(versions.shape[0] // 2):
        low, low_end = versions[2 * g, 2], versions[2 * g, 3]
        high, high_end = versions[2 * g + 1, 2], versions[2 * g + 1, 3]
        for at in range(high, high_end):
            nodes[rows[at, 0], SEEN] = g
            nodes[rows[at, 0], AFTER] = at  # the last of its places
        begin = high
        while low < low_end or high < high_end:
            goes = low < low_end
            if goes and high < high_end:
                code = rows[low, 0]
                if code == rows[high, 0]:
                    for w in range(values.shape[1]):
                        if values[low, w] != values[high, w]:
                            which[n] = low
                            told[n] = -1
                            which[n + 1] = high
                            told[n + 1] = 1
                            n += 2
                            break
                    low += 1
                    high += 1
                    continue
                goes = nodes[code, SEEN] != g or nodes[code, AFTER] < high
            which[n] = low if goes else high
            told[n] = -1 if goes else 1
            n += 1
            if goes:
                low += 1
            else:
                high += 1
        for at in range(begin, high_end):
            nodes[rows[at, 0], SEEN] = -1
    return n
