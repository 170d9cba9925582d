"""Power loss at any operation: the store opens with the last commit or the one that was under way, never a mix.

The same harness is shown to find what it should: a store that does not sync before it renames, one that does not
sync the names, one that keeps two files without a manifest.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from crash_files import Crash, CrashFiles, Tally, Workload, torture
from store_killer import in_memory

from nile.pyramid.disk import Files, OpenFile, StoredFile, StoreDirectory
from nile.pyramid.disk.recovery import own_files
from nile.summaries.errors import StoreRecovered, StoreWriteError


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder for disks, in memory where there is one."""
    with in_memory() as folder:
        yield folder


def content(tag: str, length: int) -> bytes:
    """Bytes that only this tag has."""
    return hashlib.shake_128(tag.encode()).digest(length)


class Commits:
    """Commits of several files each, some kept over many, and a ledger of what may be in force after a crash."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.attempts: dict[int, list[list[object]]] = {0: []}
        self.sure = 0  # the newest attempt known to be durable
        self.counter = 0

    def run(self, root: Path, files: Files) -> None:
        try:
            store, self.sure = self.opened(root, files)
        except StoreWriteError:
            return  # a disk that fails while the store is made or settled
        with store:
            kept = {file: tag for file, (_, tag, _) in zip(self.listed(store), self.attempts[self.sure], strict=True)}
            for _ in range(self.rng.randint(1, 6)):
                try:
                    self.once(store, kept)
                except StoreWriteError:
                    if self.rng.random() < 0.5:
                        store.discard()

    def once(self, store: StoreDirectory, kept: dict[StoredFile, str]) -> None:
        """Stage some, drop some, commit."""
        rng = self.rng
        self.counter = attempt = self.counter + 1
        new: dict[StoredFile, str] = {}
        for n in range(rng.randint(1, 3)):
            tag, length = f"{attempt}-{n}", rng.choice((0, 3, 511, 600, 2000))
            if rng.random() < 0.2:
                folder = f"lake/s={rng.randint(0, 1)}"
                with store.stage_path("cold", suffix=".parquet", folder=folder) as staged:
                    staged.path.write_bytes(content(tag, length))
                new[staged.file] = tag
            else:
                role = rng.choice(("state", "zone"))
                new[store.stage(role, (content(tag, length)[at : at + 500] for at in range(0, length, 500)))] = tag
        if rng.random() < 0.1:
            store.discard([store.stage("zone", b"never kept")])
        keep = {file: tag for file, tag in kept.items() if rng.random() < 0.7} | new
        rows = sorted([file.name, tag, file.length] for file, tag in keep.items())
        self.attempts[attempt] = rows
        try:
            store.commit({"counter": attempt, "files": rows}, keep)
        except StoreWriteError:  # what is staged is still good
            store.commit({"counter": attempt, "files": rows}, keep)
        self.sure = attempt
        kept.clear()
        kept.update(keep)

    def check(self, root: Path, files: Files) -> None:
        store, _ = self.opened(root, files)
        store.close()

    def listed(self, store: StoreDirectory) -> list[StoredFile]:
        return [store.files()[str(row[0])] for row in store.state.get("files", [])]

    def opened(self, root: Path, files: Files) -> tuple[StoreDirectory, int]:
        """The store and the attempt in force in it."""
        with warnings.catch_warnings():
            warnings.simplefilter("error", StoreRecovered)  # a crash damages nothing: there is nothing to recover from
            store = StoreDirectory.open(root / "store", files=files)
        found = store.state.get("counter", 0)
        if found < self.sure:
            raise AssertionError(f"attempt {self.sure} was committed, {found} came back")
        rows = self.attempts[found]
        if store.state.get("files", []) != rows or set(store.files()) != {row[0] for row in rows}:
            raise AssertionError(f"a mix: {store.state} and {sorted(store.files())} instead of {rows}")
        for name, tag, length in rows:
            if bytes(store.read(store.files()[str(name)])) != content(str(tag), int(str(length))):
                raise AssertionError(f"{name} is not what was written as {tag}")
        named = set(store.files()) | set(store._previous.files if store._previous else ())
        strange = set(own_files(files, str(root / "store"))) - named
        if strange and not getattr(files, "failing", None):  # a failing disk may refuse to remove
            raise AssertionError(f"left behind: {strange}")
        return store, found


# --- the store -----------------------------------------------------------------------------------------------


def test_five_hundred_crashes(scratch: Path) -> None:
    tally = torture(scratch, Commits, 500, 7, operations=90)
    assert tally.wrong == []
    assert tally.crashes >= 500


def test_crashes_on_a_disk_that_fails_as_well(scratch: Path) -> None:
    tally = torture(scratch, Commits, 150, 11, operations=90, failing=0.03)
    assert tally.wrong == []


@pytest.mark.long
@pytest.mark.parametrize("failing", [0.0, 0.02, 0.1])
def test_ten_thousand_crashes(scratch: Path, failing: float) -> None:
    tally = torture(scratch, Commits, 10_000, int(failing * 1000), operations=110, failing=failing)
    assert tally.wrong == []
    assert tally.crashes >= 10_000


def test_every_operation_of_making_a_store_and_two_commits_may_be_the_last(scratch: Path) -> None:
    at = 0
    while True:
        at += 1
        work = Commits(Random(3))
        root = scratch / f"{at}"
        root.mkdir()
        disk = CrashFiles(root, Random(at), at)
        try:
            work.run(root, disk)
        except Crash:
            pass
        else:
            break
        for n, mode in enumerate(("everything", "nothing", "some", "some", "some")):
            left = disk.crash(scratch / f"{at}-{n}", Random(n), mode)
            work.check(left, CrashFiles(left, Random(0)))
    assert at > 40


# --- what must be found --------------------------------------------------------------------------------------


class ForgetsToSyncFiles(CrashFiles):
    """Renames without fsync."""

    def fsync(self, file: OpenFile) -> None:
        pass


class ForgetsToSyncNames(CrashFiles):
    """Files are synced, the folders never."""

    def sync_directory(self, path: str) -> None:
        pass


class BelievesASecondSync(CrashFiles):
    """A sync that failed is tried again on the same file, which then says that all is well."""

    def fsync(self, file: OpenFile) -> None:
        try:
            super().fsync(file)
        except OSError:
            super().fsync(file)


class BelievesASecondSyncOfNames(CrashFiles):
    """The same with the names in a folder."""

    def sync_directory(self, path: str) -> None:
        try:
            super().sync_directory(path)
        except OSError:
            super().sync_directory(path)


class TwoFiles:
    """No manifest: a counter and what was made from it, each renamed and synced as it should be."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.sure = 0
        self.counter = 0

    def run(self, root: Path, files: Files) -> None:
        self.sure = self.counter = max(self.counter, self.look(root))
        for _ in range(4):
            self.counter += 1
            for name in ("counter", "square"):
                value = self.counter if name == "counter" else self.counter**2
                path = str(root / name)
                if (root / (name + ".tmp")).exists():
                    files.remove(path + ".tmp")
                file = files.create(path + ".tmp")
                try:
                    files.write(file, str(value).encode())
                    files.fsync(file)
                finally:
                    files.close(file)
                files.rename(path + ".tmp", path)
                files.sync_directory(str(root))
            self.sure = self.counter

    def check(self, root: Path, files: Files) -> None:
        assert isinstance(files, CrashFiles)
        self.look(root)

    def look(self, root: Path) -> int:
        counter, square = (int(p.read_text()) if p.exists() else 0 for p in (root / "counter", root / "square"))
        if counter**2 != square or counter < self.sure:
            raise AssertionError(f"{counter} and {square}")
        return counter


def findings(scratch: Path, work: type[Workload], files: type[CrashFiles], failing: float = 0.0) -> Tally:
    tally = torture(scratch, work, 400 if failing else 120, 5, operations=60, files=files, failing=failing)
    kinds = ("AssertionError", "StoreRecovered", "StoreCorrupt")  # nothing that the harness itself did wrong
    assert all(any(kind in wrong for kind in kinds) for wrong in tally.wrong), tally.wrong
    return tally


def test_a_rename_without_fsync_is_found(scratch: Path) -> None:
    tally = findings(scratch, Commits, ForgetsToSyncFiles)
    assert len(tally.wrong) >= 5
    assert any("manifest" in wrong or "data/" in wrong for wrong in tally.wrong)


def test_names_that_are_never_synced_are_found(scratch: Path) -> None:
    assert len(findings(scratch, Commits, ForgetsToSyncNames).wrong) >= 5


def test_a_second_fsync_after_a_failed_one_is_found(scratch: Path) -> None:
    assert len(findings(scratch, Commits, BelievesASecondSync, failing=0.06).wrong) >= 3
    assert len(findings(scratch, Commits, BelievesASecondSyncOfNames, failing=0.06).wrong) >= 2


def test_two_files_without_a_manifest_are_found(scratch: Path) -> None:
    tally = findings(scratch, TwoFiles, CrashFiles)
    assert len(tally.wrong) >= 5
    assert all("AssertionError" in wrong for wrong in tally.wrong)
