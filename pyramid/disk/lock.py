"""The lock of a store: one writer at a time, and a dead one blocks nobody.

flock(2) on the file LOCK: the kernel releases it with its holder, however that ended.  The text of the file,
"pid host", is for messages only and decides nothing.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import socket
import time
import weakref

from nile.summaries.errors import StoreError, StoreLocked

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

__all__ = ["Lock"]

_SETTLE_S = 0.2  # how long a new holder may take to write its name


class Lock:
    """A lock held until `release`, the end of the process, or collection."""

    def __init__(self, path: str, file: io.FileIO) -> None:
        self.path = path
        self._file = file  # lets go when it is closed or collected, which no interrupt keeps it from
        _HELD.add(self)

    @classmethod
    def take(cls, path: str) -> Lock:
        """Lock the file `path`, made if it is not there.

        Raises StoreLocked, naming the holder, when it is locked; OSError when the file cannot be opened for writing.
        """
        if fcntl is None:
            raise StoreError(
                f"{path}: needed a system with flock, so that a store has one writer; got none; use Linux or macOS"
            )
        file = io.FileIO(path, "r+", opener=_opened)
        try:
            if not _locks(file):
                gc.collect()  # a writer that nobody can reach any more is closed with what it holds
                if not _locks(file):
                    raise _held(path, file.fileno())
        except BaseException:
            file.close()
            raise
        with contextlib.suppress(OSError):  # a full disk must not keep a store from being opened
            os.ftruncate(file.fileno(), 0)
            os.pwrite(file.fileno(), f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
        return cls(path, file)

    def release(self) -> None:
        """Let the next writer in; twice is harmless."""
        self._file.close()

    def __del__(self) -> None:
        self.release()


def _opened(path: str, _: int) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)


def _locks(file: io.FileIO) -> bool:
    """Whether nobody else has it locked.  Raises OSError where there are no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        return False
    return True


_HELD: weakref.WeakSet[Lock] = weakref.WeakSet()


def _leave_to_the_parent() -> None:
    """In a forked child: give back the copy of each lock, or the child would hold it when its parent has died."""
    for lock in list(_HELD):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)


def _held(path: str, fd: int) -> StoreLocked:
    """Who holds it; its name may be a moment late, and an older one still be there."""
    until = time.monotonic() + _SETTLE_S
    while True:
        pid, host = _holder(fd)
        here = host == socket.gethostname()
        if (pid is not None and not (here and _is_dead(pid))) or time.monotonic() > until:
            break
        time.sleep(0.01)
    if pid is None:
        who = "another process"
    elif here and pid == os.getpid():
        who = f"this process (pid {pid})"
    else:
        who = f"process {pid}" + ("" if here else f" on {host}")
    return StoreLocked(
        f"{os.path.dirname(path)}: needed to be the only writer of this store; got a lock held by {who}; "
        "close it there, or open it read-only",
        pid=pid,
        host=host,
    )


def _holder(fd: int) -> tuple[int | None, str | None]:
    words = os.pread(fd, 300, 0).decode("utf-8", "replace").split()
    if len(words) == 2 and words[0].isascii() and words[0].isdigit() and len(words[0]) < 10:
        return int(words[0]), words[1]
    return None, None


def _is_dead(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
