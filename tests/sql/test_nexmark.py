"""The Nexmark queries, at once and standing, against DuckDB."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from judge import fresh_duckdb

import nile
from nile.experiments.benchmarks.nexmark.data import STREAMS, events
from nile.experiments.benchmarks.nexmark.queries import QUERIES
from nile.experiments.benchmarks.nexmark.run import BATCH_S, SIDE, pushed, standing_text

COUNT = 3_000


def cells(row: Any) -> tuple[Any, ...]:
    """A row as both engines' answers are compared: numbers to nine digits, times without a zone."""
    return tuple(float(f"{each:.9g}") if isinstance(each, float | Decimal) else each for each in row)


def judged(name: str, tables: dict[str, pa.Table]) -> Counter[tuple[Any, ...]]:
    connection = fresh_duckdb()
    for stream in STREAMS:
        connection.register(stream, tables[stream])
    connection.register("side_input", pa.table(SIDE))
    asked = QUERIES[name]
    return Counter(map(cells, connection.execute(asked.duckdb or asked.nile).fetchall()))


@pytest.mark.parametrize("name", [name for name in QUERIES if name != "q12"])
def test_a_query_over_all_events_is_what_duckdb_says(name: str) -> None:
    tables = events(COUNT, 1)
    wanted = judged(name, tables)
    with nile.connect() as db:
        for stream in STREAMS:
            db.register(stream, tables[stream], time="datetime")
        db.register("side_input", SIDE)
        found = db.sql(QUERIES[name].nile).to_arrow()
    assert wanted
    assert Counter(cells(row.values()) for row in found.to_pylist()) == wanted


@pytest.mark.parametrize(
    "name",
    [name for name in QUERIES if name != "q12" and ("TUMBLE" in QUERIES[name].nile or "HOP" in QUERIES[name].nile)],
)
def test_windows_of_fixed_bounds_stand_as_they_are_asked_at_once(name: str) -> None:
    tables = events(COUNT, 2)
    kept: Counter[tuple[Any, ...]] = Counter()
    for batch in pushed(name, tables)[1]:
        for row in batch.to_pylist():
            _, sign, *values = row.values()
            kept[cells(values)] += sign
    assert min(kept.values(), default=0) >= 0
    assert +kept == judged(name, tables)


@pytest.mark.parametrize("name", ["q3", "q4", "q6", "q9", "q11", "q17", "q18", "q19"])
def test_a_query_under_a_window_stands_as_it_runs_over_tables(name: str) -> None:
    tables = events(1_500, 3)
    kept: Counter[tuple[Any, ...]] = Counter()
    batches = pushed(name, tables)[1]
    signed = "_sign" in batches[0].schema.names
    end = max(table.column("datetime").to_pylist()[-1] for table in tables.values())
    for batch in batches:
        for row in batch.to_pylist():
            if signed and row["_ts"].to_pydatetime() > end:
                continue
            sign = row.pop("_sign", 1)
            row.pop("_ts", None)
            kept[cells(row.values())] += sign
    with nile.connect() as db:
        for stream in STREAMS:
            db.register(stream, tables[stream], time="datetime")
        emit = "snapshot" if signed else "append"
        whole = db.sql(standing_text(name), emit=emit).to_arrow()
    assert +kept == Counter(cells(row.values()) for row in whole.to_pylist())


def test_bids_are_counted_by_the_clock_that_stamps_them() -> None:
    """q12: each bid is of the ten seconds in which it was pushed, whatever it says itself."""
    tables = events(15_000, 4)
    begin = min(table.column("datetime").cast(pa.int64()).to_numpy().min() for table in tables.values())
    step, window = BATCH_S * 1_000_000, 10_000_000
    wanted: Counter[tuple[int, int]] = Counter()
    bids = tables["bid"]
    for bidder, at in zip(bids["bidder"].to_pylist(), bids["datetime"].cast(pa.int64()).to_pylist(), strict=True):
        pushed_at = begin + (at - begin) // step * step
        wanted[bidder, pushed_at // window * window + window] += 1
    kept: Counter[tuple[int, int, int]] = Counter()
    for batch in pushed("q12", tables)[1]:
        for row in batch.to_pylist():
            kept[row["bidder"], micros(row["window_end"]), row["n"]] += row["_sign"]
    assert +kept == Counter({(*key, n): 1 for key, n in wanted.items()})
    assert len({end for _, end in wanted}) > 1


def micros(time: datetime) -> int:
    return int((time - datetime(1970, 1, 1)).total_seconds() * 1_000_000)


def test_bids_are_written_to_the_files_of_their_minutes(tmp_path: Path) -> None:
    """q10, at once: DuckDB reads the folders back."""
    tables = events(COUNT, 5)
    with nile.connect() as db:
        db.register("bid", tables["bid"], time="datetime")
        for form in ("CSV", "PARQUET"):
            folder = tmp_path / form
            db.sql(f"COPY ({QUERIES['q10'].nile}) TO '{folder}' (FORMAT {form}, PARTITION_BY (day, minute))")
            assert list(folder.glob("day=2015*/minute=*/part-*"))
            read = f"read_{form.lower()}('{folder}/*/*/*', hive_partitioning = true)"
            columns = "auction, bidder, price, datetime, CAST(day AS BIGINT), CAST(minute AS BIGINT)"
            found = duckdb.sql(f"SELECT {columns} FROM {read}").fetchall()
            wanted = db.sql(QUERIES["q10"].nile).fetchall()
            assert Counter((*row[:3], row[3].replace(tzinfo=None), *row[4:]) for row in found) == Counter(wanted)
        with pytest.raises(nile.ConfigError, match="needed a folder that is not there yet"):
            db.sql(f"COPY ({QUERIES['q10'].nile}) TO '{tmp_path / 'CSV'}' (PARTITION_BY (day))")
