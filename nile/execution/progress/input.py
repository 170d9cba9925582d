"""The input of a progressive query: the histories of its streams, and the time bounds of its conditions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from nile.base.durations import NS_PER_SECOND
from nile.execution.approximate.attributes import conditions_told
from nile.execution.values import all_of
from nile.expressions.tree import Column, Compare, Constant, In, Node, comparisons_of, conjuncts
from nile.operators.history.keys import ProbeKeys
from nile.operators.history.ruling import NOWHERE, runs_without
from nile.pyramid.history.history import History
from nile.sql.catalog import Catalog
from nile.sql.plan import Rows, Stream
from nile.streams.accounting import Accounting
from nile.summaries.errors import NotYet
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.operators.inputs.shared_grid import SharedSummary
    from nile.pyramid.grid.manager import SummaryManager
    from nile.sql.catalog import Entry
    from nile.streams.manager import StreamManager
    from nile.summaries.hashing import KeyHasher

__all__ = ["Histories", "Kept", "bounded", "check_stream", "keys_of", "own_columns", "renamed", "values_of"]

Array = np.ndarray[Any, Any]

_INT64 = 2**63 - 1
_NEAR = 1_000  # ns: how far a float of seconds may be rounded


class Kept(Catalog, Protocol):
    """What is asked of a database."""

    def schema(self, name: str) -> pa.Schema:
        """The columns of a stream."""

    @property
    def entries(self) -> Mapping[str, Entry]:
        """All streams and stored relations."""

    @property
    def hasher(self) -> KeyHasher:
        """Of all keys in it."""

    def history(self, name: str) -> History | None:
        """What it keeps of a stream, if it does."""

    def manager(self, name: str, key: str, carry: tuple[str, ...] = ()) -> StreamManager:
        """A fresh manager over a stream."""

    def shared(self, name: str, column: str) -> SharedSummary | None:
        """The summary of a stream's column that CREATE SUMMARY made; None where there is none."""


class Histories:
    """The histories of a query's streams: those the database keeps, and others made of their sources.

    columns: of each stream's name what is read; indexed: of each the columns that need a key index.  grids: the
    summaries that were asked, by stream and column.
    """

    def __init__(self, engine: Kept, streams: Sequence[Stream], indexed: Mapping[str, Sequence[str]]) -> None:
        self._engine = engine
        self._indexed = indexed
        self._columns: dict[str, list[str]] = {}
        self._times = {stream.name: stream.time for stream in streams}
        for stream in streams:
            names = self._columns.setdefault(stream.name, [])
            names += [name for name in own_columns(stream) if name not in names]
        self._held: dict[str, History] = {}
        self.accounting: dict[str, Accounting] = {}
        self.made: set[str] = set()
        self.grids: dict[tuple[str, str], str] = {}

    def open(self) -> Iterator[None]:
        """Make them ready; a step a batch of a source that has to be read.  Raises what sources and keys raise."""
        for name in self._columns:
            found = self._engine.history(name)
            if found is None:
                found = yield from self._read(name)
            for column in self._indexed.get(name, ()):
                found.index(column)
            self._held[name] = found

    def __getitem__(self, name: str) -> History:
        return self._held[name]

    def grid(self, name: str, column: str) -> SummaryManager | None:
        """What CREATE SUMMARY keeps of a column, where it counts all of a history that was kept before the query."""
        shared = None if name in self.made else self._engine.shared(name, column)
        grid = None if shared is None else shared.live
        if shared is None or grid is None or shared.spec.structure == "T1" or grid.forgotten:
            return None
        if grid.store.tuples != self._held[name].tuples:
            return None
        shared.served += 1
        self.grids[name, column] = shared.name
        return grid

    def without(self, stream: Stream, conditions: Sequence[Node]) -> Array:
        """Where no tuple of a stream can meet all conditions, as its summaries tell: int64 [runs, 2], ordinals."""
        history = self._held[stream.name]
        told, kinds = conditions_told(conditions, stream, self._engine)
        for part in (*told, *conditions):
            asked = values_of(part, stream.alias)
            if asked is not None and asked[0] not in history.schema.names and asked[0] not in kinds:
                asked = None
            keys = None if asked is None else keys_of(history, *asked, kinds.get(asked[0]))
            grid = None if asked is None or keys is None else self.grid(stream.name, asked[0])
            if grid is not None and keys is not None:
                return runs_without(grid, keys)
        return NOWHERE

    def _read(self, name: str) -> Any:
        columns = self._columns[name]
        whole = self._engine.entries[name].schema
        schema = pa.schema([whole.field(column) for column in columns])
        made = History(name, schema, indexed=self._indexed.get(name, ()), hasher=self._engine.hasher)
        self.made.add(name)
        manager = self._engine.manager(name, self._times[name], tuple(columns))
        for batch in manager.batches():
            assert batch.carried is not None
            made.append(batch.ts, _cast(batch.carried, made.schema))
            yield None
        self.accounting[name] = manager.accounting
        return made


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def own_columns(stream: Stream) -> tuple[str, ...]:
    """The columns of a stream that a query reads, as the stream calls them; one at least."""
    prefix = f"{stream.alias}."
    return tuple(dict.fromkeys(field.name.removeprefix(prefix) for field in stream.fields)) or (stream.time,)


def renamed(stream: Stream, columns: Sequence[Any], names: Sequence[str]) -> pa.RecordBatch:
    """Columns of a stream as the plan names and types them."""
    prefix = f"{stream.alias}."
    kinds = {field.name.removeprefix(prefix): field.type for field in stream.fields}
    arrays = []
    for column, name in zip(columns, names, strict=True):
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        kind = kinds.get(name, array.type)
        arrays.append(array if array.type == kind else array.cast(kind))
    return pa.RecordBatch.from_arrays(arrays, names=[prefix + name for name in names])


def check_stream(stream: Stream) -> None:
    """Raises NotYet for a stream under a window."""
    if stream.window is not None:
        kind = "ROWS" if isinstance(stream.window, Rows) else "WINDOW"
        raise NotYet(
            f"progress: needed a query over all that is kept; got {kind} on {stream.alias}, which has no progressive "
            f"operator yet; bound the time instead, {stream.alias}.{stream.time} >= TIMESTAMP '...', or read the "
            "result with batches()"
        )


def bounded(stream: Stream, kind: pa.DataType) -> tuple[int | None, int | None, Node | None]:
    """(first ns, last ns, what is left of the conditions) of a stream, whose time column has the type `kind`.

    The bounds are inclusive, None where there is none.  A comparison that a bound says exactly is left out of the rest.
    """
    since, until = -_INT64, _INT64
    rest: list[Node] = []
    for part in conjuncts(stream.where):
        exact = True
        for operator, constant in comparisons_of(part, f"{stream.alias}.{stream.time}"):
            low, high, sure = _range(operator, constant, kind)
            since, until, exact = max(since, low), min(until, high), exact and sure
        if not exact or not list(comparisons_of(part, f"{stream.alias}.{stream.time}")):
            rest.append(part)
    return (None if since == -_INT64 else since), (None if until == _INT64 else until), all_of(*rest)


def _range(operator: str, constant: Constant, kind: pa.DataType) -> tuple[int, int, bool]:
    """(first ns, last ns, whether that says exactly the same) of `time operator constant`."""
    value = constant.value
    ticks = constant.kind in ("timestamp", "date") and (pa.types.is_timestamp(kind) or pa.types.is_date(kind))
    seconds = constant.kind in ("integer", "number") and (pa.types.is_integer(kind) or pa.types.is_floating(kind))
    if value is None or isinstance(value, bool | str) or not (ticks or seconds) or not math.isfinite(value):
        return -_INT64, _INT64, False
    exact = Fraction(value) * (1_000 if ticks else NS_PER_SECOND)
    low, high = math.ceil(exact), math.floor(exact)
    sure = ticks or bool(pa.types.is_integer(kind))
    if not sure:
        low, high = low - _NEAR, high + _NEAR
    match operator:
        case ">" if sure and low == high:
            low, high = low + 1, _INT64
        case ">" | ">=":
            high = _INT64
        case "<" if sure and low == high:
            low, high = -_INT64, high - 1
        case "<" | "<=":
            low = -_INT64
    return max(low, -_INT64), min(high, _INT64), sure


def values_of(node: Node, alias: str) -> tuple[str, list[Any]] | None:
    """(column, values) of a condition that a column has one of some values."""
    item: Node
    choices: tuple[Node, ...]
    if isinstance(node, Compare) and node.operator == "=":
        item, choices = (node.left, (node.right,)) if isinstance(node.left, Column) else (node.right, (node.left,))
    elif isinstance(node, In):
        item, choices = node.item, node.choices
    else:
        return None
    if not isinstance(item, Column) or item.kind not in ("integer", "text"):
        return None
    values = [each.value for each in choices if isinstance(each, Constant) and each.kind == item.kind]
    if len(values) < len(choices):
        return None
    return item.name.removeprefix(f"{alias}."), values


def keys_of(history: History, column: str, values: list[Any], kind: pa.DataType | None = None) -> ProbeKeys | None:
    """Some values as keys of a column; None: there are some that it cannot have.  kind: of what is no column of it."""
    try:
        keys = pa.array(values, history.schema.field(column).type if kind is None else kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None
    return ProbeKeys(keys, np.arange(len(keys)), history.hasher)
