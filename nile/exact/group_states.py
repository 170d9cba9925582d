"""The state behind aggregates: counts, exact sums, ordered multisets, one of each for a column however many ask.

Every state reads, for each pair (instant, group) that changed, its value before and after, as columns of numbers;
`Reading.column` turns them into an aggregate's Arrow column.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.exact import pipeline_arrow
from nile.exact.pipeline_arrow import Array, pa
from nile.exact.states import grown
from nile.exact.states_types import plain
from nile.exact.states_words import Encoder, from_numbers
from summaries.errors import SumOverflow

__all__ = ["Counted", "Ordered", "State", "Summed", "Touches"]

counting: Any = pipeline_arrow.Late("nile.exact.group_kernels")
summing: Any = pipeline_arrow.Late("nile.exact.group_sums_kernels")
ordering: Any = pipeline_arrow.Late("nile.exact.group_order_kernels")

_LIVE = 3  # of the meta of treaps: nodes in use
_FLIP = np.int64(np.iinfo(np.int64).min)


@dataclass(frozen=True)
class Touches:
    """Tuples and the pairs (instant, group) they touch.

    sign int8 [n]; codes int64 [n], groups; touch int64 [n]; first, last: int64 [pairs], tuples; room: groups are
    below this.
    """

    sign: Array
    codes: Array
    touch: Array
    first: Array
    last: Array
    room: int

    @property
    def pairs(self) -> int:
        return int(self.first.shape[0])


class State(ABC):
    """What one column keeps for all groups."""

    @abstractmethod
    def apply(self, touches: Touches, column: Any) -> tuple[Array, Array]:
        """(before, after) of each pair: numbers, whichever the state reads; equal numbers are equal answers."""

    @abstractmethod
    def column(self, function: str, numbers: Array, kind: Any) -> Any:
        """An aggregate's Arrow column of type `kind` from rows of what `apply` returned."""

    @abstractmethod
    def current(self, codes: Array) -> Array:
        """What `apply` would return for these groups now."""

    @property
    @abstractmethod
    def memory(self) -> int:
        """Bytes."""


def _valid(column: Any) -> Array:
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    valid: Array = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


class Counted(State):
    """How many rows are not null; column None: all.  8 bytes a group."""

    def __init__(self) -> None:
        self._now = np.zeros(1, np.int64)

    def apply(self, touches: Touches, column: Any) -> tuple[Array, Array]:
        self._now = grown(self._now, touches.room)
        old, new = np.zeros(touches.pairs, np.int64), np.zeros(touches.pairs, np.int64)
        valid = np.ones(touches.sign.shape[0], np.bool_) if column is None else _valid(column)
        counting.apply_counts(
            touches.sign, touches.codes, valid, touches.touch, touches.first, touches.last, self._now, old, new
        )  # fmt: skip
        return old[:, None], new[:, None]

    def column(self, function: str, numbers: Array, kind: Any) -> Any:  # noqa: ARG002
        return pa.array(np.ascontiguousarray(numbers[:, 0]))

    def current(self, codes: Array) -> Array:
        self._now = grown(self._now, int(codes.max(initial=-1)) + 1)
        return self._now[codes][:, None]

    @property
    def memory(self) -> int:
        return int(self._now.nbytes)


class Summed(State):
    """Exact sum and count of a column of numbers; serves sum and avg.

    Whole numbers: 24 bytes a group.  Doubles: 40 bytes a group and 8 for every 32 binary digits between the least
    and the greatest value seen (8 digits to begin with).
    """

    def __init__(self, kind: Any) -> None:
        kind = plain(kind)
        self._double = bool(pa.types.is_floating(kind))
        self._unsigned = bool(pa.types.is_uint64(kind))
        self._encoder = Encoder([kind], exact=True)
        self._counts = np.zeros(1, np.int64)
        self._digits = np.zeros((1, 0 if self._double else 2), np.int64)
        self._base = 0
        self._special = np.zeros((1, 3), np.int64)
        self._now = np.zeros(1, np.float64)

    def apply(self, touches: Touches, column: Any) -> tuple[Array, Array]:
        room, pairs = touches.room, touches.pairs
        values = np.ascontiguousarray(self._encoder.encode([column])[:, 0])
        self._counts = grown(self._counts, room)
        self._digits = grown(self._digits, room)
        valid = _valid(column)
        counts = np.zeros((2, pairs), np.int64)
        if not self._double:
            sums = np.zeros((2, pairs, 2), np.int64)
            summing.apply_integers(
                touches.sign, touches.codes, values, valid, self._unsigned, touches.touch, touches.first, touches.last,
                self._digits, self._counts, sums[0], sums[1], counts[0], counts[1],
            )  # fmt: skip
            return np.column_stack([sums[0], counts[0]]), np.column_stack([sums[1], counts[1]])
        self._widen(values)
        self._special = grown(self._special, room)
        self._now = grown(self._now, room)
        sums = np.zeros((2, pairs), np.float64)
        summing.apply_doubles(
            touches.sign, touches.codes, values, valid, touches.touch, touches.first, touches.last, self._base,
            self._digits, self._special, self._now, self._counts, sums[0], sums[1], counts[0], counts[1],
        )  # fmt: skip
        return tuple(np.column_stack([s.view(np.int64), n]) for s, n in zip(sums, counts, strict=True))  # type: ignore[return-value]

    def _widen(self, bits: Array) -> None:
        """Digits enough for every finite value of these bits, and one for carries."""
        exponent = (bits >> 52) & 0x7FF
        exponent = exponent[(exponent < 0x7FF) & ((bits << 1) != 0)]
        if not exponent.shape[0]:
            low, high = self._base, self._base
        else:
            low, high = int(exponent.min()) >> 5, (int(exponent.max()) >> 5) + 4
        width = self._digits.shape[1]
        if width and low >= self._base and high <= self._base + width:
            return
        if not width:
            self._base = max(0, min(low, high - 8))
            self._digits = np.zeros((self._digits.shape[0], max(8, high - self._base)), np.int64)
            return
        base, end = min(low, self._base), max(high, self._base + width)
        wider = np.zeros((self._digits.shape[0], end - base), np.int64)
        wider[:, self._base - base : self._base - base + width] = self._digits
        self._digits, self._base = wider, base

    def column(self, function: str, numbers: Array, kind: Any) -> Any:  # noqa: ARG002
        n = numbers[:, -1]
        none = n == 0
        if self._double:
            total = np.ascontiguousarray(numbers[:, 0]).view(np.float64)
            if function == "avg":
                total = total / np.maximum(n, 1)
            return pa.array(total, mask=none if none.any() else None)
        high, low = numbers[:, 0], numbers[:, 1]
        fits = (high >= -(1 << 31)) & (high < (1 << 31))
        if function == "avg":
            with np.errstate(over="ignore"):
                whole = (high << 32) + low
            total = np.where(fits, whole.astype(np.float64), high * 4294967296.0 + low) / np.maximum(n, 1)
            return pa.array(total, mask=none if none.any() else None)
        if not fits.all():
            at = int(np.flatnonzero(~fits)[0])
            raise SumOverflow(
                f"sum: needed a total within 64 bits; got {int(high[at]) * (1 << 32) + int(low[at])}; "
                "cast the column to double"
            )
        return pa.array((high << 32) + low, mask=none if none.any() else None)

    def current(self, codes: Array) -> Array:
        top = int(codes.max(initial=-1)) + 1
        self._counts, self._digits = grown(self._counts, top), grown(self._digits, top)
        if not self._double:
            return np.column_stack([self._digits[codes], self._counts[codes]])
        self._now = grown(self._now, top)
        return np.column_stack([self._now[codes].view(np.int64), self._counts[codes]])

    @property
    def memory(self) -> int:
        return int(self._counts.nbytes + self._digits.nbytes + self._special.nbytes + self._now.nbytes)


class Ordered(State):
    """An ordered multiset of a column for each group; serves min, max and median.

    44 bytes a different value of a group and 48 a group; text and bytes also keep their different values in order,
    and a batch with new ones renumbers all.
    """

    def __init__(self, kind: Any) -> None:
        self._kind = plain(kind)
        self._encoder = Encoder([self._kind], exact=False)
        self._ranked: list[Any] | None = [] if 0 in self._encoder.values or self._encoder.width > 2 else None
        self._ranks: dict[Any, int] = {}
        self._floating = bool(pa.types.is_floating(self._kind))
        self._unsigned = bool(pa.types.is_uint64(self._kind))
        self.middle = False
        self._roots = np.full(1, -1, np.int64)
        self._keys = np.zeros(16, np.int64)
        self._prios = np.zeros(16, np.int64)
        self._links = np.full((16, 2), -1, np.int64)
        self._sizes = np.zeros((16, 2), np.int64)
        self._meta = np.array([0, -1, 0, 0], np.int64)
        self._now = np.zeros((1, 5), np.int64)

    def apply(self, touches: Touches, column: Any) -> tuple[Array, Array]:
        self._roots = grown(self._roots, touches.room, -1)
        self._now = grown(self._now, touches.room)
        values = self._order_keys(column)
        need = int(self._meta[_LIVE]) + values.shape[0]
        self._keys, self._prios = grown(self._keys, need), grown(self._prios, need)
        self._links, self._sizes = grown(self._links, need, -1), grown(self._sizes, need)
        old, new = np.zeros((touches.pairs, 5), np.int64), np.zeros((touches.pairs, 5), np.int64)
        ordering.apply_ordered(
            touches.sign, touches.codes, values, _valid(column), touches.touch, touches.first, touches.last,
            self.middle, self._roots, self._keys, self._prios, self._links, self._sizes, self._meta, self._now,
            old, new,
        )  # fmt: skip
        return old, new

    def _order_keys(self, column: Any) -> Array:
        """int64 [n], ordered as the values; 0 where null."""
        if self._ranked is not None:
            return self._by_rank(column)
        numbers = np.ascontiguousarray(self._encoder.encode([column])[:, 0])
        return self._turned(numbers)

    def _turned(self, numbers: Array) -> Array:
        """Numbers to keys of the same order, and back: its own inverse."""
        if self._floating:
            return np.where(numbers < 0, ~numbers ^ _FLIP, numbers)
        return numbers ^ _FLIP if self._unsigned else numbers

    def _by_rank(self, column: Any) -> Array:
        assert self._ranked is not None
        encoded = column.dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        fresh = [value for value in distinct if value not in self._ranks]
        if fresh:
            self._rank(fresh)
        table = np.array([self._ranks[value] for value in distinct] + [0], np.int64)
        return table[encoded.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False)]

    def _rank(self, fresh: list[Any]) -> None:
        """Number all values anew, in order; values no node holds are dropped where they are many."""
        assert self._ranked is not None
        old = self._ranked
        if len(old) > 4096 and len(old) > 2 * int(self._meta[_LIVE]):
            held = np.zeros(len(old), bool)
            live = self._sizes[: self._meta[0], 0] > 0
            held[self._keys[: self._meta[0]][live]] = True
            held[self._now[:, 1:][self._now[:, 0] > 0].ravel()] = True
        else:
            held = np.ones(len(old), bool)
        kept = [value for value, stays in zip(old, held, strict=True) if stays]
        self._ranked = sorted([*kept, *fresh])
        self._ranks = {value: i for i, value in enumerate(self._ranked)}
        if old:
            table = np.array([self._ranks.get(value, 0) for value in old], np.int64)
            used = int(self._meta[0])
            live = self._sizes[:used, 0] > 0
            self._keys[:used][live] = table[self._keys[:used][live]]
            alive = self._now[:, 0] > 0
            self._now[alive, 1:] = table[self._now[alive, 1:]]

    def column(self, function: str, numbers: Array, kind: Any) -> Any:
        none = numbers[:, 0] == 0
        mask = none if none.any() else None
        if function != "median":
            return self._values(numbers[:, 1 if function == "min" else 2], mask, kind)
        low, high = self._turned(numbers[:, 3]), self._turned(numbers[:, 4])
        if pa.types.is_temporal(self._kind):
            return from_numbers(low + (high - low) // 2, kind, mask)
        a, b = (self._floats(each) for each in (low, high))
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.where(a == b, a, (a + b) / 2)
            mean = np.where(np.isinf(mean), a / 2 + b / 2, mean)
        return pa.array(mean, mask=mask)

    def _floats(self, numbers: Array) -> Array:
        numbers = np.ascontiguousarray(numbers)
        if self._floating:
            return numbers.view(np.float64)
        return (numbers.view(np.uint64) if self._unsigned else numbers).astype(np.float64)

    def _values(self, keys: Array, mask: Any, kind: Any) -> Any:
        if self._ranked is None:
            return from_numbers(self._turned(keys), kind, mask)
        values = [self._ranked[key] for key in keys.tolist()] if self._ranked else [None] * keys.shape[0]
        return pa.array(values, self._kind, mask=mask).cast(kind)

    def current(self, codes: Array) -> Array:
        self._now = grown(self._now, int(codes.max(initial=-1)) + 1)
        return self._now[codes]

    @property
    def memory(self) -> int:
        arrays = (self._roots, self._keys, self._prios, self._links, self._sizes, self._now)
        return int(sum(each.nbytes for each in arrays)) + 150 * len(self._ranks)
