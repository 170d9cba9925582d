"""Standing joins WITH PREFERENCE inside a budget: as they come, what `sql` finds over the same tuples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import nile
from nile.execution.held import content, flat, of, packed
from nile.execution.live.approximate import ApproximateSubscription
from nile.execution.options import Options
from nile.execution.statement.builder import read_query
from nile.operators.drive.live_estimate import LiveSample
from nile.preferences.key_sample import KeySample
from nile.summaries.envelope import unpack

SECOND = 10**9
KINDS = ("desc", "asc", "weighted")
GUIDES = ("countsketch", "directory")


def sales(seed: int, n: int, *, keys: int = 40, gap: int = 2, nulls: float = 0.05) -> pa.Table:
    """Skewed items, some null; gaps of 0 to `gap` seconds, so that tuples share instants."""
    rng = np.random.default_rng(seed)
    at = np.cumsum(rng.integers(0, gap + 1, n)) * SECOND
    item = (keys * rng.random(n) ** 2).astype(int)
    missing = rng.random(n) < nulls
    return pa.table(
        {
            "at": pa.array(at).cast(pa.timestamp("ns")),
            "item": pa.array([None if gone else f"i{k}" for k, gone in zip(item, missing, strict=True)], pa.string()),
            "seq": pa.array(np.arange(n)),
            "price": pa.array(rng.integers(1, 9, n)),
        }
    )


def text(kind: str, window: int = 60, where: str = "") -> str:
    return (
        f"SELECT a.seq AS l, b.seq AS r, a.item, b.price FROM a, b WHERE a.item = b.item {where} "
        f"WITH PREFERENCE {kind} a.item WINDOW '{window} s'"
    )


def opened(*tables: pa.Table) -> nile.Database:
    db = nile.connect()
    for name, table in zip("ab", tables, strict=True):
        db.stream(name, table.schema, time="at")
    return db


def push_all(db: nile.Database, tables: dict[str, pa.Table], seed: int, most: int) -> None:
    """Push all rows, the streams in turn, in pieces of random length: each stream at its own pace."""
    rng = np.random.default_rng(seed)
    at = dict.fromkeys(tables, 0)
    while left := [name for name, table in tables.items() if at[name] < len(table)]:
        name = left[int(rng.integers(len(left)))]
        n = int(rng.integers(1, most + 1))
        db.push(name, tables[name].slice(at[name], n))
        at[name] += n


def as_it_comes(
    query: str, a: pa.Table, b: pa.Table, *, seed: int = 0, most: int = 200, **options: Any
) -> tuple[pa.Table, nile.ApproximateSubscription, nile.Result]:
    """(rows found live, the standing query once closed, the answer over what is kept)."""
    db = opened(a, b)
    standing = db.subscribe(query, **options)
    assert isinstance(standing, nile.ApproximateSubscription)
    push_all(db, {"a": a, "b": b}, seed, most)
    standing.close()
    return pa.Table.from_batches(standing.poll(), standing.schema), standing, db.sql(query, **options)


def check_alike(found: pa.Table, standing: nile.ApproximateSubscription, answer: nile.Result) -> None:
    """The same rows, weights, figures and accounts."""
    assert found.combine_chunks() == answer.to_arrow().combine_chunks()
    assert standing.figures == answer.answer.figures
    assert standing.budget == answer.budget
    assert standing.accounting == answer.accounting
    assert standing.coverage == answer.coverage
    assert standing.outputs == found.num_rows


@pytest.mark.parametrize("output", ["pairs", "ranges"])
@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_standing_join_finds_bit_for_bit_what_sql_finds(kind: str, guide: str, output: str) -> None:
    a, b = sales(1, 1_500), sales(2, 1_500)
    for budget in (0.05, 0.3):
        found, standing, answer = as_it_comes(text(kind), a, b, budget=budget, guide=guide, output=output)
        assert found.num_rows or kind == "asc"
        check_alike(found, standing, answer)
        for told in standing.accounting.values():
            told.check()


@settings(max_examples=20)
@given(
    seed=some.integers(0, 2**32),
    sizes=some.tuples(some.integers(0, 900), some.integers(0, 900)),
    keys=some.sampled_from((1, 5, 60, 3_000)),
    window=some.sampled_from((1, 30, 500)),
    budget=some.sampled_from((0.02, 0.1, 0.5, 1.0, 2.0)),
    kind=some.sampled_from(KINDS),
    guide=some.sampled_from(("countsketch", "directory", "auto")),
    output=some.sampled_from(("pairs", "ranges")),
    most=some.sampled_from((1, 40, 2_000)),
)
def test_whatever_the_streams_and_the_pushes(
    seed: int, sizes: tuple[int, int], keys: int, window: int, budget: float, kind: str, guide: str, output: str,
    most: int,
) -> None:  # fmt: skip
    sizes = (min(sizes[0], 60), min(sizes[1], 60)) if most == 1 else sizes
    a, b = sales(seed, sizes[0], keys=keys), sales(seed + 1, sizes[1], keys=keys)
    found, standing, answer = as_it_comes(
        text(kind, window), a, b, seed=seed, most=most, budget=budget, guide=guide, output=output
    )
    check_alike(found, standing, answer)


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_come_and_go_are_let_go_of_and_known_again(kind: str, guide: str) -> None:
    """More keys than are ever held at once, so that codes are given anew, at times that depend on the pushes."""
    rng = np.random.default_rng(9)
    n = 7_000
    tables = []
    for seed in (61, 62):
        item = np.arange(n) // 2 + (300 * rng.random(n) ** 2).astype(int)
        item[rng.random(n) < 0.1] %= 50  # some stay
        tables.append(sales(seed, n).set_column(1, "item", pa.array([f"i{k}" for k in item])))
    a, b = tables
    found, standing, answer = as_it_comes(text(kind, 200), a, b, most=900, budget=0.3, guide=guide)
    check_alike(found, standing, answer)
    assert standing._join.known < 5_000
    cut = opened(a, b)
    again = cut.subscribe(text(kind, 200), budget=0.3, guide=guide)
    push_all(cut, {"a": a.slice(0, 5_000), "b": b.slice(0, 5_000)}, 4, 300)
    other = opened(a, b)
    coarse = other.subscribe(text(kind, 200), budget=0.3, guide=guide)
    push_all(other, {"a": a.slice(0, 5_000), "b": b.slice(0, 5_000)}, 5, 5_000)
    assert packed("x", again.capture()["join"]) == packed("x", coarse.capture()["join"])
    again = gone_on(cut, again, text(kind, 200), budget=0.3, guide=guide)
    push_all(cut, {"a": a.slice(5_000), "b": b.slice(5_000)}, 6, 300)
    again.close()
    assert pa.Table.from_batches(again.poll()).combine_chunks() == found.combine_chunks()


def test_memory_follows_the_window_and_not_the_stream() -> None:
    """Every tuple has a key of its own, so keys must be let go of as tuples are."""
    held = []
    for n in (8_000, 32_000):
        fresh = pa.array([f"{k:020d}" for k in range(n)])
        a = sales(3, n, nulls=0.0).set_column(1, "item", fresh)
        db = opened(a, a)
        standing = db.subscribe(text("desc", 600), budget=0.5, guide="directory")
        most = 0
        for at in range(0, n, 500):
            db.push("a", a.slice(at, 500))
            db.push("b", a.slice(at, 500))
            most = max(most, standing.memory)
        held.append(most)
        standing.close()
        assert standing.outputs > n // 10
    assert held[1] <= 1.2 * held[0]


def gone_on(db: nile.Database, standing: Any, query: str, **options: Any) -> Any:
    """The standing query taken out as bytes and made anew from them; again the same bytes."""
    raw = packed("standing query", standing.capture())
    standing.detach()
    state = content(unpack(raw))
    names, live = db._names, db._live
    made = ApproximateSubscription(
        names, read_query(query, names), Options.of(options), live.streams(), live._commits, None, state
    )
    live.standing.add(made)
    assert packed("standing query", made.capture()) == raw
    return made


@pytest.mark.parametrize("output", ["pairs", "ranges"])
@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("kind", KINDS)
def test_stopped_at_random_points_it_does_as_if_it_never_had(kind: str, guide: str, output: str) -> None:
    """10 stops of each kind, guide and output: the same bytes as of one that never stopped, cut differently."""
    seed = 100 * KINDS.index(kind) + 10 * GUIDES.index(guide) + len(output)
    rng = np.random.default_rng(seed)
    n, query = 400, text(kind, int(rng.choice([20, 60, 400])))
    tables = {"a": sales(seed, n, keys=60), "b": sales(seed + 1, n, keys=60)}
    options: dict[str, Any] = {"budget": float(rng.choice([0.1, 0.4])), "guide": guide, "output": output}
    whole, cut = opened(*tables.values()), opened(*tables.values())
    never, stopped = whole.subscribe(query, **options), cut.subscribe(query, **options)
    for turn in range(10):
        for name in ("a", "b"):
            part = tables[name].slice(turn * n // 10, n // 10)
            middle = int(rng.integers(0, len(part)))
            whole.push(name, part)
            cut.push(name, part.slice(0, middle))
            cut.push(name, part.slice(middle))
        assert packed("x", never.capture()) == packed("x", stopped.capture())
        stopped = gone_on(cut, stopped, query, **options)
    stopped.close()
    found = pa.Table.from_batches(stopped.poll(), stopped.schema)
    answer = cut.sql(query, **options)
    check_alike(found, stopped, answer)
    wanted, told = answer.answer.estimate, stopped.estimate
    assert np.allclose((told.value, told.low, told.high), (wanted.value, wanted.low, wanted.high), rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_keeps_a_named_one_and_what_nobody_has_read(kind: str, tmp_path: Path) -> None:
    a, b = sales(21, 600), sales(22, 600)
    options: dict[str, Any] = {"budget": 0.15, "guide": "directory", "outlier_cap": 6, "granularity": "20 s"}
    whole = opened(a, b)
    never = whole.subscribe(text(kind), **options)
    numbered = []
    for turn in range(3):
        with nile.connect(tmp_path) as db:
            for name, table in (("a", a), ("b", b)):
                db.stream(name, table.schema, time="at")
            standing = db.subscribe(text(kind), name="best", **options)
            assert standing is db.subscription("best")
            for name, table in (("a", a), ("b", b)):
                part = table.slice(200 * turn, 200)
                db.push(name, part)
                whole.push(name, part)
            if turn != 1:
                numbered += standing.poll_numbered()
            assert packed("x", standing.capture()["join"]) == packed("x", never.capture()["join"])
            with pytest.raises(nile.ConfigError, match="or other options"):
                db.subscribe(text(kind), name="best", **{**options, "budget": 0.16})
    found = pa.Table.from_batches([batch for _, batch in numbered], never.schema)
    assert found.combine_chunks() == pa.Table.from_batches(never.poll(), never.schema).combine_chunks()
    assert [first for first, _ in numbered] == np.cumsum([0, *(len(batch) for _, batch in numbered)])[:-1].tolist()


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_that_was_altered_is_refused_or_harmless(kind: str, guide: str) -> None:
    """Whatever stands in the arrays: an EnvelopeError, or a query that goes on without reaching outside of them."""
    rng = np.random.default_rng(7)
    a, b = sales(11, 300), sales(12, 300)
    options: dict[str, Any] = {"budget": 0.2, "guide": guide}
    db = opened(a, b)
    standing = db.subscribe(text(kind), **options)
    push_all(db, {"a": a.slice(0, 250), "b": b.slice(0, 250)}, 3, 60)
    params, arrays = flat(standing.capture())
    names = sorted(name for name, array in arrays.items() if array.size)
    refused = 0
    for trial in range(60):
        name = names[trial % len(names)]
        altered = {**arrays, name: arrays[name].copy()}
        at = int(rng.integers(altered[name].size))
        altered[name].reshape(-1)[at] = rng.choice([-1, 1 << 40, 7]) if altered[name].itemsize == 8 else 77
        fresh = opened(a, b)
        try:
            made = ApproximateSubscription(
                fresh._names, read_query(text(kind), fresh._names), Options.of(options), fresh._live.streams(),
                fresh._live._commits, None, of(params, altered),
            )  # fmt: skip
        except nile.EnvelopeError:
            refused += 1
            continue
        made.close()
        made.poll()
    assert refused > 20


def test_cpu_seconds_a_tuple_buy_pairs_of_the_exact_answer() -> None:
    a, b = sales(31, 3_000, keys=400), sales(32, 3_000, keys=400)
    query = text("desc", 300)
    exact = opened(a, b)
    whole = exact.subscribe(query, budget=1.0)
    push_all(exact, {"a": a, "b": b}, 1, 500)
    whole.close()
    pairs = set(map(tuple, pa.Table.from_batches(whole.poll()).select(["l", "r"]).to_pandas().to_numpy().tolist()))
    spent = []
    for seconds in (1e-9, 1.0):
        db = opened(a, b)
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
    db = opened(a, b)
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
        (text("desc", where="AND a.price < b.price"), {"budget": 0.1}, nile.NotYet, "a look at every candidate"),
        (text("desc").replace("WINDOW '60 s'", ""), {"budget": 0.1}, nile.ConfigError, "WINDOW"),
        ("SELECT seq FROM a WITH PREFERENCE desc seq", {"budget": 0.1}, nile.NotYet, "a selection of one stream"),
    ],
)
def test_what_has_no_standing_operator_is_refused(
    query: str, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with opened(sales(1, 2), sales(1, 2)) as db, pytest.raises(error, match=message):
        db.subscribe(query, **options)


def test_conditions_of_one_stream_and_a_stream_with_itself() -> None:
    a, b = sales(41, 800), sales(42, 800)
    check_alike(*as_it_comes(text("desc", 120, "AND a.price > 3"), a, b, budget=0.3))
    query = (
        "SELECT x.seq AS l, y.seq AS r FROM a x, a y WHERE x.item = y.item WITH PREFERENCE weighted x.item "
        "WINDOW '2 min'"
    )
    check_alike(*as_it_comes(query, a, b, budget=0.3))


def test_a_callback_gets_each_batch_and_its_error_comes_out_of_the_push() -> None:
    a = sales(51, 400, nulls=0.0)
    db = opened(a, a)
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
