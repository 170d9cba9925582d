"""A disk that fails at any write, sync or rename: the history answers on, and the next try succeeds."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from test_history import SCHEMA, check, made, same
from test_history_tiers import committed, reopened

from nile.pyramid.disk.directory import StoreDirectory
from nile.pyramid.disk.files import Files, OpenFile
from nile.pyramid.history import rows_store
from nile.pyramid.history.history import History
from nile.summaries.errors import ConfigError, StoreWriteError


class Failing(Files):
    """Fails once, at the operation after `countdown` others; None: never."""

    countdown: int | None = None

    def _step(self) -> None:
        if self.countdown is not None:
            self.countdown -= 1
            if self.countdown < 0:
                self.countdown = None
                raise OSError(errno.ENOSPC, "No space left on device")

    def write(self, file: OpenFile, data: bytes | memoryview) -> None:
        self._step()
        super().write(file, data)

    def fsync(self, file: OpenFile) -> None:
        self._step()
        super().fsync(file)

    def fsync_path(self, path: str) -> None:
        self._step()
        super().fsync_path(path)

    def rename(self, source: str, target: str) -> None:
        self._step()
        super().rename(source, target)


def test_a_failing_disk_loses_nothing_and_the_next_try_succeeds(tmp_path: Path) -> None:
    assert sum(one_failure(tmp_path / str(countdown), countdown) for countdown in range(0, 56, 7)) >= 6


@pytest.mark.long
def test_a_disk_failing_at_each_operation_loses_nothing(tmp_path: Path) -> None:
    operations = 0
    while one_failure(tmp_path / str(operations), operations):
        operations += 1
    assert operations >= 40


def one_failure(path: Path, countdown: int) -> int:
    """A history's life with one failure of the disk, after `countdown` operations that succeed; 1 when it came."""
    n, step, failed = 1_800, 600, 0
    ts, batch = made(n, 3)
    files = Failing()
    with StoreDirectory.open(path, files=files) as directory:
        history = History("s", SCHEMA, directory=directory, indexed=["key"], memory=30_000, local=60_000, segment=256,
                          largest=1024)  # fmt: skip
        files.countdown = countdown
        for at in range(0, n, step):
            history.append(ts[at : at + step], batch.slice(at, step))
            for act in ("settle", "commit", "archive"):
                try:
                    done(act, history, directory, int(ts[300]))
                except StoreWriteError:
                    failed += 1
                    assert history.tuples == at + step
                    assert np.array_equal(history.ts(np.arange(at + step)), ts[: at + step])
                    done(act, history, directory, int(ts[300]))
        check(history, ts, pa.Table.from_batches([batch]))
        files.countdown = None  # a failure that has not come by now is none
        committed(history, directory)
    again, directory = reopened(path)
    assert same(again.take(np.arange(n)), pa.Table.from_batches([batch]))
    directory.close()
    return failed


def done(act: str, history: History, directory: StoreDirectory, before: int) -> None:
    """One of the things that write."""
    if act == "settle":
        history.settle()
    elif act == "commit":
        committed(history, directory)
    else:
        history.archive(before)


def test_what_cannot_be_parquet_stays_where_it_is(tmp_path: Path) -> None:
    schema = pa.schema([("key", pa.int64()), ("list", pa.list_(pa.int64()))])
    with StoreDirectory.open(tmp_path / "s") as directory:
        history = History("s", schema, directory=directory, indexed=["key"], segment=256)
        history.append(np.arange(600), pa.record_batch({"key": range(600), "list": [[n] for n in range(600)]}, schema))
        with pytest.raises(ConfigError, match="Parquet"):
            history.archive(10_000)
        assert history.take(np.array([5]))["list"].to_pylist() == [[5]]
        assert not list((tmp_path / "s").glob("lake/*/*/*.parquet"))


@pytest.mark.parametrize("ahead", [512, 1_024])
@pytest.mark.parametrize("countdown", [None, 0, 1, 2, 5, 9])
def test_rows_written_while_others_come_are_written_once_or_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int, countdown: int | None
) -> None:
    monkeypatch.setattr(rows_store, "AHEAD", ahead)
    n, step = 4_096, 100
    ts, batch = made(n, 5)
    disk = Failing()
    with StoreDirectory.open(tmp_path, files=disk) as directory:
        history = History("s", SCHEMA, directory=directory, indexed=["key"], segment=256)
        for at in range(0, n, step):
            if at == 1_500:
                disk.countdown = countdown
            history.append(ts[at : at + step], batch.slice(at, step))
        assert len(list((tmp_path / "data").iterdir())) >= 2  # before anyone asked
        check(history, ts, pa.Table.from_batches([batch]))
        with contextlib.suppress(StoreWriteError):  # where the failure had not come yet
            committed(history, directory)
        committed(history, directory)
        assert disk.countdown is None
        check(history, ts, pa.Table.from_batches([batch]))
    again, directory = reopened(tmp_path)
    with directory:
        check(again, ts, pa.Table.from_batches([batch]))
