"""Every error Nile raises on purpose.

Each class is also the builtin a caller would catch without knowing Nile, and each message says where,
what was needed, what came and what to do.
"""

from __future__ import annotations


class NileError(Exception):
    """The root: `except nile.NileError` catches every mistake Nile can name."""


class SourceError(NileError, ValueError):
    """A source exists but cannot be read as a stream: empty, truncated, a directory, a bad schema."""


class SourceMissing(NileError, FileNotFoundError):
    """A source names a file that is not there."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class SchemaDrift(SourceError):
    """The columns of an input are not those that a stream has, and no rule says what to do; shows a diff."""


class UnknownColumn(NileError, LookupError):
    """A query names a column its stream does not have."""


class UnknownStream(NileError, LookupError):
    """A query names a stream that was never registered."""


class TimestampOrderError(NileError, ValueError):
    """A tuple is older than one already read and no lateness was declared."""


class KeyTypeError(NileError, TypeError):
    """A column type that cannot be a join key, or two keys that cannot be compared."""


class ExpressionError(NileError, ValueError):
    """A condition that does not parse, or uses something outside the allowed expressions."""


class SqlError(NileError, ValueError):
    """A statement that does not parse or does not bind; its message begins with line and column.

    line, column: where in the statement, from 1; 0 where there is no one place.
    """

    def __init__(self, message: str, *, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class NotYet(NileError, NotImplementedError):
    """A query that means something Nile cannot run yet; the message names the operator and what to do instead."""


class SummaryMismatch(NileError, ValueError):
    """Two summaries that do not share type, shape and seed were combined."""


class NotLinear(NileError, TypeError):
    """A summary that cannot take things back was asked to subtract."""


class EnvelopeError(NileError, ValueError):
    """Bytes that are not an intact envelope of a version this Nile reads."""


class EnvelopeTooNew(EnvelopeError):
    """An intact envelope of a version that only a newer Nile reads."""


class StoreError(NileError, OSError):
    """A durable store or a lake cannot be used as asked.  `errno` is set where the operating system gave one."""


class StoreMissing(StoreError, FileNotFoundError):
    """No store is at this path, and none was to be made."""


class NotAStore(StoreError, ValueError):
    """The path is a file, or a folder that holds something else: it was not touched."""


class StoreLocked(StoreError, BlockingIOError):
    """Another process, `pid` on `host` (None where it did not say), writes to this store."""

    def __init__(self, message: str, *, pid: int | None = None, host: str | None = None) -> None:
        super().__init__(message)
        self.pid = pid
        self.host = host


class StoreReadOnly(StoreError, PermissionError):
    """A change was asked of a store that is open for reading only, or that may only be read."""


class StoreCorrupt(StoreError, ValueError):
    """Files of a store are missing or altered, and no intact generation was left to go back to."""


class StoreTooNew(StoreError, ValueError):
    """A newer Nile wrote this store."""


class StoreWriteError(StoreError):
    """Writing failed (disk full, I/O error, failing fsync): the committed state is intact, a later commit may work."""


class StoreRecovered(UserWarning):
    """A store was opened at an older generation than the newest it may have had.  A warning, not an error."""


class ConfigError(NileError, ValueError):
    """A setting outside its range, of the wrong type, or unknown."""


class BudgetError(NileError, ValueError):
    """A budget that is negative, NaN, zero, or given in two ways at once."""


class ErrorTargetMissed(NileError, ArithmeticError):
    """A query asked for an error that its budget could not buy, and said to refuse then."""


class SumOverflow(NileError, OverflowError):
    """An exact sum of whole numbers that 64 bits cannot hold."""


class Overloaded(NileError, BlockingIOError):
    """Outputs of a standing query wait unread up to their limit: nothing was taken, push the same again later."""


class ConstraintViolation(NileError, ValueError):
    """Tuples came against a constraint that was declared of their streams ON VIOLATION FAIL."""


class DatabaseClosed(NileError, RuntimeError):
    """Something was asked of a database, or of what depends on it, after `close()`."""


class DatabaseTorn(NileError, RuntimeError):
    """A change of a database was cut off half way; nothing of it is read or written any more."""


class CostWarning(UserWarning):
    """An answer that cost, or would cost, more than plain exact execution.  A warning, not an error."""


class RowsLeftOut(UserWarning):
    """Rows of a source that an answer is without: unreadable ones, or late ones.  A warning, not an error."""


class CompileWarning(UserWarning):
    """A query waits while its kernels are compiled, the first time on a machine.  A warning, not an error."""


class MemoryRefused(NileError, MemoryError):
    """An operation whose answer or state could not fit in memory was refused before it began."""


class JavaMissing(NileError, RuntimeError):
    """Spark was asked for and no Java 17 or newer is on this machine or in the environment."""


class SparkFailed(NileError, RuntimeError):
    """A Spark job failed; the message carries the cause without the JVM stack."""
