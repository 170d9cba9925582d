"""Plans that share nothing are worked on by threads: what they tell and hold is as without."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.exact.join.threads import together, useful
from nile.exact.pipeline import group, threaded_selection
from nile.exact.pipeline.pipeline import Pipeline
from nile.exact.pipeline.sources import stream_join, stream_pairs, stream_windows
from nile.exact.plan.algebra import Join, Range, Scan
from nile.execution.envelopes import packed
from nile.execution.live import subscriptions
from nile.execution.live.exact_subscription import ExactSubscription
from nile.execution.live.running import Running
from nile.execution.live.shared import ahead
from nile.runtime import on_threads
from nile.runtime.on_threads import Ahead, shared_out, worked_ahead

SCHEMA = [("t", pa.float64()), ("k", pa.int64()), ("v", pa.float64())]
QUERIES: list[tuple[str, dict[str, Any]]] = [
    ("SELECT t, v FROM a WHERE k <> 1", {}),
    ("SELECT k, count(*) AS n, sum(v) AS s FROM a GROUP BY k WINDOW 8", {"emit": "changes"}),
    ("SELECT k, count(*) AS n FROM a GROUP BY k HAVING count(*) > 2 WINDOW 8", {"emit": "changes"}),
    ("SELECT k, count(*) AS n FROM a GROUP BY k WINDOW 5", {"emit": "append", "scheduling": "tpa"}),
    ("SELECT a.t, b.t AS u, a.k FROM a, b WHERE a.k = b.k AND a.v < b.v WINDOW 6", {"emit": "changes"}),
    ("SELECT a.k, count(*) AS n FROM a, b WHERE a.k = b.k GROUP BY a.k WINDOW 6", {"emit": "append"}),
    ("SELECT DISTINCT k FROM (SELECT k FROM a UNION SELECT k FROM b) AS u WINDOW 5", {"emit": "changes"}),
    ("SELECT a.t, a.k FROM a LEFT JOIN b ON a.k = b.k WHERE b.k IS NULL WINDOW 5", {"emit": "changes"}),
    ("SELECT k, v FROM a ORDER BY v LIMIT 3 WINDOW 5", {"emit": "changes"}),
    ("SELECT sum(1 / CAST(v AS bigint)) AS s FROM b WINDOW 5", {"emit": "changes"}),
    ("SELECT k, 2 * count(*) AS d FROM a GROUP BY k WINDOW 8", {"emit": "changes"}),
    ("SELECT k, 9 / (count(*) - 9) AS q FROM b GROUP BY k WINDOW 5", {"emit": "changes"}),
    ("SELECT a.v, sum(b.v) AS s FROM a, b WHERE a.k = b.k GROUP BY a.v WINDOW 6", {"emit": "changes"}),
    ("SELECT b.v, max(a.t) AS t FROM a, b WHERE a.k = b.k GROUP BY b.v WINDOW 6", {"emit": "changes"}),
    ("SELECT DISTINCT b.v, a.k FROM a, b WHERE a.k = b.k WINDOW 6", {"emit": "changes"}),
    ("SELECT b.v, count(*) AS n FROM a, b WHERE a.k = b.k GROUP BY b.v WINDOW 3", {"emit": "changes"}),
]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Threads for batches of any size; how many worked on each."""
    used: list[int] = []

    def noted(works: Any, threads: int | None) -> int:
        used.append(worked_ahead(works, threads))
        return used[-1]

    monkeypatch.setattr(subscriptions, "_ABREAST", 1)
    monkeypatch.setattr(on_threads, "_WORTH", 0.0)
    monkeypatch.setattr(ahead, "worked_ahead", noted)
    return used


def _told(threads: int, seed: int) -> list[Any]:
    """What queries tell, push by push, and hold; some are paused, closed, shared or fail meanwhile."""
    draw = random.Random(seed)
    told: list[Any] = []
    with nile.connect(threads=threads) as db:
        for name in "ab":
            db.stream(name, SCHEMA, time="t")
        asked = [db.subscribe(text, name=f"q{k}", **how) for k, (text, how) in enumerate(QUERIES)]
        at = dict.fromkeys("ab", 0.0)
        for step in range(25):
            name = draw.choice("ab")
            times = list(itertools.accumulate((draw.choice([0.0, 0.1]) for _ in range(30)), initial=at[name]))
            at[name] = times[-1]
            values = [draw.randint(1, 9) * 1.0 for _ in times]
            rows = {"t": times, "k": [draw.randint(0, 4) for _ in times], "v": values}
            if step == 20:
                rows["v"][3] = 0.0  # which one of them cannot divide by
            try:
                db.push(name, rows)
            except nile.NileError as error:
                told.append(str(error))
            if draw.random() < 0.2:
                each = draw.choice(asked)
                if not each.closed:
                    each.pause()
                    db.advance(max(at.values()) - 1.0)
                    at = dict.fromkeys("ab", max(at.values()))
                    each.resume()
            if step == 12:
                asked.append(db.subscribe(QUERIES[2][0], name="late", emit="changes"))
                asked[0].close()
            told += [[batch.to_pylist() for batch in each.poll()] for each in asked]
        told += [repr(each.capture()) for each in asked if not each.closed]
        told += [each.closed for each in asked]
    return told


@pytest.mark.parametrize("seed", range(3))
def test_outputs_and_states_are_those_of_one_thread(
    eager: list[int], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    formed: list[Any] = []

    def noted(self: Any, found: Any, made: Any) -> None:
        form_ahead(self, found, made)
        formed.append(len(made))

    form_ahead = ExactSubscription.form_ahead
    monkeypatch.setattr(ExactSubscription, "form_ahead", noted)
    one = _told(1, seed)
    assert set(eager) == {1}
    assert _told(2, seed) == one
    assert {0, 1} <= set(formed)  # what divides by 0 is formed, and fails, where it is handed out
    if on_threads.cores() > 1:
        assert 2 in eager


@pytest.mark.parametrize("seed", range(2))
def test_pieces_of_one_join_on_threads_tell_what_one_thread_tells(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    one = _told(1, seed)
    cut: list[int] = []

    def noted(calls: Any) -> None:
        cut.append(len(calls))
        together(calls)

    monkeypatch.setattr(stream_join, "_FEW", 1)
    monkeypatch.setattr(stream_windows, "_PIECE", 2)
    monkeypatch.setattr(stream_pairs, "_PIECE", 3)
    monkeypatch.setattr(stream_pairs, "_BLOCK", 2)
    monkeypatch.setattr(threaded_selection, "_PIECE", 2)
    monkeypatch.setattr(threaded_selection, "_COLUMNS", 2)
    for each in (stream_windows, stream_pairs, threaded_selection):
        monkeypatch.setattr(each, "together", noted)
    assert _told(3, seed) == one
    assert {2, 3} <= set(cut)


@pytest.mark.parametrize("test", ["", " AND a.f < b.f"], ids=["all", "some"])
@pytest.mark.parametrize("nulls", [False, True])
def test_pairs_made_in_blocks_have_what_their_tuples_have(
    monkeypatch: pytest.MonkeyPatch, nulls: bool, test: str
) -> None:
    """Columns of all kinds, beside a nested loop."""
    monkeypatch.setattr(stream_join, "_FEW", 1)
    monkeypatch.setattr(stream_pairs, "_PIECE", 3)
    monkeypatch.setattr(stream_pairs, "_BLOCK", 2)
    draw = random.Random(11)
    made: dict[str, Callable[[], Any]] = {
        "f": draw.random,
        "i": lambda: draw.randint(-9, 9),
        "w": lambda: "x" * draw.randint(0, 4),
        "b": lambda: draw.random() < 0.5,
        "d": lambda: Decimal(draw.randint(-99, 99)) / 10,
        "at": lambda: datetime(2030, 1, draw.randint(1, 9)),
        "u": lambda: 2**62 + draw.randint(0, 9),
    }
    kinds = [pa.float64(), pa.int16(), pa.string(), pa.bool_(), pa.decimal128(9, 1), pa.timestamp("us"), pa.uint64()]
    names = [f"{side}.{name} AS {side}{name}" for side in "ab" for name in made]
    text = f"SELECT a.k, {', '.join(names)} FROM a, b WHERE a.k = b.k{test}"
    kept: dict[str, list[dict[str, Any]]] = {"a": [], "b": []}
    with nile.connect(threads=3) as db:
        for name in kept:
            columns = [("t", pa.float64()), ("k", pa.int64()), *zip(made, kinds, strict=True)]
            db.stream(name, columns, time="t")
        query = db.subscribe(text, emit="append")
        for step in range(6):
            rows = [
                {"t": step + 0.0, "k": draw.randint(0, 4), **{name: one() for name, one in made.items()}}
                for _ in range(20)
            ]
            for row in rows if nulls and step % 2 else []:
                row[draw.choice([name for name in made if name != "f"])] = None
            kept["ab"[step % 2]] += rows
            db.push("ab"[step % 2], rows)
        db.advance(9.0)
        told = [tuple(row.values())[-1 - 2 * len(made) :] for batch in query.poll() for row in batch.to_pylist()]
    true = [
        (one["k"], *(one[name] for name in made), *(other[name] for name in made))
        for one, other in itertools.product(*kept.values())
        if one["k"] == other["k"] and (not test or one["f"] < other["f"])
    ]
    assert len(true) > 100
    assert sorted(told, key=repr) == sorted(true, key=repr)


@pytest.mark.parametrize(
    "by", ["", "GROUP BY a.k", "GROUP BY b.w", "GROUP BY a.k % 3, b.w"], ids=["all", "key", "text", "both"]
)
def test_groups_of_a_join_on_threads_are_those_of_one_thread(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """Parts of the groups by threads, groups looked up in pieces: every sum, output and byte of state."""
    cut: list[int] = []

    def noted(calls: Any) -> None:
        cut.append(len(calls))
        together(calls)

    monkeypatch.setattr(group, "_PIECE", 20)
    monkeypatch.setattr(group, "_PAIRS", 4)
    monkeypatch.setattr(group, "together", noted)
    sides: list[int] = []
    monkeypatch.setattr(stream_windows, "_PIECE", 1)
    monkeypatch.setattr(stream_windows, "together", lambda calls: (sides.append(len(calls)), together(calls)))
    monkeypatch.setattr(threaded_selection, "_COLUMNS", 2)
    told: list[list[Any]] = []
    for threads in (1, 4):
        draw = random.Random(7)
        with nile.connect(threads=threads) as db:
            for name in "ab":
                db.stream(name, [*SCHEMA, ("w", pa.string()), ("n", pa.uint64())], time="t")
            query = db.subscribe(
                "SELECT count(*) AS n, count(b.w) AS m, sum(a.v) AS x, sum(b.n) AS y, avg(b.v) AS z, stddev(a.v) AS d, "
                f"max(b.v) AS o FROM a, b WHERE a.k = b.k {by} WINDOW 3",
                emit="changes",
            )
            told.append([])
            for step in range(12):
                rows: dict[str, list[Any]] = {
                    "t": sorted(step / 2 + draw.random() for _ in range(40)),
                    "k": [draw.choice([None, *range(30)]) for _ in range(40)],
                    "v": [draw.choice([None, 1e300, -1e300, 0.1, 2.5, float("nan"), 1e-9]) for _ in range(40)],
                    "w": [draw.choice([None, "x", "y", "z" * draw.randint(1, 9)]) for _ in range(40)],
                    "n": [draw.randint(0, 2**40) for _ in range(40)],
                }
                db.push("ab"[step % 2], rows)
                told[-1] += [repr(batch.to_pylist()) for batch in query.poll()]
            told[-1].append(packed("query", query.capture()))
        assert (max(cut, default=1) == 4) == (threads == 4)
        assert bool(sides) == (threads == 4)
    assert told[0] == told[1]
    assert len(told[0]) > 5


@pytest.mark.parametrize("limit", [400, 30, -1])
def test_conditions_of_a_join_are_asked_in_pieces_and_raise_what_they_would_raise_of_all(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """limit: the condition raises where a row reaches it, and tells of how many rows it was asked."""
    monkeypatch.setattr(stream_join, "_FEW", 1)
    monkeypatch.setattr(stream_pairs, "_PIECE", 10)
    sides = [
        Scan(name, pa.schema([(f"{name}.k", pa.int64()), (f"{name}.v", pa.int64())]), Range(50), at)
        for at, name in enumerate("ab")
    ]
    asked: list[int] = []

    def test(rows: pa.RecordBatch) -> pa.Array:
        asked.append(rows.num_rows)
        both = rows.column(1).to_numpy() + rows.column(3).to_numpy()
        if limit >= 0 and (both >= limit).any():
            raise ValueError(f"one of {rows.num_rows} rows")
        return pa.array(both % 3 == 0)

    told = []
    for threads in (1, 4):
        made = Pipeline(Join(*sides, on=(("a.k", "b.k"),), test=test), "nta", "changes", threads=threads)
        draw = random.Random(7)
        found: list[Any] = []
        try:
            for name in "ab":
                values = [[draw.randint(0, 3) for _ in range(60)], [draw.randint(0, 100) for _ in range(60)]]
                columns = [f"{name}.k", f"{name}.v"]
                rows = pa.RecordBatch.from_arrays([pa.array(each) for each in values], names=columns)
                found += made.push(name, np.arange(60), rows)
            found += made.finish(500)
        except ValueError as error:
            told.append(str(error))
            continue
        told.append([(each.ts.tolist(), each.sign.tolist(), each.rows.to_pylist()) for each in found])
    assert told[0] == told[1]
    assert len(told[0])
    assert min(asked) < max(asked) / 2


def test_what_helps_several_threads_begins_none() -> None:
    found: list[int] = []
    assert useful(4, 100, 10) == 4
    together([lambda: found.append(useful(4, 100, 10))] * 3)
    assert found == [1, 1, 1]
    together([lambda: found.append(useful(4, 100, 10))])
    assert found[3] == useful(4, 100, 10) == 4


def test_callbacks_are_called_in_the_thread_that_pushes_and_in_order(eager: list[int]) -> None:
    heard: list[tuple[int, int]] = []
    with nile.connect(threads=2) as db:
        db.stream("a", SCHEMA, time="t")
        for number in range(4):
            text = f"SELECT k, count(*) AS n FROM a GROUP BY k WINDOW {number + 2}"
            db.subscribe(text, lambda _, number=number: heard.append((number, threading.get_ident())))
        for push in range(3):
            db.push("a", {"t": [push + 0.5], "k": [1], "v": [1.0]})
    assert [number for number, _ in heard[:4]] == [0, 1, 2, 3]
    assert {thread for _, thread in heard} == {threading.get_ident()}
    assert eager


def test_small_batches_are_worked_on_where_they_are_pushed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "worked_ahead", lambda *_: pytest.fail("threads for three rows"))
    with nile.connect() as db:
        db.stream("a", SCHEMA, time="t")
        counts = [db.subscribe(f"SELECT count(*) AS n FROM a WINDOW {n}", emit="changes") for n in (1, 2)]
        db.push("a", {"t": [1.0, 2.0, 3.0], "k": [1, 2, 3], "v": [0.0] * 3})
        assert all(each.poll() for each in counts)


def test_whether_a_plan_may_run_ahead_is_asked_once_however_many_read_it(
    monkeypatch: pytest.MonkeyPatch, eager: list[int]
) -> None:
    asked: list[Any] = []
    alone = Running.may_run_ahead.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(Running, "may_run_ahead", property(lambda self: asked.append(self) or alone(self)))
    with nile.connect(threads=2) as db:
        db.stream("a", SCHEMA, time="t")
        texts = [f"SELECT k, count(*) AS n FROM a GROUP BY k WINDOW {2 + (n == 7)}" for n in range(20)]
        boards = [db.subscribe(text, emit="changes") for text in texts]
        db.push("a", {"t": [1.0, 2.0, 3.0], "k": [1, 2, 3], "v": [0.0] * 3})
        assert len(asked) == len({id(plan) for plan in asked}) == 2
        assert len(eager) == 1
        told = [[batch.to_pylist() for batch in each.poll()] for each in boards]
    assert told[0]
    assert all(each == told[0] for n, each in enumerate(told) if n != 7)


def test_work_is_shared_out_evenly_and_never_worse_than_four_thirds_of_the_best() -> None:
    assert shared_out([1.0, 5.0, 3.0, 3.0], 2) == [[0, 1], [2, 3]]
    assert shared_out([2.0], 3) == [[0]]
    draw = random.Random(2)
    for _ in range(200):
        costs = [draw.randint(1, 20) * 1.0 for _ in range(draw.randint(1, 8))]
        parts = shared_out(costs, 2)
        assert sorted(k for part in parts for k in part) == list(range(len(costs)))
        longest = max(sum(costs[k] for k in part) for part in parts)
        best = min(
            max(sum(c for c, left in zip(costs, sides, strict=True) if left is side) for side in (True, False))
            for sides in itertools.product([True, False], repeat=len(costs))
        )
        assert longest <= best * (4 / 3 - 1 / 6) + 1e-9


def test_what_fails_ahead_fails_when_it_is_taken_and_nothing_after_it_is_done() -> None:
    ahead: Ahead[int] = Ahead()
    done: list[int] = []

    def step(number: int) -> int:
        done.append(number)
        if number == 1:
            raise ValueError("planted")
        return number

    ahead.work([lambda: step(0), lambda: step(1), lambda: step(2)])
    assert done == [0, 1]
    assert ahead.take(lambda: 9) == 0
    with pytest.raises(ValueError, match="planted"):
        ahead.take(lambda: 9)
    assert not ahead.done
    assert ahead.take(lambda: 9) == 9
    assert ahead.cost > 0
