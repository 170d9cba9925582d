"""Who comes in and how densely to sample among n streams, when the budget does not stretch to everyone.

Inputs are dropped only by key hash, in all streams alike: a share p of the keys keeps p of the combinations,
where a share p of the tuples would keep p ** n.  The rules are those of two streams (`control_kernels`).
Source: DESIGN section 3, items 3 to 5; not in the paper.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.common_kernels import since_of
from nile.operators.multiway_common_kernels import output_price
from nile.operators.multiway_state import State
from nile.operators.state import (
    ACTIVE,
    ADMITTED,
    BACKLOG,
    CONTROL_EVERY,
    CONTROLS,
    CREDIT,
    DESC,
    DOOR,
    DOOR_BEFORE,
    DOOR_SINCE,
    ENTRANCE,
    FRACTION,
    GRANTED,
    GRANTED_BEFORE,
    MATCHES,
    PER_ARRIVAL,
    PREFERENCE,
    RATE,
    SHARE,
    SLICE_COST,
    SPENT_TAKING,
    WEIGHTED,
)
from summaries.kernels import part

Array = np.ndarray[Any, Any]
_HORIZON = 512.0
_WARM_UP = 64
_AHEAD = 64.0  # arrivals
_MEMORY = 4  # looks that the mean grant reaches back


@part
def effective_door(st: State, ts: int) -> float:
    """Keys below this level came in during the whole window that ends at `ts`, so their lists are complete."""
    door = st.real[DOOR]
    if since_of(ts, st.window[0]) <= st.whole[DOOR_SINCE]:
        return min(door, st.real[DOOR_BEFORE])  # type: ignore[no-any-return]
    return door  # type: ignore[no-any-return]


@part
def adjust_door(st: State, waiting_entries: int, now: int) -> None:
    """Set the admission level so that taking tuples in leaves budget for what they promise.

    The share of the grant that admission may use grows while work runs out and shrinks, down to a fifth
    under desc, while regions wait.  Raised only in clear steps: a raise makes lists incomplete for a window.
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
    idle = waiting_entries == 0 and w[ACTIVE] == 0 and real[CREDIT] > 4.0 * (real[ENTRANCE] + real[SLICE_COST])
    least = 0.2 if st.setting[PREFERENCE] == DESC else 0.5
    if st.setting[PREFERENCE] == WEIGHTED:
        if real[RATE] >= 0.999 and idle:
            real[SHARE] = min(1.0, 1.1 * real[SHARE])
        elif real[RATE] < 0.3:
            real[SHARE] = max(least, 0.97 * real[SHARE])
    elif idle:
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
    """Credit that outputs leave alone, so that the next tuples can be taken in.

    Under weighted enough for a run of cheap arrivals, which grant little: a tuple that is refused for want of
    credit is a bias that no weight can mend.
    """
    ahead = _AHEAD if st.setting[PREFERENCE] == WEIGHTED else 1.0
    return ahead * st.real[ENTRANCE] + st.real[SLICE_COST]  # type: ignore[no-any-return]


@part
def sampling_rate(st: State) -> float:
    """p: which share of the combinations found from now on can be paid for.

    What the coming `_HORIZON` arrivals will be granted, and the credit in hand, less what taking tuples in
    will cost and what is already promised, per combination to come.  Slow on purpose: p that jumps adds variance.
    """
    real = st.real
    w = st.whole
    if w[CONTROLS] == 0 or w[ADMITTED] < _WARM_UP or real[MATCHES] <= 0.0:
        return min(1.0, real[FRACTION])  # type: ignore[no-any-return]
    price = output_price(st)
    entering = real[DOOR] * real[SPENT_TAKING] / w[ADMITTED]
    spare = real[CREDIT] - 2.0 * cushion(st) - price * real[BACKLOG]
    free = _HORIZON * (real[PER_ARRIVAL] - entering) + spare
    wanted = _HORIZON * real[DOOR] * real[MATCHES] * price
    return min(1.0, max(1e-4, free / wanted))  # type: ignore[no-any-return]
