"""Kernels of key indices: rows sorted by key, look-ups in the directory of an index."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.kernels import U8, kernel

Array = np.ndarray[Any, Any]

__all__ = [
    "copy_runs",
    "count_entries",
    "entries_rise",
    "find",
    "find_paged",
    "heavy_rise",
    "rows_by_key",
    "rows_within",
]


@kernel
def count_entries(codes: Array, place: Array, starts: Array) -> None:
    """starts[e + 1] += 1 for the entry e = place[code] of every row, then sums: where each entry's rows begin.

    codes: int32 [n], -1 null; place: int64 [k], the entry of each code; starts: int64 [k + 1], zeros.
    """
    for i in range(codes.shape[0]):
        if codes[i] >= 0:
            starts[place[codes[i]] + 1] += 1
    for e in range(place.shape[0]):
        starts[e + 1] += starts[e]


@kernel
def rows_by_key(codes: Array, place: Array, at: Array, positions: Array) -> None:
    """The rows of every entry, ascending: a counting sort.  at: int64 [k], where each begins (moved to its end).

    codes: int32 [n], -1 null; positions: uint32 [rows with a key].
    """
    for i in range(codes.shape[0]):
        if codes[i] >= 0:
            e = place[codes[i]]
            positions[at[e]] = i
            at[e] += 1


@kernel
def rows_within(starts: Array, rows: Array, low: int, high: int, entries: Array, ends: Array, out: Array) -> int:
    """The rows low..high-1 of every entry, entry after entry: how many entries have any.

    starts: int64 [k + 1], where each entry's rows begin; rows: uint32, ascending in an entry.  entries: int64 [k],
    which they are; ends: int64 [k + 1], from 0, where the rows of each end in `out`, int64 [high - low].  Cost:
    O(k + rows from `low` on).
    """
    n = 0
    at = 0
    ends[0] = 0
    for e in range(starts.shape[0] - 1):
        first = starts[e + 1]
        while first > starts[e] and np.int64(rows[first - 1]) >= low:
            first -= 1
        for i in range(first, starts[e + 1]):
            row = np.int64(rows[i])
            if row < high:
                out[at] = row
                at += 1
        if at > ends[n]:
            entries[n] = e
            n += 1
            ends[n] = at
    return n


@kernel
def copy_runs(source: Array, begins: Array, ends: Array, offsets: Array, out: Array) -> None:
    """out = source[begins[j]:ends[j]] + offsets[j] for one j after the other.

    source, out: uint32; begins, ends: int64 [m]; offsets: int64 [m].  Sums stay below 2**32.
    """
    at = 0
    for j in range(begins.shape[0]):
        add = np.uint32(offsets[j])
        for i in range(begins[j], ends[j]):
            out[at] = source[i] + add
            at += 1


@kernel
def entries_rise(words: Array, halves: Array, at: Array, pages: Array, a_page: int, keys: int, keyed: int) -> bool:
    """Whether hashes and places never fall within each page of a directory, and no place is beyond `keyed`.

    words, halves: the file as uint64 and as uint32; at: int64 [n], where each page begins in bytes; pages: int64 [n],
    their numbers; a_page: entries of each but the last; keys: of all.
    """
    for i in range(pages.shape[0]):
        m = min(a_page, keys - pages[i] * a_page)
        first = at[i] // 8
        starts = 2 * (first + m)
        for e in range(m):
            if halves[starts + e + 1] < halves[starts + e] or (e and words[first + e] < words[first + e - 1]):
                return False
        if halves[starts + m] > keyed:
            return False
    return True


@kernel
def heavy_rise(hashes: Array, begins: Array, counts: Array, keyed: int) -> bool:
    """Whether a list of heavy keys is one: hashes (uint64 [h]) that rise strictly, and runs of at least one of `keyed`
    places, counts (uint32 [h]) from begins (uint32 [h]) on, each after the one before."""
    after = np.int64(0)
    wrong = 0
    for i in range(hashes.shape[0]):
        wrong += (counts[i] < 1) | (np.int64(begins[i]) < after)
        if i:
            wrong += hashes[i] <= hashes[i - 1]
        after = np.int64(begins[i]) + np.int64(counts[i])
    return bool(wrong == 0 and after <= keyed)


@kernel
def find(directory: Array, edges: Array, shift: int, hashes: Array, entry: Array, entries: Array) -> None:
    """Where each hash is in a directory: entry[i] the first entry of it, entries[i] how many (0: none).

    directory: uint64 [k], ascending; edges: int64 [buckets + 1], the entries before each bucket; shift: 64 -
    log2(buckets), 64 for one bucket; hashes: uint64 [n]; entry, entries: int64 [n].  A binary search each.
    """
    for i in range(hashes.shape[0]):
        h = hashes[i]
        bucket = U8(0) if shift == 64 else h >> U8(shift)
        low = edges[bucket]
        top = edges[bucket + U8(1)]
        high = top
        while low < high:
            middle = (low + high) >> 1
            if directory[middle] < h:
                low = middle + 1
            else:
                high = middle
        n = 0
        while low + n < top and directory[low + n] == h:
            n += 1
        entry[i] = low
        entries[i] = n


@kernel
def find_paged(
    words: Array,
    halves: Array,
    at: Array,
    first: Array,
    page: int,
    keys: int,
    hashes: Array,
    entry: Array,
    entries: Array,
    begin: Array,
    end: Array,
) -> None:
    """`find` in a directory of pages of a mapped file; also where rows are: see `nile.pyramid.history.zone_file`.

    words, halves: the file as uint64 and uint32; at: int64 [pages], where each page begins (bytes, of 8); first:
    uint64 [pages], its first hash; page: entries of a page but the last; keys: entries of all.  begin, end: int64 [n].
    """
    for i in range(hashes.shape[0]):
        h = hashes[i]
        low = 0
        high = at.shape[0]
        while low < high:  # how many pages begin before h: the first entry of h is in the last of them, or after it
            middle = (low + high) >> 1
            if first[middle] < h:
                low = middle + 1
            else:
                high = middle
        p = max(low - 1, 0)
        e = p * page
        top = min(e + page, keys)
        base = at[p] >> 3
        high = top
        low = e
        while low < high:
            middle = (low + high) >> 1
            if words[base + middle - e] < h:
                low = middle + 1
            else:
                high = middle
        n = 0
        found = low
        begin[i] = 0
        end[i] = 0
        while low < keys:
            p = low // page
            e = p * page
            if first[p] > h:
                break
            if words[(at[p] >> 3) + low - e] != h:
                break
            start = (at[p] >> 2) + 2 * (min(e + page, keys) - e) + low - e
            if n == 0:
                begin[i] = halves[start]
            end[i] = halves[start + 1]
            n += 1
            low += 1
        entry[i] = found
        entries[i] = n
