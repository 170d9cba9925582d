"""The most memory that a piece of work takes beyond what its process had before."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Callable
from pathlib import Path

from nile.base.machine import memory_held
from nile.summaries.heavy import pa

__all__ = ["peak_of"]

_CLEAR = Path("/proc/self/clear_refs")


def peak_of(run: Callable[[], object]) -> int | None:
    """Bytes resident at the peak of a run, less those before it, when allocators had given back what they kept.

    What the run returns counts.  None where there is no /proc with a peak that can begin anew (Linux has one).
    """
    gc.collect()
    for name in pa.supported_memory_backends():
        getattr(pa, f"{name}_memory_pool")().release_unused()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    try:
        _CLEAR.write_text("5")
    except OSError:
        return None
    before = memory_held("VmRSS")
    run()
    peak = memory_held("VmHWM")
    return None if before is None or peak is None else max(0, peak - before)
