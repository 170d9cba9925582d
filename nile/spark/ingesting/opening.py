"""What a caller asks of a stream of the lake, checked against the stream that is there, or made into a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nile.base.durations import parse_duration
from nile.base.raw import check_columns
from nile.base.times import check_time_type
from nile.pyramid.lake.lake import DAY, LakeStream, Layout
from nile.spark.celltypes import check_carried
from nile.spark.ingesting.drift import drift_of, parse_type, plain_schema
from nile.spark.ingesting.inputs import Input
from nile.summaries.errors import ConfigError, SourceMissing
from nile.summaries.heavy import pa
from nile.summaries.key_types import key_family

__all__ = ["Asked", "checked_stream", "open_stream"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a caller says of a stream; None: as it is, or the default."""

    time: str | None
    key: str | None
    schema: Mapping[str, str] | pa.Schema | None
    event_id: str | None
    ranges: str | float | None
    bits: int | None


def open_stream(lake: str | Path, name: str, given: Input, asked: Asked, rules: Mapping[str, str] | None) -> LakeStream:
    """The stream `name` of the lake, checked against the input and what was asked, or a new one.

    rules: for columns that differ; None: those that the stream remembers.
    Raises ConfigError, SchemaDrift, UnknownColumn, KeyTypeError, StoreCorrupt, StoreWriteError.
    """
    found = checked_stream(lake, name, given, asked, rules)
    return found if isinstance(found, LakeStream) else LakeStream.create(lake, found)


def checked_stream(
    lake: str | Path, name: str, given: Input, asked: Asked, rules: Mapping[str, str] | None
) -> LakeStream | Layout:
    """The stream that is there, or the layout of the one to be made.  Nothing is written, and Spark is not asked.

    Raises ConfigError, SchemaDrift, UnknownColumn, KeyTypeError, StoreCorrupt.
    """
    where = f"stream '{name}'"
    length = None if asked.ranges is None else parse_duration(asked.ranges, where=f"{where}: ranges")
    try:
        there = LakeStream.open(lake, name)
    except SourceMissing:
        there = None
    if there is None or not there.generation:
        layout = _layout(name, given, asked, length, rules)
        _check_drift(layout, given, rules)
        return layout
    layout = there.layout
    for what, wanted, has in (
        ("time", asked.time, layout.time),
        ("key", asked.key, layout.key),
        ("event_id", asked.event_id, layout.rules["event_id"]),
        ("ranges", length, layout.range_ns),
        ("bits", asked.bits, layout.bits),
        ("schema", asked.schema and _declared(asked.schema, where=where), layout.schema),
    ):
        if wanted is not None and wanted != has:
            raise ConfigError(
                f"{where}: {what}: the stream was made with {has!s}; got {wanted!s}; leave it out, or ingest into a "
                "stream of another name"
            )
    _check_drift(layout, given, rules)
    return there


def _check_drift(layout: Layout, given: Input, rules: Mapping[str, str] | None) -> None:
    needed = tuple(filter(None, (layout.time, layout.key, layout.rules["event_id"])))
    drift_of(layout.schema, given.schema, text=given.text).check(
        layout.rules["drift"] if rules is None else rules,
        where=f"stream '{layout.stream}': {given.name}",
        needed=needed,
    )


def _layout(name: str, given: Input, asked: Asked, length: int | None, rules: Mapping[str, str] | None) -> Layout:
    where = f"stream '{name}'"
    if asked.time is None or asked.key is None:
        lacking = "time" if asked.time is None else "key"
        raise ConfigError(f"{where}: needed the {lacking} column of a new stream; got none; give {lacking}=")
    schema = plain_schema(given.schema) if asked.schema is None else _declared(asked.schema, where=where)
    wanted = [asked.time, asked.key, *([] if asked.event_id is None else [asked.event_id])]
    check_columns(schema, wanted, where=where)
    for field in schema:
        check_carried(field.type, where=f"{where}: column '{field.name}'")
    check_time_type(schema.field(asked.time).type, where=f"{where}: time column '{asked.time}'")
    key_family(schema.field(asked.key).type, where=f"{where}: key column '{asked.key}'")
    remembered = {"event_id": asked.event_id, "drift": dict(rules or {})}
    return Layout(
        name, asked.time, asked.key, schema, length or DAY, 12 if asked.bits is None else asked.bits, rules=remembered
    )


def _declared(schema: Mapping[str, str] | pa.Schema, *, where: str) -> pa.Schema:
    if isinstance(schema, Mapping):
        fields = [(name, parse_type(kind, where=f"{where}: column '{name}'")) for name, kind in schema.items()]
        return pa.schema(fields)
    return plain_schema(schema)
