"""CREATE SENSORS, by recursive descent: columns with types, one of them a stream of fields."""

from __future__ import annotations

from typing import Any

from nile.base.sizes import parse_size
from nile.expressions.places import Fault, nearest
from nile.sensors.types import TYPES
from nile.sql.cursor import Cursor
from nile.sql.statements import CreateSensors
from nile.summaries.errors import ConfigError

__all__ = ["once", "read_place", "read_sensors", "read_type"]

_Columns = tuple[tuple[str, str], ...]


def read_sensors(cursor: Cursor, name: str, replace: bool) -> CreateSensors:
    """What follows CREATE SENSORS name.  Raises Fault."""
    cursor.need("(")
    columns: list[tuple[str, str]] = []
    stream: tuple[str, _Columns, str] | None = None
    while True:
        start = cursor.start
        column = cursor.name("a column").text
        if any(column == other for other, _ in columns):
            raise Fault(f"needed a name of its own for each column; got '{column}' again", start)
        if cursor.take("STREAM"):
            if stream is not None:
                raise Fault(f"needed one STREAM; got '{stream[0]}' and '{column}'; make a table for each", start)
            fields = _fields(cursor)
            cursor.need("USING")
            stream = column, fields, cursor.text("'module:Class' after USING")
            columns.append((column, "TEXT"))
        else:
            columns.append((column, read_type(cursor)))
        if not cursor.take(","):
            break
    start = cursor.start
    cursor.need(")")
    if stream is None:
        raise Fault("needed a column such as value STREAM(reading DOUBLE) USING 'module:Class'; got none", start)
    source, registered, lateness, buffer, idle = None, False, None, None, None
    while cursor.peek() is not None:
        start = cursor.start
        if cursor.take("FROM"):
            once(source, "", "FROM", start)
            source, registered = read_place(cursor)
        elif cursor.take("LATENESS"):
            cursor.take("=")
            lateness = once(lateness, cursor.duration("LATENESS", least=0), "LATENESS", start)
        elif cursor.take("IDLE"):
            cursor.take("=")
            idle = once(idle, cursor.duration("IDLE"), "IDLE", start)
        elif cursor.take("BUFFER"):
            cursor.take("=")
            buffer = once(buffer, _size(cursor), "BUFFER", start)
        else:
            known = ("FROM", "LATENESS", "IDLE", "BUFFER")
            raise cursor.fault("FROM source, LATENESS d, IDLE d, BUFFER size or the end", known=known)
    return CreateSensors(name, tuple(columns), *stream, source, registered, lateness, buffer, replace, idle)


def read_place(cursor: Cursor) -> tuple[str, bool]:
    """Where rows come from: a path or glob in quotes, or (True) the name of something registered."""
    token = cursor.peek()
    if token is None or token.kind != "STRING":
        return cursor.name("a path or glob in quotes, or the name of a registered object").text, True
    if not token.text:
        raise Fault("needed a path or glob; got an empty text", token.start)
    cursor.at += 1
    return token.text, False


def once(old: Any, new: Any, clause: str, start: int) -> Any:
    """The new value of a clause that must not have one yet.  Raises Fault."""
    if old is not None:
        raise Fault(f"needed {clause} once; got it again; leave one out", start)
    return new


def _fields(cursor: Cursor) -> _Columns:
    cursor.need("(")
    fields: list[tuple[str, str]] = []
    while True:
        fields.append((cursor.name("a field of the stream").text, read_type(cursor)))
        if not cursor.take(","):
            cursor.need(")")
            return tuple(fields)


def read_type(cursor: Cursor) -> str:
    """A type in canonical text: capitals, lists with [] behind."""
    if cursor.take("LIST"):
        cursor.need("<")
        kind = f"{read_type(cursor)}[]"
        cursor.need(">")
    else:
        kind = cursor.word().upper()
        if kind not in TYPES:
            near = nearest(kind, TYPES)
            raise cursor.fault(f"a type ({', '.join(TYPES)} or LIST<type>)", known=() if near is None else TYPES)
        cursor.at += 1
    while cursor.take("[", "]"):
        kind += "[]"
    return kind


def _size(cursor: Cursor) -> int:
    start, token = cursor.start, cursor.peek()
    text = token is not None and token.kind == "STRING"
    given = cursor.text("a size") if text else cursor.number("bytes, or a size in quotes such as '64 MB', after BUFFER")
    try:
        return parse_size(given, where="BUFFER", least=65_536)
    except ConfigError as error:
        raise Fault(str(error), start) from None
