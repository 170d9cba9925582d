"""What Spark says when a job fails, as one sentence and without the JVM's stack."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from summaries.errors import SourceError, SparkFailed

_LONGEST = 300  # characters of a cause worth reading; Spark can quote a whole plan


@contextmanager
def spark_failures(where: str, *, source: Path | None = None) -> Iterator[None]:
    """Turns whatever Spark, Py4J or the JVM raises inside into SparkFailed: `where`, then the cause.

    source: the file that is being read; if Spark finds it broken inside, that is a SourceError.
    Other exceptions (Nile's own, KeyboardInterrupt, bugs) pass.
    """
    try:
        yield
    except Exception as error:
        # A dead Java process shows as a refused connection.
        foreign = type(error).__module__.partition(".")[0] not in ("pyspark", "py4j")
        if foreign and not isinstance(error, ConnectionError):
            raise
        if source is not None and "FAILED_READ_FILE" in str(error):
            raise SourceError(
                f"{where}: {source}: needed a whole file; it is broken inside: {cause(error)}; write or copy it again"
            ) from None
        raise SparkFailed(f"{where}: Spark failed: {cause(error)}") from None


def cause(error: BaseException) -> str:
    """The innermost reason of a Spark error in one sentence."""
    gone = "the Java process ended, out of memory or killed"
    # With an answer from Java it would be a Py4JJavaError.
    if isinstance(error, ConnectionError) or type(error).__name__ in ("Py4JError", "Py4JNetworkError"):
        return gone
    raised: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    try:
        if raised is None:
            return sentence(str(error))
        while raised.getCause() is not None:
            raised = raised.getCause()
        return sentence(str(raised.getMessage() or raised.toString()))
    except Exception:  # the process that could have told has just gone
        return gone


def sentence(text: str) -> str:
    """The first line of a message that says something, without error class, SQLSTATE and stack."""
    for line in text.splitlines():
        line = re.sub(r"^(\S+(Exception|Error): )?(\[[A-Z0-9_.]+\] )?", "", line.strip())
        line = re.sub(r"\s*SQLSTATE: \w+.*$", "", line)
        if line and not line.startswith(("at ", "Caused by:", "==")):
            return line if len(line) <= _LONGEST else line[:_LONGEST] + " ..."
    return "it gave no reason"
