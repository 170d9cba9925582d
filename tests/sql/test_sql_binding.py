"""Names, kinds and clauses come to one meaning, and what has none is told with its place."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sql_catalog import CATALOG
from sql_logic import Case, read_cases

from nile.expressions.tree import Column, Compare, Constant
from nile.sql.plan import (
    Constraint,
    Distinct,
    Filter,
    Group,
    Join,
    Limit,
    Plan,
    Project,
    Query,
    Relation,
    Rows,
    SetOperation,
    Sort,
    Stream,
    Term,
    walk,
)
from nile.sql.reading_statements import read_statement
from nile.sql.statement_text import statement_text
from nile.sql.statements import Explain, Select
from nile.summaries.errors import NileError, NotYet, SqlError

SECOND = 10**9
ERRORS = [
    case
    for path in sorted((Path(__file__).parents[1] / "sql").glob("errors_*.test"))
    for case in read_cases(path)
    if case.kind == "error"
]


def query(text: str, params: Any = None) -> Query:
    statement = read_statement(text, CATALOG, params=params)
    assert isinstance(statement, Select | Explain)
    return statement.query


def nodes(plan: Plan, kind: type) -> list[Any]:
    """The nodes of a kind, from the top."""
    return [node for node in walk(plan) if isinstance(node, kind)]


def names(plan: Plan) -> list[str]:
    return [field.name for field in plan.fields]


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: case.id)
def test_an_error_of_the_corpus_says_what_is_wrong_and_where(case: Case) -> None:
    with pytest.raises(NileError) as error:
        read_statement(case.statement, CATALOG)
    assert isinstance(error.value, SqlError | NotYet)
    assert re.search(case.argument, str(error.value))
    assert "\n" not in str(error.value)


def test_the_corpus_holds_enough_errors() -> None:
    assert len(ERRORS) >= 300


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM rooms", ["room", "floor"]),
        ("SELECT r.*, s.room FROM rooms r, sensors s", ["room", "floor", "room_1"]),
        ("SELECT * FROM sensors JOIN rooms USING (room)", ["at", "sensor_id", "temperature", "room", "floor"]),
        ("SELECT FLOOR, Room AS raum FROM Rooms", ["FLOOR", "raum"]),
        ("SELECT floor + 1, count(*) FROM rooms GROUP BY 1", ["floor + 1", "count(*)"]),
        ("SELECT room, room, room AS room_1 FROM rooms", ["room", "room_1", "room_1_1"]),
        ("SELECT sum(s.price * quantity) FROM store1 s", ["sum(s.price * quantity)"]),
        ("SELECT room AS x FROM rooms UNION SELECT item_id FROM items", ["x"]),
        ("FROM rooms", ["room", "floor"]),
    ],
)
def test_outputs_are_called_as_the_statement_says(text: str, expected: list[str]) -> None:
    assert names(query(text).plan) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("store_id", pa.int32()),
        ("store_id + 1", pa.int64()),
        ("quantity / 2", pa.float64()),
        ("price", pa.float64()),
        ("ts", pa.timestamp("us")),
        ("ts + INTERVAL 1 HOUR", pa.timestamp("us")),
        ("CAST(ts AS DATE)", pa.date32()),
        ("lower(item_id)", pa.string()),
        ("price > 2", pa.bool_()),
        ("NULL", pa.int64()),
        ("max(item_id)", pa.string()),
        ("min(ts)", pa.timestamp("us")),
        ("sum(quantity)", pa.int64()),
        ("sum(price)", pa.float64()),
        ("avg(quantity)", pa.float64()),
        ("count(price)", pa.int64()),
    ],
)
def test_outputs_have_arrow_types(expression: str, expected: pa.DataType) -> None:
    assert query(f"SELECT {expression} FROM store1").plan.fields[0].type == expected


def test_streams_are_numbered_in_the_order_of_the_statement() -> None:
    plan = query("SELECT 1 FROM rooms r, (SELECT at FROM sensors) x, store1 a UNION ALL SELECT 2 FROM store2").plan
    assert [(each.name, each.position) for each in nodes(plan, Stream)] == [
        ("sensors", 0),
        ("store1", 1),
        ("store2", 2),
    ]
    assert [each.alias for each in nodes(plan, Relation)] == ["r"]


def test_equalities_between_streams_are_keys_and_the_rest_is_a_condition() -> None:
    (join,) = nodes(
        query(
            "SELECT 1 FROM store1 a JOIN store2 b ON a.item_id = b.item_id AND a.price < b.price "
            "WHERE b.seq = a.seq AND a.store_id = b.price AND a.item_id = b.item_id AND a.price > 1"
        ).plan,
        Join,
    )
    assert join.equal == (("a.item_id", "b.item_id"), ("b.seq", "a.seq"))
    assert len(join.condition.items) == 2
    assert join.inputs[0].where == Compare(">", Column("a.price", "number", True), Constant(1.0, "number"))


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("3600", 3600 * SECOND),
        ("= 3600", 3600 * SECOND),
        ("'1 hour'", 3600 * SECOND),
        ("1 HOUR", 3600 * SECOND),
        ("INTERVAL '1 hour'", 3600 * SECOND),
        ("INTERVAL 90 MINUTES", 5400 * SECOND),
        ("1 h 30 min", 5400 * SECOND),
        (".5", SECOND // 2),
        ("100 ms", SECOND // 10),
    ],
)
def test_a_window_is_written_in_many_ways(window: str, expected: int) -> None:
    found = query(f"SELECT seq FROM store1 WINDOW {window} WHERE price > 1")
    assert found.window == expected
    assert found.windowed
    assert nodes(found.plan, Stream)[0].window == expected


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("[RANGE 1 HOUR]", 3600 * SECOND),
        ("[Range 15 Minutes Preceding]", 900 * SECOND),
        ("[RANGE '1 hour' PRECEDING]", 3600 * SECOND),
        ("[ROWS 10]", Rows(10)),
        ("[Rows 50 Preceding]", Rows(50)),
        ("[RANGE UNBOUNDED PRECEDING]", None),
    ],
)
@pytest.mark.parametrize("alias", ["", " S", " AS S"])
def test_a_stream_may_have_a_window_of_its_own(window: str, expected: Any, alias: str) -> None:
    found = query(f"SELECT count(*) FROM store1{alias} {window} WHERE price > 1")
    assert nodes(found.plan, Stream)[0].window == expected
    assert found.windowed is (expected is not None)


def test_a_window_of_rows_counts_before_where_and_after_the_condition_in_its_brackets() -> None:
    (stream,) = nodes(query("SELECT seq FROM store1 [ROWS 5 WHERE price > 2] WHERE quantity > 1").plan, Stream)
    assert stream.where == Compare(">", Column("store1.price", "number", True), Constant(2.0, "number"))
    assert nodes(query("SELECT seq FROM store1 [ROWS 5] WHERE quantity > 1").plan, Filter)


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ("0.1", ("fraction", 0.1)),
        ("10 %", ("fraction", 0.1)),
        ("1000 OUTPUTS", ("outputs", 1000.0)),
        ("2 SECONDS", ("seconds", 2.0)),
        ("0.001 SECONDS PER TUPLE", ("seconds_per_tuple", 0.001)),
        ("0.5 SHARE", ("share", 0.5)),
    ],
)
def test_a_budget_has_a_unit(budget: str, expected: tuple[str, float]) -> None:
    assert query(f"SELECT seq FROM store1 WITH PREFERENCE desc seq BUDGET {budget} WINDOW 5").budget == expected


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ("SUMMARY.Estimate.Count(S1.item_id)", Term("S1.item_id")),
        ("summary.estimate.count(item_id)", Term("S1.item_id")),
        ("COUNT(S1.item_id)", Term("S1.item_id")),
        ("item_id", Term("S1.item_id")),
        ("SUMMARY.Estimate.Count(S1.quantity) * S1.quantity", Term("S1.quantity", "value")),
        ("SUMMARY.Estimate.Count(S1.quantity)×S1.quantity", Term("S1.quantity", "value")),
    ],
)
def test_a_preference_looks_at_counts_or_at_values_times_counts(term: str, expected: Term) -> None:
    found = query(f"SELECT sum(quantity) FROM store1 S1 WITH PREFERENCE weighted {term} FADE FACTOR = 0.5")
    assert found.preference is not None
    assert found.preference.terms == (expected,)
    assert found.preference.fade == 0.5


def test_an_error_target_has_a_confidence_and_says_what_else() -> None:
    assert query("SELECT sum(price) FROM store1 ERROR 1 %").error == (0.01, 0.95, "flag")
    text = "SELECT sum(price) FROM store1 ERROR 0.02 CONFIDENCE 99 % ELSE REFUSE BUDGET 0.5"
    assert query(text).error == (0.02, 0.99, "refuse")


PAPERS = {
    "join, promising tuples, Figure 6": "SELECT S1.item_id, S1.ts, S2.ts FROM store1 S1, store2 S2 "
    "WHERE S1.item_id= S2.item_id WITH PREFERENCE desc SUMMARY.Estimate.Count(S1.item_id), "
    "SUMMARY.Estimate.Count(S2.item_id) FADE FACTOR 0.8 WINDOW 3600",
    "average, promising tuples, 4.3": "SELECT avg(price) FROM store1 S1 "
    "WITH PREFERENCE weighted SUMMARY.Estimate.Count(S1.item_id)",
    "sum, promising tuples, 4.3": "SELECT sum(quantity) FROM store1 S1 "
    "WITH PREFERENCE desc SUMMARY.Estimate.Count(S1.quantity)×S1.quantity",
    "Form 1, TR 02-010": "SELECT A.item_id\nFROM Store1 A, Store2 B, Store1 C\nWINDOW = 3600\n"
    "WHERE A.item_id=B.item_id AND B.item_id=C.item_id",
    "Form 2, TR 02-010": "SELECT A.item_id FROM Store1 A, Store2 B, Store1 C WINDOW (A,B)=60 AND WINDOW (B,C)=90 "
    "AND WINDOW (A,C)=100 WHERE A.item_id=B.item_id AND B.item_id=C.item_id",
    "Form 3, TR 02-010": "SELECT A.item_id\nFROM Store1 A, Store2 B, Store1 C\nWINDOW (A,B)=60 AND WINDOW (B,C)=90\n"
    "WHERE A.item_id=B.item_id AND B.item_id=C.item_id",
    "path, TR 02-010, Figure 12": "SELECT A.item_id FROM Store1 A, Store2 B, Store1 C, Store2 D DWINDOW (A,B)=60 "
    "AND DWINDOW (B,C)=90 AND DWINDOW (C,D)=30 WHERE A.item_id=B.item_id AND B.item_id=C.item_id "
    "AND C.item_id=D.item_id",
    "STEAM, 5": "SELECT A.room FROM sensors A, sensors B, sensors C\nWINDOW=3600\n"
    "WHERE A.room=B.room AND B.room= C.room",
    "STEAM, windows of pairs": "SELECT A.room FROM sensors A, sensors B, sensors C\nWINDOW(A,B) =60 "
    "AND WINDOW(B,C) =70 AND WINDOW(A,C) =80 WHERE A.room=B.room AND B.room= C.room",
    "STEAM, selection": "Select S.room,temperature FROM Sensors S WHERE S.sensor_id=2 AND S.sensor_id=4",
    "Q1, negative tuples": "SELECT SUM(S.price) FROM store1 S WHERE S.price > 4 WINDOW 1 hour",
    "CQL, 2.1": "Select Count(*)\nFrom store1 S [Range 1 Day Preceding]\nWhere S.item_id = 'tea'",
    "CQL, subquery": "Select T.item_id\nFrom\n(Select customer_id, store1.item_id\nFrom store1, items R\n"
    "Where store1.item_id = R.item_id\nAnd R.category = 'china') T\nWhere T.customer_id Between 1 And 1000",
    "CQL, all": "Select * From store1",
}


@pytest.mark.parametrize("text", PAPERS.values(), ids=PAPERS.keys())
def test_the_papers_statements_are_read(text: str) -> None:
    assert nodes(query(text).plan, Stream)


def test_windows_of_pairs_are_completed_along_the_shortest_path() -> None:
    found = query(PAPERS["Form 3, TR 02-010"])
    (join,) = nodes(found.plan, Join)
    given = (Constraint(0, 1, 60 * SECOND), Constraint(1, 2, 90 * SECOND))
    assert join.constraints == (*given, Constraint(0, 2, 150 * SECOND))
    assert join.given == 2
    assert not join.directed
    assert found.windowed
    assert found.window is None
    assert all(stream.window is None for stream in join.inputs)


def test_directed_windows_are_completed_in_their_direction() -> None:
    (join,) = nodes(query(PAPERS["path, TR 02-010, Figure 12"]).plan, Join)
    assert join.directed
    assert {(each.left, each.right): each.window // SECOND for each in join.constraints} == {
        (0, 1): 60,
        (1, 2): 90,
        (2, 3): 30,
        (0, 2): 150,
        (0, 3): 180,
        (1, 3): 120,
    }


@pytest.mark.parametrize("join", nodes(query(PAPERS["Form 2, TR 02-010"]).plan, Join))
def test_complete_windows_stay_as_they_are(join: Join) -> None:
    assert join.given == len(join.constraints) == 3


def test_groups_are_by_expression_alias_or_position() -> None:
    texts = [
        "SELECT floor + 1 AS n, count(*) FROM rooms GROUP BY floor + 1 HAVING count(*) > 1",
        "SELECT floor + 1 AS n, count(*) FROM rooms GROUP BY n HAVING count(*) > 1",
        "SELECT floor + 1 AS n, count(*) FROM rooms GROUP BY 1 HAVING count(*) > 1",
        "SELECT floor + 1 AS n, count(*) FROM rooms GROUP BY ALL HAVING count(*) > 1",
    ]
    plans = [query(text).plan for text in texts]
    assert all(plan == plans[0] for plan in plans)
    (group,) = nodes(plans[0], Group)
    assert [item.name for item in group.by] == ["rooms.floor + 1"]
    assert isinstance(plans[0], Project)
    assert isinstance(plans[0].input, Filter)


def test_order_and_limit_stand_on_top_and_what_is_only_sorted_by_is_taken_off() -> None:
    plan = query("SELECT DISTINCT room FROM sensors ORDER BY room DESC LIMIT 2 OFFSET 1").plan
    assert isinstance(plan, Limit)
    assert isinstance(plan.input, Sort)
    assert isinstance(plan.input.input, Distinct)
    plan = query("SELECT room FROM sensors ORDER BY at * 2, room NULLS FIRST LIMIT 2").plan
    assert isinstance(plan, Project)
    assert isinstance(plan.input, Limit)
    assert names(plan) == ["room"]
    (sort,) = nodes(plan, Sort)
    assert [key.nulls_last for key in sort.keys] == [True, False]
    assert names(sort) == ["room", "_order"]


def test_set_operations_nest_as_they_are_written() -> None:
    plan = query("SELECT room FROM rooms UNION ALL (SELECT room FROM sensors EXCEPT SELECT room FROM rooms)").plan
    assert isinstance(plan, SetOperation)
    assert (plan.kind, plan.all) == ("union", True)
    assert isinstance(plan.right, SetOperation)
    assert (plan.right.kind, plan.right.all) == ("except", False)
    plan = query("SELECT quantity FROM store1 UNION SELECT price FROM store2").plan
    assert [field.type for field in plan.fields] == [pa.float64()]


def test_parameters_are_literals_wherever_values_stand() -> None:
    moment = dt.datetime(2011, 12, 9, 8)
    plain = query(
        "SELECT seq FROM store1 WHERE price > 2.5 AND item_id LIKE 'a%' AND ts > TIMESTAMP '2011-12-09 08:00' "
        "WITH PREFERENCE desc seq BUDGET 0.1 WINDOW '1 hour'"
    )
    named = query(
        "SELECT seq FROM store1 WHERE price > $p AND item_id LIKE $like AND ts > $t "
        "WITH PREFERENCE desc seq BUDGET $b WINDOW $w",
        {"p": 2.5, "like": "a%", "t": moment, "b": 0.1, "w": dt.timedelta(hours=1)},
    )
    placed = query(
        "SELECT seq FROM store1 WHERE price > ? AND item_id LIKE ? AND ts > ? WITH PREFERENCE desc seq "
        "BUDGET ? WINDOW ?",
        [2.5, "a%", moment, 0.1, "1 hour"],
    )
    assert plain == named == placed


@pytest.mark.parametrize(
    ("text", "params", "message"),
    [
        ("SELECT 1 FROM rooms WHERE floor = ?", [], r"column 35: needed a value for parameter 1; got 0"),
        ("SELECT 1 FROM rooms WHERE floor = ?", [1, 2], r"got number 2, which it has not"),
        ("SELECT 1 FROM rooms WHERE floor = $a", {"b": 1}, r"needed a value for \$a; got b"),
        ("SELECT 1 FROM rooms WHERE floor = $flor", {"floor": 1}, r"did you mean \$floor"),
        ("SELECT 1 FROM rooms WHERE floor = $a", {"a": [1]}, r"line 1, column 35: needed a number, text"),
        ("SELECT 1 FROM rooms WHERE floor = $a", {"a": 2**70}, r"needed a parameter of 64 bits"),
        ("SELECT 1 FROM rooms WHERE floor = $a", {"a": "x"}, r"write the number without quotes"),
        ("SELECT 1 FROM rooms WHERE room LIKE $a", {"a": 3}, r"got 3 as the parameter \$a in WHERE"),
        ("SELECT 1 FROM rooms", "text", r"needed params as a list or a dict"),
        ("SELECT 1 FROM store1 WINDOW ?", ["soon"], r"line 1, column 29: WINDOW: needed a duration"),
    ],
)
def test_parameters_that_do_not_fit_are_told(text: str, params: Any, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        read_statement(text, CATALOG, params=params)


@pytest.mark.parametrize(
    ("text", "column", "clause"),
    [
        ("SELECT 1 FROM ?", 15, "FROM"),
        ("SELECT floor AS ? FROM rooms", 17, "SELECT"),
        ("SELECT floor ? FROM rooms", 14, "SELECT"),
        ("SELECT rooms.? FROM rooms", 14, "SELECT"),
        ("SELECT ?.floor FROM rooms", 8, "SELECT"),
        ("SELECT ?(floor) FROM rooms", 8, "SELECT"),
        ("SELECT CAST(floor AS ?) FROM rooms", 22, "SELECT"),
        ("SELECT extract(? FROM ts) FROM store1", 16, "SELECT"),
        ("SELECT 1 FROM store1 a JOIN store2 b USING (?)", 45, "USING"),
        ("SELECT 1 FROM rooms WHERE floor ?", 33, "WHERE"),
        ("SELECT 1 FROM rooms WHERE floor IN ?", 36, "WHERE"),
        ("SELECT 1 FROM rooms WHERE (floor IS NOT ?)", 41, "WHERE"),
        ("SELECT 1 FROM store1 WHERE ts > ts - INTERVAL ? HOUR", 47, "WHERE"),
        ("SELECT 1 FROM rooms WHERE room LIKE 'a' ESCAPE ?", 48, "WHERE"),
        ("SELECT floor FROM rooms GROUP BY floor ?", 40, "GROUP BY"),
        ("SELECT floor FROM (SELECT floor FROM rooms WHERE floor = 1) AS r ORDER BY floor ?", 81, "ORDER BY"),
        ("SELECT floor FROM rooms UNION ? SELECT floor FROM rooms", 31, "UNION"),
        ("SELECT seq FROM store1 [ROWS 2 WHERE price IN ?]", 47, "WHERE"),
        ("CREATE STREAM new FROM 'a.csv' WHERE price IN ?", 47, "WHERE"),
    ],
)
def test_a_parameter_where_no_value_can_stand_is_told_with_its_clause(text: str, column: int, clause: str) -> None:
    for written, params in (("?", ["floor"]), ("$what", {"what": "floor"})):
        told = f"line 1, column {column}: needed a parameter where a value can stand; got {written} in {clause};"
        with pytest.raises(SqlError, match=re.escape(told)):
            read_statement(text.replace("?", written), CATALOG, params=params)


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("SELECT seq FROM store1 WITH PREFERENCE ? seq", "WITH PREFERENCE"),
        ("SELECT 1 FROM store1 a, store2 b WHERE a.item_id = b.item_id WINDOW (?, b) = 3", "WINDOW"),
        ("CREATE STREAM ? FROM 'a.csv'", "CREATE"),
        ("CREATE STREAM new FROM ?", "FROM"),
        ("CREATE STREAM new FROM 'a.csv' TIMESTAMP BY ?", "TIMESTAMP BY"),
        ("CREATE SUMMARY s ON store1 (?) WITH GRANULARITY 60 AND COLLAPSE (4, 3)", "ON"),
        ("SHOW ?", "SHOW"),
    ],
)
def test_a_parameter_for_a_word_is_told_with_its_clause(text: str, clause: str) -> None:
    for written, params in (("?", ["floor"]), ("$what", {"what": "floor"})):
        with pytest.raises(SqlError, match=re.escape(f"got the parameter {written} in {clause}")):
            read_statement(text.replace("?", written), CATALOG, params=params)


def test_parameters_stand_beside_words_that_look_like_clauses() -> None:
    found = query(
        "SELECT extract(year FROM ?) AS error FROM store1 WHERE price IN (?) LIMIT ?", [dt.date(2011, 1, 1), 2, 3]
    )
    assert found == query("SELECT extract(year FROM DATE '2011-01-01') AS error FROM store1 WHERE price IN (2) LIMIT 3")


def test_a_filter_of_an_aggregate_is_a_case_in_it() -> None:
    one = query("SELECT room, count(*) FILTER (WHERE temperature > 2) AS n FROM sensors GROUP BY room")
    other = query("SELECT room, count(CASE WHEN temperature > 2 THEN 1 END) AS n FROM sensors GROUP BY room")
    assert one == other
    with pytest.raises(SqlError, match="got one of another aggregate"):
        query("SELECT count(*) FILTER (WHERE sum(at) > 2) FROM sensors")
    with pytest.raises(SqlError, match="needed an aggregate before FILTER"):
        query("SELECT abs(at) FILTER (WHERE at > 2) FROM sensors")


def test_explain_is_of_the_same_query() -> None:
    statement = read_statement("EXPLAIN ANALYZE SELECT room FROM rooms", CATALOG)
    assert isinstance(statement, Explain)
    assert statement.analyze
    assert statement.query == query("SELECT room FROM rooms")
    for form in ("EXPLAIN (FORMAT JSON, ANALYZE)", "EXPLAIN ANALYZE (FORMAT JSON)"):
        statement = read_statement(f"{form} SELECT room FROM rooms", CATALOG)
        assert isinstance(statement, Explain)
        assert (statement.analyze, statement.form) == (True, "json")
        assert read_statement(statement_text(statement), CATALOG) == statement
