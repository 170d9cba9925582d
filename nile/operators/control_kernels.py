"""Who comes in and how densely to sample, when the budget does not stretch to everyone.

Inputs are dropped only by key, in both streams alike: half the keys keep half of the pairs, where half of the
tuples would keep a quarter.  Under weighted and asc the door is a level of key hashes, which weights can undo.
Under desc it picks: the key space has 64 slots, and those where both streams are busiest are open, as many
as the budget can serve: a mask of 64 bits, which costs no more to ask than a level.  A slot that holds a heavy
key holds few of the light ones besides.
Source: DESIGN section 3, items 3 to 5; not in the paper.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.common_kernels import pay_insert, since_of
from nile.operators.state import (
    ACTIVE,
    ADMITTED,
    ADMITTED_BEFORE,
    ALLOWANCE,
    APPLIED,
    ARRIVED,
    ARRIVED_BEFORE,
    BACKLOG,
    BEGAN,
    CHOICE,
    CHOICE_SAVED,
    CHOSEN,
    CHOSEN_AT,
    CONTROL_EVERY,
    CONTROLS,
    CREDIT,
    CUT,
    DESC,
    DOOR,
    DOOR_BEFORE,
    DOOR_SINCE,
    ENTRANCE,
    FIRST_GRANT,
    FOREVER,
    FOUND,
    FOUND_MEAN,
    FRACTION,
    GRANTED,
    GRANTED_BEFORE,
    IN_WINDOW,
    LEAST_POPPED,
    LOOK_TIME,
    LOOKED,
    MATCHES,
    NOW_TS,
    OPENED,
    P_EMIT,
    P_UPDATE,
    PER_ARRIVAL,
    PREFERENCE,
    RANGES,
    RATE,
    REPLAYED,
    SALT,
    SAMPLED,
    SERVED,
    SERVED_MEAN,
    SHARE,
    SHARED,
    SLICE_COST,
    SLOTS,
    SPENT,
    SPENT_BEFORE,
    SPENT_TAKING,
    TAKEN_BEFORE,
    TAKING_MEAN,
    WAITING,
    WANTED,
    WEIGHTED,
    State,
)
from preferences.queue_kernels import CLASSES
from summaries.hash_kernels import mix
from summaries.kernels import U8, allocating_part, part

Array = np.ndarray[Any, Any]
_HORIZON = 512.0
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
_SAMPLE_SHARE = 0.02  # of the grant, for counting tuples by slot
_CHOICE_SHARE = 0.04  # the most of the grant that choosing slots may take
_CHOICE_WORTH = 0.1  # and of what taking tuples in would cost with every slot open
_LEAST_REACH, _MOST_REACH = 4096.0, 1e9
_LOOKS = 16  # looks that the pace is a mean of
_SAMPLES = 512.0  # tuples counted by slot that are remembered, even where a window has fewer
_LATELY = 8.0  # of what a window holds, an eighth is of late
_USED_UP = 0.9
_SURE = 3.0  # standard deviations
_CHOICES, _OPENINGS = 32, 8  # how often at most slots are chosen anew, and more opened, while a window passes
_LOYALTY = 2.0  # by how much a shut slot must promise more than an open one to take its place
_WIDEN, _WIDEN_MOST = 1.3, 2.0
_SERVED_WELL, _SERVED_ILL = 0.9, 0.7  # shares of the matches found


@part
def effective_door(st: State, ts: int) -> float:
    """Keys below this level came in during the whole window that ends at `ts`, so their lists are complete."""
    door = st.real[DOOR]
    if since_of(ts, st.window[0]) <= st.whole[DOOR_SINCE]:
        return min(door, st.real[DOOR_BEFORE])  # type: ignore[no-any-return]
    return door  # type: ignore[no-any-return]


@part
def picks_slots(st: State) -> bool:
    """Whether the door is a choice of slots: under desc, unless others keep the streams, by a level."""
    return st.setting[PREFERENCE] == DESC and not st.setting[SHARED]


@part
def slot_of(h: Any, st: State) -> int:
    """The slot of a key: the first six bits of its salted hash."""
    return np.int64(mix(h, st.setting[SALT]) >> U8(58))  # type: ignore[return-value]


@part
def see(slot: int, side: int, ordinal: int, st: State) -> None:
    """Count a sample of the tuples by slot, let in or not: what is shut out must be able to show its worth."""
    every = st.whole[SAMPLED]
    if ordinal & (every - 1) == 0 and st.real[CREDIT] >= st.prices[P_UPDATE]:
        st.seen[side, slot] += np.float64(every)
        pay_insert(st, st.prices[P_UPDATE])


@part
def adjust_door(st: State, waiting_entries: int, arrived: int) -> None:
    """Set who comes in, so that taking tuples in leaves budget for what they promise.

    arrived: ts of the newest arrival, which may be ahead of the newest tuple taken in.
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
    w[CUT] = w[LEAST_POPPED]
    w[LEAST_POPPED] = CLASSES
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
    if real[TAKING_MEAN] <= 0.0:
        return
    idle = waiting_entries == 0 and w[ACTIVE] == 0 and real[CREDIT] > 4.0 * (real[ENTRANCE] + real[SLICE_COST])
    if picks_slots(st):
        _open_slots(st, idle, used)
    else:
        _set_level(st, idle or used < 1.0, waiting_entries, arrived)


@part
def _set_level(st: State, idle: bool, waiting_entries: int, arrived: int) -> None:
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
        ahead = min(ahead, max(_HORIZON, np.float64(w[IN_WINDOW])))
    to_come = real[PER_ARRIVAL]
    free_to_raise = False
    if st.setting[PREFERENCE] == WEIGHTED and not st.setting[SHARED]:
        # The weight of a pair knows the doors of both its tuples; that of a range record knows one.
        free_to_raise = not st.setting[RANGES]
        if w[IN_WINDOW] == 0:
            rest, mean, last = _first_window(st, arrived)
            if rest > 0.0 and real[SHARE] * last < real[TAKING_MEAN]:
                ahead, to_come, patience = max(_HORIZON, rest), mean, 0
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
def _first_window(st: State, arrived: int) -> tuple[float, float, float]:
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
def _open_slots(st: State, idle: bool, used: float) -> None:
    """desc: open the slots that promise most, as many as find a little more than can be emitted.

    More while all that is found is served, fewer while much of it is not.  WANTED is the share of the tuples
    seen that open slots should have, DOOR what they do have: slots are few and unlike.
    used: share of the grant that found work, where what finds none is gone.
    """
    real = st.real
    w = st.whole
    real[FOUND_MEAN] += (real[FOUND] - real[FOUND_MEAN]) / min(w[CONTROLS], _MEMORY)
    real[SERVED_MEAN] += (real[SERVED] - real[SERVED_MEAN]) / min(w[CONTROLS], _MEMORY)
    real[FOUND] = 0.0
    real[SERVED] = 0.0
    lag = w[ARRIVED] - w[APPLIED]
    wanted = real[WANTED]
    idle = idle or used < 1.0
    if idle or real[SERVED_MEAN] >= _SERVED_WELL * real[FOUND_MEAN]:
        # What opens finds little until its lists have filled: wait and see, unless budget goes begging.
        if idle or (w[ARRIVED] - w[OPENED]) * _OPENINGS >= _reach_of(st):
            wanted *= max(_WIDEN, min(_WIDEN_MOST, 1.0 / max(used, 0.01)))
            w[OPENED] = w[ARRIVED]
    elif real[SERVED_MEAN] < _SERVED_ILL * real[FOUND_MEAN]:
        wanted *= max(0.8, real[SERVED_MEAN] / (_SERVED_ILL * real[FOUND_MEAN]))
    free = real[CREDIT] + _HORIZON * real[SHARE] * real[PER_ARRIVAL]
    wanted = min(wanted, free / ((_HORIZON + lag) * real[TAKING_MEAN]), max(2.0 * real[DOOR], real[DOOR] + 2.0 / SLOTS))
    wanted = max(wanted, 0.5 / SLOTS)
    real[WANTED] = min(1.0, wanted)
    every = 8
    while every < 512 and st.prices[P_UPDATE] > _SAMPLE_SHARE * every * real[PER_ARRIVAL]:
        every *= 2
    w[SAMPLED] = every
    is_off = wanted < 0.9 * real[DOOR] or wanted > 1.1 * real[DOOR]
    if wanted >= 1.0:
        real[DOOR] = 1.0
        st.open[:] = 1
    elif real[CREDIT] + real[CHOICE_SAVED] >= real[CHOICE] and is_choice_due(st):
        if is_off or (w[ARRIVED] - w[CHOSEN]) * _CHOICES >= _reach_of(st):
            _choose_slots(wanted, st)
    elif wanted < 0.8 * real[DOOR] or wanted > 1.25 * real[DOOR]:
        _open_slots_by_hash(wanted, st)


@part
def _reach_of(st: State) -> int:
    """Arrivals that a window holds at the pace of late, or what stands for them where that is not known."""
    if st.whole[IN_WINDOW] == 0:
        return np.int64(_LEAST_REACH)  # type: ignore[return-value]
    held = CONTROL_EVERY * np.float64(st.window[0]) / max(1.0, st.real[LOOK_TIME])
    return np.int64(max(_LEAST_REACH, min(held, _MOST_REACH)))  # type: ignore[return-value]


@part
def is_choice_due(st: State) -> bool:
    """Whether enough has been granted since slots were chosen last to choose again."""
    real = st.real
    if real[PER_ARRIVAL] <= 0.0:
        return False
    share = min(_CHOICE_SHARE, _CHOICE_WORTH * real[TAKING_MEAN] / real[PER_ARRIVAL])
    return share * (real[GRANTED] - real[CHOSEN_AT]) >= real[CHOICE]  # type: ignore[no-any-return]


@part
def save_up(st: State) -> None:
    """Put aside what finds no work, for a choice of slots that is due: a choice in instalments."""
    real = st.real
    if real[DOOR] < 1.0 and picks_slots(st) and st.setting[REPLAYED] and is_choice_due(st):
        amount = max(0.0, min(real[CREDIT], real[CHOICE] - real[CHOICE_SAVED]))
        pay_insert(st, amount)
        real[CHOICE_SAVED] += amount


@part
def _remember(side: int, fast: float, slow: float, st: State) -> tuple[float, float]:
    """Fold the tuples of a stream seen since the last choice into both memories; returns what these hold now."""
    fresh, late, long = st.seen[side], st.seen[2 + side], st.seen[4 + side]
    lately = 0.0
    ever = 0.0
    for slot in range(SLOTS):
        late[slot] = fast * late[slot] + fresh[slot]
        long[slot] = slow * long[slot] + fresh[slot]
        fresh[slot] = 0.0
        lately += late[slot]
        ever += long[slot]
    return lately, ever


@part
def _rate(side: int, slot: int, lately: float, ever: float, st: State) -> float:
    """A slot's share of a stream: over a window, unless what came of late surely differs from that."""
    late, long = st.seen[2 + side, slot], st.seen[4 + side, slot]
    if ever <= 0.0 or lately <= 0.0:
        return 0.0
    expected = long * lately / ever
    off = late - expected
    if off * off > _SURE * _SURE * st.whole[SAMPLED] * (expected + st.whole[SAMPLED]):
        return late / lately  # type: ignore[no-any-return]
    return long / ever  # type: ignore[no-any-return]


@allocating_part
def _choose_slots(wanted: float, st: State) -> None:
    """Open the slots where both streams are busiest, with at most a share `wanted` of the tuples; one at least.

    Costs CHOICE, a scan of the slots and sorting them; what was put aside for it goes first.
    """
    real = st.real
    w = st.whole
    pay_insert(st, real[CHOICE] - real[CHOICE_SAVED])
    real[CHOICE_SAVED] = 0.0
    real[CHOSEN_AT] = real[GRANTED]
    gone = np.float64(w[ARRIVED] - w[CHOSEN])
    w[CHOSEN] = w[ARRIVED]
    reach = max(np.float64(_reach_of(st)), _SAMPLES * np.float64(w[SAMPLED]))
    fast = max(0.0, 1.0 - _LATELY * gone / reach)
    slow = max(0.0, 1.0 - gone / reach)
    left_late, left_ever = _remember(0, fast, slow, st)
    right_late, right_ever = _remember(1, fast, slow, st)
    promise = np.empty(SLOTS)
    mass = np.empty(SLOTS)
    for slot in range(SLOTS):
        mine = _rate(0, slot, left_late, left_ever, st)
        theirs = _rate(1, slot, right_late, right_ever, st)
        mass[slot] = mine * left_ever + theirs * right_ever
        promise[slot] = mine * theirs * (_LOYALTY if st.open[slot] else 1.0)
        st.open[slot] = 0
    total = left_ever + right_ever
    reached = 0.0
    for best in np.argsort(-promise, kind="mergesort"):
        if reached > 0.0 and reached + 0.5 * mass[best] > wanted * total:
            break
        st.open[best] = 1
        reached += mass[best]
    if total > 0.0:
        real[DOOR] = min(1.0, reached / total)


@part
def _open_slots_by_hash(wanted: float, st: State) -> None:
    """Open or shut slots in the order of their hashes, when there is no budget to choose; one stays open."""
    count = 0
    for slot in range(SLOTS):
        count += st.open[slot]
    ratio = wanted / st.real[DOOR]
    keep = min(SLOTS, max(1, int(count * ratio), count + 1 if ratio > 1.0 else 1))
    st.real[DOOR] *= keep / count
    for slot in range(SLOTS):
        if st.open[slot] and keep < count:
            st.open[slot] = 0
            count -= 1
        elif st.open[slot] == 0 and keep > count:
            st.open[slot] = 1
            count += 1


@part
def cushion(st: State) -> float:
    """Credit that outputs leave alone, so that the next tuple can be taken in and slots can be chosen."""
    held = st.real[ENTRANCE] + st.real[SLICE_COST]
    if picks_slots(st) and is_choice_due(st):
        held += st.real[CHOICE] - st.real[CHOICE_SAVED]
    return held  # type: ignore[no-any-return]


@part
def is_outputs_turn(st: State, waiting_entries: int) -> bool:
    """weighted: whether what is promised must be paid before more tuples come in.

    While tuples wait they get the share SHARE of the grant, and outputs the rest: a promise that expires unpaid is a
    bias that no weight can mend.
    """
    if st.setting[PREFERENCE] != WEIGHTED or st.setting[SHARED] or st.real[ALLOWANCE] >= st.real[ENTRANCE]:
        return False
    return waiting_entries > 0 or st.whole[ACTIVE] != 0


@part
def allow(amount: float, st: State) -> None:
    """Add to what taking tuples in may spend (negative: it was spent); little of it is saved up."""
    most = _SAVED_ENTRANCES * st.real[ENTRANCE]
    st.real[ALLOWANCE] = max(-most, min(most, st.real[ALLOWANCE] + amount))


@part
def _held_back(st: State) -> float:
    """Credit in hand that p aims at, so that neither outputs nor tuples need wait when less is granted.

    Enough to take in a fifth of a window.  Under a replay, where credit that finds no work is gone, a few
    tuples; over shared streams credit is dealt out anew.
    """
    if st.setting[SHARED]:
        return 2.0 * cushion(st)
    held = _RESERVE * st.real[ENTRANCE]
    if not st.setting[REPLAYED]:
        held = max(held, _RESERVE_SHARE * st.whole[IN_WINDOW] * st.real[DOOR] * st.real[TAKING_MEAN])
    return cushion(st) + held  # type: ignore[no-any-return]


@part
def sampling_rate(st: State) -> float:
    """p: which share of the matches found from now on can be paid for.

    What the coming arrivals will be granted, and the credit in hand, less what taking them in, and those that
    wait, will cost and what is already promised, per match to come.  Slow on purpose: p that jumps adds variance.
    """
    real = st.real
    w = st.whole
    if w[CONTROLS] == 0 or w[ADMITTED] < _WARM_UP or real[MATCHES] <= 0.0:
        return min(1.0, real[FRACTION])  # type: ignore[no-any-return]
    price = st.prices[P_EMIT]
    lag = np.float64(w[ARRIVED] - w[APPLIED])
    coming = _HORIZON + lag
    taken = (coming + lag) * real[DOOR]
    entering = taken * real[SPENT_TAKING] / w[ADMITTED]
    allowed = real[SHARE] * coming * real[PER_ARRIVAL]
    if entering > allowed:
        taken *= allowed / entering
        entering = allowed
    left = coming * real[PER_ARRIVAL] - entering
    spare = max(real[CREDIT] - _held_back(st), -_SAVED_MOST * left)
    free = left + spare - _PROMISED * price * real[BACKLOG]
    return min(1.0, max(_LEAST_RATE, free / (taken * real[MATCHES] * price)))  # type: ignore[no-any-return]
