"""Sums by group that do not depend on the order of what is added: exact inside, rounded once when asked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.history import kernels
else:
    kernels = lazy("nile.operators.history.kernels")

__all__ = ["DoubleSums", "WholeSums"]

Array = np.ndarray[Any, Any]
_SCALE = 1074  # a double is a whole number of 2 ** -1074
_SMALL = 1 << 46  # 65,536 such numbers stay inside int64


class DoubleSums:
    """Sums of doubles, equal to math.fsum over all that was added, in whatever order and pieces it came.

    544 bytes per group; about 4 ns a number.
    """

    def __init__(self) -> None:
        self._digits = np.zeros((0, kernels.DIGITS), np.int64)
        self._odd = np.zeros((0, 3), np.int64)

    def add(self, values: Array, group: Array, groups: int) -> None:
        """values: float64 [n]; group: int64 [n], each below `groups`, how many there are by now."""
        if groups > self._odd.shape[0]:
            more = groups - self._odd.shape[0]
            self._digits = np.concatenate([self._digits, np.zeros((more, kernels.DIGITS), np.int64)])
            self._odd = np.concatenate([self._odd, np.zeros((more, 3), np.int64)])
        bits = np.ascontiguousarray(values, np.float64).view(np.int64)
        kernels.sum_by_group(bits, np.ascontiguousarray(group, np.int64), self._digits, self._odd)

    def totals(self) -> Array:
        """float64 [groups]: each rounded once; NaN and infinities as IEEE adds them."""
        return np.array([self._total(g) for g in range(self._odd.shape[0])], np.float64)

    def _total(self, g: int) -> float:
        nan, high, low = (int(n) for n in self._odd[g])
        if nan or (high and low):
            return math.nan
        if high or low:
            return math.inf if high else -math.inf
        whole = 0
        for digit in self._digits[g, ::-1].tolist():
            whole = (whole << 32) + digit
        try:
            return whole / (1 << _SCALE)
        except OverflowError:
            return math.inf if whole > 0 else -math.inf


class WholeSums:
    """Sums of whole numbers, as Python's, which do not overflow."""

    def __init__(self) -> None:
        self._totals: list[int] = []

    def add(self, values: Array, group: Array, groups: int) -> None:
        """values: int64 [n], at most 65,536; group: int64 [n], each below `groups`, how many there are by now."""
        self._totals += [0] * (groups - len(self._totals))
        if not values.shape[0]:
            return
        if int(values.max()) < _SMALL and int(values.min()) > -_SMALL:
            part = np.zeros(groups, np.int64)
            np.add.at(part, group, values)
            present = np.flatnonzero(part)
            for g, total in zip(present.tolist(), part[present].tolist(), strict=True):
                self._totals[g] += total
            return
        for g, value in zip(group.tolist(), values.tolist(), strict=True):
            self._totals[g] += value

    def totals(self) -> list[int]:
        """One a group."""
        return list(self._totals)
