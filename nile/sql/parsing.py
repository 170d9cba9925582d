"""Statements other than queries, by recursive descent: CREATE, DROP, DECLARE, INSERT, UPDATE, DELETE, SHOW ..."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Literal

from nile.base.sizes import parse_size
from nile.expressions.attributes import columns_of_parts
from nile.expressions.places import Fault, NotYetFault, listed, nearest
from nile.expressions.tokens import Token
from nile.pyramid.grid.choosing import KINDS
from nile.pyramid.grid.spec import SummarySpec
from nile.sensors.sinks.making import SINKS
from nile.sql.binding.scope import find
from nile.sql.catalog import Catalog, Entry
from nile.sql.changing import read_delete, read_insert, read_punctuate, read_update
from nile.sql.cursor import Cursor, ends_of_parts
from nile.sql.expression_text import identifier
from nile.sql.named import known_name, new_name, read_expression
from nile.sql.plan import OnClose, Query, ToStream
from nile.sql.queries import QUERY_WORDS, read_query
from nile.sql.reading.declaring import read_declare
from nile.sql.reading.sensors import read_sensors
from nile.sql.reading.sinks import read_address, read_using
from nile.sql.reading.sources import read_source
from nile.sql.rewriting.rules import rewrite
from nile.sql.statements import (
    CreateMaterialized,
    CreateSink,
    CreateSummary,
    CreateView,
    Describe,
    Drop,
    Pause,
    Show,
    Statement,
)
from nile.summaries.catalogue import CATALOGUE
from nile.summaries.errors import ConfigError, MemoryRefused

__all__ = ["read_other"]

_STATEMENTS = (
    "SELECT", "CREATE", "SHOW", "DESCRIBE", "DROP", "INSERT", "UPDATE", "DELETE", "DECLARE", "PUNCTUATE", "PAUSE",
    "RESUME",
)  # fmt: skip
_OPTIONS = tuple(field.name for field in fields(SummarySpec) if field.name not in ("granularity", "rate", "depth"))


def read_other(cursor: Cursor, text: str, catalog: Catalog) -> Statement:
    """What is neither a query nor EXPLAIN nor COPY.  What must exist is in the catalog.  Raises Fault."""
    statement = _read(cursor, text, catalog)
    cursor.finish()
    return statement


def _read(cursor: Cursor, text: str, catalog: Catalog) -> Statement:
    if cursor.take("CREATE"):
        replace = cursor.take("OR")
        if replace:
            cursor.need("REPLACE")
        if cursor.take("MATERIALIZED"):
            cursor.need("VIEW")
            return _materialized(cursor, text, catalog, replace)
        kinds = ("STREAM", "RELATION", "SENSORS", "SUMMARY", "VIEW", "SINK")
        kind = cursor.one_of(kinds, "STREAM, RELATION, SENSORS, SUMMARY, VIEW or SINK after CREATE")
        if kind == "SINK":
            return _sink(cursor, text, catalog, replace)
        if kind == "VIEW":
            return _view(cursor, text, catalog, replace)
        if kind == "SENSORS":
            return read_sensors(cursor, new_name(cursor, "sensors"), replace)
        if kind == "SUMMARY":
            return _summary(cursor, text, catalog, replace)
        return read_source(cursor, text, replace, stream=kind == "STREAM")
    if cursor.take("DECLARE"):
        return read_declare(cursor, catalog)
    if cursor.take("PUNCTUATE"):
        return read_punctuate(cursor, text, catalog)
    if cursor.word() in ("PAUSE", "RESUME"):
        resume = not cursor.take("PAUSE")
        cursor.need(*(("RESUME",) if resume else ()), "QUERY")
        return Pause(cursor.name("the name of a standing query").text, resume)
    if cursor.take("DROP", "CONSTRAINT"):
        return read_declare(cursor, catalog, drop=True)
    if cursor.take("DROP"):
        return _drop(cursor, catalog)
    if cursor.take("INSERT"):
        return read_insert(cursor, text, catalog)
    if cursor.take("UPDATE"):
        return read_update(cursor, text, catalog)
    if cursor.take("DELETE"):
        return read_delete(cursor, text, catalog)
    if cursor.take("SHOW"):
        what = ("STREAMS", "RELATIONS", "SUMMARIES", "VIEWS", "QUERIES", "TABLES")
        shown: Any = cursor.one_of(what, "STREAMS, RELATIONS, SUMMARIES, VIEWS, QUERIES or TABLES after SHOW").lower()
        return Show(shown)
    if cursor.take("DESCRIBE") or cursor.take("DESC"):
        known = [*catalog.entries, *catalog.summaries, *catalog.views]
        return Describe(known_name(cursor, known, "a stream, relation, summary or view"))
    if cursor.word() in ("PIVOT", "UNPIVOT"):
        raise NotYetFault(
            f"{cursor.word()} is not there yet; write SELECT sum(x) FILTER (WHERE y = 1) AS one ... GROUP BY the rest",
            cursor.start,
        )
    token = cursor.peek()
    if token is not None and token.text in {**catalog.entries, **catalog.views}:
        raise Fault(f"needed a statement; got a name alone; write SELECT * FROM {token.text}", cursor.start)
    raise cursor.fault(f"one of {', '.join(_STATEMENTS)}", known=_STATEMENTS)


def _summary(cursor: Cursor, text: str, catalog: Catalog, replace: bool) -> CreateSummary:
    name = new_name(cursor, "summary")
    cursor.need("ON")
    streams = {entry.name: entry for entry in catalog.entries.values() if entry.is_stream}
    entry = streams[known_name(cursor, streams, "a stream")]
    cursor.need("(")
    column, parts = _summarised(cursor, text, entry)
    cursor.need(")", "WITH", "GRANULARITY")
    cursor.take("=")
    granularity = cursor.duration("GRANULARITY")
    cursor.need("AND", "COLLAPSE", "(")
    start = cursor.start
    rate = cursor.whole("a whole number, the rate, such as 4")
    cursor.need(",")
    depth = cursor.whole("a whole number, the depth, such as 3")
    cursor.need(")")
    error, memory, sized = None, None, cursor.start
    if cursor.take("WITH", "ERROR"):
        cursor.take("=")
        error = cursor.share("an error above 0 and below 1, such as 0.02 or 2 %", 0.0)
    elif cursor.take("WITH", "MEMORY"):
        cursor.take("=")
        memory = _memory(cursor)
    kind, parameters, options = _using(cursor) if cursor.take("USING") else ("countsketch", (), ())
    if (error is not None or memory is not None) and any(option == "columns" for option, _ in options):
        raise Fault("needed WITH ERROR or WITH MEMORY, which choose the columns, or columns; got both", sized)
    try:
        made = CreateSummary(
            name, entry.name, column, granularity, rate, depth, options, replace, error, memory, kind, parameters, parts
        )
        _ = made.grid
    except (ConfigError, MemoryRefused, TypeError) as error:
        raise Fault(str(error), start) from None
    return made


def _view(cursor: Cursor, text: str, catalog: Catalog, replace: bool) -> CreateView:
    """name [(column, ...)] AS query, which is bound once, so that what is wrong with it is said now."""
    name, columns, tokens = _viewed(cursor)
    parameter = next((start for start in cursor.values if start >= tokens[0].start), None)
    if parameter is not None:
        raise Fault(f"needed a value in a view; got {cursor.values[parameter]}; write out the value", parameter)
    query = read_query(text, tokens, catalog, cursor.values, making=name)
    _called(query, columns, tokens[0].start)
    return CreateView(name, text[tokens[0].start : tokens[-1].end], tuple(columns), replace)


def _materialized(cursor: Cursor, text: str, catalog: Catalog, replace: bool) -> CreateMaterialized:
    """name [(column, ...)] AS query."""
    name, columns, tokens = _viewed(cursor)
    query = rewrite(read_query(text, tokens, catalog, cursor.values), catalog)
    if isinstance(query.plan, ToStream | OnClose):
        raise Fault("needed a relation for a view; got a stream; INSERT INTO a stream", tokens[0].start)
    return CreateMaterialized(name, query, _called(query, columns, tokens[0].start), replace)


def _sink(cursor: Cursor, text: str, catalog: Catalog, replace: bool) -> CreateSink:
    """name TO sink 'address' AS query."""
    name = new_name(cursor, "sink")
    cursor.need("TO")
    if (using := read_using(cursor)) is None:
        raise cursor.fault(f"one of {', '.join(SINKS).upper()} after TO", known=map(str.upper, SINKS))
    place = cursor.at
    cursor.text("an address in quotes")
    tokens = _after_as(cursor)
    query = rewrite(read_query(text, tokens, catalog, cursor.values), catalog)
    cursor.at = place
    address = read_address(cursor, using, query)
    cursor.at = len(cursor.tokens)
    return CreateSink(name, using, address, query, replace)


def _viewed(cursor: Cursor) -> tuple[str, list[str], Sequence[Token]]:
    """name [(column, ...)] AS: those, and the tokens of the query, which are stepped over."""
    name, columns = new_name(cursor, "view"), []
    if cursor.take("("):
        columns.append(cursor.name("a name for a column").text)
        while cursor.take(","):
            columns.append(cursor.name("a name for a column").text)
        cursor.need(")")
    return name, columns, _after_as(cursor)


def _after_as(cursor: Cursor) -> Sequence[Token]:
    """AS query: the tokens of the query, which are stepped over."""
    cursor.need("AS")
    if cursor.word() not in QUERY_WORDS:
        raise cursor.fault("SELECT after AS")
    tokens = cursor.tokens[cursor.at :]
    cursor.at = len(cursor.tokens)
    return tokens


def _called(query: Query, columns: Sequence[str], start: int) -> tuple[str, ...]:
    """What the columns of a view are called.  columns: the first of them.  Raises Fault for more than there are."""
    fields = query.plan.fields
    if len(columns) > len(fields):
        raise Fault(f"needed at most {len(fields)} names of columns; got {len(columns)}", start)
    return (*columns, *(field.name for field in fields[len(columns) :]))


def _memory(cursor: Cursor) -> int:
    """An amount of memory, in bytes."""
    start, token = cursor.start, cursor.peek()
    if token is not None and token.kind == "STRING":
        cursor.at += 1
        amount: str | float = token.text
    else:
        amount = cursor.number("an amount of memory, such as '4 MB'")
    try:
        return parse_size(amount, where="summary memory")
    except ConfigError as error:
        raise Fault(str(error), start) from None


def _summarised(cursor: Cursor, text: str, entry: Entry) -> tuple[str, tuple[str, ...]]:
    """A column; or expressions over columns, or several of both: all of them as one, and each."""
    if cursor.word(1) == ")" or cursor.peek(1) is None or cursor.start in cursor.values:
        return _own_column(cursor, entry), ()
    parts = []
    for end in ends_of_parts(cursor):
        start, one = cursor.start, end == cursor.at + 1
        told = identifier(_own_column(cursor, entry)) if one else _expression(cursor, text, end, entry)
        if told in parts:
            raise Fault(f"needed each attribute once; got {told} again; leave one out", start)
        parts.append(told)
        cursor.take(",")
    column = ", ".join(parts)
    if column in entry.schema.names:
        raise Fault(f"needed attributes; got {column}, which is also the name of a column; rename the column", start)
    return column, tuple(parts)


def _expression(cursor: Cursor, text: str, end: int, entry: Entry) -> str:
    """An expression, with the columns of a stream in their own spelling."""
    start = cursor.start
    told = read_expression(cursor, text, end, "a summary", entry.schema.names)
    columns = columns_of_parts((told,))
    if not columns:
        raise Fault(f"needed an expression over columns of {entry.name}; got {told}; name a column", start)
    for name in columns:
        if name not in entry.schema.names:
            raise Fault(
                f"needed a column in its own spelling; got {name}; write {find(name, entry.schema.names)[0]}", start
            )
    return told


def _own_column(cursor: Cursor, entry: Entry) -> str:
    start = cursor.start
    names = list(entry.schema.names)
    name = cursor.name(f"a column of {entry.name}").text
    found = find(name, names)
    if len(found) != 1:
        near = nearest(name, names)
        hint = f"; did you mean {near}?" if near else ""
        raise Fault(f"needed a column of {entry.name} ({listed(names)}); got '{name}'{hint}", start)
    return found[0]


Options = tuple[tuple[str, str | float | int | bool], ...]


def _using(cursor: Cursor) -> tuple[str, Options, Options]:
    """[kind [(parameter = value, ...)]] [[,] option = value, ...]: kind, parameters, options.

    What a count sketch takes are options of the grid, whose own it is.
    """
    kind, after = cursor.word().lower(), cursor.peek(1)
    if kind not in KINDS:
        if kind not in _OPTIONS and (after is None or after.text != "="):
            raise cursor.fault(f"a kind of summary ({', '.join(KINDS)}), or an option (columns = 64)", known=KINDS)
        return "countsketch", (), _options(cursor, _OPTIONS)
    cursor.at += 1
    parameters: Options = ()
    if cursor.take("("):
        known = ("columns", "rows") if kind == "countsketch" else _parameters(kind)
        if not known:
            raise cursor.fault(f"no parameters for {kind}")
        parameters = _options(cursor, known)
        cursor.need(")")
    cursor.take(",")
    token = cursor.peek()
    own = parameters if kind == "countsketch" else ()
    options = _options(cursor, _OPTIONS, own) if token is not None else own
    return kind, (() if own else parameters), options


def _parameters(kind: str) -> tuple[str, ...]:
    """What a kind of summary is made with."""
    return tuple(inspect.signature(CATALOGUE[kind]).parameters) if kind in CATALOGUE else ()


def _options(cursor: Cursor, known: tuple[str, ...], given: Options = ()) -> Options:
    options: list[tuple[str, str | float | int | bool]] = list(given)
    while True:
        start = cursor.start
        name = cursor.name(f"an option ({', '.join(known)})").text
        found = find(name, known)
        if len(found) != 1:
            near = nearest(name, known)
            hint = f"; did you mean {near}?" if near else ""
            raise Fault(f"needed one of {', '.join(known)}; got '{name[:40]}'{hint}", start)
        if any(found[0] == other for other, _ in options):
            raise Fault(f"needed each option once; got {found[0]} again", start)
        cursor.need("=")
        options.append((found[0], _value(cursor)))
        if not cursor.take(","):
            return tuple(options)


def _value(cursor: Cursor) -> str | float | int | bool:
    token = cursor.peek()
    if token is not None and token.kind == "STRING":
        cursor.at += 1
        return token.text
    if cursor.take("TRUE"):
        return True
    if cursor.take("FALSE"):
        return False
    if token is not None and token.kind == "VAR":
        cursor.at += 1
        return token.text
    return cursor.number("a number, a text, true or false")


def _drop(cursor: Cursor, catalog: Catalog) -> Drop:
    if cursor.take("MATERIALIZED"):
        cursor.need("VIEW")
        exists = cursor.take("IF", "EXISTS")
        return Drop("materialized view", cursor.name("the name of a view").text, exists)
    kinds: dict[str, Literal["stream", "relation", "sensors", "summary", "view", "query", "sink"]] = {
        "STREAM": "stream",
        "RELATION": "relation",
        "SENSORS": "sensors",
        "SUMMARY": "summary",
        "VIEW": "view",
        "QUERY": "query",
        "SINK": "sink",
    }
    kind = kinds[cursor.one_of(kinds, "STREAM, RELATION, SENSORS, SUMMARY, VIEW, QUERY or SINK after DROP")]
    if cursor.take("IF"):
        cursor.need("EXISTS")
        return Drop(kind, cursor.name(f"the name of a {kind}").text, True)
    if kind in ("query", "sink"):  # the catalog knows none
        return Drop(kind, cursor.name(f"the name of a {'standing query' if kind == 'query' else kind}").text)
    entries = catalog.entries.values()
    known = {
        "stream": [entry.name for entry in entries if entry.is_stream],
        "relation": [entry.name for entry in entries if not entry.is_stream],
        "sensors": [entry.name for entry in entries if entry.static],
        "summary": list(catalog.summaries),
        "view": list(catalog.views),
    }[kind]
    return Drop(kind, known_name(cursor, known, f"a {kind}"))
