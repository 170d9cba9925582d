"""One grid a CREATE SUMMARY, and what reads it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import nile
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.spec import SummarySpec
from nile.summaries.hashing import hash_keys

SUMMARY = "CREATE SUMMARY items ON s (item) WITH GRANULARITY '10 min' AND COLLAPSE (4, 3) USING columns = 256"
COUNT = "SELECT count(*) AS n, sum(price) AS p FROM s WHERE item = {} BUDGET 0.1"


def sales(n: int = 20_000, keys: int = 3_000, seed: int = 3) -> pa.Table:
    """Key -1 comes in two bursts of 100 and nowhere else."""
    draw = np.random.default_rng(seed)
    item = draw.integers(0, keys, n)
    item[n // 4 : n // 4 + 100] = -1
    item[3 * n // 4 : 3 * n // 4 + 100] = -1
    return pa.table({"ts": np.arange(n) * 0.5, "item": item, "price": draw.exponential(10.0, n)})


def static() -> nile.Database:
    db = nile.connect()
    db.register("s", sales(), time="ts")
    return db


def live() -> nile.Database:
    db = nile.connect()
    db.stream("s", [("ts", pa.float64()), ("item", pa.int64()), ("price", pa.float64())], time="ts")
    for part in sales().to_batches(max_chunksize=1_700):
        db.push("s", part)
    return db


def kept(db: nile.Database) -> dict[str, Any]:
    (row,) = db.sql("SHOW SUMMARIES").to_arrow().to_pylist()
    return row


@pytest.mark.parametrize("connect", [static, live])
def test_an_aggregate_leaves_out_the_zones_that_have_none_of_its_keys(connect: Any) -> None:
    db = connect()
    wide = db.sql(COUNT.format(-1))
    wide.fetchall()
    db.sql(SUMMARY)
    near = db.sql(COUNT.format(-1))
    (found,) = near.to_arrow().to_pylist()
    table = sales().to_pandas()
    exact = table[table.item == -1]
    before, after = wide.answer.figures, near.answer.figures
    assert before.ruled_out == 0 < 10_000 < after.ruled_out
    assert after.spent <= after.granted
    errors = [answer.estimate("count(*)") for answer in (wide.answer, near.answer)]
    assert errors[1].high - errors[1].low < 0.8 * (errors[0].high - errors[0].low)
    assert errors[1].low <= len(exact) <= errors[1].high
    assert abs(found["n"] - len(exact)) < 0.5 * len(exact)
    assert "summary items has none" in near.explain()
    assert kept(db)["served"] == 1


@pytest.mark.parametrize("connect", [static, live])
def test_a_summary_whose_counters_are_0_changes_what_is_read(connect: Any) -> None:
    db = connect()
    db.sql(SUMMARY)
    text = COUNT.format(7)
    before = db.sql(text)
    assert before.fetchall()[0][0] > 0
    manager = db.summary("items")
    manager.store.side.counters[:] = 0
    after = db.sql(text)
    assert after.fetchall()[0][0] == 0  # nothing is promised anywhere
    assert after.answer.figures.read == 0 < before.answer.figures.read


def test_dropping_a_summary_changes_the_plan() -> None:
    db = static()
    db.sql(SUMMARY)
    assert "summary items" in db.sql("EXPLAIN " + COUNT.format(7)).message
    db.sql("DROP SUMMARY items")
    assert "summary items" not in db.sql("EXPLAIN " + COUNT.format(7)).message
    left = db.sql(COUNT.format(-1))
    left.fetchall()
    assert left.answer.figures.ruled_out == 0


def test_a_hundred_queries_keep_one_grid() -> None:
    db = live()
    db.sql(SUMMARY)
    db.sql(COUNT.format(1)).fetchall()
    one = kept(db)
    for key in range(99):
        db.sql(COUNT.format(key)).fetchall()
    after = kept(db)
    assert after["served"] == 100
    assert after["bytes"] <= 1.2 * one["bytes"]
    assert after["upkeep"] == one["upkeep"]
    assert one["tuples"] == 20_000
    assert one["upkeep"] >= 20_000 * 3


def test_a_store_brings_back_the_grid_that_queries_read(tmp_path: Any) -> None:
    with nile.connect(tmp_path / "store") as db:
        db.stream("s", [("ts", pa.float64()), ("item", pa.int64()), ("price", pa.float64())], time="ts")
        db.sql(SUMMARY)
        db.push("s", sales())
        before = db.sql(COUNT.format(-1)).fetchall()
        row = kept(db)
    with nile.connect(tmp_path / "store") as db:
        again = db.sql(COUNT.format(-1))
        assert again.fetchall() == before
        assert again.answer.figures.ruled_out > 10_000
        assert {**kept(db), "bytes": 0} == {**row, "bytes": 0}


def test_a_stream_that_is_made_anew_has_a_new_grid() -> None:
    db = static()
    db.sql(SUMMARY)
    db.sql(COUNT.format(-1)).fetchall()
    db.register("s", sales(12_000, seed=9), time="ts")
    told = db.sql("SELECT count(*) AS n FROM s WHERE item = -1 BUDGET 0.9")
    ((n,),) = told.fetchall()
    assert told.answer.figures.ruled_out > 0
    assert abs(n - 200) < 40
    assert kept(db)["tuples"] == 12_000


def test_standing_predicates_read_one_grid() -> None:
    db = static()
    db.sql(SUMMARY)
    predicates = {f"q{k}": f"item = {k}" for k in range(-1, 100)}
    answer = db.aggregate("s", {"n": "count(*)"}, predicates=predicates).run(0.03)
    assert answer.figures.ruled_out > 0
    assert answer.figures.spent <= answer.figures.granted
    assert kept(db)["served"] == 1


SELECTION = "SELECT item, price FROM s WHERE item = {} WITH PREFERENCE desc item BUDGET 0.1"


@pytest.mark.parametrize("connect", [static, live])
@pytest.mark.parametrize("output", ["pairs", "ranges"])
def test_a_selection_passes_over_the_zones_that_have_none_of_its_keys(connect: Any, output: str) -> None:
    db = connect()
    wide = db.sql(SELECTION.format(-1), output=output)
    before = wide.to_arrow().num_rows
    db.sql(SUMMARY)
    near = db.sql(SELECTION.format(-1), output=output)
    table = near.to_arrow()
    figures = near.answer.figures
    assert 2 * before < 100 < table.num_rows <= 200
    assert set(table["item"].to_pylist()) == {-1}
    assert figures.ruled_out > 6_000
    assert figures.spent <= figures.granted
    assert "summary items has none" in near.explain()
    assert kept(db)["served"] == 1
    db.summary("items").store.side.counters[:] = 0
    none = db.sql(SELECTION.format(-1), output=output)
    assert none.to_arrow().num_rows == 0  # nothing is promised anywhere
    db.sql("DROP SUMMARY items")
    again = db.sql(SELECTION.format(-1), output=output)
    assert again.to_arrow().num_rows == before
    assert "summary items" not in again.explain()


def stores(live: bool) -> nile.Database:
    """Two stores of 40 common items; each has 2,000 that the other has not."""
    db = nile.connect()
    for number in (1, 2):
        draw = np.random.default_rng(number)
        n = 8_000
        own = draw.integers(100 + 10_000 * number, 2_100 + 10_000 * number, n)
        item = np.where(draw.random(n) < 0.1, draw.integers(0, 40, n), own)
        table = pa.table({"ts": np.arange(n) * 1.0, "item": item})
        if live:
            db.stream(f"s{number}", table.schema, time="ts")
            db.push(f"s{number}", table)
        else:
            db.register(f"s{number}", table, time="ts")
    return db


def summaries(db: nile.Database) -> None:
    for number in (1, 2):
        db.sql(
            f"CREATE SUMMARY m{number} ON s{number} (item) WITH GRANULARITY '10 min' AND COLLAPSE (4, 3) "
            "USING columns = 512"
        )


JOIN = (
    "SELECT a.item, b.ts FROM s1 AS a, s2 AS b WHERE a.item = b.item WITH PREFERENCE {} a.item WINDOW 3600 BUDGET 0.3"
)


@pytest.mark.parametrize("kind", ["desc", "asc", "weighted"])
@pytest.mark.parametrize("guide", ["countsketch", "directory"])
@pytest.mark.parametrize("live", [False, True])
def test_a_join_takes_in_no_tuple_whose_key_the_other_summary_has_nowhere(kind: str, guide: str, live: bool) -> None:
    db = stores(live)
    text = JOIN.format(kind)
    exact = db.sql(text.replace("0.3", "1.0")).to_arrow().select([0, 1]).to_pylist()
    wide = db.sql(text, guide=guide)
    before = wide.to_arrow().num_rows
    summaries(db)
    near = db.sql(text, guide=guide)
    found = near.to_arrow().select([0, 1]).to_pylist()
    figures = near.answer.figures
    assert figures.ruled_out > 8_000
    assert figures.spent <= figures.granted
    assert figures.nulls == 0
    assert "no tuple of a whose key summary m2 has nowhere" in near.explain()
    if kind != "asc":
        # Guided by sketches, the join's own grid takes over the width of the summary too, and costs what that costs.
        assert guide == "countsketch" or len(found) > 1.2 * before
        left = Counter(tuple(row.values()) for row in exact)
        left.subtract(Counter(tuple(row.values()) for row in found))
        assert min(left.values()) >= 0
    assert [row["served"] for row in db.sql("SHOW SUMMARIES").to_arrow().to_pylist()] == [1, 1]
    for number in (1, 2):
        db.summary(f"m{number}").store.side.counters[:] = 0
    assert db.sql(text, guide=guide).to_arrow().num_rows == 0  # nothing is promised anywhere
    db.sql("DROP SUMMARY m1")
    db.sql("DROP SUMMARY m2")
    again = db.sql(text, guide=guide)
    assert again.to_arrow().num_rows == before
    assert "summary m" not in again.explain()


@settings(max_examples=40, deadline=None)
@given(
    seed=some.integers(0, 1 << 30),
    window=some.sampled_from([None, 5, 60, 900, 1 << 20]),
    kind=some.sampled_from(["desc", "asc", "weighted"]),
    budget=some.sampled_from([0.5, 0.99]),
    sizes=some.tuples(some.integers(0, 1_500), some.integers(1, 1_500)),
)
def test_a_tuple_that_is_ruled_out_has_no_partner(
    seed: int, window: int | None, kind: str, budget: float, sizes: tuple[int, int]
) -> None:
    draw = np.random.default_rng(seed)
    db = nile.connect()
    data = []
    for number, n in enumerate(sizes, 1):
        ts = np.cumsum(draw.integers(0, 4, n))
        item = draw.zipf(1.4, n) % 200 + 100 * number
        data.append((ts, item))
        db.register(f"s{number}", pa.table({"ts": ts * 1.0, "item": item}), time="ts")
        db.sql(
            f"CREATE SUMMARY m{number} ON s{number} (item) WITH GRANULARITY '1 min' AND COLLAPSE (2, 3) "
            "USING columns = 64"
        )
    query = db.join("s1", "s2", on="item", window=window).prefer(kind)
    answer = query.run(budget=budget)
    answer.to_arrow()
    told = answer._join.data
    for side, (ts, item) in enumerate(data):
        out = told.ruled_out[told.order == side] if told.ruled_out.size else np.zeros(len(ts), bool)
        other_ts, other = data[1 - side]
        for at in np.flatnonzero(out):
            near = np.abs(other_ts - ts[at]) <= (np.inf if window is None else window)
            assert not (near & (other == item[at])).any()


def test_an_exact_selection_asks_no_summary() -> None:
    db = static()
    db.sql(SUMMARY)
    db.summary("items").store.side.counters[:] = 0
    table = db.sql("SELECT item FROM s WHERE item = -1 WITH PREFERENCE desc item BUDGET 1.0").to_arrow()
    assert table.num_rows == 200


@pytest.mark.parametrize("output", ["pairs", "ranges"])
@pytest.mark.parametrize("budget", [nile.Budget(0.3), nile.Budget(seconds=5.0), nile.Budget(outputs=150)])
def test_a_selection_by_many_predicates_gives_nothing_false(output: str, budget: nile.Budget) -> None:
    db = static()
    db.sql(SUMMARY)
    predicates = {f"q{k}": f"item = {k} AND price > {k % 7}" for k in range(-1, 12)}
    answer = db.select("s", on="item", predicates=predicates).using(output=output).run(budget)
    truth = dict(zip(answer.names, answer.truth(), strict=True))
    assert answer.figures.ruled_out > 0
    for name in answer.names:
        assert np.isin(answer.ordinals(name), truth[name]).all()
    if budget.unit == "seconds":
        assert all(share in (None, 1.0) for share in answer.shares.values())


def test_an_error_is_met_by_reading_less() -> None:
    db = static()
    text = "SELECT count(*) AS n FROM s WHERE item = -1 ERROR 0.1"
    plain = db.sql(text)
    plain.fetchall()
    db.sql(SUMMARY)
    near = db.sql(text)
    ((n,),) = near.fetchall()
    assert near.answer.figures.spent < 0.5 * plain.answer.figures.spent
    assert n == pytest.approx(200, rel=0.1)


def test_numbers_stay_unbiased() -> None:
    db = static()
    db.sql(SUMMARY)
    query = db.aggregate("s", {"p": "sum(price)"}, where="item = -1")
    table = sales().to_pandas()
    exact = table[table.item == -1].price.sum()
    told = [query.using(seed=seed).run(0.05).estimate("p").value for seed in range(60)]
    assert abs(np.mean(told) - exact) < 4 * np.std(told) / np.sqrt(60)


def test_a_stream_that_keeps_less_than_was_counted_is_read_without_the_summary() -> None:
    db = nile.connect()
    db.stream("s", [("ts", pa.float64()), ("item", pa.int64()), ("price", pa.float64())], time="ts", keep="10 min")
    db.sql(SUMMARY)
    for part in sales().to_batches(max_chunksize=1_000):
        db.push("s", part)
    told = db.sql(COUNT.format(7))
    told.fetchall()
    assert told.answer.figures.ruled_out == 0


def test_nulls_are_never_ruled_out() -> None:
    db = nile.connect()
    n = 4_000
    items = pa.array([None if k % 3 == 0 else k % 50 for k in range(n)], pa.int64())
    db.register("s", pa.table({"ts": np.arange(n) * 1.0, "item": items, "price": np.ones(n)}), time="ts")
    db.sql(SUMMARY)
    told = db.aggregate("s", {"n": "count(*)"}, where="item IS NULL").using(method="sample").run(0.5)
    assert told.figures.ruled_out == 0
    assert told.estimate("n").low <= 1_334 <= told.estimate("n").high


@settings(max_examples=60, deadline=None)
@given(
    seed=some.integers(0, 1 << 30),
    structure=some.sampled_from(["T2", "T3", "T4"]),
    depth=some.integers(1, 3),
    forgetting=some.booleans(),
    n=some.integers(0, 6_000),
)
def test_runs_without_a_key_have_none_of_it(seed: int, structure: str, depth: int, forgetting: bool, n: int) -> None:
    draw = np.random.default_rng(seed)
    keys = draw.zipf(1.3, n) % 500
    ts = np.cumsum(draw.integers(0, 3, n)).astype(np.int64)
    spec = SummarySpec(600, 2, depth, structure=structure, forgetting=forgetting, buckets=4, columns=16)
    manager = SummaryManager(spec)
    manager.ingest(ts, pa.array(keys))
    wanted = draw.integers(0, 500, 3)
    runs, read = manager.without(hash_keys(pa.array(wanted), manager.keys.hasher))
    assert read <= 2 * spec.zone_slots
    for begin, end in runs.tolist():
        assert 0 <= begin < end <= n
        assert not np.isin(keys[begin:end], wanted).any()
    assert (runs[1:, 0] >= runs[:-1, 1]).all()
