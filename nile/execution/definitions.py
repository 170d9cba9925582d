"""A database's definitions as a store keeps them: as JSON, validated when read.

Live streams with all that makes them; sources that have a path; summaries and standing queries as Nile SQL.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

from nile.base.durations import parse_duration
from nile.base.plain import plain_schema
from nile.summaries.errors import ConfigError, StoreCorrupt
from nile.summaries.heavy import pa
from nile.summaries.schemas import schema_from_json, schema_to_json

__all__ = [
    "Filling",
    "QueryDefinition",
    "Reads",
    "Sends",
    "SourceDefinition",
    "StreamDefinition",
    "checked_offset",
    "integer",
    "names",
    "refuse",
    "section",
    "stream_definition",
    "text",
]

_MOST_OFFSET = 1 << 16


@dataclass(frozen=True, slots=True)
class Reads:
    """Where a live stream's tuples come from.  using: the name of a connector; address: what it is given.

    Of a table of sensors using is "sensors", and address its name.
    """

    using: str
    address: str

    @property
    def tabled(self) -> bool:
        """Whether it is a table of sensors."""
        return self.using == "sensors"


@dataclass(frozen=True, slots=True)
class Sends:
    """Where the rows of a standing query are sent.  using: the name of a sink; address: what it is given."""

    using: str
    address: str


@dataclass(frozen=True, slots=True)
class StreamDefinition:
    """A live stream.  lateness, keep: ns or None; where: the text of its condition; event_id: a column;
    idle: ns of silence after which its time moves on, or None; stamp: whether its time is when rows are pushed;
    relation: whether it is the log of a relation; drops: whether columns that it does not have are dropped from what
    is pushed, not refused; reads: the connector that gives its tuples, None: they are pushed.
    """

    schema: pa.Schema
    time: str
    lateness: int | None = None
    where: str | None = None
    keep: int | None = None
    event_id: str | None = None
    idle: int | None = None
    stamp: bool = False
    relation: bool = False
    drops: bool = False
    reads: Reads | None = None

    def as_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "schema": schema_to_json(self.schema),
            "time": self.time,
            "lateness": self.lateness,
            "where": self.where,
            "keep": self.keep,
            **({} if self.event_id is None else {"event_id": self.event_id}),
            **({} if self.idle is None else {"idle": self.idle}),
            **({"stamp": True} if self.stamp else {}),
            **({"relation": True} if self.relation else {}),
            **({"drops": True} if self.drops else {}),
            **({} if self.reads is None else {"reads": asdict(self.reads)}),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any], where: str) -> StreamDefinition:
        """Raises StoreCorrupt, EnvelopeError."""
        reads = section(value, "reads", where) if "reads" in value else None
        return cls(
            schema_from_json(value.get("schema"), where),
            text(value, "time", where),
            integer(value, "lateness", where),
            None if value.get("where") is None else text(value, "where", where),
            integer(value, "keep", where),
            None if value.get("event_id") is None else text(value, "event_id", where),
            integer(value, "idle", where),
            value.get("stamp") is True,
            value.get("relation") is True,
            value.get("drops") is True,
            None if reads is None else Reads(text(reads, "using", where), text(reads, "address", where)),
        )


def stream_definition(
    name: str,
    schema: Any,
    time: str,
    *,
    lateness: Any,
    where: str | None,
    keep: Any,
    event_id: str | None,
    idle: Any,
    stamp: bool = False,
    extra: str = "refuse",
) -> StreamDefinition:
    """A definition as a user gives it.  See `nile.engine.database.Database.stream`.  Raises ConfigError."""
    place = f"stream '{name}'"
    try:
        columns = schema if isinstance(schema, pa.Schema) else pa.schema(schema)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise ConfigError(
            f"{place}: needed a pyarrow schema, or pairs of names and types; got {schema!r} ({error}); "
            "write pa.schema([('ts', pa.timestamp('us')), ...])"
        ) from None
    if idle is not None and lateness is None:
        raise ConfigError(
            f"{place}, idle: needed a lateness, since what comes after a silence may be late; got none; declare one"
        )
    lateness, keep, idle = (
        None if given is None else parse_duration(given, where=f"{place}, {what}", least=int(what != "lateness"))
        for what, given in (("lateness", lateness), ("keep", keep), ("idle", idle))
    )
    if not isinstance(stamp, bool):
        raise ConfigError(f"{place}, stamp: needed true or false; got {stamp!r}; leave it out")
    if extra not in ("refuse", "drop"):
        raise ConfigError(f"{place}, extra: needed 'refuse' or 'drop'; got {extra!r}; leave it out to refuse")
    if stamp and (lateness is not None or event_id is not None):
        raise ConfigError(
            f"{place}, stamp: needed no lateness and no event_id, since rows come in order; got one; leave it"
        )
    if stamp and len(columns) < 2:
        raise ConfigError(f"{place}, stamp: needed columns besides its time '{time}'; got none; name one")
    plain = plain_schema(columns.remove_metadata())
    return StreamDefinition(plain, time, lateness, where, keep, event_id, idle, stamp, drops=extra == "drop")


@dataclass(frozen=True, slots=True)
class SourceDefinition:
    """A registered file or glob: a stream, or without time a stored relation."""

    path: str
    time: str | None = None
    lateness: int | None = None
    where: str | None = None

    def as_json(self) -> dict[str, Any]:
        """JSON values."""
        return {"path": self.path, "time": self.time, "lateness": self.lateness, "where": self.where}

    @classmethod
    def from_json(cls, value: dict[str, Any], where: str) -> SourceDefinition:
        """Raises StoreCorrupt."""
        return cls(
            text(value, "path", where),
            None if value.get("time") is None else text(value, "time", where),
            integer(value, "lateness", where),
            None if value.get("where") is None else text(value, "where", where),
        )


@dataclass(frozen=True, slots=True)
class Filling:
    """INSERT INTO stream (column, ...): where the rows of a standing query go.  columns: none are all of them.

    relation: whether it is a relation, a view, that follows all changes.
    """

    stream: str
    columns: tuple[str, ...] = ()
    relation: bool = False


@dataclass(frozen=True, slots=True)
class QueryDefinition:
    """A standing query with a name: its text with parameters written out, and the options that were said.

    approximate: those of a query WITH PREFERENCE, beside its budget, which stands in its text.  into: where its rows
    go; None: to whoever reads it.  sends: the sink that alone reads it, None: there is none.  runs: what says how it
    runs since its plan was changed; None: this does.
    """

    text: str
    emit: str | None = None
    algorithm: str | None = None
    scheduling: str | None = None
    windows: str | None = None
    approximate: tuple[tuple[str, str | float], ...] = ()
    into: Filling | None = None
    sends: Sends | None = None
    runs: QueryDefinition | None = field(default=None, compare=False)

    def as_json(self) -> dict[str, Any]:
        """JSON values."""
        runs = {} if self.runs is None else {"runs": self.runs.as_json()}
        approximate = {"approximate": dict(self.approximate)} if self.approximate else {}
        into = {} if self.into is None else {"into": asdict(self.into)}
        sends = {} if self.sends is None else {"sends": asdict(self.sends)}
        return {"text": self.text, "options": self._exact(), **approximate, **into, **sends, **runs}

    def options(self) -> dict[str, str | float]:
        """The options that were said, by name."""
        return {**self._exact(), **dict(self.approximate)}

    def _exact(self) -> dict[str, str]:
        given = {
            "emit": self.emit, "algorithm": self.algorithm, "scheduling": self.scheduling, "windows": self.windows,
        }  # fmt: skip
        return {name: value for name, value in given.items() if value is not None}

    @classmethod
    def from_json(cls, value: dict[str, Any], where: str) -> QueryDefinition:
        """Raises StoreCorrupt."""
        options = section(value, "options", where)
        known = ("emit", "algorithm", "scheduling", "windows")
        for name in options:
            if name not in known:
                refuse(where, f"options among {', '.join(known)}", name)
        given = section(value, "approximate", where)
        for each in given.values():
            if not isinstance(each, str | int | float):
                refuse(where, "options that are text or numbers", each)
        exact = {name: text(options, name, where) for name in options}
        into = None
        if value.get("into") is not None:
            filling = section(value, "into", where)
            relation = filling.get("relation") is True
            into = Filling(text(filling, "stream", where), names(filling, "columns", where), relation)
        told = section(value, "sends", where) if value.get("sends") is not None else None
        sends = None if told is None else Sends(text(told, "using", where), text(told, "address", where))
        runs = cls.from_json(section(value, "runs", where), where) if "runs" in value else None
        approximate = tuple(sorted(given.items()))
        return cls(text(value, "text", where), **exact, approximate=approximate, into=into, sends=sends, runs=runs)


def checked_offset(offset: Any, where: str) -> None:
    """Raises ConfigError for a source offset that is not JSON of at most 64 KB."""
    try:
        size = len(json.dumps(offset, allow_nan=False))
        same = json.loads(json.dumps(offset)) == offset
    except (TypeError, ValueError, RecursionError):
        size, same = 0, False
    if not same or size > _MOST_OFFSET:
        raise ConfigError(
            f"{where}, offset: needed a JSON value of at most 64 KB (a number, text, a dict of these); got "
            f"{type(offset).__name__}{f' of {size} bytes' if same else ''}; hand on what finds the place again"
        )


def section(value: dict[str, Any], name: str, where: str) -> dict[str, Any]:
    """The object under a name; empty where there is none."""
    found = value.get(name, {})
    if not isinstance(found, dict):
        refuse(where, f"an object under {name!r}", found)
    return found


def text(value: dict[str, Any], name: str, where: str) -> str:
    """The text under a name."""
    found = value.get(name)
    if not isinstance(found, str):
        refuse(where, f"text under {name!r}", found)
    return found


def names(value: dict[str, Any], name: str, where: str) -> tuple[str, ...]:
    """The names in a list."""
    found = value.get(name)
    if not isinstance(found, list | tuple) or not all(isinstance(each, str) for each in found):
        refuse(where, f"names under {name!r}", found)
    return tuple(found)


def integer(value: dict[str, Any], name: str, where: str) -> int | None:
    """The whole number of int64, not negative, under a name, or None."""
    found = value.get(name)
    if found is not None and (type(found) is not int or not 0 <= found < 1 << 63):
        refuse(where, f"a count or nothing under {name!r}", found)
    return found


def refuse(where: str, needed: str, came: object) -> NoReturn:
    """Raise StoreCorrupt in the house form."""
    raise StoreCorrupt(
        f"{where}: needed {needed}; got {str(came)[:60]!r}; the store was not written by Nile, or altered"
    )
