"""A standing query whose rows an index may find, for it and for others at once, until it needs to go its own way."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from nile.base.interrupts import INTERRUPTS
from nile.exact.pipeline.pipeline import Changes
from nile.exact.pipeline.tail import Tail
from nile.execution.choice import Choice
from nile.execution.live.chosen import Sought
from nile.execution.live.indexed.deliveries import Form
from nile.execution.live.indexed.selecting import Place, is_plain
from nile.execution.live.into import Into
from nile.execution.live.running import Running
from nile.execution.live.shared.common import readers_of
from nile.execution.live.subscription import Subscription
from nile.summaries.heavy import pa

__all__ = ["Indexed"]


class Indexed(Subscription):
    """What an index counts and keeps for a query is fetched before anybody looks; from outside there is no difference.

    An index keeps its rows where they only pass through; else it is `given` them in the push that brings them.
    """

    choice: Choice
    _plan: Running
    _tail: Tail
    _sought: tuple[Sought, ...]
    _passed_on: tuple[str, ...] | None
    _seen: dict[str, int] | None
    _changes: int
    _place: Place | None = None
    _own_turn = 0

    @property
    def _turn(self) -> int:
        """How many events of its plan it has taken."""
        return self._own_turn if self._place is None else self._place.group.turn

    @_turn.setter
    def _turn(self, turn: int) -> None:
        self._own_turn = turn

    @property
    def sought(self) -> tuple[Sought, ...]:
        """All that its rows satisfy; none: that is not known, or they are not only selected."""
        if self.closed or self.paused or self.into is not None or self._own_turn != self._plan.turn:
            return self._sought if self._place is not None else ()
        return self._sought if is_plain(self._plan, self._sought) else ()

    @property
    def form(self) -> Form | None:
        """How its rows are made of those of the plan; None: it has to be given them."""
        below = self._plan.pipeline.schema
        names = self._passed_on
        if names is None or self._callback is not None or self._unread_limit is not None:
            return None
        columns = tuple(below.get_field_index(name) for name in names)
        timed = self.choice.emit == "stream"
        types = self.schema.types[1:] if timed else self.schema.types
        if min(columns, default=0) < 0 or [below.field(at).type for at in columns] != types:
            return None
        return Form(columns, timed, self.schema)

    @property
    def room(self) -> float:
        """Bytes of outputs that it may find before pushes have to wait for its reader."""
        if self._unread_limit is not None:
            return 0.0
        return math.inf if self._most_bytes is None else float(self._most_bytes - self.unread_bytes)

    @property
    def part_sharers(self) -> tuple[Subscription, ...]:
        common = self._plan.common
        return () if common is None else readers_of(common.plans)

    @property
    def nested_sharers(self) -> tuple[Subscription, ...]:
        return readers_of(self._plan.nested[0].plans) if self._plan.nested else ()

    @property
    def tuple_sharers(self) -> tuple[Subscription, ...]:
        common = self._plan.common
        return () if common is None or common.family.windows is None else readers_of(common.family.plans)

    def indexed(self, place: Place) -> None:
        """From now on an index finds its rows."""
        self._place = place
        if self._hearing:
            place.group.heed(place.number)

    def unindexed(self) -> None:
        """Find its rows itself from now on, if an index did."""
        if (place := self._place) is not None:
            self._fetch()
            self._own_turn, found = place.group.turn, place.group.found(place.number)
            place.group.leave(place.number)
            self._place = None
            self._outputs += found
        self.regroup()

    def given(self, changes: Sequence[Changes], *, selected: bool) -> None:
        """What happened, a part of a change: of it, what its condition selects.  selected: that is all of it."""
        self._work(self._take, changes, selected)

    def faulted(self, error: Exception) -> None:
        """What happened cannot be worked on, and it ends."""
        self._work(_raise, error)

    def say_more(self) -> None:
        """Tell whoever waits that there is more to read."""
        self._say_more()

    def attach(self, callback: Callable[[pa.RecordBatch], None]) -> None:
        with self._lock:
            self.unindexed()
            super().attach(callback)

    def bound(
        self, unread: int | None, when_full: str, tick: Callable[[], None], most_bytes: int | None = None
    ) -> None:
        with self._lock:
            self.unindexed()
            super().bound(unread, when_full, tick, most_bytes)

    def fill(self, into: Into) -> None:
        self.unindexed()
        super().fill(into)

    def _end(self) -> None:
        self.unindexed()
        super()._end()

    def _fetch(self) -> None:
        if self._place is not None:
            with self._lock, INTERRUPTS:
                self._bring(self._place)

    def _bring(self, place: Place | None) -> None:
        if place is not None:  # it may have left the index while it waited for the lock
            fetched = place.group.fetch(place.number)
            if self._seen is not None and fetched.tuples:
                for name in self._seen:  # of the one stream
                    self._seen[name] += fetched.tuples
            if fetched.come or fetched.gone:
                self._tail.count(fetched.come, fetched.gone)
                self._changes += fetched.come
            for batch in fetched.batches:
                self._waits.append(batch)

    def _elsewhere(self) -> int:
        place = self._place
        return 0 if place is None else place.group.found(place.number)

    def _bytes_elsewhere(self) -> int:
        place = self._place
        return 0 if place is None else place.group.bytes_of(place.number)

    def _heed(self) -> None:
        if (place := self._place) is not None:
            place.group.heed(place.number)

    @abstractmethod
    def _take(self, found: Sequence[Changes], selected: bool = False) -> Any:
        """Hand out what its tail makes of changes."""


def _raise(error: Exception) -> None:
    raise error
