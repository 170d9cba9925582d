"""Exact sums, of whole numbers and of doubles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from nile.base.plain import decoded_type
from nile.exact.state import arrow
from nile.exact.state import held as holding
from nile.exact.state.arrow import Array, in_place, pa
from nile.exact.state.rows import grown
from nile.exact.state.totals.digits import DIGITS, carried, needed, put_back, specials, widened
from nile.exact.state.totals.states import DOUBLE, MADE, WHOLE, Linear, Touches
from nile.exact.state.words import Encoder
from nile.summaries.errors import SumOverflow

__all__ = ["Summed"]

summing: Any = arrow.Late("nile.exact.state.totals.sums_kernels")


class Summed(Linear):
    """Exact sum and count of a column of numbers; serves sum and avg.

    Whole numbers: 24 bytes per group.  Doubles: 40 bytes per group and 8 for every 32 binary digits between the least
    and the greatest value seen (8 digits to begin with).
    """

    HELD: ClassVar = ("_counts", "_digits", "_base", "_special")
    DERIVED: ClassVar = ("width", "_double", "_unsigned", "_encoder", "_now")

    def __init__(self, kind: Any) -> None:
        kind = decoded_type(kind)
        self._double = bool(pa.types.is_floating(kind))
        self.width = 2 if self._double else 3
        self._unsigned = bool(pa.types.is_uint64(kind))
        self._encoder = Encoder([kind], exact=True)
        self._counts = np.zeros(1, np.int64)
        self._digits = np.zeros((1, 0 if self._double else 2), np.int64)
        self._base = 0
        self._special = np.zeros((1, 3), np.int64)
        self._now = np.zeros(1, np.float64)

    def read(self, function: str) -> int:
        return MADE if function == "avg" else DOUBLE if self._double else WHOLE

    def words(self, column: Any) -> Array:
        return self._encoder.numbers(column)

    def places(self, old: Array, new: Array) -> tuple[Array, ...]:
        if not self._double:
            return *old, *new
        return old[0].view(np.float64), new[0].view(np.float64), old[1], new[1]

    def span(self, words: Array) -> Any:
        return summing.exponents(words) if self._double else None

    def make_room(self, groups: int, spans: Sequence[Any] = ()) -> None:
        if self._counts.shape[0] < groups:
            self._counts, self._digits = grown(self._counts, groups), grown(self._digits, groups)
        if self._double and (self._now.shape[0] < groups or self._special.shape[0] < groups):
            self._special, self._now = grown(self._special, groups), grown(self._now, groups)
        if self._double and spans:
            self._have_digits(min(least for least, _ in spans), max(most for _, most in spans))

    def add(self, touches: Touches, words: Array, counted: Array) -> None:
        if not self._double:
            super().add(touches, words, counted)
            return
        self.make_room(touches.room)
        done, n = 0, words.shape[0]
        while (done := summing.add_doubles(
            done, touches.sign, touches.codes, words, counted, self._base, self._digits, self._special, self._counts
        )) < n:  # fmt: skip
            self._widen(words[done:])

    def caught_up(self, codes: Array) -> None:
        if self._double:
            scratch = np.empty(self._digits.shape[1], np.int64)
            summing.read_doubles(codes, self._digits, self._base, self._special, self._now, scratch)
            return
        digits = self._digits[codes]
        digits[:, 0] += digits[:, 1] >> 32
        digits[:, 1] &= 0xFFFFFFFF
        self._digits[codes] = digits

    def note(self, touches: Touches, words: Array, counted: Array, places: tuple[Array, ...]) -> None:
        self.make_room(touches.room)
        if not self._double:
            touches.work(
                summing.apply_integers,
                touches.sign, touches.codes, words, counted, self._unsigned, *touches.runs, self._digits, self._counts,
                *places,
            )  # fmt: skip
            return
        if touches.shared is not None:
            self._widen(words)
        while touches.work(
            summing.apply_doubles,
            touches.sign, touches.codes, words, counted, *touches.runs, self._base, self._digits, self._special,
            self._now, self._counts, *places, scratch=self._digits.shape[1],
        ) is False:  # fmt: skip
            self._widen(words)

    def _widen(self, words: Array) -> None:
        """Have digits for these."""
        self._have_digits(*summing.exponents(words))

    def _have_digits(self, least: int, most: int) -> None:
        """For doubles of these exponents; with more digits carries run: a sum below 0 has its sign in the last."""
        had = self._digits
        self._digits, self._base = widened(had, self._base, least, most)
        if self._digits is not had:
            summing.carry_all(self._digits)

    def column(self, function: str, numbers: Array, kind: Any, share: float | None = None) -> Any:  # noqa: ARG002
        n = numbers[:, -1]
        none = n == 0
        if self._double:
            total = np.ascontiguousarray(numbers[:, 0]).view(np.float64)
            if function == "avg":
                total = total / np.maximum(n, 1)
            return pa.array(total, mask=none) if none.any() else in_place(total, pa.float64())
        high, low = numbers[:, 0], numbers[:, 1]
        fits = (high >= -(1 << 31)) & (high < (1 << 31))
        if function == "avg":
            with np.errstate(over="ignore"):
                whole = (high << 32) + low
            total = np.where(fits, whole.astype(np.float64), high * 4294967296.0 + low) / np.maximum(n, 1)
            return pa.array(total, mask=none if none.any() else None)
        if not fits.all():
            at = int(np.flatnonzero(~fits)[0])
            raise SumOverflow(
                f"sum: needed a total within 64 bits; got {int(high[at]) * (1 << 32) + int(low[at])}; "
                "cast the column to double"
            )
        total = (high << 32) + low
        return pa.array(total, mask=none) if none.any() else in_place(total, pa.int64())

    def current(self, codes: Array) -> Array:
        top = int(codes.max(initial=-1)) + 1
        self._counts, self._digits = grown(self._counts, top), grown(self._digits, top)
        if not self._double:
            return np.column_stack([self._digits[codes], self._counts[codes]])
        self._now = grown(self._now, top)
        return np.column_stack([self._now[codes].view(np.int64), self._counts[codes]])

    def capture(self, codes: Array) -> holding.State:
        """Their counts and exact sums.

        Whole numbers: sums int64 [n, 2], high * 2**32 + low.  Doubles: digits uint32 [n, d] in two's complement, from
        digit `base` on (2**(32 * base - 1075) its unit), no more of them than any sum needs; special int64 [n, 3], how
        many NaN, +inf and -inf each has, [0, 3] where none has any.
        """
        self.current(codes)
        counts, digits = self._counts[codes], self._digits[codes]
        if not self._double:
            return {"counts": counts, "sums": digits}
        self._special = grown(self._special, int(codes.max(initial=-1)) + 1)
        plain_digits = carried(digits)
        low, high = needed(plain_digits)
        special = self._special[codes]
        return {
            "counts": counts,
            "special": special if special.any() else special[:0],
            "base": self._base + low if high > low else 0,
            "digits": np.ascontiguousarray(plain_digits[:, low:high]),
        }

    def restore(self, held: holding.Held, n: int) -> None:
        self._counts = grown(held.array("counts", "int64", (n,)).copy(), 1)
        if not self._double:
            self._digits = grown(held.array("sums", "int64", (n, 2)).copy(), 1)
            held.end()
            return
        self._special = specials(held, n)
        digits = held.array("digits", "uint32", (n, None))
        self._base = held.integer("base", 0, DIGITS - digits.shape[1])
        held.end()
        self._digits = put_back(digits)
        self._now = np.zeros(max(n, 1), np.float64)
        self.caught_up(np.arange(n))

    @property
    def memory(self) -> int:
        return int(self._counts.nbytes + self._digits.nbytes + self._special.nbytes + self._now.nbytes)
