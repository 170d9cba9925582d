"""Whether what somebody gave is a number to count with."""

from __future__ import annotations

import math
from typing import TypeGuard

__all__ = ["is_finite_number"]


def is_finite_number(value: object) -> TypeGuard[int | float]:
    """Whether `value` is an int or a float, no bool, that a float can hold: not NaN, infinite or 10**400."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
