"""The way into a store: make it, lock it, find the generation to go on from."""

from __future__ import annotations

import contextlib
import errno
import os

from nile.pyramid.disk import recovery
from nile.pyramid.disk.files import Files
from nile.pyramid.disk.lock import Lock
from nile.pyramid.disk.manifest import MANIFESTS, TMP, Generation, now
from nile.pyramid.disk.recovery import DATA, LOCK, Found
from nile.summaries.errors import NotAStore, StoreCorrupt, StoreError, StoreReadOnly, StoreWriteError

__all__ = ["open_directory", "read_current", "sync_above", "sync_or_remove", "write_again", "write_error"]


def open_directory(
    files: Files, root: str, *, create: bool, read_only: bool
) -> tuple[Lock | None, Found, tuple[Generation, str | None]]:
    """The lock (None for readers), the manifests, and the generation in force with why it is not the newest."""
    try:
        there = recovery.is_store(files, root)
    except StoreError:
        raise
    except OSError as error:
        raise recovery.cannot_read(root, error) from error
    if not there and (read_only or not create):
        raise recovery.found_missing(root)
    if read_only:
        return (None, *read_current(files, root))
    if not there:
        _make_folders(files, root)
    lock = _take(files, root)
    try:
        if not recovery.is_store(files, root):  # another process may have made it meanwhile
            _make_store(files, root)
        found = recovery.read_manifests(files, root)
        return lock, found, recovery.choose(files, root, found)
    except BaseException:
        lock.release()
        raise


def read_current(files: Files, root: str) -> tuple[Found, tuple[Generation, str | None]]:
    """What a reader sees: a whole generation, even while a writer commits.

    Files that vanish while it looks went with their generation: then there are newer manifests to look at.
    """
    found = recovery.read_manifests(files, root)
    while True:
        try:
            chosen = recovery.choose(files, root, found)
        except StoreCorrupt:
            after = recovery.read_manifests(files, root)
            if after == found:
                raise
        else:
            if chosen[1] is None:
                return found, chosen
            after = recovery.read_manifests(files, root)
            if after == found:
                return found, chosen
        found = after


def write_error(doing: str, path: str, error: OSError) -> StoreWriteError:
    """The error for a file system that does not take what is written to it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "free some space and try again"
    elif error.errno == errno.EROFS:
        remedy = "the file system became read-only: look at the disk, remount it and try again"
    elif error.errno == errno.EFBIG:
        remedy = "raise the size that a file of this process may have (ulimit -f) and try again"
    else:
        remedy = "look at the disk and its messages, then try again"
    told = StoreWriteError(
        f"{path}: needed to {doing} it; got {error.strerror or error}; what was committed before is intact; {remedy}"
    )
    told.errno = error.errno
    return told


def _make_folders(files: Files, root: str) -> None:
    """The store's folder and what is missing above it, each made durable in its parent."""
    missing = []
    at = root
    while files.is_directory(at) is None:
        missing.append(at)
        at = os.path.dirname(at)
    if not files.is_directory(at):
        raise NotAStore(f"{root}: needed a folder for the store; got the file {at} on the way; name another path")
    for folder in reversed(missing):
        try:
            with contextlib.suppress(FileExistsError):
                files.make_directory(folder)
                sync_or_remove(files, folder)
        except OSError as error:
            raise _cannot_write(folder, error) from error


def sync_above(files: Files, root: str) -> None:
    """Make the names on the way to a store durable: a killed process, or its owner, may have just made them."""
    at = root
    while (above := os.path.dirname(at)) != at:
        with contextlib.suppress(PermissionError):
            files.sync_directory(above)
        at = above


def sync_or_remove(files: Files, folder: str) -> None:
    """Make a new folder's name durable, or take it away: a second sync could not be believed."""
    try:
        files.sync_directory(os.path.dirname(folder))
    except OSError:
        with contextlib.suppress(OSError):
            files.remove_directory(folder)
        raise


def _take(files: Files, root: str) -> Lock:
    path = os.path.join(root, LOCK)
    try:
        return files.lock(path)
    except StoreError:
        raise
    except OSError as error:
        raise _cannot_write(path, error) from error


def _make_store(files: Files, root: str) -> None:
    """An empty store: its first manifest is durable before any data file is made."""
    path = os.path.join(root, MANIFESTS[0])
    try:
        data = os.path.join(root, DATA)
        for name in list(recovery.own_files(files, root)):
            files.remove(os.path.join(root, name))
        if files.is_directory(data):  # made by a process that did not get far: whether its name is durable, who knows
            files.remove_directory(data)
        files.make_directory(data)
        sync_above(files, root)
        files.sync_directory(root)
        write_again(files, path, recovery.first_manifest(now()))
    except OSError as error:
        raise _cannot_write(path, error) from error


def write_again(files: Files, path: str, data: bytes) -> None:
    """Put `data` at `path`, whole and durable, in place of what is there.  Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        files.remove(path + TMP)
    file = files.create(path + TMP)
    try:
        try:
            files.write(file, data)
            files.fsync(file)
        finally:
            files.close(file)
        files.rename(path + TMP, path)
    except OSError:
        with contextlib.suppress(OSError):
            files.remove(path + TMP)
        raise
    files.sync_directory(os.path.dirname(path))


def _cannot_write(path: str, error: OSError) -> StoreError:
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        told: StoreError = StoreReadOnly(
            f"{path}: needed to write there; got {error.strerror}; make the folder writable, or open it read-only"
        )
        told.errno = error.errno
        return told
    return write_error("make", path, error)
