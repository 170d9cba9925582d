"""The exit statuses of the `nile` command, one rule for all of its parts.

0: done.  1: it failed while it ran, or what was to be checked does not hold; the same command may do better another
time, or with more memory, disk or patience.  2: it cannot be done as it was asked (options, statements, names, types,
files that do not hold what was said).  130: stopped by Ctrl-C, as of any other command.
"""

from __future__ import annotations

from nile.summaries.errors import (
    ConstraintViolation,
    DatabaseTorn,
    ErrorTargetMissed,
    JavaMissing,
    MemoryRefused,
    Overloaded,
    SparkFailed,
    StoreCorrupt,
    StoreLocked,
    StoreWriteError,
    SumOverflow,
)

__all__ = ["FAILED", "STOPPED", "WRONG", "status_of"]

FAILED, WRONG, STOPPED = 1, 2, 130
_WHILE_RUNNING = (
    ConstraintViolation, DatabaseTorn, ErrorTargetMissed, JavaMissing, MemoryRefused, Overloaded, SparkFailed,
    StoreCorrupt, StoreLocked, StoreWriteError, SumOverflow,
)  # fmt: skip


def status_of(error: BaseException) -> int:
    """With what a command ends that this ends."""
    if isinstance(error, KeyboardInterrupt):
        return STOPPED
    return FAILED if isinstance(error, _WHILE_RUNNING) else WRONG
