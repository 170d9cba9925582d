"""Standing queries inside bounds of memory and CPU time: exact while they fit, sampled while they do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from thinning import thinned

import nile
from nile.execution.live.exact_subscription import ExactSubscription
from nile.execution.live.means.bounded import BoundedSubscription
from nile.execution.live.means.bounds import Means
from nile.execution.live.means.gate import Gate
from nile.summaries.errors import ConfigError, Overloaded

_SCHEMA = [("t", pa.float64()), ("k", pa.int64()), ("x", pa.float64()), ("one", pa.int64())]
QUERIES = {
    "selection": "SELECT k, x FROM s WHERE x > 0.5",
    "join": "SELECT a.k, a.x, b.x AS y FROM s a, r b WHERE a.k = b.k WINDOW 2",
    "groups": "SELECT k % 40 AS g, count(*) AS n, sum(x) AS y, avg(x) AS z FROM s GROUP BY k % 40 WINDOW 2",
    "single": "SELECT count(*) AS n FROM s WHERE x > 0.25 WINDOW 2",
    "alike": "SELECT avg(one) AS z FROM s WINDOW 2",
    "whole": "SELECT sum(k) AS y, count(x) AS n, min(x) AS low FROM s WINDOW 2",
    "of a join": "SELECT count(*) AS n, sum(a.x * b.x) AS y FROM s a, r b WHERE a.k = b.k WINDOW 2",
    "distinct": "SELECT DISTINCT k FROM s WINDOW 2",
    "union": "SELECT k FROM s UNION SELECT k FROM r WINDOW 2",
    "intersect": "SELECT k FROM s INTERSECT SELECT k FROM r WINDOW 2",
    "except": "SELECT k FROM s EXCEPT SELECT k FROM r WINDOW 2",
}
"""name -> query: all that may be sampled."""
BOUNDS = {
    "groups": 600_000, "single": 120_000, "of a join": 1_500_000, "distinct": 800_000, "union": 900_000,
    "intersect": 900_000, "except": 900_000, "join": 1_500_000,
}  # fmt: skip
"""Bytes that suffice at the usual rate and not in a burst of ten times it."""


def _database(**bounds: Any) -> nile.Database:
    db = nile.connect(**bounds)
    for name in "sr":
        db.stream(name, _SCHEMA, time="t", keep=1)
    return db


def _rows(draw: np.random.Generator, begin: float, n: int, seed: int = 0) -> dict[str, Any]:
    return {
        "t": np.sort(begin + 0.1 * draw.random(n)),
        "k": draw.integers(0, 3_000, n) + seed * 1_000_003,
        "x": draw.random(n),
        "one": np.ones(n, np.int64),
    }


def _told(standing: Any) -> pa.Table:
    return pa.Table.from_batches(standing.poll(), standing.schema).combine_chunks()


@pytest.mark.parametrize("name", QUERIES)
def test_while_all_fits_outputs_are_those_of_the_exact_query(name: str) -> None:
    """Row by row, in the same order."""
    dbs = [_database(), _database(memory="64MB", cpu=1.0)]
    exact, bounded = (db.subscribe(QUERIES[name]) for db in dbs)
    assert (type(exact), type(bounded)) == (ExactSubscription, BoundedSubscription)
    assert bounded.schema == exact.schema
    draw = np.random.default_rng(3)
    for step in range(30):
        for stream in "sr":
            rows = _rows(draw, 0.1 * step, 40)
            for db in dbs:
                db.push(stream, rows)
        assert _told(bounded).equals(_told(exact))
    assert (bounded.approximate, bounded.budget.spent) == (False, 1.0)
    for db in dbs:
        db.close()


@pytest.mark.parametrize("name", thinned(BOUNDS, 2))
def test_a_burst_stays_inside_the_memory_and_is_exact_again_after_it(name: str) -> None:
    """Ten times the rate for 2 s; the benchmark `runtime` counts how often intervals hold the truth, over more."""
    held, inside, most = [], [], BOUNDS[name]
    for seed in range(2):
        dbs = [_database(), _database(memory=most)]
        exact, bounded = (db.subscribe(QUERIES[name]) for db in dbs)
        assert isinstance(bounded, BoundedSubscription)
        draw = np.random.default_rng(seed)
        for step in range(90):
            n = 1_000 if 25 <= step < 45 else 100
            for stream in "sr":
                rows = _rows(draw, 0.1 * step, n, seed)
                for db in dbs:
                    db.push(stream, rows)
                held.append(bounded.memory)
            if step % 5 == 4:
                for db in dbs:
                    db.advance(0.1 * (step + 1) - 1e-6)
                inside += _inside(exact, bounded)
            came = sum(bounded.gate.came.values()) - sum(bounded.gate.took.values())
            assert sum(each.shed for each in bounded.accounting.values()) == came
            exact.poll()
            bounded.poll()
        assert bounded.budget.spent < 0.8
        assert not bounded.approximate  # 4.5 s after the burst
        for db in dbs:
            db.advance(0.1 * 90 - 1e-6)
        if name != "join":
            assert _standing(exact) == _standing(bounded)
        for db in dbs:
            db.close()
    assert max(held) <= most
    assert len(inside) > 10
    assert np.mean(inside) >= 0.9


def test_a_group_by_whose_state_is_mostly_fixed_uses_what_is_free() -> None:
    """Four groups take about 46,000 bytes, and each tuple of the window about 64 more: with 1,000 all fit."""
    with _database(memory=200_000) as db:
        standing = db.subscribe("SELECT k % 4 AS g, count(*) AS n, sum(x) AS y FROM s GROUP BY k % 4 WINDOW 1")
        assert isinstance(standing, BoundedSubscription)
        draw = np.random.default_rng(5)
        for step in range(60):
            db.push("s", _rows(draw, 0.1 * step, 2_000 if 10 <= step < 20 else 100))
            assert standing.memory <= 200_000
            standing.poll()  # outputs that wait count, too
            if 12 <= step < 20:
                assert standing.approximate
        assert not standing.approximate
        assert standing.gate.held() == 1_000
        for step in range(60, 110):  # 20,000 in a window, of which a sample of an eighth would fit
            db.push("s", _rows(draw, 0.1 * step, 2_000))
            assert standing.memory <= 200_000
            standing.poll()
        assert standing.memory > 110_000


def test_tables_made_anew_still_go_by_what_fewer_tuples_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """But not by what more took, nor by what another process measured."""
    gate = Gate(None, {}, None, lambda *_: 0)  # type: ignore[arg-type]
    for held in (100, 200, 320):
        gate.bytes, gate.tables = 40_000 + 50 * held, held
        gate.mark(held)
    monkeypatch.setattr(gate, "held", lambda: 210)
    gate.memory = lambda: 49_000
    gate.made_anew()
    assert gate.marks == [(100, 45_000)]
    assert gate.grew(210) == (110, 4_000)
    gate.resumed()
    assert gate.grew(210) is None


def test_what_a_plan_took_for_twice_as_many_tuples_says_how_many_more_fit() -> None:
    """A line, and a table that doubles."""
    gate = Gate(None, {}, None, lambda *_: 0)  # type: ignore[arg-type]
    assert gate.grew(100) is None
    for held in (100, 120, 200, 320, 400):
        gate.bytes, gate.tables = 40_000 + 50 * held, held
        gate.mark(held)
    assert gate.marks == [(100, 45_000), (200, 50_000), (320, 56_000)]
    assert gate.grew(400) == (200, 10_000)
    assert gate.grew(199) is None
    told = Means._foreseen(gate, 400, 16_000.0)
    assert told == pytest.approx(400 + (16_000 - 0.1 * 60_000) / 50)  # small tables take a tenth
    assert Means._foreseen(gate, 400, 1e9) == 1_600
    gate.jumps = [300]
    assert [Means._foreseen(gate, 400, part) for part in (19_999.0, 20_000.0, 60_000.0)] == [400, 800, 1_600]


def _standing(one: Any) -> list[Any]:
    rows = one.plan.pipeline.snapshot().combine_chunks().to_batches()
    width = len([name for name in one.schema.names if not name.startswith("_")])
    return sorted(row for each in rows for row in zip(*(c.to_pylist() for c in each.columns[:width]), strict=True))


def _inside(exact: Any, bounded: BoundedSubscription) -> list[bool]:
    """Of every number that is approximate now whether its interval holds the truth."""
    if not bounded.approximate:
        return []
    if not bounded.gate.made.grouped:
        estimate = bounded.estimate
        truth = exact.outputs if bounded.gate.made.weight else exact.plan.pipeline.snapshot().num_rows
        return [bool(estimate.low <= truth <= estimate.high)]
    by = bounded.gate.made.by
    names = [name for name in exact.schema.names if not name.startswith("_")]
    truth_of = {row[:by]: dict(zip(names, row, strict=True)) for row in _standing(exact)}
    found = []
    for row in bounded.intervals().to_pylist():
        truths = truth_of.get(tuple(row.values())[:by], {})
        known = [name for name in names[by:] if row[f"{name}_low"] is not None]
        found += [row[f"{name}_low"] <= truths.get(name, 0) <= row[f"{name}_high"] for name in known]
    return found


def test_cpu_time_stays_inside_its_share_on_a_clock_of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tuple that is let in costs 0.1 ms; half a core; ten times the rate takes twice what there is."""
    now, work = [0.0], [0.0]
    let_in = Gate.let_in

    def costly(gate: Gate, name: str, batch: Any) -> Any:
        ts, rows = let_in(gate, name, batch)
        work[0] += 1e-4 * len(ts)
        return ts, rows

    monkeypatch.setattr(Gate, "let_in", costly)
    db = _database(cpu=0.5)
    means = db._live.means
    assert isinstance(means, Means)
    means.clock, means.meter = (lambda: now[0]), (lambda: work[0])
    standing = [db.subscribe(QUERIES[name]) for name in ("groups", "selection")]
    draw = np.random.default_rng(1)
    spent = []
    for step in range(100):
        now[0] += 0.1
        before = work[0]
        db.push("s", _rows(draw, 0.1 * step, 1_000 if 30 <= step < 60 else 100))
        spent.append(work[0] - before)
        if step in (29, 99):
            assert not any(each.approximate for each in standing)
        if step == 50:
            assert all(each.approximate for each in standing)
    assert sum(spent[30:60]) <= 0.5 * 3.0 + 0.5  # what a second saved up besides
    assert sum(spent[30:60]) >= 0.5 * 0.5 * 3.0  # levels are powers of two, so half of it is used at least
    for each in standing:
        assert each.budget.spent < 0.9
    db.close()


def test_queries_of_more_weight_are_sampled_less() -> None:
    """Memory for one of them."""
    db = _database(memory=900_000)
    light = db.subscribe("SELECT DISTINCT k FROM s WINDOW 2", name="light")
    heavy = db.subscribe("SELECT DISTINCT k, one FROM s WINDOW 2", name="heavy")
    db.sql("UPDATE nile_queries SET weight = 8.0 WHERE name = 'heavy'")
    draw = np.random.default_rng(1)
    for step in range(40):
        db.push("s", _rows(draw, 0.1 * step, 1_000))
        light.poll()
        heavy.poll()
    assert heavy.budget.spent > 1.5 * light.budget.spent
    told = db.sql("SELECT weight, approximate FROM nile_queries ORDER BY name").fetchall()
    assert told == [(8.0, True), (1.0, True)]
    with pytest.raises(ConfigError, match="a number above 0"):
        db.sql("UPDATE nile_queries SET weight = 0.0 WHERE name = 'heavy'")
    db.close()


def test_equal_queries_share_one_plan_and_its_sample() -> None:
    """One state, one gate."""
    db = _database(memory=600_000)
    one, other = (db.subscribe(QUERIES["groups"]) for _ in range(2))
    draw = np.random.default_rng(2)
    for step in range(30):
        db.push("s", _rows(draw, 0.1 * step, 1_000))
        assert _told(one).equals(_told(other))
    assert one.sharers == (one, other)
    assert one.gate is other.gate
    assert one.approximate
    one.close()
    assert len(db._live.means.gates) == 1
    other.close()
    assert not db._live.means.gates
    db.close()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a.k FROM s a WHERE NOT EXISTS (SELECT 1 FROM r b WHERE a.k = b.k) WINDOW 2",
        "SELECT a.k, b.x FROM s a LEFT JOIN r b ON a.k = b.k WINDOW 2",
        "SELECT a.k FROM s a, r b WHERE a.k < b.k WINDOW 2",
        "SELECT k, row_number() OVER (ORDER BY t) AS n FROM s WINDOW 2",
    ],
)
def test_what_fewer_tuples_would_make_wrong_is_never_sampled(text: str) -> None:
    """It runs exactly, and pushes are refused once it holds more than there may be."""
    db = _database(memory=100_000)
    standing = db.subscribe(text)
    assert not isinstance(standing, BoundedSubscription)
    with pytest.raises(Overloaded, match="never sampled"):
        _fill(db)
    db.close()


def _fill(db: nile.Database) -> None:
    draw = np.random.default_rng(2)
    for begin in (0.0, 0.1, 0.2):
        for stream in "sr":
            db.push(stream, _rows(draw, begin, 1_000))


def test_a_restart_in_a_burst_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    """Every tuple is applied or shed once, outputs go on with their numbers, and all is exact again in the end."""
    draw = np.random.default_rng(5)
    batches = [_rows(draw, 0.1 * step, 1_000 if 10 <= step < 30 else 100) for step in range(80)]
    text, got, numbers = QUERIES["groups"], {}, []
    for begin, end in ((0, 20), (20, 21), (21, 80)):
        with nile.connect(tmp_path / "store", state=600_000, checkpoint=None) as db:
            if begin == 0:
                db.stream("s", _SCHEMA, time="t", keep=1)
            standing = db.subscribe(text, name="q")
            assert isinstance(standing, BoundedSubscription)
            for rows in batches[begin:end]:
                db.push("s", rows)
                assert standing.memory <= 600_000
                for first, batch in standing.poll_numbered():
                    numbers += range(first, first + batch.num_rows)
                    for row in batch.to_pylist():
                        key = tuple(value for name, value in row.items() if not name.startswith("_"))
                        got[key] = got.get(key, 0) + row["_sign"]
            assert sum(standing.gate.came.values()) == sum(len(rows["t"]) for rows in batches[:end])
            if end == 20:
                assert standing.approximate
            if end == 80:
                assert not standing.approximate
                assert sorted(key for key, times in got.items() if times) == _standing(standing)
    assert numbers == list(range(len(numbers)))
    assert set(got.values()) <= {0, 1}


def test_what_a_tuple_costs_is_learnt_of_what_comes_behind_a_restart(tmp_path: Path) -> None:
    """Not of all tuples that the plan ever took in: a push would seem to cost nothing."""
    draw = np.random.default_rng(5)

    def measured(db: nile.Database) -> Any:
        means = db._live.means
        assert means is not None
        means.meter = lambda: 1e-4 * sum(sum(gate.took.values()) for gate in means.gates)
        return db.subscription("q").gate

    for begin in (0.0, 1.0):
        with nile.connect(tmp_path / "store", state="64MB", cpu=1.0, checkpoint=None) as db:
            if not begin:
                db.stream("s", _SCHEMA, time="t", keep=1)
                for name in "qr":
                    db.subscribe(QUERIES["groups"], name=name)
            gate = measured(db)
            assert (gate.bytes, gate.took_before) == ((gate.memory(), 4_100) if begin else (0, 0))
            db.push("s", _rows(draw, begin, 4_000))
            db.subscription("r").pause()
            alone = db.subscription("r").gate
            assert alone is not gate
            assert alone.took_before == sum(gate.took.values())
            db.subscription("r").resume()
            db.push("s", _rows(draw, begin + 0.1, 100))
            assert gate.cost.of(100) == pytest.approx(1e-2, rel=0.1)


def test_a_query_that_was_kept_with_its_samples_goes_on_without_bounds(tmp_path: Path) -> None:
    """A database that is opened without bounds samples no more."""
    rows = _rows(np.random.default_rng(5), 0.0, 4_000)
    with nile.connect(tmp_path / "store", state=100_000) as db:
        db.stream("s", _SCHEMA, time="t", keep=1)
        db.subscribe(QUERIES["distinct"], name="q")
        db.push("s", rows)
        assert db.subscription("q").budget.spent < 0.5
    with nile.connect(tmp_path / "store") as db:
        standing = db.subscription("q")
        taken = sum(standing.gate.took.values())
        db.push("s", _rows(np.random.default_rng(6), 5.0, 4_000))
        assert sum(standing.gate.took.values()) == taken + 4_000


@pytest.mark.parametrize(("given", "words"), [({"cpu": 2.0}, "from 0.001 to 1"), ({"memory": 1_000}, "memory")])
def test_bounds_that_cannot_be_kept_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        nile.connect(**given)
