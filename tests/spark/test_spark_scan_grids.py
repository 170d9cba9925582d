"""Scans whose promising regions come from grids: of a store that was built, or of CREATE SUMMARY on the lake."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from spark_stand_in import StandIn
from test_spark_build import in_turn
from thinning import thinned
from workload_lake import write_lake

import nile
import nile.spark.scan.scan as scan_module
from nile.pyramid.lake.lake import LakeStream
from nile.spark.building.build import build, build_with

HOUR = 3_600 * 10**9
JOIN = "SELECT A.item, A.n, B.n AS other FROM a A, b B WHERE A.item = B.item WITH PREFERENCE {} A.item WINDOW 60"
SELECTION = "SELECT at, item FROM a WHERE item IN (7, 250) WITH PREFERENCE desc item"
SUMMARY = (
    "CREATE SUMMARY m{0} ON {0} (item) WITH GRANULARITY '1 h' AND COLLAPSE (4, 3) "
    "USING structure = 'T3', buckets = 64, columns = 64, max_length = '15 min'"
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two streams over 16 hours; item 7 is sold in two of them alone, in both."""
    path = tmp_path_factory.mktemp("grids") / "lake"
    for name, seed in (("a", 1), ("b", 2)):
        rng = np.random.default_rng(seed)
        ts = np.concatenate([rng.integers(0, 16 * HOUR, 3_000), rng.integers(8 * HOUR, 10 * HOUR, 2_000)])
        item = rng.zipf(1.3, 5_000) % 300
        item[3_000:] = 7
        order = np.argsort(ts, kind="stable")
        write_lake(path, name, ts[order] // 10**9 * 10**9, {"item": pa.array(item[order]), "n": pa.array(order)})
    return path


@pytest.fixture
def db(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[nile.Database]:
    stand_in = StandIn(random.Random(0))
    monkeypatch.setattr(scan_module, "spark_session", lambda: stand_in)
    with nile.connect() as made:
        for name in "ab":
            made.register(name, root / name)
        yield made


def built(db: nile.Database) -> None:
    """Summaries of both streams, counted."""
    for name in "ab":
        db.sql(SUMMARY.format(name))
        db.summary(f"m{name}")


def order_of(db: nile.Database, text: str) -> list[tuple[Any, ...]]:
    result = db.sql(text, engine="spark")
    result.to_arrow()
    return [(each.work.begin, each.lanes) for each in result._run.ranking.order]  # type: ignore[union-attr]


def rows_of(db: nile.Database, text: str, **options: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, db.sql(text, **options).fetchall()))


@pytest.mark.parametrize("text", [JOIN.format("desc"), JOIN.format("weighted"), SELECTION])
def test_a_grid_orders_the_partitions_and_changes_no_whole_answer(db: nile.Database, text: str) -> None:
    plain, whole = order_of(db, text), rows_of(db, text, engine="spark")
    assert "grids of summaries" not in db.sql(text, engine="spark").explain()
    built(db)
    assert "expected by the grids of summaries ma" in db.sql(text, engine="spark").explain()
    guided = order_of(db, text)
    assert guided != plain
    assert sorted(map(str, guided)) == sorted(map(str, plain))
    assert rows_of(db, text, engine="spark") == whole
    for name in "ab":
        db.summary(f"m{name}").store.side.counters[:] = 0
    assert order_of(db, text) != guided
    assert rows_of(db, text, engine="spark") == whole
    for name in "ab":
        db.sql(f"DROP SUMMARY m{name}")
    assert order_of(db, text) == plain


def test_the_best_partitions_by_a_grid_have_most_outputs(db: nile.Database) -> None:
    built(db)
    all_of_it = len(db.sql(JOIN.format("desc"), engine="spark"))
    part = db.sql(JOIN.format("desc"), engine="spark", budget=0.5)
    assert len(part) > 0.9 * all_of_it
    assert part.budget.fraction <= 0.5


def test_weighted_by_a_grid_is_right_in_the_mean(db: nile.Database) -> None:
    whole = len(db.sql(JOIN.format("desc"), engine="spark"))
    built(db)
    told = []
    for seed in range(60):
        rows = db.sql(JOIN.format("weighted"), engine="spark", budget=0.5, seed=seed).to_arrow()
        told.append(sum(rows["_weight"].to_pylist()))
    assert abs(np.mean(told) - whole) < 4 * np.std(told) / np.sqrt(60)


def test_a_store_that_was_built_guides_the_scan_of_its_lake(root: Path, tmp_path: Path, db: nile.Database) -> None:
    for name in "ab":
        summary = SUMMARY.format(name)
        build_with(in_turn, LakeStream.open(root, name), tmp_path / "store", summaries=[summary])
    text = JOIN.format("desc").replace("FROM a A, b B", "FROM lake_a A, lake_b B")
    with nile.connect(tmp_path / "store") as store:
        for name in "ab":
            store.register(f"lake_{name}", root / name)
        assert "expected by the grids of summaries ma, mb" in store.sql(text, engine="spark").explain()
        assert rows_of(store, text, engine="spark") == rows_of(db, JOIN.format("desc"), engine="spark")
        guided = order_of(store, text)
        for name in "ab":
            store.summary(f"m{name}").store.side.counters[:] = 0
        assert order_of(store, text) != guided


AGGREGATE = "SELECT count(*) AS c, sum(n) AS s, avg(n) AS m FROM a WHERE item IN (7, 250) WITH PREFERENCE {} item"
QUESTIONS = {
    "join": JOIN,
    "self-join": JOIN.replace("b B", "a B"),
    "condition on pairs": JOIN.replace(" WITH", " AND A.n < B.n WITH"),
    "selection": "SELECT at, item FROM a WHERE item IN (7, 250) WITH PREFERENCE {} item",
    "aggregate": AGGREGATE,
    "group by": AGGREGATE.replace("count(*) AS c", "item, count(*) AS c").replace(" WITH", " GROUP BY item WITH"),
    "join and aggregate": JOIN.replace("A.item, A.n, B.n AS other", "count(*) AS c, sum(B.n) AS s"),
}


def _guided(lake: Path, store: Path, question: str, preference: str) -> None:
    """A cell of the matrix: its regions come from the grids of a store that was built, and from nowhere without."""
    text = QUESTIONS[question].format(preference)
    text = text.replace("FROM a A, a B", "FROM lake_a A, lake_a B").replace("FROM a A, b B", "FROM lake_a A, lake_b B")
    text = text.replace("FROM a ", "FROM lake_a ")
    with nile.connect(store) as db:
        for name in "ab":
            db.register(f"lake_{name}", lake / name)
        claimed = db.sql(text, engine="spark").explain()
        assert "expected by the grids of summaries ma" in claimed
        whole, guided = rows_of(db, text, engine="spark"), order_of(db, text)
        for name in "ab":
            db.summary(f"m{name}").store.side.counters[:] = 0
        assert order_of(db, text) != guided
        if question != "group by" and "aggregate" not in question:
            assert [row[:3] for row in rows_of(db, text, engine="spark")] == [row[:3] for row in whole]
        for name in "ab":
            db.sql(f"DROP SUMMARY m{name}")
        assert "grids of summaries" not in db.sql(text, engine="spark").explain() != claimed


@pytest.mark.usefixtures("db")
@pytest.mark.parametrize("preference", ["desc", "weighted"])
@pytest.mark.parametrize("question", thinned(QUESTIONS, 3))
def test_each_scan_that_claims_a_built_grid_reads_it(
    root: Path, tmp_path: Path, question: str, preference: str
) -> None:
    for name in "ab":
        build_with(in_turn, LakeStream.open(root, name), tmp_path / "store", summaries=[SUMMARY.format(name)])
    _guided(root, tmp_path / "store", question, preference)


@pytest.mark.slow
@pytest.mark.spark
def test_what_spark_built_guides_what_spark_scans(spark: Any, root: Path, tmp_path: Path) -> None:
    """The same through a real Spark, which builds the store and reads the partitions; each question one way."""
    for name in "ab":
        build(root, tmp_path / "built", stream=name, summaries=[SUMMARY.format(name)], spark=spark)
    for number, question in enumerate(QUESTIONS):
        shutil.copytree(tmp_path / "built", tmp_path / question)
        _guided(root, tmp_path / question, question, ("desc", "weighted")[number % 2])


def test_a_grid_of_other_tuples_guides_nothing(db: nile.Database) -> None:
    built(db)
    manager = db.summary("ma")
    manager.ingest(np.array([1 << 62]), pa.array([1]))
    assert "grids of summaries" not in db.sql(JOIN.format("desc"), engine="spark").explain()
