"""Notebooks run cell by cell as Jupyter would; as a program, it writes what they show into them.

uv run python tests/harness/notebooks.py
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import warnings
from pathlib import Path
from typing import Any

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def outputs_of(notebook: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """What each code cell shows: what it prints, then its last expression, as HTML where it has that."""
    names: dict[str, Any] = {"__name__": "__main__"}
    return [_run("".join(cell["source"]), names) for cell in code_cells(notebook)]


def _run(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    shown: list[dict[str, Any]] = []
    if printed.getvalue():
        shown.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    if value is not None:
        html = getattr(value, "_repr_html_", None)
        data = {"text/plain": _lines(repr(value))} | ({} if html is None else {"text/html": _lines(html())})
        shown.append({"output_type": "execute_result", "data": data, "metadata": {}})
    return shown


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def shown_in(cell: dict[str, Any]) -> list[dict[str, Any]]:
    """The outputs that a cell keeps, without the number of the run."""
    return [{key: value for key, value in each.items() if key != "execution_count"} for each in cell["outputs"]]


def write(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for number, (cell, shown) in enumerate(zip(code_cells(notebook), outputs_of(notebook), strict=True), 1):
        cell["execution_count"] = number
        cell["outputs"] = [
            each | ({"execution_count": number} if each["output_type"] == "execute_result" else {}) for each in shown
        ]
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for each in NOTEBOOKS:
        write(each)
