"""The states behind aggregates, one of each for a column however many ask; the simplest of them: counts.

Every state reads, for each pair (instant, group) that changed, its value before and after, as columns of numbers;
`State.column` turns them into an aggregate's Arrow column.  Ordered multisets: `nile.exact.state.ordered`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from nile.exact.state import arrow
from nile.exact.state import held as holding
from nile.exact.state.arrow import Array, in_place, pa
from nile.exact.state.rows import grown

__all__ = ["DOUBLE", "MADE", "PLAIN", "ROWS", "WHOLE", "Counted", "Linear", "State", "Touches", "everyone", "valid"]

counting: Any = arrow.Late("nile.exact.state.group_kernels")

T = TypeVar("T")

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
    how many); codes int64 [n], groups; begins, touch: int64 [runs + 1], [runs], where each run of tuples of one pair
    begins, and the pair, or begins [0]: every tuple is a run; first, last: int64 [pairs], tuples; room: groups are
    below this; shared: calls a kernel with what is given, a part of the groups, a mask, and scratch, for all parts;
    None: there is one part, of groups with (group >> 3) & mask == part, for which there is room (`Linear.make_room`)
    unless mask is 0.
    """

    sign: Array
    weight: Array
    codes: Array
    begins: Array
    touch: Array
    first: Array
    last: Array
    room: int
    shared: Callable[..., None] | None = None
    part: int = 0
    mask: int = 0

    def work(self, kernel: Callable[..., T], *given: Any, scratch: int = 0) -> T | None:
        """Call a kernel for all groups, with scratch of its own beside `AT_ONCE`; what it returns where there is one
        part."""
        if self.shared is None:
            return kernel(*given, self.part, self.mask, np.empty(counting.AT_ONCE + scratch, np.int64))
        self.shared(kernel, *given, scratch=counting.AT_ONCE + scratch)
        return None

    @property
    def pairs(self) -> int:
        return int(self.first.shape[0])

    @property
    def runs(self) -> tuple[Array, Array, Array, Array]:
        """As kernels take them: begins, touch, first, last."""
        return self.begins, self.touch, self.first, self.last

    @property
    def of_tuples(self) -> Array:
        """The pair of each tuple: int64 [n]."""
        return np.repeat(self.touch, np.diff(self.begins)) if self.begins.shape[0] else self.touch


class State(ABC):
    """What one column keeps for all groups."""

    @abstractmethod
    def apply(self, touches: Touches, column: Any) -> tuple[Array, Array]:
        """(before, after) of each pair: numbers, whichever the state reads; equal numbers are equal answers.

        int64 [pairs, w], in any layout.
        """

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


_ALL = [np.ones(4096, np.bool_)]
"""Grown to what was asked for, up to `_MOST` rows."""
_MOST = 1 << 21
_NONE = np.zeros(0, np.int64)


def everyone(n: int) -> Array:
    """True for each of n, which is only read: bool [n]."""
    true = _ALL[0]
    if n > true.shape[0]:
        true = np.ones(1 << (n - 1).bit_length(), np.bool_)
        if n <= _MOST:
            _ALL[0] = true
    return true[:n]


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

    def span(self, words: Array) -> Any:  # noqa: ARG002
        """What `make_room` is to know of some words."""
        return None

    @abstractmethod
    def make_room(self, groups: int, spans: Sequence[Any] = ()) -> None:
        """Have room for groups below this, and for words of these spans."""

    def add(self, touches: Touches, words: Array, counted: Array) -> None:
        """As `note` of tuples that are each a run, of which nothing is read until their groups have `caught_up`."""
        nobody, nothing = np.full(1, -1, np.int64), np.zeros(words.shape[0], np.int64)
        alone = replace(touches, touch=nothing, first=nobody, last=nobody, part=0, mask=0)
        self.note(alone, words, counted, self.places(*np.empty((2, self.width, 1), np.int64)))

    def caught_up(self, codes: Array) -> None:
        """Have what is read of these groups follow from what was added."""

    @abstractmethod
    def note(self, touches: Touches, words: Array, counted: Array, places: tuple[Array, ...]) -> None:
        """Take tuples in, and say in places what each pair had before and after.

        words: int64 [n]; counted: which are not null, bool [n].
        """

    def apply(self, touches: Touches, column: Any) -> tuple[Array, Array]:
        numbers = np.empty((2, self.width, touches.pairs), np.int64)
        counted = everyone(touches.sign.shape[0]) if column is None else valid(column)
        self.note(touches, self.words(column), counted, self.places(*numbers))
        return numbers[0].T, numbers[1].T


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
        self.make_room(touches.room)
        touches.work(
            counting.apply_counts,
            touches.weight, touches.codes, counted, *touches.runs, self.now, *places,
        )  # fmt: skip

    def make_room(self, groups: int, spans: Sequence[Any] = ()) -> None:  # noqa: ARG002
        self.now = grown(self.now, groups)

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
