"""Rewrites move work towards the streams and leave the meaning."""

from __future__ import annotations

from typing import Any

import pytest
from sql_catalog import CATALOG

from nile.expressions.tree import Compare, Constant, columns_of
from nile.sql.plan import Distinct, Filter, Group, Join, Plan, Project, Query, Relation, Stream, walk
from nile.sql.reading_statements import read_statement
from nile.sql.rewriting.rules import REWRITES
from nile.sql.statements import Select


def query(text: str) -> Query:
    statement = read_statement(text, CATALOG)
    assert isinstance(statement, Select)
    return statement.query


def nodes(plan: Plan, kind: type) -> list[Any]:
    return [node for node in walk(plan) if isinstance(node, kind)]


def test_selections_go_to_the_streams_that_they_are_about() -> None:
    plan = query(
        "SELECT a.seq FROM store1 a, items i WHERE a.item_id = i.item_id AND a.price > 1 AND i.weight < 2 "
        "AND a.price > i.weight"
    ).plan
    (join,) = nodes(plan, Join)
    stream, relation = join.inputs
    assert columns_of(stream.where) == ("a.price",)
    assert columns_of(relation.where) == ("i.weight",)
    assert columns_of(join.condition) == ("a.price", "i.weight")
    assert not nodes(plan, Filter)


def test_selections_go_through_queries_in_from_that_only_rename() -> None:
    plan = query("SELECT x FROM (SELECT item_id AS x, price AS p FROM store1) t WHERE p > 2").plan
    assert isinstance(plan, Project)
    assert isinstance(plan.input, Stream)
    assert columns_of(plan.input.where or Constant(True, "boolean")) == ("store1.price",)


def test_a_selection_of_a_computed_column_stays_above_it() -> None:
    plan = query("SELECT t.p FROM (SELECT price * 2 AS p FROM store1) t WHERE t.p > 2").plan
    (stays,) = nodes(plan, Filter)
    assert isinstance(stays.input, Project)


def test_a_selection_of_a_group_key_goes_below_the_group() -> None:
    plan = query("SELECT room, count(*) FROM sensors GROUP BY room HAVING room <> 'hall' AND count(*) > 1").plan
    (group,) = nodes(plan, Group)
    assert group.input.where is not None
    (having,) = nodes(plan, Filter)
    assert columns_of(having.condition) == ("count(*)",)


def test_selections_enter_distinct_and_both_sides_of_a_set_operation() -> None:
    plan = query("SELECT x FROM (SELECT DISTINCT item_id AS x FROM store1) t WHERE x > 'b'").plan
    assert nodes(plan, Distinct)
    assert nodes(plan, Stream)[0].where is not None
    plan = query(
        "SELECT x FROM (SELECT item_id AS x FROM store1 EXCEPT SELECT item_id FROM items) t WHERE x > 'b'"
    ).plan
    assert columns_of(nodes(plan, Stream)[0].where) == ("store1.item_id",)
    assert columns_of(nodes(plan, Relation)[0].where) == ("items.item_id",)


def test_streams_read_only_what_is_needed_and_their_time_where_nothing_is() -> None:
    (stream,) = nodes(query("SELECT item_id FROM store1 WHERE price > 2").plan, Stream)
    assert [field.name for field in stream.fields] == ["store1.item_id", "store1.price"]
    (stream,) = nodes(query("SELECT count(*) FROM sensors").plan, Stream)
    assert [field.name for field in stream.fields] == ["sensors.at"]
    (relation,) = nodes(query("SELECT count(*) FROM rooms").plan, Relation)
    assert [field.name for field in relation.fields] == ["rooms.room"]
    (stream,) = nodes(query("SELECT seq FROM store1 WITH PREFERENCE desc item_id").plan, Stream)
    assert [field.name for field in stream.fields] == ["store1.seq", "store1.item_id"]


def test_aggregates_that_nobody_asks_for_are_not_computed() -> None:
    plan = query(
        "SELECT t.n FROM (SELECT room, count(*) AS n, avg(temperature) AS a FROM sensors GROUP BY room) t"
    ).plan
    (group,) = nodes(plan, Group)
    assert [each.name for each in group.aggregates] == ["count(*)"]
    assert "sensors.temperature" not in [field.name for field in group.input.fields]


@pytest.mark.parametrize(
    ("condition", "folded"),
    [
        ("price > 1 + 1", "price > 2"),
        ("price > 4 / 2", "price > 2"),
        ("TRUE AND price > 2", "price > 2"),
        ("price > 2 OR FALSE", "price > 2"),
        ("NOT NOT price > 2", "price > 2"),
        ("item_id = lower('TEA')", "item_id = 'tea'"),
        ("price > 2 AND 1 = 2", "FALSE"),
        ("price > 2 OR 2 > 1", "TRUE"),
        ("ts > TIMESTAMP '2011-01-01' + INTERVAL 1 DAY", "ts > TIMESTAMP '2011-01-02'"),
        ("ts > CAST('2011-01-02' AS TIMESTAMP)", "ts > TIMESTAMP '2011-01-02'"),
    ],
)
def test_constants_are_computed_once(condition: str, folded: str) -> None:
    one, other = (query(f"SELECT seq FROM store1 WHERE {each}") for each in (condition, folded))
    assert one == other


def test_a_key_that_folding_uncovers_is_a_key() -> None:
    (join,) = nodes(query("SELECT 1 FROM store1 a, store2 b WHERE a.item_id = b.item_id OR FALSE").plan, Join)
    assert join.equal == (("a.item_id", "b.item_id"),)


def test_the_summary_of_a_stream_is_picked_where_it_serves() -> None:
    text = "SELECT S1.seq FROM store1 S1, store2 S2 WHERE S1.item_id = S2.item_id"
    assert query(f"{text} WITH PREFERENCE desc COUNT(S1.item_id)").summaries == (("S1", "s1"),)
    assert query(f"{text} WITH PREFERENCE desc COUNT(S2.item_id)").summaries == (("S1", "s1"),)
    assert query(text).summaries == ()
    assert query("SELECT seq FROM store1 WITH PREFERENCE desc price").summaries == ()
    assert query("SELECT seq FROM store1 WHERE item_id > 'a' WITH PREFERENCE desc").summaries == (("store1", "s1"),)


def test_rewriting_twice_changes_nothing() -> None:
    found = query(
        "SELECT a.item_id, count(*) FROM store1 a, (SELECT DISTINCT item_id AS k FROM items WHERE weight > 1) i "
        "WHERE a.item_id = i.k AND a.price + 1 > 2 GROUP BY 1 HAVING count(*) > 1 WINDOW 60"
    )
    again = found
    for step in REWRITES:
        again = step(again, CATALOG)
    assert again == found
    assert isinstance(nodes(found.plan, Stream)[0].where, Compare)
