"""W-Group-By and W-Aggregate: one row per group, output again whenever an instant changes it.

A change of a group is its old row with sign -1 and its new one with +1; a group whose tuples have all left goes, and
without keys the one row stays.  An instant that leaves a row as it was tells nothing.
Cost: O(1) per tuple for count, sum, avg and variances, O(log n) for min, max and quantiles, of groups of n values.
Memory: O(groups) for the former (`nile.exact.state.totals`).  Source: negative tuples, section 4.4 and Algorithm 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, TypeAlias

import numpy as np

from nile.aggregates.catalogue import CATALOGUE
from nile.exact.join.threads import pieces_of, together, useful
from nile.exact.pipeline.schedule import Clock, Delta, Operator, Stateful, empty
from nile.exact.pipeline.threaded_selection import put_together
from nile.exact.plan.algebra import Aggregate, Group
from nile.exact.state import arrow
from nile.exact.state import held as holding
from nile.exact.state.arrow import Array, pa
from nile.exact.state.collected import Collected
from nile.exact.state.columns import words_of
from nile.exact.state.expire import joined
from nile.exact.state.lent import roomy
from nile.exact.state.ordered import Ordered
from nile.exact.state.rows import RowTable, grown
from nile.exact.state.totals.spread import Spread
from nile.exact.state.totals.states import Counted, State, Touches
from nile.exact.state.totals.sums import Summed

__all__ = ["Grouping", "instants_cut"]

kernels: Any = arrow.Late("nile.exact.state.group_kernels")

_PIECE = 1 << 14
"""Tuples from which on a thread of their own is worth having: looking them up takes five times what beginning does."""
_PAIRS = 1 << 13
"""Groups that instants touch from which on a thread of their own is worth having to tell of them."""
_BLOCK = 1 << 14
"""Tuples whose keys are made words, and looked up, before the next ones."""

Key: TypeAlias = tuple[Any, ...]
"""(kind of state, the column or columns that it is of, a number where no two aggregates share it)."""

_FAMILY: dict[str, type[State]] = {"count": Counted, "total": Summed, "squares": Spread, "values": Ordered}
"""What keeps a part of the catalogue so that tuples can leave again; of a part that cannot take back, all values."""


class Grouping(Stateful):
    """A group-by at work.  wanted: whether anyone reads the output, or only the contents at the end."""

    KIND: ClassVar = "group"
    HELD: ClassVar[tuple[str, ...]] = ("_counts", "_births", "_shown", "_states")
    DERIVED: ClassVar[tuple[str, ...]] = ("plan", "wanted", "_by", "_table", "_mark", "_born", "_reads")

    def __init__(self, clock: Clock, plan: Group, below: Operator, *, wanted: bool = True) -> None:
        super().__init__(clock, [below], plan.schema)
        self.plan = plan
        self.wanted = wanted
        self._by = [below.schema.get_field_index(name) for name in plan.by]
        self._table = RowTable([below.schema.field(i).type for i in self._by]) if plan.by else None
        self._counts = np.zeros(1, np.int64)
        self._births = np.zeros(1, np.int64)
        self._mark = np.full(1, -1, np.int64)
        self._born = 0
        self._shown = False
        self._states: dict[Key, State] = {}
        self._reads: list[tuple[str, float | None, Key]] = []
        for each in plan.aggregates:
            at = None if each.column is None else below.schema.get_field_index(each.column)
            kind = None if at is None else below.schema.field(at).type
            aggregate = CATALOGUE[each.function]
            if aggregate.is_collected:
                self._collect(each, below.schema)
                continue
            key = (Counted if at is None else _FAMILY[aggregate.parts[-1] if aggregate.retracts else "values"], at)
            if kind is not None and aggregate.takes == "number" and pa.types.is_null(kind):
                key = (Ordered, at)
            if key not in self._states:
                self._states[key] = _state(key[0], kind)
            state = self._states[key]
            share = each.share if aggregate.share is None else aggregate.share
            if isinstance(state, Ordered) and share is not None:
                state.ask(share, discrete=aggregate.gives == "same")
            self._reads.append((each.function, share, key))

    def _collect(self, each: Aggregate, schema: Any) -> None:
        """A state of its own for one of rows in an order: its columns are the value, the keys, and which count."""
        names = [each.column, *(name for name, _, _ in each.order), *([each.where] if each.where is not None else [])]
        key = (Collected, tuple(schema.get_field_index(name) for name in names), len(self._reads))
        kinds = [schema.field(at).type for at in key[1]]
        self._states[key] = Collected(each, kinds)
        self._reads.append((each.function, None, key))

    def apply(self, deltas: list[Delta]) -> Delta:
        delta = deltas[0]
        n = len(delta)
        begins = not self._by and not self._shown and self.clock.origin is not None
        if not n and not (begins and self._local_clock >= (self.clock.origin or 0)):
            return empty(self.schema)
        if self._table is None:
            codes = np.zeros(n, np.int64)
        else:
            codes = self._codes(self._table, delta.given)
            self._counts = grown(self._counts, self._table.room)
            self._births = grown(self._births, self._table.room)
            self._mark = grown(self._mark, self._table.room, -1)
        weight = delta.sign if self.clock.negative and delta.times is None else delta.weight
        runs, (touch_ts, touch_code, before, after, first, last) = self._touched(delta.ts, weight, codes)
        self._born += n
        touches = Touches(delta.sign, weight, codes, *runs, first, last, self._counts.shape[0])
        self._share(touches, n)
        read = {}
        for key, state in self._states.items():
            if isinstance(state, Counted) and key[1] is None:  # the rows of a group, which are counted already
                state.now = self._counts
                read[key] = before[:, None], after[:, None]
            else:
                read[key] = state.apply(touches, _column(delta.rows, key[1]))
        out = None
        if self.wanted and begins:
            out = self._first_told(touch_ts, touch_code, before, after, read)
        elif self.wanted:
            out = self._told_together(touch_ts, touch_code, before, after, read)
        self._shown = self._shown or begins
        if self._table is not None:
            gone = touch_code[self._counts[touch_code] == 0]
            if gone.shape[0]:
                self._table.release(gone)
        return empty(self.schema) if out is None else out

    def _share(self, touches: Touches, n: int) -> None:
        """Let threads work on the groups that n tuples touch, where they are enough."""
        if n > _PIECE and (parts := 1 << (useful(self.clock.threads, n, _PIECE).bit_length() - 1)) > 1:
            touches.shared = partial(_shared, parts)

    def _codes(self, table: RowTable, rows: Any, beside: Callable[[int, int], None] | None = None) -> Array:
        """The group of each tuple: int64 [n].  Threads look up those that there are, then number the new ones.

        beside: what is to be done with all tuples as well, from one to before another.
        """
        n = rows.num_rows
        if n <= _PIECE:
            if beside is not None:
                beside(0, n)
            return table.codes(words_of(rows, self._by, table.encoder))
        pieces = useful(self.clock.threads, n, _PIECE)
        columns = [rows.column(i) for i in self._by]
        codes, cuts = roomy(n), pieces_of(n, pieces)
        whole = table.encode(columns) if table.numbers else None
        new: list[list[tuple[Array, Array]]] = [[] for _ in cuts]

        def find(k: int) -> None:
            for begin in range(cuts[k].start, cuts[k].stop, _BLOCK):
                end = min(begin + _BLOCK, cuts[k].stop)
                if whole is None:
                    words = table.encode([each.slice(begin, end - begin) for each in columns])
                else:
                    words = whole[begin:end]
                table.find(words, codes[begin:end])
                if beside is not None:
                    beside(begin, end)
                at = np.flatnonzero(codes[begin:end] < 0)
                if at.shape[0]:
                    new[k].append((at + begin, words[at]))

        together([partial(find, k) for k in range(pieces)])
        table.number([each for own in new for each in own], codes, pieces, together)
        return codes

    def _touched(self, ts: Array, weight: Array, codes: Array) -> tuple[tuple[Array, Array], list[Array]]:
        """(where runs of tuples of one pair (instant, group) begin, and which pair each is of, as of `Touches`; of each
        pair when, which group, how many rows it has before and after, its first and last tuple: int64 [pairs]).
        Threads number the pairs of whole instants."""
        n = ts.shape[0]
        pieces = useful(self.clock.threads, n, _PIECE) if n > max(_PIECE, self._mark.shape[0]) else 1
        begins, touch, *of_pairs = roomy(n + 1), *(roomy(n) for _ in range(6))
        if pieces == 1:
            runs, held = kernels.number_pairs(ts, weight, codes, self._mark, 0, begins, touch, *of_pairs)
        else:
            runs, held = self._numbered(instants_cut(ts, pieces), ts, weight, codes, begins, touch, of_pairs)
        begins[runs] = n
        touch_ts, touch_code, after, first, last = (each[:held] for each in of_pairs)
        before = np.empty(held, np.int64)
        kernels.count_pairs(touch_code, before, after, first, self._counts, self._births, self._born)
        return (begins[: runs + 1], touch[:runs]), [touch_ts, touch_code, before, after, first, last]

    def _numbered(
        self, cuts: Sequence[int], ts: Array, weight: Array, codes: Array, begins: Array, touch: Array,
        of_pairs: Sequence[Array],
    ) -> tuple[int, int]:  # fmt: skip
        """As `number_pairs`, by threads, of which each has what is between two cuts."""
        many = [(0, 0)] * (len(cuts) - 1)

        def number(k: int) -> None:
            own = slice(cuts[k], cuts[k + 1])
            mark = np.full_like(self._mark, -1) if k else self._mark
            told = [each[own] for each in (begins, touch, *of_pairs)]
            many[k] = kernels.number_pairs(ts[own], weight[own], codes[own], mark, own.start, *told)

        together([partial(number, k) for k in range(len(many))])
        runs, held = many[0]
        for begin, (own_runs, own) in zip(cuts[1:-1], many[1:], strict=True):
            if runs < begin:
                begins[runs : runs + own_runs] = begins[begin : begin + own_runs]
            np.add(touch[begin : begin + own_runs], held, out=touch[runs : runs + own_runs])
            for each in of_pairs if held < begin else ():
                each[held : held + own] = each[begin : begin + own]
            runs, held = runs + own_runs, held + own
        return runs, held

    def _moved(self, before: Array, after: Array, read: Any) -> tuple[Array, Array]:
        """Which rows of pairs go, and which come: bool [pairs]."""
        goes, comes, changed = before > 0, after > 0, np.zeros(before.shape[0], bool)
        if self._by:
            changed = goes != comes
        else:
            goes[:] = comes[:] = True
        for old, new in read.values():
            kernels.note_changed(old, new, changed)
        return goes & changed, comes & changed

    def _first_told(self, ts: Array, code: Array, before: Array, after: Array, read: Any) -> Delta:
        """The first row of a group without keys, and what becomes of it."""
        read = _laid(read, slice(None))
        goes, comes = self._moved(before, after, read)
        if ts.shape[0] and ts[0] == self.clock.origin:
            goes[0], comes[0] = False, True
            return self._told(ts, code, goes, comes, read)
        return self._told(*self._beginning(read, ts, code, goes, comes))

    def _beginning(self, read: Any, ts: Array, code: Array, goes: Array, comes: Array) -> tuple[Any, ...]:
        """The row of nothing, at the pipeline's first instant, before what else there is."""
        none = {key: tuple(np.concatenate([np.zeros_like(new, shape=(1, new.shape[1])), each]) for each in (old, new))
                for key, (old, new) in read.items()}  # fmt: skip
        return (
            np.concatenate([[self.clock.origin], ts]),
            np.concatenate([[0], code]),
            np.concatenate([[False], goes]),
            np.concatenate([[True], comes]),
            none,
        )

    def _told_together(self, ts: Array, code: Array, before: Array, after: Array, read: Any) -> Delta:
        """What becomes of the rows of pairs, of which threads tell whole instants each."""
        threads = useful(self.clock.threads, ts.shape[0], _PAIRS) if ts.shape[0] > _PAIRS else 1
        cuts = instants_cut(ts, threads) if threads > 1 else [0, ts.shape[0]]
        parts: list[Any] = [None] * (len(cuts) - 1)

        def tell(own: slice) -> Delta:
            numbers = _laid(read, own)
            return self._told(ts[own], code[own], *self._moved(before[own], after[own], numbers), numbers)

        def work(k: int) -> None:
            parts[k] = tell(slice(cuts[k], cuts[k + 1]))

        if len(parts) > 1:
            try:
                together([partial(work, k) for k in range(len(parts))])
            except Exception:  # what all of them at once raise is raised
                parts = []
        if len(parts) < 2:
            return tell(slice(None))
        told_ts, sign = (np.concatenate(each) for each in zip(*((part.ts, part.sign) for part in parts), strict=True))
        rows = put_together([part.rows for part in parts], self.schema, threads)
        return Delta(told_ts, sign, rows, None, None, sum(part.gone for part in parts))

    def _told(self, ts: Array, code: Array, goes: Array, comes: Array, read: Any) -> Delta:
        """Old rows go and new rows come, in time order."""
        out = np.empty(2 * ts.shape[0], np.int64)
        sign = np.empty(2 * ts.shape[0], np.int8)
        ts, code = np.asarray(ts, np.int64), np.asarray(code, np.int64)
        n = kernels.old_and_new(ts, goes, comes, out, sign)
        out, sign = out[:n], sign[:n]
        if not n:
            return empty(self.schema)
        numbers = {key: kernels.picked(a, b, out, sign) for key, (a, b) in read.items()}
        gone = int(np.count_nonzero(goes))
        return Delta(ts[out], sign, self._rows(code[out], numbers), None, None, gone)

    def _rows(self, codes: Array, numbers: Any) -> Any:
        columns = [] if self._table is None else self._table.columns(codes)
        for (function, share, key), field in zip(self._reads, self.schema.names[len(self._by) :], strict=True):
            kind = self.schema.field(field).type
            state = self._states[key]
            if isinstance(state, Ordered) and CATALOGUE[function].parts[-1] in ("total", "squares"):
                columns.append(pa.nulls(codes.shape[0], kind))
            else:
                columns.append(state.column(function, numbers[key], kind, share))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def contents(self) -> Any:
        """The groups that have tuples, in the order they appeared."""
        if self._table is None and not self._shown:
            return joined([], self.schema)
        codes = self._live()
        return self._rows(codes, {key: state.current(codes) for key, state in self._states.items()})

    def captured(self) -> holding.State:
        """The groups in the order they appeared: keys, rows of each, and what each column's state holds of them."""
        codes = self._live()
        out: holding.State = {
            "shown": self._shown,
            "counts": self._counts[codes],
            "states": [state.capture(codes) for state in self._states.values()],
        }
        if self._table is not None:
            out["groups"] = pa.RecordBatch.from_arrays(self._table.columns(codes), schema=self._key_schema())
        return out

    def restored(self, held: holding.Held) -> None:
        self._shown = held.flag("shown")
        n = 1
        if self._table is None:
            self._counts, self._births, self._born = held.array("counts", "int64", (1,)).copy(), np.arange(1), 1
        else:
            groups = held.rows("groups", self._key_schema())
            n = groups.num_rows
            counts = held.array("counts", "int64", (n,))
            if not self._put(groups, counts):
                held.refuse("groups that differ", "one of them twice")
        parts = held.parts("states", len(self._states))
        for state, part in zip(self._states.values(), parts, strict=True):
            state.restore(part, n)

    def _put(self, groups: Any, counts: Array) -> bool:
        """Groups by their keys and rows of each, into an empty table; whether they all differ."""
        assert self._table is not None
        differ = self._table.put(self._table.encode(groups.columns))
        room = self._table.room
        self._counts = grown(counts.copy(), room)
        self._births = np.arange(room)
        self._mark = np.full(room, -1, np.int64)
        self._born = groups.num_rows
        return differ

    def _live(self) -> Array:
        """The codes of groups that have tuples, in the order they appeared; without keys the one there is."""
        if self._table is None:
            return np.zeros(1, np.int64)
        live = self._table.live()
        return live[np.argsort(self._births[live], kind="stable")]

    def _key_schema(self) -> Any:
        return pa.schema([self.inputs[0].schema.field(i) for i in self._by])

    @property
    def own(self) -> int:
        tables = self._counts.nbytes + self._births.nbytes + self._mark.nbytes
        tables += 0 if self._table is None else self._table.memory
        return int(tables + sum(state.memory for state in self._states.values()))


def instants_cut(ts: Array, pieces: int) -> list[int]:
    """Where to cut changes so that no instant is: as many pieces, or fewer, of about the same length."""
    n = ts.shape[0]
    return sorted({0, n, *(int(ts.searchsorted(ts[each.start])) for each in pieces_of(n, pieces)[1:])})


def _shared(parts: int, kernel: Callable[..., object], *given: Any, scratch: int) -> None:
    """Call a kernel for each part of the groups on a thread of its own; parts: a power of two.

    Each group's tuples are one thread's, in their order, so sums, and what is read of them, do not depend on how many
    threads there are.
    """
    together([partial(kernel, *given, part, parts - 1, np.empty(scratch, np.int64)) for part in range(parts)])


def _laid(read: Any, own: slice) -> dict[Key, tuple[Array, Array]]:
    """Of some pairs what states have read before and after, as kernels take it."""
    return {key: (np.ascontiguousarray(old[own]), np.ascontiguousarray(new[own])) for key, (old, new) in read.items()}


def _column(rows: Any, at: int | tuple[int, ...] | None) -> Any:
    if at is None:
        return None
    return [rows.column(each) for each in at] if isinstance(at, tuple) else rows.column(at)


def _state(family: type[State], kind: Any) -> State:
    """An empty state over a column of type `kind`."""
    if family is Counted:
        return Counted()
    if family is Spread:
        return Spread()
    return Summed(kind) if family is Summed else Ordered(kind)
