"""The examples in the docstrings of the engine and the executor run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import nile.execution

MODULES = [
    "nile.engine.database",
    *(f"nile.execution.{found.name}" for found in pkgutil.iter_modules(nile.execution.__path__)),
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_there_are_examples_to_run() -> None:
    finder = doctest.DocTestFinder()
    with_examples = [
        name for name in MODULES if any(test.examples for test in finder.find(importlib.import_module(name)))
    ]
    assert {
        "nile.engine.database",
        "nile.execution.statement.builder",
        "nile.answers.result",
        "nile.execution.live.subscription",
    } <= set(with_examples)
