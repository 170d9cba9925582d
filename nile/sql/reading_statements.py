"""The front end as one function: text, names and parameters in, a bound and rewritten statement out."""

from __future__ import annotations

from typing import Any, Literal

from nile.expressions.places import Fault, listed, statement_error
from nile.expressions.tokens import plain_signs, tokens_of
from nile.sensors.sinks.making import SINKS
from nile.sql.binding.scope import find
from nile.sql.catalog import Catalog
from nile.sql.cursor import Cursor
from nile.sql.expression_text import identifier
from nile.sql.named import known_name
from nile.sql.parameters import Parameters, place_parameters
from nile.sql.parsing import read_other
from nile.sql.plan import Query
from nile.sql.queries import QUERY_WORDS, read_query
from nile.sql.reading.asked_again import AskedAgain
from nile.sql.reading.plan_json import is_plan, sql_of_plan
from nile.sql.reading.sinks import read_address, read_using
from nile.sql.rewriting.rules import rewrite
from nile.sql.statements import Copy, Describe, Explain, Select, Statement, Summarize
from nile.summaries.errors import SqlError

__all__ = ["read_statement"]

MAX_TOKENS = 12_000
_AGAIN = AskedAgain()


def read_statement(text: str, catalog: Catalog, *, params: Parameters = None) -> Statement:
    """One statement of Nile SQL; a query is bound against the catalog and rewritten, nothing is run.

    A semicolon may end it; a plan in JSON, as EXPLAIN (FORMAT JSON) tells it, is read as well.  params: values for ?
    (a sequence) or $name (a mapping).  Raises SqlError, which says line and column, NotYet, and ConfigError for a plan
    that is none.  Texts of at most 64 KiB, nested at most 64 deep.  A query that was read among the same names before
    costs some microseconds.
    """
    if (known := _AGAIN.find(text, params, catalog)) is not None:
        return known
    given = text
    if is_plan(text):
        text = sql_of_plan(text)
    try:
        read = _read(text, catalog, params)
    except Fault as fault:
        raise statement_error(fault, text if isinstance(text, str) else "") from None
    except RecursionError:
        raise SqlError("needed a statement of bearable depth; got one that is nested deeper; simplify it") from None
    if isinstance(read, Select):
        _AGAIN.keep(given, params, catalog, read)
    return read


def _read(text: str, catalog: Catalog, params: Parameters) -> Statement:
    text = plain_signs(text)
    tokens = tokens_of(text)
    if len(tokens) > MAX_TOKENS:
        raise Fault(f"needed at most {MAX_TOKENS} words and signs; got {len(tokens)}; split the statement")
    while tokens and tokens[-1].word == ";":
        tokens.pop()
    later = next((token for token in tokens if token.word == ";"), None)
    if later is not None:
        raise Fault("needed one statement; got more after this semicolon; run them one by one", later.start)
    values = place_parameters(tokens, params)
    cursor = Cursor(tokens, values, len(text))
    explain = cursor.take("EXPLAIN")
    analyze, form = _explaining(cursor) if explain else (False, "text")
    if cursor.word() in QUERY_WORDS:
        query = rewrite(read_query(text, tokens[cursor.at :], catalog, values), catalog)
        return Explain(query, analyze, form) if explain else Select(query)
    if explain:
        raise cursor.fault("SELECT after EXPLAIN")
    if (made := _told_of(cursor, text, catalog)) is not None:
        return made
    if cursor.take("COPY"):
        return _copy(cursor, text, catalog)
    return read_other(cursor, text, catalog)


def _told_of(cursor: Cursor, text: str, catalog: Catalog) -> Statement | None:
    """DESCRIBE query, SUMMARIZE query or name; None: neither."""
    describe = cursor.word() in ("DESCRIBE", "DESC") and cursor.word(1) in QUERY_WORDS
    if not describe and cursor.word() != "SUMMARIZE":
        return None
    cursor.at += 1
    if cursor.word() in QUERY_WORDS:
        query = rewrite(read_query(text, cursor.tokens[cursor.at :], catalog, cursor.values), catalog)
        return Describe("", query) if describe else Summarize(query)
    name = known_name(cursor, [*catalog.entries, *catalog.views], "a stream, relation or view, or a query")
    cursor.finish()
    return Summarize(_all_of(name, catalog))


def _explaining(cursor: Cursor) -> tuple[bool, Literal["text", "json"]]:
    """[ANALYZE] [(FORMAT JSON)], or both in the parentheses."""
    analyze, form = cursor.take("ANALYZE"), "text"
    if cursor.word() == "(" and cursor.word(1) in ("ANALYZE", "FORMAT"):
        cursor.need("(")
        while True:
            if cursor.one_of(("ANALYZE", "FORMAT")) == "ANALYZE":
                analyze = True
            else:
                form = cursor.one_of(("TEXT", "JSON"), "TEXT or JSON after FORMAT").lower()
            if not cursor.take(","):
                break
        cursor.need(")")
    return analyze, "json" if form == "json" else "text"


def _copy(cursor: Cursor, text: str, catalog: Catalog) -> Copy:
    """(query) | name TO 'path' [(FORMAT form, PARTITION_BY (column, ...))], or TO sink 'address'"""
    query = _copied(cursor, text, catalog) if cursor.take("(") else _all_of(_copied_name(cursor, catalog), catalog)
    cursor.need("TO")
    using = read_using(cursor)
    if using is not None:
        address = read_address(cursor, using, query)
        cursor.finish()
        return Copy(query, address, using=using)
    path = cursor.text(f"the path of a file, or one of {', '.join(SINKS).upper()} and an address")
    form: Any = None
    by: list[str] = []
    if cursor.take("("):
        while True:
            if cursor.one_of(("FORMAT", "PARTITION_BY")) == "FORMAT":
                form = cursor.one_of(("PARQUET", "CSV"), "PARQUET or CSV after FORMAT").lower()
            else:
                cursor.need("(")
                by.append(_column(cursor, query))
                while cursor.take(","):
                    by.append(_column(cursor, query))
                cursor.need(")")
            if not cursor.take(","):
                break
        cursor.need(")")
    cursor.finish()
    return Copy(query, path, form, tuple(by))


def _copied(cursor: Cursor, text: str, catalog: Catalog) -> Query:
    """The query up to its closing parenthesis."""
    begin = cursor.at
    depth = 1
    while depth and (token := cursor.peek()) is not None:
        depth += (token.word == "(") - (token.word == ")")
        cursor.at += 1
    if depth:
        raise cursor.fault("')' after the query")
    inner = cursor.tokens[begin : cursor.at - 1]
    if not inner:
        raise Fault("needed a query between the parentheses; got none; write COPY (SELECT ...) TO 'file'", cursor.end)
    return rewrite(read_query(text, inner, catalog, cursor.values), catalog)


def _copied_name(cursor: Cursor, catalog: Catalog) -> str:
    """A stream, relation or view, whose rows are meant."""
    names = [*catalog.entries, *catalog.views]
    token = cursor.peek()
    if token is None or not find(token.text, names):
        raise cursor.fault("a query in parentheses after COPY, as in COPY (SELECT * FROM sales) TO 'file', or a name")
    return known_name(cursor, names, "a stream, relation or view, or a query")


def _all_of(name: str, catalog: Catalog) -> Query:
    read = _read(f"SELECT * FROM {identifier(name)}", catalog, None)
    assert isinstance(read, Select)
    return read.query


def _column(cursor: Cursor, query: Query) -> str:
    """A column that a query returns."""
    start, names = cursor.start, [field.name for field in query.plan.fields]
    name = cursor.name("a column of the query").text
    found = find(name, names)
    if len(found) != 1:
        raise Fault(f"needed a column of the query ({listed(names)}); got '{name}'", start)
    return found[0]
