"""One grid a CREATE SUMMARY, and what reads it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from thinning import thinned

import nile
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.region_kernels import read_between
from nile.pyramid.grid.spec import SummarySpec
from nile.summaries.hashing import hash_keys
from nile.summaries.kernels import kernel

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
    db.register("s", sales(12_000, seed=9), time="ts", replace=True)
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


ASKING = [
    (kind, guide)
    for kind in ("desc", "asc", "weighted")
    for guide in ("countsketch", "directory")
    if guide == "countsketch" or kind == "weighted"  # the others count a sample of the keys themselves
]


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("budget", ["0.05", "0.2", "0.3", "0.5"])
@pytest.mark.parametrize("where", ["", "AND a.ts > 2000 AND b.item % 2 = 0"])
@pytest.mark.parametrize("kind", ["desc", "asc"])
def test_a_join_that_plans_which_keys_come_in_asks_no_summary(kind: str, live: bool, budget: str, where: str) -> None:
    """It passes those without partners by for less, and finds about as much as what summaries guide, or more."""
    db = stores(live)
    text = JOIN.format(kind).replace("WITH", f"{where} WITH", 1).replace("0.3", budget)
    before = db.sql(text, guide="directory").to_arrow()
    summaries(db)
    near = db.sql(text, guide="directory")
    assert near.to_arrow().equals(before)
    assert "summary m" not in near.explain()
    assert near.answer.figures.spent <= near.answer.figures.granted
    assert [row["served"] for row in db.sql("SHOW SUMMARIES").to_arrow().to_pylist()] == [0, 0]
    assert before.num_rows >= 0.98 * db.sql(text, guide="countsketch").to_arrow().num_rows


@pytest.mark.parametrize(("kind", "guide"), ASKING)
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
    guided = "regions by what summaries m1 (a), m2 (b) promise, best first; no grid of its own"
    assert (guided in near.explain()) == (guide == "countsketch")
    assert "a grid of its own" not in near.explain()
    assert near.answer._join.memory.sketches == 0 or guide == "directory"
    if kind != "asc":
        assert len(found) > 1.2 * before
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


@pytest.mark.parametrize("where", ["", "AND a.ts > 2000 AND b.item % 2 = 0"])
@pytest.mark.parametrize("budget", ["0.2", "0.3", "0.5"])
def test_what_asking_summaries_cost_is_taken_from_all_of_the_input_alike(where: str, budget: str) -> None:
    """Were it taken from the beginning, the first tuples would be shed and much of the budget left over at the end."""
    db = stores(False)
    text = JOIN.format("desc").replace("WITH", f"{where} WITH", 1).replace("0.3", budget)
    own = db.sql(text, guide="countsketch").to_arrow().num_rows
    summaries(db)
    assert db.sql(text, guide="countsketch").to_arrow().num_rows >= 1.2 * own


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
    # In time all conditions are answered at once, before a summary could have been asked.
    assert (answer.figures.ruled_out == 0) == (budget.unit == "seconds" and output == "pairs")
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


def guided(*, seed: int = 5, live: bool = False, n: int = 12_000) -> nile.Database:
    """Two streams of Zipf items with a summary each."""
    db = nile.connect()
    for number in (1, 2):
        draw = np.random.default_rng([seed, number])
        table = pa.table({"ts": np.cumsum(draw.exponential(1.0, n)), "item": draw.zipf(1.2, n) % 3_000})
        if live:
            db.stream(f"s{number}", table.schema, time="ts")
            db.push(f"s{number}", table)
        else:
            db.register(f"s{number}", table, time="ts")
    summaries(db)
    return db


def items_of(db: nile.Database, kind: str, budget: float, **options: Any) -> Counter[int]:
    text = JOIN.format(kind).replace("0.3", str(budget))
    return Counter(db.sql(text, guide="countsketch", **options).to_arrow().column(0).to_pylist())


@pytest.mark.parametrize("live", [False, True])
def test_regions_are_visited_in_the_order_in_which_the_summary_promises_matches(live: bool) -> None:
    db = guided(live=live)
    rare = range(12, 60)
    before = items_of(db, "desc", 0.05)
    for number in (1, 2):
        manager = db.summary(f"m{number}")
        index = manager.index(1)
        for key in rare:
            cells = index.cells(hash_keys(pa.array([key]), manager.keys.hasher))[0]
            for row, cell in enumerate(cells):
                manager.store.side.counters[:, row, cell] += 100_000
    after = items_of(db, "desc", 0.05)
    # The summary says that they are everywhere.
    assert sum(after[key] for key in rare) > 5 * sum(before[key] for key in rare)


@pytest.mark.parametrize("kind", ["desc", "asc", "weighted"])
@pytest.mark.parametrize("output", ["pairs", "ranges"])
@pytest.mark.parametrize("fade", thinned([0.5, 1.0], 2))
def test_a_join_that_shared_grids_guide_gives_true_pairs_within_its_budget(kind: str, output: str, fade: float) -> None:
    db = guided(n=6_000)
    query = db.join("s1", "s2", on="item", window=900).prefer(kind, fade=fade).guided_by("countsketch")
    query = query.returning(output)
    exact = db.join("s1", "s2", on="item", window=900).run()
    whole = set(zip(*(each.tolist() for each in exact.pairs().ordinals), strict=True))
    for budget in (0.05, 0.3, 0.8):
        answer = query.run(budget)
        pairs = answer.pairs()
        found = list(zip(*(each.tolist() for each in pairs.ordinals), strict=True))
        assert len(set(found)) == len(found)
        assert set(found) <= whole
        assert answer.figures.spent <= answer.figures.granted
        assert answer.figures.zones == 0  # no zone of its own has ended
    assert found


def test_what_a_join_has_been_lent_stays_as_it_was_when_the_stream_goes_on() -> None:
    db = guided(live=True, n=6_000)
    query = db.join("s1", "s2", on="item", window=900).prefer("desc").guided_by("countsketch")
    whole = query.run(0.3).pairs()
    answer = query.run(0.3)
    for number in (1, 2):
        db.push(f"s{number}", {"ts": np.full(2_000, 1e6), "item": np.arange(2_000)})
    for ours, theirs in zip(answer.pairs().ordinals, whole.ordinals, strict=True):
        assert np.array_equal(ours, theirs)
    assert db.summary("m1").store.tuples == 8_000


def test_fading_prefers_what_is_near_by_the_age_that_shared_grids_tell() -> None:
    db = guided()
    ages = {}
    for fade in (1.0, 0.05):
        text = (
            JOIN.format("desc")
            .replace("SELECT a.item, b.ts", "SELECT a.ts AS t, b.ts")
            .replace("WINDOW 3600 BUDGET 0.3", f"FADE FACTOR {fade} WINDOW 3600 BUDGET 0.1")
        )
        table = db.sql(text, guide="countsketch").to_arrow()
        ages[fade] = np.abs(table.column(0).to_numpy() - table.column(1).to_numpy()).mean()
    assert ages[0.05] < 0.9 * ages[1.0]


def test_weighted_pairs_that_shared_grids_guide_stand_for_the_whole() -> None:
    db = guided(n=4_000)
    query = db.join("s1", "s2", on="item", window=None).prefer("weighted").guided_by("countsketch")
    exact = db.join("s1", "s2", on="item", window=None).run().estimate.value
    told = [query.using(seed=seed).run(0.2).estimate.value for seed in range(40)]
    assert abs(np.mean(told) - exact) < 4 * np.std(told) / np.sqrt(40) + 0.01 * exact


@kernel
def between(s: Any, h: Any, since: int, until: int, rows: int, enough: float) -> tuple[float, float, float, int]:
    """`read_between` as kernels call it."""
    return read_between(s, h, since, until, rows, enough)


@settings(max_examples=60, deadline=None)
@given(
    seed=some.integers(0, 1 << 30),
    structure=some.sampled_from(["T2", "T3", "T4"]),
    depth=some.integers(1, 3),
    n=some.integers(0, 5_000),
    rows=some.sampled_from([1, 3]),
)
def test_a_lent_grid_bounds_what_lies_between_two_times(
    seed: int, structure: str, depth: int, n: int, rows: int
) -> None:
    draw = np.random.default_rng(seed)
    keys = draw.zipf(1.3, n) % 500
    ts = np.cumsum(draw.integers(0, 3, n)).astype(np.int64)
    manager = SummaryManager(SummarySpec(600, 2, depth, structure=structure, buckets=4, columns=16))
    manager.ingest(ts, pa.array(keys))
    lent = manager.lent()
    zones = manager.zones()
    for key in draw.integers(0, 500, 5):
        (h,) = hash_keys(pa.array([key]), manager.keys.hasher)
        since, until = np.sort(draw.integers(-10, int(ts[-1]) + 10 if n else 10, 2))
        inside = (ts >= since) & (ts <= until)
        least = 0
        for enough in (0.0, 0.25, 1.0):
            value, bound, tuples, reads = between(lent, h, since, until, rows, enough)
            assert 0.0 <= value <= bound
            assert bound >= np.count_nonzero(inside & (keys == key))
            assert reads >= least
            least = reads
            assert reads <= depth or enough > 0.0
        touched = [zone for zone in zones if zone.last >= since and zone.first <= until]
        shares = [
            zone.summarised * (min(zone.last, until) - max(zone.first, since) + 1) / (zone.last - zone.first + 1)
            for zone in touched
        ]
        assert tuples == pytest.approx(sum(shares))
        assert reads <= len(touched) + 2
        if n and since <= ts[0] and until >= ts[-1]:
            assert reads <= depth


def self_and_three(n: int = 3_000) -> nile.Database:
    db = guided(n=n)
    draw = np.random.default_rng(9)
    db.register(
        "s3", pa.table({"ts": np.cumsum(draw.exponential(1.0, n)), "item": draw.zipf(1.2, n) % 3_000}), time="ts"
    )
    db.sql("CREATE SUMMARY m3 ON s3 (item) WITH GRANULARITY '10 min' AND COLLAPSE (2, 2) USING columns = 128")
    return db


WIDER = {
    "self": (("s1 AS a", "s1 AS b"), None),
    "self-condition": (("s1 AS a", "s1 AS b"), "a.ts < b.ts"),
    "three": (("s1", "s2", "s3"), None),
    "condition": (("s1 AS a", "s2 AS b"), "a.ts < b.ts"),
}


@pytest.mark.parametrize("name", WIDER)
@pytest.mark.parametrize("kind", ["desc", "asc", "weighted"])
def test_self_joins_and_joins_of_several_read_the_shared_grids(name: str, kind: str) -> None:
    db = self_and_three()
    streams, where = WIDER[name]
    query = db.join(*streams, on="item", window=60, where=where).prefer(kind, outlier_cap=6).guided_by("countsketch")
    exact = db.join(*streams, on="item", window=60, where=where).run()
    whole = set(zip(*(each.tolist() for each in exact.members().ordinal), strict=True))
    told = query.explain(0.3)
    assert "no grid of its own" in told
    answer = query.run(0.3)
    found = list(zip(*(each.tolist() for each in answer.members().ordinal), strict=True))
    assert len(set(found)) == len(found)
    assert set(found) <= whole
    assert answer.figures.spent <= answer.figures.granted
    assert [row["served"] for row in db.sql("SHOW SUMMARIES").to_arrow().to_pylist()] == [
        1 if f"s{number}" in " ".join(streams) else 0 for number in (1, 2, 3)
    ]
    assert answer.borrows
    for number in (1, 2, 3):
        db.summary(f"m{number}").store.side.counters[:] = 0
    blind = query.run(0.3)
    assert blind.members().ordinal[0].size == 0  # nothing is promised anywhere
    for number in (1, 2, 3):
        db.sql(f"DROP SUMMARY m{number}")
    assert "no grid of its own" not in query.explain(0.3)
    assert not query.run(0.3).borrows


@pytest.mark.parametrize("fade", thinned([0.5, 1.0], 2))
def test_fading_joins_of_three_by_shared_grids_are_true(fade: float) -> None:
    db = self_and_three()
    query = db.join("s1", "s2", "s3", on="item", window=150).prefer("desc", fade=fade).guided_by("countsketch")
    exact = db.join("s1", "s2", "s3", on="item", window=150).run().members().ordinal
    answer = query.run(0.2)
    whole = set(zip(*(each.tolist() for each in exact), strict=True))
    found = list(zip(*(each.tolist() for each in answer.members().ordinal), strict=True))
    assert found
    assert set(found) <= whole
    assert len(set(found)) == len(found)
    assert answer.figures.spent <= answer.figures.granted


@pytest.mark.parametrize("kind", ["desc", "asc", "weighted"])
def test_standing_joins_read_the_shared_grids(kind: str) -> None:
    db = self_and_three()

    def ask() -> Any:
        queries = [
            db.join("s1", "s2", on="item", window=60).prefer(kind).guided_by("countsketch"),
            db.join("s1", "s2", on="item", window=600).prefer("desc").guided_by("countsketch"),
            db.join("s1", "s2", "s3", on="item", window=60).prefer("desc").guided_by("countsketch"),
        ]
        answers = db.standing(queries).run(0.3)
        return answers, [answer.members() for answer in answers], answers.upkeep

    answers, found, upkeep = ask()
    assert answers.budget.spent <= 0.3 + 1e-9
    for answer, members, exact in zip(
        answers,
        found,
        [
            db.join("s1", "s2", on="item", window=60).run(),
            db.join("s1", "s2", on="item", window=600).run(),
            db.join("s1", "s2", "s3", on="item", window=60).run(),
        ],
        strict=True,
    ):
        whole = set(zip(*(each.tolist() for each in exact.members().ordinal), strict=True))
        pairs = list(zip(*(each.tolist() for each in members.ordinal), strict=True))
        assert set(pairs) <= whole
        assert len(set(pairs)) == len(pairs)
        assert answer._join.memory.sketches < 5_000  # a store without counters
    assert [row["served"] for row in db.sql("SHOW SUMMARIES").to_arrow().to_pylist()] == [3, 3, 1]
    for number in (1, 2, 3):
        db.summary(f"m{number}").store.side.counters[:] = 0
    _, blind, _ = ask()
    assert [members.ordinal[0].size for members in blind] == [0, 0, 0]
    for number in (1, 2, 3):
        db.sql(f"DROP SUMMARY m{number}")
    _, own, dearer = ask()
    assert dearer > upkeep  # they keep grids of their own
    assert found[1].ordinal[0].size > 0 < own[1].ordinal[0].size


@pytest.mark.parametrize("kind", ["desc", "weighted"])
@pytest.mark.parametrize("guide", ["countsketch", "directory"])
@pytest.mark.parametrize("budget", [0.05, 0.1, 0.3, 0.6])
def test_a_summary_does_not_make_a_join_find_less(kind: str, guide: str, budget: float) -> None:
    """Under weighted, what a sample tells of the whole is what is found: rows are few where each is worth more."""
    db = stores(False)
    query = db.join("s1", "s2", on="item", window=3_600).prefer(kind).guided_by(guide)
    exact = db.join("s1", "s2", on="item", window=3_600).run().estimate.value

    def missed() -> float:
        if kind == "desc":
            return -query.run(budget).pairs().ordinals[0].size
        told = [query.using(seed=seed).run(budget).estimate.value for seed in range(16)]
        assert abs(np.mean(told) - exact) <= 4 * np.std(told) / 4
        return float(np.square(np.array(told) - exact).mean())

    without = missed()
    summaries(db)
    assert missed() <= without


@pytest.mark.parametrize("guide", ["countsketch", "directory"])
def test_summaries_that_were_made_unlike_serve_one_join(guide: str) -> None:
    db = stores(False)
    db.sql("CREATE SUMMARY m1 ON s1 (item) WITH GRANULARITY '10 min' AND COLLAPSE (4, 3) USING columns = 512")
    db.sql("CREATE SUMMARY m2 ON s2 (item) WITH GRANULARITY '5 min' AND COLLAPSE (2, 2) USING columns = 256, rows = 1")
    for fade in ("", "FADE FACTOR 0.5 "):
        result = db.sql(JOIN.format("desc").replace("WINDOW", f"{fade}WINDOW"), guide=guide)
        assert result.to_arrow().num_rows > 5_284  # what it finds without
        assert result.answer.figures.spent <= result.answer.figures.granted
        assert ("m1 (a), m2 (b)" in result.explain()) == (guide == "countsketch")
        assert "a grid of its own, made as" not in result.explain()


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize(("kind", "guide"), ASKING)
def test_a_join_of_selected_tuples_reads_the_summaries_of_the_whole_streams(kind: str, guide: str, live: bool) -> None:
    db = stores(live)
    text = JOIN.format(kind).replace("WITH", "AND a.ts > 2000 AND b.item % 2 = 0 WITH", 1)
    exact = Counter(db.sql(text.replace("0.3", "1.0")).to_arrow().column(0).to_pylist())
    before = db.sql(text, guide=guide).to_arrow().num_rows
    summaries(db)
    near = db.sql(text, guide=guide)
    found = Counter(near.to_arrow().column(0).to_pylist())
    assert not found - exact or kind == "asc"
    assert near.answer.figures.ruled_out > 4_000
    assert near.answer.figures.spent <= near.answer.figures.granted
    assert sum(found.values()) >= 0.95 * before  # which slots of the key space are opened is luck
    assert [row["served"] for row in db.sql("SHOW SUMMARIES").to_arrow().to_pylist()] == [1, 1]
    for number in (1, 2):
        db.summary(f"m{number}").store.side.counters[:] = 0
    assert db.sql(text, guide=guide).to_arrow().num_rows == 0  # nothing is promised anywhere


@settings(max_examples=40, deadline=None)
@given(
    seed=some.integers(0, 1 << 30),
    window=some.sampled_from([None, 5, 60, 900]),
    guide=some.sampled_from(["countsketch", "directory"]),
    sizes=some.tuples(some.integers(0, 1_000), some.integers(1, 1_000)),
)
def test_selected_tuples_that_are_ruled_out_have_no_partner(
    seed: int, window: int | None, guide: str, sizes: tuple[int, int]
) -> None:
    draw = np.random.default_rng(seed)
    db = nile.connect()
    for number, n in enumerate(sizes, 1):
        table = pa.table({"ts": np.cumsum(draw.integers(0, 4, n)) * 1.0, "item": draw.zipf(1.4, n) % 200 + 60 * number})
        db.register(f"s{number}", table, time="ts")
        db.sql(f"CREATE SUMMARY m{number} ON s{number} (item) WITH GRANULARITY '1 min' AND COLLAPSE (2, 3)")
    query = db.join("s1", "s2", on="item", window=window, where="s1.ts > 100").guided_by(guide)
    whole = query.run().members().ordinal
    found = query.prefer("desc").run(budget=0.9)
    rows = found.members().ordinal
    assert set(zip(*map(list, rows), strict=True)) <= set(zip(*map(list, whole), strict=True))
    assert found.figures.spent <= found.figures.granted
