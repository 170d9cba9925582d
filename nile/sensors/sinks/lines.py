"""Files that grow, and open descriptors: a line a row."""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import SplitResult

from nile.sensors.sinks.sink import Sink
from nile.summaries.heavy import pa

__all__ = ["Appended", "Printed"]


class Appended(Sink):
    """TO FILE 'path': lines are appended to the file, which is made where there is none, and are on the disk then.

    What could not be written whole (a full disk) is cut off again; where a process was killed in the middle of a line,
    the next one begins a new line.
    """

    using = "file"
    form = "a path"

    def fits(self, parts: SplitResult) -> bool:
        return bool(parts.path)

    def open(self) -> None:
        self._file = os.open(self.url, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        end = os.fstat(self._file).st_size
        self._torn = end > 0 and os.pread(self._file, 1, end - 1) != b"\n"

    def send(self, rows: pa.RecordBatch, ids: Sequence[str]) -> None:
        data = memoryview(b"\n" * self._torn + b"".join(line + b"\n" for line in self.messages(rows, ids)))
        begin = os.fstat(self._file).st_size
        try:
            while data:
                data = data[os.write(self._file, data) :]
            os.fdatasync(self._file)
        except OSError:
            os.ftruncate(self._file, begin)
            raise
        self._torn = False

    def close(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)
            del self._file


class Printed(Sink):
    """TO STDOUT '1': a line a row to an open descriptor of the process, 1 for standard output."""

    using = "stdout"
    form = "the number of a descriptor, '1' for standard output"

    def fits(self, parts: SplitResult) -> bool:
        return parts.path.isdecimal()

    def open(self) -> None:
        self._descriptor = int(self.parts.path)

    def send(self, rows: pa.RecordBatch, ids: Sequence[str]) -> None:
        data = memoryview(b"".join(line + b"\n" for line in self.messages(rows, ids)))
        while data:
            data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        """It is not ours to close."""
