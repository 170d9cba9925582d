"""A database with a store goes on where it was: streams, rows, summaries, sources, offsets."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nile
from nile.pyramid.disk.directory import StoreDirectory
from nile.pyramid.grid.manager_state import manager_bytes

SALES = pa.schema([("at", pa.float64()), ("item", pa.string()), ("price", pa.float64()), ("n", pa.int32())])


def sales(rng: random.Random, n: int, start: float, disorder: float = 0.0) -> dict[str, list[Any]]:
    at = sorted(start + rng.random() * n for _ in range(n))
    at = [max(0.0, t - rng.random() * disorder) for t in at]
    return {
        "at": [None if rng.random() < 0.02 else t for t in at],
        "item": [None if rng.random() < 0.05 else f"i{int(rng.paretovariate(1.0)) % 50}" for _ in at],
        "price": [rng.choice([1.5, -0.0, float("nan"), 9.25, None]) for _ in at],
        "n": [rng.randrange(100) for _ in at],
    }


def cut(rows: dict[str, list[Any]], begin: int, end: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: column[begin:end] for name, column in rows.items()}, schema=SALES)


def seen(db: nile.Database) -> dict[str, Any]:
    """Everything a user can see of the stream `sales`."""
    return {
        "rows": str(db.sql("SELECT * FROM sales").to_arrow()),
        "accounting": db.accounting("sales"),
        "late": str(db.late("sales")),
        "rejected": str(db.quarantine("sales")),
        "offset": db.offset("sales"),
        "summary": manager_bytes(db.summary("items")),
        "zones": db.summary("items").zones(),
    }


def push(db: nile.Database, rows: dict[str, list[Any]], begin: int, end: int, steps: random.Random) -> None:
    while begin < end:
        to = min(end, begin + steps.choice([1, 3, 40, 400]))
        db.push("sales", cut(rows, begin, to), offset=to)
        begin = to


def make(path: Path | None, **given: Any) -> nile.Database:
    db = nile.connect(path, checkpoint=None)
    db.stream("sales", SALES, time="at", lateness="20 s", where="n <> 99", **given)
    db.sql("CREATE SUMMARY items ON sales (item) WITH GRANULARITY '100 s' AND COLLAPSE (3, 3)")
    return db


QUERIES = {
    "recent": "SELECT item, count(*) AS n, sum(price) AS total FROM sales [RANGE '60 s'] GROUP BY item",
    "pairs": "SELECT a.item, a.n, b.n FROM sales AS a, sales AS b WHERE a.item = b.item AND a.n < b.n WINDOW 40",
    "kinds": "SELECT s.n, g.kind FROM sales AS s JOIN goods AS g ON s.item = g.item",
}


def outputs(db: nile.Database) -> dict[str, list[Any]]:
    """All outputs of the standing queries that have not been read, by ordinal."""
    found: dict[str, list[Any]] = {}
    for name in QUERIES:
        rows = found[name] = []
        for first, batch in db.subscription(name).poll_numbered():
            rows += [(first + at, str(row)) for at, row in enumerate(batch.to_pylist())]
    return found


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_named_standing_queries_go_on_with_their_state_and_their_numbers(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    import pyarrow.parquet as pq

    rng = random.Random(seed)
    rows = sales(rng, 700, 0.0, rng.choice([0.0, 30.0]))
    path = tmp_path_factory.mktemp("store")
    pq.write_table(
        pa.table({"item": [f"i{k}" for k in range(9)], "kind": ["tea", "cup", "pot"] * 3}), path / "g.parquet"
    )
    opened = [make(None), make(path / "store")]
    for db in opened:
        db.register("goods", path / "g.parquet")
        for name, text in QUERIES.items():
            db.subscribe(text, name=name)
    whole, stopping = opened
    told: list[dict[str, list[Any]]] = [{name: [] for name in QUERIES} for _ in range(2)]

    def read(which: int, db: nile.Database) -> None:
        for name, found in outputs(db).items():
            told[which][name] += found

    at = 0
    for _ in range(3):
        to = rng.randrange(at, 700)
        for which, db in enumerate((whole, stopping)):
            push(db, rows, at, to, random.Random(seed + which))
            if rng.random() < 0.5:
                read(which, db)
        at = to
        stopping.close()
        stopping = nile.connect(path / "store", checkpoint=None)
        assert stopping.subscriptions == tuple(QUERIES)
    for which, db in enumerate((whole, stopping)):
        push(db, rows, at, 700, random.Random(seed + which))
        db.advance(1_000.0)
        read(which, db)
    assert told[0] == told[1]
    for name, found in told[0].items():
        assert [ordinal for ordinal, _ in found] == list(range(len(found))), name
    stopping.close()


def test_a_named_query_is_made_once_and_its_callback_gets_what_waits(tmp_path: Path) -> None:
    text = "SELECT item FROM sales WHERE n > ?"
    with make(tmp_path) as db:
        db.subscribe(text, name="high", params=[50])
        db.push("sales", {"at": [1.0, 2.0], "item": ["a", "b"], "price": [1.0, 1.0], "n": [70, 10]})
        db.advance(100.0)
    with nile.connect(tmp_path) as db:
        with pytest.raises(nile.ConfigError, match="needed the query that has this name"):
            db.subscribe(text, name="high", params=[51])
        found: list[Any] = []
        sub = db.subscribe(text, found.append, name="high", params=[50])
        assert sub is db.subscription("high")
        assert [batch.to_pylist() for batch in found] == [[{"item": "a"}]]
        db.push("sales", {"at": [101.0], "item": ["c"], "price": [1.0], "n": [60]})
        db.advance(200.0)
        assert [batch.to_pylist() for batch in found[1:]] == [[{"item": "c"}]]
        sub.close()
        assert db.subscriptions == ()
        with pytest.raises(nile.UnknownStream, match="standing query 'high'"):
            db.subscription("high")
    with nile.connect(tmp_path) as db:
        assert db.subscriptions == ()


def test_a_named_query_over_an_object_of_this_process_is_refused_by_a_store(tmp_path: Path) -> None:
    with make(tmp_path) as db:
        db.register("goods", {"item": ["i1"], "kind": ["tea"]})
        with pytest.raises(nile.ConfigError, match="got 'goods', which is an object of this process"):
            db.subscribe(QUERIES["kinds"], name="kinds")
        db.subscribe(QUERIES["kinds"])


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 1 << 30), keep=st.sampled_from([None, None, "150 s"]))
def test_a_reopened_database_goes_on_as_if_it_had_never_stopped(
    tmp_path_factory: pytest.TempPathFactory, seed: int, keep: str | None
) -> None:
    rng = random.Random(seed)
    rows = sales(rng, 1_200, 0.0, rng.choice([0.0, 10.0, 60.0]))
    path = tmp_path_factory.mktemp("store")
    whole = make(None, keep=keep)
    stopping = make(path, keep=keep)
    at = 0
    for _ in range(rng.randrange(1, 4)):
        to = rng.randrange(at, 1_200)
        push(whole, rows, at, to, random.Random(seed))
        push(stopping, rows, at, to, random.Random(seed + 1))
        at = to
        if rng.random() < 0.5:
            whole.advance(at * 0.9)
            stopping.advance(at * 0.9)
        stopping.close()
        stopping = nile.connect(path, checkpoint=None)
        assert seen(stopping) == seen(whole)
    push(whole, rows, at, 1_200, random.Random(seed))
    push(stopping, rows, at, 1_200, random.Random(seed + 1))
    assert seen(stopping) == seen(whole)
    stopping.close()


@pytest.mark.parametrize("disorder", [0.0, 50.0])
def test_a_checkpoint_holds_the_same_bytes_however_the_stream_was_cut(tmp_path: Path, disorder: float) -> None:
    rows = sales(random.Random(5), 900, 0.0, disorder)
    held = []
    for seed in range(3):
        with make(tmp_path / f"{seed}", keep="100 s") as db:
            push(db, rows, 0, 900, random.Random(seed))
        with StoreDirectory.open(tmp_path / f"{seed}", read_only=True) as store:
            state = json.dumps(store.state)
            files = {f.role: bytes(store.read(f)) for f in store.files().values() if f.role.startswith("state")}
            for file in store.files().values():
                state = state.replace(file.name, file.role)
        held.append((state, files))
    assert held[0] == held[1] == held[2]
    assert set(held[0][1]) == {"state-stream", "state-summary", "state-pieces"}


def test_what_was_not_committed_is_pushed_again_from_the_offset(tmp_path: Path) -> None:
    db = make(tmp_path)
    rows = sales(random.Random(1), 600, 0.0)
    push(db, rows, 0, 300, random.Random(2))
    db.checkpoint()
    push(db, rows, 300, 500, random.Random(3))
    db._live._keeper.directory.close()  # as if the process had been killed
    again = nile.connect(tmp_path)
    assert again.offset("sales") == 300
    push(again, rows, 300, 600, random.Random(4))
    whole = make(None)
    push(whole, rows, 0, 600, random.Random(5))
    assert seen(again) == seen(whole)


def test_names_come_back_and_sources_that_are_gone_are_told_and_remembered(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    file = tmp_path / "goods.parquet"
    pq.write_table(pa.table({"item": ["i1", "i2"], "kind": ["tea", "cup"]}), file)
    store = tmp_path / "store"
    with nile.connect(store) as db:
        db.register("goods", file, where="kind <> 'cup'")
        db.register("here", {"x": [1]})
        db.stream("sales", SALES, time="at")
        db.sql("CREATE SUMMARY items ON sales (item) WITH GRANULARITY '1 h' AND COLLAPSE (4, 2)")
        db.push("sales", cut(sales(random.Random(1), 50, 0.0), 0, 50))
        wanted = db.sql("SELECT a.item, g.kind FROM sales AS a JOIN goods AS g ON a.item = g.item").fetchall()
        db.sql("CREATE RELATION again FROM goods")
    with nile.connect(store) as db:
        assert db.streams == ("sales",)
        assert set(db.relations) == {"goods", "again"}
        got = db.sql("SELECT a.item, g.kind FROM sales AS a JOIN goods AS g ON a.item = g.item").fetchall()
        assert got == wanted
        assert [row[0] for row in db.sql("SHOW SUMMARIES").fetchall()] == ["items"]
        db.sql("DROP RELATION again")
    file.rename(tmp_path / "elsewhere")
    with pytest.warns(UserWarning, match="source 'goods' could not be opened again"), nile.connect(store) as db:
        assert db.relations == ()
    (tmp_path / "elsewhere").rename(file)
    with nile.connect(store) as db:
        assert db.relations == ("goods",)


def test_a_stream_is_made_once_and_dropped_for_good(tmp_path: Path) -> None:
    with nile.connect(tmp_path) as db:
        db.stream("sales", SALES, time="at", lateness=5)
        db.push("sales", {"at": [1.0], "item": ["a"], "price": [1.0], "n": [1]})
        db.stream("sales", SALES, time="at", lateness="5 s")
        db.advance(100.0)
        assert len(db.sql("SELECT * FROM sales").to_arrow()) == 1
        with pytest.raises(nile.ConfigError, match="needed the definition that the store has"):
            db.stream("sales", SALES, time="at", lateness=6)
        db.sql("DROP STREAM sales")
    with nile.connect(tmp_path) as db:
        assert db.streams == ()
        db.stream("sales", SALES, time="at", lateness=6)
        assert db.sql("SELECT * FROM sales").fetchall() == []


def test_bad_openings_are_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(nile.ConfigError, match="memory: needed 16 MB"):
        nile.connect(tmp_path / "s", memory="1MB")
    with pytest.raises(nile.ConfigError, match="checkpoint: needed a duration"):
        nile.connect(tmp_path / "s", checkpoint="often")
    (tmp_path / "file").write_text("x")
    with pytest.raises(nile.StoreError):
        nile.connect(tmp_path / "file")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("x")
    with pytest.raises(nile.NotAStore):
        nile.connect(tmp_path / "full")
    with nile.connect(tmp_path / "s"), pytest.raises(nile.StoreLocked, match=str(tmp_path / "s")):
        nile.connect(tmp_path / "s")
    with pytest.raises(nile.ConfigError, match="needed a database with a store"):
        nile.connect().checkpoint()
    with nile.connect(tmp_path / "s") as db:
        db._live._keeper.directory.commit({"format": 8}, [])
        db._live._keeper = None
    with pytest.raises(nile.StoreTooNew, match="format 7 or older; got 8"):
        nile.connect(tmp_path / "s")


def test_rows_beyond_the_memory_limit_move_to_files_and_are_still_there(tmp_path: Path) -> None:
    n, parts = 100_000, 12
    with nile.connect(tmp_path, memory="16MB", checkpoint=None) as db:
        db.stream("s", [("at", pa.int64()), ("item", pa.int64()), ("x", pa.float64())], time="at")
        db.sql("CREATE SUMMARY items ON s (item) WITH GRANULARITY '1 h' AND COLLAPSE (4, 2)")
        for part in range(parts):
            at = np.arange(part * n, (part + 1) * n)
            db.push("s", {"at": at, "item": at % 977, "x": at * 0.5})
            assert db._live.get("s").history.memory < 32_000_000
        got = db.sql("SELECT count(*) AS n, sum(item) AS s, max(x) AS m FROM s").fetchall()
    total = np.arange(parts * n)
    assert got == [(parts * n, int((total % 977).sum()), (parts * n - 1) * 0.5)]
    with nile.connect(tmp_path, memory="16MB") as db:
        assert db.sql("SELECT count(*) AS n, sum(item) AS s, max(x) AS m FROM s").fetchall() == got
        assert db._live.get("s").history.memory < 32_000_000
