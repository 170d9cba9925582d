"""Columns in files that are mapped are the columns that were written."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nile.base import mapped
from nile.base.mapped import Columns, can_map
from nile.base.spill import temporary_file

ROWS = 1_000
KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "int8": (pa.int8(), lambda k: k % 100),
    "int64": (pa.int64(), lambda k: k << 40),
    "uint64": (pa.uint64(), lambda k: (1 << 64) - 1 - k),
    "float": (pa.float32(), lambda k: k / 2),
    "double": (pa.float64(), lambda k: [float("nan"), -0.0, k / 3][k % 3]),
    "bool": (pa.bool_(), lambda k: k % 3 == 0),
    "timestamp": (pa.timestamp("us", tz="UTC"), lambda k: datetime.datetime.fromtimestamp(k, datetime.UTC)),
    "date": (pa.date32(), lambda k: datetime.date(2000, 1, 1 + k % 28)),
    "time": (pa.time64("us"), lambda k: datetime.time(k % 24)),
    "duration": (pa.duration("s"), lambda k: datetime.timedelta(seconds=k)),
    "decimal": (pa.decimal128(20, 3), lambda k: Decimal(k) / 8),
    "string": (pa.string(), lambda k: "ä" * (k % 5) + str(k)),
    "large_string": (pa.large_string(), lambda k: "" if k % 4 else str(k)),
    "binary": (pa.binary(), lambda k: bytes([k % 256]) * (k % 7)),
    "large_binary": (pa.large_binary(), lambda k: b"x" * (k % 3)),
}


@pytest.mark.parametrize("nulls", ["none", "some", "late", "all"])
@pytest.mark.parametrize("name", KINDS)
def test_what_was_written_is_there(name: str, nulls: str) -> None:
    kind, value = KINDS[name]
    missing = {
        "none": lambda _: False,
        "some": lambda k: k % 5 == 2,
        "late": lambda k: k > ROWS - 9,
        "all": lambda _: True,
    }[nulls]
    whole = pa.array([None if missing(k) else value(k) for k in range(ROWS)], kind)
    rows = pa.record_batch([whole, pa.array(np.arange(ROWS))], names=["v", "n"])
    files: list[Any] = []

    def opened() -> Any:
        files.append(temporary_file())
        return files[-1]

    assert can_map(kind)
    columns = Columns(rows.schema, opened)
    begin = 0
    for size in (0, 1, 3, 7, 500, 0, ROWS):  # slices begin anywhere
        columns.add(rows.slice(begin, size))
        begin += size
    found = columns.mapped()
    assert all(file.closed for file in files)
    found.validate(full=True)
    assert repr(found.to_pydict()) == repr(rows.to_pydict())
    assert found.schema == rows.schema


def test_without_rows() -> None:
    schema = pa.schema([(name, kind) for name, (kind, _) in KINDS.items()])
    found = Columns(schema, temporary_file).mapped()
    assert found.num_rows == 0
    assert found.schema == schema


def test_files_are_closed_without_being_mapped() -> None:
    files: list[Any] = []

    def opened() -> Any:
        files.append(temporary_file())
        return files[-1]

    rows = pa.record_batch({"a": [1, None], "b": ["x", "y"]})
    columns = Columns(rows.schema, opened)
    columns.add(rows)
    columns.close()
    assert len(files) == 4
    assert all(file.closed for file in files)


def test_text_beyond_its_offsets_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "_MOST_TEXT", 10)
    for kind in (pa.string(), pa.large_string()):
        rows = pa.record_batch([pa.array(["12345"], kind)], names=["a"])
        columns = Columns(rows.schema, temporary_file)
        columns.add(rows)
        columns.add(rows)
        if kind == pa.large_string():
            columns.add(rows)
            assert columns.mapped().column(0).to_pylist() == ["12345"] * 3
        else:
            with pytest.raises(OverflowError, match="2 GiB of string"):
                columns.add(rows)


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.dictionary(pa.int8(), pa.string())]
)
def test_other_types_stay_in_memory(kind: pa.DataType) -> None:
    assert not can_map(kind)
