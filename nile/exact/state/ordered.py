"""Ordered multisets behind min, max and quantiles, one for a column however many ask."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nile.aggregates.catalogue import CATALOGUE
from nile.exact.state import arrow
from nile.exact.state import held as holding
from nile.exact.state.arrow import Array, pa
from nile.exact.state.rows import grown
from nile.exact.state.sums import State, Touches, valid
from nile.exact.state.types import plain
from nile.exact.state.words import Encoder, from_numbers

__all__ = ["Ordered"]

ordering: Any = arrow.Late("nile.exact.state.order_kernels")

_LIVE = 3  # of the meta of treaps: nodes in use
_FLIP = np.int64(np.iinfo(np.int64).min)


class Ordered(State):
    """An ordered multiset of a column for each group; serves min, max and quantiles.

    44 bytes a different value of a group and 48 a group; text and bytes also keep their different values in order,
    and a batch with new ones renumbers all.
    """

    HELD: ClassVar = ("_roots", "_keys", "_sizes")
    DERIVED: ClassVar = (
        "_kind", "_encoder", "_ranked", "_ranks", "_floating", "_unsigned", "_shares", "_discrete", "_prios", "_links",
        "_meta", "_now",
    )  # fmt: skip

    def __init__(self, kind: Any) -> None:
        self._kind = plain(kind)
        self._encoder = Encoder([self._kind], exact=False)
        self._ranked: list[Any] | None = [] if 0 in self._encoder.values or self._encoder.width > 2 else None
        self._ranks: dict[Any, int] = {}
        self._floating = bool(pa.types.is_floating(self._kind))
        self._unsigned = bool(pa.types.is_uint64(self._kind))
        self._shares = np.zeros(0)
        self._discrete = np.zeros(0, bool)
        self._roots = np.full(1, -1, np.int64)
        self._keys = np.zeros(16, np.int64)
        self._prios = np.zeros(16, np.int64)
        self._links = np.full((16, 2), -1, np.int64)
        self._sizes = np.zeros((16, 2), np.int64)
        self._meta = np.array([0, -1, 0, 0], np.int64)
        self._now = np.zeros((1, 3), np.int64)

    def apply(self, touches: Touches, column: Any) -> tuple[Array, Array]:
        self._roots = grown(self._roots, touches.room, -1)
        self._now = grown(self._now, touches.room)
        values = self._order_keys(column)
        need = int(self._meta[_LIVE]) + values.shape[0]
        self._keys, self._prios = grown(self._keys, need), grown(self._prios, need)
        self._links, self._sizes = grown(self._links, need, -1), grown(self._sizes, need)
        old, new = (np.zeros((touches.pairs, self._now.shape[1]), np.int64) for _ in range(2))
        ordering.apply_ordered(
            touches.sign, touches.codes, values, valid(column), touches.touch, touches.first, touches.last,
            self._shares, self._discrete, self._roots, self._keys, self._prios, self._links, self._sizes, self._meta,
            self._now, old, new,
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
            self._rank(fresh, [self._ranks[value] for value in distinct if value in self._ranks])
        table = np.array([self._ranks[value] for value in distinct] + [0], np.int64)
        return table[encoded.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False)]

    def _rank(self, fresh: list[Any], back: list[int]) -> None:
        """Number all values anew, in order; where they are many, those are dropped that no node holds.

        back: ranks of values in the batch at hand that are known: no node need hold them yet.
        """
        assert self._ranked is not None
        old = self._ranked
        if len(old) > 4096 and len(old) > 2 * int(self._meta[_LIVE]):
            held = np.zeros(len(old), bool)
            live = self._sizes[: self._meta[0], 0] > 0
            held[self._keys[: self._meta[0]][live]] = True
            held[self._now[:, 1:][self._now[:, 0] > 0].ravel()] = True
            held[back] = True
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

    def ask(self, share: float, *, discrete: bool) -> None:
        """Read this quantile of every group too; before the first tuple."""
        if self._at(share, discrete) is None:
            self._shares, self._discrete = np.append(self._shares, share), np.append(self._discrete, discrete)
            self._now = np.zeros((1, 3 + 2 * self._shares.shape[0]), np.int64)

    def _at(self, share: float | None, discrete: bool) -> int | None:
        """The column of its lower value."""
        found = np.flatnonzero((self._shares == share) & (self._discrete == discrete))
        return 3 + 2 * int(found[0]) if found.shape[0] else None

    def column(self, function: str, numbers: Array, kind: Any, share: float | None = None) -> Any:
        none = numbers[:, 0] == 0
        mask = none if none.any() else None
        if share is None:
            return self._values(numbers[:, 1 if function == "min" else 2], mask, kind)
        discrete = CATALOGUE[function].gives == "same"
        at = self._at(share, discrete)
        assert at is not None
        if discrete:
            return self._values(numbers[:, at], mask, kind)
        low, high = self._turned(numbers[:, at]), self._turned(numbers[:, at + 1])
        place = share * np.maximum(numbers[:, 0] - 1, 0)
        over = place - np.floor(place)
        if pa.types.is_temporal(self._kind):
            step = np.where(over == 0.5, (high - low) // 2, ((high - low) * over).astype(np.int64))
            return from_numbers(low + step, kind, mask)
        a, b = (self._floats(each) for each in (low, high))
        with np.errstate(over="ignore", invalid="ignore"):
            mixed = np.where(over == 0.5, (a + b) / 2, a + (b - a) * over)
            mixed = np.where(np.isfinite(mixed), mixed, a * (1 - over) + b * over)
        return pa.array(np.where((a == b) | (over == 0), a, mixed), mask=mask)

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

    def capture(self, codes: Array) -> holding.State:
        """Of each group its different values in order, and how often each stands."""
        starts = np.zeros(codes.shape[0] + 1, np.int64)
        self._roots = grown(self._roots, int(codes.max(initial=-1)) + 1, -1)
        keys, times = ordering.listed(self._roots, codes, self._keys, self._links, self._sizes, starts)
        column = self._values(keys, None, self._kind) if keys.shape[0] else pa.array([], self._kind)
        return {"starts": starts, "values": pa.RecordBatch.from_arrays([column], names=["value"]), "times": times}

    def restore(self, held: holding.Held, n: int) -> None:
        starts = held.rising("starts", n + 1)
        rows = held.rows("values", pa.schema([("value", self._kind)]))
        m = rows.num_rows
        times = held.counts("times", m, 1)
        held.end()
        if starts[0] != 0 or starts[-1] != m or rows.column(0).null_count:
            held.refuse(f"groups over {m} values that are not null", starts)
        keys = self._order_keys(rows.column(0)) if m else np.zeros(0, np.int64)
        same = np.repeat(np.arange(n), np.diff(starts))
        if ((keys[1:] <= keys[:-1]) & (same[1:] == same[:-1])).any():
            held.refuse("values of a group in order, each once", "others")
        self._keys, self._prios = np.zeros(max(m, 16), np.int64), np.zeros(max(m, 16), np.int64)
        self._links, self._sizes = np.full((max(m, 16), 2), -1, np.int64), np.zeros((max(m, 16), 2), np.int64)
        self._roots = np.full(max(n, 1), -1, np.int64)
        self._now = np.zeros((max(n, 1), self._now.shape[1]), np.int64)
        self._keys[:m], self._sizes[:m, 0] = keys, times
        ordering.build(
            starts,
            self._shares,
            self._discrete,
            self._roots,
            self._keys,
            self._prios,
            self._links,
            self._sizes,
            self._meta,
            self._now,
        )

    @property
    def memory(self) -> int:
        arrays = (self._roots, self._keys, self._prios, self._links, self._sizes, self._now)
        return int(sum(each.nbytes for each in arrays)) + 150 * len(self._ranks)
