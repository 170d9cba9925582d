"""Batches for coroutines: found on a thread while the event loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

__all__ = ["in_turn"]


async def in_turn(batches: Iterator[Any]) -> AsyncGenerator[Any]:
    """What an iterator gives, asked for on one thread of its own; left early or cancelled, it is closed there."""
    asking = ThreadPoolExecutor(1, "nile batches")
    try:
        while (batch := await asyncio.get_running_loop().run_in_executor(asking, next, batches, None)) is not None:
            yield batch
    finally:
        if isinstance(batches, Generator):  # once what it is asked for now has come: nobody waits for that
            asking.submit(batches.close)
        asking.shutdown(wait=False)
