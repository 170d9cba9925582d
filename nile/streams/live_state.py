"""What a live stream remembers beside its history, as an envelope holds it.

The same pushes, however they were cut into batches, give the same content: what waits is in order, and what was set
aside is in the order of its row numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.base.plain import decoded_schema
from nile.base.times import TIME_LIMIT
from nile.streams.accounting import Accounting
from nile.streams.manager import TupleBatch
from nile.streams.order import CheckedOrder, RepairedOrder, Run
from nile.summaries import columns
from nile.summaries.errors import NileError
from nile.summaries.heavy import pa
from nile.summaries.schemas import schema_from_json, schema_to_json

if TYPE_CHECKING:
    from nile.summaries.envelope import Envelope

__all__ = ["Position", "content_of", "read_position"]

Array = np.ndarray[Any, Any]
_MOST = 1 << 62


@dataclass(frozen=True, slots=True)
class Position:
    """Where a live stream is: rows pushed, the time passed, tuples given on, what waits, what was set aside.

    kept: rows that the stream keeps itself, where it has no history; events: what may come again, of a stream that
    tells events apart.
    """

    pushed: int
    passed: int | None
    ordinal: int
    order: CheckedOrder | RepairedOrder
    accounting: Accounting
    late: pa.Table
    rejected: pa.Table
    kept: list[TupleBatch]
    events: pa.Table | None = None


def content_of(at: Position) -> tuple[dict[str, Any], dict[str, Array]]:
    """JSON values and arrays.  Cost: what waits and was set aside is copied."""
    largest, rest = at.order.position()
    params: dict[str, Any] = {
        "pushed": at.pushed,
        "passed": at.passed,
        "ordinal": at.ordinal,
        "largest": largest,
        "accounting": at.accounting.as_dict(),
        "tables": {},
    }
    arrays: dict[str, Array] = {}

    def put(name: str, table: pa.Table) -> None:
        batches = table.combine_chunks().to_batches()
        batch = batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)
        params["tables"][name] = schema_to_json(batch.schema)
        arrays.update({f"{name}.{key}": array for key, array in columns.encode(batch).items()})

    put("late", at.late)
    put("rejected", at.rejected)
    if isinstance(rest, int):
        params["count"] = rest
    elif rest is not None:
        arrays["waiting.ts"], arrays["waiting.row"] = rest.ts, rest.row
        put("waiting.key", pa.table({"key": rest.key}))
        put("waiting.carried", pa.Table.from_batches([rest.carried]))
    if at.kept:
        arrays["kept.ts"] = np.concatenate([batch.ts for batch in at.kept])
        put("kept.carried", pa.Table.from_batches([batch.carried for batch in at.kept]))
        params["kept"] = at.kept[0].ordinal
    if at.events is not None:
        put("events", at.events)
    return params, arrays


def read_position(
    envelope: Envelope,
    schema: pa.Schema,
    order: CheckedOrder | RepairedOrder,
    late: pa.Schema,
    rejected: pa.Schema,
    events: pa.Schema | None = None,
) -> Position:
    """The position that `content_of` gave, `order` put where that one's was.  Nothing is believed.

    schema: of the stream; late, rejected: of what is set aside; events: of what may come again, if any.
    Raises EnvelopeError.
    """
    reader = _Reader(envelope)
    pushed = envelope.integer("pushed", 0, _MOST)
    ordinal = envelope.integer("ordinal", 0, pushed)
    passed = None if envelope.params.get("passed") is None else envelope.integer("passed", -(1 << 63), (1 << 63) - 1)
    largest = envelope.integer("largest", -TIME_LIMIT, (1 << 63) - 1)
    plain = decoded_schema(schema)
    if isinstance(order, CheckedOrder):
        order.go_on_from(largest, envelope.integer("count", 0, _MOST))
    else:
        order.go_on_from(largest, _waiting(envelope, reader, plain))
    return Position(
        pushed,
        passed,
        ordinal,
        order,
        _accounting(envelope),
        reader.table("late", late),
        reader.table("rejected", rejected),
        _kept(envelope, reader, plain),
        None if events is None else reader.table("events", events),
    )


class _Reader:
    """Tables of an envelope."""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        tables = envelope.params.get("tables")
        if not isinstance(tables, dict):
            envelope.refuse("the schemas of its tables", str(type(tables)))
        self._schemas: Mapping[str, Any] = tables

    def table(self, name: str, schema: pa.Schema | None) -> pa.Table:
        """The table of a name, with the columns of the schema (None: any)."""
        where = f"{self._envelope.where}, {name}"
        found = schema_from_json(self._schemas.get(name), where)
        if schema is not None and (found.names != schema.names or found.types != schema.types):
            self._envelope.refuse(f"{name} with columns {', '.join(schema.names)}", ", ".join(found.names))
        arrays = {key[len(name) + 1 :]: a for key, a in self._envelope.arrays.items() if key.startswith(f"{name}.")}
        batch = columns.decode(arrays, found, where)
        try:
            batch.validate(full=True)
        except pa.ArrowException as error:
            self._envelope.refuse(f"{name} with cells of their types", str(error))
        return pa.Table.from_batches([batch])


def _waiting(envelope: Envelope, reader: _Reader, schema: pa.Schema) -> Run | None:
    if "waiting.ts" not in envelope.arrays:
        return None
    ts = _ascending(envelope, "waiting.ts")
    carried = reader.table("waiting.carried", schema)
    key = reader.table("waiting.key", None)
    n = ts.shape[0]
    if n == 0 or carried.num_rows != n or key.num_rows != n or key.num_columns != 1:
        envelope.refuse(f"{n} rows that wait", f"{carried.num_rows}")
    row = envelope.array("waiting.row", "<i8", (n,))
    return Run(ts, key.column(0).combine_chunks(), row, carried.to_batches()[0])


def _kept(envelope: Envelope, reader: _Reader, schema: pa.Schema) -> list[TupleBatch]:
    if "kept.ts" not in envelope.arrays:
        return []
    ts = _ascending(envelope, "kept.ts")
    carried = reader.table("kept.carried", schema)
    n = ts.shape[0]
    if n == 0 or carried.num_rows != n:
        envelope.refuse(f"{n} rows kept", f"{carried.num_rows}")
    return [TupleBatch(envelope.integer("kept", 0, _MOST), ts.copy(), pa.nulls(n), carried.to_batches()[0])]


def _ascending(envelope: Envelope, name: str) -> Array:
    ts = envelope.array(name, "<i8", (None,))
    if (ts[1:] < ts[:-1]).any():
        envelope.refuse(f"times in {name} that do not fall", "others")
    return ts


def _accounting(envelope: Envelope) -> Accounting:
    given = envelope.params.get("accounting")
    counts = ("tuples_in", "applied", "late", "shed", "rejected")
    if not isinstance(given, dict) or {*given} - {"dropped"} != {*counts, "reasons"}:
        envelope.refuse("its accounting", str(given))
    reasons, dropped = given["reasons"], given.get("dropped", {})
    if not isinstance(reasons, dict) or not isinstance(dropped, dict):
        envelope.refuse("its accounting", str(given))
    for value in (*(given[name] for name in counts), *reasons.values(), *dropped.values()):
        if type(value) is not int or not 0 <= value <= _MOST:
            envelope.refuse("counts in its accounting", str(value))
    made = Accounting(**{name: given[name] for name in counts}, reasons=dict(reasons), dropped=dict(dropped))
    try:
        made.check()
    except NileError:
        envelope.refuse("accounting that adds up", str(given))
    return made
