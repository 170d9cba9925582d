"""Window joins of every algorithm and strategy, stopped at random points, go on as if they had never stopped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_wjoin import NULL, Work, members_of, runs, work_of
from twin_held import undecided

from nile.exact.join.window_graph import FORMS
from nile.exact.join.wjoin import Condition, WindowJoin, WindowJoinPlan
from nile.exact.state.held import Held
from nile.execution.envelopes import content, packed
from nile.summaries.envelope import unpack
from nile.summaries.errors import EnvelopeError

CONDITIONS = (Condition(), Condition("band", 1), Condition("any"))


def merged(work: Work) -> tuple[Any, Any, Any]:
    which = np.repeat(np.arange(len(work.ts)), [each.shape[0] for each in work.ts])
    ts, codes = np.concatenate(work.ts), np.concatenate(work.codes)
    order = np.argsort(ts, kind="stable")
    return which[order], ts[order], codes[order]


def push(join: WindowJoin, tuples: tuple[Any, Any, Any], first: int, last: int, rng: np.random.Generator) -> None:
    which, ts, codes = tuples
    while first < last:
        end = min(last, first + int(rng.integers(1, 9)))
        join.push(which[first:end], ts[first:end], codes[first:end])
        first = end


def bytes_of(join: WindowJoin) -> bytes:
    return packed("join", join.capture())


def again(plan: WindowJoinPlan, data: bytes) -> WindowJoin:
    join = plan.start()
    join.restore(Held(content(unpack(data)), "join"))
    return join


def wrong(plan: WindowJoinPlan, work: Work, rng: np.random.Generator) -> str:
    """How a join that is stopped differs from one that is not, and one cut otherwise; '' where they do not."""
    tuples = merged(work)
    n = tuples[0].shape[0]
    stop = int(rng.integers(0, n + 1))
    join, other = plan.start(), plan.start()
    push(join, tuples, 0, stop, rng)
    push(other, tuples, 0, stop, rng)
    if rng.random() < 0.5:
        now = int(tuples[1][stop - 1]) + int(rng.integers(0, 3)) if stop else -1000
        now = now if stop == n else min(now, int(tuples[1][stop]))
        for each in (join, other):
            each.advance(now)
    data = bytes_of(join)
    if data != bytes_of(other):
        return "other bytes when cut otherwise"
    restored = again(plan, data)
    if bytes_of(restored) != data:
        return "other bytes when captured again"
    for each in (join, restored):
        push(each, tuples, stop, n, rng)
    if join.completed != restored.completed or join.seen.tolist() != restored.seen.tolist():
        return "other counts"
    if bytes_of(join) != bytes_of(restored):
        return "other bytes at the end"
    return "" if members_of(join.outputs()) == members_of(restored.outputs()) else "other outputs"


def failures(seeds: range) -> dict[tuple[Any, ...], str]:
    found = {}
    for seed in seeds:
        rng = np.random.default_rng(seed)
        work = work_of(FORMS[seed % len(FORMS)], rng)
        condition = CONDITIONS[seed // len(FORMS) % 3]
        if condition.kind == "band":
            work = Work(work.graph, work.ts, [np.where(each < 0, NULL, each) for each in work.codes])
        for algorithm, strategy in runs():
            if condition.kind != "equal" and algorithm in ("chain", "bew-hash", "few-hash", "xjoin"):
                continue
            output = "count" if rng.random() < 0.3 else "combinations"
            plan = WindowJoinPlan(work.graph, condition, algorithm, strategy or "", None, output, cleanup=5)
            if text := wrong(plan, work, rng):
                found[seed, algorithm, strategy] = text
    return found


def test_every_algorithm_and_strategy_goes_on() -> None:
    assert failures(range(24)) == {}


@pytest.mark.long
def test_every_algorithm_and_strategy_goes_on_over_many_more_streams() -> None:
    assert failures(range(24, 1500)) == {}


def test_counts_of_many_keys_go_on() -> None:
    rng = np.random.default_rng(2)
    work = work_of("binary", rng)
    for keys in (3, 5_000, 1 << 40):
        ts = [np.sort(rng.integers(0, 3_000, 2_000)) for _ in range(2)]
        many = Work(work.graph, ts, [rng.integers(-1, keys, 2_000) for _ in range(2)])
        for output in ("count", "combinations"):
            plan = WindowJoinPlan(many.graph, output=output)
            assert [wrong(plan, many, rng) for _ in range(4)] == [""] * 4


def test_every_attribute_of_a_join_is_held_or_derived() -> None:
    rng = np.random.default_rng(1)
    work = work_of("binary", rng)
    for algorithm in ("chain", "bew-hash", "few-nested"):
        for output in ("count", "combinations"):
            join = WindowJoinPlan(work.graph, algorithm=algorithm, output=output).start()
            push(join, merged(work), 0, 10, rng)
            assert undecided(join, ("nile.exact",)) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"now": "x"},
        {"completed": -1},
        {"seen": np.array([-1, 4])},
        {"seen": np.array([4])},
        {"streams": []},
        {"pending": np.zeros((2, 3), np.int64)},
        {"more": 1},
    ],
)
def test_states_that_do_not_fit_are_refused(change: dict[str, Any]) -> None:
    work = work_of("binary", np.random.default_rng(5))
    plan = WindowJoinPlan(work.graph)
    join = plan.start()
    push(join, merged(work), 0, 12, np.random.default_rng(1))
    with pytest.raises(EnvelopeError, match=r"^join.*needed"):
        plan.start().restore(Held({**join.capture(), **change}, "join"))


def test_ordinals_that_do_not_rise_are_refused() -> None:
    work = work_of("binary", np.random.default_rng(5))
    plan = WindowJoinPlan(work.graph)
    state = plan.start().capture()
    stream = {"ordinals": np.array([3, 2]), "ts": np.array([1, 1]), "codes": np.array([1, 1])}
    with pytest.raises(EnvelopeError, match="ordinals that rise"):
        plan.start().restore(Held({**state, "seen": np.array([9, 9]), "streams": [stream, stream]}, "join"))
