"""What runs is told as relations that agree with what the objects themselves tell; what UPDATE sets takes effect."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from thinning import thinned

import nile
from nile.execution.statement.control import CONTROL
from nile.sql.reading_statements import read_statement
from nile.sql.statement_text import statement_text
from nile.summaries.errors import ConfigError, SqlError

QUERIES = {
    "flat": "SELECT t, k FROM a WHERE k <> 'k1'",
    "grouped": "SELECT k, count(*) AS n FROM a GROUP BY k WINDOW 20",
    "joined": "SELECT a.t AS t, b.t AS u, a.k FROM a, b WHERE a.k = b.k WINDOW 10",
    "near": "SELECT a.t AS t, b.t AS u, a.k FROM a, b WHERE a.k = b.k WITH PREFERENCE desc a.k WINDOW 10",
}


def opened(path: Path | None = None) -> nile.Database:
    db = nile.connect(path, **({} if path is None else {"checkpoint": None}))
    for name in "ab":
        db.stream(name, [("t", pa.float64()), ("k", pa.string())], time="t", lateness=1.0)
    return db


def asked(db: nile.Database) -> dict[str, Any]:
    return {
        name: db.subscribe(text, name=name, **({"budget": 0.5, "costs": "engine"} if name == "near" else {}))
        for name, text in QUERIES.items()
    }


def steps(seed: int) -> list[tuple[str, dict[str, list[Any]]]]:
    draw = random.Random(seed)
    at = {"a": 0.0, "b": 0.0}
    made = []
    for _ in range(30):
        name = draw.choice("ab")
        times = [at[name] + draw.random() for _ in range(draw.randint(1, 20))]
        at[name] = max([*times, at[name]])
        made.append((name, {"t": times, "k": [f"k{draw.randint(0, 5)}" for _ in times]}))
    return made


def read(db: nile.Database) -> dict[str, list[tuple[int, dict[str, Any]]]]:
    return {
        name: [
            (first + i, row)
            for first, batch in db.subscription(name).poll_numbered()
            for i, row in enumerate(batch.to_pylist())
        ]
        for name in QUERIES
    }


@pytest.mark.parametrize("seed", thinned(range(12), 3))
def test_a_query_that_was_paused_tells_in_the_end_what_one_that_never_was_tells(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    with opened() as peace:
        asked(peace)
        for name, rows in steps(seed):
            peace.push(name, rows)
        peace.advance(1000.0)
        wanted = read(peace)
    db = opened(tmp_path)
    asked(db)
    for name, rows in steps(seed):
        for one in QUERIES:
            if draw.random() < 0.3:
                db.sql(f"UPDATE nile_queries SET active = {draw.choice(['true', 'false'])} WHERE name = '{one}'")
        if draw.random() < 0.15:
            db.close()
            db = nile.connect(tmp_path, checkpoint=None)
        db.push(name, rows)
    db.advance(1000.0)
    db.sql("UPDATE nile_queries SET active = true")
    assert read(db) == wanted
    assert any(wanted.values())
    db.close()


def test_nothing_is_found_while_a_query_is_paused_and_what_waits_is_told() -> None:
    with opened() as db:
        asked(db)
        db.sql("UPDATE nile_queries SET active = false WHERE name LIKE '%ed' OR name = 'flat'")
        db.push("a", {"t": [1.0, 2.0, 9.0], "k": ["k0"] * 3})
        told = {row["name"]: row for row in db.sql("SELECT * FROM nile_queries").to_arrow().to_pylist()}
        assert {name: row["active"] for name, row in told.items()} == {**dict.fromkeys(QUERIES, False), "near": True}
        assert (told["flat"]["waiting"], told["flat"]["outputs"]) == (2, 0)
        queues = db.sql("SELECT tuples FROM nile_queues WHERE kind = 'paused' AND of = 'flat'").fetchall()
        assert queues == [(2,)]
        db.subscription("flat").resume()
        assert db.subscription("flat").outputs == 1
        assert db.sql("SELECT waiting FROM nile_queries WHERE name = 'flat'").fetchall() == [(0,)]


def test_rows_are_taken_back_of_a_query_that_is_paused() -> None:
    with opened() as db:
        counts = db.subscribe("SELECT count(*) AS n FROM a", name="counts", emit="changes")
        counts.pause()
        db.push("a", {"t": [1.0, 2.0, 3.0, 9.0], "k": ["x", "y", "x", "z"]})
        db.sql("DELETE FROM a WHERE k = 'x'")
        db.push("a", {"t": [20.0, 30.0], "k": ["w", "w"]})
        counts.resume()
        db.advance(100.0)
        rows = [row for batch in counts for row in batch.to_pylist()]
        assert rows[-1]["n"] == db.sql("SELECT count(*) AS n FROM a").fetchall()[0][0] == 4


def test_closing_a_paused_query_gives_what_waits() -> None:
    with opened() as db:
        flat = db.subscribe(QUERIES["flat"], name="flat")
        flat.pause()
        db.push("a", {"t": [1.0, 2.0, 9.0], "k": ["k0"] * 3})
        flat.close()
        assert sum(map(len, flat.poll())) == 2  # the third waits for its turn


def test_the_tables_agree_with_what_the_objects_tell() -> None:
    with opened() as db:
        db.sql("CREATE SUMMARY s ON a (k) WITH GRANULARITY 10 AND COLLAPSE (4, 2)")
        asked(db)
        for name, rows in steps(1):
            db.push(name, rows, offset=[name, len(rows)])
        for row in db.sql("SELECT * FROM nile_queries").to_arrow().to_pylist():
            one = db.subscription(row["name"])
            assert (row["outputs"], row["unread"], row["memory"]) == (one.outputs, one.unread, one.memory)
            assert (row["asked"], row["spent"], row["coverage"]) == (one.budget.asked, one.budget.spent, one.coverage)
        for row in db.sql("SELECT * FROM nile_sources").to_arrow().to_pylist():
            accounts = db.accounting(row["name"])
            assert [row[each] for each in ("applied", "late", "shed", "rejected")] == [
                accounts.applied, accounts.late, accounts.shed, accounts.rejected
            ]  # fmt: skip
        operators = db.sql("SELECT query, sum(memory) AS m FROM nile_operators GROUP BY query").fetchall()
        assert dict(operators) == {name: db.subscription(name).memory for name in QUERIES}
        summary = db.summary("s")
        assert db.sql("SELECT tuples, memory FROM nile_summaries").fetchall() == [
            (summary.store.tuples, summary.memory.total)
        ]
        zones = db.sql(
            "SELECT granularity, zone, sum(tuples) AS n, max(most) AS most FROM nile_zones GROUP BY granularity, zone"
        ).fetchall()
        assert [(g, n) for g, _, n, _ in sorted(zones, key=lambda row: row[1])] == [
            (zone.granularity, zone.summarised) for zone in summary.zones()
        ]
        assert all(0 < most <= n for _, _, n, most in zones if n)
        kept = db.sql("SELECT sum(memory) AS m FROM nile_synopses WHERE of = 's'").fetchall()
        assert kept == [(summary.memory.total,)]


def test_the_memory_of_a_summary_is_set_while_it_counts() -> None:
    with opened() as db:
        db.sql("CREATE SUMMARY s ON a (k) WITH GRANULARITY 10 AND COLLAPSE (4, 2) USING columns = 256")
        for name, rows in steps(2):
            db.push(name, rows)
        before = db.summary("s")
        db.sql("UPDATE nile_summaries SET memory = 60000 WHERE memory > 60000 AND name = 's'")
        after = db.summary("s")
        assert after.store.side.counters.nbytes <= 60_000 < before.store.side.counters.nbytes
        assert after.store.tuples == before.store.tuples
        with pytest.raises(ConfigError, match="at least 1024 bytes"):
            db.sql("UPDATE nile_summaries SET memory = 5")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("UPDATE nile_queries SET outputs = 3", "active, budget, weight, query, scheduling, algorithm of nile_queries"),
        ("UPDATE nile_queries SET active = 3", "true or false"),
        ("UPDATE nile_zones SET tuples = 3", "memory of nile_summaries"),
        ("DELETE FROM nile_queries", "a relation that changes"),
        ("UPDATE nile_queries SET active = true AT 3", "needed a relation for AT"),
    ],
)
def test_what_cannot_be_set_says_what_can(text: str, what: str) -> None:
    with opened() as db:
        asked(db)
        with pytest.raises((ConfigError, SqlError), match=what):
            db.sql(text)


def test_a_stream_of_such_a_name_comes_first_and_all_of_sql_reads_the_tables() -> None:
    with opened() as db:
        for name in CONTROL:
            assert db.sql(f"DESCRIBE {name}").to_arrow().num_rows > 3
            assert db.sql(f"SELECT count(*) AS n FROM {name.upper()}").to_arrow().num_rows == 1
        with pytest.raises(SqlError):
            db.sql("SELECT * FROM nile_nothing")
        db.register("nile_queues", {"x": [1]})
        assert db.sql("SELECT * FROM nile_queues").fetchall() == [(1,)]


def spent_of(db: nile.Database, begin: int) -> float:
    """The share of its exact work that `near` spends on what is pushed next."""
    draw = random.Random(begin)
    near: Any = db.subscription("near")
    cost, before = near._join.total_cost, near.budget.fraction
    for at in range(begin, begin + 3_000, 100):
        for name in "ab":
            db.push(
                name,
                {"t": [float(at + i) / 10 for i in range(100)], "k": [f"k{draw.randint(0, 3)}" for _ in range(100)]},
            )
    total = near._join.total_cost
    return float((near.budget.fraction * total - (before * cost if cost else 0.0)) / (total - cost))


def test_a_budget_that_is_set_while_it_runs_is_what_is_spent_from_then_on(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        near = asked(db)["near"]
        first = spent_of(db, 0)
        db.sql("UPDATE nile_queries SET budget = 0.1 WHERE name = 'near'")
        then = spent_of(db, 3_000)
        assert near.budget.asked == 0.1
        assert first == pytest.approx(0.5, abs=0.05)
        assert then == pytest.approx(0.1, abs=0.05)
        outputs = near.outputs
    with nile.connect(tmp_path, checkpoint=None) as db:
        assert db.sql("SELECT budget, asked FROM nile_queries WHERE name = 'near'").fetchall() == [(0.1, 0.1)]
        assert db.subscription("near").outputs == outputs
        assert db.subscribe(QUERIES["near"], name="near", budget=0.5, costs="engine") is db.subscription("near")
        assert spent_of(db, 6_000) == pytest.approx(0.1, abs=0.05)
        db.sql("UPDATE nile_queries SET budget = 0.5 WHERE name = 'near'")
        assert spent_of(db, 9_000) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("budget = 0.1 WHERE name = 'flat'", "join WITH PREFERENCE within a fraction"),
        ("budget = 2.0 WHERE name = 'near'", "between 0 and 1"),
        ("budget = 0.0 WHERE name = 'near'", "between 0 and 1"),
        ("budget = '0.1' WHERE name = 'near'", "say budget = 0.1"),
        ("budget = 0.1", "join WITH PREFERENCE within a fraction"),
    ],
)
def test_budgets_that_cannot_be_set_are_refused_before_any_is(text: str, told: str) -> None:
    with opened() as db:
        near = asked(db)["near"]
        with pytest.raises(ConfigError, match=told):
            db.sql(f"UPDATE nile_queries SET {text}")
        assert near.budget.asked == 0.5


def test_a_query_that_nobody_reads_after_its_store_was_opened_again_says_so(tmp_path: Path) -> None:
    asks = "SELECT name, unread, reader FROM nile_queries ORDER BY name"
    with nile.connect(tmp_path / "store") as db:
        db.stream("s", [("t", "float64"), ("x", "int64")], time="t")
        kept = db.subscribe("SELECT x FROM s", name="kept")
        assert db.sql(asks).fetchall() == [("kept", 0, False)]
        kept.poll()
        assert db.sql(asks).fetchall() == [("kept", 0, True)]
    with nile.connect(tmp_path / "store") as db:
        db.push("s", {"t": [1.0, 2.0], "x": [1, 2]})
        db.subscribe("SELECT x FROM s", lambda batch: None, name="told")
        db.stream("made", [("t", "float64"), ("x", "int64")], time="t")
        db.sql("INSERT INTO made SELECT t, x FROM s")
        assert db.sql("SELECT reader FROM nile_queries WHERE \"into\" = 'made'").fetchall() == [(True,)]
        found = {name: rest for name, *rest in db.sql(asks).fetchall()}
        assert (found["kept"], found["told"]) == ([1, False], [0, True])
        db.subscription("kept").peek(0, 1)
        assert ("kept", 1, True) in db.sql(asks).fetchall()


def test_pause_and_resume_are_statements(tmp_path: Path) -> None:
    state = "SELECT name, active, waiting, outputs FROM nile_queries ORDER BY name"
    with opened(tmp_path) as db:
        db.subscribe("SELECT t, k FROM a", name="both")
        db.subscribe("SELECT t FROM a", name="select")
        for _ in range(2):  # a second time changes nothing
            assert db.sql('PAUSE QUERY "select"').message == "standing query 'select' paused"
        db.push("a", {"t": [1.0, 2.0, 5.0], "k": ["x", "y", "z"]})
        assert db.sql(state).fetchall() == [("both", True, 0, 1), ("select", False, 2, 0)]
    with nile.connect(tmp_path, checkpoint=None) as db:
        for _ in range(2):
            assert db.sql('resume query "select"').message == "standing query 'select' resumed"
        assert db.sql(state).fetchall() == [("both", True, 0, 1), ("select", True, 0, 1)]
        for text, wanted in [
            ("PAUSE QUERY a", "'a': needed one of those with a name"),
            ("RESUME QUERY", "needed the name of a standing query"),
            ("PAUSE both", "needed 'QUERY'"),
            ("PAUSE QUERY both now", "got 'now'"),
        ]:
            with pytest.raises(nile.NileError, match=wanted):
                db.sql(text)
        assert db.subscription("both").paused is False


def test_pause_and_resume_are_written_as_they_are_read() -> None:
    with opened() as db:
        for text in ("PAUSE QUERY both", 'RESUME QUERY "select"'):
            read = read_statement(text, db._live.names)
            assert statement_text(read) == text
            assert read_statement(statement_text(read), db._live.names) == read
