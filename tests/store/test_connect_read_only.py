"""A store opened for reading: a snapshot of its newest checkpoint, beside a process that goes on writing."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

import nile
from nile.summaries.errors import ConfigError, StoreMissing, StoreReadOnly

CLICKS = [("at", pa.float64()), ("page", pa.string())]


def pushed(db: nile.Database, begin: int, end: int) -> None:
    rows = {"at": [float(i) for i in range(begin, end)], "page": [f"p{i % 7}" for i in range(begin, end)]}
    db.push("clicks", rows, offset=end)


def count(db: nile.Database) -> int:
    return int(db.sql("SELECT count(*) AS n FROM clicks").fetchall()[0][0])


def test_a_reader_sees_the_last_checkpoint_and_never_more(tmp_path: Path) -> None:
    with nile.connect(tmp_path / "store", checkpoint=None) as writer:
        writer.stream("clicks", CLICKS, time="at")
        writer.sql("CREATE SUMMARY pages ON clicks (page) WITH GRANULARITY '10 s' AND COLLAPSE (3, 2)")
        writer.subscribe("SELECT page FROM clicks WHERE at > 5", name="later")
        pushed(writer, 0, 100)
        writer.checkpoint()
        pushed(writer, 100, 150)
        with nile.connect(tmp_path / "store", read_only=True) as reader:
            assert (count(reader), reader.offset("clicks"), reader.subscriptions) == (100, 100, ("later",))
            assert reader.summary("pages").store.tuples == 100
            for _ in range(3):
                writer.checkpoint()
            assert count(reader) == 100
        assert count(writer) == 150


def test_a_reader_changes_nothing_on_disk_and_cannot_push(tmp_path: Path) -> None:
    with nile.connect(tmp_path / "store") as writer:
        writer.stream("clicks", CLICKS, time="at")
        pushed(writer, 0, 10)
    before = {file: file.read_bytes() for file in (tmp_path / "store").rglob("*") if file.is_file()}
    with nile.connect(tmp_path / "store", read_only=True) as reader:
        with pytest.raises(StoreReadOnly):
            pushed(reader, 10, 20)
        with pytest.raises(StoreReadOnly):
            reader.stream("more", CLICKS, time="at")
        with pytest.raises(StoreReadOnly):
            reader.advance(50.0)
        with pytest.raises(StoreReadOnly):
            reader.checkpoint()
        assert reader.streams == ("clicks",)
        assert count(reader) == 10
        reader.register("pages", {"page": ["p1"], "title": ["one"]})  # stays in this process
        joined = reader.sql("SELECT title FROM clicks c JOIN pages p ON c.page = p.page").fetchall()
        assert joined == [("one",), ("one",)]
    assert {file: file.read_bytes() for file in (tmp_path / "store").rglob("*") if file.is_file()} == before


def test_readers_that_open_while_a_writer_commits_see_whole_generations(tmp_path: Path) -> None:
    stop = threading.Event()
    with nile.connect(tmp_path / "store", checkpoint=None) as writer:
        writer.stream("clicks", CLICKS, time="at")

        def write() -> None:
            end = 0
            while not stop.is_set():
                pushed(writer, end, end + 5)
                end += 5
                writer.checkpoint()

        thread = threading.Thread(target=write)
        thread.start()
        try:
            seen = []
            for _ in range(20):
                with nile.connect(tmp_path / "store", read_only=True) as reader:
                    seen.append(count(reader))
                    assert reader.offset("clicks") == seen[-1]
        finally:
            stop.set()
            thread.join()
    assert seen == sorted(seen)
    assert seen[-1] > seen[0]


def test_there_must_be_a_store_to_read(tmp_path: Path) -> None:
    with pytest.raises(StoreMissing):
        nile.connect(tmp_path / "store", read_only=True)
    assert not (tmp_path / "store").exists()
    with pytest.raises(ConfigError, match="needed the path of a store"):
        nile.connect(read_only=True)
