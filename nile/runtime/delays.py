"""How many tuples of the parents' stream come after a child until its own parent does.

Both streams are taken in up to an instant that both have passed.  Of one instant children come first: where parents do,
in a query, the delay there is less.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nile.exact.state.held import MOST, Held, State
from nile.runtime.seen import Seen

__all__ = ["Delays"]

Array = np.ndarray[Any, Any]
_WAITING = 1 << 16  # children without a parent that are kept to tell their delay


class Delays:
    """tuples: children; violations: those whose parent was not among the k next, each counted when that is certain."""

    HELD: ClassVar = ("tuples", "violations", "never", "_most", "_parents", "_seen", "_keys", "_since", "_counted")
    DERIVED: ClassVar = ("_waiting",)

    def __init__(self) -> None:
        self.tuples = 0
        self.violations = 0
        self.never = 0  # children forgotten without a parent
        self._most = 0
        self._parents = 0
        self._seen = Seen()
        self._keys = np.zeros(0, np.int64)  # of children that wait, how many parents there were, whether counted
        self._since = np.zeros(0, np.int64)
        self._counted = np.zeros(0, bool)
        self._waiting: tuple[list[tuple[Array, Array]], list[tuple[Array, Array]]] = ([], [])

    @property
    def measured(self) -> int | None:
        """The least k that would have done; None: some child has found no parent so far that is overdue."""
        overdue = self._parents - int(self._since.min(initial=self._parents))
        return None if self.never or self._counted.any() else max(self._most, overdue)

    def come(self, parents: bool, ts: Array, keys: Array) -> None:
        """Tuples of one of the streams (int64 [n] each), which wait for `passed`."""
        self._waiting[int(parents)].append((ts, keys))

    def passed(self, to: int, within: int | None) -> None:
        """Work on all up to the instant `to`.  within: k, as it is now; None: only measure."""
        (child_ts, children), (parent_ts, parents) = (self._due(number, to) for number in range(2))
        before = self._parents + np.searchsorted(parent_ts, child_ts, "left")
        self.tuples += children.shape[0]
        news, first = np.unique(parents, return_index=True)
        keys = np.append(self._keys, children)
        since = np.append(self._since, before)
        counted = np.append(self._counted, np.zeros(children.shape[0], bool))
        here = self._seen.has(keys)
        place = np.searchsorted(news, keys)
        place[place == news.shape[0]] = 0
        found = ~here & (news[place] == keys) if news.shape[0] else np.zeros(keys.shape[0], bool)
        delay = np.zeros(keys.shape[0], np.int64)
        delay[found] = np.maximum(self._parents + first[place[found]] + 1 - since[found], 0)
        self._parents += parents.shape[0]
        self._seen.add(news)
        self._most = max(self._most, int(delay.max(initial=0)))
        waits = ~(here | found)
        if within is not None:
            late = ((found & (delay > within)) | (waits & (self._parents - since >= within))) & ~counted
            self.violations += int(late.sum())
            counted = counted | late
        keys, since, counted = keys[waits], since[waits], counted[waits]
        if (more := keys.shape[0] - _WAITING) > 0:
            self.never += more
            keys, since, counted = keys[more:], since[more:], counted[more:]
        self._keys, self._since, self._counted = keys, since, counted

    def _due(self, number: int, to: int) -> tuple[Array, Array]:
        parts = self._waiting[number]
        ts = np.concatenate([np.zeros(0, np.int64), *(each[0] for each in parts)])
        keys = np.concatenate([np.zeros(0, np.int64), *(each[1] for each in parts)])
        end = int(np.searchsorted(ts, to, "right"))
        parts[:] = [(ts[end:], keys[end:])] if end < ts.shape[0] else []
        return ts[:end], keys[:end]

    @property
    def memory(self) -> int:
        """Bytes."""
        waiting = sum(ts.nbytes + keys.nbytes for part in self._waiting for ts, keys in part)
        return self._seen.memory + int(self._keys.nbytes + self._since.nbytes + self._counted.nbytes) + waiting

    def capture(self) -> State:
        """What is held, what waits for the other stream too."""
        state: State = {
            "tuples": self.tuples, "violations": self.violations, "never": self.never, "most": self._most,
            "parents": self._parents, "seen": self._seen.capture(), "keys": self._keys, "since": self._since,
            "counted": self._counted,
        }  # fmt: skip
        for name, part in zip(("child", "parent"), self._waiting, strict=True):
            state[f"{name} ts"] = np.concatenate([np.zeros(0, np.int64), *(each[0] for each in part)])
            state[f"{name} keys"] = np.concatenate([np.zeros(0, np.int64), *(each[1] for each in part)])
        return state

    def restore(self, held: Held) -> None:
        """Put it into a new one.  Raises EnvelopeError."""
        self.tuples, self.violations = held.integer("tuples", 0, MOST), held.integer("violations", 0, MOST)
        self.never, self._most = held.integer("never", 0, MOST), held.integer("most", 0, MOST)
        self._parents = held.integer("parents", 0, MOST)
        self._seen.restore(held, "seen")
        self._keys = held.array("keys", "int64", (None,))
        self._since = held.array("since", "int64", self._keys.shape)
        self._counted = held.array("counted", "bool", self._keys.shape)
        for name, part in zip(("child", "parent"), self._waiting, strict=True):
            ts = held.rising(f"{name} ts")
            keys = held.array(f"{name} keys", "int64", ts.shape)
            if ts.shape[0]:
                part.append((ts, keys))
        held.end()
