"""Rows on disk, first in, first out, in unnamed temporary files: they vanish with the process, however it ends."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO

from nile.summaries.columns import decode, encode
from nile.summaries.envelope import pack_parts, unpack
from nile.summaries.heavy import pa

__all__ = ["Spill", "temporary_file"]

_PARTS = 64
"""Parts of one file; its disk space is free again when all of them have been read."""


def temporary_file() -> IO[bytes]:
    """A file that nobody else can name."""
    return tempfile.TemporaryFile(prefix="nile-")


@dataclass(slots=True)
class _Segment:
    """A file and its parts that have not been read: (offset, bytes).  end: where the next one goes; made: how many."""

    file: IO[bytes]
    parts: deque[tuple[int, int]] = field(default_factory=deque)
    end: int = 0
    made: int = 0


class Spill:
    """Record batches of one schema, each in an envelope that is checked when it is read.  For one thread at a time.

    open_file: makes an empty file.
    """

    def __init__(self, schema: pa.Schema, open_file: Callable[[], IO[bytes]] = temporary_file) -> None:
        self._schema = schema
        self._open = open_file
        self._segments: deque[_Segment] = deque()

    def __len__(self) -> int:
        return sum(len(segment.parts) for segment in self._segments)

    @property
    def files(self) -> int:
        """How many files there are."""
        return len(self._segments)

    def append(self, batch: pa.RecordBatch) -> None:
        """Write rows behind all others.  Raises OSError: then nothing has been written."""
        if not self._segments or self._segments[-1].made == _PARTS:
            self._segments.append(_Segment(self._open()))
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

    def pop(self) -> pa.RecordBatch:
        """The oldest rows, which are on disk no longer.  Raises EnvelopeError, OSError, and IndexError without any."""
        segment = self._segments[0]
        start, size = segment.parts[0]
        segment.file.seek(start)
        batch = decode(unpack(segment.file.read(size), where="spilled rows of sensors").arrays, self._schema)
        segment.parts.popleft()
        if not segment.parts:
            segment.file.close()
            self._segments.popleft()
        return batch

    def close(self) -> None:
        """Let go of all files."""
        while self._segments:
            self._segments.popleft().file.close()
