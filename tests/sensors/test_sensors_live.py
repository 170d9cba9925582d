"""Standing queries over sensors: what db.sql finds over what the same sources give, while they give it."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import nile
from nile import END, NEW_VALUE, NO_VALUE

COLUMNS = "id INT, place TEXT, value STREAM(reading DOUBLE)"


class Planned(nile.Sensor):
    """Gives "seed count": so many readings at rising times, told by the seed; of 0 one after the other, for ever."""

    opened: ClassVar[Counter[str]] = Counter()
    closed: ClassVar[Counter[str]] = Counter()

    def init(self, address: Any, _: Any) -> None:
        seed, count = address.split()
        self.address, self.draw, self.left, self.ts = address, random.Random(int(seed)), int(count) or -1, 0.0
        Planned.opened[address] += 1

    def read(self) -> Any:
        if self.left == 0:
            return END
        if self.draw.random() < 0.2:
            return NO_VALUE
        if self.left < 0:
            return NEW_VALUE, 4.0
        self.left -= 1
        self.ts += self.draw.randrange(1, 4)
        return NEW_VALUE, float(self.draw.randrange(5)), self.ts

    def close(self) -> None:
        Planned.closed[self.address] += 1


@pytest.fixture(autouse=True)
def fresh() -> None:
    Planned.opened.clear()
    Planned.closed.clear()


def database(*tables: str, count: int = 40) -> nile.Database:
    db, lateness = nile.connect(), "LATENESS '1 day'" if count else ""
    for at, name in enumerate(tables or ("d",)):
        db.sql(f"CREATE SENSORS {name} ({COLUMNS} USING 'Planned') {lateness}")
        db.sensors(name).add(
            [{"id": k, "place": "up" if k > 3 else "down", "value": f"{100 * at + k} {count}"} for k in range(6)]
        )
    return db


def until(met: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.01)


QUERIES = [
    "SELECT id, ts, reading FROM d",
    "SELECT id, reading FROM d WHERE place = 'up' AND reading > 2",
    "SELECT a.id AS a, b.id AS b, a.reading FROM d a, e b WHERE a.reading = b.reading AND b.place = 'up' WINDOW 3",
    "SELECT a.id AS a, b.id AS b FROM d a, d b WHERE a.reading = b.reading AND a.id < b.id AND a.place = 'up' WINDOW 3",
    "SELECT a.id AS a, b.id AS b, a.reading FROM d a, e b WHERE a.reading = b.reading "
    "WITH PREFERENCE desc a.reading WINDOW 3",
]


@pytest.mark.parametrize("text", QUERIES)
def test_a_standing_query_finds_what_one_over_the_same_values_does(text: str) -> None:
    options: dict[str, Any] = {"budget": 1.0} if "PREFERENCE" in text else {}
    db = database("d", "e")
    found = db.subscribe(text, **options)
    rows = [tuple(row.values()) for batch in found.follow(20) for row in batch.to_pylist()]
    assert found.closed  # the sources have ended
    assert Counter(rows) == Counter(db.sql(text, **options).fetchall())
    assert rows
    assert Planned.opened == Planned.closed


def test_groups_are_told_as_changes() -> None:
    db = database()
    text = "SELECT id, count(reading) AS n, sum(reading) AS s FROM d GROUP BY id"
    state: Counter[tuple[Any, ...]] = Counter()
    for batch in db.subscribe(text).follow(20):
        for row in batch.to_pylist():
            state[row["id"], row["n"], row["s"]] += row["_sign"]
    assert sorted(+state) == sorted(db.sql(text).fetchall())


def test_only_sources_that_the_query_wants_run_and_until_it_is_closed() -> None:
    db = database(count=0)
    with db.subscribe("SELECT id FROM d WHERE place = 'up' AND reading > 3") as found:
        until(lambda: found.unread > 5)
        assert set(Planned.opened) == {"4 0", "5 0"}
        db.sensors("d").add([{"id": 7, "place": "up", "value": "7 0"}])
        until(lambda: any(row["id"] == 7 for batch in found.poll() for row in batch.to_pylist()))
    assert Planned.opened == Planned.closed
    db.subscribe("SELECT id, reading FROM d")
    until(lambda: len(Planned.opened) == 7)
    db.close()
    assert Planned.opened == Planned.closed


def test_a_full_query_keeps_its_sources_waiting_and_loses_nothing() -> None:
    db = database(count=500)
    found = db.subscribe("SELECT id, reading FROM d", unread=50, when_full="refuse")
    slow = db.subscribe("SELECT id, reading FROM d", unread=50)
    rows: list[int] = []
    for queue in (found, slow):
        rows.append(0)
        while not (queue.closed and not queue.unread):
            rows[-1] += sum(batch.num_rows for batch in queue.poll())
    assert rows == [3000, 3000]


def test_a_query_joins_sensors_with_what_is_pushed() -> None:
    db = database()
    db.stream("orders", [("at", "double"), ("reading", "double")], time="at")
    found = db.subscribe("SELECT d.id, o.at FROM d, orders o WHERE d.reading = o.reading WINDOW 2")
    orders = {"at": [float(k) for k in range(200)], "reading": [k % 5.0 for k in range(200)]}
    db.push("orders", orders)
    until(lambda: found.outputs > 0 and next(iter(Planned.closed.values()), 0) == 1 and len(Planned.closed) == 6)
    assert not found.closed
    db.close()
    told = Counter(tuple(row.values()) for batch in found.poll() for row in batch.to_pylist())
    other = database()
    other.register("orders", orders, time="at")
    asked = other.sql("SELECT d.id, o.at FROM d, orders o WHERE d.reading = o.reading WINDOW 2").fetchall()
    assert told == Counter(asked)


class Refusing(nile.Sensor):
    def init(self, *_: Any) -> None:
        raise nile.SourceError("nobody is there")

    def read(self) -> Any:
        return END


def test_a_reader_hears_that_all_sources_failed() -> None:
    db = nile.connect()
    db.sql(f"CREATE SENSORS d ({COLUMNS} USING 'Refusing')")
    db.sensors("d").add([{"id": 1, "value": "a"}])
    found = db.subscribe("SELECT id, reading FROM d")
    with pytest.raises(nile.SourceError, match="nobody is there"):
        list(found.follow(20))
    assert found.closed
    assert found.poll() == []


def test_a_callback_is_told_and_ends_its_query_when_it_raises() -> None:
    db = database()
    told: list[int] = []

    def callback(batch: Any) -> None:
        told.append(batch.num_rows)
        if sum(told) > 50:
            raise ValueError("enough")

    before = {thread.ident for thread in threading.enumerate()}
    found = db.subscribe("SELECT id, reading FROM d", callback)
    until(lambda: found.closed)
    with pytest.raises(ValueError, match="enough"):
        found.poll()
    until(lambda: Planned.opened == Planned.closed)
    until(lambda: not [one for one in threading.enumerate() if "feed" in one.name and one.ident not in before])


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_is_no_exception_in_a_callback_reaches_the_reader_and_no_other_query(kind: type[BaseException]) -> None:
    db = database(count=100)
    told: list[int] = []

    def callback(_: Any) -> None:
        raise kind("of a callback")

    bad = db.subscribe("SELECT id, reading FROM d", callback)
    good = db.subscribe("SELECT id, reading FROM d", lambda batch: told.append(batch.num_rows))
    until(lambda: bad.closed and good.closed)
    with pytest.raises(kind, match="of a callback"):
        bad.poll()
    assert sum(told) == good.outputs == 600


@pytest.mark.parametrize(
    ("text", "opened"),
    [
        ("SELECT id, reading FROM d WHERE place = 'up' WITH PREFERENCE desc reading", 2),
        (
            "SELECT a.id, b.id, a.reading FROM d a, e b WHERE a.reading = b.reading AND a.place = 'up' AND b.id = 1 "
            "WITH PREFERENCE desc a.reading WINDOW 3",
            3,
        ),
        ("SELECT count(reading) AS n FROM d WHERE place = 'up' BUDGET 10 PERCENT", 2),
        ("SELECT a.id FROM d a, d b WHERE a.reading = b.reading AND a.id = 1 AND b.id = 2 WINDOW 3", 2),
    ],
)
def test_preferences_and_windows_open_only_what_static_conditions_leave(text: str, opened: int) -> None:
    db = database("d", "e")
    db.sql(text).fetchall()
    assert sum(Planned.opened.values()) == opened


class Stopping(nile.Sensor):
    """Raises what is no Exception, once at each of init, read and close."""

    kind: ClassVar[type[BaseException]] = KeyboardInterrupt
    left: ClassVar[list[str]] = []

    def troubled(self, where: str) -> None:
        if where in Stopping.left:
            Stopping.left.remove(where)
            raise Stopping.kind("of a source")

    def init(self, *_: Any) -> None:
        self.troubled("init")

    def read(self) -> Any:
        self.troubled("read")
        at = self.place = (self.place or 0) + 1
        return (NEW_VALUE, float(at)) if at < 4 else END

    def close(self) -> None:
        self.troubled("close")


class StoppingLater(Stopping):
    """The same, awaited."""

    async def init(self, *_: Any) -> None:  # type: ignore[override]
        self.troubled("init")

    async def read(self) -> Any:
        return super().read()

    async def close(self) -> None:  # type: ignore[override]
        self.troubled("close")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("source", ["Stopping", "StoppingLater"])
def test_what_is_no_exception_in_a_source_ends_neither_its_thread_nor_other_sources(
    source: str, kind: type[BaseException]
) -> None:
    Stopping.kind, Stopping.left = kind, ["init", "read", "close"]
    db = nile.connect()
    for name, one in (("d", source), ("e", "Planned")):
        db.sql(f"CREATE SENSORS {name} ({COLUMNS} USING '{one}') LATENESS '1 day'")
    db.sensors("d").add([{"id": 1, "value": "a"}])
    db.sensors("e").add([{"id": 2, "value": "2 40"}])
    found, other = db.subscribe("SELECT id, reading FROM d"), db.subscribe("SELECT id, reading FROM e")
    assert [row["reading"] for batch in found.follow(20) for row in batch.to_pylist()] == [1.0, 2.0, 3.0]
    assert sum(batch.num_rows for batch in other.follow(20)) == 40
    assert not Stopping.left
    assert kind.__name__ in db.sensors("d").sources()["error"][0].as_py()


class Once(nile.Sensor):
    """One value, and then silence for ever: it is dead."""

    def init(self, address: Any, _: Any) -> None:
        self.left = [float(address)]

    def read(self) -> Any:
        return (nile.NEW_VALUE, self.left.pop()) if self.left else nile.NO_VALUE


class Steady(nile.Sensor):
    every = 0.02

    def init(self, address: Any, _: Any) -> None:
        self.at = float(address)

    def read(self) -> Any:
        self.at += 1
        return nile.NEW_VALUE, self.at


@pytest.mark.parametrize("dead", ["a", "b", "c"])
def test_a_table_that_has_died_holds_up_no_operator_beyond_its_idle_time(dead: str) -> None:
    with nile.connect() as db:
        for name in "abc":
            using = "Once" if name == dead else "Steady"
            db.sql(f"CREATE SENSORS {name} (k INT, v STREAM({name}v DOUBLE) USING '{using}') IDLE '0.3 s'")
            db.sensors(name).add([{"k": 1, "v": "5"}])
        text = "SELECT av, bv, cv FROM a, b, c WHERE a.k = b.k AND b.k = c.k WINDOW 1000"
        standing = db.subscribe(text)
        got: list[Any] = []
        for batch in standing.follow(20):
            got += batch.to_pylist()
            alive = [{row[f"{name}v"] for row in got} for name in "abc" if name != dead]
            if min(map(len, alive)) >= 30:
                break
        assert min(map(len, alive)) >= 30, "tuples since it died are joined with what it gave"
        assert {row[f"{dead}v"] for row in got} == {5.0}
        assert len({tuple(row.values()) for row in got}) == len(got)
        standing.close()
        assert db._live.fed == []


@pytest.mark.parametrize("emit", ["EMIT ON WINDOW CLOSE", "EMIT EVERY '30 s'"])
def test_windows_that_are_open_when_all_sources_have_ended_are_told(emit: str) -> None:
    text = f"""SELECT place, window_end, count(reading) AS n FROM TUMBLE (d, ts, INTERVAL '20 seconds')
               GROUP BY place, window_end {emit}"""
    with database() as db:
        wanted = db.sql(text).fetchall()
        told = [tuple(row.values()) for batch in db.subscribe(text).follow(20) for row in nile.rows(batch)]
        assert Counter(told) == Counter(wanted)
        if "CLOSE" in emit:
            assert sum(row[-1] for row in told) == 240
