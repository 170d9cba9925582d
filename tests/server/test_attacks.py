"""What strangers send is refused and counted, and tells them nothing.  SECURITY.md has the table of these."""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import os
import random
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
import websockets.sync.client as ws
from served import TOKEN, Served, served
from thinning import thinned
from websockets.exceptions import InvalidStatus

import nile
from nile.answers.result import Result
from nile.server import serve
from nile.server.client_errors import JsonLines
from nile.server.forms import ARROW

SECRET_PLACE = "place-of-secrets"


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Served]:
    home = tmp_path / SECRET_PLACE
    db = nile.connect(home / "store", checkpoint=None)
    db.stream("s", [("ts", pa.float64()), ("k", pa.string())], time="ts")
    db.push("s", {"ts": [1.0, 2.0], "k": ["a", "b"]})
    (home / "file.csv").write_text("ts,k\n1,hidden\n")
    with served(db, str(home), body=100_000, body_wait=0.5, body_time=1.5, streams=3, send_wait=0.5) as running:
        yield running


def raw(up: Served, text: bytes, wait: float = 10.0) -> bytes:
    """What comes back for these bytes, until the connection is closed."""
    with socket.create_connection(("127.0.0.1", up.port), timeout=wait) as line:
        line.sendall(text)
        found = b""
        while part := line.recv(65536):
            found += part
        return found


def head(path: str = "/sql", method: str = "POST", host: str = "localhost", **headers: str) -> bytes:
    given = {"Host": host, "Authorization": f"Bearer {TOKEN}", **{k.replace("_", "-"): v for k, v in headers.items()}}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items() if value)]
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.mark.parametrize(
    "given",
    [
        None,
        "Bearer",
        "Bearer wrong",
        f"Basic {TOKEN}",
        TOKEN,
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        "Bearer \xff",
    ],
)
@pytest.mark.parametrize(
    "path", thinned(["/sql", "/metrics", "/streams", "/queries/q/outputs", "/nothing", "/checkpoint"], 3)
)
def test_without_the_token_nothing_is_told(up: Served, given: str | None, path: str) -> None:
    headers = {} if given is None else {"authorization": given.encode("latin-1")}
    with httpx.Client(base_url=up.url, headers=headers, trust_env=False, verify=False) as client:
        said = client.get(path)
    assert (said.status_code, said.json()["kind"]) == (401, "token")
    assert TOKEN not in said.text
    assert up.refused["token"] == 1


def test_a_token_in_the_address_is_none(up: Served) -> None:
    with httpx.Client(base_url=up.url, trust_env=False, verify=False) as client:
        assert client.get(f"/streams?token={TOKEN}").status_code == 401


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost.evil.example", "http://127.0.0.1:1"]
)
def test_pages_of_other_origins_are_refused_though_they_have_the_token(up: Served, origin: str) -> None:
    with up.client(headers={"origin": origin}) as client:
        said = client.post("/sql", content="SELECT k FROM s")
    assert (said.status_code, said.json()["kind"]) == (403, "origin")
    assert "access-control-allow-origin" not in said.headers
    with pytest.raises(InvalidStatus):
        ws.connect(
            f"ws://127.0.0.1:{up.port}/queries/q/socket", origin=origin, proxy=None,  # type: ignore[arg-type]
            additional_headers={"authorization": f"Bearer {TOKEN}"},
        )  # fmt: skip
    assert up.refused["origin"] == 2


def test_the_servers_own_page_may_ask(up: Served) -> None:
    with up.client(headers={"origin": up.url}) as client:
        assert client.post("/sql", content="SELECT k FROM s").status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "", "localhost:x", "evil.example:80"]
)
def test_a_name_that_was_rebound_to_this_machine_is_not_answered(up: Served, host: str) -> None:
    said = raw(up, head(host=host) if host else b"GET /streams HTTP/1.1\r\n\r\n")
    assert said.split()[1] in (b"421", b"400")
    assert b"streams" not in said


def test_two_hosts_are_none(up: Served) -> None:
    said = raw(up, b"GET /streams HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
    assert said.split()[1] in (b"421", b"400")


def test_a_body_that_is_too_large_is_refused_by_its_length_or_on_the_way(up: Served) -> None:
    assert b" 413 " in raw(up, head(Content_Length="100001") + b"x")
    chunk = b"%x\r\n%s\r\n" % (60_000, b"x" * 60_000)
    assert b" 413 " in raw(up, head(Transfer_Encoding="chunked") + chunk * 3)
    assert up.refused["large"] == 2
    for length in ("-1", "1e3", "9" * 30):
        assert raw(up, head(Content_Length=length)).split()[1] in (b"400", b"413")


def trickle(line: socket.socket) -> None:
    for _ in range(60):
        line.sendall(b"S")
        time.sleep(0.1)


def test_bodies_and_headers_that_trickle_are_let_go(up: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = time.monotonic()
    assert b" 408 " in raw(up, head(Content_Length="50") + b"SELECT")
    monkeypatch.setattr(serve, "_HEADER_WAIT", 0.5)
    assert raw(up, b"POST /sql HTTP/1.1\r\nHost: local") == b""
    assert time.monotonic() - begun < 5
    with socket.create_connection(("127.0.0.1", up.port), timeout=10) as line:  # a byte at a time, for ever
        line.sendall(head(Content_Length="5000"))
        with pytest.raises(OSError, match=r"reset|pipe"):
            trickle(line)
    assert up.refused["slow"] == 2


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM '{home}/file.csv'",
        "SELECT * FROM 'file.csv'",
        "SELECT * FROM s a, '{home}/*.csv' b WHERE a.k = b.k",
        "SELECT * FROM (SELECT * FROM '/etc/passwd') q",
        "EXPLAIN SELECT * FROM '/etc/passwd'",
        "CREATE STREAM x FROM '{home}/file.csv' TIMESTAMP BY ts",
        "CREATE RELATION x FROM '/etc/passwd'",
        "COPY (SELECT * FROM s) TO '{home}/out.csv'",
        "COPY s TO '{home}/out.csv'",
        "CREATE SENSORS x (a INT, v STREAM(y INT) USING 'os:system')",
        "CREATE STREAM x FROM REDIS 'redis://127.0.0.1:1/?stream=x' (n INT)",
        "CREATE SINK x TO FILE '{home}/out.csv' AS SELECT * FROM s",
        "COPY s TO FILE '{home}/out.csv'",
        "CREATE VIEW v AS SELECT * FROM '{home}/file.csv'",
    ],
)
def test_sql_reaches_no_file_and_no_code(up: Served, tmp_path: Path, text: str) -> None:
    home = tmp_path / SECRET_PLACE
    with up.client() as client:
        for asked in (
            client.post("/sql", content=text.format(home=home)),
            client.put("/queries/x", json={"sql": text.format(home=home)}),
        ):
            assert asked.status_code == 400
            assert "hidden" not in asked.text
    assert not (home / "out.csv").exists()
    assert up.db.streams == ("s",)


def test_files_are_read_where_the_server_was_told_so(tmp_path: Path) -> None:
    (tmp_path / "file.csv").write_text("ts,k\n1,seen\n")
    with served(nile.connect(), files=True) as up, up.client() as client:
        assert "seen" in client.post("/sql", content=f"SELECT * FROM '{tmp_path}/file.csv'").text


@pytest.mark.parametrize(
    "path",
    ["/../../etc/passwd", "/streams/..%2f..%2fetc%2fpasswd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd",
     "/streams/s%00", "/queries/%2e%2e%2fmanifest-0/outputs", "/inspector.js/../../x", "/streams/" + "a" * 5000],
)  # fmt: skip
def test_tricks_in_paths_find_nothing(up: Served, path: str) -> None:
    said = raw(up, head(path, "GET", Connection="close"))
    assert said.split()[1] in (b"404", b"400", b"405")
    assert b"root:" not in said
    assert SECRET_PLACE.encode() not in said


def test_messages_name_no_place_of_this_machine(up: Served, tmp_path: Path) -> None:
    (tmp_path / SECRET_PLACE / "gone.csv").write_text("ts,k\n1,a\n")
    up.db.register("gone", str(tmp_path / SECRET_PLACE / "gone.csv"), time="ts")
    (tmp_path / SECRET_PLACE / "gone.csv").unlink()
    with up.client() as client:
        told = [
            client.post("/sql", content="SELECT k FROM gone").text,
            client.post("/sql", content="EXPLAIN SELECT k FROM gone").text,
            client.post("/sql", content="DESCRIBE gone").text,
            client.post("/sql", content="SHOW TABLES").text,
            client.post("/streams/gone/rows", content=b"{}").text,
            client.post("/streams/s/advance", json={"time": {"a": 1}}).text,
            client.post("/streams", json={"name": "s", "schema": [["a", "INT"]], "time": "a"}).text,
        ]
    for text in told:
        assert SECRET_PLACE not in text
        assert "Traceback" not in text


def test_what_nobody_foresaw_is_told_by_a_number(up: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError(f"at {SECRET_PLACE}")

    monkeypatch.setattr(up.db, "checkpoint", broken)
    with up.client() as client:
        said = client.post("/checkpoint")
    assert said.status_code == 500
    assert SECRET_PLACE not in said.text


def test_streams_of_one_client_are_bounded_and_given_back(up: Served) -> None:
    with up.client() as client:
        client.put("/queries/q", json={"sql": "SELECT k FROM s"})
        held = [client.stream("GET", "/queries/q/outputs") for _ in range(3)]
        for each in held:
            assert each.__enter__().status_code == 200
        assert client.get("/queries/q/outputs").status_code == 429
        for each in held:
            each.__exit__(None, None, None)
        up.wait_until(lambda: not up.server.app.open)
        with client.stream("GET", "/queries/q/outputs") as response:
            assert response.status_code == 200
        up.wait_until(lambda: not up.server.app.open)


def test_a_half_closed_stream_is_let_go(up: Served) -> None:
    with up.client() as client:
        client.put("/queries/q", json={"sql": "SELECT k FROM s"})
        with socket.create_connection(("127.0.0.1", up.port), timeout=10) as line:
            line.sendall(head("/queries/q/outputs", "GET"))
            assert b" 200 " in line.recv(1000)
            line.shutdown(socket.SHUT_WR)
            up.wait_until(lambda: not up.server.app.open)


def test_too_many_requests_are_slowed(tmp_path: Path) -> None:
    with served(nile.connect(tmp_path), rate=5.0, burst=10) as up, up.client() as client:
        said = [client.get("/streams").status_code for _ in range(20)]
        assert said[:10] == [200] * 10
        assert 429 in said[10:]
        time.sleep(0.5)
        assert client.get("/streams").status_code == 200


def test_a_client_that_reads_nothing_stalls_neither_pushes_nor_others(tmp_path: Path) -> None:
    db = nile.connect(tmp_path, checkpoint=None)
    db.stream("s", [("ts", pa.float64()), ("k", pa.string())], time="ts")
    with served(db, send_wait=1.0, retain=20_000, tail=1 << 20) as up, up.client() as client:
        client.put("/queries/q", json={"sql": "SELECT ts, k FROM s"})
        with socket.socket() as dead:
            dead.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            dead.connect(("127.0.0.1", up.port))
            dead.sendall(head("/queries/q/outputs?from=start", "GET"))
            seen: list[int] = []

            def follow() -> None:
                with up.client() as other, other.stream("GET", "/queries/q/outputs?from=start") as response:
                    for line in response.iter_lines():
                        told = json.loads(line or "{}")
                        seen.extend(
                            range(told["ordinal"], told["ordinal"] + len(told["rows"])) if "rows" in told else ()
                        )
                        if len(seen) >= 99_999:
                            return

            reading = threading.Thread(target=follow)
            reading.start()
            for begin in range(0, 100_000, 5_000):
                rows = pa.table({"ts": [float(begin + i) for i in range(5_000)], "k": ["x" * 50] * 5_000})
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, rows.schema) as writer:
                    writer.write_table(rows)
                body = sink.getvalue().to_pybytes()
                assert client.post("/streams/s/rows", content=body, headers={"content-type": ARROW}).status_code == 200
            reading.join(60)
            assert seen == list(range(99_999))
            up.wait_until(lambda: up.refused.get("stalled") == 1)
        assert up.db.subscription("q").unread <= 20_000 + 20_000 // 8 + 5_000


def arrow(table: pa.Table, **how: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**how)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.slow
def test_arrow_that_lies_about_lengths_and_offsets_is_refused_whole(up: Served) -> None:
    good, draw = arrow(pa.table({"ts": [3.0, 4.0], "k": ["a", "b"]})), random.Random(3)
    with up.client() as client:
        taken = 0
        for _ in range(300):
            body = bytearray(good)
            for _ in range(draw.randint(1, 3)):
                at = 4 * draw.randrange(len(body) // 4)
                body[at : at + 4] = struct.pack("<i", draw.choice([2**31 - 1, -1, 1 << 30, 0, 255, 1 << 24]))
            said = client.post("/streams/s/rows", content=bytes(body), headers={"content-type": ARROW})
            assert said.status_code in (200, 400), said.text
            taken += said.json().get("rows", 0)
        assert up.db.accounting("s").tuples_in <= 2 + taken


def test_rows_that_unpack_to_much_more_are_refused_before_they_do(up: Served) -> None:
    few = pa.array(["x" * 60_000]).dictionary_encode()
    spelled = pa.DictionaryArray.from_arrays(pa.array([0] * 30_000, pa.int8()), few.dictionary)
    bombs = [
        arrow(pa.table({"ts": pa.array([3.0] * 1_000_000), "k": pa.nulls(1_000_000, pa.string())}), compression="zstd"),
        arrow(pa.table({"ts": pa.nulls(10**9), "k": pa.nulls(10**9)})),
        arrow(pa.table({"ts": pa.nulls(30_000), "k": spelled})),
        gzip.compress(b'{"ts":3,"k":"x"}\n' * 100_000),
    ]
    with up.client() as client:
        for body in bombs:
            assert len(body) < 100_000
            kind = "application/x-ndjson" if body is bombs[-1] else ARROW
            said = client.post(
                "/streams/s/rows", content=body, headers={"content-type": kind, "content-encoding": "gzip"}
            )
            assert (said.status_code, said.json()["kind"]) == (400, "SourceError"), said.text
            assert "nothing was taken" in said.text
    assert up.db.accounting("s").tuples_in == 2


def test_one_line_without_an_end_and_numbers_without_an_end_cost_their_bytes(up: Served) -> None:
    for body in (b'{"ts":3,"k":"' + b"x" * 90_000, b'{"ts":' + b"9" * 90_000 + b',"k":"a"}', b"[" * 90_000):
        with up.client() as client:
            assert client.post("/streams/s/rows", content=body).status_code in (200, 400)
    accounts = up.db.accounting("s")
    assert accounts.applied == 2
    assert accounts.tuples_in == accounts.applied + accounts.rejected


@pytest.mark.parametrize(
    "place", ["start/../../x", "1:-1", "1:" + "9" * 30, "../../etc/passwd", "%00", "1:1:1", "1e9:0", "\u0663:\u0663"]
)
def test_places_to_resume_from_are_two_numbers_and_nothing_else(up: Served, place: str) -> None:
    with up.client() as client:
        client.put("/queries/q", json={"sql": "SELECT k FROM s"})
        said = client.get("/queries/q/outputs", params={"from": place, "wait": "0"})
        assert (said.status_code, said.json()["kind"]) == (400, "ConfigError")
        said = client.get("/queries/q/outputs?wait=0", headers={"last-event-id": place.encode()})
        assert said.status_code == 400


@pytest.mark.parametrize("wait", ["nan", "-1", "inf", "9" * 400])
def test_waits_are_seconds(up: Served, wait: str) -> None:
    with up.client() as client:
        client.put("/queries/q", json={"sql": "SELECT k FROM s"})
        assert client.get(f"/queries/q/outputs?wait={wait}").status_code == 400


@pytest.mark.parametrize(
    "host", ["localhost:80:80", "localhost.", "127.0.0.1:99999", "localhost#x", "127.1", "localhost:0x50", "2130706433"]
)
def test_ports_and_spellings_make_no_other_name_out_of_loopback(up: Served, host: str) -> None:
    assert b" 421 " in raw(up, head("/streams", "GET", host=host, Connection="close"))


def test_floods_of_headers_are_cut_off(up: Served) -> None:
    for flood in (b"".join(b"X-%d: y\r\n" % i for i in range(50_000)), b"X: " + b"y" * 500_000 + b"\r\n"):
        with contextlib.suppress(ConnectionError):
            said = raw(up, b"GET /streams HTTP/1.1\r\nHost: localhost\r\n" + flood + b"\r\n")
            assert said.split()[1:2] in ([], [b"400"], [b"431"])
    with up.client() as client:
        assert client.get("/streams").status_code == 200


def test_sockets_without_the_token_and_events_for_other_origins_are_refused(up: Served) -> None:
    with up.client() as client:
        client.put("/queries/q", json={"sql": "SELECT k FROM s"})
    with pytest.raises(InvalidStatus):
        ws.connect(f"ws://127.0.0.1:{up.port}/queries/q/socket", proxy=None)
    events = {"Accept": "text/event-stream", "Origin": "https://evil.example", "Connection": "close"}
    assert b" 403 " in raw(up, head("/queries/q/outputs", "GET", **events))
    assert (up.refused["token"], up.refused["origin"]) == (1, 1)


def test_a_request_of_two_lengths_is_none(up: Served) -> None:
    said = raw(up, head(Transfer_Encoding="chunked", Content_Length="5") + b"0\r\n\r\nGET /streams HTTP/1.1\r\n\r\n")
    assert said.split()[1] == b"400"
    assert said.count(b"HTTP/1.1") == 1


def test_a_body_that_is_closed_by_halves_takes_nothing(up: Served) -> None:
    with socket.create_connection(("127.0.0.1", up.port), timeout=10) as line:
        line.sendall(head("/streams/s/rows", Content_Length="100") + b'{"ts": 3, "k": "c"}\n')
        line.shutdown(socket.SHUT_WR)
        assert b" 200 " not in line.recv(4_000)
    assert up.db.accounting("s").tuples_in == 2


def test_answers_that_nobody_reads_are_let_go_without_a_word_in_the_log_and_hold_no_descriptor(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Stalled ones, and some whose client hangs up in the middle, or closes one half."""
    db, asked = nile.connect(), b"SELECT ts, x FROM long"
    db.register("long", pa.table({"ts": pa.array(range(2_000_000), pa.float64()), "x": range(2_000_000)}), time="ts")
    caplog.set_level("WARNING")
    with served(db, send_wait=0.5) as up, up.client() as client:
        client.get("/streams")
        before = len(os.listdir("/proc/self/fd"))
        held = []
        for number in range(15):
            line = socket.create_connection(("127.0.0.1", up.port), timeout=10)
            line.sendall(head(Accept=ARROW, Content_Length=str(len(asked))) + asked)
            held.append(line)
            if number >= 5:
                assert line.recv(1 << 16)
                line.close() if number % 2 else line.shutdown(socket.SHUT_WR)
        assert client.post("/sql", content="SELECT count(*) AS n FROM long").json() == {"n": 2_000_000}
        up.wait_until(lambda: up.refused.get("stalled") == 5)
        for line in held:
            line.close()
        up.wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before)
    assert caplog.records == []


def test_a_client_goes_on_when_its_server_was_restarted(tmp_path: Path) -> None:
    """The connections that it kept are gone; it opens others, for what must not be sent twice as well."""
    port = 0
    far: Any = None
    for life in range(2):
        with served(nile.connect(tmp_path, checkpoint=None), port=port) as up:
            port = up.port
            far = far or nile.connect(up.url, token=TOKEN)
            assert far.sql("SELECT 1 AS x").fetchall() == [(1,)]
            far.stream(f"s{life}", [("ts", pa.float64())], time="ts")
            assert far.push(f"s{life}", {"ts": [1.0]}) == 1


def test_what_packages_log_is_a_line_of_json_too() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("uvicorn.error", logging.ERROR, "", 0, "bad %s", ("frame",), sys.exc_info())
    line = JsonLines().format(record)
    told = json.loads(line)
    assert "\n" not in line
    assert (told["event"], told["of"], told["message"]) == ("log", "uvicorn.error", "bad frame")
    assert "two" in told["trace"]


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x81\x05hello", 1002),
        (b"\x82\xff" + struct.pack(">Q", 1 << 40) + b"mask" + b"x" * 40, 1009),
        (b"\xf1\x80mask", 1002),
        (b"\x89\xfe\x01\x00mask" + b"x" * 256, 1002),
        ((b"\x01\xfe\xff\xffmask" + b"x" * 65_535) + (b"\x00\xfe\xff\xffmask" + b"x" * 65_535), 1009),
        (b"\x88\x82mask\x00\x00", 1002),
        (b"\x81\x82\x00\x00\x00\x00\xff\xfe", 1007),
    ],
    ids=["unmasked", "huge", "reserved bits", "long ping", "never finished", "bad close", "no text"],
)
def test_frames_that_are_none_close_their_socket(up: Served, frame: bytes, code: int) -> None:
    with up.client() as client:
        client.put("/queries/q", json={"sql": "SELECT k FROM s"})
    asked = head(
        "/queries/q/socket", "GET", Upgrade="websocket", Connection="Upgrade", Sec_WebSocket_Version="13",
        Sec_WebSocket_Key="dGhlIHNhbXBsZSBub25jZQ==",
    )  # fmt: skip
    with socket.create_connection(("127.0.0.1", up.port), timeout=10) as line:
        line.sendall(asked)
        assert b" 101 " in line.recv(4_096)
        found = b""
        with contextlib.suppress(ConnectionError):
            line.sendall(frame)
            while struct.pack(">H", code) not in found and (part := line.recv(4_096)):
                found += part
        assert struct.pack(">H", code) in found
    up.wait_until(lambda: not up.server.app.open)


def test_slow_readers_hold_no_thread_and_who_hangs_up_ends_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """More readers than statements may run, each of whom takes a little now and then; then they hang up."""
    db, asked, open_now = nile.connect(), b"SELECT ts, x FROM long", [0]
    db.register("long", pa.table({"ts": pa.array(range(3_000_000), pa.float64()), "x": range(3_000_000)}), time="ts")
    batches = Result.batches

    def watched(result: Result) -> Iterator[pa.RecordBatch]:
        open_now[0] += 1
        try:
            yield from batches(result)
        finally:
            open_now[0] -= 1

    monkeypatch.setattr(Result, "batches", watched)
    with served(db, statements=2) as up, up.client() as client:
        done, took = threading.Event(), [0] * 6

        def sip(number: int) -> None:
            with socket.socket() as line:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                line.connect(("127.0.0.1", up.port))
                line.sendall(head(Accept=ARROW, Content_Length=str(len(asked))) + asked)
                while not done.wait(0.005):
                    took[number] += len(line.recv(4_096))

        sipping = [threading.Thread(target=sip, args=(number,)) for number in range(len(took))]
        for each in sipping:
            each.start()
        up.wait_until(lambda: min(took) > 20_000)
        assert open_now[0] == len(took)
        for _ in range(3):
            assert client.post("/sql", content="SELECT count(*) AS n FROM long").json() == {"n": 3_000_000}
        assert open_now[0] >= len(took)  # they are still at it
        done.set()
        for each in sipping:
            each.join()
        up.wait_until(lambda: open_now[0] == 0)


@pytest.mark.parametrize("kind", ["socket", "events"])
def test_readers_of_sockets_and_events_who_stop_reading_are_let_go(tmp_path: Path, kind: str) -> None:
    db = nile.connect(tmp_path, checkpoint=None)
    db.stream("s", [("ts", pa.float64()), ("k", pa.string())], time="ts")
    db.subscribe("SELECT ts, k FROM s", name="q")
    how = {"Accept": "text/event-stream"} if kind == "events" else {
        "Upgrade": "websocket", "Connection": "Upgrade", "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    place = {"events": "/queries/q/outputs?from=start", "socket": "/queries/q/socket?from=start"}[kind]
    with served(db, send_wait=0.5) as up, socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        line.connect(("127.0.0.1", up.port))
        line.sendall(head(place, "GET", **how))
        assert line.recv(200)
        up.wait_until(lambda: sum(up.server.app.open.values()) == 1)
        for begin in range(0, 200_000, 10_000):
            db.push("s", {"ts": [float(begin)] * 10_000, "k": ["x" * 100] * 10_000})
        up.wait_until(lambda: up.refused.get("stalled") == 1)
        up.wait_until(lambda: not up.server.app.open)


def test_requests_in_one_breath_are_answered_one_after_the_other(up: Served) -> None:
    """What comes behind an answer that is still being sent waits for its end, whichever way that one is sent."""
    asked = [b"SELECT ts FROM s", b"SELECT k FROM s", b"SELECT nix FROM s", b"SELECT count(*) AS n FROM s"]
    text = b"".join(head(Content_Length=str(len(each))) + each for each in asked)
    said = raw(up, text + head("/health", "GET", Connection="close"))
    assert re.findall(rb"HTTP/1.1 (\d+)", said) == [b"200", b"200", b"400", b"200", b"200"]
    places = [said.index(each) for each in (b'{"ts": 1.0}', b'{"k": "a"}', b"nix", b'{"n": 2}', b'"nile"')]
    assert places == sorted(places)


def test_a_thousand_wrong_tokens_are_refused_and_slowed(tmp_path: Path) -> None:
    """Many in one request, and many requests: guesses count against the rate of their address."""
    with served(nile.connect(tmp_path), rate=1.0, burst=50) as up:
        many = "".join(f"Authorization: Bearer {number:032d}\r\n" for number in range(900)).encode()
        said = raw(up, b"GET /streams HTTP/1.1\r\nHost: localhost\r\n" + many + b"Connection: close\r\n\r\n")
        assert said.split()[1] in (b"401", b"400", b"431")
        with httpx.Client(base_url=up.url, trust_env=False, verify=False) as client:
            found = [
                client.get("/streams", headers={"authorization": f"Bearer {number:032d}"}).status_code
                for number in range(400)
            ]
        assert set(found) == {401, 429}
        assert found.count(401) < 300
        assert up.refused["token"] + up.refused["rate"] >= 400
