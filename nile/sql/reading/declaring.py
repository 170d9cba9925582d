"""Reading DECLARE and DROP CONSTRAINT: constraints declared on streams."""

from __future__ import annotations

from typing import Any

from nile.expressions.places import Fault, listed, nearest
from nile.sql.binding.scope import find
from nile.sql.catalog import Catalog, Entry
from nile.sql.cursor import Cursor
from nile.sql.named import known_name
from nile.sql.statements import Declare

__all__ = ["read_columns", "read_declare"]

_KINDS = ("ORDERED", "CLUSTERED", "PUNCTUATED", "MANY", "REFERENTIAL")
_WITHOUT = {"MANY": "a tuple has one parent at most, wherever it is", "PUNCTUATED": "the stream says when"}


def read_declare(cursor: Cursor, catalog: Catalog, *, drop: bool = False) -> Declare:
    """What stands behind DECLARE, or (drop) behind DROP CONSTRAINT.  Raises Fault."""
    word = cursor.one_of(_KINDS, "ORDERED, CLUSTERED, PUNCTUATED, MANY ONE or REFERENTIAL")
    if word == "MANY":
        cursor.need("ONE")
    kind: Any = "many one" if word == "MANY" else word.lower()
    start = cursor.start
    stream, columns = read_columns(cursor, catalog)
    parent: str | None = None
    theirs: tuple[str, ...] = ()
    if word == "ORDERED" and len(columns) > 1:
        raise Fault(f"needed one column, which has an order; got {listed(columns)}", start)
    if word in ("MANY", "REFERENTIAL"):
        cursor.need("TO")
        start = cursor.start
        parent, theirs = read_columns(cursor, catalog)
        if parent == stream:
            raise Fault(f"needed the stream of the parents, another one; got '{parent}' again", start)
        if len(theirs) != len(columns):
            raise Fault(f"needed {len(columns)} columns, as many as of {stream}; got {listed(theirs)}", start)
    made = Declare(kind, stream, columns, parent, theirs, drop=drop)
    if drop:
        return made
    within, violation = None, "fail"
    start = cursor.start
    if cursor.take("WITHIN"):
        if word in _WITHOUT:
            raise Fault(f"needed no WITHIN: {_WITHOUT[word]}; got one", start)
        within = cursor.whole("a whole number of tuples, such as 10")
        cursor.take("TUPLES")
        if within < 0:
            raise Fault(f"needed 0 or more tuples; got {within}", start)
    if cursor.take("ON", "VIOLATION"):
        violation = cursor.one_of(("FAIL", "COUNT", "RELAX"), "FAIL, COUNT or RELAX").lower()
        if word in _WITHOUT and violation == "relax":
            raise Fault("needed FAIL or COUNT: there is no k to raise; got RELAX", start)
    return Declare(kind, stream, columns, parent, theirs, within, violation)  # type: ignore[arg-type]


def read_columns(cursor: Cursor, catalog: Catalog) -> tuple[str, tuple[str, ...]]:
    """stream (column, ...)"""
    streams = {entry.name: entry for entry in catalog.entries.values() if entry.is_stream}
    entry = streams[known_name(cursor, streams, "a stream")]
    cursor.need("(")
    columns = [_column(cursor, entry)]
    while cursor.take(","):
        start = cursor.start
        columns.append(_column(cursor, entry))
        if columns[-1] in columns[:-1]:
            raise Fault(f"needed each column once; got '{columns[-1]}' again", start)
    cursor.need(")")
    return entry.name, tuple(columns)


def _column(cursor: Cursor, entry: Entry) -> str:
    start, names = cursor.start, list(entry.schema.names)
    name = cursor.name(f"a column of {entry.name}").text
    found = find(name, names)
    if len(found) != 1:
        near = nearest(name, names)
        hint = f"; did you mean {near}?" if near else ""
        raise Fault(f"needed a column of {entry.name} ({listed(names)}); got '{name}'{hint}", start)
    return str(found[0])
