"""Two streams with every arrival's matches counted, and pairs written from that, whichever arrivals' are wanted."""

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


class CountedJoin:
    """The join of two streams, whose pairs are counted before any is written.  Memory: about 25 bytes per tuple.

    Of each arrival in total order, [n]: side, int8, its stream; matches, standing, int32, the pairs that it completes
    and the tuples of its key in both windows, itself included.
    """

    def __init__(self, exact: ExactJoin, places: tuple[Array, Array] | None = None) -> None:
        """places: of the tuples of either stream, int64, what they are told as; None: as they are."""
        n = exact.left_ts.shape[0] + exact.right_ts.shape[0]
        self.exact = exact
        self.keys = exact.keys
        self._codes = exact.left_code, exact.right_code
        self.side = roomy(n, np.int8)
        self._own, self.matches, self._high, self.standing = (roomy(n, np.int32) for _ in range(4))
        lists = Lists((exact.left_ts, exact.right_ts), self._codes, -1, exact.keys, whole=True, threads=1)
        kernels.window_ranges(
            exact.left_ts, exact.right_ts, *self._codes, lists.first_rows(),
            -1 if exact.window is None else exact.window,
            self.side, self._own, self.matches, self._high, self.standing,
        )  # fmt: skip
        self._listed: tuple[Array, Array] = lists.listed
        self._places = places

    @property
    def key(self) -> Array:
        """The key of each arrival, -1 null: int64 [n]."""
        key = np.empty(self.side.shape[0], np.int64)
        left = self.side == 0
        key[left], key[~left] = self._codes
        return key

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
                arrivals, self.side, self._own, self.matches, self._high, *self._listed, progress, left, right,
            )  # fmt: skip
            if n:
                left, right = left[:n], right[:n]
                yield (left, right) if self._places is None else (self._places[0][left], self._places[1][right])
            most -= n


def counted_shared(joined: Windowed) -> CountedJoin:
    """Two streams counted without the tuples whose key the other one lacks, where many have such a key.

    They complete no pair and stand with none of a key that has pairs.  They are sifted out before anything is coded,
    by 3 ns a tuple.
    """
    left, right = joined.window_codes
    left_ts, right_ts = joined.left.ts, joined.right.ts
    above = 1 + max(int(left.max(initial=-1)), int(right.max(initial=-1)))
    kept = in_all((left, right), above)
    places: tuple[Array, Array] | None = None
    if kept is not None:
        mine, others = places = kept[0], kept[1]
        left_ts, right_ts = left_ts[mine], right_ts[others]
        (left, right), above = kept_of((left, right), kept, above)
    if above > _DENSE * (left.shape[0] + right.shape[0]):
        (left, right), above = dense_codes((left, right))
    exact = ExactJoin(left_ts, right_ts, left, right, above, joined.window, joined.threads)
    return CountedJoin(exact, places)
