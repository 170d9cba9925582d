"""Where the rows of a standing query go that nobody reads: into a live stream, or a relation that is a view of it, as a
part of the same change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nile.execution.definitions import Filling
from nile.expressions.binding import kind_of
from nile.pyramid.history.history import History
from nile.streams.live import SIGN, LiveStream
from nile.streams.versions import TIME, Versions
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa

__all__ = ["Into", "named_rows"]

_LOG = 1 << 16
"""Changes that a view's log may have beyond twice the rows that hold, before it is written anew as these."""


class Into:
    """A live stream that a standing query of new rows fills, or the log of a relation that follows its changes.

    columns: of those, which the query's are for, in its order; all others are null.  view: the relation, None of a
    stream; reached: told when it is known how far it has come; history: makes one for a log that is written anew.
    Raises ConfigError for types that do not convert.
    """

    def __init__(
        self,
        target: LiveStream,
        filling: Filling,
        query: pa.Schema,
        view: Versions | None,
        reached: Callable[[LiveStream], None],
        history: Callable[[str, Any], History],
    ) -> None:
        self.target = target
        own = filling.columns or tuple(target.schema.names)
        self.columns = own if view is None else (TIME, SIGN, *own)
        self._view = view
        self._reached = reached
        self._history = history
        self._waiting: list[pa.RecordBatch] = []
        self._at: int | None = None
        self._flowing = False
        target.at_will = False
        for name, field in zip(self.columns, list(query)[-len(self.columns) :], strict=True):
            wanted = target.schema.field(name).type
            if not _converts(field.type, wanted):
                raise ConfigError(
                    f"INSERT INTO {target.name}: needed {wanted} for column '{name}'; got {field.type}, which does not "
                    "convert; cast it in the query"
                )

    def take(self, rows: pa.RecordBatch) -> None:
        """New rows of the query, or its changes: they wait until all who read what they are made of have that."""
        self._waiting.append(rows)

    def moved(self, at: int) -> None:
        """All changes up to the instant `at` have been told."""
        self._at = at

    def flow(self) -> None:
        """Hand on what waits, and of a view how far it has come.  Raises TimestampOrderError, SourceError."""
        if self._flowing:  # further up: what is handed on there makes others flow
            return
        self._flowing = True
        try:
            waiting, self._waiting = self._waiting, []
            for rows in waiting:
                at = len(rows.schema) - len(self.columns)  # a query that is a stream tells its times first
                parts = list(self.target.admitted(named_rows(self.target, self.columns, rows.columns[at:])))
                self.target.check(parts)
                self.target.take(parts)
            if self._view is not None:
                self._follow(self._view)
        finally:
            self._flowing = False

    def _follow(self, view: Versions) -> None:
        if self.target.rows > 2 * view.rows + _LOG:
            view.forget(self._history)
        if self._at is not None and (self.target.passed is None or self.target.passed <= self._at):
            self.target.advance(self._at + 1)
            self._reached(self.target)

    def ended(self) -> None:
        """No more comes: nobody waits for it."""
        self.target.at_will = self._view is not None


def _converts(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether all values of a type are of another, but for their size."""
    if kind_of(kind) == "text" != kind_of(wanted):
        return False
    try:
        pa.array([], kind).cast(wanted)
    except (pa.ArrowException, NotImplementedError):
        return False
    return True


def named_rows(target: LiveStream, columns: Sequence[str], values: Sequence[pa.Array]) -> pa.RecordBatch:
    """Rows as the stream has them; what is not among `columns` is null."""
    given = dict(zip(columns, values, strict=True))
    rows = len(values[0])
    whole = [given.get(field.name, pa.nulls(rows, field.type)) for field in target.schema]
    return pa.RecordBatch.from_arrays(whole, names=target.schema.names)
