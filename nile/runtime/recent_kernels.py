"""Kernels of a Bloom filter that holds of each place when a value was last put there."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.kernels import U8, inlined, kernel

Array = np.ndarray[Any, Any]

LIVE, DUE, GONE = 0, 1, 2
"""Places in the state: cells that are of a value in the window, when they are to be counted again, and how many left in
the pause before they were counted last, which are taken to leave evenly in the next."""
EDGE = np.iinfo(np.int64).min + 1
"""Earlier than all that was ever put in; what was not is before it."""


@inlined
def _mixed(z: Any) -> Any:
    """splitmix64's last steps."""
    z = (z ^ (z >> U8(30))) * U8(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> U8(27))) * U8(0x94D049BB133111EB)
    return z ^ (z >> U8(31))


@kernel
def newly(
    ts: Array, hashes: Array, cells: Array, hash_functions: int, window: int, pause: int, state: Array,
    fresh: Array, seems: Array,
) -> None:  # fmt: skip
    """Put values in, and tell which were not in the window for sure.

    ts int64 [n], not falling; hashes uint64 [n]; cells int64 [2**k], when a value was last there; window: a value of
    time t has left after t + window, negative: never; pause: ns between two counts of living cells; state int64 [3].
    fresh bool [n]; seems float64 [n], how probably a value that was not there would have seemed to be.
    """
    size = cells.shape[0]
    most = U8(size - 1)
    for i in range(ts.shape[0]):
        now = ts[i]
        edge = EDGE if window < 0 or now < EDGE + window + 1 else now - window - 1
        if now >= state[DUE]:
            live = 0
            for at in range(size):
                if cells[at] >= edge:
                    live += 1
            state[GONE] = state[LIVE] - live if now - state[DUE] < pause else 0
            state[LIVE] = live
            state[DUE] = (now // pause + 1) * pause
        first = _mixed(hashes[i])
        step = _mixed(first + U8(0x9E3779B97F4A7C15)) | U8(1)
        living = state[LIVE] - state[GONE] * (1.0 - (state[DUE] - now) / pause)
        share = 1.0
        for _ in range(hash_functions):
            share *= living / size
        seen = True
        for k in range(hash_functions):
            c = np.int64((first + U8(k) * step) & most)
            if cells[c] < edge:
                seen = False
                state[LIVE] += 1
            cells[c] = now
        fresh[i] = not seen
        seems[i] = share
