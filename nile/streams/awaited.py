"""Asynchronous sources: what an async iterable gives, to readers that are not asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterable, AsyncIterator, Generator
from typing import Any

__all__ = ["awaited"]

_END = object()


def awaited(items: AsyncIterable[Any]) -> Generator[Any]:
    """The items, one after another, awaited on an event loop of its own, which runs on a thread of its own.

    Whoever reads waits for the next item, in a coroutine too; so items must not come from tasks of the reader's loop.
    Closed early, what is being awaited is cancelled and async generators are closed, on that loop.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="nile async source", daemon=True)
    thread.start()
    given = aiter(items)
    try:
        while (item := asyncio.run_coroutine_threadsafe(_next(given), loop).result()) is not _END:
            yield item
    finally:
        if threading.current_thread() is not thread:  # else it is collected there, and could wait for itself
            asyncio.run_coroutine_threadsafe(_closed(loop), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


async def _next(given: AsyncIterator[Any]) -> Any:
    return await anext(given, _END)


async def _closed(loop: asyncio.AbstractEventLoop) -> None:
    """As `asyncio.run` ends: tasks are cancelled, async generators closed."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await loop.shutdown_asyncgens()
