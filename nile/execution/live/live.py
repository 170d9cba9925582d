"""The live streams and standing queries of a database, under one lock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from nile.base.interrupts import INTERRUPTS
from nile.base.machine import memory_bytes
from nile.base.raw import RawBatch
from nile.execution.definitions import Filling, Sends, checked_offset
from nile.execution.live.defining import asked_for, check_remembered
from nile.execution.live.inputs.feeding import inputs_of
from nile.execution.live.into import Into
from nile.execution.live.known import Known
from nile.execution.live.retracting import Goes, TakingBack, matched, signed_apart
from nile.execution.live.scheduled import Schedule
from nile.execution.live.subscription import Subscription
from nile.execution.options import Options
from nile.operators.aggregate.scope import instant
from nile.pyramid.history.history import History
from nile.sql.plan import Query
from nile.streams.accounting import Accounting
from nile.streams.live import LiveStream
from nile.streams.quarantine import Admitted
from nile.streams.versions import Versions
from nile.summaries.errors import ConfigError, UnknownStream
from nile.summaries.heavy import pa

__all__ = ["Live"]

_UNREAD_SHARE = 32  # of this machine's memory: what outputs that nobody reads may take, without a limit
_UNSENT = 1 << 20
"""Rows that wait for a sink at most, where there are no files of a store for them; then pushes wait."""


class Live(Known):
    """Pushes, advances and subscriptions: each a change in one piece (`Commits`), one at a time.

    Callbacks are called after a change, inside the lock: they may do what everybody may, but must not wait for others.
    """

    def push(self, name: str, data: Any, offset: Any = None) -> int:
        """Push rows; how many tuples' turn has come.

        What has a length, or comes with an offset, is one change; of an iterator or a reader each batch is.
        """
        called = self.commits.called(time.monotonic_ns())
        with self.lock, called, nullcontext() if self.means is None else self.means.charged():
            return self._push(name, data, offset)

    def _push(self, name: str, data: Any, offset: Any) -> int:
        with self.lock:
            self.standing.wait_for_readers(self.get(name))
            stream = self._free(name, "push")
            self.inflows.check_free(stream)
            self.standing.check_state(stream, self.memory, self.means)
            goes: Goes | None = None
            if (signed := signed_apart(stream, data)) is not None:
                data, go = signed
                if go.num_rows:
                    stream.check(list(stream.admitted(data)))
                    goes = partial(matched, rows=go)
            if (keeper := self._keeper) is not None:
                with INTERRUPTS:
                    self.names.check_open()  # a handler may have closed it
                    keeper.make_room(self, self.names)  # first: a push that fails took nothing
            if offset is not None:
                checked_offset(offset, f"stream '{name}'")
            done, admitted = 0, stream.admitted(data)
            try:
                stream.pushing = True  # what iterators and converters do may be to push
                if offset is None and not hasattr(data, "__len__"):
                    for part in admitted:
                        with self.commits.called(time.monotonic_ns()):
                            done += self.take(stream, [part])
                        self.commits.complain(at_once=True)
                    whole = []
                else:
                    whole = list(admitted)
            except ConfigError:
                self.names.check_open()  # what a closed stream says is not what there is to say
                raise
            finally:
                stream.pushing = False
            if whole or goes is not None or offset is not None:
                done += self.take(stream, whole, offset, goes)
            self.commits.complain()
            return done

    def feed(self, stream: LiveStream, rows: RawBatch, offset: Any, reached: int | None) -> None:
        """Rows that a connector has read for a stream, and the place that it has reached.  Raises as `push`.

        reached: ns; none before it will come, where that is known.
        """
        called = self.commits.called(time.monotonic_ns())
        with self.lock, called, nullcontext() if self.means is None else self.means.charged():
            self.commits.check()
            self.names.check_open()
            self.standing.wait_for_readers(stream)
            self.standing.check_state(stream, self.memory, self.means)
            if self._keeper is not None:
                self._keeper.make_room(self, self.names)
            with self.commits.prepared:
                self.take(stream, [stream.admitted_raw(rows)], offset)
                if reached is not None and not stream.closed:
                    with self.commits:
                        stream.advance(reached)
                        self.constraints.progress()
                        self.standing.progress()
                        self.standing.work()
            self.commits.complain()

    def take(
        self,
        stream: LiveStream,
        parts: Sequence[Admitted],
        offset: Any = None,
        goes: Goes | None = None,
        *,
        fed: bool = False,
    ) -> int:
        """A change under the lock: rows that were admitted; how many tuples' turn has come.

        goes: places of kept rows that are taken back first; fed: by sources of its own, the stream of one query.
        Raises DatabaseClosed, UnknownStream: whoever gave the rows, or handled a signal, may have done anything.
        """
        with self.commits.prepared:
            if not fed:
                self.names.check_open()
            if not fed and self._streams.get(stream.name) is not stream:
                raise UnknownStream(
                    f"stream '{stream.name}': needed the one that rows were read for; got another, made meanwhile; "
                    "push them again"
                )
            stream.check(parts)
            gone = None if goes is None else TakingBack.of(self, stream, goes(stream))
            with self.commits:
                if self.means is not None:
                    self.means.begin()
                if gone is not None:
                    gone.apply(self)
                done = stream.take(parts)
                self.idleness.heard(stream)
                self._move_on()
                self.standing.work()
                if offset is not None:
                    self.offsets[stream.name] = offset
                if self.means is not None:
                    self.means.end(done)
        return done

    def tick(self) -> None:
        """Move on streams that are silent, and what waits for operators, as a push does and a reader that asks."""
        if self._has_to_move():
            with self.lock, self.commits:
                self._move_on()
                self.standing.work()

    def run(self, seconds: float | None) -> int:
        """Run operators that the scheduler lets wait, move on streams that are silent; how many tuples go on waiting.

        seconds: of CPU; None: all.
        """
        if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0):
            raise ConfigError(f"run: needed seconds of CPU time above 0, or none; got {seconds!r}; say db.run(0.01)")
        with self.lock:
            self.names.check_open()
            if self._has_to_move():
                with self.commits:
                    self._move_on()
                    self.standing.work(math.inf if seconds is None else float(seconds))
            self.commits.complain()
            return self.standing.waiting[0]

    def schedule(self, asked: Schedule) -> None:
        """Schedule standing queries otherwise from now on; outputs stay as they would be."""
        with self.lock:
            with self.commits:
                self.standing.schedule(asked)
                self.standing.work()
            self.commits.complain()

    def _has_to_move(self) -> bool:
        return self.standing.waits or any(each.idle is not None for each in [*self._streams.values(), *self.fed])

    def _move_on(self) -> None:
        streams = [*self.streams().values(), *(each for each in self.fed if not each.closed)]
        if any(each.idle is not None for each in streams) and self.idleness.due(streams, self.standing.over()):
            self.constraints.progress()
            self.standing.progress()

    def _free(self, name: str, what: str) -> LiveStream:
        """A live stream that no push further up is still reading rows for.  Raises UnknownStream, ConfigError."""
        self.commits.check()
        stream = self.get(name)
        stream.check_whole(what)
        return stream

    def offset(self, name: str) -> Any:
        """How far the source of a stream has been read."""
        with self.lock:
            self.commits.check()
            stream = self.get(name)
            return self.offsets.get(name, stream.pushed)

    def checkpoint(self) -> int:
        """Write a checkpoint; its epoch."""
        with self.lock:
            self.names.check_open()
            if self._keeper is None:
                raise ConfigError(
                    "checkpoint: needed a database with a store; got one in memory; open one with nile.connect('path')"
                )
            with INTERRUPTS:
                self.commits.check()
                with self.commits:
                    self.standing.settle_all()  # outputs are told before they are written
                return self._keeper.checkpoint(self, self.names)

    def advance(self, time: Any, name: str | None) -> None:
        """No tuple older than `time` will come, to one stream or to all."""
        now = instant(time, where="advance")
        with self.lock, self.commits.prepared:
            if self._keeper is not None:
                self._keeper.directory.check_writable()
            self.names.check_open()
            self.commits.check()
            streams = list(self.streams().values()) if name is None else [self.get(name)]
            for stream in streams:
                stream.check_whole("advance")
            with self.commits:
                for stream in self.standing.in_order(streams):
                    if stream in streams:
                        if self.standing.filled(stream):
                            self.standing.progress()  # what was before `now` comes first
                        stream.advance(now)
                self.constraints.progress()
                self.standing.progress()
                self.standing.work()
            self.commits.complain()

    def punctuate(self, name: str, rows: pa.RecordBatch) -> None:
        """No tuple of these values comes to a stream after those pushed so far.  Raises ConfigError."""
        with self.lock, self.commits.prepared:
            if self._keeper is not None:
                self._keeper.directory.check_writable()
            stream = self._free(name, "PUNCTUATE")
            declared = self.constraints.punctuated(stream, tuple(rows.schema.names))
            with self.commits:
                declared.say(rows)
                self.standing.punctuate(declared.constraint, stream.latest, rows)
            self.commits.complain()

    def accounting(self, name: str) -> Accounting:
        """Where the tuples pushed to a stream went."""
        with self.lock:
            self.commits.check()
            return self.get(name).accounting + Accounting()

    def set_aside(self, name: str) -> tuple[pa.Table, pa.Table]:
        """The late and the rejected rows of a stream."""
        with self.lock:
            self.commits.check()
            stream = self.get(name)
            return stream.late(), stream.quarantine()

    def subscribe(
        self,
        query: Query,
        options: Options,
        callback: Callable[[Any], None] | None,
        *,
        name: str | None = None,
        state: Mapping[str, Any] | None = None,
        unread: int | None = None,
        when_full: str = "wait",
        into: Filling | Sends | None = None,
    ) -> Subscription:
        """A standing query.  name: with one, the store keeps it, and asking again goes on with it.

        state: what it held when it was kept; unread, when_full: how many rows may wait for its reader, and what then;
        into: where its rows go instead: to a stream or relation of this database, or by a sink.
        """
        new: Subscription | None = None
        if isinstance(into, Sends) and self._keeper is None:
            unread = _UNSENT
        most = memory_bytes() // _UNREAD_SHARE if self._keeper is None else None  # with a store the rest is in files
        try:
            with self.lock:
                self.commits.check()
                asked = asked_for(query, options, name, into)
                made = self.standing.asked_again(name, asked.definition)
                if made is not None:
                    made.bound(unread, when_full, self.tick, most)
                    if callback is not None:
                        made.attach(callback)
                else:
                    if name is not None and self._keeper is not None:
                        check_remembered(query, name, {*self.streams(), *self.names.sources()})
                    inputs = inputs_of(query, self.names, self.streams())
                    known = {**self.streams(), **{each.stream.name: each.stream for each in inputs}}
                    promised = self.constraints.known()
                    made = new = asked.made(self.names, known, self.commits, callback, state, promised, self.means)
                    made.bound(unread, when_full, self.tick, most)
                    filled = self._filling(made, into) if isinstance(into, Filling) else None
                    with INTERRUPTS:
                        self.names.check_open()
                        self.standing.add(made, name, asked.definition)
                        if name is not None:
                            self._remember()  # in the store before anyone hears of it
                        if filled is not None:
                            with self.commits:
                                made.fill(filled)
                        for each in inputs[::-1]:  # who listens first
                            each.start(made, self)
                        new = made if name is None else None
                    self.commits.tell()
                self.commits.complain()
                return made
        except BaseException:
            if new is not None:  # nobody has it, nor can find it by its name
                self.commits.forget(new)
                new.detach()
            raise

    def _filling(self, made: Subscription, into: Filling) -> Into:
        """Where the rows of a standing query go.  Raises UnknownStream, ConfigError for a circle."""
        target = self.streams().get(into.stream) or self.get(into.stream)
        target.check_whole("INSERT INTO")
        reached = self.standing.filled_from(target)
        if circle := [name for name, stream in made.streams.items() if stream in reached]:
            raise ConfigError(
                f"INSERT INTO {into.stream}: needed a query of streams that are not made of it themselves; got "
                f"{circle[0]!r}, a circle; insert into another stream"
            )
        history = partial(History, hasher=self.names.hasher) if self._keeper is None else self._keeper.history
        source = self.names.adopt(into.stream)[0]
        view = source if isinstance(source, Versions) else None
        filled = Into(target, into, made.schema, view, self.standing.reached, history)
        made.ending.append(filled.ended)
        return filled

    def subscription(self, name: str) -> Subscription:
        """A standing query by its name.  Raises UnknownStream."""
        with self.lock:
            self.names.check_open()
            return self.standing.get(name)

    def unread(self) -> dict[str, int]:
        """Rows that wait for a reader, of each standing query with a name."""
        with self.lock:
            self.names.check_open()
            return {name: made.unread for name, (_, made) in self.standing.named().items()}

    def close(self) -> None:
        """Close all live streams, then the standing queries.  Raises what a callback raises, once all are closed.

        With a store nothing ends: a last checkpoint is written, and the next process goes on.
        """
        self.inflows.close()
        if self._keeper is not None:
            self.outflows.stop()  # before the last checkpoint, which so has what they have sent
        with self.lock:
            if self.names.closed:
                return
            with INTERRUPTS:
                keeper, self._keeper = self._keeper, None
                try:
                    if self.commits.torn:
                        pass  # what is half done is not written
                    elif keeper is None:
                        with self.commits:
                            for stream in self.standing.in_order(self._streams.values()):
                                for standing in self.standing.filled(stream):
                                    standing.finish()
                                stream.close()
                            self.standing.finish()
                    elif self._streams or self.names.entries:
                        keeper.remember(self, self.names)
                finally:
                    for stream in self._streams.values():
                        stream.closed = True
                    self.standing.detach(stored=keeper is not None)
                    self._streams.clear()
                    self.names.close()
                    if keeper is not None:
                        keeper.close()
        self.outflows.drain()
        with self.lock:
            self.commits.complain()
