"""Growing files: logs, and whatever a process appends lines to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import IO, Any

from nile.sensors.connectors.messages import Messages, options_of
from nile.sensors.sensor import NO_VALUE
from nile.summaries.errors import SourceError

__all__ = ["GrowingFile"]

_MOST = 1 << 20
"""Bytes of one read."""


class GrowingFile(Messages):
    """USING 'file': each line of a file is a value, those that are appended later too; it does not end.

    address: the path, with `?from=end` for only what is appended from now on, `?time=name` for where the time stands in
    a line that is a JSON object.  A line counts once it has its end.  A file that has become shorter is read from its
    beginning; one that another has taken the place of is read to its end, then the other from its beginning.
    A file that is not there is waited for.
    """

    every = 0.05

    def init(self, address: Any, row: Mapping[str, Any]) -> None:  # noqa: ARG002
        _, path, options = options_of(address, ("from", "time"), where="sensors USING 'file'")
        start = options.get("from", "start")
        if start not in ("start", "end"):
            raise SourceError(f"sensors USING 'file': needed ?from=start or ?from=end; got from={start!r}; write one")
        self.time_name = options.get("time")
        self._path = path
        self._file: IO[bytes] | None = None
        self._at_end = start == "end" and self.place is None

    def read(self) -> Any:
        if self._file is None and not self._open():
            return NO_VALUE
        assert self._file is not None
        inode, at = self.place
        if os.fstat(self._file.fileno()).st_size < at:
            at = 0
        self._file.seek(at)
        data = self._file.read(_MOST)
        end = data.rfind(b"\n") + 1
        while not end and (more := self._file.read(_MOST)):  # a line longer than a read
            data += more
            end = data.rfind(b"\n") + 1
        self.place = (inode, at + end)
        if not end and self._replaced():
            self._file.close()
            self._file = None
        return self.found(line.removesuffix(b"\r") for line in data[:end].split(b"\n")[:-1])

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _open(self) -> bool:
        try:
            self._file = open(self._path, "rb")  # noqa: SIM115 (closed by close)
        except FileNotFoundError:
            self._at_end = False  # all of what comes is new
            return False
        inode = os.fstat(self._file.fileno()).st_ino
        if self._at_end:
            self.place = (inode, self._file.seek(0, os.SEEK_END))
        elif self.place is None or self.place[0] != inode:
            self.place = (inode, 0)
        self._at_end = False
        return True

    def _replaced(self) -> bool:
        try:
            return bool(os.stat(self._path).st_ino != self.place[0])
        except FileNotFoundError:
            return False
