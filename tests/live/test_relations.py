"""Relations that change: INSERT, UPDATE and DELETE at instants; DuckDB over what holds then is the judge."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from thinning import thinned

import nile
from nile.execution.live.relations import versions_of
from nile.sql.reading_statements import read_statement
from nile.sql.statement_text import statement_text

STREAM = pa.schema([("ts", pa.float64()), ("item", pa.string()), ("n", pa.int64())])
PRICES = pa.schema([("item", pa.string()), ("price", pa.float64())])
WINDOW = 7
VIEWS = {
    "totals": "SELECT item, sum(price) AS total, count(*) AS k FROM s JOIN prices USING (item) GROUP BY item",
    "dear": "SELECT item, total FROM totals WHERE total > 4",
}
QUERIES = (
    "SELECT s.n, t.total, t.k FROM s, totals t WHERE s.item = t.item",
    "SELECT p.item, p.price, d.total FROM prices p LEFT JOIN dear d ON p.item = d.item",
    "SELECT d.item, count(*) AS k, sum(d.total) AS most FROM dear d, s WHERE d.item <> s.item GROUP BY d.item",
    "SELECT s.item, s.n, p.price FROM s, prices p WHERE s.item = p.item",
    "SELECT s.item, s.n, p.price FROM s LEFT JOIN prices p ON s.item = p.item AND p.price < 6",
    "SELECT p.item, p.price, s.n FROM s FULL JOIN prices p ON s.item = p.item",
    "SELECT item, sum(price) AS total, count(*) AS k FROM s JOIN prices USING (item) GROUP BY item",
    "SELECT s.n FROM s WHERE NOT EXISTS (SELECT 1 FROM prices p WHERE p.item = s.item)",
    "SELECT n FROM s WHERE item IN (SELECT item FROM prices WHERE price > 3)",
    "SELECT price, count(*) AS k FROM prices, s GROUP BY price",
    "SELECT item FROM prices EXCEPT SELECT item FROM s",
    "SELECT s.n, p.price, row_number() OVER (PARTITION BY s.item ORDER BY s.n, s.ts, p.price) AS r FROM s, prices p "
    "WHERE s.item = p.item",
    "SELECT count(*) AS k, max(p.price) AS most FROM s, prices p WHERE s.n < p.price",
)


LOOKUPS = (
    "SELECT s.n, p.price, s.n * p.price AS paid FROM s JOIN prices {} p ON s.item = p.item AND p.price > 1",
    "SELECT s.n, p.price FROM s LEFT JOIN prices {} p ON s.item = p.item WHERE s.n < 4",
    "SELECT item, s.n, p.price, q.price AS other FROM s JOIN prices {} p USING (item) LEFT JOIN prices {} q "
    "ON q.price = p.price + 1",
)
"""{}: FOR SYSTEM_TIME AS OF s.ts, which DuckDB is not told: it sees each instant by itself."""


def windowed(query: str) -> str:
    return f"{query} WINDOW {WINDOW}" if "FROM s" in query or ", s " in f"{query} " else query


@dataclass
class World:
    """The same statements in Nile and in DuckDB, and what DuckDB's relation was after each."""

    db: nile.Database
    oracle: duckdb.DuckDBPyConnection = field(default_factory=duckdb.connect)
    judge: duckdb.DuckDBPyConnection = field(default_factory=duckdb.connect)
    versions: list[tuple[float, pa.Table]] = field(default_factory=lambda: [(-1.0, PRICES.empty_table())])
    rows: list[tuple[float, str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.oracle.execute("CREATE TABLE prices (item VARCHAR, price DOUBLE)")
        self.judge.execute("CREATE TABLE s (ts DOUBLE, item VARCHAR, n BIGINT)")
        self.judge.execute("CREATE TABLE prices (item VARCHAR, price DOUBLE)")
        for name, query in VIEWS.items():
            self.judge.execute(f"CREATE VIEW {name} AS {query}")

    def change(self, text: str, at: float) -> None:
        self.db.sql(f"{text} AT {at}")
        self.oracle.execute(text)
        self.versions.append((at, self.oracle.sql("SELECT * FROM prices").to_arrow_table()))

    def push(self, rows: list[tuple[float, str, int]]) -> None:
        self.db.push("s", dict(zip(STREAM.names, zip(*rows, strict=True), strict=True)))
        self.rows += rows

    def expected(self, query: str, at: float, window: float = WINDOW) -> Counter[tuple[Any, ...]]:
        inside = [row for row in self.rows if row[0] <= at <= row[0] + window]
        held = pa.Table.from_pylist([dict(zip(STREAM.names, row, strict=True)) for row in inside], STREAM)
        stored = next(table for when, table in self.versions[::-1] if when <= at)
        for name, table in (("s", held), ("prices", stored)):
            self.judge.register("given", table)
            self.judge.execute(f"DELETE FROM {name}")
            self.judge.execute(f"INSERT INTO {name} SELECT * FROM given")
        return Counter(self.judge.sql(query).fetchall())


def changes_of(random: np.random.Generator) -> str:
    item, price = random.choice(["a", "b", "c", "d"]), int(random.integers(0, 9))
    kind = random.integers(0, 5)
    if kind < 2:
        return f"INSERT INTO prices VALUES ('{item}', {price}), ('{item}', {price + 0.5})"
    if kind == 2:
        return f"INSERT INTO prices (price, item) SELECT price + 1, 'd' FROM prices WHERE item = '{item}' AND price < 5"
    if kind == 3:
        where = f"item = '{item}' OR price BETWEEN {price} AND {price + 1}"
        return f"UPDATE prices SET price = CASE WHEN price > 4 THEN 0 ELSE price + 2 END WHERE {where}"
    return f"DELETE FROM prices WHERE item = '{item}' AND price > {price}"


def database(where: Path | None = None) -> nile.Database:
    db = nile.connect() if where is None else nile.connect(where)
    db.stream("s", STREAM, time="ts")
    db.sql("CREATE RELATION prices (item TEXT, price DOUBLE)")
    return db


def summed(found: list[dict[str, Any]], at: float) -> Counter[tuple[Any, ...]]:
    held: Counter[tuple[Any, ...]] = Counter()
    for row in found:
        if row["_ts"].value <= at * 1e9:
            held[tuple(value for name, value in row.items() if name not in ("_ts", "_sign"))] += row["_sign"]
    return +held if min(held.values(), default=0) >= 0 else held


def run(seed: int, where: Path | None) -> tuple[World, list[list[dict[str, Any]]]]:
    """Random pushes, in random cuts, and changes between them, some at a tuple's own instant; restarts with a store."""
    random = np.random.default_rng(seed)
    world = World(database(where))
    found: list[list[dict[str, Any]]] = [[] for _ in QUERIES]
    world.change("INSERT INTO prices VALUES ('a', 1), ('b', 2), ('b', 2)", 0.0)
    for name, query in VIEWS.items():
        world.db.sql(f"CREATE MATERIALIZED VIEW {name} AS {windowed(query)}")
    for at, query in enumerate(QUERIES):
        world.db.subscribe(windowed(query), name=f"q{at}", emit="changes")
    for at, query in enumerate(LOOKUPS):
        world.db.subscribe(query.replace("{}", "FOR SYSTEM_TIME AS OF s.ts"), name=f"lookup{at}")
    now = 0.0
    for _ in range(20):
        if random.random() < 0.5:
            now += float(random.integers(0, 4))
            world.change(changes_of(random), now)
        else:
            times = now + np.cumsum(random.integers(0, 3, random.integers(1, 4)))
            now = float(times[-1])
            world.push([(float(t), str(random.choice(["a", "b", "c"])), int(random.integers(0, 5))) for t in times])
        if where is not None and random.random() < 0.2:
            world.db.close()
            world.db = nile.connect(where)
    world.db.advance(now + 0.5)
    for name, query in VIEWS.items():
        assert Counter(world.db.sql(f"SELECT * FROM {name}").fetchall()) == world.expected(query, now + 0.4), name
    world.db.advance(now + 20)
    for at in range(len(QUERIES)):
        found[at] += [row for batch in world.db.subscription(f"q{at}").poll() for row in batch.to_pylist()]
    for at, query in enumerate(LOOKUPS):
        told = [row for batch in world.db.subscription(f"lookup{at}").poll() for row in batch.to_pylist()]
        wanted: Counter[tuple[Any, ...]] = Counter()
        for instant in {row[0] for row in world.rows}:
            wanted += world.expected(query.replace("{}", ""), instant, 0.0)
        assert Counter(tuple(row.values()) for row in told) == wanted, query
        again = world.db.sql(query.replace("{}", "FOR SYSTEM_TIME AS OF s.ts"))
        assert Counter(again.fetchall()) == wanted, query
    return world, found


@pytest.mark.parametrize(
    "seed", [*thinned([0, 1], 2), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 20))]
)
@pytest.mark.parametrize("stored", thinned([True, False], 2))
def test_at_every_instant_standing_queries_equal_duckdb(seed: int, stored: bool, tmp_path: Path) -> None:
    world, found = run(seed, tmp_path / "store" if stored else None)
    instants = sorted({at for at, _ in world.versions[1:]} | {row[0] for row in world.rows})
    for query, told in zip(QUERIES, found, strict=True):
        for at in [*instants, instants[-1] + 3, *(at + 0.5 for at in instants[::9])]:
            assert summed(told, at) == world.expected(query, at), (query, at)
    rows = Counter(world.db.sql("SELECT * FROM prices").fetchall())
    assert rows == Counter(world.oracle.sql("SELECT * FROM prices").fetchall())


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 20))])
def test_what_is_asked_afterwards_tells_the_same_changes(seed: int) -> None:
    """One-shot queries with a WINDOW read the log of the relation; without one they see it as it is now."""
    world, found = run(seed, None)
    instants = sorted({at for at, _ in world.versions[1:]} | {row[0] for row in world.rows})
    for query, told in zip(QUERIES, found, strict=True):
        again = world.db.sql(windowed(query), emit="changes").to_arrow().to_pylist()
        for at in instants:
            assert summed(again, at) == summed(told, at), (query, at)


def test_a_wrong_sign_is_seen() -> None:
    """The control: with one sign turned the comparison fails."""
    world, found = run(1, None)
    row = next(row for row in found[3] if row["_sign"] < 0)
    row["_sign"] = 1
    end = max(at for at, _ in world.versions) + 10
    assert summed(found[3], end) != world.expected(QUERIES[3], end)


def test_a_change_at_a_tuples_own_instant_counts_for_the_tuple() -> None:
    db = database()
    told = db.subscribe("SELECT s.n, p.price FROM s [NOW], prices p WHERE s.item = p.item", emit="append")
    db.sql("INSERT INTO prices VALUES ('a', 1) AT 1")
    db.push("s", {"ts": [2.0], "item": ["a"], "n": [1]})
    db.sql("UPDATE prices SET price = 2 AT 2")
    db.push("s", {"ts": [3.0], "item": ["a"], "n": [2]})
    db.advance(4)
    assert [row for batch in told.poll() for row in batch.to_pylist()] == [
        {"n": 1, "price": 2.0},
        {"n": 2, "price": 2.0},
    ]


def test_a_change_that_was_told_of_already_is_refused_before_anything() -> None:
    db = database()
    db.subscribe("SELECT s.n, p.price FROM s, prices p WHERE s.item = p.item WINDOW 5")
    db.push("s", {"ts": [2.0, 9.0], "item": ["a", "a"], "n": [1, 1]})
    with pytest.raises(nile.NileError, match="needed an instant that can still come, 1970-01-01T00:00:09"):
        db.sql("INSERT INTO prices VALUES ('a', 1) AT 5")
    assert db.sql("SELECT * FROM prices").fetchall() == []
    db.sql("INSERT INTO prices VALUES ('a', 1) AT '1970-01-01 00:00:09'")
    with pytest.raises(nile.NileError, match="or the relation itself"):
        db.sql("DELETE FROM prices AT 8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE RELATION r (a INTEGER, a TEXT)", "name of its own for each column; got 'a' again"),
        ("CREATE RELATION r (a NUMBER)", "needed a type"),
        ("CREATE RELATION r (a INTEGER, _sign INTEGER)", "none of them _ts or _sign"),
        ("CREATE RELATION prices (a INTEGER)", "the name 'prices' is taken"),
        ("INSERT INTO prices VALUES ('a')", "needed 2 values in a row; got 1"),
        ("INSERT INTO prices VALUES ('a', 'dear')", "row 1: needed double for column 'price'; got 'dear'"),
        ("UPDATE prices SET prize = 1", "line 1, column 19: needed columns of prices"),
        ("UPDATE prices SET price = prize", "line 1, column 27: needed a column"),
        ("UPDATE prices SET price = max(price)", "line 1, column 31: needed single rows in SET"),
        ("UPDATE prices SET price = , item = 'a'", "needed a value for price"),
        ("UPDATE prices SET price = 1, price = 2", "each once; got 'price'"),
        ("UPDATE prices SET price = 'dear'", "needed double for column 'price'; got string"),
        ("UPDATE s SET n = 1", "line 1, column 8: needed a relation that"),
        ("UPDATE stock SET n = 1", "line 1, column 8: needed a relation that"),
        ("DELETE FROM prices WHERE prize > 1", "line 1, column 26: needed a column"),
        ("DELETE FROM s AT 5", "line 1, column 15: needed a relation for AT"),
        ("INSERT INTO prices VALUES ('a', 1) AT 'soon'", "needed a moment"),
        ("SELECT * FROM prices [RANGE 5]", "needed a stream before a window"),
        (
            "SELECT 1 FROM s JOIN prices FOR SYSTEM_TIME AS OF s.n p ON s.item = p.item",
            "AS OF the time of the one stream",
        ),
        (
            "SELECT 1 FROM prices p JOIN s FOR SYSTEM_TIME AS OF s.ts ON s.item = p.item",
            "needed a stored relation before",
        ),
        ("SELECT 1 FROM s, prices FOR SYSTEM_TIME AS OF s.ts", "needed JOIN or LEFT JOIN"),
        ("SELECT 1 FROM s JOIN prices FOR VERSION AS OF 3 p ON s.item = p.item", "AS OF and a time, such as o.ts"),
        ("SELECT 1 FROM s JOIN prices FOR SYSTEM_TIME AS OF s.ts p ON s.item = p.item WINDOW 5", "window of its own"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, message: str) -> None:
    db = database()
    db.register("stock", {"n": [1]})
    db.sql("INSERT INTO prices VALUES ('a', 1)")
    with pytest.raises(nile.NileError, match=message):
        db.sql(text)
    assert db.sql("SELECT * FROM prices").fetchall() == [("a", 1.0)]


def test_a_relation_goes_and_can_be_made_anew() -> None:
    db = database()
    db.sql("INSERT INTO prices VALUES ('a', 1)")
    db.subscribe("SELECT s.n, p.price FROM s, prices p WHERE s.item = p.item WINDOW 5", name="q")
    with pytest.raises(nile.NileError, match="close it first"):
        db.sql("DROP RELATION prices")
    db.sql("DROP QUERY q")
    db.sql("CREATE OR REPLACE RELATION prices (name TEXT)")
    assert db.sql("SELECT * FROM prices").fetchall() == []
    db.sql("DROP RELATION prices")
    assert db.relations == ()


def test_statements_read_again_are_the_same() -> None:
    db = database()
    for text in (
        'CREATE OR REPLACE RELATION r (a INTEGER, "b c" DOUBLE[])',
        "INSERT INTO prices VALUES ('a', 1) AT '2024-01-01'",
        "UPDATE prices SET price = price + 1, item = 'b' WHERE item = 'a' AT 5",
        "DELETE FROM prices WHERE price > 1 AT 2.5",
        "CREATE OR REPLACE MATERIALIZED VIEW v (a) AS SELECT item, count(*) AS n FROM s GROUP BY item WINDOW 5",
        "DROP MATERIALIZED VIEW IF EXISTS v",
        LOOKUPS[2].replace("{}", "FOR SYSTEM_TIME AS OF s.ts"),
        "SELECT t.item FROM ISTREAM (SELECT item, n FROM s [RANGE 5]) AS t [RANGE 3]",
    ):
        statement = read_statement(text, db._names)
        assert read_statement(statement_text(statement), db._names) == statement


def test_a_view_begins_with_what_is_kept_and_goes_when_nobody_reads_it(tmp_path: Path) -> None:
    with nile.connect(tmp_path / "store") as db:
        db.stream("s", STREAM, time="ts")
        db.push("s", {"ts": [1.0, 2.0, 3.0], "item": ["a", "a", "b"], "n": [1, 2, 3]})
        db.sql("CREATE MATERIALIZED VIEW sums (what) AS SELECT item, sum(n) AS total FROM s GROUP BY item")
        db.sql("CREATE MATERIALIZED VIEW many AS SELECT what FROM sums WHERE total > 3")
        db.advance(4)
        assert sorted(db.sql("SELECT what, total FROM sums").fetchall()) == [("a", 3), ("b", 3)]
        with pytest.raises(nile.NileError, match="got 'many'; close it first"):
            db.sql("DROP MATERIALIZED VIEW sums")
        with pytest.raises(nile.NileError, match="got 'many'; close it first"):
            db.sql("CREATE OR REPLACE MATERIALIZED VIEW sums AS SELECT n FROM s")
        with pytest.raises(nile.NileError, match="got a view; change what it reads"):
            db.sql("INSERT INTO sums VALUES ('a', 1)")
        db.push("s", {"ts": [5.0], "item": ["a"], "n": [1]})
    with nile.connect(tmp_path / "store") as db:
        db.advance(6)
        assert db.sql("SELECT * FROM many").fetchall() == [("a",)]
        db.sql("DROP MATERIALIZED VIEW many")
        db.sql("CREATE OR REPLACE MATERIALIZED VIEW sums AS SELECT count(*) AS n FROM s")
        assert db.sql("SELECT * FROM sums").fetchall() == [(4,)]
        db.sql("DROP MATERIALIZED VIEW sums")
        db.sql("DROP MATERIALIZED VIEW IF EXISTS sums")
        assert db.relations == db.subscriptions == ()


def test_the_log_of_a_view_stays_as_long_as_its_rows() -> None:
    with nile.connect() as db:
        db.stream("s", STREAM, time="ts")
        db.sql("CREATE MATERIALIZED VIEW sums AS SELECT item, sum(n) AS total FROM s GROUP BY item")
        for begin in range(0, 200_000, 20_000):
            n = np.arange(begin, begin + 20_000)
            db.push("s", {"ts": n * 1.0, "item": np.where(n % 2, "a", "b"), "n": n})
        db.advance(200_000)
        assert sorted(db.sql("SELECT * FROM sums").fetchall()) == [("a", 10_000_000_000), ("b", 9_999_900_000)]
        assert db._live.streams()["sums"].rows < 140_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE MATERIALIZED VIEW v AS ISTREAM (SELECT n FROM s)", "line 1, column 31: needed a relation for a view"),
        ("CREATE MATERIALIZED VIEW v (a, b) AS SELECT n FROM s", "at most 1 names of columns; got 2"),
        ("CREATE MATERIALIZED VIEW s AS SELECT n FROM s", "the name 's' is taken"),
        ("CREATE MATERIALIZED VIEW v AS SELECT nothing FROM s", "line 1, column 38: .*nothing"),
        ("CREATE MATERIALIZED VIEW v AS SELECT n FROM stock", "needed a query over a live stream"),
        ("DROP MATERIALIZED VIEW prices", "there is no materialized view 'prices'"),
    ],
)
def test_what_is_no_view_is_refused(text: str, message: str) -> None:
    db = database()
    db.register("stock", {"n": [1]})
    with pytest.raises(nile.NileError, match=message):
        db.sql(text)
    assert db.subscriptions == ()
    assert db.relations == ("prices", "stock")


def test_at_takes_seconds_before_1970() -> None:
    with nile.connect() as db:
        db.sql("CREATE RELATION prices (item TEXT, price BIGINT)")
        db.sql("INSERT INTO prices VALUES ('tea', 2), ('cup', 5) AT -7.5")
        db.sql("UPDATE prices SET price = price - 1 WHERE item = 'tea' AT -5")
        db.sql("DELETE FROM prices WHERE price = 5 AT -3")
        assert db.sql("SELECT item, price FROM prices").fetchall() == [("tea", 1)]
        with pytest.raises(nile.NileError, match="needed an instant that can still come, 1969-12-31"):
            db.sql("DELETE FROM prices AT -6")


def test_other_threads_see_a_change_whole() -> None:
    with nile.connect() as db:
        db.sql("CREATE RELATION r (k BIGINT, v BIGINT)")
        db.sql("INSERT INTO r VALUES (1, 0), (2, 0), (3, 0)")
        seen: list[Any] = []

        def look() -> None:
            seen.append(db.sql("SELECT count(*), sum(v) FROM r").fetchall())

        def amid(*_: Any) -> None:  # between what goes and what comes
            reader = Thread(target=look)
            reader.start()
            reader.join(30)

        versions_of(db._live, "r").log.listeners.append(amid)
        for value in (1, 2):
            db.sql(f"UPDATE r SET v = {value} WHERE k > 1")
            assert seen == [[(3, 2 * (value - 1))]] * len(seen)
            assert len(seen) == 2
            assert db.sql("SELECT count(*), sum(v) FROM r").fetchall() == [(3, 2 * value)]
            seen.clear()


def test_a_callback_of_a_change_sees_it_whole() -> None:
    with nile.connect() as db:
        db.sql("CREATE RELATION r (k BIGINT, v BIGINT)")
        db.sql("CREATE MATERIALIZED VIEW twice AS SELECT k, 2 * v AS w FROM r")
        seen: list[Any] = []
        told = "SELECT sum(v) FROM r", "SELECT sum(w) FROM twice"
        db.subscribe("SELECT k, v FROM r", lambda _: seen.append([db.sql(each).fetchall()[0][0] for each in told]))
        for number, change in enumerate(("INSERT INTO r VALUES (1, 5), (2, 7)", "UPDATE r SET v = v + 1"), 1):
            db.sql(change)
            db.advance(float(number))
        assert seen == [[12, 24], [14, 28]]
