"""Every case of tests/sql/*.test: the statement gives the rows or the error that the file says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sql_catalog import connect_catalog
from sql_logic import Case, cells, read_cases

import nile

FILES = sorted((Path(__file__).parents[1] / "sql").glob("*.test"))


def check(db: nile.Database, case: Case) -> None:
    if case.kind == "error":
        with pytest.raises(nile.NileError) as caught:
            db.sql(case.statement).to_arrow()
        assert re.search(case.argument, str(caught.value)), f"{case.id}: {caught.value}"
        return
    result = db.sql(case.statement, **dict(case.options))
    if case.kind == "ok":
        assert re.search(case.argument, result.message or ""), f"{case.id}: {result.message}"
        return
    table = result.to_arrow()
    rows = [cells(tuple(row.values())) for row in table.to_pylist()]
    if case.ordered:
        assert rows == list(case.expected), case.id
    else:
        assert sorted(rows) == sorted(case.expected), case.id


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_statements_of_a_file_give_what_it_says(path: Path) -> None:
    db = connect_catalog()
    failed = []
    for case in read_cases(path):
        try:
            check(db, case)
        except (AssertionError, Exception) as error:  # all failures of a file are told together
            failed.append(f"{case.id}: {type(error).__name__}: {error}\n  {case.statement}")
    assert not failed, "\n".join(failed)


def test_the_files_have_four_hundred_cases_and_half_of_them_are_errors() -> None:
    cases = [case for path in FILES for case in read_cases(path)]
    errors = sum(case.kind == "error" for case in cases)
    assert len(cases) >= 400
    assert errors >= 200
    assert len(cases) - errors >= 180
