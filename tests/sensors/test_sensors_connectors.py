"""Connectors against what they connect to: files, descriptors, an HTTP server, mosquitto, a Redis server."""

from __future__ import annotations

import contextlib
import http.server
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import nile
from nile.sensors.connectors.http import Polled

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
REDIS = shutil.which("redis-server")


def sensors(using: str, addresses: list[str], fields: str = "reading DOUBLE") -> nile.Database:
    db = nile.connect()
    db.sql(f"CREATE SENSORS d (id INT, address STREAM({fields}) USING '{using}')")
    db.sensors("d").add([{"id": k, "address": text} for k, text in enumerate(addresses)])
    return db


@contextlib.contextmanager
def reading(db: nile.Database, columns: str = "id, reading") -> Iterator[Any]:
    """A function that reads until there are so many rows: the rows, as tuples in order of their time."""
    batches = iter(db.sql(f"SELECT {columns} FROM d"))
    thread_rows: list[tuple[Any, ...]] = []
    stop = threading.Event()

    def read() -> None:
        for batch in batches:
            thread_rows.extend(tuple(row.values()) for row in batch.to_pylist())
            if stop.is_set():
                return

    # A reader has no time-out of its own: the test looks at what a thread has read.
    thread = threading.Thread(target=read, daemon=True)
    thread.start()

    def until(count: int, seconds: float = 20) -> list[tuple[Any, ...]]:
        deadline = time.monotonic() + seconds
        while len(thread_rows) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(thread_rows) >= count, (thread_rows[-3:], db.sensors("d").sources().to_pylist())
        return list(thread_rows)

    try:
        yield until
    finally:
        stop.set()
        db.sensors("d").remove()  # its end
        thread.join(10)
        assert not thread.is_alive()


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise AssertionError(f"nobody listens on {port}")


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_file_is_followed_as_it_grows_is_cut_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with reading(sensors("file", [str(path)])) as until:
        time.sleep(0.1)  # it is not there yet
        path.write_text("1\n2\n3")
        assert until(2) == [(0, 1.0), (0, 2.0)]
        with path.open("a") as file:
            file.write("0\r\n4\n")
        assert until(4)[2:] == [(0, 30.0), (0, 4.0)]
        path.write_text("5\n")  # shorter: from the beginning
        assert until(5)[4:] == [(0, 5.0)]
        with path.open("a") as file:
            file.write("6\n")
            path.rename(tmp_path / "log.1")
            path.write_text("7\n8\n")
            file.flush()
        assert until(8)[5:] == [(0, 6.0), (0, 7.0), (0, 8.0)]


def test_only_what_is_appended_with_times_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text('{"reading": 1, "at": 5}\n')
    with reading(sensors("file", [f"{path}?from=end&time=at"]), "reading, ts") as until:
        time.sleep(0.3)
        with path.open("a") as file:
            file.write('{"reading": 2, "at": 6.5, "more": []}\n{"at": "1970-01-01 00:00:07"}\n')
        assert [(value, at.timestamp()) for value, at in until(2)] == [(2.0, 6.5), (None, 7.0)]


def test_lines_that_are_no_values_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text('1\nnonsense\n{"reading": "text"}\n{"reading": 2}\n[1, 2]\n\n3\n')
    db = sensors("file", [str(path)])
    with reading(db) as until:
        assert until(3) == [(0, 1.0), (0, 2.0), (0, 3.0)]
        assert db.sensors("d").sources().select(["tuples_in", "applied", "rejected"]).to_pylist() == [
            {"tuples_in": 7, "applied": 3, "rejected": 4}
        ]


def test_ten_files_of_ten_thousand_lines(tmp_path: Path) -> None:
    paths = [tmp_path / str(k) for k in range(10)]
    for k, path in enumerate(paths):
        path.write_text("".join(f"[{k}, {j}]\n" for j in range(10_000)))
    with reading(sensors("file", list(map(str, paths)), "a INT, b INT"), "id, a, b") as until:
        got = until(100_000)
    for k in range(10):
        assert [row[1:] for row in got if row[0] == k] == [(k, j) for j in range(10_000)]


def test_a_line_longer_than_a_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("x" * 3_000_000 + "\nshort\nno end")
    with reading(sensors("file", [str(path)], "line TEXT"), "length(line) AS n") as until:
        assert until(2) == [(3_000_000,), (5,)]


# --- standard input ---------------------------------------------------------------------------------------------------


def test_lines_of_a_descriptor_until_it_ends() -> None:
    out, into = os.pipe()

    def write() -> None:
        for part in (b"1\n2", b"5\n", b"3"):
            os.write(into, part)
            time.sleep(0.05)
        os.close(into)

    threading.Thread(target=write).start()
    assert sensors("stdin", [str(out)]).sql("SELECT reading FROM d").fetchall() == [(1.0,), (25.0,), (3.0,)]
    os.close(out)


def test_standard_input_of_another_process() -> None:
    code = (
        "import nile; db = nile.connect()\n"
        "db.sql(\"CREATE SENSORS d (line STREAM(text TEXT) USING 'stdin')\"); db.sensors('d').add({'line': '0'})\n"
        "print(db.sql('SELECT count(text) AS n, max(text) AS last FROM d').fetchall())"
    )
    text = "".join(f"{k:05}\n" for k in range(5_000))
    done = subprocess.run(["python", "-c", code], input=text, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "[(5000, '04999')]\n"


# --- HTTP -----------------------------------------------------------------------------------------------------------


class Answering(http.server.BaseHTTPRequestHandler):
    """Answers with a count; /same never changes; /bad answers 500 twice."""

    asked: ClassVar[dict[str, int]] = {}

    def do_GET(self) -> None:
        count = self.asked[self.path] = self.asked.get(self.path, 0) + 1
        if self.path == "/same" and self.headers["If-None-Match"] == '"v1"':
            self.send_response(304)
            self.end_headers()
            return
        if self.path == "/bad" and count <= 2:
            self.send_response(500)
            self.end_headers()
            return
        body = json.dumps({"reading": count, "at": count + 0.5}).encode()
        self.send_response(200)
        self.send_header("ETag", '"v1"' if self.path == "/same" else f'"{count}"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


def test_an_endpoint_is_asked_again_and_again() -> None:
    Answering.asked.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    at = f"http://127.0.0.1:{server.server_address[1]}"
    db = sensors("http", [f"{at}/a?every=0.05", f"{at}/same?every=0.05", f"{at}/bad?every=0.05", "ftp://x"])
    with reading(db) as until:
        got = until(20)
        found = db.sensors("d").sources().to_pydict()
    server.shutdown()
    server.server_close()
    assert [value for k, value in got if k == 0][:4] == [1.0, 2.0, 3.0, 4.0]
    assert [value for k, value in got if k == 1] == [1.0]
    assert Answering.asked["/same"] > 3
    assert next(value for k, value in got if k == 2) == 3.0
    assert found["state"] == ["open", "open", "open", "failed"]
    assert "needed an address with http:// or https://; got 'ftp://x'" in found["error"][3]


def test_an_answer_that_is_cut_off_is_no_value() -> None:
    """Of 1234 the part that came would be 12."""

    class Cut(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"12")

        def log_message(self, *_: Any) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Cut) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        source = Polled()
        source.init(f"http://127.0.0.1:{server.server_address[1]}/", {})
        with pytest.raises(ConnectionError, match="cut off after 2 of 4 bytes"):
            source.read()


# --- MQTT -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Any]:
    if MOSQUITTO is None:
        pytest.skip("mosquitto is not installed (apt-get install mosquitto)")
    if importlib.util.find_spec("paho") is None:
        pytest.skip("paho-mqtt is not installed (the extra mqtt)")
    port = free_port()
    config = tmp_path / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nmax_inflight_messages 0\n"
    )
    running: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        running.append(subprocess.Popen([MOSQUITTO, "-c", str(config)], stderr=subprocess.DEVNULL))
        wait_for(port)

    def stop() -> None:
        running[-1].kill()
        running[-1].wait()

    start()
    yield port, start, stop
    stop()


def publisher(port: int) -> Any:
    from paho.mqtt.client import CallbackAPIVersion, Client

    client = Client(CallbackAPIVersion.VERSION2)
    client.max_queued_messages_set(0)
    client.connect("127.0.0.1", port)
    client.loop_start()
    return client


def subscribed(db: nile.Database, rows: int) -> None:
    """Wait until sources have asked the broker for what they want: what is published before is nobody's."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if db.sensors("d").sources().to_pydict()["state"].count("open") == rows:
            time.sleep(0.5)
            return
        time.sleep(0.02)
    raise AssertionError(db.sensors("d").sources().to_pylist())


@pytest.mark.parametrize("each", [5_000, pytest.param(500_000, marks=pytest.mark.long)])
def test_messages_of_mqtt_come_once_and_in_order(broker: Any, each: int) -> None:
    port, _, _ = broker
    at = f"mqtt://127.0.0.1:{port}"
    db = sensors("mqtt", [f"{at}/hall/+/heat", f"{at}/yard/%23", "mqtt://127.0.0.1"], "reading DOUBLE, room TEXT")
    with reading(db, "id, reading, room") as until:
        deadline = time.monotonic() + 10
        while db.sensors("d").sources().num_rows < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        db.sensors("d").remove("id = 2")
        subscribed(db, 2)
        client = publisher(port)
        for k in range(each):
            client.publish("hall/a/heat", json.dumps({"reading": k, "room": "a"}), qos=1)
            last = client.publish("yard/b/c", json.dumps([k, "b"] if k % 2 else {"reading": k, "room": "b"}), qos=1)
            if k % 2_000 == 0:
                last.wait_for_publish(60)  # no more than 65,535 may be on their way
        last.wait_for_publish(60)
        until(2 * each, 300)
        client.loop_stop()
        client.disconnect()
        got = until(2 * each)
        account = db.sensors("d").sources().to_pydict()
    assert [row[1] for row in got if row[0] == 0] == [float(k) for k in range(each)]
    yard = [row[1] for row in got if row[0] == 1]
    assert yard == sorted(yard)
    assert account["tuples_in"][:2] == [each, each]
    assert [account[name] for name in ("late", "shed", "rejected")] == [[0, 0, 0]] * 3


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "each"), [(3, 100), pytest.param(50, 20_000, marks=pytest.mark.long)])
def test_a_broker_that_is_killed_is_connected_to_again(broker: Any, kills: int, each: int) -> None:
    port, start, stop = broker
    db = sensors("mqtt", [f"mqtt://127.0.0.1:{port}/t"])
    with reading(db) as until:
        subscribed(db, 1)
        for k in range(kills):
            client = publisher(port)
            told = [client.publish("t", str(each * k + j), qos=1) for j in range(each)]
            told[-1].wait_for_publish(60)
            client.loop_stop()
            client.disconnect()
            until(each * (k + 1), 60)
            stop()
            start()
            time.sleep(2.5)  # it tries again after a second
        got = until(kills * each)
    assert [row[1] for row in got] == [float(k) for k in range(kills * each)]


# --- Redis ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Any]:
    if REDIS is None:
        pytest.skip("redis-server is not installed (apt-get install redis-server)")
    redis = pytest.importorskip("redis", reason="redis is not installed (the extra redis)")
    port = free_port()
    running: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        command = [REDIS, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(tmp_path), "--save", ""]
        command += ["--appendonly", "yes", "--appendfsync", "always"]
        running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            with contextlib.suppress(redis.exceptions.RedisError), redis.Redis(port=port) as client:
                client.ping()
                return
            time.sleep(0.02)

    def stop() -> None:
        running[-1].kill()
        running[-1].wait()

    start()
    yield port, redis.Redis(port=port), start, stop
    stop()


def test_entries_of_redis_streams_by_name_and_type(server: Any) -> None:
    port, client, _, _ = server
    client.xadd("s", {"reading": "1.5", "tags": "[1, 2]", "name": "a", "other": "x"}, id="1000-1")
    client.xadd("s", {"reading": "not a number"}, id="2000-1")
    client.xadd("s", {"name": "b"}, id="3500-1")
    url = f"redis://127.0.0.1:{port}/0?stream="
    db = sensors("redis", [f"{url}s", f"{url}none", "redis://127.0.0.1"], "reading DOUBLE, tags INT[], name TEXT")
    with reading(db, "id, reading, tags, name, ts") as until:
        got = [(*row[:4], row[4].timestamp()) for row in until(2)]
        found = db.sensors("d").sources().to_pydict()
    assert got == [(0, 1.5, [1, 2], "a", 1.0), (0, None, None, "b", 3.5)]
    assert (found["tuples_in"][0], found["applied"][0], found["rejected"][0]) == (3, 2, 1)
    assert found["state"][2] == "failed"
    assert "needed redis://host/?stream=key" in found["error"][2]


@pytest.mark.parametrize(("kills", "each"), [(3, 5_000), pytest.param(50, 20_000, marks=pytest.mark.long)])
def test_a_server_that_is_killed_loses_and_repeats_nothing(server: Any, kills: int, each: int) -> None:
    port, client, start, stop = server
    db = sensors("redis", [f"redis://127.0.0.1:{port}?stream=s"])
    sent = 0
    with reading(db) as until:
        for _ in range(kills):
            with client.pipeline(transaction=False) as many:
                for _ in range(each):
                    many.xadd("s", {"reading": sent})
                    sent += 1
                many.execute()
            until(sent - each // 2, 60)  # somewhere in the middle
            stop()
            start()
        got = until(sent, 40)
        time.sleep(0.3)
        assert len(until(sent)) == sent
        assert db.sensors("d").sources().to_pydict()["restarts"][0] >= 1
    assert [row[1] for row in got] == [float(k) for k in range(sent)]
