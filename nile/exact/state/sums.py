"""The state behind aggregates: counts and exact sums, one of each for a column however many ask.

Every state reads, for each pair (instant, group) that changed, its value before and after, as columns of numbers;
`State.column` turns them into an aggregate's Arrow column.  Ordered multisets: `nile.exact.state.ordered`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from nile.exact.state import arrow
from nile.exact.state import held as holding
from nile.exact.state.arrow import Array, in_place, pa
from nile.exact.state.rows import grown
from nile.exact.state.types import plain
from nile.exact.state.words import Encoder
from nile.summaries.errors import SumOverflow

__all__ = [
    "DIGITS",
    "DOUBLE",
    "MADE",
    "PLAIN",
    "ROWS",
    "WHOLE",
    "Counted",
    "Linear",
    "State",
    "Summed",
    "Touches",
    "carried",
    "needed",
    "put_back",
    "specials",
    "valid",
    "widened",
]

counting: Any = arrow.Late("nile.exact.state.group_kernels")
summing: Any = arrow.Late("nile.exact.state.sums_kernels")


DIGITS = 80  # of 32 bits: more than any sum of doubles has

# how an aggregate is read from the numbers of its state
MADE = -1  # by `State.column`
PLAIN = 0  # it is the first
DOUBLE = 1  # likewise, unless the last is 0
WHOLE = 2  # the first * 2**32 + the second, in 64 bits, unless the last is 0
ROWS = 3  # it has none: it is how many rows the group has


@dataclass(slots=True)
class Touches:
    """Tuples and the pairs (instant, group) they touch.

    sign int8 [n]; weight int64 [n], how many rows come, negative: go (more than one only where all that is asked is
    how many); codes int64 [n], groups; touch int64 [n]; first, last: int64 [pairs], tuples; room: groups are
    below this; shared: calls a kernel with what is given, a part of the groups and a mask, for all parts; None: there
    is one part.
    """

    sign: Array
    weight: Array
    codes: Array
    touch: Array
    first: Array
    last: Array
    room: int
    shared: Callable[..., None] | None = None

    def work(self, kernel: Callable[..., None], *given: Any) -> None:
        """Call a kernel for all groups."""
        if self.shared is None:
            kernel(*given, 0, 0)
        else:
            self.shared(kernel, *given)

    @property
    def pairs(self) -> int:
        return int(self.first.shape[0])


class State(ABC):
    """What one column keeps for all groups."""

    @abstractmethod
    def apply(self, touches: Touches, column: Any) -> tuple[Array, Array]:
        """(before, after) of each pair: numbers, whichever the state reads; equal numbers are equal answers."""

    @abstractmethod
    def column(self, function: str, numbers: Array, kind: Any, share: float | None = None) -> Any:
        """An aggregate's Arrow column of type `kind` from rows of what `apply` returned; share: of a quantile."""

    @abstractmethod
    def current(self, codes: Array) -> Array:
        """What `apply` would return for these groups now."""

    @abstractmethod
    def capture(self, codes: Array) -> holding.State:
        """What these groups hold, in this order."""

    @abstractmethod
    def restore(self, held: holding.Held, n: int) -> None:
        """Put what was captured into an empty state, as groups 0 to n - 1.  Raises EnvelopeError."""

    @property
    @abstractmethod
    def memory(self) -> int:
        """Bytes."""


_ALL = np.ones(4096, np.bool_)
_NONE = np.zeros(0, np.int64)


def everyone(n: int) -> Array:
    """True for each of n, which is only read: bool [n]."""
    return _ALL[:n] if n <= _ALL.shape[0] else np.ones(n, np.bool_)


def valid(column: Any) -> Array:
    """Which rows are not null, which is only read: bool [n]."""
    if not column.null_count:
        return everyone(len(column))
    found: Array = column.is_valid().to_numpy(zero_copy_only=False)
    return found


class Linear(State):
    """A state that words of its column feed as well as the column.  width: numbers that it says of a pair."""

    width: int

    @abstractmethod
    def read(self, function: str) -> int:
        """How an aggregate is read from its numbers: MADE or, for an int64 or double, another of these."""

    @abstractmethod
    def words(self, column: Any) -> Array:
        """A column as `note` takes it: int64 [n], as `Encoder` with exact floats makes it; nulls are any."""

    def places(self, old: Array, new: Array) -> tuple[Array, ...]:
        """int64 [width, pairs] each, as `note` writes to them."""
        return *old, *new

    @abstractmethod
    def note(self, touches: Touches, words: Array, counted: Array, places: tuple[Array, ...]) -> None:
        """Take tuples in, and say in places what each pair had before and after.

        words: int64 [n]; counted: which are not null, bool [n].
        """

    def apply(self, touches: Touches, column: Any) -> tuple[Array, Array]:
        numbers = np.empty((2, self.width, touches.pairs), np.int64)
        counted = everyone(touches.sign.shape[0]) if column is None else valid(column)
        self.note(touches, self.words(column), counted, self.places(*numbers))
        return np.ascontiguousarray(numbers[0].T), np.ascontiguousarray(numbers[1].T)


class Counted(Linear):
    """How many rows are not null; column None: all.  now: int64 [groups]."""

    HELD: ClassVar = ("now",)
    DERIVED: ClassVar = ()
    width = 1

    def __init__(self) -> None:
        self.now = np.zeros(1, np.int64)

    def read(self, function: str) -> int:  # noqa: ARG002
        return PLAIN

    def words(self, column: Any) -> Array:  # noqa: ARG002
        return _NONE

    def note(self, touches: Touches, words: Array, counted: Array, places: tuple[Array, ...]) -> None:  # noqa: ARG002
        if self.now.shape[0] < touches.room:
            self.now = grown(self.now, touches.room)
        touches.work(
            counting.apply_counts,
            touches.weight, touches.codes, counted, touches.touch, touches.first, touches.last, self.now, *places,
        )  # fmt: skip

    def column(self, function: str, numbers: Array, kind: Any, share: float | None = None) -> Any:  # noqa: ARG002
        return in_place(np.ascontiguousarray(numbers[:, 0]), pa.int64())

    def current(self, codes: Array) -> Array:
        self.now = grown(self.now, int(codes.max(initial=-1)) + 1)
        return self.now[codes][:, None]

    def capture(self, codes: Array) -> holding.State:
        """Their counts."""
        return {"counts": self.current(codes)[:, 0]}

    def restore(self, held: holding.Held, n: int) -> None:
        counts = held.array("counts", "int64", (n,))
        held.end()
        self.now = grown(counts.copy(), 1)

    @property
    def memory(self) -> int:
        return int(self.now.nbytes)


class Summed(Linear):
    """Exact sum and count of a column of numbers; serves sum and avg.

    Whole numbers: 24 bytes per group.  Doubles: 40 bytes per group and 8 for every 32 binary digits between the least
    and the greatest value seen (8 digits to begin with).
    """

    HELD: ClassVar = ("_counts", "_digits", "_base", "_special")
    DERIVED: ClassVar = ("width", "_double", "_unsigned", "_encoder", "_now")

    def __init__(self, kind: Any) -> None:
        kind = plain(kind)
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

    def note(self, touches: Touches, words: Array, counted: Array, places: tuple[Array, ...]) -> None:
        room = touches.room
        if self._counts.shape[0] < room:
            self._counts, self._digits = grown(self._counts, room), grown(self._digits, room)
        if not self._double:
            touches.work(
                summing.apply_integers,
                touches.sign, touches.codes, words, counted, self._unsigned, touches.touch, touches.first,
                touches.last, self._digits, self._counts, *places,
            )  # fmt: skip
            return
        if self._now.shape[0] < room or self._special.shape[0] < room:
            self._special, self._now = grown(self._special, room), grown(self._now, room)
        if touches.shared is None:
            while not summing.apply_doubles(
                touches.sign, touches.codes, words, counted, touches.touch, touches.first, touches.last, self._base,
                self._digits, self._special, self._now, self._counts, *places, 0, 0,
            ):  # fmt: skip
                self._digits, self._base = widened(self._digits, self._base, words)
            return
        self._digits, self._base = widened(self._digits, self._base, words)
        touches.shared(
            summing.apply_doubles,
            touches.sign, touches.codes, words, counted, touches.touch, touches.first, touches.last, self._base,
            self._digits, self._special, self._now, self._counts, *places,
        )  # fmt: skip

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
        summing.read_doubles(self._digits, self._base, self._special, self._now)

    @property
    def memory(self) -> int:
        return int(self._counts.nbytes + self._digits.nbytes + self._special.nbytes + self._now.nbytes)


def widened(digits: Array, base: int, bits: Array) -> tuple[Array, int]:
    """(digits, base) with room for every finite double of these bits, and one digit for carries."""
    least, most = summing.exponents(bits)
    low, high = (base, base) if least > most else (least >> 5, (most >> 5) + 4)
    width = digits.shape[1]
    if width and low >= base and high <= base + width:
        return digits, base
    if not width:
        base = max(0, min(low, high - 8))
        return np.zeros((digits.shape[0], max(8, high - base)), np.int64), base
    start, end = min(low, base), max(high, base + width)
    wider = np.zeros((digits.shape[0], end - start), np.int64)
    wider[:, base - start : base - start + width] = digits
    return wider, start


def carried(digits: Array) -> Array:
    """Digits of any size as digits of 32 bits in two's complement: uint32 [n, d + 1], or none of none."""
    out = np.zeros((digits.shape[0], digits.shape[1] + 1 if digits.shape[1] else 0), np.uint32)
    summing.carried(digits, out)
    return out


def put_back(digits: Array) -> Array:
    """What `carried` made, as digits to add to: int64 [n, d], one more at least, for carries."""
    n, width = digits.shape
    if not width:
        return np.zeros((max(n, 1), 0), np.int64)
    out = np.zeros((max(n, 1), max(8, width + 1)), np.int64)
    out[:n, :width] = digits
    out[:n, width] = -(digits[:, -1] >> 31).astype(np.int64)  # the sign, for all digits above
    return out


def specials(held: holding.Held, n: int) -> Array:
    """How many NaN, +inf and -inf each of n groups has: int64 [n, 3]; held for all or, where there are none, for none.

    Raises EnvelopeError.
    """
    special = held.array("special", "int64", (None, 3))
    if special.shape[0] not in (0, n):
        held.refuse(f"'special' of {n} groups or none", special)
    out = np.zeros((max(n, 1), 3), np.int64)
    out[: special.shape[0]] = special
    return out


def needed(digits: Array) -> tuple[int, int]:
    """The first digit that any row has, and one past the last: above it there is only sign.  uint32 [n, d]."""
    low, high = 0, digits.shape[1]
    while high and not (digits[:, high - 1] ^ _sign(digits, high - 1)).any():
        high -= 1
    while low < high and not digits[:, low].any():
        low += 1
    return low, high


def _sign(digits: Array, end: int) -> Array:
    """What the digits from `end` on are where those before say all: all bits 0 or all 1."""
    if not end:
        return np.zeros(digits.shape[0], np.uint32)
    return (np.uint32(0) - (digits[:, end - 1] >> np.uint32(31))).astype(np.uint32)
