"""Kernels over pages of text keys: values compared where they lie in a mapped file."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.kernels import kernel

Array = np.ndarray[Any, Any]

__all__ = ["same_text"]


@kernel
def same_text(
    halves: Array, data: Array, page_at: Array, page_bytes: Array, a_page: int, keys: int, entries: Array,
    starts: Array, text: Array, out: Array,
) -> bool:  # fmt: skip
    """out[i]: whether the key of entries[i] is text[starts[i]:starts[i + 1]]; False: a page is not what it should be.

    halves, data: the file as uint32 and as uint8; page_at, page_bytes: int64 [pages], where each page of `a_page` keys
    begins and how long it is: uint32 [m + 1] where each key begins, then their bytes; keys: of all pages.
    entries: int64 [n], 0 to keys - 1; starts: int64 [n + 1]; text: uint8; out: bool [n].
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
        size = starts[i + 1] - starts[i]
        same = end - begin == size
        j = 0
        while same and j < size:
            same = data[base + begin + j] == text[starts[i] + j]
            j += 1
        out[i] = same
    return True
