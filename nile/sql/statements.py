"""Statements other than queries, and the envelope of queries: frozen, equal when they mean the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from nile.base.durations import parse_duration
from nile.expressions.tree import Node
from nile.pyramid.grid.choosing import Asked
from nile.pyramid.grid.sizing import for_error, for_memory
from nile.pyramid.grid.spec import SummarySpec
from nile.sql.plan import Query

__all__ = [
    "CreateMaterialized",
    "CreateRelation",
    "CreateSensors",
    "CreateSink",
    "CreateStream",
    "CreateSummary",
    "CreateView",
    "Declare",
    "Delete",
    "Describe",
    "Drop",
    "Explain",
    "Insert",
    "Pause",
    "Punctuate",
    "Select",
    "Show",
    "Statement",
    "Summarize",
    "Update",
]


@dataclass(frozen=True, slots=True)
class CreateStream:
    """CREATE [OR REPLACE] STREAM name FROM source [TIMESTAMP BY column] [LATENESS d] [WHERE condition].

    CREATE [OR REPLACE] STREAM name (column type, ...) [TIMESTAMP BY column] [LATENESS d] [KEEP d] [IDLE d]
    [EVENT ID column] [STAMPED] [WHERE condition]: a live one, which INSERT and pushes fill.

    CREATE [OR REPLACE] STREAM name FROM connector 'address' (column type, ...) and the same but for STAMPED: a live
    one, which the connector fills.

    CREATE [OR REPLACE] STREAM name FROM SENSORS table [KEEP d]: a live one of what a table of sensors gives (using
    "sensors", source its name).

    source: a quoted path or glob, or (registered: True) the name of an object registered without a time; None: live.
    using: the connector that reads `source`.
    time None: the only column of a time type.  lateness, keep, idle: ns.  where: the condition's text.
    columns: (name, type) of each; keep, idle, event_id, stamped: as of `nile.engine.database.Database.stream`.
    """

    name: str
    source: str | None
    registered: bool = False
    time: str | None = None
    lateness: int | None = None
    where: str | None = None
    replace: bool = False
    columns: tuple[tuple[str, str], ...] = ()
    keep: int | None = None
    idle: int | None = None
    event_id: str | None = None
    stamped: bool = False
    using: str | None = None


@dataclass(frozen=True, slots=True)
class CreateRelation:
    """CREATE [OR REPLACE] RELATION name FROM source [WHERE condition]: stored rows, valid at all times.

    CREATE [OR REPLACE] RELATION name (column type, ...): one that INSERT, UPDATE and DELETE change.
    source, registered: as of CreateStream; columns: (name, type) of each.
    """

    name: str
    source: str | None = None
    where: str | None = None
    replace: bool = False
    registered: bool = False
    columns: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CreateSensors:
    """CREATE [OR REPLACE] SENSORS name (column type, ..., value STREAM(field type, ...) USING 'module:Class')
    [FROM source] [LATENESS d] [IDLE d] [BUFFER size]: a table whose rows are sources of streams.

    columns: (name, type) of each, the stream's among them as the TEXT that says where a source is found; stream: that
    one; fields: of the values that stream; using: the sources' class; source, registered: as of CreateStream, None:
    rows are added later; lateness, idle: ns; buffer: bytes.  Source: STEAM, section 3.3.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    stream: str
    fields: tuple[tuple[str, str], ...]
    using: str
    source: str | None = None
    registered: bool = False
    lateness: int | None = None
    buffer: int | None = None
    replace: bool = False
    idle: int | None = None


@dataclass(frozen=True, slots=True)
class CreateSummary:
    """CREATE [OR REPLACE] SUMMARY name ON stream (column | expression, ...) WITH GRANULARITY t AND COLLAPSE (rate,
    depth) [WITH ERROR p | WITH MEMORY bytes] [USING ...].

    column: what it is of.  parts: where that is no column, the expressions that it is computed of, in their canonical
    texts, and `column` lists them (`nile.expressions.attributes`).

    granularity: ns.  options: as written, numbers, texts, true or false; fields of SummarySpec.  error: of a count, as
    a share of the tuples, and memory: of the counters, in bytes (`nile.pyramid.grid.sizing`), choose the columns.
    kind: of the summaries in zones (`nile.pyramid.grid.choosing`), with its parameters.
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
    error: float | None = None
    memory: int | None = None
    kind: str = "countsketch"
    parameters: tuple[tuple[str, str | float | int | bool], ...] = ()
    parts: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The options as SummarySpec has them: durations in ns; of an error, for whatever data may come.

        Raises ConfigError, MemoryRefused, TypeError.
        """
        given: dict[str, Any] = {
            name: parse_duration(value, where=f"summary {name}") if name == "max_length" else value
            for name, value in self.options
        }
        if (self.error is None and self.memory is None) or self.kind not in ("countsketch", "auto"):
            return given
        spec = SummarySpec(self.granularity, self.rate, self.depth, **{**given, "columns": 1})
        sized = for_error(spec, self.error) if self.error is not None else for_memory(spec, self.memory or 0)
        return {**given, "columns": sized.columns}

    @property
    def spec(self) -> SummarySpec:
        """The grid that is asked for.  Raises ConfigError, MemoryRefused, TypeError."""
        return SummarySpec(self.granularity, self.rate, self.depth, **self.settings)

    @property
    def grid(self) -> Asked:
        """The grid that is asked for, with the kind of its summaries.  Raises like `spec`."""
        return Asked(self.spec, self.kind, self.parameters, self.error, self.memory)

    @property
    def asked(self) -> dict[str, Any]:
        """What `Database.summarize` is called with for the same summary."""
        options = {name: f"{value} ns" if name == "max_length" else value for name, value in self.settings.items()}
        return {"granularity": f"{self.granularity} ns", "rate": self.rate, "depth": self.depth, **options}


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE [OR REPLACE] VIEW name [(column, ...)] AS query: the query's text, under a name that FROM may say.

    columns: what its first columns are called, where that is said.
    """

    name: str
    text: str
    columns: tuple[str, ...] = ()
    replace: bool = False


@dataclass(frozen=True, slots=True)
class CreateMaterialized:
    """CREATE [OR REPLACE] MATERIALIZED VIEW name [(column, ...)] AS query: a relation of its rows as they change.

    columns: what the view's are called.
    """

    name: str
    query: Query
    columns: tuple[str, ...]
    replace: bool = False


@dataclass(frozen=True, slots=True)
class CreateSink:
    """CREATE [OR REPLACE] SINK name TO sink 'address' AS query: a standing query whose rows are sent on as they come.

    using: the name of a sink; address: where it sends.
    """

    name: str
    using: str
    address: str
    query: Query
    replace: bool = False


@dataclass(frozen=True, slots=True)
class Declare:
    """DECLARE {ORDERED | CLUSTERED | PUNCTUATED} stream (column, ...) [WITHIN k] [ON VIOLATION {FAIL | COUNT | RELAX}],
    DECLARE {MANY ONE | REFERENTIAL} stream (column, ...) TO parent (column, ...) [WITHIN k] [ON VIOLATION ...];
    drop: DROP CONSTRAINT with the same, up to the columns.

    within: k, tuples; None: of MANY ONE and PUNCTUATED, which have none, or one that is only measured.
    Source: STREAM (CIDR 2003), section 4.1.
    """

    kind: Literal["ordered", "clustered", "many one", "referential", "punctuated"]
    stream: str
    columns: tuple[str, ...]
    parent: str | None = None
    parent_columns: tuple[str, ...] = ()
    within: int | None = None
    violation: Literal["fail", "count", "relax"] = "fail"
    drop: bool = False


@dataclass(frozen=True, slots=True)
class Punctuate:
    """PUNCTUATE stream (column, ...) VALUES (value, ...), ...: no tuple of these comes after what was pushed so far.

    Source: STREAM (CIDR 2003), section 4.1, which names them as the dynamic alternative to constraints.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """DROP STREAM | RELATION | SENSORS | SUMMARY | [MATERIALIZED] VIEW | QUERY | SINK [IF EXISTS] name."""

    kind: Literal["stream", "relation", "sensors", "summary", "view", "materialized view", "query", "sink"]
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class Insert:
    """INSERT INTO name [(column, ...)] {VALUES (value, ...), ... | query} [AT time].

    columns: none are all of them, in order; at: of a relation, ISO text or seconds.  A query over live streams stands
    from then on, and its new rows go to the stream as they come.
    """

    name: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Node, ...], ...] = ()
    query: Query | None = None
    at: str | float | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """UPDATE relation SET column = value, ... [WHERE condition] [AT time].  Values and the condition are texts."""

    name: str
    values: tuple[tuple[str, str], ...]
    where: str | None = None
    at: str | float | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE FROM name [WHERE condition] [AT time]: rows of a live stream that are kept and satisfy it, or those of a
    relation, from an instant on.  where: its text.
    """

    name: str
    where: str | None = None
    at: str | float | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """{PAUSE | RESUME} QUERY name: a standing query does nothing while what comes waits; resume: it goes on."""

    name: str
    resume: bool = False


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW STREAMS | RELATIONS | SUMMARIES | VIEWS | QUERIES | TABLES.  queries: standing ones that have a name."""

    what: Literal["streams", "relations", "summaries", "views", "queries", "tables"]


@dataclass(frozen=True, slots=True)
class Describe:
    """DESCRIBE name: the columns of a stream, relation or view, or what a summary is; or of a query."""

    name: str
    query: Query | None = None


@dataclass(frozen=True, slots=True)
class Summarize:
    """SUMMARIZE name, or query: for each column the least and greatest value, how many there are, and the like."""

    query: Query


@dataclass(frozen=True, slots=True)
class Select:
    """A query, bound against the catalog and rewritten."""

    query: Query


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN [ANALYZE] [(FORMAT JSON)] SELECT ...; analyze runs it and shows what really happened."""

    query: Query
    analyze: bool = False
    form: Literal["text", "json"] = "text"


@dataclass(frozen=True, slots=True)
class Copy:
    """COPY {(SELECT ...) | name} TO 'path' [(FORMAT PARQUET | CSV, PARTITION_BY (column, ...))]: rows as a file.

    COPY {(SELECT ...) | name} TO sink 'address': rows are sent there, once.
    form: None: by its name; by: columns, of whose values there is a folder each, with files in it; using: the sink to
    which `path` is an address.
    """

    query: Query
    path: str
    form: Literal["parquet", "csv"] | None = None
    by: tuple[str, ...] = ()
    using: str | None = None


Statement = (
    Copy
    | CreateStream
    | CreateRelation
    | CreateSensors
    | CreateSink
    | CreateSummary
    | CreateView
    | CreateMaterialized
    | Declare
    | Punctuate
    | Drop
    | Insert
    | Update
    | Delete
    | Pause
    | Show
    | Describe
    | Summarize
    | Select
    | Explain
)
