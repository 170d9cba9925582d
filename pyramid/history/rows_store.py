"""All rows of a stream, oldest first: files of them on disk, then the newest in memory."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.pyramid.history.cold_index import ColdRows
from nile.pyramid.history.hot_rows import HotRows, Rows, Tail
from nile.pyramid.history.pages import blocks
from nile.pyramid.history.rows_file import StoredRows, rows_file
from nile.summaries.errors import StoreCorrupt, StoreError
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.pyramid.disk.directory import StoreDirectory
    from nile.pyramid.disk.manifest import StoredFile

__all__ = ["AHEAD", "BATCH", "LARGE", "MANY", "ROLE", "RowStore"]

Array = np.ndarray[Any, Any]

ROLE = "history-rows"
BATCH = 65_536
"""Rows read at a time, at most."""
AHEAD = 262_144
"""Rows that are written in one file while others come."""
SMALL = 262_144
LARGE = 1_048_576
FEW, MANY = 4, 16
"""Four files or more of fewer than `SMALL` rows join when none outweighs those after it, sixteen longer ones that
follow each other do: of a long stream each row is rewritten two or three times, and files are of millions of rows."""


class Parts:
    """Parts of a stream's rows in order, each with the ordinals begin..end-1 that are read there.

    begins: int64 [parts]; untils: int64 [parts], the latest ts in each and all before it.
    """

    def __init__(self, found: list[tuple[Rows, int, int]], before: Parts | None = None) -> None:
        """before: parts that come first."""
        self.found: list[tuple[Rows, int, int]] = found if before is None else [*before.found, *found]
        self.begins = np.array([begin for _, begin, _ in found], np.int64)
        untils = np.array([part.until for part, _, _ in found], np.int64)
        if before is not None:
            self.begins = np.concatenate([before.begins, self.begins])
            untils = np.concatenate([before.untils, untils])
        self.untils: Array = np.maximum.accumulate(untils)  # a file that memory overlaps may be of later rows too

    def owners(self, ordinals: Array) -> Array:
        """Which part each row (int64 [n]) is read in: int64 [n]."""
        owners: Array = np.searchsorted(self.begins, ordinals, side="right") - 1
        return owners


class RowStore:
    """Files hold rows 0..durable-1; memory those from some row on, at most `durable`, so the two may overlap.

    One thread writes; others may read meanwhile: `parts` is a picture of one moment, and what it names never changes.
    """

    def __init__(self, schema: pa.Schema, largest: int) -> None:
        self.schema = schema
        self.tuples = 0
        self.last_ts = -(1 << 63)
        self.files: list[StoredRows | ColdRows] = []
        self._largest = largest
        self._hot: list[HotRows] = []
        self._tail = Tail(schema, 0)
        self._ahead: Future[StoredFile] | None = None
        self._moving = threading.Lock()
        self._filed: tuple[list[StoredRows | ColdRows], int, Parts] = ([], 0, Parts([]))

    @property
    def durable(self) -> int:
        """Rows that are in files."""
        return self.files[-1].end if self.files else 0

    @property
    def nbytes(self) -> int:
        """Anonymous bytes held."""
        return sum(part.nbytes for part in (*self.files, *self._hot)) + self._tail.nbytes

    def append(self, ts: Array, batch: pa.RecordBatch) -> None:
        """Take the next rows."""
        with self._moving:
            self._tail.append(ts, batch)
            self.tuples += ts.shape[0]
        self.last_ts = int(ts[-1])

    def roll(self) -> None:
        """What is in memory so far changes no more: later rows begin new parts."""
        with self._moving:
            if self._tail.tuples:
                self._hot += self._tail.sealed()
                self._tail = Tail(self.schema, self.tuples)

    def write_ahead(self, directory: StoreDirectory) -> None:
        """Begin to write what was rolled and no file has, if it is much, while rows go on coming.

        One file at a time: waits for the one before.  What goes wrong is left to `stage` to meet again and to tell.
        """
        end = self._hot[-1].end if self._hot else 0
        if end - self.durable < AHEAD:
            return
        self._take_written(directory)
        begin = self.durable
        if end - begin < AHEAD:
            return
        parts = [part for part in self._hot if part.end > begin]
        rows = [(part, max(begin, part.first) - part.first, part.tuples) for part in parts]
        self._ahead = _writers().submit(self._staged, directory, begin, rows)

    def _take_written(self, directory: StoreDirectory) -> None:
        """Wait for the file that is being written, and count it in."""
        written, self._ahead = self._ahead, None
        if written is not None:
            with contextlib.suppress(StoreError):
                self.files.append(StoredRows(directory, written.result(), self.schema))

    def _staged(self, directory: StoreDirectory, begin: int, parts: Sequence[tuple[HotRows, int, int]]) -> StoredFile:
        names = self.schema.names
        rows = ((part.times(at, min(high, at + BATCH)), part.slice(at, min(high, at + BATCH), names))
                for part, low, high in parts for at in range(low, high, BATCH))  # fmt: skip
        return directory.stage(ROLE, blocks(rows_file(begin, self.schema, rows)))

    def parts(self) -> Parts:
        """Parts in order, each with the ordinals begin..end - 1 to read there; several may have a row, one is asked."""
        with self._moving:
            hot: list[Rows] = [*self._hot, *self._tail.parts()]
            start = hot[0].first if hot else self.tuples
            files = list(self.files)
        filed = self._in_files(files, start)
        return Parts([(part, part.first, part.end) for part in hot], filed) if hot else filed

    def _in_files(self, files: list[StoredRows | ColdRows], start: int) -> Parts:
        """Those of files, which hold rows 0..start-1.  Kept: there may be hundreds, and they seldom change."""
        known, until, filed = self._filed
        if known != files or until != start:
            found: list[tuple[Rows, int, int]] = []
            reached = 0
            for file in files:
                if reached < (end := min(file.end, start)):
                    found.append((file, reached, end))
                    reached = end
            filed = Parts(found)
            self._filed = (files, start, filed)
        return filed

    def batches(self, columns: Sequence[str], begin: int, end: int) -> Iterator[tuple[Array, pa.RecordBatch]]:
        """Rows begin..end-1 in order, at most `BATCH` at a time."""
        if begin >= end:
            return
        parts = self.parts()
        first, last = parts.owners(np.array([begin, end - 1])).tolist()
        for part, since, until in parts.found[first : last + 1]:
            low, high = max(begin, since) - part.first, min(end, until) - part.first
            for at in range(low, high, BATCH):
                to = min(high, at + BATCH)
                yield part.times(at, to), part.slice(at, to, columns)

    def evict(self, directory: StoreDirectory, excess: int) -> None:
        """Drop the oldest rows in memory, `excess` bytes of them or all, after writing those that no file has."""
        if excess <= 0:
            return
        self._take_written(directory)
        self.roll()
        n = 0
        while n < len(self._hot) and excess > 0:
            excess -= self._hot[n].nbytes
            n += 1
        if not n:
            return
        end = self._hot[n - 1].end
        if end > self.durable:
            self._write(directory, self.durable, end)
        del self._hot[:n]

    def stage(self, directory: StoreDirectory) -> list[StoredFile]:
        """Write what no file has; the files that describe all rows, oldest first."""
        self._take_written(directory)
        if self.tuples > self.durable:
            self._write(directory, self.durable, self.tuples)
        return [file.segment.file if isinstance(file, ColdRows) else file.file for file in self.files]

    @property
    def local_bytes(self) -> int:
        """Bytes of files of rows that are not in the lake."""
        return sum(file.stored_bytes for file in self.files if isinstance(file, StoredRows))

    def cool(self, directory: StoreDirectory, rows: ColdRows) -> None:
        """These rows, the oldest that were not in the lake, are there now."""
        self._take_written(directory)
        gone = [file for file in self.files if isinstance(file, StoredRows) and file.end <= rows.end]
        cold: list[StoredRows | ColdRows] = [file for file in self.files if isinstance(file, ColdRows)]
        rest = [file for file in self.files if isinstance(file, StoredRows) and file.end > rows.end]
        with self._moving:
            self._hot = [part for part in self._hot if part.end > rows.end]
            self.files = [*cold, rows, *rest]
        forget(directory, [file.file for file in gone])

    def release(self) -> None:
        """Forget what was decoded for the last reading of old rows."""
        for file in self.files:
            if isinstance(file, ColdRows):
                file.release()

    def join(self, directory: StoreDirectory) -> None:
        """Join small files into longer ones, so that there are few."""
        self._take_written(directory)
        while True:
            low, high = self._joinable()
            if low == high:
                return
            old = [file for file in self.files[low:high] if isinstance(file, StoredRows)]
            rows = ((part.times(at, to), part.slice(at, to, self.schema.names)) for part in old
                    for at in range(0, part.tuples, BATCH) for to in (min(part.tuples, at + BATCH),))  # fmt: skip
            file = directory.stage(ROLE, blocks(rows_file(old[0].first, self.schema, rows)))
            self.files[low:high] = [StoredRows(directory, file, self.schema)]
            forget(directory, [part.file for part in old])

    def restore(self, files: Sequence[StoredRows | ColdRows], tuples: int) -> None:
        """Take over the files of a store, oldest first, which hold `tuples` rows.  Raises StoreCorrupt for a gap."""
        for file in files:
            if file.first > self.durable or file.end <= self.durable:
                raise StoreCorrupt(
                    f"history: needed rows from {self.durable} on; got {file.first} to {file.end - 1}; "
                    "see `nile store check`"
                )
            self.files.append(file)
        if self.durable != tuples:
            raise StoreCorrupt(f"history: needed {tuples} rows; got {self.durable} in files; see `nile store check`")
        self.tuples = tuples
        self._tail = Tail(self.schema, tuples)
        self.last_ts = self.files[-1].until if self.files else self.last_ts

    def _write(self, directory: StoreDirectory, begin: int, end: int) -> None:
        file = directory.stage(ROLE, blocks(rows_file(begin, self.schema, self.batches(self.schema.names, begin, end))))
        self.files.append(StoredRows(directory, file, self.schema))

    def _joinable(self) -> tuple[int, int]:
        """Which files to join, from..to; from = to when none."""
        sizes = [file.tuples if isinstance(file, StoredRows) else 1 << 62 for file in self.files]
        low, total = len(sizes), 0
        while low and sizes[low - 1] < SMALL and (not total or sizes[low - 1] <= total):
            low -= 1
            total += sizes[low]
        if len(sizes) - low >= FEW:
            return low, len(sizes)
        run = 0
        for at, size in enumerate(sizes):
            run = run + 1 if SMALL <= size < LARGE else 0
            if run == MANY:
                low = at + 1 - MANY
                fits = int(np.searchsorted(np.cumsum(sizes[low : at + 1]), self._largest, side="right"))
                return (low, low + fits) if fits > 1 else (0, 0)
        return 0, 0


@cache
def _writers() -> ThreadPoolExecutor:
    """The thread that writes rows of all histories: one at a time is as fast as the disk."""
    return ThreadPoolExecutor(1, thread_name_prefix="nile-rows")


def forget(directory: StoreDirectory, files: Sequence[StoredFile]) -> None:
    """Remove files that were staged and are needed no more; committed ones go with the commits to come."""
    kept = directory.files()
    directory.discard([file for file in files if file.name not in kept])
