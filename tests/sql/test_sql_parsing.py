"""Statements are read as the papers print them, and what is wrong with one is said with its place."""

import ast
from pathlib import Path

import pytest
from sql_catalog import CATALOG

from nile.sql.plan import Join, Project, Stream
from nile.sql.reading_statements import read_statement
from nile.sql.statements import Select
from nile.summaries.errors import SqlError


def test_the_join_of_the_paper_is_read() -> None:
    statement = read_statement(
        """SELECT S1.item_id, S1.ts, S2.ts
        FROM store1 S1, store2 S2
        WHERE S1.item_id = S2.item_id
        WITH PREFERENCE desc
          SUMMARY.Estimate.Count(S1.item_id),
          SUMMARY.Estimate.Count(S2.item_id)
        FADE FACTOR 0.8
        WINDOW 3600""",
        CATALOG,
    )
    assert isinstance(statement, Select)
    query = statement.query
    assert query.window == 3600 * 10**9
    assert query.preference is not None
    assert (query.preference.kind, query.preference.fade) == ("desc", 0.8)
    assert [term.column for term in query.preference.terms] == ["S1.item_id", "S2.item_id"]
    assert isinstance(query.plan, Project)
    assert isinstance(query.plan.input, Join)
    assert query.plan.input.equal == (("S1.item_id", "S2.item_id"),)
    assert all(isinstance(each, Stream) and each.window == query.window for each in query.plan.input.inputs)
    assert [field.name for field in query.plan.fields] == ["item_id", "ts", "ts_1"]


def test_an_unknown_column_is_told_with_its_place_and_the_nearest() -> None:
    with pytest.raises(SqlError, match=r"line 2, column 3: .*did you mean item_id") as error:
        read_statement("SELECT price,\n  item_idd FROM store1", CATALOG)
    assert (error.value.line, error.value.column) == (2, 3)


def test_sqlglot_is_used_through_its_public_functions_alone() -> None:
    """Its compiled build has no others: nothing of it is subclassed, patched or looked into."""
    used = set()
    for path in (Path(__file__).parents[2] / "nile" / "sql").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id in ("sqlglot", "exp", "errors"):
                    used.add(f"{node.value.id}.{node.attr}")
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sqlglot"):
                assert {name.name for name in node.names} <= {"errors", "exp"}
    assert used <= {
        "sqlglot.tokenize",
        "sqlglot.parse_one",
        "sqlglot.Token",
        "exp.Condition",
        "errors.ParseError",
        "errors.TokenError",
    }


def test_a_number_that_breaks_off_is_named_with_its_place() -> None:
    with pytest.raises(SqlError, match=r"line 1, column 30: .*8E"):
        read_statement("SELECT seq FROM store1 [ROWS 8E]", CATALOG)
    with pytest.raises(SqlError, match=r"line 1, column 31: .*8E"):
        read_statement("SELECT seq FROM store1 WINDOW 8E", CATALOG)
