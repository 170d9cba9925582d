"""The machine: memory and cores available to this process, and what its processor is called."""

from __future__ import annotations

import os
import platform
import time
from functools import lru_cache
from pathlib import Path

# A container's limit, version 2 and version 1 of Linux control groups; "max" or a huge number means none.
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


_STATUS = Path("/proc/self/status")
_LOADS, _WAITS = Path("/proc/loadavg"), Path("/proc/thread-self/schedstat")
_LOOKED = 10.0  # seconds that a limit is taken to stand: every push asks, and a file read costs as much as its kernel


def memory_bytes() -> int:
    """Bytes of memory this process may use: the machine's, or the container's limit where that is less (looked up again
    every ten seconds)."""
    return _memory_bytes(_LIMITS, int(time.monotonic() / _LOOKED))


@lru_cache(maxsize=1)
def _memory_bytes(limits: tuple[Path, ...], _period: int) -> int:
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not a Unix: assume a small laptop
        total = 4 << 30
    for limit in limits:
        try:
            total = min(total, int(limit.read_text()))
        except (OSError, ValueError):
            continue
    return total


def memory_held(field: str) -> int | None:
    """Bytes of this process by a field of Linux's /proc/self/status: VmRSS (resident), RssAnon (resident, of no file),
    VmHWM (most resident), VmSize (addresses); None on other systems."""
    try:
        lines = _STATUS.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), None)


def peak_memory() -> int:
    """The most bytes that this process has had resident; 0 where the system does not tell.

    On Linux not what getrusage says: that starts at what the process which started this one had held.
    """
    held = memory_held("VmHWM")
    if held is not None:
        return held
    try:
        import resource  # not on Windows
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if platform.system() == "Darwin" else 1024)


def core_count() -> int:
    """Processor cores this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)


def crowd() -> float:
    """How many tasks want each of the machine's cores now, at least 1; 1 where the system does not tell.  20 us."""
    try:
        running = int(_LOADS.read_text(encoding="ascii").split()[3].split("/")[0])
    except (OSError, ValueError, IndexError):
        return 1.0
    return max(1.0, running / max(1, os.cpu_count() or 1))


def waited_ns() -> int:
    """ns that this thread could have run and had no core; 0 where the system does not tell.  20 us."""
    try:
        return int(_WAITS.read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0


@lru_cache(maxsize=1)
def processor() -> str:
    """The processor as Linux names it, else as Python does."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
