"""Running statements: those that change the catalog act at once, a SELECT gives a result that has not run."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from nile.answers.result import Result, Run
from nile.base.durations import format_duration
from nile.base.raw import check_columns
from nile.execution.approximate.join import ApproximateHome
from nile.execution.approximate.run import approximate, is_approximate
from nile.execution.choice import choose
from nile.execution.exact.run import ExactRun, output_schema
from nile.execution.options import Options
from nile.execution.progress.input import Kept
from nile.execution.progress.plan import progressive
from nile.execution.reading import Readable
from nile.execution.statement.expected import Counts
from nile.execution.statement.explain import explain_approximate, explain_exact
from nile.sql.catalog import Entry
from nile.sql.plan import Query
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
from nile.streams.source import open_source
from nile.summaries.errors import ConfigError, SqlError, UnknownStream
from nile.summaries.hashing import key_family
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.execution.registry import Registered
    from nile.operators.inputs.shared import SharedSummary
    from nile.pyramid.grid.manager import SummaryManager

__all__ = ["Engine", "run_query", "run_statement"]


class Engine(Readable, ApproximateHome, Counts, Kept, Protocol):
    """What statements ask of a database."""

    @property
    def entries(self) -> Mapping[str, Entry]:
        """All streams and stored relations."""

    @property
    def summaries(self) -> Mapping[str, CreateSummary]:
        """All summaries."""

    def snapshot(self) -> Engine:
        """The names as they are now."""

    def scanned(self, query: Query, options: Options) -> Result:
        """A query as a scan of the lake by Spark.  Raises NotYet, ConfigError, BudgetError."""

    def register(self, name: str, source: Any, *, time: Any, where: Any, lateness: Any) -> Any:
        """Make a stream or a stored relation known."""

    def stream(self, name: str) -> Registered:
        """One that is a stream."""

    def unregister(self, name: str) -> None:
        """Forget one."""

    def adopt(self, name: str) -> tuple[Any, str | None]:
        """The source of a registered name and the condition that selects its rows, as text."""

    def grid(self, name: str) -> SharedSummary:
        """What a summary of that name is."""

    def keep_summary(self, summary: CreateSummary) -> None:
        """Make a summary known."""

    def forget_summary(self, name: str) -> None:
        """Forget one."""


def run_statement(engine: Engine, statement: Statement, options: Options) -> Result:
    """Run one statement.  Raises what it finds wrong."""
    match statement:
        case Select():
            return run_query(engine, statement.query, options)
        case Explain():
            return _explained(run_query(engine, statement.query, options), statement.analyze)
        case CreateStream():
            return _create_stream(engine, statement)
        case CreateRelation():
            return _create_relation(engine, statement)
        case CreateSummary():
            return _create_summary(engine, statement)
        case Drop():
            return _drop(engine, statement)
        case Show():
            return _rows(_shown(engine, statement))
        case Describe():
            return _rows(_described(engine, statement))


def run_query(engine: Engine, query: Query, options: Options) -> Result:
    """A result for a bound query over the names as they are now; nothing is read yet.

    Raises ConfigError, NotYet, BudgetError.
    """
    engine = engine.snapshot()
    if options.engine == "spark":
        return engine.scanned(query, options)
    if is_approximate(query, options):
        options.check_approximate()
        prepared = approximate(engine, query, options)
        return Result(
            prepared.start,
            prepared.schema,
            query=query,
            emit="append",
            explained=lambda run: explain_approximate(query, prepared, run),
            progressing=lambda: progressive(engine, query, options),
            answering=prepared.operator.run,
        )
    options.check_exact()
    choice = choose(query, options)
    return Result(
        lambda: ExactRun(engine, query, choice),
        output_schema(query, choice.emit),
        query=query,
        emit=choice.emit,
        explained=lambda run: explain_exact(engine, query, choice, run),
        progressing=lambda: progressive(engine, query, options),
    )


class _Fixed(Run):
    """The run of a statement whose rows are known."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.schema = table.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self._table.to_batches()


def _rows(table: pa.Table, message: str | None = None) -> Result:
    return Result(lambda: _Fixed(table), table.schema, message=message)


def _said(message: str) -> Result:
    return _rows(pa.table({"done": [message]}), message)


def _explained(result: Result, analyze: bool) -> Result:
    text = result.explain(analyze)
    return _rows(pa.table({"plan": [text]}), text)


def _free(engine: Engine, name: str, replace: bool) -> None:
    if name in engine.entries and not replace:
        raise SqlError(f"CREATE: the name '{name}' is taken already; say CREATE OR REPLACE, or choose another")


def _create_stream(engine: Engine, made: CreateStream) -> Result:
    _free(engine, made.name, made.replace)
    source, where = made.source, made.where
    if made.registered:
        source, own = engine.adopt(_known(engine, made.source))
        where = _both(own, where)
    time = made.time
    if time is None:
        time = _only_time(engine, made, source)
    lateness = None if made.lateness is None else f"{made.lateness} ns"
    engine.register(made.name, source, time=time, where=where, lateness=lateness)
    return _said(f"stream '{made.name}' created, in the order of {time}")


def _create_relation(engine: Engine, made: CreateRelation) -> Result:
    _free(engine, made.name, made.replace)
    source, where = made.source, made.where
    if made.source in engine.entries:
        source, own = engine.adopt(made.source)
        where = _both(own, where)
    engine.register(made.name, source, time=None, where=where, lateness=None)
    return _said(f"stored relation '{made.name}' created")


def _only_time(engine: Engine, made: CreateStream, source: Any) -> str:
    """The only column of a time type."""
    schema = engine.entries[_known(engine, made.source)].schema if made.registered else _schema_of(source, made.name)
    times = [field.name for field in schema if pa.types.is_timestamp(field.type) or pa.types.is_date(field.type)]
    if len(times) == 1:
        return str(times[0])
    raise ConfigError(
        f"CREATE STREAM {made.name}: needed one column of a time type, or TIMESTAMP BY; got "
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
    name = _known(engine, made.stream)
    entry = engine.entries[name]
    if not entry.is_stream:
        raise SqlError(f"CREATE SUMMARY {made.name}: needed a stream; '{name}' is a stored relation; name a stream")
    check_columns(entry.schema, (made.column,), where=f"CREATE SUMMARY {made.name}: stream '{name}'")
    place = f"CREATE SUMMARY {made.name}: stream '{name}', column '{made.column}'"
    key_family(entry.schema.field(made.column).type, where=place)
    spec = made.spec
    engine.keep_summary(replace(made, stream=name))
    return _said(
        f"summary '{made.name}' on {name} ({made.column}): {spec.depth} granularities from "
        f"{format_duration(spec.granularity)}"
    )


def _drop(engine: Engine, dropped: Drop) -> Result:
    name = dropped.name
    if dropped.kind == "summary":
        if name in engine.summaries:
            engine.forget_summary(name)
            return _said(f"summary '{name}' dropped")
        return _nothing(dropped, list(engine.summaries))
    entry = engine.entries.get(name)
    if entry is None:
        return _nothing(dropped, list(engine.entries))
    kind = "stream" if entry.is_stream else "relation"
    if kind != dropped.kind:
        raise SqlError(f"DROP {dropped.kind.upper()}: '{name}' is a {kind}; write DROP {kind.upper()} {name}")
    engine.unregister(name)
    return _said(f"{kind} '{name}' dropped")


def _nothing(dropped: Drop, known: list[str]) -> Result:
    if dropped.if_exists:
        return _said(f"there is no {dropped.kind} '{dropped.name}'")
    raise UnknownStream(
        f"DROP {dropped.kind.upper()}: there is no {dropped.kind} '{dropped.name}'{_near(dropped.name, known)}"
    )


def _near(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; there are {', '.join(known) or 'none'}"


def _known(engine: Engine, name: str) -> str:
    """A registered name, as it is written or the only one that differs in capitals."""
    if name in engine.entries:
        return name
    alike = [each for each in engine.entries if each.lower() == name.lower()]
    if len(alike) == 1:
        return alike[0]
    raise UnknownStream(f"'{name}' is not registered{_near(name, list(engine.entries))}")


def _shown(engine: Engine, asked: Show) -> pa.Table:
    if asked.what == "summaries":
        held = list(engine.summaries.values())
        return pa.table(
            {
                "name": pa.array([one.name for one in held], pa.string()),
                "stream": pa.array([one.stream for one in held], pa.string()),
                "column": pa.array([one.column for one in held], pa.string()),
                "granularity": pa.array([format_duration(one.granularity) for one in held], pa.string()),
                "rate": pa.array([one.rate for one in held], pa.int64()),
                "depth": pa.array([one.depth for one in held], pa.int64()),
                **_kept([engine.grid(one.name) for one in held]),
            }
        )
    wanted = {"streams": (True,), "relations": (False,), "tables": (True, False)}[asked.what]
    entries = [entry for entry in engine.entries.values() if entry.is_stream in wanted]
    return pa.table(
        {
            "name": pa.array([entry.name for entry in entries], pa.string()),
            "kind": pa.array(["stream" if entry.is_stream else "relation" for entry in entries], pa.string()),
            "time": pa.array([entry.time for entry in entries], pa.string()),
            "columns": pa.array([", ".join(entry.schema.names) for entry in entries], pa.string()),
        }
    )


def _kept(grids: Sequence[SharedSummary]) -> dict[str, Any]:
    """What SHOW SUMMARIES tells of the grids; nulls of one that has not been built yet."""
    managers = [grid.manager for grid in grids]
    return {
        "tuples": pa.array([m and m.store.tuples for m in managers], pa.int64()),
        "zones": pa.array([m and _zones(m) for m in managers], pa.string()),
        "bytes": pa.array([m and m.memory.total for m in managers], pa.int64()),
        "error": pa.array([m and m.error for m in managers], pa.float64()),
        "upkeep": pa.array([grid.upkeep for grid in grids], pa.int64()),
        "served": pa.array([grid.served for grid in grids], pa.int64()),
    }


def _zones(manager: SummaryManager) -> str:
    """How many zones each granularity has, the finest first."""
    counts = Counter(zone.granularity for zone in manager.zones())
    return ", ".join(f"G{g} {counts[g]}" for g in range(1, manager.spec.depth + 1))


def _described(engine: Engine, asked: Describe) -> pa.Table:
    if asked.name in engine.summaries and asked.name not in engine.entries:
        made = engine.summaries[asked.name]
        options = {
            "stream": made.stream, "column": made.column, "granularity": format_duration(made.granularity),
            "rate": made.rate, "depth": made.depth, **dict(made.options),
        }  # fmt: skip
        return pa.table({"option": list(options), "value": [str(value) for value in options.values()]})
    entry = engine.entries[_known(engine, asked.name)]
    return pa.table(
        {
            "column": pa.array(entry.schema.names, pa.string()),
            "type": pa.array([str(field.type) for field in entry.schema], pa.string()),
            "time": pa.array([field.name == entry.time for field in entry.schema], pa.bool_()),
        }
    )
