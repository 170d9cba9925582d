"""Statements are read as the papers print them, and what is wrong with one is said with its place."""

import pytest
from sql_catalog import CATALOG

from nile.sql.plan import Join, Project, Stream
from nile.sql.reading_statements import read_statement
from nile.sql.statements import Select
from summaries.errors import SqlError


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
