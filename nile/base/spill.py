"""Rows on disk, first in, first out, in unnamed temporary files: they vanish with the process, however it ends."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

from nile.base.sizes import format_size
from nile.summaries.columns import decode, encode
from nile.summaries.envelope import pack_parts, unpack
from nile.summaries.errors import MemoryRefused
from nile.summaries.heavy import pa

__all__ = ["Spill", "Spills", "temporary_file"]

_PARTS = 64
"""Parts of one file; its disk space is free again when all of them have been read."""


def temporary_file(folder: Path | None = None) -> IO[bytes]:
    """A file that nobody else can name.  folder: where; None: in the system's for such files (TMPDIR)."""
    return tempfile.TemporaryFile(prefix="nile-", dir=folder)


@dataclass(slots=True)
class _Segment:
    """A file and its parts that have not been read: (offset, bytes).  end: where the next one goes; made: how many."""

    file: IO[bytes]
    parts: deque[tuple[int, int]] = field(default_factory=deque)
    end: int = 0
    made: int = 0


class Spill:
    """Record batches of one schema, each in an envelope that is checked when it is read.  For one thread at a time.

    open_file: makes an empty file; where: what is in it, for messages; parts: how many batches one file takes.
    """

    def __init__(
        self,
        schema: pa.Schema,
        open_file: Callable[[], IO[bytes]] = temporary_file,
        *,
        where: str = "spilled rows of sensors",
        parts: int = _PARTS,
    ) -> None:
        self._schema = schema
        self._open = open_file
        self._where = where
        self._most = parts
        self._segments: deque[_Segment] = deque()
        self._written = False

    def __len__(self) -> int:
        return sum(len(segment.parts) for segment in self._segments)

    @property
    def schema(self) -> pa.Schema:
        """The columns of all batches."""
        return self._schema

    @property
    def files(self) -> int:
        """How many files there are."""
        return len(self._segments)

    @property
    def is_spent(self) -> bool:
        """Whether all rows that it had are gone."""
        return self._written and not self._segments

    def append(self, batch: pa.RecordBatch) -> int:
        """Write rows behind all others; the bytes they take.  Raises OSError: then nothing has been written."""
        if not self._segments or self._segments[-1].made == self._most:
            self._segments.append(_Segment(self._open()))
            self._written = True
        segment = self._segments[-1]
        try:
            segment.file.seek(segment.end)
            size = 0
            for part in pack_parts("spilled rows", {}, encode(batch)):
                segment.file.write(part)
                size += len(part)
            segment.file.flush()
        except OSError:
            segment.file.truncate(segment.end)
            raise
        segment.parts.append((segment.end, size))
        segment.end += size
        segment.made += 1
        return size

    def pop(self) -> pa.RecordBatch:
        """The oldest rows, which are on disk no longer.  Raises EnvelopeError, OSError, and IndexError without any."""
        segment = self._segments[0]
        batch = self._read(segment, segment.parts[0])
        segment.parts.popleft()
        if not segment.parts:
            segment.file.close()
            self._segments.popleft()
        return batch

    def popped(self) -> Iterator[pa.RecordBatch]:
        """All rows, each batch popped as it is asked for."""
        while self._segments:
            yield self.pop()

    def kept(self) -> Iterator[pa.RecordBatch]:
        """All rows, which stay on disk: they may be read again."""
        for segment in self._segments:
            for part in segment.parts:
                yield self._read(segment, part)

    def _read(self, segment: _Segment, part: tuple[int, int]) -> pa.RecordBatch:
        start, size = part
        segment.file.seek(start)
        return decode(unpack(segment.file.read(size), where=self._where).arrays, self._schema)

    def close(self) -> None:
        """Let go of all files."""
        while self._segments:
            self._segments.popleft().file.close()


class Spills:
    """The files of one answer: rows that memory does not hold while it is worked out.

    folder: where files go; None: the system's for temporary ones.  written: bytes written to them so far.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._made: list[Spill] = []
        self._many = 256
        self.written = 0

    def new(self, schema: pa.Schema) -> Spill:
        """An empty one, in one file of its own."""
        made = Spill(schema, partial(temporary_file, self._folder), where="spilled rows of an answer", parts=1 << 62)
        self._made.append(made)
        if len(self._made) > self._many:
            self._made = [each for each in self._made if not each.is_spent]
            self._many = 2 * len(self._made) + 256
        return made

    def put(self, spill: Spill, batch: pa.RecordBatch) -> None:
        """Write rows behind all others of one of them.  Raises MemoryRefused where the disk takes no more."""
        if not batch.num_rows:
            return
        try:
            self.written += spill.append(batch)
        except OSError as error:
            folder = self._folder or Path(tempfile.gettempdir())
            reason = os.strerror(error.errno or 0)
            raise MemoryRefused(
                f"answer: needed room on disk for rows that memory does not hold; got '{reason}' in '{folder}', with "
                f"{format_size(self.written)} written; make room there, name another folder in TMPDIR, or open the "
                "database with more memory"
            ) from error

    def close(self) -> None:
        """Let go of all files."""
        while self._made:
            self._made.pop().close()
