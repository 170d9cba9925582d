"""Every aggregate in every way of asking: an answer that equals DuckDB's, or the reason why there is none."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from spark_stand_in import StandIn
from workload_lake import write_lake

import nile
from nile.aggregates.catalogue import CATALOGUE, RUNNING
from nile.spark.scan import groups
from nile.spark.scan import scan as scan_module

ROWS = 700
Rows = list[tuple[Any, ...]]


def table() -> pa.Table:
    """ts: seconds, rising; g: the group; n: whole; v: with ties and -0.0; both with nulls."""
    rng = random.Random(20)
    return pa.table(
        {
            "g": pa.array([rng.choice("abc") for _ in range(ROWS)]),
            "ts": pa.array([at * 1_000_000 for at in range(ROWS)], pa.timestamp("us")),
            "n": pa.array([rng.choice([None, *range(-4, 9)]) for _ in range(ROWS)], pa.int64()),
            "v": pa.array([rng.choice([None, -0.0, 0.25, rng.gauss(3, 40)]) for _ in range(ROWS)], pa.float64()),
        }
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[nile.Database]:
    """The same rows as a stream s and as one of a lake."""
    data = table()
    root: Path = tmp_path_factory.mktemp("everywhere")
    columns = {name: data.column(name).combine_chunks() for name in ("g", "n", "v")}
    write_lake(root, "lake", np.arange(ROWS) * 10**9, columns)
    with nile.connect() as db:
        db.register("s", data, time="ts")
        db.register("lake", root / "lake")
        yield db


def plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def one_shot(db: nile.Database, what: str) -> Rows:
    return db.sql(f"SELECT g, {what} FROM s GROUP BY g").fetchall()


def snapshot(db: nile.Database, what: str) -> Rows:
    return db.sql(f"SELECT g, {what} FROM s GROUP BY g WINDOW {ROWS}", emit="snapshot").fetchall()


def changes(_: nile.Database, what: str) -> Rows:
    """What a standing query has told by the time of the last row."""
    db, data = nile.connect(), table()
    db.stream("live", data.schema, time="ts")
    standing = db.subscribe(f"SELECT g, {what} FROM live GROUP BY g WINDOW {ROWS}", emit="changes")
    for at in range(0, ROWS, 170):
        db.push("live", data.slice(at, 170))
    db.advance(ROWS - 0.5, "live")
    told: Counter[tuple[Any, ...]] = Counter()
    for batch in standing.poll():
        for row in batch.to_pylist():
            told[tuple(plain(value) for name, value in row.items() if not name.startswith("_"))] += row["_sign"]
    assert all(times in (0, 1) for times in told.values())
    return [row for row, times in told.items() if times]


def progress(db: nile.Database, what: str) -> Rows:
    *_, last = db.sql(f"SELECT g, {what} FROM s GROUP BY g").progress(every=0)
    return [tuple(row.values()) for row in last.to_arrow().to_pylist()]


def spark(db: nile.Database, what: str) -> Rows:
    return db.sql(f"SELECT g, {what} FROM lake GROUP BY g", engine="spark").fetchall()


WAYS: dict[str, Callable[[nile.Database, str], Rows]] = {
    "one-shot": one_shot, "standing snapshot": snapshot, "standing changes": changes, "progress": progress,
    "spark": spark,
}  # fmt: skip


def asked() -> Iterator[Any]:
    """Calls, with the ways that refuse them and what they say."""
    for kind in CATALOGUE.values():
        for column in ("n", "v"):
            if kind.sql is None or (kind.gives == "text" and column == "v"):
                continue
            if kind.is_collected:
                call = f"{kind.sql}({column}{(', v' if column == 'n' else ', n') if kind.argument else ''})"
                yield pytest.param(call, {"progress": "in the order of rows", "spark": f"got {kind.name}"}, id=call)
                continue
            for share in (0.0, 0.3, 0.9) if kind.argument else (None,):
                inner = column if share is None else f"{column}, {share}"
                yield pytest.param(f"{kind.sql}({inner})", {}, id=f"{kind.sql}({inner})")
    refused = {"progress": "the number of distinct values", "spark": "of DISTINCT values"}
    yield pytest.param("count(*)", {}, id="count(*)")
    yield pytest.param("count(DISTINCT n)", {"progress": refused["progress"]}, id="count(DISTINCT n)")
    yield pytest.param("avg(DISTINCT v), max(n)", refused, id="DISTINCT beside another")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("what", "refused"), list(asked()))
def test_every_aggregate_equals_duckdb_or_says_why_not(
    world: nile.Database, what: str, refused: dict[str, str], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_module, "spark_session", lambda: StandIn(random.Random(0)))
    if way in refused:
        with pytest.raises(nile.NileError, match=refused[way]):
            WAYS[way](world, what)
        return
    s = table()
    assert s.num_rows == ROWS
    theirs = duckdb.sql(f"SELECT g, {what} FROM s GROUP BY g ORDER BY g").fetchall()
    mine = sorted(WAYS[way](world, what))
    assert len(mine) == len(theirs)
    for one, other in zip(mine, theirs, strict=True):
        assert one[0] == other[0]
        if not isinstance(other[1], int | float):
            assert plain(one[1]) == plain(other[1])
        else:
            assert one[1:] == pytest.approx(other[1:], rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", [name for name, kind in CATALOGUE.items() if kind.is_set])
def test_sets_have_no_name_in_sql_and_say_so(world: nile.Database, name: str) -> None:
    assert name not in RUNNING
    with pytest.raises(nile.NileError, match=name):
        world.sql(f"SELECT {name}(n) FROM s")


def test_a_partition_of_many_values_tells_evenly_spread_ones_and_the_truth_is_in_the_interval(
    world: nile.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_module, "spark_session", lambda: StandIn(random.Random(0)))
    monkeypatch.setattr(groups, "POINTS", 16)
    s = table()
    assert s.num_rows == ROWS
    for share in (0.05, 0.5, 0.9):
        call = f"quantile_cont(v, {share})"
        truth = duckdb.sql(f"SELECT {call} FROM s").fetchall()[0][0]
        *_, last = world.sql(f"SELECT {call} AS q FROM lake", engine="spark").progress(every=0)
        (told,) = last.estimates["q"]
        assert told.low <= truth <= told.high
        assert math.isfinite(told.low + told.high) or share != 0.5
        assert told.low < told.high
