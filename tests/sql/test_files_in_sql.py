"""Files in FROM, answers as files, and what is shown of them; DuckDB reads the same files."""

from __future__ import annotations

from datetime import date
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
    with pytest.raises(nile.SourceMissing, match=r"none.csv: needed a Parquet, CSV or JSON-lines file"):
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


@pytest.mark.parametrize("form", ["PARQUET", "CSV"])
@pytest.mark.parametrize("named", ["{}", "{}/*/*/*", "{}/**/part-*"])
def test_folders_of_columns_are_read_back(tmp_path: Path, form: str, named: str) -> None:
    rows = [(1, "a/b", date(2024, 1, 1), 1.5), (2, "it's", date(2024, 1, 2), -2.0), (3, None, None, 0.25)]
    table = pa.table(dict(zip(("v", "word", "day", "rate"), map(list, zip(*rows, strict=True)), strict=True)))
    with nile.connect() as db:
        db.register("sales", table)
        place = tmp_path / "out"
        db.sql(f"COPY sales TO '{place}' (FORMAT {form}, PARTITION_BY (word, day))")
        where = named.format(place)
        query = "SELECT v, word, day, rate FROM '{}' WHERE word IS NULL OR day > '2024-01-01' ORDER BY v"
        assert db.sql(query.format(where)).fetchall() == rows[1:]
        assert db.sql(f"SELECT count(*) AS n FROM '{where}' WHERE day < '2024-01-02'").fetchall() == [(1,)]
        days = db.sql(f"SELECT day FROM '{where}' WHERE day IS NOT NULL ORDER BY day").fetchall()
        assert days == [(row[2],) for row in rows[:2]]
        db.register("kept", where)
        assert sorted(db.sql("SELECT v, rate FROM kept").fetchall()) == [(row[0], row[3]) for row in rows]


def test_a_folder_says_what_its_column_is_as_duckdb_says(tmp_path: Path) -> None:
    for at, names in enumerate(
        (("k=1", "t=2024-01-01", "z=007"), ("k=__HIVE_DEFAULT_PARTITION__", "t=2024-02-01", "z=2"))
    ):
        folder = tmp_path.joinpath("a", *names)
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"k": ["stored"], "v": [at]}), folder / "x.parquet")
    for pattern in (
        f"{tmp_path}/a/**/*.parquet",
        f"{tmp_path}/a/k=1/*/*/x.parquet",
        str(next(tmp_path.rglob("*.parquet"))),
    ):
        found = nile.connect().sql(f"SELECT k, v, t FROM '{pattern}' ORDER BY v")
        assert found.fetchall() == duckdb.sql(f"SELECT k, v, t FROM '{pattern}' ORDER BY v").fetchall()
    assert nile.connect().sql(f"SELECT z FROM '{tmp_path}/a' ORDER BY z").fetchall() == [("007",), ("2",)]


def test_folders_that_not_all_files_lie_in_are_folders(tmp_path: Path) -> None:
    for place in ("a/k=1", "a"):
        (tmp_path / place).mkdir(exist_ok=True, parents=True)
        pq.write_table(pa.table({"v": [1]}), tmp_path / place / "x.parquet")
    assert nile.connect().sql(f"SELECT * FROM '{tmp_path}/a/**/*.parquet'").fetchall() == [(1,), (1,)]
    (tmp_path / "a" / "k=1" / "y.csv").write_text("v\n1\n")
    with pytest.raises(nile.SourceError, match=r"of one kind, below '.*/a'; got \.csv, \.parquet"):
        nile.connect().sql(f"SELECT * FROM '{tmp_path}/a'")


def test_what_a_writer_has_not_done_with_is_no_file_of_a_folder(tmp_path: Path) -> None:
    for place in ("k=1", "_temporary/k=2"):
        (tmp_path / place).mkdir(parents=True)
        pq.write_table(pa.table({"v": [1]}), tmp_path / place / "x.parquet")
    (tmp_path / "_SUCCESS").touch()
    assert nile.connect().sql(f"SELECT k, v FROM '{tmp_path}'").fetchall() == [(1, 1)]
    (tmp_path / "k=1" / "x.parquet").unlink()
    with pytest.raises(nile.SourceMissing, match="needed files in the folders of"):
        nile.connect().sql(f"SELECT k, v FROM '{tmp_path}'")


def test_files_may_have_their_columns_in_any_order(tmp_path: Path) -> None:
    for at, names in enumerate((("a", "b"), ("b", "a"))):
        pq.write_table(pa.table({name: [name + str(at)] for name in names}), tmp_path / f"{at}.parquet")
        pacsv.write_csv(pa.table({name: [name + str(at)] for name in names}), tmp_path / f"{at}.csv")
    for kind in ("parquet", "csv"):
        found = nile.connect().sql(f"SELECT * FROM '{tmp_path}/*.{kind}'").fetchall()
        assert found == duckdb.sql(f"FROM '{tmp_path}/*.{kind}'").fetchall() == [("a0", "b0"), ("a1", "b1")]


def test_types_of_csv_files_are_those_of_all_of_them(tmp_path: Path) -> None:
    columns = ("n", "rate", "at", "mixed", "some", "none")
    for at, cells in enumerate(
        (("1", "2", "2024-01-01", "1", "", ""), ("2", "0.5", "2024-01-01 00:00:00.0000001", "x", "3", " "))
    ):
        (tmp_path / f"{at}.csv").write_text(",".join(columns) + "\n" + ",".join(cells) + "\n")
    with nile.connect() as db:
        db.register("all", f"{tmp_path}/*.csv")
        found = db.sql("SELECT * FROM all").to_arrow()
    assert [str(field.type) for field in found.schema] == [
        "int64", "double", "timestamp[ns]", "string", "int64", "string",
    ]  # fmt: skip
    assert found.select(["n", "rate", "mixed", "some"]).to_pylist() == [
        {"n": 1, "rate": 2.0, "mixed": "1", "some": None},
        {"n": 2, "rate": 0.5, "mixed": "x", "some": 3},
    ]
