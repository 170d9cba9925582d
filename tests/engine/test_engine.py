"""The library as a user meets it: register, join, run, hand over, and be told what went wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from judge import fresh_duckdb

import nile

LEFT = pa.table({"at": [0, 10, 20, 30], "k": ["a", "b", "a", None]})
RIGHT = pa.table({"at": [5, 15, 25, 35], "k": ["a", "a", "b", "a"]})
PAIRS = [(0, 0), (2, 1)]


def database() -> nile.Database:
    return nile.connect().register("l", LEFT, time="at").register("r", RIGHT, time="at")


def pairs_of(answer: nile.JoinAnswer) -> list[tuple[int, int]]:
    table = answer.expand()
    return sorted(zip(table["left_ordinal"].to_pylist(), table["right_ordinal"].to_pylist(), strict=True))


def test_every_kind_of_source_gives_the_same_answer(tmp_path: Path) -> None:
    pq.write_table(LEFT, tmp_path / "l.parquet")
    pa_csv.write_csv(LEFT, tmp_path / "l.csv")
    sources: list[Any] = [
        LEFT, LEFT.to_batches(), LEFT.to_reader, LEFT.to_pandas(), pl.from_arrow(LEFT), LEFT.to_pydict(),
        (batch for batch in LEFT.to_batches()), tmp_path / "l.parquet", str(tmp_path / "l.csv"), lambda: LEFT,
    ]  # fmt: skip
    for source in sources:
        db = nile.connect().register("l", source, time="at").register("r", RIGHT, time="at")
        assert pairs_of(db.join("l", "r", on="k", window=5).run()) == PAIRS


def test_a_stream_joins_itself() -> None:
    db = database()
    answer = db.join("r", "r", on="k", window=10).run()
    assert pairs_of(answer) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 2), (3, 3)]


def test_answers_go_to_arrow_pandas_polars_and_duckdb() -> None:
    answer = database().join("l", "r", on="k", window="5 s").run()
    assert "0 outputs so far" in repr(answer)
    assert answer.to_arrow().equals(answer.to_arrow())
    assert isinstance(answer.to_pandas(), pd.DataFrame)
    assert answer.to_polars()["k"].to_list() == ["a", "a"]
    assert pl.DataFrame(answer).shape == (2, 6)
    assert duckdb.sql("select count(*) from answer").fetchall() == [(2,)]
    assert answer.to_arrow()["left_ts"].type == pa.timestamp("ns")


def test_range_records_expand_to_the_pairs() -> None:
    query = database().join("l", "r", on="k", window="30 s")
    ranges = query.returning("ranges").run()
    assert pairs_of(ranges) == pairs_of(query.run())
    table = ranges.to_arrow()
    assert sum(table["pairs"].to_pylist()) == len(pairs_of(query.run()))
    assert ranges.estimate == query.run().estimate


def test_an_answer_says_what_it_is_worth() -> None:
    query = database().join("l", "r", on="k", window=5)
    exact = query.run()
    assert exact.estimate.certified
    assert exact.estimate.value == 2
    assert exact.coverage == 1.0
    assert 0.8 < exact.budget.spent < 1.0  # the null key is priced, and never probes
    some = query.prefer("desc").run(budget=0.6)
    assert some.estimate.low <= 2 <= some.estimate.high
    assert some.budget.spent <= 0.6 + 1e-9
    for side in some.accounting.values():
        assert side.tuples_in == side.applied + side.late + side.shed + side.rejected
    assert some.memory.total > 0
    assert "by nile, desc first" in query.prefer("desc").explain(0.6)


@pytest.mark.parametrize("seed", range(100))
def test_exact_queries_agree_with_duckdb(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, window = int(rng.integers(0, 300)), int(rng.integers(0, 40)) + 1
    tables = []
    for _ in range(2):
        ts = np.cumsum(rng.integers(0, 3, n))
        texts = [None if rng.random() < 0.05 else f"k{k}" for k in rng.integers(0, 30, n)]
        tables.append(pa.table({"ts": pa.array(ts, pa.int64()), "k": pa.array(texts, pa.string()), "v": rng.random(n)}))
    one, two = tables
    db = nile.connect().register("one", one, time="ts", where="v < 0.8").register("two", two, time="ts")
    found = db.join("one", "two", on="k", window=window).run().to_arrow()
    assert found.num_rows >= 0
    connection = fresh_duckdb()
    connection.register("a", one)
    connection.register("b", two)
    rows = connection.execute(
        "select a.k, a.ts, b.ts from a join b on a.k = b.k "
        f"and abs(a.ts - b.ts) <= {window} where a.v < 0.8 order by all"
    ).fetchall()
    seconds = [found[name].cast(pa.int64()).to_numpy() // 10**9 for name in ("left_ts", "right_ts")]
    mine = sorted(zip(found["k"].to_pylist(), seconds[0].tolist(), seconds[1].tolist(), strict=True))
    assert mine == [tuple(row) for row in rows]


def test_the_real_streams_have_their_known_sizes(retail: Path) -> None:
    db = nile.connect()
    for name, where in (("a", "vstore = 0"), ("b", "vstore = 1"), ("uk", "store_id = 0"), ("rest", "store_id <> 0")):
        db.register(name, retail, time="ts", where=where)
    for window, size in (("10 min", 654), ("1 hour", 2_834), ("6 hours", 11_309)):
        assert db.join("a", "b", on="item_id", window=window).run().to_arrow().num_rows == size
    assert db.join("uk", "rest", on="item_id", window="1 hour").run().to_arrow().num_rows == 17_524
    connection = fresh_duckdb()
    rows = connection.execute(
        "select count(*) from read_parquet(?) a join read_parquet(?) b on a.item_id = b.item_id "
        "and abs(epoch(a.ts) - epoch(b.ts)) <= 3600 where a.vstore = 0 and b.vstore = 1",
        [str(retail), str(retail)],
    ).fetchall()
    assert rows == [(2_834,)]


@pytest.mark.parametrize(
    ("mistake", "error", "words"),
    [
        (lambda db, q: db.join("l", "rr", on="k"), nile.UnknownStream, "did you mean 'r'"),
        (lambda db, q: db.join("l", "r", on="kk"), nile.UnknownColumn, "did you mean 'k'"),
        (lambda db, q: db.join("l", "r", on=("k", "at")).run(), nile.KeyTypeError, "cast one side"),
        (lambda db, q: db.join("l", "r", on=("k", "k", "k")), nile.ConfigError, "on="),
        (lambda db, q: q.within("soon"), nile.ConfigError, "window"),
        (lambda db, q: q.prefer("up").run(0.1), nile.ConfigError, "desc"),
        (lambda db, q: q.prefer("desc", fade=0.0), nile.ConfigError, "fade"),
        (lambda db, q: q.prefer("desc").run(0), nile.BudgetError, "budget"),
        (lambda db, q: q.prefer("desc").run(float("nan")), nile.BudgetError, "budget"),
        (lambda db, q: q.prefer("asc", outlier_cap=1).run(0.1), nile.ConfigError, "outlier_cap"),
        (lambda db, q: q.guided_by("stars").run(0.1), nile.ConfigError, "guide"),
        (lambda db, q: q.returning("rows").run(), nile.ConfigError, "output"),
        (lambda db, q: q.using(colour=3), nile.ConfigError, "colour"),
        (lambda db, q: q.using(depth=0).run(0.1), nile.ConfigError, "depth"),
        (lambda db, q: db.register("two words", LEFT, time="at"), nile.ConfigError, "name"),
        (lambda db, q: db.register("x", LEFT, time="when"), nile.UnknownColumn, "when"),
        (lambda db, q: db.register("x", LEFT, time="at", where="k = = 1"), nile.ExpressionError, "where"),
        (lambda db, q: db.register("x", LEFT, time="at", where="q = 1"), nile.UnknownColumn, "q"),
        (lambda db, q: db.register("x", "nowhere.parquet", time="at"), nile.SourceMissing, "nowhere.parquet"),
        (lambda db, q: db.register("x", 7, time="at"), nile.SourceError, "int"),
    ],
)
def test_a_mistake_is_told_in_words_and_is_also_the_builtin_error(mistake: Any, error: type, words: str) -> None:
    db = database()
    with pytest.raises(error, match=words) as told:
        mistake(db, db.join("l", "r", on="k", window=5))
    assert isinstance(told.value, nile.NileError)
    assert isinstance(told.value, (ValueError, LookupError, TypeError, OSError))


def test_disorder_without_a_lateness_names_the_tuple() -> None:
    db = nile.connect().register("x", pa.table({"at": [3, 1], "k": [1, 1]}), time="at")
    with pytest.raises(nile.TimestampOrderError, match="lateness"):
        db.load("x", "k")


def test_an_exact_answer_too_big_for_memory_is_refused_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nile.answers.tabular.memory_bytes", lambda: 64)
    answer = database().join("l", "r", on="k", window=5).run()
    with pytest.raises(nile.MemoryRefused, match="output='ranges'"):
        answer.to_arrow()
    assert [batch.num_rows for batch in answer.batches()] == [2]


def test_the_guide_chosen_by_itself_is_the_cheaper_one_and_explain_says_why() -> None:
    db = nile.connect()
    db.register("a", pa.table({"ts": [0, 1, 2], "k": [1, 1, 2]}), time="ts")
    db.register("b", pa.table({"ts": [0, 1, 2], "k": [1, 2, 2]}), time="ts")
    query = db.join("a", "b", on="k", window="10 s").prefer("desc")
    for costs in ("engine", "memory"):
        assert query.using(costs=costs).plan(0.5).guide == "directory"
        assert "guide directory, by itself" in query.using(costs=costs).explain(0.5)
    assert query.guided_by("countsketch").plan(0.5).guide == "countsketch"
    assert "by itself" not in query.guided_by("countsketch").explain(0.5)
    assert "by itself" not in query.explain()


def test_a_budget_that_buys_the_whole_answer_as_ranges_is_warned_of_with_both_costs() -> None:
    ts = list(range(400))
    db = nile.connect()
    db.register("a", pa.table({"ts": ts, "k": [1] * 400}), time="ts")
    db.register("b", pa.table({"ts": ts, "k": [1] * 400}), time="ts")
    query = db.join("a", "b", on="k", window="1000 s").prefer("desc")
    (told,) = query.run(0.5).warnings
    assert "grants 808,000 units" in told  # half of 800 * 20 + 160,000 * 10
    assert "costs 23,990" in told  # 800 * 20 + 799 * 10: the first tuple finds nothing
    assert query.run(0.001).warnings == ()
    assert query.run().warnings == ()
