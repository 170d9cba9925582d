"""Reading a plan's leaves: streams in event-time order through the stream manager, and stored relations."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from nile.base.cells import misfit_reason
from nile.base.plain import decoded, decoded_schema, decoded_type
from nile.exact.plan.algebra import SIGN
from nile.exact.state.columns import Columns, made, picked
from nile.exact.state.lent import lent_together
from nile.execution.values import filtered, schema_of
from nile.expressions.tree import Logic, Node, columns_of, rename
from nile.sql.plan import Field, Plan, Relation, Stream, leaves_of
from nile.streams.abreast import read_abreast
from nile.streams.accounting import Accounting
from nile.streams.arrow import ArrowSource
from nile.streams.files.pruning import Test, batches_of, pruning_of
from nile.streams.holding import Holding
from nile.streams.live import SIGN as LOG_SIGN
from nile.streams.manager import StreamManager
from nile.streams.source import Source
from nile.streams.versions import Versions
from nile.summaries.heavy import pa, pc

if TYPE_CHECKING:
    from nile.expressions.conditions import Condition

__all__ = ["Leaf", "Naming", "Readable", "Reading", "named_leaf", "own_condition", "places", "selected"]

Array = np.ndarray[Any, Any]
_ROWS = 65_536


class Readable(Protocol):
    """What is asked of a database."""

    @property
    def threads(self) -> int | None:
        """How many a query may work on, None for all cores."""

    @property
    def scratch(self) -> Path | None:
        """Where files go while an answer is worked out; None: the system's folder for such files."""

    def manager(self, name: str, key: str, carry: tuple[str, ...] = ()) -> StreamManager:
        """A fresh manager over a stream."""

    def relation(self, name: str) -> tuple[Source, Condition | None]:
        """The source of a stored relation, and which of its rows belong to it."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """What a leaf gave.  ts: int64 [n] ns (None of a relation); batch: its columns as the plan names them, [n].

    last: the latest event time read, also of tuples that the leaf's own condition left out; None without any.
    """

    ts: Array | None
    batch: pa.RecordBatch
    last: int | None = None


class Reading:
    """The leaves of one run of a plan.  A stream that is named twice is read once, unless it is passed through.

    keys: of sources, by name, the column that only serves to join by: `whole` may give it as a dictionary (see
    `key_columns`).  accounting: of each alias, in = applied + late + shed + rejected, as far as it was read.
    """

    def __init__(self, home: Readable, plan: Plan, keys: Mapping[str, str] | None = None) -> None:
        self._home = home
        self._keys = keys or {}
        self._needed: dict[str, list[str]] = {}
        self._tests = tests_of(leaves_of(plan))
        for leaf in leaves_of(plan):
            names = self._needed.setdefault(leaf.name, [])
            names.extend(name for name in self.columns(leaf) if name not in names)
        self._whole: dict[str, tuple[Array | None, pa.RecordBatch, Accounting]] = {}
        self.accounting: dict[str, Accounting] = {}
        self.threads: int | None = None
        """How many work on what was read whole may use, as its streams say; None: as many as there are cores."""
        self.spilled = 0
        """Bytes of files in which rows lie that are held whole."""

    def stream_batches(self, leaf: Stream, rows: int = _ROWS) -> Iterator[tuple[Array, pa.RecordBatch, Array]]:
        """A stream passed through: (ts of the tuples, their columns, ts of all tuples read), nothing kept."""
        for read, ((ts, named),) in self.coming((leaf,), rows):
            yield ts, named, read

    def coming(
        self, leaves: Sequence[Stream], rows: int = _ROWS
    ) -> Generator[tuple[Array, list[tuple[Array, pa.RecordBatch]]]]:
        """One stream, read once for the leaves that name it: (ts of all tuples read, of each leaf ts and columns)."""
        columns = tuple(dict.fromkeys(name for leaf in leaves for name in self.columns(leaf)))
        manager = self._manager(leaves[0], columns)
        for batch in manager.batches(rows, at_once=True):
            self.accounting.update((leaf.alias, manager.accounting) for leaf in leaves)
            assert batch.carried is not None
            given = [named_leaf(leaf, batch.carried.select(list(self.columns(leaf)))) for leaf in leaves]
            yield batch.ts, [selected(leaf, batch.ts, one) for leaf, one in zip(leaves, given, strict=True)]
        self.accounting.update((leaf.alias, manager.accounting) for leaf in leaves)

    def _manager(self, leaf: Stream, columns: tuple[str, ...]) -> StreamManager:
        manager = self._home.manager(leaf.name, leaf.time, columns)
        manager.asked = self._tests.get(leaf.name)
        return manager

    def may_wait(self, leaf: Stream) -> bool:
        """Whether a stream's source may still be making its rows: it cannot say how many there are."""
        return self._home.manager(leaf.name, leaf.time).may_wait

    def relation_batches(self, leaf: Relation, rows: int = _ROWS) -> Iterator[pa.RecordBatch]:
        """A stored relation passed through, nothing kept."""
        for batch, accounting in self._relation(leaf.name, self.columns(leaf), rows):
            self.accounting[leaf.alias] = accounting
            yield selected(leaf, None, named_leaf(leaf, batch))[1]

    def changes(self, leaf: Relation) -> Leaf:
        """What changed so far in a relation that does: when, and its columns, then `SIGN`."""
        source, _ = self._home.relation(leaf.name)
        assert isinstance(source, Versions)
        ts, rows = source.changes([*self.columns(leaf), LOG_SIGN])
        (batch,) = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
        return Leaf(*self.signed(leaf, ts, batch), int(ts[-1]) if ts.shape[0] else None)

    def signed(self, leaf: Relation, ts: Array, rows: pa.RecordBatch) -> tuple[Array, pa.RecordBatch]:
        """Changes of a relation (its columns and the sign, as in its log) as a leaf gives them."""
        named = named_leaf(leaf, rows.select(list(self.columns(leaf))))
        signed = named.append_column(SIGN, rows.column(rows.schema.get_field_index(LOG_SIGN)))
        return selected(leaf, ts, signed)

    def schema(self, leaf: Stream | Relation) -> pa.Schema:
        """The columns that a leaf gives, named and typed as in the plan."""
        if leaf.fields:
            return schema_of(leaf.fields)
        (name,) = self.columns(leaf)
        source = self._home.manager(leaf.name, name).source if isinstance(leaf, Stream) else None
        kind = (source or self._home.relation(leaf.name)[0]).schema.field(name).type
        return pa.schema([(f"{leaf.alias}.{name}", decoded_type(kind))])

    def whole(self, leaf: Stream | Relation, newest: int | None = None) -> Leaf:
        """A leaf, all of it, or what its so many newest tuples are.  Memory: its columns."""
        ts, batch = self._held(leaf)
        if newest is not None and ts is not None:
            ts, batch = ts[len(ts) - newest :], batch.slice(len(ts) - newest)
        last = None if ts is None or not ts.shape[0] else int(ts[-1])
        ts, named = selected(leaf, ts, named_leaf(leaf, batch, self._keys.get(leaf.name)))
        return Leaf(ts, named, last)

    def again(self, leaf: Stream | Relation, rows: int = _ROWS) -> Iterator[tuple[Array | None, pa.RecordBatch]]:
        """A leaf whose source other leaves name too, as (ts, columns): held once, passed through."""
        ts, batch = self._held(leaf)
        for begin in range(0, batch.num_rows, rows):
            times = None if ts is None else ts[begin : begin + rows]
            yield selected(leaf, times, named_leaf(leaf, batch.slice(begin, rows)))

    def load(self, leaves: Sequence[Stream | Relation]) -> None:
        """Read these, which are to be held `whole`: files at once, on threads."""
        names = {leaf.name: leaf for leaf in leaves if isinstance(leaf, Stream) and leaf.name not in self._whole}
        managers = [self._keyed(leaf, tuple(self._needed[name])) for name, leaf in names.items()]
        for name, manager, read in zip(names, managers, read_abreast(managers, _load_stream), strict=True):
            ts, columns, spilled = read
            self._whole[name] = ts, columns, manager.accounting
            self.threads = manager.spec.threads
            self.spilled += spilled

    def _keyed(self, leaf: Stream, columns: tuple[str, ...]) -> StreamManager:
        """Of a stream that is held whole: what only serves to join by is its key.

        Not where a condition spares row groups: a key is read of all rows.
        """
        key = self._keys.get(leaf.name)
        if key is None or self._tests.get(leaf.name) is not None:
            return self._manager(leaf, columns)
        return self._home.manager(leaf.name, key, tuple(name for name in columns if name != key))

    def _held(self, leaf: Stream | Relation) -> tuple[Array | None, pa.RecordBatch]:
        if leaf.name not in self._whole:
            if isinstance(leaf, Stream):
                self.load([leaf])
            else:
                self._whole[leaf.name] = self._load_relation(leaf)
        ts, batch, self.accounting[leaf.alias] = self._whole[leaf.name]
        return ts, batch

    def columns(self, leaf: Stream | Relation) -> tuple[str, ...]:
        """The source's columns that a leaf reads; one at least, since a batch without columns has no length."""
        names = tuple(dict.fromkeys(_own(leaf, field) for field in leaf.fields))
        if names:
            return names
        return (leaf.time if isinstance(leaf, Stream) else self._home.relation(leaf.name)[0].schema.names[0],)

    def _load_relation(self, leaf: Relation) -> tuple[None, pa.RecordBatch, Accounting]:
        columns = tuple(self._needed[leaf.name])
        source, _ = self._home.relation(leaf.name)
        accounting = Accounting()
        in_memory = isinstance(source, ArrowSource | Versions)
        holding = Holding(f"relation '{leaf.name}'", self._home.scratch, counted=not in_memory)
        for batch, counted in self._relation(leaf.name, columns, _ROWS):
            holding.add(None, batch)
            accounting = counted
        self.spilled += holding.end()
        return None, _together(holding.batches, source.schema, columns), accounting

    def _relation(self, name: str, columns: tuple[str, ...], rows: int) -> Iterator[tuple[pa.RecordBatch, Accounting]]:
        """Rows that belong to the relation; those that are no rows, or have a cell that does not fit, are rejected."""
        source, where = self._home.relation(name)
        accounting = Accounting()
        asked = tuple(dict.fromkeys((*columns, *(where.columns if where else ()))))
        pruning = pruning_of(source.schema, where, self._tests.get(name), ())
        for raw in batches_of(source, asked, rows, self._home.threads, pruning):
            batch = raw.batch
            keep = np.ones(batch.num_rows, bool)
            for bad in raw.malformed:
                accounting.reject({bad.reason: 1})
            for column, misfit in raw.misfits.items():
                reason = misfit_reason(column, batch.schema.field(column).type)
                fresh = int((misfit & keep).sum())
                if fresh:
                    accounting.reject({reason: fresh})
                keep &= ~misfit
            if where is not None:
                keep &= pc.fill_null(where.mask(batch), False).to_numpy(zero_copy_only=False)
            if not keep.all():
                batch = batch.filter(pa.array(keep))
            accounting.apply(batch.num_rows + raw.unread)
            arrays = [decoded(batch.column(batch.schema.get_field_index(column))) for column in columns]
            yield pa.RecordBatch.from_arrays(arrays, names=list(columns)), accounting


def tests_of(leaves: Sequence[Stream | Relation]) -> dict[str, Test]:
    """By source, what is asked of all rows whose columns matter; nothing of one that a leaf takes all of."""
    found = {}
    for name in dict.fromkeys(leaf.name for leaf in leaves):
        own = [leaf for leaf in leaves if leaf.name == name]
        asked = [condition for condition in map(own_condition, own) if condition is not None]
        kinds = {_own(leaf, field): field.type for leaf in own for field in leaf.fields}
        if len(asked) == len(own) and all(set(columns_of(each)) <= kinds.keys() for each in asked):
            found[name] = Test(asked[0] if len(asked) == 1 else Logic("OR", tuple(asked)), kinds)
    return found


def own_condition(leaf: Stream | Relation) -> Node | None:
    """A leaf's condition over the columns as the source calls them."""
    if leaf.where is None:
        return None
    return rename(leaf.where, lambda column: replace(column, name=column.name.removeprefix(f"{leaf.alias}.")))


def _own(leaf: Stream | Relation, field: Field) -> str:
    return field.name.removeprefix(f"{leaf.alias}.")


def named_leaf(leaf: Stream | Relation, batch: pa.RecordBatch, key: str | None = None) -> pa.RecordBatch:
    """The columns of a leaf as the plan calls them.  key: one that may stay a dictionary."""
    if not leaf.fields:
        return batch.rename_columns([f"{leaf.alias}.{name}" for name in batch.schema.names])
    arrays = []
    for field in leaf.fields:
        name = _own(leaf, field)
        array = batch.column(batch.schema.get_field_index(name))
        kind = decoded_type(array.type) if name == key else array.type
        arrays.append(array if kind == field.type else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in leaf.fields])


def places(leaf: Stream | Relation, schema: pa.Schema) -> tuple[list[int] | None, pa.Schema]:
    """(where the columns of a leaf are in batches of a schema, what the plan calls them).

    None instead of places where there is more to do for `named_leaf`.
    """
    at = [schema.get_field_index(_own(leaf, field)) for field in leaf.fields]
    plain = bool(at) and all(
        k >= 0 and schema.field(k).type == field.type for k, field in zip(at, leaf.fields, strict=True)
    )
    return (at if plain else None), schema_of(leaf.fields)


class Naming:
    """The columns of leaves in batches; where they are is found out once for batches that are alike."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[pa.Schema, tuple[list[int], pa.Schema] | None]] = {}

    def place(self, leaf: Stream | Relation, schema: pa.Schema) -> tuple[list[int], pa.Schema] | None:
        """(where they are in batches of a schema, as the plan calls them); None: there is more to do."""
        known = self._places.get(leaf.alias)
        if known is None or not (schema is known[0] or schema.equals(known[0])):
            at, named = places(leaf, schema)
            known = self._places[leaf.alias] = schema, None if at is None else (at, named)
        return known[1]

    def named(self, leaf: Stream | Relation, batch: pa.RecordBatch | Columns) -> pa.RecordBatch | Columns:
        """As the plan calls them."""
        if (named := self.place(leaf, batch.schema)) is not None:
            return picked(batch, *named)
        return named_leaf(leaf, made(batch))


def selected(leaf: Stream | Relation, ts: Any, batch: pa.RecordBatch) -> tuple[Any, pa.RecordBatch]:
    """The rows that the leaf's own condition leaves."""
    if leaf.where is None or batch.num_rows == 0:
        return ts, batch
    if ts is None:
        return None, filtered(leaf.where, batch)
    numbered = batch.append_column("\0ts", pa.array(ts))
    kept = filtered(leaf.where, numbered)
    if kept.num_rows == batch.num_rows:
        return ts, batch
    left = kept.column(kept.num_columns - 1).to_numpy(zero_copy_only=True)
    return left, kept.select(list(range(batch.num_columns)))


def _load_stream(manager: StreamManager) -> Generator[None, None, tuple[Array, pa.RecordBatch, int]]:
    """(times, columns, bytes of files); between batches it yields.  A key other than the time is one of the columns."""
    spec = manager.spec
    names = spec.carry if spec.key == spec.time else (spec.key, *spec.carry)
    holding = Holding(f"stream '{spec.name}'", spec.scratch, counted=manager.reads != "Table")
    for batch in manager.whole(_ROWS):
        rows = batch.carried
        if spec.key != spec.time:
            rows = pa.RecordBatch.from_arrays([batch.key, *([] if rows is None else rows.columns)], names=list(names))
        holding.add(batch.ts, rows)
        yield
    spilled = holding.end()
    columns = _together(holding.batches, manager.source.schema, names)
    return lent_together(holding.times), columns, spilled


def _together(batches: list[Any], schema: pa.Schema, columns: tuple[str, ...]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    if batches:
        return pa.concat_batches(batches)
    fields = pa.schema([schema.field(name) for name in columns])
    return pa.RecordBatch.from_pylist([], decoded_schema(fields))
