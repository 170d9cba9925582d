"""What a sample of an input's tuples, or a lent grid, tells of its keys before the weighted join begins."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.region_kernels import root_estimate
from nile.summaries.hash_kernels import mix
from nile.summaries.kernels import U8, inlined, kernel, part

Array = np.ndarray[Any, Any]
_SLOT_BITS = 12


@inlined
def slot_of(h: Any, salt: int) -> int:
    """The part of the key space that a key lies in: twelve bits of a hash of its own."""
    return np.int64(mix(h, salt + 1) >> U8(64 - _SLOT_BITS))  # type: ignore[return-value]


@inlined
def is_looked_at(arrival: int, every: int, salt: int) -> bool:
    """Whether an arrival is one of those that sizes are learnt from: one in each `every`, at random."""
    block = arrival // every
    return bool(arrival - block * every == np.int64(mix(U8(block), salt + 2) >> U8(1)) % every)


@kernel
def sampled_arrivals(every: int, begin: int, end: int, salt: int, out: Array) -> int:
    """The arrivals of begin..end-1 that are looked at, into `out` (int64, room enough); returns how many."""
    n = 0
    for arrival in range(begin, end):
        if is_looked_at(arrival, every, salt):
            out[n] = arrival
            n += 1
    return n


@kernel
def slots_of(hashes: Array, salt: int, out: Array) -> None:
    """out[i] = slot_of(hashes[i]).  hashes: uint64 [n]; out: int64 [n]."""
    for i in range(hashes.shape[0]):
        out[i] = slot_of(hashes[i], salt)


@kernel
def told_of(s: Side, hashes: Array, out: Array) -> None:
    """out[i]: how many tuples of a key a lent grid holds in all.  hashes: uint64 [n]; out: float64 [n].  O(rows)."""
    for i in range(hashes.shape[0]):
        out[i] = 0.0
        for g in range(s.gran.shape[0]):
            out[i] += root_estimate(s, g, hashes[i], s.counters.shape[1])[0]


@part
def may_hold(s: Side, h: Any) -> bool:
    """Whether a lent grid may have a key: by one row."""
    for g in range(s.gran.shape[0]):  # noqa: SIM110, kernels know no generators
        if root_estimate(s, g, h, 1)[1] > 0.0:
            return True
    return False


@kernel
def bounds_of(s: Side, hashes: Array, out: Array) -> None:
    """out[i]: 1 where a lent grid may have a key, 0 where it surely has not.  hashes: uint64 [n]; out: float64 [n]."""
    for i in range(hashes.shape[0]):
        out[i] = 1.0 if may_hold(s, hashes[i]) else 0.0
