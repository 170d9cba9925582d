"""CREATE STREAM name (column type, ...): live streams that statements make, as `Database.stream` does."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import nile
from nile.sql.reading_statements import read_statement
from nile.sql.statement_text import statement_text

SETTINGS = "LATENESS '5 s' KEEP '1 h' IDLE '2 s' EVENT ID id WHERE v > 1"
CLICKS = f"CREATE STREAM clicks (at TIMESTAMP, id BIGINT, tags TEXT[], v DOUBLE) TIMESTAMP BY at {SETTINGS}"


def test_a_stream_made_by_a_statement_is_the_one_that_the_method_makes() -> None:
    said, called = nile.connect(), nile.connect()
    said.sql(CLICKS)
    schema = pa.schema(
        [("at", pa.timestamp("us")), ("id", pa.int64()), ("tags", pa.list_(pa.string())), ("v", pa.float64())]
    )
    called.stream("clicks", schema, time="at", lateness="5 s", where="v > 1", keep="1 h", event_id="id", idle="2 s")
    assert said._live.definitions == called._live.definitions
    assert said.sql("DESCRIBE clicks").fetchall() == called.sql("DESCRIBE clicks").fetchall()


def test_what_is_inserted_reaches_standing_queries_in_order_and_counted() -> None:
    db, found = nile.connect(), []
    db.sql("CREATE STREAM s (at TIMESTAMP, k TEXT) LATENESS '10 s'")
    db.subscribe("SELECT k FROM s", lambda rows: found.extend(rows.column("k").to_pylist()))
    db.sql("INSERT INTO s VALUES ('2024-01-01 00:00:10', 'b'), ('2024-01-01 00:00:05', 'a')")
    db.sql("INSERT INTO s VALUES ('2024-01-01 00:01:00', 'c'), ('2024-01-01 00:00:20', 'late')")
    db.advance("2024-01-01 00:02")
    told = db.accounting("s")
    assert found == ["a", "b", "c"]
    assert (told.applied, told.late) == (3, 1)


def test_a_stamped_stream_has_the_time_of_the_push() -> None:
    db = nile.connect()
    db.sql("CREATE STREAM s (at TIMESTAMP, k INT) STAMPED")
    db.sql("INSERT INTO s (k) VALUES (1)")
    assert db.sql("SELECT k, at > '2024-01-01' FROM s").fetchall() == [(1, True)]


def test_a_store_keeps_it(tmp_path: Path) -> None:
    with nile.connect(tmp_path / "store") as db:
        db.sql("CREATE STREAM s (t DOUBLE, k INT) TIMESTAMP BY t")
        db.sql("INSERT INTO s VALUES (1, 2)")
    with nile.connect(tmp_path / "store") as db:
        assert db.sql("SELECT t, k FROM s").fetchall() == [(1.0, 2)]
        db.sql("INSERT INTO s VALUES (2, 3)")
        db.sql("CREATE OR REPLACE STREAM s (t DOUBLE, n TEXT) TIMESTAMP BY t")
        assert db.sql("SELECT * FROM s").fetchall() == []
        db.sql("INSERT INTO s VALUES (0, 'x')")
        assert db.sql("SELECT * FROM s").fetchall() == [(0.0, "x")]


def test_it_names_no_file_so_that_untrusted_text_may_make_it() -> None:
    db = nile.connect()
    db.sql("CREATE STREAM s (t DOUBLE) TIMESTAMP BY t", files=False)
    db.sql("CREATE RELATION r (k INT)", files=False)
    with pytest.raises(nile.NileError, match="the path of a file"):
        db.sql("CREATE STREAM x FROM 'x.csv'", files=False)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE STREAM s (a TIMESTAMP)",
        'CREATE OR REPLACE STREAM s (a TIMESTAMP, "b c" INT[]) TIMESTAMP BY a LATENESS \'1 s\' EVENT ID "b c"',
        "CREATE STREAM s (a DOUBLE, b TEXT) TIMESTAMP BY a LATENESS '1 s' KEEP '1 min' IDLE '3 s' WHERE b = 'x'",
        "CREATE STREAM s (a DATE, b TEXT) STAMPED",
    ],
)
def test_its_text_is_canonical(text: str) -> None:
    names = nile.connect()._names
    assert statement_text(read_statement(text, names)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE STREAM s", "needed 'FROM' or '\\('; got the end"),
        ("CREATE STREAM s ()", "needed a column; got '\\)'"),
        ("CREATE STREAM s (a TIMESTAMP, a INT)", "column 31: needed a name of its own for each column; got 'a' again"),
        ("CREATE STREAM s (a NUMBER)", "column 20: needed a type"),
        ("CREATE STREAM s (a INT)", "needed one column of a time type, or TIMESTAMP BY; got none among a"),
        ("CREATE STREAM s (a DATE, b DATE)", "got a, b among a, b; write TIMESTAMP BY with the column"),
        ("CREATE STREAM s (a DATE) TIMESTAMP BY b", "column 39: needed a column after TIMESTAMP BY \\(a\\); got 'b'"),
        ("CREATE STREAM s (a DATE) EVENT ID b", "column 35: needed a column after EVENT ID \\(a\\); got 'b'"),
        ("CREATE STREAM s (a DATE) LATENESS 1 LATENESS 2", "column 37: needed LATENESS once; got it again"),
        ("CREATE STREAM s (a DATE) LATENES 1", "got 'LATENES'; did you mean LATENESS"),
        ("CREATE STREAM s (a DATE) IDLE 3", "needed a lateness"),
        ("CREATE STREAM s (a DATE) STAMPED", "needed columns besides its time 'a'"),
        ("CREATE STREAM s (a DATE, b INT) LATENESS 1 STAMPED", "needed no lateness and no event_id"),
        ("CREATE STREAM taken (a DATE)", "the name 'taken' is taken already"),
        ("CREATE OR REPLACE STREAM taken (a DATE)", "needed a stream that no standing query with a name"),
        ("CREATE STREAM s (a DATE) WHERE b > 1", "b"),
        ("CREATE STREAM s FROM 'x.csv' KEEP 3", "needed TIMESTAMP BY column, LATENESS d, WHERE condition or the end"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_made(text: str, message: str) -> None:
    db = nile.connect()
    db.sql("CREATE STREAM taken (a DATE, n INT)")
    db.subscribe("SELECT n FROM taken", name="reader")
    before = db.sql("SHOW STREAMS").fetchall()
    with pytest.raises(nile.NileError, match=message):
        db.sql(text)
    assert db.sql("SHOW STREAMS").fetchall() == before
