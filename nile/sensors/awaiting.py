"""Sources whose calls are awaited, all on one event loop on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from nile.sensors.port import PAUSE, Port, told

__all__ = ["Awaiter"]

Give = Callable[[Port, "tuple[Any, ...] | None"], None]
"""Takes what a source gave; None: it will give no more."""


class Awaiter:
    """Serves ports as tasks.  give, full (whether to pause): called on the loop's thread."""

    def __init__(self, give: Give, full: Callable[[], bool]) -> None:
        self._give = give
        self._full = full
        self._tasks: dict[Port, asyncio.Task[None]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="nile sensors awaited", daemon=True)
        self._thread.start()

    def begin(self, port: Port) -> None:
        """Read a source from now on."""

        def begin() -> None:
            self._tasks[port] = task = self._loop.create_task(self._serve(port))
            task.add_done_callback(lambda _: self._tasks.pop(port, None))

        self._loop.call_soon_threadsafe(begin)

    def leave(self, port: Port) -> None:
        """Cancel what it is in, and close it."""

        def leave() -> None:
            task = self._tasks.get(port)
            if task is not None:
                task.cancel()

        self._loop.call_soon_threadsafe(leave)

    def stop(self) -> None:
        """End the loop.  All ports must be closed."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _serve(self, port: Port) -> None:
        try:
            while not port.gone.is_set():
                await asyncio.sleep(max(0.0, port.due - time.monotonic()))
                while self._full():
                    await asyncio.sleep(PAUSE)
                found = await port.step_async()
                ended = port.follow(found, time.monotonic())
                if port.state != "open":
                    await self._end(port)
                elif type(found) is tuple:
                    self._give(port, found)
                if ended:
                    break
        finally:
            await self._end(port)
            if port.live:
                port.state = "closed"
            else:
                self._give(port, None)
            port.closed.set()

    async def _end(self, port: Port) -> None:
        """Close its instance, once."""
        instance = port.let_go()
        if instance is None or not instance.may_end():
            return
        try:
            found = instance.made.close()
            if isinstance(found, Awaitable):
                found = await asyncio.wait_for(told(found), instance.made.timeout)
                if isinstance(found, BaseException):
                    port.note_closing(found)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            port.note_closing(error)
