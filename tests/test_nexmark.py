"""The Nexmark queries, at once and standing, against DuckDB."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import nile
from nile.experiments.benchmarks.nexmark.data import STREAMS, events
from nile.experiments.benchmarks.nexmark.queries import QUERIES
from nile.experiments.benchmarks.nexmark.run import SIDE, pushed, standing_text

COUNT = 3_000


def cells(row: Any) -> tuple[Any, ...]:
    """A row as both engines' answers are compared: numbers to nine digits, times without a zone."""
    return tuple(float(f"{each:.9g}") if isinstance(each, float | Decimal) else each for each in row)


def judged(name: str, tables: dict[str, pa.Table]) -> Counter[tuple[Any, ...]]:
    connection = duckdb.connect()
    for stream in STREAMS:
        connection.register(stream, tables[stream])
    connection.register("side_input", pa.table(SIDE))
    asked = QUERIES[name]
    return Counter(map(cells, connection.execute(asked.duckdb or asked.nile).fetchall()))


@pytest.mark.parametrize("name", QUERIES)
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
    "name", [name for name in QUERIES if "TUMBLE" in QUERIES[name].nile or "HOP" in QUERIES[name].nile]
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


@pytest.mark.parametrize("name", ["q3", "q4", "q6", "q9", "q17", "q18", "q19"])
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
