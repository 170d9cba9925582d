"""Exact ranges by counts: each record is the range that the definition gives, however the input is cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nile.operators.common.plan import JoinPlan, default_spec
from nile.operators.join import range_probe
from nile.operators.join.join import JoinInput, Outputs, PromisingJoin
from nile.preferences.budget import Budget
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
