"""The state behind variances and their roots: how far numbers lie from their mean, exact when they leave again."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nile.aggregates.catalogue import CATALOGUE
from nile.base.nearest import nearest
from nile.exact.state import arrow
from nile.exact.state import held as holding
from nile.exact.state.arrow import Array, pa
from nile.exact.state.rows import grown
from nile.exact.state.totals.digits import DIGITS, carried, needed, put_back, specials, widened
from nile.exact.state.totals.states import State, Touches, valid
from nile.exact.state.words import Encoder

__all__ = ["Spread"]

spreading: Any = arrow.Late("nile.exact.state.totals.spread_kernels")
summing: Any = arrow.Late("nile.exact.state.totals.sums_kernels")


class Spread(State):
    """Exact sum of a column of numbers, taken as doubles, and of their squares; serves variances and their roots.

    40 bytes per group and 24 for every 32 binary digits between the least and the greatest value seen (8 digits to
    begin with).
    """

    HELD: ClassVar = ("_counts", "_digits", "_squares", "_base", "_special")
    DERIVED: ClassVar = ("_encoder", "_now")

    def __init__(self) -> None:
        self._encoder = Encoder([pa.float64()], exact=True)
        self._counts = np.zeros(1, np.int64)
        self._digits = np.zeros((1, 0), np.int64)
        self._squares = np.zeros((1, 0), np.int64)
        self._base = 0
        self._special = np.zeros((1, 3), np.int64)
        self._now = np.zeros(1)

    def apply(self, touches: Touches, column: Any) -> tuple[Array, Array]:
        room, pairs = touches.room, touches.pairs
        doubles = nearest(column, pa.float64(), safe=False)
        bits = self._encoder.numbers(doubles)
        self._room(room)
        self._widen(bits)
        counts = np.zeros((2, pairs), np.int64)
        told = np.zeros((2, pairs))
        touches.work(
            spreading.apply_squares,
            touches.sign, touches.codes, bits, valid(column), *touches.runs, self._base, self._digits, self._squares,
            self._special, self._now, self._counts, told[0], told[1], counts[0], counts[1],
            scratch=5 * self._digits.shape[1] + 2,
        )  # fmt: skip
        return tuple(np.column_stack([s.view(np.int64), n]) for s, n in zip(told, counts, strict=True))  # type: ignore[return-value]

    def _room(self, groups: int) -> None:
        self._counts, self._special = grown(self._counts, groups), grown(self._special, groups)
        self._digits, self._squares = grown(self._digits, groups), grown(self._squares, groups)
        self._now = grown(self._now, groups)

    def _widen(self, bits: Array) -> None:
        """Two digits of squares for each digit of sums."""
        before, width = self._base, self._digits.shape[1]
        self._digits, self._base = widened(self._digits, self._base, *summing.exponents(bits))
        if self._digits.shape[1] == width:
            return
        squares = np.zeros((self._squares.shape[0], 2 * self._digits.shape[1]), np.int64)
        begin = 2 * (before - self._base)
        if width:
            squares[:, begin : begin + 2 * width] = self._squares
        self._squares = squares

    def column(self, function: str, numbers: Array, kind: Any, share: float | None = None) -> Any:  # noqa: ARG002
        told, n = np.ascontiguousarray(numbers[:, 0]).view(np.float64), numbers[:, 1]
        aggregate = CATALOGUE[function]
        none = n < aggregate.least
        value = told / np.maximum(n + 1 - aggregate.least, 1)
        return pa.array(np.sqrt(value) if aggregate.is_root else value, mask=none if none.any() else None)

    def current(self, codes: Array) -> Array:
        self._room(int(codes.max(initial=-1)) + 1)
        return np.column_stack([self._now[codes].view(np.int64), self._counts[codes]])

    def capture(self, codes: Array) -> holding.State:
        """Their counts, exact sums and sums of squares.

        digits and special: as of `Summed`; squares: uint32 [n, 2 d], from digit 2 * base on, of units
        2**(64 * base - 2150).  No more digits than both need.
        """
        self.current(codes)
        special = self._special[codes]
        digits, squares = carried(self._digits[codes]), carried(self._squares[codes])
        low, high = needed(digits)
        begin, end = needed(squares)
        if end > begin:
            low, high = min(low, begin // 2) if high > low else begin // 2, max(high, -(-end // 2))
        return {
            "counts": self._counts[codes],
            "special": special if special.any() else special[:0],
            "base": self._base + low if high > low else 0,
            "digits": np.ascontiguousarray(digits[:, low:high]),
            "squares": np.ascontiguousarray(squares[:, 2 * low : 2 * high]),
        }

    def restore(self, held: holding.Held, n: int) -> None:
        self._counts = grown(held.array("counts", "int64", (n,)).copy(), 1)
        self._special = specials(held, n)
        digits = held.array("digits", "uint32", (n, None))
        width = digits.shape[1]
        squares = held.array("squares", "uint32", (n, 2 * width))
        self._base = held.integer("base", 0, DIGITS - width)
        held.end()
        self._digits = put_back(digits)
        self._squares = np.zeros((self._digits.shape[0], 2 * self._digits.shape[1]), np.int64)
        self._squares[:n, : 2 * width] = squares
        self._now = np.zeros(max(n, 1))
        spreading.read_distances(self._digits, self._squares, self._counts, self._base, self._special, self._now)

    @property
    def memory(self) -> int:
        arrays = (self._counts, self._digits, self._squares, self._special, self._now)
        return int(sum(each.nbytes for each in arrays))
