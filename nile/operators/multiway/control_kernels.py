"""Who comes in and how densely to sample among n streams, when the budget does not stretch to everyone.

Inputs are dropped only by key hash, in all streams alike: a share p of the keys keeps p of the combinations,
where a share p of the tuples would keep p ** n.  Under weighted by the rules of two streams (`level_kernels`).
Source: DESIGN section 3, items 3 to 5; not in the paper.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.common.arrival_kernels import since_of
from nile.operators.common.level_kernels import effective_door, look, set_level
from nile.operators.common.state import (
    ACTIVE,
    ADMITTED,
    CONTROL_EVERY,
    CONTROLS,
    CREDIT,
    DESC,
    DOOR,
    DOOR_BEFORE,
    DOOR_SINCE,
    ENTRANCE,
    GRANTED,
    GRANTED_BEFORE,
    PER_ARRIVAL,
    PREFERENCE,
    SHARE,
    SLICE_COST,
    SPENT_TAKING,
    TAKING_MEAN,
    WEIGHTED,
)
from nile.operators.multiway.state import State
from summaries.kernels import part

Array = np.ndarray[Any, Any]
_MEMORY = 4  # looks that the mean grant reaches back


@part
def adjust_door(st: State, waiting_entries: int, now: int) -> None:
    """Set the level that hashes of keys must be below, so that taking tuples in leaves budget for what they promise.

    now: ts of the newest arrival (weighted), of the newest tuple dealt with (desc, asc).
    """
    real = st.real
    idle = waiting_entries == 0 and st.whole[ACTIVE] == 0 and real[CREDIT] > 4.0 * (real[ENTRANCE] + real[SLICE_COST])
    if st.setting[PREFERENCE] == WEIGHTED:
        used = look(st, now)
        if real[TAKING_MEAN] > 0.0:
            set_level(st, idle or used < 1.0, waiting_entries, now)
    else:
        _follow_grant(st, idle, waiting_entries, now)


@part
def _follow_grant(st: State, idle: bool, waiting_entries: int, now: int) -> None:
    """desc, asc: a share of the mean grant admits; what it cannot admit is turned away at once.

    The share grows while work runs out and shrinks, down to a fifth under desc, while regions wait.  The level is
    raised only in clear steps: a raise makes lists incomplete for a window.
    """
    real = st.real
    w = st.whole
    w[CONTROLS] += 1
    recent = (real[GRANTED] - real[GRANTED_BEFORE]) / CONTROL_EVERY
    real[GRANTED_BEFORE] = real[GRANTED]
    real[PER_ARRIVAL] += (recent - real[PER_ARRIVAL]) / min(w[CONTROLS], _MEMORY)
    if w[ADMITTED] == 0:
        return
    per_tuple = real[SPENT_TAKING] / w[ADMITTED]
    least = 0.2 if st.setting[PREFERENCE] == DESC else 0.5
    if idle:
        real[SHARE] = min(1.0, 1.1 * real[SHARE])
    elif waiting_entries > 0 or w[ACTIVE] != 0:
        real[SHARE] = max(least, 0.95 * real[SHARE])
    target = min(1.0, real[SHARE] * real[PER_ARRIVAL] / per_tuple)
    door = real[DOOR]
    if target < 0.95 * door:
        real[DOOR] = target
    elif (target == 1.0 and door < 1.0) or (target > 1.25 * door and w[DOOR_SINCE] < since_of(now, st.window[0])):
        real[DOOR_BEFORE] = effective_door(st, now)
        w[DOOR_SINCE] = now
        real[DOOR] = target


@part
def cushion(st: State) -> float:
    """Credit that outputs leave alone, so that the next tuple can be taken in."""
    return st.real[ENTRANCE] + st.real[SLICE_COST]  # type: ignore[no-any-return]
