"""Unread outputs of a standing query: in memory, and in files of the store."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from nile.base.interrupts import INTERRUPTS
from nile.exact.state.expire import joined
from nile.summaries.columns import decode, encode
from nile.summaries.envelope import Envelope
from nile.summaries.errors import EnvelopeError
from nile.summaries.heavy import pa
from nile.summaries.schemas import schema_from_json, schema_to_json

__all__ = ["Filed", "Files", "Unread", "read_filed"]

KIND = "unread outputs"
ROLE = "state-unread"


class Files(Protocol):
    """The files of a store, as far as outputs go there."""

    def stage_envelope(self, role: str, kind: str, params: Any, arrays: Any) -> Any:
        """A new immutable file."""

    def read_envelope(self, file: Any) -> Envelope:
        """Its content, over mapped memory."""


@dataclass(frozen=True, slots=True)
class Filed:
    """Rows of a file from `skip` on, over mapped memory: they take no memory of the process."""

    batch: pa.RecordBatch
    file: Any
    skip: int


class Unread:
    """Batches in their order; those in files come first.  Batches in files are as others to a reader."""

    def __init__(self) -> None:
        self.waiting: deque[pa.RecordBatch] = deque()
        """The oldest first, for whoever only looks."""
        self._filed: dict[int, Filed] = {}  # by the identity of their batch, which they hold
        self._weighed = 0, 0  # the first so many, and what those of them in memory take

    @property
    def bytes(self) -> int:
        """Of those in memory.  Most are read before anybody asks, and weighing one costs more than keeping it."""
        many, taken = self._weighed
        if many < len(self.waiting):
            taken += sum(batch.nbytes for batch in islice(self.waiting, many, None))
            self._weighed = len(self.waiting), taken  # at once: a signal may come in between
        return taken

    def __len__(self) -> int:
        return len(self.waiting)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self.waiting)

    @property
    def first(self) -> pa.RecordBatch:
        """The oldest."""
        return self.waiting[0]

    def numbered(self, first: int, ordinal: int, most: int) -> list[tuple[int, pa.RecordBatch]]:
        """The rows from `ordinal` on, each batch after the ordinal of its first row, until they take `most` bytes.

        first: the ordinal of the oldest row that waits.
        """
        found: list[tuple[int, pa.RecordBatch]] = []
        for batch in self.waiting:
            end = first + len(batch)
            if end > ordinal:
                skip = max(ordinal - first, 0)
                found.append((first + skip, batch.slice(skip) if skip else batch))
                most -= batch.nbytes
                if most <= 0:
                    break
            first = end
        return found

    def append(self, batch: pa.RecordBatch) -> None:
        """One more."""
        self.waiting.append(batch)

    def popleft(self) -> pa.RecordBatch:
        """The oldest, which waits no longer."""
        batch = self.waiting.popleft()
        many, taken = self._weighed
        if many:
            self._weighed = many - 1, taken - (0 if id(batch) in self._filed else batch.nbytes)
        return batch

    def clear(self) -> None:
        """None waits any longer."""
        self.waiting.clear()
        self._weighed = 0, 0

    def put_back(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Batches that were handed out, before all others."""
        for batch in reversed(list(batches)):
            self.waiting.appendleft(batch)
            many, taken = self._weighed
            self._weighed = many + 1, taken + (0 if id(batch) in self._filed else batch.nbytes)

    def shorten(self, rows: int) -> None:
        """Let the first rows of the oldest batch go, fewer than it has."""
        batch = self.popleft()
        rest = batch.slice(rows)
        if (filed := self._filed.pop(id(batch), None)) is not None:
            self._filed[id(rest)] = Filed(rest, filed.file, filed.skip + rows)
        self.put_back([rest])

    def filed(self) -> list[Filed]:
        """The batches in files, from the oldest, up to the first in memory."""
        found = []
        for batch in self.waiting:
            if (filed := self._filed.get(id(batch))) is None:
                break
            found.append(filed)
        return found

    def tail(self) -> list[pa.RecordBatch]:
        """The batches after `filed`."""
        return list(self.waiting)[len(self.filed()) :]

    def seal(self, files: Files, schema: pa.Schema, least: int) -> None:
        """Move what is in memory to a file, if it is more than `least` bytes.  Raises StoreWriteError."""
        if self.bytes <= least:
            return
        before = self.filed()
        rows = joined(self.tail(), schema)
        file = files.stage_envelope(ROLE, KIND, {"schema": schema_to_json(schema, KIND)}, encode(rows, KIND))
        filed = read_filed(files, file, schema, 0)
        with INTERRUPTS:
            self.adopt([*before, filed])

    def adopt(self, filed: Iterable[Filed], tail: Iterable[pa.RecordBatch] = ()) -> None:
        """Have these, and nothing else."""
        self.waiting, self._filed, self._weighed = deque(), {}, (0, 0)
        for each in filed:
            self.waiting.append(each.batch)
            self._weighed = len(self.waiting), 0
            self._filed[id(each.batch)] = each
        for batch in tail:
            self.append(batch)

    def read_through(self) -> list[Any]:
        """Files of which nothing waits any longer, told once."""
        waiting = set(map(id, self.waiting))
        gone = [each for key, each in self._filed.items() if key not in waiting]
        for each in gone:
            del self._filed[id(each.batch)]
        return [each.file for each in gone]


def read_filed(files: Files, file: Any, schema: pa.Schema, skip: int) -> Filed:
    """What `Unread.seal` put into a file, from row `skip` on.  Raises StoreCorrupt, EnvelopeError."""
    envelope = files.read_envelope(file)
    if envelope.kind != KIND:
        raise EnvelopeError(f"{envelope.where}: needed an envelope of kind {KIND!r}; got {envelope.kind!r}")
    rows = decode(envelope.arrays, schema_from_json(envelope.params.get("schema"), envelope.where), envelope.where)
    if rows.schema.types != schema.types or not 0 <= skip < rows.num_rows:
        raise EnvelopeError(
            f"{envelope.where}: needed rows of {', '.join(map(str, schema.types))}, more than {skip}; got "
            f"{rows.num_rows} of {', '.join(map(str, rows.schema.types))}"
        )
    return Filed(pa.RecordBatch.from_arrays(rows.columns, schema=schema).slice(skip), file, skip)
