"""CREATE SINK: rows of a standing query are sent on, each at least once under its number, through outages and kills."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from test_flows import until
from test_sensors_connectors import broker, free_port, server
from test_sensors_databases import cluster, postgres

import nile
from nile.execution.live.outbox import Outbox
from nile.sensors.sinks.making import SINKS
from nile.sql.reading_statements import read_statement
from nile.sql.statement_text import statement_text

__all__ = ["broker", "cluster", "postgres", "server"]
CHILD = Path(__file__).parents[1] / "harness" / "child_sink.py"
NUMBERS = [("t", pa.float64()), ("n", pa.int64())]


def opened(path: Any = None) -> nile.Database:
    """A database with a stream of numbers."""
    db = nile.connect() if path is None else nile.connect(str(path), checkpoint=None)
    if "s" not in db.streams:
        db.stream("s", NUMBERS, time="t")
    return db


def push(db: nile.Database, begin: int, end: int) -> None:
    """These numbers, whose time is over then."""
    db.push("s", {"t": [float(n) for n in range(begin, end)], "n": list(range(begin, end))})
    db.advance(float(end), "s")


def told(db: nile.Database) -> dict[str, Any]:
    """The newest sink."""
    found: list[dict[str, Any]] = db.sql("SELECT * FROM nile_sinks").to_arrow().to_pylist()
    return found[-1]


def sent(db: nile.Database) -> None:
    """Wait until nothing waits to be sent."""
    until(lambda: told(db)["unread"] == 0 and told(db)["state"] == "open")


def pushed_and_sent(db: nile.Database, begin: int, end: int) -> None:
    """Push these, and wait until they have been sent."""
    push(db, begin, end)
    sent(db)


def stuck(db: nile.Database, begin: int, end: int) -> None:
    """Push these, and wait until they cannot be sent."""
    push(db, begin, end)
    until(lambda: told(db)["state"] == "waiting")


def dropped(db: nile.Database, left: int = 0) -> None:
    """Drop a sink that cannot send, and wait until it has given up."""
    db.sql("DROP SINK a")
    until(lambda: len(db.sql("SELECT * FROM nile_sinks").fetchall()) == left)


def over_restarts(
    path: Path, to: str, read: Callable[[], list[dict[str, Any]]], outage: tuple[Callable[[], None], ...] = ()
) -> None:
    """Numbers pushed while a store is open, closed and open again, and while nobody listens, are all there once.

    read: the messages so far, with an id in "at".
    """
    with opened(path) as db:
        db.sql(f"CREATE SINK a TO {to} AS SELECT n FROM s")
        push(db, 0, 500)
        sent(db)
        assert [row["n"] for row in read()] == list(range(500))
    with opened(path) as db:
        push(db, 500, 600)
        sent(db)
        assert [row["n"] for row in read()] == list(range(600)), "what was sent is known to the store"
        if outage:
            stop, start = outage
            stop()
            with pytest.warns(RuntimeWarning, match="sink 'a': needed .* to take rows; got"):
                stuck(db, 600, 700)
            assert told(db)["error"]
    if outage:
        assert len(outage) == 2
        start()
    with opened(path) as db:
        push(db, 700, 800) if outage else push(db, 600, 800)
        sent(db)
        known = {(row["at"], row["n"]) for row in read()}
        assert sorted(n for _, n in known) == list(range(800))
        places = [each.split(":") for each, _ in sorted(known, key=lambda pair: pair[1])]
        assert [int(at) for _, _, at in places] == list(range(800))
        assert len({(name, epoch) for name, epoch, _ in places}) == 1
        db.sql("DROP SINK a")
        until(lambda: db.sql("SELECT * FROM nile_sinks").fetchall() == [])
        push(db, 800, 900)
    assert max(row["n"] for row in read()) == 799


# --- the statement ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "CREATE SINK a TO FILE '/somewhere/x' AS SELECT n FROM s",
        "CREATE OR REPLACE SINK \"order by\" TO KAFKA 'kafka://h:9092/t?key=n&id=at' AS SELECT n, t FROM s WHERE n > 1",
        "CREATE SINK a TO WEBSOCKET 'wss://h/x' AS SELECT n, count(*) AS c FROM s GROUP BY n",
        "COPY (SELECT n FROM s) TO REDIS 'redis://h?stream=x'",
        "DROP SINK a",
        "DROP SINK IF EXISTS a",
    ],
)
def test_a_statement_written_out_reads_the_same(text: str) -> None:
    names = opened()._names
    if "order by" in text:
        with pytest.raises(nile.SqlError, match="plain name"):
            read_statement(text, names)
        text = text.replace('"order by"', "b")
    statement = read_statement(text, names)
    assert read_statement(statement_text(statement), names) == statement


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE SINK a TO NOWHERE 'x' AS SELECT n FROM s", "one of FILE, HTTP, KAFKA, MQTT, POSTGRES, REDIS, STDOUT"),
        ("CREATE SINK a TO KAFKA 'x' AS SELECT n FROM s", "needed kafka://host:9092/topic; got 'x'"),
        ("CREATE SINK a TO KAFKA 'kafka://h/t?key=m' AS SELECT n FROM s", "needed a column in key= \\(n\\); got 'm'"),
        ("CREATE SINK a TO MQTT 'mqtt://h/a/+' AS SELECT n FROM s", "without \\+ and #"),
        ("CREATE SINK a TO MQTT 'mqtt://h/a?qos=0' AS SELECT n FROM s", "qos 1 or 2"),
        ("CREATE SINK a TO REDIS 'redis://h' AS SELECT n FROM s", "redis://host/\\?stream=key"),
        ("CREATE SINK a TO REDIS 'redis://h?stream=x&most=-1' AS SELECT n FROM s", "whole number above 0 in most="),
        ("CREATE SINK a TO POSTGRES 'postgresql://h/d' AS SELECT n FROM s", "\\?table=name"),
        ("CREATE SINK a TO HTTP 'ftp://h' AS SELECT n FROM s", "http:// or https://"),
        ("CREATE SINK a TO HTTP 'http://h?rows=no' AS SELECT n FROM s", "whole number above 0 in rows="),
        ("CREATE SINK a TO STDOUT 'out' AS SELECT n FROM s", "number of a descriptor"),
        ("CREATE SINK a TO WEBSOCKET 'http://h' AS SELECT n FROM s", "ws:// or wss://"),
        ("CREATE SINK a TO FILE 'x?id=n' AS SELECT n FROM s", "needed a name in id= that no column has"),
        ("CREATE SINK a TO FILE 'x' AS n", "SELECT after AS"),
        ("CREATE SINK a TO FILE 'x' AS SELECT m FROM s", "m"),
        ("CREATE SINK a TO FILE 'x' SELECT n FROM s", "AS"),
        ("DROP SINK a", "there is no sink 'a'"),
        ("COPY s TO KAFKA 'x'", "needed kafka://host:9092/topic; got 'x'"),
        ("COPY s TO NOWHERE 'x'", "the path of a file, or one of FILE, HTTP, KAFKA"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_left(text: str, message: str) -> None:
    with opened() as db:
        db.subscribe("SELECT n FROM s", name="b")
        with pytest.raises(nile.NileError, match=message):
            db.sql(text)
        assert db.sql("SELECT * FROM nile_sinks").fetchall() == []
        with pytest.raises(nile.NileError, match="no sink 'b'"):
            db.sql("DROP SINK b")
        with pytest.raises(nile.ConfigError, match="needed a name that no standing query has"):
            db.sql("CREATE OR REPLACE SINK b TO FILE 'x' AS SELECT n FROM s")


def test_every_sink_is_read_as_a_source_and_none_is_said_to_strangers() -> None:
    from nile.sensors.connectors import CONNECTORS

    assert {name.replace("stdout", "stdin") for name in SINKS} == set(CONNECTORS)
    with opened() as db, pytest.raises(nile.SqlError, match="sends nothing anywhere here; got FILE"):
        db.sql("CREATE SINK a TO FILE 'x' AS SELECT n FROM s", files=False)


def test_what_comes_with_the_end_after_a_sink_has_found_nothing_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, empty, go_on = Outbox.peek, threading.Event(), threading.Event()

    def peek(self: Any, *given: Any, **named: Any) -> Any:
        found = real(self, *given, **named)
        if not found and not empty.is_set():
            empty.set()
            assert go_on.wait(20)
        return found

    monkeypatch.setattr(Outbox, "peek", peek)
    with opened() as db:
        db.sql(f"CREATE SINK a TO FILE '{tmp_path / 'out'}' AS SELECT n FROM s")
        assert empty.wait(20)
        push(db, 0, 2)
        standing = db.subscription("a")
        dropping = threading.Thread(target=db.sql, args=("DROP SINK a",))
        dropping.start()
        until(lambda: standing.closed)
        go_on.set()
        dropping.join()
        until(lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_text() == '{"n": 0}\n{"n": 1}\n')


def test_a_sink_alone_reads_its_query_and_can_be_replaced(tmp_path: Path) -> None:
    with opened() as db:
        db.sql(f"CREATE SINK a TO FILE '{tmp_path / '1'}' AS SELECT n FROM s")
        assert db.sql("SHOW QUERIES").to_arrow().to_pylist()[0]["into"] == f"file {tmp_path / '1'}"
        for read in (lambda: db.subscription("a").poll(), lambda: db.subscription("a").peek(0, 10)):
            with pytest.raises(nile.ConfigError, match="whose rows go to a sink"):
                read()
        push(db, 0, 2)
        with pytest.raises(nile.ConfigError, match="needed a name that no standing query has"):
            db.sql(f"CREATE SINK a TO FILE '{tmp_path / '2'}' AS SELECT n FROM s")
        db.sql(f"CREATE OR REPLACE SINK a TO FILE '{tmp_path / '2'}' AS SELECT n * 10 AS n FROM s")
        push(db, 2, 4)
        sent(db)
        until(
            lambda: (tmp_path / "1").read_text() == '{"n": 0}\n{"n": 1}\n'
        )  # what was left is sent beside the new one
        assert (tmp_path / "2").read_text() == '{"n": 20}\n{"n": 30}\n'
        db.sql("UPDATE nile_queries SET active = false WHERE name = 'a'")
        push(db, 4, 5)
        time.sleep(0.1)
        assert (tmp_path / "2").read_text().count("\n") == 2
        db.sql("DROP QUERY a")  # which emits what waits
        until(lambda: (tmp_path / "2").read_text().count("\n") == 3)


# --- files and descriptors --------------------------------------------------------------------------------------------


def test_a_file_over_restarts(tmp_path: Path) -> None:
    out = tmp_path / "out"
    over_restarts(
        tmp_path / "store", f"FILE '{out}?id=at'", lambda: list(map(json.loads, out.read_text().split("\n")[:-1]))
    )


def test_values_of_all_types_and_a_torn_line(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text('{"n": 1, "torn')
    with nile.connect() as db:
        kinds = [("ts", pa.timestamp("ns")), ("x", pa.float64()), ("l", pa.list_(pa.int64())), ("b", pa.binary())]
        db.stream("s", kinds, time="ts")
        db.sql(f"CREATE SINK a TO FILE '{out}' AS SELECT * FROM s")
        times, numbers = [2, 1_500_000_000], [0.5, float("nan")]
        db.push("s", {"ts": times, "x": numbers, "l": [None, [1, None]], "b": [None, b"\n"]})
        db.advance(9, "s")
        sent(db)
    torn, *lines = out.read_text().split("\n")
    assert torn == '{"n": 1, "torn'
    assert [json.loads(line) for line in lines[:-1]] == [
        {"ts": "1970-01-01 00:00:00.000000002", "x": 0.5, "l": None, "b": None},
        {"ts": "1970-01-01 00:00:01.5", "x": None, "l": [1, None], "b": "Cg=="},
    ]


def test_a_column_of_text_alone_is_the_message(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with nile.connect() as db:
        db.stream("s", [("ts", pa.float64()), ("k", pa.string())], time="ts")
        db.sql(f"CREATE SINK a TO FILE '{out}' AS SELECT k FROM s")
        db.push("s", {"ts": [1.0, 2.0], "k": ["plain", None]})
        db.advance(9, "s")
        sent(db)
    assert out.read_text() == "plain\n\n"


def test_a_full_disk_holds_rows_and_leaves_no_piece_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, real, full = tmp_path / "out", os.write, threading.Event()

    def write(file: int, data: Any) -> int:
        if full.is_set() and os.fstat(file).st_ino == out.stat().st_ino:
            if len(data) <= 5:
                raise OSError(28, "No space left on device")
            return real(file, data[:5])
        return real(file, data)

    monkeypatch.setattr(os, "write", write)
    with opened() as db:
        db.sql(f"CREATE SINK a TO FILE '{out}' AS SELECT n FROM s")
        push(db, 0, 1)
        sent(db)
        full.set()
        with pytest.warns(RuntimeWarning, match="No space left"):
            stuck(db, 1, 3)
        assert out.read_text() == '{"n": 0}\n'
        full.clear()
        sent(db)
    assert out.read_text() == '{"n": 0}\n{"n": 1}\n{"n": 2}\n'


def test_pushes_wait_while_a_database_in_memory_cannot_send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nile.execution.live.live._UNSENT", 100)
    out = tmp_path / "not there" / "out"
    with opened() as db, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        db.sql(f"CREATE SINK a TO FILE '{out}' AS SELECT n FROM s")
        pushed = threading.Thread(target=lambda: [push(db, n, n + 50) for n in range(0, 500, 50)], daemon=True)
        pushed.start()
        until(lambda: told(db)["state"] == "waiting")
        time.sleep(0.2)
        assert pushed.is_alive()
        assert told(db)["unread"] in (100, 150)
        out.parent.mkdir()
        pushed.join(60)
        assert not pushed.is_alive()
        sent(db)
    assert out.read_text().count("\n") == 500


def test_rows_of_one_answer_are_sent_once(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with opened() as db:
        push(db, 0, 10_000)
        told = db.sql(f"COPY (SELECT n FROM s WHERE n % 2 = 0) TO FILE '{out}?id=at'").fetchall()
        assert told == [(f"5,000 rows sent to {out}?id=at",)]
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        assert [row["n"] for row in rows] == list(range(0, 10_000, 2))
        assert [row["at"].split(":")[2] for row in rows] == list(map(str, range(5_000)))
        with pytest.raises(nile.SourceError, match=r"all rows; got FileNotFoundError: .* after 0 rows"):
            db.sql(f"COPY s TO FILE '{tmp_path / 'not there' / 'out'}'")
        with posts(lambda number: 200 if number < 3 else 500) as (port, got):
            with pytest.raises(nile.SourceError, match=r"HTTP Error 500.* after 300 rows"):
                db.sql(f"COPY s TO HTTP 'http://127.0.0.1:{port}/?rows=100'")
            assert sum(body.count(b"\n") for *_, body in got) == 300


def test_what_is_left_is_sent_when_a_database_is_closed_or_told_of(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with opened() as db:
        db.sql(f"CREATE SINK a TO FILE '{out}' AS SELECT n FROM s")
        db.push("s", {"t": [1.0, 1.0], "n": [1, 2]})  # they wait for their turn
    assert out.read_text() == '{"n": 1}\n{"n": 2}\n'
    db = opened()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        db.sql(f"CREATE SINK a TO FILE '{tmp_path / 'not there' / 'out'}' AS SELECT n FROM s")
        db.push("s", {"t": [1.0, 1.0], "n": [1, 2]})
        db.close()
    assert ["they wait" in str(each.message) for each in heard] == [True, False]
    assert "the last 2 rows" in str(heard[1].message)


def test_lines_to_a_descriptor_whose_reader_goes() -> None:
    end, begin = os.pipe()
    with opened() as db:
        db.sql(f"CREATE SINK a TO STDOUT '{begin}' AS SELECT n FROM s")
        push(db, 0, 3)
        sent(db)
        assert os.read(end, 1000) == b'{"n": 0}\n{"n": 1}\n{"n": 2}\n'
        os.close(end)
        with pytest.warns(RuntimeWarning, match="Broken ?[pP]ipe"):
            stuck(db, 3, 4)
        with pytest.warns(RuntimeWarning, match="the last 1 rows"):
            dropped(db)
    os.close(begin)


# --- HTTP and websockets ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def posts(answers: Callable[[int], int]) -> Iterator[tuple[int, list[tuple[str, str, bytes]]]]:
    """(port, what was posted: content type, authorization and body) of a server; answers: by number, the status."""
    got: list[tuple[str, str, bytes]] = []
    asked = iter(range(1 << 30))

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = answers(next(asked))
            if status == 200:
                got.append((self.headers["Content-Type"], self.headers.get("Authorization", ""), body))
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            raise AssertionError("a redirection was followed")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        try:
            yield httpd.server_address[1], got
        finally:
            httpd.shutdown()


def test_a_post_a_row_and_many_in_one() -> None:
    with posts(lambda number: (503, 302, 200)[min(number, 2)]) as (port, got), opened() as db:
        db.sql(f"CREATE SINK a TO HTTP 'http://me:it@127.0.0.1:{port}/x?y=1' AS SELECT n FROM s")
        with pytest.warns(RuntimeWarning, match="503"):
            pushed_and_sent(db, 0, 3)
        assert got == [("application/json", "Basic bWU6aXQ=", b'{"n": %d}' % n) for n in range(3)]
        got.clear()
        db.sql(f"CREATE OR REPLACE SINK a TO HTTP 'http://127.0.0.1:{port}/?rows=1000' AS SELECT n FROM s")
        push(db, 3, 2503)
        sent(db)
        assert {kind for kind, _, _ in got} == {"application/x-ndjson"}
        assert [json.loads(line)["n"] for *_, body in got for line in body.splitlines()] == list(range(3, 2503))
        assert len(got) <= 6


def test_http_over_restarts(tmp_path: Path) -> None:
    with posts(lambda _: 200) as (port, got):
        over_restarts(
            tmp_path / "store", f"HTTP 'http://127.0.0.1:{port}/?rows=100&id=at'",
            lambda: [json.loads(line) for *_, body in got for line in body.splitlines()],
        )  # fmt: skip


@contextlib.contextmanager
def listening(port: int, got: list[Any], talks: bool = False) -> Iterator[None]:
    """A websocket server that keeps what it is sent.  talks: it says something for each message."""
    from websockets.sync.server import serve

    def heard(line: Any) -> None:
        with contextlib.suppress(Exception):
            for message in line:
                got.append(message)
                if talks:
                    line.send("x" * 1000)

    with serve(heard, "127.0.0.1", port) as up:
        threading.Thread(target=up.serve_forever, daemon=True).start()
        yield


def test_a_websocket_over_restarts_and_one_that_talks_back(tmp_path: Path) -> None:
    got: list[Any] = []
    port = free_port()
    with listening(port, got, talks=True):
        to = f"WEBSOCKET 'ws://127.0.0.1:{port}/x?id=at'"
        over_restarts(tmp_path / "store", to, lambda: list(map(json.loads, got)))
        with nile.connect() as db:
            db.stream("s", [("ts", pa.float64()), ("b", pa.binary())], time="ts")
            db.sql(f"CREATE SINK a TO WEBSOCKET 'ws://127.0.0.1:{port}/' AS SELECT b FROM s")
            db.push("s", {"ts": [1.0], "b": [b"\x00\xff"]})
            db.advance(9, "s")
            sent(db)
    assert got[-1] == b"\x00\xff"


def test_a_websocket_that_is_down_for_a_while() -> None:
    got: list[Any] = []
    port = free_port()
    with opened() as db:
        with listening(port, got):
            db.sql(f"CREATE SINK a TO WEBSOCKET 'ws://127.0.0.1:{port}/' AS SELECT n FROM s")
            push(db, 0, 10)
            sent(db)
        with pytest.warns(RuntimeWarning, match="to take rows"):
            stuck(db, 10, 20)
        with listening(port, got):
            sent(db)
    assert sorted({json.loads(each)["n"] for each in got}) == list(range(20))


# --- servers ----------------------------------------------------------------------------------------------------------


def entries(client: Any) -> list[dict[str, Any]]:
    return [{"n": json.loads(entry[b"n"]), "at": entry[b"at"].decode()} for _, entry in client.xrange("out")]


def test_redis(server: Any, tmp_path: Path) -> None:
    port, client, start, stop = server
    to = f"REDIS 'redis://127.0.0.1:{port}?stream=out&id=at'"
    over_restarts(tmp_path / "store", to, lambda: entries(client), (stop, start))
    with nile.connect() as db:
        db.stream("s", [("ts", pa.float64()), ("k", pa.string()), ("l", pa.list_(pa.int64()))], time="ts")
        db.sql(f"CREATE SINK a TO REDIS 'redis://127.0.0.1:{port}?stream=two&most=100' AS SELECT k, l FROM s")
        db.push("s", {"ts": [1.0, 2.0], "k": ["it's", None], "l": [[1, None], None]})
        db.advance(9, "s")
        sent(db)
    assert [entry for _, entry in client.xrange("two")] == [{b"k": b"it's", b"l": b"[1, null]"}, {b"k": b"null"}]


@pytest.mark.slow  # it waits for seconds in which nothing comes
def test_kafka(cluster: Any, tmp_path: Path) -> None:
    import confluent_kafka

    address, _ = cluster
    got: list[dict[str, Any]] = []
    client = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "test", "auto.offset.reset": "earliest", "enable.auto.commit": False,
         "topic.metadata.refresh.interval.ms": 500}
    )  # fmt: skip
    client.subscribe(["out"])

    def read() -> list[dict[str, Any]]:
        quiet = time.monotonic() + (5 if got else 30)  # the topic is not there before the first row is
        while time.monotonic() < quiet:
            for message in client.consume(1000, 0.2):
                if message.error() is None:
                    got.append({**json.loads(message.value()), "key": message.key()})
                    quiet = time.monotonic() + 0.5
        assert all(row["key"] == str(row["n"]).encode() for row in got)
        return sorted(got, key=lambda row: int(row["n"]))

    over_restarts(tmp_path / "store", f"KAFKA 'kafka://{address}/out?key=n&id=at'", read)
    client.close()


def test_postgres_has_each_row_once(postgres: Any, tmp_path: Path) -> None:
    address, connect, start, stop = postgres
    with connect() as client:
        client.execute('CREATE TABLE "My out" (n int8, at text UNIQUE, other int DEFAULT 7)')

    def read() -> list[dict[str, Any]]:
        with connect() as client:
            found = client.execute('SELECT n, at FROM "My out" ORDER BY n').fetchall()
        return [{"n": n, "at": at} for n, at in found]

    to = f"POSTGRES '{address}?table=%22My%20out%22&id=at'"
    over_restarts(tmp_path / "store", to, read, (stop, start))
    assert [row["n"] for row in read()] == list(range(800))


def test_postgres_takes_all_types_and_says_what_does_not_fit(postgres: Any) -> None:
    address, connect, _, _ = postgres
    with connect() as client:
        client.execute("CREATE TABLE out (ts timestamp, x float8, l int8[], b bytea, k text)")
        client.execute("CREATE TABLE narrow (k int)")
    with nile.connect() as db:
        kinds = [("ts", pa.timestamp("ns")), ("x", pa.float64()), ("l", pa.list_(pa.int64())), ("b", pa.binary()),
                 ("k", pa.string())]  # fmt: skip
        db.stream("s", kinds, time="ts")
        db.sql(f"CREATE SINK b TO POSTGRES '{address}?table=out' AS SELECT * FROM s")
        db.sql(f"CREATE SINK a TO POSTGRES '{address}?table=narrow' AS SELECT k FROM s")
        rows = {"ts": [1_500_000_000], "x": [float("nan")], "l": [[1, None]], "b": [b"\x00"], "k": ["a"]}

        def pushed() -> None:
            db.push("s", rows)
            db.advance(9, "s")
            until(lambda: sorted(db.sql("SELECT state FROM nile_sinks").fetchall()) == [("open",), ("waiting",)])

        with pytest.warns(RuntimeWarning, match="invalid input syntax for type integer"):
            pushed()
        with pytest.warns(RuntimeWarning, match="the last 1 rows"):
            dropped(db, left=1)
    with connect() as client:
        found = client.execute("SELECT ts::text, x::text, l, b, k FROM out").fetchall()
    assert found == [("1970-01-01 00:00:01.5", "NaN", [1, None], b"\x00", "a")]


def test_mqtt(broker: Any, tmp_path: Path) -> None:
    from paho.mqtt.client import CallbackAPIVersion, Client

    port, start, stop = broker
    got: list[dict[str, Any]] = []
    subscribed = threading.Event()
    client = Client(CallbackAPIVersion.VERSION2, client_id="test", clean_session=False)
    client.reconnect_delay_set(1, 1)
    client.on_message = lambda _client, _data, message: got.append(json.loads(message.payload))
    client.on_connect = lambda *_: client.subscribe("out/a", 1)
    client.on_subscribe = lambda *_: subscribed.set()
    client.connect("127.0.0.1", port)
    client.loop_start()
    assert subscribed.wait(10)

    def restarted() -> None:
        subscribed.clear()
        start()
        assert subscribed.wait(20)

    def read() -> list[dict[str, Any]]:
        time.sleep(0.5)
        return list(got)

    over_restarts(tmp_path / "store", f"MQTT 'mqtt://127.0.0.1:{port}/out/a?id=at'", read, (stop, restarted))
    client.loop_stop()
    client.disconnect()


# --- kills ------------------------------------------------------------------------------------------------------------


def killed(store: Path, using: str, address: str, kills: int) -> int:
    """Kill a process that sends so many times; how many numbers were committed at last."""
    draw, committed = random.Random(kills), 0
    process = subprocess.Popen(
        [sys.executable, str(CHILD), str(store), using, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    lines: queue.Queue[str] = queue.Queue()
    out = process.stdout
    assert out is not None
    assert process.stdin is not None
    threading.Thread(target=lambda: [lines.put(line.strip()) for line in out], daemon=True).start()
    try:
        for last in [False] * kills + [True]:
            process.stdin.write("last\n" if last else "again\n")
            process.stdin.flush()
            number = int(lines.get(timeout=120))
            if last:
                assert lines.get(timeout=120) == "sent"
            else:
                for _ in range(draw.randrange(1, 6)):
                    committed = int(lines.get(timeout=120))
                time.sleep(draw.random() * 0.05)
            os.kill(number, signal.SIGKILL)
            while (line := lines.get(timeout=120)) != "over":
                committed = max(committed, int(line))
    finally:
        process.kill()
        process.wait()
    return committed


def numbers_of(rows: list[tuple[str, int]], committed: int) -> None:
    """That each number that was committed is there, always under its own id; more may be, which a kill has undone."""
    by_id: dict[str, int] = {}
    for at, n in rows:
        assert by_id.setdefault(at, n) == n
    got = sorted(set(by_id.values()))
    assert len(got) == len(by_id), "no number has two ids"
    assert got[: (committed + 2) // 3] == list(range(0, committed, 3))


@pytest.mark.parametrize("kills", [pytest.param(1, id="short"), pytest.param(50, marks=pytest.mark.long, id="long")])
def test_rows_through_kills_of_the_sender_to_a_file(tmp_path: Path, kills: int) -> None:
    out = tmp_path / "out"
    committed = killed(tmp_path / "store", "FILE", f"{out}?id=at", kills)
    rows = []
    for line in out.read_text().split("\n"):
        with contextlib.suppress(ValueError):  # torn by a kill, and sent again
            row = json.loads(line)
            rows.append((row["at"], row["n"]))
    numbers_of(rows, committed)


@pytest.mark.parametrize("kills", [pytest.param(50, marks=pytest.mark.long, id="long")])
def test_rows_through_kills_of_the_sender_to_redis(server: Any, tmp_path: Path, kills: int) -> None:
    port, client, _, _ = server
    committed = killed(tmp_path / "store", "REDIS", f"redis://127.0.0.1:{port}?stream=out&id=at", kills)
    numbers_of([(row["at"], row["n"]) for row in entries(client)], committed)


@pytest.mark.parametrize("kills", [pytest.param(50, marks=pytest.mark.long, id="long")])
def test_rows_through_kills_of_the_sender_are_once_in_postgres(postgres: Any, tmp_path: Path, kills: int) -> None:
    address, connect, _, _ = postgres
    with connect() as client:
        client.execute("CREATE TABLE out (n int8, at text UNIQUE)")
    committed = killed(tmp_path / "store", "POSTGRES", f"{address}?table=out&id=at", kills)
    with connect() as client:
        rows = client.execute("SELECT at, n FROM out").fetchall()
    numbers_of(rows, committed)
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize("kills", [pytest.param(50, marks=pytest.mark.long, id="long")])
def test_rows_through_kills_of_the_sender_to_kafka(cluster: Any, tmp_path: Path, kills: int) -> None:
    import confluent_kafka

    address, _ = cluster
    committed = killed(tmp_path / "store", "KAFKA", f"kafka://{address}/out?id=at", kills)
    client = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "test", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    client.subscribe(["out"])
    rows: list[tuple[str, int]] = []
    quiet = time.monotonic() + 10
    while time.monotonic() < quiet:
        for message in client.consume(1000, 0.2):
            if message.error() is None:
                row = json.loads(message.value())
                rows.append((row["at"], row["n"]))
                quiet = time.monotonic() + 2
    client.close()
    numbers_of(rows, committed)


def test_bytes_of_a_sink_are_read_back(tmp_path: Path) -> None:
    out = tmp_path / "out"
    kinds = [("ts", pa.float64()), ("b", pa.binary()), ("many", pa.list_(pa.binary()))]
    given = {"ts": [1.0, 2.0, 3.0], "b": [b"\x00\xff", None, b""], "many": [[b"a", None], [], None]}
    with nile.connect() as db:
        db.stream("s", kinds, time="ts")
        db.sql(f"CREATE SINK a TO FILE '{out}' AS SELECT * FROM s")
        db.push("s", given)
        db.advance(9, "s")
        sent(db)
        with out.open("a") as more:
            more.write('[4, "AP8=", ["YQ=="]]\n{"ts": 5, "b": "no base64!"}\n')
        db.sql(f"CREATE STREAM back FROM FILE '{out}' (ts DOUBLE, b BLOB, many BLOB[]) TIMESTAMP BY ts")
        assert db.sql("SELECT * FROM back").to_arrow().to_pydict() == {
            "ts": [1.0, 2.0, 3.0, 4.0],
            "b": [b"\x00\xff", None, b"", b"\x00\xff"],
            "many": [[b"a", None], [], None, [b"a"]],
        }
        assert db.accounting("back").rejected == 1
        (reason,) = db.accounting("back").reasons
        assert "needed binary for 'b'" in reason
