"""Sensors: sources as rows of a table, against what reading each of them by hand would give."""

from __future__ import annotations

import asyncio
import gc
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from thinning import thinned

import nile
from nile import END, NEW_VALUE, NO_VALUE
from nile.execution.registry import Registry
from nile.sql.reading_statements import read_statement
from nile.sql.statement_text import statement_text

DEFAULT = "id INT, place TEXT, value STREAM(reading DOUBLE)"


class Recorded(nile.Sensor):
    """Counts what is called, by address."""

    inits: ClassVar[Counter[str]] = Counter()
    closes: ClassVar[Counter[str]] = Counter()
    reads: ClassVar[Counter[str]] = Counter()

    def init(self, address: Any, row: Any) -> None:
        self.address, self.row = address, row
        Recorded.inits[address] += 1

    def close(self) -> None:
        Recorded.closes[self.address] += 1


class Finite(Recorded):
    """Gives the numbers that its address says, each after a NO_VALUE, at the times 1, 2, ... seconds."""

    def init(self, address: Any, row: Any) -> None:
        super().init(address, row)
        self.left = [float(word) for word in address.split()]
        self.ticks = 0

    def read(self) -> Any:
        self.ticks += 1
        if self.ticks % 2:
            return NO_VALUE
        if not self.left:
            return END
        return NEW_VALUE, self.left.pop(0), self.ticks / 2


class Endless(Recorded):
    every = 0.01

    def init(self, address: Any, row: Any) -> None:
        super().init(address, row)
        self.count = 0

    def read(self) -> Any:
        self.count += 1
        return NEW_VALUE, float(self.count)


class Breaking(Finite):
    """Raises before the second of its values, of each instance."""

    restarts = 2

    def read(self) -> Any:
        if self.ticks >= 2:
            raise OSError("the line is cut")
        return super().read()


class BadInit(Recorded):
    restarts = 1

    def init(self, address: Any, row: Any) -> None:
        super().init(address, row)
        raise OSError("nobody answers")

    def read(self) -> Any:
        return END


class Hanging(Recorded):
    """Of the address "hang", each read sleeps until the test lets it go; of others it is like Endless."""

    timeout = 0.3
    restarts = 1
    released = threading.Event()

    def init(self, address: Any, row: Any) -> None:
        super().init(address, row)
        self.count = 0

    def read(self) -> Any:
        if self.address == "hang":
            self.released.wait()
        self.count += 1
        return (NEW_VALUE, float(self.count)) if self.count <= 500 else END


class Awaited(Finite):
    async def read(self) -> Any:
        await asyncio.sleep(0)
        return super().read()

    async def close(self) -> None:
        super().close()


class Batches(Recorded):
    batch = True

    def init(self, address: Any, row: Any) -> None:
        super().init(address, row)
        self.done = False

    def read(self) -> Any:
        if self.done:
            return END
        self.done = True
        return NEW_VALUE, [{"reading": k + 0.5} for k in range(10_000)], [k / 10 for k in range(10_000)]


class Odd(Finite):
    """Values that do not fit, times that fall or say nothing."""

    def init(self, address: Any, row: Any) -> None:
        super().init(address, row)
        self.said: list[Any] = [
            (1.0, 5.0), ("text", 6.0), (2.0, 4.0), ({"other": 1}, 7.0), (3.0, float("nan")), (4.0, "2020-01-01"),
            (None, None),
        ]  # fmt: skip

    def read(self) -> Any:
        if not self.said:
            return END
        value, at = self.said.pop(0)
        return (NEW_VALUE, value) if at is None else (NEW_VALUE, value, at)


class Wired(Recorded):
    """Reads lines from a socket that a selector waits for."""

    ends: ClassVar[dict[str, socket.socket]] = {}

    def init(self, address: Any, row: Any) -> None:
        super().init(address, row)
        self.end, Wired.ends[address] = socket.socketpair()
        self.asked = 0

    def fileno(self) -> int:
        return self.end.fileno()

    def read(self) -> Any:
        Recorded.reads[self.address] += 1
        data = self.end.recv(8)
        return (NEW_VALUE, float(data)) if data else END

    def close(self) -> None:
        super().close()
        self.end.close()


@pytest.fixture(autouse=True)
def fresh() -> Any:
    for counter in (Recorded.inits, Recorded.closes, Recorded.reads):
        counter.clear()
    yield
    gc.collect()
    deadline = time.monotonic() + 5
    while Recorded.inits != Recorded.closes and time.monotonic() < deadline:
        time.sleep(0.01)
    assert Recorded.inits == Recorded.closes
    assert all(_ends(thread) for thread in threading.enumerate() if thread.name.startswith("nile sensors _poll"))


def _ends(thread: threading.Thread) -> bool:
    thread.join(5)
    return not thread.is_alive()


def made(kind: str, addresses: list[str], columns: str = DEFAULT, rest: str = "") -> nile.Database:
    db = nile.connect()
    db.sql(f"CREATE SENSORS d ({columns} USING '{__name__}:{kind}') {rest}")
    db.sensors("d").add([{"id": k, "place": f"p{k % 3}", "value": text} for k, text in enumerate(addresses)])
    return db


def test_every_value_comes_with_the_columns_of_its_row() -> None:
    addresses = ["1 2 3", "", "4", "5 6"]
    got = made("Finite", addresses, rest="LATENESS '1 hour'").sql("SELECT id, place, reading, ts FROM d").fetchall()
    expected = [
        (k, f"p{k % 3}", float(word), at) for k, text in enumerate(addresses) for at, word in enumerate(text.split(), 1)
    ]
    assert sorted((a, b, c, d.timestamp()) for a, b, c, d in got) == sorted(expected)
    assert [row[3] for row in got] == sorted(row[3] for row in got)
    assert set(Recorded.inits) == set(addresses)


@pytest.mark.parametrize("seed", thinned(range(6), 3))
def test_lateness_is_as_the_definition_says(seed: int) -> None:
    draw = random.Random(seed)
    addresses = [" ".join(str(draw.randrange(9)) for _ in range(draw.randrange(30))) for _ in range(20)]
    db = made("Finite", addresses, rest="LATENESS '2 s'")
    got = db.sql("SELECT id, reading, ts FROM d").fetchall()
    account = db.sensors("d").sources().to_pydict()
    given = [len(text.split()) for text in addresses]
    assert account["tuples_in"] == given
    assert [a + b for a, b in zip(account["applied"], account["late"], strict=True)] == given
    assert account["state"] == ["ended"] * 20
    assert sum(account["applied"]) == len(got)
    times = [row[2] for row in got]
    assert times == sorted(times)
    for k, text in enumerate(addresses):  # of each source a subsequence of what it gave
        values = iter(text.split())
        assert all(any(float(v) == row[1] for v in values) for row in got if row[0] == k)


def test_asynchronous_and_batchwise_sources_give_the_same_answers() -> None:
    addresses = ["1 2 3", "4", "5 6"]
    rows = "SELECT id, sum(reading) AS s, count(*) AS n FROM d GROUP BY id ORDER BY id"
    of_both = [made(kind, addresses, rest="LATENESS '1 hour'").sql(rows).fetchall() for kind in ("Finite", "Awaited")]
    assert of_both[0] == of_both[1] == [(0, 6.0, 3), (1, 4.0, 1), (2, 11.0, 2)]
    assert Recorded.closes == dict.fromkeys(addresses, 2)
    batches = made("Batches", ["x", "y"], rest="LATENESS '1 hour'").sql(rows).fetchall()
    assert batches == [(k, sum(i + 0.5 for i in range(10_000)), 10_000) for k in (0, 1)]


def test_what_does_not_fit_is_rejected_and_what_goes_back_is_late() -> None:
    db = made("Odd", ["1"])
    got = db.sql("SELECT reading FROM d").fetchall()
    assert [row[0] for row in got] == [1.0, 4.0, None]
    account = db.sensors("d").sources().to_pylist()[0]
    assert (account["tuples_in"], account["applied"], account["late"], account["rejected"]) == (7, 3, 1, 3)


def test_sources_outside_the_predicate_are_never_begun() -> None:
    db = made("Finite", [str(k) for k in range(100)])
    text = "SELECT id, reading FROM d WHERE place = 'p1' AND reading > 3 AND id < 50"
    assert "17 of 100 sensors" in db.sql(text).explain()
    assert sorted(db.sql(text).fetchall()) == [(k, float(k)) for k in range(4, 50) if k % 3 == 1]
    assert set(Recorded.inits) == {str(k) for k in range(50) if k % 3 == 1}
    both = "SELECT id, reading FROM d WHERE id = 3 UNION ALL SELECT id, reading FROM d WHERE id = 5"
    Recorded.inits.clear(), Recorded.closes.clear()
    assert sorted(db.sql(both).fetchall()) == [(3, 3.0), (5, 5.0)]
    assert set(Recorded.inits) == {"3", "5"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT id, place FROM d WHERE id < 2 ORDER BY id", [(0, "p0"), (1, "p1")]),
        ("SELECT count(*) AS n FROM d", [(100,)]),
        ("SELECT place, count(*) AS n FROM d GROUP BY place ORDER BY place", [("p0", 34), ("p1", 33), ("p2", 33)]),
        ("SELECT a.id FROM d AS a, d AS b WHERE a.value = b.value AND a.id > 97 ORDER BY a.id", [(98,), (99,)]),
        ("SELECT id FROM d WHERE id NOT IN (SELECT id FROM d WHERE id > 0)", [(0,)]),
    ],
)
def test_a_query_without_dynamic_columns_opens_no_source(text: str, expected: list[Any]) -> None:
    db = made("Finite", [str(k) for k in range(100)])
    assert "0 of 100 sensors" in db.sql(text).explain()
    assert db.sql(text).fetchall() == expected
    assert not Recorded.inits


def test_static_rows_join_a_windowed_stream_without_opening_sources() -> None:
    db = made("Finite", ["7", "8"])
    db.register("sales", {"at": [0.0, 1.0], "id": [1, 5]}, time="at")
    got = db.sql("SELECT sales.at, d.place FROM sales, d WHERE sales.id = d.id WINDOW 60").fetchall()
    assert [row[1] for row in got] == ["p1"]
    assert not Recorded.inits


def test_sources_are_closed_when_the_reader_stops() -> None:
    db = made("Endless", ["a", "b", "c"])
    batches = iter(db.sql("SELECT id, reading FROM d"))
    assert next(batches).num_rows
    batches.close()  # type: ignore[attr-defined]
    assert Recorded.inits == Recorded.closes == {"a": 1, "b": 1, "c": 1}


def test_tuples_within_the_lateness_come_as_soon_as_it_has_passed() -> None:
    batches = iter(made("Endless", ["a", "b"], rest="LATENESS '0.1 s'").sql("SELECT id, reading FROM d"))
    begun = time.monotonic()
    assert {row["id"] for _ in range(3) for row in next(batches).to_pylist()} == {0, 1}
    assert time.monotonic() - begun < 5
    batches.close()  # type: ignore[attr-defined]


def test_two_queries_share_a_source() -> None:
    db = made("Endless", ["a", "b", "c"])
    one = iter(db.sql("SELECT id, reading FROM d WHERE id < 2"))
    next(one)
    two = iter(db.sql("SELECT id, reading FROM d WHERE id > 0"))
    next(two)
    assert Recorded.inits == {"a": 1, "b": 1, "c": 1}
    one.close()  # type: ignore[attr-defined]
    assert Recorded.closes == {"a": 1}
    assert next(two).num_rows
    two.close()  # type: ignore[attr-defined]
    assert Recorded.closes == Recorded.inits


def test_rows_come_change_and_go_while_a_query_runs() -> None:
    db = made("Endless", ["a", "b"])
    table = db.sensors("d")
    batches = iter(db.sql("SELECT id, place, reading FROM d WHERE place <> 'off'"))

    def until(condition: Any) -> list[dict[str, Any]]:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            rows = next(batches).to_pylist()
            if condition(rows):
                return rows
        raise AssertionError("it did not come")

    until(lambda rows: {row["id"] for row in rows} <= {0, 1})
    assert table.add({"id": 2, "place": "p2", "value": "c"}) == 1
    until(lambda rows: any(row["id"] == 2 for row in rows))
    assert table.change("id = 2", place="gate") == 1
    until(lambda rows: any(row["place"] == "gate" for row in rows))
    assert Recorded.inits["c"] == 1  # what it is called changed, not where it is
    table.change("id = 0", place="off")
    until(lambda rows: all(row["id"] != 0 for row in rows))
    until(lambda rows: Recorded.closes["a"] == 1)
    table.change("id = 0", place="on")
    until(lambda rows: any(row["id"] == 0 for row in rows))
    assert Recorded.inits["a"] == 2
    table.change("id = 1", value="e")
    until(lambda rows: Recorded.closes["b"] == 1 and Recorded.inits["e"] == 1)
    assert table.remove("id = 1") == 1
    until(lambda rows: Recorded.closes["e"] == 1)
    until(lambda rows: all(row["id"] != 1 for row in rows))
    table.remove()
    assert list(batches) is not None  # nothing is left: it ends
    assert len(table) == 0


def test_a_source_that_breaks_is_begun_anew_then_given_up() -> None:
    db = made("Breaking", ["1 2 3", "4 5"], rest="LATENESS '1 hour'")
    with pytest.warns(RuntimeWarning, match="failed for good") as told:
        got = db.sql("SELECT id, reading FROM d").fetchall()
    first, last = str(told[0].message), str(told[-1].message)
    assert first.startswith("sensors 'd': needed values of '")
    assert "; got OSError: the line is cut, after 2 restarts; it has failed for good" in first
    assert len(told) == 1 or ", and 1 before it, and is read no more: mend it" in last
    assert Counter(got) == {(0, 1.0): 3, (1, 4.0): 3}  # each beginning gives the first value
    found = db.sensors("d").sources().to_pydict()
    assert found["state"] == ["failed", "failed"]
    assert found["error"] == ["OSError: the line is cut"] * 2
    assert Recorded.inits == {"1 2 3": 3, "4 5": 3}


def test_where_every_source_fails_the_query_says_so() -> None:
    db = made("BadInit", ["x", "y"])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(nile.SourceError, match=r"errors from all 2, the first from 'x': OSError: nobody answers"):
            db.sql("SELECT reading FROM d").fetchall()
    assert len(told) <= 1  # of the first one, while the other was still tried
    assert Recorded.inits == {"x": 2, "y": 2}


def test_a_source_that_hangs_delays_nobody() -> None:
    Hanging.released.clear()
    db = made("Hanging", ["hang", *(f"s{k}" for k in range(50))])
    begun = time.monotonic()
    with pytest.warns(RuntimeWarning, match="needed values of 'hang'; got TimeoutError: a call took longer"):
        got = db.sql("SELECT id, count(reading) AS n FROM d GROUP BY id").fetchall()
    took = time.monotonic() - begun
    assert dict(got) == dict.fromkeys(range(1, 51), 500)
    assert took < 5  # two time-outs of .3 s, a wait of .1 s, and the reads of others meanwhile
    found = db.sensors("d").sources().to_pydict()
    assert found["state"][0] == "failed"
    assert found["error"][0] == "TimeoutError: a call took longer than its timeout of 0.3 s"
    Hanging.released.set()


def test_a_descriptor_is_read_when_it_is_ready_and_not_before() -> None:
    db = made("Wired", ["a", "b"])
    batches = iter(db.sql("SELECT id, reading FROM d"))

    def feed() -> None:
        while len(Wired.ends) < 2:
            time.sleep(0.01)
        time.sleep(0.2)
        for text in ("1", "2", "3"):
            Wired.ends["b"].send(text.encode())
            time.sleep(0.05)
        for end in Wired.ends.values():
            end.close()

    thread = threading.Thread(target=feed)
    thread.start()
    got = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    thread.join()
    Wired.ends.clear()
    assert got == [(1, 1.0), (1, 2.0), (1, 3.0)]
    assert Recorded.reads["a"] <= 2
    assert Recorded.reads["b"] <= 5


def test_thousands_of_sources_are_begun_and_closed_once() -> None:
    addresses = [f"{k}" for k in range(2_000)]
    db = made("Finite", addresses, rest="LATENESS '1 hour'")
    assert db.sql("SELECT count(reading) AS n, sum(reading) AS s FROM d").fetchall() == [(2_000, sum(range(2_000)))]
    assert Recorded.inits == dict.fromkeys(addresses, 1)


def test_rows_may_come_from_a_file_or_a_registered_relation(tmp_path: Any) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,place,value\n1,a,5 6\n2,b,7\n")
    text = f"CREATE OR REPLACE SENSORS d ({DEFAULT} USING '{__name__}:Finite')"
    db = nile.connect()
    db.sql(f"{text} FROM '{path}'")
    assert db.sql("SELECT id, value FROM d").fetchall() == [(1, "5 6"), (2, "7")]
    db.register("rows", path, where="id = 2")
    db.sql(f"{text} FROM rows")
    assert db.sql("SELECT id, reading FROM d").fetchall() == [(2, 7.0)]
    db.sql("DROP SENSORS d")
    assert db.streams == ()


def test_lists_and_several_fields() -> None:
    db = made("Spectra", ["1"], "id INT, place TEXT, value STREAM(energy DOUBLE, counts LIST<INT>, at INT[][])")
    got = db.sql("SELECT energy, counts, at FROM d").fetchall()
    assert got == [(1.5, [1, 2], [[3]]), (2.5, None, None), (None, [], [[]])]


class Spectra(Recorded):
    def init(self, address: Any, row: Any) -> None:
        super().init(address, row)
        assert row == {"id": 0, "place": "p0", "value": "1"}
        self.left: list[Any] = [(1.5, [1, 2], [[3]]), {"energy": 2.5}, [None, [], [[]]]]

    def read(self) -> Any:
        return (NEW_VALUE, self.left.pop(0)) if self.left else END


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"({DEFAULT} USING 'nowhere:Class')", "No module named 'nowhere'"),
        (f"({DEFAULT} USING 'json:loads')", "subclass of nile.Sensor"),
        (f"({DEFAULT} USING 'Nobody')", "or 'module:Class'; got 'Nobody'; define"),
        (f"({DEFAULT} USING 'a b:c')", "needed USING 'module:Class'; got 'a b:c'"),
        (f"({DEFAULT} USING 'nile:Sensor')", "without one; write read"),
        ("(id INT)", "needed a column such as value STREAM"),
        ("(id INT, id TEXT)", "got 'id' again"),
        ("(id INTT, v STREAM(a INT) USING 'a:b')", "did you mean INT"),
        ("(id INT, v STREAM() USING 'a:b')", "a field of the stream"),
        (f"(ts INT, {DEFAULT[8:]} USING '{__name__}:Finite')", "got 'ts' twice"),
        (f"({DEFAULT} USING '{__name__}:Finite') LATENESS '1 s' LATENESS '2 s'", "needed LATENESS once"),
        (f"({DEFAULT} USING '{__name__}:Finite') BUFFER 100", "needed 65.5 kB to"),
        (
            f"({DEFAULT} USING '{__name__}:Finite') WHERE id = 1",
            "FROM source, LATENESS d, IDLE d, BUFFER size or the end",
        ),
    ],
)
def test_bad_declarations_say_what_is_needed(text: str, message: str) -> None:
    with pytest.raises(nile.NileError, match=message.replace("(", r"\(")):
        nile.connect().sql(f"CREATE SENSORS d {text}")


def test_bad_rows_say_what_is_needed() -> None:
    db = made("Finite", ["1"])
    table = db.sensors("d")
    with pytest.raises(nile.SourceError, match="needed columns among id, place, value; got 'plaice'"):
        table.add({"plaice": "x"})
    with pytest.raises(nile.SourceError, match="column 'id' is int32, got string"):
        table.add({"id": "x"})
    with pytest.raises(nile.UnknownColumn, match="did you mean 'place'"):
        table.remove("plaice = 'x'")
    with pytest.raises(nile.SourceError, match="needed values for some of id, place, value; got none"):
        table.change("id = 0")
    with pytest.raises(nile.UnknownStream, match="needed a table that CREATE SENSORS made"):
        db.sensors("e")
    assert pa.types.is_int32(db.schema("d").field("id").type)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE SENSORS d (id INT, v STREAM(a DOUBLE, b INT[]) USING 'm:C')",
        'CREATE OR REPLACE SENSORS "d e" ("group" TEXT, v STREAM("a b" BLOB) USING \'C\') LATENESS \'2 s\'',
        "CREATE SENSORS d (v STREAM(a LIST<LIST<INT>>) USING 'C') LATENESS 60 IDLE '5 s' BUFFER '1 MB' FROM rows",
    ],
)
def test_the_statement_written_out_reads_the_same(text: str) -> None:
    catalog = Registry()
    if '"d e"' in text:
        with pytest.raises(nile.SqlError, match="needed a plain name such as store1 for the sensors"):
            read_statement(text, catalog)
        text = text.replace('"d e"', "d")
    statement = read_statement(text, catalog)
    assert read_statement(statement_text(statement), catalog) == statement


EXITING = """
import sys, nile
from nile import NEW_VALUE

class Told(nile.Sensor):
    def init(self, address, row):
        print("init", address)
    def read(self):
        return NEW_VALUE, 1.0
    def close(self):
        print("close")

db = nile.connect()
db.sql("CREATE SENSORS d (v STREAM(reading DOUBLE) USING 'Told')")
db.sensors("d").add([{"v": "a"}, {"v": "b"}])
batches = iter(db.sql("SELECT reading FROM d"))
next(batches)
"""


@pytest.mark.parametrize("end", ["", "raise KeyboardInterrupt"])
def test_sources_are_closed_when_the_process_ends(end: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXITING + end], capture_output=True, text=True, timeout=60, check=False
    )
    assert sorted(done.stdout.split("\n")) == ["", "close", "close", "init a", "init b"]


def test_an_interrupted_reader_closes_its_sources() -> None:
    db = made("Wired", ["a"])
    batches = iter(db.sql("SELECT reading FROM d"))
    threading.Timer(0.5, lambda: signal.raise_signal(signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert Recorded.inits == Recorded.closes == {"a": 1}
    for end in Wired.ends.values():
        end.close()


@pytest.mark.slow
def test_a_hundred_queries_over_a_hundred_sources_begin_each_once() -> None:
    db = made("Slow", [str(k) for k in range(100)])
    queries = [iter(db.sql("SELECT id, reading FROM d WHERE id <> ?", [k])) for k in range(100)]
    seen: list[set[int]] = [set() for _ in queries]
    for query in queries:
        next(query)
    assert Recorded.inits == {str(k): 1 for k in range(100)}
    for k, query in list(enumerate(queries))[::10]:
        while len(seen[k]) < 99:
            seen[k].update(row["id"] for row in next(query).to_pylist())
        assert seen[k] == set(range(100)) - {k}
    assert not Recorded.closes
    for query in queries:
        query.close()  # type: ignore[attr-defined]
    assert Recorded.closes == Recorded.inits


class Slow(Endless):
    every = 0.2


def test_a_store_opens_without_the_tables_of_sensors_that_it_had(tmp_path: Any) -> None:
    with nile.connect(tmp_path / "store") as db:
        db.stream("sales", [("ts", pa.timestamp("us")), ("item", pa.string())], time="ts")
        db.sql(f"CREATE SENSORS d ({DEFAULT} USING 'Finite')")
        db.sensors("d").add({"id": 0, "value": "1 2"})
        assert db.sql("SELECT reading FROM d").fetchall() == [(1.0,), (2.0,)]
    with nile.connect(tmp_path / "store") as db:
        assert db.streams == ("sales",)


def test_ten_thousand_sources_are_begun_read_and_closed_once_each() -> None:
    addresses = [str(k) for k in range(10_000)]
    db = made("Slow", addresses)
    batches = iter(db.sql("SELECT id, place, reading FROM d WHERE place <> 'none' AND reading > 0"))
    seen: set[int] = set()
    while len(seen) < 10_000:
        seen.update(next(batches).column("id").to_pylist())
    batches.close()  # type: ignore[attr-defined]
    assert Recorded.inits == Recorded.closes == dict.fromkeys(addresses, 1)


class Versioned(nile.Sensor):
    """Three values whose fields have the names of what Nile keeps beside them."""

    def init(self, address: Any, row: Any) -> None:  # noqa: ARG002
        self.count = 0

    def read(self) -> Any:
        self.count += 1
        return (NEW_VALUE, {"version": self.count, "x": 100 * self.count}) if self.count < 4 else END


def test_a_field_may_be_called_as_what_is_kept_beside_it() -> None:
    with nile.connect() as db:
        db.sql("CREATE SENSORS d (id INT, v STREAM(version INT, x INT) USING 'Versioned')")
        db.sensors("d").add({"id": [1]})
        assert db.sql("SELECT version, x FROM d").fetchall() == [(1, 100), (2, 200), (3, 300)]
