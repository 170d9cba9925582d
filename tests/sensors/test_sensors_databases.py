"""Connectors to Kafka, by its client's own mock cluster, and to PostgreSQL, by a server of the test's own."""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_sensors_connectors import free_port, reading, sensors

from nile.sensors.connectors.postgres import cells

INITDB, POSTGRES = (shutil.which(name) for name in ("initdb", "postgres"))


def begun(db: Any) -> None:
    """Wait until the first source has been begun."""
    deadline = time.monotonic() + 20
    while db.sensors("d").sources().to_pydict()["state"][:1] != ["open"]:
        assert time.monotonic() < deadline, db.sensors("d").sources().to_pydict()
        time.sleep(0.01)


# --- Kafka ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[Any]:
    """(addresses of three brokers, their producer)."""
    kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed (the extra kafka)")
    producer = kafka.Producer({"test.mock.num.brokers": 3, "queue.buffering.max.messages": 2_000_000, "log_level": 0})
    told = producer.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{each.host}:{each.port}" for each in told), producer
    producer.flush(10)


def test_messages_of_kafka_come_once_and_in_the_order_of_their_partition(cluster: Any) -> None:
    address, producer = cluster
    for k in range(3000):
        producer.produce("t", json.dumps({"reading": k, "other": 1}), partition=k % 4)
    producer.produce("t", "no JSON", partition=0)
    producer.flush(20)
    db = sensors("kafka", [f"kafka://{address}/t", f"kafka://{address}/t?partition=2", "kafka://x"])
    with reading(db) as until:
        until(3750)
        for k in range(3000, 3100):
            producer.produce("t", str(k), partition=k % 4)
        producer.flush(20)
        got = until(3875)
        time.sleep(0.2)
        assert len(until(3875)) == 3875
        found = db.sensors("d").sources().to_pydict()
    for source, parts in ((0, (0, 1, 2, 3)), (1, (2,))):
        for part in parts:
            own = [value for k, value in got if k == source and value % 4 == part]
            assert own == [float(k) for k in range(part, 3100, 4)]
    assert found["rejected"] == [1, 0, 0]
    assert found["state"][2] == "failed"


def test_from_latest_and_a_time_of_its_own(cluster: Any) -> None:
    address, producer = cluster
    producer.produce("t", json.dumps({"reading": 1, "at": 5}), partition=0)
    producer.flush(20)
    db = sensors("kafka", [f"kafka://{address}/t?from=latest&time=at&partition=0"])
    with reading(db, "reading, ts") as until:
        begun(db)
        producer.produce("t", json.dumps({"reading": 2, "at": 7.5}), partition=0)
        producer.flush(20)
        assert [(value, at.timestamp()) for value, at in until(1)] == [(2.0, 7.5)]


@pytest.mark.parametrize("each", [200, pytest.param(20_000, marks=pytest.mark.long)])
def test_a_source_that_is_begun_anew_goes_on_at_its_offsets(cluster: Any, each: int) -> None:
    """The mock cluster cannot be killed: the source is, fifty times, before it has read everything."""
    import pyarrow as pa

    from nile.sensors.connectors.kafka import Topic

    address, producer = cluster
    place, got, sent = None, [], 0
    for _ in range(50):
        for _ in range(each):
            producer.produce("t", str(sent), partition=sent % 3)
            sent += 1
        producer.flush(20)
        topic = Topic()
        topic.fields, topic.place = pa.schema([("reading", pa.float64())]), place
        topic.init(f"kafka://{address}/t", {})
        deadline, least = time.monotonic() + 10, sent - 100
        while len(got) < least and time.monotonic() < deadline:
            found = topic.read()
            got += found[1] if isinstance(found, tuple) else []
        place = topic.place
        topic.close()
    assert sum(place.values()) == len(got) >= sent - 100
    assert sorted(got) == sorted(set(got))
    for part in range(3):
        own = [value for value in got if value % 3 == part]
        assert own == list(range(part, 3 * len(own), 3))


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


@pytest.fixture
def postgres() -> Iterator[Any]:
    """(address, connect, start, stop) of a server that any process may end."""
    if INITDB is None or POSTGRES is None:
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed (the extra postgres)")
    import psycopg

    user: dict[str, Any] = {}
    if os.getuid() == 0:  # it refuses to run as root
        try:
            owner = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
        user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
    root = Path(tempfile.mkdtemp())  # pytest's are closed to other users
    if user:
        os.chown(root, user["user"], user["group"])
    port, data = free_port(), str(root / "data")
    given: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": root, **user}
    subprocess.run([INITDB, "-D", data, "-U", "nile", "-A", "trust"], check=True, **given)
    running: list[subprocess.Popen[bytes]] = []
    address = f"postgresql://nile@127.0.0.1:{port}/postgres"

    def start() -> None:
        options = ["-p", str(port), "-h", "127.0.0.1", "-k", str(root), "-c", "wal_level=logical"]
        running.append(subprocess.Popen([POSTGRES, "-D", data, *options], **given))
        deadline = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(address).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def stop() -> None:
        running[-1].send_signal(3)  # SIGQUIT: at once, as a crash
        running[-1].wait()

    start()
    yield address, lambda: psycopg.connect(address, autocommit=True), start, stop
    stop()
    shutil.rmtree(root, ignore_errors=True)


def test_rows_of_a_table_by_name_and_type(postgres: Any) -> None:
    address, connect, _, _ = postgres
    with connect() as client:
        client.execute(
            'CREATE TABLE "My t" (reading float8, tags int[], name text, "is on" bool, other int, at float8)'
        )
        client.execute("CREATE TABLE u (reading float8)")
        db = sensors(
            "postgres",
            [f"{address}?table=%22My%20t%22&slot=a&time=at", f"{address}?table=none&slot=b", f"{address}?table=u"],
            "reading DOUBLE, tags INT[], name TEXT",
        )
        with reading(db, "id, reading, tags, name, ts") as until:
            begun(db)
            client.execute("INSERT INTO u VALUES (1)")
            client.execute("INSERT INTO \"My t\" VALUES (1.5, '{1,2,NULL}', 'it''s [a]:1 b', true, 1, 1)")
            client.execute(
                "INSERT INTO \"My t\" VALUES (NULL, NULL, NULL, NULL, NULL, 2), ('NaN', '{}', '', false, 2, 3)"
            )
            client.execute('UPDATE "My t" SET other = 5')
            client.execute("BEGIN")
            client.execute("INSERT INTO \"My t\" VALUES (7, NULL, 'gone', true, 1, 9)")
            client.execute("ROLLBACK")
            client.execute("INSERT INTO \"My t\" VALUES (8, NULL, 'stays', true, 1, 9)")
            got = [(*row[:4], row[4].timestamp()) for row in until(4)]
            found = db.sensors("d").sources().to_pydict()
    assert repr(got) == repr(
        [
            (0, 1.5, [1, 2, None], "it's [a]:1 b", 1.0),
            (0, None, None, None, 2.0),
            (0, float("nan"), [], "", 3.0),
            (0, 8.0, None, "stays", 9.0),
        ]
    )
    assert "none" in found["error"][1]
    assert found["state"][2] == "failed"
    assert "slot" in found["error"][2]


@pytest.mark.parametrize(
    ("kills", "each"),
    [pytest.param(3, 2_000, marks=pytest.mark.slow), pytest.param(50, 20_000, marks=pytest.mark.long)],
)
def test_a_server_that_is_killed_loses_and_repeats_nothing(postgres: Any, kills: int, each: int) -> None:
    address, connect, start, stop = postgres
    with connect() as client:
        client.execute("CREATE TABLE t (reading float8)")
    db, sent = sensors("postgres", [f"{address}?table=t&slot=nile"]), 0
    with reading(db) as until:
        begun(db)
        for _ in range(kills):
            with connect() as client:
                for _ in range(4):
                    client.execute(
                        "INSERT INTO t SELECT generate_series(%s::int, %s::int)", (sent, sent + each // 4 - 1)
                    )
                    sent += each // 4
            until(sent - each // 2, 60)  # somewhere in the middle
            stop()
            start()
        got = until(sent, 60)
        time.sleep(0.3)
        assert len(until(sent)) == sent
    assert [row[1] for row in got] == [float(k) for k in range(sent)]


def test_what_nobody_reads_is_kept_for_the_next(postgres: Any) -> None:
    address, connect, _, _ = postgres
    with connect() as client:
        client.execute("CREATE TABLE t (reading float8)")
        for begin in (0, 10):
            db = sensors("postgres", [f"{address}?table=t&slot=nile"])
            with reading(db) as until:
                begun(db)
                if begin == 0:
                    client.execute("INSERT INTO t SELECT generate_series(0, 9)")
                    until(10)
                    time.sleep(0.3)  # acknowledged
                assert [row[1] for row in until(10)] == [float(k) for k in range(begin, begin + 10)]
            client.execute("INSERT INTO t SELECT generate_series(10, 19)")


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("a[integer]:1 b[text]:'x'", {"a": "1", "b": "x"}),
        ('"c d"[character varying]:null e[timestamp without time zone]:\'2020-01-01 00:00:00\'',
         {"c d": None, "e": "2020-01-01 00:00:00"}),
        ("f[integer[]]:'{1,2}' g[text]:'h[text]:''no'''", {"f": "{1,2}", "g": "h[text]:'no'"}),
    ],
)  # fmt: skip
def test_a_row_as_the_server_writes_it(text: str, row: dict[str, str | None]) -> None:
    assert dict(cells(text)) == row
