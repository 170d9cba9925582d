"""What a live join of n streams holds, taken out as plain values and put back with every value checked.

As of two streams (`nile.operators.drive.live_state`): the same tuples give the same state, whatever the cuts of the
input were and whenever keys were renumbered.  Ranks are counted from the first tuple held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nile.exact.state.held import MOST, Held, State
from nile.operators.drive.live_state import finite, put_lists, put_sketches, queue_of, sketches_of, zone_of
from nile.operators.multiway import state as ms
from nile.preferences import state as st
from nile.preferences.queue import LIMIT
from nile.pyramid.grid import arrays as ga
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.drive import live_kernels
    from nile.operators.drive.live_multiway import LiveMultiway
    from nile.preferences import queue_kernels
else:
    live_kernels = lazy("nile.operators.drive.live_kernels")
    queue_kernels = lazy("nile.preferences.queue_kernels")

__all__ = ["captured", "restored"]

Array = np.ndarray[Any, Any]
_WORK_SPACE = (st.WRITTEN, st.STOPPED_SIDE, st.STOPPED_CODE, st.ARRIVALS_GONE, st.ADMISSIONS_GONE, ms.DUE)
_ENTRY = (st.ENTRY_ORDINAL, st.ENTRY_TIME, ms.ENTRY_TOTAL)
_ENTRY_REAL = (st.ENTRY_GAP, st.ENTRY_STEP, st.ENTRY_WEIGHT)
_LEAST_ADMISSION = 1e-12


def captured(live: LiveMultiway) -> State:
    """The state of a join, between two takes.  Cost: a copy of what is held."""
    join, store = live.join, live.join.store
    state, first, base = join.state, live.first_needed, int(store.side.meta[ga.BASE])
    whole, real = state.whole.copy(), state.real.copy()
    entry: Array = state.entry.copy()
    whole[list(_WORK_SPACE)] = 0
    listed, past = np.zeros(store.tuples - first, np.uint8), np.zeros((live.table.known, live.streams), np.int64)
    live_kernels.listed(store.side, first, listed, past.reshape(-1))
    if not whole[st.ACTIVE]:
        whole[list(_ENTRY)] = 0
        real[list(_ENTRY_REAL)] = 0.0
        entry[:] = 0
    else:
        owner, key = join.owner(whole[[st.ENTRY_ORDINAL]])
        if whole[st.ACTIVE] == st.RESOLVED:
            entry -= past[key].T
        entry[owner] = 0
    waiting, rest, bounds = _queued(live, past)
    shed_at = state.shed_at[live.alive()]
    held = slice(first - base, store.tuples - base)
    gone = int(state.whole[st.ADMISSIONS_GONE])
    return {
        "setting": state.setting.copy(),
        "window": state.window.copy(),
        "cost": np.array([live.total_cost]),
        "matches": live.matches,
        "found": live.found,
        "whole": whole,
        "real": real,
        "shed": state.shed.copy(),
        "shed_at": np.where(shed_at < _oldest(live), -st.FOREVER, shed_at),
        "active": entry,
        "entry": waiting,
        "rest": rest,
        "bounds": bounds,
        "tuples": live.tuples.copy(),
        "ts": store.side.ts[held].copy(),
        "stream": live.held()[0].astype(np.int8),
        "listed": listed,
        "admissions": state.admissions[first - gone : store.tuples - gone].copy(),
        **({"coins": state.coins[first - gone : store.tuples - gone].copy()} if join.followed else {}),
        **({"draws": state.draws.copy()} if join.followed else {}),
        "zone": zone_of(store),
        **(sketches_of(store) if state.setting[st.GUIDE] == st.COUNTSKETCH else {}),
        "sample": live.sample.capture(),
    }


def _oldest(live: LiveMultiway) -> int:
    """The oldest time that the tuple last dealt with joins with."""
    assert live.plan.window is not None
    return max(-st.FOREVER, int(live.join.state.whole[st.NOW_TS]) - live.plan.window)


def _passed(live: LiveMultiway, entry: Array) -> Array:
    """Which entries' windows have passed, so that nobody looks at their tuples again."""
    if live.plan.preference == "weighted":
        return np.zeros(entry.shape[0], bool)
    passed: Array = entry[:, queue_kernels.TIME] < _oldest(live)
    return passed


def _queued(live: LiveMultiway, past: Array) -> tuple[Array, Array, Array]:
    """The entries that wait, from the least class, oldest first, and their bounds in every stream."""
    queue = live.join.queue
    if queue is None:
        none = np.zeros((0, queue_kernels.ENTRY_FIELDS), np.int64)
        return none, np.zeros((0, queue_kernels.REAL_FIELDS)), np.zeros((0, live.streams, 2), np.int64)
    places = np.empty(int(queue.control[queue_kernels.SIZE]), np.int64)
    live_kernels.places(queue, places)
    entry, rest, bounds = queue.entry[places], queue.real[places], live.join.bounds[places]
    entry[:, queue_kernels.SIDE] = 0
    passed = _passed(live, entry)
    bounds[passed] = 0
    here = np.flatnonzero(~passed)
    owner, key = live.join.owner(entry[here, queue_kernels.ORDINAL])
    ranked = entry[here, queue_kernels.RESOLVED] == st.RESOLVED
    bounds[here[ranked]] -= past[key[ranked]][:, :, None]
    bounds[here, owner] = 0
    return entry, rest, bounds


def restored(live: LiveMultiway, held: Held, keys: tuple[pa.Array, ...]) -> None:
    """Be where another join of this plan was.  keys: of the tuples held, stream by stream.  Raises EnvelopeError."""
    state, n = live.join.state, live.streams
    for name, known in (("setting", state.setting), ("window", state.window)):
        if not np.array_equal(held.array(name, "int64", known.shape), known):
            held.refuse(f"the {name} of this query", "another")
    whole, real = held.array("whole", "int64", state.whole.shape), finite(held, "real", state.real.shape)
    tuples, ts = held.counts("tuples", n), held.rising("ts")
    owner, listed = held.array("stream", "int8", ts.shape), held.array("listed", "uint8", ts.shape)
    encoded = [live.encode(each).codes for each in keys]
    sizes = np.array([each.shape[0] for each in encoded])
    if ((owner < 0) | (owner >= n)).any() or not np.array_equal(np.bincount(owner, minlength=n), sizes):
        held.refuse("as many tuples of each stream as there are keys", "others")
    if (tuples < sizes).any() or tuples.max() > MOST // n:
        held.refuse("tuples that came, at least those held", "others")
    key = np.empty(ts.shape[0], np.int32)
    for k in range(n):
        key[owner == k] = encoded[k]
    if (listed > (key >= 0)).any():
        held.refuse("lists of tuples that have a key", "others")
    admissions = finite(held, "admissions", ts.shape if live.sampled else (0,))
    if ((admissions != 0.0) & ((admissions < _LEAST_ADMISSION) | (admissions > 1.0))).any():
        held.refuse("admissions from 0 to 1", "others")
    coins = None
    if live.join.followed and held.has("coins"):
        coins = finite(held, "coins", ts.shape)
        state.draws[:] = finite(held, "draws", state.draws.shape)
        if ((coins < 0.0) | (coins > 1.0)).any() or (state.draws[ms.WITHIN :] < 0.0).any():
            held.refuse("coins from 0 to 1, and a place in a sample", "others")
    live.go_on_from(tuples, ts, owner, key, admissions, coins)
    _put_whole(live, held, whole, real)
    live.join.state.shed[:] = held.counts("shed", n)
    live.join.state.shed_at[: live.table.known] = held.array("shed_at", "int64", (live.table.known,))
    put_lists(live.join.store, listed)
    put_sketches(live.join.store, held, bool(state.setting[st.GUIDE] == st.COUNTSKETCH))
    live.count_from(
        float(finite(held, "cost", (1,))[0]), held.integer("matches", 0, MOST), held.integer("found", 0, MOST)
    )
    _put_queue(live, held)
    _put_active(live, held)
    live.sample.restore(held.part("sample"))


def _put_whole(live: LiveMultiway, held: Held, whole: Array, real: Array) -> None:
    """Positions in the input must agree with the tuples that are put back."""
    state, first = live.join.state, int(live.join.state.whole[st.APPLIED])
    fits = whole[st.ARRIVED] == live.arrivals and first <= whole[st.APPLIED] <= live.arrivals
    fits = fits and (whole[list(_WORK_SPACE)] == 0).all() and 0 <= whole[st.ACTIVE] <= st.RESOLVED
    if not fits:
        held.refuse("positions that agree with the tuples held", "others")
    state.whole[:], state.real[:] = whole, real
    state.whole[[st.ARRIVALS_GONE, st.ADMISSIONS_GONE]] = first


def _put_queue(live: LiveMultiway, held: Held) -> None:
    q = queue_kernels
    entry = held.array("entry", "int64", (None, q.ENTRY_FIELDS))
    n = entry.shape[0]
    rest = finite(held, "rest", (n, q.REAL_FIELDS))
    bounds = held.array("bounds", "int64", (n, live.streams, 2))
    if live.plan.is_exact or not live.fed:
        if n:
            held.refuse("nothing that waits", f"{n} entries")
        return
    klass, resolved = entry[:, q.CLASS], entry[:, q.RESOLVED]
    fits = n <= LIMIT and not (klass[1:] < klass[:-1]).any() and not entry[:, q.SIDE].any()
    fits = fits and not ((klass < 0) | (klass >= q.CLASSES) | ~np.isin(resolved, (st.UNRESOLVED, st.RESOLVED))).any()
    fits = fits and not ((rest[:, q.GAP] < 0.0) | (rest[:, q.STEP] < 1.0) | (rest[:, q.WEIGHT] < 1.0)).any()
    if fits:
        here = np.flatnonzero(~_passed(live, entry))
        fits = _are_reached(live, entry[here, q.ORDINAL], entry[here, q.TIME])
        ranked = here[resolved[here] == st.RESOLVED]
        fits = fits and _are_ranges(live, entry[ranked, q.ORDINAL], bounds[ranked], entry[ranked, q.HIGH])
    if not fits:
        held.refuse("entries over tuples held", "others")
    queue, place = queue_of(entry, rest)
    put = np.zeros((queue.entry.shape[0], live.streams, 2), np.int64)
    put[place] = bounds
    live.join.put_queue(queue, put)


def _put_active(live: LiveMultiway, held: Held) -> None:
    """The entry in progress must be over tuples held."""
    whole, real = live.join.state.whole, live.join.state.real
    entry = held.array("active", "int64", live.join.state.entry.shape)
    if whole[st.ACTIVE]:
        arrival, total = whole[[st.ENTRY_ORDINAL]], whole[[ms.ENTRY_TOTAL]]
        fits = _are_reached(live, arrival, whole[[st.ENTRY_TIME]])
        if fits and whole[st.ACTIVE] == st.RESOLVED:
            fits = _are_ranges(live, arrival, entry[None], total)
        fits = fits and real[st.ENTRY_GAP] >= 0.0 and real[st.ENTRY_STEP] >= 1.0 and real[st.ENTRY_WEIGHT] >= 1.0
        if not fits:
            held.refuse("an entry in progress over tuples held", "another")
    live.join.state.entry[:] = entry


def _are_reached(live: LiveMultiway, arrivals: Array, times: Array) -> bool:
    """Whether tuples are held, have been dealt with, have a key and came at these times."""
    side = live.join.store.side
    base = int(side.meta[ga.BASE])
    if ((arrivals < base) | (arrivals >= live.join.state.whole[st.APPLIED])).any():
        return False
    return bool((side.code[arrivals - base] >= 0).all() and np.array_equal(side.ts[arrivals - base], times))


def _are_ranges(live: LiveMultiway, arrivals: Array, bounds: Array, totals: Array) -> bool:
    """Whether the lists of these tuples' keys have the ranges [low, high), whose product is the total."""
    owner, key = live.join.owner(arrivals)
    listed = live.join.store.side.lists[(key[:, None] * live.streams + np.arange(live.streams)), ga.HELD]
    low, high = bounds[:, :, 0], bounds[:, :, 1]
    if ((low < 0) | (high < low) | (high > listed)).any():
        return False
    sizes = high - low
    sizes[np.arange(owner.shape[0]), owner] = 1
    return bool((np.prod(sizes, axis=1) == totals).all() and (totals > 0).all())
