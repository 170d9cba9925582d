"""Files in FROM, answers as files, and what is shown of them; DuckDB reads the same files."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import nile
from nile.base.writing import write
from nile.sql.files import named_files, own_alias


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two Parquet files and one of CSV, in the current folder."""
    rng = np.random.default_rng(5)
    (tmp_path / "sales").mkdir()
    for day in range(2):
        table = pa.table({"item": rng.integers(0, 9, 50), "price": rng.uniform(0, 10, 50), "day": [day] * 50})
        pq.write_table(table, tmp_path / "sales" / f"d{day}.parquet")
    pacsv.write_csv(pa.table({"item": range(9), "name": [f"it{i}" for i in range(9)]}), tmp_path / "items.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT item, price FROM 'sales/*.parquet' WHERE price > 5",
        "SELECT sales.item, count(*) AS n FROM 'sales/*.parquet' GROUP BY sales.item",
        "SELECT d0.item, i.name FROM 'sales/d0.parquet' JOIN 'items.csv' AS i ON d0.item = i.item",
        "SELECT a.item FROM 'sales/d0.parquet' a, 'sales/d1.parquet' b WHERE a.item = b.item AND b.price < 1",
        "WITH w AS (SELECT item FROM 'sales/d0.parquet') SELECT DISTINCT item FROM w",
        "SELECT name FROM 'items.csv' WHERE item IN (SELECT item FROM 'sales/d0.parquet' WHERE price > 9)",
        "SELECT item FROM 'sales/d0.parquet' EXCEPT SELECT item FROM 'sales/d1.parquet'",
        "SELECT trim('i' FROM name) AS n, item FROM 'items.csv'",
    ],
)
def test_files_are_read_where_a_stream_could_be_named(statement: str) -> None:
    theirs = statement.replace("sales.item", "item")
    assert sorted(nile.connect().sql(statement).fetchall()) == sorted(duckdb.sql(theirs).fetchall())


@pytest.mark.usefixtures("folder")
def test_a_file_is_known_to_its_statement_alone() -> None:
    db = nile.connect()
    assert len(db.sql("SELECT * FROM 'items.csv'")) == 9
    assert (db.streams, db.relations) == ((), ())
    with pytest.raises(nile.SourceMissing, match=r"none.csv: needed a Parquet or CSV file"):
        db.sql("SELECT * FROM 'none.csv'")
    with pytest.raises(nile.SqlError, match="line 1, column 41: needed a stream for WINDOW; got stored relations"):
        db.sql("SELECT item FROM 'items.csv'            WINDOW 5")


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("SELECT a FROM 'x.csv'", ("x.csv",)),
        ("SELECT a FROM s WHERE trim('x' FROM 'y') = 'z'", ()),
        ("SELECT a FROM s WHERE a IS DISTINCT FROM 'y'", ()),
        ("SELECT a FROM s, 'x.csv' WHERE a IN ('y', 'z')", ("x.csv",)),
        ("SELECT a FROM s JOIN 'x.csv' ON a = 'k', 'not reached'", ("x.csv",)),
        ("CREATE STREAM s FROM 'x.csv'", ()),
        ("COPY (SELECT a FROM 'x.csv') TO 'y.csv'", ("x.csv",)),
        ("COPY (SELECT a FROM s) FROM 'y.csv'", ()),
        ("SELECT 'FROM' FROM 'x.csv' -- FROM 'c.csv'", ("x.csv",)),
        ("SELECT a FROM 'it''s.csv'", ()),
        ("SELECT 'open", ()),
    ],
)
def test_only_a_text_that_is_a_source_is_a_file_and_places_stay(text: str, files: tuple[str, ...]) -> None:
    written, found = named_files(text)
    assert found == files
    assert len(written) == len(text)
    assert written.replace('"', "'") == text.replace('"', "'")


def test_a_file_is_called_by_its_stem_and_a_glob_by_its_folder() -> None:
    names = ("items.csv", "a/b/sales.parquet", "a/sales/*.parquet", "2024-01.csv", "s3/x-y/part.0.parquet", "plain")
    assert list(map(own_alias, names)) == ["items", "sales", "sales", "file", "part", "plain"]


def test_what_is_written_in_parts_has_columns_beside_them(folder: Path) -> None:
    db = nile.connect()
    with pytest.raises(nile.ConfigError, match="and others to write; got all of them"):
        db.sql("COPY (SELECT item FROM 'items.csv') TO 'x' (PARTITION_BY (item))")
    assert not (folder / "x").exists()


def test_copy_writes_what_duckdb_reads_back(folder: Path) -> None:
    db = nile.connect()
    done = db.sql("COPY (SELECT item, price FROM 'sales/*.parquet' WHERE price > 5) TO 'big.parquet'")
    rows = duckdb.sql("SELECT item, price FROM 'sales/*.parquet' WHERE price > 5").fetchall()
    assert done.message == f"{len(rows)} rows written to 'big.parquet'"
    assert sorted(duckdb.sql("FROM 'big.parquet'").fetchall()) == sorted(rows)
    db.sql("COPY (SELECT item, name FROM 'items.csv') TO 'again.txt' (FORMAT CSV);")
    assert (folder / "again.txt").read_text() == (folder / "items.csv").read_text()


def test_an_answer_of_any_kind_is_written_and_an_empty_one_has_its_columns(folder: Path) -> None:
    db = nile.connect()
    for name in "ab":
        db.register(name, {"ts": [0.0, 1.0, 2.0], "k": [1, 2, 1]}, time="ts")
    for answer in (
        db.join("a", "b", on="k", window=5).run(),
        db.join("a", "b", on="k", window=5).prefer("desc").run(budget=0.5),
        db.aggregate("a", {"n": "count(*)"}, by="k").run(),
        db.sql("SELECT k FROM a WHERE k > 7"),
    ):
        rows = answer.write_parquet("out.parquet")
        read = pq.read_table("out.parquet")
        assert (rows, read.schema.names) == (answer.to_arrow().num_rows, answer.schema.names)
        assert read.num_rows == rows
        answer.write_csv("out.csv")
    assert (folder / "out.csv").read_text() == '"k"\n'


def test_a_file_appears_whole_or_not_at_all(folder: Path) -> None:
    def broken() -> object:
        yield pa.record_batch({"k": [1]})
        raise RuntimeError("cut")

    (folder / "old.csv").write_text("old")
    with pytest.raises(RuntimeError):
        write(broken(), pa.schema([("k", pa.int64())]), "old.csv", "csv")  # type: ignore[arg-type]
    assert (folder / "old.csv").read_text() == "old"
    db = nile.connect().register("r", {"l": pa.array([[1]])})
    with pytest.raises(nile.ConfigError, match=r"write 'l.csv': needed columns that the file can hold; got .*list"):
        db.sql("SELECT l FROM r").write_csv("l.csv")
    with pytest.raises(nile.ConfigError, match=r"nope/l.parquet': needed a file that can be written; got No such file"):
        db.sql("SELECT l FROM r").write_parquet("nope/l.parquet")
    with pytest.raises(nile.ConfigError, match=r"needed a name that ends in .parquet or .csv; rename it"):
        db.sql("COPY (SELECT l FROM r) TO 'l.xls'")
    assert sorted(path.name for path in folder.iterdir()) == ["items.csv", "old.csv", "sales"]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("COPY nothing TO 'x.csv'", r"line 1, column 6: needed a query in parentheses after COPY"),
        ("COPY (SELECT item FROM 'items.csv' TO 'x.csv'", r"needed '\)' after the query"),
        ("COPY () TO 'x.csv'", "needed a query between the parentheses"),
        ("COPY (SELECT item FROM 'items.csv') TO x", "column 40: needed the path of a file"),
        ("COPY (SELECT item FROM 'items.csv') TO 'x' (FORMAT XLS)", "needed PARQUET or CSV after FORMAT"),
        ("COPY (SELECT item FROM 'items.csv') TO 'x.csv' now", "column 48: "),
        ("COPY (SELECT nothing FROM 'items.csv') TO 'x.csv'", "column 14: needed a column of items"),
        ("COPY (SELECT item FROM 'items.csv') TO 'x' (PARTITION_BY (name))", "column 59: needed a column of the query"),
        ("COPY (SELECT item FROM 'items.csv') TO 'x' (SPLIT 3)", "needed FORMAT or PARTITION_BY"),
    ],
)
def test_a_copy_that_is_none_says_where(folder: Path, statement: str, said: str) -> None:
    with pytest.raises(nile.SqlError, match=said):
        nile.connect().sql(statement)
    assert not (folder / "x.csv").exists()


def test_show_prints_the_first_rows_and_reads_no_further(capsys: pytest.CaptureFixture[str]) -> None:
    db = nile.connect().register("r", {"k": list(range(30))})
    db.sql("SELECT k FROM r").show(2)
    assert capsys.readouterr().out.splitlines()[4:] == [
        "│     0 │", "│     1 │", "└───────┘", "the first 2 rows; show(None) prints all"
    ]  # fmt: skip
    db.sql("SELECT k FROM r").show(None)
    assert len(capsys.readouterr().out.splitlines()) == 30 + 5


@pytest.mark.usefixtures("folder")
def test_statements_of_the_module_share_one_database() -> None:
    assert nile.sql("SELECT count(*) AS n FROM 'items.csv'").fetchall() == [(9,)]
    nile.sql("CREATE OR REPLACE RELATION of_the_module FROM 'items.csv'")
    assert nile.sql("SELECT name FROM of_the_module WHERE item = ?", [3]).fetchall() == [("it3",)]
    nile.sql("DROP RELATION of_the_module")
    assert nile.sql.__name__ == "nile.sql"


@pytest.mark.usefixtures("folder")
def test_a_name_that_is_taken_is_refused_unless_it_is_the_same_or_to_be_replaced() -> None:
    db = nile.connect()
    table = pa.table({"ts": [1.0], "k": [1]})
    db.register("s", table, time="ts").register("s", table, time="ts")
    for source, time in ((table, None), (pa.table({"ts": [1.0], "k": [1]}), "ts"), ("items.csv", None)):
        with pytest.raises(nile.ConfigError, match="needed a name that is free; 's' is another source's, or has other"):
            db.register("s", source, time=time)
    assert db.sql("SELECT k FROM s").fetchall() == [(1,)]
    db.register("s", "items.csv", replace=True).register("s", Path("items.csv"))
    assert db.relations == ("s",)


def test_the_builder_says_how_rows_are_told() -> None:
    db = nile.connect().register("s", {"ts": [1.0, 7.0], "k": [1, 1]}, time="ts")
    asked = db.query("s").group_by("k").agg(n="count(*)").window(5)
    assert asked.emit("changes").sql().endswith("WINDOW '5 s' EMIT CHANGES")
    assert asked.emit("changes").run().fetchall() == db.sql(asked.sql(), emit="changes").fetchall()
    assert asked.emit("every 2 s").sql().endswith("EMIT EVERY '2 s'")
    assert len(asked.emit("every 2 s").run()) > 0
    with pytest.raises(nile.ConfigError, match="emit: needed snapshot, changes, append"):
        asked.emit("now and then")
