"""What hands trained on DuckDB, Polars and pandas type first: it works, or says what to write here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import nile

ROWS = {"ts": [0.0, 1.0, 2.0, 3.0], "k": ["a", "b", "a", "b"], "v": [1, 2, 3, 4]}


@pytest.fixture
def db() -> Iterator[nile.Database]:
    with nile.connect() as made:
        yield made.register("s", ROWS, time="ts")


def test_memory_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    nile.connect(":memory:").close()
    assert not [*tmp_path.iterdir()]


def test_files_may_stand_in_the_readers_of_duckdb(tmp_path: Path, db: nile.Database) -> None:
    table = pa.table({"k": ["a", "b"], "n": [1, 2]})
    pq.write_table(table, tmp_path / "t.parquet")
    pyarrow.csv.write_csv(table, tmp_path / "t.csv")
    one, other = f"read_parquet('{tmp_path}/t.parquet')", f"read_csv( '{tmp_path}/t.csv' )"
    assert db.sql(f"SELECT sum(n) FROM {one}").fetchall() == [(3,)]
    joined = f"SELECT t.k, u.n FROM {one} AS t JOIN {other} u ON t.k = u.k ORDER BY t.k"
    assert db.sql(joined).fetchall() == [("a", 1), ("b", 2)]
    with pytest.raises(nile.SqlError, match=r"got read_csv\(\); name the file itself: FROM 'sales.parquet'"):
        db.sql("SELECT * FROM read_csv('t.csv', sep=';')")
    with pytest.raises(nile.SqlError, match="column 8: needed a column of t"):
        db.sql(f"SELECT 1, x FROM {one}".replace("1, x", "x"))


def test_a_frame_of_ones_own_is_registered_first(db: nile.Database) -> None:
    with pytest.raises(
        nile.SqlError, match=r"needed a stream or relation \(s\); got 'frame'; register it first: db.register"
    ):
        db.sql("SELECT k FROM frame")


@pytest.mark.parametrize(
    ("name", "here"), [("df", "to_pandas()"), ("pl", "to_polars()"), ("to_csv", "write_csv(path)"), ("nothing", None)]
)
def test_a_name_of_duckdb_or_pandas_is_answered_with_ours(db: nile.Database, name: str, here: str | None) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(db.sql("SELECT k FROM s"), name)
    assert f"has no attribute '{name}'" in str(raised.value)
    assert str(raised.value).endswith(f"; write {here}" if here else f"{name}'")


def test_a_limit_of_a_result_reads_no_further(db: nile.Database) -> None:
    result = db.sql("SELECT k, v FROM s WHERE v > 1")
    assert result.limit(2).fetchall() == result.fetchall()[:2]
    assert result.limit(2).limit(5).fetchall() == result.fetchall()[:2]
    assert result.limit(0).fetchall() == []
    assert db.sql("SHOW TABLES").limit(1).fetchone() is not None
    left = []

    def batches() -> Iterator[pa.RecordBatch]:
        for at in range(10):
            left.append(at)
            yield pa.record_batch({"ts": [float(at)] * 65_536, "k": [at] * 65_536})

    db.register("many", batches(), time="ts")
    assert db.sql("SELECT k FROM many").limit(3).fetchall() == [(0,)] * 3
    assert len(left) < 5
    with pytest.raises(nile.ConfigError, match="needed a query and a number of rows; got 'three'"):
        result.limit("three")  # type: ignore[arg-type]


def test_a_limit_of_a_result_with_a_preference_gives_the_most_promising(db: nile.Database) -> None:
    text = "SELECT a.k, a.v, b.v AS w FROM s a, s b WHERE a.k = b.k WITH PREFERENCE desc a.k WINDOW 10"
    assert db.sql(text).limit(3).fetchall() == db.sql(text + " LIMIT 3").fetchall()


def test_a_budget_that_reads_like_a_percentage_is_pointed_out(db: nile.Database) -> None:
    query = db.join("s", "s", on="k", window=10).prefer("desc")
    with pytest.warns(
        nile.CostWarning, match="10 is 10 times the work of the exact answer; for 10 % write '10 %' or 0.1"
    ):
        query.run(budget=10)


def test_of_a_table_that_does_not_fit_titles_are_cut_before_times_are(
    db: nile.Database, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    db.join("s", "s", on="k", window=10).run().show(1)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[4].count("1970-01-01 00:00:00") == 2
    assert "…" not in lines[4]


def test_a_query_step_by_step_shows_itself_and_filters(db: nile.Database, capsys: pytest.CaptureFixture[str]) -> None:
    db.query("s").filter("k = 'a'").select("v").show()
    assert [line.strip("│ ") for line in capsys.readouterr().out.splitlines()[-3:-1]] == ["1", "3"]


def test_rows_are_dicts_without_pandas_where_times_have_nanoseconds() -> None:
    program = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "pandas":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import nile
db = nile.connect().register("a", [{"ts": 1.0, "k": 1}, {"ts": 9.0, "k": 2}], time="ts")
gone = db.sql("SELECT k FROM a WINDOW 2", emit="changes")
told = [(str(row["_ts"]), row["_sign"], row["k"]) for row in gone.to_pylist()]
assert told == [(str(row["_ts"]), row["_sign"], row["k"]) for row in nile.rows(gone.batches())]
print(told)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    told = [("1970-01-01 00:00:01", 1, 1), ("1970-01-01 00:00:03", -1, 1), ("1970-01-01 00:00:09", 1, 2)]
    assert done.stdout.strip().startswith(str(told)[:-1])


def test_frames_of_polars_are_pushed(db: nile.Database) -> None:
    polars = pytest.importorskip("polars")
    db.stream("live", pa.schema([("ts", pa.float64()), ("k", pa.int64())]), time="ts")
    db.push("live", polars.DataFrame({"ts": [1.0, 2.0], "k": [3, 4]}))
    with pytest.raises(nile.UnknownColumn, match="got 'other' too"):
        db.push("live", polars.DataFrame({"ts": [3.0], "k": [5], "other": [0]}))
    assert db.sql("SELECT k FROM live").fetchall() == [(3,), (4,)]


def test_a_name_is_copied_whole(tmp_path: Path, db: nile.Database) -> None:
    told = db.sql(f"COPY s TO '{tmp_path}/s.parquet'").fetchall()
    assert told[0][0].startswith("4 rows written")
    assert pq.read_table(tmp_path / "s.parquet").column("v").to_pylist() == ROWS["v"]
    with pytest.raises(nile.SqlError):
        db.sql(f"COPY s TO '{tmp_path}/t.parquet'", files=False)


def test_keys_that_are_no_names_are_refused(db: nile.Database) -> None:
    with pytest.raises(nile.ConfigError, match=r"needed names of columns; got \('k', 'k'\); .* write left_on="):
        db.join("s", "s AS t", on=[("k", "k"), ("v", "v")], window=1)


def test_a_fade_factor_without_a_budget_says_that_it_orders_nothing(db: nile.Database) -> None:
    text = "SELECT a.v, b.v AS w FROM s a, s b WHERE a.k = b.k WITH PREFERENCE desc a.k FADE FACTOR 0.5 WINDOW 5"
    (plan,) = db.sql("EXPLAIN " + text).fetchall()[0]
    assert "a fade factor orders the work inside a budget, not the whole answer" in plan
    result = db.sql(text)
    assert result.to_arrow().num_rows == 8
    assert any(told.startswith("order: fade factor 0.5 needed a budget") for told in result.warnings)
    assert not db.sql(text.replace("FADE FACTOR 0.5 ", "")).warnings
