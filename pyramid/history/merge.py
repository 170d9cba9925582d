"""COLLAPSE of key indices: adjacent ones become one longer one, a stretch of hashes at a time.

Each step takes the same value buckets of all children, so memory is bounded by the fullest bucket and a step's
work by `STEP` tuples or one bucket.  Runs are merged, never sorted anew: hashes ascend in every child, and a key's
rows in an older child come before those in a newer one.
Source: promising tuples, section 3.5 and Figure 5b (tuple lists concatenated, summaries added).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.pyramid.history.keys import HotIndex, KeyIndex, Part
from nile.summaries.hashing import KeyTable
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.pyramid.history import history_kernels
else:
    history_kernels = lazy("nile.pyramid.history.history_kernels")

__all__ = ["distinct_hashes", "merge_hot", "merged_parts"]

Array = np.ndarray[Any, Any]

STEP = 1 << 19
"""Tuples of a step, unless one bucket has more."""


def merged_parts(children: Sequence[KeyIndex], step: int = STEP) -> Iterator[Part]:
    """The sum of adjacent indices (oldest first), hashes ascending, rows counted from the first child's first."""
    offsets = np.array([child.first - children[0].first for child in children], np.int64)
    for parts in _stretches(children, step):
        yield _merged(parts, offsets)


def distinct_hashes(children: Sequence[KeyIndex], step: int = STEP) -> int:
    """How many hashes adjacent indices have together.  Reads their directories."""
    return sum(
        int(np.unique(np.concatenate([part.hashes for part in parts])).shape[0]) for parts in _stretches(children, step)
    )


def _stretches(children: Sequence[KeyIndex], step: int) -> Iterator[list[Part]]:
    """The same value buckets of all children, `step` tuples or one bucket at a time."""
    buckets = min(child.buckets for child in children)
    weight = np.zeros(buckets, np.int64)
    for child in children:
        weight += child.cell_tuples().reshape(buckets, -1).sum(axis=1)
    reached = np.cumsum(weight)
    low = 0
    while low < buckets:
        before = int(reached[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(reached, before + step, side="right")))
        yield [child.part(low, high, buckets) for child in children]
        low = high


def merge_hot(children: Sequence[KeyIndex]) -> HotIndex:
    """Adjacent indices as one in memory.  Cost: a merge of the directories, a copy of the rows."""
    parts = list(merged_parts(children))
    first, last = children[0], children[-1]
    counts = np.concatenate([np.diff(part.starts) for part in parts])
    return HotIndex(
        first.column,
        first.first,
        last.end - first.first,
        first.since,
        last.until,
        hashes=np.concatenate([part.hashes for part in parts]),
        starts=np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]),
        rows=np.concatenate([part.rows() for part in parts]),
        keys=pa.concat_arrays([part.values() for part in parts]),
    )


def _merged(parts: list[Part], offsets: Array) -> Part:
    hashes = np.concatenate([part.hashes for part in parts])
    values = pa.concat_arrays([part.values() for part in parts])
    order = np.argsort(hashes, kind="stable")  # timsort: runs that ascend are merged
    ascending = hashes[order]
    codes = KeyTable().encode(values).codes if _repeated(ascending) else np.arange(hashes.shape[0])
    same_hash = ascending[1:] == ascending[:-1]
    if (same_hash & (codes[order][1:] != codes[order][:-1])).any():  # two values of one hash: each its own entry
        order = np.lexsort((np.arange(hashes.shape[0]), codes, hashes))
    own = codes[order]
    new = np.ones(own.shape[0], np.bool_)
    new[1:] = ~(same_hash & (own[1:] == own[:-1]))

    child = np.repeat(np.arange(len(parts)), [part.hashes.shape[0] for part in parts])
    source = np.concatenate([part.rows() for part in parts])
    base = np.concatenate([np.zeros(1, np.int64), np.cumsum([part.starts[-1] for part in parts])])
    begins = np.concatenate([part.starts[:-1] for part in parts]) + base[child]
    ends = np.concatenate([part.starts[1:] for part in parts]) + base[child]
    rows = np.empty(source.shape[0], np.uint32)
    history_kernels.copy_runs(source, begins[order], ends[order], offsets[child[order]], rows)

    counts = (ends - begins)[order]
    leading = np.flatnonzero(new)
    totals = np.add.reduceat(counts, leading) if leading.shape[0] else counts
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(totals)])
    chosen = order[leading]
    return Part(ascending[leading], starts, lambda: rows, lambda: values.take(pa.array(chosen)))


def _repeated(ascending: Array) -> bool:
    return bool((ascending[1:] == ascending[:-1]).any())
