"""Which standing queries can run on one plan, or have a part of theirs run once: those in equal states.

Equal plans share at once where neither has seen anything the other has not.  One that is asked later begins with
nothing, as it would alone, and runs by itself until what the others had before has left their windows; then it joins.
The same goes for parts of plans (`nile.execution.live.shared.subplan`), once they have begun.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from nile.execution.live.exact_subscription import ExactSubscription
from nile.execution.live.shared.common import Common, share
from nile.execution.live.subscription import Subscription
from nile.streams.live import LiveStream

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
        """Those that do not share a plan with all who could."""
        self._parts: dict[ExactSubscription, _Try] = {}
        """Those of which a part does not run with that of all who could."""
        self._commons: list[Common] = []

    def add(self, made: Subscription) -> None:
        """One more query, which shares from now on what it can."""
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
        self._again(one)
        if len(same) > 1:
            self.look()

    def look(self) -> None:
        """Between two rounds, when all have taken in the same: let those join others that now can."""
        for one in _due(self._apart):
            if any(one.join(other) for other in self._asked[one.shape] if other is not one and not other.paused):
                del self._apart[one]
        for one in _due(self._parts):
            for other in self._like(one):
                common = share(other.plan, one.plan)
                if common is not None and common not in self._commons:
                    self._commons.append(common)
            if not self._like(one):
                del self._parts[one]
        for common in [each for each in self._commons if len(each.plans) < 2]:
            self._commons.remove(common)
            for plan in list(common.plans):
                plan.run_on(None)

    def _like(self, one: ExactSubscription) -> list[ExactSubscription]:
        """Of each plan that has the same part and runs it elsewhere, one that reads it."""
        mine = one.plan
        found = {
            id(plan): other
            for other in self._with_parts()
            if (plan := other.plan) is not mine
            and plan.subplan is not None
            and mine.subplan is not None
            and plan.subplan.key == mine.subplan.key
            and (plan.common is None or plan.common is not mine.common)
            and not other.paused
        }
        return list(found.values())

    def _with_parts(self) -> Iterator[ExactSubscription]:
        """Those whose plans have parts that others may have, too."""
        for same in self._asked.values():
            if same[0].plan.subplan is not None:
                yield from (one for one in same if type(one) is ExactSubscription)

    def part(self, stream: LiveStream | None = None) -> None:
        """Have parts run apart in plans that read a stream, None: in all, until `look` finds their states equal."""
        for one in list(self._with_parts()):
            if one.plan.common is not None and (stream is None or stream in one.plan.streams.values()):
                one.plan.run_on(None)
                self._parts[one] = _Try()

    def _again(self, one: ExactSubscription) -> None:
        if len(self._asked[one.shape]) > 1:
            self._apart[one] = _Try()
        if type(one) is ExactSubscription and one.plan.subplan is not None:
            self._parts[one] = _Try()

    def _forget(self, one: ExactSubscription) -> None:
        self._take_out(one, one.shape)

    def _take_out(self, one: ExactSubscription, shape: object) -> None:
        same = self._asked[shape]
        same.remove(one)
        self._apart.pop(one, None)
        self._parts.pop(one, None)
        if not same:
            del self._asked[shape]


def _due(waiting: dict[ExactSubscription, _Try]) -> Iterator[ExactSubscription]:
    """Those that wait whose time to look has come."""
    for one, due in list(waiting.items()):
        if one in waiting and not one.paused:
            due.rounds -= 1
            if not due.rounds:
                due.gap *= 2
                due.rounds = due.gap
                yield one
