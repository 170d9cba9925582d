"""StoreDirectory: what a store holds survives the process, whole or not at all.

  LOCK                      held by the one writer
  manifest-0, manifest-1    the two last generations: epoch e is in manifest-(e % 2)
  data/<epoch>-<n>-<role>   immutable files; lake/... the same under folders of the lake's layout

A commit stages every new file (written under a temporary name, synced, renamed), syncs the folders' names, writes the
manifest the same way, and only then removes what neither generation names.  So at any moment, after any crash, a whole
generation is on disk: the last one committed or the one before.  The scheme is that of shadow paging with two roots
(Gray, Reuter, "Transaction Processing", 1993, 13.4), with checksums over all of it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, NoReturn

from nile.pyramid.disk import recovery
from nile.pyramid.disk.attempts import Attempt, attempts_in
from nile.pyramid.disk.files import Files
from nile.pyramid.disk.lock import Lock
from nile.pyramid.disk.manifest import (
    MANIFESTS,
    TMP,
    Generation,
    StoredFile,
    is_own_name,
    now,
    pack_generation,
    plain_state,
)
from nile.pyramid.disk.opening import open_directory, sync_above, write_again
from nile.pyramid.disk.staging import StagedPath, Staging, telling
from nile.summaries.envelope import Envelope, pack_parts
from nile.summaries.errors import StoreCorrupt, StoreError, StoreReadOnly, StoreRecovered

__all__ = ["StoreDirectory"]


class StoreDirectory:
    """A directory of immutable files under an atomic manifest.  Open it with `StoreDirectory.open`.

    Methods may be called from several threads; a forked child may only read.
    """

    epoch: int
    state: Mapping[str, Any]
    recovered: str | None

    def __init__(
        self,
        root: str,
        files: Files,
        lock: Lock | None,
        current: Generation,
        previous: Generation | None,
        recovered: str | None,
    ) -> None:
        self.path = Path(root)
        self.recovered = recovered
        self._root = root
        self._files = files
        self._lock = lock
        self._pid = os.getpid()
        self._closed = False
        self._previous = previous
        self._commits = threading.Lock()
        self._staging = Staging(root, files)
        self._in_doubt: set[str] = set()  # files of a manifest that may or may not be on disk
        self._leftovers: set[str] = set()  # what a damaged manifest may name is kept until it is replaced
        self._just_verified = {file.name for file in current.files.values() if file.essential and file.sealed}
        self._set_generation(current)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        read_only: bool = False,
        files: Files | None = None,
    ) -> StoreDirectory:
        """Open the store at `path`, at its newest whole generation.

        create: make one where nothing, or an empty folder, is.  read_only: take no lock, write nothing; the generation
        seen stays the one seen.  An older generation than the newest is told by `recovered` and a StoreRecovered
        warning.  Cost: reading both manifests and all state files once (about 0.5 GB/s).

        Raises StoreLocked (another writer), StoreMissing, NotAStore, StoreCorrupt (no whole generation), StoreTooNew,
        StoreReadOnly (the folder may not be written to), StoreError for what else the system refuses.
        """
        files = files or Files()
        root = os.path.realpath(os.fsdecode(path))
        lock, found, (current, recovered) = open_directory(files, root, create=create, read_only=read_only)
        previous = next((g for g in found.newest_first() if g.epoch < current.epoch), None)
        directory = cls(root, files, lock, current, previous, recovered)
        if lock is not None:
            try:
                directory._settle()
            except BaseException:
                lock.release()
                raise
        if recovered is not None:
            warnings.warn(recovered, StoreRecovered, stacklevel=2)
        return directory

    # --- reading ------------------------------------------------------------------------------------------

    @property
    def read_only(self) -> bool:
        """Whether it was opened for reading only."""
        return self._lock is None

    @property
    def written(self) -> str:
        """When the generation in force was committed: UTC, ISO 8601."""
        return self._current.written

    def files(self) -> Mapping[str, StoredFile]:
        """The files of the generation in force, by name."""
        return MappingProxyType(dict(self._current.files))

    def location(self, file: StoredFile) -> Path:
        """The path of a stored file, for readers that need one.  Nothing may be written there."""
        return self.path / file.name

    def map(self, file: StoredFile) -> memoryview:
        """A stored file as read-only memory, paged in on demand.  Its length is checked, its bytes are not.

        The view stays valid when the file is removed later.  Raises StoreCorrupt, StoreError.
        """
        path = self._open_path(file)
        try:
            view = self._files.map(path)
        except FileNotFoundError:
            self._absent(file)
        except OSError as error:
            raise recovery.cannot_read(path, error) from error
        if len(view) != file.length:
            self._corrupt(f"{file.name} has {len(view)} bytes instead of {file.length}")
        return view

    def read(self, file: StoredFile, *, verify: bool = True) -> memoryview:
        """`map`, after a pass over the bytes that compares their digest.  Raises StoreCorrupt, StoreError."""
        view = self.map(file)
        if verify:
            path = self._open_path(file)
            try:
                wrong = recovery.verify(self._files, path, file)
            except FileNotFoundError:
                self._absent(file)
            except OSError as error:
                raise recovery.cannot_read(path, error) from error
            if wrong is not None:
                self._corrupt(wrong)
        return view

    def read_envelope(self, file: StoredFile) -> Envelope:
        """The envelope that a file of `stage_envelope` is; its arrays are views of mapped memory.

        Cost: one pass over the bytes, but for the first reading of a file that opening the store has just verified.
        Raises StoreCorrupt, StoreTooNew, StoreError.
        """
        view = self.read(file, verify=file.name not in self._just_verified)
        self._just_verified.discard(file.name)
        return recovery.unpacked(view, str(self.location(file)), file)

    # --- writing ------------------------------------------------------------------------------------------

    def stage(self, role: str, parts: bytes | memoryview | Iterable[bytes | memoryview]) -> StoredFile:
        """A new immutable file of these bytes, synced when it returns; the commit that keeps it syncs its name.

        role: lower-case letters, digits, "-" and "_"; one that begins with "state" is verified whenever the store is
        opened.  parts: written as they come, never held together.  A file that no commit keeps is removed by `discard`
        or by the next opening.  Cost: one BLAKE2b pass, a write and an fsync.  Raises StoreWriteError.
        """
        self.check_writable()
        return self._staging.write(self.epoch + 1, role, parts)

    def stage_envelope(self, role: str, kind: str, params: Mapping[str, Any], arrays: Mapping[str, Any]) -> StoredFile:
        """`stage` of `nile.summaries.envelope.pack(kind, params, arrays)`, hashed once, arrays not copied.

        The arrays must hold still meanwhile.  Raises EnvelopeError for what has no byte form, StoreWriteError.
        """
        self.check_writable()
        return self._staging.write_envelope(self.epoch + 1, role, pack_parts(kind, params, arrays))

    @contextlib.contextmanager
    def stage_path(self, role: str, *, suffix: str = "", folder: str = "data") -> Iterator[StagedPath]:
        """`stage` for a writer that needs a path: `with d.stage_path("cold") as s: write(s.path)`, then `s.file`.

        folder: "data", or "lake" and folders below it; suffix: e.g. ".parquet".  Cost: beside the writer's, one fsync
        and one pass over the bytes.  Raises StoreWriteError, also for a full or failing disk met by the writer.
        """
        self.check_writable()
        with self._staging.at_path(self.epoch + 1, role, suffix, folder) as staged:
            yield staged

    def adopt(self, attempt: Attempt) -> StoredFile:
        """Take a file that another process wrote (`nile.pyramid.disk.attempts`) among the staged ones.

        Its length is checked, its bytes are believed.  Raises StoreWriteError, StoreCorrupt for one that is not there
        or of another length.
        """
        self.check_writable()
        try:
            length = self._files.size(attempt.path)
        except FileNotFoundError:
            length = -1
        if length != attempt.length:
            self._corrupt(f"{attempt.path} {'is missing' if length < 0 else f'has {length} bytes'}")
        return self._staging.adopt(self.epoch + 1, attempt)

    def sweep_attempts(self) -> None:
        """Remove what other processes wrote and nobody adopted: when all of them have ended."""
        self.check_writable()
        for path in attempts_in(self._root, self._files):
            self._staging.remove(path)

    def commit(self, state: Mapping[str, Any], keep: Iterable[StoredFile]) -> int:
        """Make `state` and the files `keep` the generation in force, at once and for good; its epoch.

        state: JSON values.  keep: staged files, or files of the last two generations; what is in neither generation
        afterwards and was committed once is removed.  Raises StoreWriteError: then the generation in force is the one
        before, every staged file is still good, and the same commit may be tried again; after a crash in between, the
        store opens at either.  Raises StoreError for a file it does not have and for a state that is not JSON.
        """
        self.check_writable()
        with self._commits:
            epoch = self.epoch + 1
            kept = self._kept(keep)
            try:
                plain, data = plain_state(state)
            except (TypeError, ValueError, RecursionError) as error:
                raise StoreError(
                    f"{self._root}: needed a state of JSON values without NaN; got {error}; fix it"
                ) from None
            written = now()
            self._staging.sync_names({name.rpartition("/")[0] for name in kept})
            slot = os.path.join(self._root, MANIFESTS[epoch % 2])
            self._staging.remove(slot + TMP)
            with self._staging.writing(slot) as file, telling("write", slot):
                self._files.write(file, pack_generation(epoch, data, kept.values(), written))
            self._in_doubt |= set(kept)  # from here until the sync, either manifest may be the one on disk
            self._staging.name(slot)
            with telling("sync", self._root):
                self._files.sync_directory(self._root)
            dropped = set(self._previous.files if self._previous else ()) | self._in_doubt
            with self._staging.mutex:
                self._previous = self._current
                self._set_generation(Generation(epoch, plain, kept, written))
                for name in kept:
                    self._staging.loose.pop(name, None)
            dropped |= self._leftovers
            self._in_doubt, self._leftovers = set(), set()
            self._sweep(dropped)
            return epoch

    def discard(self, files: Iterable[StoredFile] | None = None) -> None:
        """Remove staged files that no commit kept: these, or all of them.  Never raises for what cannot be removed."""
        self.check_writable()
        names = self._staging.discard(files)
        for name in set(names) - self._in_doubt:  # those go with the next commit
            self._staging.remove(os.path.join(self._root, name))

    def close(self) -> None:
        """Release the lock.  What was staged and not committed is gone at the next opening."""
        self._closed = True
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> StoreDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- inside -------------------------------------------------------------------------------------------

    def _set_generation(self, generation: Generation) -> None:
        self._current = generation
        self.epoch = generation.epoch
        self.state = generation.state

    def _settle(self) -> None:
        """What this process will build on is made durable before anyone is told of it, then leftovers go.

        A killed process may have left renames that so far are in the cache only.
        """
        names = set(recovery.own_files(self._files, self._root))
        if self.recovered is None:
            self._sweep(names)
        else:
            self._leftovers = names
        for folder in sorted({name.rpartition("/")[0] for name in self._current.files} | {recovery.DATA}):
            self._staging.ready_folder(folder)
            with telling("sync", folder):
                self._files.sync_directory(os.path.join(self._root, folder))
        if self.epoch == 0:
            with telling("sync", self._root):
                sync_above(self._files, self._root)
        # A process whose last sync failed may have left a manifest that only the cache shows, and that no further
        # sync would bring to the disk: it is written anew.
        slot = os.path.join(self._root, self._current.manifest)
        with telling("write", slot):
            try:
                write_again(self._files, slot, self._files.read(slot))
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                self._files.sync_directory(self._root)  # a full disk must not keep a store shut
        ahead = [made[1] for name in names if (made := is_own_name(name)) and made[0] > self.epoch]
        self._staging.start_at(max(ahead, default=-1) + 1)

    def _sweep(self, names: set[str]) -> None:
        """Remove those of `names` that nobody needs; what cannot be removed now is tried at the next opening."""
        with self._staging.mutex:
            needed = {*self._current.files, *(self._previous.files if self._previous else ()), *self._staging.loose}
        for name in sorted(names - needed):
            self._staging.remove(os.path.join(self._root, name))

    def _kept(self, keep: Iterable[StoredFile]) -> dict[str, StoredFile]:
        """The files to keep by name, all of them known here."""
        kept: dict[str, StoredFile] = {}
        with self._staging.mutex:
            for file in keep:
                known = self._staging.loose.get(file.name) or self._current.files.get(file.name)
                if known is None and self._previous is not None:
                    known = self._previous.files.get(file.name)
                if known != file:
                    raise StoreError(
                        f"{self._root}: needed files staged here or kept by one of the last two commits; "
                        f"got {file.name}; stage it again"
                    )
                kept[file.name] = file
        return kept

    def check_writable(self) -> None:
        """Raises StoreReadOnly and StoreError where nothing can be written."""
        self._usable()
        if self._lock is None:
            raise StoreReadOnly(f"{self._root}: needed a store open for writing; got one open read-only; reopen it")
        if os.getpid() != self._pid:
            raise StoreReadOnly(
                f"{self._root}: needed the process that opened the store; got a fork of it, which may only read; "
                "write in the parent"
            )

    def _usable(self) -> None:
        if self._closed:
            raise StoreError(f"{self._root}: needed an open store; got a closed one; open it again")

    def _open_path(self, file: StoredFile) -> str:
        self._usable()
        return os.path.join(self._root, file.name)

    def _absent(self, file: StoredFile) -> NoReturn:
        if self._lock is None:
            raise StoreError(
                f"{self._root}: needed {file.name}; got no such file, for the writer went on; open the store again"
            )
        self._corrupt(f"{file.name} is missing")

    def _corrupt(self, wrong: str) -> NoReturn:
        raise StoreCorrupt(
            f"{self._root}: needed the file as it was written; got: {wrong}; "
            f"run `nile store repair {self._root}` to see what can be saved"
        )
