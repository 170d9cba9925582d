"""What joins of two streams and of several share: the tuples behind outputs, memory limits, and a warning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.base.machine import memory_bytes
from nile.base.room import allowed_room
from nile.operators.common.plan import JoinPlan
from nile.operators.inputs.joining import Loaded
from nile.summaries.errors import MemoryRefused
from nile.summaries.heavy import pa

__all__ = [
    "Members",
    "beyond_room",
    "cheaper_as_ranges",
    "held_if_room",
    "held_together",
    "refuse_beyond_memory",
    "room_for_answers",
    "row_bytes",
    "with_room_for_text",
]

Array = np.ndarray[Any, Any]
_HALF_OF_MACHINE = 2


@dataclass(frozen=True, slots=True)
class Members:
    """The tuples that outputs are made of, range records expanded.

    streams: the n streams; ordinal: int64 [o] for each, which tuple of it; key: int64 [o], the code of the key;
    weight: float64 [o], 1 / inclusion probability.
    """

    streams: tuple[Loaded, ...]
    ordinal: tuple[Array, ...]
    key: Array
    weight: Array


def room_for_answers() -> int:
    """Bytes that an answer which is held whole may take: half of what this process may use, or less where its database
    allows less.
    """
    room = memory_bytes() // _HALF_OF_MACHINE
    allowed = allowed_room()
    return room if allowed is None else min(room, allowed)


def refuse_beyond_memory(needed: int, rows: int) -> None:
    """Raises MemoryRefused where so many rows of so many bytes together are more than an answer may take."""
    room = room_for_answers()
    if needed > room:
        what = (
            "iterate batches() or write_parquet(), which hold a part at a time, count instead, or ask for fewer: "
            "LIMIT, a window, a smaller budget, output='ranges'"
        )
        if room == allowed_room():
            raise MemoryRefused(
                f"answer: {rows:,} rows need about {_mib(needed)}, more than the {_mib(room)} that connect(memory=) "
                f"allows an answer; {what}; or open it with more memory"
            )
        raise MemoryRefused(
            f"answer: {rows:,} rows need about {needed / 2**30:.1f} GiB, more than half of this machine's "
            f"{memory_bytes() / 2**30:.1f} GiB; {what}"
        )


def beyond_room(what: str, rows: int, needed: int, instead: str, *, so_far: bool = False) -> MemoryRefused:
    """What is raised where some rows cannot be done without and take more than an answer may.

    what: of which they are, and why all of them; instead: what to do; so_far: whether there are more rows.
    """
    if (room := room_for_answers()) == allowed_room():
        bound, more = f"{_mib(room)} that connect(memory=) allows an answer", ", or open it with more memory"
    else:
        bound, more = f"half of this machine's {memory_bytes() / 2**30:.1f} GiB", ""
    came = f"{'more than ' if so_far else ''}{rows:,} rows, about {_mib(needed)}"
    return MemoryRefused(f"{what}; got {came}, more than the {bound}; {instead}{more}")


def _mib(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"


def row_bytes(schema: pa.Schema) -> int:
    """About what a row takes; of a column without a width 16 bytes."""
    return sum(_width(field.type) for field in schema)


def _width(kind: pa.DataType) -> int:
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return 16


def held_together(batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """All batches.  Raises MemoryRefused when they take more than an answer may, or than there is."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    room = room_for_answers()
    try:
        for batch in batches:
            held.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            if size > room:
                refuse_beyond_memory(size, rows)
    except MemoryRefused:
        raise
    except MemoryError:
        held.clear()
        raise MemoryRefused(
            f"answer: needed memory for more than {rows:,} rows of {size / 2**30:.1f} GiB; the system has no more; "
            "iterate batches() or write_parquet(), count instead, or ask for fewer: LIMIT, a window, a smaller budget"
        ) from None
    return held


def with_room_for_text(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same.  Raises MemoryRefused where a column of text that is held together takes more than Arrow can number."""
    try:
        yield from batches
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
        if "overflow" not in str(error) and "array cannot contain more than" not in str(error):
            raise
        raise MemoryRefused(
            "answer: needed less than 2 GiB of each column of text or bytes in what is held together; got more; select "
            "fewer rows or parts of the text, or open the database with connect(memory=), under which it spills"
        ) from None


def held_if_room(batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch] | None:
    """All batches; None, once all have been read, where they take more than an answer may."""
    held: list[pa.RecordBatch] | None = []
    size = 0
    room = room_for_answers()
    for batch in batches:
        size += batch.nbytes
        if held is not None and size <= room:
            held.append(batch)
        else:
            held = None
    return held


def cheaper_as_ranges(names: Sequence[str], plan: JoinPlan, granted: float, exact: float) -> tuple[str, ...]:
    """That the whole answer of a join as ranges would cost less than its budget grants, where it would.

    granted, exact: units of the plan's cost table.
    """
    if granted < exact:
        return ()
    streams = ", ".join(f"'{name}'" for name in names[:-1]) + f" and '{names[-1]}'"
    return (
        f"join of {streams}: the budget grants {granted:,.0f} units ({plan.budget}); the whole answer as ranges costs "
        f"{exact:,.0f}; run it without a budget, returning('ranges'), and expand what is needed",
    )
