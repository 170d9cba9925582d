"""A key index in a mapped zone file: what it asks is checked before its first use (see `zone_file` for the layout)."""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.pyramid.history.heavy import HeavyKeys
from nile.pyramid.history.key_digest import KeyDigest, StoredSummary
from nile.pyramid.history.key_pages import Keys, is_text, unpacked_text
from nile.pyramid.history.keys import Cell, Found, KeyIndex, Part
from nile.pyramid.history.pages import PageFile
from nile.pyramid.history.zone_file import ENTRIES, KIND, PLACES
from nile.pyramid.lake.key_sketch import IndexSketch
from nile.summaries.errors import EnvelopeError, StoreCorrupt
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy
from nile.summaries.schemas import schema_from_json

if TYPE_CHECKING:
    from nile.pyramid.disk.directory import StoreDirectory
    from nile.pyramid.disk.manifest import StoredFile
    from nile.pyramid.history import history_kernels, key_kernels
else:
    history_kernels = lazy("nile.pyramid.history.history_kernels")
    key_kernels = lazy("nile.pyramid.history.key_kernels")

__all__ = ["WarmIndex", "bounds_of"]

Array = np.ndarray[Any, Any]

_FAR = (1 << 63) - 1
_LISTED_BYTES = 16
"""Of a heavy key: its hash, where its rows begin, and how many there are."""


class WarmIndex(KeyIndex):
    """A key index in a mapped zone file.

    A directory page (256 entries) and a page of rows (1,024) are checked before their first use, some 2 us each;
    from then on reading them is a slice of mapped memory.  Anonymous memory: one byte a page and the objects.
    """

    tier = "warm"

    def __init__(self, directory: StoreDirectory, file: StoredFile) -> None:
        self.file = file
        pages = self._pages = PageFile(directory.map(file), KIND, file.name)
        footer = pages.footer
        try:
            column = footer.params.get("column")
            if not isinstance(column, str):
                footer.refuse("parameter 'column' must be text", repr(column)[:60])
            tuples = footer.integer("tuples", 1, (1 << 32) - 1)
            first = footer.integer("first", 0, (1 << 62) - tuples)
            keyed = footer.integer("keyed", 0, tuples)
            keys = footer.integer("keys", 0, keyed)
            buckets = footer.integer("buckets", 1, 1 << 20)
            since, until = (footer.integer(name, -_FAR - 1, _FAR) for name in ("since", "until"))
            if buckets & (buckets - 1):
                footer.refuse("buckets as a power of two", f"{buckets}")
            self._stored = StoredSummary(pages, keys, "counters")
            self._listed = 0
            if "heavy" in footer.params:  # files of before it was there have none
                self._heavy_page = footer.integer("heavy", 0, pages.pages - 2)
                self._listed = footer.integer("listed", 1, keys)
                self._rest = footer.integer("rest", 0, keyed)
            self._edges = bounds_of(footer, "edges", buckets, keys)
            self._weights = bounds_of(footer, "weights", buckets, keyed)
            directories = -(-keys // ENTRIES)
            self._directory = footer.array("directory", "<i8", (directories,))
            self._values = footer.array("values", "<i8", (directories,))
            self._first = footer.array("first", "<u8", (directories,))
            self._rows = footer.array("rows", "<i8", (-(-keyed // PLACES),))
            self._schema = schema_from_json(footer.params.get("type"), file.name)
            if self._schema.names != ["key"]:
                footer.refuse("the type of one column", str(self._schema.names)[:60])
        except EnvelopeError as error:
            raise StoreCorrupt(f"{error}; `nile store check` lists what else is damaged") from None
        super().__init__(column, first, tuples, since, until, buckets, keyed, keys)
        m = np.full(directories, ENTRIES, np.int64)
        if directories:
            m[-1] = keys - (directories - 1) * ENTRIES
        pages.check_lengths(self._directory, 8 * m + 4 * (m + 1))
        n = np.full(self._rows.shape[0], PLACES, np.int64)
        if keyed:
            n[-1] = keyed - (n.shape[0] - 1) * PLACES
        pages.check_lengths(self._rows, 4 * n)
        self._at, self._rows_at = pages.at(self._directory), pages.at(self._rows)
        whole = len(pages.data) // 8 * 8
        self._words = np.frombuffer(pages.data[:whole], "<u8")
        self._halves = np.frombuffer(pages.data[:whole], "<u4")
        self._bytes = np.frombuffer(pages.data, np.uint8)
        self._summary: KeyDigest | IndexSketch | None = None
        self._heavy: HeavyKeys | None = None

    @property
    def summary(self) -> KeyDigest | IndexSketch:
        if self._summary is None:
            self._summary = self._stored.read()
        return self._summary

    @property
    def summary_at_hand(self) -> bool:
        return self._summary is not None

    @property
    def heavy_at_hand(self) -> bool:
        return self._heavy is not None

    @property
    def heavy_bytes(self) -> int:
        return _LISTED_BYTES * self._listed

    def want(self, *, heavy: bool) -> None:
        pages = [self._heavy_page, self._heavy_page + 1] if heavy else [self._stored.page]
        self._pages.want(np.array(pages))

    @property
    def heavy(self) -> HeavyKeys:
        if not self._listed:
            return super().heavy
        if self._heavy is None:
            n = self._listed
            data = self._pages.numbers(self._heavy_page, "<u4", self.heavy_bytes // 4)
            hashes, begins, counts = data[: 2 * n].view("<u8"), data[2 * n : 3 * n], data[3 * n :]
            if not history_kernels.heavy_rise(hashes, begins, counts, self.keyed):
                self._pages.corrupt("heavy keys", "hashes and places that rise, a tuple or more of each", "others")
            compare = self._same_heavy if is_text(self._schema.field(0).type) else None
            self._heavy = HeavyKeys(hashes, begins, counts, self._rest, self._heavy_values, compare)
        return self._heavy

    @property
    def nbytes(self) -> int:
        return self._pages.pages + int(self._at.nbytes + self._rows_at.nbytes)

    @property
    def stored_bytes(self) -> int:
        return self.file.length

    @property
    def bytes_read(self) -> int:
        """Bytes checked so far."""
        return int(self._pages.bytes_read)

    @property
    def entry_edges(self) -> Array:
        return self._edges

    def cell_tuples(self) -> Array:
        counts: Array = np.diff(self._weights)
        return counts

    def cell(self, bucket: int) -> Cell:
        self._check_bucket(bucket)
        self.reads += 1
        begin, end = int(self._edges[bucket]), int(self._edges[bucket + 1])
        place = int(self._weights[bucket])
        hashes, starts = self._entries(begin, end, place, int(self._weights[bucket + 1]))
        return Cell(self, hashes, starts, begin, place)

    def look_up(self, hashes: Array) -> Found:
        n = hashes.shape[0]
        found = Found(*(np.zeros(n, np.int64) for _ in range(4)))
        if not self.keys or not n:
            return found
        self.reads += int(np.unique(self.bucket_of(hashes)).shape[0])
        self._check_entries(self._pages_of(hashes))
        history_kernels.find_paged(self._words, self._halves, self._at, self._first, ENTRIES, self.keys, hashes, *found)
        for i in np.flatnonzero(found.entries > 1):  # values that share a hash: these may go on in further pages
            self._check_entries(
                np.arange(found.entry[i] // ENTRIES, (found.entry[i] + found.entries[i] - 1) // ENTRIES + 1)
            )
        if (found.begin > found.end).any() or int(found.end.max()) > self.keyed:
            self._pages.corrupt("directory", "rows within the index", "others")
        return found

    def want_keys(self, hashes: Array) -> None:
        if self.keys and hashes.shape[0]:
            pages = self._pages_of(hashes)
            self._pages.want(np.sort(np.concatenate([self._directory[pages], self._values[pages]])))

    def _pages_of(self, hashes: Array) -> Array:
        """The pages of the directory in which entries of hashes (uint64 [n], n > 0) would begin: int64, ascending."""
        page = np.searchsorted(self._first, hashes, side="left")
        here = page[page < self._first.shape[0]]
        here = here[self._first[here] == hashes[page < self._first.shape[0]]]
        found: Array = np.unique(np.concatenate([np.maximum(page - 1, 0), here]))
        return found

    def _entries(self, begin: int, end: int, place: int, after: int) -> tuple[Array, Array]:
        """Hashes (uint64 [n]) and starts (int64 [n + 1], from 0) of entries begin..end-1, whose rows fill
        places place..after-1."""
        if begin == end:
            return np.zeros(0, np.uint64), np.zeros(1, np.int64)
        low, high = begin // ENTRIES, -(-end // ENTRIES)
        hashes, starts = [], []
        self._check_entries(np.arange(low, high))
        for p in range(low, high):
            at = int(self._at[p]) // 4
            m = min(ENTRIES, self.keys - p * ENTRIES)
            a, b = max(begin - p * ENTRIES, 0), min(end - p * ENTRIES, m)
            hashes.append(self._words[at // 2 + a : at // 2 + b])
            at += 2 * m
            starts.append(self._halves[at + a : at + b + (p == high - 1)])
        bounds = _together(starts).astype(np.int64)
        bounds -= place
        if bounds[0] != 0 or bounds[-1] != after - place:
            self._pages.corrupt("footer", "cells as long as their entries say", "another length")
        return _together(hashes), bounds

    def ordinals(self, begin: int, end: int) -> Array:
        rows: Array = self._places(begin, end).astype(np.int64)
        rows += self.first
        return rows

    def ordinals_at(self, places: Array) -> Array:
        if not places.shape[0]:
            return np.zeros(0, np.int64)
        if int(places.min()) < 0 or int(places.max()) >= self.keyed:
            self._pages.corrupt("directory", f"rows within 0 to {self.keyed}", f"{places.min()} to {places.max()}")
        pages = places // PLACES
        for page in np.unique(pages).tolist():
            if self._pages.check_one(int(self._rows[page])):
                self._check_rows(page)
        rows: Array = self._halves[self._rows_at[pages] // 4 + places - pages * PLACES].astype(np.int64)
        rows += self.first
        return rows

    def _places(self, begin: int, end: int) -> Array:
        """Places begin..end-1 of the list of rows: uint32, from the index's first row."""
        if not 0 <= begin <= end <= self.keyed:
            self._pages.corrupt("directory", f"rows within 0 to {self.keyed}", f"{begin} to {end}")
        if begin == end:
            return np.zeros(0, np.uint32)
        low, high = begin // PLACES, -(-end // PLACES)
        at = self._rows_at[low:high]
        for page, number in enumerate(self._rows[low:high].tolist(), low):
            if self._pages.check_one(number):
                self._check_rows(page)
        runs = (np.flatnonzero(np.diff(at) != 4 * PLACES) + 1).tolist()
        pieces = []
        edges: list[int] = [low, *(low + int(cut) for cut in runs), high]
        for first, last in itertools.pairwise(edges):  # pages that lie back to back are one view
            base = first * PLACES
            start = int(self._rows_at[first]) // 4 - base
            pieces.append(self._halves[start + max(begin, base) : start + min(end, last * PLACES)])
        return _together(pieces)

    def _check_entries(self, pages: Array) -> None:
        """That pages of the directory (int64 [n]) are as written, and hashes and places in them never fall."""
        fresh = pages[self._pages.check(self._directory[pages])]
        if not history_kernels.entries_rise(
            self._words, self._halves, self._at[fresh], fresh, ENTRIES, self.keys, self.keyed
        ):
            self._pages.corrupt("directory", "hashes and places that never fall", "others")

    def _check_rows(self, page: int) -> None:
        """That a page has rows of this index only."""
        start = int(self._rows_at[page]) // 4
        highest = int(self._halves[start : start + min(PLACES, self.keyed - page * PLACES)].max())
        if highest >= self.tuples:
            self._pages.corrupt("rows", f"rows below {self.tuples}", f"{highest}")

    def values(self, entries: Array) -> pa.Array:
        pages = entries // ENTRIES
        needed, where = np.unique(pages, return_inverse=True)
        if not needed.shape[0]:
            return pa.array([], self._schema.field(0).type)
        if int(needed[0]) < 0 or int(entries.max()) >= self.keys:
            raise IndexError(
                f"values: needed entries from 0 to {self.keys - 1}; got {entries.min()} to {entries.max()}"
            )
        parts = [self._value_page(page) for page in needed.tolist()]
        base = np.cumsum([0] + [len(part) for part in parts[:-1]])
        at = base[where] + entries - pages * ENTRIES
        return pa.concat_arrays(parts).take(pa.array(at))

    def same(self, entries: Array, keys: Keys, which: Array) -> Array:
        if not is_text(self._schema.field(0).type) or keys.text is None:
            return super().same(entries, keys, which)
        pages = entries // ENTRIES
        self._pages.check(self._values[pages[np.flatnonzero(np.diff(pages, prepend=-1))]])
        return self._same_text(self._values_extent, ENTRIES, self.keys, entries, keys.text, which)

    @cached_property
    def _values_extent(self) -> tuple[Array, Array]:
        return self._pages.extent(self._values)

    @cached_property
    def _heavy_extent(self) -> tuple[Array, Array]:
        return self._pages.extent(np.array([self._heavy_page + 1]))

    def _same_heavy(self, places: Array, keys: Keys, which: Array) -> Array:
        """`same` of the list of heavy keys, whose text is one page."""
        assert keys.text is not None  # of one type with the list's
        self._pages.check_one(self._heavy_page + 1)
        return self._same_text(self._heavy_extent, self._listed, self._listed, places, keys.text, which)

    def _same_text(
        self, extent: tuple[Array, Array], a_page: int, keys: int, entries: Array, text: tuple[Array, Array],
        which: Array,
    ) -> Array:  # fmt: skip
        """Whether entries of checked pages, `a_page` of `keys` a page, are the texts which[i]: bool [n].

        extent: where the pages begin, and how long they are.
        """
        out = np.empty(entries.shape[0], np.bool_)
        if not key_kernels.same_paged_text(
            self._halves, self._bytes, *extent, a_page, keys, entries, *text, which, out
        ):
            self._pages.corrupt("values", "keys inside their page", "one beyond it")
        return out

    def _value_page(self, page: int) -> pa.Array:
        return self._keys_of(int(self._values[page]), min(ENTRIES, self.keys - page * ENTRIES))

    def _heavy_values(self) -> pa.Array:
        return self._keys_of(self._heavy_page + 1, self._listed)

    def _keys_of(self, number: int, rows: int) -> pa.Array:
        """The keys of a page of them."""
        kind = self._schema.field(0).type
        if is_text(kind):
            fresh = self._pages.is_fresh(number)
            try:
                return unpacked_text(self._pages.page(number), kind, rows, look=fresh)
            except (pa.ArrowException, ValueError) as error:
                self._pages.corrupt(f"page {number}", f"{rows} keys", str(error))
        return self._pages.batch(number, self._schema, rows).column(0)

    def part(self, low: int, high: int, buckets: int) -> Part:
        scale = self.buckets // buckets
        low, high = low * scale, high * scale
        begin, end = int(self._edges[low]), int(self._edges[high])
        place, after = int(self._weights[low]), int(self._weights[high])
        hashes, starts = self._entries(begin, end, place, after)
        return Part(hashes, starts, lambda: self._places(place, after), lambda: self.values(np.arange(begin, end)))


def _together(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def bounds_of(footer: Any, name: str, buckets: int, total: int) -> Array:
    """An array of a footer that has to rise from 0 to `total`, one more than there are buckets."""
    bounds: Array = footer.array(name, "<i8", (buckets + 1,))
    if bounds[0] != 0 or bounds[-1] != total or (bounds[1:] < bounds[:-1]).any():
        footer.refuse(f"array {name!r} must rise from 0 to {total}", "another")
    return bounds
