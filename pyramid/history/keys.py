"""Key indices: which rows of a stretch of the stream have which key, and what tells before reading.

A key index covers the rows of one segment and one column.  Its directory has an entry for each distinct key,
ascending by hash; the rows of the entries lie back to back, ascending within a key, so that a bound in time
is a bound on the row number.  A cell is one value bucket of it: bucket = hash >> (64 - log2(buckets)).
Source: promising tuples, sections 3.1 (value x time grid) and 3.4 (lowest-level cells: tuple list and summary).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nile.pyramid.history.heavy import HeavyKeys
from nile.pyramid.history.key_digest import KeyDigest, edges_of
from nile.pyramid.history.key_pages import Keys
from nile.pyramid.lake.key_sketch import IndexSketch
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.pyramid.history import history_kernels
else:
    history_kernels = lazy("nile.pyramid.history.history_kernels")

__all__ = ["READING", "Cell", "Found", "HotIndex", "KeyIndex", "Within", "buckets_for"]

Array = np.ndarray[Any, Any]

READING: Mapping[str, float] = MappingProxyType({"hot": 1.0, "warm": 4.0, "cold": 400.0})
"""Cost of reading a cell by tier, in units of a hot one of the same size: what a priority divides by.

Warm adds a checksum pass (about a nanosecond a byte, once) and page faults; cold decompresses Parquet row
groups, of which a cell is a small part.
"""

MORE = 32
"""Rows of an index in memory that are passed over for one whose key is wanted: to read that takes as long."""

NEAR = 1_024
"""Places of a list of rows that are read rather than skipped."""

TUPLES_A_BUCKET = 2_048
MOST_BUCKETS = 4_096


def buckets_for(tuples: int) -> int:
    """Value buckets of an index over so many tuples: a power of two, about 2,048 tuples each, at most 4,096."""
    return min(MOST_BUCKETS, 1 << max(0, (tuples // TUPLES_A_BUCKET).bit_length() - 1))


class Found(NamedTuple):
    """What a directory says of n hashes.

    entry, entries: int64 [n], the first entry with the hash and how many have it: 0 absent, 2 and more when
    several values share it.  begin, end: int64 [n], the range of places in the index's list of rows that they
    fill together: `end - begin` counts the tuples of the hash.
    """

    entry: Array
    entries: Array
    begin: Array
    end: Array


class Within(NamedTuple):
    """The keys of some rows, ascending by hash.

    hashes: uint64 [k]; values: Arrow [k]; starts: int64 [k + 1], from 0; ordinals: int64 [starts[k]], grouped by key
    and ascending in it.
    """

    hashes: Array
    values: pa.Array
    starts: Array
    ordinals: Array


class Cell:
    """One value bucket of one key index, as read.

    hashes: uint64 [k], ascending; starts: int64 [k + 1], from 0: rows of entry e are positions[starts[e]:
    starts[e + 1]]; first_entry, first_place: where the cell begins in the index.  `positions` and `values`
    are read when first asked for.
    """

    def __init__(self, index: KeyIndex, hashes: Array, starts: Array, first_entry: int, first_place: int) -> None:
        self.index = index
        self.hashes = hashes
        self.starts = starts
        self.first_entry = first_entry
        self.first_place = first_place

    @cached_property
    def positions(self) -> Array:
        """The tuples' ordinals in the stream: int64 [starts[k]], ascending within a key."""
        return self.index.ordinals(self.first_place, self.first_place + int(self.starts[-1]))

    @cached_property
    def values(self) -> pa.Array:
        """The key of each entry: Arrow [k]."""
        return self.index.values(np.arange(self.first_entry, self.first_entry + self.hashes.shape[0]))


class KeyIndex(ABC):
    """The keys of rows first..first + tuples - 1 (ordinals) in one column; ts of those rows in [since, until] ns.

    keyed: how many of the rows have a key; keys: how many distinct ones; buckets: a power of two; tier: "hot"
    (arrays in memory), "warm" (a mapped zone file) or "cold" (the lake's Parquet).  Null keys are in no cell.
    An index never changes; it stays readable as long as somebody holds it, also after its segment was merged
    into a longer one.
    reads: cells whose directory was asked so far, by `cell` or `look_up`.  It only grows, as `bytes_read` does:
    whoever wants those of one query takes the difference.
    """

    tier: str

    def __init__(
        self, column: str, first: int, tuples: int, since: int, until: int, buckets: int, keyed: int, keys: int
    ) -> None:
        self.column = column
        self.first = first
        self.tuples = tuples
        self.since = since
        self.until = until
        self.buckets = buckets
        self.keyed = keyed
        self.keys = keys
        self.reads = 0

    def __repr__(self) -> str:
        return (
            f"<{self.tier} index of {self.column}: rows {self.first} to {self.end - 1}, {self.keys} keys, "
            f"{self.buckets} buckets>"
        )

    @property
    def end(self) -> int:
        """The ordinal after the last row."""
        return self.first + self.tuples

    @property
    def shift(self) -> int:
        """hash >> shift is the bucket (64 for one bucket)."""
        return 65 - self.buckets.bit_length()

    def bucket_of(self, hashes: Array) -> Array:
        """The bucket of each hash (uint64 [n]): int64 [n]."""
        if self.buckets == 1:
            return np.zeros(hashes.shape[0], np.int64)
        buckets: Array = (hashes >> np.uint64(self.shift)).astype(np.int64)
        return buckets

    @property
    def bytes_read(self) -> int:
        """Bytes checked or decompressed so far; none in memory."""
        return 0

    @property
    def reading(self) -> float:
        """The cost of reading a tuple here, hot ones being 1."""
        return READING[self.tier]

    def bounds(self, hashes: Array) -> tuple[Array, Array]:
        """(estimate, upper) of the tuples of each key (uint64 [n]) here: int64 [n] each.  From the summary alone.

        upper: at most so many, for certain; 0 rules the key's cell out.  estimate: about so many, 0 to `upper`.
        Cost: two reads a key.
        """
        return self.summary.bounds(hashes)

    @property
    @abstractmethod
    def summary(self) -> KeyDigest | IndexSketch:
        """What it tells of all keys: a digest; of files of before version 3 a sketch."""

    @property
    def summary_at_hand(self) -> bool:
        """Whether nothing has to be read for `bounds` any more."""
        return False

    @property
    def heavy_at_hand(self) -> bool:
        """Whether nothing has to be read for `heavy` any more."""
        return False

    @property
    def heavy_bytes(self) -> int:
        """What is read for `heavy`; 0: there is none."""
        return 0

    @property
    def lists_heavy(self) -> bool:
        """Whether it has a list of its heaviest keys, which tells exactly what a summary bounds."""
        return self.heavy_bytes > 0

    def want(self, *, heavy: bool) -> None:  # noqa: B027
        """Have the disk bring the list of heavy keys, else the summary, where it is to be read: it comes meanwhile."""

    def want_keys(self, hashes: Array) -> None:  # noqa: B027
        """Have the disk bring what `look_up` of these hashes (uint64 [n]) and `same` read; it comes meanwhile."""

    @property
    def heavy(self) -> HeavyKeys:
        """That list.  Raises LookupError where there is none."""
        raise LookupError(f"{self!r}: needed an index that lists its heaviest keys; got one without; use its summary")

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of anonymous memory held."""

    @property
    @abstractmethod
    def stored_bytes(self) -> int:
        """Bytes on disk."""

    @abstractmethod
    def cell_tuples(self) -> Array:
        """Tuples with a key in each bucket: int64 [buckets].  Known without reading cells."""

    @property
    @abstractmethod
    def entry_edges(self) -> Array:
        """Entries before each bucket: int64 [buckets + 1]."""

    @abstractmethod
    def cell(self, bucket: int) -> Cell:
        """Read a cell.  Raises StoreCorrupt when its bytes are not those written, IndexError for no such bucket."""

    @abstractmethod
    def look_up(self, hashes: Array) -> Found:
        """The directory's entries of many hashes (uint64 [n], any order) at once; counts the cells asked.

        One call reads each cell needed once.  Ask only for hashes that `bounds` leaves possible: a cell is
        read for a hash that is absent as well.  Values are not compared: see `values`.
        """

    @abstractmethod
    def ordinals(self, begin: int, end: int) -> Array:
        """Places begin..end-1 of the list of rows as ordinals: int64 [end - begin]."""

    def ordinals_at(self, places: Array) -> Array:
        """Single places of the list of rows (int64 [n], any order) as ordinals: int64 [n].  Reads what lies near."""
        out = np.empty(places.shape[0], np.int64)
        order = np.argsort(places, kind="stable")
        ascending = places[order]
        cuts = np.flatnonzero(np.diff(ascending) > NEAR) + 1
        for low, high in zip([0, *cuts.tolist()], [*cuts.tolist(), ascending.shape[0]], strict=True):
            if low < high:
                begin = int(ascending[low])
                out[order[low:high]] = self.ordinals(begin, int(ascending[high - 1]) + 1)[ascending[low:high] - begin]
        return out

    @abstractmethod
    def values(self, entries: Array) -> pa.Array:
        """The keys of entries (int64 [n], any order): Arrow [n], of the column's type, dictionaries decoded."""

    def same(self, entries: Array, keys: Keys, which: Array) -> Array:
        """Whether each entry (int64 [n], as `look_up` gave it) has the key which[i] (int64 [n]) of keys of the column's
        type: bool [n].  Compares values, not hashes; of text, in memory and in files, without copying them."""
        return Keys(self.values(entries)).same(np.arange(entries.shape[0]), keys, which)

    @abstractmethod
    def part(self, low: int, high: int, buckets: int) -> Part:
        """All that buckets low..high-1 hold, buckets counted as if there were `buckets` (at most those here)."""

    def _check_bucket(self, bucket: int) -> None:
        if not 0 <= bucket < self.buckets:
            raise IndexError(f"cell: needed a bucket from 0 to {self.buckets - 1}; got {bucket}")


class Part(NamedTuple):
    """A stretch of an index by hash: what a merge takes.

    hashes: uint64 [k]; starts: int64 [k + 1], from 0; rows and values: functions that give the rows, uint32
    [starts[k]], counted from the index's first, and the keys, Arrow [k].
    """

    hashes: Array
    starts: Array
    rows: Callable[[], Array]
    values: Callable[[], pa.Array]


class HotIndex(KeyIndex):
    """A key index in memory: about 4 bytes per row, 16 and the key's value an entry, and the digest."""

    tier = "hot"

    def __init__(
        self,
        column: str,
        first: int,
        tuples: int,
        since: int,
        until: int,
        *,
        hashes: Array,
        starts: Array,
        rows: Array,
        keys: pa.Array,
    ) -> None:
        """hashes: uint64 [k], ascending; starts: int64 [k + 1]; rows: uint32 [starts[k]]; keys: Arrow [k]."""
        super().__init__(column, first, tuples, since, until, buckets_for(tuples), rows.shape[0], hashes.shape[0])
        self.hashes = hashes
        self.starts = starts
        self.rows = rows
        self.entry_values = keys
        self._keys = Keys(keys)
        self._summary = KeyDigest.of(hashes, np.diff(starts))
        self._edges = edges_of(hashes, self.buckets)

    @property
    def summary(self) -> KeyDigest:
        return self._summary

    @property
    def summary_at_hand(self) -> bool:
        return True

    @property
    def nbytes(self) -> int:
        arrays = (self.hashes, self.starts, self.rows, self._edges)
        return sum(int(array.nbytes) for array in arrays) + int(self.entry_values.nbytes) + self._summary.nbytes

    @property
    def stored_bytes(self) -> int:
        return 0

    @property
    def entry_edges(self) -> Array:
        return self._edges

    def cell_tuples(self) -> Array:
        counts: Array = np.diff(self.starts[self._edges])
        return counts

    def cell(self, bucket: int) -> Cell:
        self._check_bucket(bucket)
        self.reads += 1
        begin, end = int(self._edges[bucket]), int(self._edges[bucket + 1])
        place = int(self.starts[begin])
        return Cell(self, self.hashes[begin:end], self.starts[begin : end + 1] - place, begin, place)

    def look_up(self, hashes: Array) -> Found:
        n = hashes.shape[0]
        entry, entries = np.empty(n, np.int64), np.empty(n, np.int64)
        history_kernels.find(self.hashes, self._edges, self.shift, hashes, entry, entries)
        self.reads += int(np.unique(self.bucket_of(hashes)).shape[0])
        return Found(entry, entries, self.starts[entry], self.starts[entry + entries])

    def ordinals(self, begin: int, end: int) -> Array:
        return self.rows[begin:end].astype(np.int64) + self.first

    def ordinals_at(self, places: Array) -> Array:
        return self.rows[places].astype(np.int64) + self.first

    def values(self, entries: Array) -> pa.Array:
        return self.entry_values.take(pa.array(entries, pa.int64()))

    def same(self, entries: Array, keys: Keys, which: Array) -> Array:
        return self._keys.same(entries, keys, which)

    def within(self, begin: int, end: int) -> Within | None:
        """The keys of rows begin..end-1 (ordinals, all of this index); None where they are read sooner.  O(keys +
        tuples from `begin` on)."""
        n = end - begin
        if self.keyed > MORE * n:
            return None
        entries, ends, rows = np.empty(self.keys, np.int64), np.empty(self.keys + 1, np.int64), np.empty(n, np.int64)
        found = history_kernels.rows_within(
            self.starts, self.rows, begin - self.first, end - self.first, entries, ends, rows
        )
        here, starts = entries[:found], ends[: found + 1].copy()
        return Within(self.hashes[here], self.values(here), starts, rows[: int(starts[-1])] + self.first)

    def part(self, low: int, high: int, buckets: int) -> Part:
        scale = self.buckets // buckets
        begin, end = int(self._edges[low * scale]), int(self._edges[high * scale])
        place = int(self.starts[begin])
        return Part(
            self.hashes[begin:end],
            self.starts[begin : end + 1] - place,
            lambda: self.rows[place : int(self.starts[end])],
            lambda: self.entry_values.slice(begin, end - begin),
        )
