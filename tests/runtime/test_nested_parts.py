"""Standing queries with an equal GROUP BY or DISTINCT over a part that runs once run that once, too."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from alone import WIDE, driven, opened, rows
from thinning import thinned

import nile
from nile.exact.pipeline.group import Grouping

NUMBERS = [("t", pa.float64()), ("k", pa.int64()), ("v", pa.float64())]
JOIN = "FROM a, b WHERE a.k = b.k"
BY_KEY = f"SELECT a.k, b.w, count(*) AS n, sum(b.v) AS s {JOIN} GROUP BY a.k, b.w"
BY_NUMBER = f"SELECT a.w, count(b.v) AS n, sum(b.w) AS s {JOIN} GROUP BY a.w"


def above(grouped: str) -> list[tuple[str, dict[str, Any]]]:
    """Queries of which each has this GROUP BY, below different things."""
    return [
        (f"{grouped} WINDOW 6", {"emit": "changes"}),
        (f"{grouped} WINDOW 6", {"emit": "append"}),
        (f"{grouped} ORDER BY s DESC LIMIT 2 WINDOW 6", {"emit": "changes"}),
        (f"SELECT DISTINCT n, s FROM ({grouped}) AS x WINDOW 6", {"emit": "changes"}),
        (f"SELECT DISTINCT n, s FROM ({grouped}) AS x ORDER BY s, n LIMIT 3 WINDOW 6", {"emit": "changes"}),
        (f"SELECT n, max(s) AS most, max(w) AS w FROM ({grouped}) AS x GROUP BY n WINDOW 6", {"emit": "changes"}),
        (f"SELECT n, count(*) AS m FROM (SELECT DISTINCT n, s FROM ({grouped}) AS x) AS y GROUP BY n WINDOW 6", {}),
    ]


PAIRS = (f"SELECT a.t, b.t AS u, a.k {JOIN} WINDOW 6", {"emit": "changes"})
QUERIES = [*above(BY_KEY), *above(BY_NUMBER), PAIRS]
OVER_GROUPS = [
    (text.replace(JOIN, "FROM a").replace("b.", "a."), how) for text, how in [*above(BY_KEY), *above(BY_NUMBER)]
]
SET = "SELECT w, count(*) AS n, sum(w) AS s FROM (SELECT k, w FROM a EXCEPT SELECT k, w FROM b) AS c GROUP BY w"


def plans(one: Any) -> int:
    """How many plans read the GROUP BY above the part that this one's does."""
    return len(one.plan.nested[0].plans) if one.plan.nested else 0


def begun(db: nile.Database, seed: int, pushes: str = "abab") -> tuple[random.Random, dict[str, float]]:
    """After a few pushes."""
    draw, at = random.Random(seed), {"a": 0.0, "b": 0.0}
    for name in pushes:
        db.push(name, rows(draw, at, name, WIDE))
    return draw, at


@pytest.mark.parametrize(
    "seed", [*thinned([0, 1, 2, 3], 4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 30))]
)
def test_queries_with_one_group_by_over_one_join_tell_what_each_would_alone(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    asked = [*draw.sample(QUERIES[:7], 3), *draw.sample(QUERIES[7:14], 2), PAIRS]
    assert driven(seed, asked, tmp_path, plans, schema=WIDE, steps=80) > 1


@pytest.mark.parametrize(
    "seed", [*thinned([0, 1], 2), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 20))]
)
def test_so_do_they_when_rows_are_taken_back(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    asked = [each for each in (*draw.sample(QUERIES[:7], 4), PAIRS) if "LIMIT" not in each[0]]
    asked = [(text, {"emit": "changes"}) for text, _ in asked]
    driven(seed, asked, tmp_path, plans, schema=WIDE, deletes=True, steps=80)


@pytest.mark.parametrize(
    "seed", [*thinned([0, 1], 2), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 20))]
)
def test_so_do_queries_over_one_group_by_of_a_stream_or_of_a_set(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    asked = [*draw.sample(OVER_GROUPS[3:7], 3), *draw.sample(OVER_GROUPS[10:], 2), *draw.sample(above(SET), 4)]
    assert driven(seed, asked, tmp_path, plans, schema=WIDE, steps=90) > 1


def test_a_group_by_over_a_join_is_worked_on_once(monkeypatch: pytest.MonkeyPatch) -> None:
    grouped: list[Any] = []
    plain = Grouping.apply
    monkeypatch.setattr(Grouping, "apply", lambda self, deltas: (grouped.append(self), plain(self, deltas))[1])
    asked = [*above(BY_KEY)[:4], (f"{BY_NUMBER} WINDOW 6", {})]
    with opened(schema=WIDE) as db:
        made = [db.subscribe(text, **how) for text, how in asked]
        draw, at = begun(db, 3)
        assert [plans(one) for one in made] == [4, 4, 4, 4, 0]
        assert {len(one.plan.common.plans) for one in made} == {5}
        grouped.clear()
        db.push("a", rows(draw, at, "a", WIDE))
        db.advance(max(at.values()) + 1.0)
        assert len({id(each) for each in grouped}) == 2
        held = db.sql("SELECT sum(memory) AS bytes FROM nile_synopses WHERE kind = 'state'").fetchall()[0][0]
        nested = made[0].plan.nested[0]
        joined = nested.below.part.root.memory
        assert held == joined + nested.memory + sum(one.plan.memory for one in made)
        assert held == sum(one.memory for one in made) - 4 * joined - 3 * nested.memory


def test_levels_above_each_other_run_once_each() -> None:
    with opened(schema=WIDE) as db:
        made = [db.subscribe(text, **how) for text, how in [*above(BY_KEY)[3:5], above(BY_KEY)[0], PAIRS]]
        begun(db, 5)
        assert [len(one.plan.nested) for one in made] == [2, 2, 1, 0]
        distinct, also, grouped, _ = (one.plan.nested for one in made)
        assert distinct[1] is also[1] is not distinct[0] is grouped[0]
        assert [len(each.plans) for each in distinct] == [3, 2]


def test_who_has_a_group_by_in_common_is_told() -> None:
    with opened(schema=WIDE) as db:
        for number, (text, how) in enumerate([*above(BY_KEY)[:3], PAIRS]):
            db.subscribe(text, name=f"q{number}", **how)
        begun(db, 3)
        found = {
            name: rest for name, *rest in db.sql("SELECT name, shares_part, shares_nested FROM nile_queries").fetchall()
        }
        everyone = "q0, q1, q2, q3"
        assert found == {f"q{k}": [everyone, "q0, q1, q2"] for k in range(3)} | {"q3": [everyone, None]}
        assert [len(db.subscription(f"q{k}").nested_sharers) for k in range(4)] == [3, 3, 3, 0]
        text = above(BY_KEY)[5][0]
        lines = db.sql(f"EXPLAIN {text}").fetchall()[0][0].splitlines()
        assert [line for line in lines if "standing" in line] == [
            f"as a standing query: shares the {what} of {names}, once their states are equal"
            for what, names in (("join", everyone), ("GROUP BY over the join", "q0, q1, q2"), ("tuples", everyone))
        ]
        values = json.loads(db.sql(f"EXPLAIN (FORMAT JSON) {text}").fetchall()[0][0])
        assert values["shares_part"] == ["q0", "q1", "q2", "q3"]
        assert values["shares_nested"] == ["q0", "q1", "q2"]


def test_one_that_comes_later_pauses_or_goes_leaves_the_others_as_they_are() -> None:
    with opened(schema=WIDE) as db:
        first, second = (db.subscribe(text, **how) for text, how in above(BY_KEY)[:3:2])
        draw, at = begun(db, 4)
        later = db.subscribe(above(BY_KEY)[3][0], emit="changes")
        for name in "abab":
            db.push(name, rows(draw, at, name, WIDE))
        assert [plans(one) for one in (first, second, later)] == [2, 2, 0]
        for _ in range(40):
            at["a"] = at["b"] = max(at.values()) + 0.5
            for name in "ab":
                db.push(name, rows(draw, at, name, WIDE))
        assert [plans(one) for one in (first, second, later)] == [3, 3, 3]
        later.pause()
        db.push("a", rows(draw, at, "a", WIDE))
        assert [plans(one) for one in (first, second, later)] == [2, 2, 0]
        later.resume()
        second.close()
        for name in "abababab":
            db.push(name, rows(draw, at, name, WIDE))
        assert set(first.nested_sharers) == {first, later}
        later.close()
        db.push("a", rows(draw, at, "a", WIDE))
        assert not first.plan.nested


def test_what_fails_in_a_common_group_by_ends_those_that_have_it_and_no_other() -> None:
    failing = f"SELECT a.w, count(*) AS n, sum(b.w) AS s {JOIN} GROUP BY a.w"
    with opened(schema=WIDE) as db:
        ends = [db.subscribe(f"{failing}{tail} WINDOW 6", emit="changes") for tail in ("", " ORDER BY s LIMIT 2")]
        stay = [db.subscribe(text, **how) for text, how in above(BY_KEY)[:3:2]]
        for at in range(10):
            for name in "ab":
                db.push(name, {"t": [float(at)], "k": ["x"], "v": [1.0], "w": [0]})
        assert [plans(one) for one in (*ends, *stay)] == [2, 2, 2, 2]
        for name in "ab":
            db.push(name, {"t": [11.0, 11.0], "k": ["x", "x"], "v": [1.0, 1.0], "w": [2**62, 2**62]})
        with pytest.raises(nile.NileError):
            db.advance(11.5)
        assert [one.closed for one in (*ends, *stay)] == [True, True, False, False]
        for at in range(12, 16):
            for name in "ab":
                db.push(name, {"t": [float(at)], "k": ["x"], "v": [1.0], "w": [0]})
        assert [plans(one) for one in stay] == [2, 2]
        assert all(one.poll() for one in stay)


def test_threads_find_the_same_in_common_group_bys() -> None:
    found = []
    for threads in (1, 2):
        with nile.connect(threads=threads) as db:
            for name in "ab":
                db.stream(name, WIDE, time="t")
            made = [db.subscribe(text, **how) for text, how in QUERIES]
            draw = random.Random(7)
            for at in range(6):
                for name in "ab":
                    n = 5_000
                    given = {"t": [at + k / n for k in range(n)], "k": [f"k{draw.randrange(2_000)}" for _ in range(n)]}
                    given |= {
                        "v": [float(draw.randrange(9)) for _ in range(n)],
                        "w": [draw.randrange(3) for _ in range(n)],
                    }
                    db.push(name, given)
            assert max(plans(one) for one in made) == 7
            found.append([pa.Table.from_batches(one.poll(), one.schema) for one in made])
    for one, other in zip(*found, strict=True):
        assert one.num_rows
        assert one.equals(other)


def test_rows_of_numbers_that_several_read_are_named_by_each_for_itself() -> None:
    grouped = "SELECT k, count(*) AS n, sum(v) AS s FROM a GROUP BY k"
    texts = [
        f"SELECT DISTINCT s, n FROM ({grouped}) AS x WINDOW 5",
        f"SELECT n, max(k) AS k, max(s) AS s FROM ({grouped}) AS x GROUP BY n WINDOW 5",
        f"SELECT s, n, k FROM ({grouped}) AS x ORDER BY s, k LIMIT 2 WINDOW 5",
        f"SELECT s, max(n) AS n, min(k) AS k FROM ({grouped}) AS x GROUP BY s WINDOW 5",
        f"{grouped} WINDOW 5",
    ]
    draw, found = random.Random(3), [[] for _ in range(2 * len(texts))]
    alone = [opened(schema=NUMBERS) for _ in texts]
    with opened(schema=NUMBERS) as db:
        asked = [db.subscribe(text, emit="changes") for text in texts]
        asked += [each.subscribe(text, emit="changes") for each, text in zip(alone, texts, strict=True)]
        for at in range(30):
            n = draw.choice([1, 3, 30])
            given = {"t": [at + k / n for k in range(n)], "k": [draw.randrange(4) for _ in range(n)]}
            given["v"] = [float(draw.randrange(5)) for _ in range(n)]
            for each in (db, *alone):
                each.push("a", given)
            for rows_found, one in zip(found, asked, strict=True):
                rows_found += [row for batch in one.poll() for row in batch.to_pylist()]
        assert all(len(one.part_sharers) == len(texts) for one in asked[: len(texts)])
    assert all(found)
    assert found[: len(texts)] == found[len(texts) :]
