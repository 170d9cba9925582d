"""Files that are held whole are read on threads of their own: the same answers, errors and bounds as one by one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import nile
from nile.base.room import allowed_room, within
from nile.exact.join import threads
from nile.streams import abreast
from nile.streams.abreast import read_abreast
from nile.streams.manager import StreamManager, StreamSpec
from nile.summaries.errors import TimestampOrderError


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "cores", lambda: 2)
    monkeypatch.setattr(abreast, "_WORTH", 1)


def _managers(folder: Path, rows: tuple[int, ...], count: int | None = None, disorder: int = -1) -> list[StreamManager]:
    made = []
    for k, n in enumerate(rows):
        ts = np.arange(n)
        if k >= disorder >= 0:
            ts[n // 2] = 0
        path = folder / f"{k}.parquet"
        parquet.write_table(pa.table({"ts": pa.array(ts, pa.timestamp("ns")), "k": ts % 7, "v": ts * k}), path)
        made.append(StreamManager(StreamSpec(f"s{k}", path, "ts", "k", carry=("v",), threads=count)))
    return made


Seen = tuple[int, int, int | None, int | None]


def _load(one: StreamManager) -> Generator[None, None, Seen]:
    """(sum of a column, the thread, threads that decode, the room)."""
    total = 0
    for batch in one.whole(1_000):
        assert batch.carried is not None
        total += int(batch.carried.column(0).to_numpy().sum())
        yield
    return total, threading.get_ident(), one.threads, allowed_room()


@pytest.mark.parametrize(
    ("rows", "count", "lanes"),
    [
        ((5_000, 5_000), None, 2),
        ((5_000, 4_000, 3_000), None, 2),
        ((5_000, 5_000), 1, 1),
        ((50_000, 5_000), None, 1),
        ((5_000,), None, 1),
        ((5_000, 0), None, 1),
        ((), None, 0),
    ],
)
def test_files_of_like_length_have_a_thread_each(
    rows: tuple[int, ...], count: int | None, lanes: int, tmp_path: Path
) -> None:
    with within(1 << 30):
        found = read_abreast(_managers(tmp_path, rows, count), _load)
    assert [total for total, *_ in found] == [k * n * (n - 1) // 2 for k, n in enumerate(rows)]
    assert len({thread for _, thread, *_ in found}) == lanes
    assert all(decoding == (1 if lanes > 1 else count) for _, _, decoding, _ in found)
    assert all(room == 1 << 30 for *_, room in found)


@pytest.mark.parametrize("first", [0, 1])
def test_the_first_error_in_order_comes_out(first: int, tmp_path: Path) -> None:
    with pytest.raises(TimestampOrderError, match=f"'s{first}'"):
        read_abreast(_managers(tmp_path, (9_000, 5_000), disorder=first), _load)


def test_an_interrupt_ends_the_other_file_before_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, seen = threading.Event(), []

    def load(one: StreamManager) -> Generator[None, None, None]:
        if one.spec.name == "s0":
            begun.wait()
            signal.raise_signal(signal.SIGINT)
        for number, _ in enumerate(one.batches(10)):
            begun.set()
            seen.append(number)
            stopped.wait()
            yield

    stopped = threading.Event()
    stop = threads.Ahead.stop

    def stopping(several: Any) -> None:
        for each in several:
            each._nobody_reads.set()
        stopped.set()
        stop(several)

    monkeypatch.setattr(threads.Ahead, "stop", staticmethod(stopping))
    with pytest.raises(KeyboardInterrupt):
        read_abreast(_managers(tmp_path, (5_000, 5_000)), load)
    assert seen == [0]


def test_queries_over_files_answer_as_on_one_thread(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for name, n in (("a", 30_000), ("b", 25_000)):
        ts = pa.array(np.sort(rng.integers(0, 10**6, n)), pa.timestamp("us"))
        table = pa.table({"ts": ts, "k": [f"key {k}" for k in rng.integers(0, 90, n)], "v": rng.random(n)})
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    told = []
    for count in (1, 2):
        with nile.connect(threads=count) as db:
            for name in "ab":
                db.register(name, tmp_path / f"{name}.parquet", time="ts")
            joined = db.sql("SELECT a.v AS v, b.v AS w FROM a, b WHERE a.k = b.k AND a.v < .5 WINDOW '2 ms'")
            counted = db.join("a", "b", on="k", window="2 ms").run()
            told.append((joined.to_arrow(), counted.estimate.value, counted.to_arrow()))
    assert told[0] == told[1]
    assert told[0][0].num_rows > 1_000
