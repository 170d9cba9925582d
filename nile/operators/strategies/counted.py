"""Two streams with every arrival's matches counted, and pairs written from that: the best arrivals', or drawn ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.exact.join.chain import ExactJoin
from nile.exact.join.dense import dense_codes
from nile.exact.join.listed import Lists
from nile.exact.join.shared import in_all, kept_of
from nile.exact.state.lent import roomy
from nile.operators.join.chain_join import Windowed
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.strategies import strategy_kernels as kernels
else:
    kernels = lazy("nile.operators.strategies.strategy_kernels")

__all__ = ["CountedJoin", "counted_shared"]

Array = np.ndarray[Any, Any]
_CHUNK = 65_536
_DENSE = 2
"""Numbers a tuple up to which keys are counted by themselves."""
_HERE = np.zeros(0, np.int64)


class CountedJoin:
    """The join of two streams, whose pairs are counted before any is written.  Memory: about 25 bytes per tuple.

    Of each arrival in total order, [n]: side, int8, its stream; matches, standing, int32, the pairs that it completes
    and the tuples of its key in both windows, itself included.  kept: of either stream, int64, which of those that were
    given are counted, None for all (`counted_shared`).
    """

    kept: tuple[Array, Array] | None = None

    def __init__(self, exact: ExactJoin, places: tuple[Array, Array] | None = None, *, standing: bool = True) -> None:
        """places: of the tuples of either stream, int64, what they are told as; None: as they are; standing: whether
        that is wanted ([0] otherwise).
        """
        n = exact.left_ts.shape[0] + exact.right_ts.shape[0]
        self.exact = exact
        self.keys = exact.keys
        self._codes = exact.left_code, exact.right_code
        self.side = roomy(n, np.int8)
        self._own, self.matches, self._high = (roomy(n, np.int32) for _ in range(3))
        self.standing = roomy(n if standing else 0, np.int32)
        lists = Lists((exact.left_ts, exact.right_ts), self._codes, -1, exact.keys, whole=True, threads=1)
        kernels.window_ranges(
            exact.left_ts, exact.right_ts, *self._codes, lists.first_rows(),
            -1 if exact.window is None else exact.window,
            self.side, self._own, self.matches, self._high, self.standing,
        )  # fmt: skip
        self._listed: tuple[Array, Array] = lists.listed
        self._places: tuple[Array, Array] = (_HERE, _HERE) if places is None else places

    @property
    def key(self) -> Array:
        """The key of each arrival, -1 null: int64 [n]."""
        key = np.empty(self.side.shape[0], np.int64)
        left = self.side == 0
        key[left], key[~left] = self._codes
        return key

    def stands(self, which: Array, level: Array, coins: Array) -> tuple[Array, Array, Array]:
        """What tuples that came in stand for: see `strategy_kernels.sum_stands`.

        (by key, float64 [keys]; the rate of each key; sums, float64 [3]).
        """
        by_key, level_of, sums = np.zeros(self.keys), np.full(self.keys, level[0]), np.zeros(3)
        kernels.sum_stands(self.side, *self._codes, self.matches, which, level, coins, by_key, level_of, sums)
        return by_key, level_of, sums

    @property
    def pairs(self) -> int:
        """How many there are."""
        return int(self.matches.sum(dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        kept = (self.side, self._own, self.matches, self._high, self.standing, *self._listed)
        return sum(each.nbytes for each in kept)

    def outliers(self, cap: int) -> Array:
        """Arrivals whose pairs are outliers, the rarest keys' first: int64 [m]."""
        found = np.flatnonzero((self.matches > 0) & (self.standing <= cap))
        rank = self.standing[found]
        # One byte is sorted in a pass.
        return found[np.argsort(rank.astype(np.uint8) if cap < 1 << 8 else rank, kind="stable")]

    def written(self, arrivals: Array, most: int) -> Iterator[tuple[Array, Array]]:
        """(left, right) ordinals of the pairs of whole arrivals in their order, the first `most`, in chunks."""
        progress = np.zeros(2, np.int64)
        while most > 0 and progress[0] < arrivals.shape[0]:
            left, right = (np.empty(min(_CHUNK, most), np.int64) for _ in range(2))
            n = kernels.write_best(
                arrivals, self.side, self._own, self.matches, self._high, *self._listed, *self._places, progress, left,
                right,
            )  # fmt: skip
            if n:
                yield left[:n], right[:n]
            most -= n

    def by_stratum(self, strata: tuple[Array, Array], count: int) -> tuple[Array, Array]:
        """(the stratum of each arrival, the pairs of each stratum).  strata: uint8, of the tuples of either stream that
        were given.

        Where there is one stratum alone the former is [0].
        """
        if count == 1:
            return np.zeros(0, np.uint8), np.array([float(self.pairs)])
        if self.kept is not None:
            strata = strata[0][self.kept[0]], strata[1][self.kept[1]]
        which, pairs = np.empty(self.side.shape[0], np.uint8), np.zeros(count)
        kernels.join_strata(self.side, *strata, self.matches, which, pairs)
        return which, pairs

    def drawn(self, which: Array, rate: Array, stands: Array, phase: float) -> Iterator[tuple[Array, Array, Array]]:
        """(left, right ordinals, weight) of a systematic sample of the pairs, in chunks.

        which: uint8, the stratum of each arrival ([0]: the first); rate, stands: float64 [strata], the probability of a
        pair, and its weight; phase: in [0, 1).
        """
        progress, place = np.zeros(2, np.int64), np.array([phase, np.ceil(phase)])
        while progress[0] < self.side.shape[0]:
            left, right, weight = np.empty(_CHUNK, np.int64), np.empty(_CHUNK, np.int64), np.empty(_CHUNK)
            n = kernels.draw_pairs(
                self.side, self._own, which, rate, self.matches, self._high, *self._listed, *self._places, progress,
                place, stands, left, right, weight,
            )  # fmt: skip
            if n:
                yield left[:n], right[:n], weight[:n]


def counted_shared(
    joined: Windowed, places: tuple[Array, Array] | None = None, *, standing: bool = True
) -> CountedJoin:  # fmt: skip
    """Two streams counted without the tuples whose key the other one lacks, where many have such a key.

    They complete no pair and stand with none of a key that has pairs.  They are sifted out before anything is coded,
    by 3 ns a tuple.
    places, standing: as of `CountedJoin`.
    """
    left, right = joined.window_codes
    left_ts, right_ts = joined.left.ts, joined.right.ts
    above = 1 + max(int(left.max(initial=-1)), int(right.max(initial=-1)))
    kept = in_all((left, right), above)
    at: tuple[Array, Array] | None = None
    if kept is not None:
        mine, others = at = kept[0], kept[1]
        left_ts, right_ts = left_ts[mine], right_ts[others]
        (left, right), above = kept_of((left, right), kept, above)
        places = at if places is None else (places[0][mine], places[1][others])
    if above > _DENSE * (left.shape[0] + right.shape[0]):
        (left, right), above = dense_codes((left, right))
    exact = ExactJoin(left_ts, right_ts, left, right, above, joined.window, joined.threads)
    counted = CountedJoin(exact, places, standing=standing)
    counted.kept = at
    return counted
