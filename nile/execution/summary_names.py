"""The summaries of a database by name: made, shared by whoever reads them, built where a stream has an end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from nile.base.durations import parse_duration
from nile.base.names import check_name
from nile.operators.inputs.joining import load_stream
from nile.operators.inputs.shared_grid import SharedSummary
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.spec import SummarySpec
from nile.sql.statements import CreateSummary
from nile.streams.manager import StreamManager
from nile.summaries.errors import UnknownStream
from nile.summaries.hashing import KeyHasher, KeyTable

if TYPE_CHECKING:
    pass

__all__ = ["SummaryNames"]


class SummaryNames(ABC):
    """Summaries that CREATE SUMMARY made, and those that were built for a question and are still held.

    hasher: of all keys in them.
    """

    def __init__(self, hasher: KeyHasher) -> None:
        self.hasher = hasher
        self._summaries: dict[str, CreateSummary] = {}
        self._shared: dict[str, SharedSummary] = {}
        self._built: WeakValueDictionary[tuple[str, str], SummaryManager] = WeakValueDictionary()

    @abstractmethod
    def check_open(self) -> None:
        """Raises DatabaseClosed."""

    @abstractmethod
    def manager(self, name: str, key: str, carry: tuple[str, ...] = ()) -> StreamManager:
        """A fresh stream manager over a registered stream."""

    @property
    def summaries(self) -> Mapping[str, CreateSummary]:
        """All summaries by name."""
        self.check_open()
        return self._summaries

    def keep_summary(self, summary: CreateSummary) -> None:
        """Make a summary known; one that is known as it is keeps its grid."""
        if self._summaries.get(summary.name) != summary:
            self._shared[summary.name] = self._begun(summary)
        self._summaries[summary.name] = summary

    def _begun(self, made: CreateSummary) -> SharedSummary:
        return SharedSummary(made.name, made.stream, made.column, made.grid, self.hasher)

    def grid(self, name: str) -> SharedSummary:
        """What a summary of that name is: its grid, whoever reads it.  Raises UnknownStream."""
        check_name(name, where="summary")
        if name not in self.summaries:
            known = ", ".join(self.summaries) or "none"
            raise UnknownStream(f"summary {name!r}: needed one of {known}; got none of that name; CREATE SUMMARY first")
        return self._shared[name]

    def shared(self, name: str, column: str) -> SharedSummary | None:
        """The first summary of a stream's column; None where there is none.  Raises DatabaseClosed."""
        self.check_open()
        return next((one for one in self._shared.values() if (one.stream, one.column) == (name, column)), None)

    def forget_summary(self, name: str) -> None:
        """Forget one."""
        del self._summaries[name], self._shared[name]

    def built(self, name: str) -> dict[str, SummaryManager]:
        """Summaries of a stream by column: those of CREATE SUMMARY, and those built for a question and still held."""
        made = {one.column: one.manager for one in self._shared.values() if one.stream == name and one.manager}
        return {**made, **self._apart(name)}

    def _apart(self, name: str) -> dict[str, SummaryManager]:
        return {column: summary for (stream, column), summary in self._built.items() if stream == name}

    def remember(self, name: str, column: str, summary: SummaryManager) -> None:
        """A summary of a stream has been built.  It is not kept alive."""
        self._built[name, column] = summary

    def summary(self, name: str) -> SummaryManager:
        """See `nile.engine.database.Database.summary`."""
        grid, made = self.grid(name), self.summaries[name]
        if grid.live is not None:
            return grid.live
        if made.error is None and made.kind == "countsketch":
            return grid.built(self.summarize(made.stream, made.column, made.asked["granularity"], made.asked))
        read = load_stream(self.manager(made.stream, made.column))
        return grid.counted(read.ts, read.key)

    def summarize(self, name: str, on: str, granularity: Any, options: dict[str, Any]) -> SummaryManager:
        """See `nile.engine.database.Database.summarize`."""
        given = {key: value for key, value in options.items() if key != "granularity"}
        if given.get("max_length") is not None:
            given["max_length"] = parse_duration(given["max_length"], where="max_length")
        length = parse_duration(granularity, where="granularity")
        made = SummaryManager(SummarySpec(granularity=length, **given), KeyTable(self.hasher))
        for batch in self.manager(name, on).batches():
            made.ingest(batch.ts, batch.key, where=f"stream '{name}', column '{on}'")
        self.remember(name, on, made)
        return made

    def changed(self, name: str) -> None:
        """Rows of a stream have been taken back: what was built of it no longer holds."""
        self._forget_built(name)

    def _forget_built(self, name: str) -> None:
        for column in self._apart(name):
            del self._built[name, column]
