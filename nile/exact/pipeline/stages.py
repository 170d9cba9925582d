"""A plan as operators with queues between them, worked on one by one, in any order, with the same output.

Every operator is asked for the same instants in the same order, whoever decides when: what one makes up to an instant
waits in the queue of the one above until that one comes to it.  So no answer depends on the schedule.
Source: STREAM (CIDR 2003), sections 3 and 4.2: operators, queues, and a scheduler that calls their run methods.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from nile.exact.pipeline.figures import Counted
from nile.exact.pipeline.schedule import EARLIEST, Delta
from nile.exact.pipeline.sources.incoming import Incoming

__all__ = ["Ran", "Stage", "Stages"]

_MOST = 1 << 16  # events of a step
_FIRST = 1 << 8
_PAIRS = 1 << 20  # pairs that a step should not make more of


@dataclass(slots=True)
class Stage:
    """One operator.  inputs, below: those whose queues it reads, and where they are; arrivals: the streams it reads
    itself; above: for whom it fills its own queue, None at the root; turn: how many instants it has come to.
    """

    operator: Counted
    inputs: tuple[Counted, ...]
    below: tuple[int, ...]
    arrivals: tuple[Incoming, ...]
    above: int | None = None
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Ran:
    """What an operator did: tuples that it took and made, whether these are the output of the plan."""

    came: int
    went: int
    told: bool


@dataclass
class Stages:
    """The operators of a plan, inputs before what reads them, and the instants that they have yet to come to.

    marks: of each stream the instant by which it has so many events more, None where it has fewer; pairs: made by joins
    so far, None without any; tell: takes what comes out at the root; came: tuples pushed so far; pushed: whether all
    that streams bring is pushed, and none is made by operators.
    """

    HELD: ClassVar = ("stages", "to", "done", "steps")
    DERIVED: ClassVar = (
        "marks",
        "pairs",
        "tell",
        "_instants",
        "_first",
        "_last",
        "_events",
        "_asked",
        "came",
        "pushed",
        "_few",
    )

    stages: list[Stage]
    marks: Sequence[Callable[[int], int | None]]
    pairs: Callable[[], int] | None
    tell: Callable[[Delta], None]
    pushed: bool
    to: int = EARLIEST
    done: int = EARLIEST
    steps: int = 0
    came: int = 0
    _instants: deque[int] = field(default_factory=deque)
    _first: int = 0
    _last: int = EARLIEST
    _events: int = _FIRST
    _asked: int = _FIRST
    _few: int = 0  # as long as fewer than so many came, no stream has as many events as a step may have

    def resume(self, done: int) -> None:
        """Go on after an instant that all have come to."""
        self.to = self.done = self._last = done

    @property
    def waits(self) -> bool:
        """Whether any operator has something to come to."""
        return self.done < self.to

    def waiting(self, number: int) -> tuple[int, int]:
        """(tuples, bytes) that an operator could take: what streams have brought for instants that are not over is not
        among them.
        """
        stage = self.stages[number]
        own = [(each.waiting(self.to), each.memory) for each in stage.arrivals]
        tuples = sum(each.tuples for each in stage.inputs) + sum(many for many, _ in own)
        return tuples, sum(each.waiting_bytes for each in stage.inputs) + sum(held for many, held in own if many)

    def ready(self) -> list[int]:
        """Which can run now."""
        self._level()
        decided, more = self._first + len(self._instants), self._last < self.to
        found = []
        for number, stage in enumerate(self.stages):
            if stage.inputs:
                if stage.turn < min(self.stages[below].turn for below in stage.below):
                    found.append(number)
            elif stage.turn < decided or more:
                found.append(number)
        return found

    def paths(self) -> list[tuple[int, ...]]:
        """From each operator that reads no other up to the root."""
        found = []
        for number, stage in enumerate(self.stages):
            if not stage.inputs:
                path = [number]
                while (above := self.stages[path[-1]].above) is not None:
                    path.append(above)
                found.append(tuple(path))
        return found

    def run(self, number: int) -> Ran:
        """Let one that is ready come to its next instant."""
        self._level()
        stage = self.stages[number]
        if stage.turn == self._first + len(self._instants):
            self._decide()
        now = self._instants[stage.turn - self._first]
        before, pairs = sum(each.taken for each in stage.arrivals), 0 if self.pairs is None else self.pairs()
        came = sum(each.first for each in stage.inputs)
        if stage.above is not None:
            went = stage.operator.fill(now)
        else:
            delta = stage.operator.step(now)
            went = len(delta)
            self._instants.popleft()
            self._first += 1
            self.done = now
            self.tell(delta)
        stage.turn += 1
        if self.pairs is not None:
            self._measured(self.pairs() - pairs)
        return Ran(came + sum(each.taken for each in stage.arrivals) - before, went, stage.above is None)

    def settle(self) -> None:
        """Let all come to all instants that wait, one after another."""
        if self.done >= self.to:
            return
        root, instants, pairs = self.stages[-1].operator, self._instants, self.pairs
        while instants or self._last < self.to:
            if not instants:
                self._decide()
            now, before = instants[0], 0 if pairs is None else pairs()
            delta = root.step(now)
            if pairs is not None:
                self._measured(pairs() - before)
            instants.popleft()
            self._first += 1
            self.done = now
            self.tell(delta)

    def _level(self) -> None:
        """All have come as far as the last of them, the root, also where `settle` has let them."""
        for stage in self.stages:
            stage.turn = max(stage.turn, self._first)

    def _decide(self) -> None:
        least, before, last = self.to, self._last, self._events - 1
        if self.came >= self._few or last < _MOST - 1:
            for mark in self.marks:
                at = mark(last)
                if at is not None and before < at < least:
                    least = at
            if self.pushed and all(mark(_MOST // 2) is None for mark in self.marks):
                self._few = self.came + _MOST // 2 - 1
        self._last = least
        self._instants.append(least)
        self._asked = self._events
        if self._events < _MOST:
            self._events = min(_MOST, 2 * self._events)
        self.steps += 1

    def _measured(self, made: int) -> None:
        if made > _PAIRS // 2:
            self._events = max(16, self._asked * _PAIRS // (2 * made))
