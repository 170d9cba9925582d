"""What the kernels of a join of n streams read and write.

Design.  All streams live in one tuple store: tuples in total order, keyed by (key, stream), so that an ordinal of
the store is an arrival, and one grid holds every stream's counts.  Nothing in the kernels' types depends on the
number of streams, so they compile once, and not once for each n.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

# What a kernel returns: why it stopped.
DONE, OUTPUT_FULL, ARENA_FULL, TURN, QUEUE_FULL, SETTLE = 0, 1, 2, 3, 4, 5

# `whole`: positions in the merged input, the entry in progress, counters.
ARRIVED, APPLIED, STOPPED_CODE, ACTIVE, ENTRY, ENTRY_TIME, ENTRY_TOTAL = 0, 1, 2, 3, 4, 5, 6
WRITTEN, OUTPUTS, NULLS, ADMITTED, REGIONS, PRUNED, EXPIRED, EVICTED = 7, 8, 9, 10, 11, 12, 13, 14
TURN_WANTED, ADDS_PAID, DOOR_SINCE, NOW_TS, CONTROLS, DUE, CANDIDATES = 15, 16, 17, 18, 19, 20, 21
WHOLE_FIELDS = 22
UNRESOLVED, RESOLVED = 1, 2
"""ACTIVE: 0 no entry in progress; 1 its bounds are arrivals, not looked up yet; 2 its bounds are ranks."""

# `real`: the clock, the door, the sampler, the entry in progress.
CREDIT, GRANTED, SPENT, SPENT_INSERT, SPENT_HIT, SPENT_TAKING = 0, 1, 2, 3, 4, 5
ENTRANCE, SLICE_COST, TURN_COST, DOOR, DOOR_BEFORE, SHARE = 6, 7, 8, 9, 10, 11
FRACTION, GAP, RATE, MATCHES, BACKLOG = 12, 13, 14, 15, 16
ENTRY_GAP, ENTRY_STEP, ENTRY_WEIGHT, COVERED = 17, 18, 19, 20
SAVED, PER_ARRIVAL, GRANTED_BEFORE = 21, 22, 23
REAL_FIELDS = 24

# `setting`: what the plan says, as integers.
GUIDE, PREFERENCE, RANGES, CAP, REPLAYED, WAITING, BLIND, SALT, OUTLIERS_ONLY, CONDITIONED, SETTLES = range(11)
SETTING_FIELDS = 11
COUNTSKETCH, DIRECTORY = 0, 1
DESC, WEIGHTED, ASC = 0, 1, 2

# Prices, in the order of `summaries.costs.CostTable`.
P_INSERT, P_UPDATE, P_ESTIMATE, P_SCAN, P_EMIT, P_LOOKUP, P_PUSH, P_POP, P_HEAP, P_ADD = range(10)

CONTROL_EVERY = 256
"""Arrivals between two looks of the admission control."""

SETTLE_EVERY, SETTLE_SURELY, SETTLE_WORTH = 64, 512, 256
"""Candidates are settled at arrivals of fixed number, so that batches do not matter: at every 512th, and at every 64th
when 256 or more wait, since looking at a batch has a cost of its own.  An exact join settles full batches."""

FOREVER = (1 << 63) - 1
"""The window of a query without one."""


class Arrivals(NamedTuple):
    """The merged input: N tuples in total order, k distinct keys."""

    stream: Array  # int8 [N]: the place of the tuple's stream in the statement
    key: Array  # int32 [N], -1 null
    ts: Array  # int64 [N], ns
    hash: Array  # uint64 [k]: the hash of each key


class State(NamedTuple):
    """Everything the operator remembers between two kernel calls, besides its store and its queue."""

    whole: Array  # int64 [22]
    real: Array  # float64 [24]
    setting: Array  # int64 [11]
    prices: Array  # float64 [10]
    fades: Array  # float64 [granularities]
    window: Array  # int64 [1]: ns
    shed: Array  # int64 [n]: tuples of each stream turned away
    shed_at: Array  # int64 [keys]: ts at which a tuple of that key was last turned away (asc)
    doors: Array  # float64 [N]: the door when each tuple came in (weighted; 0: it did not), else length 0
    entry: Array  # int64 [n, 2]: the bounds of the entry in progress, a row a stream; its own row is unused
    cut: Array  # int64 [m + 1, n]: work space, where each granularity begins; row 0 is the end of the newest
    expected: Array  # float64 [m, n]: work space, tuples of the key that a stream holds in a granularity
    bound: Array  # float64 [m, n]: work space, the same from above


class Output(NamedTuple):
    """Room for o outputs.

    cell of a combination: the arrival of each stream's member [o, n]; of a range record: the probing arrival,
    then first rank and last rank + 1 in each stream's list of the key (its own: 0, 0) [o, 1 + 2n].
    """

    cell: Array  # int64
    weight: Array  # float64 [o]
