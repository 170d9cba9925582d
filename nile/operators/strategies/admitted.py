"""The tuples of two streams that came in, as the exact joins take them, with their places in the streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from nile.exact.join.chain import ExactJoin, encode, window_codes
from nile.exact.join.listed import Lists
from nile.exact.state.lent import roomy, taken
from nile.operators.inputs.joining import Joinable, Loaded
from nile.summaries.hashing import key_words
from nile.summaries.heavy import pa
from nile.summaries.key_types import is_hashed
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.strategies import strategy_kernels as kernels
else:
    kernels = lazy("nile.operators.strategies.strategy_kernels")

__all__ = ["ALL", "BLOCK", "Admission", "Admitted", "Keyed", "Side", "values_of"]

Array = np.ndarray[Any, Any]
T = TypeVar("T")
ALL = np.zeros(0, np.bool_)
"""Which tuples have a key, where all have."""
BLOCK = 1024
"""Tuples that are hashed at a time."""


@dataclass(frozen=True, slots=True)
class Side:
    """Of one stream: ts, place, int64 [m], times and places in the stream; stratum, uint8 [m]; key, of Arrow, [m]."""

    ts: Array
    place: Array
    stratum: Array
    key: Any

    def __len__(self) -> int:
        return int(self.ts.shape[0])


@dataclass(frozen=True, slots=True)
class Admission:
    """Which keys come in, by slot, and which of their tuples.  stratum: uint8 [slots]; level, left, right: float64
    [strata], rates of keys and of the tuples of either stream; cost: ns expected; pairs: expected among them; finer:
    whether slots are to be chosen by counts of all tuples (`nile.operators.strategies.slots.Kinds`)."""

    stratum: Array
    level: Array
    left: Array
    right: Array
    cost: float
    pairs: float
    finer: bool = False


class Admitted:
    """Two streams of tuples that came in; nothing is encoded before it is asked for.  window: ns or None."""

    def __init__(self, left: Side, right: Side, window: int | None) -> None:
        self.left = left
        self.right = right
        self.window = window

    def __len__(self) -> int:
        return len(self.left) + len(self.right)

    @property
    def threads(self) -> int:
        """One: a thread that runs ahead spends what the budget may not have."""
        return 1

    @property
    def window_codes(self) -> tuple[Array, Array]:
        """Keys as window joins take them: int64 [m] each."""
        left, right = window_codes((self.left.key, self.right.key), shared=True, threads=self.threads)
        return left, right

    @cached_property
    def exact(self) -> ExactJoin:
        """Their exact join."""
        left, right, keys = encode(self.left.key, self.right.key)
        return ExactJoin(self.left.ts, self.right.ts, left, right, keys, self.window, self.threads)

    @property
    def listed(self) -> Lists:
        """Their exact join by lists, whose pairs are told by their places in the streams."""
        window = -1 if self.window is None else self.window
        return Lists((self.left.ts, self.right.ts), self.window_codes, window, threads=self.threads, told=self.places)

    @property
    def places(self) -> tuple[Array, Array]:
        """Of both sides."""
        return self.left.place, self.right.place


class Keyed:
    """Two streams by words of their keys, before anything is encoded, and which of their tuples come in.

    joined: the streams; window: ns or None; tuples: of either stream; seed: of hashes; shift: of these, what is not of
    a slot.
    """

    joined: Joinable
    window: int | None
    tuples: tuple[int, ...]
    seed: int
    shift: int

    def _of_each(self, make: Callable[[Loaded], T]) -> tuple[T, ...]:
        """What is made of the key of each stream, of a stream that joins itself once."""
        made: dict[int, T] = {}
        for one in self.joined.streams:
            if id(one.key) not in made:
                made[id(one.key)] = make(one)
        return tuple(made[id(one.key)] for one in self.joined.streams)

    @cached_property
    def _values(self) -> tuple[tuple[Array, Array] | None, ...]:
        """Of keys that are a dictionary: the words of its values, int64 [values], and which each tuple has, int32."""

        def of(one: Loaded) -> tuple[Array, Array] | None:
            found = values_of(one.key)
            return None if found is None else (key_words(found[0], where=f"stream '{one.name}'")[0], found[1])

        return self._of_each(of)

    @cached_property
    def _keyed(self) -> tuple[tuple[Array, Array], ...]:
        def of(one: Loaded) -> tuple[Array, Array]:
            values = next(each for each, other in zip(self._values, self.joined.streams, strict=True) if other is one)
            if values is not None:
                return taken(*values), ALL
            return key_words(one.key, where=f"stream '{one.name}'")

        return self._of_each(of)

    @property
    def words(self) -> tuple[Array, ...]:
        """Of the key of each tuple of either stream int64 [n], equal where keys are.  Text is hashed for them once."""
        return tuple(words for words, _ in self._keyed)

    def admitted(self, stratum: Array, level: Array, coins: tuple[Array, Array], bits: int | None = None) -> Admitted:
        """The tuples of both streams that come in.

        stratum: uint8 [slots]; level, coins: float64 [strata], of keys, and of the tuples of either stream; bits: the
        binary logarithm of how many slots there are, None: those of the look.
        """
        sides = []
        shift = self.shift if bits is None else 64 - bits
        for k, coin in enumerate(coins):
            one, n, values = self.joined.streams[k], self.tuples[k], self._values[k]
            place, time, came = roomy(n + 1), roomy(n + 1), roomy(n + 1, np.uint8)
            below, tossed = _below(level), (_below(coin), self._coin_seed(k))
            if values is not None:
                into, which = self._values_in(values[0], shift, stratum, below)
                m = kernels.admit_values(values[1], one.ts, into, which, *tossed, place, time, came)
                key = _values_taken(one.key, into, values[1], place[:m])
            else:
                word = roomy(n + 1)
                m = kernels.admit(
                    *self._keyed[k], one.ts, self.seed, shift, stratum, below, *tossed, np.empty(BLOCK, np.uint64),
                    place, time, word, came,
                )  # fmt: skip
                key = one.key.take(pa.array(place[:m])) if is_hashed(one.key.type) else pa.array(word[:m])
            sides.append(Side(time[:m], place[:m], came[:m], key))
        return Admitted(sides[0], sides[1], self.window)

    def _values_in(self, words: Array, shift: int, stratum: Array, level: Array) -> tuple[Array, Array]:
        """Of the values of a dictionary: whether they come in, bool, and their strata, uint8."""
        n = words.shape[0]
        place, word, came = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64), np.empty(n + 1, np.uint8)
        always = np.full(level.shape[0], 1 << 31, np.uint64)
        m = kernels.admit(
            words, ALL, words, self.seed, shift, stratum, level, always, 0, np.empty(BLOCK, np.uint64),
            place, np.empty(n + 1, np.int64), word, came,
        )  # fmt: skip
        into, which = np.zeros(n, np.bool_), np.zeros(n, np.uint8)
        into[place[:m]], which[place[:m]] = True, came[:m]
        return into, which

    def part(self, begin: float, end: float) -> Admitted:
        """The tuples of both streams from a time by which a share of them has come to another.  No copy of times or
        keys."""
        sides = []
        for one, low, high in zip(self.joined.streams, self._come(begin), self._come(end), strict=True):
            places = np.arange(low, high)
            came = np.zeros(places.shape[0], np.uint8)
            sides.append(Side(one.ts[low:high], places, came, one.key.slice(low, high - low)))
        return Admitted(sides[0], sides[1], self.window)

    def _come(self, share: float) -> list[int]:
        """How many tuples of each stream have come before a time by which that share of either has."""
        ts = [one.ts for one in self.joined.streams]
        if share >= 1.0:
            return [each.shape[0] for each in ts]
        ends = [int(each[int(share * each.shape[0])]) for each in ts if each.shape[0]]
        return [int(np.searchsorted(each, min(ends), side="left")) for each in ts]

    def _coin_seed(self, side: int) -> int:
        # Hashes add their seed: seeds near each other would give the coins of one stream's tuples to the other's.
        return (self.seed * 0x9E3779B9 + (side + 1) * 0x2545F4914F6CDD1D) & 0x7FFFFFFFFFFFFFFF


def _below(rate: Array) -> Array:
    return np.rint(rate * 2.0**31).astype(np.uint64)


def values_of(key: Any) -> tuple[Any, Array] | None:
    """The values of a dictionary of texts that a column of keys is, Arrow's, and which each tuple has: int32 [n].

    None of other columns, and where some are null.
    """
    if not pa.types.is_dictionary(key.type) or not is_hashed(key.type) or key.num_chunks != 1:
        return None
    whole = key.chunk(0)
    if whole.null_count or whole.dictionary.null_count or whole.indices.type != pa.int32():
        return None
    return whole.dictionary, whole.indices.to_numpy()


def _values_taken(key: Any, into: Array, at: Array, places: Array) -> Any:
    """The keys of some tuples, in a dictionary of those values alone that come in.

    into: bool [values]; at: as of `values_of`; places: int64 [m].
    """
    new = np.cumsum(into, dtype=np.int32)
    new -= 1
    indices = pa.array(taken(new, taken(at, places)))
    values = key.chunk(0).dictionary.take(pa.array(np.flatnonzero(into)))
    return pa.chunked_array([pa.DictionaryArray.from_arrays(indices, values, safe=False)])
