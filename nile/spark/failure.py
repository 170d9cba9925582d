"""Spark's failures as one sentence, without the JVM's stack."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nile.summaries.errors as errors
from nile.base.version import DISTRIBUTION
from nile.summaries.errors import ConfigError, NileError, SourceError, SparkFailed

_LONGEST = 300  # characters of a cause worth reading; Spark can quote a whole plan
_FULL = ("No space left on device", "Disk quota exceeded")
_LIMITED = "File too large"
_LINK = re.compile(r"nile-links-[^/\s]*/([0-9]{6})")
PACKAGES = {"pyspark": "pyspark", "pandas": "pandas", "pyarrow": "pyarrow", "google.protobuf": "protobuf"}
CONNECT_PACKAGES = {
    "grpc": "grpcio",
    "grpc_status": "grpcio-status",
    "google.rpc": "googleapis-common-protos",
    "zstandard": "zstandard",
}


@contextmanager
def spark_failures(where: str, *, source: Path | None = None, files: Sequence[Path] = ()) -> Iterator[None]:
    """Turns whatever Spark, Py4J or the JVM raises inside into SparkFailed: `where`, then the cause.

    source: the file that is being read, or files: those read through `plain_links`; if Spark finds one broken
    inside, that is a SourceError naming it.  A NileError that a task raised comes back as that error.
    Other exceptions (Nile's own, KeyboardInterrupt, bugs) pass.
    """
    try:
        yield
    except Exception as error:
        # A dead Java process shows as a refused connection.
        foreign = type(error).__module__.partition(".")[0] not in ("pyspark", "py4j")
        if foreign and not isinstance(error, ConnectionError):
            raise
        said = str(error)
        broken = source or _broken(said, files)
        if broken is not None and "FAILED_READ_FILE" in said:
            raise SourceError(
                f"{where}: {broken}: needed a whole file; it is broken inside: {cause(error)}; write or copy it again"
            ) from None
        told = _from_task(said)
        if told is not None:
            raise told from None
        if any(full in said for full in _FULL):
            raise SparkFailed(
                f"{where}: Spark failed: the disk is full; make room where the output goes and in the directory of "
                "temporary files (TMPDIR), then run it again"
            ) from None
        if _LIMITED in said:
            raise SparkFailed(
                f"{where}: Spark failed: a file would be larger than a process may write; raise the size that a file "
                "may have (ulimit -f), then run it again"
            ) from None
        raise SparkFailed(f"{where}: Spark failed: {cause(error)}") from None


def needed_packages(where: str, packages: Mapping[str, str] = PACKAGES) -> None:
    """Raises ConfigError for a Python package that Spark would import silently, in tasks too, and is not there.

    packages: the name to install, by what is imported.
    """
    for module, name in packages.items():
        try:
            there = importlib.util.find_spec(module) is not None
        except (ImportError, ValueError):  # a module that refuses to be looked for
            there = False
        if not there:
            mend = f"pip install '{DISTRIBUTION}[spark]'" if packages is PACKAGES else f"pip install {name}"
            raise ConfigError(
                f"{where}: needed the Python package '{name}', which Spark imports; it is not installed; "
                f"{mend}, or see `nile doctor`"
            )


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
    """The first line of a message that says something, without error class, SQLSTATE and stack.

    Of a Python traceback, its last line.
    """
    if "Traceback (most recent call last)" in text:
        text = _last_line(text)
    for line in text.splitlines():
        line = re.sub(r"^(\S+(Exception|Error): )?(\[[A-Z0-9_.]+\] )?", "", line.strip())
        line = re.sub(r"\s*SQLSTATE: \w+.*$", "", line)
        if line and not line.startswith(("at ", "Caused by:", "==")):
            return line if len(line) <= _LONGEST else line[:_LONGEST] + " ..."
    return "it gave no reason"


def _broken(said: str, files: Sequence[Path]) -> Path | None:
    """The file of `files` that a message names by its link."""
    found = _LINK.search(said)
    return files[int(found[1])] if found is not None and int(found[1]) < len(files) else None


def _from_task(said: str) -> NileError | None:
    """The error of Nile that ended a task, from its traceback."""
    if "Traceback (most recent call last)" not in said:
        return None
    name, _, message = _last_line(said).partition(": ")
    kind = (
        getattr(errors, name.removeprefix("nile.summaries.errors."), None)
        if name.startswith("nile.summaries.errors.")
        else None
    )
    return kind(message) if isinstance(kind, type) and issubclass(kind, NileError) else None


def _last_line(said: str) -> str:
    """The line of a traceback that names the exception: the last one that is not indented, before Java's."""
    lines = said[said.rindex("Traceback (most recent call last)") :].splitlines()[1:]
    told = [line for line in lines if line.strip() and not line.startswith((" ", "\t", "at "))]
    return told[0].strip() if told else "it gave no reason"
