"""Reading where rows are sent: the name of a sink, and an address that it takes."""

from __future__ import annotations

from nile.expressions.places import Fault
from nile.sensors.sinks.making import SINKS, sink_of
from nile.sql.cursor import Cursor
from nile.sql.plan import Query
from nile.summaries.errors import SourceError
from nile.summaries.heavy import pa

__all__ = ["read_address", "read_using"]


def read_using(cursor: Cursor) -> str | None:
    """The name of a sink, where one stands here."""
    using = cursor.word().lower()
    if using not in SINKS:
        return None
    cursor.at += 1
    return using


def read_address(cursor: Cursor, using: str, query: Query) -> str:
    """An address in quotes that the sink takes for rows of a query.  Raises Fault."""
    start = cursor.start
    address = cursor.text("an address in quotes")
    try:
        sink_of(using, address, pa.schema([(field.name, field.type) for field in query.plan.fields]))
    except SourceError as error:
        raise Fault(str(error), start) from None
    return address
