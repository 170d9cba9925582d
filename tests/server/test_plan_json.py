"""Plans as data: what EXPLAIN tells as JSON is run as it is, and changed by hand, and refused where it is no plan."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sql_catalog import connect_catalog
from sql_logic import read_cases

import nile
from nile.sql.reading.plan_json import plan_values, sql_of_plan

FILES = sorted((Path(__file__).parents[1] / "sql").glob("*.test"))
JOIN = "SELECT a.item, b.x AS y FROM a, b WHERE a.item = b.item AND a.x > 1 WINDOW '10 s'"


def opened() -> nile.Database:
    db = nile.connect()
    for name in "ab":
        db.register(name, {"ts": [0.0, 1.0, 2.0], "item": ["tea", "cup", "tea"], "x": [1, 2, 3]}, time="ts")
    return db


def plan_of(db: nile.Database, text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(db.sql(f"EXPLAIN (FORMAT JSON) {text}").fetchall()[0][0])["query"]
    return found


def test_every_statement_of_the_corpus_comes_back_from_json_as_the_same_plan() -> None:
    db = connect_catalog()
    seen = 0
    for case in (case for path in FILES for case in read_cases(path) if case.kind != "error"):
        result = db.sql(case.statement)
        if result.query is not None:
            values = plan_values(result.query)
            assert values is not None, case.id
            assert db.sql(sql_of_plan(json.dumps(values))).query == result.query, case.id
            seen += 1
    assert seen > 300


def test_a_plan_that_was_changed_by_hand_runs() -> None:
    db = opened()
    plan = plan_of(db, JOIN)
    assert sorted(db.sql(json.dumps(plan)).fetchall()) == sorted(db.sql(JOIN).fetchall())
    (stream,) = (each for each in plan["plan"]["input"]["inputs"] if each["alias"] == "a")
    assert stream["where"] == '"a.x" > 1'
    stream["where"] = '"a.x" > 2'
    changed = db.sql(json.dumps(plan))
    assert sorted(changed.fetchall()) == sorted(db.sql(JOIN.replace("> 1", "> 2")).fetchall())
    plan["plan"]["input"]["inputs"].reverse()
    assert sorted(db.sql(json.dumps(plan)).fetchall()) == sorted(changed.fetchall())


def test_a_plan_stands_and_takes_the_place_of_the_one_that_runs() -> None:
    with nile.connect() as db:
        for name in "ab":
            db.stream(name, [("ts", pa.float64()), ("item", pa.string()), ("x", pa.int64())], time="ts")
        plan = plan_of(db, JOIN)
        standing = db.subscribe(json.dumps(plan), name="q", emit="changes")
        db.push("a", {"ts": [1.0], "item": ["tea"], "x": [2]})
        plan["plan"]["input"]["inputs"].reverse()
        db.sql("UPDATE nile_queries SET query = ?", [json.dumps(plan)])
        db.push("b", {"ts": [2.0], "item": ["tea"], "x": [7]})
        db.advance(3.0)
        assert [(row["_sign"], row["y"]) for batch in standing for row in batch.to_pylist()] == [(1, 7)]


def changed(change: Callable[[dict[str, Any]], Any]) -> str:
    plan = plan_of(opened(), JOIN)
    change(plan)
    return json.dumps(plan)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "needed JSON"),
        ("{}", "plan: needed Query with plan"),
        ('{"plan": 3}', "plan.plan: needed"),
        ("{" + '"plan": {"is": "Filter", "condition": "TRUE", "input": ' * 5_000, "needed JSON|bearable depth|at most"),
        (changed(lambda plan: plan.update(colour="red")), "plan: needed fields among plan, window.*got colour"),
        (changed(lambda plan: plan.update(window="long")), "plan.window: needed a whole number; got long"),
        (changed(lambda plan: plan["plan"].update({"is": "Magic"})), "plan.plan.is: needed one of Stream.*got Magic"),
        (changed(lambda plan: plan["plan"]["items"][0].update(node='"a.nope"')), "columns of their inputs.*a.nope"),
        (changed(lambda plan: plan["plan"]["items"][0].update(node="a.x >")), r"items\[0\].node: cannot use"),
        (changed(lambda plan: plan["plan"]["input"]["inputs"][0].update(name="c")), "c"),
        (changed(lambda plan: plan["plan"]["input"]["inputs"][0].update(where='"a.item" > 2')), "compare text with 2"),
        (changed(lambda plan: plan["plan"]["input"].update(equal=[["a.item"]])), r"equal\[0\]: needed a list of 2"),
        (changed(lambda plan: plan["plan"]["input"]["inputs"][0].update(name="x.parquet")), "x.parquet"),
    ],
)
def test_what_is_no_plan_says_where(text: str, message: str) -> None:
    with pytest.raises(nile.NileError, match=message):
        opened().sql(text).fetchall()
