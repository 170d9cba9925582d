"""A thousand followers, a hundred slow or dead: pushes hardly notice, memory stays, who comes back misses nothing."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import resource
import sys
import time
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pytest
from served import TOKEN, Served, served

import nile

STREAM = pa.schema([("ts", pa.float64()), ("x", pa.int64())])
LINE = "x" * 200


def head(port: int, place: str) -> bytes:
    return (
        f"GET /queries/q/outputs?from={place} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Authorization: Bearer {TOKEN}\r\n\r\n"
    ).encode()


@lru_cache(maxsize=1_000)
def said(text: bytes) -> tuple[int, int, int]:
    """Epoch and ordinal of a line, and how many rows it has, which are the right ones.

    Who follows a query reads the same lines as all others, and the cores that would read each a thousand times are the
    server's.
    """
    told = json.loads(text)
    ordinal, found = told.get("ordinal", 0), [row["x"] for row in told.get("rows", ())]
    assert found == list(range(ordinal, ordinal + len(found)))
    return told.get("epoch", 0), ordinal, len(found)


async def follow(port: int, last: int, cut: int) -> None:
    """Read outputs until number `last`, each once and in order; hang up once after `cut` lines and come back."""
    place, ordinal, epoch = "start", 0, 0
    while ordinal < last:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head(port, place))
        lines = 0
        while ordinal < last:
            text = await reader.readline()
            assert text, f"the server is gone at output {ordinal}"
            if not text.startswith(b"{"):
                continue  # headers, sizes of chunks, beats
            named, first, found = said(text)
            epoch = named or epoch
            if found:
                assert first == ordinal
                ordinal += found
            lines += 1
            if cut and lines >= cut:
                cut = 0
                break
        place = f"{epoch}:{ordinal}"
        writer.close()


async def stall(port: int, going: asyncio.Event) -> None:
    """Ask, and read nothing."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 10)
    writer.write(head(port, "start"))
    await going.wait()
    writer.close()


async def crowd(port: int, last: int, clients: int, dead: int) -> None:
    """Followers that each see every row once, in order, and others that read nothing until these are done."""
    going = asyncio.Event()
    stalled = [asyncio.create_task(stall(port, going)) for _ in range(dead)]
    cuts = [3 + at // 7 % 40 if at % 7 == 0 else 0 for at in range(clients - dead)]  # not all at once
    await asyncio.gather(*(follow(port, last, cut) for cut in cuts))
    going.set()
    await asyncio.gather(*stalled)


def come(port: int, last: int, clients: int, dead: int) -> None:
    """In a process of their own: what they do is none of the server's work."""
    asyncio.run(crowd(port, last, clients, dead))


def together(
    up: Served, clients: int, dead: int, pushes: int, rows: int, every: float, at: float = 0.0, settled: float = 0.0
) -> list[float]:
    """Push to a query that everybody follows, from a time on; how long each push took, s.

    settled: seconds between their coming and the first push, for who measures readers and not a thousand requests at
    once, between which a push has the interpreter by turns (5 to 26 ms for 1.7).
    """
    last, took = pushes * rows, []
    crowding = multiprocessing.get_context("spawn").Process(target=come, args=(up.port, last, clients, dead))
    crowding.start()
    up.wait_until(lambda: sum(up.server.app.open.values()) >= clients, 60)
    time.sleep(settled)
    for push in range(pushes):
        begun = time.perf_counter()
        up.db.push("s", {"ts": [at + push] * rows, "x": range(push * rows, (push + 1) * rows)})
        took.append(time.perf_counter() - begun)
        time.sleep(every)
    up.db.advance(at + pushes)
    crowding.join(120)
    assert crowding.exitcode == 0
    up.wait_until(lambda: not up.server.app.open, 60)
    return took


def opened(folder: Path) -> nile.Database:
    db = nile.connect(folder, checkpoint=None)
    db.stream("s", STREAM, time="ts")
    ask(db)
    return db


def ask(db: nile.Database) -> None:
    db.subscribe(f"SELECT x, '{LINE}' AS told FROM s", name="q")


def test_who_reads_gets_all_of_it_though_a_tenth_of_all_read_nothing(tmp_path: Path) -> None:
    with served(opened(tmp_path), streams=2_000, rate=1e6, burst=1_000_000) as up:
        together(up, clients=200, dead=20, pushes=6, rows=20, every=0.05)


def for_so_long(folder: Path, seconds: float, clients: int, every: float) -> None:
    """Crowds come and go, each to a query of its own, a tenth of them dead; pushes without and with one in turn."""
    with served(opened(folder), alone=True, streams=2_000, rate=1e6, burst=1_000_000) as up:
        end, at = time.monotonic() + seconds, 0.0
        held: list[int] = []
        told = ""
        alone: list[float] = []
        took: list[float] = []

        def anew() -> None:
            up.db.subscription("q").close()
            ask(up.db)

        while time.monotonic() < end:
            anew()  # in both turns the first push is the first of a query, and each finds what the one before it told
            for push in range(40):
                begun = time.perf_counter()
                up.db.push("s", {"ts": [at + push] * 20, "x": range(20)})
                alone.append(time.perf_counter() - begun)
                time.sleep(every)
            at += 100.0
            up.db.advance(at)
            anew()
            took += together(up, clients, clients // 10, pushes=60, rows=20, every=every, at=at + 1.0, settled=2.0)
            at += 100.0
            held.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
            told = (
                f"99 % of {len(took)} pushes {worst(took):.6f} s, of {len(alone)} without clients {worst(alone):.6f} "
                f"s; {held[-1] >> 10} MiB\n"
            )
            sys.stdout.write(told)  # an hour is long
        assert held[-1] <= 1.1 * held[min(1, len(held) - 1)]
        assert worst(took) <= 1.5 * worst(alone), told


def worst(took: list[float]) -> float:
    return sorted(took)[int(0.99 * len(took))]


@pytest.mark.long
def test_a_thousand_clients_for_an_hour(tmp_path: Path) -> None:
    for_so_long(tmp_path, 3_600, 1_000, 1.0)
