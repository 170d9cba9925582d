"""Writing a key index to disk: a file of pages, sorted by bucket and key, of which `warm_index` maps all.

Pages; a page of rows comes as soon as the entries of all its rows have come, so that equal indices are equal bytes,
however they were put together:
    directory   256 entries: hashes (uint64 [m], ascending), then where each entry's rows begin in the list of rows
                (uint32 [m + 1]), padded to 8 bytes
    values      the keys of the same 256 entries: of text where each begins (uint32 [m + 1]) and the bytes, of other
                types an Arrow IPC message
    rows        1,024 places of the list of rows (uint32, counted from the index's first row), ascending in an entry
    digest      what is read of an index first (`key_digest`): where the keys of each span begin (uint32), then of each
                key 11 bits of its hash and a level of 5 (uint16)
    heavy       where there are many keys, the heaviest: hashes (uint64 [h], strictly ascending), where the rows of each
                begin and how many there are (uint32 [h] each); the page after it: their keys, as in a page of values
The footer has the sizes, the entries and the rows before each bucket, and which page is which.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from nile.pyramid.history.heavy import Heaviest
from nile.pyramid.history.key_digest import Digesting, edges_of
from nile.pyramid.history.key_pages import is_text, text_page
from nile.pyramid.history.keys import Part, buckets_for
from nile.pyramid.history.pages import PageWriter, packed_batch
from nile.summaries.heavy import pa
from nile.summaries.schemas import schema_to_json

__all__ = ["ENTRIES", "KIND", "PLACES", "zone_file"]

Array = np.ndarray[Any, Any]

KIND = "history-zone"
ENTRIES = 256
"""Entries of a directory page: 3 KB, some 2 us to check."""
PLACES = 1_024
"""Rows of a page of them: 4 KB, some 2 us to check."""


def zone_file(
    column: str,
    kind: pa.DataType,
    first: int,
    tuples: int,
    since: int,
    until: int,
    parts: Iterable[Part],
    about: int,
) -> Iterator[Any]:
    """The bytes of the index of rows first..first + tuples - 1 in `column`, as pieces to write.

    parts: all its entries, ascending by hash, all of a hash in one; about: how many distinct hashes they have.
    Memory: 3 bytes a key, one part, some 65,536 of its heaviest keys, and some 70 bytes per page.
    """
    writer = PageWriter()
    yield writer.start()
    schema = pa.schema([pa.field("key", kind)])
    digesting, heaviest = Digesting(about), Heaviest(kind)
    pages: dict[str, list[int]] = {"directory": [], "values": [], "rows": []}
    page_first: list[int] = []
    buckets = buckets_for(tuples)
    edges, weights = np.zeros(buckets + 1, np.int64), np.zeros(buckets + 1, np.int64)
    hashes, counts, values, rows = np.zeros(0, np.uint64), np.zeros(0, np.int64), pa.array([], kind), _no_rows()
    keys = keyed = placed = at = 0

    def page_of(own: pa.Array) -> Any:
        return text_page(own) if is_text(kind) else packed_batch(pa.RecordBatch.from_arrays([own], schema=schema))

    def directory(n: int) -> Iterator[Any]:
        nonlocal hashes, counts, values, keys, keyed
        starts = np.zeros(n + 1, np.int64)
        np.cumsum(counts[:n], out=starts[1:])
        starts += keyed
        pages["directory"].append(writer.pages)
        page_first.append(int(hashes[0]))
        yield from writer.page(hashes[:n].astype("<u8", copy=False).tobytes() + starts.astype("<u4").tobytes())
        pages["values"].append(writer.pages)
        yield from writer.page(page_of(values.slice(0, n)))
        keys += n
        keyed = int(starts[-1])
        hashes, counts, values = hashes[n:], counts[n:], values.slice(n)
        yield from places(PLACES)

    def places(least: int) -> Iterator[Any]:
        """Pages of the rows of the entries so far, `least` of them at least."""
        nonlocal at, placed
        while keyed - placed >= least:
            pages["rows"].append(writer.pages)
            n = min(PLACES, keyed - placed)
            yield from writer.page(rows[at : at + n].astype("<u4", copy=False))
            at, placed = at + n, placed + n

    for part in parts:
        more = np.diff(part.starts)
        digesting.add(part.hashes, more)
        bounds = edges_of(part.hashes, buckets)
        edges += bounds
        weights += part.starts[bounds]
        hashes, counts = np.concatenate([hashes, part.hashes]), np.concatenate([counts, more])
        part_values = part.values()
        heaviest.add(part.hashes, part.starts, part_values)
        values = pa.concat_arrays([values, part_values])
        rows, at = np.concatenate([rows[at:], part.rows()]), 0
        while hashes.shape[0] >= ENTRIES:
            yield from directory(ENTRIES)
    if hashes.shape[0]:
        yield from directory(hashes.shape[0])
    yield from places(1)
    digest = digesting.digest()
    told, levels = digest.told(writer.pages)
    yield from writer.page(digest.page())
    params = {
        "column": column, "type": schema_to_json(schema), "first": first, "tuples": tuples, "since": since,
        "until": until, "buckets": buckets, "keys": keys, "keyed": keyed, **told,
    }  # fmt: skip
    if (listed := heaviest.listed()) is not None:
        params |= {"heavy": writer.pages, "listed": listed.hashes.shape[0], "rest": listed.rest}
        numbers = (listed.hashes.astype("<u8"), listed.begins.astype("<u4"), listed.counts.astype("<u4"))
        yield from writer.page(b"".join(each.tobytes() for each in numbers))
        yield from writer.page(page_of(listed.keys.values))
    arrays = {name: np.array(numbers, np.int64) for name, numbers in pages.items()}
    arrays |= {"first": np.array(page_first, np.uint64), "edges": edges, "weights": weights, **levels}
    yield writer.finish(KIND, params, arrays)


def _no_rows() -> Array:
    return np.zeros(0, np.uint32)
