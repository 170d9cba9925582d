"""A statement as canonical Nile SQL: read again, it is an equal statement."""

from __future__ import annotations

from nile.sql.expression_text import identifier, text_literal
from nile.sql.statements import (
    CreateRelation,
    CreateStream,
    CreateSummary,
    Describe,
    Drop,
    Explain,
    Select,
    Show,
    Statement,
)
from nile.sql.text import duration_text, query_text

__all__ = ["statement_text"]


def statement_text(statement: Statement) -> str:
    """The statement on one line.  Read again with the same catalog it is an equal statement."""
    match statement:
        case Select():
            return query_text(statement.query)
        case Explain():
            return f"EXPLAIN {'ANALYZE ' if statement.analyze else ''}{query_text(statement.query)}"
        case CreateStream() | CreateRelation():
            return _create(statement)
        case CreateSummary():
            return _create_summary(statement)
        case Drop():
            exists = "IF EXISTS " if statement.if_exists else ""
            return f"DROP {statement.kind.upper()} {exists}{identifier(statement.name)}"
        case Show():
            return f"SHOW {statement.what.upper()}"
        case Describe():
            return f"DESCRIBE {identifier(statement.name)}"


def _create(statement: CreateStream | CreateRelation) -> str:
    kind = "STREAM" if isinstance(statement, CreateStream) else "RELATION"
    source = identifier(statement.source) if statement.registered else text_literal(statement.source)
    parts = [f"CREATE {'OR REPLACE ' if statement.replace else ''}{kind} {identifier(statement.name)} FROM {source}"]
    if isinstance(statement, CreateStream):
        if statement.time is not None:
            parts.append(f"TIMESTAMP BY {identifier(statement.time)}")
        if statement.lateness is not None:
            parts.append(f"LATENESS {duration_text(statement.lateness)}")
    if statement.where is not None:
        parts.append(f"WHERE {statement.where}")
    return " ".join(parts)


def _create_summary(statement: CreateSummary) -> str:
    text = (
        f"CREATE {'OR REPLACE ' if statement.replace else ''}SUMMARY {identifier(statement.name)} "
        f"ON {identifier(statement.stream)} ({identifier(statement.column)}) "
        f"WITH GRANULARITY {duration_text(statement.granularity)} AND COLLAPSE ({statement.rate}, {statement.depth})"
    )
    options = [f"{name} = {_option(value)}" for name, value in statement.options]
    return f"{text} USING {', '.join(options)}" if options else text


def _option(value: str | float | int | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return text_literal(value) if isinstance(value, str) else repr(value)
