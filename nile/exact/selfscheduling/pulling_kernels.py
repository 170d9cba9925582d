"""One turn of a window join over independent queues: a tuple admitted and joined, or the news that all have to wait.

A stream is one ring: positions [FIRST, NEXT) are kept, [NEXT, END) wait in the queue; they only grow, and are the
ordinals of the tuples.  Backward evaluation checks the window at every candidate; forward evaluation once, when it
admits a tuple, since what it keeps lies within one period.

Cost.  A turn of backward evaluation O(n), of forward evaluation O(n) and O(n) more for each tuple it lets go; then the
candidates.  Imports nothing of the lower floors on purpose.
Source: TR 02-010, sections 3.1 and 3.2; window joins (SSDBM 2003), backward and forward evaluation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nile.exact.state.kernels import inlined, kernel, part

Array = np.ndarray[Any, Any]

FIRST, NEXT, END, ENDED, NEWEST = range(5)
PLACES = 5
TURN, MODE, PERIOD_END, LEVEL, WRITTEN, ADMITTED, WINDOW = range(7)
ENTRIES = 7
COMPARISONS, CHECKS, PROBES, UPDATES, DROPPED, UNJOINED, MOVED = range(7)
"""CHECKS: of a time against a window or period.  DROPPED: of what was kept.  UNJOINED: out of the queue, never kept."""
SEEKING, WITHIN = 1, 2
"""Mode 1 looks for a tuple of each stream within the window of each other; Mode 2 admits what their period holds."""
ADVANCED, NULL, FULL, FINISHED = range(4)
EARLIEST, LATEST = -(1 << 62), 1 << 62


class Queues(NamedTuple):
    """ts, code, link: int64 [n, capacity] rings; head, tail: int64 [n, buckets], empty tables without hashing.

    link: the next newer position of the bucket, -1 none; a code below 0 joins nothing.  place: int64 [n, PLACES].
    """

    ts: Array
    code: Array
    link: Array
    head: Array
    tail: Array
    place: Array


class Walk(NamedTuple):
    """at: int64 [ENTRIES].  cursor: the next candidate of each level; chosen: those taken, by level; low, high: the
    period that they leave; int64 [n] each."""

    at: Array
    cursor: Array
    chosen: Array
    low: Array
    high: Array


@inlined
def _bucket(code: int, buckets: int) -> Any:
    mixed = np.uint64(code) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed >> np.uint64(40)) & np.uint64(buckets - 1))


@inlined
def _head(q: Any, j: int) -> Any:
    """When stream j's oldest tuple is, kept or waiting; LATEST: it has ended, EARLIEST: not known yet."""
    if q.place[j, FIRST] < q.place[j, END]:
        return q.ts[j, q.place[j, FIRST] & (q.ts.shape[1] - 1)]
    return LATEST if q.place[j, ENDED] else EARLIEST


@part
def _drop(q: Any, j: int, costs: Array) -> None:
    """Let go of stream j's oldest tuple, kept or waiting."""
    first = q.place[j, FIRST]
    if first == q.place[j, NEXT]:
        q.place[j, NEXT] = first + 1
        costs[UNJOINED] += 1
    else:
        slot = first & (q.ts.shape[1] - 1)
        if q.head.shape[1] and q.code[j, slot] >= 0:
            bucket = _bucket(q.code[j, slot], q.head.shape[1])
            q.head[j, bucket] = q.link[j, slot]
            if q.link[j, slot] < 0:
                q.tail[j, bucket] = -1
            costs[UPDATES] += 1
        costs[DROPPED] += 1
    q.place[j, FIRST] = first + 1


@inlined
def _begin(q: Any, w: Any, level: int, costs: Array) -> None:
    """Set a level's cursor to the first candidate of its stream."""
    n = q.ts.shape[0]
    j = (w.at[ADMITTED] + level) % n
    costs[PROBES] += 1
    w.cursor[level] = q.place[j, FIRST]
    if q.head.shape[1]:
        code = q.code[w.at[ADMITTED], w.chosen[0] & (q.ts.shape[1] - 1)]
        w.cursor[level] = q.head[j, _bucket(code, q.head.shape[1])]


@part
def _admit(q: Any, w: Any, j: int, costs: Array) -> None:
    """Keep the tuple at the head of stream j's queue, and begin to look for what it completes."""
    p = q.place[j, NEXT]
    slot = p & (q.ts.shape[1] - 1)
    q.place[j, NEXT] = p + 1
    q.place[j, NEWEST] = q.ts[j, slot]
    w.at[ADMITTED] = j
    w.at[TURN] = (j + 1) % q.ts.shape[0]
    code = q.code[j, slot]
    if code < 0:
        return
    if q.head.shape[1]:
        bucket = _bucket(code, q.head.shape[1])
        q.link[j, slot] = -1
        if q.tail[j, bucket] < 0:
            q.head[j, bucket] = p
        else:
            q.link[j, q.tail[j, bucket] & (q.ts.shape[1] - 1)] = p
        q.tail[j, bucket] = p
        costs[UPDATES] += 1
    w.chosen[0] = p
    w.low[0] = q.ts[j, slot] - w.at[WINDOW]
    w.high[0] = q.ts[j, slot] + w.at[WINDOW]
    w.at[LEVEL] = 1
    _begin(q, w, 1, costs)


@part
def _walk(q: Any, w: Any, backward: bool, out: Array, costs: Array) -> bool:
    """Nested loops over the other streams, oldest first, from the one behind the admitted tuple's; whether it is done.

    What it finds goes into `out`, ordinals by stream; where that is full it stops, and goes on when called again.
    """
    n, mask = q.ts.shape[0], q.ts.shape[1] - 1
    new = w.at[ADMITTED]
    code = q.code[new, w.chosen[0] & mask]
    hashed = q.head.shape[1] > 0
    while w.at[LEVEL] > 0:
        if w.at[WRITTEN] == out.shape[0]:
            return False
        level = w.at[LEVEL]
        j = (new + level) % n
        p = w.cursor[level]
        if p < 0 or p >= q.place[j, NEXT]:
            w.at[LEVEL] = level - 1
            continue
        slot = p & mask
        w.cursor[level] = q.link[j, slot] if hashed else p + 1
        costs[COMPARISONS] += 1
        ts = q.ts[j, slot]
        if backward:
            costs[CHECKS] += 1
            if ts < w.low[level - 1]:
                continue
            if ts > w.high[level - 1]:
                w.cursor[level] = -1  # those behind it are no older
                continue
        if q.code[j, slot] != code:
            continue
        w.chosen[level] = p
        if level == n - 1:
            row = w.at[WRITTEN]
            for k in range(n):
                out[row, (new + k) % n] = w.chosen[k]
            w.at[WRITTEN] = row + 1
            continue
        w.low[level] = max(w.low[level - 1], ts - w.at[WINDOW])
        w.high[level] = min(w.high[level - 1], ts + w.at[WINDOW])
        w.at[LEVEL] = level + 1
        _begin(q, w, level + 1, costs)
    return True


@part
def _expire(q: Any, w: Any, costs: Array) -> None:
    """Let go of tuples that are older, by more than a window, than the newest of every other stream."""
    n = q.ts.shape[0]
    slowest, least, next_least = -1, LATEST, LATEST
    for i in range(n):
        costs[CHECKS] += 1
        done = q.place[i, ENDED] and q.place[i, NEXT] == q.place[i, END]
        newest = LATEST if done else q.place[i, NEWEST]
        if slowest < 0 or newest < least:
            next_least = least
            slowest, least = i, newest
        elif newest < next_least:
            next_least = newest
    for j in range(n):
        others = next_least if j == slowest else least
        while q.place[j, FIRST] < q.place[j, NEXT] and _head(q, j) < others - w.at[WINDOW]:
            _drop(q, j, costs)


@part
def _backward(q: Any, w: Any, costs: Array) -> int:
    """Admit the next tuple, of the stream whose turn it is, or of the next that has one."""
    n = q.ts.shape[0]
    _expire(q, w, costs)
    ended = True
    for k in range(n):
        j = (w.at[TURN] + k) % n
        if q.place[j, NEXT] < q.place[j, END]:
            _admit(q, w, j, costs)
            return ADVANCED
        ended = ended and q.place[j, ENDED] == 1
    return FINISHED if ended else NULL


@part
def _seek(q: Any, w: Any, costs: Array) -> int:
    """Mode 1: let go of what lies before the window of another stream's oldest; ADVANCED when a period is found.

    A stream that has shown nothing yet holds up the period, but not the others' search.
    """
    n = q.ts.shape[0]
    latest = EARLIEST
    for j in range(n):
        latest = max(latest, _head(q, j))
    changed = True
    while changed:
        changed = False
        for j in range(n):
            costs[CHECKS] += 1
            while q.place[j, FIRST] < q.place[j, END] and _head(q, j) < latest - w.at[WINDOW]:
                _drop(q, j, costs)
                costs[CHECKS] += 1
                if _head(q, j) > latest:
                    latest = _head(q, j)
                    changed = True
    least, ended = LATEST, True
    for j in range(n):
        least = min(least, _head(q, j))
        ended = ended and q.place[j, ENDED] == 1
    if latest == LATEST:  # a stream has ended: nothing more comes together
        return FINISHED if ended else NULL
    if least == EARLIEST:
        return NULL
    w.at[PERIOD_END] = least + w.at[WINDOW]
    w.at[MODE] = WITHIN
    return ADVANCED


@part
def _forward(q: Any, w: Any, costs: Array) -> int:
    """Mode 1 until a period is found; in Mode 2 admit the next tuple of it; when it is over drop its oldest tuple."""
    n = q.ts.shape[0]
    while True:
        if w.at[MODE] == SEEKING:
            found = _seek(q, w, costs)
            if found != ADVANCED:
                return found
        over = True
        for k in range(n):
            j = (w.at[TURN] + k) % n
            if q.place[j, NEXT] < q.place[j, END]:
                costs[CHECKS] += 1
                if q.ts[j, q.place[j, NEXT] & (q.ts.shape[1] - 1)] <= w.at[PERIOD_END]:
                    _admit(q, w, j, costs)
                    return ADVANCED
            elif q.place[j, ENDED] == 0:
                over = False
        if not over:
            return NULL
        oldest = 0
        for j in range(1, n):
            if _head(q, j) < _head(q, oldest):
                oldest = j
        _drop(q, oldest, costs)
        w.at[MODE] = SEEKING


@kernel
def turn(q: Any, w: Any, backward: bool, out: Array, costs: Array) -> int:
    """Go on where the last turn stopped, or take the next: ADVANCED (a tuple is done), FULL, NULL or FINISHED."""
    if w.at[LEVEL] == 0:
        came = _backward(q, w, costs) if backward else _forward(q, w, costs)
        if came != ADVANCED:
            return came
    return ADVANCED if _walk(q, w, backward, out, costs) else FULL


@kernel
def refill(old: Any, new: Any, costs: Array) -> None:
    """Put what the rings hold into larger ones, at the same positions."""
    here, there = old.ts.shape[1] - 1, new.ts.shape[1] - 1
    for j in range(old.ts.shape[0]):
        for p in range(old.place[j, FIRST], old.place[j, END]):
            new.ts[j, p & there] = old.ts[j, p & here]
            new.code[j, p & there] = old.code[j, p & here]
            new.link[j, p & there] = old.link[j, p & here]
            costs[MOVED] += 1
