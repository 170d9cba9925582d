"""Which values in messages fit which fields: times as text, whole numbers, and what is told of those that do not."""

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nile
from nile.sensors.connectors.messages import Messages
from nile.sensors.connectors.postgres import InsertedRows
from nile.sensors.connectors.redis import RedisStream


def told(path: Path, fields: str, messages: list[Any]) -> tuple[list[tuple[Any, ...]], list[str]]:
    """The rows of a stream that reads these messages, and why the others were rejected."""
    path.write_text("".join(json.dumps(message) + "\n" for message in messages))
    with nile.connect() as db:
        db.sql(f"CREATE STREAM s FROM FILE '{path}' ({fields})")
        names = ", ".join(field.split()[0] for field in fields.split(","))
        return db.sql(f"SELECT {names} FROM s").fetchall(), db.quarantine("s")["reason"].to_pylist()


def test_a_time_in_a_message_is_iso_text_or_a_whole_number(tmp_path: Path) -> None:
    at = ["2024-01-01T10:00:00", "2024-01-01 11:00:00.5+01:00", "2024-01-01T10:00:01Z", 1704103202000000, None]
    rows, reasons = told(tmp_path / "s", "at TIMESTAMP, n INT", [{"at": one, "n": 1} for one in [*at, "soon", 1.5]])
    assert [row[0] for row in rows] == [
        datetime(2024, 1, 1, 10), datetime(2024, 1, 1, 10, 0, 0, 500_000), datetime(2024, 1, 1, 10, 0, 1),
        datetime(2024, 1, 1, 10, 0, 2), None,
    ]  # fmt: skip
    assert reasons == ["value does not fit the stream's fields: needed timestamp[us] for 'at'"] * 2


def test_a_number_with_a_fraction_is_no_whole_number(tmp_path: Path) -> None:
    rows, reasons = told(
        tmp_path / "s", "n INT, many INT[]", [[3.0, [1, 2.0]], [12.5, []], [1, [1, 2.5]], [None, None]]
    )
    assert rows == [(3, [1, 2]), (None, None)]
    assert reasons == [f"value does not fit the stream's fields: needed {what}" for what in (
        "int32 for 'n'", "list<item: int32> for 'many'"
    )]  # fmt: skip


def test_what_a_sink_has_written_a_stream_reads(tmp_path: Path) -> None:
    fields, path = "at TIMESTAMP, day DATE, n INT", tmp_path / "out.jsonl"
    with nile.connect() as db:
        db.sql(f"CREATE STREAM s ({fields}) TIMESTAMP BY at")
        db.sql(f"CREATE SINK k TO FILE '{path}' AS SELECT * FROM s")
        db.sql("INSERT INTO s VALUES ('2024-01-01 10:00:00.25', '2024-02-03', 7), ('2024-01-02', NULL, 8)")
        wanted = db.sql("SELECT * FROM s").fetchall()
        db.advance("2025-01-01")
    assert told(path, f"{fields}", [json.loads(line) for line in path.read_text().splitlines()]) == (wanted, [])
    assert wanted[0] == (datetime(2024, 1, 1, 10, 0, 0, 250_000), date(2024, 2, 3), 7)


@pytest.mark.parametrize("kind", [RedisStream, InsertedRows])
def test_cells_of_a_database_are_times(kind: type[Messages]) -> None:
    source: Any = kind.__new__(kind)
    source.fields = pa.schema([("at", pa.timestamp("us")), ("n", pa.int32())])
    text = "2024-01-01 10:00:00+00"
    assert source._cell(text if kind is InsertedRows else text.encode(), "at") == text
    assert source._cell("7" if kind is InsertedRows else b"7", "n") == 7


def test_a_pushed_time_may_name_its_zone() -> None:
    with nile.connect() as db:
        db.sql("CREATE STREAM s (at TIMESTAMP, n INT)")
        db.push("s", [{"at": "2024-01-01T10:00:00Z", "n": 1}, {"at": "2024-01-01 10:00:01", "n": 2}])
        db.sql("INSERT INTO s VALUES ('2024-01-01T12:00:02+02:00', 3)")
        assert [at.second for at, _ in db.sql("SELECT * FROM s").fetchall()] == [0, 1, 2]
        with pytest.raises(nile.SourceError, match="column 'at' is timestamp"):
            db.push("s", [{"at": "10:00 Z", "n": 1}])


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP", "BLOB", "TEXT", "INT[]", "BOOLEAN"])
def test_null_is_a_value_of_every_type(kind: str) -> None:
    with nile.connect() as db:
        db.sql(f"CREATE STREAM s (at DOUBLE, x {kind}) TIMESTAMP BY at")
        db.sql("INSERT INTO s VALUES (1, NULL)")
        db.sql(f"CREATE RELATION r (n INT, x {kind})")
        db.sql("INSERT INTO r VALUES (1, NULL)")
        db.sql("UPDATE r SET x = NULL WHERE n = 1")
        assert db.sql("SELECT x FROM s").fetchall() == db.sql("SELECT x FROM r").fetchall() == [(None,)]


@pytest.mark.parametrize(
    ("kind", "said", "read"),
    [
        ("TIMESTAMP", '"2024-01-01T10:00:00"', datetime(2024, 1, 1, 10)),
        ("DATE", '"2024-01-01"', date(2024, 1, 1)),
        ("BIGINT", "5", 5),
        ("DOUBLE", "5.5", 5.5),
    ],
)
def test_a_declared_column_ts_is_the_time_of_the_message_and_not_of_its_arrival(
    tmp_path: Path, kind: str, said: str, read: Any
) -> None:
    (tmp_path / "in").write_text(f'{{"ts": {said}, "n": 1}}\n')
    for _ in range(2):
        with nile.connect(tmp_path / "store") as db:
            if not db.sql("SHOW STREAMS").fetchall():
                db.sql(f"CREATE STREAM s FROM FILE '{tmp_path}/in' (ts {kind}, n INT) TIMESTAMP BY ts")
                db.sql(f"CREATE STREAM stamped FROM FILE '{tmp_path}/in' (n INT)")
            assert db.sql("SELECT ts, n FROM s").fetchall() == [(read, 1)]
            assert db.sql("SELECT error FROM nile_sources WHERE name = 's'").fetchall() == [(None,)]
            ((at,),) = db.sql("SELECT ts FROM stamped").fetchall()
            assert at.year > 2024
