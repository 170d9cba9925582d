"""Window joins over independent queues against what they must produce, however streams are interleaved."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from oracle_selfscheduling import Stream, combinations, completed, forward_admits

from nile.exact.selfscheduling.operators import Nothing, Selection, StreamScan, left_deep
from nile.exact.selfscheduling.pulling import PULLED, SelfScheduledJoin, SelfScheduledPlan
from nile.summaries.errors import ConfigError, TimestampOrderError

BACKWARD = [name for name in PULLED if name.startswith("bew")]
FORWARD = [name for name in PULLED if name.startswith("few")]


def made(rng: np.random.Generator, n: int, tuples: int, *, gap: int = 3, keys: int = 3) -> list[Stream]:
    """Streams with ties, null keys and gaps; each runs at a pace of its own."""
    return [
        [
            (int(ts), int(code))
            for ts, code in zip(
                np.cumsum(rng.integers(0, gap * int(rng.integers(1, 4)), tuples)),
                rng.integers(-1, keys, tuples),
                strict=True,
            )
        ]
        for _ in range(n)
    ]


def interleaved(rng: np.random.Generator, streams: list[Stream]) -> Iterator[tuple[int, int]]:
    """(stream, how many tuples of it come next), in bursts, at random between streams."""
    left = [len(stream) for stream in streams]
    while any(left):
        j = int(rng.choice([k for k, many in enumerate(left) if many]))
        many = min(left[j], int(rng.integers(1, 5)))
        left[j] -= many
        yield j, many


def push(join: SelfScheduledJoin, j: int, tuples: Stream) -> None:
    join.push(j, np.array([ts for ts, _ in tuples], np.int64), np.array([code for _, code in tuples], np.int64))


def drained(join: SelfScheduledJoin, order: list[int]) -> list[tuple[int, ...]]:
    """Turns until NULL or END; `order` gets the stream of each tuple that is admitted, but not of those let go."""
    found: list[tuple[int, ...]] = []
    while join.turn() is None:
        order.append(int(join._w.at[5]))
        for block in join.outputs():
            found += [tuple(row) for row in block.tolist()]
    return found


@pytest.mark.parametrize("algorithm", BACKWARD)
@pytest.mark.parametrize("seed", range(6))
def test_backward_evaluation_admits_all_that_came_and_finds_what_each_completes(algorithm: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, window = int(rng.integers(2, 5)), int(rng.integers(0, 12))
    streams = made(rng, n, 14 if n < 4 else 8)
    join = SelfScheduledPlan(n, window, algorithm).start()
    came = [0] * n
    order: list[int] = []
    found: list[tuple[int, ...]] = []
    for j, many in interleaved(rng, streams):
        push(join, j, streams[j][came[j] : came[j] + many])
        came[j] += many
        found += drained(join, order)
        assert join.admitted.tolist() == came, "nothing waits, whoever is silent"
        assert found == completed(streams, window, order)
    assert sorted(found) == combinations(streams, window)


@pytest.mark.parametrize("algorithm", FORWARD)
@pytest.mark.parametrize("seed", range(10))
def test_forward_evaluation_admits_by_its_modes_and_loses_nothing(algorithm: str, seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    n, window = int(rng.integers(2, 5)), int(rng.integers(0, 12))
    streams = made(rng, n, 14 if n < 4 else 8)
    join = SelfScheduledPlan(n, window, algorithm).start()
    came, ended = [0] * n, [False] * n
    found: list[tuple[int, ...]] = []

    def check() -> None:
        found.extend(drained(join, []))
        admitted, unjoined = forward_admits([s[:k] for s, k in zip(streams, came, strict=True)], window, ended)
        assert join.admitted.tolist() == [len(a | u) for a, u in zip(admitted, unjoined, strict=True)]
        assert join.costs["unjoined"] == sum(map(len, unjoined))
        expected = [each for each in combinations(streams, window) if all(k in admitted[j] for j, k in enumerate(each))]
        assert sorted(found) == expected, "all among what was admitted, and that once"

    for j, many in interleaved(rng, streams):
        push(join, j, streams[j][came[j] : came[j] + many])
        came[j] += many
        if came[j] == len(streams[j]) and rng.random() < 0.5:
            join.end(j)
            ended[j] = True
        check()
    for j in range(n):
        join.end(j)
        ended[j] = True
        check()
    assert sorted(found) == combinations(streams, window)
    assert join.turn() is Nothing.END


@pytest.mark.parametrize("algorithm", PULLED)
def test_one_dead_source_of_three_blocks_nothing_and_what_it_brings_late_is_joined(algorithm: str) -> None:
    streams: list[Stream] = [
        [(ts, 1) for ts in range(0, 40, 4)],
        [(ts, 1) for ts in range(2, 42, 4)],
        [(9, 1), (21, 1)],
    ]
    join = SelfScheduledPlan(3, 5, algorithm).start()
    for j in (0, 1):
        push(join, j, streams[j])
    assert join.get_next() is Nothing.NULL, "control goes back to whoever asked"
    assert join.admitted.tolist() == ([10, 10, 0] if algorithm in BACKWARD else [0, 0, 0])
    assert (join.admitted + join.waiting).tolist() == [10, 10, 0], "in = admitted + waiting"
    push(join, 2, streams[2])
    found = []
    while not isinstance(got := join.get_next(), Nothing):
        found.append(got)
    late = combinations(streams, 5)
    if algorithm in BACKWARD:
        assert sorted(found) == late
    else:  # it cannot know yet that the third brings nothing more between 21 and 25
        admitted, _ = forward_admits(streams, 5, [False] * 3)
        assert sorted(found) == [each for each in late if all(k in admitted[j] for j, k in enumerate(each))] != []
    for j in range(3):
        join.end(j)
    while (got := join.get_next()) is not Nothing.END:
        assert not isinstance(got, Nothing)
        found.append(got)
    assert sorted(found) == late


@pytest.mark.parametrize("seed", range(5))
def test_a_plan_of_pairs_finds_the_same_and_hands_up_null_only_when_all_below_are_empty(seed: int) -> None:
    rng = np.random.default_rng(200 + seed)
    n, window = int(rng.integers(2, 5)), int(rng.integers(0, 12))
    streams = made(rng, n, 12 if n < 4 else 8)
    scans = [StreamScan(j) for j in range(n)]
    plan = left_deep(scans, window)
    came = [0] * n
    found = []
    for j, many in interleaved(rng, streams):
        for ts, code in streams[j][came[j] : came[j] + many]:
            scans[j].put(ts, code)
        came[j] += many
        while not isinstance(got := plan.get_next(), Nothing):
            found.append(tuple(member.ordinal for member in got))
        assert got is Nothing.NULL
        assert all(scan.get_next() is Nothing.NULL for scan in scans)
        assert sorted(found) == combinations([s[:k] for s, k in zip(streams, came, strict=True)], window)
    for scan in scans:
        scan.end()
    assert plan.get_next() is Nothing.END


def test_a_selection_that_finds_nothing_goes_on_and_a_dead_source_holds_up_none_beside_it() -> None:
    a, b, dead = StreamScan(0), StreamScan(1), StreamScan(2)
    even = Selection(a, lambda got: got[0].ordinal % 2 == 0)
    lower = left_deep([even, b], 3)
    plan = left_deep([even, b, dead], 3)
    for ts in range(6):
        a.put(ts, 7)
        b.put(ts, 7)
    assert plan.get_next() is Nothing.NULL
    pairs = [(x, y) for x in (0, 2, 4) for y in range(6) if abs(x - y) <= 3]
    assert plan.kept == (len(pairs), 0), "what lies below the dead source has all been found"
    dead.put(2, 7)
    got = []
    while not isinstance(each := plan.get_next(), Nothing):
        got.append([member.ts for member in each])
    assert sorted(got) == sorted([x, y, 2] for x, y in pairs if max(x, y, 2) - min(x, y, 2) <= 3)
    assert lower.get_next() is Nothing.NULL


def test_expired_tuples_leave_and_queues_grow() -> None:
    for algorithm in PULLED:
        join = SelfScheduledPlan(2, 10, algorithm).start()
        times = np.arange(5_000, dtype=np.int64)
        pairs = 0
        for some in (times[:500], times[500:]):
            for j in (0, 1):
                join.push(j, some, np.zeros(some.shape[0], np.int64))
        while not isinstance(join.turn(), Nothing):
            pairs += sum(block.shape[0] for block in join.outputs())
        assert pairs == sum(min(10, k) + min(10, 4_999 - k) + 1 for k in range(5_000))
        assert join.kept.max() <= 12
        assert join.costs["moved"] > 0


def test_what_cannot_be_joined_is_refused_and_changes_nothing() -> None:
    with pytest.raises(ConfigError, match=r"needed one of .*bew-hash"):
        SelfScheduledPlan(2, 1, "chain")
    with pytest.raises(ConfigError, match="2 streams or more; got 1"):
        SelfScheduledPlan(1, 1)
    with pytest.raises(ConfigError, match="a window of 0 to"):
        SelfScheduledPlan(2, -1)
    join = SelfScheduledPlan(2, 1).start()
    join.push(0, np.array([5]), np.array([1]))
    join.push(1, np.array([2]), np.array([1]))  # streams have no order between them
    with pytest.raises(TimestampOrderError, match=r"stream 0: .* got 4 ns at place 0, after 5"):
        join.push(0, np.array([4]), np.array([1]))
    with pytest.raises(TimestampOrderError, match="got 1 ns at place 1, after 9"):
        join.push(1, np.array([9, 1]), np.array([1, 1]))
    with pytest.raises(ConfigError, match="as many codes as times"):
        join.push(1, np.array([9]), np.array([1, 2]))
    with pytest.raises(ConfigError, match="a stream from 0 to 1; got 2"):
        join.end(2)
    join.end(0)
    with pytest.raises(ConfigError, match="has ended"):
        join.push(0, np.array([9]), np.array([1]))
    assert join.waiting.tolist() == [1, 1]
    scan = StreamScan(0)
    scan.put(3, 1)
    with pytest.raises(TimestampOrderError, match="needed a time of 3 ns or later; got 2"):
        scan.put(2, 1)
    scan.end()
    with pytest.raises(ConfigError, match="has ended"):
        scan.put(4, 1)
    with pytest.raises(ConfigError, match="2 sources or more; got 1"):
        left_deep([scan], 3)
