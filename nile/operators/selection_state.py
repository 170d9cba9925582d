"""What the kernels of standing selections read and write: plain arrays, so that a run can stop between arrivals."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from summaries.costs import PRICE_INDEX

Array = np.ndarray[Any, Any]

# `whole`.  PENDING: dispatches still due at this slice end; NEXT: the query whose turn it is; KNOWN: keys that
# have arrived; EVALUATED, SCANNED: predicates put to a key and to a tuple; READ, VISITED, UNDONE: regions.
ARRIVED, PENDING, NEXT, WRITTEN, SHED, KNOWN, OUTPUTS = 0, 1, 2, 3, 4, 5, 6
EVALUATED, SCANNED, READ, VISITED, UNDONE, ROUNDS, LOST = 7, 8, 9, 10, 11, 12, 13
WHOLE_FIELDS = 14

# `real`, in hundredths of the cost table's unit.  SPENT_SUMMARY: of it, what taking tuples in has cost; LEAST: the
# credit below which no dispatch begins.
CREDIT, GRANTED, SPENT, SPENT_SUMMARY, LEAST = 0, 1, 2, 3, 4
REAL_FIELDS = 5

# `setting`
ZONE, EVERY, PREFERENCE, BY_VALUE, WINDOW, SAMPLE = 0, 1, 2, 3, 4, 5
SETTING_FIELDS = 6
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

    whole: Array  # int64 [14]
    real: Array  # float64 [5]
    setting: Array  # int64 [6]
    prices: Array  # float64 [10]


class Selected(NamedTuple):
    """Outputs: which query, which tuple (ordinal), after how many arrivals."""

    query: Array  # int32 [room]
    ordinal: Array  # int64 [room]
    at: Array  # int64 [room]


class Standing(NamedTuple):
    """The stream and the predicates.  n tuples, q queries, k keys in order of first appearance."""

    ts: Array  # int64 [n] ns
    code: Array  # int32 [n], the tuple's key
    passes: Array  # uint8 [q, k]: whether a key satisfies a query's predicate
    matches: Array  # int64 [k + 1]: where a key's queries begin in `queries`
    queries: Array  # int32: for each key the queries that it satisfies, ascending


class ValueGrid(NamedTuple):
    """Value buckets x zones, and what each query knows of them.  b buckets, z zones, r = z * b regions."""

    bucket: Array  # int32 [k], the key's value bucket; order-preserving
    magnitude: Array  # float64 [k], |value|, 0 where a key is no finite number
    tuples: Array  # int64 [z, b]: how many tuples a cell has
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
