"""What the standing queries of one engine keep apart, and whose turn it is.

The streams, their stores and the clock are shared; a window, a preference, a fade, a queue and counts are a
query's own.  `state_of` gives the operator's state as one query sees it, so that every piece written for one
query serves many.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nile.preferences.heap_kernels import OWN, OWN_FIRST, WAITING, Heaps
from nile.preferences.state import State
from nile.summaries.kernels import inlined, part

Array = np.ndarray[Any, Any]

# `counts`, of each query
OF_REGIONS, OF_PRUNED, OF_EXPIRED, OF_OUTPUTS = 0, 1, 2, 3
COUNT_FIELDS = 4
# `real`, of each query: what it was charged (visits, probes; never insertion), shares of its window reached.
OF_SPENT, OF_COVERED = 0, 1
REAL_FIELDS = 2
# `turn`: the query to ask first, and the one whose turn is under way (NOBODY: none).
FIRST, UNDER_WAY = 0, 1
NOBODY = -1


class Standing(NamedTuple):
    """The q standing queries of an engine."""

    window: Array  # int64 [q, 1]: ns
    fades: Array  # float64 [q, granularities]
    setting: Array  # int64 [q, 10]: as in State; they differ in the preference
    counts: Array  # int64 [q, 4]
    real: Array  # float64 [q, 2]
    turn: Array  # int64 [2]


@inlined
def state_of(st: State, standing: Standing, query: int) -> State:
    """The operator's state with the window, the fades and the preference of one query."""
    return State(
        st.whole,
        st.real,
        standing.setting[query],
        st.prices,
        standing.fades[query],
        standing.window[query],
        st.seen,
        st.open,
        st.shed_at,
        st.heavy,
        st.left_admission,
        st.right_admission,
    )


@part
def take_turn(standing: Standing, heaps: Heaps) -> int:
    """The query that probes next; NOBODY when all queues are empty.

    In turn, of those with entries; under queue "own" of those with entries of the current arrival, and over those with
    entries that wait when none has any.  Asking again before `end_turn` or `time_out` names the same query.
    """
    n = heaps.control.shape[0]
    waiting = NOBODY
    for step in range(n):
        query = standing.turn[FIRST] + step
        if query >= n:
            query -= n
        if heaps.control[query, OWN] > 0 or (
            heaps.control[query, OWN_FIRST] == 0 and heaps.control[query, WAITING] > 0
        ):
            waiting = query
            break
        if waiting == NOBODY and heaps.control[query, WAITING] > 0:
            waiting = query
    standing.turn[UNDER_WAY] = waiting
    return int(waiting)


@inlined
def end_turn(standing: Standing) -> None:
    """The turn under way is over, if there is one: the query after it is asked first."""
    if standing.turn[UNDER_WAY] != NOBODY:
        after = standing.turn[UNDER_WAY] + 1
        standing.turn[FIRST] = after if after < standing.window.shape[0] else 0
        standing.turn[UNDER_WAY] = NOBODY


@part
def all_idle(heaps: Heaps) -> bool:
    """Whether no query has anything queued."""
    for query in range(heaps.control.shape[0]):
        if heaps.control[query, OWN] + heaps.control[query, WAITING] > 0:
            return False
    return True
