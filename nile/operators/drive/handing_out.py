"""What several joins find that move on together, handed out one by one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from nile.operators.drive.round_robin import RoundRobinRun
from nile.operators.drive.standing import StandingRun

__all__ = ["HandingOut"]


class HandingOut:
    """Hands out what each query finds while all move on together.  found: of each query, step by step."""

    def __init__(
        self, run: StandingRun | RoundRobinRun, operators: Sequence[Any], found: Iterator[list[list[Any]]]
    ) -> None:
        self.run = run
        self.operators = operators
        self._running = found
        self._found: list[deque[Any]] = [deque() for _ in operators]

    def outputs(self, query: int) -> Iterator[Any]:
        """A query's outputs, in the order found."""
        found = self._found[query]
        while True:
            while found:
                yield found.popleft()
            if not self._go_on():
                return

    def finish(self) -> None:
        """Run to the end; what is found is kept until it is asked for."""
        while self._go_on():
            pass

    def _go_on(self) -> bool:
        parts = next(self._running, None)
        if parts is None:
            return False
        for mine, found in zip(self._found, parts, strict=True):
            mine.extend(found)
        return True
