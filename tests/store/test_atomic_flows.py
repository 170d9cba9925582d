"""Views, relations and rows taken back: changes of several parts, which fail or are killed in one piece."""

from __future__ import annotations

from pathlib import Path

import pytest

import nile

VIEW = "SELECT k, count(*) AS n FROM s GROUP BY k WINDOW '9 s'"


def made(path: Path | None = None) -> nile.Database:
    db = nile.connect() if path is None else nile.connect(path, checkpoint=None)
    if "s" not in db.streams:
        db.stream("s", [("t", "float64"), ("k", "int64")], time="t")
    return db


def push(db: nile.Database, first: int, last: int) -> None:
    db.push("s", {"t": [float(t) for t in range(first, last)], "k": [t % 3 for t in range(first, last)]})


def epoch(db: nile.Database) -> int:
    return int(db._live._keeper.directory.epoch)  # type: ignore[union-attr]


def killed(db: nile.Database) -> None:
    db._live._keeper.directory.close()  # type: ignore[union-attr]


def test_a_view_that_cannot_be_replaced_goes_on_as_it_was(tmp_path: Path) -> None:
    for path in (None, tmp_path / "store"):
        db = made(path)
        db.sql(f"CREATE MATERIALIZED VIEW v AS {VIEW}")
        push(db, 0, 6)
        wrong = f"CREATE OR REPLACE MATERIALIZED VIEW v AS {VIEW.replace('count(*)', 'max(t)')} WITH PREFERENCE desc k"
        with pytest.raises(nile.NileError):
            db.sql(wrong)
        db.advance(6.0)
        assert sorted(db.sql("SELECT * FROM v").fetchall()) == [(0, 2), (1, 2), (2, 2)]
        assert db.subscriptions == ("v",)
        db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {VIEW.replace('count(*)', 'max(t)')}")
        db.advance(7.0)
        assert sorted(db.sql("SELECT * FROM v").fetchall()) == [(0, 3.0), (1, 4.0), (2, 5.0)]
        db.sql("DROP MATERIALIZED VIEW v")
        assert db.subscriptions == ()
        db.close()


def test_a_view_reaches_the_store_with_its_query_or_not_at_all(tmp_path: Path) -> None:
    with made(tmp_path) as db:
        push(db, 0, 6)
        before = epoch(db)
        db.sql(f"CREATE MATERIALIZED VIEW v AS {VIEW}")
        assert epoch(db) == before + 1
        db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {VIEW}")
        db.sql("CREATE RELATION r (k BIGINT)")
        db.sql("CREATE OR REPLACE RELATION r (w BIGINT)")
        assert epoch(db) == before + 4


def test_a_relation_whose_replacement_is_refused_is_still_there(tmp_path: Path) -> None:
    with made(tmp_path) as db:
        db.sql("CREATE RELATION r (k BIGINT)")
        db.sql("INSERT INTO r VALUES (1), (2)")
        db.subscribe("SELECT s.t FROM s, r WHERE s.k = r.k WINDOW '2 s'", name="q", emit="changes")
        with pytest.raises(nile.ConfigError, match="close"):
            db.sql("CREATE OR REPLACE RELATION r (w BIGINT)")
        db.sql("INSERT INTO r VALUES (3)")
    with made(tmp_path) as db:
        assert db.sql("SELECT * FROM r").fetchall() == [(1,), (2,), (3,)]


def test_rows_that_go_and_come_by_one_push_are_kept_together_with_its_offset(tmp_path: Path) -> None:
    """A source that pushes again from the offset after a crash finds the row there that it takes back."""
    change = {"t": [2.0, 9.0], "k": [2, 7], "_sign": [-1, 1]}
    db = made(tmp_path)
    db.subscribe("SELECT k, count(*) AS n FROM s GROUP BY k WINDOW '9 s'", name="q", emit="changes")
    push(db, 0, 6)
    db.checkpoint()
    db.push("s", change, offset="after")
    killed(db)
    with made(tmp_path) as db:
        assert db.offset("s") != "after"
        db.push("s", change, offset="after")
        assert [t for t, _ in db.sql("SELECT * FROM s").fetchall()] == [0.0, 1.0, 3.0, 4.0, 5.0, 9.0]
    with made(tmp_path) as db:
        assert db.offset("s") == "after"


def test_a_push_whose_new_rows_are_refused_takes_none_back() -> None:
    db = made()
    push(db, 0, 6)
    with pytest.raises(nile.TimestampOrderError):
        db.push("s", {"t": [2.0, 1.0], "k": [2, 7], "_sign": [-1, 1]})
    assert len(db.sql("SELECT * FROM s").fetchall()) == 6


def test_queries_are_paused_all_or_none() -> None:
    db = made()
    for name in ("p", "q", None):
        db.subscribe("SELECT k FROM s", name=name)
    with pytest.raises(nile.ConfigError, match="needed a query with a name"):
        db.sql("UPDATE nile_queries SET active = false")
    assert not any(db.subscription(name).paused for name in "pq")
    db.sql("UPDATE nile_queries SET active = false WHERE name IS NOT NULL")
    assert all(db.subscription(name).paused for name in "pq")
