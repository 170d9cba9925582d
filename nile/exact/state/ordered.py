"""Ordered multisets behind min, max and quantiles, one for a column however many ask."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nile.aggregates.catalogue import CATALOGUE
from nile.base.plain import decoded_type
from nile.exact.state import arrow
from nile.exact.state import held as holding
from nile.exact.state.arrow import Array, pa
from nile.exact.state.order_keys import OrderKeys
from nile.exact.state.rows import grown
from nile.exact.state.totals.states import State, Touches, valid

__all__ = ["Ordered"]

ordering: Any = arrow.Late("nile.exact.state.order_kernels")

_LIVE = 3  # of the meta of treaps: nodes in use


class Ordered(State):
    """An ordered multiset of a column for each group; serves min, max and quantiles.

    44 bytes a different value of a group and 48 a group; text and bytes also keep their different values in order,
    and a batch with new ones renumbers all.
    """

    HELD: ClassVar = ("_roots", "_keys", "_sizes")
    DERIVED: ClassVar = (
        "_kind", "_order", "_shares", "_discrete", "_prios", "_links", "_meta", "_now",
    )  # fmt: skip

    def __init__(self, kind: Any) -> None:
        self._kind = decoded_type(kind)
        self._order = OrderKeys(kind)
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
        values = self._keys_of(column)
        need = int(self._meta[_LIVE]) + values.shape[0]
        self._keys, self._prios = grown(self._keys, need), grown(self._prios, need)
        self._links, self._sizes = grown(self._links, need, -1), grown(self._sizes, need)
        old, new = (np.zeros((touches.pairs, self._now.shape[1]), np.int64) for _ in range(2))
        ordering.apply_ordered(
            touches.sign, touches.codes, values, valid(column), touches.of_tuples, touches.first, touches.last,
            self._shares, self._discrete, self._roots, self._keys, self._prios, self._links, self._sizes, self._meta,
            self._now, old, new,
        )  # fmt: skip
        return old, new

    def _keys_of(self, column: Any) -> Array:
        """int64 [n], ordered as the values; 0 where null."""
        return self._order.of(column, self._held, self._moved)

    def _held(self) -> Array:
        used = int(self._meta[0])
        alive = self._now[:, 0] > 0
        return np.concatenate([self._keys[:used][self._sizes[:used, 0] > 0], self._now[alive, 1:].ravel()])

    def _moved(self, table: Array) -> None:
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
            return self._order.values(numbers[:, 1 if function == "min" else 2], mask, kind)
        discrete = CATALOGUE[function].gives == "same"
        at = self._at(share, discrete)
        assert at is not None
        if discrete:
            return self._order.values(numbers[:, at], mask, kind)
        low, high = numbers[:, at], numbers[:, at + 1]
        place = share * np.maximum(numbers[:, 0] - 1, 0)
        over = place - np.floor(place)
        if pa.types.is_temporal(self._kind):
            step = np.where(over == 0.5, (high - low) // 2, ((high - low) * over).astype(np.int64))
            return self._order.values(low + step, mask, kind)
        a, b = self._order.doubles(low), self._order.doubles(high)
        with np.errstate(over="ignore", invalid="ignore"):
            mixed = np.where(over == 0.5, (a + b) / 2, a + (b - a) * over)
            mixed = np.where(np.isfinite(mixed), mixed, a * (1 - over) + b * over)
        return pa.array(np.where((a == b) | (over == 0), a, mixed), mask=mask)

    def current(self, codes: Array) -> Array:
        self._now = grown(self._now, int(codes.max(initial=-1)) + 1)
        return self._now[codes]

    def capture(self, codes: Array) -> holding.State:
        """Of each group its different values in order, and how often each stands."""
        starts = np.zeros(codes.shape[0] + 1, np.int64)
        self._roots = grown(self._roots, int(codes.max(initial=-1)) + 1, -1)
        keys, times = ordering.listed(self._roots, codes, self._keys, self._links, self._sizes, starts)
        column = self._order.values(keys, None, self._kind) if keys.shape[0] else pa.array([], self._kind)
        return {"starts": starts, "values": pa.RecordBatch.from_arrays([column], names=["value"]), "times": times}

    def restore(self, held: holding.Held, n: int) -> None:
        starts = held.rising("starts", n + 1)
        rows = held.rows("values", pa.schema([("value", self._kind)]))
        m = rows.num_rows
        times = held.counts("times", m, 1)
        held.end()
        if starts[0] != 0 or starts[-1] != m or rows.column(0).null_count:
            held.refuse(f"groups over {m} values that are not null", starts)
        keys = self._keys_of(rows.column(0)) if m else np.zeros(0, np.int64)
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
        return int(sum(each.nbytes for each in arrays)) + self._order.memory
