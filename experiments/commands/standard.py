"""The three standard streams of a command: closed, full, or of an encoding that knows few characters."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from nile.base.status import FAILED, WRONG

__all__ = ["standard_streams"]


@contextmanager
def standard_streams() -> Iterator[None]:
    """Whatever is wrong with a standard stream ends the command with one sentence on the other.

    The exit status is 2 for an output that is closed to begin with, 1 for one that takes no more; so it is, without a
    word, where a reader of it leaves early.  An input that is closed is empty, and bytes of it that are no text show as
    such.  What an output cannot say goes as \\u00e9, the lines of tables as signs of ASCII.
    """
    _prepare()
    try:
        yield
    except SystemExit as end:
        _flush()
        raise end from None
    except OSError as error:
        _lost(error)
    _flush()


def _prepare() -> None:
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        _say("needed a place to write to; got a closed one; send it to a file or to /dev/null")
        raise SystemExit(WRONG)
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def _flush() -> None:
    try:
        sys.stdout.flush()
    except OSError as error:
        _lost(error)


def _lost(error: OSError) -> None:
    """End the command over an output that takes no more.  Raises any other error again."""
    if error.filename is not None:
        raise error
    _discard(sys.stdout)
    if error.errno == errno.EPIPE:
        raise SystemExit(FAILED) from None
    _say(f"cannot be written: {error.strerror or error}; what came out of it is not whole")
    raise SystemExit(FAILED) from None


def _say(told: str) -> None:
    with suppress(OSError):
        sys.stderr.write(f"nile: standard output: {told}\n")
        sys.stderr.flush()


def _discard(stream: TextIO) -> None:
    """What is left in a stream goes nowhere: Python would complain of it once more at its end."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
