"""An exact plan running over live streams, once for all standing queries with that plan.

What the streams bring is an event: converted, worked on and formed once, by whoever comes first, and kept in a queue
until every reader has taken it.  Readers have equal plans up to the selections and projections at the top (`Tail`),
which each has for itself; readers with equal ones share what they make, too.
Source: STREAM (CIDR 2003), section 3.2: a shared queue with a pointer for each reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from nile.exact.pipeline.figures import Path
from nile.exact.pipeline.pipeline import Changes, Pipeline
from nile.exact.pipeline.sources.incoming import Named
from nile.exact.pipeline.sources.taken_back import takes_nothing_back
from nile.exact.pipeline.stages import Ran, Stages
from nile.exact.pipeline.tail import Tail, cut
from nile.exact.state.columns import Columns, made, picked
from nile.execution.choice import Choice
from nile.execution.envelopes import flat, of
from nile.execution.exact.physical import Compiler, with_selections
from nile.execution.exact.promised import Known, Promised
from nile.execution.exact.run import pipeline_of
from nile.execution.live.chosen import sought
from nile.execution.live.event import Readers
from nile.execution.reading import Readable, Reading, named_leaf, places, selected
from nile.expressions.tree import Column
from nile.runtime.on_threads import Ahead
from nile.sql.plan import Filter, Over, Plan, Project, Query, Relation, Stream, leaves_of
from nile.streams.live import LiveStream
from nile.streams.manager import TupleBatch
from nile.summaries.errors import NileError
from nile.summaries.heavy import pa

__all__ = ["Running", "Waiting", "key_of", "read_live", "tail_of"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Tuples that wait for an operator, and their bytes.  between: behind others, not of the streams; path: its place
    in the plan.
    """

    between: bool
    path: Path | None
    tuples: int
    memory: int


def _passed_on(above: list[Plan]) -> tuple[str, ...] | None:
    """The columns that come out at the top where one selection, and no expression, is there; None: there is more."""
    match above:
        case [Filter() as one]:
            return tuple(field.name for field in one.fields)
        case [Project() as made, Filter()]:
            names = [item.node.name for item in made.items if isinstance(item.node, Column)]
            return tuple(names) if len(names) == len(made.items) else None
        case _:
            return None


def tail_of(plan: Plan, choice: Choice) -> tuple[list[Plan], Plan]:
    """(selections and projections at the top of a plan that nothing is held above, from the top; what is below).

    A selection over window functions is part of how they work.  Only where negative tuples say what expires.
    """
    above: list[Plan] = []
    below = plan
    while isinstance(below, Filter | Project) and not (isinstance(below, Filter) and isinstance(below.input, Over)):
        above.append(below)
        below = below.input
    if choice.scheduling != "nta" or isinstance(below, Relation):
        return [], plan
    if isinstance(below, Stream) and (
        choice.emit not in ("append", "stream") or not isinstance(below.window, int | None)
    ):
        return [], plan  # what is selected is held, so nothing else should be
    return above, below


def read_live(leaves: Sequence[Stream | Relation], live: Mapping[str, LiveStream]) -> dict[str, LiveStream]:
    """What a plan with these leaves reads of what rows are pushed to, by name."""
    return {
        leaf.name: live[leaf.name]
        for leaf in leaves
        if leaf.name in live and (isinstance(leaf, Stream) or leaf.changes)
    }


def key_of(query: Query, choice: Choice, streams: Mapping[str, LiveStream]) -> tuple[Any, ...]:
    """Equal for queries that can run on one plan, but for constraints.  streams: as of `read_live`."""
    return _key(tail_of(with_selections(query.plan), choice)[1], choice, streams)


def _key(below: Plan, choice: Choice, streams: Mapping[str, LiveStream]) -> tuple[Any, ...]:
    read = tuple((name, id(stream)) for name, stream in streams.items())
    return repr(below), choice.emit, choice.scheduling, choice.algorithm, read


class Running(Readers):
    """One plan at work.  streams: the live ones, by name; leaves: where each stands in the plan."""

    def __init__(
        self,
        home: Readable,
        query: Query,
        choice: Choice,
        live: Mapping[str, LiveStream],
        *,
        whole: bool = False,
        known: Known | None = None,
    ) -> None:
        """whole: with what is at the top, too, as an older version stored it; known: constraints on its streams."""
        super().__init__()
        self.emit = choice.emit
        plan = with_selections(query.plan)
        above, below = ([], plan) if whole else tail_of(plan, choice)
        lowest = above[-1] if above else None
        self.sought = sought(lowest.condition) if isinstance(lowest, Filter) else ()
        self.reading = Reading(home, plan)
        self.leaves: dict[str, list[Stream | Relation]] = {}
        self.finite: list[Stream] = []
        self._leaves = leaves = leaves_of(plan)
        for leaf in leaves:
            if leaf.name in live and (isinstance(leaf, Stream) or leaf.changes):
                self.leaves.setdefault(leaf.name, []).append(leaf)
            elif isinstance(leaf, Stream):
                self.finite.append(leaf)
        self._plain = {
            name: each[0]
            for name, each in self.leaves.items()
            if len(each) == 1 and isinstance(each[0], Stream) and each[0].where is None
        }
        """Streams that come as they are to one place of the plan: that place."""
        self.streams = read_live(leaves, live)
        tables = {
            leaf.alias: pa.Table.from_batches([self.reading.whole(leaf).batch])
            for leaf in leaves
            if isinstance(leaf, Relation) and not leaf.changes
        }
        promised = Promised(known or {})
        algorithm = choice.algorithm or "chain"
        compiler = Compiler(self.reading.schema, lambda leaf: tables[leaf.alias], algorithm, promised)
        self._plan = compiler.plan(plan)
        self.constraints = tuple(promised.used)  # what it goes by, by what it says
        self.key: tuple[Any, ...] = (*_key(below, choice, self.streams), self.constraints)
        core, self._nodes = cut(self._plan, len(above))
        self.tail_key = repr(above)
        self.is_stream = bool(above) and isinstance(below, Stream) and len(leaves) == len(self.leaves) == 1
        """Whether below the top there is one live stream, and nothing else."""
        self.passed_on = _passed_on(above)
        self._made: Callable[[], Pipeline] = partial(
            pipeline_of, core, choice, signed=bool(above), threads=home.threads
        )
        self.pipeline, self._threads = self._made(), home.threads
        self.gate: Any = None
        """What is let in of its streams, in a database with bounds; None: all."""
        self.ahead: Ahead[list[Changes]] = Ahead()
        """What `arrived` gives next, worked out before readers come to it."""
        self.formed: tuple[list[Changes], dict[Any, Any]] | None = None
        """What was worked out ahead, and what forms of readers made of it, by their keys."""
        self._places: dict[str, tuple[pa.Schema, Named | None]] = {}
        self.ending = False
        """Whether all readers end now, so that whoever is first may end the plan."""

    def tail(self) -> Tail:
        """A new one for a reader that asked what this was made for."""
        return Tail(self._nodes, append=self.emit in ("append", "stream"), threads=self._threads)

    def stored_whole(self, state: Mapping[str, Any]) -> bool:
        """Whether a stored state is of one operator, which selected and projected what came before it was held."""
        operators = state.get("operators")
        held = operators.get("operators") if isinstance(operators, Mapping) else None
        return bool(self._nodes) and isinstance(held, list) and len(held) == 1

    def takes_nothing_back(self) -> str | None:
        """What in the query this was made for has no way to take tuples back, in words; None: nothing."""
        return takes_nothing_back(self._plan, self.pipeline.scheduling, self.pipeline.emit)

    def alone(self) -> Running:
        """This plan for one reader more that goes its own way from here: equal state, nothing shared."""
        twin = object.__new__(Running)
        twin.__dict__.update(self.__dict__)
        Readers.__init__(twin)
        twin.pipeline, twin.ahead, twin.formed = self._made(), Ahead(), None
        twin.pipeline.restore(of(*flat(self.pipeline.capture())))
        twin.pipeline.deferred = self.pipeline.deferred
        return twin

    def compact(self) -> None:
        """Hold the same in tables as small as they may be.  Cost: O(state)."""
        was, self.pipeline = self.pipeline, self._made()
        self.pipeline.restore(of(*flat(was.capture())))
        self.pipeline.deferred = was.deferred

    def run_by(self, made: Callable[[], Pipeline]) -> None:
        """Run on a pipeline of another kind."""
        self._made, self.pipeline = made, made()

    @property
    def stages(self) -> Stages:
        """Its operators, as a scheduler runs them."""
        return self.pipeline.stages

    @property
    def at_once(self) -> bool:
        """Whether its operators have to run as soon as something comes, whatever the scheduler.

        So for what fills a stream, which is told how far that has come, and for plans that go by constraints.  Of a
        stream that is only selected from there is nothing to schedule.
        """
        return self.is_stream or bool(self.constraints) or any(each.into is not None for each in self.readers)

    def run(self, number: int) -> Ran | None:
        """Let an operator come to its next instant, and readers take what comes out; None: it failed, and they end."""
        try:
            ran = self.stages.run(number)
        except Exception as error:
            if isinstance(error, MemoryError) and not isinstance(error, NileError):
                raise
            self._hand_on(partial(_raise, error))
            self.pipeline.deferred = False
            return None
        if ran.told and self.pipeline.waits:
            self._hand_on(self.pipeline.taken)
        return ran

    def settle(self) -> None:
        """Work on all that waits.  Readers have taken the same number of events."""
        if self.pipeline.waits:
            self._hand_on(self.pipeline.settle)

    def queues(self) -> Iterator[Waiting]:
        """What waits for each operator: of the whole plan, those below the top."""
        for number, stage in enumerate(self.stages.stages):
            node = stage.operator.figures()[0]
            path = None if node.path is None else (*(0 for _ in self._nodes), *node.path)
            yield Waiting(bool(stage.inputs), path, *self.stages.waiting(number))

    def _hand_on(self, work: Callable[[], list[Changes]]) -> None:
        for each in list(self.readers):
            each.ran(work)

    def push_finite(self) -> Iterator[list[Changes]]:
        """Take in what does not come live: streams of files, relations as they are."""
        for leaf in self.finite:
            held = self.reading.whole(leaf)
            yield self.pipeline.push(leaf.alias, held.ts, held.batch)
            yield self.pipeline.close(leaf.alias)
        for each in self._leaves:
            if isinstance(each, Relation) and each.changes:
                log = self.reading.changes(each)
                yield self.pipeline.push(each.alias, log.ts, log.batch)

    def push_kept(self) -> Iterator[list[Changes]]:
        """Take in what the live streams have kept."""
        for leaves in self.leaves.values():
            for leaf in leaves:
                if isinstance(leaf, Stream):
                    held = self.reading.whole(leaf)
                    yield self.pipeline.push(leaf.alias, held.ts, held.batch)

    def push_seen(self, seen: Mapping[str, int]) -> Iterator[list[Changes]]:
        """Take in as many of the newest tuples that each live stream has kept."""
        for name, leaves in self.leaves.items():
            for leaf in leaves:
                if isinstance(leaf, Stream):
                    held = self.reading.whole(leaf, newest=seen[name])
                    yield self.pipeline.push(leaf.alias, held.ts, held.batch)

    @property
    def stands_alone(self) -> bool:
        """Whether what comes may be worked out ahead of its readers, on any thread: all have taken all there was."""
        level = all(each._turn == self.turn for each in self.readers)
        return level and not (self.at_once or self.pipeline.deferred or self.gate is not None or self.ahead.done)

    def arrival_formed(self, name: str, batch: TupleBatch, at: int | None) -> Callable[[], list[Changes]]:
        """As `arrival`, after which what comes out is `formed` for its readers, too."""
        work = self.arrival(name, batch, at)

        def done() -> list[Changes]:
            self.formed = None
            if found := work():
                self.formed = found, {}
                for each in self.readers:
                    each.form_ahead(found, self.formed[1])
            return found

        return done

    def arrival(self, name: str, batch: TupleBatch, at: int | None) -> Callable[[], list[Changes]]:
        """What readers ask for next: that tuples of a live stream are taken in.  at: as of `arrived`."""
        return partial(self._arrived, name, batch.ts, batch.columns, at)

    def arrived(self, name: str, batch: TupleBatch, at: int | None) -> list[Changes]:
        """Take in tuples of a live stream.  at: the instant that all streams have passed by then, if there is one."""
        if self.ahead.done:
            return self.ahead.take(self.arrival(name, batch, at))
        return self._arrived(name, batch.ts, batch.shared[0] if batch.shared else batch.columns, at)

    def _arrived(self, name: str, ts: Array, batch: Columns, at: int | None) -> list[Changes]:
        if (only := self._plain.get(name)) is not None:
            known = self._places.get(only.alias)
            if known is None or known[0] is not batch.schema or known[1] is None:
                return self.pipeline.push(only.alias, ts, self._named(only, batch), at)
            return self.pipeline.push(only.alias, ts, batch, at, known[1])
        found = self.push(name, ts, batch)
        if at is not None and (more := self.pipeline.advance(at, certain=False)):
            found += more
        return found

    def advance(self, at: int) -> list[Changes]:
        """All streams have passed an instant.

        The first one that counts is a tuple's, whoever said how far streams have come, or the answer would tell how it
        was driven.
        """
        return self.pipeline.advance(at, certain=False)

    def push(self, name: str, ts: Array, batch: pa.RecordBatch | Columns) -> list[Changes]:
        """Take in tuples of a live stream, here and now."""
        if (only := self._plain.get(name)) is not None:
            return self.pipeline.push(only.alias, ts, self._named(only, batch)) if ts.shape[0] else []
        found: list[Changes] = []
        for alias, times, rows in self._of_leaves(name, ts, batch):
            found += self.pipeline.push(alias, times, rows)
        return found

    def take_back(self, name: str, at: int, ts: Array, batch: pa.RecordBatch) -> list[Changes]:
        """Tuples of a live stream are there no more from the instant `at` on."""
        parts = self._of_leaves(name, ts, batch)
        return [each for alias, times, rows in parts for each in self.pipeline.take_back(alias, at, times, rows)]

    def open_from(self, stream: LiveStream) -> int | None:
        """The first instant of a stream that can still come; None: any can."""
        leaves = [leaf for name, each in self.streams.items() if each is stream for leaf in self.leaves[name]]
        return max((at for leaf in leaves if (at := self.pipeline.open_from(leaf.alias)) is not None), default=None)

    def _of_leaves(self, name: str, ts: Array, batch: pa.RecordBatch | Columns) -> Iterator[tuple[str, Array, Any]]:
        """(alias, times, rows) that each place of a stream in the statement has of its tuples, where it has any."""
        for leaf in self.leaves[name]:
            times, rows = ts, None
            if isinstance(leaf, Relation):
                times, rows = self.reading.signed(leaf, ts, made(batch))
                yield leaf.alias, times, rows
                continue
            rows = self._named(leaf, batch)
            if leaf.where is not None:
                times, rows = selected(leaf, ts, made(rows))
            if rows.num_rows:
                yield leaf.alias, times, rows

    def _named(self, leaf: Stream, batch: pa.RecordBatch | Columns) -> pa.RecordBatch | Columns:
        """The columns of a leaf as the plan calls them; where they are is found out once for batches that are alike."""
        known = self._places.get(leaf.alias)
        if known is None or not (batch.schema is known[0] or batch.schema.equals(known[0])):
            at, schema = places(leaf, batch.schema)
            known = self._places[leaf.alias] = batch.schema, None if at is None else (at, schema)
        if (named := known[1]) is None:
            return named_leaf(leaf, made(batch).select(list(self.reading.columns(leaf))))
        return picked(batch, *named)


def _raise(error: Exception) -> list[Changes]:
    raise error
