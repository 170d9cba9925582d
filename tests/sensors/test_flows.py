"""CREATE STREAM ... FROM a connector: what it reads is pushed with its place, also after the store is opened again."""

from __future__ import annotations

import json
import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_sensors_connectors import broker, publisher, server
from test_sensors_databases import cluster, postgres

import nile
from nile.sensors.connectors.file import GrowingFile
from nile.sensors.connectors.messages import shown_address
from nile.sql.reading_statements import read_statement
from nile.sql.statement_text import statement_text
from nile.summaries.errors import SourceError

__all__ = ["broker", "cluster", "postgres", "server"]


def until(check: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def rows(db: nile.Database, count: int, asked: str = "n") -> list[Any]:
    """What is kept, once there are so many rows, and no more come."""
    until(lambda: db.accounting("s").applied >= count)
    time.sleep(0.1)
    assert db.accounting("s").applied == count
    return [row[0] if "," not in asked else row for row in db.sql(f"SELECT {asked} FROM s").fetchall()]


def state(db: nile.Database) -> tuple[Any, ...]:
    return db.sql("SELECT reads, state, error FROM nile_sources WHERE name = 's'").fetchall()[0]


def readers() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("nile reads")]


@pytest.mark.parametrize(
    "text",
    [
        "CREATE STREAM s FROM KAFKA 'kafka://h:9092/t' (n BIGINT)",
        "CREATE OR REPLACE STREAM s FROM MQTT 'mqtt://h/t?client=c' (at TIMESTAMP, id TEXT, l DOUBLE[]) "
        "TIMESTAMP BY at EVENT ID id LATENESS '1 s' IDLE '5 s' KEEP '1 h' WHERE id <> 'x'",
        "CREATE STREAM s FROM POSTGRES 'postgresql://h/d?table=t&slot=x' (n INT) KEEP '1 d'",
        "CREATE STREAM s FROM REDIS 'redis://h?stream=s' (\"a b\" INT)",
    ],
)
def test_a_statement_written_out_reads_the_same(text: str) -> None:
    names = nile.connect()._names
    statement = read_statement(text, names)
    assert read_statement(statement_text(statement), names) == statement


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE STREAM s FROM KAFKA 'kafka://h/t'", "needed '\\('"),
        ("CREATE STREAM s FROM KAFKA 'kafka://h/t' (n INT, n INT)", "name of its own"),
        ("CREATE STREAM s FROM KAFKA 'kafka://h/t' (n INT) TIMESTAMP BY t", "needed a column after TIMESTAMP BY"),
        ("CREATE STREAM s FROM KAFKA 'kafka://h/t' (n INT) IDLE 1 IDLE 2", "needed IDLE once"),
        ("CREATE STREAM s FROM KAFKA 'kafka://h/t' (n INT) BUFFER 1", "LATENESS d, KEEP d, IDLE d"),
        ("CREATE STREAM s FROM KAFKA 'kafka://h/t' (ts INT)", "needed TIMESTAMP BY ts"),
        ("CREATE STREAM s FROM KAFKA 'kafka://h/t' (n INT) WHERE m > 1", "m"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_left(text: str, message: str) -> None:
    with nile.connect() as db:
        with pytest.raises(nile.NileError, match=message):
            db.sql(text)
        assert db.streams == ()
        assert readers() == []


def test_untrusted_text_connects_to_nothing() -> None:
    with nile.connect() as db, pytest.raises(nile.SqlError, match="connects to nothing here; got REDIS"):
        db.sql("CREATE STREAM s FROM REDIS 'redis://h?stream=x' (n INT)", files=False)


def test_lines_of_a_file_over_restarts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text('{"n": 0}\nnonsense\n{"n": 1}\n{"n": "x"}\n2')
    with nile.connect(str(tmp_path / "store")) as db:
        db.sql(f"CREATE STREAM s FROM FILE '{log}' (n INT)")
        assert rows(db, 2) == [0, 1]
        db.subscribe("SELECT n FROM s", name="q")
        assert [row["raw"] for row in db.quarantine("s").to_pylist()] == ["nonsense", "{'n': 'x'}"]
        assert db.quarantine("s").column("row").to_pylist() == [2, 4]
        assert state(db) == (str(log), "open", None)
        assert db.sql("SHOW STREAMS").fetchall() == [("s", "stream", "ts", "n, ts")]
        assert [name for name, *_ in db.sql("DESCRIBE s").fetchall()] == ["n", "ts"]
        with pytest.raises(nile.ConfigError, match="needed a stream that is pushed to; got one that reads file"):
            db.push("s", {"n": [1], "ts": [0]})
        with pytest.raises(nile.SqlError, match="taken already"):
            db.sql(f"CREATE STREAM s FROM FILE '{log}' (n INT)")
    assert readers() == []
    with log.open("a") as file:
        file.write("0\n5\n")
    with nile.connect(str(tmp_path / "store"), read_only=True) as db:
        time.sleep(0.2)
        assert db.accounting("s").applied == 2
    with nile.connect(str(tmp_path / "store")) as db:
        assert rows(db, 4) == [0, 1, 20, 5]
        assert db.accounting("s").rejected == 2
        told = [n for batch in db.subscription("q").poll() for n in batch.column("n").to_pylist()]
        assert told == [20, 5]
        db.subscription("q").close()
        db.sql("DROP STREAM s")
        until(lambda: not readers())
        assert db.streams == ()
    with nile.connect(str(tmp_path / "store")) as db:
        assert db.streams == ()
        assert readers() == []


def test_what_is_there_is_read_when_the_statement_returns(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"{n}\n" for n in range(5000)))
    with nile.connect() as db:
        db.sql(f"CREATE STREAM s FROM FILE '{log}' (n INT)")
        assert db.sql("SELECT count(*) AS n, max(n) AS most FROM s").fetchall() == [(5000, 4999)]
        begun = time.monotonic()
        db.sql(f"CREATE STREAM t FROM FILE '{tmp_path / 'none'}' (n INT)")
        db.sql("CREATE STREAM u FROM KAFKA 'kafka://127.0.0.1:1/t' (n INT)")
        assert time.monotonic() - begun < 15
        assert db.sql("SELECT count(*) AS n FROM t").fetchall() == [(0,)]


def test_another_source_under_the_same_name(tmp_path: Path) -> None:
    for k in (1, 2):
        (tmp_path / str(k)).write_text(f"{k}\n")
    with nile.connect() as db:
        db.sql(f"CREATE STREAM s FROM FILE '{tmp_path / '1'}' (n INT)")
        assert rows(db, 1) == [1]
        db.sql(f"CREATE OR REPLACE STREAM s FROM FILE '{tmp_path / '2'}' (n INT)")
        assert rows(db, 1) == [2]
        until(lambda: len(readers()) == 1)
        with pytest.raises(nile.NileError):
            db.sql(f"CREATE OR REPLACE STREAM s FROM FILE '{tmp_path / '2'}' (n INT) WHERE nothing > 1")
        assert rows(db, 1) == [2]


def test_times_of_its_own_late_rows_and_repeated_events(tmp_path: Path) -> None:
    log = tmp_path / "log"
    events = [(1, "a"), (5, "b"), (3, "c"), (3, "c"), (20, "d"), (2, "e"), ("never", "f"), (20, "d"), (21, "x")]
    log.write_text("".join(json.dumps({"t": t, "n": n}) + "\n" for t, n in events))
    with nile.connect() as db:
        clauses = "TIMESTAMP BY t EVENT ID n LATENESS 10 WHERE n <> 'x'"
        db.sql(f"CREATE STREAM s FROM FILE '{log}' (t DOUBLE, n TEXT) {clauses}")
        until(lambda: db.accounting("s").late == 1)
        db.advance(30, "s")
        assert db.sql("SELECT n FROM s").fetchall() == [("a",), ("c",), ("b",), ("d",)]
        assert db.late("s").num_rows == 1
        assert db.accounting("s").rejected == 3
    log.write_text('{"n": 1, "at": 5.5}\n{"n": 2, "at": "soon"}\n{"n": 3, "at": 4}\n')
    with nile.connect() as db:
        db.sql(f"CREATE STREAM s FROM FILE '{log}?time=at' (n INT)")
        assert [(n, at.timestamp()) for n, at in rows(db, 1, "n, ts")] == [(1, 5.5)]
        assert (db.accounting("s").late, db.accounting("s").rejected) == (1, 1)


def cannot(*_: Any) -> None:
    raise SourceError("not here any more")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("source", "needed"),
    [
        ("KAFKA 'kafka://u@x'", "needed kafka://host:9092/topic"),
        ("HTTP 'ftp://x'", "needed an address with http:// or https://"),
        ("STDIN '-'", "needed the number of a descriptor"),
        ("FILE 'x?from=middle'", "needed \\?from=start"),
    ],
)
def test_a_source_that_cannot_be_is_refused_and_leaves_no_stream(source: str, needed: str) -> None:
    with nile.connect() as db:
        with pytest.raises(SourceError, match=f"CREATE STREAM s: .*{needed}"):
            db.sql(f"CREATE STREAM s FROM {source} (n INT)")
        until(lambda: not readers())
        assert db.streams == ()


def once_all_have_ended(store: Path) -> tuple[Any, ...]:
    with nile.connect(store) as db:
        until(lambda: not readers())
        return state(db)[1:]


def test_a_source_that_a_store_knows_and_cannot_be_any_more_is_told_of_and_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("1\n")
    made = f"CREATE STREAM s FROM FILE '{tmp_path / 'log'}' (n INT)"
    with nile.connect(tmp_path / "store") as db:
        db.sql(made)
        assert rows(db, 1) == [1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GrowingFile, "init", cannot)
        with pytest.warns(RuntimeWarning, match="stream 's': needed what can be read from"):
            told = once_all_have_ended(tmp_path / "store")
        assert told == ("failed", "SourceError: not here any more")
    with nile.connect() as db:
        (tmp_path / "log").write_text("1\n")
        db.sql(f"CREATE OR REPLACE STREAM s FROM FILE '{tmp_path / 'log'}' (n INT)")
        assert rows(db, 1) == [1]
    assert shown_address("redis://h/?stream=s") == "redis://h/?stream=s"


def fails(_: Any) -> None:
    raise ValueError("no more of this")


def test_a_full_query_holds_the_source_back(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("1\n2\n")
    with nile.connect() as db:
        db.sql(f"CREATE STREAM s FROM FILE '{log}' (n INT)")
        assert rows(db, 2) == [1, 2]
        full = db.subscribe("SELECT n FROM s", unread=1, when_full="refuse")
        with log.open("a") as file:
            file.write("3\n4\n")
        assert rows(db, 4) == [1, 2, 3, 4]
        with log.open("a") as file:
            file.write("5\n6\n")
        until(lambda: "Overloaded" in (state(db)[2] or ""))
        assert db.accounting("s").applied == 4
        assert [n for batch in full.poll() for n in batch.column("n").to_pylist()] == [3, 4]
        assert rows(db, 6) == [1, 2, 3, 4, 5, 6]


def test_a_callback_that_raises_is_told_of_and_nothing_is_lost(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("1\n2\n")
    with nile.connect() as db:
        db.sql(f"CREATE STREAM s FROM FILE '{log}' (n INT)")
        assert rows(db, 2) == [1, 2]
        db.subscribe("SELECT n FROM s WHERE n = 5", fails)
        with pytest.warns(RuntimeWarning, match="no more of this"):
            grown(db, log, "3\n5\n6\n", 5)
        grown(db, log, "7\n", 6)
        assert rows(db, 6) == [1, 2, 3, 5, 6, 7]


def grown(db: nile.Database, log: Path, text: str, count: int) -> None:
    """Append to a file, and wait until so many rows are there."""
    with log.open("a") as file:
        file.write(text)
    rows(db, count)


def test_a_standing_query_hears_of_what_has_arrived_at_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("")
    heard: list[int] = []
    with nile.connect() as db:
        db.sql(f"CREATE STREAM s FROM FILE '{log}' (n INT)")
        db.subscribe("SELECT n FROM s", lambda batch: heard.extend(batch.column("n").to_pylist()))
        for k in range(5):
            grown(db, log, f"{k}\n", k + 1)
            assert heard == list(range(k + 1))


def over_restarts(
    tmp_path: Path, statement: str, send: Callable[[int, int], None], before: Callable[[], None] = lambda: None
) -> None:
    """Rows sent while a store is open, closed, and open again are all there once."""
    store = str(tmp_path / "store")
    with nile.connect(store) as db:
        db.sql(statement)
        until(lambda: state(db)[1] == "open")
        before()
        send(0, 500)
        assert sorted(rows(db, 500)) == list(range(500))
    assert readers() == []
    send(500, 700)
    for sent in (700, 900):
        with nile.connect(store) as db:
            send(700, sent)
            assert sorted(rows(db, sent)) == list(range(sent))
    with nile.connect(store) as db:
        assert sorted(rows(db, 900)) == list(range(900))
        db.sql("DROP STREAM s")


def test_kafka(cluster: Any, tmp_path: Path) -> None:
    address, producer = cluster

    def send(begin: int, end: int) -> None:
        for k in range(begin, end):
            producer.produce("t", json.dumps({"n": k}), partition=k % 3)
        producer.flush(20)

    producer.produce("t", "no JSON", partition=0)
    producer.flush(20)
    over_restarts(tmp_path, f"CREATE STREAM s FROM KAFKA 'kafka://{address}/t' (n BIGINT)", send)


def test_partitions_of_kafka_are_read_again_in_the_order_in_which_they_were_told(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after outputs were told that no checkpoint has: they come again under their numbers."""
    address, producer = cluster
    for k in range(3_000):
        producer.produce("t", str(k), partition=k % 3)
    producer.flush(20)
    store, copy, draw = tmp_path / "store", tmp_path / "copy", random.Random(5)

    def told(db: nile.Database) -> dict[int, int]:
        found: dict[int, int] = {}
        while len(found) < 3_000:
            for ordinal, batch in db.subscription("q").poll_numbered():
                found.update(enumerate(batch.column(0).to_pylist(), ordinal))
        return found

    monkeypatch.setattr("nile.execution.live.inputs.inflow._SOON", 0.0)  # nothing is taken in under the lock
    monkeypatch.setattr("nile.sensors.connectors.kafka._MOST", 150)
    with nile.connect(store, checkpoint=None) as db:
        with db._live.lock:  # the query sees the first row, too, and the store has it before any
            db.sql(f"CREATE STREAM s FROM KAFKA 'kafka://{address}/t' (n BIGINT)")
            db.subscribe("SELECT n FROM s", name="q")
        first = told(db)
        shutil.copytree(store, copy, ignore=shutil.ignore_patterns("LOCK"))
    assert sorted(first.values()) == list(range(3_000))
    monkeypatch.setattr("nile.sensors.connectors.kafka._MOST", draw.randrange(300, 600))
    for part in range(3):
        producer.produce("t", str(3_000 + part), partition=part)
    producer.flush(20)
    with nile.connect(copy, checkpoint=None) as db:
        again = told(db)
        assert [(at, n, again[at]) for at, n in first.items() if again[at] != n][:3] == []


def test_kafka_from_latest_misses_nothing_after_a_kill_before_the_first_row(cluster: Any, tmp_path: Path) -> None:
    address, producer = cluster
    producer.produce("t", "1", partition=0)
    producer.flush(20)
    store = str(tmp_path / "store")
    with nile.connect(store) as db:
        db.sql(f"CREATE STREAM s FROM KAFKA 'kafka://{address}/t?from=latest&partition=0' (n BIGINT)")
        until(lambda: state(db)[1] == "open" and db.offset("s") != 0)
    producer.produce("t", "2", partition=0)
    producer.flush(20)
    with nile.connect(store) as db:
        assert rows(db, 1) == [2]


def test_redis(server: Any, tmp_path: Path) -> None:
    port, client, _, _ = server

    def send(begin: int, end: int) -> None:
        for k in range(begin, end):
            client.xadd("s", {"n": k})

    over_restarts(tmp_path, f"CREATE STREAM s FROM REDIS 'redis://127.0.0.1:{port}?stream=s' (n BIGINT)", send)


def test_postgres(postgres: Any, tmp_path: Path) -> None:
    address, connect, _, _ = postgres
    with connect() as client:
        client.execute("CREATE TABLE t (n int8)")

    def send(begin: int, end: int) -> None:
        if begin < end:
            with connect() as client:
                client.execute("INSERT INTO t SELECT generate_series(%s::int, %s::int)", (begin, end - 1))

    over_restarts(tmp_path, f"CREATE STREAM s FROM POSTGRES '{address}?table=t&slot=nile' (n BIGINT)", send)


def test_mqtt(broker: Any, tmp_path: Path) -> None:
    port, _, _ = broker

    def send(begin: int, end: int) -> None:
        client = publisher(port)
        for each in [client.publish("t", json.dumps({"t": k, "n": k}), qos=1) for k in range(begin, end)]:
            each.wait_for_publish(20)
        client.loop_stop()
        client.disconnect()

    over_restarts(
        tmp_path,
        f"CREATE STREAM s FROM MQTT 'mqtt://127.0.0.1:{port}/t?client=nile' (t DOUBLE, n BIGINT) "
        "TIMESTAMP BY t EVENT ID n",
        send,
        lambda: time.sleep(0.5),
    )
