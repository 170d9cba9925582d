"""A file system that forgets: what was not synced may be lost, torn or reordered by a crash, as POSIX allows.

`CrashFiles` works on a real folder, so that maps and other writers work, and keeps beside it what would be on the
disk: per file the synced bytes and the writes since, per folder the synced names and the changes since.  A crash, at
any operation, keeps any part of that: per file no write, all, the first few, some sectors of some, or the length
without the bytes; per name any point of its history since the last sync, each name on its own.  A failing fsync keeps
some part too, raises EIO, and calls the rest clean, so that a second fsync of the same bytes would lie.

`torture` runs a workload on it, crashes it over and over and collects what the workload then finds wrong.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Protocol

from nile.pyramid.disk.files import Files, OpenFile
from nile.pyramid.disk.lock import Lock

SECTOR = 512
WRITES = ("create", "write", "fsync", "close", "fsync_path", "sync_directory", "rename", "make_directory", "lock")


class Crash(BaseException):
    """The machine stopped.  No `except Exception` may survive it."""


@dataclass(eq=False)
class File:
    """synced: the bytes surely on disk; writes: (offset, bytes) since, in order."""

    synced: bytes = b""
    writes: list[tuple[int, bytes]] = field(default_factory=list)
    length: int = 0

    def after_crash(self, rng: Random, mode: str) -> bytes:
        """What the disk may hold: some part of the writes on top of what was synced."""
        how = rng.choice(("none", "all", "first", "some", "zeros"))
        how = {"nothing": "all", "everything": "none"}.get(mode, how)
        if how == "zeros":  # the new length arrived, the bytes did not
            end = max((at + len(data) for at, data in self.writes), default=0)
            return self.synced + bytes(max(0, end - len(self.synced)))
        data = bytearray(self.synced)
        kept = self.writes[: rng.randint(0, len(self.writes))] if how == "first" else self.writes
        for at, new in kept if how != "none" else []:
            if how == "first" and new is kept[-1][1]:
                new = new[: rng.randint(0, len(new))]
            data.extend(bytes(max(0, at + len(new) - len(data))))
            if how == "some":
                for sector in range(0, len(new), SECTOR):
                    if rng.random() < 0.5:
                        piece = new[sector : sector + SECTOR]
                        data[at + sector : at + sector + len(piece)] = piece
            else:
                data[at : at + len(new)] = new
        return bytes(data)


@dataclass(eq=False)
class Folder:
    """synced: the names surely on disk; changes: (name, what it is now, None for removed) since, in order.

    ghosts: names that a failed sync dropped, and that the cache still shows: no later sync brings them to the disk.
    """

    synced: dict[str, File | Folder] = field(default_factory=dict)
    changes: list[tuple[str, File | Folder | None]] = field(default_factory=list)
    ghosts: dict[str, File | Folder | None] = field(default_factory=dict)

    def now(self) -> dict[str, File | Folder]:
        """The names as a running process sees them."""
        names: dict[str, File | Folder | None] = {**self.synced, **self.ghosts, **dict(self.changes)}
        return {name: node for name, node in names.items() if node is not None}

    def sync(self) -> None:
        """The changes reach the disk; what an earlier failure dropped does not."""
        for name, node in self.changes:
            self.ghosts.pop(name, None)
            if node is None:
                self.synced.pop(name, None)
            else:
                self.synced[name] = node
        self.changes = []

    def fail_to_sync(self, rng: Random) -> None:
        """Some of the changes reach the disk, and all of them count as clean."""
        seen = self.now()
        self.synced, self.changes = self.after_crash(rng, "some"), []
        names = {*seen, *self.synced}
        self.ghosts = {name: seen.get(name) for name in names if seen.get(name) is not self.synced.get(name)}

    def after_crash(self, rng: Random, mode: str) -> dict[str, File | Folder]:
        """The names the disk may hold: each at any point of its own history."""
        history: dict[str, list[File | Folder | None]] = {name: [node] for name, node in self.synced.items()}
        for name, node in self.changes:
            history.setdefault(name, [None]).append(node)
        kept = {}
        for name, nodes in history.items():
            node = nodes[{"nothing": -1, "everything": 0}[mode] if mode != "some" else rng.randrange(len(nodes))]
            if node is not None:
                kept[name] = node
        return kept


class FakeLock(Lock):
    """Held by a process that crashes: nobody has to release it."""

    def __init__(self) -> None:
        """Hold no file."""

    def release(self) -> None:
        """Let nothing go."""


class CrashFiles(Files):
    """Files on `root` that stop at operation `crash_at` and fail with EIO at the operations `failing`.

    What is in `root` at the start counts as durable.  Operations are those of WRITES and the removals.
    """

    def __init__(self, root: Path, rng: Random, crash_at: int = 0, failing: frozenset[int] = frozenset()) -> None:
        self.root = str(root)
        self.rng = rng
        self.crash_at = crash_at
        self.failing = failing
        self.count = 0
        self.stopped = False
        self.log: list[str] = []
        self.top = self._scan(self.root)

    def _scan(self, path: str) -> Folder:
        folder = Folder()
        for entry in os.scandir(path):
            node = self._scan(entry.path) if entry.is_dir() else File(Path(entry.path).read_bytes())
            if isinstance(node, File):
                node.length = len(node.synced)
            folder.synced[entry.name] = node
        return folder

    # --- the model ----------------------------------------------------------------------------------------

    def _folder(self, path: str) -> Folder:
        node: File | Folder = self.top
        for part in Path(path).relative_to(self.root).parts:
            assert isinstance(node, Folder)
            node = node.now()[part]
        assert isinstance(node, Folder)
        return node

    def _file(self, path: str) -> File:
        node = self._folder(os.path.dirname(path)).now()[os.path.basename(path)]
        assert isinstance(node, File)
        return node

    def _change(self, path: str, node: File | Folder | None) -> None:
        self._folder(os.path.dirname(path)).changes.append((os.path.basename(path), node))

    def _step(self, what: str, path: str, model: Callable[[], None], real: Callable[[], Any] = lambda: None) -> Any:
        """One operation: it happens, or fails, or the machine stops before it or after it."""
        if self.stopped:
            raise Crash
        self.count += 1
        self.log.append(f"{what} {os.path.relpath(path, self.root)}")
        if self.count == self.crash_at:
            self.stopped = True
            if self.rng.random() < 0.5:
                model()
                real()
            raise Crash
        if self.count in self.failing:
            self._fail(what, path)
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        model()
        return real()

    def _fail(self, what: str, path: str) -> None:
        """A failing sync leaves some part on disk and calls all of it clean."""
        if what in ("fsync", "fsync_path"):
            file = self._file(path)
            file.synced, file.writes = file.after_crash(self.rng, "some"), []
        elif what == "sync_directory":
            self._folder(path).fail_to_sync(self.rng)

    def _reading(self) -> None:
        if self.stopped:
            raise Crash

    def crash(self, target: Path, rng: Random, mode: str = "some") -> Path:
        """A folder as the disk may be after the machine stopped now.

        mode: "some" of what was not synced is lost, "everything" of it, or "nothing" (a killed process).
        """
        self.stopped = True
        _build(self.top, target, rng, mode)
        return target

    def revive(self, crash_at: int, failing: frozenset[int] = frozenset()) -> None:
        """The process was killed, the machine goes on: what is in the cache stays there, synced or not."""
        self.stopped, self.count, self.crash_at, self.failing = False, 0, crash_at, failing

    # --- the operations -----------------------------------------------------------------------------------

    def create(self, path: str) -> OpenFile:
        return self._step("create", path, lambda: self._change(path, File()), lambda: Files.create(self, path))

    def write(self, file: OpenFile, data: bytes | memoryview) -> None:
        node, new = self._file(file.path), bytes(data)

        def model() -> None:
            node.writes.append((node.length, new))
            node.length += len(new)

        self._step("write", file.path, model, lambda: Files.write(self, file, data))

    def fsync(self, file: OpenFile) -> None:
        self._step("fsync", file.path, lambda: self._sync(self._file(file.path)))

    def _sync(self, file: File) -> None:
        file.synced, file.writes = file.after_crash(self.rng, "nothing"), []

    def close(self, file: OpenFile) -> None:
        os.close(file.fd)
        if self.stopped:
            raise Crash

    def fsync_path(self, path: str) -> None:
        data = Path(path).read_bytes()  # someone else wrote it: none of it is synced yet
        if os.path.basename(path) not in self._folder(os.path.dirname(path)).now():
            self._change(path, File(b"", [(0, data)], len(data)))
        self._step("fsync_path", path, lambda: self._sync(self._file(path)))

    def sync_directory(self, path: str) -> None:
        if not Path(path).is_relative_to(self.root):
            return

        self._step("sync_directory", path, self._folder(path).sync)

    def rename(self, source: str, target: str) -> None:
        node = self._folder(os.path.dirname(source)).now().get(os.path.basename(source))

        def model() -> None:
            self._change(target, node)
            self._change(source, None)

        self._step("rename", target, model, lambda: Files.rename(self, source, target))

    def remove(self, path: str) -> None:
        if not os.path.exists(path):
            self._reading()
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._step("remove", path, lambda: self._change(path, None), lambda: Files.remove(self, path))

    def make_directory(self, path: str) -> None:
        model = partial(self._change, path, Folder())
        self._step("make_directory", path, model, lambda: Files.make_directory(self, path))

    def remove_directory(self, path: str) -> None:
        if os.listdir(path):
            self._reading()
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        model = partial(self._change, path, None)
        self._step("remove_directory", path, model, lambda: Files.remove_directory(self, path))

    def lock(self, path: str) -> Lock:
        def model() -> None:
            if not os.path.exists(path):
                self._change(path, File(b"", [(0, b"1 host\n")], 7))

        self._step("lock", path, model, lambda: Path(path).write_text("1 host\n"))
        return FakeLock()

    def names(self, path: str) -> list[str]:
        self._reading()
        return super().names(path)

    def is_directory(self, path: str) -> bool | None:
        self._reading()
        return super().is_directory(path)

    def size(self, path: str) -> int:
        self._reading()
        return super().size(path)

    def read(self, path: str) -> bytes:
        self._reading()
        return super().read(path)


def _build(folder: Folder, target: Path, rng: Random, mode: str) -> None:
    target.mkdir()
    for name, node in sorted(folder.after_crash(rng, mode).items()):
        if isinstance(node, Folder):
            _build(node, target / name, rng, mode)
        else:
            (target / name).write_bytes(node.after_crash(rng, mode))


# --- many crashes -------------------------------------------------------------------------------------------


class Workload(Protocol):
    """Something that survives crashes.  It remembers, outside the store, what it was told was durable."""

    def run(self, root: Path, files: Files) -> None:
        """Open, check what is there, and work until done (or until Crash comes through)."""

    def check(self, root: Path, files: Files) -> None:
        """Open and check, and remember nothing.  Raises whatever it finds wrong."""


@dataclass
class Tally:
    """What `torture` did: disks looked at after a crash, operations before them, and what was wrong."""

    crashes: int = 0
    operations: int = 0
    wrong: list[str] = field(default_factory=list)


def torture(
    scratch: Path,
    workload: Callable[[Random], Workload],
    crashes: int,
    seed: int,
    *,
    operations: int,
    files: type[CrashFiles] = CrashFiles,
    failing: float = 0.0,
) -> Tally:
    """Crash a workload at least `crashes` times, each within about `operations` operations.

    A run goes on with what a crash left, up to six times, so that recovery is crashed as well; of each crash four
    disks are looked at.  failing: how often an operation fails with EIO.  After the first thing found wrong a
    workload is given up and another begins.  `scratch` is a folder for the disks.
    """
    rng = Random(seed)
    tally = Tally()
    while tally.crashes < crashes:
        work = workload(Random(rng.random()))
        root = scratch / f"disk-{tally.crashes}"
        root.mkdir()
        disk = files(root, Random(rng.random()))
        try:
            for life in range(6):
                bad = frozenset(n for n in range(1, operations * 2) if rng.random() < failing)
                disk.revive(rng.randint(1, operations), bad)
                with contextlib.suppress(Crash):
                    work.run(root, disk)
                tally.operations += disk.count
                for n, mode in enumerate(("everything", "some", "some", "some")):
                    left = disk.crash(scratch / f"{life}-{n}", rng, mode)
                    work.check(left, files(left, Random(0)))
                    tally.crashes += 1
                if rng.random() < 0.5:  # else the process alone was killed, and another opens what is in the cache
                    root = disk.crash(scratch / f"life-{life}", rng, rng.choice(("everything", "some")))
                    disk = files(root, Random(rng.random()))
        except Exception as error:  # every kind of wrong is a finding
            tally.wrong.append(f"seed {seed}, crash {tally.crashes}: {type(error).__name__}: {error}")
        for at in scratch.iterdir():
            shutil.rmtree(at)
    return tally
