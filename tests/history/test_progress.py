"""Growing answers: prefixes of the full one, whatever the pace, that end with what `to_arrow` gives."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nile
from nile.answers.progress import Partial
from nile.summaries.errors import ConfigError, MemoryRefused, NotYet, SumOverflow
from nile.summaries.estimate import Estimate

PACES: list[Any] = [0, "1 ns", "2 ms", "10 s"]


def sales(seed: int, n: int, items: int = 300) -> pa.Table:
    rng = np.random.default_rng(seed)
    price = np.round(rng.normal(0, 10, n), 2)
    price[rng.random(n) < 0.003] = np.nan
    return pa.table(
        {
            "ts": pa.array(np.sort(rng.integers(0, 5_000_000, n)), pa.timestamp("ms")),
            "seq": np.arange(n),
            "item": pa.array(
                [f"i{k}" for k in np.minimum(rng.zipf(1.25, n), items)], pa.string(), mask=rng.random(n) < 0.05
            ),
            "price": pa.array(price, mask=rng.random(n) < 0.1),
            "quantity": pa.array(rng.integers(-5, 9, n).astype(np.int32)),
        }
    )


@pytest.fixture(scope="module")
def db() -> nile.Database:
    made = nile.connect()
    made.register("a", sales(1, 1_500), time="ts")
    made.register("b", sales(2, 1_200), time="ts", where="quantity > -4")
    made.register("empty", sales(3, 0), time="ts")
    made.register("seconds", {"ts": [0.0, 1.5, 2.5, 3.0], "x": [1, 2, 3, 4]}, time="ts")
    made.register("items", {"item": ["i1", "i2"], "kind": ["tea", "cup"]})
    return made


def rows_of(table: pa.Table) -> Counter[Any]:
    def plain(value: Any) -> Any:
        return "nan" if isinstance(value, float) and math.isnan(value) else value

    return Counter(tuple(map(plain, row.values())) for row in table.to_pylist())


def grown(result: Any, every: Any = 0) -> list[Partial]:
    """All partials, checked to be prefixes of one another."""
    partials = list(result.progress(every=every))
    covered, before = 0.0, 0
    whole = partials[-1].to_arrow()
    told = 0
    for at, partial in enumerate(partials):
        assert partial.coverage >= covered
        assert partial.done == (at == len(partials) - 1)
        told += sum(batch.num_rows for batch in partial.rows)
        so_far = partial.to_arrow()
        assert so_far.schema == whole.schema
        assert told == len(partial) == so_far.num_rows >= before
        assert so_far.equals(whole.slice(0, len(partial))) or rows_of(so_far) == rows_of(whole.slice(0, len(partial)))
        assert partial.estimate.low <= partial.estimate.value <= partial.estimate.high
        covered, before = partial.coverage, len(partial)
    assert partials[-1].coverage == 1.0
    assert partials[-1].estimate == Estimate.exact(float(whole.num_rows))
    return partials


JOINS = [
    "SELECT a.seq, b.seq AS other, a.item FROM a, b WHERE a.item = b.item AND a.ts >= TIMESTAMP '1970-01-01 01:20:00'",
    "SELECT x.seq, y.seq AS other FROM a x, a y WHERE x.item = y.item AND x.quantity = 8 AND y.quantity + y.seq > 40",
    "SELECT a.seq, b.price FROM a JOIN b ON a.item = b.item AND a.price < b.price WHERE b.ts BETWEEN "
    "TIMESTAMP '1970-01-01 00:10:00' AND TIMESTAMP '1970-01-01 00:13:00'",
    "SELECT a.seq FROM a, b WHERE a.item = b.item AND a.quantity = b.quantity AND a.seq < 300",
    "SELECT a.seq FROM a, empty e WHERE a.item = e.item",
    "SELECT a.seq, b.seq AS other FROM a, b WHERE a.item = b.item AND a.item > 'i2' AND b.item IN ('i3', 'i40', 'i1')",
    "SELECT a.seq, b.seq AS other FROM a, b WHERE a.quantity = b.seq AND b.seq > 2 AND a.quantity <> 5",
    "SELECT a.seq, b.seq AS other FROM a, b WHERE a.price = b.price AND b.price >= 0",
    "SELECT q.total FROM (SELECT a.seq + b.seq AS total, a.price AS p FROM a, b WHERE a.item = b.item AND "
    "a.seq > 1400) q WHERE q.p > 0",
]


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("preference", ["", "desc", "weighted"])
def test_a_join_grows_to_the_full_answer(db: nile.Database, join: str, preference: str) -> None:
    exact = db.sql(join).to_arrow()
    key = {"x": "x.item", "q": None}.get(join.split()[1][0], "a.item")
    key = next((on.split()[0] for on in ("a.quantity = b.seq", "a.price = b.price") if on in join), key)
    if preference and key is None:
        pytest.skip("a preference names a column of the outer SELECT")
    asked = db.sql(join + (f" WITH PREFERENCE {preference} {key}" if preference else ""), seed=5)
    for pace in PACES:
        assert rows_of(grown(asked, pace)[-1].to_arrow()) == rows_of(exact)


@pytest.mark.parametrize("cap", [2, 4, 30])
def test_outliers_are_of_keys_rare_in_all_that_is_kept(db: nile.Database, cap: int) -> None:
    counts = Counter(db.sql("SELECT item FROM a").to_arrow()["item"].to_pylist())
    counts += Counter(db.sql("SELECT item FROM b").to_arrow()["item"].to_pylist())
    join = "SELECT a.item, a.seq, b.seq AS other FROM a, b WHERE a.item = b.item AND a.seq >= 700"
    exact = [row for row in db.sql(join).to_arrow().to_pylist() if counts[row["item"]] <= cap]
    asked = db.sql(join + " WITH PREFERENCE asc a.item", outlier_cap=cap)
    for pace in PACES:
        found = grown(asked, pace)[-1].to_arrow()
        assert rows_of(found) == Counter(tuple(row.values()) for row in exact)
    if cap == 30:
        assert exact


def test_the_busiest_keys_come_first(db: nile.Database) -> None:
    join = "SELECT a.item FROM a, b WHERE a.item = b.item AND a.seq < 900 WITH PREFERENCE desc a.item"
    first = next(iter(db.sql(join).progress(every=0)))
    busiest = Counter(db.sql(join).to_arrow()["item"].to_pylist()).most_common(1)[0][0]
    assert first.rows[0]["item"][0].as_py() == busiest
    assert first.coverage < 1.0


def test_ranges_stand_for_the_matches_of_each_tuple(db: nile.Database) -> None:
    join = "SELECT a.seq FROM a, b WHERE a.item = b.item AND a.ts >= TIMESTAMP '1970-01-01 01:20:00'"
    exact = Counter(db.sql(join).to_arrow()["seq"].to_pylist())
    partials = list(db.sql(join + " WITH PREFERENCE desc a.item", output="ranges").progress(every=0))
    table = partials[-1].to_arrow()
    assert table.column_names == ["ordinal", "key", "zone", "first", "last", "matches"]
    found: Counter[int] = Counter()
    for row in table.to_pylist():
        found[row["ordinal"]] += row["matches"]
        assert row["matches"] == row["last"] - row["first"] + 1
    assert found == exact
    assert partials[-1].estimate == Estimate.exact(float(sum(exact.values())))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT seq, price FROM a WHERE price > 0",
        "SELECT seq FROM a WHERE item = 'i2' OR item IS NULL",
        "SELECT item, quantity * 2 AS twice FROM b WHERE ts > TIMESTAMP '1970-01-01 00:30:00'",
        "SELECT * FROM empty",
        "SELECT x FROM seconds WHERE ts > 1.5 AND ts <= 3",
        "SELECT x FROM seconds WHERE 2.5 <= ts",
    ],
)
@pytest.mark.parametrize("preference", ["", "weighted"])
def test_a_selection_grows_to_the_full_answer(db: nile.Database, text: str, preference: str) -> None:
    exact = db.sql(text).to_arrow()
    column = "x" if "seconds" in text else "quantity"
    asked = db.sql(text + (f" WITH PREFERENCE {preference} {column}" if preference else ""))
    for pace in PACES:
        assert rows_of(grown(asked, pace)[-1].to_arrow()) == rows_of(exact)


AGGREGATES = [
    "SELECT count(*) AS n, sum(price) AS s, avg(price) AS m, min(price) AS low, max(item) AS top FROM a",
    "SELECT item, count(price) AS n, sum(quantity) AS s, avg(quantity) AS m FROM a WHERE price > -20 GROUP BY item",
    "SELECT quantity % 3 AS k, sum(price * quantity) AS s, max(ts) AS t FROM b GROUP BY quantity % 3",
    "SELECT item, sum(price) AS s FROM a GROUP BY item HAVING count(*) > 12 ORDER BY item DESC LIMIT 4",
    "SELECT count(*) AS n, sum(price) AS s, min(quantity) AS q FROM empty",
    "SELECT median(price) AS m, quantile_disc(item, 0.3) AS t FROM a",
    "SELECT item, quantile_cont(price, 0.9) AS q FROM a GROUP BY item",
    "SELECT median(price) AS m, quantile_disc(item, 0.3) AS t, stddev(price) AS d, var_pop(price) AS p FROM empty",
    "SELECT sum(quantity) / count(*) AS mean FROM a WHERE ts < TIMESTAMP '1970-01-01 00:20:00'",
]


def test_a_sum_past_64_bits_is_refused_by_the_exact_answer_and_by_the_growing_one(db: nile.Database) -> None:
    asked = db.sql("SELECT sum(seq * 4000000000000000) AS big FROM a")
    for ask in (asked.to_arrow, lambda: list(asked.progress(every=0))[-1].to_arrow()):
        with pytest.raises(SumOverflow, match="within 64 bits"):
            ask()


@pytest.mark.parametrize("text", AGGREGATES)
@pytest.mark.parametrize("every", PACES)
def test_aggregates_settle_to_the_exact_ones(db: nile.Database, text: str, every: Any) -> None:
    exact = db.sql(text).to_arrow()
    partials = list(db.sql(text, seed=2).progress(every=every))
    covered = 0.0
    for partial in partials:
        assert partial.coverage >= covered
        covered = partial.coverage
        table = partial.to_arrow()
        assert table.schema == exact.schema
        for name, estimates in partial.estimates.items():
            assert len(estimates) == table.num_rows
            assert name in table.column_names
    last = partials[-1]
    assert last.done
    assert last.coverage == 1.0
    if "ORDER BY" in text:
        assert list(rows_of(last.to_arrow())) == list(rows_of(exact))
    else:
        assert rows_of(last.to_arrow()) == rows_of(exact)
    for estimates in last.estimates.values():
        assert all(each.confidence == 1.0 and each.certified for each in estimates)


def test_one_aggregate_alone_is_the_estimate_and_its_intervals_cover() -> None:
    rng = np.random.default_rng(11)
    db = nile.connect()
    db.register("s", {"ts": np.arange(20_000.0), "x": rng.exponential(3, 20_000)}, time="ts")
    texts = {"count": "SELECT count(*) AS n FROM s WHERE x > 4", "sum": "SELECT sum(x) AS n FROM s",
             "avg": "SELECT avg(x) AS n FROM s WHERE x < 9", "var": "SELECT variance(x) AS n FROM s WHERE x < 9",
             "dev": "SELECT stddev_pop(x) AS n FROM s", "median": "SELECT median(x) AS n FROM s",
             "tail": "SELECT quantile_disc(x, 0.9) AS n FROM s"}  # fmt: skip
    for text in texts.values():
        truth = float(db.sql(text).to_arrow()["n"][0].as_py())
        covers, asked = 0, 30
        for seed in range(asked):
            partial = next(p for p in db.sql(text, seed=seed).progress(every=0) if p.coverage > 0.2)
            estimate = partial.estimate
            assert estimate.confidence == 0.95
            covers += bool(estimate.low <= truth <= estimate.high)
        assert covers >= 0.8 * asked, text  # 95 % of 30 less four standard deviations


def test_a_weighted_join_estimates_how_many_meet_a_condition(db: nile.Database) -> None:
    join = "SELECT a.seq FROM a, b WHERE a.item = b.item AND a.price < b.price"
    truth = db.sql(join).to_arrow().num_rows
    covers = 0
    for seed in range(20):
        partials = db.sql(join + " WITH PREFERENCE weighted a.item", seed=seed).progress(every=0)
        partial = next(p for p in partials if p.rows)
        covers += bool(partial.estimate.low <= truth <= partial.estimate.high)
        assert partial.estimate.confidence == 0.95
    assert covers >= 15


def test_limit_ends_it(db: nile.Database) -> None:
    join = "SELECT a.seq, b.seq AS other FROM a, b WHERE a.item = b.item WITH PREFERENCE desc a.item LIMIT 100 OFFSET 7"
    last = grown(db.sql(join))[-1]
    assert len(last) == 100


def test_the_first_comes_as_soon_as_there_is_something_and_leaving_frees_all(db: nile.Database) -> None:
    join = "SELECT a.seq FROM a, b WHERE a.item = b.item WITH PREFERENCE desc a.item"
    progress = db.sql(join).progress(every="1 h")
    partials = iter(progress)
    first = next(partials)
    assert not first.done
    assert first.rows
    progress.close()
    assert next(partials, None) is None
    assert first.to_arrow().num_rows == len(first)
    with db.sql(join).progress(every=0) as again:
        for partial in again:
            assert not partial.done
            break
    with pytest.raises(ConfigError, match="once"):
        iter(again)


@pytest.mark.parametrize(
    ("text", "options", "error", "says"),
    [
        ("SELECT seq FROM a ORDER BY seq", {}, ConfigError, "ORDER BY"),
        ("SELECT seq FROM a LIMIT 3", {}, ConfigError, "PREFERENCE"),
        ("SELECT DISTINCT item FROM a", {}, NotYet, "DISTINCT"),
        ("SELECT seq FROM a WINDOW 60", {}, NotYet, "WINDOW"),
        ("SELECT a.seq FROM a, b WHERE a.item = b.item WITH PREFERENCE desc a.item BUDGET 10%", {}, ConfigError, "BUD"),
        ("SELECT a.seq FROM a RIGHT JOIN items i ON a.item = i.item", {}, NotYet, "outer, semi or anti join"),
        ("SELECT a.seq FROM a, b WHERE a.seq < b.seq", {}, NotYet, "equal keys"),
        ("SELECT count(DISTINCT item) AS m FROM a", {}, NotYet, "settle"),
        ("SELECT seq FROM a UNION SELECT seq FROM b", {}, NotYet, "UNION"),
        ("SELECT seq FROM a", {"emit": "append"}, ConfigError, "emit"),
        ("SELECT a.seq FROM a, b WHERE a.item = b.item WITH PREFERENCE desc a.item FADE FACTOR 0.5", {}, NotYet, "FAD"),
        ("SELECT a.seq FROM a, b WHERE a.item = b.item WITH PREFERENCE weighted a.item", {"output": "ranges"},
         ConfigError, "pairs"),
        ("SELECT a.seq FROM a, b WHERE a.item = b.item WITH PREFERENCE desc a.item", {"outlier_cap": 3},
         ConfigError, "outlier_cap"),
        ("SHOW STREAMS", {}, ConfigError, "SELECT"),
    ],
)  # fmt: skip
def test_what_cannot_progress_says_why(
    db: nile.Database, text: str, options: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        db.sql(text, **options).progress()


def test_a_side_too_large_to_be_held_is_refused(db: nile.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nile.operators.history.weighted.MOST_PROBING", 100)
    join = "SELECT a.seq FROM a, b WHERE a.item = b.item WITH PREFERENCE weighted a.item"
    with pytest.raises(MemoryRefused, match="at most 100 tuples"):
        list(db.sql(join).progress())
    assert "progress():" not in db.sql("EXPLAIN ANALYZE " + join).fetchall()[0][0]


def test_what_is_asked_of_one_key_is_asked_of_the_other(db: nile.Database) -> None:
    join = "SELECT a.seq, b.seq AS other FROM a, b WHERE a.item = b.item AND "
    for condition in ("a.item = 'i7'", "b.item = 'i7'"):
        asked = db.sql(join + condition + " WITH PREFERENCE desc a.item", output="ranges")
        records = list(asked.progress())[-1].to_arrow()
        pairs = db.sql(join + condition).to_arrow().num_rows
        assert pairs > 0
        assert set(records["key"].to_pylist()) == {"i7"}
        assert pc.sum(records["matches"]).as_py() == pairs
        growing = db.sql(join + condition).progress()
        *_, last = growing
        assert len(last) == pairs
        assert f", outputs {pairs:,}" in growing.explain()


def test_ranges_need_the_larger_side_whole(db: nile.Database) -> None:
    join = "SELECT a.seq FROM a, b WHERE a.item = b.item AND a.price > 0 AND b.seq < 9 WITH PREFERENCE desc a.item"
    with pytest.raises(NotYet, match="smaller stream alone"):
        list(db.sql(join, output="ranges").progress())


@pytest.mark.parametrize("every", ["soon", -1, None, math.nan])
def test_a_pace_that_is_none_is_refused(db: nile.Database, every: Any) -> None:
    with pytest.raises(ConfigError, match="progress, every"):
        db.sql("SELECT seq FROM a").progress(every=every)


def test_explain_says_how_and_analyze_counts(db: nile.Database) -> None:
    join = (
        "SELECT a.seq FROM a, b WHERE a.item = b.item AND a.ts >= TIMESTAMP '1970-01-01 01:20:00' "
        "WITH PREFERENCE desc a.item"
    )
    plain = db.sql("EXPLAIN " + join).fetchall()[0][0]
    assert "progressive join of the histories of a and b on item = item: most matches first" in plain
    assert "cells read" not in plain
    analyzed = db.sql("EXPLAIN ANALYZE " + join).fetchall()[0][0]
    assert "actual: cells read " in analyzed
    assert "cells ruled out" in analyzed
    assert "bytes" in analyzed
    progress = db.sql(join).progress(every=0)
    for _ in progress:
        pass
    assert "coverage 1" in progress.explain()


@settings(max_examples=30)
@given(
    left=st.lists(st.tuples(st.integers(0, 9), st.integers(-2, 2)), max_size=300),
    right=st.lists(st.tuples(st.integers(0, 9), st.integers(-2, 2)), max_size=300),
    begin=st.integers(-1, 310),
    every=st.sampled_from([0, "1 ms"]),
    preference=st.sampled_from(["", " WITH PREFERENCE desc l.k", " WITH PREFERENCE weighted l.k"]),
)
def test_random_joins(left: Any, right: Any, begin: int, every: Any, preference: str) -> None:
    db = nile.connect()
    for name, given_rows in (("l", left), ("r", right)):
        db.register(
            name,
            pa.table(
                {
                    "ts": pa.array(np.arange(len(given_rows)), pa.timestamp("s")),
                    "k": pa.array([k for k, _ in given_rows], pa.int64()),
                    "v": pa.array([v for _, v in given_rows], pa.int64()),
                }
            ),
            time="ts",
        )
    join = (
        "SELECT l.ts, r.ts AS other FROM l, r WHERE l.k = r.k AND l.v > -2 AND l.v <= r.v "
        f"AND r.ts >= TIMESTAMP '1970-01-01 00:{max(0, begin) // 60:02d}:{max(0, begin) % 60:02d}'"
    )
    exact = db.sql(join).to_arrow()
    assert rows_of(grown(db.sql(join + preference), every)[-1].to_arrow()) == rows_of(exact)
