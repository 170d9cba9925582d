"""The table of docs/sql.md that says which type of Arrow can stand in which clause; `python -m` this writes it anew."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from nile.experiments.faults.surface.arrow_types import arrow_types
from nile.experiments.faults.surface.clauses import CLAUSES, outcome

__all__ = ["BEGIN", "END", "type_table", "with_table"]

BEGIN = "<!-- types: written by `uv run python -m nile.experiments.faults.surface.type_table docs/sql.md` -->\n"
END = "<!-- end of types -->\n"


def type_table() -> str:
    """Markdown: types that behave alike in one row, clauses that behave alike in one column."""
    cells = {case.name: tuple(outcome(case, clause) for clause in CLAUSES) for case in arrow_types()}
    columns: dict[tuple[str, ...], list[str]] = {}
    for at, clause in enumerate(CLAUSES):
        columns.setdefault(tuple(row[at] for row in cells.values()), []).append(clause)
    rows: dict[tuple[str, ...], list[str]] = {}
    for at, name in enumerate(cells):
        rows.setdefault(tuple(column[at] for column in columns), []).append(name)
    head = ["type", *(", ".join(names) for names in columns.values())]
    lines = [head, ["---"] * len(head)]
    lines += [[", ".join(names), *row] for row, names in rows.items()]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def with_table(page: str, table: str) -> str:
    """The page with the table between its two marks."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + table + END + rest.split(END)[1]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    path = Path(sys.argv[1])
    path.write_text(with_table(path.read_text(encoding="utf-8"), type_table()), encoding="utf-8")
