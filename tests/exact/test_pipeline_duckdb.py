"""DuckDB as a second judge: random plans as SQL over the tuples in the windows, at a sample of instants."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from judge import fresh_duckdb
from oracle_pipeline import key
from workload_pipeline import ROW, told

from nile.exact.pipeline.pipeline import Pipeline
from nile.exact.plan.algebra import (
    Aggregate,
    Distinct,
    Expand,
    Group,
    Intersect,
    Join,
    Minus,
    Plan,
    Project,
    Range,
    Rows,
    Scan,
    Select,
    Union,
)

duckdb = pytest.importorskip("duckdb")

TESTS = [
    (lambda rows: pc.greater(rows["k"], 0), "k > 0"),
    (lambda rows: pc.less(rows["x"], 2.0), "x < 2.0"),
    (lambda rows: pc.equal(rows["s"], "p"), "s = 'p'"),
]
RENAMED = pa.schema([(f"r{field.name}", field.type) for field in ROW])


class Maker:
    """A random plan and the same query as SQL over views w0, w1, ..., one a scan."""

    def __init__(self, rng: np.random.Generator, streams: int) -> None:
        self.rng = rng
        self.streams = streams
        self.scans: list[Scan] = []

    def make(self, depth: int) -> tuple[Plan, str]:
        if depth <= 1:
            return self.leaf()
        plan, sql = self.make(depth - 1)
        choice = int(self.rng.integers(0, 8))
        every = bool(self.rng.integers(2))
        if choice == 0:
            test, text = TESTS[self.rng.integers(3)]
            return Select(plan, test), f"(SELECT * FROM {sql} WHERE {text})"
        if choice == 1:
            return Distinct(plan), f"(SELECT DISTINCT * FROM {sql})"
        if choice == 2:
            return self.grouped(plan, sql)
        other, other_sql = self.make(depth - 1)
        if choice == 3:
            return self.joined(plan, sql, other, other_sql)
        node, word = [(Union, "UNION"), (Intersect, "INTERSECT"), (Minus, "EXCEPT"), (Minus, "EXCEPT")][choice - 4]
        return node(plan, other, every), f"(SELECT * FROM {sql} {word}{' ALL' * every} SELECT * FROM {other_sql})"

    def leaf(self) -> tuple[Plan, str]:
        n = len(self.scans)
        window: Any = (
            Range(int(self.rng.integers(1, 12))) if self.rng.random() < 0.8 else Rows(int(self.rng.integers(1, 6)))
        )
        self.scans.append(Scan(f"s{self.rng.integers(self.streams)}", ROW, window, n))
        return self.scans[-1], f"w{n}"

    def grouped(self, plan: Plan, sql: str) -> tuple[Plan, str]:
        function, text = [("sum", "sum(x)"), ("avg", "avg(x)"), ("median", "median(x)"), ("max", "max(x)")][
            self.rng.integers(4)
        ]
        group = Group(plan, ("k",), (Aggregate("x", function, "x"), Aggregate("s", "min", "s")))  # type: ignore[arg-type]
        return group, f"(SELECT k, {text} AS x, min(s) AS s FROM {sql} GROUP BY k)"

    def joined(self, plan: Plan, sql: str, other: Plan, other_sql: str) -> tuple[Plan, str]:
        right = Project(other, lambda rows: pa.RecordBatch.from_arrays(rows.columns, schema=RENAMED), RENAMED)

        def make(rows: Any) -> Any:
            return pa.RecordBatch.from_arrays([rows["k"], rows["rx"], rows["s"]], schema=ROW)

        join = Project(Join(plan, right, (("k", "rk"),)), make, ROW)
        return join, f"(SELECT a.k, b.x, a.s FROM {sql} a JOIN {other_sql} b ON a.k = b.k)"


class Mixed(Maker):
    """Groups with aggregates of all rows beside some of distinct values, of one column or of two."""

    def grouped(self, plan: Plan, sql: str) -> tuple[Plan, str]:
        by = ("k",)
        schema = pa.schema([*ROW, ("xd", pa.float64()), ("sd", pa.string())])

        def twice(rows: Any) -> Any:
            return pa.RecordBatch.from_arrays([*rows.columns, rows["x"], rows["s"]], schema=schema)

        sets = [((*by, "xd"),), ((*by, "sd"),), ((*by, "xd"), (*by, "sd"))][self.rng.integers(3)]
        apart = tuple(each[-1] for each in sets)
        wide = Expand(Project(plan, twice, schema), sets, apart)
        rows = Aggregate("n", "count", Expand.ROW)
        numbers: list[Any] = [("count", "count(*)", rows), ("sum", "sum(x)", Aggregate("x", "sum", "x"))]
        numbers.append(("median", "median(x)", Aggregate("x", "median", "x")))
        texts: list[Any] = [("max", "max(s)", Aggregate("s", "max", "s"))]
        if "xd" in apart:
            numbers += [
                ("sum distinct", "sum(DISTINCT x)", Aggregate("x", "sum", "xd")),
                ("count distinct", "count(DISTINCT x)", Aggregate("x", "count", "xd")),
            ]
        if "sd" in apart:
            numbers.append(("count distinct text", "count(DISTINCT s)", Aggregate("x", "count", "sd")))
        own = [numbers[at] for at in self.rng.permutation(len(numbers))[:2]] + texts
        made = tuple(Aggregate(f"a{at}", each.function, each.column) for at, (_, _, each) in enumerate(own))
        group = Group(wide, by, made)

        def make(rows: Any) -> Any:
            k = rows["k"] if by else pa.nulls(rows.num_rows, pa.int64())
            x = pc.add(pc.cast(rows["a0"], pa.float64()), pc.multiply(16.0, pc.cast(rows["a1"], pa.float64())))
            return pa.RecordBatch.from_arrays([k, x, rows["a2"]], schema=ROW)

        text = f"CAST({own[0][1]} AS DOUBLE) + 16 * CAST({own[1][1]} AS DOUBLE) AS x, {own[2][1]} AS s"
        keys = "k" if by else "CAST(NULL AS BIGINT) AS k"
        return Project(group, make, ROW), f"(SELECT {keys}, {text} FROM {sql}{' GROUP BY k' if by else ''})"


def stream(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    values = [0.5, 1.5, -2.0, None, 4.0]
    ts = np.cumsum(rng.choice([0, 1, 2, 7], n)).astype(np.int64)
    columns = [
        pa.array([None if v == 3 else int(v) for v in rng.integers(0, 4, n)], pa.int64()),
        pa.array([values[i] for i in rng.integers(0, 5, n)], pa.float64()),
        pa.array([["p", "q", None][i] for i in rng.integers(0, 3, n)], pa.string()),
    ]
    return ts, pa.RecordBatch.from_arrays(columns, schema=ROW)


def held(scan: Scan, ts: Any, rows: Any, now: int) -> Any:
    table = pa.Table.from_batches([rows])
    seen = np.flatnonzero(ts <= now)
    if isinstance(scan.window, Range):
        return table.take(seen[ts[seen] >= now - scan.window.ns])
    assert isinstance(scan.window, Rows)
    return table.take(seen[-scan.window.n :])


def agree(con: Any, seed: int, scheduling: str, kind: type[Maker] = Maker) -> str:
    rng = np.random.default_rng(seed)
    maker = kind(rng, 2)
    plan, sql = maker.make(int(rng.integers(2, 5)))
    streams = {f"s{i}": stream(rng, int(rng.integers(0, 15))) for i in range(2)}
    pipeline = Pipeline(plan, scheduling)  # type: ignore[arg-type]
    out = []
    for name, (ts, rows) in streams.items():
        if name in pipeline._last and len(ts):
            out += pipeline.push(name, ts, rows)
    flat = told(out + pipeline.finish(60))
    for now in sorted(rng.choice(60, 4, replace=False).tolist()):
        for i, scan in enumerate(maker.scans):
            con.register(f"w{i}", held(scan, *streams[scan.name], now))
        answer = con.execute(f"SELECT * FROM {sql}").fetchall()
        expected = Counter(key(row) for row in answer)
        state: Counter[Any] = Counter()
        for ts, sign, row in flat:
            state[row] += sign if ts <= now else 0
        got = Counter({row: n for row, n in state.items() if n})
        if got != expected and not near(got, expected):
            return f"{sql} at {now}: expected {expected}, got {got}"
    return ""


def near(a: Counter[Any], b: Counter[Any]) -> bool:
    """Equal but for the last digit of a sum, which DuckDB adds in its own order."""
    left, right = (sorted(each.elements(), key=repr) for each in (a, b))
    return len(left) == len(right) and all(
        all(
            p == q or (isinstance(p, float) and isinstance(q, float) and math.isclose(p, q, rel_tol=1e-12))
            for p, q in zip(one, other, strict=True)
        )
        for one, other in zip(left, right, strict=True)
    )


@pytest.mark.parametrize("scheduling", ["nta", "tpa"])
def test_duckdb_gives_the_same_rows_over_what_the_windows_hold(scheduling: str) -> None:
    with fresh_duckdb() as con:
        wrong = {seed: text for seed in range(70) if (text := agree(con, seed, scheduling))}
    assert wrong == {}


@pytest.mark.parametrize("scheduling", ["nta", "tpa"])
def test_aggregates_of_distinct_values_beside_those_of_all_rows_are_those_of_duckdb(scheduling: str) -> None:
    class Only(Mixed):
        def make(self, depth: int) -> tuple[Plan, str]:
            return self.grouped(*super().make(depth - 1)) if depth > 1 else self.leaf()

    with fresh_duckdb() as con:
        wrong = {seed: text for seed in range(70) if (text := agree(con, seed, scheduling, Only))}
    assert wrong == {}


@pytest.mark.long
@pytest.mark.parametrize("scheduling", ["nta", "tpa"])
def test_duckdb_gives_the_same_rows_for_many_more_plans(scheduling: str) -> None:
    with fresh_duckdb() as con:
        wrong = {seed: text for seed in range(1000, 2500) if (text := agree(con, seed, scheduling))}
    assert wrong == {}
