"""Exact ranges by counts: each record is the range that the definition gives, however the input is cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.operators.common.plan import JoinPlan, default_spec
from nile.operators.inputs.joining import Joinable, Loaded
from nile.operators.join import range_join, range_probe
from nile.operators.join import range_join_kernels as kernels
from nile.operators.join.join import JoinInput, Outputs, PromisingJoin
from nile.operators.join.range_join import RangeJoin, Ranges
from nile.preferences.budget import Budget
from nile.streams.accounting import Accounting
from nile.summaries.costs import ENGINE
from nile.summaries.hashing import Encoded, KeyHasher

Array = np.ndarray[Any, Any]
FAR = (1 << 63) - 1


def plan_of(window: int | None, *, fraction: float = 1.0, preference: str = "desc", output: str = "ranges") -> JoinPlan:
    return JoinPlan(
        window=window, budget=Budget(fraction), preference=preference, output=output, spec=default_spec(window)
    )


def input_of(times: tuple[Array, Array], keys: tuple[Array, Array], costs: Array | None = None) -> JoinInput:
    known = max(0, *(int(column.max(initial=-1)) + 1 for column in keys))
    hashes = KeyHasher().words(np.arange(known, dtype=np.int64))
    encoded = []
    for column in keys:
        hashed = np.zeros(column.shape[0], np.uint64)
        hashed[column >= 0] = hashes[column[column >= 0]]
        encoded.append(Encoded(codes=column.astype(np.int32), hashes=hashed))
    order = np.repeat(np.array([0, 1], np.int8), [len(times[0]), len(times[1])])
    order = order[np.argsort(np.concatenate(times), kind="stable")]
    return JoinInput(
        times[0], times[1], encoded[0], encoded[1], order, np.ones(len(order)) if costs is None else costs, known
    )


def random_input(rng: np.random.Generator, *, most: int = 120, span: int = 200, first: int = -100) -> JoinInput:
    sizes = rng.integers(0, most, 2)
    times = tuple(np.sort(rng.integers(first, first + span, n)) for n in sizes)
    keys = tuple(rng.integers(-1, int(rng.integers(1, 9)), n) for n in sizes)
    return input_of(times, keys, rng.integers(1, 40, int(sizes.sum())) / 4.0)  # type: ignore[arg-type]


def by_definition(data: JoinInput, window: int | None) -> list[tuple[int, int, int, int]]:
    """Of each arrival with matches: ordinal, side, and the ranks of what it joins with in the other stream's list."""
    times, codes = (data.left_ts.tolist(), data.right_ts.tolist()), (data.left.codes, data.right.codes)
    seen, found = [0, 0], []
    for side in data.order.tolist():
        ordinal, other = seen[side], 1 - side
        seen[side] += 1
        if codes[side][ordinal] < 0:
            continue
        listed = [o for o in range(seen[other]) if codes[other][o] == codes[side][ordinal]]
        joins = [
            rank for rank, o in enumerate(listed) if window is None or times[side][ordinal] - times[other][o] <= window
        ]
        if joins:
            found.append((ordinal, side, joins[0], joins[-1] + 1))
    return found


def records(outputs: list[Outputs]) -> list[tuple[int, int, int, int]]:
    found = []
    for part in outputs:
        assert part.side is not None
        assert part.low is not None
        assert part.high is not None
        assert (part.weight == 1.0).all()
        found += list(zip(*(c.tolist() for c in (part.left, part.side, part.low, part.high)), strict=True))
    return found


def test_each_record_is_the_range_that_the_definition_gives() -> None:
    rng = np.random.default_rng(1)
    for trial in range(150):
        data = random_input(rng)
        window = None if trial % 10 == 0 else int(rng.integers(0, 120))
        join = PromisingJoin(plan_of(window), data, batch_rows=int(rng.integers(1, 60)))
        assert records(list(join.run())) == by_definition(data, window)
        nulls = sum(int((keys.codes < 0).sum()) for keys in (data.left, data.right))
        arrivals = data.order.shape[0]
        figures = join.figures
        assert (figures.arrivals, figures.nulls, figures.admitted) == (arrivals, nulls, arrivals - nulls)
        assert figures.shed == (0, 0)


def test_bursts_let_many_tuples_leave_at_once() -> None:
    rng = np.random.default_rng(2)
    times = tuple(np.sort(np.concatenate([rng.integers(0, 3, 400), rng.integers(1_000, 1_003, 40)])) for _ in range(2))
    keys = tuple(rng.integers(0, 3, 440) for _ in range(2))
    data = input_of(times, keys)  # type: ignore[arg-type]
    for window in (0, 1, 999, 1_000):
        assert records(list(PromisingJoin(plan_of(window), data).run())) == by_definition(data, window)


def test_times_at_the_ends_of_int64_join_without_running_off() -> None:
    ends = np.array([-FAR, -FAR + 5, -3, 0, 4, FAR - 6, FAR], np.int64)
    keys = np.zeros(7, np.int64)
    data = input_of((ends, ends), (keys, keys))
    for window in (0, 5, 7, FAR - 1, FAR):
        assert records(list(PromisingJoin(plan_of(window), data).run())) == by_definition(data, window)


def test_expanded_ranges_are_the_pairs_also_while_the_run_goes_on() -> None:
    rng = np.random.default_rng(3)
    for _ in range(30):
        data = random_input(rng)
        window = int(rng.integers(0, 120))
        join = PromisingJoin(plan_of(window), data, batch_rows=17)
        expanded: set[tuple[int, int]] = set()
        for part in join.run():
            pairs = join.expand(part)
            expanded |= set(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))
        enumerated = PromisingJoin(plan_of(window, output="pairs"), data)
        wanted = [(part.left.tolist(), part.right.tolist()) for part in enumerated.run()]
        assert expanded == {pair for left, right in wanted for pair in zip(left, right, strict=True)}


@pytest.mark.parametrize("fraction", [1.0, 1.5, 1.1])
def test_what_is_granted_and_spent_is_the_same_however_the_input_is_cut(fraction: float) -> None:
    rng = np.random.default_rng(4)
    for _ in range(10):
        data = random_input(rng)
        figures = []
        for rows in (1, 7, 1_000):
            join = PromisingJoin(plan_of(30, fraction=fraction), data, batch_rows=rows)
            outputs = len(records(list(join.run())))
            figures.append(join.figures)
        assert figures[0] == figures[1] == figures[2]
        granted = 0.0
        for cost in np.rint(100.0 * data.costs).tolist():
            granted += fraction * cost
        assert figures[0].granted == granted / 100.0
        assert figures[0].outputs == figures[0].regions == outputs
        per_tuple = ENGINE.insert + ENGINE.lookup
        assert figures[0].spent == per_tuple * figures[0].admitted + ENGINE.emit * outputs


def test_numbers_too_large_for_32_bits_are_counted_in_64(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_input(np.random.default_rng(6))
    narrow = PromisingJoin(plan_of(50), data)
    monkeypatch.setattr(range_probe, "_INT32", 10)
    wide = PromisingJoin(plan_of(50), data)
    assert records(list(narrow.run())) == records(list(wide.run())) == by_definition(data, 50)
    assert wide.memory.directory > narrow.memory.directory


def test_a_stream_without_tuples_gives_no_record() -> None:
    some, none = np.arange(9), np.zeros(0, np.int64)
    for times in ((some, none), (none, some), (none, none)):
        join = PromisingJoin(plan_of(5), input_of(times, times))
        assert list(join.run()) == []
        assert join.figures.admitted == len(times[0]) + len(times[1])


def test_weighted_without_a_budget_is_exact_and_asc_still_looks_at_each_tuple() -> None:
    data = random_input(np.random.default_rng(7), most=119)
    weighted = PromisingJoin(plan_of(50, preference="weighted"), data)
    assert records(list(weighted.run())) == by_definition(data, 50)
    rare = PromisingJoin(plan_of(50, preference="asc"), data)
    assert set(records(list(rare.run()))) < set(by_definition(data, 50))


def joined_of(times: tuple[Array, Array], keys: tuple[Any, Any], window: int | None, threads: int | None) -> Joinable:
    sides = (
        Loaded(name, ts, pa.chunked_array([pa.array(key)]), Accounting(), threads=threads)
        for name, ts, key in zip(("a", "b"), times, keys, strict=True)
    )
    return Joinable(*sides, window)


def with_nulls(codes: Array, kind: str) -> Any:
    texts = [None if code < 0 else f"key {code}" for code in codes.tolist()]
    if kind == "text":
        return pa.array(texts, pa.string())
    apart = [None if code < 0 else code * 0x9E3779B1 for code in codes.tolist()]
    return pa.array(apart, pa.int64()) if kind == "sparse" else pa.array(apart, pa.float64())


@pytest.mark.parametrize("kind", ["text", "sparse", "float"])
@pytest.mark.parametrize("threads", [1, 3])
def test_whole_streams_give_the_ranges_of_the_definition_on_any_number_of_threads(
    kind: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_join, "_LONG", 0)
    monkeypatch.setattr(range_join, "useful", lambda threads, _: threads)
    monkeypatch.setattr(range_join, "BLOCK", 13)
    rng = np.random.default_rng([8, threads])
    for trial in range(60):
        data = random_input(rng)
        window = None if trial % 10 == 0 else int(rng.integers(0, 120))
        given = tuple(with_nulls(side.codes, kind) for side in (data.left, data.right))
        joined = joined_of((data.left_ts, data.right_ts), given, window, threads)  # type: ignore[arg-type]
        join = RangeJoin(plan_of(window), joined)
        parts = list(join.run())
        assert records(parts) == by_definition(data, window)
        assert all(len(part) <= 13 for part in parts)
        for part in parts:
            assert isinstance(part, Ranges)
            for ordinal, side, like, ts in zip(part.left, part.side, part.like, part.ts, strict=True):  # type: ignore[arg-type]
                assert given[0][like] == given[side][ordinal]
                assert ts == (data.left_ts, data.right_ts)[side][ordinal]


def test_batches_of_ranges_end_at_the_same_places_whatever_the_threads() -> None:
    rng = np.random.default_rng(9)
    times = tuple(np.sort(rng.integers(0, 10**9, 200_000)) for _ in range(2))
    keys = tuple(rng.integers(0, 50_000, 200_000) for _ in range(2))
    found = []
    for threads in (1, 2):
        joined = joined_of(times, keys, 10**6, threads)  # type: ignore[arg-type]
        found.append([(len(part), records([part])) for part in RangeJoin(plan_of(10**6), joined).run()])
    assert found[0] == found[1]
    assert len(found[0]) >= 4


def test_keys_that_one_stream_alone_has_change_no_rank() -> None:
    rng = np.random.default_rng(10)
    times = tuple(np.sort(rng.integers(0, 10**6, 5_000)) for _ in range(2))
    keys = (rng.integers(0, 3_000, 5_000), rng.integers(2_500, 9_000, 5_000))
    data, joined = input_of(times, keys), joined_of(times, keys, 10**5, None)  # type: ignore[arg-type]
    assert records(list(RangeJoin(plan_of(10**5), joined).run())) == records(
        list(PromisingJoin(plan_of(10**5), data).run())
    )


@pytest.mark.parametrize("rows", [np.int32, np.int64])
def test_the_kernel_of_ranges_is_its_twin(rows: type) -> None:
    rng = np.random.default_rng(11)
    for trial in range(40):
        data = random_input(rng)
        window = -1 if trial % 8 == 0 else int(rng.integers(0, 120))
        codes = tuple(side.codes.astype(np.int64) for side in (data.left, data.right))
        like, none = np.full(data.keys, -1, rows), np.zeros(0, np.int64)
        kernels.like_keys(codes[0], none, like)
        assert like.tolist() == [max(np.flatnonzero(codes[0] == key).tolist(), default=-1) for key in range(data.keys)]
        streams = kernels.Streams(data.left_ts, data.right_ts, codes[0], codes[1], none, none, like)
        counts, progress, found = np.zeros((data.keys, 4), rows), np.zeros(4, np.int64), []
        ends = (codes[0].shape[0], codes[1].shape[0])
        while progress[:2].sum() < sum(ends):
            out = kernels.Records(np.empty(6, np.int8), *(np.empty(6, np.int64) for _ in range(5)))  # type: ignore[call-arg]
            written = kernels.write_ranges(streams, *ends, window, counts, progress, out)
            found += list(zip(*(each[:written].tolist() for each in out), strict=True))
        assert found == twin_of_ranges((data.left_ts, data.right_ts), codes, like, window)  # type: ignore[arg-type]


def twin_of_ranges(times: tuple[Array, Array], codes: tuple[Array, Array], like: Array, window: int) -> list[Any]:
    came: tuple[dict[int, list[int]], ...] = ({}, {})
    found = []
    for ts, side, at in sorted((t, k, i) for k in range(2) for i, t in enumerate(times[k].tolist())):
        if (code := int(codes[side][at])) < 0:
            continue
        partners = came[1 - side].get(code, [])
        low = 0 if window < 0 else sum(other < ts - window for other in partners)
        came[side].setdefault(code, []).append(ts)
        if low < len(partners):
            found.append((side, at, at if side == 0 else int(like[code]), ts, low, len(partners)))
    return found


def test_whole_ranges_expand_to_the_pairs_and_cost_what_the_operator_told() -> None:
    rng = np.random.default_rng(12)
    for _ in range(30):
        data = random_input(rng)
        window = int(rng.integers(0, 120))
        keys = tuple(with_nulls(side.codes, "sparse") for side in (data.left, data.right))
        joined = joined_of((data.left_ts, data.right_ts), keys, window, None)  # type: ignore[arg-type]
        join = RangeJoin(plan_of(window), joined)
        once = PromisingJoin(plan_of(window), joined.input(ENGINE, ranges=True))
        for part, twin in zip(join.run(), once.run(), strict=True):
            pairs, wanted = join.expand(part), once.expand(twin)
            assert pairs.left.tolist() == wanted.left.tolist()
            assert pairs.right.tolist() == wanted.right.tolist()
            assert (pairs.weight == 1.0).all()
        assert join.figures == once.figures
        assert join.memory.tuples > 0


def test_whole_ranges_at_the_ends_of_int64_and_of_a_stream_without_tuples() -> None:
    ends = np.array([-FAR, -FAR + 5, -3, 0, 4, FAR - 6, FAR], np.int64)
    keys = np.zeros(7, np.int64)
    for window in (0, 5, 7, FAR - 1, FAR):
        joined = joined_of((ends, ends), (keys, keys), window, None)
        found = records(list(RangeJoin(plan_of(window), joined).run()))
        assert found == by_definition(input_of((ends, ends), (keys, keys)), window)
    none = np.zeros(0, np.int64)
    for times in ((ends, none), (none, ends), (none, none)):
        assert list(RangeJoin(plan_of(5), joined_of(times, times, 5, None)).run()) == []


def test_an_answer_of_ranges_tells_the_columns_of_its_tuples() -> None:
    tables = [
        pa.table({"ts": pa.array([1, 2, 5], pa.timestamp("s")), "k": ["x", "y", "x"]}),
        pa.table({"ts": pa.array([1, 3, 6], pa.timestamp("s")), "k": ["x", None, "x"]}),
    ]
    db = nile.connect()
    for name, table in zip("ab", tables, strict=True):
        db.register(name, table, time="ts")
    answer = db.join("a", "b", on="k", window=4).returning("ranges").run()
    assert answer.to_arrow().select(["side", "ordinal", "k", "first", "last", "pairs"]).to_pylist() == [
        {"side": "right", "ordinal": 0, "k": "x", "first": 0, "last": 0, "pairs": 1},
        {"side": "left", "ordinal": 2, "k": "x", "first": 0, "last": 0, "pairs": 1},
        {"side": "right", "ordinal": 2, "k": "x", "first": 1, "last": 1, "pairs": 1},
    ]
    assert answer.to_arrow()["ts"].cast(pa.timestamp("s")).to_pylist() == [
        tables[1]["ts"][0].as_py(), tables[0]["ts"][2].as_py(), tables[1]["ts"][2].as_py(),
    ]  # fmt: skip
