"""Every kind of question, asked every way, under every preference and budget: what answers it, or why it is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from workload_lake import SECOND, write_lake

import nile
from nile.summaries.errors import NileError

_JOIN = "SELECT a.item, b.price FROM s1 AS a, s2 AS b WHERE a.item = b.item"
_THREE = "SELECT a.item, b.price, c.price AS p FROM s1 AS a, s2 AS b, s3 AS c WHERE a.item = b.item AND b.item = c.item"
_WINDOW = " WINDOW 60"
QUESTIONS = {
    "join of two": (_JOIN, _WINDOW, "a.item"),
    "join of three": (_THREE, _WINDOW, "a.item"),
    "self-join": (_JOIN.replace("s2", "s1"), _WINDOW, "a.item"),
    "graph of windows": (_THREE, " WINDOW (a, b) = 60 AND (b, c) = 60", "a.item"),
    "path (DWINDOW)": (_THREE, " DWINDOW (a, b) = 60 AND (b, c) = 60", "a.item"),
    "unequal windows": (_THREE, " WINDOW (a, b) = 60 AND (b, c) = 30 AND (a, c) = 90", "a.item"),
    "condition on pairs": (f"{_JOIN} AND a.price < b.price", _WINDOW, "a.item"),
    "selection": ("SELECT item, price FROM s1 WHERE item = 3", "", "item"),
    "count": ("SELECT count(*) AS n FROM s1 WHERE item = 3", "", "item"),
    "sum": ("SELECT sum(price) AS n FROM s1 WHERE item = 3", "", "item"),
    "average": ("SELECT avg(price) AS n FROM s1 WHERE item = 3", "", "item"),
    "median": ("SELECT median(price) AS n FROM s1 WHERE item = 3", "", "item"),
    "quantile": ("SELECT quantile_cont(price, 0.9) AS n FROM s1 WHERE item = 3", "", "item"),
    "distinct": ("SELECT count(DISTINCT price) AS n FROM s1 WHERE item = 3", "", "item"),
    "group by": ("SELECT item, count(*) AS n FROM s1 GROUP BY item", "", "item"),
    "join with a relation": (
        "SELECT a.item, b.price, kind FROM s1 AS a, s2 AS b, kinds WHERE a.item = b.item AND a.item = made_by",
        _WINDOW, "a.item",
    ),
    "selection by a relation": (
        "SELECT item, price, kind FROM s1 JOIN kinds ON item = made_by WHERE kind = 'tea'", "", "item"
    ),
    "sum by a relation": (
        "SELECT kind, sum(price) AS n FROM s1 JOIN kinds ON item = made_by GROUP BY kind", "", "item"
    ),
    "join and aggregate": (_JOIN.replace("a.item, b.price", "count(*) AS n, sum(b.price) AS p"), _WINDOW, "a.item"),
}  # fmt: skip
"""Name: the statement, its window, and what a preference looks at."""
BUDGETS = {
    "fraction": " BUDGET 0.5",
    "seconds": " BUDGET 20 SECONDS",
    "deadline": " BY DEADLINE '20 s'",
    "outputs": " BUDGET 20 OUTPUTS",
    "error": " ERROR 0.2",
}
PREFERENCES = ("none", "desc", "asc", "weighted")
WAYS = ("one-shot", "standing", "progress", "Spark scan")
ROWS = {
    name
    for name, (statement, _, _) in QUESTIONS.items()
    if "price" in statement.split(" FROM ")[0] and "(" not in statement
}
"""Questions whose answer is some of the rows of the exact one."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One question, asked one way."""

    question: str
    way: str
    preference: str
    budget: str

    @property
    def text(self) -> str:
        """The statement; histories have no window."""
        select, window, on = QUESTIONS[self.question]
        prefers = "" if self.preference == "none" else f" WITH PREFERENCE {self.preference} {on}"
        kept = "" if self.way == "progress" and "(" not in window else window
        return select + prefers + kept + BUDGETS.get(self.budget, "")

    @property
    def exact(self) -> str:
        """The same without a preference and a budget."""
        select, window, _ = QUESTIONS[self.question]
        return select + ("" if self.way == "progress" and "(" not in window else window)


def cells(way: str) -> Iterator[Cell]:
    """Those of a way; progress also without a budget, as it is meant."""
    for question in QUESTIONS:
        for preference in PREFERENCES:
            for budget in (*BUDGETS, *(["none"] if way == "progress" else [])):
                yield Cell(question, way, preference, budget)


def tables(n: int = 300, items: int = 12) -> dict[str, pa.Table]:
    """Three streams of n rows, one a second; of many items 3 comes in the middle alone."""
    made = {}
    for number in (1, 2, 3):
        draw = np.random.default_rng(number)
        item = draw.integers(0, items, n)
        if items > 100:
            item = np.where(item == 3, 4, item)
            item[n // 2 : n // 2 + n // 20 : 2] = 3
        made[f"s{number}"] = pa.table({"ts": np.arange(n) * 1.0, "item": item, "price": draw.integers(1, 90, n) / 8.0})
    return made


KINDS = pa.table({"made_by": np.arange(0, 600), "kind": ["tea", "cup", "pot"] * 200})
"""A stored relation."""


def static(n: int = 300, items: int = 12) -> nile.Database:
    """The streams registered."""
    db = nile.connect()
    for name, table in tables(n, items).items():
        db.register(name, table, time="ts")
    db.register("kinds", KINDS)
    return db


def live(*, pushed: bool, n: int = 300, items: int = 12) -> nile.Database:
    """The streams made live."""
    db = nile.connect()
    for name, table in tables(n, items).items():
        db.stream(name, table.schema, time="ts")
        if pushed:
            db.push(name, table)
    db.register("kinds", KINDS)
    return db


def lake(root: Path) -> nile.Database:
    """The streams in a lake that is clustered by item."""
    db = nile.connect()
    for name, table in tables().items():
        ts = (table["ts"].to_numpy() * SECOND).astype(np.int64)
        columns = {column: table[column].combine_chunks() for column in ("item", "price")}
        write_lake(root, name, ts, columns, range_s=20, group_rows=10)
        db.register(name, root / name)
    db.register("kinds", KINDS)
    return db


def _one_shot(db: nile.Database, cell: Cell, **options: Any) -> Any:
    result = db.sql(cell.text, **options)
    return result.to_arrow(), result.answer


def _standing(db: nile.Database, cell: Cell, **options: Any) -> Any:
    found = []
    query = db.subscribe(cell.text, found.append, **options)
    whole = tables()
    for begin in range(0, 300, 100):
        for name in db.streams:
            db.push(name, whole[name].slice(begin, 100))
    db.advance(10_000.0)
    query.close()
    return pa.Table.from_batches(found, query.schema), query


def _progress(db: nile.Database, cell: Cell, **options: Any) -> Any:
    growing = db.sql(cell.text, **options).progress()
    return list(growing)[-1].to_arrow(), growing


def _spark(db: nile.Database, cell: Cell, **options: Any) -> Any:
    result = db.sql(cell.text, engine="spark", **options)
    # The stand-in for Spark has no jobs that a clock could stop: what is checked there is that the cell is taken.
    return None if cell.budget in ("seconds", "deadline") else result.to_arrow(), result


ASK = {"one-shot": _one_shot, "standing": _standing, "progress": _progress, "Spark scan": _spark}


def asked(db: nile.Database, cell: Cell, **options: Any) -> tuple[Any, str | None]:
    """((the rows, the answer), None), or (None, the reason why not).  Anything but an error of Nile's is raised."""
    try:
        return ASK[cell.way](db, cell, **options), None
    except NileError as error:
        return None, re.sub(r"^line \d+, column \d+: ", "", str(error))


BEGIN, END = "<!-- the matrix: tests/sql/test_matrix.py -->", "<!-- end of the matrix -->"
_TOLD = {"none": "no preference"}


def page_table(outcomes: dict[Cell, str | None]) -> str:
    """What docs/matrix.md says of these cells: a table of what is answered, and why the rest is not."""
    ways = [way for way in WAYS if any(cell.way == way for cell in outcomes)]
    lines = ["| question | " + " | ".join(ways) + " |", "|---|" + "---|" * len(ways)]
    for question in QUESTIONS:
        row = [
            _answered({cell: why for cell, why in outcomes.items() if (cell.question, cell.way) == (question, way)})
            for way in ways
        ]
        lines.append(f"| {question} | " + " | ".join(row) + " |")
    for way in ways:
        lines += ["", f"Not answered, {way}:", ""]
        reasons: dict[str, list[Cell]] = {}
        for cell, why in outcomes.items():
            if cell.way == way and why is not None:
                reasons.setdefault(_general(why), []).append(cell)
        lines += [f"* {why} ({_what(refused)})" for why, refused in reasons.items()]
    return "\n".join(lines)


def _answered(mine: dict[Cell, str | None]) -> str:
    """Of each preference the budgets that are answered; preferences that are alike stand together."""
    by: dict[str, list[str]] = {}
    for preference in PREFERENCES:
        budgets = [cell.budget for cell, why in mine.items() if cell.preference == preference and why is None]
        by.setdefault(", ".join("no budget" if each == "none" else each for each in budgets), []).append(preference)
    by.pop("", None)
    return "; ".join(f"{', '.join(_TOLD.get(p, p) for p in kinds)}: {budgets}" for budgets, kinds in by.items()) or "no"


def _general(why: str) -> str:
    """A reason without what it quotes of one question."""
    return re.sub(r"; (leave|say|write|bound|read|ask|name|Budget).*$", "", why, flags=re.DOTALL)


def _what(refused: list[Cell]) -> str:
    """Which cells, as few words as will do."""
    questions = list(dict.fromkeys(cell.question for cell in refused))
    kinds = [kind for kind in PREFERENCES if any(cell.preference == kind for cell in refused)]
    budgets = [budget for budget in (*BUDGETS, "none") if any(cell.budget == budget for cell in refused)]
    told = [", ".join(questions) if len(questions) < 8 else f"{len(questions)} questions"]
    told += [", ".join(_TOLD.get(kind, kind) for kind in kinds)] if len(kinds) < len(PREFERENCES) else []
    told += (
        [", ".join("no budget" if each == "none" else each for each in budgets)] if len(budgets) < len(BUDGETS) else []
    )
    return "; ".join(told)


SUMMARIES = {"a column": "item", "columns": "item, price", "an expression": "item + 1"}
"""What summaries of these streams are of, and what a question says where it can read one."""
SERVES, SERVED = "<!-- what serves: tests/sql/test_matrix.py -->", "<!-- end of what serves -->"


def over(question: str, kind: str, way: str) -> str:
    """A question that asks for all that a summary of that kind is of, under the preference and budget of its way."""
    ranked = question in ROWS or (question == "join and aggregate" and way != "progress")
    preference = "desc" if ranked else "none"
    text = Cell(question, way, preference, "none" if way == "progress" else "fraction").text
    joined = re.findall(r"(\w)\.item = (\w)\.item", text)
    if kind == "columns":
        for one, other in joined:
            whole = f"{one}.item = {other}.item"
            text = text.replace(whole, f"{whole} AND {one}.price = {other}.price", 1)
        text = text.replace("item = 3", "item = 3 AND price = 2").replace(" desc a.item", " desc")
    elif kind == "an expression":
        text = re.sub(r"(\w)\.item = (\w)\.item", r"\1.item + 1 = \2.item + 1", text)
        text = text.replace("WHERE item = 3", "WHERE item + 1 = 4").replace(" desc a.item", " desc")
    return text.replace(" desc item", f" desc ({SUMMARIES[kind]})") if way == "one-shot" else text


def served(db: nile.Database, question: str, kind: str, way: str) -> bool:
    """Whether the plan of a question tells that it reads a summary."""
    text = over(question, kind, way)
    try:
        if way == "progress":
            growing = db.sql(text).progress()
            list(growing)
            told = growing.explain()
        elif way == "Spark scan":
            told = db.sql(text, engine="spark").explain()
        else:
            told = db.sql(text, **({"guide": "countsketch"} if "FROM s1 AS a" in text else {})).explain()
    except NileError:
        return False
    return re.search(r"summar(y|ies) m\d", told) is not None


def serving_table(databases: dict[str, nile.Database]) -> str:
    """Which summaries serve which questions: by way a database whose streams s1, s2, s3 have none yet."""
    lines = ["| question | " + " | ".join(databases) + " |", "|---|" + "---|" * len(databases)]
    found: dict[tuple[str, str], list[str]] = {}
    for kind, on in SUMMARIES.items():
        for way, db in databases.items():
            for number in (1, 2, 3):
                db.sql(f"CREATE SUMMARY m{number} ON s{number} ({on}) WITH GRANULARITY '10 min' AND COLLAPSE (4, 3)")
            if way == "Spark scan":
                for number in (1, 2, 3):
                    db.summary(f"m{number}")
            for question in QUESTIONS:
                if served(db, question, kind, way):
                    found.setdefault((question, way), []).append(kind)
            for number in (1, 2, 3):
                db.sql(f"DROP SUMMARY m{number}")
    for question in QUESTIONS:
        cells = (", ".join(found.get((question, way), ())) or "none" for way in databases)
        lines.append(f"| {question} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
