"""The running state of one join operator, as arrays that kernels read and write."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

Array = np.ndarray[Any, Any]

# What a kernel returns: why it stopped.
DONE, OUTPUT_FULL, ARENA_FULL, TURN, QUEUE_FULL = 0, 1, 2, 3, 4

# `whole`: positions in the merged input, the entry in progress, counters.  Pairs of places are by side.
ARRIVED, APPLIED, SEQUENCE, STOPPED_SIDE, STOPPED_CODE = 0, 1, 2, 4, 5
ACTIVE, ENTRY_SIDE, ENTRY_ORDINAL, ENTRY_LOW, ENTRY_HIGH = 6, 7, 8, 9, 10
WRITTEN, OUTPUTS, SHED, FORCED, NULLS, ADMITTED = 11, 12, 13, 14, 15, 16
REGIONS, PRUNED, PLACED, EXPIRED, EVICTED = 17, 18, 19, 20, 21
TURN_WANTED, ADDS_PAID, ADMISSION_SINCE, NOW_TS, CONTROLS = 22, 24, 26, 27, 28
SHED_BY_SIDE, ENTRY_TIME, ARRIVED_BEFORE, BEGAN = 29, 31, 32, 33
ADMITTED_BEFORE, SAMPLED, CUT, LEAST_POPPED, IN_WINDOW = 35, 36, 37, 38, 39
ARRIVED_BY_SIDE, CHOSEN, OPENED, LOOKED = 40, 42, 43, 44
ARRIVALS_GONE, ADMISSIONS_GONE = 34, 45
WHOLE_FIELDS = 47
"""ARRIVALS_GONE: the arrival that stands first in `order` and `grant`; ADMISSIONS_GONE: of left and right, the ordinal
that stands first in `left_admission` and `right_admission`.  0 but where the past is let go of (`live_join`)."""
UNRESOLVED, RESOLVED = 1, 2
"""ACTIVE: 0 no entry in progress; 1 its bounds are ordinals, not looked up yet; 2 its bounds are ranks."""

# `real`: the clock, admission, the sampler, the entry in progress.
CREDIT, GRANTED, SPENT, SPENT_INSERT, SPENT_HIT, SPENT_TAKING = 0, 1, 2, 3, 4, 5
ENTRANCE, SLICE_COST, TURN_COST, ADMISSION, ADMISSION_BEFORE, SHARE = 6, 7, 8, 9, 10, 11
FRACTION, GAP, RATE, MATCHES, BACKLOG = 12, 13, 14, 15, 16
ENTRY_GAP, ENTRY_STEP, ENTRY_WEIGHT, COVERED = 17, 18, 19, 20
SAVED, PER_ARRIVAL, GRANTED_BEFORE, BOUNDS = 21, 22, 23, 24
FOUND, FOUND_MEAN, SERVED_MEAN, TAKING_MEAN, TAKEN_BEFORE, CHOICE, CHOSEN_AT, ALLOWANCE, SPENT_BEFORE = (
    25,
    26,
    27,
    28,
    29,
    30,
    31,
    32,
    33,
)
SERVED, WANTED, CHOICE_SAVED, LOOK_TIME, FIRST_GRANT = 34, 35, 36, 37, 38
REAL_FIELDS = 39
HEAVY_MEAN = MATCHES
"""Of asc: the share of the tuples weighed of late whose key was too frequent."""
YOUNG, YOUNG_TUPLES = GAP, MATCHES
"""Of desc under a fade factor, of late: outputs expected in the first granularity, and of how many tuples."""
KEYED, BEGUN, MET_ONCE, MET_TWICE, MET_THRICE = FOUND, SERVED, FOUND_MEAN, SERVED_MEAN, TAKING_MEAN
"""Of a sample whose rates follow grants, which finds no regions: arrivals that have a key; those whose key no
arrival of the window before them had; sums of m, m (m - 1) and m (m - 1) (m - 2) over the matches m of arrivals."""

# `setting`: what the plan says, as integers.
GUIDE, PREFERENCE, RANGES, CAP, REPLAYED, WAITING, BLIND, SALT, OUTLIERS_ONLY = 0, 1, 2, 3, 4, 5, 6, 7, 8
SHARED = 9
"""Whether the stores are kept by others: the operator probes them, and inserts and summarises nothing."""
SETTING_FIELDS = 10
COUNTSKETCH, DIRECTORY, SHARED_GRID = 0, 1, 2
"""SHARED_GRID: sketches guide, of grids that have counted both streams whole and that others keep."""
DESC, WEIGHTED, ASC = 0, 1, 2

# Prices, in the order of `nile.summaries.costs.CostTable`.
P_INSERT, P_UPDATE, P_ESTIMATE, P_SCAN, P_EMIT, P_LOOKUP, P_PUSH, P_POP, P_HEAP, P_ADD = range(10)

CONTROL_EVERY = 256
"""Arrivals between two looks of the admission control."""

SHOWN = 0.125
"""Of the tuples that come in, the share that the change detector of an operator's own summary is shown: it compares two
distributions of keys, and a sample of either is one of those."""
LEAST_SHOWN = 64
"""Tuples that the detector has been shown since it looked last, below which it does not look."""

FOREVER = (1 << 63) - 1
"""The window of a query without one."""


HEAVY_KEYS = 256
"""Keys that asc notes as too frequent: 4 KB, which stay in the nearest cache."""

SLOTS = 64
"""Parts of the key space that admission of `desc` opens or shuts: a bit each, as cheap to ask as a level."""


class Clocked(Protocol):
    """What the states of joins of two streams and of several have alike."""

    @property
    def whole(self) -> Array:
        """int64"""

    @property
    def real(self) -> Array:
        """float64"""

    @property
    def setting(self) -> Array:
        """int64"""

    @property
    def prices(self) -> Array:
        """float64 [10]"""

    @property
    def window(self) -> Array:
        """int64 [1]: ns"""


class State(NamedTuple):
    """Everything an operator remembers between two kernel calls, besides its stores and its queue."""

    whole: Array  # int64 [47]
    real: Array  # float64 [39]
    setting: Array  # int64 [10]
    prices: Array  # float64 [10]
    fades: Array  # float64 [granularities]
    window: Array  # int64 [1]: ns
    seen: Array  # float64 [6, 64]: sampled tuples of each slot (desc): of left and right since the last choice, of
    # late, and over a window
    open: Array  # uint8 [64]: whether tuples of a slot are let in (desc)
    shed_at: (
        Array  # int64 [keys]: ts at which a tuple of that key was last turned away (asc), or last arrived (followed)
    )
    heavy: Array  # int64 [256, 2]: the hash of a key, and since when it has had more tuples than an outlier's (asc by
    # lists of its own; [0, 2] elsewhere)
    left_admission: (
        Array  # float64 [left tuples]: admission when each came in (weighted, shared; 0: it did not), or none
    )
    right_admission: Array  # float64 [right tuples]


class Output(NamedTuple):
    """Room for o outputs.  Pairs: left and right ordinal.  Ranges: 2 * ordinal + side, first rank, last rank + 1."""

    first: Array  # int64 [o]
    second: Array  # int64 [o]
    third: Array  # int64 [o]; ranges only
    weight: Array  # float64 [o]
