"""Streams that are filled from outside, by connectors and tables of sensors, and sinks that send outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nile.answers.result import Result
from nile.base.interrupts import INTERRUPTS
from nile.base.plain import plain_schema
from nile.execution.definitions import Reads, Sends, StreamDefinition
from nile.execution.live.inputs.inflow import Inflow
from nile.execution.options import Options
from nile.execution.statement.statements import said
from nile.sensors.connectors.messages import shown_address
from nile.sensors.table import TIME
from nile.sql.statements import CreateSink, CreateStream
from nile.summaries.errors import ConfigError, SourceError, UnknownStream
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.execution.live.live import Live
    from nile.execution.live.subscription import Subscription

__all__ = ["create_flow", "create_sink", "create_tabled", "made_anew", "replaced"]


def create_flow(live: Live, made: CreateStream, schema: pa.Schema) -> Result:
    """A live stream that a connector fills, from now on and whenever its store is opened.

    Raises ConfigError, SourceError for what the connector cannot read, such as an address that is none.
    """
    assert made.using is not None
    assert made.source is not None
    if made.time is None and TIME in schema.names:
        raise ConfigError(
            f"CREATE STREAM {made.name}: needed TIMESTAMP BY {TIME}, or no column of that name, which the time of "
            "arrival has; got neither; say one"
        )
    if made.time is None:
        schema = schema.append(pa.field(TIME, pa.timestamp("ns")))
    definition = StreamDefinition(
        plain_schema(schema), made.time or TIME, made.lateness or 0, made.where, made.keep, made.event_id, made.idle,
        reads=Reads(made.using, made.source),
    )  # fmt: skip
    gone = "; the stream that it was to replace is gone" if made.name in live.streams() else ""
    live.change(lambda: made_anew(live, made.name, definition), whole=True)
    if (stream := live.streams().get(made.name)) is not None and (inflow := live.inflows.of(stream)) is not None:
        inflow.read_up()
        if isinstance(inflow, Inflow) and (wrong := inflow.refused) is not None:
            live.change(lambda: live.names.unregister(made.name), whole=True)
            raise SourceError(f"CREATE STREAM {made.name}: {wrong.removeprefix('SourceError: ')}{gone}")
    return said(f"stream '{made.name}' created; it reads {shown_address(made.source)} from now on")


def create_tabled(live: Live, made: CreateStream) -> Result:
    """A live stream that a table of sensors fills, from now on and whenever that is declared again."""
    table = str(made.source)
    source = live.names.sensors(table)
    if source is None:
        raise UnknownStream(
            f"CREATE STREAM {made.name}: needed a table of sensors; got '{table}'; CREATE SENSORS first"
        )
    spec = source.table.spec
    definition = StreamDefinition(
        plain_schema(source.schema), TIME, spec.lateness, keep=made.keep, idle=spec.idle, reads=Reads("sensors", table)
    )
    live.change(lambda: made_anew(live, made.name, definition), whole=True)
    return said(f"stream '{made.name}' created; it reads the sensors of '{table}' from now on")


def create_sink(live: Live, made: CreateSink, options: Options) -> Result:
    """A standing query with a name, whose rows a thread sends on."""
    with live.lock:
        there = live.standing.named().get(made.name)
    if there is not None and not (made.replace and there[0].sends is not None):
        raise ConfigError(
            f"CREATE SINK {made.name}: needed a name that no standing query has; got one that is taken; DROP QUERY "
            f"{made.name} first, or take another"
        )

    def create() -> list[Subscription]:
        before = [] if there is None else [there[1]]
        for standing in before:
            live.standing.aside(standing)
        live.subscribe(made.query, options, None, name=made.name, into=Sends(made.using, made.address))
        return before

    replaced(live, create)
    return said(f"sink '{made.name}' created; it sends to {shown_address(made.address)} from now on")


def made_anew(live: Live, name: str, definition: StreamDefinition) -> None:
    """A live stream in the place of one of that name."""
    if name in live.streams():
        live.names.unregister(name)
    live.make(name, definition)


def replaced(live: Live, change: Callable[[], list[Subscription]]) -> None:
    """Make a change in one piece, and then end the queries that it gives."""
    with live.lock, INTERRUPTS:
        for standing in live.change(change, whole=True):
            standing.close()
