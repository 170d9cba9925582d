"""Statements that change the content of live streams, or their standing queries."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeGuard

from nile.answers.result import Result
from nile.base.cells import converted
from nile.base.interrupts import INTERRUPTS
from nile.base.show import row_count
from nile.execution.definitions import Filling, stream_definition
from nile.execution.live.constraints import said_of
from nile.execution.live.into import named_rows
from nile.execution.live.outputs.outflow import into_of
from nile.execution.live.relations import relation_definition, revise, versions_of
from nile.execution.live.retracting import satisfying, take_back
from nile.execution.options import Options
from nile.execution.statement.engine import near_names
from nile.execution.statement.flowing import create_flow, create_sink, create_tabled, made_anew, replaced
from nile.execution.statement.statements import check_free, only_time, rows_of, run_query, said
from nile.execution.values import column_of
from nile.sensors.types import column_type
from nile.sql.expression_text import identifier
from nile.sql.plan import leaves_of
from nile.sql.reading_statements import read_statement
from nile.sql.statements import (
    CreateMaterialized,
    CreateRelation,
    CreateSink,
    CreateStream,
    Declare,
    Delete,
    Drop,
    Insert,
    Pause,
    Punctuate,
    Select,
    Show,
    Statement,
    Update,
)
from nile.summaries.errors import ConfigError, SqlError, UnknownStream
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.execution.live.live import Live
    from nile.execution.live.subscription import Subscription

__all__ = ["Changing", "is_changing", "run_changing"]

Changing = (
    CreateMaterialized
    | CreateRelation
    | CreateSink
    | CreateStream
    | Declare
    | Delete
    | Drop
    | Insert
    | Pause
    | Punctuate
    | Show
    | Update
)


def is_changing(statement: Statement) -> TypeGuard[Changing]:
    """Whether a statement needs the live streams, not names alone."""
    match statement:
        case Declare() | Delete() | Insert() | Pause() | Punctuate() | Update():
            return True
        case CreateStream() if statement.using is not None:
            return True
        case CreateRelation() | CreateStream():
            return bool(statement.columns)
        case CreateMaterialized() | CreateSink():
            return True
        case Drop():
            return statement.kind in ("query", "sink", "materialized view")
        case Show():
            return statement.what == "queries"
        case _:
            return False


def run_changing(live: Live, statement: Changing, options: Options) -> Result:
    """Run one statement.  Raises what it finds wrong."""
    match statement:
        case CreateRelation():
            return _create(live, statement)
        case CreateStream():
            return _create_stream(live, statement)
        case CreateMaterialized():
            return _materialize(live, statement)
        case CreateSink():
            return create_sink(live, statement, options)
        case Declare():
            return _declare(live, statement)
        case Punctuate():
            return _punctuate(live, statement)
        case Update() | Delete() if live.names.entries[statement.name].changes:
            return _revise(live, statement)
        case Update():
            raise ConfigError(f"UPDATE {statement.name}: needed a relation that changes; got another; make one")
        case Delete():
            gone = take_back(live, statement.name, partial(satisfying, where=statement.where))
            return said(f"{row_count(gone)} of '{statement.name}' deleted")
        case Insert():
            return _insert(live, statement, options)
        case Drop():
            return _drop(live, statement)
        case Pause():
            return _pause(live, statement)
        case Show():
            return _queries(live)


def _create(live: Live, made: CreateRelation) -> Result:
    check_free(live.names, made.name, made.replace)
    definition = relation_definition(made.name, _typed(made))

    live.change(lambda: made_anew(live, made.name, definition), whole=True)
    return said(f"relation '{made.name}' created; INSERT, UPDATE and DELETE change it")


def _create_stream(live: Live, made: CreateStream) -> Result:
    """A live stream, as `Database.stream` makes one."""
    check_free(live.names, made.name, made.replace)
    if made.using == "sensors":
        return create_tabled(live, made)
    schema = _typed(made)
    if made.using is not None:
        return create_flow(live, made, schema)
    time = only_time(made.name, schema) if made.time is None else made.time
    lateness, keep, idle = (None if ns is None else f"{ns} ns" for ns in (made.lateness, made.keep, made.idle))
    definition = stream_definition(
        made.name, schema, time, lateness=lateness, where=made.where, keep=keep, event_id=made.event_id, idle=idle,
        stamp=made.stamped,
    )  # fmt: skip
    live.change(lambda: made_anew(live, made.name, definition), whole=True)
    return said(f"live stream '{made.name}' created, in the order of {time}; INSERT and pushes fill it")


def _typed(made: CreateRelation | CreateStream) -> pa.Schema:
    where = f"CREATE {'STREAM' if isinstance(made, CreateStream) else 'RELATION'} {made.name}"
    return pa.schema([(name, column_type(kind, where=where)) for name, kind in made.columns])


def _declare(live: Live, made: Declare) -> Result:
    text = said_of(made)
    if not made.drop:
        live.change(lambda: live.constraints.declare(made))
        how = "measured" if made.within is None and made.kind != "many one" else "queries asked from now on go by it"
        return said(f"constraint {text} declared: {how}")
    with live.lock:
        named = {id(one): f"'{name}'" for name, (_, one) in live.standing.named().items()}
        users = [
            named.get(id(one), "one without a name")
            for one in live.standing.all()
            if not one.closed and text in one.constraints
        ]
        live.change(lambda: live.constraints.drop(made, users))
    return said(f"constraint {text} dropped")


def _punctuate(live: Live, made: Punctuate) -> Result:
    arrays = _written(made, live.get(made.name).schema, made.columns)
    rows = pa.RecordBatch.from_arrays(arrays, names=list(made.columns))
    live.punctuate(made.name, rows)
    return said(f"{rows.num_rows:,} values of which no more tuples come to '{made.name}'")


def _materialize(live: Live, made: CreateMaterialized) -> Result:
    """A relation, and a standing query of the same name that fills it, with what its streams have kept first."""
    check_free(live.names, made.name, made.replace)
    if made.name in live.names.views:
        raise SqlError(f"CREATE MATERIALIZED VIEW: '{made.name}' is a view; DROP VIEW {made.name} first")
    types = [field.type for field in made.query.plan.fields]
    definition = relation_definition(made.name, pa.schema(list(zip(made.columns, types, strict=True))))

    def create() -> list[Subscription]:
        before = _set_aside(live, made.name) if made.replace and made.name in live.streams() else []
        made_anew(live, made.name, definition)
        filling = Filling(made.name, made.columns, relation=True)
        live.subscribe(made.query, Options.of({"emit": "changes"}), None, name=made.name, into=filling)
        return before

    replaced(live, create)
    return said(f"view '{made.name}' created, which follows its query")


def _set_aside(live: Live, name: str) -> list[Subscription]:
    """The queries that fill a view which nobody reads, known no more.  Raises ConfigError for one that is read."""
    log = live.streams()[name]
    live.standing.check_free(log, fills=False)
    for standing in (filled := live.standing.filled(log)):
        live.standing.aside(standing)
    return filled


def _revise(live: Live, made: Update | Delete) -> Result:
    """UPDATE and DELETE: what goes, and what comes for it, are queries of the relation as it is."""
    name, where = identifier(made.name), "" if made.where is None else f" WHERE {made.where}"
    columns = live.names.entries[made.name].schema
    values = dict(made.values) if isinstance(made, Update) else {}

    def rows(items: Sequence[str]) -> pa.Table:
        read = read_statement(f"SELECT {', '.join(items)} FROM {name}{where}", live.names)
        assert isinstance(read, Select)
        return run_query(live.names, read.query, Options.of({})).to_arrow()

    def change() -> list[tuple[int, pa.Table]]:
        gone = (-1, rows([identifier(each) for each in columns.names]))
        if isinstance(made, Delete):
            return [gone]
        fresh = rows([f"{values.get(each, identifier(each))} AS {identifier(each)}" for each in columns.names])
        return [gone, (1, _converted(fresh.columns, columns, columns.names, f"UPDATE {made.name}"))]

    done = revise(live, made.name, change, made.at)
    if isinstance(made, Delete):
        return said(f"{row_count(done)} of '{made.name}' deleted")
    return said(f"{row_count(done // 2)} of '{made.name}' updated")


def _converted(values: Sequence[pa.ChunkedArray], schema: pa.Schema, columns: Sequence[str], where: str) -> pa.Table:
    """Rows of a relation; what is not among `columns` is null.  Raises ConfigError for a value that does not fit."""
    given = dict(zip(columns, values, strict=True))
    arrays = []
    for field in schema:
        value = given.get(field.name, pa.chunked_array([pa.nulls(len(values[0]), field.type)]))
        try:
            arrays.append(converted(value.combine_chunks(), field.type))
        except (pa.ArrowException, NotImplementedError) as error:
            raise ConfigError(
                f"{where}: needed {field.type} for column '{field.name}'; got {value.type} that does not convert "
                f"({str(error).splitlines()[0]}); cast it"
            ) from None
    return pa.table(arrays, schema=schema)


def _insert_relation(live: Live, made: Insert, options: Options) -> Result:
    schema = versions_of(live, made.name).schema
    columns = made.columns or schema.names

    def change() -> list[tuple[int, pa.Table]]:
        if made.query is None:
            values = [pa.chunked_array([each]) for each in _written(made, schema, columns)]
        else:
            values = run_query(live.names, made.query, options).to_arrow().columns
        return [(1, _converted(values, schema, columns, f"INSERT INTO {made.name}"))]

    return said(f"{row_count(revise(live, made.name, change, made.at))} inserted into '{made.name}'")


def _insert(live: Live, made: Insert, options: Options) -> Result:
    if live.names.entries[made.name].changes:
        return _insert_relation(live, made, options)
    stream = live.get(made.name)
    columns = made.columns or stream.schema.names
    if made.query is None:
        data = _written(made, stream.schema, columns)
        live.push(made.name, named_rows(stream, columns, data))
        return said(f"{row_count(len(made.rows))} inserted into '{made.name}'")
    if any(leaf.name in live.streams() for leaf in leaves_of(made.query.plan)):
        taken = live.unread()
        name = next(f"{made.name}_{at}" for at in range(1, len(taken) + 2) if f"{made.name}_{at}" not in taken)
        live.subscribe(made.query, options, None, name=name, into=Filling(made.name, made.columns))
        return said(f"standing query '{name}' fills stream '{made.name}' from now on; DROP QUERY {name} ends it")
    table = run_query(live.names, made.query, options).to_arrow()
    if table.num_rows:
        data = [column.combine_chunks() for column in table.columns]
        live.push(made.name, named_rows(stream, columns, data))
    return said(f"{row_count(table.num_rows)} inserted into '{made.name}'")


def _written(made: Insert | Punctuate, schema: pa.Schema, columns: Sequence[str]) -> list[pa.Array]:
    """The columns of VALUES.  Raises ConfigError for a value that is none of its column's type."""
    nothing = pa.RecordBatch.from_pydict({"": [None]})
    arrays: list[list[pa.Array]] = [[] for _ in columns]
    for number, row in enumerate(made.rows, 1):
        for values, name, node in zip(arrays, columns, row, strict=True):
            value, wanted = column_of(node, nothing), schema.field(name).type
            try:
                values.append(converted(value, wanted))
            except (pa.ArrowException, NotImplementedError):
                where = "PUNCTUATE" if isinstance(made, Punctuate) else "INSERT INTO"
                raise ConfigError(
                    f"{where} {made.name}, row {number}: needed {wanted} for column '{name}'; got "
                    f"{value[0].as_py()!r}; write one"
                ) from None
    return [pa.concat_arrays(values) for values in arrays]


def _drop(live: Live, dropped: Drop) -> Result:
    """A standing query, one whose rows are sent on, or a view with the one that fills it."""
    kind = "standing query" if dropped.kind == "query" else dropped.kind
    with live.lock:
        named = live.standing.named()
        known = {
            "query": list(named),
            "sink": [name for name, (one, _) in named.items() if one.sends is not None],
        }.get(dropped.kind, [name for name, (one, _) in named.items() if one.into is not None and one.into.relation])
        if dropped.name in known:

            def drop() -> list[Subscription]:
                if dropped.kind != "materialized view":
                    live.subscription(dropped.name).close()
                    return []
                before = _set_aside(live, dropped.name)
                live.names.unregister(dropped.name)
                return before

            replaced(live, drop)
            return said(f"{kind} '{dropped.name}' dropped")
    if dropped.if_exists:
        return said(f"there is no {kind} '{dropped.name}'")
    raise UnknownStream(
        f"DROP {dropped.kind.upper()}: there is no {kind} '{dropped.name}'{near_names(dropped.name, known)}"
    )


def _pause(live: Live, made: Pause) -> Result:
    """As of `Subscription.pause` and `resume`; nothing where it is so already."""
    with live.lock:
        standing = live.standing.get(made.name)
        with INTERRUPTS:
            if made.resume:
                standing.resume()
            else:
                standing.pause()
    return said(f"standing query '{made.name}' {'resumed' if made.resume else 'paused'}")


def _queries(live: Live) -> Result:
    """SHOW QUERIES: standing queries with a name, where their rows go, and how many there were."""
    with live.lock:
        live.names.check_open()
        named = live.standing.named()
    return rows_of(
        pa.table(
            {
                "name": pa.array(named, pa.string()),
                "into": pa.array([into_of(one) for one, _ in named.values()], pa.string()),
                "query": pa.array([one.text for one, _ in named.values()], pa.string()),
                "outputs": pa.array([standing.outputs for _, standing in named.values()], pa.int64()),
                "unread": pa.array([standing.unread for _, standing in named.values()], pa.int64()),
            }
        )
    )
