"""A plan of `nile.runtime.precision` at work on values, with synopses of given sizes: what is measured of a forecast.

Ids of tuples are uint64; those of pairs are made of both.  With no memory given the plan is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nile.runtime.precision import TUPLE_BITS, Distinct, Except, Intersect, Join, Leaf, Node, Select, Union, hashes_of

__all__ = ["Bloom", "measured", "run"]

Array = np.ndarray[Any, Any]
_BLOCK = 64
"""Values that are looked up together, before they are put in; at first one by one, while each counts for much."""


def _mixed(values: Array, seed: int) -> Array:
    """splitmix64 of ids."""
    with np.errstate(over="ignore"):
        z = values + np.uint64(0x9E3779B97F4A7C15) * np.uint64(2 * seed + 1)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))


def _units(values: Array, seed: int) -> Array:
    return np.asarray((_mixed(values, seed) >> np.uint64(11)) / 2.0**53)


class Bloom:
    """Which values were put in: never wrong about those, and about others as often as its bits allow.

    Source: Bloom, CACM 1970; false positives of n values in m bits by k hash functions: (1 - exp(-kn/m))^k.
    """

    def __init__(self, bits: int, hashes: int, seed: int = 0) -> None:
        self._bits = np.zeros(max(bits, 1), bool)
        self._seeds = [seed * 64 + k for k in range(hashes)]

    @property
    def memory(self) -> int:
        """Bits."""
        return int(self._bits.size)

    def places(self, values: Array) -> Array:
        """The bits of values (uint64 [n]): uint64 [hashes, n]."""
        return np.stack([_mixed(values, seed) % np.uint64(self._bits.size) for seed in self._seeds])

    def add(self, values: Array) -> None:
        """Put values (uint64 [n]) in."""
        self._bits[self.places(values)] = True

    def has(self, values: Array) -> Array:
        """Which of them seem to be in: bool [n]."""
        return np.asarray(self._bits[self.places(values)].all(axis=0))

    def new(self, places: Array) -> Array:
        """Put the values of some places in that do not seem to be in, and tell which those are: bool [n]."""
        fresh = ~self._bits[places].all(axis=0)
        self._bits[places[:, fresh]] = True
        return np.asarray(fresh)


def run(node: Node, domain: int, memory: Sequence[int] | None, seed: int) -> Array:
    """The ids that come out: uint64 [n].  memory: bits of each synopsis, as in `expected`; None: all that it takes."""
    return _Work(domain, None if memory is None else list(memory), seed).of(node)


def measured(node: Node, domain: int, memories: Sequence[Sequence[int]], seed: int) -> list[tuple[float, float]]:
    """(FP, FN) of a plan under each of some splits of memory, beside the exact one over the same values."""
    drawn: dict[int, Array] = {}
    exact, out = _Work(domain, None, seed, drawn).of(node), []
    for memory in memories:
        found = _Work(domain, list(memory), seed, drawn).of(node)
        right = np.intersect1d(exact, found, assume_unique=True).size
        out.append((1.0 - right / found.size if found.size else 0.0, 1.0 - right / exact.size if exact.size else 0.0))
    return out


class _Work:
    """Numbers nodes as it meets them, so that equal draws are made whatever the memory."""

    def __init__(self, domain: int, memory: list[int] | None, seed: int, drawn: dict[int, Array] | None = None) -> None:
        """drawn: leaves of another run with this seed."""
        self._domain, self._memory, self._seed, self._node = domain, memory, seed, 0
        self._drawn = {} if drawn is None else drawn

    def _bits(self) -> int | None:
        return None if self._memory is None else self._memory.pop(0)

    def of(self, node: Node) -> Array:
        """What comes out of a node."""
        self._node += 1
        seed = (self._seed * 1_000 + self._node) * 16  # draws of a node have the numbers from here on
        match node:
            case Leaf():
                if seed not in self._drawn:
                    draw = np.random.Generator(np.random.PCG64(seed))
                    values = draw.choice(self._domain, node.size, replace=False).astype(np.uint64)
                    again = draw.permutation(np.repeat(values, node.repeats)) if node.repeats > 1 else values
                    self._drawn[seed] = again
                return self._drawn[seed]
            case Select():
                values = self.of(node.input)
                return values[_units(values, seed + 5) < node.share]
            case Distinct():
                return self._distinct(self.of(node.input), seed)
        left, right = self.of(node.left), self.of(node.right)
        match node:
            case Union():
                return np.union1d(left, right)
            case Join():
                return self._joined(left, right, node.keys, seed)
            case _:
                inside = np.isin(left, right)
                if (bits := self._bits()) is not None:
                    held = Bloom(bits, hashes_of(bits, right.size), seed)
                    held.add(right)
                    inside = held.has(left)
                assert isinstance(node, Except | Intersect)
                return left[inside if isinstance(node, Intersect) else ~inside]

    def _distinct(self, values: Array, seed: int) -> Array:
        _, first = np.unique(values, return_index=True)
        once = values[np.sort(first)]  # a filter that has seen a value by mistake has seen it for good
        if (bits := self._bits()) is None:
            return once
        held = Bloom(bits, hashes_of(bits, once.size), seed)
        places, fresh, begin = held.places(once), np.zeros(once.size, bool), 0
        while begin < once.size:
            end = begin + max(1, min(_BLOCK, begin // 16))
            fresh[begin:end] = held.new(places[:, begin:end])
            begin = end
        return once[fresh]

    def _joined(self, left: Array, right: Array, keys: int, seed: int) -> Array:
        codes = [_mixed(side, seed + 8 + k) % np.uint64(keys) for k, side in enumerate((left, right))]
        order = np.argsort(codes[1])
        begin, end = (np.searchsorted(codes[1][order], codes[0], side) for side in ("left", "right"))
        sizes = end - begin
        own = np.repeat(np.arange(left.size), sizes)
        starts = np.repeat(begin - (np.cumsum(sizes) - sizes), sizes)
        mine, other = left[own], right[order[np.arange(own.size) + starts]]
        with np.errstate(over="ignore"):
            pairs = _mixed(mine, seed + 6) * np.uint64(3) + _mixed(other, seed + 7)
        if self._memory is None:
            return pairs
        shares = []
        for side in (left, right):
            bits = self._bits()
            shares.append((bits or 0) / TUPLE_BITS / max(side.size, 1))
        first = _units(mine, seed + 1) < _units(other, seed + 2)  # when each came
        kept = np.where(first, _units(mine, seed + 3) < shares[0], _units(other, seed + 4) < shares[1])
        return np.asarray(pairs[kept])
