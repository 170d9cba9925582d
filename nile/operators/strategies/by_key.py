"""The pairs of two streams one key after the other, those of the most promising keys first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.exact.join.listed import Lists
from nile.exact.join.parts import room_for_outputs
from nile.operators.common.data import Outputs
from nile.operators.join.chain_join import CERTAIN
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.strategies import key_kernels as kernels
else:
    kernels = lazy("nile.operators.strategies.key_kernels")

__all__ = ["KeyPairs"]

Array = np.ndarray[Any, Any]
_ROOM = 1 << 16
"""Pairs a batch."""
_RANKED = 19
"""Bits of a number, of 32, below those that it is ranked by: to a sixteenth."""


class KeyPairs:
    """Two streams listed by key, whose pairs are counted key by key before any is written.

    In the order in which pairs complete every tuple is looked up, and each pair gathers its times and its key from all
    over the window.  Key after key a pair is copied from what lies beside that of the pair before: a third of the cost.
    pairs: how many there are.  Cost: a pass along the lists, then O(pairs).  Memory: 16 bytes a
    tuple and 24 a key.
    """

    def __init__(self, lists: Lists, ts: tuple[Array, Array], window: int | None, values: Array | None) -> None:
        """lists: of one thread; ts: int64 ns, times by what tuples are told as in the lists; window: ns or None;
        values: int64, keys by what left tuples are told as, None where keys are not of eight bytes."""
        rows = lists.rows[0]
        left, right = (own[: int(rows[-1, side]) if rows.shape[0] else 0] for side, own in enumerate(lists.listed))
        self._listed: tuple[Array, Array] = left, right
        self._times: tuple[Array, Array] = np.empty(left.shape[0], np.int64), np.empty(right.shape[0], np.int64)
        for own, at, times in zip(ts, self._listed, self._times, strict=True):
            kernels.times_of(own, at, times)
        self._rows, self._values = rows, np.zeros(0, np.int64) if values is None else values
        self._joined: tuple[Array, Array] = np.empty(left.shape[0], np.int32), np.empty(left.shape[0], np.int32)
        found = np.empty(rows.shape[0], np.int64)
        self.pairs: int = kernels.pairs_by_key(
            rows, *self._times, -1 if window is None else window, *self._joined, found
        )  # fmt: skip
        self._order = _best(found, rows)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(each.nbytes for each in (self._rows, self._order, *self._listed, *self._times, *self._joined))

    def written(self, most: int) -> Iterator[Outputs]:
        """The first `most` pairs, in batches of up to 65,536, with their times and, where it is a number, their key."""
        progress = np.zeros(3, np.uint64)
        keyed = self._values.shape[0] > 0
        while most > 0 and progress[kernels.AT] < self._order.shape[0]:
            out = room_for_outputs(4 + keyed, min(_ROOM, most))
            left, right, left_ts, right_ts = out[:4]
            key = out[4] if keyed else self._values
            n = kernels.write_keys(
                self._order, self._rows, *self._joined, *self._times, *self._listed, self._values, progress,
                left, right, left_ts, right_ts, key,
            )  # fmt: skip
            if n:
                yield Outputs(
                    left=left[:n], right=right[:n], weight=CERTAIN[:n], left_ts=left_ts[:n], right_ts=right_ts[:n],
                    key=key[:n] if keyed else None,
                )  # fmt: skip
            most -= n


def _best(pairs: Array, rows: Array) -> Array:
    """Keys that have pairs, those with most per tuple first, to a sixteenth: int64 [m]."""
    found = np.flatnonzero(pairs)
    own = rows[found]
    worth = (pairs[found] / (own[:, 0] - own[:, 2] + own[:, 1] - own[:, 3])).astype(np.float32)
    # The bits of numbers above 0 rank as they do: the upper ones sort in a few passes, and equals keep their order.
    rank = np.uint16(0xFFFF) - (worth.view(np.uint32) >> _RANKED).astype(np.uint16)
    best: Array = found[rank.argsort(kind="stable")]
    return best
