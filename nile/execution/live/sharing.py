"""Which standing queries can run on one plan: those with equal plans and equal states.

Equal plans share at once where neither has seen anything the other has not.  One that is asked later begins with
nothing, as it would alone, and runs by itself until what the others had before has left their windows; then it joins.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from nile.execution.live.exact_subscription import ExactSubscription
from nile.execution.live.subscription import Subscription

__all__ = ["Sharing"]


@dataclass(slots=True)
class _Try:
    """When to look again: after so many rounds, then after twice as many, since a look costs as much as the state."""

    rounds: int = 1
    gap: int = 1


class Sharing:
    """The exact standing queries of a database by what they ask."""

    def __init__(self) -> None:
        self._asked: dict[object, list[ExactSubscription]] = {}
        self._apart: dict[ExactSubscription, _Try] = {}

    def add(self, made: Subscription) -> None:
        """One more query, which shares a plan from now on where it can."""
        if not isinstance(made, ExactSubscription):
            return
        made.apart = self._again
        made.ending.append(partial(self._forget, made))
        self._file(made)

    def moved(self, one: ExactSubscription, was: object) -> None:
        """One that runs on another plan now.  was: its shape before."""
        self._take_out(one, was)
        self._file(one)

    def _file(self, one: ExactSubscription) -> None:
        same = self._asked.setdefault(one.shape, [])
        same.append(one)
        if len(same) > 1:
            self._again(one)
            self.look()

    def look(self) -> None:
        """Between two rounds, when all have taken in the same: let those join others that now can."""
        for one, due in list(self._apart.items()):
            if one.paused:
                continue
            due.rounds -= 1
            if due.rounds:
                continue
            if any(one.join(other) for other in self._asked[one.shape] if other is not one and not other.paused):
                del self._apart[one]
            else:
                due.gap *= 2
                due.rounds = due.gap

    def _again(self, one: ExactSubscription) -> None:
        self._apart[one] = _Try()

    def _forget(self, one: ExactSubscription) -> None:
        self._take_out(one, one.shape)

    def _take_out(self, one: ExactSubscription, shape: object) -> None:
        same = self._asked[shape]
        same.remove(one)
        self._apart.pop(one, None)
        if not same:
            del self._asked[shape]
