"""Window functions over more rows than memory holds: rows, order and bits as without a limit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from test_spilled_joins import ROOM, same
from thinning import thinned

import nile

ROWS = 4_000


def table() -> pa.Table:
    """Times that repeat, an order of few values, nulls, NaN and both zeros, and totals beyond 64 bits."""
    rng = np.random.default_rng(7)
    wild = rng.normal(size=ROWS) * 10.0 ** rng.integers(-8, 8, ROWS)
    for special in (-0.0, 0.0):
        wild[rng.integers(0, ROWS, 40)] = special
    return pa.table(
        {
            "t": np.sort(rng.integers(0, 2 * ROWS, ROWS)),
            "at": pa.array(np.cumsum(rng.choice([1, 2, 40], ROWS)) * 1_000_000).cast(pa.timestamp("us")),
            "g": rng.integers(0, 3, ROWS),
            "k": pa.array(np.where(rng.random(ROWS) < 0.5, 1, rng.integers(0, 400, ROWS))),
            "d": pa.array(rng.integers(0, 40, ROWS), mask=rng.random(ROWS) < 0.05),
            "s": [f"x{v}" if v % 7 else None for v in rng.integers(0, 300, ROWS)],
            "f": pa.array(wild, mask=rng.random(ROWS) < 0.03),
            "n": pa.array(wild).fill_null(0.0).to_numpy() + np.where(rng.random(ROWS) < 0.002, np.nan, 0.0),
            "b": np.where(rng.random(ROWS) < 0.5, 1, -1) * rng.integers(1 << 60, 1 << 61, ROWS),
        }
    )


TABLE = table()
FUNCTIONS = (
    "row_number()", "rank()", "dense_rank()", "percent_rank()", "cume_dist()", "ntile(7)", "ntile(9000)",
    "lag(f)", "lead(s, 3)", "lag(d, 2, -1)", "first_value(s)", "last_value(f)", "nth_value(d, 700)",
    "first_value(d IGNORE NULLS)", "last_value(d IGNORE NULLS)",
    "count(*)", "count(s)", "sum(f)", "avg(f)", "sum(d)", "avg(b)", "min(f)", "max(n)", "min(s)", "sum(n)",
)  # fmt: skip
ORDERS = ("", "ORDER BY t", "ORDER BY g", "ORDER BY f DESC, s", "ORDER BY d NULLS FIRST", "PARTITION BY k ORDER BY n")
FRAMES = (
    "ROWS BETWEEN 5 PRECEDING AND 3 FOLLOWING",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND 4 PRECEDING",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "ROWS BETWEEN 3 FOLLOWING AND 9 FOLLOWING",
    "RANGE BETWEEN 20 PRECEDING AND 4 FOLLOWING",
    "RANGE BETWEEN CURRENT ROW AND 30 FOLLOWING",
    "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "GROUPS BETWEEN 2 PRECEDING AND 1 FOLLOWING",
)
FRAMED = ("sum(f)", "avg(d)", "sum(d)", "min(n)", "max(s)", "count(f)", "first_value(s)", "last_value(d)",
          "nth_value(f, 2)", "median(f)", "stddev(n)", "max(d)")  # fmt: skip


def _texts() -> list[str]:
    found = [
        f"SELECT t, {f} OVER ({order}) AS v FROM a"
        for order in ORDERS
        for f in FUNCTIONS
        if order or not ("nth" in f or "IGNORE" in f)  # over all rows these hold them
    ]
    for order in ("ORDER BY t", "ORDER BY d", "PARTITION BY k ORDER BY t"):
        for frame in FRAMES:
            for f in FRAMED:
                carried = "UNBOUNDED" in frame and f in ("median(f)", "stddev(n)") and "AND UNBOUNDED" not in frame
                held = "AND UNBOUNDED" in frame and f.startswith("nth")
                wide = order == "ORDER BY d" and "RANGE" in frame and "UNBOUNDED" not in frame  # of half the rows
                if not (carried or held or wide):
                    found.append(f"SELECT t, {f} OVER ({order} {frame}) AS v FROM a")
    return [
        *found,
        "SELECT t, session_start(INTERVAL 30 SECOND) OVER (ORDER BY at) AS b, "
        "session_end(INTERVAL 30 SECOND) OVER (ORDER BY at) AS e FROM a",
    ]


SEVERAL = [
    "SELECT t, rank() OVER (ORDER BY f) AS r, sum(d) OVER (PARTITION BY g ORDER BY s) AS p, count(*) OVER () AS n, "
    "lag(s) OVER (ORDER BY t) AS l, sum(f) OVER (ORDER BY t) AS c FROM a",
    "SELECT t, row_number() OVER (PARTITION BY k, g ORDER BY f) AS r, max(f) OVER (PARTITION BY k) AS m, "
    "lead(t) OVER (PARTITION BY k ORDER BY t) AS l, median(f) OVER (PARTITION BY k) AS w FROM a",
    "SELECT t, sum(f) OVER (ORDER BY t ROWS 9 PRECEDING) AS w FROM a WHERE d > 3",
    "SELECT t, v - lag(v) OVER (ORDER BY t) AS w FROM (SELECT t, d * 2 AS v FROM a) q",
    "SELECT t, f FROM a QUALIFY row_number() OVER (ORDER BY f DESC) <= 30",
    "SELECT t, sum(n) OVER (ORDER BY n) AS s FROM (SELECT d, count(*) AS n, max(t) AS t FROM a GROUP BY d, s, g) q",
]


def opened(memory: str | None, *, timed: bool) -> nile.Database:
    return nile.connect(memory=memory).register("a", TABLE, time="t" if timed else None)


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nile.engine.connect.LEAST_ROOM", ROOM)


def read(answer: Any) -> pa.Table:
    return pa.Table.from_batches(list(answer.batches()), answer.schema)


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("text", [*SEVERAL, *thinned(_texts(), 23)])
def test_the_same_as_without_a_limit(text: str) -> None:
    timed = len(text) % 2 == 0
    wanted = opened(None, timed=timed).sql(text).to_arrow()
    assert same(read(opened(f"{ROOM}", timed=timed).sql(text)), wanted), text


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("call", [
    "median(f) OVER (ORDER BY t)", "sum(f) OVER (ORDER BY t ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)",
    "lag(d IGNORE NULLS) OVER (ORDER BY t)", "sum(f) OVER (ORDER BY t ROWS 3900 PRECEDING)",
])  # fmt: skip
def test_what_must_hold_all_rows_is_refused_with_the_numbers(call: str) -> None:
    with pytest.raises(nile.MemoryRefused) as refused:
        read(opened(f"{ROOM}", timed=True).sql(f"SELECT t, {call} AS v FROM a"))
    told = str(refused.value)
    assert told.startswith(call.partition("(")[0])
    assert "OVER: needed" in told
    assert "rows, about" in told
    assert "connect(memory=) allows an answer" in told
    assert told.endswith("open it with more memory")
    assert "\n" not in told
