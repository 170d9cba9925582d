"""A database over HTTP: results as Arrow beside the same in the process, pushes, and pushes while a thousand follow.

Server and the client that measures are threads of one process, so that its CPU time is what both of them cost; the
followers are a process of their own.
"""

from __future__ import annotations

import contextlib
import gc
import http.client
import multiprocessing
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.experiments.benchmarks.harness import Measure, Result, benchmark
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    import nile
else:
    nile = lazy("nile")

__all__ = ["server"]

RESULT_BAR, PUSH_BAR, P99_BAR = 0.5, 500_000.0, 1.5
_TOKEN = "a-token-for-benchmarks"
_ROWS, _BATCH, _PUSHES = 2_000_000, 10_000, 100
_CLIENTS, _DEAD = 1_000, 100
_SCHEMA = [("at", "float64"), ("item", "int64"), ("price", "float64")]


@contextmanager
def _served(db: nile.Database) -> Iterator[tuple[str, int]]:
    """(its address, its port) while the block runs."""
    try:
        from nile.server.serve import Server, listen
        from nile.server.settings import Settings
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"bench server: needed the extra 'server'; got no {error.name}; pip install 'nile-streams[server]'"
        ) from None
    bound, ready = listen("127.0.0.1", 0), threading.Event()
    settings = Settings(_TOKEN, rate=1e6, burst=1_000_000, streams=2 * _CLIENTS)
    running = Server(db, settings, ready=ready.set, alone=True)  # as `nile serve` runs it
    turn = sys.getswitchinterval()
    thread = threading.Thread(target=running.run, args=([bound],), daemon=True)
    thread.start()
    try:
        ready.wait(60)
        port = bound.getsockname()[1]
        yield f"http://127.0.0.1:{port}", port
    finally:
        running.should_exit = True
        thread.join(60)
        bound.close()
        db.close()
        gc.unfreeze()
        sys.setswitchinterval(turn)


def _opened() -> nile.Database:
    db = nile.connect()
    db.stream("s", [(name, getattr(pa, kind)()) for name, kind in _SCHEMA], time="at")
    return db


def _rows(begin: int, rows: int) -> pa.RecordBatch:
    at = np.arange(begin, begin + rows)
    return pa.RecordBatch.from_arrays(
        [pa.array(at * 1e-3), pa.array(at % 1_000), pa.array(np.sqrt(at + 1.0))], names=[name for name, _ in _SCHEMA]
    )


def _timed(call: Callable[[], object]) -> tuple[float, float]:
    """(CPU seconds of the process, seconds)."""
    begun, busy = time.perf_counter(), time.process_time()
    call()
    return time.process_time() - busy, time.perf_counter() - begun


_SELECTION = "SELECT at, item, price FROM sales WHERE item >= 10"
_JOIN = "SELECT a.at, b.at AS later, a.item, b.price FROM sales a, bought b WHERE a.item = b.item WINDOW '2 s'"


def _results(rows: int, rounds: int) -> list[Measure]:
    """Read batch by batch, in the process and as Arrow over HTTP: pairs of a window join, and a selection of most rows.

    The selection copies columns and does next to nothing else, at the speed of memory; HTTP copies them some more.
    """
    db = nile.connect()
    db.register(
        "sales", pa.Table.from_batches([_rows(begin, rows // 8) for begin in range(0, rows, rows // 8)]), time="at"
    )
    db.register("bought", pa.Table.from_batches([_rows(0, rows // 2)]), time="at")
    measures = []
    with _served(db) as (url, _), nile.connect(url, token=_TOKEN) as far:
        for what, text in (("pairs of a join", _JOIN), ("rows of a selection", _SELECTION)):

            def read(where: Any, text: str = text) -> int:
                return sum(batch.num_rows for batch in where.sql(text).batches())

            found = read(db)
            if read(far) != found:
                raise AssertionError(f"{what}: HTTP gave another number of rows than {found:,}")
            cpu, wall = [], []
            for _ in range(rounds):
                here, there = _timed(partial(read, db)), _timed(partial(read, far))
                cpu.append(here[0] / there[0])
                wall.append(here[1] / there[1])
            about = f"{found:,} rows; by CPU, of server and client together, {median(cpu):.2f} times"
            measures.append(
                Measure.of(f"{what} a second over HTTP Arrow, of in-process", wall, "times", RESULT_BAR, about=about)
            )
    return measures


def _pushes(pushes: int, rounds: int) -> list[Measure]:
    """Batches of 10,000 rows as Arrow into a stream that a standing query follows."""
    cpu, wall, at = [], [], 0
    with _served(_opened()) as (url, _), nile.connect(url, token=_TOKEN) as far:
        query = far.subscribe("SELECT at, price FROM s WHERE item = 7", name="q")
        for _ in range(rounds + 1):
            batches = [_rows(at + number * _BATCH, _BATCH) for number in range(pushes)]
            at += pushes * _BATCH

            def push(given: list[pa.RecordBatch] = batches) -> None:
                for batch in given:
                    far.push("s", batch)

            busy, took = _timed(push)
            cpu.append(pushes * _BATCH / busy)
            wall.append(pushes * _BATCH / took)
            query.poll()
    return [
        Measure.of("rows pushed a second of CPU", cpu[1:], "", PUSH_BAR,
                   about=f"batches of {_BATCH:,} rows, client and server together; "
                         f"{median(wall[1:]):,.0f} a second by the clock"),
    ]  # fmt: skip


def _come(port: int, clients: int, dead: int, leave: Any) -> None:
    """A crowd in a process of its own, which drops what comes and costs little.  dead: how many read nothing."""
    asked = (
        f"GET /queries/q/outputs HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {_TOKEN}\r\n\r\n".encode()
    )
    waiting, here = selectors.DefaultSelector(), bytearray(1 << 16)
    with contextlib.ExitStack() as lines:
        for number in range(clients):
            line = lines.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            line.sendall(asked)
            line.setblocking(False)
            if number >= dead:
                waiting.register(line, selectors.EVENT_READ)
        while not leave.is_set():
            for key, _ in waiting.select(0.2):
                if not key.fileobj.recv_into(here):  # type: ignore[union-attr]
                    waiting.unregister(key.fileobj)


def _p99(took: list[float]) -> float:
    return sorted(took)[int(0.99 * len(took))]


def _crowded(clients: int, dead: int, pushes: int, rounds: int) -> list[Measure]:
    """How long a push of 20 rows takes that a crowd follows, beside the same followed by nobody; they take turns."""
    db, at = _opened(), 0
    db.subscribe("SELECT at, item, price FROM s", name="q")
    spawned = multiprocessing.get_context("spawn")
    alone: list[list[float]] = []
    crowd: list[list[float]] = []
    busy: dict[bool, list[float]] = {True: [], False: []}
    with _served(db) as (_, port):

        def push(many: bool) -> list[float]:
            nonlocal at
            took = []
            for _ in range(pushes):
                begun, spent = time.perf_counter(), time.thread_time()
                db.push("s", _rows(at, 20))
                took.append(time.perf_counter() - begun)
                busy[many].append(time.thread_time() - spent)
                at += 20
                time.sleep(0.1)
            return took

        def followed(by: int) -> None:
            end = time.monotonic() + 120
            told = ""
            while time.monotonic() < end:
                told = _metric(port, "nile_open_streams")
                if float(told) == by:
                    return
                time.sleep(0.1)
            raise AssertionError(f"{told} of {by} clients follow")

        push(False)
        for _ in range(rounds):
            alone.append(push(False))
            leave = spawned.Event()
            crowding = spawned.Process(target=_come, args=(port, clients, dead, leave))
            crowding.start()
            followed(clients)
            gc.collect()  # what a thousand connections made is not a push's to clear away
            crowd.append(push(True))
            leave.set()
            crowding.join(60)
            followed(0)
    ratios = [_p99(many) / _p99(few) for many, few in zip(crowd, alone, strict=True)]
    few, many = [list(chain.from_iterable(each)) for each in (alone, crowd)]
    about = (
        f"{clients:,} clients, {dead} of whom read nothing; {len(many):,} pushes each; medians {median(few) * 1e3:.2f} "
        f"and {median(many) * 1e3:.2f} ms, 99 % {_p99(few) * 1e3:.2f} and {_p99(many) * 1e3:.2f} ms"
    )
    cpu = _p99(busy[True]) / _p99(busy[False])
    return [
        Measure.of("push, 99 % by the clock, of without clients", ratios, "times", P99_BAR, most=True, about=about),
        Measure("the same by CPU of the push", cpu, "times", P99_BAR, most=True,
                about="what the scheduler of a shared machine does is not in it"),
    ]  # fmt: skip


def _metric(port: int, name: str) -> str:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    line.request("GET", "/metrics", headers={"Authorization": f"Bearer {_TOKEN}"})
    told = line.getresponse().read().decode()
    line.close()
    return next(each.split()[-1] for each in told.splitlines() if each.startswith(name + " "))


def _brief() -> Result:
    return _measured(rows=500_000, pushes=30, rounds=3, clients=300, followed=50)


@benchmark("server", "A database over HTTP: results, pushes, and pushes that a thousand clients follow", brief=_brief)
def server() -> Result:
    """Medians of rounds that take turns; CPU of the process beside the clock."""
    return _measured(rows=_ROWS, pushes=_PUSHES, rounds=5, clients=_CLIENTS, followed=150)


def _measured(rows: int, pushes: int, rounds: int, clients: int, followed: int) -> Result:
    measures = [
        *_results(rows, rounds),
        *_pushes(pushes, rounds),
        *_crowded(clients, clients // 10, followed, rounds),
    ]
    return Result(
        name="server",
        title="over HTTP, beside the same in the process",
        unit="rows",
        work=rows,
        timings=(),
        measures=tuple(measures),
        notes=("loopback; server and measuring client are threads of one process, followers a process of their own",),
    )
