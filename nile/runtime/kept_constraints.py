"""How closely a stream keeps a constraint: the smallest k that would have held so far, and its violations.

k of what lies further back than a horizon is not known exactly: it is told as unknown, never as too little.  A key that
has ever been there is never forgotten (`Seen`), so that nothing against a constraint goes uncounted.
Source: STREAM (CIDR 2003), section 4.1; the bulletin (2003), section 5, asks for the monitor.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np

from nile.exact.state.held import MOST, Held, State
from nile.runtime.seen import Seen

__all__ = ["Disorder", "Doubles", "Gaps", "Measure", "Punctuated"]

Array = np.ndarray[Any, Any]
_HORIZON = 1 << 12  # tuples back, at least, within which k is known exactly


class Measure(Protocol):
    """What all of them tell.  measured: the least k that would have done; None: more than is known."""

    tuples: int
    violations: int

    @property
    def measured(self) -> int | None: ...

    @property
    def memory(self) -> int: ...

    def capture(self) -> State: ...

    def restore(self, held: Held) -> None: ...


class _OfOne:
    """A measure of one stream.  far: tuples that go against what lies beyond the horizon."""

    HELD: ClassVar[tuple[str, ...]] = ("tuples", "violations", "far", "_most")

    def __init__(self) -> None:
        self.tuples = 0
        self.violations = 0
        self.far = 0
        self._most = 0

    @property
    def measured(self) -> int | None:
        """The least k that would have done; None: more than is known."""
        return None if self.far else self._most

    def _count(self, gaps: Array, far: int, within: int | None) -> None:
        self._most = max(self._most, int(gaps.max(initial=0)))
        self.far += far
        if within is not None:
            self.violations += far + int((gaps > within).sum())

    def capture(self) -> State:
        return {"tuples": self.tuples, "violations": self.violations, "far": self.far, "most": self._most}

    def restore(self, held: Held) -> None:
        self.tuples = held.integer("tuples", 0, MOST)
        self.violations = held.integer("violations", 0, MOST)
        self.far = held.integer("far", 0, MOST)
        self._most = held.integer("most", 0, MOST)


def _horizon(within: int | None) -> int:
    return _HORIZON if within is None else max(_HORIZON, 2 * within)


class Disorder(_OfOne):
    """Of an order: how many tuples back the first greater value lies.  Memory: a word for each of its last maxima."""

    HELD: ClassVar = ("_at", "_maxima", "_before")

    def __init__(self) -> None:
        super().__init__()
        self._at = np.zeros(0, np.int64)  # where the greatest value so far rose, and to what
        self._maxima = np.zeros(0, np.int64)
        self._before: int | None = None  # the greatest value before these

    def push(self, values: Array, within: int | None) -> None:
        """int64 [n], in the stream's order.  within: k, as it is now."""
        if not values.shape[0]:
            return
        last = self._maxima[-1:] if self._maxima.shape[0] else self._none()
        greatest = np.maximum.accumulate(np.append(last, values))
        rises = np.flatnonzero(greatest[1:] > greatest[:-1])
        if self._before is None and not self._maxima.shape[0] and (not rises.shape[0] or rises[0] > 0):
            rises = np.append(0, rises)  # of the least value there is
        own = self.tuples + np.arange(values.shape[0])
        at = np.append(self._at, own[rises])
        maxima = np.append(self._maxima, values[rises])
        first = np.searchsorted(maxima, values, "right")
        inside = first < maxima.shape[0]
        gaps = np.zeros(values.shape[0], np.int64)
        gaps[inside] = np.maximum(own[inside] - at[first[inside]], 0)
        far = np.zeros(values.shape[0], bool) if self._before is None else values < self._before
        self.tuples += values.shape[0]
        self._count(gaps[~far], int(far.sum()), within)
        keep = max(0, int(np.searchsorted(at, self.tuples - _horizon(within))))
        keep = min(keep, at.shape[0] - 1)
        if keep:
            self._before = int(maxima[keep - 1])
        self._at, self._maxima = at[keep:], maxima[keep:]

    def _none(self) -> Array:
        return np.full(1, np.iinfo(np.int64).min if self._before is None else self._before)

    @property
    def memory(self) -> int:
        """Bytes."""
        return int(self._at.nbytes + self._maxima.nbytes)

    def capture(self) -> State:
        return {**super().capture(), "at": self._at, "maxima": self._maxima, "before": self._before}

    def restore(self, held: Held) -> None:
        super().restore(held)
        self._at = held.rising("at")
        self._maxima = held.rising("maxima", self._at.shape[0])
        self._before = held.integer_or_none("before")
        held.end()


class Gaps(_OfOne):
    """Of clusters: how many other tuples lie between one of a value and the next.  Memory: 16 bytes a recent value."""

    HELD: ClassVar = ("_values", "_last", "_gone")

    def __init__(self) -> None:
        super().__init__()
        self._values = np.zeros(0, np.int64)  # ascending, and where each was last
        self._last = np.zeros(0, np.int64)
        self._gone = Seen()

    def push(self, values: Array, within: int | None) -> None:
        """int64 [n], in the stream's order.  within: k, as it is now."""
        if not values.shape[0]:
            return
        order = np.argsort(values, kind="stable")
        ranked, own = values[order], self.tuples + order
        again = ranked[1:] == ranked[:-1]
        gaps = own[1:][again] - own[:-1][again] - 1
        begin = np.append(True, ~again)
        first, ends = ranked[begin], own[np.append(np.flatnonzero(begin)[1:] - 1, ranked.shape[0] - 1)]
        place = np.searchsorted(self._values, first)
        place[place == self._values.shape[0]] = 0
        known = self._values[place] == first if self._values.shape[0] else np.zeros(first.shape[0], bool)
        gaps = np.append(gaps, own[begin][known] - self._last[place[known]] - 1)
        far = int(self._gone.has(first[~known]).sum())
        self.tuples += values.shape[0]
        self._count(gaps, far, within)
        stay = np.ones(self._values.shape[0], bool)
        stay[place[known]] = False
        whole, last = np.append(self._values[stay], first), np.append(self._last[stay], ends)
        late = last < self.tuples - _horizon(within)
        self._gone.add(whole[late])
        order = np.argsort(whole[~late])
        self._values, self._last = whole[~late][order], last[~late][order]

    @property
    def memory(self) -> int:
        """Bytes."""
        return int(self._values.nbytes + self._last.nbytes) + self._gone.memory

    def capture(self) -> State:
        return {**super().capture(), "values": self._values, "last": self._last, "gone": self._gone.capture()}

    def restore(self, held: Held) -> None:
        super().restore(held)
        self._values = held.rising("values")
        self._last = held.array("last", "int64", self._values.shape)
        self._gone.restore(held, "gone")
        held.end()


class Doubles(_OfOne):
    """Of parents: tuples whose key has been there before.  It needs no k, and tells 0 where there are none."""

    HELD: ClassVar = ("_seen",)

    def __init__(self) -> None:
        super().__init__()
        self._seen = Seen()

    def push(self, values: Array, within: int | None) -> None:
        """int64 [n], the parents' keys; within is not looked at."""
        del within
        fresh = np.unique(values[~self._seen.has(values)])
        again = values.shape[0] - fresh.shape[0]
        self.tuples += values.shape[0]
        self.violations += again
        self.far += again
        self._seen.add(fresh)

    @property
    def memory(self) -> int:
        """Bytes."""
        return self._seen.memory

    def capture(self) -> State:
        return {**super().capture(), "seen": self._seen.capture()}

    def restore(self, held: Held) -> None:
        super().restore(held)
        self._seen.restore(held, "seen")
        held.end()


class Punctuated(_OfOne):
    """Of punctuations: tuples of values of which it was said that no more come.  It needs no k."""

    HELD: ClassVar = ("_seen", "_said")

    def __init__(self) -> None:
        super().__init__()
        self._seen = Seen()
        self._said: list[tuple[int, Array]] = []  # (instant after which none comes, values), not reached yet

    def say(self, at: int, values: Array) -> None:
        """After the instant `at`, none before those said before, no tuple of these values (int64 [n]) comes."""
        self._said.append((at, values))

    def come(self, ts: Array, values: Array) -> None:
        """Tuples in order: int64 [n] each."""
        self.tuples += values.shape[0]
        begin = 0
        while begin < values.shape[0]:
            end = values.shape[0]
            while self._said and self._said[0][0] < ts[begin]:
                self._seen.add(self._said.pop(0)[1])
            if self._said:
                end = int(np.searchsorted(ts, self._said[0][0], "right"))
            against = int(self._seen.has(values[begin:end]).sum())
            self.violations += against
            self.far += against
            begin = end

    @property
    def memory(self) -> int:
        """Bytes."""
        return self._seen.memory + int(sum(values.nbytes for _, values in self._said))

    def capture(self) -> State:
        said = [np.full(values.shape[0], at) for at, values in self._said]
        nothing = np.zeros(0, np.int64)
        return {
            **super().capture(),
            "seen": self._seen.capture(),
            "at": np.concatenate([nothing, *said]),
            "said": np.concatenate([nothing, *(values for _, values in self._said)]),
        }

    def restore(self, held: Held) -> None:
        super().restore(held)
        self._seen.restore(held, "seen")
        at = held.rising("at")
        values = held.array("said", "int64", at.shape)
        cuts = np.flatnonzero(at[1:] != at[:-1]) + 1
        self._said = [
            (int(when[0]), each)
            for when, each in zip(np.split(at, cuts), np.split(values, cuts), strict=True)
            if each.shape[0]
        ]
        held.end()
