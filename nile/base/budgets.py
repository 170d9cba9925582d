"""Budgets as people write them."""

from __future__ import annotations

import re
import warnings
from typing import TypeAlias

from nile.base.durations import parse_duration
from nile.preferences.budget import Budget
from nile.summaries.errors import BudgetError, ConfigError, CostWarning

__all__ = ["GivenBudget", "read_budget"]

GivenBudget: TypeAlias = Budget | float | str
"""A Budget; a number: a fraction of the exact work; text: a percentage of it, or CPU time."""

_MEANT_AS_PERCENT = 5
_PERCENT = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*%\s*")


def read_budget(given: GivenBudget) -> Budget:
    """What a GivenBudget stands for: 0.1 and "10 %" a tenth of the exact work, "2 s" CPU seconds for all of it.

    Warns (CostWarning) of a number so large that it may be meant as a percentage.  Raises BudgetError for anything
    else.
    """
    if isinstance(given, Budget):
        return given
    if not isinstance(given, str):
        budget = Budget(given)
        if given >= _MEANT_AS_PERCENT:
            warnings.warn(
                f"budget: {given:g} is {given:g} times the work of the exact answer; for {given:g} % write "
                f"'{given:g} %' or {given / 100:g}",
                CostWarning,
                stacklevel=2,
            )
        return budget
    percent = _PERCENT.fullmatch(given)
    if percent is not None:
        return Budget(float(percent[1]) / 100.0)
    try:
        return Budget(seconds=parse_duration(given, where="budget") / 1e9)
    except ConfigError:
        raise BudgetError(
            "budget: needed a Budget, a fraction such as 0.1, a percentage such as '10 %' or CPU time such as '2 s'; "
            f"got {given!r}; write one of these"
        ) from None
