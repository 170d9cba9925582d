"""Random plans and streams for pipelines: ties, bursts, gaps, equal and different windows, empty streams."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from oracle_pipeline import Row, forget, instants, key, rows_of, snapshot

from nile.exact.join.wjoin import ALGORITHMS
from nile.exact.pipeline.pipeline import Changes, Pipeline
from nile.exact.plan.algebra import (
    Aggregate,
    Distinct,
    GraphJoin,
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
    Stored,
    Unbounded,
    Union,
)

ROW = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("s", pa.string())])
DOUBLES = [0.1, 0.2, 1.0, -0.0, 0.0, 1e16, -1e16, 3.5, None, float("nan"), float("inf"), -float("inf")]
FUNCTIONS = ["count", "sum", "avg", "min", "max", "median"]


@dataclass(frozen=True)
class Case:
    """A plan, its streams' tuples (times int64 [n], rows) and where the clock ends."""

    plan: Plan
    streams: dict[str, tuple[Any, Any]]
    end: int


def case(seed: int, *, tuples: int = 14, depth: int = 4, graphs: bool = True) -> Case:
    rng = np.random.default_rng(seed)
    names = ["a", "b", "c"][: rng.integers(1, 4)]
    maker = _Maker(rng, names, graphs=graphs)
    plan = maker.plan(int(rng.integers(1, depth + 1)))
    if rng.random() < 0.3:
        plan = maker.group(plan)
    streams = {name: _stream(rng, int(rng.integers(3, tuples + 1)) if rng.random() < 0.94 else 0) for name in names}
    return Case(plan, streams, 200)


def _stream(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    gaps = rng.choice([0, 0, 1, 1, 2, 5, 20], n)
    ts = np.cumsum(gaps).astype(np.int64) + int(rng.integers(0, 4))
    wild = rng.random() < 0.3
    doubles = DOUBLES if wild else [0.5, 1.5, 2.0, None, -1.0]
    columns = [
        pa.array([None if rng.random() < 0.1 else int(v) for v in rng.integers(0, 3, n)], pa.int64()),
        pa.array([doubles[i] for i in rng.integers(0, len(doubles), n)], pa.float64()),
        pa.array([["p", "q", "", None][i] for i in rng.integers(0, 4, n)], pa.string()),
    ]
    return ts, pa.RecordBatch.from_arrays(columns, schema=ROW)


class _Maker:
    """Plans whose nodes all have the columns k, x, s, so that any fits onto any."""

    def __init__(self, rng: np.random.Generator, names: list[str], *, graphs: bool) -> None:
        self.rng = rng
        self.names = names
        self.position = 0
        self.equal = Range(int(rng.integers(1, 8))) if rng.random() < 0.4 else None
        self.graphs = graphs

    def plan(self, depth: int) -> Plan:
        if depth <= 1:
            return self.leaf()
        match int(self.rng.integers(0, 10)):
            case 0:
                return Select(self.plan(depth - 1), self.test())
            case 1:
                return Project(self.plan(depth - 1), _shifted, ROW)
            case 2:
                return Distinct(self.plan(depth - 1))
            case 3:
                return Union(self.plan(depth - 1), self.plan(depth - 1), bool(self.rng.integers(2)))
            case 4:
                return Intersect(self.plan(depth - 1), self.plan(depth - 1), bool(self.rng.integers(2)))
            case 5 | 6:
                return Minus(self.plan(depth - 1), self.plan(depth - 1), bool(self.rng.integers(2)))
            case 7:
                return self.join(depth)
            case 8:
                return self.graph(depth) if self.graphs else self.join(depth)
            case _:
                return _as_row(self.group(self.plan(depth - 1)))

    def leaf(self) -> Plan:
        if self.rng.random() < 0.1:
            return Stored("stored", pa.Table.from_batches([_stream(self.rng, int(self.rng.integers(0, 4)))[1]]))
        self.position += 1
        window: Any = self.equal
        if window is None:
            choice = self.rng.random()
            window = Range(int(self.rng.integers(1, 12)))
            if choice < 0.15:
                window = Rows(int(self.rng.integers(1, 5)))
            elif choice < 0.25:
                window = Unbounded()
        return Scan(self.names[self.rng.integers(len(self.names))], ROW, window, self.position)

    def test(self) -> Any:
        return [
            lambda rows: pc.greater(rows["k"], 0),
            lambda rows: pc.less(rows["x"], 2.0),
            lambda rows: pc.equal(rows["s"], "p"),
            lambda rows: pc.or_kleene(pc.is_null(rows["k"]), pc.equal(rows["k"], 1)),
        ][self.rng.integers(4)]

    def join(self, depth: int) -> Plan:
        left, right = (_named(self.plan(depth - 1), side) for side in "lr")
        ons: list[tuple[tuple[str, str], ...]] = [
            (("l.k", "r.k"),),
            (("l.k", "r.k"), ("l.s", "r.s")),
            (("l.x", "r.x"),),
            (),
        ]
        on = ons[self.rng.integers(4)]
        test = None if self.rng.random() < 0.6 else lambda rows: pc.less_equal(rows["l.k"], rows["r.k"])
        return _one_side(Join(left, right, on, test))

    def graph(self, depth: int) -> Plan:
        n = int(self.rng.integers(2, 4))
        inputs = []
        for i in range(n):
            self.position += 1
            scan: Plan = Scan(self.names[self.rng.integers(len(self.names))], ROW, Unbounded(), self.position)
            if depth > 2 and self.rng.random() < 0.5:
                scan = Select(scan, self.test())
            inputs.append(_named(scan, "lrm"[i]))
        w = [int(v) for v in self.rng.integers(1, 9, 3)]
        if self.rng.random() < 0.4:
            w = [w[0]] * 3
        pairs = [(i, i + 1, w[i]) for i in range(n - 1)]
        directed = bool(self.rng.random() < 0.3)
        if n == 3 and not directed and self.rng.random() < 0.6:
            pairs.append((0, 2, w[2]))
        on = tuple(f"{'lrm'[i]}.k" for i in range(n)) if self.rng.random() < 0.8 else None
        algorithm = "chain" if on is None else str(self.rng.choice(ALGORITHMS))
        return _one_side(GraphJoin(tuple(inputs), on, tuple(pairs), directed, algorithm=algorithm))

    def group(self, below: Plan) -> Group:
        by = [("k",), ("k", "s"), ("x",), (), ()][self.rng.integers(5)]
        functions = self.rng.choice(FUNCTIONS, int(self.rng.integers(1, 4)), replace=False)
        aggregates = [Aggregate("n", "count")]
        for i, function in enumerate(functions):
            column = ["k", "x", "s"][self.rng.integers(2 if function in ("sum", "avg", "median") else 3)]
            aggregates.append(Aggregate(f"a{i}", str(function), column))  # type: ignore[arg-type]
        return Group(below, by, tuple(aggregates))


def _shifted(rows: Any) -> Any:
    columns = [pc.subtract(1, rows["k"]), pc.add(rows["x"], 1.0), rows["s"]]
    return pa.RecordBatch.from_arrays(columns, schema=ROW)


def _named(plan: Plan, side: str) -> Plan:
    schema = pa.schema([(f"{side}.{field.name}", field.type) for field in ROW])
    return Project(plan, lambda rows: pa.RecordBatch.from_arrays(rows.columns, schema=schema), schema)


def _one_side(plan: Plan) -> Plan:
    def make(rows: Any) -> Any:
        return pa.RecordBatch.from_arrays([rows["l.k"], rows["r.x"], rows["l.s"]], schema=ROW)

    return Project(plan, make, ROW)


def _as_row(group: Group) -> Plan:
    def make(rows: Any) -> Any:
        n = rows["n"]
        k = rows["k"] if "k" in group.by else n
        found = [name for name in rows.schema.names if name.startswith("a")]
        x = rows[found[-1]]
        x = x.cast(pa.float64()) if not pa.types.is_string(x.type) else pc.utf8_length(x).cast(pa.float64())
        s = rows["s"] if "s" in group.by else n.cast(pa.string())
        return pa.RecordBatch.from_arrays([k, x, s], schema=ROW)

    return Project(group, make, ROW)


def batches(one: Case, rng: np.random.Generator) -> list[tuple[str, Any, Any]]:
    """The streams cut at random, in an order that keeps time of each stream alone."""
    ahead = {name: [(ts, rows)] for name, (ts, rows) in one.streams.items() if len(ts)}
    out = []
    while ahead:
        name = list(ahead)[rng.integers(len(ahead))]
        ts, rows = ahead[name].pop()
        n = int(rng.integers(1, len(ts) + 1))
        out.append((name, ts[:n], rows.slice(0, n)))
        if n < len(ts):
            ahead[name].append((ts[n:], rows.slice(n)))
        else:
            del ahead[name]
    return out


def changes(one: Case, scheduling: str, seed: int, emit: str = "changes") -> tuple[list[Changes], Pipeline]:
    """What a pipeline emits over the case's streams, cut by the seed."""
    pipeline = Pipeline(one.plan, scheduling, emit)  # type: ignore[arg-type]
    out: list[Changes] = []
    for name, ts, rows in batches(one, np.random.default_rng(seed)):
        if name in pipeline._last:
            out += pipeline.push(name, ts, rows)
    return out + pipeline.finish(one.end), pipeline


def told(out: list[Changes]) -> list[tuple[int, int, Row]]:
    """(ts, sign, row by value) of changes."""
    flat = []
    for each in out:
        rows = map(key, rows_of(each.rows))
        flat += list(zip(each.ts.tolist(), each.sign.tolist(), rows, strict=True))
    return flat


def difference(one: Case, out: list[Changes]) -> str:
    """How the changes differ from the snapshot query at every instant; '' where they never do."""
    tuples = {name: list(zip(ts.tolist(), rows_of(rows), strict=True)) for name, (ts, rows) in one.streams.items()}
    times = [at for at in instants(one.plan, tuples) if at <= one.end] or [one.end]
    flat = told(out)
    forget()
    if any(a[0] > b[0] for a, b in pairwise(flat)):
        return "times fall"
    strange = {ts for ts, _, _ in flat} - set(times)
    if strange:
        return f"changes at {sorted(strange)}, when nothing happens"
    state: Counter[Row] = Counter()
    done = 0
    for at in times:
        while done < len(flat) and flat[done][0] <= at:
            state[flat[done][2]] += flat[done][1]
            done += 1
        got = {row: n for row, n in state.items() if n}
        expected = dict(Counter(map(key, snapshot(one.plan, tuples, at))))
        if got != expected:
            return f"at {at}: expected {expected}, got {got}"
    return ""
