"""Which of many alike cases, and how many draws, the normal run takes: all of them run with `-m slow`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["rounds", "thinned"]


def thinned(cases: Iterable[Any], every: int) -> list[Any]:
    """The cases of a parametrised test: each `every`-th, from the first on, as it is, the others marked slow."""
    marked = []
    for place, case in enumerate(cases):
        values = case if isinstance(case, tuple) else (case,)
        marked.append(case if place % every == 0 else pytest.param(*values, marks=pytest.mark.slow))
    return marked


def rounds(whole: int) -> list[Any]:
    """How many seeds a test of averages draws: a third, which finds faults 1.7 times as large, and all, marked slow."""
    return [whole // 3, pytest.param(whole, marks=pytest.mark.slow)]
