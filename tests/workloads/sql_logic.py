"""SQL logic tests in text files: a statement, and the rows or the error that it must give.

Cases are separated by blank lines; lines that begin with '#' outside a case are comments.

    error REGEX             the statement must fail, with REGEX somewhere in the message
    ok [REGEX]              a statement that returns no rows; REGEX is in what it says
    rows [option=value ..]  the statement must return the rows after '----', in any order;
                            'ordered' asks for this order; other options go to Database.sql (emit=changes)
    STATEMENT, one line or more
    ----
    value | value           a row per line; NULL, true, false, numbers to 12 digits, times in ISO form

All cases of a file see one database, in order: what one creates the next may use.
"""

from __future__ import annotations

import datetime
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Case", "cells", "read_cases"]


@dataclass(frozen=True)
class Case:
    """One case: its kind (error, ok, rows), where it stands, its statement and what is expected."""

    file: str
    line: int
    kind: str
    argument: str
    statement: str
    expected: tuple[str, ...] = ()
    ordered: bool = False
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def id(self) -> str:
        return f"{self.file}:{self.line}"


def read_cases(path: Path) -> list[Case]:
    """The cases of a file, in order.  Raises ValueError for one that is not whole."""
    cases = []
    block: list[str] = []
    start = 0
    for number, line in enumerate([*path.read_text(encoding="utf-8").split("\n"), ""], 1):
        if not block and line.startswith("#"):
            continue
        if line.strip():
            if not block:
                start = number
            block.append(line)
        elif block:
            cases.append(_case(path.name, start, block))
            block = []
    return cases


def _case(file: str, line: int, block: list[str]) -> Case:
    kind, _, argument = block[0].partition(" ")
    body = block[1:]
    if kind not in ("error", "ok", "rows") or not body:
        raise ValueError(f"{file}:{line}: needed error, ok or rows, and a statement; got {block[0]!r}")
    if kind != "rows":
        return Case(file, line, kind, argument.strip(), "\n".join(body))
    cut = body.index("----")
    words = argument.split()
    options = tuple(
        (name, int(value) if value.isdigit() else value)
        for name, _, value in (word.partition("=") for word in words)
        if value
    )
    return Case(file, line, kind, "", "\n".join(body[:cut]), tuple(body[cut + 1 :]), "ordered" in words, options)


def cells(row: tuple[Any, ...]) -> str:
    """A row as the files write it."""
    return " | ".join(_cell(value) for value in row)


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if math.isfinite(value) and value == int(value) and abs(value) < 1e15:
            return f"{int(value)}.0"
        return f"{value:.12g}"
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    return re.sub(r"[|\n]", "?", str(value))
