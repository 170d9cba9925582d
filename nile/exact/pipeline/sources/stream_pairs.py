"""Pairs of a join of two streams as rows: in pieces for threads, each in blocks that stay in the cache.

Threads write to parts of the same columns, so that nothing is put together afterwards, unless a condition keeps some.
Cost: O(1) a pair and column; memory beside the rows: a block for each thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from nile.exact.join.threads import together, useful
from nile.exact.pipeline.threaded_selection import batch_of, passing, put_together
from nile.exact.state import arrow
from nile.exact.state.arrow import Array
from nile.exact.state.lent import roomy
from nile.exact.state.ring import Ring

__all__ = ["Pairs"]

kernels: Any = arrow.Late("nile.exact.pipeline.sources.stream_join_kernels")

_PIECE = 1 << 14
"""Pairs from which on a thread of their own is worth having."""
_BLOCK = 1 << 15
"""Pairs of which all columns are made before the next ones."""

Told = tuple[Array, Array, Any]
"""(times int64 [n], signs int8 [n], rows)."""


class Pairs:
    """The pairs of tuples that `moves` told (moved, ends), of two rings, as rows of a schema.

    threads: that may work on them, None for all cores; which did shows nowhere.
    """

    def __init__(self, rings: Sequence[Ring], moved: Array, ends: Array, schema: Any, threads: int | None) -> None:
        self._rings = rings
        self._moved, self._ends = moved, ends
        self._schema = schema
        self._threads = threads
        self._some = [ring.has_nulls() for ring in rings]

    def all(self) -> Told:
        """All of them."""
        pairs = int(self._ends[-1])
        ts, sign, words = self._room(pairs)
        cuts = self._cuts(pairs)

        def work(own: Sequence[int]) -> None:
            for first, last in pairwise(own):
                at = slice(self._ends[first], self._ends[last])
                self._fill(first, last, ts[at], sign[at], [[word[at] for word in side] for side in words])

        together([partial(work, own) for own in cuts])
        return ts, sign, self._rows(words, len(cuts))

    def true(self, test: Callable[[Any], Any]) -> Told:
        """Those for which a test is true.  Raises what it raises of all of them at once."""
        pairs = int(self._ends[-1])
        cuts = self._cuts(pairs)
        found: list[list[Told]] = [[] for _ in cuts]

        def work(k: int) -> None:
            found[k] += [self._true(first, last, test) for first, last in pairwise(cuts[k])]

        try:
            together([partial(work, k) for k in range(len(cuts))])
        except Exception:
            if len(cuts) == 1 and len(cuts[0]) == 2:
                raise
            return self._true(0, self._moved.shape[0], test)
        parts = [each for own in found for each in own]
        if len(parts) == 1:
            return parts[0]
        ts, sign = (np.concatenate([each[k] for each in parts]) for k in (0, 1))
        return ts, sign, put_together([each[2] for each in parts], self._schema, self._threads)

    def _cuts(self, pairs: int) -> list[list[int]]:
        """For each thread where its blocks begin, and where the last one ends: tuples."""
        pieces = useful(self._threads, pairs, _PIECE) if pairs >= 2 * _PIECE else 1
        blocks = -(-pairs // (pieces * _BLOCK))
        if pieces * blocks == 1:
            return [[0, self._moved.shape[0]]]
        cuts = self._ends.searchsorted([k * pairs // (pieces * blocks) for k in range(pieces * blocks + 1)])
        cuts[-1] = self._moved.shape[0]
        own = [sorted(set(cuts[k * blocks : (k + 1) * blocks + 1].tolist())) for k in range(pieces)]
        return [each for each in own if len(each) > 1]

    def _room(self, pairs: int) -> tuple[Array, Array, list[list[Array]]]:
        """For times, signs, and of each side for its words, those that say what is null only if something is."""
        words = [
            [roomy(pairs) for _ in range(ring.encoder.width if some else ring.encoder.mask)]
            for ring, some in zip(self._rings, self._some, strict=True)
        ]
        return roomy(pairs), roomy(pairs, np.int8), words

    def _fill(self, first: int, last: int, ts: Array, sign: Array, words: list[list[Array]]) -> None:
        """Write the pairs of the tuples from first to before last."""
        moved, ends = self._moved[first:last], self._ends[first : last + 1]
        ordinals = [roomy(ts.shape[0]) for _ in self._rings]
        kernels.pairs_moved(moved, ends, *(ring.before for ring in self._rings), ts, sign, *ordinals)
        for side, (ring, beside) in enumerate(zip(self._rings, words, strict=True)):
            for at, word in enumerate(beside):
                kernels.word_moved(moved, ends, side, ring.words, at, ordinals[side], word)

    def _true(self, first: int, last: int, test: Callable[[Any], Any]) -> Told:
        ts, sign, words = self._room(int(self._ends[last] - self._ends[first]))
        self._fill(first, last, ts, sign, words)
        rows, at = passing(self._rows(words, 1), test)
        return (ts, sign, rows) if at is None else (ts.take(at), sign.take(at), rows)

    def _rows(self, words: list[list[Array]], threads: int) -> Any:
        """Rows of words; threads make columns that are not the words themselves."""
        makers = [
            partial(ring.encoder.column, at, beside, some=some)
            for ring, beside, some in zip(self._rings, words, self._some, strict=True)
            for at in range(len(ring.schema))
        ]
        if all(ring.encoder.is_plain and not some for ring, some in zip(self._rings, self._some, strict=True)):
            threads = 1
        return batch_of(makers, self._schema, threads)
