"""A database over HTTP says what the same calls say in the process; streams resume where they were left."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
import websockets.sync.client as ws
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from served import TOKEN, Served, client_to, served

import nile
from nile.answers.result import Result
from nile.base.show import first_rows, render
from nile.execution.live.outbox import Outbox
from nile.server.forms import ARROW, read_rows
from nile.server.guard import OPEN
from nile.server.metrics import exposed
from nile.server.serve import listen
from nile.server.settings import read_token
from nile.summaries.errors import ConfigError, SourceError

COLUMNS = [["ts", "DOUBLE"], ["k", "TEXT"], ["x", "BIGINT"]]
TEXT = "SELECT ts, k, x FROM s WHERE k <> 'never'"


def ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def table(begin: int, count: int) -> pa.Table:
    at = range(begin, begin + count)
    return pa.table(
        {"ts": [float(i) for i in at], "k": [f"k{i % 7}" for i in at], "x": [None if i % 5 == 0 else i for i in at]}
    )


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Served]:
    with served(nile.connect(tmp_path / "store", checkpoint=None), str(tmp_path)) as running:
        with running.client() as client:
            made = client.post("/streams", json={"name": "s", "schema": COLUMNS, "time": "ts"})
            assert made.status_code == 201, made.text
        yield running


def push(client: httpx.Client, rows: pa.Table, **headers: str) -> dict[str, Any]:
    said = client.post("/streams/s/rows", content=ipc(rows), headers={"content-type": ARROW, **headers})
    assert said.status_code == 200, said.text
    found: dict[str, Any] = said.json()
    return found


def followed(client: httpx.Client, name: str, rows: int, at: str = "start", **headers: str) -> list[dict[str, Any]]:
    """Lines of a query's outputs until so many rows have come, without beats."""
    found, seen = [], 0
    with client.stream("GET", f"/queries/{name}/outputs", params={"from": at}, headers=headers) as response:
        assert response.status_code == 200, response.read()
        for line in response.iter_lines():
            if not line.strip():
                continue
            found.append(json.loads(line))
            seen += len(found[-1].get("rows", []))
            if seen >= rows or "end" in found[-1]:
                return found
    return found


def numbered(lines: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    return [(line["ordinal"] + i, row) for line in lines if "rows" in line for i, row in enumerate(line["rows"])]


@pytest.mark.parametrize("form", ["application/x-ndjson", ARROW, "text/csv"])
def test_rows_pushed_in_any_form_are_those_of_the_process(up: Served, form: str) -> None:
    rows = table(0, 20)
    body = {
        ARROW: ipc(rows),
        "application/x-ndjson": "\n".join(map(json.dumps, rows.to_pylist())).encode(),
        "text/csv": rows.to_pandas().astype({"x": "Int64"}).to_csv(index=False).encode(),
    }[form]
    with up.client() as client:
        said = client.post("/streams/s/rows", content=body, headers={"content-type": form, "nile-offset": '{"at": 3}'})
        assert said.json() == {"rows": 20, "done": 20, "offset": {"at": 3}}
        assert up.db.sql("SELECT * FROM s").to_arrow().to_pylist() == rows.to_pylist()
        assert client.get("/streams/s").json()["accounting"]["applied"] == 20


@pytest.mark.parametrize("form", ["application/x-ndjson", ARROW, "text/csv"])
def test_a_statement_gives_what_it_gives_in_the_process(up: Served, form: str) -> None:
    with up.client() as client:
        push(client, table(0, 50))
        asked = {"sql": "SELECT k, count(*) AS n, sum(x) AS total FROM s WHERE x > ? GROUP BY k", "params": [3]}
        wanted = up.db.sql(asked["sql"], asked["params"]).to_arrow()  # type: ignore[arg-type]
        said = client.post("/sql", json=asked, headers={"accept": form})
        assert said.headers["content-type"].startswith(form)
        if form == ARROW:
            assert pa.ipc.open_stream(said.content).read_all().to_pylist() == wanted.to_pylist()
        elif form == "text/csv":
            assert said.text.splitlines()[0] == "k,n,total"
            assert len(said.text.splitlines()) == 1 + wanted.num_rows
        else:
            assert list(map(json.loads, said.text.splitlines())) == wanted.to_pylist()


def test_what_a_budget_was_spent_on_is_told_after_the_rows(up: Served) -> None:
    with up.client() as client:
        client.post("/streams", json={"name": "t", "schema": COLUMNS, "time": "ts"})
        for name in "st":
            client.post(f"/streams/{name}/rows", content=ipc(table(0, 400)), headers={"content-type": ARROW})
        asked = "SELECT a.k FROM s a, t b WHERE a.k = b.k WITH PREFERENCE desc a.k WINDOW 100"
        said = client.post(
            "/sql", json={"sql": asked, "options": {"budget": 0.5, "costs": "engine"}}, headers={"accept": ARROW}
        )
        with pa.ipc.open_stream(said.content) as reader:
            told = {}
            while True:
                try:
                    _, meta = reader.read_next_batch_with_custom_metadata()
                except StopIteration:
                    break
                told.update(meta or {})
        worth = json.loads(told[b"nile.worth"])
        wanted = up.db.sql(asked, budget=0.5, costs="engine")
        assert nile.Estimate(**worth["estimate"]) == wanted.estimate
        assert worth["spent"] == wanted.budget.fraction


def test_what_is_wrong_is_told_in_the_words_of_the_engine_and_with_a_status(up: Served) -> None:
    with up.client() as client:
        wrong = [
            (client.post("/sql", content="SELEC 1"), 400, "SqlError"),
            (client.post("/sql", content="SELECT q FROM s"), 400, "SqlError"),
            (client.get("/streams/none"), 404, "UnknownStream"),
            (client.get("/queries/none/outputs"), 404, "UnknownStream"),
            (client.post("/sql", json={"sql": 3}), 400, "ConfigError"),
            (client.post("/sql", json={"sql": "SELECT k FROM s", "options": {"engine": "spark"}}), 400, "ConfigError"),
            (client.post("/streams/s/rows", content=b"nonsense", headers={"content-type": ARROW}), 400, "SourceError"),
            (client.post("/streams/s/rows", content=b'{"ts": 1, "other": 2}'), 400, "SourceError"),
            (client.post("/streams/s/rows", content=b"{}", headers={"nile-offset": "{"}), 400, "ConfigError"),
            (client.post("/streams", json={"name": "z"}), 400, "ConfigError"),
            (client.get("/nothing"), 404, "http"),
            (client.put("/sql"), 405, "http"),
        ]
    for said, status, kind in wrong:
        assert (said.status_code, said.json()["kind"]) == (status, kind), said.text
        assert "Traceback" not in said.text


def test_an_error_on_the_way_is_told_in_the_answer(up: Served) -> None:
    with up.client() as client:
        big = [{"ts": float(i), "k": "a", "x": 2**62} for i in range(4)]
        push(client, pa.Table.from_pylist(big))
        said = client.post("/sql", content="SELECT sum(x) AS x FROM s")
        assert "SumOverflow" in said.text


@pytest.mark.parametrize("form", ["application/x-ndjson", ARROW])
def test_an_error_after_the_first_rows_is_told_after_them(
    up: Served, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Rows that were found together with it are sent first; the answer does not end as if it were whole."""
    found = Result.batches

    def some(self: Result) -> Any:
        yield from found(self)
        raise SourceError("file: gone")

    with up.client() as client:
        push(client, pa.Table.from_pylist([{"ts": 1.0, "k": "a", "x": 1}]))
        monkeypatch.setattr(Result, "batches", some)
        said = client.post("/sql", content="SELECT x FROM s", headers={"accept": form})
        assert said.status_code == 200
        if form == ARROW:
            reader = pa.ipc.open_stream(said.content)
            batches = [reader.read_next_batch_with_custom_metadata() for _ in range(2)]
            assert (batches[0][0].num_rows, batches[1][0].num_rows) == (1, 0)
            assert b"gone" in batches[1][1][b"nile.error"]
        else:
            first, last = map(json.loads, said.text.splitlines())
            assert (first, last["_error"]["kind"]) == ({"x": 1}, "SourceError")


def test_columns_larger_than_what_a_socket_takes_arrive_whole_and_a_client_that_stops_is_let_go() -> None:
    db = nile.connect()
    rows = 2_000_000
    db.register("long", pa.table({"ts": np.arange(rows) * 1.0, "x": np.arange(rows)}), time="ts")
    with served(db, send_wait=0.5) as up, nile.connect(up.url, token=TOKEN) as far:
        query = "SELECT ts, x FROM long"
        for _ in range(2):  # the second time over the connection of the first
            assert np.array_equal(far.sql(query).to_arrow()["x"].to_numpy(), np.arange(rows))
        assert len(far._server._idle) == 1
        # More than systems keep for a reader that is slow: 33 MB for one that has read fast before.
        wide = "SELECT ts, x, ts AS a, x AS b, ts AS c, x AS d, ts AS e, x AS f FROM long"
        stopped = iter(far.sql(wide).batches())
        next(stopped)
        up.wait_until(lambda: up.refused.get("stalled") == 1)
        with pytest.raises(SourceError, match="cut off"):
            list(stopped)
        assert far.sql("SELECT count(*) AS n FROM long").fetchall() == [(rows,)]


def test_outputs_are_numbered_alike_for_all_and_resume_anywhere(up: Served) -> None:
    with up.client() as client:
        epoch = client.put("/queries/q", json={"sql": TEXT}).json()["epoch"]
        for begin in range(0, 100, 10):
            push(client, table(begin, 10))
        client.post("/streams/s/advance", json={"time": 1000.0})
        whole = numbered(followed(client, "q", 100))
        assert [at for at, _ in whole] == list(range(100))
        assert [row for _, row in whole] == table(0, 100).to_pylist()
        for at in (0, 1, 9, 10, 55, 99):
            assert numbered(followed(client, "q", 100 - at, f"{epoch}:{at}")) == whole[at:]


def test_server_sent_events_carry_the_place_to_come_back_with(up: Served) -> None:
    with up.client() as client:
        client.put("/queries/q", json={"sql": TEXT})
        push(client, table(0, 10))
        push(client, table(10, 10))
        events: list[str] = []
        with client.stream("GET", "/queries/q/outputs?from=start", headers={"accept": "text/event-stream"}) as response:
            for line in response.iter_lines():
                events.append(line)
                if line.startswith("data") and '"rows"' in line:
                    break
        client.post("/streams/s/advance", json={"time": 100.0})
        place = [line for line in events if line.startswith("id: ")][-1].removeprefix("id: ")
        seen = len(json.loads(events[-1].removeprefix("data: "))["rows"])
        rest = numbered(followed(client, "q", 20 - seen, "", **{"last-event-id": place}))
        assert [at for at, _ in rest] == list(range(seen, 20))


def test_arrow_outputs_and_websockets_say_the_same(up: Served) -> None:
    with up.client() as client:
        epoch = client.put("/queries/q", json={"sql": TEXT}).json()["epoch"]
        push(client, table(0, 30))
        client.post("/streams/s/advance", json={"time": 1000.0})
        found: list[tuple[int, Any]] = []
        with client.stream("GET", f"/queries/q/outputs?from={epoch}:3", headers={"accept": ARROW}) as response:
            reader = pa.ipc.open_stream(_File(response.iter_raw()))
            while len(found) < 27:
                batch, meta = reader.read_next_batch_with_custom_metadata()
                if batch.num_rows:
                    first = json.loads(meta[b"nile.ordinal"])
                    found += [(first + i, row) for i, row in enumerate(batch.to_pylist())]
        url = f"{up.url.replace('http', 'ws')}/queries/q/socket?from={epoch}:3"
        lines = []
        with ws.connect(url, additional_headers={"authorization": f"Bearer {TOKEN}"}, proxy=None) as socket:
            while len(numbered(lines)) < 27:
                lines.append(json.loads(socket.recv(10)))
        assert numbered(lines) == found == list(enumerate(table(0, 30).to_pylist()))[3:]


class _File:
    """What Arrow reads from, over the parts of a response."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts, self._held, self.closed = parts, b"", False

    def read(self, size: int) -> bytes:
        while len(self._held) < size:
            self._held += next(self._parts)
        found, self._held = self._held[:size], self._held[size:]
        return found


def test_outputs_that_were_let_go_are_told_as_lost(tmp_path: Path) -> None:
    with served(nile.connect(tmp_path), retain=100, tail=1) as up, up.client() as client:
        client.post("/streams", json={"name": "s", "schema": COLUMNS, "time": "ts"})
        epoch = client.put("/queries/q", json={"sql": TEXT}).json()["epoch"]
        for begin in range(0, 1000, 50):
            push(client, table(begin, 50))
        client.post("/streams/s/advance", json={"time": 10_000.0})
        up.wait_until(lambda: client.get("/queries/q").json()["unread"] <= 113)
        lines = followed(client, "q", 100, f"{epoch}:0")
        lost = next(line["lost"] for line in lines if "lost" in line)
        kept = numbered(lines)
        assert (lost[0], lost[1]) == (0, kept[0][0])
        assert [at for at, _ in kept] == list(range(lost[1], lost[1] + len(kept)))


def test_a_query_made_anew_is_told_from_the_one_before(up: Served) -> None:
    with up.client() as client:
        first = client.put("/queries/q", json={"sql": TEXT}).json()["epoch"]
        push(client, table(0, 10))
        assert client.delete("/queries/q").json()["outputs"] == 10
        second = client.put("/queries/q", json={"sql": TEXT}).json()["epoch"]
        assert second > first
        said = client.get(f"/queries/q/outputs?from={first}:5")
        assert (said.status_code, said.json()["kind"], said.json()["epoch"]) == (409, "epoch", second)


def test_a_follower_is_told_that_the_query_was_closed(up: Served) -> None:
    with up.client() as client:
        client.put("/queries/q", json={"sql": TEXT})
        push(client, table(0, 3))
        threading.Timer(0.3, lambda: client_to(up.url).delete("/queries/q")).start()
        assert followed(client, "q", 10**9)[-1] == {"end": "closed"}


def test_what_comes_with_the_end_while_nothing_more_is_found_is_told(
    up: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, empty, go_on = Outbox.peek, threading.Event(), threading.Event()

    def peek(self: Any, *given: Any, **named: Any) -> Any:
        found = real(self, *given, **named)
        if not found and self.outputs and not empty.is_set():
            empty.set()
            assert go_on.wait(20)
        return found

    monkeypatch.setattr(Outbox, "peek", peek)
    found: list[dict[str, Any]] = []
    with up.client() as client:
        client.put("/queries/q", json={"sql": TEXT})
        reader = threading.Thread(target=lambda: found.extend(followed(client_to(up.url), "q", 10**9)))
        reader.start()
        up.wait_until(lambda: sum(up.server.app.open.values()) >= 1)
        up.db.push("s", table(0, 3))
        assert empty.wait(20)
        up.db.push("s", table(3, 3))
        up.db.subscription("q").close()
        go_on.set()
        reader.join()
    assert [row["x"] for _, row in numbered(found)] == table(0, 6).column("x").to_pylist()
    assert found[-1] == {"end": "closed"}


def test_snapshots_are_asked_for_and_not_followed(up: Served) -> None:
    with up.client() as client:
        client.put("/queries/n", json={"sql": "SELECT count(*) AS n FROM s", "options": {"emit": "snapshot"}})
        push(client, table(0, 9))
        client.post("/streams/s/advance", json={"time": 100.0})
        assert client.get("/queries/n/now").json() == {"n": 9}
        client.put("/queries/q", json={"sql": TEXT})
        assert client.get("/queries/q/now").status_code == 400


def test_a_server_that_comes_back_goes_on_with_the_numbers(tmp_path: Path) -> None:
    with served(nile.connect(tmp_path)) as up, up.client() as client:
        client.post("/streams", json={"name": "s", "schema": COLUMNS, "time": "ts"})
        epoch = client.put("/queries/q", json={"sql": TEXT}).json()["epoch"]
        push(client, table(0, 40))
        before = numbered(followed(client, "q", 39))
    with served(nile.connect(tmp_path)) as up, up.client() as client:
        push(client, table(40, 10))
        client.post("/streams/s/advance", json={"time": 1000.0})
        after = numbered(followed(client, "q", 30, f"{epoch}:20"))
        assert before[:20] + after == list(enumerate(table(0, 50).to_pylist()))


def test_followers_are_told_that_the_server_goes_down(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = []
    with served(nile.connect(tmp_path)) as up, up.client() as client:
        client.post("/streams", json={"name": "s", "schema": COLUMNS, "time": "ts"})
        client.put("/queries/q", json={"sql": TEXT})
        reading = threading.Thread(target=lambda: lines.extend(followed(client_to(up.url), "q", 10**9)))
        reading.start()
        up.wait_until(lambda: client.get("/queries/q").json()["readers"] == 1)
    reading.join(10)
    assert "goes down" in lines[-1]["end"]


def test_metrics_count_what_was_done(up: Served) -> None:
    with up.client() as client:
        client.put("/queries/q", json={"sql": TEXT})
        push(client, table(0, 12))
        client.get("/streams/none")
        text = client.get("/metrics").text
    assert 'nile_stream_tuples_total{stream="s",fate="applied"} 12' in text
    assert 'nile_query_outputs_total{query="q"} 11' in text
    assert 'nile_calls_total{of="errors"} 1' in text
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) nile_\w+ .+|nile_\w+(\{(\w+="[^"]*",?)+\})? [-+.\de]+', line), line


def test_the_openapi_document_has_every_route_and_none_beside(up: Served) -> None:
    app: Any = up.server.app.app
    routes = {(route.path, method.lower()) for route in app.routes for method in getattr(route, "methods", ["GET"])}
    told = httpx.get(f"{up.url}/openapi.json", trust_env=False).json()
    calls = {(path, call) for path, calls in told["paths"].items() for call in calls if call != "parameters"}
    assert calls == {(path, method) for path, method in routes if method != "head"}
    for path, parts in told["paths"].items():
        for call, operation in parts.items():
            if call != "parameters":
                assert (operation.get("security") == []) == (path in OPEN), path
                assert "default" in operation["responses"]


def test_a_request_is_a_span_of_the_trace_that_it_names(up: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    parent = f"00-{'ab' * 16}-{'cd' * 8}-01"
    with up.client() as client:
        client.post("/sql", content="SELECT nope FROM s", headers={"traceparent": parent})
        client.get("/health")
    up.wait_until(lambda: len(kept.get_finished_spans()) == 2)
    first, second = kept.get_finished_spans()
    assert first.attributes == {
        "http.request.method": "POST", "url.path": "/sql", "http.response.status_code": 400
    }  # fmt: skip
    assert f"{first.context.trace_id:032x}" == "ab" * 16
    assert second.parent is None


def test_the_log_has_a_line_of_json_for_each_request_where_it_is_asked_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "nile.server")
    with served(nile.connect(tmp_path / "store"), log_requests=True) as up, up.client() as client:
        client.post("/sql", content="SELECT secret FROM nowhere")
        httpx.get(f"{up.url}/streams", trust_env=False)
    lines = [json.loads(record.message) for record in caplog.records if record.name == "nile.server"]
    told = [(line["path"], line["status"]) for line in lines if line["event"] == "request"]
    assert told == [("/sql", 400), ("/streams", 401)]
    assert not any("secret" in json.dumps(line) for line in lines)


def test_metrics_escape_what_names_hold() -> None:
    assert exposed([("a", "gauge", "b", [({"n": 'x"\\\n'}, 1.5)])]).splitlines()[-1] == 'a{n="x\\"\\\\\\n"} 1.5'


def test_the_token_file_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "token"
    token = read_token(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert read_token(file) == token
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="mode 600"):
        read_token(file)
    file.chmod(0o600)
    file.write_text("short")
    with pytest.raises(ConfigError, match="16 printable"):
        read_token(file)


def test_rows_that_cannot_be_read_say_what_was_needed() -> None:
    schema = pa.schema([("ts", pa.timestamp("us")), ("x", pa.int64())])
    read = read_rows(b'{"ts": "2026-01-01T00:00:00", "x": 3}\n{"x": 4, "ts": "2026-01-02"}', "ndjson", schema)
    assert read.schema == schema
    assert read.num_rows == 2
    for body, form in ((b"[1, 2]", "ndjson"), (b'{"ts": "no"}', "ndjson"), (b"ts,x\n1", "csv"), (b"\0", "arrow")):
        with pytest.raises(SourceError, match="nothing was taken"):
            read_rows(body, form, schema)  # type: ignore[arg-type]


def test_the_command_serves_until_it_is_told_to_stop_and_writes_a_checkpoint(tmp_path: Path) -> None:
    store, token = tmp_path / "store", tmp_path / "token"
    command = [sys.executable, "-m", "nile.experiments.cli", "serve", str(store), "--port", "0", "--checkpoint", "1 h"]
    running = subprocess.Popen(
        [*command, "--token-file", str(token)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert running.stdout is not None
        said = running.stdout.readline()
        at = re.search(r"http://127\.0\.0\.1:\d+", said)
        assert at is not None, said + running.stderr.read() if running.stderr else said
        assert token.read_text().strip() not in said
        with httpx.Client(
            base_url=at[0],
            headers={"authorization": f"Bearer {token.read_text().strip()}"},
            trust_env=False,
            timeout=60,
        ) as client:
            client.post("/streams", json={"name": "s", "schema": COLUMNS, "time": "ts"})
            push(client, table(0, 25))
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=30)
    finally:
        running.kill()
    with nile.connect(store) as db:
        assert db.sql("SELECT count(*) AS n FROM s").fetchall() == [(25,)]


def test_an_answer_of_two_parts_goes_out_without_waiting_for_an_acknowledgement() -> None:
    held: list[Any] = []

    class Kept(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            held.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            transport.close()

    async def once() -> None:
        with listen("127.0.0.1", 0) as bound:
            server = await asyncio.get_running_loop().create_server(Kept, sock=bound)
            reader, writer = await asyncio.open_connection(*bound.getsockname())
            await reader.read()
            writer.close()
            server.close()

    asyncio.run(once())
    assert held[0] != 0, "asyncio turns Nagle's algorithm off where the socket names its protocol"


def test_bytes_are_base64_in_json() -> None:
    schema = pa.schema([("b", pa.binary()), ("many", pa.list_(pa.binary()))])
    table = pa.table({"b": [b"\x00\xff", None], "many": [None, [b"a", b""]]}, schema=schema)
    lines = render(schema.names, [], first_rows(iter(table.to_batches()), None)[0], "json")
    assert lines.splitlines()[0] == '{"b": "AP8=", "many": null}'
    assert read_rows(lines.encode(), "ndjson", schema).equals(table)
    with pytest.raises(SourceError, match="nothing was taken"):
        read_rows(b'{"b": "no base64!"}', "ndjson", schema)


def test_an_array_of_rows_is_pushed_and_a_body_of_json_asked_whatever_its_media_type(up: Served) -> None:
    with up.client() as client:
        client.post("/streams", json={"name": "array", "schema": COLUMNS, "time": "ts"}).raise_for_status()
        told = client.post("/streams/array/rows", content=b' [{"ts": 1, "k": "a"}, {"ts": 2, "k": "\\u00f8", "x": 3}]')
        assert told.json()["rows"] == 2
        assert client.post("/streams/array/rows", content=b"[1]").status_code == 400
        assert client.post("/streams/array/rows", content=b"[{]").status_code == 400
        asked = b'{"sql": "SELECT k, x FROM array WHERE ts > ?", "params": [1]}'
        got = client.post("/sql", content=asked, headers={"Content-Type": "application/x-www-form-urlencoded"})
        assert got.json() == {"k": "\u00f8", "x": 3}
