"""Standing queries of which a part is equal run it once, and tell what each would tell alone."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from alone import WIDE, driven, opened, rows
from thinning import thinned

import nile
from nile.exact.pipeline.sources.stream_join import StreamJoining

JOIN = "FROM a, b WHERE a.k = b.k"
JOINED = [
    (f"SELECT a.k, b.w, count(*) AS n, sum(b.v) AS s {JOIN} GROUP BY a.k, b.w WINDOW 6", {}),
    (f"SELECT a.w, sum(b.v + a.v) AS s {JOIN} GROUP BY a.w WINDOW 6", {}),
    (f"SELECT b.v, max(a.t) AS t, count(*) AS n {JOIN} GROUP BY b.v HAVING count(*) > 2 WINDOW 6", {}),
    (f"SELECT DISTINCT a.w, b.v {JOIN} WINDOW 6", {}),
    (f"SELECT DISTINCT b.w {JOIN} WINDOW 6", {"emit": "append"}),
    (f"SELECT a.k, count(*) AS n {JOIN} GROUP BY a.k WINDOW 6", {}),
    (f"SELECT a.t, b.t AS u, a.k {JOIN} WINDOW 6", {"emit": "append"}),
    (f"SELECT a.t, b.t AS u, a.w + b.w AS w {JOIN} AND a.t + 1 > b.t WINDOW 6", {"emit": "changes"}),
    (f"SELECT a.t, b.t AS u, a.k {JOIN} WINDOW 6", {"emit": "changes"}),
    (f"SELECT a.k, b.w, sum(b.v) AS s {JOIN} GROUP BY a.k, b.w ORDER BY s DESC LIMIT 3 WINDOW 6", {"emit": "changes"}),
]
OTHERS = [
    (f"SELECT a.w, sum(b.v) AS s {JOIN} AND a.v > 3 GROUP BY a.w", {}),
    (f"SELECT b.w, count(*) AS n {JOIN} AND a.v > 3 GROUP BY b.w", {}),
    (f"SELECT a.w, count(*) AS n {JOIN} AND a.v < b.v GROUP BY a.w WINDOW 6", {}),
    (f"SELECT b.w, sum(a.v) AS s {JOIN} AND a.v < b.v GROUP BY b.w WINDOW 6", {}),
    ("SELECT w, count(*) AS n FROM (SELECT k, w FROM a EXCEPT SELECT k, w FROM b) AS c GROUP BY w WINDOW 5", {}),
    ("SELECT k, count(*) AS n FROM (SELECT k, w FROM a EXCEPT SELECT k, w FROM b) AS c GROUP BY k WINDOW 5", {}),
    ("SELECT x.w, count(*) AS n FROM a AS x, a AS y WHERE x.k = y.k AND x.v < y.v GROUP BY x.w WINDOW 3", {}),
    ("SELECT y.w, sum(x.v) AS n FROM a AS x, a AS y WHERE x.k = y.k AND x.v < y.v GROUP BY y.w WINDOW 3", {}),
    ("SELECT a.w, count(b.v) AS n FROM a LEFT JOIN b ON a.k = b.k GROUP BY a.w WINDOW 5", {}),
    ("SELECT b.v, count(a.w) AS n FROM a LEFT JOIN b ON a.k = b.k GROUP BY b.v WINDOW 5", {}),
    ("SELECT x.w, count(*) AS n FROM a x, b y, b z WHERE x.k = y.k AND y.k = z.k GROUP BY x.w WINDOW 1", {}),
    ("SELECT x.w, sum(x.w) AS n FROM a x, b y, b z WHERE x.k = y.k AND y.k = z.k GROUP BY x.w WINDOW 1", {}),
]


GROUPED = "SELECT k, count(*) AS n, sum(v) AS s FROM a GROUP BY k"
TOPS = [
    (f"{GROUPED} WINDOW 5", {"emit": "append"}),
    (f"{GROUPED} WINDOW 5", {"emit": "changes"}),
    (f"{GROUPED} ORDER BY s DESC LIMIT 2 WINDOW 5", {"emit": "changes"}),
    (f"SELECT DISTINCT n, s FROM ({GROUPED}) AS x WINDOW 5", {"emit": "changes"}),
    (f"SELECT n, max(s) AS s, max(k) AS k FROM ({GROUPED}) AS x GROUP BY n WINDOW 5", {"emit": "changes"}),
    ("SELECT count(*) AS n FROM (SELECT DISTINCT k, w FROM a) AS x WINDOW 5", {"emit": "changes"}),
    ("SELECT k, w FROM (SELECT DISTINCT k, w FROM a) AS x ORDER BY w, k LIMIT 3 WINDOW 5", {"emit": "changes"}),
]


WINDOWS = [
    (text.replace(" WINDOW 6", window), how)
    for text, how in JOINED
    for window in (" WINDOW 2", " WINDOW 6", " WINDOW 11", "")
]


def readers(one: Any) -> int:
    """How many plans read the tuples that this one's join does, in windows of their own."""
    return 0 if one.plan.common is None else len(one.plan.common.family.plans)


def plans(one: Any) -> int:
    """How many plans read the part that this one's does."""
    return 0 if one.plan.common is None else len(one.plan.common.plans)


@pytest.mark.parametrize(
    "seed", [*thinned([0, 1, 2], 3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 20))]
)
def test_queries_over_one_join_tell_what_each_would_alone_whoever_comes_goes_pauses_and_restarts(
    seed: int, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    asked = [*draw.sample(JOINED[:4], 2), *draw.sample(JOINED, 2)]
    assert driven(seed, asked, tmp_path, plans, schema=WIDE) > 1


@pytest.mark.parametrize(
    "seed", [*thinned([0, 1, 2], 3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 20))]
)
def test_so_do_queries_over_other_parts(seed: int, tmp_path: Path) -> None:
    begins = random.Random(seed).sample(range(0, len(OTHERS), 2), 2)
    asked = [query for begin in begins for query in OTHERS[begin : begin + 2]]
    assert driven(seed, asked, tmp_path, plans, schema=WIDE) > 1


@pytest.mark.parametrize(
    "seed", [*thinned([0, 1], 2), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 20))]
)
def test_each_tells_what_it_would_alone_when_rows_are_taken_back(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    pairs = [(JOINED[0], JOINED[1]), (JOINED[2], JOINED[3]), *zip(OTHERS[::2], OTHERS[1::2], strict=True)]
    asked = [(text, {"emit": "changes"}) for pair in draw.sample(pairs, 2) for text, _ in pair]
    assert driven(seed, asked, tmp_path, plans, schema=WIDE, deletes=True) > 1


@pytest.mark.parametrize(
    "seed", [*thinned([0, 1, 2], 3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 20))]
)
def test_joins_in_windows_of_different_lengths_tell_what_each_would_alone(seed: int, tmp_path: Path) -> None:
    asked = random.Random(seed).sample(WINDOWS, 6)
    assert driven(seed, asked, tmp_path, readers, schema=WIDE) > 1


@pytest.mark.parametrize(
    "seed", [*thinned([0, 1, 2], 3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 20))]
)
def test_so_do_they_when_rows_are_taken_back(seed: int, tmp_path: Path) -> None:
    tails = [(text, {"emit": "changes"}) for text, _ in WINDOWS if "LIMIT" not in text]
    asked = random.Random(seed).sample(tails, 6)
    assert driven(seed, asked, tmp_path, readers, schema=WIDE, deletes=True) > 1


@pytest.mark.parametrize(
    "seed", [*thinned([0, 1, 2], 3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 20))]
)
def test_so_do_queries_over_one_group_by_or_distinct(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    asked = [*draw.sample(TOPS[:5], 3), *draw.sample(TOPS[5:], 2)]
    deletes = all(how == {"emit": "changes"} for _, how in asked)
    assert driven(seed, asked, tmp_path, plans, schema=WIDE, deletes=deletes, steps=90) > 1


def test_a_join_under_several_tails_is_worked_on_once(monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[Any] = []
    plain = StreamJoining.step
    monkeypatch.setattr(StreamJoining, "step", lambda self, to: (joined.append(self), plain(self, to))[1])
    with opened(schema=WIDE) as db:
        made = [db.subscribe(text, emit="changes") for text, _ in JOINED[:4]]
        draw, at = random.Random(3), {"a": 0.0, "b": 0.0}
        for name in "abab":
            db.push(name, rows(draw, at, name, WIDE))
        assert {plans(one) for one in made} == {4}
        joined.clear()
        db.push("a", rows(draw, at, "a", WIDE))
        db.advance(max(at.values()) + 1.0)
        assert len({id(each) for each in joined}) == 1
        state = db.sql("SELECT sum(memory) AS bytes FROM nile_synopses WHERE kind = 'state'").fetchall()[0][0]
        assert state == made[0].memory + sum(one.plan.memory for one in made[1:])
        assert state < sum(one.memory for one in made) - 2 * 24_000


def test_who_has_a_part_in_common_is_told() -> None:
    with opened(schema=WIDE) as db:
        for number, (text, how) in enumerate(JOINED[:3]):
            db.subscribe(text, name=f"q{number}", **how)
        db.subscribe(JOINED[3][0])
        db.subscribe(JOINED[0][0].replace("WINDOW 6", "WINDOW 7"), name="longer")
        draw, at = random.Random(3), {"a": 0.0, "b": 0.0}
        for name in "abab":
            db.push(name, rows(draw, at, name, WIDE))
        found = dict(db.sql("SELECT name, shares_part FROM nile_queries").fetchall())
        assert found["longer"] is None
        tuples = {value for (value,) in db.sql("SELECT shares_tuples FROM nile_queries").fetchall()}
        everyone = "q0, q1, q2, longer, 1 without a name"
        assert tuples == {everyone}
        assert {found[name] for name in ("q0", "q1", "q2", None)} == {"q0, q1, q2, 1 without a name"}
        told = db.sql(f"EXPLAIN (FORMAT JSON) {JOINED[1][0]}").fetchall()[0][0]
        values = json.loads(told)
        assert (values["shares"], values["shares_part"]) == (["q1"], ["q0", "q2", "1 without a name"])
        for window, expected in (("6", ["join", "tuples"]), ("8", ["tuples"])):
            text = JOINED[0][0].replace("sum(b.v)", "max(b.t)").replace("WINDOW 6", f"WINDOW {window}")
            lines = db.sql(f"EXPLAIN {text}").fetchall()[0][0].splitlines()
            names = {"join": "q0, q1, q2, 1 without a name", "tuples": everyone}
            assert [line for line in lines if "standing" in line] == [
                f"as a standing query: shares the {what} of {names[what]}, once their states are equal"
                for what in expected
            ]


def test_one_that_comes_later_reads_the_part_once_what_was_before_it_has_left_the_windows() -> None:
    with opened(schema=WIDE) as db:
        first, draw, at = db.subscribe(JOINED[0][0]), random.Random(4), {"a": 0.0, "b": 0.0}
        for name in "abab":
            db.push(name, rows(draw, at, name, WIDE))
        others = [db.subscribe(text) for text, _ in JOINED[1:3]]
        for name in "abab":
            db.push(name, rows(draw, at, name, WIDE))
        assert [plans(one) for one in (first, *others)] == [1, 2, 2]
        assert [readers(one) for one in (first, *others)] == [3, 3, 3]
        for _ in range(30):
            at["a"] = at["b"] = max(at.values()) + 0.5
            for name in "ab":
                db.push(name, rows(draw, at, name, WIDE))
        assert set(first.part_sharers) == {first, *others}
        others[0].close()
        assert set(first.part_sharers) == {first, others[1]}
        others[1].pause()
        db.push("a", rows(draw, at, "a", WIDE))
        assert first.part_sharers == others[1].part_sharers == ()
        others[1].resume()
        for name in "abab":
            db.push(name, rows(draw, at, name, WIDE))
        assert set(first.part_sharers) == {first, others[1]}


def test_one_that_only_counts_pairs_is_not_made_to_read_them() -> None:
    with opened(schema=WIDE) as db:
        heavy, light = db.subscribe(JOINED[0][0]), db.subscribe(JOINED[5][0])
        draw, at = random.Random(3), {"a": 0.0, "b": 0.0}
        for name in "abab":
            db.push(name, rows(draw, at, name, WIDE))
        assert plans(heavy) == plans(light) == 1
        assert heavy.tuple_sharers == (heavy, light)


def test_what_one_of_them_cannot_do_leaves_the_others_untouched() -> None:
    failing = f"SELECT a.w, sum(b.w) AS s {JOIN} GROUP BY a.w WINDOW 6"
    with opened(schema=WIDE) as db:
        whole, ends, other = (db.subscribe(text) for text in (JOINED[0][0], failing, JOINED[1][0]))
        for at in range(10):
            for name in "ab":
                db.push(name, {"t": [float(at)], "k": ["x"], "v": [1.0], "w": [0]})
        assert plans(whole) == plans(ends) == plans(other) == 3
        for name in "ab":
            db.push(name, {"t": [11.0, 11.0], "k": ["x", "x"], "v": [1.0, 1.0], "w": [2**62, 2**62]})
        with pytest.raises(nile.NileError):
            db.advance(11.5)
        assert ends.closed
        for at in range(12, 16):
            for name in "ab":
                db.push(name, {"t": [float(at)], "k": ["x"], "v": [1.0], "w": [0]})
        assert not whole.closed
        assert plans(whole) == plans(other) == 2
        assert whole.poll()


def test_windows_of_different_lengths_hold_the_tuples_of_the_longest() -> None:
    texts = [JOINED[0][0].replace("WINDOW 6", f"WINDOW {window}") for window in (60, 10, 30)]
    states = []
    for asked in (texts, texts[:1], texts[1:2], texts[2:]):
        with nile.connect() as db:
            for name in "ab":
                db.stream(name, WIDE, time="t", keep=1)
            made = [db.subscribe(text, emit="changes") for text in asked]
            draw = random.Random(5)
            for at in range(100):
                for name in "ab":
                    n = 200
                    given = {"t": [at + k / n for k in range(n)], "k": [f"k{draw.randrange(10_000)}" for _ in range(n)]}
                    db.push(name, given | {"v": [1.0] * n, "w": [draw.randrange(3) for _ in range(n)]})
            assert [readers(one) for one in made] == ([3, 3, 3] if len(made) > 1 else [0])
            state = db.sql("SELECT sum(memory) AS bytes FROM nile_synopses WHERE kind = 'state'").fetchall()[0][0]
            states.append(state)
    together, longest, *shorter = states
    assert together < longest + 0.5 * sum(shorter)
