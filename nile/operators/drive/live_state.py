"""What a live join holds, taken out as plain values and put back with every value checked.

Kept: tuples a window can reach, which of them are listed, what waits, sketches, clocks, admissions and counters.  Not
kept: what follows from these (codes of keys, hashes, lists, exact counts) and room to grow.  Ranks are counted from
the first tuple held, and entries whose window has passed keep their size alone.  So the same tuples give the same
state, whatever the cuts of the input were and whenever keys were renumbered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nile.exact.state.held import MOST, Held, State
from nile.operators.drive.live_estimate import LiveSample
from nile.operators.join.outcome import codes_of
from nile.preferences import state as st
from nile.preferences.queue import LIMIT, new_queue
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.store import TupleStore
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.drive import live_kernels
    from nile.operators.drive.live_join import LiveJoin
    from nile.preferences import queue_kernels
    from nile.preferences.queue_kernels import Queue
else:
    live_kernels = lazy("nile.operators.drive.live_kernels")
    queue_kernels = lazy("nile.preferences.queue_kernels")

__all__ = [
    "captured",
    "finite",
    "put_lists",
    "put_sketches",
    "queue_of",
    "restored",
    "sketches_of",
    "zone_of",
]

Array = np.ndarray[Any, Any]
_WORK_SPACE = (
    st.WRITTEN,
    st.STOPPED_SIDE,
    st.STOPPED_CODE,
    st.ARRIVALS_GONE,
    st.ADMISSIONS_GONE,
    st.ADMISSIONS_GONE + 1,
)
_ENTRY = (st.ENTRY_SIDE, st.ENTRY_ORDINAL, st.ENTRY_LOW, st.ENTRY_HIGH, st.ENTRY_TIME)
_ENTRY_REAL = (st.ENTRY_GAP, st.ENTRY_STEP, st.ENTRY_WEIGHT)
_LEAST_ADMISSION = 1e-12
_CAME_BY = ("doors", "coins")  # of weighted: levels of key hashes, and coins of tuples where rates follow
_SKETCHED = ("counters", "node", "detector", "recent", "moments")


def captured(join: LiveJoin) -> State:
    """The state of a join, between two takes.  Cost: a copy of what is held."""
    state, first = join.state, join.needed_from()
    whole, real = state.whole.copy(), state.real.copy()
    whole[list(_WORK_SPACE)] = 0
    shown, gone = [], []
    for store, keep in zip(join.stores, first, strict=True):
        listed, past = np.zeros(store.tuples - keep, np.uint8), np.zeros(join.known, np.int64)
        live_kernels.listed(store.side, keep, listed, past)
        shown.append(listed)
        gone.append(past)
    if not whole[st.ACTIVE]:
        whole[list(_ENTRY)] = 0
        real[list(_ENTRY_REAL)] = 0.0
    elif whole[st.ACTIVE] == st.RESOLVED:
        side = int(whole[st.ENTRY_SIDE])
        past = gone[1 - side][codes_of(join.stores[side], whole[[st.ENTRY_ORDINAL]])[0]]
        whole[[st.ENTRY_LOW, st.ENTRY_HIGH]] -= past
    entry, rest = _queued(join, gone)
    alive = join.alive()
    return {
        "setting": state.setting.copy(),
        "window": state.window.copy(),
        "fed": join.fed,
        "last": join.last,
        "cost": np.array([join.total_cost]),
        "matches": join.matches,
        "found": join.found,
        "whole": whole,
        "real": real,
        "seen": state.seen.copy(),
        "open": state.open.copy(),
        "heavy": state.heavy.copy(),
        "waiting": join.join.waiting().copy(),
        "shed_at": _still(state.shed_at[alive], join.oldest()),
        "entry": entry,
        "rest": rest,
        "streams": [
            _stream(join, number, keep, listed)
            for number, (keep, listed) in enumerate(zip(first, shown, strict=True))
        ],
        "sample": join.sample.capture(),
    } | ({} if join.follower is None else {"follower": join.follower.capture()})  # fmt: skip


def _still(shed_at: Array, oldest: int) -> Array:
    """When keys were turned away, as far as anyone asks."""
    return np.where(shed_at < oldest, -st.FOREVER, shed_at)


def _queued(join: LiveJoin, gone: list[Array]) -> tuple[Array, Array]:
    """The entries that wait, from the least class, oldest first."""
    queue = join.join.queue
    if queue is None:
        return np.zeros((0, queue_kernels.ENTRY_FIELDS), np.int64), np.zeros((0, queue_kernels.REAL_FIELDS))
    places = np.empty(int(queue.control[queue_kernels.SIZE]), np.int64)
    live_kernels.places(queue, places)
    entry, rest = queue.entry[places], queue.real[places]
    ranks = entry[:, queue_kernels.RESOLVED] == st.RESOLVED
    for side in (0, 1):
        mine = entry[:, queue_kernels.SIDE] == side
        passed = _passed(join, entry) & mine
        lost = passed & ranks
        entry[lost, queue_kernels.HIGH] -= entry[lost, queue_kernels.LOW]
        entry[lost, queue_kernels.LOW] = 0
        at = np.flatnonzero(mine & ranks & ~passed)
        past = gone[1 - side][codes_of(join.stores[side], entry[at, queue_kernels.ORDINAL])]
        entry[at, queue_kernels.LOW] -= past
        entry[at, queue_kernels.HIGH] -= past
    return entry, rest


def _passed(join: LiveJoin, entry: Array) -> Array:
    """Which entries' windows have passed, so that nobody looks at their tuples again."""
    if join.plan.preference == "weighted":
        return np.zeros(entry.shape[0], bool)
    passed: Array = entry[:, queue_kernels.TIME] < join.oldest()
    return passed


def _stream(join: LiveJoin, number: int, keep: int, listed: Array) -> State:
    store = join.stores[number]
    side = store.side
    held = slice(keep - int(side.meta[ga.BASE]), store.tuples - int(side.meta[ga.BASE]))
    out: State = {"tuples": store.tuples, "ts": side.ts[held].copy(), "listed": listed, "zone": zone_of(store)}
    if join.state.setting[st.GUIDE] == st.COUNTSKETCH:
        out |= sketches_of(store)
    if join.sampled:
        begin = keep - int(join.state.whole[st.ADMISSIONS_GONE + number])
        for name, each in zip(_CAME_BY, join.came_by(number), strict=False):
            out[name] = each[begin : begin + listed.shape[0]].copy()
    return out


def zone_of(store: TupleStore) -> Array:
    """The zones of a store, between two takes."""
    zone: Array = store.side.zone.copy()
    zone[ga.TURNING] = 0
    return zone


def sketches_of(store: TupleStore) -> State:
    """The sketches of a store, for `put_sketches`."""
    out: State = {name: getattr(store.side, name).copy() for name in _SKETCHED}
    out["ring"] = store.side.gran[:, [ga.HEAD, ga.SIZE]]
    return out


def restored(join: LiveJoin, held: Held, keys: tuple[pa.Array, ...]) -> None:
    """Be where another join of this plan was.  keys: of the tuples held, of left and right.  Raises EnvelopeError."""
    state = join.state
    for name, known in (("setting", state.setting), ("window", state.window)):
        if not np.array_equal(held.array(name, "int64", known.shape), known):
            held.refuse(f"the {name} of this query", "another")
    if not held.has("follower"):  # an older one promised, and what it promised waits in its queue
        join.join.follow(None)
        join.sample = LiveSample(join.plan.window, met=join.sampled)
    fed, last = held.integer("fed", 0, MOST), held.integer_or_none("last")
    whole = held.array("whole", "int64", state.whole.shape).copy()
    real = finite(held, "real", state.real.shape)
    waiting = held.array("waiting", "int8", (None,))
    if ((waiting < 0) | (waiting > 1)).any() or (last is None) != (fed == 0):
        held.refuse("arrivals of left and right", "others")
    encoded = [join.encode(each) for each in keys]
    parts = held.parts("streams", 2)
    for number, (part, key) in enumerate(zip(parts, encoded, strict=True)):
        _put_stream(join, number, part, key, last)
    _check_places(join, held, whole, waiting, fed)
    entrance = state.real[st.ENTRANCE]
    state.whole[:], state.real[:] = whole, real
    state.seen[:] = finite(held, "seen", state.seen.shape)
    shut = held.array("open", "uint8", state.open.shape)
    if (shut > 1).any() or (state.seen < 0).any():
        held.refuse("slots that are open or shut", "others")
    state.open[:] = shut
    if held.has("heavy"):
        state.heavy[:] = held.array("heavy", "int64", state.heavy.shape)
    else:  # an older one noted no keys, and had less to pay for before a tuple came in
        state.real[st.ENTRANCE] = entrance
    join.go_on_from(
        fed,
        last,
        float(finite(held, "cost", (1,))[0]),
        held.integer("matches", 0, MOST),
        held.integer("found", 0, MOST),
        waiting,
    )
    shed_at = held.array("shed_at", "int64", (join.known,))
    join.state.shed_at[: join.known] = shed_at
    _put_queue(join, held)
    _check_active(join, held)
    join.sample.restore(held.part("sample"))
    if join.follower is not None:
        join.follower.restore(held.part("follower"))


def _put_stream(join: LiveJoin, number: int, part: Held, key: Any, last: int | None) -> None:
    store = join.stores[number]
    n = key.codes.shape[0]
    tuples = part.integer("tuples", n, MOST)
    ts = part.rising("ts", n)
    if n and (last is None or ts[-1] > last):
        part.refuse("times up to the last", "later ones")
    listed = part.array("listed", "uint8", (n,))
    if (listed > (key.codes >= 0)).any():
        part.refuse("lists of tuples that have a key", "others")
    store.tuples = tuples - n
    store.side.meta[ga.BASE] = store.side.meta[ga.KEEP_FROM] = tuples - n
    store.extend(ts, key.codes, key.hashes, join.known)
    put_lists(store, listed)
    put_sketches(store, part, join.state.setting[st.GUIDE] == st.COUNTSKETCH)
    if join.sampled:
        came_by = [finite(part, name, (n,)) for name in _CAME_BY[: len(join.came_by(number))]]
        for each in came_by:
            if ((each != 0.0) & ((each < _LEAST_ADMISSION) | (each > 1.0))).any():
                part.refuse("doors from 0 to 1", "others")
        join.put_admissions(number, *came_by)
    part.end()


def put_lists(store: TupleStore, listed: Array) -> None:
    """Put the tuples held that were listed back into the lists of their keys.  listed: uint8 [held]."""
    first, done = store.tuples - listed.shape[0], 0
    while (stopped := live_kernels.put_back(store.side, first + done, listed[done:])) >= 0:
        done = stopped - first
        store.grow_arena(store.code_of(stopped))


def put_sketches(store: TupleStore, part: Held, sketched: bool) -> None:
    """Put zones, and sketches where there are any, back.  Raises EnvelopeError."""
    side = store.side
    zone = part.array("zone", "int64", (ga.ZONE_FIELDS,))
    if not (0 <= zone[ga.KEPT_FROM] <= store.tuples and 0 <= zone[ga.NEXT] <= store.tuples):
        part.refuse("zones of tuples that there are", "others")
    side.zone[:] = zone
    if not sketched:
        return
    for name in _SKETCHED:
        into = getattr(side, name)
        into[...] = part.array(name, into.dtype.name, into.shape)
    assert side.node.shape[1] == ga.NODE_FIELDS
    ring = part.array("ring", "int64", (side.gran.shape[0], 2))
    if (ring < 0).any() or (ring[:, 0] >= side.gran[:, ga.RING]).any() or (ring[:, 1] > side.gran[:, ga.RING]).any():
        part.refuse("rings of zones within their granularities", "others")
    side.gran[:, [ga.HEAD, ga.SIZE]] = ring


def _check_places(join: LiveJoin, held: Held, whole: Array, waiting: Array, fed: int) -> None:
    """Positions in the input and in the streams must agree with what is held."""
    rights = int(np.count_nonzero(waiting))
    counts = (waiting.shape[0] - rights, rights)
    tuples = [store.tuples for store in join.stores]
    fits = whole[st.ARRIVED] == fed == sum(tuples) and whole[st.APPLIED] == fed - waiting.shape[0]
    for side in (0, 1):
        fits = fits and whole[st.SEQUENCE + side] == tuples[side] - counts[side]
        fits = fits and tuples[side] - counts[side] >= int(join.stores[side].side.meta[ga.BASE])
        if not join.plan.is_exact:
            fits = fits and whole[st.ARRIVED_BY_SIDE + side] == tuples[side]
    sampled = int(whole[st.SAMPLED])
    fits = fits and sampled in (8, 16, 32, 64, 128, 256, 512)
    fits = fits and (whole[list(_WORK_SPACE)] == 0).all() and 0 <= whole[st.ACTIVE] <= st.RESOLVED
    if not fits:
        held.refuse("positions that agree with the tuples held", "others")


def _put_queue(join: LiveJoin, held: Held) -> None:
    q = queue_kernels
    entry = held.array("entry", "int64", (None, q.ENTRY_FIELDS))
    n = entry.shape[0]
    rest = finite(held, "rest", (n, q.REAL_FIELDS))
    if join.plan.is_exact or not join.fed:
        if n:
            held.refuse("nothing that waits", f"{n} entries")
        return
    klass, resolved = entry[:, q.CLASS], entry[:, q.RESOLVED]
    fits = n <= LIMIT and not (klass[1:] < klass[:-1]).any()
    fits = (
        fits and not ((klass < 0) | (klass >= q.CLASSES) | (resolved < st.UNRESOLVED) | (resolved > st.RESOLVED)).any()
    )
    fits = fits and not ((entry[:, q.SIDE] < 0) | (entry[:, q.SIDE] > 1)).any()
    fits = fits and not ((entry[:, q.LOW] < 0) | (entry[:, q.HIGH] < entry[:, q.LOW])).any()
    fits = fits and not ((rest[:, q.GAP] < 0.0) | (rest[:, q.STEP] < 1.0) | (rest[:, q.WEIGHT] < 1.0)).any()
    passed = _passed(join, entry)
    for side in (0, 1) if fits else ():
        mine = entry[(entry[:, q.SIDE] == side) & ~passed]
        fits = fits and _are_reached(join, side, mine[:, q.ORDINAL], mine[:, q.TIME])
        ranked = mine[mine[:, q.RESOLVED] == st.RESOLVED]
        fits = fits and _are_listed(join, side, ranked[:, q.ORDINAL], ranked[:, q.HIGH])
    if not fits:
        held.refuse("entries over tuples held", "others")
    join.join.put_queue(queue_of(entry, rest)[0])


def queue_of(entry: Array, rest: Array) -> tuple[Queue, Array]:
    """A queue of these entries, the least class first and its oldest first; where each stands in it."""
    queue, place = new_queue(), np.empty(entry.shape[0], np.int64)
    if entry.shape[0] > queue.entry.shape[0]:
        queue = new_queue(1 << (entry.shape[0] - 1).bit_length())
    live_kernels.put_in(queue, entry, rest, place)
    return queue, place


def _check_active(join: LiveJoin, held: Held) -> None:
    """The entry in progress must be over tuples held."""
    whole, real = join.state.whole, join.state.real
    if not whole[st.ACTIVE]:
        return
    side, low, high = (int(whole[field]) for field in (st.ENTRY_SIDE, st.ENTRY_LOW, st.ENTRY_HIGH))
    ordinal, time = whole[[st.ENTRY_ORDINAL]], whole[[st.ENTRY_TIME]]
    fits = side in (0, 1) and 0 <= low <= high and _are_reached(join, side, ordinal, time)
    if fits and whole[st.ACTIVE] == st.RESOLVED:
        fits = _are_listed(join, side, ordinal, whole[[st.ENTRY_HIGH]])
    step = real[st.ENTRY_STEP]  # of one that a follower draws from: the share of its pairs that is drawn
    fits = fits and real[st.ENTRY_GAP] >= 0.0 and real[st.ENTRY_WEIGHT] >= 1.0
    fits = fits and (step >= 1.0 if join.follower is None else 0.0 < step <= 1.0)
    if not fits:
        held.refuse("an entry in progress over tuples held", "another")


def _are_reached(join: LiveJoin, side: int, ordinals: Array, times: Array) -> bool:
    """Whether tuples are held, have been dealt with, have a key and came at these times."""
    base = int(join.stores[side].side.meta[ga.BASE])
    if ((ordinals < base) | (ordinals >= join.state.whole[st.SEQUENCE + side])).any():
        return False
    return bool(
        (codes_of(join.stores[side], ordinals) >= 0).all() and np.array_equal(join.times_of(side, ordinals), times)
    )


def _are_listed(join: LiveJoin, side: int, ordinals: Array, high: Array) -> bool:
    """Whether the other stream's lists of these tuples' keys have that many entries."""
    return bool((high <= join.listed(1 - side, codes_of(join.stores[side], ordinals))).all())


def finite(held: Held, name: str, shape: tuple[int | None, ...]) -> Array:
    """float64 of this shape, none of it infinite or NaN.  Raises EnvelopeError."""
    value = held.array(name, "float64", shape)
    if not np.isfinite(value).all():
        held.refuse(f"{name!r} of finite numbers", "others")
    copy: Array = value.copy()
    return copy
