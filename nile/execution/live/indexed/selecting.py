"""Standing selections on one plan over one stream, whose rows an index over their conditions finds, for all at once.

What a push costs depends on what it brings to them, not on how many they are: a query's rows wait as a slice of one
batch until somebody reads them, and what is counted of each query is counted in arrays.  Queries whose projections
compute something, or that have a callback or a limit, are handed what they find in the push that brings it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from nile.exact.pipeline.pipeline import Changes
from nile.execution.live.chosen import Sought
from nile.execution.live.indexed.deliveries import Deliveries, Form
from nile.execution.live.indexed.predicates import PredicateIndex, is_indexable
from nile.execution.live.running import Running
from nile.streams.live import LiveStream
from nile.streams.manager import TupleBatch
from nile.summaries.errors import NileError
from nile.summaries.heavy import pa

__all__ = ["LEAST", "Fetched", "Place", "Selecting", "Selection", "is_plain"]

Array = np.ndarray[Any, Any]
LEAST = 16
"""Queries from which on an index is made."""


class Selection(Protocol):
    """A standing query, as an index deals with it."""

    @property
    def streams(self) -> Mapping[str, LiveStream]:
        """The live streams it reads, by name."""

    @property
    def sought(self) -> tuple[Sought, ...]:
        """All that its rows satisfy."""

    @property
    def form(self) -> Form | None:
        """How its rows are made of those of the plan; None: something is computed."""

    @property
    def full(self) -> bool:
        """Whether pushes have to wait for its reader."""

    @property
    def room(self) -> float:
        """Bytes of outputs that it may find before that may be so."""

    @property
    def reached(self) -> int | None:
        """The instant up to which it has told all."""

    @property
    def unread_bytes(self) -> int:
        """Of outputs that nobody has read."""

    def indexed(self, place: Place) -> None:
        """From now on an index finds its rows."""

    def unindexed(self) -> None:
        """It does so itself again."""

    def given(self, changes: Sequence[Changes], *, selected: bool) -> None:
        """What happened: of it, what its condition selects."""

    def faulted(self, error: Exception) -> None:
        """What happened cannot be worked on, and it ends."""

    def say_more(self) -> None:
        """Tell whoever waits that there is more to read."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a query is in an index."""

    group: Selecting
    number: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """What has happened since a query last looked: tuples of the stream, rows it selected (+1 and -1), its outputs."""

    tuples: int
    come: int
    gone: int
    batches: list[pa.RecordBatch]


def is_plain(plan: Running, sought: Sequence[Sought]) -> bool:
    """Whether an index can find the rows of selections on a plan: it is one stream, and its columns are comparable."""
    schema = plan.pipeline.schema
    nested = any(pa.types.is_dictionary(each.type) or pa.types.is_nested(each.type) for each in schema)
    return plan.is_stream and not nested and is_indexable(sought, schema)


class Selecting:
    """The index over some queries on one plan, which are level with it."""

    def __init__(self, plan: Running, members: Sequence[Selection]) -> None:
        self.plan = plan
        self.members: list[Selection | None] = list(members)
        self._there = len(members)
        self.turn = plan.turn
        """Up to which event all of them have taken what happened."""
        many = len(members)
        schema = plan.pipeline.schema
        self._index = PredicateIndex([each.sought for each in members], schema)
        forms = [each.form for each in members]
        self._lazy = np.array([form is not None for form in forms])
        plain = Form(tuple(range(len(schema))), False, schema)
        self._deliveries = Deliveries([plain if form is None else form for form in forms])
        self._tuples = 0
        self._come, self._gone = np.zeros(many, np.int64), np.zeros(many, np.int64)
        self._fetched = np.zeros((many, 3), np.int64)
        self._heeded = np.zeros(many, bool)
        self._room, self._since = 0.0, 0
        for number, each in enumerate(members):
            each.indexed(Place(self, number))

    @property
    def first(self) -> Selection | None:
        """The first of the queries that are still in it."""
        return next((each for each in self.members if each is not None), None)

    @property
    def streams(self) -> Mapping[str, LiveStream]:
        """The one stream, by its name."""
        return self.plan.streams

    def arrived(self, name: str, batch: TupleBatch) -> None:
        """Tuples of the stream whose turn has come."""
        first = self.first
        self._tuples += len(batch)
        self._step(partial(self.plan.arrived, name, batch, None if first is None else first.reached))

    def progress(self) -> None:
        """Find what follows of how far the stream has come."""
        first = self.first
        if first is not None and (at := first.reached) is not None:
            self._step(partial(self.plan.advance, at))

    def full(self) -> list[Selection]:
        """Those for whose readers pushes have to wait.

        They are looked at again once as much was found as the first of them to be full had room for.
        """
        if self._since < self._room:
            return []
        members = [each for each in self.members if each is not None]
        self._since, self._room = 0, min((each.room for each in members), default=math.inf)
        return [each for each in members if each.full]

    @property
    def unread_bytes(self) -> int:
        """Of outputs that wait here."""
        return self._deliveries.bytes

    def found(self, number: int) -> int:
        """Outputs of a query since it is in here."""
        return int(self._come[number]) if self._lazy[number] else 0

    def bytes_of(self, number: int) -> int:
        """Bytes of those that wait here for it."""
        return self._deliveries.bytes_of(number)

    def fetch(self, number: int) -> Fetched:
        """What a query does not know yet."""
        now = np.array([self._tuples, self._come[number], self._gone[number]])
        tuples, come, gone = (now - self._fetched[number]).tolist()
        self._fetched[number] = now
        return Fetched(tuples, come, gone, self._deliveries.take(number) if come else [])

    def heed(self, number: int) -> None:
        """Somebody waits for outputs of a query."""
        self._heeded[number] = True

    def leave(self, number: int) -> None:
        """A query, which has fetched what there is, goes its own way."""
        self.members[number] = None
        self._there -= 1
        self._lazy[number] = False

    def dissolve(self) -> None:
        """Each goes its own way."""
        for each in self.members:
            if each is not None:
                each.unindexed()

    def _step(self, work: Callable[[], list[Changes]]) -> None:
        turn, self.turn = self.turn, self.turn + 1
        try:
            found = self.plan.happened(turn, work, self._there)
        except Exception as error:
            if isinstance(error, MemoryError) and not isinstance(error, NileError):
                raise
            members = [each for each in self.members if each is not None]
            self.dissolve()
            for each in members:
                each.faulted(error)
            return
        for changes in found:
            if len(changes):
                self._hand_out(changes)

    def _hand_out(self, changes: Changes) -> None:
        found = self._index.matches(changes.rows)
        who, rows, many = found.who, found.rows, len(self.members)
        lazy, total = self._lazy[who], np.bincount(who, minlength=many)
        mine, own = (who, rows) if lazy.all() else (who[lazy], rows[lazy])
        sign = changes.sign[own]
        if (gone := sign < 0).any():
            self._gone += np.bincount(mine[gone], minlength=many)
            mine, own = mine[~gone], own[~gone]
        come = np.bincount(mine, minlength=many)
        self._come += come
        offsets = np.concatenate([[0], np.cumsum(come)])
        if own.size:
            self._since += self._deliveries.add(offsets, changes.ts[own], changes.rows.take(pa.array(own)))
        begun = np.cumsum(total) - total
        for number in np.flatnonzero(~self._lazy & (total > 0)).tolist():
            if (member := self.members[number]) is not None:
                places = rows[begun[number] : begun[number] + total[number]]
                picked = changes.rows.take(pa.array(places))
                self._since += int(picked.nbytes)
                member.given([Changes(changes.ts[places], changes.sign[places], picked)], selected=True)
        for number in np.flatnonzero(found.broad).tolist():
            if (member := self.members[number]) is not None:
                self._since += int(changes.rows.nbytes)
                member.given([changes], selected=False)
        for number in np.flatnonzero(self._heeded & (come > 0)).tolist():
            if (member := self.members[number]) is not None:
                member.say_more()
