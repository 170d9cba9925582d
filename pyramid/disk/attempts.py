"""Files of a store that other processes write, while one process has the store open: `StoreDirectory.adopt` takes them.

A task may be tried several times, also at once: each attempt writes a file of its own, under a temporary name of the
store, so that what nobody adopts is removed like anything else that a crash left.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from nile.pyramid.disk.files import Files
from nile.pyramid.disk.manifest import ROLE, TMP, is_own_name
from nile.pyramid.disk.recovery import DATA
from nile.pyramid.disk.staging import pieces, telling
from nile.summaries.errors import StoreError

__all__ = ["Attempt", "attempt_path", "attempts_in", "write_attempt"]

_FIRST = 10**17  # numbers of attempts: beyond those that a store counts up to


@dataclass(frozen=True, slots=True)
class Attempt:
    """A whole and synced file.  path: where it is; length: bytes; digest: BLAKE2b-256 of them, hex."""

    role: str
    path: str
    length: int
    digest: str


def attempt_path(root: str | os.PathLike[str], epoch: int, role: str) -> str:
    """A path for a new file of the store at `root`, which nobody else has.  epoch: of the generation in force."""
    if not ROLE.fullmatch(role):
        raise StoreError(f"{root}: needed a role of lower-case letters, digits, - and _; got {role!r}; name it so")
    number = _FIRST + secrets.randbelow(8 * _FIRST)
    return os.path.join(root, DATA, f"{epoch + 1:08d}-{number}-{role}{TMP}")


def write_attempt(
    root: str | os.PathLike[str], epoch: int, role: str, parts: Iterable[bytes | memoryview], files: Files | None = None
) -> Attempt:
    """Write a file of these bytes, as they come.  Raises StoreWriteError; then, as for any error, it is gone again.

    Cost: one BLAKE2b pass, a write and an fsync.
    """
    files = files or Files()
    path = attempt_path(root, epoch, role)
    digest = blake2b(digest_size=32)
    length = 0
    with telling("create", path):
        file = files.create(path)
    try:
        try:
            for piece in pieces(parts):
                digest.update(piece)
                length += len(piece)
                with telling("write", path):
                    files.write(file, piece)
            with telling("sync", path):
                files.fsync(file)
        finally:
            with telling("close", path):
                files.close(file)
    except BaseException:
        with contextlib.suppress(OSError):  # what cannot be removed now goes at the next opening
            files.remove(path)
        raise
    return Attempt(role, path, length, digest.hexdigest())


def attempts_in(root: str, files: Files) -> list[str]:
    """The paths of all attempts that are there."""
    folder = os.path.join(root, DATA)
    found = []
    for base in files.names(folder):
        made = is_own_name(f"{DATA}/{base}")
        if base.endswith(TMP) and made is not None and made[1] >= _FIRST:
            found.append(os.path.join(folder, base))
    return found
