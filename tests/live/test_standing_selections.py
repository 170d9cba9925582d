"""Standing selections WITH PREFERENCE inside a budget: what `sql` finds over the same tuples, as they come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import nile
from nile.execution.envelopes import content, flat, of, packed
from nile.execution.live.approximate.join import ApproximateSubscription
from nile.execution.options import Options
from nile.execution.statement.builder import read_query
from nile.summaries.envelope import unpack

SCHEMA = pa.schema([("at", pa.float64()), ("item", pa.int64()), ("price", pa.float64()), ("name", pa.string())])
KINDS = ("desc", "asc", "weighted")
CONDITIONS = {
    "one value": "item = 3",
    "a range": "item < 4",
    "no value": "item = 77",
    "every tuple": "item >= 0",
    "two columns": "item < 4 AND price > 6",
    "another column": "price > 6",
    "text": "item < 4 AND name LIKE 'a%'",
    "nulls": "item IS NULL OR item = 2",
}


def sales(seed: int, n: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    item = [None if draw.random() < 0.05 else int(k) for k in draw.integers(0, 20, n)]
    names = pa.array([None if k % 11 == 0 else "ab"[k % 2] * 2 for k in draw.integers(0, 50, n).tolist()])
    return pa.table([np.sort(draw.random(n) * n), pa.array(item), draw.integers(0, 40, n) / 4.0, names], SCHEMA)


def opened(where: Any = None) -> nile.Database:
    db = nile.connect() if where is None else nile.connect(where)
    db.stream("s", SCHEMA, time="at")
    return db


def text(kind: str, condition: str, window: str = "") -> str:
    return f"SELECT at, price FROM s WHERE {condition} WITH PREFERENCE {kind} item{window}"


def rows(query: Any) -> list[dict[str, Any]]:
    return [row for batch in query.poll() for row in batch.to_pylist()]


def pushed(db: nile.Database, table: pa.Table, most: int, seed: int) -> None:
    draw, at = np.random.default_rng(seed), 0
    while at < table.num_rows:
        n = int(draw.integers(1, most + 1))
        db.push("s", table.slice(at, n))
        at += n


def came(query: str, table: pa.Table, most: int = 700, seed: int = 0, **options: Any) -> tuple[list[Any], Any]:
    db = opened()
    standing = db.subscribe(query, **options)
    pushed(db, table, most, seed)
    standing.close()
    return rows(standing), standing


def gone_on(db: nile.Database, standing: Any, query: str, **options: Any) -> Any:
    raw = packed("standing query", standing.capture())
    standing.detach()
    made = ApproximateSubscription(
        db._names, read_query(query, db._names), Options.of(options), db._live.streams(), db._live.commits, None,
        content(unpack(raw)),
    )  # fmt: skip
    db._live.standing.add(made)
    assert packed("standing query", made.capture()) == raw
    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("condition", ["one value", "a range", "every tuple"])
def test_it_finds_what_sql_finds(condition: str, kind: str) -> None:
    """Where the values that satisfy are one run, the two learn about the same cells."""
    table = sales(1, 9_000)
    for budget, window in ((0.1, ""), (0.4, " WINDOW 500"), (1.0, "")):
        found, standing = came(text(kind, CONDITIONS[condition], window), table, budget=budget)
        db = nile.connect()
        db.register("s", table, time="at")
        answer = db.sql(text(kind, CONDITIONS[condition], window), budget=budget)
        assert found == answer.to_arrow().to_pylist()
        told, wanted = standing.figures, answer.answer.figures
        for name in ("arrivals", "outputs", "turned_away", "granted", "spent", "spent_summary", "exact_cost"):
            assert getattr(told, name) == getattr(wanted, name), name
        assert told.shed == (wanted.shed,)
        assert standing.budget.spent == answer.budget.spent


@settings(max_examples=30)
@given(
    seed=some.integers(0, 2**20),
    n=some.integers(0, 1_500),
    condition=some.sampled_from(sorted(CONDITIONS)),
    kind=some.sampled_from(KINDS),
    by=some.sampled_from(("share", "value")),
    budget=some.sampled_from((0.02, 0.2, 0.7, 1.0, 3.0)),
    window=some.sampled_from(("", " WINDOW 5", " WINDOW 300")),
    most=some.sampled_from((20, 400)),
)
def test_true_within_the_budget_and_alike_however_it_is_cut_or_stopped(
    seed: int, n: int, condition: str, kind: str, by: str, budget: float, window: str, most: int
) -> None:
    table, query = sales(seed, n), text(kind, CONDITIONS[condition], window)
    options = {"budget": budget, "by": by}
    found, whole = came(query, table, 5_000, **options)
    db = nile.connect()
    db.register("s", table, time="at")
    exact = db.sql(f"SELECT at, price FROM s WHERE {CONDITIONS[condition]}", emit="append").to_arrow().to_pylist()
    times = [row["at"] for row in found]
    assert len(times) == len(set(times))
    assert all(row in exact for row in found)
    assert whole.budget.spent <= budget + 1e-9
    assert whole.estimate.value == len(exact)
    if budget >= 1.0:
        assert found == exact
    whole.accounting["s"].check()
    db = opened()
    cut: Any = db.subscribe(query, **options)
    half = n // 2
    pushed(db, table.slice(0, half), most, seed)
    cut = gone_on(db, cut, query, **options)
    pushed(db, table.slice(half), most, seed + 1)
    cut.close()
    assert rows(cut) == found
    assert (cut.figures, cut.budget, cut.accounting) == (whole.figures, whole.budget, whole.accounting)


def test_more_than_the_share_is_found_where_the_value_is_asked_at_admission() -> None:
    """A rare value at a tenth of the exact cost: tuples that cannot satisfy are turned away by one look."""
    table = sales(5, 30_000)
    found, standing = came(text("desc", "item = 3"), table, budget=0.3)
    assert standing.figures.turned_away > 10_000
    assert len(found) > 0.9 * standing.estimate.value


def test_a_share_of_a_core_lets_tuples_wait() -> None:
    table = sales(6, 2_000)
    found, standing = came(text("desc", "item = 3"), table, budget=nile.Budget(share=0.5))
    assert standing.budget.unit == "share"
    assert 0 < len(found) <= standing.estimate.value
    found, standing = came(text("asc", "item = 3"), table, budget=nile.Budget(seconds_per_tuple=1.0))
    assert len(found) == standing.estimate.value


def test_a_store_keeps_a_named_one(tmp_path: Path) -> None:
    table, numbered = sales(7, 1_500), []
    query, options = text("desc", "item < 4 AND price > 6"), {"budget": 0.3}
    for turn in range(3):
        with opened(tmp_path) as db:
            standing = db.subscribe(query, name="cheap", **options)
            db.push("s", table.slice(500 * turn, 500))
            numbered += rows(standing)
    with opened(tmp_path) as db:
        last = db.subscription("cheap")
        last.close()
        numbered += rows(last)
    assert numbered == came(query, table, **options)[0]


def test_a_state_that_was_altered_is_refused_or_harmless() -> None:
    table, query = sales(8, 1_200), text("desc", "item < 4 AND price > 6")
    options: dict[str, Any] = {"budget": 0.2}
    db = opened()
    standing = db.subscribe(query, **options)
    pushed(db, table.slice(0, 1_000), 90, 1)
    params, arrays = flat(standing.capture())
    names, draw, refused = sorted(name for name, each in arrays.items() if each.size), np.random.default_rng(3), 0
    for trial in range(120):
        name = names[trial % len(names)]
        altered = {**arrays, name: arrays[name].copy()}
        where = int(draw.integers(altered[name].size))
        altered[name].reshape(-1)[where] = draw.choice([-1, 1 << 40, 7]) if altered[name].itemsize == 8 else 77
        fresh = opened()
        try:
            made = ApproximateSubscription(
                fresh._names, read_query(query, fresh._names), Options.of(options), fresh._live.streams(),
                fresh._live.commits, None, of(params, altered),
            )  # fmt: skip
        except nile.EnvelopeError:
            refused += 1
            continue
        fresh._live.standing.add(made)
        pushed(fresh, table.slice(1_000), 90, 1)
        made.close()
        made.poll()
    assert refused > 30


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": "ranges"}, "output 'pairs'"),
        ({"method": "paper"}, "method 'nile'"),
        ({"replay": "data"}, "own pace"),
    ],
)
def test_what_has_no_form_over_live_streams_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(nile.NotYet, match=message):
        opened().subscribe(text("desc", "item = 3"), budget=0.5, **options)
