"""Standing aggregates within a fraction: the exact query over a sample of the streams, counts and sums scaled up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import nile
from nile.execution.envelopes import content, packed
from nile.execution.live.approximate.aggregate import SampledSubscription
from nile.execution.options import Options
from nile.execution.statement.builder import read_query
from nile.operators.aggregate.input import unit_hash
from nile.operators.aggregate.standing_sample import SliceSample
from nile.pyramid.grid.spec import SLICE
from nile.summaries.envelope import unpack

SCHEMA = pa.schema([("at", pa.float64()), ("item", pa.int64()), ("price", pa.float64())])
QUERIES = {
    "count": "SELECT count(*) AS n FROM s WHERE item < 4 WINDOW 40",
    "sum": "SELECT sum(price) AS n FROM s WHERE item < 4 WINDOW 40",
    "avg": "SELECT avg(price) AS n FROM s WHERE item < 4 WINDOW 40",
    "groups": "SELECT item, count(*) AS n, sum(item) AS k, median(price) AS m FROM s GROUP BY item "
    "HAVING count(*) > 5 WINDOW 40",
    "distinct": "SELECT count(DISTINCT price) AS n FROM s WINDOW 40",
    "all": "SELECT quantile_cont(price, 0.9) AS n FROM s",
    "join": "SELECT s.item, count(*) AS n, avg(r.price) AS p FROM s, r WHERE s.item = r.item GROUP BY s.item WINDOW 20",
}


def sales(seed: int, n: int = 300) -> pa.Table:
    draw = np.random.default_rng(seed)
    columns = [np.sort(draw.random(n) * n / 3.0), draw.integers(0, 9, n), draw.integers(1, 60, n) / 4.0]
    return pa.table(columns, SCHEMA)


def opened(*names: str, where: Any = None) -> nile.Database:
    db = nile.connect() if where is None else nile.connect(where)
    for name in names or ("s", "r"):
        db.stream(name, SCHEMA, time="at")
    return db


def found(query: Any) -> list[dict[str, Any]]:
    return [row for batch in query.poll() for row in batch.to_pylist()]


def pushed(db: nile.Database, tables: dict[str, pa.Table], most: int = 1 << 30, seed: int = 0) -> None:
    """Tuples of all streams, cut at random, those of one cut together."""
    draw, at = np.random.default_rng(seed), dict.fromkeys(tables, 0)
    while any(at[name] < tables[name].num_rows for name in tables):
        for name, table in tables.items():
            n = int(draw.integers(1, most + 1)) if most < 1 << 30 else table.num_rows
            if at[name] < table.num_rows:
                db.push(name, table.slice(at[name], n))
            at[name] += n


def ended(text: str, tables: dict[str, pa.Table], **options: Any) -> tuple[list[dict[str, Any]], Any]:
    db = opened()
    query = db.subscribe(text, **options)
    pushed(db, tables)
    query.close()
    return found(query), query


def test_a_slice_gives_so_many_of_the_least_numbers_and_every_ordinal_is_as_likely() -> None:
    sample = SliceSample(0.3, 5)
    numbers, taken = unit_hash(4 * SLICE, 5), sample.taken(0, 4 * SLICE)
    for k in range(4):
        mine, told = numbers[k * SLICE : (k + 1) * SLICE], taken[k * SLICE : (k + 1) * SLICE]
        assert set(np.flatnonzero(told)) == set(np.argsort(mine)[: int(told.sum())])
        assert abs(taken[: (k + 1) * SLICE].sum() - 0.3 * (k + 1) * SLICE) <= 1.0
    assert np.array_equal(sample.taken(100, 700), taken[100:800])
    share = np.mean([SliceSample(0.3, seed).taken(0, SLICE) for seed in range(2_000)], axis=0)
    assert np.abs(share - 0.3).max() < 5.0 * np.sqrt(0.21 / 2_000)
    assert abs(share.mean() - 0.3) < 1.0 / SLICE


@pytest.mark.parametrize("kind", QUERIES)
def test_the_whole_budget_is_the_exact_query(kind: str) -> None:
    tables = {"s": sales(1), "r": sales(2)}
    prefers = " WITH PREFERENCE weighted s.item" if kind == "join" else ""
    text = QUERIES[kind].replace(" WINDOW", f"{prefers} WINDOW")
    db = opened()
    exact = db.subscribe(QUERIES[kind])
    pushed(db, tables)
    exact.close()
    rows, query = ended(text, tables, budget=1.0)
    assert rows == found(exact)
    assert query.budget.spent == 1.0


@pytest.mark.parametrize("kind", [each for each in QUERIES if each not in ("join", "distinct")])
def test_it_is_the_exact_query_over_the_sample_scaled_up(kind: str) -> None:
    table = sales(3, 600)
    rows, query = ended(QUERIES[kind].replace("> 5", "> 20"), {"s": table, "r": table.slice(0, 0)}, budget=0.25, seed=7)
    taken = SliceSample(0.25, 7).taken(0, 600)
    db = opened()
    exact = db.subscribe(QUERIES[kind])
    pushed(db, {"s": table.filter(pa.array(taken))})
    exact.close()
    scale = {"n": 4.0 if kind in ("count", "sum", "groups") else 1.0, "k": 4.0}
    expected = [
        {name: value * scale[name] if name in scale and value is not None else value for name, value in row.items()}
        for row in found(exact)
    ]
    assert rows == expected
    assert query.budget.spent == taken.sum() / 600
    told = query.accounting["s"]
    told.check()
    assert told.shed == 600 - taken.sum()


@settings(max_examples=12)
@given(
    kind=some.sampled_from(sorted(QUERIES)),
    seed=some.integers(0, 2**20),
    share=some.sampled_from((0.05, 0.4, 0.9)),
    most=some.sampled_from((1, 30, 200)),
)
def test_no_cut_into_pushes_and_no_stop_changes_anything(kind: str, seed: int, share: float, most: int) -> None:
    tables = {"s": sales(seed, 120), "r": sales(seed + 1, 120)}
    text = (
        QUERIES[kind].replace(" WINDOW", " WITH PREFERENCE weighted s.item WINDOW") if kind == "join" else QUERIES[kind]
    )
    options = {"budget": share, "seed": seed}
    whole, query = ended(text, tables, **options)
    db = opened()
    cut: Any = db.subscribe(text, **options)
    pushed(db, {name: table.slice(0, 60) for name, table in tables.items()}, most, seed)
    raw = packed("standing query", cut.capture())
    cut.detach()
    made = SampledSubscription(
        db._names, read_query(text, db._names), Options.of(options), db._live.streams(), db._live.commits, None,
        content(unpack(raw)),
    )  # fmt: skip
    assert packed("standing query", made.capture()) == raw
    db._live.standing.add(made)
    pushed(db, {name: table.slice(60) for name, table in tables.items()}, most, seed + 1)
    made.close()
    assert found(made) == whole
    assert (made.budget, made.accounting) == (query.budget, query.accounting)
    assert str(made.estimate) == str(query.estimate)


def test_totals_are_unbiased_and_their_intervals_cover() -> None:
    table = sales(11, 300)
    price = table["price"].to_numpy()
    inside = table["item"].to_numpy() < 4
    truth = {
        "count(*)": float(inside.sum()), "sum(price)": float(price[inside].sum()),
        "avg(price)": float(price[inside].mean()), "count(DISTINCT price)": float(np.unique(price[inside]).shape[0]),
    }  # fmt: skip
    db = opened("s")
    asked = {
        name: [db.subscribe(f"SELECT {name} AS n FROM s WHERE item < 4", budget=0.2, seed=seed) for seed in range(100)]
        for name in truth
    }
    db.push("s", table)
    db.advance(10_000.0)
    for name, queries in asked.items():
        told = [query.estimate for query in queries]
        values = np.array([each.value for each in told])
        assert abs(values.mean() - truth[name]) < 3.0 * values.std(ddof=1) / np.sqrt(100), name
        assert sum(each.low <= truth[name] <= each.high for each in told) >= 88, name


def test_pairs_of_a_join_are_unbiased() -> None:
    tables = {"s": sales(21, 200), "r": sales(22, 200)}
    text = "SELECT count(*) AS n FROM s, r WHERE s.item = r.item WITH PREFERENCE weighted s.item WINDOW '1 hour'"
    truth = sum(a == b for a in tables["s"]["item"].to_pylist() for b in tables["r"]["item"].to_pylist())
    db = opened()
    queries = [db.subscribe(text, budget=0.3, seed=seed) for seed in range(100)]
    pushed(db, tables)
    db.advance(100.0)
    values = np.array([found(query)[-1]["n"] for query in queries], float)
    assert abs(values.mean() - truth) < 3.0 * values.std(ddof=1) / np.sqrt(100)


def test_a_store_keeps_a_named_one(tmp_path: Path) -> None:
    table, numbered = sales(31), []
    text, options = QUERIES["groups"], {"budget": 0.3, "seed": 3}
    for turn in range(3):
        with opened("s", where=tmp_path) as db:
            query = db.subscribe(text, name="few", **options)
            db.push("s", table.slice(100 * turn, 100))
            numbered += found(query)
    with opened("s", where=tmp_path) as db:
        last = db.subscription("few")
        last.close()
        numbered += found(last)
    assert numbered == ended(text, {"s": table, "r": table.slice(0, 0)}, **options)[0]


def test_what_a_sample_cannot_serve_is_refused_in_a_sentence() -> None:
    db = opened()
    for text, needed in {
        "SELECT count(DISTINCT item) AS a, count(DISTINCT price) AS b FROM s BUDGET 10 %": "one value",
        "SELECT sum(price) AS n FROM s ERROR 0.1": "size of a sample",
        "SELECT count(*) AS n FROM s a, s b WHERE a.item = b.item WITH PREFERENCE weighted a.item WINDOW 9 BUDGET 10 %":
            "different streams",
        "SELECT count(*) AS n FROM s WITH PREFERENCE weighted item": "needed a BUDGET",
    }.items():  # fmt: skip
        with pytest.raises(nile.NileError, match=needed):
            db.subscribe(text)
    with pytest.raises(nile.ConfigError, match="guide"):
        db.subscribe("SELECT count(*) AS n FROM s BUDGET 10 %", guide="directory")
