"""SELECT of pairs that are written key after key: times and keys told with them are those of the streams' columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.answers.join_outputs import Values

_N = 3_000
_GAP = 1_000_000_000


def _streams(kinds: tuple[pa.DataType, pa.DataType], time: pa.DataType) -> tuple[nile.Database, list[pa.Table]]:
    """Two streams of which some keys and times are null, registered as a and b, and what they are made of."""
    db, tables = nile.connect(), []
    for seed, (name, kind) in enumerate(zip("ab", kinds, strict=True)):
        rng = np.random.default_rng(seed)
        numbers = pa.array(rng.integers(-20, 20, _N), mask=rng.random(_N) < 0.05)
        ts = pa.array(np.arange(_N) * _GAP).cast(pa.timestamp("ns")).cast(time)
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        table = pa.table({"ts": ts, "k": numbers.cast(kind) if not text else numbers.cast(pa.string()).cast(kind),
                          "n": np.arange(_N)})  # fmt: skip
        tables.append(table)
        db.register(name, table, time="ts")
    return db, tables


_INT, _FLOAT, _TEXT, _LARGE = pa.int64(), pa.float64(), pa.string(), pa.large_string()
_AT = pa.timestamp("ns")


@pytest.mark.parametrize(
    "kinds",
    [(_INT, _INT), (_FLOAT, _FLOAT), (_TEXT, _TEXT), (_LARGE, _LARGE), (pa.int32(), _INT), (_AT, _AT)],
)
@pytest.mark.parametrize("time", [_AT, pa.timestamp("ns", "UTC"), pa.timestamp("us"), pa.timestamp("ns", "Asia/Tokyo")])
@pytest.mark.parametrize("strategy", ["counts", "keys", "prefix"])
def test_columns_of_pairs_are_those_of_their_tuples(
    kinds: tuple[pa.DataType, pa.DataType], time: pa.DataType, strategy: str
) -> None:
    db, tables = _streams(kinds, time)
    text = "SELECT a.n, b.n AS other, a.k, b.k AS again, a.ts, b.ts AS later FROM a, b WHERE a.k = b.k "
    answer = db.sql(
        text + "WITH PREFERENCE desc a.k WINDOW '30 s'",
        budget=nile.Budget(0.5), costs="machine", strategy=strategy,
    )  # fmt: skip
    assert all(each.tuples_in == each.applied + each.shed for each in answer.accounting.values())
    found = answer.to_arrow()
    assert found.num_rows > 100
    for side, columns in enumerate((("n", "k", "ts"), ("other", "again", "later"))):
        at = found.column(columns[0])
        for source, name in (("k", columns[1]), ("ts", columns[2])):
            wanted: Any = tables[side].column(source).take(at)
            assert found.column(name).cast(wanted.type).equals(wanted), name


def test_a_float_that_equals_another_keeps_the_sign_of_its_own_stream() -> None:
    db = nile.connect()
    for name, zero in (("a", 0.0), ("b", -0.0)):
        db.register(name, pa.table({"ts": pa.array(np.arange(400) * _GAP).cast(_AT), "k": [zero] * 400}), time="ts")
    found = db.sql(
        "SELECT a.k, b.k AS again FROM a, b WHERE a.k = b.k "
        "WITH PREFERENCE desc a.k WINDOW '30 s'",
        budget=nile.Budget(0.5), costs="machine", strategy="counts",
    ).to_arrow()  # fmt: skip
    assert found.num_rows
    assert not np.signbit(found.column("k").to_numpy()).any()
    assert np.signbit(found.column("again").to_numpy()).all()


def test_values_are_cut_as_outputs_are() -> None:
    told = Values(np.arange(5), pa.array(["a", "b", "c", "d", "e"]), pa.string()).part(slice(1, 3))
    assert told.ts is not None
    assert told.ts.tolist() == [1, 2]
    assert told.key.to_pylist() == ["b", "c"]
    assert Values().part(slice(1, 3)) == Values()
