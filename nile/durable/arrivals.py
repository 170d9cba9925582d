"""The order in which sources in several parts were read, on disk before anything that follows from it is told.

    read -> [source, place before, place after] -> a line of STORE/arrivals -> rows taken, outputs told
                                                        `-- after a crash: the same reads again, in the same order

A checkpoint has the rows and the place of a source together, and what came after it is read again.  From one log it
comes in the same order; partitions come in another one, so that outputs that were told would come under other numbers.
What is recorded here is to a source what a write-ahead log is to a table (Mohan et al., "ARIES", TODS 1992).
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nile.pyramid.disk.directory import StoreDirectory
from nile.summaries.errors import StoreWriteError

__all__ = ["Arrivals"]

_NAME = "arrivals"

_Read = tuple[str, Any, Any]
"""(source, place before, place after)"""


class Arrivals:
    """Of one store.  Places are plain JSON.  Called under the lock of the live streams.

    Cost: each read of such a source appends about 100 bytes and makes them durable; the first one after a checkpoint
    writes the file anew.
    """

    def __init__(self, directory: StoreDirectory) -> None:
        self._directory = directory
        self._path = Path(directory.path, _NAME)
        self._found: list[_Read] | None = None
        self._pending: dict[str, list[_Read]] = {}
        self._last: dict[str, _Read] = {}
        self._epoch = -1

    def ahead(self, source: str, place: Any) -> list[Any]:
        """The places that a source reached, read by read, after this one, in a process that was killed."""
        if self._found is None:
            self._found = list(self._read())
        reads: list[_Read] = []
        for read in self._found:
            if read[0] != source:
                continue
            if read[1] == place:
                reads = []  # once more from here: what stands before was given up, or is kept
            if read[1] == (reads[-1][2] if reads else place):
                reads.append(read)
        self._pending[source] = reads
        return [read[2] for read in reads]

    def add(self, source: str, before: Any, after: Any) -> None:
        """Record a read before its rows are taken.  Raises StoreWriteError: then they should not be."""
        read, pending = (source, before, after), self._pending.get(source, [])
        again = bool(pending) and pending[0] == read
        try:
            if self._directory.epoch != self._epoch:
                # A checkpoint may have been written between a read and its rows: the last of each is kept.
                others = [each for key, reads in self._pending.items() if key != source for each in reads]
                others += [each for each in self._found or () if each[0] not in self._pending and each[0] != source]
                last = [each for each in self._last.values() if each != read]
                self._write([*last, read, *(pending[1:] if again else ()), *others])
                self._epoch = self._directory.epoch
            elif not again and self._last.get(source) != read:
                self._append(read)
        except OSError as error:
            raise StoreWriteError(f"{self._path}: needed to be written; got {error}; is the disk full?") from error
        self._pending[source] = pending[1:] if again else []
        self._last[source] = read

    def _read(self) -> Iterable[_Read]:
        """The whole lines; the last one may be torn, and nothing follows from it."""
        with contextlib.suppress(FileNotFoundError):
            for line in self._path.read_bytes().split(b"\n"):
                check, _, text = line.partition(b" ")
                if check != b"%08x" % zlib.crc32(text):
                    return
                source, before, after = json.loads(text)
                yield source, before, after

    def _append(self, read: _Read) -> None:
        with open(self._path, "ab") as file:
            file.write(_line(read))
            file.flush()
            os.fsync(file.fileno())

    def _write(self, reads: Iterable[_Read]) -> None:
        made = self._path.with_suffix(".tmp")
        with open(made, "wb") as file:
            file.writelines(map(_line, reads))
            file.flush()
            os.fsync(file.fileno())
        os.replace(made, self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _line(read: _Read) -> bytes:
    text = json.dumps(read).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)
