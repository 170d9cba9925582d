"""Joins that look at one column of eight bytes of each stream: pairs are told by its words, and as any others are."""

from __future__ import annotations

import datetime

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.exact.join import listed

ROWS, KEYS = 4_000, 60


def _stream(seed: int, kind: pa.DataType, nulls: bool) -> pa.Table:
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 10**6, ROWS)
    values = pa.array(words + 0.5) if kind == pa.float64() else pa.array(words).cast(kind)
    if nulls:
        values = pa.compute.if_else(pa.array(rng.random(ROWS) < 0.9), values, None)
    ts = pa.array(np.sort(rng.integers(0, 10**12, ROWS))).cast(pa.timestamp("ns"))
    return pa.table({"ts": ts, "k": rng.integers(0, KEYS, ROWS), "v": values})


@pytest.mark.parametrize("kind", [pa.float64(), pa.int64(), pa.timestamp("us"), pa.int32()], ids=str)
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("where", ["", " AND a.v < b.v"])
def test_one_column_of_each_stream_is_told_as_duckdb_finds_it(
    monkeypatch: pytest.MonkeyPatch, kind: pa.DataType, nulls: bool, where: str
) -> None:
    tables = [_stream(seed, kind, nulls) for seed in (1, 2)]
    told = []
    monkeypatch.setattr(listed.Words, "counted", lambda self, own=listed.Words.counted: told.append(self) or own(self))
    for window in (10, 10_000):
        with nile.connect() as db, duckdb.connect() as judge:
            for name, table in zip("ab", tables, strict=True):
                db.register(name, table, time="ts")
                judge.register(name, table)
            found = db.sql(f"SELECT a.v AS x, b.v AS y FROM a, b WHERE a.k = b.k{where} WINDOW '{window} s'").to_arrow()
            near = f"abs(epoch_ns(a.ts) - epoch_ns(b.ts)) <= {window * 10**9}"
            expected = judge.sql(f"SELECT a.v, b.v FROM a JOIN b ON a.k = b.k AND {near}{where}").fetchall()
        assert found.num_rows == len(expected) > 0
        assert found.schema.types == [kind, kind]
        assert sorted(_rows(found), key=str) == sorted(expected, key=str)
    assert bool(told) == (not nulls and kind.bit_width == 64)


def _rows(table: pa.Table) -> list[tuple[float | datetime.datetime | None, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
