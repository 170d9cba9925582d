"""What a pipeline emits, when, and what it keeps: the three modes, watermarks, snapshots, memory."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from oracle_pipeline import forget, key, rows_of, snapshot
from workload_pipeline import case, changes, told

from nile.exact.join.wjoin import ALGORITHMS
from nile.exact.pipeline.pipeline import Changes, Pipeline
from nile.exact.pipeline.sources.leaf import Stream
from nile.exact.plan.algebra import (
    Aggregate,
    Distinct,
    GraphJoin,
    Group,
    Join,
    Plan,
    Range,
    Rows,
    Scan,
    Stored,
    Unbounded,
    Union,
)
from nile.exact.state.expire import Calendar

KEYED = pa.schema([("k", pa.int64()), ("v", pa.int64())])
OTHER = pa.schema([("j", pa.int64()), ("u", pa.int64())])


def rows(schema: Any, *values: tuple[Any, ...]) -> Any:
    columns = [pa.array([row[i] for row in values], field.type) for i, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def scan(name: str = "s", window: Any = None, position: int = 0, schema: Any = KEYED) -> Scan:
    return Scan(name, schema, window or Range(10), position)


def flat(out: list[Changes]) -> list[tuple[int, int, Any]]:
    return told(out)


def count(below: Plan) -> Group:
    return Group(below, (), (Aggregate("n", "count"),))


@pytest.mark.parametrize("scheduling", ["nta", "tpa"])
def test_snapshot_mode_tells_the_state_at_the_end_once(scheduling: str) -> None:
    for seed in range(30):
        one = case(seed)
        out, pipeline = changes(one, scheduling, seed, "snapshot")
        forget()
        tuples = {n: list(zip(ts.tolist(), rows_of(r), strict=True)) for n, (ts, r) in one.streams.items()}
        expected = Counter(map(key, snapshot(one.plan, tuples, one.end)))
        assert Counter(row for _, _, row in told(out)) == expected, seed
        assert all(ts == one.end and sign == 1 for ts, sign, _ in told(out)), seed
        assert Counter(map(key, rows_of(pipeline.snapshot()))) == expected, seed


@pytest.mark.parametrize("scheduling", ["nta", "tpa"])
def test_append_mode_tells_what_comes_and_never_what_goes(scheduling: str) -> None:
    for seed in range(30):
        one = case(seed, graphs=False)
        every = [each for each in told(changes(one, scheduling, seed)[0]) if each[1] > 0]
        assert Counter(told(changes(one, scheduling, seed + 1, "append")[0])) == Counter(every), seed


def test_an_instant_is_told_once_every_stream_has_passed_it() -> None:
    pipeline = Pipeline(Union(scan("a"), scan("b", position=1), all=True))
    assert pipeline.push("a", np.array([1, 2]), rows(KEYED, (1, 1), (2, 2))) == []
    assert [ts for ts, _, _ in flat(pipeline.push("b", np.array([2]), rows(KEYED, (3, 3))))] == [1]
    assert [ts for ts, _, _ in flat(pipeline.advance(5))] == [2, 2]
    assert flat(pipeline.advance(11)) == []
    assert [(ts, sign) for ts, sign, _ in flat(pipeline.advance(12))] == [(12, -1)]
    assert [(ts, sign) for ts, sign, _ in flat(pipeline.finish(100))] == [(13, -1), (13, -1)]


def test_a_stream_that_is_closed_holds_nobody_back() -> None:
    pipeline = Pipeline(Union(scan("a"), scan("b", position=1), all=True))
    pipeline.push("a", np.array([1, 2]), rows(KEYED, (1, 1), (2, 2)))
    assert [ts for ts, _, _ in flat(pipeline.close("b"))] == [1]


def test_run_reads_the_stream_that_is_furthest_behind() -> None:
    one = case(7)
    sources = {n: iter([(ts[i : i + 1], r.slice(i, 1)) for i in range(len(ts))]) for n, (ts, r) in one.streams.items()}
    pipeline = Pipeline(one.plan)
    names = set(pipeline._last)
    out = list(pipeline.run({n: source for n, source in sources.items() if n in names}, one.end))
    assert told(out) == told(changes(one, "nta", 1)[0])


def test_a_group_without_keys_has_its_row_from_the_first_instant_on() -> None:
    pipeline = Pipeline(count(scan()))
    assert flat(pipeline.advance(3)) == [(3, 1, (0,))]
    assert flat(pipeline.push("s", np.array([5]), rows(KEYED, (1, 1)))) == []
    assert flat(pipeline.finish(16)) == [(5, -1, (0,)), (5, 1, (1,)), (16, -1, (1,)), (16, 1, (0,))]


def test_an_empty_input_gives_the_row_of_nothing() -> None:
    assert flat(Pipeline(count(scan())).finish()) == [(0, 1, (0,))]


def test_stored_rows_hold_from_the_first_instant_on() -> None:
    stored = Stored("items", pa.Table.from_batches([rows(OTHER, (1, 7), (2, 8))]))
    pipeline = Pipeline(Join(scan(), stored, (("k", "j"),)))
    out = pipeline.push("s", np.array([5, 6]), rows(KEYED, (2, 0), (3, 0))) + pipeline.finish(16)
    assert flat(out) == [(5, 1, (2, 0, 2, 8)), (16, -1, (2, 0, 2, 8))]


def test_a_rows_window_keeps_the_last_n_whatever_their_age() -> None:
    pipeline = Pipeline(scan(window=Rows(2)))
    out = pipeline.push("s", np.array([1, 50, 99]), rows(KEYED, (1, 1), (2, 2), (3, 3))) + pipeline.finish(1000)
    assert flat(out) == [(1, 1, (1, 1)), (50, 1, (2, 2)), (99, -1, (1, 1)), (99, 1, (3, 3))]


def test_a_tuple_is_valid_to_the_last_nanosecond_of_its_window() -> None:
    pipeline = Pipeline(Join(scan("a"), scan("b", position=1, schema=OTHER), (("k", "j"),)), emit="append")
    pipeline.push("a", np.array([0, 1]), rows(KEYED, (1, 1), (1, 2)))
    out = pipeline.push("b", np.array([11]), rows(OTHER, (1, 0))) + pipeline.finish()
    assert flat(out) == [(11, 1, (1, 2, 1, 0))]


def test_a_snapshot_that_nobody_keeps_is_refused() -> None:
    pipeline = Pipeline(scan(window=Unbounded()), emit="append")
    pipeline.push("s", np.array([1]), rows(KEYED, (1, 1)))
    pipeline.finish()
    with pytest.raises(ValueError, match="emit='snapshot'"):
        pipeline.snapshot()


def combinations(streams: list[list[tuple[int, int]]], constraints: Any, directed: bool) -> Counter[Any]:
    """Combinations of (ts, key) within all windows given, by brute force."""
    found: Counter[Any] = Counter()
    members: list[Any] = [()]
    for stream in streams:
        members = [(*one, each) for one in members for each in stream if not one or one[0][1] == each[1]]
    for one in members:
        times = [(one[i][0], one[j][0]) for i, j, _ in constraints]
        if any(abs(a - b) > w for (a, b), (_, _, w) in zip(times, constraints, strict=True)):
            continue
        if directed and not (all(a <= b for a, b in times) or all(a >= b for a, b in times)):
            continue
        found[max(ts for ts, _ in one), tuple(ts for ts, _ in one), one[0][1]] += 1
    return found


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_window_graph_gives_every_combination_within_its_windows_when_it_is_complete(
    directed: bool, algorithm: str
) -> None:
    rng = np.random.default_rng(3)
    for _ in range(12):
        n = int(rng.integers(2, 5))
        streams = []
        for _ in range(n):
            times = np.sort(rng.integers(0, 25, int(rng.integers(0, 12))))
            streams.append([(int(t), int(rng.integers(0, 2))) for t in times])
        constraints = tuple((i, i + 1, int(rng.integers(1, 9))) for i in range(n - 1))
        if n > 2 and not directed and rng.random() < 0.5:
            constraints += ((0, n - 1, int(rng.integers(1, 9))),)
        schemas = [pa.schema([(f"t{i}", pa.int64()), (f"k{i}", pa.int64())]) for i in range(n)]
        inputs = tuple(Scan(f"s{i}", schemas[i], Unbounded(), i) for i in range(n))
        plan = GraphJoin(inputs, tuple(f"k{i}" for i in range(n)), constraints, directed, algorithm=algorithm)
        pipeline = Pipeline(plan, emit="append")
        out = []
        for i, stream in enumerate(streams):
            if stream:
                out += pipeline.push(f"s{i}", np.array([t for t, _ in stream]), rows(schemas[i], *stream))
        out += pipeline.finish()
        got = Counter((ts, row[::2], row[1]) for ts, _, row in flat(out))
        assert got == combinations(streams, constraints, directed)


def churning(steps: int, plan: Plan, per_step: int = 2000) -> list[int]:
    """Bytes of state after each batch of a stream whose keys never come again."""
    pipeline = Pipeline(plan)
    sizes, at = [], 0
    for _ in range(steps):
        ts = np.arange(at, at + per_step)
        batch = pa.RecordBatch.from_arrays([pa.array(ts), pa.array(ts % 7)], schema=KEYED)
        pipeline.push("s", ts, batch)
        at += per_step
        sizes.append(pipeline.memory)
    return sizes


@pytest.mark.parametrize(
    "plan",
    [
        Distinct(scan(window=Range(500))),
        Group(scan(window=Range(500)), ("k",), (Aggregate("t", "sum", "v"), Aggregate("m", "median", "v"))),
        Distinct(scan(window=Rows(300))),
    ],
    ids=["distinct", "group", "rows"],
)
def test_state_does_not_grow_with_the_stream(plan: Plan) -> None:
    sizes = churning(24, plan)
    assert max(sizes[12:]) <= 1.05 * max(sizes[4:12])


def test_tuples_pushed_one_by_one_are_kept_in_few_blocks() -> None:
    pipeline = Pipeline(Group(scan(window=Range(2000)), ("k",), (Aggregate("most", "max", "v"),)))
    for at in range(3000):
        pipeline.push("s", np.array([at]), rows(KEYED, (at % 5, at)))
    stream = pipeline._built.streams[0]
    assert isinstance(stream, Stream)
    assert isinstance(stream._expire, Calendar)
    blocks = [block for run in stream._expire._runs for block in run.blocks]
    assert sum(len(block[0]) for block in blocks) >= 2000
    assert len(blocks) < 24


def test_sums_over_an_unbounded_stream_keep_groups_and_no_tuples() -> None:
    plan = Group(scan(window=Unbounded()), ("v",), (Aggregate("t", "sum", "k"), Aggregate("n", "count")))
    sizes = churning(24, plan)
    assert sizes[-1] == sizes[4]
