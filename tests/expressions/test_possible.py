"""What can be true of no row of a block: never said of one that has such a row, by brute force over random trees."""

from __future__ import annotations

import random
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from nile.expressions.conditions import parse_condition
from nile.expressions.possible import Ends, may_be

SCHEMA = pa.schema(
    [("n", pa.int64()), ("x", pa.float64()), ("w", pa.string()), ("at", pa.timestamp("us")), ("d", pa.date32())]
)
LITERALS = {
    "n": ["-3", "0", "2", "2.5", "7", "NULL", "1 + 1"],
    "x": ["-1.5", "0.0", "-0.0", "3", "1e308", "CAST('nan' AS DOUBLE)", "NULL"],
    "w": ["'a'", "'b'", "''", "'zz'", "NULL", "lower('B')"],
    "at": ["'1970-01-01 00:00:02'", "TIMESTAMP '1970-01-01 00:00:05'", "DATE '1970-01-02'"],
    "d": ["'1970-01-03'", "DATE '1970-01-05'"],
}
VALUES: dict[str, list[Any]] = {
    "n": [None, -3, 0, 1, 2, 3, 7, 9],
    "x": [None, float("nan"), -1.5, -0.0, 0.0, 2.0, 3.0, float("inf")],
    "w": [None, "", "a", "ab", "b", "c", "zzz"],
    "at": [None, 0, 2_000_000, 3_000_000, 5_000_001],
    "d": [None, date(1970, 1, 1), date(1970, 1, 3), date(1970, 1, 6)],
}


def condition(source: random.Random, depth: int) -> str:
    if depth and source.random() < 0.6:
        kind = source.choice(("AND", "OR", "NOT", "AND", "OR"))
        if kind == "NOT":
            return f"NOT ({condition(source, depth - 1)})"
        return f"({condition(source, depth - 1)}) {kind} ({condition(source, depth - 1)})"
    name = source.choice(list(LITERALS))
    one, other = source.choice(LITERALS[name]), source.choice(LITERALS[name])
    operator = source.choice(("=", "<>", "<", "<=", ">", ">="))
    return source.choice(
        (
            f"{name} {operator} {one}",
            f"{one} {operator} {name}",
            f"{name} BETWEEN {one} AND {other}",
            f"{name} NOT BETWEEN {one} AND {other}",
            f"{name} IN ({one}, {other})",
            f"{name} NOT IN ({one}, {other})",
            f"{name} IS NULL",
            f"{name} IS NOT NULL",
            "w LIKE 'a%'",
            "n < x",
            "abs(n) > 2",
            "TRUE",
        )
    )


def block(source: random.Random) -> pa.RecordBatch:
    rows = source.randrange(1, 4)
    columns = [source.choices(source.sample(VALUES[name], 2), k=rows) for name in SCHEMA.names]
    return pa.record_batch(list(map(pa.array, columns, SCHEMA.types)), schema=SCHEMA)


def ends_of(batch: pa.RecordBatch, source: random.Random) -> dict[str, Ends]:
    """As a footer has them: NaN is looked past, ends may lie further out, anything may be unknown."""
    found = {}
    for name in SCHEMA.names:
        column = batch.column(name)
        known = sorted(value for value in column.to_pylist() if value is not None and value == value)
        if source.random() < 0.1:
            continue
        low, high = (known[0], known[-1]) if known else (None, None)
        if known and name in ("n", "x") and source.random() < 0.3:
            low, high = low - 1, high + 1
        values = pa.array([low, high], column.type) if known and source.random() < 0.9 else None
        found[name] = Ends(values, column.null_count if source.random() < 0.9 else None, len(column))
    return found


@pytest.mark.parametrize("seed", range(8))
def test_what_cannot_be_is_so_of_no_row(seed: int) -> None:
    source = random.Random(seed)
    refused = 0
    for _ in range(250):
        tree = parse_condition(condition(source, 3), where="test")
        bound, batch = tree.bound(SCHEMA), block(source)
        ends = ends_of(batch, source)
        truths = tree.mask(batch).to_pylist()
        for truth in (True, False):
            possible = may_be(bound, truth, ends)
            refused += not possible
            assert possible or truth not in truths, (tree.text, batch.to_pylist(), truth)
    assert refused > 50


@pytest.mark.parametrize(
    ("text", "possible"),
    [
        ("n > 9", False),
        ("n >= 9", True),
        ("9 < n", False),
        ("n < 5", False),
        ("n = 4", False),
        ("n = 7", True),
        ("n IN (1, 2)", False),
        ("n IN (1, 6)", True),
        ("n BETWEEN 10 AND 20", False),
        ("NOT (n < 100)", False),
        ("n <> 7", True),
        ("n IS NULL", False),
        ("n IS NOT NULL", True),
        ("n > 9 OR w = 'q'", False),
        ("n > 9 AND other > 1", False),
        ("n > 9 OR other > 1", True),
        ("w >= 'd'", False),
        ("w < 'a'", False),
        ("x > 100", True),  # NaN is above all, and no footer tells of it
        ("x < 1", False),
        ("x = 5", False),
        ("x = CAST('nan' AS DOUBLE)", True),
        ("z > 1", False),
        ("z IS NULL", True),
        ("z IS NOT NULL", False),
        ("at >= TIMESTAMP '1970-01-01 00:00:08'", False),
        ("at >= '1970-01-01 00:00:07'", True),
        ("FALSE", False),
        ("NULL", False),
    ],
)
def test_what_a_block_can_have(text: str, possible: bool) -> None:
    ends = {
        "n": Ends(pa.array([5, 9]), 0, 3),
        "x": Ends(pa.array([1.0, 2.0]), 0, 3),
        "w": Ends(pa.array(["a", "c"]), 1, 3),
        "z": Ends(None, 3, 3),
        "at": Ends(pa.array([5_000_000, 7_000_000], pa.timestamp("us")), 0, 3),
    }
    schema = pa.schema([(name, each.values.type if each.values else pa.int64()) for name, each in ends.items()])
    bound = parse_condition(text, where="test").bound(schema.append(pa.field("other", pa.int64())))
    assert may_be(bound, True, ends) == possible
