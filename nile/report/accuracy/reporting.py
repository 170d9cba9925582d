"""What `report()` of an answer is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from nile.summaries.errors import ConfigError

__all__ = ["Step", "Wanted"]

Step = Callable[[int, int, str], None]
"""Told after each run: how many are done, of how many, and what it was."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `report` was asked for, unchecked; None: chosen for it.  query: the statement, where there is one."""

    budgets: Iterable[float] | None = None
    seeds: int | None = None
    against: Sequence[str] | str | None = None
    engine: str | None = None
    on_progress: Step | None = None
    query: str | None = None

    def step(self, done: int, total: int, note: str) -> None:
        """One run is done."""
        if self.on_progress is not None:
            self.on_progress(done, total, note)

    def refuse_exact(self, is_exact: bool, budget: object) -> None:
        """Raises ConfigError for an answer that cannot fall short, unless it is a statement's, which sweeps budgets."""
        if is_exact and self.query is None:
            raise ConfigError(
                f"report: needed an answer under a budget, which can fall short; got the whole answer (budget "
                f"{budget}); run the query with a preference and a budget, such as run(0.1)"
            )
