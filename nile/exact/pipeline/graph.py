"""A window join of n streams as an operator: any window graph, any algorithm of the W-join family, signed.

Design: `nile.exact.join.wjoin` finds combinations as ordinals; the operator keeps the rows that ordinals can still
name, in rings, and the combinations that hold, until they leave.  A tuple can join as long as the farthest stream
lies away over shortest paths.  Source: window joins (TR 02-010), sections 3 and 5; steam framework, section 6.2.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nile.base.nearest import nearest
from nile.exact.join.window_graph import WindowGraph
from nile.exact.join.wjoin import Condition, WindowJoinPlan
from nile.exact.pipeline.schedule import EARLIEST, Clock, Delta, merged
from nile.exact.pipeline.sources.incoming import Incoming, chain_of, selected
from nile.exact.plan.algebra import GraphJoin, Scan
from nile.exact.state.arrow import Array, pa
from nile.exact.state.expire import NEVER, Calendar, joined
from nile.exact.state.held import MOST, Held, State
from nile.exact.state.ring import Ring
from nile.exact.state.rows import RowTable, grown
from nile.exact.state.types import common
from nile.summaries.errors import ConfigError

__all__ = ["GraphJoining", "joined_by"]


def joined_by(plan: GraphJoin) -> WindowJoinPlan:
    """The W-join that finds a node's combinations.  Without keys `chain` gives way to the default.

    Raises ConfigError for a graph or an algorithm that cannot be.
    """
    n = len(plan.inputs)
    if plan.directed:
        graph = WindowGraph.directed(n, plan.constraints)
    else:
        windows: dict[tuple[int, int], int] = {}
        for i, j, w in plan.constraints:
            pair = (min(i, j), max(i, j))
            windows[pair] = min(w, windows.get(pair, w))
        graph = WindowGraph.of(n, windows)
    if plan.on is not None:
        return WindowJoinPlan(graph, algorithm=plan.algorithm)
    return WindowJoinPlan(graph, Condition("any"), "" if plan.algorithm == "chain" else plan.algorithm)


class GraphJoining:
    """A window join at work.  go, keep: whether anyone reads what goes, or the contents at the end.

    Where some pairs have no window or a longer one, a combination may be over when its last tuple completes it: it
    satisfies every window, so it is an output (`append`), but it holds at no instant, so it is no change.
    """

    KIND: ClassVar = "window join"
    HELD: ClassVar = ("pairs", "arrivals", "_rings", "_standing", "_now")
    DERIVED: ClassVar = (
        "clock", "plan", "schema", "_go", "_keep", "left", "join", "_reach", "_positions", "_keys", "_key_counts",
    )  # fmt: skip

    def __init__(self, clock: Clock, plan: GraphJoin, *, go: bool = True, keep: bool = False) -> None:
        self.clock = clock
        self.plan = plan
        self.schema = plan.schema
        self.pairs = 0
        self._go, self._keep = go, keep
        bases = [chain_of(each) for each in plan.inputs]
        self.arrivals = [Incoming(scan, above) for scan, above in bases if isinstance(scan, Scan)]
        n = len(self.arrivals)
        joining = joined_by(plan)
        self.left = [0] * n  # it is combinations that leave
        self.join = joining.start()
        self._reach = [joining.graph.lookback(i) for i in range(n)]
        self._positions = np.array([each.scan.position for each in self.arrivals])
        self._rings = [Ring(each.schema) for each in self.arrivals]
        kind: Any = pa.null()
        for each, name in zip(self.arrivals, plan.on or (), strict=plan.on is not None):
            kind = common(kind, each.schema.field(name).type)
        self._keys = RowTable([kind]) if plan.on is not None else None
        self._key_counts = np.zeros(1, np.int64)
        self._standing = Calendar(self.schema)
        self._now = EARLIEST

    def step(self, to: int) -> Delta:
        """Combinations that come, and under `nta` those that go, up to `to`."""
        self._now = to
        taken = [each.take(to)[2:] for each in self.arrivals]
        ts = np.concatenate([each[0] for each in taken])
        blocks: list[Array] = []
        if ts.shape[0]:
            sizes = np.array([each[0].shape[0] for each in taken])
            self._forget(int(ts.min()))
            codes = self._code([each[1] for each in taken])
            own = np.split(codes, np.cumsum(sizes)[:-1])
            for ring, (times, rows), each in zip(self._rings, taken, own, strict=True):
                ring.add(times, rows.columns, each)
            stream = np.repeat(np.arange(len(taken)), sizes)
            order = np.lexsort((self._positions[stream], ts))  # stable: then arrival
            self.join.push(stream[order], ts[order], codes[order])
            blocks = list(self.join.outputs())
        self.join.advance(to)
        members = np.concatenate(blocks) if blocks else np.zeros((0, len(taken)), np.int64)
        return self._signed(self._combinations(members), to)

    def _combinations(self, members: Array) -> Delta:
        """Combinations by ordinals, as rows with the times they come and leave."""
        times = np.stack([ring.ts[members[:, i] & ring.mask] for i, ring in enumerate(self._rings)])
        ts = times.max(axis=0, initial=EARLIEST)
        until = np.full(ts.shape[0], NEVER, np.int64)
        for i, j, w in self.plan.constraints:
            first = np.minimum(times[i], times[j])
            until = np.minimum(until, np.where(first > NEVER - 1 - w, NEVER, first + w + 1))
        if self._go or self._keep:
            holds = until > ts
            members, ts, until = members[holds], ts[holds], until[holds]
        self.pairs += members.shape[0]
        columns = [column for i, ring in enumerate(self._rings) for column in ring.columns(members[:, i])]
        rows = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if self.plan.test is not None and rows.num_rows:
            yes = selected(rows, self.plan.test)
            ts, until, rows = ts[yes], until[yes], rows.filter(pa.array(yes))
        return Delta(ts, np.ones(ts.shape[0], np.int8), rows, until)

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

    def _code(self, batches: list[Any]) -> Array:
        """The code of each row's key, -1 where it is null, counted as held."""
        total = sum(each.num_rows for each in batches)
        if self._keys is None or self.plan.on is None:
            return np.zeros(total, np.int64)
        kind = self._keys.encoder.kinds[0]
        columns = [rows.column(rows.schema.names.index(name)) for rows, name in zip(batches, self.plan.on, strict=True)]
        words = np.concatenate([self._keys.encode([nearest(column, kind)]) for column in columns])
        whole = ~self._keys.encoder.nulls(words)
        codes = np.full(total, -1, np.int64)
        codes[whole] = self._keys.codes(words[whole])
        self._key_counts = grown(self._key_counts, self._keys.room)
        np.add.at(self._key_counts, codes[whole], 1)
        return codes

    def _forget(self, now: int) -> None:
        """Let go of rows that nothing from `now` on can join, of keys that no row has, and of texts."""
        for ring, reach in zip(self._rings, self._reach, strict=True):
            held = ring.held() & ring.mask
            gone = int(np.searchsorted(ring.ts[held], max(now - reach, EARLIEST)))
            if gone and self._keys is not None:
                codes = ring.codes[held[:gone]]
                codes = codes[codes >= 0]
                np.subtract.at(self._key_counts, codes, 1)
                self._keys.release(codes[self._key_counts[codes] == 0])
            ring.oldest += gone
            ring.forget()

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

    def capture(self) -> State:
        """The rows that something to come can join, and the combinations that hold; the W-join follows from the rows.

        Rows are let go of at the next arrival, so which stand in the rings depends on steps; those captured do not.
        """
        since = [max(self._now - reach, EARLIEST) for reach in self._reach]
        return {
            "clock": self._now,
            "pairs": self.pairs,
            "arrivals": [each.capture() for each in self.arrivals],
            "windows": [ring.capture(at) for ring, at in zip(self._rings, since, strict=True)],
            "standing": self._standing.capture(),
        }

    def restore(self, held: Held) -> None:
        """Put what was captured into a new operator of the same definition.  Raises EnvelopeError."""
        n = len(self.arrivals)
        self._now = held.integer("clock")
        self.pairs = held.integer("pairs", 0, MOST)
        for arrivals, part in zip(self.arrivals, held.parts("arrivals", n), strict=True):
            arrivals.restore(part)
        self._standing.restore(held.part("standing"))
        nothing = [joined([], each.schema) for each in self.arrivals]
        for i, (ring, part) in enumerate(zip(self._rings, held.parts("windows", n), strict=True)):
            ring.restore(part, lambda rows, i=i: self._code([*nothing[:i], rows, *nothing[i + 1 :]]))  # type: ignore[misc]
        held.end()
        self.join.hold(
            self._now,
            [ring.newest for ring in self._rings],
            [(at := ring.held(), ring.ts[at & ring.mask], ring.codes[at & ring.mask]) for ring in self._rings],
        )

    @property
    def memory(self) -> int:
        state = self._key_counts.nbytes + self._standing.memory + self.join.memory
        state += sum(each.memory for each in self._rings) + sum(each.memory for each in self.arrivals)
        return int(state + (0 if self._keys is None else self._keys.memory))
