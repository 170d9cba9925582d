"""A join of two streams that forgets what can find no partner any more, by constraints on its streams.

Design: rows of both sides are linked by what clusters (by the key, without clusters).  A tuple of a child leaves when
it has found its parent, or when that cannot come any more; a parent when the cluster of its children is over, or when
the order of the other stream is past it.  Which tuples find each other depends on the tuples before them alone, not on
when rows are swept: what a broken constraint costs is the same however the input was cut.
Cost: O(1) a tuple and O(1) a pair; memory: the rows that may find a partner, and k words for an order or a cluster.
Source: STREAM (CIDR 2003), section 4.1.
"""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar

import numpy as np

from nile.base.nearest import nearest
from nile.exact.pipeline.schedule import EARLIEST, Clock, Delta, empty
from nile.exact.pipeline.sources.constrained_side import BORN, VALUE, Chain, Come, Side
from nile.exact.pipeline.sources.incoming import selected
from nile.exact.plan.algebra import Join, Range
from nile.exact.plan.constraints import Kind, Promise, StreamConstraint
from nile.exact.state import arrow
from nile.exact.state.arrow import Array, pa
from nile.exact.state.expire import NEVER, after, joined, never
from nile.exact.state.held import MOST, Held, State
from nile.exact.state.rows import RowTable, grown
from nile.exact.state.types import common
from nile.exact.state.words import Encoder
from nile.summaries.errors import ConfigError

__all__ = ["ConstrainedJoining"]

kernels: Any = arrow.Late("nile.exact.pipeline.sources.constrained_kernels")

_AT_ONCE = 2048  # tuples whose rows are held together, whether they stay or not
_NEXT = 0
_LINK, _KEY, _UNTIL, _DEADLINE = 2, 3, 4, 5  # of a row, as in the kernels
_SIDE, _ROW, _TS, _ORDINAL, _MARK, _STAYS = range(6)  # of an event
_BASE, _OUT, _COUNT = range(3)
_USES = 4


class ConstrainedJoining:
    """A join of two streams at work, of which only pairs that come are read."""

    KIND: ClassVar = "constrained join"
    HELD: ClassVar = ("pairs", "_sides", "_now", "_over")
    DERIVED: ClassVar = (
        "clock", "plan", "schema", "left", "arrivals", "_said", "_kinds",
        "_child", "_waits", "_linked", "_links", "_keys",
        "_about", "_key_counts", "_place", "_swept",
    )  # fmt: skip

    def __init__(self, clock: Clock, plan: Join, left: Chain, right: Chain) -> None:
        self.clock, self.plan, self.schema = clock, plan, plan.schema
        self.pairs = 0
        self.left = [0, 0]  # it is not windows that tuples leave
        child = self._of("many one") or self._of("referential")
        self._child = -1 if child is None else child.side
        self._waits = None if child is None else self._of("referential", child.side)
        first = self._of("clustered") or self._of("punctuated")
        self._linked = list(range(len(plan.on))) if first is None else list(first.on)
        self._sides = []
        for side, chain in enumerate((left, right)):
            schema = (chain[1][-1] if chain[1] else chain[0]).schema
            cluster = self._of("clustered", side)
            if cluster is not None and list(cluster.on) != self._linked:
                cluster = None
            at = [schema.get_field_index(on[side]) for on in plan.on]
            self._sides.append(Side(chain, at, self._of("ordered", side), cluster))
        self.arrivals = [each.arrivals for each in self._sides]
        one, other = (each.schema for each in self._sides)
        self._kinds = [common(one.field(a).type, other.field(b).type) for a, b in plan.on]
        for each in self._sides:
            if each.marks is not None:
                for both in self._sides:
                    both.value_at = both.at[each.marks.promise.on[0]]
                    both.values = Encoder([both.schema.field(both.value_at).type], exact=True)
        self._links = RowTable([self._kinds[i] for i in self._linked])
        self._keys = None if len(self._linked) == len(plan.on) else RowTable(self._kinds)
        self._key_counts = np.zeros(1, np.int64)
        self._about = np.zeros((0, _USES + 1), np.int64)
        self._said = [
            one for one in plan.promises if one.constraint.kind == "punctuated" and list(one.on) == self._linked
        ]
        self._over: deque[tuple[int, int, Any]] = deque()  # (instant, side, rows of links) of which no more come
        self._place = np.zeros((2, 3), np.int64)
        self._swept = 0
        self._now = EARLIEST

    def _of(self, kind: Kind, side: int | None = None) -> Promise | None:
        """The first promise of a kind, of a side.  Both sides may be ordered by one pair of columns alone."""
        found = [one for one in self.plan.promises if one.constraint.kind == kind]
        if kind == "ordered":
            found = [one for one in found if one.on == found[0].on]
        return next((one for one in found if side in (None, one.side)), None)

    def punctuate(self, constraint: StreamConstraint, at: int, rows: Any) -> None:
        """After the instant `at` no tuple of these values comes to the stream of a constraint.

        rows: of the constraint's columns; at: none before what was said before.
        """
        for promise in self._said:
            if promise.constraint is constraint:
                columns = [
                    nearest(column, self._kinds[i]) for column, i in zip(rows.columns, self._linked, strict=True)
                ]
                made = pa.RecordBatch.from_arrays(columns, schema=self._link_schema())
                self._over.append((at, promise.side, made))

    def step(self, to: int) -> Delta:
        """Pairs that come up to `to`."""
        for promise in self.plan.promises:
            promise.constraint.check()
        if not self._over or self._over[0][0] > to:
            return self._step(to)
        parts = []
        while self._over and self._over[0][0] <= to:
            at, side, rows = self._over.popleft()
            parts.append(self._step(max(at, self._now)))
            self._forget(side, rows)
        parts.append(self._step(to))
        ts, sign = (np.concatenate(each) for each in zip(*((part.ts, part.sign) for part in parts), strict=True))
        return Delta(ts, sign, joined([part.rows for part in parts], self.schema))

    def _forget(self, side: int, rows: Any) -> None:
        """Drop the rows of the other side that only tuples of these values, of which no more come, could find."""
        other = self._sides[1 - side]
        links = self._links.codes(self._links.encode(rows.columns))
        self._made_room()
        gone: list[int] = []
        for link in np.unique(links).tolist():
            row = int(self._about[link, 1 - side])
            while row >= 0:
                gone.append(row)
                row = int(other.rows[row, _NEXT])
        dropped = [np.zeros(0, np.int64), np.zeros(0, np.int64)]
        dropped[1 - side] = np.array(gone, np.int64)
        kernels.drop_rows(dropped[1 - side], 1 - side, other.rows, self._about)
        self._release(dropped, links)

    def _step(self, to: int) -> Delta:
        self._now = to
        come, before = self._come(to)
        lengths = [each.ts.shape[0] for each in come]
        if not sum(lengths):
            return empty(self.schema)
        side = np.repeat(np.arange(2), lengths)
        order = np.lexsort((side, np.concatenate([each.ts for each in come])))  # stable: then arrival
        events = np.full((side.shape[0], 6), EARLIEST)
        deadline = np.concatenate([each.deadline for each in come])
        for at, values in (
            (_SIDE, side),
            (_ROW, np.concatenate([np.arange(n) for n in lengths])),
            (_TS, np.concatenate([each.ts for each in come])),
            (_ORDINAL, np.concatenate([each.ordinals for each in come])),
            (_STAYS, deadline > np.concatenate(before)),
        ):
            events[:, at] = values
        self._ordered(come, events, order)
        parts = (order[begin : begin + _AT_ONCE] for begin in range(0, order.shape[0], _AT_ONCE))
        told = [self._taken_in(events[part], deadline[part], come) for part in parts]
        if sum(len(each.table) for each in self._sides) > 2 * self._swept + _AT_ONCE:
            self._sweep()
        ts = np.concatenate([each[0] for each in told])
        return Delta(ts, np.ones(ts.shape[0], np.int8), joined([each[1] for each in told], self.schema))

    def _come(self, to: int) -> tuple[list[Come], list[Array]]:
        """(tuples of both sides, how many of the parents' came before each: -1 of who waits for none)."""
        taken = [each.take(to) for each in self.arrivals]
        within = None if self._waits is None else self._waits.constraint.within
        come, counts = [], []
        for number, (side, (_, ordinals, ts, rows)) in enumerate(zip(self._sides, taken, strict=True)):
            before, deadline = np.full(ts.shape[0], -1), never(ts)
            if number == self._child and within is not None:
                parents = taken[1 - number][0]
                first = self.arrivals[1 - number].taken - parents.shape[0]
                before = first + np.searchsorted(parents, ts, "left" if number == 0 else "right")
                deadline = before + within
            whole = np.ones(ts.shape[0], bool)
            for column in (rows.column(i) for i in side.at):
                if column.null_count:  # joins nothing
                    whole &= column.is_valid().to_numpy(zero_copy_only=False)
            if not whole.all():
                ordinals, ts, rows = ordinals[whole], ts[whole], rows.filter(pa.array(whole))
                before, deadline = before[whole], deadline[whole]
            come.append(Come(ordinals, ts, rows, deadline))
            counts.append(before)
        return come, counts

    def _ordered(self, come: list[Come], events: Array, order: Array) -> None:
        """Of streams in order: how far they are before each of their tuples, and whom nobody finds any more."""
        for number, side in enumerate(self._sides):
            if side.marks is None:
                continue
            values = [one.of_values(each.rows) for one, each in zip(self._sides, come, strict=True)]
            marks = side.marks.push(values[number])
            mine = events[:, _SIDE] == number
            seen = np.empty(order.shape[0], np.int64)
            seen[order] = np.cumsum(mine[order])
            events[mine, _MARK] = marks[:-1]
            events[~mine, _STAYS] &= values[1 - number] >= marks[seen[~mine]]

    def _taken_in(self, events: Array, deadline: Array, come: list[Come]) -> tuple[Array, Any]:
        """Tuples in order; (instant of each pair, pairs)."""
        parts = [np.flatnonzero(events[:, _SIDE] == number) for number in range(2)]
        batches = [each.rows.take(pa.array(events[part, _ROW])) for each, part in zip(come, parts, strict=True)]
        links, keys = self._codes(batches)
        for number, (side, part, rows) in enumerate(zip(self._sides, parts, batches, strict=True)):
            codes = side.put(rows, events[part, _ORDINAL])
            side.rows[codes, _LINK], side.rows[codes, _KEY] = links[number], keys[number]
            side.rows[codes, _UNTIL], side.rows[codes, _DEADLINE] = self._until(side, events[part, _TS]), deadline[part]
            events[part, _ROW] = codes
            if side.within >= 0:
                side.recent = np.append(side.recent, links[number])
        left, right = self._sides
        within = np.array([left.within, right.within])
        at, first, second, *gone = kernels.join_constrained(
            events, left.rows, right.rows, self._about, left.recent, right.recent, self._place, within, self._child
        )
        ts = events[at, _TS]
        rows = pa.RecordBatch.from_arrays(
            [*left.table.columns(first), *right.table.columns(second)], schema=self.schema
        )
        self._release(gone, np.concatenate(links))
        self.pairs += rows.num_rows
        if self.plan.test is not None and rows.num_rows:
            yes = selected(rows, self.plan.test)
            ts, rows = ts[yes], rows.filter(pa.array(yes))
        return ts, rows

    def _until(self, side: Side, ts: Array) -> Array:
        return after(ts, side.window.ns) if isinstance(side.window, Range) else never(ts)

    def _codes(self, batches: list[Any]) -> tuple[list[Array], list[Array]]:
        """Of the rows of both sides the codes of what links them, and of their keys, which are counted."""
        columns = [
            [nearest(rows.column(i), kind) for i, kind in zip(side.at, self._kinds, strict=True)]
            for side, rows in zip(self._sides, batches, strict=True)
        ]
        words = [self._links.encode([each[i] for i in self._linked]) for each in columns]
        found = self._links.codes(np.concatenate(words))
        self._made_room()
        links = np.split(found, [batches[0].num_rows])
        if self._keys is None:
            return links, links
        codes = self._keys.codes(np.concatenate([self._keys.encode(each) for each in columns]))
        self._key_counts = grown(self._key_counts, self._keys.room)
        np.add.at(self._key_counts, codes, 1)
        return links, np.split(codes, [batches[0].num_rows])

    def _made_room(self) -> None:
        had = self._about.shape[0]
        if self._links.room > had:
            self._about = grown(self._about, self._links.room, -1)
            self._about[had:, _USES] = 0

    def _release(self, gone: list[Array], links: Array) -> None:
        """Let go of rows of both sides, and of links and keys that nothing has any more."""
        touched = [links]
        for number, (side, rows) in enumerate(zip(self._sides, gone, strict=True)):
            touched.append(side.rows[rows, _LINK])
            if self._keys is not None:
                keys = side.rows[rows, _KEY]
                np.subtract.at(self._key_counts, keys, 1)
                self._keys.release(keys[self._key_counts[keys] == 0])
            side.table.release(rows)
            base, out, _ = self._place[number]
            touched.append(side.recent[: out - base])
            side.recent = side.recent[out - base :]
            self._place[number, _BASE] = out
        codes = np.concatenate(touched)
        self._links.release(codes[self._about[codes, _USES] == 0])

    def _dead(self, number: int, rows: Array) -> Array:
        """Which rows (codes) of a side find nobody any more: bool [n]."""
        side, other = self._sides[number], self._sides[1 - number]
        dead: Array = side.rows[rows, _UNTIL] <= self._now
        dead |= side.rows[rows, _DEADLINE] <= other.arrivals.taken
        if other.marks is not None:
            dead |= side.rows[rows, VALUE] < other.marks.now
        return dead

    def _sweep(self) -> None:
        gone = []
        for number, side in enumerate(self._sides):
            live = side.table.live()
            gone.append(live[self._dead(number, live)])
            kernels.drop_rows(gone[-1], number, side.rows, self._about)
        self._release(gone, np.zeros(0, np.int64))
        self._swept = sum(len(each.table) for each in self._sides)

    def time(self) -> int:
        """GetTime: how far the streams are known."""
        return self._now

    def contents(self) -> Any:
        """Pairs are not kept.  Raises ConfigError."""
        raise ConfigError(
            "join by constraints: needed emit='append' or 'changes'; got a snapshot; DROP CONSTRAINT first"
        )

    def capture(self) -> State:
        """The rows that may find a partner in the order they came, and what came last; the rest follows."""
        sides = []
        for number, side in enumerate(self._sides):
            live = side.table.live()
            live = live[~self._dead(number, live)]
            live = live[np.argsort(side.rows[live, BORN])]
            deadline = side.rows[live, _DEADLINE]
            waits = deadline < NEVER
            recent = pa.RecordBatch.from_arrays(self._links.columns(side.recent), schema=self._link_schema())
            sides.append({
                "rows": pa.RecordBatch.from_arrays(side.table.columns(live), schema=side.schema),
                "until": side.rows[live, _UNTIL],
                "deadline": np.where(waits, deadline - self._sides[1 - number].arrivals.taken, NEVER),
                "recent": recent,
                "marks": np.zeros(0, np.int64) if side.marks is None else side.marks.capture(),
            })  # fmt: skip
        arrivals = [each.capture() for each in self.arrivals]
        over = [{"at": at, "side": side, "rows": rows} for at, side, rows in self._over]
        said = {"said": len(over), "over": over} if over else {}
        return {"clock": self._now, "pairs": self.pairs, "arrivals": arrivals, "sides": sides, **said}

    def _link_schema(self) -> Any:
        return pa.schema([(f"link{i}", self._kinds[i]) for i in self._linked])

    def restore(self, held: Held) -> None:
        """Put what was captured into a new operator of the same definition.  Raises EnvelopeError."""
        self._now = held.integer("clock")
        self.pairs = held.integer("pairs", 0, MOST)
        for arrivals, part in zip(self.arrivals, held.parts("arrivals", 2), strict=True):
            arrivals.restore(part)
        batches, rests = [], []
        for number, (side, part) in enumerate(zip(self._sides, held.parts("sides", 2), strict=True)):
            rows = part.rows("rows", side.schema)
            n = rows.num_rows
            until, deadline = part.array("until", "int64", (n,)), part.array("deadline", "int64", (n,))
            recent = part.rows("recent", self._link_schema())
            if side.marks is not None:
                side.marks.restore(part, "marks")
            else:
                part.array("marks", "int64", (0,))
            part.end()
            codes = side.put(rows, np.arange(-n, 0))
            side.rows[codes, _UNTIL] = until
            taken = self._sides[1 - number].arrivals.taken
            side.rows[codes, _DEADLINE] = np.where(deadline < NEVER, deadline + taken, NEVER)
            batches.append(rows)
            rests.append((codes, recent))
        links, keys = self._codes(batches)
        for number, (side, (codes, recent)) in enumerate(zip(self._sides, rests, strict=True)):
            if any(column.null_count for column in recent.columns):
                held.refuse("links that are not null", "a null")
            side.rows[codes, _LINK], side.rows[codes, _KEY] = links[number], keys[number]
            side.recent = self._links.codes(self._links.encode(recent.columns))
        self._about = np.full((self._links.room, _USES + 1), -1, np.int64)
        self._about[:, _USES] = 0
        for number, (side, (codes, _)) in enumerate(zip(self._sides, rests, strict=True)):
            kernels.link_rows(codes, number, side.rows, self._about)
            kernels.count_recent(side.recent, number, self._about)
            self._place[number] = 0, 0, side.recent.shape[0]
        if held.has("said"):
            for part in held.parts("over", held.integer("said", 0, MOST)):
                rows = part.rows("rows", self._link_schema())
                self._over.append((part.integer("at"), part.integer("side", 0, 1), rows))
                part.end()
        held.end()

    @property
    def memory(self) -> int:
        tables = sum(each.memory for each in self._sides) + self._links.memory
        keys = 0 if self._keys is None else self._keys.memory + int(self._key_counts.nbytes)
        return int(tables + keys + self._about.nbytes + self._place.nbytes)
