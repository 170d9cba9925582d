"""`report()`: what every approximate answer offers beside its rows, namely how good they are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from summaries.errors import ConfigError

if TYPE_CHECKING:
    from nile.report.accuracy.report import AccuracyReport

__all__ = ["Reporting", "Step", "Wanted"]

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


class Reporting:
    """An answer that can be measured against the exact one."""

    def report(
        self,
        path: str | Path | None = None,
        *,
        budgets: Iterable[float] | None = None,
        seeds: int | None = None,
        against: Sequence[str] | str | None = None,
        engine: str | None = None,
        on_progress: Step | None = None,
    ) -> AccuracyReport:
        """How good this answer is, against the exact one: recall by budget, histograms, outliers, intervals, advice.

        The query is run again over what it has read: for each of `budgets` (fractions of the exact work; None: 1 % to
        100 %), for `seeds` seeds (5), and by each opponent that `against` names beside "exact" (of joins hash-drop).
        engine: what computes the exact pairs of a join of two streams, "local" (in this process) or "spark".  path:
        where to write it (`AccuracyReport.save`).  on_progress: called after each run.
        Raises ConfigError for an answer that is exact, BudgetError, MemoryRefused, JavaMissing, SparkFailed.
        """
        told = self.measured(Wanted(budgets, seeds, against, engine, on_progress))
        if path is not None:
            told.save(path)
        return told

    @abstractmethod
    def measured(self, wanted: Wanted) -> AccuracyReport:
        """The body of `report`."""
