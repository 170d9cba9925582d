"""Who may open a store and where it may be: one writer, any reader, and no folder that holds something else."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nile
from nile.experiments.faults.places import at_place
from nile.pyramid.disk import StoreDirectory
from nile.pyramid.disk.files import Files
from nile.pyramid.disk.recovery import is_store
from nile.summaries.errors import (
    NileError,
    NotAStore,
    StoreError,
    StoreLocked,
    StoreMissing,
    StoreReadOnly,
)

ROOT = Path(__file__).parents[2]


def test_a_second_writer_is_refused_by_pid_and_a_reader_is_not(tmp_path: Path) -> None:
    with StoreDirectory.open(tmp_path) as store:
        store.commit({"n": 1}, [store.stage("zone", b"x")])
        with pytest.raises(StoreLocked, match=f"this process \\(pid {os.getpid()}\\)") as refused:
            StoreDirectory.open(tmp_path)
        assert refused.value.pid == os.getpid()
        assert isinstance(refused.value, BlockingIOError)
        told = subprocess.run(
            [sys.executable, "-c", f"from nile.pyramid.disk import StoreDirectory as S; S.open({str(tmp_path)!r})"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"lock held by process {os.getpid()};" in told.stderr
        with StoreDirectory.open(tmp_path, read_only=True) as reader:
            assert reader.state == {"n": 1}
            with pytest.raises(StoreReadOnly):
                reader.stage("zone", b"y")
            with pytest.raises(StoreReadOnly):
                reader.commit({}, [])
    with StoreDirectory.open(tmp_path) as store:
        assert store.epoch == 1


def test_a_dead_holder_does_not_block(tmp_path: Path) -> None:
    script = f"from nile.pyramid.disk import StoreDirectory as S; s = S.open({str(tmp_path)!r})"
    holder = subprocess.Popen(
        [sys.executable, "-c", f"{script}; print('in', flush=True); input()"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "in\n"
        with pytest.raises(StoreLocked, match=f"process {holder.pid};"):
            StoreDirectory.open(tmp_path)
    finally:
        holder.kill()
        holder.communicate()
    with StoreDirectory.open(tmp_path) as store:
        assert store.commit({}, []) == 1


def test_a_fork_neither_writes_nor_keeps_the_lock(tmp_path: Path) -> None:
    store = StoreDirectory.open(tmp_path)
    store.commit({"n": 1}, [])
    read, write = os.pipe()
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            store.commit({"n": 2}, [])
        except StoreReadOnly:
            os.write(write, b"refused")
        finally:
            os.close(write)
            os.close(go)
            os.read(ready, 1)  # outlives the parent's hold
            os._exit(0)
    os.close(write)
    os.close(ready)
    try:
        assert os.read(read, 100) == b"refused"
        store.close()
        with StoreDirectory.open(tmp_path) as again:
            assert again.state == {"n": 1}
    finally:
        os.close(go)
        os.close(read)
        os.waitpid(child, 0)


def test_of_many_who_open_at_once_one_gets_in(tmp_path: Path) -> None:
    for turn in range(10):
        start, got = threading.Barrier(4), []

        def enter(start: threading.Barrier = start, got: list[Any] = got, turn: int = turn) -> None:
            start.wait()
            try:
                got.append(StoreDirectory.open(tmp_path / f"s{turn}"))
            except NileError as error:
                got.append(error)

        threads = [threading.Thread(target=enter) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stores = [entry for entry in got if isinstance(entry, StoreDirectory)]
        assert len(stores) == 1
        assert all(isinstance(entry, StoreLocked) for entry in got if entry not in stores)
        stores[0].commit({}, [])
        stores[0].close()


class Meanwhile(Files):
    """A disk on which another process does something between two looks at a folder."""

    def __init__(self, after: str, does: Callable[[], object]) -> None:
        self._after, self._does = after, does

    def names(self, path: str) -> list[str]:
        found = super().names(path)
        if os.path.basename(path) == self._after:
            self._after = ""
            self._does()
        return found


def test_a_folder_that_a_maker_takes_away_meanwhile_is_no_store_yet(tmp_path: Path) -> None:
    root = tmp_path / "s"
    (root / "data").mkdir(parents=True)
    assert is_store(Meanwhile("s", (root / "data").rmdir), str(root)) is False


def test_a_store_that_is_made_between_two_looks_is_one(tmp_path: Path) -> None:
    root = tmp_path / "s"
    root.mkdir()

    def make() -> None:
        with StoreDirectory.open(root) as store:
            store.commit({}, [store.stage("zone", b"x")])

    assert is_store(Meanwhile("s", make), str(root)) is True


def test_a_closed_store_refuses(tmp_path: Path) -> None:
    store = StoreDirectory.open(tmp_path)
    file = store.stage("zone", b"x")
    store.commit({}, [file])
    store.close()
    store.close()
    for ask in (lambda: store.stage("zone", b""), lambda: store.read(file), lambda: store.commit({}, [])):
        with pytest.raises(StoreError, match="closed"):
            ask()


# --- where it may be ---------------------------------------------------------------------------------------


def test_nothing_is_made_where_a_store_was_to_be_found(tmp_path: Path) -> None:
    for options in ({"create": False}, {"read_only": True}):
        for path in (tmp_path / "absent", tmp_path):
            with pytest.raises(StoreMissing, match=f"{path}: needed a store"):
                StoreDirectory.open(path, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "entries", [["notes.txt"], ["data/sales.parquet"], ["LOCK", "CURRENT"], ["lake/part-0.parquet", "x"]], ids=str
)
def test_a_folder_that_holds_something_else_is_not_touched(tmp_path: Path, entries: list[str]) -> None:
    for entry in entries:
        (tmp_path / entry).parent.mkdir(exist_ok=True)
        (tmp_path / entry).write_bytes(b"mine")
    before = sorted(tmp_path.rglob("*"))
    for options in ({}, {"read_only": True}):
        with pytest.raises(NotAStore, match="name another folder"):
            StoreDirectory.open(tmp_path, **options)
    assert sorted(tmp_path.rglob("*")) == before


def test_foreign_files_in_a_store_are_left_alone(tmp_path: Path) -> None:
    with StoreDirectory.open(tmp_path) as store:
        store.commit({}, [store.stage("zone", b"x")])
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "data/copy of zone").write_text("mine")
    (tmp_path / "lake/spark").mkdir(parents=True)
    (tmp_path / "lake/spark/part-00000.parquet").write_text("mine")
    with StoreDirectory.open(tmp_path) as store:
        store.commit({}, [])
        store.commit({}, [])
    assert (tmp_path / "notes.txt").exists()
    assert (tmp_path / "data/copy of zone").exists()
    assert (tmp_path / "lake/spark/part-00000.parquet").exists()


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotAStore, match="got a file"):
        StoreDirectory.open(tmp_path / "file")
    with pytest.raises(NotAStore, match=f"{tmp_path / 'file'} on the way"):
        StoreDirectory.open(tmp_path / "file" / "a" / "b")


def test_a_relative_path_holds_when_the_process_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with StoreDirectory.open("deep/down/store") as store:
        (tmp_path / "else").mkdir()
        monkeypatch.chdir(tmp_path / "else")
        store.commit({"n": 1}, [store.stage("zone", b"x")])
    assert list((tmp_path / "else").iterdir()) == []
    with StoreDirectory.open(tmp_path / "deep/down/store") as store:
        assert store.state == {"n": 1}


def test_a_link_to_a_store_is_that_store(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with StoreDirectory.open(tmp_path / "link") as store:
        store.commit({"n": 1}, [])
        with pytest.raises(StoreLocked):
            StoreDirectory.open(tmp_path / "real")
    assert (tmp_path / "real/manifest-1").exists()
    assert (tmp_path / "link").is_symlink()


def test_an_odd_umask_does_not_shut_the_owner_out(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        with StoreDirectory.open(tmp_path / "store") as store:
            store.commit({"n": 1}, [store.stage("zone", b"x")])
    finally:
        os.umask(before)
    files = [file for file in (tmp_path / "store").rglob("*") if file.is_file()]
    assert len(files) == 4
    assert all(file.stat().st_mode & 0o600 == 0o600 for file in files if file.name != "LOCK")
    with StoreDirectory.open(tmp_path / "store") as store:
        assert store.state == {"n": 1}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of destructors that are cut into
def test_no_place_of_a_with_leaves_a_store_that_is_locked(tmp_path: Path) -> None:
    def used() -> None:
        with nile.connect(tmp_path / "store", memory="16MB") as db:
            db.sql("SELECT 1")

    def stopped() -> None:
        signal.raise_signal(signal.SIGINT)

    used()
    for at in range(0, at_place(used, None, stopped), 3):
        with contextlib.suppress(KeyboardInterrupt):
            at_place(used, at, stopped)
        nile.connect(tmp_path / "store", checkpoint=None).close()
