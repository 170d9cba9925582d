"""Streams that are held whole: refused once they take what this process must not, before the system ends it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeVar

import numpy as np

from nile.base.machine import memory_bytes
from nile.summaries.errors import MemoryRefused
from nile.summaries.heavy import pa

__all__ = ["held_whole"]


class _Tuples(Protocol):
    @property
    def ts(self) -> np.ndarray: ...

    @property
    def key(self) -> pa.Array: ...

    @property
    def carried(self) -> pa.RecordBatch | None: ...


Batch = TypeVar("Batch", bound=_Tuples)


def held_whole(name: str, batches: Iterable[Batch]) -> Iterator[Batch]:
    """The same batches, of a source whose rows are not in memory yet, for whoever keeps them all.

    Raises MemoryRefused where they take more than half of what this process may use.
    """
    held, most, rows = 0, memory_bytes() // 2, 0
    for batch in batches:
        held += batch.ts.nbytes + _bytes(batch.key)
        if batch.carried is not None:
            held += sum(map(_bytes, batch.carried.columns))
        rows += batch.ts.shape[0]
        if held > most:
            raise MemoryRefused(
                f"stream '{name}': needed all of its tuples in memory; got {rows:,} and more, {held / 2**30:.1f} GiB, "
                f"of half of this machine's {2 * most / 2**30:.1f} GiB that they may take; name fewer columns, or a "
                "WHERE or WINDOW that leaves fewer tuples"
            )
        yield batch


def _bytes(column: Any) -> int:
    """Of its values; of a dictionary, which many batches share, the places in it."""
    return int((column.indices if pa.types.is_dictionary(column.type) else column).nbytes)
