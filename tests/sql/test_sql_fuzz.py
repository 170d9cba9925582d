"""Whatever is read as a statement, it comes to a plan or to one of Nile's errors, soon."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from sql_catalog import CATALOG
from sql_logic import read_cases
from workload_sql import mutated, random_statement

from nile.sql.reading_statements import read_statement
from nile.sql.statement_text import statement_text
from nile.summaries.errors import NileError

CORPUS = [
    case.statement
    for path in sorted((Path(__file__).parents[1] / "sql").glob("*.test"))
    for case in read_cases(path)
    if case.kind == "rows"
]
EVERYDAY = (Path(__file__).parent / "everyday.txt").read_text(encoding="utf-8").splitlines()
CORPUS += [line for line in EVERYDAY if line and not line.startswith("#")]


def check_many(count: int, seed: int) -> tuple[int, int]:
    """(read, refused) of so many statements, eleven of twelve mutated."""
    chance = random.Random(seed)
    read = refused = 0
    valid: list[str] = []
    for at in range(count):
        if at % 24 == 12:
            text = chance.choice(CORPUS)
            valid = [*valid[-50:], text]
        elif at % 12 == 0 or not valid:
            text = random_statement(chance)
            valid = [*valid[-50:], text] if len(text) < 250 or not valid else valid
        else:
            text = mutated(chance, chance.choice(valid))
        begin = time.thread_time()
        try:
            statement = read_statement(text, CATALOG)
            read += 1
            if at % 97 == 0:
                assert read_statement(statement_text(statement), CATALOG) == statement, text
        except NileError:
            refused += 1
        except Exception as error:  # pragma: no cover
            raise AssertionError(f"{text!r} gave {type(error).__name__}: {error}") from error
        assert time.thread_time() - begin < 1, text
    return read, refused


@pytest.mark.parametrize("statements", [4_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_many_statements_give_plans_or_named_errors(statements: int) -> None:
    read_statement("SELECT room FROM rooms", CATALOG)  # sqlglot and Arrow load on first use
    read, refused = check_many(statements, 2011)
    assert read > 0.075 * statements
    assert refused > 0.5 * statements


@pytest.mark.long
def test_a_million_statements_give_plans_or_named_errors() -> None:
    read_statement("SELECT room FROM rooms", CATALOG)
    for seed in range(10):
        read, refused = check_many(100_000, seed)
        assert read > 7_500
        assert refused > 50_000
