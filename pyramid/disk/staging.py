"""Staging: new files of a store, each whole and synced before anything may name it."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nile.pyramid.disk.files import CHUNK, Files, OpenFile
from nile.pyramid.disk.manifest import FOLDER, ROLE, SUFFIX, TMP, StoredFile
from nile.pyramid.disk.opening import sync_or_remove, write_error
from nile.pyramid.disk.recovery import DATA
from nile.summaries.errors import StoreError

if TYPE_CHECKING:
    from nile.pyramid.disk.attempts import Attempt

__all__ = ["StagedPath", "Staging", "pieces", "telling"]

_OF_THE_DISK = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG))


class StagedPath:
    """A path that another writer fills, inside `StoreDirectory.stage_path`; `file` is what came of it, afterwards."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: StoredFile | None = None

    @property
    def file(self) -> StoredFile:
        """The stored file, once the `with` block has ended."""
        if self._file is None:
            raise StoreError(f"{self.path}: needed the end of the with block; got a question before it; ask behind it")
        return self._file


class Staging:
    """The files that no generation names yet: their names, their folders, and whether both are durable."""

    def __init__(self, root: str, files: Files) -> None:
        self.root = root
        self.mutex = threading.RLock()
        self.loose: dict[str, StoredFile] = {}  # whole and synced, in no generation yet
        self._files = files
        self._number = 0
        self._unsynced: dict[str, set[str]] = {}  # folder -> names given since its last sync
        self._doubted: set[str] = set()  # folders whose last sync failed
        self._ready: set[str] = set()  # folders known to be durable

    def start_at(self, number: int) -> None:
        """The first number for names: above those of files that are still there."""
        self._number = number

    def new_name(self, epoch: int, role: str, suffix: str = "", folder: str = DATA) -> tuple[str, str]:
        """A name nobody has, and its path; the folder is there when it returns."""
        if not (ROLE.fullmatch(role) and SUFFIX.fullmatch(suffix)) or suffix.endswith(TMP):
            raise StoreError(
                f"{self.root}: needed a role of lower-case letters, digits, - and _ and a suffix like .parquet; "
                f"got {role!r} and {suffix!r}; name them so"
            )
        if folder != DATA and not FOLDER.fullmatch(folder):
            raise StoreError(f"{self.root}: needed the folder data, or lake/...; got {folder!r}; name one of them")
        with self.mutex:
            self.ready_folder(folder)
            name = f"{folder}/{epoch:08d}-{self._number:05d}-{role}{suffix}"
            self._number += 1
        return name, os.path.join(self.root, name)

    def ready_folder(self, folder: str) -> None:
        """Make a folder, durably: a killed process may have left it in the cache only, so the first use syncs."""
        at = ""
        for part in folder.split("/"):
            at = f"{at}/{part}".lstrip("/")
            if at in self._ready:
                continue
            path = os.path.join(self.root, at)
            with telling("make", path):
                if self._files.is_directory(path):
                    with contextlib.suppress(OSError):  # an empty one may be what a failed sync left: made anew
                        self._files.remove_directory(path)
                if self._files.is_directory(path) is None:
                    self._files.make_directory(path)
                sync_or_remove(self._files, path)
            self._ready.add(at)

    def write(self, epoch: int, role: str, parts: bytes | memoryview | Iterable[bytes | memoryview]) -> StoredFile:
        """A new file of these bytes.  See `StoreDirectory.stage`."""
        name, path = self.new_name(epoch, role)
        digest = blake2b(digest_size=32)
        length = 0
        with self.writing(path) as file:
            for piece in pieces(parts):
                digest.update(piece)
                length += len(piece)
                with telling("write", path):
                    self._files.write(file, piece)
        self.name(path)
        return self.staged(StoredFile(name, role, length, digest.hexdigest()))

    def write_envelope(self, epoch: int, role: str, parts: Sequence[Any]) -> StoredFile:
        """A new file of an envelope's parts, whose header has their digest.  See `StoreDirectory.stage_envelope`."""
        name, path = self.new_name(epoch, role)
        with self.writing(path) as file:
            for piece in pieces(parts):
                with telling("write", path):
                    self._files.write(file, piece)
        self.name(path)
        digest = bytes(parts[0][32:64]).hex()
        return self.staged(StoredFile(name, role, sum(len(part) for part in parts), digest, sealed=True))

    @contextlib.contextmanager
    def at_path(self, epoch: int, role: str, suffix: str, folder: str) -> Iterator[StagedPath]:
        """A new file that somebody else writes.  See `StoreDirectory.stage_path`."""
        name, path = self.new_name(epoch, role, suffix, folder)
        staged = StagedPath(Path(path + TMP))
        digest = blake2b(digest_size=32)
        length = 0
        try:
            try:
                yield staged
            except StoreError:
                raise
            except OSError as error:
                if error.errno not in _OF_THE_DISK:
                    raise
                raise write_error("write", path, error) from error
            if self._files.is_directory(path + TMP) is not False:
                raise StoreError(f"{path}{TMP}: needed a file there; got none; write to the path given")
            with telling("sync", path):
                self._files.fsync_path(path + TMP)
                for piece in self._files.chunks(path + TMP):
                    digest.update(piece)
                    length += len(piece)
        except BaseException:
            self.remove(path + TMP)
            raise
        self.name(path)
        staged._file = self.staged(StoredFile(name, role, length, digest.hexdigest()))

    def adopt(self, epoch: int, attempt: Attempt) -> StoredFile:
        """A file that another process wrote whole, under a name of its own.  See `StoreDirectory.adopt`."""
        name, path = self.new_name(epoch, attempt.role)
        with telling("rename", path):
            self._files.rename(attempt.path, path)
        return self.staged(StoredFile(name, attempt.role, attempt.length, attempt.digest))

    @contextlib.contextmanager
    def writing(self, path: str) -> Iterator[OpenFile]:
        """A new file under a temporary name; whole and synced when the block ends, gone when it fails."""
        with telling("create", path):
            file = self._files.create(path + TMP)
        try:
            try:
                yield file
                with telling("sync", path):
                    self._files.fsync(file)
            finally:
                with telling("close", path):
                    self._files.close(file)
        except BaseException:
            self.remove(path + TMP)
            raise

    def name(self, path: str) -> None:
        """Give a whole and synced file its own name."""
        try:
            with telling("rename", path):
                self._files.rename(path + TMP, path)
        except BaseException:
            self.remove(path + TMP)
            raise

    def staged(self, file: StoredFile) -> StoredFile:
        """Take a file that has its name among those a commit may keep."""
        with self.mutex:
            self.loose[file.name] = file
            self._unsynced.setdefault(file.name.rpartition("/")[0], set()).add(file.name)
        return file

    def discard(self, files: Iterable[StoredFile] | None) -> list[str]:
        """Forget these staged files, or all of them; their names."""
        with self.mutex:
            names = [file.name for file in files] if files is not None else list(self.loose)
            gone = [name for name in names if self.loose.pop(name, None)]
            for name in gone:
                self._unsynced.get(name.rpartition("/")[0], set()).discard(name)
        return gone

    def sync_names(self, folders: set[str]) -> None:
        """Make the names of staged files durable."""
        for folder in sorted(folders):
            with self.mutex:
                names = set(self._unsynced.get(folder, ()))
            if not names:
                continue
            at = os.path.join(self.root, folder)
            with telling("sync", at):
                if folder in self._doubted:  # the failed sync may have dropped these names: they are given anew
                    for name in sorted(names):
                        path = os.path.join(self.root, name)
                        if self._files.is_directory(path) is not None:
                            self._files.rename(path, path + TMP)
                        self._files.rename(path + TMP, path)
                self._doubted.add(folder)
                self._files.sync_directory(at)
                self._doubted.discard(folder)
            with self.mutex:
                self._unsynced[folder] -= names

    def remove(self, path: str) -> None:
        """Remove a file that nobody needs; what cannot be removed now goes at the next opening."""
        with contextlib.suppress(OSError):
            self._files.remove(path)


@contextlib.contextmanager
def telling(doing: str, path: str) -> Iterator[None]:
    """Turn what the system refuses into a StoreWriteError."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise write_error(doing, path, error) from error


def pieces(parts: bytes | memoryview | Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    """The bytes in pieces of at most CHUNK, so that no caller's bulk is hashed or written in one go."""
    for part in [parts] if isinstance(parts, bytes | bytearray | memoryview) else parts:
        view = memoryview(part)
        view = view.cast("B") if view.nbytes else memoryview(b"")
        for at in range(0, len(view), CHUNK):
            yield view[at : at + CHUNK]
