"""The pairs of two streams one key after the other: those of the most promising keys first, drawn ones, or outliers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.base.contiguous import words_of
from nile.exact.join.listed import Lists
from nile.exact.join.parts import BLOCK
from nile.exact.state.lent import roomy
from nile.operators.common.data import Outputs
from nile.operators.join.chain_join import CERTAIN
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.strategies import key_kernels as kernels
else:
    kernels = lazy("nile.operators.strategies.key_kernels")

__all__ = ["KeyLists", "KeyOutliers", "KeyPairs", "best_first"]

Array = np.ndarray[Any, Any]
_ROOM = BLOCK
"""Pairs a batch."""
_RANKED = 19
"""Bits of a number, of 32, below those that it is ranked by: to a sixteenth."""
_LONG = 64
"""Bytes of a text up to which copies of it are made here."""
_NONE = np.zeros(0, np.int64)


class KeyLists:
    """Two streams listed by key, with times and keys beside.

    In the order in which pairs complete every tuple is looked up, and each pair gathers its times and its key from all
    over the window.  Key after key a pair is copied from what lies beside that of the pair before.
    """

    def __init__(self, lists: Lists, ts: tuple[Array, Array], window: int | None, keys: Any) -> None:
        """lists: of one thread; ts: int64 ns, times by what tuples are told as in the lists; window: ns or None;
        keys: an Arrow array, by what left tuples are told as."""
        self._window = -1 if window is None else window
        self._rows = rows = lists.rows[0]
        left, right = (own[: int(rows[-1, side]) if rows.shape[0] else 0] for side, own in enumerate(lists.listed))
        self._listed: tuple[Array, Array] = left, right
        self._times: tuple[Array, Array] = roomy(left.shape[0]), roomy(right.shape[0])
        for own, at, times in zip(ts, self._listed, self._times, strict=True):
            kernels.times_of(own, at, times)
        self._keys = keys
        words = words_of(keys)
        self._values = _NONE if words is None else words
        self._alike = not pa.types.is_floating(keys.type)  # zeros below and above 0 are one key

    def __len__(self) -> int:
        return sum(each.shape[0] for each in self._listed)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(each.nbytes for each in (self._rows, *self._listed, *self._times))

    def _batches(
        self, most: int, count: int, write: Any, of: tuple[Any, ...], progress: tuple[Array, ...], *,
        weighed: bool = False, values: Array | None = None,
    ) -> Iterator[Outputs]:  # fmt: skip
        """Up to `most` pairs, in batches of up to 65,528, with their times and, where it is a number, their key.

        write: a kernel that takes `of`, the lists, progress and room; count: how far the first number of progress goes;
        weighed: whether weights are written, too; values: int64, by what left tuples are told as, in place of keys.
        """
        values, alike = (self._values, self._alike) if values is None else (values, True)
        keyed = values.shape[0] > 0
        while most > 0 and progress[0][0] < count:
            room = min(_ROOM, most)
            left, right, left_ts, right_ts = roomy(4 * room).reshape(4, -1)
            key = roomy(room) if keyed else values  # who keeps keys alone for good keeps nothing else
            weight = [roomy(room, np.float64)] if weighed else []
            given = (*of, *self._times, *self._listed, values, alike, *progress)
            n = write(*given, left, right, left_ts, right_ts, key, *weight)
            if n:
                yield Outputs(
                    left=left[:n], right=right[:n], weight=weight[0][:n] if weight else CERTAIN[:n],
                    left_ts=left_ts[:n], right_ts=right_ts[:n], key=key[:n] if keyed else None,
                )  # fmt: skip
            most -= n


class KeyPairs(KeyLists):
    """Two streams listed by key, whose pairs are counted key by key before any is written.

    pairs: how many there are; by_key: of each key, int64 [keys].  Cost: a pass along the lists, then O(pairs).
    Memory: 16 bytes a tuple and 24 a key.
    """

    def __init__(self, lists: Lists, ts: tuple[Array, Array], window: int | None, keys: Any) -> None:
        """As of `KeyLists`."""
        super().__init__(lists, ts, window, keys)
        left = self._listed[0].shape[0]
        self._joined: tuple[Array, Array] = roomy(left, np.int32), roomy(left, np.int32)
        self.by_key = np.empty(self._rows.shape[0], np.int64)
        self.pairs: int = kernels.pairs_by_key(self._rows, *self._times, self._window, *self._joined, self.by_key)
        coded = pa.types.is_dictionary(keys.type)
        self._of: Any = keys.indices if coded else None
        of, told = keys.dictionary if coded else keys, not (coded and keys.null_count)
        self._texts = of if told and of.type in (pa.string(), pa.binary()) else None

    @cached_property
    def _order(self) -> Array:
        rows = self._rows
        return best_first(self.by_key, rows[:, 0] - rows[:, 2] + rows[:, 1] - rows[:, 3])

    @cached_property
    def _ends(self) -> Array:
        return np.cumsum(self.by_key[self._order])

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return super().nbytes + self.by_key.nbytes + sum(each.nbytes for each in self._joined)

    def written(self, most: int) -> Iterator[Outputs]:
        """The first `most` pairs, those of the keys with most per tuple first."""
        written, of = 0, (self._order, self._rows, *self._joined)
        for part in self._batches(
            most, self._order.shape[0], kernels.write_keys, of, (np.zeros(3, np.uint64),)
        ):  # fmt: skip
            n = len(part)
            yield part if part.key is not None else replace(part, key=self._named(written, written + n))
            written += n

    def keys_among(self, pairs: int) -> float:
        """How many keys the first so many pairs have, where those of the keys with most per tuple come first."""
        return float(np.searchsorted(self._ends, pairs, side="left") + 1)

    def strata(self, of: Callable[[Array], Array]) -> Array:
        """The stratum of each key that has pairs, 0 of others: uint8 [keys].  of: what tells those of left tuples."""
        which, some = np.zeros(self._rows.shape[0], np.uint8), np.flatnonzero(self.by_key)
        which[some] = of(self._listed[0][self._rows[some, 2]].astype(np.int64))
        return which

    def drawn(self, which: Array, rate: Array, stands: Array, phase: float) -> Iterator[Outputs]:
        """A systematic sample of the pairs, key after key.

        which: uint8 [keys], the stratum of each ([0]: the first); rate, stands: float64 [strata], the probability of a
        pair, and its weight; phase: in [0, 1).
        """
        progress = np.zeros(2, np.int64), np.array([phase, np.ceil(phase)])
        of = self._rows, self.by_key, which, rate, stands, *self._joined
        places = None if self._texts is None else self._places()
        for part in self._batches(
            1 << 62, self._rows.shape[0], kernels.draw_keys, of, progress, weighed=True, values=places
        ):  # fmt: skip
            if places is None:
                yield part
                continue
            # Of each key the place of its first tuple: pairs of a key come one after the other.
            first = np.flatnonzero(np.diff(part.key, prepend=-1))
            yield replace(part, key=self._repeated(part.key[first], np.diff(first, append=len(part)), len(part)))

    def scatter(self, which: Array, level: Array, coins: Array) -> float:
        """How much a total scatters by the coins of tuples: see `key_kernels.scatter_by_key`."""
        if (coins == 1.0).all():
            return 0.0
        return float(
            kernels.scatter_by_key(self._rows, *self._times, self._window, self._joined[1], which, level, coins)
        )

    def _named(self, begin: int, end: int) -> Any:
        """The keys of the pairs from `begin` to `end` where they are texts: as of `_repeated`."""
        if self._texts is None:
            return None
        first, last = np.searchsorted(self._ends, (begin, end - 1), side="right")
        often = np.diff(np.minimum(self._ends[first : last + 1], end), prepend=begin)
        first_of = self._listed[0][self._rows[self._order[first : last + 1], 2]]
        return self._repeated(self._places(first_of), often, end - begin)

    def _places(self, tuples: Array | None = None) -> Array:
        """Where the texts of left tuples lie (None: of all): int64 [m]."""
        if self._of is None:
            return np.arange(len(self._keys)) if tuples is None else tuples.astype(np.int64)
        places: Array = self._of.to_numpy()
        some: Array = places if tuples is None else places[tuples]
        return some.astype(np.int64)

    def _repeated(self, places: Array, often: Array, whole: int) -> Any:
        """Texts by their places, each so often, `whole` in all, if they are not too long: an Arrow array, or None."""
        assert self._texts is not None
        _, offsets, data = self._texts.buffers()
        ends = np.frombuffer(offsets, np.int32)[self._texts.offset :]
        size = int(((ends[places + 1] - ends[places]).astype(np.int64) * often).sum())
        if size > _LONG * whole:
            return None
        # In memory of Arrow's pool, which keeps what was freed for the next one.
        texts, ends_of = pa.allocate_buffer(max(1, size)), pa.allocate_buffer(4 * (whole + 1))
        out, out_ends = np.frombuffer(texts, np.uint8), np.frombuffer(ends_of, np.int32)
        out_ends[0] = 0
        given = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
        kernels.repeat_texts(given, ends, places, often, out, out_ends)
        return pa.Array.from_buffers(self._texts.type, whole, [None, ends_of, texts])


class KeyOutliers(KeyLists):
    """Two streams listed by key, whose pairs of outliers are counted before any is written, the rarest keys' first.

    count: how many arrivals complete such pairs.  Cost: a pass along the lists.  Memory: 44 bytes a tuple.
    """

    def __init__(self, lists: Lists, ts: tuple[Array, Array], window: int | None, keys: Any, cap: int) -> None:
        """cap: of outliers; the rest as of `KeyLists`."""
        super().__init__(lists, ts, window, keys)
        at, high, many, standing = (roomy(len(self) + 1, np.int32) for _ in range(4))
        times, place = roomy(len(self)), roomy(len(self), np.int32)
        self.count = n = kernels.outliers_by_key(
            self._rows, *self._times, self._window, cap, times, place, at, high, many, standing
        )  # fmt: skip
        self._at, self._high, self._many, standing = at[:n], high[:n], many[:n], standing[:n]
        # One byte is sorted in a pass.
        self._order = (standing.astype(np.uint8) if cap < 1 << 8 else standing).argsort(kind="stable")

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return super().nbytes + 4 * self._at.nbytes + self._order.nbytes

    @property
    def pairs(self) -> int:
        """How many pairs of outliers there are."""
        return int(self._many.sum())

    def written(self, most: int) -> Iterator[Outputs]:
        """The first `most` pairs: those with fewest tuples of their key around, and of an arrival its newest first."""
        of = self._order, self._at, self._high, self._many
        yield from self._batches(most, self.count, kernels.write_outliers, of, (np.zeros(2, np.int64),))


def best_first(outputs: Array, tuples: Array) -> Array:
    """Keys that have outputs, those with most per tuple first, to a sixteenth: int64 [m]; both int [keys]."""
    found = np.flatnonzero(outputs)
    worth = (outputs[found] / tuples[found]).astype(np.float32)
    # The bits of numbers above 0 rank as they do: the upper ones sort in a few passes, and equals keep their order.
    rank = np.uint16(0xFFFF) - (worth.view(np.uint32) >> _RANKED).astype(np.uint16)
    best: Array = found[rank.argsort(kind="stable")]
    return best
