"""The matrix of docs/matrix.md: every cell answers, truly, or is refused in a sentence; claims are put to a test."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import matrix
import pytest
from matrix import BEGIN, END, QUESTIONS, ROWS, Cell
from spark_stand_in import StandIn
from thinning import thinned

import nile
from nile.spark.scan import scan as scan_module

PAGE = Path(__file__).parents[2] / "docs" / "matrix.md"


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scans of Spark are done in this process."""
    stand_in = StandIn(random.Random(0))
    monkeypatch.setattr(scan_module, "spark_session", lambda: stand_in)


def rows_of(table: Any) -> Counter[tuple[Any, ...]]:
    columns = [name for name in table.column_names if not name.startswith("_")]
    return Counter(tuple(row.values()) for row in table.select(columns).to_pylist())


def is_true(cell: Cell, table: Any, exact: nile.Database) -> bool:
    """Whether an answer holds rows of the exact one alone, or numbers."""
    if cell.question in ROWS:
        return rows_of(table) <= rows_of(exact.sql(cell.exact).to_arrow())
    told = [value for row in table.to_pylist() for value in row.values()]
    # Numbers of what was found, where that may be nothing: half of the bytes of so small a lake buy no partition, and a
    # window that is empty in the end has no sum.
    found = cell.preference in ("desc", "asc") or cell.way in ("Spark scan", "standing")
    return table.num_rows > 0 and (found or all(value is not None for value in told))


@pytest.mark.filterwarnings("ignore")
def test_every_cell_answers_or_says_why_not_as_the_page_tells(tmp_path: Path) -> None:
    exact = matrix.static()
    made: dict[str, Any] = {
        "one-shot": exact,
        "progress": matrix.live(pushed=True),
        "Spark scan": matrix.lake(tmp_path / "lake"),
    }
    outcomes: dict[Cell, str | None] = {}
    for way in matrix.WAYS:
        for cell in matrix.cells(way):
            db = made.get(way) or matrix.live(pushed=False)
            answered, why = matrix.asked(db, cell)
            outcomes[cell] = why
            if why is None:
                table, answer = answered
                assert table is None or is_true(cell, table, exact), cell
                assert answer is not None
            else:
                assert "\n" not in why, cell
                assert len(why) < 400, cell
    page = PAGE.read_text(encoding="utf-8")
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    told = f"{page[:begin]}\n{matrix.page_table(outcomes)}\n{page[end:]}"
    if os.environ.get("NILE_WRITE_MATRIX"):
        PAGE.write_text(told, encoding="utf-8")
    assert page == told, "docs/matrix.md tells something else: run with NILE_WRITE_MATRIX=1 and read what changed"


@pytest.mark.filterwarnings("ignore")
def test_the_page_tells_which_summaries_serve_which_question(tmp_path: Path) -> None:
    table = matrix.serving_table(
        {
            "one-shot": matrix.static(),
            "progress": matrix.live(pushed=True),
            "Spark scan": matrix.lake(tmp_path / "lake"),
        }
    )
    page = PAGE.read_text(encoding="utf-8")
    begin, end = page.index(matrix.SERVES) + len(matrix.SERVES), page.index(matrix.SERVED)
    told = f"{page[:begin]}\n{table}\n{page[end:]}"
    if os.environ.get("NILE_WRITE_MATRIX"):
        PAGE.write_text(told, encoding="utf-8")
    assert page == told, "docs/matrix.md tells something else: run with NILE_WRITE_MATRIX=1 and read what changed"


SUMMARY = "CREATE SUMMARY m{0} ON s{0} (item) WITH GRANULARITY '10 min' AND COLLAPSE (4, 3) USING columns = 256"
READING = {
    question: {"guide": "countsketch"} if on.startswith("a.") else {} for question, (_, _, on) in QUESTIONS.items()
}
AGGREGATES = ("count", "sum", "average", "median", "quantile", "distinct", "group by", "sum by a relation")
SUMMARISED = [
    (question, preference)
    for question in READING
    for preference in (("none", "weighted") if question in AGGREGATES else ("desc", "asc", "weighted"))
    if question not in ("distinct", "group by", "sum by a relation", "selection by a relation")
]
"""The one-shot questions that docs/matrix.md says read the summaries."""


def visited(answer: Any) -> Any:
    """What a run did and where: its figures."""
    inner = getattr(answer, "answer", answer)
    return getattr(inner, "figures", None) or inner.join.figures


@pytest.mark.parametrize(("question", "preference"), thinned(SUMMARISED, 2))
def test_what_claims_to_read_a_summary_does(question: str, preference: str) -> None:
    db = matrix.static(6_000, 600)
    for number in (1, 2, 3):
        db.sql(SUMMARY.format(number))
    cell = Cell(question, "one-shot", preference, "fraction")
    text, options = cell.text.replace("BUDGET 0.5", "BUDGET 0.1"), READING[question]
    claimed = db.sql(text, **options).explain()
    assert "summar" in claimed.replace("a summary", "")
    table = db.sql(text, **options)
    rows, before = table.to_arrow(), visited(table.answer)
    for number in (1, 2, 3):
        db.summary(f"m{number}").store.side.counters[:] = 0
    table = db.sql(text, **options)
    blind, after = table.to_arrow(), visited(table.answer)
    assert after != before
    assert rows.num_rows == 1 or blind.num_rows < rows.num_rows or preference == "asc"
    for number in (1, 2, 3):
        db.sql(f"DROP SUMMARY m{number}")
    assert db.sql(text, **options).explain() != claimed


GROWING = [
    (question, preference)
    for question, preference in SUMMARISED
    if question in ("join of two", "self-join", "condition on pairs", "selection", *AGGREGATES)
]
"""The questions whose progress over a history docs/matrix.md says reads the summaries."""


@pytest.mark.parametrize(("question", "preference"), thinned(GROWING, 4))
def test_progress_reads_a_summary_finds_the_same_and_visits_less(question: str, preference: str) -> None:
    """Progress ends in the exact answer: what the summaries of a history rule out was nothing."""
    db = matrix.live(pushed=True, n=6_000, items=6_000)
    cell = Cell(question, "progress", preference, "none")

    def asked() -> tuple[Counter[tuple[Any, ...]], str, str]:
        growing = db.sql(cell.text).progress()
        rows = [rows_of(table.to_arrow()) for table in growing][-1]
        told = growing.explain()
        (actual,) = (line for line in told.splitlines() if "actual:" in line)
        return rows, actual, told

    plain, visits, _ = asked()
    for number in (1, 2, 3):
        db.sql(SUMMARY.format(number).replace("columns = 256", "columns = 8192"))
    rows, fewer, told = asked()
    assert "summary m" in told
    # Each tuple is its own partner, and what has the value somewhere is in the one index of so short a history.
    if question != "self-join" and (question != "selection" or preference == "weighted"):
        assert " rules out 0 " not in told
        assert fewer != visits
    if question not in AGGREGATES:
        assert rows == plain
    for number in (1, 2, 3):
        db.summary(f"m{number}").store.side.counters[:] = 0
    blind, none, _ = asked()
    assert none != fewer
    assert blind != rows or not sum(rows.values())
    for number in (1, 2, 3):
        db.sql(f"DROP SUMMARY m{number}")
    again, _, told = asked()
    assert "summary m" not in told
    assert question in AGGREGATES or again == plain
