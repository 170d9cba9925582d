"""Disk full, I/O errors and failing syncs at every single operation: the old state is intact, the next commit works."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from store_killer import in_memory

from nile.pyramid.disk import Files, OpenFile, StoredFile, StoreDirectory
from nile.pyramid.disk.lock import Lock
from nile.pyramid.disk.recovery import own_files
from nile.summaries.errors import StoreCorrupt, StoreError, StoreReadOnly, StoreRecovered, StoreWriteError

CODES = [errno.ENOSPC, errno.EIO, errno.EROFS]


class Faulty(Files):
    """The real file system, but operation `at` fails with `code`, and with `lasting` every one after it as well.

    A write that fails has written half; a sync that fails has lost the bytes.
    """

    def __init__(self, at: int = 0, code: int = errno.EIO, *, lasting: bool = False) -> None:
        self.at, self.code, self.lasting = at, code, lasting
        self.count = 0
        self.log: list[str] = []

    def fails(self, what: str, path: str) -> bool:
        self.count += 1
        self.log.append(f"{what} {os.path.basename(path)}")
        return self.at > 0 and (self.count == self.at or (self.lasting and self.count > self.at))

    def step(self, what: str, path: str) -> None:
        if self.fails(what, path):
            raise OSError(self.code, os.strerror(self.code), path)

    def create(self, path: str) -> OpenFile:
        self.step("create", path)
        return super().create(path)

    def write(self, file: OpenFile, data: bytes | memoryview) -> None:
        if self.fails("write", file.path):
            super().write(file, memoryview(data)[: len(data) // 2])
            raise OSError(self.code, os.strerror(self.code), file.path)
        super().write(file, data)

    def fsync(self, file: OpenFile) -> None:
        if self.fails("fsync", file.path):
            os.pwrite(file.fd, bytes(os.fstat(file.fd).st_size), 0)
            raise OSError(self.code, os.strerror(self.code), file.path)
        super().fsync(file)

    def close(self, file: OpenFile) -> None:
        super().close(file)
        self.step("close", file.path)

    def fsync_path(self, path: str) -> None:
        if self.fails("fsync", path):
            Path(path).write_bytes(bytes(os.path.getsize(path)))
            raise OSError(self.code, os.strerror(self.code), path)
        super().fsync_path(path)

    def sync_directory(self, path: str) -> None:
        self.step("sync", path)
        super().sync_directory(path)

    def rename(self, source: str, target: str) -> None:
        self.step("rename", target)
        super().rename(source, target)

    def remove(self, path: str) -> None:
        if os.path.exists(path):
            self.step("remove", path)
        super().remove(path)

    def make_directory(self, path: str) -> None:
        self.step("make", path)
        super().make_directory(path)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory where there is one: these tests sync thousands of times."""
    with in_memory() as folder:
        yield folder


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A store of two commits, with a file that both keep."""
    path = tmp_path / "base"
    with StoreDirectory.open(path) as store:
        shared = store.stage("zone", b"shared" * 100)
        store.commit({"n": 1}, [shared, store.stage("state", b"one")])
        store.commit({"n": 2}, [shared, store.stage("state", b"two")])
    return path


def third(store: StoreDirectory) -> Iterator[StoredFile]:
    """The files of the third commit, in every way there is to make them."""
    yield next(file for file in store.files().values() if file.role == "zone")
    yield store.stage("zone", [b"a" * 1000, b"b" * 1000])
    yield store.stage_envelope("state", "three", {"n": 3}, {"a": np.arange(100)})
    with store.stage_path("cold", suffix=".parquet", folder="lake/s=1") as staged:
        staged.path.write_bytes(b"c" * 1000)
    yield staged.file


def whole(path: Path, allowed: set[int]) -> int:
    """Everything of the generation in force is what it should be; which one it is."""
    with StoreDirectory.open(path, read_only=True) as store:
        n = int(store.state["n"])
        assert n in allowed
        assert store.recovered is None
        for file in store.files().values():
            store.read(file)
        assert len(store.files()) == (4 if n == 3 else 2)
    return n


def clean(path: Path) -> bool:
    """Nothing is there but what the two generations name."""
    named: set[str] = set()
    with StoreDirectory.open(path, read_only=True) as store:
        named |= set(store.files()) | set(store._previous.files if store._previous else ())
    return set(own_files(Files(), str(path))) == named


@pytest.mark.parametrize("again", ["the same files", "new files", "after closing"])
@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
def test_every_operation_of_a_commit_may_fail(base: Path, tmp_path: Path, code: int, again: str) -> None:
    at, failed = 0, 0
    while True:
        at += 1
        path = shutil.copytree(base, tmp_path / f"{at}")
        files = Faulty()
        store = StoreDirectory.open(path, files=files)
        files.at, files.count, files.code = at, 0, code
        done: list[StoredFile] = []
        told = None
        try:
            done.extend(third(store))
            store.commit({"n": 3}, done)
        except StoreWriteError as error:
            told = error
        if files.count < at:
            break
        if told is None:  # a file that nobody needs could not be removed: no reason to fail
            assert files.log[-1].startswith("remove"), files.log
            assert (store.epoch, store.state) == (3, {"n": 3})
        else:
            failed += 1
            assert os.strerror(code) in str(told)
            assert str(path) in str(told)
            assert "committed before is intact" in str(told)
            assert told.errno == code
            assert (store.epoch, store.state) == (2, {"n": 2})
            whole(path, {2, 3})
            if again == "after closing":
                store.close()
                store = StoreDirectory.open(path)
                if store.epoch == 2:
                    assert store.commit({"n": 3}, list(third(store))) == 3
            elif again == "new files" or len(done) < 4:
                store.discard()
                assert store.commit({"n": 3}, list(third(store))) == 3
            else:
                assert store.commit({"n": 3}, done) == 3
        store.close()
        assert whole(path, {3}) == 3
        with StoreDirectory.open(path) as store:
            assert store.epoch == 3
        assert clean(path)
        shutil.rmtree(path)
    assert failed >= 20


@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
def test_every_operation_of_opening_may_fail(base: Path, tmp_path: Path, code: int) -> None:
    told: list[str] = []
    at = 0
    while True:
        at += 1
        path = shutil.copytree(base, tmp_path / f"{at}")
        (path / "data/00000003-00000-zone").write_bytes(b"left by a crash")
        files = Faulty(at, code)
        try:
            StoreDirectory.open(path, files=files).close()
        except StoreWriteError as error:
            told.append(str(error))
        if files.count < at:
            break
        whole(path, {2})
        with StoreDirectory.open(path) as store:  # and the lock was given back
            store.commit({"n": 3}, list(third(store)))
        assert whole(path, {3}) == 3
        assert clean(path)
    assert at > 6
    assert len(told) >= 2
    assert all(os.strerror(code) in message for message in told)


@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
def test_every_operation_of_making_a_store_may_fail(tmp_path: Path, code: int) -> None:
    told: list[str] = []
    at = 0
    while True:
        at += 1
        path = tmp_path / f"{at}/deep/store"
        files = Faulty(at, code)
        try:
            StoreDirectory.open(path, files=files).close()
        except (StoreWriteError, StoreReadOnly) as error:
            told.append(str(error))
        if files.count < at:
            break
        with StoreDirectory.open(path) as store:
            assert store.epoch == 0
            store.commit({"n": 1}, [store.stage("zone", b"x")])
        assert clean(path)
    assert at > 10
    assert len(told) > 8
    assert all(os.strerror(code) in message for message in told)


@pytest.mark.parametrize("room", range(1, 16))
def test_a_disk_that_stays_full_for_a_while(base: Path, room: int) -> None:
    files = Faulty()
    with StoreDirectory.open(base, files=files) as store:
        files.at, files.count, files.code, files.lasting = room, 0, errno.ENOSPC, True
        for _ in range(3):
            with pytest.raises(StoreWriteError, match="free some space"):
                store.commit({"n": 3}, list(third(store)))
            assert store.state == {"n": 2}
            files.at, (files.at, held) = 0, (room, store.files())
            for file in held.values():
                store.read(file)
            files.count = room
        files.at = 0
        store.discard()
        assert store.commit({"n": 3}, list(third(store))) == 3
    with StoreDirectory.open(base):
        pass
    assert clean(base)
    assert whole(base, {3}) == 3


def test_a_full_disk_does_not_keep_a_store_shut(base: Path) -> None:
    class Full(Faulty):
        def write(self, file: OpenFile, data: bytes | memoryview) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"{file.path}: {len(data)} bytes")

    (base / "data/00000003-00000-zone").write_bytes(b"left by a crash")
    with StoreDirectory.open(base, files=Full()) as store:
        assert store.state == {"n": 2}
        with pytest.raises(StoreWriteError):
            store.stage("zone", b"x")
    assert clean(base)
    whole(base, {2})


def fill_the_disk(path: Path) -> None:
    path.write_bytes(b"half")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_another_writer_that_meets_a_full_disk_is_told_the_same(base: Path) -> None:
    with StoreDirectory.open(base) as store:
        with pytest.raises(StoreWriteError, match="No space left"), store.stage_path("cold") as staged:
            fill_the_disk(staged.path)
        with pytest.raises(FileNotFoundError, match="source"), store.stage_path("cold") as staged:
            raise FileNotFoundError("the source is gone")
    assert clean(base)


def test_a_failed_sync_is_never_repeated_on_the_same_file(base: Path) -> None:
    files = Faulty()
    with StoreDirectory.open(base, files=files) as store:
        files.at, files.count, files.log = 3, 0, []
        with pytest.raises(StoreWriteError):
            store.stage("zone", b"x")  # create, write, fsync
        assert [line.split()[0] for line in files.log] == ["create", "write", "fsync", "close", "remove"]


# --- reading -------------------------------------------------------------------------------------------------


class Unreadable(Files):
    """Reading a file whose path ends so fails."""

    def __init__(self, end: str, code: int) -> None:
        self.end, self.code = end, code

    def read(self, path: str) -> bytes:
        if path.endswith(self.end):
            raise OSError(self.code, os.strerror(self.code), path)
        return super().read(path)

    def chunks(self, path: str, size: int = 1 << 20) -> Iterator[bytes]:
        if path.endswith(self.end):
            raise OSError(self.code, os.strerror(self.code), path)
        yield from super().chunks(path, size)


def test_a_manifest_on_a_bad_sector_gives_way_to_the_one_before(base: Path) -> None:
    with (
        pytest.warns(StoreRecovered, match=r"manifest-0 cannot be read \(Input/output error\); went back to epoch 1"),
        StoreDirectory.open(base, files=Unreadable("manifest-0", errno.EIO)) as store,
    ):
        assert store.state == {"n": 1}


def test_a_state_file_on_a_bad_sector_gives_way_to_the_generation_before(base: Path) -> None:
    with (
        pytest.warns(StoreRecovered, match=r"cannot be read .*went back to epoch 1"),
        StoreDirectory.open(base, read_only=True, files=Unreadable("00002-state", errno.EIO)) as store,
    ):
        assert store.state == {"n": 1}


@pytest.mark.parametrize("code", [errno.EACCES, errno.EMFILE, errno.ENOMEM], ids=errno.errorcode.get)
def test_what_may_pass_is_no_reason_to_go_back(base: Path, code: int) -> None:
    for end in ("manifest-0", "00002-state"):
        with pytest.raises(StoreError, match=os.strerror(code)) as told:
            StoreDirectory.open(base, files=Unreadable(end, code))
        assert not isinstance(told.value, StoreCorrupt)
        assert told.value.errno == code
    whole(base, {2})


def test_a_file_that_cannot_be_read_is_named(base: Path) -> None:
    with StoreDirectory.open(base, files=Unreadable("-zone", errno.EIO)) as store:
        zone = next(file for file in store.files().values() if file.role == "zone")
        with pytest.raises(StoreError, match=r"-zone: needed to read it; got Input/output error"):
            store.read(zone)


def test_a_folder_that_may_only_be_read_is_opened_for_reading_and_says_so(base: Path) -> None:
    class ReadOnly(Files):
        def lock(self, path: str) -> Lock:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    with pytest.raises(StoreReadOnly, match="Read-only file system; make the folder writable, or open it read-only"):
        StoreDirectory.open(base, files=ReadOnly())
    with StoreDirectory.open(base, read_only=True, files=ReadOnly()) as store:
        assert store.state == {"n": 2}


def test_a_file_system_that_syncs_no_folders_is_good_enough(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = os.fsync, []

    def fsync(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            asked.append(fd)
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    with StoreDirectory.open(base) as store:
        store.commit({"n": 3}, list(third(store)))
    assert len(asked) > 3
    assert whole(base, {3}) == 3
