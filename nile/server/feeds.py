"""The outputs of standing queries for any number of readers, none of whom waits for another.

    subscription (its outputs wait there, in the store's files if they are many)
        `-- Feed: peeks at what is new, once for all; the newest batches are held ready (`tail`)
               |-- lane: a reader who waits for what comes; its bytes are made once and written to its connection
               `-- reader: a place in the numbers; one that lies before the tail peeks by itself

A reader has no queue: it has an ordinal.  What is older than `retain` outputs is let go of whoever has not read it, and
who comes for it later is told which are lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nile.execution.live.subscription import Subscription
from nile.server.lanes import Lane, framed
from nile.server.settings import Settings
from nile.summaries.errors import NileError
from nile.summaries.heavy import pa

__all__ = ["Feed", "Lost", "Piece"]

_PEEK = 4 << 20  # bytes of outputs that are looked at in one go
_TOGETHER = 50  # clients that are written to before anything else has its turn
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


@dataclass(slots=True)
class Piece:
    """A batch of outputs.  first: the ordinal of its first row; forms: its bytes, by form, once somebody made them."""

    first: int
    batch: pa.RecordBatch
    forms: dict[str, bytes] = field(default_factory=dict)
    framed: dict[str, bytes] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The ordinal after its last row."""
        return self.first + int(self.batch.num_rows)

    def after(self, ordinal: int) -> Piece:
        """Its rows from `ordinal` on."""
        return self if ordinal <= self.first else Piece(ordinal, self.batch.slice(ordinal - self.first))


@dataclass(frozen=True, slots=True)
class Lost:
    """Outputs from `first` up to `end` are gone: nobody came for them in time."""

    first: int
    end: int


class Feed:
    """The outputs of one standing query.

    readers: how many there are; lost: rows that readers were told are gone; sent: rows handed to all of them together.
    """

    def __init__(self, name: str, subscription: Subscription, epoch: int, settings: Settings, thread: InThread) -> None:
        self.name = name
        self.subscription = subscription
        self.epoch = epoch if subscription.epoch is None else subscription.epoch
        self.readers = self.lost = self.sent = 0
        self.why: str | None = None
        """Why nothing more comes; None: more may come."""
        self._settings = settings
        self._in_thread = thread
        self._tail: list[Piece] = []
        self._bytes = 0
        self._next = subscription.outputs
        self._looking = asyncio.Lock()
        self._lanes: dict[Lane, None] = {}
        self._more = asyncio.Event()
        self._new = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hear() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is over, and with it all readers
                loop.call_soon_threadsafe(self._new.set)

        self._hear = hear
        subscription.hearing.append(hear)
        self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._beat())]
        self._new.set()

    def stop(self, why: str) -> None:
        """Tell all readers that nothing more comes from here."""
        self.why = self.why or why
        with contextlib.suppress(ValueError):
            self.subscription.hearing.remove(self._hear)
        for task in self._tasks:
            task.cancel()
        self._wake()

    async def read(
        self, ordinal: int, wait: float | None = None, lane: Lane | None = None
    ) -> AsyncGenerator[Piece | Lost | None, None]:
        """What there is from `ordinal` on, then what comes; None: nothing came for so long that it is worth saying.

        wait: ends instead when nothing came for so long, s; 0: with what there is now.  lane: what comes goes that way,
        and not through here, for as long as it can; its `ordinal` is how far it went.
        """
        if wait is not None and self.why is None:
            await self._look()
        self.readers += 1
        try:
            while True:
                more = self._more
                async for piece in self._there(ordinal):
                    ordinal = piece.end
                    yield piece
                if ordinal < self._next:
                    continue
                if self.why is not None:
                    return
                if more is self._more and lane is not None and wait is None:
                    await self._by_lane(lane, ordinal)
                    ordinal = lane.ordinal
                elif more is self._more:
                    beat = self._settings.heartbeat
                    try:
                        async with asyncio.timeout(beat if wait is None else min(beat, wait)):
                            await more.wait()
                    except TimeoutError:
                        if wait is not None and (wait := wait - beat) <= 0:
                            return
                        yield None
        finally:
            self.readers -= 1

    async def _by_lane(self, lane: Lane, ordinal: int) -> None:
        """Wait, while what comes is written to a lane."""
        lane.ordinal, lane.busy = ordinal, False
        lane.off.clear()
        self._lanes[lane] = None
        try:
            await lane.off.wait()
        finally:
            self._lanes.pop(lane, None)

    async def _beat(self) -> None:
        """Say to lanes that there was nothing to hear; a thousand timers, each of which wakes a task, cost a push its
        turn.
        """
        while True:
            await asyncio.sleep(self._settings.heartbeat)
            for number, lane in enumerate(list(self._lanes)):
                if number % _TOGETHER == _TOGETHER - 1:
                    await asyncio.sleep(0)
                if lane in self._lanes and not lane.busy and not lane.line.write(lane.beat):
                    self._off(lane)
                lane.busy = False

    def _off(self, lane: Lane) -> None:
        """It reads on by itself."""
        del self._lanes[lane]
        lane.off.set()

    async def _there(self, ordinal: int) -> AsyncIterator[Piece | Lost]:
        """What can be had at once: out of the tail, or what is older than that."""
        while self._tail and ordinal >= self._tail[0].first:
            at = bisect_right(self._tail, ordinal, key=lambda piece: piece.first) - 1
            piece = self._tail[at]
            if ordinal >= piece.end:
                return
            rest = piece.after(ordinal)
            ordinal = rest.end
            self.sent += int(rest.batch.num_rows)
            yield rest
        if ordinal >= self._next:
            return
        found = await self._in_thread(partial(self.subscription.peek, ordinal, _PEEK))
        for first, batch in found:
            if first > ordinal:
                self.lost += first - ordinal
                yield Lost(ordinal, first)
            ordinal = first + batch.num_rows
            self.sent += int(batch.num_rows)
            yield Piece(first, batch)
        if not found:  # all of it was let go of, by somebody who polls too
            self.lost += self._next - ordinal
            yield Lost(ordinal, self._next)

    async def _follow(self) -> None:
        """Look whenever the subscription says that there is more."""
        standing = self.subscription
        try:
            while True:
                await self._new.wait()
                await asyncio.sleep(self._settings.gather)  # the push that found it comes to its end first
                self._new.clear()
                closed = standing.closed  # asked first: outputs and the end may come while it looks
                await self._look()
                if standing.unread > self._settings.retain + self._settings.retain // 8:  # seldom: it takes the lock
                    await self._in_thread(partial(standing.release, self._next - self._settings.retain))
                if closed:
                    self.stop("closed")
                    return
        except NileError as error:
            self.stop(f"{type(error).__name__}: {error}")

    async def _look(self) -> None:
        """Take all that is new; who calls it while another one does waits for that one first."""
        async with self._looking:
            while pieces := await self._in_thread(partial(self._peeked, self._forms())):
                self._take(pieces)
                for piece in pieces:
                    await self._write(piece)

    def _forms(self) -> dict[str, Callable[..., bytes]]:
        """What makes the bytes of each form that a lane takes."""
        return {lane.form: lane.encoded for lane in self._lanes}

    def _peeked(self, forms: dict[str, Callable[..., bytes]]) -> list[Piece]:
        """What is new, with its bytes: made here, on a thread, where they keep no connection waiting."""
        pieces = [Piece(first, batch) for first, batch in self.subscription.peek(self._next, _PEEK)]
        for piece in pieces:
            for form, encoded in forms.items():
                piece.framed[form] = framed(encoded(piece.first, piece.batch, piece.forms))
        return pieces

    def _take(self, pieces: list[Piece]) -> None:
        """New ones: the oldest of the tail make room, all readers are told."""
        self._tail += pieces
        self._bytes += sum(piece.batch.nbytes for piece in pieces)
        gone = 0
        while self._bytes > self._settings.tail and gone < len(self._tail) - 1:
            self._bytes -= self._tail[gone].batch.nbytes
            gone += 1
        del self._tail[:gone]
        self._next = pieces[-1].end
        self._wake(lanes=False)

    async def _write(self, piece: Piece) -> None:
        """To every lane that has all before it, some at a time: pushes and requests have their turn between."""
        for number, lane in enumerate(list(self._lanes)):
            if number % _TOGETHER == _TOGETHER - 1:
                await asyncio.sleep(0)
            if lane not in self._lanes or lane.ordinal >= piece.end:
                continue
            chunk = piece.framed.get(lane.form)
            if chunk is not None and lane.ordinal == piece.first and lane.line.write(chunk):
                lane.ordinal, lane.busy = piece.end, True
                self.sent += int(piece.batch.num_rows)
            else:
                self._off(lane)

    def _wake(self, *, lanes: bool = True) -> None:
        self._more, woken = asyncio.Event(), self._more
        woken.set()
        if lanes:
            for lane in self._lanes:
                lane.off.set()
