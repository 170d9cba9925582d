"""What comes to a leaf of a plan, after the selections and projections above it, until it is worked on.

These depend on the tuple alone, so they are applied once, as it comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np

from nile.exact.pipeline.sources.taken_back import TakenBack
from nile.exact.plan.algebra import Plan, Project, Scan, Select
from nile.exact.plan.comparing import Comparing
from nile.exact.state.arrow import Array, in_place, pa
from nile.exact.state.columns import made, picked
from nile.exact.state.expire import joined
from nile.exact.state.held import MOST, Held, State
from nile.exact.state.lent import roomy
from nile.summaries.errors import UnknownColumn

__all__ = ["Incoming", "Named", "applied", "chain_of", "conformed", "picks_of", "projected", "selected"]

_NO_TIMES = np.zeros(0, np.int64)

Named: TypeAlias = tuple[list[int], Any]
"""Where some columns are, and the schema that they are called by."""


def selected(rows: Any, test: Callable[[Any], Any]) -> Array:
    """For which rows, `Columns` too, the test is true: bool [n]."""
    if type(test) is Comparing and (plainly := test.plainly(rows)) is not None:
        return plainly
    yes = test(made(rows))
    if isinstance(yes, pa.ChunkedArray):
        yes = yes.combine_chunks()
    if yes.null_count:
        yes = yes.fill_null(False)
    return yes.to_numpy(zero_copy_only=False)


def conformed(rows: Any, schema: Any) -> Any:
    """The rows with exactly the columns of the schema, in its order and types.  Raises UnknownColumn."""
    if rows.schema.equals(schema):
        return rows
    names = rows.schema.names
    columns = []
    for field in schema:
        if field.name not in names:
            raise UnknownColumn(
                f"rows: needed a column {field.name!r}; got {', '.join(names)}; give every column of the schema"
            )
        column = rows.column(names.index(field.name))
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def projected(rows: Any, node: Project) -> Any:
    """What a projection makes of rows, `Columns` where it only passes columns on.  Raises UnknownColumn."""
    if node.picks is not None:
        return picked(rows, node.picks, node.schema)
    return conformed(node.make(made(rows)), node.schema)


def picks_of(nodes: Sequence[Plan]) -> tuple[int, ...] | None:
    """Where the columns above some nodes are below them, if these only pass columns on; None: there is more to it."""
    found: tuple[int, ...] | None = None
    for node in nodes:
        if not isinstance(node, Project) or node.picks is None:
            return None
        found = node.picks if found is None else tuple(found[at] for at in node.picks)
    return found


def chain_of(plan: Plan) -> tuple[Plan, list[Select | Project]]:
    """(what lies under the selections and projections, those from below upwards)."""
    above: list[Select | Project] = []
    while isinstance(plan, Select | Project):
        above.append(plan)
        plan = plan.input
    return plan, above[::-1]


def applied(rows: Any, above: list[Select | Project], counts: list[int]) -> tuple[Any, Array | None]:
    """(rows after the chain, `Columns` too; the place of each in the input or None for all).

    counts: [1 + nodes of the chain], to which the rows that came in and out of each node are added.
    """
    counts[0] += rows.num_rows
    at: Array | None = None
    if not above:
        return rows, at
    if not rows.num_rows:
        return joined([], above[-1].schema if above else rows.schema), at
    for k, node in enumerate(above, 1):
        if isinstance(node, Select):
            yes = selected(rows, node.test)
            if not yes.all():
                places = np.flatnonzero(yes)
                rows = made(rows).take(pa.array(places))
                at = places if at is None else at[places]
                if not places.shape[0]:
                    return joined([], above[-1].schema), at
        else:
            rows = projected(rows, node)
        counts[k] += rows.num_rows
    return rows, at


def _end_to_end(arrays: Sequence[Array]) -> Array:
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays, out=roomy(sum(each.shape[0] for each in arrays))) if arrays else _NO_TIMES


def _column(arrays: list[Any]) -> Any:
    """One of several: of many numbers of 64 bits in memory that was used before (`roomy`)."""
    kind = arrays[0].type
    if any(each.null_count for each in arrays) or not (pa.types.is_int64(kind) or pa.types.is_float64(kind)):
        return pa.concat_arrays(arrays)
    return in_place(_end_to_end([each.to_numpy(zero_copy_only=False).view(np.int64) for each in arrays]), kind)


class Incoming:
    """Tuples of one scan that have been pushed and not yet worked on, after the chain above the scan.

    counts: rows out of the scan and of each node of the chain.
    """

    HELD: ClassVar = ("counts", "taken", "back", "_raw", "_kept")
    DERIVED: ClassVar = ("scan", "above", "schema", "_picks", "_nodes", "_alike", "_named", "_own")

    def __init__(self, scan: Scan, above: list[Select | Project]) -> None:
        self.scan = scan
        self.above = above
        self._picks = picks_of(above)
        self._nodes = range(1 + len(above))
        self._alike: Any = scan.schema
        """A schema that equals the scan's: that of rows that came last."""
        self._named: Named | None = None
        self._own: tuple[int, ...] | None = None
        """Where the columns at the end of the chain are in rows that are `_named` so; None: there is more to it."""
        self.schema = above[-1].schema if above else scan.schema
        self.counts = [0] * (1 + len(above))
        self.taken = 0  # tuples worked on, before the chain
        self.back = TakenBack(self.schema)
        self._raw: deque[Array] = deque()
        self._kept: deque[tuple[Array, Any, Array | None]] = deque()

    def push(self, ts: Array, rows: Any, named: Named | None = None) -> None:
        """Tuples in time order, none before what was pushed.  named: which columns of rows these are, None: all."""
        at = None
        if named is not None:
            if named is not self._named:
                same = self._picks is not None and named[1].equals(self.scan.schema)
                self._own = tuple(named[0][k] for k in self._picks or ()) if same else None
                self._named = named
            if self._own is not None:
                n, counts = rows.num_rows, self.counts
                for k in self._nodes:
                    counts[k] += n
                self._raw.append(ts)
                self._kept.append((ts, picked(rows, self._own, self.schema), None))
                return
            rows = picked(rows, *named)
        if rows.schema is not self._alike:
            given, rows = rows.schema, conformed(rows, self.scan.schema)
            self._alike = given if rows.schema is given else self.scan.schema
        if self._picks is None:
            rows, at = applied(rows, self.above, self.counts)
        else:
            n, counts = rows.num_rows, self.counts
            for k in self._nodes:
                counts[k] += n
            rows = picked(rows, self._picks, self.schema)
        self._raw.append(ts)
        self._kept.append((ts if at is None else ts[at], rows, at))

    def take_back(self, at: int, ts: Array, rows: Any) -> None:
        """Tuples of times `ts` that were pushed go at the instant `at`."""
        rows, places = applied(conformed(rows, self.scan.schema), self.above, [0] * len(self.counts))
        self.back.add(at, ts if places is None else ts[places], made(rows))

    def nth(self, n: int) -> int | None:
        """The time of the n-th waiting tuple (from 0), None if there are fewer."""
        for ts in self._raw:
            if n < ts.shape[0]:
                return int(ts[n])
            n -= ts.shape[0]
        return None

    def take(self, to: int) -> tuple[Array, Array, Array, Any]:
        """(times of all tuples up to `to`, ordinals of those the chain keeps, their times, their rows)."""
        before, parts = self.taken, self._taken(to)
        ordinals = []
        for raw, ts, _, at in parts:
            ordinals.append(np.arange(before, before + ts.shape[0]) if at is None else at + before)
            before += raw.shape[0]
        ts, rows = self._as_one(parts)
        return _end_to_end([each[0] for each in parts]), _end_to_end(ordinals), ts, made(rows)

    def _taken(self, to: int) -> list[tuple[Array, Array, Any, Array | None]]:
        """Times of all tuples up to `to`; of those that the chain keeps their times, rows (`Columns` too), and places
        among all, None: it keeps all."""
        parts: list[tuple[Array, Array, Any, Array | None]] = []
        while self._raw and (first := self._raw[0])[0] <= to:
            end = int(first.searchsorted(to, "right"))
            ts, rows, at = self._kept[0]
            cut = end if at is None else int(ts.searchsorted(to, "right"))
            parts.append((first[:end], ts[:cut], rows.slice(0, cut), None if at is None else at[:cut]))
            self.taken += end
            if end < first.shape[0]:
                self._raw[0] = first[end:]
                self._kept[0] = (ts[cut:], rows.slice(cut), None if at is None else at[cut:] - end)
                break
            self._raw.popleft()
            self._kept.popleft()
        return parts

    def _as_one(self, parts: list[tuple[Array, Array, Any, Array | None]]) -> tuple[Array, Any]:
        """Their times and rows, `Columns` too."""
        if len(parts) == 1:
            return parts[0][1:3]
        if not parts:
            return _NO_TIMES, joined([], self.schema)
        several = [made(each[2]) for each in parts]
        columns = [_column([rows.column(at) for rows in several]) for at in range(len(self.schema))]
        return _end_to_end([each[1] for each in parts]), pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def stays(self, to: int, before: int) -> bool:
        """Whether something is to be taken back up to `to`, or a time that waits is `before` or later."""
        raw, back = self._raw, self.back
        return bool(raw and raw[-1][-1] >= before) or (bool(back.waiting) and back.first(to) is not None)

    def straight(self, to: int, before: int) -> tuple[Array, Any] | None:
        """As `kept`; None: it `stays`."""
        raw = self._raw
        if len(raw) == 2 and raw[0][-1] <= to < raw[1][0] and raw[1][-1] < before and not self.back.waiting:
            self.taken += raw.popleft().shape[0]
            return self._kept.popleft()[:2]
        return None if self.stays(to, before) else self.kept(to)

    def kept(self, to: int) -> tuple[Array, Any]:
        """As `take`, of those that the chain keeps: their times, their rows, `Columns` too."""
        raw = self._raw
        if raw and raw[0][-1] <= to and (len(raw) == 1 or raw[1][0] > to):
            self.taken += raw.popleft().shape[0]
            return self._kept.popleft()[:2]
        return self._as_one(self._taken(to))

    def capture(self) -> State:
        """The tuples that wait: the times of all, which of them the chain keeps, the rows it made of those."""
        ts = np.concatenate([np.zeros(0, np.int64), *self._raw])
        kept = np.zeros(ts.shape[0], np.bool_)
        first = 0
        for raw, (_, _, at) in zip(self._raw, self._kept, strict=True):
            kept[slice(first, first + raw.shape[0]) if at is None else first + at] = True
            first += raw.shape[0]
        rows = made(joined([each[1] for each in self._kept], self.schema))
        waiting = {"counts": np.array(self.counts), "taken": self.taken, "ts": ts, "kept": kept, "rows": rows}
        return {**waiting, **self.back.capture()}

    def restore(self, held: Held) -> None:
        """Put captured tuples where none wait.  Raises EnvelopeError."""
        self.counts[:] = held.counts("counts", len(self.counts)).tolist()
        self.taken = held.integer("taken", 0, MOST)
        ts = held.rising("ts")
        at = np.flatnonzero(held.array("kept", "bool", ts.shape))
        rows = held.rows("rows", self.schema, at.shape[0])
        self.back.restore(held)
        held.end()
        if ts.shape[0]:
            self._raw.append(ts)
            self._kept.append((ts[at], rows, at))

    def waiting(self, to: int) -> int:
        """Tuples up to an instant that have been pushed and not worked on, before the chain."""
        return sum(int(np.searchsorted(each, to, side="right")) for each in self._raw)

    @property
    def memory(self) -> int:
        kept = sum(each[0].nbytes + each[1].nbytes for each in self._kept)
        return int(kept + sum(each.nbytes for each in self._raw)) + self.back.memory
