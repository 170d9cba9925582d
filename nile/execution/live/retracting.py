"""Retractions from a live stream: of the rows that satisfy a condition, or of given rows by value.

Rows that still wait for their turn, within the lateness, go like kept ones; nobody has been told of them.

What is kept is written anew without them, and summaries count it anew: a row that came and was taken back leaves no
trace, in bytes and in answers.  Standing queries correct what they told: from the first instant that can still come the
row is in no window any more.  Cost: O(kept), so take many back at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.base.interrupts import INTERRUPTS
from nile.exact.state.expire import joined
from nile.execution.live.changes import is_change_feed, signed_rows, unwrapped
from nile.expressions.conditions import parse_condition
from nile.pyramid.history.history import History, plain_batch, plain_schema
from nile.streams.arrow import rows_together
from nile.streams.live import SIGN, LiveStream
from nile.streams.taken_back import TakenBack
from nile.summaries.errors import SourceError
from nile.summaries.heavy import pa, pc

if TYPE_CHECKING:
    from nile.execution.live.live import Live

__all__ = ["Goes", "TakingBack", "matched", "rewritten", "satisfying", "signed_apart", "take_back"]

Array = np.ndarray[Any, Any]
Goes = Callable[[LiveStream], Array]
"""Places of rows that are to go, ascending, among what `LiveStream.arrived` gives: int64 [n]."""
_NAN = object()


def satisfying(stream: LiveStream, where: str | None) -> Array:
    """Places of the rows that satisfy a condition (null does not; None: all): int64 [n].

    Raises ExpressionError, UnknownColumn.
    """
    condition = None
    if where is not None:
        place = f"DELETE FROM {stream.name}"
        condition = parse_condition(where, where=place)
        condition.check(stream.schema, where=place)
    places, done = [np.zeros(0, np.int64)], 0
    for rows in stream.arrived():
        if condition is None:
            found = np.arange(rows.num_rows)
        else:
            found = np.flatnonzero(pc.fill_null(condition.mask(rows), False).to_numpy(zero_copy_only=False))
        places.append(done + found)
        done += rows.num_rows
    return np.concatenate(places)


def signed_apart(stream: LiveStream, data: Any) -> tuple[pa.Table, pa.RecordBatch] | None:
    """(rows that come, rows that go, in plain types) of rows with a column `_sign`, or of a change feed.

    A row that goes after an equal one that came with it takes that one out.  None: none goes, or they come bit by bit.
    Raises SourceError.
    """
    if SIGN in stream.schema.names or not hasattr(data, "__len__"):
        return None
    data = rows_together(unwrapped(data))
    names: Any = data if isinstance(data, Mapping) else getattr(getattr(data, "schema", data), "names", None)
    names = getattr(data, "columns", ()) if names is None or callable(names) else names  # of Polars it is a method
    if is_change_feed(stream, names):
        table = signed_rows(stream, data)
    elif SIGN not in names:
        return None
    elif hasattr(data, "to_pandas") or isinstance(data, Mapping):
        table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else pa.table(data)
    else:
        table = pa.Table.from_pandas(data, preserve_index=False)
    signs = table.column(SIGN).to_pylist()
    if any(isinstance(sign, bool) or sign not in (1, -1) for sign in signs):
        return None  # what is neither is refused where rows are read
    rows = table.drop_columns([SIGN])
    whole = joined(
        [plain_batch(part.raw.batch, plain_schema(stream.schema)) for part in stream.admitted(rows)],
        plain_schema(stream.schema),
    )
    coming: dict[tuple[Any, ...], list[int]] = {}
    comes, goes = np.zeros(len(signs), bool), np.zeros(len(signs), bool)
    for at, (sign, row) in enumerate(zip(signs, _values(_compared(stream, whole, signs)), strict=True)):
        if sign > 0:
            coming.setdefault(row, []).append(at)
            comes[at] = True
        elif coming.get(row):
            comes[coming[row].pop()] = False
        else:
            goes[at] = True
    return rows.filter(pa.array(comes)), whole.filter(pa.array(goes))


def _compared(stream: LiveStream, rows: pa.RecordBatch, signs: list[int] | None = None) -> pa.RecordBatch:
    """The columns that rows which go are known by: all, but the time where they say none.  signs: all go without."""
    at = rows.schema.get_field_index(stream.time)
    gone = rows.column(at) if signs is None else rows.column(at).filter(pa.array([sign < 0 for sign in signs]))
    return rows if not len(gone) or gone.null_count < len(gone) else rows.remove_column(at)


def matched(stream: LiveStream, rows: pa.RecordBatch) -> Array:
    """Places of rows that are equal to these, one for each, the newest of equal ones: int64 [n].

    NULL equals NULL and NaN equals NaN here.  rows: in plain types; where none has a time, rows of any time.
    Raises SourceError for a row that is not kept, or not so often.
    """
    rows = _compared(stream, rows)
    names = rows.schema.names
    wanted: dict[tuple[Any, ...], int] = {}
    for row in _values(rows):
        wanted[row] = wanted.get(row, 0) + 1
    found: dict[tuple[Any, ...], list[int]] = {row: [] for row in wanted}
    done = 0
    near_by = [name for name in names if _tells_apart(rows.schema.field(name).type)]
    for arrived in stream.arrived():
        batch = plain_batch(arrived, plain_schema(stream.schema)).select(names)
        near = np.ones(batch.num_rows, bool)
        for name in near_by:
            near &= pc.is_in(batch.column(name), value_set=rows.column(name)).to_numpy(zero_copy_only=False)
        places = np.flatnonzero(near)
        for place, row in zip(places.tolist(), _values(batch.take(pa.array(places))), strict=True):
            if row in found:
                found[row].append(done + place)
        done += batch.num_rows
    for row, times_wanted in wanted.items():
        if len(found[row]) < times_wanted:
            told = dict(zip(names, (float("nan") if value is _NAN else value for value in row), strict=True))
            raise SourceError(
                f"stream '{stream.name}', push: needed a kept row for each with {SIGN} -1; got {times_wanted} like "
                f"{told!r}, of which {len(found[row])} are kept; what never came, came too late, was taken back before "
                "or is not kept any more cannot be taken back: leave it out"
            )
    none = np.zeros(0, np.int64)
    return np.sort(np.concatenate([none, *(np.array(p[-wanted[row] :], np.int64) for row, p in found.items())]))


def _tells_apart(kind: pa.DataType) -> bool:
    """Whether Arrow finds equal values of a type as they are meant here: not doubles, of which -0.0 is 0.0."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_temporal(kind) or types.is_string(kind) or types.is_boolean(kind))


def _values(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    columns = [
        [_NAN if isinstance(value, float) and value != value else _hashable(value) for value in column.to_pylist()]
        for column in batch.columns
    ]
    return list(zip(*columns, strict=True))


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    return tuple((name, _hashable(each)) for name, each in value.items()) if isinstance(value, dict) else value


@dataclass(frozen=True, slots=True)
class TakingBack:
    """Rows of a stream that are let go of for good, worked out before the change that does it.

    waiting: places among those that wait; gone: among the kept ones, of which standing queries are told.
    """

    stream: LiveStream
    waiting: Array
    gone: Array
    fresh: History | None
    told: TakenBack | None

    @classmethod
    def of(cls, live: Live, stream: LiveStream, gone: Array) -> TakingBack | None:
        """gone: as of Goes; None: there are none.

        Raises ConfigError where a standing query has told of them, StoreWriteError.
        """
        kept = int(np.searchsorted(gone, stream.rows))
        gone, waiting = gone[:kept], gone[kept:] - stream.rows
        if kept or not waiting.shape[0]:
            live.standing.check_taking_back(stream)
        if not kept:
            return cls(stream, waiting, gone, None, None) if waiting.shape[0] else None
        keeper = live._keeper
        fresh = rewritten(stream, gone, None if keeper is None else keeper.history)
        return cls(stream, waiting, gone, fresh, _told(stream, gone))

    def apply(self, live: Live) -> None:
        """A part of a change."""
        self.stream.let_go(self.waiting)
        if self.told is None:
            return
        self.stream.without(self.gone, self.fresh)
        live.summaries.recount(self.stream)
        live.names.changed(self.stream.name)
        live.standing.taken_back(self.stream, self.told)


def take_back(live: Live, name: str, places: Goes) -> int:
    """Let go of rows of a stream for good; places: of these.  How many.

    Raises ConfigError where a standing query has told of them, and what `places` and a store raise.
    """
    with live.lock:
        stream = live._free(name, "DELETE")
        gone = places(stream)
        if (taking := TakingBack.of(live, stream, gone)) is not None:
            with live.commits:
                taking.apply(live)
            live.commits.complain()
            if live._keeper is not None:
                with INTERRUPTS:
                    live._keeper.remember(live, live.names)
        return int(gone.shape[0])


def _told(stream: LiveStream, gone: Array) -> TakenBack:
    """What standing queries are told of rows at these places: from the first instant that can still come on."""
    times, parts, done = [], [], 0
    for ts, rows in stream.kept(stream.schema.names):
        low, high = np.searchsorted(gone, [done, done + rows.num_rows])
        at = gone[low:high] - done
        times.append(ts[at])
        parts.append(rows.take(pa.array(at)))
        done += rows.num_rows
    assert stream.passed is not None
    return TakenBack(stream.passed, gone, done, np.concatenate(times), joined(parts, stream.schema))


def rewritten(stream: LiveStream, gone: Array, make: Callable[[str, Any], History] | None) -> History | None:
    """The history of a stream without the rows at `gone` (places, ascending), its indices too; None: it has none.

    make: a new one of a store, by name and schema; None: it stays in memory.
    """
    old = stream.history
    if old is None:
        return None
    fresh = History(stream.name, stream.schema, hasher=old.hasher) if make is None else make(stream.name, stream.schema)
    for column in old.indexed:
        fresh.index(column)
    done = 0
    for ts, rows in old.batches():
        low, high = np.searchsorted(gone, [done, done + rows.num_rows])
        stay = np.ones(rows.num_rows, bool)
        stay[gone[low:high] - done] = False
        fresh.append(ts[stay], rows.filter(pa.array(stay)))
        done += rows.num_rows
        if fresh.limit is not None and fresh.memory > fresh.limit:
            fresh.settle()
    return fresh
