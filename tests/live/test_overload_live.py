"""Readers that are slow, streams that are silent: others go on, nothing grows, everything is counted."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

import nile

SECOND = 10**9
SCHEMA = [("at", pa.int64()), ("k", pa.int64())]


def opened(*names: str, **options: object) -> nile.Database:
    db = nile.connect()
    for name in names:
        db.stream(name, SCHEMA, time="at", lateness="1 s", **options)  # type: ignore[arg-type]
    return db


def rows(begin: int, end: int) -> dict[str, list[int]]:
    return {"at": list(range(begin, end)), "k": list(range(begin, end))}


def test_a_reader_that_stands_still_refuses_its_streams_alone() -> None:
    db = opened("s", "other")
    stuck = db.subscribe("SELECT k FROM s", unread=10, when_full="refuse")
    brisk = db.subscribe("SELECT k FROM other")
    db.push("s", rows(0, 30))
    assert stuck.unread == 28
    with pytest.raises(nile.Overloaded, match=r"needed fewer than 10 rows unread .* over s; got 28; nothing was taken"):
        db.push("s", rows(30, 40))
    assert db.accounting("s").tuples_in == 29
    db.push("other", rows(0, 5))
    assert sum(map(len, brisk.poll())) == 3
    assert sum(map(len, stuck.poll())) == 28
    db.push("s", rows(30, 40))
    assert [row["k"] for batch in stuck.poll() for row in batch.to_pylist()] == list(range(28, 38))


def test_a_push_waits_for_a_reader_in_another_thread() -> None:
    db = opened("s")
    query = db.subscribe("SELECT k FROM s", unread=10)
    begun = threading.Event()

    def push() -> None:
        for begin in range(0, 200, 20):
            db.push("s", rows(begin, begin + 20))
            begun.set()
        db.advance(1_000)
        query.close()

    pusher = threading.Thread(target=push)
    pusher.start()
    begun.wait()
    most, found = 0, []
    for batch in query.follow():
        found += batch.column("k").to_pylist()
        most = max(most, query.unread)
    pusher.join()
    assert found == list(range(200))
    assert most < 10 + 20


def test_dropped_outputs_are_counted_and_leave_a_gap_in_the_numbers() -> None:
    db = opened("s")
    query = db.subscribe("SELECT k FROM s", unread=10, when_full="drop")
    for begin in range(0, 100, 7):
        db.push("s", rows(begin, begin + 7))
        assert query.unread <= 10
    db.advance(1_000)
    ((first, _), *_) = numbered = query.poll_numbered()
    found = [row["k"] for _, batch in numbered for row in batch.to_pylist()]
    assert found == list(range(95, 105))
    assert first == query.dropped == 95
    assert query.outputs == 105


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"unread": 0}, "got 0 and 'wait'"),
        ({"unread": 5, "when_full": "panic"}, "one of wait, refuse, drop"),
        ({"unread": 5, "when_full": "drop", "emit": "changes"}, "emits changes, which mean nothing"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_and_leaves_no_query(options: dict[str, object], told: str) -> None:
    db = opened("s")
    with pytest.raises(nile.ConfigError, match=told):
        db.subscribe("SELECT k FROM s", name="q", **options)  # type: ignore[arg-type]
    assert db.subscriptions == ()


def test_the_window_of_a_silent_stream_ends_as_the_clock_goes_on() -> None:
    db = opened("s", idle="10 s")
    now = [0]
    db._live.idleness.clock = lambda: now[0]
    query = db.subscribe("SELECT count(*) AS n FROM s [RANGE '5 s']")
    db.push("s", rows(0, 4))
    query.poll()
    now[0] = 9 * SECOND
    assert query.poll() == []
    assert query.partial == ()
    now[0] = 30 * SECOND
    last = [row["n"] for batch in query.poll() for row in batch.to_pylist() if row["_sign"] > 0][-1]
    assert last == 0
    assert query.partial == ("s",)
    db.push("s", {"at": [5, 22], "k": [5, 22]})  # its time has gone on to 2 + 30 - 10 s
    assert query.partial == ()
    assert (db.accounting("s").late, db.accounting("s").applied) == (1, 5)


def test_a_silent_stream_does_not_hold_up_those_it_is_joined_with() -> None:
    db = opened("a", idle="10 s")
    db.stream("b", SCHEMA, time="at", lateness="1 s")
    db.stream("elsewhere", SCHEMA, time="at", lateness="1 s")
    now = [0]
    db._live.idleness.clock = lambda: now[0]
    query = db.subscribe("SELECT a.k FROM a, b WHERE a.k = b.k WINDOW '1 h'")
    db.push("a", rows(0, 5))
    now[0] = 11 * SECOND
    db.push("elsewhere", rows(10**6, 10**6 + 5))
    db.push("b", rows(0, 1_000))
    found = [row["k"] for batch in query.poll() for row in batch.to_pylist()]
    assert found == [0, 1, 2, 3, 4]
    assert query.partial == ("a",)
    db.push("a", {"at": [500, 1_500], "k": [500, 1_500]})  # behind b's time, not behind the other stream's
    db.advance(2_000)
    assert db.accounting("a").late == 1
    assert db.accounting("a").applied == 6


def test_an_idle_stream_needs_a_lateness_and_is_the_same_after_a_restart(tmp_path: Path) -> None:
    with pytest.raises(nile.ConfigError, match="idle: needed a lateness"):
        nile.connect().stream("s", SCHEMA, time="at", idle="1 s")
    with nile.connect(tmp_path / "store", checkpoint=None) as db:
        db.stream("s", SCHEMA, time="at", lateness="1 s", idle="10 s", event_id="k")
        db.push("s", rows(0, 5))
    with nile.connect(tmp_path / "store", checkpoint=None) as db:
        now = [db._live.idleness.clock()]
        db._live.idleness.clock = lambda: now[0]
        db.push("s", {"at": [4, 5], "k": [4, 5]})  # the first came before the restart
        assert db.accounting("s").reasons == {"duplicate event id": 1}
        query = db.subscribe("SELECT count(*) AS n FROM s [RANGE '2 s']")
        now[0] += 30 * SECOND
        query.poll()
        assert query.partial == ("s",)
