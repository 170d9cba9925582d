"""From which of Arrow's allocators memory comes: in small pages as long as little is held, then in large ones."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["SMALL_PAGES", "page_pool"]

SMALL_PAGES = 1 << 25
"""Bytes taken in pages of 4 KB.  Of pages of 2 MB each that is begun is there whole: twice what a query over 400,000
tuples fills.  Beyond, clearing so many pages one by one costs more: three times the whole of a query that tells 16
million pairs."""


def page_pool(size: int = 0) -> Any:
    """The pool that so much memory is to be taken of, some KB or more; None: the one that Arrow is set to.  .3 us."""
    pa = importlib.import_module("pyarrow")
    if "jemalloc" not in pa.supported_memory_backends():
        return None
    small = pa.jemalloc_memory_pool()
    return small if small.bytes_allocated() + size <= SMALL_PAGES else None
