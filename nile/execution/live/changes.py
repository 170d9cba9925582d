"""Change feeds of other databases as signed rows: what a row was before and is after, as Debezium writes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from nile.streams.live import SIGN, LiveStream
from nile.summaries.errors import SourceError
from nile.summaries.heavy import pa

__all__ = ["is_change_feed", "signed_rows", "unwrapped"]

_SIDES = {"c": ("after",), "r": ("after",), "u": ("before", "after"), "d": ("before",)}
_ENVELOPE = {"before", "after", "op"}


def is_change_feed(stream: LiveStream, names: Collection[str]) -> bool:
    """Whether columns are those of a change feed, and none of them the stream's."""
    return set(names) >= _ENVELOPE and not _ENVELOPE & set(stream.schema.names)


def unwrapped(data: Any) -> Any:
    """Events that came each beside its schema, without it; else the data."""
    events = [data] if isinstance(data, Mapping) else data if isinstance(data, list | tuple) else []
    payloads = [event.get("payload") for event in events if isinstance(event, Mapping)]
    return payloads if events and all(isinstance(each, Mapping) for each in payloads) else data


def signed_rows(stream: LiveStream, data: Any) -> pa.Table:
    """The rows of a change feed, in its order, with `_sign` 1 (they come) or -1 (they go).

    op: c (created) and r (read) bring `after`; d takes back `before`; u does both.  Where the rows have no column of
    the stream's time, they come at `ts_ms`, when the change was made, and go whatever their time.
    Raises SourceError for another operation, or without the row that it needs.
    """
    rows: list[dict[str, Any]] = []
    signs = []
    for number, event in enumerate(_events(data), 1):
        where = f"stream '{stream.name}', push: change {number}"
        if event.get("op") not in _SIDES:
            raise SourceError(
                f"{where}: needed op 'c' or 'r' (after comes), 'd' (before goes) or 'u' (both); got "
                f"{event.get('op')!r}; leave it out, or say DELETE FROM {stream.name} for all rows"
            )
        for side in _SIDES[event["op"]]:
            row = event.get(side)
            if not isinstance(row, Mapping):
                raise SourceError(
                    f"{where}: needed the row {side} it, for op {event['op']!r}; got {row!r}; let the database log "
                    "whole rows (in PostgreSQL: REPLICA IDENTITY FULL)"
                )
            sign = 1 if side == "after" else -1
            rows.append({**row} if stream.time in row else {**row, stream.time: _time(stream, event, sign, where)})
            signs.append(sign)
    names = stream.schema.names
    columns = {name: [row.get(name) for row in rows] for name in names}
    unknown = sorted({name for row in rows for name in names if name not in row})
    if unknown:
        raise SourceError(
            f"stream '{stream.name}', push: needed changes with the columns {', '.join(names)}; got some without "
            f"{', '.join(unknown)}; make the stream with the columns that the feed has"
        )
    return pa.table({**columns, SIGN: pa.array(signs, pa.int8())})


def _time(stream: LiveStream, event: Mapping[str, Any], sign: int, where: str) -> Any:
    """When a change was made, as the stream's time; None of a row that goes, which is known by its other columns."""
    if sign < 0:
        return None
    made = event.get("ts_ms")
    if type(made) is not int:
        raise SourceError(
            f"{where}: needed a column '{stream.time}', the stream's time, or ts_ms; got neither; add one of them"
        )
    kind = stream.schema.field(stream.time).type
    if pa.types.is_temporal(kind):
        return pa.scalar(made, pa.timestamp("ms")).cast(kind).as_py()
    return made // 1000 if pa.types.is_integer(kind) else made / 1000


def _events(data: Any) -> list[dict[str, Any]]:
    """The changes, each a dict."""
    if hasattr(data, "to_pylist"):
        return list(data.to_pylist())
    if isinstance(data, Mapping):
        return [dict(zip(data, values, strict=True)) for values in zip(*data.values(), strict=True)]
    return list(data.to_dicts() if hasattr(data, "to_dicts") else data.to_dict("records"))
