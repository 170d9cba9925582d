"""Sources that are held whole: refused once they take what this process must not, before the system ends it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeVar

import numpy as np

from nile.base.machine import memory_bytes
from nile.summaries.errors import MemoryRefused
from nile.summaries.heavy import pa

__all__ = ["Holding", "held_whole"]


class _Tuples(Protocol):
    @property
    def ts(self) -> np.ndarray: ...

    @property
    def key(self) -> pa.Array: ...

    @property
    def carried(self) -> pa.RecordBatch | None: ...


Batch = TypeVar("Batch", bound=_Tuples)


class Holding:
    """What one reader keeps of a source whose rows are not in memory yet.  what: the source, in messages."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._most = memory_bytes() // 2
        self._held = self._rows = 0

    def keep(self, columns: Iterable[Any], rows: int, beside: int = 0) -> None:
        """Rows more, and so many bytes beside their columns.

        Raises MemoryRefused where all of them take more than half of what this process may use.
        """
        self._held += beside + sum(map(_bytes, columns))
        self._rows += rows
        if self._held > self._most:
            raise MemoryRefused(
                f"{self._what}: needed all of its rows in memory; got {self._rows:,} and more, "
                f"{self._held / 2**30:.1f} GiB, of half of this machine's {2 * self._most / 2**30:.1f} GiB that they "
                "may take; name fewer columns, or a WHERE or WINDOW that leaves fewer rows"
            )


def held_whole(name: str, batches: Iterable[Batch]) -> Iterator[Batch]:
    """The same batches of a stream, for whoever keeps them all.  Raises MemoryRefused, as `Holding.keep`."""
    holding = Holding(f"stream '{name}'")
    for batch in batches:
        holding.keep([batch.key], batch.ts.shape[0], batch.ts.nbytes)
        if batch.carried is not None:
            holding.keep(batch.carried.columns, 0)
        yield batch


def _bytes(column: Any) -> int:
    """Of its values; of a dictionary, which many batches share, the places in it."""
    return int((column.indices if pa.types.is_dictionary(column.type) else column).nbytes)
