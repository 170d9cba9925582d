"""A process whose stream reads a connector is killed at random: state exactly once, outputs at least once."""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from test_sensors_connectors import broker, publisher, server
from test_sensors_databases import cluster, postgres

import nile

__all__ = ["broker", "cluster", "postgres", "server"]
CHILD = Path(__file__).parents[1] / "harness" / "child_feed.py"
SHORT, LONG = pytest.param(1, 3_000, id="short"), pytest.param(50, 20_000, marks=pytest.mark.long, id="long")


class Feeder:
    """Lives of a process that reads a connector; each ends by SIGKILL."""

    def __init__(self, store: Path, kind: str, address: str, outputs: str | None = None) -> None:
        told = str(store) + ".outputs" if outputs is None else outputs
        command = [sys.executable, str(CHILD), str(store), kind, address, told]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.strip())

    def _line(self) -> str:
        return self._lines.get(timeout=120)

    @contextmanager
    def life(self) -> Iterator[Callable[[], int]]:
        """How to wait for the next number of rows that it has committed."""
        assert self._process.stdin is not None
        self._process.stdin.write("again\n")
        self._process.stdin.flush()
        number = int(self._line())
        try:
            yield lambda: int(self._line())
        finally:
            os.kill(number, signal.SIGKILL)
            while self._line() != "over":
                pass

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def killed(store: Path, kind: str, address: str, kills: int, each: int, send: Callable[[int, int], None]) -> None:
    """Send so many numbers a kill, kill while they are read, and look at what is there in the end."""
    draw, sent = random.Random(kills), 0
    feeder = Feeder(store, kind, address)
    try:
        if kind in ("mqtt", "postgres"):
            with feeder.life() as line:
                assert line() == 0  # from here on the server keeps what comes for it
                time.sleep(0.5)
        for _ in range(kills):
            send(sent, each)
            sent += each
            with feeder.life() as line:
                until = draw.randrange(sent - each, sent)
                while line() < until:
                    pass
                time.sleep(draw.random() * 0.1)
        with feeder.life() as line:
            while line() < sent:
                pass
    finally:
        feeder.end()
    with nile.connect(str(store)) as db:
        found = db.sql("SELECT count(*) AS c, sum(n) AS s, count(DISTINCT n) AS d FROM readings").fetchall()
        assert found == [(sent, sent * (sent - 1) // 2, sent)], "each once, and none else"
        rest = [
            ["thousands", db.subscription("thousands").epoch, ordinal + k, n]
            for ordinal, batch in db.subscription("thousands").poll_numbered()
            for k, n in enumerate(batch.column(0).to_pylist())
        ]
    told = [json.loads(text) for text in Path(str(store) + ".outputs").read_text().splitlines() if text.endswith("]")]
    by_number: dict[tuple[int, int], int] = {}
    for _, epoch, ordinal, n in [*told, *rest]:
        assert by_number.setdefault((epoch, ordinal), n) == n, "what is told again is the same under the same number"
    assert sorted(by_number.values()) == list(range(0, sent, 1000))
    assert sorted(ordinal for _, ordinal in by_number) == list(range(len(by_number)))


@pytest.mark.parametrize(("kills", "each"), [LONG])
def test_what_comes_from_kafka(cluster: Any, tmp_path: Path, kills: int, each: int) -> None:
    address, producer = cluster
    producer.produce("t", "0", partition=1)  # the topic is there
    producer.flush(20)

    def send(begin: int, count: int) -> None:
        for k in range(begin, begin + count):
            if k:
                producer.produce("t", str(k), partition=k % 3)
        producer.flush(60)

    killed(tmp_path / "store", "kafka", f"kafka://{address}/t", kills, each, send)


@pytest.mark.parametrize(("kills", "each"), [SHORT, LONG])
def test_what_comes_from_redis(server: Any, tmp_path: Path, kills: int, each: int) -> None:
    port, client, _, _ = server

    def send(begin: int, count: int) -> None:
        with client.pipeline(transaction=False) as many:
            for k in range(begin, begin + count):
                many.xadd("s", {"n": k})
            many.execute()

    killed(tmp_path / "store", "redis", f"redis://127.0.0.1:{port}?stream=s", kills, each, send)


@pytest.mark.parametrize(("kills", "each"), [LONG])
def test_what_comes_from_postgres(postgres: Any, tmp_path: Path, kills: int, each: int) -> None:
    address, connect, _, _ = postgres
    with connect() as client:
        client.execute("CREATE TABLE t (n int8)")

    def send(begin: int, count: int) -> None:
        with connect() as client:
            for k in range(begin, begin + count, 1_000):
                client.execute("INSERT INTO t SELECT generate_series(%s::int, %s::int)", (k, k + 999))

    killed(tmp_path / "store", "postgres", f"{address}?table=t&slot=nile", kills, each, send)


@pytest.mark.parametrize(("kills", "each"), [LONG])
def test_what_comes_from_mqtt(broker: Any, tmp_path: Path, kills: int, each: int) -> None:
    """The broker sends again what was not acknowledged: what has been committed is known by its time and number."""
    port, _, _ = broker

    def send(begin: int, count: int) -> None:
        client = publisher(port)
        sent = [client.publish("t", json.dumps({"t": k, "n": k}), qos=1) for k in range(begin, begin + count)]
        for each in sent:
            each.wait_for_publish(60)
        client.loop_stop()
        client.disconnect()

    killed(tmp_path / "store", "mqtt", f"mqtt://127.0.0.1:{port}/t?client=nile", kills, each, send)


def spilled_over_kills(feeder: Feeder, store: Path, kills: int, lines: int, written: Callable[[int], None]) -> int:
    """Kill what reads so many lines in between, again and again; how many there are in the end.

    written: writes the next lines, behind so many.
    """
    draw, sent, files = random.Random(kills), 0, 0
    try:
        for _ in range(kills):
            written(sent)
            sent += lines
            with feeder.life() as line:
                until = draw.randrange(sent - lines // 2, sent)
                while line() < until:
                    pass
            with nile.connect(str(store), read_only=True) as db:
                files += bool(db._live._keeper.directory.state["queries"]["thousands"].get("filed"))
        with feeder.life() as line:
            while line() < sent:
                pass
    finally:
        feeder.end()
    assert files, "nothing had spilled"
    return sent


@pytest.mark.parametrize(
    ("kills", "lines"),
    [pytest.param(2, 60_000, marks=pytest.mark.slow), pytest.param(20, 40_000, marks=pytest.mark.long)],
)
def test_what_nobody_has_read_and_has_spilled_is_there_after_a_kill(tmp_path: Path, kills: int, lines: int) -> None:
    """Rows of the standing query lie in the store's files; what the checkpoint has not, the file has, by its offset."""
    log, store = tmp_path / "log", tmp_path / "store"
    feeder = Feeder(store, "lines", str(log), outputs="")

    def written(sent: int) -> None:
        with log.open("a") as file:
            file.writelines(json.dumps({"n": k, "line": f"{k:x}" * 40}) + "\n" for k in range(sent, sent + lines))

    sent = spilled_over_kills(feeder, store, kills, lines, written)
    with nile.connect(str(store)) as db:
        assert db.accounting("readings").applied == sent
        told = db.subscription("thousands").poll_numbered()
        assert [ordinal for ordinal, _ in told] == sorted(ordinal for ordinal, _ in told)
        numbers = [n for _, batch in told for n in batch.column("n").to_pylist()]
        assert numbers == list(range(sent))
        assert all(
            each == f"{n:x}" * 40 for _, batch in told for n, each in zip(*batch.to_pydict().values(), strict=True)
        )
