"""Which standing queries can run on one plan, or have a part of theirs run once: those in equal states.

Equal plans share at once where neither has seen anything the other has not.  One that is asked later begins with
nothing, as it would alone, and runs by itself until what the others had before has left their windows; then it joins.
The same goes for parts of plans (`nile.execution.live.shared.subplan`), once they have begun: the least one first, then
those above it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from nile.execution.live.exact_subscription import ExactSubscription
from nile.execution.live.running import Running
from nile.execution.live.shared.common import Family, could_share, is_alike, share
from nile.execution.live.shared.nested import nest, next_level
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
        self._families: list[Family] = []

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
        due = list(_due(self._parts))
        known = self._by_part() if due else {}
        for one in due:
            for other in _like(one, known):
                family = share(other.plan, one.plan)
                if family is None:
                    continue
                if family not in self._families:
                    self._families.append(family)
                self._look_above(family)
            while any(nest(one.plan, other.plan) for other in _nearly(one, known)):
                pass
            if not _like(one, known) and not _nearly(one, known):
                del self._parts[one]
        for family in [each for each in self._families if len(each.seen) < 2]:
            self._families.remove(family)
            for plan in family.plans:
                plan.run_on(None)

    def _look_above(self, family: Family) -> None:
        """Plans have come to read other parts, above which they may be equal."""
        for plan in family.plans:
            if len(plan.subplans) > 1:
                self._parts |= {one: _Try() for one in plan.readers}

    def _by_part(self) -> dict[object, list[ExactSubscription]]:
        """Those whose plans have parts that others may have, by these, and by the tuples that these read."""
        found: dict[object, list[ExactSubscription]] = {}
        for one in self._with_parts():
            for key in _keys(one.plan):
                found.setdefault(key, []).append(one)
        return found

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


def _keys(plan: Running) -> list[object]:
    """What is equal of plans that could share a part, or what it reads."""
    keys: list[object] = [part.key for part in plan.subplans]
    return [*keys, *(part.tuples for part in plan.subplans[:1] if part.tuples is not None)]


def _like(one: ExactSubscription, known: Mapping[object, Sequence[ExactSubscription]]) -> list[ExactSubscription]:
    """Who could read the same as it, and does not: one of each equal part, one of all that read some tuples."""
    parts: dict[int, ExactSubscription] = {}
    tuples: dict[int, ExactSubscription] = {}
    for other in (other for key in _keys(one.plan) for other in known.get(key, ())):
        plan = other.plan
        if other.paused or plan is one.plan or not could_share(plan, one.plan):
            continue
        if is_alike(plan, one.plan):
            parts[id(plan.common or plan)] = other
        else:
            tuples[id(plan if plan.common is None else plan.common.family)] = other
    return [*parts.values(), *tuples.values()]


def _nearly(one: ExactSubscription, known: Mapping[object, Sequence[ExactSubscription]]) -> list[ExactSubscription]:
    """Who reads the same part as it, and has the next larger one, too: one of each that runs."""
    found: dict[int, ExactSubscription] = {}
    for part in one.plan.subplans[1:]:
        for other in known.get(part.key, ()):
            plan = other.plan
            if not other.paused and plan is not one.plan and (level := next_level(plan, one.plan)) is not None:
                found[id(plan.nested[level - 1] if len(plan.nested) >= level else plan)] = other
    return list(found.values())
