"""From n loaded streams to the input of a join of n streams: select, encode, merge, price."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from nile.exact.join.chain import encode_all
from nile.exact.join.clique import ExactClique
from nile.operators.inputs.joining import KeyedStreams, Loaded
from nile.operators.inputs.pair_conditions import PairCondition
from nile.operators.inputs.pair_windows import PairWindows
from nile.operators.multiway.multiway import MultiwayInput
from nile.summaries.costs import CostTable
from nile.summaries.heavy import pa

__all__ = ["MultiwayJoinable"]

Array = np.ndarray[Any, Any]


class MultiwayJoinable(KeyedStreams):
    """n loaded streams with everything a join of them needs.

    condition: over the columns of several, or None; windows: between pairs, inside `window`, or None.  The exact pass
    is `nile.exact.join.clique`, which encodes keys for itself.
    """

    def __init__(
        self,
        streams: tuple[Loaded, ...],
        window: int | None,
        condition: PairCondition | None,
        windows: PairWindows | None = None,
    ) -> None:
        super().__init__(streams, window)
        self.condition = condition
        self.windows = windows

    @cached_property
    def exact(self) -> ExactClique:
        """The judge: merged order, and what each arrival completes, the condition left aside."""
        codes, _ = encode_all([one.key for one in self.streams])
        return ExactClique(tuple(one.ts for one in self.streams), codes, self.window)

    @property
    def ordinal(self) -> Array:
        """The place of each arrival in its stream: int64 [N]."""
        return self.exact.ordinal

    @property
    def candidates(self) -> int:
        """How many outputs the exact answer has, the condition left aside."""
        return int(self.exact.combinations)

    @property
    def has_ranges(self) -> bool:
        """Whether outputs make whole ranges: there is no condition, and one window."""
        return self.condition is None and self.windows is None

    @cached_property
    def key(self) -> Array:
        """The code in `keys` of each arrival's key, -1 for null: int32 [N]."""
        codes: Array = np.concatenate([own.codes for own in self._encoded[1]])[self.exact.order]
        return codes

    @property
    def passes(self) -> Callable[[Array], Array] | None:
        """`test`, where there is a condition, or windows between pairs."""
        return None if self.has_ranges else self.test

    @cached_property
    def passing(self) -> Array:
        """Outputs each arrival completes: int64 [N].  Under a condition every candidate is looked at once."""
        return self.exact.completed if self.has_ranges else self.exact.passing(self.test)

    def test(self, members: Array) -> Array:
        """Which combinations (arrivals [c, n]) satisfy windows and the condition over several streams: bool [c]."""
        return self.test_places(self.exact.ordinal[members])

    def test_places(self, places: Array) -> Array:
        """As `test`, of tuples by their places in each stream: int64 [c, n]."""
        return self.test_members([places[:, k] for k in range(len(self.streams))])

    def test_members(self, places: Sequence[Array]) -> Array:
        """As `test`, of tuples by their places, each stream's by themselves: int64 [c]."""
        condition = self.condition
        kept = np.ones(places[0].shape[0], bool)
        if self.windows is not None:
            times = [one.ts[own] for one, own in zip(self.streams, places, strict=True)]
            kept = self.windows.passing(np.stack(times, axis=1))
        if condition is None:
            return kept
        columns, names = [], []
        for k, one in enumerate(self.streams):
            if one.carried is None:
                continue
            rows = pa.array(places[k])
            for name in condition.columns(k):
                columns.append(one.carried.column(name).take(rows))
                names.append(condition.name_of(k, name))
        passing: Array = kept & condition.passing(pa.RecordBatch.from_arrays(columns, names=names))
        return passing

    def costs(self, table: CostTable, *, ranges: bool, timed: bool = False) -> Array:
        """What the exact answer spends at each arrival: float64 [N].

        insert + (n - 1) look-ups + emit * outputs, where a range record is one output; under a condition over
        several streams + scan * candidates.  timed: what it spends at most, as if all satisfied the condition: to know
        takes as long as the exact answer.
        """
        passing = self.exact.completed if timed else self.passing
        outputs = np.minimum(passing, 1) if ranges else passing
        costs = table.insert + table.lookup * (len(self.streams) - 1) + table.emit * outputs.astype(np.float64)
        if not self.has_ranges:
            costs = costs + table.scan * self.exact.completed.astype(np.float64)
        return costs

    def input(self, table: CostTable, *, ranges: bool, whole: bool, timed: bool = False) -> MultiwayInput:
        """The operator's input under a cost table.  whole: the budget buys everything, so a condition is not priced;
        timed: it is one of time.
        """
        exact = self.exact
        _ = exact.completed  # refuses what cannot be counted
        return MultiwayInput(
            streams=len(self.streams),
            stream=exact.stream,
            ordinal=exact.ordinal,
            ts=exact.times,
            key=self.key,
            hashes=self.keys.hashes().copy(),
            costs=None if whole and not self.has_ranges else self.costs(table, ranges=ranges, timed=timed),
            test=self.passes,
        )
