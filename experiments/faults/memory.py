"""What an attempt takes of memory: a limit beyond which allocations fail, and the peak of what was touched."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from nile.base.machine import memory_held
from nile.experiments.faults.fault import expect
from nile.summaries.heavy import pa

__all__ = ["anonymous", "bounded", "descriptors"]

MB = 1_000_000


@contextlib.contextmanager
def bounded(touched: int, claimed: int) -> Iterator[None]:
    """Inside, memory that is claimed fails beyond `claimed` bytes more; more than `touched` resident raises Wrong.

    Allocators give back what they keep first: 243 MB of a heap that had so much free were touched and not seen.
    Needs /proc (Linux); elsewhere nothing is bounded.
    """
    status = Path("/proc/self/status")
    if sys.platform != "linux" or not status.exists():
        yield
        return
    _give_back()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory_held("VmRSS") or 0
    limit = (memory_held("VmSize") or 0) + claimed
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard < 0 else min(limit, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    grown = (memory_held("VmHWM") or 0) - before
    expect(grown <= touched, f"{grown / MB:.0f} MB of memory were touched; the cap is {touched / MB:.0f} MB")


def anonymous() -> tuple[int, int]:
    """(anonymous resident bytes of this process, and those that allocators had kept for later and gave back before).

    What is free but kept comes and goes by megabytes and hides what grows.  Needs /proc and glibc for the latter.
    """
    gc.collect()
    before = memory_held("RssAnon") or 0
    _give_back()
    after = memory_held("RssAnon") or 0
    return after, before - after


def _give_back() -> None:
    """Have allocators give the system what they keep for later."""
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def descriptors() -> int:
    """Open file descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))
