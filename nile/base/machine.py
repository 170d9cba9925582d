"""The machine's resources: memory and cores available to this process."""

from __future__ import annotations

import os
from pathlib import Path

# A container's limit, version 2 and version 1 of Linux control groups; "max" or a huge number means none.
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def memory_bytes() -> int:
    """Bytes of memory this process may use: the machine's, or the container's limit where that is less."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not a Unix: assume a small laptop
        total = 4 << 30
    for limit in _LIMITS:
        try:
            total = min(total, int(limit.read_text()))
        except (OSError, ValueError):
            continue
    return total


def core_count() -> int:
    """Processor cores this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)
