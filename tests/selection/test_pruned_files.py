"""Row groups that a query needs nothing of are not read; answers and accounts are as if they were."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nile
from nile.streams.files.parquet import ParquetSource

ROWS, GROUP = 4_000, 500


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many values of each column are decoded."""
    found: dict[str, int] = {}
    original = ParquetSource._read

    def counting(source: ParquetSource, file: Path, reader: Any, columns: list[str], *rest: Any) -> Iterator[list[Any]]:
        for arrays in original(source, file, reader, columns, *rest):
            for name, array in zip(columns, arrays, strict=True):
                found[name] = found.get(name, 0) + len(array)
            yield arrays

    monkeypatch.setattr(ParquetSource, "_read", counting)
    return found


def table(seed: int, *, disorder: int = 0) -> pa.Table:
    source = random.Random(seed)
    times = [(at + source.randrange(-disorder, disorder + 1)) * 1_000_000 for at in range(ROWS)]
    return pa.table(
        {
            "ts": pa.array([None if disorder and source.random() < 0.01 else at for at in times], pa.timestamp("us")),
            "n": pa.array([None if source.random() < 0.05 else at // 40 + source.randrange(9) for at in range(ROWS)]),
            "few": pa.array([f"w{at // 1_000}" if source.random() < 0.9 else None for at in range(ROWS)]),
            "many": pa.array([f"t{source.randrange(10**6):06d}" for _ in range(ROWS)]),
            "x": pa.array([float("nan") if at % 900 == 0 else at / 100 for at in range(ROWS)]),
            "none": pa.array([None if at < 2_000 else at for at in range(ROWS)], pa.int32()),
        }
    )


def condition(source: random.Random) -> str:
    n, x = source.randrange(110), source.randrange(45)
    return source.choice(
        (
            f"n < {n}", f"n = {n}", f"n BETWEEN {n} AND {n + 5}", f"x < {x}", f"x >= {x}", f"few = 'w{n % 5}'",
            f"none > {n * 40}", "none IS NULL", f"n IS NULL AND x < {x}", f"few IN ('w{n % 5}', 'w9')",
            f"ts >= TIMESTAMP '1970-01-01 00:{n % 60:02d}:00'", f"NOT (n >= {n}) OR few > 'w2'", "n > 1000",
            f"many < 't{n:03d}'", f"x = {x} OR none = {n * 40}",
        )
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["stream", "late stream", "relation"])
def test_answers_and_accounts_are_those_of_a_table(tmp_path: Path, seed: int, kind: str) -> None:
    source = random.Random(seed)
    rows = table(seed, disorder=20 if kind == "late stream" else 0)
    for at in range(3):
        folder = tmp_path / f"part={at}"
        folder.mkdir()
        pq.write_table(rows.slice(at * 1_400, 1_400), folder / "x.parquet", row_group_size=GROUP)
    part = pa.array([at // 1_400 for at in range(ROWS)])
    options: dict[str, Any] = {} if kind == "relation" else {"time": "ts"}
    if kind == "late stream":
        options["lateness"] = "8 s"
    for _ in range(6):
        where = {"where": condition(source)} if source.random() < 0.4 and kind != "relation" else {}
        asked = f"{condition(source)} AND {condition(source)}" if source.random() < 0.5 else condition(source)
        asked = source.choice((asked, f"({asked}) AND part <> 1", f"part = 2 OR {asked}"))
        window = "" if kind == "relation" else " WINDOW 9"
        found = []
        for data in (str(tmp_path), rows.append_column("part", part)):
            with nile.connect() as db:
                db.register("s", data, **options, **where)
                for query in (
                    f"SELECT n, few, many, x, part FROM s WHERE {asked}",
                    f"SELECT few, count(*) AS c, sum(n) AS t FROM s WHERE {asked} GROUP BY few",
                    f"SELECT many FROM s WHERE {asked} ORDER BY many LIMIT 5",
                    f"SELECT a.n, b.many FROM (SELECT n FROM s WHERE {asked}) AS a JOIN s AS b ON a.n = b.n "
                    f"WHERE b.x < 20{window}",
                ):
                    result = db.sql(query)
                    answer = sorted(map(repr, result.fetchall()))
                    found.append((query, answer, {name: each.as_dict() for name, each in result.accounting.items()}))
        assert found[:4] == found[4:], (where, asked)


def test_a_stream_reads_times_alone_of_what_cannot_be_asked_for(tmp_path: Path, read: dict[str, int]) -> None:
    file = tmp_path / "s.parquet"
    pq.write_table(table(1), file, row_group_size=GROUP)
    with nile.connect() as db:
        db.register("s", file, time="ts")
        query = "SELECT many, n FROM s WHERE n = 7"
        assert sorted(db.sql(query).fetchall()) == sorted(
            duckdb.sql(f"SELECT many, n FROM '{file}' WHERE n = 7").fetchall()
        )
    assert read == {"ts": ROWS, "many": GROUP, "n": GROUP}


def test_a_relation_reads_nothing_of_it_and_counts_its_rows(tmp_path: Path, read: dict[str, int]) -> None:
    file = tmp_path / "s.parquet"
    pq.write_table(table(1), file, row_group_size=GROUP)
    with nile.connect() as db:
        db.register("s", file)
        found = db.sql("SELECT many FROM s WHERE x BETWEEN 10 AND 11 AND few = 'w1'")
        rows = found.fetchall()
        assert found.accounting["s"].applied == ROWS
    assert sorted(rows) == sorted(
        duckdb.sql(f"SELECT many FROM '{file}' WHERE x BETWEEN 10 AND 11 AND few = 'w1'").fetchall()
    )
    assert read == {"many": GROUP, "x": GROUP, "few": GROUP}


def test_rows_that_do_not_belong_to_a_stream_are_not_read_at_all(tmp_path: Path, read: dict[str, int]) -> None:
    file = tmp_path / "s.parquet"
    pq.write_table(table(1, disorder=3), file, row_group_size=GROUP)
    with nile.connect() as db:
        db.register("s", file, time="ts", lateness="10 s", where="few = 'w3'")
        assert db.sql("SELECT count(*) AS n FROM s").fetchall()
    assert read == {"ts": 2 * GROUP, "few": 2 * GROUP}


def test_a_source_that_is_named_twice_is_read_for_both(tmp_path: Path, read: dict[str, int]) -> None:
    file = tmp_path / "s.parquet"
    pq.write_table(table(1), file, row_group_size=GROUP)
    with nile.connect() as db:
        db.register("s", file, time="ts")
        query = "SELECT a.n FROM s AS a JOIN s AS b ON a.few = b.few WHERE a.n = 7{} WINDOW 30"
        assert len(db.sql(query.format(" AND b.x > 39")).fetchall()) == 1
        assert read == {"ts": ROWS, "few": ROWS, "n": ROWS, "x": ROWS}  # of x > 39 no footer says no: NaN is above it
        read.clear()
        assert len(db.sql(query.format(" AND b.none > 3990")).fetchall()) == 0
        read.pop("ts", None)  # times are kept, where the file was not written too lately
        assert read == {"few": 2 * GROUP, "n": 2 * GROUP, "none": 2 * GROUP}
        read.clear()
        assert len(db.sql(query.format("")).fetchall()) > 0
        read.pop("ts", None)
        assert read == {"few": ROWS, "n": ROWS}


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_no_row_group_outside_every_window_is_read(tmp_path: Path, read: dict[str, int], unit: str) -> None:
    """A day beside a year: of the year, what lies within the window of the day."""
    rows = table(1)
    rows = rows.set_column(0, "ts", rows["ts"].cast(pa.timestamp(unit)))
    for at in range(2):
        folder = tmp_path / "year" / f"half={at}"
        folder.mkdir(parents=True)
        pq.write_table(rows.slice(at * 2_000, 2_000), folder / "x.parquet", row_group_size=GROUP)
    pq.write_table(rows.slice(1_100, 100), tmp_path / "day.parquet")
    time.sleep(0.15)  # what was written just now may still be written to
    queries = [
        "SELECT d.n, y.many FROM day AS d JOIN year AS y ON d.n = y.n WINDOW 50",
        "SELECT d.n, y.many, z.x FROM day AS d, year AS y, more AS z WHERE d.n = y.n AND y.n = z.n "
        "WINDOW (d, y) = 50 AND (y, z) = 20",
    ]
    found = []
    for kind in ("files", "tables"):
        with nile.connect() as db:
            db.register("day", tmp_path / "day.parquet" if kind == "files" else rows.slice(1_100, 100), time="ts")
            for name in ("year", "more"):
                db.register(name, tmp_path / "year" if kind == "files" else rows, time="ts")
            for query in queries:
                found.append(sorted(map(repr, db.sql(query).fetchall())))
                if kind == "files":
                    assert read.pop("many") == GROUP
                    read.clear()
    assert found[:2] == found[2:]
    assert min(map(len, found)) > 100
    with nile.connect() as db:
        db.register("day", tmp_path / "day.parquet", time="ts")
        db.register("year", tmp_path / "year", time="ts")
        first = len(db.sql(queries[0]).fetchall())
        later = rows.slice(3_000, 100)
        pq.write_table(later, tmp_path / "day.parquet")  # in place of that day
        assert len(db.sql(queries[0]).fetchall()) not in (0, first)
