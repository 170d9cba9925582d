"""The level of key hashes under which a sample of keys comes in, and how densely its outputs are sampled.

What joins of two streams (`control_kernels`) and of several (`multiway_control_kernels`) share: under weighted the mean
of the weights must be right, however little the budget is.  So a tuple below the level is never refused while credit
will come: it waits; what is promised is paid before more tuples come in; and p keeps a reserve.
Source: DESIGN section 3, item 4; not in the paper.
"""

from __future__ import annotations

import numpy as np

from nile.operators.common.arrival_kernels import since_of
from nile.operators.common.slot_kernels import HORIZON
from nile.operators.common.state import (
    ACTIVE,
    ADMITTED,
    ADMITTED_BEFORE,
    ALLOWANCE,
    APPLIED,
    ARRIVED,
    ARRIVED_BEFORE,
    BACKLOG,
    BEGAN,
    CONTROLS,
    CREDIT,
    DESC,
    DOOR,
    DOOR_BEFORE,
    DOOR_SINCE,
    ENTRANCE,
    FIRST_GRANT,
    FOREVER,
    FRACTION,
    GRANTED,
    GRANTED_BEFORE,
    IN_WINDOW,
    LOOK_TIME,
    LOOKED,
    MATCHES,
    NOW_TS,
    PER_ARRIVAL,
    PREFERENCE,
    RANGES,
    RATE,
    REPLAYED,
    SHARE,
    SHARED,
    SPENT,
    SPENT_BEFORE,
    SPENT_TAKING,
    TAKEN_BEFORE,
    TAKING_MEAN,
    WAITING,
    WEIGHTED,
    Clocked,
)
from summaries.kernels import part

_CLEARING = 4096.0  # arrivals over which a lag is made good
_WARM_UP = 64
_LEAST_RATE = 1e-3
_SAVED_ENTRANCES = 4.0
_RESERVE, _RESERVE_SHARE = 64.0, 0.2  # entrances, and of the tuples in a window
_SAVED_MOST = 0.5  # of what outputs would get
_DEEP_CLEARING = 2048.0
_EARLY = 0.0625  # of the first window, in which the grant to come cannot be told
_PROMISED = 4.0  # how much more a promised output counts than one to come: few may be left when the input ends
_MEMORY = 4  # looks that a mean reaches back
_LOOKS = 16  # looks that the pace is a mean of
_USED_UP = 0.9


@part
def effective_door(st: Clocked, ts: int) -> float:
    """Keys below this level came in during the whole window that ends at `ts`, so their lists are complete."""
    door = st.real[DOOR]
    if since_of(ts, st.window[0]) <= st.whole[DOOR_SINCE]:
        return min(door, st.real[DOOR_BEFORE])  # type: ignore[no-any-return]
    return door  # type: ignore[no-any-return]


@part
def look(st: Clocked, arrived: int) -> float:
    """Learn, every `CONTROL_EVERY` arrivals, what is granted an arrival and what taking a tuple in costs.

    arrived: ts of the newest arrival, which may be ahead of the newest tuple taken in.  Returns how much of the grant
    found work, under a replay; 1 and more: all of it.
    """
    real = st.real
    w = st.whole
    w[CONTROLS] += 1
    if w[CONTROLS] == 1:
        w[BEGAN] = arrived
        real[FIRST_GRANT] = real[GRANTED] / w[ARRIVED]
    else:
        real[LOOK_TIME] += (np.float64(arrived - w[LOOKED]) - real[LOOK_TIME]) / min(w[CONTROLS] - 1, _LOOKS)
    w[LOOKED] = arrived
    if w[IN_WINDOW] == 0 and since_of(arrived, st.window[0]) > w[BEGAN]:
        w[IN_WINDOW] = w[ARRIVED]
    used = 1.0
    arrivals = w[ARRIVED] - w[ARRIVED_BEFORE]
    w[ARRIVED_BEFORE] = w[ARRIVED]
    if arrivals > 0:
        granted = real[GRANTED] - real[GRANTED_BEFORE]
        recent = granted / arrivals
        if st.setting[REPLAYED]:  # what is granted and finds no work is gone
            used = (real[SPENT] - real[SPENT_BEFORE]) / max(1.0, _USED_UP * granted)
        real[SPENT_BEFORE] = real[SPENT]
        real[GRANTED_BEFORE] = real[GRANTED]
        real[PER_ARRIVAL] += (recent - real[PER_ARRIVAL]) / min(w[CONTROLS], _MEMORY)
    admitted = w[ADMITTED] - w[ADMITTED_BEFORE]
    if admitted > 0:
        recent = (real[SPENT_TAKING] - real[TAKEN_BEFORE]) / admitted
        real[TAKING_MEAN] += (recent - real[TAKING_MEAN]) / min(w[CONTROLS], _MEMORY)
        w[ADMITTED_BEFORE] = w[ADMITTED]
        real[TAKEN_BEFORE] = real[SPENT_TAKING]
    return used


@part
def set_level(st: Clocked, idle: bool, waiting_entries: int, arrived: int) -> None:
    """weighted, asc, desc over shared streams: set the level that hashes of keys must be below.

    It stays up while tuples can wait for credit: a whole first window, as long as there is room for them, and
    later a quarter of a window.  Raised only in clear steps: a raise makes lists incomplete for a window.
    Under weighted, where what still waits when the input ends is a bias, tuples do not wait for credit that
    will not come.
    """
    real = st.real
    w = st.whole
    lag = w[ARRIVED] - w[APPLIED]
    if idle and (st.setting[PREFERENCE] != WEIGHTED or real[RATE] >= 0.999):
        real[SHARE] = min(1.0, 1.1 * real[SHARE])
    elif waiting_entries > 0 or w[ACTIVE] != 0:
        least = 0.2 if st.setting[PREFERENCE] == DESC else 0.8 if st.setting[PREFERENCE] == WEIGHTED else 0.5
        real[SHARE] = max(least, 0.95 * real[SHARE])
    door = real[DOOR]
    patience = st.setting[WAITING] >> 1
    ahead = _CLEARING
    if w[IN_WINDOW] > 0:
        patience = min(patience, w[IN_WINDOW] >> (2 if door == 1.0 else 4))
        ahead = min(ahead, max(HORIZON, np.float64(w[IN_WINDOW])))
    to_come = real[PER_ARRIVAL]
    free_to_raise = False
    if st.setting[PREFERENCE] == WEIGHTED and not st.setting[SHARED]:
        # The weight of a pair knows the doors of both its tuples; that of a range record knows one.
        free_to_raise = not st.setting[RANGES]
        if w[IN_WINDOW] == 0:
            rest, mean, last = _first_window(st, arrived)
            if rest > 0.0 and real[SHARE] * last < real[TAKING_MEAN]:
                ahead, to_come, patience = max(HORIZON, rest), mean, 0
        else:
            patience = w[IN_WINDOW] >> 4
            if door < 1.0:
                ahead, patience = min(ahead, _DEEP_CLEARING), w[IN_WINDOW] >> 6
    free = ahead * real[SHARE] * to_come
    if st.setting[PREFERENCE] != WEIGHTED:  # a door that follows what keys cost to answer would favour some
        free += real[CREDIT]
    target = min(1.0, free / ((ahead + lag) * real[TAKING_MEAN]))
    now = w[NOW_TS]
    if target < 0.95 * door:
        if lag > patience or st.setting[WAITING] == 0:
            real[DOOR] = target
    elif (target == 1.0 and door < 1.0) or (
        target > 1.25 * door and (free_to_raise or w[DOOR_SINCE] < since_of(now, st.window[0]))
    ):
        real[DOOR_BEFORE] = effective_door(st, now)
        w[DOOR_SINCE] = now
        real[DOOR] = target


@part
def _first_window(st: Clocked, arrived: int) -> tuple[float, float, float]:
    """What the first window is believed to hold still: arrivals, mean grant of each, and grant when it is full.

    A fraction of the exact cost grants more and more as the window fills; the rise is taken to be even.  Without a
    window as much again is believed to come.  No arrivals: too early to tell.
    """
    real = st.real
    w = st.whole
    filled = 0.5
    if st.window[0] < FOREVER:
        filled = min(1.0, np.float64(arrived - w[BEGAN]) / max(1.0, np.float64(st.window[0])))
    if filled < _EARLY:
        return 0.0, 0.0, 0.0
    first = real[FIRST_GRANT]
    now = real[PER_ARRIVAL]
    last = now
    if not st.setting[REPLAYED]:
        last = max(now, first + 2.0 * (real[GRANTED] / w[ARRIVED] - first) / filled)
    return w[ARRIVED] * (1.0 - filled) / filled, 0.5 * (now + last), last


@part
def is_outputs_turn(st: Clocked, waiting_entries: int) -> bool:
    """weighted: whether what is promised must be paid before more tuples come in.

    While tuples wait they get the share SHARE of the grant, and outputs the rest: a promise that expires unpaid is a
    bias that no weight can mend.
    """
    if st.setting[PREFERENCE] != WEIGHTED or st.setting[SHARED] or st.real[ALLOWANCE] >= st.real[ENTRANCE]:
        return False
    return waiting_entries > 0 or st.whole[ACTIVE] != 0


@part
def allow(amount: float, st: Clocked) -> None:
    """Add to what taking tuples in may spend (negative: it was spent); little of it is saved up."""
    most = _SAVED_ENTRANCES * st.real[ENTRANCE]
    st.real[ALLOWANCE] = max(-most, min(most, st.real[ALLOWANCE] + amount))


@part
def _held_back(st: Clocked, cushion: float) -> float:
    """Credit in hand that p aims at, so that neither outputs nor tuples need wait when less is granted.

    Enough to take in a fifth of a window.  Under a replay, where credit that finds no work is gone, a few
    tuples; over shared streams credit is dealt out anew.
    """
    if st.setting[SHARED]:
        return 2.0 * cushion
    held = _RESERVE * st.real[ENTRANCE]
    if not st.setting[REPLAYED]:
        held = max(held, _RESERVE_SHARE * st.whole[IN_WINDOW] * st.real[DOOR] * st.real[TAKING_MEAN])
    return cushion + held  # type: ignore[no-any-return]


@part
def sampling_rate(st: Clocked, price: float, cushion: float) -> float:
    """p: which share of the matches found from now on can be paid for.

    price: of an output; cushion: credit that outputs leave alone.
    What the coming arrivals will be granted, and the credit in hand, less what taking them in, and those that
    wait, will cost and what is already promised, per match to come.  Slow on purpose: p that jumps adds variance.
    """
    real = st.real
    w = st.whole
    if w[CONTROLS] == 0 or w[ADMITTED] < _WARM_UP or real[MATCHES] <= 0.0:
        return min(1.0, real[FRACTION])  # type: ignore[no-any-return]
    lag = np.float64(w[ARRIVED] - w[APPLIED])
    coming = HORIZON + lag
    taken = (coming + lag) * real[DOOR]
    entering = taken * real[SPENT_TAKING] / w[ADMITTED]
    allowed = real[SHARE] * coming * real[PER_ARRIVAL]
    if entering > allowed:
        taken *= allowed / entering
        entering = allowed
    left = coming * real[PER_ARRIVAL] - entering
    spare = max(real[CREDIT] - _held_back(st, cushion), -_SAVED_MOST * left)
    free = left + spare - _PROMISED * price * real[BACKLOG]
    return min(1.0, max(_LEAST_RATE, free / (taken * real[MATCHES] * price)))  # type: ignore[no-any-return]
