"""What a long command says while it works: bars on a terminal, JSON lines otherwise."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TextIO

__all__ = ["Progress"]


class Progress:
    """Stages with their wall time, and steps inside a stage.

    On a terminal: a live bar a stage (rich), on standard error.  Elsewhere: one JSON object per line, so that a
    log or another program can follow.  `timings` holds seconds by stage, in order.  In a stage whose steps are
    counted, the time that remains is estimated from those done: steps are taken to be equally long.
    """

    def __init__(self, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self.timings: dict[str, float] = {}
        self._stream = sys.stderr if stream is None else stream
        self._quiet = quiet
        self._live: Any = None
        self._task: Any = None
        self._stage = ""
        self._done, self._total, self._since = 0, 0, 0.0
        self._terminal = not quiet and self._stream.isatty()

    def __enter__(self) -> Progress:
        if self._terminal:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                SpinnerColumn,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )
            from rich.progress import Progress as Bars

            self._live = Bars(
                SpinnerColumn(finished_text="[green]✓"),
                TextColumn("{task.description:<12}"),
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(compact=True),
                TextColumn("[dim]{task.fields[note]}"),
                console=Console(file=self._stream),
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[None]:
        """Everything inside counts towards stage `name`; total: how many `step`s it has, if known."""
        before = time.perf_counter()
        self._stage = name
        self._done, self._total, self._since = 0, total or 0, before
        if self._live is not None:
            self._task = self._live.add_task(name, total=total or 1, note="")
        self._line("start", total=total)
        try:
            yield
        finally:
            seconds = time.perf_counter() - before
            self.timings[name] = self.timings.get(name, 0.0) + seconds
            if self._live is not None:
                task = next(one for one in self._live.tasks if one.id == self._task)
                self._live.update(self._task, completed=task.total, note="")
            self._line("end", seconds=round(seconds, 3))

    def step(self, note: str) -> None:
        """One step of the stage is done."""
        if self._live is not None:
            self._live.update(self._task, advance=1, note=note)
        self._done += 1
        spent = time.perf_counter() - self._since
        left = round(spent / self._done * (self._total - self._done), 1) if self._total > 1 else None
        self._line("step", note=note, remaining=left)

    def say(self, note: object) -> None:
        """What is happening now: text, or what a job tells of its progress."""
        if self._live is not None:
            self._live.update(self._task, note=str(note))
        self._line("note", note=str(note))

    def _line(self, event: str, **fields: object) -> None:
        if self._quiet or self._terminal:
            return
        told = {name: value for name, value in fields.items() if value is not None}
        print(json.dumps({"stage": self._stage, "event": event, **told}), file=self._stream, flush=True)
