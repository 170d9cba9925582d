"""Many selections over one stream: an index finds the rows of all, and each tells what it would alone."""

from __future__ import annotations

import math
import operator
import random
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.execution.envelopes import flat, packed
from nile.execution.live import event, subscriptions
from nile.execution.live.chosen import Sought
from nile.execution.live.indexed.deliveries import Deliveries, Form
from nile.execution.live.indexed.predicates import PredicateIndex, is_indexable

SCHEMA = [("t", pa.float64()), ("k", pa.int64()), ("v", pa.float64()), ("name", pa.string())]
HOLDS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def holds(one: Sought, value: Any) -> bool:
    """The oracle of one comparison: null satisfies nothing, NaN is beyond all numbers."""
    if value is None:
        return False
    if isinstance(value, float) and math.isnan(value):
        return one.operator in (">", ">=")
    return bool(HOLDS[one.operator](value, one.constant))


def drawn(draw: random.Random, n: int) -> dict[str, list[Any]]:
    return {
        "whole": [draw.choice([None, draw.randint(-3, 9), -(2**63), 2**63 - 1]) for _ in range(n)],
        "far": [draw.choice([draw.randint(0, 5) * 10**12, 7]) for _ in range(n)],
        "number": [draw.choice([None, math.nan, -0.0, 0.0, math.inf, -math.inf, draw.random()]) for _ in range(n)],
        "text": [draw.choice([None, "", "a", "ä", "zz", "other"]) for _ in range(n)],
    }


@pytest.mark.parametrize("seed", range(12))
def test_an_index_finds_the_rows_that_looking_at_each_finds(seed: int) -> None:
    draw = random.Random(seed)
    far = pa.int32() if seed == 5 else pa.int64()
    table = pa.schema([("whole", pa.int64()), ("far", far), ("number", pa.float64()), ("text", pa.string())])
    constants: dict[str, Any] = {
        "whole": lambda: draw.randint(-4, 10), "far": lambda: draw.randint(0, 5) * (10**12 if seed != 5 else 10**8),
        "number": lambda: draw.choice([0, 0.5, draw.random(), -1]),
        "text": lambda: draw.choice(["", "a", "ä", "zz", "no"]),
    }  # fmt: skip
    wanted = []
    for _ in range(draw.choice([1, 20, 60])):
        some = []
        for name in draw.sample(list(constants), draw.randint(1, 3)):
            for _ in range(draw.choice([1, 1, 2])):
                how = "=" if name == "text" else draw.choice(list(HOLDS))
                some.append(Sought(name, how, constants[name]()))
        wanted.append(tuple(some))
    assert all(is_indexable(some, table) for some in wanted)
    index = PredicateIndex(wanted, table, share=1.0 if seed % 2 else 0.25)
    for n in (1, 40, 500):
        values = drawn(draw, n)
        if seed == 5:
            values["far"] = [value // 10**4 for value in values["far"]]
        batch = pa.RecordBatch.from_pydict(values, schema=table)
        found = index.matches(batch)
        told = set(zip(found.who.tolist(), found.rows.tolist(), strict=True))
        assert len(told) == found.who.size
        assert (np.diff(found.who * n + found.rows) > 0).all()
        for k, some in enumerate(wanted):
            if found.broad[k]:
                assert not any(who == k for who, _ in told)
                continue
            true = {(k, i) for i in range(n) if all(holds(one, values[one.column][i]) for one in some)}
            assert {pair for pair in told if pair[0] == k} == true


def test_what_an_index_cannot_compare_is_left_to_others() -> None:
    schema = pa.schema([("whole", pa.int64()), ("big", pa.uint64()), ("at", pa.timestamp("ns")), ("text", pa.string())])
    no = [Sought("whole", "=", 2.5), Sought("whole", "=", "a"), Sought("big", "=", 1), Sought("at", "=", 1),
          Sought("text", "=", 1), Sought("none", "=", 1)]  # fmt: skip
    assert not any(is_indexable([one], schema) for one in no)
    assert not is_indexable([], schema)


def test_deliveries_are_merged_without_what_was_taken_and_nobody_misses_or_repeats_a_row() -> None:
    draw = np.random.Generator(np.random.PCG64(3))
    schema = pa.schema([("x", pa.int64())])
    kept = Deliveries([Form((0,), False, schema)] * 5)
    expected: list[list[int]] = [[] for _ in range(5)]
    told: list[list[int]] = [[] for _ in range(5)]
    for step in range(600):
        sizes = draw.integers(0, 3, 5)
        values = np.arange(sizes.sum()) + 1_000 * step
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        kept.add(offsets, values, pa.record_batch([pa.array(values)], schema=schema))
        for k in range(5):
            expected[k] += values[offsets[k] : offsets[k + 1]].tolist()
        for k in range(4):  # the last one never comes
            if draw.random() < 0.02 * (k + 1):
                told[k] += [x for batch in kept.take(k) for x in batch.column(0).to_pylist()]
    assert len(kept._waiting) <= 64
    for k in range(5):
        told[k] += [x for batch in kept.take(k) for x in batch.column(0).to_pylist()]
    assert told == expected
    assert not kept._waiting
    assert kept.bytes == 0


QUERIES = [
    *(f"SELECT t, k, v FROM s WHERE k = {k}" for k in range(12)),
    *(f"SELECT v FROM s WHERE v > {k / 10} AND k = {k}" for k in range(10)),
    "SELECT v * 2 AS twice, k FROM s WHERE k = 3",
    "SELECT 1.0 / k AS part FROM s WHERE v < 0.1",
    "SELECT * FROM s WHERE v >= 0.05",
    "SELECT k, name FROM s WHERE name = 'n1' AND k <= 6",
    "SELECT k FROM s WHERE name = 'nobody'",
    "SELECT k, v FROM s WHERE k % 3 = 1",
    "SELECT t, name FROM s WHERE k > 2 AND k < 5 WINDOW 3",
    "SELECT name FROM s WHERE k = 1 AND k = 2",
]


def rows(draw: random.Random, at: list[float], n: int) -> dict[str, list[Any]]:
    times = []
    for _ in range(n):
        at[0] += draw.choice([0.0, 0.25])
        times.append(at[0])
    return {
        "t": times, "k": [draw.choice([None, draw.randint(0, 11)]) for _ in times],
        "v": [draw.choice([draw.random(), math.nan]) for _ in times], "name": [f"n{draw.randint(0, 3)}" for _ in times],
    }  # fmt: skip


def numbered(standing: Any) -> list[tuple[int, Any]]:
    return [
        (first + i, repr(row)) for first, batch in standing.poll_numbered() for i, row in enumerate(batch.to_pylist())
    ]


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 15))])
def test_an_index_changes_nothing_that_can_be_seen(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two databases to which the same is done: one looks at every row for every query."""
    draw = random.Random(seed)
    dbs, heard = [nile.connect(), nile.connect()], [[], []]  # type: ignore[var-annotated]
    for db in dbs:
        db.stream("s", SCHEMA, time="t", lateness=1)
    queries: list[list[Any]] = []

    def both(do: Any) -> None:
        for which, db in enumerate(dbs):
            least = 4 if which == 0 else 10**9
            monkeypatch.setattr(subscriptions, "LEAST", least)
            monkeypatch.setattr(event, "_MANY", least)
            do(which, db)

    def ask(text: str, **how: Any) -> None:
        made: list[Any] = [None, None]
        number, call = len(queries), how.pop("call", False)

        def one(which: int, db: Any) -> None:
            told = (lambda batch: heard[which].append((number, repr(batch.to_pylist())))) if call else None
            made[which] = db.subscribe(text, callback=told, **how)

        both(one)
        queries.append(made)

    for text in QUERIES:
        ask(text)
    ask("SELECT k, v FROM s WHERE k = 4", call=True)
    ask("SELECT k, v FROM s WHERE k = 5", emit="changes")
    ask("SELECT k, v FROM s WHERE k = 6", unread=3, when_full="drop")
    at = [0.0]
    for _ in range(80):
        what = draw.random()
        if what < 0.55:
            data = rows(draw, at, draw.choice([1, 20, 200]))
            both(lambda _, db, data=data: db.push("s", data))
        elif what < 0.6:
            both(lambda _, db, now=at[0]: db.advance(now))
        elif what < 0.65:
            ask(draw.choice(QUERIES), name=f"q{len(queries)}")
        elif queries:
            pair = draw.choice(queries)
            if what < 0.85:
                assert numbered(pair[0]) == numbered(pair[1])
            elif what < 0.9:
                for one in pair:
                    (one.resume if one.paused else one.pause)()
            elif what < 0.93:
                for one in pair:
                    one.close()
        for first, other in queries:
            assert (first.outputs, first.unread, first.closed, first.dropped) == (
                other.outputs, other.unread, other.closed, other.dropped,
            )  # fmt: skip
        if what > 0.97:
            for first, other in queries:
                if not first.closed:
                    assert packed(*flat(first.capture())) == packed(*flat(other.capture()))
                    assert first.operators == other.operators or len(first.operators) == len(other.operators)
    assert any(group.members for group in dbs[0]._live.standing._groups)
    assert not dbs[1]._live.standing._groups
    for first, other in queries:
        assert numbered(first) == numbered(other)
    assert heard[0] == heard[1]
    for db in dbs:
        db.close()


def test_readers_that_wait_are_woken_and_those_that_find_nothing_are_not() -> None:
    with nile.connect() as db:
        db.stream("s", SCHEMA, time="t")
        made = [db.subscribe(f"SELECT k FROM s WHERE k = {k}") for k in range(20)]
        db.push("s", {"t": [0.0], "k": [99], "v": [0.0], "name": ["a"]})
        told: list[int] = []
        for one in made[:2]:
            one.hearing.append(lambda one=one: told.append(made.index(one)))
        got: list[Any] = []
        thread = threading.Thread(target=lambda: got.append(next(made[5].follow(timeout=60))))
        thread.start()
        while not db._live.standing._groups[0]._heeded[5]:
            pass
        db.push("s", {"t": [1.0, 2.0, 3.0], "k": [1, 5, 7], "v": [0.0] * 3, "name": ["a"] * 3})
        db.advance(4.0)
        thread.join()
        assert got[0].to_pydict() == {"k": [5]}
        assert set(told) == {1}
        assert [one.unread for one in made[:8]] == [0, 1, 0, 0, 0, 0, 0, 1]
        assert made[7].unread_bytes == 8


def test_a_push_costs_what_it_brings_and_not_how_many_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    with nile.connect() as db:
        db.stream("s", SCHEMA, time="t")
        made = [db.subscribe(f"SELECT k FROM s WHERE k = {k}") for k in range(300)]
        db.push("s", {"t": [0.0], "k": [1], "v": [0.0], "name": ["a"]})
        looked: list[Any] = []
        kind = type(made[0])
        for name in ("arrived", "progress", "_work", "_hand_out"):
            monkeypatch.setattr(kind, name, lambda *_, name=name: looked.append(name))
        db.push("s", {"t": [1.0, 2.0], "k": [7, 8], "v": [0.0] * 2, "name": ["a"] * 2})
        assert not looked
        monkeypatch.undo()
        db.advance(3.0)
        assert [one.outputs for one in made[:10]] == [0, 1, 0, 0, 0, 0, 0, 1, 1, 0]
