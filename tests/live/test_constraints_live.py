"""DECLARE: joins of live streams answer the same from less state; what breaks a constraint is counted and handled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.sql.reading_statements import read_statement
from nile.sql.statement_text import statement_text
from nile.summaries.errors import ConfigError, ConstraintViolation, SqlError, UnknownStream

ORDERS = [("t", pa.float64()), ("id", pa.int64()), ("who", pa.string())]
PARTS = [("t", pa.float64()), ("order_id", pa.int64()), ("item", pa.int64())]
QUERY = "SELECT o.id, o.who, p.item, p.t - o.t AS delay FROM orders o, parts p WHERE o.id = p.order_id"
BOTH = (
    "DECLARE CLUSTERED parts (order_id) WITHIN {} ON VIOLATION {}",
    "DECLARE REFERENTIAL parts (order_id) TO orders (id) WITHIN {} ON VIOLATION {}",
)


def opened(path: Path | None = None) -> nile.Database:
    db = nile.connect(path, **({} if path is None else {"checkpoint": None}))
    db.stream("orders", ORDERS, time="t")
    db.stream("parts", PARTS, time="t")
    return db


def declare(db: nile.Database, k: int = 8, how: str = "FAIL") -> None:
    for text in BOTH:
        db.sql(text.format(k, how))


def pushes(seed: int, orders: int = 300, late: float = 0.0) -> list[tuple[str, dict[str, Any]]]:
    """Orders a second apart, each with one to four parts within three seconds, a share `late` of them much later."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[float, str, int, int]] = []
    for number in range(orders):
        rows.append((float(number), "orders", number, 0))
        for item in range(int(rng.integers(1, 5))):
            wait = 3 * rng.random() if rng.random() >= late else 3 + 60 * rng.random()
            rows.append((number + wait, "parts", number, item))
    rows.sort()
    out = []
    for part in np.array_split(np.arange(len(rows)), 20):
        for name in ("orders", "parts"):
            mine = [rows[at] for at in part if rows[at][1] == name]
            columns = {"t": [row[0] for row in mine]}
            if name == "orders":
                columns |= {"id": [row[2] for row in mine], "who": [f"w{row[2] % 9}" for row in mine]}
            else:
                columns |= {"order_id": [row[2] for row in mine], "item": [row[3] for row in mine]}
            out.append((name, columns))
    return out


def fed(db: nile.Database, standing: Any, given: list[tuple[str, dict[str, Any]]]) -> list[tuple[int, Any]]:
    for name, rows in given:
        db.push(name, rows)
    return [(first + at, row) for first, batch in standing.poll_numbered() for at, row in enumerate(batch.to_pylist())]


def told(db: nile.Database, column: str) -> dict[str, Any]:
    found = db.sql(f"SELECT kind, {column} AS told FROM nile_constraints").to_arrow().to_pylist()
    return {row["kind"]: row["told"] for row in found}


def test_a_join_tells_the_same_and_holds_what_can_still_find_a_partner() -> None:
    given = pushes(1, orders=1_000)
    plain, known = opened(), opened()
    declare(known, 40)
    one, other = plain.subscribe(QUERY), known.subscribe(QUERY, name="delays")
    assert other.constraints == ("CLUSTERED parts (order_id)", "REFERENTIAL parts (order_id) TO orders (id)")
    assert fed(plain, one, given) == fed(known, other, given)
    assert told(known, "violations") == {"clustered": 0, "referential": 0}
    assert told(known, "queries") == {"clustered": "delays", "referential": "delays"}
    held = [len(side.table) for side in other.plan.pipeline._built.joins[0]._sides]  # type: ignore[union-attr]
    assert sum(held) < 100


def test_groups_over_such_a_join_are_the_same_too() -> None:
    text = f"SELECT who, count(*) AS n, max(delay) AS most FROM ({QUERY}) d GROUP BY who"
    given = pushes(2)
    plain, known = opened(), opened()
    declare(known, 40)
    one, other = (db.subscribe(text, emit="changes") for db in (plain, known))
    assert other.constraints
    assert fed(plain, one, given) == fed(known, other, given)


def test_what_is_measured_is_proposed_and_the_proposal_holds() -> None:
    given = pushes(3, late=0.02)
    db = opened()
    for text in BOTH:
        db.sql(text.partition(" WITHIN")[0])
    db.sql("DECLARE ORDERED orders (id)")
    db.sql("DECLARE MANY ONE parts (order_id) TO orders (id)")
    whole = fed(db, db.subscribe(QUERY), given)
    proposals = told(db, "proposal")
    assert set(proposals) == {"clustered", "referential", "ordered", "many one"}
    again = opened()
    for text in proposals.values():
        again.sql(text)
    standing = again.subscribe(QUERY)
    assert len(standing.constraints) == 4
    assert fed(again, standing, given) == whole
    assert set(told(again, "violations").values()) == {0}


def test_on_violation_fail_the_query_ends_and_the_push_says_why() -> None:
    db = opened()
    declare(db, 2)
    standing = db.subscribe(QUERY)
    other = db.subscribe("SELECT item FROM parts")
    with pytest.raises(ConstraintViolation, match=r"CLUSTERED parts \(order_id\): needed k of 2 at most; got k of \d+"):
        fed(db, standing, pushes(4, late=0.05))
    assert standing.closed
    assert not other.closed
    db.sql(BOTH[0].format(500, "FAIL"))
    assert not db.subscribe(QUERY).closed


def test_on_violation_count_goes_on_and_counts_each() -> None:
    db, plain = opened(), opened()
    declare(db, 4, "COUNT")
    given = pushes(5, late=0.05)
    standing = db.subscribe(QUERY)
    some, whole = fed(db, standing, given), fed(plain, plain.subscribe(QUERY), given)
    missing = len(whole) - len(some)
    assert missing > 0
    assert told(db, "violations")["clustered"] > 0
    assert told(db, "within") == {"clustered": 4, "referential": 4}
    rows = [tuple(row.items()) for _, row in whole]
    assert all(tuple(row.items()) in rows for _, row in some)


def test_on_violation_relax_k_grows_and_then_less_is_lost() -> None:
    given = pushes(5, late=0.05)
    lost = {}
    for how in ("COUNT", "RELAX"):
        db = opened()
        declare(db, 4, how)
        lost[how] = len(fed(db, db.subscribe(QUERY), given))
    assert told(db, "within")["clustered"] == told(db, "measured")["clustered"] > 4
    assert lost["RELAX"] > lost["COUNT"]


@pytest.mark.parametrize("how", ["COUNT", "RELAX"])
def test_a_store_keeps_constraints_what_was_measured_and_queries_that_go_by_them(tmp_path: Path, how: str) -> None:
    given = pushes(6, late=0.05)
    never = opened()
    declare(never, 6, how)
    whole = fed(never, never.subscribe(QUERY, name="q"), given)
    db = opened(tmp_path)
    declare(db, 6, how)
    found = fed(db, db.subscribe(QUERY, name="q"), given[:14])
    db.sql("DECLARE MANY ONE parts (order_id) TO orders (id) ON VIOLATION COUNT")  # the query goes on without
    db.close()
    again = nile.connect(tmp_path, checkpoint=None)
    assert len(again.subscription("q").constraints) == 2
    found += fed(again, again.subscription("q"), given[14:])
    assert found == whole
    for column in ("within", "measured", "violations", "tuples"):
        mine = told(again, column)
        assert {kind: mine[kind] for kind in ("clustered", "referential")} == told(never, column)
    again.close()


def test_a_constraint_goes_when_no_query_goes_by_it_or_with_its_stream() -> None:
    db = opened()
    declare(db)
    standing = db.subscribe(QUERY, name="q")
    with pytest.raises(SqlError, match="needed one that no standing query relies on; got 'q'"):
        db.sql("DROP CONSTRAINT CLUSTERED parts (order_id)")
    standing.close()
    db.sql("DROP CONSTRAINT CLUSTERED parts (order_id)")
    with pytest.raises(UnknownStream, match="needed one that is declared"):
        db.sql("DROP CONSTRAINT CLUSTERED parts (order_id)")
    assert set(told(db, "kind")) == {"referential"}
    db.sql("DROP STREAM parts")
    assert told(db, "kind") == {}


def test_rows_cannot_be_taken_back_from_a_join_that_forgets() -> None:
    db = opened()
    declare(db)
    db.subscribe("SELECT count(*) AS n FROM orders o, parts p WHERE o.id = p.order_id", emit="changes")
    db.push("orders", {"t": [1.0], "id": [1], "who": ["a"]})
    with pytest.raises(ConfigError, match="a join by constraints on its streams"):
        db.sql("DELETE FROM orders WHERE id = 1")


def test_keys_of_several_columns_and_of_text_are_measured_and_gone_by() -> None:
    made = []
    for known in (False, True):
        db = nile.connect()
        for name in ("a", "b"):
            db.stream(name, [("t", pa.float64()), ("k", pa.string()), ("n", pa.int32())], time="t")
        if known:
            db.sql("DECLARE CLUSTERED b (k) WITHIN 1")
            db.sql("DECLARE REFERENTIAL b (k, n) TO a (k, n) WITHIN 0")
        standing = db.subscribe("SELECT a.k, a.n, b.t FROM a, b WHERE a.k = b.k AND a.n = b.n")
        rng = np.random.default_rng(3)
        out: list[Any] = []
        for number in range(30):
            keys = [f"key {number}-{at // 2}" for at in range(20)] + [None]
            rows = {"k": keys, "n": [at % 2 for at in range(21)]}
            db.push("a", {"t": [number + 0.01 * at for at in range(21)], **rows})
            times = np.sort(rng.random(21)) * 0.2 + number + 0.5
            out += fed(db, standing, [("b", {"t": times.tolist(), **rows})])
        made.append(out)
    assert made[0] == made[1]
    assert len(made[0]) > 500
    assert told(db, "violations") == {"clustered": 0, "referential": 0}
    assert told(db, "measured") == {"clustered": 0, "referential": 0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DECLARE", "ORDERED, CLUSTERED, PUNCTUATED, MANY ONE or REFERENTIAL"),
        ("DECLARE SORTED parts (order_id)", "ORDERED, CLUSTERED, PUNCTUATED, MANY ONE or REFERENTIAL"),
        ("DECLARE ORDERED parts (order_id, item)", "needed one column"),
        ("DECLARE CLUSTERED parts (odrer_id)", "did you mean order_id"),
        ("DECLARE CLUSTERED parts (item) WITHIN -1", "needed 0 or more tuples"),
        ("DECLARE MANY ONE parts (item) TO orders (id) WITHIN 3", "needed no WITHIN"),
        ("DECLARE MANY ONE parts (item) TO orders (id) ON VIOLATION RELAX", "needed FAIL or COUNT"),
        ("DECLARE REFERENTIAL parts (item) TO parts (item)", "another one"),
        ("DECLARE REFERENTIAL parts (item) TO orders (id, who)", "needed 1 columns"),
        ("DECLARE ORDERED orders (who) WITHIN 3", "whole numbers or times"),
        ("DECLARE REFERENTIAL parts (item) TO orders (who) WITHIN 3", "columns that can be equal"),
        ("DECLARE CLUSTERED file (a) WITHIN 3", "needed live streams"),
    ],
)
def test_what_is_no_constraint_is_refused(text: str, message: str) -> None:
    db = opened()
    db.register("file", {"t": [1.0], "a": [1]}, time="t")
    with pytest.raises((SqlError, ConfigError), match=message):
        db.sql(text)


@pytest.mark.parametrize(
    "text",
    [
        "DECLARE ORDERED orders (id) WITHIN 3 ON VIOLATION RELAX",
        "DECLARE CLUSTERED parts (order_id, item) ON VIOLATION FAIL",
        "DECLARE REFERENTIAL parts (order_id) TO orders (id) WITHIN 0 ON VIOLATION COUNT",
        "DECLARE MANY ONE parts (order_id) TO orders (id) ON VIOLATION FAIL",
        "DROP CONSTRAINT PUNCTUATED parts (order_id, item)",
        "PUNCTUATE parts (order_id, item) VALUES (1, 2), (3, 4)",
    ],
)
def test_a_statement_reads_as_it_is_written(text: str) -> None:
    assert statement_text(read_statement(text, opened()._names)) == text
