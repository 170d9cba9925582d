"""Two threads beside one: exact joins from an Arrow table to an Arrow table, the same bytes, in alternating rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

from nile.engine.connect import connect
from nile.experiments.benchmarks.exact.grid import Cell, stream_table
from nile.experiments.benchmarks.harness import Measure, Result, benchmark, beside
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa

__all__ = ["threads"]

TITLE = "exact joins on two threads beside one"
TUPLES, BRIEFLY = 1_000_000, 300_000
ROUNDS = 7
BAR = 1.75
_ASKS = 5
"""Answers that a process of its own gives in a turn, so that both begin as good as at once."""


def _cells(tuples: int) -> tuple[Cell, ...]:
    return (
        Cell(60, 16.0, "int32", "pairs", "Arrow", tuples),
        Cell(3_600, 16.0, "int32", "pairs", "Arrow", tuples),
        Cell(600, 1.0, "int32", "pairs", "Arrow", tuples),
        Cell(3_600, 1.0, "int64 sparse", "pairs", "Arrow", tuples),
        Cell(3_600, 1.0, "short text", "pairs", "Arrow", tuples),
        Cell(60, 16.0, "int32", "count", "Arrow", tuples),
    )


@benchmark("threads", TITLE, brief=lambda: replace(_measured(BRIEFLY), brief=True))
def threads() -> Result:
    """By the clock on the wall, and by the longest of the threads, which other work on the machine does not touch."""
    return _measured(TUPLES)


def _measured(tuples: int) -> Result:
    rows = [_row(cell) for cell in _cells(tuples)]
    measures = []
    for asked in ("pairs", "count"):
        own = [row for row in rows if row["asked"] == asked]
        for name, bar in (("wall", BAR), ("longest thread", None)):
            least = min(own, key=lambda row: row[name])
            measures.append(
                Measure(
                    f"{asked}, two threads over one, {name}, the least shape", least[name], "times", bar,
                    about=f"{least['cell']}; of {len(own)} the median {median(row[name] for row in own):.3g}",
                )
            )  # fmt: skip
        least = min(own, key=lambda row: row["two processes"])
        measures.append(
            Measure(f"{asked}, two processes over one, wall, the least shape", least["two processes"], "times",
                    about=f"what the machine gives; {least['cell']}; of {len(own)} the median "
                          f"{median(row['two processes'] for row in own):.3g}; two threads have of it "
                          f"{min(row['wall'] / row['two processes'] for row in own):.3g} and more")
        )  # fmt: skip
        measures.append(
            Measure(f"{asked}, CPU on two threads over that on one, the most", max(row["CPU"] for row in own), "times")
        )
    return Result(
        name="threads", title=TITLE, unit="shapes", work=len(rows), timings=(), measures=tuple(measures),
        notes=(
            "longest thread: CPU of the run on one thread over that of the busiest of the two",
            "two processes: the query on one thread, asked in two processes at once over in one after the other",
        ),
        rows=tuple(rows),
    )  # fmt: skip


def _row(cell: Cell) -> dict[str, Any]:
    tables = [stream_table(cell, stream) for stream in range(2)]
    with ExitStack() as opened:
        ways: dict[int, Callable[[], Any]] = {}
        for count in (1, 2):
            db = opened.enter_context(connect(threads=count))
            for name, table in zip("ab", tables, strict=True):
                db.register(name, table, time="ts")
            ways[count] = _asking(db, cell)
        if _bytes(ways[1]()) != _bytes(ways[2]()):
            raise ConfigError(
                f"bench threads, {cell}: needed the same bytes from both; got others; report this as a bug"
            )
        spent: dict[int, list[tuple[float, float, float]]] = {1: [], 2: []}
        for _ in range(ROUNDS):
            for count, run in ways.items():
                wall, own, cpu = time.perf_counter(), time.thread_time(), time.process_time()
                run()
                spent[count].append((time.perf_counter() - wall, time.thread_time() - own, time.process_time() - cpu))
    one, two = ([median(each) for each in zip(*spent[count], strict=True)] for count in (1, 2))
    longest = max(two[1], two[2] - two[1])
    return cell._asdict() | {
        "cell": str(cell), "wall": one[0] / two[0], "longest thread": one[2] / longest, "CPU": two[2] / one[2],
        "two processes": _processes(cell), "one": one, "two": two,
    }  # fmt: skip


def _processes(cell: Cell) -> float:
    """Work in a second of two processes that ask at once over that of one alone: what the machine gives to two."""
    ratios = []
    with _asker(cell) as one, _asker(cell) as other:
        for _ in range(ROUNDS):
            alone = _asked([one])
            ratios.append(2 * alone / _asked([one, other]))
    return median(ratios)


def _asked(askers: list[Connection]) -> float:
    """Seconds until the last of these has its answers."""
    for asker in askers:
        asker.send(True)
    return max(float(asker.recv()) for asker in askers)


@contextmanager
def _asker(cell: Cell) -> Iterator[Connection]:
    """A process that asks each time that it is told to, and says how many seconds the answers took."""
    with beside(_ask, cell) as asker:
        asker.recv()
        yield asker


def _ask(cell: Cell, told: Connection) -> None:
    with connect(threads=1) as db:
        for stream, name in enumerate("ab"):
            db.register(name, stream_table(cell, stream), time="ts")
        run = _asking(db, cell)
        run()
        told.send(None)
        while True:
            try:
                told.recv()
            except EOFError:  # that was all
                return
            began = time.perf_counter()
            for _ in range(_ASKS):
                run()
            told.send(time.perf_counter() - began)


def _asking(db: Any, cell: Cell) -> Callable[[], Any]:
    if cell.asked == "count":
        query = db.join("a", "b", on="k", window=cell.window)
        return lambda: pa.table({"n": [int(query.run().estimate.value)]})
    text = f"SELECT a.v AS v_a, b.v AS v_b FROM a, b WHERE a.k = b.k WINDOW '{cell.window} s'"
    return lambda: db.sql(text).to_arrow()


def _bytes(table: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
