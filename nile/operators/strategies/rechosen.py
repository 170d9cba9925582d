"""A whole answer that will not be done in time is broken off where an arrival begins, and its rest is counted.

What was written stays.  The pairs that arrivals from there on complete are those of two joins that have none in common:
of the left tuples to come with the right ones in their window, and of the left ones before with the right ones to come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nile.exact.join.listed import Lists
from nile.operators.common.data import Outputs
from nile.operators.drive.clock import Clock
from nile.operators.inputs.joining import Joinable
from nile.operators.strategies.by_key import KeyPairs
from nile.operators.strategies.choice import Choice

__all__ = ["Rest", "Watch"]

Array = np.ndarray[Any, Any]
_LATE, _UNSURE = 1.02, 0.2
"""Of the time there is, when the end may be forecast, and how much later at the begin, when less is known."""
_TOLD, _ENOUGH = 2e6, 0.1
"""ns of finding pairs that tell a pace, and of the time there is: the first pairs come into memory that is handed out
anew, and take several times as long as those after them."""
_CLEARLY = 1.15
"""Times as many pairs that a part has to find as the whole answer would, stopped when time is over."""


class Rest:
    """The pairs of two streams that some of their tuples complete, counted by key.

    pairs: how many; by_key: of each key, int64 [keys of both joins].  Memory and cost: as of `KeyPairs`.
    """

    def __init__(self, joined: Joinable, first: tuple[int, int]) -> None:
        """first: of either stream the first tuple that has not arrived."""
        self._joined = joined
        left, right = joined.left.ts, joined.right.ts
        come, there = slice(first[0], left.shape[0]), slice(first[1], right.shape[0])
        self._cuts = (come, slice(self._since(left, come, right), right.shape[0])), (
            slice(self._since(right, there, left), first[0]), there,
        )  # fmt: skip
        self.found: list[KeyPairs] = []

    def _since(self, ts: Array, come: slice, others: Array) -> int:
        """The first of the other stream's tuples that are in the window of those to come."""
        window = self._joined.window
        if window is None or come.start == come.stop:
            return 0
        return int(np.searchsorted(others, max(np.iinfo(np.int64).min + window, int(ts[come.start])) - window))

    def __len__(self) -> int:
        """Tuples of both joins."""
        return sum(side.stop - side.start for cut in self._cuts for side in cut)

    def count(self) -> None:
        """Count the pairs."""
        ts = self._joined.left.ts, self._joined.right.ts
        window = self._joined.window
        for cut in self._cuts:
            own, codes = (
                tuple(each[at] for each, at in zip(both, cut, strict=True)) for both in (ts, self._joined.window_codes)
            )
            told = tuple(np.arange(at.start, at.stop) for at in cut)
            lists = Lists(own, codes, -1 if window is None else window, threads=1, told=told)
            self.found.append(KeyPairs(lists, ts, window, self._joined.left_keys))
        self.found.sort(key=lambda each: -each.pairs / max(1, len(each)))

    @property
    def pairs(self) -> int:
        """How many."""
        return sum(each.pairs for each in self.found)

    @property
    def by_key(self) -> Array:
        """Of each key."""
        return np.concatenate([each.by_key for each in self.found])

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(each.nbytes for each in self.found)

    def written(self, most: int) -> Iterator[Outputs]:
        """The first so many, those of the join with most per tuple first, and of its keys with most."""
        for each in self.found:
            yield from each.written(most)
            most -= min(most, each.pairs)

    def keys_among(self, pairs: int) -> float:
        """How many keys the first so many have."""
        keys = 0.0
        for each in self.found:
            keys += each.keys_among(min(pairs, each.pairs)) if pairs > 0 and each.pairs else 0.0
            pairs -= each.pairs
        return keys

    def drawn(self, which: Array, rate: Array, stands: Array, phase: float) -> Iterator[Outputs]:
        """A systematic sample of them, as of `KeyPairs`."""
        for each in self.found:
            yield from each.drawn(which, rate, stands, phase)


class Watch:
    """Follows the pairs of an exact join by a clock.

    first: as of `Rest`, once it was broken off; why: in words.
    """

    first: tuple[int, int] | None = None
    why = ""

    def __init__(self, choice: Choice, joined: Joinable, clock: Clock) -> None:
        self._choice, self._joined, self._clock = choice, joined, clock
        work, look = choice.work, choice.look
        self._tuples = sum(map(len, joined.streams))
        self._each = work.joining(work.tuples, work.keys, look.pairs) / max(1, self._tuples)
        self._pair, self._keyed = work.pair + work.far, work.keyed
        self._pairs = 0
        self._began: tuple[float, float] | None = None

    def until_late(self, parts: Iterator[Outputs]) -> Iterator[Outputs]:
        """The pairs, in the order in which they complete, until it shows that time will be over before their end."""
        held: Outputs | None = None
        for part in parts:
            if held is not None:
                yield held
            held = part
            self._pairs += len(part)
            if self._is_late(part):
                before, first = self._before(part)
                if len(before):
                    yield before
                    self.first = first
                    return
        if held is not None:
            yield held

    def _before(self, part: Outputs) -> tuple[Outputs, tuple[int, int]]:
        """The pairs of a part before those of its last arrival, and what comes first from that on."""
        (left, right), ts = (int(part.left[-1]), int(part.right[-1])), (self._joined.left.ts, self._joined.right.ts)
        if ts[1][right] >= ts[0][left]:  # of one time the left stream's come first
            own, first = part.right == right, (int(np.searchsorted(ts[0], ts[1][right], side="right")), right)
        else:
            own, first = part.left == left, (left, int(np.searchsorted(ts[1], ts[0][left], side="left")))
        others = np.flatnonzero(~own)
        return part.first(int(others[-1]) + 1 if others.shape[0] else 0), first

    def _is_late(self, part: Outputs) -> bool:
        now, grant, whole = self._clock.elapsed, self._choice.grant, self._choice.look.pairs
        tuples = min(self._tuples, int(part.left[-1]) + int(part.right[-1]) + 2)
        done = tuples * self._each + self._pairs * self._pair
        if self._began is None:
            self._began = now, done
            return False
        took, since = now - self._began[0], done - self._began[1]
        if took < max(_TOLD, _ENOUGH * grant) or since <= 0.0:
            return False
        pairs = whole - self._pairs
        if pairs <= 0.0:  # more than were expected
            pairs = self._pairs * (self._tuples / max(1, tuples) - 1.0)
        left, pace = (self._tuples - tuples) * self._each + pairs * self._pair, took / since
        ends = now + pace * left
        if ends <= grant * (_LATE + _UNSURE * left / (done + left)):
            return False
        listing = self._choice.work.listing(float(self._tuples - tuples), self._choice.work.keys)
        paid = (grant - now) / pace - listing
        if self._choice.plan.preference == "weighted":
            late = paid > 0.0 or left > listing
        else:
            late = paid / self._keyed > _CLEARLY * pairs * max(0.0, grant - now) / (pace * max(1.0, left))
        if late:
            self.why = (
                f"exact, after {now / 1e6:,.1f} ms and {self._pairs:,} pairs: all would have taken "
                f"{ends / 1e6:,.1f} of {grant / 1e6:,.1f} ms; the rest counted, then "
                + ("drawn" if self._choice.plan.preference == "weighted" else "written, the best keys first")
            )
        return late
