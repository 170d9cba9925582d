"""The database behind a server: its calls run in threads, changes one at a time, and its queries are fed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from nile.engine.database import Database
from nile.server.client_errors import Telling, log
from nile.server.feeds import Feed
from nile.server.guard import Guard
from nile.server.metrics import Family, Sample
from nile.server.settings import Settings
from nile.summaries.errors import UnknownStream

__all__ = ["Service"]

_TICK = 0.05  # seconds between looks whether something waits
_SOME = 0.005  # CPU seconds of what waits that are worked at a time, between pushes


class Service:
    """One database, its feeds, and what the server has counted.

    Three sets of threads, so that none waits for another: one for changes (the database makes them one at a time
    anyway), `statements` for answers that are being found, and one for looking at outputs.
    """

    def __init__(self, db: Database, settings: Settings, telling: Telling) -> None:
        self.db = db
        self.settings = settings
        self.telling = telling
        self.guard: Guard | None = None
        self.counts: Counter[str] = Counter()
        self.begun = time.time()
        self.closing = asyncio.Event()
        self.closed = False
        self._feeds: dict[str, Feed] = {}
        self._moving: asyncio.Task[None] | None = None
        self._epoch = time.time_ns() // 1_000_000  # of queries that no store keeps: as long as this process lives
        self._changes = ThreadPoolExecutor(1, "nile-change")
        self._answers = ThreadPoolExecutor(settings.statements, "nile-answer")
        self._looks = ThreadPoolExecutor(1, "nile-look")

    async def change(self, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Run what changes the database, or looks at what changes."""
        return await asyncio.get_running_loop().run_in_executor(self._changes, partial(call, *given, **named))

    async def answer(self, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Run a step of an answer."""
        return await asyncio.get_running_loop().run_in_executor(self._answers, partial(call, *given, **named))

    async def answer_by(self, direct: socket.socket | None, call: Callable[[socket.socket | None], Any]) -> Any:
        """The same, by way of a socket that is closed afterwards, whether it was run or not."""
        try:
            running = self._answers.submit(call, direct)
        except RuntimeError:  # the server has gone down
            if direct is not None:
                direct.close()
            raise
        if direct is not None:
            running.add_done_callback(lambda _: direct.close())
        return await asyncio.wrap_future(running)

    def answer_later(self, call: Callable[[], Any]) -> None:
        """Have it run, without waiting for it."""
        with contextlib.suppress(RuntimeError):  # the server has gone down
            self._answers.submit(call)

    def change_now(self, call: Callable[..., Any], *given: Any) -> Any:
        """The same as `change`, for a thread that may wait."""
        return self._changes.submit(call, *given).result()

    def answer_now(self, call: Callable[..., Any], *given: Any) -> Any:
        """The same as `answer`, for a thread that may wait."""
        return self._answers.submit(call, *given).result()

    async def look(self, call: Callable[[], Any]) -> Any:
        """Look at outputs."""
        return await asyncio.get_running_loop().run_in_executor(self._looks, call)

    async def feed(self, name: str) -> Feed:
        """The outputs of a standing query.  Raises UnknownStream, DatabaseClosed."""
        standing = await self.change(self.db.subscription, name)
        held = self._feeds.get(name)
        if held is None or held.subscription is not standing:
            if held is not None:
                held.stop("closed")
            held = self._feeds[name] = Feed(name, standing, self._epoch, self.settings, self.look)
        return held

    @property
    def feeds(self) -> dict[str, Feed]:
        """Those that somebody has asked for."""
        return dict(self._feeds)

    async def begin(self) -> None:
        """Follow the queries that a store brought back: what is beyond `retain` is let go of from now on."""
        for name in await self.change(lambda: self.db.subscriptions):
            await self.feed(name)
        self._moving = asyncio.create_task(self._move_on())

    async def _move_on(self) -> None:
        """What a database does of itself when it is asked, though nobody asks: operators that a push left waiting run,
        streams that are silent move on.
        """
        pause = _TICK
        while not self.closed:
            await asyncio.sleep(pause)
            try:
                pause = 0 if await self.change(self.db.run, _SOME) else _TICK
            except Exception as error:  # readers of what it ended are told
                self.telling.told(error)
                pause = 1.0

    def end_streams(self) -> None:
        """Let every open stream end, and take no new request that would begin one."""
        self.closing.set()
        for feed in self._feeds.values():
            feed.stop("the server goes down; come back with the last ordinal")

    def families(self) -> list[Family]:
        """What /metrics tells."""
        db, guard, feeds = self.db, self.guard, list(self._feeds.values())
        streams = {}
        for name in db.streams:
            with contextlib.suppress(UnknownStream):  # one that has a source
                streams[name] = db.accounting(name)
        fates = ("applied", "late", "shed", "rejected")

        def each(figure: Callable[[Feed], float]) -> list[Sample]:
            return [({"query": feed.name}, figure(feed)) for feed in feeds]

        def once(value: float) -> list[Sample]:
            return [({}, value)]

        assert guard is not None
        return [
            ("nile_up_seconds", "gauge", "Since the server began.", once(time.time() - self.begun)),
            ("nile_requests_total", "counter", "Requests, refused ones too.", once(guard.requests)),
            ("nile_refused_total", "counter", "Requests that the guard refused, or streams it cut, by reason.",
             [({"reason": reason}, count) for reason, count in sorted(guard.refused.items())]),
            ("nile_calls_total", "counter", "Calls by route, rows and bytes that came and went.",
             [({"of": name}, count) for name, count in sorted(self.counts.items())]),
            ("nile_open_streams", "gauge", "Streams of outputs that are open.", once(sum(guard.open.values()))),
            ("nile_stream_tuples_total", "counter", "Tuples of a live stream by what became of them.",
             [({"stream": name, "fate": fate}, getattr(accounts, fate))
              for name, accounts in streams.items() for fate in fates]),
            ("nile_query_outputs_total", "counter", "Outputs of a standing query.",
             each(lambda feed: feed.subscription.outputs)),
            ("nile_query_unread", "gauge", "Outputs that are kept for those who come back.",
             each(lambda feed: feed.subscription.unread)),
            ("nile_query_memory_bytes", "gauge", "State of a standing query.",
             each(lambda feed: 0 if feed.subscription.closed else feed.subscription.memory)),
            ("nile_query_readers", "gauge", "Clients that follow a query.", each(lambda feed: feed.readers)),
            ("nile_query_lost_total", "counter", "Rows that readers were told are gone.", each(lambda feed: feed.lost)),
            ("nile_query_sent_total", "counter", "Rows handed to readers.", each(lambda feed: feed.sent)),
        ]  # fmt: skip

    async def close(self) -> None:
        """Close the database, which writes a last checkpoint."""
        self.end_streams()
        self.closed = True
        if self._moving is not None:
            self._moving.cancel()
        try:
            await self.change(self.db.close)
        finally:
            for pool in (self._answers, self._looks, self._changes):
                pool.shutdown(wait=False)
            log("closed", seconds=round(time.time() - self.begun, 3))
