"""Standing queries that ask the same run on one plan, and tell what each would tell alone."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from alone import SCHEMA, driven, opened, rows, told
from thinning import thinned

import nile
from nile.exact.pipeline.pipeline import Pipeline
from nile.execution.envelopes import packed
from nile.execution.live import running
from nile.summaries.errors import SourceError

GROUPED = "SELECT a.k, count(*) AS n, sum(b.v) AS s FROM a, b WHERE a.k = b.k GROUP BY a.k"
QUERIES = [
    ("SELECT t, v FROM a WHERE k <> 'k1'", {}),
    ("SELECT t, v FROM a WHERE k <> 'k1'", {"emit": "changes"}),
    ("SELECT k, count(*) AS n, sum(v) AS s FROM a GROUP BY k WINDOW 8", {}),
    ("SELECT k, count(*) AS n, sum(v) AS s FROM a GROUP BY k HAVING count(*) > 2 WINDOW 8", {}),
    ("SELECT k, sum(v) + 1 AS more, count(*) AS n FROM a GROUP BY k", {}),
    ("SELECT a.t AS t, b.t AS u, a.k FROM a, b WHERE a.k = b.k WINDOW 6", {}),
    ("SELECT a.t AS t, b.t AS u, a.k FROM a, b WHERE a.k = b.k AND a.v < b.v WINDOW 6", {"emit": "changes"}),
    (f"{GROUPED} WINDOW 6", {}),
    (f"{GROUPED} HAVING count(*) > 3 WINDOW 6", {}),
    (f"{GROUPED} WINDOW 6", {"emit": "append"}),
    (f"{GROUPED} WINDOW 6", {"scheduling": "tpa"}),
    ("SELECT DISTINCT k FROM a WINDOW 5", {}),
    ("SELECT k, max(v) AS most FROM a GROUP BY k WINDOW 4", {}),
    ("SELECT k FROM a EXCEPT SELECT k FROM b WINDOW 5", {}),
    ("SELECT a.t, a.k FROM a LEFT JOIN b ON a.k = b.k WHERE b.k IS NULL WINDOW 5", {}),
]


@pytest.mark.parametrize(
    "seed",
    [
        *thinned([0, 1], 2),
        *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 20)),
    ],
)
def test_each_tells_what_it_would_alone_whoever_comes_goes_pauses_and_restarts(seed: int, tmp_path: Path) -> None:
    assert driven(seed, random.Random(seed).sample(QUERIES, 4), tmp_path, lambda one: len(one.sharers)) > 1


def test_a_push_is_worked_on_once_for_all_that_ask_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    pushed = []
    plain = Pipeline.push
    monkeypatch.setattr(Pipeline, "push", lambda self, *given: (pushed.append(given[0]), plain(self, *given))[1])
    with opened() as db:
        dashboards = [db.subscribe(f"{GROUPED} HAVING count(*) > {k % 3} WINDOW 60", emit="changes") for k in range(30)]
        at = {"a": 0.0, "b": 0.0}
        draw = random.Random(3)
        for name in "abab":
            db.push(name, rows(draw, at, name))
        assert pushed == ["a", "b", "a", "b"]
        assert {len(each.sharers) for each in dashboards} == {30}
        db.advance(100.0)
        assert told(dashboards[0]) == told(dashboards[3]) != told(dashboards[1])


def test_one_that_comes_later_joins_when_what_was_before_it_has_left_the_windows() -> None:
    text = "SELECT k, count(*) AS n FROM a GROUP BY k WINDOW 5"
    with opened() as db:
        first = db.subscribe(text)
        db.push("a", {"t": [1.0, 2.0], "k": ["x", "y"], "v": [0.0, 0.0]})
        later = db.subscribe(text)
        db.push("a", {"t": [3.0], "k": ["x"], "v": [0.0]})
        assert len(later.sharers) == 1
        for at in range(4, 16):
            db.push("a", {"t": [float(at)], "k": ["x"], "v": [0.0]})
        assert later.sharers == first.sharers == (first, later)
        first.close()
        assert later.sharers == (later,)
        db.push("a", {"t": [20.0, 21.0], "k": ["z", "z"], "v": [0.0, 0.0]})
        assert {"k": "z", "n": 1} in [{"k": row["k"], "n": row["n"]} for _, row in told(later)]


def test_what_one_of_them_cannot_do_with_its_outputs_leaves_the_others_untouched() -> None:
    text = "SELECT k, count(*) AS n FROM a GROUP BY k WINDOW 5"

    faults = [SourceError("this reader is broken")]

    def broken(_: Any) -> None:
        if faults:
            raise faults.pop()

    with opened() as db:
        whole = db.subscribe(text)
        db.subscribe(text, broken)
        with pytest.raises(SourceError, match="broken"):
            db.push("a", {"t": [1.0, 2.0], "k": ["x", "y"], "v": [0.0, 0.0]})
        assert [row["k"] for _, row in told(whole)] == ["x"]


def test_rows_that_are_taken_back_are_so_for_those_alone_who_told_of_them() -> None:
    text = "SELECT k, v FROM a WHERE v >= 0"
    with opened() as db:
        first = db.subscribe(text, emit="changes")
        db.push("a", {"t": [1.0], "k": ["x"], "v": [1.0]})
        later = db.subscribe(text, emit="changes")
        for at in (2.0, 3.0, 4.0, 5.0):
            db.push("a", {"t": [at], "k": ["y"], "v": [2.0]})
        assert len(first.sharers) == 2
        db.sql("DELETE FROM a WHERE k = 'x'")
        db.push("a", {"t": [6.0, 7.0], "k": ["z", "z"], "v": [2.0, 2.0]})
        signs = {each: [row["_sign"] for _, row in told(each) if row["k"] == "x"] for each in (first, later)}
        assert signs == {first: [1, -1], later: []}


def test_who_shares_a_plan_is_told() -> None:
    text = "SELECT k, count(*) AS n FROM a GROUP BY k WINDOW 5"
    with opened() as db:
        made = [db.subscribe(text, name="one"), db.subscribe(text, name="two"), db.subscribe(text)]
        db.subscribe("SELECT k FROM a", name="other")
        found = db.sql("SELECT name, shares FROM nile_queries").to_arrow().to_pylist()
        assert {row["name"]: row["shares"] for row in found} == {
            "one": "one, two, 1 without a name", "two": "one, two, 1 without a name",
            None: "one, two, 1 without a name", "other": None,
        }  # fmt: skip
        state = db.sql("SELECT count(*) AS n FROM nile_synopses WHERE kind = 'state'").to_arrow().to_pylist()
        assert state == [{"n": 2}]
        made[0].close()
        assert made[1].sharers == (made[1], made[2])


CONDITIONS = [
    "k = 'k{0}'", "v = {0}", "v > {0} AND k = 'k1'", "{0} >= v", "v < {0}.5 AND v >= 1 AND k = 'k2'", "n = {0}",
    "n > {0}.5", "n <= {0} AND v <> 3", "k = 'k{0}' OR v = 1", "v = 'nan'", "k IS NULL AND n = {0}",
    "upper(k) = 'K{0}'",
]  # fmt: skip


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 12))])
def test_many_selections_tell_what_each_would_alone(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    wanted = [draw.choice(CONDITIONS).format(draw.randint(0, 4)) for _ in range(60)]
    wanted = ["v > 1e300" if each == "v = 'nan'" else each for each in wanted]
    texts = [f"SELECT t, v + 1 AS more, k, n FROM a WHERE {each}" for each in wanted]
    schema = [*SCHEMA[:3], ("n", pa.int64())]
    many, single = nile.connect(tmp_path / "many", checkpoint=None), [nile.connect() for _ in texts]
    for db in (many, *single):
        db.stream("a", schema, time="t")
    for k, text in enumerate(texts):
        many.subscribe(text, name=f"q{k}")
    alone = [db.subscribe(text) for db, text in zip(single, texts, strict=True)]
    at = 0.0
    for number in range(12):
        if number == 6:
            many.close()
            many = nile.connect(tmp_path / "many", checkpoint=None)
        size = draw.choice([1, 3, 50])
        rows: dict[str, list[Any]] = {"t": [], "k": [], "v": [], "n": []}
        for _ in range(size):
            at += draw.choice([0.0, 0.25])
            rows["t"].append(at)
            rows["k"].append(draw.choice([None, *(f"k{i}" for i in range(4))]))
            rows["v"].append(draw.choice([None, -0.0, 0.0, 1.0, 2.0, 3.5, float("nan"), float("inf")]))
            rows["n"].append(draw.choice([None, 0, 1, 2, 3, 4]))
        for db in (many, *single):
            db.push("a", rows)
        assert len(many.subscription("q0").sharers) == len(texts)
        for k, each in enumerate(alone):
            assert repr(told(many.subscription(f"q{k}"))) == repr(told(each)), texts[k]
    for k, each in enumerate(alone):
        mine, theirs = many.subscription(f"q{k}").capture(), each.capture()
        assert packed("q", mine) == packed("q", theirs), texts[k]
    many.close()
    for db in single:
        db.close()


def test_a_selection_that_was_stored_as_one_operator_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "SELECT t, v FROM a WHERE k = 'x'"
    rows = {"t": [1.0, 2.0, 2.0], "k": ["x", "x", "y"], "v": [1.0, 2.0, 3.0]}
    with monkeypatch.context() as older:
        older.setattr(running, "tail_of", lambda plan, _: ([], plan))
        with opened(tmp_path) as db:
            db.subscribe(text, name="q")
            db.push("a", rows)
    with nile.connect(tmp_path, checkpoint=None) as db:
        assert told(db.subscription("q")) == [(0, {"t": 1.0, "v": 1.0})]
        db.subscribe(text, name="fresh")
        db.push("a", {"t": [3.0, 4.0], "k": ["x", "x"], "v": [4.0, 5.0]})
        assert told(db.subscription("q")) == [(1, {"t": 2.0, "v": 2.0}), (2, {"t": 3.0, "v": 4.0})]
        assert told(db.subscription("fresh")) == [(0, {"t": 3.0, "v": 4.0})]


def test_explain_names_who_has_the_plan() -> None:
    totals = "SELECT k, sum(v) AS s FROM a GROUP BY k"
    with opened() as db:
        wide, large = db.subscribe(f"{totals} WINDOW 8", name="wide"), db.subscribe(f"{totals} WINDOW 8")
        db.subscribe(f"{totals} HAVING sum(v) > 1 WINDOW 8", name="large")
        db.subscribe(f"{totals} WINDOW 9", name="longer")
        db.subscribe("SELECT k, v FROM a WITH PREFERENCE desc v BUDGET 0.5", name="near", costs="engine")
        for text, options, names in [
            (f"{totals} WINDOW 8", {}, ["wide", "large", "1 without a name"]),
            (f"{totals} HAVING sum(v) > 7 WINDOW 8", {}, ["wide", "large", "1 without a name"]),
            (f"{totals} WINDOW 9", {}, ["longer"]),
            (f"{totals} WINDOW 8", {"scheduling": "tpa"}, []),
            (f"{totals} WINDOW 7", {}, []),
            (f"{totals} EMIT EVERY 2 WINDOW 8", {}, []),
            ("SELECT k, v FROM a WITH PREFERENCE desc v BUDGET 0.5", {"costs": "engine"}, []),
        ]:
            values = json.loads(db.sql(f"EXPLAIN (FORMAT JSON) {text}", **options).fetchall()[0][0])
            assert values.get("shares", []) == names, text
            for lines in (db.sql(f"EXPLAIN {text}", **options).fetchall()[0][0], db.sql(text, **options).explain()):
                last = f"as a standing query: shares the plan of {', '.join(names)}, once their states are equal"
                assert (lines.splitlines()[-1] == last) == bool(names), text
        large.close()
        assert "plan of wide, large, once" in db.sql(f"{totals} WINDOW 8").explain()
        assert wide.sharers == (wide, db.subscription("large"))
        asked = db.subscribe(f"{totals} HAVING sum(v) > 7 WINDOW 8")
        assert asked.sharers == (*wide.sharers[:2], asked)
