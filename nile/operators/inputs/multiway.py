"""From n loaded streams to the input of a join of n streams: select, encode, merge, price."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from nile.exact.join.chain import encode_all
from nile.exact.join.clique import ExactClique
from nile.operators.inputs.joining import Loaded
from nile.operators.inputs.pair_conditions import PairCondition
from nile.operators.multiway.multiway import MultiwayInput
from nile.summaries.costs import CostTable
from nile.summaries.hashing import Encoded, KeyTable
from nile.summaries.heavy import pa

__all__ = ["MultiwayJoinable"]

Array = np.ndarray[Any, Any]


class MultiwayJoinable:
    """n loaded streams with everything a join of them needs, worked out once for all its runs.

    streams: one for each place in the statement, sharing columns where a stream joins itself; window: ns or None;
    condition: over their columns, or None.  Tuples that a condition on their stream alone turns down take no part:
    they are no arrivals, grant nothing, and are in no list.  The exact pass is `nile.exact.join.clique`, which encodes
    keys for itself.  Raises KeyTypeError when the keys cannot be compared.
    """

    def __init__(self, streams: tuple[Loaded, ...], window: int | None, condition: PairCondition | None) -> None:
        self.streams = streams
        self.window = window
        self.condition = condition
        self.keys = KeyTable(streams[0].hasher)
        encoded: dict[int, Encoded] = {}
        for one in streams:
            if id(one.key) not in encoded:
                encoded[id(one.key)] = self.keys.encode(one.key, where=f"stream '{one.name}'")
        self._encoded = [encoded[id(one.key)] for one in streams]
        self._selected = [self._rows(k) for k in range(len(streams))]

    def _rows(self, k: int) -> Array | None:
        """The ordinals that the conditions on stream k alone leave; None: all."""
        one = self.streams[k]
        if self.condition is None or not self.condition.selects(k) or not len(one):
            return None
        # A condition without columns needs rows to be true or false of.
        columns = pa.RecordBatch.from_arrays([pa.array(one.ts)], names=["ts"]) if one.carried is None else one.carried
        return np.flatnonzero(self.condition.select(k, columns))

    @property
    def excluded(self) -> tuple[int, ...]:
        """Tuples of each stream that a condition on it alone turns down."""
        return tuple(
            0 if rows is None else len(one) - rows.shape[0]
            for one, rows in zip(self.streams, self._selected, strict=True)
        )

    @cached_property
    def exact(self) -> ExactClique:
        """The judge: merged order, and what each arrival completes, the condition over several streams left aside."""
        codes, _ = encode_all([one.key for one in self.streams])
        return ExactClique(
            tuple(_taken(one.ts, rows) for one, rows in zip(self.streams, self._selected, strict=True)),
            tuple(_taken(own, rows) for own, rows in zip(codes, self._selected, strict=True)),
            self.window,
        )

    @property
    def candidates(self) -> int:
        """How many outputs the exact answer has, a condition over several streams left aside."""
        return int(self.exact.combinations)

    @property
    def has_ranges(self) -> bool:
        """Whether outputs make whole ranges: there is no condition over several streams."""
        return self._over_pair is None

    @property
    def key_type(self) -> pa.DataType:
        """The type of all streams' keys."""
        return self.keys.values().type if self.keys.known else self.streams[0].key.type

    @cached_property
    def ordinal(self) -> Array:
        """The ordinal, in its stream as it was read, of each arrival: int64 [N]."""
        exact = self.exact
        out = exact.ordinal.copy()
        for k, rows in enumerate(self._selected):
            if rows is not None:
                mine = exact.stream == k
                out[mine] = rows[out[mine]]
        return out

    @cached_property
    def passing(self) -> Array:
        """Outputs each arrival completes: int64 [N].  Under a condition every candidate is looked at once."""
        return self.exact.completed if self._over_pair is None else self.exact.passing(self.test)

    @property
    def _over_pair(self) -> PairCondition | None:
        return self.condition if self.condition is not None and self.condition.over_several else None

    def test(self, members: Array) -> Array:
        """Which combinations (arrivals [c, n]) satisfy the condition over several streams: bool [c]."""
        condition = self._over_pair
        assert condition is not None
        columns, names = [], []
        for k, one in enumerate(self.streams):
            if one.carried is None:
                continue
            rows = pa.array(self.ordinal[members[:, k]])
            for name in condition.columns_of(k):
                columns.append(one.carried.column(name).take(rows))
                names.append(condition.name_of(k, name))
        passing: Array = condition.passing(pa.RecordBatch.from_arrays(columns, names=names))
        return passing

    def costs(self, table: CostTable, *, ranges: bool) -> Array:
        """What the exact answer spends at each arrival: float64 [N].

        insert + (n - 1) look-ups + emit * outputs, where a range record is one output; under a condition over
        several streams + scan * candidates.
        """
        outputs = np.minimum(self.passing, 1) if ranges else self.passing
        costs = table.insert + table.lookup * (len(self.streams) - 1) + table.emit * outputs.astype(np.float64)
        if self._over_pair is not None:
            costs = costs + table.scan * self.exact.completed.astype(np.float64)
        return costs

    def input(self, table: CostTable, *, ranges: bool, whole: bool) -> MultiwayInput:
        """The operator's input under a cost table.  whole: the budget buys everything, so a condition is not priced."""
        exact = self.exact
        _ = exact.completed  # refuses what cannot be counted
        parts = zip((own.codes for own in self._encoded), self._selected, strict=True)
        codes = np.concatenate([_taken(own, rows) for own, rows in parts])
        return MultiwayInput(
            streams=len(self.streams),
            stream=exact.stream,
            ordinal=self.ordinal,
            ts=exact.times,
            key=codes[exact.order],
            hashes=self.keys.hashes().copy(),
            costs=None if whole and self._over_pair is not None else self.costs(table, ranges=ranges),
            test=None if self._over_pair is None else self.test,
        )


def _taken(values: Array, rows: Array | None) -> Array:
    return values if rows is None else values[rows]
