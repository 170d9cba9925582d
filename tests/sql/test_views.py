"""Views: a query under a name, read where the name stands; kept by a store; faults said at the place that names it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pyarrow as pa
import pytest
from sql_catalog import CATALOG, connect_catalog
from sql_random import RandomQuery
from test_sql_duckdb import cases, check

import nile
from nile.sql.reading_statements import read_statement
from nile.sql.statement_text import statement_text
from nile.summaries.errors import ConfigError, SqlError, UnknownStream


class Viewed(RandomQuery):
    """The same query read through a view, with its WINDOW outside of it."""

    def nile(self) -> str:
        return "SELECT * FROM seen" + ("" if self.whole is None else f" WINDOW {self.whole}")

    def view(self) -> str:
        window = "" if self.whole is None else f" WINDOW {self.whole}"
        return "CREATE OR REPLACE VIEW seen AS " + super().nile().removesuffix(window)


def run(seed: int, count: int) -> list[str]:
    failed = []
    for db, connection, made, emit, times in cases(seed, count):
        viewed = Viewed(**{each.name: getattr(made, each.name) for each in fields(made)})
        if emit == "append":
            emit = "snapshot"  # rows of a query in FROM are a relation
        try:
            db.sql(viewed.view())
            check(db, connection, viewed, emit, times)
        except (AssertionError, nile.NileError) as error:
            failed.append(f"{error}\n  {emit}: {made.nile()}")
    return failed


def test_random_queries_read_through_a_view_give_the_rows_that_duckdb_gives() -> None:
    failed = run(27, 60)
    assert failed == [], "\n".join(failed[:5])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1004))
def test_many_random_queries_read_through_a_view_give_the_rows_that_duckdb_gives(seed: int) -> None:
    failed = run(seed, 250)
    assert failed == [], "\n".join(failed[:5])


def test_a_view_is_the_query_it_names() -> None:
    db = connect_catalog()
    db.sql("CREATE VIEW dear (item, paid) AS SELECT item_id, price FROM store1 WHERE price > 4 AND price < 100")
    db.sql("CREATE VIEW both AS SELECT d.item, c.category FROM dear d, items c WHERE d.item = c.item_id")
    assert sorted(db.sql("SELECT * FROM both").fetchall()) == [("jar", "china"), ("jar", "china")]
    assert db.sql("SELECT count(*) AS n FROM DEAR x WHERE x.paid < 9.7").fetchall() == [(1,)]
    assert db.sql("WITH dear AS (SELECT 1 AS one FROM rooms) SELECT count(*) AS n FROM dear").fetchall() == [(3,)]
    assert db.sql("SHOW VIEWS").to_arrow().to_pydict()["name"] == ["dear", "both"]
    assert db.sql("DESCRIBE dear").to_arrow().to_pydict()["type"] == ["string", "double"]
    db.sql("CREATE OR REPLACE VIEW dear AS SELECT item_id AS item FROM store2")
    assert db.sql("SELECT count(*) AS n FROM both").fetchall() == [(5,)]
    db.sql("DROP VIEW both")
    assert db.sql("SHOW VIEWS").to_arrow().num_rows == 1
    db.sql("DROP VIEW IF EXISTS both")


def test_a_standing_query_keeps_the_view_that_it_was_made_of(tmp_path: Path) -> None:
    """Views are in the store, and a named query goes on when one changes or goes."""
    schema = pa.schema([("ts", pa.float64()), ("item", pa.string())])
    with nile.connect(tmp_path / "store") as db:
        db.stream("sales", schema, time="ts")
        db.sql("CREATE VIEW teas (t, what) AS SELECT ts, item FROM sales WHERE item = 'tea'")
        db.subscribe("SELECT what, count(*) AS n FROM teas GROUP BY what", name="n", emit="snapshot")
        db.push("sales", {"ts": [0.0, 1.0], "item": ["tea", "cup"]})
    with nile.connect(tmp_path / "store") as db:
        assert db.sql("SHOW VIEWS").to_arrow().to_pylist() == [
            {"name": "teas", "columns": "t, what", "query": "SELECT ts, item FROM sales WHERE item = 'tea'"}
        ]
        assert db.sql("SELECT what FROM teas").fetchall() == [("tea",)]
        db.sql("DROP VIEW teas")
        db.push("sales", {"ts": [2.0], "item": ["tea"]})
        standing = db.subscription("n")
        standing.close()
        assert [row for batch in standing.poll() for row in batch.to_pylist()][-1:] == [{"what": "tea", "n": 2}]
    with nile.connect(tmp_path / "store") as db:
        assert db.sql("SHOW VIEWS").to_arrow().num_rows == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE VIEW v AS SELECT nothing FROM store1", "line 1, column 25: .*nothing"),
        ("CREATE VIEW v AS SELECT seq FROM v", "line 1, column 34: needed a stream or relation"),
        ("CREATE OR REPLACE VIEW a AS SELECT seq FROM b", "view 'b', line 1, column 17: .*does not read itself"),
        ("CREATE VIEW a AS SELECT seq FROM store1", "there is a view 'a' already"),
        ("CREATE VIEW store1 AS SELECT seq FROM store2", "is a stream or relation"),
        ("CREATE VIEW v AS SELECT seq FROM store1 WINDOW 60", "line 1, column 41: .*without WINDOW in a view"),
        ("CREATE VIEW v (a, b) AS SELECT seq FROM store1", "at most 1 names of columns; got 2"),
        ("CREATE VIEW v AS DROP STREAM store1", "needed SELECT after AS"),
        ("SELECT seq, price FROM a", "line 1, column 13: .*price"),
        ("DROP VIEW store1", "needed a view"),
        ("DROP STREAM a", "needed a stream"),
    ],
)
def test_what_is_wrong_with_a_view_is_said(text: str, message: str) -> None:
    db = connect_catalog()
    db.sql("CREATE VIEW a AS SELECT seq FROM store1")
    db.sql("CREATE VIEW b AS SELECT seq FROM a")
    with pytest.raises((SqlError, ConfigError, UnknownStream), match=message):
        db.sql(text)


def test_a_view_of_a_stream_that_is_gone_says_where() -> None:
    db = connect_catalog()
    db.sql("CREATE VIEW a AS SELECT seq\nFROM store1")
    db.sql("CREATE VIEW b AS SELECT seq FROM a")
    db.sql("DROP STREAM store1")
    with pytest.raises(
        SqlError, match=r"^line 1, column 15: view 'b', line 1, column 17: view 'a', line 2, column 6: "
    ):
        db.sql("SELECT * FROM b")
    with pytest.raises(ConfigError, match="'b', a view; DROP VIEW b first"):
        db.register("b", {"x": [1]})
    with pytest.raises(SqlError, match="parameter"):
        db.sql("CREATE VIEW c AS SELECT seq FROM store2 WHERE seq > ?", [1])


def test_views_that_double_end_at_the_limit_of_streams() -> None:
    db = connect_catalog()
    db.sql("CREATE VIEW v0 AS SELECT room FROM rooms")
    double = "CREATE VIEW v{} AS SELECT a.room FROM v{} a, v{} b WHERE a.room = b.room"
    for at in range(4):
        db.sql(double.format(at + 1, at, at))
    with pytest.raises(SqlError, match="at most 64 streams"):
        db.sql(double.format(5, 4, 4))


def test_the_text_of_a_view_reads_as_the_same_statement() -> None:
    for text in (
        "CREATE VIEW v AS SELECT  seq FROM store1;",
        'CREATE OR REPLACE VIEW v ("a b", c) AS (SELECT * FROM items)',
    ):
        made = read_statement(text, CATALOG)
        assert read_statement(statement_text(made), CATALOG) == made
