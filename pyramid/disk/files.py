"""The few file operations that everything durable goes through, so that tests can break each of them.

The guarantees asked of the file system are POSIX's, no more: an fsync of a file makes its bytes durable, an fsync
of a folder makes its names durable, and a rename replaces a name in one step.  Nothing is taken for durable or
ordered without them (Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014), and a failed fsync is
never tried again on the same bytes: the kernel may have marked them clean and dropped them (Rebello et al., "Can
Applications Recover from fsync Failures?", USENIX ATC 2020).
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from nile.pyramid.disk.lock import Lock

__all__ = ["CHUNK", "Files", "OpenFile"]

CHUNK = 4 << 20  # bytes read or written in one go


@dataclass(slots=True)
class OpenFile:
    """A file being written: its path and its descriptor."""

    path: str
    fd: int


class Files:
    """The real file system.  Every method raises OSError as the operating system does."""

    def create(self, path: str) -> OpenFile:
        """A new, empty file; never one that exists, never through a link."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        if os.fstat(fd).st_mode & 0o600 != 0o600:  # an odd umask must not make files their owner cannot read
            os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode) | 0o600)
        return OpenFile(path, fd)

    def write(self, file: OpenFile, data: bytes | memoryview) -> None:
        """Append all of `data`."""
        rest = memoryview(data)
        while len(rest):
            rest = rest[os.write(file.fd, rest) :]

    def fsync(self, file: OpenFile) -> None:
        """Make the file's bytes durable; its name is another matter."""
        _fsync(file.fd)

    def close(self, file: OpenFile) -> None:
        """Release the descriptor."""
        os.close(file.fd)

    def fsync_path(self, path: str) -> None:
        """Make durable what someone else wrote to `path`."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _fsync(fd)
        finally:
            os.close(fd)

    def sync_directory(self, path: str) -> None:
        """Make the names in a folder durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno != errno.EINVAL:  # some network file systems know no such call and sync names at once
                raise
        finally:
            os.close(fd)

    def rename(self, source: str, target: str) -> None:
        """Give `source` the name `target`, in place of what had it."""
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """Remove a file's name; what is mapped stays readable."""
        os.unlink(path)

    def make_directory(self, path: str) -> None:
        """One new folder."""
        os.mkdir(path)
        mode = os.stat(path).st_mode
        if mode & 0o700 != 0o700:
            os.chmod(path, stat.S_IMODE(mode) | 0o700)

    def remove_directory(self, path: str) -> None:
        """Remove an empty folder."""
        os.rmdir(path)

    def names(self, path: str) -> list[str]:
        """What is in a folder, sorted."""
        return sorted(os.listdir(path))

    def is_directory(self, path: str) -> bool | None:
        """True for a folder, False for anything else, None where nothing is."""
        try:
            return stat.S_ISDIR(os.stat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def size(self, path: str) -> int:
        """Bytes in a file."""
        return os.stat(path).st_size

    def read(self, path: str) -> bytes:
        """All of a small file."""
        with open(path, "rb", buffering=0) as file:
            return file.read()

    def chunks(self, path: str, size: int = CHUNK) -> Iterator[bytes]:
        """A file of any size, in pieces of `size` bytes."""
        with open(path, "rb", buffering=0) as file:
            while piece := file.read(size):
                yield piece

    def map(self, path: str) -> memoryview:
        """The file as read-only memory, paged in on demand; it stays valid when its name is removed.

        A map holds one descriptor until the last view of it is gone.
        """
        with open(path, "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size == 0:
                return memoryview(b"")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def lock(self, path: str) -> Lock:
        """Take the lock of a store.  Raises StoreLocked when another writer has it."""
        return Lock.take(path)


def _fsync(fd: int) -> None:
    if sys.platform == "darwin":  # its fsync leaves the bytes in the drive's cache
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fsync(fd)
