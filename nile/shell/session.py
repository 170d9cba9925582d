"""The shell's state and what a line does to it, apart from any terminal."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from typing import TYPE_CHECKING, TextIO

from nile.base.show import first_rows, render, row_count
from nile.base.status import STOPPED, status_of
from nile.expressions.tokens import split_statements
from nile.shell.commands import HELP, command, no_command
from nile.summaries.errors import ConfigError, NileError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    import pyarrow as pa

    from nile.answers.result import Result
    from nile.engine.database import Database

__all__ = ["Shell"]

_LIMIT = 40
_COUNTING_S = 1.0
_ASCII_LINES = str.maketrans("".join(map(chr, range(0x2500, 0x2580))), "--||" + "+" * 124) | {0x2026: "..."}
"""Box drawing and the ellipsis."""


class Shell:
    """Statements end with ';' and may take several lines; lines that begin with '.' are commands of the shell.

    out, err: where tables and messages go.  form: one of `nile.base.show.FORMATS`.  limit: most rows of a table
    that are shown (None: all); CSV, JSON and Markdown show all.  width: of tables, in characters.
    """

    def __init__(
        self, database: Database, out: TextIO, err: TextIO, *, form: str = "table", limit: int | None = _LIMIT,
        width: int = 80,
    ) -> None:  # fmt: skip
        self.database = database
        self.form = form
        self.limit = limit
        self.width = width
        self.timer = False
        self.emit: str | None = None
        self.done = False
        self.status = 0
        self._out = out
        self._err = err
        self._waiting = ""

    @property
    def waiting(self) -> bool:
        """Whether a statement has begun and not ended."""
        return bool(self._waiting.strip())

    def say(self, text: str) -> None:
        """A line for whoever reads the shell."""
        self._write(text + "\n")

    def _write(self, text: str) -> None:
        """To whoever reads the shell; lines of tables as signs of ASCII where the output knows no others."""
        try:
            text.encode(self._out.encoding or "utf-8")
        except UnicodeEncodeError:
            text = text.translate(_ASCII_LINES)
        self._out.write(text)

    def line(self, text: str) -> bool:
        """Take one line of input.  False when something in it failed: the message is on `err`, the shell goes on."""
        if not self.waiting and text.strip().startswith("."):
            return self._guarded(lambda: command(self, text.strip()))
        if not self.waiting and text.startswith("\\"):
            return self._guarded(lambda: no_command(text.strip()))
        if not self.waiting and text.strip().lower().rstrip(";") in ("quit", "exit"):
            self.done = True
            return True
        if not self.waiting and text.strip().lower().rstrip(";") == "help":
            self.say(HELP)
            return True
        self._waiting += text + "\n"
        if not _ended(self._waiting):
            return True
        statements, self._waiting = self._waiting, ""
        return self.script(statements)

    def finish(self) -> bool:
        """Run what the input's end left without a ';'."""
        statements, self._waiting = self._waiting, ""
        return self.script(statements)

    def forget(self) -> None:
        """Drop the statement that has begun (Ctrl-C)."""
        self._waiting = ""

    def script(self, text: str) -> bool:
        """Run statements one after another up to the first that fails."""

        def run() -> None:
            for statement in split_statements(text):
                self.statement(statement)

        return self._guarded(run)

    def statement(self, text: str) -> None:
        """Run one statement and show what it returns.  Raises NileError."""
        began = time.perf_counter()
        result = self.database.sql(text, emit=self.emit)
        self._show(result)
        if self.timer:
            self.say(f"Time: {time.perf_counter() - began:.3f} s")
        self._out.flush()

    def _show(self, result: Result) -> None:
        if result.message is not None:
            told = self.form == "table" or "plan" in result.columns
            to = self._out if told else self._err  # what a program reads holds rows alone
            to.write(result.message + "\n")
            to.flush()
            return
        bounded = self.limit if self.form == "table" else None
        found = _Counted(result.batches())
        rows, more = first_rows(found, bounded)
        schema = result.schema
        self._write(render(schema.names, [str(kind) for kind in schema.types], rows, self.form, width=self.width))
        if self.form == "table":
            count = f"first {len(rows):,} of {found.total()}; .limit shows more" if more else row_count(len(rows))
            worth = result.worth()
            self.say(f"({'; '.join([count, *([] if worth is None else [worth]), *result.left_out()])})")

    def _guarded(self, run: object) -> bool:
        assert callable(run)
        came: list[int] = []
        with _noting(came):
            try:
                run()
            except NileError as error:
                self._out.flush()
                self._err.write(f"{error}\n")
                self._err.flush()
                self.status = status_of(error)
                return False
            except KeyboardInterrupt:
                self._err.write("stopped\n")
                self.status = STOPPED
                return False
            except Exception:
                if not came:
                    raise
                self._err.write("stopped\n")  # compiled modules that are interrupted while they load raise others
                self.status = STOPPED
                return False
        return True

    def set_limit(self, text: str) -> None:
        """`.limit N|all`.  Raises ConfigError."""
        if text == "all":
            self.limit = None
        elif text.isascii() and text.isdigit() and int(text) > 0:
            self.limit = int(text)
        else:
            raise ConfigError(f".limit: needed a whole number above 0, or all; got {text!r}; write .limit 100")


@contextlib.contextmanager
def _noting(came: list[int]) -> Iterator[None]:
    """Put down each Ctrl-C that is answered as Python answers it by itself."""

    def noted(number: int, frame: FrameType | None) -> None:
        came.append(number)
        signal.default_int_handler(number, frame)

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, noted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class _Counted:
    """Batches, and how many rows have come."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._batches)
        self._rows += batch.num_rows
        return batch

    def total(self) -> str:
        """How many rows there are, in words: as far as a second of reading on tells."""
        until = time.perf_counter() + _COUNTING_S
        for _ in self:
            if time.perf_counter() > until:
                return f"more than {self._rows:,} rows"
        return f"{self._rows:,} rows"


def _ended(text: str) -> bool:
    """Whether nothing but white space and comments follows the last ';' (one in quotes is none)."""
    return split_statements(text + "\nx")[-1] == "x"
