"""Joins and window functions over more rows than memory holds: rows, order and bits as without a limit."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from judge import fresh_duckdb
from thinning import thinned

import nile

ROOM = 200_000
"""Bytes that an answer may take here: an operator works on an eighth, some 300 rows."""


def table(rows: int, seed: int, keys: int) -> pa.Table:
    """Keys of few values and of many, some null; one of them in a third of all rows; times that repeat."""
    rng = np.random.default_rng(seed)
    key = np.where(rng.random(rows) < 0.02, -7, rng.integers(0, keys, rows))
    return pa.table(
        {
            "t": np.sort(rng.integers(0, rows, rows)),
            "k": pa.array(key, mask=rng.random(rows) < 0.03),
            "s": [f"x{v}" if v % 7 else None for v in rng.integers(0, 60, rows)],
            "d": pa.array(rng.integers(0, 40, rows)).cast(pa.int32()),
            "f": rng.normal(size=rows) * 10.0 ** rng.integers(-8, 8, rows),
        }
    )


TABLES = {"a": table(3_000, 1, 2_000), "b": table(2_000, 2, 2_500), "empty": table(0, 3, 1), "few": table(40, 4, 9)}


def opened(memory: str | None = None, *, timed: str = "abef") -> nile.Database:
    db = nile.connect(memory=memory)
    for name, rows in TABLES.items():
        db.register(name, rows, time="t" if name[0] in timed else None)
    return db


def same(one: pa.Table, other: pa.Table) -> bool:
    """Whether rows, their order, their types and the signs of zeros are the same."""
    return one.schema == other.schema and repr(one.to_pydict()) == repr(other.to_pydict())


def compared(text: str, monkeypatch: pytest.MonkeyPatch, timed: str = "abef") -> int:
    """The same rows in the same order with a limit as without; bytes that were written."""
    wanted = opened(timed=timed).sql(text).to_arrow()
    monkeypatch.setattr("nile.engine.connect.LEAST_ROOM", ROOM)
    answer = opened(f"{ROOM}", timed=timed).sql(text)
    found = pa.Table.from_batches(list(answer.batches()), answer.schema)
    assert same(found, wanted), f"{text}: {found.num_rows} rows, must be {wanted.num_rows}"
    return answer.spilled_bytes


KINDS = ("LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
ON = ("a.k = b.k", "a.k = b.k AND a.d = b.d", "a.s = b.s AND a.f < b.f AND b.d < 3", "a.k = b.k AND a.f < b.f")
TIMED = ("abef", "", "aef", "bef")


@pytest.mark.parametrize(("kind", "on", "timed"), [
    pytest.param(*case, marks=() if n % 7 == 0 else pytest.mark.slow)
    for n, case in enumerate(itertools.product(KINDS, ON, TIMED))
])  # fmt: skip
def test_outer_joins(kind: str, on: str, timed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"SELECT a.t, b.t AS u, a.k, b.k AS l, a.s, b.f FROM a {kind} b ON {on}"
    assert compared(text, monkeypatch, timed) > 0


@pytest.mark.parametrize("text", [
    "SELECT t, f FROM a WHERE k IN (SELECT k FROM b)",
    "SELECT t, f FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE a.k = b.k)",
    "SELECT t, f FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE a.k = b.k AND a.f < b.f)",
    "SELECT t, f FROM a WHERE EXISTS (SELECT 1 FROM b WHERE a.s = b.s AND a.f < b.f)",
    "SELECT t, f FROM a WHERE d = 3 OR k IN (SELECT k FROM b)",
    "SELECT x.t, y.t AS u FROM a x LEFT JOIN a y ON x.k = y.k AND x.t < y.t",
    "SELECT a.t, e.t AS u FROM a LEFT JOIN empty e ON a.k = e.k",
    "SELECT a.t, e.t AS u FROM empty e FULL JOIN a ON a.k = e.k",
    "SELECT a.t, e.t AS u FROM a LEFT JOIN few e ON a.d = e.d",
    "SELECT a.k, b.d, c.f FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN a c ON b.k = c.k AND b.d = c.d",
    "SELECT a.t, b.t AS u FROM a LEFT JOIN b ON a.k = b.k LIMIT 7 OFFSET 3",
    "SELECT DISTINCT a.d, b.d AS e FROM a, b WHERE a.k = b.k",
    "SELECT a.t, b.t AS u FROM a, b WHERE a.k = b.k AND a.s = b.s ORDER BY a.f",
    "SELECT q.t, row_number() OVER (PARTITION BY q.k) AS r FROM (SELECT a.t, a.k FROM a, b WHERE a.k = b.k) q",
    "SELECT a.d, sum(a.f * b.f) AS s, median(b.f) AS m FROM a, b WHERE a.k = b.k GROUP BY a.d",
    "SELECT a.d, sum(a.f * b.f) AS s, count(*) AS n FROM a LEFT JOIN b ON a.k = b.k GROUP BY a.d",
])  # fmt: skip
@pytest.mark.parametrize("timed", ["abef", pytest.param("", marks=pytest.mark.slow)])
def test_other_joins(text: str, timed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compared(text, monkeypatch, timed) > 0


THREE = [
    # of one key, of several, with conditions over two and three inputs, below each clause
    "SELECT a.t, b.t AS u, c.t AS v, row_number() OVER () AS r FROM a, b, a c WHERE a.k = b.k AND b.k = c.k AND "
    "a.k > 0",
    "SELECT a.t, b.t AS u, c.t AS v, e.t AS w, row_number() OVER () AS r FROM a, b, few c, few e WHERE a.k = b.k "
    "AND b.k = c.k AND c.k = e.k",
    "SELECT sum(a.f * b.f * c.f) AS s, count(*) AS n FROM a, b, a c WHERE a.k = b.k AND c.k = a.k AND a.f < c.f "
    "AND a.k > 0",
    "SELECT a.d, sum(a.f * c.f) AS s, first(b.t) AS u FROM a, b, few c WHERE a.k = b.k AND b.d = c.d AND a.k > 0 "
    "GROUP BY a.d",
    "SELECT DISTINCT a.d, c.d AS f FROM a, b, few c WHERE a.k = b.k AND b.d = c.d AND a.f < b.f + c.f AND a.k > 0",
    "SELECT a.t, row_number() OVER (ORDER BY b.f) AS r FROM a, b, few c WHERE a.k = b.k AND a.d = c.d AND b.f < c.f "
    "AND a.k > 0",
    "SELECT DISTINCT a.t FROM a, b, few c, few e WHERE a.k = b.k AND b.d = c.d AND c.k = e.k AND a.d = e.d",
]


WITHOUT_A_KEY = [
    # all rows with all; conditions; equal once worked out; outer joins; chosen rows; three; below other clauses
    "SELECT a.t, e.t AS u FROM a, few e WHERE e.d > 33",
    "SELECT a.t, b.t AS u, a.f FROM a, b WHERE CAST(a.k AS DOUBLE) = b.k + 0.0 AND a.d < b.d",
    "SELECT a.t, e.t AS u FROM few e, a WHERE a.f * 1e3 < e.f",
    "SELECT a.t, b.t AS u FROM a, b WHERE a.k + 1 = b.k * 2 LIMIT 40 OFFSET 7",
    "SELECT a.t, b.t AS u FROM a LEFT JOIN b ON a.f + 1e7 < b.f AND b.d = 4",
    "SELECT a.t, e.t AS u FROM few e FULL JOIN a ON e.k * 1.0 = a.k / 2 AND a.f < e.f",
    "SELECT a.t, e.t AS u FROM a RIGHT JOIN few e ON a.f + 1e7 < e.f",
    "SELECT t FROM a WHERE EXISTS (SELECT 1 FROM b WHERE a.f + 1e7 < b.f AND b.d = 4)",
    "SELECT t FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE a.k * 1.0 = b.k + 1.0)",
    "SELECT a.t, b.t AS u, c.t AS v FROM a, b, few c WHERE a.k = b.k AND a.f * 1e3 < c.f AND c.d > 35",
    "SELECT a.t, b.t AS u, c.t AS v FROM few a, few b, a c WHERE a.f < b.f AND c.f < -1e7 AND c.d < b.d",
    "SELECT a.d, count(*) AS n, sum(a.f * e.f) AS s FROM a, few e WHERE a.f + 1e6 < e.f GROUP BY a.d",
    "SELECT count(*) AS n, sum(a.d) AS s FROM a, b, few c WHERE c.k = 3",
    "SELECT a.t FROM a, empty e WHERE a.f < e.f",
]


@pytest.mark.parametrize("text", thinned(THREE, 3) + thinned(WITHOUT_A_KEY, 3))
@pytest.mark.parametrize("timed", ["abef", "", pytest.param("bef", marks=pytest.mark.slow)])
def test_joins_of_three_and_more_or_without_an_equal_key(
    text: str, timed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compared(text, monkeypatch, timed) > 0


@pytest.mark.parametrize("text", WITHOUT_A_KEY[1:10:2])
def test_joins_without_an_equal_key_as_duckdb_has_them(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nile.engine.connect.LEAST_ROOM", ROOM)
    db = fresh_duckdb()
    for name, rows in TABLES.items():
        db.register(name, rows)
    text = text.replace(" LIMIT 40 OFFSET 7", "")
    answer = opened(f"{ROOM}").sql(text)
    found = [tuple(row.values()) for batch in answer.batches() for row in batch.to_pylist()]
    assert sorted(map(repr, found)) == sorted(map(repr, db.sql(text).fetchall()))


def test_keys_of_different_widths_and_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubles and text are parted though their types differ, times of two units are joined block by block."""
    rng = np.random.default_rng(6)
    n = 1_500
    whole, halves = np.arange(n), rng.integers(0, n, n) / 2
    one = pa.table({"f": halves, "s": [f"x{v}" for v in halves], "w": pa.array(whole).cast(pa.timestamp("s"))})
    other = pa.table({
        "g": halves[::-1].astype(np.float32), "s": pa.array([f"x{v}" for v in halves[::-1]], pa.large_string()),
        "w": pa.array(whole[::-1] * 1_000).cast(pa.timestamp("ms")),
    })  # fmt: skip
    texts = [f"SELECT p.f, q.g, p.w, q.w AS v FROM p {kind} JOIN q ON {on}"
             for kind in ("INNER", "LEFT") for on in ("p.f = q.g", "p.s = q.s", "p.w = q.w")]  # fmt: skip
    for text in texts:
        wanted = nile.connect().register("p", one).register("q", other).sql(text).to_arrow()
        assert wanted.num_rows > n / 2
        with monkeypatch.context() as patch:
            patch.setattr("nile.engine.connect.LEAST_ROOM", ROOM)
            answer = nile.connect(memory=f"{ROOM}").register("p", one).register("q", other).sql(text)
            found = pa.Table.from_batches(list(answer.batches()), answer.schema)
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist())), text
        assert answer.spilled_bytes > 0


def test_more_candidates_than_memory_are_looked_at_one_chunk_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine million pairs of rows, of which three meet the condition: none of them is refused for the others."""
    rows = pa.table({"v": np.arange(3_000)})
    monkeypatch.setattr("nile.engine.connect.LEAST_ROOM", 1 << 20)
    db = nile.connect(memory="1MB").register("p", rows).register("q", rows)
    assert db.sql("SELECT p.v, q.v AS w FROM p, q WHERE p.v + 2997 <= q.v ORDER BY p.v, q.v").fetchall() == [
        (0, 2997), (0, 2998), (0, 2999), (1, 2998), (1, 2999), (2, 2999)
    ]  # fmt: skip
    assert db.sql("SELECT p.v FROM p, q WHERE p.v + 2999 <= q.v").fetchall() == [(0,)]
    with pytest.raises(nile.MemoryRefused, match=r"9,000,000 rows need about .* allows an answer"):
        db.sql("SELECT p.v, q.v AS w FROM p, q").to_arrow()


def test_inputs_that_fit_are_joined_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of few rows beside many of another source: nothing is written for their join."""
    pairs = "SELECT e.t, x.t AS u FROM few e LEFT JOIN few x ON e.k = x.k AND e.f < x.f"
    assert compared(f"{pairs} UNION ALL SELECT t, t AS u FROM a", monkeypatch) == 0


def test_one_key_of_many_rows_is_joined_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row of one key, in one input or in both: no part of it fits."""
    many = pa.table({"t": range(2_000), "k": pa.array([5] * 2_000), "v": range(2_000)})
    some = pa.table({"t": range(40), "k": pa.array([5] * 30 + [None] * 5 + [7] * 5), "w": range(40)})

    def database(memory: str | None) -> nile.Database:
        return nile.connect(memory=memory).register("m", many).register("n", some).register("l", many, time="t")

    texts = [f"SELECT m.v, n.w FROM m {kind} n ON m.k = n.k AND n.w > 27" for kind in KINDS]
    texts.append("SELECT m.v FROM m WHERE NOT EXISTS (SELECT 1 FROM l WHERE l.k = m.k AND l.v + 1999 < m.v)")
    texts.append("SELECT x.v, y.v AS w FROM l x FULL JOIN l y ON x.k = y.k AND x.v + 1998 < y.v")
    for text in texts:
        wanted = database(None).sql(text).to_arrow()
        with monkeypatch.context() as patch:
            patch.setattr("nile.engine.connect.LEAST_ROOM", ROOM)
            answer = database(f"{ROOM}").sql(text)
            found = pa.Table.from_batches(list(answer.batches()), answer.schema)
        assert same(found, wanted), text
        assert answer.spilled_bytes > 0


COUNTED = [
    "SELECT count(*) AS n FROM a, b WHERE a.k = b.k",
    "SELECT a.d, count(*) AS n, sum(a.f) AS s, min(b.f) AS lo, avg(b.d) AS m FROM a, b WHERE a.k = b.k GROUP BY a.d",
    "SELECT count(*) AS n, sum(a.f) AS s, median(b.f) AS md, stddev(a.f) AS sd, count(DISTINCT b.s) AS ds, "
    "max(a.s) AS ms, sum(b.d) AS bd, quantile_disc(a.f, 0.3) AS q FROM a, b WHERE a.k = b.k",
    "SELECT a.k, count(*) AS n, sum(b.f) AS s, count(b.s) AS c FROM a, b, few c WHERE a.k = b.k AND b.k = c.k "
    "GROUP BY a.k",
    "SELECT count(*) AS n, sum(b.d) AS s FROM a, b",
    "SELECT count(*) AS n, sum(b.d) AS s FROM a, b WHERE a.k = b.k AND a.k + 0 < -100",
    "SELECT a.s FROM a, b WHERE a.k = b.k AND a.d = b.d GROUP BY a.s",
    "SELECT a.k, sum(b.k) AS n FROM a, b WHERE a.k = b.d GROUP BY a.k",  # int64 and int32
]


@pytest.mark.parametrize("text", COUNTED)
@pytest.mark.parametrize("timed", ["abef", pytest.param("", marks=pytest.mark.slow)])
def test_groups_that_count_pairs(text: str, timed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compared(text, monkeypatch, timed) > 0


def test_pairs_of_one_key_are_counted_and_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """400 million pairs of whole numbers beyond 64 bits together: of their sums only what is told must fit."""
    rng = np.random.default_rng(5)
    n = 20_000
    rows = pa.table({"k": np.zeros(n, np.int64), "v": rng.integers(0, 1 << 40, n), "f": rng.normal(size=n)})
    text = "SELECT count(*) AS n, avg(x.v) AS a, sum(x.f) AS s, var_pop(y.f) AS v, median(x.v) AS m "
    text += "FROM r x, r y WHERE x.k = y.k"
    wanted = nile.connect().register("r", rows).sql(text).to_arrow()
    monkeypatch.setattr("nile.engine.connect.LEAST_ROOM", ROOM)
    answer = nile.connect(memory=f"{ROOM}").register("r", rows).sql(text)
    assert same(pa.Table.from_batches(list(answer.batches()), answer.schema), wanted)
    assert answer.spilled_bytes > 0
    with pytest.raises(nile.SumOverflow, match="within 64 bits"):
        nile.connect(memory=f"{ROOM}").register("r", rows).sql(text.replace("avg", "sum")).fetchall()
