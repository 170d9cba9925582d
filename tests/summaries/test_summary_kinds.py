"""CREATE SUMMARY ... USING a kind of summary: what reads it, what it is worth, what a store keeps of it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sql_catalog import CATALOG
from thinning import thinned

import nile
from nile.pyramid.grid.cells import CellManager
from nile.sql.reading_statements import read_statement
from nile.sql.statement_text import statement_text
from nile.summaries.hashing import hash_keys

KINDS = [
    "countsketch (columns = 64, rows = 3)", "countmin (columns = 256)", "exact", "histogram (bits = 20)",
    "wavelet (bits = 20)", "reservoir (capacity = 256)", "kll (k = 64)",
]  # fmt: skip
CERTAIN = KINDS[:5]
"""Their upper bounds are certain, so they tell where a key is not."""
WITH = "WITH GRANULARITY '10 min' AND COLLAPSE (4, 3)"
COUNT = "SELECT count(*) AS n, sum(price) AS p FROM s WHERE item = {} BUDGET 0.1"
JOIN = (
    "SELECT a.v, b.v FROM a, b WHERE a.k = b.k "
    "WITH PREFERENCE desc SUMMARY.Estimate.Count(a.k) WINDOW '200 s' BUDGET 0.1"
)


def sales(n: int = 12_000, seed: int = 3) -> pa.Table:
    """Key -1 comes in a burst of 100 and nowhere else."""
    draw = np.random.default_rng(seed)
    item = draw.zipf(1.3, n) % 2_000
    item[n // 2 : n // 2 + 100] = -1
    return pa.table({"ts": np.arange(n) * 0.5, "item": item, "price": draw.exponential(10.0, n)})


def live(kind: str) -> nile.Database:
    db = nile.connect()
    db.stream("s", sales().schema, time="ts")
    db.sql(f"CREATE SUMMARY m ON s (item) {WITH} USING {kind}")
    for part in sales().to_batches(max_chunksize=1_700):
        db.push("s", part)
    return db


def static(kind: str) -> nile.Database:
    db = nile.connect()
    db.register("s", sales(), time="ts")
    db.sql(f"CREATE SUMMARY m ON s (item) {WITH} USING {kind}")
    return db


def forget(manager: Any) -> None:
    """All counts 0, the zones as they are."""
    if isinstance(manager, CellManager):
        manager.zeroed()
    manager.store.side.counters[:] = 0


@pytest.mark.parametrize("connect", [static, live])
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_counts_what_the_stream_has(kind: str, connect: Any) -> None:
    db = connect(kind)
    manager = db.summary("m")
    values, counts = np.unique(sales()["item"].to_numpy(), return_counts=True)
    told = manager.estimate(hash_keys(pa.array(values)))
    inside = np.asarray(told.covers(counts)).mean()
    assert inside >= 0.95
    (row,) = db.sql("SHOW SUMMARIES").to_arrow().to_pylist()
    assert row["tuples"] == 12_000
    assert row["bytes"] > 0
    name = kind.split(" ")[0]
    assert row["sketch"].startswith("3 x" if name == "countsketch" else name)
    assert (name == "countsketch") == ("using" not in dict(db.sql("DESCRIBE m").fetchall()))


@pytest.mark.parametrize("connect", [static, live])
@pytest.mark.parametrize("kind", CERTAIN)
def test_each_kind_tells_an_aggregate_where_not_to_look(kind: str, connect: Any) -> None:
    db = connect(kind)
    near = db.sql(COUNT.format(-1))
    ((n, _),) = near.fetchall()
    assert near.answer.figures.ruled_out > 5_000
    assert abs(n - 100) < 70
    assert "summary m has none" in near.explain()
    forget(db.summary("m"))
    after = db.sql(COUNT.format(-1))
    assert after.fetchall()[0][0] == 0
    assert after.answer.figures.read == 0
    db.sql("DROP SUMMARY m")
    assert "summary m" not in db.sql(COUNT.format(-1)).explain()


def joined(kind: str) -> nile.Database:
    db = nile.connect()
    for name, seed in (("a", 1), ("b", 2)):
        draw = np.random.default_rng(seed)
        n = 4_000
        table = pa.table({"ts": np.sort(draw.random(n) * 2_000), "k": draw.zipf(1.4, n) % 300, "v": np.arange(n)})
        db.register(name, table, time="ts")
        db.sql(f"CREATE SUMMARY {name}_k ON {name} (k) {WITH} USING {kind}")
    return db


def found(db: nile.Database) -> set[Any]:
    return set(db.sql(JOIN, guide="countsketch", costs="engine").fetchall())


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_guides_a_join(kind: str) -> None:
    db = joined(kind)
    exact = set(db.sql("SELECT a.v, b.v FROM a, b WHERE a.k = b.k WINDOW '200 s'").fetchall())
    before = found(db)
    assert before <= exact
    assert len(before) > 0.06 * len(exact)
    told = db.sql(JOIN, guide="countsketch", costs="engine").explain()
    assert "regions by what summaries" in told
    for name in ("a_k", "b_k"):
        forget(db.summary(name))
    assert found(db) != before
    db.sql("DROP SUMMARY a_k")
    assert "regions by what summaries" not in db.sql(JOIN, guide="countsketch", costs="engine").explain()


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_brings_back_each_kind_and_goes_on_with_it(kind: str, tmp_path: Any) -> None:
    table = sales(4_000)
    half = [table.slice(0, 2_000), table.slice(2_000)]
    with nile.connect(tmp_path / "store") as db:
        db.stream("s", table.schema, time="ts")
        db.sql(f"CREATE SUMMARY m ON s (item) {WITH} USING {kind}")
        db.push("s", half[0])
    with nile.connect(tmp_path / "store") as db:
        db.push("s", half[1])
        again = db.summary("m")
        whole = nile.connect()
        whole.stream("s", table.schema, time="ts")
        whole.sql(f"CREATE SUMMARY m ON s (item) {WITH} USING {kind}")
        whole.push("s", table)
        one = whole.summary("m")
        asked = hash_keys(pa.array(np.arange(-1, 100)))
        assert again.estimate(asked) == one.estimate(asked)
        assert np.array_equal(again.index(1).counters(1), one.index(1).counters(1))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_taken_back_leave_no_trace_in_any_kind(kind: str) -> None:
    """What is kept is counted anew, so that kinds that are not linear take rows back too."""
    db = live(kind)
    db.sql("DELETE FROM s WHERE item < 3")
    table = sales()
    left = table.filter(pa.array(table["item"].to_numpy() >= 3))
    fresh = nile.connect()
    fresh.stream("s", table.schema, time="ts")
    fresh.sql(f"CREATE SUMMARY m ON s (item) {WITH} USING {kind}")
    fresh.push("s", left)
    asked = hash_keys(pa.array(np.arange(-1, 50)))
    one, other = db.summary("m"), fresh.summary("m")
    assert one.estimate(asked) == other.estimate(asked)
    assert one.store.tuples == other.store.tuples == left.num_rows


@pytest.mark.parametrize(
    ("using", "kind", "parameters", "options"),
    [
        ("kll", "kll", (), ()),
        ("KLL (k = 100)", "kll", (("k", 100),), ()),
        ("exact, max_length = '1 min'", "exact", (), (("max_length", "1 min"),)),
        ("countsketch (columns = 64)", "countsketch", (), (("columns", 64),)),
        ("countsketch (columns = 64), rows = 5", "countsketch", (), (("columns", 64), ("rows", 5))),
        ("columns = 64", "countsketch", (), (("columns", 64),)),
        ("wavelet (bits = 12, columns = 32), buckets = 4", "wavelet", (("bits", 12), ("columns", 32)),
         (("buckets", 4),)),
    ],
)  # fmt: skip
def test_using_names_a_kind_with_its_parameters(using: str, kind: str, parameters: Any, options: Any) -> None:
    made: Any = read_statement(f"CREATE SUMMARY x ON store1 (item_id) {WITH} USING {using}", CATALOG)
    assert (made.kind, made.parameters, made.options) == (kind, parameters, options)
    assert read_statement(statement_text(made), CATALOG) == made


@pytest.mark.parametrize(
    ("clauses", "said"),
    [
        ("USING kll (q = 3)", "needed one of k, seed; got 'q'"),
        ("USING kll (k = 3)", "k needs 8 to 65535; got 3"),
        ("USING exact (k = 3)", "no parameters for exact"),
        ("USING countsketch (columns = 64), columns = 32", "needed each option once; got columns again"),
        ("USING auto", "needed WITH ERROR or WITH MEMORY for USING auto"),
        ("WITH ERROR 2 % USING histogram", "the error of a count depends on the data alone"),
        ("WITH MEMORY '1 MB' USING exact", "a kind whose size does not depend on the data"),
        ("WITH ERROR 2 % USING kll (k = 300)", "which choose k, or that; got both"),
        ("WITH MEMORY '10 B' USING kll", "k needs 8 to 65535; got 0"),
        ("USING countmni", r"needed a kind of summary \(countsketch, .*got 'countmni'; did you mean countmin\?"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_asked_for(clauses: str, said: str) -> None:
    db = static("exact")
    with pytest.raises(nile.SqlError, match=said):
        db.sql(f"CREATE SUMMARY x ON s (item) {WITH} {clauses}")


@pytest.mark.parametrize("kind", ["countmin", "wavelet", "exact", "reservoir", "kll"])
def test_an_error_that_is_asked_for_sizes_each_kind(kind: str) -> None:
    db = static(f"{kind}, structure = 'T3'")
    db.sql(f"CREATE OR REPLACE SUMMARY m ON s (item) {WITH} WITH ERROR 5 % USING {kind}")
    manager = db.summary("m")
    assert isinstance(manager, CellManager)
    values, counts = np.unique(sales()["item"].to_numpy(), return_counts=True)
    off = np.abs(np.asarray(manager.estimate(hash_keys(pa.array(values))).value) - counts)
    assert off.mean() <= 0.05 * 12_000
    assert np.quantile(off, 0.95) <= 0.05 * 12_000


@pytest.mark.parametrize("kind", ["countmin", "wavelet", "reservoir", "kll"])
def test_an_amount_of_memory_sizes_each_kind(kind: str) -> None:
    db = static(f"{kind}, structure = 'T3'")
    db.sql(f"CREATE OR REPLACE SUMMARY m ON s (item) {WITH} WITH MEMORY '300 kB' USING {kind}")
    manager: Any = db.summary("m")
    cells = sum(cell.nbytes for cell in manager.cells.values())
    assert cells <= 300_000
    assert cells > 300_000 / 40 or kind == "kll"


def test_auto_takes_exact_counts_where_they_are_the_smaller_and_changes_its_mind() -> None:
    db = nile.connect()
    db.stream("s", [("ts", pa.float64()), ("item", pa.int64())], time="ts")
    db.sql(f"CREATE SUMMARY m ON s (item) {WITH} WITH ERROR 5 % USING auto")
    db.push("s", {"ts": np.arange(2_000) * 1.0, "item": np.arange(2_000) % 20})
    assert db.sql("SHOW SUMMARIES").to_arrow()["sketch"].to_pylist() == ["exact"]
    assert db.summary("m").error == 0.0
    db.push("s", {"ts": 2_000.0 + np.arange(8_000), "item": np.arange(8_000)})
    manager = db.summary("m")
    assert not isinstance(manager, CellManager)
    assert manager.store.tuples == 10_000
    assert manager.error <= 0.05 * 10_000


def test_auto_keeps_to_the_memory_it_may_take() -> None:
    for distinct, kind in ((20, "exact"), (5_000, "3 x 32")):
        db = nile.connect()
        table = {"ts": np.arange(6_000) * 1.0, "item": np.arange(6_000) % distinct}
        db.stream("s", [("ts", pa.float64()), ("item", pa.int64())], time="ts")
        db.sql(f"CREATE SUMMARY m ON s (item) {WITH} WITH MEMORY '70 kB' USING auto")
        db.push("s", table)
        assert db.sql("SHOW SUMMARIES").to_arrow()["sketch"].to_pylist() == [kind]
        assert db.summary("m").store.sketch_bytes < 100_000
    static_ = nile.connect()
    static_.register("s", pa.table(table), time="ts")
    static_.sql(f"CREATE SUMMARY m ON s (item) {WITH} WITH MEMORY '70 kB' USING auto")
    assert not isinstance(static_.summary("m"), CellManager)


RANGES = {
    "price < 5": lambda price, _: price < 5,
    "price BETWEEN 3 AND 8": lambda price, _: (price >= 3) & (price <= 8),
    "10 <= price AND price < 12": lambda price, _: (price >= 10) & (price < 12),
    "price > 1000": lambda price, _: price > 1_000,
}


@pytest.mark.parametrize("connect", [static, live])
@pytest.mark.parametrize("kind", ["exact", "histogram", "wavelet", "kll (k = 64)"])
def test_explain_expects_of_ranges_what_kinds_of_order_say(kind: str, connect: Any) -> None:
    """Within a twentieth of the tuples, whatever the kind; by rule of thumb when the summary is dropped."""
    db = connect("exact")
    db.sql(f"CREATE SUMMARY prices ON s (price) {WITH} USING {kind}")
    db.summary("prices")
    price = sales()["price"].to_numpy()
    for condition, holds in RANGES.items():
        told = db.sql(f"EXPLAIN SELECT price FROM s WHERE {condition}").message
        about = re.search(r"about ([0-9,.]+) by summary", told)
        assert about is not None, told
        expected = float(about.group(1).replace(",", ""))
        assert abs(expected - holds(price, None).sum()) <= 0.05 * 12_000, (condition, expected)
    forget(db.summary("prices"))
    assert "about 0 by summary" in db.sql("EXPLAIN SELECT price FROM s WHERE price < 5").message
    db.sql("DROP SUMMARY prices")
    assert "by summary" not in db.sql("EXPLAIN SELECT price FROM s WHERE price < 5").message or connect is live


@pytest.mark.parametrize("kind", thinned(CERTAIN, 2))
def test_each_kind_tells_a_selection_where_not_to_look_and_a_hundred_queries_keep_one_grid(kind: str) -> None:
    db = live(kind)
    text = "SELECT item FROM s WHERE item = {} WITH PREFERENCE desc item BUDGET 0.1"
    near = db.sql(text.format(-1))
    assert near.to_arrow().num_rows > 0
    assert near.answer.ruled_out > 5_000
    (one,) = db.sql("SHOW SUMMARIES").to_arrow().to_pylist()
    for key in range(99):
        db.sql(COUNT.format(key)).fetchall()
    (after,) = db.sql("SHOW SUMMARIES").to_arrow().to_pylist()
    assert after["bytes"] <= 1.2 * one["bytes"]
    assert after["upkeep"] == one["upkeep"]
    forget(db.summary("m"))
    assert db.sql(text.format(-1)).to_arrow().num_rows == 0
