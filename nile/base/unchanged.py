"""What was worked out of files and is kept while they stay as they are, as far as memory has room for it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, TypeAlias
from weakref import WeakKeyDictionary

from nile.base.machine import memory_bytes

__all__ = ["Kept", "Stamp", "stamp_of"]

Stamp: TypeAlias = tuple[tuple[int, ...], ...]
"""Of each file what is another once it was written to, or replaced."""
_PART = 64
"""Of this process's memory, one part of so many may be kept."""
_COARSE, _FINE = 3.0, 0.1
"""Seconds since the last change, from which on another change has another time: where files have whole seconds, and
where they have the system's clock, which ticks every 10 ms or more often."""


def stamp_of(files: Sequence[Path]) -> Stamp | None:
    """None where a file is not there, or was changed so lately that it may be again without showing it."""
    found, now = [], time.time_ns()
    for file in files:
        try:
            told = file.stat()
        except OSError:
            return None
        changed = max(told.st_mtime_ns, told.st_ctime_ns)
        settled = _FINE if told.st_mtime_ns % 1_000_000_000 else _COARSE
        if now - changed < settled * 1e9:
            return None
        found.append((told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns))
    return tuple(found)


class Kept:
    """Arrays, numpy's or Arrow's, of one owner by name, gone with it.  All owners together keep a 64th of this
    process's memory: what was kept first goes first.
    """

    _all: ClassVar[WeakKeyDictionary[Kept, None]] = WeakKeyDictionary()
    _lock: ClassVar = Lock()

    def __init__(self) -> None:
        self._held: dict[str, tuple[Stamp, Any]] = {}

    def get(self, name: str, stamp: Stamp | None) -> Any:
        """What was kept of files that were as they are now."""
        held = self._held.get(name)
        return held[1] if held is not None and held[0] == stamp else None

    def put(self, name: str, stamp: Stamp, array: Any) -> None:
        """Keep this, in place of what was kept by that name; not where it is more than all may keep."""
        most = memory_bytes() // _PART
        with self._lock:
            self._held.pop(name, None)
            if array.nbytes > most:
                return
            self._all.pop(self, None)
            others = list(self._all)
            while others and array.nbytes + self._size() + sum(each._size() for each in others) > most:
                others.pop(0)._held.clear()
            if array.nbytes + self._size() > most:
                self._held.clear()
            self._held[name] = (stamp, array)
            self._all[self] = None

    def _size(self) -> int:
        return sum(int(array.nbytes) for _, array in self._held.values())
