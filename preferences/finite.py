"""Whether what somebody gave is a number to count with."""

from __future__ import annotations

import math
from typing import Any, TypeGuard

import numpy as np

__all__ = ["is_finite_number", "plain_number"]


def plain_number(value: Any) -> Any:
    """A number of numpy as Python's own; anything else as it is."""
    return value.item() if isinstance(value, np.integer | np.floating) else value


def is_finite_number(value: object) -> TypeGuard[int | float]:
    """Whether `value` is an int or a float, of Python or of numpy, no bool, that a float can hold: not NaN, infinite or
    10**400."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
