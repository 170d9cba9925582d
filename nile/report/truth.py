"""The exact answer of a join of two loaded streams, as scoring wants it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nile.base.machine import memory_bytes
from nile.base.room import allowed_room
from nile.operators.inputs.joining import Joinable, Loaded
from nile.report.metrics import ExactPairs
from nile.summaries.errors import MemoryRefused
from nile.summaries.heavy import pa, pc, pq

__all__ = ["ELSEWHERE", "completing", "exact_pairs", "plain", "refuse_beyond_memory", "write_prepared"]

Array = np.ndarray[Any, Any]
_PAIR_BYTES = 200
"""What a pair takes while answers are scored: its columns, its bins, and the look-up index."""

ELSEWHERE: dict[str, Callable[[Joinable], ExactPairs]] = {}
"""Other engines that compute `exact_pairs`, by name; rooms above this one put themselves here."""


def exact_pairs(joined: Joinable) -> ExactPairs:
    """Every pair, by the chain join of `nile.exact`, which encodes keys for itself.

    Key ranks are in the order of the keys' values.  Raises MemoryRefused beyond half of the machine's memory.
    """
    refuse_beyond_memory(joined.pairs)
    parts = list(joined.exact.pairs())
    none = np.zeros(0, np.int64)
    left, right = (np.concatenate([none, *(part[side] for part in parts)]) for side in (0, 1))
    codes = joined.exact.left_code[left]
    keyed = np.concatenate([joined.exact.left_code, joined.exact.right_code])
    return ExactPairs(
        left,
        right,
        _ranks(joined.left, left, codes),
        np.abs(joined.left.ts[left] - joined.right.ts[right]),
        joined.standing[completing(joined, left, right)],
        np.bincount(keyed[keyed >= 0], minlength=1)[codes],
    )


def completing(joined: Joinable, left: Array, right: Array) -> Array:
    """The arrival that completes each pair, the later of its tuples in total order: int64 [pairs]."""
    arrival = [np.flatnonzero(joined.order == side) for side in (0, 1)]
    later: Array = np.maximum(arrival[0][left], arrival[1][right])
    return later


def write_prepared(stream: Loaded, folder: Path) -> None:
    """A stream in the layout of a prepared one, for Spark's exact join to read.  folder: made here."""
    folder.mkdir()
    ordinals = pa.array(np.arange(len(stream), dtype=np.int64))
    table = pa.table({"ordinal": ordinals, "ts": pa.array(stream.ts), "key": stream.key})
    pq.write_table(table, folder / "part-00000.parquet")
    (folder / "_SUCCESS").touch()


def _ranks(stream: Loaded, ordinals: Array, codes: Array) -> Array:
    """The place of each pair's key among the sorted distinct keys of the answer: int64 [pairs]."""
    distinct, first, of = np.unique(codes, return_index=True, return_inverse=True)
    if not distinct.shape[0]:
        return of
    values = plain(stream.key.take(pa.array(ordinals[first])))
    place = np.empty(distinct.shape[0], np.int64)
    place[pc.sort_indices(values).to_numpy()] = np.arange(distinct.shape[0])
    return place[of]


def plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """In a type that Arrow can sort."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string_view(kind):
        kind = pa.large_string()
    elif pa.types.is_binary_view(kind):
        kind = pa.large_binary()
    return values if kind == values.type else values.cast(kind)


def refuse_beyond_memory(pairs: int) -> None:
    """Raises MemoryRefused where all pairs of an exact answer would take half of the machine's memory, or more than
    the database allows an answer.
    """
    needed, held, allowed = pairs * _PAIR_BYTES, memory_bytes(), allowed_room()
    if 2 * needed <= held and (allowed is None or needed <= allowed):
        return
    got = f"a machine of {held / 2**30:.1f} GiB, of which a report may take half"
    if 2 * needed <= held and allowed is not None:
        got = f"{allowed / 2**30:.2f} GiB that connect(memory=) allows it"
    raise MemoryRefused(
        f"report: needed all {pairs:,} pairs of the exact answer in memory, about {needed / 2**30:.2f} GiB; got {got}; "
        "name a shorter WINDOW, or a WHERE that leaves fewer tuples"
    )
