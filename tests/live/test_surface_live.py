"""Live streams, standing queries, and that no tuple is lost on the way."""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sql_random import query, tables

import nile

CLICKS = pa.schema([("at", pa.float64()), ("page", pa.string())])


@pytest.fixture
def db() -> nile.Database:
    made = nile.connect()
    made.stream("clicks", CLICKS, time="at")
    return made


def clicks(*rows: tuple[float, str | None]) -> dict[str, list[Any]]:
    return {"at": [at for at, _ in rows], "page": [page for _, page in rows]}


def rows(batches: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def test_new_rows_come_when_their_instant_has_passed(db: nile.Database) -> None:
    standing = db.subscribe("SELECT page FROM clicks WHERE page <> 'home'")
    assert db.push("clicks", clicks((1.0, "shop"), (2.0, "home"), (2.0, "cart"))) == 3
    assert rows(standing) == [("shop",)]
    db.push("clicks", clicks((3.0, "end")))
    assert rows(standing.poll()) == [("cart",)]
    assert standing.poll() == []
    db.advance(4.0)
    assert rows(standing) == [("end",)]


def test_a_window_takes_back_what_has_left_it(db: nile.Database) -> None:
    busy = db.subscribe("SELECT page, count(*) AS n FROM clicks GROUP BY page WINDOW 60")
    db.push("clicks", clicks((0.0, "a"), (1.0, "b"), (2.0, "a")))
    db.push("clicks", clicks((90.0, "c")))
    db.close()
    kept: Counter[Any] = Counter()
    for _, sign, page, n in rows(busy):
        kept[page, n] += sign
    assert +kept == Counter({("c", 1): 1})
    assert busy.closed


@pytest.mark.parametrize("text", ["SELECT count(*) AS n, max(page) AS last FROM clicks WINDOW 5",
                                  "SELECT page, count(*) AS n FROM clicks GROUP BY page WINDOW 5"])  # fmt: skip
def test_what_changes_does_not_depend_on_how_the_input_was_driven(text: str) -> None:
    def driven(before: float | None, after: bool) -> list[tuple[Any, ...]]:
        db = nile.connect()
        db.stream("clicks", CLICKS, time="at")
        standing = db.subscribe(text, emit="changes")
        if before is not None:
            db.advance(before)
        for click in ((1.0, "a"), (2.0, "b"), (2.0, "a"), (9.0, "c")):
            db.push("clicks", clicks(click))
            if after:
                db.advance(click[0])
        db.advance(30.0)
        return rows(standing)

    expected = driven(None, False)
    assert len(expected) > 4
    for before in (None, 0.5, 1.0):
        for after in (False, True):
            assert driven(before, after) == expected


def test_a_snapshot_can_be_polled(db: nile.Database) -> None:
    state = db.subscribe("SELECT count(*) AS n FROM clicks WINDOW 10", emit="snapshot")
    db.push("clicks", clicks((0.0, "a"), (5.0, "b")))
    db.advance(6.0)
    assert rows(state.poll()) == [(2,)]
    db.advance(30.0)
    assert rows(state) == [(0,)]


def test_two_live_streams_join_when_both_have_passed(db: nile.Database) -> None:
    db.stream("buys", pa.schema([("at", pa.float64()), ("page", pa.string())]), time="at")
    pairs = db.subscribe("SELECT c.at AS c, b.at AS b FROM clicks c, buys b WHERE c.page = b.page WINDOW 10")
    db.push("clicks", clicks((1.0, "x"), (2.0, "y")))
    assert pairs.poll() == []
    db.push("buys", clicks((4.0, "x")))
    db.advance(20.0)
    assert rows(pairs) == [(1.0, 4.0)]


def test_a_live_stream_joins_what_is_stored(db: nile.Database) -> None:
    db.register("pages", {"page": ["x", "y"], "kind": ["shop", "blog"]})
    found = db.subscribe("SELECT c.at, p.kind FROM clicks c, pages p WHERE c.page = p.page")
    db.push("clicks", clicks((1.0, "x"), (2.0, "z")))
    db.close()
    assert rows(found) == [(1.0, "shop")]


def test_a_callback_gets_every_batch(db: nile.Database) -> None:
    seen: list[pa.RecordBatch] = []
    db.subscribe("SELECT page FROM clicks", seen.append)
    for at in range(5):
        db.push("clicks", clicks((float(at), str(at))))
    db.advance(10.0)
    assert rows(seen) == [(str(at),) for at in range(5)]


def test_following_waits_until_it_is_closed_by_another_thread(db: nile.Database) -> None:
    standing = db.subscribe("SELECT page FROM clicks")
    found: list[tuple[Any, ...]] = []
    reader = threading.Thread(target=lambda: found.extend(rows(standing.follow())))
    reader.start()
    for at in range(50):
        db.push("clicks", clicks((float(at), str(at))))
    standing.close()
    reader.join(timeout=60)
    assert not reader.is_alive()
    assert found == [(str(at),) for at in range(50)]


def test_following_ends_by_its_timeout(db: nile.Database) -> None:
    assert list(db.subscribe("SELECT page FROM clicks").follow(timeout=0.01)) == []


def test_a_standing_query_sees_what_comes_after_it_and_a_query_what_is_kept(db: nile.Database) -> None:
    db.push("clicks", clicks((1.0, "old")))
    standing = db.subscribe("SELECT page FROM clicks")
    db.push("clicks", clicks((2.0, "new")))
    assert db.sql("SELECT page FROM clicks").fetchall() == [("old",), ("new",)]
    standing.close()
    assert rows(standing) == [("new",)]
    db.push("clicks", clicks((3.0, "after")))
    assert standing.poll() == []


def test_what_is_kept_can_be_bounded() -> None:
    db = nile.connect()
    db.stream("clicks", CLICKS, time="at", keep="10 s")
    for at in range(100):
        db.push("clicks", clicks((float(at), "x")))
    assert db.sql("SELECT count(*) AS n FROM clicks").fetchall() == [(11,)]
    assert db.accounting("clicks").applied == 100


def test_disorder_is_repaired_within_the_lateness_and_counted_beyond_it() -> None:
    db = nile.connect()
    db.stream("clicks", CLICKS, time="at", lateness="2 s")
    standing = db.subscribe("SELECT at FROM clicks")
    db.push("clicks", clicks((5.0, "a"), (3.5, "b"), (1.0, "too late"), (4.0, "c")))
    db.push("clicks", {"at": [None, 9.0], "page": ["no time", "d"]})
    told = db.accounting("clicks")
    told.check()
    assert (told.late, told.rejected) == (1, 1)
    assert told.applied == 3
    db.advance(8.0)
    db.push("clicks", clicks((7.0, "too late after advance")))
    assert db.accounting("clicks").late == 2
    db.close()
    assert rows(standing) == [(3.5,), (4.0,), (5.0,), (9.0,)]
    assert standing.accounting["clicks"].tuples_in == 7


def test_disorder_without_a_lateness_is_refused_and_nothing_of_that_batch_is_taken(db: nile.Database) -> None:
    db.push("clicks", clicks((5.0, "a")))
    with pytest.raises(nile.TimestampOrderError, match="stream 'clicks'"):
        db.push("clicks", clicks((6.0, "b"), (4.0, "c")))
    assert db.accounting("clicks").tuples_in == 1
    db.push("clicks", clicks((6.0, "b")))
    assert db.accounting("clicks").applied == 2


def test_what_is_wrong_with_a_refused_batch_is_not_set_aside_until_it_is_taken() -> None:
    with nile.connect() as db:
        db.stream("s", [("at", pa.int64()), ("x", pa.string())], time="at")
        db.push("s", {"at": [5, None], "x": ["a", "b"]})
        with pytest.raises(nile.TimestampOrderError):
            db.push("s", {"at": [None, 9, 7], "x": ["c", "d", "e"]})
        told = db.accounting("s")
        assert (told.tuples_in, told.applied, told.rejected) == (2, 1, 1)
        assert db.quarantine("s").column("row").to_pylist() == [2]
        db.push("s", {"at": [None, 7, 9], "x": ["c", "e", "d"]})
        assert db.quarantine("s").column("row").to_pylist() == [2, 3]
        assert db.accounting("s").rejected == 2


def test_columns_may_come_in_any_order_and_are_converted(db: nile.Database) -> None:
    db.push("clicks", pa.table({"page": ["a"], "at": pa.array([1], pa.int64())}))
    db.push("clicks", [clicks((2.0, "b")), clicks((3.0, "c"))])
    assert db.sql("SELECT at, page FROM clicks").fetchall() == [(1.0, "a"), (2.0, "b"), (3.0, "c")]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"at": [1.0]}, "there is no column 'page'"),
        ({"at": ["soon"], "page": ["a"]}, "column 'at' is double"),
        (5, "needed a record batch"),
    ],
)
def test_what_does_not_fit_is_refused(db: nile.Database, data: Any, message: str) -> None:
    with pytest.raises(nile.NileError, match=message):
        db.push("clicks", data)
    assert db.accounting("clicks").tuples_in == 0


def test_what_is_no_live_query_is_refused(db: nile.Database) -> None:
    db.register("sales", {"ts": [0.0], "x": [1]}, time="ts")
    for text, error, message in [
        ("SELECT x FROM sales", nile.ConfigError, "needed a query over a live stream"),
        ("SELECT page FROM clicks ORDER BY page", nile.ConfigError, "emit='snapshot'"),
        ("SHOW TABLES", nile.ConfigError, "needed a SELECT"),
        ("SELECT page FROM clicks LIMIT 2 WITH PREFERENCE desc page", nile.NotYet, "no standing operator"),
    ]:
        with pytest.raises(error, match=message):
            db.subscribe(text)
    with pytest.raises(nile.UnknownStream, match="is not live"):
        db.push("sales", {"ts": [1.0], "x": [1]})
    with pytest.raises(nile.UnknownStream, match="did you mean 'clicks'"):
        db.push("click", {})
    with pytest.raises(nile.ConfigError, match="pyarrow schema"):
        db.stream("bad", 5, time="ts")  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(4))
def test_live_and_finite_streams_give_the_same_changes(seed: int) -> None:
    """What is pushed in pieces, of any sizes, is what a query over the whole says."""
    rng = random.Random(seed)
    data = tables(rng, 30)
    for _ in range(6):
        made = query(rng, running=True)
        names = sorted({table for table, _ in made.inputs if table != "r"})
        if made.kind == "state" and made.whole is None:
            continue
        whole, live = nile.connect(), nile.connect()
        for name, table in data.items():
            whole.register(name, table, time=None if name == "r" else "ts")
            if name == "r":
                live.register(name, table)
            else:
                live.stream(name, table.schema, time="ts")
        standing = live.subscribe(made.nile(), emit="changes")
        left = {name: data[name] for name in names}
        while left:
            name = rng.choice(sorted(left))
            size = rng.randrange(1, 9)
            if left[name].num_rows:
                live.push(name, left[name].slice(0, size))
            left[name] = left[name].slice(size)
            if not left[name].num_rows:
                del left[name]
        live.close()
        wanted = rows(whole.sql(made.nile(), emit="changes").to_arrow().to_batches())
        assert added(rows(standing)) == added(wanted), made.nile()


def added(changes: list[tuple[Any, ...]]) -> Counter[str]:
    """Changes of one instant and row, added up."""
    total: Counter[str] = Counter()
    for at, sign, *row in changes:
        total[repr((at, row))] += sign
    return Counter({key: n for key, n in total.items() if n})


def test_rows_set_aside_of_a_long_push_keep_their_places_in_the_stream() -> None:
    late = 70_000
    with nile.connect() as db:
        db.stream("s", [("at", pa.float64()), ("v", pa.int64())], time="at", lateness="1 s")
        at = np.arange(100_000, dtype=np.float64)
        at[late] = 0.0
        for push in range(2):
            db.push("s", {"at": at + push * 200_000, "v": np.arange(100_000)})
        assert db.accounting("s").late == 2
        assert db.late("s").column("row").to_pylist() == [late + 1, 100_000 + late + 1]


def test_a_push_with_an_offset_is_taken_whole_or_not_at_all() -> None:
    with nile.connect() as db:
        db.stream("s", [("at", pa.float64())], time="at")
        assert db.offset("s") == 0
        at = np.arange(100_000, dtype=np.float64)
        db.push("s", {"at": at}, offset={"file": "a", "row": 100_000})
        assert db.offset("s") == {"file": "a", "row": 100_000}
        at = at + 100_000
        at[90_000] = 0.0
        with pytest.raises(nile.TimestampOrderError):
            db.push("s", {"at": at}, offset={"file": "b", "row": 100_000})
        assert db.offset("s") == {"file": "a", "row": 100_000}
        assert db.accounting("s").tuples_in == 100_000
        for bad in (float("nan"), {1: 2}, "x" * 70_000, object(), (1, 2)):
            with pytest.raises(nile.ConfigError, match="offset: needed a JSON value"):
                db.push("s", {"at": [2e6]}, offset=bad)
        db.push("s", {"at": [2e6]})
        assert db.accounting("s").tuples_in == 100_001
