"""What Spark says when a job fails, as one sentence and without the JVM's stack."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from summaries.errors import SparkFailed

_LONGEST = 300  # characters of a cause worth reading; Spark can quote a whole plan
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@contextmanager
def spark_failures(where: str) -> Iterator[None]:
    """Turns whatever Spark, Py4J or the JVM raises inside into SparkFailed: `where`, then the cause.

    Other exceptions (Nile's own, KeyboardInterrupt, bugs) pass.  PySpark also logs each error with its
    stack to stderr; inside, it does not.
    """
    loggers = _loggers()
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        raise SparkFailed(f"{where}: Spark failed: {cause(error)}") from None
    finally:
        for logger, state in zip(loggers, before, strict=True):
            logger.disabled = state


def cause(error: BaseException) -> str:
    """The innermost reason of a Spark error in one sentence."""
    raised: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    try:
        if raised is None:
            return sentence(str(error))
        while raised.getCause() is not None:
            raised = raised.getCause()
        return sentence(str(raised.getMessage() or raised.toString()))
    except Exception:  # the JVM that could have told is gone
        return "the Java process ended, out of memory or killed"


def sentence(text: str) -> str:
    """The first line of a message that says something, without error class, SQLSTATE and stack."""
    for line in text.splitlines():
        line = re.sub(r"^(\S+(Exception|Error): )?(\[[A-Z0-9_.]+\] )?", "", line.strip())
        line = re.sub(r"\s*SQLSTATE: \w+.*$", "", line)
        if line and not line.startswith(("at ", "Caused by:", "==")):
            return line if len(line) <= _LONGEST else line[:_LONGEST] + " ..."
    return "it gave no reason"


def _loggers() -> list[Any]:
    # PySpark's own kind of logger takes arguments that a plain one of the same name would refuse.
    from pyspark.logger import PySparkLogger

    return [PySparkLogger.getLogger(name) for name in _LOGGERS]
