"""Kernels over keys of an index: what its digest tells, and text compared where it lies in a mapped file."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.kernels import U8, kernel, part

Array = np.ndarray[Any, Any]

__all__ = ["digest_bounds", "same_paged_text", "same_text"]


@kernel
def digest_bounds(
    edges: Array, codes: Array, most: Array, about: Array, bits: int, hashes: Array, estimate: Array, upper: Array
) -> None:
    """upper[i]: at most so many tuples of key i are there, for certain; estimate[i]: about so many.  int64 [n].

    edges: uint32 [spans + 1], the keys before each span, of which there is a power of two; codes: uint16, `bits` of
    each key's hash after those that its span is, then its level; most, about: int64, by level.  Keys that share a span
    and the bits count together.
    """
    spans = edges.shape[0] - 1
    first = 0
    while 1 << first < spans:
        first += 1
    level = np.uint16((1 << (16 - bits)) - 1)
    for i in range(hashes.shape[0]):
        span = U8(0) if first == 0 else hashes[i] >> U8(64 - first)
        piece = (hashes[i] << U8(first)) >> U8(64 - bits)
        bound = np.int64(0)
        guess = np.int64(0)
        for e in range(np.int64(edges[span]), np.int64(edges[span + U8(1)])):
            here = U8(codes[e]) >> U8(16 - bits)
            if here >= piece:
                if here > piece:
                    break
                bound += most[codes[e] & level]
                guess += about[codes[e] & level]
        upper[i] = bound
        estimate[i] = guess


@part
def _alike(data: Array, at: Any, text: Array, start: Any, size: Any) -> Any:
    """Whether `size` bytes are the same in both."""
    same = True
    j = 0
    while same and j < size:
        same = data[at + j] == text[start + j]
        j += 1
    return same


@kernel
def same_text(begins: Array, data: Array, at: Array, starts: Array, text: Array, which: Array, out: Array) -> None:
    """out[i]: whether data[begins[at[i]]:begins[at[i] + 1]] is text[starts[which[i]]:starts[which[i] + 1]].

    begins, starts: int64; data, text: uint8; at, which: int64 [n]; out: bool [n].
    """
    for i in range(at.shape[0]):
        begin, start = begins[at[i]], starts[which[i]]
        size = starts[which[i] + 1] - start
        out[i] = begins[at[i] + 1] - begin == size and _alike(data, begin, text, start, size)


@kernel
def same_paged_text(
    halves: Array, data: Array, page_at: Array, page_bytes: Array, a_page: int, keys: int, entries: Array,
    starts: Array, text: Array, which: Array, out: Array,
) -> bool:  # fmt: skip
    """`same_text` of entries of a mapped file; False: a page is not what it should be.

    halves, data: the file as uint32 and as uint8; page_at, page_bytes: int64 [pages], where each page of `a_page` keys
    begins and how long it is: uint32 [m + 1] where each key begins, then their bytes; keys: of all pages.
    entries: int64 [n], 0 to keys - 1.
    """
    for i in range(entries.shape[0]):
        page = entries[i] // a_page
        e = entries[i] - page * a_page
        m = min(a_page, keys - page * a_page)
        if 4 * (m + 1) > page_bytes[page]:
            return False
        begin, end = np.int64(halves[page_at[page] // 4 + e]), np.int64(halves[page_at[page] // 4 + e + 1])
        base = page_at[page] + 4 * (m + 1)
        if begin > end or base + end > page_at[page] + page_bytes[page]:
            return False
        start = starts[which[i]]
        size = starts[which[i] + 1] - start
        out[i] = end - begin == size and _alike(data, base + begin, text, start, size)
    return True
