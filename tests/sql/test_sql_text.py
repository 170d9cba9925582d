"""A statement written out and read again is the same statement."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from sql_catalog import CATALOG
from sql_logic import read_cases
from workload_sql import random_statement

from nile.sql.reading_statements import read_statement
from nile.sql.statement_text import statement_text
from nile.sql.statements import Statement
from nile.summaries.errors import NileError

CORPUS = sorted((Path(__file__).parents[1] / "sql").glob("*.test"))


def read(text: str) -> Statement | None:
    """The statement, or None for what the catalog does not have."""
    try:
        return read_statement(text, CATALOG)
    except NileError:
        return None


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_every_statement_of_the_corpus_reads_back(path: Path) -> None:
    cases = [case for case in read_cases(path) if case.kind != "error"]
    statements = [statement for statement in (read(case.statement) for case in cases) if statement is not None]
    assert len(statements) >= len(cases) // 2
    for statement in statements:
        text = statement_text(statement)
        assert read_statement(text, CATALOG) == statement, text
        assert statement_text(read_statement(text, CATALOG)) == text


def test_random_statements_read_back() -> None:
    chance = random.Random(2011)
    found = 0
    for _ in range(400):
        source = random_statement(chance)
        statement = read(source)
        if statement is None:
            continue
        found += 1
        text = statement_text(statement)
        assert read_statement(text, CATALOG) == statement, f"{source}\n{text}"
    assert found > 330


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("select item_id from STORE1;", "SELECT store1.item_id AS item_id FROM store1"),
        (
            "SELECT a.price FROM store1 a, store2 b WINDOW = 1 HOUR WHERE a.item_id = b.item_id AND 2 > 1",
            "SELECT a.price AS price FROM store1 AS a, store2 AS b WHERE a.item_id = b.item_id WINDOW '1 h'",
        ),
        (
            "SELECT room r, count(*) FROM sensors [ROWS 9 WHERE at > 1] GROUP BY r HAVING count(*) > 1 ORDER BY 2",
            'SELECT sensors.room AS r, count(*) AS "count(*)" FROM sensors [ROWS 9 WHERE at > 1.0] '
            'GROUP BY sensors.room HAVING count(*) > 1 ORDER BY "count(*)"',
        ),
        (
            "SELECT x FROM (SELECT item_id x FROM store1 WHERE price > 1) t WHERE x LIKE '_!_%' ESCAPE '!'",
            "SELECT store1.item_id AS x FROM store1 WHERE store1.price > 1.0 "
            "AND store1.item_id LIKE '_\\_%' ESCAPE '\\'",
        ),
        (
            "CREATE STREAM s FROM 'it''s.csv' LATENESS 90 TIMESTAMP BY ts WHERE price>1 -- why",
            "CREATE STREAM s FROM 'it''s.csv' TIMESTAMP BY ts LATENESS '1 min 30 s' WHERE price > 1",
        ),
    ],
)
def test_the_text_is_plain_sql(source: str, text: str) -> None:
    assert statement_text(read_statement(source, CATALOG)) == text


PARTNER = "SELECT 1 FROM items i WHERE i.item_id = s.item_id"


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT item_id, count(*) AS n FROM store1 s GROUP BY item_id HAVING EXISTS ({PARTNER})",
        "SELECT item_id FROM store1 GROUP BY ALL HAVING sum(price) > 1 AND item_id NOT IN (SELECT item_id FROM items)",
        f"SELECT t.x FROM (SELECT item_id AS x, EXISTS ({PARTNER}) AS e FROM store1 s) t WHERE t.e",
        f"SELECT t.e FROM (SELECT EXISTS ({PARTNER}) AS e FROM store1 s) t WHERE NOT t.e",
        f"SELECT t.e, count(*) FROM (SELECT EXISTS ({PARTNER}) AS e FROM store1 s) t WHERE t.e GROUP BY t.e",
        "SELECT item_id, (SELECT count(*) FROM store2 i WHERE i.item_id = s.item_id) FROM store1 s GROUP BY item_id "
        "HAVING count(*) > (SELECT min(quantity) FROM store2)",
        "SELECT count(*) AS n FROM store1 HAVING EXISTS (SELECT 1 FROM items) AND count(*) > 1",
        f"SELECT item_id FROM store1 s GROUP BY item_id HAVING NOT EXISTS ({PARTNER}) OR count(*) > 1",
        f"SELECT item_id, EXISTS ({PARTNER}) AS e FROM store1 s GROUP BY item_id HAVING e AND EXISTS ({PARTNER})",
        f"SELECT item_id FROM store1 s GROUP BY ALL HAVING (EXISTS ({PARTNER})) IS TRUE",
        "SELECT floor IN (SELECT 1), floor > ALL (SELECT 0) FROM rooms",
    ],
)
def test_queries_whose_truth_is_asked_for_above_read_back(text: str) -> None:
    statement = read_statement(text, CATALOG)
    assert read_statement(statement_text(statement), CATALOG) == statement
