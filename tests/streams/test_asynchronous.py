"""Async sources, and answers that coroutines read: the event loop goes on, and what is left early is closed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pyarrow as pa
import pytest

import nile

ITEMS = 5


async def coming(closed: list[str], items: int = ITEMS) -> AsyncIterator[pa.Table]:
    """Tables of two rows, 60 ms apart."""
    try:
        for item in range(items):
            await asyncio.sleep(0.06)
            yield pa.table({"ts": [float(item), item + 0.5], "k": [1, 2], "item": [item, item]})
    finally:
        closed.append("source")


def test_an_async_generator_is_a_source_and_is_closed_at_its_end() -> None:
    closed: list[str] = []
    db = nile.connect()
    db.register("s", coming(closed), time="ts")
    assert db.sql("SELECT item FROM s WHERE k = 1").fetchall() == [(item,) for item in range(ITEMS)]
    assert closed == ["source"]
    assert not [each for each in threading.enumerate() if each.name == "nile async source"]


def test_a_function_that_makes_async_generators_is_read_again() -> None:
    db = nile.connect()
    db.register("s", lambda: coming([]), time="ts")
    for _ in range(2):
        assert db.sql("SELECT count(*) FROM s").fetchall() == [(2 * ITEMS,)]


def test_what_an_async_source_raises_is_raised_to_the_reader() -> None:
    async def broken() -> AsyncIterator[pa.Table]:
        yield pa.table({"ts": [0.0], "k": [1]})
        raise OSError("the line is dead")

    db = nile.connect()
    db.register("s", broken(), time="ts")
    with pytest.raises(OSError, match="the line is dead"):
        db.sql("SELECT k FROM s").fetchall()


@pytest.mark.parametrize("text", [
    "SELECT item FROM s WHERE k = 1",
    "SELECT s.item FROM s, t WHERE s.k = t.k AND s.item = t.item AND s.k = 1 WINDOW 0.1",
])  # fmt: skip
def test_a_loop_goes_on_while_answers_are_waited_for(text: str) -> None:
    async def both() -> tuple[list[int], int, set[int]]:
        db = nile.connect()
        db.register("s", coming([]), time="ts")
        db.register("t", coming([]), time="ts")
        ticks, found, places = 0, [], set()

        async def ticking() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.005)
                ticks += 1

        beside = asyncio.create_task(ticking())
        async for batch in db.sql(text):
            found += batch.column("item").to_pylist()
            places.add(ticks)
        beside.cancel()
        return found, ticks, places

    found, ticks, places = asyncio.run(both())
    assert found == list(range(ITEMS))
    assert ticks > ITEMS
    assert len(places) > 1  # rows came while the source went on


def test_a_cancelled_reader_closes_the_source() -> None:
    closed: list[str] = []

    async def cancelled() -> None:
        db = nile.connect()
        db.register("s", coming(closed, 10_000), time="ts")

        async def reading() -> None:
            async for _ in db.sql("SELECT item FROM s"):
                pass

        task = asyncio.create_task(reading())
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(100):
            if closed:
                return
            await asyncio.sleep(0.02)

    asyncio.run(cancelled())
    assert closed == ["source"]


def test_approximate_answers_are_read_by_coroutines_too() -> None:
    table = pa.table({"ts": [float(at) for at in range(50)], "k": [at % 3 for at in range(50)]})
    db = nile.connect()
    for name in "ab":
        db.register(name, table, time="ts")

    async def rows() -> int:
        return sum([batch.num_rows async for batch in db.join("a", "b", on="k").within(5).prefer("desc").run()])

    expected = db.join("a", "b", on="k").within(5).prefer("desc").run().to_arrow().num_rows
    assert asyncio.run(rows()) == expected > 0
