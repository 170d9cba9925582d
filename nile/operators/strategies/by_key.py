"""The pairs of two streams one key after the other, those of the most promising keys first."""

from __future__ import annotations

from collections.abc import Iterator
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

__all__ = ["KeyPairs"]

Array = np.ndarray[Any, Any]
_ROOM = BLOCK
"""Pairs a batch."""
_RANKED = 19
"""Bits of a number, of 32, below those that it is ranked by: to a sixteenth."""
_LONG = 64
"""Bytes of a text up to which copies of it are made here."""
_NONE = np.zeros(0, np.int64)


class KeyPairs:
    """Two streams listed by key, whose pairs are counted key by key before any is written.

    In the order in which pairs complete every tuple is looked up, and each pair gathers its times and its key from all
    over the window.  Key after key a pair is copied from what lies beside that of the pair before: a third of the cost.
    pairs: how many there are.  Cost: a pass along the lists, then O(pairs).  Memory: 16
    bytes a tuple and 24 a key.
    """

    def __init__(self, lists: Lists, ts: tuple[Array, Array], window: int | None, keys: Any) -> None:
        """lists: of one thread; ts: int64 ns, times by what tuples are told as in the lists; window: ns or None;
        keys: an Arrow array, by what left tuples are told as."""
        rows = lists.rows[0]
        left, right = (own[: int(rows[-1, side]) if rows.shape[0] else 0] for side, own in enumerate(lists.listed))
        self._listed: tuple[Array, Array] = left, right
        self._times: tuple[Array, Array] = np.empty(left.shape[0], np.int64), np.empty(right.shape[0], np.int64)
        for own, at, times in zip(ts, self._listed, self._times, strict=True):
            kernels.times_of(own, at, times)
        words = words_of(keys)
        self._rows, self._values = rows, _NONE if words is None else words
        self._joined: tuple[Array, Array] = np.empty(left.shape[0], np.int32), np.empty(left.shape[0], np.int32)
        found = np.empty(rows.shape[0], np.int64)
        self.pairs: int = kernels.pairs_by_key(
            rows, *self._times, -1 if window is None else window, *self._joined, found
        )  # fmt: skip
        self._order = _best(found, rows)
        self._texts = keys if keys.type in (pa.string(), pa.binary()) else None
        self._ends = _NONE if self._texts is None else np.cumsum(found[self._order])

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(each.nbytes for each in (self._rows, self._order, *self._listed, *self._times, *self._joined))

    def written(self, most: int) -> Iterator[Outputs]:
        """The first `most` pairs, in batches of up to 65,528, with their times and, where it is a number, their key."""
        progress, written = np.zeros(3, np.uint64), 0
        keyed = self._values.shape[0] > 0
        while most > 0 and progress[kernels.AT] < self._order.shape[0]:
            out = roomy((4 + keyed) * min(_ROOM, most)).reshape(4 + keyed, -1)
            left, right, left_ts, right_ts = out[:4]
            key = out[4] if keyed else self._values
            n = kernels.write_keys(
                self._order, self._rows, *self._joined, *self._times, *self._listed, self._values, progress,
                left, right, left_ts, right_ts, key,
            )  # fmt: skip
            if n:
                yield Outputs(
                    left=left[:n], right=right[:n], weight=CERTAIN[:n], left_ts=left_ts[:n], right_ts=right_ts[:n],
                    key=key[:n] if keyed else self._repeated(written, written + n),
                )  # fmt: skip
            most, written = most - n, written + n

    def _repeated(self, begin: int, end: int) -> Any:
        """The keys of the pairs from `begin` to `end` where they are texts, not too long: an Arrow array, or None."""
        if self._texts is None:
            return None
        first, last = np.searchsorted(self._ends, (begin, end - 1), side="right")
        often = np.diff(np.minimum(self._ends[first : last + 1], end), prepend=begin)
        places = self._listed[0][self._rows[self._order[first : last + 1], 2]].astype(np.int64)
        _, offsets, data = self._texts.buffers()
        ends = np.frombuffer(offsets, np.int32)[self._texts.offset :]
        size = int(((ends[places + 1] - ends[places]).astype(np.int64) * often).sum())
        if size > _LONG * (end - begin):
            return None
        # In memory of Arrow's pool, which keeps what was freed for the next one.
        texts, ends_of = pa.allocate_buffer(max(1, size)), pa.allocate_buffer(4 * (end - begin + 1))
        out, out_ends = np.frombuffer(texts, np.uint8), np.frombuffer(ends_of, np.int32)
        out_ends[0] = 0
        given = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
        kernels.repeat_texts(given, ends, places, often, out, out_ends)
        return pa.Array.from_buffers(self._texts.type, end - begin, [None, ends_of, texts])


def _best(pairs: Array, rows: Array) -> Array:
    """Keys that have pairs, those with most per tuple first, to a sixteenth: int64 [m]."""
    found = np.flatnonzero(pairs)
    own = rows[found]
    worth = (pairs[found] / (own[:, 0] - own[:, 2] + own[:, 1] - own[:, 3])).astype(np.float32)
    # The bits of numbers above 0 rank as they do: the upper ones sort in a few passes, and equals keep their order.
    rank = np.uint16(0xFFFF) - (worth.view(np.uint32) >> _RANKED).astype(np.uint16)
    best: Array = found[rank.argsort(kind="stable")]
    return best
