"""What the kernels of standing selections read and write: plain arrays, so that a run can stop between arrivals."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nile.summaries.costs import PRICE_INDEX

Array = np.ndarray[Any, Any]

# `whole`.  ARRIVED, APPLIED: tuples that have come, and of them those that are dealt with (the rest wait); PENDING:
# dispatches still due at this slice end; NEXT: the query whose turn it is; KNOWN: keys that have been taken in;
# EVALUATED, SCANNED: predicates put to a key and to a tuple; READ, VISITED, UNDONE: regions.
ARRIVED, PENDING, NEXT, WRITTEN, SHED, KNOWN, OUTPUTS = 0, 1, 2, 3, 4, 5, 6
EVALUATED, SCANNED, READ, VISITED, UNDONE, ROUNDS, LOST, APPLIED = 7, 8, 9, 10, 11, 12, 13, 14
# of `paper`: the open zone, where it began, and the change detector's tuples in the last slice and before it.
ZONE_NOW, ZONE_BEGAN, SLICE_COUNT, REFERENCE, CHANGES = 15, 16, 17, 18, 19
# of `nile`: the entry in progress (ACTIVE, which tuple, how far), tuples turned away at admission; the open zone: its
# tuples, when it began (arrivals), how long the one before was; TOP: places used; LEFT: regions left undone;
# FLUSHING: the zone is to be reported; RECORDS: ranges given; DOORED: admission asks; FITTING: it is to be decided on
# anew; EXPLORE_AT, EXPLORE_GAP: the slice to explore next, and slices from there to the one after.
ACTIVE, ENTRY, ENTRY_AT, TURNED, HELD, HELD_FROM, LAST_ZONE, TOP = 20, 21, 22, 23, 24, 25, 26, 27
LEFT, FLUSHING, RECORDS, DOORED, FITTING, EXPLORE_AT, EXPLORE_GAP = 28, 29, 30, 31, 32, 33, 34
WHOLE_FIELDS = 35

# `real`, in hundredths of the cost table's unit.  SPENT_SUMMARY: of it, what taking tuples in has cost; LEAST: the
# credit below which no dispatch begins.  OWED: what giving the open zone tuple by tuple would cost; ZONE_GRANT:
# credit at its begin and grants since; ADMISSION: the price of asking at admission; GRANTED_BEFORE, ARRIVED_BEFORE:
# when admission was last decided on; HITS, TRIES: of edge scans.
CREDIT, GRANTED, SPENT, SPENT_SUMMARY, LEAST = 0, 1, 2, 3, 4
OWED, ZONE_GRANT, ADMISSION, GRANTED_BEFORE, ARRIVED_BEFORE, HITS, TRIES = 5, 6, 7, 8, 9, 10, 11
REAL_FIELDS = 12

# `setting`.  STRUCTURE: 1 to 4 for T1 to T4; HOW: which confidence; REPLAYED, WAITING: pacing; LEARNED: predicates
# that have to be put to every new key; RANGES: outputs are runs; PLAIN: emit on arrival; EXACT: 1 without a
# budget, 2 where it buys everything; REFIT: least slices between two decisions on admission.
ZONE, EVERY, PREFERENCE, BY_VALUE, WINDOW, SAMPLE, STRUCTURE, HOW = 0, 1, 2, 3, 4, 5, 6, 7
REPLAYED, WAITING, LEARNED, RANGES, PLAIN, EXACT, REFIT = 8, 9, 10, 11, 12, 13, 14
SETTING_FIELDS = 15
DESC, WEIGHTED, ASC = 0, 1, 2
FOREVER = (1 << 63) - 1

P_INSERT = PRICE_INDEX["insert"]
P_UPDATE = PRICE_INDEX["update"]
P_ESTIMATE = PRICE_INDEX["estimate"]
P_SCAN = PRICE_INDEX["scan"]
P_EMIT = PRICE_INDEX["emit"]
P_LOOKUP = PRICE_INDEX["lookup"]
P_PUSH = PRICE_INDEX["push"]
P_HEAP_POP = PRICE_INDEX["heap_pop"]
P_ADD = PRICE_INDEX["add"]


class Progress(NamedTuple):
    """Where a run is.  prices: float64 [10], hundredths, in the order of the cost table."""

    whole: Array  # int64 [35]
    real: Array  # float64 [12]
    setting: Array  # int64 [15]
    prices: Array  # float64 [10]


class Selected(NamedTuple):
    """Outputs: which query, which tuple (ordinal), after how many arrivals.

    A range record has in `last` the place after its last, and in `ordinal` its first place in `Places.order`; a
    record of one tuple has `last` -1.
    """

    query: Array  # int32 [room]
    ordinal: Array  # int64 [room]
    last: Array  # int64 [room], or length 0 where no record is a range
    at: Array  # int64 [room]


class Standing(NamedTuple):
    """The stream and the predicates.  n tuples, q queries, k keys in order of first appearance, c cells."""

    ts: Array  # int64 [n] ns
    code: Array  # int32 [n], the tuple's key
    says: Array  # uint8 [q, k]: NONE, FULL or EDGE (see predicate_index)
    verdict: Array  # uint8 [m, n]: whether a tuple satisfies a predicate that has conditions over other columns
    verdict_row: Array  # int32 [q]: a predicate's row there, -1 without
    seen: Array  # uint8 [k]: whether the index has met the key
    cell: Array  # int32 [k], the key's cell
    full_from: Array  # int64 [c + 1]
    full: Array  # int32: the queries that a cell satisfies
    edge_from: Array  # int64 [c + 1]
    edge: Array  # int32: the queries that a cell leaves open
    ruled_out: Array  # uint8 [n]: whether a shared summary tells that no query is satisfied; length 0 without


class ValueGrid(NamedTuple):
    """Value buckets x zones, and what each query knows of them.  b buckets, z zones, r = z * b regions."""

    bucket: Array  # int32 [k], the key's value bucket; order-preserving
    magnitude: Array  # float64 [k], |value|, 0 where a key is no finite number
    zone_end: Array  # int64 [z]: where a zone ends, in ordinals; of the open one, where it ended last time
    tuples: Array  # int64 [z, b]: how many tuples per cell has
    head: Array  # int64 [z, b]: its first tuple, -1 for none
    tail: Array  # int64 [z, b]: its last tuple
    after: Array  # int64 [n]: the next tuple of the same cell
    evaluated: Array  # int64 [q]: keys a query has evaluated
    known: Array  # int64 [q, b]: of them, keys of a bucket
    passing: Array  # int64 [q, b]: of them, keys that satisfy the predicate
    weight: Array  # float64 [q, b]: the sum of |value| of those
    resume_zone: Array  # int64 [q]: the zone that was open at t_start
    resume_count: Array  # int64 [q, b]: tuples its cells had at t_start
    resume_tail: Array  # int64 [q, b]: the last of them, -1 for none
    priority: Array  # float64 [r], the regions of the round in progress
    share: Array  # float64 [r]
    size: Array  # int64 [r]
    first: Array  # int64 [r]


class Detector(NamedTuple):
    """The change detector of T4 (nile.pyramid.grid.change_kernels): 3 rows of `columns` signed counters; else empty."""

    hashes: Array  # uint64 [k], the hash of each key
    reference: Array  # int32 [3, columns]: the open zone up to the last slice end
    recent: Array  # int32 [3, 2 * columns]: tuples since then
    multipliers: Array  # uint64 [3]
    moments: Array  # int64 [3, 3]
    threshold: Array  # float64 [1]


class Admission(NamedTuple):
    """What admission by promise knows.  c cells, i elementary intervals in the order of values."""

    intervals_from: Array  # int64 [c + 1]
    intervals: Array  # int32: the intervals of each cell
    inside: Array  # uint8 [i + 2], scratch
    wanted: Array  # uint8 [c]: whether are admitted a cell
    counts: Array  # float64 [c]: tuples counted while exploring, decayed
    weight: Array  # float64 [c]: the sum of |value| of those
    order: Array  # int64 [c]: cells, most satisfied queries first
    magnitude: Array  # float64 [k]


class Places(NamedTuple):
    """`ranges`: the tuples of closed zones in the order of cells, so that a query's cells are one run of places."""

    held: Array  # int64 [n]: tuples of the open zone, in the order they were taken in
    order: Array  # int64 [n]: tuples of closed zones; `Selected` gives places in it
    counts: Array  # int64 [c]: tuples of the open zone in each cell
    begin: Array  # int64 [c + 1]: where a cell of the zone being reported begins in `order`
    weight: Array  # float64 [c + 1]: the sum of |value| of all cells before
    run_from: Array  # int64 [q + 1]
    runs: Array  # int32 [r, 2]: first cell, last cell + 1 of a run of full cells
    region: Array  # int64 [r, 3]: query, first place, last place + 1
    promise: Array  # float64 [r]
    left: Array  # int64 [l, 4]: a region left undone, and the time of its zone's first tuple
