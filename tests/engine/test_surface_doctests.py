"""The examples in the docstrings of Nile run."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "nile").rglob("*.py"))
    if path.name != "__init__.py" and "    >>> " in path.read_text("utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NILE_COSTS")  # as whoever reads it runs it
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_there_are_examples_to_run() -> None:
    assert {
        "nile.engine.database",
        "nile.execution.statement.builder",
        "nile.answers.result",
        "nile.execution.live.exact_subscription",
    } <= set(MODULES)
