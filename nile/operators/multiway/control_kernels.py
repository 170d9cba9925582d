"""Who comes in and how densely to sample among n streams, when the budget does not stretch to everyone.

Inputs are dropped only by key hash, in all streams alike: a share p of the keys keeps p of the combinations,
where a share p of the tuples would keep p ** n.  Under weighted by the rules of two streams (`level_kernels`).
Source: DESIGN section 3, items 3 to 5; not in the paper.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.multiway.state import State
from nile.preferences import state as js
from nile.preferences.arrival_kernels import since_of
from nile.preferences.level_kernels import effective_admission, look, set_level
from nile.summaries.kernels import part

Array = np.ndarray[Any, Any]
_MEMORY = 4  # looks that the mean grant reaches back


@part
def adjust_admission(st: State, waiting_entries: int, now: int) -> None:
    """Set the level that hashes of keys must be below, so that taking tuples in leaves budget for what they promise.

    now: ts of the newest arrival (weighted), of the newest tuple dealt with (desc, asc).
    """
    real = st.real
    idle = (
        waiting_entries == 0
        and st.whole[js.ACTIVE] == 0
        and real[js.CREDIT] > 4.0 * (real[js.ENTRANCE] + real[js.SLICE_COST])
    )
    if st.setting[js.PREFERENCE] == js.WEIGHTED:
        used = look(st, now)
        if real[js.TAKING_MEAN] > 0.0:
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
    w[js.CONTROLS] += 1
    recent = (real[js.GRANTED] - real[js.GRANTED_BEFORE]) / js.CONTROL_EVERY
    real[js.GRANTED_BEFORE] = real[js.GRANTED]
    real[js.PER_ARRIVAL] += (recent - real[js.PER_ARRIVAL]) / min(w[js.CONTROLS], _MEMORY)
    if w[js.ADMITTED] == 0:
        return
    per_tuple = real[js.SPENT_TAKING] / w[js.ADMITTED]
    least = 0.2 if st.setting[js.PREFERENCE] == js.DESC else 0.5
    if idle:
        real[js.SHARE] = min(1.0, 1.1 * real[js.SHARE])
    elif waiting_entries > 0 or w[js.ACTIVE] != 0:
        real[js.SHARE] = max(least, 0.95 * real[js.SHARE])
    target = min(1.0, real[js.SHARE] * real[js.PER_ARRIVAL] / per_tuple)
    admission = real[js.ADMISSION]
    if target < 0.95 * admission:
        real[js.ADMISSION] = target
    elif (target == 1.0 and admission < 1.0) or (
        target > 1.25 * admission and w[js.ADMISSION_SINCE] < since_of(now, st.window[0])
    ):
        real[js.ADMISSION_BEFORE] = effective_admission(st, now)
        w[js.ADMISSION_SINCE] = now
        real[js.ADMISSION] = target


@part
def cushion(st: State) -> float:
    """Credit that outputs leave alone, so that the next tuple can be taken in."""
    return st.real[js.ENTRANCE] + st.real[js.SLICE_COST]  # type: ignore[no-any-return]
