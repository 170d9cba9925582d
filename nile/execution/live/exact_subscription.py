"""Standing queries over live streams: signed changes (or new rows) as tuples are pushed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from nile.exact.pipeline.figures import Figures
from nile.exact.pipeline.pipeline import Changes
from nile.exact.pipeline.sources.counts import counts_of
from nile.exact.pipeline.tail import Passed, Tail
from nile.exact.state.columns import stamped
from nile.exact.state.held import MOST, Held, State
from nile.execution.choice import Choice
from nile.execution.exact.promised import Known
from nile.execution.exact.run import output_schema
from nile.execution.live.commits import Commits
from nile.execution.live.indexed.standing import Indexed
from nile.execution.live.running import Running
from nile.execution.live.shared.whole import run_as_one
from nile.execution.reading import Readable
from nile.sql.plan import Query
from nile.streams.accounting import Accounting
from nile.streams.live import LiveStream
from nile.streams.manager import TupleBatch
from nile.streams.taken_back import TakenBack
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa

__all__ = ["ExactSubscription"]


class ExactSubscription(Indexed):
    """A standing query.  Made by `Database.subscribe`; it sees what is pushed from then on.

    `poll()` gives what has been found since the last call and never waits; iterating gives that and ends when nothing
    is left; `follow()` waits for more until the query or the database is closed (by another thread, or by its
    timeout).  callback: called with every batch, in the thread that pushes, instead of keeping it, once all that was
    pushed is taken in everywhere; what it raises comes out of the push, once all other callbacks have been called.
    Nothing of an instant is emitted before all its streams have passed it: push to them all, or `advance`.
    Outputs are numbered from 0 in their order, which no cut into batches and no restart changes: `poll_numbered()` says
    the ordinal of each batch's first row, and in a callback `ordinal` does.  What a restored query emits again has the
    ordinals it had, so a reader that keeps the greatest one it has seen takes every output once.
    Closing gives what is left; a context manager closes.

    >>> import nile, pyarrow as pa
    >>> with nile.connect() as db:
    ...     db.stream("clicks", pa.schema([("at", pa.float64()), ("page", pa.string())]), time="at")
    ...     pages = db.subscribe("SELECT page FROM clicks WHERE page <> 'home'")
    ...     _ = db.push("clicks", {"at": [1.0, 2.0, 3.0], "page": ["home", "shop", "shop"]})
    ...     db.advance(10.0)
    ...     [row for batch in pages for row in batch.to_pylist()]
    [{'page': 'shop'}, {'page': 'shop'}]
    """

    def __init__(
        self,
        home: Readable,
        query: Query,
        choice: Choice,
        live: dict[str, LiveStream],
        commits: Commits,
        callback: Callable[[pa.RecordBatch], None] | None,
        state: Mapping[str, Any] | None = None,
        known: Known | None = None,
    ) -> None:
        """state: what `capture` gave of another one of the same query; this one goes on where that one was.

        known: constraints on its streams.  A query goes by those that were there when it was asked.
        """
        super().__init__(commits, callback)
        self.query = query
        self.choice = choice
        self._may_drop = choice.emit != "changes"
        self.schema = self._output_schema(query, choice)
        self._names, self._stamps = tuple(self.schema.names), len(self.schema) - len(query.plan.fields)
        if state is not None and known is not None:
            had = str(state.get("constraints", "")).split("\n")
            known = {text: each for text, each in known.items() if text in had}
        plan = Running(home, query, choice, live, known=known)
        if state is not None and plan.stored_whole(state):
            plan = Running(home, query, choice, live, whole=True)
        self._plan = plan
        plan.readers.append(self)
        self._prepare(plan)
        self._tail, self._tail_key, self._sought, self._turn = plan.tail(), plan.tail_key, plan.sought, 0
        self._passed_on = plan.passed_on
        self._changes = 0
        self._mended = False
        """Whether tuples were taken back that it had seen."""
        self._more: tuple[list[Any], int | None] | None = None
        """How much more it has counted than the plan it joined, and its own first instant; None: it joined none."""
        self.apart: Callable[[ExactSubscription], None] = lambda _: None
        """Told when it goes its own way again."""
        self.ending.append(lambda: self._plan.leave(self, self._turn))
        self._streams = plan.streams
        self._seen: dict[str, int] | None = dict.fromkeys(plan.leaves, 0)  # None: nobody counted
        if not self._streams:
            raise ConfigError(
                "subscribe: needed a query over a live stream; got none; make one with db.stream(), or ask sql()"
            )
        if state is not None:
            self._go_on_from(Held(state, "state of a standing query"))
        else:
            for found in plan.push_finite():
                self._take(found)

    def __repr__(self) -> str:
        over, state = ", ".join(self._streams), "closed" if self._closed else "open"
        return f"<nile.Subscription over {over}, emit {self.choice.emit}: {len(self._found)} batches wait, {state}>"

    def _output_schema(self, query: Query, choice: Choice) -> pa.Schema:
        return output_schema(query, choice.emit)

    def _prepare(self, plan: Running) -> None:
        """What a plan needs before anything is pushed to it."""

    @property
    def accounting(self) -> dict[str, Accounting]:
        """Of each live stream: in = applied + late + shed + rejected."""
        return {name: stream.accounting for name, stream in self._streams.items()}

    @property
    def memory(self) -> int:
        """Bytes of the operators' state."""
        with self._lock:
            return int(self._plan.pipeline.memory)

    @property
    def operators(self) -> tuple[Figures, ...]:
        """As of every standing query: the nodes of its plan."""
        with self._lock:
            self._fetch()
            return tuple(self._tail.figures(self._plan.pipeline.operators))

    @property
    def plan(self) -> Running:
        """What it runs on, with others or alone."""
        return self._plan

    @property
    def constraints(self) -> tuple[str, ...]:
        with self._lock:
            return self._plan.constraints

    @property
    def sharers(self) -> tuple[ExactSubscription, ...]:
        """Of an exact query: those that ask the same, but for what they select and project at the top."""
        with self._lock:
            return tuple(self._plan.readers) or (self,)

    def poll(self) -> list[pa.RecordBatch]:
        """What has been found since the last call; of emit 'snapshot' the state now.  Never waits."""
        if self.choice.emit != "snapshot" or self._closed:
            return super().poll()
        with self._lock:
            self._commits.check()
            self._tick()
            self.settle()
            rows = self._plan.pipeline.snapshot().combine_chunks().to_batches()
            return [made for batch in rows if (made := self._tail.contents(batch)).num_rows]

    def poll_numbered(self) -> list[tuple[int, pa.RecordBatch]]:
        """As `poll`, each batch after the ordinal of its first row.  Raises ConfigError of emit 'snapshot'."""
        if self.choice.emit == "snapshot":
            raise ConfigError(
                "poll_numbered: needed a query that emits changes or new rows; got emit='snapshot', whose states have "
                "no order; call poll()"
            )
        return super().poll_numbered()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            found = self.poll()
            yield from found
            if not found or self.choice.emit == "snapshot":
                return

    def begin_with_kept(self) -> None:
        """Take in what the live streams have kept, as if it was pushed now."""
        assert self._seen is not None
        self._seen = {name: stream.rows for name, stream in self._streams.items()}
        for found in self._plan.push_kept():
            self._take(found)
        self._progress()

    @property
    def shape(self) -> object:
        """What it asks, below the selections and projections at its top: equal ones may share a plan."""
        return self._plan.key

    def join(self, other: ExactSubscription) -> bool:
        """Run on the plan of another from here, with all who share this one's; whether both go on alike."""
        return run_as_one(self._plan, other._plan)

    def _alone(self) -> None:
        """Go on with a plan of its own, of equal state, of which nothing is shared."""
        self.unindexed()
        if len(self._plan.readers) > 1:
            self.settle()
            shared, turn = self._plan, self._turn
            self._plan, self._turn = shared.alone(), 0
            self._plan.readers.append(self)
            shared.leave(self, turn)
            self.apart(self)
        elif self._plan.common is not None:
            self._plan.run_on(None)
            self.apart(self)

    @property
    def seen(self) -> Mapping[str, int] | None:
        """How many of the tuples that each stream keeps it has seen; None: an older version did not count them."""
        self._fetch()
        return self._seen

    @property
    def reached(self) -> int | None:
        """The instant up to which it has told all."""
        with self._lock:
            return self._passed()

    def go_on_with(self, plan: Running, tail: Tail, query: Query, choice: Choice) -> None:
        """Run on another plan from here, which has taken in what this one has, and told the same.  A part of a change.

        Outputs go on with the numbers they have.
        """
        self._alone()
        self.settle()
        self._plan.leave(self, self._turn)
        self.query, self.choice, self._plan, self._more = query, choice, plan, None
        plan.readers.append(self)
        self._tail, self._tail_key, self._sought, self._turn = tail, plan.tail_key, plan.sought, 0
        self._passed_on = plan.passed_on
        self.regroup()

    def ran(self, work: Callable[[], list[Changes]]) -> None:
        """Operators of its plan have run, which is an event of its own: `work` gives what came out."""
        self._work(self._step, work)

    def settle(self) -> None:
        """Work on all that waits in queues between operators: a part of a change."""
        if not self._closed:
            self._plan.settle()

    def pause(self) -> None:
        with self._lock, self._commits:  # one change: on a plan of its own it is paused, too
            if not self._closed:
                self._alone()  # others go on
                self.settle()
            self.paused = not self._closed

    def end_together(self) -> None:
        """All who share its plan end next, so that whoever is first may end it."""
        self.unindexed()
        self._plan.ending = True

    def _step(self, work: Callable[[], list[Changes]]) -> None:
        """Hand out what something that happened leads to, worked out by whoever of those that share it is first."""
        turn = self._own_turn if self._place is None else self._turn
        self._own_turn = turn + 1
        made = self._plan.take(turn, work, self._formed, (self._tail_key, self._names), self._sought)
        if made is not None:
            self._given(*made)

    def form_ahead(self, found: list[Changes], formed: dict[Any, Any]) -> None:
        """Make what `_formed` gives of all that was found, under the key of its form, unless it may look for a part."""
        if (key := (self._tail_key, self._names)) not in formed and not self._sought:
            with suppress(Exception):  # what it raises is raised where it is asked for
                formed[key] = self._formed(found)

    def _formed(self, found: Sequence[Changes], selected: bool = False) -> tuple[Passed, list[pa.RecordBatch]]:
        ahead = self._plan.formed
        if ahead is not None and ahead[0] is found and (made := ahead[1].get((self._tail_key, self._names))):
            return made  # type: ignore[no-any-return]
        tail, schema, stamps, picks = self._tail, self.schema, self._stamps, self._tail.picks
        if (passed := tail.plainly(found)) is None:
            passed, picks = tail.passed(found, selected=selected), None
        return passed, [stamped(each.ts, each.sign, each.given, schema, stamps, picks) for each in passed.changes]

    def _given(self, passed: Passed, batches: list[pa.RecordBatch]) -> None:
        self._tail.add(passed)
        for batch in batches:
            self._changes += batch.num_rows
            self._hand_out(batch)

    def _take(self, found: Sequence[Changes], selected: bool = False) -> None:
        self._given(*self._formed(found, selected))

    def _progress(self) -> None:
        if (at := self._passed()) is not None:
            self._step(partial(self._plan.advance, at))
            self._moved(at)

    def _moved(self, at: int | None) -> None:
        """All that its streams bring up to an instant has been worked on."""
        if at is not None and self.into is not None:
            self.into.moved(at)

    def _finish(self) -> None:
        last = max((stream.passed for stream in self._streams.values() if stream.passed is not None), default=None)
        if not self._plan.ending:
            self._alone()
        self._step(lambda: self._plan.pipeline.finish(last))

    def _arrived(self, name: str, batch: TupleBatch) -> None:
        if self._seen is not None:
            self._seen[name] += batch.ts.shape[0]
        at = self._passed()
        self._step(partial(self._plan.arrived, name, batch, at))
        if self.into is not None:
            self._moved(at)

    def open_from(self, stream: LiveStream) -> int | None:
        return self._plan.open_from(stream)

    def takes_nothing_back(self) -> str | None:
        if self._seen is None:
            return "one that an older version stored, which did not count the tuples it saw"
        return self._plan.takes_nothing_back()

    def _taken_back(self, name: str, gone: TakenBack) -> None:
        for each in self._plan.readers:
            each.unindexed()
        self.settle()
        assert self._seen is not None
        self._mended = True
        if self._turn == self._plan.turn and any(each._seen != self._seen for each in self._plan.readers):
            for each in self._plan.readers[1:]:
                each._alone()  # who came later has not told of all that goes
        mine = gone.places >= gone.kept - self._seen[name]
        self._seen[name] -= int(mine.sum())
        rows = gone.rows.filter(pa.array(mine))
        self._step(lambda: self._plan.take_back(name, gone.at, gone.ts[mine], rows))
        self._progress()

    def capture(self) -> State:
        """What the query holds: the state of its operators, outputs that nobody has read, and how many there were.

        For `nile.execution.envelopes.flat` and `packed`; the same tuples pushed and outputs read give the same bytes.
        """
        with self._lock:
            self.settle()
            self._fetch()
            seen: State = {} if self._seen is None else {"seen": self._seen}
            state = self._core()
            if self._tail.nodes:
                state["operators"] += self._tail.capture()
                state["changes"] = self._changes
            if self._plan.constraints:
                seen["constraints"] = "\n".join(self._plan.constraints)
            if self._mended:
                seen["mended"] = True
            return {**self._mailbox(), **seen, "operators": state}

    def _core(self) -> State:
        """The state of the operators below the tail, as if this query had run alone."""
        state = self._plan.pipeline.capture()
        if self._more is not None:
            more, origin = self._more
            state["origin"] = state["origin"] if origin is None else origin
            for (where, name), each in zip(self._counted(state), more, strict=True):
                where[name] = where[name] + each
        return state

    def _counted(self, state: State) -> list[tuple[Any, str]]:
        """What counts since the query was asked, and so may be another number than its plan's: (where, name)."""
        return list(counts_of(state))

    def _go_on_from(self, held: Held) -> None:
        """Raises EnvelopeError for a state that is not of this query."""
        self._refill(held)
        self._seen = None
        if held.has("seen"):
            seen = held.part("seen")
            self._seen = {name: seen.integer(name, 0, MOST) for name in self._streams}
            seen.end()
        if held.has("constraints") and held.text("constraints") != "\n".join(self._plan.constraints):
            held.refuse("the constraints that the query goes by", "others")
        self._mended = self._plan.mended = held.has("mended") and held.flag("mended")
        state, nodes = held.state("operators"), len(self._tail.nodes)
        if nodes and isinstance(given := state.get("operators"), list):
            self._tail.restore(given[len(given) - nodes :])
            self._changes = Held(state, "state of a query").integer("changes", 0, MOST)
            state = {**state, "operators": given[: len(given) - nodes]}
        self._plan.pipeline.restore(state)
        held.end()
