"""What happened to a plan, and what each thing led to, until every reader of the plan has taken it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nile.exact.pipeline.pipeline import Changes
from nile.execution.live.chosen import ByValue, Sought, chosen
from nile.summaries.heavy import pa

__all__ = ["Event", "Readers"]

_MANY = 16
"""Readers from which on sorting what came costs less than that each looks at all of it."""


@dataclass(slots=True)
class Event:
    """What one thing that happened led to.  waits: readers that have not taken it; made: what tails made of it."""

    waits: int
    found: list[Changes] = field(default_factory=list)
    fault: Exception | None = None
    made: dict[Any, Any] = field(default_factory=dict)
    by_value: dict[tuple[int, str], ByValue] = field(default_factory=dict)

    def where(self, wanted: tuple[Sought, ...]) -> list[Changes] | None:
        """Of what it led to, the rows that satisfy conditions; None: look at them."""
        out = []
        for number, each in enumerate(self.found):
            places = chosen(partial(self._by_value, number, each), wanted)
            if places is None:
                return None
            if places.shape[0] == len(each):
                out.append(each)
            elif places.shape[0]:
                out.append(Changes(each.ts[places], each.sign[places], each.rows.take(pa.array(places))))
        return out

    def _by_value(self, number: int, changes: Changes, column: str) -> ByValue:
        if (number, column) not in self.by_value:
            self.by_value[number, column] = ByValue(changes.rows.column(changes.rows.schema.get_field_index(column)))
        return self.by_value[number, column]


class Readers:
    """Who reads a plan, in the order in which they came, and the events that some of them have not taken."""

    def __init__(self) -> None:
        self.readers: list[Any] = []
        self._events: deque[Event] = deque()
        self._first = 0

    @property
    def turn(self) -> int:
        """How many events there were."""
        return self._first + len(self._events)

    def leave(self, reader: Any, turn: int) -> None:
        """One reader less, which has taken the events before `turn`."""
        if reader in self.readers:
            self.readers.remove(reader)
            for event in list(self._events)[turn - self._first :]:
                event.waits -= 1
            self._free()

    def take(
        self,
        turn: int,
        work: Callable[[], list[Changes]],
        form: Callable[[list[Changes], bool], Any],
        key: Any,
        wanted: tuple[Sought, ...],
    ) -> Any:
        """What event number `turn` led to, in the form of readers of this key; None: to nothing for them.

        wanted: what the lowest selection of the form looks for; form: of changes, and whether these are all like that.
        work: what happened, done by whoever comes first.  Raises what it raised, to every reader.
        """
        if turn == self._first and not self._events and len(self.readers) <= 1:
            self._first += 1
            changes = work()
            return form(changes, False) if changes else None
        event = self._event(turn, work, 1)
        if not event.found:
            return None
        if key not in event.made:
            found = event.where(wanted) if wanted and len(self.readers) >= _MANY else None
            if found is None:
                event.made[key] = form(event.found, False)
            else:
                event.made[key] = form(found, True) if found else None
        return event.made[key]

    def happened(self, turn: int, work: Callable[[], list[Changes]], readers: int) -> list[Changes]:
        """What event number `turn` led to, for so many readers at once.  Raises what it raised."""
        if turn == self.turn and len(self.readers) <= readers:
            self._first += 1
            return work()
        return self._event(turn, work, readers).found

    def _event(self, turn: int, work: Callable[[], list[Changes]], readers: int) -> Event:
        """Event number `turn`, which so many readers take now."""
        if turn == self.turn:
            event = Event(len(self.readers))
            try:
                event.found = work()
            except Exception as error:
                event.fault = error
            self._events.append(event)
        event = self._events[turn - self._first]
        event.waits -= readers
        self._free()
        if event.fault is not None:
            raise event.fault
        return event

    def _free(self) -> None:
        while self._events and not self._events[0].waits:
            self._events.popleft()
            self._first += 1
