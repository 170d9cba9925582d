"""The tuples of two streams that came in, as the exact joins take them, with their places in the streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

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

__all__ = ["ALL", "BLOCK", "Admission", "Admitted", "Keyed", "Kinds", "Side", "Slots", "best_keys", "values_of"]

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
    whether slots are to be chosen by counts of all tuples (`Kinds`)."""

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


class Taking(Protocol):
    """What steps cost, as of `nile.operators.strategies.forecast.Work`."""

    outlier: float
    keyed: float

    def taking(self, share: float, *, counting: bool) -> float:
        """ns of a tuple that came in, where a share of the keys does."""


class Counted(Protocol):
    """A look, as of `nile.operators.strategies.looking.Look`."""

    @property
    def alike(self) -> float:
        """Of pairs of tuples of a key, the share within the window."""

    @property
    def distinct(self) -> float:
        """About how many keys there are."""

    @property
    def pairs(self) -> float:
        """About how many there are."""

    def counted(self) -> tuple[Array, int]:
        """All tuples by slot, int32 [2, slots], and the binary logarithm of how many these are."""


class Kinds:
    """All tuples of two streams counted by the slot of their key, in kinds of slots that are alike, the best first.

    bits: the binary logarithm of how many slots there are.  Cost: `Work.recounting`, once text is hashed.
    """

    def __init__(self, look: Counted, cap: int) -> None:
        """cap: of outliers, which are wanted alone; 0: every pair is."""
        seen, self.bits = look.counted()
        self._kinds = np.empty(seen.shape[1], np.uint16)
        number, tuples = np.zeros(kernels.BINS**2, np.int64), np.zeros((2, kernels.BINS**2), np.int64)
        kernels.kinds_of(seen, self._kinds, number, tuples)
        some = np.flatnonzero(number)
        left, right = tuples[:, some] / number[some]
        if cap:
            wanted = look.alike * left * right * few_around(left + right, look.alike, cap)
        else:  # but for what others make that share its slot, where most do
            others = min(1.0, max(0.0, look.distinct / seen.shape[1] - 0.5)) * tuples.sum(axis=1) / seen.shape[1]
            wanted = look.alike * np.maximum(0.0, left - others[0]) * np.maximum(0.0, right - others[1])
            every = look.alike * left * right
            rest = max(0.0, look.pairs - float(number[some] @ wanted))  # those of keys that are like the others
            wanted += every * min(1.0, rest / max(1.0, float(number[some] @ every)))
        best = np.flatnonzero(left * right)
        best = best[np.argsort(-wanted[best] / (left + right)[best], kind="stable")]
        self._number, self._tuples, self._wanted = number[some][best], (left + right)[best], wanted[best]
        self._rank = np.full(number.shape[0], -1, np.int32)
        self._rank[some[best]] = np.arange(best.shape[0])
        self._done = np.zeros(2, np.int64)

    def best(self, work: Taking, room: float, *, counting: bool = False) -> Admission:
        """As many slots as the room pays for, in ns, the best first that were not taken before; as of `best_keys`."""
        begin, number = self._done, self._number.copy()
        number[: begin[0]] = 0
        number[begin[0] : begin[0] + 1] -= begin[1]
        whole = float(number @ self._tuples) * work.taking(1.0, counting=counting)
        price = work.taking(min(1.0, max(0.0, room) / max(1.0, whole)), counting=counting)
        emit = work.outlier if counting else work.keyed
        taking, written = price * self._tuples, emit * self._wanted
        ends = np.cumsum(number * (taking + written))
        at = int(np.searchsorted(ends, room, side="right"))
        stratum, one = np.zeros(self._kinds.shape[0], np.uint8), np.ones(2)
        cost = expected = 0.0
        if room > 0.0 and ends.shape[0]:
            cost, expected = (float(ends[at - 1]) if at else 0.0), float(number[:at] @ self._wanted[:at])
            end = np.array([at, 0])
            if at < ends.shape[0]:  # of the next kind some; the last of them may have more pairs than are paid for
                end[1] = some = min(int(number[at]), int((room - cost) / (taking[at] + written[at])) + 1)
                paid = room - cost - some * taking[at]
                if paid <= 0.0:
                    end[1] = some = some - 1
                    paid = room - cost - some * taking[at]
                pairs = min(some * self._wanted[at], max(0.0, paid) / emit)
                cost, expected = min(room, cost + some * taking[at] + pairs * emit), expected + pairs
                if at == begin[0]:
                    end[1] += begin[1]
            kernels.take_kinds(self._kinds, self._rank, begin, end, stratum)
            self._done = end
        return Admission(stratum, np.array([0.0, 1.0]), one, one, cost, expected)


class Slots:
    """The slots of a look, the best first, of which some are taken at a time.  weighed: as of `best_keys`."""

    bits = None
    """Those of the look."""

    def __init__(self, weighed: tuple[Array, Array, Array]) -> None:
        self._weighed = weighed
        self._done = np.zeros(weighed[0].shape[0], np.bool_)

    def best(self, work: Taking, room: float, *, counting: bool = False) -> Admission:
        """As of `Kinds`."""
        found = best_keys(self._weighed, work, room, counting=counting, done=self._done)
        self._done |= found.stratum == 1
        return found


def few_around(tuples: Array, alike: float, cap: int) -> Array:
    """Of pairs of keys with so many tuples, the share that completes with at most `cap` of these in the windows.

    alike: the share of two tuples of a key that lie in one.  Where all do the later of two comes at any place among
    all; else as many of the others are there as in a Poisson process.
    """
    if alike >= 1.0:
        return np.where(tuples <= cap, 1.0, cap * (cap - 1.0) / np.maximum(1.0, tuples * (tuples - 1.0)))
    standing = 0.5 * alike * np.maximum(0.0, tuples - 2.0)
    term = few = np.exp(-standing)
    for j in range(1, cap - 1):
        term = term * standing / j
        few = few + term
    return few if cap > 1 else np.zeros_like(few)


def best_keys(
    weighed: tuple[Array, Array, Array], work: Taking, room: float, *, counting: bool = False, done: Array | None = None
) -> Admission:
    """As many slots as the room pays for, in ns, the best first.

    weighed: by `Look.weighed`; counting: whether tuples that come in are counted, not only listed; done: bool [slots],
    which are left out.
    """
    tuples, wanted, order = weighed
    if done is not None:
        order = order[~done[order]]
    # The price of a tuple falls with the keys that come in: as many as the room would pay for at the price of all.
    whole = float(tuples.sum()) * work.taking(1.0, counting=counting)
    price = work.taking(min(1.0, max(0.0, room) / max(1.0, whole)), counting=counting)
    emit = work.outlier if counting else work.keyed
    costs = tuples[order] * price
    taking = np.cumsum(costs)
    written = np.cumsum(wanted[order] * emit)
    # The last slot may have more pairs than are paid for.
    count = int(np.searchsorted(taking + written - wanted[order] * emit, room, side="right")) if room > 0.0 else 0
    stratum = np.zeros(tuples.shape[0], np.uint8)
    stratum[order[:count]] = 1
    one = np.ones(2)
    cost, expected = 0.0, 0.0
    if count:
        cost = min(room, float(taking[count - 1] + written[count - 1]))
        expected = min(float(wanted[order[:count]].sum()), max(0.0, cost - float(taking[count - 1])) / emit)
    return Admission(stratum, np.array([0.0, 1.0]), one, one, cost, expected)
