"""Admission of desc, and of asc within short windows: which of the 64 slots of the key space are open.

Those where both streams are busiest are, as many as the budget can serve: a mask of 64 bits, which costs no more
to ask than a level.  A slot that holds a heavy key holds few of the light ones besides.
Outliers.  Where a window holds few tuples, and an arrival finds few of them, nearly every pair is an outlier, and asc
finds most where desc would.  What a shut slot turns away is noted, since it may have made its key frequent.
Source: DESIGN section 3, items 3 to 5; not in the paper.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.preferences import state as js
from nile.preferences.arrival_kernels import pay_insert, since_of, unit
from nile.preferences.state import State
from nile.summaries.hash_kernels import mix
from nile.summaries.kernels import U8, allocating_part, part

Array = np.ndarray[Any, Any]
HORIZON = 512.0
"""Arrivals that a look of the admission control reckons ahead."""
_MEMORY = 4  # looks that a mean reaches back
_SAMPLE_SHARE = 0.02  # of the grant, for counting tuples by slot
_CHOICE_SHARE = 0.04  # the most of the grant that choosing slots may take
_CHOICE_WORTH = 0.1  # and of what taking tuples in would cost with every slot open
_LEAST_REACH, _MOST_REACH = 4096.0, 1e9
_SAMPLES = 512.0  # tuples counted by slot that are remembered, even where a window has fewer
_REMEMBERED = 1.0 - 1.0 / _MEMORY
_LATELY = 8.0  # of what a window holds, an eighth is of late
_SURE = 3.0  # standard deviations
_CHOICES, _OPENINGS = 32, 8  # how often at most slots are chosen anew, and more opened, while a window passes
_MARGIN, _MARGIN_OF_SKETCHES = 4.0, 20.0
"""What is taken in besides has fewer matches than what was so far, and a sketch promises some where there are none."""
_YOUNG_WELL, _YOUNG_ILL, _YOUNG_OPENINGS = 0.5, 0.25, 32
"""The same where only the first granularity decides, which fills sooner: what is too much of it costs little there."""
_LEAST_WANTED = 1.0 / 1024.0
_LOYALTY = 2.0  # by how much a shut slot must promise more than an open one to take its place
_WIDEN, _WIDEN_MOST = 1.3, 2.0
_WHOLE = 0.5  # of what open slots have: what is wanted
_SERVED_WELL, _SERVED_ILL = 0.9, 0.7  # shares of the matches found
_PAID_WELL, _PAID_ILL, _PAID = 0.98, 0.96, 0.6
"""The same where outputs are so much of what is spent: more tuples than find what can be paid only cost there."""
_SHORT = 2 * js.CONTROL_EVERY  # arrivals, those of a first look included, in which a short window has passed
_FEW = 0.125  # of the cap: matches of an arrival


@part
def picks_slots(st: State) -> bool:
    """Whether admission is a choice of slots, unless others keep the streams: under desc and, once it pays, asc.

    It is by a level elsewhere.
    """
    if st.setting[js.SHARED]:
        return False
    if st.setting[js.PREFERENCE] == js.ASC:
        return st.whole[js.CHOSEN] > 0  # type: ignore[no-any-return]
    return st.setting[js.PREFERENCE] == js.DESC  # type: ignore[no-any-return]


@part
def would_pick(st: State) -> bool:
    """asc: whether windows are so short, and matches so few, that outliers are found where pairs are.

    A clock's grants tell nothing of matches.
    """
    if st.setting[js.PREFERENCE] != js.ASC or st.setting[js.SHARED] or st.setting[js.REPLAYED]:
        return False
    real = st.real
    if not 0 < st.whole[js.IN_WINDOW] <= _SHORT or real[js.FRACTION] >= 1.0:
        return False
    matching = real[js.PER_ARRIVAL] / real[js.FRACTION] - st.prices[js.P_INSERT] - st.prices[js.P_LOOKUP]
    few = matching <= _FEW * st.setting[js.CAP] * st.prices[js.P_EMIT]
    return few and real[js.PER_ARRIVAL] < real[js.TAKING_MEAN]  # type: ignore[no-any-return]


@part
def open_below(level: float, st: State) -> None:
    """asc, from now on by slots: open those whose keys a level has let in so far, one at least."""
    real = st.real
    w = st.whole
    count = max(1, int(level * js.SLOTS))
    for slot in range(js.SLOTS):
        st.open[slot] = slot < count
    real[js.ADMISSION] = real[js.WANTED] = np.float64(count) / js.SLOTS
    real[js.ADMISSION_BEFORE] = level
    real[js.SHARE] = 1.0
    w[js.ADMISSION_SINCE] = w[js.NOW_TS]
    real[js.CHOSEN_AT] = real[js.GRANTED]  # nothing has been counted by slot yet
    w[js.CHOSEN] = w[js.ARRIVED]


@part
def complete_below(st: State, ts: int) -> float:
    """asc by slots: the level that was in force in the window that ends at `ts`; 1: none was."""
    if since_of(ts, st.window[0]) <= st.whole[js.ADMISSION_SINCE]:
        return st.real[js.ADMISSION_BEFORE]  # type: ignore[no-any-return]
    return 1.0


@part
def slot_of(h: Any, st: State) -> int:
    """The slot of a key: the first six bits of its salted hash."""
    return np.int64(mix(h, st.setting[js.SALT]) >> U8(58))  # type: ignore[return-value]


@part
def see(slot: int, side: int, ordinal: int, st: State) -> None:
    """Count a sample of the tuples by slot, let in or not: what is shut out must be able to show its worth."""
    every = st.whole[js.SAMPLED]
    if ordinal & (every - 1) == 0 and st.real[js.CREDIT] >= st.prices[js.P_UPDATE]:
        st.seen[side, slot] += np.float64(every)
        pay_insert(st, st.prices[js.P_UPDATE])


@part
def is_thinned(arrival: int, st: State) -> bool:
    """desc: whether a tuple of an open slot stays out by its own coin, as the slot has more than can be taken in."""
    if st.setting[js.PREFERENCE] == js.ASC:
        return False
    share = st.real[js.WANTED] / st.real[js.ADMISSION]
    return share < _WHOLE and unit(U8(arrival), st.setting[js.SALT] + 7) >= share  # type: ignore[no-any-return]


@part
def older_counts(st: State) -> bool:
    """desc: whether what is found beyond the first granularity counts as found, or is there to fill what is left.

    More tuples are taken in, for what is young among their matches, until that is all that can be paid: where taking
    a tuple in costs so little beside its young matches that one of those, all paid, is had for less than an old one
    is worth.
    """
    fade = st.fades[1] if st.fades.shape[0] > 1 else 1.0
    if fade == 1.0 or st.setting[js.PREFERENCE] != js.DESC:
        return True
    emitting = st.prices[js.P_EMIT] * st.real[js.YOUNG]
    taking = st.real[js.TAKING_MEAN] * st.real[js.YOUNG_TUPLES]
    margin = _MARGIN if st.setting[js.GUIDE] == js.DIRECTORY else _MARGIN_OF_SKETCHES
    return taking == 0.0 or emitting * (1.0 - fade) <= margin * fade * taking  # type: ignore[no-any-return]


@part
def open_slots(st: State, idle: bool, used: float) -> None:
    """Open the slots that promise most, as many as find a little more than can be emitted; asc: no more than that.

    More while all that is found is served, fewer while much of it is not.  WANTED is the share of the tuples
    seen that open slots should have, ADMISSION what they do have: slots are few and unlike.
    used: share of the grant that found work, where what finds none is gone.
    """
    real = st.real
    w = st.whole
    real[js.FOUND_MEAN] += (real[js.FOUND] - real[js.FOUND_MEAN]) / min(w[js.CONTROLS], _MEMORY)
    real[js.SERVED_MEAN] += (real[js.SERVED] - real[js.SERVED_MEAN]) / min(w[js.CONTROLS], _MEMORY)
    real[js.FOUND] = 0.0
    real[js.SERVED] = 0.0
    if st.setting[js.PREFERENCE] == js.DESC:
        real[js.YOUNG] *= _REMEMBERED
        real[js.YOUNG_TUPLES] *= _REMEMBERED
    lag = w[js.ARRIVED] - w[js.APPLIED]
    wanted = real[js.WANTED]
    idle = idle or used < 1.0
    well, ill, openings = _SERVED_WELL, _SERVED_ILL, _OPENINGS
    lent = st.setting[js.GUIDE] == js.SHARED_GRID  # what others have counted is to choose among what is let in
    if not lent and st.prices[js.P_EMIT] * np.float64(w[js.OUTPUTS]) >= _PAID * real[js.SPENT]:
        well, ill = _PAID_WELL, _PAID_ILL
    if not older_counts(st):
        well, ill, openings = _YOUNG_WELL, _YOUNG_ILL, _YOUNG_OPENINGS
    if idle or real[js.SERVED_MEAN] >= well * real[js.FOUND_MEAN]:
        # What opens finds little until its lists have filled: wait and see, unless budget goes begging.
        if idle or (w[js.ARRIVED] - w[js.OPENED]) * openings >= _reach_of(st):
            wanted *= max(_WIDEN, min(_WIDEN_MOST, 1.0 / max(used, 0.01)))
            w[js.OPENED] = w[js.ARRIVED]
    elif real[js.SERVED_MEAN] < ill * real[js.FOUND_MEAN]:
        wanted *= max(0.8, real[js.SERVED_MEAN] / (ill * real[js.FOUND_MEAN]))
    free = real[js.CREDIT] + HORIZON * real[js.SHARE] * real[js.PER_ARRIVAL]
    taking = real[js.TAKING_MEAN]
    if st.setting[js.PREFERENCE] == js.ASC:  # all that is found is paid for first
        wanted = 1.0
        taking += st.prices[js.P_EMIT] * np.float64(w[js.OUTPUTS]) / max(1.0, np.float64(w[js.ADMITTED]))
    wanted = min(
        wanted,
        free / ((HORIZON + lag) * taking),
        max(2.0 * real[js.ADMISSION], real[js.ADMISSION] + 2.0 / js.SLOTS),
    )
    wanted = max(wanted, _LEAST_WANTED)
    real[js.WANTED] = min(1.0, wanted)
    every = 8
    while every < 512 and st.prices[js.P_UPDATE] > _SAMPLE_SHARE * every * real[js.PER_ARRIVAL]:
        every *= 2
    w[js.SAMPLED] = every
    if st.setting[js.PREFERENCE] == js.ASC and wanted < 1.0 and is_choice_due(st):  # tuples that wait take all else
        _put_aside(st)
    is_off = wanted < 0.9 * real[js.ADMISSION] or wanted > 1.1 * real[js.ADMISSION]
    if wanted >= 1.0:
        real[js.ADMISSION] = 1.0
        st.open[:] = 1
    elif real[js.CREDIT] + real[js.CHOICE_SAVED] >= real[js.CHOICE] and is_choice_due(st):
        if is_off or (w[js.ARRIVED] - w[js.CHOSEN]) * _CHOICES >= _reach_of(st):
            _choose_slots(wanted, st)
    elif wanted < 0.8 * real[js.ADMISSION] or wanted > 1.25 * real[js.ADMISSION]:
        _open_slots_by_hash(wanted, st)


@part
def _reach_of(st: State) -> int:
    """Arrivals that a window holds at the pace of late, or what stands for them where that is not known."""
    if st.whole[js.IN_WINDOW] == 0:
        return np.int64(_LEAST_REACH)  # type: ignore[return-value]
    held = js.CONTROL_EVERY * np.float64(st.window[0]) / max(1.0, st.real[js.LOOK_TIME])
    return np.int64(max(_LEAST_REACH, min(held, _MOST_REACH)))  # type: ignore[return-value]


@part
def is_choice_due(st: State) -> bool:
    """Whether enough has been granted since slots were chosen last to choose again."""
    real = st.real
    if real[js.PER_ARRIVAL] <= 0.0:
        return False
    share = min(_CHOICE_SHARE, _CHOICE_WORTH * real[js.TAKING_MEAN] / real[js.PER_ARRIVAL])
    return share * (real[js.GRANTED] - real[js.CHOSEN_AT]) >= real[js.CHOICE]  # type: ignore[no-any-return]


@part
def save_up(st: State) -> None:
    """Put aside what finds no work, for a choice of slots that is due: a choice in instalments."""
    real = st.real
    if real[js.ADMISSION] < 1.0 and picks_slots(st) and st.setting[js.REPLAYED] and is_choice_due(st):
        _put_aside(st)


@part
def _put_aside(st: State) -> None:
    amount = max(0.0, min(st.real[js.CREDIT], st.real[js.CHOICE] - st.real[js.CHOICE_SAVED]))
    pay_insert(st, amount)
    st.real[js.CHOICE_SAVED] += amount


@part
def _remember(side: int, fast: float, slow: float, st: State) -> tuple[float, float]:
    """Fold the tuples of a stream seen since the last choice into both memories; returns what these hold now."""
    fresh, late, long = st.seen[side], st.seen[2 + side], st.seen[4 + side]
    lately = 0.0
    ever = 0.0
    for slot in range(js.SLOTS):
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
    if off * off > _SURE * _SURE * st.whole[js.SAMPLED] * (expected + st.whole[js.SAMPLED]):
        return late / lately  # type: ignore[no-any-return]
    return long / ever  # type: ignore[no-any-return]


@allocating_part
def _choose_slots(wanted: float, st: State) -> None:
    """Open the slots where both streams are busiest, with at most a share `wanted` of the tuples; one at least.

    Costs CHOICE, a scan of the slots and sorting them; what was put aside for it goes first.
    """
    real = st.real
    w = st.whole
    pay_insert(st, real[js.CHOICE] - real[js.CHOICE_SAVED])
    real[js.CHOICE_SAVED] = 0.0
    real[js.CHOSEN_AT] = real[js.GRANTED]
    gone = np.float64(w[js.ARRIVED] - w[js.CHOSEN])
    w[js.CHOSEN] = w[js.ARRIVED]
    reach = max(np.float64(_reach_of(st)), _SAMPLES * np.float64(w[js.SAMPLED]))
    fast = max(0.0, 1.0 - _LATELY * gone / reach)
    slow = max(0.0, 1.0 - gone / reach)
    left: Any = np.int64(0)
    right: Any = np.int64(1)
    left_late, left_ever = _remember(left, fast, slow, st)
    right_late, right_ever = _remember(right, fast, slow, st)
    promise = np.empty(js.SLOTS)
    mass = np.empty(js.SLOTS)
    for slot in range(js.SLOTS):
        mine = _rate(left, slot, left_late, left_ever, st)
        theirs = _rate(right, slot, right_late, right_ever, st)
        mass[slot] = mine * left_ever + theirs * right_ever
        promise[slot] = mine * theirs * (_LOYALTY if st.open[slot] else 1.0)
        st.open[slot] = 0
    total = left_ever + right_ever
    reached = 0.0
    # By falling promise, ties in order: taken one by one, since numba's sort compiles for 2 s and few slots are taken.
    for _ in range(js.SLOTS):
        best = np.argmax(promise)
        if reached > 0.0 and reached + 0.5 * mass[best] > wanted * total:
            break
        st.open[best] = 1
        reached += mass[best]
        promise[best] = -1.0
    if total > 0.0:
        real[js.ADMISSION] = min(1.0, reached / total)


@part
def _open_slots_by_hash(wanted: float, st: State) -> None:
    """Open or shut slots in the order of their hashes, when there is no budget to choose; one stays open."""
    count = 0
    for slot in range(js.SLOTS):
        count += st.open[slot]
    ratio = wanted / st.real[js.ADMISSION]
    keep = min(js.SLOTS, max(1, int(count * ratio), count + 1 if ratio > 1.0 else 1))
    st.real[js.ADMISSION] *= keep / count
    for slot in range(js.SLOTS):
        if st.open[slot] and keep < count:
            st.open[slot] = 0
            count -= 1
        elif st.open[slot] == 0 and keep > count:
            st.open[slot] = 1
            count += 1
