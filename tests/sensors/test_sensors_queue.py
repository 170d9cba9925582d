"""The queue of a query over sensors: four parts, a disk behind them, and batches that queries share."""

from __future__ import annotations

import errno
import io
import os
import random
import threading
import time
import warnings
from collections import deque
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile import END, NEW_VALUE
from nile.base.spill import Spill, temporary_file
from nile.sensors.queue import Held, Queue
from nile.sensors.scan import Scan, hand_out
from nile.summaries.errors import EnvelopeError

SCHEMA = pa.schema([("version", pa.int64()), ("ts", pa.int64()), ("reading", pa.float64()), ("text", pa.string())])


def batch(first: int, rows: int) -> pa.RecordBatch:
    numbers = list(range(first, first + rows))
    return pa.RecordBatch.from_pylist(
        [{"version": k % 7, "ts": k, "reading": k / 2, "text": f"row {k}" if k % 5 else None} for k in numbers],
        schema=SCHEMA,
    )


def put(queue: Queue, rows: pa.RecordBatch) -> None:
    while queue.full:
        time.sleep(0.001)
    queue.put(Held(rows, rows.nbytes))


@pytest.mark.parametrize("seed", range(8))
def test_what_goes_in_comes_out_in_order_whatever_the_speeds(seed: int) -> None:
    draw = random.Random(seed)
    queue = Queue(SCHEMA, 16_000)
    sizes = [draw.randrange(1, 200) for _ in range(150)]
    expected = batch(0, sum(sizes))

    def give() -> None:
        at = 0
        for size in sizes:
            put(queue, batch(at, size))
            at += size
            if draw.random() < 0.05:
                time.sleep(draw.random() * 0.02)
        queue.end()

    thread = threading.Thread(target=give)
    thread.start()
    got = []
    while not queue.ended:
        rows = queue.take(0.05)
        if rows is not None:
            got.append(rows)
            assert queue.memory <= 16_000 + 2 * expected.slice(0, 200).nbytes
        if draw.random() < 0.1:
            time.sleep(draw.random() * 0.02)
    thread.join()
    assert pa.Table.from_batches(got).combine_chunks().equals(pa.Table.from_batches([expected]))
    assert queue.spilled or seed


def test_a_reader_that_keeps_up_needs_no_disk() -> None:
    queue = Queue(SCHEMA, 16_000)
    for k in range(200):
        put(queue, batch(k, 50))
        assert queue.take(1).num_rows == 50  # type: ignore[union-attr]
    assert queue.spilled == 0


def test_memory_is_bounded_and_disk_is_freed() -> None:
    files: list[Any] = []

    def opened() -> Any:
        files.append(temporary_file())
        return files[-1]

    queue = Queue(SCHEMA, 40_000, open_file=opened)
    for k in range(2_000):
        put(queue, batch(k * 100, 100))
    assert queue.spilled > 100
    assert queue.memory < 60_000
    queue.end()
    got = []
    while (rows := queue.take(5)) is not None:
        got += rows.column("ts").to_pylist()
    assert got == list(range(200_000))
    deadline = time.monotonic() + 5
    while not all(file.closed for file in files) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(files) > 1
    assert all(file.closed for file in files)


class FullDisk(io.BytesIO):
    room = 0

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > FullDisk.room:
            super().write(bytes(data)[:3])  # some of it is there already
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


def test_a_full_disk_pauses_with_a_message_and_goes_on() -> None:
    FullDisk.room = 0
    queue = Queue(SCHEMA, 40_000, where="sensors 'd'", open_file=FullDisk)
    at = 0
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        while not queue.full:
            queue.put(Held(batch(at, 100), batch(at, 100).nbytes))
            at += 100
        time.sleep(1.2)
        assert queue.full
    assert len(told) == 1
    assert "sensors 'd': needed 1" in str(told[0].message)
    assert "reading sources pauses until there is room" in str(told[0].message)
    FullDisk.room = 1 << 30
    deadline = time.monotonic() + 5
    while queue.full and time.monotonic() < deadline:
        time.sleep(0.01)
    put(queue, batch(at, 100))
    queue.end()
    got: list[int] = []
    while not queue.ended:
        rows = queue.take(1)
        got += [] if rows is None else rows.column("ts").to_pylist()
    assert got == list(range(at + 100))


def test_a_full_disk_does_not_stop_a_reader() -> None:
    FullDisk.room = 0
    queue = Queue(SCHEMA, 40_000, open_file=FullDisk)
    at = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while not queue.full:
            queue.put(Held(batch(at, 100), batch(at, 100).nbytes))
            at += 100
        queue.end()
        got: list[int] = []
        while not queue.ended:
            rows = queue.take(1)
            got += [] if rows is None else rows.column("ts").to_pylist()
    assert got == list(range(at))
    assert queue.spilled == 0


def damage(file: Any) -> None:
    """Change a byte, wherever the process reads or writes meanwhile."""
    (byte,) = os.pread(file.fileno(), 1, 300)
    os.pwrite(file.fileno(), bytes([byte ^ 1]), 300)


def test_rows_that_the_disk_changed_are_refused() -> None:
    kept: list[Any] = []

    def opened() -> Any:
        kept.append(temporary_file())
        return kept[-1]

    spill = Spill(SCHEMA, opened)
    spill.append(batch(0, 100))
    damage(kept[0])
    with pytest.raises(EnvelopeError, match="spilled rows of sensors"):
        spill.pop()
    spill.close()
    queue = Queue(SCHEMA, 8_000, open_file=opened)
    at = 0
    while not queue.spilled:
        queue.put(Held(batch(at, 100), batch(at, 100).nbytes))
        at += 100
    damage(kept[-1])
    with pytest.raises(EnvelopeError):
        deque(iter(lambda: queue.take(1), None))


def test_closing_lets_go_of_everything() -> None:
    files: list[Any] = []

    def opened() -> Any:
        files.append(temporary_file())
        return files[-1]

    queue = Queue(SCHEMA, 8_000, open_file=opened)
    for k in range(100):
        put(queue, batch(k, 100))
    queue.close()
    put(queue, batch(0, 10))
    assert queue.take(0.1) is None
    assert queue.ended
    deadline = time.monotonic() + 5
    while not all(file.closed for file in files) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert all(file.closed for file in files)


# --- batches that queries share -------------------------------------------------------------------------------------


def scans(wanted: list[list[int]]) -> list[Scan]:
    made = [Scan(None, Queue(SCHEMA)) for _ in wanted]
    for scan, versions in zip(made, wanted, strict=True):
        scan.wanted = np.isin(np.arange(100), versions)
    return made


def streams(first: int) -> pa.RecordBatch:
    """Its memory is Arrow's own, which counts it; numpy's would not be counted."""
    versions = np.arange(10_000) % 100
    return pa.RecordBatch.from_arrays(
        [pa.array(versions), pa.array(np.arange(first, first + 10_000)), pa.array(versions / 3),
         pa.nulls(10_000, pa.string())],
        schema=SCHEMA,
    ).take(pa.array(np.arange(10_000)))  # fmt: skip


def test_a_hundred_queries_over_a_hundred_streams_hold_each_row_once() -> None:
    before = pa.total_allocated_bytes()
    many = scans([list(range(100))] * 50 + [[k for k in range(100) if k != left] for left in range(50)])
    for k in range(20):
        rows = streams(k)
        size = rows.nbytes
        hand_out(rows, many)
    del rows
    held = pa.total_allocated_bytes() - before
    copies = sum(scan.queue.memory for scan in many)
    assert copies > 95 * 20 * size  # what a copy for each query would take
    assert held < 2 * 20 * size  # the rows once, and a bit per row of each query that wants a part of them
    for scan in many:
        for k in range(20):
            got = scan.queue.take(1)
            assert got is not None
            versions = streams(k).column(0).to_numpy()
            assert got.column(1).to_pylist() == (np.arange(k, k + 10_000)[scan.wanted[versions]]).tolist()
        del got
    assert pa.total_allocated_bytes() - before < size


def test_what_a_stuck_query_holds_is_freed_when_it_is_closed_and_a_later_one_has_what_comes_later() -> None:
    before, everything = pa.total_allocated_bytes(), list(range(100))
    stuck, closed, reading = scans([everything] * 3)
    for k in range(10):
        hand_out(streams(k), [stuck, closed, reading])
    size = streams(0).nbytes
    (later,) = scans([everything])
    for k in range(10, 20):
        hand_out(streams(k), [stuck, closed, reading, later])
    for k in range(20):
        got = reading.queue.take(1)
        assert got is not None
        assert got.column(1)[0].as_py() == k
        if k == 4:
            assert closed.queue.take(1) is not None
            closed.queue.close()  # in the middle of what it reads
    del got
    assert 19 * size < pa.total_allocated_bytes() - before < 21 * size, "for the one that is stuck, once"
    stuck.queue.close()
    assert 9 * size < pa.total_allocated_bytes() - before < 11 * size, "for the later one"
    assert [later.queue.take(1).column(1)[0].as_py() for _ in range(10)] == list(range(10, 20))  # type: ignore[union-attr]
    assert pa.total_allocated_bytes() - before < size


def test_queries_that_want_little_hold_copies() -> None:
    before = pa.total_allocated_bytes()
    few = scans([[1], [2], [3]])
    hand_out(streams(0), few)
    assert pa.total_allocated_bytes() - before < streams(0).nbytes * 0.1
    assert [scan.queue.take(1).num_rows for scan in few] == [100, 100, 100]  # type: ignore[union-attr]


# --- through a query ------------------------------------------------------------------------------------------------


class Burst(nile.Sensor):
    """Gives its rows as fast as it is asked."""

    rows = 40_000
    batch = True

    def init(self, _address: Any, _row: Any) -> None:
        self.at = 0

    def read(self) -> Any:
        if self.at >= self.rows:
            return END
        self.at += 500
        return NEW_VALUE, [float(k) for k in range(self.at - 500, self.at)]


def test_a_burst_beyond_the_buffer_is_read_whole_and_in_order() -> None:
    db = nile.connect()
    db.sql("CREATE SENSORS d (id INT, v STREAM(reading DOUBLE) USING 'Burst') BUFFER '100 kB'")
    db.sensors("d").add([{"id": k} for k in range(5)])
    slow = iter(db.sql("SELECT id, reading FROM d"))
    got: dict[int, deque[float]] = {k: deque() for k in range(5)}
    for number, rows in enumerate(slow):
        if number < 20:
            time.sleep(0.05)
        for row in rows.to_pylist():
            got[row["id"]].append(row["reading"])
    assert all(list(values) == [float(k) for k in range(Burst.rows)] for values in got.values())
    account = db.sensors("d").sources().to_pydict()
    assert account["tuples_in"] == account["applied"] == [Burst.rows] * 5


def test_a_stuck_reader_delays_no_other() -> None:
    db = nile.connect()
    db.sql("CREATE SENSORS d (id INT, v STREAM(reading DOUBLE) USING 'Burst') BUFFER '100 kB'")
    db.sensors("d").add([{"id": k} for k in range(3)])
    stuck = iter(db.sql("SELECT id, reading FROM d WHERE id < 2"))
    next(stuck)
    n = db.sql("SELECT count(reading) AS n FROM d WHERE id = 2").fetchall()
    assert n == [(Burst.rows,)]
    stuck.close()  # type: ignore[attr-defined]
