"""PUNCTUATE: what can only be found by values that come no more is forgotten; what comes nevertheless is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.summaries.errors import ConfigError, ConstraintViolation, SqlError

ORDERS = [("t", pa.float64()), ("id", pa.int64()), ("who", pa.string())]
PARTS = [("t", pa.float64()), ("order_id", pa.int64()), ("item", pa.int64())]
QUERY = "SELECT o.id, o.who, p.item FROM orders o, parts p WHERE o.id = p.order_id"


def opened(how: str | None, path: Path | None = None, lateness: float | None = None) -> nile.Database:
    db = nile.connect(path, **({} if path is None else {"checkpoint": None}))
    db.stream("orders", ORDERS, time="t", lateness=lateness)
    db.stream("parts", PARTS, time="t", lateness=lateness)
    if how is not None:
        db.sql("DECLARE MANY ONE parts (order_id) TO orders (id)")
        db.sql(f"DECLARE PUNCTUATED parts (order_id) ON VIOLATION {how}")
    return db


def drive(db: nile.Database, standing: Any, rounds: range, *, against: float = 0.0) -> list[tuple[int, Any]]:
    """Each round 20 orders, then parts of these and of the round before, after which that is said to be over."""
    out = []
    for number in rounds:
        rng = np.random.default_rng(number)
        ids = np.arange(20) + 20 * number
        at = number * 100.0
        db.push("orders", {"t": at + np.arange(20.0), "id": ids, "who": [f"w{each % 7}" for each in ids]})
        of = rng.integers(20 * max(0, number - 1), 20 * number + 20, 40)
        gone = rng.random(40) < against
        of = np.where(gone, rng.integers(0, 20 * max(1, number - 1), 40), of)
        db.push("parts", {"t": at + 20 + np.arange(40.0), "order_id": of, "item": rng.integers(0, 5, 40)})
        if "PUNCTUATED parts (order_id)" in standing.constraints and number:
            over = ", ".join(f"({each})" for each in range(20 * (number - 1), 20 * number))
            db.sql(f"PUNCTUATE parts (order_id) VALUES {over}")
        out += [
            (first + k, row) for first, found in standing.poll_numbered() for k, row in enumerate(found.to_pylist())
        ]
    return out


def violations(db: nile.Database) -> int:
    text = "SELECT violations FROM nile_constraints WHERE kind = 'punctuated'"
    return int(db.sql(text).fetchall()[0][0])


def test_a_join_tells_the_same_and_forgets_what_was_said_to_be_over() -> None:
    plain, said = opened(None), opened("FAIL")
    one, other = plain.subscribe(QUERY), said.subscribe(QUERY)
    assert drive(plain, one, range(60)) == drive(said, other, range(60))
    assert violations(said) == 0
    held = [len(side.table) for side in other.plan.pipeline._built.joins[0]._sides]  # type: ignore[union-attr]
    assert held[0] <= 60
    assert held[1] <= 60


def test_what_comes_against_a_punctuation_is_counted_and_finds_nobody() -> None:
    plain, said = opened(None), opened("COUNT")
    outputs = []
    for db in (plain, said):
        standing = db.subscribe(QUERY)
        drive(db, standing, range(20), against=0.1)
        db.advance(1e6)
        outputs.append(standing.outputs)
    assert violations(said) > 0
    assert outputs == [800, 800 - violations(said)]


def test_on_violation_fail_it_ends_the_query() -> None:
    db = opened("FAIL")
    standing = db.subscribe(QUERY)
    with pytest.raises(ConstraintViolation, match="values of which no more were to come"):
        drive(db, standing, range(20), against=0.1)
    assert standing.closed


@pytest.mark.parametrize("paused", [False, True])
def test_a_store_a_pause_and_sharers_change_nothing(tmp_path: Path, paused: bool) -> None:
    never = opened("COUNT")
    whole = drive(never, never.subscribe(QUERY, name="q"), range(20), against=0.05)
    db = opened("COUNT", tmp_path)
    standing, beside = db.subscribe(QUERY, name="q"), db.subscribe(QUERY, name="beside")
    assert len(standing.sharers) == 2
    found = drive(db, standing, range(10), against=0.05)
    if paused:
        standing.pause()
    found += drive(db, standing, range(10, 12), against=0.05)
    db.close()
    again = nile.connect(tmp_path, checkpoint=None)
    again.subscription("q").resume()
    found += drive(again, again.subscription("q"), range(12, 20), against=0.05)
    assert found == whole
    assert violations(again) == violations(never)
    assert again.subscription("beside").outputs == len(whole)
    assert not beside.closed or beside.outputs < len(whole)
    again.close()


def test_what_waits_for_its_order_was_pushed_before() -> None:
    db = opened("FAIL", lateness=50.0)
    standing = db.subscribe(QUERY)
    db.push("orders", {"t": [1.0], "id": [1], "who": ["a"]})
    db.push("parts", {"t": [40.0, 30.0], "order_id": [1, 1], "item": [1, 2]})
    db.sql("PUNCTUATE parts (order_id) VALUES (1)")
    db.advance(500.0)
    assert [row["item"] for batch in standing.poll() for row in batch.to_pylist()] == [2, 1]
    assert violations(db) == 0


def test_what_is_not_declared_cannot_be_said() -> None:
    db = opened(None)
    with pytest.raises(ConfigError, match=r"DECLARE PUNCTUATED parts \(order_id\) before"):
        db.sql("PUNCTUATE parts (order_id) VALUES (1)")
    db.sql("DECLARE PUNCTUATED parts (order_id)")
    with pytest.raises(ConfigError, match="PUNCTUATE parts, row 1: needed int64"):
        db.sql("PUNCTUATE parts (order_id) VALUES ('x')")
    for wrong in ("PUNCTUATE parts (order_id)", "PUNCTUATE parts (nothing) VALUES (1)"):
        with pytest.raises(SqlError):
            db.sql(wrong)
    with pytest.raises(SqlError, match="the stream says when"):
        db.sql("DECLARE PUNCTUATED parts (order_id) WITHIN 3")
