"""What the binder needs of the database: names, columns, summaries and views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from nile.sql.statements import CreateSummary, CreateView
from nile.summaries.heavy import pa

__all__ = ["Catalog", "Entry"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered name.  time: its event-time column; None: a stored relation.

    static: of a table of sensors, the columns that its rows have before any value comes.  changes: whether the rows of
    a relation come and go at instants.  control: whether its rows tell what runs, and UPDATE sets that.
    """

    name: str
    schema: pa.Schema
    time: str | None
    static: tuple[str, ...] = ()
    changes: bool = False
    control: bool = False

    @property
    def is_stream(self) -> bool:
        return self.time is not None


class Catalog(Protocol):
    """Names are looked up exactly first; then, where only one differs in case alone, that one."""

    @property
    def entries(self) -> Mapping[str, Entry]:
        """All streams and stored relations by name."""

    @property
    def summaries(self) -> Mapping[str, CreateSummary]:
        """All summaries by name."""

    @property
    def views(self) -> Mapping[str, CreateView]:
        """All views by name; no stream or relation is called the same."""
