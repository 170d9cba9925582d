"""What strangers send is refused and counted, and tells them nothing.  SECURITY.md has the table of these."""

from __future__ import annotations

import json
import socket
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
from websockets.exceptions import InvalidStatus

import nile
from nile.server import serve
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
@pytest.mark.parametrize("path", ["/sql", "/metrics", "/streams", "/queries/q/outputs", "/nothing", "/checkpoint"])
def test_without_the_token_nothing_is_told(up: Served, given: str | None, path: str) -> None:
    headers = {} if given is None else {"authorization": given.encode("latin-1")}
    with httpx.Client(base_url=up.url, headers=headers, trust_env=False) as client:
        said = client.get(path)
    assert (said.status_code, said.json()["kind"]) == (401, "token")
    assert TOKEN not in said.text
    assert up.refused["token"] == 1


def test_a_token_in_the_address_is_none(up: Served) -> None:
    with httpx.Client(base_url=up.url, trust_env=False) as client:
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
        "CREATE SENSORS x (a INT, v STREAM(y INT) USING 'os:system')",
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
