"""Standing queries over live streams: signed changes (or new rows) as tuples are pushed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nile.exact.pipeline.pipeline import Changes
from nile.exact.state.held import Held, State
from nile.execution.choice import Choice
from nile.execution.exact.physical import Compiler, with_selections
from nile.execution.exact.run import changed, output_schema, pipeline_of
from nile.execution.live.commits import Commits
from nile.execution.live.subscription import Subscription
from nile.execution.reading import Readable, Reading, named_leaf, selected
from nile.sql.plan import Query, Relation, Stream, leaves_of
from nile.streams.accounting import Accounting
from nile.streams.live import LiveStream
from nile.streams.manager import TupleBatch
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa

__all__ = ["ExactSubscription"]


class ExactSubscription(Subscription):
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
    ) -> None:
        """state: what `capture` gave of another one of the same query; this one goes on where that one was."""
        super().__init__(commits, callback)
        self.query = query
        self.choice = choice
        self._may_drop = choice.emit != "changes"
        self.schema = output_schema(query, choice.emit)
        plan = with_selections(query.plan)
        reading = Reading(home, plan)
        leaves = leaves_of(plan)
        tables = {
            leaf.alias: pa.Table.from_batches([reading.whole(leaf).batch])
            for leaf in leaves
            if isinstance(leaf, Relation)
        }
        compiler = Compiler(reading.schema, lambda leaf: tables[leaf.alias], choice.algorithm or "chain")
        self._pipeline = pipeline_of(compiler.plan(plan), choice)
        self._leaves: dict[str, list[Stream]] = {}
        finite = []
        for leaf in leaves:
            if isinstance(leaf, Stream) and leaf.name in live:
                self._leaves.setdefault(leaf.name, []).append(leaf)
            elif isinstance(leaf, Stream):
                finite.append(leaf)
        self._streams = {name: live[name] for name in self._leaves}
        if not self._streams:
            raise ConfigError(
                "subscribe: needed a query over a live stream; got none; make one with db.stream(), or ask sql()"
            )
        for leaf in finite if state is None else ():
            held = reading.whole(leaf)
            self._take(self._pipeline.push(leaf.alias, held.ts, held.batch))
            self._take(self._pipeline.close(leaf.alias))
        if state is not None:
            self._go_on_from(Held(state, "state of a standing query"))
        self._reading = reading

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return (
            f"<nile.Subscription over {', '.join(self._streams)}, emit {self.choice.emit}: {len(self._found)} batches "
            f"wait, {state}>"
        )

    @property
    def accounting(self) -> dict[str, Accounting]:
        """Of each live stream: in = applied + late + shed + rejected."""
        return {name: stream.accounting for name, stream in self._streams.items()}

    @property
    def memory(self) -> int:
        """Bytes of the operators' state."""
        with self._lock:
            return int(self._pipeline.memory)

    def poll(self) -> list[pa.RecordBatch]:
        """What has been found since the last call; of emit 'snapshot' the state now.  Never waits."""
        if self.choice.emit != "snapshot" or self._closed:
            return super().poll()
        with self._lock:
            self._commits.check()
            self._tick()
            return self._pipeline.snapshot().to_batches()  # type: ignore[no-any-return]

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

    def _progress(self) -> None:
        # The first instant is a tuple's, whoever said how far streams have come, or the answer would tell how it was
        # driven.
        if (at := self._passed()) is not None:
            self._take(self._pipeline.advance(at, certain=False))

    def _finish(self) -> None:
        last = max((stream.passed for stream in self._streams.values() if stream.passed is not None), default=None)
        self._take(self._pipeline.finish(last))

    def _arrived(self, name: str, batch: TupleBatch) -> None:
        assert batch.carried is not None
        for leaf in self._leaves[name]:
            columns = batch.carried.select(list(self._reading.columns(leaf)))
            ts, rows = selected(leaf, batch.ts, named_leaf(leaf, columns))
            if rows.num_rows:
                self._take(self._pipeline.push(leaf.alias, ts, rows))
        self._progress()

    def capture(self) -> State:
        """What the query holds: the state of its operators, outputs that nobody has read, and how many there were.

        For `nile.execution.held.flat` and `packed`; the same tuples pushed and outputs read give the same bytes.
        """
        with self._lock:
            return {**self._mailbox(), "operators": self._pipeline.capture()}

    def _go_on_from(self, held: Held) -> None:
        """Raises EnvelopeError for a state that is not of this query."""
        self._refill(held)
        self._pipeline.restore(held.state("operators"))
        held.end()

    def _take(self, found: list[Changes]) -> None:
        for each in found:
            self._hand_out(changed(each, self.schema, self.choice.emit))
