"""Kernels of Bloom filters that hold of each place when a value was last put there, and of what waits for one side."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.kernels import U8, inlined, kernel, part

Array = np.ndarray[Any, Any]

LIVE, DUE, GONE, NEWEST = 0, 1, 2, 3
"""Places in the state: cells that are of a value in the window, when they are to be counted again, how many left in
the pause before they were counted last, which are taken to leave evenly in the next, and the newest tick."""
NEVER_YET = np.iinfo(np.int64).min
EDGE = NEVER_YET + 1
"""Earlier than all that was ever put in; what was not is before it."""
PERIOD = (1 << 16) - 1
"""Ticks that cells of 16 bits tell apart: of tick t they hold t % PERIOD + 1, and 0 of none."""


@inlined
def _mixed(z: Any) -> Any:
    """splitmix64's last steps."""
    z = (z ^ (z >> U8(30))) * U8(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> U8(27))) * U8(0x94D049BB133111EB)
    return z ^ (z >> U8(31))


@inlined
def _edge(now: int, back: int, window: int) -> int:
    """What came before this instant is not within `back` of now."""
    return EDGE if window < 0 or now < EDGE + back else now - back


@inlined
def _tick(now: int, tick: int) -> int:
    """The tick in which an instant is: it ends then, or later."""
    return -((-now) // tick)


@inlined
def _time(cell: Any, newest: int, tick: int, window: int) -> Any:
    """When a value was last put into a cell, or less than a tick later.  newest: no cell is of a later tick."""
    if cell == 0:
        return NEVER_YET
    if window < 0:
        return EDGE
    age = newest % PERIOD + 1 - cell
    return (newest - (age if age >= 0 else age + PERIOD)) * tick


@part
def _count(now: int, edge: int, cells: Array, tick: int, window: int, pause: int, state: Array) -> None:
    """Count living cells and empty the others, if it is time to; it is before ticks begin anew."""
    if now < state[DUE]:
        return
    live = 0
    newest = state[NEWEST]
    for at in range(cells.shape[0]):
        if cells[at] == 0:
            continue
        if _time(np.int64(cells[at]), newest, tick, window) >= edge:
            live += 1
        else:
            cells[at] = 0
    state[GONE] = state[LIVE] - live if now - state[DUE] < pause else 0
    state[LIVE] = live
    state[DUE] = (now // pause + 1) * pause


@inlined
def _seems(now: int, size: int, hash_functions: int, pause: int, state: Array) -> float:
    """How probably a value that is not there seems to be."""
    living = state[LIVE] - state[GONE] * (1.0 - (state[DUE] - now) / pause)
    share = 1.0
    for _ in range(hash_functions):
        share *= living / size
    return share


@kernel
def newly(
    ts: Array, hashes: Array, cells: Array, hash_functions: int, window: int, tick: int, pause: int, state: Array,
    fresh: Array, seems: Array,
) -> None:  # fmt: skip
    """Put values in, and tell which were not in the window for sure.

    ts int64 [n], not falling; hashes uint64 [n]; cells uint16 [2**k], the tick when a value was last there; window: a
    value of time t has left after t + window, negative: never; tick: ns, of which a window and a pause have less than
    PERIOD; pause: ns between two counts of living cells; state int64 [4].
    fresh bool [n]; seems float64 [n], how probably a value that was not there would have seemed to be.
    """
    size = cells.shape[0]
    most = U8(size - 1)
    for i in range(ts.shape[0]):
        now = ts[i]
        edge = _edge(now, window + 1, window)
        _count(now, edge, cells, tick, window, pause, state)
        newest = _tick(now, tick)
        state[NEWEST] = newest
        own = np.uint16(newest % PERIOD + 1)
        first = _mixed(hashes[i])
        step = _mixed(first + U8(0x9E3779B97F4A7C15)) | U8(1)
        seems[i] = _seems(now, size, hash_functions, pause, state)
        seen = True
        for k in range(hash_functions):
            c = np.int64((first + U8(k) * step) & most)
            if _time(np.int64(cells[c]), newest, tick, window) < edge:
                seen = False
                state[LIVE] += 1
            cells[c] = own
        fresh[i] = not seen


@part
def _last(value: Any, cells: Array, hash_functions: int, newest: int, tick: int, window: int) -> Any:
    """When a value was last put in, or later."""
    most = U8(cells.shape[0] - 1)
    first = _mixed(value)
    step = _mixed(first + U8(0x9E3779B97F4A7C15)) | U8(1)
    last = _time(np.int64(cells[np.int64(first & most)]), newest, tick, window)
    for k in range(1, hash_functions):
        at = np.int64((first + U8(k) * step) & most)
        last = min(last, _time(np.int64(cells[at]), newest, tick, window))
    return last


@part
def _put(
    value: Any, edge: int, cells: Array, hash_functions: int, newest: int, tick: int, window: int, state: Array
) -> None:
    most = U8(cells.shape[0] - 1)
    first = _mixed(value)
    step = _mixed(first + U8(0x9E3779B97F4A7C15)) | U8(1)
    for k in range(hash_functions):
        c = np.int64((first + U8(k) * step) & most)
        if _time(np.int64(cells[c]), newest, tick, window) < edge:
            state[LIVE] += 1
        cells[c] = np.uint16(newest % PERIOD + 1)


@inlined
def _of_side(value: Any, side: int) -> Any:
    """Both filters have places of their own: values that are on both sides would fill the same ones."""
    return value ^ (U8(side) * U8(0xD1B54A32D192ED03))


@kernel
def beside(
    ts: Array, sides: Array, hashes: Array, cells: Array, hash_functions: int, window: int, tick: int, pause: int,
    state: Array, stood: Array, since: Array, seems: Array,
) -> None:  # fmt: skip
    """Put values of two sides in, each into its own filter, and tell of each what both filters say of it.

    ts int64 [n], not falling; sides int8 [n], 0 or 1; hashes uint64 [n]; cells uint16 [2, 2**k]; window, tick,
    pause, state [2, 4]: of each side as in `newly`.  Of values of one instant all are looked up before any is put in.
    stood bool [n, 3]: whether it seems to have been on its own side before this instant, to be on the other now, to
    have been there before; since int64 [n]: when it was last on the other, or later; seems float64 [n, 2]: how
    probably a value that is not there seems to be on its own, and on the other.
    """
    size = cells.shape[1]
    i = 0
    while i < ts.shape[0]:
        now = ts[i]
        before, inside = _edge(now, window + 1, window), _edge(now, window, window)
        end = i
        while end < ts.shape[0] and ts[end] == now:
            end += 1
        for side in range(2):
            _count(now, before, cells[side], tick, window, pause, state[side])
        newest = _tick(now, tick)
        state[0, NEWEST] = state[1, NEWEST] = newest
        for at in range(i, end):
            own = sides[at]
            last = _last(_of_side(hashes[at], own), cells[own], hash_functions, newest, tick, window)
            stood[at, 0] = last >= before
            last = _last(_of_side(hashes[at], 1 - own), cells[1 - own], hash_functions, newest, tick, window)
            stood[at, 2] = last >= before
            seems[at, 0] = _seems(now, size, hash_functions, pause, state[own])
        for at in range(i, end):
            own = sides[at]
            _put(_of_side(hashes[at], own), before, cells[own], hash_functions, newest, tick, window, state[own])
        for at in range(i, end):
            other = 1 - sides[at]
            last = _last(_of_side(hashes[at], other), cells[other], hash_functions, newest, tick, window)
            since[at] = min(last, now)
            stood[at, 1] = since[at] >= inside
            seems[at, 1] = _seems(now, size, hash_functions, pause, state[other])
        i = end


@part
def _sunk(due: Array, whose: Array, size: int, at: int) -> None:
    """Let an item of a heap, the earliest first, sink to its place."""
    while True:
        least = at
        for child in (2 * at + 1, 2 * at + 2):
            if child < size and due[child] < due[least]:
                least = child
        if least == at:
            return
        due[at], due[least] = due[least], due[at]
        whose[at], whose[least] = whose[least], whose[at]
        at = least


@part
def _risen(due: Array, whose: Array, at: int) -> None:
    """Let an item of a heap rise to its place."""
    while at > 0:
        above = (at - 1) // 2
        if due[above] <= due[at]:
            return
        due[at], due[above] = due[above], due[at]
        whose[at], whose[above] = whose[above], whose[at]
        at = above


@part
def _returned(
    before: int, window: int, left: Array, right: Array, stands: Array, due: Array, whose: Array, size: Array,
    out_ts: Array, out_code: Array, out_stands: Array, written: int,
) -> int:  # fmt: skip
    """Values that the right side lets go of before an instant: those that are on the left come out."""
    while size[0] > 0 and due[0] < before:
        now, code = due[0], whose[0]
        if right[code] + window + 1 > now:
            due[0] = right[code] + window + 1
        else:
            if left[code] >= now - window:
                out_ts[written], out_code[written], out_stands[written] = now, code, stands[code]
                written += 1
            left[code] = NEVER_YET
            size[0] -= 1
            due[0], whose[0] = due[size[0]], whose[size[0]]
        _sunk(due, whose, size[0], 0)
    return written


@kernel
def waited(
    ts: Array, sides: Array, begins: Array, codes: Array, since: Array, worth: Array, done: int, window: int,
    left: Array, right: Array, stands: Array, due: Array, whose: Array, size: Array, out_ts: Array, out_code: Array,
    out_stands: Array,
) -> int:  # fmt: skip
    """Let values wait until the right side has let go of them; how many do come out up to `done`.

    ts int64 [n], not falling; sides int8 [n]: 0 of a value of the left that is on the right, 1 of any of the right;
    begins bool [n]: whether it begins to wait: one of the left that was not there before, so that nobody was told of
    it, and one of the right that is on the left; codes int64 [n]; since int64 [n]: of the left when it was last on the
    right, or later; worth float64 [n]: how many that might have begun to wait each stands for.
    left, right: int64 [codes], when a value that waits was last on either side, left NEVER_YET of others; stands:
    float64 [codes], how many each stands for; due, whose: int64 [codes], a heap of those that wait by when the right
    lets go of them, or before; size: int64 [1].
    out_ts, out_code: int64 [codes + n], in time order; out_stands: float64 [codes + n].

    What the right brings waits, too: were it for the left alone, a value that was told and now seems to be on the right
    by mistake would be told again.
    """
    written = 0
    for i in range(ts.shape[0]):
        written = _returned(
            ts[i], window, left, right, stands, due, whose, size, out_ts, out_code, out_stands, written
        )  # fmt: skip
        code = codes[i]
        if left[code] == NEVER_YET:
            if not begins[i]:
                continue
            stands[code] = worth[i]
            right[code] = since[i] if sides[i] == 0 else ts[i]
            left[code] = ts[i] if sides[i] == 0 else EDGE  # what the left has brought by now leaves before the right
            due[size[0]], whose[size[0]] = right[code] + window + 1, code
            size[0] += 1
            _risen(due, whose, size[0] - 1)
        elif sides[i] == 0:
            left[code] = ts[i]
        else:
            right[code] = ts[i]
    return _returned(done + 1, window, left, right, stands, due, whose, size, out_ts, out_code, out_stands, written)
