"""Running statements: those that change the catalog run at once, a SELECT returns a lazy result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nile.answers.progress import Run
from nile.answers.result import Result
from nile.base.durations import format_duration
from nile.base.raw import check_columns
from nile.base.show import row_count
from nile.base.writing import form_of, write, write_parts
from nile.execution.approximate.attributes import attributed
from nile.execution.approximate.run import approximate, is_approximate
from nile.execution.choice import choose
from nile.execution.exact.run import ExactRun, output_schema
from nile.execution.options import Options
from nile.execution.progress.plan import progressive
from nile.execution.statement.engine import Engine, known_name, near_names
from nile.execution.statement.explain import explain_approximate, explain_exact
from nile.execution.statement.showing import described, shown
from nile.execution.statement.summarizing import summarized
from nile.expressions.attributes import computed_types
from nile.sensors.connectors import CONNECTORS
from nile.sensors.connectors.messages import shown_address
from nile.sensors.queue import BUFFER
from nile.sensors.sensor import sensor_class
from nile.sensors.sinks.making import send_all
from nile.sensors.source import SensorsSource
from nile.sensors.table import TIME, SensorsSpec
from nile.sensors.types import column_type
from nile.sql.plan import Join, Limit, Plan, Query, Stream, leaves_of, walk
from nile.sql.rewriting.implied import Times, with_implied
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
from nile.streams.files.pruning import extent_of
from nile.streams.source import open_source
from nile.summaries.errors import ConfigError, SqlError, UnknownStream
from nile.summaries.heavy import pa
from nile.summaries.key_types import key_family

__all__ = ["check_free", "rows_of", "run_query", "run_statement", "said"]


def run_statement(
    engine: Engine, statement: Statement, options: Options, sharing: Callable[[], Mapping[str, Sequence[str]]] = dict
) -> Result:
    """Run one statement.  sharing: as of `Result`.  Raises what it finds wrong."""
    match statement:
        case Select():
            answer = run_query(engine, statement.query, options)
            answer.sharing = sharing
            answer.stand()
            return answer
        case Copy():
            answer = run_query(engine, statement.query, options)
            batches, schema, path, by = answer.batches(), answer.schema, statement.path, statement.by
            if statement.using is not None:
                rows = send_all(batches, schema, statement.using, path)
                return said(f"{row_count(rows)} sent to {shown_address(path)}")
            if by:
                rows = write_parts(batches, schema, path, statement.form or "parquet", by)
            else:
                rows = write(batches, schema, path, statement.form or form_of(path))
            left_out = "".join(f"; {told}" for told in answer.left_out())
            return said(f"{row_count(rows)} written to '{statement.path}'{left_out}")
        case Explain():
            answer = run_query(engine, statement.query, options)
            answer.sharing = sharing
            text = answer.explain(statement.analyze, statement.form)
            return rows_of(pa.table({"plan": [text]}), text)
        case CreateStream():
            return _create_stream(engine, statement)
        case CreateRelation():
            return _create_relation(engine, statement)
        case CreateSensors():
            return _create_sensors(engine, statement)
        case CreateSummary():
            return _create_summary(engine, statement)
        case CreateView():
            return _create_view(engine, statement)
        case Drop():
            return _drop(engine, statement)
        case Declare():
            raise ConfigError("DECLARE: needed a database that nile.connect() opened; got names alone")
        case CreateMaterialized() | CreateSink() | Delete() | Insert() | Pause() | Punctuate() | Update():
            raise ConfigError(f"{statement.name}: needed a database that nile.connect() opened; got names alone")
        case Show():
            return rows_of(shown(engine, statement))
        case Describe():
            return rows_of(described(engine, statement))
        case Summarize():
            return rows_of(summarized(run_query(engine, statement.query, replace(options, emit="snapshot")).to_arrow()))


def run_query(engine: Engine, query: Query, options: Options) -> Result:
    """A result for a bound query over the names as they are now; nothing is read yet.

    Raises ConfigError, NotYet, BudgetError.
    """
    engine = engine.snapshot(leaves_of(query.plan))
    if options.engine == "spark":
        return engine.scanned(query, options)
    if is_approximate(query, options):
        options.check_approximate()
        prepared = approximate(engine, attributed(query, engine), options)
        answer = Result(
            prepared.start,
            prepared.schema,
            query=query,
            emit="append",
            explained=lambda run: explain_approximate(query, prepared, run),
            progressing=lambda: progressive(engine, query, options),
            answering=prepared.answer,
            limiting=lambda count: run_query(engine, replace(query, plan=Limit(query.plan, count)), options),
        )
        answer.room = engine.room
        return answer
    options.check_exact()
    query = replace(query, plan=with_implied(query.plan, _times(engine, query.plan)))
    choice = choose(query, options)
    schema = output_schema(query, choice.emit)

    def start() -> Run:
        return ExactRun(engine, query, choice)

    answer = Result(
        start,
        schema,
        query=query,
        emit=choice.emit,
        explained=lambda run: explain_exact(engine, query, choice, run),
        progressing=lambda: progressive(engine, query, options),
        limiting=lambda count: _first(start, schema, count, engine.room),
    )
    answer.room = engine.room
    return answer


def _times(engine: Engine, plan: Plan) -> dict[str, Times]:
    """What is known of the times of a plan's streams, where it joins some."""
    found: dict[str, Times] = {}
    for leaf in leaves_of(plan) if any(isinstance(each, Join) for each in walk(plan)) else ():
        if isinstance(leaf, Stream) and leaf.name not in found:
            source = engine.stream(leaf.name).source
            kind = source.schema.field(leaf.time).type
            ends = extent_of(source, leaf.time) if pa.types.is_timestamp(kind) else None
            found[leaf.name] = Times(kind, *(ends or ()))
    return found


class _Fixed(Run):
    """The run of a statement whose rows are known."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.schema = table.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self._table.to_batches()


class _Found(Run):
    """The run of rows that come once."""

    def __init__(self, rows: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        self._rows = rows
        self.schema = schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self._rows


def _first(start: Callable[[], Run], schema: pa.Schema, count: int, room: int | None) -> Result:
    """The first rows that an exact run finds, which then reads no further."""

    def rows() -> Iterator[pa.RecordBatch]:
        left = count
        for batch in start().batches() if count else ():
            yield batch.slice(0, left)
            left -= min(left, batch.num_rows)
            if not left:
                return

    def fewer(than: int) -> Result:
        return _first(start, schema, min(count, than), room)

    answer = Result(lambda: _Found(rows(), schema), schema, limiting=fewer)
    answer.room = room
    return answer


def rows_of(table: pa.Table, message: str | None = None) -> Result:
    """The result of a statement whose rows are known."""
    limited = None if message is not None else lambda count: rows_of(table.slice(0, count))
    return Result(lambda: _Fixed(table), table.schema, message=message, limiting=limited)


def said(message: str) -> Result:
    """The result of a statement that has been carried out."""
    return rows_of(pa.table({"done": [message]}), message)


def check_free(engine: Engine, name: str, replace: bool) -> None:
    """That a name may be given to something new.  Raises SqlError."""
    if name in engine.entries and not replace:
        raise SqlError(f"CREATE: the name '{name}' is taken already; say CREATE OR REPLACE, or choose another")


def _create_stream(engine: Engine, made: CreateStream) -> Result:
    check_free(engine, made.name, made.replace)
    source, where, time = made.source, made.where, made.time
    if source is None:
        raise ConfigError(f"{made.name}: needed a database that nile.connect() opened; got names alone")
    schema = engine.entries[known_name(engine, source)].schema if made.registered else None
    if made.registered:
        source, own = engine.adopt(source)
        where = _both(own, where)
    if time is None:
        time = only_time(made.name, _schema_of(source, made.name) if schema is None else schema)
    lateness = None if made.lateness is None else f"{made.lateness} ns"
    engine.register(made.name, source, time=time, where=where, lateness=lateness)
    return said(f"stream '{made.name}' created, in the order of {time}")


def _create_relation(engine: Engine, made: CreateRelation) -> Result:
    check_free(engine, made.name, made.replace)
    source, where = made.source, made.where
    if source is None:
        raise ConfigError(f"{made.name}: needed a database that nile.connect() opened; got names alone")
    if source in engine.entries:
        source, own = engine.adopt(source)
        where = _both(own, where)
    engine.register(made.name, source, time=None, where=where, lateness=None)
    return said(f"stored relation '{made.name}' created")


def _create_sensors(engine: Engine, made: CreateSensors) -> Result:
    check_free(engine, made.name, made.replace)
    where = f"CREATE SENSORS {made.name}"
    static, fields = (
        pa.schema([(name, column_type(kind, where=where)) for name, kind in columns])
        for columns in (made.columns, made.fields)
    )
    kind = sensor_class(CONNECTORS.get(made.using, made.using), where=where)
    spec = SensorsSpec(
        made.name, static, made.stream, fields, kind, made.lateness or 0, made.buffer or BUFFER, made.idle
    )
    source = SensorsSource.of(spec)
    if made.source is not None:
        rows, condition = (
            engine.relation(known_name(engine, made.source))
            if made.registered
            else (open_source(made.source, name=where), None)
        )
        names = [name for name in rows.schema.names if name in static.names]
        for raw in rows.batches(rows.schema.names, 65_536):
            batch = raw.batch if condition is None else raw.batch.filter(condition.mask(raw.batch))
            source.table.add(batch.select(names))
    lateness = f"{made.lateness} ns" if made.lateness else None
    engine.register(made.name, source, time=TIME, where=None, lateness=lateness)
    return said(f"sensors '{made.name}' created, {len(source.table):,} rows")


def only_time(name: str, schema: pa.Schema) -> str:
    """The only column of a time type, in which order a stream is.  Raises ConfigError."""
    times = [field.name for field in schema if pa.types.is_timestamp(field.type) or pa.types.is_date(field.type)]
    if len(times) == 1:
        return str(times[0])
    raise ConfigError(
        f"CREATE STREAM {name}: needed one column of a time type, or TIMESTAMP BY; got "
        f"{', '.join(times) or 'none'} among {', '.join(schema.names)}; write TIMESTAMP BY with the column"
    )


def _schema_of(source: Any, name: str) -> pa.Schema:
    return open_source(source, name=f"stream '{name}'").schema


def _both(one: str | None, other: str | None) -> str | None:
    given = [text for text in (one, other) if text]
    return " AND ".join(f"({text})" for text in given) if len(given) > 1 else (given[0] if given else None)


def _create_summary(engine: Engine, made: CreateSummary) -> Result:
    if made.name in engine.summaries and not made.replace:
        raise SqlError(
            f"CREATE SUMMARY: there is a summary '{made.name}' already; say CREATE OR REPLACE, or choose another name"
        )
    name = known_name(engine, made.stream)
    entry = engine.entries[name]
    if not entry.is_stream:
        raise SqlError(f"CREATE SUMMARY {made.name}: needed a stream; '{name}' is a stored relation; name a stream")
    place = f"CREATE SUMMARY {made.name}: stream '{name}'"
    if made.parts:
        kinds = computed_types(made.parts, entry.schema, where=place)
    else:
        check_columns(entry.schema, (made.column,), where=place)
        kinds = (entry.schema.field(made.column).type,)
    for kind in kinds:
        key_family(kind, where=f"{place}, column '{made.column}'")
    spec = made.spec
    engine.keep_summary(replace(made, stream=name))
    return said(
        f"summary '{made.name}' on {name} ({made.column}): {spec.depth} granularities from "
        f"{format_duration(spec.granularity)}"
    )


def _create_view(engine: Engine, made: CreateView) -> Result:
    if made.name in engine.views:
        if not made.replace:
            raise SqlError(
                f"CREATE VIEW: there is a view '{made.name}' already; say CREATE OR REPLACE, or choose another name"
            )
    elif made.name in engine.entries:
        raise SqlError(f"CREATE VIEW: '{made.name}' is a stream or relation; choose another name")
    engine.keep_view(made)
    return said(f"view '{made.name}' created")


def _drop(engine: Engine, dropped: Drop) -> Result:
    name = dropped.name
    if dropped.kind == "view":
        if name in engine.views:
            engine.forget_view(name)
            return said(f"view '{name}' dropped")
        return _nothing(dropped, list(engine.views))
    if dropped.kind == "summary":
        if name in engine.summaries:
            engine.forget_summary(name)
            return said(f"summary '{name}' dropped")
        return _nothing(dropped, list(engine.summaries))
    entry = engine.entries.get(name)
    if entry is None:
        return _nothing(dropped, list(engine.entries))
    kind = "sensors" if dropped.kind == "sensors" and entry.static else "stream" if entry.is_stream else "relation"
    if kind != dropped.kind:
        raise SqlError(f"DROP {dropped.kind.upper()}: '{name}' is a {kind}; write DROP {kind.upper()} {name}")
    engine.unregister(name)
    return said(f"{kind} '{name}' dropped")


def _nothing(dropped: Drop, known: list[str]) -> Result:
    if dropped.if_exists:
        return said(f"there is no {dropped.kind} '{dropped.name}'")
    raise UnknownStream(
        f"DROP {dropped.kind.upper()}: there is no {dropped.kind} '{dropped.name}'{near_names(dropped.name, known)}"
    )
