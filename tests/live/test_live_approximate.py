"""Standing joins WITH PREFERENCE inside a budget: as they come, what `sql` finds over the same tuples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from workload_live import as_it_comes, check_alike, gone_on, opened, push_all, sales

import nile
from nile.execution.envelopes import packed
from nile.operators.drive.live_estimate import LiveSample
from nile.preferences.key_sample import KeySample

SECOND = 10**9


def text(kind: str, window: int = 60, where: str = "") -> str:
    return (
        f"SELECT a.seq AS l, b.seq AS r, a.item, b.price FROM a, b WHERE a.item = b.item {where} "
        f"WITH PREFERENCE {kind} a.item WINDOW '{window} s'"
    )


def test_cpu_seconds_a_tuple_buy_pairs_of_the_exact_answer() -> None:
    a, b = sales(31, 3_000, keys=400), sales(32, 3_000, keys=400)
    query = text("desc", 300)
    exact = opened({"a": a, "b": b})
    whole = exact.subscribe(query, budget=1.0)
    push_all(exact, {"a": a, "b": b}, 1, 500)
    whole.close()
    pairs = set(map(tuple, pa.Table.from_batches(whole.poll()).select(["l", "r"]).to_pandas().to_numpy().tolist()))
    spent = []
    for seconds in (1e-9, 1.0):
        db = opened({"a": a, "b": b})
        standing = db.subscribe(query, budget=nile.Budget(seconds_per_tuple=seconds))
        push_all(db, {"a": a, "b": b}, 1, 500)
        standing = gone_on(db, standing, query, budget=nile.Budget(seconds_per_tuple=seconds))
        standing.close()
        rows = [(row["l"], row["r"]) for batch in standing.poll() for row in batch.to_pylist()]
        assert len(set(rows)) == len(rows)
        assert set(rows) <= pairs
        assert standing.budget.unit == "seconds_per_tuple"
        assert not standing.budget.reproducible
        assert standing.budget.spent > 0.0
        spent.append(len(rows))
        for told in standing.accounting.values():
            told.check()
    assert spent[0] < spent[1] == len(pairs)


def test_a_share_of_a_core_goes_on_while_time_passes() -> None:
    a, b = sales(33, 2_000), sales(34, 2_000)
    db = opened({"a": a, "b": b})
    query = text("desc", 300)
    standing = db.subscribe(query, budget=nile.Budget(share=0.5))
    push_all(db, {"a": a, "b": b}, 1, 500)
    standing = gone_on(db, standing, query, budget=nile.Budget(share=0.5))
    standing.close()
    assert standing.budget.unit == "share"
    assert standing.budget.spent > 0.0
    assert standing.outputs > 0


@pytest.mark.parametrize(
    ("query", "options", "error", "message"),
    [
        (text("desc"), {"budget": 0.1, "method": "paper"}, nile.NotYet, "needed method 'nile'"),
        (text("desc"), {"budget": 0.1, "replay": "exponential"}, nile.NotYet, "at their own pace"),
        (text("desc"), {"budget": nile.Budget(outputs=5)}, nile.NotYet, "for as long as tuples come"),
        (text("desc"), {"budget": 0.1, "emit": "append"}, nile.ConfigError, "needed an exact query"),
        (text("desc").replace("WINDOW '60 s'", ""), {"budget": 0.1}, nile.ConfigError, "WINDOW"),
        ("SELECT seq FROM a WITH PREFERENCE desc seq LIMIT 3", {"budget": 0.1}, nile.NotYet, "ORDER BY or LIMIT"),
    ],
)
def test_what_has_no_standing_operator_is_refused(
    query: str, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with opened({"a": sales(1, 2), "b": sales(1, 2)}) as db, pytest.raises(error, match=message):
        db.subscribe(query, **options)


def test_conditions_of_one_stream_and_a_stream_with_itself() -> None:
    a, b = sales(41, 800), sales(42, 800)
    check_alike(*as_it_comes(text("desc", 120, "AND a.price > 3"), {"a": a, "b": b}, budget=0.3))
    query = (
        "SELECT x.seq AS l, y.seq AS r FROM a x, a y WHERE x.item = y.item WITH PREFERENCE weighted x.item "
        "WINDOW '2 min'"
    )
    check_alike(*as_it_comes(query, {"a": a, "b": b}, budget=0.3))


def test_a_callback_gets_each_batch_and_its_error_comes_out_of_the_push() -> None:
    a = sales(51, 400, nulls=0.0)
    db = opened({"a": a, "b": a})
    found: list[pa.RecordBatch] = []
    standing = db.subscribe(text("desc"), found.append, budget=0.5)
    push_all(db, {"a": a.slice(0, 300), "b": a.slice(0, 300)}, 2, 100)
    assert standing.poll() == []
    assert sum(map(len, found)) == standing.outputs == standing.ordinal > 0

    def fails(_: pa.RecordBatch) -> None:
        raise ValueError("no more")

    standing.attach(fails)
    db.push("a", a.slice(300))
    before = standing.outputs
    with pytest.raises(ValueError, match="no more"):
        db.push("b", a.slice(300, 50))
    assert standing.outputs > before
    standing.attach(found.append)
    db.push("b", a.slice(350))
    db.close()
    assert standing.outputs == standing.ordinal > sum(map(len, found)) > before


def test_a_running_sample_that_is_thinned_tells_a_wider_interval_whatever_the_cuts() -> None:
    rng = np.random.default_rng(5)
    n = 150_000
    key = rng.integers(0, 1 << 63, n).astype(np.uint64)
    level = rng.choice([0.25, 0.5, 0.7], n)
    weight, pairs = 1.0 / level, np.ones(n, np.int64)
    full = KeySample(weight, level, key.astype(np.int64)).count(pairs, 0.95)
    told = []
    for step in (n, 7_001):
        sample = LiveSample(60 * SECOND)
        for begin in range(0, n, step):
            part = slice(begin, begin + step)
            sample.add(key[part], level[part], weight[part], pairs[part])
        told.append((sample.estimate(None), packed("x", sample.capture())))
        assert sample.nbytes < 1 << 23
    assert told[0] == told[1]
    estimate = told[0][0]
    assert estimate.value == pytest.approx(full.value)
    assert estimate.low <= full.low < full.high <= estimate.high
