"""INSERT, UPDATE and DELETE: literal rows or rows of a query, and changes of rows."""

from __future__ import annotations

from collections.abc import Collection

from nile.expressions.folding import fold
from nile.expressions.places import Fault, listed
from nile.expressions.tree import Node
from nile.sql.binding.expression_binder import ExpressionBinder
from nile.sql.binding.scope import Scope, find
from nile.sql.catalog import Catalog, Entry
from nile.sql.cursor import Cursor
from nile.sql.named import known_name, read_expression
from nile.sql.parameters import put_zeros
from nile.sql.queries import QUERY_WORDS, read_query
from nile.sql.reading.declaring import read_columns
from nile.sql.reading.selecting import read_fragment
from nile.sql.rewriting.rules import rewrite
from nile.sql.statements import Delete, Insert, Punctuate, Update

__all__ = ["read_delete", "read_insert", "read_punctuate", "read_update"]


def read_insert(cursor: Cursor, text: str, catalog: Catalog) -> Insert:
    """INTO name [(column, ...)] {VALUES (value, ...), ... | query} [AT time].  Raises Fault."""
    cursor.need("INTO")
    entry = _changing(cursor, catalog)
    at = _at(cursor, entry)
    columns = _columns(cursor, entry) if cursor.word() == "(" and cursor.word(1) not in QUERY_WORDS else ()
    width = len(columns or entry.schema.names)
    if cursor.take("VALUES"):
        rows = [_row(cursor, text, width)]
        while cursor.take(","):
            rows.append(_row(cursor, text, width))
        return Insert(entry.name, columns, tuple(rows), at=at)
    start = cursor.start
    if cursor.word() not in QUERY_WORDS:
        raise cursor.fault("VALUES or a query", known=("VALUES", "SELECT"))
    query = rewrite(read_query(text, cursor.tokens[cursor.at :], catalog, cursor.values), catalog)
    cursor.at = len(cursor.tokens)
    if len(query.plan.fields) != width:
        raise Fault(f"needed a query of {width} columns for {entry.name}; got {len(query.plan.fields)}", start)
    return Insert(entry.name, columns, query=query, at=at)


def read_punctuate(cursor: Cursor, text: str, catalog: Catalog) -> Punctuate:
    """stream (column, ...) VALUES (value, ...), ...  Raises Fault."""
    name, columns = read_columns(cursor, catalog)
    cursor.need("VALUES")
    rows = [_row(cursor, text, len(columns))]
    while cursor.take(","):
        rows.append(_row(cursor, text, len(columns)))
    return Punctuate(name, columns, tuple(rows))


def read_update(cursor: Cursor, text: str, catalog: Catalog) -> Update:
    """name SET column = value, ... [WHERE condition] [AT time].  Raises Fault."""
    relations = [each.name for each in catalog.entries.values() if each.changes or each.control]
    entry = catalog.entries[known_name(cursor, relations, "a relation that CREATE RELATION name (column type) made")]
    at = _at(cursor, entry)
    cursor.need("SET")
    values: dict[str, str] = {}
    while True:
        (name,) = _named(cursor, entry, values)
        cursor.need("=")
        begin = cursor.at
        end = _skip(cursor, (",", "WHERE"))
        cursor.at = begin
        if end == begin:
            raise cursor.fault(f"a value for {name}")
        values[name] = read_expression(cursor, text, end, "SET", entry.schema.names)
        if not cursor.take(","):
            break
    return Update(entry.name, tuple(values.items()), _where(cursor, text, entry), at)


def read_delete(cursor: Cursor, text: str, catalog: Catalog) -> Delete:
    """FROM name [WHERE condition] [AT time].  Raises Fault."""
    cursor.need("FROM")
    entry = _changing(cursor, catalog)
    at = _at(cursor, entry)
    return Delete(entry.name, _where(cursor, text, entry), at)


def _changing(cursor: Cursor, catalog: Catalog) -> Entry:
    known = [each.name for each in catalog.entries.values() if each.is_stream or each.changes]
    return catalog.entries[known_name(cursor, known, "a stream, or a relation that changes")]


def _at(cursor: Cursor, entry: Entry) -> str | float | None:
    """AT time, at the end of the statement, which is cut off there."""
    tokens = cursor.tokens
    if len(tokens) < 2 or tokens[-1].kind not in ("STRING", "NUMBER"):
        return None
    negative = len(tokens) > 2 and tokens[-1].kind == "NUMBER" and tokens[-2].word == "-"  # seconds before 1970
    begin = len(tokens) - 2 - negative
    if tokens[begin].word != "AT":
        return None
    if not entry.changes:
        where = tokens[begin].start
        raise Fault(f"needed a relation for AT; got stream '{entry.name}', whose rows say their time", where)
    end = Cursor(tokens, cursor.values, tokens[-1].end, len(tokens) - 1)
    cursor.tokens = tokens[:begin]
    if tokens[-1].kind == "STRING":
        return end.text("a time after AT")
    seconds = end.number("a time after AT")
    return -seconds if negative else seconds


def _where(cursor: Cursor, text: str, entry: Entry) -> str | None:
    if not cursor.take("WHERE"):
        return None
    if cursor.peek() is None:
        raise cursor.fault("a condition after WHERE")
    columns = entry.schema.names if entry.changes or entry.control else None
    return read_expression(cursor, text, len(cursor.tokens), "WHERE", columns)


def _skip(cursor: Cursor, words: tuple[str, ...]) -> int:
    """Steps over all up to one of the words outside of parentheses; where that stands."""
    depth = 0
    while (token := cursor.peek()) is not None and (depth or token.word not in words):
        depth += (token.word in ("(", "[", "CASE")) - (token.word in (")", "]", "END"))
        cursor.at += 1
    return cursor.at


def _named(cursor: Cursor, entry: Entry, taken: Collection[str]) -> list[str]:
    """A column that has not been named yet."""
    start = cursor.start
    name = cursor.name(f"a column of {entry.name}").text
    found = find(name, entry.schema.names)
    if len(found) != 1 or found[0] in taken:
        raise Fault(f"needed columns of {entry.name} ({listed(entry.schema.names)}), each once; got '{name}'", start)
    return found


def _columns(cursor: Cursor, entry: Entry) -> tuple[str, ...]:
    cursor.need("(")
    columns = _named(cursor, entry, ())
    while cursor.take(","):
        columns += _named(cursor, entry, columns)
    cursor.need(")")
    return tuple(columns)


def _row(cursor: Cursor, text: str, width: int) -> tuple[Node, ...]:
    start = cursor.start
    cursor.need("(")
    row = [_value(cursor, text)]
    while cursor.take(","):
        row.append(_value(cursor, text))
    cursor.need(")")
    if len(row) != width:
        raise Fault(f"needed {width} values in a row; got {len(row)}", start)
    return tuple(row)


def _value(cursor: Cursor, text: str) -> Node:
    """An expression without columns, up to a comma or the parenthesis that ends its row."""
    begin = cursor.at
    if _skip(cursor, (",", ")")) == begin:
        raise cursor.fault("a value")
    tokens = cursor.tokens[begin : cursor.at]
    written = read_fragment(put_zeros(text, tokens, cursor.values), tokens[0].start, tokens[-1].end, cursor.values)
    if written.references or written.aggregates or written.nested or written.overs:
        raise Fault(
            "needed a value in VALUES; got what has to be worked out of rows; INSERT INTO name SELECT", tokens[0].start
        )
    return fold(ExpressionBinder(Scope(()), written, None).value("VALUES"))
