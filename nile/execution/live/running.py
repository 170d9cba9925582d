"""An exact plan running over live streams, once for all standing queries with that plan.

What the streams bring is an event: converted, worked on and formed once, by whoever comes first, and kept in a queue
until every reader has taken it.  Readers have equal plans up to the selections and projections at the top (`Tail`),
which each has for itself; readers with equal ones share what they make, too.
Source: STREAM (CIDR 2003), section 3.2: a shared queue with a pointer for each reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from nile.exact.pipeline.figures import Path
from nile.exact.pipeline.pipeline import Changes, Pipeline
from nile.exact.pipeline.sources.taken_back import takes_nothing_back
from nile.exact.pipeline.stages import Ran, Stages
from nile.exact.pipeline.tail import Tail, cut
from nile.exact.state.columns import Columns, made
from nile.execution.choice import Choice
from nile.execution.envelopes import flat, of
from nile.execution.exact.physical import Compiler, with_selections
from nile.execution.exact.promised import Known, Promised
from nile.execution.exact.run import pipeline_of
from nile.execution.live.chosen import sought
from nile.execution.live.event import Readers
from nile.execution.live.shared.common import Common
from nile.execution.live.shared.keys import key_below, passed_on, read_live, tail_of
from nile.execution.live.shared.nested import Nested, read_by
from nile.execution.live.shared.subplan import Subplan, subplans_of
from nile.execution.reading import Naming, Readable, Reading, named_leaf, selected
from nile.runtime.on_threads import Ahead
from nile.sql.plan import Filter, Query, Relation, Stream, leaves_of
from nile.streams.live import LiveStream
from nile.streams.manager import TupleBatch
from nile.summaries.errors import NileError
from nile.summaries.heavy import pa

__all__ = ["Running", "Waiting"]

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
        self.key: tuple[Any, ...] = (*key_below(below, choice, self.streams), self.constraints)
        core, self._nodes = cut(self._plan, len(above))
        self.tail_key = repr(above)
        self.is_stream = bool(above) and isinstance(below, Stream) and len(leaves) == len(self.leaves) == 1
        """Whether below the top there is one live stream, and nothing else."""
        self.passed_on = passed_on(above)
        self._made: Callable[..., Pipeline] = partial(
            pipeline_of, core, choice, signed=bool(above), threads=home.threads
        )
        self.pipeline, self.threads = self._made(), home.threads
        self.gate: Any = None
        """What is let in of its streams, in a database with bounds; None: all."""
        self.ahead: Ahead[list[Changes]] = Ahead()
        """What `arrived` gives next, worked out before readers come to it."""
        self.formed: tuple[list[Changes], dict[Any, Any]] | None = None
        """What was worked out ahead, and what forms of readers made of it, by their keys."""
        self._naming = Naming()
        self.mended = False
        """Whether tuples were taken back, after which equal ones may stand in another order."""
        self.common: Common | None = None
        """Where a part of it runs, for others too; None: nowhere but here."""
        self.nested: tuple[Nested, ...] = ()
        """Where parts above that run, each above the one before, for others too."""
        plain = not self.constraints and len(leaves) == sum(map(len, self.leaves.values()))
        at = (0,) * len(above)
        self.subplans = subplans_of(below, at, compiler.made, self.pipeline, choice, self.key[-2]) if plain else ()
        """The parts of it that others may have, too, each within the next."""
        self.ending = False
        """Whether all readers end now, so that whoever is first may end the plan."""

    @property
    def subplan(self) -> Subplan | None:
        """The least part of it that others may have, too."""
        return self.subplans[0] if self.subplans else None

    def tail(self) -> Tail:
        """A new one for a reader that asked what this was made for."""
        return Tail(self._nodes, append=self.emit in ("append", "stream"), threads=self.threads)

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
        twin.pipeline, twin.ahead, twin.formed, twin.common, twin.nested = self._made(), Ahead(), None, None, ()
        twin.pipeline.restore(of(*flat(self.pipeline.capture())))
        twin.pipeline.deferred = self.pipeline.deferred
        return twin

    def compact(self) -> None:
        """Hold the same in tables as small as they may be.  Cost: O(state)."""
        self.run_on(None)

    def run_on(self, common: Common | None, nested: tuple[Nested, ...] = ()) -> None:
        """Have the part that others have, too, run there, None: here; it is in the same state.  Cost: O(state).

        nested: likewise parts above it, each above the one before.
        """
        was, own = self.pipeline, self.subplans
        had: tuple[Common | Nested | None, ...] = (self.common, *self.nested)
        state = was.capture()
        self.common, self.nested, read = common, nested, nested[-1] if nested else common
        self.pipeline = self._made(parts={} if read is None else {id(own[len(nested)].made): read.part})
        self.pipeline.restore(of(*flat(state)))
        self.pipeline.deferred = was.deferred
        was.release()
        has: tuple[Common | Nested | None, ...] = (common, *nested)
        for each in had[::-1]:
            if each is not None and each not in has:
                each.leave(self)
        for each in has:
            if each is not None and each not in had:
                each.join(self)

    def leave(self, reader: Any, turn: int) -> None:
        super().leave(reader, turn)
        if not self.readers:
            self.end()

    def end(self) -> None:
        """Nobody reads it any more."""
        self.pipeline.release()
        for each in (*self.nested[::-1], self.common):
            if each is not None:
                each.leave(self)
        self.common, self.nested = None, ()

    def run_by(self, made: Callable[..., Pipeline]) -> None:
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
        stream that is only selected from there is nothing to schedule.  A part that runs for others is not scheduled.
        """
        return self._at_once or self.common is not None

    @property
    def _at_once(self) -> bool:
        return self.is_stream or bool(self.constraints) or any(each.into is not None for each in self.readers)

    @property
    def memory(self) -> int:
        """Bytes of its state, without what it has in common with others."""
        read = read_by(self)
        return int(self.pipeline.memory) - (0 if read is None else int(read.part.root.memory))

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
    def may_run_ahead(self) -> bool:
        """Whether what comes may be worked out ahead of its readers, on any thread: all have taken all there was."""
        level = all(each._turn == self.turn for each in self.readers)
        return level and not (self._at_once or self.pipeline.deferred or self.gate is not None or self.ahead.done)

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
        if self.common is not None:
            self.common.arrived(self, name, ts, batch)
        if (only := self._plain.get(name)) is not None:
            if (named := self._naming.place(only, batch.schema)) is None:
                return self.pipeline.push(only.alias, ts, self._named(only, batch), at)
            return self.pipeline.push(only.alias, ts, batch, at, named)
        found = self._push(name, ts, batch)
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
        if self.common is not None:
            self.common.arrived(self, name, ts, batch)
        return self._push(name, ts, batch)

    def _push(self, name: str, ts: Array, batch: pa.RecordBatch | Columns) -> list[Changes]:
        if (only := self._plain.get(name)) is not None:
            return self.pipeline.push(only.alias, ts, self._named(only, batch)) if ts.shape[0] else []
        found: list[Changes] = []
        for alias, times, rows in self._of_leaves(name, ts, batch):
            found += self.pipeline.push(alias, times, rows)
        return found

    def take_back(self, name: str, at: int, ts: Array, batch: pa.RecordBatch) -> list[Changes]:
        """Tuples of a live stream are there no more from the instant `at` on."""
        self.mended = True
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
        """The columns of a leaf as the plan calls them."""
        if leaf.fields:
            return self._naming.named(leaf, batch)
        return named_leaf(leaf, made(batch).select(list(self.reading.columns(leaf))))


def _raise(error: Exception) -> list[Changes]:
    raise error
