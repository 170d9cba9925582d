"""Exact SQL against DuckDB on random queries and data, for each emit mode."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from sql_random import RandomQuery, cell, query, tables

import nile

_SECOND = 1_000_000_000


def rows_of(table: Any) -> Counter[tuple[Any, ...]]:
    columns = [[cell(value) for value in column.to_pylist()] for column in table.columns]
    return Counter(zip(*columns, strict=True))


def asked(connection: Any, text: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(cell(value) for value in row) for row in connection.execute(text).fetchall())


def state_at(changes: Any, instant: int) -> Counter[tuple[Any, ...]]:
    """The changes up to an instant, added up."""
    kept: Counter[tuple[Any, ...]] = Counter()
    times = changes.column("_ts").cast("int64").to_pylist()
    signs = changes.column("_sign").to_pylist()
    columns = [[cell(value) for value in column.to_pylist()] for column in changes.columns[2:]]
    for ts, sign, *row in zip(times, signs, *columns, strict=True):
        if ts <= instant * _SECOND:
            kept[tuple(row)] += sign
    assert min(kept.values(), default=0) >= 0
    return +kept


def check(db: nile.Database, connection: Any, asking: RandomQuery, emit: str, times: list[int]) -> None:
    text = asking.nile()
    last = max(times)
    if emit == "append":
        found, wanted = rows_of(db.sql(text, emit=emit).to_arrow()), asked(connection, asking.appended())
        assert found == wanted, f"append: {text}"
    elif emit == "snapshot":
        found, wanted = rows_of(db.sql(text, emit=emit).to_arrow()), asked(connection, asking.at(last))
        assert found == wanted, f"snapshot: {text}"
    else:
        changes = db.sql(text, emit=emit).to_arrow()
        for instant in times:
            found, wanted = state_at(changes, instant), asked(connection, asking.at(instant))
            assert found == wanted, f"changes at {instant}: {text}"


def cases(seed: int, count: int) -> Iterator[tuple[Any, Any, RandomQuery, str, list[int]]]:
    """(database, DuckDB, query, emit, instants), with new data every ten queries."""
    rng = random.Random(seed)
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    db = nile.connect()
    emits = {"rows": ["append", "snapshot", "changes"], "join": ["append", "snapshot", "changes"]}
    number = 0
    while number < count:
        if number % 10 == 0:
            data = tables(rng, rng.choice([8, 20, 40]))
            for name, table in data.items():
                connection.register(name, table)
                db.register(name, table, time=None if name == "r" else "ts", replace=True)
        emit = rng.choice(["append", "snapshot", "changes"])
        made = query(rng, running=emit == "changes")
        emit = emit if emit in emits.get(made.kind, ["snapshot", "changes"]) else "snapshot"
        streams = {table for table, _ in made.inputs if table != "r"}
        times = sorted({at for name in streams for at in data[name]["ts"].to_pylist()})
        if not times:
            continue
        number += 1
        some = sorted({times[0], times[-1], *(rng.choice(times) for _ in range(2))})
        yield db, connection, made, emit, some


def run(seed: int, count: int) -> list[str]:
    """What differed, of `count` random queries."""
    failed = []
    done = 0
    for db, connection, made, emit, times in cases(seed, count):
        done += 1
        try:
            check(db, connection, made, emit, times)
        except AssertionError as error:
            failed.append(str(error))
        except nile.NileError as error:
            failed.append(f"{type(error).__name__}: {error}\n  {emit}: {made.nile()}")
    assert done == count
    return failed


def test_random_queries_give_the_rows_that_duckdb_gives() -> None:
    failed = run(20260101, 220)
    assert failed == [], "\n".join(failed[:10])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_many_random_queries_give_the_rows_that_duckdb_gives(seed: int) -> None:
    failed = run(seed, 260)
    assert failed == [], "\n".join(failed[:10])
