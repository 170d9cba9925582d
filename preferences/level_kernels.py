"""The level of key hashes under which a sample of keys comes in, and how densely its outputs are sampled.

What joins of two streams (`control_kernels`) and of several (`multiway_control_kernels`) share: under weighted the mean
of the weights must be right, however little the budget is.  So a tuple below the level is never refused while credit
will come: it waits; what is promised is paid before more tuples come in; and p keeps a reserve.
Source: DESIGN section 3, item 4; not in the paper.
"""

from __future__ import annotations

import numpy as np

from nile.preferences import state as js
from nile.preferences.arrival_kernels import since_of
from nile.preferences.slot_kernels import HORIZON
from nile.preferences.state import Clocked
from nile.summaries.kernels import part

_CLEARING = 4096.0  # arrivals over which a lag is made good
_WARM_UP = 64
_LEAST_RATE = 1e-3
_LEAST_RATE_OF_RANGES = 0.25  # a record costs less than the tuple it goes with: fewer save little
_SAVED_ENTRANCES = 4.0
_RESERVE, _RESERVE_SHARE = 64.0, 0.2  # entrances, and of the tuples in a window
_SAVED_MOST = 0.5  # of what outputs would get
_DEEP_CLEARING = 2048.0
_DEEP = 0.2  # of what taking all tuples in costs
_EARLY = 0.0625  # of the first window, in which the grant to come cannot be told
_PROMISED = 4.0  # how much more a promised output counts than one to come: few may be left when the input ends
_MEMORY = 4  # looks that a mean reaches back
_LOOKS = 16  # looks that the pace is a mean of
_AMPLE = 1.25
_USED_UP = 0.9


@part
def effective_admission(st: Clocked, ts: int) -> float:
    """Keys below this level came in during the whole window that ends at `ts`, so their lists are complete."""
    admission = st.real[js.ADMISSION]
    if since_of(ts, st.window[0]) <= st.whole[js.ADMISSION_SINCE]:
        return min(admission, st.real[js.ADMISSION_BEFORE])  # type: ignore[no-any-return]
    return admission  # type: ignore[no-any-return]


@part
def look(st: Clocked, arrived: int) -> float:
    """Learn, every `CONTROL_EVERY` arrivals, what is granted an arrival and what taking a tuple in costs.

    arrived: ts of the newest arrival, which may be ahead of the newest tuple taken in.  Returns how much of the grant
    found work, under a replay; 1 and more: all of it.
    """
    real = st.real
    w = st.whole
    w[js.CONTROLS] += 1
    if w[js.CONTROLS] == 1:
        w[js.BEGAN] = arrived
        real[js.FIRST_GRANT] = real[js.GRANTED] / w[js.ARRIVED]
    else:
        real[js.LOOK_TIME] += (np.float64(arrived - w[js.LOOKED]) - real[js.LOOK_TIME]) / min(
            w[js.CONTROLS] - 1, _LOOKS
        )
    w[js.LOOKED] = arrived
    if w[js.IN_WINDOW] == 0 and since_of(arrived, st.window[0]) > w[js.BEGAN]:
        w[js.IN_WINDOW] = w[js.ARRIVED]
    used = 1.0
    arrivals = w[js.ARRIVED] - w[js.ARRIVED_BEFORE]
    w[js.ARRIVED_BEFORE] = w[js.ARRIVED]
    if arrivals > 0:
        granted = real[js.GRANTED] - real[js.GRANTED_BEFORE]
        recent = granted / arrivals
        if st.setting[js.REPLAYED]:  # what is granted and finds no work is gone
            used = (real[js.SPENT] - real[js.SPENT_BEFORE]) / max(1.0, _USED_UP * granted)
        real[js.SPENT_BEFORE] = real[js.SPENT]
        real[js.GRANTED_BEFORE] = real[js.GRANTED]
        real[js.PER_ARRIVAL] += (recent - real[js.PER_ARRIVAL]) / min(w[js.CONTROLS], _MEMORY)
    admitted = w[js.ADMITTED] - w[js.ADMITTED_BEFORE]
    if admitted > 0:
        recent = (real[js.SPENT_TAKING] - real[js.TAKEN_BEFORE]) / admitted
        real[js.TAKING_MEAN] += (recent - real[js.TAKING_MEAN]) / min(w[js.CONTROLS], _MEMORY)
        w[js.ADMITTED_BEFORE] = w[js.ADMITTED]
        real[js.TAKEN_BEFORE] = real[js.SPENT_TAKING]
    return used


@part
def set_level(st: Clocked, idle: bool, waiting_entries: int, arrived: int) -> None:
    """weighted, asc, desc over shared streams: set the level that hashes of keys must be below.

    It stays up while tuples can wait for credit: a whole first window, as long as there is room for them, and
    later a quarter of a window.  Raised only in clear steps: a raise makes lists incomplete for a window.
    Under asc, where nearly all keys are rare, it comes down as soon as what a full window grants can be told.
    Under weighted, where what still waits when the input ends is a bias, tuples do not wait for credit that
    will not come.
    """
    real = st.real
    w = st.whole
    lag = w[js.ARRIVED] - w[js.APPLIED]
    if idle and (st.setting[js.PREFERENCE] != js.WEIGHTED or real[js.RATE] >= 0.999):
        real[js.SHARE] = min(1.0, 1.1 * real[js.SHARE])
    elif waiting_entries > 0 or w[js.ACTIVE] != 0:
        least = (
            0.2 if st.setting[js.PREFERENCE] == js.DESC else 0.8 if st.setting[js.PREFERENCE] == js.WEIGHTED else 0.5
        )
        real[js.SHARE] = max(least, 0.95 * real[js.SHARE])
    admission = real[js.ADMISSION]
    patience = st.setting[js.WAITING] >> 1
    ahead = _CLEARING
    if w[js.IN_WINDOW] > 0:
        patience = min(patience, w[js.IN_WINDOW] >> (2 if admission == 1.0 else 4))
        ahead = min(ahead, max(HORIZON, np.float64(w[js.IN_WINDOW])))
    if st.setting[js.PREFERENCE] == js.ASC and w[js.IN_WINDOW] > 0:  # outputs, few as they are, bring in no credit
        patience = min(patience, w[js.IN_WINDOW] >> 6)
    to_come = real[js.PER_ARRIVAL]
    free_to_raise = False
    if st.setting[js.PREFERENCE] == js.WEIGHTED and not st.setting[js.SHARED]:
        # The weight of a pair knows the admission thresholds of both its tuples; that of a range record knows one.
        free_to_raise = not st.setting[js.RANGES]
        if w[js.IN_WINDOW] == 0:
            rest, mean, last = _first_window(st, arrived)
            if rest > 0.0 and real[js.SHARE] * last < real[js.TAKING_MEAN]:
                ahead, to_come, patience = max(HORIZON, rest), mean, 0
        else:
            patience = w[js.IN_WINDOW] >> 4
            if admission < 1.0:
                ahead, patience = min(ahead, _DEEP_CLEARING), w[js.IN_WINDOW] >> 6
    elif st.setting[js.PREFERENCE] == js.ASC and admission == 1.0 and w[js.IN_WINDOW] == 0:
        rest, _, last = _first_window(st, arrived)
        deep = _DEEP if st.window[0] == js.FOREVER else 1.0  # later arrivals of a whole stream are granted more
        if rest > 0.0 and last < deep * real[js.TAKING_MEAN] and _is_light(st, last):
            to_come, patience = last, 0
    free = ahead * real[js.SHARE] * to_come
    if (
        st.setting[js.PREFERENCE] != js.WEIGHTED
    ):  # an admission threshold that follows what keys cost to answer would favour some
        free += real[js.CREDIT]
    target = min(1.0, free / ((ahead + lag) * real[js.TAKING_MEAN]))
    now = w[js.NOW_TS]
    if target < 0.95 * admission:
        if lag > patience or st.setting[js.WAITING] == 0:
            real[js.ADMISSION] = target
    elif (target == 1.0 and admission < 1.0) or (
        target > 1.25 * admission and (free_to_raise or w[js.ADMISSION_SINCE] < since_of(now, st.window[0]))
    ):
        real[js.ADMISSION_BEFORE] = effective_admission(st, now)
        w[js.ADMISSION_SINCE] = now
        real[js.ADMISSION] = target


@part
def _first_window(st: Clocked, arrived: int) -> tuple[float, float, float]:
    """What the first window is believed to hold still: arrivals, mean grant of each, and grant when it is full.

    A fraction of the exact cost grants more and more as the window fills; the rise is taken to be even.  Without a
    window as much again is believed to come.  No arrivals: too early to tell.
    """
    real = st.real
    w = st.whole
    filled = 0.5
    if st.window[0] < js.FOREVER:
        filled = min(1.0, np.float64(arrived - w[js.BEGAN]) / max(1.0, np.float64(st.window[0])))
    if filled < _EARLY:
        return 0.0, 0.0, 0.0
    first = real[js.FIRST_GRANT]
    now = real[js.PER_ARRIVAL]
    last = now
    if not st.setting[js.REPLAYED]:
        last = max(now, first + 2.0 * (real[js.GRANTED] / w[js.ARRIVED] - first) / filled)
    return w[js.ARRIVED] * (1.0 - filled) / filled, 0.5 * (now + last), last


@part
def _is_light(st: Clocked, granted: float) -> bool:
    """asc: whether an arrival that is granted so much meets so few tuples that nearly all keys are rare.

    Then hardly any key is turned away as too heavy, and tuples that come in above a level that the grant cannot keep
    are spent in vain.
    """
    if st.setting[js.REPLAYED] or st.real[js.FRACTION] >= 1.0:  # a clock's grants tell nothing of matches
        return False
    matching = granted / st.real[js.FRACTION] - st.prices[js.P_INSERT] - st.prices[js.P_LOOKUP]
    return matching <= 0.5 * st.setting[js.CAP] * st.prices[js.P_EMIT]  # type: ignore[no-any-return]


@part
def can_keep_all(st: Clocked, taking: float) -> bool:
    """asc: whether the grant takes every tuple in, at `taking` each, heavy keys too: then none is turned away.

    A key that is turned away is not known to be rare again until its window has passed, which costs outliers.
    """
    if st.setting[js.GUIDE] != js.DIRECTORY or st.setting[js.SHARED] or st.setting[js.REPLAYED]:
        return False
    granted = st.real[js.PER_ARRIVAL]
    if st.whole[js.CONTROLS] == 0:  # nobody has looked yet
        granted = st.real[js.GRANTED] / max(1.0, np.float64(st.whole[js.ARRIVED]))
    return st.real[js.ADMISSION] >= 1.0 and granted >= _AMPLE * taking  # type: ignore[no-any-return]


@part
def is_outputs_turn(st: Clocked, waiting_entries: int) -> bool:
    """Whether what is promised must be paid before more tuples come in.

    asc: always, for an outlier found costs no more than a tuple that may find one.  weighted: while tuples wait they
    get the share SHARE of the grant, and outputs the rest: a promise that expires unpaid is a bias that no weight can
    mend.
    """
    preference = st.setting[js.PREFERENCE]
    if preference == js.DESC or st.setting[js.SHARED]:
        return False
    if preference == js.WEIGHTED and st.real[js.ALLOWANCE] >= st.real[js.ENTRANCE]:
        return False
    return waiting_entries > 0 or st.whole[js.ACTIVE] != 0


@part
def allow(amount: float, st: Clocked) -> None:
    """Add to what taking tuples in may spend (negative: it was spent); little of it is saved up."""
    most = _SAVED_ENTRANCES * st.real[js.ENTRANCE]
    st.real[js.ALLOWANCE] = max(-most, min(most, st.real[js.ALLOWANCE] + amount))


@part
def _held_back(st: Clocked, cushion: float) -> float:
    """Credit in hand that p aims at, so that neither outputs nor tuples need wait when less is granted.

    Enough to take in a fifth of a window.  Under a replay, where credit that finds no work is gone, a few
    tuples; over shared streams credit is dealt out anew.
    """
    if st.setting[js.SHARED]:
        return 2.0 * cushion
    held = _RESERVE * st.real[js.ENTRANCE]
    if not st.setting[js.REPLAYED]:
        held = max(held, _RESERVE_SHARE * st.whole[js.IN_WINDOW] * st.real[js.ADMISSION] * st.real[js.TAKING_MEAN])
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
    if w[js.CONTROLS] == 0 or w[js.ADMITTED] < _WARM_UP or real[js.MATCHES] <= 0.0:
        return min(1.0, real[js.FRACTION])  # type: ignore[no-any-return]
    lag = np.float64(w[js.ARRIVED] - w[js.APPLIED])
    coming = HORIZON + lag
    taken = (coming + lag) * real[js.ADMISSION]
    entering = taken * real[js.SPENT_TAKING] / w[js.ADMITTED]
    allowed = real[js.SHARE] * coming * real[js.PER_ARRIVAL]
    if entering > allowed:
        taken *= allowed / entering
        entering = allowed
    left = coming * real[js.PER_ARRIVAL] - entering
    spare = max(real[js.CREDIT] - _held_back(st, cushion), -_SAVED_MOST * left)
    free = left + spare - _PROMISED * price * real[js.BACKLOG]
    least = _LEAST_RATE_OF_RANGES if st.setting[js.RANGES] else _LEAST_RATE
    return min(1.0, max(least, free / (taken * real[js.MATCHES] * price)))  # type: ignore[no-any-return]
