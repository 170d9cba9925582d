"""Reading CREATE STREAM and CREATE RELATION: what a name stands for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nile.expressions.places import Fault, listed
from nile.sensors.connectors import CONNECTORS
from nile.sql.binding.scope import find
from nile.sql.cursor import Cursor
from nile.sql.named import new_name, read_condition
from nile.sql.reading.sensors import once, read_place, read_type
from nile.sql.statements import CreateRelation, CreateStream

__all__ = ["read_source"]

_SETTINGS = ("TIMESTAMP BY", "LATENESS", "WHERE")
_AFTER_SOURCE = ("TIMESTAMP", "LATENESS", "WHERE")
_FED = ("TIMESTAMP BY", "LATENESS", "KEEP", "IDLE", "EVENT ID", "WHERE")
_LIVE = ("TIMESTAMP BY", "LATENESS", "KEEP", "IDLE", "EVENT ID", "STAMPED", "WHERE")


def read_source(cursor: Cursor, text: str, replace: bool, *, stream: bool) -> CreateStream | CreateRelation:
    """[STREAM | RELATION] name {FROM source | (column type, ...)}, and what follows, or of a stream both.

    Raises Fault.
    """
    name = new_name(cursor, "stream" if stream else "relation")
    if cursor.take("("):
        columns = _typed(cursor)
        if not stream:
            return CreateRelation(name, replace=replace, columns=columns)
        settings = _settings(cursor, text, _LIVE, [column for column, _ in columns])
        return CreateStream(name, None, replace=replace, columns=columns, **settings)
    if not cursor.take("FROM"):
        raise cursor.fault("'FROM' or '('", known=("FROM",))
    using, address = cursor.word().lower(), cursor.peek(1)
    if stream and using in CONNECTORS and address is not None and address.kind == "STRING":
        cursor.at += 1
        place = cursor.text("an address in quotes")
        cursor.need("(")
        columns = _typed(cursor)
        settings = _settings(cursor, text, _FED, [column for column, _ in columns])
        return CreateStream(name, place, replace=replace, columns=columns, using=using, **settings)
    if stream and using == "sensors" and address is not None and address.word not in _AFTER_SOURCE:
        cursor.at += 1
        table = cursor.name("the name of a table of sensors").text
        return CreateStream(name, table, True, replace=replace, using=using, **_settings(cursor, text, ("KEEP",)))
    source, registered = read_place(cursor)
    if stream:
        return CreateStream(name, source, registered, replace=replace, **_settings(cursor, text, _SETTINGS))
    return CreateRelation(name, source, replace=replace, registered=registered, **_settings(cursor, text, ("WHERE",)))


def _settings(cursor: Cursor, text: str, known: tuple[str, ...], columns: Sequence[str] = ()) -> dict[str, Any]:
    """Those of `known` that stand here, each once at most, up to the end of the statement.

    columns: what names of columns may be; none: any.
    """
    found: dict[str, Any] = {}
    readers: dict[str, tuple[str, Callable[[], Any]]] = {
        "TIMESTAMP BY": ("time", lambda: _column(cursor, "TIMESTAMP BY", columns)),
        "LATENESS": ("lateness", lambda: _duration(cursor, "LATENESS", least=0)),
        "KEEP": ("keep", lambda: _duration(cursor, "KEEP")),
        "IDLE": ("idle", lambda: _duration(cursor, "IDLE")),
        "EVENT ID": ("event_id", lambda: _column(cursor, "EVENT ID", columns)),
        "STAMPED": ("stamped", lambda: True),
        "WHERE": ("where", lambda: read_condition(cursor, text)),
    }
    while cursor.peek() is not None:
        start = cursor.start
        clause = next((each for each in known if cursor.take(*each.split())), None)
        if clause is None:
            raise cursor.fault(f"{', '.join(map(_shown, known))} or the end", known=known)
        key, read = readers[clause]
        found[key] = once(found.get(key), read(), clause, start)
    return found


def _shown(clause: str) -> str:
    needs = {"TIMESTAMP BY": " column", "EVENT ID": " column", "STAMPED": "", "WHERE": " condition"}
    return clause + needs.get(clause, " d")


def _duration(cursor: Cursor, clause: str, least: int = 1) -> int:
    cursor.take("=")
    return cursor.duration(clause, least=least)


def _column(cursor: Cursor, clause: str, columns: Sequence[str]) -> str:
    start = cursor.start
    name = cursor.name(f"a column after {clause}").text
    if not columns:
        return name
    found = find(name, list(columns))
    if len(found) != 1:
        raise Fault(f"needed a column after {clause} ({listed(columns)}); got '{name}'", start)
    return str(found[0])


def _typed(cursor: Cursor) -> tuple[tuple[str, str], ...]:
    """column type, ...)"""
    columns: dict[str, str] = {}
    while True:
        start = cursor.start
        name = cursor.name("a column").text
        if name in columns:
            raise Fault(f"needed a name of its own for each column; got '{name}' again", start)
        columns[name] = read_type(cursor)
        if not cursor.take(","):
            cursor.need(")")
            return tuple(columns.items())
