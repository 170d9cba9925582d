"""Statements that are no queries, by recursive descent: CREATE, DROP, SHOW and DESCRIBE."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Literal

from nile.expressions.places import Fault, listed, nearest
from nile.pyramid.grid.spec import SummarySpec
from nile.sql.binding.scope import find
from nile.sql.catalog import Catalog, Entry
from nile.sql.cursor import Cursor
from nile.sql.expression_text import expression_text, identifier
from nile.sql.parameters import put_zeros
from nile.sql.reading.selecting import read_fragment
from nile.sql.statements import CreateRelation, CreateStream, CreateSummary, Describe, Drop, Show, Statement
from nile.summaries.errors import ConfigError, MemoryRefused

__all__ = ["read_other"]

_STATEMENTS = ("SELECT", "CREATE", "SHOW", "DESCRIBE", "DROP", "EXPLAIN")
_OPTIONS = tuple(field.name for field in fields(SummarySpec) if field.name not in ("granularity", "rate", "depth"))


def read_other(cursor: Cursor, text: str, catalog: Catalog) -> Statement:
    """CREATE, SHOW, DESCRIBE or DROP.  What must exist is looked up in the catalog.  Raises Fault."""
    statement = _read(cursor, text, catalog)
    cursor.finish()
    return statement


def _read(cursor: Cursor, text: str, catalog: Catalog) -> Statement:
    if cursor.take("CREATE"):
        replace = cursor.take("OR")
        if replace:
            cursor.need("REPLACE")
        kind = cursor.one_of(("STREAM", "RELATION", "SUMMARY"), "STREAM, RELATION or SUMMARY after CREATE")
        if kind == "SUMMARY":
            return _summary(cursor, catalog, replace)
        return _source(cursor, text, replace, stream=kind == "STREAM")
    if cursor.take("DROP"):
        return _drop(cursor, catalog)
    if cursor.take("SHOW"):
        what = ("STREAMS", "RELATIONS", "SUMMARIES", "TABLES")
        shown: Any = cursor.one_of(what, "STREAMS, RELATIONS, SUMMARIES or TABLES after SHOW").lower()
        return Show(shown)
    if cursor.take("DESCRIBE") or cursor.take("DESC"):
        known = [*catalog.entries, *catalog.summaries]
        return Describe(_known(cursor, known, "a stream, relation or summary"))
    token = cursor.peek()
    if token is not None and token.text in catalog.entries:
        raise Fault(f"needed a statement; got a name alone; write SELECT * FROM {token.text}", cursor.start)
    raise cursor.fault(f"one of {', '.join(_STATEMENTS)}", known=_STATEMENTS)


def _new_name(cursor: Cursor, what: str) -> str:
    start = cursor.start
    name = cursor.name(f"a name for the {what}").text
    if not name.isidentifier():
        raise Fault(f"needed a plain name such as store1 for the {what}; got {name[:40]!r}; rename it", start)
    return name


def _known(cursor: Cursor, known: Iterable[str], what: str) -> str:
    """A name that is registered, in its own spelling."""
    names, start = list(known), cursor.start
    name = cursor.name(f"the name of {what}").text
    found = find(name, names)
    if len(found) == 1:
        return found[0]
    near = nearest(name, names)
    hint = f"; did you mean {near}?" if near else ""
    if found:
        hint = "; write it exactly"
    raise Fault(f"needed {what} ({listed(names) or 'there is none'}); got '{name[:40]}'{hint}", start)


def _source(cursor: Cursor, text: str, replace: bool, *, stream: bool) -> CreateStream | CreateRelation:
    """[STREAM | RELATION] name FROM source, and what follows."""
    name = _new_name(cursor, "stream" if stream else "relation")
    cursor.need("FROM")
    token = cursor.peek()
    registered = token is None or token.kind != "STRING"
    if registered:
        source = cursor.name("a path or glob in quotes, or the name of a registered object").text
    else:
        assert token is not None
        source = token.text
        if not source:
            raise Fault("needed a path or glob; got an empty text", token.start)
        cursor.at += 1
    time = lateness = where = None
    while cursor.peek() is not None:
        start = cursor.start
        if stream and cursor.take("TIMESTAMP", "BY"):
            time = _once(time, cursor.name("a column after TIMESTAMP BY").text, "TIMESTAMP BY", start)
        elif stream and cursor.take("LATENESS"):
            cursor.take("=")
            lateness = _once(lateness, cursor.duration("LATENESS"), "LATENESS", start)
        elif cursor.take("WHERE"):
            where = _condition(cursor, text)
        else:
            what = "TIMESTAMP BY column, LATENESS d, WHERE condition" if stream else "WHERE condition"
            known = ("TIMESTAMP BY", "LATENESS", "WHERE") if stream else ("WHERE",)
            raise cursor.fault(f"{what} or the end", known=known)
    if stream:
        return CreateStream(name, source, registered, time, lateness, where, replace)
    return CreateRelation(name, source, where, replace, registered)


def _once(old: Any, new: Any, clause: str, start: int) -> Any:
    if old is not None:
        raise Fault(f"needed {clause} once; got it again; leave one out", start)
    return new


def _condition(cursor: Cursor, text: str) -> str:
    """The rest of the statement as a condition, in its canonical text."""
    if cursor.peek() is None:
        raise cursor.fault("a condition after WHERE")
    begin, end = cursor.start, cursor.tokens[-1].end
    fragment = put_zeros(text, cursor.tokens, cursor.values)
    expression = read_fragment(fragment, begin, end, cursor.values)
    if expression.aggregates:
        raise Fault("needed single rows in WHERE; got an aggregate", expression.aggregates[0].start)
    if expression.nested:
        raise Fault("needed single rows in WHERE; got a query in it", expression.nested[0].start)
    for reference in expression.references:
        if reference.qualifier is not None:
            written = f"{reference.qualifier}.{reference.name}"
            raise Fault(f"needed a column alone; got '{written}'; leave the first part out", reference.start)
    cursor.at = len(cursor.tokens)
    return expression_text(expression.node, lambda name: identifier(expression.references[int(name[1:])].name))


def _summary(cursor: Cursor, catalog: Catalog, replace: bool) -> CreateSummary:
    name = _new_name(cursor, "summary")
    cursor.need("ON")
    streams = {entry.name: entry for entry in catalog.entries.values() if entry.is_stream}
    entry = streams[_known(cursor, streams, "a stream")]
    cursor.need("(")
    column = _summarised(cursor, entry)
    cursor.need(")", "WITH", "GRANULARITY")
    cursor.take("=")
    granularity = cursor.duration("GRANULARITY")
    cursor.need("AND", "COLLAPSE", "(")
    start = cursor.start
    rate = cursor.whole("a whole number, the rate, such as 4")
    cursor.need(",")
    depth = cursor.whole("a whole number, the depth, such as 3")
    cursor.need(")")
    options = _options(cursor) if cursor.take("USING") else ()
    try:
        made = CreateSummary(name, entry.name, column, granularity, rate, depth, options, replace)
        SummarySpec(granularity, rate, depth, **made.settings)
    except (ConfigError, MemoryRefused, TypeError) as error:
        raise Fault(str(error), start) from None
    return made


def _summarised(cursor: Cursor, entry: Entry) -> str:
    start = cursor.start
    names = list(entry.schema.names)
    name = cursor.name(f"a column of {entry.name}").text
    found = find(name, names)
    if len(found) != 1:
        near = nearest(name, names)
        hint = f"; did you mean {near}?" if near else ""
        raise Fault(f"needed a column of {entry.name} ({listed(names)}); got '{name}'{hint}", start)
    return found[0]


def _options(cursor: Cursor) -> tuple[tuple[str, str | float | int | bool], ...]:
    options: list[tuple[str, str | float | int | bool]] = []
    while True:
        start = cursor.start
        name = cursor.name(f"an option ({', '.join(_OPTIONS)})").text
        found = find(name, _OPTIONS)
        if len(found) != 1:
            near = nearest(name, _OPTIONS)
            hint = f"; did you mean {near}?" if near else ""
            raise Fault(f"needed one of {', '.join(_OPTIONS)}; got '{name[:40]}'{hint}", start)
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
    kinds: dict[str, Literal["stream", "relation", "summary"]] = {
        "STREAM": "stream",
        "RELATION": "relation",
        "SUMMARY": "summary",
    }
    kind = kinds[cursor.one_of(kinds, "STREAM, RELATION or SUMMARY after DROP")]
    if cursor.take("IF"):
        cursor.need("EXISTS")
        return Drop(kind, cursor.name(f"the name of a {kind}").text, True)
    entries = catalog.entries.values()
    known = {
        "stream": [entry.name for entry in entries if entry.is_stream],
        "relation": [entry.name for entry in entries if not entry.is_stream],
        "summary": list(catalog.summaries),
    }[kind]
    return Drop(kind, _known(cursor, known, f"a {kind}"))
