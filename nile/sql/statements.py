"""The statements that are not queries, and the envelope of those that are: frozen, equal when they mean the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from nile.base.durations import parse_duration
from nile.pyramid.grid.spec import SummarySpec
from nile.sql.plan import Query

__all__ = [
    "CreateRelation",
    "CreateStream",
    "CreateSummary",
    "Describe",
    "Drop",
    "Explain",
    "Select",
    "Show",
    "Statement",
]


@dataclass(frozen=True, slots=True)
class CreateStream:
    """CREATE [OR REPLACE] STREAM name FROM source [TIMESTAMP BY column] [LATENESS d] [WHERE condition].

    source: a quoted path or glob, or (registered: True) the name of an object registered without a time.
    time None: the only column of a time type.  lateness: ns.  where: the condition's text.
    """

    name: str
    source: str
    registered: bool = False
    time: str | None = None
    lateness: int | None = None
    where: str | None = None
    replace: bool = False


@dataclass(frozen=True, slots=True)
class CreateRelation:
    """CREATE [OR REPLACE] RELATION name FROM source [WHERE condition]: stored rows, valid at all times.

    source, registered: as of CreateStream.
    """

    name: str
    source: str
    where: str | None = None
    replace: bool = False
    registered: bool = False


@dataclass(frozen=True, slots=True)
class CreateSummary:
    """CREATE [OR REPLACE] SUMMARY name ON stream (column) WITH GRANULARITY t AND COLLAPSE (rate, depth) [USING ...].

    granularity: ns.  options: as written, numbers, texts, true or false; fields of SummarySpec.
    Source: promising tuples, Figure 3a.
    """

    name: str
    stream: str
    column: str
    granularity: int
    rate: int
    depth: int
    options: tuple[tuple[str, str | float | int | bool], ...] = ()
    replace: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """The options as SummarySpec has them: durations in ns.  Raises ConfigError."""
        return {
            name: parse_duration(value, where=f"summary {name}") if name == "max_length" else value
            for name, value in self.options
        }

    @property
    def spec(self) -> SummarySpec:
        """The grid that is asked for.  Raises ConfigError, MemoryRefused, TypeError."""
        return SummarySpec(self.granularity, self.rate, self.depth, **self.settings)

    @property
    def asked(self) -> dict[str, Any]:
        """What `Database.summarize` is called with for the same summary."""
        options = {name: f"{value} ns" if name == "max_length" else value for name, value in self.settings.items()}
        return {"granularity": f"{self.granularity} ns", "rate": self.rate, "depth": self.depth, **options}


@dataclass(frozen=True, slots=True)
class Drop:
    """DROP STREAM | RELATION | SUMMARY [IF EXISTS] name."""

    kind: Literal["stream", "relation", "summary"]
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW STREAMS | RELATIONS | SUMMARIES | TABLES."""

    what: Literal["streams", "relations", "summaries", "tables"]


@dataclass(frozen=True, slots=True)
class Describe:
    """DESCRIBE name: the columns of a stream, relation or summary."""

    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """A query, bound against the catalog and rewritten."""

    query: Query


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN [ANALYZE] SELECT ...; analyze runs it and shows what really happened."""

    query: Query
    analyze: bool = False


Statement = CreateStream | CreateRelation | CreateSummary | Drop | Show | Describe | Select | Explain
