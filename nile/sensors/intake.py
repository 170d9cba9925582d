"""Values from sources, validated and made into rows: each is applied, late, shed or rejected, per source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from nile.base.cells import converted
from nile.base.times import TIME_LIMIT, event_times
from nile.sensors.port import Port
from nile.sensors.table import SensorsSpec
from nile.summaries.heavy import pa, pc

__all__ = ["ENDED", "TIMELESS", "Given", "Intake", "fitting", "nanoseconds"]

ENDED = object()
"""In place of a value: the source will give no more."""
Given = tuple[Port, int, Any, Any, int, str | None]
"""A port, the version of its row, the value that read returned (or `ENDED`), its time if it has one, when (ns), and
where its source is then, as JSON, if it tells that."""

TIMELESS, MISFIT = "time says nothing", "value does not fit the stream's fields"
"""Why a value is rejected."""
_PLAIN = {float, int, bool, str, bytes, type(None)}
"""What is the value of a single field as it is."""


class Intake:
    """Makes record batches of what sources gave.

    Times of one source do not fall, and no tuple lies further than the lateness behind the latest one of the table:
    others are late.  A value without a time gets that of its arrival.  Cost: about 1 us a value.
    """

    def __init__(self, spec: SensorsSpec) -> None:
        self._spec = spec
        self._fields = spec.fields
        self._batch = spec.kind.batch
        self.newest = -TIME_LIMIT
        self.schema = spec.given

    def rows(self, given: Iterable[Given]) -> pa.RecordBatch:
        """The rows that are applied."""
        ports: list[Port] = []
        versions: list[int] = []
        stamps: list[int] = []
        values: list[Any] = []
        marks: dict[int, str] = {}
        newest, lateness = self.newest, self._spec.lateness
        for port, version, found, time, at, place in given:
            if found is ENDED:
                continue
            before = len(values)
            for value, said in self._values(port, found, time) if self._batch else ((found, time),):
                if said is None:
                    ts = max(at, newest, port.last)
                else:
                    read = nanoseconds(said)
                    if read is None:
                        port.accounting.reject({TIMELESS: 1})
                        continue
                    ts = read
                    if ts < port.last or ts < newest - lateness:
                        port.accounting.arrive_late(1)
                        continue
                port.last = ts
                newest = max(newest, ts)
                ports.append(port)
                versions.append(version)
                stamps.append(ts)
                values.append(value)
            if place is not None and len(values) > before:
                marks[len(values) - 1] = place
        self.newest = newest
        kept, columns, misfits = fitting(values, self._fields)
        if misfits:
            for k, why in misfits.items():
                ports[k].accounting.reject({why: 1})
            ports, versions, stamps = ([each[k] for k in kept] for each in (ports, versions, stamps))  # type: ignore
            marks = {new: marks[old] for new, old in enumerate(kept) if old in marks}
        for port in ports:
            port.accounting.apply(1)
        rows = len(versions)
        places = pa.array([marks.get(k) for k in range(rows)], pa.string()) if marks else pa.nulls(rows, pa.string())
        return pa.RecordBatch.from_arrays(
            [pa.array(versions, pa.int64()), pa.array(stamps, pa.int64()), places, *columns], schema=self.schema
        )

    def _values(self, port: Port, found: Any, time: Any) -> Sequence[tuple[Any, Any]]:
        """(value, time or None) of each value of a batch that a read gave."""
        try:
            values = list(found)
            times = [None] * len(values) if time is None else list(time)
            return list(zip(values, times, strict=True))
        except (TypeError, ValueError):
            port.accounting.reject({"batch without as many values as times": 1})
            return ()


def fitting(values: Sequence[Any], fields: pa.Schema) -> tuple[Sequence[int], list[pa.Array], Mapping[int, str]]:
    """(places of the values that fit these fields, those as columns, by place why the others do not)."""
    columns = _columns(values, fields)
    if not isinstance(columns, str):
        return range(len(values)), columns, {}
    alone = ((k, _columns([value], fields)) for k, value in enumerate(values))
    misfits = {k: why for k, why in alone if isinstance(why, str)}
    kept = [k for k in range(len(values)) if k not in misfits]
    columns = _columns([values[k] for k in kept], fields)
    assert not isinstance(columns, str)
    return kept, columns, misfits


def _columns(values: Sequence[Any], fields: pa.Schema) -> list[pa.Array] | str:
    """Values as columns; why not, where one does not fit."""
    names, columns = fields.names, []
    plain = len(names) == 1 and set(map(type, values)) <= _PLAIN
    for k, field in enumerate(fields):
        try:
            cells = values if plain else [_cell(value, names, k) for value in values]
        except LookupError:
            return MISFIT
        try:
            columns.append(_column(cells, field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return f"{MISFIT}: needed {field.type} for '{field.name}'"
    return columns


def _column(cells: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values of a field; a time is a `datetime`, ISO text, or a whole number of what its type counts in.

    Raises pa.ArrowException, TypeError, ValueError or OverflowError for one that does not fit without loss.
    """
    if pa.types.is_list(kind):
        _column([each for cell in cells if cell is not None for each in cell], kind.value_type)
    given = set(map(type, cells))
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        if float in given and not all(cell.is_integer() for cell in cells if type(cell) is float):
            raise ValueError
        if str in given and pa.types.is_temporal(kind):
            text = pa.array([cell if type(cell) is str else None for cell in cells], pa.string())
            others = pa.array([None if type(cell) is str else cell for cell in cells], kind)
            return pc.coalesce(others, converted(text, kind))
    return pa.array(cells, kind)


def _cell(value: Any, names: Sequence[str], at: int) -> Any:
    """A field of a value.  Raises LookupError where the value has other fields."""
    if isinstance(value, Mapping):
        if at == 0 and not value.keys() <= set(names):
            raise LookupError
        return value.get(names[at])
    if len(names) == 1:
        return value
    if not isinstance(value, tuple | list) or len(value) != len(names):
        raise LookupError
    return value[at]


def nanoseconds(said: Any) -> int | None:
    """A time as ns since 1970; None for what says no time."""
    if type(said) is float or type(said) is int:
        if not abs(said) <= TIME_LIMIT / 1e9:  # NaN too
            return None
        return said * 1_000_000_000 if type(said) is int else round(said * 1e9)
    try:
        column = pa.array([said], pa.timestamp("ns", "UTC") if isinstance(said, datetime) and said.tzinfo else None)
        times = event_times(column)
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError):
        return None
    return int(times.ns[0]) if times.reason is None else None
