"""The backlog of a paused standing query: kept in order, and processed later as if it arrived then."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nile.exact.state.held import MOST, Held, State
from nile.streams.manager import TupleBatch
from nile.summaries.heavy import pa

__all__ = ["Backlog", "Step"]

_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Step:
    """Tuples of a stream, or none: only that time has passed.  passed: how far all streams were then, ns, or None."""

    passed: int | None
    name: str | None = None
    batch: TupleBatch | None = None


class Backlog:
    """Steps in their order.  rows, bytes: of their tuples."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque()
        self.rows = self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._steps)

    def add(self, step: Step) -> None:
        """One more.  Of steps without tuples the last tells all."""
        if step.batch is None and self._steps and self._steps[-1].batch is None:
            self._steps.pop()
        self._steps.append(step)
        if step.batch is not None:
            self.rows += len(step.batch)
            self.bytes += _bytes(step.batch)

    def taken(self) -> Iterator[Step]:
        """All of them, which are in it no more once they are handed out."""
        while self._steps:
            step = self._steps.popleft()
            if step.batch is not None:
                self.rows -= len(step.batch)
                self.bytes -= _bytes(step.batch)
            yield step

    def capture(self) -> list[State]:
        """For `Held.parts`."""
        return [
            {
                "passed": _NEVER if step.passed is None else step.passed,
                "name": step.name or "",
                **({} if step.batch is None else {"ts": step.batch.ts, "rows": step.batch.carried}),
            }
            for step in self._steps
        ]

    def restore(self, parts: list[Held], schemas: dict[str, pa.Schema]) -> None:
        """Put back what `capture` gave.  schemas: of each stream's tuples.  Raises EnvelopeError."""
        for part in parts:
            at, name = part.integer("passed", _NEVER, MOST), part.text("name")
            passed = None if at == _NEVER else at
            if not name:
                self.add(Step(passed))
            elif name not in schemas:
                part.refuse(f"a stream among {', '.join(schemas)}", name)
            else:
                ts = part.rising("ts").astype(np.int64)
                rows = part.rows("rows", schemas[name], len(ts))
                self.add(Step(passed, name, TupleBatch(0, ts, pa.nulls(len(ts)), rows)))
            part.end()


def _bytes(batch: TupleBatch) -> int:
    return int(batch.ts.nbytes) + (0 if batch.carried is None else int(batch.carried.nbytes))
