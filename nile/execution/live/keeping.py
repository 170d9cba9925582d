"""What the live streams of a database ask of the store that outlives the process."""

from __future__ import annotations

from typing import Any, Protocol

from nile.pyramid.history.history import History
from nile.summaries.heavy import pa

__all__ = ["Arriving", "Keeping", "Writable"]


class Writable(Protocol):
    """The folder of a store."""

    @property
    def read_only(self) -> bool:
        """Whether another process may be the one that writes it."""

    def check_writable(self) -> None:
        """Raises StoreReadOnly."""


class Arriving(Protocol):
    """In which order sources in several parts were read."""

    def ahead(self, source: str, place: Any) -> list[Any]:
        """The places that a source reached, read by read, after this one, in a process that was killed."""

    def add(self, source: str, before: Any, after: Any) -> None:
        """Record a read before its rows are taken.  Raises StoreWriteError."""


class Keeping(Protocol):
    """Called under the lock of the live streams.  live, names: those of the database, all of whose state is kept."""

    memory: int | None
    """Bytes that kept rows may take, None without a limit."""

    @property
    def arrivals(self) -> Arriving:
        """What a source is read by again after a crash."""

    @property
    def directory(self) -> Writable:
        """Where the store lies."""

    def history(self, name: str, schema: pa.Schema) -> History:
        """A new history that moves to the store's files when memory is short."""

    def make_room(self, live: Any, names: Any) -> None:
        """Before rows are taken: move what memory cannot hold, and write a checkpoint if one is due.

        Raises StoreWriteError, StoreReadOnly; nothing has changed then.
        """

    def check(self, live: Any, names: Any) -> None:
        """That every standing query with a name could be opened again.  Raises ConfigError."""

    def remember(self, live: Any, names: Any) -> None:
        """A checkpoint, if the store is written at all."""

    def checkpoint(self, live: Any, names: Any) -> int:
        """Make everything as it is now the newest generation; its epoch.  Raises StoreWriteError."""

    def restore(self, live: Any, names: Any) -> None:
        """Make again all that the newest generation holds.  Raises StoreCorrupt."""

    def close(self) -> None:
        """Let the store go."""
