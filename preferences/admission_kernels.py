"""Who comes in and how densely to sample, when the budget does not stretch to everyone.

Inputs are dropped only by key, in both streams alike: half the keys keep half of the pairs, where half of the
tuples would keep a quarter.  Under weighted and asc admission is a level of key hashes, which weights can undo.
Under desc, and asc within short windows, it picks, by the rules of `slot_kernels`.
Source: DESIGN section 3, items 3 to 5; not in the paper.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.preferences import state as js
from nile.preferences.level_kernels import effective_admission, look, set_level
from nile.preferences.queue_kernels import CLASSES
from nile.preferences.slot_kernels import is_choice_due, open_below, open_slots, picks_slots, would_pick
from nile.preferences.state import State
from nile.summaries.kernels import part

Array = np.ndarray[Any, Any]


@part
def adjust_admission(st: State, waiting_entries: int, arrived: int) -> None:
    """Set who comes in, so that taking tuples in leaves budget for what they promise.

    arrived: ts of the newest arrival, which may be ahead of the newest tuple taken in.
    """
    real = st.real
    w = st.whole
    w[js.CUT] = w[js.LEAST_POPPED]
    w[js.LEAST_POPPED] = CLASSES
    used = look(st, arrived)
    if real[js.TAKING_MEAN] <= 0.0:
        return
    idle = (
        waiting_entries == 0 and w[js.ACTIVE] == 0 and real[js.CREDIT] > 4.0 * (real[js.ENTRANCE] + real[js.SLICE_COST])
    )
    if not picks_slots(st) and would_pick(st):
        open_below(effective_admission(st, w[js.NOW_TS]), st)
    if picks_slots(st):
        open_slots(st, idle, used)
    else:
        set_level(st, idle or used < 1.0, waiting_entries, arrived)


@part
def cushion(st: State) -> float:
    """Credit that outputs leave alone, so that the next tuple can be taken in and slots can be chosen."""
    held = st.real[js.ENTRANCE] + st.real[js.SLICE_COST]
    if picks_slots(st) and is_choice_due(st):
        held += st.real[js.CHOICE] - st.real[js.CHOICE_SAVED]
    return held  # type: ignore[no-any-return]
