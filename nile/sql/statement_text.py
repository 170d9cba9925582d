"""A statement as canonical Nile SQL: parsed again, it is an equal statement."""

from __future__ import annotations

from nile.sql.expression_text import duration_text, expression_text, identifier, text_literal
from nile.sql.statements import (
    Copy,
    CreateMaterialized,
    CreateRelation,
    CreateSensors,
    CreateSink,
    CreateStream,
    CreateSummary,
    CreateView,
    Declare,
    Delete,
    Describe,
    Drop,
    Explain,
    Insert,
    Pause,
    Punctuate,
    Select,
    Show,
    Statement,
    Summarize,
    Update,
)
from nile.sql.text import query_text

__all__ = ["statement_text"]


def statement_text(statement: Statement) -> str:
    """The statement on one line.  Read again with the same catalog it is an equal statement."""
    match statement:
        case Select():
            return query_text(statement.query)
        case Explain():
            form = "(FORMAT JSON) " if statement.form == "json" else ""
            return f"EXPLAIN {'ANALYZE ' if statement.analyze else ''}{form}{query_text(statement.query)}"
        case Copy() if statement.using is not None:
            place = f"{statement.using.upper()} {text_literal(statement.path)}"
            return f"COPY ({query_text(statement.query)}) TO {place}"
        case Copy():
            said = [] if statement.form is None else [f"FORMAT {statement.form.upper()}"]
            said += [f"PARTITION_BY ({', '.join(map(identifier, statement.by))})"] if statement.by else []
            how = f" ({', '.join(said)})" if said else ""
            return f"COPY ({query_text(statement.query)}) TO {text_literal(statement.path)}{how}"
        case CreateStream() | CreateRelation():
            return _create(statement)
        case CreateSensors():
            return _create_sensors(statement)
        case CreateSink():
            place = f"{statement.using.upper()} {text_literal(statement.address)}"
            return f"{_made('SINK', statement)} TO {place} AS {query_text(statement.query)}"
        case CreateSummary():
            return _create_summary(statement)
        case CreateView():
            columns = f" ({', '.join(map(identifier, statement.columns))})" if statement.columns else ""
            return f"{_made('VIEW', statement)}{columns} AS {statement.text}"
        case CreateMaterialized():
            columns = ", ".join(map(identifier, statement.columns))
            return f"{_made('MATERIALIZED VIEW', statement)} ({columns}) AS {query_text(statement.query)}"
        case Declare():
            return _declare(statement)
        case Punctuate():
            columns = ", ".join(map(identifier, statement.columns))
            told = ", ".join(
                f"({', '.join(expression_text(each, identifier) for each in row)})" for row in statement.rows
            )
            return f"PUNCTUATE {identifier(statement.name)} ({columns}) VALUES {told}"
        case Drop():
            exists = "IF EXISTS " if statement.if_exists else ""
            return f"DROP {statement.kind.upper()} {exists}{identifier(statement.name)}"
        case Pause():
            return f"{'RESUME' if statement.resume else 'PAUSE'} QUERY {identifier(statement.name)}"
        case Insert():
            columns = f" ({', '.join(map(identifier, statement.columns))})" if statement.columns else ""
            rows = (", ".join(expression_text(each, identifier) for each in row) for row in statement.rows)
            told = (
                "VALUES " + ", ".join(f"({row})" for row in rows)
                if statement.query is None
                else query_text(statement.query)
            )
            return f"INSERT INTO {identifier(statement.name)}{columns} {told}{_at(statement.at)}"
        case Delete():
            where = "" if statement.where is None else f" WHERE {statement.where}"
            return f"DELETE FROM {identifier(statement.name)}{where}{_at(statement.at)}"
        case Update():
            where = "" if statement.where is None else f" WHERE {statement.where}"
            values = ", ".join(f"{identifier(name)} = {value}" for name, value in statement.values)
            return f"UPDATE {identifier(statement.name)} SET {values}{where}{_at(statement.at)}"
        case Show():
            return f"SHOW {statement.what.upper()}"
        case Describe():
            return f"DESCRIBE {identifier(statement.name) if statement.query is None else query_text(statement.query)}"
        case Summarize():
            return f"SUMMARIZE {query_text(statement.query)}"


_Created = CreateStream | CreateRelation | CreateSensors | CreateSink | CreateSummary | CreateView | CreateMaterialized


def _at(at: str | float | None) -> str:
    return "" if at is None else f" AT {text_literal(at) if isinstance(at, str) else repr(at)}"


def _create(statement: CreateStream | CreateRelation) -> str:
    kind = "STREAM" if isinstance(statement, CreateStream) else "RELATION"
    text = _made(kind, statement)
    if isinstance(statement, CreateStream) and statement.using == "sensors":
        text += f" FROM SENSORS {identifier(str(statement.source))}"
    elif isinstance(statement, CreateStream) and statement.using is not None:
        text += f" FROM {statement.using.upper()} {text_literal(str(statement.source))}"
    else:
        text += _source(statement)
    if statement.columns:
        text += f" ({', '.join(f'{identifier(name)} {each}' for name, each in statement.columns)})"
    if isinstance(statement, CreateStream):
        if statement.time is not None:
            text += f" TIMESTAMP BY {identifier(statement.time)}"
        text += _lateness(statement)
        text += "" if statement.keep is None else f" KEEP {duration_text(statement.keep)}"
        text += "" if statement.idle is None else f" IDLE {duration_text(statement.idle)}"
        text += "" if statement.event_id is None else f" EVENT ID {identifier(statement.event_id)}"
        text += " STAMPED" if statement.stamped else ""
    return text if statement.where is None else f"{text} WHERE {statement.where}"


def _declare(statement: Declare) -> str:
    def of(stream: str, columns: tuple[str, ...]) -> str:
        return f"{identifier(stream)} ({', '.join(map(identifier, columns))})"

    text = f"{statement.kind.upper()} {of(statement.stream, statement.columns)}"
    if statement.parent is not None:
        text += f" TO {of(statement.parent, statement.parent_columns)}"
    if statement.drop:
        return f"DROP CONSTRAINT {text}"
    within = "" if statement.within is None else f" WITHIN {statement.within}"
    return f"DECLARE {text}{within} ON VIOLATION {statement.violation.upper()}"


def _create_sensors(statement: CreateSensors) -> str:
    columns = []
    for name, kind in statement.columns:
        if name == statement.stream:
            fields = ", ".join(f"{identifier(field)} {each}" for field, each in statement.fields)
            kind = f"STREAM({fields}) USING {text_literal(statement.using)}"
        columns.append(f"{identifier(name)} {kind}")
    text = f"{_made('SENSORS', statement)} ({', '.join(columns)}){_source(statement)}{_lateness(statement)}"
    text += "" if statement.idle is None else f" IDLE {duration_text(statement.idle)}"
    return text if statement.buffer is None else f"{text} BUFFER {statement.buffer}"


def _create_summary(statement: CreateSummary) -> str:
    on = ", ".join(statement.parts) or identifier(statement.column)
    text = (
        f"{_made('SUMMARY', statement)} ON {identifier(statement.stream)} ({on}) "
        f"WITH GRANULARITY {duration_text(statement.granularity)} AND COLLAPSE ({statement.rate}, {statement.depth})"
    )
    if statement.error is not None:
        text += f" WITH ERROR {statement.error!r}"
    if statement.memory is not None:
        text += f" WITH MEMORY '{statement.memory} B'"
    options = [f"{name} = {_option(value)}" for name, value in statement.options]
    if statement.kind != "countsketch":
        given = ", ".join(f"{name} = {_option(value)}" for name, value in statement.parameters)
        options.insert(0, f"{statement.kind} ({given})" if given else statement.kind)
    return f"{text} USING {', '.join(options)}" if options else text


def _made(kind: str, statement: _Created) -> str:
    return f"CREATE {'OR REPLACE ' if statement.replace else ''}{kind} {identifier(statement.name)}"


def _source(statement: CreateStream | CreateRelation | CreateSensors) -> str:
    if statement.source is None:
        return ""
    return f" FROM {identifier(statement.source) if statement.registered else text_literal(statement.source)}"


def _lateness(statement: CreateStream | CreateSensors) -> str:
    return "" if statement.lateness is None else f" LATENESS {duration_text(statement.lateness)}"


def _option(value: str | float | int | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return text_literal(value) if isinstance(value, str) else repr(value)
