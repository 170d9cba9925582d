"""Standing queries under a scheduler: operators run when it says, and outputs are those of a database without one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nile
from nile.runtime.dispatching import NAMES
from nile.summaries.errors import ConfigError, ExpressionError

SCHEMA = [("t", pa.float64()), ("k", pa.string()), ("v", pa.float64())]
GROUPED = "SELECT a.k, count(*) AS n, sum(b.v) AS s FROM a, b WHERE a.k = b.k GROUP BY a.k"
QUERIES: list[tuple[str, dict[str, Any]]] = [
    ("SELECT t, v FROM a WHERE k <> 'k1'", {}),
    ("SELECT t, v FROM a WHERE k <> 'k1'", {"emit": "changes"}),
    ("SELECT k, count(*) AS n, sum(v) AS s FROM a GROUP BY k HAVING count(*) > 2 WINDOW 8", {}),
    ("SELECT a.t AS t, b.t AS u, a.k FROM a, b WHERE a.k = b.k AND a.v < b.v WINDOW 6", {"emit": "changes"}),
    (f"{GROUPED} WINDOW 6", {}),
    (f"{GROUPED} HAVING count(*) > 3 WINDOW 6", {}),
    (f"{GROUPED} WINDOW 6", {"emit": "append"}),
    (f"{GROUPED} WINDOW 6", {"scheduling": "tpa"}),
    (f"SELECT max(n) AS most FROM ({GROUPED}) AS g WINDOW 6", {}),
    ("SELECT DISTINCT k FROM (SELECT k FROM a UNION SELECT k FROM b) AS u WINDOW 5", {}),
    ("SELECT k FROM a EXCEPT SELECT k FROM b WINDOW 5", {"scheduling": "tpa"}),
    ("SELECT a.t, a.k FROM a LEFT JOIN b ON a.k = b.k WHERE b.k IS NULL WINDOW 5", {}),
    ("SELECT k, v FROM a ORDER BY v DESC, k LIMIT 3 WINDOW 5", {}),
    ("SELECT k, v FROM a ORDER BY v LIMIT 3 WINDOW 5", {"emit": "changes"}),
    ("SELECT k, v, row_number() OVER (PARTITION BY k, v ORDER BY v) AS n FROM a WINDOW 1", {"emit": "changes"}),
    ("SELECT k, count(*) AS n FROM a GROUP BY k WINDOW 5", {"emit": "snapshot"}),
]


def opened(path: Path | None = None, **how: Any) -> nile.Database:
    db = nile.connect(path, **({} if path is None else {"checkpoint": None}), **how)
    for name in "ab":
        db.stream(name, SCHEMA, time="t")
    return db


class World:
    """Databases to which the same is done: one without a scheduler, one with."""

    def __init__(self, draw: random.Random, how: dict[str, Any], path: Path | None = None) -> None:
        """path: for stores, None: without."""
        self.draw, self.paths = draw, (None, None) if path is None else (path / "plain", path / "scheduled")
        self.how: tuple[dict[str, Any], ...] = ({}, how)
        self.dbs = [opened(each, **how) for each, how in zip(self.paths, self.how, strict=True)]
        self.at, self.names, self.told = {"a": 0.0, "b": 0.0}, 0, [{}, {}]  # type: ignore[var-annotated]

    def step(self) -> None:
        draw, open_ones = self.draw, list(self.dbs[0].unread)
        what = draw.random()
        if what < 0.12 or len(open_ones) < 4:
            text, how = draw.choice(QUERIES)
            self.names += 1
            for db in self.dbs:
                db.subscribe(text, name=f"q{self.names}", **how)
        elif what < 0.16:
            self.each(lambda db, name: db.subscription(name).close(), draw.choice(open_ones), read=True)
        elif what < 0.24:
            name = draw.choice(open_ones)
            active = str(draw.random() < 0.6).lower()
            for db in self.dbs:
                db.sql(f"UPDATE nile_queries SET active = {active} WHERE name = '{name}'")
        elif what < 0.28:
            self.at = dict.fromkeys("ab", max(self.at.values()) + 1.0)
            for db in self.dbs:
                db.advance(self.at["a"] - 0.5)
        elif what < 0.31 and self.paths[0] is not None:
            for number, (path, how) in enumerate(zip(self.paths, self.how, strict=True)):
                self.dbs[number].close()
                self.dbs[number] = nile.connect(path, checkpoint=None, **how)
        elif what < 0.34:
            self.dbs[1].sql(f"UPDATE nile_scheduler SET scheduler = '{draw.choice(NAMES)}'")
        elif what < 0.4:
            self.read()
        else:
            name = draw.choice("ab")
            times = []
            for _ in range(draw.choice([1, 5, 40, 400])):
                self.at[name] += draw.choice([0.0, 0.1, 0.05])
                times.append(self.at[name])
            keys = [f"k{draw.randint(0, 4)}" for _ in times]
            rows = {"t": times, "k": keys, "v": [float(draw.randint(0, 9)) for _ in times]}
            for db in self.dbs:
                db.push(name, rows)

    def each(self, do: Any, name: str, *, read: bool) -> None:
        subscriptions = [db.subscription(name) for db in self.dbs]
        for db in self.dbs:
            do(db, name)
        if read:
            self._read_of(name, subscriptions)

    def read(self) -> None:
        assert self.dbs[1].run() == 0
        for name in self.dbs[0].unread:
            self._read_of(name, [db.subscription(name) for db in self.dbs])

    def _read_of(self, name: str, subscriptions: list[Any]) -> None:
        if "snapshot" in {each.choice.emit for each in subscriptions}:
            found = [
                sorted(map(repr, (row for batch in each.poll() for row in batch.to_pylist()))) for each in subscriptions
            ]
        else:
            found = [
                [(first + i, row) for first, batch in each.poll_numbered() for i, row in enumerate(batch.to_pylist())]
                for each in subscriptions
            ]
        assert found[0] == found[1], (name, subscriptions[0].query)


def _same(world: World, steps: int) -> None:
    for _ in range(steps):
        world.step()
    world.read()
    captured = [[db.subscription(each).capture() for each in sorted(db.unread)] for db in world.dbs]
    assert repr(captured[0]) == repr(captured[1])
    for db in world.dbs:
        db.close()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("quantum", [1e-9, None])
def test_random_queries_tell_and_hold_the_same_under_every_scheduler(name: str, quantum: float | None) -> None:
    _same(World(random.Random(1), {"scheduler": name, "quantum": quantum}), 40)


def test_a_store_that_is_closed_while_batches_wait_holds_the_same(tmp_path: Path) -> None:
    _same(World(random.Random(5), {"scheduler": "chain", "quantum": 1e-9}, tmp_path), 30)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 60))
def test_more_random_queries_tell_the_same(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    how = {"scheduler": draw.choice(NAMES), "quantum": draw.choice([1e-9, 1e-4, None])}
    _same(World(draw, how, tmp_path if seed % 3 == 0 else None), 150)


def test_what_a_push_has_no_time_for_waits_in_queues_that_can_be_looked_at() -> None:
    with opened(scheduler="chain", quantum=1e-9) as db, opened() as other:
        grouped = [each.subscribe(f"{GROUPED} WINDOW 6", name="grouped", emit="append") for each in (db, other)]
        selected = db.subscribe("SELECT t FROM a WHERE v > 0", name="selected")
        for number in range(40):
            for each in (db, other):
                for name in "ab":
                    each.push(name, {"t": [number + 0.5], "k": ["x"], "v": [1.0]})
        assert len(selected.poll()) > 0  # runs at once
        queued = db.sql("SELECT name, queued FROM nile_queries ORDER BY name").fetchall()
        assert queued == [("grouped", True), ("selected", False)]
        queues = db.sql("SELECT kind, of, tuples FROM nile_queues WHERE path IS NOT NULL").fetchall()
        assert {each[:2] for each in queues} == {("input", "grouped"), ("operator", "grouped")}
        (row,) = db.sql("SELECT scheduler, quantum, tuples, memory, peak FROM nile_scheduler").fetchall()
        assert row[:2] == ("chain", 1e-9)
        assert row[2] == sum(each[2] for each in queues) > 0
        assert row[4] >= row[3] > 0
        assert db.run(1e-9) > 0
        assert db.run() == 0
        told = [[row for batch in each.poll() for row in batch.to_pylist()] for each in grouped]
        assert told[0] == told[1]
        assert grouped[0].outputs == grouped[1].outputs > 0


def test_whoever_reads_works_on() -> None:
    with opened(scheduler="fifo", quantum=1e-9) as db:
        counts = db.subscribe(f"{GROUPED} WINDOW 6", emit="append")
        for number in range(9):
            for name in "ab":
                db.push(name, {"t": [number + 0.5], "k": ["x"], "v": [1.0]})
        found = [counts.poll() for _ in range(100)]
        assert db.run() == 0
        assert sum(map(len, found)) > 0
        assert counts.poll() == []


def test_a_scheduler_is_changed_and_taken_away_while_batches_wait() -> None:
    with opened(scheduler="chain", quantum=1e-9) as db:
        counts = db.subscribe(f"{GROUPED} WINDOW 6", emit="append", name="q")
        heard: list[Any] = []
        db.subscribe(f"{GROUPED} WINDOW 6", heard.append, emit="append")
        for number in range(9):
            for name in "ab":
                db.push(name, {"t": [number + 0.5], "k": ["x"], "v": [1.0]})
        db.sql("UPDATE nile_scheduler SET scheduler = 'chain-latency', latency = 0.5, quantum = 0.25")
        assert db.sql("SELECT scheduler, quantum, latency FROM nile_scheduler").fetchall() == [
            ("chain-latency", 0.25, 0.5)
        ]
        db.sql("UPDATE nile_scheduler SET scheduler = NULL, quantum = NULL")
        assert db.sql("SELECT sum(tuples) AS n FROM nile_queues WHERE path IS NOT NULL").fetchall() == [(None,)]
        assert counts.outputs == sum(len(each) for each in heard) > 0


@pytest.mark.parametrize("name", NAMES)
def test_what_was_worked_off_by_whoever_looked_at_its_state_is_not_run_again(name: str) -> None:
    with opened(scheduler=name, quantum=1e-9, latency=1e-9) as db:
        counts = db.subscribe(f"{GROUPED} WINDOW 6", emit="append", name="q")
        for number in range(9):
            for each in "ab":
                db.push(each, {"t": [number + 0.5], "k": ["x"], "v": [1.0]})
            if number % 3 == 0:
                counts.capture()
        assert db.run() == 0
        assert counts.outputs > 0


def test_a_query_that_fails_while_it_runs_ends_alone() -> None:
    with opened(scheduler="chain", quantum=1e-9) as db:
        bad = db.subscribe("SELECT max(n) AS n FROM (SELECT count(*) AS n FROM a GROUP BY k) AS g WINDOW 6")
        good = db.subscribe("SELECT sum(n) AS n FROM (SELECT count(*) AS n FROM a GROUP BY k) AS g WINDOW 6")
        bad._plan.pipeline.stages.stages[-1].operator.step = _fails  # type: ignore[method-assign]
        for number in range(4):
            db.push("a", {"t": [number + 0.5], "k": ["x"], "v": [1.0]})
        with pytest.raises(ExpressionError, match="planted"):
            db.run()
        assert bad.closed
        assert db.run() == 0
        assert not good.closed
        assert good.outputs > 0


def _fails(to: int) -> Any:
    raise ExpressionError(f"planted at {to}")


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"scheduler": "best"}, "needed one of fifo, round-robin"),
        ({"quantum": 1.0}, "needed a scheduler"),
        ({"scheduler": "chain", "memory": "1MB"}, "without bounds of memory= or cpu="),
        ({"scheduler": "chain", "latency": 0}, "latency: needed"),
    ],
)
def test_what_cannot_be_scheduled_is_refused(how: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        nile.connect(**how)


def test_a_scheduler_that_there_is_not_changes_nothing() -> None:
    with opened(scheduler="fifo") as db:
        with pytest.raises(ConfigError, match="needed one of fifo"):
            db.sql("UPDATE nile_scheduler SET scheduler = 'best'")
        with pytest.raises(ConfigError, match="seconds of CPU time"):
            db.run(0)
        assert db.sql("SELECT scheduler FROM nile_scheduler").fetchall() == [("fifo",)]
