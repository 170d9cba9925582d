"""What people write every day: a statement has the rows that DuckDB has, and its text reads back."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
from sql_catalog import CATALOG, TABLES, connect_catalog

import nile
from nile.sql.reading_statements import read_statement
from nile.sql.statement_text import statement_text

STATEMENTS = [
    line
    for line in (Path(__file__).parent / "everyday.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


def cell(value: Any) -> Any:
    """A value as both engines' answers are compared."""
    if isinstance(value, Decimal | float):
        return "nan" if math.isnan(value) else float(f"{value:.9g}")
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, datetime.date):
        return datetime.datetime(value.year, value.month, value.day)
    return tuple(map(cell, value)) if isinstance(value, list) else value


def rows(found: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(map(cell, row)) for row in found)


def test_statements_of_every_day_have_the_rows_that_duckdb_has() -> None:
    db, connection = connect_catalog(), duckdb.connect()
    connection.execute("SET threads = 1; SET TimeZone = 'UTC'")
    for name, table in TABLES.items():
        connection.register(name, table)
    differ = []
    for text in STATEMENTS:
        try:
            found, wanted = rows(db.sql(text).fetchall()), rows(connection.execute(text).fetchall())
        except (nile.NileError, duckdb.Error) as error:
            differ.append(f"{text}\n    {error}")
            continue
        if found != wanted:
            differ.append(f"{text}\n    {found - wanted} where DuckDB has {wanted - found}")
    assert differ == [], "\n".join(differ)


def test_the_text_of_a_statement_has_the_same_rows() -> None:
    """Standing queries are kept as text."""
    db = connect_catalog()
    differ = []
    for text in STATEMENTS:
        again = statement_text(read_statement(text, CATALOG))
        if rows(db.sql(again).fetchall()) != rows(db.sql(text).fetchall()):
            differ.append(f"{text}\n    {again}")
    assert differ == [], "\n".join(differ)
