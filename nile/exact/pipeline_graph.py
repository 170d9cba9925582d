"""A window join of n streams as an operator: any window graph, its combinations signed.

Design: each stream keeps the tuples that can still join in a ring, its keys' tuples chained from the newest back; an
arrival probes the other streams one after the other along the window graph, and a combination is complete with its
last tuple.  A tuple can join as long as the farthest stream lies away over shortest paths (windows between all pairs
follow from those given).  Cost: O(1) a tuple and O(candidates) a combination.
Source: window joins, sections 3 and 5 (uniform and other window graphs, paths); steam framework, section 6.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact import pipeline_arrow
from nile.exact.algebra import GraphJoin, Scan
from nile.exact.expire import Calendar
from nile.exact.pipeline_arrow import Array, pa
from nile.exact.pipeline_leaf import Arrivals, chain_of, selected
from nile.exact.schedule import EARLIEST, Clock, Delta, merged
from nile.exact.states import RowTable, grown
from nile.exact.states_types import common
from nile.exact.states_words import Encoder
from summaries.errors import ConfigError

__all__ = ["GraphJoining"]

kernels: Any = pipeline_arrow.Late("nile.exact.pipeline_graph_kernels")

_SLACK = 4096


class GraphJoining:
    """A window join at work.  go, keep: whether anyone reads what goes, or the contents at the end.

    Where some pairs have no window or a longer one, a combination may be over when its last tuple completes it: it
    satisfies every window, so it is an output (`append`), but it holds at no instant, so it is no change.
    """

    def __init__(self, clock: Clock, plan: GraphJoin, *, go: bool = True, keep: bool = False) -> None:
        self.clock = clock
        self.plan = plan
        self.schema = plan.schema
        self.pairs = 0
        self._go, self._keep = go, keep
        bases = [chain_of(each) for each in plan.inputs]
        self.arrivals = [Arrivals(scan, above) for scan, above in bases if isinstance(scan, Scan)]
        n = len(self.arrivals)
        self._windows = np.full((n, n), -1, np.int64)
        for i, j, w in plan.constraints:
            for a, b in ((i, j),) if plan.directed else ((i, j), (j, i)):
                known = self._windows[a, b]
                self._windows[a, b] = w if known < 0 else min(w, known)
        self._distance = kernels.shortest(np.maximum(self._windows, self._windows.T))
        self._reach = self._distance.max(axis=1)
        self._order = np.array([self._probed(i) for i in range(n)], np.int64)
        self._encoders = [Encoder(each.schema.types, exact=True) for each in self.arrivals]
        self._rows = [np.zeros((64, each.width), np.int64) for each in self._encoders]
        self._ts, self._before, self._held_keys = (np.zeros((n, 64), np.int64) for _ in range(3))
        self._oldest, self._newest = np.zeros(n, np.int64), np.zeros(n, np.int64)
        on = plan.on
        kind: Any = pa.null()
        for each, name in zip(self.arrivals, on or (), strict=on is not None):
            kind = common(kind, each.schema.field(name).type)
        self._keys = RowTable([kind]) if on is not None else None
        self._key_counts = np.zeros(1, np.int64)
        self._heads = np.full((1, n), -1, np.int64)
        self._standing = Calendar(self.schema)
        self._now = EARLIEST

    def _probed(self, start: int) -> list[int]:
        """The streams from one on, each after one that it has a window with."""
        linked = np.maximum(self._windows, self._windows.T) >= 0
        order = [start]
        for at in order:
            order += [j for j in range(len(self.arrivals)) if linked[at, j] and j not in order]
        return order

    def step(self, to: int) -> Delta:
        """Combinations that come, and under `nta` those that go, up to `to`."""
        self._now = to
        taken = [each.take(to)[2:] for each in self.arrivals]
        ts = np.concatenate([each[0] for each in taken])
        stream = np.repeat(np.arange(len(taken)), [each[0].shape[0] for each in taken])
        positions = np.array([each.scan.position for each in self.arrivals])
        order = np.lexsort((positions[stream], ts))  # stable: then arrival
        sizes = np.array([each[0].shape[0] for each in taken])
        ordinal = np.concatenate([np.arange(m) + first for m, first in zip(sizes, self._newest, strict=True)])
        keys = self._code([each[1] for each in taken])
        self._room(sizes)
        mask = self._ts.shape[1] - 1
        for i, (_, rows) in enumerate(taken):
            at = (self._newest[i] + np.arange(sizes[i])) & mask
            self._rows[i][at] = self._encoders[i].encode(rows.columns)
        at, members, until = kernels.combine(
            stream[order], ordinal[order], ts[order], keys[order], self._windows, self._distance, self._reach,
            self._order, self.plan.directed, self._ts, self._before, self._held_keys, self._heads.T, self._key_counts,
            self._oldest, self._newest,
        )  # fmt: skip
        if self._go or self._keep:  # over by the time it is complete: it holds at no instant
            holds = until > ts[order][at]
            at, members, until = at[holds], members[holds], until[holds]
        self.pairs += at.shape[0]
        come = self._combinations(ts[order][at], members, until)
        self._forget(keys)
        return self._signed(come, to)

    def _signed(self, come: Delta, to: int) -> Delta:
        assert come.until is not None
        leaves = self._keep or (self.clock.negative and self._go)
        gone = Delta(np.zeros(0, np.int64), np.zeros(0, np.int8), None)
        if leaves:
            self._standing.add(come.until, come.rows)
            until, rows = self._standing.pop(to)
            gone = Delta(until, np.full(until.shape[0], -1, np.int8), rows)
        if not self.clock.negative:
            return come
        plain = Delta(come.ts, come.sign, come.rows)
        return merged(gone, plain, self.schema, by_sign=True) if self._go else plain

    def _combinations(self, ts: Array, members: Array, until: Array) -> Delta:
        mask = self._ts.shape[1] - 1
        columns = []
        for i, encoder in enumerate(self._encoders):
            columns += encoder.decode(self._rows[i][members[:, i] & mask])
        rows = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if self.plan.test is not None and rows.num_rows:
            yes = selected(rows, self.plan.test)
            ts, until, rows = ts[yes], until[yes], rows.filter(pa.array(yes))
        return Delta(ts, np.ones(ts.shape[0], np.int8), rows, until)

    def _code(self, batches: list[Any]) -> Array:
        total = sum(each.num_rows for each in batches)
        if self._keys is None or self.plan.on is None:
            return np.zeros(total, np.int64)
        kind = self._keys.encoder.kinds[0]
        columns = [rows.column(rows.schema.names.index(name)) for rows, name in zip(batches, self.plan.on, strict=True)]
        words = np.concatenate([self._keys.encode([column.cast(kind)]) for column in columns])
        whole = ~self._keys.encoder.nulls(words)
        codes = np.full(total, -1, np.int64)
        codes[whole] = self._keys.codes(words[whole])
        self._key_counts = grown(self._key_counts, self._keys.room)
        self._heads = grown(self._heads, self._keys.room, -1)
        return codes

    def _room(self, sizes: Array) -> None:
        """Rings large enough for what is held and what comes."""
        need = int((self._newest - self._oldest + sizes).max())
        old = self._ts.shape[1]
        if need <= old:
            return
        size = 1 << (need - 1).bit_length()
        for name in ("_ts", "_before", "_held_keys"):
            ring, wider = getattr(self, name), np.zeros((len(self.arrivals), size), np.int64)
            for i in range(len(self.arrivals)):
                held = np.arange(self._oldest[i], self._newest[i])
                wider[i, held & (size - 1)] = ring[i, held & (old - 1)]
            setattr(self, name, wider)
        for i, rows in enumerate(self._rows):
            held = np.arange(self._oldest[i], self._newest[i])
            self._rows[i] = np.zeros((size, rows.shape[1]), np.int64)
            self._rows[i][held & (size - 1)] = rows[held & (old - 1)]

    def _forget(self, keys: Array) -> None:
        """Release keys of no held tuple, and texts of none."""
        if self._keys is not None:
            live = self._keys.live() if len(self._keys) > 2 * int(self._held()) + _SLACK else keys[keys >= 0]
            dead = live[self._key_counts[live] == 0]
            self._heads[dead] = -1
            self._keys.release(dead)
        mask = self._ts.shape[1] - 1
        for i, encoder in enumerate(self._encoders):
            held = np.arange(self._oldest[i], self._newest[i]) & mask
            for at, values in encoder.values.items():
                if len(values) > 2 * held.shape[0] + _SLACK:
                    table = values.keep(self._rows[i][held, at])
                    self._rows[i][held, at] = table[self._rows[i][held, at]]

    def _held(self) -> int:
        return int((self._newest - self._oldest).sum())

    def time(self) -> int:
        """GetTime: how far the streams are known."""
        return self._now

    def contents(self) -> Any:
        """The combinations that hold, in the order they leave."""
        if not self._keep and not (self.clock.negative and self._go):
            raise ConfigError(
                "window join: needed its combinations kept for a snapshot; got none kept; make the pipeline with "
                "emit='snapshot'"
            )
        return self._standing.contents()

    @property
    def memory(self) -> int:
        arrays = (*self._rows, self._ts, self._before, self._held_keys, self._heads, self._key_counts)
        state = sum(each.nbytes for each in arrays) + self._standing.memory
        state += sum(each.memory for each in self._encoders) + sum(each.memory for each in self.arrivals)
        return int(state + (0 if self._keys is None else self._keys.memory))
