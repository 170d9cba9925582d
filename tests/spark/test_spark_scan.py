"""engine="spark": a scan of the lake answers what the local engine answers, the promising partitions first.

Spark finds the whole answer once.  What does not depend on Spark is compared with it on tasks that run in this process.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from spark_stand_in import StandIn
from workload_lake import START, write_lake

import nile
import nile.spark.scan.scan as scan_module
from nile.answers.result import Result
from nile.pyramid.lake.lake import LakeStream
from nile.spark.scan import partitions
from nile.spark.scan.groups import Totals
from nile.spark.scan.ranking import ranked
from nile.spark.scan.scan import ScanRun
from nile.summaries.errors import StoreCorrupt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = 3_600 * 10**9
WINDOW = 60
PAIRS = (
    "SELECT A.item, A.price, B.price AS other, A.at, B.at AS then FROM a A, b B "
    "WHERE A.item = B.item AND A.price < B.price {} WINDOW 60"
)
COUNT = "SELECT count(*) AS n FROM a A, b B WHERE A.item = B.item WITH PREFERENCE {} A.item WINDOW 60"


def columns_of(rng: np.random.Generator, tuples: int) -> dict[str, Any]:
    items = rng.zipf(1.3, tuples) % 300
    return {"item": pa.array(items, mask=rng.random(tuples) < 0.02), "price": rng.integers(0, 1_000, tuples)}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two streams over 16 hours; item 7 is sold in two of them alone, in both."""
    path = tmp_path_factory.mktemp("scan") / "lake"
    for name, seed in (("a", 1), ("b", 2)):
        rng = np.random.default_rng(seed)
        ts = np.concatenate([rng.integers(0, 16 * HOUR, 3_000), rng.integers(8 * HOUR, 10 * HOUR, 2_000)])
        columns = columns_of(rng, 5_000)
        items = columns["item"].to_pylist()
        items[3_000:] = [7] * 2_000
        order = np.argsort(ts, kind="stable")
        rows = pa.table({"item": pa.array(items), "price": columns["price"]}).take(pa.array(order))
        write_lake(
            path, name, ts[order] // 10**9 * 10**9, {n: rows.column(n).combine_chunks() for n in rows.schema.names}
        )
    return path


@pytest.fixture(scope="module")
def whole(db: nile.Database, spark: SparkSession) -> Result:
    """All of PAIRS by a scan on Spark, found once."""
    assert spark is not None
    made = db.sql(PAIRS.format("WITH PREFERENCE desc A.item"), engine="spark")
    made.to_arrow()
    return made


@pytest.fixture(scope="module")
def db(root: Path) -> Iterator[nile.Database]:
    with nile.connect() as made:
        made.register("a", root / "a")
        made.register("b", nile.spark.lake(root, "b"))
        yield made


@pytest.fixture
def on_spark(spark: SparkSession) -> None:
    """The scans of this test are Spark's."""
    assert spark is not None


@pytest.fixture(autouse=True)
def tasks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scans of other tests are done in this process."""
    if "on_spark" not in request.fixturenames:
        stand_in = StandIn(random.Random(0))
        monkeypatch.setattr(scan_module, "spark_session", lambda: stand_in)


def in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in table.column_names])


def run_of(result: Result) -> ScanRun:
    result.to_arrow()
    assert isinstance(result._run, ScanRun)
    return result._run


def test_a_stream_of_a_lake_is_a_source_of_plain_queries_too(db: nile.Database, root: Path) -> None:
    rows = db.sql("SELECT at, item, price FROM a").to_arrow()
    assert rows.num_rows == 5_000
    assert (np.diff(rows["at"].cast(pa.int64()).to_numpy()) >= 0).all()
    assert int(rows["at"].cast(pa.int64())[0].as_py()) >= START
    files = str(root / "a" / "*" / "part-*.parquet")
    theirs = duckdb.sql(f"SELECT sum(price), count(item) FROM read_parquet('{files}')").fetchall()
    assert db.sql("SELECT sum(price), count(item) FROM a").fetchall() == theirs


@pytest.mark.spark
def test_the_whole_scan_is_the_exact_join(db: nile.Database, whole: Result) -> None:
    exact = in_order(db.sql(PAIRS.format("")).to_arrow())
    assert in_order(whole.to_arrow()) == exact
    assert whole.coverage == 1.0
    assert float(whole.estimate.value) == exact.num_rows
    assert all(one.applied == one.tuples_in == 5_000 for one in whole.accounting.values())


@pytest.mark.spark
def test_duckdb_finds_the_same_pairs(whole: Result, root: Path) -> None:
    a, b = (f"read_parquet('{root / name / '*' / 'part-*.parquet'}')" for name in "ab")
    theirs = duckdb.sql(
        f"SELECT A.item, A.price, B.price, A._ts, B._ts FROM {a} A, {b} B WHERE A.item = B.item "
        f"AND A.price < B.price AND abs(A._ts - B._ts) <= {WINDOW * 10**9}"
    ).fetchall()
    mine = whole.to_arrow()
    times = [mine[name].cast(pa.int64()).to_pylist() for name in ("at", "then")]
    pairs = zip(*(mine[name].to_pylist() for name in ("item", "price", "other")), *times, strict=True)
    assert sorted(pairs) == sorted(theirs)


def test_asc_finds_the_outliers_of_the_local_engine(db: nile.Database) -> None:
    text = PAIRS.format("WITH PREFERENCE asc A.item").replace("AND A.price < B.price", "")
    exact = db.sql(text, budget=1.0).to_arrow()
    scanned = db.sql(text, engine="spark").to_arrow()
    assert 0 < exact.num_rows < 30_000
    assert in_order(scanned) == in_order(exact)


@pytest.mark.spark
@pytest.mark.usefixtures("on_spark")
def test_weighted_at_full_budget_has_every_pair_with_weight_one(db: nile.Database) -> None:
    scanned = db.sql(PAIRS.format("WITH PREFERENCE weighted A.item"), engine="spark").to_arrow()
    assert set(scanned["_weight"].to_pylist()) == {1.0}
    assert in_order(scanned.drop_columns("_weight")) == in_order(db.sql(PAIRS.format("")).to_arrow())


def test_without_a_window_it_is_the_join_of_all_that_is_there(db: nile.Database) -> None:
    text = "SELECT count(*) AS n FROM a A, b B WHERE A.item = B.item AND A.item > 20 {}"
    exact = db.sql(text.format("")).fetchall()
    assert db.sql(text.format("WITH PREFERENCE desc A.item"), engine="spark").fetchall() == exact


@pytest.mark.spark
@pytest.mark.usefixtures("on_spark")
def test_counting_counts_the_pairs_of_the_join(db: nile.Database) -> None:
    pairs = db.sql(PAIRS.format("").replace("AND A.price < B.price", "")).to_arrow().num_rows
    assert db.sql(COUNT.format("desc"), engine="spark").fetchall() == [(pairs,)]


def test_a_selection_reads_only_where_its_keys_can_be(db: nile.Database) -> None:
    text = "SELECT at, item, price FROM a WHERE item IN (7, 250) AND price < 500 {}"
    exact = in_order(db.sql(text.format("")).to_arrow())
    scanned = db.sql(text.format("WITH PREFERENCE desc item"), engine="spark")
    assert in_order(scanned.to_arrow()) == exact
    run = run_of(scanned)
    assert run._waves is not None
    assert all(found <= each.upper for found, each in zip(run._waves.outputs, run.ranking.order, strict=True))
    few = db.sql(text.format("WITH PREFERENCE desc item"), engine="spark", budget=0.5)
    assert len(few) > 0.5 * exact.num_rows  # item 7 is sold in two hours alone
    assert few.to_arrow() == scanned.to_arrow().slice(0, len(few))
    nowhere = run_of(db.sql("SELECT at FROM a WHERE item = 123456", engine="spark"))
    assert nowhere.ranking.ruled_out > 0


def test_aggregates_by_group_are_those_of_the_pairs(db: nile.Database) -> None:
    text = (
        "SELECT A.item, count(*) AS n, sum(A.price) AS s, avg(B.price) AS m, min(A.at) AS f, max(B.price) AS x, "
        "median(A.price) AS q, quantile_disc(B.price, 0.9) AS d, stddev(B.price) AS v "
        "FROM a A, b B WHERE A.item = B.item AND A.price < B.price GROUP BY A.item WITH PREFERENCE {} A.item WINDOW 60"
    )
    pairs = db.sql(PAIRS.format("")).to_arrow()
    theirs = duckdb.sql(
        'SELECT item, count(*), sum(price), avg(other), min("at"), max(other), median(price), '
        "quantile_disc(other, 0.9), stddev(other) FROM pairs GROUP BY item ORDER BY item"
    ).fetchall()
    assert pairs.num_rows
    for kind in ("desc", "weighted"):
        mine = sorted(db.sql(text.format(kind), engine="spark").fetchall())
        assert [row[:3] + row[5:8] for row in mine] == [row[:3] + row[5:8] for row in theirs]
        for at in (3, 8):
            assert [row[at] for row in mine] == pytest.approx([row[at] for row in theirs])
    part = db.sql(text.format("weighted"), engine="spark", budget=0.6)
    *_, last = part.progress(every=0)
    assert not last.done
    told = last.estimates["n"]
    rows = last.to_arrow().to_pylist()
    assert [round(float(each.value)) for each in told] == [row["n"] for row in rows]
    assert any(float(each.low) < float(each.high) for each in told)


def test_without_rows_there_is_still_one_row_of_aggregates(db: nile.Database) -> None:
    text = "SELECT count(*) AS n, sum(price) AS s FROM a WHERE item = 123456"
    assert db.sql(text, engine="spark").fetchall() == db.sql(text).fetchall() == [(0, None)]


@pytest.mark.spark
def test_partitions_read_are_a_prefix_of_the_ranking_and_the_answer_grows(db: nile.Database, whole: Result) -> None:
    text = PAIRS.format("WITH PREFERENCE desc A.item")
    everything = whole.to_arrow()
    rows, coverage, low, high = 0, 0.0, 0.0, np.inf
    for partial in db.sql(text, engine="spark").progress(every=0):
        assert partial.to_arrow() == everything.slice(0, len(partial))
        assert len(partial) >= rows
        assert partial.coverage >= coverage
        assert float(partial.estimate.low) >= low
        assert float(partial.estimate.high) <= high
        assert float(partial.estimate.low) <= everything.num_rows <= float(partial.estimate.high)
        rows, coverage = len(partial), partial.coverage
        low, high = float(partial.estimate.low), float(partial.estimate.high)
    assert (rows, coverage) == (everything.num_rows, 1.0)
    assert partial.done


@pytest.mark.spark
def test_a_fraction_of_the_bytes_reads_the_best_partitions_and_no_more(db: nile.Database, whole: Result) -> None:
    text = PAIRS.format("WITH PREFERENCE desc A.item")
    everything = whole.to_arrow()
    part = db.sql(text, engine="spark", budget=0.4)
    rows = part.to_arrow()
    assert 0 < part.budget.spent <= 0.4
    assert rows == everything.slice(0, rows.num_rows)
    assert rows.num_rows > 0.7 * everything.num_rows
    assert part.accounting["A"].shed > 0
    run = run_of(part)
    assert run._waves is not None
    spent = sum(each.bytes for each in run.ranking.order[: run._waves.read])
    assert spent == run._waves.bytes <= 0.4 * run.ranking.bytes
    *_, last = db.sql(text, engine="spark", budget=0.4).progress(every=0)
    assert not last.done
    assert last.to_arrow() == rows


@pytest.mark.spark
def test_outputs_are_the_first_ones_of_the_whole_answer(db: nile.Database, whole: Result) -> None:
    text = PAIRS.format("WITH PREFERENCE desc A.item")
    cut = db.sql(text, engine="spark", budget=nile.Budget(outputs=150))
    assert cut.to_arrow() == whole.to_arrow().slice(0, 150)
    assert (cut.budget.unit, cut.budget.spent) == ("outputs", 150.0)


@pytest.mark.spark
@pytest.mark.usefixtures("on_spark")
@pytest.mark.parametrize("budget", [nile.Budget(seconds=0.05), nile.Budget(deadline=0.05)])
def test_a_deadline_cancels_what_runs_and_leaves_a_prefix(
    db: nile.Database, whole: Result, budget: nile.Budget
) -> None:
    text = PAIRS.format("WITH PREFERENCE desc A.item")
    cut = db.sql(text, engine="spark", budget=budget)
    rows = cut.to_arrow()
    assert cut.budget.unit == budget.unit
    assert rows == whole.to_arrow().slice(0, rows.num_rows)
    assert rows.num_rows < whole.to_arrow().num_rows
    again = db.sql(text, engine="spark", budget=nile.Budget(outputs=5))  # nothing of the cancelled job is in the way
    assert again.to_arrow() == whole.to_arrow().slice(0, 5)


@pytest.mark.spark
def test_estimates_of_zero_change_the_order(db: nile.Database, whole: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    told = [(*each.lanes, each.age) for each in run_of(whole).ranking.order]
    real = partitions.products
    monkeypatch.setattr(partitions, "products", lambda one, other: (0.0 * real(one, other)[0], real(one, other)[1]))
    run = run_of(db.sql(PAIRS.format("WITH PREFERENCE desc A.item"), engine="spark", budget=1e-9))
    blind = [(*each.lanes, each.age) for each in run.ranking.order]
    assert sorted(told) == sorted(blind)
    assert told != blind


@pytest.mark.spark
@pytest.mark.usefixtures("on_spark")
def test_the_bounds_hold_and_what_they_rule_out_is_never_read(tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 12)):  # both have items 0 to 9 in hours 6 and 7, else nothing in common
        rng = np.random.default_rng(first)
        ts = np.sort(rng.integers(0, 12, 2_000)) * HOUR + np.arange(2_000) * 10**6
        hour = ts // HOUR
        common = (hour >= 6) & (hour < 8)
        items = np.where(common, rng.integers(0, 10, 2_000), 1_000 * (first + 1) + rng.integers(0, 500, 2_000))
        write_lake(tmp_path, name, ts, {"item": items, "price": rng.integers(0, 9, 2_000)})
    db = nile.connect()
    for name in ("a", "b"):
        db.register(name, tmp_path / name)
    run = run_of(db.sql(COUNT.format("desc"), engine="spark"))
    assert run.ranking.ruled_out > 0
    assert run._waves is not None
    for each, found in zip(run.ranking.order, run._waves.outputs, strict=True):
        assert found <= each.upper
    exact = db.sql("SELECT A.at FROM a A, b B WHERE A.item = B.item WINDOW 60").to_arrow().num_rows
    assert run._waves.found == exact
    files = {tmp_path / name / part.name for name in ("a", "b") for part in LakeStream.open(tmp_path, name).parts}
    asked = {
        side.path / cell.part.name
        for each in run.ranking.order
        for side, cells in zip(run.query.task.sides, each.work.cells, strict=True)
        for cell in cells
    }
    assert len(files) > 2 * len(asked) > 0
    for file in files - asked:
        file.write_bytes(b"broken")
    assert db.sql(COUNT.format("desc"), engine="spark").fetchall() == [(exact,)]
    min(asked).write_bytes(b"broken")  # the control: a file that is read
    with pytest.raises(StoreCorrupt, match=min(asked).name):
        db.sql(COUNT.format("desc"), engine="spark").fetchall()


def test_explain_ranks_without_reading(db: nile.Database) -> None:
    text = db.sql("EXPLAIN " + PAIRS.format("WITH PREFERENCE desc A.item"), engine="spark").fetchall()[0][0]
    assert "partitions" in text
    assert "bytes" in text
    assert "ruled out by the sketches" in text
    assert "expected gain: 90% of the expected outputs need" in text
    assert "actual" not in text


def test_weights_make_the_count_unbiased_and_its_intervals_cover(db: nile.Database) -> None:
    exact = float(db.sql(COUNT.format("desc"), engine="spark").fetchall()[0][0])
    run = run_of(db.sql(COUNT.format("weighted"), engine="spark"))
    assert run._waves is not None
    outputs = dict(zip(map(id, run.ranking.order), run._waves.outputs, strict=True))
    values, covered = [], 0
    for seed in range(400):
        ranking = ranked(run.ranking.order, "weighted", 1.0, seed)
        read = ranking.fits(0.5 * ranking.bytes)
        found = np.array([outputs[id(each)] for each in ranking.order[:read]], float)
        told = ranking.total(found, read, 0.95)
        values.append(float((ranking.weights(read) * found).sum()))
        covered += float(told.low) <= exact <= float(told.high)
    spread = np.std(values) / 20.0
    assert abs(np.mean(values) - exact) < 4.0 * spread
    assert covered >= 0.85 * 400


def test_intervals_of_means_spreads_and_quantiles_cover_over_draws_of_partitions(db: nile.Database) -> None:
    text = (
        "SELECT avg(A.price) AS m, stddev(A.price) AS d, median(A.price) AS q, quantile_disc(A.price, 0.2) AS t "
        "FROM a A, b B WHERE A.item = B.item WITH PREFERENCE weighted A.item WINDOW 60"
    )
    result = db.sql(text, engine="spark")
    exact = dict(zip("mdqt", result.fetchall()[0], strict=True))
    run = run_of(result)
    group = run.query.group
    assert group is not None
    found = {id(run.ranking.order[place]): batch for place, batch in run._partials}
    covered = dict.fromkeys(exact, 0)
    for seed in range(100):
        ranking = ranked(run.ranking.order, "weighted", 1.0, seed)
        read = ranking.fits(0.5 * ranking.bytes)
        parts = [(at, found[id(one)]) for at, one in enumerate(ranking.order[:read]) if id(one) in found]
        told = Totals(group, parts, ranking.weights(read)).estimates(0.95)
        for name, truth in exact.items():
            (one,) = told[group.aggregates["mdqt".index(name)].name]
            covered[name] += bool(one.covers(float(truth)))
    assert min(covered.values()) >= 85, covered


@pytest.mark.parametrize(
    ("text", "options", "error", "said"),
    [
        ("SELECT item FROM a WITH PREFERENCE asc item", {"outlier_cap": 3}, nile.ConfigError, "outlier_cap"),
        ("SELECT A.at FROM a A, b B WHERE A.price = B.price WINDOW 60", {}, nile.NotYet, "clustered by 'item'"),
        (PAIRS.format("") + " ORDER BY price", {"emit": "snapshot"}, nile.NotYet, "ORDER BY"),
        (PAIRS.format(""), {"method": "paper"}, nile.ConfigError, "method"),
        (PAIRS.format(""), {"budget": nile.Budget(share=0.5)}, nile.BudgetError, "share"),
        ("SELECT M.at FROM a A, m M WHERE A.item = M.item WINDOW 60", {}, nile.ConfigError, "nile ingest"),
        (COUNT.format("weighted").replace("count(*)", "count(DISTINCT A.price)"), {}, nile.NotYet, "DISTINCT"),
    ],
)  # fmt: skip
def test_what_it_cannot_do_is_one_clear_sentence(
    db: nile.Database, text: str, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    db.register("m", {"at": [0.0], "item": [1]}, time="at", replace=True)
    with pytest.raises(error, match="engine") as told:
        db.sql(text, engine="spark", **options)
    assert said in str(told.value)
    assert "\n" not in str(told.value)
