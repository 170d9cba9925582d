"""Which of many alike cases the normal run takes: all of them run with `-m slow`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["thinned"]


def thinned(cases: Iterable[Any], every: int) -> list[Any]:
    """The cases of a parametrised test: each `every`-th, from the first on, as it is, the others marked slow."""
    marked = []
    for place, case in enumerate(cases):
        values = case if isinstance(case, tuple) else (case,)
        marked.append(case if place % every == 0 else pytest.param(*values, marks=pytest.mark.slow))
    return marked
