"""What the kernels of a join of n streams read and write.

Design.  All streams live in one tuple store: tuples in total order, keyed by (key, stream), so that an ordinal of
the store is an arrival, and one grid holds every stream's counts.  What a kernel asks of an arrival, the store says.
Nothing in the kernels' types depends on the number of streams, so they compile once, and not once for each n.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nile.preferences import state

Array = np.ndarray[Any, Any]

SETTLE = 5
"""What a kernel returns beside the reasons of `state`: candidates wait for their condition to be looked at."""

# Fields beside those of `state`, whose places are the same here: the pieces that both joins run are one code.
ENTRY_TOTAL, DUE, CANDIDATES = range(state.WHOLE_FIELDS, state.WHOLE_FIELDS + 3)
WHOLE_FIELDS = state.WHOLE_FIELDS + 3
CONDITIONED, SETTLES = range(state.SETTING_FIELDS, state.SETTING_FIELDS + 2)
SETTING_FIELDS = state.SETTING_FIELDS + 2

# `draws`: where the next tick lies, ahead of what has been passed, and within its unit; outputs expected of what has
# been passed; ticks passed; outputs drawn.
AHEAD, WITHIN, EXPECTED, TICKS, DRAWN = range(5)

SETTLE_EVERY, SETTLE_SURELY, SETTLE_WORTH = 64, 512, 256
"""Candidates are settled at arrivals of fixed number, so that batches do not matter: at every 512th, and at every 64th
when 256 or more wait, since looking at a batch has a cost of its own.  An exact join settles full batches."""


class State(NamedTuple):
    """Everything the operator remembers between two kernel calls, besides its store and its queue."""

    whole: Array  # int64 [48]
    real: Array  # float64 [39]
    setting: Array  # int64 [12]
    prices: Array  # float64 [10]
    fades: Array  # float64 [granularities]
    window: Array  # int64 [1]: ns
    shed: Array  # int64 [n]: tuples of each stream turned away
    shed_at: Array  # int64 [keys]: ts at which a tuple of that key was last turned away (asc)
    # float64, from arrival ADMISSIONS_GONE on: admission when each came in (weighted; 0: it did not), else length 0
    admissions: Array
    coins: Array  # float64, the same: the probability of each by its own coin, where rates follow; else length 0
    draws: Array  # float64 [5]: the place in the sample, where rates follow
    # float64 [3]: level of key hashes, probability of a tuple, rate of combinations, where all of the input is known
    planned: Array
    entry: Array  # int64 [n, 2]: the bounds of the entry in progress, a row per stream; its own row is unused
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
