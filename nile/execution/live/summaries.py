"""Summaries of live streams, kept up to date as tuples arrive."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.execution.registry import Registry
from nile.expressions.attributes import columns_of_parts, computed
from nile.pyramid.grid.manager import SummaryManager
from nile.sql.statements import CreateSummary
from nile.streams.live import LiveStream
from nile.summaries.hashing import KeyTable
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.streams.manager import TupleBatch

__all__ = ["LiveSummaries"]

Array = np.ndarray[Any, Any]


class LiveSummaries:
    """The managers behind CREATE SUMMARY on live streams.

    A manager begins with what the stream keeps when it is asked for.  It holds sketches and zones, no tuples: those
    are in the stream's history, which indexes the column from then on too.
    """

    def __init__(self, names: Registry) -> None:
        self._names = names
        self._held: dict[str, tuple[CreateSummary, LiveStream, SummaryManager]] = {}

    def follow(self, asked: Iterable[CreateSummary], streams: dict[str, LiveStream]) -> None:
        """Begin what is asked for and not kept yet; let go of what no one asks for any more."""
        wanted = {made.name: made for made in asked if made.stream in streams}
        for name, (made, stream, _) in list(self._held.items()):
            if wanted.get(name) != made or streams.get(made.stream) is not stream:
                del self._held[name]
        for name, made in wanted.items():
            if name not in self._held:
                self._begin(made, streams[made.stream])

    def get(self, name: str) -> SummaryManager | None:
        """The manager of a summary, None of one over a stream that is not live."""
        held = self._held.get(name)
        return None if held is None else held[2]

    def adopt(self, made: CreateSummary, stream: LiveStream, manager: SummaryManager) -> None:
        """Go on with a manager that has seen what the stream keeps."""
        self._held[made.name] = (made, stream, manager)
        self._names.grid(made.name).kept(manager)

    def arrived(self, name: str, batch: TupleBatch) -> None:
        """Tuples of a stream whose turn has come."""
        for made, stream, manager in list(self._held.values()):
            if stream.name == name and batch.carried is not None:
                _taken(manager, stream, made, batch.ts, batch.carried)
                self._widen(made, stream, manager)

    def _begin(self, made: CreateSummary, stream: LiveStream) -> None:
        manager = self._counted(made, stream, made.grid.begun(self._keys()))
        if stream.history is not None and not made.parts:
            stream.history.index(made.column)
        self.adopt(made, stream, manager)
        self._widen(made, stream, manager)

    def _keys(self) -> KeyTable:
        return KeyTable(self._names.hasher)

    def _counted(self, made: CreateSummary, stream: LiveStream, manager: SummaryManager) -> SummaryManager:
        """A manager that was empty, and has counted all that the stream keeps."""
        for ts, rows in stream.kept(columns_of_parts(made.parts) or (made.column,)):
            _taken(manager, stream, made, ts, rows)
        return manager

    def recount(self, stream: LiveStream) -> None:
        """Count anew what a stream keeps, of which rows have been taken back."""
        for made, other, manager in list(self._held.values()):
            if other is stream:
                self.adopt(made, stream, self._counted(made, stream, made.grid.like(manager, self._keys())))

    def _widen(self, made: CreateSummary, stream: LiveStream, manager: SummaryManager) -> None:
        """Count anew what is kept where it no longer fits what was asked for: O(kept), log(columns) times at most."""
        while (fitting := made.grid.again(manager, self._keys())) is not None:
            manager = self._counted(made, stream, fitting)
            self.adopt(made, stream, manager)


def _taken(manager: SummaryManager, stream: LiveStream, made: CreateSummary, ts: Array, rows: pa.RecordBatch) -> None:
    where = f"stream '{stream.name}', {made.column}"
    column = computed(made.parts, rows, where=where) if made.parts else rows.column(made.column)
    with manager.changing:
        manager.ingest(ts, column, where=where)
        manager.store.release(manager.store.tuples)
