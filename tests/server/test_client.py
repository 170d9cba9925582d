"""A database of a server answers as the same database does here; who resumes loses nothing and reads nothing twice."""

from __future__ import annotations

import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from served import TOKEN, Served, served

import nile
from nile.summaries.errors import (
    ConfigError,
    NotYet,
    SourceError,
    SqlError,
    SumOverflow,
    TimestampOrderError,
    UnknownStream,
)

STREAM = [("ts", pa.float64()), ("k", pa.string()), ("x", pa.int64())]


def rows(begin: int, count: int) -> dict[str, list[Any]]:
    at = range(begin, begin + count)
    return {"ts": [float(i) for i in at], "k": [f"k{i % 7}" for i in at], "x": [None if i % 5 == 0 else i for i in at]}


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[nile.Database, nile.Database]]:
    """The database here, and the same through its server."""
    db = nile.connect(tmp_path, checkpoint=None)
    with served(db, str(tmp_path)) as up, nile.connect(up.url, token=TOKEN) as far:
        yield db, far


STATEMENTS = [
    "SELECT * FROM s",
    "SELECT k, count(*) AS n, sum(x) AS total, avg(x) AS mean FROM s GROUP BY k ORDER BY k",
    "SELECT a.k, b.x FROM s a, t b WHERE a.k = b.k AND a.x > 50 WINDOW 20",
    "SELECT ts, x FROM s WHERE x IS NULL",
    "SELECT count(*) AS n FROM s WHERE k = 'none'",
    "SELECT a.k FROM s a, t b WHERE a.k = b.k WITH PREFERENCE weighted a.k BUDGET 30 % WINDOW 20",
    "SELECT k, x FROM s WITH PREFERENCE desc k BUDGET 50 %",
    "SHOW STREAMS",
    "DESCRIBE s",
    "SELECT name, applied FROM nile_sources ORDER BY name",
    "SELECT CAST(ts AS INT) AS i, DATE '2020-01-01' AS d, 2 > 1 AS b, x / 3.0 AS r FROM s WHERE x < 9",
]


@pytest.mark.parametrize("text", STATEMENTS)
def test_statements_give_the_same_rows_and_say_the_same_of_them(both: Any, text: str) -> None:
    db, far = both
    for name in "st":
        far.stream(name, STREAM, time="ts")
        far.push(name, rows(0, 200))
    here, there = db.sql(text, costs=None), far.sql(text)
    assert there.schema == here.schema
    assert there.to_arrow().to_pylist() == here.to_arrow().to_pylist()
    assert (there.estimate, there.coverage, there.worth()) == (here.estimate, here.coverage, here.worth())
    assert there.to_arrow().equals(far.sql(text).to_arrow())
    assert [batch.num_rows for batch in there.batches()] == [batch.num_rows for batch in there.batches()]


def test_parameters_options_and_budgets_arrive(both: Any) -> None:
    db, far = both
    far.stream("s", STREAM, time="ts")
    far.push("s", rows(0, 100))
    assert far.sql("SELECT k FROM s WHERE x > ? AND k = ?", [90, "k0"]).fetchall() == [("k0",), ("k0",)]
    assert far.sql("SELECT k FROM s WHERE x = $x", {"x": 7}).fetchall() == [("k0",)]
    found = far.sql("SELECT k FROM s WITH PREFERENCE desc k", budget=nile.Budget(fraction=0.5)).to_arrow()
    assert found == db.sql("SELECT k FROM s WITH PREFERENCE desc k", budget=nile.Budget(fraction=0.5)).to_arrow()
    with pytest.raises(ConfigError, match="text, a number or a time"):
        far.sql("SELECT k FROM s WHERE x = ?", [object()])


def test_statements_that_act_say_what_they_did(both: Any) -> None:
    _, far = both
    far.stream("s", STREAM, time="ts")
    assert "summary 'm' on s" in str(
        far.sql("CREATE SUMMARY m ON s (k) WITH GRANULARITY '1 h' AND COLLAPSE (4, 2)").message
    )
    assert far.sql("EXPLAIN SELECT k FROM s").fetchall()[0][0].startswith("project")


def test_what_is_wrong_is_raised_as_the_same_class(both: Any) -> None:
    db, far = both
    far.stream("s", STREAM, time="ts")
    far.push("s", {"ts": [5.0] * 3, "k": ["a"] * 3, "x": [2**62] * 3})
    for call, kind in (
        (lambda one: one.sql("SELECT nix FROM s"), SqlError),
        (lambda one: one.sql("SELECT sum(x) AS x FROM s").to_arrow(), SumOverflow),
        (lambda one: one.push("s", {"ts": [1.0], "k": ["a"], "x": [1]}), TimestampOrderError),
        (lambda one: one.accounting("none"), UnknownStream),
        (lambda one: one.subscription("none"), UnknownStream),
        (lambda one: one.subscribe("SELECT k FROM s WITH PREFERENCE desc k BUDGET 10 % LIMIT 3", name="q"), NotYet),
    ):
        with pytest.raises(kind) as here:
            call(db)
        with pytest.raises(kind) as there:
            call(far)
        assert str(there.value) == str(here.value)


def test_pushes_of_every_kind_of_rows_and_where_the_source_is(both: Any) -> None:
    db, far = both
    far.stream("s", pa.schema(STREAM), time="ts", lateness="2 s")
    table = pa.table(rows(0, 10))
    assert far.push("s", table, offset={"at": 10}) == 8
    far.push("s", table.to_pandas().assign(ts=lambda frame: frame.ts + 10, x=1))
    far.push("s", iter(pa.table(rows(20, 30)).to_batches(max_chunksize=7)))
    far.push("s", [])
    far.advance(1000.0, "s")
    assert far.offset("s") == db.offset("s") == {"at": 10}
    assert far.accounting("s") == db.accounting("s")
    assert far.accounting("s").applied == 50
    assert far.schema("s") == db.schema("s")
    assert (far.streams, far.time_column("s")) == (("s",), "ts")
    assert far.checkpoint() > 0


def test_a_standing_query_is_read_as_here(both: Any) -> None:
    db, far = both
    far.stream("s", STREAM, time="ts")
    query = far.subscribe("SELECT k, x FROM s WHERE x > 3", name="q")
    far.push("s", rows(0, 50))
    first = query.poll_numbered()
    far.push("s", rows(50, 50))
    far.advance(1000.0)
    found = [*first, *query.poll_numbered()]
    assert query.poll() == []
    wanted = db.sql("SELECT k, x FROM s WHERE x > 3").to_arrow().to_pylist()
    assert [row for _, batch in found for row in batch.to_pylist()] == wanted
    assert [at for at, _ in found] == [sum(batch.num_rows for _, batch in found[:i]) for i in range(len(found))]
    again = far.subscription("q")
    again.ordinal = 5
    assert [row for batch in again for row in batch.to_pylist()] == wanted[5:]
    assert far.unread == {"q": len(wanted)}
    query.close()
    assert far.subscriptions == ()


def test_follow_goes_on_when_the_server_comes_back(tmp_path: Path) -> None:
    found: list[int] = []

    def follow(query: Any) -> None:
        for batch in query.follow():
            found.extend(map(int, batch["ts"].to_pylist()))

    port = 0
    for part in range(3):
        with served(nile.connect(tmp_path), port=port) as up, nile.connect(up.url, token=TOKEN) as far:
            port = up.port
            if part == 0:
                far.stream("s", STREAM, time="ts")
                reading = threading.Thread(target=follow, args=(far.subscribe("SELECT ts FROM s", name="q"),))
                reading.start()
            far.push("s", rows(100 * part, 100))
            if part == 2:
                far.advance(1000.0)
                up.wait_until(lambda: len(found) == 300, 30)
                far.subscription("q").close()
                reading.join(30)
    assert found == list(range(300))


def test_an_address_that_is_none_and_a_token_that_is_wrong_are_told(both: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, far = both
    monkeypatch.delenv("NILE_TOKEN", raising=False)
    url = far._server.place.removeprefix("server ")
    with pytest.raises(ConfigError, match="needed the server's token"):
        nile.connect(url, token="wrong")
    with pytest.raises(ConfigError, match="NILE_TOKEN"):
        nile.connect(url)
    with pytest.raises(ConfigError, match="HOST:PORT"):
        nile.connect("http://localhost/path", token="x")
    with pytest.raises(SourceError, match="needed one that answers"):
        nile.connect("http://127.0.0.1:9", token="x")
    with pytest.raises(ConfigError, match="leave them out"):
        nile.connect(url, token=TOKEN, memory="1GB")
    with pytest.raises(ConfigError, match="address of a server"):
        nile.connect(token=TOKEN)
    monkeypatch.setenv("NILE_TOKEN", TOKEN)
    assert nile.connect(url).streams == ()


def test_the_shell_asks_a_server(both: Any) -> None:
    _, far = both
    far.stream("s", STREAM, time="ts")
    far.push("s", rows(0, 3))
    url = far._server.place.removeprefix("server ")
    run = subprocess.run(
        [sys.executable, "-m", "nile.experiments.cli", "sql", url, "--format", "csv", "SELECT k, x FROM s"],
        capture_output=True, text=True, env={**os.environ, "NILE_TOKEN": TOKEN}, check=True,
    )  # fmt: skip
    assert run.stdout.splitlines()[:3] == ["k,x", "k0,", "k1,1"]


def killed_while_pushed_to(folder: Path, kills: int, seed: int) -> None:
    """A source that goes on from the offset, a reader that resumes, and a server that is killed again and again."""
    command = [sys.executable, "-m", "nile.experiments.cli", "serve", str(folder / "store"), "--checkpoint", "50 ms"]
    token, port = folder / "token", 0
    total, found = 40 * (kills + 1), []
    query: Any = None
    for life in range(kills + 1):
        with (folder / f"told{life}").open("w") as told:
            running = subprocess.Popen(
                [*command, "--port", str(port), "--token-file", str(token)],
                stdout=subprocess.PIPE,
                stderr=told,
                text=True,
            )
        assert running.stdout is not None
        try:
            url = re.search(r"http://\S+:(\d+)", running.stdout.readline())
            assert url is not None, (life, (folder / f"told{life}").read_text())
            port = int(url[1])
            far = nile.connect(url[0].rstrip(","), token=token.read_text().strip())
            far.stream("s", STREAM, time="ts")
            made: Any = far.subscribe("SELECT ts FROM s", name="q")
            if query is not None:
                assert made.epoch == query.epoch
                made.ordinal = query.ordinal
            query = made
            end = 40 * (life + 1)
            at = far.offset("s") or 0
            stop = threading.Timer(0.05 + (seed * 7 + life * 13) % 40 / 100, running.send_signal, [signal.SIGKILL])
            if life < kills:
                stop.start()
            try:
                while at < total if life == kills else True:
                    step = min(10, total - at) or 1
                    if at < total:
                        far.push("s", rows(at, step), offset=at + step)
                        at += step
                    found += [int(t) for batch in query.poll() for t in batch["ts"].to_pylist()]
                    time.sleep(0.002 if at < end else 0.02)
                far.advance(1e9)
                found += [int(t) for batch in query.poll() for t in batch["ts"].to_pylist()]
            except (SourceError, OSError):
                assert life < kills
        finally:
            running.kill()
            running.wait()
    assert found == list(range(total))


class Cutting:
    """What stands between a client and a server, and ends each answer after so many bytes."""

    def __init__(self, port: int) -> None:
        self.left: int | None = None
        self._to = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                threading.Thread(target=self._pass, args=(near, far, False), daemon=True).start()
                threading.Thread(target=self._pass, args=(far, near, True), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        passed = 0
        with suppress(OSError):
            while data := source.recv(65_536):
                if answers and self.left is not None:
                    data = data[: self.left - passed]
                passed += len(data)
                sink.sendall(data)
                if answers and passed == self.left:
                    break
            for end in (source, sink):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.close()


def test_answers_cut_off_anywhere_are_whole_or_told_and_no_output_is_lost() -> None:
    with served(nile.connect()) as up, closing(Cutting(up.port)) as between:
        far: Any = nile.connect(between.url, token=TOKEN)
        far.stream("s", STREAM, time="ts")
        query = far.subscribe("SELECT ts, x FROM s", name="q")
        for begin in range(0, 30, 10):
            far.push("s", rows(begin, 10))
        far.advance(100.0)
        asked: dict[str, Any] = {
            "poll": lambda: pa.Table.from_batches(query.poll(), query.schema),
            "sql": lambda: far.sql("SELECT ts, x FROM s").to_arrow(),
        }
        for ask in asked.values():
            between.left, query.ordinal, cuts, ends = None, 0, 0, 0
            whole = ask()
            assert whole["ts"].to_pylist() == [float(i) for i in range(30)]
            for between.left in itertools.count(1, 17):
                query.ordinal = 0
                far._server.close()  # no connection is kept from before
                try:
                    assert ask() == whole
                    ends += 1
                except SourceError:
                    cuts += 1
                    assert (query.ordinal, query.lost, query.closed) == (0, 0, False)
                if ends > 5:
                    break
            assert cuts > 30
        between.left = None
        far.close()


@pytest.mark.slow
def test_killed_at_any_moment_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    killed_while_pushed_to(tmp_path, 3, 1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_killed_two_hundred_times(tmp_path: Path, seed: int) -> None:
    killed_while_pushed_to(tmp_path, 20, seed)


def test_many_readers_of_which_some_are_slow(tmp_path: Path) -> None:
    """50 readers, five of whom read nothing for a while; all get everything, pushes stay quick."""
    db = nile.connect(tmp_path, checkpoint=None)
    db.stream("s", STREAM, time="ts")
    with served(db, streams=100, rate=10_000.0, burst=10_000) as up, nile.connect(up.url, token=TOKEN) as far:
        far.subscribe("SELECT ts FROM s", name="q")
        counts = [0] * 50

        def read(which: int) -> None:
            for batch in far.subscription("q").follow():
                counts[which] += batch.num_rows
                if which < 5 and counts[which] < 2_000:
                    time.sleep(0.3)
                if counts[which] >= 9_999:
                    return

        readers = [threading.Thread(target=read, args=(which,)) for which in range(50)]
        for reader in readers:
            reader.start()
        for begin in range(0, 10_000, 500):
            far.push("s", rows(begin, 500))
        for reader in readers:
            reader.join(60)
        assert counts == [9_999] * 50
        up.wait_until(lambda: not up.server.app.open)
    assert isinstance(up, Served)


def test_time_moves_on_for_relations_too(both: Any) -> None:
    db, far = both
    far.sql("CREATE STREAM s (ts DOUBLE, k BIGINT) TIMESTAMP BY ts")
    far.sql("CREATE RELATION g (k BIGINT)")
    far.advance(9)
    for each in (db, far):
        with pytest.raises(TimestampOrderError, match="needed an instant that can still come"):
            each.sql("INSERT INTO g VALUES (1) AT 7").fetchall()
    far.advance(12, "s")
    with pytest.raises(TimestampOrderError, match="before 00:00:12"):
        far.push("s", {"ts": [11.0], "k": [1]})
    with pytest.raises(UnknownStream):
        far.advance(12, "t")


def test_a_snapshot_can_be_polled(both: Any) -> None:
    db, far = both
    far.stream("s", STREAM, time="ts")
    state = far.subscribe("SELECT k, count(*) AS n FROM s GROUP BY k ORDER BY k LIMIT 2", name="q", emit="snapshot")
    assert state.poll() == []
    far.push("s", rows(0, 20))
    far.advance(30)
    for each in (state, far.subscription("q")):
        told = [row for batch in each.poll() for row in batch.to_pylist()]
        assert told == [row for batch in db.subscription("q").poll() for row in batch.to_pylist()]
        assert told == [{"k": "k0", "n": 3}, {"k": "k1", "n": 3}]
        assert [row for batch in each for row in batch.to_pylist()] == told
    with pytest.raises(ConfigError, match="call poll"):
        state.poll_numbered()


def test_files_are_the_servers(both: Any) -> None:
    with pytest.raises(ConfigError, match="got one of a server, which reads its own files"):
        both[1].register("s", "sales.parquet", time="ts")
